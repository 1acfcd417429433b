"""What the released code does, followed step by step: local fits with a signed penalty, its score, and its errors."""

# Repository criticalml-uw/Disentanglement-in-VAE, which the paper names, at revision 8f40aad, with the defaults of its
# arguments. Experiment1.py fits and compares, matrix.py is the local decoder, Experiment2.py the score.

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from unseam import geometry
from unseam.inputs import Decoder
from unseam.models import Encoding
from unseam.papers.tables import rows_of

__all__ = [
    "PASSES",
    "ROWS",
    "SIGNS",
    "Fit",
    "gram_root",
    "released_distances",
    "released_errors",
    "released_fit",
    "released_score",
    "signed_fits",
]

SIGNS = (1.0, 0.0, -0.7, -1.4)
"""Factors of the penalty, for β-TCVAE, none (0), β-VAE and VAE: ``load_loss`` goes by the order of models."""
PASSES = (1, 20)
"""Over the ten noises, which are one batch: one step by default, and more where the argument is changed."""
RATES = {"linear_slow": 1e-4, "nonlinear_fast": 0.1, "linear_none": 0.0, "nonlinear_none": 0.0}
"""Of SGD for the two forms of the local decoder, as released and without any step."""
NOISES = 10
MOMENTUM = 0.9
ROWS = ("seed", "passes", "sign", "point", "released", "started")
"""Columns of the table of signs."""


class Fit(NamedTuple):
    """Local decoders M (point, data, latent) and b (point, data), and the M they started from."""

    matrix: Tensor
    bias: Tensor
    start: Tensor


def released_fit(decoder: Decoder, code: Encoding, *, sign: float = 0.0, passes: int = 1) -> Fit:
    """Steps of SGD with momentum on ten noises at once, from the start of torch's linear layer.

    The loss is the mean over noises and pixels of (f(Mε + b) − (d(μ + ε) − d(μ)))², plus ``sign`` times the penalty of
    ``loss_or2``: the norm, over all of them, of Mε + b less MNε. N, not differentiated, is the *element-wise* root of
    (MᵀM)⁻¹, its negative entries set to zero; MNε, which is (data, noise), is read there as if it were (noise, data).

    >>> code = Encoding(torch.zeros(2, 3), torch.ones(2, 3))
    >>> fits = [released_fit(lambda z: z.repeat(1, 30), code, sign=sign).matrix for sign in (1.0, -1.4)]
    >>> bool(fits[0].norm() < fits[1].norm())
    True
    """
    return _fitted(_problem(decoder, code), "nonlinear_fast", sign, passes)


def signed_fits(decoder: Decoder, code: Encoding) -> list[dict[str, Any]]:
    """The same decoder, points, noises and start under every factor of the penalty.

    One row per number of passes, factor and point: ``released`` (:func:`released_score`) and ``started``, the cosine of
    M with the random matrix it started from.

    >>> rows = signed_fits(lambda z: z, Encoding(torch.zeros(1, 3), torch.ones(1, 3)))
    >>> [row["sign"] for row in rows]
    [1.0, 0.0, -0.7, -1.4, 1.0, 0.0, -0.7, -1.4]
    """
    rows: list[dict[str, Any]] = []
    problem = _problem(decoder, code)
    for passes in PASSES:
        for sign in SIGNS:
            fit = _fitted(problem, "nonlinear_fast", sign, passes)
            # the same columns in latent dimensions, so that U has no arbitrary rest; on the host, as the released
            # score depends on the signs of the bases, which an accelerator's library chooses otherwise
            root = gram_root((fit.matrix.double().mT @ fit.matrix.double()).cpu())
            cosine = torch.nn.functional.cosine_similarity(fit.matrix.flatten(1), fit.start.flatten(1))
            columns = {"released": released_score(root), "started": cosine}
            named = {"passes": passes, "sign": sign}
            rows += [named | {"point": point} | row for point, row in enumerate(rows_of(columns))]
    return rows


def released_errors(decoder: Decoder, code: Encoding) -> dict[str, float]:
    """What ``train_model`` reports as errors of local decoders, means over points, on ten fresh noises.

    With s the mean square of d(μ + ε) − d(μ) and r that of what a fit leaves of it, the report is (s − r)². Keys:
    ``at_linear_slow`` and ``at_nonlinear_fast`` are as released, ``..._none`` is the start itself; ``at_perfect``, for
    r = 0, is the report of a fit without error, and that of a fit that predicts no change is 0. ``at_jacobian`` is
    compared with them in Table 2: (s − ‖Jε‖)², the norm over noises and pixels, not squared and no mean, with the
    Jacobian at the first μ + ε.

    >>> sorted(released_errors(lambda z: z / 9, Encoding(torch.zeros(4, 2), torch.ones(4, 2))))[0]
    'at_jacobian'
    """
    shifts, targets = _noises(decoder, code, seed=2)
    signal = targets.square().mean((1, 2))
    change = torch.einsum("pnl,pkl->pkn", geometry.jacobian(decoder, code.mean + shifts[:, 0]), shifts)
    left = {"at_perfect": torch.zeros_like(signal), "at_jacobian": change.square().sum((1, 2)).sqrt()}
    problem = _problem(decoder, code)
    for form in RATES:
        fit = _fitted(problem, form)
        output = _affine(torch.cat([fit.matrix, fit.bias.unsqueeze(-1)], -1), shifts)
        left[f"at_{form}"] = (_bent(output, form) - targets).square().mean((1, 2))
    return {name: float((signal - part).square().mean()) for name, part in left.items()}


