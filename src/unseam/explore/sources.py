"""From a run, an ensemble or a decoder of anyone's to an exhibit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unseam.charts import Look, look_of
from unseam.data import World
from unseam.explore.exhibit import Exhibit
from unseam.explore.subject import Subject
from unseam.models import AbstractLikelihood
from unseam.targets import run_world
from unseam.training import Ensemble
from unseam.training import load as load_run
from unseam.trial import Trial

__all__ = ["exhibit_decoder", "exhibit_run"]


def exhibit_run(
    run: Path | Ensemble, *, root: str | None = None, points: int = 600, world: World | None = None
) -> Exhibit:
    """The members of a run, with items of their world.

    Args:
        run: folder of the run, or the ensemble itself.
        root: file or folder of the data, where it has moved.
        points: number of items that stand for the world.
        world: in place of the one that the trials name.
    """
    ensemble = load_run(run) if isinstance(run, Path) else run
    trials = ensemble.trials
    known = world if world is not None else run_world(trials[0], root)
    if known.shape != ensemble.shape:
        raise ValueError(f"world must have items of shape {ensemble.shape}, got {known.shape}")
    strangers = {trial.world for trial in trials} - {trials[0].world}
    if world is None and strangers:
        raise ValueError(
            f"members must share a world to be explored side by side, got {trials[0].world} and {strangers.pop()}"
        )
    subjects = [_member(ensemble, member) for member in range(len(ensemble))]
    return Exhibit(
        subjects,
        _look(known, points),
        world=known,
        index=_spread(len(known), points),
        title=str(run) if isinstance(run, Path) else known.name,
        source=f"unseam.load({str(run)!r})" if isinstance(run, Path) else None,
        betas=_betas(trials),
    )


def exhibit_decoder(
    decoder: Callable[[Tensor], Tensor],
    *,
    latent: int | None = None,
    encoder: Callable[[Tensor], Any] | None = None,
    world: World | None = None,
    likelihood: AbstractLikelihood | None = None,
    beta: float | None = None,
    name: str = "decoder",
    points: int = 600,
) -> Exhibit:
    """One decoder of anyone's, with an encoder and a world where there are any.

    Args:
        decoder: map from (batch, latent) to (batch, *data) that treats each point on its own.
        latent: number of latents; where there are an encoder and a world, theirs.
        encoder: x -> (mean, variance or covariance).
        world: whose items the encoder reads.
        likelihood: what the decoder's outputs mean; by default they are the data.
        beta: weight of the KL term in training.
        name: what the decoder is called on the page.
        points: number of items that stand for the world.

    >>> exhibit = exhibit_decoder(lambda z: z.repeat(1, 3), latent=2)
    >>> exhibit.look.shape, exhibit.encodes(0)
    ((6,), False)
    """
    if not callable(decoder):
        raise ValueError(f"decoder must be a callable, an ensemble or the folder of a run, got {decoder!r}")
    if isinstance(decoder, torch.nn.Module):
        decoder = decoder.eval()
    if latent is None:
        latent = _latent(encoder, world)
    if latent < 1:
        raise ValueError(f"latent must be at least 1, got {latent}")
    subject = Subject(name, decoder, latent, likelihood, encoder, beta)
    z = torch.randn(256, latent, generator=torch.Generator().manual_seed(0))
    try:
        outputs = subject.picture(z)
    except Exception as error:
        raise ValueError(
            f"decoder must map (batch, {latent}) to (batch, *data), got an error: {error}"
        ) from error
    if not isinstance(outputs, Tensor) or outputs.ndim < 2 or len(outputs) != len(z):
        raise ValueError(
            f"decoder must map (256, {latent}) to (256, *data), got "
            f"{tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__}"
        )
    if not bool(outputs.isfinite().any()):
        raise ValueError(f"decoder must give finite values, got none at {len(z)} points of N(0, I)")
    if world is not None and world.shape != tuple(outputs.shape[1:]):
        raise ValueError(f"world must have items of shape {tuple(outputs.shape[1:])}, got {world.shape}")
    look = look_of(outputs) if world is None else _look(world, points)
    index = None if world is None else _spread(len(world), points)
    return Exhibit([subject], look, world=world, index=index, title=name)


def _latent(encoder: Callable[[Tensor], Any] | None, world: World | None) -> int:
    if encoder is None or world is None:
        raise ValueError("latent must say how many latents the decoder has, where no encoder and world can")
    return int(encoder(world.images(torch.tensor([0], device=world.device)))[0].shape[-1])


def _member(ensemble: Ensemble, member: int) -> Subject:
    model, trial = ensemble[member], ensemble.trials[member]
    named = {"diagonal": f"β-VAE, β {trial.beta:g}", "full": f"full covariance, β {trial.beta:g}"}
    kind = named.get(trial.posterior, "autoencoder")
    if trial.objective not in ("beta_elbo", "autoencoder"):
        kind += f", {trial.objective}"
    name = f"{member}: {kind}, seed {trial.seed}"
    beta = None if trial.posterior == "point" else trial.beta
    return Subject(name, model.decoder, trial.latent, model.likelihood, model.encode, beta)


def _betas(trials: tuple[Trial, ...]) -> tuple[tuple[int, ...], ...]:
    """For each member those that differ from it in β alone, by β; its own seed where that was trained."""
    bare = [dataclasses.replace(trial, beta=1.0, seed=0) for trial in trials]
    found: list[tuple[int, ...]] = []
    for place, (own, trial) in enumerate(zip(bare, trials, strict=True)):
        if trial.posterior == "point":  # it has no KL term to weight
            found.append((place,))
            continue
        chosen: dict[float, int] = {}
        for member, other in enumerate(trials):
            if bare[member] == own and (other.beta not in chosen or other.seed == trial.seed):
                chosen[other.beta] = member
        found.append(tuple(chosen[beta] for beta in sorted(chosen)))
    return tuple(found)


def _look(world: World, points: int) -> Look:
    return look_of(world.images(_spread(len(world), points).to(world.device)))


def _spread(size: int, points: int) -> Tensor:
    """Items drawn without replacement, the same ones every time: a grid's order would show only a part."""
    if size <= points:
        return torch.arange(size)
    return torch.randperm(size, generator=torch.Generator().manual_seed(0))[:points].sort().values
