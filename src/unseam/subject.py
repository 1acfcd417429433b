"""Subject: a model as everything that measures one takes it, whoever trained it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unseam.choices import load_object
from unseam.files import read_array
from unseam.inspection import Inspection, inspect
from unseam.inspection.measure import encode_data
from unseam.models import Bernoulli

__all__ = ["Subject", "import_subject", "resolve_decoder"]


@dataclass(frozen=True, eq=False)
class Subject:
    """A decoder z (batch, latent) -> (batch, *parameter), and what else is known of the model.

    Attributes:
        name: what to call it.
        decoder: the map; it treats each point on its own.
        latent: number of latents.
        likelihood: of :mod:`unseam.models`, or any with ``fisher_weight`` and ``mean``; ``None`` where the outputs are
            the data themselves.
        encoder: x -> (mean, variance or covariance), or ``None``.
        beta: weight of the KL term in training, or ``None`` where it is unknown or there is none.
        z: points (batch, latent) to measure at, or ``None``.
        x: data (batch, *data) whose posterior means are the points to measure at, or ``None``.

    >>> Subject("mine", lambda z: 2 * z, 2).picture(torch.ones(1, 2))
    tensor([[2., 2.]])
    """

    name: str
    decoder: Callable[[Tensor], Tensor]
    latent: int
    likelihood: Any = None
    encoder: Callable[[Tensor], Any] | None = None
    beta: float | None = None
    z: Tensor | None = field(default=None, repr=False)
    x: Tensor | None = field(default=None, repr=False)

    @property
    def kind(self) -> tuple[torch.device, torch.dtype]:
        """Device and type of the decoder's weights; single precision on the host where it has none."""
        if isinstance(self.decoder, torch.nn.Module):
            for parameter in self.decoder.parameters():
                return parameter.device, parameter.dtype
        return torch.device("cpu"), torch.float32

    def points(self, z: Any) -> Tensor:
        """Points (batch, latent) on the decoder's device and of its type."""
        device, dtype = self.kind
        return torch.as_tensor(z, device=device, dtype=dtype).reshape(-1, self.latent)

    def prior(self, points: int, generator: torch.Generator) -> Tensor:
        """Draws from N(0, I) (points, latent) on the decoder's device and of its type."""
        return self.points(torch.randn(points, self.latent, generator=generator))

    def mean_output(self, z: Tensor) -> Tensor:
        """E[x|z] (batch, *data), differentiable."""
        output = torch.as_tensor(self.decoder(z))
        return output if self.likelihood is None else self.likelihood.mean(output)

    @torch.no_grad()
    def picture(self, z: Any) -> Tensor:
        """E[x|z] (batch, *data) at points of any type, without gradients."""
        return self.mean_output(self.points(z))

    @torch.no_grad()
    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior means (batch, latent) and covariances (batch, latent, latent) of data, on the host."""
        if self.encoder is None:
            raise ValueError(f"{self.name} has no encoder, so a picture has no point")
        device, dtype = self.kind
        mean, variance = (torch.as_tensor(part).detach() for part in self.encoder(x.to(device, dtype)))
        covariance = variance if variance.ndim > mean.ndim else torch.diag_embed(variance)
        return mean.double().cpu(), covariance.double().cpu()

    def inspect(
        self,
        *,
        active: Any = None,
        latents: str | int = "all",
        generator: torch.Generator | None = None,
        chunk_size: int | None = None,
    ) -> Inspection:
        """The local geometry at ``z``, or at the posterior means of ``x`` (see :func:`unseam.inspection.inspect`)."""
        return inspect(
            self.decoder,
            self.z,
            encoder=None if self.x is None else self.encoder,
            x=self.x,
            likelihood=self.likelihood,
            beta=1.0 if self.beta is None else self.beta,
            active=active,
            latents=latents,
            generator=generator,
            chunk_size=chunk_size,
        )


def import_subject(
    name: str,
    data: Path | None = None,
    *,
    latent: int | None = None,
    encoder: str | None = None,
    points: int = 1000,
    beta: float | None = None,
    likelihood: str | None = None,
) -> Subject:
    """A model of the user's own by its name, with rows of a file to measure it at.

    Args:
        name: ``package.module:function``: a decoder, or a function or class that makes one when called without
            arguments.
        data: file of points (batch, latent); of data (batch, *data) where an encoder is given. Every row must be
            finite, also those that are not used.
        latent: number of latents, where there is no file.
        encoder: ``package.module:function``, x -> (mean, variance).
        points: number of rows to use, spread over the file.
        beta: weight of the KL term in training.
        likelihood: ``bernoulli`` where the decoder returns logits; by default every output counts alike.
    """
    if likelihood not in (None, "gaussian", "bernoulli"):
        raise ValueError(f"likelihood must be gaussian or bernoulli, got {likelihood!r}")
    if (data is None) == (latent is None):
        raise ValueError(
            "--latent must say how many latents the decoder has, or --data name a file of points (or, with --encoder, "
            f"of data), and not both; got {'neither' if data is None else 'both'}"
        )
    if encoder is not None and data is None:
        raise ValueError("--encoder needs --data, the file of data that it encodes")
    decoder = resolve_decoder(load_object(name), name)
    weighs = Bernoulli() if likelihood == "bernoulli" else None
    if data is None:
        assert latent is not None
        return Subject(name, decoder, latent, weighs, beta=beta)
    rows = read_array(data, points)
    kinds = {value.dtype for value in decoder.parameters()} if isinstance(decoder, torch.nn.Module) else set()
    rows = rows.to(kinds.pop()) if len(kinds) == 1 else rows
    if encoder is None:
        return Subject(name, decoder, rows[0].numel(), weighs, beta=beta, z=rows)
    encode = resolve_decoder(load_object(encoder), encoder)
    with torch.no_grad():
        mean, _ = encode_data(encode, rows[:1])
    assert mean is not None
    return Subject(name, decoder, mean.shape[1], weighs, encode, beta, x=rows)


def resolve_decoder(found: Any, name: str) -> Any:
    """A decoder itself, or what a function or class without arguments returns.

    >>> resolve_decoder(lambda: torch.sin, "mine:make") is torch.sin
    True
    """
    if isinstance(found, torch.nn.Module):
        return found
    if isinstance(found, type) or (
        getattr(found, "__code__", None) is not None and not found.__code__.co_argcount
    ):
        found = found()
    if not callable(found):
        raise ValueError(f"{name} must be a decoder or make one, got {type(found).__name__}")
    return found
