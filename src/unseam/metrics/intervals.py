"""How sure a score is: intervals from leaving out groups of points, never from drawing one twice."""

from __future__ import annotations

from typing import NamedTuple

import torch
from scipy import stats
from torch import Tensor

__all__ = ["Interval", "GROUPS", "around", "groups", "jackknife"]

GROUPS = 20
"""Groups that are left out in turn: Student's t of 19 degrees is within 7 % of the normal."""


class Interval(NamedTuple):
    """Where a score lies with 95 % confidence, for points drawn from the same population.

    >>> Interval(torch.tensor(0.4), torch.tensor(0.6), torch.tensor(0.05)).error
    tensor(0.0500)
    """

    lower: Tensor
    """Lower end, in the shape of the score; not clipped to the score's range."""
    upper: Tensor
    """Upper end."""
    error: Tensor
    """Standard error of the score."""


def groups(batch: int, generator: torch.Generator) -> Tensor:
    """Group (batch,) of every point, of equal sizes up to one, at random; fewer groups for few points.

    >>> groups(4, torch.Generator().manual_seed(0)).sort().values
    tensor([0, 1, 2, 3])
    """
    order = torch.randperm(batch, generator=generator, device=generator.device)
    return order % min(GROUPS, batch)


def jackknife(score: Tensor, left_out: Tensor) -> Interval:
    r"""Interval of a score from what it is without each group in turn (delete-a-group jackknife).

    .. math:: \text{error}^2 = \frac{G - 1}{G} \sum_g (\theta_{(g)} - \bar\theta)^2

    Subsampling without replacement: no point counts twice, which would bias mutual information and give
    nearest neighbours of distance zero.

    Args:
        score: θ (...).
        left_out: θ without group g (group, ...).

    Returns:
        The interval, t-quantiles of G − 1 degrees of freedom around the score; without an error it is the score.

    >>> jackknife(torch.tensor(2.0), torch.tensor([1.0, 3.0])).error
    tensor(1.)
    """
    count = len(left_out)
    spread = (left_out - left_out.mean(0)).square().sum(0)
    error = (spread * (count - 1) / count).sqrt()
    return around(score, error, count)


def around(score: Tensor, error: Tensor, groups: int) -> Interval:
    """Interval around a score with a standard error that was found from so many groups.

    >>> around(torch.tensor(0.5), torch.tensor(0.1), 20).upper
    tensor(0.7093)
    """
    reach = error * float(stats.t.ppf(0.975, max(groups - 1, 1)))
    return Interval(score - reach, score + reach, error)
