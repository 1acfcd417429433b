"""Collapse thresholds against the linear VAE's optimum and, for Bernoulli data, against the objective itself."""

import math

import numpy as np
import pytest
import torch

from unseam.theory import (
    Moments,
    active_count,
    beta_range,
    collapse_thresholds,
    data_moments,
    data_thresholds,
    linear_vae,
)


def test_a_latent_of_the_linear_vae_dies_at_its_threshold(covariance):
    thresholds = collapse_thresholds(covariance, weight=1 / 0.5)
    for latent, threshold in enumerate(thresholds[:4].tolist()):
        just_below, just_above = (
            linear_vae(covariance, 4, noise=0.5, beta=threshold * factor).weights[:, latent].norm()
            for factor in (1 - 1e-6, 1 + 1e-6)
        )
        assert float(just_below) > 0
        assert float(just_above) == 0


def test_binary_data_have_the_eigenvalues_of_their_correlation(generator):
    x = (torch.rand(400, 5, generator=generator) < torch.linspace(0.2, 0.7, 5)).double()
    x[:, 1] = torch.where(torch.rand(400, generator=generator) < 0.8, x[:, 0], x[:, 1])
    expected = np.sort(np.linalg.eigvalsh(np.corrcoef(x.numpy(), rowvar=False)))[::-1]
    np.testing.assert_allclose(data_thresholds(data_moments([x]), "bernoulli").numpy(), expected, rtol=1e-10)


def bernoulli_gain(x, beta, size):
    """Gain over the collapsed decoder of logits a + w z, size ‖w‖, at the best posterior to second order in w.

    The expectation over q(z | x) is Gauss–Hermite quadrature; mean and variance are those of Eq. 7.
    """
    mean = x.mean(0)
    root = (mean * (1 - mean)).sqrt()
    scaled = (x - mean) / root
    _, vectors = torch.linalg.eigh(scaled.mT @ scaled / len(x))
    weights = size * vectors[:, -1] / root
    precision = 1 + (mean * (1 - mean) * weights.square()).sum() / beta
    codes = (x - mean) @ weights / beta / precision
    nodes, masses = np.polynomial.hermite_e.hermegauss(40)
    nodes, masses = torch.from_numpy(nodes), torch.from_numpy(masses / math.sqrt(2 * math.pi))
    z = codes[:, None] + nodes / precision.sqrt()
    logits = torch.logit(mean) + z[..., None] * weights
    fit = (x[:, None] * logits - torch.nn.functional.softplus(logits)).sum(-1) @ masses
    # the constant part may move too: the best offset to this order is left out, so this is a lower bound
    kl = (codes.square() + 1 / precision - 1 + precision.log()) / 2
    collapsed = (x * torch.logit(mean) - torch.nn.functional.softplus(torch.logit(mean))).sum(-1)
    return float((fit - beta * kl - collapsed).mean()) / size**2


def test_a_bernoulli_decoder_leaves_collapse_below_the_threshold_and_not_above(generator):
    source = torch.randn(3000, 1, generator=generator, dtype=torch.float64)
    chance = torch.sigmoid(source * torch.tensor([2.0, -1.5, 1.0]) + torch.tensor([0.3, -0.5, 1.0]))
    x = (torch.rand(3000, 3, generator=generator, dtype=torch.float64) < chance).double()
    first = float(data_thresholds(data_moments([x]), "bernoulli")[0])
    assert bernoulli_gain(x, 0.9 * first, 0.02) > 1e-3
    assert bernoulli_gain(x, 1.1 * first, 0.02) < -1e-3


@pytest.mark.parametrize("parts", [1, 3, 10])
def test_moments_in_parts(generator, parts):
    x = torch.randn(50, 2, 3, generator=generator) * 1e-3 + 1000
    found = data_moments(x.chunk(parts))
    flat = x.flatten(1).double().numpy()
    np.testing.assert_allclose(found.mean, flat.mean(0), rtol=1e-12)
    np.testing.assert_allclose(found.covariance, np.cov(flat, rowvar=False, bias=True), rtol=1e-6)
    assert found.points == 50


def test_constant_dimensions_never_live():
    x = torch.rand(20, 3, generator=torch.Generator().manual_seed(0)).round()
    x[:, 1] = 1.0
    thresholds = data_thresholds(data_moments([x]), "bernoulli")
    assert float(thresholds[-1]) == 0
    assert float(thresholds.sum()) == pytest.approx(2.0)


def test_counts_and_ranges_agree(covariance):
    thresholds = collapse_thresholds(covariance)
    for latents in range(7):
        lower, upper = beta_range(thresholds, latents)
        inside = (lower + min(upper, lower + 1)) / 2
        assert int(active_count(thresholds, inside)) == latents
    assert beta_range(thresholds, 0).upper == math.inf
    assert beta_range(thresholds, 6).lower == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: collapse_thresholds(torch.eye(2), weight=0.0), "weight must be positive"),
        (
            lambda: collapse_thresholds(torch.eye(2), weight=torch.ones(3)),
            "weight must be a number or one for each",
        ),
        (lambda: data_moments([]), "batches must hold at least two points, got 0"),
        (
            lambda: data_moments([torch.zeros(2, 3), torch.zeros(2, 4)]),
            "batches must have 3 values per point, got 4",
        ),
        (lambda: data_moments([torch.full((2, 1), math.nan)]), "batches must be finite"),
        (lambda: beta_range(torch.ones(2), 3), "latents must be from 0 to 2, got 3"),
        (
            lambda: data_thresholds(Moments(torch.tensor([2.0]), torch.eye(1), 3), "bernoulli"),
            r"a Bernoulli likelihood needs data in \[0, 1\]",
        ),
        (
            lambda: data_thresholds(Moments(torch.zeros(1), torch.eye(1), 3), "poisson"),
            "likelihood must be 'gaussian' or 'bernoulli', got 'poisson'",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
