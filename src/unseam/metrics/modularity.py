"""Modularity: whether each code has information about one factor only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from unseam.metrics._inputs import Table, check_inputs, check_settings, ratio, resolve_preset
from unseam.metrics._splits import sample_points
from unseam.metrics.intervals import Interval, with_interval
from unseam.metrics.mutual_information import binned_estimates

__all__ = ["Modularity", "ModularitySettings", "modularity"]


@dataclass(frozen=True)
class ModularitySettings:
    """How modularity is estimated."""

    points: int | None = 10_000
    """Number of points, none for all; in a result, how many there were."""
    bins: int = 20
    """Bins of a code and of a continuous factor."""

    def __post_init__(self) -> None:
        check_settings(self)


MODULARITY_PRESETS = {"dlib": ModularitySettings(), "fast": ModularitySettings(points=2_000)}


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


def modularity(
    codes: Tensor | NDArray[Any],
    factors: Table,
    *,
    discrete: Sequence[bool] | None = None,
    variance: Tensor | NDArray[Any] | None = None,
    preset: str | ModularitySettings = "dlib",
    generator: torch.Generator | None = None,
) -> Modularity:
    r"""How close each code comes to information about a single factor.

    .. math:: \frac{1}{d} \sum_j \Bigl( 1 - \frac{\sum_{k \ne k_j} I_{jk}^2}{(K - 1)\, I_{j k_j}^2} \Bigr),
              \qquad k_j = \arg\max_k I_{jk}

    of Ridgeway & Mozer 2018 (§3), from the binned information of :func:`~unseam.metrics.mig`; a mean over
    all codes, collapsed ones included, as in Locatello et al. 2019. A code without any information, such as a
    constant one, counts 0. A code that is only noise has some by the bias of bins, spread over all
    factors: it counts as what that spread gives, so modularity says little about uninformative codes.
    K counts the factors that vary: a constant one changes nothing. With a single factor an informative code counts 1.

    Args:
        codes: z (batch, latent) or (member, batch, latent).
        factors: v (batch, factor).
        discrete: which factors are; by default those of integer type. Continuous ones are binned.
        variance: not used.
        preset: ``"dlib"``, ``"fast"`` (2 000 points) or settings.
        generator: source of the points that are drawn and of the interval's groups; by default seed 0.

    Returns:
        The score in [0, 1].

    >>> grid = torch.cartesian_prod(torch.arange(4), torch.arange(5))
    >>> modularity(grid.double(), grid).score
    tensor(1., dtype=torch.float64)
    """
    settings = resolve_preset(preset, MODULARITY_PRESETS)
    given = check_inputs(codes, factors, discrete=discrete, variance=variance).rescaled()
    given, group = sample_points(given, settings.points, generator)
    table = binned_estimates(given, settings.bins, group)
    information = table.information
    per_code = _per_code(information, (table.factor_entropy > 0).sum(-1))
    score = per_code.mean(-1)
    settings = replace(settings, points=given.codes.shape[1])
    found = Modularity(*with_interval(score), per_code[0], information[0], settings)
    return given.unstack(found)


def _per_code(information: Tensor, number: Tensor) -> Tensor:
    """Modularity (1 + group, member, latent) where so many factors (1 + group,) vary."""
    squares = information.square()
    most = squares.amax(-1)
    others = (squares.sum(-1) - most) / (number - 1).clamp(min=1)[:, None, None]
    return torch.where(most > 0, 1 - ratio(others, most), 0.0)
