"""Scores and decoder geometry of trained members, all at once, on items they have not seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import functional_call, vmap

from unseam import geometry
from unseam.data import World
from unseam.metrics import disentanglement_score
from unseam.models import VAE, Encoding
from unseam.papers.tables import rows_of
from unseam.training import Ensemble, split_items
from unseam.trial import Trial

__all__ = ["ACTIVE", "SCORE", "Unseen", "affine_parts", "measures"]

# Values of items and outputs held at once: 512 MiB as float64.
AT_ONCE = 1 << 26
SCORE = "disent_table"
"""The form of the disentanglement score that is compared with published ones.

As printed, except that sensitivities of regressors are at least 0: k-NN predicts from noise worse than a constant does,
so that as printed perfect codes of Synth. Lin. have a gap of 1.08, where the paper has 0.99 ± 0.01.
"""
ACTIVE = 0.01
"""Nats of KL above which a latent counts as active."""


class Unseen(NamedTuple):
    """Where members are measured."""

    world: World
    validation: Tensor
    """Items at which the polarised regime is checked."""
    test: Tensor
    """Items that are scored."""
    points: int
    """How many of them decoders are differentiated at."""
    scored: bool
    """Whether the world's factors generate it, so that codes can be scored against them."""

    @classmethod
    def of(cls, trial: Trial, world: World, points: int, *, scored: bool = True) -> Unseen:
        """The parts of a world that a trial does not train on."""
        _, validation, test = (part.to(world.device) for part in split_items(trial, len(world)))
        return cls(world, validation, test, points, scored)


def measures(ensemble: Ensemble, unseen: Unseen) -> list[dict[str, float]]:
    """One record per member: scores, distance to orthogonality in four forms, and how many latents are active.

    A latent is active that has more than :data:`ACTIVE` nats.

    Keys: ``disent`` and ``disent_printed`` (Suppl. 8.1 with both kinds of sensitivity in [0, 1], and as printed), and
    ``disent_table`` (:data:`SCORE`); ``dto`` of the decoder's output, ``dto_active`` over active latents,
    ``dto_weighted`` in the likelihood's metric, ``dto_means`` of the likelihood's mean; ``gap`` (Hadamard) and
    ``cosine`` over active latents; ``active``; ``rec`` and ``kl`` in nats per item, at the posterior's mean;
    ``degenerate``, the share of points with singular values that nearly coincide; for two latents and two
    factors, ``t11`` to ``t22``, the linear map between them.

    Args:
        ensemble: members of one stack.
        unseen: where to measure them.

    >>> import unseam
    >>> world = unseam.data.load("linear", size=40)
    >>> trial = unseam.Trial(world="linear", likelihood="gaussian", latent=2, steps=1, batch_size=4)
    >>> found = measures(unseam.train(trial, world=world), Unseen(world, torch.arange(9), torch.arange(40), 3, True))
    >>> sorted(found[0])[:2]
    ['active', 'cosine']
    """
    code = _encoded(ensemble, unseen)
    here = Encoding(code.mean[:, : unseen.points].double(), code.variance.double())
    columns = _scores(code.mean, unseen) | _terms(ensemble, unseen, here) | _shape(ensemble, here)
    return rows_of(columns)


def affine_parts(function: Callable[[Tensor], Tensor], width: int) -> tuple[Tensor, Tensor]:
    """Matrix (..., output, input) and offset (..., output) of affine maps, from their values at 0 and at unit vectors.

    >>> matrix, offset = affine_parts(lambda x: 2 * x + 1, 2)
    >>> matrix.tolist(), offset.tolist()
    ([[2.0, 0.0], [0.0, 2.0]], [1.0, 1.0])
    """
    values = function(torch.cat([torch.zeros(1, width), torch.eye(width)]))
    return (values[..., 1:, :] - values[..., :1, :]).mT, values[..., 0, :]


