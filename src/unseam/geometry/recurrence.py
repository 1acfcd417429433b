"""Which latents of a model others have too: matched by what they do, against random rotations."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from unseam.geometry.permutation import signed_permutation
from unseam.inputs import as_floating, as_mask, check_generator

__all__ = ["LatentGroup", "Recurrence", "recurrence"]

LEVEL = 0.05
# Similarity from which latents or subspaces are the same where a rotation of active latents cannot change it.
SAME = 0.9
# Random rotations per latent, over all other models, and the fewest of one model.
DRAWS, FEWEST = 1000, 20


class LatentGroup(NamedTuple):
    """Latents of one model that return only together: others have the subspace, with other axes.

    Attributes:
        member: whose latents.
        latents: their positions.
        found: whether each model has the subspace (member,).
        likeness: cosine of the largest principal angle between the subspaces (member,), mean of Jacobian and codes; 1
            with itself, 0 where a model has fewer active latents.
        chance: the same after random rotations; NaN where rotations do not change it.
        p_value: of the likeness under random rotations, over all models; NaN where they do not change it.
    """

    member: int
    latents: tuple[int, ...]
    found: Tensor
    likeness: Tensor
    chance: float
    p_value: float


class Recurrence(NamedTuple):
    """For each latent of each model, which others have it too; NaN and −1 for latents that are not active.

    Attributes:
        similarity: signed similarity (member, member, latent, latent) of all pairs; 0 for latents that are not active.
        match: latent of the other model (member, member, latent) that is matched to each; −1 for none.
        likeness: similarity with the match (member, member, latent), signed; 0 without one.
        chance: mean absolute likeness (member, latent) after random rotations of the others; NaN where no other model
            has two active latents.
        found: whether a latent is in the other model (member, member, latent); never with itself.
        p_value: of a latent's likeness with all others (member, latent), corrected by Holm for the latents of its
            model, and not below that of all models together; NaN where there is no chance.
        returns: latents (member, latent) that are found, and more alike than by chance at the level 0.05.
        groups: latents that return only together.
    """

    similarity: Tensor
    match: Tensor
    likeness: Tensor
    chance: Tensor
    found: Tensor
    p_value: Tensor
    returns: Tensor
    groups: tuple[LatentGroup, ...]


class _Judged(NamedTuple):
    """Likeness with others against that with rotated ones: see :func:`_judge`."""

    found: Tensor
    chance: Tensor
    p_value: Tensor


class _Rotated(NamedTuple):
    """A model whose active latents are rotated at random."""

    rotation: Tensor
    """(draw, latent, latent)."""
    likeness: Tensor
    """Of the latents of each model with their matches (member, latent, draw), absolute."""
    match: Tensor
    """(member, draw, latent)."""


@torch.no_grad()
def recurrence(
    columns: Tensor | NDArray[Any],
    codes: Tensor | NDArray[Any],
    active: Tensor | NDArray[Any] | None = None,
    *,
    generator: torch.Generator,
) -> Recurrence:
    r"""Match the latents of every two models by what they do, and compare with random rotations.

    .. math:: s_{ij} = \tfrac12 \left( \frac{\langle c_i, c_j \rangle}{\lVert c_i \rVert \lVert c_j \rVert}
              + \operatorname{corr}(z_i, z_j) \right)

    with c the columns of the decoders' Jacobians over all items and data dimensions, and z the codes. Latents are
    matched one to one with the largest sum of :math:`|s|`. The null hypothesis is that the axes of the other model are
    a random rotation of its active latents (rolinek2019 §4): its columns become J R and its codes Rᵀz, with R uniform,
    and both are matched again. A latent is found in another model where its likeness is at least halfway from the mean
    of the null to 1. Ranks of its likeness with each other model among rotations, which are independent given the
    latent, are combined by Fisher's method and corrected by Holm's over the latents of one model. No latent returns
    unless all models together reject the hypothesis: each is rotated against those before it.

    Latents that do not return are grouped where others mix them. A group is found in another model where the cosine
    of the largest principal angle between their spans is halfway from the null to 1; where rotations do not change
    that, since all active latents are in the group, at 0.9.

    Args:
        columns: inner products (member, latent, member, latent) of Jacobian columns of all models, summed over items
            and data dimensions.
        codes: covariances (member, latent, member, latent) of codes of the same items.
        active: (member, latent) booleans; all by default.
        generator: source of the rotations.

    Returns:
        Similarities in [-1, 1], matches, and which latents return.

    >>> z = torch.randn(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> copies = torch.cat([z, -z[:, [2, 0, 1]], z], 1)
    >>> products = (copies.T @ copies).view(3, 3, 3, 3)
    >>> found = recurrence(products, products, generator=torch.Generator().manual_seed(0))
    >>> found.match[0, 1].tolist(), found.returns.all().item()
    ([1, 2, 0], True)
    """
    check_generator(generator)
    shape = "(member, latent, member, latent)"
    products = torch.stack([as_floating("columns", columns, shape), as_floating("codes", codes, shape)])
    products = products.double().cpu()
    mask = _check_active(active, products)
    order = (~mask).to(torch.uint8).argsort(dim=1, stable=True)[:, : int(mask.sum(1).max())]
    counts, dense = mask.sum(1), _gather(products, order, mask)
    similarity, match, likeness = _align(dense)
    members = len(counts)
    rotated = [_rotate(dense, counts, other, slice(None), generator) for other in range(members)]
    there = torch.arange(order.shape[1]) < counts[:, None]
    judged = [_judge_latents(likeness, rotated, counts, member) for member in range(members)]
    found, chance, p_value = (torch.stack(part) for part in zip(*judged, strict=True))
    mixed = []
    for member in range(members):
        for latents in _mixed(similarity[member], match[member], found[member], counts, member):
            within = _judge_within(dense, match[member], counts, member, latents, generator)
            p_value[member, latents] = p_value[member, latents].fmax(within)
            mixed.append((member, latents))
    p_value = torch.stack([_holm(row) for row in torch.where(there, p_value, torch.nan)])
    p_value = torch.where(p_value.isnan(), p_value, p_value.fmax(_judge_all(likeness, rotated, counts)))
    returns = found.any(1) & ~(p_value > LEVEL) & there
    groups = []
    for member, latents in mixed:
        left = [latent for latent in latents if not returns[member, latent]]
        if len(left) > 1:
            group = _judge_group(dense, match, rotated, counts, member, left)
            if bool(group.found.any()) and not group.p_value > LEVEL:
                groups.append(group._replace(latents=tuple(sorted(order[member, left].tolist()))))
    paired = there[:, None] & (match < counts[None, :, None])
    named = torch.where(paired, order.expand(len(order), -1, -1).gather(2, match), -1)
    index = order[:, None].expand_as(named)
    blank = torch.zeros(*named.shape[:2], mask.shape[1])
    whole = _similarity(products * (mask[:, :, None, None] & mask))
    return Recurrence(
        whole,
        blank.long().sub(1).scatter(2, index, named),
        blank.double().add(torch.nan).scatter(2, index, torch.where(there[:, None], likeness, torch.nan)),
        blank[0].double().add(torch.nan).scatter(1, order, torch.where(there, chance, torch.nan)),
        blank.bool().scatter(2, index, found & paired),
        blank[0].double().add(torch.nan).scatter(1, order, p_value),
        blank[0].bool().scatter(1, order, returns),
        tuple(groups),
    )


def _check_active(active: Tensor | NDArray[Any] | None, products: Tensor) -> Tensor:
    members, latent = products.shape[1:3]
    for name, part in zip(("columns", "codes"), products, strict=True):
        flat = part.reshape(members * latent, -1)
        if not torch.allclose(flat, flat.mT, rtol=1e-3, atol=1e-3 * float(flat.abs().max())):
            raise ValueError(
                f"{name} must be products of the same vectors, symmetric in their two pairs of axes"
            )
    mask = (
        torch.ones(members, latent, dtype=torch.bool) if active is None else as_mask("active", active).cpu()
    )
    if mask.shape != (members, latent) or mask.dtype != torch.bool:
        raise ValueError(
            f"active must hold {latent} booleans for each of {members} members, got {mask.dtype} of shape "
            f"{tuple(mask.shape)}"
        )
    if (used := int(mask.any(1).sum())) < 2:
        raise ValueError(
            f"active must name latents of at least two models, got {used} of {members}: with fewer, nothing can return"
        )
    return mask


def _gather(products: Tensor, order: Tensor, mask: Tensor) -> Tensor:
    """Products (kind, member, latent, member, latent) of active latents, those first; zeros beyond their number."""
    members, width = order.shape
    flat = (order + torch.arange(members)[:, None] * mask.shape[1]).flatten()
    there = mask.gather(1, order).flatten()
    dense = products.flatten(3, 4).flatten(1, 2)[:, flat][:, :, flat] * (there[:, None] & there)
    return dense.view(2, members, width, members, width)


def _inverse_norms(squares: Tensor) -> Tensor:
    """1 / √squares; 0 for a vector that is zero."""
    return torch.where(squares > 0, squares.clamp(min=torch.finfo(squares.dtype).tiny).rsqrt(), 0.0)


def _similarity(products: Tensor) -> Tensor:
    """Mean over both kinds of the cosines (member, member, latent, latent)."""
    members, width = products.shape[1:3]
    flat = products.reshape(2, members * width, -1)
    scale = _inverse_norms(flat.diagonal(dim1=1, dim2=2))
    cosines = (scale[:, :, None] * flat * scale[:, None]).mean(0).clamp(-1, 1)
    return cosines.view(members, width, members, width).transpose(1, 2)


def _align(products: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Similarity of every two models, with the match of each latent and its likeness (member, member, latent)."""
    similarity = _similarity(products)
    match = signed_permutation(similarity).abs().argmax(-1)
    return similarity, match, similarity.gather(-1, match[..., None])[..., 0]


def _rotate(
    products: Tensor, counts: Tensor, other: int, rows: slice, generator: torch.Generator
) -> _Rotated:
    """Likeness of some models with one whose active latents are rotated at random."""
    members, width = products.shape[1:3]
    active, draws = int(counts[other]), max(FEWEST, -(-DRAWS // (members - 1)))
    normal = torch.randn(
        draws, active, active, generator=generator, dtype=torch.float64, device=generator.device
    )
    rotation = torch.zeros(draws, width, width, dtype=torch.float64)
    rotation[:, :active, :active] = torch.linalg.qr(normal).Q.cpu()
    own = torch.einsum("rji,kjl,rli->kri", rotation, products[:, other, :, other], rotation)
    scale = _inverse_norms(products.flatten(3, 4).flatten(1, 2).diagonal(dim1=1, dim2=2))
    scale = scale.view(2, 1, members, width, 1)[:, :, rows]
    cross = torch.einsum("kmij,rjl->krmil", products[:, rows, :, other], rotation)
    similarity = (scale * cross * _inverse_norms(own)[:, :, None, None]).mean(0).clamp(-1, 1)
    match = signed_permutation(similarity).abs().argmax(-1)
    likeness = similarity.gather(-1, match[..., None])[..., 0].abs()
    return _Rotated(rotation, likeness.permute(1, 2, 0), match.transpose(0, 1))


def _judge(observed: Tensor, null: Tensor, free: Tensor, others: Tensor) -> _Judged:
    """Whether (..., member) each likeness is found, its chance (...) and its p-value (...).

    Args:
        observed: absolute likeness (..., member).
        null: the same after rotations (..., member, draw).
        free: models (member,) whose rotations change it.
        others: models (member,) that it is compared with.
    """
    used = free & others
    if not bool(used.any()):
        nothing = torch.full(observed.shape[:-1], torch.nan, dtype=observed.dtype)
        return _Judged((observed >= SAME) & others, nothing, nothing)
    chance = null[..., used, :].mean((-2, -1))
    limit = torch.where(free, ((1 + chance) / 2)[..., None], SAME)
    evidence = -_rank(observed, null).log()[..., used].sum(-1)
    p_value = torch.special.gammaincc(torch.tensor(float(used.sum()), dtype=torch.float64), evidence)
    return _Judged((observed >= limit - 1e-9) & others, chance, p_value)


def _judge_latents(likeness: Tensor, rotated: list[_Rotated], counts: Tensor, member: int) -> _Judged:
    """Every latent of one model against all others; found is (member, latent)."""
    null = torch.stack([one.likeness[member] for one in rotated], 1)
    others = (torch.arange(len(counts)) != member) & (counts > 0)
    judged = _judge(likeness[member].abs().mT, null, counts > 1, others)
    return judged._replace(found=judged.found.mT)


def _judge_all(likeness: Tensor, rotated: list[_Rotated], counts: Tensor) -> Tensor:
    """P-value that no model's axes are those of any other: each model rotated against all before it.

    Given these, its rank among its own rotations is uniform, so that ranks of all models are independent.
    """
    free = [other for other in range(1, len(counts)) if counts[other] > 1]
    evidence = torch.zeros((), dtype=torch.float64)
    for other in free:
        null = rotated[other].likeness[:other].mean((0, 1))
        evidence -= _rank(likeness[:other, other].abs().mean(), null).log()
    return torch.special.gammaincc(evidence.new_tensor(len(free)), evidence) if free else evidence


def _rank(observed: Tensor, null: Tensor) -> Tensor:
    """Share of draws (..., draw) at least as large as what was observed (...), that itself among them."""
    # equal up to rounding counts as reached
    return (1 + (null >= observed[..., None] - 1e-9).sum(-1)).double() / (null.shape[-1] + 1)


def _holm(p_values: Tensor) -> Tensor:
    """Holm's correction of p-values (test,) that are not NaN."""
    known = (~p_values.isnan()).nonzero().flatten()
    if not len(known):
        return p_values
    ranked = known[p_values[known].argsort()]
    factors = torch.arange(len(ranked), 0, -1, dtype=p_values.dtype)
    steps = (p_values[ranked] * factors).cummax(0).values.clamp(max=1)
    return p_values.scatter(0, ranked, steps)


def _mixed(similarity: Tensor, match: Tensor, found: Tensor, counts: Tensor, member: int) -> list[list[int]]:
    """Latents of one model that others mix, among those that are not found everywhere, as connected groups.

    Of latents that are rotated among d, each has about 1/d of its square in each other's match; an eighth of that
    connects them.
    """
    others = [b for b in range(len(counts)) if b != member and counts[b] > 1]
    left = [latent for latent in range(int(counts[member])) if not found[others, latent].all()]
    if not others or not left:
        return []
    aligned = torch.stack([similarity[b][:, match[b]] for b in others]).square().mean(0)
    linked = (aligned + aligned.mT) / 2 > 1 / (8 * len(left))
    groups = []
    while left:
        group, edge = [], [left.pop(0)]
        while edge:
            group.append(edge.pop())
            edge += [latent for latent in left if linked[group[-1], latent]]
            left = [latent for latent in left if latent not in edge]
        groups.append(sorted(group))
    return [group for group in groups if len(group) > 1]


def _judge_within(
    products: Tensor,
    match: Tensor,
    counts: Tensor,
    member: int,
    latents: list[int],
    generator: torch.Generator,
) -> Tensor:
    """P-values (latent,) of some latents of one model where others are rotated within the matches of these alone."""
    if len(latents) == int(counts[member]):
        return torch.zeros(len(latents), dtype=torch.float64)
    order = match[:, latents]
    whole = (order < counts[:, None]).all(1)
    order = torch.where(whole[:, None], order, torch.arange(len(latents)))
    order[member] = torch.tensor(latents)
    dense = _gather(products, order, torch.ones(len(counts), products.shape[2], dtype=torch.bool))
    few = torch.where(whole, len(latents), 0)
    rows = slice(member, member + 1)
    rotated = [_rotate(dense, few, other, rows, generator) for other in whole.nonzero().flatten().tolist()]
    null = torch.stack([one.likeness[0] for one in rotated], 1)
    likeness = _align(dense)[2][member][whole].abs().mT
    others = whole.nonzero().flatten() != member
    return _judge(likeness, null, torch.ones_like(others), others).p_value


def _judge_group(
    products: Tensor, match: Tensor, rotated: list[_Rotated], counts: Tensor, member: int, latents: list[int]
) -> LatentGroup:
    """The span of some latents against those of their matches in all others."""
    chosen, members = torch.tensor(latents), len(counts)
    free = counts > len(latents)
    others = (torch.arange(members) != member) & (counts > 0)
    observed = torch.eye(members, dtype=torch.float64)[member]
    null = torch.zeros(members, len(rotated[0].rotation), dtype=torch.float64)
    for b in others.nonzero().flatten().tolist():
        blocks = (
            products[:, member, chosen][:, :, member, chosen],
            products[:, member, chosen, b],
            products[:, b, :, b],
        )
        basis = torch.eye(products.shape[2], dtype=torch.float64)[None]
        observed[b] = _principal_cosine(*blocks, basis, match[member, b, chosen][None], counts[b])[0]
        if free[b]:
            drawn = rotated[b].match[member][:, chosen]
            null[b] = _principal_cosine(*blocks, rotated[b].rotation, drawn, counts[b])
    judged = _judge(observed, null, free, others)
    return LatentGroup(
        member, tuple(latents), judged.found, observed, float(judged.chance), float(judged.p_value)
    )


def _principal_cosine(
    own: Tensor, cross: Tensor, other: Tensor, rotation: Tensor, match: Tensor, count: Tensor
) -> Tensor:
    """Cosine (draw,) of the largest principal angle between spans, mean over both kinds; 0 where matches lack.

    Args:
        own: products (kind, group, group) of the group.
        cross: products (kind, group, latent) with the other model.
        other: products (kind, latent, latent) of the other model.
        rotation: of the other model (draw, latent, latent).
        match: columns of the rotation (draw, group) that are matched to the group.
        count: active latents of the other model.
    """
    basis = rotation.gather(2, match[:, None].expand(-1, rotation.shape[1], -1))
    between = cross[:, None] @ basis
    inner = basis.mT @ other[:, None] @ basis
    values = torch.linalg.svdvals(_inverse_root(own)[:, None] @ between @ _inverse_root(inner))
    return torch.where((match < count).all(1), values[..., -1].mean(0).clamp(max=1), 0.0)


def _inverse_root(gram: Tensor) -> Tensor:
    """Inverse square root of Gram matrices (..., latent, latent), within their range."""
    values, vectors = torch.linalg.eigh(gram)
    keep = values > 1e-10 * values[..., -1:]
    return vectors * torch.where(keep, values.clamp(min=1e-300).rsqrt(), 0.0)[..., None, :] @ vectors.mT
