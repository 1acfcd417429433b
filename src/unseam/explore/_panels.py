"""The panels of the page: pictures, sliders, the local geometry, the map, and two dials."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

import torch
from nicegui import ui

from unseam import charts
from unseam.explore._controls import (
    Control,
    Plane,
    box,
    button,
    card,
    choice,
    knob,
    markup,
    number,
    picture,
    say,
    tick,
    words,
)
from unseam.explore.local import Local, cosine_chart, explain_terms, local_view, spectrum_chart
from unseam.explore.maps import RAMP, curve_of, latent_name, map_of, marker_of
from unseam.explore.measures import QUANTITIES, Measured, beta_curve, measure, pair_table, rotation_curve
from unseam.explore.state import WIDEST, State, displayed_point
from unseam.explore.visit import Frame, frame, reconstructions
from unseam.explore.walking import Walk

if TYPE_CHECKING:
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
_KEY_STEP = 0.1
_LEADS = {
    "plane": "The plane of two latents. Click, drag the point, or use the arrow keys; the wheel zooms.",
    "latents": "Each dot is an item's code, each ellipse a posterior. Click, drag the point, or use the arrow keys; a "
    "double click takes a dot's item, the wheel zooms.",
    "factors": "Each dot stands for the items with these two factors. Click, or use the arrow keys, to encode one.",
}
Curves = list[tuple[float, Measured]]


class ViewPanel:
    """The pictures."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.generator = torch.Generator().manual_seed(0)
        self.controls: dict[int, Control] = {}
        with card("Picture", "view"), box("div", "pictures"):
            self.picture, self.name = self._figure("main", "Decoded picture")
            self.other, self.other_name = self._figure("other", "Picture of the model that is compared with")
            self.item, self.item_name = self._figure("item", "Item of the world")
        self.card = card("Item and comparison", "choosing")
        with self.card:
            self.choosers = box("div", "choosers")
            self.note = words("p", "", "quiet")
            self.table = markup("pair-table")
        self.card.set_visibility(page.exhibit.world is not None or len(page.exhibit.subjects) > 1)
        self.rebuild()

    def rebuild(self) -> None:
        """Build the controls for the current model."""
        exhibit, state = self.page.exhibit, self.page.state
        say(self.name, exhibit.subjects[state.member].name if len(exhibit.subjects) > 1 else "decoded at z")
        self.choosers.clear()
        with self.choosers:
            self._items()
            if len(exhibit.subjects) > 1:
                names = {-1: "none"} | {
                    k: subject.name for k, subject in enumerate(exhibit.subjects) if k != state.member
                }
                with box("div", "pair"):
                    choice("Compare with", names, -1 if state.other is None else state.other, self._compare)
                    if exhibit.encodes(state.member):
                        same = ["the same z", "the same item"]
                        choice("under", same, int(state.same == "item"), self._same)
        self.put()

    def refresh(self) -> None:
        """Show the picture of the current point."""
        exhibit, state = self.page.exhibit, self.page.state
        self.page.pictures.ask(lambda: frame(exhibit, state), self._show)

    def compare(self) -> None:
        """Put the numbers of both models side by side, where there are two."""
        exhibit, state = self.page.exhibit, self.page.state
        if state.other is None:
            self.table.set_content("")
            return
        both = (state.member, state.other)
        self.page.pairs.ask(lambda: [measure(exhibit, member) for member in both], self._tabulate)

    def put(self) -> None:
        """Show the item that was chosen, and its factors."""
        exhibit, item = self.page.exhibit, self.page.state.item
        self.item.parent_slot.parent.set_visibility(item is not None)
        if item is None:
            return
        self.item.set_source(charts.data_url(charts.pixels(exhibit.item(item), exhibit.look)))
        say(self.item_name, f"item {item} of {exhibit.world.name if exhibit.world else ''}")
        values = [round(value) for value in exhibit.item_factors(item)] if exhibit.grid else [item]
        for factor, control in self.controls.items():
            control.put(values[factor])

    def _figure(self, kind: str, label: str) -> tuple[Any, Any]:
        with ui.element("figure").classes(kind) as figure:
            shown = picture(label, "" if self.page.exhibit.look.is_picture else "signal signed")
            name = words("figcaption", "", "quiet")
        figure.set_visibility(kind == "main")
        return shown, name

    def _items(self) -> None:
        """Controls that choose an item: one for each factor of a grid, else its number."""
        exhibit, item = self.page.exhibit, self.page.state.item
        self.controls = {}
        if exhibit.world is None:
            return
        with box("fieldset", "items"):
            words("legend", "Item of the world")
            if exhibit.grid:
                start = exhibit.item_factors(item if item is not None else int(exhibit.index[0]))
                for k, (name, size) in enumerate(zip(exhibit.factor_names, exhibit.grid, strict=True)):
                    if size > 1:
                        change = partial(self._factor, k)
                        limits = (0, size - 1)
                        self.controls[k] = knob(
                            name, round(start[k]), change, limits, spoken=f"Factor {name}"
                        )
            else:
                self.controls[0] = number("number", item or 0, len(exhibit.world), self._take)
            button("Random item", self._random)

    def _factor(self, factor: int, value: float) -> None:
        exhibit, item = self.page.exhibit, self.page.state.item
        start = item if item is not None else int(exhibit.index[0])
        factors = [round(one) for one in exhibit.item_factors(start)]
        factors[factor] = round(value)
        self._take(exhibit.item_at(factors))

    def _random(self) -> None:
        world = self.page.exhibit.world
        if world is not None:
            self._take(int(torch.randint(len(world), (1,), generator=self.generator)))

    def _take(self, item: int) -> None:
        self.page.visit.take(item)
        self.page.refresh_arrival()

    def _compare(self, other: int) -> None:
        self.page.visit.change(other=None if other < 0 else other)
        self.compare()
        self.refresh()

    def _same(self, same: int) -> None:
        self.page.visit.change(same="item" if same else "z")
        self.refresh()

    def _tabulate(self, found: list[Measured]) -> None:
        self.page.clear_fault("comparison")
        if self.page.state.other is not None:
            self.table.set_content(pair_table(*found))

    def _show(self, found: Frame) -> None:
        self.page.clear_fault("picture")
        self.picture.set_source(found.picture)
        self.page.map.mark()
        self.other.parent_slot.parent.set_visibility(found.other is not None)
        if found.other is not None and self.page.state.other is not None:
            self.other.set_source(found.other)
            say(self.other_name, self.page.exhibit.subjects[self.page.state.other].name)
        say(self.note, found.note)


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
            _recorder(page, "the last slider", "traversal", page.visit.record)
        self.rebuild()

    def rebuild(self) -> None:
        """Build the sliders of the current model."""
        state, codes = self.page.state, self.page.exhibit.codes(self.page.state.member)
        self.controls = {}
        self.place.clear()
        with self.place:
            if state.follow:
                lead = "Arc length from the current point, along each singular vector (allen2024 §3.2.3)."
                words("p", lead, "quiet")
                for component in range(max(1, len(codes.active))):
                    self._component(component)
                return
            if not codes.active:
                words("p", "No latent is active: all items have the same code.", "quiet")
            active = codes.active or (0,)
            for latent in active:
                self._latent(latent)
            collapsed = [k for k in range(len(state.z)) if k not in active]
            if collapsed:
                with box("details", "collapsed"):
                    words("summary", f"{len(collapsed)} collapsed latent{'s' * (len(collapsed) > 1)}")
                    for latent in collapsed:
                        self._latent(latent)

    def put(self) -> None:
        """Move the sliders to the current point."""
        if self.page.state.follow:
            self._anchor()
            return
        values = displayed_point(self.page.state)
        for latent, control in self.controls.items():
            control.rename(latent_name(latent, self.page.state))
            control.put(values[latent])

    def _latent(self, latent: int) -> None:
        state = self.page.state
        limit = self.page.exhibit.codes(state.member).limit
        name, spoken = latent_name(latent, state), f"Latent {latent_name(latent)}"
        change, value = partial(self._move, latent), displayed_point(state)[latent]
        self.controls[latent] = knob(name, value, change, (-limit, limit), step=_STEP, spoken=spoken)

    def _component(self, component: int) -> None:
        name, spoken = f"v{component + 1}", f"Along singular vector {component + 1}"
        change, limits = partial(self._walk, component), (-_REACH, _REACH)
        self.controls[component] = knob(name, 0.0, change, limits, step=_STEP, spoken=spoken)

    def _move(self, latent: int, value: float) -> None:
        self.page.visit.move(latent, value)
        self.page.refresh_point()

    def _walk(self, component: int, value: float) -> None:
        """Move along a curve; one that starts here is traced first, then followed to where the slider is by then."""
        visit, page = self.page.visit, self.page
        self.wanted = value
        if visit.walk is not None and visit.walk.component == component:
            visit.step(value)
            page.refresh_point()
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
            return  # another slider was moved since, whose trace is on its way
        self.page.clear_fault("walk")
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
        self.page.refresh_point()

    def _anchor(self) -> None:
        """Start walks again from the current point."""
        self.page.visit.walk, self.tracing = None, -1
        for control in self.controls.values():
            control.put(0.0)

    def _follow(self, follow: bool) -> None:
        self.page.visit.change(follow=follow)
        self.page.visit.walk, self.tracing = None, -1
        self.rebuild()

    def _reset(self) -> None:
        self.page.visit.reset()
        self.page.refresh_arrival()


