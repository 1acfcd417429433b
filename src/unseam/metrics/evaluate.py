"""Many metrics of the same codes in one table."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from unseam.inputs import Array
from unseam.metrics._inputs import Checked, Table, check_inputs, default_generator
from unseam.metrics.beta_vae_score import beta_vae_score
from unseam.metrics.dci import dci
from unseam.metrics.disentanglement_score import disentanglement_score
from unseam.metrics.explicitness import explicitness
from unseam.metrics.factor_vae_score import factor_vae_score
from unseam.metrics.intervals import Interval
from unseam.metrics.irs import irs
from unseam.metrics.mcc import mcc
from unseam.metrics.mig import mig, mig_sup
from unseam.metrics.mig_entropy import mig_entropy
from unseam.metrics.modularity import modularity
from unseam.metrics.r2 import r2
from unseam.metrics.sap import sap
from unseam.metrics.total_correlation import (
    mean_pairwise_information,
    total_correlation,
    wasserstein_correlation,
)
from unseam.metrics.udr import udr

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["METRICS", "Metric", "evaluate"]

Metric = Callable[..., Any]
"""A function of codes and factors whose result has a score, an interval and settings."""

METRICS: tuple[Metric, ...] = (
    mig,
    mig_sup,
    mig_entropy,
    modularity,
    sap,
    dci,
    factor_vae_score,
    beta_vae_score,
    explicitness,
    irs,
    disentanglement_score,
    mcc,
    r2,
    total_correlation,
    wasserstein_correlation,
    mean_pairwise_information,
    udr,
)
COLUMNS = ("member", "metric", "score", "lower", "upper", "error", "preset", "settings", "note")


def evaluate(
    codes: Array,
    factors: Table,
    metrics: Sequence[str | Metric] | None = None,
    *,
    discrete: Sequence[bool] | None = None,
    variance: Array | None = None,
    preset: Any = "dlib",
    generator: torch.Generator | None = None,
) -> pd.DataFrame:
    """Scores of codes by many metrics, with intervals, as one table.

    Every metric reads the same codes, and all members at once. Each starts from the same seed, so its row is
    what it gives alone, whichever others are asked for; the same seed gives the same table.
    Scores and intervals are float64 whatever the precision of the codes.

    Args:
        codes: z (batch, latent) or (member, batch, latent).
        factors: v (batch, factor).
        metrics: names, or functions of the same form (:func:`functools.partial` included), whose results may lack
            ``interval`` and ``settings``, or be a plain number. By default all that fit: ``mig_entropy`` and ``udr``
            need a positive ``variance``, and ``udr`` two members or more.
        discrete: which factors are; by default those of integer type, booleans, words and categories.
        variance: posterior variance of the codes, in their shape.
        preset: a name for all metrics, or by metric a name or settings; those not in the mapping take ``dlib``.
        generator: one seed is drawn from it, and every metric starts from that seed on its own, so a metric called
            with this generator itself gives other points; by default seed 0, as for a metric alone.

    Returns:
        One row per member and metric: ``member``, ``metric``, ``score``, ``lower``, ``upper``, ``error``,
        ``preset``, ``settings`` (JSON, what was used) and ``note``. Further scores of a metric that have
        intervals of their own follow it: ``dci_completeness``, ``dci_informativeness``. A metric that does not
        fit has NaN for its score, and the note says why.

    >>> v = torch.cartesian_prod(torch.arange(3), torch.arange(3))
    >>> table = evaluate(v.double(), v, ["mig", "modularity"])
    >>> table[["metric", "score"]].values.tolist()
    [['mig', 1.0], ['modularity', 1.0]]
    """
    given = check_inputs(codes, factors, discrete=discrete, variance=variance)
    asked = dict(_by_name(METRICS if metrics is None else metrics))
    presets = _presets(preset, asked)
    seed = 0 if generator is None else draw_seed(default_generator(generator))
    rows: list[dict[str, Any]] = []
    for name, metric in asked.items():
        reason = _misfit(metric, given) if metrics is None else ""
        if reason:
            nothing = dict.fromkeys(("score", "lower", "upper", "error"), float("nan"))
            about = {"metric": name, **nothing, "preset": "", "settings": "", "note": reason}
            rows += ({"member": member, **about} for member in range(len(given.codes)))
            continue
        found = _call(metric, given, presets[name], seed)
        rows += _rows(name, found, presets[name])
    rows.sort(key=lambda row: row["member"])
    import pandas as pd

    return pd.DataFrame(rows, columns=list(COLUMNS))


def draw_seed(generator: torch.Generator) -> int:
    """A seed from a generator on any device."""
    return int(torch.randint(2**62, (), generator=generator, device=generator.device))


def _by_name(metrics: Sequence[str | Metric]) -> Iterator[tuple[str, Metric]]:
    """Every metric with its name, which it must share with no other."""
    if isinstance(metrics, str) or not isinstance(metrics, Iterable):
        raise ValueError(f"metrics must be a sequence of names or functions, got {metrics!r}")
    known = {metric.__name__: metric for metric in METRICS}
    seen = set()
    for metric in metrics:
        if metric not in known if isinstance(metric, str) else not callable(metric):
            raise ValueError(f"metrics must be functions or among {', '.join(known)}, got {metric!r}")
        name = metric if isinstance(metric, str) else _name(metric)
        if name in seen:
            raise ValueError(f"metrics must differ in name, got {name!r} twice")
        seen.add(name)
        yield name, known[metric] if isinstance(metric, str) else metric


def _name(metric: Metric) -> str:
    """The function's own name; what a partial function fixes stands behind it."""
    if isinstance(metric, partial):
        if "preset" in metric.keywords:
            raise ValueError(
                "metrics must leave the preset to evaluate, got a partial function that fixes it"
            )
        fixed = ", ".join(f"{key}={value}" for key, value in metric.keywords.items())
        return f"{_name(metric.func)}({fixed})"
    return str(metric.__name__)


