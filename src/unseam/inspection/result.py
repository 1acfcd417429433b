"""What an inspection found."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from unseam.geometry import Polarisation, Probes
from unseam.inspection.axes import Orthogonality, RandomAxes, grade_axes
from unseam.inspection.baseline import RandomBaseline
from unseam.inspection.verdict import verdict

__all__ = ["Inspection", "PrecisionSummary", "VarianceLaw"]


class PrecisionSummary(NamedTuple):
    """Eq. 7 of allen2024 measured: mean over points of relative Frobenius errors of Σ⁻¹ against I + DᵀA²D/β."""

    relative: float
    diagonal: float
    off_diagonal: float


class VarianceLaw(NamedTuple):
    """The law σ_j² ∝ 1/‖c_j‖² of bhowal2024 Theorem 1 (c) among active latents; what has no value is ``None``.

    Attributes:
        slope, correlation: of log σ_j² against log ‖c_j‖² across latents, mean over points; both −1 when it holds.
        spread: standard deviation of log(σ_j² ‖c_j‖²) across latents, mean over points; 0 when it holds.
        pooled_slope, pooled_correlation, pooled_spread: over all points and latents, with one constant for all.
    """

    slope: float | None
    correlation: float | None
    spread: float | None
    pooled_slope: float | None
    pooled_correlation: float | None
    pooled_spread: float | None


@dataclass(frozen=True)
class Inspection:
    """The geometry of a decoder at some points; fields that could not be measured are ``None``.

    Attributes:
        points, latent: how many of each.
        outputs: number of values that the decoder returns for a point.
        dto: Distance to Orthogonality (rolinek2019 Eq. 29), mean over points, all latents.
        dto_active: the same after dropping the columns of collapsed latents, over the points whose singular values are
            distinct; ``None`` where there are none.
        random_dto: what decoders without preferred axes have, of as many latents as are active.
        random_axes: ``cosine`` and ``hadamard_gap`` of this decoder with its active latents rotated at random.
        cosine: mean ``|cos|`` between distinct columns of active latents; columns that are zero at a point form no
            pair there, whether all latents were measured or some sampled.
        hadamard_gap: Σ log‖c_j‖ − ½ log det over active latents, mean over points, in nats. Like ``dto``,
            ``dto_active`` and ``cosine`` it is undefined, ``None``, with fewer than two active latents, and also where
            axes are ``crowded``.
        singular_values: (points, latent), descending.
        right_vectors: (points, latent, latent), columns.
        column_norms: (latent,), root mean square over points.
        active: (latent,), which latents are active; ``None`` where latents were sampled and this is not known.
        delta_kl: relative error of the polarised KL (rolinek2019 Eq. 30).
        polarised: latents by regime (rolinek2019 Def. 1).
        precision_error: Σ⁻¹ against I + DᵀA²D/β (allen2024 Eq. 7).
        variance_law: σ² against 1/‖c‖² among active latents (bhowal2024 Theorem 1 (c)).
        degenerate_fraction: points where adjacent singular values of active latents differ by less than 5 %.
        pullback: (points, latent, latent), JᵀWJ; what the rest was computed from.
        mean, variance: the posterior's, (points, latent), and (points, latent) or (points, latent, latent).
        probes: estimates from sampled latents, where those were asked for.
        where: what the points are, where a run chose them.
        factors: number of factors that made the data, where it is known.
        beta_known: whether ``beta`` is the model's own; where it is not known, Eq. 7 is evaluated at 1.

    >>> import torch, unseam
    >>> found = unseam.inspect(lambda z: z * torch.tensor([3.0, 1.0]), torch.zeros(4, 2))
    >>> found.dto, found.active.tolist()
    (0.0, [True, True])
    """

    points: int
    latent: int
    beta: float
    cosine: float | None
    active: Tensor | None
    outputs: int | None = None
    dto: float | None = None
    dto_active: float | None = None
    random_dto: RandomBaseline | None = None
    random_axes: RandomAxes | None = None
    hadamard_gap: float | None = None
    singular_values: Tensor | None = field(default=None, repr=False)
    right_vectors: Tensor | None = field(default=None, repr=False)
    column_norms: Tensor | None = field(default=None, repr=False)
    delta_kl: float | None = None
    polarised: Polarisation | None = field(default=None, repr=False)
    precision_error: PrecisionSummary | None = None
    variance_law: VarianceLaw | None = None
    degenerate_fraction: float | None = None
    pullback: Tensor | None = field(default=None, repr=False)
    mean: Tensor | None = field(default=None, repr=False)
    variance: Tensor | None = field(default=None, repr=False)
    probes: Probes | None = field(default=None, repr=False)
    where: str = ""
    factors: int | None = None
    beta_known: bool = True

    @property
    def orthogonality(self) -> Orthogonality | None:
        """How orthogonal the axes of active latents are, by ``|cos|`` and Hadamard gap; ``None`` where undefined."""
        if self.cosine is None or self.random_axes is None or self.active is None:
            return None
        if self.crowded:
            return Orthogonality.NOT
        if self.hadamard_gap is None:
            return None
        return grade_axes(self.cosine, self.hadamard_gap, self.random_axes, int(self.active.sum()))

    @property
    def crowded(self) -> bool:
        """Whether the output changes in fewer directions than there are active latents, at every point."""
        return self.probes is None and self.cosine is not None and self.hadamard_gap is None

    @property
    def dto_of_chance(self) -> float | None:
        """DtO of active latents as a fraction of what random rotations of as many have, where both were measured."""
        if self.dto_active is None or self.random_dto is None:
            return None
        return self.dto_active / self.random_dto.haar

    @property
    def posterior(self) -> Literal["diagonal", "full", "point"] | None:
        """Of which kind: full where latents covary, a point where nothing varies; ``None`` without an encoder."""
        variance = self.variance
        if variance is None:
            return None
        if not bool((variance != 0).any()):
            return "point"
        diagonal = variance.ndim == 2 or torch.equal(
            variance, torch.diag_embed(variance.diagonal(dim1=1, dim2=2))
        )
        return "diagonal" if diagonal else "full"

    def summary(self) -> str:
        """The verdict in sentences: active latents, orthogonality, the posterior, and what to do."""
        return str(verdict(self))

    def to_dict(self) -> dict[str, Any]:
        """The numbers as JSON values; per-point tensors as their means."""
        plain = (
            "points",
            "latent",
            "outputs",
            "factors",
            "beta",
            "beta_known",
            "dto",
            "dto_active",
            "cosine",
            "hadamard_gap",
            "delta_kl",
        )
        record: dict[str, Any] = {name: getattr(self, name) for name in (*plain, "degenerate_fraction")}
        grade = self.orthogonality
        record["orthogonality"] = None if grade is None else grade.name.lower()
        for name in ("random_dto", "random_axes", "precision_error", "variance_law"):
            value = getattr(self, name)
            record[name] = None if value is None else value._asdict()
        record["active"] = None if self.active is None else self.active.nonzero().flatten().tolist()
        record["column_norms"] = None if self.column_norms is None else self.column_norms.tolist()
        spectrum = self.singular_values
        record["singular_values"] = None if spectrum is None else spectrum.mean(0).tolist()
        if self.polarised is not None:
            regimes = ("active", "passive", "mixed")
            record["regime"] = {
                name: getattr(self.polarised, name).nonzero().flatten().tolist() for name in regimes
            }
            record["kl"] = self.polarised.kl.tolist()
        if self.probes is not None:
            record["probes"] = {key: _plain(value) for key, value in self.probes._asdict().items()}
        if self.where:
            record["where"] = self.where
        record["summary"] = self.summary()
        return record

    def _repr_html_(self) -> str:
        chance, random, error, law = (
            self.random_dto,
            self.random_axes,
            self.precision_error,
            self.variance_law,
        )
        # what samples cannot give is not measured; what two active latents are needed for is undefined without them
        none = "–" if self.probes is not None else "undefined"
        rows = [
            ("points", self.where or self.points),
            ("active latents", f"{_count(self.active)} of {self.latent}"),
            ("mean |cos| between axes", none if self.cosine is None else self.cosine),
            ("the same, latents rotated at random", None if random is None else random.cosine),
            ("Hadamard gap (nats)", none if self.hadamard_gap is None else self.hadamard_gap),
            ("the same, latents rotated at random", None if random is None else random.hadamard_gap),
            ("DtO, active latents", none if self.dto_active is None else self.dto_active),
            # as arbitrary where singular values coincide
            ("DtO, all latents", none if self.dto is None or self.dto_active is None else self.dto),
            ("DtO of random rotations", None if chance is None else chance.haar),
            ("DtO of U[0, 1] matrices", None if chance is None else chance.uniform),
            ("DtO with fresh weights", None if chance is None else chance.module),
            (
                "points where singular values coincide",
                none if self.degenerate_fraction is None else self.degenerate_fraction,
            ),
            ("error of the polarised KL", self.delta_kl),
            ("Eq. 7 error, diagonal", None if error is None else error.diagonal),
            ("slope of log σ² in log ‖column‖²", None if law is None else law.slope),
            ("spread of log σ²‖column‖²", None if law is None else law.spread),
        ]
        cells = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th><td>{_shown(value)}</td></tr>"
            for name, value in rows
        )
        words = "".join(f"<p>{html.escape(line)}</p>" for line in self.summary().splitlines())
        return f"<div>{words}<table>{cells}</table></div>"


def _count(active: Tensor | None) -> str:
    return "?" if active is None else str(int(active.sum()))


def _plain(value: Any) -> Any:
    """A number as JSON has it: what could not be estimated is null."""
    number = value.tolist() if isinstance(value, Tensor) else value
    return None if isinstance(number, float) and not math.isfinite(number) else number


def _shown(value: object) -> str:
    return "–" if value is None else f"{value:.4g}" if isinstance(value, float) else html.escape(str(value))
