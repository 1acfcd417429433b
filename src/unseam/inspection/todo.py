"""What to do about a decoder's geometry: each step once, and none against another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from unseam.inspection._grades import (
    AGREES,
    CLEARLY,
    MANY_DEGENERATE,
    NEARLY,
    POLARISED,
    ROUGHLY,
    is_square,
    joined,
    named,
    positions,
)

if TYPE_CHECKING:
    from unseam.inspection.result import Inspection

__all__ = ["Todo", "todo"]

NOTHING = "nothing"
STRAIGHTEN = "train it with a diagonal posterior, since a full covariance leaves the axes free to turn"
NO_MORE = "nothing more can be said from sampled latents alone"


class Todo(NamedTuple):
    """What to do.

    >>> print(Todo(("try a smaller β, since no latent is alive",), beta=-1))
    To do: try a smaller β, since no latent is alive.
    """

    steps: tuple[str, ...]
    """What to do, or that there is nothing."""
    beta: int = 0
    """Which way β should go: −1 down, +1 up, 0 for neither."""
    lead: str = "To do"
    """What stands before the steps; it says so where they suppose a training that is not known."""

    def __str__(self) -> str:
        return f"{self.lead}: {'; '.join(self.steps)}."


class _Wish(NamedTuple):
    """A finding that is not as the theory has it, and what may mend it."""

    why: str
    beta: int = 0
    longer: bool = False
    whom: str = ""
    """Who is to be helped where training longer does not."""


def todo(found: Inspection, *, factors: int | None = None) -> Todo:
    """What to do, from an inspection's numbers: β moves one way at most, and only where there is one.

    Where findings ask for a larger and a smaller β, the number of live latents decides, then the axes.

    Args:
        found: the inspection.
        factors: number of factors that made the data, where it is known.

    >>> import torch, unseam
    >>> found = unseam.inspect(lambda z: z * torch.tensor([3.0, 1.0, 0.0]), torch.zeros(4, 3))
    >>> print(todo(found))
    To do: nothing.
    """
    if found.posterior == "point":
        steps, way = tuple(_of_points(found, factors)), 0
    elif found.posterior == "full" and _crooked(found):
        # as long as the axes may turn, who lives and how long to train say nothing of the model that is wanted
        steps, way = (*_checks(found), STRAIGHTEN), 0
    else:
        wishes = list(_wishes(found, factors))
        way = next((wish.beta for wish in wishes if wish.beta), 0) if found.beta > 0 else 0
        steps = (*_checks(found), *_sizes(found, factors), *_trainings(wishes, way), *_readings(found, way))
    if not steps:
        return Todo((NOTHING if found.probes is None else NO_MORE,))
    supposed = ", if it was trained as a β-VAE" if found.posterior is None else ""
    return Todo(steps, way, f"To do{supposed}")


def _of_points(found: Inspection, factors: int | None) -> Iterable[str]:
    """Steps of an autoencoder, whose training has no β."""
    alive = _alive(found)
    if alive == 0:
        yield "train longer or at another learning rate, since no latent moves the output"
    elif alive == found.latent and (found.latent == 1 or factors is not None):
        yield from _more_latents(found, factors)
    if _crooked(found):
        yield (
            "train it as a β-VAE with a diagonal posterior, since nothing pulls an autoencoder's axes to right angles"
        )
    yield from _mixtures(found)


def _wishes(found: Inspection, factors: int | None) -> Iterable[_Wish]:
    """Findings in the order in which they may say where β goes."""
    alive = _alive(found)
    if found.probes is None and alive is not None:
        yield from _number(found, alive, factors)
    if alive == 0:
        return
    if _crooked(found):
        far = (found.dto_of_chance or 0.0) >= CLEARLY
        why = "are no more orthogonal than chance" if far else "lie between orthogonal and chance"
        yield _Wish(f"the axes {why}", beta=1, longer=True, whom="the axes")
    if found.polarised is not None and found.active is not None:
        restless = positions(found.polarised.mixed & ~found.active)
        if restless:
            verb = "is" if len(restless) == 1 else "are"
            why = f"{named(restless)} {verb} collapsed on the whole but not at every point"
            yield _Wish(why, beta=1, longer=True, whom=named(restless))
    error = found.precision_error
    if error is not None and error.diagonal >= ROUGHLY:
        yield _Wish("posterior and decoder do not agree", longer=True)
    elif error is not None and error.diagonal >= AGREES:
        why = (
            "posterior and decoder agree only roughly (what then remains is how the decoder bends within the "
            "posterior's width, which Eq. 7 leaves out)"
        )
        yield _Wish(why, longer=True)


def _number(found: Inspection, alive: int, factors: int | None) -> Iterable[_Wish]:
    """What is wrong with the number of live latents."""
    who = "no latent is" if alive == 0 else "one latent is" if alive == 1 else f"{alive} latents are"
    if found.latent == 1:
        if alive == 0:
            yield _Wish("its only latent collapsed", beta=-1)
    elif alive == 0 or (factors is None and alive == 1):
        yield _Wish(f"{'only ' * alive}{who} alive", beta=-1)
    elif factors is not None and (alive > factors or alive < min(factors, found.latent)):
        counted = "one factor" if factors == 1 else f"{factors} factors"
        yield _Wish(f"{who} alive for {counted}", beta=1 if alive > factors else -1)


def _checks(found: Inspection) -> Iterable[str]:
    """What may not be as it was told."""
    error = found.precision_error
    if error is not None and error.diagonal >= ROUGHLY and _alive(found) != 0:
        yield "check beta and likelihood where you gave them: they must be those of the training"
    if found.posterior is None and _crooked(found) and (found.dto_of_chance or 0.0) >= CLEARLY:
        yield "check that its posterior was diagonal"


def _sizes(found: Inspection, factors: int | None) -> Iterable[str]:
    """Whether a model needs more latents."""
    if found.probes is None and _alive(found) == found.latent:
        yield from _more_latents(found, factors)


def _more_latents(found: Inspection, factors: int | None) -> Iterable[str]:
    """Whether a model that uses all its latents needs more."""
    if found.latent == 1 and factors != 1:
        yield "give it more latents, since a single one has no axes to compare"
    elif factors is None:
        yield "give it more latents, since every one is used and others might be too"
    elif factors > found.latent:
        yield f"give it more latents, since all {found.latent} are used and there are {factors} factors"


def _trainings(wishes: list[_Wish], way: int) -> Iterable[str]:
    """Steps that train the model otherwise, each with all its reasons."""
    beta = f"try a {'larger' if way > 0 else 'smaller'} β"
    moved = [wish for wish in wishes if way and wish.beta == way]
    sure = [wish.why for wish in moved if not wish.longer]
    longer = [wish.why for wish in wishes if wish.longer]
    if sure:
        yield f"{beta}, since {joined(sure)}"
    if longer:
        yield f"train longer, since {joined(longer)}"
    if moved and not sure:
        yield f"{beta} where that does not help {joined([wish.whom for wish in moved])}"


def _readings(found: Inspection, way: int) -> Iterable[str]:
    """How to read what training will not change."""
    if found.polarised is not None and found.delta_kl is not None and found.active is not None:
        wide = positions(found.polarised.mixed & found.active)
        approximate = "read the theory of the polarised regime as an approximation, since"
        if wide:
            free = way == 0 and found.beta > 0 and found.latent > 1
            remedy = f"; a smaller β would make {'it' if len(wide) == 1 else 'them'} so" if free else ""
            verb = "is" if len(wide) == 1 else "are"
            yield f"{approximate} {named(wide)} {verb} alive without small variances (σ² ≪ 1{remedy})"
        elif found.active.any() and found.delta_kl >= POLARISED:
            yield f"{approximate} its KL is off by more than the {POLARISED:.0%} of rolinek2019 §5.2"
    yield from _mixtures(found)


def _mixtures(found: Inspection) -> Iterable[str]:
    """What orthogonality cannot tell apart."""
    if found.degenerate_fraction is not None and found.degenerate_fraction >= MANY_DEGENERATE:
        yield "expect factors of equal strength to stay mixed, since orthogonality cannot tell them apart"


def _crooked(found: Inspection) -> bool:
    """Whether axes that could be at right angles are not."""
    ratio = found.dto_of_chance
    return ratio is not None and ratio >= NEARLY and not is_square(found)


def _alive(found: Inspection) -> int | None:
    return None if found.active is None else int(found.active.sum())
