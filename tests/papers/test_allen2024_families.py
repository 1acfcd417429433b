"""Theorem 3 of allen2024 for further families: densities against SciPy, coefficients in closed form, and outcomes."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from unseam.papers import Workplace
from unseam.papers.allen2024 import theorem3_families as families
from unseam.papers.artefact import as_stored

CPU = Workplace(torch.device("cpu"))
SMOKE = families.THEOREM3_FAMILIES.presets["smoke"]
BY_NAME = {family.name: family for family in families.FAMILIES}


def judged(family, monkeypatch):
    monkeypatch.setattr(families, "FAMILIES", (family, BY_NAME["Bernoulli"], BY_NAME["Poisson"]))
    found = families.THEOREM3_FAMILIES.judge(as_stored(families.measure(SMOKE, CPU)))
    return [one.outcome for one in found if one.quantity.startswith(family.name + ", β")]


# What SciPy says of each family at index λ, given the decoder's output o.
EXPECTED = {
    "Gaussian": lambda x, o, i: stats.norm(o, math.sqrt(0.5 / i)).logpdf(x),
    "exponential": lambda x, o, i: stats.gamma(i, scale=math.exp(o) / i).logpdf(x),
    "gamma, shape 3": lambda x, o, i: stats.gamma(3 * i, scale=math.exp(o) / (3 * i)).logpdf(x),
    "inverse Gaussian": lambda x, o, i: stats.invgauss(math.exp(o) / (3 * i), scale=3 * i).logpdf(x),
    "Poisson": lambda x, o, i: stats.poisson(i * math.exp(o)).logpmf(i * x),
    "negative binomial, r = 3": lambda x, o, i: stats.nbinom(3 * i, 1 / (1 + math.exp(o))).logpmf(i * x),
}


@pytest.mark.parametrize("index", [1.0, 2.0, 0.5])
@pytest.mark.parametrize("name", EXPECTED)
def test_densities_are_scipys(name, index):
    x = np.array([2.0, 4.0, 6.0]) if BY_NAME[name].support == "counts" else np.array([0.3, 1.0, 2.5])
    for output in (-0.7, 0.4):
        found = BY_NAME[name].log_prob(torch.from_numpy(x), torch.tensor(output).double(), index)
        expected = np.array(
            [EXPECTED[name](value, float(torch.tensor(output).double()), index) for value in x]
        )
        assert found.numpy() == pytest.approx(expected, rel=1e-10)


def test_shares_are_multinomial():
    logits = torch.tensor([0.2, -0.5, 1.0], dtype=torch.float64)
    share = torch.tensor([0.25, 0.25, 0.5], dtype=torch.float64)
    found = BY_NAME["categorical, 3 classes"].log_prob(share, logits, 4.0)
    assert float(found) == pytest.approx(stats.multinomial(4, logits.softmax(0).numpy()).logpmf([1, 1, 2]))


def test_coefficients_are_those_of_the_power_series():
    root = families._coefficients(BY_NAME["Bernoulli"], 0.5, 3)
    assert root.tolist() == pytest.approx([1, 1 / 2, -1 / 8, 1 / 16])  # √(1 + s)
    exponential = families._coefficients(BY_NAME["Poisson"], 0.5, 3)
    assert exponential.tolist() == pytest.approx([1, 1 / 2, 1 / 8, 1 / 48])  # e^(s/2)
    inverse = families._coefficients(BY_NAME["negative binomial, r = 3"], 1.0, 3)
    assert inverse.tolist() == pytest.approx([1, 3, 6, 10])  # (1 − s)^−3


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gamma, shape 3", ["holds", "holds"]),
        ("negative binomial, r = 3", ["holds", "false as printed"]),
        ("categorical, 3 classes", ["holds", "false as printed"]),
    ],
)
def test_outcomes_of_families(name, expected, monkeypatch):
    assert judged(BY_NAME[name], monkeypatch) == expected


def test_a_likelihood_of_another_variance_is_found_out(monkeypatch):
    right = BY_NAME["exponential"]
    wrong = right._replace(
        name="wrong", log_prob=lambda x, output, index: right.log_prob(x, output, index**0.9)
    )
    assert judged(wrong, monkeypatch) == ["false as printed", "false as printed"]


def test_a_likelihood_of_another_mean_is_found_out(monkeypatch):
    right = BY_NAME["Gaussian"]
    bent = right._replace(
        name="bent", log_prob=lambda x, output, index: right.log_prob(x, output * index, 1.0)
    )
    assert judged(bent, monkeypatch) == ["false as printed", "false as printed"]


def test_a_variance_beyond_the_largest_has_no_distribution():
    found = families._exists(BY_NAME["Bernoulli"], torch.tensor([[[0.0, 1.0]]]).double(), 1 / 3)
    assert found["least mass"] == pytest.approx(-1 / 9)  # (1/3)(1/3 − 1)/2
