"""Propositions 1 to 4 of rolinek2019: measuring code against closed forms, and tables of which claims must fail."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, ttest_1samp

from unseam.papers import Workplace
from unseam.papers.artefact import as_stored
from unseam.papers.draws import largest_cosine, normal
from unseam.papers.rolinek2019 import propositions
from unseam.theory import diagonal_hessian_optimal

CPU = Workplace(torch.device("cpu"))
F64 = torch.float64


@pytest.fixture(scope="module")
def tables():
    settings = dataclasses.replace(
        propositions.PROPOSITIONS.presets["smoke"], curved=8, shown=8, angles=5, decoders=20
    )
    return as_stored(propositions.measure(settings, CPU))


def judged(tables):
    return propositions.PROPOSITIONS.judge(tables)


def test_grid_has_the_moments_of_a_normal():
    place, weight = propositions.normal_grid(0.5, like=torch.zeros(1, dtype=F64))
    moments = [float(weight @ place[:, 0] ** power) for power in range(7)]
    assert moments == pytest.approx([1, 0, 1, 0, 3, 0, 15], abs=1e-9)
    assert float(weight @ place.prod(1)) == pytest.approx(0, abs=1e-12)


def test_propositions_hold(tables):
    found = judged(tables)
    assert len(found) == 14
    for finding in found:
        assert finding.outcome == ("holds" if finding.lower is None else "agrees"), finding
    assert sum(finding.ours for finding in found) == 5


def test_controls_break_one_condition_alone(tables):
    """Columns stay orthogonal where a singular value is repeated, and a full posterior follows every rotation."""
    largest = tables["cases"].set_index("quantity")["largest"]
    assert largest["error of the SVD or cosine, repeated singular value"] < 1e-9
    assert largest["ELBO between angles, tanh, full posterior"] < propositions.CLEAR


@pytest.mark.parametrize(
    ("quantity", "changes", "place", "outcome"),
    [
        ("DtO, orthogonal columns", {"largest": 1e-6}, 0, "false as printed"),
        ("cosine, |V| a permutation", {"largest": 1e-6}, 1, "false as printed"),
        ("log p(x), linear", {"largest": 1e-6}, 2, "false as printed"),
        ("log p(x), tanh", {"largest": 1e-4}, 3, "false as printed"),
        ("ELBO, linear", {"largest": 1e-6}, 4, "false as printed"),
        ("ELBO, tanh", {"largest": math.nan}, 5, "cannot tell"),
        ("ELBO lost, linear, diagonal posterior", {"mean": 0.0, "std": 1e-4}, 6, "differs"),
        ("ELBO between angles, tanh, diagonal posterior", {"mean": 0.0, "std": 1e-4}, 7, "differs"),
        ("split, linear", {"largest": 1e-3}, 8, "false as printed"),
        ("DtO over cosine, rotated", {"mean": 0.0, "std": 1e-4}, 9, "differs"),
        ("DtO, repeated singular value", {"mean": 0.0, "std": 0.1}, 10, "cannot tell"),
        ("log p(x), linear, unequal prior", {"mean": 0.0, "std": 1e-4}, 11, "differs"),
        ("split over stochastic loss, tanh, miss 0.1", {"mean": 0.0, "std": 1e-4}, 12, "differs"),
        ("split less bias, tanh", {"largest": 1e-3}, 13, "false as printed"),
    ],
)
def test_each_finding_can_fail(tables, quantity, changes, place, outcome):
    changed = tables["cases"].copy()
    changed.loc[changed["quantity"] == quantity, list(changes)] = list(changes.values())
    said = [finding.outcome for finding in judged(tables | {"cases": changed})]
    assert {n: one for n, one in enumerate(said) if one not in ("holds", "agrees")} == {place: outcome}


def test_intervals_over_cases_are_scipys(generator):
    values = normal(50, generator=generator)
    cases = {"cases": propositions.summary({"some": values})}
    (found,) = propositions._positive(cases, {"some": ("", "some")})
    expected = ttest_1samp(values.numpy(), 0).confidence_interval()
    assert found.estimate == pytest.approx((float(values.mean()), *expected))


def test_axes_of_known_matrices():
    straight = torch.tensor([[[0.0, 3.0], [2.0, 0.0], [0.0, 0.0]]], dtype=F64)
    assert float(largest_cosine(straight)) == 0
    slanted = torch.tensor([[[1.0, 1.0], [0.0, 1.0]]], dtype=F64)
    assert float(largest_cosine(slanted)) == pytest.approx(math.sqrt(0.5))
    swap = torch.eye(2, dtype=F64).flip(0)[None]
    torch.testing.assert_close(propositions.right_vectors(straight).abs(), swap)
    # a singular value may be zero, as long as it is the only one
    flat = torch.tensor([[[0.0, 3.0], [0.0, 0.0], [0.0, 4.0]]], dtype=F64)
    torch.testing.assert_close(propositions.right_vectors(flat).abs(), swap)


def test_distance_of_two_columns_is_the_closed_form(generator):
    table = propositions.lengths_and_distance((0.1, 0.001), 15, generator)
    assert table["dto"].to_numpy() == pytest.approx(table["closed form"].to_numpy(), rel=1e-6)
    # equal lengths leave V at 45°, whatever the cosine
    assert table["dto"].iloc[0] == pytest.approx(2 * math.sqrt(2) * math.sin(math.pi / 8), rel=1e-2)


def linear_case(generator, count=4, latent=2):
    weights = normal(count, 5, latent, generator=generator)
    return weights, normal(count, 5, generator=generator), normal(count, latent, generator=generator)


def test_linear_evidence_is_scipys(generator):
    weights, x, _ = linear_case(generator)
    found = propositions.linear_evidence(weights, x, 0.3)
    prior = torch.diag(torch.tensor([4.0, 0.5], dtype=F64))
    other = propositions.linear_evidence(weights, x, 0.3, prior)
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
    found = propositions.linear_elbo(weights, x, noise, mean, covariance)
    torch.testing.assert_close(found, propositions.linear_evidence(weights, x, noise) - gap)


def test_what_a_diagonal_posterior_loses_is_theorem_5_of_allen2024(generator):
    weights, _, _ = linear_case(generator, latent=3)
    bound = diagonal_hessian_optimal(-weights.mT @ weights / 0.3)
    torch.testing.assert_close(propositions.best_diagonal_loss(weights, 0.3), bound.bound - bound.value)


@pytest.fixture
def straight(generator):
    """Tanh decoders that are linear to a part in 10⁷, with their weights."""
    model = propositions.draw_curved(4, width=6, data=5, noise=0.3, generator=generator)
    small = 1e-4
    model = model._replace(first=small * model.first, offset=0 * model.offset, second=model.second / small)
    return model, model.second @ model.first


def test_quadrature_of_straight_decoders_is_the_closed_form(straight, generator):
    model, weights = straight
    mean, spread = normal(4, 2, generator=generator), torch.tensor([0.5, 0.2], dtype=F64).expand(4, 2)
    exact = propositions.linear_evidence(weights, model.x, 0.3)
    torch.testing.assert_close(propositions.curved_evidence(model, 0.1), exact, rtol=0, atol=1e-5)
    exact = propositions.linear_elbo(weights, model.x, 0.3, mean, spread.square().diag_embed())
    found = propositions.curved_elbo(model, mean, spread.diag_embed(), 0.2)
    torch.testing.assert_close(found, exact, rtol=0, atol=1e-5)


@pytest.mark.parametrize("diagonal", [True, False])
def test_best_posterior_of_straight_decoders(straight, diagonal):
    model, weights = straight
    done = propositions.best_elbo(model, model.code, diagonal=diagonal, step=0.4, iterations=60)
    lost = propositions.best_diagonal_loss(weights, 0.3) if diagonal else 0.0
    exact = propositions.linear_evidence(weights, model.x, 0.3) - lost
    torch.testing.assert_close(-done.value, exact, rtol=0, atol=1e-4)


def test_split_of_a_parabola():
    """Dec(z) = z₁²: E Dec(μ + ε) − Dec(μ) = σ², and E(Dec(μ + ε) − Dec(μ))² = 4μ²σ² + 3σ⁴."""
    mean, spread, x = torch.tensor([[0.7, 0.0]], dtype=F64), torch.tensor([[0.4, 1.0]], dtype=F64), 2.0
    found = propositions.split_of(
        lambda z: z[..., :1].square(), torch.full((1, 1), x, dtype=F64), mean, spread, step=0.5
    )
    assert float(found.deterministic) == pytest.approx((0.49 - x) ** 2)
    assert float(found.stochastic) == pytest.approx(4 * 0.49 * 0.16 + 3 * 0.16**2)
    assert float(found.bias) == pytest.approx(2 * (0.49 - x) * 0.16)
    assert float(found.rest) == pytest.approx(float(found.bias))


def test_the_bias_is_of_the_order_of_the_stochastic_loss(generator):
    """As σ falls it does not vanish beside the stochastic part; as x is met better, it does."""
    splits = propositions.curved_splits(5, (1e-3, 0.1), generator=generator, device=CPU.device)
    share = {key: float((split.bias.abs() / split.stochastic).mean()) for key, split in splits.items()}
    assert share[1.0, 1e-3] == pytest.approx(share[1.0, 0.1], rel=0.1)
    assert share[0.1, 1e-3] == pytest.approx(share[1.0, 1e-3] / 10, rel=1e-3)


def test_what_a_split_misses_is_seen(generator):
    linear = propositions.linear_splits(20, generator, CPU.device)
    curved = propositions.curved_splits(5, (1e-3, 0.1), generator=generator, device=CPU.device)
    found = propositions.split_checks(linear, curved)
    assert found["split, linear"].max() < 1e-9 and found["split less bias, tanh"].max() < 1e-9
    worse = propositions.split_checks(
        linear._replace(stochastic=1.001 * linear.stochastic),
        {key: split._replace(bias=0 * split.bias) for key, split in curved.items()},
    )
    assert worse["split, linear"].max() > 1e-6 and worse["split less bias, tanh"].max() > 1e-6
    unbiased = {
        key: split._replace(total=split.deterministic + split.stochastic) for key, split in curved.items()
    }
    missed = propositions.split_checks(linear, unbiased)["split over stochastic loss, tanh, miss 0.1"]
    assert missed.median() < 1e-6 < found["split over stochastic loss, tanh, miss 0.1"].median()
