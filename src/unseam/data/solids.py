"""Ray-casting of boxes, cylinders, spheres and capsules that stand on a floor, in closed form."""

from __future__ import annotations

from math import cos, radians, sin
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

__all__ = ["Surface", "View", "box", "coverage", "line", "pillar", "value", "view"]


Direction = tuple[float, float, float]
Number = TypeVar("Number", Tensor, float)


class View(NamedTuple):
    """Where the eye is and what its screen spans.

    A ray leaves the eye o along d = forward + x right + y up, so that the inverse distance along it to any
    plane is an affine function of the screen's (x, y): a "line", stored as its three coefficients (batch, 3).
    A solid is seen where lines and conics are positive; each, over its gradient, is a distance in pixels.

    Attributes:
        eye: position o (batch, 3).
        rays: coefficients (1, x, y) of each component of d, (batch, 3 components, 3 coefficients).
        across: x of the pixel centres (width,).
        up: y of the pixel centres (height, 1).
        pixel: side of a pixel on the screen.
    """

    eye: Tensor
    rays: Tensor
    across: Tensor
    up: Tensor
    pixel: float


class Surface(NamedTuple):
    """What is seen of a solid, each (batch, height, width).

    Attributes:
        distance: pixels to the silhouette, positive inside (only its sign counts for hard edges).
        shade: diffuse light in [0, 1].
        gloss: specular light in [0, 1].
    """

    distance: Tensor
    shade: Tensor
    gloss: Tensor


def view(
    orientation: Tensor, *, resolution: int, away: float, height: float, tilt: float, spread: float
) -> View:
    """A camera that circles the origin by ``orientation`` (batch,) and looks down by ``tilt``, in degrees.

    Args:
        orientation: angle in degrees (batch,); 0 looks along +y.
        resolution: side of the image in pixels.
        away: distance of the eye from the point looked at.
        height: height of the point looked at above the origin.
        tilt: angle of the line of sight below the horizontal.
        spread: tangent of half the field of view.

    >>> view(torch.zeros(1), resolution=4, away=5.0, height=1.0, tilt=0.0, spread=0.5).eye
    tensor([[ 0., -5.,  1.]])
    """
    angle = torch.deg2rad(orientation)
    sine, cosine, zero = torch.sin(angle), torch.cos(angle), torch.zeros_like(angle)
    level, drop = cos(radians(tilt)), sin(radians(tilt))
    forward = torch.stack([-sine * level, cosine * level, zero - drop], -1)
    right = torch.stack([cosine, sine, zero], -1)
    up = torch.stack([-sine * drop, cosine * drop, zero + level], -1)
    eye = -away * forward + height * torch.stack([zero, zero, zero + 1], -1)
    pixels = (torch.arange(resolution, dtype=angle.dtype, device=angle.device) + 0.5) * (2 / resolution) - 1
    rays = torch.stack([forward, right, up], -1)
    return View(eye, rays, spread * pixels, -spread * pixels[:, None], 2 * spread / resolution)


def value(coefficients: Tensor, seen: View) -> Tensor:
    """Values (batch, height, width) of a line (batch, 3) over the screen.

    >>> seen = view(torch.zeros(1), resolution=2, away=5.0, height=1.0, tilt=0.0, spread=1.0)
    >>> value(torch.tensor([[1.0, 2.0, 0.0]]), seen)
    tensor([[[0., 2.],
             [0., 2.]]])
    """
    c = coefficients[..., None, None, :]
    return (c[..., 0] + c[..., 1] * seen.across) + c[..., 2] * seen.up


def line(coefficients: Tensor, seen: View) -> Tensor:
    """The line scaled so that its value is the distance from it in pixels, (batch, 3).

    >>> seen = view(torch.zeros(1), resolution=2, away=5.0, height=1.0, tilt=0.0, spread=1.0)
    >>> line(torch.tensor([[0.0, 3.0, 4.0]]), seen)
    tensor([[0.0000, 0.6000, 0.8000]])
    """
    return coefficients / (_norm(coefficients[..., 1:2], coefficients[..., 2:3]) * seen.pixel)


