"""Models of other libraries as subjects: small stand-ins where these are heavy."""

import os
import sys
import types
from inspect import signature

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.decomposition import NMF, PCA, FactorAnalysis, FastICA
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.distributions import Bernoulli, Independent, Normal

import unseam
from unseam.adapters.parts import moments
from unseam.adapters.scvi import ZeroInflatedCounts
from unseam.geometry import jacobian, pullback
from unseam.models.negative_binomial import negative_binomial_terms


@pytest.fixture(scope="module")
def rows():
    draw = np.random.default_rng(0)
    return draw.normal(size=(300, 6)) @ draw.normal(size=(6, 6)) + 1.0


# scikit-learn: theory knows the answers


@pytest.mark.parametrize("whiten", [False, True])
def test_pca_is_orthogonal_and_a_rotation_of_it_is_not(rows, whiten):
    subject = unseam.wrap(PCA(3, whiten=whiten).fit(rows), x=rows)
    found = subject.inspect()
    assert found.cosine < 1e-12 and found.posterior == "point"
    np.testing.assert_allclose(found.mean, PCA(3, whiten=whiten).fit_transform(rows), atol=1e-10)
    angle = torch.tensor(0.6).double()
    rotation = torch.eye(3).double()
    rotation[:2, :2] = torch.tensor([[angle.cos(), -angle.sin()], [angle.sin(), angle.cos()]])
    scales = torch.tensor([3.0, 2.0, 1.0]) / found.column_norms
    oblique = unseam.inspect(lambda z: subject.decoder((z @ rotation) * scales), found.mean)
    assert oblique.cosine > 0.1


def test_factor_analysis_meets_eq_7_exactly_rotated_or_not(rows):
    plain, rotated = (FactorAnalysis(3, rotation=rotation).fit(rows) for rotation in (None, "varimax"))
    found, other = (unseam.inspect(model, x=rows) for model in (plain, rotated))
    assert found.cosine < 1e-9 and other.cosine > 1e-3
    for one, model in ((found, plain), (other, rotated)):
        assert one.posterior == "full" and one.precision_error.relative < 1e-10
        np.testing.assert_allclose(one.mean, model.transform(rows), atol=1e-9)


@pytest.mark.parametrize(
    "model",
    [FastICA(3, random_state=0), NMF(3, max_iter=2000), make_pipeline(StandardScaler(), PCA(3))],
    ids=str,
)
def test_linear_inverses_are_exact(rows, model):
    model.fit(np.abs(rows))
    subject = unseam.wrap(model, x=np.abs(rows))
    assert isinstance(subject.decoder, nn.Linear) and subject.latent == 3
    z = np.random.default_rng(1).normal(size=(4, 3))
    np.testing.assert_allclose(subject.picture(z), model.inverse_transform(z), atol=1e-8)


def test_factor_analysis_of_scaled_features_meets_eq_7_too(rows):
    model = make_pipeline(StandardScaler(), FactorAnalysis(3)).fit(rows)
    found = unseam.inspect(model, x=rows)
    assert found.precision_error.relative < 1e-10 and found.cosine < 1e-9
    np.testing.assert_allclose(found.mean, model.transform(rows), atol=1e-9)
    with pytest.raises(
        ValueError, match="scale each feature on its own .*got PCA; pass the FactorAnalysis alone"
    ):
        unseam.wrap(make_pipeline(PCA(5), FactorAnalysis(2)).fit(rows))


def test_a_pipeline_of_named_columns_takes_rows_without_warning(rows):
    table = pd.DataFrame(rows, columns=list("abcdef"))
    model = make_pipeline(StandardScaler(), PCA(3)).fit(table)
    np.testing.assert_allclose(unseam.inspect(model, x=rows).mean, model.transform(table), atol=1e-10)


def test_an_estimator_of_ours_is_its_model(rows):
    model = unseam.BetaVAE(2, beta=3.0, steps=5).fit(rows)
    found = unseam.inspect(model, x=rows)
    assert found.beta == 3.0 and found.cosine == model.inspect(rows).cosine


# NumPy


