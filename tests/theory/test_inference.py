"""Inference errors of samples against torch's divergences and the closed form."""

import math
from itertools import permutations, product

import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

from unseam.theory import inference_error, linear_beta_vae


def case(latent, members=(), points=30, seed=0):
    draw = torch.Generator().manual_seed(seed)
    shape = (*members, points, latent)
    mean = torch.randn(shape, generator=draw, dtype=torch.float64)
    variance = torch.rand(shape, generator=draw, dtype=torch.float64) + 0.1
    target = torch.randn(points, latent, generator=draw, dtype=torch.float64)
    root = torch.randn(latent, latent, generator=draw, dtype=torch.float64)
    return mean, variance, target, root @ root.mT + torch.eye(latent, dtype=torch.float64)


def naive(mean, variance, target, covariance, turn):
    turned = MultivariateNormal(mean @ turn.mT, turn @ torch.diag_embed(variance) @ turn.mT)
    return kl_divergence(turned, MultivariateNormal(target, covariance)).mean()


def turns(latent):
    for order in permutations(range(latent)):
        for signs in product((1.0, -1.0), repeat=latent):
            yield torch.diag(torch.tensor(signs, dtype=torch.float64))[list(order)]


@pytest.mark.parametrize("latent", [1, 2, 3])
def test_raw_and_aligned_are_their_definitions(latent):
    given = case(latent)
    found = inference_error(*given)
    every = torch.stack([naive(*given, turn) for turn in turns(latent)])
    torch.testing.assert_close(found.raw, naive(*given, torch.eye(latent, dtype=torch.float64)))
    torch.testing.assert_close(found.aligned, every.min())


def test_members_are_what_they_are_alone():
    mean, variance, target, covariance = case(2, members=(2, 3))
    found = inference_error(mean, variance, target, covariance)
    assert found.raw.shape == found.aligned.shape == (2, 3)
    alone = inference_error(mean[1, 2], variance[1, 2], target, covariance)
    torch.testing.assert_close(found.aligned[1, 2], alone.aligned)
    torch.testing.assert_close(found.raw[1, 2], alone.raw)


@pytest.mark.parametrize("latent", [4, 8])
def test_a_hidden_signed_permutation_is_found(latent):
    _, _, target, covariance = case(latent, points=400)
    order = torch.randperm(latent, generator=torch.Generator().manual_seed(5))
    turn = torch.diag((-1.0) ** torch.arange(latent, dtype=torch.float64))[order]
    variance = (1 / torch.linalg.inv(covariance).diagonal()).expand_as(target)
    straight = inference_error(target, variance, target, covariance)
    hidden = inference_error(target @ turn.mT, variance @ turn.abs().mT, target, covariance)
    torch.testing.assert_close(hidden.aligned, straight.aligned)
    assert float(hidden.raw) > float(straight.raw) + 1


def test_of_the_exact_optimum_it_is_the_closed_form(generator):
    columns = torch.randn(5, 2, generator=generator, dtype=torch.float64)
    found = linear_beta_vae(columns, 1.3)
    sources = torch.randn(200_000, 2, generator=generator, dtype=torch.float64)
    x = sources @ columns.mT + torch.randn(200_000, 5, generator=generator, dtype=torch.float64)
    precision = columns.mT @ columns + torch.eye(2, dtype=torch.float64)
    target, codes = x @ torch.linalg.solve(precision, columns.mT).mT, x @ found.encoder.mT
    spread, covariance = found.variance.expand_as(codes), torch.linalg.inv(precision)
    got = inference_error(codes, spread, target, covariance)
    parts = [
        inference_error(*(each[i::100] for each in (codes, spread, target)), covariance) for i in range(100)
    ]
    for one, exact in ((0, found.tie), (1, found.tie_aligned)):
        error = float(torch.stack([part[one] for part in parts]).std()) / 10
        assert abs(float(got[one] - exact)) < 4 * error


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({0: torch.zeros(3, 2)}, r"mean and variance must have shape \(..., batch, latent\)"),
        ({1: torch.zeros(30, 2)}, "variance must be positive, got 0"),
        ({3: torch.eye(3)}, r"true_covariance must have shape \(2, 2\), got \(3, 3\)"),
        ({2: torch.full((30, 2), math.nan)}, "true_mean must be finite"),
    ],
)
def test_bad_input(change, message):
    given = list(case(2))
    for place, value in change.items():
        given[place] = value
    with pytest.raises(ValueError, match=message):
        inference_error(*given)
