"""Artefacts of allen2024 that judge the statements of its theory: Theorem 2, local PCA, tempered posteriors."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from unseam.papers import Workplace
from unseam.papers.allen2024 import local_pca, tempered, theorem2
from unseam.papers.artefact import as_stored

CPU = Workplace(torch.device("cpu"))


def judged(artefact, settings):
    return artefact.judge(as_stored(artefact.measure(settings, CPU)))


# Theorem 2


def test_quadrature_of_the_sphere_by_another_route():
    """s = z_1² + z_2² is twice a standard exponential variable."""

    def mean(function):
        return integrate.quad(lambda s: function(s) * math.exp(-s / 2) / 2, 0, np.inf)[0]

    assert theorem2._sphere_coupling(1.0) == pytest.approx(mean(lambda s: 2 * s / (1 + s) ** 2))
    assert theorem2._sphere_mixed(1.0) == pytest.approx(mean(lambda s: 8 * s**2 / (1 + s) ** 4))
    assert theorem2._sphere_coupling(1.0) == pytest.approx(0.384, abs=5e-4)
    assert theorem2._sphere_mixed(1.0) == pytest.approx(0.321, abs=5e-4)


def test_quadrature_of_the_stretched_sphere_on_a_grid():
    """Trapezoidal sums of smooth functions that decay converge faster than any power of the step."""
    axis = np.linspace(-9, 9, 721)
    weight = stats.norm.pdf(axis) * (axis[1] - axis[0])
    first, second = np.meshgrid(axis, axis, indexing="ij")
    q, square = 4 * first**2 + second**2, 4.0
    coupled = ((2 * square * first) ** 2 + (2 * second) ** 2) / (1 + q) ** 2 / 2
    mixed = (8 * square * first * second / (1 + q) ** 2) ** 2
    assert theorem2._sphere_coupling(2.0) == pytest.approx(weight @ coupled @ weight, rel=1e-6)
    assert theorem2._sphere_mixed(2.0) == pytest.approx(weight @ mixed @ weight, rel=1e-6)


def test_column_norms_that_quadrature_rests_on():
    from unseam.geometry import pullback

    z = torch.randn(20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scale = 1 + 4 * z[:, 0] ** 2 + z[:, 1] ** 2
    found = pullback(theorem2.sphere(2.0), z)
    expected = torch.diag_embed(torch.stack([16 / scale**2, 4 / scale**2], 1))
    torch.testing.assert_close(found, expected)
    found = pullback(theorem2.staircase, z)
    growth = (2 * z[:, 0]).exp()
    torch.testing.assert_close(found, torch.diag_embed(torch.stack([growth, 1 + growth], 1)))


def test_theorem_2_fails_on_the_sphere_under_both_readings_and_holds_of_separable_maps():
    found = judged(theorem2.THEOREM2, theorem2.Settings(points=500, tested=100, permutations=19))
    said = {finding.quantity: finding.outcome for finding in found}
    cases = {
        (name, mark): value
        for name in ("separable", "staircase", "sphere", "stretched sphere")
        for mark in ("(i)", "(ii)")
        for key, value in said.items()
        if key.startswith(f"{name}, {mark}")
    }
    assert [cases["separable", mark] for mark in ("(i)", "(ii)")] == ["holds"] * 2
    assert [cases["staircase", mark] for mark in ("(i)", "(ii)")] == ["false as printed", "holds"]
    for name in ("sphere", "stretched sphere"):
        assert [cases[name, mark] for mark in ("(i)", "(ii)")] == ["false as printed"] * 2
    assert [finding.outcome for finding in found if finding.ours] == ["holds"] * 2
    assert not any(key.startswith("exponential") for key in said), (
        "not injective, so not a case of the theorem"
    )


def test_a_map_that_misses_the_assumptions_says_nothing_of_the_theorem():
    tables = as_stored(theorem2.measure(theorem2.Settings(points=100, tested=30, permutations=9), CPU))
    maps = tables["maps"]
    maps.loc[maps["map"] == "sphere", "largest cosine"] = 0.1
    found = theorem2.THEOREM2.judge(tables)
    assert not any(finding.quantity.startswith("sphere") for finding in found)
    assert found[-2].outcome == "false as printed"


def test_measures_that_miss_quadrature_are_seen():
    tables = as_stored(theorem2.measure(theorem2.Settings(points=100, tested=30, permutations=9), CPU))
    tables["maps"]["mixed"] += 0.5
    assert theorem2.THEOREM2.judge(tables)[-1].outcome == "false as printed"


# Tempered posteriors


def test_the_tempered_posterior_of_a_linear_model_is_the_posterior_at_another_variance():
    """Theorem 3 in the linear case: β on the KL is a likelihood of variance βσ², whose posterior is known (Eq. 3)."""
    from unseam.theory import ppca

    model = ppca(torch.diag(torch.tensor([5.0, 2.0, 1.0], dtype=torch.float64)), 2, noise=2 * 0.25)
    weights, x = model.weights, torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    axis = torch.linspace(-8, 8, 401, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)
    log_likelihood = -(x - grid @ weights.mT).square().sum(1) / (2 * 0.25)
    q = torch.softmax(log_likelihood / 2 - grid.square().sum(1) / 2, 0)
    mean = q @ grid
    torch.testing.assert_close(mean, model.encoder @ x)
    torch.testing.assert_close((grid - mean).mT @ (q[:, None] * (grid - mean)), model.covariance)


def test_mirror_ascent_finds_the_maximum_and_no_other_distribution_is_better():
    settings = tempered.Settings(items=3, nodes=(61,))
    draw = torch.Generator().manual_seed(3)
    problems = tempered._problems(settings, 1, 61, "Cauchy", draw, torch.device("cpu"))
    best = tempered._maximise(problems, 2.0, 200)
    bound = tempered._elbo(problems, 2.0, best.exp())
    # log Z of the tempered joint, times β
    expected = 2 * torch.logsumexp(problems.log_likelihood / 2 + problems.log_prior, 1)
    torch.testing.assert_close(bound, expected)
    for _ in range(20):
        other = torch.softmax(best + 0.3 * torch.randn(3, 61, generator=draw, dtype=torch.float64), 1)
        assert (tempered._elbo(problems, 2.0, other) < bound).all()


def test_the_claim_on_tempered_posteriors_holds():
    found = judged(tempered.TEMPERED, tempered.TEMPERED.presets["smoke"])
    assert {finding.outcome for finding in found} == {"holds", "agrees"}


@pytest.mark.parametrize(("power", "said"), [(1.0, "holds"), (1.3, "false as printed")])
@pytest.mark.slow
def test_an_optimum_at_another_temperature_is_seen(power, said, monkeypatch):
    def other(problems, beta, iterations):
        return torch.log_softmax(problems.log_likelihood / beta**power + problems.log_prior, 1)

    monkeypatch.setattr(tempered, "_maximise", other)
    settings = tempered.Settings(betas=(0.5, 1.0, 2.0), models=1, items=2, nodes=(61, 15))
    found = judged(tempered.TEMPERED, settings)
    assert {finding.outcome for finding in found if "any q" in finding.quantity} == {said}


# Local PCA


def test_local_axes_of_a_plane_are_those_of_its_covariance():
    """Weighting a Gaussian by a Gaussian around the mean leaves its axes: variances s² and ρ² give s²ρ² / (s² + ρ²)."""
    draw = torch.Generator().manual_seed(0)
    rotation = torch.linalg.qr(torch.randn(3, 3, generator=draw, dtype=torch.float64)).Q
    scales = torch.tensor([3.0, 1.0, 0.1], dtype=torch.float64)
    table = torch.randn(200_000, 3, generator=draw, dtype=torch.float64) * scales @ rotation.mT
    table[0] = 0
    found = local_pca._local_axes(table, torch.tensor([0]), 2.0)
    assert local_pca._between(found.vectors, rotation[None, :, :2]).item() < 1
    assert found.ratio.item() == pytest.approx((36 / 13) / (4 / 5), rel=0.03)
    small = local_pca._local_axes(table, torch.tensor([0]), 0.3)
    assert small.neighbours < found.neighbours and small.ratio < 1.3


def test_the_likelihood_has_the_variance_of_the_strips_noise():
    settings = local_pca.Settings(items=20_000)
    world, plane = local_pca._strip(settings, settings.generator())
    across = torch.linalg.qr(plane, mode="complete").Q[:, 2:]
    noise = float((world.table.double() @ across).var())
    for model in local_pca.MODELS:
        for trial in local_pca._trials(settings, model):
            assert trial.likelihood_variance == pytest.approx(noise, rel=0.02)


def test_angles_of_known_columns():
    axes = torch.eye(4, dtype=torch.float64)[None, :, :2]
    turned = math.radians(20)
    rotation = torch.tensor(
        [[math.cos(turned), -math.sin(turned)], [math.sin(turned), math.cos(turned)]], dtype=torch.float64
    )
    columns = axes @ torch.diag(torch.tensor([3.0, 1.0], dtype=torch.float64)) @ rotation
    found = local_pca._angles(columns, axes, axes[0])
    assert found["left vectors"] == pytest.approx(0, abs=1e-6)  # a rotation of latents leaves U
    assert found["columns"] > 10
    assert found["plane"] == pytest.approx(0, abs=1e-5)
    found = local_pca._angles(axes @ rotation * torch.tensor([3.0, 1.0]), axes, axes[0])
    assert found["left vectors"] == pytest.approx(20) and found["columns"] == pytest.approx(20)
    assert found["left vectors, axes of all data"] == pytest.approx(20)


def members(**angles):
    """A table in which every model has these angles."""
    import pandas as pd

    columns = (
        "left vectors",
        "columns",
        "plane",
        "left vectors, axes elsewhere",
        "left vectors, axes of all data",
    )
    rows = [
        {"model": model, "seed": seed, "scale": local_pca.JUDGED}
        | dict.fromkeys(columns, angles[model] + seed / 4)
        for model in local_pca.MODELS
        for seed in range(6)
    ]
    around = pd.DataFrame({"scale": [local_pca.JUDGED], "items": [100.0], "variance ratio": [4.0]})
    return {"members": pd.DataFrame(rows), "neighbourhoods": around}


def test_local_pca_is_judged_by_angle_and_against_controls():
    tables = members(diagonal=5.0, full=30.0, autoencoder=30.0, untrained=5.5)
    said = [finding.outcome for finding in local_pca.LOCAL_PCA.judge(tables)]
    assert said[:2] == ["agrees"] * 2
    # the table gives the control of other axes the angle of the model itself
    assert said[2:] == ["cannot tell", "cannot tell", "agrees", "cannot tell", "agrees"]
    tables = members(diagonal=15.0, full=30.0, autoencoder=20.0, untrained=60.0)
    assert [finding.outcome for finding in local_pca.LOCAL_PCA.judge(tables)][:2] == ["differs"] * 2
