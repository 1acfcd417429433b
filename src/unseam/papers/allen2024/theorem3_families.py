"""Theorem 3 of allen2024 for further exponential families: where a VAE with variance βσ² exists, and where not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import pandas as pd
import torch
from torch import Tensor
from torch import distributions as law
from torch.nn import functional

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Workplace, presets_of, scaled
from unseam.papers.claims import Bound, Bounds, Identities, Identity
from unseam.papers.draws import normal
from unseam.papers.plots import Figure, Tables, finish, legend_below, reference
from unseam.papers.tables import of_tables, table_of

__all__ = ["THEOREM3_FAMILIES"]

EQUAL, APART = 1e-9, 0.01
"""Identities in double precision hold within the first; the control's gradient differs by more than the second."""
IDENTITIES = ("normalisation", "mean", "variance", "gradient", "posterior", "constant")
"""Columns that are zero where the two models are the same."""
SHOWN = (("Bernoulli", 2.0), ("Poisson", 2.0))
TERMS, NODES = 2000, 20_001
"""Lattice points, or nodes of a quadrature, that moments are summed over."""

LogProb = Callable[[Tensor, Tensor, float], Tensor]


@dataclass(frozen=True)
class Settings:
    """Random decoders of every family, and the β at which both objectives are compared."""

    whole: tuple[float, ...] = (0.25, 0.5)
    """β = 1/κ with κ a whole number of draws, ..."""
    others: tuple[float, ...] = (0.4, 1.5, 2.0, 4.0)
    """... and β for which it is not."""
    models: int = scaled(2, 32, 256)
    batch: int = scaled(4, 16, 64)
    data: int = scaled(5, 5, 8)
    latent: int = 2
    hidden: int = scaled(8, 8, 32)
    samples: int = scaled(2, 4)
    latent_nodes: int = scaled(101, 401)
    """Of the quadrature over a single latent that gives exact posteriors."""


class Family(NamedTuple):
    """A likelihood as an exponential dispersion model of index λ.

    log p(x|θ, λ) = λ(θx − A(θ)) + log h(x, λ) has the mean of λ = 1, the exponential family itself, and 1/λ times its
    variance: dividing a log-likelihood by β asks for λ = 1/β. On a lattice h(k/λ, λ) is the k-th coefficient of exp(λA)
    as a power series in e^θ. A Laplace transform has one measure, so where a coefficient is negative, or missing at
    data, no likelihood whatever is equivalent.
    """

    name: str
    log_prob: LogProb
    """Log-density of x (..., *event) given the decoder's output (..., *event) at index λ, natural family at λ = 1."""
    support: Literal["reals", "positive", "counts", "shares"]
    ratio: Callable[[Tensor, float], Tensor] | None = None
    """c_{k+1}/c_k of those coefficients at λ, on a lattice."""
    draws: int = 1  # of which shares are the shares
    classes: int = 0
    """0 where one number is one data dimension."""

    @property
    def event(self) -> tuple[int, ...]:
        """Shape of one data dimension."""
        return (self.classes,) if self.classes else ()


def _gamma(shape: float) -> LogProb:
    return lambda x, log_mean, index: law.Gamma(shape * index, shape * index * (-log_mean).exp()).log_prob(x)


def _inverse_gaussian(x: Tensor, log_mean: Tensor, index: float) -> Tensor:
    """Of shape 3."""
    away = (x * (-log_mean).exp() - 1).square() / x
    return (math.log(3 * index / (2 * math.pi)) - 3 * x.log() - 3 * index * away) / 2


def _shares(name: str, draws: int, classes: int) -> Family:
    """Shares of classes among some draws; its coefficients are those of one class against the rest."""

    def log_prob(x: Tensor, logits: Tensor, index: float) -> Tensor:
        count = draws * index * x
        chosen = math.lgamma(draws * index + 1) - torch.lgamma(count + 1).sum(-1)
        return chosen + (count * logits.log_softmax(-1)).sum(-1)

    return Family(name, log_prob, "shares", lambda k, index: (draws * index - k) / (k + 1), draws, classes)


FAMILIES = (
    Family("Gaussian", lambda x, mean, index: law.Normal(mean, math.sqrt(0.5 / index)).log_prob(x), "reals"),
    Family("exponential", _gamma(1.0), "positive"),
    Family("gamma, shape 3", _gamma(3.0), "positive"),
    Family("inverse Gaussian", _inverse_gaussian, "positive"),
    Family(
        "Poisson",
        lambda x, log_mean, index: law.Poisson(index * log_mean.exp()).log_prob(index * x),
        "counts",
        lambda k, index: index / (k + 1),
    ),
    Family(
        "negative binomial, r = 3",
        lambda x, logits, index: law.NegativeBinomial(3 * index, logits=logits).log_prob(index * x),
        "counts",
        lambda k, index: (3 * index + k) / (k + 1),
    ),
    _shares("Bernoulli", 1, 2),
    _shares("binomial, 12 draws", 12, 2),
    _shares("categorical, 3 classes", 1, 3),
)


