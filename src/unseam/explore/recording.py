"""Traversals and rotations as labelled animations."""

from __future__ import annotations

import numpy as np

from unseam.charts import animation, decimals, pixels, strip
from unseam.explore.exhibit import Exhibit
from unseam.explore.maps import latent_name
from unseam.explore.measures import rotation_curve
from unseam.explore.rotation import Rotation
from unseam.explore.state import WIDEST, State, displayed_point, model_point
from unseam.explore.walking import Walk

__all__ = ["record", "record_rotation"]

_FRAMES = 31
# Places of the pictures along each of two rotated axes, as fractions of a slider's reach.
_PLACES = (-0.8, -0.4, 0.0, 0.4, 0.8)


def record(exhibit: Exhibit, state: State, latent: int, form: str, *, along: Walk | None = None) -> bytes:
    """The pictures along one latent, from the lowest to the highest value of its slider, and back, with its value.

    Args:
        exhibit: whose models.
        state: the model, the point that the others stay at, and the rotation of the axes.
        latent: which latent moves.
        form: ``gif`` or ``webp``.
        along: the sub-manifold to follow instead.

    >>> from unseam.explore import exhibit_decoder
    >>> from unseam.explore.state import first_state
    >>> exhibit = exhibit_decoder(lambda z: z.repeat(1, 8).view(-1, 1, 4, 4), latent=2)
    >>> record(exhibit, first_state(exhibit), 0, "webp")[8:12]
    b'WEBP'
    """
    if not 0 <= latent < len(state.z):
        raise ValueError(f"latent must lie in [0, {len(state.z)}), got {latent}")
    limit = exhibit.codes(state.member).limit
    low, high = (-limit, limit) if along is None else (float(along.lengths[0]), float(along.lengths[-1]))
    places = [low + (high - low) * k / (_FRAMES - 1) for k in range(_FRAMES)]
    name = latent_name(latent, state) if along is None else f"along v{along.component + 1}"
    points = [_moved(state, latent, place) if along is None else along.at(place) for place in places]
    pictures = exhibit.subjects[state.member].picture(points)
    captions = [f"{name} = {decimals(place)}" for place in places]
    return animation([pixels(picture, exhibit.look) for picture in pictures], form, captions=captions)


def record_rotation(exhibit: Exhibit, state: State, form: str) -> bytes:
    """The traversals of two latents while their axes are rotated, with the angle and what is measured there.

    The upper row follows the first of the two axes, the lower one the second.

    Args:
        exhibit: whose models.
        state: the model, the point, and the plane that is rotated; its angle does not matter.
        form: ``gif`` or ``webp``.

    >>> from unseam.explore import exhibit_decoder
    >>> from unseam.explore.state import first_state
    >>> exhibit = exhibit_decoder(lambda z: z.repeat(1, 8).view(-1, 1, 4, 4), latent=2)
    >>> record_rotation(exhibit, first_state(exhibit), "gif")[:6]
    b'GIF89a'
    """
    first, second, _ = state.rotation
    limit, subject = exhibit.codes(state.member).limit, exhibit.subjects[state.member]
    curve = rotation_curve(exhibit, state.member, first, second)
    frames, captions = [], []
    for k in range(_FRAMES):
        degrees = WIDEST * k / (_FRAMES - 1)
        there = State(state.member, state.z, rotation=Rotation(first, second, degrees))
        rows = []
        for axis in (first, second):
            points = [_moved(there, axis, limit * place) for place in _PLACES]
            rows.append(strip([pixels(one, exhibit.look) for one in subject.picture(points)]))
        gap = np.zeros((max(1, rows[0].shape[0] // 16), *rows[0].shape[1:]), np.uint8)
        frames.append(_on_white(np.concatenate([rows[0], gap, rows[1]])))
        _, found = min(curve, key=lambda one: abs(one[0] - degrees))
        measured = [("|cos|", found.cosine), ("MIG", found.mig)]
        names = f"{latent_name(first, there)}, {latent_name(second, there)}"
        captions.append(
            f"{names} at {degrees:.0f}°"
            + "".join(f"  {name} {decimals(value)}" for name, value in measured if value is not None)
        )
    return animation(frames, form, captions=captions, milliseconds=100)


def _moved(state: State, axis: int, value: float) -> tuple[float, ...]:
    """The point of a state with one displayed axis at another value."""
    here = list(displayed_point(state))
    here[axis] = value
    return model_point(state, tuple(here))


def _on_white(picture: np.ndarray) -> np.ndarray:
    """Without its channel of opacity, which animations lack."""
    clear = picture[..., 3:] == 0
    return np.where(clear, np.uint8(255), picture[..., :3])
