"""An objective of your own: the β-ELBO plus δ times the sum of absolute posterior means."""

from typing import NamedTuple

from torch import Tensor

from unseam import choices
from unseam.models import VAE


class SparseTerms(NamedTuple):
    """Scalars, in nats: ``loss`` is minimised, the others go into the history."""

    loss: Tensor
    reconstruction: Tensor
    kl: Tensor
    sparsity: Tensor


def sparse_elbo(model: VAE, x: Tensor, noise: Tensor, *, beta: Tensor, delta: Tensor) -> SparseTerms:
    """Terms of one minibatch ``x`` (batch, *data), sampled with ``noise`` (batch, latent)."""
    found = model(x, noise)
    reconstruction, kl = -found.log_prob.mean(), found.kl.mean()
    sparsity = found.moments.mean.abs().sum(1).mean()
    return SparseTerms(reconstruction + beta * kl + delta * sparsity, reconstruction, kl, sparsity)


SPARSE = choices.Objective(
    "sparse_elbo",
    "sparse β-VAE",
    sparse_elbo,
    weighs_kl=True,
    options=(
        choices.Option("beta", "weight of the KL term"),  # a field of Trial
        choices.Option("delta", "weight of the codes' sparsity", default=0.1),  # an entry of Trial.weights
    ),
)