def _recorder(page: Page, what: str, name: str, make: Callable[[str], bytes]) -> None:
    """Buttons that record an animation."""
    with box("div", "actions"):
        words("span", f"Record {what}:", "quiet")
        for form in ("GIF", "WebP"):
            record = partial(page.record, name, form.lower(), make)
            button(form, record, spoken=f"Record {what} as {form}")


class GeometryPanel:
    """Columns of the Jacobian, singular directions, |cos| and spectrum."""

    def __init__(self, page: Page) -> None:
        self.page = page
        with card("Geometry here", "geometry", page.exhibit.change_lead):
            self.numbers = markup("numbers")
            markup("explained").set_content(explain_terms())
            kind = "strip" if page.exhibit.look.is_coloured else "strip signed"
            self.strips = box("div", "strips")
            with self.strips:
                words("h3", "along each latent: columns of the Jacobian")
                self.columns = picture("Columns of the Jacobian, one picture per active latent", kind)
                self.column_names = markup("strip-names")
                words("h3", "along each singular vector")
                self.directions = picture("Change of the picture along each singular vector", kind)
                self.direction_names = markup("strip-names")
            with box("div", "plots"):
                self.cosines, self.spectrum = _plot("|cos| between columns"), _plot("singular values")

    def refresh(self) -> None:
        """Measure at the current point."""
        exhibit, state = self.page.exhibit, self.page.state
        z = torch.tensor(state.z, dtype=torch.float64)
        self.page.details.ask(
            lambda: _encode(local_view(exhibit, state.member, z, state.rotation)), self._show
        )

    def _show(self, drawn: tuple[Local, str, str]) -> None:
        found, columns, directions = drawn
        self.page.clear_fault("geometry")
        names = [latent_name(latent, self.page.state) for latent in found.latents]
        self.strips.style(f"--count: {len(names)}")
        self.columns.set_source(columns)
        self.directions.set_source(directions)
        self.column_names.set_content(_names(names, found.norms))
        marks = [f"v{k + 1}" for k in range(len(names))]
        self.direction_names.set_content(_names(marks, found.singular_values))
        self.cosines.set_content(cosine_chart(found, names))
        self.cosines.parent_slot.parent.set_visibility(len(names) > 1)
        self.spectrum.set_content(spectrum_chart(found))
        active = len(self.page.exhibit.codes(self.page.state.member).active)
        self.numbers.set_content(_numbers(found, active))


