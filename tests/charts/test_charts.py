"""Charts are well-formed, print numbers as they are, and can be read in every shade."""

import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.layout_engine import ConstrainedLayoutEngine

from unseam.charts import (
    COLOURS,
    Band,
    Bar,
    Curve,
    Dot,
    Scale,
    Spot,
    bands,
    bars,
    cloud,
    columns,
    curves,
    decimals,
    dots,
    matrix,
    scatter,
    significant,
    standalone,
    style,
    tint,
)
from unseam.charts.canvas import contrast
from unseam.drawing import panels


def parsed(text):
    return ElementTree.fromstring(text)


def texts(chart):
    return [text.text for text in parsed(chart).findall("text")]


def read(colour):
    return list(bytes.fromhex(colour.removeprefix("#")))


@pytest.mark.parametrize("paper", [0, 1])
def test_every_shade_can_be_read(paper):
    """Text on a cell has the contrast that WCAG 2 asks for, on light and on dark paper."""
    rules = re.findall(r"--h\d+: #(\w{6}); --i\d+: #(\w{6});", style())
    assert len(rules) == 22
    for fill, ink in rules[11 * paper : 11 * (paper + 1)]:
        assert contrast(read(fill), read(ink)) >= 4.5


def test_dark_paper_by_preference_or_by_a_class():
    assert "@media screen and (prefers-color-scheme: dark) { :root { --ink: #e6edf3" in style()
    assert "@media" not in style(".dark") and ".dark { --ink: #e6edf3" in style(".dark")


@pytest.mark.parametrize(
    ("low", "high", "log"), [(0, 1, False), (0, 7.3, False), (0.02, 30, True), (1, 3, True)]
)
def test_scales_have_round_ticks_inside(low, high, log):
    scale = Scale(low, high, 0, 100, log=log)
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 9
    assert all(low * 0.99 <= tick <= high * 1.01 for tick in ticks)
    assert (scale(low), scale(high)) == pytest.approx((0, 100))


@pytest.mark.parametrize(("low", "high"), [(1.4, 2.6), (0.7, 1.3), (30.0, 34.0)])
def test_narrow_scales_have_more_than_one_tick(low, high):
    ticks = Scale(low, high, 0, 100, log=True).ticks()
    assert len(ticks) > 1 and all(low * 0.99 <= tick <= high * 1.01 for tick in ticks)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.994, "0.99"), (0.995, "0.99"), (0.9951, "1.00"), (0.99999, "1.00"), (1.0, "1.00"), (0.0, "0.00"),
     (-0.001, "0.00"), (-0.5, "−0.50"), (12.345, "12.35"), (math.nan, "–"), (None, "–")],
)  # fmt: skip
def test_two_decimals_are_those_of_the_number(value, text):
    assert decimals(value) == text
    if value is not None and math.isfinite(value):
        assert float(text.replace("−", "-")) == pytest.approx(value, abs=0.00501)
        shown = texts(matrix(np.array([[value]]), ["z0"], ["z1"], "|cos|"))
        assert shown == ["z1", "z0", text]


def test_small_and_large_numbers_have_powers():
    shown = [significant(value) for value in (0.0, 0.25, -1.5, 2e-5, 30000.0, 1000.0, -1234.5, 9999.0)]
    assert shown == ["0", "0.25", "−1.5", "2·10⁻⁵", "3·10⁴", "1000", "−1230", "10⁴"]


@pytest.mark.parametrize(
    ("size", "count", "names"), [(None, 12, 12), (170, 8, 8), (170, 40, 14)], ids=["report", "few", "many"]
)
def test_names_of_many_latents_do_not_overlap(size, count, names):
    labels = [f"z{k}" for k in range(count)]
    drawn = parsed(matrix(np.eye(count), labels, labels, "|cos|", numbers=False, size=size))
    across = [text for text in drawn.findall("text") if text.get("y") == "11"]
    places = sorted(float(text.get("x")) for text in across)
    assert len(across) <= names
    assert min(np.diff(places)) > 6.6 * 3
    assert all(float(rect.get("width")) > 0 for rect in drawn.findall("rect"))
    assert len(drawn.findall("rect")) == count**2


def test_what_is_unknown_in_a_matrix_has_no_shade():
    drawn = parsed(matrix(np.array([[math.nan]]), ["a"], ["b"], "one"))
    assert drawn.find("rect").get("class") == "none" and drawn.findall("text")[-1].text == "–"


def test_bars_stay_within_their_height():
    rows = [Bar(f"v{k}", 1.0 + k) for k in range(60)]
    drawn = parsed(bars(rows, "size", "spectrum", top=60.0, height=240))
    assert float(drawn.get("viewBox").split()[3]) == 240 + 22
    labels = [float(text.get("y")) for text in drawn.findall("text") if (text.text or "").startswith("v")]
    assert min(np.diff(labels)) >= 12 and labels[0] >= 7
    first, second = parsed(bars(rows[:2], "size", "two", top=2.0)).findall("rect")
    assert 2 * float(first.get("width")) == pytest.approx(float(second.get("width")), abs=0.2)


