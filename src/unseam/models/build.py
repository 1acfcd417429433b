"""A VAE from the names and numbers that a trial holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import nn

from unseam.models.convolutional import (
    faces_decoder,
    faces_encoder,
    shapes_decoder,
    shapes_encoder,
    study_decoder,
    study_encoder,
)
from unseam.models.likelihoods import (
    AbstractLikelihood,
    Bernoulli,
    Binomial,
    ContinuousBernoulli,
    Gaussian,
    PixelGaussian,
)
from unseam.models.networks import MLP
from unseam.models.posteriors import AbstractPosterior, Diagonal, Full, Point
from unseam.models.vae import VAE

__all__ = ["ARCHITECTURES", "LIKELIHOODS", "POSTERIORS", "build"]

ARCHITECTURES = ("mlp", "study", "bhowal_faces", "bhowal_shapes")
POSTERIORS = ("diagonal", "full", "point")
LIKELIHOODS = (
    "gaussian",
    "gaussian_learned",
    "gaussian_pixel",
    "bernoulli",
    "binomial",
    "continuous_bernoulli",
)

_POSTERIORS: dict[str, type[AbstractPosterior]] = {"diagonal": Diagonal, "full": Full, "point": Point}
_CONVOLUTIONAL: dict[
    str, tuple[Callable[[Sequence[int], int], nn.Module], Callable[[int, Sequence[int]], nn.Module]]
] = {
    "study": (study_encoder, study_decoder),
    "bhowal_faces": (faces_encoder, faces_decoder),
    "bhowal_shapes": (shapes_encoder, shapes_decoder),
}


def build(
    shape: Sequence[int],
    *,
    architecture: str = "mlp",
    encoder_widths: Sequence[int] = (),
    decoder_widths: Sequence[int] = (),
    encoder_activation: str = "relu",
    decoder_activation: str = "tanh",
    latent: int = 10,
    posterior: str = "diagonal",
    likelihood: str = "bernoulli",
    likelihood_variance: float = 1.0,
    likelihood_draws: float = 1.0,
) -> VAE:
    """Compose the VAE that these names describe, its parameters still to be initialised.

    Args:
        shape: shape of one item of data.
        architecture: ``mlp``, ``study`` (Locatello et al. 2019), ``bhowal_faces`` or ``bhowal_shapes``
            (bhowal2024 Table 3).
        encoder_widths, decoder_widths, encoder_activation, decoder_activation: of ``mlp`` alone; defaults are
            affine maps, which the other architectures require.
        latent: number of latents.
        posterior: ``diagonal``, ``full`` or ``point``.
        likelihood: ``gaussian``, ``gaussian_learned``, ``gaussian_pixel``, ``bernoulli``, ``binomial`` or
            ``continuous_bernoulli``.
        likelihood_variance: σ² of ``gaussian``, and where ``gaussian_learned`` starts.
        likelihood_draws: κ of ``binomial``.

    >>> model = build((1, 28, 28), encoder_widths=(400,), decoder_widths=(500, 500), latent=6, posterior="full")
    >>> model.posterior.width
    27
    """
    _known("architecture", architecture, ARCHITECTURES)
    _known("posterior", posterior, POSTERIORS)
    codes = _POSTERIORS[posterior](latent)
    outcome = _likelihood(likelihood, likelihood_variance, likelihood_draws)
    output = outcome.output_shape(shape)
    if architecture == "mlp":
        encoder: nn.Module = MLP(shape, encoder_widths, codes.width, activation=encoder_activation)
        decoder: nn.Module = MLP(latent, decoder_widths, output, activation=decoder_activation)
    else:
        _no_widths(architecture, encoder_widths, decoder_widths)
        make_encoder, make_decoder = _CONVOLUTIONAL[architecture]
        encoder, decoder = make_encoder(shape, codes.width), make_decoder(latent, output)
    return VAE(encoder, codes, decoder, outcome)


def _likelihood(name: str, variance: float, draws: float) -> AbstractLikelihood:
    _known("likelihood", name, LIKELIHOODS)
    if name == "gaussian":
        return Gaussian(variance)
    if name == "gaussian_learned":
        return Gaussian(variance, learned=True)
    if name == "gaussian_pixel":
        return PixelGaussian()
    if name == "bernoulli":
        return Bernoulli()
    if name == "binomial":
        return Binomial(draws)
    return ContinuousBernoulli()


def _known(argument: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise ValueError(f"{argument} must be one of {', '.join(known)}, got {name!r}")


def _no_widths(architecture: str, *widths: Sequence[int]) -> None:
    if any(widths):
        raise ValueError(
            f"encoder_widths and decoder_widths must be empty for {architecture}, whose layers are fixed, "
            f"got {tuple(widths[0])} and {tuple(widths[1])}"
        )
