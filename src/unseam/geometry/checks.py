"""What a decoder and its points must be for a Jacobian to mean anything, looked at before one is computed."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import jvp
from torch.utils._python_dispatch import TorchDispatchMode

from unseam.inputs import Array, Decoder, as_floating, as_tensor, check_count, check_finite

__all__ = [
    "Glance",
    "check_pointwise",
    "check_decoder",
    "measuring",
    "prepare_forward_mode",
]

# Enough to see points that look at their neighbours, in pairs, in a ring or all together.
GLANCE = 4


class Glance(NamedTuple):
    r"""A few points z (point, latent), their outputs (point, \*data), and the widest result on the way there."""

    z: Tensor
    output: Tensor
    widest: int


def measuring(z: Tensor) -> bool:
    """Whether values may be looked at: no gradient, transformation, compilation or capture is under way.

    Looking at values waits for the device and costs a few points' pass, which a training step cannot afford and
    a captured CUDA graph cannot do. Points that require gradients, as those of a training objective do, or
    that are inside ``torch.func`` transformations, are taken as they are.

    >>> measuring(torch.zeros(1, 2)), measuring(torch.zeros(1, 2, requires_grad=True))
    (True, False)
    """
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    recording = torch.is_grad_enabled() and z.requires_grad
    return not recording and not (z.is_cuda and torch.cuda.is_current_stream_capturing())


def check_points(z: Array, name: str = "z", shape: str = "(batch, latent)") -> Tensor:
    """Latent points as a tensor (batch, latent), in the precision that the decoder will see; lists in torch's default.

    While measuring (see :func:`measuring`) they must also be finite.
    """
    points = as_tensor(name, z, shape)
    if isinstance(z, list | tuple):
        points = points.to(torch.get_default_dtype())  # the precision of a decoder, unless told otherwise
    if not points.is_floating_point():
        raise ValueError(f"{name} must be floating, got {points.dtype}")
    if measuring(points):
        check_points_finite(f"{name} must be finite", points if points.ndim > 1 else points[None])
    return points


def check_chunk_size(chunk_size: int | None) -> None:
    """Refuse what is no number of points; ``None`` stands for what memory allows."""
    if chunk_size is not None:
        check_count("chunk_size", chunk_size)


def check_points_finite(expected: str, *values: Tensor) -> None:
    """Refuse values (point, ...) that are NaN or infinite, and say at how many points."""
    sound = torch.stack([value.isfinite().flatten(1).all(1) for value in values]).all(0)
    bad = len(sound) - int(sound.sum())
    if bad:
        raise ValueError(f"{expected}, got NaN or infinite values at {bad} of {len(sound)} points")


def check_square(name: str, value: Array, *, differentiable: bool = False) -> Tensor:
    """Finite square matrices (..., latent, latent), detached.

    Gradients flow through ``differentiable`` ones, whose values are looked at only while measuring.
    """
    given = as_floating(name, value, "(..., latent, latent)", finite=False)
    if not differentiable or measuring(given):
        check_finite(name, given)
    return given if differentiable else given.detach()


def check_likelihood(likelihood: object, *methods: str) -> None:
    """Refuse what lacks a method that a likelihood is asked for."""
    for method in methods:
        if not callable(getattr(likelihood, method, None)):
            raise ValueError(f"likelihood must have a method {method}, got {type(likelihood).__name__}")


@torch.no_grad()
def check_decoder(decoder: Decoder, z: Tensor, *, at_once: int = GLANCE) -> Glance:
    r"""Run a decoder on a few points and refuse it if its Jacobian would be wrong or is not defined.

    It must take (batch, latent) to (batch, \*data) with floating values on the device of ``z``, without
    drawing random numbers (dropout in training mode) and without statistics of the batch (batch normalisation
    in training mode). No module is switched to evaluation mode: that is for its owner to do.

    Args:
        decoder: map from (batch, latent) to (batch, \*data).
        z: latent points (batch, latent); the first few are used.
        at_once: how many at most.

    Returns:
        The points, their outputs and the largest number of values of one point on the way.

    >>> check_decoder(nn.Linear(2, 3), torch.zeros(9, 2)).output.shape
    torch.Size([4, 3])
    """
    _check_modes(decoder)
    points = z[: min(GLANCE, at_once)]
    observer = _Observer()
    try:
        with observer:
            output: Any = decoder(points)
    except _Refused as refused:
        raise ValueError(f"decoder must {refused} first") from None
    except Exception as error:
        raise ValueError(
            f"decoder does not accept z (batch, {z.shape[1]}) of {z.dtype} on {z.device}: {error}"
        ) from error
    check_output(output, points)
    return Glance(points, output, observer.widest // len(points))


def check_pointwise(decoder: Decoder, z: Tensor) -> None:
    r"""Refuse a decoder whose outputs at one point depend on other points of the batch.

    The derivative in one point must be exactly zero in the output of every other, or columns of the Jacobian
    would sum over points.

    Args:
        decoder: map from (batch, latent) to (batch, \*data).
        z: a few latent points (point, latent).

    >>> check_pointwise(lambda z: z - z.mean(0), torch.zeros(3, 2))
    Traceback (most recent call last):
    ValueError: decoder must treat each point on its own, but its output at one point changes with another...
    """
    if len(z) == 1:
        return
    for source in (0, len(z) - 1):
        tangent = torch.zeros_like(z)
        tangent[source] = torch.linspace(1, 2, z.shape[1], dtype=z.dtype, device=z.device)
        pushed = directional(decoder, z, tangent)[1].detach()
        others = torch.arange(len(z), device=z.device) != source
        # what is not finite spreads by itself, and is refused later
        if bool((pushed[others].nan_to_num(0.0, 0.0, 0.0) != 0).any()):
            raise ValueError(
                "decoder must treat each point on its own, but its output at one point changes with another point "
                "of the batch: the Jacobian would be wrong"
            )


def check_output(output: Any, z: Tensor) -> None:
    r"""Refuse what a decoder returned unless it is floating, (batch, \*data), on the device of ``z``."""
    if not isinstance(output, Tensor):
        raise ValueError(f"decoder must return a tensor, got {type(output).__name__}")
    if output.ndim < 2 or len(output) != len(z) or output.numel() == 0:
        raise ValueError(
            f"decoder must map (batch, latent) to (batch, *data), "
            f"got {tuple(output.shape)} from z of shape {tuple(z.shape)}"
        )
    if not output.is_floating_point():
        raise ValueError(f"decoder must return floating values, got {output.dtype}")
    if output.device != z.device:
        raise ValueError(f"decoder must return values on the device of z, {z.device}, got {output.device}")


def decode_samples(decoder: Decoder, z: Tensor) -> Tensor:
    r"""Outputs of a decoder (batch, \*data) at samples z (batch, latent) of the posterior, refused unless finite."""
    output = decoder(z)
    check_output(output, z)
    check_points_finite("decoder must give finite outputs at the posterior's samples", output)
    return output


def directional(decoder: Decoder, z: Tensor, tangent: Tensor) -> tuple[Tensor, Tensor]:
    r"""Output of a decoder and its derivative along one direction, without ``torch.func``.

    Args:
        decoder: map from (batch, latent) to (batch, \*data).
        z: latent points (batch, latent).
        tangent: a direction at each point (batch, latent).

    >>> directional(torch.square, torch.tensor([[3.0]]), torch.ones(1, 1))
    (tensor([[9.]]), tensor([[6.]]))
    """
    prepare_forward_mode()
    try:
        with forward_ad.dual_level():
            dual: Any = decoder(forward_ad.make_dual(z, tangent))
            check_output(dual, z)
            output, derivative = forward_ad.unpack_dual(dual)
    except RuntimeError as error:
        raise ValueError(f"decoder cannot be differentiated in forward mode: {error}") from error
    return output, torch.zeros_like(output) if derivative is None else derivative


@cache
def prepare_forward_mode() -> None:
    """Let torch load its forward-mode rules, compiled by a TorchScript that it calls deprecated.

    >>> prepare_forward_mode()
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        jvp(torch.neg, (torch.zeros(1),), (torch.zeros(1),))


