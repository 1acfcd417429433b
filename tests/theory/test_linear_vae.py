"""The optimum of a linear VAE against direct optimisation, and what a full posterior leaves free."""

import math

import pytest
import torch

from unseam.theory import linear_vae, rotated


def objective(weights, encoder, factor, covariance, noise, beta):
    """The β-ELBO of one point, posterior covariance factor @ factorᵀ."""
    data, latent = weights.shape
    posterior = factor @ factor.mT
    rest = torch.eye(data, dtype=torch.float64) - weights @ encoder
    error = (rest @ covariance @ rest.mT).trace() + (weights @ posterior @ weights.mT).trace()
    reconstruction = -(data * math.log(2 * math.pi * noise) + error / noise) / 2
    spread = (encoder @ covariance @ encoder.mT).trace() + posterior.trace() - latent
    kl = (spread - torch.logdet(posterior)) / 2
    return reconstruction - beta * kl, reconstruction, kl


@pytest.mark.parametrize(("noise", "beta"), [(0.3, 1.0), (0.5, 3.0), (1.0, 0.2), (2.0, 1.5)])
def test_no_start_ends_above_the_closed_form(covariance, minimise, generator, noise, beta):
    found = linear_vae(covariance, 3, noise=noise, beta=beta)
    start = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((6, 3), (3, 6), (3,))]
    best, (weights, _, log_scale) = minimise(
        lambda w, e, s: -objective(w, e, torch.diag(s.exp()), covariance, noise, beta)[0], *start
    )
    assert -float(best) == pytest.approx(found.objective, abs=1e-8)
    gram = weights.mT @ weights
    torch.testing.assert_close(gram, torch.diag(gram.diagonal()), rtol=0, atol=1e-4)
    expected = found.covariance.diagonal().sort().values
    torch.testing.assert_close((2 * log_scale).exp().sort().values, expected, rtol=0, atol=1e-5)


def test_terms_are_their_definitions(covariance):
    found = linear_vae(covariance, 3, noise=0.7, beta=2.0)
    factor = torch.linalg.cholesky(found.covariance)
    terms = objective(found.weights, found.encoder, factor, covariance, 0.7, 2.0)
    for term, name in zip(terms, ("objective", "reconstruction", "kl"), strict=True):
        assert float(term) == pytest.approx(getattr(found, name), rel=1e-12)
    assert found.elbo == pytest.approx(found.reconstruction - found.kl)


def test_a_full_posterior_pays_nothing_for_a_turn_and_a_diagonal_one_does(covariance, generator):
    straight = linear_vae(covariance, 3, noise=0.5)
    turn = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64)).Q
    turned = rotated(straight, turn, covariance, noise=0.5)
    assert turned.objective == pytest.approx(straight.objective, abs=1e-10)
    best_diagonal = torch.diag(1 / torch.linalg.inv(turned.covariance).diagonal())
    factor = best_diagonal.sqrt()
    value, *_ = objective(turned.weights, turned.encoder, factor, covariance, 0.5, 1.0)
    assert float(value) < straight.objective - 1e-3


def test_order_and_signs_are_canonical(covariance):
    found = linear_vae(covariance, 3, noise=0.1)
    norms = found.weights.norm(dim=0)
    assert (norms.diff() < 0).all()
    leading = found.weights.gather(0, found.weights.abs().argmax(0, keepdim=True))
    assert (leading > 0).all()


def test_dead_latents(covariance):
    found = linear_vae(covariance, 4, noise=1.0, beta=3.0)
    torch.testing.assert_close(found.weights[:, 2:], torch.zeros(6, 2, dtype=torch.float64))
    torch.testing.assert_close(found.covariance.diagonal()[2:], torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize(
    ("rotation", "message"),
    [
        (torch.eye(2), r"rotation must have shape \(3, 3\), got shape \(2, 2\)"),
        (torch.full((3, 3), 0.5), "rotation must be orthogonal"),
    ],
)
def test_bad_rotation(covariance, rotation, message):
    solution = linear_vae(covariance, 3, noise=0.5)
    with pytest.raises(ValueError, match=message):
        rotated(solution, rotation, covariance, noise=0.5)


@pytest.mark.parametrize("name", ["noise", "beta"])
def test_bad_input(covariance, name):
    with pytest.raises(ValueError, match=f"{name} must be positive, got 0"):
        linear_vae(covariance, 2, **({"noise": 1.0} | {name: 0.0}))
