"""What the paper's tables and theorems measure of trained members, on items they have not seen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unseam.data import World, split
from unseam.metrics import (
    DciSettings,
    MigEntropySettings,
    MigSupSettings,
    dci,
    mig,
    mig_entropy,
    mig_sup,
)
from unseam.models import Encoding
from unseam.papers.bhowal2024.local import Around, around
from unseam.papers.bhowal2024.neighbours import closeness, nearest
from unseam.papers.bhowal2024.setups import Setup
from unseam.papers.rolinek2019.measures import ACTIVE, Unseen, measures
from unseam.training import Ensemble, precision

__all__ = ["COLUMNS", "SCORES", "Measured", "entropy_gaps", "measured", "scores"]

COLUMNS = ("seed", "point", "latent", "variance", "jacobian", "fitted")
"""Of the table of variances and column lengths."""

SHOWN = 25
"""Points of the first member whose columns are kept for figures."""
SPREAD = 0.01
"""Variance of its means over the data above which a code counts in MIG-sup."""
TAKEN = ("disent", "dto", "dto_active", "gap", "cosine", "active", "rec", "kl", "degenerate")
"""Of what rolinek2019 measures."""
SCORES = ("seed", "mig", "mig_sup", "mig_binned", "mig_sup_binned", "mig_sup_code", *TAKEN)
"""Keys of :func:`scores`."""

Rows = list[dict[str, Any]]


class Measured(NamedTuple):
    """Rows of the tables of :class:`~unseam.papers.bhowal2024.runs.Followed`, without the last."""

    members: Rows
    points: Rows
    fits: Rows
    signs: Rows
    columns: Rows


@contextmanager
def _full_precision() -> Iterator[None]:
    """Products and convolutions in full single precision: cuDNN's convolutions are in TF32 where nobody asks.

    Its algorithms are not tried out either, as each size of batch comes a few times only.
    """
    with precision("float32"):
        torch.backends.cudnn.benchmark = False
        yield


@_full_precision()
def measured(ensemble: Ensemble, world: World, setup: Setup, *, audited: bool = True) -> Measured:
    """Scores of the codes, geometry of the decoders, local fits and neighbours of every member.

    Keys of a member: those of :func:`scores`, ``dci``, and those of :func:`~unseam.papers.bhowal2024.local.around` and
    :func:`~unseam.papers.bhowal2024.neighbours.closeness`.

    Args:
        ensemble: members of one stack.
        world: the data, on the ensemble's device.
        setup: how many items, points and noises.
        audited: whether to follow the released procedure too.

    >>> import unseam
    >>> from unseam.papers.bhowal2024.setups import CELLS, SPRITES, smoke
    >>> tiny = smoke(SPRITES, seeds=1, steps=1)
    >>> world = tiny.load()
    >>> found = measured(unseam.train(tiny.trials(CELLS[2]), world=world), world, tiny)
    >>> len(found.members), len(found.points), len(found.fits)
    (1, 5, 2)
    """
    for stack in ensemble.stacks:
        stack.template.eval()
    unseen = _unseen(world, setup)
    code = _encoded(ensemble, unseen)
    own, trees = _scored(ensemble, unseen, code, setup), _dci(code.mean, unseen, setup)
    found = nearest(world.images(unseen.test[: setup.neighbours]))
    tables = Measured([], [], [], [], [])
    for member, seed in enumerate(trial.seed for trial in ensemble.trials):
        mean, variance = (value[member] for value in code)
        here = Encoding(mean[: setup.points], variance[: setup.points])
        alive = _alive(Encoding(mean, variance))
        local = around(ensemble[member], here, alive, setup, audited=audited)
        near = closeness(Encoding(mean[: setup.neighbours], variance[: setup.neighbours]), found)
        tables.members.append(own[member] | {"dci": trees[member]} | local.summary | near)
        _append(tables, seed, local, here, alive, first=member == 0)
    return tables


@_full_precision()
def scores(ensemble: Ensemble, world: World, setup: Setup) -> Rows:
    """A row a member: ``seed``, scores of its codes, and how its decoder stands.

    Keys: ``mig`` and ``mig_sup``, in the entropy form and without the factors that the authors leave out (see
    :func:`entropy_gaps`); ``mig_binned``, ``mig_sup_binned`` (by the factor's entropy) and ``mig_sup_code`` (by the
    code's), of binned means and all factors; of :func:`unseam.papers.rolinek2019.measures.measures` the k-NN score
    ``disent``, ``dto``, ``dto_active``, ``gap``, ``cosine``, ``active``, ``rec``, ``kl``, ``degenerate``.

    >>> import unseam
    >>> from unseam.papers.bhowal2024.setups import CELLS, SPRITES, smoke
    >>> tiny = smoke(SPRITES, seeds=1, steps=1)
    >>> world = tiny.load()
    >>> list(scores(unseam.train(tiny.trials(CELLS[2]), world=world), world, tiny)[0])[:3]
    ['seed', 'mig', 'mig_sup']
    """
    unseen = _unseen(world, setup)
    return _scored(ensemble, unseen, _encoded(ensemble, unseen), setup)


def _scored(ensemble: Ensemble, unseen: Unseen, code: Encoding, setup: Setup) -> Rows:
    factors, others = _factors(unseen), measures(ensemble, unseen)
    gaps, gaps_sup = entropy_gaps(code, factors, excluded=setup.excluded(unseen.world))
    by_code = MigSupSettings(normalisation="code")
    columns = (
        gaps,
        gaps_sup,
        mig(code.mean, factors).score,
        mig_sup(code.mean, factors).score,
        mig_sup(code.mean, factors, preset=by_code).score,
    )
    seeds = [trial.seed for trial in ensemble.trials]
    taken = zip(*([other[name] for other in others] for name in TAKEN), strict=True)
    return [
        dict(zip(SCORES, (seed, *own, *rest), strict=True))
        for seed, *own, rest in zip(seeds, *(part.tolist() for part in columns), taken, strict=True)
    ]


def entropy_gaps(code: Encoding, factors: Tensor, *, excluded: tuple[int, ...] = ()) -> tuple[Tensor, Tensor]:
    """MIG and MIG-sup (member,) from one table of information, both relative to log |V_k|.

    The information is that of samples of the posteriors, as Chen et al. (2018) estimate it
    (:func:`unseam.metrics.mig_entropy`). MIG-sup (Li et al. 2020) takes the gap of each code over factors, and its mean
    over codes whose means vary.

    Args:
        code: means and variances (member, item, latent).
        factors: (item, factor).
        excluded: factors that do not count.

    >>> grid = torch.cartesian_prod(torch.arange(4), torch.arange(5))
    >>> exact = Encoding(grid.double()[None], torch.full((1, 20, 2), 1e-4).double())
    >>> [round(float(value), 3) for value in entropy_gaps(exact, grid)]
    [1.0, 1.0]
    """
    found = mig_entropy(
        code.mean, factors, variance=code.variance, preset=MigEntropySettings(excluded=excluded)
    )
    counted = [place for place in range(factors.shape[1]) if place not in excluded]
    values = torch.tensor([len(factors[:, place].unique()) for place in counted]).to(found.information)
    shares = found.information[..., counted] / values.clamp(min=2).log()
    best = shares.topk(min(2, len(counted)), -1).values
    gaps = best[..., 0] - (best[..., 1] if len(counted) > 1 else 0)
    varies = code.mean.double().var(1, correction=0) > SPREAD
    return found.score, (gaps * varies).sum(-1) / varies.sum(-1).clamp(min=1)


def _unseen(world: World, setup: Setup) -> Unseen:
    _, validation, test = (part.to(world.device) for part in split(len(world), (0.8, 0.1, 0.1), seed=0))
    return Unseen(world, validation, test[: setup.scored], setup.points, True)


def _append(
    tables: Measured, seed: int, local: Around, code: Encoding, alive: Tensor, *, first: bool
) -> None:
    for point, row in enumerate(_rows(local.distances)):
        tables.points.append({"seed": seed, "point": point} | row)
    tables.fits.extend({"seed": seed} | row for row in local.fits)
    tables.signs.extend({"seed": seed} | row for row in local.signs)
    if first:
        tables.columns.extend({"seed": seed} | row for row in _columns(local, code, alive))


def _rows(columns: dict[str, Tensor]) -> Iterator[dict[str, float]]:
    for row in zip(*(values.tolist() for values in columns.values()), strict=True):
        yield dict(zip(columns, row, strict=True))


def _columns(local: Around, code: Encoding, alive: Tensor) -> Iterator[dict[str, Any]]:
    """Variance and squared column length of each active latent, of the Jacobian and of M_D."""
    latents = alive.nonzero().flatten().tolist()
    parts = (code.variance, local.jacobian_squares, local.fitted_squares)
    for point, rows in enumerate(zip(*(part[:SHOWN, alive].tolist() for part in parts), strict=True)):
        for latent, variance, jacobian, fitted in zip(latents, *rows, strict=True):
            yield dict(zip(COLUMNS[1:], (point, latent, variance, jacobian, fitted), strict=True))


def _encoded(ensemble: Ensemble, unseen: Unseen) -> Encoding:
    parts = [ensemble.encode(unseen.world.images(part)) for part in unseen.test.split(4096)]
    return Encoding(*(torch.cat(values, dim=1) for values in zip(*parts, strict=True)))


def _alive(code: Encoding) -> Tensor:
    """Active latents (latent,) of a diagonal posterior by their KL."""
    return (code.mean.square() + code.variance - code.variance.log() - 1).mean(0) / 2 > ACTIVE


def _factors(unseen: Unseen) -> Tensor:
    factors = unseen.world.factors
    return factors[unseen.test.to(factors.device)]


def _dci(mean: Tensor, unseen: Unseen, setup: Setup) -> list[float]:
    """Disentanglement of DCI (member,)."""
    boosting = DciSettings(
        train=setup.boosted,
        test=max(1, setup.boosted // 2),
        rounds=setup.rounds,
        splits="binned",
        precision="float32",
    )
    return dci(mean, _factors(unseen), preset=boosting).score.tolist()
