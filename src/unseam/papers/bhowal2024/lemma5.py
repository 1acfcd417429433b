"""Lemma 5 of bhowal2024: for a given stochastic loss, orthogonal columns allow a lower KL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from unseam import geometry
from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Workplace
from unseam.papers.bhowal2024._rows import by_row
from unseam.papers.bhowal2024._runs import cells_of, select, train_setups, worlds
from unseam.papers.bhowal2024._setups import LAPTOP, NAMES, ROWS, SMOKE, Setup
from unseam.papers.claims import Identities, Identity, Order, Orders

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["LEMMA5"]

NODES = 40
RATE = 0.05
ROUNDING = 1e-6
SMALL = 0.1
"""Size of Mε up to which it counts as Mε ≪ 1."""
SHOWN = 30


@dataclass(frozen=True)
class Settings:
    """Random local decoders, the sizes of Mε at which they are compared, and trained models."""

    setups: tuple[Setup, ...]
    matrices: int = 200
    data: int = 32
    latents: tuple[int, ...] = (2, 4, 6)
    sizes: tuple[float, ...] = (0.01, 0.1, 0.5, 1.0, 2.0)
    """Root mean square of Mε over data dimensions, where columns are orthogonal."""
    steps: int = 600
    """Of the search for the best variances."""


def measure(settings: Settings, place: Workplace) -> dict[str, pd.DataFrame]:
    """The KL that orthogonal columns save: in closed form, with a tanh, and in trained decoders."""
    cases = _cases(settings, place.device)
    tables = train_setups(settings.setups, place)
    return {
        "summary": _summary(cases),
        "cases": _shown(cases),
        **select(tables, members=("gap_means", "gap_rotated")),
    }


def _shown(cases: pd.DataFrame) -> pd.DataFrame:
    """Some of each number of latents and size, for the figure."""
    return cases.groupby(["latents", "size"]).head(SHOWN)[["size", "gap", "saved_tanh"]]


def _cases(settings: Settings, device: torch.device) -> pd.DataFrame:
    """Random M = UΣVᵀ against UΣ: by how much the least loss at a given Σ log σ² differs, for f linear and tanh.

    One row per number of ``latents``, ``size`` and matrix: its Hadamard ``gap``; ``singular``, the difference of
    Σ log of singular values, which the proof takes for the bound; ``saved_linear`` and ``saved_tanh``, the −Σ log σ²
    that orthogonal columns save at the same loss.
    """
    import pandas as pd

    draw = torch.Generator().manual_seed(0)
    parts = []
    for latent in settings.latents:
        shape = (settings.matrices, settings.data, latent)
        left = torch.linalg.qr(torch.randn(shape, generator=draw, dtype=torch.float64)).Q
        right = torch.linalg.qr(torch.randn(shape[0], latent, latent, generator=draw, dtype=torch.float64)).Q
        scale = 0.3 + 2.7 * torch.rand(shape[0], 1, latent, generator=draw, dtype=torch.float64)
        plain = left * scale
        rotated = plain @ right.mT
        gap = geometry.hadamard_gap(rotated.mT @ rotated)
        singular = [torch.linalg.svdvals(one).log().sum(-1) for one in (rotated, plain)]
        sizes = torch.tensor(settings.sizes, dtype=torch.float64).repeat_interleave(shape[0])
        many = len(settings.sizes)
        # Σ log σ² such that orthogonal columns, each with its best σ, make Mε of this size
        budget = (
            2 * scale.log().sum((1, 2)).repeat(many)
            - latent * (sizes.square() * settings.data / latent).log()
        )
        one = {"latents": latent, "size": sizes.numpy(), "gap": gap.repeat(many).numpy()}
        one["singular"] = (singular[0] - singular[1]).repeat(many).numpy()
        for form in ("linear", "tanh"):
            losses = [
                _least(matrix.repeat(many, 1, 1).to(device), budget.to(device), form, settings.steps)
                for matrix in (rotated, plain)
            ]
            # at the same loss the budgets differ by latents times the difference of log losses
            one[f"saved_{form}"] = latent * (losses[0] / losses[1]).log().cpu().numpy()
        parts.append(pd.DataFrame(one))
    return pd.concat(parts, ignore_index=True)


def _least(matrix: Tensor, budget: Tensor, form: str, steps: int) -> Tensor:
    """Least E‖f(Mε)‖² (matrix,) over variances with −Σ log σ² = budget."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    node, weight = (torch.as_tensor(part).to(matrix) for part in (nodes, weights / weights.sum()))
    squares = matrix.square()
    lengths = squares.sum(1)

    def loss(free: Tensor) -> Tensor:
        log_variance = free - free.mean(1, keepdim=True) - budget[:, None] / free.shape[1]
        spread = (squares @ log_variance.exp().unsqueeze(-1)).squeeze(-1)
        if form == "linear":
            return spread.sum(1)
        return ((spread.sqrt().unsqueeze(-1) * node).tanh().square() @ weight).sum(1)

    free = (-lengths.log()).requires_grad_()
    if form == "linear":
        # started away from the closed form, so that the search has to find it
        free = (free.detach() + torch.linspace(-1, 1, free.shape[1]).to(free)).requires_grad_()
    search = torch.optim.Adam([free], lr=RATE)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(search, steps)
    for _ in range(steps):
        search.zero_grad()
        loss(free).log().sum().backward()
        search.step()
        decay.step()
    return loss(free).detach()


