"""The decoder's Jacobian and the metric that it pulls back from data space."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import jvp, vmap

from unseam.geometry.checks import (
    Glance,
    check_chunk_size,
    check_decoder,
    check_likelihood,
    check_output,
    check_points,
    check_points_finite,
    check_pointwise,
    directional,
    measuring,
    prepare_forward_mode,
)
from unseam.geometry.memory import points_at_once
from unseam.geometry.structure import Pushed, push
from unseam.inputs import Array, Decoder

__all__ = ["FisherWeighted", "jacobian", "pullback"]

# What a QR decomposition costs in matrix products of its size: it hardly parallelises.
FACTORISATION = {"cpu": 1, "cuda": 100}


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


def jacobian(decoder: Decoder, z: Array, *, chunk_size: int | None = None) -> Tensor:
    r"""Jacobian of a decoder at each point, by forward-mode differentiation.

    .. math:: J_{bij} = \partial d_i(z_b) / \partial z_{bj}

    the J_i of rolinek2019 §3.3 and the D of allen2024 Eq. 6. Costs d + 1 passes of the decoder for d latents,
    over all points of a chunk together: layers that :func:`unseam.geometry.structure.push` knows act on all
    latents at once, any other decoder goes through ``torch.func.jvp``, and one that ``torch.func.vmap``
    refuses goes latent by latent with a warning. Forward mode has no rule for fused attention nor for group
    normalisation of channels-last tensors: use the mathematical attention kernel and contiguous tensors there.

    The result is differentiable in ``z`` and in what ``decoder`` closes over; measurements should run under
    ``torch.no_grad()``. Where ``z`` requires no gradients, decoder and points are first looked at (see
    :func:`unseam.geometry.checks.check_decoder`).

    Args:
        decoder: map d from (batch, latent) to (batch, \*data) that treats each point on its own (batch
            normalisation and dropout in evaluation mode).
        z: latent points (batch, latent), floating.
        chunk_size: number of points differentiated at once; by default what free memory allows, or all of them
            where ``z`` requires gradients.

    Returns:
        The Jacobian (batch, data, latent), data dimensions flattened; no normalisation.

    >>> jacobian(lambda z: z**2, torch.tensor([[1.0, 3.0]]))
    tensor([[[2., 0.],
             [0., 6.]]])
    """
    with _differentiable():
        passes = _Passes(decoder, z, chunk_size)
        parts = []
        for (
            pushed
        ) in passes:  # no comprehension, which is a frame of its own to a warning in some versions of Python
            parts.append(pushed.tangents.flatten(2).expand(len(pushed), -1, -1))
        rows = torch.cat(parts)
        passes.check(rows, "decoder")
        return rows.mT


def pullback(
    decoder: Decoder, z: Array, *, likelihood: FisherWeighted | None = None, chunk_size: int | None = None
) -> Tensor:
    r"""Metric that the decoder pulls back to latent space at each point.

    .. math:: G(z) = J(z)^\top W(z) J(z), \qquad W = A^2_{d(z)}

    which is minus the Hessian of the log-likelihood in allen2024 Eq. 6 without its last term (rolinek2019's
    JᵀJ where W is the identity). The Jacobian of one chunk is reduced before the next is made; how it is
    made, and what is refused, stands at :func:`jacobian`. Without a likelihood, outputs of a last layer
    :math:`A h + b` much wider than its input are not formed: JᵀJ = (R H)ᵀ R H with AᵀA = RᵀR from a QR
    decomposition, which keeps the accuracy that the Gram matrix itself would lose.

    Args:
        decoder: map d from (batch, latent) to (batch, \*data) that treats each point on its own.
        z: latent points (batch, latent), floating.
        likelihood: gives W by ``fisher_weight(output)``; ``None`` for the identity.
        chunk_size: number of points differentiated at once; by default what free memory allows, or all of them
            where ``z`` requires gradients.

    Returns:
        The metric G (batch, latent, latent), symmetric, summed over data dimensions.

    >>> pullback(lambda z: z @ torch.tensor([[1.0, 2.0, 2.0]]), torch.zeros(1, 1))
    tensor([[[9.]]])
    """
    if likelihood is not None:
        check_likelihood(likelihood, "fisher_weight")
    with _differentiable():
        passes = _Passes(decoder, z, chunk_size)
        factor = _LastFactor(len(passes.points) if passes.measuring else 0)
        parts = []
        for pushed in passes:
            parts.append(_metric(pushed, likelihood, factor))
        metric = torch.cat(parts)
        passes.check(metric, "decoder" if likelihood is None else "decoder and Fisher weight")
        return (metric + metric.mT) / 2


@contextmanager
def _differentiable() -> Iterator[None]:
    """Leave inference mode, in which some versions of torch take every derivative for zero."""
    if not torch.is_inference_mode_enabled():
        yield
        return
    with torch.inference_mode(False), torch.no_grad():
        yield


class _Passes:
    """Outputs and tangents of one chunk of points after another."""

    def __init__(self, decoder: Decoder, z: Array, chunk_size: int | None) -> None:
        check_chunk_size(chunk_size)
        self.decoder, self.points, self.chunk_size = decoder, check_points(z), chunk_size
        if self.points.is_inference():
            self.points = self.points.clone()
        self.sound: list[Tensor] = []
        self.measuring = measuring(self.points)
        self.structured = self.vectorised = True
        if self.measuring:
            self._look(check_decoder(decoder, self.points, at_once=chunk_size or len(self.points)))

    def __iter__(self) -> Iterator[Pushed]:
        for chunk in self.points.split(self.chunk_size or len(self.points)):
            pushed = push(self.decoder, chunk) if self.structured else None
            pushed = self._push_any(chunk) if pushed is None else pushed
            if self.measuring:
                self.sound.append(_sound(pushed))
            yield pushed

    def check(self, result: Tensor, what: str) -> None:
        """Refuse outputs or derivatives that are not finite; one wait for the device, after the last chunk."""
        if self.measuring:
            sound = torch.cat(self.sound)[:, None]
            expected = f"{what} must be finite and have finite derivatives"
            check_points_finite(expected, torch.where(sound, 0.0, torch.nan), result.detach())

    def _push_any(self, z: Tensor) -> Pushed:
        """Output and tangents of any decoder, by ``torch.func``."""
        if self.vectorised:
            try:
                return _push_vmapped(self.decoder, z)
            except RuntimeError as error:
                failure = error
        pushed = _push_one_by_one(self.decoder, z)
        if self.vectorised:
            message = f"decoder fails under torch.func.vmap, so its latents go one by one: {failure}"
            warnings.warn(message, stacklevel=4)
        self.vectorised = False
        return pushed

    def _look(self, glance: Glance) -> None:
        latent = self.points.shape[1]
        if self.chunk_size is None:
            self.chunk_size = points_at_once(latent, glance.widest, glance.output.dtype, self.points.device)
        with torch.no_grad():
            self.structured = _is_pushed_right(self.decoder, glance.z)
            if not self.structured:
                check_pointwise(self.decoder, glance.z)


class _LastFactor:
    """R of a last layer's matrix A = Q R, computed once for all chunks where that saves time."""

    def __init__(self, points: int) -> None:
        self.points = points
        self.weight: Tensor | None = None
        self.factor = torch.empty(0)

    def __call__(self, weight: Tensor, tangents: Tensor) -> Tensor | None:
        if self.weight is None and self._pays(weight, tangents):
            self.weight = weight
            self.factor = torch.linalg.qr(weight, mode="r").R
        return self.factor if self.weight is weight else None

    def _pays(self, weight: Tensor, tangents: Tensor) -> bool:
        """Whether the rows saved outweigh a decomposition, which has no use where gradients are recorded."""
        outputs, inputs = weight.shape
        if torch.is_grad_enabled() and (weight.requires_grad or tangents.requires_grad):
            return False
        precise = weight.dtype in (torch.float32, torch.float64) and weight.dtype == tangents.dtype
        rows = self.points * tangents.shape[1]
        return (
            precise
            and rows * (outputs - inputs) > FACTORISATION.get(weight.device.type, 100) * outputs * inputs
        )


