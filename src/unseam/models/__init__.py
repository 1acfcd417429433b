"""Networks, posteriors, likelihoods, and the VAE that composes them."""

from unseam.models.bernoulli import Bernoulli
from unseam.models.binomial import Binomial
from unseam.models.build import build
from unseam.models.continuous_bernoulli import ContinuousBernoulli
from unseam.models.convolutional import (
    faces_decoder,
    faces_encoder,
    shapes_decoder,
    shapes_encoder,
    study_decoder,
    study_encoder,
)
from unseam.models.covariates import WithCovariates
from unseam.models.gaussian import Gaussian, PixelGaussian
from unseam.models.initialisation import initialise
from unseam.models.likelihoods import AbstractLikelihood
from unseam.models.masked import Masked
from unseam.models.negative_binomial import NegativeBinomial
from unseam.models.networks import MLP, activation
from unseam.models.normalisation import BatchNorm
from unseam.models.pictures import convolutional
from unseam.models.posteriors import AbstractPosterior, Diagonal, Full, Moments, Point
from unseam.models.products import stacked
from unseam.models.vae import VAE, Encoding, Pass
from unseam.models.zero_inflated import ZeroInflatedNegativeBinomial

__all__ = [
    "MLP",
    "VAE",
    "AbstractLikelihood",
    "AbstractPosterior",
    "BatchNorm",
    "Bernoulli",
    "Binomial",
    "ContinuousBernoulli",
    "Diagonal",
    "Encoding",
    "Full",
    "Gaussian",
    "Masked",
    "Moments",
    "NegativeBinomial",
    "Pass",
    "PixelGaussian",
    "Point",
    "WithCovariates",
    "ZeroInflatedNegativeBinomial",
    "activation",
    "build",
    "convolutional",
    "faces_decoder",
    "faces_encoder",
    "initialise",
    "shapes_decoder",
    "shapes_encoder",
    "stacked",
    "study_decoder",
    "study_encoder",
]