def test_a_numpy_function_has_the_derivatives_of_its_torch_twin():
    matrix = np.random.default_rng(0).normal(size=(3, 5))
    subject = unseam.wrap(lambda z: np.tanh(z @ matrix), latent=3)

    def twin(z):
        return torch.tanh(z @ torch.from_numpy(matrix))

    z = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)).double()
    torch.testing.assert_close(jacobian(subject.decoder, z), jacobian(twin, z), atol=1e-8, rtol=1e-7)
    reverse = torch.func.vjp(subject.decoder, z)[1](torch.ones(6, 5).double())[0]
    torch.testing.assert_close(reverse, jacobian(twin, z).sum(1), atol=1e-8, rtol=1e-7)
    sampled = unseam.inspect(subject, latents=3, points=5)
    assert sampled.cosine == pytest.approx(unseam.inspect(twin, z, latents=3).cosine, abs=0.3)


def test_an_encoder_of_numpy_goes_with_a_decoder_of_numpy(rows):
    matrix = np.random.default_rng(0).normal(size=(3, 6))
    subject = unseam.wrap(
        lambda z: np.tanh(z @ matrix),
        encoder=lambda x: (np.add.reduce(x @ matrix.T, 1, keepdims=True) * [1.0, 2, 3], np.ones((len(x), 3))),
        x=rows,
    )
    assert subject.latent == 3 and subject.inspect(points=20).posterior == "diagonal"


# torch


class Autoencoder(nn.Module):
    """Encoder and decoder as users have them."""

    latent_dim = 3

    def __init__(self, wrapped=lambda out: out, features=8):
        super().__init__()
        self.first, self.last = nn.Linear(features, 6), nn.Linear(3, features)
        self.wrapped = wrapped

    def encode(self, x):
        return self.first(x).chunk(2, 1)

    def decode(self, z):
        return self.wrapped(self.last(z))


def points(model, **options):
    return unseam.wrap(model, z=torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), **options)


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda out: (out, None),
        lambda out: {"loss": 0.0, "reconstruction": out},
        lambda out: types.SimpleNamespace(sample=out),
        lambda out: Independent(Bernoulli(logits=out, validate_args=False), 1, validate_args=False),
    ],
    ids=["tuple", "dict", "output", "distribution"],
)
def test_outputs_of_every_kind_are_read(wrapped):
    model = Autoencoder(wrapped)
    subject = points(model)
    torch.testing.assert_close(subject.decoder(subject.z), model.last(subject.z))
    known = unseam.models.Bernoulli if subject.likelihood else type(None)
    assert isinstance(subject.likelihood, known)
    assert unseam.inspect(subject).points == 5


def test_a_normal_distribution_and_a_pair_with_log_variances_are_one_likelihood():
    distribution = points(Autoencoder(lambda out: Normal(out, torch.exp(out / 2), validate_args=False)))
    pair = points(Autoencoder(lambda out: (out, out)), likelihood="gaussian_pixel")
    pair.decoder.holder.load_state_dict(distribution.decoder.holder.state_dict())
    found = [pullback(one.decoder, one.z, likelihood=one.likelihood) for one in (distribution, pair)]
    torch.testing.assert_close(*found)
    assert distribution.picture(distribution.z).shape == (5, 8)


def test_log_variances_are_an_option_and_negative_variances_say_so():
    model, x = Autoencoder(), torch.randn(9, 8, generator=torch.Generator().manual_seed(0))
    _, variance = unseam.wrap(model, x=x, log_variance=True).encoder(x)
    torch.testing.assert_close(variance, model.encode(x)[1].exp())
    with pytest.raises(ValueError, match="pass log_variance=True"):
        unseam.wrap(model, x=x).inspect()


def test_standard_deviations_are_squared():
    names = type(
        "Named", (Autoencoder,), {"encode": lambda self, x: {"mean": self.first(x)[:, :3], "std": self.s}}
    )
    model = names()
    model.s = torch.full((9, 3), 0.5)
    assert unseam.Subject.encode(points(model), torch.zeros(9, 8))[1][0, 0, 0] == 0.25


def sampled(model):
    return lambda x: model.first(x)[:, :3] + torch.randn(len(x), 3)


@pytest.mark.parametrize(
    ("encoder", "shape", "message"),
    [
        (sampled, (9, 8), "same mean each time, but draws random numbers: pass encoder="),
        (
            lambda m: lambda x: m.first(x),
            (9, 8),
            r"decoder does not take z of shape \(1, 6\) .*pass .* encoder=",
        ),
        (lambda m: m.encode, (9, 7), r"encoder does not take x of shape \(1, 7\)"),
        (
            lambda m: lambda x: (m.first(x)[:1, :3], None),
            (9, 8),
            r"means \(batch, latent\), got shape \(1, 3\) for",
        ),
        (lambda m: lambda x: {"a": x}, (9, 8), "got a; pass encoder=lambda x"),
    ],
)
def test_an_encoder_that_does_not_fit_is_refused_before_anything_is_measured(encoder, shape, message):
    model = Autoencoder()
    with pytest.raises(ValueError, match=message):
        unseam.wrap(model, encoder=encoder(model), x=torch.ones(shape))


