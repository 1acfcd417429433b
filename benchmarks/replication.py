"""Print what replicates where theory says what must, and what it costs, as the tables of docs/replication.md."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

import unseam
from unseam.metrics import mcc
from unseam.papers.allen2024._decoders import polar
from unseam.papers.allen2024.theorem2 import sphere
from unseam.replicate import Replication, replicate_seeds
from unseam.theory import linear_vae, rotated

__all__ = ["linear_models", "main", "rotation", "signed_permutation", "subject_of"]

NOISE = 0.1
MEMBERS, ITEMS = 10, 500
LINEAR = unseam.Trial(
    world="linear",
    latent=2,
    encoder_widths=(),
    decoder_widths=(),
    likelihood="gaussian",
    beta=1e-2,
    learning_rate=2e-2,
    steps=4000,
)
CURVED = unseam.Trial(
    latent=2,
    encoder_widths=(32, 32),
    decoder_widths=(32, 32),
    likelihood="gaussian",
    beta=1e-2,
    learning_rate=2e-3,
    steps=6000,
    train_fraction=0.9,
)
SIZES = ((10, 10, 500, 64), (10, 10, 2000, 64), (10, 5, 500, 64), (10, 20, 500, 64), (10, 40, 500, 64),
         (20, 10, 500, 64), (40, 10, 500, 64), (100, 10, 500, 64), (10, 10, 500, 4096))  # fmt: skip
"""Members, latents, items and values per item."""
Turn = Callable[[int, torch.Generator], Tensor]


def rotation(latent: int, generator: torch.Generator) -> Tensor:
    """A random orthogonal matrix."""
    return torch.linalg.qr(torch.randn(latent, latent, generator=generator, dtype=torch.float64)).Q


def signed_permutation(latent: int, generator: torch.Generator) -> Tensor:
    """A random permutation with random signs."""
    signs = torch.randint(2, (latent,), generator=generator).double() * 2 - 1
    return torch.eye(latent, dtype=torch.float64)[torch.randperm(latent, generator=generator)] * signs


def linear_models(
    eigenvalues: Sequence[float], latent: int, members: int, *, full: bool, generator: torch.Generator
) -> tuple[list[unseam.Subject], Tensor]:
    """Optima of linear VAEs, unique up to signs and order, or up to rotation with a full covariance, and data."""
    covariance = torch.diag(torch.tensor(eigenvalues, dtype=torch.float64))
    best = linear_vae(covariance, latent, noise=NOISE)
    turn: Turn = rotation if full else signed_permutation
    models = []
    for place in range(members):
        one = rotated(best, turn(latent, generator), covariance, noise=NOISE)
        models.append(subject_of(one.weights, one.encoder, one.covariance, f"model {place}"))
    x = torch.randn(500, len(covariance), generator=generator, dtype=torch.float64) @ covariance.sqrt()
    return models, x


def subject_of(weights: Tensor, encoder: Tensor, covariance: Tensor, name: str) -> unseam.Subject:
    """A linear decoder and encoder as a subject."""

    def encode(x: Tensor) -> tuple[Tensor, Tensor]:
        return x @ encoder.mT, covariance.diagonal().expand(len(x), -1)

    return unseam.Subject(name, lambda z: z @ weights.mT, weights.shape[1], encoder=encode)


def main() -> None:
    """Train, compare, print."""
    print("| models | theory | replication | of latents that return only together |\n|---|---|---|---|")
    for line in theory():
        print(line, flush=True)
    print("\n| members | latents | items | values per item | CPU seconds, one core |\n|---|---|---|---|---|")
    torch.set_num_threads(1)
    for size in SIZES:
        print(
            "| " + " | ".join(f"{value:,}".replace(",", " ") for value in size) + f" | {cost(*size):.2g} |",
            flush=True,
        )


def theory() -> Iterator[str]:
    """One line per kind of models."""
    for name, eigenvalues, full, expected in (
        ("distinct variances, diagonal posterior", (5.0, 3.0, 2.0, 1.0), False, "all return"),
        ("distinct variances, full covariance", (5.0, 3.0, 2.0, 1.0), True, "none, but their subspace"),
        ("equal variances", (2.0, 2.0, 2.0, 1.0), True, "none, but their subspace"),
    ):
        generator = torch.Generator().manual_seed(0)
        found = unseam.replication(*linear_models(eigenvalues, 3, MEMBERS, full=full, generator=generator))
        yield _line(f"{MEMBERS} linear VAEs in closed form, {name}", expected, found)
    for posterior, expected in (("diagonal", "all return"), ("full", "none, but their subspace")):
        run = _trained(dataclasses.replace(LINEAR, posterior=posterior))
        (found,) = replicate_seeds([run])
        x, factors = (part[:ITEMS] for part in _sample(run.world_of(0)))
        right = mcc(run.ensemble.encode(x).mean, factors).score
        label_free = unseam.score(run, ["udr"])["score"]
        more = f", MCC {_range(right.tolist())}, UDR {_range(label_free.tolist())}"
        yield _line(
            f"{MEMBERS} linear VAEs trained on `linear`, {posterior} posterior", expected, found, more
        )
    for name, decoder, expected in (
        ("polar", polar(0.5), "all return"),
        ("stereographic", sphere(1.0), "none: every rotation has orthogonal columns"),
    ):
        generator = torch.Generator().manual_seed(0)
        z = torch.randn(20_000, 2, generator=generator)
        x = decoder(z)
        x = x + 0.05 * torch.randn(x.shape, generator=generator)
        (found,) = replicate_seeds([_trained(CURVED, data=x.numpy())])
        likeness = found.recurrence.likeness.abs()
        others = likeness[likeness < 1 - 1e-9].median() if likeness.numel() else float("nan")
        yield _line(
            f"{MEMBERS} VAEs of data of the {name} decoder, diagonal posterior",
            expected,
            found,
            f", median likeness {others:.2f}",
        )


def _trained(trial: unseam.Trial, data: np.ndarray | None = None) -> unseam.Run:
    trials = [dataclasses.replace(trial, seed=seed) for seed in range(MEMBERS)]
    given = {} if data is None else {"data": data}
    return unseam.Run.of(unseam.train(trials, device="cpu", progress=False, **given), **given)


def _sample(world: unseam.data.World) -> tuple[Tensor, Tensor]:
    sample = world.sample(ITEMS, torch.Generator().manual_seed(0))
    return sample.x, sample.factors


def _line(name: str, expected: str, found: Replication, more: str = "") -> str:
    score = found.score
    number = f"{score.value:.2f} [{score.lower:.2f}, {score.upper:.2f}]{more}"
    groups = found.recurrence.groups
    together = (
        f"{len(groups)} groups, each in {_range([int(g.found.sum()) + 1 for g in groups], 0)} models"
        if groups
        else "none"
    )
    return f"| {name} | {expected} | {number} | {together} |"


def _range(values: Sequence[float], places: int = 2) -> str:
    low, high = (f"{end:.{places}f}" for end in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def cost(members: int, latent: int, items: int, values: int) -> float:
    """Processor seconds of one comparison of networks with one hidden layer."""
    generator = torch.Generator().manual_seed(0)
    hidden = 64 if values == 64 else 256
    models = []
    for place in range(members):
        first = torch.randn(latent, hidden, generator=generator) / latent**0.5
        last = torch.randn(hidden, values, generator=generator) / hidden**0.5
        back = torch.randn(values, latent, generator=generator) / values**0.5
        models.append(
            unseam.Subject(
                f"model {place}",
                lambda z, first=first, last=last: torch.tanh(z @ first) @ last,
                latent,
                encoder=lambda x, back=back: (x @ back, 0.1 + 0 * (x @ back)),
            )
        )
    x = torch.randn(items, values, generator=generator)
    begun = time.process_time()
    unseam.replication(models, x)
    return time.process_time() - begun


if __name__ == "__main__":
    main()
