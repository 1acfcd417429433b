"""A VAE from the names and numbers that a trial holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unseam import choices
from unseam.models.vae import VAE

__all__ = ["build"]


def build(
    shape: Sequence[int],
    *,
    architecture: str | choices.Architecture = "mlp",
    latent: int = 10,
    posterior: str | choices.Posterior = "diagonal",
    likelihood: str | choices.Likelihood = "bernoulli",
    **options: Any,
) -> VAE:
    """Compose the VAE that these choices describe, its parameters still to be initialised.

    Args:
        shape: shape of one item of data.
        architecture: ``mlp``, ``study`` (Locatello et al. 2019), ``bhowal_faces`` or ``bhowal_shapes``
            (bhowal2024 Table 3), or one of your own.
        latent: number of latents.
        posterior: ``diagonal``, ``full`` or ``point``.
        likelihood: ``gaussian``, ``gaussian_learned``, ``gaussian_pixel``, ``bernoulli``, ``binomial`` or
            ``continuous_bernoulli``, or one of your own.
        options: of the three by their names in a trial: ``encoder_widths``, ``decoder_widths`` (affine maps by
            default), ``encoder_activation`` and ``decoder_activation`` of ``mlp``, ``likelihood_variance`` of the
            Gaussians, ``likelihood_draws`` of ``binomial``.

    >>> model = build((1, 28, 28), encoder_widths=(400,), decoder_widths=(500, 500), latent=6, posterior="full")
    >>> model.posterior.width
    27
    """
    networks = choices.find(choices.Architecture, architecture)
    codes = choices.find(choices.Posterior, posterior)
    outcome = choices.find(choices.Likelihood, likelihood)
    used = {option.name for choice in (networks, codes, outcome) for option in choice.options}
    if unused := sorted(set(options) - used):
        raise ValueError(
            f"{unused[0]} must be left out: architecture {networks.name!r}, posterior {codes.name!r} and likelihood "
            f"{outcome.name!r} use {', '.join(sorted(used)) or 'no options'}; got {options[unused[0]]!r}"
        )
    family = codes.load()(latent, **codes.arguments(options))
    distribution = outcome.load()(**outcome.arguments(options))
    output = distribution.output_shape(shape)
    encoder, decoder = networks.load()(shape, family.width, latent, output, **networks.arguments(options))
    return VAE(encoder, family, decoder, distribution)
