"""Orthogonality of decoders with thousands of latents, from sampled columns and random probes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.func import jvp, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from unseam.geometry.checks import check_chunk_size, check_decoder, check_points
from unseam.geometry.jacobian import FisherWeighted
from unseam.geometry.memory import free_memory, points_at_once
from unseam.inputs import Array, Decoder, as_mask, check_count, check_generator, check_number

__all__ = ["Probes", "probe"]

PARTNERS = {True: 8, False: 2}
"""Partners of each anchor where every column is computed anyway, and where each partner is a further one."""


class Probes(NamedTuple):
    """Estimates with their standard errors, all 0-d, means over the points given.

    Attributes:
        cosine: mean ``|cos|`` over all pairs of distinct columns, collapsed ones left out as in
            :func:`~unseam.geometry.column_cosine`; NaN if no pair is left.
        overlapping_cosine: the same over pairs whose receptive fields overlap; NaN if none was met.
        separate_cosine: the same over pairs whose receptive fields do not; NaN if none was met.
        random_cosine: mean ``|cos|`` over overlapping pairs after random signs for their shared data dimensions:
            what columns of the same footprints would have by chance.
        overlapping_fraction: share of those pairs whose receptive fields overlap.
        off_diagonal_energy: Σ_{i≠j} G_ij² of the pullback G.
        off_diagonal_share: the same over ‖G‖_F², zero for orthogonal columns.
        square_norm: Σ_j ‖c_j‖², the trace of G.
        dead_fraction: share of the columns that have collapsed, shorter than the typical one by the type's precision.
        latents: columns sampled at each point, each once.
        pairs: pairs sampled at each point.
    """

    cosine: Tensor
    cosine_error: Tensor
    overlapping_cosine: Tensor
    overlapping_cosine_error: Tensor
    separate_cosine: Tensor
    separate_cosine_error: Tensor
    random_cosine: Tensor
    random_cosine_error: Tensor
    overlapping_fraction: Tensor
    overlapping_fraction_error: Tensor
    off_diagonal_energy: Tensor
    off_diagonal_energy_error: Tensor
    off_diagonal_share: Tensor
    off_diagonal_share_error: Tensor
    square_norm: Tensor
    square_norm_error: Tensor
    dead_fraction: Tensor
    latents: int
    pairs: int


_In = TypeVar("_In")
_Out = TypeVar("_Out")


class _Plan(NamedTuple):
    partners: int
    threshold: float


class _Anchor(NamedTuple):
    """Unbiased estimates from one sampled column, (partner,): each for one other column drawn at random from all."""

    cosine: Tensor
    separate_cosine: Tensor
    overlapping_cosine: Tensor
    random_cosine: Tensor
    overlapping: Tensor
    separate: Tensor
    paired: Tensor
    off_diagonal: Tensor
    energy: Tensor
    square_norm: Tensor
    collapsed: Tensor


@torch.no_grad()
def probe(
    decoder: Decoder,
    z: Array,
    *,
    latents: int,
    generator: torch.Generator,
    likelihood: FisherWeighted | None = None,
    active: Array | None = None,
    partners: int | None = None,
    footprint_threshold: float = 0.05,
    chunk_size: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Probes:
    r"""Cosines and off-diagonal energy of a decoder's columns without forming its Jacobian.

    .. math:: c_j = W^{1/2} J e_j, \qquad
        \frac{1}{D(D-1)} \sum_{i \ne j} \frac{|c_i^\top c_j|}{\lVert c_i \rVert \lVert c_j \rVert}, \qquad
        \sum_{i \ne j} G_{ij}^2, \quad G = J^\top W J

    (the column orthogonality of rolinek2019 Prop. 1). At each point, ``latents`` anchors i are drawn uniformly
    without replacement. Forward mode gives an anchor's column, one reverse pass its whole row of G, hence
    its off-diagonal energy exactly. Columns of far-apart spatial latents hardly overlap, so that almost every
    pair is orthogonal for no deeper reason; pairs are therefore separated by whether their footprints, the
    data dimensions where :math:`|c_j|` exceeds ``footprint_threshold`` times its maximum, share one. To meet
    those that do, a random probe v, normal on the anchor's footprint and zero elsewhere, is pulled back: its
    j-th entry has variance :math:`\lVert c_j \rVert^2` restricted to the footprint. Partners j come in equal
    parts from the uniform law and from one in proportion to the root of that entry's size, and are weighted
    by the inverse of their probability (the weight is at most 2). The cosine takes the anchor's whole row with
    a typical norm, from a probe r of random signs by :math:`E\lVert Jr \rVert^2 = \sum_j \lVert c_j \rVert^2`,
    and lets the partners correct what that norm gets wrong.

    A column is computed once at each point, and many of them in one batch that shares the pass of the point itself: A
    anchors cost about A forward-mode and 2A reverse-mode passes and one for each partner that is no anchor. Where every
    latent is an anchor, no reverse mode is needed: G is the product of the columns, which are held if memory allows.

    Energy and norm are unbiased, and so are cosine and fraction where no column has collapsed; the rest are ratios of
    unbiased estimates. Standard errors are over anchors and partners, the points given being fixed; ratios by
    linearisation. They are calibrated from some 30 anchors on; with fewer, skewed columns make them too small.
    Where every latent is an anchor, only the partners are left to chance: energy, share and norm are exact.

    Args:
        decoder: map d from (batch, \*latent) to (batch, \*data), with latents of any shape, e.g. (4, 64, 64).
        z: latent points (batch, \*latent), D latents each.
        latents: number of anchors at each point, at least 2; as many as there are where there are fewer.
        generator: source of anchors, partners and probes.
        likelihood: gives W by ``fisher_weight(output)``; ``None`` for the identity.
        active: mask (latent,) of the latents to sample from, in the order of ``z.flatten(1)``; all by default.
        partners: number of partners of each anchor; by default 8 where every latent is an anchor, and otherwise 2, as
            each then costs a pass.
        footprint_threshold: relative size from which an entry counts to a column's footprint, in (0, 1).
        chunk_size: columns made at once; by default what free memory allows.
        progress: called with the number of anchors measured so far and of all, over all points: first after a single
            one, then after each chunk.

    >>> matrix = torch.tensor([[3.0, 0.0, 0.0], [0.0, 2.0, 2.0], [0.0, 0.0, 0.0]])
    >>> found = probe(lambda z: z @ matrix.T, torch.zeros(1, 3), latents=200,
    ...               generator=torch.Generator().manual_seed(0))
    >>> found.overlapping_cosine.item(), found.separate_cosine.item()
    (1.0, 0.0)
    """
    if progress is not None and not callable(progress):
        raise ValueError(f"progress must be a function of two counts, got {progress!r}")
    points = _check(z, latents, partners, footprint_threshold, chunk_size)
    check_generator(generator)
    positions = _positions(active, points)
    latents = min(latents, len(positions))
    plan = _Plan(partners or PARTNERS[latents == len(positions)], footprint_threshold)
    glance = check_decoder(decoder, points, at_once=1)
    # columns at once share a pass of the point itself, and four anchors with their partners most of what can be shared
    least = 4 * (1 + plan.partners)
    at_once = chunk_size or points_at_once(1, glance.widest, points.dtype, points.device, least=least)
    report = _Report(progress, latents * len(points))
    found = []
    # Forward mode has no rule for fused attention, which the decoders of latent diffusion use.
    with sdpa_kernel(SDPBackend.MATH):
        for point in points:
            columns = _Columns(decoder, point, positions, likelihood, at_once)
            found.append(_visit(columns, latents, plan, generator, report))
    samples = _Anchor(*(torch.stack(values) for values in zip(*found, strict=True)))
    return _summarise(samples, len(positions))


class _Report:
    """How many anchors were measured, over all points."""

    def __init__(self, progress: Callable[[int, int], None] | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def chunks(self, values: Tensor, size: int) -> Iterator[Tensor]:
        """Parts of this size, each reported once it was measured; the very first is one alone, to be early."""
        alone = int(self.progress is not None and not self.done)
        for part in (*values[:alone].split(size), *values[alone:].split(size)):
            if not len(part):
                continue
            yield part
            self.done += len(part)
            if self.progress is not None:
                self.progress(self.done, self.total)


class _Columns:
    """Chosen columns of W^½J at one point, by their place among the chosen, and products with their transpose."""

    def __init__(
        self,
        decoder: Decoder,
        point: Tensor,
        positions: Tensor,
        likelihood: FisherWeighted | None,
        at_once: int,
    ) -> None:
        self.decoder, self.point, self.latents, self.at_once = (
            decoder,
            point.unsqueeze(0),
            positions,
            at_once,
        )
        output = decoder(self.point)
        if not bool(output.isfinite().all()):
            raise ValueError("decoder must give finite outputs at z, got NaN or infinite values")
        weight = torch.ones_like(output) if likelihood is None else likelihood.fisher_weight(output)
        self.scale, self.shape = weight.detach().sqrt(), output.shape
        self.whole: Tensor | None = None
        self.vectorised = True
        self.pull: Callable[[Tensor], tuple[Tensor]] | None = None

    def hold_all(self, report: _Report) -> bool:
        """Compute every column once, (latent, data), where they fit into the memory that is free."""
        size = len(self.latents) * self.scale.numel() * self.scale.element_size()
        if size <= free_memory(self.scale.device) // 8:
            every = torch.arange(len(self.latents), device=self.latents.device)
            self.whole = torch.cat([self.of(part) for part in report.chunks(every, self.at_once)])
        return self.whole is not None

    def typical_norm(self, generator: torch.Generator) -> Tensor:
        """Root mean square norm of the columns, estimated from one combination of all with random signs."""
        signs = self.point.new_zeros(self.point.numel())
        signs[self.latents] = _signs(signs[self.latents], generator)
        return self._along(self.point, signs.view_as(self.point)).norm() / len(self.latents) ** 0.5

    def of(self, latents: Tensor) -> Tensor:
        """Columns (count, data) of these latents, each computed once, by forward mode."""
        if self.whole is not None:
            return self.whole[latents]
        different, place = latents.unique(return_inverse=True)
        return torch.cat([self._push(part) for part in different.split(self.at_once)])[place]

    def transposed(self, *vectors: Tensor) -> list[Tensor]:
        """(W^½J)ᵀ vector, (count, latent), of several stacks of vectors (count, data), by reverse mode."""
        if self.whole is not None:
            return [vector @ self.whole.mT for vector in vectors]
        parts = zip(*(vector.split(self.at_once) for vector in vectors), strict=True)
        return [torch.cat(rows) for rows in zip(*map(self._pull, parts), strict=True)]

    def _pull(self, vectors: tuple[Tensor, ...]) -> list[Tensor]:
        return self._batched(self._pull_shared, self._pull_copies, vectors)

    def _pull_shared(self, vectors: tuple[Tensor, ...]) -> list[Tensor]:
        if self.pull is None:
            _, self.pull, *_ = vjp(self.decoder, self.point)
        pull = vmap(self.pull)
        return [
            pull(self._weighted(vector).unsqueeze(1))[0].flatten(1)[:, self.latents] for vector in vectors
        ]

    def _pull_copies(self, vectors: tuple[Tensor, ...]) -> list[Tensor]:
        _, pull, *_ = vjp(self.decoder, self._copies(len(vectors[0])))
        return [pull(self._weighted(vector))[0].flatten(1)[:, self.latents] for vector in vectors]

    def _push(self, latents: Tensor) -> Tensor:
        tangents = self.point.new_zeros(len(latents), self.point.numel())
        tangents.scatter_(1, self.latents[latents].unsqueeze(1), 1.0)
        tangents = tangents.view(len(latents), *self.point.shape[1:])
        return self._batched(self._push_shared, self._push_copies, tangents).flatten(1)

    def _push_shared(self, tangents: Tensor) -> Tensor:
        pushed = vmap(lambda tangent: jvp(self.decoder, (self.point,), (tangent,))[1])(tangents.unsqueeze(1))
        return pushed.squeeze(1) * self.scale

    def _push_copies(self, tangents: Tensor) -> Tensor:
        return self._along(self._copies(len(tangents)), tangents)

    def _batched(self, shared: Callable[[_In], _Out], copies: Callable[[_In], _Out], given: _In) -> _Out:
        """A product in every direction with one pass of the point itself, or of its copies where vmap refuses."""
        if self.vectorised:
            try:
                return shared(given)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:
                self.vectorised = False
        return copies(given)

    def _weighted(self, vectors: Tensor) -> Tensor:
        return vectors.view(-1, *self.shape[1:]) * self.scale

    def _copies(self, count: int) -> Tensor:
        return self.point.expand(count, *self.point.shape[1:]).clone()

    def _along(self, z: Tensor, tangents: Tensor) -> Tensor:
        try:
            _, pushed, *_ = jvp(self.decoder, (z,), (tangents,))
        except RuntimeError as error:
            raise ValueError(f"decoder cannot be differentiated in forward mode: {error}") from error
        return pushed * self.scale


def _visit(
    columns: _Columns,
    latents: int,
    plan: _Plan,
    generator: torch.Generator,
    report: _Report,
) -> _Anchor:
    """Estimates of all anchors at one point, each (anchor, partner)."""
    size = len(columns.latents)
    anchors = torch.randperm(size, generator=generator, device=generator.device)[:latents]
    norm = columns.typical_norm(generator)
    # each anchor draws from a source of its own, so that it does not matter which are measured together
    seeds = torch.randint(2**62, (latents,), generator=generator, device=generator.device).tolist()
    held = latents == size and columns.hold_all(report)
    at_once = max(1, columns.at_once // (1 if held else 1 + plan.partners))
    anchors = anchors.to(columns.point.device)
    drawn, done = [], 0
    # where columns are held they have been reported, and the rest is products of matrices
    for part in anchors.split(at_once) if held else report.chunks(anchors, at_once):
        sources = [
            torch.Generator(generator.device).manual_seed(seed) for seed in seeds[done : done + len(part)]
        ]
        drawn.append(_measure(columns, part, norm, plan, sources))
        done += len(part)
    return _Anchor(*(torch.cat(values) for values in zip(*drawn, strict=True)))


def _measure(
    columns: _Columns, anchors: Tensor, norm: Tensor, plan: _Plan, sources: list[torch.Generator]
) -> _Anchor:
    """Estimates from some anchors, each (anchor, partner)."""
    column = columns.of(anchors)
    footprint = _footprint(column, plan.threshold)
    noise = torch.stack([_normal(one, source) for one, source in zip(column, sources, strict=True)])
    row, touch = columns.transposed(column, footprint * noise)

    law = _partner_law(touch.abs().sqrt(), anchors)
    chosen = torch.stack(
        [
            torch.multinomial(one.to(source.device), plan.partners, replacement=True, generator=source)
            for one, source in zip(law, sources, strict=True)
        ]
    ).to(column.device)
    weight = 1 / ((law.shape[1] - 1) * law.gather(1, chosen))
    others = columns.of(chosen.flatten()).unflatten(0, chosen.shape)
    collapsed, lost = _has_collapsed(column, norm).unsqueeze(1), _has_collapsed(others, norm)
    paired = ~(collapsed | lost)
    shared = (_footprint(others, plan.threshold) & footprint.unsqueeze(1)).any(2)
    overlapping = weight * (paired & shared)
    products = _unit(others) * _unit(column).unsqueeze(1) * paired.unsqueeze(2)
    cosine = products.sum(2).abs()
    signs = torch.stack([_signs(one, source) for one, source in zip(products, sources, strict=True)])
    chance = (products * signs).sum(2).abs()

    guess = _guessed_cosines(row, column.norm(dim=1, keepdim=True) * norm, anchors)
    energy = row.square().sum(1, keepdim=True)
    own = row.gather(1, anchors.unsqueeze(1)).square()
    return _Anchor(
        cosine=guess.sum(1, keepdim=True) / (law.shape[1] - 1) + weight * (cosine - guess.gather(1, chosen)),
        separate_cosine=(weight * paired - overlapping) * cosine,
        overlapping_cosine=overlapping * cosine,
        random_cosine=overlapping * chance,
        overlapping=overlapping,
        separate=weight * paired - overlapping,
        # what is left of all pairs, so that it is one, whatever the weights, where no column has collapsed
        paired=torch.where(collapsed, 0.0, 1 - weight * lost),
        off_diagonal=(energy - own).expand_as(weight),
        energy=energy.expand_as(weight),
        square_norm=column.square().sum(1, keepdim=True).expand_as(weight),
        collapsed=collapsed.to(weight.dtype).expand_as(weight),
    )


def _partner_law(touch: Tensor, anchors: Tensor) -> Tensor:
    """Half uniform, half in proportion to the touch (anchor, latent), over all latents but the anchor."""
    uniform = torch.ones_like(touch).scatter_(1, anchors.unsqueeze(1), 0.0)
    near = touch * uniform
    total, uniform = near.sum(1, keepdim=True), uniform / (touch.shape[1] - 1)
    near = torch.where(total > 0, near / total, uniform)
    return (near + uniform) / 2


def _guessed_cosines(row: Tensor, norms: Tensor, anchors: Tensor) -> Tensor:
    """|cos| with all latents if every column had the typical norm, zero with the anchor itself."""
    guess = (row.abs() / torch.where(norms == 0, 1.0, norms)).clamp(max=1)
    return guess.scatter_(1, anchors.unsqueeze(1), 0.0)


def _footprint(column: Tensor, threshold: float) -> Tensor:
    size = column.abs()
    largest = size.amax(-1, keepdim=True)
    return (size > threshold * largest) & (largest > 0)


def _has_collapsed(column: Tensor, typical: Tensor) -> Tensor:
    """Whether columns (..., data) are lost beside one of the typical norm."""
    return column.norm(dim=-1) <= torch.finfo(column.dtype).eps * typical


def _unit(column: Tensor) -> Tensor:
    norm = column.norm(dim=-1, keepdim=True)
    return column / torch.where(norm == 0, 1.0, norm)


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    noise = torch.randn(like.shape, generator=generator, dtype=like.dtype, device=generator.device)
    return noise.to(like.device)


def _signs(like: Tensor, generator: torch.Generator) -> Tensor:
    bits = torch.randint(2, like.shape, generator=generator, device=generator.device)
    return (2 * bits - 1).to(like)


def _summarise(samples: _Anchor, dimension: int) -> Probes:
    _, latents, partners = samples.paired.shape
    one = torch.ones_like(samples.paired)

    def ratio(above: Tensor, below: Tensor = one) -> tuple[Tensor, Tensor]:
        return _ratio(above, below, dimension)

    estimates = (
        *ratio(samples.cosine, samples.paired),
        *ratio(samples.overlapping_cosine, samples.overlapping),
        *ratio(samples.separate_cosine, samples.separate),
        *ratio(samples.random_cosine, samples.overlapping),
        *ratio(samples.overlapping, samples.paired),
        *ratio(dimension * samples.off_diagonal),
        *ratio(samples.off_diagonal, samples.energy),
        *ratio(dimension * samples.square_norm),
    )
    return Probes(*estimates, samples.collapsed.mean(), latents, latents * partners)


def _ratio(above: Tensor, below: Tensor, dimension: int) -> tuple[Tensor, Tensor]:
    """Ratio of the means of two samples (point, anchor, partner), and its standard error; NaN for 0 / 0.

    To first order the ratio errs by the mean of (above - ratio · below) / mean(below). Points are not drawn.
    Anchors are, without replacement, so their spread counts by the share of the latents that were left out;
    and partners are, for each anchor on its own, so theirs counts whole.
    """
    ratio = above.mean() / below.mean()
    residual = (above - ratio * below) / below.mean()
    points, anchors, partners = residual.shape
    whole = residual.mean(2).var(1)
    # the spread over anchors holds that over partners already
    within = residual.var(2).mean(1) / partners if partners > 1 else whole
    seen = anchors / dimension
    error = (((1 - seen) * whole + seen * within).sum() / anchors).sqrt() / points
    return ratio, error


def _positions(active: Array | None, points: Tensor) -> Tensor:
    """Positions of the latents to sample from."""
    latent = points[0].numel()
    if active is None:
        return torch.arange(latent, device=points.device)
    mask = as_mask("active", active).to(points.device)
    if mask.dtype != torch.bool or mask.shape != (latent,) or int(mask.sum()) < 2:
        raise ValueError(
            f"active must be a mask of shape ({latent},) with at least 2 latents to form a pair, got "
            f"{mask.dtype} of shape {tuple(mask.shape)} with {int(mask.count_nonzero())}"
        )
    return mask.nonzero().squeeze(1)


def _check(z: Array, latents: int, partners: int | None, threshold: float, chunk_size: int | None) -> Tensor:
    points = check_points(z, shape="(batch, *latent)")
    if points[0].numel() < 2:
        raise ValueError("z must hold at least 2 latents to form a pair, got 1")
    check_count("latents", latents, 2)
    check_count("partners", 1 if partners is None else partners)
    check_number("footprint_threshold", threshold, above=0, below=1)
    check_chunk_size(chunk_size)
    return points
