"""Decoders of one's own, in a browser."""

import re
from urllib.parse import urlsplit

import pytest

pytestmark = pytest.mark.browser

SLIDERS = ".sliders .stack > .control input[type=range]"
CHANGED = "before => document.querySelector('.view .main img').src !== before"


def test_a_decoder_of_ones_own(visit, own, picture):
    page = visit(own.address)
    assert page.title() == "my decoder · unseam explorer"
    assert page.locator(SLIDERS).count() == 4
    for gone in (".choosing", ".beta", ".top .control"):
        assert not page.locator(gone).is_visible()
    before = picture(page)
    page.get_by_label("Latent z1", exact=True).focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function(CHANGED, arg=before)
    plane = page.locator(".plane-drawing")
    before = picture(page)
    plane.click(position={"x": 120, "y": 120})
    page.wait_for_function(CHANGED, arg=before)
    page.wait_for_selector(".rotation .drawing svg")
    assert "MIG" not in page.locator(".rotation .drawing").inner_text()


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("latent", [1, 40])
def test_one_latent_or_many_fit_the_screen(visit, explored, latent, width):
    with explored(latent) as found:
        page = visit(found.address, width=width)
        page.wait_for_selector(".geometry .strip img[src^='data:']")
        assert page.locator(SLIDERS).count() == latent
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        strip = page.locator(".geometry .strip img").first.bounding_box()
        assert 56 * latent <= strip["width"] <= 150 * latent
        assert page.locator(".map").is_visible() == (latent > 1)
        page.context.close()


def test_a_server_that_is_started_again_finds_the_state(chromium, explored):
    page = chromium.new_page()  # it logs, rightly, that it has lost its server
    with explored(2) as found:
        page.goto(found.address)
        page.wait_for_selector(".geometry .numbers dd")
        page.locator(SLIDERS).first.press("ArrowRight")
        page.wait_for_url(re.compile(r"z=[^&]*0\.05"))
        address = page.url
        page.evaluate("window.before = true")
    with explored(2, urlsplit(found.address).port) as again:
        assert again.address == found.address
        page.wait_for_function("!window.before", timeout=30_000)  # the page has loaded itself again
        page.wait_for_selector(".geometry .numbers dd")
        assert page.url == address
        assert page.locator(SLIDERS).first.input_value() == "0.05"
        page.close()


@pytest.mark.slow
def test_a_visit_that_is_stopped_while_tabs_are_open_ends_quietly(chromium, explored):
    with explored(2) as found:  # which sees to it that nothing was said
        page = chromium.new_page()  # it logs, rightly, that it has lost its server
        page.goto(found.address)
        page.wait_for_selector(".geometry .numbers dd")
        found.process.send_signal(2)
        assert found.process.wait(20) == 0
        page.close()
