"""Learner: a model with the objective it is trained by, as one module that a stack can vectorise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from unseam import objectives
from unseam.models import VAE, build, initialise
from unseam.trial import Trial

__all__ = ["Learner", "blank_learner", "learner", "weight_names"]

WEIGHTS: Mapping[str, tuple[str, ...]] = {
    "beta_elbo": ("beta",),
    "annealed_capacity": ("gamma", "capacity", "capacity_steps"),
    "beta_tcvae": ("beta", "alpha", "gamma"),
    "factor_vae": ("beta", "gamma"),
    "dip_vae_i": ("beta", "lambda_od", "lambda_d"),
    "dip_vae_ii": ("beta", "lambda_od", "lambda_d"),
    "autoencoder": (),
    "deterministic_elbo": ("beta",),
    "orthogonal_elbo": ("beta", "orthogonality"),
}


def weight_names(objective: str) -> tuple[str, ...]:
    """The scalar weights of an objective, which are also fields of :class:`Trial`.

    >>> weight_names("dip_vae_i")
    ('beta', 'lambda_od', 'lambda_d')
    """
    return WEIGHTS[objective]


class Learner(nn.Module):
    """A model, the objective's own network where it has one, and the objective's fixed settings.

    Args:
        model: the VAE.
        objective: one of ``Trial.objective``.
        size: number of training items, for β-TCVAE's estimators.
        sampling: β-TCVAE's estimator.

    >>> from unseam.training import Trial
    >>> member = learner(Trial(world="linear", latent=2, likelihood="gaussian"), (3,), size=100)
    >>> member(torch.zeros(4, 3), torch.zeros(4, 2), None, torch.tensor(0.0), {"beta": 1.0})._fields
    ('loss', 'reconstruction', 'kl')
    """

    def __init__(
        self,
        model: VAE,
        *,
        objective: str,
        size: int,
        sampling: Literal["weighted", "stratified"] = "weighted",
    ) -> None:
        super().__init__()
        self.model = model
        self.objective = objective
        self.size = size
        self.sampling = sampling
        self.discriminator: nn.Module | None = None
        if objective == "factor_vae":
            self.discriminator = objectives.Discriminator(model.posterior.latent)

    @property
    def needs_keys(self) -> bool:
        """Whether the objective permutes latents over the batch, and so takes uniform ``keys``."""
        return self.discriminator is not None

    def forward(
        self,
        x: Tensor,
        noise: Tensor,
        keys: Tensor | None,
        step: Tensor,
        weights: Mapping[str, Tensor | float],
    ) -> NamedTuple:
        """The objective's named terms for one minibatch; scalars, mean over the batch."""
        model = self.model
        match self.objective:
            case "beta_elbo":
                return objectives.beta_elbo(model, x, noise, **weights)
            case "annealed_capacity":
                return objectives.annealed_capacity(model, x, noise, step=step, **weights)
            case "beta_tcvae":
                return objectives.beta_tcvae(
                    model, x, noise, size=self.size, sampling=self.sampling, **weights
                )
            case "factor_vae" if self.discriminator is not None and keys is not None:
                return objectives.factor_vae(model, self.discriminator, x, noise, keys, **weights)
            case "dip_vae_i":
                return objectives.dip_vae(model, x, noise, form="i", **weights)
            case "dip_vae_ii":
                return objectives.dip_vae(model, x, noise, form="ii", **weights)
            case "autoencoder":
                return objectives.autoencoder(model, x, noise)
            case "deterministic_elbo":
                return objectives.deterministic_elbo(model, x, noise, **weights)
            case "orthogonal_elbo":
                return objectives.orthogonal_elbo(model, x, noise, **weights)
            case other:
                raise ValueError(
                    f"objective must be one of {', '.join(WEIGHTS)} with all it needs, got {other!r}"
                )


def learner(trial: Trial, shape: tuple[int, ...], *, size: int) -> Learner:
    """The learner of a trial on items of ``shape``, its weights drawn from the trial's seed.

    >>> one, same = (learner(Trial(latent=2), (1, 8, 8), size=10) for _ in range(2))
    >>> all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters()))
    True
    """
    member = blank_learner(trial, shape, size=size).float()
    initialise(member, generator=torch.Generator().manual_seed(trial.seed), scheme=trial.initialisation)
    return member.double() if trial.precision == "float64" else member


def blank_learner(trial: Trial, shape: tuple[int, ...], *, size: int) -> Learner:
    """The same without its weights, which have to be loaded: drawing millions takes longer.

    >>> blank_learner(Trial(latent=2), (1, 8, 8), size=10).size
    10
    """
    fixed = trial.architecture != "mlp"
    model = build(
        shape,
        architecture=trial.architecture,
        encoder_widths=() if fixed else trial.encoder_widths,
        decoder_widths=() if fixed else trial.decoder_widths,
        encoder_activation=trial.encoder_activation,
        decoder_activation=trial.decoder_activation,
        latent=trial.latent,
        posterior=trial.posterior,
        likelihood=trial.likelihood,
        likelihood_variance=trial.likelihood_variance,
        likelihood_draws=trial.likelihood_draws,
    )
    member = Learner(model, objective=trial.objective, size=size, sampling=trial.sampling)
    return member.double() if trial.precision == "float64" else member
