"""Which components of a generator another one has found, and which no model could."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unseam.geometry import jacobian, jacobian_basis, signed_permutation
from unseam.geometry.checks import check_points
from unseam.inputs import Array, Decoder, as_floating, check_number

__all__ = ["GeneratorMatch", "match_generators"]

# Points whose Jacobians are held at once when no chunk size is given.
_AT_ONCE = 256


class GeneratorMatch(NamedTuple):
    """How the latents of a learned generator match the components of the true one."""

    permutation: Tensor
    """P (learned latent, component), entries -1, 0 and 1: ``codes @ P`` stand in the order and sign of the truth."""
    cosine: Tensor
    """Mean cosine between each component and the latent matched to it (component,), not negative."""
    residual: Tensor
    """‖C' P - C‖ / ‖C‖ (): columns of the learned generator against those of the true one, after the match."""
    subspace_residual: Tensor
    """The same after the best rotation within each group (): what repeated singular values do not excuse."""
    groups: Tensor
    """Number of each component's group (component,): components of one group have the same singular values."""
    identified: Tensor
    """Whether a component is alone in its group (component,): only then does the data determine its direction."""
    angle: Tensor
    """Largest principal angle between the true and the learned subspace of its group (component,), in radians; of
    non-linear generators its mean over points."""


@torch.no_grad()
def match_generators(
    true: Decoder | Array,
    learned: Decoder | Array,
    z: Array | None = None,
    codes: Array | None = None,
    *,
    tolerance: float = 0.05,
    chunk_size: int | None = None,
) -> GeneratorMatch:
    r"""Match the latents of a learned generator to the true components, up to order and sign.

    .. math:: P = \arg\max_P \sum_{ij} P_{ij} \, E \cos\left(
        \frac{\partial x}{\partial z'_i}, \frac{\partial x}{\partial z_j} \right)

    over signed permutations, exactly (:func:`~unseam.geometry.signed_permutation`).

    *Linear* generators are matrices. The components of the true :math:`W = U S V^\top` are the columns of U S
    (allen2024 Theorem 1), as V leaves no trace in the data (Remark 3); those of the learned one are its columns
    as they stand, for it is its latents that are asked about. By Corollary 1.1 they match, with residual 0, if a
    linear VAE learned them and the singular values are distinct. Under repeated ones the subspace of their
    group is determined, and no basis of it: ``identified`` is false, ``residual`` may be anything,
    ``subspace_residual`` and ``angle`` are still 0.

    *Non-linear* generators are callables, compared at the same data: at points ``z`` of the true one and
    ``codes`` of the learned one, an encoder's say, with :math:`f'(z') = f(z)`. The true one must be given in its
    own components, with orthogonal columns (A#3). Columns that point alike everywhere make each code a function
    of one component (Corollary 2.1); residual 0 makes it ±z, as equal priors ask. What repeats here are singular
    values *at every point*: then :math:`f(R z)` has orthogonal columns and the same distribution for every
    rotation R of the group. Equal functions of different coordinates, :math:`s_1(z_1)` and :math:`s_2(z_2)`,
    differ at almost every point and are identified.

    Args:
        true: matrix (data, component), of full rank, or map from (batch, component) to (batch, \*data).
        learned: matrix (data, learned latent), or map from (batch, learned latent) to (batch, \*data).
        z: true latent points (batch, component); for callables only.
        codes: latents of the learned generator at the same data (batch, learned latent); for callables only.
        tolerance: components whose singular values differ by less than this share of the larger, in root mean
            square over points, form a group, as do those between which a chain of such pairs leads.
        chunk_size: points whose Jacobians are held at once.

    Returns:
        The match. Numbers of latents may differ: spare latents are left out, and a component that finds none has
        cosine 0.

    >>> true = torch.tensor([[3.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    >>> learned = torch.tensor([[0.0, -3.0], [2.0, 0.0], [0.0, 0.0]])
    >>> found = match_generators(true, learned)
    >>> found.permutation, found.residual
    (tensor([[ 0.,  1.],
            [-1.,  0.]]), tensor(0.))
    """
    check_number("tolerance", tolerance, least=0)
    pairs = _Pairs(true, learned, z, codes, chunk_size)
    overlap, apart = _overlaps(pairs)
    permutation = _assignment(overlap)
    groups = _groups(apart < tolerance).to(overlap.device)
    sizes = (groups[:, None] == groups[None, :]).sum(1)
    residual, subspace_residual, angle = _errors(pairs, permutation, groups)
    return GeneratorMatch(
        permutation.to(pairs.dtype),
        (permutation * overlap.T).sum(0).to(pairs.dtype),
        residual.to(pairs.dtype),
        subspace_residual.to(pairs.dtype),
        groups,
        sizes == 1,
        angle.to(pairs.dtype),
    )


