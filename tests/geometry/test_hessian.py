"""The likelihood's Hessian, exact and in parts, at a point and over the posterior."""

import math
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from unseam.geometry import (
    diagonal_share,
    likelihood_hessian,
    posterior_hessian,
    precision_error,
)
from unseam.models import Bernoulli, Binomial, ContinuousBernoulli, Gaussian, PixelGaussian, initialise

F64 = torch.float64
LIKELIHOODS = pytest.mark.parametrize(
    "likelihood",
    [Gaussian(0.3), Bernoulli(), Binomial(4), ContinuousBernoulli()],
    ids=lambda likelihood: type(likelihood).__name__,
)


@pytest.fixture
def z(generator):
    return torch.randn(5, 3, generator=generator, dtype=F64)


@pytest.fixture
def x(generator):
    return torch.rand(5, 2, 4, generator=generator, dtype=F64)


@pytest.fixture
def decoder(generator):
    return network(generator, (2, 4))


def network(generator, shape):
    module = nn.Sequential(
        nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, math.prod(shape)), nn.Unflatten(1, shape)
    ).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=F64))
    return module


def autograd_hessian(decoder, likelihood, x, z):
    found = [
        torch.autograd.functional.hessian(
            lambda point, item=item: likelihood.log_prob(item[None], decoder(point[None])).sum(), point
        )
        for item, point in zip(x, z, strict=True)
    ]
    return torch.stack(found)


@LIKELIHOODS
def test_exact_against_autograd(decoder, likelihood, x, z):
    found = likelihood_hessian(decoder, likelihood.double(), x, z)
    torch.testing.assert_close(found.exact, autograd_hessian(decoder, likelihood, x, z))
    torch.testing.assert_close(found.exact, found.gauss_newton + found.residual)


def test_pixel_gaussian_against_autograd(generator, x, z):
    decoder = network(generator, (4, 4))
    found = likelihood_hessian(decoder, PixelGaussian(), x, z)
    torch.testing.assert_close(found.exact, autograd_hessian(decoder, PixelGaussian(), x, z))


@pytest.mark.parametrize("variance", [0.1, 1.0, 7.0])
def test_linear_gaussian_closed_form(generator, x, z, variance):
    weights = torch.randn(8, 3, generator=generator, dtype=F64)
    likelihood = Gaussian(variance).double()  # whose logarithm was rounded to single precision before
    found = likelihood_hessian(lambda z: z @ weights.T, likelihood, x.flatten(1), z)
    expected = (-weights.T @ weights / likelihood.log_variance.exp()).expand(5, 3, 3)
    torch.testing.assert_close(found.exact, expected)
    torch.testing.assert_close(found.residual, torch.zeros_like(expected), rtol=0, atol=1e-12)


@LIKELIHOODS
def test_nothing_is_dropped_for_logits_linear_in_z(generator, likelihood, x, z):
    weights = torch.randn(8, 3, generator=generator, dtype=F64)
    found = likelihood_hessian(lambda z: z @ weights.T, likelihood.double(), x.flatten(1), z)
    torch.testing.assert_close(found.exact, found.gauss_newton, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("likelihood", [Bernoulli(), ContinuousBernoulli()])
def test_residual_is_the_reconstruction_error_times_curvature(decoder, likelihood, x, z):
    """allen2024 Eq. 6, for natural parameters."""
    missed = x - likelihood.mean(decoder(z)).detach()
    for b in range(5):
        curvature = torch.autograd.functional.hessian(
            lambda point, b=b: (missed[b] * decoder(point[None])[0]).sum(), z[b]
        )
        found = likelihood_hessian(decoder, likelihood, x[b : b + 1], z[b : b + 1]).residual[0]
        torch.testing.assert_close(found, curvature)


def test_residual_vanishes_where_the_reconstruction_is_exact(decoder, z):
    found = likelihood_hessian(decoder, Gaussian(0.5).double(), decoder(z).detach(), z)
    torch.testing.assert_close(found.residual, torch.zeros_like(found.residual), rtol=0, atol=1e-12)


def test_rotation_of_latents(decoder, x, z, generator):
    rotation = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=F64)).Q
    expected = likelihood_hessian(decoder, Bernoulli(), x, z)
    found = likelihood_hessian(lambda z: decoder(z @ rotation.T), Bernoulli(), x, z @ rotation)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, rotation.T @ other @ rotation)