def test_data_and_points_on_another_scale_or_of_another_shape_are_refused():
    with pytest.raises(ValueError, match="x must be on the scale .*got bytes: pass x / 255"):
        unseam.wrap(Autoencoder(), x=torch.ones(9, 8, dtype=torch.uint8), log_variance=True)
    with pytest.raises(ValueError, match="x must be finite, got NaN or infinite values at 1 of 9"):
        unseam.wrap(Autoencoder(), x=torch.ones(9, 8).index_fill(0, torch.tensor([5]), float("nan")))
    subject = points(Autoencoder())
    with pytest.raises(
        ValueError, match=r"z must have shape \(batch, 3\), the latents of Autoencoder, got \(5, 4\)"
    ):
        unseam.wrap(subject, z=torch.zeros(5, 4))


def test_points_take_the_place_of_data():
    subject = unseam.wrap(Autoencoder(), x=torch.ones(9, 8), log_variance=True)
    assert unseam.wrap(subject, z=torch.zeros(5, 3)).inspect().points == 5


def test_a_decoder_of_two_arguments_is_told_to_fix_one():
    class Conditional(nn.Linear):
        def forward(self, z, label):
            return super().forward(z) + label

    model = Conditional(3, 4)
    with pytest.raises(
        ValueError, match="decoder=, a function of z alone that holds its other arguments fixed"
    ):
        unseam.wrap(model, latent=3)
    assert unseam.wrap(lambda z: model(z, torch.ones(len(z), 1)), latent=3).inspect(points=5).outputs == 4