class _Pairs:
    """Columns (point, data, latent) of the true and the learned generator, a chunk of points after another."""

    def __init__(
        self,
        true: Decoder | Array,
        learned: Decoder | Array,
        z: Array | None,
        codes: Array | None,
        chunk_size: int | None,
    ) -> None:
        if callable(true) != callable(learned):
            raise ValueError("true and learned must both be matrices or both be callables")
        self.matrices: tuple[Tensor, Tensor] | None = None
        if not callable(true) or not callable(learned):
            if z is not None or codes is not None:
                raise ValueError("z and codes must be left out where the generators are matrices")
            self.matrices = _components(_matrix("true", true)), _matrix("learned", learned)
            self.dtype = self.matrices[0].dtype
            _check_data(*self.matrices)
            return
        if z is None or codes is None:
            raise ValueError("z and codes must be given where the generators are callables")
        self.true, self.learned = true, learned
        self.z, self.codes = check_points(z), check_points(codes, "codes")
        if len(self.z) != len(self.codes):
            raise ValueError(
                f"z and codes must have one row per point, got {len(self.z)} and {len(self.codes)}"
            )
        self.chunk_size, self.dtype = chunk_size or _AT_ONCE, self.z.dtype

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        if self.matrices is not None:
            yield self.matrices[0].double()[None], self.matrices[1].double()[None]
            return
        for part in range(0, len(self.z), self.chunk_size):
            chunk = slice(part, part + self.chunk_size)
            columns = jacobian(self.true, self.z[chunk]), jacobian(self.learned, self.codes[chunk])
            _check_data(*columns)
            yield columns[0].double(), columns[1].double()


def _matrix(name: str, value: Any) -> Tensor:
    return as_floating(name, value, "(data, latent)").detach()


def _components(matrix: Tensor) -> Tensor:
    """U S (data, component) of a matrix of full rank: its columns in the basis of its right singular vectors."""
    basis = jacobian_basis(matrix)
    least, most = (float(value) for value in (basis.singular_values[-1], basis.singular_values[0]))
    if least <= max(matrix.shape) * torch.finfo(matrix.dtype).eps * most:
        raise ValueError(
            f"true must have full column rank, got singular values from {most:.3g} to {least:.3g}"
        )
    return matrix @ basis.right_vectors


def _check_data(true: Tensor, learned: Tensor) -> None:
    if true.shape[-2] != learned.shape[-2]:
        raise ValueError(
            "true and learned must generate the same data dimensions, "
            f"got {true.shape[-2]} and {learned.shape[-2]}"
        )


def _overlaps(pairs: _Pairs) -> tuple[Tensor, Tensor]:
    """Mean cosines (component, learned), and root mean square relative differences of true norms."""
    cosines, differences, count = torch.zeros(()), torch.zeros(()), 0
    for true, learned in pairs:
        norms = true.norm(dim=1)
        cosine = _unit(true).mT @ _unit(learned)
        larger = torch.maximum(norms[:, :, None], norms[:, None, :])
        apart = (norms[:, :, None] - norms[:, None, :]) / torch.where(larger > 0, larger, 1.0)
        cosines = cosines.to(cosine.device) + cosine.sum(0)
        differences = differences.to(cosine.device) + apart.square().sum(0)
        count += len(true)
    return cosines / count, (differences / count).sqrt()


def _unit(columns: Tensor) -> Tensor:
    norms = columns.norm(dim=1, keepdim=True)
    return columns / torch.where(norms > 0, norms, 1.0)


def _assignment(overlap: Tensor) -> Tensor:
    """Signed permutation (learned, component), a column of zeros where there are too few learned latents."""
    components, learned = overlap.shape
    side = max(components, learned)
    padded = overlap.new_zeros(side, side)
    padded[:components, :learned] = overlap
    return signed_permutation(padded)[:components, :learned].T


def _groups(close: Tensor) -> Tensor:
    """Number (component,) of the connected part that each component belongs to."""
    from scipy.sparse.csgraph import connected_components

    _, labels = connected_components(close.cpu().numpy(), directed=False)
    return torch.as_tensor(labels, dtype=torch.int64)


def _errors(pairs: _Pairs, permutation: Tensor, groups: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Residual, residual after rotations within groups, and principal angle of each component's group."""
    members = [(groups == label).nonzero().squeeze(1) for label in range(int(groups.max()) + 1)]
    crossed = torch.zeros_like(permutation.T @ permutation)
    for true, learned in pairs:
        crossed += ((learned @ permutation).mT @ true).sum(0)
    rotation = _rotation(crossed, members)
    size = plain = rotated = crossed.new_zeros(())
    angles, count = crossed.new_zeros(len(crossed)), 0
    for true, learned in pairs:
        matched = learned @ permutation
        size = size + true.square().sum()
        plain = plain + (matched - true).square().sum()
        rotated = rotated + (matched @ rotation - true).square().sum()
        for group in members:
            angles[group] += _angle(true[:, :, group], matched[:, :, group]).sum()
        count += len(true)
    return (plain / size).sqrt(), (rotated / size).sqrt(), angles / count


def _rotation(crossed: Tensor, members: list[Tensor]) -> Tensor:
    """Orthogonal matrix, a block for each group, that rotates matched columns closest to true ones (Procrustes)."""
    rotation = torch.zeros_like(crossed)
    for group in members:
        left, _, right = torch.linalg.svd(crossed[group[:, None], group])
        rotation[group[:, None], group] = left @ right
    return rotation


def _angle(true: Tensor, matched: Tensor) -> Tensor:
    """Largest principal angle (point,) between the spans of columns; a right one where a column is missing."""
    basis, _, _ = torch.linalg.svd(true, full_matrices=False)
    found, lengths, _ = torch.linalg.svd(matched, full_matrices=False)
    rounding = max(matched.shape[1:]) * torch.finfo(matched.dtype).eps
    found = found * (lengths > rounding * lengths[:, :1])[:, None, :]
    common = found.mT @ basis
    sine = torch.linalg.matrix_norm(basis - found @ common, ord=2)
    cosine = torch.linalg.svdvals(common)[:, -1]
    return torch.atan2(sine, cosine)
