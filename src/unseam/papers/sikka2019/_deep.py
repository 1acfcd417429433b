"""The deep networks of Figures 2 and 3 (§V and App. C): trained over β and seeds, measured, judged and drawn."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseam.data import ArrayWorld
from unseam.drawing import COLOURS
from unseam.papers.artefact import Finding, Workplace
from unseam.theory import inference_error
from unseam.training import Ensemble, train
from unseam.trial import Trial

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "TITLES",
    "Curve",
    "Networks",
    "Terms",
    "curve",
    "draw_bands",
    "find_on_curves",
    "measure_networks",
    "measure_terms",
]

# Values of a decoder's outputs in memory at once, over all members: 256 MiB as float32.
AT_ONCE = 1 << 26
ACTIVE = 0.01
"""A latent is active if its posterior mean has at least this variance over the data."""

TITLES = ("A  ELBO", "B  TIE", "C  reconstruction objective", "D  conditional independence loss")
"""Of the panels that both figures have."""

SHOWN = ("elbo", "tie_aligned", "reconstruction", "kl")
NEAR_ONE = 2.0
"""The largest ELBO is "around β = 1" up to this factor."""
RISE = 0.02
"""A curve is decreasing if no step up is larger than this fraction of its range."""
RESAMPLINGS = 1000

Over = Literal["mean", "minimum"]


@dataclass(frozen=True)
class Networks:
    """Which networks are trained, how many and for how long (App. C).

    Attributes:
        betas: weights of the KL term, rising.
        seeds: random initialisations per β.
        epochs: passes over the examples.
        batch_sizes: items per update, unstated in the paper; all networks are trained once per batch size.
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
        """One trial per β and seed; neighbouring ones share the seed."""
        first = Trial(
            world=world.name,
            world_options=tuple(world.options.items()),  # type: ignore[arg-type]
            encoder_widths=self.widths,
            decoder_widths=self.widths[::-1],
            encoder_activation="tanh",
            decoder_activation="tanh",
            # the default of TensorFlow's layers, with which the paper's networks were built
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

    reconstruction: Tensor
    """E_q log p(x|z), sums over data dimensions."""
    kl: Tensor
    tie: Tensor
    """True inference error, latents as they are."""
    tie_aligned: Tensor
    """True inference error, latents in the signs and order that suit the sources best."""
    active: Tensor
    """Number of active latents."""


def measure_networks(
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
        One row per network: ``batch``, ``beta``, ``seed``, the fields of :class:`Terms`, the same prefixed with
        ``fresh_``, and the columns of ``look``. The ELBO is reconstruction − kl.
    """
    import pandas as pd

    rows = []
    for name, trials in _ensembles(networks, seen):
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
        here = measure_terms(ensemble, seen, draws=networks.draws, generator=random)._asdict()
        there = measure_terms(ensemble, fresh, draws=networks.draws, generator=random)._asdict()
        columns = here | {f"fresh_{key}": value for key, value in there.items() if key != "active"}
        columns |= {} if look is None else look(ensemble, seen)
        who = {
            "batch": trials[0].batch_size,
            "beta": [trial.beta for trial in trials],
            "seed": [trial.seed for trial in trials],
        }
        rows.append(pd.DataFrame(who | {key: value.cpu().numpy() for key, value in columns.items()}))
    return pd.concat(rows, ignore_index=True)


def _ensembles(networks: Networks, world: ArrayWorld) -> Iterator[tuple[str, list[Trial]]]:
    """Trials that train together, with the name of their folder."""
    for batch_size in networks.batch_sizes:
        trials = networks.trials(world, batch_size)
        for start in range(0, len(trials), networks.together):
            yield f"batch{batch_size}-{start}", trials[start : start + networks.together]


def measure_terms(ensemble: Ensemble, world: ArrayWorld, *, draws: int, generator: torch.Generator) -> Terms:
    """Terms of every member over all items of a world, in memory that does not grow with members × items × data.

    As in App. C: the reconstruction objective is a mean over samples of the posteriors (the same noise for every
    member), the KL term is exact, the inference error is that of the exact posterior of the sources.

    Args:
        ensemble: members with a Gaussian likelihood of unit variance and diagonal posteriors.
        world: items with an exact ``posterior`` of as many sources as there are latents.
        draws: samples of each posterior.
        generator: of their noise, on the CPU.
    """
    if world.posterior is None:
        raise ValueError(f"world must have an exact posterior, got {world.name}")
    x = world.images(torch.arange(len(world), device=world.device))
    mean, variance = ensemble.encode(x)
    kl = (mean.square() + variance - variance.log() - 1).double().sum(-1).mean(-1) / 2
    error = _squared_error(ensemble, x, mean, variance.sqrt(), draws, generator)
    reconstruction = -(math.prod(world.shape) * math.log(2 * math.pi) + error) / 2
    truth = world.posterior(x.double())
    tie = inference_error(mean, variance, truth.mean, truth.covariance)
    active = (mean.var(dim=1) > ACTIVE).sum(-1)
    return Terms(reconstruction, kl, tie.raw, tie.aligned, active)


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


class Curve(NamedTuple):
    """A term against β, over the seeds."""

    beta: NDArray[np.float64]
    """(beta,), rising."""
    values: NDArray[np.float64]
    """(beta, seed)."""
    over: Over

    @property
    def value(self) -> NDArray[np.float64]:
        """Mean or minimum over the seeds (beta,)."""
        return _over(self.values, self.over)

    def interval(
        self, statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    ) -> tuple[float, float]:
        """95 % interval of a statistic of curves (beta, ...) -> (...), from resampled seeds."""
        seeds = self.values.shape[1]
        drawn = np.random.default_rng(0).integers(seeds, size=(RESAMPLINGS, seeds))
        found = statistic(np.stack([_over(self.values[:, one], self.over) for one in drawn], axis=1))
        lower, upper = np.quantile(found, (0.025, 0.975))
        return float(lower), float(upper)


def _over(values: NDArray[np.float64], over: Over) -> NDArray[np.float64]:
    return values.mean(1) if over == "mean" else values.min(1)


def curve(table: pd.DataFrame, name: str, over: Over = "mean") -> Curve:
    """The curve of a column of a table with columns ``beta`` and ``seed``, or of ``elbo`` or ``fresh_elbo``."""
    if name.endswith("elbo"):
        prefix = name.removesuffix("elbo")
        table = table.assign(**{name: table[f"{prefix}reconstruction"] - table[f"{prefix}kl"]})
    wide = table.pivot(index="beta", columns="seed", values=name)
    return Curve(wide.index.to_numpy(dtype=float), wide.to_numpy(dtype=float), over)


def find_on_curves(table: pd.DataFrame, *, over: Over) -> list[Finding]:
    """What the captions of Figures 2 and 3 claim of panels A to D, for each batch size.

    Args:
        table: one row per network, as :func:`measure_networks` returns it.
        over: which summary of the inference error over initialisations the caption speaks of.
    """
    found = []
    batches = sorted(set(table["batch"]))
    for batch in batches:
        part = table[table["batch"] == batch]
        which = "" if len(batches) == 1 else f", batches of {batch}"
        found += [
            _highest(part, which),
            _lowest(part, "tie_aligned", over, f"B: β of the least TIE, {over}, aligned{which}"),
            _lowest(part, "tie", over, f"B: β of the least TIE, {over}, raw{which}"),
            _decreasing(part, "reconstruction", "C: largest rise of the reconstruction objective", which),
            _decreasing(part, "kl", "D: largest rise of the conditional independence loss", which),
        ]
    return found


def _highest(table: pd.DataFrame, which: str) -> Finding:
    elbo, fresh = curve(table, "elbo"), curve(table, "fresh_elbo")
    best = float(elbo.beta[elbo.value.argmax()])
    return Finding(
        f"A: β of the largest ELBO{which}",
        "around 1",
        best,
        *elbo.interval(lambda drawn: elbo.beta[drawn.argmax(0)]),
        "reproduced" if 1 / NEAR_ONE <= best <= NEAR_ONE else "not reproduced",
        f"on fresh data {fresh.beta[fresh.value.argmax()]:.3g}",
    )


def _lowest(table: pd.DataFrame, name: str, over: Over, words: str) -> Finding:
    error, fresh = curve(table, name, over), curve(table, f"fresh_{name}", over)
    value = error.value
    least = int(value.argmin())
    # zero where the least value is itself at an end of the range, which then is no optimum
    above = [error.interval(lambda drawn, end=end: drawn[end] - drawn[least])[0] for end in (0, -1)]  # type: ignore[misc]
    return Finding(
        words,
        "not monotonic, with an optimal β",
        float(error.beta[least]),
        *error.interval(lambda drawn: error.beta[drawn.argmin(0)]),
        "reproduced" if min(above) > 0 else "not reproduced",
        f"{value[least]:.3g} nats there, {value[0]:.3g} at β = {error.beta[0]:.3g}, {value[-1]:.3g} at "
        f"β = {error.beta[-1]:.3g}; on fresh data least at {fresh.beta[fresh.value.argmin()]:.3g} "
        f"with {fresh.value.min():.3g} nats",
    )


def _decreasing(table: pd.DataFrame, name: str, words: str, which: str) -> Finding:
    shown = curve(table, name)

    def rise(drawn: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.diff(drawn, axis=0).max(0).clip(0) / np.ptp(drawn, axis=0)

    largest = float(rise(shown.value))
    return Finding(
        f"{words} from one β to the next, of its range{which}",
        "decreasing",
        largest,
        *shown.interval(rise),
        "reproduced" if largest <= RISE else "not reproduced",
    )


def draw_bands(axes: Sequence[Any], table: pd.DataFrame, *, over: Over) -> None:
    """Panels A to D: mean solid, minimum and maximum dashed, a vertical line at the extremum of A and B."""
    from matplotlib.ticker import LogFormatter, NullFormatter

    batches = sorted(set(table["batch"]))
    for batch, colour in zip(batches, COLOURS, strict=False):
        part = table[table["batch"] == batch]
        for panel, name in zip(axes, SHOWN, strict=False):
            _band(panel, curve(part, name), colour, "mean" if len(batches) == 1 else f"batches of {batch}")
            fresh = curve(part, f"fresh_{name}")
            panel.plot(fresh.beta, fresh.value, "-.", color=colour, linewidth=0.8, label="mean, fresh data")
        raw = curve(part, "tie")
        axes[1].plot(raw.beta, raw.value, ":", color=colour, linewidth=1.2, label="mean, raw")
        _mark(axes[0], raw.beta[curve(part, "elbo").value.argmax()], colour)
        _mark(axes[1], raw.beta[curve(part, "tie_aligned", over).value.argmin()], colour)
    for panel in axes:
        panel.set_xscale("log")
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.set_xlabel("β", fontsize=8)
        panel.set_ylabel("nats", fontsize=8)
    axes[1].set_yscale("log")
    axes[1].yaxis.set_major_formatter(LogFormatter())
    axes[1].yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))
    axes[1].tick_params(which="minor", labelsize=7)
    axes[1].legend(fontsize=6.5, frameon=False)


def _band(panel: Any, shown: Curve, colour: str, label: str) -> None:
    lower, upper = shown.values.min(1), shown.values.max(1)
    panel.plot(shown.beta, shown.value, color=colour, linewidth=1.6, label=label)
    for edge in (lower, upper):
        panel.plot(shown.beta, edge, "--", color=colour, linewidth=0.8)
    panel.fill_between(shown.beta, lower, upper, color=colour, alpha=0.12, linewidth=0)


def _mark(panel: Any, beta: float, colour: str) -> None:
    panel.axvline(beta, color=colour, linewidth=0.8, linestyle="--", alpha=0.6)
