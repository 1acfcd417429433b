"""The map that can be clicked."""

from __future__ import annotations

import math
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

from nicegui import ui

from unseam.charts import tint
from unseam.explore._controls import box, card, choice, markup, say, words
from unseam.explore.maps import SIDE, latent_name, map_of, map_svg, marker_of, marker_svg

if TYPE_CHECKING:
    from unseam.explore._page import Page

_ARROWS = """(event) => {
  const step = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1]}[event.key];
  if (step) { event.preventDefault(); emit(step); }
}"""
_KEY_STEP = 0.1
_LEADS = {
    "latents": "The plane of two latents. Click, or use the arrow keys, to go there.",
    "codes": "Each dot is an item's code, each ellipse a posterior. Click, or use the arrow keys, to go there.",
    "items": "Each dot stands for the items with these two factors. Click, or use the arrow keys, to encode one.",
}


class MapPanel:
    """Codes of items in a plane."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.found = map_of(page.exhibit, page.state)
        self.card = card("Map", "map")
        with self.card:
            self.lead = words("p", "", "quiet")
            self.choosers = box("div", "choosers")
            self.plane = ui.interactive_image(
                size=(SIDE, SIDE), on_mouse=self._click, events=["click"], sanitize=False
            ).classes("plane-box")
            self.plane.props["role"] = "application"
            self.plane.props["tabindex"] = "0"
            self.plane.props["aria-label"] = "Map of the plane: arrow keys move the point"
            self.plane.on("keydown", self._key, js_handler=_ARROWS)
            self.layer = self.plane.add_layer()
            self.legend = markup("legend")
        self.rebuild()

    def rebuild(self) -> None:
        """Build the choosers of the present model."""
        exhibit, state = self.page.exhibit, self.page.state
        self.card.set_visibility(len(state.z) > 1 or exhibit.encodes(state.member))
        names = [*exhibit.factor_names]
        latents = [latent_name(k) for k in range(len(state.z))]
        axes = latents if state.space == "latents" else names
        self.choosers.clear()
        with self.choosers:
            if len(names) > 1 and exhibit.encodes(state.member):
                choice("Plane of", ["latents", "factors"], int(state.space == "factors"), self._space)
            for place, label in enumerate(("across", "up")):
                choice(label, axes, state.plane[place], partial(self._axis, place))
            if exhibit.encodes(state.member):
                choice("Colour", [*names, *latents], state.colour, self._colour)

    def refresh(self) -> None:
        """Draw the map anew."""
        self.found = found = map_of(self.page.exhibit, self.page.state)
        self.plane.set_content(map_svg(found))
        self.layer.set_content(marker_svg(found))
        shown = len(found.points) > 0
        say(
            self.lead,
            _LEADS["latents" if not shown else "codes" if self.page.state.space == "latents" else "items"],
        )
        ramp = ", ".join(tint(k / 4) for k in range(5))
        swatch = f'<i style="background: linear-gradient(90deg, {ramp})"></i>'
        named = escape(found.legend)
        self.legend.set_content(f"<span>{named}: low {swatch} high</span>" if shown else "")

    def mark(self) -> None:
        """Move the marker to the present point."""
        marker = marker_of(self.page.exhibit, self.page.state)
        self.layer.set_content(marker_svg(self.found._replace(marker=marker)))

    def _space(self, factors: int) -> None:
        state = self.page.state
        fresh = (0, 1) if factors else (state.rotation.first, state.rotation.second)
        names = len(self.page.exhibit.factor_names)
        # in the plane of factors a factor's colour says nothing new: begin with a latent's
        colour = names + state.rotation.first if factors else 0
        self.page.visit.change(space="factors" if factors else "latents", plane=fresh, colour=colour)
        self.rebuild()
        self.refresh()

    def _axis(self, place: int, axis: int) -> None:
        plane = list(self.page.state.plane)
        plane[place] = axis
        self.page.visit.change(plane=(plane[0], plane[1]))
        self.refresh()

    def _colour(self, colour: int) -> None:
        self.page.visit.change(colour=colour)
        self.refresh()

    def _click(self, event: Any) -> None:
        across, down = event.image_x, event.image_y
        if all(isinstance(value, int | float) and math.isfinite(value) for value in (across, down)):
            self.page.visit.click(float(across), float(down))
            self.page.arrived()

    def _key(self, event: Any) -> None:
        step = event.args
        if not isinstance(step, list) or len(step) != 2 or not all(one in (-1, 0, 1) for one in step):
            return
        found = self.found
        here = marker_of(self.page.exhibit, self.page.state) or (
            sum(found.frame[:2]) / 2,
            sum(found.frame[2:]) / 2,
        )
        left, right, low, high = found.frame
        sizes = (_KEY_STEP, _KEY_STEP)
        if (
            self.page.state.space == "factors"
        ):  # of a grid, one value; of a continuum, far enough for another item
            sizes = (1.0, 1.0) if self.page.exhibit.grid else ((right - left) / 10, (high - low) / 10)
        self.page.visit.click(*found.place(here[0] + sizes[0] * step[0], here[1] + sizes[1] * step[1]))
        self.page.arrived()
