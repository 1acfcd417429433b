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
from unseam.models.gaussian import Gaussian, PixelGaussian
from unseam.models.initialisation import initialise
from unseam.models.likelihoods import AbstractLikelihood
from unseam.models.networks import MLP, activation
from unseam.models.normalisation import BatchNorm
from unseam.models.posteriors import AbstractPosterior, Diagonal, Full, Moments, Point
from unseam.models.products import stacked
from unseam.models.vae import VAE, Encoding, Pass

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
    "Moments",
    "Pass",
    "PixelGaussian",
    "Point",
    "activation",
    "build",
    "faces_decoder",
    "faces_encoder",
    "initialise",
    "shapes_decoder",
    "shapes_encoder",
    "stacked",
    "study_decoder",
    "study_encoder",
]
