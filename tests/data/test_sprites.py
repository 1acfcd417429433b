"""The twin of dSprites: closed-form areas, symmetries, derivatives, and the authors' preview."""

import os
from math import pi
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from unseam.data import sprites
from unseam.data.grid import grid_index
from unseam.data.sprites import ELLIPSE, HALF_SIDE, HEART, Sprites, _heart_curve, render_sprites

SQUARE, ELLIPSE_CODE, HEART_CODE = range(3)


def draw(shape, scale=1.0, orientation=0.0, x=0.5, y=0.5, **options):
    numbers = [torch.tensor([v], dtype=torch.float64) for v in (scale, orientation, x, y)]
    return render_sprites(torch.tensor([shape]), *numbers, **options)


def random_poses(count, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    shape = torch.arange(count) % 3
    numbers = torch.rand(4, count, generator=generator, dtype=dtype)
    return shape, 0.5 + numbers[0] / 2, 2 * pi * numbers[1], numbers[2], numbers[3]


@pytest.fixture(scope="module")
def world():
    return Sprites()


# The grid


def test_grid_of_dsprites(world):
    assert world.factor_names == ("shape", "scale", "orientation", "x", "y")
    assert world.factor_sizes == (3, 6, 40, 32, 32)
    assert len(world) == 737280 and world.shape == (1, 64, 64)
    assert world.dtype == torch.uint8 and world.twin_of == "dSprites"
    assert world.factors.shape == (737280, 5) and world.factors.dtype == torch.int64
    assert world.factors[[0, 1, 32, 1024, 40960, 245760]].tolist() == [
        [0, 0, 0, 0, 0],
        [0, 0, 0, 0, 1],
        [0, 0, 0, 1, 0],
        [0, 0, 1, 0, 0],
        [0, 1, 0, 0, 0],
        [1, 0, 0, 0, 0],
    ]


def test_images_follow_the_factors(world):
    index = torch.randint(len(world), (64,), generator=torch.Generator().manual_seed(1))
    factors = world.factors[index]
    grids = [(0.5, 1, 6), (0, 2 * pi, 40), (0, 1, 32), (0, 1, 32)]
    numbers = [torch.linspace(*grid)[factors[:, k + 1]] for k, grid in enumerate(grids)]
    expected = render_sprites(factors[:, 0], *numbers)
    assert (world.images(index) != expected).double().mean() < 1e-5


def test_images_are_hard_and_white_on_black(world):
    images = world.images(torch.arange(0, len(world), 9973))
    assert images.dtype == torch.float32 and images.shape[1:] == (1, 64, 64)
    assert set(images.unique().tolist()) == {0.0, 1.0}


def test_one_image_alone_equals_the_same_in_a_batch(world):
    index = torch.randint(len(world), (24,), generator=torch.Generator().manual_seed(2))
    together = world.images(index)
    assert all(torch.equal(world.images(index[k : k + 1])[0], together[k]) for k in range(len(index)))


def test_images_differ_where_factors_do(world):
    generator = torch.Generator().manual_seed(3)
    index = torch.randperm(len(world), generator=generator)[:1500]
    factors = world.factors[index]
    # Orientation cannot be told from all turns: 2 pi is 0 again, and squares and ellipses repeat earlier.
    index = index[(factors[:, 1] >= 3) & ((factors[:, 0] == HEART_CODE) & (factors[:, 2] < 39))]
    images = world.images(index).flatten(1)
    assert len(torch.unique(images, dim=0)) == len(index) > 200


@pytest.mark.parametrize("shape", range(3))
def test_the_last_orientation_is_the_first(world, shape):
    factors = torch.tensor([[shape, 5, turn, 13, 21] for turn in (0, 39)])
    first, last = world.images(grid_index(factors, world.factor_sizes))
    assert torch.equal(first, last)


def test_every_sprite_fits_its_window(world):
    factors = torch.tensor([[s, 5, turn, x, x] for s in range(3) for turn in range(40) for x in (0, 17, 31)])
    grids = [(0.5, 1, 6), (0, 2 * pi, 40), (0, 1, 32), (0, 1, 32)]
    numbers = [torch.linspace(*grid)[factors[:, k + 1]] for k, grid in enumerate(grids)]
    images = world.images(grid_index(factors, world.factor_sizes))
    assert (images - render_sprites(factors[:, 0], *numbers)).abs().sum((1, 2, 3)).max() <= 1


def test_smaller_worlds_leave_constants_out():
    world = Sprites(resolution=32, shapes=("heart", "square"), scales=1, orientations=4, positions=3)
    assert world.factor_names == ("shape", "orientation", "x", "y") and world.factor_sizes == (2, 4, 3, 3)
    assert len(world) == 72 and world.images(torch.arange(72)).shape == (72, 1, 32, 32)
    place = torch.tensor([0.5])
    upright = world.images(grid_index(torch.tensor([[0, 0, 1, 1]]), world.factor_sizes))
    expected = render_sprites(torch.tensor([2]), torch.ones(1), torch.zeros(1), place, place, resolution=32)
    assert torch.equal(upright, expected)


def test_sample_and_move(world):
    small = Sprites(scales=2, orientations=3, positions=4)
    sample = small.sample(5, torch.Generator().manual_seed(0))
    assert torch.equal(small.images(grid_index(sample.factors, small.factor_sizes)), sample.x)
    moved = small.to("cpu")
    assert moved is not small and torch.equal(moved.factors, small.factors)
    assert Sprites(**small.options).factor_sizes == small.factor_sizes


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_same_images_on_the_device(world):
    index = torch.arange(0, len(world), 997)
    images = world.to("cuda").images(index)
    assert images.is_cuda and (images.cpu() != world.images(index)).double().mean() < 1e-5


class Copies(TorchDispatchMode):
    """Counts the tensors made from Python numbers, which a device would wait for."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten.lift_fresh.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("softness", [None, 1.0])
def test_nothing_is_copied_to_the_device_for_a_batch(softness):
    world, index = Sprites(softness=softness), torch.arange(0, 700_000, 100_000)
    world.images(index)
    with Copies() as copies:
        world.images(index)
    assert copies.count == 0
    with Copies() as copies:
        torch.tensor([1.0, 2.0])
    assert copies.count == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("softness", [None, 1.0])
def test_images_can_be_captured(softness):
    world = Sprites(softness=softness, device="cuda")
    index = torch.arange(0, 700_000, 100_000, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        expected = world.images(index)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = world.images(index)
    graph.replay()
    assert torch.equal(found, expected)


# Closed forms


@pytest.mark.parametrize("scale", [0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
def test_upright_square_covers_whole_pixels(scale):
    assert draw(SQUARE, scale).sum() == (20 * scale) ** 2


@pytest.mark.parametrize("scale", [0.7, 1.0])
@pytest.mark.parametrize("softness", [0.6, 0.9])
def test_soft_ellipse_has_its_area(scale, softness):
    # Parallel curves of a convex outline enclose A + P d + pi d^2; a logistic d has variance (pi s)^2 / 3.
    area = 16 * pi * ELLIPSE[0] * ELLIPSE[1] * scale**2 + pi * (pi * softness) ** 2 / 3
    image = draw(ELLIPSE_CODE, scale, 0.4, 0.51, 0.47, resolution=256, softness=softness)
    assert image.sum().item() == pytest.approx(area, rel=1e-5)


@pytest.mark.parametrize("scale", [0.7, 1.0])
@pytest.mark.parametrize("softness", [0.6, 0.9])
def test_soft_square_has_its_area(scale, softness):
    # Corners of the parallel curves are round outside (pi d^2) and sharp inside (4 d^2).
    area = 16 * (2 * HALF_SIDE * scale) ** 2 + (pi + 4) / 2 * (pi * softness) ** 2 / 3
    image = draw(SQUARE, scale, 0.4, 0.51, 0.47, resolution=256, softness=softness)
    assert image.sum().item() == pytest.approx(area, rel=1e-5)


@pytest.mark.parametrize("softness", [None, 0.5])
def test_heart_has_the_area_of_its_curve(softness):
    angle = torch.linspace(0, pi, 20001, dtype=torch.float64)
    u, v = HEART[0] * angle.sin() ** 3, HEART[1] * _heart_curve(angle.cos())
    area = 2 * torch.trapezoid(u, -v).item()
    image = draw(HEART_CODE, 1.0, 0.3, resolution=1024, softness=softness)
    # The soft heart is a polygon within 0.025 pixels of a curve of length 60, two thirds of that on average.
    assert image.sum().item() / 256 == pytest.approx(area, abs=1.0 if softness else 0.1)


def test_heart_curve_is_the_published_trigonometric_sum():
    t = torch.linspace(0, pi, 50, dtype=torch.float64)
    expected = 13 * t.cos() - 5 * (2 * t).cos() - 2 * (3 * t).cos() - (4 * t).cos()
    torch.testing.assert_close(_heart_curve(t.cos()), expected)


@pytest.mark.parametrize(("shape", "tolerance"), [(SQUARE, 1e-3), (ELLIPSE_CODE, 1e-3), (HEART_CODE, 0.03)])
def test_distance_against_brute_force(shape, tolerance):
    angle = torch.linspace(-pi, pi, 80001, dtype=torch.float64)
    side = torch.linspace(-HALF_SIDE, HALF_SIDE, 20001, dtype=torch.float64)
    edge = torch.full_like(side, HALF_SIDE)
    sides = [(side, edge), (side, -edge), (edge, side), (-edge, side)]
    height = -HEART[1] * (_heart_curve(angle.cos()) + HEART[2])
    outline = (
        torch.cat([torch.stack(points, -1) for points in sides]),
        torch.stack([ELLIPSE[0] * angle.cos(), ELLIPSE[1] * angle.sin()], -1),
        torch.stack([HEART[0] * angle.sin() ** 3, height], -1),
    )[shape]
    distance = -8 * torch.logit(draw(shape, x=0.487, y=0.521, softness=8.0)).flatten()
    line = torch.arange(64, dtype=torch.float64) + 0.5
    v, u = torch.meshgrid(line - 64 * (0.25 + 0.521 / 2), line - 64 * (0.25 + 0.487 / 2), indexing="ij")
    pick = torch.randperm(4096, generator=torch.Generator().manual_seed(0))[:300]
    pick = torch.cat([pick, distance.abs().argsort()[:200]])
    points = torch.stack([u, v], -1).view(-1, 2)[pick]
    expected = torch.cat([torch.cdist(part, outline).amin(1) for part in torch.split(points, 100)])
    assert (distance[pick].abs() - expected).abs().max() < tolerance


# Symmetries


@pytest.mark.parametrize("softness", [None, 0.7])
@pytest.mark.parametrize("shape", range(3))
def test_moving_by_whole_pixels_shifts_the_image(shape, softness):
    image = draw(shape, 0.8, 1.1, 0.45, 0.52, softness=softness)[0, 0]
    moved = draw(shape, 0.8, 1.1, 0.45 + 3 / 32, 0.52 - 2 / 32, softness=softness)[0, 0]
    torch.testing.assert_close(moved[10:50, 10:50], image[12:52, 7:47], rtol=0, atol=1e-9)


@pytest.mark.parametrize("softness", [None, 0.7])
@pytest.mark.parametrize(("shape", "turn"), [(SQUARE, pi / 2), (ELLIPSE_CODE, pi), (HEART_CODE, 2 * pi)])
def test_turning_by_its_symmetry_changes_nothing(shape, turn, softness):
    image = draw(shape, 0.9, 0.3, 0.41, 0.57, softness=softness)
    turned = draw(shape, 0.9, 0.3 + turn, 0.41, 0.57, softness=softness)
    torch.testing.assert_close(turned, image, rtol=0, atol=1e-9)


@pytest.mark.parametrize("softness", [None, 0.7])
@pytest.mark.parametrize("shape", range(3))
def test_a_quarter_turn_turns_the_image(shape, softness):
    image = draw(shape, 0.9, 0.3, softness=softness)[0, 0]
    turned = draw(shape, 0.9, 0.3 + pi / 2, softness=softness)[0, 0]
    torch.testing.assert_close(turned, torch.rot90(image), rtol=0, atol=1e-9)


def test_upright_heart_points_down():
    rows = draw(HEART_CODE)[0, 0].sum(1)
    filled = rows.nonzero().flatten()
    assert rows[filled[-1]] <= 2 < rows[filled[0]]


@pytest.mark.parametrize("shape", range(3))
def test_proportions_do_not_depend_on_the_resolution(shape):
    coarse = draw(shape, 0.9, 0.7, softness=0.5)
    fine = draw(shape, 0.9, 0.7, resolution=192, softness=1.5)
    torch.testing.assert_close(fine[..., 1::3, 1::3], coarse, rtol=0, atol=1e-9)


@pytest.mark.parametrize("shape", range(3))
def test_vanishing_softness_is_the_hard_image(shape):
    hard, soft = (draw(shape, 0.9, 0.4, 0.43, 0.61, softness=s) for s in (None, 1e-6))
    assert (hard - soft).abs().sum() <= (1 if shape == HEART_CODE else 0)


# Derivatives


@pytest.mark.parametrize("shape", range(3))
def test_gradient_against_finite_differences(shape):
    generator = torch.Generator().manual_seed(4)
    weights = torch.rand(1, 1, 16, 16, generator=generator, dtype=torch.float64)
    numbers = [torch.tensor([v], dtype=torch.float64, requires_grad=True) for v in (0.83, 0.71, 0.46, 0.58)]

    def project(*pose):
        return (weights * render_sprites(torch.tensor([shape]), *pose, resolution=16, softness=0.8)).sum()

    assert torch.autograd.gradcheck(project, numbers, eps=1e-6, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("softness", [0.5, 1.0])
def test_derivatives_are_finite_on_the_whole_image(softness):
    # Upright and centred on a pixel: every distance meets its corners, axes and centre.
    poses = [
        torch.full((3,), v, dtype=torch.float64, requires_grad=True) for v in (1.0, 0.0, 0.515625, 0.515625)
    ]
    images = render_sprites(torch.arange(3), *poses, softness=softness)
    assert all(g.isfinite().all() for g in torch.autograd.grad(images.sum(), poses))


def test_forward_mode_and_vmap_equal_reverse_mode():
    shape, *numbers = random_poses(3)
    pose = torch.stack(numbers, -1)

    def image(pose):
        return render_sprites(shape, *pose.unbind(-1), resolution=16, softness=0.7)

    def alone(code, pose):
        return render_sprites(code[None], *pose[:, None], resolution=16, softness=0.7)[0]

    tangents = torch.eye(4, dtype=torch.float64)
    forward = torch.func.vmap(lambda t: torch.func.jvp(image, (pose,), (t.expand(3, 4),))[1])(tangents)
    reverse = torch.func.vmap(torch.func.jacrev(alone, argnums=1))(shape, pose)
    torch.testing.assert_close(forward.movedim(0, -1), reverse)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("softness", [None, 0.5])
def test_dtype_in_is_dtype_out(dtype, softness):
    assert render_sprites(*random_poses(3, dtype=dtype), softness=softness).dtype == dtype


@pytest.mark.parametrize("softness", [None, 0.5])
def test_rendering_alone_equals_rendering_in_a_batch(softness):
    poses = random_poses(9)
    together = render_sprites(*poses, softness=softness)
    alone = torch.cat([render_sprites(*(p[k : k + 1] for p in poses), softness=softness) for k in range(9)])
    torch.testing.assert_close(alone, together, rtol=0, atol=1e-14)


def test_sprites_may_leave_the_image():
    assert draw(SQUARE, x=5.0).sum() == 0
    assert 0 < draw(SQUARE, x=1.5).sum() < draw(SQUARE).sum()


# The preview published with dSprites


def preview_factors():
    """Factors of the preview's 320 frames: scale to and fro, a turn, for the heart a round trip, and on."""
    rise, fall = list(range(6)), list(range(6))[::-1]
    there, back = list(range(32)), list(range(32))[::-1]
    for shape in (HEART_CODE, ELLIPSE_CODE, SQUARE):
        yield from ((shape, scale, 0, 0, 0) for scale in rise + fall + rise)
        yield from ((shape, 5, turn, 0, 0) for turn in range(40))
        if shape == HEART_CODE:
            trip = [*((0, y) for y in there), *((x, 31) for x in there)]
            trip += [*((31, y) for y in back), *((x, 0) for x in back)]
            yield from ((shape, 5, 0, x, y) for x, y in trip)
        yield from ((shape, scale, 0, 0, 0) for scale in fall)


def test_agrees_with_the_preview_of_dsprites(world):
    image_module = pytest.importorskip("PIL.Image")
    root = Path(os.environ.get("UNSEAM_DATA", Path(__file__).parents[2].parent / "shared" / "data"))
    path = root / "dsprites-reference" / "dsprites.gif"
    if not path.exists():
        pytest.skip(f"no preview at {path}")
    factors = torch.tensor(list(preview_factors()))
    with image_module.open(path) as preview:
        frames = []
        for frame in range(preview.n_frames):
            preview.seek(frame)
            frames.append(np.asarray(preview.convert("L")) > 127)
    published = torch.from_numpy(np.stack(frames))
    drawn = world.images(grid_index(factors, world.factor_sizes))[:, 0] > 0
    overlap = (drawn & published).sum((1, 2)) / (drawn | published).sum((1, 2))
    assert overlap.min() > 0.98
    assert all(overlap[factors[:, 0] == shape].mean() > 0.999 for shape in range(3))


# Bad input


@pytest.mark.parametrize("resolution", [0, 7])
def test_resolution_too_small(resolution):
    message = f"resolution must be at least 8 pixels, got {resolution}"
    with pytest.raises(ValueError, match=message):
        Sprites(resolution=resolution)
    with pytest.raises(ValueError, match=message):
        draw(SQUARE, resolution=resolution)


@pytest.mark.parametrize("shapes", [("square", "star"), (), ("heart", "heart"), "heart"])
def test_unknown_shapes(shapes):
    message = r"shapes must be different names out of \('square', 'ellipse', 'heart'\)"
    with pytest.raises(ValueError, match=message):
        Sprites(shapes=shapes)


@pytest.mark.parametrize("option", ["scales", "orientations", "positions"])
def test_empty_factor(option):
    with pytest.raises(ValueError, match=f"{option} must be at least 1, got 0"):
        Sprites(**{option: 0})


def test_index_out_of_range(world):
    with pytest.raises(
        ValueError, match=r"index must lie in \[0, 737280\), got values from 737280 to 737280"
    ):
        world.images(torch.tensor([737280]))


def test_softness_not_positive():
    with pytest.raises(ValueError, match=r"softness must be positive, or None for hard edges, got 0\.0"):
        draw(SQUARE, softness=0.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({0: torch.tensor([0.0])}, r"shape must be integers \(batch,\), got torch.float32 of shape \(1,\)"),
        ({0: torch.tensor([3])}, r"shape must lie in \[0, 3\) for .*, got \[3\]"),
        ({1: torch.ones(2)}, r"scale must have the shape of shape, \(1,\), got \(2,\)"),
        ({4: torch.ones(1).double()}, "scale, orientation, x, y must share a floating-point dtype"),
        ({k: torch.ones(1).int() for k in range(1, 5)}, "must share a floating-point dtype"),
    ],
)
def test_malformed_pose(change, message):
    pose = [torch.tensor([0]), torch.ones(1), torch.zeros(1), torch.zeros(1), torch.zeros(1)]
    for place, replacement in change.items():
        pose[place] = replacement
    with pytest.raises(ValueError, match=message):
        render_sprites(*pose)


