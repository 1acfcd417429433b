"""The demo: a β-VAE, its full-covariance control and an autoencoder on a small world, and what sets them apart."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unseam import geometry
from unseam.data import World, load
from unseam.inspection import Inspection, inspect
from unseam.report import (
    Section,
    basis_figure,
    curves_figure,
    gaps_figure,
    pictures_figure,
    precision_figure,
    recovery_figure,
    to_svg,
    write_page,
)
from unseam.training import Ensemble, train
from unseam.trial import Trial

__all__ = ["DEMO", "Demo", "Model", "recovery", "run_demo"]

DEMO = Trial(
    world="sprites",
    world_options={  # type: ignore[arg-type]
        "resolution": 24,
        "shapes": ["ellipse"],
        "scales": 8,
        "orientations": 1,
        "positions": 16,
        "span": 0.5,
        "softness": 1.0,
    },
    encoder_widths=(128, 128),
    decoder_widths=(128,),
    latent=5,
    beta=2.0,
    learning_rate=3e-3,
    batch_size=64,
)
POINTS = 1000
SHOWN = 8
REACH = 2.0


@dataclass(frozen=True)
class Model:
    """One of the demo's three kinds of model, measured over its seeds.

    >>> Model("β-VAE", (0, 1), (), np.zeros((2, 5, 3))).gaps
    [0.0, 0.0]
    """

    name: str
    members: tuple[int, ...]
    found: tuple[Inspection, ...]
    recovered: NDArray[np.floating]

    @property
    def gaps(self) -> list[float]:
        """For each seed, the mean over factors of the best latent's score less the second best's."""
        best = np.sort(self.recovered, axis=1)
        return [float(value) for value in (best[:, -1] - best[:, -2]).mean(axis=1)]

    @property
    def dto(self) -> list[float]:
        """For each seed, DtO over live latents."""
        return [found.dto_active or 0.0 for found in self.found]

    @property
    def cosine(self) -> list[float]:
        """For each seed, mean |cos| over live latents."""
        return [found.cosine or 0.0 for found in self.found]

    @property
    def median(self) -> int:
        """Which of the seeds has the median gap: the one that is shown."""
        return int(np.argsort(self.gaps)[(len(self.gaps) - 1) // 2])


@dataclass(frozen=True)
class Demo:
    """What the demo found, and the page that shows it.

    >>> Demo((), Path("report.html"), 1.0, {}, "a world").to_dict()["seconds"]
    1.0
    """

    models: tuple[Model, ...]
    page: Path
    seconds: float
    about: dict[str, Any]
    world: str

    def summary(self) -> str:
        """The result in a few lines of plain words."""
        lines = [f"Trained on {self.world}.", *_sentences(self.models)]
        return "\n".join([*lines, *(f"  {row}" for row in _rows(self.models)), f"{self.seconds:.0f} s."])

    def to_dict(self) -> dict[str, Any]:
        """All numbers as JSON values."""
        return {
            "page": str(self.page),
            "seconds": self.seconds,
            "world": self.world,
            "models": [
                {
                    "name": model.name,
                    "members": list(model.members),
                    "dto": model.dto,
                    "cosine": model.cosine,
                    "gap": model.gaps,
                    "inspections": [found.to_dict() for found in model.found],
                }
                for model in self.models
            ],
            "about": self.about,
        }


def run_demo(
    out: Path, *, seeds: int = 3, steps: int = 4000, progress: bool | None = None, trial: Trial = DEMO
) -> Demo:
    """Train the three models, measure them, and write a page into the run's folder.

    A folder that already holds this demo's run is used as it is, or gone on with.

    Args:
        out: folder of the run.
        seeds: of each model.
        steps: updates of each model.
        progress: as in :func:`unseam.train`.
        trial: what all three share.
    """
    start = time.monotonic()
    if seeds < 1 or steps < 1:
        raise ValueError(f"seeds and steps must be at least 1, got {seeds} and {steps}")
    kinds: dict[str, dict[str, Any]] = {
        "β-VAE": {},
        "full covariance": {"posterior": "full"},
        "autoencoder": {"posterior": "point", "objective": "autoencoder"},
    }
    trials = [
        dataclasses.replace(trial, **change, steps=steps, seed=seed)
        for change in kinds.values()
        for seed in range(seeds)
    ]
    ensemble = train(trials, out=out, resume=True, progress=progress, device="cpu")
    world = load(trial.world, **dict(trial.world_options))  # type: ignore[arg-type]
    groups = {name: tuple(range(k * seeds, (k + 1) * seeds)) for k, name in enumerate(kinds)}
    models = tuple(_measure(name, members, ensemble, world) for name, members in groups.items())
    seconds = time.monotonic() - start
    said = f"{world.name}, a twin of {world.twin_of}, {len(world)} pictures with factors {', '.join(world.factor_names)}"
    about = ensemble.about | {"trials": [one.to_dict() for one in trials], "seconds": round(seconds, 1)}
    page = write_page(
        Path(out) / "report.html",
        "Why does a VAE disentangle?",
        "The same networks were trained three ways on small pictures of an ellipse whose size and place are known. Only "
        "one of them is told to keep its posterior diagonal; look at what that does to its axes.",
        _sections(models, ensemble, world),
        about,
    )
    return Demo(models, page, seconds, about, said)


def recovery(codes: NDArray[np.floating], factors: NDArray[np.floating]) -> NDArray[np.floating]:
    """How well each latent alone predicts each factor: 1 − √mse/σ of a 5-nearest-neighbour regression, at least 0.

    Fitted on 80 % of the items and scored on the rest, as the sensitivities of rolinek2019 Suppl. 8.1 (S70, S71).

    Args:
        codes: (batch, latent).
        factors: (batch, factor).

    Returns:
        (latent, factor), 0 for no better than the mean, 1 for exact.

    >>> codes = np.random.default_rng(0).uniform(size=(500, 2))
    >>> recovery(codes, codes).round(1)
    array([[1., 0.],
           [0., 1.]])
    """
    from sklearn.neighbors import KNeighborsRegressor

    cut = int(0.8 * len(codes))
    spread = factors[cut:].std(axis=0)
    scores = []
    for latent in range(codes.shape[1]):
        regressor = KNeighborsRegressor(n_neighbors=5).fit(codes[:cut, latent : latent + 1], factors[:cut])
        missed = ((regressor.predict(codes[cut:, latent : latent + 1]) - factors[cut:]) ** 2).mean(axis=0)
        scores.append(1 - np.sqrt(missed) / spread)
    return np.clip(np.array(scores), 0, None)


def _measure(name: str, members: tuple[int, ...], ensemble: Ensemble, world: World) -> Model:
    sample = world.sample(POINTS, torch.Generator().manual_seed(0))
    factors = sample.factors.double().numpy()
    found, recovered = [], []
    for member in members:
        model = ensemble[member]
        seen = inspect(
            model.decoder,
            encoder=model.encode,
            x=sample.x,
            likelihood=model.likelihood,
            beta=ensemble.trials[member].beta,
        )
        found.append(seen)
        with torch.no_grad():
            recovered.append(recovery(model.encode(sample.x).mean.double().numpy(), factors))
    return Model(name, members, tuple(found), np.array(recovered))


def _sections(models: tuple[Model, ...], ensemble: Ensemble, world: World) -> list[Section]:
    sample = world.sample(SHOWN, torch.Generator().manual_seed(1))
    chance = {"DtO over live latents": float(np.mean([_chance(model) for model in models]))}
    strips = {
        "DtO over live latents": {model.name: model.dto for model in models},
        "mean |cos| of columns": {model.name: model.cosine for model in models},
        "gap: best less second latent": {model.name: model.gaps for model in models},
    }
    shown = {model.name: ensemble[model.members[model.median]] for model in models}
    with torch.no_grad():
        drawn = {name: model.reconstruct(sample.x)[:, 0].numpy() for name, model in shown.items()}
    return [
        Section(
            "Who is orthogonal, and who finds the factors?",
            tuple(_sentences(models)),
            to_svg(gaps_figure(strips, chance)),
            "Dots for every seed of the three models: distance to orthogonality, mean cosine between Jacobian columns, "
            "and the gap between the best and the second best latent for a factor.",
            tuple(_table(models)),
        ),
        Section(
            "Factors recovered",
            (
                "Each cell says how well one latent alone predicts one factor (1 − √mse/σ of a nearest-neighbour "
                "regression on held-out pictures; 1 is exact). One bright cell in each column is what disentangled means. "
                "The seed with the median gap is shown for each model.",
            ),
            to_svg(recovery_figure({m.name: m.recovered[m.median] for m in models}, world.factor_names)),
            "Matrices of latents against factors for the three models.",
        ),
        *_traversals(models, shown, world),
        *_axes(models, shown, world),
        Section(
            "Posterior against decoder",
            (
                "A diagonal posterior is best when its precisions follow the decoder: Σ⁻¹ = I + DᵀA²D/β. Points near the "
                "line mean that encoder and decoder agree.",
                models[0].found[models[0].median].summary().replace("\n", " "),
            ),
            to_svg(_precision(models[0])),
            "Posterior precision of every latent of the β-VAE against the norm of its Jacobian column.",
        ),
        Section(
            "Reconstructions and training",
            ("The three models reconstruct alike: what differs is how they lay out their latents.",),
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


def _traversals(models: tuple[Model, ...], shown: dict[str, Any], world: World) -> list[Section]:
    """For each model, pictures as one latent after another moves through ± two standard deviations."""
    sample = world.sample(POINTS, torch.Generator().manual_seed(0))
    sections = []
    for model in models:
        module = shown[model.name]
        with torch.no_grad():
            means = module.encode(sample.x).mean
            centre, spread = means.median(0).values, means.std(0)
            steps = torch.linspace(-REACH, REACH, SHOWN)
            points = centre + steps[None, :, None] * torch.diag(spread)[:, None, :]
            pictures = module.likelihood.mean(module.decode(points.flatten(0, 1)))
        rows = pictures.unflatten(0, points.shape[:2])[:, :, 0].numpy()
        best = model.recovered[model.median]
        labels = [_label(best[latent], world.factor_names) for latent in range(len(rows))]
        named = {f"{latent}: {labels[latent]}": row for latent, row in enumerate(rows)}
        sections.append(
            Section(
                f"Traversals of the {model.name}",
                ("One latent a row, from −2 to +2 standard deviations of its codes; beside it the factor it predicts best.",)
                if model is models[0]
                else (),
                to_svg(pictures_figure(named)),
                f"Pictures decoded by the {model.name} as each latent moves.",
            )
        )
    return sections


def _axes(models: tuple[Model, ...], shown: dict[str, Any], world: World) -> list[Section]:
    """The Jacobian's columns as pictures, and |V| at some points."""
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
                "Columns of the decoder's Jacobian at one picture: how each pixel's logit changes as a latent grows (red up, "
                "blue down; each picture on its own scale, so a latent that does nothing shows noise).",
            ),
            to_svg(pictures_figure(rows, columns=names, signed=True)),
            "Jacobian columns as pictures, one row a model.",
        ),
        Section(
            "Singular vectors of the β-VAE",
            ("Where |V| is a permutation matrix, the latents' own axes are the decoder's principal directions.",),
            to_svg(basis_figure(vectors)),
            "Absolute right singular vectors at four points.",
        ),
    ]


