"""The deterministic ELBO against the expectation that it expands."""

import math

import pytest
import torch

from unseam.geometry import jacobian, pullback
from unseam.objectives import beta_elbo, deterministic_elbo

LOG_2PI = math.log(2 * math.pi)
FEATURES = {"diagonal": [0.3, -0.7, -0.5, -2.0], "full": [0.3, -0.7, -0.5, -2.0, 0.8]}


def expected_loss(model, x, nodes, mass, beta):
    """E over the posterior of the β-ELBO of one item, by quadrature."""
    losses = torch.stack([beta_elbo(model, x, node[None], beta=beta).loss for node in nodes])
    return (mass * losses).sum()


def set_posterior(model, mean, log_variance):
    with torch.no_grad():
        layer = model.encoder.layers[-1]
        layer.weight.zero_()
        layer.bias.copy_(torch.cat([mean, log_variance]))


def test_terms_are_pinned_by_hand(constant_model):
    # Mean (2, 2), Σ = I, decoder I: reconstruction (4 - 2)²/2 = 2, ½ tr I = 1, KL = (4 + 4)/2 = 4; β = 3.
    model = constant_model([2, 2, 0, 0], [[1.0, 0.0], [0.0, 1.0]])
    x, noise = torch.tensor([[4.0, 2.0]], dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64)
    terms = deterministic_elbo(model, x, noise, beta=3.0)
    assert terms.reconstruction.item() == pytest.approx(2 + LOG_2PI)
    assert terms.regularisation.item() == pytest.approx(1)
    assert terms.kl.item() == pytest.approx(4)
    assert terms.loss.item() == pytest.approx(15 + LOG_2PI)


@pytest.mark.parametrize("posterior", ["diagonal", "full"])
def test_exact_for_a_linear_decoder(constant_model, normal, quadrature, posterior):
    weight = [[1.0, 2.0], [-1.0, 0.5], [0.0, 3.0]]
    model = constant_model(FEATURES[posterior], weight, posterior=posterior, variance=0.3)
    x = normal(1, 3)
    nodes, mass = quadrature(3, 2)
    exact = expected_loss(model, x, nodes, mass, 2.5)
    terms = deterministic_elbo(model, x, normal(1, 2), beta=2.5)
    torch.testing.assert_close(terms.loss, exact, rtol=1e-12, atol=1e-12)


def test_gap_is_of_second_order_in_the_variance_where_reconstruction_is_exact(make_model, quadrature):
    model = make_model()
    mean = torch.tensor([0.4, -0.6], dtype=torch.float64)
    x = model.decode(mean[None]).detach()
    nodes, mass = quadrature(9, 2)
    gaps = []
    for variance in (0.02, 0.01):
        set_posterior(model, mean, torch.full((2,), math.log(variance), dtype=torch.float64))
        gaps.append(expected_loss(model, x, nodes, mass, 1.0) - deterministic_elbo(model, x, nodes[:1]).loss)
    assert gaps[0].abs() > 1e-8
    assert (gaps[0] / gaps[1]).item() == pytest.approx(4, rel=0.05)


def test_gap_is_the_residual_term_to_first_order_elsewhere(make_model, normal, quadrature):
    model, x = make_model(), normal(1, 3)
    mean = torch.tensor([0.4, -0.6], dtype=torch.float64)
    variance = 1e-5
    set_posterior(model, mean, torch.full((2,), math.log(variance), dtype=torch.float64))
    nodes, mass = quadrature(7, 2)
    gap = expected_loss(model, x, nodes, mass, 1.0) - deterministic_elbo(model, x, nodes[:1]).loss
    residual = (x - model.decode(mean[None])).detach()[0]
    hessian = torch.autograd.functional.hessian(lambda z: residual @ model.decode(z[None])[0], mean)
    assert gap.item() == pytest.approx(-variance / 2 * hessian.trace().item(), rel=1e-3)


@pytest.mark.parametrize("posterior", ["diagonal", "full"])
def test_bernoulli_form_with_both_halves_of_the_log_likelihood(make_model, normal, posterior):
    model, x = make_model(likelihood="bernoulli", posterior=posterior), normal(4, 3).sigmoid()
    mean, variance = model.encode(x)
    success = model.decode(mean).sigmoid()
    log_likelihood = (x * success.log() + (1 - x) * (1 - success).log()).sum(1)
    columns = jacobian(model.decode, mean)
    hessian = columns.mT @ torch.diag_embed(success * (1 - success)) @ columns
    covariance = torch.diag_embed(variance) if posterior == "diagonal" else variance
    terms = deterministic_elbo(model, x, normal(4, 2))
    torch.testing.assert_close(terms.reconstruction, -log_likelihood.mean())
    torch.testing.assert_close(terms.regularisation, (hessian * covariance).sum((1, 2)).mean() / 2)


@pytest.mark.parametrize("beta", [0.5, 4.0])
def test_variance_is_stationary_at_the_optimal_precision(make_model, normal, beta):
    """allen2024 Eq. 7, diagonal: 1/σ_j² = 1 + G_jj/β."""
    model, x = make_model(), normal(1, 3)
    mean = torch.tensor([0.4, -0.6], dtype=torch.float64)
    metric = pullback(model.decode, mean[None], likelihood=model.likelihood)[0].detach()
    set_posterior(model, mean, -(1 + metric.diagonal() / beta).log())
    loss = deterministic_elbo(model, x, normal(1, 2), beta=beta).loss
    (gradient,) = torch.autograd.grad(loss, [model.encoder.layers[-1].bias])
    torch.testing.assert_close(gradient[2:], torch.zeros(2, dtype=torch.float64), rtol=0, atol=1e-12)


def test_noise_is_ignored(make_model, normal):
    model, x = make_model(), normal(4, 3)
    assert deterministic_elbo(model, x, normal(4, 2)) == deterministic_elbo(model, x, 9 * normal(4, 2))


def test_a_point_posterior_is_refused(make_model, normal):
    with pytest.raises(ValueError, match="model must have a diagonal or full posterior"):
        deterministic_elbo(make_model(posterior="point"), normal(4, 3), normal(4, 2))


@pytest.mark.parametrize("shape", [(0, 3), (1, 4, 3)])
def test_data_of_other_shapes_are_refused_by_their_name(make_model, shape):
    with pytest.raises(ValueError, match=r"x must have shape \(batch, \*data\) with items as the model has"):
        deterministic_elbo(make_model(), torch.zeros(shape), torch.zeros(1, 2))
