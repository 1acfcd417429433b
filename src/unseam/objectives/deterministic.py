"""The deterministic ELBO: the posterior's noise integrated out to second order."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from unseam import choices
from unseam.geometry import pullback
from unseam.models import VAE, Point
from unseam.objectives._inputs import checked

__all__ = ["DeterministicTerms", "deterministic_elbo"]

DETERMINISTIC_ELBO = choices.Objective(
    "deterministic_elbo",
    "deterministic β-VAE",
    "unseam.objectives.deterministic:deterministic_elbo",
    weighs_kl=True,
    jacobian=True,
    options=(choices.Option("beta", "weight of the KL term"),),
)


class DeterministicTerms(NamedTuple):
    """Terms of :func:`deterministic_elbo`: sums over data and latents, means over the batch, in nats.

    NaN or infinite where the data or the noise are, or where a sum overflows.
    """

    loss: Tensor
    reconstruction: Tensor
    kl: Tensor
    regularisation: Tensor


@checked
def deterministic_elbo(
    model: VAE, x: Tensor, noise: Tensor, *, beta: float | Tensor = 1.0
) -> DeterministicTerms:
    r"""Negative β-ELBO with the log-likelihood expanded to second order around the posterior mean.

    .. math:: -\log p(x \mid d(e)) + \tfrac12 \langle D^\top A^2 D,\, \Sigma \rangle
        + \tfrac{\beta}{2} \bigl(\lVert e \rVert^2 + \operatorname{tr} \Sigma - \log |\Sigma| - d\bigr)

    with e and Σ the posterior's mean and covariance, D the decoder's Jacobian and A² the Fisher weight, both
    at e: allen2024 Eqs. 5 and 6 without the residual term, A.4. Two slips of the text are corrected: in Eq. 5
    β/2 multiplies log|Σ| and d too, and A.4's Bernoulli log-likelihood has its (1 - x)ᵀ log(1 - s). Exact for
    an affine decoder with Gaussian likelihood; the error is of second order in Σ where the decoder is affine
    or the reconstruction exact, otherwise of first, through the residual term. A² is the expected
    information: minus the observed curvature for every likelihood but that of a variance per pixel.

    Args:
        model: the VAE, with a diagonal or full posterior.
        x: data (batch, \*data).
        noise: ignored; its mean has been taken.
        beta: weight β of the KL term.

    Returns:
        Sums over data dimensions and latents, means over the batch, in nats; ``reconstruction`` is taken at
        the mean, ``regularisation`` is the term with D.

    >>> import torch
    >>> from unseam.models import build, initialise
    >>> model = build((3,), latent=1, likelihood="gaussian")
    >>> initialise(model, generator=torch.Generator().manual_seed(0))
    >>> terms = deterministic_elbo(model, torch.zeros(5, 3), torch.zeros(5, 1), beta=2.0)
    >>> terms.loss.allclose(terms.reconstruction + terms.regularisation + 2 * terms.kl)
    True
    """
    if isinstance(model.posterior, Point):
        raise ValueError("model must have a diagonal or full posterior: a point posterior has no entropy")
    moments = model.moments(x)
    if moments.mean.ndim != 2 or not len(x):
        raise ValueError(
            f"x must have shape (batch, *data) with items as the model has, got {tuple(x.shape)}"
        )
    metric = pullback(model.decode, moments.mean, likelihood=model.likelihood)
    variance = model.posterior.variance(moments)
    if variance.ndim == 2:
        metric = metric.diagonal(dim1=-2, dim2=-1)
    regularisation = (metric * variance).flatten(1).sum(1).mean() / 2

    reconstruction = -model.likelihood.log_prob(x, model.decode(moments.mean)).mean()
    kl = model.posterior.kl(moments).mean()
    return DeterministicTerms(reconstruction + regularisation + beta * kl, reconstruction, kl, regularisation)
