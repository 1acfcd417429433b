"""Propositions 1 to 4 of rolinek2019, each with its condition met and with its condition broken."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor

from unseam.drawing import COLOURS, panels
from unseam.geometry import distance_to_orthogonality, hadamard_gap
from unseam.papers.artefact import Artefact, Workplace, presets_of, scaled
from unseam.papers.claims import Bound, Bounds, Identities, Identity
from unseam.papers.draws import Seeded, largest_cosine, normal, orthogonal, plane_rotations, uniform
from unseam.papers.plots import Figure, Tables, band, finish, lines
from unseam.papers.rolinek2019._descent import Descent, descend
from unseam.papers.tables import table_of

__all__ = ["PROPOSITIONS"]

# Rounding of terms of a few tens of nats; error of quadrature; and a size that neither reaches.
ROUNDING, QUADRATURE, CLEAR = 1e-9, 1e-6, 1e-3
# Smallest ratio of neighbouring singular values where they are to be distinct.
DISTINCT = 1.1
# How far reconstructions miss x, in units of the data's standard deviation.
MISSES = (1.0, 0.1, 0.01)


@dataclass(frozen=True)
class Settings(Seeded):
    """How many random cases each proposition is checked on."""

    latents: tuple[int, ...] = scaled((2, 4), (2, 3, 4, 5, 6))
    matrices: int = scaled(50, 1000, 10_000)
    """Matrices of each kind and size (Prop. 1), and linear decoders (Prop. 4)."""
    models: int = scaled(20, 300, 5000)
    """Linear models of each size, each at one rotation (Props. 2 and 3)."""
    curved: int = scaled(4, 40, 100)
    """Decoders that are not linear, by quadrature (Props. 2 and 3)."""
    shown: int = scaled(2, 8, 12)
    """Of them, those whose best posteriors are sought at every angle."""
    angles: int = scaled(7, 19, 31)
    iterations: int = scaled(25, 40, 50)
    decoders: int = scaled(5, 60, 200)
    """Decoders that are not linear (Prop. 4)."""
    noise: float = 0.25
    """Variance of the likelihood."""


def measure(settings: Settings, place: Workplace) -> Tables:
    """Every proposition on random cases of its own: ``cases`` summarises them, the other tables are drawn."""
    random, device = settings.generator(), place.device
    axes = [axis_checks(latent, settings.matrices, random) for latent in settings.latents]
    linear = [
        linear_rotations(latent, settings.models, settings.noise, generator=random, device=device)
        for latent in settings.latents
    ]
    model = draw_curved(settings.curved, width=16, data=5, noise=settings.noise, generator=random)
    model = model.each(lambda part: part.to(device))
    curved = curved_rotations(model, generator=random)
    shown = model.each(lambda part: part[: settings.shown])
    angles = best_at_angles(shown, settings.angles, iterations=settings.iterations)
    split = linear_splits(settings.matrices, random, device)
    spreads = tuple(10 ** (power / 4) for power in range(-12, 1))
    biases = curved_splits(settings.decoders, spreads, generator=random, device=device)
    cases = {
        **{name: torch.cat([part[name] for part in axes]) for name in axes[0]},
        **{name: torch.cat([part[name] for part in linear]) for name in linear[0]},
        **curved,
        **angle_ranges(angles),
        **split_checks(split, biases),
    }
    return {
        "cases": summary(cases),
        "lengths": lengths_and_distance((0.1, 0.01, 0.001), 41, random),
        "angles": angles,
        "biases": _quartiles(biases),
    }


def summary(cases: Mapping[str, Tensor]) -> pd.DataFrame:
    """One row per quantity: its number of cases, and extremes, median, mean and standard deviation over them."""
    rows = []
    for name, values in cases.items():
        own = pd.Series(values.cpu().numpy())
        found = own.agg(["min", "median", "mean", "std", "max"]).set_axis(
            ["least", "median", "mean", "std", "largest"]
        )
        rows.append({"quantity": name, "cases": len(own)} | found.to_dict())
    return pd.DataFrame(rows)


def _exact(tables: Tables, rows: Mapping[str, tuple[str, float]]) -> Iterator[Identity]:
    """Largest deviations over random cases."""
    table = tables["cases"].set_index("quantity").to_dict("index")
    for name, (words, tolerance) in rows.items():
        own = table[name]
        yield Identity(words, "0", float(own["largest"]), tolerance, n=int(own["cases"]))


def _positive(tables: Tables, rows: Mapping[str, tuple[str, str]]) -> Iterator[Bound]:
    """Means over random cases that are clearly above zero, with t intervals, unless the condition is met."""
    from scipy import stats

    table = tables["cases"].set_index("quantity").to_dict("index")
    for name, (words, met) in rows.items():
        own, wrong = table[name], {"condition met": [table[met]["mean"]]}
        mean, count = float(own["mean"]), int(own["cases"])
        reach = float(stats.t.ppf(0.975, count - 1) * own["std"]) / math.sqrt(count)
        estimate, said = (mean, mean - reach, mean + reach), f"above 0: at least {CLEAR:g}"
        note = NOTES.get(name, "")
        yield Bound(words, said, estimate=estimate, least=CLEAR, n=count, note=note, wrong=wrong)


def plot(tables: Tables) -> Figure:
    """What distinct singular values, a full covariance and an unbiased decoder are needed for."""
    titles = [
        "Prop. 1: columns that are nearly orthogonal",
        "Props. 2, 3: what notices a rotation",
        "Prop. 4: the bias it leaves out",
    ]
    figure, axes = panels(titles, width=3.1, height=2.6)
    lengths, biases = tables["lengths"], tables["biases"]
    lines(axes[0], lengths, "gap", "closed form", by="cosine", label="cosine {:g}", linewidth=1.2)
    lines(axes[0], lengths[::2], "gap", "dto", by="cosine", label="", style=".", markersize=4)
    x = "ratio of the columns' lengths − 1"
    finish(axes[0], x, "DtO of V", xscale="log", yscale="log", legend="lower left")
    _draw_rotations(axes[1], tables["angles"])
    for colour, (miss, own) in zip(COLOURS, biases.groupby("miss", sort=False), strict=False):
        band(axes[2], own, "spread", ("lower", "median", "upper"), colour, style="-")
        look = {"textcoords": "offset points", "fontsize": 7, "color": colour}
        start = own[["spread", "median"]].iloc[0]
        axes[2].annotate(f"x missed by {miss:g} of its spread", start, (2, 3), **look)
    y = "|L_rec − L̄_rec − L̂_rec| over L̂_rec"
    finish(axes[2], "σ of the posterior", y, xscale="log", yscale="log")
    return figure


# Proposition 1: orthogonal columns and right singular vectors along the axes, one from the other


def axis_checks(latent: int, matrices: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Cosines between columns and distances of V from a signed permutation, for random matrices of four kinds."""
    frame = orthogonal(matrices, latent + 2, latent, generator=generator)
    scales = _distinct(matrices, latent, generator)
    columns = frame * scales[:, None]
    permutation = _signed_permutations(matrices, latent, generator)
    # angles over four decades
    size = 10 ** (-4 * uniform(matrices, 1, 1, generator=generator))
    skew = normal(matrices, latent, latent, generator=generator)
    rotated = columns @ torch.linalg.matrix_exp(size * (skew - skew.mT) / latent)
    cosine = largest_cosine(rotated)
    return {
        "DtO, orthogonal columns": distance_to_orthogonality(right_vectors(columns)),
        "cosine, |V| a permutation": largest_cosine(frame @ (scales[..., None] * permutation.mT)),
        "cosine, rotated": cosine,
        "DtO over cosine, rotated": distance_to_orthogonality(right_vectors(rotated)) / cosine,
    } | _repeated(frame, scales, generator)


