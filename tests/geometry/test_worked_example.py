"""The worked example of rolinek2019 §4, out of the library's own functions, under both readings of Eq. 23."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from unseam.geometry import (
    distance_to_orthogonality,
    hadamard_gap,
    local_basis,
    od_score,
    pullback,
    right_basis,
    stochastic_minimum,
)

F64 = {"dtype": torch.float64}
FIRST = torch.tensor([[4.0, 1.0], [-3.0, 1.0], [5.0, -1.0]], **F64)  # M1, Eq. 24
TURN = torch.tensor([[1.0, -1.0], [1.0, 1.0]], **F64) / math.sqrt(2)  # R by 45°
SECOND = FIRST @ TURN.T  # M2

READINGS = pytest.mark.parametrize(("reading", "exponent"), [("deviation", 1.0), ("variance", 0.5)])


def metric(matrix):
    """The pullback of a linear decoder, by way of the decoder."""
    return pullback(lambda z: z @ matrix.T, torch.zeros(1, 2, **F64))[0]


def rotated_best(matrix):
    """M V: the decoder whose latents are turned onto the principal directions."""
    return matrix @ right_basis(metric(matrix)).right_vectors


def test_the_rotated_decoder_is_the_printed_one():
    root = math.sqrt(2)
    printed = torch.tensor([[1.5 * root, 2.5 * root], [-2 * root, -root], [3 * root, 2 * root]], **F64)
    torch.testing.assert_close(SECOND, printed)


def test_coefficients_are_squared_column_norms():
    torch.testing.assert_close(metric(FIRST).diagonal(), torch.tensor([50.0, 3.0], **F64))
    torch.testing.assert_close(metric(SECOND).diagonal(), torch.tensor([61 / 2, 45 / 2], **F64))


@READINGS
@pytest.mark.parametrize("budget", [0.0, 1.0, 3.0])
@pytest.mark.parametrize(
    ("matrix", "printed", "exact"),
    [
        (FIRST, 24.5, 2 * math.sqrt(50 * 3)),
        (SECOND, 52.4, 2 * math.sqrt(61 * 45 / 4)),
        (rotated_best(FIRST), None, 2 * math.sqrt(134)),
        (rotated_best(SECOND), None, 2 * math.sqrt(134)),
    ],
    ids=["M1", "M2", "M1 at its best", "M2 at its best"],
)
def test_minima(matrix, printed, exact, reading, exponent, budget):
    """Eqs. 25 and 26: e^-C belongs to −Σ log σ_j = C; −Σ log σ_j² = C, as Eq. 23 prints, gives e^(-C/2)."""
    found = stochastic_minimum(metric(matrix), budget, reading=reading).loss.item()
    assert found == pytest.approx(exact * math.exp(-exponent * budget), rel=1e-12)
    if printed is not None:
        assert found * math.exp(exponent * budget) == pytest.approx(printed, abs=0.05)


@READINGS
def test_the_precision_goes_where_it_matters(reading, exponent):
    """σ_x²/σ_y² = 3/50, and the variances keep to the budget."""
    loss, variance = stochastic_minimum(metric(FIRST), 2.0, reading=reading)
    assert (variance[0] / variance[1]).item() == pytest.approx(3 / 50)
    assert -variance.log().sum().item() == pytest.approx(2.0 * 2 * exponent)
    torch.testing.assert_close((variance * torch.tensor([50.0, 3.0], **F64)).sum(), loss)


@READINGS
@pytest.mark.parametrize("latent", [1, 2, 4])
def test_against_a_numeric_minimiser(generator, reading, exponent, latent):
    columns = torch.randn(6, latent, generator=generator, **F64)
    budget = 1.5
    found = stochastic_minimum(columns.T @ columns, budget, reading=reading)
    squares = columns.square().sum(0).numpy()
    total = -budget * (2 * exponent)

    def loss(free):
        logs = np.append(free, total - free.sum())
        return (squares * np.exp(logs)).sum()

    best = minimize(loss, np.zeros(latent - 1), tol=1e-12).fun if latent > 1 else loss(np.zeros(0))
    assert found.loss.item() == pytest.approx(best, rel=1e-8)


def test_against_sampled_deviations(generator):
    """E‖Mε‖² of ε ~ N(0, diag σ²), within four standard errors."""
    loss, variance = stochastic_minimum(metric(SECOND), 1.0)
    noise = torch.randn(200_000, 2, generator=generator, **F64) * variance.sqrt()
    squares = (noise @ SECOND.T).square().sum(1)
    assert squares.mean().item() == pytest.approx(
        loss.item(), abs=4 * squares.std().item() / math.sqrt(200_000)
    )


def test_no_rotation_does_better_than_the_right_basis():
    """Problem 27: of all turns of the latents, the least product of column norms is at V."""
    angles = torch.linspace(0, math.pi, 181, **F64)
    turns = torch.stack([angles.cos(), -angles.sin(), angles.sin(), angles.cos()], -1).view(-1, 2, 2)
    gram = turns @ metric(FIRST) @ turns.mT
    losses = stochastic_minimum(gram, 0.0).loss
    best = 2 * math.sqrt(134)
    assert losses.min().item() >= best
    assert losses.min().item() == pytest.approx(best, rel=1e-3)
    torch.testing.assert_close(losses, best * hadamard_gap(gram).exp())
    torch.testing.assert_close(od_score((FIRST @ turns.mT), form="invariant"), 1 - best / losses)


@pytest.mark.parametrize("matrix", [FIRST, SECOND], ids=["M1", "M2"])
def test_at_the_best_rotation_columns_are_orthogonal(matrix):
    best = rotated_best(matrix)
    torch.testing.assert_close(metric(best).det(), metric(matrix).det())
    assert metric(best)[0, 1].item() == pytest.approx(0, abs=1e-12)
    basis = local_basis(lambda z: z @ best.T, torch.zeros(1, 2, **F64))
    assert distance_to_orthogonality(basis.right_vectors).item() == pytest.approx(0, abs=1e-12)


def test_the_rotation_is_what_the_distance_sees():
    """M1's columns lie near the principal directions; turning the latents by 45° takes them away."""
    before, after = (
        distance_to_orthogonality(right_basis(metric(matrix)).right_vectors).item()
        for matrix in (FIRST, SECOND)
    )
    tilt = math.atan2(2 * 4, 50 - 3) / 2
    assert before == pytest.approx(2 * math.sqrt(2) * math.sin(tilt / 2))
    assert after == pytest.approx(2 * math.sqrt(2) * math.sin((math.pi / 4 - tilt) / 2))


def test_leading_axes_types_and_numpy():
    gram = torch.stack([metric(FIRST), metric(SECOND)])
    found = stochastic_minimum(gram.numpy(), 1.0)
    assert found.variance.shape == (2, 2)
    torch.testing.assert_close(found.loss[1], stochastic_minimum(metric(SECOND), 1.0).loss)
    assert stochastic_minimum(gram.float(), 1.0).loss.dtype == torch.float32


@pytest.mark.parametrize(
    ("gram", "reading", "message"),
    [
        (
            torch.zeros(2, 3),
            "variance",
            r"pullback must have shape \(..., latent, latent\), got shape \(2, 3\)",
        ),
        (
            torch.diag(torch.tensor([1.0, 0.0])),
            "variance",
            "pullback must have columns of positive length only",
        ),
        (torch.eye(2), "both", "reading must be 'deviation' or 'variance', got 'both'"),
    ],
)
def test_bad_input_is_refused(gram, reading, message):
    with pytest.raises(ValueError, match=message):
        stochastic_minimum(gram, 1.0, reading=reading)
