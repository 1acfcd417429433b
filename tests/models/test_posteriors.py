"""Posteriors against torch.distributions, invariances, and a training that a bare exponential does not survive."""

import math

import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence
from torch.func import vmap

from unseam.models import MLP, VAE, Bernoulli, Diagonal, Full, Moments, Point, initialise
from unseam.models.posteriors import AbstractPosterior, log_scale

LATENT = 4
random_family = pytest.mark.parametrize("family", [Diagonal, Full])


def features(generator, posterior, batch=7, scale=1.0):
    return scale * torch.randn(batch, posterior.width, generator=generator, dtype=torch.float64)


def covariance(posterior, moments):
    variance = posterior.variance(moments)
    return torch.diag_embed(variance) if isinstance(posterior, Diagonal) else variance


def as_distribution(posterior, moments):
    return MultivariateNormal(moments.mean, covariance_matrix=covariance(posterior, moments))


@pytest.mark.parametrize("latent", [1, 2, 5])
@pytest.mark.parametrize("scale", [0.3, 3.0])
@random_family
def test_kl_and_density_are_torchs(family, latent, scale, generator):
    posterior = family(latent)
    moments = posterior.moments(features(generator, posterior, scale=scale))
    expected = MultivariateNormal(moments.mean, scale_tril=factor(posterior, moments))
    prior = MultivariateNormal(torch.zeros(latent).double(), torch.eye(latent).double())
    torch.testing.assert_close(posterior.kl(moments), kl_divergence(expected, prior), rtol=1e-10, atol=1e-10)
    z = torch.randn(7, latent, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(posterior.log_prob(moments, z), expected.log_prob(z), rtol=1e-10, atol=1e-10)


def factor(posterior, moments):
    return torch.diag_embed(moments.factor) if isinstance(posterior, Diagonal) else moments.factor


@random_family
def test_kl_is_the_mean_log_ratio(family, generator):
    """E_q[log q - log p] by averaging over antithetic pairs of noise, within its own standard error."""
    posterior = family(2)
    moments = posterior.moments(features(generator, posterior, batch=1, scale=0.5))
    noise = torch.randn(20_000, 1, 2, generator=generator, dtype=torch.float64)
    z = vmap(lambda draw: posterior.sample(moments, draw))(noise)
    prior = MultivariateNormal(torch.zeros(2).double(), torch.eye(2).double())
    ratio = vmap(lambda point: posterior.log_prob(moments, point))(z) - prior.log_prob(z)
    error = ratio.std() / math.sqrt(len(ratio))
    assert abs(ratio.mean() - posterior.kl(moments)) < 4 * error


@random_family
def test_samples_are_affine_in_noise_with_the_stated_covariance(family, generator):
    """Unit noise vectors give the columns of the factor, whose outer products add up to the covariance."""
    posterior = family(LATENT)
    moments = posterior.moments(features(generator, posterior))
    units = torch.eye(LATENT).double().unsqueeze(1).expand(-1, 7, -1)
    columns = vmap(lambda unit: posterior.sample(moments, unit) - moments.mean)(units)
    expected = torch.einsum("kbi,kbj->bij", columns, columns)
    torch.testing.assert_close(covariance(posterior, moments), expected)
    torch.testing.assert_close(posterior.sample(moments, torch.zeros_like(moments.mean)), moments.mean)


def test_sampled_covariance(generator):
    posterior = Full(3)
    moments = posterior.moments(features(generator, posterior, batch=1))
    noise = torch.randn(40_000, 1, 3, generator=generator, dtype=torch.float64)
    z = vmap(lambda draw: posterior.sample(moments, draw))(noise).squeeze(1)
    expected = posterior.variance(moments).squeeze(0)
    # the standard error of a sampled covariance entry is at most sqrt(2 / n) times the largest variance
    bound = 5 * math.sqrt(2 / 40_000) * expected.diagonal().max()
    assert (z.T.cov() - expected).abs().max() < bound


def test_full_without_off_diagonals_is_diagonal(generator):
    diagonal, full = Diagonal(LATENT), Full(LATENT)
    same = features(generator, diagonal, scale=2.0)
    extended = torch.cat([same, torch.zeros(7, full.width - diagonal.width).double()], dim=-1)
    first, second = diagonal.moments(same), full.moments(extended)
    z = torch.randn(7, LATENT, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(diagonal.kl(first), full.kl(second))
    torch.testing.assert_close(diagonal.sample(first, z), full.sample(second, z))
    torch.testing.assert_close(diagonal.log_prob(first, z), full.log_prob(second, z))
    torch.testing.assert_close(torch.diag_embed(diagonal.variance(first)), full.variance(second))


@pytest.mark.parametrize("latent", [1, 2, 3, 6])
def test_full_uses_every_feature_once_below_the_diagonal(latent):
    posterior = Full(latent)
    count = latent * (latent - 1) // 2
    below = torch.arange(1.0, count + 1)
    moments = posterior.moments(torch.cat([torch.zeros(2 * latent), below]).unsqueeze(0))
    lower = moments.factor.squeeze(0) - torch.eye(latent)
    rows, columns = torch.tril_indices(latent, latent, -1)
    assert sorted(lower[rows, columns].tolist()) == below.tolist()
    assert torch.equal(lower, lower.tril(-1))


def test_full_kl_is_invariant_under_rotation(generator):
    """Rotating mean and covariance leaves KL to N(0, I) as it is (rolinek2019, Proposition 3)."""
    posterior = Full(LATENT)
    moments = posterior.moments(features(generator, posterior))
    rotation = torch.linalg.qr(torch.randn(LATENT, LATENT, generator=generator, dtype=torch.float64)).Q
    rotated = torch.linalg.cholesky(rotation @ posterior.variance(moments) @ rotation.T)
    turned = Moments(moments.mean @ rotation.T, rotated, rotated.diagonal(dim1=-2, dim2=-1).log())
    torch.testing.assert_close(posterior.kl(turned), posterior.kl(moments))


def test_dropping_correlations_lowers_the_kl_by_the_hadamard_gap(generator):
    """KL(N(0, C)) - KL(N(0, diag C)) = (sum of log C_jj - log det C) / 2, which is never negative."""
    full, diagonal = Full(LATENT), Diagonal(LATENT)
    moments = full.moments(features(generator, full))
    spread = full.variance(moments).diagonal(dim1=-2, dim2=-1)
    dropped = Moments(moments.mean, spread.sqrt(), spread.log() / 2)
    gap = (spread.log().sum(-1) - full.variance(moments).logdet()) / 2
    assert (gap > 0).all()
    torch.testing.assert_close(full.kl(moments) - diagonal.kl(dropped), gap)


@random_family
def test_log_prob_broadcasts(family, generator):
    """Every z under every posterior of the batch, as the total correlation needs it."""
    posterior = family(LATENT)
    moments = posterior.moments(features(generator, posterior))
    z = torch.randn(7, LATENT, generator=generator, dtype=torch.float64)
    pairs = posterior.log_prob(Moments(*[part.unsqueeze(0) for part in moments]), z.unsqueeze(1))
    one = posterior.log_prob(Moments(*[part[2:3] for part in moments]), z[5:6])
    assert pairs.shape == (7, 7)
    torch.testing.assert_close(pairs[5, 2], one.squeeze())


@pytest.mark.parametrize("family", [Diagonal, Full, Point])
def test_vmap_equals_one_by_one(family, generator):
    posterior = family(LATENT)
    stacked = torch.stack([features(generator, posterior) for _ in range(3)])
    noise = torch.randn(3, 7, LATENT, generator=generator, dtype=torch.float64)

    def both(features, noise):
        moments = posterior.moments(features)
        return posterior.sample(moments, noise), posterior.kl(moments), posterior.variance(moments)

    together = vmap(both)(stacked, noise)
    alone = zip(*[both(*pair) for pair in zip(stacked, noise, strict=True)], strict=True)
    for whole, parts in zip(together, alone, strict=True):
        torch.testing.assert_close(whole, torch.stack(list(parts)), rtol=1e-12, atol=1e-12)


def test_point(generator):
    posterior = Point(LATENT)
    mean = torch.randn(7, LATENT, generator=generator)
    moments = posterior.moments(mean)
    assert torch.equal(posterior.sample(moments, torch.randn(7, LATENT, generator=generator)), mean)
    assert torch.equal(posterior.kl(moments), torch.zeros(7))
    assert torch.equal(posterior.variance(moments), torch.zeros(7, LATENT))
    with pytest.raises(ValueError, match="posterior must have a density, got a point"):
        posterior.log_prob(moments, mean)


# The scale: exact where it is used, bounded where an optimiser throws it


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_scale_is_the_identity_up_to_the_prior(dtype):
    raw = torch.linspace(-60, 0, 1001, dtype=dtype, requires_grad=True)
    assert torch.equal(log_scale(raw), raw)
    log_scale(raw).sum().backward()
    assert torch.equal(raw.grad, torch.ones_like(raw))


def test_log_scale_continues_with_its_slope():
    raw = torch.tensor([-1e-9, 1e-9, 3.0, 1e6], dtype=torch.float64, requires_grad=True)
    value = log_scale(raw)
    torch.testing.assert_close(value.exp(), torch.tensor([1.0, 1.0, 4.0, 1e6 + 1], dtype=torch.float64))
    value.sum().backward()
    torch.testing.assert_close(raw.grad, torch.tensor([1.0, 1.0, 0.25, 1 / (1e6 + 1)], dtype=torch.float64))


class BareFull(AbstractPosterior):
    """The full posterior with the exponential of its features on the diagonal."""

    def __init__(self, latent):
        super().__init__(latent)
        self.inner = Full(latent)

    @property
    def width(self):
        return self.inner.width

    def moments(self, features):
        mean, log_diagonal = features[:, : self.latent], features[:, self.latent : 2 * self.latent]
        below = self.inner.moments(features).factor.tril(-1)
        return Moments(mean, below + torch.diag_embed(log_diagonal.exp()), log_diagonal)

    def sample(self, moments, noise):
        return self.inner.sample(moments, noise)

    def kl(self, moments):
        return self.inner.kl(moments)

    def variance(self, moments):
        return self.inner.variance(moments)

    def log_prob(self, moments, z):
        return self.inner.log_prob(moments, z)


def worst_loss(posterior, *, pixels, steps=6, batch=64):
    """Largest loss in the first steps of AdaGrad 1e-2 with a 400-ReLU encoder on bright pictures."""
    generator = torch.Generator().manual_seed(0)
    encoder = MLP(pixels, (400,), posterior.width)
    model = VAE(encoder, posterior, MLP(6, (500, 500), pixels, activation="tanh"), Bernoulli())
    initialise(model, generator=generator, scheme="glorot")
    optimiser = torch.optim.Adagrad(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        x = 0.8 + 0.2 * torch.rand(batch, pixels, generator=generator)
        result = model(x, torch.randn(batch, 6, generator=generator))
        loss = (result.kl - result.log_prob).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return max(losses) if all(map(math.isfinite, losses)) else math.inf


def test_training_stays_finite_where_a_bare_exponential_overflows():
    assert worst_loss(BareFull(6), pixels=4096) > 1e15
    assert worst_loss(Full(6), pixels=4096) < 1e6


@pytest.mark.parametrize(
    "posterior, bound", [(BareFull(6), (1e6, math.inf)), (Full(6), (0, 1e4)), (Diagonal(6), (0, 1e4))]
)
def test_training_on_784_pixels(posterior, bound):
    low, high = bound
    assert low < worst_loss(posterior, pixels=784) < high


# Errors


@pytest.mark.parametrize("family", [Diagonal, Full, Point])
def test_latent_must_be_positive(family):
    with pytest.raises(ValueError, match="latent must be at least 1, got 0"):
        family(0)


@pytest.mark.parametrize("family", [Diagonal, Full, Point])
def test_features_must_have_the_width(family):
    with pytest.raises(
        ValueError, match=r"features must have \d+ entries in their last axis, got shape \(2, 99\)"
    ):
        family(3).moments(torch.zeros(2, 99))


@random_family
def test_noise_must_have_the_shape_of_the_means(family):
    posterior = family(3)
    moments = posterior.moments(torch.zeros(2, posterior.width))
    with pytest.raises(ValueError, match=r"noise must have the shape \(2, 3\) of the means, got \(3,\)"):
        posterior.sample(moments, torch.zeros(3))
