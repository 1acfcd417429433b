"""Figures from plain arrays, and the page that holds them."""

import re

import numpy as np
import pandas as pd
import pytest
import torch

from unseam.report import (
    Section,
    basis_figure,
    cosine_figure,
    curves_figure,
    gaps_figure,
    geometry_figures,
    pictures_figure,
    precision_figure,
    recovery_figure,
    spectrum_figure,
    to_svg,
    write_page,
    write_svg,
)

METRIC = torch.diag(torch.tensor([4.0, 1.0, 1e-9])).expand(20, 3, 3)
ALIVE = torch.tensor([True, True, False])
FIGURES = {
    "recovery": lambda: recovery_figure({"one": np.eye(2), "two": np.ones((1, 2))}, ("x", "y")),
    "gaps": lambda: gaps_figure({"DtO": {"a b": [0.1], "c": [0.2, 0.4]}}, {"DtO": 1.0}),
    "pictures": lambda: pictures_figure(
        {"a": np.zeros((2, 4, 4)), "b": np.ones((1, 4, 4))}, columns=("l", "r")
    ),
    "signed": lambda: pictures_figure({"a": np.linspace(-1, 1, 32).reshape(2, 4, 4)}, signed=True),
    "curves": lambda: curves_figure(
        pd.DataFrame({"member": [0, 0, 1, 1], "step": [1, 2, 1, 2], "loss": [3.0, 2, 1, -1]}),
        {"a": [0], "b": [1]},
        term="loss",
    ),
    "spectrum": lambda: spectrum_figure(METRIC, ALIVE),
    "cosine": lambda: cosine_figure(METRIC),
    "basis": lambda: basis_figure(torch.eye(3).expand(20, 3, 3)),
    "one point": lambda: basis_figure(torch.eye(1).expand(1, 1, 1)),
    "precision": lambda: precision_figure(1 / (1 + METRIC.diagonal(dim1=1, dim2=2)), METRIC, ALIVE),
    "covariance": lambda: precision_figure(torch.linalg.inv(torch.eye(3) + METRIC), METRIC, ALIVE),
}


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_reproducible_to_the_byte(name):
    first, second = (to_svg(FIGURES[name]()) for _ in range(2))
    assert first == second
    assert first.startswith("<svg") and first.rstrip().endswith("</svg>")
    assert not re.search(r"<dc:date>", first)


@pytest.mark.parametrize(
    ("count", "rows", "columns"), [(1, 1, 1), (3, 1, 3), (4, 2, 2), (5, 2, 3), (7, 3, 3)]
)
def test_panels_go_on_below_instead_of_shrinking(count, rows, columns):
    figure = gaps_figure({f"score {k}": {"a": [0.1], "b": [0.2, 0.4]} for k in range(count)})
    shape = figure.axes[0].get_gridspec().get_geometry()
    assert shape == (rows, columns)
    assert sum(axes.get_visible() for axes in figure.axes) == count
    assert figure.get_size_inches()[0] / columns > 2.5


def test_dots_at_the_top_are_whole_and_chance_is_in_view():
    top, missing = gaps_figure({"top": {"a": [0.9, 1.0]}, "none": {"a": [float("nan")]}}, {"top": 2.0}).axes
    assert top.get_ylim() == (0, pytest.approx(2.16))
    assert missing.get_ylim() == (0, 1)


def test_cosines_are_those_of_the_columns():
    gram = torch.tensor([[4.0, 3.0], [3.0, 9.0]]).expand(5, 2, 2)
    shown = [text.get_text() for text in cosine_figure(gram).axes[0].texts]
    assert shown == ["1", ".50", ".50", "1"]


def test_points_of_an_optimal_posterior_lie_on_the_line():
    variance = 1 / (1 + METRIC.diagonal(dim1=1, dim2=2) / 2)
    for line in precision_figure(variance, METRIC, ALIVE, beta=2.0).axes[0].lines:
        np.testing.assert_allclose(*line.get_data(), rtol=1e-5)


def test_without_a_posterior_there_is_no_precision():
    assert set(geometry_figures(METRIC, METRIC, ALIVE, None)) == {"spectrum", "cosine", "basis"}
    assert "precision" in geometry_figures(METRIC, METRIC, ALIVE, torch.ones(20, 3))
    assert "precision" not in geometry_figures(METRIC, METRIC, ALIVE, torch.zeros(20, 3))


def test_svg_files_are_written_whole(tmp_path):
    path = write_svg(FIGURES["basis"](), tmp_path / "new" / "basis.svg")
    assert "<svg" in path.read_text()
    assert [entry.name for entry in path.parent.iterdir()] == ["basis.svg"]


def test_page_stands_alone(tmp_path):
    sections = [
        Section("Text & more", ("a < b",), table=({"model": "β", "DtO": "0.1"},)),
        Section("Figure", (), to_svg(FIGURES["cosine"]()), "cosines"),
    ]
    path = write_page(
        tmp_path / "page.html", "Title", "Lead", sections, {"seed": 0, "world": "sprites, a twin"}
    )
    text = path.read_text()
    assert "a &lt; b" in text and "Text &amp; more" in text
    assert text.count("<svg") == text.count("</svg>") == 1
    assert 'aria-label="cosines"' in text
    assert '<td class="n">0.1</td>' in text
    assert "prefers-color-scheme: dark" in text
    loads = re.findall(r'(?:src|href)="(?!#)([^"]+)"', text)
    assert all(load.startswith("data:") for load in loads)
    assert "<script" not in text
    assert "sprites, a twin" in text


def test_figures_shrink_only_as_far_as_they_can_be_read(tmp_path):
    """Seven tenths of the figure's own width, beyond which its box scrolls; print has no scrolling."""
    figure = gaps_figure({f"score {k}": {"a": [0.1]} for k in range(3)})
    sections = [Section("F", (), to_svg(figure), "dots"), Section("G", (), "<svg></svg>", "none")]
    text = write_page(tmp_path / "page.html", "T", "L", sections, {}).read_text()
    assert f'style="min-width: {0.7 * 72 * figure.get_size_inches()[0]:.0f}pt"' in text
    assert ".card svg, .chart { min-width: 0 !important; }" in text.split("@media print")[1]
    assert "<svg></svg>" in text


def test_a_figure_needs_words(tmp_path):
    with pytest.raises(ValueError, match="section 'Figure' has a figure and must have an alt text"):
        write_page(tmp_path / "page.html", "T", "L", [Section("Figure", (), "<svg></svg>")], {})
    assert not (tmp_path / "page.html").exists()
