"""What is measured of one of the demo's kinds of model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from unseam.inspection import Inspection
from unseam.metrics import disentanglement_score
from unseam.report import SCORES, Study
from unseam.run import Run

__all__ = ["SCORES", "Model", "measure"]


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
    """Rows of :func:`unseam.metrics.evaluate`, one per seed and metric."""

    @property
    def gaps(self) -> list[float]:
        """For each seed, the mean over factors of the best latent's score less the second best's."""
        best = np.sort(np.pad(self.recovered, ((0, 0), (1, 0), (0, 0))), axis=1)
        return [float(value) for value in (best[:, -1] - best[:, -2]).mean(axis=1)]

    @property
    def dto(self) -> list[float]:
        """For each seed, DtO over active latents as a fraction of what random rotations of as many have."""
        return [
            found.dto_active / found.random_dto.haar
            if found.dto_active is not None and found.random_dto is not None
            else float("nan")
            for found in self.found
        ]

    @property
    def cosine(self) -> list[float]:
        """For each seed, mean ``|cos|`` over active latents."""
        return [float("nan") if found.cosine is None else found.cosine for found in self.found]

    def score(self, metric: str) -> list[float]:
        """For each seed, its score by a metric."""
        return [float(value) for value in self.scores.loc[self.scores["metric"] == metric, "score"]]


def measure(study: Study, members: tuple[int, ...], run: Run) -> Model:
    """How well each latent of a model alone predicts each factor, beside what was measured of it already.

    >>> from unseam import Trial, data, report, train
    >>> world = data.load("sprites", resolution=8, shapes=["ellipse"], scales=2, orientations=1, positions=4)
    >>> trained = train(Trial(latent=2, encoder_widths=(), decoder_widths=(), steps=2), world=world)
    >>> run = Run.of(trained, world=world)
    >>> measure(report.run_studies(run)[0], (0,), run).recovered.shape
    (1, 2, 3)
    """
    codes = run.codes(members, index=torch.arange(len(run.world)))
    # positions and sizes on a grid are regressed: how far off a prediction is matters, not only whether it is
    smooth = [False] * len(codes.discrete)
    recovered = disentanglement_score(codes.mean, codes.factors, discrete=smooth).sensitivity
    assert study.match is not None
    return Model(study.name, members, study.inspections, recovered.double().numpy(), study.match.scores)
