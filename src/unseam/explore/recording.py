"""A traversal as an animation."""

from __future__ import annotations

from unseam.charts import animation, pixels
from unseam.explore.exhibit import Exhibit
from unseam.explore.state import State, displayed_point, model_point
from unseam.explore.walking import Walk

__all__ = ["record"]

_FRAMES = 31


def record(exhibit: Exhibit, state: State, latent: int, form: str, *, along: Walk | None = None) -> bytes:
    """The pictures along one latent, from the lowest to the highest value of its slider, and back.

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
    places = [limit * (2 * k / (_FRAMES - 1) - 1) for k in range(_FRAMES)]
    if along is not None:
        ends = float(along.lengths[0]), float(along.lengths[-1])
        spread = [ends[0] + (ends[1] - ends[0]) * k / (_FRAMES - 1) for k in range(_FRAMES)]
        points = [along.at(place) for place in spread]
    else:
        here = list(displayed_point(state))
        points = [model_point(state, tuple([*here[:latent], place, *here[latent + 1 :]])) for place in places]
    pictures = exhibit.subjects[state.member].picture(points)
    return animation([pixels(picture, exhibit.look) for picture in pictures], form)
