"""The demo's own part of its report: what sets the three models apart, over all seeds."""

from __future__ import annotations

from typing import Any

import numpy as np

from unseam.demo.models import SCORES, Model
from unseam.report import Group, Panel, Section, seeds_panel
from unseam.training import Ensemble

__all__ = ["apart", "sentences", "table"]


def apart(models: tuple[Model, ...], ensemble: Ensemble) -> Section:
    """What sets the models apart, in sentences and in dots, one a seed.

    >>> import pandas as pd
    >>> from unseam import Trial, train
    >>> one = Model("β-VAE", (0,), (), np.ones((1, 2, 2)), pd.DataFrame())
    >>> small = Trial(world="linear", likelihood="gaussian", latent=2, steps=1, batch_size=4)
    >>> apart((one,), train(small)).title
    'Who is orthogonal, and who finds the factors?'
    """
    strips = {
        "Axes: DtO as a part of chance, 0 is best": [model.dto for model in models],
        "Axes: mean |cos| between columns, 0 is best": [model.cosine for model in models],
        "Factors: lead of the best latent over the second, 1 is best": [model.gaps for model in models],
    }
    names = [model.name for model in models]
    panels = tuple(
        Panel(seeds_panel(dict(zip(names, values, strict=True)), title), title)
        for title, values in strips.items()
    )
    return Section(
        "Who is orthogonal, and who finds the factors?",
        (
            "Three models with the same networks: one keeps its latents apart by a diagonal posterior, one may mix "
            "them freely by a full covariance, one has no posterior at all. Each dot is one training from another "
            "seed.",
        ),
        said=tuple(("", text) for text in (*sentences(models), _reconstruction(models, ensemble))),
        groups=tuple(Group("", (panel,)) for panel in panels),
        how=(
            "DtO, |cos| and chance are explained below. The lead is taken from 1 − √(mse/variance) of a "
            "nearest-neighbour regression of each factor on each latent alone, on held-out pictures: the best latent's "
            "less the second best's, averaged over the factors.",
        ),
    )


def sentences(models: tuple[Model, ...]) -> list[str]:
    """What the numbers say, whatever they are.

    >>> sentences(())
    []
    """
    if not models:
        return []
    first, rest = models[0], models[1:]
    said = []
    for what, values, better in (
        ("orthogonal axes (DtO over live latents, as a fraction of chance)", [m.dto for m in models], min),
        ("axis-aligned factors (gap between the best and second best latent)", [m.gaps for m in models], max),
    ):
        if any(np.isnan(value).all() for value in values):
            said.append(
                "A model has fewer than two live latents in every seed: orthogonality says nothing of it."
            )
            continue
        means = [float(np.nanmean(value)) for value in values]
        others = ", ".join(f"{mean:.2f} for the {m.name}" for mean, m in zip(means[1:], rest, strict=True))
        wins = better(means) == means[0]
        clear = wins and all(_apart(values[0], value, better) for value in values[1:])
        word = ", in every seed" if clear else ", on average" if wins else " here"
        verb = "has the most" if wins else "does not have the most"
        said.append(f"The {first.name} {verb} {what}{word}: {means[0]:.2f} against {others}.")
    return said


def _apart(ours: list[float], theirs: list[float], better: Any) -> bool:
    """Whether our worst seed beats their best."""
    return max(ours) < min(theirs) if better is min else min(ours) > max(theirs)


def table(models: tuple[Model, ...]) -> list[dict[str, str]]:
    """One row per quantity, one column per model: means and standard deviations over seeds.

    >>> table(())
    []
    """
    if not models:
        return []
    seeds = len(models[0].members)
    quantities: dict[str, list[str]] = {
        "live latents": [_range(model) for model in models],
        "DtO/chance": [_spread(model.dto) for model in models],
        "|cos|": [_spread(model.cosine) for model in models],
        "gap": [_spread(model.gaps) for model in models],
    } | {title: [_spread(model.score(metric)) for model in models] for metric, title in SCORES.items()}
    return [
        {f"over {seeds} seed{'s' * (seeds > 1)}": quantity}
        | dict(zip([model.name for model in models], cells, strict=True))
        for quantity, cells in quantities.items()
    ]


def _range(model: Model) -> str:
    """How many latents live, from the seed with the fewest to the one with the most."""
    counts = [int(found.active.sum()) for found in model.found if found.active is not None]
    return "–".join(map(str, sorted({min(counts), max(counts)}))) if counts else "–"


def _spread(values: list[float]) -> str:
    seen = np.array(values)[~np.isnan(values)]
    return f"{seen.mean():.2f} ± {seen.std():.2f}" if len(seen) else "–"


def _reconstruction(models: tuple[Model, ...], ensemble: Ensemble) -> str:
    last = ensemble.history.groupby("member")["reconstruction"].last()
    terms = [f"{last[list(model.members)].mean():.1f} for the {model.name}" for model in models]
    return f"Negative log-likelihood of the last training batches, in nats a picture: {', '.join(terms)}."
