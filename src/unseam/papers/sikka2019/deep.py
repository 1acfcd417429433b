"""The deep networks of §V and App. C: trained over β and seeds, measured all at once."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from unseam.data import ArrayWorld
from unseam.papers.artefact import Workplace
from unseam.theory import inference_error
from unseam.training import Ensemble, train
from unseam.trial import Trial

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Networks", "Terms", "measured", "terms"]

# Values of a decoder's outputs held at once, over all members: 256 MiB as float32.
AT_ONCE = 1 << 26
# A latent whose posterior mean varies less over the data is counted as dead.
ACTIVE = 0.01


@dataclass(frozen=True)
class Networks:
    """Which networks are trained, how many and how long (App. C).

    Attributes:
        betas: weights of the KL term, rising.
        seeds: random initialisations for each of them.
        epochs: passes over the examples.
        batch_sizes: items an update, unstated in the paper; all networks are trained anew for each.
        widths: of the encoder's hidden layers; the decoder's are the same backwards.
        learning_rate: of Adam.
        draws: samples of each posterior that the reconstruction objective is averaged over.
        together: members trained as one ensemble, which bounds memory.
    """

    betas: tuple[float, ...]
    seeds: int = 100
    epochs: int = 1000
    batch_sizes: tuple[int, ...] = (500,)
    widths: tuple[int, ...] = (256, 200, 200)
    learning_rate: float = 1e-3
    draws: int = 4
    together: int = 1000

    def trials(self, world: ArrayWorld, batch_size: int) -> list[Trial]:
        """One trial for each β and seed; neighbouring ones share the seed."""
        first = Trial(
            world=world.name,
            world_options=tuple(world.options.items()),  # type: ignore[arg-type]
            encoder_widths=self.widths,
            decoder_widths=self.widths[::-1],
            encoder_activation="tanh",
            decoder_activation="tanh",
            # the paper's networks were built with TensorFlow, whose layers start so
            initialisation="glorot",
            latent=len(world.factor_names),
            likelihood="gaussian",
            steps=max(1, self.epochs * len(world) // batch_size),
            batch_size=batch_size,
            learning_rate=self.learning_rate,
        )
        return [
            dataclasses.replace(first, beta=beta, seed=seed)
            for seed in range(self.seeds)
            for beta in self.betas
        ]


class Terms(NamedTuple):
    """Terms of every member (member,), means over the items in nats."""

    elbo: Tensor
    reconstruction: Tensor
    """E_q log p(x|z), sums over data dimensions."""
    kl: Tensor
    tie: Tensor
    """True inference error, latents as they are."""
    tie_aligned: Tensor
    """True inference error, latents in the signs and order that suit the sources best."""
    active: Tensor
    """Latents whose posterior mean varies over the items."""


def terms(ensemble: Ensemble, world: ArrayWorld, *, draws: int, generator: torch.Generator) -> Terms:
    """Terms of every member over all items of a world, in memory that does not grow with members × items × data.

    As in App. C: the reconstruction objective is a mean over samples of the posteriors (the same noise for every
    member), the KL term is exact, the inference error is that of the exact posterior of the sources.

    Args:
        ensemble: members with a Gaussian likelihood of unit variance and diagonal posteriors.
        world: items with an exact ``posterior`` of as many sources as there are latents.
        draws: samples of each posterior.
        generator: of their noise, on the CPU.

    >>> from unseam.data import load
    >>> world = load("mixture", digits=2, size=10)
    >>> trials = Networks(betas=(1.0, 2.0), seeds=1, epochs=1, widths=(4,)).trials(world, 10)
    >>> ensemble = train(trials, world=world, device="cpu")
    >>> terms(ensemble, world, draws=1, generator=torch.Generator().manual_seed(0)).tie.shape
    torch.Size([2])
    """
    if world.posterior is None:
        raise ValueError(f"world must have an exact posterior, got {world.name}")
    x = world.images(torch.arange(len(world), device=world.device))
    mean, variance = ensemble.encode(x)
    kl = (mean.square() + variance - variance.log() - 1).double().sum(-1).mean(-1) / 2
    error = _squared_error(ensemble, x, mean, variance.sqrt(), draws, generator)
    reconstruction = -(math.prod(world.shape) * math.log(2 * math.pi) + error) / 2
    truth = world.posterior(x.double())
    apart = inference_error(mean, variance, truth.mean, truth.covariance)
    active = (mean.var(dim=1) > ACTIVE).sum(-1)
    return Terms(reconstruction - kl, reconstruction, kl, apart.raw, apart.aligned, active)


def _squared_error(
    ensemble: Ensemble, x: Tensor, mean: Tensor, scale: Tensor, draws: int, generator: torch.Generator
) -> Tensor:
    """Mean over items and draws of ‖x − decoded sample‖² (member,), some items at a time."""
    noise = torch.randn(len(x), draws, mean.shape[-1], generator=generator).to(mean)
    rows = max(1, AT_ONCE // (len(ensemble) * draws * x[0].numel()))
    total = torch.zeros(len(ensemble), dtype=torch.float64, device=mean.device)
    for part in torch.arange(len(x)).split(rows):
        some = slice(int(part[0]), int(part[-1]) + 1)
        z = mean[:, some, None] + scale[:, some, None] * noise[some]
        output = ensemble.decode(z.flatten(1, 2)).flatten(2).unflatten(1, (len(part), draws))
        target = x[some].to(output).flatten(1)[:, None]
        total += output.sub_(target).square_().sum(-1).double().sum((1, 2))
    return total / (len(x) * draws)


def measured(
    networks: Networks,
    seen: ArrayWorld,
    fresh: ArrayWorld,
    place: Workplace,
    *,
    look: Callable[[Ensemble, ArrayWorld], Mapping[str, Tensor]] | None = None,
) -> pd.DataFrame:
    """Train all networks and measure them, on the items they were trained on and on fresh ones.

    Args:
        networks: which.
        seen: the items they are trained on.
        fresh: other items of the same kind.
        place: where.
        look: what else to measure of an ensemble, as columns (member,).

    Returns:
        One row a network: ``batch``, ``beta``, ``seed``, the fields of :class:`Terms`, the same with ``fresh_`` before
        them, and the columns of ``look``.

    >>> from unseam.data import load
    >>> seen, fresh = (load("mixture", digits=2, size=10, seed=seed) for seed in (0, 1))
    >>> networks = Networks(betas=(1.0,), seeds=2, epochs=1, widths=(4,), batch_sizes=(10,))
    >>> len(measured(networks, seen, fresh, Workplace(torch.device("cpu"))))
    2
    """
    import pandas as pd

    rows = []
    for name, trials in _parts(networks, seen):
        ensemble = train(
            trials,
            world=seen,
            device=place.device,
            out=None if place.folder is None else place.folder / name,
            resume=place.folder is not None,
            every=max(1, trials[0].steps // 20),
            checkpoint_seconds=60.0,
            progress=place.progress,
        )
        random = torch.Generator().manual_seed(1)
        here = terms(ensemble, seen, draws=networks.draws, generator=random)._asdict()
        there = terms(ensemble, fresh, draws=networks.draws, generator=random)._asdict()
        columns = here | {f"fresh_{key}": value for key, value in there.items() if key != "active"}
        columns |= {} if look is None else look(ensemble, seen)
        who = {
            "batch": trials[0].batch_size,
            "beta": [trial.beta for trial in trials],
            "seed": [trial.seed for trial in trials],
        }
        rows.append(pd.DataFrame(who | {key: value.cpu().numpy() for key, value in columns.items()}))
    return pd.concat(rows, ignore_index=True)


def _parts(networks: Networks, world: ArrayWorld) -> Iterator[tuple[str, list[Trial]]]:
    """Trials that train together, with the name of their folder."""
    for batch_size in networks.batch_sizes:
        trials = networks.trials(world, batch_size)
        for start in range(0, len(trials), networks.together):
            yield f"batch{batch_size}-{start}", trials[start : start + networks.together]
