"""The procedural twin of 3D Shapes: one solid in a coloured room, cast ray by ray in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from math import prod
from typing import Final, Self, final

import torch
from torch import Tensor

from unseam import choices
from unseam.data.grid import grid_factors
from unseam.data.pose import check_pose, check_rendering, codes, spread
from unseam.data.solids import Surface, View, box, coverage, line, pillar, value, view
from unseam.data.world import World, check_index, check_room

__all__ = ["Shapes", "render_shapes"]

SHAPES_WORLD = choices.World("shapes", "shapes", "unseam.data.shapes:Shapes")

SOLIDS: Final = ("cube", "cylinder", "sphere", "capsule")

# Half width and height of each solid at scale 1, chosen so that all four look about as large.
WIDTHS: Final = (0.72, 0.78, 0.88, 0.62)
HEIGHTS: Final = (1.44, 1.6, 1.76, 2.1)

ROOM: Final = 3.6
CAMERA: Final = {"away": 6.5, "height": 0.9, "tilt": 24.0, "spread": 0.38}
LIGHT: Final = (-0.48, -0.36, 0.8)
WALLS: Final = (0.82, 0.95, 0.66)
TABLE_BYTES: Final = 2**28


@final
class Shapes(World):
    """A cube, cylinder, sphere or capsule in a room, on the grid of 3D Shapes.

    Factors, the last fastest: floor_hue, wall_hue, object_hue (10 values from 0 to 0.9), scale (8 values in
    [0.75, 1.25]), shape (cube, cylinder, sphere, capsule) and orientation (15 angles from -30 to 30 degrees,
    by which the camera goes round the room); 480 000 images, their values rounded to multiples of 1/255. The
    data set is the twin of 3D Shapes (Burgess and Kim, 2018).

    A factor with a single value is a constant, and is left out of ``factor_names`` and ``factors``; it then
    sits at its natural place: hue 0, scale 1, orientation 0.

    Args:
        resolution: side of the image in pixels.
        hues: number of hues of the floor, of the wall and of the object, evenly round the circle.
        scales: number of scales.
        shapes: names of the solids, in order.
        orientations: number of orientations.
        device: where items come out.

    >>> world = Shapes()
    >>> len(world), world.factor_sizes
    (480000, (10, 10, 10, 8, 4, 15))
    >>> Shapes(hues=1, scales=1, shapes=("cube", "sphere"))
    <world shapes, twin of 3D Shapes: 30 items of shape (3, 64, 64); factors shape (2), orientation (15)>
    """

    name = "shapes"
    dtype = torch.uint8
    twin_of = "3D Shapes"

    def __init__(
        self,
        *,
        resolution: int = 64,
        hues: int = 10,
        scales: int = 8,
        shapes: Sequence[str] = SOLIDS,
        orientations: int = 15,
        device: torch.device | str = "cpu",
    ) -> None:
        """Set the grid; nothing is drawn before it is asked for."""
        check_rendering(resolution)
        colours = spread("hues", hues, 0.0, 1 - 1 / max(hues, 1), alone=0.0)
        values = {
            "floor_hue": colours,
            "wall_hue": colours,
            "object_hue": colours,
            "scale": spread("scales", scales, 0.75, 1.25, alone=1.0),
            "shape": codes(shapes, SOLIDS),
            "orientation": spread("orientations", orientations, -30.0, 30.0, alone=0.0),
        }
        self.shape = (3, resolution, resolution)
        self.factor_names = tuple(name for name, value in values.items() if len(value) > 1)
        self.factor_sizes = tuple(len(value) for value in values.values() if len(value) > 1)
        self.options = {
            "resolution": resolution,
            "hues": hues,
            "scales": scales,
            "shapes": list(shapes),
            "orientations": orientations,
        }
        self.device = torch.device(device)
        self._values = tuple(value.to(self.device) for value in values.values())
        self._factors: Tensor | None = None
        self._table: Tensor | None = None

    def __len__(self) -> int:
        """Number of images."""
        return prod(self.factor_sizes)

    def images(self, index: Tensor) -> Tensor:
        """Images at ``index`` (batch,), float32 (batch, 3, resolution, resolution) of multiples of 1/255."""
        index = check_index(index, len(self)).to(self.device)
        factors = grid_factors(index, [len(value) for value in self._values]).unbind(-1)
        hues = [value[factor] for value, factor in zip(self._values[:3], factors[:3], strict=True)]
        poses = prod(len(value) for value in self._values[3:])
        images = _colour(self._layers(index % poses, poses), *hues)
        return images.mul_(255).round_().div_(255)

    def _layers(self, pose: Tensor, poses: int) -> Tensor:
        """Layers of the given poses; hues only weigh them, so those of every pose are cached when they fit."""
        if 4 * 4 * poses * self.shape[1] * self.shape[2] > TABLE_BYTES:
            return self._cast(pose)
        if self._table is None:
            every = torch.arange(poses, device=self.device)
            self._table = torch.cat([self._cast(part) for part in torch.split(every, 64)])
        return self._table[pose]

    def _cast(self, pose: Tensor) -> Tensor:
        position = grid_factors(pose, [len(value) for value in self._values[3:]]).unbind(-1)
        scale, shape, orientation = (
            value[place] for value, place in zip(self._values[3:], position, strict=True)
        )
        return _cast_layers(scale, shape, orientation, self.shape[-1], None)

    @property
    def factors(self) -> Tensor:
        """Grid positions of every image, int64 (len, factor)."""
        if self._factors is None:
            check_room("the number of images", len(self), (len(self.factor_sizes),))
            self._factors = grid_factors(torch.arange(len(self), device=self.device), self.factor_sizes)
        return self._factors

    def to(self, device: torch.device | str) -> Self:
        """The same world with its images on another device."""
        world = copy(self)
        world.device = torch.device(device)
        world._values = tuple(value.to(world.device) for value in self._values)
        world._factors = None
        world._table = None if self._table is None else self._table.to(world.device)
        return world


def render_shapes(
    floor_hue: Tensor,
    wall_hue: Tensor,
    object_hue: Tensor,
    scale: Tensor,
    shape: Tensor,
    orientation: Tensor,
    *,
    resolution: int = 64,
    softness: float | None = None,
) -> Tensor:
    """Draw a solid in a room, in the poses of 3D Shapes (Burgess and Kim, 2018).

    The image is ``floor F + wall W + object O + G``: the colours of the three hues, each weighted by a layer
    that holds its coverage and its light, and a white gloss. Edges are hard, or the coverage of a pixel
    is ``sigmoid(d / softness)`` with d its distance in pixels inside the edge; the image is then
    differentiable in hues, scale and orientation (reverse and forward mode, also under ``vmap``).

    Args:
        floor_hue: hue of the floor, period 1; (batch,).
        wall_hue: hue of the walls; (batch,).
        object_hue: hue of the solid; (batch,).
        scale: size of the solid, in [0.75, 1.25] in the data set; (batch,).
        shape: 0 cube, 1 cylinder, 2 sphere, 3 capsule; int64 (batch,).
        orientation: angle of the camera round the room in degrees, in [-30, 30] in the data set; (batch,).
        resolution: side of the image in pixels.
        softness: width of the edges in pixels; ``None`` for hard edges.

    Returns:
        (batch, 3, resolution, resolution) in [0, 1], of the dtype of ``scale``.

    >>> hue = torch.tensor([0.1])
    >>> render_shapes(hue, 2 * hue, 3 * hue, 10 * hue, torch.tensor([2]), 0 * hue).shape
    torch.Size([1, 3, 64, 64])
    """
    check_rendering(resolution, softness)
    numbers = {
        "floor_hue": floor_hue,
        "wall_hue": wall_hue,
        "object_hue": object_hue,
        "scale": scale,
        "orientation": orientation,
    }
    shape, floor_hue, wall_hue, object_hue, scale, orientation = check_pose(shape, SOLIDS, numbers)
    layers = _cast_layers(scale, shape, orientation, resolution, softness)
    return _colour(layers, floor_hue, wall_hue, object_hue)


def _colour(layers: Tensor, floor_hue: Tensor, wall_hue: Tensor, object_hue: Tensor) -> Tensor:
    """Weigh the layers (batch, 4, height, width) of floor, wall, object and gloss by their colours."""
    hues = torch.stack([floor_hue, wall_hue, object_hue], -1)
    # Fully saturated colours: each channel is 1, 0 and a ramp between them round the circle of hues.
    ramps = [(torch.remainder(6 * hues + offset, 6) - 3).abs() - 1 for offset in (0, 4, 2)]
    colours = torch.stack(ramps, 1).clamp(0, 1)
    white = torch.ones_like(colours[..., :1])
    return torch.einsum("bck,bkhw->bchw", torch.cat([colours, white], -1), layers)


def _cast_layers(
    scale: Tensor, shape: Tensor, orientation: Tensor, resolution: int, softness: float | None
) -> Tensor:
    """Light that floor, wall, object and gloss send to each pixel, (batch, 4, height, width)."""
    seen = view(orientation, resolution=resolution, **CAMERA)
    width, height = (scale * _of_solid(shape, sizes).to(scale.dtype) for sizes in (WIDTHS, HEIGHTS))
    solid = _solid(seen, shape, width, height, softness)
    floor, wall = _room(seen, softness)
    floor = floor * (0.94 - 0.5 * _shadow(seen, width, height))
    inside = coverage(solid.distance, softness)
    outside, gloss = 1 - inside, 0.3 * solid.gloss
    lit = (0.34 + 0.66 * solid.shade) * (1 - gloss)
    return torch.stack([outside * floor, outside * wall, inside * lit, inside * gloss], 1)


def _of_solid(shape: Tensor, sizes: Sequence[float]) -> Tensor:
    """The size of each item's solid, chosen without a table, which would have to be copied to the device."""
    size = torch.full(shape.shape, sizes[0], dtype=torch.float64, device=shape.device)
    for code, other in enumerate(sizes[1:], 1):
        size = torch.where(shape == code, other, size)
    return size


