"""Propositions 1 to 4 of rolinek2019: measuring code against closed forms, and tables that must not be reproduced."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import multivariate_normal

from unseam.papers import Workplace
from unseam.papers.rolinek2019 import _axes, _bias, _models, propositions
from unseam.papers.rolinek2019._draws import normal, normal_grid
from unseam.theory import diagonal_hessian_optimal

CPU = Workplace(torch.device("cpu"))
F64 = torch.float64


def verdicts(findings):
    return [finding.verdict for finding in findings]


def failed(findings):
    return [finding.quantity for finding in findings if finding.verdict != "reproduced"]


def test_grid_has_the_moments_of_a_normal():
    place, weight = normal_grid(0.5, like=torch.zeros(1, dtype=F64))
    moments = [float(weight @ place[:, 0] ** power) for power in range(7)]
    assert moments == pytest.approx([1, 0, 1, 0, 3, 0, 15], abs=1e-9)
    assert float(weight @ place.prod(1)) == pytest.approx(0, abs=1e-12)


def test_propositions_hold():
    outcome = propositions.measure(propositions.PROPOSITIONS.presets["smoke"], CPU)
    assert failed(outcome.findings) == []


@pytest.fixture(scope="module")
def axes():
    return _axes.axis_checks(3, 50, torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("kind", "column", "value", "place"),
    [
        (_axes.ORTHOGONAL, "dto", 1e-6, 0),
        (_axes.PERMUTED, "cosine", 1e-6, 1),
        (_axes.TURNED, "dto", 0.0, 2),
        (_axes.REPEATED, "dto", 0.0, 3),
        (_axes.REPEATED, "missed", 1e-3, 3),
    ],
)
def test_proposition_1_can_fail(axes, kind, column, value, place):
    changed = axes.copy()
    changed.loc[changed["kind"] == kind, column] = value
    said = verdicts(propositions._about_axes(changed))
    assert said[place] == "not reproduced"
    assert said.count("reproduced") == 3


def test_axes_of_known_matrices():
    straight = torch.tensor([[[0.0, 3.0], [2.0, 0.0], [0.0, 0.0]]], dtype=F64)
    assert float(_axes.largest_cosine(straight)) == 0
    slanted = torch.tensor([[[1.0, 1.0], [0.0, 1.0]]], dtype=F64)
    assert float(_axes.largest_cosine(slanted)) == pytest.approx(math.sqrt(0.5))
    swap = torch.eye(2, dtype=F64).flip(0)[None]
    torch.testing.assert_close(_axes.right_vectors(straight).abs(), swap)
    # a singular value may be zero, as long as it is the only one
    flat = torch.tensor([[[0.0, 3.0], [0.0, 0.0], [0.0, 4.0]]], dtype=F64)
    torch.testing.assert_close(_axes.right_vectors(flat).abs(), swap)


def test_distance_of_two_columns_is_the_closed_form(generator):
    table = _axes.lengths_and_distance((0.1, 0.001), 15, generator)
    assert table["dto"].to_numpy() == pytest.approx(table["closed form"].to_numpy(), rel=1e-6)
    # equal lengths leave V at 45°, whatever the cosine
    assert table["dto"].iloc[0] == pytest.approx(2 * math.sqrt(2) * math.sin(math.pi / 8), rel=1e-2)


def linear_case(generator, count=4, latent=2):
    weights = normal(count, 5, latent, generator=generator)
    return weights, normal(count, 5, generator=generator), normal(count, latent, generator=generator)


def test_linear_evidence_is_scipys(generator):
    weights, x, _ = linear_case(generator)
    found = _models.linear_evidence(weights, x, 0.3)
    prior = torch.diag(torch.tensor([4.0, 0.5], dtype=F64))
    other = _models.linear_evidence(weights, x, 0.3, prior)
    for place in range(4):
        own = weights[place].numpy()
        for value, middle in ((found, np.eye(2)), (other, prior.numpy())):
            exact = multivariate_normal(np.zeros(5), own @ middle @ own.T + 0.3 * np.eye(5))
            assert float(value[place]) == pytest.approx(exact.logpdf(x[place].numpy()))


def test_linear_elbo_is_below_the_evidence_by_the_divergence_from_the_posterior(generator):
    weights, x, mean = linear_case(generator)
    noise, covariance = 0.3, torch.tensor([[0.5, 0.2], [0.2, 0.3]], dtype=F64).expand(4, 2, 2)
    posterior = torch.linalg.inv(torch.eye(2, dtype=F64) + weights.mT @ weights / noise)
    exact_mean = (posterior @ weights.mT @ x[..., None] / noise)[..., 0]
    normal_of = torch.distributions.MultivariateNormal
    gap = torch.distributions.kl_divergence(normal_of(mean, covariance), normal_of(exact_mean, posterior))
    found = _models.linear_elbo(weights, x, noise, mean, covariance)
    torch.testing.assert_close(found, _models.linear_evidence(weights, x, noise) - gap)


def test_what_a_diagonal_posterior_loses_is_theorem_5_of_allen2024(generator):
    weights, _, _ = linear_case(generator, latent=3)
    bound = diagonal_hessian_optimal(-weights.mT @ weights / 0.3)
    torch.testing.assert_close(_models.best_diagonal_loss(weights, 0.3), bound.bound - bound.value)


@pytest.fixture
def straight(generator):
    """Tanh decoders that are linear to a part in 10⁷, with their weights."""
    model = _models.draw_curved(4, width=6, data=5, noise=0.3, generator=generator)
    small = 1e-4
    model = model._replace(first=small * model.first, offset=0 * model.offset, second=model.second / small)
    return model, model.second @ model.first


def test_quadrature_of_straight_decoders_is_the_closed_form(straight, generator):
    model, weights = straight
    mean, spread = normal(4, 2, generator=generator), torch.tensor([0.5, 0.2], dtype=F64).expand(4, 2)
    exact = _models.linear_evidence(weights, model.x, 0.3)
    torch.testing.assert_close(_models.curved_evidence(model, 0.1), exact, rtol=0, atol=1e-5)
    exact = _models.linear_elbo(weights, model.x, 0.3, mean, spread.square().diag_embed())
    found = _models.curved_elbo(model, mean, spread.diag_embed(), 0.2)
    torch.testing.assert_close(found, exact, rtol=0, atol=1e-5)


@pytest.mark.parametrize("diagonal", [True, False])
def test_best_posterior_of_straight_decoders(straight, diagonal):
    model, weights = straight
    done = _models.best_elbo(model, model.code, diagonal=diagonal, step=0.4, iterations=60)
    lost = _models.best_diagonal_loss(weights, 0.3) if diagonal else 0.0
    exact = _models.linear_evidence(weights, model.x, 0.3) - lost
    torch.testing.assert_close(-done.value, exact, rtol=0, atol=1e-4)


def turn_tables():
    linear = pd.DataFrame(
        {
            "evidence": [1e-13, 0.0],
            "evidence, unequal prior": [0.3, -0.2],
            "elbo": [0.0, -1e-13],
            "diagonal, turned": [0.3, 0.2],
            "diagonal, principal": [0.0, 0.0],
        }
    )
    curved = pd.DataFrame({"evidence": [1e-9, 0.0], "elbo": [0.0, 1e-9]})
    angles = pd.DataFrame(
        {"decoder": [0, 0, 1, 1], "full": [0.1, 0.1, 0.2, 0.2], "diagonal": [0.2, 0.1, 0.4, 0.2]}
    )
    return {"linear": linear, "curved": curved, "angles": angles}


@pytest.mark.parametrize(
    ("table", "column", "values", "place"),
    [
        ("linear", "evidence", [0.0, 1e-6], 0),
        ("curved", "evidence", [0.0, -1e-4], 1),
        ("linear", "elbo", [0.0, 1e-6], 2),
        ("curved", "elbo", [0.0, 1e-4], 3),
        ("linear", "evidence, unequal prior", [0.0, 0.0], 4),
        ("linear", "diagonal, turned", [0.0, 0.0], 5),
        ("linear", "diagonal, principal", [0.4, 0.0], 5),
        ("angles", "diagonal", [0.2, 0.2, 0.4, 0.4], 6),
        ("angles", "full", [0.1, 0.2, 0.2, 0.2], 6),
    ],
)
def test_propositions_2_and_3_can_fail(table, column, values, place):
    tables = turn_tables()
    assert failed(propositions._about_turns(**tables)) == []
    tables[table][column] = values
    said = verdicts(propositions._about_turns(**tables))
    assert said[place] == "not reproduced"
    assert said.count("reproduced") == 6


def test_split_of_a_parabola():
    """Dec(z) = z₁²: E Dec(μ + ε) − Dec(μ) = σ², and E(Dec(μ + ε) − Dec(μ))² = 4μ²σ² + 3σ⁴."""
    mean, spread, x = torch.tensor([[0.7, 0.0]], dtype=F64), torch.tensor([[0.4, 1.0]], dtype=F64), 2.0
    found = _bias.split_of(
        lambda z: z[..., :1].square(), torch.full((1, 1), x, dtype=F64), mean, spread, step=0.5
    ).iloc[0]
    assert found["deterministic"] == pytest.approx((0.49 - x) ** 2)
    assert found["stochastic"] == pytest.approx(4 * 0.49 * 0.16 + 3 * 0.16**2)
    assert found["bias"] == pytest.approx(2 * (0.49 - x) * 0.16)
    assert found["total"] == pytest.approx(found["deterministic"] + found["stochastic"] + found["bias"])


@pytest.fixture
def biases(generator):
    spreads = (1e-3, 0.1)
    return _bias.bias_shares(5, spreads, propositions.MISSES, generator=generator, device=CPU.device)


def test_the_bias_is_of_the_order_of_the_stochastic_loss(biases):
    """As σ falls it does not vanish beside the stochastic part; as x is met better, it does."""
    share = (biases["bias"].abs() / biases["stochastic"]).groupby([biases["miss"], biases["spread"]]).mean()
    assert share[1.0, 1e-3] == pytest.approx(share[1.0, 0.1], rel=0.1)
    assert share[0.1, 1e-3] == pytest.approx(share[1.0, 1e-3] / 10, rel=1e-3)


def test_proposition_4_can_fail(biases, generator):
    splits = _bias.linear_splits(20, generator, CPU.device)
    assert failed(propositions._about_biases(splits, biases)) == []
    worse = splits.assign(stochastic=splits["stochastic"] * 1.001)
    assert verdicts(propositions._about_biases(worse, biases))[0] == "not reproduced"
    unexplained = biases.assign(bias=0.0)
    assert verdicts(propositions._about_biases(splits, unexplained))[1] == "not reproduced"
    unbiased = biases.assign(total=biases["deterministic"] + biases["stochastic"], bias=0.0)
    assert verdicts(propositions._about_biases(splits, unbiased)) == [
        "reproduced",
        "reproduced",
        "not reproduced",
    ]
