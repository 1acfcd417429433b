"""BetaVAE score: a linear classifier on mean differences of pairs."""

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from unseam.metrics._inputs import check_inputs
from unseam.metrics._votes import draw_votes
from unseam.metrics.beta_vae_score import BetaVaeSettings, _differences, beta_vae_score

F64 = {"dtype": torch.float64}
SMALL = BetaVaeSettings(train=400, test=200, batch=16)


@pytest.fixture
def factors():
    return torch.cartesian_prod(torch.arange(3), torch.arange(4), torch.arange(5))


@pytest.fixture
def codes(factors, generator):
    return factors.double() @ torch.randn(3, 4, generator=generator, **F64) + torch.randn(
        60, 4, generator=generator, **F64
    )


@pytest.mark.parametrize("rows", [slice(None), slice(0, 47)], ids=["whole grid", "part of it"])
def test_against_the_definition(codes, factors, rows):
    codes, factors = codes[rows], factors[rows]
    found = beta_vae_score(codes, factors, preset=SMALL, generator=torch.Generator().manual_seed(5))
    source = torch.Generator().manual_seed(5)
    which = torch.randint(3, (600, 1), generator=source)[:, 0].numpy()
    first = torch.randint(len(codes), (600, 16), generator=source).numpy()
    draws = torch.rand(600, 16, generator=source, **F64).numpy()
    z, v = codes.numpy(), factors.numpy()
    features = np.zeros((600, 4))
    for vote in range(600):
        for pair in range(16):
            one = first[vote, pair]
            group = np.flatnonzero(v[:, which[vote]] == v[one, which[vote]])
            other = group[int(draws[vote, pair] * len(group))]
            features[vote] += np.abs(z[one] - z[other]) / 16
    model = LogisticRegression(tol=1e-8, max_iter=10_000).fit(features[:400], which[:400])
    assert found.score.item() == pytest.approx(model.score(features[400:], which[400:]))
    assert found.train_score.item() == pytest.approx(model.score(features[:400], which[:400]))
    expected = np.stack([features[:400][which[:400] == k].mean(0) for k in range(3)], 1)
    np.testing.assert_allclose(found.differences, expected)


@pytest.mark.parametrize("kept", [2, 3])
def test_scikit_learn_s_own_tolerance_moves_few_answers(codes, factors, kept):
    """Documented: two in a thousand where factors are hard to tell apart; here one answer of 600 is more than that."""
    found = beta_vae_score(0.3 * codes, factors[:, :kept], preset=SMALL)
    given = check_inputs(0.3 * codes, factors[:, :kept])
    source = torch.Generator().manual_seed(0)
    votes = draw_votes(given, 600, 16, 16, 20, source)
    features = _differences(given.codes, votes, torch.zeros(60, dtype=torch.int64))[0, :, 0].numpy()
    model = LogisticRegression().fit(features[:400], votes.factor[:400])
    told = model.predict(features) == votes.factor.numpy()
    assert found.score.item() == pytest.approx(told[400:].mean(), abs=1 / 200)
    assert found.train_score.item() == pytest.approx(told[:400].mean(), abs=1 / 400)


def test_differences_without_each_group_by_hand(codes, factors, generator):
    given, group = check_inputs(codes, factors), torch.arange(60) % 20
    votes = draw_votes(given, 30, 16, 16, 20, generator)
    found = _differences(given.codes, votes, group)
    assert found.shape == (1, 30, 21, 4)
    for vote in range(30):
        first, second = votes.first[vote], votes.second[vote]
        apart = (codes[first] - codes[second]).abs()
        torch.testing.assert_close(found[0, vote, 0], apart.mean(0))
        for left in range(20):
            stays = (group[first] != left) & (group[second] != left)
            torch.testing.assert_close(found[0, vote, 1 + left], apart[stays].mean(0))


def test_a_difference_without_any_pair_left_is_that_of_all(codes, factors, generator):
    given = check_inputs(codes, factors)
    votes = draw_votes(given, 5, 4, 4, 20, generator)
    found = _differences(given.codes, votes, torch.zeros(60, dtype=torch.int64))
    assert torch.equal(found[:, :, 1:], found[:, :, :1].expand(-1, -1, 20, -1))


@pytest.mark.parametrize("noise", [1.0, 2.0])
def test_the_error_is_the_spread_over_independent_points(mixed, noise):
    found = [
        beta_vae_score(*mixed(seed, noise), preset="fast", generator=torch.Generator().manual_seed(seed))
        for seed in range(40)
    ]
    score = torch.stack([one.score for one in found])
    error = torch.stack([one.interval.error for one in found]).square().mean().sqrt()
    # 40 samples tell a standard deviation to 11 %: three of those on either side, and what the classifier adds.
    assert 0.65 < error / score.std() < 1.5
    assert error > 1.3 * (score.mean() * (1 - score.mean()) / 1000).sqrt()
    lower, upper = (torch.stack([one.interval[end] for one in found]) for end in (0, 1))
    hit = ((lower <= score.mean()) & (score.mean() <= upper)).sum()
    # Of 40 intervals at 95 %, fewer than 34 have the mean once in three hundred times.
    assert hit >= 34