def measure(settings: Settings, place: Workplace) -> Tables:
    """Existence, moments, gradients and exact posteriors of the VAE with variance βσ², for every family and β."""
    rows = []
    for number, family in enumerate(FAMILIES):
        random = torch.Generator().manual_seed(number)
        models, line = _networks(family, settings, random), _line(family, settings, random)
        x = _data(family, (settings.batch, settings.data), random)
        moved = [part.to(place.device) for part in (x, *models)]
        for beta in (*settings.whole, *settings.others):
            row: dict[str, Any] = {"family": family.name, "β": beta, "whole κ": beta in settings.whole}
            row |= _exists(family, x, 1 / beta)
            row |= {"control": float(_gradients(family, settings, moved, beta, 1.0).min())}
            row |= {"tempered": _tempered(family, beta)}
            row |= dict.fromkeys(IDENTITIES, math.nan)
            if row["least mass"] >= -EQUAL:
                row |= _moments(family, 1 / beta)
                if row["in support"] == 1:
                    row["gradient"] = float(_gradients(family, settings, moved, beta, 1 / beta).max())
                    row |= _posteriors(family, x.to(place.device), line.to(place.device), beta)
            rows.append(row)
    masses = []
    for name, beta in SHOWN:
        (family,) = (one for one in FAMILIES if one.name == name)
        mass = _coefficients(family, 1 / beta, 4)
        at = beta * torch.arange(len(mass), dtype=torch.float64) / family.draws
        masses.append(table_of({"family": name, "β": beta, "x": at, "mass": mass}))
    return {"families": pd.DataFrame(rows), "masses": pd.concat(masses, ignore_index=True)}


def _data(family: Family, shape: tuple[int, ...], random: torch.Generator) -> Tensor:
    """Items (batch, data, *event) anywhere in the family's support: an identity holds for all of them."""
    if family.support == "reals":
        return normal(*shape, generator=random)
    if family.support == "positive":
        return normal(*shape, generator=random).exp()
    if family.support == "counts":
        return torch.randint(7, shape, generator=random).double()
    drawn = torch.randint(family.classes, (family.draws, *shape), generator=random)
    return functional.one_hot(drawn, family.classes).double().mean(0)


def _networks(family: Family, settings: Settings, random: torch.Generator) -> list[Tensor]:
    """Weights of decoders, means and log-variances of posteriors (model, ...), and noise (sample, ...)."""
    models, latent, hidden = settings.models, settings.latent, settings.hidden
    codes, width = (models, settings.batch, latent), settings.data * math.prod(family.event)
    shapes = ((models, latent, hidden), (models, hidden, width), codes, codes, (settings.samples, *codes))
    made = [normal(*shape, generator=random) for shape in shapes]
    made[1] /= math.sqrt(hidden)
    return made


def _gradients(family: Family, settings: Settings, given: list[Tensor], beta: float, index: float) -> Tensor:
    """Relative distance (model,) of the β-ELBO's gradient over β from that of the ELBO at index λ."""
    x, first, second, mean, log_variance, noise = given
    parameters = [part.clone().requires_grad_() for part in (first, second, mean, log_variance)]

    def gradient(weight: float, index: float) -> Tensor:
        inner, outer, centre, spread = parameters
        z = centre + torch.exp(spread / 2) * noise
        output = (torch.tanh(z @ inner) @ outer).unflatten(-1, (settings.data, *family.event))
        lost = -family.log_prob(x, output, index).sum(-1).mean((0, 2))
        kl = (centre.square() + spread.exp() - spread - 1).sum(-1).mean(1) / 2
        found = torch.autograd.grad((lost + weight * kl).sum(), parameters)
        return torch.cat([part.flatten(1) for part in found], 1)

    one, other = gradient(beta, 1.0) / beta, gradient(1.0, index)
    return (one - other).norm(dim=1) / one.norm(dim=1)


def _line(family: Family, settings: Settings, random: torch.Generator) -> Tensor:
    """Outputs (model, node, 1, data, *event) of random decoders along a single latent from −8 to 8."""
    z = torch.linspace(-8, 8, settings.latent_nodes, dtype=torch.float64)[None, :, None]
    models, hidden, width = settings.models, settings.hidden, settings.data * math.prod(family.event)
    inner, outer = (normal(models, *pair, generator=random) for pair in ((1, hidden), (hidden, width)))
    output = torch.tanh(z @ inner) @ outer / math.sqrt(hidden)
    return output.unflatten(-1, (1, settings.data, *family.event))


