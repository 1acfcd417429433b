"""The VAE as the sum of its parts, alone, stacked, and built from names."""

import copy

import pytest
import torch
from torch.func import functional_call, stack_module_state, vmap

from unseam import choices
from unseam.models import (
    MLP,
    VAE,
    Bernoulli,
    Binomial,
    ContinuousBernoulli,
    Diagonal,
    Full,
    Gaussian,
    PixelGaussian,
    Point,
    build,
    initialise,
)

POSTERIORS = {"diagonal": Diagonal, "full": Full, "point": Point}
LIKELIHOODS = {
    "gaussian": Gaussian,
    "gaussian_learned": Gaussian,
    "gaussian_pixel": PixelGaussian,
    "bernoulli": Bernoulli,
    "binomial": Binomial,
    "continuous_bernoulli": ContinuousBernoulli,
}


def own_options(likelihood, value):
    """The number of a likelihood that has one."""
    return {option.name: value for option in choices.find(choices.Likelihood, likelihood).options}


each_posterior = pytest.mark.parametrize("posterior", POSTERIORS)
each_likelihood = pytest.mark.parametrize("likelihood", LIKELIHOODS)


def make(seed=0, **options):
    options = {"encoder_widths": (6,), "decoder_widths": (5,), "latent": 3, **options}
    model = build((2, 4), **options).double()
    initialise(model, generator=torch.Generator().manual_seed(seed))
    return model


def inputs(generator, *members):
    x = torch.rand(*members, 7, 2, 4, generator=generator, dtype=torch.float64)
    return x, torch.randn(*members, 7, 3, generator=generator, dtype=torch.float64)


@each_posterior
@each_likelihood
def test_a_pass_is_made_of_its_parts(posterior, likelihood, generator):
    model = make(posterior=posterior, likelihood=likelihood)
    x, noise = inputs(generator)
    result = model(x, noise)
    moments = model.posterior.moments(model.encoder(x))
    assert all(torch.equal(a, b) for a, b in zip(result.moments, moments, strict=True))
    assert torch.equal(result.z, model.posterior.sample(moments, noise))
    assert torch.equal(result.output, model.decoder(result.z))
    assert torch.equal(result.log_prob, model.likelihood.log_prob(x, result.output))
    assert torch.equal(result.kl, model.posterior.kl(moments))
    assert result.log_prob.shape == result.kl.shape == (7,)


@each_posterior
def test_encode_decode_reconstruct(posterior, generator):
    model = make(posterior=posterior, likelihood="gaussian_pixel")
    x, _ = inputs(generator)
    mean, variance = model.encode(x)
    moments = model.moments(x)
    assert torch.equal(mean, moments.mean)
    assert torch.equal(variance, model.posterior.variance(moments))
    assert variance.shape == ((7, 3, 3) if posterior == "full" else (7, 3))
    assert model.decode(mean).shape == (7, 4, 4)
    assert torch.equal(model.reconstruct(x), model.decode(mean)[:, :2])


def test_elbo_is_a_bound(generator):
    """A linear Gaussian VAE with the exact posterior has ELBO = log p(x), whatever the noise."""
    weight = torch.tensor([[1.5], [-0.5]]).double()
    model = VAE(MLP(2, (), 2), Diagonal(1), MLP(1, (), 2), Gaussian(0.3)).double()
    model.likelihood.reset()
    precision = 1 + weight.square().sum() / 0.3
    with torch.no_grad():
        model.decoder.layers[0].weight.copy_(weight)
        model.decoder.layers[0].bias.zero_()
        model.encoder.layers[0].weight.copy_(torch.cat([weight.T / 0.3 / precision, torch.zeros(1, 2)]))
        model.encoder.layers[0].bias.copy_(torch.stack([torch.zeros(()), -precision.log()]))
    x = torch.randn(5, 2, generator=generator, dtype=torch.float64)
    marginal = torch.distributions.MultivariateNormal(
        torch.zeros(2).double(), weight @ weight.T + 0.3 * torch.eye(2).double()
    )
    # two opposite draws integrate the quadratic log-likelihood exactly
    passes = [model(x, sign * torch.ones(5, 1).double()) for sign in (-1, 1)]
    elbo = sum(result.log_prob for result in passes) / 2 - passes[0].kl
    torch.testing.assert_close(elbo, marginal.log_prob(x))
    with torch.no_grad():
        model.encoder.layers[0].bias += 0.3
    passes = [model(x, sign * torch.ones(5, 1).double()) for sign in (-1, 1)]
    assert (sum(result.log_prob for result in passes) / 2 - passes[0].kl < marginal.log_prob(x)).all()


