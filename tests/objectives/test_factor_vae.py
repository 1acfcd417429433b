"""FactorVAE: its terms, and two gradients from one backward pass."""

import dataclasses
import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from unseam.models import initialise
from unseam.objectives import Discriminator, beta_elbo, factor_vae
from unseam.training import Trial, train
from unseam.training.learner import blank_learner


@pytest.fixture
def discriminator():
    module = Discriminator(2, width=7, depth=2).double()
    initialise(module, generator=torch.Generator().manual_seed(3))
    return module


@pytest.fixture
def keys(generator):
    return torch.rand(5, 2, generator=generator, dtype=torch.float64)


class Ratio(nn.Module):
    """Logits (log q(z), log Π q(z_j)) of a Gaussian of unit variances and correlation ``rho``."""

    def __init__(self, rho: float) -> None:
        super().__init__()
        self.register_buffer("covariance", torch.tensor([[1.0, rho], [rho, 1.0]], dtype=torch.float64))

    def forward(self, z):
        joint = torch.distributions.MultivariateNormal(torch.zeros_like(z[0]), self.covariance)
        product = torch.distributions.Normal(torch.zeros_like(z[0]), 1.0)
        return torch.stack([joint.log_prob(z), product.log_prob(z).sum(1)], dim=1)


class First(nn.Module):
    """Log-ratio z_1."""

    def forward(self, z):
        return torch.stack([z[:, 0], torch.zeros_like(z[:, 0])], dim=1)


def test_model_gets_the_gradient_of_its_own_loss(make_model, normal, discriminator, keys):
    model, x, noise = make_model(), normal(5, 3), normal(5, 2)
    loss = factor_vae(model, discriminator, x, noise, keys, gamma=6.0, beta=2.0).loss
    found = torch.autograd.grad(loss, list(model.parameters()))

    discriminator.requires_grad_(False)
    logits = discriminator(model(x, noise).z)
    own = beta_elbo(model, x, noise, beta=2.0).loss + 6.0 * (logits[:, 0] - logits[:, 1]).mean()
    expected = torch.autograd.grad(own, list(model.parameters()))
    torch.testing.assert_close(found, expected)
    assert all(value.abs().max() > 0 for value in expected)


def test_discriminator_gets_the_gradient_of_its_own_loss(make_model, normal, discriminator, keys):
    model, x, noise = make_model(), normal(5, 3), normal(5, 2)
    terms = factor_vae(model, discriminator, x, noise, keys, gamma=6.0)
    found = torch.autograd.grad(terms.loss, list(discriminator.parameters()))

    with torch.no_grad():
        z = model(x, noise).z
    order = keys.sort(0).indices
    permuted = torch.stack([z[order[:, 0], 0], z[order[:, 1], 1]], dim=1)
    logits = discriminator(torch.cat([z, permuted]))
    classes = torch.tensor([0] * 5 + [1] * 5)
    own = functional.cross_entropy(logits, classes)
    torch.testing.assert_close(terms.discriminator_loss, own)
    torch.testing.assert_close(found, torch.autograd.grad(own, list(discriminator.parameters())))


