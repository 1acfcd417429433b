"""β-TCVAE: the KL term split into mutual information, total correlation and dimension-wise KL."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from unseam import choices
from unseam.inputs import check_count
from unseam.models import VAE, Moments
from unseam.objectives._inputs import checked

__all__ = ["TCVAETerms", "beta_tcvae", "stratified_weights"]

BETA_TCVAE = choices.Objective(
    "beta_tcvae",
    "β-TCVAE",
    "unseam.objectives.tcvae:beta_tcvae",
    needs=("size",),
    options=(
        choices.Option("beta", "weight of the total correlation"),
        choices.Option("alpha", "weight of the index-code mutual information"),
        choices.Option("gamma", "weight of the dimension-wise KL"),
        choices.Option("sampling", "estimator of q(z)", member=False),
    ),
)


class TCVAETerms(NamedTuple):
    """Terms of :func:`beta_tcvae`: sums over data and latents, means over the batch, in nats.

    ``kl`` is the exact KL of the posterior; the last three fields are estimates at the sampled z, whose sum
    is log q(z|x) - log p(z) there.

    NaN or infinite where the data or the noise are, or where a sum overflows.
    """

    loss: Tensor
    reconstruction: Tensor
    kl: Tensor
    index_code_mi: Tensor
    total_correlation: Tensor
    dimension_kl: Tensor


@checked
def beta_tcvae(
    model: VAE,
    x: Tensor,
    noise: Tensor,
    *,
    beta: float | Tensor,
    alpha: float | Tensor = 1.0,
    gamma: float | Tensor = 1.0,
    size: int,
    sampling: Literal["weighted", "stratified"] = "weighted",
) -> TCVAETerms:
    r"""Negative ELBO with its KL term split in three and the total correlation weighted by β.

    .. math:: -\log p(x \mid z) + \alpha\, I(z; n) + \beta\, \mathrm{KL}\Bigl(q(z) \Vert \prod_j q(z_j)\Bigr)
        + \gamma \sum_j \mathrm{KL}(q(z_j) \Vert p(z_j))

    Chen et al. 2018 Eqs. 2 and 4. The densities of the aggregate posterior q(z), N the ``size`` of the data
    set and M the batch, are estimated at the sample of item i by

    - ``weighted`` (Eq. 3): Σ_j q(z|x_j) / (N M), in expectation a lower bound, low by log M where M = N; its
      gradient does not depend on N;
    - ``stratified`` (App. C.2): Σ_j W_ij q(z|x_j) with :func:`stratified_weights`, unbiased for a batch drawn
      without replacement and exact where M = N.

    Args:
        model: the VAE, with a diagonal or full posterior.
        x: data (batch, \*data).
        noise: standard normal noise (batch, latent) that makes z.
        beta: weight β of the total correlation.
        alpha: weight α of the index-code mutual information.
        gamma: weight γ of the dimension-wise KL.
        size: number N of items in the data set.
        sampling: which estimate of q(z).

    Returns:
        Sums over data dimensions and latents, means over the batch, in nats.

    >>> from unseam.models import build, initialise
    >>> model = build((3,), latent=2, likelihood="gaussian")
    >>> initialise(model, generator=torch.Generator().manual_seed(0))
    >>> x, noise = torch.zeros(5, 3), torch.zeros(5, 2)
    >>> terms = beta_tcvae(model, x, noise, beta=6.0, size=5, sampling="stratified")
    >>> round(terms.index_code_mi.item(), 5)  # the items are equal, so z has no information on which it was
    0.0
    """
    result = model(x, noise)
    z, moments = result.z, result.moments
    log_weights = _log_weights(z, size, sampling)
    log_conditional = model.posterior.log_prob(moments, z)
    marginals = _marginal_log_densities(moments, z)
    joints = model.posterior.log_prob(moments, z[:, None]) if _is_full(moments) else marginals.sum(-1)
    log_joint = (joints + log_weights).logsumexp(1)
    log_product = (marginals + log_weights[:, :, None]).logsumexp(1).sum(-1)
    log_prior = _log_normal(z).sum(-1)

    reconstruction = -result.log_prob.mean()
    index_code_mi = (log_conditional - log_joint).mean()
    total_correlation = (log_joint - log_product).mean()
    dimension_kl = (log_product - log_prior).mean()
    loss = reconstruction + alpha * index_code_mi + beta * total_correlation + gamma * dimension_kl
    return TCVAETerms(loss, reconstruction, result.kl.mean(), index_code_mi, total_correlation, dimension_kl)


def stratified_weights(
    batch: int, size: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> Tensor:
    r"""Weights that make a batch's mixture of posteriors an unbiased estimate of the aggregate posterior.

    .. math:: W_{ii} = \frac1N, \qquad W_{ij} = \frac{N - 1}{N (M - 1)} \quad (j \ne i)

    The sample z of item i is fixed by i, which is therefore always in the batch although its share of q(z) is
    1/N; the M - 1 others stand for the N - 1 items that are left. Chen et al. 2018 App. C.2 gives one of
    those others the smaller weight (N - M + 1) / (N (M - 1)) and the rest 1 / (M - 1). These are the same
    weights averaged over which one it is: the same expectation with no more variance, no dependence on the
    order of the batch, and the exact mixture at M = N.

    Args:
        batch: number M of items in the batch, drawn without replacement; at least 2.
        size: number N of items in the data set; at least ``batch``.
        dtype: type of the result.
        device: device of the result.

    Returns:
        The weights W (batch, batch), row i for the sample of item i; each row sums to 1.

    >>> stratified_weights(2, 4)
    tensor([[0.2500, 0.7500],
            [0.7500, 0.2500]])
    """
    check_count("batch", batch)
    check_count("size", size)
    if batch < 2:
        raise ValueError(f"batch must be at least 2 for stratified sampling, got {batch}")
    if size < batch:
        raise ValueError(f"size must be at least the batch of {batch}, got {size}")
    own = torch.eye(batch, dtype=torch.bool, device=device)
    weights = torch.full((batch, batch), (size - 1) / (size * (batch - 1)), dtype=dtype, device=device)
    return torch.where(own, 1 / size, weights)


def _log_weights(z: Tensor, size: int, sampling: str) -> Tensor:
    batch = len(z)
    if sampling == "stratified":
        return stratified_weights(batch, size, dtype=z.dtype, device=z.device).log()
    if sampling != "weighted":
        raise ValueError(f"sampling must be 'weighted' or 'stratified', got {sampling!r}")
    if size < 1:
        raise ValueError(f"size must be at least 1, got {size}")
    return torch.full((batch, batch), -math.log(size * batch), dtype=z.dtype, device=z.device)


def _marginal_log_densities(moments: Moments, z: Tensor) -> Tensor:
    """Marginals log q(z_il | x_j) as (i, j, latent); a full posterior's from its covariance's diagonal."""
    log_variance = moments.factor.square().sum(-1).log() if _is_full(moments) else 2 * moments.log_diagonal
    return _log_normal((z[:, None] - moments.mean) * (-log_variance / 2).exp()) - log_variance / 2


def _is_full(moments: Moments) -> bool:
    return moments.factor.ndim > moments.mean.ndim


def _log_normal(z: Tensor) -> Tensor:
    return -(z.square() + math.log(2 * math.pi)) / 2
