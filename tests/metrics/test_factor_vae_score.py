"""FactorVAE score: majority votes of the codes that vary least."""

import dataclasses

import numpy as np
import pytest
import torch

from unseam.metrics.factor_vae_score import FactorVaeSettings, factor_vae_score

F64 = {"dtype": torch.float64}
SMALL = FactorVaeSettings(train=400, test=200, batch=16, points=1000)


@pytest.fixture
def factors():
    return torch.cartesian_prod(torch.arange(3), torch.arange(4), torch.arange(5))


@pytest.fixture
def codes(factors, generator):
    return factors.double() @ torch.randn(3, 4, generator=generator, **F64) + torch.randn(
        60, 4, generator=generator, **F64
    )


def naive(codes, factors, settings, seed):
    """The definition, one vote after the other, with the draws of the generator."""
    source = torch.Generator().manual_seed(seed)
    points = torch.randperm(len(codes), generator=source)[: settings.points]
    count = settings.train + settings.test
    which = torch.randint(factors.shape[1], (count, 1), generator=source)
    rows = torch.randint(len(codes), (count, 1), generator=source)
    draws = torch.rand(count, settings.batch, generator=source, **F64)
    z, v = codes.numpy(), factors.numpy()
    spread = z[points].var(axis=0, ddof=1)
    active = np.flatnonzero(np.sqrt(spread) >= settings.prune)
    votes = []
    for k, row, draw in zip(which[:, 0].tolist(), rows[:, 0].tolist(), draws.numpy(), strict=True):
        group = np.flatnonzero(v[:, k] == v[row, k])
        batch = z[group[(draw * len(group)).astype(int)]]
        votes.append((k, active[np.argmin(batch.var(axis=0, ddof=1)[active] / spread[active])]))
    table = np.zeros((z.shape[1], v.shape[1]), int)
    for k, j in votes[: settings.train]:
        table[j, k] += 1
    right = [table[j].argmax() == k for k, j in votes]
    return table, np.mean(right[settings.train :]), np.mean(right[: settings.train])


@pytest.mark.parametrize("rows", [slice(None), slice(0, 47)], ids=["whole grid", "part of it"])
def test_against_the_definition(codes, factors, rows):
    found = factor_vae_score(
        codes[rows], factors[rows], preset=SMALL, generator=torch.Generator().manual_seed(5)
    )
    table, score, train_score = naive(codes[rows], factors[rows], SMALL, seed=5)
    assert (found.votes.numpy() == table).all()
    assert found.score.item() == pytest.approx(score)
    assert found.train_score.item() == pytest.approx(train_score)


def test_batches_share_the_value_and_are_uniform(factors):
    """A code that names the row: each vote's batch has one value, and each of its rows equally often."""
    from unseam.metrics._inputs import check_inputs
    from unseam.metrics._votes import partners, rows_by_value

    source = torch.Generator().manual_seed(0)
    table = rows_by_value(check_inputs(torch.zeros(60, 1), factors), 20)
    factor = torch.randint(3, (500, 1), generator=source)
    row = torch.randint(60, (500, 1), generator=source)
    index = partners(table, factor, row, torch.rand(500, 64, generator=source, **F64))
    value = factors[index].gather(2, factor[:, None].expand(500, 64, 1))[..., 0]
    assert (value == factors[row[:, 0]].gather(1, factor)).all()
    counts = torch.bincount(index.flatten(), minlength=60).double()
    # Rows are drawn uniformly: a variance within the batch (64 draws of 12 to 20 rows) and between anchors.
    expected = 500 * 64 / 60
    groups = torch.tensor([20, 15, 12])
    error = (500 / 3 * (64 * 64 / groups / 60 + 64 / 60).sum()).sqrt()
    assert (counts - expected).abs().max() < 4 * error


def test_perfect_codes_score_one_and_random_ones_at_chance(factors, generator):
    many = factors.repeat(20, 1)
    assert factor_vae_score(many.double(), many, preset="fast").score == 1
    noise = torch.randn(1200, 3, generator=generator, **F64)
    found = factor_vae_score(noise, many, preset="fast")
    # Chance is a third; the majority of 2 000 votes picks up a few chance dependences between code and factor.
    assert 0.25 < found.score < 0.5
    assert (found.score > found.interval.lower) and (found.score < found.interval.upper)


def test_rotated_codes_score_less(factors):
    angle = torch.tensor(torch.pi / 4, **F64)
    rotation = torch.eye(3, **F64)
    rotation[:2, :2] = torch.tensor([[angle.cos(), -angle.sin()], [angle.sin(), angle.cos()]])
    unit = factors.double() / factors.double().std(0)
    assert factor_vae_score(unit @ rotation, factors, preset=SMALL).score < 0.8
    assert factor_vae_score(unit, factors, preset=SMALL).score == 1


def test_order_sign_shift_and_scale_of_codes_do_not_matter(codes, factors):
    moved = codes[:, [2, 0, 3, 1]] * torch.tensor([1.0, -4.0, -1.0, 2.0]) + 7.0
    found, expected = (factor_vae_score(given, factors, preset=SMALL) for given in (moved, codes))
    torch.testing.assert_close(found.score, expected.score)
    assert torch.equal(found.votes, expected.votes[[2, 0, 3, 1]])


def test_a_member_scores_the_same_alone(codes, factors, generator):
    stack = torch.stack([codes, torch.randn(codes.shape, generator=generator, **F64), 0.01 * codes])
    together = factor_vae_score(stack, factors, preset=SMALL)
    assert together.score.shape == (3,)
    for member in range(3):
        alone = factor_vae_score(stack[member], factors, preset=SMALL)
        assert torch.equal(alone.score, together.score[member])
        assert torch.equal(alone.votes, together.votes[member])
        assert torch.equal(alone.interval.error, together.interval.error[member])


