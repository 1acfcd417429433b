"""Lie brackets of right singular fields: closed forms, differences of the fields themselves, invariances."""

import math

import pytest
import torch
from torch.func import jacfwd

from unseam.geometry import local_basis
from unseam.independence import integrability, lie_brackets
from unseam.independence._metric import Metric
from unseam.models import Bernoulli


def turn(latent, seed=3):
    draw = torch.randn(latent, latent, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return torch.linalg.qr(draw).Q


TURN = turn(3)
MATRIX = torch.tensor([[3.0, 1, 0, 2], [0, 2, 1, 0], [0, 0, 1, 1]], dtype=torch.float64)


def separable(z):
    scales = torch.tensor([8.0, 3.0, 1.0], dtype=z.dtype)
    return torch.cat([torch.sinh(z / 2) * scales, torch.cosh(z / 2) * scales], 1)


def spherical(z):
    radius = z.norm(dim=1)
    polar, azimuth = torch.acos(z[:, 2] / radius), torch.atan2(z[:, 1], z[:, 0])
    return torch.stack([9 * radius, 4 * polar, 0.5 * azimuth], 1)


def helix(z, *, lengths=(3.0, 2.0, 1.0), rate=0.7):
    """The first two latents are stretched along axes that turn with the third."""
    cos, sin = torch.cos(rate * z[:, 2]), torch.sin(rate * z[:, 2])
    turned = torch.stack([cos * z[:, 0] + sin * z[:, 1], cos * z[:, 1] - sin * z[:, 0], z[:, 2]], 1)
    return turned * torch.tensor(lengths, dtype=z.dtype)


def network(latent, *, nonlinearity=torch.nn.Tanh):
    generator = torch.Generator().manual_seed(5)
    layers = torch.nn.Linear(latent, 16), nonlinearity(), torch.nn.Linear(16, 9)
    module = torch.nn.Sequential(*layers).double().requires_grad_(False)
    for parameter in module.parameters():
        parameter.normal_(generator=generator).mul_(0.7)
    return module


def complex_exponential(z):
    radius = z[:, 0].exp()
    return torch.stack([radius * z[:, 1].cos(), radius * z[:, 1].sin()], 1)


@pytest.fixture
def points(generator):
    return torch.randn(20, 3, dtype=torch.float64, generator=generator) / 2


INTEGRABLE = {
    "linear": lambda z: z @ MATRIX.to(z),
    "separable": separable,
    "rotated separable": lambda z: separable(z @ TURN.to(z)),
    "spherical": lambda z: spherical(z + torch.tensor([2.0, 1.5, 1.0]).to(z)),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", INTEGRABLE)
def test_lines_of_coordinates_have_no_brackets(name, dtype, points):
    found = integrability(INTEGRABLE[name], points.to(dtype), degeneracy=1e-2)
    assert found.exist is True
    assert "components exist" in found.verdict
    assert not found.twisted.any()
    # beside all brackets, those with a repeated index too, which are not zero where fields turn
    assert found.size <= torch.finfo(dtype).eps ** 0.5 * max(1.0, found.brackets.nan_to_num().norm().item())


def test_spherical_fields_do_turn(points):
    """So that their zero brackets are no accident of constant fields: along a circle fields turn as 1/r."""
    found = integrability(INTEGRABLE["spherical"], points)
    assert found.brackets.abs().amax((-3, -2, -1)).nan_to_num(1.0).min() > 0.1


def test_contact_frame_in_closed_form():
    """v_1 = (cos φ, sin φ, 0), v_2 = (-sin φ, cos φ, 0), v_3 = e_3: [v_3, v_1] = φ' v_2, [v_2, v_3] = φ' v_1."""
    rate = 0.7

    def metric(z):
        cos, sin, zero = torch.cos(rate * z[2]), torch.sin(rate * z[2]), torch.zeros_like(z[2])
        frame = torch.stack(
            [torch.stack([cos, sin, zero]), torch.stack([-sin, cos, zero]), torch.eye(3).to(z)[2]], 1
        )
        return frame @ torch.diag(torch.tensor([9.0, 4.0, 1.0]).to(z)) @ frame.mT

    z = torch.tensor([0.3, -1.0, 0.4], dtype=torch.float64)
    found = lie_brackets(metric(z), jacfwd(metric)(z).movedim(-1, 0)).brackets
    assert found[2, 0, 1].item() == pytest.approx(rate, rel=1e-12)
    assert found[1, 2, 0].item() == pytest.approx(rate, rel=1e-12)
    assert found[0, 1, 2].item() == pytest.approx(0, abs=1e-12)
    torch.testing.assert_close(found, -found.transpose(0, 1))


def test_helix_in_closed_form():
    """On its axis ∂G has the entries T_3;12 = ω(a²-b²), T_1;23 = -ωb², T_2;13 = ωa², so with
    α = T_1;23/(b²-c²), β = T_2;13/(c²-a²), γ = T_3;12/(a²-b²) = ω the brackets are α+β, β+γ, γ+α."""
    rate, (a, b, c) = 0.7, (9.0, 4.0, 1.0)
    alpha, beta, gamma = -rate * b / (b - c), rate * a / (c - a), rate
    axis = torch.zeros(5, 3, dtype=torch.float64)
    axis[:, 2] = torch.linspace(-0.6, 0.6, 5)
    found = integrability(helix, axis)
    for place, value in (((0, 1, 2), alpha + beta), ((1, 2, 0), beta + gamma), ((2, 0, 1), gamma + alpha)):
        # the sign of v_1 and v_2 is canonical while the frame turns by less than π/4
        assert found.brackets[(slice(None), *place)].tolist() == pytest.approx([value] * 5, rel=1e-10)
    norm = math.sqrt((alpha + beta) ** 2 + (beta + gamma) ** 2 + (gamma + alpha) ** 2)
    rotation = 2 * math.sqrt(alpha**2 + beta**2 + gamma**2)
    assert found.size == pytest.approx(norm, rel=1e-10)
    assert found.relative == pytest.approx(norm / rotation, rel=1e-10)
    assert found.exist is False
    assert found.twisted.all()
    assert "no components exist around 5 of 5 points" in found.verdict


@pytest.mark.parametrize("decoder", [helix, network(3)], ids=["helix", "network"])
def test_brackets_are_those_of_the_fields_by_differences(decoder, points):
    """Independently of perturbation theory: fields at shifted points, signs aligned, central differences."""
    step = 1e-5
    middle = local_basis(decoder, points).right_vectors

    def fields(shift):
        there = local_basis(decoder, points + shift).right_vectors
        return there * (there * middle).sum(1, keepdim=True).sign()

    slopes = torch.stack(
        [(fields(step * e) - fields(-step * e)) / (2 * step) for e in torch.eye(3).to(points)], 1
    )
    along = torch.einsum("nalj,nai->nijl", slopes, middle)  # ∇_{v_i} v_j
    expected = torch.einsum("nijl,nlk->nijk", along - along.transpose(1, 2), middle)
    found = integrability(decoder, points)
    assert (~found.degenerate).sum() >= 10
    kept = ~found.degenerate
    # differences are good to about step² times third derivatives, and to rounding over the step
    torch.testing.assert_close(found.brackets[kept], expected[kept], rtol=1e-5, atol=1e-5)
    assert found.exist is False


def test_two_latents_always_have_components(points):
    found = integrability(network(2), points[:, :2])
    assert found.exist is True
    assert (found.size, found.relative) == (0.0, 0.0)
    assert "two orthogonal fields" in found.verdict
    assert (found.brackets.nan_to_num().abs().amax((-3, -2, -1)) > 0).any()  # the fields do turn


def test_one_latent_is_one_component(points):
    found = integrability(network(1), points[:, :1])
    assert found.exist is True
    assert "one latent" in found.verdict


def test_degenerate_points_are_left_out_and_counted(points):
    everywhere = integrability(complex_exponential, points[:, :2])
    assert everywhere.exist is None
    assert everywhere.degenerate.all()
    assert "undecided: singular values repeat at every point" in everywhere.verdict
    assert math.isnan(everywhere.size)
    # singular values 2 cosh z_1, 2 and 1/9 meet at the origin alone
    some = torch.cat([points, torch.zeros(1, 3).double()])
    found = integrability(
        lambda z: torch.stack([torch.sinh(z[:, 0]) * 2, 2 * z[:, 1], z[:, 2] / 9], 1), some, degeneracy=1e-6
    )
    assert found.degenerate.tolist() == [False] * 20 + [True]
    assert found.exist is True
    assert "1 of 21 points left out" in found.verdict
    assert found.brackets[-1].isnan().all()


def test_relative_size_has_no_scale_and_at_most_one(points):
    decoder = network(3)
    plain, scaled = integrability(decoder, points), integrability(lambda z: 7 * decoder(z / 5), 5 * points)
    assert scaled.relative == pytest.approx(plain.relative, rel=1e-9)
    assert scaled.size == pytest.approx(plain.size / 5, rel=1e-9)
    assert scaled.relative_error == pytest.approx(plain.relative_error, rel=1e-9)
    assert 0.01 < plain.relative <= 1
    order = [2, 0, 1]
    back = [1, 2, 0]
    permuted = integrability(lambda z: decoder(z[:, back]), points[:, order])
    assert permuted.size == pytest.approx(plain.size, rel=1e-9)


def test_rotating_the_latents_changes_nothing(points):
    decoder = network(3)
    plain = integrability(decoder, points)
    turned = integrability(lambda z: decoder(z @ TURN), points @ TURN.mT)
    assert turned.size == pytest.approx(plain.size, rel=1e-9)
    assert turned.relative == pytest.approx(plain.relative, rel=1e-9)


def test_the_bound_of_the_relative_size_is_reached():
    """Three equal rates of turn, α = β = γ, and no other: the frame twists as much as it turns."""
    squares = torch.tensor([9.0, 4.0, 1.0], dtype=torch.float64)
    change = torch.zeros(3, 3, 3, dtype=torch.float64)
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        change[i, j, k] = change[i, k, j] = squares[j] - squares[k]
    found = lie_brackets(torch.diag(squares), change)
    brackets = torch.stack([found.brackets[0, 1, 2], found.brackets[1, 2, 0], found.brackets[2, 0, 1]])
    rotation = found.rotation.square().sum() / 2
    assert (brackets.square().sum() / (4 * rotation)).item() == pytest.approx(1.0, rel=1e-12)


def test_summary_over_points_and_its_error(points):
    found = integrability(network(3), points)
    squares = found.points[~found.degenerate].square()
    assert found.size == pytest.approx(squares.mean().sqrt().item(), rel=1e-12)
    groups = [torch.cat([squares[:i], squares[i + 1 :]]).mean().sqrt() for i in range(len(squares))]
    jackknife = torch.stack(groups).std(correction=0) * (len(squares) - 1) ** 0.5
    # the two agree to first order in the relative spread over √points
    spread = (squares.std() / squares.mean() / len(squares) ** 0.5).item()
    assert found.size_error == pytest.approx(jackknife.item(), rel=2 * spread)
    single = integrability(network(3), points[:1])
    assert math.isnan(single.size_error)


def test_central_differences_approach_the_derivative_with_the_square_of_the_step(points):
    exact = integrability(helix, points, degeneracy=0.0).brackets
    coarse, fine = (integrability(helix, points, degeneracy=0.0, step=step).brackets for step in (0.02, 0.01))
    ratio = (coarse - exact).norm() / (fine - exact).norm()
    assert ratio.item() == pytest.approx(4, rel=1e-2)  # the next order is step² smaller again


@pytest.mark.parametrize("nonlinearity", [torch.nn.SiLU, torch.nn.GELU])
@pytest.mark.parametrize("likelihood", [None, Bernoulli()], ids=["plain", "weighted"])
@pytest.mark.parametrize("active", [None, [3, 0, 1]], ids=["all", "active"])
def test_what_forward_mode_cannot_nest_is_differentiated_in_reverse(nonlinearity, likelihood, active):
    """torch refuses SiLU under nested forward mode; GELU goes the usual way."""
    decoder = network(4, nonlinearity=nonlinearity)
    z = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) / 2
    found = integrability(decoder, z, likelihood=likelihood, active=active, degeneracy=0.0)
    expected = integrability(decoder, z, likelihood=likelihood, active=active, degeneracy=0.0, step=1e-4)
    torch.testing.assert_close(found.brackets, expected.brackets, rtol=1e-5, atol=1e-6)
    assert found.exist is False


def test_reverse_mode_sees_kinks_and_chunks_change_nothing(generator):
    z = torch.randn(20, 3, dtype=torch.float64, generator=generator)
    smooth, ramp = network(3, nonlinearity=torch.nn.SiLU), network(9, nonlinearity=torch.nn.ReLU)
    whole, parts = (integrability(smooth, z, chunk_size=chunk_size) for chunk_size in (None, 3))
    torch.testing.assert_close(whole.brackets, parts.brackets, equal_nan=True)
    kinked = integrability(lambda z: ramp(smooth(z)), z)
    assert kinked.exist is None
    assert "give a step" in kinked.verdict


def test_decoders_that_cannot_be_differentiated_twice_are_named(points, monkeypatch):
    def refuse(*_):
        raise RuntimeError("derivative for swish_backward is not implemented")

    monkeypatch.setattr(Metric, "_reverse", refuse)
    decoder = network(3, nonlinearity=torch.nn.SiLU)
    with pytest.raises(ValueError, match="give step to measure differences instead .*swish_backward"):
        integrability(decoder, points)
    assert integrability(decoder, points, step=1e-3).exist is False


def test_kinks_are_seen_by_differences_alone(generator):
    points = torch.randn(64, 3, dtype=torch.float64, generator=generator)
    decoder = network(3, nonlinearity=torch.nn.ReLU)
    blind = integrability(decoder, points)
    assert blind.exist is None
    assert "piece-wise linear" in blind.verdict
    assert math.isnan(blind.size) and math.isnan(blind.relative)
    seen = integrability(decoder, points, step=0.3)
    assert seen.exist is False
    assert seen.size > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_kinks_behind_a_smooth_last_layer_are_not_decided(generator, dtype):
    points = torch.randn(64, 3, dtype=torch.float64, generator=generator).to(dtype)
    decoder = torch.nn.Sequential(network(3, nonlinearity=torch.nn.ReLU), torch.nn.Sigmoid()).to(dtype)
    blind = integrability(decoder, points)
    assert blind.exist is None
    assert "give a step" in blind.verdict
    assert math.isnan(blind.size) and math.isnan(blind.relative)
    assert integrability(decoder, points, step=0.3).exist is False


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("hidden", [torch.nn.Tanh, torch.nn.Softplus, torch.nn.ELU], ids=str)
def test_smooth_layers_are_not_taken_for_kinks(generator, hidden, dtype):
    points = torch.randn(64, 3, dtype=torch.float64, generator=generator).to(dtype)
    decoder = torch.nn.Sequential(network(3, nonlinearity=hidden), torch.nn.Sigmoid()).to(dtype)
    assert integrability(decoder, points).exist is False


def test_noise_over_noise_is_no_relative_size(points):
    """Fields of a rotated separable decoder do not turn: brackets and rotation are both rounding."""
    found = integrability(INTEGRABLE["rotated separable"], points, degeneracy=1e-2)
    assert found.size > 0  # there is noise
    assert (found.relative, found.relative_error) == (0.0, 0.0)


def test_passive_latents_are_left_where_they_are(points):
    decoder = network(3)

    def padded(z):
        return decoder(z[:, [0, 2, 3]])

    z = torch.zeros(20, 5, dtype=torch.float64)
    z[:, [0, 2, 3]] = points
    assert integrability(padded, z).exist is None  # two dead latents have no directions of their own
    found = integrability(padded, z, active=[0, 2, 3])
    expected = integrability(decoder, points)
    assert found.size == pytest.approx(expected.size, rel=1e-9)
    mask = torch.tensor([True, False, True, True, False])
    assert integrability(padded, z, active=mask).size == found.size


def test_the_likelihood_weights_the_metric(points):
    class Halves:
        def fisher_weight(self, output):
            return torch.cat([torch.full_like(output[:, :2], 4.0), torch.ones_like(output[:, 2:])], 1)

    decoder = network(3)
    scale = torch.tensor([2.0, 2] + [1.0] * 7, dtype=torch.float64)
    weighted = integrability(decoder, points, likelihood=Halves())
    assert weighted.size == pytest.approx(integrability(lambda z: decoder(z) * scale, points).size, rel=1e-9)


def test_chunks_change_nothing(points):
    torch.testing.assert_close(
        integrability(network(3), points, chunk_size=3).brackets,
        integrability(network(3), points).brackets,
        equal_nan=True,
    )


def test_tolerance_forgives(points):
    found = integrability(helix, points)
    assert integrability(helix, points, tolerance=1.0).exist is True
    assert found.exist is False


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": 0.0}, "step must be positive, got 0.0"),
        ({"tolerance": -1.0}, "tolerance must not be negative, got -1.0"),
        ({"degeneracy": -1.0}, "degeneracy must not be negative, got -1.0"),
        ({"active": []}, "active must keep at least one latent"),
    ],
)
def test_bad_options_are_named(options, message, points):
    with pytest.raises(ValueError, match=message):
        integrability(helix, points, **options)


def test_bad_derivatives_are_named():
    with pytest.raises(ValueError, match="derivative must have shape"):
        lie_brackets(torch.eye(3), torch.zeros(3, 3))
    with pytest.raises(ValueError, match="z must have shape"):
        integrability(helix, torch.zeros(3))


def test_repeated_values_have_no_brackets():
    assert lie_brackets(torch.eye(3), torch.zeros(3, 3, 3)).brackets.isnan().all()


def test_double_precision_and_device_are_kept(points):
    found = integrability(helix, points.numpy())
    assert found.brackets.dtype == torch.float64
    assert integrability(helix, points.float()).brackets.dtype == torch.float32
