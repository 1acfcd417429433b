"""The procedural twin of dSprites: white silhouettes on black, drawn from signed distances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import cache, partial
from math import ceil, hypot, log, pi, prod
from typing import Final, Self, final

import torch
from torch import Tensor

from unseam import choices
from unseam.data.grid import grid_factors
from unseam.data.pose import check_pose, check_rendering, codes, spread
from unseam.data.world import World, check_index, check_room

__all__ = ["Sprites", "render_sprites"]

SPRITES_WORLD = choices.World("sprites", "sprites", "unseam.data.sprites:Sprites")

SHAPES: Final = ("square", "ellipse", "heart")

# Proportions at scale 1 in pixels of a 64 x 64 image, fitted to the preview that the authors of dSprites
# publish: half side; half axes; the heart's half width, unit of height and height of its curve's origin.
HALF_SIDE: Final = 9.6
ELLIPSE: Final = (12.76, 7.22)
HEART: Final = (9.595, 0.662, 2.17)
REACH: Final = hypot(HALF_SIDE, HALF_SIDE)
HEART_EDGES: Final = 40

# Pixels drawn at once on a host: the temporary tensors of a distance then fit its caches.
BLOCK: Final = 2**16


@final
class Sprites(World):
    """Squares, ellipses and hearts of every scale, orientation and position on the grid of dSprites.

    Factors, the last fastest: shape (square, ellipse, heart), scale (6 values in [0.5, 1]), orientation (40
    values from 0 to 2 pi, both ends, so that the first and the last coincide as in the published set), x and
    y (32 values in [0, 1], the middle half of the image); 737 280 images of hard-edged 0 and 1. The data set
    is the twin of dSprites (Matthey, Higgins, Hassabis and Lerchner, 2017).

    A factor with a single value is a constant, and is left out of ``factor_names`` and ``factors``; it then
    sits at its natural place: full scale, upright, centred.

    Args:
        resolution: side of the image in pixels; proportions are those of 64.
        shapes: names of the silhouettes, in order.
        scales: number of scales.
        orientations: number of orientations.
        positions: number of positions along x, and along y.
        span: fraction of dSprites' range that positions cover, around the middle.
        softness: width of the edges in pixels, values then rounded to k/255; ``None`` for the hard edges of dSprites.
        device: where items come out.

    >>> world = Sprites()
    >>> len(world), world.factor_names
    (737280, ('shape', 'scale', 'orientation', 'x', 'y'))
    >>> Sprites(shapes=("heart",), scales=1, orientations=1, positions=8)
    <world sprites, twin of dSprites: 64 items of shape (1, 64, 64); factors x (8), y (8)>
    >>> world.images(torch.tensor([0, 737279])).sum((1, 2, 3))
    tensor([100., 222.])
    """

    name = "sprites"
    dtype = torch.uint8
    twin_of = "dSprites"

    def __init__(
        self,
        *,
        resolution: int = 64,
        shapes: Sequence[str] = SHAPES,
        scales: int = 6,
        orientations: int = 40,
        positions: int = 32,
        span: float = 1.0,
        softness: float | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        """Set the grid; nothing is drawn before it is asked for."""
        check_rendering(resolution, softness)
        if not 0.0 < span <= 1.0:
            raise ValueError(f"span must lie in (0, 1], got {span}")
        places = spread("positions", positions, (1.0 - span) / 2, (1.0 + span) / 2, alone=0.5)
        values = {
            "shape": codes(shapes, SHAPES),
            "scale": spread("scales", scales, 0.5, 1.0, alone=1.0),
            "orientation": spread("orientations", orientations, 0.0, 2 * pi, alone=0.0),
            "x": places,
            "y": places,
        }
        self.shape = (1, resolution, resolution)
        self.factor_names = tuple(name for name, value in values.items() if len(value) > 1)
        self.factor_sizes = tuple(len(value) for value in values.values() if len(value) > 1)
        self.options = {
            "resolution": resolution,
            "shapes": list(shapes),
            "scales": scales,
            "orientations": orientations,
            "positions": positions,
            "span": span,
            "softness": softness,
        }
        self._softness = softness
        self.device = torch.device(device)
        self._values = tuple(value.to(self.device) for value in values.values())
        # held on the device, as nothing may be copied there while a CUDA graph is captured
        self._edges = _edge_table(torch.float32, self.device)
        self._factors: Tensor | None = None

    def __len__(self) -> int:
        """Number of images."""
        return prod(self.factor_sizes)

    def images(self, index: Tensor) -> Tensor:
        """Images at ``index`` (batch,), float32 (batch, 1, resolution, resolution) in [0, 1]."""
        index = check_index(index, len(self)).to(self.device)
        positions = grid_factors(index, [len(value) for value in self._values]).unbind(-1)
        shape, *pose = (value[position] for value, position in zip(self._values, positions, strict=True))
        resolution, softness = self.shape[-1], self._softness
        # No sprite of the grid exceeds scale 1, so a window that holds that one, as far as a soft edge reaches
        # before it rounds to 0, holds them all.
        reach = REACH * resolution / 64 + log(2 * 255) * (softness or 0.0)
        window = min(resolution, ceil(2 * reach) + 1)
        draw = partial(_draw, resolution=resolution, window=window, softness=softness, edges=self._edges)
        if self.device.type == "cpu":
            image = pose[0].new_empty(len(shape), *self.shape)
            for code in shape.unique().tolist():
                for rows in (shape == code).nonzero()[:, 0].split(max(1, BLOCK // window**2)):
                    image[rows] = draw(code, *(number[rows] for number in pose))
        else:
            image = draw(shape, *pose)
        if softness is None:
            return image
        # divided by a tensor, as a table of bytes is: a number would be inverted first, and round otherwise
        unit = torch.full((), 255.0, dtype=torch.float32, device=self.device)
        return torch.round(unit * image) / unit

    @property
    def factors(self) -> Tensor:
        """Grid positions of every image, int64 (len, factor)."""
        if self._factors is None:
            check_room("the number of images", len(self), (len(self.factor_sizes),))
            index = torch.arange(len(self), device=self.device)
            self._factors = grid_factors(index, self.factor_sizes)
        return self._factors

    def to(self, device: torch.device | str) -> Self:
        """The same world with its images on another device."""
        world = copy(self)
        world.device = torch.device(device)
        world._values = tuple(value.to(world.device) for value in self._values)
        world._edges = self._edges.to(world.device)
        world._factors = None
        return world


def render_sprites(
    shape: Tensor,
    scale: Tensor,
    orientation: Tensor,
    x: Tensor,
    y: Tensor,
    *,
    resolution: int = 64,
    softness: float | None = None,
) -> Tensor:
    """Draw silhouettes in the poses of dSprites (Matthey et al., 2017).

    With d the signed distance from a pixel's centre to the outline, in pixels and negative inside, a pixel is
    ``1 if d <= 0 else 0``, or ``sigmoid(-d / softness)``, which is differentiable in scale, orientation, x
    and y (reverse and forward mode, also under ``vmap``). The square and the ellipse have their exact
    distance; the heart, bounded by the curve ``(16 sin^3 t, 13 cos t - 5 cos 2t - 2 cos 3t - cos 4t)``,
    that of a polygon with 80 vertices on it.

    Args:
        shape: 0 square, 1 ellipse, 2 heart; int64 (batch,).
        scale: size, 1 the largest of the data set; (batch,).
        orientation: angle in radians, anticlockwise on the screen; (batch,).
        x: centre's column, 0 and 1 a quarter and three quarters across the image; (batch,).
        y: centre's row, 0 and 1 a quarter and three quarters down the image; (batch,).
        resolution: side of the image in pixels.
        softness: width of the edge in pixels; ``None`` for hard edges.

    Returns:
        (batch, 1, resolution, resolution) in [0, 1], of the dtype of ``scale``.

    >>> half = torch.tensor([0.5])
    >>> image = render_sprites(torch.tensor([0]), half, 0 * half, half, half)
    >>> int(image.sum())
    100
    """
    check_rendering(resolution, softness)
    numbers = {"scale": scale, "orientation": orientation, "x": x, "y": y}
    shape, *pose = check_pose(shape, SHAPES, numbers)
    edges = None if softness is None else _edge_table(pose[0].dtype, pose[0].device)
    return _draw(shape, *pose, resolution=resolution, window=resolution, softness=softness, edges=edges)


def _draw(
    shape: Tensor | int,
    scale: Tensor,
    orientation: Tensor,
    x: Tensor,
    y: Tensor,
    *,
    resolution: int,
    window: int,
    softness: float | None,
    edges: Tensor | None,
) -> Tensor:
    """Images (batch, 1, resolution, resolution), evaluated in a square window of pixels around each sprite.

    Shapes may differ (batch,), which evaluates every outline for each, or be one number for all.
    """
    u, v, corner = _frame(scale, orientation, x, y, resolution=resolution, window=window)
    outlines: tuple[Callable[..., Tensor], ...] = (_inside_square, _inside_ellipse, _inside_heart)
    if softness is not None:
        assert edges is not None
        outlines = (_square_distance, _ellipse_distance, partial(_heart_distance, edges=edges))
    if isinstance(shape, int):
        values = outlines[shape](u, v)
    else:
        square, ellipse, heart = (outline(u, v) for outline in outlines)
        code = shape[:, None, None]
        values = torch.where(code == 0, square, torch.where(code == 1, ellipse, heart))
    if softness is None:
        values = values.to(scale.dtype)
    else:
        values = torch.sigmoid(-values * (scale * (resolution / 64))[:, None, None] / softness)
    if window == resolution:
        return values[:, None]
    line = torch.arange(window, device=u.device)
    pixels = (line[:, None] * resolution + line).flatten() + (corner[1] * resolution + corner[0]).long()[
        :, None
    ]
    image = torch.zeros(len(u), resolution * resolution, dtype=scale.dtype, device=u.device)
    return image.scatter_(1, pixels, values.flatten(1)).view(-1, 1, resolution, resolution)


def _frame(
    scale: Tensor, orientation: Tensor, x: Tensor, y: Tensor, *, resolution: int, window: int
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Pixel centres in the sprite's own frame, u to its right and v down, (batch, window, window) each.

    Also the column and row (batch,) of the window's first pixel. A window at the border is pushed back
    into the image; it still holds all that can be seen of the sprite.
    """
    line = torch.arange(window, dtype=scale.dtype, device=scale.device) + 0.5
    unit = scale * (resolution / 64)
    cosine, sine = (torch.cos(orientation) / unit)[:, None], (torch.sin(orientation) / unit)[:, None]
    centres = [resolution * (0.25 + 0.5 * place) for place in (x, y)]
    column, row = ((c.detach() - window / 2).floor().clamp(0, resolution - window) for c in centres)
    across = (column - centres[0])[:, None] + line
    down = (row - centres[1])[:, None] + line
    u = (cosine * across)[:, None, :] - (sine * down)[:, :, None]
    v = (sine * across)[:, None, :] + (cosine * down)[:, :, None]
    return u, v, (column, row)


