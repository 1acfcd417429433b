"""The decoder's Jacobian and the metric that it pulls back from data space."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import jvp, vmap

__all__ = ["FisherWeighted", "jacobian", "pullback"]

Decoder = Callable[[Tensor], Tensor]


class FisherWeighted(Protocol):
    """Anything that weights a decoder's outputs by their Fisher information, as every likelihood here does.

    >>> class Unit:
    ...     def fisher_weight(self, output):
    ...         return torch.ones_like(output)
    >>> pullback(lambda z: 3 * z, torch.zeros(1, 1), likelihood=Unit())
    tensor([[[9.]]])
    """

    def fisher_weight(self, output: Tensor) -> Tensor:
        """The diagonal A² of the Fisher information in the decoder's output, in the shape of ``output``."""
        ...


def jacobian(decoder: Decoder, z: Tensor | NDArray[Any], *, chunk_size: int | None = None) -> Tensor:
    r"""Jacobian of a decoder at each point, by forward-mode differentiation.

    .. math:: J_{bij} = \partial d_i(z_b) / \partial z_{bj}

    the J_i of rolinek2019 §3.3 and the D of allen2024 Eq. 6. One pass of the decoder for every latent, each
    over all points of a chunk. The result is differentiable in ``z`` and in what ``decoder`` closes over;
    measurements should run under ``torch.no_grad()``.

    Args:
        decoder: map d from (batch, latent) to (batch, \*data) that treats each point on its own (batch
            normalisation in evaluation mode).
        z: latent points (batch, latent), floating.
        chunk_size: number of points differentiated at once; all of them by default.

    Returns:
        The Jacobian (batch, data, latent), data dimensions flattened; no normalisation.

    >>> jacobian(lambda z: z**2, torch.tensor([[1.0, 3.0]]))
    tensor([[[2., 0.],
             [0., 6.]]])
    """
    return torch.cat([columns for _, columns in _chunks(decoder, z, chunk_size)])


def pullback(
    decoder: Decoder,
    z: Tensor | NDArray[Any],
    *,
    likelihood: FisherWeighted | None = None,
    chunk_size: int | None = None,
) -> Tensor:
    r"""Metric that the decoder pulls back to latent space at each point.

    .. math:: G(z) = J(z)^\top W(z) J(z), \qquad W = A^2_{d(z)}

    which is minus the Hessian of the log-likelihood in allen2024 Eq. 6 without its last term (rolinek2019's
    JᵀJ where W is the identity). The Jacobian of one chunk is reduced before the next is made.

    Args:
        decoder: map d from (batch, latent) to (batch, \*data) that treats each point on its own.
        z: latent points (batch, latent), floating.
        likelihood: gives W by ``fisher_weight(output)``; ``None`` for the identity.
        chunk_size: number of points differentiated at once; all of them by default.

    Returns:
        The metric G (batch, latent, latent), summed over data dimensions.

    >>> pullback(lambda z: z @ torch.tensor([[1.0, 2.0, 2.0]]), torch.zeros(1, 1))
    tensor([[[9.]]])
    """
    metrics = []
    for output, columns in _chunks(decoder, z, chunk_size):
        weight = None if likelihood is None else likelihood.fisher_weight(output).flatten(1).unsqueeze(-1)
        weighted = columns if weight is None else weight * columns
        metrics.append(weighted.mT @ columns)
    return torch.cat(metrics)


def _chunks(
    decoder: Decoder, z: Tensor | NDArray[Any], chunk_size: int | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Output (batch, *data) and Jacobian (batch, data, latent) of one chunk of points after another."""
    points = _points(z)
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1 or None, got {chunk_size}")
    _prepare_forward_mode()
    for chunk in points.split(chunk_size or len(points)):
        yield _linearise(decoder, chunk)


def _linearise(decoder: Decoder, z: Tensor) -> tuple[Tensor, Tensor]:
    def push(tangent: Tensor) -> tuple[Tensor, Tensor]:
        output, pushed, *_ = jvp(decoder, (z,), (tangent.expand_as(z),))
        if output.ndim < 2 or len(output) != len(z):
            raise ValueError(
                f"decoder must map (batch, latent) to (batch, *data), "
                f"got {tuple(output.shape)} from z of shape {tuple(z.shape)}"
            )
        return output, pushed.flatten(1)

    # The output does not depend on the tangent: vmap computes it once and returns it expanded.
    basis = torch.eye(z.shape[1], dtype=z.dtype, device=z.device)
    outputs, columns = vmap(push, out_dims=(0, -1))(basis)
    return outputs[0], columns


@cache
def _prepare_forward_mode() -> None:
    """Let torch load its forward-mode rules, compiled by a TorchScript that it calls deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        jvp(torch.neg, (torch.zeros(1),), (torch.zeros(1),))


def _points(z: Tensor | NDArray[Any]) -> Tensor:
    points = torch.as_tensor(z)
    if points.ndim != 2:
        raise ValueError(f"z must have shape (batch, latent), got shape {tuple(points.shape)}")
    if points.numel() == 0:
        raise ValueError(f"z must hold at least one point and one latent, got shape {tuple(points.shape)}")
    if not points.is_floating_point():
        raise ValueError(f"z must be floating, got {points.dtype}")
    return points
