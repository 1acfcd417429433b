"""Closed forms: what a VAE's optimum is, where it can be written down."""

from unseam.theory.collapse import (
    BetaRange,
    Moments,
    active_count,
    beta_range,
    collapse_thresholds,
    data_moments,
    data_thresholds,
    sample_thresholds,
)
from unseam.theory.hessian import Inequality, diagonal_hessian, diagonal_hessian_optimal, plateau_term
from unseam.theory.inference import InferenceError, inference_error
from unseam.theory.linear_beta_vae import LinearBetaVAE, linear_beta_vae
from unseam.theory.linear_vae import LinearVAE, linear_vae, rotated
from unseam.theory.ppca import PPCA, PPCAPath, ppca, ppca_em
from unseam.theory.precision import PrecisionOptimum, local_posterior, optimal_precision, precision_optimum

__all__ = [
    "active_count",
    "beta_range",
    "BetaRange",
    "collapse_thresholds",
    "data_moments",
    "data_thresholds",
    "diagonal_hessian",
    "diagonal_hessian_optimal",
    "Inequality",
    "inference_error",
    "InferenceError",
    "linear_beta_vae",
    "linear_vae",
    "LinearBetaVAE",
    "LinearVAE",
    "local_posterior",
    "Moments",
    "optimal_precision",
    "plateau_term",
    "PPCA",
    "ppca",
    "ppca_em",
    "PPCAPath",
    "precision_optimum",
    "PrecisionOptimum",
    "rotated",
    "sample_thresholds",
]