def _inside_square(u: Tensor, v: Tensor) -> Tensor:
    return torch.maximum(u.abs(), v.abs()) <= HALF_SIDE


def _inside_ellipse(u: Tensor, v: Tensor) -> Tensor:
    return (u / ELLIPSE[0]) ** 2 + (v / ELLIPSE[1]) ** 2 <= 1


def _square_distance(u: Tensor, v: Tensor) -> Tensor:
    a, b = u.abs() - HALF_SIDE, v.abs() - HALF_SIDE
    return _length(a.clamp(min=0), b.clamp(min=0)) + torch.maximum(a, b).clamp(max=0)


def _ellipse_distance(u: Tensor, v: Tensor) -> Tensor:
    """Exact distance: the nearest point found by sliding along the circles of curvature."""
    a, b = ELLIPSE
    u, v = u.abs(), v.abs()
    cosine = sine = torch.full_like(u, 0.5**0.5)
    for _ in range(6):
        centre_u, centre_v = (a * a - b * b) / a * cosine**3, (b * b - a * a) / b * sine**3
        radius = _square_length(a * cosine - centre_u, b * sine - centre_v).sqrt()
        to_u, to_v = u - centre_u, v - centre_v
        ratio = radius / _square_length(to_u, to_v).clamp(min=1e-18).sqrt()
        cosine = ((to_u * ratio + centre_u) / a).clamp(0, 1)
        sine = ((to_v * ratio + centre_v) / b).clamp(0, 1)
        norm = _square_length(cosine, sine).sqrt()
        cosine, sine = cosine / norm, sine / norm
    # Along the outward normal the difference has a sign, and no square root that vanishes on the outline.
    normal = _square_length(cosine / a, sine / b).sqrt()
    return ((u - a * cosine) * cosine / a + (v - b * sine) * sine / b) / normal


