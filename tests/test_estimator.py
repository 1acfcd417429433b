"""The scikit-learn estimator: its conventions, its numbers against the library, its errors."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import unseam
from unseam import BetaVAE
from unseam.data import ArrayWorld

MIXING = np.array([[3.0, 0.0, 1.0, 0.5], [0.0, 1.0, 0.0, -1.0]])


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(0).normal(size=(300, 2)) @ MIXING


@pytest.fixture(scope="module")
def fitted(x):
    return BetaVAE(3, steps=400, beta=0.1, learning_rate=1e-2).fit(x)


@parametrize_with_checks(
    [BetaVAE(2, steps=8, batch_size=8, options={"encoder_widths": (8,), "decoder_widths": (8,)})]
)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def test_codes_are_those_of_the_trial_it_trained(fitted, x):
    table = torch.from_numpy(x).float()
    factors = torch.zeros(len(x), 0, dtype=torch.long)
    world = ArrayWorld(table, factors, name="X", factor_names=(), factor_sizes=())
    ensemble = unseam.train(fitted.trial_, world=world, device="cpu")
    expected = ensemble[0].double().encode(torch.from_numpy(x)).mean.detach().numpy()
    np.testing.assert_array_equal(fitted.transform(x), expected)


def test_reconstructs_data_that_lie_on_a_plane(fitted, x):
    error = ((fitted.inverse_transform(fitted.transform(x)) - x) ** 2).mean() / x.var()
    assert error < 0.1
    assert fitted.active_.sum() == 2, "two directions of variation, three latents"


def test_score_is_the_elbo_at_beta_one(fitted, x):
    item = torch.from_numpy(x)
    noise = torch.randn(2000, len(x), 3, generator=torch.Generator().manual_seed(5), dtype=item.dtype)
    with torch.no_grad():
        draws = torch.stack([(p := fitted.model_(item, n)).log_prob - p.kl for n in noise]).mean(1)
    error = float(draws.std()) / 8**0.5
    assert fitted.score(x) == fitted.score(x)
    assert abs(fitted.score(x) - float(draws.mean())) < 4 * error


def test_inspects_its_own_decoder(fitted, x):
    found = fitted.inspect(x)
    direct = unseam.inspect(
        fitted.model_.decode, x=torch.from_numpy(x), encoder=fitted.model_.encode,
        likelihood=fitted.model_.likelihood, beta=0.1,
    )  # fmt: skip
    assert found.to_dict() == direct.to_dict()


def test_pipelines_pandas_and_grid_search(x):
    frame = pd.DataFrame(x, columns=list("abcd"))
    pipeline = make_pipeline(StandardScaler(), BetaVAE(2, steps=50)).set_output(transform="pandas")
    codes = pipeline.fit_transform(frame)
    assert list(codes.columns) == ["betavae0", "betavae1"] and codes.index.equals(frame.index)
    search = GridSearchCV(pipeline, {"betavae__beta": [0.5, 50.0]}, cv=2).fit(frame)
    assert search.best_params_ == {"betavae__beta": 0.5}


def test_images_as_flattened_rows():
    pixels = (np.random.default_rng(0).random((20, 64)) < 0.5).astype(np.float32)
    model = BetaVAE(2, likelihood="bernoulli", shape=(1, 8, 8), steps=5).fit(pixels)
    assert model.transform(pixels).dtype == np.float32
    assert model.inverse_transform(model.transform(pixels)).shape == (20, 64)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": (2, 3)}, r"shape must have as many values as X has columns \(4\), got \(2, 3\)"),
        ({"likelihood": "bernoulli"}, "x must lie in \\[0, 1\\] for the bernoulli likelihood"),
        ({"options": {"gamma": 7.0}}, "gamma is used by objective"),
    ],
)
def test_refuses_what_does_not_fit(x, options, message):
    with pytest.raises(ValueError, match=message):
        BetaVAE(2, steps=5, **options).fit(x)


def test_codes_may_be_a_frame(fitted, x):
    codes = fitted.transform(x)
    frame = pd.DataFrame(codes)  # whose array is read-only, which torch warns of
    assert np.array_equal(fitted.inverse_transform(frame), fitted.inverse_transform(codes))


def test_refuses_codes_of_another_width(fitted):
    with pytest.raises(ValueError, match=r"Z must have shape \(item, 3\), got \(5, 2\)"):
        fitted.inverse_transform(np.zeros((5, 2)))
