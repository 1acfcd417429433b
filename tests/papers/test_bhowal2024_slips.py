"""Slips in the text of bhowal2024: what is printed fails where what holds does not."""

import math

import numpy as np
import pytest
import torch

from unseam import geometry
from unseam.models import Diagonal, Moments
from unseam.papers.bhowal2024.local_decoders import LOCAL

F64 = torch.float64


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def test_proposition_7_needs_an_inverse_root():
    """M(MᵀM)^(−½) has orthonormal columns and none is nearer; M(MᵀM)^½ has neither."""
    matrix = normal(9, 4)
    values, vectors = torch.linalg.eigh(matrix.mT @ matrix)
    nearest, printed = (matrix @ (vectors * values**power) @ vectors.mT for power in (-0.5, 0.5))
    identity = torch.eye(4, dtype=F64)
    torch.testing.assert_close(nearest.mT @ nearest, identity)
    assert float((printed.mT @ printed - identity).norm()) > 1
    for seed in range(1, 20):
        other = torch.linalg.qr(normal(9, 4, seed=seed)).Q
        assert float((matrix - nearest).norm()) < float((matrix - other).norm())


def test_the_kl_of_eqs_4_and_5_is_that_of_eq_15():
    mean, variance = normal(50, 3), normal(50, 3, seed=1).square() + 0.1
    kl = Diagonal(3).kl(Moments(mean, variance.sqrt(), variance.log() / 2))
    holds = (mean.square() + variance - variance.log() - 1).sum(1) / 2
    torch.testing.assert_close(kl, holds)
    eq_4 = (mean.square() + variance + variance.log() + 1).sum(1) / 2
    eq_5 = (mean.square() + variance - variance.log() + 1).sum(1)
    assert float((eq_4 - kl).abs().min()) > 1e-3 and float((eq_5 - kl).abs().min()) > 1e-3
    collapsed = torch.zeros(1, 3, dtype=F64), torch.ones(1, 3, dtype=F64)
    assert float(Diagonal(3).kl(Moments(*collapsed, collapsed[0]))) == 0, "where both printed forms are not"


def test_eq_18_has_half_the_number_of_latents():
    z = normal(200_000, 3)
    assert float(z.square().sum(1).mean() / 2) == pytest.approx(3 / 2, rel=0.02)


def test_the_cross_term_of_eq_21_is_an_inner_product():
    """An unbiased estimate makes the inner product vanish, and not the product of norms that is printed."""
    change, residual = normal(20_000, 5), normal(5, seed=1)
    change = torch.cat([change, -change])
    assert float((change @ residual).mean()) == pytest.approx(0, abs=1e-10)
    assert float(change.norm(dim=1).mean() * residual.norm()) > 1


def test_lemma_4_gives_a_signed_permutation_and_not_the_identity():
    matrix = torch.linalg.qr(normal(6, 3)).Q * torch.tensor([1.0, 3.0, 2.0], dtype=F64)
    right = torch.linalg.svd(matrix, full_matrices=False).Vh.mT
    torch.testing.assert_close(right.abs().round(), right.abs())
    assert float((right.abs() - torch.eye(3, dtype=F64)).norm()) > 1
    assert float(geometry.od_distances(matrix).right) == pytest.approx(0, abs=1e-12)


def test_two_of_the_three_distances_of_the_score_are_one():
    matrix = normal(8, 3)
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    apart = torch.linalg.matrix_norm(left - left @ right)
    torch.testing.assert_close(apart, torch.linalg.matrix_norm(right - torch.eye(3, dtype=F64)))


@pytest.mark.parametrize("large", [0.5, 2.0])
def test_lemma_11_lowers_a_sum_only_from_the_larger_side(large):
    """Printed: aᵢ + aⱼ − aᵢ/(1 + δ) − aⱼ(1 + δ) = (aᵢ + aⱼ)δ/(1 + δ) > 0, whichever is larger."""
    first, second, delta = large, 1.0, 0.1
    lowered = first + second - first / (1 + delta) - second * (1 + delta)
    assert lowered == pytest.approx((first - second * (1 + delta)) * delta / (1 + delta))
    assert (lowered > 0) == (first > second * (1 + delta))
    assert lowered != pytest.approx((first + second) * delta / (1 + delta))


def test_the_second_term_of_lemma_7():
    """For f(x) = x², at 0: Var f = 2σ⁴ = f''²σ⁴/2; printed is f''σ⁴/4, a quarter of it and of the wrong degree in f."""
    for scale in (1.0, 3.0):
        x = scale**0.5 * normal(400_000)
        assert float(x.var()) == pytest.approx(scale, rel=0.02)
        bend = 2.0
        assert float(x.square().var()) == pytest.approx(bend**2 * scale**2 / 2, rel=0.05)
        assert float(x.square().var()) != pytest.approx(bend * scale**2 / 4, rel=0.5)


def test_a_cell_of_table_1_contradicts_the_sentence_it_stands_under():
    worse = [
        (row, column)
        for row, cells in LOCAL.items()
        for column, (linear, bent) in cells.items()
        if bent > linear
    ]
    assert worse == [("MPI3D", "β-VAE")]


def test_the_law_of_a_mean_is_not_the_mean_of_the_law():
    """§3.5: E 1/‖c‖² is not 1/‖c‖² of anything common to all points, unless lengths are equal (Jensen)."""
    lengths = np.array([1.0, 3.0])
    assert (1 / lengths**2).mean() > 1 / (lengths**2).mean() * 1.5
    assert math.isclose((1 / np.array([2.0, 2.0]) ** 2).mean(), 0.25)