def _repeated(frame: Tensor, scales: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
    """Orthogonal columns, two of them of one length, with an SVD whose V is rotated among the two."""
    scales = torch.cat([scales[:, :1], scales[:, :1], scales[:, 2:]], 1)
    right = torch.eye(scales.shape[1], dtype=torch.float64).repeat(len(scales), 1, 1)
    right[:, :2, :2] = orthogonal(len(scales), 2, 2, generator=generator)
    columns = frame * scales[:, None]
    rebuilt = (frame @ right * scales[:, None]) @ right.mT
    missed = torch.linalg.matrix_norm(rebuilt - columns) / torch.linalg.matrix_norm(columns)
    return {
        "DtO, repeated singular value": distance_to_orthogonality(right),
        "error of the SVD or cosine, repeated singular value": torch.maximum(missed, largest_cosine(columns)),
    }


def right_vectors(columns: Tensor) -> Tensor:
    """V (..., latent, latent) of matrices (..., data, latent)."""
    return torch.linalg.svd(columns, full_matrices=False).Vh.mT


def _distinct(matrices: int, latent: int, generator: torch.Generator) -> Tensor:
    """Singular values (matrix, latent) apart by a tenth at least, in random order."""
    steps = DISTINCT + uniform(matrices, latent, generator=generator)
    order = torch.rand(matrices, latent, generator=generator).argsort(1)
    return (steps.cumprod(1) / steps.prod(1, keepdim=True).sqrt()).gather(1, order)


def _signed_permutations(matrices: int, latent: int, generator: torch.Generator) -> Tensor:
    order = torch.rand(matrices, latent, generator=generator).argsort(1)
    signs = torch.randint(2, (matrices, 1, latent), generator=generator) * 2.0 - 1
    return torch.eye(latent, dtype=torch.float64)[order] * signs


def lengths_and_distance(cosines: tuple[float, ...], gaps: int, generator: torch.Generator) -> pd.DataFrame:
    """DtO of two columns that are not quite orthogonal, against how different their lengths are; closed form beside.

    V is rotated by θ with tan 2θ = 2 cos α ‖c_1‖‖c_2‖ / (‖c_1‖² − ‖c_2‖²) and lies 2√2 sin(θ/2) from the identity.
    """
    gap = torch.logspace(-4, 1, gaps, dtype=torch.float64)
    tables = []
    for cosine in cosines:
        longer = 1 + gap
        shape = torch.zeros(gaps, 2, 2, dtype=torch.float64)
        shape[:, 0, 0], shape[:, 0, 1], shape[:, 1, 1] = longer, cosine, (1 - cosine**2) ** 0.5
        columns = orthogonal(gaps, 4, 2, generator=generator) @ shape
        angle = torch.atan2(2 * cosine * longer, longer.square() - 1) / 2
        distance = distance_to_orthogonality(right_vectors(columns))
        exact = 2 * 2**0.5 * torch.sin(angle / 2)
        tables.append(table_of({"gap": gap, "dto": distance, "closed form": exact}).assign(cosine=cosine))
    return pd.concat(tables, ignore_index=True)


# Models small enough for exact evidence and ELBO: linear ones in closed form, tanh decoders by quadrature


def linear_evidence(weights: Tensor, x: Tensor, noise: float, prior: Tensor | None = None) -> Tensor:
    """Log p(x) (...) of x = Wz + noise with z ~ N(0, I), or another covariance (..., latent, latent): normal."""
    spread = weights if prior is None else weights @ prior
    eye = torch.eye(weights.shape[-2], dtype=weights.dtype, device=weights.device)
    covariance = spread @ weights.mT + noise * eye
    return torch.distributions.MultivariateNormal(torch.zeros_like(x), covariance).log_prob(x)


def linear_elbo(weights: Tensor, x: Tensor, noise: float, mean: Tensor, covariance: Tensor) -> Tensor:
    """ELBO (...) of the same model with q = N(mean, covariance), in closed form (Eq. 2)."""
    missed = x - (weights @ mean[..., None])[..., 0]
    spread = (weights.mT @ weights * covariance).sum((-2, -1))
    fit = -(missed.square().sum(-1) + spread) / (2 * noise) - x.shape[-1] / 2 * math.log(2 * math.pi * noise)
    return fit - _kl(mean, torch.linalg.cholesky(covariance))


def best_diagonal_loss(weights: Tensor, noise: float) -> Tensor:
    """Nats (...) between log p(x) and the ELBO of the best diagonal posterior, the same for every x."""
    eye = torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)
    return hadamard_gap(eye + weights.mT @ weights / noise)


