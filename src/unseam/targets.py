"""What can be inspected from the command line: a run's members, or a decoder of the user's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unseam.choices import load_object
from unseam.data import World, load, split
from unseam.inspection import Inspection, inspect
from unseam.models import Bernoulli
from unseam.training import Ensemble
from unseam.training import load as load_run
from unseam.trial import Trial

__all__ = [
    "called",
    "Inspected",
    "check_rows",
    "imported",
    "inspect_own",
    "inspect_run",
    "read_array",
    "run_world",
    "spread",
    "unseen",
]

# Values of a file that are looked at at once: 16 MB in single precision.
_AT_ONCE = 2**22


class Inspected(NamedTuple):
    """One inspected decoder, with a name to show it by."""

    name: str
    found: Inspection


def inspect_run(
    path: Path,
    *,
    points: int = 1000,
    members: list[int] | None = None,
    seed: int = 0,
    root: str | None = None,
) -> Iterator[Inspected]:
    """Inspect the members of a run at the posterior means of items of their world.

    Items come from the part that was not trained on, where the trials held one out.

    Args:
        path: folder of the run.
        points: number of items.
        members: which members; all by default.
        seed: of the choice of items and of the random baselines.
        root: file or folder of the data, where the world is read from files that have moved since.
    """
    ensemble = load_run(path)
    chosen = list(range(len(ensemble))) if members is None else members
    if absent := [member for member in chosen if not 0 <= member < len(ensemble)]:
        raise ValueError(f"member must lie in [0, {len(ensemble)}), got {absent[0]}")
    worlds: dict[tuple[object, ...], World] = {}
    for member in chosen:
        model = ensemble[member]
        trial = ensemble.trials[member]
        key = (trial.world, trial.world_options)
        if key not in worlds:
            worlds[key] = run_world(trial, root)
        generator = torch.Generator().manual_seed(seed)
        x = worlds[key].images(unseen(trial, len(worlds[key]), points, generator))
        found = inspect(
            model.decoder,
            encoder=model.encode,
            x=x.to(next(model.parameters()).dtype),
            likelihood=model.likelihood,
            beta=trial.beta if trial.objective_choice.weighs_kl else 1.0,
            generator=generator,
        )
        yield Inspected(_name(ensemble, member), found)


def inspect_own(
    name: str,
    data: Path,
    *,
    encoder: str | None = None,
    points: int = 1000,
    latents: int | None = None,
    beta: float = 1.0,
    likelihood: str | None = None,
    seed: int = 0,
) -> Inspected:
    """Inspect a decoder that can be imported, at points from a file.

    Args:
        name: ``package.module:function``: a decoder, or a function or class that makes one when called without
            arguments.
        data: file of points (batch, latent); of data (batch, *data) where an encoder is given. Every row must be
            finite, also those that are not used.
        encoder: ``package.module:function``, x -> (mean, variance).
        points: number of rows to use, spread over the file.
        latents: sample that many latents, for decoders with thousands.
        beta: weight of the KL term in training.
        likelihood: ``bernoulli`` where the decoder returns logits; by default every output counts alike.
        seed: of baselines and probes.
    """
    decoder = called(imported(name), name)
    rows = read_array(data, points)
    kinds = {value.dtype for value in decoder.parameters()} if isinstance(decoder, torch.nn.Module) else set()
    rows = rows.to(kinds.pop()) if len(kinds) == 1 else rows
    given: dict[str, Any] = {"z": rows}
    if encoder is not None:
        given = {"encoder": called(imported(encoder), encoder), "x": rows}
    if likelihood not in (None, "gaussian", "bernoulli"):
        raise ValueError(f"likelihood must be gaussian or bernoulli, got {likelihood!r}")
    given["likelihood"] = Bernoulli() if likelihood == "bernoulli" else None
    generator = torch.Generator().manual_seed(seed)
    return Inspected(
        name, inspect(decoder, **given, beta=beta, latents=latents or "all", generator=generator)
    )


def imported(name: str) -> Any:
    """The object that ``package.module:attribute`` names; the current folder is searched too.

    >>> imported("torch.nn:Identity.__name__")
    'Identity'
    """
    return load_object(name)


def read_array(path: Path, points: int | None = None) -> Tensor:
    """Floating-point rows from ``.npy``, ``.npz`` or ``.safetensors`` with one array; nothing can run code.

    Args:
        path: the file; mapped into memory where its format allows, so it may be larger than that.
        points: read no more rows than this, spread over the file; all rows are checked in any case.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; give a .npy, .npz or .safetensors file")
    if path.suffix not in (".npy", ".npz", ".safetensors"):
        raise ValueError(f"{path} must end in .npy, .npz or .safetensors")
    try:
        arrays = _arrays(path)
    except Exception as error:
        # each format has errors of its own for a file that stops early or is another format
        raise ValueError(f"{path} is truncated or damaged, or holds objects: {error}") from None
    if len(arrays) != 1:
        raise ValueError(f"{path} must hold one array, got {', '.join(sorted(arrays)) or 'none'}")
    (rows,) = arrays.values()
    check_rows(rows, str(path))
    rows = rows if points is None else spread(rows, points)
    return rows if rows.dtype.is_floating_point else rows.float()


