"""Two dials over whole models: a turn of the latent space, and β."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unseam.charts import data_url
from unseam.explore._controls import box, card, choice, knob, markup, picture, words
from unseam.explore.maps import latent_name
from unseam.explore.measures import Measured, beta_curve, turn_curve
from unseam.explore.state import WIDEST
from unseam.explore.svg import Curve, curves_svg
from unseam.explore.visit import reconstructions

if TYPE_CHECKING:
    from unseam.explore._controls import Control
    from unseam.explore._page import Page

Curves = list[tuple[float, Measured]]


class TurnPanel:
    """Turn the axes of two latents: reconstruction stays, disentanglement goes."""

    def __init__(self, page: Page) -> None:
        self.page = page
        lead = (
            "Rotate the axes in the plane of two latents. Encoder and decoder turn along, so every reconstruction "
            "stays; what each axis means does not (rolinek2019 Eq. 5)."
        )
        self.card = card("Turn the latent space", "turning", lead)
        with self.card:
            self.controls = box("div", "choosers")
            self.drawing = markup("drawing")
        self.rebuild()

    def rebuild(self) -> None:
        """Build the controls of the present model."""
        state, alive = self.page.state, sorted(self.page.exhibit.codes(self.page.state.member).alive)
        self.card.set_visibility(len(alive) > 1)
        self.controls.clear()
        names = {latent: latent_name(latent) for latent in {*alive, state.turn.first, state.turn.second}}
        with self.controls:
            choice("from", names, state.turn.first, lambda latent: self._plane(0, latent))
            choice("towards", names, state.turn.second, lambda latent: self._plane(1, latent))
            knob(
                "angle",
                state.turn.degrees,
                self._angle,
                limits=(0, WIDEST),
                step=1,
                spoken="Angle of the turn",
                unit="°",
            )

    def refresh(self) -> None:
        """Draw what is measured over the angle."""
        exhibit, state = self.page.exhibit, self.page.state
        if len(exhibit.codes(state.member).alive) > 1:
            first, second, _ = state.turn
            self.page.curves.ask(lambda: turn_curve(exhibit, state.member, first, second), self._show)

    def _show(self, found: Curves) -> None:
        self.page.well("turn")
        drawn = curves_svg(
            [angle for angle, _ in found],
            _curves(found),
            self.page.state.turn.degrees,
            label="angle, degrees",
        )
        self.drawing.set_content(drawn)

    def _plane(self, place: int, latent: int) -> None:
        first, second, degrees = self.page.state.turn
        pair = (latent, second) if place == 0 else (first, latent)
        if pair[0] == pair[1]:  # the other axis makes way
            pair = (latent, first) if place == 0 else (second, latent)
        self.page.visit.turn(*pair, degrees)
        self.rebuild()
        self.page.turned()

    def _angle(self, degrees: float) -> None:
        first, second, _ = self.page.state.turn
        self.page.visit.turn(first, second, degrees)
        self.page.turned()


class BetaPanel:
    """Slide β over members that differ in it alone."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.members: tuple[int, ...] = ()
        self.dial: Control | None = None
        lead = "Members that differ in β alone (allen2024 Fig. 2): more β, fewer latents, coarser pictures."
        self.card = card("β dial", "beta", lead)
        with self.card:
            self.controls = box("div", "choosers")
            words("h3", "items, and what this member makes of them")
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
            self.drawing.set_content(curves_svg(places, _curves(found, alive=True), here, label="β", log=log))


def _curves(found: Curves, *, alive: bool = False) -> list[Curve]:
    every = [one for _, one in found]
    curves = [
        Curve("squared error", tuple(one.reconstruction for one in every), 0, ".4f"),
        Curve("DtO / random", tuple(one.dto for one in every), 5),
        Curve("mean |cos|", tuple(one.cosine for one in every), 1),
        Curve("MIG", tuple(one.mig for one in every), 2),
    ]
    if alive:
        curves.insert(1, Curve("live latents", tuple(float(one.alive) for one in every), 3, ".0f"))
    return [curve for curve in curves if any(value is not None for value in curve.values)]