@each_posterior
@each_likelihood
def test_a_member_of_a_stack_is_the_member_alone(posterior, likelihood, generator):
    options = {"posterior": posterior, "likelihood": likelihood}
    members = [make(seed, **options, **own_options(likelihood, 0.1 + seed)) for seed in range(3)]
    x, noise = inputs(generator, 3)
    parameters, buffers = stack_module_state(members)
    with torch.device("meta"):
        skeleton = build((2, 4), encoder_widths=(6,), decoder_widths=(5,), latent=3, **options)
    stacked = vmap(lambda p, b, x, noise: functional_call(skeleton, (p, b), (x, noise)))(
        parameters, buffers, x, noise
    )
    alone = [member(*pair) for member, *pair in zip(members, x, noise, strict=True)]
    for field in ("z", "output", "log_prob", "kl"):
        expected = torch.stack([getattr(result, field) for result in alone])
        torch.testing.assert_close(getattr(stacked, field), expected, rtol=1e-10, atol=1e-12)
    (stacked.kl - stacked.log_prob).sum().backward()
    sum((result.kl - result.log_prob).sum() for result in alone).backward()
    for name, value in parameters.items():
        expected = torch.stack([member.get_parameter(name).grad for member in members])
        torch.testing.assert_close(value.grad, expected, rtol=1e-9, atol=1e-12)


def test_permuting_the_batch_permutes_the_pass(generator):
    model = make()
    x, noise = inputs(generator)
    order = torch.randperm(7, generator=generator)
    torch.testing.assert_close(model(x[order], noise[order]).log_prob, model(x, noise).log_prob[order])


def test_state_survives_a_round_trip(generator):
    model, other = make(0, likelihood="gaussian"), make(1, likelihood="gaussian", likelihood_variance=4.0)
    other.load_state_dict(model.state_dict())
    x, noise = inputs(generator)
    assert torch.equal(other(x, noise).log_prob, model(x, noise).log_prob)
    assert torch.equal(copy.deepcopy(model)(x, noise).kl, model(x, noise).kl)


# Building from names


@each_posterior
@each_likelihood
def test_build_makes_the_named_parts(posterior, likelihood):
    model = build((5,), posterior=posterior, likelihood=likelihood, **own_options(likelihood, 4.0))
    assert type(model.posterior) is POSTERIORS[posterior]
    assert type(model.likelihood) is LIKELIHOODS[likelihood]
    if isinstance(model.likelihood, Gaussian):
        assert model.likelihood.initial_variance == 4
        assert model.likelihood.learned == (likelihood == "gaussian_learned")
    if isinstance(model.likelihood, Binomial):
        assert model.likelihood.initial_draws == 4


@pytest.mark.parametrize("architecture", ["mlp", "study", "bhowal_faces", "bhowal_shapes"])
@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian_pixel"])
def test_build_fits_parts_to_each_other(architecture, likelihood):
    with torch.device("meta"):
        model = build(
            (3, 64, 64), architecture=architecture, likelihood=likelihood, posterior="full", latent=4
        )
        result = model(torch.zeros(2, 3, 64, 64), torch.zeros(2, 4))
    assert result.log_prob.shape == (2,)
    assert result.moments.factor.shape == (2, 4, 4)


def test_build_passes_widths_and_activations():
    model = build((8,), encoder_widths=(7, 6), decoder_widths=(5,), encoder_activation="elu", latent=2)
    assert [layer.out_features for layer in model.encoder.layers[::2]] == [7, 6, 4]
    assert [layer.out_features for layer in model.decoder.layers[::2]] == [5, 8]
    assert isinstance(model.encoder.layers[1], torch.nn.ELU)
    assert isinstance(model.decoder.layers[1], torch.nn.Tanh)


@pytest.mark.parametrize(
    "option, known",
    [
        ("architecture", "bhowal_faces, bhowal_shapes, convolutional, mlp, study"),
        ("posterior", "diagonal, full, point"),
        (
            "likelihood",
            "bernoulli, binomial, continuous_bernoulli, gaussian, gaussian_learned, gaussian_pixel, "
            "negative_binomial, zinb",
        ),
    ],
)
def test_unknown_names(option, known):
    with pytest.raises(
        ValueError, match=f"{option} must be one of {known}, or package.module:object; got 'nothing'"
    ):
        build((5,), **{option: "nothing"})


def test_architecture_and_shape_must_fit():
    with pytest.raises(ValueError, match=r"study needs 64x64 pictures \(channel, 64, 64\), got shape \(3,\)"):
        build((3,), architecture="study")


def test_fixed_architectures_have_no_widths():
    message = r"decoder_widths must be left out: architecture 'study', .* use no options; got \(9,\)"
    with pytest.raises(ValueError, match=message):
        build((1, 64, 64), architecture="study", decoder_widths=(9,))
