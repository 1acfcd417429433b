"""What a training gives elsewhere: the numbers of torch 2.13 on one machine, recomputed with whatever torch this is."""

import dataclasses

import pytest

import unseam
from unseam.training import Trial

TRIAL = Trial(
    world="nonlinear",
    world_options={"size": 60},
    likelihood="gaussian",
    latent=2,
    encoder_widths=(8,),
    decoder_widths=(8,),
    batch_size=16,
    steps=30,
    precision="float64",
)
EXPECTED = {
    "beta_elbo": (6.02114856, 0.191251435, 10.3184326),
    "beta_tcvae": (6.03630554, 0.0804341326, 10.3266601),
    "factor_vae": (6.71292356, -18.1022216, 2180.22107),
}
"""Loss, sum and sum of squares of all parameters."""


@pytest.mark.parametrize("objective", EXPECTED)
def test_other_versions_and_processors_give_similar_numbers(objective):
    """In double precision, where rounding does not grow far in 30 steps; draws are the same bits or far off."""
    trained = unseam.train(dataclasses.replace(TRIAL, objective=objective), device="cpu", progress=False)
    flat = trained.stacks[0].flat.detach()
    found = trained.history["loss"].iloc[-1], flat.sum().item(), flat.square().sum().item()
    assert found == pytest.approx(EXPECTED[objective], rel=1e-6)
