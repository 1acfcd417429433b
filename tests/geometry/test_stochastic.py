"""The split of the reconstruction, and the deterministic against the sampled ELBO."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from unseam.geometry import elbo_gap, likelihood_hessian, reconstruction_split
from unseam.models import VAE, Bernoulli, Diagonal, Full, Gaussian, initialise
from unseam.objectives import deterministic_elbo

F64 = torch.float64


@pytest.fixture
def mean(generator):
    return torch.randn(5, 3, generator=generator, dtype=F64)


@pytest.fixture
def variance(generator):
    return torch.rand(5, 3, generator=generator, dtype=F64) / 4 + 0.01


@pytest.fixture
def covariance(generator):
    root = torch.randn(5, 3, 3, generator=generator, dtype=F64) / 3
    return root @ root.mT + 0.05 * torch.eye(3, dtype=F64)


@pytest.fixture
def noise(generator):
    return torch.randn(16, 5, 3, generator=generator, dtype=F64)


@pytest.fixture
def x(generator):
    return torch.rand(5, 8, generator=generator, dtype=F64)


@pytest.fixture
def weights(generator):
    return torch.randn(8, 3, generator=generator, dtype=F64)


@pytest.fixture
def linear(weights):
    return lambda z: z @ weights.T + 0.5


@pytest.fixture
def curved(weights):
    return lambda z: (z @ weights.T).sin()


def test_proposition_4_is_exact_for_an_affine_decoder(linear, x, mean, variance, noise):
    split = reconstruction_split(linear, x, mean, variance, noise)
    zero = torch.zeros(5, dtype=F64)
    torch.testing.assert_close(split.cross, zero, rtol=0, atol=1e-12)
    torch.testing.assert_close(split.cross_error, zero, rtol=0, atol=1e-12)
    torch.testing.assert_close(split.total, split.deterministic + split.stochastic)
    torch.testing.assert_close(split.deterministic, (linear(mean) - x).square().sum(1))


@pytest.mark.parametrize("full", [False, True])
def test_linearised_part_is_the_mean_of_a_linear_decoder(
    weights, linear, x, mean, variance, covariance, full
):
    """rolinek2019 Eq. S48, and its form for a full covariance."""
    given = covariance if full else variance
    matrix = covariance if full else torch.diag_embed(variance)
    split = reconstruction_split(linear, x, mean, given, torch.zeros(2, 5, 3, dtype=F64))
    torch.testing.assert_close(split.linearised, torch.einsum("ni,bij,nj->b", weights, matrix, weights))
    if not full:
        torch.testing.assert_close(split.linearised, (variance * weights.square().sum(0)).sum(1))


def test_stochastic_part_approaches_the_linearised_one(linear, x, mean, variance, generator):
    noise = torch.randn(4000, 5, 3, generator=generator, dtype=F64)
    split = reconstruction_split(linear, x, mean, variance, noise)
    torch.testing.assert_close(split.stochastic, split.linearised, rtol=0.1, atol=0)


@pytest.mark.parametrize("full", [False, True])
def test_parts_against_a_plain_mean(curved, x, mean, variance, covariance, noise, full):
    given = covariance if full else variance
    factor = torch.linalg.cholesky(covariance) if full else torch.diag_embed(variance.sqrt())
    shifts = torch.einsum("bij,sbj->sbi", factor, noise)
    outputs = torch.stack([curved(mean + shift) for shift in torch.cat([shifts, -shifts])])
    split = reconstruction_split(curved, x, mean, given, noise)
    torch.testing.assert_close(split.total, (outputs - x).square().sum(2).mean(0))
    torch.testing.assert_close(split.stochastic, (outputs - curved(mean)).square().sum(2).mean(0))
    torch.testing.assert_close(split.total, split.deterministic + split.stochastic + split.cross)


def test_cross_term_of_a_biased_decoder_closed_form(generator):
    """d(z) = z²: E d(μ + ε) - d(μ) = σ², so the cross term is 2σ²(μ² - x)."""
    noise = torch.randn(2000, 1, 1, generator=generator, dtype=F64)
    one = torch.ones(1, 1, dtype=F64)
    split = reconstruction_split(lambda z: z**2, 3 * one, one, 0.3 * one, noise)
    expected = 2 * 0.3 * (1 - 3)
    assert abs(split.cross.item() - expected) < 4 * split.cross_error.item()
    assert abs(split.cross.item()) > 20 * split.cross_error.item()


def test_split_ignores_rotation_of_the_data(curved, x, mean, variance, noise, generator):
    rotation = torch.linalg.qr(torch.randn(8, 8, generator=generator, dtype=F64)).Q
    expected = reconstruction_split(curved, x, mean, variance, noise)
    found = reconstruction_split(lambda z: curved(z) @ rotation, x @ rotation, mean, variance, noise)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_split_of_pictures(curved, x, mean, variance, noise):
    expected = reconstruction_split(curved, x, mean, variance, noise)
    found = reconstruction_split(
        lambda z: curved(z).view(-1, 2, 2, 2), x.view(5, 2, 2, 2), mean, variance, noise
    )
    torch.testing.assert_close(found.total, expected.total)


@pytest.mark.parametrize("beta", [0.5, 4.0])
def test_no_gap_for_a_linear_gaussian_model(weights, linear, x, mean, variance, noise, beta):
    found = elbo_gap(linear, Gaussian(1.0).double(), x, mean, variance, noise=noise, beta=beta)
    zero = torch.zeros(5, dtype=F64)
    torch.testing.assert_close(found.gap, zero, rtol=0, atol=1e-11)
    torch.testing.assert_close(found.standard_error, zero, rtol=0, atol=1e-11)
    error = (linear(mean) - x).square().sum(1) + (variance * weights.square().sum(0)).sum(1)
    kl = (mean.square() + variance - variance.log() - 1).sum(1) / 2
    torch.testing.assert_close(found.sampled, -error / 2 - 4 * math.log(2 * math.pi) - beta * kl)


@pytest.mark.parametrize("posterior", [Diagonal(3), Full(3)])
def test_deterministic_part_is_the_training_objective(posterior, x, generator, noise):
    encoder, decoder = nn.Linear(8, posterior.width), nn.Sequential(nn.Linear(3, 8), nn.Tanh())
    model = VAE(encoder, posterior, decoder, Bernoulli()).double()
    initialise(model, generator=generator)
    found = elbo_gap(model.decode, model.likelihood, x, *model.encode(x), noise=noise, beta=2.0)
    loss = deterministic_elbo(model, x, noise[0], beta=2.0).loss
    torch.testing.assert_close(found.deterministic.mean(), -loss.detach())


def test_sampled_part_against_quadrature(generator):
    """One latent, Bernoulli logits; E_q log p by Gauss-Hermite quadrature."""
    x, mean = torch.full((1, 4), 0.3, dtype=F64), torch.full((1, 1), 0.4, dtype=F64)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)

    def decoder(z):
        return torch.cat([z.sin(), z**2, z.exp(), -z], dim=1)

    points = mean + torch.tensor(nodes)[:, None] * math.sqrt(0.2)
    values = Bernoulli().log_prob(x.expand(60, 4), decoder(points))
    kl = (0.4**2 + 0.2 - math.log(0.2) - 1) / 2
    expected = (values * torch.tensor(weights / weights.sum())).sum().item() - kl
    noise = torch.randn(2000, 1, 1, generator=generator, dtype=F64)
    found = elbo_gap(decoder, Bernoulli(), x, mean, torch.full_like(mean, 0.2), noise=noise)
    assert abs(found.sampled.item() - expected) < 4 * found.standard_error.item()
    assert abs(found.gap.item()) > 5 * found.standard_error.item()
    torch.testing.assert_close(found.gap, found.deterministic - found.sampled)


@pytest.mark.slow
def test_standard_error_is_calibrated(curved, x, mean, variance, generator):
    def gap(samples):
        noise = torch.randn(samples, 5, 3, generator=generator, dtype=F64)
        return elbo_gap(curved, Bernoulli(), x, mean, variance, noise=noise)

    truth = gap(20_000).gap
    scores = torch.stack(
        [(found.gap - truth) / found.standard_error for found in (gap(40) for _ in range(40))]
    )
    assert 0.8 < scores.std() < 1.25


def test_gap_shrinks_with_the_posterior_by_the_residual(curved, x, mean, variance, noise):
    """To first order in σ² the gap is minus half the residual Hessian's product with Σ."""
    residual = likelihood_hessian(curved, Bernoulli(), x, mean).residual.diagonal(dim1=1, dim2=2)
    small = 1e-5 * variance
    found = elbo_gap(curved, Bernoulli(), x, mean, small, noise=noise)
    expected = -(residual * small).sum(1) / 2
    assert ((found.gap - expected).abs() < 5 * found.standard_error + 1e-9).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mean": torch.zeros(3)}, r"mean must have shape \(batch, latent\)"),
        ({"variance": torch.zeros(2, 3)}, "variance must be positive, got 0"),
        (
            {"noise": torch.zeros(2, 3)},
            r"noise must have shape \(sample, batch, latent\) with at least 2 samples",
        ),
        ({"noise": torch.zeros(1, 2, 3)}, r"noise must .* got shape \(1, 2, 3\)"),
        (
            {"noise": torch.full((2, 2, 3), math.nan)},
            "noise must be finite, got 12 entries that are NaN or infinite",
        ),
        ({"x": torch.zeros(3, 3)}, r"x must hold data for 2 points, got shape \(3, 3\)"),
        ({"decoder": lambda z: torch.where(z.abs() > 1, torch.inf, z)}, "decoder must give finite outputs"),
    ],
)
@pytest.mark.parametrize("measure", ["split", "gap"])
def test_bad_input_is_refused(measure, change, message):
    given = {
        "decoder": lambda z: z,
        "x": torch.zeros(2, 3),
        "mean": torch.zeros(2, 3),
        "variance": torch.ones(2, 3),
        "noise": torch.full((2, 2, 3), 2.0),
    } | change
    with pytest.raises(ValueError, match=message):
        if measure == "split":
            reconstruction_split(**given)
        else:
            elbo_gap(likelihood=Bernoulli(), **given)


def test_mismatched_data_and_bad_beta_are_refused(linear, x, mean, variance, noise):
    with pytest.raises(ValueError, match=r"x must have the decoder's shape \(5, 8\), got \(5, 7\)"):
        reconstruction_split(linear, x[:, :7], mean, variance, noise)
    with pytest.raises(ValueError, match="beta must not be negative, got -1"):
        elbo_gap(linear, Bernoulli(), x, mean, variance, noise=noise, beta=-1)
