"""Lightning modules."""

from __future__ import annotations

from typing import Any

from unseam.adapters.plain import plain
from unseam.subject import Subject

__all__ = ["lightning"]


def lightning(model: Any, **options: Any) -> Subject:
    """A LightningModule with ``encode`` and ``decode``, or whose decoder is named; its trainer is not used.

    The number of latents is read from its ``hparams`` where they have ``latent_dim``, ``z_dim`` or ``latent``.

    Args:
        model: the module.
        options: those of :func:`unseam.adapters.plain`.

    >>> from torch import nn
    >>> lightning(nn.Linear(2, 3)).latent
    2
    """
    held = getattr(model, "hparams", {})
    sizes = (held.get(name) for name in ("latent_dim", "z_dim", "latent_size", "latent"))
    if options.get("latent") is None and options.get("z") is None:
        options["latent"] = next((size for size in sizes if isinstance(size, int)), None)
    return plain(model, **options)
