"""Sliders: one per latent, or one per singular vector."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nicegui import ui

from unseam.explore._controls import box, button, card, knob, tick, words
from unseam.explore.maps import latent_name
from unseam.explore.state import State, displayed_point
from unseam.explore.walking import Walk

if TYPE_CHECKING:
    from unseam.explore._controls import Control
    from unseam.explore._page import Page

# Arc length to either side of where a walk begins.
_REACH = 3.0
_STEP = 0.05
# Why a walk ended before that.
_ENDS = {
    "box": "far outside the codes",
    "degenerate": "where singular values coincide",
    "rank": "where the output does not change",
    "solver": "where its direction changes too fast",
}


class SliderPanel:
    """The sliders."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.controls: dict[int, Control] = {}
        self.wanted, self.tracing = 0.0, -1
        with card("Latents", "sliders"):
            self.place = box("div", "stack")
            with box("div", "actions"):
                self.follow = tick("Follow singular vectors", page.state.follow, self._follow)
                button("To the origin", self._reset)
            with box("div", "actions"):
                words("span", "Record the last slider:", "quiet")
                button("GIF", lambda: self._record("gif"), spoken="Record the last slider as GIF")
                button("WebP", lambda: self._record("webp"), spoken="Record the last slider as animated WebP")
        self.rebuild()

    def rebuild(self) -> None:
        """Build the sliders of the present model."""
        state, codes = self.page.state, self.page.exhibit.codes(self.page.state.member)
        self.controls = {}
        self.place.clear()
        with self.place:
            if state.follow:
                words(
                    "p",
                    "Arc length from where you are, along each singular vector (allen2024 §3.2.3).",
                    "quiet",
                )
                for component in range(max(1, len(codes.alive))):
                    self._component(component)
                return
            if not codes.alive:
                words("p", "No latent is active: all items have the same code.", "quiet")
            active = codes.alive or (0,)
            for latent in active:
                self._latent(latent)
            collapsed = [k for k in range(len(state.z)) if k not in active]
            if collapsed:
                with box("details", "collapsed"):
                    words("summary", f"{len(collapsed)} collapsed latent{'s' * (len(collapsed) > 1)}")
                    for latent in collapsed:
                        self._latent(latent)

    def put(self) -> None:
        """Move the sliders to the present point."""
        if self.page.state.follow:
            self._anchor()
            return
        values = displayed_point(self.page.state)
        for latent, control in self.controls.items():
            control.call(latent_name(latent, self.page.state))
            control.put(values[latent])

    def _latent(self, latent: int) -> None:
        state = self.page.state
        limit = self.page.exhibit.codes(state.member).limit
        self.controls[latent] = knob(
            latent_name(latent, state), displayed_point(state)[latent], lambda value: self._move(latent, value),
            limits=(-limit, limit), step=_STEP, spoken=f"Latent {latent_name(latent)}",
        )  # fmt: skip

    def _component(self, component: int) -> None:
        self.controls[component] = knob(
            f"v{component + 1}", 0.0, lambda value: self._walk(component, value),
            limits=(-_REACH, _REACH), step=_STEP, spoken=f"Along singular vector {component + 1}",
        )  # fmt: skip

    def _move(self, latent: int, value: float) -> None:
        self.page.visit.move(latent, value)
        self.page.moved()

    def _walk(self, component: int, value: float) -> None:
        """Go along a curve; one that starts here is traced first, and then followed to where the hand is by then."""
        visit, page = self.page.visit, self.page
        self.wanted = value
        if visit.walk is not None and visit.walk.component == component:
            visit.step(value)
            page.moved()
        elif self.tracing != component:
            self.tracing = component
            page.tell(f"Tracing the sub-manifold of v{component + 1} …")
            started = page.state
            page.traces.ask(lambda: visit.start_walk(component), lambda found: self._traced(found, started))

    def stop(self) -> None:
        """No trace is awaited any more."""
        self.tracing = -1

    def _traced(self, found: Walk, started: State) -> None:
        if found.component != self.tracing:
            return  # the hand has gone to another slider, whose trace is on its way
        self.page.well("walk")
        self.stop()
        now = self.page.state
        if (now.member, now.z, now.follow) != (started.member, started.z, started.follow):
            return  # the visitor has gone elsewhere in the meantime
        self.page.visit.walk = found
        for component, control in self.controls.items():
            if component != found.component:
                control.put(0.0)
        first, last = float(found.lengths[0]), float(found.lengths[-1])
        reasons = sorted({_ENDS[reason] for reason in found.ended if reason in _ENDS})
        why = f": it ends {' and '.join(reasons)}" if reasons else ""
        self.page.tell(f"Following v{found.component + 1} from {first:.2f} to {last:.2f}{why}.")
        self.page.visit.step(self.wanted)
        self.page.moved()

    def _anchor(self) -> None:
        """Walks begin anew where the point is now."""
        self.page.visit.walk, self.tracing = None, -1
        for control in self.controls.values():
            control.put(0.0)

    def _follow(self, follow: bool) -> None:
        self.page.visit.change(follow=follow)
        self.page.visit.walk, self.tracing = None, -1
        self.rebuild()

    def _reset(self) -> None:
        self.page.visit.reset()
        self.page.arrived()

    async def _record(self, form: str) -> None:
        self.page.tell(f"Recording a {form.upper()} …")
        visit = self.page.visit
        try:
            content = await asyncio.get_running_loop().run_in_executor(None, visit.record, form)
        except Exception as error:
            self.page.failed("recording", error)
            return
        self.page.well("recording")
        with self.page.client:
            ui.download.content(content, f"traversal.{form}", f"image/{form}")
        self.page.tell(f"Recorded traversal.{form}, {len(content) / 1024:.0f} kB.")