def test_terms_are_pinned_by_hand(identity_model):
    # z = x = (3, 1) and (1, 1), so the log-ratio z_1 is 3 and 1: total correlation 2, KL (5 + 1) / 2 = 3.
    # ½ mean[softplus(-t) + softplus(t)] over t = 3, 1 is 1 + ½ [log(1 + e⁻³) + log(1 + e⁻¹)].
    x = torch.tensor([[3.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    zeros = torch.zeros(2, 2, dtype=torch.float64)
    terms = factor_vae(identity_model(), First(), x, zeros, zeros, gamma=3.0, beta=2.0)
    adversary = 1 + (math.log1p(math.exp(-3)) + math.log1p(math.exp(-1))) / 2
    assert terms.kl.item() == pytest.approx(3)
    assert terms.total_correlation.item() == pytest.approx(2)
    assert terms.discriminator_loss.item() == pytest.approx(adversary)
    assert terms.loss.item() == pytest.approx(math.log(2 * math.pi) + 6 + 6 + adversary)


@pytest.mark.parametrize("rho", [0.0, 0.5, -0.9])
def test_the_true_density_ratio_gives_the_total_correlation(constant_model, normal, rho):
    # The log-ratio is quadratic in z, so noise with exact second moments leaves no sampling error.
    raw = normal(8, 2)
    centred = raw - raw.mean(0)
    noise = centred @ torch.linalg.inv(torch.linalg.cholesky(centred.T @ centred / 8)).T
    side = math.sqrt(1 - rho**2)
    model = constant_model(
        [0.0, 0.0, 0.0, 2 * math.log(side), rho], [[1.0, 0.0], [0.0, 1.0]], posterior="full"
    )
    terms = factor_vae(model, Ratio(rho), normal(8, 2), noise, normal(8, 2), gamma=1.0)
    assert terms.total_correlation.item() == pytest.approx(-math.log(side), abs=1e-6)


def test_an_undecided_discriminator_costs_log_two(make_model, normal, keys):
    model, x, noise = make_model(), normal(5, 3), normal(5, 2)
    terms = factor_vae(
        model, lambda_module(lambda z: torch.zeros(len(z), 2).double()), x, noise, keys, gamma=9.0
    )
    assert terms.total_correlation.item() == 0
    assert terms.discriminator_loss.item() == pytest.approx(math.log(2))


def test_keys_permute_each_latent_alone(normal, make_model, generator):
    seen = []
    spy = lambda_module(lambda z: seen.append(z.detach()) or torch.zeros(len(z), 2, dtype=z.dtype))
    keys = torch.rand(50, 2, generator=generator, dtype=torch.float64)
    model, x, noise = make_model(), normal(50, 3), normal(50, 2)
    factor_vae(model, spy, x, noise, keys, gamma=1.0)
    joint, product = seen[1], seen[2]
    torch.testing.assert_close(product.sort(0).values, joint.sort(0).values, rtol=0, atol=0)
    assert not torch.equal(product, joint)
    assert not any((row == joint).all(1).any() for row in product[:5])


@pytest.mark.parametrize("name", ["width", "depth"])
@pytest.mark.parametrize("value", [0, -1, 2.5])
def test_sizes_of_the_discriminator_are_whole_numbers(name, value):
    with pytest.raises(ValueError, match=f"{name} must be a whole number of at least 1, got {value}"):
        Discriminator(2, **{name: value})


@pytest.mark.parametrize(("weights", "width"), [({}, 1000), ({"discriminator_width": 8}, 8)])
def test_a_trial_sets_the_width_of_its_discriminator(weights, width):
    trial = Trial(objective="factor_vae", latent=3, encoder_widths=(4,), decoder_widths=(4,), weights=weights)
    found = blank_learner(trial, (1, 2, 2), size=10).discriminator
    assert [layer.out_features for layer in found.modules() if isinstance(layer, nn.Linear)] == [
        *[width] * 6,
        2,
    ]


def test_a_narrow_discriminator_trains_in_a_stack_of_its_own_shape():
    trial = Trial(
        world="linear", likelihood="gaussian", objective="factor_vae", latent=2, encoder_widths=(),
        decoder_widths=(), gamma=3.0, steps=3, batch_size=8, weights={"discriminator_width": 8},
    )  # fmt: skip
    assert not trial.stacks_with(dataclasses.replace(trial, weights={}))
    ensemble = train([trial, dataclasses.replace(trial, seed=1)], device="cpu")
    assert ensemble.history["discriminator_loss"].between(0.5, 1.0).all()


def test_discriminator_has_the_published_shape():
    widths = [layer.out_features for layer in Discriminator(3).modules() if isinstance(layer, nn.Linear)]
    assert widths == [1000] * 6 + [2]


def test_keys_of_another_shape_are_refused(make_model, normal, discriminator):
    with pytest.raises(ValueError, match=r"keys must have the shape of z, \(5, 2\), got shape \(5, 3\)"):
        factor_vae(make_model(), discriminator, normal(5, 3), normal(5, 2), normal(5, 3), gamma=1.0)


def lambda_module(function):
    module = nn.Module()
    module.forward = function
    return module
