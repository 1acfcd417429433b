"""Likelihoods against torch.distributions, exact sums, quadrature, autograd and high-precision arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import distributions
from torch.func import functional_call, hessian, stack_module_state, vmap

import unseam.models.continuous_bernoulli as continuous
from unseam.models import Bernoulli, Binomial, ContinuousBernoulli, Gaussian, PixelGaussian

LOGITS = torch.tensor(
    [-30.0, -3.0, -1.01, -0.99, -0.3, -1e-6, 0.0, 1e-9, 0.2, 0.999, 1.001, 2.5, 20.0]
).double()
EVERY = [
    Gaussian(0.3),
    Gaussian(2.0, learned=True),
    PixelGaussian(),
    Bernoulli(),
    Binomial(7),
    ContinuousBernoulli(),
]
names = [f"{type(part).__name__}-{index}" for index, part in enumerate(EVERY)]
each = pytest.mark.parametrize("likelihood", EVERY, ids=names)


def data(generator, likelihood, shape=(3, 4, 5)):
    """x in {0, 1} and an output of the decoder, (batch, *data)."""
    x = torch.rand(6, *shape, generator=generator, dtype=torch.float64).round()
    output = torch.randn(6, *likelihood.output_shape(shape), generator=generator, dtype=torch.float64)
    return x, output


def reference(likelihood, output):
    """The same family from torch.distributions; a binomial as counts."""
    if isinstance(likelihood, Gaussian):
        return distributions.Normal(output, likelihood.initial_variance**0.5)
    if isinstance(likelihood, PixelGaussian):
        mean, log_variance = output.chunk(2, 1)
        return distributions.Normal(mean, (log_variance / 2).exp())
    if isinstance(likelihood, Binomial):
        return distributions.Binomial(7, logits=output)
    if isinstance(likelihood, Bernoulli):
        return distributions.Bernoulli(logits=output)
    # its default limits switch to a short Taylor series near one half
    return distributions.ContinuousBernoulli(logits=output, lims=(0.4999999, 0.5000001))


def fresh(likelihood):
    likelihood.double().reset()
    return likelihood


@each
def test_log_prob_is_torchs_summed_over_data(likelihood, generator):
    likelihood = fresh(likelihood)
    x, output = data(generator, likelihood)
    scale = 7 if isinstance(likelihood, Binomial) else 1
    expected = reference(likelihood, output).log_prob(scale * x).sum((1, 2, 3))
    torch.testing.assert_close(likelihood.log_prob(x, output), expected, rtol=1e-9, atol=1e-9)


@each
def test_moments_are_torchs(likelihood, generator):
    likelihood = fresh(likelihood)
    x, output = data(generator, likelihood)
    scale = 7 if isinstance(likelihood, Binomial) else 1
    expected = reference(likelihood, output)
    torch.testing.assert_close(likelihood.mean(output), expected.mean / scale, rtol=1e-7, atol=0)
    torch.testing.assert_close(likelihood.variance(output), expected.variance / scale**2, rtol=1e-7, atol=0)
    assert likelihood.mean(output).shape == likelihood.variance(output).shape == x.shape


def support(likelihood, output):
    """Points x (point, 1) and masses (point,) that integrate against p(x|output) exactly or nearly so."""
    if isinstance(likelihood, Bernoulli):
        x = torch.tensor([0.0, 1.0]).double()
        mass = torch.ones(2).double()
    elif isinstance(likelihood, Binomial):
        x = torch.arange(8).double() / 7
        mass = torch.ones(8).double()
    elif isinstance(likelihood, ContinuousBernoulli):
        nodes, weights = np.polynomial.legendre.leggauss(80)
        x, mass = torch.tensor(nodes + 1) / 2, torch.tensor(weights) / 2
    else:
        # an exact rule for the normal distribution: at each node the mass divided by the density is its weight
        nodes, weights = np.polynomial.hermite_e.hermegauss(20)
        std = likelihood.variance(output).sqrt().item()
        x = likelihood.mean(output).item() + std * torch.tensor(nodes)
        mass = torch.tensor(weights) * std * torch.exp(torch.tensor(nodes).square() / 2)
    return x.unsqueeze(-1), mass


@each
@pytest.mark.parametrize("value", [-2.0, -0.4, 0.0, 1.3])
def test_it_is_normalised_and_its_fisher_weight_is_the_expected_curvature(likelihood, value):
    likelihood = fresh(likelihood)
    output = torch.tensor([value, -0.7][: likelihood.channels]).double()
    x, mass = support(likelihood, output.unsqueeze(0))

    def log_prob(parameter, point):
        return likelihood.log_prob(point.unsqueeze(0), parameter.unsqueeze(0)).squeeze(0)

    probability = mass * vmap(log_prob, in_dims=(None, 0))(output, x).exp()
    torch.testing.assert_close(probability.sum(), torch.tensor(1.0).double(), rtol=1e-10, atol=0)
    curvature = vmap(hessian(log_prob), in_dims=(None, 0))(output, x)
    expected = -torch.einsum("p,pij->ij", probability, curvature)
    weight = likelihood.fisher_weight(output.unsqueeze(0)).squeeze(0)
    torch.testing.assert_close(torch.diag(weight), expected, rtol=1e-8, atol=1e-10)
    centre = (probability * x.squeeze(-1)).sum()
    spread = (probability * (x.squeeze(-1) - centre).square()).sum()
    torch.testing.assert_close(likelihood.mean(output.unsqueeze(0)).squeeze(), centre, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(likelihood.variance(output.unsqueeze(0)).squeeze(), spread, rtol=1e-8, atol=0)


@each
def test_shapes(likelihood):
    shape = (3, 4, 5)
    expected = (6, 4, 5) if isinstance(likelihood, PixelGaussian) else shape
    assert likelihood.output_shape(shape) == expected
    assert likelihood.output_shape((5,)) == ((10,) if isinstance(likelihood, PixelGaussian) else (5,))
    output = torch.zeros(2, *expected).double()
    assert likelihood.double().fisher_weight(output).shape == output.shape


@each
def test_permuting_pixels_changes_nothing(likelihood, generator):
    likelihood = fresh(likelihood)
    x, output = data(generator, likelihood, (1, 20))
    order = torch.randperm(20, generator=generator)
    torch.testing.assert_close(
        likelihood.log_prob(x, output), likelihood.log_prob(x[..., order], output[..., order])
    )


@pytest.mark.parametrize("draws", [1.0, 3.0, 0.5])
def test_binomial_is_a_bernoulli_times_draws_up_to_a_constant(draws, generator):
    x = torch.rand(5, 4, generator=generator, dtype=torch.float64)
    first, second = torch.randn(2, 5, 4, generator=generator, dtype=torch.float64)
    binomial = fresh(Binomial(draws))
    change = binomial.log_prob(x, first) - binomial.log_prob(x, second)
    expected = Bernoulli().log_prob(x, first) - Bernoulli().log_prob(x, second)
    torch.testing.assert_close(change, draws * expected)


def test_one_draw_is_the_bernoulli(generator):
    x, output = data(generator, Bernoulli())
    torch.testing.assert_close(Binomial(1).double().log_prob(x, output), Bernoulli().log_prob(x, output))


# The continuous Bernoulli through logit zero


def exact(logit, terms=80):
    """log-normaliser, mean and variance by exact rational power series of the integrals of xᵏ exp(θx)."""
    theta = Fraction(float(logit))
    sums = [Fraction(0)] * 3
    term = Fraction(1)
    for n in range(terms):
        sums = [total + term / (n + 1 + k) for k, total in enumerate(sums)]
        term = term * theta / (n + 1)
    mean, second = sums[1] / sums[0], sums[2] / sums[0]
    return np.log(float(sums[0])), float(mean), float(second - mean**2)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 4e-15), (torch.float32, 3e-6)])
@pytest.mark.parametrize(
    "logit", [-8.0, -1.5, -1.001, -0.999, -0.1, -1e-7, 0.0, 1e-12, 3e-4, 0.5, 1.001, 6.0]
)
def test_continuous_bernoulli_is_accurate_with_its_gradients(logit, dtype, tolerance):
    logits = torch.tensor(logit, dtype=dtype, requires_grad=True)
    log_normaliser, mean, variance = exact(logits.detach())
    value = continuous.log_normaliser(logits)
    (slope,) = torch.autograd.grad(value, logits, create_graph=True)
    (curvature,) = torch.autograd.grad(slope, logits)
    np.testing.assert_allclose(value.item(), log_normaliser, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(slope.item(), mean, rtol=tolerance)
    np.testing.assert_allclose(continuous.mean(logits).item(), mean, rtol=tolerance)
    np.testing.assert_allclose(continuous.variance(logits).item(), variance, rtol=20 * tolerance)
    np.testing.assert_allclose(curvature.item(), variance, rtol=20 * tolerance)


@pytest.mark.parametrize("dtype, largest", [(torch.float64, 1e4), (torch.float32, 100.0)])
def test_continuous_bernoulli_at_extreme_logits(dtype, largest):
    logits = torch.tensor([-largest, -60.0, 60.0, largest], dtype=dtype, requires_grad=True)
    value = ContinuousBernoulli().log_prob(
        torch.tensor([0, 0, 1, 1], dtype=dtype).unsqueeze(1), logits.unsqueeze(1)
    )
    rounding = torch.finfo(dtype).eps * largest
    torch.testing.assert_close(value, logits.abs().log(), rtol=0, atol=rounding)
    value.sum().backward()
    torch.testing.assert_close(logits.grad, 1 / logits, rtol=0, atol=torch.finfo(dtype).eps)
    torch.testing.assert_close(continuous.variance(logits), logits.square().reciprocal())


def test_continuous_bernoulli_is_symmetric():
    """Exchanging x and 1 - x turns the sign of the logit."""
    torch.testing.assert_close(continuous.mean(LOGITS), 1 - continuous.mean(-LOGITS))
    torch.testing.assert_close(continuous.variance(LOGITS), continuous.variance(-LOGITS))
    torch.testing.assert_close(continuous.log_normaliser(LOGITS) - LOGITS, continuous.log_normaliser(-LOGITS))


# State: a buffer or a parameter, stacked members with values of their own


def test_fixed_and_learned_variance_share_a_name():
    assert [name for name, _ in Gaussian(0.5).named_buffers()] == ["log_variance"]
    assert [name for name, _ in Gaussian(0.5, learned=True).named_parameters()] == ["log_variance"]
    assert list(Gaussian(0.5).parameters()) == []


def test_learned_variance_has_its_optimum_at_the_mean_square(generator):
    x = torch.randn(200, 3, generator=generator, dtype=torch.float64)
    likelihood = Gaussian(float(x.square().mean()), learned=True).double()
    likelihood.reset()
    likelihood.log_prob(x, torch.zeros_like(x)).mean().backward()
    assert abs(likelihood.log_variance.grad.item()) < 1e-12


@pytest.mark.parametrize("make, values", [(Gaussian, (0.1, 1.0, 4.0)), (Binomial, (1.0, 2.0, 9.0))])
def test_stacked_members_keep_their_own_value(make, values, generator):
    members = [make(value).double() for value in values]
    stacked = stack_module_state(members)
    x = torch.rand(3, 5, 4, generator=generator, dtype=torch.float64)
    output = torch.randn(3, 5, 4, generator=generator, dtype=torch.float64)

    def log_prob(parameters, buffers, x, output):
        return functional_call(Caller(members[0]), prefixed(parameters, buffers), (x, output))

    alone = torch.stack([member.log_prob(*pair) for member, *pair in zip(members, x, output, strict=True)])
    torch.testing.assert_close(vmap(log_prob)(*stacked, x, output), alone, rtol=1e-12, atol=0)


class Caller(torch.nn.Module):
    """``log_prob`` as forward, which is what functional_call calls."""

    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, x, output):
        return self.part.log_prob(x, output)


def prefixed(*states):
    return {f"part.{name}": value for state in states for name, value in state.items()}


# Errors


@pytest.mark.parametrize("likelihood", [Bernoulli(), Binomial(2), ContinuousBernoulli()])
def test_check_names_range_and_remedy(likelihood):
    likelihood.check(torch.tensor([0.0, 0.3, 1.0]))
    with pytest.raises(
        ValueError, match=r"x must lie in \[0, 1\] for the \w+ likelihood, got .* from -0.5 to 255"
    ):
        likelihood.check(torch.tensor([-0.5, 255.0]))


@each
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_check_wants_finite_data(likelihood, bad):
    with pytest.raises(ValueError, match=r"x must be finite for the \w+ likelihood, got NaN or infinite"):
        likelihood.check(torch.tensor([0.5, bad]))


@each
def test_check_wants_data(likelihood):
    with pytest.raises(ValueError, match=r"x must hold at least one value, got shape \(0, 2\)"):
        likelihood.check(torch.zeros(0, 2))


def test_gaussians_take_any_finite_range():
    Gaussian().check(torch.tensor([-5.0, 300.0]))
    PixelGaussian().check(torch.tensor([-5.0, 300.0]))


@each
def test_log_prob_wants_equal_shapes(likelihood):
    with pytest.raises(ValueError, match=r"x must have the decoder's shape \(2, \d\), got \(2, 3\)"):
        likelihood.float().log_prob(torch.zeros(2, 3), torch.zeros(2, *likelihood.output_shape((4,))))


def test_pixel_gaussian_wants_an_even_axis():
    with pytest.raises(ValueError, match=r"output must have an even first data axis, got shape \(2, 3\)"):
        PixelGaussian().mean(torch.zeros(2, 3))


@pytest.mark.parametrize("variance", [0.0, -1.0, float("nan"), float("inf")])
def test_variance_must_be_positive(variance):
    with pytest.raises(ValueError, match="variance must be positive and finite, got"):
        Gaussian(variance)


@pytest.mark.parametrize("draws", [0, -2, float("nan")])
def test_draws_must_be_positive(draws):
    with pytest.raises(ValueError, match="draws must be positive and finite, got"):
        Binomial(draws)
