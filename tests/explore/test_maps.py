"""Maps: worlds whose factors are no grid, colours that go round, curves, and what the page draws."""

import math

import pytest
import torch

from unseam.charts import tint
from unseam.data import ArrayWorld, grid_factors, load
from unseam.explore import Rotation, exhibit_decoder, walk
from unseam.explore.maps import RAMP, curve_of, find_place, map_of
from unseam.explore.state import State, first_state


@pytest.fixture(scope="module")
def wild():
    """A world of continuous factors on scales of their own."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(40, 4, generator=generator)
    factors = torch.rand(40, 2, generator=generator) * torch.tensor([1.0, 1000.0])
    world = ArrayWorld(x, factors, name="wild", factor_names=("small", "large"), factor_sizes=(0, 0))
    return exhibit_decoder(
        lambda z: z.repeat(1, 2), encoder=lambda x: (x[:, :2], torch.ones(len(x), 2)), world=world
    )


@pytest.mark.parametrize("item", [0, 7, 23, 39])
def test_a_click_on_an_item_takes_it(wild, item):
    state = State(0, (0.0, 0.0), space="factors", colour=2)
    assert find_place(wild, state, *wild.item_factors(item)).item == item


def test_both_factors_count_by_their_own_scale(wild):
    state = State(0, (0.0, 0.0), space="factors", colour=2)
    left, right, low, high = map_of(wild, state).frame
    x, y = left + 0.52 * (right - left), low + 0.44 * (high - low)
    scale = torch.tensor([right - left, high - low], dtype=torch.float64)
    nearest = ((wild.factors.double() - torch.tensor([x, y])) / scale).norm(dim=1).argmin()
    assert find_place(wild, state, x, y).item == int(wild.index[nearest])


def test_the_page_gets_a_dot_and_a_note_for_each_item(exhibit):
    found = map_of(exhibit, first_state(exhibit, 1))
    data = found.data()
    assert len(data["points"]) == len(data["tints"]) == len(data["notes"]) == 50
    assert data["notes"][0].startswith(f"item {int(exhibit.index[0])}, {exhibit.factor_names[0]} ")
    assert data["cross"]
    assert 0 < len(data["ellipses"]) <= 36
    x, y, (a, b, c) = data["ellipses"][0]
    assert [x, y] == pytest.approx(found.centres[0].tolist(), abs=1e-4)
    assert [[a, b], [b, c]] == found.ellipses[0].tolist()


@pytest.fixture(scope="module")
def hues():
    """A world of a hue of four values and a size of two."""
    factors = grid_factors(torch.arange(8), (4, 2))
    x = torch.rand(8, 2, generator=torch.Generator().manual_seed(0))
    world = ArrayWorld(x, factors, name="toy", factor_names=("wall_hue", "size"), factor_sizes=(4, 2))
    return exhibit_decoder(lambda z: z, encoder=lambda x: (x, 0 * x + 0.1), world=world)


def test_hues_are_coloured_once_round(hues):
    found = map_of(hues, State(0, (0.0, 0.0), colour=0))
    assert found.cyclic
    # the last is as far from the first as from the one before it
    assert found.tints.tolist() == [0.0, 0.0, 0.25, 0.25, 0.5, 0.5, 0.75, 0.75]
    ramp = found.data()["ramp"]
    assert ramp[0] == ramp[-1] == tint(0.0, cyclic=True)
    assert len(ramp) == RAMP + 1
    assert not map_of(hues, State(0, (0.0, 0.0), colour=1)).cyclic
    assert hues.cyclic == (True, False)


def test_hues_are_averaged_on_the_circle(hues):
    # items with the same size hold all hues; those of one hue and one size are themselves
    found = map_of(hues, State(0, (0.0, 0.0), space="factors", plane=(0, 1), colour=0))
    assert found.tints.tolist() == pytest.approx([k / 4 for k in range(4) for _ in range(2)])


def test_the_angles_of_dsprites_go_round_and_a_camera_s_do_not():
    sprites = load("sprites", resolution=8, orientations=4, positions=2, scales=2)
    shapes = load("shapes", resolution=16, hues=2, scales=1, orientations=3)

    def cyclic(world):
        size = math.prod(world.shape)
        own = exhibit_decoder(
            lambda z: z.new_zeros(len(z), *world.shape) + z.sum(1).view(-1, 1, 1, 1) / size,
            encoder=lambda x: (x.flatten(1)[:, :2], x.flatten(1)[:, :2]),
            world=world,
            points=4,
        )
        return dict(zip(own.factor_names, own.cyclic, strict=True))

    assert cyclic(sprites)["orientation"]
    assert not cyclic(shapes)["orientation"]
    assert cyclic(shapes)["floor_hue"]


def test_a_traced_curve_lies_on_the_map_along_its_axes(linear):
    found = walk(linear, 0, (0.0, 0.0), 0)
    state = State(0, (0.0, 0.0), plane=(1, 0))
    assert curve_of(state, found) == [
        pytest.approx((float(b), float(a)), abs=1e-4) for a, b in found.nodes.tolist()
    ]
    rotated = curve_of(State(0, (0.0, 0.0), rotation=Rotation(0, 1, 90.0)), found)
    assert rotated == [pytest.approx((-float(b), float(a)), abs=1e-4) for a, b in found.nodes.tolist()]
    assert curve_of(State(0, (0.0, 0.0), space="factors"), found) == curve_of(state, None) == []