class Curved(NamedTuple):
    """Decoders W tanh(Az + b) of two latents, one datum each, with normal noise of this variance."""

    first: Tensor
    """A (decoder, width, 2)."""
    offset: Tensor
    """b (decoder, width)."""
    second: Tensor
    """W (decoder, data, width)."""
    x: Tensor
    """(decoder, data), drawn from the model."""
    code: Tensor
    """The z it was drawn at (decoder, 2)."""
    noise: float

    def decode(self, z: Tensor) -> Tensor:
        """Means (decoder, node, data) at z (decoder, node, 2)."""
        return torch.tanh(z @ self.first.mT + self.offset[:, None]) @ self.second.mT

    def rotated(self, rotation: Tensor) -> Curved:
        """Dec(Uᵀz) for U (decoder, 2, 2), Eq. 9."""
        return self._replace(first=self.first @ rotation.mT)

    def each(self, change: Callable[[Tensor], Tensor]) -> Curved:
        """The same change of every tensor: a device, some of the decoders, each of them several times."""
        first, offset, second, x, code = map(change, self[:-1])
        return Curved(first, offset, second, x, code, self.noise)

    def log_prob(self, z: Tensor) -> Tensor:
        """Log p(x|z) (decoder, node)."""
        missed = (self.decode(z) - self.x[:, None]).square().sum(-1)
        return -(missed / self.noise + self.x.shape[1] * math.log(2 * math.pi * self.noise)) / 2


