"""BetaVAE: a β-VAE as a scikit-learn estimator."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from unseam.adapters import wrap
from unseam.data import ArrayWorld
from unseam.geometry import active_latents
from unseam.inspection import Inspection
from unseam.training import train
from unseam.trial import Trial

__all__ = ["BetaVAE"]

DRAWS = 8
"""Draws of z per item for the ELBO that ``score`` returns."""
ROWS = 4096
"""Items that are encoded or decoded at once."""


class BetaVAE(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A β-VAE that is fitted, searched over and put into pipelines as any scikit-learn transformer.

    Codes are posterior means. ``score`` is the ELBO at β = 1, so that models of different β can be compared by
    :class:`sklearn.model_selection.GridSearchCV`. Training many values of β or many seeds as one stack, which is far
    faster than a search one by one, is what :func:`unseam.train` does.

    Args:
        latent: number of latents.
        beta: weight of the KL term.
        likelihood: of the data, as a trial names it: ``gaussian`` for standardised tables, ``bernoulli`` for pixels in
            [0, 1].
        posterior: ``diagonal`` or ``full``.
        architecture: networks, as a trial names them.
        shape: shape of one item, e.g. ``(1, 28, 28)``, where rows of X are flattened images.
        steps: number of updates.
        batch_size: items per update.
        learning_rate: of Adam.
        options: further fields of :class:`unseam.Trial` by name, e.g. ``{"decoder_widths": (400,)}``.
        device: where to train; CUDA when there is one.
        random_state: seed of initial weights, minibatches and noise.

    Attributes:
        model_: the fitted :class:`unseam.models.VAE`, in double precision on the host.
        trial_: the trial that was trained, with which ``unseam.save(model_, path, trial=trial_)`` makes a run.
        active_: which latents are active on the training data (latent,).
        history_: terms of the objective along the training, a data frame.

    >>> x = np.random.default_rng(0).normal(size=(100, 2)) @ [[3.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    >>> BetaVAE(2, steps=20).fit(x).transform(x).shape
    (100, 2)
    """

    def __init__(
        self,
        latent: int = 10,
        *,
        beta: float = 1.0,
        likelihood: str = "gaussian",
        posterior: str = "diagonal",
        architecture: str = "mlp",
        shape: tuple[int, ...] | None = None,
        steps: int = 2000,
        batch_size: int = 64,
        learning_rate: float = 1e-3,
        options: dict[str, Any] | None = None,
        device: str | None = None,
        random_state: Any = 0,
    ) -> None:
        self.latent = latent
        self.beta = beta
        self.likelihood = likelihood
        self.posterior = posterior
        self.architecture = architecture
        self.shape = shape
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.options = options
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train the model on rows of X (item, feature).

        Args:
            X: items.
            y: ignored.
        """
        x = self._items(X, reset=True)
        shared = ("latent", "beta", "likelihood", "posterior", "architecture", "steps", "batch_size")
        given = {name: getattr(self, name) for name in (*shared, "learning_rate")}
        seed = int(check_random_state(self.random_state).randint(2**31))
        self.trial_ = Trial(**given | {"seed": seed} | dict(self.options or {}))
        world = ArrayWorld(
            x.float(), torch.zeros(len(x), 0, dtype=torch.long), name="X", factor_names=(), factor_sizes=()
        )
        ensemble = train(self.trial_, world=world, device=self.device, progress=False)
        self.model_ = ensemble[0].cpu().double()
        self.history_ = ensemble.history.drop(columns=["member", "alive"])
        self._n_features_out = self.latent
        self.active_ = active_latents(*self._encode(x)).active.numpy()
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        """Posterior means (item, latent) of rows of X."""
        check_is_fitted(self)
        x = self._items(X)
        return self._encode(x)[0].numpy().astype(_dtype(X), copy=False)

    @torch.no_grad()
    def inverse_transform(self, Z: Any) -> NDArray[Any]:
        """E[x|z] (item, feature) at codes (item, latent)."""
        check_is_fitted(self)
        z = torch.from_numpy(np.array(Z, dtype=np.float64))
        if z.ndim != 2 or z.shape[1] != self.latent:
            raise ValueError(f"Z must have shape (item, {self.latent}), got {tuple(z.shape)}")
        mean = self.model_.likelihood.mean
        parts = [mean(self.model_.decode(part)).flatten(1) for part in z.split(ROWS)]
        return torch.cat(parts).numpy().astype(_dtype(Z), copy=False)

    @torch.no_grad()
    def score(self, X: Any, y: Any = None) -> float:
        """Mean ELBO of rows of X in nats per item, at β = 1 and with the same noise at every call.

        Args:
            X: items.
            y: ignored.
        """
        check_is_fitted(self)
        x, total = self._items(X), 0.0
        draw = torch.Generator().manual_seed(self.trial_.seed)
        for part in x.split(ROWS):
            for _ in range(DRAWS):
                noise = torch.randn(len(part), self.latent, generator=draw, dtype=part.dtype)
                found = self.model_(part, noise)
                total += float((found.log_prob - found.kl).sum())
        return total / DRAWS / len(x)

    def inspect(self, X: Any, **options: Any) -> Inspection:
        """The geometry of the decoder at the codes of X, as :func:`unseam.inspect` measures and describes it.

        Args:
            X: items.
            options: those of :meth:`unseam.subject.Subject.inspect`.
        """
        check_is_fitted(self)
        model = self.model_
        given: dict[str, Any] = {"encoder": model.encode, "likelihood": model.likelihood, "beta": self.beta}
        return wrap(model.decode, x=self._items(X), **given).inspect(**options)

    def _items(self, X: Any, *, reset: bool = False) -> Tensor:
        """Rows as items of the model's shape, in double precision."""
        rows = validate_data(self, X, reset=reset, dtype=[np.float64, np.float32])
        shape = (rows.shape[1],) if self.shape is None else tuple(self.shape)
        if math.prod(shape) != rows.shape[1]:
            raise ValueError(
                f"shape must have as many values as X has columns ({rows.shape[1]}), got {shape}"
            )
        return torch.from_numpy(rows.astype(np.float64)).reshape(-1, *shape)

    @torch.no_grad()
    def _encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        means, variances = zip(*(self.model_.encode(part) for part in x.split(ROWS)), strict=True)
        return torch.cat(means), torch.cat(variances)


def _dtype(given: Any) -> np.dtype[Any]:
    """Single precision for data in single precision, double for all others."""
    return np.dtype(np.float32 if getattr(given, "dtype", None) == np.float32 else np.float64)
