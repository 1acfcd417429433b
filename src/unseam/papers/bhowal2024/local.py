"""One decoder around its posterior means: local fits, stochastic loss, orthogonality, and the law of its variances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unseam import geometry
from unseam.geometry.local_fit import local_fits
from unseam.models import VAE, Encoding
from unseam.papers.bhowal2024.released import gram_root, released_errors, signed_fits
from unseam.papers.bhowal2024.setups import Setup

__all__ = ["Around", "around", "held_out_shifts"]

TINY = 1e-6


class Around(NamedTuple):
    """What a decoder does around its means.

    Attributes:
        summary: numbers of the model, see :func:`around`.
        signs: rows of :func:`~unseam.papers.bhowal2024.released.signed_fits`.
        fits: a row for each number of steps: ``steps``, relative held-out errors ``linear`` and ``nonlinear``.
        distances: each (point,): ``turned`` = ‖V − I‖² = ‖U − Û‖² and ``stretched`` = ‖Σ − Σ̂‖² of M_D, and the same
            of the Jacobian.
        jacobian_squares, fitted_squares: squared column lengths (point, latent) of the Jacobian and of M_D.
    """

    summary: dict[str, float]
    fits: list[dict[str, float]]
    signs: list[dict[str, Any]]
    distances: dict[str, Tensor]
    jacobian_squares: Tensor
    fitted_squares: Tensor


@torch.no_grad()
def around(model: VAE, code: Encoding, alive: Tensor, setup: Setup, *, audited: bool = True) -> Around:
    """Measure a decoder of means (Eqs. 8, 11, 12; A.8.2; Lemma 4; Theorem 1 c).

    Numbers: ``linear``, ``nonlinear``, ``exact`` (least squares), held-out errors of local decoders as a share of the
    stochastic loss, all for the same noises, start and steps; ``stochastic``, that loss; ``loss_jacobian``,
    ``loss_linear``, ``loss_nonlinear``, mean relative error of the stochastic loss that each of them predicts for the
    same held-out noises, and ``total_...``, the relative error of its sum over points, as A.8.2 has it;
    ``od_invariant`` over active latents, of M_D (``od_invariant_fit``) and of the Jacobian; ``gap_means``, the
    Jacobian's Hadamard gap, and ``gap_rotated``, the same after a random rotation of the latents; ``slope``,
    ``correlation``, ``spread`` of the law σ² ∝ 1/‖c‖² over active latents, of the Jacobian and of M_D (``..._fit``),
    of σ²/(1 − σ²) in the place of σ² (``..._whole``), which the whole KL asks for, and ``..._control``, with variances
    of other latents. Medians over points, except that scores are means. Those of
    :func:`~unseam.papers.bhowal2024.released.released_errors`, where audited.

    Args:
        model: in evaluation mode.
        code: posterior means and variances (point, latent).
        alive: active latents (latent,).
        setup: noises and steps of the fits.
        audited: whether to follow the released procedure too.

    >>> from unseam.models import build, initialise
    >>> from unseam.papers.bhowal2024.setups import SPRITES, smoke
    >>> model = build((9,), latent=2, likelihood="gaussian")
    >>> initialise(model, generator=torch.Generator().manual_seed(0))
    >>> code = Encoding(torch.zeros(4, 2), torch.ones(4, 2))
    >>> found = around(model.eval(), code, torch.ones(2).bool(), smoke(SPRITES))
    >>> found.summary["loss_jacobian"] < 1e-5
    True
    """

    def decoder(z: Tensor) -> Tensor:
        return model.likelihood.mean(model.decode(z))

    paths = {form: _fitted(decoder, code, form, setup) for form in ("linear", "nonlinear")}
    fits = {form: path[-1] for form, path in paths.items()}
    (exact,) = _fitted(decoder, code, "exact", setup)
    metric = _pullback(model, code.mean)
    matrix = fits["nonlinear"].matrix
    gram = matrix.double().mT @ matrix.double()
    summary = _errors(fits, exact) | _losses(fits, metric, code, setup)
    summary |= _orthogonality(metric, gram, alive) | _law(code, metric, gram, alive)
    some = Encoding(code.mean[: setup.audited], code.variance[: setup.audited])
    return Around(
        summary | (released_errors(decoder, some) if audited else {}),
        _settling(paths, setup),
        signed_fits(decoder, some) if audited else [],
        _distances(gram_root(gram), "") | _distances(gram_root(metric), "jacobian_"),
        metric.diagonal(dim1=-2, dim2=-1),
        gram.diagonal(dim1=-2, dim2=-1),
    )


def held_out_shifts(code: Encoding, setup: Setup) -> Tensor:
    """The held-out displacements ε (noise, point, latent) of every local fit of this code.

    >>> from unseam.papers.bhowal2024.setups import SPRITES
    >>> held_out_shifts(Encoding(torch.zeros(4, 2), torch.ones(4, 2)), SPRITES).shape
    torch.Size([64, 4, 2])
    """
    shape = (setup.noises + setup.held_out, *code.mean.shape)
    noise = torch.randn(shape, generator=_generator(), dtype=code.mean.dtype)[setup.noises :]
    return noise.to(code.mean.device) * code.variance.sqrt()


def _generator() -> torch.Generator:
    """The same noises for every form, number of steps and member."""
    return torch.Generator().manual_seed(0)


def _fitted(
    decoder: Callable[[Tensor], Tensor], code: Encoding, form: str, setup: Setup
) -> Sequence[geometry.LocalFit]:
    """The fit after each number of steps, or the exact one alone."""
    return local_fits(
        decoder,
        code.mean,
        code.variance,
        form="nonlinear" if form == "nonlinear" else "linear",
        solver="exact" if form == "exact" else "descent",
        generator=_generator(),
        noises=setup.noises,
        held_out=setup.held_out,
        steps=setup.fit_steps,
    )


def _settling(paths: dict[str, Sequence[geometry.LocalFit]], setup: Setup) -> list[dict[str, float]]:
    """Held-out errors after each number of steps."""
    return [
        {"steps": steps} | {form: _relative(path[place]) for form, path in paths.items()}
        for place, steps in enumerate(setup.fit_steps)
    ]


def _relative(fit: geometry.LocalFit) -> float:
    return float(fit.error.double().mean() / fit.stochastic.double().mean())


def _errors(fits: dict[str, geometry.LocalFit], exact: geometry.LocalFit) -> dict[str, float]:
    found = {form: _relative(fit) for form, fit in fits.items()}
    better = (fits["nonlinear"].error < fits["linear"].error).double().mean()
    stochastic = float(fits["linear"].stochastic.double().mean())
    return found | {"exact": _relative(exact), "better": float(better), "stochastic": stochastic}


def _losses(
    fits: dict[str, geometry.LocalFit], metric: Tensor, code: Encoding, setup: Setup
) -> dict[str, float]:
    """How far predictions of the stochastic loss are off, all from the same held-out noises."""
    shifts = held_out_shifts(code, setup).double()
    predicted = {form: fit.predicted_stochastic.double() for form, fit in fits.items()}
    predicted["jacobian"] = torch.einsum("kpi,pij,kpj->p", shifts, metric, shifts) / len(shifts)
    truth = fits["linear"].stochastic.double()
    found = {}
    for name, loss in predicted.items():
        found[f"loss_{name}"] = float(((loss - truth).abs() / truth).mean())
        found[f"total_{name}"] = float((loss.sum() - truth.sum()).abs() / truth.sum())
    return found


def _pullback(model: VAE, mean: Tensor) -> Tensor:
    """JᵀJ (point, latent, latent) of the decoder's means, in double precision."""
    before = mean.dtype
    model.double()
    metric = geometry.pullback(lambda z: model.likelihood.mean(model.decode(z)), mean.double())
    model.to(before)
    return metric


