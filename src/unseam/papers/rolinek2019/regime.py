"""The polarised regime of trained members: Δ_KL of Eq. 30, all members at once."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from unseam.geometry import gaussian_kl
from unseam.papers.measures import Unseen
from unseam.training import Ensemble

__all__ = ["LatentTerms", "latent_terms", "least_error", "missing", "regime_errors"]


def regime_errors(ensemble: Ensemble, unseen: Unseen) -> Tensor:
    """Δ_KL (member,) of Eq. 30 over the validation items: :func:`unseam.geometry.delta_kl` of every member.

    >>> import unseam
    >>> world = unseam.data.load("linear", size=20)
    >>> trial = unseam.Trial(world="linear", likelihood="gaussian", latent=2, steps=1, batch_size=4)
    >>> regime_errors(unseam.train(trial, world=world), Unseen(world, torch.arange(9), torch.arange(9), 3, True)).shape
    torch.Size([1])
    """
    terms = latent_terms(ensemble, unseen)
    return missing(terms.kl, terms.half, least_error(terms.kl, terms.half))


class LatentTerms(NamedTuple):
    """Means over the validation items, (member, latent) each."""

    kl: Tensor
    """In nats."""
    half: Tensor
    """σ²/2, which Eq. 10 leaves out of an active latent's KL."""


def latent_terms(ensemble: Ensemble, unseen: Unseen) -> LatentTerms:
    """What each latent costs, in double precision on the host.

    >>> import unseam
    >>> world = unseam.data.load("linear", size=20)
    >>> trial = unseam.Trial(world="linear", likelihood="gaussian", latent=2, steps=1, batch_size=4)
    >>> unseen = Unseen(world, torch.arange(9), torch.arange(9), 3, True)
    >>> latent_terms(unseam.train(trial, world=world), unseen).kl.shape
    torch.Size([1, 2])
    """
    mean, variance = ensemble.encode(unseen.world.images(unseen.validation[: unseen.points]))
    costs = gaussian_kl(mean, variance).double()
    return LatentTerms(*(values.mean(1).cpu() for values in (costs, variance.double() / 2)))


def least_error(kl: Tensor, half: Tensor) -> Tensor:
    """Active latents (member, latent) under the partition for which Eq. 10 misses least.

    >>> least_error(torch.tensor([[2.0, 0.01]]), torch.tensor([[0.1, 0.49]]))
    tensor([[ True, False]])
    """
    return half < kl


def missing(kl: Tensor, half: Tensor, active: Tensor) -> Tensor:
    """Δ_KL (member,) where the ``active`` latents (member, latent) count as such: all that Eq. 10 misses is positive.

    >>> missing(torch.tensor([[2.0, 0.5]]), torch.tensor([[0.1, 0.5]]), torch.tensor([[True, False]]))
    tensor([0.2400])
    """
    return torch.where(active, half, kl).sum(1) / kl.sum(1)
