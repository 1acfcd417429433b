"""What a visitor can do, done in a browser."""

import io
import re

import pytest
from PIL import Image

pytestmark = pytest.mark.browser

SLIDERS = ".sliders .stack > .control input[type=range]"
NUMBERS = ".geometry .numbers"
DOTS = ".map .plane-drawing circle[fill]"
PLACES = "all => all.map(one => Number(one.getAttribute('cx')))"


def changed(page, selector, before, *, what="innerHTML"):
    """Wait until a part of the page is not what it was, and return it."""
    page.wait_for_function(
        "([selector, what, before]) => document.querySelector(selector)[what] !== before",
        arg=[selector, what, before],
    )
    return page.locator(selector).first.evaluate(f"element => element.{what}")


def src(page):
    return page.locator(".view .main img").get_attribute("src")


def press(page, label, key="ArrowRight", times=1):
    control = page.get_by_label(label, exact=True)
    control.focus()
    for _ in range(times):
        page.keyboard.press(key)


def test_every_slider_moves_the_picture_and_the_geometry(visit, server):
    page = visit(server.address)
    count = page.locator(SLIDERS).count()
    assert count >= 2
    for k in range(count):
        before, numbers = src(page), page.locator(NUMBERS).inner_html()
        slider = page.locator(SLIDERS).nth(k)
        slider.focus()
        for _ in range(8):
            page.keyboard.press("ArrowRight")
        changed(page, ".view .main img", before, what="src")
        changed(page, NUMBERS, numbers)
        assert slider.input_value() == "0.4"


def test_geometry_has_all_its_parts(visit, server):
    page = visit(server.address)
    active = page.locator(SLIDERS).count()
    assert page.locator(".geometry .drawing").first.locator("rect").count() == active**2
    assert page.locator(".geometry .drawing").nth(1).locator("rect").count() == active
    assert page.locator(".geometry .strip img").count() == 2
    assert "DtO here" in page.locator(NUMBERS).inner_text()
    page.get_by_text("What these numbers mean").click()
    assert "distance to orthogonality" in page.locator(".terms").inner_text()
    page.locator(SLIDERS).first.press("ArrowRight")
    page.wait_for_function("selector => document.querySelector(selector).value === '0.05'", arg=SLIDERS)
    assert page.locator(".terms dl").is_visible()  # it stays open as the numbers change


def test_collapsed_latents_are_folded_away(visit, server):
    page = visit(server.address + "?member=2")
    collapsed = page.locator(".collapsed input[type=range]")
    assert collapsed.count() >= 1
    assert not collapsed.first.is_visible()
    page.locator(".collapsed summary").click()
    assert collapsed.first.is_visible()


def test_a_link_restores_the_state(visit, server):
    page = visit(server.address, permissions=["clipboard-read", "clipboard-write"])
    press(
        page, "Latent z1" if page.get_by_label("Latent z1", exact=True).is_visible() else "Latent z2", times=5
    )
    press(page, "Angle of the rotation", times=12)
    page.get_by_label("Compare with").select_option("3")
    page.wait_for_selector(".view .other img[src^='data:']")
    page.get_by_role("button", name="Copy link").click()
    page.wait_for_url(re.compile(r"\?member=0&z="))
    page.wait_for_function("async () => (await navigator.clipboard.readText()) == location.href")
    values = page.locator(SLIDERS).evaluate_all("all => all.map(one => one.value)")
    again = visit(page.url)
    again.wait_for_selector(".view .other img[src^='data:']")
    assert again.locator(SLIDERS).evaluate_all("all => all.map(one => one.value)") == values
    assert src(again) == src(page)
    assert again.get_by_label("Angle of the rotation").input_value() == "12"
    assert again.get_by_label("Compare with").input_value() == "3"


@pytest.mark.parametrize(
    "query, message",
    [
        ("?z=1,2", "z must hold 5 numbers"),
        ("?member=../../etc/passwd", "member must be a whole number below 5"),
        ("?file=/etc/passwd", "a link has no parameter 'file'"),
        ("?z=<script>alert(1)</script>", "z must hold 5 numbers"),
    ],
)
def test_a_bad_link_gets_a_message_and_a_page(visit, server, query, message):
    page = visit(server.address + query)
    assert message in page.get_by_role("alert").inner_text()
    assert page.locator(SLIDERS).count() >= 2