def _summary(cases: pd.DataFrame) -> pd.DataFrame:
    """Extremes and medians of random decoders, one row per ``size``."""
    import pandas as pd

    rows = []
    for size, own in cases.groupby("size"):
        rows.append(
            {
                "size": size,
                "decoders": len(own),
                "least_linear": own["saved_linear"].min(),
                "off_linear": (own["saved_linear"] - 2 * own["gap"]).abs().max(),
                "off_printed": (own["saved_linear"] - 2 * own["singular"]).abs().max(),
                "least_tanh": own["saved_tanh"].min(),
                "losing_tanh": int((own["saved_tanh"] < 0).sum()),
                "median_tanh": own["saved_tanh"].median(),
                "median_linear": own["saved_linear"].median(),
            }
        )
    return pd.DataFrame(rows)


def _linear(tables: Tables) -> Iterator[Identity]:
    least, n = tables["summary"]["least_linear"].min(), int(tables["summary"]["decoders"].sum())
    yield Identity(
        "linear local decoders: largest rise of −Σ log σ²", "none", max(0.0, -least), ROUNDING, n=n
    )


def _tanh(*, small: bool) -> Callable[[Tables], Iterator[Identity]]:
    def cases(tables: Tables) -> Iterator[Identity]:
        for row in tables["summary"].to_dict("records"):
            if (row["size"] <= SMALL) == small:
                counted = f"{row['losing_tanh']:.0f} of {row['decoders']:.0f} rise"
                saved = f"median saving {row['median_tanh']:.3f}, linear {row['median_linear']:.3f}"
                yield Identity(
                    f"tanh local decoders, Mε of size {row['size']:g}: largest rise of −Σ log σ²",
                    "none",
                    max(0.0, -row["least_tanh"]),
                    ROUNDING,
                    n=int(row["decoders"]),
                    note=f"{counted}; {saved}",
                )

    return cases


def _bound(column: str, words: str) -> Callable[[Tables], Iterator[Identity]]:
    def cases(tables: Tables) -> Iterator[Identity]:
        found, n = tables["summary"][column].max(), int(tables["summary"]["decoders"].sum())
        yield Identity(f"linear local decoders: saving less {words}", "0", found, ROUNDING, n=n)

    return cases