def test_small_codes_have_no_vote(codes, factors):
    dead = torch.cat([codes, 1e-3 * factors[:, :1].double()], 1)
    found = factor_vae_score(dead, factors, preset=SMALL)
    assert found.active.tolist() == [True] * 4 + [False]
    assert found.votes[4].sum() == 0
    torch.testing.assert_close(found.score, factor_vae_score(codes, factors, preset=SMALL).score)
    alive = dataclasses.replace(SMALL, prune=1e-4)
    assert factor_vae_score(dead, factors, preset=alive).votes[4, 0] > 0


@pytest.mark.parametrize("value", [0.0, 0.01])
def test_all_codes_pruned_scores_zero(codes, factors, value):
    found = factor_vae_score(value * codes / codes.std(0), factors, preset=SMALL)
    assert found.score == 0
    assert found.interval.error == 0
    assert not found.active.any()


def test_continuous_factors_are_binned(generator):
    factors = torch.rand(2000, 2, generator=generator, **F64)
    found = factor_vae_score(factors, factors, preset=SMALL)
    assert found.score == 1
    coarse = dataclasses.replace(SMALL, bins=1)
    assert factor_vae_score(factors, factors, preset=coarse).score < 0.8


def test_values_that_occur_once_vote_for_the_first_code(generator):
    codes = torch.randn(50, 3, generator=generator, **F64)
    found = factor_vae_score(codes, torch.arange(50)[:, None], preset=SMALL)
    assert found.votes[0].sum() == 400
    assert found.score == 1  # one factor: nothing to tell apart


def test_constant_factors_are_not_drawn(codes, factors):
    still = torch.cat([torch.full((60, 1), 2), factors], 1)
    found = factor_vae_score(codes, still, preset=SMALL)
    torch.testing.assert_close(found.score, factor_vae_score(codes, factors, preset=SMALL).score)
    assert (found.votes[:, 0] == 0).all()
    assert torch.isfinite(factor_vae_score(codes, still[:, :1], preset=SMALL).score)


def test_values_may_be_any_integers(codes, factors):
    far = factors * 10**6 - 10**9
    found, expected = (factor_vae_score(codes, given, preset=SMALL) for given in (far, factors))
    assert torch.equal(found.votes, expected.votes)
    assert torch.equal(found.score, expected.score)


def test_one_code_tells_the_most_frequent_factor(codes, factors):
    found = factor_vae_score(codes[:, :1], factors, preset=SMALL)
    # Each factor is fixed in a third of the votes; 200 of them are scored.
    assert abs(found.score.item() - 1 / 3) < 4 * (2 / 9 / 200) ** 0.5


def test_settings_say_how_many_points_were_used(codes, factors):
    assert factor_vae_score(codes, factors, preset=SMALL).settings == dataclasses.replace(SMALL, points=60)


def test_scores_of_single_precision_are_double(codes, factors):
    assert factor_vae_score(codes.float(), factors, preset=SMALL).score.dtype == torch.float64


@pytest.mark.parametrize(
    "change, message",
    [
        ({"train": 0}, "train must be at least 1, got 0"),
        ({"prune": -1.0}, "prune must not be negative, got -1.0"),
        ({"batch": 1}, "batch must be at least 2, got 1"),
        ({"bins": 0}, "bins must be at least 1, got 0"),
    ],
)
def test_bad_settings(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **change)


def test_one_point_is_too_few():
    with pytest.raises(ValueError, match="codes must have at least 2 points for a variance, got 1"):
        factor_vae_score(torch.zeros(1, 2), torch.zeros(1, 1))


def test_the_error_is_the_spread_over_independent_points(mixed):
    """Points are few and votes are many, so that the points make most of the spread."""
    found = []
    for seed in range(40):
        codes, factors = mixed(seed)
        source = torch.Generator().manual_seed(seed)
        found.append(factor_vae_score(codes, factors, preset="fast", generator=source))
    score = torch.stack([one.score for one in found])
    error = torch.stack([one.interval.error for one in found]).square().mean().sqrt()
    # 40 samples tell a standard deviation to 11 %: three of those on either side, and what the majority adds.
    assert 0.65 < error / score.std() < 1.5
    of_votes = (score.mean() * (1 - score.mean()) / 1000).sqrt()
    assert error > 1.3 * of_votes


def test_rows_left_out_by_hand(codes, factors):
    """Global variances, and the codes that vary least, from the rows that stay."""
    from unseam.metrics._inputs import check_inputs
    from unseam.metrics.factor_vae_score import _leave_out_votes, _scale, _variance_without

    given = check_inputs(codes, factors)
    source = torch.Generator().manual_seed(3)
    group = torch.arange(60) % 20
    index = torch.randint(60, (50, 9), generator=source)
    points = torch.randperm(60, generator=source)[:40]
    spread = _variance_without(given, points, group)
    active = torch.ones(1, 4, dtype=torch.bool)
    scale = _scale(codes[None, points].var(1), active)
    whole, without = _leave_out_votes(given, index, scale, _scale(spread, active[:, None]), group)
    for left in range(20):
        stay = points[group[points] != left]
        torch.testing.assert_close(spread[0, left], codes[stay].var(0))
        for vote, rows in enumerate(index):
            rows = rows[group[rows] != left]
            ratio = codes[rows].var(0, correction=0) / codes[stay].var(0)
            assert without[0, vote, left] == ratio.argmin()
    expected = codes[index].var(1) / codes[points].var(0)
    assert torch.equal(whole[0], expected.argmin(-1))
