"""Models of pythae."""

from __future__ import annotations

from typing import Any

from torch import nn

from unseam import models
from unseam.adapters.parts import Decode, Encode, kind_of, view
from unseam.subject import Subject

__all__ = ["pythae"]

# Their latents are discrete, lie on a curved space or in layers, or the posterior is not the encoder's.
_OTHER = {"VQVAE", "SVAE", "PoincareVAE", "HVAE", "VAE_IAF", "VAE_LinNF"}


def pythae(model: Any) -> Subject:
    """A model of pythae with its likelihood: Bernoulli probabilities for ``bce``, and the Gaussian that ``mse`` means.

    pythae's VAEs halve the squared error, which is a Gaussian of variance 1; its autoencoders do not, which is one of
    variance ½. β is the model's own where its loss is the β-VAE's, and 1 for a VAE.

    Args:
        model: any with a Gaussian posterior or none: VAE, BetaVAE, FactorVAE, BetaTCVAE, AE, WAE, RAE, ….

    >>> pythae(object())
    Traceback (most recent call last):
    ValueError: model must be one of pythae.models with a decoder, got object
    """
    if bad := _OTHER & {one.__name__ for one in type(model).__mro__}:
        raise ValueError(
            f"model must have latents in R^d and a Gaussian posterior or none, which pythae's {bad.pop()} has not; "
            "pass its decoder alone: unseam.wrap(model.decoder, latent=model.latent_dim)"
        )
    if not isinstance(getattr(model, "decoder", None), nn.Module):
        raise ValueError(f"model must be one of pythae.models with a decoder, got {type(model).__name__}")
    twin: Any = view(model)
    config, kind = model.model_config, kind_of(twin)
    parents = {one.__name__ for one in type(model).__mro__}
    logits = getattr(config, "reconstruction_loss", "mse") == "bce"
    is_vae = "VAE" in parents
    likelihood = models.Bernoulli() if logits else models.Gaussian(1.0 if is_vae else 0.5)
    decode = Decode(twin.decoder, probabilities=logits)
    encode = Encode(twin.encoder, kind)
    return Subject(_name(model), decode, config.latent_dim, likelihood.to(*kind), encode, _beta(model))


def _name(model: Any) -> str:
    beta = getattr(model, "beta", None)
    return f"{type(model).__name__}" + (f" (β {beta:g})" if isinstance(beta, int | float) else "")


def _beta(model: Any) -> float | None:
    """The weight of the KL term, where the model's loss is the β-VAE's."""
    name = type(model).__name__
    if name == "BetaVAE":
        return float(model.beta)
    return 1.0 if name in ("VAE", "FactorVAE") else None
