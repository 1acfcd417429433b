"""Learner: a model with the objective it is trained by, as one module that a stack can vectorise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from unseam import choices
from unseam.models import VAE, build, initialise
from unseam.trial import Trial

__all__ = ["Learner", "blank_learner", "learner"]

DISCRIMINATOR = "discriminator."
"""What the arguments of an objective's discriminator begin with (see :class:`unseam.choices.Option`)."""


class Learner(nn.Module):
    """A model, the objective's own network where it has one, and the objective's fixed settings.

    Args:
        model: the VAE.
        objective: what is minimised.
        size: number of training items.
        settings: of the objective, by the names of its arguments.

    >>> from unseam.training import Trial
    >>> member = learner(Trial(world="linear", latent=2, likelihood="gaussian"), (3,), size=100)
    >>> member(torch.zeros(4, 3), torch.zeros(4, 2), None, torch.tensor(0.0), {"beta": 1.0})._fields
    ('loss', 'reconstruction', 'kl')
    """

    def __init__(
        self,
        model: VAE,
        *,
        objective: str | choices.Objective,
        size: int,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.objective = choices.objective(objective)
        self.function = self.objective.load()
        self.size = size
        given = dict(self.objective.fixed) | dict(settings or {})
        own = {name: given.pop(name) for name in list(given) if name.startswith(DISCRIMINATOR)}
        self.settings = given
        self.discriminator: nn.Module | None = None
        if (network := self.objective.discriminator) is not None:
            make = choices.load_object(network) if isinstance(network, str) else network
            sizes = {name.removeprefix(DISCRIMINATOR): value for name, value in own.items()}
            self.discriminator = make(model.posterior.latent, **sizes)

    @property
    def needs_keys(self) -> bool:
        """Whether the objective permutes latents over the batch, and so takes uniform ``keys``."""
        return "keys" in self.objective.needs

    def forward(
        self,
        x: Tensor,
        noise: Tensor,
        keys: Tensor | None,
        step: Tensor,
        weights: Mapping[str, Tensor | float],
    ) -> NamedTuple:
        """The objective's named terms for one minibatch; scalars, mean over the batch."""
        given = {"step": step, "size": self.size, "keys": keys, "discriminator": self.discriminator}
        needed = {name: given[name] for name in self.objective.needs}
        terms: NamedTuple = self.function(
            model=self.model, x=x, noise=noise, **needed, **self.settings, **weights
        )
        return terms


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
    kinds = ("architecture", "posterior", "likelihood")
    options = {name: value for kind in kinds for name, value in trial.values(trial.choice(kind)).items()}
    model = build(
        shape,
        architecture=trial.architecture,
        latent=trial.latent,
        posterior=trial.posterior,
        likelihood=trial.likelihood,
        missing=trial.missing,
        encoder=trial.encoder,
        decoder=trial.decoder,
        covariate_columns=trial.covariate_columns,
        **options,
    )
    objective = trial.objective_choice
    settings = {
        option.argument or option.name: trial.value(option)
        for option in objective.options
        if not option.member and option.argument is not None
    }
    member = Learner(model, objective=objective, size=size, settings=settings)
    # stated, or torch's default type would be that of the weights
    return member.double() if trial.precision == "float64" else member.float()