def test_the_map_is_clicked_and_keyed(visit, server):
    page = visit(server.address)
    plane = page.locator(".plane-drawing")
    page.wait_for_selector(DOTS)
    assert page.locator(DOTS).count() > 300
    assert plane.locator("ellipse").count() > 10
    before = src(page)
    frame = plane.bounding_box()
    plane.click(position={"x": 0.7 * frame["width"], "y": 0.3 * frame["height"]})
    first = changed(page, ".view .main img", before, what="src")
    across = float(page.locator(SLIDERS).first.input_value())
    assert across > 0.5
    plane.focus()
    page.keyboard.press("ArrowLeft")
    changed(page, ".view .main img", first, what="src")
    page.wait_for_function(
        "([selector, value]) => Number(document.querySelector(selector).value) < value", arg=[SLIDERS, across]
    )


def test_a_click_on_a_dot_leads_to_its_code(visit, server):
    page = visit(server.address)
    page.wait_for_selector(DOTS)
    dots = page.locator(DOTS).evaluate_all(
        """all => all.map(one => [one.getBoundingClientRect(), one.cx.baseVal.value, one.cy.baseVal.value])
          .map(([box, cx, cy]) => [box.x + box.width / 2, box.y + box.height / 2, cx, cy])"""
    )
    for x, y, *code in (min(dots, key=lambda dot: dot[1]), max(dots, key=lambda dot: dot[1])):
        page.mouse.click(x, y)
        page.wait_for_function(
            """([x, y]) => {
              const spot = document.querySelector('.map .marker circle');
              return Math.hypot(spot.cx.baseVal.value - x, spot.cy.baseVal.value - y) < 1.5;
            }""",
            arg=code,
        )


def test_the_map_is_zoomed_dragged_and_hovered(visit, server):
    page = visit(server.address)
    page.wait_for_selector(DOTS)
    plane, before = page.locator(".plane-drawing"), page.locator(DOTS).evaluate_all(PLACES)
    frame = plane.bounding_box()
    x, y = frame["x"] + 0.55 * frame["width"], frame["y"] + 0.45 * frame["height"]
    # a drag from the origin takes the point along
    start = page.locator(".map .marker circle").bounding_box()
    page.mouse.move(start["x"] + start["width"] / 2, start["y"] + start["height"] / 2)
    page.mouse.down()
    page.mouse.move(x + 20, y - 20)  # in one step, so that no value between is seen
    page.mouse.up()
    page.wait_for_function("selector => document.querySelector(selector).value > 0.1", arg=SLIDERS)
    value = page.locator(SLIDERS).first.input_value()
    page.mouse.move(x, y)
    page.mouse.wheel(0, -600)
    page.wait_for_function(
        "([selector, count]) => document.querySelectorAll(selector).length < count", arg=[DOTS, len(before)]
    )
    # what was zoomed into is dragged itself, and no point moves
    zoomed = page.locator(DOTS).evaluate_all(PLACES)
    page.mouse.move(x - 100, y + 60)
    page.mouse.down()
    page.mouse.move(x - 60, y + 60, steps=4)
    page.mouse.up()
    assert page.locator(DOTS).evaluate_all(PLACES) != zoomed
    assert page.locator(SLIDERS).first.input_value() == value
    page.get_by_role("button", name="Show the whole plane").click()
    assert page.locator(DOTS).evaluate_all(PLACES) == before
    dot = page.locator(DOTS).first.bounding_box()
    page.mouse.move(dot["x"] + dot["width"] / 2, dot["y"] + dot["height"] / 2)
    page.wait_for_selector(".tip:not([hidden])")
    assert re.match(r"item \d+, scale ", page.locator(".tip").inner_text())
    page.mouse.dblclick(dot["x"] + dot["width"] / 2, dot["y"] + dot["height"] / 2)
    page.wait_for_selector(".view .item:not(.hidden) img[src^='data:']")


