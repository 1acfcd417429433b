"""Artefacts of allen2024 about geometry: their measuring code against closed forms and brute force."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import multivariate_normal

from unseam.data.files import MissingFileError
from unseam.geometry import jacobian
from unseam.independence import coupling, log_density
from unseam.papers import Workplace
from unseam.papers.allen2024 import (
    _decoders,
    collapse,
    diagonal_hessian,
    figure1,
    figure2,
    piecewise_linear,
    plateaus,
    push_forward,
)
from unseam.theory import linear_vae

CPU = Workplace(torch.device("cpu"))


def points(count, latent=2, seed=0):
    return torch.randn(count, latent, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# Decoders


def test_linear_decoder_has_the_density_of_a_normal():
    weights = torch.tensor([[2.0, 0.3], [0.1, 1.5]], dtype=torch.float64)
    z = points(20)
    found = log_density(_decoders.linear(weights), z).log_density
    exact = multivariate_normal(np.zeros(2), (weights @ weights.mT).numpy()).logpdf((z @ weights.mT).numpy())
    assert found.numpy() == pytest.approx(exact, abs=1e-10)


def test_separable_decoder_is_orthogonal_and_uncoupled():
    frame = torch.linalg.qr(points(6, 6)).Q[:, :4]
    decoder = _decoders.separable(frame, torch.tensor([[1.0, 0.7], [0.6, 1.2]], dtype=torch.float64))
    z = points(50)
    metric = jacobian(decoder, z).mT @ jacobian(decoder, z)
    assert metric[:, 0, 1].abs().max() < 1e-12
    assert coupling(decoder, z).off_diagonal < 1e-20


def test_polar_decoder_is_orthogonal_injective_and_coupled():
    decoder, z = _decoders.polar(0.5), points(50)
    metric = jacobian(decoder, z).mT @ jacobian(decoder, z)
    assert metric[:, 0, 1].abs().max() < 1e-12
    # E[(∂ log‖∂x/∂z_2‖ / ∂z_1)²] = a² = 1/4, the other pair has none
    assert float(coupling(decoder, z).off_diagonal) == pytest.approx(1 / 8, abs=1e-12)
    x = decoder(z)
    back = torch.stack([x.norm(dim=1).log() / 0.5, x[:, 1] / x[:, 0]], 1)
    assert torch.allclose(back, z, atol=1e-12)


def test_general_decoder_has_full_rank_and_is_not_orthogonal():
    decoder, z = _decoders.general(points(4, 2, 1), points(6, 6, 2)), points(50)
    slopes = jacobian(decoder, z)
    assert torch.linalg.svdvals(slopes)[:, -1].min() > 1e-3
    assert log_density(decoder, z).gap.min() > 0


def test_sheared_plane_can_be_undone():
    decoder, z = _decoders.sheared(0.7, 0.8), points(20)
    x = decoder(z)
    second = x[:, 1] - 0.8 * torch.tanh(x[:, 0])
    assert torch.allclose(torch.stack([x[:, 0] - 0.7 * torch.tanh(second), second], 1), z)


@pytest.mark.parametrize("turn", [False, True])
def test_arc_coordinates_of_a_linear_decoder_are_scaled_latents(turn):
    weights = points(3, 2, 3)
    basis = torch.linalg.svd(weights).Vh.mT if turn else None
    z = points(10)
    found = _decoders.arc_coordinates(_decoders.linear(weights), z, basis=basis)
    expected = (z @ basis) * torch.linalg.svdvals(weights) if turn else z * weights.norm(dim=0)
    assert torch.allclose(found, expected, atol=1e-10)


def test_arc_coordinates_of_the_polar_decoder():
    z = points(30)
    found = _decoders.arc_coordinates(_decoders.polar(0.5), z)
    radius = torch.exp(z[:, 0] / 2)
    expected = torch.stack([radius - 1, radius * torch.atan(z[:, 1])], 1)
    assert torch.allclose(found, expected, atol=1e-6)


# Push-forward


def test_push_forward_tells_the_kinds_apart():
    settings = push_forward.Settings(decoders=2, points=50, tested=400, permutations=99)
    table = push_forward.measure(settings, CPU)["decoders"].groupby("kind")
    gap, coupled, p_value = (table[name].max() for name in ("largest gap", "coupling", "p-value"))
    for kind in ("linear, axes V", "orthogonal, separable", "orthogonal, coupled"):
        assert gap[kind] < 1e-9
    for kind in ("linear, axes z", "general"):
        assert gap[kind] > 1e-3
    assert coupled["orthogonal, separable"] < 1e-9 < 1e-2 < coupled["orthogonal, coupled"]
    assert p_value["orthogonal, coupled"] == pytest.approx(0.01)


@pytest.mark.parametrize(("rejected", "expected"), [(0, "agrees"), (5, "cannot tell"), (20, "differs")])
def test_components_found_dependent_too_often_are_not_independent(rejected, expected):
    p_values = [0.005] * rejected + [0.5] * (50 - rejected)
    table = pd.DataFrame({"kind": "linear, axes V", "p-value": p_values})
    control = pd.DataFrame({"kind": "general", "p-value": [0.005] * 50})
    (found,) = push_forward.PUSH_FORWARD.claims[1].judge({"decoders": pd.concat([table, control])})
    assert found.outcome == expected and "general: 1, outside" in found.note


# Figure 1


def test_figure1_angles():
    tables = figure1.measure(figure1.Settings(lines=3, nodes=9), CPU)
    assert {found.outcome for found in figure1.FIGURE1.judge(tables)} == {"holds", "agrees"}
    checks = tables["checks"].set_index("decoder")
    weights = jacobian(figure1._decoders(figure1.Settings())["linear"][0], torch.zeros(1, 2).double())[0]
    first, second = torch.nn.functional.normalize(weights, dim=0).unbind(1)
    expected = 90 - math.degrees(math.acos(abs(float(first @ second))))
    assert checks.loc["linear, lines along z", "off a right angle"] == pytest.approx(expected)
    # θ runs from −arctan 1.4 to arctan 1.4, and so does the direction of the curve
    assert checks.loc["orthogonal", "bend"] == pytest.approx(2 * math.degrees(math.atan(1.4)))


# Figure 2


def ring(circles=8, angles=16):
    angle = 2 * math.pi * torch.arange(angles) / angles
    centre = 2 * math.pi * torch.arange(circles) / circles
    unit = lambda value: torch.stack([value.cos(), value.sin()], -1)  # noqa: E731
    return 10 * unit(centre)[:, None] + 3 * unit(angle)


def test_kept_distances_of_known_reconstructions():
    x = ring()
    middle = x.mean(1, keepdim=True)
    same, halved, centroids, nothing = x, middle + (x - middle) / 2, middle.expand_as(x), torch.zeros_like(x)
    ratios = figure2._ratios(x, torch.stack([same, halved, centroids, nothing]), 1)
    expected = torch.tensor([[1, 1, 1], [0.25, 0.25, 1], [0, 0, 1], [0, 0, 0]])
    kept = torch.stack([ratios[scale].median(1).values for scale in figure2.SCALES], 1)
    assert torch.allclose(kept, expected, atol=1e-4)


def test_neighbours_merge_before_their_circle_does():
    x = ring()
    merged = x.unflatten(1, (4, 4)).mean(2, keepdim=True).expand(8, 4, 4, 2).flatten(1, 2)
    ratios = figure2._ratios(x, merged[None], 1)
    first, second, third = (ratios[scale].median() for scale in figure2.SCALES)
    assert first < 1e-6 < 0.7 < second < third
    # of four neighbours that merge, three pairs are lost and the pair across the border is not
    assert (ratios[figure2.SCALES[0]] < figure2.MERGED).double().mean() == 0.75


def test_facing_points_are_the_closest_of_two_circles():
    x = ring()
    found = figure2._squared_distances(x, 1)[figure2.FACING]
    closest = torch.stack([torch.cdist(x[i], x[(i + 1) % 8]).min() for i in range(8)])
    assert torch.allclose(found.sqrt(), closest, atol=1e-4)


def test_mergers_of_each_seed():
    beta = [1.0, 10.0, 100.0]
    first = {scale: [1.0, 0.75, 0.25] for scale in figure2.SCALES}
    second = dict(zip(figure2.SCALES, ([0.4, 0.3, 0.2], [0.9, 0.9, 0.9], [0.2, 0.6, 0.4]), strict=True))
    members = pd.concat(
        pd.DataFrame({"beta": beta, "seed": seed} | own) for seed, own in enumerate((first, second))
    )
    found = figure2._mergers(members)
    assert found.loc[0].tolist() == pytest.approx([10**1.5] * 3)
    assert found.loc[1].tolist() == pytest.approx([1.0, math.inf, 10**1.5])
    first, second = figure2.FIGURE2.judge({"members": members})[:2]
    assert (first.outcome, second.outcome) == ("cannot tell", "cannot tell")
    assert "0 of 2 seeds" in second.note


@pytest.mark.parametrize(
    ("mergers", "expected"),
    [((2.0, 9.0, 30.0), ["agrees", "agrees"]), ((9.0, 2.0, 30.0), ["differs", "agrees"])],
)
def test_mergers_in_the_order_of_the_figure_and_in_another(mergers, expected):
    beta = np.geomspace(1, 100, 30)
    members = pd.concat(
        pd.DataFrame(
            {"beta": beta, "seed": seed}
            | {
                scale: np.where(beta < at * 1.01**seed, 1.0, 0.0)
                for scale, at in zip(figure2.SCALES, mergers, strict=True)
            }
        )
        for seed in range(8)
    )
    assert [found.outcome for found in figure2.FIGURE2.judge({"members": members})[:2]] == expected


# Theorems 4 and 5


def test_theorem_4_by_trying_all_permutations():
    settings = diagonal_hessian.Settings(matrices=50, latent=4)
    table = diagonal_hessian._matrices(settings, torch.Generator().manual_seed(0))
    assert (table["turned"] <= table["bound"] + 1e-9).all()
    assert table["best permutation"].to_numpy() == pytest.approx(table["bound"].to_numpy())
    assert (table["turned"] > table["V = I"]).any(), "no counterexample to the theorem as printed"
    assert (table["Thm. 5, turned"] <= table["Thm. 5, V = I"] + 1e-9).all()
    assert table["Thm. 5, V = I"].to_numpy() == pytest.approx(table["Thm. 5, bound"].to_numpy())
    shortfalls = diagonal_hessian._shortfalls(table)
    lost = table["bound"] - table["turned"]
    assert shortfalls["turned"].iloc[[0, 50, 100]].tolist() == pytest.approx(
        [lost.min(), lost.median(), lost.max()]
    )
    bounds = diagonal_hessian._bounds(table).iloc[0]
    assert bounds["Thm. 4, value above the bound"] == pytest.approx(-lost.min())
    assert bounds["Thm. 4, share of rotations above V = I"] == (table["turned"] > table["V = I"]).mean()


def test_turned_hessians_lose_what_a_diagonal_one_does_not():
    diagonal = torch.diag(torch.tensor([-1.0, -9.0], dtype=torch.float64))[None]
    half = math.sqrt(0.5)
    turns = torch.stack([torch.eye(2), torch.tensor([[half, -half], [half, half]])]).double()
    four, five = diagonal_hessian._lost(*[diagonal_hessian._rotate(diagonal, turns[:, None])] * 2)
    assert four[0].item() == pytest.approx(0) and five[0].item() == pytest.approx(0)
    # at 45° both diagonal entries are −5: log 6 for each, against log 2 and log 10
    assert five[1].item() == pytest.approx((2 * math.log(6) - math.log(20)) / 2)


# A.3


def test_sharp_softplus_is_relu():
    trial = piecewise_linear._trials(
        piecewise_linear.Settings(resolution=8, positions=4, scales=2, width=8, steps=2, early=1, seeds=1)
    )[1]
    assert trial.decoder_activation == "relu"
    model = piecewise_linear.train_or_resume([trial], CPU, "x")[0].double()
    z = points(20, trial.latent)
    sharp = piecewise_linear._sharpen(model, 1e3)
    away = (sharp.decode(z) - model.decode(z)).abs().max()
    slack = model.decoder.layers[2].weight.abs().sum(1).max() * math.log(2) / 1e3
    assert 0 < away <= slack
    assert isinstance(model.decoder.layers[1], torch.nn.ReLU), "the model itself was changed"


# Plateaus


def test_data_are_normal_quantiles_of_unit_variance():
    values = plateaus._world(5).images(torch.arange(5))[:, 0]
    assert values.square().mean() == pytest.approx(1, abs=1e-6)
    assert torch.allclose(values, -values.flip(0), atol=1e-6)


def test_terms_of_equation_14():
    terms = plateaus._terms()
    assert terms["error, corrected"].abs().max() < 1e-12
    assert terms["error, printed"].abs().max() > 1
    printed = terms["Eq. 5"] + terms["error, printed"]
    assert (printed.diff().dropna() < 0).all() and (terms["Eq. 5"].diff().dropna() < 0).all()


class Straight:
    """Stands for an ensemble of one linear VAE: d(z) = w z, q(z|x) = N(e x, v)."""

    def __init__(self, weight, encoder, variance):
        self.weight, self.encoder, self.variance = weight, encoder, variance

    def encode(self, x):
        from unseam.models import Encoding

        return Encoding(self.encoder * x[None], torch.full_like(x[None], self.variance))

    def decode(self, z):
        return self.weight * (z if z.ndim == 3 else z[None])


def test_elbo_of_the_best_line_is_the_closed_form():
    settings = plateaus.Settings(variance=0.1)
    x = plateaus._world(50).images(torch.arange(50))
    weight = math.sqrt(1 - 0.1)
    ensemble = Straight(weight, weight / (weight**2 + 0.1), 0.1 / (weight**2 + 0.1))
    found = plateaus._elbo(ensemble, x, settings)
    assert found.item() == pytest.approx(
        float(linear_vae(x.double().mT @ x.double() / 50, 1, noise=0.1).elbo), abs=1e-5
    )
    slopes, _ = plateaus._slopes(ensemble, x, settings)
    assert slopes["flat share"].item() == 0
    assert slopes["slope at data"].item() == pytest.approx(1, abs=1e-2)


@pytest.mark.parametrize(
    ("flat", "slope", "expected"),
    [(0.95, 0.02, ["agrees", "agrees"]), (0.7, 0.3, ["differs", "differs"]), (0.0, 1.0, ["differs"] * 2)],
)
def test_half_flat_is_no_plateau(flat, slope, expected):
    spread = np.linspace(-0.01, 0.01, 5)
    few = pd.DataFrame({"points": 2, "flat share": flat + spread, "slope at data": slope + spread})
    many = few.assign(points=1000, **{"flat share": 0.0, "slope at data": 1.0})
    found = plateaus.PLATEAUS.claims[0].judge({"members": pd.concat([few, many])})
    assert [one.outcome for one in found] == expected


class Steps(Straight):
    def decode(self, z):
        return torch.tanh(50 * (z if z.ndim == 3 else z[None]))


def test_a_step_is_flat_nearly_everywhere():
    x = plateaus._world(2).images(torch.arange(2))
    slopes, _ = plateaus._slopes(Steps(1, 1, 0.1), x, plateaus.Settings())
    assert slopes["flat share"].item() > 0.9
    assert slopes["slope at data"].item() < 1e-3


# Collapse


@pytest.mark.slow
def test_linear_models_have_the_predicted_latents():
    settings = collapse.Settings(
        betas=4, seeds=1, scales=(4.0, 2.0), linear_steps=1500, batch_size=64, items=2000, points=200
    )
    world, first = collapse._world("linear", settings), collapse._trial("linear", settings)
    known = collapse._thresholds(world, "gaussian", settings.items)
    assert known[:2].tolist() == pytest.approx([17, 5], rel=0.1)
    assert collapse._betas(known[:2], 4)[0] == pytest.approx(0.7 * float(known[1]), rel=1e-4)
    trials = [dataclasses.replace(first, beta=beta) for beta in (2.0, 10.0, 30.0)]
    ensemble = collapse.train_or_resume(trials, CPU, "x", world=world)
    assert collapse._active(ensemble, world, 200).tolist() == [2, 1, 0]


def test_latents_collapse_between_the_counts():
    own = pd.DataFrame({"beta": [1.0, 4.0, 16.0], "counted": [2, 1, 0]})
    points = collapse._collapse_points(own, pd.Series([8.0, 2.0, 0.1]))
    assert points["measured"].tolist() == pytest.approx([8.0, 2.0, 1.0])
    assert points["never"].tolist() == [False, False, True]


def test_latents_that_were_never_active_count_against_the_prediction():
    own = pd.DataFrame(
        {"model": "sprites", "beta": [1.0, 4.0, 16.0], "counted": [1, 1, 0], "predicted": [4, 4, 0]}
    )
    thresholds = pd.DataFrame({"model": "sprites", "predicted": [8.0] * 4})
    (middle,) = collapse.COLLAPSE.claims[1].judge({"members": own, "thresholds": thresholds})
    assert middle.measured == pytest.approx(1 / 8)
    assert middle.outcome != "agrees"
    assert "3 latents were never active" in middle.note


def test_without_files_digits_cannot_be_run(monkeypatch):
    def missing(name, settings):
        if name != "linear":
            raise MissingFileError(f"world {name!r} needs files", f"fetch {name}")
        return world(name, settings)

    world = collapse._world
    monkeypatch.setattr(collapse, "_world", missing)
    settings = collapse.Settings(betas=2, seeds=1, scales=(2.0,), linear_steps=5, items=100, points=20)
    tables = collapse.measure(settings, CPU)
    assert set(tables["members"]["model"]) == {"linear"}
    found = collapse.COLLAPSE.judge(tables)[-1]
    assert (found.quantity, found.outcome, found.note) == ("mnist", "not run", "fetch mnist")
