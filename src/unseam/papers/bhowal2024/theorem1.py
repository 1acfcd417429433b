"""Theorem 1 of bhowal2024 with a non-linear f_D: minima of the stochastic loss over rotations and variances."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Workplace
from unseam.papers.claims import Identities, Identity
from unseam.papers.draws import largest_cosine, normal, orthonormal, plane_rotations, uniform
from unseam.papers.plots import Figure, Tables, finish, legend_below, lines
from unseam.papers.tables import of_tables

__all__ = ["FORMS", "THEOREM1", "Form", "Minimum", "minimise"]

REACHED = 1e-6
"""Length of the Newton step, in radians and log variances, below which a point of positive curvature is a minimum."""
SAME = 1e-6
"""Up to which the log losses of two minima are the same."""
CLOSE = 0.01
"""Largest |cosine| of two columns that count as orthogonal, and largest |log σ²‖c‖² − its mean| for part (c)."""
NODES = 24
LEAK = 0.1
SMALL = 0.1
"""Size of Mε up to which it counts as Mε ≪ 1."""
ANGLES = 91
LONGEST = 0.5
"""Longest step of the search, in radians and log variances."""
ORTHOGONAL = ": share of cases without orthogonal columns of M_D"
PALETTE = (*COLOURS, "#56B4E9")


class Form(NamedTuple):
    """A local decoder f_D(Mε) = g(a + Mε) − g(a), element by element, with a = Mμ or 0.

    Attributes:
        words: what it is called.
        energy: E[(g(a + x) − g(a))²] over x ~ N(0, v), of a and v (row,).
        slope: g'(a).
        own: whether each row has its own a = (Mμ)_j, as Proposition 4 has it; otherwise a = 0 and f_D is one function.
    """

    words: str
    energy: Callable[[Tensor, Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]
    own: bool = False


def _sigmoid_energy(offset: Tensor, variance: Tensor) -> Tensor:
    """Of g(x) = erf(x √π / 2) = 2Φ(x √(π/2)) − 1, whose slope at 0 is 1.

    E Φ(m + s n)² = Φ(h) − 2 T(h, 1/√(1 + 2s²)) with h = m/√(1 + s²) and Owen's function T.
    """
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    node, weight = (torch.as_tensor(part).to(variance) for part in ((nodes + 1) / 2, weights / 2))
    mean, spread = math.sqrt(math.pi / 2) * offset, math.pi / 2 * variance
    upper = (1 + 2 * spread).rsqrt()
    scaled = mean * (1 + spread).rsqrt()
    inner = 1 + (upper.unsqueeze(-1) * node).square()
    owen = upper * ((-scaled.square().unsqueeze(-1) * inner / 2).exp() / inner @ weight) / (2 * math.pi)
    there, here = torch.special.ndtr(scaled), torch.special.ndtr(mean)
    return 4 * (there - 2 * owen - 2 * here * there + here.square())


def _sigmoid_energy_at_zero(offset: Tensor, variance: Tensor) -> Tensor:
    """The same for a = 0, where it is an arcsine (Williams 1998, Eq. 11), without its cancellation."""
    spread = math.pi * variance
    return 4 / math.pi * (spread / (1 + (1 + spread).sqrt()).square()).atan()


def _relu_energy(offset: Tensor, variance: Tensor) -> Tensor:
    """Of g(x) = max(x, LEAK x): with r the change of max(x, 0), E(LEAK x + (1 − LEAK) r)², where E x r = v Φ(a/√v)."""
    ratio = offset * variance.rsqrt()
    density = (-ratio.square() / 2).exp() / math.sqrt(2 * math.pi)
    above = torch.special.ndtr(ratio)
    active = variance * (above - ratio * density) + offset.square() * torch.special.ndtr(-ratio)
    inactive = (offset.square() + variance) * above + offset * variance.sqrt() * density
    change = torch.where(offset > 0, active, inactive)
    return LEAK**2 * variance + 2 * LEAK * (1 - LEAK) * variance * above + (1 - LEAK) ** 2 * change


FORMS = {
    "second_order": Form("Eq. 50, second order", lambda offset, variance: variance, torch.ones_like),
    "quadratic": Form(
        "x + x²/2", lambda offset, variance: variance + 0.75 * variance.square(), torch.ones_like
    ),
    "sigmoid": Form("sigmoid (erf)", _sigmoid_energy_at_zero, torch.ones_like),
    "sine": Form("sine", lambda offset, variance: -(-2 * variance).expm1() / 2, torch.ones_like),
    "sigmoid_own": Form(
        "sigmoid (erf) around Mμ",
        _sigmoid_energy,
        lambda offset: (-math.pi / 4 * offset.square()).exp(),
        own=True,
    ),
    "relu_own": Form(
        f"leaky ReLU ({LEAK:g}) around Mμ",
        _relu_energy,
        lambda offset: torch.where(offset > 0, 1.0, LEAK).to(offset),
        own=True,
    ),
}


@dataclass(frozen=True)
class Settings:
    """Random local decoders M = UΣVᵀ, of which V and the variances are free, and the searches for their minima."""

    matrices: int = 40
    data: tuple[int, ...] = (6, 16)
    latents: tuple[int, ...] = (2, 3)
    sizes: tuple[float, ...] = (0.001, 0.01, 0.1, 0.5, 1.0, 2.0)
    """Root mean square of Mε over data dimensions where columns are orthogonal, which sets C_KL."""
    starts: int = 8
    steps: int = 80
    moved: tuple[float, ...] = (0.0, 5.0, 10.0, 20.0, 40.0)
    """Nats of −Σ log σ² that one of two data points takes from the other."""
    worked_starts: int = 64


class Minimum(NamedTuple):
    """Where searches ended; ``certain`` (problem,) where that is a strict local minimum.

    Shapes: ``loss`` (problem,), the log of the stochastic loss; ``matrix`` M (problem, data, latent); ``log_variance``
    (problem, latent).
    """

    loss: Tensor
    matrix: Tensor
    log_variance: Tensor
    certain: Tensor


def minimise(
    energy: Callable[[Tensor, Tensor], Tensor],
    base: Tensor,
    offset: Tensor,
    right: Tensor,
    log_variance: Tensor,
    *,
    steps: int,
    rotate: bool = True,
) -> Minimum:
    r"""Local minima of log E‖f_D(Mε)‖² over rotations V and variances of a given Σ log σ² (Eq. 10 for one data point).

    :math:`L = \sum_j h_j\bigl(\sum_k M_{jk}^2 \sigma_k^2\bigr)`, with M = UΣVᵀ and h the energy of a row. Damped Newton
    steps along geodesics of the orthogonal group, with eigenvalues of the Hessian made positive, so that saddle points
    are left.

    Args:
        energy: of a :class:`Form`.
        base: UΣ (problem, data, latent).
        offset: a (problem, data).
        right: V to start from (problem, latent, latent).
        log_variance: log σ² to start from (problem, latent); their sum stays as it is.
        steps: at most.
        rotate: whether V is free.

    >>> base = torch.diag(torch.tensor([3.0, 1.0])).double()[None]
    >>> rotation = torch.tensor([[[0.8, -0.6], [0.6, 0.8]]]).double()
    >>> nothing = torch.zeros(1, 2).double()
    >>> found = minimise(FORMS["second_order"].energy, base, nothing, rotation, nothing, steps=30)
    >>> round(float(found.loss.exp()), 6), bool(found.certain)
    (6.0, True)
    """
    skew, balance = _tangents(base, rotate=rotate)
    count = len(skew)

    def log_loss(free: Tensor, base: Tensor, offset: Tensor, right: Tensor, log_variance: Tensor) -> Tensor:
        angle = torch.einsum("k,kij->ij", free[:count], skew)
        matrix = base @ (right + right @ (angle + angle @ angle / 2)).mT
        variance = (log_variance + balance @ free[count:]).exp()
        return energy(offset, matrix.square() @ variance).sum().log()

    value, gradient, hessian = (
        torch.func.vmap(part) for part in (log_loss, torch.func.grad(log_loss), torch.func.hessian(log_loss))
    )
    right, log_variance = right.clone(), log_variance.clone()
    still = base.new_zeros(len(base), count + base.shape[-1] - 1)
    loss = value(still, base, offset, right, log_variance)
    damping, certain = torch.full_like(loss, 1e-3), torch.zeros_like(loss, dtype=torch.bool)
    going = torch.arange(len(base), device=base.device)
    for _ in range(steps):
        given = [part[going] for part in (still, base, offset, right, log_variance)]
        slope, curvature = gradient(*given), hessian(*given)
        known = slope.isfinite().all(1) & curvature.isfinite().all(2).all(1)
        going, slope, curvature, *given = (part[known] for part in (going, slope, curvature, *given))
        values, vectors = torch.linalg.eigh(curvature)
        slope = torch.einsum("bij,bi->bj", vectors, slope)
        certain[going] = (values[:, 0] > 0) & ((slope / values).norm(dim=1) < REACHED)
        move = -torch.einsum("bij,bj->bi", vectors, slope / (values.abs() + damping[going, None]))
        move = move * LONGEST / move.norm(dim=1, keepdim=True).clamp(min=LONGEST)
        rotated = given[3] @ torch.linalg.matrix_exp(torch.einsum("bk,kij->bij", move[:, :count], skew))
        changed = given[4] + move[:, count:] @ balance.mT
        new = value(*given[:3], rotated, changed)
        better = (new <= loss[going]) | certain[going]
        ahead = going[better]
        right[ahead], log_variance[ahead], loss[ahead] = rotated[better], changed[better], new[better]
        damping[going] = torch.where(better, damping[going] / 10, damping[going] * 10).clamp(1e-12, 1e6)
        going = going[~certain[going]]
        if not len(going):
            break
    return Minimum(loss, base @ right.mT, log_variance, certain)


def _tangents(base: Tensor, *, rotate: bool) -> tuple[Tensor, Tensor]:
    """Skew-symmetric matrices (pair, latent, latent), and an orthonormal basis (latent, latent − 1) of zero sums."""
    latent = base.shape[-1]
    row, column = torch.triu_indices(latent, latent, 1, device=base.device)[:, : None if rotate else 0]
    skew, each = base.new_zeros(len(row), latent, latent), torch.arange(len(row), device=base.device)
    skew[each, row, column], skew[each, column, row] = 1.0, -1.0
    centred = torch.eye(latent, dtype=base.dtype, device=base.device) - 1 / latent
    return skew, torch.linalg.svd(centred).U[:, : latent - 1]


def measure(settings: Settings, place: Workplace) -> dict[str, pd.DataFrame]:
    """Minima of random decoders under every form, a shared budget, and two decoders worked out."""
    sizes = itertools.product(settings.data, settings.latents)
    rows = {
        "optima": (row for size in sizes for row in _optima(settings, *size, place.device)),
        "budget": _shared_budget(settings, place.device),
        "worked": _worked(settings, place.device),
        "profiles": _profiles(settings, place.device),
    }
    return {name: pd.DataFrame(part) for name, part in rows.items()}


class Problem(NamedTuple):
    """``base`` = UΣ (case, data, latent), ``offset`` a (case, data) and ``budget`` −Σ log σ² (case,)."""

    base: Tensor
    offset: Tensor
    budget: Tensor


def _random(settings: Settings, data: int, latent: int, sizes: Sequence[float]) -> Problem:
    """The same decoders at every size, sizes first; offsets are Mμ."""
    draw = torch.Generator().manual_seed(0)
    shape = (settings.matrices, data, latent)
    left = orthonormal(*shape, generator=draw)
    base = left * (0.3 + 2.7 * uniform(shape[0], 1, latent, generator=draw))
    offset = (base @ normal(shape[0], latent, 1, generator=draw)).squeeze(-1)
    budget = torch.cat([_budget(base, size) for size in sizes])
    return Problem(base.repeat(len(sizes), 1, 1), offset.repeat(len(sizes), 1), budget)


def _budget(base: Tensor, size: float) -> Tensor:
    """−Σ log σ² (case,) at which orthogonal columns, each with its best σ, make Mε of this size."""
    data, latent = base.shape[-2:]
    return torch.linalg.slogdet(base.mT @ base).logabsdet - latent * math.log(size**2 * data / latent)


def _under(form: Form, problem: Problem) -> Problem:
    return problem if form.own else problem._replace(offset=torch.zeros_like(problem.offset))


def _search(form: Form, problem: Problem, starts: int, steps: int, device: torch.device) -> Minimum:
    """Where random starts of every case ended; axes are (case, start, ...)."""
    base, offset, budget = (part.repeat_interleave(starts, 0) for part in problem)
    draw = torch.Generator().manual_seed(1)
    latent = base.shape[-1]
    right = orthonormal(len(base), latent, latent, generator=draw)
    free = normal(len(base), latent, generator=draw)
    log_variance = free - free.mean(1, keepdim=True) - budget[:, None] / latent
    given = (part.to(device) for part in (base, offset, right, log_variance))
    found = minimise(form.energy, *given, steps=steps)
    return Minimum(*(part.cpu().unflatten(0, (-1, starts)) for part in found))


def _optima(settings: Settings, data: int, latent: int, device: torch.device) -> Iterator[dict[str, Any]]:
    """One row per form and size: in how many cases each part of the theorem holds, and by how much it fails."""
    problem = _random(settings, data, latent, settings.sizes)
    for name, form in FORMS.items():
        own = _under(form, problem)
        found = _search(form, own, settings.starts, settings.steps, device)
        each = {key: values.split(settings.matrices) for key, values in _cases(form, own, found).items()}
        for place, size in enumerate(settings.sizes):
            named = {"form": name, "data": data, "latents": latent, "size": size, "cases": settings.matrices}
            yield named | _summary({key: values[place] for key, values in each.items()})


def _cases(form: Form, problem: Problem, found: Minimum) -> dict[str, Tensor]:
    """What :func:`_summary` counts (case,), at the lowest minimum of every case."""
    lowest, place = torch.where(found.certain, found.loss, torch.inf).min(1)
    highest = torch.where(found.certain, found.loss, -torch.inf).amax(1)
    case = torch.arange(len(lowest))
    matrix, log_variance = found.matrix[case, place], found.log_variance[case, place]
    jacobian = form.slope(problem.offset).unsqueeze(-1) * matrix
    return {
        "converged": found.certain.double().mean(1),
        "apart": highest - lowest,
        "cosine": largest_cosine(matrix),
        "jacobian_cosine": largest_cosine(jacobian),
        "law": _off_the_law(log_variance, matrix),
        "jacobian_law": _off_the_law(log_variance, jacobian),
        "bound_off": (lowest - _bound(problem)).abs(),
    }


def _summary(cases: dict[str, Tensor]) -> dict[str, Any]:
    """Counts, medians and extremes over cases that have a minimum."""
    has = cases["converged"] > 0
    own = {key: values[has].numpy() for key, values in cases.items()}
    found = {"found": int(has.sum()), "converged": float(cases["converged"].mean())}
    found["single"] = int((own["apart"] < SAME).sum())
    names = ("cosine", "jacobian_cosine", "law", "jacobian_law")
    found |= {f"{name}_close": int((own[name] < CLOSE).sum()) for name in names}
    found |= {name: float(np.median(own[name])) if has.any() else math.nan for name in names}
    return found | {name: float(own[name].max(initial=0.0)) for name in ("apart", "bound_off")}


def _off_the_law(log_variance: Tensor, matrix: Tensor) -> Tensor:
    """Largest distance (case,) of log σ²‖c‖² from its mean over latents: 0 by part (c)."""
    product = log_variance + matrix.square().sum(-2).log()
    return (product - product.mean(-1, keepdim=True)).abs().amax(-1)


def _bound(problem: Problem) -> Tensor:
    """Right side of (53) for one data point and a slope of 1."""
    gram, latent = problem.base.mT @ problem.base, problem.base.shape[-1]
    return math.log(latent) + (torch.linalg.slogdet(gram).logabsdet - problem.budget) / latent


def _shared_budget(settings: Settings, device: torch.device) -> Iterator[dict[str, Any]]:
    """The objective of (10) for two data points of one decoder, of which one takes budget from the other."""
    nats = torch.tensor([*settings.moved, *(-moved for moved in settings.moved)], dtype=torch.float64)
    problem = _random(settings, settings.data[0], settings.latents[0], [SMALL] * len(nats))
    problem = problem._replace(budget=problem.budget + nats.repeat_interleave(settings.matrices))
    for name in ("second_order", "sigmoid"):
        own = _under(FORMS[name], problem)
        loss = _search(FORMS[name], own, settings.starts, settings.steps, device).loss.amin(1)
        total = loss.reshape(2, len(settings.moved), -1).sum(0)
        for moved, change in zip(settings.moved, total - total[:1], strict=True):
            ends = {"change_least": float(change.min()), "change_most": float(change.max())}
            yield {"form": name, "moved": moved, "change": float(change.median())} | ends


class Worked(NamedTuple):
    """A decoder of two latents with small numbers: UΣ, μ, its form, and the size of Mε."""

    base: tuple[tuple[int, int], ...]
    mean: tuple[int, int]
    form: str
    size: float

    @property
    def problem(self) -> Problem:
        """With V = I as one case."""
        base = torch.tensor([self.base], dtype=torch.float64)
        offset = base @ torch.tensor(self.mean, dtype=torch.float64)
        return _under(FORMS[self.form], Problem(base, offset, _budget(base, self.size)))


WORKED = {
    "relu": Worked(((2, 1), (2, -1), (1, 0), (0, 2)), (1, 4), "relu_own", 0.01),
    "sine": Worked(((0, 1), (1, -3), (3, 3), (3, 3)), (0, 0), "sine", 0.75),
}
"""Columns of the first are orthogonal, and Mμ = (6, −2, 1, 8), so that the slope of its second row is the leak. Without
any leak the Jacobian's Gram matrix is (5, 2; 2, 5), which a rotation by 45° makes diagonal, and M's is (9, 0; 0, 6),
which it makes (7.5, 1.5; 1.5, 7.5), with a cosine of 1/5."""


def _worked(settings: Settings, device: torch.device) -> Iterator[dict[str, Any]]:
    """One row per minimum of the two decoders, those of the same loss once."""
    for name, worked in WORKED.items():
        form, problem = FORMS[worked.form], worked.problem
        found = _search(form, problem, settings.worked_starts, settings.steps, device)
        loss, matrix, log_variance = (part[0][found.certain[0]] for part in found[:3])
        last = -math.inf
        for start in loss.argsort():
            if float(loss[start]) - last < SAME:
                continue
            last = float(loss[start])
            jacobian = form.slope(problem.offset).unsqueeze(-1) * matrix[start]
            variances = log_variance[start].exp().sort(descending=True).values.tolist()
            cosines = [float(largest_cosine(columns)) for columns in (matrix[start][None], jacobian)]
            row = dict(zip(("cosine", "jacobian_cosine"), cosines, strict=True))
            row |= {f"variance_{place}": variance for place, variance in enumerate(variances, 1)}
            yield {"decoder": name, "log_loss": last} | row


def _profiles(settings: Settings, device: torch.device) -> Iterator[dict[str, Any]]:
    """Least log loss of the worked decoders over variances alone, at every angle of V from 0 to 90 degrees."""
    angle = torch.linspace(0, 90, ANGLES, dtype=torch.float64).deg2rad()
    right = plane_rotations(angle)
    ratio = torch.tensor([-2.0, 0.0, 2.0], dtype=torch.float64).repeat_interleave(ANGLES)
    for name, worked in WORKED.items():
        base, offset, budget = (part.expand(3 * ANGLES, *part.shape[1:]) for part in worked.problem)
        log_variance = torch.stack([ratio, -ratio], 1) - budget[:, None] / 2
        given = (part.to(device) for part in (base, offset, right.repeat(3, 1, 1), log_variance))
        found = minimise(FORMS[worked.form].energy, *given, steps=settings.steps, rotate=False)
        lowest = found.loss.cpu().reshape(3, ANGLES).amin(0)
        for where, loss in zip(angle.rad2deg().tolist(), lowest.tolist(), strict=True):
            yield {"decoder": name, "degrees": where, "log_loss": loss}


@of_tables
def _shares(
    tables: Tables, *parts: tuple[str, str], sizes: str = "", own: bool = False
) -> Iterator[Identity]:
    """Shares of cases with a minimum in which parts of the theorem fail, each in words and its column of successes.

    ``sizes`` is ``least`` for the smallest Mε, as the proof assumes, or ``beyond`` for those that it does not cover;
    ``own`` takes forms with a slope of their own in every row alone.
    """
    optima = tables["optima"]
    if sizes:
        chosen = optima["size"] == optima["size"].min() if sizes == "least" else optima["size"] >= SMALL
        optima = optima[chosen]
    forms = {name: form for name, form in FORMS.items() if form.own or not own}
    for (name, form), (words, column) in itertools.product(forms.items(), parts):
        rows = optima[optima["form"] == name]
        found, holds, count = (int(rows[key].sum()) for key in ("found", column, "cases"))
        absent = f"no minimum was found in {count - found} of {count} cases" if found < count else ""
        failing = 1 - holds / found if found else math.nan
        note = "; ".join(filter(None, (_describe(rows, column), absent)))
        yield Identity(f"{form.words}{words}", "0", failing, 0.0, n=found, note=note)


def _describe(rows: pd.DataFrame, column: str) -> str:
    """Median cosines by size; or from which size on minima have several losses, and by how much these differ."""
    name, several = column.removesuffix("_close"), rows[rows["single"] < rows["found"]]
    if name.endswith("cosine"):
        parts = [f"{part[name].median():.2g} at {size:g}" for size, part in rows.groupby("size")]
        return "median of the largest cosine " + ", ".join(parts)
    if column != "single" or several.empty:
        return ""
    size, most = several["size"].min(), several["apart"].max()
    return f"not all from a size of {size:g} on; log losses differ by up to {most:.2f}"


def _bound_cases(tables: Tables) -> Iterator[Identity]:
    off = float(tables["optima"].query("form == 'second_order'")["bound_off"].max())
    words = "Eq. 53: largest difference of the least log loss at second order and the right side"
    yield Identity(words, "0", off, SAME)


def _budget_cases(tables: Tables) -> Iterator[Identity]:
    for name, own in tables["budget"].groupby("form", sort=False):
        note = "medians " + ", ".join(f"{row.change:.3g} at {row.moved:g}" for row in own.itertuples())
        words = f"{FORMS[str(name)].words}: largest fall of Σ log L when one of two points takes budget"
        yield Identity(words, "0", max(0.0, -float(own["change_least"].min())), SAME, note=note)


def _worked_cases(tables: Tables) -> Iterator[Identity]:
    relu, sine = (tables["worked"][tables["worked"]["decoder"] == name] for name in WORKED)
    bases = [", ".join(f"({row[0]}, {row[1]})" for row in worked.base) for worked in WORKED.values()]
    words = f"leaky ReLU decoder, M = {bases[0]}, μ = {WORKED['relu'].mean}: cosine of M_D's columns"
    cosine, jacobian = (float(relu[name].iloc[0]) for name in ("cosine", "jacobian_cosine"))
    yield Identity(f"{words} at the minimum", "0", cosine, CLOSE, note=f"of the Jacobian's {jacobian:.2g}")
    apart = float(sine["log_loss"].max() - sine["log_loss"].min())
    words = f"sine decoder, M = {bases[1]}: difference of the log losses of its minima"
    yield Identity(words, "0", apart, SAME)


def plot(tables: Tables) -> Figure:
    """Cosines against the size of Mε, cases with one minimum, the shared budget, and both worked decoders."""
    titles = (
        "largest cosine at the minimum\ndashed: of the Jacobian's columns",
        "cases whose minima have one loss\ndashed: in more data dimensions",
        "budget moved between two data points",
        "worked decoders, best variances",
    )
    figure, axes = panels(titles, width=3.3, height=2.8)
    optima, profiles = tables["optima"], tables["profiles"]
    colours = dict(zip(FORMS, PALETTE, strict=True))
    look: dict[str, Any] = {"by": "form", "colours": colours, "markersize": 3}
    mean = optima.groupby(["form", "size"], sort=False)[["cosine", "jacobian_cosine"]].median().reset_index()
    words = {name: form.words for name, form in FORMS.items()}
    lines(axes[0], mean, "size", "cosine", style="o-", label=words, **look)
    own = mean[mean["form"].map(lambda name: FORMS[name].own)]
    lines(axes[0], own, "size", "jacobian_cosine", style="o--", label="", **look)
    counts = optima.groupby(["form", "data", "size"], sort=False)[["single", "found"]].sum().reset_index()
    counts["share"] = counts["single"] / counts["found"]
    for data, style in ((optima["data"].min(), "o-"), (optima["data"].max(), "o--")):
        lines(axes[1], counts[counts["data"] == data], "size", "share", style=style, label="", **look)
    lines(axes[2], tables["budget"], "moved", "change", style="o-", label="", **look)
    for decoder, profile in profiles.groupby("decoder", sort=False):
        height, colour = profile["log_loss"] - profile["log_loss"].min(), colours[WORKED[str(decoder)].form]
        axes[3].plot(profile["degrees"], height, color=colour)
    finish(axes[0], "size of Mε", xscale="log", yscale="log", ylim=(1e-7, 1.5))
    finish(axes[1], "size of Mε", xscale="log", ylim=(0, 1.05))
    finish(axes[2], "nats moved", "change of Σ log L")
    finish(axes[3], "angle of V in degrees", "log L less its minimum")
    legend_below(figure, axes[:1], 6)
    return figure


THEOREM1 = Artefact(
    key="bhowal2024.theorem1",
    title="Theorem 1: minima of the stochastic loss with a non-linear f_D",
    claims=(
        Identities(
            "Theorem 1 (a): every local minimum of the stochastic loss is global, even if f_D is non-linear",
            _shares((": share of cases whose local minima have several losses", "single")),
        ),
        Identities(
            "Theorem 1 (b): at the minimum the columns of M_D are orthogonal, for Mε ≪ 1",
            _shares((ORTHOGONAL, "cosine_close"), sizes="least"),
        ),
        Identities(
            "Theorem 1 (c): and σ² ∝ 1/‖c‖²",
            _shares((": share of cases without σ² ∝ 1/‖c‖²", "law_close"), sizes="least"),
        ),
        Identities("Eq. 53: the bound at second order is attained", _bound_cases),
        Identities("Eq. 10: equal shares of the budget are a minimum", _budget_cases),
        Identities("Theorem 1 (a) and (b) on two decoders of two latents", _worked_cases),
        Identities(
            "Theorem 1 (b) and (c) hold for the Jacobian where f_D has its own slope in every row",
            _shares(
                (": share of cases without orthogonal columns of the Jacobian", "jacobian_cosine_close"),
                (": share of cases without σ² ∝ 1/‖c‖² of its columns", "jacobian_law_close"),
                sizes="least",
                own=True,
            ),
            ours=True,
        ),
        Identities(
            "Theorem 1 (b) beyond the expansion, for larger Mε",
            _shares((f", Mε of {SMALL:g} and more{ORTHOGONAL}", "cosine_close"), sizes="beyond"),
            ours=True,
        ),
    ),
    presets={
        "smoke": Settings(
            4, data=(4,), latents=(2,), sizes=(0.001, 0.5), starts=4, steps=40, moved=(0.0, 40.0)
        ),
        "full": Settings(),
    },
    measure=measure,
    plot=plot,
    note="U, Σ and f_D are fixed, V and the variances are free under a fixed Σ log σ², as in (10). The loss is exact. "
    "The proof replaces it by its second order and takes f_D'(0) out of the sum over rows (49, 50). With one f_D for "
    "all rows that is right in the limit Mε → 0; but f_D(Mε) = g(Mμ + Mε) − g(Mμ) (Proposition 4) has its own slope "
    "in every row, so that the columns that become orthogonal are those of the Jacobian diag(g') M and not those of "
    "M_D. With a bounded f_D the shared budget of (10) has no minimum.",
)