def _encoded(ensemble: Ensemble, unseen: Unseen) -> Encoding:
    """Means of all test items, variances at the points alone."""
    rows = max(unseen.points, AT_ONCE // max(1, unseen.world.images(unseen.test[:1]).numel()))
    parts = [ensemble.encode(unseen.world.images(part)) for part in unseen.test.split(rows)]
    return Encoding(torch.cat([part.mean for part in parts], dim=1), parts[0].variance[:, : unseen.points])


def _scores(mean: Tensor, unseen: Unseen) -> dict[str, Tensor]:
    """The score of every member; factors with more than five values on a grid are taken as continuous."""
    if not unseen.scored:
        return {}
    factors = unseen.world.factors[unseen.test.to(unseen.world.factors.device)]
    discrete = [0 < size <= 5 for size in unseen.world.factor_sizes]
    scores = {
        name: disentanglement_score(mean, factors, discrete=discrete, preset=preset)
        for name, preset in (("disent", "dlib"), ("disent_printed", "printed"))
    }
    found = {name: score.score for name, score in scores.items()}
    classified = torch.tensor(discrete, device=mean.device)
    normalised, printed = (score.gaps for score in scores.values())
    found[SCORE] = torch.where(classified, printed, normalised).mean(-1)
    if mean.shape[2] == factors.shape[1] == 2:
        matrices = _maps(mean, factors)
        found |= {f"t{row + 1}{column + 1}": matrices[:, row, column] for row in (0, 1) for column in (0, 1)}
    return found


def _maps(mean: Tensor, factors: Tensor) -> Tensor:
    """Least-squares matrices T (member, latent, factor) of z = T w + c."""
    centred = factors.to(mean.device).double()
    centred = centred - centred.mean(0)
    return torch.linalg.solve(centred.mT @ centred, centred.mT @ mean.double()).mT


@torch.no_grad()
def _shape(ensemble: Ensemble, code: Encoding) -> dict[str, Tensor]:
    """Geometry of the decoders at the posteriors' means."""
    metric = _pullbacks(ensemble, code.mean, "output")
    basis = geometry.right_basis(metric)
    active = _active(code)
    found: dict[str, Tensor] = {
        "dto": _dto(basis),
        "dto_weighted": _dto(geometry.right_basis(_pullbacks(ensemble, code.mean, "weighted"))),
        "dto_means": _dto(geometry.right_basis(_pullbacks(ensemble, code.mean, "means"))),
        "degenerate": geometry.degenerate_points(basis.singular_values).double().mean(1),
        "active": active.sum(1),
    }
    among = {name: torch.full_like(found["dto"], torch.nan) for name in ("dto_active", "gap", "cosine")}
    for pattern in active.unique(dim=0):
        members = (active == pattern).all(1)
        if int(pattern.sum()) > 1:
            own = geometry.restrict(metric[members], pattern)
            among["dto_active"][members] = _dto(geometry.right_basis(own))
            among["gap"][members] = geometry.hadamard_gap(own).mean(1)
            among["cosine"][members] = geometry.column_cosine(own).mean(1)
    return found | among


def _pullbacks(ensemble: Ensemble, z: Tensor, of: str) -> Tensor:
    """JᵀWJ (member, point, latent, latent) in double precision, some points at a time."""
    (stack,) = ensemble.stacks
    model = stack.template.model
    parameters, buffers = (
        {name: value.detach().double() for name, value in named.items()}
        for named in (stack.parameters, stack.buffers)
    )
    likelihood = model.likelihood

    def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor], z: Tensor) -> Tensor:
        def decode(z: Tensor) -> Tensor:
            output: Tensor = functional_call(_Decoder(model), (parameters, buffers), (z,))
            return likelihood.mean(output) if of == "means" else output

        return geometry.pullback(decode, z, likelihood=likelihood if of == "weighted" else None)

    size = len(z) * (z.shape[2] + 1) * int(torch.Size(ensemble.shape).numel())
    parts = z.split(max(1, AT_ONCE // size), dim=1)
    return torch.cat([vmap(one)(parameters, buffers, part) for part in parts], dim=1)


class _Decoder(torch.nn.Module):
    """A model's decoder as a forward, for ``functional_call``."""

    def __init__(self, model: VAE) -> None:
        super().__init__()
        self.model = model

    def forward(self, z: Tensor) -> Any:
        return self.model.decode(z)


def _active(code: Encoding) -> Tensor:
    """Active latents (member, latent), of more than :data:`ACTIVE` nats; all of an autoencoder's."""
    spread = code.variance if code.variance.ndim == 3 else code.variance.diagonal(dim1=-2, dim2=-1)
    if not bool((spread != 0).any()):
        return torch.ones_like(code.mean[:, 0], dtype=torch.bool)
    return geometry.gaussian_kl(code.mean, spread).mean(1) > ACTIVE


def _dto(basis: geometry.RightBasis) -> Tensor:
    """Mean over points of V (member, point, latent, latent)."""
    return geometry.distance_to_orthogonality(basis.right_vectors).mean(1)


@torch.no_grad()
def _terms(ensemble: Ensemble, unseen: Unseen, code: Encoding) -> dict[str, Tensor]:
    """Reconstruction at the mean and KL, nats per item; an autoencoder's KL is none."""
    x = unseen.world.images(unseen.test[: unseen.points])
    likelihoods = [ensemble[member].likelihood.to(x.device) for member in range(len(ensemble))]
    rows = max(1, AT_ONCE // (len(ensemble) * x[0].numel()))
    losses = []
    for items, z in zip(x.split(rows), code.mean.split(rows, dim=1), strict=True):
        output = ensemble.decode(z.to(x))
        each = zip(likelihoods, output, strict=True)
        losses.append(-torch.stack([likelihood.log_prob(items, own) for likelihood, own in each]))
    found = {"rec": torch.cat(losses, dim=1).detach().mean(1)}
    if bool((code.variance != 0).any()):
        full = code.variance.ndim == 4
        spread = code.variance.diagonal(dim1=-2, dim2=-1) if full else code.variance
        log_det = torch.linalg.slogdet(code.variance).logabsdet if full else spread.log().sum(-1)
        kl = code.mean.square().sum(-1) + spread.sum(-1) - log_det - spread.shape[-1]
        found["kl"] = kl.mean(1) / 2
    return found
