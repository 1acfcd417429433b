"""Measure everything that a report shows of any decoder."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseam.adapters import wrap
from unseam.advice import Advice, advise
from unseam.choices import Likelihood, built_in
from unseam.data import World
from unseam.geometry import hadamard_gap, jacobian, pullback, restrict
from unseam.independence import Coupling, NotSmoothError, coupling
from unseam.inspection import Inspection
from unseam.models import Bernoulli, Gaussian, Masked, WithCovariates
from unseam.report.matching import match
from unseam.report.study import (
    Directions,
    Factorisation,
    Missing,
    Pictures,
    Study,
    Walks,
    importance,
)
from unseam.run import Cache
from unseam.subject import Subject

__all__ = ["study", "thresholds"]

Decoder = Callable[[Tensor], Tensor]

FRAMES = 9
REACH = 2.0
ROWS = 12  # latents that are walked along, and directions that are drawn, at most
ITEMS = 8
POINTS = 1000
COUPLED = 200  # points at which second derivatives are measured
FEWEST = 12  # and at least so many, as there are fewer where latents are more than 16: their cost grows as the square
PAIRED = 64  # active latents up to which they are: their cost grows as the square
WIDEST = 1024  # values of an item up to which thresholds are those of `unseam advise`
GRAM = 2048  # items of wider data, whose covariance takes longer than all else
STEP = 0.1  # of differences, in standard deviations of a latent, where derivatives see nothing of kinks


def study(
    decoder: Any,
    z: Tensor | NDArray[Any] | None = None,
    *,
    points: int = POINTS,
    factors: Any = None,
    factor_names: Sequence[str] | None = None,
    discrete: Sequence[bool] | None = None,
    latents: str | int | None = None,
    seed: int = 0,
    found: Inspection | None = None,
    advice: Advice | None = None,
    **options: Any,
) -> Study:
    """Measure of any decoder what a report shows; what cannot be measured is named with its reason.

    Args:
        decoder: any model that :func:`unseam.wrap` takes, or a subject.
        z: points (batch, latent); by default the means of ``encoder(x)``, or draws from the prior.
        points: number of those draws.
        factors: what made each item of ``x`` (batch, factor), where that is known.
        factor_names: their names.
        discrete: which of them are discrete; by default those of integer type.
        latents: as in :meth:`unseam.subject.Subject.inspect`.
        seed: of points, baselines and metrics.
        found: the inspection, where it is made already.
        advice: collapse thresholds of all of the data; by default those of ``x``.
        options: those of :func:`unseam.wrap` (``latent``, ``encoder``, ``x``, ``likelihood``, ``beta``, ``name``, …).

    >>> made = study(lambda z: z @ torch.diag(torch.tensor([3.0, 1.0])), latent=2)
    >>> made.order, [gap.part for gap in made.missing][0]
    ((0, 1), 'KL of each latent, the polarised regime and Eq. 7')
    """
    generator = torch.Generator().manual_seed(seed)
    if options.get("encoder") is not None and options.get("x") is None:
        raise ValueError("x must be given with encoder: the data that it encodes")
    decoder = wrap(decoder, z=z, **options)
    if decoder.z is None and decoder.x is None:
        decoder = dataclasses.replace(decoder, z=decoder.prior(points, generator))
    found = found or decoder.inspect(latents=latents, generator=generator)
    if factors is not None:
        found = dataclasses.replace(found, factors=np.shape(factors)[-1])
    mean, variance = found.mean, _diagonal(found)
    places = decoder.z if mean is None else mean
    parts = {}
    if found.probes is None and places is not None:
        parts = _local(found, decoder.mean_output, places, _spread(places, variance))
    why: tuple[Missing, ...] = ()
    if advice is None:
        advice, why = thresholds(decoder.x, decoder.likelihood)
    return Study(
        decoder.name,
        (found,),
        pictures=_pictures(decoder, mean),
        match=None
        if mean is None or factors is None
        else match(
            mean[None],
            factors,
            factor_names,
            discrete=discrete,
            variance=None if variance is None else variance[None],
            seed=seed,
        ),
        advice=advice,
        missing=(
            *_unmeasured(found, decoder.encoder, variance),
            *_unknown(mean, factors),
            *why,
            *parts.pop("missing", ()),
        ),
        **parts,
    )


def _diagonal(found: Inspection) -> Tensor | None:
    """The posterior's variances (batch, latent), of a covariance its diagonal."""
    mean, variance = found.mean, found.variance
    if mean is None or variance is None or variance.ndim == mean.ndim:
        return variance
    return variance.diagonal(dim1=-2, dim2=-1)


