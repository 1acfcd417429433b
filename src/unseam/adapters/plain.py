"""Modules and functions of one's own: autoencoders, generators and decoders alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unseam.adapters.numpy import numpy
from unseam.adapters.parts import (
    Decode,
    Encode,
    check_logits,
    find_likelihood,
    kind_of,
    likelihood_of,
    parameter,
    view,
)
from unseam.geometry import jacobian
from unseam.geometry.checks import check_output
from unseam.models import VAE, PixelGaussian
from unseam.subject import Subject

__all__ = ["plain"]

_DECODERS, _ENCODERS = ("decode", "decoder", "generator"), ("encode", "encoder")
_SIZES = ("latent_dim", "z_dim", "n_latent", "latent_size", "latent")


def plain(
    model: Any,
    *,
    encoder: Any = None,
    decoder: Any = None,
    likelihood: Any = None,
    latent: int | Sequence[int] | None = None,
    x: Any = None,
    z: Any = None,
    log_variance: bool = False,
    probabilities: bool | None = None,
) -> Subject:
    """A module of torch or Lightning, or a function; modules are used in evaluation mode and stay as they are.

    Args:
        model: a module with ``encode`` and ``decode`` (or ``encoder`` and ``decoder``), a decoder or generator alone,
            or a function of z, of torch or NumPy.
        encoder: x -> (mean, variance), or the name of the model's method.
        decoder: z -> output, or the name of the model's method.
        likelihood: its name or itself; a decoder that returns distributions has its own.
        latent: number of latents, or their shape such as ``(100, 1, 1)``, where neither points nor data nor an
            attribute or hyperparameter (``latent_dim``, ``z_dim``, …) nor the first layer of the decoder say it.
        x: data (batch, *data).
        z: points (batch, *latent).
        log_variance: whether the second of a pair that the encoder returns is the logarithm of the variance.
        probabilities: whether outputs are probabilities where the likelihood takes logits: they are then converted; by
            default such outputs are refused.

    >>> plain(nn.Sequential(nn.ConvTranspose2d(5, 3, 4), nn.Tanh())).latent
    5
    """
    module = view(model) if isinstance(model, nn.Module) else None
    if isinstance(module, VAE):
        encoder, decoder, latent = (
            encoder or "encode",
            decoder or "decoder",
            latent or module.posterior.latent,
        )
        likelihood = module.likelihood if likelihood is None else likelihood
    decode = _part(module, decoder, _DECODERS)
    encode = _part(module, encoder, _ENCODERS if decode is not None else ())
    if decode is None:
        if encode is None and _part(module, None, _ENCODERS) is not None:
            raise ValueError(
                f"{type(model).__name__} has an encoder and neither {', '.join(_DECODERS)}; pass decoder=, the name of "
                "its method or a function of z"
            )
        decode = module or model
    if not callable(decode):
        raise ValueError(
            f"model must be a module, a function of z (batch, latent), the path of an .onnx file or a model of "
            f"a library that unseam.adapters names, got {type(model).__name__}; pass decoder=, a function of z"
        )
    holder = module or _owner(decode)
    kind = kind_of(holder, x if z is None else z)
    # a function of one's own is given data in the type of the weights, which a view may hold in another one
    given = kind if module is None or _owner(encode) is not None else kind_of(model)
    read = None if encode is None else Encode(encode, given if holder else None, log_variance=log_variance)
    if read is not None and holder is None and x is not None:
        few = x[:1] if isinstance(x, Tensor) else torch.as_tensor(np.asarray(x[:1]))
        read.arrays = isinstance(_attempt(encode, few), Exception) and isinstance(x, np.ndarray)
    shape = _latent_shape(model, decode, read, latent, x, z)
    probe = torch.zeros(1, *shape, device=kind[0], dtype=kind[1])
    found = _attempt(decode, probe)
    if isinstance(found, Exception) and _layer_shape(decode)[:1] == shape:
        shape = _layer_shape(decode)
        probe = probe.reshape(1, *shape)
        found = _attempt(decode, probe)
    if holder is None and _is_numpy(decode, found, probe):
        decode, shape = numpy(decode, latent=shape).decoder, probe[0].flatten().shape
        found, probe = decode(probe.flatten(1)), probe.flatten(1)
    if isinstance(found, Exception):
        several = isinstance(found, TypeError) and "argument" in str(found)
        raise ValueError(
            f"decoder does not take z of shape {tuple(probe.shape)} and {probe.dtype}: {found}; pass "
            + (
                "decoder=, a function of z alone that holds its other arguments fixed"
                if several
                else "latent=, the number of its latents or their shape"
                if read is None
                else "decoder= and an encoder= x -> (mean, variance) whose means it takes"
            )
        ) from found
    likelihood = likelihood_of(found) if likelihood is None else likelihood
    data = tuple(found.shape[1:]) if isinstance(found, Tensor) else None
    likelihood = find_likelihood(likelihood, data, kind)
    if not _is_ready(decode, shape, found) or probabilities:
        options = {"likelihood": likelihood, "probabilities": bool(probabilities)}
        decode = Decode(decode, shape, holder=holder, **options)
    subject = Subject("model", decode, probe[0].numel(), likelihood, read)
    check_output(parameter(found, isinstance(likelihood, PixelGaussian)), probe)
    if probabilities is None:
        check_logits(decode, likelihood, subject.prior(16, torch.Generator().manual_seed(0)).to(*kind))
    return subject


def _part(module: nn.Module | None, given: Any, names: Sequence[str]) -> Any:
    """The given method or function, in evaluation mode, or the first of the names that the module has."""
    if given is None:
        return next((part for name in names if callable(part := getattr(module, name, None))), None)
    if isinstance(given, str):
        part = getattr(module, given, None)
        if not callable(part):
            raise ValueError(f"model must have a method {given!r}, got {type(module).__name__} without it")
        return part
    if not callable(given):
        raise ValueError(f"encoder and decoder must be functions or names of methods, got {given!r}")
    if isinstance(given, nn.Module):
        return view(given)
    owner = _owner(given)
    return given if owner is None else getattr(view(owner), given.__name__)


def _owner(function: Any) -> nn.Module | None:
    """The module itself, or that of a method."""
    owner = function if isinstance(function, nn.Module) else getattr(function, "__self__", None)
    return owner if isinstance(owner, nn.Module) else None


def _is_ready(decode: Any, shape: Sequence[int], found: Any) -> bool:
    """Whether a decoder can be measured as it is: a module or a function of rows that returns a tensor."""
    own = isinstance(decode, nn.Module) or _owner(decode) is None
    return own and len(shape) == 1 and isinstance(found, Tensor)


def _latent_shape(
    model: Any, decode: Any, encode: Encode | None, latent: Any, x: Any, z: Any
) -> tuple[int, ...]:
    """Shape of the latents of one item."""
    if latent is not None:
        shape = tuple(latent) if isinstance(latent, Sequence) else (latent,)
        if not shape or min(shape) < 1:
            raise ValueError(f"latent must be at least 1, got {latent}")
        return shape
    if z is not None and np.ndim(z) > 1:
        return tuple(z.shape[1:])
    if x is not None and encode is not None:
        return tuple(encode.moments(x[:1])[0].shape[1:]) or (1,)
    named = getattr(model, "hparams", None)  # of a LightningModule
    named = named if isinstance(named, Mapping) else {}
    sizes = (getattr(model, name, None) or named.get(name) for name in _SIZES)
    if isinstance(size := next((size for size in sizes if isinstance(size, int)), None), int):
        return (size,)
    if shape := _layer_shape(decode):
        return shape
    raise ValueError(
        "latent must say how many latents the decoder has, or their shape such as (100, 1, 1), where neither z nor x "
        "with an encoder are given"
    )


def _layer_shape(decode: Any) -> tuple[int, ...]:
    """Shape of the latents that the first layer of a decoder takes; empty where it does not say."""
    layers = decode.modules() if isinstance(decode, nn.Module) else ()
    layer = next((layer for layer in layers if any(True for _ in layer.parameters(recurse=False))), None)
    if isinstance(layer, nn.Linear):
        return (layer.in_features,)
    if isinstance(layer, nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d):
        return (layer.in_channels, *(1 for _ in layer.kernel_size))
    return ()


@torch.no_grad()
def _attempt(decode: Callable[[Any], Any], z: Any) -> Any:
    """What a decoder returns, or the error that it raises."""
    try:
        return decode(z)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        return error


def _is_numpy(function: Callable[[Any], Any], found: Any, z: Tensor) -> bool:
    """Whether a function computes by NumPy, so that torch cannot differentiate it."""
    if isinstance(found, Tensor):
        try:
            with torch.no_grad():
                slope = jacobian(function, z)
        except Exception:
            return False
        if bool(slope.any()) or torch.equal(found, function(z + 1)):
            return False
    elif not isinstance(found, np.ndarray | Exception):
        return False
    return isinstance(_attempt(function, z.double().cpu().numpy()), np.ndarray)
