"""Unsupervised disentanglement ranking, and the lasso behind it."""

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.linear_model import Lasso

from unseam.metrics import UdrSettings, udr
from unseam.metrics.intervals import groups
from unseam.metrics.udr import _lasso

BATCH = 300
BOTH = pytest.mark.parametrize("similarity", ["lasso", "spearman"])


@pytest.fixture
def codes(generator):
    """Members that share three sources, mixed more and more, and a noise code each."""
    sources = torch.randn(BATCH, 3, generator=generator, dtype=torch.float64)
    noise = torch.randn(4, BATCH, 4, generator=generator, dtype=torch.float64)
    angles = torch.tensor([0.0, 0.1, 0.5, 0.7], dtype=torch.float64)
    mixing = torch.eye(3, 4, dtype=torch.float64) + angles[:, None, None] * torch.ones(3, 4).double()
    return sources @ mixing + 0.2 * noise


@pytest.fixture
def kl():
    table = torch.ones(4, 4)
    table[0, 3] = table[1, 3] = table[2, 0] = 0.001
    return table


def standardised(codes):
    return (codes - codes.mean(0)) / codes.std(0)


def by_hand(codes, kl, settings):
    """Agreement (target, source) and median, member by member."""
    codes = [
        standardised(member) * (own > 0.01) for member, own in zip(codes.numpy(), kl.numpy(), strict=True)
    ]
    live = [own > 0.01 for own in kl.numpy()]
    table = np.zeros((len(codes), len(codes)))
    for source, target in np.ndindex(*table.shape):
        if source == target:
            continue
        x, y = codes[source][:, live[source]], codes[target][:, live[target]]
        if settings.similarity == "lasso":
            relation = np.abs(Lasso(alpha=settings.alpha, tol=1e-14, max_iter=10**6).fit(x, y).coef_.T)
        else:
            relation = np.abs([[stats.spearmanr(a, b)[0] for b in y.T] for a in x.T])
        first, second = (
            np.nan_to_num(relation.max(axis) ** 2 / np.maximum(relation.sum(axis), 1e-300)) for axis in (0, 1)
        )
        if settings.average == "sides":
            table[target, source] = (first.mean() + second.mean()) / 2
        else:
            table[target, source] = (first.sum() + second.sum()) / (len(first) + len(second))
    return table, np.array([np.median(np.delete(row, i)) for i, row in enumerate(table)])


@BOTH
@pytest.mark.parametrize("average", ["sides", "codes"])
def test_by_hand(codes, kl, similarity, average):
    settings = UdrSettings(similarity=similarity, average=average)
    found = udr(codes, kl, preset=settings)
    table, score = by_hand(codes, kl, settings)
    np.testing.assert_allclose(found.agreement.numpy(), table, rtol=0, atol=1e-8)
    np.testing.assert_allclose(found.score.numpy(), score, rtol=0, atol=1e-8)
    assert torch.equal(found.informative, kl > 0.01)
    assert found.settings.points == BATCH


@BOTH
def test_the_error_is_that_of_leaving_out_groups(codes, kl, similarity):
    settings = UdrSettings(similarity=similarity)
    found = udr(codes, kl, preset=settings)
    group = groups(BATCH, torch.Generator().manual_seed(0))
    rest = torch.stack([udr(codes[:, group != left], kl, preset=settings).score for left in range(20)])
    error = ((rest - rest.mean(0)).square().sum(0) * 19 / 20).sqrt()
    torch.testing.assert_close(found.interval.error, error, rtol=1e-6, atol=1e-10)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@BOTH
def test_a_device_gives_the_same(codes, kl, similarity):
    settings = UdrSettings(similarity=similarity)
    found, expected = udr(codes.cuda(), kl, preset=settings), udr(codes, kl, preset=settings)
    torch.testing.assert_close(found.score.cpu(), expected.score, rtol=1e-8, atol=1e-8)


def test_equal_members_agree(generator):
    """Uncorrelated codes: the lasso shrinks a weight of 1 to 1 − α, ranks leave it 1."""
    codes = torch.linalg.qr(
        torch.cat([torch.ones(50, 1), torch.randn(50, 3, generator=generator)], 1).double()
    ).Q[:, 1:]
    members = torch.stack([codes, -codes[:, [1, 2, 0]], 5 * codes])
    found = udr(members, torch.ones(3, 3))
    torch.testing.assert_close(found.score, torch.full((3,), 0.9, dtype=torch.float64))
    torch.testing.assert_close(found.similarity[0, 2], 0.9 * torch.eye(3, dtype=torch.float64))