ONES = np.array([1.0, 10.0, 1000.0])
EVERY = {
    "bars": bars([Bar("z0", 3.0), Bar("z1", 0.1)], "nats", "KL", top=3.0),
    "matrix": matrix(np.eye(3), ["z0", "z1", "z2"], ["shape", "x", "y"], "|cos|"),
    "dots": dots({"MIG": [Dot(0.5, lower=0.4, upper=0.6)], "SAP": [Dot(1.0)]}, "scores", axis="score", high=1.0),
    "dots of several": dots({"MIG": [Dot(0.1 * k) for k in range(9)], "β": [Dot(-0.5)]}, "all", axis="score"),
    "scatter": scatter({"z0": (ONES, ONES[::-1], "c0")}, "precision", across="expected", along="measured"),
    "bands": bands(
        [Band("VAE", (0.5, 8.0), (0.5, 0.4), (0.4, 0.3), (0.6, 0.5))], "DtO along β", across="β", along="DtO"
    ),
    "bands of logarithms": bands(
        [Band("VAE", (0.5, 8.0), (0.5, 0.4), (0.4, 0.3), (0.6, 0.5))], "one", across="β", along="DtO", log=True
    ),
    "cloud": cloud([Spot(-9.0, 0.0, "a", ring=True), Spot(9.0, 1.0, "b")], "scores", across="loss", along="MIG"),
    "columns": columns(
        {"z0": [Dot(4.0), Dot(2.0)], "z1": [Dot(0.25)]}, "β", across="latent", along="β", rule=Dot(1.0, name="here")
    ),
    "curves": curves(
        [0.0, 45.0, 90.0], [Curve("DtO", (0.0, 1.0, 0.5)), Curve("MIG", (0.2, 0.1, 0.3))], 45.0, label="angle"
    ),
}  # fmt: skip


def number(mark, *names):
    return [float(mark.get(name)) for name in names]


def box(text):
    """Left, right, top and bottom of a text of twelve pixels."""
    (x, y), wide = number(text, "x", "y"), 6.6 * len(text.text)
    left = x - {"middle": wide / 2, "end": wide}.get(text.get("text-anchor"), 0)
    return left, left + wide, y - 6, y + 6


@pytest.mark.parametrize("chart", EVERY.values(), ids=list(EVERY))
def test_a_chart_lies_inside_its_picture_and_fits_beside_text(chart):
    drawn = parsed(chart)
    *_, width, height = map(float, drawn.get("viewBox").split())
    assert width <= 360, "a narrow screen, and the column beside text but for its margins"
    boxes = [box(text) for text in drawn.findall("text")]
    boxes += [
        (x - r, x + r, y - r, y + r)
        for x, y, r in (number(mark, "cx", "cy", "r") for mark in drawn.findall("circle"))
    ]
    boxes += [
        (x, x + wide, y, y + tall)
        for x, y, wide, tall in (number(mark, "x", "y", "width", "height") for mark in drawn.findall("rect"))
    ]
    boxes += [number(line, "x1", "x2", "y1", "y1") for line in drawn.findall("line")]
    for left, right, top, bottom in boxes:
        assert left >= -0.2 and right <= width + 0.2 and top >= -0.2 and bottom <= height + 0.2


@pytest.mark.parametrize("chart", EVERY.values(), ids=list(EVERY))
def test_no_text_covers_another_or_a_mark(chart):
    drawn = parsed(chart)
    texts = [box(text) for text in drawn.findall("text")]
    marks = [
        (x - r, x + r, y - r, y + r)
        for x, y, r in (number(mark, "cx", "cy", "r") for mark in drawn.findall("circle"))
    ]
    for place, one in enumerate(texts):
        for other in (*texts[place + 1 :], *marks):
            assert (
                one[1] <= other[0] + 1
                or other[1] <= one[0] + 1
                or one[3] <= other[2] + 1
                or other[3] <= one[2] + 1
            ), (one, other)


def test_marks_of_a_row_stand_beside_its_name():
    rows = {"MIG": [Dot(0.1), Dot(0.2), Dot(0.3)], "SAP": [Dot(1.0)], "DCI": [Dot(0.5), Dot(0.6)]}
    drawn = parsed(dots(rows, "scores", axis="score"))
    names = [number(text, "y")[0] for text in drawn.findall("text") if text.text in rows]
    marks = iter(drawn.findall("circle"))
    for name, row in zip(names, rows.values(), strict=True):
        assert np.mean([number(next(marks), "cy")[0] for _ in row]) == pytest.approx(name, abs=0.1)
    assert names == sorted(names)


def test_marks_of_a_column_stand_around_its_name():
    marks = {"z0": [Dot(4.0), Dot(2.0)], "z1": [Dot(0.25)], "z2": [Dot(1.0), Dot(1.0), Dot(3.0)]}
    drawn = parsed(columns(marks, "β", across="latent", along="β"))
    names = [number(text, "x")[0] for text in drawn.findall("text") if text.text in marks]
    spots = iter(drawn.findall("circle"))
    for name, column in zip(names, marks.values(), strict=True):
        assert np.mean([number(next(spots), "cx")[0] for _ in column]) == pytest.approx(name, abs=0.1)


