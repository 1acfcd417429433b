"""What one explorer shows: models, the items of their world, and what the models make of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from unseam.adapters import wrap
from unseam.charts import Look, look_of
from unseam.data import ArrayWorld, World, grid_factors, grid_index
from unseam.geometry import active_latents, haar_dto, pullback
from unseam.run import Cache, Run, model_title, open_run
from unseam.subject import Subject
from unseam.training import Ensemble
from unseam.trial import Trial

__all__ = ["Codes", "Exhibit", "exhibit_decoder", "exhibit_run", "open_exhibit"]

T = TypeVar("T")

# RMS column norm, relative to the largest, from which a latent counts as active where there is no encoder.
_ACTIVE = 0.01
# Points of N(0, I) at which a decoder without an encoder is looked at, at most, and derivatives in all: seconds for a
# convolutional decoder, however many latents it has.
_PROBES, _DERIVATIVES = 64, 512
# Most latents with a slider each: at every point the page has the column of each of them.
_LATENTS = 512


class Codes(NamedTuple):
    """Where a model puts the items of the world."""

    mean: Tensor
    """(item, latent), in double precision on the host."""
    covariance: Tensor
    """(item, latent, latent)."""
    active: tuple[int, ...]
    """Latents that carry information, the most informative first."""
    limit: float
    """Magnitude that no slider needs to pass."""


class Exhibit:
    """Models side by side, with what is computed of each at most once, whichever thread asks.

    Args:
        subjects: the models.
        look: how their data are shown.
        world: whose items they encode, or ``None``.
        index: items of the world that are encoded and shown (item,).
        title: what is explored.
        source: Python expression that a snippet loads the models by.
        betas: for each subject the position of those that differ from it in β (and seed) alone.
        remarks: what the page says of the models as a whole, such as that they are unfinished.
        run: whose members the subjects are, in its order, or ``None``.

    >>> from unseam.charts import Look, look_of
    >>> exhibit = Exhibit([Subject("mine", lambda z: 2 * z, 2)], Look((2,), -6.0, 6.0))
    >>> exhibit.codes(0).active, exhibit.codes(0).limit
    ((0, 1), 3.0)
    """

    def __init__(
        self,
        subjects: list[Subject],
        look: Look,
        *,
        world: World | None = None,
        index: Tensor | None = None,
        title: str = "decoder",
        source: str | None = None,
        betas: tuple[tuple[int, ...], ...] | None = None,
        remarks: Sequence[str] = (),
        run: Run | None = None,
    ) -> None:
        self.subjects, self.look, self.world = subjects, look, world
        self.index = torch.arange(0) if index is None else index
        self.title, self.source, self.remarks, self.run = title, source, tuple(remarks), run
        self.betas = betas if betas is not None else tuple((k,) for k in range(len(subjects)))
        self._cache = Cache()

    def once(self, key: object, compute: Callable[[], T]) -> T:
        """What ``compute`` returned to the first that asked for the key, in whichever thread."""
        return self._cache.once(key, compute)

    @property
    def items(self) -> Tensor:
        """The items that are shown (item, *data)."""
        world = self._inhabited()
        return self.once("items", lambda: world.images(self.index.to(world.device)).cpu())

    @property
    def factors(self) -> Tensor:
        """Factors of those items (item, factor)."""
        world = self._inhabited()
        return self.once("factors", lambda: world.factors[self.index.to(world.factors.device)].cpu())

    @property
    def factor_names(self) -> tuple[str, ...]:
        """Names of the world's factors, none where there is no world."""
        return () if self.world is None else self.world.factor_names

    @property
    def cyclic(self) -> tuple[bool, ...]:
        """Of each factor whether its last value is next to its first: hues, and the angles of dSprites."""
        world = self.world
        if world is None:
            return ()
        turns = "dsprites" in (world.name, (world.twin_of or "").lower())
        return tuple(
            size > 0 and (name.endswith("hue") or (turns and name == "orientation"))
            for name, size in zip(world.factor_names, world.factor_sizes, strict=True)
        )

    @property
    def change_lead(self) -> str:
        """What the colours of a change of the picture mean."""
        signs = "vermilion brightens, blue darkens"
        if self.look.is_coloured:
            signs = "grey is unchanged, and a colour shows where it increases"
        elif not self.look.is_picture:
            signs = "vermilion raises, blue lowers"
        return f"Effect of an infinitesimal step: {signs}."

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of values of each factor where every combination is one item, in order, else nothing."""
        return self.once("grid", self._grid)

    def item(self, index: int) -> Tensor:
        """One item of the world (*data)."""
        world = self._inhabited()
        if not 0 <= index < len(world):
            raise ValueError(f"item must lie in [0, {len(world)}), got {index}")
        return world.images(torch.tensor([index], device=world.device))[0].cpu()

    def item_factors(self, index: int) -> list[float]:
        """Factors of one item."""
        return [float(value) for value in self._inhabited().factors[index]]

    def item_at(self, factors: list[int]) -> int:
        """The item with the given positions on the grid of factors."""
        return int(grid_index(torch.tensor([factors]), self.grid)[0])

    def codes(self, member: int) -> Codes:
        """Codes of the items by one model; without an encoder, only which latents are active."""
        return self.once(("codes", member), lambda: self._encode(self.subjects[member]))

    def random_dto(self, latent: int) -> float:
        """DtO of random rotations of so many latents."""
        generator = torch.Generator().manual_seed(0)
        # one matrix costs the cube of its size, and varies the less the larger it is
        samples = max(200, min(2000, 20_000 // latent))
        return self.once(
            ("haar", latent), lambda: haar_dto(latent, samples=samples, generator=generator).mean
        )

    def encodes(self, member: int) -> bool:
        """Whether one model can encode items of a world."""
        return self.world is not None and self.subjects[member].encoder is not None

    def _grid(self) -> tuple[int, ...]:
        if self.world is None or math.prod(self.world.factor_sizes) != len(self.world):
            return ()
        # in the order of the grid, or an item could not be found by its factors
        factors, sizes = self.world.factors.cpu(), self.world.factor_sizes
        found = torch.equal(factors, grid_factors(torch.arange(len(self.world)), sizes).to(factors.dtype))
        return sizes if found else ()

    def _encode(self, subject: Subject) -> Codes:
        if self.world is None or subject.encoder is None:
            return self._probed(subject)
        parts = [subject.encode(part) for part in self.items.split(256)]
        mean, covariance = (torch.cat(pieces) for pieces in zip(*parts, strict=True))
        spread = float(mean.abs().quantile(0.995)) if mean.numel() < 1 << 24 else float(mean.abs().max())
        if not bool(
            covariance.diagonal(dim1=-2, dim2=-1).any()
        ):  # points have no KL: latents that vary are active
            information = mean.var(0, correction=0)
            active = information > _ACTIVE * information.max()
        else:
            found = active_latents(mean, covariance)
            information, active = found.value, found.active
        return Codes(mean, covariance, _ordered(information, active), float(max(3, math.ceil(spread))))

    def _probed(self, subject: Subject) -> Codes:
        generator = torch.Generator().manual_seed(0)
        points = max(4, min(_PROBES, _DERIVATIVES // subject.latent))
        z = torch.randn(points, subject.latent, generator=generator, dtype=torch.float64)
        metric = pullback(subject.decoder, subject.points(z), likelihood=subject.likelihood)
        norms = metric.diagonal(dim1=-2, dim2=-1).mean(0).sqrt().double().cpu()
        empty = torch.zeros(0, subject.latent, dtype=torch.float64)
        return Codes(
            empty,
            torch.diag_embed(empty),
            _ordered(norms, (norms > 0) & (norms >= _ACTIVE * norms.max())),
            3.0,
        )

    def _inhabited(self) -> World:
        if self.world is None:
            raise ValueError("there is no world whose items could be shown")
        return self.world


def _ordered(value: Tensor, active: Tensor) -> tuple[int, ...]:
    order = value.argsort(descending=True, stable=True).tolist()
    return tuple(k for k in order if bool(active[k]))


def open_exhibit(
    decoder: Any,
    *,
    world: World | str | None = None,
    root: str | None = None,
    points: int = 600,
    data: object = None,
    **options: Any,
) -> Exhibit:
    """The exhibit of whatever :func:`unseam.explore.serve` takes; arguments are its."""
    if points < 2:
        raise ValueError(f"points must be at least 2, got {points}")
    if isinstance(decoder, str | Path) and not str(decoder).endswith(".onnx"):
        decoder, world, data = Run.open(decoder, root=root, world=world, data=data), None, None
    options = {name: value for name, value in options.items() if value is not None}
    if isinstance(decoder, Run | Ensemble):
        if options:
            raise ValueError(f"{next(iter(options))} must be left out beside a run, which has its own")
        return exhibit_run(decoder, points=points, world=world, data=data)
    if data is not None:
        raise ValueError("data must be left out beside a model of your own: give x, the data that it encodes")
    if isinstance(world, str):
        raise ValueError(f"world must be a World beside a decoder of your own, got {world!r}")
    return exhibit_decoder(decoder, world=world, points=points, **options)


def exhibit_run(
    run: Run | Ensemble | str | Path,
    *,
    points: int = 600,
    world: World | str | None = None,
    data: object = None,
) -> Exhibit:
    """The members of a run, with items of their world.

    Args:
        run: the run, its folder, or the ensemble itself.
        points: number of items of the world that are shown.
        world: the data, where ``run`` is a folder or an ensemble and was trained on the user's own.
        data: the same, as an array, a file or a folder.
    """
    run = open_run(run, world, data)
    shown, shape = run.world, run.ensemble.shape
    if shown.shape != shape:
        raise ValueError(f"world must have items of shape {shape}, got {shown.shape}")
    return Exhibit(
        [_member(run, member) for member in range(len(run))],
        _look(shown, points),
        world=shown,
        index=_spread(len(shown), points),
        title=shown.name if run.path is None else str(run.path),
        remarks=run.remarks(),
        source=None if run.path is None else f"unseam.load({str(run.path)!r})",
        betas=_betas(run.trials),
        run=run,
    )


def exhibit_decoder(
    decoder: Any, *, world: World | None = None, points: int = 600, **options: Any
) -> Exhibit:
    """One decoder of anyone's, with an encoder and a world where there are any.

    Args:
        decoder: map from (batch, latent) to (batch, *data) that treats each point on its own; a subject; or any model
            that :func:`unseam.wrap` takes.
        world: whose items the encoder reads.
        points: number of items of the world that are shown.
        options: those of :func:`unseam.wrap` (``latent``, ``encoder``, ``x``, ``likelihood``, ``beta``, ``name``, …);
            ``latent`` may be left out where there are an encoder and a world.

    >>> exhibit = exhibit_decoder(lambda z: z.repeat(1, 3), latent=2)
    >>> exhibit.look.shape, exhibit.encodes(0)
    ((6,), False)
    """
    encoder = options.get("encoder")
    if options.get("latent") is None and world is not None and callable(encoder):
        items = world.images(torch.tensor([0], device=world.device))
        options["latent"] = int(encoder(items)[0].shape[-1])
    subject = wrap(decoder, **options)
    if subject.latent > _LATENTS:
        raise ValueError(
            f"decoder must have at most {_LATENTS} latents to be explored, got {subject.latent}; unseam.inspect and "
            "unseam.report.write sample them"
        )
    if world is None and subject.x is not None:
        world = _world_of(subject.x)
    z = subject.prior(256, torch.Generator().manual_seed(0))
    try:
        outputs = subject.picture(z)
    except Exception as error:
        raise ValueError(
            f"decoder must map (batch, {subject.latent}) to (batch, *data), got an error: {error}"
        ) from error
    if outputs.ndim < 2 or len(outputs) != len(z):
        raise ValueError(
            f"decoder must map (256, {subject.latent}) to (256, *data), got {tuple(outputs.shape)}"
        )
    if not bool(outputs.isfinite().any()):
        raise ValueError(f"decoder must give finite values, got none at {len(z)} points of N(0, I)")
    if world is not None and world.shape != tuple(outputs.shape[1:]):
        what = "x" if world.name == "data" else "world"
        raise ValueError(f"{what} must have items of shape {tuple(outputs.shape[1:])}, got {world.shape}")
    look = look_of(outputs) if world is None else _look(world, points)
    index = None if world is None else _spread(len(world), points)
    return Exhibit([subject], look, world=world, index=index, title=subject.name)


def _world_of(x: Tensor) -> World:
    """Data without known factors as a world."""
    none = torch.zeros(len(x), 0, dtype=torch.long)
    return ArrayWorld(x.detach().float().cpu(), none, name="data", factor_names=(), factor_sizes=())


def _member(run: Run, member: int) -> Subject:
    trial = run.trials[member]
    beta = None if trial.posterior == "point" else trial.beta  # which a dial shows, whatever it weighs
    kind = model_title(trial) if beta is None else f"{model_title(trial)}, β {beta:g}"
    state = f" ({run.standing[member]})" if str(run.standing[member]) else ""
    name = f"{member}: {kind}, seed {trial.seed}{state}"
    return dataclasses.replace(run.subject(member), name=name, beta=beta)


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
