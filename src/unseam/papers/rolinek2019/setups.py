"""Data sets, networks and trainings of Table S3, with what the paper leaves open chosen once."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from unseam.papers.trainings import TrialGrid, combinations
from unseam.trial import Trial

__all__ = [
    "BETA",
    "COLUMNS",
    "FASHION",
    "LINEAR",
    "LINEAR_FAMILY",
    "MNIST",
    "NAMES",
    "NONLINEAR",
    "NONLINEAR_FAMILY",
    "RESTARTS",
    "SHORT",
    "SPRITES",
    "SPRITES_FAMILY",
    "Column",
    "Setup",
    "add_family",
    "quick",
    "smoke",
]

Column = Literal["β-VAE", "VAE", "AE", "β-VAE_Σ"]
COLUMNS: tuple[Column, ...] = ("β-VAE", "VAE", "AE", "β-VAE_Σ")
"""Of Table 2, without the random decoder, which is not trained."""

NAMES = {
    "sprites": "sprites (a twin of dSprites)",
    "dsprites": "dSprites",
    "linear": "Synth. Lin.",
    "nonlinear": "Synth. Non-Lin.",
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
}
SHORT = {name: "fashion" if name == "fashion_mnist" else name for name in NAMES}
"""Names of data sets in those of artefacts."""
BETA = {
    "linear": 1e-4,
    "nonlinear": 1e-3,
    "sprites": 4.0,
    "dsprites": 4.0,
    "mnist": 1.0,
    "fashion_mnist": 1.0,
}
"""β of each data set as printed in Table S3."""


@dataclass(frozen=True)
class Setup(TrialGrid):
    """A grid of trials: one line of Table S3, the models trained on it, and how they are measured.

    Attributes:
        base: the trial that all share; a column of Table 2 sets its posterior and objective.
        betas: of β-VAEs, all trained in one stack.
        seeds: runs per column and β.
        columns: models.
        records: how often a run is measured, evenly in the logarithm of its steps, the last time at its end.
        epochs: or the epochs at which it is measured.
        points: test items at which decoders are measured.
        checked: steps between two checks of the polarised regime.
    """

    betas: tuple[float, ...] = (1.0,)
    seeds: int = 10
    columns: tuple[Column, ...] = ("β-VAE", "AE", "β-VAE_Σ")
    records: int = 10
    epochs: tuple[float, ...] = ()
    points: int = 2000
    checked: int = 500

    def trials(self, column: Column) -> list[Trial]:
        """The runs of a column."""
        posterior = {"AE": "point", "β-VAE_Σ": "full"}.get(column, "diagonal")
        objective = "autoencoder" if column == "AE" else "beta_elbo"
        betas = (1.0,) if column in ("VAE", "AE") else self.betas
        first = dataclasses.replace(self.base, posterior=posterior, objective=objective)
        return combinations(first, beta=betas, seed=range(self.seeds))

    def measured(self, column: Column) -> dict[str, Any]:
        """What the measurements of a column depend on beside its trials."""
        options = ("records", "epochs", "points", "checked")
        return {"column": column} | {name: getattr(self, name) for name in options}


LINEAR = Setup(
    Trial(
        world="linear",
        train_fraction=0.8,
        encoder_widths=(),
        decoder_widths=(),
        latent=2,
        likelihood="gaussian",
        # −log p(x|z) is then the square loss of Eq. 11, up to a constant
        likelihood_variance=0.5,
        steps=480_000,
        # Not stated. Table 1's percentages are multiples of 500 batches: were each from one run, then 50 for synthetic
        # data and 50 or 100 for MNIST would be the round numbers that give them.
        batch_size=50,
        precision="float32",
    ),
    # Adam is invariant to a factor before the loss, so a square loss that is a mean over n data dimensions is Eq. 11
    # with n times the printed β: the second of each pair.
    betas=(1e-4, 3e-4),
)
"""600 epochs."""
NONLINEAR = LINEAR.replace(
    world="nonlinear",
    encoder_widths=(60, 40, 20),
    decoder_widths=(60, 40, 20),
    encoder_activation="tanh",
    betas=(1e-3, 6e-3),
)
LINEAR_FAMILY = LINEAR.replace(
    betas=(1e-6, 1e-5, 5e-5, 1e-4, 3e-4, 1e-3, 1e-2, 1e-1, 1.0), seeds=30, columns=("β-VAE",)
)
NONLINEAR_FAMILY = NONLINEAR.replace(
    betas=(1e-6, 1e-5, 1e-4, 5e-4, 1e-3, 6e-3, 1e-2, 1e-1, 1.0), seeds=30, columns=("β-VAE",)
)
MNIST = Setup(
    Trial(
        world="mnist",
        world_options=(("part", "all"),),
        train_fraction=0.8,
        encoder_widths=(400,),
        decoder_widths=(500, 500),
        latent=6,
        optimiser="adagrad",
        learning_rate=1e-2,
        steps=224_000,
        batch_size=100,
    ),
    columns=("VAE", "AE", "β-VAE_Σ"),
)
"""400 epochs."""
FASHION = MNIST.replace(world="fashion_mnist", steps=280_000)
"""500 epochs."""
SPRITES = Setup(
    Trial(
        world="sprites",
        train_fraction=0.8,
        encoder_widths=(1200, 1200),
        decoder_widths=(1200, 1200, 1200),
        latent=5,
        optimiser="adagrad",
        learning_rate=1e-2,
        # TensorFlow's start. From torch's 0 the first steps change every weight by the learning rate whatever its
        # gradient is, which makes layers of 1200 units diverge.
        accumulator=0.1,
        steps=29_491,
        # Where gradients are mostly noise, AdaGrad's path length grows with the root of steps times batch size, so
        # that the number of epochs decides.
        batch_size=1000,
        precision="bf16",
    ),
    betas=(4.0,),
    columns=COLUMNS,
    checked=100,
)
"""50 epochs."""
SPRITES_FAMILY = SPRITES.replace(betas=(0.01, 0.1, 0.5, 2.0, 4.0, 8.0, 16.0), records=1, columns=("β-VAE",))
"""For Figure S4, whose β = 1 is Table 2's VAE."""
RESTARTS = SPRITES.replace(seeds=30, columns=("β-VAE",), epochs=(0.3, 1, 3, 10, 30, 50))
"""The β-VAEs on sprites of Figure 3 and Tables 1 and 2."""


