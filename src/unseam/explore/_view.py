"""The decoded picture, an item of the world, and a second model to compare with."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from nicegui import ui

from unseam.charts import data_url, decimals, pixels
from unseam.explore._controls import box, button, card, choice, knob, markup, number, picture, say, words
from unseam.explore.measures import QUANTITIES, Measured, measure
from unseam.explore.visit import Frame, frame

if TYPE_CHECKING:
    from unseam.explore._controls import Control
    from unseam.explore._page import Page


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
        """Build the controls for the present model."""
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
        """Show the picture of the present point."""
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
        self.item.set_source(data_url(pixels(exhibit.item(item), exhibit.look)))
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
                        self.controls[k] = knob(
                            name, round(start[k]), partial(self._factor, k),
                            limits=(0, size - 1), step=1, spoken=f"Factor {name}",
                        )  # fmt: skip
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
        self.page.arrived()

    def _compare(self, other: int) -> None:
        self.page.visit.change(other=None if other < 0 else other)
        self.compare()
        self.refresh()

    def _same(self, same: int) -> None:
        self.page.visit.change(same="item" if same else "z")
        self.refresh()

    def _tabulate(self, found: list[Measured]) -> None:
        self.page.well("comparison")
        if self.page.state.other is not None:
            self.table.set_content(pair_table(*found))

    def _show(self, found: Frame) -> None:
        self.page.well("picture")
        self.picture.set_source(found.picture)
        self.page.map.mark()
        self.other.parent_slot.parent.set_visibility(found.other is not None)
        if found.other is not None and self.page.state.other is not None:
            self.other.set_source(found.other)
            say(self.other_name, self.page.exhibit.subjects[self.page.state.other].name)
        say(self.note, found.note)


def pair_table(first: Measured, second: Measured) -> str:
    """Numbers of two models as the rows of an HTML table; what cannot be measured is left out."""
    rows = [
        f"<tr><th scope='row'>{name}</th><td>{decimals(one, digits)}</td><td>{decimals(two, digits)}</td></tr>"
        for (name, _, digits), one, two in zip(QUANTITIES, first, second, strict=True)
        if one is not None and two is not None
    ]
    head = "<thead><tr><td></td><th scope='col'>this</th><th scope='col'>other</th></tr></thead>"
    return f"<table>{head}<tbody>{''.join(rows)}</tbody></table>"
