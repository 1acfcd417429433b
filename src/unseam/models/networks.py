"""Fully connected networks between data shapes and vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

from torch import Tensor, nn

from unseam import choices
from unseam.models.initialisation import blank

__all__ = ["ACTIVATIONS", "MLP", "activation", "mlp"]

FULLY_CONNECTED = choices.Architecture(
    "mlp",
    "fully connected",
    "unseam.models.networks:mlp",
    options=(
        choices.Option("encoder_widths", "hidden widths of the encoder; none: a linear map", member=False),
        choices.Option("decoder_widths", "hidden widths of the decoder; none: a linear map", member=False),
        choices.Option("encoder_activation", "nonlinearity of the encoder", member=False),
        choices.Option("decoder_activation", "nonlinearity of the decoder", member=False),
    ),
)

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "leaky_relu": partial(nn.LeakyReLU, 0.2),
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "softplus": nn.Softplus,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}


class MLP(nn.Module):
    r"""Affine layers with a nonlinearity between them, from one shape to another.

    :math:`x \mapsto W_L\,\phi(\dots\phi(W_1 x + b_1)\dots) + b_L`, with :math:`\phi` after hidden layers
    only; ``widths=()`` is one affine map. Parameters are NaN until ``initialise`` or ``load_state_dict`` fills
    them.

    Args:
        inputs: shape of one input; flattened.
        widths: sizes of the hidden layers.
        outputs: shape of one output.
        activation: name of the nonlinearity, see ``activation``.

    >>> import torch
    >>> from unseam.models import initialise
    >>> network = MLP((1, 8, 8), (16,), 4, activation="tanh")
    >>> initialise(network, generator=torch.Generator().manual_seed(0))
    >>> network(torch.zeros(5, 1, 8, 8)).shape
    torch.Size([5, 4])
    """

    def __init__(
        self,
        inputs: int | Sequence[int],
        widths: Sequence[int],
        outputs: int | Sequence[int],
        *,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        self.inputs = _shape("inputs", inputs)
        self.outputs = _shape("outputs", outputs)
        sizes = [math.prod(self.inputs), *_widths(widths), math.prod(self.outputs)]
        layers: list[nn.Module] = []
        for fan_in, fan_out in pairwise(sizes):
            layers += [blank(nn.Linear, fan_in, fan_out), _activation(activation)]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor) -> Tensor:
        """Map ``x`` (..., *inputs) to (..., *outputs)."""
        if tuple(x.shape[-len(self.inputs) :]) != self.inputs:
            raise ValueError(f"x must have shape (batch, {_listed(self.inputs)}), got {tuple(x.shape)}")
        y: Tensor = self.layers(x.flatten(-len(self.inputs)))
        return y if len(self.outputs) == 1 else y.unflatten(-1, self.outputs)


def mlp(
    shape: Sequence[int],
    features: int,
    latent: int,
    output: Sequence[int],
    *,
    encoder_widths: Sequence[int] = (),
    decoder_widths: Sequence[int] = (),
    encoder_activation: str = "relu",
    decoder_activation: str = "tanh",
) -> tuple[MLP, MLP]:
    """Fully connected encoder and decoder; affine maps by default.

    >>> encoder, decoder = mlp((1, 8, 8), 4, 2, (1, 8, 8), encoder_widths=(16,))
    >>> len(encoder.layers), len(decoder.layers)
    (3, 1)
    """
    encoder = MLP(shape, encoder_widths, features, activation=encoder_activation)
    return encoder, MLP(latent, decoder_widths, output, activation=decoder_activation)


def activation(name: str) -> nn.Module:
    """A new layer of the nonlinearity called ``name``.

    Known are relu, leaky_relu (slope 0.2), tanh, sigmoid, softplus, elu, gelu and silu.

    >>> activation("tanh")
    Tanh()
    """
    if name not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {name!r}")
    return ACTIVATIONS[name]()


_activation = activation


def _shape(argument: str, value: int | Sequence[int]) -> tuple[int, ...]:
    shape = (value,) if isinstance(value, int) else tuple(int(size) for size in value)
    if not shape or min(shape) < 1:
        raise ValueError(f"{argument} must be a positive size or a shape of positive sizes, got {value!r}")
    return shape


def _widths(widths: Sequence[int]) -> list[int]:
    if isinstance(widths, int) or any(int(width) < 1 for width in widths):
        raise ValueError(f"widths must be a sequence of positive sizes, got {widths!r}")
    return [int(width) for width in widths]


def _listed(shape: Sequence[int]) -> str:
    return ", ".join(map(str, shape))
