"""What the released code is known to do, rebuilt from its description: fits with a signed penalty, and its score."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unseam import geometry
from unseam.models import Encoding

__all__ = [
    "LOSSES",
    "RATES",
    "SIGNS",
    "Fit",
    "released_errors",
    "released_fit",
    "released_score",
    "signed_fits",
]

SIGNS = (1.0, 0.0, -0.7, -1.4)
"""Factors of the penalty, and none."""
LOSSES = ("mean", "sum")
"""Over data dimensions, which the description leaves open."""
RATES = {"linear": 1e-4, "nonlinear": 0.1}
NOISES = 10
"""Each seen once."""
MOMENTUM = 0.9
HELD_OUT = 32
Decoder = Callable[[Tensor], Tensor]
# Not in the description, and chosen: the start (torch's for a linear layer) and the penalty (MᵀM off its diagonal).


class Fit(NamedTuple):
    """Local decoders M (point, data, latent) and b (point, data), and the M they started from."""

    matrix: Tensor
    bias: Tensor
    start: Tensor


def released_fit(
    decoder: Decoder,
    code: Encoding,
    *,
    form: str = "nonlinear",
    rate: float = 0.1,
    sign: float = 0.0,
    spread: float = 1.0,
    loss: str = "mean",
) -> Fit:
    """One pass over ten noises, a step each, on ‖f(Mε + b) − (d(μ + ε) − d(μ))‖² + sign · ‖MᵀM − diag‖.

    The first term is a ``"mean"`` over data dimensions, as frameworks take it, or a ``"sum"``, as Eq. 11 has it. The
    start is that of torch's linear layer times ``spread``.

    >>> code = Encoding(torch.zeros(2, 3), torch.ones(2, 3))
    >>> fits = [released_fit(lambda z: z, code, sign=sign).matrix for sign in (1.0, -1.4)]
    >>> bool(_penalty(fits[0]).sum() < _penalty(fits[1]).sum())
    True
    """
    shifts, targets = _noises(decoder, code, NOISES, seed=0)
    points, latent, data = len(code.mean), code.mean.shape[1], targets.shape[-1]
    draw = torch.Generator().manual_seed(1)
    bound = latent**-0.5
    start = (2 * torch.rand(points, data, latent + 1, generator=draw) - 1).to(code.mean) * bound * spread
    weights, velocity = start.clone(), torch.zeros_like(start)
    for shift, target in zip(shifts, targets, strict=True):
        moving = weights.detach().requires_grad_()
        with torch.enable_grad():
            total = (_predicted(moving, shift, form) - target).square().sum() / (
                data if loss == "mean" else 1
            )
            if sign:
                total = total + sign * _penalty(moving[..., :-1]).sum()
            (slope,) = torch.autograd.grad(total, moving)
        velocity = MOMENTUM * velocity + slope
        weights = weights - rate * velocity
    return Fit(weights[..., :-1], weights[..., -1], start[..., :-1])


def signed_fits(decoder: Decoder, code: Encoding) -> list[dict[str, Any]]:
    """The same decoder, points, noises and start under every factor of the penalty.

    A row a loss, factor and point: ``turned`` and ``stretched`` (see :func:`unseam.geometry.od_distances`),
    ``invariant`` and ``started``, the cosine of M with the random matrix it started from.

    >>> rows = signed_fits(lambda z: z, Encoding(torch.zeros(1, 3), torch.ones(1, 3)))
    >>> [row["sign"] for row in rows]
    [1.0, 0.0, -0.7, -1.4, 1.0, 0.0, -0.7, -1.4]
    """
    rows: list[dict[str, Any]] = []
    for loss in LOSSES:
        for sign in SIGNS:
            fit = released_fit(decoder, code, sign=sign, loss=loss)
            found = geometry.od_distances(fit.matrix)
            columns = {
                "turned": found.right,
                "stretched": found.scale,
                "invariant": geometry.od_score(fit.matrix, form="invariant"),
                "started": torch.nn.functional.cosine_similarity(fit.matrix.flatten(1), fit.start.flatten(1)),
            }
            for point, values in enumerate(zip(*(part.tolist() for part in columns.values()), strict=True)):
                named = dict(zip(columns, values, strict=True))
                rows.append({"loss": loss, "sign": sign, "point": point} | named)
    return rows


def released_errors(decoder: Decoder, code: Encoding) -> dict[str, float]:
    """Held-out errors, as shares of the stochastic loss, of both forms at both rates, from zero.

    Keys ``at_FORM_RATE``: ``at_linear_slow`` and ``at_nonlinear_fast`` are as released, the other two the opposite.

    >>> sorted(released_errors(lambda z: z / 9, Encoding(torch.zeros(4, 2), torch.ones(4, 2))))[0]
    'at_linear_fast'
    """
    shifts, targets = _noises(decoder, code, HELD_OUT, seed=2)
    found = {}
    for form in RATES:
        for speed, rate in (("slow", RATES["linear"]), ("fast", RATES["nonlinear"])):
            fit = released_fit(decoder, code, form=form, rate=rate, spread=0.0)
            weights = torch.cat([fit.matrix, fit.bias.unsqueeze(-1)], -1)
            missed = sum(
                (_predicted(weights, shift, form) - target).square().sum()
                for shift, target in zip(shifts, targets, strict=True)
            )
            found[f"at_{form}_{speed}"] = float(missed / targets.square().sum())
    return found


def released_score(matrix: Tensor) -> float:
    """Mean of three unsquared distances, with an element-wise root and bases as a library returns them.

    >>> released_score(torch.diag(torch.tensor([1.0, 2.0]))) > 1  # orthogonal, the longer column second
    True
    """
    latent = matrix.shape[1]
    left, values, right = torch.linalg.svd(matrix)
    gram = matrix.mT @ matrix
    other, _, _ = torch.linalg.svd(matrix @ torch.linalg.pinv(gram.abs().sqrt()))
    lengths = torch.linalg.vector_norm(matrix, dim=0)
    norm = torch.linalg.matrix_norm
    identity = torch.eye(latent, dtype=matrix.dtype, device=matrix.device)
    parts = (norm(left - other), (values - lengths).norm(), norm(right.mT - identity))
    return float(sum(parts)) / 3


def _noises(decoder: Decoder, code: Encoding, count: int, *, seed: int) -> tuple[Tensor, Tensor]:
    """Displacements ε (noise, point, latent) and what the decoder makes of them (noise, point, data)."""
    shape = (count, *code.mean.shape)
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(code.mean)
    shifts = noise * code.variance.sqrt()
    centre = decoder(code.mean)
    return shifts, torch.stack([(decoder(code.mean + shift) - centre).flatten(1) for shift in shifts])


def _predicted(weights: Tensor, shift: Tensor, form: str) -> Tensor:
    output = torch.einsum("pnl,pl->pn", weights[..., :-1], shift) + weights[..., -1]
    return output if form == "linear" else output.tanh()


def _penalty(matrix: Tensor) -> Tensor:
    """‖MᵀM − diag‖ (point,): zero exactly where columns are orthogonal."""
    gram = matrix.mT @ matrix
    apart = gram - torch.diag_embed(gram.diagonal(dim1=-2, dim2=-1))
    return apart.square().sum((-2, -1)).clamp(min=1e-24).sqrt()