def test_a_traced_curve_is_drawn_on_the_map(visit, server):
    page = visit(server.address + "?follow=1")
    press(page, "Along singular vector 1", times=10)
    page.wait_for_selector(".map .trace")
    first, *_, last = page.locator(".map .trace").get_attribute("points").split()
    assert first != last
    page.get_by_role("button", name="To the origin").click()
    page.wait_for_selector(".map .trace", state="detached")


def test_the_state_lives_in_the_address(visit, server):
    page = visit(server.address)
    name = page.locator(SLIDERS).first.get_attribute("aria-label")
    press(page, name, times=6)
    page.wait_for_url(re.compile(r"[=,]0\.3[,&]"))
    page.get_by_label("Model", exact=True).select_option("1")
    page.wait_for_url(re.compile(r"\?member=1&"))
    press(page, "Angle of the rotation", times=7)
    page.wait_for_url(re.compile(r"rotation=\d,\d,7&"))
    page.reload()
    page.wait_for_selector(".view .main img[src^='data:']")
    assert page.get_by_label("Angle of the rotation").input_value() == "7"
    assert page.get_by_label("Model", exact=True).input_value() == "1"
    page.go_back()
    page.wait_for_url(re.compile(r"\?member=0&"))
    page.wait_for_function("document.querySelector('.top select')?.value === '0'")
    page.wait_for_function("selector => document.querySelector(selector)?.value === '0.3'", arg=SLIDERS)


def test_collapse_is_undefined_and_not_orthogonal(visit, server):
    page = visit(server.address + "?member=2")
    assert page.locator(SLIDERS).count() == 1
    text = page.locator(NUMBERS).inner_text()
    assert text.count("undefined: fewer than two active latents") == 3
    assert "0.00" not in text
    assert "0: orthogonal" not in text


def test_the_plane_of_factors_leads_to_items(visit, server):
    page = visit(server.address)
    page.get_by_label("Plane of").select_option("1")
    page.wait_for_function("document.querySelector('.axis-name')?.textContent === 'scale'")
    plane = page.locator(".plane-drawing")
    frame = plane.bounding_box()
    plane.click(position={"x": 0.8 * frame["width"], "y": 0.5 * frame["height"]})
    page.wait_for_selector(".view .item img[src^='data:']")
    chosen = page.get_by_label("Factor scale").element_handle()
    page.wait_for_function("chosen => chosen.value === '6'", arg=chosen)


def test_an_item_is_encoded_to_its_point(visit, server):
    page = visit(server.address)
    before = src(page)
    press(page, "Factor x", times=6)
    page.wait_for_selector(".view .item img[src^='data:']")
    changed(page, ".view .main img", before, what="src")
    page.wait_for_function("Math.abs(document.querySelector('.sliders input').value) > 0.1")
    before = page.locator(".view .item img").get_attribute("src")
    page.get_by_role("button", name="Random item").click()
    changed(page, ".view .item img", before, what="src")


def test_singular_vectors_are_followed(visit, server):
    page = visit(server.address)
    page.get_by_label("Follow singular vectors").check()
    page.wait_for_selector("[aria-label='Along singular vector 1']")
    before = src(page)
    press(page, "Along singular vector 1", times=10)
    page.wait_for_function("document.querySelector('.status').textContent.startsWith('Following v1 from')")
    changed(page, ".view .main img", before, what="src")
    # no axis is a singular vector exactly: more than one coordinate has moved
    page.get_by_role("button", name="Copy link").click()
    page.wait_for_url(re.compile("follow=1"))
    page.wait_for_function(
        "/z=([^&]*)/.exec(location.href)[1].split(',').filter(value => Math.abs(value) > 1e-4).length > 1"
    )


def test_a_rotation_keeps_the_picture_and_changes_the_geometry(visit, server):
    page = visit(server.address)
    press(page, page.locator(SLIDERS).first.get_attribute("aria-label"), times=10)
    page.wait_for_timeout(600)
    before, numbers = src(page), page.locator(NUMBERS).inner_html()
    page.wait_for_selector(".rotation .drawing svg")
    drawn = page.locator(".rotation .drawing").inner_html()
    press(page, "Angle of the rotation", times=40)
    changed(page, NUMBERS, numbers)
    changed(page, ".rotation .drawing", drawn)
    assert src(page) == before
    assert "squared error" in page.locator(".rotation .drawing").inner_text()
    page.wait_for_function("selector => document.querySelector(selector).value === '0.4'", arg=SLIDERS)