class Scattered(nn.Module):
    """A module that refers to its parts outside of their registry, as DRVI's layers do, and has one that is in none."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(3, 4)
        self.wide, self.run, self.hidden = [self.last], self.last.forward, {"drop": nn.Dropout()}

    def forward(self, z):
        assert self.last is self.wide[0] is self.run.__self__
        return self.hidden["drop"](self.run(z))


def test_a_view_holds_its_own_parts_wherever_they_are_referred_to():
    model = Scattered()
    assert unseam.wrap(model, latent=3).inspect(points=5).cosine is not None
    assert model.training and model.hidden["drop"].training and model.wide[0] is model.last


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_is_measured_in_single(kind):
    model = Autoencoder().to(kind)
    with torch.no_grad():
        model.last.weight.copy_(300 * torch.eye(8, 3))
    subject = unseam.wrap(model, x=torch.ones(9, 8).to(kind), log_variance=True)
    found = subject.inspect()
    assert found.cosine == 0.0 and found.column_norms.tolist() == [300.0] * 3
    assert {one.dtype for one in model.parameters()} == {kind}
    assert unseam.score(subject, ["mig"], factors=torch.arange(9)[:, None])["points"].tolist() == [9]
    own = unseam.wrap(model, encoder=lambda x: model.first(x)[:, :3], x=torch.ones(9, 8))
    assert own.inspect().posterior == "point"


def test_a_sigmoid_under_a_bernoulli_likelihood_is_noticed_and_converted_by_option():
    model = Autoencoder(torch.sigmoid)
    with pytest.raises(ValueError, match="lie in .0, 1., as those of a sigmoid do; pass probabilities=True"):
        points(model, likelihood="bernoulli")
    subject = points(model, likelihood="bernoulli", probabilities=True)
    torch.testing.assert_close(subject.decoder(subject.z), model.last(subject.z), atol=1e-5, rtol=1e-5)
    assert points(Autoencoder(), likelihood="bernoulli").latent == 3


def test_a_generator_takes_its_latents_as_pixels_and_stays_in_its_mode():
    model = nn.Sequential(nn.ConvTranspose2d(5, 3, 4), nn.BatchNorm2d(3), nn.Dropout(), nn.GroupNorm(1, 3))
    model = model.to(memory_format=torch.channels_last)
    found = unseam.inspect(model, points=7)
    assert (found.latent, found.points, found.outputs) == (5, 7, 48)
    assert unseam.inspect(model, latent=5, points=7).cosine == found.cosine
    assert all(part.training for part in model.modules())


def test_more_latents_than_can_all_be_measured_are_sampled_with_progress():
    model, seen = nn.Sequential(nn.Linear(300, 20), nn.Tanh()), []
    found = unseam.inspect(model, progress=lambda done, total: seen.append((done, total)))
    assert (found.points, found.probes.latents, seen[-1]) == (4, 32, (128, 128))
    assert "300" in found.summary()


def test_one_subject_is_inspected_scored_reported_and_explored(tmp_path):
    x = torch.randn(60, 8, generator=torch.Generator().manual_seed(0))
    subject = unseam.wrap(Autoencoder(), x=x, log_variance=True, likelihood="gaussian")
    assert unseam.inspect(subject).precision_error is not None
    table = unseam.score(subject, ["mig"], factors=(x[:, :2] > 0).long())
    assert table["points"].tolist() == [60] and table["model"].tolist() == ["Autoencoder"]
    given = unseam.score(subject, ["mig"], data=x[:50], factors=(x[:50, :2] > 0).long())
    assert given["points"].tolist() == [50]
    with pytest.raises(ValueError, match="world must name data with known factors, or data and factors"):
        unseam.score(subject)
    assert "Autoencoder" in unseam.report.write(subject, tmp_path / "page.html").read_text()
    exhibit = unseam.explore.exhibit_decoder(subject)
    assert exhibit.codes(0).mean.shape == (60, 3)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_a_model_goes_with_the_same_options_to_each(tmp_path, kind):
    model = Autoencoder().to(kind)
    own = {"x": torch.randn(60, 8, generator=torch.Generator().manual_seed(0)).to(kind), "log_variance": True}
    assert unseam.inspect(model, **own).points == 60
    assert unseam.score(model, ["mig"], factors=torch.arange(60)[:, None] % 3, **own)["points"].tolist() == [
        60
    ]
    assert "Autoencoder" in unseam.report.write(model, tmp_path / "page.html", **own).read_text()
    assert unseam.explore.exhibit_decoder(model, **own).codes(0).mean.shape == (60, 3)
    names = signature(unseam.wrap).parameters
    for takes in (unseam.inspect, unseam.score, unseam.report.write, unseam.explore.serve):
        assert "options" in signature(takes).parameters
    assert {"x", "z", "encoder", "decoder", "latent", "likelihood", "log_variance"} <= set(names)


def test_a_generator_and_a_pipeline_are_models_though_they_are_sequences_of_layers(rows, tmp_path):
    generator = nn.Sequential(nn.ConvTranspose2d(3, 4, 2), nn.Tanh())
    assert "3 latents" in unseam.inspect(generator, points=9).summary()
    model = make_pipeline(StandardScaler(), PCA(2)).fit(rows)
    for one, name in ((generator, "Sequential"), (model, "Pipeline")):
        assert f"One model, {name}" in unseam.report.write(one, tmp_path / "page.html").read_text()


# recognised by the package of a class, which is not imported


def test_models_are_recognised_by_the_package_of_their_class_or_its_bases():
    output = {"embedding": torch.zeros(4, 2), "log_covariance": torch.zeros(4, 2)}
    vae = type("VAE", (nn.Module,), {"__module__": "pythae.models.vae"})
    model = type("Mine", (vae,), {"__module__": "mine"})()
    model.decoder, model.encoder = nn.Sequential(nn.Linear(2, 3), nn.Sigmoid()), lambda x: output
    assert unseam.wrap(nn.Module.__getattr__(model, "decoder"), latent=2).latent == 2
    model.model_config = types.SimpleNamespace(latent_dim=2, reconstruction_loss="bce")
    subject = unseam.wrap(model)
    assert isinstance(subject.likelihood, unseam.models.Bernoulli) and subject.latent == 2
    z = torch.ones(1, 2)
    torch.testing.assert_close(subject.decoder(z), model.decoder[0](z), atol=1e-5, rtol=1e-5)
    assert subject.encoder(torch.zeros(4, 3))[1].tolist() == [[1.0, 1.0]] * 4


def test_hyperparameters_say_how_many_latents_there_are():
    model = of("lightning", base=Autoencoder)
    model.hparams = {"latent_dim": 3}
    assert unseam.wrap(model).latent == 3


class Configured(nn.Module):
    """A model with discrete latents."""

    model_config = types.SimpleNamespace(latent_dim=2)
    config = types.SimpleNamespace(latent_channels=3, num_vq_embeddings=8)


class Counts:
    """A model of counts whose networks have the names of SCVI's."""

    module = nn.Module()
    module.inference = module.generative = module.decoder = lambda z: z


