"""Modularity: whether each code has information about one factor only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from unseam.metrics._inputs import AbstractDrawn, Checked, check_inputs, metric, ratio
from unseam.metrics._splits import sample_points
from unseam.metrics.intervals import Interval, with_interval
from unseam.metrics.mutual_information import binned_estimates

__all__ = ["Modularity", "ModularitySettings", "modularity"]


@dataclass(frozen=True)
class ModularitySettings(AbstractDrawn):
    """How modularity is estimated."""

    bins: int = 20
    """Bins of a code and of a continuous factor."""


class Modularity(NamedTuple):
    """Modularity and what it is made of."""

    score: Tensor
    """Mean over codes, () or (member,)."""
    interval: Interval
    """95 % interval of the score."""
    per_code: Tensor
    """Modularity ([member,] latent) of each code; 0 for a collapsed one."""
    information: Tensor
    """Mutual information ([member,] latent, factor) in nats."""
    settings: ModularitySettings
    """The parameters."""


@metric(ModularitySettings, check_inputs)
def modularity(given: Checked, settings: ModularitySettings, source: torch.Generator) -> Modularity:
    r"""How close each code comes to information about a single factor.

    .. math:: \frac{1}{d} \sum_j \Bigl( 1 - \frac{\sum_{k \ne k_j} I_{jk}^2}{(K - 1)\, I_{j k_j}^2} \Bigr),
              \qquad k_j = \arg\max_k I_{jk}

    of Ridgeway & Mozer 2018 (§3), from the binned information of :func:`~unseam.metrics.mig`; a mean over
    all codes, collapsed ones included, as in Locatello et al. 2019. A code without any information, such as a
    constant one, counts 0. A code that is only noise has some by the bias of bins, spread over all
    factors: it counts as what that spread gives, so modularity says little about uninformative codes.
    K counts the factors that vary: a constant one changes nothing. With a single factor an informative code counts 1.

    Returns:
        The score in [0, 1].

    >>> grid = torch.cartesian_prod(torch.arange(4), torch.arange(5))
    >>> modularity(grid.double(), grid).score
    tensor(1., dtype=torch.float64)
    """
    given, group = sample_points(given.rescaled(), settings.points, source)
    table = binned_estimates(given, settings.bins, group)
    information = table.information
    per_code = _per_code(information, (table.factor_entropy > 0).sum(-1))
    score = per_code.mean(-1)
    settings = replace(settings, points=given.codes.shape[1])
    return Modularity(*with_interval(score), per_code[0], information[0], settings)


def _per_code(information: Tensor, number: Tensor) -> Tensor:
    """Modularity (1 + group, member, latent) where so many factors (1 + group,) vary."""
    squares = information.square()
    most = squares.amax(-1)
    others = (squares.sum(-1) - most) / (number - 1).clamp(min=1)[:, None, None]
    return torch.where(most > 0, 1 - ratio(others, most), 0.0)
