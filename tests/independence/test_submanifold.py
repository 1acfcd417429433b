"""Curves along right singular vectors: closed forms, crossings, why they end, and what comes back."""

import math

import pytest
import torch

from unseam.geometry import local_basis
from unseam.independence import submanifold

ORIGIN = torch.zeros(2, dtype=torch.float64)
# The solver keeps each curve's error in a step below its tolerance; errors of a handful of steps add up.
RTOL = 1e-6
LIMIT = 100 * RTOL


def conformal(z):
    """3 Re and Im of 2 exp(w / 2), w = z_1 + i z_2: curves of constant imaginary and real part."""
    radius = 2 * torch.exp(z[:, 0] / 2)
    return torch.stack([3 * radius * torch.cos(z[:, 1] / 2), radius * torch.sin(z[:, 1] / 2)], 1)


def quadratic(z):
    """3 Re and Im of w + w² / 8."""
    x, y = z.T
    return torch.stack([3 * x + 3 * (x**2 - y**2) / 8, y + x * y / 4], 1)


def crossing(z):
    """Singular values 2 cosh z_1 and 3, equal at z_1 = ± acosh 1.5."""
    return torch.stack([2 * torch.sinh(z[:, 0]), 3 * z[:, 1]], 1)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=0, atol=LIMIT)


@pytest.fixture(scope="module")
def curves():
    return submanifold(conformal, ORIGIN, [0, 1], length=3.0, steps=8, rtol=RTOL)


def test_curves_of_a_conformal_map_in_closed_form(curves):
    straight, bent = curves.points
    length = torch.linspace(-3, 3, 17, dtype=torch.float64)
    close(curves.latent_length, length.expand(2, -1))
    close(straight, torch.stack([length, 0 * length], 1))
    # x = -2 log cos(y / 2) has arc length 2 asinh tan(y / 2)
    across = 2 * torch.atan(torch.sinh(length / 2))
    close(bent, torch.stack([-2 * torch.log(torch.cos(across / 2)), across], 1))


def test_images_are_straight_and_their_length_is_that_of_the_data(curves):
    data = conformal(curves.points.reshape(-1, 2)).reshape(2, 17, 2)
    close(curves.data_length, torch.stack([data[0, :, 0] - data[0, 8, 0], data[1, :, 1]]))
    close(data[1, :, 0], torch.full((17,), 6.0, dtype=torch.float64))


def test_tangents_and_spectrum_are_the_decoders(curves):
    basis = local_basis(conformal, curves.points.reshape(-1, 2))
    for curve in range(2):
        rows = slice(17 * curve, 17 * curve + 17)
        overlap = (basis.right_vectors[rows, :, curve] * curves.directions[curve]).sum(-1).abs()
        close(overlap, torch.ones(17, dtype=torch.float64))
        close(curves.singular_values[curve], basis.singular_values[rows, curve])
    torch.testing.assert_close(curves.spectrum.reshape(-1, 2), basis.singular_values)
    along = curves.points.diff(dim=1)
    assert ((along * curves.directions[:, :-1]).sum(-1) > 0).all()
    assert not curves.degenerate.any()
    assert not curves.crossings.any()
    assert not curves.ambiguous.any()
    assert (curves.order == torch.tensor([[0], [1]])).all()


def test_even_in_data_space():
    curve = submanifold(conformal, ORIGIN, 1, length=3.0, steps=4, speed="data", data=True, rtol=RTOL)
    across = torch.linspace(-3, 3, 9, dtype=torch.float64)
    close(curve.data, torch.stack([torch.full_like(across, 6.0), across], 1))
    close(curve.data_length, across)
    close(curve.latent_length, 2 * torch.asinh(across / 2))


def test_a_curve_is_the_same_alone_and_among_others():
    options = {"length": 1.0, "steps": 2, "rtol": RTOL}
    alone = submanifold(quadratic, ORIGIN, 1, **options)
    assert alone.points.shape == (5, 2)
    assert alone.ended == ("length", "length")
    many = submanifold(quadratic, torch.stack([ORIGIN + 0.5, ORIGIN]), 1, **options)
    assert many.points.shape == (2, 5, 2)
    assert many.ended == (("length", "length"),) * 2
    close(many.points[1], alone.points)
    both = submanifold(quadratic, ORIGIN, [1, 0], **options)
    close(both.points[0], alone.points)


