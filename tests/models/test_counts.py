"""Likelihoods of counts and of observed values, networks of any side, and those of the user's own."""

import pytest
import scipy.stats
import torch
from torch import nn

import unseam
from unseam.models import (
    Gaussian,
    Masked,
    NegativeBinomial,
    PixelGaussian,
    WithCovariates,
    ZeroInflatedNegativeBinomial,
    convolutional,
    initialise,
)

KINDS = [NegativeBinomial, ZeroInflatedNegativeBinomial]
OUTPUT = torch.tensor([[0.3, -1.0, 2.0]], dtype=torch.float64)


def filled(kind, **options):
    made = kind((3,), **options).double()
    with torch.no_grad():
        made.log_dispersion.copy_(torch.tensor([0.5, -0.7, 1.2]))
    return made


def probabilities(made, most=4000):
    """p(x) of each value by itself, x = 0, 1, ...: (count, value)."""
    x = torch.arange(most, dtype=torch.float64)[:, None].expand(-1, 3)
    return torch.stack(
        [Single(made, i).log_prob(x[:, i : i + 1], OUTPUT[:, i : i + 1].expand(most, 1)) for i in range(3)], 1
    )


class Single:
    """One value of a likelihood."""

    def __init__(self, made, i):
        self.kind = type(made)((1,)).double()
        for name, value in made.named_parameters():
            self.kind.get_parameter(name).data.copy_(value.data[i : i + 1])

    def log_prob(self, x, output):
        return self.kind.log_prob(x, output)


def test_negative_binomial_is_that_of_scipy_and_torch():
    made, x = filled(NegativeBinomial), torch.tensor([[0.0, 3.0, 11.0]], dtype=torch.float64)
    r, mu = made.log_dispersion.exp().detach(), OUTPUT.exp()
    expected = scipy.stats.nbinom.logpmf(x, r, r / (r + mu)).sum()
    assert float(made.log_prob(x, OUTPUT).detach()) == pytest.approx(expected, rel=1e-12)
    other = torch.distributions.NegativeBinomial(r, logits=OUTPUT - r.log()).log_prob(x).sum()
    assert float(made.log_prob(x, OUTPUT).detach()) == pytest.approx(float(other), rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_moments_and_fisher_weight_are_those_of_the_sum_over_counts(kind):
    made = filled(kind)
    logs = probabilities(made).detach()
    p, x = logs.exp(), torch.arange(len(logs), dtype=torch.float64)[:, None]
    torch.testing.assert_close(p.sum(0), torch.ones(3).double(), rtol=1e-9, atol=0)
    mean = (p * x).sum(0)
    torch.testing.assert_close(made.mean(OUTPUT)[0], mean, rtol=1e-8, atol=0)
    torch.testing.assert_close(made.variance(OUTPUT)[0], (p * (x - mean) ** 2).sum(0), rtol=1e-7, atol=0)
    for i in range(3):
        output = OUTPUT[:, i : i + 1].expand(len(x), 1).clone().requires_grad_()
        score = torch.autograd.grad(Single(made, i).log_prob(x, output).sum(), output)[0][:, 0]
        assert float(made.fisher_weight(OUTPUT)[0, i].detach()) == pytest.approx(
            float((p[:, i] * score**2).sum()), rel=1e-7
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("library", [0.0, 10.0])
def test_gradients(kind, library):
    x = torch.tensor([[0.0, 3.0, 11.0], [2.0, float("nan"), 0.0]], dtype=torch.float64)
    made = filled(kind, library=library)
    assert torch.autograd.gradcheck(lambda o: made.log_prob(x, o), OUTPUT.repeat(2, 1).requires_grad_())


def test_library_size_shifts_means():
    x = torch.tensor([[4.0, 4.0, 12.0]], dtype=torch.float64)
    plain, shifted = filled(NegativeBinomial), filled(NegativeBinomial, library=10.0)
    torch.testing.assert_close(
        shifted.log_prob(x, OUTPUT), plain.log_prob(x, OUTPUT + torch.tensor(2.0).double().log())
    )


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([[0.5]], "whole numbers"),
        ([[2.0, 0.5]], "whole numbers"),
        ([[-1.0]], "must lie in"),
        ([[0.0]], "1 items of none"),
    ],
)
def test_what_are_no_counts_is_refused(x, message):
    with pytest.raises(ValueError, match=message):
        NegativeBinomial((1,), library=5.0).check(torch.tensor(x))


@pytest.mark.parametrize(("inner", "channels"), [(Gaussian(2.0), 1), (PixelGaussian(), 2)])
def test_masked_values_have_no_part(inner, channels):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, 2, 3, 3, generator=generator)
    output = torch.randn(4, 2 * channels, 3, 3, generator=generator)
    torch.testing.assert_close(Masked(inner).log_prob(x, output), inner.log_prob(x, output))
    x[:, 1] = float("nan")
    kept = output.unflatten(1, (channels, 2))[:, :, 0]
    torch.testing.assert_close(Masked(inner).log_prob(x, output), inner.log_prob(x[:, :1], kept))
    output.requires_grad_()
    (gradient,) = torch.autograd.grad(Masked(inner).log_prob(x, output).sum(), output)
    assert not gradient.unflatten(1, (channels, 2))[:, :, 1].any() and gradient.isfinite().all()