def of(package, name="Model", base=object):
    return type(name, (base,), {"__module__": f"{package}.models"})()


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (of("pythae", "VQVAE", Configured), {}, "unseam.wrap.model.decoder, latent="),
        (of("pythae", "Trainer"), {}, "must be one of pythae.models with a decoder"),
        (of("diffusers", "StableDiffusionPipeline"), {}, "of a pipeline pass pipeline.vae"),
        (
            of("diffusers", "VQModel", Configured),
            {},
            "autoencoder of images with continuous latents.*got VQModel",
        ),
        (
            of("scvi", "TOTALVI", Counts),
            {},
            "must be an SCVI, LinearSCVI or DRVI model, got TOTALVI; for another one pass",
        ),
        (of("lightning", "Classifier"), {"latent": 2}, "pass decoder=, a function of z"),
        (LinearRegression().fit(np.eye(3), np.ones(3)), {}, "must have transform and inverse_transform"),
        (object(), {"latent": 2}, "model must be a module, a function of z"),
        ("runs/demo", {}, "open a run by unseam.Run.open"),
        (PCA(1).fit(np.eye(3)), {"probabilities": True}, "probabilities must be left out: PCA has its own"),
        (PCA(1).fit(np.eye(3)), {"latent": 2}, "latent must be 1, as PCA has it, got 2"),
        (lambda z: z, {}, "latent must say how many latents the decoder has"),
        (Autoencoder(), {"decoder": "paint"}, "model must have a method 'paint'"),
    ],
)
def test_a_model_of_another_kind_is_told_what_to_pass(model, options, message):
    with pytest.raises(ValueError, match=message):
        unseam.wrap(model, **options)


# counts


def test_zero_inflated_counts_have_the_fisher_information_of_both_networks():
    """Against the sum over counts of the squared score in (log μ, dropout logit), which is not diagonal."""
    r, jac = (
        torch.tensor([0.3]).double(),
        torch.randn(2, 3, generator=torch.Generator().manual_seed(0)).double(),
    )
    theta, logit = torch.tensor([[0.7]]).double(), torch.tensor([[-0.4]]).double()
    counts = ZeroInflatedCounts(r)

    def log_prob(pair, x):
        held = negative_binomial_terms(x, pair[0], r[0]) + nn.functional.logsigmoid(-pair[1])
        return torch.where(x == 0, torch.logaddexp(held, nn.functional.logsigmoid(pair[1])), held)

    pair, x = torch.cat([theta[0], logit[0]]), torch.arange(400).double()
    score = torch.func.jacrev(log_prob)(pair, x)
    probability = log_prob(pair, x).exp()
    information = (probability[:, None] * score).mT @ score
    expected = jac.mT @ information @ jac

    def decoder(z):
        both = z @ jac.mT + pair
        return counts.parameter(both[:, :1], both[:, 1:])

    found = pullback(decoder, torch.zeros(1, 3).double(), likelihood=counts)[0]
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)
    mean = counts.mean(counts.parameter(theta, logit))
    torch.testing.assert_close(mean, (probability * x).sum().view(1, 1), atol=1e-9, rtol=1e-9)


def test_a_file_that_is_no_onnx_model_is_refused_in_one_line(tmp_path, monkeypatch):
    def session(source, providers):
        raise RuntimeError("InvalidProtobuf : 7\nLoad model failed")

    class InferenceSession:
        __new__ = staticmethod(lambda kind, source, providers: session(source, providers))

    monkeypatch.setitem(sys.modules, "onnxruntime", types.SimpleNamespace(InferenceSession=InferenceSession))
    (tmp_path / "a.onnx").write_bytes(b"no model")
    with pytest.raises(ValueError, match="a.onnx is no ONNX model that can be read: InvalidProtobuf : 7$"):
        unseam.adapters.onnx(tmp_path / "a.onnx")
    os.mkfifo(tmp_path / "pipe.onnx")
    with pytest.raises(ValueError, match="got a pipe"):
        unseam.adapters.onnx(tmp_path / "pipe.onnx")


def test_a_mean_alone_has_no_variance():
    mean = torch.ones(3, 2)
    for found in (mean, [mean], (mean,), (mean, None), {"mean": mean}):
        assert moments(found, log_variance=False) == (mean, None)
    assert moments((mean, mean), log_variance=True)[1].tolist() == mean.exp().tolist()