def add_family(family: Setup, setup: Setup) -> tuple[Setup, Setup]:
    """β-VAEs from a training of many β or restarts, and the other columns of a setup.

    >>> [part.columns for part in add_family(LINEAR_FAMILY, LINEAR)]
    [('β-VAE',), ('AE', 'β-VAE_Σ')]
    """
    return family, setup.replace(columns=tuple(column for column in setup.columns if column != "β-VAE"))


def smoke(setup: Setup, **changes: Any) -> Setup:
    """The same in seconds: fewer items, smaller networks, almost no training.

    >>> smoke(MNIST).base.encoder_widths
    (16,)
    """
    base = setup.base
    small: dict[str, Any] = {
        "steps": 80,
        "seeds": 3,
        "records": 2,
        "points": 40,
        "checked": 10,
        "batch_size": 20,
        "encoder_widths": (16,) * len(base.encoder_widths[:1]),
        "decoder_widths": (16,) * len(base.decoder_widths[:1]),
    }
    if base.world in ("linear", "nonlinear"):
        small["world_options"] = (*base.world_options, ("size", 500))
    elif base.world == "sprites":
        options = {"orientations": 4, "positions": 4, "resolution": 8, "scales": 2}
        small |= {"world_options": tuple(options.items()), "steps": 60}
    else:
        small |= {"steps": 20, "seeds": 2}
    return setup.replace(**(small | changes))


def quick(setup: Setup, **changes: Any) -> Setup:
    """A synthetic setup in minutes on two cores: larger batches and rates, which rotate latents further in fewer steps.

    Adam's drift against the noise of minibatches grows with the learning rate, the steps and the root of β and the
    batch size.

    >>> quick(LINEAR).base.batch_size
    200
    """
    linear = setup.base.world == "linear"
    fast: dict[str, Any] = {
        "steps": 26_000 if linear else 3_000,
        "batch_size": 200 if linear else 1000,
        "learning_rate": 3e-2 if linear else 1e-2,
        "betas": (BETA[setup.base.world],),
        "checked": 100,
        "records": 6,
        "points": 500,
    }
    return setup.replace(**(fast | changes))
