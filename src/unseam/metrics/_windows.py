"""Terms of nearest-neighbour estimates of mutual information, found in windows of sorted codes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from unseam.metrics._inputs import parts

__all__ = ["Terms", "class_terms", "distance_terms"]


class Terms(NamedTuple):
    """What each point adds to an estimate, whose mean over the points it is."""

    value: Tensor
    """(row, point) in nats."""
    points: Tensor
    """Index (point,) in the batch of those that have a term."""


def distance_terms(rows: Tensor, factor: Tensor, neighbours: int) -> Terms:
    """Kraskov's terms of codes (row, batch) at unit variance and a continuous factor (batch,)."""
    batch = len(factor)
    points = torch.arange(batch, device=rows.device)
    if batch < 2 or bool(factor.amax() == factor.amin()):
        return Terms(torch.zeros_like(rows), points)
    k = min(neighbours, batch - 1)
    factor = factor / factor.std(correction=0)
    by_value = factor.sort().values
    psi = _digamma(batch, rows.device)
    found = []
    for part in parts(len(rows), batch * 32, rows.device):
        x, order = rows[part].sort(-1)
        y = factor[order]
        radius = _joint_distance(x, y, k)
        near = psi[_within(x, x, radius)] + psi[_within(by_value.expand_as(y).contiguous(), y, radius)]
        found.append(torch.empty_like(x).scatter_(1, order, psi[batch] + psi[k] - near))
    return Terms(torch.cat(found), points)


def class_terms(rows: Tensor, label: Tensor, neighbours: int) -> Terms:
    """Ross's terms of codes (row, batch) and a discrete factor's labels (batch,)."""
    sizes = torch.bincount(label)
    points = (sizes[label] > 1).nonzero()[:, 0]
    count = len(points)
    if count == 0 or len(sizes) == 1:
        return Terms(torch.zeros_like(rows[:, :count]), points)
    label = label[points]
    # Classes one after the other take the same places in every row, so windows are shared.
    lined_up = label.sort().values
    nth = (sizes[lined_up] - 1).clamp(max=neighbours)
    near, apart = _same_class(lined_up, min(neighbours, count - 1))
    psi = _digamma(count, rows.device)
    constant = psi[count] + psi[nth] - psi[sizes[lined_up]]
    found = []
    for part in parts(len(rows), count * near.shape[1], rows.device):
        x, order = rows[part][:, points].sort(-1)
        place = label[order].sort(stable=True).indices
        y = x.gather(1, place)
        distance = (y[:, near] - y[..., None]).abs_().masked_fill_(apart, torch.inf).sort(-1).values
        radius = distance.gather(-1, (nth - 1).expand_as(y)[..., None])[..., 0]
        value = constant - psi[_within(x, y, radius)]
        found.append(torch.empty_like(x).scatter_(1, order.gather(1, place), value))
    return Terms(torch.cat(found), points)


def _same_class(label: Tensor, reach: int) -> tuple[Tensor, Tensor]:
    """Places (point, 2 reach) within reach of each point of sorted labels, and which hold another class."""
    offsets = torch.arange(1, reach + 1, device=label.device)
    near = torch.arange(len(label), device=label.device)[:, None] + torch.cat([-offsets, offsets])
    inside = near.clamp(0, len(label) - 1)
    return inside, (inside != near) | (label[inside] != label[:, None])


def _joint_distance(x: Tensor, y: Tensor, k: int) -> Tensor:
    """Distance (row, batch) to the k-th neighbour in the larger of both, x sorted along its rows.

    Windows around each point widen until all points outside lie further off in x alone.
    """
    rows, batch = x.shape
    flat_x, flat_y = x.reshape(-1), y.reshape(-1)
    best = flat_x.new_full((rows * batch, k), torch.inf)
    still = torch.arange(rows * batch, device=x.device)
    first, width = 1, max(8, k)
    while len(still) > 0:
        ahead = torch.arange(first, first + width, device=x.device)
        offsets = torch.cat([ahead, -ahead])
        wider = []
        for part in parts(len(still), 2 * width, x.device):
            here = still[part]
            place = here[:, None] + offsets
            column = (here % batch)[:, None] + offsets
            outside = (column < 0) | (column >= batch)
            place = place.clamp_(0, rows * batch - 1)
            apart = (flat_x[place] - flat_x[here, None]).abs_().masked_fill_(outside, torch.inf)
            reach = torch.minimum(apart[:, width - 1], apart[:, -1])
            distance = torch.maximum(apart, (flat_y[place] - flat_y[here, None]).abs_())
            nearest = torch.cat([best[here], distance], 1).topk(k, largest=False).values
            best[here] = nearest
            wider.append(here[nearest[:, -1] > reach])
        still = torch.cat(wider)
        first, width = first + width, 2 * width
    return best[:, -1].view(rows, batch)


def _within(ordered: Tensor, centre: Tensor, radius: Tensor) -> Tensor:
    """Number (row, batch) of values of sorted rows nearer than the radius, or equal where it is zero.

    A sum of centre and radius rounds across the neighbour that lies just at the radius, so the ends are
    corrected by the differences themselves.
    """
    high = torch.where(radius > 0, centre + radius, _next(centre, torch.inf))
    low = torch.where(radius > 0, centre - radius, _next(centre, -torch.inf))
    above = _corrected(ordered, torch.searchsorted(ordered, high), centre, radius, upper=True)
    below = _corrected(ordered, torch.searchsorted(ordered, low, right=True), centre, radius, upper=False)
    return above - below


def _corrected(ordered: Tensor, end: Tensor, centre: Tensor, radius: Tensor, *, upper: bool) -> Tensor:
    """Ends of the counted ranges, moved by whole runs of equal values until each is exact."""
    last = ordered.shape[1] - 1
    while True:
        after, before = ordered.gather(1, end.clamp(max=last)), ordered.gather(1, (end - 1).clamp(min=0))
        near_after, near_before = _near(after, centre, radius), _near(before, centre, radius)
        if upper:
            forward, back = near_after, ~near_before & (before > centre)
        else:
            forward, back = ~near_after & (after < centre), near_before
        forward &= end <= last
        back &= end > 0
        if not bool((forward | back).any()):
            return end
        further, nearer = torch.searchsorted(ordered, after, right=True), torch.searchsorted(ordered, before)
        end = torch.where(forward, further, torch.where(back, nearer, end))


def _near(value: Tensor, centre: Tensor, radius: Tensor) -> Tensor:
    return ((value - centre).abs() < radius) | (value == centre)


def _next(value: Tensor, towards: float) -> Tensor:
    return torch.nextafter(value, torch.full_like(value, towards))


def _digamma(count: int, device: torch.device) -> Tensor:
    """ψ of 0, which no count is, to ψ(count)."""
    return torch.arange(count + 1, dtype=torch.float64, device=device).clamp(min=0.5).digamma()
