"""A visit: moves, walks, items, clicks, models, records, code."""

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from unseam.data import ArrayWorld
from unseam.explore import Rotation, exhibit_decoder, local_view, walk
from unseam.explore.maps import find_place, map_of
from unseam.explore.recording import record
from unseam.explore.state import displayed_point, first_state, snippet
from unseam.explore.visit import Visit, frame, reconstructions
from unseam.models import Bernoulli


@pytest.fixture
def visit(exhibit):
    return Visit(exhibit, first_state(exhibit))


def opened(address):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))))


def test_moving_a_slider_moves_one_coordinate(visit):
    visit.move(2, 0.7)
    assert visit.state.z == (0.0, 0.0, 0.7)
    assert visit.touched == 2


def test_rotated_sliders_move_along_rotated_axes(visit):
    visit.rotate(0, 1, 90.0)
    visit.move(1, 1.0)
    assert visit.state.z == pytest.approx((1.0, 0.0, 0.0), abs=1e-12)


def test_a_rotation_leaves_the_picture_alone(visit):
    visit.move(0, 1.2)
    before = frame(visit.exhibit, visit.state).picture
    visit.rotate(0, 1, 30.0)
    assert displayed_point(visit.state)[0] != pytest.approx(1.2)
    assert frame(visit.exhibit, visit.state).picture == before


def test_pictures_change_with_the_point(visit):
    before = frame(visit.exhibit, visit.state).picture
    visit.move(visit.exhibit.codes(0).active[0], 2.0)
    after = opened(frame(visit.exhibit, visit.state).picture)
    assert after.shape == (12, 12, 3)
    assert not np.array_equal(after, opened(before))


def test_an_item_leads_to_its_code(visit):
    visit.take(int(visit.exhibit.index[5]))
    assert visit.state.z == pytest.approx(visit.exhibit.codes(0).mean[5].tolist(), abs=1e-5)


def test_another_model_is_met_at_the_same_item(visit):
    visit.take(int(visit.exhibit.index[5]))
    visit.choose(3)
    assert visit.state.member == 3
    assert visit.state.z == pytest.approx(visit.exhibit.codes(3).mean[5].tolist(), abs=1e-5)


def test_a_walk_of_a_linear_decoder_is_straight(linear):
    vectors = torch.linalg.svd(linear.subjects[0].decoder.weight.detach()).Vh
    found = walk(linear, 0, (0.0, 0.0), 0)
    point = torch.tensor(found.at(1.0), dtype=torch.float64)
    assert float(point.norm()) == pytest.approx(1.0, abs=1e-3)
    assert abs(float(point @ vectors[0])) == pytest.approx(1.0, abs=1e-3)
    assert found.at(100.0) == pytest.approx(found.at(3.0))
    assert found.ended == ("length", "length")


def test_where_no_latent_is_active_the_first_is_walked_along():
    exhibit = exhibit_decoder(
        lambda z: z * torch.tensor([1.0, 3.0]),
        encoder=lambda x: (0 * x, torch.ones_like(x)),
        world=ArrayWorld(torch.rand(8, 2, generator=torch.Generator().manual_seed(0)), torch.arange(8)[:, None],
                         name="toy", factor_names=("row",), factor_sizes=(8,)),
    )  # fmt: skip
    assert exhibit.codes(0).active == ()
    assert walk(exhibit, 0, (0.0, 0.0), 0).at(1.0) == pytest.approx((1.0, 0.0))
    assert local_view(exhibit, 0, torch.zeros(2)).latents == (0,)


def test_a_walk_starts_where_the_visitor_stands_and_along_the_first_vector(visit):
    visit.move(0, 0.5)
    visit.walk = visit.start_walk(0)
    assert visit.walk.at(0.0) == pytest.approx(visit.state.z, abs=1e-6)
    found = local_view(visit.exhibit, 0, torch.tensor(visit.state.z))
    visit.step(0.01)
    moved = np.array([visit.state.z[k] - (0.5 if k == 0 else 0.0) for k in found.latents]) / 0.01
    first = np.array([row[0] for row in found.right_vectors])
    assert abs(float(moved @ first)) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("place", [(0.0, 0.0), (1.0, -2.0), (-3.0, 3.0)])
def test_a_click_leads_where_it_was_made(visit, place):
    visit.go(*place)
    first, second = visit.state.plane
    assert (visit.state.z[first], visit.state.z[second]) == pytest.approx(place)


def test_a_click_on_the_plane_of_factors_takes_an_item(visit):
    names = visit.exhibit.factor_names
    visit.change(space="factors", plane=(len(names) - 2, len(names) - 1))
    place = find_place(visit.exhibit, visit.state, 2.0, 4.0)
    assert visit.exhibit.item_factors(place.item)[-2:] == [2.0, 4.0]


def test_items_on_one_another_show_their_mean(visit):
    names = visit.exhibit.factor_names
    visit.change(space="factors", plane=(len(names) - 2, len(names) - 1), colour=names.index("scale"))
    found, factors = map_of(visit.exhibit, visit.state), visit.exhibit.factors
    assert len(found.points) == len(found.tints) == len(factors[:, -2:].unique(dim=0))
    here = (factors[:, -2:] == found.points[3].long()).all(1)
    assert float(found.tints[3]) == pytest.approx(float(factors[here, names.index("scale")].double().mean()))
    assert found.ends[1] == float(factors[:, -2].max())


def test_a_click_outside_stays_in_the_frame(visit):
    visit.go(-50.0, -1e9)
    limit = visit.exhibit.codes(0).limit
    first, second = visit.state.plane
    assert (visit.state.z[first], visit.state.z[second]) == (-limit, -limit)


