"""The exactly solvable β-VAE against direct optimisation of sikka2019 Eq. 21 and against its own definitions."""

import itertools
import math

import pytest
import torch

from unseam.theory import linear_beta_vae

PAPER = (1 + torch.eye(128, 2, dtype=torch.float64)) / 2


def mixing(data, sources, seed=0):
    return torch.randn(data, sources, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def objective(decoder, encoder, slope, offset, covariance, beta, observed=1.0):
    """Eq. 21 with biases at zero, divided by the likelihood's variance, constants added."""
    data, latent = decoder.shape
    rest = decoder @ encoder - torch.eye(data, dtype=torch.float64)
    spread = torch.exp((slope @ covariance @ slope.mT).diagonal() / 2 + offset)
    error = (rest @ covariance @ rest.mT).trace() + (decoder.square().sum(0) * spread).sum()
    reconstruction = -(data * math.log(2 * math.pi * observed) + error / observed) / 2
    kl = ((encoder @ covariance @ encoder.mT).trace() + spread.sum() - offset.sum() - latent) / 2
    return reconstruction - beta * kl


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("beta", "noise", "observed"), [(0.3, 1.0, 1.0), (1.0, 1.0, 1.0), (3.0, 0.5, 1.0), (2.0, 0.7, 1.5)]
)
def test_no_start_ends_above_the_closed_form(minimise, seed, beta, noise, observed):
    columns = mixing(6, 2)
    covariance = columns @ columns.mT + noise**2 * torch.eye(6, dtype=torch.float64)
    found = linear_beta_vae(columns, beta, data_noise=noise, likelihood_variance=observed)
    draw = torch.Generator().manual_seed(seed)
    start = [
        torch.randn(shape, generator=draw, dtype=torch.float64) for shape in ((6, 2), (2, 6), (2, 6), (2,))
    ]
    best, parameters = minimise(lambda d, e, s, b: -objective(d, e, s, b, covariance, beta, observed), *start)
    torch.testing.assert_close(-best, found.objective, rtol=0, atol=1e-8)
    decoder, encoder, slope, offset = parameters
    torch.testing.assert_close(decoder @ encoder, found.decoder @ found.encoder, rtol=0, atol=1e-5)
    torch.testing.assert_close(slope, torch.zeros_like(slope), rtol=0, atol=1e-4)
    expected, given = found.variance.sort().values, offset.exp().sort().values
    torch.testing.assert_close(given, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("beta", [0.2, 1.0, 1.7, 5.0, 40.0])
@pytest.mark.parametrize(("noise", "observed"), [(1.0, 1.0), (0.6, 1.4)])
def test_terms_are_their_definitions(beta, noise, observed):
    columns = mixing(7, 3, seed=1)
    covariance = columns @ columns.mT + noise**2 * torch.eye(7, dtype=torch.float64)
    found = linear_beta_vae(columns, beta, data_noise=noise, likelihood_variance=observed)
    zero = torch.zeros(3, 7, dtype=torch.float64)
    arguments = (found.decoder, found.encoder, zero, found.variance.log(), covariance)
    torch.testing.assert_close(objective(*arguments, beta, observed), found.objective)
    torch.testing.assert_close(objective(*arguments, 1.0, observed), found.elbo)
    torch.testing.assert_close(objective(*arguments, 0.0, observed), found.reconstruction)

    def divergence(generative, likelihood, turn):
        precision = generative.mT @ generative / likelihood + torch.eye(3, dtype=torch.float64)
        target = torch.linalg.solve(precision, generative.mT) / likelihood
        error = target - turn @ found.encoder
        posterior = turn @ torch.diag(found.variance) @ turn.mT
        trace = (precision @ posterior).trace() + (error.mT @ precision @ error @ covariance).trace()
        return (trace - torch.logdet(precision) - torch.logdet(posterior) - 3) / 2

    model = torch.distributions.MultivariateNormal(
        torch.zeros(7, dtype=torch.float64),
        found.decoder @ found.decoder.mT + observed * torch.eye(7, dtype=torch.float64),
    )
    # E log p of a Gaussian is its value at points whose second moment is the data's
    points = math.sqrt(7) * torch.linalg.cholesky(covariance).mT
    torch.testing.assert_close(model.log_prob(points).mean(), found.log_likelihood)
    torch.testing.assert_close(found.elbo + found.mie, found.log_likelihood, rtol=1e-10, atol=0)

    same = torch.eye(3, dtype=torch.float64)
    torch.testing.assert_close(divergence(found.decoder, observed, same), found.mie, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(divergence(columns, noise**2, same), found.tie)
    turns = [
        torch.diag(torch.tensor(signs, dtype=torch.float64))[list(order)]
        for order in itertools.permutations(range(3))
        for signs in itertools.product((1.0, -1.0), repeat=3)
    ]
    least = torch.stack([divergence(columns, noise**2, turn) for turn in turns]).min()
    torch.testing.assert_close(least, found.tie_aligned)


def test_the_papers_example():
    """N = 128, k = 2, A_ij = ½(1 + δ_ij): eigenvalues 66.25 and 1.25, a shallow aligned minimum near β = 1.1."""
    beta = torch.linspace(0.5, 80, 15901, dtype=torch.float64)
    found = linear_beta_vae(PAPER, beta)
    collapsed = (found.decoder == 0).all(-2)
    assert beta[collapsed.all(-1)].min() == pytest.approx(66.25, abs=0.006)
    assert beta[collapsed.any(-1)].min() == pytest.approx(1.25, abs=0.006)
    assert beta[found.elbo.argmax()] == pytest.approx(1.0, abs=0.006)
    assert beta[found.tie_aligned.argmin()] == pytest.approx(1.1, abs=0.05)
    assert found.mie[beta == 1.0].abs().max() < 1e-12
    assert found.mie[-1] == 0
    for decreasing in (found.objective, found.kl, found.reconstruction):
        assert (decreasing.diff() <= 1e-12).all()


def test_the_log_likelihood_is_largest_at_beta_one():
    """§IV-B says that it falls monotonically; Σ_i ½(1 − β)/(λ_i − β + 1)² is its slope while latents are active."""
    beta = torch.tensor([0.2, 0.6, 0.9, 1.0, 1.1, 1.24], dtype=torch.float64)
    step = 1e-4
    above, below = (linear_beta_vae(PAPER, beta + sign * step).log_likelihood for sign in (1, -1))
    eigenvalues = torch.tensor([66.25, 1.25], dtype=torch.float64)
    slope = ((1 - beta[:, None]) / (eigenvalues - beta[:, None] + 1) ** 2).sum(-1) / 2
    torch.testing.assert_close((above - below) / (2 * step), slope, rtol=1e-6, atol=1e-8)
    grid = torch.linspace(0.05, 80, 1600, dtype=torch.float64)
    rise = linear_beta_vae(PAPER, grid).log_likelihood.diff()
    assert (rise[grid[1:] <= 1] > 0).all()
    assert (rise[(grid[1:] > 1) & (grid[1:] < 66.25)] < 0).all()
    truth = torch.distributions.MultivariateNormal(
        torch.zeros(128, dtype=torch.float64), PAPER @ PAPER.mT + torch.eye(128, dtype=torch.float64)
    )
    torch.testing.assert_close(linear_beta_vae(PAPER, 1.0).log_likelihood, -truth.entropy())


def test_derivative_of_the_objective_is_minus_kl():
    """Prop. 1, Eq. 10."""
    beta = torch.tensor([0.7, 1.1, 2.0, 30.0], dtype=torch.float64)
    step = 1e-5
    above, below = (linear_beta_vae(PAPER, beta + sign * step).objective for sign in (1, -1))
    torch.testing.assert_close(
        (above - below) / (2 * step), -linear_beta_vae(PAPER, beta).kl, rtol=1e-6, atol=0
    )


def test_beta_is_a_factor_of_the_likelihoods_variance():
    """Theorem 3 of allen2024 on the decoder."""
    columns = mixing(9, 2)
    one = linear_beta_vae(columns, 2.0, likelihood_variance=0.6)
    other = linear_beta_vae(columns, 1.0, likelihood_variance=1.2)
    torch.testing.assert_close(one.decoder, other.decoder)
    torch.testing.assert_close(one.variance, other.variance)


def test_many_dimensions_and_weights():
    columns = mixing(100_000, 3) / 100
    found = linear_beta_vae(columns, torch.tensor([[0.5, 1.0], [2.0, 4.0]]))
    assert found.decoder.shape == (2, 2, 100_000, 3)
    assert found.tie_aligned.shape == (2, 2)
    assert (found.tie_aligned <= found.tie + 1e-9).all()


def test_sources_that_coincide_leave_a_latent_for_the_noise():
    columns = torch.ones(5, 2, dtype=torch.float64)
    found = linear_beta_vae(columns, torch.tensor([0.5, 2.0], dtype=torch.float64))
    norms = found.decoder.norm(dim=-2)
    torch.testing.assert_close(norms[0], torch.tensor([10.5, 0.5], dtype=torch.float64).sqrt())
    assert norms[1, 1] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (torch.ones(2, 3), 1.0),
            r"mixing must have shape \(data, source\) with at most as many sources as data",
        ),
        ((torch.ones(3, 2), 0.0), "beta must be positive, got 0"),
        ((torch.full((3, 2), math.nan), 1.0), "mixing must be finite"),
        ((torch.ones(3, 2, dtype=torch.cfloat), 1.0), "mixing must be real, got torch.complex64"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        linear_beta_vae(*arguments)


@pytest.mark.parametrize("name", ["data_noise", "likelihood_variance"])
def test_noise_must_be_positive(name):
    with pytest.raises(ValueError, match=f"{name} must be positive, got 0"):
        linear_beta_vae(torch.ones(3, 2), 1.0, **{name: 0.0})