def released_score(matrices: Tensor) -> Tensor:
    """Mean of :func:`released_distances` (...), as ``checking_orthogonality`` has it without ``--norm``.

    >>> orthogonal = torch.diag(torch.tensor([1.0, 2.0]))  # the longer column second
    >>> bool(released_score(orthogonal) > 1)
    True
    """
    return released_distances(matrices).mean(-1)


def released_distances(matrices: Tensor) -> Tensor:
    """Three distances (..., 3) of matrices (..., data, latent) as ``checking_orthogonality`` takes them.

    They are those of U from that of MN (see :func:`released_fit`), of Vᵀ from I, and of Σ from that of MN; not squared,
    not normalised, the bases full and as a library returns them.

    >>> released_distances(torch.eye(2))
    tensor([0., 0., 0.])
    """
    left, values, right = torch.linalg.svd(matrices)
    other, lengths, _ = torch.linalg.svd(_nearest(matrices))
    identity = torch.eye(right.shape[-1], dtype=matrices.dtype, device=matrices.device)
    parts = [torch.linalg.matrix_norm(apart) for apart in (left - other, right - identity)]
    return torch.stack([*parts, torch.linalg.vector_norm(values - lengths, dim=-1)], -1)


def gram_root(gram: Tensor) -> Tensor:
    """Matrices R (..., latent, latent) with RᵀR as given: columns of these products, up to a rotation of the data.

    >>> gram_root(torch.diag(torch.tensor([1.0, 4.0]))).abs()
    tensor([[1., 0.],
            [0., 2.]])
    """
    values, vectors = torch.linalg.eigh(gram)
    return values.clamp(min=0).sqrt().unsqueeze(-1) * vectors.mT


def _nearest(matrices: Tensor) -> Tensor:
    inverse = torch.linalg.inv((matrices.mT @ matrices).detach())
    return matrices @ inverse.clamp(min=0).sqrt()


def _problem(decoder: Decoder, code: Encoding) -> tuple[Tensor, Tensor, Tensor]:
    """Noises that are fitted, and weights (point, data, latent + 1) to start from: drawn once for all fits."""
    shifts, targets = _noises(decoder, code, seed=0)
    points, latent, data = len(code.mean), code.mean.shape[1], targets.shape[-1]
    drawn = torch.rand(points, data, latent + 1, generator=torch.Generator().manual_seed(1))
    return shifts, targets, (2 * drawn.to(code.mean) - 1) * latent**-0.5


def _fitted(problem: tuple[Tensor, Tensor, Tensor], form: str, sign: float = 0.0, passes: int = 1) -> Fit:
    (shifts, targets, start), rate = problem, RATES[form]
    weights, velocity = start.clone(), torch.zeros_like(start)
    for _ in range(passes if rate else 0):
        moving = weights.detach().requires_grad_()
        with torch.enable_grad():
            output = _affine(moving, shifts)
            total = (_bent(output, form) - targets).square().mean((1, 2)).sum()
            if sign:
                total = total + sign * _penalty(moving[..., :-1], output, shifts).sum()
            (slope,) = torch.autograd.grad(total, moving)
        velocity = MOMENTUM * velocity + slope
        weights = weights - rate * velocity
    return Fit(weights[..., :-1], weights[..., -1], start[..., :-1])


def _noises(decoder: Decoder, code: Encoding, *, seed: int) -> tuple[Tensor, Tensor]:
    """Displacements ε (point, noise, latent), and what the decoder makes of them (point, noise, data)."""
    shape = (NOISES, *code.mean.shape)
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(code.mean)
    shifts = noise * code.variance.sqrt()
    centre = decoder(code.mean)
    targets = [(decoder(code.mean + shift) - centre).flatten(1) for shift in shifts]
    return shifts.transpose(0, 1), torch.stack(targets, 1)


def _affine(weights: Tensor, shifts: Tensor) -> Tensor:
    """Mε + b (point, noise, data)."""
    return shifts @ weights[..., :-1].mT + weights[..., -1].unsqueeze(1)


def _bent(output: Tensor, form: str) -> Tensor:
    return output if form.startswith("linear") else output.tanh()


def _penalty(matrix: Tensor, output: Tensor, shifts: Tensor) -> Tensor:
    """``loss_or2`` (point,)."""
    rebuilt = (_nearest(matrix) @ shifts.mT).reshape(output.shape)
    return torch.linalg.vector_norm(output - rebuilt, dim=(1, 2))