def test_points_of_a_scatter_lie_within_its_frame():
    drawn = parsed(EVERY["scatter"])
    grid = [
        number(line, "x1", "y1", "x2", "y2") for line in drawn.findall("line") if line.get("class") == "grid"
    ]
    left, top = min(line[0] for line in grid), min(line[1] for line in grid)
    right, bottom = max(line[2] for line in grid), max(line[3] for line in grid)
    for mark in drawn.findall("circle"):
        x, y, r = number(mark, "cx", "cy", "r")
        assert left <= x - r and x + r <= right and top <= y - r and y + r <= bottom


def test_intervals_and_names_of_dots():
    drawn = dots({"<b>": [Dot(0.5, "c1", "one", 0.25, 0.75)]}, "scores", axis="score", high=1.0)
    (line,) = [line for line in parsed(drawn).findall("line") if line.get("class") == "range c1"]
    mark = parsed(drawn).find("circle")
    assert (float(line.get("x1")) + float(line.get("x2"))) / 2 == pytest.approx(
        float(mark.get("cx")), abs=0.1
    )
    assert mark.find("title").text == "<b>, one: 0.5 [0.25, 0.75]"
    assert "<b>" not in drawn


def test_equal_values_lie_on_the_line():
    values = np.array([1.0, 10.0, 100.0])
    drawn = parsed(scatter({"z0": (values, values, "c0")}, "precision", across="x", along="y"))
    rule = next(line for line in drawn.findall("line") if line.get("class") == "rule")
    x1, y1, x2, y2 = (float(rule.get(key)) for key in ("x1", "y1", "x2", "y2"))
    for mark in drawn.findall("circle"):
        part = (float(mark.get("cx")) - x1) / (x2 - x1)
        assert float(mark.get("cy")) == pytest.approx(y1 + part * (y2 - y1), abs=0.1)


def test_a_rule_lies_between_what_is_above_and_below():
    drawn = parsed(
        columns(
            {"1": [Dot(4.0)], "2": [Dot(0.25)]}, "β", across="latent", along="β", rule=Dot(1.0, name="here")
        )
    )
    (rule,) = [line for line in drawn.findall("line") if line.get("class") == "now"]
    above, below = (float(mark.get("cy")) for mark in drawn.findall("circle"))
    assert float(rule.get("y1")) == pytest.approx((above + below) / 2, abs=0.1)


def test_curves_say_the_value_where_the_dial_stands():
    chart = curves([1.0, 10.0, 100.0], [Curve("MIG", (0.1, 0.2, 0.4))], 100.0, label="β", log=True)
    assert "0.40" in texts(chart)
    spots = [float(spot.get("cx")) for spot in parsed(chart).findall("circle")]
    assert spots[1] - spots[0] == pytest.approx(spots[2] - spots[1], abs=0.2)


def test_what_was_not_measured_is_said():
    assert "not measured" in texts(curves([0.0, 1.0], [Curve("MIG", (None, None))], 0.0, label="angle"))


def test_colours_are_those_of_okabe_and_ito():
    published = {"#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7"}
    assert {colour.lower() for colour in COLOURS} <= published
    assert {tint(k / 4) for k in range(5)} | {tint(k / 5, cyclic=True) for k in range(6)} <= published


def test_colours_run_from_end_to_end():
    assert (tint(-1.0), tint(2.0)) == ("#0072b2", "#d55e00")
    assert len({tint(k / 6) for k in range(7)}) == 7


@pytest.mark.parametrize(
    "caption", ["", "KL of z < 1, a caption that is wider than its chart of three hundred pixels"]
)
def test_a_chart_of_its_own_needs_no_page(caption):
    chart = bars([Bar("a > b", 1.0)], "nats", "a > b", top=1.0)
    root = parsed(standalone(chart, caption))
    assert root.tag == "{http://www.w3.org/2000/svg}svg" and root.get("aria-label") == "a > b"
    assert "--ink: #1b1f24" in root[0].text and (root[1].text or "") == caption
    width, height = float(root.get("width")), float(root.get("height"))
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    assert (width > 300) == bool(caption) and height == 46 + 24 * bool(caption)
    assert len(root[2]) == len(parsed(chart))


def test_three_panels_fit_into_a_page():
    figure, _ = panels(["one", "two", "three"])
    assert figure.get_figwidth() * 96 <= 62 * 16  # the width of a report's text


@pytest.mark.parametrize(("titles", "rows"), [(["one"], 1), (["one", "two", "three"], 2)])
def test_panels_of_a_figure(titles, rows):
    figure, axes = panels(titles, rows=rows, width=2.0, height=1.0)
    assert [one.get_title(loc="left") for one in axes] == titles
    assert [one.get_visible() for one in figure.axes] == [
        place < len(titles) for place in range(len(figure.axes))
    ]
    assert tuple(figure.get_size_inches()) == (2.0 * -(-len(titles) // rows), 1.0 * rows)
    assert isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine)  # labels keep clear of each other
    assert {label.get_size() for one in axes for label in one.get_xticklabels()} == {8.0}