def draw_curved(decoders: int, *, width: int, data: int, noise: float, generator: torch.Generator) -> Curved:
    """Random weights with outputs of size one, and a datum of each model."""
    first = normal(decoders, width, 2, generator=generator)
    offset = normal(decoders, width, generator=generator) / 2
    second = normal(decoders, data, width, generator=generator) / math.sqrt(width)
    code = normal(decoders, 2, generator=generator)
    drawn = Curved(first, offset, second, normal(decoders, data, generator=generator), code, noise)
    return drawn._replace(x=drawn.decode(code[:, None])[:, 0] + math.sqrt(noise) * drawn.x)


def normal_grid(step: float, reach: float = 8.0, *, like: Tensor) -> tuple[Tensor, Tensor]:
    """Points (node, 2) and weights (node,) for expectations under N(0, I) in the plane, by the trapezoidal rule.

    For integrands that are analytic around the real axis the error falls exponentially in 1 / step; that beyond the
    reach is exp(−reach² / 2).
    """
    count = round(reach / step)
    place = step * torch.arange(-count, count + 1, dtype=like.dtype, device=like.device)
    weight = torch.softmax(-place.square() / 2, 0)
    return torch.cartesian_prod(place, place), torch.outer(weight, weight).flatten()


def curved_evidence(model: Curved, step: float) -> Tensor:
    """Log p(x) (decoder,) by quadrature over z ~ N(0, I)."""
    place, weight = normal_grid(step, like=model.x)
    return torch.logsumexp(model.log_prob(place.expand(len(model.x), -1, -1)) + weight.log(), 1)


def curved_elbo(model: Curved, mean: Tensor, factor: Tensor, step: float, *, reach: float = 8.0) -> Tensor:
    """ELBO (decoder,) with q = N(mean, L Lᵀ) for lower triangular L (decoder, 2, 2), the expectation by quadrature."""
    place, weight = normal_grid(step, reach, like=model.x)
    return model.log_prob(mean[:, None] + place @ factor.mT) @ weight - _kl(mean, factor)


def best_elbo(model: Curved, start: Tensor, *, diagonal: bool, step: float, iterations: int) -> Descent:
    """The largest ELBO over normal posteriors, from these means and a width of a third; losses are −ELBO."""
    numbers = 4 if diagonal else 5

    def loss(at: Tensor) -> Tensor:
        return -curved_elbo(model, at[:, :2], _factor(at), step, reach=6.0)

    first = torch.cat([start, start.new_full((len(start), numbers - 2), -1.0)], 1)
    first[:, 4:] = 0.0
    return descend(loss, first, iterations=iterations)


def _factor(at: Tensor) -> Tensor:
    """Lower triangular L (member, 2, 2) from log diagonal and, where there is one, the entry below it."""
    below = at[:, 4:] if at.shape[1] > 4 else torch.zeros_like(at[:, :1])
    scale = at[:, 2:4].exp()
    rows = [scale[:, :1], torch.zeros_like(below), below, scale[:, 1:]]
    return torch.cat(rows, 1).unflatten(1, (2, 2))


def _kl(mean: Tensor, factor: Tensor) -> Tensor:
    """KL (...) of N(mean, L Lᵀ) from N(0, I)."""
    log_det = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return (mean.square().sum(-1) + factor.square().sum((-2, -1)) - log_det - mean.shape[-1]) / 2


# Propositions 2 and 3: what a model loses when its latents are rotated (Eqs. 8 and 9)