def _precision(model: Model) -> Any:
    found = model.found[model.median]
    assert found.pullback is not None and found.variance is not None and found.active is not None
    return precision_figure(found.variance, found.pullback, found.active, beta=found.beta)


def _sentences(models: tuple[Model, ...]) -> list[str]:
    """What the numbers say, whatever they are."""
    if not models:
        return []
    first, rest = models[0], models[1:]
    said = []
    for what, values, better in (
        ("orthogonal axes (DtO over live latents)", [m.dto for m in models], min),
        ("axis-aligned factors (gap between the best and second best latent)", [m.gaps for m in models], max),
    ):
        means = [float(np.mean(value)) for value in values]
        others = ", ".join(f"{mean:.2f} for the {m.name}" for mean, m in zip(means[1:], rest, strict=True))
        wins = better(means) == means[0]
        clear = wins and all(
            better(*value, *values[0]) in values[0] and _apart(values[0], value, better) for value in values[1:]
        )
        word = "in every seed" if clear else "on average" if wins else "not here"
        verb = "has the most" if wins else "does not have the most"
        said.append(f"The {first.name} {verb} {what}, {word}: {means[0]:.2f} against {others}.")
    return said


def _apart(ours: list[float], theirs: list[float], better: Any) -> bool:
    """Whether our worst seed beats their best."""
    return max(ours) < min(theirs) if better is min else min(ours) > max(theirs)


def _table(models: tuple[Model, ...]) -> list[dict[str, str]]:
    return [
        {
            "model": model.name,
            "seeds": str(len(model.members)),
            "live latents": "/".join(str(int(f.active.sum())) for f in model.found if f.active is not None),
            "DtO": _spread(model.dto),
            "|cos|": _spread(model.cosine),
            "gap": _spread(model.gaps),
        }
        for model in models
    ]


def _rows(models: tuple[Model, ...]) -> list[str]:
    return [
        f"{row['model']:16} DtO {row['DtO']:12} |cos| {row['|cos|']:12} gap {row['gap']:12} live {row['live latents']}"
        for row in _table(models)
    ]


def _spread(values: list[float]) -> str:
    return f"{np.mean(values):.2f} ± {np.std(values):.2f}"


def _chance(model: Model) -> float:
    return float(np.mean([found.random_dto.haar for found in model.found if found.random_dto is not None] or [0.0]))


def _label(scores: NDArray[np.floating], names: tuple[str, ...]) -> str:
    best = int(np.argmax(scores))
    return names[best] if scores[best] > 0.2 else "–"
