"""What several tests of geometry share: matrices that are no pullbacks."""

import pytest
import torch

SHAPE = r"pullback must have shape \(..., latent, latent\), got shape"


@pytest.fixture(
    params=[
        (torch.zeros(3), rf"{SHAPE} \(3,\)"),
        (torch.zeros(5, 3, 2), rf"{SHAPE} \(5, 3, 2\)"),
        (torch.zeros(5, 0, 0), rf"{SHAPE} \(5, 0, 0\)"),
        (torch.eye(3, dtype=torch.complex64), "pullback must be real, got torch.complex64"),
    ],
    ids=["vector", "oblong", "empty", "integers"],
)
def no_pullback(request):
    """A tensor that is refused for its shape or type, and what is said of it."""
    return request.param
