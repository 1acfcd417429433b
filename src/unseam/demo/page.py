"""The demo's page: what sets the three models apart, in pictures and words."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unseam import geometry
from unseam.data import World
from unseam.demo.models import POINTS, SCORES, Model
from unseam.report import (
    Section,
    basis_figure,
    curves_figure,
    gaps_figure,
    pictures_figure,
    precision_figure,
    recovery_figure,
    to_svg,
)
from unseam.training import Ensemble

__all__ = ["sections", "sentences", "table"]

SHOWN = 8
REACH = 2.0


def sections(models: tuple[Model, ...], ensemble: Ensemble, world: World) -> list[Section]:
    """All parts of the page, in order.

    >>> from unseam import Trial, data, train
    >>> world = data.load("sprites", resolution=8, shapes=["ellipse"], scales=2, orientations=1, positions=4)
    >>> ensemble = train(Trial(latent=2, encoder_widths=(), decoder_widths=(), steps=2), world=world)
    >>> from unseam.demo.models import measure
    >>> parts = sections((measure("β-VAE", (0,), ensemble, world),), ensemble, world)
    >>> [part.title for part in parts][:2]
    ['Who is orthogonal, and who finds the factors?', 'Factors recovered']
    """
    sample = world.sample(SHOWN, torch.Generator().manual_seed(1))
    strips = {
        "DtO, fraction of chance": {model.name: model.dto for model in models},
        "mean |cos| of columns": {model.name: model.cosine for model in models},
        "gap: best less second latent": {model.name: model.gaps for model in models},
    }
    shown = {model.name: ensemble[model.members[model.median]] for model in models}
    with torch.no_grad():
        drawn = {name: model.reconstruct(sample.x)[:, 0].numpy() for name, model in shown.items()}
    return [
        Section(
            "Who is orthogonal, and who finds the factors?",
            tuple(sentences(models)),
            to_svg(gaps_figure(strips, {"DtO, fraction of chance": 1.0})),
            "Dots for every seed of the three models: distance to orthogonality of live latents, mean cosine between "
            "Jacobian columns, and the gap between the best and the second best latent for a factor.",
            tuple(table(models)),
        ),
        Section(
            "Factors recovered",
            (
                "Each cell says how well one latent alone predicts one factor (1 − √(mse/variance) of a "
                "nearest-neighbour regression on held-out pictures; 1 is exact). One bright cell in each column is "
                "what disentangled means. The seed with the median gap is shown for each model.",
            ),
            to_svg(recovery_figure({m.name: m.recovered[m.median] for m in models}, world.factor_names)),
            "Matrices of latents against factors for the three models.",
        ),
        _scores(models),
        *_traversals(models, shown, world),
        *_axes(models, shown, world),
        Section(
            "Posterior against decoder",
            (
                "A diagonal posterior is best when its precisions follow the decoder: Σ⁻¹ = I + DᵀA²D/β. Points near "
                "the line mean that encoder and decoder agree.",
                models[0].found[models[0].median].summary().replace("\n", " "),
            ),
            to_svg(_precision(models[0])),
            "Posterior precision of every latent of the β-VAE against the norm of its Jacobian column.",
        ),
        Section(
            "Reconstructions and training",
            (_reconstruction(models, ensemble),),
            to_svg(pictures_figure({"data": sample.x[:, 0].numpy(), **drawn})),
            "Eight pictures of the data above their reconstructions by each model.",
        ),
        Section(
            "Reconstruction along training",
            (),
            to_svg(curves_figure(ensemble.history, {model.name: model.members for model in models})),
            "Reconstruction term of every member along training.",
        ),
    ]


def _scores(models: tuple[Model, ...]) -> Section:
    """The field's own metrics of the three models."""
    strips = {title: {m.name: m.score(metric) for m in models} for metric, title in SCORES.items()}
    return Section(
        "Scores against the known factors",
        (
            "The metrics by which the field compares representations, 1 for codes that are the factors up to order "
            "and scale. MIG and SAP ask for one latent a factor, DCI for one factor a latent, the FactorVAE score "
            "whether a latent keeps still when its factor does, MCC for correlation after the best matching.",
        ),
        to_svg(gaps_figure(strips, {})),
        "Dots for every seed of the three models under five metrics of disentanglement.",
    )


