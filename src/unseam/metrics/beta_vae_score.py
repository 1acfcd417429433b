"""BetaVAE score: whether the mean difference of pairs that share a factor identifies that factor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from unseam.metrics._inputs import AbstractFitted, Checked, check_inputs, map_members, metric, scale_by_power
from unseam.metrics._logistic import multinomial
from unseam.metrics._splits import check_points
from unseam.metrics._votes import Votes, accuracy_interval, draw_votes, group_masks, vote_slices
from unseam.metrics.intervals import GROUPS, Interval, groups

__all__ = ["BetaVaeScore", "BetaVaeSettings", "beta_vae_score"]

PENALTY = 1.0
"""Inverse strength C of the L2 penalty on the classifier's weights: scikit-learn's default."""


@dataclass(frozen=True)
class BetaVaeSettings(AbstractFitted):
    """Parameters of :func:`beta_vae_score`."""

    batch: int = 64
    """Pairs per mean difference."""
    bins: int = 20
    """Bins of equal width of a continuous factor."""


class BetaVaeScore(NamedTuple):
    """BetaVAE score, and what it is made of."""

    score: Tensor
    """Held-out accuracy, () or (member,), in [0, 1]."""
    interval: Interval
    """Of the score."""
    train_score: Tensor
    """Accuracy on the differences that the classifier was fitted to, () or (member,)."""
    differences: Tensor
    """Mean absolute difference of the training pairs (..., latent, factor), by the factor that they share."""
    settings: BetaVaeSettings
    """As used."""


@metric(BetaVaeSettings, check_inputs)
def beta_vae_score(given: Checked, settings: BetaVaeSettings, source: torch.Generator) -> BetaVaeScore:
    r"""Accuracy of predicting which factor pairs share from how their codes differ (Higgins et al. 2017, §3).

    .. math:: \frac{1}{B} \sum_{b=1}^{B} |z^{(b)} - z'^{(b)}|, \qquad v_k(z^{(b)}) = v_k(z'^{(b)})

    is given to a linear classifier of k: the multinomial logistic regression of scikit-learn with its defaults (an L2
    penalty with C = 1), for all members at once and at its optimum, which scikit-learn comes near within its tolerance:
    where codes hardly distinguish the factors, two in a thousand answers may differ. The first of a pair is a uniformly
    drawn row, the second a row that shares its value of factor k, drawn with replacement from those at hand: grids may
    be incomplete. Continuous factors are cut into bins of equal width.

    A linear classifier may use all codes, so rotated codes can score 1. Unchanged by order, sign and shift of
    codes; not by their scale, which the penalty sees: codes near 0 score at chance. Constant codes score the share
    of test differences of the factor most frequent in training. Constant factors are not drawn, unless all are
    constant. With one factor the score is 1.

    Returns:
        The score and its parts. The interval covers the draw of test differences, of which groups are left out, and
        that of points: without each group of rows, pairs that lose a row are left out of all differences. The
        classifier stays. Where it is close to chance, as for codes rotated by 45°, a new one would make up
        for some of the change, and the error can be twice the spread over independent points.

    >>> factors = torch.cartesian_prod(torch.arange(4), torch.arange(5))
    >>> beta_vae_score(factors.double(), factors, preset="fast").score
    tensor(1., dtype=torch.float64)
    """
    check_points(given.codes.shape[1])
    given, exponent = given.rescale(small=False)
    device = given.codes.device
    count, train = settings.train + settings.test, settings.train
    votes = draw_votes(given, count, settings.batch, settings.batch, settings.bins, source)
    of_votes, of_rows = (groups(size, source).to(device) for size in (settings.test, given.codes.shape[1]))

    def measure(codes: Tensor) -> tuple[Tensor, Tensor]:
        features = _differences(codes, votes, of_rows)
        predicted = _predict_factor(features, votes.factor[:train])
        hot = one_hot(votes.factor[:train], given.factors.shape[1]).to(features.dtype)
        return predicted == votes.factor[:, None], features[:, :train, 0].mT @ (hot / hot.sum(0).clamp(min=1))

    numbers = count * (GROUPS + 1) * (given.codes.shape[2] + given.factors.shape[1])
    right, differences = map(torch.cat, zip(*map_members(given.codes, numbers, measure), strict=True))
    change = right[..., 1:].double() - right[..., :1].double()
    score, interval = accuracy_interval(right[:, train:, 0], change, of_votes)
    differences = scale_by_power(differences, -exponent.mT)
    return BetaVaeScore(score, interval, right[:, :train, 0].double().mean(1), differences, settings)


def _differences(codes: Tensor, votes: Votes, group: Tensor) -> Tensor:
    """Mean absolute differences (member, vote, 1 + group, latent) of pairs, of all and without each group of rows.

    A pair is left out where one of its rows is; where none stays the difference is that of all.
    """
    members, _, latent = codes.shape
    count, size = votes.first.shape
    found = []
    for part in vote_slices(count, members * latent * (2 * size + 2 * GROUPS), codes.device):
        first, second = votes.first[part], votes.second[part]
        near, far = (codes.index_select(1, rows.flatten()) for rows in (first, second))
        apart = near.sub_(far).abs_().unflatten(1, first.shape)
        inside = (group_masks(group, first) | group_masks(group, second)).to(codes.dtype)
        gone = (inside @ apart.movedim(0, 2).flatten(2)).unflatten(2, (members, latent)).movedim(2, 0)
        stay, total = size - inside.sum(-1)[..., None], apart.sum(2)[:, :, None]
        fewer = torch.where(stay > 0, (total - gone) / stay.clamp(min=1), total / size)
        found.append(torch.cat([total / size, fewer], 2))
    return torch.cat(found, 1)


def _predict_factor(features: Tensor, factor: Tensor) -> Tensor:
    """Factor (member, vote, variant) that differences (member, vote, variant, latent) are predicted to share.

    By a classifier of the first variant of the first votes, whose factors (train,) are known.
    """
    factors, label = torch.unique(factor, return_inverse=True)
    if len(factors) == 1:
        return factors.expand(features.shape[:-1])
    known = features[:, : len(factor), 0].double()
    middle = known.mean(1, keepdim=True)
    weights = multinomial(known - middle, one_hot(label, len(factors)).double(), PENALTY)
    slope, intercept = weights[..., :-1].mT, weights[:, None, :, -1]
    scores = torch.baddbmm(intercept - middle @ slope, features.flatten(1, 2).double(), slope)
    return factors[scores.argmax(-1)].unflatten(1, features.shape[1:3])
