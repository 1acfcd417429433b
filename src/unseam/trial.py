"""Trial: everything that determines one trained model, as one frozen value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

__all__ = ["MEMBER_FIELDS", "Trial"]

Option = str | int | float | bool | tuple[str | int | float, ...]

# What members of one stack may differ in; all other fields decide shapes, code paths or data.
MEMBER_FIELDS = frozenset({
    "seed", "beta", "alpha", "gamma", "capacity", "capacity_steps", "lambda_od", "lambda_d", "orthogonality",
    "learning_rate", "discriminator_rate", "likelihood_variance",
})  # fmt: skip


def _about(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One configured training: data set, architecture, posterior, likelihood, objective, optimiser, seed.

    A trial is plain data: it prints, hashes, compares, and goes to JSON and back unchanged. Two trials that differ
    only in :data:`MEMBER_FIELDS` (the seed and every scalar weight) are trained in one stack.

    >>> trial = Trial(world="linear", latent=2, beta=1e-4, likelihood="gaussian")
    >>> Trial.from_dict(trial.to_dict()) == trial
    True
    >>> from dataclasses import replace
    >>> replace(trial, seed=1).stacks_with(trial)
    True
    """

    world: str = _about("sprites", "data set, by the name `unseam data list` shows")
    world_options: tuple[tuple[str, Option], ...] = _about((), "options of the data set, e.g. ratio=1.2")
    train_fraction: float = _about(
        1.0, "part of the data that is trained on; the rest is held out in two halves"
    )
    split_seed: int = _about(0, "seed of the split")

    architecture: Literal["mlp", "study", "bhowal_faces", "bhowal_shapes"] = _about("mlp", "networks")
    encoder_widths: tuple[int, ...] = _about(
        (256, 256), "hidden widths of an mlp encoder; none: a linear map"
    )
    decoder_widths: tuple[int, ...] = _about(
        (256, 256), "hidden widths of an mlp decoder; none: a linear map"
    )
    encoder_activation: str = _about("relu", "non-linearity of an mlp encoder")
    decoder_activation: str = _about("tanh", "non-linearity of an mlp decoder")
    initialisation: Literal["torch", "glorot"] = _about("torch", "distribution of the initial weights")
    latent: int = _about(10, "number of latents")
    posterior: Literal["diagonal", "full", "point"] = _about("diagonal", "family of q(z|x)")
    likelihood: Literal[
        "gaussian", "gaussian_learned", "gaussian_pixel", "bernoulli", "binomial", "continuous_bernoulli"
    ] = _about("bernoulli", "family of p(x|z)")
    likelihood_variance: float = _about(1.0, "variance of a gaussian likelihood (its start, when learned)")
    likelihood_draws: int = _about(1, "draws a pixel of a binomial likelihood")

    objective: Literal[
        "beta_elbo", "annealed_capacity", "beta_tcvae", "factor_vae", "dip_vae_i", "dip_vae_ii", "autoencoder",
        "deterministic_elbo", "orthogonal_elbo",
    ] = _about("beta_elbo", "what is minimised")  # fmt: skip
    beta: float = _about(1.0, "weight of the KL term (β-TCVAE: of the total correlation)")
    alpha: float = _about(1.0, "β-TCVAE: weight of the index-code mutual information")
    gamma: float = _about(
        1.0, "weight of FactorVAE's total correlation, |KL - C|, or β-TCVAE's dimension-wise KL"
    )
    capacity: float = _about(25.0, "annealed capacity: final C in nats")
    capacity_steps: float = _about(100_000.0, "annealed capacity: steps until C is reached")
    lambda_od: float = _about(10.0, "DIP-VAE: weight of the off-diagonal covariances")
    lambda_d: float = _about(5.0, "DIP-VAE: weight of the variances' distance to 1")
    orthogonality: float = _about(1.0, "orthogonal_elbo: weight of the Hadamard gap")
    sampling: Literal["weighted", "stratified"] = _about("weighted", "β-TCVAE: estimator of q(z)")
    discriminator_rate: float = _about(1e-4, "FactorVAE: learning rate of the discriminator")

    optimiser: Literal["adam", "adagrad", "sgd"] = _about("adam", "optimiser")
    learning_rate: float = _about(1e-3, "learning rate")
    momentum: float = _about(0.0, "momentum of sgd")
    adam_betas: tuple[float, float] = _about((0.9, 0.999), "decay rates of adam")
    accumulator: float = _about(0.0, "adagrad's sum of squares before the first update (TensorFlow's is 0.1)")
    epsilon: float | None = _about(None, "the optimiser's ε (by default 1e-8 for adam, 1e-10 for adagrad)")
    steps: int = _about(10_000, "number of updates")
    batch_size: int = _about(64, "items an update")
    precision: Literal["tf32", "float32", "bf16", "float64"] = _about(
        "tf32", "arithmetic of the training step"
    )
    seed: int = _about(0, "seed of initial weights, minibatches and noise")

    def __post_init__(self) -> None:
        options = self.world_options
        pairs = options.items() if isinstance(options, Mapping) else ((key, value) for key, value in options)
        kept = ((key, tuple(value) if isinstance(value, list) else value) for key, value in pairs)
        object.__setattr__(self, "world_options", tuple(sorted(kept)))
        for name in ("encoder_widths", "decoder_widths", "adam_betas"):
            given = getattr(self, name)
            if not isinstance(given, tuple | list):
                raise ValueError(f"{name} must be a sequence of numbers, got {given!r}")
            object.__setattr__(self, name, tuple(given))
        _check_choices(self)
        _check_ranges(self)

    def to_dict(self) -> dict[str, Any]:
        """The trial as JSON values, every field included."""
        record = {item.name: getattr(self, item.name) for item in fields(self)}
        for name, value in record.items():
            if isinstance(value, tuple):
                record[name] = dict(value) if name == "world_options" else list(value)
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """The trial that :meth:`to_dict` wrote; an unknown key is an error."""
        known = {item.name for item in fields(cls)}
        if unknown := sorted(set(record) - known):
            raise ValueError(f"unknown trial field {unknown[0]!r}; the fields are {', '.join(sorted(known))}")
        return cls(**record)

    def stacks_with(self, other: Trial) -> bool:
        """Whether the two can be members of one stack."""
        return self.stack_key() == other.stack_key()

    def stack_key(self) -> tuple[Any, ...]:
        """What has to be equal for trials to share a stack."""
        return tuple(getattr(self, item.name) for item in fields(self) if item.name not in MEMBER_FIELDS)

    def describe(self) -> str:
        """The fields that differ from the defaults, on one line."""
        changed = [
            f"{item.name}={getattr(self, item.name)!r}"
            for item in fields(self)
            if getattr(self, item.name) != item.default
        ]
        return f"Trial({', '.join(changed)})"


