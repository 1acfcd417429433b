"""How sure a score is: intervals from leaving out groups of points, never from drawing one twice."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Interval", "GROUPS", "interval_around", "groups", "jackknife"]

GROUPS = 20
"""Groups that are left out in turn: Student's t of 19 degrees is within 7 % of the normal.

Fewer points than groups give no interval: error and ends are NaN. Of so few points an error can be 0 for no reason but
that none of the scores could have been another. Two points have a correlation of ±1 whatever they are, and five that
are all alone in their bins have a MIG of 0, with each point and without. For two noisy codes of two factors an error
of 0 came out (in 300 samples each):

======== ==== ==== ==== ==== ====
points   3    5    8    14   20
======== ==== ==== ==== ==== ====
``mcc``  27 % none none none none
``mig``  83 % 41 % 6 %  none none
``irs``  all  88 % 36 % 0.3% none
======== ==== ==== ==== ==== ====

Which points are counted is the metric's matter:

- ``mig``, ``mig_sup``, ``modularity``, ``irs``, ``mcc``, ``total_correlation``, ``wasserstein_correlation``,
  ``mean_pairwise_information``, ``udr``: those drawn. ``mig_entropy``: those whose posteriors are sampled.
- ``explicitness``, ``r2``, ``disentanglement_score``, ``dci``'s informativeness, ``sap`` for discrete factors: those
  held out, a third of all for most. ``dci``'s other scores and ``sap`` for continuous factors: those to train on.
- ``factor_vae_score``, ``beta_vae_score``: all points, and the test votes.

One point has no score: nothing varies, and all refuse it.
"""


class Interval(NamedTuple):
    """Where a score lies with 95 % confidence, for points drawn from the same population."""

    lower: Tensor
    """Lower end, in the shape of the score; not clipped to the score's range. NaN, as all three, of too few points."""
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
        The interval, t-quantiles of G − 1 degrees of freedom around the score: the score itself where no group
        matters, and NaN where there are fewer than :data:`GROUPS` groups, too few points for an interval.

    >>> jackknife(torch.tensor(2.0), torch.tensor([1.0, 3.0] * 10)).error
    tensor(4.3589)
    >>> jackknife(torch.tensor(2.0), torch.tensor([1.0, 3.0])).error
    tensor(nan)
    """
    count = len(left_out)
    spread = (left_out - left_out.mean(0)).square().sum(0)
    error = (spread * (count - 1) / count).sqrt()
    return interval_around(score, error, count)


def with_interval(scores: Tensor) -> tuple[Tensor, Interval]:
    """The score of all points and its interval, from scores (1 + group, ...): of all, then without each group.

    >>> score, interval = with_interval(torch.tensor([2.0, *[1.0, 3.0] * 10]))
    >>> score, interval.error
    (tensor(2.), tensor(4.3589))
    """
    return scores[0], jackknife(scores[0], scores[1:])


def interval_around(score: Tensor, error: Tensor, groups: int) -> Interval:
    """Interval around a score with a standard error that was found from so many groups; NaN for fewer than 20.

    >>> interval_around(torch.tensor(0.5), torch.tensor(0.1), 20).upper
    tensor(0.7093)
    """
    from scipy.special import stdtrit

    if groups < GROUPS:
        error = torch.full_like(error, torch.nan)
    reach = error * float(stdtrit(max(groups - 1, 1), 0.975))
    return Interval(score - reach, score + reach, error)
