"""Whether the right singular fields of a decoder are the lines of coordinates: whether components exist."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from unseam.geometry import FisherWeighted, degenerate_points, local_geometry, restrict, right_basis
from unseam.geometry.checks import check_points
from unseam.independence._fields import Active, moving_latents
from unseam.independence._kinks import jumps, segments
from unseam.independence._metric import Metric
from unseam.inputs import Array, Decoder, as_floating, check_number

__all__ = ["Integrability", "LieBrackets", "integrability", "lie_brackets"]


class Integrability(NamedTuple):
    """What the Lie brackets of the right singular fields say about components."""

    exist: bool | None
    """Whether components exist around every point that could be judged; ``None`` where none could."""
    verdict: str
    """The same in words, with the numbers."""
    size: float
    """Norm of the brackets of distinct fields, root mean square over points that could be judged; NaN where kinks
    leave it undecided."""
    size_error: float
    """Its standard error, NaN for fewer than two points."""
    relative: float
    """The size relative to the most that the frame's rotation allows, from 0 to 1; points where the brackets are
    within rounding count as 0."""
    relative_error: float
    """Its standard error."""
    points: Tensor
    """Norm of the brackets at each point (batch,), NaN at degenerate ones."""
    twisted: Tensor
    """Points (batch,) where the brackets are not zero: no components exist around them."""
    degenerate: Tensor
    """Points (batch,) where singular values repeat, so that there are no fields: left out."""
    brackets: Tensor
    """⟨v_k, [v_i, v_j]⟩ (batch, i, j, k), NaN at degenerate points."""


class LieBrackets(NamedTuple):
    """How a frame of right singular vectors rotates from point to point, and whether its curves close."""

    brackets: Tensor
    """⟨v_k, [v_i, v_j]⟩ (..., i, j, k); NaN where two singular values repeat."""
    rotation: Tensor
    """⟨v_k, ∇_{v_i} v_j⟩ (..., i, j, k), antisymmetric in j and k; NaN likewise."""


@torch.no_grad()
def integrability(
    decoder: Decoder,
    z: Array,
    *,
    likelihood: FisherWeighted | None = None,
    active: Active = None,
    tolerance: float | None = None,
    degeneracy: float = 0.05,
    step: float | None = None,
    chunk_size: int | None = None,
) -> Integrability:
    r"""Lie brackets of the right singular fields, which say whether components (allen2024 §3.2.3) exist.

    .. math:: \langle v_k, [v_i, v_j] \rangle = 0 \quad \text{for all distinct } i, j, k

    Components are coordinates u_i whose lines follow the right singular vectors v_i. The lines are orthogonal,
    so :math:`\nabla u_i \parallel v_i`, which Frobenius' theorem allows around a point exactly if the above
    holds there: steps along two of the fields then commute up to steps along the same two. To leading order,
    walking unit lengths along v_i and v_j in either order ends apart by the bracket. The paper takes
    components for granted. Two latents have no three distinct fields, so their components always exist; for
    three or more they are an exception. The decoder must be twice differentiable: where its metric jumps on
    segments between a few of the points, as after ReLU layers, the verdict is undecided and asks for ``step``.

    Derivatives of the fields are those of eigenvectors of the pullback (:func:`lie_brackets`). The relative
    size is :math:`\lVert \text{brackets} \rVert / (2 \lVert \text{rotation} \rVert)`, at most 1, each pair and
    each bracket counted once: unchanged by order and sign of fields and by the scales of z and x.

    Args:
        decoder: map from (batch, latent) to (batch, \*data) that treats each point on its own.
        z: latent points (batch, latent), for example draws of the prior.
        likelihood: weights the metric by ``fisher_weight(output)``; ``None`` for the identity.
        active: mask or indices of the latents that may move; the others stay as they are in ``z``.
        tolerance: relative size that counts as zero; by default the root of the precision of ``z``, and with
            ``step`` no less than its square, the order of the error of a central difference.
        degeneracy: relative gap of neighbouring singular values below which a point is left out.
        step: differentiate the pullback by central differences of this step, in latent units, instead of
            exactly: for decoders with kinks (ReLU), whose derivatives do not see them, and for those that torch
            cannot differentiate twice.
        chunk_size: number of points differentiated at once.

    Returns:
        The brackets, their summary over points, and a verdict. They cost (latent + 1)² passes of the decoder.

    >>> matrix = torch.tensor([[3.0, 1.0, 0.0], [0.0, 2.0, 1.0], [0.0, 0.0, 1.0]])
    >>> integrability(lambda z: z @ matrix, torch.zeros(4, 3)).exist
    True
    """
    points = check_points(z).detach()
    if points.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"z must be float32 or float64, as second derivatives need it, got {points.dtype}")
    check_number("degeneracy", degeneracy, least=0)
    if step is not None:
        check_number("step", step, above=0)
    if tolerance is not None:
        check_number("tolerance", tolerance, least=0)
    values, basis = local_geometry(decoder, points, likelihood=likelihood, chunk_size=chunk_size)
    if active is not None:
        values = restrict(values, active)
        basis = right_basis(values)
    degenerate = degenerate_points(basis.singular_values, tolerance=degeneracy) | _has_repeated(
        basis.singular_values
    )
    metric = Metric(decoder, points, moving_latents(active, points), likelihood, chunk_size)
    changes = metric.derivatives(points) if step is None else metric.differences(points, step)
    found = _frame_brackets(basis.singular_values.square(), basis.right_vectors, changes, degenerate)
    if tolerance is None:
        tolerance = max(torch.finfo(points.dtype).eps ** 0.5, 0.0 if step is None else step**2)
    rounding = _rounding(basis.singular_values, changes, degeneracy)
    kinked = step is None and (_is_piecewise_linear(values, changes) or _has_kinks(metric, points))
    return _summary(found, degenerate, tolerance, rounding, kinked)


def lie_brackets(pullback: Array, derivative: Array) -> LieBrackets:
    r"""Brackets of the eigenvector fields of any metric, from its derivative at a point.

    .. math:: \langle v_k, \nabla_{v_i} v_j \rangle = \frac{v_k^\top (\partial_{v_i} G)\, v_j}
        {\lambda_j - \lambda_k}, \qquad
        [v_i, v_j] = \nabla_{v_i} v_j - \nabla_{v_j} v_i

    first-order perturbation theory of a symmetric matrix. Fields in descending order of eigenvalues, signs as
    in :func:`~unseam.geometry.right_basis`; a bracket changes sign with each of its three fields.

    Args:
        pullback: G (..., latent, latent).
        derivative: :math:`\partial G / \partial z_a` (..., a, latent, latent).

    Returns:
        Brackets and rotation (..., latent, latent, latent), per unit of length in latent space.

    >>> metric = torch.diag(torch.tensor([9.0, 4.0, 1.0]))
    >>> derivative = torch.zeros(3, 3, 3)
    >>> derivative[2, 0, 1] = derivative[2, 1, 0] = 5.0  # v_1 and v_2 rotate at unit rate along z_3
    >>> lie_brackets(metric, derivative).brackets[2, 0, 1]
    tensor(1.)
    """
    gram, changes = as_floating("pullback", pullback), as_floating("derivative", derivative)
    kind = torch.promote_types(gram.dtype, changes.dtype)
    gram, changes = gram.to(kind), changes.to(gram.device, kind)
    if changes.shape != (*gram.shape[:-1], gram.shape[-1], gram.shape[-1]):
        raise ValueError(
            f"derivative must have shape (..., latent, latent, latent) for a pullback of shape "
            f"{tuple(gram.shape)}, got {tuple(changes.shape)}"
        )
    basis = right_basis(gram)
    equal = _has_repeated(basis.singular_values)
    return _frame_brackets(basis.singular_values.square(), basis.right_vectors, changes, equal)


def _has_repeated(singular_values: Tensor) -> Tensor:
    """Where two neighbours are the same number."""
    return (singular_values.diff(dim=-1) == 0).any(-1)


def _frame_brackets(squares: Tensor, vectors: Tensor, changes: Tensor, degenerate: Tensor) -> LieBrackets:
    """Brackets and rotation from eigenvalues, eigenvectors and ∂G (..., direction, latent, latent)."""
    entries = torch.einsum("...abc,...ai,...bj,...ck->...ijk", changes, vectors, vectors, vectors)
    gap = squares[..., :, None] - squares[..., None, :]
    same = torch.eye(squares.shape[-1], dtype=torch.bool, device=squares.device)
    rotation = torch.where(same, 0.0, entries / torch.where(same, 1.0, gap)[..., None, :, :])
    rotation = torch.where(degenerate[..., None, None, None], torch.nan, rotation)
    return LieBrackets(rotation - rotation.transpose(-3, -2), rotation)


def _rounding(singular_values: Tensor, changes: Tensor, degeneracy: float) -> Tensor:
    """What rounding alone leaves of each bracket (batch, i, j, k).

    Entries of ∂G are exact to latent · ε of the largest, and singular vectors are rotated by no more than
    ε / (2 · degeneracy) where relative gaps are no smaller than ``degeneracy``.
    """
    squares = singular_values.square()
    latent = squares.shape[-1]
    rotation = 1 + 1 / (2 * max(degeneracy, torch.finfo(squares.dtype).eps ** 0.5))
    error = latent * torch.finfo(squares.dtype).eps * rotation * changes.abs().amax((-3, -2, -1))
    gap = (squares[:, :, None] - squares[:, None, :]).abs()
    reach = error[:, None, None] / torch.where(gap == 0, torch.inf, gap)
    return reach[:, None, :, :] + reach[:, :, None, :]


def _is_piecewise_linear(metric: Tensor, changes: Tensor) -> bool:
    """Whether the metric differs between points though its derivative vanishes at every one."""
    spread = (metric - metric[:1]).abs().amax()
    return bool((changes == 0).all()) and bool(
        spread > torch.finfo(metric.dtype).eps ** 0.5 * metric.abs().amax()
    )


def _has_kinks(metric: Metric, points: Tensor) -> bool:
    """Whether the metric changes on the way between points by what its derivatives on the way do not see."""
    if len(metric.moving) < 3:  # components exist in any case
        return False
    ways = segments(points, metric.moving)
    scale = metric.value(ways.start).abs().amax()

    def measured(here: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
        value, slope = metric.along(here, direction)
        return value.flatten(1) / scale, slope.flatten(1) / scale

    floor = torch.finfo(points.dtype).eps ** 0.25  # products may run in TF32
    return bool(scale > 0) and jumps(measured, ways, floor)


def _summary(
    found: LieBrackets, degenerate: Tensor, tolerance: float, rounding: Tensor, kinked: bool
) -> Integrability:
    latent = found.brackets.shape[-1]
    squares = _distinct(found.brackets)
    rotation = found.rotation.square().sum((-3, -2, -1)) / 2
    bound = (tolerance * 2 * rotation.sqrt()) + _distinct(rounding).sqrt()
    twisted = torch.where(degenerate, False, squares.sqrt() > bound)
    judged = ~degenerate
    size, size_error = _root_mean(squares[judged], torch.ones_like(squares[judged]))
    above = torch.where(squares > _distinct(rounding), squares, 0.0)  # no noise over noise
    relative, relative_error = _root_mean(above[judged], 4 * rotation[judged])
    kinked &= latent > 2
    if kinked:
        size = size_error = relative = relative_error = float("nan")
    exist = None if kinked or not bool(judged.any()) else not bool(twisted.any())
    verdict = _verdict(exist, latent, twisted, degenerate, kinked, (size, size_error, relative))
    norms = torch.where(degenerate, torch.nan, squares.sqrt())
    return Integrability(
        exist, verdict, size, size_error, relative, relative_error, norms, twisted, degenerate, found.brackets
    )


def _distinct(brackets: Tensor) -> Tensor:
    """Sum of squares over i < j and k apart from both."""
    latent = brackets.shape[-1]
    index = torch.arange(latent, device=brackets.device)
    first, second, third = index[:, None, None], index[None, :, None], index[None, None, :]
    counted = (first < second) & (third != first) & (third != second)
    return torch.where(counted, brackets, 0.0).square().sum((-3, -2, -1))


def _root_mean(parts: Tensor, wholes: Tensor) -> tuple[float, float]:
    """Root of the ratio of two means over points, and its standard error to first order."""
    if len(parts) == 0:
        return float("nan"), float("nan")
    whole = wholes.mean().item()
    if whole == 0:
        return 0.0, 0.0
    ratio = parts.mean().item() / whole
    if len(parts) < 2 or ratio == 0:
        return ratio**0.5, 0.0 if ratio == 0 else float("nan")
    error = (parts - ratio * wholes).std().item() / (whole * len(parts) ** 0.5)
    return ratio**0.5, error / (2 * ratio**0.5)


def _verdict(
    exist: bool | None,
    latent: int,
    twisted: Tensor,
    degenerate: Tensor,
    kinked: bool,
    numbers: tuple[float, float, float],
) -> str:
    left_out = f"; {int(degenerate.sum())} of {len(degenerate)} points left out, where singular values repeat"
    left_out = left_out if bool(degenerate.any()) else ""
    if latent == 1:
        return "components exist: one latent is one component"
    if kinked:
        return (
            "undecided: the decoder has kinks, as piece-wise linear layers do, where its fields rotate and "
            "derivatives do not see it; give a step"
        )
    if exist is None:
        return "undecided: singular values repeat at every point, so there are no fields to follow"
    if latent == 2:
        return (
            f"components exist: two orthogonal fields of lines always are the lines of coordinates{left_out}"
        )
    if exist:
        return f"components exist: the brackets of distinct singular fields are zero{left_out}"
    size, error, relative = numbers
    judged = len(degenerate) - int(degenerate.sum())
    return (
        f"no components exist around {int(twisted.sum())} of {judged} points: brackets of distinct singular "
        f"fields have size {size:.3g} ± {error:.1g}, {relative:.1%} of what the fields' rotation allows{left_out}"
    )
