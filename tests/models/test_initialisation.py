"""Initialisation: torch's distributions from an explicit generator, on any device, in any precision."""

import copy
import math

import pytest
import torch
from scipy import stats
from torch import nn

from unseam.models import MLP, VAE, Bernoulli, Binomial, Diagonal, Gaussian, build, initialise, study_decoder
from unseam.models.initialisation import blank

LAYERS = {
    "linear": (nn.Linear, (40, 30), {}),
    "convolution": (nn.Conv2d, (6, 10, 4, 2, 1), {}),
    "transposed": (nn.ConvTranspose2d, (10, 6, 4, 2, 1), {}),
    "unbiased": (nn.Linear, (40, 30), {"bias": False}),
}
each_layer = pytest.mark.parametrize("name", LAYERS)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def make(name, scheme="torch", seed=0):
    kind, arguments, options = LAYERS[name]
    layer = blank(kind, *arguments, **options)
    initialise(layer, generator=seeded(seed), scheme=scheme)
    return layer


def bound_of_torch(name):
    """Largest weight and bias that torch's own constructor draws, from many layers."""
    kind, arguments, options = LAYERS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [kind(*arguments, **options) for _ in range(20)]
    biases = [layer.bias.detach() for layer in layers if layer.bias is not None]
    return (
        torch.stack([layer.weight.detach() for layer in layers]),
        torch.stack(biases) if biases else None,
    )


@each_layer
def test_torch_scheme_has_torchs_distribution(name):
    weights, biases = bound_of_torch(name)
    layer = make(name)
    ours = layer.weight.detach()
    assert ours.abs().max() <= weights.abs().max() * 1.01
    assert ours.abs().max() >= weights.abs().max() * 0.99
    assert stats.ks_2samp(ours.flatten(), weights.flatten()).pvalue > 0.01
    assert (layer.bias is None) == (biases is None)
    if biases is not None:
        many = torch.cat([make(name, seed=seed).bias.detach() for seed in range(20)])
        assert many.abs().max() <= biases.abs().max() * 1.05
        assert stats.ks_2samp(many, biases.flatten()).pvalue > 0.01


@each_layer
def test_glorot_scheme(name):
    """Uniform within sqrt(6 / (fan in + fan out)), where a convolution's fans count its kernel too."""
    layer = make(name, "glorot")
    reference = nn.init.xavier_uniform_(torch.empty_like(layer.weight), generator=seeded(1))
    field = math.prod(layer.weight.shape[2:])
    bound = math.sqrt(6 / (field * (layer.weight.shape[0] + layer.weight.shape[1])))
    assert layer.weight.abs().max() <= bound
    assert layer.weight.abs().max() >= 0.99 * bound
    assert stats.ks_2samp(layer.weight.detach().flatten(), reference.flatten()).pvalue > 0.01
    assert layer.bias is None or not layer.bias.any()


@each_layer
@pytest.mark.parametrize("scheme", ["torch", "glorot"])
def test_a_seed_decides(name, scheme):
    assert torch.equal(make(name, scheme, 3).weight, make(name, scheme, 3).weight)
    assert not torch.equal(make(name, scheme, 3).weight, make(name, scheme, 4).weight)


def small_model(**options):
    return build((4,), encoder_widths=(5,), decoder_widths=(5,), latent=2, **options)


def test_whole_models_are_determined_by_the_generator():
    first, second = small_model(), small_model()
    initialise(first, generator=seeded(5))
    initialise(second, generator=seeded(5))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    weights = [parameter.flatten() for parameter in first.parameters()]
    assert len(torch.cat(weights).unique()) == sum(map(len, weights)), "no draw may be used twice"


def test_precisions_agree():
    single, double = small_model(), small_model().double()
    initialise(single, generator=seeded(5))
    initialise(double, generator=seeded(5))
    for a, b in zip(single.parameters(), double.parameters(), strict=True):
        assert torch.equal(a, b.float())
    assert not torch.equal(next(double.parameters()), next(double.parameters()).float().double())


@pytest.mark.parametrize("architecture", ["mlp", "study", "bhowal_faces", "bhowal_shapes"])
def test_nothing_moves_the_global_generator(architecture):
    before = torch.random.get_rng_state()
    model = build((3, 64, 64), architecture=architecture, likelihood="gaussian_learned", posterior="full")
    initialise(model, generator=seeded(0))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_parameters_are_nan_until_initialised():
    model = build((3, 64, 64), architecture="bhowal_faces")
    assert all(parameter.isnan().all() for parameter in model.parameters())
    spreads = [value for name, value in model.named_buffers() if name.endswith("running_var")]
    assert len(spreads) == 10
    assert all(torch.equal(spread, torch.ones_like(spread)) for spread in spreads)
    initialise(model, generator=seeded(0))
    assert all(parameter.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("architecture", ["mlp", "bhowal_faces", "bhowal_shapes"])
@pytest.mark.parametrize("likelihood", ["gaussian", "gaussian_learned", "binomial"])
def test_from_meta_equals_direct(architecture, likelihood):
    number = {"likelihood_draws": 3.0} if likelihood == "binomial" else {"likelihood_variance": 0.25}
    options = {"architecture": architecture, "likelihood": likelihood, **number}
    direct = build((1, 64, 64), **options)
    with torch.device("meta"):
        skeleton = build((1, 64, 64), **options)
    assert all(tensor.is_meta for tensor in skeleton.state_dict().values())
    empty = skeleton.to_empty(device="cpu")
    for tensor in empty.state_dict().values():
        tensor.fill_(7)
    for model in (direct, empty):
        initialise(model, generator=seeded(1))
    assert direct.state_dict().keys() == empty.state_dict().keys()
    assert all(
        torch.equal(a, b)
        for a, b in zip(direct.state_dict().values(), empty.state_dict().values(), strict=True)
    )


@pytest.mark.parametrize(
    "part, name, value", [(Gaussian(0.25), "log_variance", math.log(0.25)), (Binomial(3), "draws", 3.0)]
)
def test_likelihoods_go_back_to_their_value_in_full_precision(part, name, value):
    model = VAE(MLP(3, (), 4), Diagonal(2), MLP(2, (), 3), copy.deepcopy(part)).double()
    model.likelihood.get_buffer(name).fill_(9)
    initialise(model, generator=seeded(0))
    assert model.likelihood.get_buffer(name).item() == value


def test_batch_norm_starts_fresh():
    norm = nn.BatchNorm2d(3)
    for tensor in norm.state_dict().values():
        tensor.fill_(5)
    initialise(norm, generator=seeded(0))
    expected = nn.BatchNorm2d(3).state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in norm.state_dict().items())


# Errors


def test_unknown_scheme():
    with pytest.raises(ValueError, match="scheme must be one of torch, glorot, got 'he'"):
        initialise(small_model(), generator=seeded(0), scheme="he")


def test_meta_modules_are_refused():
    with torch.device("meta"):
        skeleton = study_decoder(2, (1, 64, 64))
    with pytest.raises(
        ValueError, match="module must hold memory, got 0 on the meta device: call to_empty first"
    ):
        initialise(skeleton, generator=seeded(0))


def test_unknown_parts_are_refused():
    model = VAE(nn.PReLU(), Diagonal(2), MLP(2, (), 3), Bernoulli())
    with pytest.raises(ValueError, match="got values in encoder of type PReLU"):
        initialise(model, generator=seeded(0))
