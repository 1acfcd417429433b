"""What to do about a decoder's geometry: every step once, and no two that contradict each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from unseam.inspection.axes import Orthogonality
from unseam.inspection.words import join_words, list_latents, positions

if TYPE_CHECKING:
    from unseam.inspection.result import Inspection

__all__ = ["Todo", "describe_mixed", "todo"]

# Relative errors up to which two quantities agree, or agree roughly.
AGREES, ROUGHLY = 0.1, 0.3
MANY_DEGENERATE = 0.1
POLARISED = 0.03  # rolinek2019 §5.2
MANY_LATENTS = 64  # more are not a bottleneck that others might relieve

NOTHING = "nothing"
DIAGONAL = "train it with a diagonal posterior, since a full covariance leaves the axes free to rotate"
NO_MORE = "nothing more can be said from sampled latents alone"
UNKNOWN = "if it is the decoder of a VAE, give its encoder and training data too: advice on training follows from them"


class Todo(NamedTuple):
    """What to do.

    >>> print(Todo(("try a smaller β, since no latent is active",), beta=-1))
    To do: try a smaller β, since no latent is active.
    """

    steps: tuple[str, ...]
    """What to do, or that there is nothing."""
    beta: int = 0
    """Which way β should go: −1 down, +1 up, 0 for neither."""

    def __str__(self) -> str:
        return f"To do: {'; '.join(self.steps)}."


class _Issue(NamedTuple):
    """A finding that deviates from theory, and what may correct it."""

    why: str
    beta: int = 0
    longer: bool = False
    whom: str = ""
    """What a change of β is for, where training longer does not help."""


def todo(found: Inspection, *, factors: int | None = None) -> Todo:
    """What to do, from an inspection's numbers: β changes in one direction at most, and only where there is one.

    Where findings ask for a larger and a smaller β, the number of active latents decides, then the axes.

    Args:
        found: the inspection.
        factors: number of factors that made the data; by default what the inspection knows of it.

    >>> import torch, unseam
    >>> found = unseam.inspect(lambda z: z * torch.tensor([3.0, 1.0, 0.0]), torch.zeros(4, 3))
    >>> print(todo(found))
    To do: nothing.
    """
    factors = found.factors if factors is None else factors
    if found.posterior is None:
        steps, way = tuple(_of_decoders(found)), 0
    elif found.posterior == "point":
        steps, way = tuple(_of_points(found, factors)), 0
    elif found.posterior == "full" and _oblique(found):
        # as long as the axes may rotate, active latents and length of training say nothing of the model that is wanted
        steps, way = (*_checks(found), DIAGONAL), 0
    else:
        issues = list(_issues(found, factors))
        way = next((issue.beta for issue in issues if issue.beta), 0) if found.beta > 0 else 0
        steps = (*_checks(found), *_sizes(found, factors), *_trainings(issues, way), *_readings(found, way))
    return Todo(steps or (NOTHING if found.probes is None else NO_MORE,), way)


def _of_decoders(found: Inspection) -> Iterable[str]:
    """Steps for a decoder alone: a GAN's, PCA's or a VAE's, whose training is not known."""
    if _oblique(found) or _count_active(found) == 0:
        yield UNKNOWN
    yield from _mixtures(found)


def _of_points(found: Inspection, factors: int | None) -> Iterable[str]:
    """Steps of an autoencoder, whose training has no β."""
    active = _count_active(found)
    if active == 0:
        yield "train longer or at another learning rate, since no latent changes the output"
    elif active == found.latent and (found.latent == 1 or factors is not None):
        yield from _more_latents(found, factors)
    if _oblique(found):
        yield (
            "train it as a β-VAE with a diagonal posterior, since nothing makes an autoencoder's axes orthogonal"
        )
    yield from _mixtures(found)


def _issues(found: Inspection, factors: int | None) -> Iterable[_Issue]:
    """Findings in the order in which they may decide the direction of β."""
    active = _count_active(found)
    if found.probes is None and active is not None:
        yield from _number(found, active, factors)
    if active == 0:
        return
    if _oblique(found):
        yield _Issue(f"the axes are {found.orthogonality}", beta=1, longer=True, whom="the axes")
    partly = _mixed(found, active=False)
    if partly:
        yield _Issue(_say_mixed(partly, active=False), beta=1, longer=True, whom=list_latents(partly))
    error = found.precision_error
    if error is not None and error.diagonal >= ROUGHLY:
        yield _Issue("posterior and decoder do not agree", longer=True)
    elif error is not None and error.diagonal >= AGREES:
        why = (
            "posterior and decoder agree only roughly (what then remains is the decoder's curvature "
            "within the posterior's width, which Eq. 7 leaves out)"
        )
        yield _Issue(why, longer=True)