def _plot(title: str) -> Any:
    with box("div", "plot"):
        words("h3", title)
        return markup("drawing")


def _encode(found: Local) -> tuple[Local, str, str]:
    """The geometry with its pictures as addresses, in the thread that computed them."""
    columns, directions = (charts.strip(pictures) for pictures in (found.columns, found.directions))
    return found, charts.data_url(columns), charts.data_url(directions)


def _names(names: list[str], values: tuple[float, ...]) -> str:
    pairs = zip(names, values, strict=True)
    return "".join(f"<span>{name} <b>{charts.significant(value, 2)}</b></span>" for name, value in pairs)


def _numbers(found: Local, active: int) -> str:
    rows = [
        ("DtO here", found.dto, f"random {charts.decimals(found.random_dto)}"),
        ("mean |cos|", found.cosine, "0: orthogonal"),
        ("Hadamard gap", found.gap, "nats"),
    ]
    few = f"fewer than two {'active latents' if active < 2 else 'columns that change anything'}"
    why = few if found.cosine is None else "two singular values nearly coincide"
    cells = "".join(
        f"<div><dt>{name}</dt><dd>{charts.decimals(value)} <small>{note}</small></dd></div>"
        if value is not None
        else f"<div><dt>{name}</dt><dd>— <small class='undefined'>undefined: {why}</small></dd></div>"
        for name, value, note in rows
    )
    note = "<p>Directions along singular vectors are then nearly arbitrary.</p>"
    return f"<dl>{cells}</dl>{note if found.degenerate else ''}"


