"""The page of one tab: its parts, and what is updated when the visitor moves."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from importlib.resources import files

from nicegui import ui

from unseam.charts import style
from unseam.explore._controls import box, button, choice, say, words
from unseam.explore._panels import BetaPanel, GeometryPanel, MapPanel, RotationPanel, SliderPanel, ViewPanel
from unseam.explore.exhibit import Exhibit
from unseam.explore.latest import Latest
from unseam.explore.state import State, first_state, from_query, snippet, to_query
from unseam.explore.visit import Visit

# Geometry is updated ten times per second, pictures as fast as they can be computed.
_PAUSE = 0.1
# How long a passing message stays.
_SECONDS = 6.0
_THEMES = ((None, "Theme: system"), (True, "Theme: dark"), (False, "Theme: light"))


def build_page(exhibit: Exhibit, quick: Executor, slow: Executor, member: int) -> None:
    """Build the page of one tab from its link."""
    request = ui.context.client.request
    ui.page_title(f"{exhibit.title} · unseam explorer")
    message = ""
    try:
        state = from_query(exhibit, dict(request.query_params), member)
    except ValueError as error:
        state, message = first_state(exhibit, member), f"This link cannot be shown: {error}"
    Page(exhibit, quick, slow, state, message)


def _choices(state: State) -> tuple[object, ...]:
    """What a visitor chooses, as opposed to where they move."""
    return (state.member, state.other, state.same, state.space, state.plane, state.colour, state.follow)


class Page:
    """One tab: a visit, the panels that show it, and what is being computed for it."""

    def __init__(self, exhibit: Exhibit, quick: Executor, slow: Executor, state: State, message: str) -> None:
        self.exhibit, self.visit = exhibit, Visit(exhibit, state, self.remember)
        self.client, self.remembered = ui.context.client, state
        self.writing: asyncio.TimerHandle | None = None
        self.faults: dict[str, str] = {}
        self.hush: asyncio.TimerHandle | None = None
        self.models = Latest(quick, partial(self.report_fault, "model"))
        self.pictures = Latest(quick, partial(self.report_fault, "picture"))
        self.details = Latest(slow, partial(self.report_fault, "geometry"), pause=_PAUSE)
        self.curves, self.betas, self.traces, self.pairs = (
            Latest(slow, partial(self.report_fault, part)) for part in ("rotation", "β", "walk", "comparison")
        )
        ui.add_css(style(".body--dark") + files("unseam.explore").joinpath("style.css").read_text("utf8"))
        self._header()
        self.banner = words("div", message, "banner").props('role="alert"')
        self.banner.set_visibility(bool(message))
        with box("div", "rooms"):
            with box("div", "column"):
                self.view = ViewPanel(self)
                self.rotation = RotationPanel(self)
            with box("div", "column"):
                self.sliders = SliderPanel(self)
                self.geometry = GeometryPanel(self)
            with box("div", "column"):
                self.map = MapPanel(self)
                self.beta = BetaPanel(self)
        self.status = words("div", "", "status").props('role="status" aria-live="polite"')
        self.client.on_delete(self.close)
        # a task may only be started once the browser listens
        self.client.on_connect(self.refresh_all)
        # back and forward lead to states that only a fresh page shows
        ui.add_head_html("<script>addEventListener('popstate', () => location.reload())</script>")

    @property
    def state(self) -> State:
        """The current state of the visit."""
        return self.visit.state

    def refresh_all(self) -> None:
        """Update all of the page."""
        self.refresh_point()
        for panel in (self.map, self.rotation, self.beta):
            panel.refresh()
        self.view.compare()

    def refresh_point(self) -> None:
        """Show what depends on the point."""
        self.view.refresh()
        self.geometry.refresh()

    def refresh_arrival(self) -> None:
        """Show a point that was not reached by its sliders."""
        self.sliders.put()
        self.view.put()
        self.refresh_point()

    def choose(self, member: int) -> None:
        """Look at another model, once it has encoded the items of the world."""
        self.models.ask(lambda: self.exhibit.codes(member), lambda _: self._chosen(member))

    def _chosen(self, member: int) -> None:
        self.clear_fault("model")
        if member != self.state.member:
            self.visit.choose(member)
            self.model.put(member)
            for panel in (self.sliders, self.rotation, self.map, self.view, self.beta):
                panel.rebuild()
            self.refresh_all()

    def refresh_axes(self) -> None:
        """Show the axes as they are rotated now."""
        self.sliders.put()
        self.map.refresh()
        self.rotation.refresh()
        self.refresh_point()

    def remember(self) -> None:
        """Write the state into the address bar, a moment later: moves replace what is there, choices come after it."""
        if self.writing is None:
            self.writing = asyncio.get_running_loop().call_later(_PAUSE, self._write)

    def _write(self) -> None:
        self.writing, before, self.remembered = None, self.remembered, self.state
        chosen = _choices(before) != _choices(self.state)
        self.run(
            f"history.{'push' if chosen else 'replace'}State(null, '', {json.dumps('?' + to_query(self.state))})"
        )

    def run(self, script: str) -> None:
        """Run a script in the browser."""
        with self.client:
            ui.run_javascript(script)

    async def record(self, name: str, form: str, make: Callable[[str], bytes]) -> None:
        """Make an animation in a thread and hand it to the visitor."""
        self.tell(f"Recording a {form.upper()} …")
        try:
            content = await asyncio.get_running_loop().run_in_executor(None, make, form)
        except Exception as error:
            self.report_fault("recording", error)
            return
        self.clear_fault("recording")
        with self.client:
            ui.download.content(content, f"{name}.{form}", f"image/{form}")
        self.tell(f"Recorded {name}.{form}, {len(content) / 1024:.0f} kB.")

    def tell(self, message: str) -> None:
        """Say something in passing."""
        self._hush()
        say(self.status, message)
        self.hush = asyncio.get_running_loop().call_later(_SECONDS, say, self.status, "")

    def _hush(self) -> None:
        if self.hush is not None:
            self.hush.cancel()

    def report_fault(self, part: str, error: Exception) -> None:
        """Say what went wrong with a part of the page, until it goes right again."""
        self.faults[part] = f"No {part} here: {type(error).__name__}: {error}"[:500]
        self.sliders.stop()
        say(self.banner, " ".join(self.faults.values()))
        self.banner.set_visibility(True)

    def clear_fault(self, part: str) -> None:
        """Take back what was said to be wrong with a part of the page."""
        if self.faults.pop(part, None) is not None:
            say(self.banner, " ".join(self.faults.values()))
            self.banner.set_visibility(bool(self.faults))

    def close(self) -> None:
        """Forget the tab."""
        self._hush()
        if self.writing is not None:
            self.writing.cancel()
        every = (self.models, self.pictures, self.details, self.curves, self.betas, self.traces, self.pairs)
        for latest in every:
            latest.close()

    def _header(self) -> None:
        with box("header", "top"):
            with box("div", "title"):
                words("h1", "unseam explorer")
                words("p", self.exhibit.title, "quiet")
                for line in self.exhibit.remarks:
                    words("p", line, "remark")
            names = [subject.name for subject in self.exhibit.subjects]
            self.model = choice("Model", names, self.state.member, self.choose)
            self.model.set_visibility(len(names) > 1)
            with box("div", "actions"):
                button("Copy link", self._copy_link)
                button("Python", self._show_code, spoken="Show this state as Python code")
                self.theme, self.themes = ui.dark_mode(None), itertools.cycle(_THEMES[1:] + _THEMES[:1])
                self.theme_button = button(_THEMES[0][1], self._next_theme)

    def _copy_link(self) -> None:
        query = json.dumps("?" + to_query(self.state))
        self.run(
            f"history.replaceState(null, '', {query}); navigator.clipboard?.writeText(location.href).catch(() => {{}});"
        )
        self.tell("The link is in the address bar, and in the clipboard where the browser allows it.")

    def _show_code(self) -> None:
        code = snippet(self.exhibit, self.state)
        with self.client, ui.dialog() as dialog, box("div", "card dialog"):
            words("h2", "This state in Python")
            words("pre", code, "code").props('tabindex="0" aria-label="Python code"')
            with box("div", "actions"):
                button("Copy", lambda: self._copy_code(code))
                button("Close", dialog.close)
        dialog.on("hide", dialog.delete)
        dialog.open()

    def _copy_code(self, code: str) -> None:
        ui.clipboard.write(code)
        self.tell("The code is in the clipboard, where the browser allows it.")

    def _next_theme(self) -> None:
        value, label = next(self.themes)  # whatever a browser says that the theme is
        self.theme.set_value(value)
        say(self.theme_button, label)