def test_the_map_turns_with_the_axes(visit):
    straight = map_of(visit.exhibit, visit.state)
    first, second = visit.state.plane
    visit.rotate(first, second, 90.0)
    rotated = map_of(visit.exhibit, visit.state)
    assert torch.allclose(rotated.points[:, 1], straight.points[:, 0])
    assert torch.allclose(rotated.ellipses[:, 1, 1], straight.ellipses[:, 0, 0])
    assert rotated.labels[0].endswith("′")


def test_two_models_under_the_same_point_and_the_same_item(visit):
    visit.change(other=3)
    same_z = frame(visit.exhibit, visit.state)
    expected = visit.exhibit.subjects[3].picture(visit.state.z)[0, 0]
    assert np.allclose(opened(same_z.other)[..., 0], 255 * expected.numpy(), atol=0.6)
    visit.change(same="item")
    assert "Choose an item" in frame(visit.exhibit, visit.state).note
    visit.take(3)
    found = frame(visit.exhibit, visit.state)
    mean, _ = visit.exhibit.subjects[3].encode(visit.exhibit.item(3)[None])
    expected = visit.exhibit.subjects[3].picture(mean)[0, 0]
    assert np.allclose(opened(found.other)[..., 0], 255 * expected.numpy(), atol=0.6)
    own, _ = visit.exhibit.subjects[0].encode(visit.exhibit.item(3)[None])
    expected = visit.exhibit.subjects[0].picture(own)[0, 0]
    assert np.allclose(opened(found.picture)[..., 0], 255 * expected.numpy(), atol=0.6)
    assert not found.note
    visit.move(0, visit.state.z[0] + 1)
    assert "moved away from the item" in frame(visit.exhibit, visit.state).note


def test_the_origin_is_a_button_away(visit):
    visit.take(3)
    visit.reset()
    assert visit.state.z == (0.0, 0.0, 0.0)
    assert visit.state.item is None


@pytest.mark.parametrize("follow", [False, True])
def test_a_record_shows_the_traversal(visit, follow):
    visit.move(visit.exhibit.codes(0).active[0], 0.5)
    if follow:
        visit.walk = visit.start_walk(0)
    with Image.open(io.BytesIO(visit.record("gif"))) as image:
        assert image.n_frames == 60
        assert image.width >= 256
        # below the picture, a line of text that says where the frame is
        assert image.height == image.width + 24
        texts = set()
        for frame in (0, 10, 30):
            image.seek(frame)
            line = np.array(image.convert("L"))[-24:]
            assert line.min() < 64
            texts.add(line.tobytes())
        assert len(texts) == 3


@pytest.mark.parametrize("form", ["gif", "webp"])
def test_a_record_of_the_rotation_is_labelled_by_its_angle(visit, form):
    with Image.open(io.BytesIO(visit.record_rotation(form))) as image:
        assert image.n_frames == 60
        texts = set()
        for frame in (0, 15, 30):
            image.seek(frame)
            texts.add(np.array(image.convert("L"))[-24:].tobytes())
        assert len(texts) == 3


def test_every_change_is_told(exhibit):
    told = []
    visit = Visit(exhibit, first_state(exhibit), lambda: told.append(1))
    for change in (
        lambda: visit.move(0, 1.0),
        lambda: visit.choose(1),
        lambda: visit.rotate(0, 1, 30.0),
        visit.reset,
    ):
        told.clear()
        change()
        assert told


def test_a_record_refuses_a_latent_that_is_not(visit):
    with pytest.raises(ValueError, match=r"latent must lie in \[0, 3\), got 3"):
        record(visit.exhibit, visit.state, 3, "gif")


def test_reconstructions_are_two_strips(exhibit):
    items, found = reconstructions(exhibit, 0, count=4)
    assert items.shape == found.shape == (12, 51, 4)


@pytest.mark.parametrize("degrees", [0.0, 30.0])
def test_the_code_computes_what_the_page_shows(exhibit, capsys, degrees):
    visit = Visit(exhibit, first_state(exhibit, 1))
    visit.move(0, 0.5)
    first, second = exhibit.codes(1).active[:2]
    visit.rotate(first, second, degrees)
    code = snippet(exhibit, visit.state)
    names = {}
    exec(code, names)
    picture = exhibit.subjects[1].picture(visit.state.z)
    assert torch.allclose(names["picture"], picture, atol=1e-6)
    rotation = Rotation(first, second, degrees) if degrees else None
    found = local_view(exhibit, 1, torch.tensor(visit.state.z), rotation)
    assert names["dto"].item() == pytest.approx(found.dto, abs=1e-3)
    assert "DtO" in capsys.readouterr().out


def test_the_code_of_ones_own_likelihood_leaves_that_to_its_owner_too(capsys):
    exhibit = exhibit_decoder(lambda z: z, latent=2, likelihood=Bernoulli())
    names = {"decoder": exhibit.subjects[0].decoder, "likelihood": exhibit.subjects[0].likelihood}
    exec(snippet(exhibit, first_state(exhibit)), names)
    assert names["picture"].tolist() == [[0.5, 0.5]]
    assert "DtO" in capsys.readouterr().out


def test_the_code_of_ones_own_decoder_leaves_it_to_its_owner(linear, capsys):
    names = {"decoder": linear.subjects[0].decoder}
    code = snippet(linear, first_state(linear))
    exec(code, names)
    assert names["picture"].shape == (1, 4)
    assert "DtO" in capsys.readouterr().out
