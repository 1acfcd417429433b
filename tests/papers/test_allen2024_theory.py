"""Artefacts of allen2024 that judge the statements of its theory: Theorem 2, local PCA, tempered posteriors."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from unseam.papers import Workplace, verdict
from unseam.papers.allen2024 import theorem2
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
    said = {finding.quantity: finding.verdict for finding in found.findings}
    cases = {
        (name, mark): value
        for name in ("separable", "staircase", "sphere", "stretched sphere")
        for mark in ("(i)", "(ii)")
        for key, value in said.items()
        if key.startswith(f"{name}, {mark}")
    }
    assert [cases["separable", mark] for mark in ("(i)", "(ii)")] == ["reproduced"] * 2
    assert [cases["staircase", mark] for mark in ("(i)", "(ii)")] == ["not reproduced", "reproduced"]
    for name in theorem2.COUNTEREXAMPLES:
        assert [cases[name, mark] for mark in ("(i)", "(ii)")] == ["not reproduced"] * 2
    assert verdict(found.findings[:1]) == verdict(found.findings[-1:]) == "reproduced"
    assert not any(key.startswith("exponential") for key in said), (
        "not injective, so not a case of the theorem"
    )


def test_a_map_that_misses_the_assumptions_says_nothing_of_the_theorem():
    tables = as_stored(theorem2.measure(theorem2.Settings(points=100, tested=30, permutations=9), CPU))
    maps = tables["maps"]
    maps.loc[maps["map"] == "sphere", "largest cosine"] = 0.1
    found = theorem2.judge(tables)
    assert not any(finding.quantity.startswith("sphere") for finding in found.findings)
    assert found.findings[0].verdict == "not reproduced"


def test_measures_that_miss_quadrature_are_seen():
    tables = as_stored(theorem2.measure(theorem2.Settings(points=100, tested=30, permutations=9), CPU))
    tables["maps"]["mixed"] += 0.5
    assert theorem2.judge(tables).findings[-1].verdict == "not reproduced"
