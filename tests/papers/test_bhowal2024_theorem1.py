"""bhowal2024's Theorem 1: energies against integrals, minima against closed forms and a grid, outcomes."""

import math

import pandas as pd
import pytest
import torch

from unseam.papers import artefacts
from unseam.papers.bhowal2024 import theorem1
from unseam.papers.bhowal2024.theorem1 import FORMS, LEAK, WORKED, minimise
from unseam.papers.draws import largest_cosine

F64 = torch.float64
DECODERS = {
    "second_order": lambda x: x,
    "quadratic": lambda x: x + x.square() / 2,
    "sigmoid": lambda x: torch.special.erf(x * math.pi**0.5 / 2),
    "sine": torch.sin,
    "sigmoid_own": lambda x: torch.special.erf(x * math.pi**0.5 / 2),
    "relu_own": lambda x: torch.nn.functional.leaky_relu(x, LEAK),
}


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def orthogonal(*shape, seed=0):
    return torch.linalg.qr(normal(*shape, seed=seed)).Q


@pytest.mark.parametrize("variance", [1e-4, 0.3, 4.0, 50.0])
@pytest.mark.parametrize("name", FORMS)
def test_energy_is_the_integral(name, variance):
    form, decoder = FORMS[name], DECODERS[name]
    offsets = torch.tensor([-2.0, -0.1, 0.0, 0.5, 3.0] if form.own else [0.0], dtype=F64)
    x = torch.linspace(-12, 12, 400_001, dtype=F64) * variance**0.5
    density = (-x.square() / 2 / variance).exp() / (2 * math.pi * variance) ** 0.5
    change = decoder(offsets[:, None] + x) - decoder(offsets)[:, None]
    expected = torch.trapezoid(change.square() * density, x)
    found = form.energy(offsets, torch.full_like(offsets, variance))
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-13)


@pytest.mark.parametrize("name", FORMS)
def test_slope_is_the_derivative(name):
    offsets = torch.tensor([-1.5, -0.2, 0.4, 2.0] if FORMS[name].own else [0.0], dtype=F64).requires_grad_()
    (slope,) = torch.autograd.grad(DECODERS[name](offsets).sum(), offsets)
    torch.testing.assert_close(FORMS[name].slope(offsets.detach()), slope)


def test_second_order_minima_are_eq_53():
    """From any start: L = d (Sing² exp(−C))^(1/d), with orthogonal columns and σ² ∝ 1/‖c‖²."""
    base = orthogonal(20, 7, 3) * torch.tensor([0.5, 1.0, 2.5], dtype=F64)
    log_variance = normal(20, 3, seed=1)
    found = minimise(
        FORMS["second_order"].energy,
        base,
        torch.zeros(20, 7, dtype=F64),
        orthogonal(20, 3, 3, seed=2),
        log_variance,
        steps=60,
    )
    assert found.certain.all()
    closed = math.log(3) + (2 * math.log(0.5 * 1.0 * 2.5) + log_variance.sum(1)) / 3
    torch.testing.assert_close(found.loss, closed, rtol=0, atol=1e-10)
    assert float(largest_cosine(found.matrix).max()) < 1e-6
    product = found.log_variance + found.matrix.square().sum(1).log()
    torch.testing.assert_close(product, product.mean(1, keepdim=True).expand(-1, 3), rtol=0, atol=1e-6)
    torch.testing.assert_close(found.log_variance.sum(1), log_variance.sum(1))
    torch.testing.assert_close(
        torch.linalg.svdvals(found.matrix), torch.tensor([2.5, 1.0, 0.5], dtype=F64).expand(20, 3)
    )


@pytest.mark.parametrize("name", ["sigmoid", "sigmoid_own", "relu_own", "sine"])
def test_no_point_of_a_grid_is_lower(name):
    form, base = FORMS[name], normal(5, 2, seed=3)
    offset = normal(5, seed=4) if form.own else torch.zeros(5, dtype=F64)
    starts = 12
    found = minimise(
        form.energy,
        base.expand(starts, -1, -1),
        offset.expand(starts, -1),
        orthogonal(starts, 2, 2, seed=5),
        torch.tensor([[0.5, -1.5]], dtype=F64).expand(starts, -1),
        steps=80,
    )
    angle = torch.linspace(0, math.pi / 2, 181, dtype=F64)
    right = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], -1).reshape(-1, 2, 2)
    ratio = torch.linspace(-4, 4, 161, dtype=F64)
    variance = (torch.stack([ratio, -ratio]) - 0.5).exp()
    spread = (base @ right.mT).square() @ variance
    energy = form.energy(offset[:, None].expand(5, 161), spread.reshape(181, 5, 161))
    lowest = energy.sum(1).log().min()
    best = found.loss[found.certain].min()
    assert float(best) <= float(lowest) and float(lowest - best) < 2e-3


