"""Posterior precision against the Jacobian."""

import math

import pytest
import torch
from scipy import stats

from unseam.geometry import precision_error, pullback, variance_norm_law

F64 = torch.float64


@pytest.fixture
def metric(generator):
    columns = torch.randn(6, 9, 4, generator=generator, dtype=F64)
    return columns.mT @ columns


@pytest.fixture
def variance(generator):
    return torch.rand(6, 4, generator=generator, dtype=F64) + 0.05


EYE = torch.eye(4, dtype=F64)


@pytest.mark.parametrize("beta", [0.5, 1.0, 4.0])
def test_zero_at_the_optimum(metric, beta):
    error = precision_error(torch.linalg.inv(EYE + metric / beta), metric, beta=beta)
    for part in error:
        torch.testing.assert_close(part, torch.zeros_like(part), rtol=0, atol=1e-12)


@pytest.mark.parametrize("beta", [0.5, 1.0, 4.0])
def test_zero_at_the_optimum_of_a_linear_vae(generator, beta):
    """allen2024 Eq. 4: W = U (S - βσ²)^½, σ_j² = βσ²/S_j, for data with eigenvalues S."""
    noise, spectrum = 0.3, torch.tensor([9.0, 4.0, 2.0], dtype=F64)
    basis = torch.linalg.qr(torch.randn(8, 3, generator=generator, dtype=F64)).Q
    weights = basis * (spectrum - beta * noise).sqrt()
    metric = pullback(lambda z: z @ weights.T, torch.zeros(5, 3, dtype=F64)) / noise
    error = precision_error((beta * noise / spectrum).expand(5, 3), metric, beta=beta)
    assert max(part.abs().max() for part in error) < 1e-12
    rotation = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=F64)).Q
    assert (
        precision_error((beta * noise / spectrum)[None], rotation.T @ metric[:1] @ rotation, beta=beta)[0]
        > 0.1
    )


def test_the_best_diagonal_posterior_misses_only_what_is_off_the_diagonal(metric):
    """allen2024 Theorem 5: σ_j⁻² = P_jj."""
    optimum = EYE + metric
    error = precision_error(1 / optimum.diagonal(dim1=1, dim2=2), metric)
    off = optimum - torch.diag_embed(optimum.diagonal(dim1=1, dim2=2))
    expected = off.flatten(1).norm(dim=1) / optimum.flatten(1).norm(dim=1)
    torch.testing.assert_close(error.off_diagonal, expected)
    torch.testing.assert_close(error.relative, expected)
    torch.testing.assert_close(error.diagonal, torch.zeros_like(expected), rtol=0, atol=1e-14)


def test_parts_make_up_the_whole(metric, variance):
    error = precision_error(variance, metric, beta=2.0)
    optimum = EYE + metric / 2
    share = optimum.diagonal(dim1=1, dim2=2).square().sum(1) / optimum.square().sum((1, 2))
    whole = error.diagonal.square() * share + error.off_diagonal.square()
    torch.testing.assert_close(error.relative.square(), whole)


def test_against_a_loop(metric, variance):
    error = precision_error(variance, metric)
    for b in range(6):
        optimum, found = EYE + metric[b], torch.diag(1 / variance[b])
        torch.testing.assert_close(error.relative[b], (found - optimum).norm() / optimum.norm())
        torch.testing.assert_close(error.diagonal[b], (found - optimum).diag().norm() / optimum.diag().norm())
        torch.testing.assert_close(error.log_ratio[b], (found.diag() / optimum.diag()).log())


def test_order_of_latents_and_rotation(metric, variance, generator):
    order = [2, 0, 3, 1]
    expected = precision_error(variance, metric)
    found = precision_error(variance[:, order], metric[:, order][:, :, order])
    for one, other in zip(found[:3], expected[:3], strict=True):
        torch.testing.assert_close(one, other)
    rotation = torch.linalg.qr(torch.randn(4, 4, generator=generator, dtype=F64)).Q
    turned = precision_error(
        rotation.T @ torch.diag_embed(variance) @ rotation, rotation.T @ metric @ rotation
    )
    torch.testing.assert_close(turned.relative, expected.relative)


def test_too_narrow_is_positive(metric):
    best = 1 / (EYE + metric).diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(
        precision_error(best / 2, metric).log_ratio, torch.full_like(best, math.log(2))
    )


NORMS = torch.tensor([[1.0, 4.0, 16.0], [2.0, 5.0, 1.0]], dtype=F64)


