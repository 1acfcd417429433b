"""Lemma 5 of bhowal2024: for a given stochastic loss, orthogonal columns allow a lower KL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from unseam import geometry
from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Finding, Judgement, Workplace
from unseam.papers.bhowal2024.rows import cells_of, judgement, worlds
from unseam.papers.bhowal2024.rules import PAIRED_ORDER_RULE, lower
from unseam.papers.bhowal2024.runs import select, trained
from unseam.papers.bhowal2024.setups import LAPTOP, NAMES, ROWS, SMOKE, Setup
from unseam.papers.bhowal2024.theorem1 import FORMS, minimise

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["LEMMA5"]

NODES = 80
ROUNDING = 1e-6


@dataclass(frozen=True)
class Settings:
    """Random local decoders, the sizes of Mε at which they are compared, and trained models."""

    setups: tuple[Setup, ...]
    matrices: int = 200
    data: int = 32
    latents: tuple[int, ...] = (2, 4, 6)
    sizes: tuple[float, ...] = (0.01, 0.1, 0.5, 1.0, 2.0)
    """Root mean square of Mε over data dimensions, where columns are orthogonal."""
    steps: int = 60
    """Of the search for the best variances, at most."""


def measure(settings: Settings, place: Workplace) -> dict[str, pd.DataFrame]:
    """The KL that orthogonal columns save: in closed form, with a tanh, and in trained decoders."""
    cases = _cases(settings, place.device)
    return {"cases": cases, **select([trained(settings.setups, place)], "members")}


def judge(tables: Tables) -> Judgement:
    """The saving of linear and of tanh decoders, and the gap of trained ones."""
    return judgement(tables, _findings, NOTE)


def _findings(tables: Tables) -> Iterator[Finding]:
    yield from _linear(tables["cases"])
    yield from _tanh(tables["cases"])
    if "members" in tables:
        yield from _trained(tables["members"])


def _cases(settings: Settings, device: torch.device) -> pd.DataFrame:
    """Random M = UΣVᵀ against UΣ: by how much the least loss at a given Σ log σ² differs, for f linear and tanh.

    One row per number of ``latents``, ``size`` and matrix: its Hadamard ``gap``; ``singular``, the difference of
    Σ log of singular values, which the proof takes for the bound; ``saved_linear`` and ``saved_tanh``, the −Σ log σ²
    that orthogonal columns save at the same loss; ``off_linear``, the first of them less twice the gap.
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
        turned = plain @ right.mT
        gap = geometry.hadamard_gap(turned.mT @ turned)
        singular = [torch.linalg.svdvals(one).log().sum(-1) for one in (turned, plain)]
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
                for matrix in (turned, plain)
            ]
            # at the same loss the budgets differ by latents times the difference of log losses
            one[f"saved_{form}"] = latent * (losses[0] / losses[1]).log().cpu().numpy()
        parts.append(pd.DataFrame(one))
    table = pd.concat(parts, ignore_index=True)
    return table.assign(off_linear=table["saved_linear"] - 2 * table["gap"])


def _least(matrix: Tensor, budget: Tensor, form: str, steps: int) -> Tensor:
    """Least E‖f(Mε)‖² (matrix,) over variances with −Σ log σ² = budget."""
    length, latent = matrix.square().sum(1).log(), matrix.shape[-1]
    # away from the closed form of the linear case, so that the search has to find it
    start = torch.linspace(-1, 1, latent).to(matrix) - length + length.mean(1, keepdim=True)
    still = torch.eye(latent, dtype=matrix.dtype, device=matrix.device).expand(len(matrix), -1, -1)
    energy = FORMS["second_order"].energy if form == "linear" else _tanh_energy
    offset, log_variance = torch.zeros_like(matrix[..., 0]), start - budget[:, None] / latent
    found = minimise(energy, matrix, offset, still, log_variance, steps=steps, rotate=False)
    if not found.certain.all():
        raise RuntimeError(
            f"{int((~found.certain).sum())} searches of {len(matrix)} did not converge: take more steps"
        )
    return found.loss.exp()


def _tanh_energy(offset: Tensor, variance: Tensor) -> Tensor:
    """E tanh²(x) over x ~ N(0, variance) by the trapezoidal rule, to 1e-8 up to a standard deviation of 4."""
    node = torch.linspace(0, 9, NODES, dtype=variance.dtype, device=variance.device)
    weight = (-node.square() / 2).exp() * torch.where(node > 0, 1.0, 0.5)
    return (variance.sqrt().unsqueeze(-1) * node).tanh().square() @ (weight / weight.sum())


