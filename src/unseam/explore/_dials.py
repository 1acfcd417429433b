"""Two dials over whole models: a rotation of the latent space, and β."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unseam.charts import Curve, curves, data_url
from unseam.explore._controls import box, card, choice, knob, markup, picture, words
from unseam.explore.maps import latent_name
from unseam.explore.measures import QUANTITIES, Measured, beta_curve, rotation_curve
from unseam.explore.state import WIDEST
from unseam.explore.visit import reconstructions

if TYPE_CHECKING:
    from unseam.explore._controls import Control
    from unseam.explore._page import Page

Curves = list[tuple[float, Measured]]


class RotationPanel:
    """Rotate the axes of two latents: reconstructions stay the same, disentanglement is lost."""

    def __init__(self, page: Page) -> None:
        self.page = page
        lead = (
            "Rotate the axes in the plane of two latents. Encoder and decoder rotate alike, so every reconstruction "
            "stays the same, but the meaning of each axis is lost (rolinek2019 Eq. 5)."
        )
        self.card = card("Rotate the latent space", "rotation", lead)
        with self.card:
            self.controls = box("div", "choosers")
            self.drawing = markup("drawing")
        self.rebuild()

    def rebuild(self) -> None:
        """Build the controls of the present model."""
        state, active = self.page.state, sorted(self.page.exhibit.codes(self.page.state.member).alive)
        self.card.set_visibility(len(active) > 1)
        self.controls.clear()
        names = {
            latent: latent_name(latent) for latent in {*active, state.rotation.first, state.rotation.second}
        }
        with self.controls:
            choice("from", names, state.rotation.first, lambda latent: self._plane(0, latent))
            choice("towards", names, state.rotation.second, lambda latent: self._plane(1, latent))
            knob(
                "angle",
                state.rotation.degrees,
                self._angle,
                limits=(0, WIDEST),
                step=1,
                spoken="Angle of the rotation",
                unit="°",
            )

    def refresh(self) -> None:
        """Draw what is measured over the angle."""
        exhibit, state = self.page.exhibit, self.page.state
        if len(exhibit.codes(state.member).alive) > 1:
            first, second, _ = state.rotation
            self.page.curves.ask(lambda: rotation_curve(exhibit, state.member, first, second), self._show)

    def _show(self, found: Curves) -> None:
        self.page.well("rotation")
        angles, here = [angle for angle, _ in found], self.page.state.rotation.degrees
        self.drawing.set_content(curves(angles, _curves(found), here, label="angle, degrees"))

    def _plane(self, place: int, latent: int) -> None:
        first, second, degrees = self.page.state.rotation
        pair = (latent, second) if place == 0 else (first, latent)
        if pair[0] == pair[1]:  # the other axis makes way
            pair = (latent, first) if place == 0 else (second, latent)
        self.page.visit.rotate(*pair, degrees)
        self.rebuild()
        self.page.rotated()

    def _angle(self, degrees: float) -> None:
        first, second, _ = self.page.state.rotation
        self.page.visit.rotate(first, second, degrees)
        self.page.rotated()


class BetaPanel:
    """Slide β over members that differ in it alone."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.members: tuple[int, ...] = ()
        self.dial: Control | None = None
        lead = "Members that differ in β alone (allen2024 Fig. 2): larger β, fewer active latents, coarser pictures."
        self.card = card("β dial", "beta", lead)
        with self.card:
            self.controls = box("div", "choosers")
            words("h3", "items, and their reconstructions by this member")
            kind = "strip" if page.exhibit.look.is_picture else "strip signed"
            self.items = picture("Items of the world", kind)
            self.found = picture("Their reconstructions", kind)
            self.drawing = markup("drawing")
        self.rebuild()

    def rebuild(self) -> None:
        """Build the dial of the present model, where others differ from it in β."""
        exhibit, state = self.page.exhibit, self.page.state
        members = exhibit.betas[state.member]
        self.card.set_visibility(len(members) > 1)
        if len(members) < 2 or members == self.members:  # not under the hand that turns it
            if self.dial is not None and len(members) > 1:
                self.dial.put(members.index(state.member))
            return
        self.members = members
        self.controls.clear()
        labels = [f"{exhibit.subjects[member].beta:g}" for member in members]
        with self.controls:
            self.dial = knob(
                "β", members.index(state.member), lambda place: self.page.choose(members[round(place)]),
                limits=(0, len(members) - 1), step=1, spoken="β", words=labels,
            )  # fmt: skip

    def refresh(self) -> None:
        """Draw what is measured over β."""
        exhibit, member = self.page.exhibit, self.page.state.member
        if len(exhibit.betas[member]) > 1:

            def compute() -> tuple[Curves, str, str]:
                items, found = reconstructions(exhibit, member)
                return beta_curve(exhibit, member), data_url(items), data_url(found)

            self.page.betas.ask(compute, self._show)

    def _show(self, drawn: tuple[Curves, str, str]) -> None:
        self.page.well("β")
        found, items, pictures = drawn
        self.items.set_source(items)
        self.found.set_source(pictures)
        here = self.page.exhibit.subjects[self.page.state.member].beta
        places, log = [beta for beta, _ in found], found[0][0] > 0
        if here is not None:
            self.drawing.set_content(curves(places, _curves(found, active=True), here, label="β", log=log))


def _curves(found: Curves, *, active: bool = False) -> list[Curve]:
    columns = zip(*(one for _, one in found), strict=True)
    return [
        Curve(name, values, cls, digits)
        for (name, cls, digits), values in zip(QUANTITIES, columns, strict=True)
        if (active or name != "active latents") and any(value is not None for value in values)
    ]