def check_rows(rows: Tensor, name: str) -> None:
    """Refuse what is not rows (batch, ...) of finite values, a bounded part at a time.

    >>> check_rows(torch.tensor([[0.0], [float("nan")], [1.0]]), "x.npy")
    Traceback (most recent call last):
    ValueError: x.npy must be finite, got NaN or infinite values in 1 of 3 rows, first in row 1 (counted from 0)
    """
    if rows.ndim < 2 or not rows.numel():
        raise ValueError(f"{name} must hold rows (batch, ...), got shape {tuple(rows.shape)}")
    if not rows.dtype.is_floating_point:
        return
    size = max(1, _AT_ONCE // rows[0].numel())
    sound = torch.empty(len(rows), dtype=torch.bool, device=rows.device)
    for part, found in zip(rows.split(size), sound.split(size), strict=True):
        torch.all(part.flatten(1).isfinite(), 1, out=found)
    bad = (~sound).nonzero().flatten()
    if len(bad):
        raise ValueError(
            f"{name} must be finite, got NaN or infinite values in {len(bad)} of {len(rows)} rows, "
            f"first in row {int(bad[0])} (counted from 0)"
        )


def spread(rows: Tensor, points: int) -> Tensor:
    """At most so many rows, evenly spread over those given.

    >>> spread(torch.arange(10.0)[:, None], 3).flatten()
    tensor([0., 4., 9.])
    """
    if len(rows) <= points:
        return rows
    return rows[torch.linspace(0, len(rows) - 1, points, dtype=torch.float64).round().long()]


def _arrays(path: Path) -> dict[str, Tensor]:
    """All arrays of a file, by name."""
    import numpy as np
    from safetensors.torch import load_file

    if path.suffix == ".safetensors":
        return load_file(path)
    if path.suffix == ".npy":
        # mapped copy on write: what is never written to is never read whole, and torch wants writable memory
        return {"": torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False))}
    with np.load(path, allow_pickle=False) as held:
        return {key: torch.from_numpy(held[key]) for key in held.files}


def unseen(trial: Trial, items: int, points: int, generator: torch.Generator) -> Tensor:
    """Indices of items to measure on: of the test part where the trial held one out, else of all.

    >>> index = unseen(Trial(train_fraction=0.8), 1000, 50, torch.Generator().manual_seed(0))
    >>> len(index), len(set(index.tolist()) & set(split(1000, (0.8, 0.1, 0.1))[0].tolist()))
    (50, 0)
    """
    held = torch.arange(items)
    if trial.train_fraction < 1.0:
        rest = (1.0 - trial.train_fraction) / 2
        held = split(items, (trial.train_fraction, rest, rest), seed=trial.split_seed)[2]
    if len(held) <= points:
        return held
    return held[torch.randperm(len(held), generator=generator)[:points]]


def run_world(trial: Trial, root: str | None) -> World:
    """The world of a trial; ``root`` says where its files are now.

    >>> len(run_world(Trial(world="linear", world_options={"size": 10}), None))
    10
    """
    options: dict[str, Any] = dict(trial.world_options)
    return load(trial.world, **(options | ({} if root is None else {"root": root})))


def called(found: Any, name: str) -> Any:
    """A decoder itself, or what a maker of one returns.

    >>> called(lambda: torch.sin, "mine:make") is torch.sin
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


def _name(ensemble: Ensemble, member: int) -> str:
    trial = ensemble.trials[member]
    return f"member {member} ({trial.posterior}, β {trial.beta:g}, seed {trial.seed})"