def _weighed(family: Family, index: float) -> tuple[Tensor, Tensor, Tensor]:
    """Points of the support at index λ, their log-densities (node, output) for some outputs, and log-weights."""
    outputs = torch.linspace(-1.5, 1.0, 9, dtype=torch.float64)
    if family.classes:
        outputs = torch.stack([outputs * (place + 1) for place in range(family.classes)], -1)
    x, log_weight = _nodes(family, index)
    return x, family.log_prob(x[:, None], outputs, index), log_weight[:, None]


def _posteriors(family: Family, x: Tensor, output: Tensor, beta: float) -> dict[str, float]:
    """How far q ∝ p^{1/β} p(z) is from Bayes' posterior at λ = 1/β, and their evidences from a constant.

    The best β-ELBO over β is log ∫ p^{1/β} p(z) dz; less the other evidence it may depend on x, not on the decoder.
    """
    z = torch.linspace(-8, 8, output.shape[1], dtype=torch.float64, device=output.device)[:, None]
    prior = functional.log_softmax(-z.square() / 2, 0)
    power = family.log_prob(x, output, 1.0).sum(-1) / beta + prior
    bayes = family.log_prob(x, output, 1 / beta).sum(-1) + prior
    distance = (power.softmax(1) - bayes.softmax(1)).abs().sum(1) / 2
    less = power.logsumexp(1) - bayes.logsumexp(1)
    return {"posterior": float(distance.max()), "constant": float((less - less[:1]).abs().max())}


def _exists(family: Family, x: Tensor, index: float) -> dict[str, float]:
    """The least coefficient of exp(λA), and the part of the data that lie on the lattice of index λ."""
    if family.ratio is None:
        return {"least mass": 0.0, "in support": 1.0}
    count = family.draws * index * x
    on = ((count - count.round()).abs() <= EQUAL).reshape(*x.shape[:2], -1).all(-1)
    least = float(_coefficients(family, index, 200).min())
    return {"least mass": least, "in support": float(on.double().mean())}


def _coefficients(family: Family, index: float, terms: int) -> Tensor:
    assert family.ratio is not None
    ratios = family.ratio(torch.arange(terms, dtype=torch.float64), index)
    return torch.cat([torch.ones(1, dtype=torch.float64), ratios.cumprod(0)])


def _nodes(family: Family, index: float) -> tuple[Tensor, Tensor]:
    """Points x (node, *event) of the support at index λ, and the logarithms of their weights (node,)."""
    if family.support == "reals":
        x = torch.linspace(-60, 60, NODES, dtype=torch.float64)
        return x, torch.full_like(x, math.log(120 / (NODES - 1)))
    if family.support == "positive":
        # a gamma of shape 1/4 has e^-40 of its mass below e^-160
        log_x = torch.linspace(-160, 12, NODES, dtype=torch.float64)
        return log_x.exp(), log_x + math.log(172 / (NODES - 1))
    if family.support == "counts":
        x = torch.arange(TERMS, dtype=torch.float64) / index
    else:
        draws = round(family.draws * index)
        every = torch.cartesian_prod(*[torch.arange(draws + 1)] * family.classes)
        x = every[every.sum(1) == draws].double() / draws
    return x, torch.zeros(len(x), dtype=torch.float64)


def _mean_variance(x: Tensor, log_mass: Tensor) -> tuple[Tensor, Tensor]:
    """Moments (output, component) under normalised masses (node, output) at x (node, *event)."""
    mass = log_mass.softmax(0)
    points = x.flatten(1) if x.ndim > 1 else x[:, None]
    mean = mass.T @ points
    away = points[:, None] - mean
    return mean, (mass[..., None] * away.square()).sum(0)


def _moments(family: Family, index: float) -> dict[str, float]:
    """Whether masses at λ sum to one, and mean and variance are those of λ = 1 times 1 and 1/λ."""
    found = []
    for value in (1.0, index):
        x, log_density, log_weight = _weighed(family, value)
        log_mass = log_density + log_weight
        found.append((log_mass.logsumexp(0), *_mean_variance(x, log_mass)))
    (_, mean, variance), (total, other_mean, other_variance) = found
    return {
        "normalisation": float(total.abs().max()),
        "mean": float(((other_mean - mean).abs() / variance.sqrt()).max()),
        "variance": float((other_variance * index / variance - 1).abs().max()),
    }


def _tempered(family: Family, beta: float) -> float:
    """Largest relative distance of the variance of p^{1/β}, made to sum to one, from β times that of p."""
    x, log_density, log_weight = _weighed(family, 1.0)
    plain, tempered = (_mean_variance(x, log_density / power + log_weight)[1] for power in (1.0, beta))
    return float((tempered / (beta * plain) - 1).abs().max())