def _heart_curve(cosine: Tensor) -> Tensor:
    """Height of the heart's outline, 13 cos t - 5 cos 2t - 2 cos 3t - cos 4t, as a polynomial in cos t."""
    return 4 + cosine * (19 + cosine * (-2 + cosine * (-8 - 8 * cosine)))


def _inside_heart(u: Tensor, v: Tensor) -> Tensor:
    half_width, unit, drop = HEART
    square = (u.abs() / half_width).clamp(max=1) ** (2 / 3)
    cosine = (1 - square).sqrt()
    height = v / -unit - drop
    inside = (height <= _heart_curve(cosine)) & (height >= _heart_curve(-cosine))
    return inside & (square < 1)


@cache
def _heart_edges() -> tuple[tuple[float, ...], ...]:
    """The right half of the outline from cleft to tip: start (u, v) and vector (u, v) of each edge."""
    half_width, unit, drop = HEART
    angle = torch.linspace(0, pi, HEART_EDGES + 1, dtype=torch.float64)
    u, v = half_width * angle.sin() ** 3, -unit * (_heart_curve(angle.cos()) + drop)
    edges = torch.stack([u[:-1], v[:-1], u.diff(), v.diff()], -1)
    return tuple(tuple(edge) for edge in edges.tolist())


def _edge_table(dtype: torch.dtype, device: torch.device) -> Tensor:
    """The edges of the heart as a tensor (edge, 4)."""
    return torch.tensor(_heart_edges(), dtype=dtype, device=device)