def _linear(cases: pd.DataFrame) -> Iterator[Finding]:
    off = float(cases["off_linear"].abs().max())
    yield Finding(
        "linear local decoders: largest difference of the −Σ log σ² saved and twice the Hadamard gap",
        "0",
        off,
        None,
        None,
        "reproduced" if off < 1e-4 else "not reproduced",
        f"{len(cases)} cases, least saving {cases['saved_linear'].min():.3f}",
    )
    bound = float(cases["singular"].abs().max())
    yield Finding(
        "printed bound of the proof, log Sing(M_D) − log Sing(M_ortho): largest in size",
        "> 0",
        bound,
        None,
        None,
        "not reproduced" if bound < ROUNDING else "reproduced",
        "both have the same singular values; what holds is twice the Hadamard gap, ≥ 0",
    )


def _tanh(cases: pd.DataFrame) -> Iterator[Finding]:
    for size, own in cases.groupby("size"):
        saves = own["saved_tanh"] > 0
        yield Finding(
            f"tanh local decoders, Mε of size {size:g}: share of cases where orthogonal columns save KL",
            "all",
            float(saves.mean()),
            None,
            None,
            "reproduced" if bool(saves.all()) else "not reproduced",
            f"median saving {own['saved_tanh'].median():.3f} of {2 * own['gap'].median():.3f} in the linear case",
        )


def _trained(members: pd.DataFrame) -> Iterator[Finding]:
    """Trained decoders against themselves with latents turned at random."""
    for world, part in worlds(members):
        for one, own in cells_of(part):
            quantity = (
                f"{NAMES[world]}, {one.family}: Hadamard gap in nats, less that of latents turned at random"
            )
            means = f"{own['gap_means'].mean():.3f} against {own['gap_rotated'].mean():.3f} nats"
            note = f"{means}, KL {own['kl'].mean():.1f}"
            yield lower(quantity, own["gap_means"], own["gap_rotated"], note)


NOTE = (
    "With −Σ log σ² for the KL, as the paper has it, a given loss costs twice the Hadamard gap more where columns are "
    "not orthogonal; in nats of the exact KL, with its ½, the gap itself. With a tanh the loss is a sum of E tanh²(s "
    "n) over data dimensions, n standard normal and s² the variance of a row of Mε, integrated by quadrature."
)


def draw(tables: Tables) -> Figure:
    """What a tanh leaves of the saving, and trained decoders before and after a rotation."""
    cases = tables["cases"]
    parts = list(worlds(tables["members"])) if "members" in tables else []
    figure, axes = panels(
        ["saving with a tanh", *(NAMES[world] for world, _ in parts)], width=3.5, height=2.6
    )
    for (size, own), colour in zip(cases.groupby("size"), COLOURS, strict=False):
        axes[0].plot(
            2 * own["gap"], own["saved_tanh"], ".", color=colour, markersize=2, label=f"size {size:g}"
        )
    top = 2 * float(cases["gap"].max())
    axes[0].plot([0, top], [0, top], color="grey", linewidth=0.8)
    axes[0].axhline(0, color="grey", linewidth=0.5)
    axes[0].set_xlabel("twice the Hadamard gap", fontsize=8)
    axes[0].set_ylabel("−Σ log σ² saved", fontsize=8)
    axes[0].legend(fontsize=7, frameon=False, markerscale=3)
    for panel, (_, part) in zip(axes[1:], parts, strict=True):
        for place, ((_, own), colour) in enumerate(zip(cells_of(part), COLOURS, strict=False)):
            panel.plot(place - 0.15 + 0 * own["gap_means"], own["gap_means"], "o", color=colour, markersize=3)
            panel.plot(
                place + 0.15 + 0 * own["gap_means"], own["gap_rotated"], "x", color=colour, markersize=4
            )
        panel.set_xticks(range(3), [one.family for one, _ in cells_of(part)])
        panel.set_ylabel("Hadamard gap (crosses: rotated)", fontsize=8)
    return figure


LEMMA5 = Artefact(
    key="bhowal2024.lemma5",
    title="Lemma 5: orthogonal columns allow a lower KL",
    claim="Given the stochastic loss, orthogonal columns of the local decoder's matrix go with a lower KL.",
    criterion="For linear local decoders the saving is twice the Hadamard gap to 1e-4; with a tanh it is positive in "
    f"all cases; trained decoders have a lower gap than the same with latents turned at random. {PAIRED_ORDER_RULE}",
    presets={
        "smoke": Settings(SMOKE[:1], matrices=5, data=8, latents=(2, 3), steps=40),
        "laptop": Settings(LAPTOP, matrices=50),
        "full": Settings(ROWS, matrices=300),
    },
    measure=measure,
    judge=judge,
    draw=draw,
)