@of_tables
def _family_cases(tables: Tables, whole: bool) -> Iterator[Identity]:
    for name, own in tables["families"].groupby("family", sort=False):
        part = own[own["whole κ"] == whole]
        holds, betas = _equal(part), ", ".join(f"{beta:g}" for beta in part["β"])
        words = f"{name}, β = {betas}: share without an equivalent VAE"
        yield Identity(words, "0", float(1 - holds.mean()), 0.0, n=len(part), note=_witness(part, holds))


def _control_cases(tables: Tables) -> Iterator[Bound]:
    words = "distance of the β-VAE's gradient from that of a VAE of unchanged variance, relative"
    families = tables["families"]
    wrong = {"a VAE of variance βσ²": families[_equal(families)][list(IDENTITIES)].max(axis=1)}
    yield Bound(words, f"above {APART:g}", families["control"], least=APART, wrong=wrong)


def _equal(part: pd.DataFrame) -> pd.Series:
    """Whether the VAE exists, on the data, and all identities hold; undefined ones do not."""
    known = (part["least mass"] >= -EQUAL) & (part["in support"] == 1)
    return known & (part[list(IDENTITIES)] <= EQUAL).all(axis=1)


def _witness(part: pd.DataFrame, holds: pd.Series) -> str:
    if holds.all():
        return f"identities hold within {part[list(IDENTITIES)].max().max():.1g}"
    said = []
    for _, row in part[~holds].iterrows():
        if row["least mass"] < -EQUAL:
            why = f"a coefficient of {row['least mass']:.3g}, so no distribution"
        elif row["in support"] < 1:
            why = f"{100 * (1 - row['in support']):.0f} % of the data have probability 0"
        else:
            why = f"identities off by {row[list(IDENTITIES)].max():.2g}"
        said.append(f"β = {row['β']:g}: {why}")
    return "; ".join(said)


def plot(tables: Tables) -> Figure:
    """Which families have an equivalent VAE at which β, and the masses of two that have none."""
    table, masses = tables["families"], tables["masses"]
    titles = [f"{name}, β = {beta:g}" for name, beta in SHOWN]
    figure, axes = panels(["VAE of variance βσ² with the β-VAE's objective", *titles], width=3.6, height=2.9)
    betas, names = sorted(table["β"].unique()), list(dict.fromkeys(table["family"]))
    exists = table["least mass"] >= -EQUAL
    kinds = (
        ("the same objective", COLOURS[2], "o", _equal(table)),
        ("exists, not on the data", COLOURS[4], "s", exists & (table["in support"] < 1)),
        ("no distribution", COLOURS[1], "X", ~exists),
    )
    for label, colour, marker, chosen in kinds:
        places = (
            table[chosen][column].map(order.index) for column, order in (("β", betas), ("family", names))
        )
        axes[0].plot(*places, marker, color=colour, markersize=7, label=label)
    axes[0].set_xticks(range(len(betas)), [f"{beta:g}" for beta in betas])
    axes[0].set_yticks(range(len(names)), names, fontsize=7.5)
    finish(axes[0], "β", ylim=(len(names) - 0.5, -0.5))
    legend_below(figure, axes[:1], 3, "lower left")
    for panel, (name, own) in zip(axes[1:], masses.groupby("family", sort=False), strict=True):
        colours = [COLOURS[1] if mass < 0 else COLOURS[0] for mass in own["mass"]]
        panel.bar(own["x"], own["mass"], width=0.35, color=colours)
        seen = [0, 1] if name == "Bernoulli" else range(int(own["x"].max()) + 1)
        panel.plot(seen, [0] * len(seen), "k|", markersize=12)
        reference(panel, y=0, linestyle="-")
        finish(panel, "x; data lie on the strokes", "coefficient of exp(A/β)")
    return figure


THEOREM3_FAMILIES = Artefact(
    key="allen2024.theorem3_families",
    title="Theorem 3 for further exponential families",
    claims=(
        Identities(
            "Theorem 3: “as though each were made κ times”: at β = 1/κ a VAE of κ draws has the objective of the "
            "β-VAE, for any exponential family",
            _family_cases(True),
        ),
        Identities(
            "Theorem 3: at every β, a β-VAE with Var[x|z] = σ² is equivalent to a VAE with Var[x|z] = βσ², for any "
            "exponential family",
            _family_cases(False),
        ),
        Bounds("Control: a VAE of unchanged variance has another gradient", _control_cases, ours=True),
    ),
    presets=presets_of(Settings),
    measure=measure,
    plot=plot,
    note="Var[x|z] = βσ² is read as that of an exponential dispersion model of index 1/β. At β = 1/κ every family has "
    "it. At other β the continuous families have it; counts have it on multiples of β, where data are not; shares of "
    "n draws only where n/β is whole. No likelihood serves Bernoulli pixels at β > 1: p(1 − p) is the largest "
    "variance in [0, 1] at mean p.",
)