def coverage(distance: Tensor, softness: float | None) -> Tensor:
    """How much of a pixel lies inside: 1 or 0 by the sign of the distance, or a sigmoid of it.

    >>> coverage(torch.tensor([-1.0, 0.0, 1.0]), None)
    tensor([0., 1., 1.])
    """
    if softness is None:
        return (distance >= 0).to(distance.dtype)
    return torch.sigmoid(distance / softness)


def box(seen: View, half: Tensor, light: Direction, softness: float | None) -> Surface:
    """A cube of half-side ``half`` (batch,) on the floor, its sides along the axes.

    A ray enters the last of the faces turned to the eye and must not have left through the others: every
    pair (entered, left) gives an edge of the silhouette, ``g_entered - g_left >= 0`` with g the inverse
    distance. The eye is above the box and on its -y side; an x face is entered, or left, as the eye lies.

    >>> seen = view(torch.zeros(1), resolution=8, away=5.0, height=1.0, tilt=20.0, spread=0.5)
    >>> int((box(seen, torch.ones(1), (0.0, 0.0, 1.0), None).distance >= 0).sum())
    16
    """
    ray_x, ray_y, ray_z = seen.rays.unbind(1)
    side = torch.where(seen.eye[:, 0] < 0, -1.0, 1.0).to(half.dtype)
    eye_x, eye_y, eye_z = side * seen.eye[:, 0], seen.eye[:, 1], seen.eye[:, 2]
    ray_x = side[:, None] * ray_x
    top = -ray_z / (eye_z - 2 * half)[:, None]
    bottom = -ray_z / eye_z[:, None]
    front = ray_y / (-eye_y - half)[:, None]
    back = ray_y / (half - eye_y)[:, None]
    near = -ray_x / (eye_x - half)[:, None]
    far = -ray_x / (eye_x + half)[:, None]
    entered = eye_x > half
    edges = [top - back, top - far, front - bottom, front - far]
    edges += [
        torch.where(entered[:, None], near - bottom, top - near),
        torch.where(entered[:, None], near - back, front - near),
    ]
    distance = value(line(edges[0], seen), seen)
    for edge in edges[1:]:
        distance = torch.minimum(distance, value(line(edge, seen), seen))
    over = value(line(front - top, seen), seen)
    above, ahead = (
        torch.where(_map(entered), value(line(fold, seen), seen), torch.inf)
        for fold in (near - top, near - front)
    )
    roof = coverage(over, softness) * coverage(above, softness)
    face = coverage(-over, softness) * coverage(ahead, softness)
    flank = coverage(-above, softness) * coverage(-ahead, softness)
    lit = roof * _lit(light[2]) + face * _lit(-light[1]) + flank * _map(_lit(side * light[0]))
    return Surface(distance, lit / (roof + face + flank), torch.zeros_like(lit))


