"""The β-ELBO with a Hadamard gap."""

import math

import pytest
import torch

from unseam.geometry import column_cosine, hadamard_gap, pullback
from unseam.objectives import beta_elbo, orthogonal_elbo

LOG_2PI = math.log(2 * math.pi)


def test_terms_are_pinned_by_hand(constant_model):
    # Columns (1, 0) and (1, 1): norms 1 and √2, volume 1, gap ½ log 2. z = (2, 2) decodes to x; KL = 4.
    model = constant_model([2, 2, 0, 0], [[1.0, 1.0], [0.0, 1.0]])
    x, noise = torch.tensor([[4.0, 2.0]], dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64)
    terms = orthogonal_elbo(model, x, noise, beta=3.0, orthogonality=10.0)
    assert terms.gap.item() == pytest.approx(math.log(2) / 2)
    assert terms.kl.item() == pytest.approx(4)
    assert terms.loss.item() == pytest.approx(12 + LOG_2PI + 5 * math.log(2))


def test_an_orthogonal_decoder_pays_nothing(constant_model, normal):
    model = constant_model([0, 0, 0, 0], [[3.0, 4.0], [4.0, -3.0], [0.0, 0.0]])
    x, noise = normal(4, 3), normal(4, 2)
    terms = orthogonal_elbo(model, x, noise, beta=2.0, orthogonality=100.0)
    assert terms.gap.item() == 0
    torch.testing.assert_close(terms.loss, beta_elbo(model, x, noise, beta=2.0).loss)


def test_the_metric_is_weighted_by_the_likelihood(make_model, normal):
    model, x = make_model(likelihood="bernoulli"), normal(4, 3).sigmoid()
    mean = model.encode(x).mean
    gap = hadamard_gap(pullback(model.decode, mean, likelihood=model.likelihood)).mean()
    terms = orthogonal_elbo(model, x, normal(4, 2), orthogonality=1.0)
    torch.testing.assert_close(terms.gap, gap)
    assert (gap - hadamard_gap(pullback(model.decode, mean)).mean()).abs() > 1e-6


def test_descent_on_the_gap_makes_columns_orthogonal(make_model, normal):
    model, x = make_model(), normal(8, 3)
    noise = torch.zeros(8, 2, dtype=torch.float64)

    def cosine():
        return column_cosine(pullback(model.decode, model.encode(x).mean)).mean().item()

    before = cosine()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(150):
        optimiser.zero_grad()
        orthogonal_elbo(model, x, noise, orthogonality=1.0).gap.backward()
        optimiser.step()
    assert before > 0.3
    assert cosine() < 0.03


def test_gradient_against_finite_differences(make_model, normal):
    model, x, noise = make_model(), normal(3, 3), normal(3, 2)
    weight = model.decoder.layers[0].weight
    (gradient,) = torch.autograd.grad(orthogonal_elbo(model, x, noise, orthogonality=5.0).loss, [weight])
    step = 1e-6
    losses = []
    for shift in (step, -step):
        with torch.no_grad():
            weight[2, 1] += shift
            losses.append(orthogonal_elbo(model, x, noise, orthogonality=5.0).loss.item())
            weight[2, 1] -= shift
    assert (losses[0] - losses[1]) / (2 * step) == pytest.approx(gradient[2, 1].item(), rel=1e-6)


def test_a_dead_latent_leaves_loss_and_gradient_finite(constant_model, normal):
    model = constant_model([0.1, 0.2, 0, 0], [[3.0, 0.0], [4.0, 0.0]])
    terms = orthogonal_elbo(model, normal(4, 2), normal(4, 2), orthogonality=1.0)
    assert terms.gap.item() == 0
    terms.loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