def _heart_distance(u: Tensor, v: Tensor, edges: Tensor) -> Tensor:
    u = u.abs()
    start_u, start_v, step_u, step_v = edges[_nearest_edge(u.detach(), v.detach())].unbind(-1)
    length = _length(step_u, step_v)
    step_u, step_v = step_u / length, step_v / length
    along = (u - start_u) * step_u + (v - start_v) * step_v
    beyond = along - torch.minimum(along.clamp(min=0), length)
    # Edges run from cleft to tip, so that (step_v, -step_u) is the outward normal.
    across = (u - start_u) * step_v - (v - start_v) * step_u
    corner = torch.copysign(_length(across, beyond), across)
    return torch.where(beyond == 0, across, corner)


def _nearest_edge(u: Tensor, v: Tensor) -> Tensor:
    """Position of the edge nearest to each point, found one edge at a time to spare memory."""
    best, nearest = torch.full_like(u, torch.inf), torch.zeros_like(u, dtype=torch.uint8)
    for k, (start_u, start_v, step_u, step_v) in enumerate(_heart_edges()):
        a, b = u - start_u, v - start_v
        along = (a * step_u).add_(b * step_v).div_(step_u**2 + step_v**2).clamp(0, 1)
        square = a.sub_(along * step_u).square_().add_(b.sub_(along.mul_(step_v)).square_())
        # the positions ascend, so that the larger one is the later; bytes are cheaper to choose by than a mask
        nearest = torch.maximum(nearest, (square < best).view(torch.uint8).mul_(k))
        best = torch.minimum(best, square)
    return nearest.long()


def _length(a: Tensor, b: Tensor) -> Tensor:
    """Euclidean length whose derivative at zero is zero rather than undefined."""
    square = _square_length(a, b)
    positive = square > 0
    return torch.where(positive, torch.where(positive, square, 1.0).sqrt(), 0.0)


def _square_length(a: Tensor, b: Tensor) -> Tensor:
    return a * a + b * b
