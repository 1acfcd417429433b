"""A VAE from the names and numbers that a trial holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from unseam import choices
from unseam.files import first_line
from unseam.models.covariates import WithCovariates
from unseam.models.masked import Masked
from unseam.models.vae import VAE

__all__ = ["build"]


def build(
    shape: Sequence[int],
    *,
    architecture: str | choices.Architecture = "mlp",
    latent: int = 10,
    posterior: str | choices.Posterior = "diagonal",
    likelihood: str | choices.Likelihood = "bernoulli",
    missing: str = "refuse",
    encoder: str = "",
    decoder: str = "",
    covariate_columns: int = 0,
    **options: Any,
) -> VAE:
    """Compose the VAE that these choices describe, its parameters still to be filled by :func:`initialise`.

    Args:
        shape: shape of one item of data.
        architecture: ``mlp``, ``convolutional``, ``study`` (Locatello et al. 2019), ``bhowal_faces`` or
            ``bhowal_shapes`` (bhowal2024 Table 3), or one of your own.
        latent: number of latents.
        posterior: ``diagonal``, ``full`` or ``point``.
        likelihood: ``gaussian``, ``gaussian_learned``, ``gaussian_pixel``, ``bernoulli``, ``binomial``,
            ``continuous_bernoulli``, ``negative_binomial`` or ``zinb``, or one of your own.
        missing: ``"mask"`` leaves values that are NaN out of the likelihood.
        encoder: ``package.module:factory`` of one's own encoder, a function of ``shape`` and the number of features,
            in place of the architecture's.
        decoder: likewise, a function of the number of latents and the shape of the likelihood's parameter.
        covariate_columns: how many of the last values of an item are covariates (see :class:`WithCovariates`).
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
    if covariate_columns and not (len(shape) == 1 and covariate_columns < shape[0]):
        raise ValueError(
            f"covariate_columns must be fewer than the values of an item, and items no pictures; got "
            f"{covariate_columns} of shape {tuple(shape)}"
        )
    values = tuple(shape) if not covariate_columns else (shape[0] - covariate_columns,)
    shaped = {"shape": values} if outcome.shaped else {}
    distribution = outcome.load()(**shaped, **outcome.arguments(options))
    if missing == "mask" and not outcome.shaped:
        distribution = Masked(distribution)
    if covariate_columns:
        distribution = WithCovariates(distribution, values[0], covariate_columns)
    output = distribution.output_shape(shape)
    made: list[nn.Module | None] = [
        _network(encoder, shape, family.width, shape, (family.width,)) if encoder else None,
        _network(decoder, latent, output, (latent,), output) if decoder else None,
    ]
    if None in made:
        both = networks.load()(shape, family.width, latent, output, **networks.arguments(options))
        made = [own if own is not None else given for own, given in zip(made, both, strict=True)]
    into, out_of = made
    assert into is not None and out_of is not None
    return VAE(into, family, out_of, distribution)


def _network(name: str, inputs: Any, outputs: Any, takes: Sequence[int], gives: Sequence[int]) -> nn.Module:
    """What a factory of the user's own makes; it draws from a generator that is put back, and is initialised later."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        made = choices.load_factory(name)(inputs, outputs)
        if not isinstance(made, nn.Module):
            raise ValueError(f"{name} must return an nn.Module, got {type(made).__name__}")
        if any(isinstance(part, nn.modules.dropout._DropoutNd) for part in made.modules()):
            raise ValueError(
                f"{name} must return a network without dropout: noise comes from the posterior alone"
            )
        like = next(made.parameters(), torch.empty(0))
        training = made.training
        try:
            found = made.eval()(torch.zeros(2, *takes, dtype=like.dtype, device=like.device))
        except RuntimeError as error:
            raise ValueError(
                f"{name} must return a network that takes (batch, {', '.join(map(str, takes))}): {first_line(error)}"
            ) from error
        made.train(training)
    if not isinstance(found, torch.Tensor) or tuple(found.shape) != (2, *gives):
        shape = (
            f"(batch, {', '.join(map(str, found.shape[1:]))})" if isinstance(found, torch.Tensor) else found
        )
        raise ValueError(
            f"{name} must return a network whose output is (batch, {', '.join(map(str, gives))}), got {shape}"
        )
    return made