@pytest.mark.parametrize("chunk_size", [1, 2, 9])
def test_chunks_change_nothing(decoder, x, z, chunk_size):
    found = likelihood_hessian(decoder, Bernoulli(), x, z, chunk_size=chunk_size)
    torch.testing.assert_close(found.exact, likelihood_hessian(decoder, Bernoulli(), x, z).exact)


def test_convolutional_decoder(generator, z):
    decoder = nn.Sequential(
        nn.Linear(3, 8),
        nn.ELU(),
        nn.Unflatten(1, (2, 2, 2)),
        nn.ConvTranspose2d(2, 1, 4, stride=2, padding=1),
        nn.BatchNorm2d(1),
    )
    initialise(decoder.double().eval(), generator=generator)
    x = torch.rand(5, 1, 4, 4, generator=generator, dtype=F64)
    found = likelihood_hessian(decoder, Bernoulli(), x, z)
    torch.testing.assert_close(found.exact, autograd_hessian(decoder, Bernoulli(), x, z))


def test_decoder_that_vmap_refuses(decoder, x, z):
    def branching(points):
        output = decoder(points)
        return output if points.sum().item() < math.inf else -output

    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        found = likelihood_hessian(branching, Bernoulli(), x, z)
    torch.testing.assert_close(found.exact, likelihood_hessian(decoder, Bernoulli(), x, z).exact)


def test_results_carry_no_gradients(decoder, x, z):
    assert not any(part.requires_grad for part in likelihood_hessian(decoder, Bernoulli(), x, z))


@pytest.mark.parametrize("full", [False, True])
def test_posterior_average_is_the_mean_over_opposite_samples(decoder, x, z, generator, full):
    root = torch.randn(5, 3, 3, generator=generator, dtype=F64) / 3
    covariance = root @ root.mT + 0.1 * torch.eye(3, dtype=F64)
    variance = covariance if full else covariance.diagonal(dim1=1, dim2=2)
    factor = torch.linalg.cholesky(covariance) if full else torch.diag_embed(variance.sqrt())
    noise = torch.randn(3, 5, 3, generator=generator, dtype=F64)
    draws = []
    for sample in noise:
        shift = (factor @ sample.unsqueeze(-1)).squeeze(-1)
        pair = [likelihood_hessian(decoder, Bernoulli(), x, point).exact for point in (z + shift, z - shift)]
        draws.append((pair[0] + pair[1]) / 2)
    draws = torch.stack(draws)
    found = posterior_hessian(decoder, Bernoulli(), x, z, variance, noise=noise)
    torch.testing.assert_close(found.exact, draws.mean(0))
    torch.testing.assert_close(found.standard_error, draws.std(0) / math.sqrt(3))
    torch.testing.assert_close(found.exact, found.gauss_newton + found.residual)


@pytest.mark.slow
def test_price_theorem(generator):
    """d E_q[log p] / dσ² = ½ E_q[H]: the stationarity that the optimum of Opper and Archambeau rests on."""
    x, mean = torch.full((1, 4), 0.3, dtype=F64), torch.full((1, 1), 0.4, dtype=F64)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    nodes, weights = torch.tensor(nodes), torch.tensor(weights / weights.sum())

    def decoder(z):
        return torch.cat([z.sin(), z**2, z.exp(), -z], dim=1)

    def expected(function, variance):
        points = mean + nodes[:, None] * math.sqrt(variance)
        return sum(w * function(x, point[None]) for w, point in zip(weights.tolist(), points, strict=True))

    def log_prob(x, z):
        return Bernoulli().log_prob(x, decoder(z)).item()

    def hessian(x, z):
        return likelihood_hessian(decoder, Bernoulli(), x, z).exact.item()

    step = 1e-4
    slope = (expected(log_prob, 0.2 + step) - expected(log_prob, 0.2 - step)) / (2 * step)
    mean_hessian = expected(hessian, 0.2)
    assert slope == pytest.approx(mean_hessian / 2, rel=1e-6)
    noise = torch.randn(400, 1, 1, generator=generator, dtype=F64)
    found = posterior_hessian(
        decoder, Bernoulli(), x, mean, torch.full_like(mean, 0.2), noise=noise, chunk_size=1
    )
    assert abs(found.exact.item() - mean_hessian) < 4 * found.standard_error.item()