def _number(found: Inspection, active: int, factors: int | None) -> Iterable[_Issue]:
    """What is wrong with the number of active latents."""
    who = "no latent is" if active == 0 else "one latent is" if active == 1 else f"{active} latents are"
    if found.latent == 1:
        if active == 0:
            yield _Issue("its only latent collapsed", beta=-1)
    elif active == 0 or (factors is None and active == 1):
        yield _Issue(f"{'only ' * active}{who} active", beta=-1)
    elif factors is not None and (active > factors or active < min(factors, found.latent)):
        counted = "one factor" if factors == 1 else f"{factors} factors"
        yield _Issue(f"{who} active for {counted}", beta=1 if active > factors else -1)


def _checks(found: Inspection) -> Iterable[str]:
    """Settings that may differ from those of the training."""
    error = found.precision_error
    # a run knows its own
    if not found.where and error is not None and error.diagonal >= ROUGHLY and _count_active(found) != 0:
        yield "check beta and likelihood: they must be those of the training"


def _sizes(found: Inspection, factors: int | None) -> Iterable[str]:
    """Whether a model needs more latents."""
    if found.probes is None and _count_active(found) == found.latent:
        yield from _more_latents(found, factors)


def _more_latents(found: Inspection, factors: int | None) -> Iterable[str]:
    """Whether a model that uses all its latents needs more."""
    if found.latent == 1 and factors != 1:
        yield "give it more latents, since a single one has no axes to compare"
    elif found.outputs is not None and found.latent >= min(found.outputs, MANY_LATENTS):
        return
    elif factors is None:
        yield "give it more latents, since every one is used and others might be too"
    elif factors > found.latent:
        yield f"give it more latents, since all {found.latent} are used and there are {factors} factors"


def _trainings(issues: list[_Issue], way: int) -> Iterable[str]:
    """Steps that change the training, each with all its reasons."""
    beta = f"try a {'larger' if way > 0 else 'smaller'} β"
    moved = [issue for issue in issues if way and issue.beta == way]
    sure = [issue.why for issue in moved if not issue.longer]
    longer = [issue.why for issue in issues if issue.longer]
    if sure:
        yield f"{beta}, since {join_words(sure)}"
    if longer:
        yield f"train longer, since {join_words(longer)}"
    if moved and not sure:
        yield f"{beta} where that does not help {join_words([issue.whom for issue in moved])}"


def _readings(found: Inspection, way: int) -> Iterable[str]:
    """How to read what training will not change."""
    if found.polarised is not None and found.delta_kl is not None and found.active is not None:
        wide = _mixed(found, active=True)
        approximate = "read the theory of the polarised regime as an approximation, since"
        if wide:
            free = way == 0 and found.beta > 0 and found.latent > 1
            remedy = "; a smaller β would reduce it" if free else ""
            yield f"{approximate} {_say_mixed(wide, active=True)}{remedy}"
        elif found.active.any() and found.delta_kl >= POLARISED:
            yield f"{approximate} its KL is off by more than the {POLARISED:.0%} of rolinek2019 §5.2"
    yield from _mixtures(found)


def _mixtures(found: Inspection) -> Iterable[str]:
    """What orthogonality cannot distinguish."""
    if found.crowded:
        yield "use fewer latents: the output changes in fewer directions than there are active ones"
    elif found.degenerate_fraction is not None and found.degenerate_fraction >= MANY_DEGENERATE:
        yield "do not rely on orthogonality to separate directions of equal strength, which it cannot distinguish"


def describe_mixed(found: Inspection) -> list[str]:
    """Active latents whose variance is not small, and collapsed ones that are active at some points."""
    each = ((_mixed(found, active=active), active) for active in (True, False))
    return [_say_mixed(which, active=active) for which, active in each if which]


def _mixed(found: Inspection, *, active: bool) -> list[int]:
    """Latents in neither polarised state (rolinek2019 Def. 1), of those that are active on average or of the others."""
    if found.polarised is None or found.active is None:
        return []
    return positions(found.polarised.mixed & (found.active == active))


def _say_mixed(which: list[int], *, active: bool) -> str:
    verb = "is" if len(which) == 1 else "are"
    how = (
        "active with a variance that is not small (the theory has σ² ≪ 1)"
        if active
        else "collapsed on average but not at every point"
    )
    return f"{list_latents(which)} {verb} {how}"


def _oblique(found: Inspection) -> bool:
    """Whether axes that could be at right angles are not."""
    return found.orthogonality is not None and found.orthogonality > Orthogonality.NEARLY


def _count_active(found: Inspection) -> int | None:
    return None if found.active is None else int(found.active.sum())
