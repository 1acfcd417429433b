"""Probabilistic PCA against scikit-learn, SciPy's normal and brute force."""

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.decomposition import PCA

from unseam.theory import linear_vae, ppca, ppca_em


def test_agrees_with_scikit_learn(generator):
    x = torch.randn(500, 6, generator=generator, dtype=torch.float64) @ torch.randn(
        6, 6, generator=generator, dtype=torch.float64
    )
    x = x - x.mean(0)
    peer = PCA(n_components=3).fit(x.numpy())
    found = ppca(x.mT @ x / 499, 3)
    assert found.noise == pytest.approx(peer.noise_variance_)
    model = found.weights @ found.weights.mT + found.noise * torch.eye(6, dtype=torch.float64)
    np.testing.assert_allclose(model.numpy(), peer.get_covariance(), rtol=1e-9)


def test_log_likelihood_is_that_of_the_normal(covariance):
    found = ppca(covariance, 2)
    model = found.weights @ found.weights.mT + found.noise * torch.eye(6, dtype=torch.float64)
    normal = multivariate_normal(np.zeros(6), model.numpy())
    expected = normal.logpdf(np.zeros(6)) - 0.5 * float((torch.linalg.inv(model) @ covariance).trace())
    assert found.log_likelihood == pytest.approx(expected, rel=1e-12)


def test_posterior_is_that_of_the_joint_normal(covariance):
    found = ppca(covariance, 2, noise=0.3)
    model = found.weights @ found.weights.mT + 0.3 * torch.eye(6, dtype=torch.float64)
    encoder = found.weights.mT @ torch.linalg.inv(model)
    torch.testing.assert_close(found.encoder, encoder)
    torch.testing.assert_close(found.covariance, torch.eye(2, dtype=torch.float64) - encoder @ found.weights)


def test_no_weights_are_likelier(covariance, minimise, generator):
    found = ppca(covariance, 2)

    def negative(weights, log_noise):
        model = weights @ weights.mT + log_noise.exp() * torch.eye(6, dtype=torch.float64)
        return (torch.logdet(model) + (torch.linalg.inv(model) @ covariance).trace()) / 2

    start = torch.randn(6, 2, generator=generator, dtype=torch.float64)
    best, (_, log_noise) = minimise(negative, start, torch.zeros((), dtype=torch.float64))
    assert -float(best) - 3 * np.log(2 * np.pi) == pytest.approx(found.log_likelihood, abs=1e-8)
    assert float(log_noise.exp()) == pytest.approx(found.noise, rel=1e-5)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("diagonal", [True, False])
def test_steps_are_those_of_a_regression_on_the_posterior(covariance, diagonal, seed):
    """W is that of the regression of x on z, whose posterior is the best normal, with all of its covariance or none."""
    noise, draw = 0.25, torch.Generator().manual_seed(seed)
    weights = torch.randn(6, 2, generator=draw, dtype=torch.float64)
    for _ in range(3):
        precision = torch.eye(2, dtype=torch.float64) + weights.mT @ weights / noise
        encoder = torch.linalg.inv(precision) @ weights.mT / noise
        spread = torch.diag(1 / precision.diagonal()) if diagonal else torch.linalg.inv(precision)
        weights = covariance @ encoder.mT @ torch.linalg.inv(encoder @ covariance @ encoder.mT + spread)
    draw = torch.Generator().manual_seed(seed)
    path = ppca_em(covariance, 2, noise=noise, diagonal=diagonal, steps=3, generator=draw)
    torch.testing.assert_close(path.solution.weights, weights, rtol=0, atol=1e-10)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow
def test_a_diagonal_posterior_finds_the_axes_and_an_exact_one_does_not(covariance, seed):
    best = linear_vae(covariance, 2, noise=0.25)
    turned = []
    for diagonal in (True, False):
        path = ppca_em(
            covariance,
            2,
            noise=0.25,
            diagonal=diagonal,
            steps=3000,
            generator=torch.Generator().manual_seed(seed),
        )
        assert (path.bounds.diff() >= -1e-10).all()
        weights = path.solution.weights
        torch.testing.assert_close(weights @ weights.mT, best.weights @ best.weights.mT, rtol=0, atol=1e-6)
        gram = weights.mT @ weights
        turned.append(float(gram[0, 1].abs() / gram.diagonal().prod().sqrt()))
    assert turned[0] < 1e-6
    assert turned[1] > 1e-2


def test_bound_of_the_exact_posterior_ends_at_the_likelihood(covariance, generator):
    path = ppca_em(covariance, 2, noise=0.25, diagonal=False, steps=3000, generator=generator)
    assert float(path.bounds[-1]) == pytest.approx(path.solution.log_likelihood, abs=1e-9)


def test_diagonal_is_yes_or_no(covariance, generator):
    with pytest.raises(ValueError, match="diagonal must be True or False, got torch.float32 of shape"):
        ppca_em(covariance, 2, noise=0.25, diagonal=torch.ones(2), steps=1, generator=generator)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"latent": 0}, "latent must be from 1 to 6, got 0"),
        ({"latent": 7}, "latent must be from 1 to 6, got 7"),
        ({"latent": 6}, "noise must be given where every direction of the data has its latent"),
        ({"noise": -1.0}, "noise must be positive, got -1"),
    ],
)
def test_bad_input(covariance, change, message):
    with pytest.raises(ValueError, match=message):
        ppca(covariance, **({"latent": 2} | change))


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (torch.ones(2, 3), r"covariance must have shape \(data, data\), got shape \(2, 3\)"),
        (torch.tensor([[1.0, 2.0], [0.0, 1.0]]), "covariance must be symmetric"),
        (
            torch.diag(torch.tensor([1.0, -1.0])),
            "covariance must be positive semi-definite, got an eigenvalue of -1",
        ),
    ],
)
def test_bad_covariance(matrix, message):
    with pytest.raises(ValueError, match=message):
        ppca(matrix, 1, noise=0.1)


def test_a_covariance_may_miss_symmetry_by_rounding():
    matrix = torch.diag(torch.tensor([4.0, 1.0, 0.5], dtype=torch.float64))
    matrix[0, 1] = 5e-8
    assert ppca(matrix, 1).noise == pytest.approx(0.75)
    matrix[0, 1] = 7e-8
    with pytest.raises(ValueError, match="covariance must be symmetric"):
        ppca(matrix, 1)
