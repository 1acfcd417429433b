"""One visit: requests change the state, and the state determines what is shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from unseam.charts import Pixels, data_url, pixels, strip
from unseam.explore.exhibit import Exhibit
from unseam.explore.maps import find_place
from unseam.explore.recording import record, record_rotation
from unseam.explore.rotation import Rotation
from unseam.explore.state import State, displayed_point, first_state, model_point
from unseam.explore.walking import Walk, walk

__all__ = ["Frame", "Visit", "frame", "reconstructions"]


class Frame(NamedTuple):
    """The pictures that follow a slider, as addresses of PNGs."""

    picture: str
    other: str | None
    """By the model that is compared with."""
    note: str
    """Why there is no other picture where one was asked for, or why it is not of the same item."""


def frame(exhibit: Exhibit, state: State) -> Frame:
    """The picture at a state's point, and that of the model it is compared with.

    >>> from unseam.explore import exhibit_decoder
    >>> exhibit = exhibit_decoder(lambda z: z.repeat(1, 8).view(-1, 1, 4, 4), latent=2)
    >>> frame(exhibit, first_state(exhibit)).picture[:22]
    'data:image/png;base64,'
    """
    subject = exhibit.subjects[state.member]
    own = data_url(pixels(subject.picture(state.z)[0], exhibit.look))
    if state.other is None:
        return Frame(own, None, "")
    other = exhibit.subjects[state.other]
    z, note = state.z, ""
    if state.same == "item":
        if state.item is None or other.encoder is None:
            return Frame(own, None, "Choose an item of the world to compare both reconstructions of it.")
        item = exhibit.item(state.item)[None]
        mean, _ = other.encode(item)
        z = tuple(mean[0].tolist())
        if subject.encoder is not None and _has_left(subject.encode(item)[0][0].tolist(), state.z):
            note = "The left picture has moved away from the item; choose the item again to compare."
    if len(z) != other.latent:
        return Frame(own, None, f"The same z needs as many latents: {len(z)} here, {other.latent} there.")
    return Frame(own, data_url(pixels(other.picture(z)[0], exhibit.look)), note)


def _has_left(code: Sequence[float], z: Sequence[float]) -> bool:
    """Whether a point is another than an item's code, the rounding of links apart."""
    return any(abs(one - other) > 0.01 for one, other in zip(code, z, strict=True))


def reconstructions(exhibit: Exhibit, member: int, count: int = 8) -> tuple[Pixels, Pixels]:
    """Some items of the world and their reconstructions by one model, as two strips.

    >>> from unseam.data import load
    >>> from unseam.explore import exhibit_decoder
    >>> exhibit = exhibit_decoder(
    ...     lambda z: z, encoder=lambda x: (x, 0 * x), world=load("linear", size=20)
    ... )
    >>> [part.shape for part in reconstructions(exhibit, 0, count=2)]
    [(96, 269, 4), (96, 269, 4)]
    """
    chosen = torch.linspace(0, len(exhibit.index) - 1, min(count, len(exhibit.index))).long()
    items = exhibit.items[chosen]
    found = exhibit.subjects[member].picture(exhibit.codes(member).mean[chosen])
    first, second = (strip([pixels(one, exhibit.look) for one in part]) for part in (items, found))
    return first, second


class Visit:
    """A state and the ways to change it.

    Args:
        exhibit: what is visited.
        state: where the visit begins.
        changed: called after every change of the state.

    >>> from unseam.explore import exhibit_decoder
    >>> exhibit = exhibit_decoder(lambda z: 2 * z, latent=2)
    >>> visit = Visit(exhibit, first_state(exhibit))
    >>> visit.move(1, 0.5)
    >>> visit.state.z
    (0.0, 0.5)
    """

    def __init__(self, exhibit: Exhibit, state: State, changed: Callable[[], None] = lambda: None) -> None:
        self.exhibit, self._state, self._changed = exhibit, state, changed
        self.walk: Walk | None = None
        self.touched = state.plane[0] if state.space == "latents" else state.rotation.first

    @property
    def state(self) -> State:
        """The current state."""
        return self._state

    @state.setter
    def state(self, state: State) -> None:
        self._state = state
        self._changed()

    def change(self, **fields: object) -> None:
        """Give fields of the state other values."""
        self.state = dataclasses.replace(self.state, **fields)  # type: ignore[arg-type]

    def move(self, latent: int, value: float) -> None:
        """Move along one of the axes that are shown."""
        values = list(displayed_point(self.state))
        values[latent] = value
        self.touched, self.walk = latent, None
        self.change(z=model_point(self.state, tuple(values)))

    def start_walk(self, component: int) -> Walk:
        """Trace the sub-manifold through the present point along one singular vector."""
        return walk(self.exhibit, self.state.member, self.state.z, component)

    def step(self, length: float) -> None:
        """Move to an arc length along the sub-manifold that was traced last."""
        if self.walk is not None:
            self.change(z=self.walk.at(length))

    def take(self, item: int) -> None:
        """Choose an item of the world, and go to its point."""
        x = self.exhibit.item(item)
        self.walk = None
        self.change(item=item)
        if self.exhibit.encodes(self.state.member):
            mean, _ = self.exhibit.subjects[self.state.member].encode(x[None])
            self.change(z=tuple(mean[0].tolist()))

    def go(self, x: float, y: float) -> None:
        """Go to a point of the map."""
        place = find_place(self.exhibit, self.state, x, y)
        if place.item is not None:
            self.take(place.item)
        elif place.z is not None:
            self.walk = None
            self.change(z=place.z)

    def choose(self, member: int) -> None:
        """Look at another model: at the same item where there is one, else at the same point where that fits."""
        fresh, before = first_state(self.exhibit, member), self.state
        self.walk = None
        latent = self.exhibit.subjects[member].latent
        fits = len(before.z) == latent and before.rotation.degrees != 0
        plane = before.plane if before.space == "factors" or fits else fresh.plane
        colour = min(before.colour, len(self.exhibit.factor_names) + latent - 1)
        self.state = dataclasses.replace(
            before,
            member=member,
            z=before.z if len(before.z) == latent else fresh.z,
            rotation=before.rotation if fits else fresh.rotation,
            plane=plane,
            colour=colour,
            other=None if before.other == member else before.other,
        )
        self.touched = fresh.plane[0]
        if before.item is not None and self.exhibit.encodes(member):
            self.take(before.item)

    def rotate(self, first: int, second: int, degrees: float) -> None:
        """Rotate the axes in the plane of two latents; the point, and so the picture, stays."""
        if first != second:
            self.walk = None
            self.change(rotation=Rotation(first, second, degrees))

    def reset(self) -> None:
        """Back to the origin."""
        self.walk = None
        self.change(z=(0.0,) * len(self.state.z), item=None)

    def record(self, form: str) -> bytes:
        """The traversal of the axis, or of the sub-manifold, that was moved last."""
        return record(self.exhibit, self.state, self.touched, form, along=self.walk)

    def record_rotation(self, form: str) -> bytes:
        """The rotation of the current plane, from 0 to 90 degrees."""
        return record_rotation(self.exhibit, self.state, form)