def test_optimum_of_a_linear_model_has_no_precision_error(generator, x, z):
    weights = torch.randn(8, 3, generator=generator, dtype=F64)
    noise = torch.randn(2, 5, 3, generator=generator, dtype=F64)
    likelihood = Gaussian(1.0).double()
    covariance = torch.linalg.inv(torch.eye(3, dtype=F64) + weights.T @ weights / 2).expand(5, 3, 3)
    hessian = posterior_hessian(lambda z: z @ weights.T, likelihood, x.flatten(1), z, covariance, noise=noise)
    assert precision_error(covariance, -hessian.exact, beta=2.0).relative.max() < 1e-12


def test_diagonal_share():
    matrix = torch.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=F64)
    assert diagonal_share(matrix).item() == pytest.approx(17 / 25)
    assert diagonal_share(torch.diag(torch.tensor([1.0, -3.0]))).item() == 1
    assert diagonal_share(torch.zeros(2, 3, 3)).tolist() == [1, 1]
    assert diagonal_share(1e-30 * matrix.float()).item() == pytest.approx(17 / 25)
    torch.testing.assert_close(diagonal_share(-7 * matrix.flip(0, 1)), diagonal_share(matrix))
    torch.testing.assert_close(diagonal_share(matrix.numpy()), diagonal_share(matrix))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"z": torch.zeros(3)}, r"z must have shape \(batch, latent\), got shape \(3,\)"),
        ({"z": torch.full((2, 3), math.nan)}, "z must be finite"),
        ({"x": torch.zeros(3, 8)}, r"x must hold data for 2 points, got shape \(3, 8\)"),
        ({"x": torch.zeros(2, 8).cfloat()}, "x must be real, got torch.complex64"),
        ({"x": torch.full((2, 8), math.inf)}, "x must be finite, got 16 entries that are NaN or infinite"),
        ({"chunk_size": 0}, "chunk_size must be at least 1, got 0"),
        ({"decoder": lambda z: z.sum()}, r"decoder must map \(batch, latent\) to \(batch, \*data\), got"),
        (
            {"decoder": lambda z: z.sum(1, keepdim=True).abs().pow(1.5).expand(-1, 8)},
            "finite second derivatives",
        ),
    ],
)
def test_bad_input_is_refused(change, message):
    given = {
        "decoder": lambda z: z.repeat(1, 3)[:, :8],
        "likelihood": Bernoulli(),
        "x": torch.zeros(2, 8),
        "z": torch.zeros(2, 3),
    }
    with pytest.raises(ValueError, match=message):
        likelihood_hessian(**given | change)


@pytest.mark.parametrize("shape", [(5, 3), (1, 5, 3), (4, 2, 3)])
def test_bad_noise_is_refused(decoder, x, z, shape):
    with pytest.raises(
        ValueError, match=r"noise must have shape \(sample, batch, latent\) with at least 2 samples"
    ):
        posterior_hessian(decoder, Bernoulli(), x, z, torch.ones_like(z), noise=torch.zeros(shape))


def test_bad_matrices_are_refused():
    with pytest.raises(
        ValueError, match=r"matrix must have shape \(..., latent, latent\), got shape \(2, 3\)"
    ):
        diagonal_share(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="matrix must be finite, got 1 entries"):
        diagonal_share(torch.tensor([[math.nan, 0.0], [0.0, 1.0]]))
