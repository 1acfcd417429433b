"""Active latents, the polarised regime and the error of its KL term."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from unseam.geometry import active_latents, delta_kl, gaussian_kl, polarisation

F64 = torch.float64


@pytest.fixture
def mean(generator):
    return torch.randn(7, 3, generator=generator, dtype=F64)


@pytest.fixture
def variance(generator):
    return torch.rand(7, 3, generator=generator, dtype=F64) + 0.05


@pytest.fixture
def covariance(generator):
    root = torch.randn(7, 3, 3, generator=generator, dtype=F64) / 2
    return root @ root.mT + 0.1 * torch.eye(3, dtype=F64)


def test_kl_against_torch(mean, variance):
    found = active_latents(mean, variance).value
    standard = Normal(torch.zeros(3, dtype=F64), torch.ones(3, dtype=F64))
    torch.testing.assert_close(found, kl_divergence(Normal(mean, variance.sqrt()), standard).mean(0))


def test_variance_criterion_against_numpy(mean, variance):
    found = active_latents(mean, variance, criterion="variance").value
    np.testing.assert_allclose(found, np.var(mean.numpy(), axis=0))


def test_posterior_criterion_is_the_mean_variance(mean, covariance):
    found = active_latents(mean, covariance, criterion="posterior")
    torch.testing.assert_close(found.value, covariance.diagonal(dim1=1, dim2=2).mean(0))
    assert found.threshold == 0.81


@pytest.mark.parametrize(
    ("criterion", "expected"), [("kl", (1,)), ("variance", (1, 2)), ("posterior", (1, 3))]
)
def test_collapsed_latents_are_named(criterion, expected):
    """Latents: informative; collapsed; narrow but constant; wide but moving."""
    mean = torch.tensor([[1.0, 0.0, 0.0, 0.5], [-1.0, 0.0, 0.0, -0.5]], dtype=F64)
    variance = torch.tensor([[0.1, 1.0, 0.2, 0.99]], dtype=F64).expand(2, 4)
    found = active_latents(mean, variance, criterion=criterion)
    assert found.collapsed == expected
    assert (~found.active).nonzero().flatten().tolist() == list(expected)


@pytest.mark.parametrize("criterion", ["kl", "variance", "posterior"])
def test_threshold_is_not_active_itself(mean, variance, criterion):
    value = active_latents(mean, variance, criterion=criterion).value
    assert not active_latents(mean, variance, criterion=criterion, threshold=value[1].item()).active[1]


def test_default_thresholds_agree_in_size():
    """A constant posterior at the default of 'posterior' costs the default of 'kl', to a few per cent."""
    assert (0.81 - math.log(0.81) - 1) / 2 == pytest.approx(0.01, rel=0.05)


@pytest.mark.parametrize("nats", [0.0095, 0.0105])
def test_a_latent_is_active_from_a_hundredth_of_a_nat_on(nats):
    mean = torch.full((3, 1), math.sqrt(2 * nats), dtype=torch.float64)  # KL of N(m, 1) is m²/2
    assert active_latents(mean, torch.ones_like(mean), criterion="kl").active.tolist() == [nats > 0.01]


@pytest.mark.parametrize("measure", [active_latents, polarisation, delta_kl])
def test_diagonal_covariance_counts_as_its_variances(mean, variance, measure):
    pairs = zip(measure(mean, variance), measure(mean, torch.diag_embed(variance)), strict=True)
    for expected, found in pairs:
        if isinstance(expected, torch.Tensor):
            torch.testing.assert_close(found, expected)
        else:
            assert found == expected


def test_order_and_sign_of_latents(mean, variance):
    order = [2, 0, 1]
    expected, found = polarisation(mean, variance), polarisation(-mean[:, order], variance[:, order])
    torch.testing.assert_close(found.kl, expected.kl[order])
    assert torch.equal(found.mixed, expected.mixed[order])
    torch.testing.assert_close(
        delta_kl(-mean[:, order], variance[:, order]).whole, delta_kl(mean, variance).whole
    )


def test_polarisation_partitions_by_the_definition():
    """Active; passive; neither; active at half of the points and passive at the others; moving but wide."""
    mean = torch.zeros(20, 5, dtype=F64)
    mean[::2, 4] = 1.0
    variance = torch.tensor([0.01, 0.95, 0.5, 0.01, 1.0], dtype=F64).repeat(20, 1)
    variance[::2, 3] = 1.0
    found = polarisation(mean, variance)
    assert found.active.tolist() == [True, False, False, False, False]
    assert found.passive.tolist() == [False, True, False, False, False]
    assert found.mixed.tolist() == [False, False, True, True, True]
    assert found.active_share.tolist() == [1, 0, 0, 0.5, 0]
    assert found.passive_share.tolist() == [0, 1, 0, 0.5, 0.5]
    assert not found.polarised
    assert polarisation(mean[:, :2], variance[:, :2]).polarised


def test_polarisation_thresholds_are_arguments():
    mean, variance = torch.zeros(4, 1, dtype=F64), torch.tensor([[0.3], [0.3], [0.3], [0.9]], dtype=F64)
    assert polarisation(mean, variance).mixed.item()
    assert polarisation(mean, variance, small=0.4, share=0.75).active.item()
    assert not polarisation(mean, variance, small=0.4, share=0.76).active.item()


def test_influence_of_what_the_decoder_ignores(mean, variance):
    columns = torch.tensor([3.0, 0.0, 1.5], dtype=F64)
    found = polarisation(mean, variance, pullback=torch.diag_embed(columns.square()).expand(7, 3, 3))
    torch.testing.assert_close(found.influence, torch.tensor([1.0, 0.0, 0.5], dtype=F64))
    assert polarisation(mean, variance).influence is None


def test_delta_kl_closed_form(mean, variance):
    """L - L≈ is half the active variances plus the whole KL of the others."""
    active = torch.tensor([True, False, True])
    terms = (mean.square() + variance - variance.log() - 1) / 2
    missing = variance[:, [0, 2]].sum(1) / 2 + terms[:, 1]
    found = delta_kl(mean, variance, active)
    torch.testing.assert_close(found.pointwise, missing.abs() / terms.sum(1))
    torch.testing.assert_close(found.whole, missing.sum() / terms.sum())


def test_delta_kl_of_a_covariance_against_torch(mean, covariance):
    """Every latent active: what is left out is half the trace."""
    prior = MultivariateNormal(torch.zeros(3, dtype=F64), torch.eye(3, dtype=F64))
    exact = kl_divergence(MultivariateNormal(mean, covariance), prior)
    found = delta_kl(mean, covariance, torch.ones(3, dtype=torch.bool))
    trace = covariance.diagonal(dim1=1, dim2=2).sum(1)
    torch.testing.assert_close(found.pointwise, trace / 2 / exact)


def test_delta_kl_vanishes_in_the_polarised_limit():
    mean = torch.zeros(3, 2, dtype=F64)
    errors = [
        delta_kl(mean, torch.tensor([[size, 1.0]], dtype=F64).expand(3, 2)).whole.item()
        for size in (1e-2, 1e-4, 1e-8)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-8


def test_delta_kl_takes_the_partition_of_least_error(mean, variance):
    found = delta_kl(mean, variance)
    masks = [torch.tensor(mask) for mask in itertools.product([False, True], repeat=3)]
    errors = [delta_kl(mean, variance, mask).whole.item() for mask in masks]
    assert found.whole.item() == min(errors)
    assert found.active.tolist() == masks[errors.index(min(errors))].tolist()


def test_delta_kl_leaves_out_a_latent_that_hardly_lives():
    """A hundredth of a nat makes a latent active by its KL, yet the regime takes it for passive."""
    mean = torch.stack([torch.linspace(-1.7, 1.7, 101), 0.2 * torch.linspace(-1.7, 1.7, 101)], dim=1).double()
    variance = torch.tensor([[0.01, 0.96]], dtype=F64).expand(101, 2)
    assert active_latents(mean, variance).active.tolist() == [True, True]
    assert delta_kl(mean, variance).active.tolist() == [True, False]
    assert delta_kl(mean, variance).whole < 0.02 < 0.2 < delta_kl(mean, variance, [True, True]).whole


def test_delta_kl_without_information_is_zero():
    found = delta_kl(torch.zeros(2, 3, dtype=F64), torch.ones(2, 3, dtype=F64))
    assert found.whole.item() == 0
    assert found.pointwise.tolist() == [0, 0]
    assert not found.active.any()


def test_numpy_and_types(mean, variance):
    torch.testing.assert_close(delta_kl(mean.numpy(), variance.numpy()).whole, delta_kl(mean, variance).whole)
    assert delta_kl(mean.float(), variance.float()).whole.dtype == torch.float32
    assert polarisation(mean, variance).active_share.dtype == F64


INDEFINITE = torch.tensor([[[1.0, 2.0], [2.0, 1.0]]])


@pytest.mark.parametrize("measure", [active_latents, polarisation, delta_kl])
@pytest.mark.parametrize(
    ("mean", "variance", "message"),
    [
        (
            torch.zeros(3),
            torch.ones(3),
            r"mean must have shape \(batch, latent\), got shape \(3,\)",
        ),
        (torch.zeros(0, 3), torch.ones(0, 3), r"mean must have shape \(batch, latent\), got"),
        (
            torch.zeros(2, 3).int(),
            torch.ones(2, 3),
            "variance must have the type and device of mean, torch.float64",
        ),
        (
            torch.full((2, 3), math.nan),
            torch.ones(2, 3),
            "mean must be finite, got 6 entries that are NaN or infinite",
        ),
        (
            torch.zeros(2, 3),
            torch.ones(2, 2),
            r"variance must have shape \(batch, latent\) or .* got shape \(2, 2\)",
        ),
        (
            torch.zeros(2, 3),
            torch.full((2, 3), math.inf),
            "variance must be finite, got 6 entries that are NaN or infinite",
        ),
        (torch.zeros(2, 3), torch.zeros(2, 3), "variance must be positive, got 0: a point has no posterior"),
        (torch.zeros(2, 3), torch.ones(2, 3).double(), "variance must have the type and device of mean"),
        (torch.zeros(1, 2), INDEFINITE, "variance must hold positive definite covariances, got 1 of 1"),
        (
            torch.zeros(1, 2),
            INDEFINITE.tril(),
            "variance must hold symmetric covariances, got one that is not",
        ),
    ],
)
def test_bad_posteriors_are_refused(measure, mean, variance, message):
    with pytest.raises(ValueError, match=message):
        measure(mean, variance)


def test_bad_options_are_refused(mean, variance):
    with pytest.raises(ValueError, match="criterion must be 'kl', 'variance' or 'posterior', got 'size'"):
        active_latents(mean, variance, criterion="size")
    with pytest.raises(
        ValueError, match="mean must hold at least 2 points for the criterion 'variance', got 1"
    ):
        active_latents(mean[:1], variance[:1], criterion="variance")
    with pytest.raises(ValueError, match=r"small must lie in \(0, 0.5\], got 0.6"):
        polarisation(mean, variance, small=0.6)
    with pytest.raises(ValueError, match=r"share must lie in \(0.5, 1\], got 0.5"):
        polarisation(mean, variance, share=0.5)
    with pytest.raises(
        ValueError, match=r"pullback must have shape \(batch, latent, latent\), got shape \(7, 3\)"
    ):
        polarisation(mean, variance, pullback=variance)
    with pytest.raises(
        ValueError, match=r"active must be a mask of 3 booleans, got torch.int64 of shape \(2,\)"
    ):
        delta_kl(mean, variance, torch.tensor([0, 2]))


def test_kl_of_each_latent_against_torch(mean, variance):
    expected = kl_divergence(Normal(mean, variance.sqrt()), Normal(0.0, 1.0))
    torch.testing.assert_close(gaussian_kl(mean, variance), expected)