def _trained(tables: Tables) -> Iterator[Order]:
    """Trained decoders against themselves with latents rotated at random."""
    for world, part in worlds(tables["members"]) if "members" in tables else ():
        for one, own in cells_of(part):
            quantity = f"{NAMES[world]}, {one.family}: Hadamard gap in nats, trained less randomly rotated"
            note = f"{own['gap_means'].mean():.3f} against {own['gap_rotated'].mean():.3f} nats"
            yield Order(quantity, own["gap_means"], own["gap_rotated"], paired=True, note=note)


def plot(tables: Tables) -> Figure:
    """Saving with a tanh against that of a linear decoder, and trained decoders before and after a rotation."""
    cases = tables["cases"]
    parts = list(worlds(tables["members"])) if "members" in tables else []
    titles = ["saving with a tanh", *(NAMES[world] for world, _ in parts)]
    figure, axes = panels(titles, width=3.5, height=2.6)
    for (size, own), colour in zip(cases.groupby("size"), COLOURS, strict=False):
        label = f"size {size:g}"
        axes[0].plot(2 * own["gap"], own["saved_tanh"], ".", color=colour, markersize=2, label=label)
    top = 2 * float(cases["gap"].max())
    axes[0].plot([0, top], [0, top], color="grey", linewidth=0.8)
    axes[0].axhline(0, color="grey", linewidth=0.5)
    axes[0].set_xlabel("twice the Hadamard gap", fontsize=8)
    axes[0].set_ylabel("−Σ log σ² saved", fontsize=8)
    axes[0].legend(fontsize=7, frameon=False, markerscale=3)
    for panel, (_, part) in zip(axes[1:], parts, strict=True):
        for place, ((_, own), colour) in enumerate(zip(cells_of(part), COLOURS, strict=False)):
            for name, offset, marker in (("gap_means", -0.15, "o"), ("gap_rotated", 0.15, "x")):
                panel.plot(
                    [place + offset] * len(own), own[name], marker, color=colour, markersize=4, linestyle=""
                )
        panel.set_xticks(range(3), [one.family for one, _ in cells_of(part)])
        panel.set_ylabel("Hadamard gap (crosses: rotated)", fontsize=8)
    return figure


LEMMA5 = Artefact(
    key="bhowal2024.lemma5",
    title="Lemma 5: orthogonal columns allow a lower KL",
    claims=(
        Identities(
            "Lemma 5: given the stochastic loss, orthogonal columns never raise the KL of linear decoders",
            _linear,
        ),
        Identities(
            "Lemma 5: given the stochastic loss, orthogonal columns never raise the KL where Mε ≪ 1",
            _tanh(small=True),
        ),
        Identities(
            "Lemma 5: orthogonal columns save 2{log Sing(M_D) − log Sing(M_ortho)}",
            _bound("off_printed", "the printed bound, which is 0"),
        ),
        Identities(
            "Corrected Lemma 5: orthogonal columns save twice the Hadamard gap",
            _bound("off_linear", "twice the Hadamard gap"),
            ours=True,
        ),
        Identities(
            "Lemma 5 where Mε is not small, beyond its assumption: orthogonal columns never raise the KL",
            _tanh(small=False),
            ours=True,
        ),
        *by_row(
            Orders,
            "Trained decoders have a lower Hadamard gap than with their latents rotated at random",
            _trained,
            ours=True,
        ),
    ),
    presets={
        "smoke": Settings(SMOKE[:1], matrices=5, data=8, latents=(2, 3), steps=150),
        "laptop": Settings(LAPTOP, matrices=50),
        "full": Settings(ROWS, matrices=300),
    },
    measure=measure,
    plot=plot,
    note="With −Σ log σ² for the KL, as in the paper, a given loss costs twice the Hadamard gap more where columns are "
    "not orthogonal; in nats of the exact KL, with its ½, the gap itself. With a tanh the loss is a sum of "
    "E tanh²(s n) over data dimensions, n standard normal and s² the variance of a row of Mε, by quadrature. The paper "
    "assumes Mε ≪ 1.",
)
