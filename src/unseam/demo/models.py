"""What is measured of one of the demo's kinds of model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.neighbors import KNeighborsRegressor

from unseam.data import World
from unseam.inspection import Inspection, inspect
from unseam.training import Ensemble

__all__ = ["POINTS", "Model", "measure", "recovery"]

POINTS = 1000


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

    @property
    def median(self) -> int:
        """Which of the seeds has the median gap: the one that is shown."""
        return int(np.argsort(self.gaps)[(len(self.gaps) - 1) // 2])


def recovery(codes: NDArray[np.floating], factors: NDArray[np.floating]) -> NDArray[np.floating]:
    """How well each latent alone predicts each factor: 1 − √mse/σ of a 5-nearest-neighbour regression, at least 0.

    Fitted on 80 % of the items and scored on the rest, as the sensitivities of rolinek2019 Suppl. 8.1 (S70, S71).

    Args:
        codes: (batch, latent).
        factors: (batch, factor).

    Returns:
        (latent, factor), 0 for no better than the mean, 1 for exact.

    >>> codes = np.outer(np.arange(500), [0.618034, 0.414214]) % 1
    >>> recovery(codes, codes).round(1).diagonal()
    array([1., 1.])
    """
    cut = int(0.8 * len(codes))
    spread = factors[cut:].std(axis=0)
    scores = []
    for latent in range(codes.shape[1]):
        regressor = KNeighborsRegressor(n_neighbors=5).fit(codes[:cut, latent : latent + 1], factors[:cut])
        missed = ((regressor.predict(codes[cut:, latent : latent + 1]) - factors[cut:]) ** 2).mean(axis=0)
        scores.append(1 - np.sqrt(missed / np.where(spread > 0, spread, np.inf) ** 2) - (spread == 0))
    return np.clip(np.array(scores), 0, None)


def measure(name: str, members: tuple[int, ...], ensemble: Ensemble, world: World) -> Model:
    """Inspect every seed of a model, and see which factors its latents predict.

    >>> from unseam import Trial, data, train
    >>> world = data.load("sprites", resolution=8, shapes=["ellipse"], scales=2, orientations=1, positions=4)
    >>> ensemble = train(Trial(latent=2, encoder_widths=(), decoder_widths=(), steps=2), world=world)
    >>> measure("β-VAE", (0,), ensemble, world).recovered.shape
    (1, 2, 3)
    """
    index = torch.randperm(len(world), generator=torch.Generator().manual_seed(0))[:POINTS]
    x, factors = world.images(index), world.factors[index].double().numpy()
    found, recovered = [], []
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
        with torch.no_grad():
            recovered.append(recovery(model.encode(x).mean.double().numpy(), factors))
    return Model(name, members, tuple(found), np.array(recovered))
