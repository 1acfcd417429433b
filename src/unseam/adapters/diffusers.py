"""Autoencoders of diffusers, from their configuration or from weights on disk."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from unseam.adapters.parts import Decode, Encode, kind_of, view
from unseam.subject import Subject

__all__ = ["diffusers"]

POINTS = 16
"""Points at which a model without data is measured."""


def diffusers(model: Any, *, x: Any = None, size: int | None = None) -> Subject:
    """An autoencoder of diffusers, such as ``AutoencoderKL``, whose latents (channel, height, width) stand in one row.

    Latents are the autoencoder's own, before diffusion scales them. Without data it is measured where diffusion samples
    are, at draws of unit variance divided by the ``scaling_factor`` and shifted by the ``shift_factor``. Attention and
    group normalisation are replaced, in a copy that shares the weights, by equal ones that forward mode can
    differentiate.

    Args:
        model: the autoencoder; of a pipeline, ``pipeline.vae``.
        x: images (batch, channel, height, width), in [-1, 1].
        size: side of the images, where no ``x`` is given; by default the configuration's ``sample_size``.

    >>> diffusers(object())
    Traceback (most recent call last):
    ValueError: model must be an autoencoder of images with continuous latents, such as AutoencoderKL, got object; ...
    """
    config = getattr(model, "config", None)
    bad = not isinstance(model, nn.Module) or getattr(config, "latent_channels", None) is None
    if bad or getattr(config, "num_vq_embeddings", None) is not None:
        raise ValueError(
            f"model must be an autoencoder of images with continuous latents, such as AutoencoderKL, got "
            f"{type(model).__name__}; of a pipeline pass pipeline.vae, of another model its decoder: "
            "unseam.wrap(lambda z: model.decode(z).sample, latent=(channels, height, width))"
        )
    twin: Any = _plain_attention(view(model))
    kind = kind_of(twin)
    encode = Encode(twin.encode, kind)
    shape = _latent_shape(encode, config, x, size)
    if len(shape) != 3 or "num_frames" in inspect.signature(twin.decode).parameters:
        raise ValueError(
            f"model must be an autoencoder of images, got {type(model).__name__} of videos; pass "
            "unseam.wrap(lambda z: model.decode(z, ...).sample, latent=...)"
        )
    subject = Subject(
        type(model).__name__,
        Decode(twin.decode, shape, holder=twin),
        torch.Size(shape).numel(),
        encoder=encode,
    )
    if x is not None:
        return subject
    draws = subject.prior(POINTS, torch.Generator().manual_seed(0))
    scale, shift = (getattr(config, name, None) for name in ("scaling_factor", "shift_factor"))
    z = draws / (scale or 1.0) + (shift or 0.0)
    return Subject(subject.name, subject.decoder, subject.latent, None, subject.encoder, z=z)


def _plain_attention(twin: nn.Module) -> nn.Module:
    """The same attention by matrix products: the fused kernels have no forward-mode rule."""
    from diffusers.models.attention_processor import Attention, AttnProcessor

    for part in twin.modules():
        if isinstance(part, Attention):
            part.__dict__["processor"] = AttnProcessor()
    return twin


def _latent_shape(encode: Encode, config: Any, x: Any, size: int | None) -> tuple[int, ...]:
    if x is not None:
        return tuple(encode.moments(x[:1])[0].shape[1:])
    side = size or getattr(config, "sample_size", None)
    if not isinstance(side, int):
        raise ValueError(
            "size must be given, the side of the images, where neither x nor the configuration say it"
        )
    return tuple(encode.moments(torch.zeros(1, config.in_channels, side, side))[0].shape[1:])
