"""Coordinates along components in closed form, and the two cases of allen2024 §3.2.3."""

import math
from dataclasses import replace

import pytest
import torch

from unseam.independence import ReferenceCurves, component_case, curvilinear

# A curve counts as reached at the root of the solver's tolerance of 1e-5, and the coordinate's error is of second
# order in that distance: a tolerance for curvatures of order one, and as much again for each of a handful of steps.
LIMIT = 1e-4

FEW = ReferenceCurves(length=5.0, steps=8)


def turn(latent, seed=3):
    draw = torch.randn(latent, latent, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return torch.linalg.qr(draw).Q


def separable(z):
    """Singular values 12 + z_1² / 2, 4 + z_2² / 6, ...: each of its own latent, never equal near the origin."""
    scales = torch.tensor([12.0, 4.0, 1.0], dtype=z.dtype)[: z.shape[1]]
    return scales * (z + z**3 / 72)


def conformal(z):
    """3 Re and Im of 2 exp(w / 2), w = z_1 + i z_2."""
    radius = 2 * torch.exp(z[:, 0] / 2)
    return torch.stack([3 * radius * torch.cos(z[:, 1] / 2), radius * torch.sin(z[:, 1] / 2)], 1)


def radial(z):
    """Points pushed out along rays: components are radius and angle."""
    return z * (1 + z.square().sum(1, keepdim=True) / 3)


def helix(z):
    """The first two latents are stretched along axes that turn with the third."""
    cos, sin = torch.cos(z[:, 2]), torch.sin(z[:, 2])
    return torch.stack([3 * (cos * z[:, 0] + sin * z[:, 1]), 2 * (cos * z[:, 1] - sin * z[:, 0]), z[:, 2]], 1)


def draws(count, latent, seed=1):
    return torch.randn(count, latent, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def close_up_to_sign(found, expected):
    signs = (found * expected).nansum(0).sign()
    kept = found.isfinite()
    assert ((found * signs - expected)[kept]).abs().max() < LIMIT


TURNS = {2: turn(2), 3: turn(3)}
STRAIGHT = {
    "linear": (lambda z: z @ TURNS[2] * torch.tensor([3.0, 1.0], dtype=z.dtype), TURNS[2]),
    "separable": (separable, torch.eye(2, dtype=torch.float64)),
    "rotated separable": (lambda z: separable(z @ TURNS[2]), TURNS[2]),
    "three latents, rotated separable": (lambda z: separable(z @ TURNS[3]), TURNS[3]),
}


@pytest.mark.parametrize("name", STRAIGHT)
def test_straight_components_are_rotated_latents(name, generator):
    """Theorem 1's coordinates Vᵀz, for linear decoders and beyond; a rotated normal prior is independent in them."""
    decoder, axes = STRAIGHT[name]
    z = draws(60, len(axes))
    found = component_case(decoder, z, generator=generator, reference=FEW)
    coordinates = found.coordinates
    assert coordinates.reached.all()
    close_up_to_sign(coordinates.coordinates, z @ axes)
    assert found.case == 2
    assert found.used == 60
    assert "case 2" in found.verdict


def test_curved_components_in_closed_form_are_case_one(generator):
    """Curves of constant Re and Im of 2 exp(w / 2) through 0: y = 0 and x = -2 log cos(y / 2), of which the arc
    length is 2 asinh tan(y / 2). They meet the others at x + 2 log cos(y / 2) and at tan = e^(x/2) sin(y / 2)."""
    z = draws(500, 2)  # the test found it in 40 of 40 sets of so many
    z = z[z[:, 1].abs() < 2.8]  # where cos(y / 2) > 0, and not a long way off
    found = component_case(conformal, z, generator=generator, reference=ReferenceCurves(box=12.0))
    x, y = z.T
    first = x + 2 * torch.log(torch.cos(y / 2))
    second = 2 * torch.asinh(torch.exp(x / 2) * torch.sin(y / 2))
    expected = torch.stack([first, second], 1)
    assert found.coordinates.reached[(expected.abs() < 6).all(1)].all()
    close_up_to_sign(found.coordinates.coordinates, expected)
    assert found.case == 1
    assert "depend on each other" in found.verdict


def test_curved_components_may_be_independent(generator):
    """Radius and angle of a normal vector are independent: case 2, though no rotation straightens the curves."""
    z = draws(100, 2)
    z = z[
        (z.norm(dim=1) > 0.8) & (z[:, 0] > 0)
    ]  # a sector: away from the centre, where there are no components
    base = torch.tensor([1.5, 0.0], dtype=torch.float64)
    reference = ReferenceCurves(base=base, length=2.5, steps=24, through=False)
    found = component_case(radial, z, generator=generator, reference=reference)
    radius, angle = z.norm(dim=1), torch.atan2(z[:, 1], z[:, 0])
    assert found.coordinates.reached.all()
    close_up_to_sign(found.coordinates.coordinates, torch.stack([radius - 1.5, 1.5 * angle], 1))
    assert found.case == 2
    assert found.coordinates.curves.ended[0][0] == "degenerate"


def test_where_no_components_exist_there_are_no_coordinates(generator):
    found = component_case(helix, draws(40, 3), generator=generator)
    assert found.case is None
    assert found.coordinates is None
    assert found.test is None
    assert "no components exist" in found.verdict
    assert found.verdict == found.integrability.verdict


def test_a_decoder_without_directions_is_undecided(generator):
    def exponential(z):
        radius = z[:, 0].exp()
        return torch.stack([radius * z[:, 1].cos(), radius * z[:, 1].sin()], 1)

    found = component_case(exponential, draws(30, 2), generator=generator)
    assert found.case is None
    assert "undecided: singular values repeat at every point" in found.verdict


@pytest.mark.slow
def test_too_few_points_are_undecided(generator):
    found = component_case(
        separable, draws(30, 2), generator=generator, reference=ReferenceCurves(length=0.3, steps=4)
    )
    assert found.case is None
    assert found.used < 15
    assert f"only {found.used} of 30 points have all coordinates" in found.verdict


def test_points_beyond_the_curves_are_not_reached():
    z = torch.tensor([[0.5, 0.2], [2.0, 0.2], [0.5, 2.0]])
    found = curvilinear(separable, z, reference=ReferenceCurves(length=1.0, steps=4))
    assert found.coordinates.dtype == found.confidence.dtype == torch.float32
    assert found.reached.tolist() == [[True, True], [False, True], [True, False]]
    assert found.coordinates.isnan().tolist() == (~found.reached).tolist()


def test_a_point_has_the_same_coordinates_alone():
    z = draws(8, 2)
    together, alone = (curvilinear(separable, points, reference=FEW) for points in (z, z[:1]))
    assert (together.coordinates[:1] - alone.coordinates).abs().max() < LIMIT
    assert together.curves.points.shape == (2, 17, 2)


def test_fields_are_told_apart_by_direction():
    """Singular values 2 + z_1² and 2.5 cross, so their order alone would mix the two coordinates."""

    def crossing(z):
        return torch.stack([2 * z[:, 0] + z[:, 0] ** 3 / 3, 2.5 * z[:, 1]], 1)

    z = draws(20, 2)
    assert (z[:, 0].abs() > math.sqrt(0.5)).any()
    found = curvilinear(crossing, z, reference=FEW)
    close_up_to_sign(found.coordinates, z[:, [1, 0]])


def test_dead_latents_are_left_out(generator):
    """Two dead latents have no directions; where only the live ones are active nothing differs without them."""

    def padded(z):
        return separable(z[:, [0, 2]])

    z = draws(60, 4)
    assert component_case(padded, z, generator=generator).case is None
    mask = torch.tensor([True, False, True, False])
    found = component_case(padded, z, generator=generator, active=mask, reference=FEW)
    assert found.case == 2
    assert found.coordinates.coordinates.shape == found.coordinates.reached.shape == (60, 2)
    assert found.coordinates.reached.all()
    close_up_to_sign(found.coordinates.coordinates, z[:, [0, 2]])
    base = torch.tensor([0.0, 1.0, 0.0, -1.0], dtype=torch.float64)
    elsewhere = curvilinear(padded, z[:5], reference=replace(FEW, base=base), active=[0, 2])
    close_up_to_sign(elsewhere.coordinates, z[:5, [0, 2]])
    assert (elsewhere.curves.points[..., [1, 3]] == base[[1, 3]]).all()


def test_a_step_decides_for_decoders_with_kinks(generator):
    """Three latents with slopes 12, 4 and 1 that are 10 % greater on one side: straight components."""

    def kinked(z):
        return torch.tensor([12.0, 4.0, 1.0], dtype=z.dtype) * (z + torch.relu(z) / 10)

    z = draws(40, 3)
    undecided = component_case(kinked, z, generator=generator)
    assert undecided.case is None and "give a step" in undecided.verdict
    found = component_case(kinked, z, generator=generator, step=0.3, reference=FEW)
    assert found.case == 2
    close_up_to_sign(found.coordinates.coordinates, z)


def test_layers_that_torch_nests_in_reverse_only_have_a_case_too(generator):
    """A rotated decoder whose outputs depend on one component each, by SiLU: straight components."""
    axes = TURNS[3]

    def silu(z):
        u = z @ axes
        return torch.tensor([24.0, 6.0, 1.0], dtype=z.dtype) * (u + torch.nn.functional.silu(u) / 8)

    z = draws(40, 3)
    found = component_case(silu, z, generator=generator, reference=FEW)
    assert found.case == 2
    close_up_to_sign(found.coordinates.coordinates, z @ axes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reference": ReferenceCurves(base=torch.zeros(3))}, "base must have shape (2,), got shape (3,)"),
        ({"level": 1.0}, "level must lie in (0, 1), got 1.0"),
        ({"reference": ReferenceCurves(length=-1.0)}, "length must be positive, got -1.0"),
        ({"step": 0.0}, "step must be positive, got 0.0"),
        ({"active": [1]}, "z must have at least two latents, active where given"),
    ],
)
def test_bad_input_is_named(options, message, generator):
    with pytest.raises(ValueError) as raised:
        component_case(separable, draws(30, 2), generator=generator, **options)
    assert message in str(raised.value)


def test_a_base_without_directions_is_named():
    with pytest.raises(ValueError, match="base must have singular values that differ"):
        curvilinear(radial, draws(5, 2), reference=ReferenceCurves(through=False))


def test_one_latent_has_nothing_to_depend_on(generator):
    with pytest.raises(ValueError, match="z must have at least two latents"):
        component_case(lambda z: 2 * z, draws(30, 1), generator=generator)
