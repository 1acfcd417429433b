"""Figures of scores: what is printed is what was given."""

import itertools
import re

import numpy as np
import pandas as pd
import pytest
import torch

from unseam.report import grid_figure, information_figure, scores_figure, to_svg


@pytest.fixture
def grid():
    names = itertools.product(
        ("mig", "dci"), ("uniform", "continuous"), ("perfect", "rotated 45°", "noisy 1")
    )
    rows = pd.DataFrame(names, columns=["metric", "world", "encoder"])
    rows["score"] = [1, 0.25, 0.996, 0.5, 0.75, 0, 0.004, -0.126, 1.25, float("nan"), 0.999999, -0.3]
    return rows


@pytest.fixture
def scores():
    return pd.DataFrame(
        {
            "member": [0, 0, 0, 1, 1, 1],
            "metric": ["mig", "sap", "udr"] * 2,
            "score": [0.5, 0.25, float("nan"), 0.75, 0.5, float("nan")],
            "lower": [0.4, 0.2, float("nan"), 0.7, 0.4, float("nan")],
            "upper": [0.6, 0.3, float("nan"), 0.8, 0.6, float("nan")],
        }
    )


def texts(axes):
    return [text.get_text() for text in axes.texts]


def labels(ticks):
    return [tick.get_text() for tick in ticks]


def test_grid_prints_every_value_in_its_cell(grid):
    uniform, continuous = grid_figure(grid).axes[:2]
    assert uniform.get_title(loc="left") == "uniform" and continuous.get_title(loc="left") == "continuous"
    assert texts(uniform) == ["1", ".00", ".25", "−.13", "1.0", "1.2"]
    assert texts(continuous) == [".50", "–", ".75", "1", "0", "−.30"]
    assert labels(uniform.get_yticklabels()) == ["perfect", "rotated 45°", "noisy 1"]


def test_grid_keeps_the_order_of_the_table(grid):
    shown = grid_figure(grid[::-1], names={"mig": "MIG"}).axes[0]
    assert labels(shown.get_xticklabels()) == ["dci", "MIG"]
    assert labels(shown.get_yticklabels()) == ["noisy 1", "rotated 45°", "perfect"]
    assert texts(shown) == ["−.30", "0", "1", ".75", "–", ".50"]


def test_text_stands_out_from_its_cell(grid):
    axes = grid_figure(grid).axes[0]
    image = axes.images[0]
    for text in axes.texts:
        column, row = text.get_position()
        cell = image.cmap(image.norm(image.get_array()[int(row), int(column)]))
        light = 0.2126 * cell[0] + 0.7152 * cell[1] + 0.0722 * cell[2]
        assert (text.get_color() == "black") == (light > 0.5)


def test_panels_side_by_side_hide_what_is_not_used(grid):
    figure = grid_figure(grid[grid.world == "uniform"], columns=2)
    assert [axes.get_visible() for axes in figure.axes[:2]] == [True, False]


def test_scores_have_their_intervals_and_none_where_there_is_no_score(scores):
    axes = scores_figure(scores, members=("β-VAE", "AE")).axes[0]
    assert labels(axes.get_yticklabels()) == ["mig", "sap"]
    assert labels(axes.get_legend().get_texts()) == ["β-VAE", "AE"]
    segments = [segment for lines in axes.collections for segment in lines.get_segments()]
    assert sorted((ends[0, 0], ends[1, 0]) for ends in segments) == [
        (0.2, 0.3),
        (0.4, 0.6),
        (0.4, 0.6),
        (0.7, 0.8),
    ]
    assert [list(line.get_xdata()) for line in axes.lines] == [[0.5, 0.25], [0.75, 0.5]]


def test_one_member_needs_no_legend(scores):
    assert scores_figure(scores[scores.member == 0]).axes[0].get_legend() is None


def test_information_is_shown_in_nats_or_as_a_part_of_the_entropy():
    information = torch.tensor([[1.5, 0.0], [0.3, 0.5], [0.0, 0.25]])
    plain = information_figure(information).axes[0]
    assert texts(plain) == ["1.5", "0", ".30", ".50", "0", ".25"]
    part = information_figure(information.numpy(), ("x", "y"), entropy=np.array([1.5, 0.5])).axes[0]
    assert texts(part) == ["1", "0", ".20", "1", "0", ".50"]
    assert labels(part.get_xticklabels()) == ["x", "y"]


def test_information_has_two_axes():
    with pytest.raises(ValueError, match=r"information must have shape \(latent, factor\), got shape \(3,\)"):
        information_figure(np.zeros(3))


@pytest.mark.parametrize("draw", ["grid", "scores", "information"])
def test_figures_are_reproducible_to_the_byte(draw, grid, scores):
    figures = {
        "grid": lambda: grid_figure(grid),
        "scores": lambda: scores_figure(scores),
        "information": lambda: information_figure(np.eye(3)),
    }
    first, second = (to_svg(figures[draw]()) for _ in range(2))
    assert first == second
    assert not re.search(r"<dc:date>", first)
