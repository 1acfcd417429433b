"""The twin of 3D Shapes: silhouettes against marched rays, symmetries, derivatives, colours."""

import colorsys

import pytest
import torch

from unseam.data.grid import grid_index
from unseam.data.shapes import CAMERA, HEIGHTS, LIGHT, SOLIDS, WIDTHS, Shapes, render_shapes
from unseam.data.solids import box, pillar, view

HUES = (0.05, 0.42, 0.77)


def draw(shape, scale=1.0, orientation=0.0, hues=HUES, **options):
    numbers = [torch.tensor([v], dtype=torch.float64) for v in (*hues, scale, orientation)]
    return render_shapes(*numbers[:4], torch.tensor([shape]), numbers[4], **options)


def random_poses(count, seed=0, dtype=torch.float64):
    numbers = torch.rand(5, count, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return *numbers[:3], 0.75 + numbers[3] / 2, torch.arange(count) % 4, 60 * numbers[4] - 30


@pytest.fixture(scope="module")
def world():
    return Shapes()


# The grid


def test_grid_of_3d_shapes(world):
    assert world.factor_names == ("floor_hue", "wall_hue", "object_hue", "scale", "shape", "orientation")
    assert world.factor_sizes == (10, 10, 10, 8, 4, 15)
    assert len(world) == 480000 and world.shape == (3, 64, 64)
    assert world.dtype == torch.uint8 and world.twin_of == "3D Shapes"
    assert world.factors.shape == (480000, 6) and world.factors.dtype == torch.int64
    assert world.factors[[1, 15, 60, 480, 4800, 48000]].tolist() == torch.eye(6).flip(0).long().tolist()


def test_images_follow_the_factors(world):
    index = torch.randint(len(world), (32,), generator=torch.Generator().manual_seed(1))
    factors = world.factors[index]
    grids = [(0, 0.9, 10)] * 3 + [(0.75, 1.25, 8), (0, 3, 4), (-30, 30, 15)]
    numbers = [torch.linspace(*grid)[factors[:, k]] for k, grid in enumerate(grids)]
    numbers[4] = factors[:, 4]
    apart = (world.images(index) - render_shapes(*numbers)).abs()
    # A pixel whose centre lies on an edge may fall on either side of it after rounding.
    assert (apart > 0.5 / 255 + 1e-6).double().mean() < 1e-4


def test_images_are_multiples_of_a_byte_step(world):
    images = world.images(torch.arange(0, len(world), 9973))
    assert images.dtype == torch.float32 and images.shape[1:] == (3, 64, 64)
    assert images.min() >= 0 and images.max() <= 1
    assert torch.equal((images * 255).round().byte().float() / 255, images)


def test_one_image_alone_equals_the_same_in_a_batch(world):
    index = torch.randint(len(world), (16,), generator=torch.Generator().manual_seed(2))
    together = world.images(index)
    assert all(torch.equal(world.images(index[k : k + 1])[0], together[k]) for k in range(len(index)))


def test_images_differ_where_factors_do(world):
    index = torch.randperm(len(world), generator=torch.Generator().manual_seed(3))[:500]
    images = world.images(index).mul(255).byte().flatten(1)
    assert len(torch.unique(images, dim=0)) == 500


@pytest.mark.parametrize("factor", range(6))
def test_every_step_of_every_factor_can_be_seen(world, factor):
    factors = torch.tensor([[1, 4, 7, 3, 1, 5]]).repeat(world.factor_sizes[factor], 1)
    factors[:, factor] = torch.arange(world.factor_sizes[factor])
    images = world.images(grid_index(factors, world.factor_sizes))
    changed = (images[1:] - images[:-1]).abs().amax(1) > 0.1
    assert changed.sum((1, 2)).min() >= 20


def test_table_of_poses_equals_direct_rendering(world, monkeypatch):
    index = torch.arange(0, len(world), 20011)
    kept = world.images(index)
    monkeypatch.setattr("unseam.data.shapes.TABLE_BYTES", 0)
    assert ((Shapes().images(index) - kept).abs() > 1.5 / 255).double().mean() < 1e-4


def test_smaller_worlds_leave_constants_out():
    world = Shapes(resolution=32, hues=4, scales=1, shapes=("sphere", "cube"), orientations=3)
    assert world.factor_names == ("floor_hue", "wall_hue", "object_hue", "shape", "orientation")
    assert world.factor_sizes == (4, 4, 4, 2, 3) and world.images(torch.arange(3)).shape == (3, 3, 32, 32)
    image = world.images(grid_index(torch.tensor([[1, 2, 3, 0, 1]]), world.factor_sizes))
    expected = draw(SOLIDS.index("sphere"), hues=(0.25, 0.5, 0.75), resolution=32)
    assert ((image - expected).abs() > 1 / 255).double().mean() < 1e-3


def test_sample_and_move():
    small = Shapes(hues=2, scales=2, orientations=3)
    sample = small.sample(5, torch.Generator().manual_seed(0))
    assert torch.equal(small.images(grid_index(sample.factors, small.factor_sizes)), sample.x)
    moved = small.to("cpu")
    assert moved is not small and torch.equal(moved.factors, small.factors)
    assert Shapes(**small.options).factor_sizes == small.factor_sizes


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_same_images_on_the_device(world):
    index = torch.arange(0, len(world), 9973)
    images = world.to("cuda").images(index)
    assert images.is_cuda and ((images.cpu() - world.images(index)).abs() > 1.5 / 255).double().mean() < 1e-4


# Silhouettes and surfaces, against rays marched through the solids' signed distances


def solid_distance(shape, point, width, height):
    x, y, z = point.unbind(-1)
    radial, middle = torch.hypot(x, y), z - height / 2
    if shape == 0:
        q = torch.stack([x.abs() - width, y.abs() - width, middle.abs() - width], -1)
    elif shape == 1:
        q = torch.stack([radial - width, middle.abs() - height / 2], -1)
    else:
        axis = height / 2 - width
        return torch.hypot(radial, middle - middle.clamp(-axis, axis)) - width
    return q.clamp(min=0).norm(dim=-1) + q.amax(-1).clamp(max=0)


def test_all_solids_look_about_as_large():
    """Their sections from front to back differ in area by less than a third."""
    grid = torch.linspace(-3, 3, 200, dtype=torch.float64)
    x, z = torch.meshgrid(grid, grid + 2, indexing="ij")
    point = torch.stack([x, 0 * x, z], -1)
    areas = [
        float((solid_distance(k, point, *map(torch.tensor, size)) < 0).double().mean())
        for k, size in enumerate(zip(WIDTHS, HEIGHTS, strict=True))
    ]
    assert max(areas) < 4 / 3 * min(areas)


@pytest.mark.parametrize("orientation", [-27.0, -4.0, 11.0, 30.0])
@pytest.mark.parametrize("scale", [0.75, 1.25])
@pytest.mark.parametrize("shape", range(4))
def test_silhouette_and_shade_against_marched_rays(shape, scale, orientation):
    angle = torch.tensor([orientation], dtype=torch.float64)
    seen = view(angle, resolution=48, **CAMERA)
    width, height = (torch.tensor([scale * size[shape]], dtype=torch.float64) for size in (WIDTHS, HEIGHTS))
    if shape == 0:
        surfaces = [box(seen, width, LIGHT, s) for s in (None, 1.0)]
    else:
        surfaces = [pillar(seen, width, height, torch.tensor([shape == 1]), LIGHT, s) for s in (None, 1.0)]
    screen = torch.stack(torch.broadcast_tensors(torch.ones(()), seen.across, seen.up), -1)
    ray = torch.nn.functional.normalize(torch.einsum("hwk,ck->hwc", screen, seen.rays[0]), dim=-1)
    point, closest = seen.eye[0] + 0 * ray, torch.full(ray.shape[:2], torch.inf, dtype=torch.float64)
    for _ in range(150):
        distance = solid_distance(shape, point, width, height)
        closest = torch.minimum(closest, distance)
        point = point + distance[..., None] * ray
    clear = (closest < 1e-6) | (closest > 0.01)
    assert clear.double().mean() > 0.97
    for surface in surfaces:
        assert torch.equal((surface.distance[0] >= 0)[clear], (closest < 1e-6)[clear])
    hit = point[closest < 1e-6].requires_grad_()
    (normal,) = torch.autograd.grad(solid_distance(shape, hit, width, height).sum(), hit)
    lit = (0.5 + 0.5 * normal @ torch.tensor(LIGHT, dtype=torch.float64)) ** 2
    hard = surfaces[0]
    assert ((hard.shade[0][closest < 1e-6] - lit).abs() < 1e-6).double().mean() > 0.97
    if shape > 1:  # what is round all over
        half = torch.tensor(LIGHT, dtype=torch.float64) + seen.eye[0] / seen.eye[0].norm()
        gloss = (normal @ half / half.norm()).clamp(min=0) ** 32
        assert ((hard.gloss[0][closest < 1e-6] - gloss).abs() < 1e-6).double().mean() > 0.97


@pytest.mark.parametrize("shape", [0, 1, 2, 3])
def test_soft_distance_is_measured_in_pixels(shape):
    # At the silhouette the distance changes by one pixel per pixel across it.
    seen = view(torch.tensor([17.0], dtype=torch.float64), resolution=256, **CAMERA)
    width, height = (torch.tensor([size[shape]], dtype=torch.float64) for size in (WIDTHS, HEIGHTS))
    if shape == 0:
        distance = box(seen, width, LIGHT, 1.0).distance[0]
    else:
        distance = pillar(seen, width, height, torch.tensor([shape == 1]), LIGHT, 1.0).distance[0]
    slope = torch.hypot(*torch.gradient(distance))
    near = (distance.abs() < 0.7)[1:-1, 1:-1]
    assert near.sum() > 200
    assert slope[1:-1, 1:-1][near].quantile(0.05) > 0.9 and slope[1:-1, 1:-1][near].quantile(0.95) < 1.1


def test_light_comes_from_above_left():
    assert sum(part**2 for part in LIGHT) == pytest.approx(1, abs=0.01)
    image = draw(SOLIDS.index("sphere"), hues=(0.0, 0.0, 0.0)).sum(1)[0]
    assert image[26, 28] > image[36, 36]


# Symmetries and colours


@pytest.mark.parametrize("shape", range(4))
def test_mirrored_orientation_mirrors_the_silhouette(shape):
    # Black floor and walls cannot be had; the object's own layer is where its hue matters.
    def layer(orientation):
        first, second = (draw(shape, 1.0, orientation, hues=(0, 0, hue)) for hue in (0.0, 1 / 3))
        return (first - second).abs().amax((0, 1)) > 1e-9

    assert torch.equal(layer(21.0), layer(-21.0).flip(-1))


@pytest.mark.parametrize("hue", [0.0, 0.1, 0.35, 0.5, 0.68, 0.9])
def test_hues_are_those_of_the_colour_circle(hue):
    corner = draw(2, hues=(hue, 0.0, 0.0))[0, :, -1, 0]
    colour = torch.tensor(colorsys.hsv_to_rgb(hue, 1, 1), dtype=torch.float64)
    torch.testing.assert_close(corner / corner.max(), colour)


def test_a_hue_and_its_full_turn_are_the_same():
    torch.testing.assert_close(draw(1, hues=(0.2, 0.4, 0.6)), draw(1, hues=(1.2, 2.4, -0.4)))


@pytest.mark.parametrize("place", range(3))
def test_each_hue_colours_its_own_part(place):
    image = [draw(3, hues=[0.3 if k == place and changed else 0.0 for k in range(3)]) for changed in (0, 1)]
    changed = (image[0] - image[1]).abs().amax(1)[0] > 1e-9
    floor, wall, solid = changed[60, 4], changed[2, 32], changed[32, 32]
    assert [floor.item(), wall.item(), solid.item()] == [place == 0, place == 1, place == 2]


def test_larger_scale_covers_more():
    areas = []
    for scale in (0.75, 1.0, 1.25):
        first, second = (draw(0, scale, 10.0, hues=(0, 0, hue)) for hue in (0.0, 0.5))
        areas.append(((first - second).abs().amax(1) > 0.01).sum().item())
    assert areas[0] < areas[1] < areas[2]


@pytest.mark.parametrize("shape", range(4))
def test_vanishing_softness_is_the_hard_image(shape):
    hard, soft = (draw(shape, 0.9, 13.0, softness=s) for s in (None, 1e-7))
    assert (hard - soft).abs().max() < 1e-3


@pytest.mark.parametrize("softness", [None, 0.3, 2.0])
def test_images_stay_in_range(softness):
    images = render_shapes(*random_poses(64), softness=softness)
    assert images.min() >= 0 and images.max() <= 1 and images.isfinite().all()


# Derivatives


@pytest.mark.parametrize("shape", range(4))
def test_gradient_against_finite_differences(shape):
    generator = torch.Generator().manual_seed(5)
    weights = torch.rand(1, 3, 16, 16, generator=generator, dtype=torch.float64)
    values = (0.13, 0.42, 0.77, 0.93, 12.3)
    numbers = [torch.tensor([v], dtype=torch.float64, requires_grad=True) for v in values]

    def project(*pose):
        images = render_shapes(*pose[:4], torch.tensor([shape]), pose[4], resolution=16, softness=0.8)
        return (weights * images).sum()

    assert torch.autograd.gradcheck(project, numbers, eps=1e-6, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("orientation", [-30.0, 0.0, 30.0])
def test_derivatives_are_finite_on_the_whole_image(orientation):
    values = (0.0, 0.5, 0.9, 1.0, orientation)
    poses = [torch.full((4,), v, dtype=torch.float64, requires_grad=True) for v in values]
    images = render_shapes(*poses[:4], torch.arange(4), poses[4], softness=0.5)
    assert all(g.isfinite().all() for g in torch.autograd.grad(images.sum(), poses))


def test_forward_mode_and_vmap_equal_reverse_mode():
    *numbers, shape, orientation = random_poses(4)
    pose = torch.stack([*numbers, orientation], -1)

    def image(pose):
        columns = pose.unbind(-1)
        return render_shapes(*columns[:4], shape, columns[4], resolution=8, softness=0.7)

    def alone(code, pose):
        return render_shapes(*pose[:4, None], code[None], pose[4:], resolution=8, softness=0.7)[0]

    tangents = torch.eye(5, dtype=torch.float64)
    forward = torch.func.vmap(lambda t: torch.func.jvp(image, (pose,), (t.expand(4, 5),))[1])(tangents)
    reverse = torch.func.vmap(torch.func.jacrev(alone, argnums=1))(shape, pose)
    torch.testing.assert_close(forward.movedim(0, -1), reverse)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("softness", [None, 0.5])
def test_dtype_in_is_dtype_out(dtype, softness):
    assert render_shapes(*random_poses(4, dtype=dtype), softness=softness).dtype == dtype


@pytest.mark.parametrize("softness", [None, 0.5])
def test_rendering_alone_equals_rendering_in_a_batch(softness):
    poses = random_poses(8)
    together = render_shapes(*poses, softness=softness)
    alone = torch.cat([render_shapes(*(p[k : k + 1] for p in poses), softness=softness) for k in range(8)])
    torch.testing.assert_close(alone, together, rtol=0, atol=1e-12)


# Bad input


@pytest.mark.parametrize("resolution", [0, 7])
def test_resolution_too_small(resolution):
    message = f"resolution must be at least 8 pixels, got {resolution}"
    with pytest.raises(ValueError, match=message):
        Shapes(resolution=resolution)
    with pytest.raises(ValueError, match=message):
        draw(0, resolution=resolution)


@pytest.mark.parametrize("shapes", [("cube", "cone"), (), ("cube", "cube"), "cube"])
def test_unknown_shapes(shapes):
    message = r"shapes must be different names out of \('cube', 'cylinder', 'sphere', 'capsule'\)"
    with pytest.raises(ValueError, match=message):
        Shapes(shapes=shapes)


@pytest.mark.parametrize("option", ["hues", "scales", "orientations"])
def test_empty_factor(option):
    with pytest.raises(ValueError, match=f"{option} must be at least 1, got 0"):
        Shapes(**{option: 0})


def test_index_out_of_range(world):
    with pytest.raises(ValueError, match=r"index must lie in \[0, 480000\), got values from -1 to -1"):
        world.images(torch.tensor([-1]))


def test_softness_not_positive():
    with pytest.raises(ValueError, match=r"softness must be positive, or None for hard edges, got -1\.0"):
        draw(0, softness=-1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({4: torch.tensor([0.0])}, r"shape must be integers \(batch,\), got torch.float32 of shape \(1,\)"),
        ({4: torch.tensor([4])}, r"shape must lie in \[0, 4\) for .*, got \[4\]"),
        ({3: torch.ones(2)}, r"scale must have the shape of shape, \(1,\), got \(2,\)"),
        ({0: torch.ones(1).double()}, "must share a floating-point dtype"),
    ],
)
def test_malformed_pose(change, message):
    pose = [torch.ones(1)] * 4 + [torch.tensor([0]), torch.zeros(1)]
    for place, replacement in change.items():
        pose[place] = replacement
    with pytest.raises(ValueError, match=message):
        render_shapes(*pose)