def _check_modes(decoder: Decoder) -> None:
    """Name the layer at fault where the decoder is a module; whatever else it may be, the pass tells."""
    for name, child in decoder.named_modules() if isinstance(decoder, nn.Module) else ():
        if _is_active(child):
            raise ValueError(
                f"decoder must be in evaluation mode, but {type(child).__name__} {name!r} is in training mode; "
                "call .eval() on it first"
            )


def _is_active(module: nn.Module) -> bool:
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return module.training and module.p > 0
    # Whatever keeps running statistics normalises by those of the batch while it trains.
    return module.training and any(name == "running_var" for name, _ in module.named_buffers(recurse=False))


class _Refused(Exception):
    """Raised in the middle of a decoder's pass, before what it does has an effect."""


class _Observer(TorchDispatchMode):
    """Sees every operation of a pass: refuses random draws and statistics of the batch, notes the widest result."""

    def __init__(self) -> None:
        super().__init__()
        self.widest = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch would load its compiler, for half a second, to leave out what nobody compiles."""
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        options, (defaults, fresh) = dict(kwargs or {}), _schema(func)
        given = {**defaults, **dict(zip(defaults, args, strict=False)), **options}
        # Fused layers count as random even when they drop nothing.
        shares = [given[name] for name in ("p", "dropout", "dropout_p") if name in given]
        if torch.Tag.nondeterministic_seeded in func.tags and shares != [0]:
            raise _Refused(
                "give the same output each time, but draws random numbers; call .eval() on its dropout"
            )
        # Statistics of one item alone are those of instance normalisation.
        if "batch_norm" in func.name() and len(args[0]) > 1 and (given.get("training") or given.get("train")):
            raise _Refused(
                "treat each point on its own, but uses statistics of the batch; call .eval() on its normalisation"
            )
        result = func(*args, **options)
        for value in result if isinstance(result, tuple | list) else (result,):
            if fresh and isinstance(value, Tensor):
                self.widest = max(self.widest, value.numel())
        return result


@cache
def _schema(func: Any) -> tuple[Mapping[str, Any], bool]:
    """Arguments of an operation with their defaults, and whether it returns memory of its own."""
    defaults = {argument.name: argument.default_value for argument in func._schema.arguments}
    return defaults, all(value.alias_info is None for value in func._schema.returns)