def linear_rotations(
    latent: int, count: int, noise: float, *, generator: torch.Generator, device: torch.device
) -> dict[str, Tensor]:
    """Linear models with random posteriors, and how both change when the latents are rotated."""
    data = latent + 3
    weights = normal(count, data, latent, generator=generator).to(device)
    x, mean = (normal(count, size, generator=generator).to(device) for size in (data, latent))
    covariance = uniform(count, latent, generator=generator).to(device).diag_embed()
    rotation = orthogonal(count, latent, latent, generator=generator).to(device)
    rotated = weights @ rotation.mT
    unequal = torch.diag(2.0 ** torch.linspace(-2, 2, latent, dtype=torch.float64)).to(device)
    elbo = linear_elbo(rotated, x, noise, _apply(rotation, mean), rotation @ covariance @ rotation.mT)
    principal = weights @ right_vectors(weights)
    return {
        "log p(x), linear": (linear_evidence(rotated, x, noise) - linear_evidence(weights, x, noise)).abs(),
        "ELBO, linear": (elbo - linear_elbo(weights, x, noise, mean, covariance)).abs(),
        "log p(x), linear, unequal prior": (
            linear_evidence(rotated, x, noise, unequal) - linear_evidence(weights, x, noise, unequal)
        ).abs(),
        "ELBO lost, linear, diagonal posterior": best_diagonal_loss(rotated, noise)
        - best_diagonal_loss(principal, noise),
    }


def curved_rotations(model: Curved, *, generator: torch.Generator) -> dict[str, Tensor]:
    """The same for tanh decoders: each at one rotation, with a random posterior."""
    count, device = len(model.x), model.x.device
    angle = 2 * math.pi * uniform(count, generator=generator)
    rotation = plane_rotations(angle).to(device)
    mean = normal(count, 2, generator=generator).to(device)
    spread = (0.1 + 0.9 * uniform(count, 2, generator=generator)).to(device)
    # Cholesky's factor is not the rotated square root, so that the two expectations have no node in common
    factor = torch.linalg.cholesky(rotation @ spread.square().diag_embed() @ rotation.mT)
    rotated = model.rotated(rotation)
    elbo = curved_elbo(rotated, _apply(rotation, mean), factor, 0.1)
    return {
        "log p(x), tanh": (curved_evidence(rotated, 0.1) - curved_evidence(model, 0.1)).abs(),
        "ELBO, tanh": (elbo - curved_elbo(model, mean, spread.diag_embed(), 0.1)).abs(),
    }


def best_at_angles(model: Curved, angles: int, *, iterations: int) -> pd.DataFrame:
    """Nats between log p(x) and the best ELBO of a full and of a diagonal posterior, at every angle of the latents."""
    count, device = len(model.x), model.x.device
    angle = torch.linspace(0, math.pi / 2, angles, dtype=torch.float64)
    rotation = plane_rotations(angle).repeat(count, 1, 1).to(device)
    many = model.each(lambda part: part.repeat_interleave(angles, 0)).rotated(rotation)
    start = _apply(rotation, many.code)
    evidence = curved_evidence(many, 0.1)
    best = {
        kind: best_elbo(many, start, diagonal=kind == "diagonal", step=0.4, iterations=iterations).value
        for kind in ("full", "diagonal")
    }
    about = {
        "decoder": torch.arange(count).repeat_interleave(angles),
        "angle": torch.rad2deg(angle).repeat(count),
        "evidence": evidence,
    }
    return table_of(about | {kind: evidence + loss for kind, loss in best.items()})


def angle_ranges(angles: pd.DataFrame) -> dict[str, Tensor]:
    """Nats (decoder,) between the best and the worst angle."""
    each = angles.groupby("decoder")[["full", "diagonal"]]
    between = each.max() - each.min()
    return {
        f"ELBO between angles, tanh, {kind} posterior": torch.tensor(between[kind].to_numpy())
        for kind in between
    }


def _apply(rotation: Tensor, vector: Tensor) -> Tensor:
    return (rotation @ vector[..., None])[..., 0]


