"""The report from disk: complete, quiet, legible, as wide as the screen, and whole on paper."""

import itertools
import re
import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

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
    tallest = page.eval_on_selector_all(".caption", "all => Math.max(...all.map(one => one.offsetHeight))")
    assert tallest < 100  # no caption is squeezed beside its buttons
    inset = "one => one.getBoundingClientRect().left - one.parentNode.getBoundingClientRect().left"
    assert set(page.eval_on_selector_all(".panel > svg.chart", f"all => all.map({inset})")) == {0}
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
    wanted = "nav a, summary, input, button, .scroll, .panel[tabindex]"
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
    assert page.eval_on_selector_all(
        "nav, footer, main details, .player, .screen, .save", style, "display"
    ) == ["none"]
    assert page.eval_on_selector_all(".words p", style, "color") == ["rgb(27, 31, 36)"]


def test_it_is_complete_without_scripts(visit, address):
    page = visit(address, ready=False, java_script_enabled=False)
    assert page.locator("h2").count() > 5
    assert page.locator("svg, img").first.is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_figure_can_be_saved_whole(visit, address, tmp_path, scheme):
    """As SVG and PNG that need nothing else: title, legend and fonts inside, on white, from a file on disk."""
    page = visit(address, ready=False, color_scheme=scheme)
    panels = page.locator(".panel")
    assert panels.count() == page.locator(".save").count() > 8
    fixed = page.locator(".panel:has(p.legend)").first
    for panel in (page.locator(".panel:has(.strip)").first, fixed):
        title = panel.evaluate("one => one.closest('section').querySelector('h2').textContent")
        with page.expect_download() as saved:
            panel.get_by_label("Save as SVG").click()
        saved.value.save_as(tmp_path / "figure.svg")
        text = (tmp_path / "figure.svg").read_text()
        root = ElementTree.fromstring(text)
        assert root.tag == "{http://www.w3.org/2000/svg}svg" and title in text
        assert "@font-face" in text and "var(--" not in text and "class=" not in text
        assert not re.findall(r'(?:href|src)="(?!data:)|url\((?!data:)', text)
        for word in panel.locator(".caption, .legend span, .walk b").all_text_contents():
            assert word.split()[0] in text
        assert "rgb(230, 237, 243)" not in text  # the ink of dark paper
        with page.expect_download() as saved:
            panel.get_by_label("Save as PNG").click()
        saved.value.save_as(tmp_path / "figure.png")
        picture = Image.open(tmp_path / "figure.png").convert("RGB")
        assert picture.size == (3 * int(root.get("width")), 3 * int(root.get("height")))
        assert picture.getpixel((2, 2)) == (255, 255, 255) and len(picture.getcolors(10**6)) > 8
    assert page.locator(".paper").count() == 0


def test_the_verdict_comes_first(visit, address):
    page = visit(address, ready=False)
    assert page.locator("h2").first.text_content() == "Verdict on each link"
    rows = page.locator("main section").first.locator("table").first.locator("tbody tr")
    assert rows.count() == 4
    assert all(rows.nth(k).locator("td strong").first.text_content() for k in range(4))
    shown = rows.nth(1).inner_text()
    assert "Undefined: fewer than two active latents" in shown  # of the model whose β left none
