"""The figure of rejection rates shows the counts that it was given."""

import pytest

from unseam.report import calibration_figure, to_svg

CASE = {"samples": "normal", "method": "hsic", "points": 30, "components": 2, "tests": 100}
ROWS = [
    CASE | {"kind": "independent", "rejected": [1, 6]},
    CASE | {"kind": "independent", "rejected": [0, 3], "method": "dcor"},
    CASE | {"kind": "independent", "rejected": [2, 5], "samples": "uniform"},
    CASE | {"kind": "dependent", "rejected": [50, 70], "samples": "circle"},
    CASE | {"kind": "dependent", "rejected": [80, 90], "samples": "circle", "points": 60},
    CASE | {"kind": "dependent", "rejected": [20, 40], "samples": "circle", "points": 60, "components": 5},
]


def test_rates_and_power_are_those_of_the_counts():
    figure = calibration_figure(ROWS, [0.01, 0.05])
    null, power = figure.axes
    by_method = {line.get_label(): list(line.get_ydata()) for line in null.lines}
    assert by_method["hsic"] == [0.06, 0.05]
    assert by_method["dcor"] == [0.03]
    lines = [list(line.get_ydata()) for line in power.lines]
    assert [0.7, 0.9] in lines
    assert [0.4] in lines
    assert power.get_title(loc="left") == "circle"


def test_another_level_is_drawn():
    null = calibration_figure(ROWS, [0.01, 0.05], level=0.01).axes[0]
    assert list(null.lines[0].get_ydata()) == [0.01, 0.02]


def test_a_level_that_was_not_counted():
    with pytest.raises(ValueError, match=r"level must be one of 0.01, 0.05, got 0.1"):
        calibration_figure(ROWS, [0.01, 0.05], level=0.1)


def test_the_figure_is_reproducible_to_the_byte():
    first, second = (to_svg(calibration_figure(ROWS, [0.01, 0.05])) for _ in range(2))
    assert first == second
