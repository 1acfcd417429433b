"""bhowal2024, Theorem 2: distances and overlaps of neighbours' posteriors against closed forms and samples."""

import pytest
import torch

from unseam.models import Encoding
from unseam.papers.bhowal2024._measures import closeness, nearest


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_collapsed_model_has_the_largest_printed_distance():
    """At KL 0 samples are N(0, I): E‖z − z'‖² is twice the number of latents, however close the means."""
    x = normal(40, 5)
    found = nearest(x)
    collapsed = closeness(Encoding(torch.zeros(40, 3), torch.ones(40, 3)), found)
    assert collapsed["near"] == pytest.approx(6.0) and collapsed["near_means"] == 0
    informed = closeness(Encoding(x[:, :3], torch.full((40, 3), 1e-4)), found)
    assert informed["near"] < collapsed["near"] and informed["overlap"] < collapsed["overlap"]


def test_nobody_is_their_own_neighbour():
    """Distances are taken in parts of 512 items and overlaps in parts of 64; copies of an item are its neighbours."""
    x = normal(300, 3).repeat(2, 1)
    place = torch.arange(600)
    found = nearest(x, count=1)
    assert found[:, 0].tolist() == ((place + 300) % 600).tolist()
    assert closeness(Encoding(x, torch.full_like(x, 1e-3)), found)["shared"] == 1


def test_printed_distance_is_the_mean_over_samples():
    mean, variance = normal(30, 2), normal(30, 2, seed=1).square()
    found = nearest(normal(30, 4, seed=2))
    z, other = (mean + variance.sqrt() * normal(20_000, 30, 2, seed=seed) for seed in (3, 4))
    sampled = (z[:, :, None] - other[:, found]).square().sum(-1).mean()
    assert closeness(Encoding(mean, variance), found)["near"] == pytest.approx(float(sampled), rel=0.01)


def test_overlap_is_the_integral_of_the_root_of_both_densities():
    code = Encoding(torch.tensor([[0.3], [-0.5]]), torch.tensor([[0.5], [2.0]]))
    z = torch.linspace(-30, 30, 200_001, dtype=torch.float64)
    density = [
        torch.distributions.Normal(m.double(), v.double().sqrt()).log_prob(z)
        for m, v in zip(*code, strict=True)
    ]
    integral = torch.trapezoid(((density[0] + density[1]) / 2).exp(), z)
    found = closeness(code, nearest(torch.tensor([[0.0], [1.0]]), count=1))
    assert found["overlap"] == pytest.approx(float(integral), abs=1e-6)


def test_neighbours_are_shared_by_codes_that_are_the_data_and_not_by_noise():
    x = normal(60, 2)
    found = nearest(x)
    assert closeness(Encoding(x, torch.full_like(x, 1e-2)), found)["shared"] == 1
    noise = closeness(Encoding(normal(60, 2, seed=1), torch.ones(60, 2)), found)
    assert noise["shared"] == pytest.approx(noise["shared_chance"], abs=0.1)