def test_a_linear_decoder_has_straight_lines():
    matrix = torch.tensor([[3.0, 1, 0], [1, 2, 1], [0, 1, 1]], dtype=torch.float64)
    start = torch.tensor([0.2, -0.1, 0.4], dtype=torch.float64)
    found = submanifold(lambda z: z @ matrix.mT, start, [0, 1, 2], length=1.0, steps=2)
    _, singular_values, transposed = torch.linalg.svd(matrix)
    for curve, direction in enumerate(transposed):
        sign = torch.sign(direction @ found.directions[curve, 0])
        line = start + found.latent_length[curve, :, None] * sign * direction
        torch.testing.assert_close(found.points[curve], line)
        torch.testing.assert_close(
            found.data_length[curve], singular_values[curve] * found.latent_length[curve]
        )


def test_the_direction_is_followed_through_a_crossing_and_not_the_place():
    found = submanifold(crossing, ORIGIN, 1, length=2.0, steps=8)
    torch.testing.assert_close(found.points[:, 0], found.latent_length)
    assert found.points[:, 1].abs().max() == 0
    torch.testing.assert_close(found.singular_values, 2 * torch.cosh(found.latent_length))
    outside = found.latent_length.abs() > math.acosh(1.5)
    torch.testing.assert_close(found.order, torch.where(outside, 0, 1))
    assert found.crossings.sum() == 2
    assert found.degenerate.sum() >= 2
    assert (found.confidence == 1).all()


def test_it_may_stop_where_fields_cross():
    found = submanifold(crossing, ORIGIN, 1, length=2.0, steps=2, through=False)
    assert found.ended == ("degenerate", "degenerate")
    reach = math.acosh(1.5 * 0.95)  # where the values come within 5 %
    spacing = 2.0 / 8  # of the solver at most
    assert reach - 2 * spacing <= found.latent_length[-1].item() <= reach


def saddle(z):
    """Jacobian 4 + [[x, -y], [-y, -x]]: singular values 4 ± r, equal at the origin alone."""
    x, y = z.T
    return torch.stack([4 * x + (x**2 - y**2) / 2, 4 * y - x * y], 1)


def test_past_a_degenerate_point_the_direction_goes_on():
    """On a line at 0.005 from it the values come within 1 %: the vectors exchange places and the curve hardly bends."""
    start = torch.tensor([-1.0, 0.005], dtype=torch.float64)
    found = submanifold(saddle, start, 1, length=2.0, steps=4)
    end = found.points[0] if found.points[0, 0] > 0 else found.points[-1]
    assert (end - torch.tensor([1.0, 0.0], dtype=torch.float64)).abs().max() < 0.1
    assert set(found.order.tolist()) == {0, 1}
    assert found.crossings.sum() == 1
    assert found.degenerate.any()


def test_an_avoided_crossing_turns_the_curve():
    """At 0.5 from it the values stay 20 % apart: the place is kept and the curve turns with its vector."""
    start = torch.tensor([-1.0, 0.5], dtype=torch.float64)
    found = submanifold(saddle, start, 1, length=2.0, steps=4)
    assert (found.order == 1).all()
    assert not (found.degenerate | found.ambiguous | found.crossings).any()
    torch.testing.assert_close(found.singular_values, 4 - found.points.norm(dim=1))
    turned = found.directions[0] @ found.directions[-1]
    assert turned.abs().item() < math.cos(math.pi / 6)


def test_a_degenerate_decoder_is_followed_straight_and_says_so():
    def exponential(z):
        radius = z[:, 0].exp()
        return torch.stack([radius * z[:, 1].cos(), radius * z[:, 1].sin()], 1)

    found = submanifold(exponential, ORIGIN, 0, length=1.0, steps=2)
    assert found.degenerate.all()
    torch.testing.assert_close(found.points, torch.stack([found.latent_length, torch.zeros(5).double()], 1))


def test_an_unclear_continuation_is_flagged():
    """Beyond z_1 = 0 the axes stand at 45° to those before: neither continues the curve."""
    turn = torch.tensor([[1.0, -1.0], [1.0, 1.0]], dtype=torch.float64) / math.sqrt(2)
    scale = torch.tensor([2.0, 1.0], dtype=torch.float64)

    def broken(z):
        return torch.where(z[:, :1] < 0, z * scale, z @ turn * scale)

    start = torch.tensor([-0.5, 0.0], dtype=torch.float64)
    found = submanifold(broken, start, 0, length=1.0, steps=4)
    forward = found.points[:, 0] > found.points[4, 0]
    assert not found.ambiguous[~forward].any()
    assert found.ambiguous[forward].any()


