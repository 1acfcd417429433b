"""Figures of components show the nodes, fields and pictures that they were given."""

import numpy as np
import pytest
import torch

from unseam.geometry import local_basis
from unseam.independence import submanifold
from unseam.report import components_figure, strip_figure, to_svg


def decoder(z):
    return torch.sigmoid(z.repeat_interleave(8, 1) * torch.linspace(1, 2, 16)).reshape(-1, 1, 4, 4)


@pytest.fixture(scope="module")
def curves():
    starts = torch.tensor([[0.5, -1.0], [0.2, 0.3]])
    return {f"component {i}": submanifold(decoder, starts, i, length=1.0, steps=4, data=True) for i in (0, 1)}


@pytest.fixture(scope="module")
def single():
    return {"first": submanifold(decoder, torch.tensor([0.5, -1.0]), 0, length=1.0, steps=4, data=True)}


def test_curves_are_drawn_through_their_nodes(curves):
    lines = components_figure(curves).axes[0].lines
    for place, curve in enumerate(curves.values()):
        for turn in range(2):
            line = lines[3 * (2 * place + turn)]  # each with its start and its rings
            np.testing.assert_allclose(np.stack(line.get_data(), 1), curve.points[turn], rtol=1e-6)
    assert [text.get_text() for text in components_figure(curves).axes[0].get_legend().texts] == list(curves)


def test_rings_mark_degenerate_nodes(single):
    (name, curve), *_ = single.items()
    marked = torch.zeros(9, dtype=torch.bool)
    marked[[1, 5]] = True
    rings = components_figure({name: curve._replace(degenerate=marked)}).axes[0].lines[2]
    np.testing.assert_allclose(np.stack(rings.get_data(), 1), curve.points[marked], rtol=1e-6)


def test_arms_lie_along_the_fields(single):
    grid = torch.cartesian_prod(torch.linspace(-1, 1, 3), torch.linspace(-1, 1, 3))
    fields = local_basis(decoder, grid)
    panel = components_figure(
        single, grid=grid, right_vectors=fields.right_vectors, singular_values=fields.singular_values
    ).axes[0]
    spans = np.stack([np.diff(np.stack(line.get_data(), 1), axis=0)[0] for line in panel.lines[:18]])
    directions = np.concatenate([fields.right_vectors[:, :, 0], fields.right_vectors[:, :, 1]])
    lengths = np.linalg.norm(spans, axis=1)
    np.testing.assert_allclose(np.abs((spans * directions).sum(1)), lengths, rtol=1e-5)
    ratio = fields.singular_values[:, 1] / fields.singular_values[:, 0]
    np.testing.assert_allclose(lengths[9:] / lengths[:9], ratio, rtol=1e-5)


def test_strips_show_pictures_with_their_lengths(single):
    curve = single["first"]
    figure = strip_figure(single, count=3)
    for axes, node in zip(figure.axes, (0, 4, 8), strict=True):
        np.testing.assert_allclose(axes.images[0].get_array(), curve.data[node, 0], rtol=1e-6)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == [f"{curve.data_length[0]:+.3g}", "0", f"{curve.data_length[8]:+.3g}"]


def test_the_same_figure_gives_the_same_bytes(curves, single):
    for draw in (lambda: components_figure(curves, samples=torch.zeros(3, 2)), lambda: strip_figure(single)):
        assert to_svg(draw()) == to_svg(draw())


def test_bad_curves_are_named(single):
    curve = single["first"]
    for bad, options, message in (
        (curve._replace(data=None), {}, "curves must be traced with data=True, got 'first' without data"),
        (
            curve._replace(data=torch.zeros(9, 5)),
            {},
            "curves must have pictures (step, height, width) for data",
        ),
        (curve, {"count": 10}, "count must be from 1 to the 9 nodes of 'first', got 10"),
    ):
        with pytest.raises(ValueError) as raised:
            strip_figure({"first": bad}, **options)
        assert message in str(raised.value)
    with pytest.raises(ValueError, match="curves must be of at most 5 components, got 6"):
        components_figure(dict.fromkeys("abcdef", curve))
