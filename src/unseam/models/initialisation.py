"""Parameters filled from an explicit generator, in a fixed order."""

from __future__ import annotations

import math
from typing import TypeVar

import torch
from torch import Tensor, nn

from unseam.models.likelihoods import AbstractLikelihood
from unseam.models.normalisation import BatchNorm

__all__ = ["SCHEMES", "blank", "initialise"]

SCHEMES = ("torch", "glorot")

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_NORMS = (BatchNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_Module = TypeVar("_Module", bound=nn.Module)


@torch.no_grad()
def initialise(module: nn.Module, *, generator: torch.Generator, scheme: str = "torch") -> None:
    r"""Fill every parameter and buffer of ``module`` in place, layer by layer in the order of registration.

    With ``torch``, weights and biases are uniform in :math:`\pm 1/\sqrt{\text{fan in}}`, the distribution of
    torch's own defaults for linear and convolutional layers. With ``glorot``, weights are uniform in
    :math:`\pm\sqrt{6/(\text{fan in}+\text{fan out})}` and biases zero (Glorot and Bengio 2010, Eq. 16), the
    defaults of TensorFlow, in which sikka2019 and the 12 600-model study were written. Normalisation starts at
    scale 1, shift 0 and fresh statistics, a likelihood at the value that it was made with.

    Numbers are drawn in double precision on the generator's device and then cast, so a model gets the same
    weights in every precision and on every device. The global generator is never used.

    Args:
        module: a network or a whole VAE; on the meta device call ``to_empty`` first.
        generator: source of all randomness.
        scheme: ``"torch"`` or ``"glorot"``.

    >>> layer = blank(nn.Linear, 4, 2)
    >>> initialise(layer, generator=torch.Generator().manual_seed(0))
    >>> bool(layer.weight.abs().max() <= 0.5)
    True
    """
    if scheme not in SCHEMES:
        raise ValueError(f"scheme must be one of {', '.join(SCHEMES)}, got {scheme!r}")
    for name, layer in module.named_modules():
        if any(tensor.is_meta for tensor in _own(layer)):
            raise ValueError(
                f"module must hold memory, got {name or 'it'} on the meta device: call to_empty first"
            )
        if isinstance(layer, (nn.Linear, *_CONVOLUTIONS)):
            _fill(layer, generator, scheme)
        elif isinstance(layer, (*_NORMS, nn.LayerNorm, nn.GroupNorm)):
            layer.reset_parameters()
        elif isinstance(layer, AbstractLikelihood):
            layer.reset()
        elif _own(layer):
            raise ValueError(
                f"module must be made of linear, convolution, normalisation and likelihood parts, "
                f"got values in {name or 'it'} of type {type(layer).__name__}"
            )


def blank(layer: type[_Module], *args: object, **options: object) -> _Module:
    """Construct a layer whose parameters are NaN until they are initialised or loaded.

    Torch's constructors draw from the global generator; this one draws nothing. It obeys the current default
    device, so under ``torch.device("meta")`` the layer has no memory.

    >>> bool(blank(nn.Linear, 3, 2).weight.isnan().all())
    True
    """
    module: _Module = layer(*args, device="meta", **options)
    device = torch.empty(0).device
    # not to_empty, for which torch would load a library of symbolic mathematics
    module._apply(lambda value: torch.empty(value.shape, dtype=value.dtype, device=device))
    for parameter in module.parameters():
        nn.init.constant_(parameter, math.nan)
    if isinstance(module, _NORMS):
        module.reset_running_stats()
    return module


def _own(layer: nn.Module) -> list[Tensor]:
    return [*layer.parameters(recurse=False), *layer.buffers(recurse=False)]


def _fill(layer: nn.Module, generator: torch.Generator, scheme: str) -> None:
    weight, bias = layer.get_parameter("weight"), layer.bias
    # torch counts dim 1 as the fan-in for transposed convolutions too, although they receive along dim 0
    field = math.prod(weight.shape[2:])
    fan_in, fan_out = weight.shape[1] * field, weight.shape[0] * field
    if scheme == "torch":
        bound = 1 / math.sqrt(fan_in)
        _uniform(weight, bound, generator)
        if isinstance(bias, Tensor):
            _uniform(bias, bound, generator)
    else:
        _uniform(weight, math.sqrt(6 / (fan_in + fan_out)), generator)
        if isinstance(bias, Tensor):
            bias.zero_()


def _uniform(target: Tensor, bound: float, generator: torch.Generator) -> None:
    draw = torch.rand(target.shape, generator=generator, device=generator.device, dtype=torch.float64)
    target.copy_(draw.mul_(2).sub_(1).mul_(bound))
