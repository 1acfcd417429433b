"""A decoder as a list of layers that a browser can run (``decoder.js``): their kinds, sizes and weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from unseam.models import MLP, Bernoulli, Binomial, ContinuousBernoulli, Gaussian
from unseam.models.normalisation import BatchNorm
from unseam.subject import Subject

__all__ = ["Layers", "layers_of"]

_ACTIVATIONS: dict[type[nn.Module], Callable[[Any], dict[str, Any]]] = {
    nn.ReLU: lambda layer: {"op": "leaky_relu", "slope": 0.0},
    nn.LeakyReLU: lambda layer: {"op": "leaky_relu", "slope": layer.negative_slope},
    nn.Tanh: lambda layer: {"op": "tanh"},
    nn.Sigmoid: lambda layer: {"op": "sigmoid"},
    nn.ELU: lambda layer: {"op": "elu", "alpha": layer.alpha},
    nn.SiLU: lambda layer: {"op": "silu"},
}


class Layers(NamedTuple):
    """What a browser needs of one decoder."""

    layers: list[dict[str, Any]]
    """Kinds and sizes, in order, and where in ``weights`` each finds its own: pairs of start and length."""
    likelihood: dict[str, Any]
    """What the outputs mean."""
    weights: NDArray[np.float32]


def layers_of(subject: Subject) -> Layers:
    """The layers of a subject's decoder, or an error that names what a browser could not run.

    >>> found = layers_of(Subject("mine", nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3)), 2))
    >>> [layer["op"] for layer in found.layers], len(found.weights)
    (['linear', 'tanh', 'linear'], 51)
    """
    if not isinstance(subject.decoder, nn.Module):
        raise ValueError(
            f"decoder must be an nn.Module whose layers a page can hold, got {type(subject.decoder).__name__}; "
            "serve it live by unseam.explore.serve"
        )
    writer = _Writer(subject.latent)
    writer.add(subject.decoder)
    writer.flatten()
    return Layers(
        writer.layers, _likelihood(subject), np.concatenate([*writer.parts, np.zeros(0, np.float32)])
    )


class _Writer:
    """Layers one after another, with the shape of what passes between them: (size,) or (height, width, channel)."""

    def __init__(self, latent: int) -> None:
        self.layers: list[dict[str, Any]] = []
        self.parts: list[NDArray[np.float32]] = []
        self.shape: tuple[int, ...] = (latent,)
        self.stored = 0

    def add(self, layer: nn.Module) -> None:
        """Append one module, with all it contains."""
        kind = type(layer)
        if kind is nn.Sequential:
            for part in layer.children():
                self.add(part)
        elif isinstance(layer, MLP):
            self.add(layer.layers)
        elif kind in _ACTIVATIONS:
            self.layers.append(_ACTIVATIONS[kind](layer))
        elif isinstance(layer, nn.Linear) and len(self.shape) == 1:
            self._linear(layer)
        elif kind in (nn.ConvTranspose2d, nn.Conv2d) and len(self.shape) == 3:
            self._convolution(layer)
        elif isinstance(layer, BatchNorm | nn.BatchNorm1d | nn.BatchNorm2d) and not layer.training:
            self._normalisation(layer)
        elif isinstance(layer, nn.Unflatten) and layer.dim in (1, -1) and len(self.shape) == 1:
            self._unflatten(tuple(int(size) for size in layer.unflattened_size))
        elif isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) == (1, -1):
            self.flatten()
        elif isinstance(layer, nn.GELU) and layer.approximate == "none":
            self.layers.append({"op": "gelu"})
        elif isinstance(layer, nn.Softplus) and layer.beta == 1:
            self.layers.append({"op": "softplus"})
        elif not isinstance(layer, nn.Identity | nn.Dropout):
            raise ValueError(
                f"decoder must consist of affine layers, convolutions, batch normalisation and elementwise "
                f"nonlinearities for a page to hold it, got {layer}; serve it live by unseam.explore.serve"
            )

    def flatten(self) -> None:
        """Append what turns a picture into a vector, channels first."""
        if len(self.shape) == 3:
            height, width, channels = self.shape
            self.layers.append({"op": "vector", "shape": [channels, height, width]})
            self.shape = (channels * height * width,)

    def _unflatten(self, shape: tuple[int, ...]) -> None:
        if len(shape) == 3:
            self.layers.append({"op": "pictures", "shape": list(shape)})
            self.shape = (*shape[1:], shape[0])

    def _linear(self, layer: nn.Linear) -> None:
        sizes = {"inputs": layer.in_features, "outputs": layer.out_features}
        self.layers.append(
            {"op": "linear", **sizes, "weights": [self._put(layer.weight), self._put(layer.bias)]}
        )
        self.shape = (layer.out_features,)

    def _convolution(self, layer: Any) -> None:
        plain = layer.groups == 1 and layer.dilation == (1, 1) and layer.padding_mode == "zeros"
        if not plain or isinstance(layer.padding, str):
            raise ValueError(
                f"convolutions must have one group, no dilation and zeros as padding, got {layer}; "
                "serve it live by unseam.explore.serve"
            )
        transposed = isinstance(layer, nn.ConvTranspose2d)
        sizes = zip(
            self.shape, layer.kernel_size, layer.stride, layer.padding, layer.output_padding, strict=False
        )
        side = [
            (size - 1) * step - 2 * pad + kernel + more
            if transposed
            else (size + 2 * pad - kernel) // step + 1
            for size, kernel, step, pad, more in sizes
        ]
        output = (*side, layer.out_channels)
        # (input channel, kernel row, kernel column, output channel)
        weight = layer.weight.permute(*((0, 2, 3, 1) if transposed else (1, 2, 3, 0)))
        self.layers.append(
            {
                "op": "deconvolution" if transposed else "convolution",
                "input": list(self.shape),
                "output": list(output),
                "kernel": list(layer.kernel_size),
                "stride": list(layer.stride),
                "padding": list(layer.padding),
                "weights": [self._put(weight), self._put(layer.bias)],
            }
        )
        self.shape = output

    def _normalisation(self, layer: Any) -> None:
        epsilon = layer.epsilon if isinstance(layer, BatchNorm) else layer.eps
        scale = (layer.running_var + epsilon).rsqrt()
        scale = scale if layer.weight is None else scale * layer.weight
        shift = -layer.running_mean * scale
        shift = shift if layer.bias is None else shift + layer.bias
        self.layers.append(
            {"op": "affine", "channels": len(scale), "weights": [self._put(scale), self._put(shift)]}
        )

    def _put(self, values: Tensor | None) -> list[int] | None:
        if values is None:
            return None
        part = values.detach().to("cpu", torch.float32).contiguous().numpy().ravel()
        self.parts.append(part)
        self.stored += len(part)
        return [self.stored - len(part), len(part)]


def _likelihood(subject: Subject) -> dict[str, Any]:
    likelihood = subject.likelihood
    if likelihood is None:
        return {"kind": "identity", "weight": 1.0}
    if isinstance(likelihood, Gaussian):
        return {"kind": "identity", "weight": float((-likelihood.log_variance.detach()).exp())}
    if isinstance(likelihood, Bernoulli):
        return {"kind": "logistic", "weight": 1.0}
    if isinstance(likelihood, Binomial):
        return {"kind": "logistic", "weight": float(likelihood.draws)}
    if isinstance(likelihood, ContinuousBernoulli):
        return {"kind": "continuous_bernoulli"}
    raise ValueError(
        "likelihood must be Gaussian, Bernoulli, binomial or continuous Bernoulli for a page to hold it, got "
        f"{type(likelihood).__name__}; serve it live by unseam.explore.serve"
    )