class MapPanel:
    """Codes of items in a plane."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.found = map_of(page.exhibit, page.state)
        self.card = card("Map", "map")
        with self.card:
            self.lead = words("p", "", "quiet")
            self.choosers = box("div", "choosers")
            self.plane = Plane(self.refresh, self._go, self._take, self._key)
            self.legend = markup("legend")
        self.rebuild()

    def rebuild(self) -> None:
        """Build the choosers of the current model."""
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
        """Draw the map again."""
        self.found = found = map_of(self.page.exhibit, self.page.state)
        self.plane.show(found.data())
        self.mark()
        shown, space = len(found.points) > 0, self.page.state.space
        say(self.lead, _LEADS[space if shown else "plane"])
        ramp = ", ".join(charts.tint(k / RAMP, cyclic=found.cyclic) for k in range(RAMP + 1))
        swatch = f'<i style="background: linear-gradient(90deg, {ramp})"></i>'
        low, high = ("cyclic", "") if found.cyclic else ("low", "high")
        named = escape(found.legend)
        self.legend.set_content(f"<span>{named}: {low} {swatch} {high}</span>" if shown else "")

    def mark(self) -> None:
        """Move the marker to the current point, and draw the curve that it follows."""
        state = self.page.state
        self.plane.place(marker_of(self.page.exhibit, state), curve_of(state, self.page.visit.walk))

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

    def _go(self, x: float, y: float) -> None:
        self.page.visit.go(x, y)
        self.page.refresh_arrival()

    def _take(self, dot: int) -> None:
        if self.page.state.space == "latents" and 0 <= dot < len(self.page.exhibit.index):
            self.page.visit.take(int(self.page.exhibit.index[dot]))
            self.page.refresh_arrival()

    def _key(self, across: int, up: int) -> None:
        left, right, low, high = self.found.frame
        here = marker_of(self.page.exhibit, self.page.state) or ((left + right) / 2, (low + high) / 2)
        sizes = (_KEY_STEP, _KEY_STEP)
        if self.page.state.space == "factors":
            # of a grid, one value; of a continuum, far enough for another item
            sizes = (1.0, 1.0) if self.page.exhibit.grid else ((right - left) / 10, (high - low) / 10)
        self._go(here[0] + sizes[0] * _sign(across), here[1] + sizes[1] * _sign(up))


def _sign(value: int) -> int:
    return (value > 0) - (value < 0)


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
            sample = f"{len(page.exhibit.index)} items" if len(page.exhibit.index) else "few points"
            words("p", f"Estimated from {sample}, for speed; a report measures on more.", "quiet")
            _recorder(page, "the rotation", "rotation", page.visit.record_rotation)
        self.rebuild()

    def rebuild(self) -> None:
        """Build the controls of the current model."""
        state, active = self.page.state, sorted(self.page.exhibit.codes(self.page.state.member).active)
        self.card.set_visibility(len(active) > 1)
        self.controls.clear()
        names = {latent: latent_name(latent) for latent in {*active, *state.rotation[:2]}}
        with self.controls:
            choice("from", names, state.rotation.first, lambda latent: self._plane(0, latent))
            choice("towards", names, state.rotation.second, lambda latent: self._plane(1, latent))
            limits, spoken = (0, WIDEST), "Angle of the rotation"
            knob("angle", state.rotation.degrees, self._angle, limits, spoken=spoken, unit="°")

    def refresh(self) -> None:
        """Draw what is measured over the angle."""
        exhibit, state = self.page.exhibit, self.page.state
        if len(exhibit.codes(state.member).active) > 1:
            first, second, _ = state.rotation
            self.page.curves.ask(lambda: rotation_curve(exhibit, state.member, first, second), self._show)

    def _show(self, found: Curves) -> None:
        self.page.clear_fault("rotation")
        angles, here = [angle for angle, _ in found], self.page.state.rotation.degrees
        self.drawing.set_content(charts.curves(angles, _curves(found), here, label="angle, degrees"))

    def _plane(self, place: int, latent: int) -> None:
        first, second, degrees = self.page.state.rotation
        pair = (latent, second) if place == 0 else (first, latent)
        if pair[0] == pair[1]:  # the other axis makes way
            pair = (latent, first) if place == 0 else (second, latent)
        self.page.visit.rotate(*pair, degrees)
        self.rebuild()
        self.page.refresh_axes()

    def _angle(self, degrees: float) -> None:
        first, second, _ = self.page.state.rotation
        self.page.visit.rotate(first, second, degrees)
        self.page.refresh_axes()


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
        """Build the dial of the current model, where others differ from it in β."""
        exhibit, state = self.page.exhibit, self.page.state
        members = exhibit.betas[state.member]
        self.card.set_visibility(len(members) > 1)
        if len(members) < 2 or members == self.members:  # not while it is being moved
            if self.dial is not None and len(members) > 1:
                self.dial.put(members.index(state.member))
            return
        self.members = members
        self.controls.clear()
        labels = [f"{exhibit.subjects[member].beta:g}" for member in members]
        with self.controls:
            place, limits = members.index(state.member), (0, len(members) - 1)
            self.dial = knob("β", place, lambda k: self.page.choose(members[round(k)]), limits, words=labels)

    def refresh(self) -> None:
        """Draw what is measured over β."""
        exhibit, member = self.page.exhibit, self.page.state.member
        if len(exhibit.betas[member]) > 1:

            def compute() -> tuple[Curves, str, str]:
                items, found = reconstructions(exhibit, member)
                return beta_curve(exhibit, member), charts.data_url(items), charts.data_url(found)

            self.page.betas.ask(compute, self._show)

    def _show(self, drawn: tuple[Curves, str, str]) -> None:
        self.page.clear_fault("β")
        found, items, pictures = drawn
        self.items.set_source(items)
        self.found.set_source(pictures)
        here = self.page.exhibit.subjects[self.page.state.member].beta
        places, log = [beta for beta, _ in found], found[0][0] > 0
        if here is not None:
            self.drawing.set_content(
                charts.curves(places, _curves(found, active=True), here, label="β", log=log)
            )


def _curves(found: Curves, *, active: bool = False) -> list[charts.Curve]:
    columns = zip(*(one for _, one in found), strict=True)
    return [
        charts.Curve(name, values, cls, digits)
        for (name, cls, digits), values in zip(QUANTITIES, columns, strict=True)
        if (active or name != "active latents") and any(value is not None for value in values)
    ]
