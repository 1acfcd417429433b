"""Noise and minibatches are a function of (seed, step) with the right distributions."""

import pytest
import torch
from scipy import stats

from unseam.training import minibatches, normals, uniforms

SEEDS = torch.tensor([0, 1, 2**40, 2**63 - 1])


@pytest.mark.parametrize("draw", [normals, uniforms])
def test_draws_do_not_depend_on_other_members_or_steps(draw):
    together = draw(SEEDS, torch.arange(7), (5, 3))
    for member in range(len(SEEDS)):
        for step in (0, 4):
            alone = draw(SEEDS[member : member + 1], torch.tensor([step]), (5, 3))
            assert torch.equal(alone[0, 0], together[step, member])


def test_minibatches_do_not_depend_on_other_members_or_steps():
    together = minibatches(SEEDS, torch.arange(7), 8, 100)
    alone = minibatches(SEEDS[2:3], torch.tensor([5]), 8, 100)
    assert torch.equal(alone[0, 0], together[5, 2])


@pytest.mark.parametrize("size", [1, 2, 3, 10, 64, 65, 1000])
def test_an_epoch_holds_every_item_once(size):
    batch = 3 if size % 3 == 0 else 1
    epochs = minibatches(torch.tensor([4, 9]), torch.arange(2 * size // batch), batch, size)
    for member in range(2):
        for epoch in epochs[:, member].flatten().chunk(2):
            assert torch.equal(epoch.sort().values, torch.arange(size))


def test_epochs_and_seeds_have_orders_of_their_own():
    order = minibatches(torch.tensor([4, 9]), torch.arange(2), 50, 50)
    assert not torch.equal(order[0, 0], order[1, 0])
    assert not torch.equal(order[0, 0], order[0, 1])


@pytest.mark.parametrize("size", [3, 10, 100, 1000])
def test_every_position_of_an_order_is_uniform(size):
    draws = 20_000
    first = minibatches(torch.arange(draws), torch.arange(1), min(size, 4), size)[0]
    for position in range(first.shape[1]):
        counts = torch.bincount(first[:, position], minlength=size)
        assert stats.chisquare(counts.numpy()).pvalue > 1e-4


def test_noise_is_standard_normal_and_white():
    noise = normals(torch.arange(50), torch.arange(40), (25, 2)).double()
    assert stats.kstest(noise.flatten().numpy(), "norm").pvalue > 1e-3
    rows = noise.flatten(2).flatten(0, 1)
    correlation = torch.corrcoef(rows.T) - torch.eye(rows.shape[1])
    assert correlation.abs().max() < 5 / len(rows) ** 0.5


def test_odd_sizes_are_drawn():
    assert normals(torch.tensor([0]), torch.tensor([0]), (3, 1)).shape == (1, 1, 3, 1)


def test_neighbouring_seeds_and_steps_are_uncorrelated():
    noise = normals(torch.arange(2), torch.arange(2), (10_000,)).flatten(0, 1)
    assert (torch.corrcoef(noise) - torch.eye(4)).abs().max() < 0.05


def test_empty_set_is_refused():
    with pytest.raises(ValueError, match="size must be at least 1, got 0"):
        minibatches(torch.tensor([0]), torch.tensor([0]), 4, 0)
