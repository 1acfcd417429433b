"""Training objectives as pure functions of a model, data and noise, each returning its named terms."""

from unseam.objectives.autoencoder import autoencoder
from unseam.objectives.capacity import CapacityTerms, annealed_capacity
from unseam.objectives.deterministic import DeterministicTerms, deterministic_elbo
from unseam.objectives.dip_vae import DIPTerms, dip_vae
from unseam.objectives.elbo import ElboTerms, beta_elbo
from unseam.objectives.factor_vae import Discriminator, FactorVAETerms, factor_vae
from unseam.objectives.orthogonal import OrthogonalTerms, orthogonal_elbo
from unseam.objectives.tcvae import TCVAETerms, beta_tcvae, stratified_weights

__all__ = [
    "CapacityTerms",
    "DIPTerms",
    "DeterministicTerms",
    "Discriminator",
    "ElboTerms",
    "FactorVAETerms",
    "OrthogonalTerms",
    "TCVAETerms",
    "annealed_capacity",
    "autoencoder",
    "beta_elbo",
    "beta_tcvae",
    "deterministic_elbo",
    "dip_vae",
    "factor_vae",
    "orthogonal_elbo",
    "stratified_weights",
]
