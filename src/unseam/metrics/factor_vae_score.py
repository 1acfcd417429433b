"""FactorVAE score: whether the code that varies least tells which factor was held fixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from unseam.metrics._inputs import (
    Checked,
    Table,
    at_least_one,
    checked,
    chosen,
    default_generator,
    distinct,
    unstacked,
)
from unseam.metrics._sharing import in_parts, partners, shared
from unseam.metrics._splits import share_without, varying
from unseam.metrics.intervals import Interval, groups, jackknife

__all__ = ["FactorVaeScore", "FactorVaeSettings", "factor_vae_score"]


@dataclass(frozen=True)
class FactorVaeSettings:
    """Parameters of :func:`factor_vae_score`."""

    train: int = 10_000
    """Votes that the majority is taken over."""
    test: int = 5_000
    """Votes that it is scored on."""
    batch: int = 64
    """Points a vote."""
    points: int = 10_000
    """Points that the global variances are taken over."""
    prune: float = 0.05
    """Codes with a smaller standard deviation have no vote."""
    bins: int = 20
    """Bins of equal width of a continuous factor."""

    def __post_init__(self) -> None:
        """Settings that make no sense are refused where they are made."""
        at_least_one(train=self.train, test=self.test, bins=self.bins)
        if min(self.batch, self.points) < 2:
            raise ValueError(
                f"batch and points must be at least 2 for a variance, got {self.batch} and {self.points}"
            )
        if self.prune < 0:
            raise ValueError(f"prune must not be negative, got {self.prune}")


FACTOR_VAE_PRESETS = {"dlib": FactorVaeSettings(), "fast": FactorVaeSettings(train=2_000, test=1_000)}
"""``dlib``: as in the study of 12 600 models (Locatello et al. 2019); ``fast``: a fifth of the votes."""


class FactorVaeScore(NamedTuple):
    """FactorVAE score, and what it is made of."""

    score: Tensor
    """Held-out accuracy of the majority vote, () or (member,), in [0, 1]."""
    interval: Interval
    """Of the score."""
    train_score: Tensor
    """Accuracy on the votes that the majority was taken over, () or (member,)."""
    votes: Tensor
    """Training votes (..., latent, factor): how often each code varied least while each factor was fixed."""
    active: Tensor
    """Codes that may be voted for (..., latent), boolean."""
    settings: FactorVaeSettings
    """As used: with as many points as there were."""


def factor_vae_score(
    codes: Tensor | NDArray[Any],
    factors: Table,
    *,
    discrete: Sequence[bool] | None = None,
    variance: Tensor | NDArray[Any] | None = None,
    preset: str | FactorVaeSettings = "dlib",
    generator: torch.Generator | None = None,
) -> FactorVaeScore:
    r"""Accuracy of telling a fixed factor by the code that varies least (Kim & Mnih 2018, §4).

    A vote fixes a factor k at a value, draws a batch of points that have it, and names

    .. math:: j = \arg\min_j \; \text{Var}_{\text{batch}}[z_j] / \text{Var}[z_j]

    among codes that vary at all. The classifier maps each j to the factor it was voted for most often; the score
    is its accuracy on new votes. Factor and value are drawn as in a uniformly drawn row, and the batch, with
    replacement, from the rows at hand that share the value: grids may be incomplete, and nothing is encoded twice.
    Continuous factors are cut into bins of equal width.

    Unchanged by order (up to ties), sign and shift of codes, and by scale as long as none is pruned. All codes
    pruned: score 0. Where codes vary equally little, as in a batch of one row repeated, the first is voted for; a
    code without a training vote stands for the first factor. Constant factors are not drawn, unless all are constant.
    With one factor the score is 1 unless all codes are pruned.

    Args:
        codes: (batch, latent), or (member, batch, latent).
        factors: (batch, factor).
        discrete: which factors are discrete; by default those of an integer type.
        variance: posterior variance, not used.
        preset: ``"dlib"``, ``"fast"`` or settings.
        generator: draws the votes, the same for all members; by default one with seed 0.

    Returns:
        The score and its parts; the interval leaves out groups of the test votes, so that it covers the draw
        of votes and not that of the points.

    >>> factors = torch.cartesian_prod(torch.arange(4), torch.arange(5))
    >>> factor_vae_score(factors.double(), factors, preset="fast").score
    tensor(1., dtype=torch.float64)
    """
    given = checked(codes, factors, discrete=discrete, variance=variance)
    settings = chosen(preset, FACTOR_VAE_PRESETS)
    if given.codes.shape[1] < 2:
        raise ValueError(f"codes must have at least 2 points for a variance, got {given.codes.shape[1]}")
    source = default_generator(generator)
    spread, points = _global_variance(given, settings.points, source)
    active = spread.sqrt() >= settings.prune
    scale = torch.where(active, 1 / torch.where(active, spread, 1.0), torch.inf)
    factor, code = _votes(given, settings, scale, source)
    train = settings.train
    table = _table(factor[:train], code[:, :train], given.codes.shape[2], given.factors.shape[1])
    majority = table.argmax(-1)
    right = (majority.gather(1, code) == factor) & active.any(-1, keepdim=True)
    group = groups(settings.test, source).to(given.codes.device)
    shares = share_without(right[:, train:], group).to(given.codes.dtype)
    found = FactorVaeScore(
        shares[0],
        jackknife(shares[0], shares[1:]),
        right[:, :train].double().mean(1).to(given.codes.dtype),
        table,
        active,
        replace(settings, points=points),
    )
    return unstacked(found, given.stacked)


def _global_variance(given: Checked, points: int, generator: torch.Generator) -> tuple[Tensor, int]:
    """Variance (member, latent) over some points, and over how many."""
    batch = given.codes.shape[1]
    index = distinct(batch, min(points, batch), generator)
    return given.codes[:, index.to(given.codes.device)].var(1), len(index)


def _votes(
    given: Checked, settings: FactorVaeSettings, scale: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Factor (vote,) that each vote fixed, and the code (member, vote) that varied least."""
    member, batch, latent = given.codes.shape
    device, source = given.codes.device, generator.device
    count = settings.train + settings.test
    choice = torch.tensor(varying(given), device=device)
    factor = torch.randint(len(choice), (count, 1), generator=generator, device=source)
    row = torch.randint(batch, (count, 1), generator=generator, device=source)
    shape = (count, settings.batch)
    draws = torch.rand(shape, generator=generator, dtype=torch.float64, device=source)
    factor, row, draws = choice[factor.to(device)], row.to(device), draws.to(device)
    index = partners(shared(given, settings.bins), factor, row, draws)
    found = []
    for part in in_parts(count, member * settings.batch * latent, device):
        rows = given.codes[:, index[part].flatten()].unflatten(1, (-1, settings.batch))
        # From the first point of the batch: exactly 0 for a code that does not vary.
        moved = rows - rows[:, :, :1]
        spread = moved.square().sum(2) - moved.sum(2).square() / settings.batch
        found.append(torch.where(scale[:, None] < torch.inf, spread * scale[:, None], torch.inf).argmin(-1))
    return factor[:, 0], torch.cat(found, 1)


def _table(factor: Tensor, code: Tensor, latent: int, factors: int) -> Tensor:
    """How often (member, latent, factor) each code was voted for while each factor was fixed."""
    found = code.new_zeros((len(code), latent * factors))
    cell = code * factors + factor
    return found.scatter_add_(1, cell, torch.ones_like(cell)).unflatten(1, (latent, factors))