def test_points_that_do_not_matter_add_no_error(factors):
    """Perfect codes: every difference tells its factor, whichever rows are left out."""
    found = beta_vae_score(factors.double(), factors, preset=SMALL)
    assert found.interval.error == 0


def test_perfect_codes_score_one_and_random_ones_at_chance(factors, generator):
    many = factors.repeat(20, 1)
    assert beta_vae_score(many.double(), many, preset="fast").score == 1
    noise = torch.randn(1200, 3, generator=generator, **F64)
    # Chance is a third; a standard error of 1 000 differences is 0.015.
    assert abs(beta_vae_score(noise, many, preset="fast").score.item() - 1 / 3) < 0.06


def test_differences_of_a_perfect_code_vanish(factors):
    found = beta_vae_score(factors.double(), factors, preset=SMALL)
    assert (found.differences.diagonal() == 0).all()
    assert (found.differences + torch.eye(3, **F64) > 0).all()


def test_order_sign_and_shift_of_codes_do_not_matter(codes, factors):
    moved = codes[:, [2, 0, 3, 1]] * torch.tensor([1.0, -1.0, -1.0, 1.0]) + 7.0
    found, expected = (beta_vae_score(given, factors, preset=SMALL) for given in (moved, codes))
    torch.testing.assert_close(found.score, expected.score)


def test_tiny_codes_score_at_chance(factors):
    many = factors.repeat(20, 1)
    found = beta_vae_score(1e-9 * many.double(), many, preset=SMALL)
    assert abs(found.score.item() - 1 / 3) < 4 * (2 / 9 / 200) ** 0.5


def test_a_member_scores_the_same_alone(codes, factors, generator):
    stack = torch.stack([codes, torch.randn(codes.shape, generator=generator, **F64), 0.01 * codes])
    together = beta_vae_score(stack, factors, preset=SMALL)
    assert together.score.shape == (3,)
    for member in range(3):
        alone = beta_vae_score(stack[member], factors, preset=SMALL)
        assert torch.equal(alone.score, together.score[member])
        torch.testing.assert_close(alone.differences, together.differences[member])
        assert torch.equal(alone.interval.error, together.interval.error[member])


def test_constant_codes_score_the_share_of_the_most_frequent_factor(factors):
    found = beta_vae_score(torch.ones(60, 2, **F64), factors, preset=SMALL)
    which = torch.randint(3, (600, 1), generator=torch.Generator().manual_seed(0))[:, 0]
    most = torch.bincount(which[:400]).argmax()
    torch.testing.assert_close(found.score, (which[400:] == most).double().mean())


def test_constant_factors_are_not_drawn(codes, factors):
    still = torch.cat([torch.full((60, 1), 2), factors], 1)
    found = beta_vae_score(codes, still, preset=SMALL)
    torch.testing.assert_close(found.score, beta_vae_score(codes, factors, preset=SMALL).score)
    assert (found.differences[:, 0] == 0).all()


def test_one_factor_leaves_nothing_to_tell(codes, factors):
    assert beta_vae_score(codes, factors[:, :1], preset=SMALL).score == 1


def test_continuous_factors_are_binned(generator):
    factors = torch.rand(2000, 2, generator=generator, **F64)
    assert beta_vae_score(5 * factors, factors, preset=SMALL).score == 1
    coarse = dataclasses.replace(SMALL, bins=1)
    assert beta_vae_score(5 * factors, factors, preset=coarse).score < 0.8


def test_scores_of_single_precision_are_double(codes, factors):
    assert beta_vae_score(codes.float(), factors, preset=SMALL).score.dtype == torch.float64


@pytest.mark.parametrize(
    "change, message",
    [
        ({"train": 0}, "train must be at least 1, got 0"),
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"bins": 0}, "bins must be at least 1, got 0"),
    ],
)
def test_bad_settings(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **change)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_device_gives_the_same(codes, factors, generator):
    stack = torch.stack([codes, torch.randn(codes.shape, generator=generator, **F64)])
    there, here = (beta_vae_score(given, factors, preset=SMALL) for given in (stack.cuda(), stack))
    assert there.score.is_cuda
    torch.testing.assert_close(there.score.cpu(), here.score)
    torch.testing.assert_close(there.interval.error.cpu(), here.interval.error)
    torch.testing.assert_close(there.differences.cpu(), here.differences)