def pillar(
    seen: View, radius: Tensor, height: Tensor, flat: Tensor, light: Direction, softness: float | None
) -> Surface:
    """An upright cylinder on the floor at the origin, its ends flat or round.

    Round ends give a capsule, and a sphere when ``height = 2 radius``. The silhouette lies between two
    tangents; there it is the union of the images of both ends, two conics, and of the side between
    their chords of tangency.

    Args:
        seen: the camera.
        radius: radius r (batch,).
        height: height from end to end (batch,).
        flat: whether the ends are flat, bool (batch,).
        light: direction of the light, unit vector (3,).
        softness: width of the edges in pixels; ``None`` for hard edges.

    >>> seen = view(torch.zeros(2), resolution=8, away=5.0, height=1.0, tilt=20.0, spread=0.5)
    >>> one, flat = torch.ones(2), torch.tensor([True, False])
    >>> surface = pillar(seen, one, 2 * one, flat, (0.0, 0.0, 1.0), None)
    >>> (surface.distance >= 0).sum((1, 2))
    tensor([16, 12])
    """
    frame = _frame(seen, light)
    low = torch.where(flat, 0.0, radius)
    high = height - low
    tangents, chords = _side(seen, frame, radius, low, high)
    ends = [_end(frame, radius, level, flat) for level in (low, high)]
    conics = [_conic(seen, end) for end in ends]
    base, lid = (_conic_distance(seen, end, conic, softness) for end, conic in zip(ends, conics, strict=True))
    distance = torch.minimum(tangents, torch.maximum(chords, torch.maximum(base, lid)))

    rays = [value(coefficients, seen) for coefficients in (frame.along, frame.beside, frame.lift)]
    inverse = _side_hit(rays, frame, radius, seen.pixel, softness)
    z = rays[2] / inverse.clamp(min=1e-6) + _map(frame.high)
    floor, ceiling, rounded = _map(low), _map(high), _map(~flat)
    for level, conic, beyond in ((low, conics[0], z < floor), (high, conics[1], z > ceiling)):
        ball = _ball_hit(rays, frame, radius, level, conic, seen.pixel, softness)
        inverse = torch.where(rounded & beyond, ball, inverse)
    reach = 1 / inverse.clamp(min=1e-6)
    along, beside, z = rays[0] * reach - _map(frame.far), rays[1] * reach, rays[2] * reach + _map(frame.high)
    lift = torch.where(rounded, z - torch.minimum(torch.maximum(z, floor), ceiling), 0.0)
    shade, gloss = _shading(frame, along, beside, lift)
    end = _map(flat) * coverage(torch.minimum(lid, tangents), softness)
    return Surface(distance, end * _lit(light[2]) + (1 - end) * shade, (1 - end) * gloss)


class _Frame(NamedTuple):
    """Upright frame of the solid's axis: ``along`` from the eye to it, ``beside`` to the left, ``lift`` up.

    The eye is at (-far, 0, high); along, beside and lift are the lines (batch, 3) of the ray's components.
    ``light`` and ``half`` (batch, 3) are the directions to the light and half-way from it to the eye.
    """

    far: Tensor
    high: Tensor
    along: Tensor
    beside: Tensor
    lift: Tensor
    light: Tensor
    half: Tensor


def _frame(seen: View, light: Direction) -> _Frame:
    x, y, high = seen.eye.unbind(-1)
    far = _norm(x, y)
    u, v = (-x / far)[:, None], (-y / far)[:, None]
    ray_x, ray_y, lift = seen.rays.unbind(1)
    turned = torch.cat(
        [u * light[0] + v * light[1], u * light[1] - v * light[0], torch.full_like(u, light[2])], -1
    )
    eye = torch.stack([-far, torch.zeros_like(far), high], -1)
    half = torch.nn.functional.normalize(turned + torch.nn.functional.normalize(eye, dim=-1), dim=-1)
    return _Frame(far, high, u * ray_x + v * ray_y, u * ray_y - v * ray_x, lift, turned, half)


