"""Controls of the page: thin elements over one small component."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from nicegui import ui
from nicegui.element import Element


class Control(Element, component="control.js"):
    """A labelled control whose value is the browser's; the server is notified of it, and may set another."""

    def __init__(
        self, kind: str, label: str, start: Any, changed: Callable[[Any], None], **props: Any
    ) -> None:
        super().__init__()
        self._props.update(kind=kind, label=label, start=start, **props)
        self.on("changed", lambda event: changed(event.args))

    def rename(self, label: str) -> None:
        """Show another label."""
        if self._props["label"] != label:
            self._props["label"] = label
            self.update()

    def put(self, value: Any) -> None:
        """Show another value."""
        self.run_method("put", value)


class Plane(Element, component="plane.js"):
    """The map's plane: it draws, zooms and shows notes by itself, and says where the visitor goes."""

    def __init__(
        self,
        ready: Callable[[], None],
        go: Callable[[float, float], None],
        take: Callable[[int], None],
        step: Callable[[int, int], None],
    ) -> None:
        super().__init__()
        self.on("ready", lambda: ready(), [])
        self.on("go", lambda event: _pair(event.args, go))
        self.on("key", lambda event: _pair(event.args, lambda x, y: step(round(x), round(y))))
        self.on("take", lambda event: _index(event.args, take))

    def show(self, data: Mapping[str, Any]) -> None:
        """Draw a map."""
        self.run_method("show", data)

    def place(self, spot: tuple[float, float] | None, curve: Sequence[tuple[float, float]]) -> None:
        """Move the marker, and draw the curve that it follows."""
        self.run_method("mark", spot, curve)


def _index(given: Any, then: Callable[[int], None]) -> None:
    """Call with a whole number; what else a browser sends is ignored."""
    if isinstance(given, int):
        then(given)


def _pair(given: Any, then: Callable[[float, float], None]) -> None:
    """Call with two numbers; what else a browser sends is ignored."""
    numbers = given if isinstance(given, list) and len(given) == 2 else []
    if numbers and all(isinstance(value, int | float) and math.isfinite(value) for value in numbers):
        then(float(given[0]), float(given[1]))


def knob(
    label: str,
    value: float,
    changed: Callable[[float], None],
    limits: tuple[float, float],
    *,
    step: float = 1.0,
    spoken: str = "",
    unit: str = "",
    words: Sequence[str] | None = None,
) -> Control:
    """A range; what is not a number within its limits is ignored."""
    low, high = limits

    def checked(given: Any) -> None:
        if isinstance(given, int | float) and not isinstance(given, bool) and low <= given <= high:
            changed(float(given))

    digits = 0 if step >= 1 else 2
    props = {"low": low, "high": high, "step": step, "digits": digits, "unit": unit, "words": words}
    return Control("range", label, value, checked, spoken=spoken or label, **props)


def choice(
    label: str, options: Mapping[int, str] | Sequence[str], value: int, changed: Callable[[int], None]
) -> Control:
    """A choice between texts, by number; unknown numbers are ignored."""
    texts = dict(options) if isinstance(options, Mapping) else dict(enumerate(options))

    def checked(given: Any) -> None:
        found = {str(key): key for key in texts}.get(str(given))
        if found is not None:
            changed(found)

    return Control("choice", label, value, checked, options={str(key): text for key, text in texts.items()})


def tick(label: str, value: bool, changed: Callable[[bool], None]) -> Control:
    """A switch."""
    return Control("tick", label, value, lambda given: changed(given is True))


def number(label: str, value: int, size: int, changed: Callable[[int], None]) -> Control:
    """A whole number below a size."""

    def checked(given: Any) -> None:
        if isinstance(given, int | float) and 0 <= given < size and given == int(given):
            changed(int(given))

    return Control("number", label, value, checked, low=0, high=size - 1, step=1)


def button(text: str, pressed: Callable[[], Any], *, spoken: str = "", kind: str = "") -> Any:
    """A plain button."""
    made = words("button", text, f"button {kind}").props('type="button"')
    if spoken:
        made.props["aria-label"] = spoken
    made.on("click", lambda: pressed(), [])
    return made


def box(tag: str, kind: str = "", label: str = "") -> Element:
    """An element with a class, and a name for those who cannot see it."""
    made = ui.element(tag).classes(kind)
    if label:
        made.props["aria-label"] = label
    return made


def words(tag: str, text: str, kind: str = "") -> Any:
    """An element that holds words, which are shown as they are."""
    return ui.html(escape(text), sanitize=False, tag=tag).classes(kind)


def say(element: Any, text: str) -> None:
    """Change the words of an element."""
    element.set_content(escape(text))


def markup(kind: str = "") -> Any:
    """A place for drawings of our own, which hold nothing but numbers and escaped names."""
    return ui.html("", sanitize=False).classes(kind)


def picture(label: str, kind: str = "") -> Any:
    """A picture whose source changes without flicker."""
    made = ui.interactive_image(events=[], sanitize=False).classes(f"picture {kind}")
    made.props["role"] = "img"
    made.props["aria-label"] = label
    return made


def card(title: str, kind: str, lead: str = "") -> Element:
    """A part of the page with its heading."""
    made = box("section", f"card {kind}", title)
    with made:
        words("h2", title)
        if lead:
            words("p", lead, "quiet")
    return made