@pytest.mark.parametrize("shape", [(1, 16, 16), (3, 28, 28), (2, 33, 100), (5, 256, 256)])
def test_convolutional_networks_fit_any_side(shape):
    with torch.device("meta"):
        encoder, decoder = convolutional(shape, 6, 3, shape)
        assert encoder(torch.zeros(2, *shape)).shape == (2, 6)
        assert decoder(torch.zeros(2, 3)).shape == (2, *shape)


def test_convolutional_networks_refuse_other_shapes():
    with pytest.raises(ValueError, match="sides from 16 to 256"):
        convolutional((1, 8, 8), 6, 3, (1, 8, 8))


def make_encoder(shape, features):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], 7), nn.ReLU(), nn.Linear(7, features))


def make_decoder(latent, output):
    return nn.Linear(latent, output[0])


def make_normalised(latent, output):
    return nn.Sequential(
        nn.Linear(latent, 8), nn.LayerNorm(8), nn.ReLU(), nn.GroupNorm(2, 8), nn.Linear(8, output[0])
    )


def make_narrow(latent, output):
    return nn.Linear(latent, 3)


def make_wide(latent, output):
    return nn.Linear(7, output[0])


def make_noisy(latent, output):
    return nn.Sequential(nn.Linear(latent, output[0]), nn.Dropout(0.5))


def test_own_networks_train_in_stacks_and_are_loaded(tmp_path):
    x = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))
    trials = [unseam.Trial(latent=2, steps=3, batch_size=8, seed=seed) for seed in range(2)]
    given = {"data": x, "encoder": make_encoder, "decoder": make_decoder, "progress": False}
    ensemble = unseam.train(trials, out=tmp_path / "run", **given)
    assert len(ensemble.stacks) == 1 and ensemble.trials[0].encoder.endswith(":make_encoder")
    loaded = unseam.load(tmp_path / "run")
    torch.testing.assert_close(loaded.encode(x).mean, ensemble.encode(x).mean)
    assert isinstance(loaded[0].decoder, nn.Linear)
    with pytest.raises(ValueError, match="a function or class of a module"):
        unseam.Trial(encoder=lambda shape, features: None)
    with pytest.raises(ValueError, match="must return an nn.Module"):
        unseam.train(trials[0], data=x, encoder="operator:is_", progress=False)


def test_normalised_networks_train_in_stacks_as_alone():
    x = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))
    trials = [unseam.Trial(latent=2, steps=3, batch_size=8, seed=seed) for seed in range(2)]
    given = {"data": x, "decoder": make_normalised, "progress": False}
    both, alone = unseam.train(trials, **given), unseam.train(trials[1], **given)
    torch.testing.assert_close(both.reconstruct(x)[1], alone.reconstruct(x)[0])
    assert not bool((both[1].decoder[1].weight == 1).all()), "scales are trained"


@pytest.mark.parametrize(
    ("decoder", "message"),
    [
        (make_narrow, r"make_narrow must return a network whose output is \(batch, 5\), got \(batch, 3\)"),
        (make_wide, r"make_wide must return a network that takes \(batch, 2\)"),
        (make_noisy, "make_noisy must return a network without dropout"),
    ],
)
def test_own_networks_that_do_not_fit_are_named(decoder, message):
    with pytest.raises(ValueError, match=message):
        unseam.train(
            unseam.Trial(latent=2, steps=1), data=torch.randn(40, 5), decoder=decoder, progress=False
        )


def test_convolutional_networks_train_in_stacks():
    x = torch.rand(20, 2, 20, 24, generator=torch.Generator().manual_seed(0))
    trials = [
        unseam.Trial(latent=2, steps=2, batch_size=4, seed=seed, architecture="convolutional")
        for seed in range(2)
    ]
    ensemble = unseam.train(trials, data=x, progress=False)
    assert ensemble.reconstruct(x).shape == (2, 20, 2, 20, 24)


@pytest.mark.parametrize("inner", [Gaussian(2.0), PixelGaussian(), NegativeBinomial((3,))], ids=str)
def test_covariates_shift_the_parameter(inner):
    generator = torch.Generator().manual_seed(0)
    made = WithCovariates(inner, 3, 2).double()
    initialise(made, generator=generator)
    values = torch.poisson(torch.full((4, 3), 3.0), generator=generator).double()
    covariates = torch.randn(4, 2, generator=generator).double()
    output = torch.randn(4, 3 * inner.channels, generator=generator).double()
    x = torch.cat([values, covariates], 1)
    torch.testing.assert_close(made.log_prob(x, output), made.inner.log_prob(values, output))  # no shift yet
    made.shift.data.copy_(torch.randn(2, 3, generator=generator))
    shifted = output.clone()
    shifted[:, :3] += covariates @ made.shift
    torch.testing.assert_close(made.log_prob(x, output), made.inner.log_prob(values, shifted))
    assert made.output_shape((5,)) == (3 * inner.channels,) and made.features(x).shape == (4, 5)
    torch.testing.assert_close(made.mean(output)[:, :3], made.inner.mean(output))
    assert not made.mean(output)[:, 3:].any() and not made.variance(output)[:, 3:].any()
    torch.testing.assert_close(made.fisher_weight(output), made.inner.fisher_weight(output))
    with pytest.raises(ValueError, match=r"x must have 3 values and 2 covariates, got \(4, 3\)"):
        made.log_prob(values, output)


def test_covariates_are_the_last_of_several_values():
    with pytest.raises(ValueError, match="covariate_columns must be fewer than the values of an item"):
        unseam.models.build((3,), likelihood="gaussian", covariate_columns=3)