def _draw_rotations(panel: Any, angles: pd.DataFrame) -> None:
    """ELBO below its best over angles, each decoder rotated so that its best angle is zero."""
    labels = {"diagonal": "ELBO, diagonal posterior", "full": "ELBO, full posterior", "evidence": "log p(x)"}
    for place, (_, own) in enumerate(angles.groupby("decoder")):
        best = float(own["angle"].iloc[int(own["diagonal"].argmin())])
        # a rotation by 90° exchanges the latents, so angles are known up to it
        shift = (own["angle"] - best + 45) % 90 - 45
        order = shift.argsort()
        for kind, colour, style in zip(labels, COLOURS, ("-", "--", ":"), strict=False):
            value = own[kind] if kind == "evidence" else -own[kind]
            look = {"color": colour, "linewidth": 1.0 if kind == "diagonal" else 1.6}
            label = None if place else labels[kind]
            panel.plot(shift.iloc[order], (value - value.max()).iloc[order], style, label=label, **look)
    panel.set_xticks(range(-45, 46, 45))
    panel.set_ylim(bottom=1.5 * panel.get_ylim()[0])
    x = "rotation from the best angle, degrees"
    finish(panel, x, "below the best angle, nats", legend="lower center")


# Proposition 4: the squared error split in two, for decoders without a bias and for those with one


class Split(NamedTuple):
    """Eqs. 11, 13 and 14 (decoder,), and what they leave out."""

    total: Tensor
    deterministic: Tensor
    stochastic: Tensor
    bias: Tensor
    """Twice the inner product of error and bias."""

    @property
    def rest(self) -> Tensor:
        """What the two parts leave of the total (decoder,)."""
        return self.total - self.deterministic - self.stochastic


def split_of(
    decode: Callable[[Tensor], Tensor], x: Tensor, mean: Tensor, spread: Tensor, *, step: float
) -> Split:
    """The split for q = N(mean, diag spread²).

    Expectations by the trapezoidal rule, each on its own: nothing here knows that three parts should make a whole.
    """
    place, weight = normal_grid(step, like=mean)
    centre = decode(mean[:, None])[:, 0]
    noisy = decode(mean[:, None] + spread[:, None] * place)
    bias = (noisy.mT @ weight) - centre
    return Split(
        (noisy - x[:, None]).square().sum(-1) @ weight,
        (centre - x).square().sum(-1),
        (noisy - centre[:, None]).square().sum(-1) @ weight,
        2 * ((centre - x) * bias).sum(-1),
    )


def linear_splits(decoders: int, generator: torch.Generator, device: torch.device) -> Split:
    """The split for linear decoders of two latents, at random codes, data and variances."""
    weights = normal(decoders, 7, 2, generator=generator).to(device)
    x, mean = (normal(decoders, size, generator=generator).to(device) for size in (7, 2))
    spread = uniform(decoders, 2, generator=generator).to(device)
    return split_of(lambda z: z @ weights.mT, x, mean, spread, step=0.5)


def curved_splits(
    decoders: int, spreads: tuple[float, ...], *, generator: torch.Generator, device: torch.device
) -> dict[tuple[float, float], Split]:
    """The split for tanh decoders whose reconstructions miss x, for each of :data:`MISSES` and spread σ."""
    model = draw_curved(decoders, width=16, data=5, noise=0.25, generator=generator)
    model = model.each(lambda part: part.to(device))
    mean = model.code
    places, weights = normal_grid(0.5, like=mean)
    outputs = model.decode(places.expand(decoders, -1, -1))
    varied = (outputs - (outputs.mT @ weights)[:, None]).square().sum(-1) @ weights
    way = torch.nn.functional.normalize(normal(decoders, 5, generator=generator), dim=1).to(device)
    centre = model.decode(mean[:, None])[:, 0]
    return {
        (miss, spread): split_of(
            model.decode,
            centre - miss * varied.sqrt()[:, None] * way,
            mean,
            torch.full_like(mean, spread),
            step=0.25,
        )
        for miss in MISSES
        for spread in spreads
    }


def split_checks(linear: Split, curved: Mapping[tuple[float, float], Split]) -> dict[str, Tensor]:
    """What the two parts miss; of tanh decoders also with the bias taken off, and at the smallest σ."""
    smallest = min(spread for _, spread in curved)
    explained = [(split.rest - split.bias).abs() / split.total for split in curved.values()]
    return {
        "split, linear": linear.rest.abs() / linear.total,
        "split less bias, tanh": torch.cat(explained),
    } | {
        f"split over stochastic loss, tanh, miss {miss:g}": curved[miss, smallest].rest.abs()
        / curved[miss, smallest].stochastic
        for miss in MISSES
    }


