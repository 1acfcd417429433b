"""Maps of worlds whose factors are no grid, and their edges."""

from xml.etree import ElementTree

import pytest
import torch

from unseam.data import ArrayWorld
from unseam.explore import exhibit_decoder
from unseam.explore.maps import find_place, map_of, map_svg, marker_svg
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
    place = map_of(wild, state).place(*wild.item_factors(item))
    assert find_place(wild, state, *place).item == item


def test_both_factors_count_by_their_own_scale(wild):
    state = State(0, (0.0, 0.0), space="factors", colour=2)
    found = map_of(wild, state)
    across, down = 200.0, 150.0
    pixels = torch.tensor([found.place(*wild.item_factors(k)) for k in range(40)])
    # the plane is 310 by 314 pixels: nearest in units of the frame, which on the screen is all but the same
    nearest = ((pixels - torch.tensor([across, down])) / torch.tensor([310.0, 314.0])).norm(dim=1).argmin()
    assert find_place(wild, state, across, down).item == int(nearest)


def test_posteriors_beyond_the_frame_are_left_out(wild):
    found = map_of(wild, State(0, (0.0, 0.0)))
    spread = torch.eye(2, dtype=torch.float64).expand(2, 2, 2)
    centres = torch.tensor([[0.0, 1.0], [0.0, 9.0]], dtype=torch.float64)
    assert map_svg(found._replace(ellipses=spread, centres=centres)).count("<ellipse") == 1


def parsed(text):
    return ElementTree.fromstring(f"<svg>{text}</svg>")


def test_map_has_a_dot_for_each_item_in_sight(exhibit):
    found = map_of(exhibit, first_state(exhibit, 1))
    drawn = parsed(map_svg(found))
    inside = (found.points.abs() <= found.frame[1]).all(1).sum()
    assert len(drawn.findall("circle")) == int(inside)
    seen = (found.centres.abs() <= found.frame[1]).all(1).sum()
    assert len(drawn.findall("ellipse")) == int(seen) > 0
    assert parsed(marker_svg(found)).find("g") is not None
    assert marker_svg(found._replace(marker=None)) == ""


def test_an_ellipse_is_one_standard_deviation(exhibit):
    found = map_of(exhibit, first_state(exhibit, 1))
    round_one = found._replace(
        ellipses=torch.diag(torch.tensor([0.25, 0.25], dtype=torch.float64))[None], centres=found.centres[:1]
    )
    (drawn,) = parsed(map_svg(round_one)).findall("ellipse")
    unit = found.place(1.0, 0.0)[0] - found.place(0.0, 0.0)[0]
    assert float(drawn.get("rx")) == pytest.approx(0.5 * unit, rel=0.05)
