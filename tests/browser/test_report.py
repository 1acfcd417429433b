"""The report from disk: complete, quiet, legible, as wide as the screen, and whole on paper."""

import itertools
import runpy
from pathlib import Path

import pytest

import unseam

pytestmark = pytest.mark.browser

SCREENS = runpy.run_path(str(Path(__file__).with_name("test_accessibility.py")))
PLACES = "all => all.map(one => getComputedStyle(one).backgroundPosition)"


@pytest.fixture(scope="module")
def address(run, tmp_path_factory):
    path = unseam.report.write(run, tmp_path_factory.mktemp("page") / "report.html")
    return path.as_uri()


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_from_disk_and_fits(visit, address, width, scheme):
    page = visit(address, width=width, ready=False, color_scheme=scheme)
    assert page.locator("h1").count() == 1
    assert page.locator("svg, img").count() > 5
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    levels = page.eval_on_selector_all("h1, h2, h3, h4", "all => all.map(one => Number(one.tagName[1]))")
    assert all(below - above <= 1 for above, below in itertools.pairwise(levels))
    assert page.evaluate(SCREENS["NAMELESS"]) == []
    assert page.evaluate(SCREENS["CONTRAST"]) == []
    ids = page.eval_on_selector_all("[id]", "all => all.map(one => one.id)")
    assert len(ids) == len(set(ids))


def test_a_slider_moves_every_latent(visit, address):
    page = visit(address, ready=False)
    walk = page.locator(".panel:has(> .walk:not(.still))").first
    slider = walk.get_by_label("Move every latent")
    screens = walk.locator(".screen")
    before = screens.evaluate_all(PLACES)
    assert len(before) == walk.locator("img.strip").count() == 5
    slider.focus()
    slider.press("ArrowRight")
    after = screens.evaluate_all(PLACES)
    assert all(one != other for one, other in zip(before, after, strict=True))
    assert slider.get_attribute("aria-valuetext") == walk.locator("output").text_content() == "+0.5 σ"


def test_values_show_under_the_pointer(visit, address):
    page = visit(address, ready=False, reduced_motion="reduce")
    mark = page.locator("svg.chart rect[data-tip]").first
    mark.scroll_into_view_if_needed()
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    mark.hover()
    assert page.locator("#tip").text_content() == mark.get_attribute("data-tip")
    assert "nats" in mark.get_attribute("data-tip")
    page.mouse.move(1, 1)
    assert page.locator("#tip").text_content() == ""


def test_everything_is_reached_by_tab(visit, address):
    page = visit(address, width=390, ready=False)
    wanted = "nav a, summary, input, .scroll, .panel[tabindex]"
    missed = "all => all.filter(one => one.checkVisibility() && !met.has(one)).map(one => one.outerHTML.slice(0, 80))"
    page.evaluate("window.met = new Set(); addEventListener('focusin', event => met.add(event.target))")
    for _ in range(page.locator(wanted).count() + 5):
        page.keyboard.press("Tab")
    assert page.eval_on_selector_all(wanted, missed) == []
    hidden = "all => all.filter(one => one.scrollWidth > one.clientWidth + 1 && one.tabIndex < 0).length"
    assert page.eval_on_selector_all(".panel, .scroll", hidden) == 0


def test_on_paper_words_stay_with_their_charts(visit, address):
    page = visit(address, width=700, ready=False, color_scheme="dark")
    page.emulate_media(media="print")
    style = "(all, key) => [...new Set(all.map(one => getComputedStyle(one)[key]))]"
    assert page.eval_on_selector_all(".words", style, "breakAfter") == ["avoid"]
    assert page.eval_on_selector_all(".group, .panel, .findings > li", style, "breakInside") == ["avoid"]
    assert page.eval_on_selector_all(".legend i", style, "printColorAdjust") == ["exact"]
    assert page.eval_on_selector_all("nav, footer, main details, .player, .screen", style, "display") == [
        "none"
    ]
    assert page.eval_on_selector_all(".words p", style, "color") == ["rgb(27, 31, 36)"]


def test_it_is_complete_without_scripts(visit, address):
    page = visit(address, ready=False, java_script_enabled=False)
    assert page.locator("h2").count() > 5
    assert page.locator("svg, img").first.is_visible()