def test_the_beta_dial_moves_everything(visit, server):
    page = visit(server.address)
    page.wait_for_selector(".beta .drawing svg")
    before, found = src(page), page.locator(".beta .strip img").nth(1).get_attribute("src")
    press(page, "β", times=1)
    page.wait_for_function("document.querySelector('.top select').value === '2'")
    changed(page, ".view .main img", before, what="src")
    page.wait_for_function(
        "before => document.querySelectorAll('.beta .strip img')[1].src !== before", arg=found
    )
    assert page.get_by_label("β", exact=True).evaluate("element => element === document.activeElement")
    text = page.locator(".beta .drawing").inner_text()
    assert all(name in text for name in ("squared error", "active latents", "DtO / random", "MIG"))


def test_a_hasty_hand_does_not_leave_a_slider_behind(visit, server):
    page = visit(server.address)
    name = page.locator(SLIDERS).first.get_attribute("aria-label")
    press(page, name, times=5)
    page.get_by_role("button", name="To the origin").evaluate("button => button.click()")
    page.wait_for_function("selector => document.querySelector(selector).value === '0'", arg=SLIDERS)
    press(page, name, times=3)
    page.wait_for_timeout(400)  # what was put before is not put again
    assert page.locator(SLIDERS).first.input_value() == "0.15"


def test_two_models_side_by_side(visit, server):
    page = visit(server.address)
    page.get_by_label("Compare with").select_option("4")
    page.wait_for_selector(".view .other img[src^='data:']")
    assert "autoencoder" in page.locator(".view .other figcaption").inner_text()
    page.wait_for_function("document.querySelectorAll('.pair-table tr').length === 6")
    page.get_by_label("under").select_option("1")
    page.wait_for_function(
        "document.querySelector('.choosing > .quiet').textContent.includes('Choose an item')"
    )
    page.get_by_role("button", name="Random item").click()
    page.wait_for_selector(".view .other:not(.hidden) img")
    page.wait_for_selector(".view .item:not(.hidden) img")


@pytest.mark.parametrize("form", ["GIF", "WebP"])
@pytest.mark.parametrize("what, name", [("last slider", "traversal"), ("rotation", "rotation")])
def test_a_traversal_and_the_rotation_are_recorded(visit, server, what, name, form):
    page = visit(server.address)
    with page.expect_download() as waiting:
        page.get_by_role("button", name=f"Record the {what} as {form}").click()
    assert waiting.value.suggested_filename == f"{name}.{form.lower()}"
    with Image.open(io.BytesIO(waiting.value.path().read_bytes())) as image:
        assert image.format == form.upper()
        assert image.n_frames > 20


def test_the_state_as_python(visit, server, run, capsys):
    page = visit(server.address + "?z=0.5,-0.5,1,0.25,-1")
    page.get_by_role("button", name="Show this state as Python code").click()
    code = page.locator("pre.code").inner_text()
    assert f"model = unseam.load({str(run)!r})[0]" in code
    exec(code, {})
    dto = float(re.search(r"DtO (.*)", capsys.readouterr().out)[1])
    assert page.locator(".numbers dd").first.inner_text().split()[0] == f"{dto:.2f}"
    page.get_by_role("button", name="Close").click()
    page.wait_for_selector("pre.code", state="detached")


def test_another_model_is_chosen(visit, server):
    page = visit(server.address)
    before = src(page)
    page.get_by_label("Model", exact=True).select_option("3")
    changed(page, ".view .main img", before, what="src")
    assert "full covariance" in page.locator(".view .main figcaption").inner_text()


def test_a_point_beyond_the_sliders_is_named_as_it_is(visit, server):
    page = visit(server.address + "?z=9,9,9,9,9")
    assert page.locator(".sliders output").first.inner_text() == "9.00"