def _check_choices(trial: Trial) -> None:
    for name, hint in get_type_hints(Trial).items():
        if get_origin(hint) is Literal and getattr(trial, name) not in get_args(hint):
            choices = ", ".join(get_args(hint))
            raise ValueError(f"{name} must be one of {choices}; got {getattr(trial, name)!r}")
    if trial.objective == "autoencoder" and trial.posterior != "point":
        raise ValueError(f"objective 'autoencoder' needs posterior 'point', got {trial.posterior!r}")
    if trial.posterior == "point" and trial.objective not in ("autoencoder", "beta_elbo", "orthogonal_elbo"):
        raise ValueError(f"objective {trial.objective!r} needs a posterior with a variance, got 'point'")


def _check_ranges(trial: Trial) -> None:
    for name in ("latent", "steps", "batch_size", "likelihood_draws"):
        value = getattr(trial, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    for name in ("seed", "split_seed"):
        value = getattr(trial, name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
            raise ValueError(f"{name} must be a whole number from 0 to 2^63 - 1, got {value!r}")
    for name in sorted(MEMBER_FIELDS - {"seed"} | {"accumulator"}):
        value = getattr(trial, name)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
            or value < 0
        ):
            raise ValueError(f"{name} must be a finite number of at least 0, got {value!r}")
    for name in ("learning_rate", "likelihood_variance", "capacity_steps"):
        if getattr(trial, name) == 0:
            raise ValueError(f"{name} must be positive, got 0")
    if trial.epsilon is not None and not (math.isfinite(trial.epsilon) and trial.epsilon > 0):
        raise ValueError(f"epsilon must be a finite number above 0, got {trial.epsilon!r}")
    if len(trial.adam_betas) != 2 or not all(0.0 <= beta < 1.0 for beta in trial.adam_betas):
        raise ValueError(f"adam_betas must be two numbers in [0, 1), got {trial.adam_betas!r}")
    if not 0.0 < trial.train_fraction <= 1.0:
        raise ValueError(f"train_fraction must lie in (0, 1], got {trial.train_fraction!r}")
    if not 0.0 <= trial.momentum < 1.0:
        raise ValueError(f"momentum must lie in [0, 1), got {trial.momentum!r}")
    for name in ("encoder_widths", "decoder_widths"):
        default = Trial.__dataclass_fields__[name].default
        if trial.architecture != "mlp" and getattr(trial, name) not in ((), default):
            raise ValueError(
                f"{name} is for architecture 'mlp'; the layers of {trial.architecture!r} are fixed"
            )
        if any(not isinstance(width, int) or width < 1 for width in getattr(trial, name)):
            raise ValueError(f"{name} must hold whole numbers of at least 1, got {getattr(trial, name)!r}")
