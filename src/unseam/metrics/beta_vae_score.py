"""BetaVAE score: whether the mean difference of pairs that share a factor tells which factor that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from unseam.metrics._inputs import Checked, Table, at_least_one, checked, chosen, default_generator, unstacked
from unseam.metrics._sharing import in_parts, partners, shared
from unseam.metrics._splits import share_without, varying
from unseam.metrics.intervals import Interval, groups, jackknife

__all__ = ["BetaVaeScore", "BetaVaeSettings", "beta_vae_score"]


@dataclass(frozen=True)
class BetaVaeSettings:
    """Parameters of :func:`beta_vae_score`."""

    train: int = 10_000
    """Mean differences that the classifier is fitted to."""
    test: int = 5_000
    """Mean differences that it is scored on."""
    batch: int = 64
    """Pairs a mean difference."""
    bins: int = 20
    """Bins of equal width of a continuous factor."""

    def __post_init__(self) -> None:
        """Settings that make no sense are refused where they are made."""
        at_least_one(train=self.train, test=self.test, batch=self.batch, bins=self.bins)


BETA_VAE_PRESETS = {"dlib": BetaVaeSettings(), "fast": BetaVaeSettings(train=2_000, test=1_000)}
"""``dlib``: as in the study of 12 600 models (Locatello et al. 2019); ``fast``: a fifth of the differences."""


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


def beta_vae_score(
    codes: Tensor | NDArray[Any],
    factors: Table,
    *,
    discrete: Sequence[bool] | None = None,
    variance: Tensor | NDArray[Any] | None = None,
    preset: str | BetaVaeSettings = "dlib",
    generator: torch.Generator | None = None,
) -> BetaVaeScore:
    r"""Accuracy of telling which factor pairs share from how their codes differ (Higgins et al. 2017, §3).

    .. math:: \frac{1}{B} \sum_{b=1}^{B} |z^{(b)} - z'^{(b)}|, \qquad v_k(z^{(b)}) = v_k(z'^{(b)})

    is given to a linear classifier of k: multinomial logistic regression of scikit-learn with its defaults (an L2
    penalty with C = 1), run to convergence. The first of a pair is a uniformly drawn row, the second a row that
    shares its value of factor k, drawn with replacement from those at hand: grids may be incomplete. Continuous
    factors are cut into bins of equal width.

    A linear classifier may use all codes, so rotated codes can score 1. Unchanged by order, sign and shift of
    codes; not by their scale, which the penalty sees: codes near 0 score at chance. Constant codes score the share
    of test differences of the factor most frequent in training. Constant factors are not drawn, unless all are
    constant. With one factor the score is 1.

    Args:
        codes: (batch, latent), or (member, batch, latent).
        factors: (batch, factor).
        discrete: which factors are discrete; by default those of an integer type.
        variance: posterior variance, not used.
        preset: ``"dlib"``, ``"fast"`` or settings.
        generator: draws the pairs, the same for all members; by default one with seed 0.

    Returns:
        The score and its parts; the interval leaves out groups of the test differences, without refitting, so
        that it covers the draw of pairs and not that of the points.

    >>> factors = torch.cartesian_prod(torch.arange(4), torch.arange(5))
    >>> beta_vae_score(factors.double(), factors, preset="fast").score
    tensor(1., dtype=torch.float64)
    """
    given = checked(codes, factors, discrete=discrete, variance=variance)
    settings = chosen(preset, BETA_VAE_PRESETS)
    source = default_generator(generator)
    factor, features = _differences(given, settings, source)
    right = torch.stack([_right(feature, factor, settings.train) for feature in features.double()])
    group = groups(settings.test, source).to(given.codes.device)
    shares = share_without(right[:, settings.train :], group)
    hot = torch.nn.functional.one_hot(factor[: settings.train], given.factors.shape[1]).to(features.dtype)
    found = BetaVaeScore(
        shares[0],
        jackknife(shares[0], shares[1:]),
        right[:, : settings.train].double().mean(1),
        features[:, : settings.train].mT @ (hot / hot.sum(0).clamp(min=1)),
        settings,
    )
    return unstacked(found, given.stacked)


def _differences(
    given: Checked, settings: BetaVaeSettings, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Factor (vote,) that pairs share, and their mean absolute difference (member, vote, latent)."""
    member, batch, latent = given.codes.shape
    device, source = given.codes.device, generator.device
    count = settings.train + settings.test
    shape = (count, settings.batch)
    choice = torch.tensor(varying(given), device=device)
    factor = torch.randint(len(choice), (count, 1), generator=generator, device=source).to(device)
    first = torch.randint(batch, shape, generator=generator, device=source).to(device)
    draws = torch.rand(shape, generator=generator, dtype=torch.float64, device=source).to(device)
    second = partners(shared(given, settings.bins), choice[factor], first, draws)
    found = []
    for part in in_parts(count, 2 * member * settings.batch * latent, device):
        apart = given.codes[:, first[part].flatten()] - given.codes[:, second[part].flatten()]
        found.append(apart.abs_().unflatten(1, (-1, settings.batch)).mean(2))
    return choice[factor[:, 0]], torch.cat(found, 1)


def _right(features: Tensor, factor: Tensor, train: int) -> Tensor:
    """Whether the factor (vote,) is told right by a classifier that was fitted to the first votes."""
    x, y = features.cpu().numpy(), factor.cpu().numpy()
    if len(set(y[:train])) == 1:
        return factor == factor[0]
    model = LogisticRegression(max_iter=10_000, random_state=0).fit(x[:train], y[:train])
    return torch.from_numpy(model.predict(x) == y).to(factor.device)