@BOTH
def test_invariant_to_order_sign_and_scale_of_each_member(codes, kl, similarity, generator):
    moved, moved_kl = codes.clone(), kl.clone()
    for member in range(4):
        order = torch.randperm(4, generator=generator)
        scale = torch.tensor([-1.0, 3.0, 0.01, -20.0], dtype=torch.float64)
        moved[member] = codes[member][:, order] * scale + 1
        moved_kl[member] = kl[member, order]
    settings = UdrSettings(similarity=similarity)
    torch.testing.assert_close(
        udr(moved, moved_kl, preset=settings).score, udr(codes, kl, preset=settings).score
    )


@BOTH
def test_members_without_information_agree_with_none(codes, similarity):
    kl = torch.ones(4, 4)
    kl[1] = 0
    dead = codes.clone()
    dead[2] = 0.1
    found = udr(dead, kl, preset=UdrSettings(similarity=similarity))
    assert found.score[1] == found.score[2] == 0
    assert found.agreement[0, 3] > 0
    assert not found.agreement[[1, 2]].any()


def test_two_members_and_one_code(codes):
    found = udr(codes[:2, :, :1], torch.ones(2, 1))
    rho = np.corrcoef(codes[0, :, 0], codes[1, :, 0])[0, 1]
    torch.testing.assert_close(found.score, torch.full((2,), abs(rho) - 0.1, dtype=torch.float64))


def similar_features(generator, near):
    """Features of which two resemble each other, one of them dead, and targets."""
    x = torch.randn(3, 80, 5, generator=generator, dtype=torch.float64)
    x[:, :, 1] = x[:, :, 0] + near * x[:, :, 1]
    x = x - x.mean(1, keepdim=True)
    x[2, :, 4] = 0
    y = torch.randn(80, 6, generator=generator, dtype=torch.float64) + x[0, :, :1] - x[1, :, 2:3]
    return x, y - y.mean(0)


@pytest.mark.parametrize("near", [0.5, 0.05])
def test_lasso_against_scikit_learn(generator, near):
    x, y = similar_features(generator, near)
    expected = torch.stack(
        [
            torch.as_tensor(Lasso(alpha=0.1, tol=1e-14, max_iter=10**6).fit(member, y).coef_.T)
            for member in x.numpy()
        ]
    )
    gram, cross = x.mT @ x / 80, x.mT @ y / 80
    found = _lasso(gram, cross, alpha=0.1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-7)
    again = _lasso(gram, cross, alpha=0.1, start=expected + 0.3)
    torch.testing.assert_close(again, found, rtol=0, atol=1e-8)


@pytest.mark.parametrize("near", [0.5, 0.05, 0.001])
def test_lasso_is_optimal(generator, near):
    """Weights that are not zero leave a gradient of α against their sign, the others no more than α."""
    x, y = similar_features(generator, near)
    weight = _lasso(x.mT @ x / 80, x.mT @ y / 80, alpha=0.1)
    rest = x.mT @ (y - x @ weight) / 80
    used = weight != 0
    torch.testing.assert_close(rest[used], 0.1 * weight[used].sign(), rtol=0, atol=1e-9)
    assert (rest.abs() <= 0.1 + 1e-9).all()
    assert used.any()
    assert not used[2, 4].any()


def test_lasso_of_equal_features(generator):
    x = torch.randn(1, 60, 2, generator=generator, dtype=torch.float64)[..., [0, 0, 1]]
    y = x[0, :, :1] + x[0, :, 2:]
    found = _lasso(x.mT @ x / 60, x.mT @ y / 60, alpha=0.1)
    single = _lasso(x[..., 1:].mT @ x[..., 1:] / 60, x[..., 1:].mT @ y / 60, alpha=0.1)
    torch.testing.assert_close(found[:, :2].sum(1), single[:, 0], rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda z, kl: UdrSettings(similarity="cca"), "similarity must be 'lasso' or 'spearman', got 'cca'"),
        (lambda z, kl: UdrSettings(average="none"), "average must be 'sides' or 'codes', got 'none'"),
        (lambda z, kl: UdrSettings(alpha=0.0), "alpha must be positive, got 0.0"),
        (lambda z, kl: udr(z[0], kl[0]), "codes must come from two members or more"),
        (
            lambda z, kl: udr(z, kl[:, :2]),
            "kl must hold a divergence for each of 4 members' 4 codes, got",
        ),
        (lambda z, kl: udr(z, kl * torch.nan), "kl must be finite, got"),
    ],
)
def test_bad_input_is_named(codes, kl, call, message):
    with pytest.raises(ValueError, match=message):
        call(codes, kl)
