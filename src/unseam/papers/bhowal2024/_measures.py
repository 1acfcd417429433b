"""What the paper's tables and theorems measure of trained members, on items they have not seen."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from unseam import geometry
from unseam.data import World
from unseam.geometry.local_fit import LocalFit, local_fits
from unseam.metrics import DciSettings, MigEntropySettings, MigSupSettings, dci, mig, mig_entropy, mig_sup
from unseam.models import VAE, Encoding
from unseam.papers.bhowal2024._setups import Setup
from unseam.papers.bhowal2024.released import gram_root, released_errors, signed_fits
from unseam.papers.measures import ACTIVE, Unseen, measures
from unseam.papers.tables import rows_of
from unseam.training import Ensemble, precision

COLUMNS = ("seed", "point", "latent", "variance", "jacobian")
"""Of the table of variances and column lengths."""
SHOWN = 25
"""Points of the first member whose columns are stored for figures."""
SPREAD = 0.01
"""Variance of its means over the data above which a code counts in MIG-sup."""
TAKEN = ("disent", "dto", "dto_active", "gap", "cosine", "active", "rec", "kl")
"""Of :func:`unseam.papers.measures.measures`."""
SCORES = ("seed", "mig", "mig_sup", "mig_binned", "mig_sup_code", *TAKEN)
"""Keys of :func:`scores`."""
NEIGHBOURS = 10
"""k of Theorem 2, which the paper leaves open."""
TINY = 1e-6
FORMS: tuple[Literal["linear", "nonlinear"], ...] = ("linear", "nonlinear")
"""Of local decoders."""

Rows = list[dict[str, Any]]


class Measured(NamedTuple):
    """Rows of tables, those of ``signs`` and ``columns`` for the paper's three models and for the first seed alone."""

    members: Rows
    """One per model."""
    points: Rows
    """One per model and point: squared distances from orthogonal columns, for scores that compare models."""
    fits: Rows
    """One per model and number of steps of the local fit: held-out errors."""
    signs: Rows
    """One per model, point and factor of the released penalty."""
    columns: Rows
    """One per active latent and point, of a few: its variance, squared column length."""


@contextmanager
def _full_precision() -> Iterator[None]:
    """Products and convolutions in full single precision: cuDNN's convolutions are in TF32 by default.

    Its algorithms are not benchmarked either, as each batch size occurs a few times only.
    """
    with precision("float32"):
        torch.backends.cudnn.benchmark = False
        yield