def test_law_holds():
    found = variance_norm_law(0.5 / NORMS, torch.diag_embed(NORMS))
    for slope in (*found.slope, *found.correlation, found.pooled_slope, found.pooled_correlation):
        assert slope.item() == pytest.approx(-1, abs=1e-12)
    assert found.pooled_spread < 1e-12


def test_a_constant_for_each_point_is_law_at_each_but_not_pooled():
    found = variance_norm_law(torch.tensor([[1.0], [0.01]], dtype=F64) / NORMS, torch.diag_embed(NORMS))
    torch.testing.assert_close(found.slope, -torch.ones(2, dtype=F64))
    torch.testing.assert_close(found.spread, torch.zeros(2, dtype=F64), rtol=0, atol=1e-12)
    assert found.pooled_spread.item() == pytest.approx(math.log(100) / 2)
    assert found.pooled_correlation > -0.9


@pytest.mark.parametrize("power", [-2.0, -0.5, 0.7])
def test_another_power_gives_its_slope(power):
    found = variance_norm_law(NORMS**power, torch.diag_embed(NORMS))
    torch.testing.assert_close(found.slope, torch.full((2,), power, dtype=F64))
    assert found.pooled_slope.item() == pytest.approx(power)


def test_law_against_scipy(metric, variance):
    found = variance_norm_law(variance, metric)
    across, along = metric.diagonal(dim1=1, dim2=2).log(), variance.log()
    for b in range(6):
        line = stats.linregress(across[b], along[b])
        assert found.slope[b].item() == pytest.approx(line.slope)
        assert found.correlation[b].item() == pytest.approx(line.rvalue)
    line = stats.linregress(across.flatten(), along.flatten())
    assert found.pooled_slope.item() == pytest.approx(line.slope)
    assert found.pooled_correlation.item() == pytest.approx(line.rvalue)


def test_law_over_active_latents_and_without_dead_columns(metric, variance):
    active = torch.tensor([True, False, True, True])
    expected = variance_norm_law(variance[:, active], metric[:, active][:, :, active])
    dead = metric.clone()
    dead[:, 1] = dead[:, :, 1] = 0
    for found in (variance_norm_law(variance, metric, active=active), variance_norm_law(variance, dead)):
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)


def test_no_line_is_nan(variance):
    equal = variance_norm_law(variance, 3 * EYE.expand(6, 4, 4))
    assert equal.slope.isnan().all()
    assert equal.spread.isfinite().all()
    alone = variance_norm_law(variance[:, :1], torch.full((6, 1, 1), 2.0, dtype=F64))
    assert alone.slope.isnan().all()
    assert alone.spread.isnan().all()
    assert variance_norm_law(variance, 0 * EYE.expand(6, 4, 4)).pooled_slope.isnan()


def test_numpy(metric, variance):
    torch.testing.assert_close(
        precision_error(variance.numpy(), metric.numpy()).relative, precision_error(variance, metric).relative
    )


@pytest.mark.parametrize("measure", [precision_error, variance_norm_law])
@pytest.mark.parametrize(
    ("variance", "metric", "message"),
    [
        (
            torch.ones(2, 3),
            torch.ones(2, 3),
            r"pullback must have shape \(batch, latent, latent\), got shape \(2, 3\)",
        ),
        (torch.ones(2, 3), torch.ones(2, 3, 2), r"pullback must have shape \(batch, latent, latent\), got"),
        (torch.ones(2, 3), torch.ones(2, 3, 3).cfloat(), "pullback must be real, got torch.complex64"),
        (
            torch.ones(2, 3),
            torch.full((2, 3, 3), math.nan),
            "pullback must be finite, got 18 entries that are NaN or infinite",
        ),
        (torch.ones(2, 2), torch.ones(2, 3, 3), r"variance must have shape .* got shape \(2, 2\)"),
        (-torch.ones(2, 3), torch.ones(2, 3, 3), "variance must be positive, got -1"),
    ],
)
def test_bad_input_is_refused(measure, variance, metric, message):
    with pytest.raises(ValueError, match=message):
        measure(variance, metric)


def test_bad_options_are_refused(metric, variance):
    with pytest.raises(ValueError, match="beta must be positive, got 0"):
        precision_error(variance, metric, beta=0)
    with pytest.raises(ValueError, match="active must be a mask or indices, got torch.float32"):
        variance_norm_law(variance, metric, active=torch.ones(4))