def _side(seen: View, frame: _Frame, radius: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Distances to the two tangents of the side, and to its chords of tangency at two heights."""
    tangent = (frame.far**2 - radius**2).sqrt()
    inverse = frame.along * (frame.far / tangent**2)[:, None]
    run, sway = radius[:, None] * frame.along, tangent[:, None] * frame.beside
    lower = (frame.high - low)[:, None] * inverse + frame.lift
    upper = (high - frame.high)[:, None] * inverse - frame.lift
    left, right, below, above = (
        value(line(edge, seen), seen) for edge in (run - sway, run + sway, lower, upper)
    )
    return torch.minimum(left, right), torch.minimum(below, above)


def _end(frame: _Frame, radius: Tensor, level: Tensor, flat: Tensor) -> Tensor:
    """Matrix (batch, 3, 3) of the conic that is the image of an end; its form is positive inside.

    With s the inverse distance to the end's level, a disc is ``(r s)^2 - (along - far s)^2 - beside^2``; with
    o the eye seen from its centre, a ball is ``(o.d)^2 - (o.o - r^2) d.d``.
    """
    drop, far = (frame.high - level)[:, None], frame.far[:, None]
    inverse = -frame.lift / drop
    disc = _outer(radius[:, None] * inverse) - _outer(frame.along - far * inverse) - _outer(frame.beside)
    size = _outer(frame.along) + _outer(frame.beside) + _outer(frame.lift)
    square = (far**2 + drop**2 - radius[:, None] ** 2)[..., None]
    ball = _outer(drop * frame.lift - far * frame.along) - square * size
    return torch.where(flat[:, None, None], disc, ball)


def _conic(seen: View, matrix: Tensor) -> Tensor:
    rows = [value(row, seen) for row in matrix.unbind(1)]
    return rows[0] + rows[1] * seen.across + rows[2] * seen.up


def _conic_distance(seen: View, matrix: Tensor, conic: Tensor, softness: float | None) -> Tensor:
    """Distance in pixels to first order, the form over its gradient; for hard edges its sign is enough."""
    if softness is None:
        return conic
    slope = [value(2 * matrix[:, k], seen) for k in (1, 2)]
    return conic / (_norm(slope[0], slope[1]).clamp(min=1e-9) * seen.pixel)


def _side_hit(
    rays: list[Tensor], frame: _Frame, radius: Tensor, pixel: float, softness: float | None
) -> Tensor:
    """Inverse distance at which rays meet the endless cylinder; beside it, that of the tangent."""
    square = _map(frame.far**2 - radius**2)
    discriminant = (_map(radius) * rays[0]) ** 2 - square * rays[1] ** 2
    root = _root(discriminant, 4 * radius * frame.far * pixel, softness)
    return (_map(frame.far) * rays[0] + root) / square


def _ball_hit(
    rays: list[Tensor],
    frame: _Frame,
    radius: Tensor,
    level: Tensor,
    discriminant: Tensor,
    pixel: float,
    softness: float | None,
) -> Tensor:
    """Inverse distance at which rays meet the ball at ``level``, whose conic is the discriminant."""
    drop = frame.high - level
    square = frame.far**2 + drop**2 - radius**2
    root = _root(discriminant, 4 * radius * square.sqrt() * pixel, softness)
    return (root + _map(frame.far) * rays[0] - _map(drop) * rays[2]) / _map(square)


def _root(discriminant: Tensor, step: Tensor, softness: float | None) -> Tensor:
    """Square root of a discriminant, 0 where negative; when soft, without its vertical tangent at 0.

    ``step`` is about how much the discriminant changes from one pixel to the next at the silhouette.
    """
    if softness is None:
        return discriminant.clamp(min=0).sqrt()
    edge = _map(softness * step)
    norm = _norm(discriminant, edge)
    # (D + √(D² + e²)) / 2, written for D < 0 without the difference of two nearly equal numbers
    square = torch.where(
        discriminant > 0, discriminant + norm, edge * edge / (norm - discriminant.clamp(max=0))
    )
    return (square / 2).clamp(min=torch.finfo(square.dtype).tiny).sqrt()


def _shading(frame: _Frame, along: Tensor, beside: Tensor, lift: Tensor) -> tuple[Tensor, Tensor]:
    """Diffuse light and gloss of the outward vector (along, beside, lift), of any length."""
    shrink = 1 / (along * along + beside * beside + lift * lift).clamp(min=1e-24).sqrt()
    light, half = ([_map(part) for part in way.unbind(1)] for way in (frame.light, frame.half))
    diffuse = (along * light[0] + beside * light[1] + lift * light[2]) * shrink
    gloss = (along * half[0] + beside * half[1] + lift * half[2]).clamp(min=0) * shrink
    for _ in range(5):
        gloss = gloss * gloss
    return _lit(diffuse), gloss


def _lit(cosine: Number) -> Number:
    """Wrapped diffuse light, smooth into the shadow: 1 facing the light and 0 turned away from it."""
    return (0.5 + 0.5 * cosine) ** 2


def _outer(coefficients: Tensor) -> Tensor:
    return coefficients[..., :, None] * coefficients[..., None, :]


def _map(number: Tensor) -> Tensor:
    return number[:, None, None]


def _norm(a: Tensor, b: Tensor) -> Tensor:
    return (a * a + b * b).clamp(min=1e-24).sqrt()
