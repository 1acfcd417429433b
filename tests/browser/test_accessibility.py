"""Names, keyboard, widths, schemes."""

import pytest

pytestmark = pytest.mark.browser

NAMELESS = """() => [...document.querySelectorAll('input, select, button, summary')]
  .filter(one => one.checkVisibility())
  .concat([...document.querySelectorAll('[role=img], [role=application]')])
  .filter(one => !(one.getAttribute('aria-label') || one.labels?.length || one.textContent.trim()))
  .map(one => one.outerHTML.slice(0, 120))"""

CONTRAST = """() => {
  const channel = value => (value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const ground = one => {
    for (; one; one = one.parentElement) {
      const colour = parse(getComputedStyle(one).backgroundColor);
      if (colour.length < 4 || colour[3] > 0.5) return colour;
    }
    return [255, 255, 255];
  };
  const words = [...document.querySelectorAll(
    'h1, h2, h3, p, dt, dd, small, .name, output, figcaption, button, summary, legend, select')];
  return words.filter(one => one.checkVisibility() && one.textContent.trim()).map(one => {
    const [a, b] = [light(parse(getComputedStyle(one).color)), light(ground(one))];
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), one.outerHTML.slice(0, 100)];
  }).filter(([ratio]) => ratio < 4.5);
}"""


OUTLINE = """() => {
  const one = document.activeElement, style = getComputedStyle(one);
  return one === document.body ? null : `${style.outlineStyle} ${style.outlineWidth}`;
}"""


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_screen_is_named_legible_and_fits(visit, server, width, scheme):
    page = visit(server.address + "?item=700&other=3", width=width, color_scheme=scheme)
    page.wait_for_selector(".view .other img[src^='data:']")
    assert page.evaluate(NAMELESS) == []
    assert page.evaluate(CONTRAST) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.documentElement.lang").startswith("en")
    assert page.locator("h1").count() == 1
    assert page.locator("main").count() == 1
    assert page.evaluate(
        "new Set([...document.querySelectorAll('[id]')].map(one => one.id)).size"
    ) == page.evaluate("document.querySelectorAll('[id]').length")
    dark = page.evaluate("document.body.classList.contains('body--dark')")
    assert dark == (scheme == "dark")


def test_names_of_sliders_are_their_own(visit, server):
    page = visit(server.address)
    names = page.locator("input[type=range]").evaluate_all("all => all.map(one => one.ariaLabel)")
    assert len(set(names)) == len(names)


def test_everything_is_reached_by_tab(visit, server):
    page = visit(server.address)
    wanted = page.locator("input, select, button, summary, .plane-drawing[tabindex]").evaluate_all(
        "all => all.filter(one => one.checkVisibility()).length"
    )
    page.evaluate(
        "window.met = new Set(); document.addEventListener('focusin', event => met.add(event.target))"
    )
    outlines = set()
    for _ in range(wanted + 5):
        page.keyboard.press("Tab")
        outlines.add(page.evaluate(OUTLINE))
    assert page.evaluate("met.size") >= wanted
    assert outlines - {None} == {"solid 3px"}


def test_the_picture_stays_in_sight_on_a_phone(visit, server):
    page = visit(server.address, width=390, height=844)
    page.locator(".geometry").scroll_into_view_if_needed()
    page.locator(".sliders input[type=range]").first.scroll_into_view_if_needed()
    frame = page.locator(".view .main").bounding_box()
    assert frame["y"] >= 0
    assert frame["height"] < 844 / 2


def test_the_theme_can_be_chosen(visit, server):
    page = visit(server.address, color_scheme="light")
    button = page.get_by_role("button", name="Theme: system")
    button.click()
    page.wait_for_selector("body.body--dark")
    page.get_by_role("button", name="Theme: dark").click()
    page.wait_for_selector("body:not(.body--dark)")


def test_values_are_spoken(visit, server):
    page = visit(server.address)
    slider = page.locator(".sliders input[type=range]").first
    slider.focus()
    page.keyboard.press("ArrowLeft")
    assert slider.get_attribute("aria-valuetext") == "−0.05"