def _spread(points: Tensor, variance: Tensor | None) -> Tensor:
    """Standard deviation of each latent over all that the encoder makes of the data: 1 where that is the prior."""
    own = points.flatten(1).var(0, correction=0)
    return (own if variance is None else own + variance.mean(0)).sqrt()


def _pictures(subject: Subject, mean: Tensor | None) -> Pictures | None:
    if mean is None or subject.x is None:
        return None
    few = torch.linspace(0, len(mean) - 1, min(ITEMS, len(mean))).round().long()
    with torch.no_grad():
        return Pictures(_array(subject.x[few]), _array(subject.mean_output(mean[few])))


def _local(found: Inspection, drawn: Decoder, points: Tensor, spread: Tensor) -> dict[str, Any]:
    """What needs the decoder itself: walks, directions, the density of what it generates."""
    active = [j for j in importance(found) if found.active is None or bool(found.active[j])]
    middle = int(((points - points.mean(0)) / spread.clamp(min=1e-12)).square().sum(1).argmin())
    parts: dict[str, Any] = {
        "walks": _walks(found, drawn, points[middle], spread),
        "directions": _directions(found, drawn, points, middle, active),
    }
    if len(active) > PAIRED:
        why = f"Its second derivatives are taken for up to {PAIRED} active latents, and {len(active)} are."
        parts["missing"] = (Missing("Whether what it generates factorises", why),)
    elif found.crowded:
        why = "The output changes in fewer directions than there are active latents, so its density is not defined."
        parts["missing"] = (Missing("Whether what it generates factorises", why),)
    elif len(active) > 1:
        try:
            parts["factorisation"] = _factorisation(drawn, points, spread, active)
        except ValueError as error:
            parts["missing"] = (Missing("Whether what it generates factorises", f"{error}."),)
    return parts


def _walks(found: Inspection, drawn: Decoder, start: Tensor, spread: Tensor) -> Walks:
    rows = importance(found)[:ROWS]
    chosen = list(rows)
    steps = torch.linspace(-REACH, REACH, FRAMES).to(start)
    moves = torch.diag(spread)[chosen]
    points = start + steps[None, :, None] * moves[:, None, :]
    with torch.no_grad():
        frames = drawn(points.flatten(0, 1)).unflatten(0, points.shape[:2])
    return Walks(rows, _array(frames), _array(REACH * spread[chosen]))


def _directions(
    found: Inspection, drawn: Decoder, points: Tensor, middle: int, active: list[int]
) -> Directions | None:
    if found.right_vectors is None or found.singular_values is None or not active:
        return None
    vectors = found.right_vectors[middle].to(points)[:, : min(len(active), ROWS)]
    main = vectors.abs().argmax(0)
    largest = vectors[main, torch.arange(len(main))]
    with torch.no_grad():
        change = jacobian(drawn, points[middle : middle + 1])[0]
        shape = drawn(points[middle : middle + 1]).shape[1:]
    along = change @ (vectors * largest.sign())
    return Directions(
        _array(along.mT.reshape(-1, *shape)),
        _array(change[:, main].mT.reshape(-1, *shape)),
        tuple(main.tolist()),
        tuple(largest.square().tolist()),
        tuple(found.singular_values[middle, : len(main)].tolist()),
    )