def test_soft_world_is_rendered_softly_and_rounded_to_bytes():
    world = Sprites(
        resolution=24, shapes=("ellipse",), scales=3, orientations=1, positions=4, span=0.5, softness=1.0
    )
    images = world.images(torch.arange(len(world)))
    assert torch.equal((images * 255).round() / 255, images)
    assert ((images > 0.1) & (images < 0.9)).any()
    scale, x, y = (world.factors[:, j].float() for j in range(3))
    pose = (0.5 + 0.25 * scale, 0 * x, 0.25 + x / 6, 0.25 + y / 6)
    drawn = render_sprites(torch.ones(len(world), dtype=torch.int64), *pose, resolution=24, softness=1.0)
    assert (drawn - images).abs().max() <= 0.5 / 255 + 1e-5


@pytest.mark.parametrize("softness", [None, 0.5, 1.2])
def test_drawing_shape_by_shape_in_windows_and_blocks_changes_no_picture(softness, monkeypatch):
    monkeypatch.setattr(sprites, "BLOCK", 5000)
    world = Sprites(resolution=64, scales=2, orientations=4, positions=3, softness=softness)
    index = torch.randperm(len(world), generator=torch.Generator().manual_seed(0))
    factors = world.factors[index]
    grids = [(0.5, 1, 2), (0, 2 * pi, 4), (0, 1, 3), (0, 1, 3)]
    pose = [torch.linspace(*grid, dtype=torch.float64)[factors[:, k + 1]] for k, grid in enumerate(grids)]
    error = (world.images(index) - render_sprites(factors[:, 0], *pose, softness=softness)).abs()
    # in single precision a pixel's centre may lie on the other side of a hard edge
    assert error.max() <= 0.5 / 255 + 1e-5 if softness else (error > 0).double().mean() < 1e-5


@pytest.mark.parametrize("span", [0.0, -1.0, 1.5])
def test_span_is_a_fraction(span):
    with pytest.raises(ValueError, match="span must lie in"):
        Sprites(span=span)