def _traversals(models: tuple[Model, ...], shown: dict[str, Any], world: World) -> list[Section]:
    """For each model, pictures as one latent after another moves through ± two standard deviations."""
    index = torch.randperm(len(world), generator=torch.Generator().manual_seed(0))[:POINTS]
    middle = (world.factors[index].double() - world.factors.double().mean(0)).square().sum(1).argmin()
    sections = []
    for model in models:
        module = shown[model.name]
        with torch.no_grad():
            means = module.encode(world.images(index)).mean
            centre, spread = means[middle], means.std(0)
            steps = torch.linspace(-REACH, REACH, SHOWN)
            points = centre + steps[None, :, None] * torch.diag(spread)[:, None, :]
            pictures = module.likelihood.mean(module.decode(points.flatten(0, 1)))
        rows = pictures.unflatten(0, points.shape[:2])[:, :, 0].numpy()
        best = model.recovered[model.median]
        alive = model.found[model.median].active
        labels = [_label(score, world.factor_names, alive, j) for j, score in enumerate(best)]
        named = {f"{latent}: {labels[latent]}": row for latent, row in enumerate(rows)}
        sections.append(
            Section(
                f"Traversals: {model.name}",
                (
                    "Starting from the same picture, one latent a row moves from −2 to +2 standard deviations of its "
                    "codes; beside it the factor that it predicts best.",
                )
                if model is models[0]
                else (),
                to_svg(pictures_figure(named)),
                f"Pictures decoded by the {model.name} as each latent moves.",
            )
        )
    return sections


def _axes(models: tuple[Model, ...], shown: dict[str, Any], world: World) -> list[Section]:
    """The Jacobian's columns as pictures, and ``|V|`` at some points."""
    sample = world.sample(1, torch.Generator().manual_seed(2))
    rows = {}
    for model in models:
        module = shown[model.name]
        with torch.no_grad():
            mean = module.encode(sample.x).mean
            columns = geometry.jacobian(module.decoder, mean)[0]
        rows[model.name] = columns.T.reshape(-1, *world.shape[1:]).numpy()
    first = models[0]
    vectors = first.found[first.median].right_vectors
    assert vectors is not None
    names = [f"latent {latent}" for latent in range(len(next(iter(rows.values()))))]
    return [
        Section(
            "The decoder's axes",
            (
                "Columns of the decoder's Jacobian at one picture: how each pixel's logit changes as a latent grows "
                "(red up, blue down; each picture on its own scale, so a latent that does nothing shows noise).",
            ),
            to_svg(pictures_figure(rows, columns=names, signed=True)),
            "Jacobian columns as pictures, one row a model.",
        ),
        Section(
            "Singular vectors of the β-VAE",
            (
                "Where |V| is a permutation matrix, the latents' own axes are the decoder's principal directions.",
            ),
            to_svg(basis_figure(vectors)),
            "Absolute right singular vectors at four points.",
        ),
    ]


def _precision(model: Model) -> Any:
    found = model.found[model.median]
    assert found.pullback is not None and found.variance is not None and found.active is not None
    return precision_figure(found.variance, found.pullback, found.active, beta=found.beta)


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
    """One row a quantity, one column a model: means and standard deviations over seeds.

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


def _label(
    scores: NDArray[np.floating], names: tuple[str, ...], alive: torch.Tensor | None, latent: int
) -> str:
    """The factor that a latent predicts best, or that it is not alive."""
    if alive is not None and not bool(alive[latent]):
        return "collapsed"
    best = int(np.argmax(scores))
    return names[best] if scores[best] > 0.2 else "–"