def _metric(pushed: Pushed, likelihood: FisherWeighted | None, factor: _LastFactor) -> Tensor:
    """JᵀWJ of one chunk."""
    product = pushed.last_product
    if likelihood is None and product is not None and (reduced := factor(product[2], product[1])) is not None:
        rows = F.linear(product[1], reduced).flatten(2)
        return (rows @ rows.mT).expand(len(pushed), -1, -1)
    rows = pushed.tangents.flatten(2)
    if likelihood is None:
        return (rows @ rows.mT).expand(len(pushed), -1, -1)
    weight = likelihood.fisher_weight(pushed.primal).flatten(1).unsqueeze(1)
    weighted = weight * rows  # in half precision a weight may be more precise than the rows
    return weighted @ rows.mT.to(weighted.dtype)


def _sound(pushed: Pushed) -> Tensor:
    """At which points (batch,) outputs are finite, without forming those of a last layer.

    A matrix that is not finite shows in the derivatives.
    """
    product = pushed.last_product
    if product is None:
        return pushed.primal.detach().isfinite().flatten(1).all(1)
    primal, _, _, bias = product
    sound = primal.detach().isfinite().flatten(1).all(1)
    return sound if bias is None else sound & bias.detach().isfinite().all()


def _push_vmapped(decoder: Decoder, z: Tensor) -> Pushed:
    """Output and tangents of any decoder, all latents vectorised."""
    prepare_forward_mode()

    def along(direction: Tensor) -> tuple[Tensor, Tensor]:
        output, tangent, *_ = jvp(decoder, (z,), (direction.expand_as(z),))
        check_output(output, z)
        return output, tangent

    # The output does not depend on the direction: vmap computes it once and returns it expanded.
    outputs, tangents = vmap(along, out_dims=(0, 1))(_directions(z))
    return Pushed(outputs[0], tangents)