def _distances(matrices: Tensor, prefix: str) -> dict[str, Tensor]:
    found = geometry.od_distances(matrices)
    return {f"{prefix}turned": found.right, f"{prefix}stretched": found.scale}


def _orthogonality(metric: Tensor, gram: Tensor, alive: Tensor) -> dict[str, float]:
    """The invariant score of active columns; none of fewer than two."""
    names = ("od_invariant", "od_invariant_fit", "gap_means", "gap_rotated")
    count = int(alive.sum())
    if count < 2:
        return dict.fromkeys(names, float("nan"))
    live, fitted = geometry.restrict(metric, alive), geometry.restrict(gram, alive)
    drawn = torch.randn(len(live), count, count, generator=_generator(), dtype=live.dtype).to(live.device)
    turn = torch.linalg.qr(drawn).Q
    values = (
        geometry.od_score(gram_root(live), form="invariant"),
        geometry.od_score(gram_root(fitted), form="invariant"),
        geometry.hadamard_gap(live),
        geometry.hadamard_gap(turn.mT @ live @ turn),
    )
    return {name: float(value.mean()) for name, value in zip(names, values, strict=True)}


def _law(code: Encoding, metric: Tensor, gram: Tensor, alive: Tensor) -> dict[str, float]:
    """Medians over points of the law's line for the Jacobian, for M_D, with the whole KL, and for other latents."""
    whole = code.variance / (1 - code.variance).clamp(min=TINY)
    kinds = {"": (code.variance, metric), "_fit": (code.variance, gram), "_whole": (whole, metric)}
    order = torch.arange(len(alive), device=alive.device)
    order[alive] = order[alive].roll(1)
    kinds["_control"] = (code.variance[:, order], metric)
    found: dict[str, float] = {}
    for suffix, (variance, given) in kinds.items():
        line = [float("nan")] * 3
        if int(alive.sum()) > 1:
            law = geometry.variance_norm_law(variance.double(), given, active=alive)
            line = [float(part.nanmedian()) for part in (law.slope, law.correlation, law.spread)]
        names = (f"slope{suffix}", f"correlation{suffix}", f"spread{suffix}")
        found |= dict(zip(names, line, strict=True))
    return found
