"""On an accelerator: bases, signed permutations and local fits are those of the host."""

import pytest
import torch

from unseam.geometry import jacobian_basis, local_fit, right_basis, signed_permutation
from unseam.geometry._jacobi import _sweep_by_kernel

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")


def graded(batch, latent):
    """Columns at angles to each other, of lengths from 1 to 1e-6."""
    generator = torch.Generator().manual_seed(latent)
    columns = torch.randn(batch, 2 * latent, latent, generator=generator, dtype=torch.float64)
    return columns * torch.logspace(0, -6, latent, dtype=torch.float64)


@pytest.mark.parametrize("batch", [1, 33, 1000])
@pytest.mark.parametrize("latent", [1, 2, 5, 13, 32])
@pytest.mark.parametrize("basis", [lambda x: right_basis(x.mT @ x), jacobian_basis], ids=["gram", "columns"])
def test_basis_is_that_of_the_host(batch, latent, basis):
    columns = graded(batch, latent)
    here, there = basis(columns), basis(columns.cuda())
    torch.testing.assert_close(there.singular_values.cpu(), here.singular_values, rtol=1e-8, atol=0)
    overlap = (there.right_vectors.cpu() * here.right_vectors).sum(-2).abs()
    torch.testing.assert_close(overlap, torch.ones_like(overlap))


def test_all_sweeps_are_one_kernel():
    table = torch.eye(2, dtype=torch.float64, device="cuda").repeat(2, 1)[..., None].contiguous()
    assert _sweep_by_kernel(table, 2, 1e-15, gram=True), "Triton comes with torch for CUDA"


@pytest.mark.parametrize("latent", [2, 6, 7, 10, 12, 13, 20])
def test_signed_permutation_is_that_of_the_host(latent):
    generator = torch.Generator().manual_seed(latent)
    matrix = torch.randn(200, latent, latent, generator=generator, dtype=torch.float64)
    orthogonal = torch.linalg.qr(matrix).Q
    torch.testing.assert_close(signed_permutation(orthogonal.cuda()).cpu(), signed_permutation(orthogonal))


@pytest.mark.parametrize(
    "options",
    [{"solver": "exact"}, {"form": "linear"}, {"form": "nonlinear"}],
    ids=lambda given: str(*given.values()),
)
def test_local_fit_is_that_of_the_host(options):
    generator = torch.Generator().manual_seed(0)
    matrix, mean = (torch.randn(9, size, generator=generator, dtype=torch.float64) for size in (40, 9))
    here, there = (
        local_fit(
            lambda z: (z @ matrix.to(z)).sin(),
            given,
            torch.full_like(given, 0.1),
            generator=torch.Generator().manual_seed(1),
            **options,
        )
        for given in (mean, mean.cuda())
    )
    for one, other in zip(here, there, strict=True):
        assert other.is_cuda
        torch.testing.assert_close(other.cpu(), one)
