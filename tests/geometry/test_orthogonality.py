"""Hadamard gap and column cosine of Gram matrices."""

import math

import pytest
import torch

from unseam.geometry import column_cosine, cosine_matrix, hadamard_gap

MEASURES = pytest.mark.parametrize("measure", [hadamard_gap, column_cosine])


@pytest.fixture
def columns(generator):
    return torch.randn(6, 9, 4, generator=generator, dtype=torch.float64)


def gram(columns):
    return columns.mT @ columns


def test_two_columns_at_an_angle():
    angle = torch.linspace(0.1, 3.0, 7, dtype=torch.float64)
    pair = torch.stack(
        [torch.ones_like(angle), torch.zeros_like(angle), 5 * angle.cos(), 5 * angle.sin()], -1
    )
    metric = gram(pair.view(7, 2, 2).mT)
    torch.testing.assert_close(hadamard_gap(metric), -angle.sin().log())
    torch.testing.assert_close(column_cosine(metric), angle.cos().abs())


def test_gap_against_slogdet(columns):
    expected = columns.norm(dim=1).log().sum(1) - torch.linalg.slogdet(gram(columns)).logabsdet / 2
    torch.testing.assert_close(hadamard_gap(gram(columns)), expected, rtol=1e-12, atol=1e-12)


def test_cosine_against_a_loop(columns):
    for point, found in zip(columns, column_cosine(gram(columns)), strict=True):
        pairs = [
            abs(torch.cosine_similarity(point[:, i], point[:, j], dim=0).item())
            for i in range(4)
            for j in range(i)
        ]
        assert found.item() == pytest.approx(sum(pairs) / len(pairs))


def test_gradient_against_finite_differences(columns):
    inputs = columns[:2].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda columns: hadamard_gap(gram(columns)), (inputs,))
    assert torch.autograd.gradcheck(lambda columns: column_cosine(gram(columns)), (inputs,))


@MEASURES
def test_orthogonal_columns_give_zero(columns, measure):
    orthogonal = torch.linalg.qr(columns).Q * torch.tensor([1e-4, 1.0, 3.0, 1e5], dtype=torch.float64)
    torch.testing.assert_close(
        measure(gram(orthogonal)), torch.zeros(6, dtype=torch.float64), rtol=0, atol=1e-12
    )


@MEASURES
def test_invariant_to_order_sign_and_scale(columns, measure):
    scale = torch.tensor([1e-5, -2.0, 3.0, -1e4], dtype=torch.float64)
    moved = (columns * scale)[:, :, [2, 0, 3, 1]]
    torch.testing.assert_close(measure(gram(moved)), measure(gram(columns)), rtol=1e-10, atol=1e-12)


@MEASURES
def test_invariant_to_rotation_of_the_data(columns, measure, generator):
    rotation = torch.linalg.qr(torch.randn(9, 9, generator=generator, dtype=torch.float64)).Q
    torch.testing.assert_close(measure(gram(rotation @ columns)), measure(gram(columns)))


@MEASURES
@pytest.mark.parametrize("length", [0.0, 1e-20])
def test_a_dead_column_adds_nothing(columns, measure, length):
    dying = torch.cat([columns, length * columns[:, :, :1]], dim=2).requires_grad_()
    found = measure(gram(dying))
    torch.testing.assert_close(found, measure(gram(columns)))
    (gradient,) = torch.autograd.grad(found.sum(), [dying])
    assert gradient.isfinite().all()


@MEASURES
def test_no_live_columns_give_zero(measure):
    metric = torch.zeros(2, 3, 3, dtype=torch.float64, requires_grad=True)
    found = measure(metric)
    assert found.tolist() == [0, 0]
    found.sum().backward()
    assert metric.grad.isfinite().all()


@MEASURES
def test_one_column_has_nothing_to_be_orthogonal_to(measure):
    assert measure(torch.tensor([[[7.0]]])).tolist() == [0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dependent_columns_give_a_large_finite_gap(columns, dtype):
    repeated = torch.cat([columns, columns[:, :, :1] + columns[:, :, 1:2]], dim=2).to(dtype).requires_grad_()
    found = hadamard_gap(gram(repeated))
    assert found.dtype == dtype
    assert (found > -math.log(torch.finfo(dtype).eps) / 4).all()
    found.sum().backward()
    assert repeated.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sine_below_rounding_counts_as_the_floor(dtype):
    eps = torch.finfo(dtype).eps
    metric = torch.tensor([[1.0, 1 - eps / 2], [1 - eps / 2, 1.0]], dtype=dtype)
    assert hadamard_gap(metric).item() == pytest.approx(-math.log(2 * eps) / 2)


@MEASURES
def test_nan_is_not_hidden(columns, measure):
    metric = gram(columns)
    metric[2, 1, 0] = metric[2, 0, 1] = math.nan
    with pytest.raises(ValueError, match="pullback must be finite, got 2 entries"):
        measure(metric)
    assert measure(metric.requires_grad_()).isnan().tolist() == [False, False, True, False, False, False]


@MEASURES
def test_leading_axes_and_numpy(columns, measure):
    metric = gram(columns)
    torch.testing.assert_close(measure(metric.view(2, 3, 4, 4)), measure(metric).view(2, 3))
    torch.testing.assert_close(measure(metric.numpy()), measure(metric))


@MEASURES
def test_bad_metrics_are_refused(measure, no_pullback):
    metric, message = no_pullback
    with pytest.raises(ValueError, match=message):
        measure(metric)


def test_cosine_matrix_against_torch_and_the_mean(columns):
    found = cosine_matrix(gram(columns))
    each = torch.nn.functional.cosine_similarity(columns[..., :, None], columns[..., None, :], dim=-3)
    torch.testing.assert_close(found, each.abs())
    latent = found.shape[-1]
    mean = (found.sum((-2, -1)) - latent) / (latent * (latent - 1))
    torch.testing.assert_close(mean, column_cosine(gram(columns)))


def test_cosines_of_a_collapsed_column_are_zero(columns):
    columns[..., 1] = 0
    found = cosine_matrix(gram(columns))
    assert (found[..., 1, :] == 0).all()
    assert (found[..., :, 1] == 0).all()
    assert (found[..., 0, 0] == 1).all()


def test_products_computed_in_float32_may_be_given_in_float64():
    column = torch.randn(1000, 1, generator=torch.Generator().manual_seed(0))
    scaled = column * torch.tensor([1.0, 1.1, 0.7])
    assert float(column_cosine((scaled.mT @ scaled).double())) == pytest.approx(1, abs=1e-6)


def test_products_larger_than_lengths_allow_are_refused():
    with pytest.raises(ValueError, match="pullback must be positive semi-definite, got products larger"):
        column_cosine(torch.tensor([[1.0, 1.01], [1.01, 1.0]]))
