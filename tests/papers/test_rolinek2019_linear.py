"""Figures 1 and 2, Suppl. 9.2 and Definition 1 of rolinek2019: against closed forms, and by rules that can fail."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
import torch

import unseam
from unseam.papers import Workplace, artefacts
from unseam.papers.artefact import as_stored
from unseam.papers.draws import cayley, orthogonal
from unseam.papers.rolinek2019 import definition1, linear, pca
from unseam.papers.rolinek2019.linear import CONVERGED, axis_angle, decoders, encoders, linear_models
from unseam.papers.rolinek2019.setups import smoke
from unseam.theory import linear_vae, rotated

HERE = Workplace(torch.device("cpu"))
RANDOM = np.random.default_rng(0)


def turn(degrees):
    angle = math.radians(degrees)
    return torch.tensor(
        [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]], dtype=torch.float64
    )


def said(findings, *words):
    """The one finding whose quantity holds all words."""
    (found,) = [one for one in findings if all(word in one.quantity for word in words)]
    return found


def outcome(findings, *words):
    return said(findings, *words).outcome


# Angles


@pytest.mark.parametrize("degrees", [0, 3, 30, 44])
def test_angle_of_a_rotation_whatever_the_order_and_the_signs(degrees):
    matrix = turn(degrees).numpy()
    for signs in ((1, 1), (-1, 1), (1, -1)):
        assert axis_angle(matrix * signs) == pytest.approx(degrees, abs=1e-9)
        assert axis_angle(matrix[:, ::-1] * signs) == pytest.approx(degrees, abs=1e-9)
        assert axis_angle(matrix[::-1] * np.array(signs)[:, None]) == pytest.approx(degrees, abs=1e-9)


def test_angle_of_directions_that_share_an_axis():
    # both along the first axis: one of them has to be assigned to the second
    assert axis_angle(np.array([[1.0, 1.0], [0.0, 0.1]])) == pytest.approx(90 - math.degrees(math.atan(0.1)))


# Trained linear models as matrices


@pytest.mark.parametrize("column", ["β-VAE", "AE", "β-VAE_Σ"])
def test_matrices_are_those_of_the_trained_models(column, tmp_path):
    setup = smoke(CONVERGED, seeds=2)
    where = Workplace(torch.device("cpu"), shared=tmp_path)
    found = linear_models(setup, column, where)
    world = setup.load()
    ensemble = unseam.train(setup.trials(column), world=world, device="cpu")
    z = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    x = world.images(torch.arange(5))
    for apply, points, matrices in (
        (lambda x: ensemble.encode(x).mean, x, encoders(found["models"])),
        (ensemble.decode, z, decoders(found["models"])),
    ):
        images = apply(points).double().detach().numpy()
        expected = (points[1:] - points[:1]).double().numpy() @ matrices.transpose(0, 2, 1)
        np.testing.assert_allclose(images[:, 1:] - images[:, :1], expected, atol=1e-4)
    again = linear_models(setup, column, where)
    pd.testing.assert_frame_equal(again["models"], found["models"])
    assert len(list(tmp_path.glob("*.json"))) == 1, "stored once"


# Figures 1 and 2 from exact optima: one row per model


def optimum(column, seed, degrees, *, ratio=2.0, stretch=None):
    """A linear VAE at its optimum, its latents rotated, or an autoencoder with any invertible map of them."""
    world = unseam.data.load("linear", size=1, ratio=ratio)
    covariance = world.mixing @ world.mixing.mT / 12
    found = linear_vae(covariance, 2, noise=0.005)
    change = turn(degrees) if stretch is None else turn(degrees) @ torch.diag(torch.tensor(stretch).double())
    if stretch is not None:
        change = change @ turn(20)
    decoder, encoder = found.weights @ change, torch.linalg.inv(change) @ found.encoder
    row = {"column": column, "ratio": ratio, "seed": seed}
    row |= {f"d{i + 1}{j + 1}": float(decoder[i, j]) for i in range(3) for j in range(2)}
    return row | {f"e{i + 1}{j + 1}": float(encoder[i, j]) for i in range(2) for j in range(3)}


def linear_tables(beta_vae=0.0):
    angles = RANDOM.uniform(15, 44, 10)
    rows = [optimum("β-VAE", seed, beta_vae + 0.1 * seed) for seed in range(10)]
    rows += [optimum("β-VAE_Σ", seed, angle) for seed, angle in enumerate(angles)]
    rows += [optimum("AE", seed, angle, stretch=(1.0, 2.0 + seed)) for seed, angle in enumerate(angles)]
    world = unseam.data.load("linear", size=1)
    covariance = (world.mixing @ world.mixing.mT / 12).numpy()
    return {"models": pd.DataFrame(rows), "data": pd.DataFrame(covariance, columns=["x1", "x2", "x3"])}


def test_figure1_of_exact_optima():
    found = linear.FIGURE1.judge(linear_tables())
    for words in (("β-VAE:", "(i),"), ("β-VAE:", "(ii),"), ("full", "(i),"), ("full", "(ii),")):
        assert said(found, words[0], f"step {words[1]}").measured < 2
    assert outcome(found, "β-VAE:", "step (iii)") == "agrees"
    assert outcome(found, "full covariance:", "step (iii)") == "agrees"
    assert outcome(found, "autoencoder", "step (ii)") == "differs"
    assert outcome(found, "less full covariance") == "agrees"


def test_figure1_refuses_rotated_beta_vaes():
    found = linear.FIGURE1.judge(linear_tables(beta_vae=20.0))
    assert outcome(found, "β-VAE:", "step (iii)") == "differs"
    assert outcome(found, "β-VAE:", "decoder's columns") == "differs"
    assert outcome(found, "β-VAE:", "step (ii)") == "agrees", "a rotation leaves steps (i) and (ii)"


def test_figure1_refuses_full_covariances_that_are_aligned():
    tables = linear_tables()
    models = tables["models"].copy()
    entries = [name for name in models if name[0] in "de" and name[1:].isdigit()]
    aligned, rotated_ones = (models["column"] == column for column in ("β-VAE", "β-VAE_Σ"))
    models.loc[rotated_ones, entries] = models.loc[aligned, entries].to_numpy()
    found = linear.FIGURE1.judge(tables | {"models": models})
    assert outcome(found, "full covariance:", "step (iii)") == "differs"
    assert outcome(found, "less full covariance") == "cannot tell"


def test_figure1_decoder_in_reverse_order():
    tables = linear_tables()
    own = tables["models"][tables["models"]["column"] == "β-VAE_Σ"]
    steps = linear.decoder_steps(own, linear.principal_directions(tables["data"]))
    assert list(steps) == ["(iii)", "(ii)", "(i)"]
    np.testing.assert_allclose(axis_angle(steps["(iii)"]), axis_angle(np.linalg.svd(decoders(own))[2]))


def about_models(tables):
    return [one for claim in linear.FIGURE2.claims[1:3] for one in claim.judge(tables)]


def test_figure2_of_exact_optima():
    found = about_models(linear_tables())
    assert said(found, "volume of β-VAEs").measured == pytest.approx(1)
    assert [one.outcome for one in found] == ["agrees"] * 4
    assert outcome(about_models(linear_tables(beta_vae=20.0)), "perpendicular") == "differs"
    longer = linear_tables()
    entries = [f"d{i}{j}" for i in (1, 2, 3) for j in (1, 2)]
    longer["models"].loc[longer["models"]["column"] == "β-VAE", entries] *= 1.1
    assert outcome(about_models(longer), "volume of β-VAEs") == "differs"


def test_figure2_volume_and_product():
    matrix = orthogonal(4, 5, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([3.0, 2.0, 1.0])
    np.testing.assert_allclose(linear._log_volume(matrix), math.log(6))
    np.testing.assert_allclose(linear._log_product(matrix), math.log(6))
    step = torch.randn(4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    moved = cayley(0.5 * step, 3)
    np.testing.assert_allclose(moved @ moved.mT, torch.eye(3).expand(4, 3, 3), atol=1e-12)
    assert (linear._log_product(matrix @ moved) > math.log(6) + 1e-3).all()


def test_figure2_refuses_a_volume_that_changes():
    settings = artefacts()["rolinek2019.figure2"].presets["smoke"]
    random = torch.Generator().manual_seed(0)
    rows = [linear._rotated(2, kind, settings, random, HERE) for kind in ("distinct", "equal")]
    tables = linear_tables() | {"matrices": pd.DataFrame(rows)}
    assert {one.outcome for one in linear.FIGURE2.judge(as_stored(tables))} == {"holds", "agrees"}
    for column, words in (
        ("spread of volume", "volume of M Vᵀ"),
        ("descended, largest cosine", "largest cosine"),
        ("descended, largest product over volume less 1", "Eq. 27: least product"),
        ("spread of product", "equal singular values"),
    ):
        changed = tables | {"matrices": tables["matrices"].assign(**{column: 0.01})}
        assert outcome(linear.FIGURE2.judge(changed), words) == "false as printed"


# Suppl. 9.2


def test_share_of_samples_that_prefer_a_diagonal():
    draws = RANDOM.normal(size=(2, 400_000)) * np.sqrt([[1.0], [0.4]])
    tilt = np.degrees(np.arctan2(*np.abs(draws))) / 2
    assert (tilt > 22.5).mean() == pytest.approx(pca.PREFERRED, abs=0.005)


@pytest.mark.parametrize("ratio", [1.0, 1.2, 1.5])
def test_variances_of_projections_and_the_cost_of_a_rotation(ratio):
    settings = dataclasses.replace(artefacts()["rolinek2019.pca"].presets["smoke"], angles=7)
    table = pca._projections(ratio, settings.at(ratio).load(), settings)
    angle = np.radians(table["angle"])
    expected = (ratio**2 * np.cos(angle) ** 2 + np.sin(angle) ** 2) / 12
    np.testing.assert_allclose(table["variance"], expected)
    # against the library's own terms: a full posterior follows the rotation, the best diagonal one does not
    covariance = pca._exact(ratio)
    straight = linear_vae(covariance, 2, noise=settings.noise)
    align = torch.linalg.lstsq(straight.weights, pca._axes(ratio) * straight.weights.norm(dim=0)).solution
    for degrees, cost in zip(table["angle"], table["cost"], strict=True):
        full = rotated(
            straight,
            torch.linalg.qr(align).Q @ turn(degrees) if ratio == 1.0 else turn(degrees),
            covariance,
            noise=settings.noise,
        )
        metric = full.weights.mT @ full.weights / settings.noise + torch.eye(2, dtype=torch.float64)
        lost = (metric.diagonal().log().sum() - torch.logdet(metric)) / 2
        assert full.elbo == pytest.approx(straight.elbo, abs=1e-9)
        assert cost == pytest.approx(float(lost), abs=1e-9)


def test_power_iteration_finds_eigenvectors_that_are_apart():
    covariance = pca._exact(1.5)[None]
    start = torch.randn(1, 3, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = pca._greedy(covariance, start, 200)
    expected = torch.linalg.eigh(covariance).eigenvectors[..., [2, 1]]
    np.testing.assert_allclose((found * expected).sum(1).abs(), 1, atol=1e-9)


def test_four_points_have_the_covariance_of_the_square():
    points = torch.cat([pca._mixing(1.2), -pca._mixing(1.2)], 1).mT / math.sqrt(6)
    np.testing.assert_allclose(points.mT @ points / 4, pca._exact(1.2))


def test_pca_claims_can_fail():
    artefact = artefacts()["rolinek2019.pca"]
    settings = artefact.presets["smoke"]
    settings = dataclasses.replace(settings, setup=settings.setup.replace(seeds=3))
    tables = as_stored(artefact.measure(settings, HERE))
    models = tables["models"].assign(**{"angle to PCA": 3.0, "m1": 0.0, "m2": 0.0, "s1": 1.0, "s2": 1.05})
    models["singular ratio"] = models["closed form"]
    good = artefact.judge(tables | {"models": models})
    assert outcome(good, "ratio 1.2, trained", "angle") == "agrees"
    assert outcome(good, "latent's mean") == "agrees"
    assert outcome(good, "ratio 1.5", "singular values") == "agrees"
    bad = models.assign(**{"angle to PCA": 8.0, "s1": 0.8, "singular ratio": 1.0})
    found = artefact.judge(tables | {"models": bad})
    assert outcome(found, "ratio 1.2, trained", "angle") == "differs"
    assert outcome(found, "latent's mean") == "differs"
    assert outcome(found, "ratio 1.5", "singular values") == "differs"
    tilted = tables["alignments"].assign(cases=1000, tilted=500)
    assert outcome(artefact.judge(tables | {"alignments": tilted}), "more than 22.5°") == "agrees"
    tilted = tilted.assign(tilted=641)
    assert outcome(artefact.judge(tables | {"alignments": tilted}), "more than 22.5°") == "differs"


# Definition 1


class Known(torch.nn.Module):
    """Three latents: one sharp, one that the decoder ignores, one that it nearly ignores."""

    def __init__(self, leak):
        super().__init__()
        self.leak = leak
        self.likelihood = unseam.models.Gaussian(0.5)

    def decode(self, z):
        return torch.stack([2 * z[:, 0], z[:, 0] ** 2, self.leak * z[:, 2]], 1)


@pytest.mark.parametrize("leak", [0.0, 0.1])
def test_definition1_of_a_known_decoder(leak):
    mean = torch.randn(400, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mean[:, 1:] = 0
    variance = torch.tensor([0.01, 1.0, 1.0], dtype=torch.float64).expand(400, 3)
    noise, fresh = torch.randn(2, 400, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    columns, changed = definition1._of_latents(Known(leak), mean, variance, noise, fresh)
    assert columns["active"].tolist() == [True, False, False]
    assert columns["part_b"].tolist() == [1, 0, 0]
    assert columns["part_a"].tolist() == [0, 1, 1]
    z = mean[:, 0] + 0.1 * noise[:, 0]
    longest = float((4 + 4 * z**2).mean().sqrt())
    assert columns["column"].tolist() == pytest.approx([1, 0, leak / longest])
    spread = float((4 * z.var() + z.square().var() + leak**2 * noise[:, 2].var()) ** 0.5)
    moved = leak * float((fresh[:, 2] - noise[:, 2]).square().mean().sqrt())
    assert changed == pytest.approx(moved / spread)


def polarised(**changes):
    """Tables of twenty models with two active and two passive latents each; ``changes`` of the passive ones."""
    active = {"active": True, "kl": 3.0, "variance": 0.01, "log_variance": -4.6, "part_a": 0.0, "part_b": 1.0}
    passive = {
        "active": False,
        "kl": 1e-4,
        "variance": 1.0,
        "log_variance": 0.0,
        "part_a": 1.0,
        "part_b": 0.0,
    }
    rows = [
        {
            "data": "Synth. Lin.",
            "beta": 3e-4,
            "seed": seed,
            "latent": latent,
            "column": 1.0 if latent < 2 else 0.001,
        }
        | (active if latent < 2 else passive | changes)
        for seed in range(20)
        for latent in range(4)
    ]
    models = [{"data": "Synth. Lin.", "beta": 3e-4, "seed": seed, "changed": 1e-3} for seed in range(20)]
    return {"latents": pd.DataFrame(rows), "models": pd.DataFrame(models)}


@pytest.mark.parametrize(
    ("changes", "failing"),
    [
        ({}, []),
        ({"part_a": 0.9}, ["passive latents, μ² ≪ 1 and σ² ≈ 1"]),
        ({"column": 0.02}, ["column of the Jacobian"]),
        ({"kl": 0.2}, ["share of the KL term"]),
    ],
)
def test_definition1_parts_fail_one_by_one(changes, failing):
    found = definition1.DEFINITION1[0].judge(polarised(**changes))
    assert len(found) == 6
    for one in found:
        expected = any(words in one.quantity for words in failing)
        assert one.outcome == ("differs" if expected else "agrees"), one


def test_definition1_of_decoders_that_use_passive_latents():
    tables = polarised()
    found = definition1.DEFINITION1[0].judge(tables | {"models": tables["models"].assign(changed=0.02)})
    assert [one.quantity.split(": ")[1][:6] for one in found if one.outcome == "differs"] == ["change"]


def test_definition1_control_must_not_be_polarised():
    tables = polarised()
    control = tables["latents"].assign(beta=definition1.CONTROL)
    both = tables | {"latents": pd.concat([tables["latents"], control])}
    words = f"β = {definition1.CONTROL:g}: share of models"
    assert outcome(definition1.DEFINITION1[0].judge(both), words) == "differs"
    second = control["latent"] == 1
    between = control.assign(
        part_b=control["part_b"].where(~second, 0.0), variance=control["variance"].where(~second, 0.37)
    )
    both = tables | {"latents": pd.concat([tables["latents"], between])}
    assert outcome(definition1.DEFINITION1[0].judge(both), words) == "agrees"


def test_definition1_without_the_published_file(tmp_path, monkeypatch):
    from unseam.papers import on_world

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    artefact = artefacts()["rolinek2019.definition1_sprites"]
    tables = as_stored(artefact.measure(on_world(artefact.presets["smoke"], "dsprites"), HERE))
    assert list(tables) == ["missing"]
    (finding,) = artefact.judge(tables)
    assert (finding.quantity, finding.outcome) == ("dSprites", "not run")
    assert "world 'dsprites' needs the file" in finding.note
    artefact.plot(tables)