def _push_one_by_one(decoder: Decoder, z: Tensor) -> Pushed:
    """Output and tangents of any decoder, latent by latent."""
    pairs = [directional(decoder, z, direction.expand_as(z)) for direction in _directions(z)]
    return Pushed(pairs[0][0], torch.stack([tangent for _, tangent in pairs], 1))


def _directions(z: Tensor) -> Tensor:
    return torch.eye(z.shape[1], dtype=z.dtype, device=z.device)


def _is_pushed_right(decoder: Decoder, z: Tensor) -> bool:
    """Whether known layers are all there is: torch finds the same derivative along one direction.

    A decoder may, for one, give its own derivative to a function of known layers.
    """
    pushed = push(decoder, z)
    if pushed is None:
        return False
    direction = torch.linspace(1, 2, z.shape[1], dtype=z.dtype, device=z.device)
    output, along = _derivative_along(decoder, z, direction.expand_as(z))
    tangents = pushed.tangents
    found = torch.tensordot(tangents.movedim(1, -1), direction.to(tangents.dtype), 1)
    return _agree(pushed.primal, output) and _agree(found.expand_as(along), along)


def _derivative_along(decoder: Decoder, z: Tensor, tangent: Tensor) -> tuple[Tensor, Tensor]:
    r"""Output and derivative along a direction of a decoder whose layers are known, by two passes in reverse mode.

    .. math:: J v = \partial (u^\top J v) / \partial u

    Forward mode would come to a slow path of torch wherever a bias has no tangent.
    """
    try:
        with torch.enable_grad():
            leaf = z.detach().requires_grad_()
            output = decoder(leaf)
            rows = torch.zeros_like(output, requires_grad=True)
            # sums, as torch loads a library of symbolic mathematics to check weights that it is given
            (product,) = torch.autograd.grad((rows * output).sum(), leaf, create_graph=True)
            (along,) = torch.autograd.grad((product * tangent).sum(), rows)
        return output.detach(), along
    except RuntimeError:  # a decoder without gradients, or one that cannot be differentiated twice
        return directional(decoder, z, tangent)


def _agree(found: Tensor, expected: Tensor) -> bool:
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return False
    found, expected = found.cpu(), expected.cpu()  # a few points: cheaper than launches on a device
    tolerance = torch.finfo(expected.dtype).eps ** 0.25  # products may run in TF32
    atol = tolerance * expected.nan_to_num().abs().amax().item()
    return torch.allclose(found, expected, rtol=tolerance, atol=atol, equal_nan=True)
