"""Data sets, networks and trainings of Table 3, with what the paper leaves open chosen once."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from unseam.data import World, load
from unseam.papers.artefact import ByItself, Scale
from unseam.trial import Trial

__all__ = [
    "CELLS",
    "EVERY_CELL",
    "FACES",
    "FAMILIES",
    "LAPTOP",
    "MANY_SPRITES",
    "MPI3D",
    "NAMES",
    "PRESETS",
    "ROWS",
    "SHAPES",
    "SMOKE",
    "SPRITES",
    "Cell",
    "Group",
    "GroupSettings",
    "Likelihood",
    "Settings",
    "Setup",
    "smoke",
]

Family = Literal["β-TCVAE", "β-VAE", "VAE"]
Likelihood = Literal["gaussian", "bernoulli", "gaussian_learned"]
FAMILIES: tuple[Family, ...] = ("β-TCVAE", "β-VAE", "VAE")
"""In the order of the paper's columns."""

NAMES = {
    "sprites": "sprites (a twin of dSprites)",
    "dsprites": "dSprites",
    "faces3d": "3D Faces",
    "shapes": "shapes (a twin of 3D Shapes)",
    "shapes3d": "3D Shapes",
    "mpi3d": "MPI3D",
}
EXCLUDED = {"sprites": "shape", "dsprites": "shape", "faces3d": "identity"}
"""Factors left out of MIG and MIG-sup where these are defined (Chen et al. 2018), and by the released code."""


@dataclass(frozen=True)
class Cell:
    """Models that differ in their seeds alone, and train as one stack.

    >>> str(Cell("β-VAE", 6.0))
    'β-VAE, β = 6'
    """

    family: Family
    beta: float

    def __str__(self) -> str:
        return self.family if self.family == "VAE" else f"{self.family}, β = {self.beta:g}"


CELLS = (Cell("β-TCVAE", 6.0), Cell("β-VAE", 6.0), Cell("VAE", 1.0))
"""The paper's three models."""
EVERY_CELL = (
    *CELLS,
    *(Cell(family, beta) for beta in (2.0, 4.0, 12.0) for family in ("β-TCVAE", "β-VAE")),
)
"""With further values of β, for what is asked over many models."""


@dataclass(frozen=True)
class Setup(ByItself):
    """One data set of Table 3 and the choices around it.

    Attributes:
        world: name of the data set.
        options: of the data set.
        architecture: ``mlp`` for dSprites, ``bhowal_faces`` and ``bhowal_shapes`` for the convolutional networks;
            ``released_mlp`` is ``mlp`` with the decoder of the released scripts, which has three tanh layers.
        widths: hidden widths of an MLP's encoder and decoder; the decoder of ``released_mlp`` has the last one twice.
        weight: of the reconstruction loss; 1 as printed, 4 where half the resolution leaves a quarter of the pixels.
        latent: not stated; 10 is the default of the released code.
        steps, batch_size: not stated, and the released scripts have several defaults. Latents of MLPs turn long after
            losses have come to rest, so that scores ask for more steps than losses do. An update of a stack of wide
            networks costs as much as its pass over some hundred items, so that batches below 500 save little, while
            convolutions cost in proportion to items.
        marks: shares of the training at which scores are recorded, besides its end.
        seeds: models a cell; six are enough for paired tests, and leave the time for long trainings.
        scored: held-out items that codes are scored on: 10 000 that DCI's trees are fitted to and 5 000 others.
        boosted, rounds: points and rounds of DCI's trees.
        points: held-out items around which decoders are measured.
        neighbours: held-out items among which neighbours are looked for (Theorem 2).
        noises, held_out: of a local fit, fitted and scored on.
        fit_steps: of a local fit; the last one is judged, the others show that it has settled.
        audited: of the points, how many the released procedure is followed at.
        precision: arithmetic of the training; measurements are in single precision, or double where they say so.
        likelihood: ``gaussian`` for the printed squared error; the others are near those of the released scripts.
    """

    world: str
    options: tuple[tuple[str, Any], ...] = ()
    architecture: Literal["mlp", "released_mlp", "bhowal_faces", "bhowal_shapes"] = "bhowal_shapes"
    widths: tuple[int, ...] = ()
    weight: float = 1.0
    latent: int = 10
    steps: int = 120_000
    batch_size: int = 128
    marks: tuple[float, ...] = (0.25, 0.5, 0.75)
    seeds: int = 6
    scored: int = 15_000
    boosted: int = 10_000
    rounds: int = 100
    points: int = 200
    neighbours: int = 4000
    noises: int = 64
    held_out: int = 64
    fit_steps: tuple[int, ...] = (25, 50, 100, 200, 400, 800)
    audited: int = 40
    precision: Literal["tf32", "float32", "bf16"] = "bf16"
    likelihood: Likelihood = "gaussian"

    @property
    def released(self) -> bool:
        """Whether the decoder is that of the released scripts."""
        return self.architecture == "released_mlp"

    def load(self) -> World:
        """The data set."""
        return load(self.world, **dict(self.options))

    def excluded(self, world: World) -> tuple[int, ...]:
        """Factors that the authors' mutual information gaps leave out.

        >>> smoke(SPRITES).excluded(smoke(SPRITES).load())
        (0,)
        """
        left_out = EXCLUDED.get(self.world)
        return tuple(place for place, name in enumerate(world.factor_names) if name == left_out)

    def trials(self, cell: Cell) -> list[Trial]:
        """The runs of a cell: squared error summed over pixels plus β times the KL, Eq. 5 with its KL corrected.

        Where the likelihood is another one, its −log p(x|z) stands in the place of the squared error.
        """
        first = Trial(
            world=self.world,
            world_options=self.options,
            train_fraction=0.8,
            **self._networks(),
            latent=self.latent,
            **self._loss(),
            objective="beta_tcvae" if cell.family == "β-TCVAE" else "beta_elbo",
            beta=cell.beta,
            optimiser="adam",
            learning_rate=1e-3,
            steps=self.steps,
            batch_size=self.batch_size,
            precision=self.precision,
        )
        return [dataclasses.replace(first, seed=seed) for seed in range(self.seeds)]

    def _networks(self) -> dict[str, Any]:
        """Fields of a trial."""
        released = self.released
        return {
            "architecture": "mlp" if released else self.architecture,
            "encoder_widths": self.widths,
            "decoder_widths": (*self.widths, *self.widths[-1:]) if released else self.widths,
            "encoder_activation": "relu",
            "decoder_activation": "tanh" if released else "relu",
        }

    def _loss(self) -> dict[str, Any]:
        """Fields of a trial: −log p(x|z) is the weight times the squared error or cross entropy, up to a constant."""
        if self.likelihood == "gaussian":
            return {"likelihood": "gaussian", "likelihood_variance": 0.5 / self.weight}
        if self.weight == 1.0:
            return {"likelihood": self.likelihood}
        if self.likelihood == "bernoulli" and self.weight.is_integer():
            return {"likelihood": "binomial", "likelihood_draws": int(self.weight)}
        raise ValueError(f"{self.likelihood} has no weight of {self.weight:g}: train with a weight of 1")