def _presets(preset: Any, asked: Mapping[str, Metric]) -> dict[str, Any]:
    if not isinstance(preset, Mapping):
        return dict.fromkeys(asked, preset)
    unknown = preset.keys() - asked.keys()
    if unknown:
        raise ValueError(
            f"preset must name metrics among {', '.join(asked)}, got {', '.join(sorted(unknown))}"
        )
    return {name: preset.get(name, "dlib") for name in asked}


def _misfit(metric: Metric, given: Checked) -> str:
    """Why a metric cannot be computed from what was given; empty where it can."""
    if metric is udr and len(given.codes) < 2:
        return "needs two members or more"
    if metric in (udr, mig_entropy) and (given.variance is None or not bool((given.variance > 0).all())):
        return "needs a posterior of positive variance"
    return ""


class _Score(NamedTuple):
    """What a metric of the user's own gave as plain numbers."""

    score: Tensor


def _call(metric: Metric, given: Checked, preset: Any, seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    if metric is udr:
        return udr(given.codes, _divergence(given), preset=preset, generator=generator)
    options = {
        "discrete": given.discrete,
        "variance": given.variance,
        "preset": preset,
        "generator": generator,
    }
    if metric not in METRICS:  # one of the user's own takes what it asks for
        taken = inspect.signature(metric).parameters
        if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in taken.values()):
            options = {name: value for name, value in options.items() if name in taken}
    found = metric(given.codes, given.factors, **options)
    if isinstance(found, tuple):
        return found
    scores = torch.as_tensor(found, dtype=torch.float64).reshape(-1)
    if len(scores) == 1 < len(given.codes):  # one number for all members: ask for each of them
        variances = [None] * len(given.codes) if given.variance is None else given.variance.split(1)
        pairs = zip(given.codes.split(1), variances, strict=True)
        alone = [given._replace(codes=codes, variance=variance) for codes, variance in pairs]
        scores = torch.cat([_call(metric, one, preset, seed).score for one in alone])
    if len(scores) != len(given.codes):
        raise ValueError(
            f"a metric must return one number per member ({len(given.codes)}) or a NamedTuple with a score, "
            f"got {len(scores)} numbers"
        )
    return _Score(scores)


def _divergence(given: Checked) -> Tensor:
    """Mean KL divergence (member, latent) of normal posteriors from a standard normal prior, in nats."""
    if given.variance is None:
        raise ValueError("variance must hold the posterior's variances for udr, got none")
    mean, variance = given.codes.double(), given.variance.double()
    found = ((mean.square() + variance - 1 - variance.log()) / 2).mean(1)
    return found.clamp(max=torch.finfo(found.dtype).max)


def _rows(name: str, found: Any, preset: Any) -> Iterator[dict[str, Any]]:
    """A row for every member and score: the metric's own, and those further ones that have an interval."""
    unknown = torch.full((len(Interval._fields), len(found.score)), float("nan"))
    scores = {name: (found.score, getattr(found, "interval", unknown))}
    for field in found._fields:
        if field.endswith("_interval"):
            further = field.removesuffix("_interval")
            scores[f"{name}_{further}"] = (getattr(found, further), getattr(found, field))
    settings = dataclasses.asdict(found.settings) if "settings" in found._fields else {}
    about = {
        "preset": preset if isinstance(preset, str) else type(preset).__name__,
        "settings": json.dumps(settings, sort_keys=True),
        "note": "",
    }
    for title, (score, interval) in scores.items():
        for member, numbers in enumerate(zip(score, *interval, strict=True)):
            values = dict(zip(("score", *Interval._fields), map(float, numbers), strict=True))
            yield {"member": member, "metric": title, **values, **about}