def _quartiles(curved: Mapping[tuple[float, float], Split]) -> pd.DataFrame:
    """What the bias adds in units of the stochastic loss, over decoders."""
    rows = []
    for (miss, spread), split in sorted(curved.items()):
        ratio = pd.Series((split.bias.abs() / split.stochastic).cpu().numpy())
        lower, median, upper = ratio.quantile([0.25, 0.5, 0.75])
        rows.append((miss, spread, ratio.mean(), lower, median, upper))
    return pd.DataFrame(rows, columns=["miss", "spread", "mean", "lower", "median", "upper"])


# Quantities by their row of the table, with the tolerance of an identity or the row in which a condition is met.
AXES = {
    "DtO, orthogonal columns": ("(a) ⇒ (b): largest DtO of V where columns are orthogonal", ROUNDING),
    "cosine, |V| a permutation": ("(b) ⇒ (a): largest cosine where |V| is a permutation", ROUNDING),
}
EVIDENCE = {
    "log p(x), linear": ("largest change of log p(x), linear models, nats", ROUNDING),
    "log p(x), tanh": ("largest change of log p(x), tanh decoders, by quadrature, nats", QUADRATURE),
}
ELBO = {
    "ELBO, linear": ("largest change of the ELBO, linear models, nats", ROUNDING),
    "ELBO, tanh": ("largest change of the ELBO, tanh decoders, by quadrature, nats", QUADRATURE),
}
SPLIT = {"split, linear": ("largest relative error of the split, linear decoders", ROUNDING)}
BIAS = {"split less bias, tanh": ("largest relative error once the bias is added, tanh decoders", ROUNDING)}
DIAGONAL = {
    "ELBO lost, linear, diagonal posterior": (
        "ELBO lost at a random rotation, linear models, nats",
        "ELBO, linear",
    ),
    "ELBO between angles, tanh, diagonal posterior": (
        "ELBO between best and worst angle, tanh decoders, nats",
        "ELBO between angles, tanh, full posterior",
    ),
}
BROKEN = {
    "DtO over cosine, rotated": (
        "Prop. 1, columns not orthogonal: DtO over largest cosine",
        "DtO, orthogonal columns",
    ),
    "DtO, repeated singular value": (
        "Prop. 1, two singular values equal: DtO of a V of orthogonal columns",
        "DtO, orthogonal columns",
    ),
    "log p(x), linear, unequal prior": (
        "Prop. 2, prior of unequal variances: change of log p(x), nats",
        "log p(x), linear",
    ),
    "split over stochastic loss, tanh, miss 0.1": (
        "Prop. 4, tanh decoders: error of the split over the stochastic loss",
        "split, linear",
    ),
}
NOTES = {
    "DtO, repeated singular value": "singular values must be distinct",
    "log p(x), linear, unequal prior": "the prior must be symmetric",
    "split over stochastic loss, tanh, miss 0.1": "of order σ², as the stochastic loss is: better reconstruction, "
    "not less noise, makes it small",
}

PROPOSITIONS = Artefact(
    key="rolinek2019.propositions",
    title="Propositions 1–4, with and without what they ask for",
    claims=(
        Identities(
            "Prop. 1: with distinct singular values, columns are orthogonal exactly if |V| is a permutation",
            partial(_exact, rows=AXES),
        ),
        Identities(
            "Prop. 2: under a symmetric prior the log-likelihood is invariant to rotations of the latents",
            partial(_exact, rows=EVIDENCE),
        ),
        Identities("Prop. 3: so is the ELBO, if the posterior rotates along", partial(_exact, rows=ELBO)),
        Bounds(
            "§3.1: with a diagonal posterior the ELBO is not invariant to rotations",
            partial(_positive, rows=DIAGONAL),
        ),
        Identities(
            "Prop. 4: if the estimate is unbiased, the reconstruction loss is its deterministic plus its stochastic "
            "part",
            partial(_exact, rows=SPLIT),
        ),
        Bounds(
            "Controls: without its condition each proposition fails",
            partial(_positive, rows=BROKEN),
            ours=True,
        ),
        Identities(
            "Prop. 4 for any decoder: the split misses exactly the bias 2⟨Dec(μ) − x, E Dec(Enc) − Dec(μ)⟩",
            partial(_exact, rows=BIAS),
            ours=True,
        ),
    ),
    presets=presets_of(Settings),
    measure=measure,
    plot=plot,
)