@dataclass(frozen=True)
class Settings:
    """Data sets whose three models are measured."""

    setups: tuple[Setup, ...]


@dataclass(frozen=True)
class Group(ByItself):
    """Cells of a data set whose models are compared with each other."""

    setup: Setup
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class GroupSettings:
    """Settings of an artefact that looks at every group by itself; groups of one data set differ in their steps."""

    groups: tuple[Group, ...]

    def __post_init__(self) -> None:
        named = [(group.setup.world, group.setup.steps) for group in self.groups]
        if len(set(named)) < len(named):
            raise ValueError(f"groups of one data set must differ in their steps, got {named}")


SPRITES = Setup(world="sprites", architecture="mlp", widths=(1200, 1200), batch_size=512)
MANY_SPRITES = dataclasses.replace(SPRITES, steps=12_000, seeds=12)
"""For what is asked over more than a hundred models: losses have come to rest, latents have not done turning."""
FACES = Setup(world="faces3d", architecture="bhowal_faces")
SHAPES = Setup(world="shapes")
MPI3D = Setup(world="mpi3d")
ROWS = (SPRITES, FACES, SHAPES, MPI3D)
"""In the order of the paper's rows."""


def smoke(setup: Setup, **changes: Any) -> Setup:
    """The same in seconds: fewer items, almost no training.

    >>> smoke(SPRITES).widths
    (24,)
    """
    small: dict[str, Any] = {
        "latent": 3,
        "audited": 5,
        "steps": 3,
        "batch_size": 8,
        "seeds": 2,
        "scored": 60,
        "boosted": 40,
        "rounds": 2,
        "points": 5,
        "neighbours": 20,
        "noises": 8,
        "held_out": 8,
        "fit_steps": (5, 10),
        "precision": "float32",
    }
    if setup.world == "sprites":
        small |= {
            "options": (("orientations", 4), ("positions", 4), ("resolution", 8), ("scales", 2)),
            "widths": (24,),
            "weight": 64.0,
            "steps": 100,
            "seeds": 3,
        }
    elif setup.world == "shapes":
        small["options"] = (("hues", 2), ("orientations", 5), ("scales", 4))
    return dataclasses.replace(setup, **(small | changes))


SMOKE = (smoke(SPRITES), smoke(FACES), smoke(MPI3D))
"""The convolutional networks, which take 64 pixels a side and their time, are left to ``table4``."""
LAPTOP = (
    dataclasses.replace(
        SPRITES,
        options=(
            ("orientations", 8),
            ("positions", 10),
            ("resolution", 32),
            ("scales", 4),
            ("softness", 1.5),
        ),
        widths=(128, 128),
        weight=4.0,
        steps=16_000,
        batch_size=64,
        scored=900,
        boosted=500,
        rounds=20,
        points=40,
        neighbours=600,
        noises=24,
        held_out=24,
        fit_steps=(25, 50, 100, 200),
        audited=20,
        precision="float32",
    ),
)
"""Sprites alone, with soft edges and 32 pixels a side: ten minutes a cell on one core.

MIG of β-TCVAEs hardly moves between 1 000 and 2 000 steps, and comes to rest three times as high after 14 000.
"""
PRESETS: dict[Scale, Settings] = {
    "smoke": Settings(SMOKE),
    "laptop": Settings(LAPTOP),
    "full": Settings(ROWS),
}
"""Of the artefacts that show all data sets."""