def test_a_stationary_point_that_is_no_minimum_is_not_called_one():
    """Columns of equal length, halfway between two orthogonal arrangements."""
    base = torch.diag(torch.tensor([3.0, 1.0], dtype=F64))[None]
    half = torch.tensor([[[1.0, -1.0], [1.0, 1.0]]], dtype=F64) / 2**0.5
    nothing = torch.zeros(1, 2, dtype=F64)
    assert not minimise(FORMS["second_order"].energy, base, nothing, half, nothing, steps=5).certain
    near = half @ torch.linalg.matrix_exp(torch.tensor([[0.0, 1e-3], [-1e-3, 0.0]], dtype=F64))
    assert minimise(FORMS["second_order"].energy, base, nothing, near, nothing, steps=40).certain


def test_the_jacobians_columns_are_the_orthogonal_ones():
    """The worked decoder at its first order: V are the right singular vectors of diag(g') M, not those of M."""
    worked = WORKED["relu"]
    base = torch.tensor(worked.base, dtype=F64)
    jacobian = FORMS["relu_own"].slope(worked.problem.offset[0])[:, None] * base
    right = torch.linalg.svd(jacobian).Vh.mT
    predicted = largest_cosine((base @ right)[None])
    (row,) = [
        row for row in theorem1._worked(theorem1.Settings(worked_starts=6), "cpu") if row["decoder"] == "relu"
    ]
    assert row["cosine"] == pytest.approx(float(predicted), abs=1e-6) == pytest.approx(0.2, abs=1e-4)
    assert row["jacobian_cosine"] < 1e-6
    assert float(largest_cosine(base[None])) == 0, "orthogonal before V is chosen"


def test_cosines_vanish_with_the_square_of_the_size_where_f_is_one_function():
    settings = theorem1.Settings(3, data=(8,), latents=(2,), sizes=(0.001, 0.01), starts=1)
    table = pd.DataFrame(theorem1._optima(settings, 8, 2, "cpu")).set_index(["form", "size"])["cosine"]
    for name in ("quadratic", "sigmoid", "sine"):
        assert table[name, 0.01] / table[name, 0.001] == pytest.approx(100, rel=0.1)
    for name in ("sigmoid_own", "relu_own"):
        assert table[name, 0.01] / table[name, 0.001] == pytest.approx(1, rel=0.05)


def test_a_bounded_loss_gives_its_budget_away():
    """Beyond saturation Σ log L falls by half a nat per nat with two latents."""
    settings = theorem1.Settings(4, data=(6,), latents=(2,), starts=4, moved=(0.0, 100.0, 200.0))
    table = pd.DataFrame(theorem1._shared_budget(settings, "cpu")).set_index(["form", "moved"])["change"]
    assert table["sigmoid", 200.0] - table["sigmoid", 100.0] == pytest.approx(-50, rel=0.01)
    assert table["second_order"].abs().max() < 1e-9


def test_outcomes_follow_the_counts():
    artefact = artefacts()["bhowal2024.theorem1"]
    names = ("single", "cosine_close", "law_close", "jacobian_cosine_close", "jacobian_law_close")
    rows = [
        {"form": name, "size": size, "cases": 10, "found": 9, "bound_off": 0.0, "apart": 0.0}
        | {"cosine": 0.0, "jacobian_cosine": 0.0}
        | dict.fromkeys(names, 9)
        for name in FORMS
        for size in (0.001, 0.1, 1.0)
    ]
    worked = [{"decoder": name, "log_loss": 0.0, "cosine": 0.0, "jacobian_cosine": 0.0} for name in WORKED]
    tables = {
        "optima": pd.DataFrame(rows),
        "budget": pd.DataFrame([{"form": "sigmoid", "moved": 5.0, "change": 0.0, "change_least": 0.0}]),
        "worked": pd.DataFrame(worked).assign(variance_1=1.0, variance_2=1.0),
    }
    found = artefact.judge(tables)
    assert {one.outcome for one in found} == {"holds"}
    assert "no minimum was found in 3 of 30 cases" in found[0].note
    tables["optima"].loc[tables["optima"]["size"] == 1.0, "single"] = 8
    said = {one.quantity: one for one in artefact.judge(tables) if "several losses" in one.quantity}
    assert said and {one.outcome for one in said.values()} == {"false as printed"}
    assert all("from a size of 1 on" in one.note for one in said.values())
