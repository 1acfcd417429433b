"""What the paper's tables and theorems measure of trained members, on items they have not seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unseam.data import World, split
from unseam.metrics import DciSettings, MigSupSettings, dci, mig, mig_sup
from unseam.models import Encoding
from unseam.papers.bhowal2024.local import Around, around
from unseam.papers.bhowal2024.neighbours import closeness, nearest
from unseam.papers.bhowal2024.setups import Setup
from unseam.papers.rolinek2019.measures import ACTIVE, Unseen, measures
from unseam.training import Ensemble

__all__ = ["COLUMNS", "Measured", "measured"]

COLUMNS = ("seed", "point", "latent", "variance", "jacobian", "fitted")
"""Of the table of variances and column lengths."""

SHOWN = 25
"""Points of the first member whose columns are kept for figures."""
TAKEN = ("disent", "dto", "dto_active", "gap", "cosine", "active", "rec", "kl", "degenerate")
"""Of what rolinek2019 measures."""

Rows = list[dict[str, Any]]


class Measured(NamedTuple):
    """Rows of the tables of :class:`~unseam.papers.bhowal2024.runs.Followed`, without the last.

    >>> Measured([], [], [], [], []).fits
    []
    """

    members: Rows
    points: Rows
    fits: Rows
    signs: Rows
    columns: Rows


def measured(ensemble: Ensemble, world: World, setup: Setup) -> Measured:
    """Scores of the codes, geometry of the decoders, local fits and neighbours of every member.

    Keys of a member: ``mig``, ``mig_sup`` (normalised by the factor's entropy), ``mig_sup_code`` (by the code's),
    ``dci``, and of :func:`unseam.papers.rolinek2019.measures.measures` the k-NN score ``disent``, ``dto``,
    ``dto_active``, ``gap``, ``cosine``, ``active``, ``rec``, ``kl``, ``degenerate``; those of
    :func:`~unseam.papers.bhowal2024.local.around` and :func:`~unseam.papers.bhowal2024.neighbours.closeness`.

    Args:
        ensemble: members of one stack.
        world: the data, on the ensemble's device.
        setup: how many items, points and noises.

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
    _, validation, test = (part.to(world.device) for part in split(len(world), (0.8, 0.1, 0.1), seed=0))
    test = test[: setup.scored]
    code = _encoded(ensemble, world, test)
    others = measures(ensemble, Unseen(world, validation, test, setup.points, True))
    scores = _scores(code.mean, world, test, setup)
    found = nearest(world.images(test[: setup.neighbours]))
    tables = Measured([], [], [], [], [])
    for member, seed in enumerate(trial.seed for trial in ensemble.trials):
        mean, variance = (value[member] for value in code)
        here = Encoding(mean[: setup.points], variance[: setup.points])
        alive = _alive(Encoding(mean, variance))
        local = around(ensemble[member], here, alive, setup)
        near = closeness(Encoding(mean[: setup.neighbours], variance[: setup.neighbours]), found)
        kept = {name: others[member][name] for name in TAKEN}
        own = {name: values[member] for name, values in scores.items()}
        tables.members.append({"seed": seed} | own | kept | local.summary | near)
        _append(tables, seed, local, here, alive, first=member == 0)
    return tables


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
    for point in range(min(SHOWN, len(code.mean))):
        for latent in alive.nonzero().flatten().tolist():
            yield {
                "point": point,
                "latent": latent,
                "variance": float(code.variance[point, latent]),
                "jacobian": float(local.jacobian_squares[point, latent]),
                "fitted": float(local.fitted_squares[point, latent]),
            }


def _encoded(ensemble: Ensemble, world: World, test: Tensor) -> Encoding:
    parts = [ensemble.encode(world.images(part)) for part in test.split(4096)]
    return Encoding(*(torch.cat(values, dim=1) for values in zip(*parts, strict=True)))


def _alive(code: Encoding) -> Tensor:
    """Active latents (latent,) of a diagonal posterior by their KL."""
    return (code.mean.square() + code.variance - code.variance.log() - 1).mean(0) / 2 > ACTIVE


def _scores(mean: Tensor, world: World, test: Tensor, setup: Setup) -> dict[str, list[float]]:
    """Scores (member,) of all codes; DCI member by member, as its trees take memory."""
    factors = world.factors[test.to(world.factors.device)]
    by_code = MigSupSettings(normalisation="code")
    boosting = DciSettings(
        train=setup.boosted,
        test=max(1, setup.boosted // 2),
        rounds=setup.rounds,
        splits="binned",
        precision="float32",
    )
    return {
        "mig": mig(mean, factors).score.tolist(),
        "mig_sup": mig_sup(mean, factors).score.tolist(),
        "mig_sup_code": mig_sup(mean, factors, preset=by_code).score.tolist(),
        "dci": [float(dci(codes, factors, preset=boosting).score) for codes in mean],
    }
