"""The report from disk: complete, quiet, and as wide as the screen."""

import itertools

import pytest

import unseam

pytestmark = pytest.mark.browser


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


def test_a_slider_moves_every_latent(visit, address):
    page = visit(address, ready=False)
    slider = page.locator("input[type=range]").first
    name = slider.evaluate(
        "one => one.labels.length ? one.labels[0].textContent : one.getAttribute('aria-label')"
    )
    assert name.strip()
    before = page.content()
    slider.focus()
    slider.press("ArrowRight")
    assert page.content() != before


def test_it_is_complete_without_scripts(visit, address):
    page = visit(address, ready=False, java_script_enabled=False)
    assert page.locator("h2").count() > 5
    assert page.locator("svg, img").first.is_visible()