def _solid(seen: View, shape: Tensor, width: Tensor, height: Tensor, softness: float | None) -> Surface:
    cube = box(seen, width, LIGHT, softness)
    other = pillar(seen, width, height, shape == SOLIDS.index("cylinder"), LIGHT, softness)
    square = (shape == SOLIDS.index("cube"))[:, None, None]
    return Surface(*(torch.where(square, a, b) for a, b in zip(cube, other, strict=True)))


def _room(seen: View, softness: float | None) -> tuple[Tensor, Tensor]:
    """Coverage of the floor, and coverage times light of the walls at -x, +y and +x."""
    eye, rays = seen.eye, seen.rays
    floor = -rays[:, 2] / eye[:, 2, None]
    walls = [
        -rays[:, 0] / (ROOM + eye[:, 0])[:, None],
        rays[:, 1] / (ROOM - eye[:, 1])[:, None],
        rays[:, 0] / (ROOM - eye[:, 0])[:, None],
    ]
    planes = [floor, *walls]
    weights = []
    for k, plane in enumerate(planes):
        weight = torch.ones((), dtype=eye.dtype, device=eye.device)
        for other in planes[:k] + planes[k + 1 :]:
            weight = weight * coverage(value(line(plane - other, seen), seen), softness)
        weights.append(weight)
    total = weights[0] + weights[1] + weights[2] + weights[3]
    rise = 0.12 * torch.linspace(-1, 1, len(seen.up), dtype=eye.dtype, device=eye.device)[:, None]
    wall = weights[1] * WALLS[0] + weights[2] * WALLS[1] + weights[3] * WALLS[2]
    return weights[0] / total, wall / total * (0.88 + rise)


def _shadow(seen: View, width: Tensor, height: Tensor) -> Tensor:
    """Darkness of the floor: the solid's axis thrown along the light, thickened and blurred away from it."""
    inverse = value(-seen.rays[:, 2] / seen.eye[:, 2, None], seen).clamp(min=0.02)
    x, y = (value(seen.rays[:, k], seen) / inverse + seen.eye[:, k, None, None] for k in (0, 1))
    reach = (height - width)[:, None, None]
    end_x, end_y = -LIGHT[0] / LIGHT[2] * reach, -LIGHT[1] / LIGHT[2] * reach
    part = ((x * end_x + y * end_y) / (end_x**2 + end_y**2)).clamp(0, 1)
    square = (x - part * end_x) ** 2 + (y - part * end_y) ** 2
    wide = width[:, None, None]
    return torch.sigmoid((1 - square / wide**2) / (0.25 + 0.35 * part))
