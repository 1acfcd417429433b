"""Figure 2 of sikka2019: deep β-VAEs on mixed digits, for the ten digits of §V and the two of App. C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from unseam.data import ArrayWorld, load
from unseam.drawing import panels
from unseam.papers.artefact import Artefact, Scale, Workplace
from unseam.papers.sikka2019._deep import TITLES, Networks, claims_on_curves, measure_networks, plot_bands

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["FIGURE2_TEN", "FIGURE2_TWO"]

# Twenty values, five per decade and β = 1 among them, from a tenth to past the β at which the last latent of a linear
# model collapses (461 for ten digits, 114 for two).
BETAS = tuple(float(f"{10 ** (step / 5):.3g}") for step in range(-5, 15))


@dataclass(frozen=True)
class Settings:
    """How many digits are mixed, in how many examples, and the networks."""

    digits: int
    networks: Networks
    items: int = 1000


def measure(settings: Settings, place: Workplace) -> Tables:
    """Train the networks for every β and initialisation, and measure all terms on seen and on fresh items."""
    seen, fresh = (load("mixture", digits=settings.digits, size=settings.items, seed=seed) for seed in (0, 1))
    assert isinstance(seen, ArrayWorld)
    assert isinstance(fresh, ArrayWorld)
    return {"networks": measure_networks(settings.networks, seen, fresh, place)}


def plot(tables: Tables) -> Figure:
    """Panels A to D as published, against β on a logarithmic axis."""
    figure, axes = panels(TITLES, rows=2, width=3.4, height=2.4)
    plot_bands(axes, tables, over="mean")
    return figure


def _presets(digits: int) -> dict[Scale, Settings]:
    small = Networks(betas=(0.3, 3.0, 300.0), seeds=2, epochs=30, batch_size=100, widths=(48, 32), draws=1)
    few = Networks(betas=(0.1, 0.3, 1.0, 4.0, 30.0, 300.0), seeds=6, epochs=80, batch_size=100)
    return {
        "smoke": Settings(digits, small, items=200),
        "laptop": Settings(digits, few),
        "full": Settings(digits, Networks(betas=BETAS)),
    }


def _artefact(key: str, digits: int, source: str) -> Artefact:
    return Artefact(
        key=key,
        title=f"Deep β-VAEs on {digits} mixed digits ({source}): ELBO, TIE, reconstruction and KL against β",
        claims=claims_on_curves("Figure 2", over="mean"),
        presets=_presets(digits),
        measure=measure,
        plot=plot,
    )


FIGURE2_TEN = _artefact("sikka2019.figure2_ten", 10, "§V")
FIGURE2_TWO = _artefact("sikka2019.figure2_two", 2, "App. C")
