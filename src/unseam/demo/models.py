"""What is measured of one of the demo's kinds of model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from unseam.data import World
from unseam.inspection import Inspection, inspect
from unseam.metrics import disentanglement_score, evaluate
from unseam.scoring import encode_world
from unseam.training import Ensemble

__all__ = ["POINTS", "SCORES", "Model", "measure"]

POINTS = 1000

SCORES = {"mig": "MIG", "dci": "DCI", "sap": "SAP", "factor_vae_score": "FactorVAE", "mcc": "MCC"}
"""Metrics that the demo shows, with their usual names."""


@dataclass(frozen=True)
class Model:
    """One of the demo's three kinds of model, measured over its seeds.

    >>> Model("β-VAE", (0, 1), (), np.zeros((2, 5, 3)), pd.DataFrame()).gaps
    [0.0, 0.0]
    """

    name: str
    members: tuple[int, ...]
    found: tuple[Inspection, ...]
    recovered: NDArray[np.floating]
    """How well each latent alone predicts each factor (seed, latent, factor): S of rolinek2019 S70, in [0, 1]."""
    scores: pd.DataFrame
    """Rows of :func:`unseam.metrics.evaluate`, one a seed and metric."""

    @property
    def gaps(self) -> list[float]:
        """For each seed, the mean over factors of the best latent's score less the second best's."""
        best = np.sort(np.pad(self.recovered, ((0, 0), (1, 0), (0, 0))), axis=1)
        return [float(value) for value in (best[:, -1] - best[:, -2]).mean(axis=1)]

    @property
    def dto(self) -> list[float]:
        """For each seed, DtO over live latents as a fraction of what random rotations of as many have."""
        return [
            found.dto_active / found.random_dto.haar
            if found.dto_active is not None and found.random_dto is not None
            else float("nan")
            for found in self.found
        ]

    @property
    def cosine(self) -> list[float]:
        """For each seed, mean ``|cos|`` over live latents."""
        return [float("nan") if found.cosine is None else found.cosine for found in self.found]

    def score(self, metric: str) -> list[float]:
        """For each seed, its score by a metric."""
        return [float(value) for value in self.scores.loc[self.scores["metric"] == metric, "score"]]

    @property
    def median(self) -> int:
        """Which of the seeds has the median gap: the one that is shown."""
        return int(np.argsort(self.gaps)[(len(self.gaps) - 1) // 2])


def measure(name: str, members: tuple[int, ...], ensemble: Ensemble, world: World) -> Model:
    """Inspect every seed of a model, and score its codes against the factors.

    >>> from unseam import Trial, data, train
    >>> world = data.load("sprites", resolution=8, shapes=["ellipse"], scales=2, orientations=1, positions=4)
    >>> ensemble = train(Trial(latent=2, encoder_widths=(), decoder_widths=(), steps=2), world=world)
    >>> measure("β-VAE", (0,), ensemble, world).recovered.shape
    (1, 2, 3)
    """
    index = torch.randperm(len(world), generator=torch.Generator().manual_seed(0))[:POINTS]
    x = world.images(index)
    found = []
    for member in members:
        model = ensemble[member]
        seen = inspect(
            model.decoder,
            encoder=model.encode,
            x=x,
            likelihood=model.likelihood,
            beta=ensemble.trials[member].beta,
        )
        found.append(seen)
    codes = encode_world(ensemble, members, world, torch.arange(len(world)))
    # positions and sizes on a grid are regressed: how far off a prediction is matters, not only whether it is
    smooth = [False] * len(world.factor_names)
    recovered = disentanglement_score(codes.mean, codes.factors, discrete=smooth).sensitivity
    scores = evaluate(codes.mean, codes.factors, tuple(SCORES), discrete=codes.discrete, preset="fast")
    return Model(name, members, tuple(found), recovered.double().numpy(), scores)
