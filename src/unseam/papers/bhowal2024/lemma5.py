"""Lemma 5 of bhowal2024: for a given stochastic loss, orthogonal columns allow a lower KL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor

from unseam import geometry
from unseam.drawing import panels
from unseam.papers.artefact import Artefact, Workplace, presets_of, scaled
from unseam.papers.bhowal2024._runs import by_model, by_row, families, select, train_setups, worlds
from unseam.papers.bhowal2024._setups import LAPTOP, NAMES, ROWS, SMOKE, Setup
from unseam.papers.bhowal2024.theorem1 import FORMS, minimise
from unseam.papers.claims import Identities, Identity, Order, Orders
from unseam.papers.draws import orthonormal, uniform
from unseam.papers.plots import Figure, Tables, columns, finish, identity, lines, reference
from unseam.papers.tables import of_tables

__all__ = ["LEMMA5"]

NODES = 80
ROUNDING = 1e-6
SMALL = 0.1
"""Size of Mε up to which it counts as Mε ≪ 1."""
SHOWN = 30
"""Random decoders of each number of latents and size in the figure."""
OFF = {"linear": "gap", "printed": "singular"}
"""Half of what orthogonal columns save, corrected and as printed."""


@dataclass(frozen=True)
class Settings:
    """Random local decoders, the sizes of Mε at which they are compared, and trained models."""

    setups: tuple[Setup, ...] = scaled(SMOKE[:1], LAPTOP, ROWS)
    matrices: int = scaled(5, 50, 300)
    data: int = scaled(8, 32)
    latents: tuple[int, ...] = scaled((2, 3), (2, 4, 6))
    sizes: tuple[float, ...] = (0.01, 0.1, 0.5, 1.0, 2.0)
    """Root mean square of Mε over data dimensions, where columns are orthogonal."""
    steps: int = scaled(40, 60)
    """Of the search for the best variances, at most."""


def measure(settings: Settings, place: Workplace) -> dict[str, pd.DataFrame]:
    """The KL that orthogonal columns save: in closed form, with a tanh, and in trained decoders."""
    cases = _cases(settings, place.device)
    shown = cases.groupby(["latents", "size"]).head(SHOWN)[["size", "gap", "saved_tanh"]]
    trained = select(train_setups(settings.setups, place), members=("gap_means", "gap_rotated"))
    return {"summary": _summary(cases), "cases": shown, **trained}


def _cases(settings: Settings, device: torch.device) -> pd.DataFrame:
    """Random M = UΣVᵀ against UΣ: by how much the least loss at a given Σ log σ² differs, for f linear and tanh.

    One row per number of ``latents``, ``size`` and matrix: its Hadamard ``gap``; ``singular``, the difference of
    Σ log of singular values, which the proof takes for the bound; ``saved_linear`` and ``saved_tanh``, the −Σ log σ²
    that orthogonal columns save at the same loss.
    """
    draw = torch.Generator().manual_seed(0)
    parts = []
    for latent in settings.latents:
        shape = (settings.matrices, settings.data, latent)
        left = orthonormal(*shape, generator=draw)
        right = orthonormal(shape[0], latent, latent, generator=draw)
        scale = 0.3 + 2.7 * uniform(shape[0], 1, latent, generator=draw)
        plain = left * scale
        rotated = plain @ right.mT
        gap = geometry.hadamard_gap(rotated.mT @ rotated)
        singular = [torch.linalg.svdvals(one).log().sum(-1) for one in (rotated, plain)]
        sizes = torch.tensor(settings.sizes, dtype=torch.float64).repeat_interleave(shape[0])
        many = len(settings.sizes)
        # Σ log σ² such that orthogonal columns, each with its best σ, make Mε of this size
        budget = 2 * scale.log().sum((1, 2)).repeat(many)
        budget = budget - latent * (sizes.square() * settings.data / latent).log()
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


def _summary(cases: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for size, own in cases.groupby("size"):
        linear, tanh = own["saved_linear"], own["saved_tanh"]
        rows.append(
            {"size": size, "decoders": len(own), "least_linear": linear.min()}
            | {f"off_{kind}": (linear - 2 * own[to]).abs().max() for kind, to in OFF.items()}
            | {"least_tanh": tanh.min(), "losing_tanh": int((tanh < 0).sum())}
            | {"median_tanh": tanh.median(), "median_linear": linear.median()}
        )
    return pd.DataFrame(rows)


@of_tables
def _tanh(tables: Tables, *, small: bool) -> Iterator[Identity]:
    for row in tables["summary"].to_dict("records"):
        if (row["size"] <= SMALL) == small:
            counted = f"{row['losing_tanh']:.0f} of {row['decoders']:.0f} rise"
            saved = f"median saving {row['median_tanh']:.3f}, linear {row['median_linear']:.3f}"
            words = f"tanh local decoders, Mε of size {row['size']:g}: largest rise of −Σ log σ²"
            rise, n = max(0.0, -row["least_tanh"]), int(row["decoders"])
            yield Identity(words, "none", rise, ROUNDING, n=n, note=f"{counted}; {saved}")


@of_tables
def _linear(
    tables: Tables, column: str, words: str, published: str = "0", sign: int = 1
) -> Iterator[Identity]:
    found, n = (sign * tables["summary"][column]).max(), int(tables["summary"]["decoders"].sum())
    yield Identity(f"linear local decoders: {words}", published, max(0.0, found), ROUNDING, n=n)


def _trained(tables: Tables) -> Iterator[Order]:
    for model, own in by_model(tables["members"]) if "members" in tables else ():
        quantity = f"{model}: Hadamard gap in nats, trained less randomly rotated"
        note = f"{own['gap_means'].mean():.3f} against {own['gap_rotated'].mean():.3f} nats"
        yield Order(quantity, own["gap_means"], own["gap_rotated"], paired=True, note=note)


def plot(tables: Tables) -> Figure:
    """Saving with a tanh against that of a linear decoder, and trained decoders before and after a rotation."""
    cases = tables["cases"].assign(twice=2 * tables["cases"]["gap"])
    parts = list(worlds(tables["members"])) if "members" in tables else []
    titles = ["saving with a tanh", *(NAMES[world] for world, _ in parts)]
    figure, axes = panels(titles, width=3.5, height=2.6)
    lines(axes[0], cases, "twice", "saved_tanh", by="size", style=".", label="size {:g}", markersize=3)
    identity(axes[0], cases["twice"], [0])
    reference(axes[0], y=0, linestyle="-")
    finish(axes[0], "twice the Hadamard gap", "−Σ log σ² saved", legend="best")
    for panel, (_, part) in zip(axes[1:], parts, strict=True):
        runs = {family: [own["gap_means"], own["gap_rotated"]] for family, own in families(part)}
        columns(panel, runs, labels=("trained", "rotated at random"), markers="ox")
        finish(panel, y="Hadamard gap", legend="best")
    return figure


LEMMA5 = Artefact(
    key="bhowal2024.lemma5",
    title="Lemma 5: orthogonal columns allow a lower KL",
    claims=(
        Identities(
            "Lemma 5: given the stochastic loss, orthogonal columns never raise the KL of linear decoders",
            _linear("least_linear", "largest rise of −Σ log σ²", "none", -1),
        ),
        Identities(
            "Lemma 5: given the stochastic loss, orthogonal columns never raise the KL where Mε ≪ 1",
            _tanh(small=True),
        ),
        Identities(
            "Lemma 5: orthogonal columns save 2{log Sing(M_D) − log Sing(M_ortho)}",
            _linear("off_printed", "saving less the printed bound, which is 0"),
        ),
        Identities(
            "Corrected Lemma 5: orthogonal columns save twice the Hadamard gap",
            _linear("off_linear", "saving less twice the Hadamard gap"),
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
    presets=presets_of(Settings),
    measure=measure,
    plot=plot,
    note="With −Σ log σ² for the KL, as in the paper, a given loss costs twice the Hadamard gap more where columns are "
    "not orthogonal; in nats of the exact KL, with its ½, the gap itself. With a tanh the loss is a sum of "
    "E tanh²(s n) over data dimensions, n standard normal and s² the variance of a row of Mε, by quadrature. The paper "
    "assumes Mε ≪ 1.",
)
