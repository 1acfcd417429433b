"""β-ELBO, annealed capacity and the plain autoencoder."""

import math

import pytest
import torch

from unseam.models import Bernoulli
from unseam.objectives import annealed_capacity, autoencoder, beta_elbo

LOG_2PI = math.log(2 * math.pi)
X = torch.tensor([[4.0, 2.0]], dtype=torch.float64)
NO_NOISE = torch.zeros(1, 2, dtype=torch.float64)
IDENTITY = [[1.0, 0.0], [0.0, 1.0]]


def test_beta_is_pinned_by_hand(constant_model):
    # Mean (2, 2), variance 1: KL = (4 + 4) / 2 = 4. z = (2, 2) decodes to itself: (4 - 2)² / 2 = 2.
    terms = beta_elbo(constant_model([2, 2, 0, 0], IDENTITY), X, NO_NOISE, beta=3.0)
    assert terms.kl.item() == pytest.approx(4)
    assert terms.reconstruction.item() == pytest.approx(2 + LOG_2PI)
    assert terms.loss.item() == pytest.approx(14 + LOG_2PI)


def test_beta_defaults_to_the_elbo(make_model, normal):
    model, x, noise = make_model(), normal(4, 3), normal(4, 2)
    assert beta_elbo(model, x, noise) == beta_elbo(model, x, noise, beta=1.0)


def test_terms_against_torch_distributions(make_model, normal):
    model, x, noise = make_model(likelihood="bernoulli"), normal(4, 3).sigmoid(), normal(4, 2)
    assert isinstance(model.likelihood, Bernoulli)
    encoding = model.encode(x)
    posterior = torch.distributions.Normal(encoding.mean, encoding.variance.sqrt())
    prior = torch.distributions.Normal(torch.zeros(2, dtype=x.dtype), 1.0)
    logits = model.decode(encoding.mean + encoding.variance.sqrt() * noise)
    likelihood = torch.distributions.Bernoulli(logits=logits, validate_args=False)
    kl = torch.distributions.kl_divergence(posterior, prior).sum(1).mean()
    reconstruction = -likelihood.log_prob(x).sum(1).mean()
    terms = beta_elbo(model, x, noise, beta=4.0)
    torch.testing.assert_close(terms.kl, kl)
    torch.testing.assert_close(terms.reconstruction, reconstruction)
    torch.testing.assert_close(terms.loss, reconstruction + 4 * kl)


def test_batch_is_averaged_not_summed(make_model, normal):
    model, x, noise = make_model(), normal(4, 3), normal(4, 2)
    twice = beta_elbo(model, torch.cat([x, x]), torch.cat([noise, noise]), beta=2.0)
    torch.testing.assert_close(twice, beta_elbo(model, x, noise, beta=2.0))


@pytest.mark.parametrize(
    ("step", "capacity", "loss"),
    [(0, 0, 2 + 20), (30, 6, 2 + 10), (100, 20, 2 + 80), (250, 20, 2 + 80)],
)
@pytest.mark.parametrize("as_tensor", [False, True])
def test_capacity_grows_and_stays(constant_model, step, capacity, loss, as_tensor):
    # KL = 4 and reconstruction 2 as above; the loss is 2 + 5 |4 - C|.
    model = constant_model([2, 2, 0, 0], IDENTITY)
    given = torch.tensor(step) if as_tensor else step
    terms = annealed_capacity(model, X, NO_NOISE, gamma=5.0, capacity=20.0, capacity_steps=100, step=given)
    assert terms.capacity.item() == pytest.approx(capacity)
    assert terms.loss.item() == pytest.approx(loss + LOG_2PI)


def test_a_double_clock_does_not_change_the_type(make_model, normal):
    model = make_model().float()
    clock = torch.tensor(7.0, dtype=torch.float64)
    x, noise = normal(4, 3).float(), normal(4, 2).float()
    terms = annealed_capacity(model, x, noise, gamma=1.0, capacity=5.0, capacity_steps=10.0, step=clock)
    assert {value.dtype for value in terms} == {torch.float32}


@pytest.mark.parametrize("steps", [0, -5.0])
def test_capacity_needs_steps(make_model, normal, steps):
    with pytest.raises(ValueError, match=f"capacity_steps must be positive, got {steps}"):
        annealed_capacity(
            make_model(), normal(4, 3), normal(4, 2), gamma=1.0, capacity=5.0, capacity_steps=steps, step=0
        )


@pytest.mark.parametrize("posterior", ["point", "diagonal"])
def test_autoencoder_decodes_the_mean(make_model, normal, posterior):
    model, x = make_model(posterior=posterior), normal(4, 3)
    terms = autoencoder(model, x, normal(4, 2))
    residual = (x - model.reconstruct(x)).square().sum(1).mean()
    torch.testing.assert_close(terms.loss, residual / 2 + 1.5 * LOG_2PI)
    assert terms.kl.item() == 0
    assert terms.reconstruction == terms.loss


def test_autoencoder_is_the_elbo_of_a_point(make_model, normal):
    model, x, noise = make_model(posterior="point"), normal(4, 3), normal(4, 2)
    torch.testing.assert_close(autoencoder(model, x, noise), beta_elbo(model, x, noise, beta=7.0))