def _factorisation(drawn: Decoder, points: Tensor, spread: Tensor, active: list[int]) -> Factorisation:
    """Hadamard gap and coupling of active latents for the density of the mean output, latents scaled to unit spread."""
    unit = torch.where(spread > 0, spread, 1.0)
    many = min(len(points), COUPLED, max(FEWEST, COUPLED * 16**2 // points.shape[1] ** 2))
    few = points[torch.linspace(0, len(points) - 1, many).round().long()] / unit

    def scaled(z: Tensor) -> Tensor:
        return drawn(z * unit)

    with torch.no_grad():
        mask = torch.zeros(points.shape[1], dtype=torch.bool, device=points.device)
        mask[active] = True
        gap = hadamard_gap(restrict(pullback(scaled, few), mask)).double()
    found, step = _coupling(scaled, few)
    assert found.per_point is not None
    squares = found.per_point[:, active][:, :, active].double().square()
    pairs = squares.mean(0)
    distinct = ~torch.eye(len(active), dtype=torch.bool, device=pairs.device)
    each = squares[:, distinct].mean(1)
    error = len(few) ** -0.5
    return Factorisation(
        float(gap.mean()),
        float(gap.std()) * error,
        float(each.mean()),
        float(each.std()) * error,
        pairs.cpu(),
        tuple(active),
        len(few),
        step,
    )


def _coupling(drawn: Decoder, points: Tensor) -> tuple[Coupling, float | None]:
    """By derivatives, or by differences where the decoder has kinks."""
    try:
        return coupling(drawn, points, per_point=True), None
    except NotSmoothError:
        return coupling(drawn, points, per_point=True, step=STEP), STEP


def thresholds(
    data: Tensor | World | None, likelihood: Any, cache: Cache | None = None
) -> tuple[Advice | None, tuple[Missing, ...]]:
    """Collapse thresholds of data under a likelihood, or why there are none.

    Args:
        data: items (batch, *data), or all of a world.
        likelihood: of the decoder; a Gaussian of variance 1 by default.
        cache: of those that models of one world share.

    >>> thresholds(torch.tensor([[2.0, 0.0], [-2.0, 0.0]]), None)[0].thresholds.tolist()
    [4.0, 0.0]
    """
    why = ""
    if data is None:
        why = "The thresholds come from the data's covariance, and no data were given."
    elif likelihood is not None and not isinstance(likelihood, Gaussian | Bernoulli):
        given = _describe_likelihood(likelihood)
        why = f"Thresholds are known for Gaussian and Bernoulli likelihoods, not for this one: {given}."
    if data is None or why:
        return None, (Missing("Which β keeps how many latents", why),)
    kind = "bernoulli" if isinstance(likelihood, Bernoulli) else "gaussian"
    noise = float(likelihood.log_variance.detach().exp()) if isinstance(likelihood, Gaussian) else None
    wide = math.prod(data.shape if isinstance(data, World) else data.shape[1:]) > WIDEST
    rows = data if isinstance(data, World) else data.flatten(1)
    few: dict[str, int] = {"points": GRAM} if wide else {}
    key = (id(data), kind, noise)
    return (cache or Cache()).once(key, lambda: advise(rows, likelihood=kind, noise=noise, **few)), ()


def _describe_likelihood(likelihood: Any) -> str:
    """A likelihood by its title, with what was put around it; one of the user's own by its class."""
    if isinstance(likelihood, WithCovariates):
        return f"{_describe_likelihood(likelihood.inner)}, shifted by covariates"
    if isinstance(likelihood, Masked):
        return f"{_describe_likelihood(likelihood.inner)}, missing values left out"
    kind = type(likelihood)
    title = (one.title for one in built_in(Likelihood).values() if one.load() is kind)
    return next(title, kind.__name__)


def _unmeasured(found: Inspection, encoder: Any, variance: Tensor | None) -> tuple[Missing, ...]:
    """What the inspection could not say, and why."""
    said = []
    if found.polarised is None:
        point = variance is not None and not bool((variance != 0).any())
        why = (
            "Its encoder gives points without a variance, as an autoencoder's does."
            if point
            else "They compare the decoder with an encoder's variances, and no encoder was given."
            if encoder is None
            else "No latent is active."
        )
        said.append(Missing("KL of each latent, the polarised regime and Eq. 7", why))
    if found.probes is not None:
        why = "Only some of its latents were sampled, and these need all of them."
        said.append(Missing("Matrices, spectrum, traversals and singular directions", why))
    elif found.orthogonality is None:
        said.append(Missing("Orthogonality", "There are fewer than two active latents to compare."))
    return tuple(said)


def _unknown(mean: Tensor | None, factors: Any) -> tuple[Missing, ...]:
    if mean is not None and factors is not None:
        return ()
    lacking = "encoder was" if mean is None else "known factors were"
    why = f"They compare an encoder's codes with the factors that made the data, and no {lacking} given."
    return (Missing("Mutual information and scores", why),)


def _array(values: Tensor) -> NDArray[np.float32]:
    return values.detach().float().cpu().numpy()
