"""Closed forms: what a VAE's optimum is, where it can be written down."""

from unseam.theory.collapse import (
    BetaRange,
    Moments,
    active_count,
    beta_range,
    collapse_thresholds,
    data_moments,
    data_thresholds,
)
from unseam.theory.hessian import Inequality, diagonal_hessian, diagonal_hessian_optimal, plateau_term
from unseam.theory.inference import InferenceError, inference_error
from unseam.theory.linear_beta_vae import LinearBetaVAE, linear_beta_vae
from unseam.theory.linear_vae import LinearVAE, linear_vae, rotated
from unseam.theory.ppca import PPCA, PPCAPath, ppca, ppca_em
from unseam.theory.precision import PrecisionOptimum, local_posterior, optimal_precision, precision_optimum

__all__ = [
    "PPCA",
    "PPCAPath",
    "ppca",
    "ppca_em",
    "LinearVAE",
    "linear_vae",
    "rotated",
    "LinearBetaVAE",
    "linear_beta_vae",
    "InferenceError",
    "inference_error",
    "PrecisionOptimum",
    "local_posterior",
    "optimal_precision",
    "precision_optimum",
    "Inequality",
    "diagonal_hessian",
    "diagonal_hessian_optimal",
    "plateau_term",
    "BetaRange",
    "Moments",
    "active_count",
    "beta_range",
    "collapse_thresholds",
    "data_moments",
    "data_thresholds",
]
