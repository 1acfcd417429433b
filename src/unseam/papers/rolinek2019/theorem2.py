"""Theorem 2 and Corollary 1 of rolinek2019: their problems minimised over V_i and σ directly, from random starts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Workplace, presets_of, scaled
from unseam.papers.claims import Identities, Identity
from unseam.papers.draws import Seeded, cayley, largest_cosine, normal, orthogonal
from unseam.papers.plots import Figure, Tables, finish, lines, reference
from unseam.papers.rolinek2019._descent import descend
from unseam.papers.tables import table_of
from unseam.theory import precision_optimum

__all__ = ["THEOREM2"]

# Nats above the closed form, cosine between columns, and norm of the gradient up to which each counts as zero.
EXCESS, COSINE, STATIONARY = 1e-8, 1e-4, 1e-6


@dataclass(frozen=True)
class Settings(Seeded):
    """Random Jacobians of several sizes, and how many starts each problem gets."""

    latents: tuple[int, ...] = scaled((2, 3), (2, 3, 4, 5, 6))
    points: int = scaled(2, 5, 6)
    problems: int = scaled(2, 4, 10)
    starts: int = scaled(4, 16, 50)
    iterations: int = scaled(100, 600, 1200)
    kl: float = 2.0
    """L_≈KL per latent and point, in nats."""
    spread: float = 1.5
    """Standard deviation of log σ² at the start."""
    push: float = 1e-3
    """How far beside a saddle point runs from there begin."""


class Form(NamedTuple):
    """A form of the problem."""

    name: str
    logarithm: bool
    """Whether log E‖J_i ε‖² is summed over points, or E‖J_i ε‖² itself."""
    single: bool
    """Whether each point is a problem of its own."""


FORMS = (
    Form("(18, 19)", True, False),
    Form("(20, 21)", False, True),
    Form("no logarithm", False, False),
)
SADDLE = Form("beside a saddle point", True, True)
SADDLE_LATENTS = (2, 4)


def measure(settings: Settings, place: Workplace) -> Tables:
    """Descend from random starts, and from points where the gradient vanishes without a minimum."""
    random = settings.generator()
    found = [
        _random_starts(form, latent, settings, random, place) for form in FORMS for latent in settings.latents
    ]
    found += [_saddle_starts(latent, settings, random, place) for latent in SADDLE_LATENTS]
    tables = zip(("problems", "paths"), zip(*found, strict=True), strict=True)
    return {name: pd.concat(parts, ignore_index=True) for name, parts in tables}


class Problems(NamedTuple):
    """Jacobians with a mean code at each point, under one constraint for all points of a problem.

    A place (problem, point, latent + 1, latent) holds V_i (Eq. 18's, as in J_i V_i) and below it log σ_i², free: the
    constraint is met by subtracting the surplus equally from all.
    """

    jacobians: Tensor
    """J_i (problem, point, data, latent)."""
    means: Tensor
    """μ(x^i) (problem, point, latent), which V_i rotates along."""
    kl: Tensor
    """C = Σ_i L_≈KL(x^i) (problem,) (Eqs. 10 and 19), in nats."""

    @property
    def budget(self) -> Tensor:
        """C_1 = Σ_ij −log σ_ij² (problem,): what the constraint leaves to the variances (Eq. S35)."""
        points, latent = self.means.shape[-2:]
        return 2 * self.kl + points * latent - self.means.square().sum((-2, -1))

    def least(self) -> Tensor:
        """Closed-form minimum of (18, 19) (problem,)."""
        each = zip(self.jacobians.cpu(), self.budget.tolist(), strict=True)
        values = [precision_optimum(jacobians, budget).loss for jacobians, budget in each]
        return torch.tensor(values, dtype=torch.float64, device=self.means.device)

    def repeat(self, starts: int) -> Problems:
        """Each problem as often as it has starts."""
        return Problems(*(part.repeat_interleave(starts, 0) for part in self))

    def loss(self, place: Tensor, *, logarithm: bool) -> Tensor:
        """Σ_i log E‖J_i ε‖² (problem,), or the same without the logarithm."""
        squares = (self.jacobians @ place[..., :-1, :]).square().sum(-2)
        expected = (squares * self.log_variance(place).exp()).sum(-1)
        return (expected.log() if logarithm else expected).sum(-1)

    def log_variance(self, place: Tensor) -> Tensor:
        """log σ_ij² (problem, point, latent) within the budget."""
        free = place[..., -1, :]
        surplus = (free.sum((-2, -1)) + self.budget) / (free.shape[-2] * free.shape[-1])
        return free - surplus[..., None, None]

    def cosines(self, place: Tensor) -> Tensor:
        """Largest cosine between two columns of any J_i V_i (problem,)."""
        return largest_cosine(self.jacobians @ place[..., :-1, :]).amax(-1)

    def spent(self, place: Tensor) -> Tensor:
        """Σ_i L_≈KL(x^i) (problem,), Eq. 10, with the mean encoder rotated along."""
        means = (place[..., :-1, :].mT @ self.means[..., None])[..., 0]
        return (means.square() - self.log_variance(place) - 1).sum((-2, -1)) / 2

    def move(self, place: Tensor, step: Tensor) -> Tensor:
        """V_i rotated by Cayley's transform of a skew matrix, log σ_i² shifted."""
        latent = place.shape[-1]
        each = step.unflatten(-1, (place.shape[-3], -1))
        rotation = cayley(each[..., :-latent], latent)
        free = place[..., -1:, :] + each[..., None, -latent:]
        return torch.cat([place[..., :-1, :] @ rotation, free], -2)


def step_size(points: int, latent: int) -> int:
    """Numbers in a step of :meth:`Problems.move`: angles and variances."""
    return points * latent * (latent + 1) // 2


def draw_problems(
    problems: int, points: int, latent: int, *, kl: float, generator: torch.Generator
) -> Problems:
    """Normal matrices with twice as many rows as latents, columns scaled and rotated; ``kl`` per latent and point."""
    scale = torch.exp(normal(problems, points, 1, latent, generator=generator) / 2)
    apart = normal(problems, points, 2 * latent, latent, generator=generator) * scale
    rotated = apart @ orthogonal(problems, points, latent, latent, generator=generator)
    means = normal(problems, points, latent, generator=generator)
    return Problems(rotated, means, torch.full((problems,), kl * points * latent, dtype=torch.float64))


def _random_starts(
    form: Form, latent: int, settings: Settings, random: torch.Generator, place: Workplace
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Every problem from Haar-random V_i and normal log σ²."""
    points = 1 if form.single else settings.points
    problems = draw_problems(settings.problems, points, latent, kl=settings.kl, generator=random)
    shape = (settings.problems * settings.starts, points)
    free = settings.spread * normal(*shape, 1, latent, generator=random)
    start = torch.cat([orthogonal(*shape, latent, latent, generator=random), free], -2)
    problems = Problems(*(part.to(place.device) for part in problems))
    return _descents(form, problems, start.to(place.device), settings)


def _saddle_starts(
    latent: int, settings: Settings, random: torch.Generator, place: Workplace
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Corollary 1 beside V_i at which all columns are equally long: stationary, though far from orthogonal.

    The principal directions rotated by a Hadamard matrix over √d give every column the mean of the squared singular
    values, and equal σ² are then the best ones.
    """
    drawn = draw_problems(settings.problems, 1, latent, kl=settings.kl, generator=random)
    problems = Problems(*(part.to(place.device) for part in drawn))
    sylvester = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64) / math.sqrt(2)
    hadamard = sylvester if latent == 2 else torch.kron(sylvester, sylvester)
    right = torch.linalg.svd(problems.jacobians, full_matrices=False).Vh.mT
    saddle = torch.cat([right @ hadamard.to(place.device), torch.zeros_like(right[..., :1, :])], -2)
    loss = partial(problems.loss, logarithm=True)
    size = step_size(1, latent)
    slope = descend(loss, saddle, iterations=0, move=problems.move, dimension=size).slope
    bend = _lowest_curvature(problems, saddle)
    many = problems.repeat(settings.starts)
    push = settings.push * normal(len(many.kl), size, generator=random).to(place.device)
    beside = many.move(saddle.repeat_interleave(settings.starts, 0), push)
    ends, path = _descents(SADDLE, problems, beside, settings)
    return ends.join(table_of({"gradient at the start": slope, "curvature at the start": bend})), path


def _lowest_curvature(problems: Problems, place: Tensor) -> Tensor:
    """Lowest eigenvalue (problem,) of the Hessian of (18) in angles and log σ²."""

    def one(step: Tensor, at: Tensor, *problem: Tensor) -> Tensor:
        own = Problems(*problem)
        return own.loss(own.move(at, step), logarithm=True)

    zero = place.new_zeros(len(place), step_size(*place.shape[1::2]))
    # reverse over reverse: forward mode through a batch of linear systems gives NaN in some versions of torch
    hessian = torch.func.vmap(torch.func.jacrev(torch.func.jacrev(one)))(zero, place, *problems)
    return torch.linalg.eigvalsh(hessian)[:, 0]


def _descents(
    form: Form, problems: Problems, start: Tensor, settings: Settings
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The worst of the starts of each problem, and how the excess over the closed form falls."""
    count, points, _, latent = problems.jacobians.shape
    each = (count, len(start) // count)
    many = problems.repeat(each[1])
    done = descend(
        partial(many.loss, logarithm=form.logarithm),
        start,
        iterations=settings.iterations,
        move=many.move,
        dimension=step_size(points, latent),
    )
    least = problems.least().repeat_interleave(each[1])
    # without the logarithm the least is N exp(least / N), the same at all points: compared as a ratio
    above = done.path - least if form.logarithm else (done.path / points).log() - least / points
    excess = above[-1]
    elsewhere = excess.abs() > EXCESS
    columns = {
        "elsewhere": elsewhere.view(each).sum(1),
        "still falling": (elsewhere & (done.slope > STATIONARY)).view(each).sum(1),
        "excess": excess.abs().view(each).amax(1),
        "cosine": many.cosines(done.place).view(each).amax(1),
        "gradient": done.slope.view(each).amax(1),
        "constraint missed": (many.spent(done.place) - many.kl).abs().view(each).amax(1),
    }
    about: dict[str, Any] = {"problem": form.name, "latent": latent}
    ends = table_of(columns).assign(**about, points=points, number=range(count), runs=each[1])
    # median and largest excess over runs, at steps that lie close together first
    steps = sorted({0} | {round(1.12**power) for power in range(90)})
    shown = torch.tensor([step for step in steps if step < len(above)], device=above.device)
    over = above[shown]
    path = {"step": shown, "median": over.median(1).values, "largest": over.amax(1)}
    return ends, table_of(path).assign(**about)


def _minimum_cases(tables: Tables, name: str) -> Iterator[Identity]:
    """Whether every descent ends at the closed-form minimum, with orthogonal columns."""
    own = tables["problems"][tables["problems"]["problem"] == name]
    runs, falling = int(own["runs"].sum()), int(own["still falling"].sum())
    share, note = (
        float(own["elsewhere"].sum() / runs),
        f"{falling} descents had not converged" if falling else "",
    )
    yield Identity(f"{name}: share of descents that end elsewhere", "0", share, 0.0, n=runs, note=note)
    for column, words, tolerance in (
        ("excess", "largest distance from the closed form, nats", EXCESS),
        ("cosine", "largest cosine between columns of a J_i", COSINE),
    ):
        yield Identity(f"{name}: {words}", "0", float(own[column].max()), tolerance, n=runs)


def _saddle_cases(tables: Tables) -> Iterator[Identity]:
    """Points with columns of equal length that are not orthogonal: the gradient vanishes and there is a way down."""
    own = tables["problems"][tables["problems"]["problem"] == SADDLE.name]
    slope = float(own["gradient at the start"].max())
    share = float((own["curvature at the start"] >= 0).mean())
    words = "columns of equal length: share of stationary points without a direction of descent"
    yield Identity(words, "0", share, 0.0, n=len(own), note=f"norm of the gradient at most {slope:.1g}")


def plot(tables: Tables) -> Figure:
    """Excess over the closed-form minimum along the descents: median and worst of all runs."""
    paths = tables["paths"]
    paths = paths.assign(step=paths["step"] + 1, **paths[["largest", "median"]].clip(lower=1e-15))
    colours = dict(zip(sorted(paths["latent"].unique()), COLOURS, strict=False))
    titles = {
        FORMS[0].name: "(18, 19): all points under one budget",
        FORMS[1].name: "(20, 21): one point, no logarithm",
        SADDLE.name: "beside columns of equal length",
    }
    figure, axes = panels(list(titles.values()), width=3.0, height=2.5)
    for panel, name in zip(axes, titles, strict=True):
        own = paths[paths["problem"] == name]
        lines(panel, own, "step", "largest", by="latent", label="{} latents", colours=colours)
        lines(panel, own, "step", "median", by="latent", label="", colours=colours, style=":")
        reference(panel, y=EXCESS, linestyle="-")
        finish(panel, "step of the descent", xscale="log", yscale="log", ylim=(5e-16, 100))
    finish(axes[0], y="above the closed form, nats")
    look = {"fontsize": 7, "title_fontsize": 7, "frameon": False, "loc": "upper right"}
    axes[2].legend(*axes[0].get_legend_handles_labels(), title="worst run; dotted: median", **look)
    return figure


THEOREM2 = Artefact(
    key="rolinek2019.theorem2",
    title="Theorem 2 and Corollary 1: every local minimum is global, with orthogonal columns",
    claims=(
        Identities(
            "Theorem 2: every local minimum of (18, 19) is global, with orthogonal columns of every J_i",
            partial(_minimum_cases, name=FORMS[0].name),
        ),
        Identities(
            "Corollary 1: so is every local minimum of (20, 21)", partial(_minimum_cases, name=FORMS[1].name)
        ),
        Identities(
            "Theorem 2: stationary points without orthogonal columns are no minima, and descents beside them end at "
            "the global one",
            lambda tables: [*_saddle_cases(tables), *_minimum_cases(tables, SADDLE.name)],
        ),
        Identities(
            "Beyond the text: the same without the logarithm in (18), by the inequality of means over all points at "
            "once",
            partial(_minimum_cases, name=FORMS[2].name),
            ours=True,
        ),
    ),
    presets=presets_of(Settings),
    measure=measure,
    plot=plot,
)
