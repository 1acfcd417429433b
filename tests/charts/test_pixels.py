"""Data as pixels."""

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from unseam.charts import Look, animation, data_url, look_of, pixels, signed_pixels, strip
from unseam.charts.pixels import png


@pytest.mark.parametrize(
    "shape, is_picture, size",
    [
        ((1, 4, 6), True, (6, 4)),
        ((3, 4, 6), True, (6, 4)),
        ((4, 6), True, (6, 4)),
        ((2, 4, 6), True, (12, 4)),  # other channels stand side by side
        ((5,), False, (130, 96)),
        ((1000,), False, (1536, 96)),
        ((7, 1), False, (126, 96)),
    ],
)
def test_every_shape_has_a_look(shape, is_picture, size):
    look = look_of(torch.rand(2, *shape, generator=torch.Generator().manual_seed(0)))
    assert (look.is_picture, look.size) == (is_picture, size)
    x = torch.zeros(shape)
    assert pixels(x, look).shape == (size[1], size[0], 3)
    assert signed_pixels(x, look, 1.0).shape == (size[1], size[0], 3)


def test_range_is_the_data_s_own_where_it_leaves_the_unit_interval():
    look = look_of(torch.tensor([[[[-1.0, 3.0], [0.0, 1.0]]]]))
    assert (look.low, look.high) == (-1.0, 3.0)
    assert pixels(torch.tensor([[[-1.0, 3.0], [1.0, 9.0]]]), look)[..., 0].tolist() == [[0, 255], [128, 255]]


def test_range_is_that_of_what_is_finite():
    look = look_of(torch.tensor([[-1.0, float("nan"), 3.0, float("inf")]]))
    assert (look.low, look.high) == (-1.0, 3.0)
    with pytest.raises(ValueError, match="data must hold finite values, got none among 2"):
        look_of(torch.full((1, 2), float("nan")))


def test_colour_comes_out_as_it_went_in():
    x = torch.tensor([1.0, 0.0, 0.2]).view(3, 1, 1).expand(3, 2, 2)
    assert pixels(x, Look((3, 2, 2), 0.0, 1.0))[0, 0].tolist() == [255, 0, 51]


def test_what_is_not_finite_does_not_stop_the_picture():
    found = pixels(torch.tensor([[[float("nan"), 1.0], [0.0, 0.0]]]), Look((1, 2, 2), 0.0, 1.0))
    assert found[0, 0, 0] == 0


def test_signs_have_colours_of_their_own():
    below, nothing, above, _ = signed_pixels(
        torch.tensor([[[-2.0, 0.0], [2.0, 0.0]]]), Look((1, 2, 2), 0.0, 1.0), 2.0
    ).reshape(4, 3)
    assert below.tolist() == [0, 114, 178]
    assert above.tolist() == [213, 94, 0]
    assert len(set(nothing.tolist())) == 1


def test_a_change_of_hue_is_seen():
    x = torch.tensor([1.0, -1.0, 0.0]).view(3, 1, 1).expand(3, 2, 2)
    assert signed_pixels(x, Look((3, 2, 2), 0.0, 1.0), 1.0)[0, 0].tolist() == [255, 0, 128]


def test_bars_stand_on_zero():
    drawn = pixels(torch.tensor([1.0, -1.0, 0.0]), Look((3,), -1.0, 1.0))
    coloured = (drawn != 245).any(-1)
    up, down, flat = np.split(coloured, 3, 1)
    assert up[:47].any() and not up[50:].any()
    assert down[50:].any() and not down[:46].any()
    assert flat.any(1).sum() == 1


def test_png_holds_the_pixels():
    picture = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    content = base64.b64decode(data_url(picture).partition(",")[2])
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(content))), picture)


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_pictures_survive_their_file(depth):
    sheet = np.random.default_rng(0).integers(0, 256, (5, 7, depth), dtype="uint8")
    for level in (1, 9):
        found = np.asarray(Image.open(io.BytesIO(png(sheet, level=level))))
        np.testing.assert_array_equal(found.reshape(sheet.shape), sheet)


def test_strip_keeps_pictures_apart():
    white = np.full((2, 2, 3), 255, np.uint8)
    found = strip([white, white])
    assert found.shape == (2, 5, 4)
    assert found[0, :, 3].tolist() == [255, 255, 0, 255, 255]


@pytest.mark.parametrize("form, head", [("gif", b"GIF89a"), ("webp", b"RIFF")])
def test_animation_goes_there_and_back(form, head):
    frames = [np.full((4, 4, 3), value, np.uint8) for value in (0, 60, 120, 255)]
    content = animation(frames, form, side=8)
    assert content.startswith(head)
    with Image.open(io.BytesIO(content)) as image:
        assert image.size == (8, 8)
        assert image.n_frames == 6
        shades = []
        for k in range(6):
            image.seek(k)
            shades.append(int(np.asarray(image.convert("RGB"))[0, 0, 0]))
    assert shades == [0, 60, 120, 255, 120, 60]


def test_form_must_be_one_of_two():
    with pytest.raises(ValueError, match="form must be 'gif' or 'webp', got 'mp4'"):
        animation([np.zeros((2, 2, 3), np.uint8)], "mp4")
