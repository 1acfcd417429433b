"""Trial: everything that determines one trained model, as one frozen value."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

from unseam import choices

__all__ = ["MEMBER_FIELDS", "Trial", "describe_field", "migrate"]

Value = str | int | float | bool | tuple[str | int | float, ...]

KINDS: dict[str, type[choices.Choice]] = {
    "architecture": choices.Architecture,
    "posterior": choices.Posterior,
    "likelihood": choices.Likelihood,
    "objective": choices.Objective,
    "optimiser": choices.Optimiser,
}
# What members of one stack may differ in; all other fields decide shapes, code paths or data.
MEMBER_FIELDS = frozenset({"seed", "learning_rate"}).union(
    option.name
    for kind in KINDS.values()
    for choice in choices.built_in(kind).values()
    for option in choice.options
    if option.member
)
NETWORKS = ("encoder", "decoder")
# Goes up when the meaning of a field changes, so that keys change too.
KEY_SCHEMA = 1


def _about(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One configured training: data set, architecture, posterior, likelihood, objective, optimiser, seed.

    A trial is plain data: it prints, hashes, compares, and goes to JSON and back unchanged. Two trials that differ
    only in :data:`MEMBER_FIELDS` (the seed and every scalar weight) are trained in one stack. Each of ``world``,
    ``architecture``, ``posterior``, ``likelihood``, ``objective`` and ``optimiser`` is the name of a choice,
    ``package.module:object``, or a value of :mod:`unseam.choices`, which is stored by its name. An option that the
    choices do not use must be left at its default.

    >>> trial = Trial(world="linear", latent=2, beta=1e-4, likelihood="gaussian")
    >>> Trial.from_dict(trial.to_dict()) == trial
    True
    >>> from dataclasses import replace
    >>> replace(trial, seed=1).stacks_with(trial)
    True
    >>> replace(trial, momentum=0.9)
    Traceback (most recent call last):
    ValueError: momentum is used by optimiser sgd, not by 'adam'; leave it at 0.0, got 0.9
    """

    world: str = _about("sprites", "data set, by the name `unseam data list` shows, or package.module:object")
    world_options: tuple[tuple[str, Value], ...] = _about((), "options of the data set, e.g. ratio=1.2")
    train_fraction: float = _about(
        1.0, "fraction of the data that is trained on; the rest is held out in two halves"
    )
    split_seed: int = _about(0, "seed of the split")

    missing: Literal["refuse", "mask"] = _about(
        "refuse", "what happens to missing values (NaN): an error, or no part in the likelihood"
    )

    covariate_columns: int = _about(
        0, "how many of the last values of an item are covariates; set by --covariates"
    )

    architecture: str = _about("mlp", "networks")
    encoder: str = _about("", "encoder of your own, package.module:factory of f(shape, features)")
    decoder: str = _about("", "decoder of your own, package.module:factory of f(latent, output)")
    encoder_widths: tuple[int, ...] = (256, 256)
    decoder_widths: tuple[int, ...] = (256, 256)
    encoder_activation: str = "relu"
    decoder_activation: str = "tanh"
    initialisation: Literal["torch", "glorot"] = _about("torch", "distribution of the initial weights")
    latent: int = _about(10, "number of latents")
    posterior: str = _about("diagonal", "family of q(z|x)")
    likelihood: str = _about("bernoulli", "family of p(x|z)")
    likelihood_variance: float = 1.0
    likelihood_draws: int = 1

    objective: str = _about("beta_elbo", "what is minimised")
    beta: float = 1.0
    alpha: float = 1.0
    gamma: float = 1.0
    capacity: float = 25.0
    capacity_steps: float = 100_000.0
    lambda_od: float = 10.0
    lambda_d: float = 5.0
    orthogonality: float = 1.0
    sampling: Literal["weighted", "stratified"] = "weighted"
    discriminator_rate: float = 1e-4
    weights: tuple[tuple[str, float], ...] = _about(
        (), "options of choices of your own that are no field of a trial, e.g. delta=2"
    )

    optimiser: str = _about("adam", "optimiser")
    learning_rate: float = _about(1e-3, "learning rate")
    momentum: float = 0.0
    adam_betas: tuple[float, float] = (0.9, 0.999)
    accumulator: float = 0.0
    epsilon: float | None = None
    steps: int = _about(10_000, "number of updates")
    batch_size: int = _about(64, "items per update")
    precision: Literal["tf32", "float32", "bf16", "float64"] = _about(
        "tf32", "arithmetic of the training step"
    )
    seed: int = _about(0, "seed of initial weights, minibatches and noise")

    def __post_init__(self) -> None:
        for name in ("world", *KINDS):
            if isinstance(given := getattr(self, name), choices.Choice):
                object.__setattr__(self, name, choices.name_of(given))
        for name in NETWORKS:
            if not isinstance(given := getattr(self, name), str):
                object.__setattr__(self, name, choices.object_name(given, name))
        for name in ("world_options", "weights"):
            given = getattr(self, name)
            pairs = given.items() if isinstance(given, Mapping) else ((key, value) for key, value in given)
            frozen = ((key, tuple(value) if isinstance(value, list) else value) for key, value in pairs)
            object.__setattr__(self, name, tuple(sorted(frozen)))
        for name in ("encoder_widths", "decoder_widths", "adam_betas"):
            given = getattr(self, name)
            if not isinstance(given, tuple | list):
                raise ValueError(f"{name} must be a sequence of numbers, got {given!r}")
            object.__setattr__(self, name, tuple(given))
        _check_choices(self)
        _check_ranges(self)
        _check_unused(self)
        _check_weights(self)

    @property
    def objective_choice(self) -> choices.Objective:
        """The objective with its title and what it needs."""
        return choices.objective(self.objective)

    def choice(self, kind: str) -> choices.Choice:
        """The choice in the field ``architecture``, ``posterior``, ``likelihood``, ``objective`` or ``optimiser``."""
        return choices.find(KINDS[kind], getattr(self, kind))

    def value(self, option: choices.Option) -> Any:
        """The value of an option of one of the choices: a field, one of the ``weights``, or the option's default."""
        if option.name in self.__dataclass_fields__:
            return getattr(self, option.name)
        return dict(self.weights).get(option.name, option.default)

    def values(self, choice: choices.Choice) -> dict[str, Any]:
        """The values of all options of a choice, by name."""
        return {option.name: self.value(option) for option in choice.options}

    def uses(self, name: str) -> bool:
        """Whether a field decides anything: one of the choices uses it, or all do."""
        held = [self.choice(kind) for kind in KINDS]
        return name not in _users() or any(
            option.name == name for choice in held for option in choice.options
        )

    def to_dict(self) -> dict[str, Any]:
        """The trial as JSON values, every field included."""
        record = {item.name: getattr(self, item.name) for item in fields(self)}
        for name, value in record.items():
            if isinstance(value, tuple):
                record[name] = dict(value) if name in ("world_options", "weights") else list(value)
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """The trial that :meth:`to_dict` wrote, now or in an earlier format; an unknown key is an error."""
        known = {item.name for item in fields(cls)}
        if unknown := sorted(set(record) - known):
            raise ValueError(f"unknown trial field {unknown[0]!r}; the fields are {', '.join(sorted(known))}")
        return cls(**migrate(record))

    def key(self, *, data: str | None = None) -> str:
        """A digest of all that decides the trained model, the same for the same trial in every version.

        It covers the fields that are not at their defaults, so that a new field changes no key, and the source of
        choices that are not built in.

        Args:
            data: fingerprint of the data, where they are not those that ``world`` names.

        >>> Trial(beta=4).key() == Trial(beta=4.0).key() != Trial(beta=5).key()
        True
        """
        changed = {
            item.name: _canonical(getattr(self, item.name))
            for item in fields(self)
            if getattr(self, item.name) != item.default and item.name != "weights"
        }
        held = [self.choice(kind) for kind in KINDS]
        extra = {
            option.name: _canonical(self.value(option))
            for choice in held
            for option in choice.options
            if option.name in dict(self.weights) and self.value(option) != option.default
        }
        if ":" in self.world or self.world in choices.names(choices.World):
            held.append(choices.find(choices.World, self.world))
        own = [where for choice in held if (where := choices.identity(choice)) is not None]
        own += [
            choices.source(choices.load_object(name)) for name in map(self.__getattribute__, NETWORKS) if name
        ]
        text = json.dumps([KEY_SCHEMA, changed, extra, own, data], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def stacks_with(self, other: Trial) -> bool:
        """Whether the two can be members of one stack."""
        return self.stack_key() == other.stack_key()

    def stack_key(self) -> tuple[Any, ...]:
        """What has to be equal for trials to share a stack."""
        shared = [item.name for item in fields(self) if item.name not in MEMBER_FIELDS | {"weights"}]
        fixed = [option for option in _own_options(self).values() if not option.member]
        return (*(getattr(self, name) for name in shared), *(self.value(option) for option in fixed))

    def describe(self) -> str:
        """The fields that differ from the defaults, on one line."""
        changed = [
            f"{item.name}={getattr(self, item.name)!r}"
            for item in fields(self)
            if getattr(self, item.name) != item.default
        ]
        return f"Trial({', '.join(changed)})"


def migrate(record: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a saved trial of any format, as fields of the present one.

    A saved trial holds every field of its format. The first format had no ``accumulator``; the first two had no
    ``weights`` and let any field be set: where ``weights`` is missing, options that the choices do not use go back to
    their defaults.

    >>> old = Trial(beta=4.0).to_dict() | {"gamma": 7.0}
    >>> del old["weights"]
    >>> Trial.from_dict(old).describe()
    'Trial(beta=4.0)'
    """
    saved = {"world", *KINDS, "seed"} <= record.keys()
    if not saved or "weights" in record:
        return dict(record)
    used = {
        option.name for name, kind in KINDS.items() for option in choices.find(kind, record[name]).options
    }
    return {name: value for name, value in record.items() if name in used or name not in _users()}


def describe_field(name: str) -> str:
    """What a field is, with the choices that it can name or that use it.

    >>> describe_field("gamma").split("; ")[0]
    'weight of |KL − C| (annealed VAE)'
    >>> describe_field("posterior")
    'family of q(z|x): diagonal, full, point, or package.module:object'
    """
    if name in KINDS:
        text = Trial.__dataclass_fields__[name].metadata["help"]
        return f"{text}: {', '.join(choices.names(KINDS[name]))}, or package.module:object"
    values = f": {', '.join(_literals()[name])}" if name in _literals() else ""
    if name not in _users():
        return f"{Trial.__dataclass_fields__[name].metadata['help']}{values}"
    titles: dict[str, list[str]] = {}
    for choice in _users()[name][1]:
        for option in choice.options:
            if option.name == name:
                titles.setdefault(option.help, []).append(choice.title)
    return "; ".join(f"{text} ({', '.join(found)})" for text, found in titles.items()) + values


@cache
def _users() -> dict[str, tuple[str, tuple[choices.Choice, ...]]]:
    """Fields that are options of choices, each with the field of those choices and the choices that use it."""
    found: dict[str, tuple[str, tuple[choices.Choice, ...]]] = {}
    for name, kind in KINDS.items():
        for choice in choices.built_in(kind).values():
            for option in choice.options:
                if option.name in Trial.__dataclass_fields__:
                    found[option.name] = (name, (*found.get(option.name, (name, ()))[1], choice))
    return found


@cache
def _literals() -> dict[str, tuple[str, ...]]:
    hints = get_type_hints(Trial)
    return {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Literal}


def _own_options(trial: Trial) -> dict[str, choices.Option]:
    """Options of a trial's choices that are no fields."""
    return {
        option.name: option
        for kind in KINDS
        for option in trial.choice(kind).options
        if option.name not in trial.__dataclass_fields__
    }


def _canonical(value: Any) -> Any:
    """A value as JSON, whole numbers as such whatever their type."""
    if isinstance(value, tuple):
        return [_canonical(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _check_choices(trial: Trial) -> None:
    for name, known in _literals().items():
        if getattr(trial, name) not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}; got {getattr(trial, name)!r}")
    for name in NETWORKS:
        if given := getattr(trial, name):
            choices.load_factory(given)
    needed, posterior = trial.objective_choice.variance, choices.find(choices.Posterior, trial.posterior)
    if needed is not None and needed != posterior.variance:
        wanted = "a posterior with a variance" if needed else "posterior 'point'"
        raise ValueError(f"objective {trial.objective!r} needs {wanted}, got {trial.posterior!r}")


def _check_unused(trial: Trial) -> None:
    used = {option.name for kind in KINDS for option in trial.choice(kind).options}
    for name, (kind, users) in _users().items():
        value, default = getattr(trial, name), Trial.__dataclass_fields__[name].default
        if name not in used and value != default:
            raise ValueError(
                f"{name} is used by {kind} {', '.join(choice.name for choice in users)}, not by "
                f"{getattr(trial, kind)!r}; leave it at {default!r}, got {value!r}"
            )


def _check_weights(trial: Trial) -> None:
    known = _own_options(trial)
    for name, value in trial.weights:
        if name not in known:
            listed = ", ".join(known) or "none"
            raise ValueError(
                f"weights must name options of the trial's choices that are no fields ({listed}), got {name!r}"
            )
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"weight {name} must be a finite number, got {value!r}")
    for name, option in known.items():
        if trial.value(option) is None:
            raise ValueError(f"weights must hold {name} ({option.help}), which has no default")


def _check_ranges(trial: Trial) -> None:
    for name in ("latent", "steps", "batch_size", "likelihood_draws"):
        value = getattr(trial, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    for name in ("seed", "split_seed", "covariate_columns"):
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
        if any(not isinstance(width, int) or width < 1 for width in getattr(trial, name)):
            raise ValueError(f"{name} must hold whole numbers of at least 1, got {getattr(trial, name)!r}")