@_full_precision()
def measured(ensemble: Ensemble, world: World, setup: Setup, *, audited: bool = True) -> Measured:
    """Scores of the codes, geometry of the decoders, local fits and neighbours of every member of one stack.

    Keys of a member: those of :func:`scores`, ``dci``, and those of :func:`around` and :func:`closeness`. ``audited``
    says whether to follow the released procedure too.
    """
    for stack in ensemble.stacks:
        stack.template.eval()
    given = _encoded(ensemble, world, setup)
    unseen, code, factors = given
    own = _scored(ensemble, *given, setup)
    sizes = {"train": setup.boosted, "test": max(1, setup.boosted // 2), "rounds": setup.rounds}
    boosting = DciSettings(splits="binned", precision="float32", **sizes)
    trees = dci(code.mean, factors, preset=boosting).score.tolist()
    found = nearest(world.images(unseen.test[: setup.neighbours]))
    tables = Measured([], [], [], [], [])
    for member, seed in enumerate(trial.seed for trial in ensemble.trials):
        mean, variance = (value[member] for value in code)
        here = Encoding(mean[: setup.points], variance[: setup.points])
        active = _active(Encoding(mean, variance))
        local = around(ensemble[member], here, active, setup, audited=audited)
        near = closeness(Encoding(mean[: setup.neighbours], variance[: setup.neighbours]), found)
        tables.members.append(own[member] | {"dci": trees[member]} | local.members[0] | near)
        for name in ("points", "fits", "signs") + ("columns",) * (member == 0):
            getattr(tables, name).extend({"seed": seed} | row for row in getattr(local, name))
    return tables


@_full_precision()
def scores(ensemble: Ensemble, world: World, setup: Setup) -> Rows:
    """One row per member: ``seed``, scores of its codes, and the geometry of its decoder.

    Keys: ``mig`` and ``mig_sup``, in the entropy form and without the factors that the authors exclude (see
    :func:`entropy_gaps`); ``mig_binned`` and ``mig_sup_code`` (over the code's entropy), of binned means and all
    factors; of :func:`unseam.papers.measures.measures` the k-NN score ``disent``, ``dto``, ``dto_active``, ``gap``,
    ``cosine``, ``active``, ``rec``, ``kl``.
    """
    return _scored(ensemble, *_encoded(ensemble, world, setup), setup)


def _scored(ensemble: Ensemble, unseen: Unseen, code: Encoding, factors: Tensor, setup: Setup) -> Rows:
    gaps = (
        *entropy_gaps(code, factors, excluded=setup.excluded(unseen.world)),
        mig(code.mean, factors).score,
        mig_sup(code.mean, factors, preset=MigSupSettings(normalisation="code")).score,
    )
    others = measures(ensemble, unseen)
    own = zip(*(part.tolist() for part in gaps), strict=True)
    return [
        dict(zip(SCORES, (trial.seed, *scored, *(other[name] for name in TAKEN)), strict=True))
        for trial, scored, other in zip(ensemble.trials, own, others, strict=True)
    ]


def entropy_gaps(code: Encoding, factors: Tensor, *, excluded: tuple[int, ...] = ()) -> tuple[Tensor, Tensor]:
    """MIG and MIG-sup (member,) from one table of information, both relative to log |V_k|.

    The information is that of samples of the posteriors, as Chen et al. (2018) estimate it
    (:func:`unseam.metrics.mig_entropy`). MIG-sup (Li et al. 2020) takes the gap of each code over factors, and its mean
    over codes whose means vary. The code is (member, item, latent); factors (item, factor) that are ``excluded`` do not
    count.

    >>> grid = torch.cartesian_prod(torch.arange(4), torch.arange(5))
    >>> exact = Encoding(grid.double()[None], torch.full((1, 20, 2), 1e-4).double())
    >>> [round(float(value), 3) for value in entropy_gaps(exact, grid)]
    [1.0, 1.0]
    """
    preset = MigEntropySettings(excluded=excluded)
    found = mig_entropy(code.mean, factors, variance=code.variance, preset=preset)
    counted = [place for place in range(factors.shape[1]) if place not in excluded]
    values = torch.tensor([len(factors[:, place].unique()) for place in counted]).to(found.information)
    shares = found.information[..., counted] / values.clamp(min=2).log()
    best = shares.topk(min(2, len(counted)), -1).values
    gaps = best[..., 0] - (best[..., 1] if len(counted) > 1 else 0)
    varies = code.mean.double().var(1, correction=0) > SPREAD
    return found.score, (gaps * varies).sum(-1) / varies.sum(-1).clamp(min=1)


def _encoded(ensemble: Ensemble, world: World, setup: Setup) -> tuple[Unseen, Encoding, Tensor]:
    """Where members are measured, their codes there, and the factors."""
    unseen = Unseen.of(setup.base, world, setup.points)
    unseen = unseen._replace(test=unseen.test[: setup.scored])
    parts = [ensemble.encode(world.images(part)) for part in unseen.test.split(4096)]
    code = Encoding(*(torch.cat(values, dim=1) for values in zip(*parts, strict=True)))
    return unseen, code, world.factors[unseen.test.to(world.factors.device)]


def _active(code: Encoding) -> Tensor:
    """Active latents (latent,) of a diagonal posterior by their KL."""
    return geometry.gaussian_kl(code.mean, code.variance).mean(0) > ACTIVE


# Decoders around posterior means


@torch.no_grad()
def around(model: VAE, code: Encoding, active: Tensor, setup: Setup, *, audited: bool = True) -> Measured:
    """Measure a decoder of means (Eqs. 8, 11, 12; A.8.2; Lemma 4; Theorem 1 c).

    Numbers: ``linear``, ``nonlinear``, held-out errors of local decoders relative to the stochastic loss, for the same
    noises, start and steps; ``loss_jacobian``, ``loss_linear``, ``loss_nonlinear``, mean relative error of the
    stochastic loss that each of them predicts for the same held-out noises, and ``total_...``, the relative error of
    its sum over points, as in A.8.2; ``od_invariant`` over active latents, of M_D (``od_invariant_fit``) and of the
    Jacobian; ``gap_means``, the Jacobian's Hadamard gap, and ``gap_rotated``, the same after a random rotation of the
    latents; ``slope`` of the law σ² ∝ 1/‖c‖² over active latents, median over points, of the Jacobian and of M_D
    (``slope_fit``), of σ²/(1 − σ²) in the place of σ² (``slope_whole``), as the whole KL has it, and
    ``slope_control``, with variances of other latents. Those of
    :func:`~unseam.papers.bhowal2024.released.released_errors`, where audited. Of points ``turned`` = ‖V − I‖² =
    ‖U − Û‖² and ``stretched`` = ‖Σ − Σ̂‖² of M_D, and the same of the Jacobian.

    Args:
        model: in evaluation mode.
        code: posterior means and variances (point, latent).
        active: active latents (latent,).
        setup: noises and steps of the fits.
        audited: whether to follow the released procedure too.

    Returns:
        One row of ``members``, and the others without ``seed``.
    """

    def decoder(z: Tensor) -> Tensor:
        return model.likelihood.mean(model.decode(z))

    fitted = partial(local_fits, decoder, *code, noises=setup.noises, held_out=setup.held_out)
    paths = {form: fitted(form=form, steps=setup.fit_steps, generator=_generator()) for form in FORMS}
    path: Rows = [{"steps": steps} for steps in setup.fit_steps]
    for form, each in paths.items():
        for row, fit in zip(path, each, strict=True):
            row[form] = float(fit.error.double().mean() / fit.stochastic.double().mean())
    fits = {str(form): each[-1] for form, each in paths.items()}
    model.double()
    metric = geometry.pullback(decoder, code.mean.double())
    model.to(code.mean.dtype)
    matrix = fits["nonlinear"].matrix.double()
    gram = matrix.mT @ matrix
    summary = {form: path[-1][form] for form in fits} | _losses(fits, metric, code, setup)
    summary |= _orthogonality(metric, gram, active) | _law(code, metric, gram, active)
    some = Encoding(code.mean[: setup.audited], code.variance[: setup.audited])
    distances: dict[str, Tensor] = {}
    for prefix, given in (("", gram), ("jacobian_", metric)):
        found = geometry.od_distances(gram_root(given))
        distances |= {f"{prefix}turned": found.right, f"{prefix}stretched": found.scale}
    return Measured(
        [summary | (released_errors(decoder, some) if audited else {})],
        [{"point": point} | row for point, row in enumerate(rows_of(distances))],
        path,
        signed_fits(decoder, some) if audited else [],
        _columns(code.variance, metric.diagonal(dim1=-2, dim2=-1), active),
    )


def _columns(variance: Tensor, squares: Tensor, active: Tensor) -> Rows:
    each = itertools.product(range(len(variance[:SHOWN])), active.nonzero().flatten().tolist())
    rows = ((*place, float(variance[place]), float(squares[place])) for place in each)
    return [dict(zip(COLUMNS[1:], row, strict=True)) for row in rows]


def held_out_shifts(code: Encoding, setup: Setup) -> Tensor:
    """The held-out displacements ε (noise, point, latent) of every local fit of this code."""
    shape = (setup.noises + setup.held_out, *code.mean.shape)
    noise = torch.randn(shape, generator=_generator(), dtype=code.mean.dtype)[setup.noises :]
    return noise.to(code.mean.device) * code.variance.sqrt()


def _generator() -> torch.Generator:
    """The same noises for every form, number of steps and member."""
    return torch.Generator().manual_seed(0)


def _losses(fits: Mapping[str, LocalFit], metric: Tensor, code: Encoding, setup: Setup) -> dict[str, float]:
    shifts = held_out_shifts(code, setup).double()
    predicted = {form: fit.predicted_stochastic.double() for form, fit in fits.items()}
    predicted["jacobian"] = torch.einsum("kpi,pij,kpj->p", shifts, metric, shifts) / len(shifts)
    truth = fits["linear"].stochastic.double()
    found = {}
    for name, loss in predicted.items():
        found[f"loss_{name}"] = float(((loss - truth).abs() / truth).mean())
        found[f"total_{name}"] = float((loss.sum() - truth.sum()).abs() / truth.sum())
    return found


def _orthogonality(metric: Tensor, gram: Tensor, active: Tensor) -> dict[str, float]:
    """The invariant score of active columns; none of fewer than two."""
    names = ("od_invariant", "od_invariant_fit", "gap_means", "gap_rotated")
    count = int(active.sum())
    if count < 2:
        return dict.fromkeys(names, float("nan"))
    own, fitted = geometry.restrict(metric, active), geometry.restrict(gram, active)
    drawn = torch.randn(len(own), count, count, generator=_generator(), dtype=own.dtype).to(own.device)
    rotation = torch.linalg.qr(drawn).Q
    values = [geometry.od_score(gram_root(gram), form="invariant") for gram in (own, fitted)]
    values += [geometry.hadamard_gap(gram) for gram in (own, rotation.mT @ own @ rotation)]
    return {name: float(value.mean()) for name, value in zip(names, values, strict=True)}


def _law(code: Encoding, metric: Tensor, gram: Tensor, active: Tensor) -> dict[str, float]:
    """Slopes of the law, medians over points; none of fewer than two active latents."""
    whole = code.variance / (1 - code.variance).clamp(min=TINY)
    order = torch.arange(len(active), device=active.device)
    order[active] = order[active].roll(1)
    kinds = {
        "slope": (code.variance, metric),
        "slope_fit": (code.variance, gram),
        "slope_whole": (whole, metric),
        "slope_control": (code.variance[:, order], metric),
    }
    if int(active.sum()) < 2:
        return dict.fromkeys(kinds, float("nan"))
    return {
        name: float(geometry.variance_norm_law(variance.double(), given, active=active).slope.nanmedian())
        for name, (variance, given) in kinds.items()
    }


# Neighbours (Theorem 2)


def nearest(x: Tensor, *, count: int = NEIGHBOURS) -> Tensor:
    """The ``count`` nearest (item, count) of items (item, *data) among themselves, by distance, itself excluded."""
    points, rows = x.flatten(1).double(), []
    for start in range(0, len(points), 512):
        part = torch.cdist(points[start : start + 512], points)
        part.diagonal(start).fill_(torch.inf)
        rows.append(part.topk(count, largest=False).indices)
    return torch.cat(rows)


def closeness(code: Encoding, near: Tensor) -> dict[str, float]:
    r"""How close posteriors of neighbouring items lie, with and without their own width.

    ``near`` is the printed :math:`E \lVert z^{(i)} - z^{(k)} \rVert^2` of neighbours, over samples of both posteriors:
    :math:`\lVert \mu_i - \mu_k \rVert^2 + \operatorname{tr} \Sigma_i + \operatorname{tr} \Sigma_k`, which tends to
    twice the number of latents as the KL vanishes; ``near_means`` its first term; ``far`` and ``far_means`` the same
    for random pairs; ``overlap``, mean Bhattacharyya coefficient of neighbours' posteriors; ``shared``, the fraction of
    the k posteriors of largest overlap that belong to the k nearest items, and ``shared_chance``, the same by chance.

    The code is (item, latent), ``near`` has the neighbours (item, k) of the same items.

    >>> apart = Encoding(torch.tensor([[0.0], [1.0], [5.0]]), torch.full((3, 1), 0.5))
    >>> closeness(apart, nearest(torch.tensor([[0.0], [1.0], [5.0]]), count=1))["near"]
    7.0
    """
    mean, variance = code.mean.double(), code.variance.double()
    count = len(mean)
    width = variance.sum(1)
    between = (mean[:, None] - mean[near]).square().sum(-1)
    others = torch.arange(count, device=mean.device).roll(count // 2)
    apart = (mean - mean[others]).square().sum(-1)
    coefficient = _overlap(mean[:, None], variance[:, None], mean[near], variance[near])
    shared = (_most_overlapping(mean, variance, near.shape[1])[:, :, None] == near[:, None, :]).any(-1)
    return {
        "near": float((between + width[:, None] + width[near]).mean()),
        "near_means": float(between.mean()),
        "far": float((apart + width + width[others]).mean()),
        "far_means": float(apart.mean()),
        "overlap": float(coefficient.mean()),
        "shared": float(shared.double().mean()),
        "shared_chance": near.shape[1] / (count - 1),
    }


def _overlap(mean: Tensor, variance: Tensor, other_mean: Tensor, other_variance: Tensor) -> Tensor:
    """Bhattacharyya coefficient of Gaussians with diagonal covariances."""
    middle = (variance + other_variance) / 2
    distance = (mean - other_mean).square() / middle / 8
    distance = distance + (middle.log() - (variance.log() + other_variance.log()) / 2) / 2
    return torch.exp(-distance.sum(-1))


def _most_overlapping(mean: Tensor, variance: Tensor, count: int) -> Tensor:
    """The posteriors (item, k) of largest overlap with each, itself excluded."""
    rows = []
    for start in range(0, len(mean), 64):
        own = slice(start, start + 64)
        part = _overlap(mean[own, None], variance[own, None], mean, variance)
        part.diagonal(start).fill_(-1.0)
        rows.append(part.topk(count).indices)
    return torch.cat(rows)
