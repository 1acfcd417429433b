"""Points and the tangents of every latent carried together through the layers of a decoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import jvp

from unseam.geometry.checks import prepare_forward_mode
from unseam.inputs import Decoder

__all__ = ["Pushed", "push"]

Handler = Callable[..., "Pushed"]


class Pushed:
    r"""What a decoder made of a batch of points so far, and its derivative in every latent.

    Stands in for z in a call of the decoder. Each layer acts on the points once and on all tangents in one
    further call, :math:`(y, T) \mapsto (f(y), f'(y) T)`, so that d latents cost d + 1 passes and an
    activation's derivative is taken once for all of them. A product with a matrix waits until its result is
    asked for: the metric of a last layer needs no outputs.

    Anything but a known layer that treats each point on its own raises ``NotImplementedError``.

    Args:
        primal: the points (batch, \*shape).
        tangents: derivatives (batch, latent, \*shape); a batch of 1 stands for the same at every point.

    >>> torch.sigmoid(Pushed(torch.zeros(4, 1), torch.ones(1, 1, 1))).tangents[0]
    tensor([[0.2500]])
    """

    def __init__(self, primal: Tensor, tangents: Tensor) -> None:
        self._primal, self._tangents, self.shape = primal, tangents, primal.shape
        self._pending: tuple[Tensor, Tensor | None] | None = None
        self._shared = False

    @property
    def primal(self) -> Tensor:
        r"""The points (batch, \*shape)."""
        return self._resolved()._primal

    @property
    def tangents(self) -> Tensor:
        r"""Their derivatives (batch or 1, latent, \*shape)."""
        return self._resolved()._tangents

    @property
    def last_product(self) -> tuple[Tensor, Tensor, Tensor, Tensor | None] | None:
        """Points, tangents, weight and bias of a product with a matrix that is not formed yet, if one waits."""
        return None if self._pending is None else (self._primal, self._tangents, *self._pending)

    @property
    def ndim(self) -> int:
        """Number of dimensions of the points, the batch included."""
        return len(self.shape)

    @property
    def dtype(self) -> torch.dtype:
        """Type of the numbers."""
        return self._primal.dtype

    @property
    def device(self) -> torch.device:
        """Where the numbers are."""
        return self._primal.device

    def size(self, dim: int | None = None) -> torch.Size | int:
        """The shape of the points, or its entry ``dim``."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """Number of dimensions of the points, the batch included."""
        return self.ndim

    def __len__(self) -> int:
        return self.shape[0]

    def __getattr__(self, name: str) -> Callable[..., Pushed]:
        method = getattr(Tensor, name, None)
        if method not in _HANDLERS:
            raise NotImplementedError(f"no rule for the attribute {name} of a tensor")
        return lambda *args, **options: _HANDLERS[method](method, self, *args, **options)

    @classmethod
    def __torch_function__(
        cls,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Pushed:
        place = 1 if func is torch.addcmul else 0
        if func not in _HANDLERS or not isinstance(args[place], cls):
            raise NotImplementedError(f"no rule for {func}")
        return _HANDLERS[func](func, *args, **(kwargs or {}))

    def _resolved(self) -> Pushed:
        if self._pending is not None:
            weight, bias = self._pending
            self._primal = F.linear(self._primal, weight, bias).reshape(self.shape)
            self._tangents = _tangents_like(F.linear(self._tangents, weight), self.shape)
            self._pending = None
        return self


def push(decoder: Decoder, z: Tensor) -> Pushed | None:
    r"""Run a decoder on points together with the tangents of all latents, where all of its layers are known.

    Known are affine layers, elementwise activations, convolutions, pooling and upsampling, batch normalisation
    and dropout in evaluation mode, and changes of shape, wherever they are called: in a module, a method or a
    function. Parameters are those at the time of the call.

    Args:
        decoder: map from (batch, latent) to (batch, \*data).
        z: latent points (batch, latent).

    Returns:
        Outputs and tangents, or ``None`` where the decoder does something else; nothing is warned about, as
        ``torch.func.jvp`` then answers the same question.

    >>> push(torch.nn.Linear(2, 3, bias=False), torch.zeros(5, 2)).tangents.shape
    torch.Size([1, 2, 3])
    >>> push(lambda z: z.cumsum(0), torch.zeros(5, 2)) is None
    True
    """
    seed = torch.eye(z.shape[1], dtype=z.dtype, device=z.device)[None]
    try:
        pushed: Any = decoder(Pushed(z, seed))  # type: ignore[arg-type]
    except torch.OutOfMemoryError:
        raise
    except Exception:  # the stand-in may break foreign code in any way; a plain call then says what is wrong
        return None
    if not isinstance(pushed, Pushed) or pushed.ndim < 2 or len(pushed) != len(z):
        return None
    return pushed


def _linear(func: Any, x: Pushed, weight: Tensor, bias: Tensor | None = None) -> Pushed:
    if not isinstance(weight, Tensor) or x.shape[-1] != weight.shape[-1]:
        raise NotImplementedError("no constant matrix that fits")
    pushed = Pushed(x.primal, x.tangents)
    pushed._pending = weight, bias
    pushed.shape = torch.Size((*x.shape[:-1], weight.shape[0]))
    return pushed


def _elementwise(func: Any, x: Pushed, *args: Any, inplace: bool = False, **options: Any) -> Pushed:
    """Activations and other functions of one number: their derivative at the points scales tangents."""
    if any(isinstance(value, Tensor | Pushed) for value in (*args, *options.values())):
        raise NotImplementedError("parameters of an elementwise function may need a shape")
    if func in _SLOPES and not args and not options:
        y = func(x.primal)
        slope = _SLOPES[func](y)
    else:
        prepare_forward_mode()
        ones = torch.ones_like(x.primal)
        y, slope, *_ = jvp(lambda value: func(value, *args, **options), (x.primal,), (ones,))
    return _with_values(x, y, x.tangents * slope.unsqueeze(1), inplace)


def _convolution(
    func: Any, x: Pushed, weight: Tensor, bias: Tensor | None = None, *args: Any, **options: Any
) -> Pushed:
    y = func(x.primal, weight, bias, *args, **options)
    return Pushed(y, _each(lambda tangents: func(tangents, weight, None, *args, **options), x.tangents))


def _linear_in_each(func: Any, x: Pushed, *args: Any, **options: Any) -> Pushed:
    """Layers without parameters that are linear in each point, such as average pooling."""
    return Pushed(
        func(x.primal, *args, **options), _each(lambda tangents: func(tangents, *args, **options), x.tangents)
    )


def _batch_norm(
    func: Any,
    x: Pushed,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Pushed:
    if training or running_var is None:
        raise NotImplementedError("statistics of the batch mix its points")
    y = func(x.primal, running_mean, running_var, weight, bias, False, momentum, eps)
    scale = (running_var + eps).rsqrt() if weight is None else (running_var + eps).rsqrt() * weight
    return Pushed(y, x.tangents * scale.reshape(-1, *[1] * (x.ndim - 2)).to(y.dtype))


def _scale_and_shift(func: Any, shift: Tensor, x: Pushed, scale: Tensor, *, value: float = 1.0) -> Pushed:
    if any(not isinstance(constant, Tensor) or constant.ndim >= x.ndim for constant in (shift, scale)):
        raise NotImplementedError("a constant for each point stays with no chunk of them")
    y = func(shift, x.primal, scale, value=value)
    return Pushed(y, (x.tangents * (value * scale)).to(y.dtype))


def _cast(func: Any, x: Pushed, dtype: torch.dtype) -> Pushed:
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise NotImplementedError("not another precision of the same numbers")
    return Pushed(x.primal.to(dtype), x.tangents.to(dtype))


def _dropout(func: Any, x: Pushed, p: float = 0.5, training: bool = True, inplace: bool = False) -> Pushed:
    if training and p > 0:
        raise NotImplementedError("dropout is random")
    return x


def _reshape(func: Any, x: Pushed, *args: Any, **options: Any) -> Pushed:
    """Changes of shape that keep the order of numbers: they act on each point if the batch stays in front."""
    like = func(torch.empty(x.shape, dtype=x.dtype, device="meta"), *args, **options)
    shape = like.shape
    if not shape or shape[0] != len(x) or like.dtype != x.dtype:
        raise NotImplementedError("points are not kept apart")
    if x._pending is None:
        reshaped = Pushed(x.primal.reshape(shape), _tangents_like(x.tangents, shape))
    else:
        reshaped = Pushed(x._primal, x._tangents)
        reshaped._pending, reshaped.shape = x._pending, shape
    x._shared = reshaped._shared = True
    return reshaped


def _with_values(x: Pushed, primal: Tensor, tangents: Tensor, inplace: bool) -> Pushed:
    """A new result, or the old one changed where the decoder asked for that."""
    if not inplace:
        return Pushed(primal, tangents)
    if x._shared:
        raise NotImplementedError("a view of what is overwritten would change with it")
    x._primal, x._tangents = primal, tangents
    return x


def _each(layer: Callable[[Tensor], Tensor], tangents: Tensor) -> Tensor:
    """Apply a layer to every tangent of every point, as if each was a point."""
    return layer(tangents.flatten(0, 1)).unflatten(0, tangents.shape[:2])


def _tangents_like(tangents: Tensor, shape: Sequence[int]) -> Tensor:
    return tangents.reshape(*tangents.shape[:2], *shape[1:])


_ELEMENTWISE = (
    *(torch.tanh, torch.sigmoid, torch.relu, torch.exp, torch.sin, torch.cos, torch.square, torch.selu),
    *(Tensor.tanh, Tensor.sigmoid, Tensor.relu, Tensor.exp, Tensor.sin, Tensor.cos, Tensor.square),
    *(F.relu, F.leaky_relu, F.elu, F.selu, F.celu, F.silu, F.mish, F.relu6, F.hardtanh, F.hardswish),
    *(F.gelu, F.softplus, F.logsigmoid, F.softsign, F.tanhshrink, F.hardsigmoid),
)
# Derivatives as functions of the result; torch's own are taken of the others, at many times the fixed cost.
_SLOPES: dict[Any, Callable[[Tensor], Tensor]] = {
    **dict.fromkeys((torch.tanh, Tensor.tanh), lambda y: 1 - y * y),
    **dict.fromkeys((torch.sigmoid, Tensor.sigmoid), lambda y: y * (1 - y)),
    **dict.fromkeys((torch.relu, Tensor.relu, F.relu), lambda y: (y > 0).to(y.dtype)),
}
_CONVOLUTIONS = (
    *(F.conv1d, F.conv2d, F.conv3d),
    *(F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d),
)
_LINEAR_IN_EACH = (
    *(F.avg_pool1d, F.avg_pool2d, F.avg_pool3d, F.adaptive_avg_pool1d, F.adaptive_avg_pool2d),
    *(F.interpolate, F.pixel_shuffle),
)
_RESHAPES = (
    *(torch.flatten, torch.unflatten, torch.reshape, torch.unsqueeze),
    *(Tensor.flatten, Tensor.unflatten, Tensor.reshape, Tensor.view, Tensor.unsqueeze, Tensor.contiguous),
)
_HANDLERS: dict[Any, Handler] = {
    F.linear: _linear,
    F.batch_norm: _batch_norm,
    F.dropout: _dropout,
    torch.addcmul: _scale_and_shift,
    Tensor.to: _cast,
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    **dict.fromkeys(_CONVOLUTIONS, _convolution),
    **dict.fromkeys(_LINEAR_IN_EACH, _linear_in_each),
    **dict.fromkeys(_RESHAPES, _reshape),
}
