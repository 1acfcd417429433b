"""All that a report shows of one model: measured once, then only read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from unseam.advice import Advice
from unseam.inspection import Inspection, latent_name

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Directions", "Factorisation", "Match", "Missing", "Pictures", "Study", "Walks"]

# A factor is named beside a latent that explains at least this fraction of its entropy.
EXPLAINS = 0.2


class Missing(NamedTuple):
    """A part that cannot be computed, and why."""

    part: str
    why: str


class Pictures(NamedTuple):
    """Items of the data with their reconstructions, both (item, *data)."""

    data: NDArray[np.float32]
    drawn: NDArray[np.float32]


class Walks(NamedTuple):
    """Outputs as one latent after another moves."""

    latents: tuple[int, ...]
    """Which latents, in the order of the rows."""
    frames: NDArray[np.float32]
    """(row, frame, *data): the likelihood's mean where there is one."""
    reach: NDArray[np.float32]
    """Half the way that each of them moves (row,)."""


class Directions(NamedTuple):
    """How the output changes at one point along the decoder's singular vectors, and along the latents."""

    singular: NDArray[np.float32]
    """∂x/∂v_k (direction, *data), the longest first."""
    columns: NDArray[np.float32]
    """∂x/∂z_j (direction, *data) of the latent that takes part most in each."""
    main: tuple[int, ...]
    """That latent (direction,)."""
    share: tuple[float, ...]
    """Its part of the singular vector, squared (direction,): 1 where the two are the same."""
    values: tuple[float, ...]
    """Singular values (direction,)."""


class Factorisation(NamedTuple):
    """Whether the density of what is generated is a product over active latents."""

    density_gap: float
    """Mean over points of log-density less the sum of its factors, in nats."""
    density_gap_error: float
    coupling: float
    """Mean squared dependence of each factor on coordinates that are not its own."""
    coupling_error: float
    matrix: Tensor
    """Coupling of active latents (active, active)."""
    latents: tuple[int, ...]
    points: int
    step: float | None
    """Distance over which slopes were measured; none for derivatives."""


class Match(NamedTuple):
    """Codes against known factors."""

    factors: tuple[str, ...]
    information: NDArray[np.float64]
    """Mutual information over the factor's entropy (seed, latent, factor)."""
    scores: pd.DataFrame
    """Rows of :func:`unseam.run.evaluate_active`; ``member`` counts the seeds."""
    points: int

    def mean(self, metric: str, latents: Literal["score", "score_all"] = "score") -> list[float]:
        """Scores of a metric over active latents, or over all, one per seed; NaN where undefined."""
        rows = self.scores[self.scores["metric"] == metric].sort_values("member", kind="stable")
        return [float(value) for value in rows[latents]]


@dataclass(frozen=True)
class Study:
    """One model, over its seeds: what was measured of it, and what could not be.

    Attributes:
        name: what to call it.
        inspections: one per seed.
        shown: which of the seeds is drawn, and spoken of.
        members: what to call the seeds, where there are several.
        about: settings, versions: whatever says where it comes from.
        missing: parts that could not be computed.
        remarks: who is unfinished, who diverged and is left out.
        returns: where the latents of the seed that is shown return in the others, in one sentence.

    >>> import torch, unseam
    >>> found = unseam.inspect(lambda z: z * torch.tensor([3.0, 1.0]), torch.zeros(4, 2))
    >>> Study("mine", (found,)).order
    (0, 1)
    """

    name: str
    inspections: tuple[Inspection, ...]
    shown: int = 0
    members: tuple[str, ...] = ("",)
    pictures: Pictures | None = field(default=None, repr=False)
    walks: Walks | None = field(default=None, repr=False)
    directions: Directions | None = field(default=None, repr=False)
    factorisation: Factorisation | None = field(default=None, repr=False)
    match: Match | None = field(default=None, repr=False)
    advice: Advice | None = field(default=None, repr=False)
    about: Mapping[str, Any] = field(default_factory=dict, repr=False)
    missing: tuple[Missing, ...] = ()
    remarks: tuple[str, ...] = ()
    returns: str = ""

    @property
    def found(self) -> Inspection:
        """The inspection that is shown."""
        return self.inspections[self.shown]

    @property
    def order(self) -> tuple[int, ...]:
        """Latents by importance: active ones first, by their KL, or else by how far they move the output."""
        return importance(self.found)

    @property
    def active(self) -> tuple[int, ...]:
        """Active latents by importance."""
        active = self.found.active
        return tuple(latent for latent in self.order if active is None or bool(active[latent]))

    def factor(self, latent: int) -> str:
        """The factor that an active latent explains best, where it explains enough of one."""
        active = self.found.active
        if self.match is None or (active is not None and not bool(active[latent])):
            return ""
        shares = self.match.information[self.shown, latent]
        return self.match.factors[int(shares.argmax())] if shares.max() >= EXPLAINS else ""

    def latent_name(self, latent: int) -> str:
        """A latent with the factor that it explains most of."""
        return latent_name(latent, self.factor(latent))


def importance(found: Inspection) -> tuple[int, ...]:
    """Latents by importance: active ones first, by their KL, or else by how far they move the output.

    >>> import torch, unseam
    >>> importance(unseam.inspect(lambda z: z * torch.tensor([1.0, 3.0]), torch.zeros(4, 2)))
    (1, 0)
    """
    weight = found.column_norms if found.polarised is None else found.polarised.kl
    if weight is None:
        return tuple(range(found.latent))
    active = weight.new_ones(len(weight)) if found.active is None else found.active.to(weight)
    keys = [(-float(is_active), -float(value)) for is_active, value in zip(active, weight, strict=True)]
    return tuple(sorted(range(len(keys)), key=keys.__getitem__))
