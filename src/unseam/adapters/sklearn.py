"""Models of scikit-learn that have an inverse: exactly where it is linear, by finite differences elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unseam import models
from unseam.adapters.numpy import Differences
from unseam.adapters.parts import Encode
from unseam.subject import Subject

__all__ = ["sklearn"]

_DOUBLE = (torch.device("cpu"), torch.float64)


def sklearn(model: Any, *, latent: int | None = None, x: Any = None) -> Subject:
    """A fitted model with ``transform`` and ``inverse_transform``: PCA, FastICA, NMF, pipelines of such, BetaVAE.

    An inverse that is linear, as all but kernel PCA's are, is measured exactly. ``FactorAnalysis`` is a linear VAE: its
    likelihood has a variance per feature and its posterior a full covariance.

    Args:
        model: the fitted model.
        latent: number of latents, where neither the model nor data say it.
        x: rows of data.

    >>> from sklearn.decomposition import PCA
    >>> x = np.random.default_rng(0).normal(size=(50, 3))
    >>> sklearn(PCA(2).fit(x)).latent
    2
    """
    from sklearn.utils.validation import check_is_fitted

    name = type(model).__name__
    check_is_fitted(model)
    last = model[-1] if isinstance(getattr(model, "steps", None), list) else model
    if isinstance(vae := getattr(model, "model_", None), models.VAE):  # our own estimator
        beta = model.beta if model.trial_.objective_choice.weighs_kl else None
        return Subject(name, vae.decoder, model.latent, vae.likelihood, _Rows(vae.encode, model), beta)
    if isinstance(getattr(last, "noise_variance_", None), np.ndarray):
        return _factor_analysis(name, last, model)
    if not callable(getattr(model, "inverse_transform", None)) or not callable(
        getattr(model, "transform", None)
    ):
        raise ValueError(
            f"model must have transform and inverse_transform, which {name} has not; use PCA, FactorAnalysis, FastICA, "
            "KernelPCA(fit_inverse_transform=True), a pipeline of them, or pass a function of z and its latent="
        )
    size = _size(model, last, latent, x)
    decoder = _affine(model.inverse_transform, size) or Differences(model.inverse_transform, (size,))
    return Subject(
        name,
        decoder,
        size,
        encoder=Encode(lambda x: _tensor(model.transform(_named(model, x))), _DOUBLE, arrays=True),
    )


def _named(model: Any, x: np.ndarray) -> Any:
    """Rows as the model was fitted on: a table where its columns have names."""
    names = getattr(model, "feature_names_in_", None)
    if names is None or x.shape[1:] != names.shape:
        return x
    import pandas as pd

    return pd.DataFrame(x, columns=names)


class _Rows:
    """The encoder of our estimator, whose rows may be flattened images."""

    def __init__(self, encode: Any, model: Any) -> None:
        self.encode, self.shape = encode, model.shape

    def __call__(self, x: Tensor) -> Any:
        rows = x.double()
        return self.encode(rows if self.shape is None else rows.reshape(-1, *self.shape))


def _size(model: Any, last: Any, latent: int | None, x: Any) -> int:
    held = getattr(last, "components_", None)
    sizes = (getattr(last, "n_components_", None), None if held is None else len(held))
    found = next((size for size in sizes if isinstance(size, int | np.integer)), None)
    if found is None and x is not None:
        found = np.shape(model.transform(_named(model, np.asarray(x)[:1])))[1]
    found = latent if found is None else found
    if found is None:
        raise ValueError(
            f"latent must be given, as {type(model).__name__} does not say how many components it has"
        )
    if latent is not None and latent != found:
        raise ValueError(f"latent must be {found}, as {type(model).__name__} has it, got {latent}")
    return int(found)


def _affine(function: Any, latent: int) -> nn.Linear | None:
    """The function as a matrix and an offset, where that is what it is."""
    offset = np.asarray(function(np.zeros((1, latent))), dtype=np.float64)
    matrix = np.asarray(function(np.eye(latent)), dtype=np.float64) - offset
    z = 3 * np.random.default_rng(0).normal(size=(8, latent))
    if not np.allclose(function(z), z @ matrix + offset, rtol=1e-8, atol=1e-8 * np.abs(matrix).max()):
        return None
    return _linear(matrix.T, offset[0])


@torch.no_grad()
def _linear(weight: np.ndarray, bias: np.ndarray) -> nn.Linear:
    layer = torch.nn.utils.skip_init(nn.Linear, weight.shape[1], weight.shape[0], dtype=torch.float64)
    layer.weight.copy_(_tensor(weight))
    layer.bias.copy_(_tensor(bias))
    return layer.eval()


def _tensor(values: Any) -> Tensor:
    return torch.as_tensor(np.asarray(values), dtype=torch.float64)


def _factor_analysis(name: str, last: Any, model: Any) -> Subject:
    r"""x = W z + μ + noise of variances Ψ, whose posterior is N(Σ Wᵀ Ψ⁻¹ (x − μ), Σ) with Σ⁻¹ = I + Wᵀ Ψ⁻¹ W.

    Steps before the last may scale and shift each feature, which scales W and Ψ likewise.
    """
    weight, noise, centre = last.components_.T, last.noise_variance_, last.mean_
    if last is not model:
        before = _affine(model[:-1].inverse_transform, len(noise))
        scales = None if before is None else before.weight.detach().numpy()
        if before is None or scales is None or np.count_nonzero(scales) > np.count_nonzero(scales.diagonal()):
            raise ValueError(
                "model must scale each feature on its own before FactorAnalysis, as StandardScaler does, so that noise "
                f"stays independent; got {', '.join(type(step).__name__ for _, step in model.steps[:-1])}; pass the "
                "FactorAnalysis alone, with x as it takes them"
            )
        scale = scales.diagonal()
        weight, noise = scale[:, None] * weight, scale**2 * noise
        centre = before(_tensor(centre)).detach().numpy()
    # log-variances follow the means in the output
    both = np.concatenate([weight, np.zeros_like(weight)]), np.concatenate([centre, np.log(noise)])
    decoder = _linear(*both)
    scaled = _tensor(weight / noise[:, None])
    covariance = torch.linalg.inv(torch.eye(weight.shape[1]).double() + _tensor(weight).mT @ scaled)
    mean = _tensor(centre)

    def encode(x: Tensor) -> tuple[Tensor, Tensor]:
        return (x - mean) @ scaled @ covariance, covariance.expand(len(x), -1, -1)

    return Subject(name, decoder, weight.shape[1], models.PixelGaussian(), Encode(encode, _DOUBLE), 1.0)
