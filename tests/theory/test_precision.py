"""Optimal posteriors and the budget of precision against direct optimisation."""

import math

import pytest
import torch

from unseam.geometry import hadamard_gap, stochastic_minimum
from unseam.theory import local_posterior, optimal_precision, ppca, precision_optimum


def jacobians(points=4, data=7, latent=3):
    draw = torch.Generator().manual_seed(1)
    return torch.randn(points, data, latent, generator=draw, dtype=torch.float64)


@pytest.mark.parametrize("beta", [0.5, 1.0, 4.0])
def test_no_covariance_is_better(minimise, beta):
    gram = jacobians()[0].mT @ jacobians()[0]

    def negative(factor):
        posterior = factor.tril() @ factor.tril().mT
        return (gram * posterior).sum() / 2 + beta / 2 * (posterior.trace() - torch.logdet(posterior))

    _, (factor,) = minimise(negative, torch.eye(3, dtype=torch.float64))
    posterior = factor.tril() @ factor.tril().mT
    torch.testing.assert_close(
        torch.linalg.inv(posterior), optimal_precision(gram, beta=beta), rtol=1e-6, atol=1e-6
    )

    def diagonal(log_scale):
        return negative(torch.diag(log_scale.exp()))

    _, (log_scale,) = minimise(diagonal, torch.zeros(3, dtype=torch.float64))
    expected = local_posterior(jacobians()[0], beta=beta, diagonal=True).diagonal()
    torch.testing.assert_close((2 * log_scale).exp(), expected, rtol=1e-6, atol=1e-8)


def test_local_pca_is_ppca_where_the_decoder_is_linear(covariance):
    found = ppca(covariance, 2, noise=0.4)
    torch.testing.assert_close(local_posterior(found.weights, noise=0.4), found.covariance)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("budget", [-3.0, 10.0])
def test_every_start_ends_at_the_least_loss_with_orthogonal_columns(minimise, seed, budget):
    """rolinek2019 Theorem 2 over V_i and σ directly, the constraint eliminated."""
    given = jacobians()
    found = precision_optimum(given, budget)

    def loss(generators, free):
        turn = torch.linalg.matrix_exp(generators - generators.mT)
        log_variance = free - (free.sum() + budget) / free.numel()
        columns = (given @ turn).square().sum(1)
        return (columns * log_variance.exp()).sum(-1).log().sum()

    draw = torch.Generator().manual_seed(seed)
    start = [torch.randn(shape, generator=draw, dtype=torch.float64) for shape in ((4, 3, 3), (4, 3))]
    best, (generators, _) = minimise(loss, *start)
    assert float(best) == pytest.approx(found.loss, abs=1e-8)
    columns = given @ torch.linalg.matrix_exp(generators - generators.mT)
    assert float(hadamard_gap(columns.mT @ columns).max()) < 1e-6


def test_minimiser_reaches_the_least_loss():
    given = jacobians()
    found = precision_optimum(given, 5.0)
    columns = (given @ found.right_vectors).square().sum(1)
    assert float((columns * found.variance).sum(-1).log().sum()) == pytest.approx(found.loss, abs=1e-10)
    assert -float(found.variance.log().sum()) == pytest.approx(5.0, abs=1e-10)


def test_axes_as_given_cost_the_hadamard_gap():
    given = jacobians()
    found = precision_optimum(given, 5.0)
    gap = float(hadamard_gap(given.mT @ given).sum())
    assert found.loss_as_given - found.loss == pytest.approx(2 / 3 * gap, rel=1e-9)


def test_one_point_is_the_minimum_of_the_stochastic_loss():
    given = jacobians(points=1)
    gram = given[0].mT @ given[0]
    expected = stochastic_minimum(gram, 2.0).loss
    assert math.exp(precision_optimum(given, 2.0).loss_as_given) == pytest.approx(float(expected))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (torch.zeros(2, 3), r"jacobians must have shape \(batch, data, latent\), got shape \(2, 3\)"),
        (torch.zeros(1, 2, 3), r"jacobians must have shape \(batch, data, latent\), data at least latent"),
        (torch.ones(1, 3, 2), "jacobians must have full column rank"),
    ],
)
def test_bad_jacobians(given, message):
    with pytest.raises(ValueError, match=message):
        precision_optimum(given, 0.0)


def test_bad_pullback():
    with pytest.raises(
        ValueError, match=r"pullback must have shape \(..., latent, latent\), got shape \(2, 3\)"
    ):
        optimal_precision(torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"weights must have shape \(..., data, latent\), got shape \(3,\)"):
        local_posterior(torch.zeros(3))
    with pytest.raises(
        ValueError, match=r"weights must have squares within torch.float32, got ones that overflow"
    ):
        local_posterior(torch.full((3, 2), 1e30, dtype=torch.float32))