@pytest.mark.parametrize("box", [1.0, torch.tensor([[-1.0, -9.0], [1.0, 9.0]])])
def test_it_ends_at_the_box(box):
    found = submanifold(conformal, ORIGIN, 0, length=3.0, steps=4, box=box)
    assert found.ended == ("box", "box")
    torch.testing.assert_close(found.points[:, 0], torch.linspace(-1, 1, 9, dtype=torch.float64))


def test_sides_end_on_their_own():
    found = submanifold(
        conformal, ORIGIN + torch.tensor([0.5, 0.0]).double(), 0, length=1.0, steps=2, box=1.0
    )
    assert found.ended == ("length", "box")
    torch.testing.assert_close(found.latent_length, torch.tensor([-1.0, -0.5, 0, 0.25, 0.5]).double())


def test_without_data_there_is_no_data_length():
    found = submanifold(lambda z: z[:, :1], ORIGIN, 1, length=1.0, steps=2, speed="data")
    assert found.ended == ("rank", "rank")
    assert (found.points == 0).all()
    still = submanifold(lambda z: z[:, :1], ORIGIN, 1, length=1.0, steps=2)
    assert still.ended == ("length", "length")
    assert (still.data_length == 0).all()


def test_passive_latents_stay():
    def padded(z):
        return quadratic(z[:, [2, 0]])

    start = torch.tensor([0.0, 0.7, 0.0, -0.3], dtype=torch.float64)
    found = submanifold(padded, start, 1, active=[2, 0], length=1.0, steps=2, rtol=RTOL)
    expected = submanifold(quadratic, ORIGIN, 1, length=1.0, steps=2, rtol=RTOL)
    close(found.points[:, [2, 0]], expected.points)
    assert (found.points[:, [1, 3]] == start[[1, 3]]).all()
    assert found.spectrum.shape == (5, 2)


def test_the_likelihood_weights_lengths():
    class Fours:
        def fisher_weight(self, output):
            return torch.full_like(output, 4.0)

    plain, weighted = (
        submanifold(quadratic, ORIGIN, 0, length=1.0, steps=2, likelihood=each) for each in (None, Fours())
    )
    torch.testing.assert_close(weighted.data_length, 2 * plain.data_length)
    torch.testing.assert_close(weighted.points, plain.points)


def test_pictures_come_back_in_their_shape():
    found = submanifold(
        lambda z: quadratic(z)[:, None, :, None], ORIGIN.float(), [0, 1], length=1.0, steps=2, data=True
    )
    assert found.data.shape == (2, 5, 1, 2, 1)
    assert {part.dtype for part in (found.points, found.data, found.spectrum, found.confidence)} == {
        torch.float32
    }


@pytest.mark.parametrize(
    ("start", "component", "options", "message"),
    [
        (
            torch.zeros(1, 1, 2),
            0,
            {},
            "start must have shape (latent,) or (batch, latent), got shape (1, 1, 2)",
        ),
        (torch.zeros(2), 2, {}, "component must be from 0 to 1, got [2]"),
        (torch.zeros(2), -1, {}, "component must be from 0 to 1, got [-1]"),
        (torch.zeros(2), 0.5, {}, "component must be a mask or indices, got torch.float64"),
        (torch.zeros(3, 2), [0, 1], {}, "component must be one for each of 3 starts, got 2 components"),
        (torch.zeros(2), 0, {"length": 0.0}, "length must be positive, got 0.0"),
        (torch.zeros(2), 0, {"rtol": 0.0}, "rtol must be positive, got 0.0"),
        (torch.zeros(2), 0, {"steps": 0}, "steps must be at least 1, got 0"),
        (torch.zeros(2), 0, {"degeneracy": -1.0}, "degeneracy must not be negative, got -1.0"),
        (torch.zeros(2), 0, {"speed": "light"}, "speed must be 'latent' or 'data', got 'light'"),
        (
            torch.zeros(2),
            0,
            {"box": -1.0},
            "box must be a positive number or a lower and an upper corner (2, 2)",
        ),
        (torch.ones(2) * 9, 0, {}, "start must lie in the box"),
    ],
)
def test_bad_input_is_named(start, component, options, message):
    with pytest.raises(ValueError) as raised:
        submanifold(quadratic, start, component, **options)
    assert message in str(raised.value)
