"""Small models in double precision, and expectations over the posterior without sampling error."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from unseam.models import MLP, VAE, Diagonal, Full, Gaussian, Point, build, initialise

POSTERIORS = {"diagonal": Diagonal, "full": Full, "point": Point}


@pytest.fixture
def make_model() -> Callable[..., VAE]:
    """A VAE on three data dimensions with tanh networks, its weights a function of ``seed``."""

    def make(*, seed: int = 0, latent: int = 2, **options: object) -> VAE:
        options = {"encoder_widths": (5,), "decoder_widths": (6,), "encoder_activation": "tanh", **options}
        model = build((3,), latent=latent, **{"likelihood": "gaussian", **options}).double()
        initialise(model, generator=torch.Generator().manual_seed(seed))
        return model

    return make


@pytest.fixture
def constant_model() -> Callable[..., VAE]:
    """A VAE whose posterior does not depend on x, with a linear decoder and Gaussian likelihood.

    ``features`` are the encoder's outputs, ``weight`` (data, latent) is the decoder's matrix.
    """

    def make(
        features: list[float],
        weight: list[list[float]],
        *,
        posterior: str = "diagonal",
        variance: float = 1.0,
    ) -> VAE:
        data, latent = len(weight), len(weight[0])
        family = POSTERIORS[posterior](latent)
        model = VAE(
            MLP(data, (), family.width), family, MLP(latent, (), data), Gaussian(variance=variance)
        ).double()
        model.likelihood.reset()
        set_linear(model.encoder, torch.zeros(family.width, data), torch.tensor(features))
        set_linear(model.decoder, torch.tensor(weight), torch.zeros(data))
        return model

    return make


@pytest.fixture
def identity_model() -> Callable[[], VAE]:
    """Two latents that copy two data dimensions: mean x, variance 1, decoder the identity."""

    def make() -> VAE:
        model = VAE(MLP(2, (), 4), Diagonal(2), MLP(2, (), 2), Gaussian()).double()
        set_linear(model.encoder, torch.cat([torch.eye(2), torch.zeros(2, 2)]), torch.zeros(4))
        set_linear(model.decoder, torch.eye(2), torch.zeros(2))
        return model

    return make


@pytest.fixture
def normal(generator: torch.Generator) -> Callable[..., Tensor]:
    """Standard normal numbers in double precision."""
    return lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.fixture
def quadrature() -> Callable[[int, int], tuple[Tensor, Tensor]]:
    """Gauss-Hermite nodes (node, latent) and weights (node,) of the standard normal distribution."""

    def make(nodes: int, latent: int) -> tuple[Tensor, Tensor]:
        points, weights = np.polynomial.hermite_e.hermegauss(nodes)
        grid = np.stack(np.meshgrid(*[points] * latent, indexing="ij"), -1).reshape(-1, latent)
        mass = np.stack(np.meshgrid(*[weights / weights.sum()] * latent, indexing="ij"), -1).prod(-1)
        return torch.tensor(grid), torch.tensor(mass.reshape(-1))

    return make


def set_linear(network: MLP, weight: Tensor, bias: Tensor) -> None:
    with torch.no_grad():
        network.layers[0].weight.copy_(weight)
        network.layers[0].bias.copy_(bias)
