"""What objectives take: any layout that NumPy has, in the precision of the model; and what they refuse by name."""

import numpy as np
import pytest
import torch

from unseam.models import build, initialise
from unseam.objectives import beta_elbo, beta_tcvae, factor_vae, stratified_weights

X, NOISE = torch.linspace(0, 1, 12).view(4, 3), torch.linspace(-1, 1, 8).view(4, 2)


@pytest.fixture
def model():
    made = build((3,), latent=2, likelihood="gaussian")
    initialise(made, generator=torch.Generator().manual_seed(0))
    return made


@pytest.mark.parametrize(
    "layout",
    [
        lambda v: v.numpy(),
        lambda v: v.numpy()[::-1].copy()[::-1],
        lambda v: v.numpy().astype(">f8"),
        lambda v: v.tolist(),
        lambda v: v.double(),
    ],
)
def test_any_layout_gives_the_same_terms(layout, model):
    expected = beta_elbo(model, X, NOISE, beta=2.0)
    found = beta_elbo(model, layout(X), layout(NOISE), beta=np.float64(2.0))
    torch.testing.assert_close(found, expected)
    assert found.loss.dtype == torch.float32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": 3}, "model must be a module, got int"),
        ({"x": X + 1j}, "x must be real"),
        ({"x": None}, "x must"),
        ({"noise": NOISE.to("meta")}, "noise must be a tensor with values"),
        ({"beta": float("nan")}, "beta must be"),
        ({"beta": torch.ones(2)}, r"beta must be a number, got torch.float32 of shape \(2,\)"),
    ],
)
def test_what_is_refused_is_named(change, message, model):
    given = {"model": model, "x": X, "noise": NOISE, "beta": 1.0} | change
    with pytest.raises(ValueError, match=message):
        beta_elbo(**given)


def test_sizes_and_discriminators_are_named_too(model):
    with pytest.raises(ValueError, match="size must be"):
        beta_tcvae(model, X, NOISE, beta=1.0, size=2.5)
    with pytest.raises(ValueError, match="size must be"):
        stratified_weights(2, float("inf"))
    with pytest.raises(ValueError, match="discriminator must be a module, got NoneType"):
        factor_vae(model, None, X, NOISE, NOISE, gamma=1.0)
