"""bhowal2024: the audit's procedure, Lemma 5 and Table 7, against closed forms and naive computations."""

import numpy as np
import pytest
import torch

from unseam import geometry
from unseam.data import load
from unseam.models import Encoding
from unseam.papers.bhowal2024 import figure5, lemma5
from unseam.papers.bhowal2024.audit import Settings, _matrices
from unseam.papers.bhowal2024.released import (
    SIGNS,
    released_errors,
    released_fit,
    released_score,
    signed_fits,
)

CODE = Encoding(torch.zeros(4, 3), torch.full((4, 3), 0.2))


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def decoder(z):
    return (z @ normal(3, 20).to(z)).tanh()


# Audit


def test_orthogonal_columns_score_above_random_ones_as_released_and_below_by_the_definition():
    table = _matrices(Settings((), draws=20)).groupby("kind")[["released", "defined", "invariant"]].mean()
    assert table.loc["orthogonal", "released"] > table.loc["random", "released"]
    assert table.loc["orthogonal", "defined"] < 1e-12 and table.loc["random", "defined"] == 1
    assert table.loc["orthogonal", "invariant"] < 1e-12 < table.loc["random", "invariant"]


def test_the_released_score_depends_on_the_order_of_columns_and_the_definition_does_not():
    matrix = torch.linalg.qr(normal(40, 5)).Q * torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0], dtype=torch.float64)
    other = matrix[:, [4, 2, 0, 3, 1]]
    assert abs(released_score(matrix) - released_score(other)) > 0.1
    for one, two in zip(geometry.od_distances(matrix), geometry.od_distances(other), strict=True):
        assert float(one) == float(two) == 0


def penalty(matrix):
    gram = matrix.mT @ matrix
    return float(
        (gram - torch.diag_embed(gram.diagonal(dim1=-2, dim2=-1))).square().sum((-2, -1)).sqrt().mean()
    )


@pytest.mark.parametrize("loss", ["mean", "sum"])
def test_one_decoder_gets_more_orthogonal_or_less_with_the_sign(loss):
    found = [penalty(released_fit(decoder, CODE, sign=sign, loss=loss).matrix) for sign in SIGNS]
    assert found == sorted(found), "from +1.0 over none to −1.4"
    rows = signed_fits(decoder, CODE)
    scores = [
        np.mean([row["invariant"] for row in rows if (row["sign"], row["loss"]) == (sign, loss)])
        for sign in (1.0, -1.4)
    ]
    assert scores[0] < scores[1]


def test_a_penalty_of_zero_is_none():
    fit = released_fit(decoder, CODE, sign=0.0)
    again = released_fit(decoder, CODE, sign=1e-12)
    torch.testing.assert_close(fit.matrix, again.matrix, atol=1e-6, rtol=0)


def test_released_steps_are_torchs_sgd():
    fit = released_fit(decoder, Encoding(CODE.mean[:1], CODE.variance[:1]), sign=-0.7, loss="sum")
    full = (2 * torch.rand(1, 20, 4, generator=torch.Generator().manual_seed(1)) - 1) * 3**-0.5
    weights = full[0].clone().requires_grad_()
    search = torch.optim.SGD([weights], lr=0.1, momentum=0.9)
    noise = torch.randn(10, 1, 3, generator=torch.Generator().manual_seed(0))
    for shift in noise[:, 0] * 0.2**0.5:
        search.zero_grad()
        gram = weights[:, :3].mT @ weights[:, :3]
        off = (gram - gram.diagonal().diag()).norm()
        missed = (weights[:, :3] @ shift + weights[:, 3]).tanh() - (
            decoder(shift[None]) - decoder(torch.zeros(1, 3))
        )[0]
        (missed.square().sum() - 0.7 * off).backward()
        search.step()
    torch.testing.assert_close(fit.matrix[0], weights[:, :3].detach(), rtol=1e-4, atol=1e-5)


def test_the_rate_decides_which_form_wins_in_ten_steps():
    found = released_errors(lambda z: 0.1 * decoder(z), CODE)
    assert found["at_nonlinear_fast"] < found["at_linear_slow"]
    assert found["at_linear_fast"] < found["at_nonlinear_slow"]
    assert found["at_linear_slow"] == pytest.approx(1, abs=1e-3)


# Lemma 5


def test_least_linear_loss_is_the_closed_form():
    matrix, budget = normal(6, 9, 3), torch.linspace(-2, 3, 6, dtype=torch.float64)
    found = lemma5._least(matrix, budget, "linear", 400)
    gram = matrix.mT @ matrix
    expected = [geometry.stochastic_minimum(one, float(c)).loss for one, c in zip(gram, budget, strict=True)]
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-6, atol=0)


def test_a_tanh_is_linear_where_it_is_small_and_saturates_where_it_is_not():
    matrix = normal(5, 8, 2)
    small, large = (torch.full((5,), budget, dtype=torch.float64) for budget in (25.0, -12.0))
    linear, bent = (lemma5._least(matrix, small, form, 300) for form in ("linear", "tanh"))
    torch.testing.assert_close(linear, bent, rtol=1e-4, atol=0)
    assert bool((lemma5._least(matrix, large, "tanh", 100) <= 8).all())


def test_the_saving_is_twice_the_gap_and_the_printed_bound_is_zero():
    table = lemma5._cases(
        lemma5.Settings((), matrices=3, data=8, latents=(3,), steps=250), torch.device("cpu")
    )
    assert table["saved_linear"].to_numpy() == pytest.approx(2 * table["gap"].to_numpy(), abs=1e-4)
    assert table["gap"].min() > 0 and table["singular"].abs().max() < 1e-12


# Table 7


def test_errors_of_ranges_are_those_of_rebuilt_pictures():
    world = load("sprites", resolution=16, positions=6, orientations=4, scales=2)
    index = torch.arange(0, len(world), 3)
    centre, values, axes = figure5._principal(world, index)
    x = world.images(index).flatten(1).double()
    table = figure5._errors(values)
    for _, row in table[table["order"] == "variance"].iterrows():
        some = axes[:, int(row["from"]) : int(row["to"])]
        rebuilt = centre + (x - centre) @ some @ some.mT
        assert row["error"] == pytest.approx(float((rebuilt - x).square().sum(1).mean()), abs=1e-8)


def test_printed_numbers_add_up_but_not_in_the_order_of_variance():
    said = figure5.implied()
    assert abs(said["total apart"]) < 0.03 * said["total"]
    assert said["0-1500"] / 1500 < 0.1 * said["1500-2000"] / 500
    for seed in range(20):
        ordered = np.sort(np.random.default_rng(seed).exponential(size=4096))[::-1]
        assert ordered[:1500].sum() / 1500 >= ordered[1500:2000].sum() / 500
