"""What an inspection found."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from unseam.geometry import Polarisation, Probes
from unseam.inspection.verdict import verdict

__all__ = ["Inspection", "PrecisionSummary", "RandomBaseline"]


class RandomBaseline(NamedTuple):
    """What DtO a decoder without preferred axes has, as mean and standard deviation.

    Attributes:
        haar: over uniformly random rotations.
        haar_std: its standard deviation from point to point.
        module: of the same module with fresh weights, over all latents, or ``None`` where it is not one that can be
            re-initialised.
        module_std: its standard deviation over fresh weights.

    >>> RandomBaseline(1.63, 0.2, None, None).haar
    1.63
    """

    haar: float
    haar_std: float
    module: float | None
    module_std: float | None


class PrecisionSummary(NamedTuple):
    """Eq. 7 of allen2024 measured: mean over points of relative Frobenius errors of Σ⁻¹ against I + DᵀA²D/β.

    >>> PrecisionSummary(0.2, 0.1, 0.17).diagonal
    0.1
    """

    relative: float
    diagonal: float
    off_diagonal: float


@dataclass(frozen=True)
class Inspection:
    """The geometry of a decoder at some points; fields that could not be measured are ``None``.

    Attributes:
        points, latent: how many of each.
        dto: Distance to Orthogonality (rolinek2019 Eq. 29), mean over points, all latents.
        dto_active: the same after dropping the columns of latents that are not alive.
        random_dto: what decoders without preferred axes have, of as many latents as are alive.
        cosine: mean ``|cos|`` between distinct columns of live latents.
        hadamard_gap: Σ log‖c_j‖ − ½ log det over live latents, mean over points, in nats.
        singular_values: (points, latent), descending.
        right_vectors: (points, latent, latent), columns.
        column_norms: (latent,), root mean square over points.
        active: (latent,), which latents are alive.
        delta_kl: relative error of the polarised KL (rolinek2019 Eq. 30).
        polarised: latents by regime (rolinek2019 Def. 1).
        precision_error: Σ⁻¹ against I + DᵀA²D/β (allen2024 Eq. 7).
        degenerate_fraction: points where adjacent singular values of live latents differ by less than 5 %.
        pullback: (points, latent, latent), JᵀWJ; what the rest was computed from.
        variance: the posterior's, (points, latent) or (points, latent, latent).
        probes: estimates from sampled latents, where those were asked for.

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
    dto: float | None = None
    dto_active: float | None = None
    random_dto: RandomBaseline | None = None
    hadamard_gap: float | None = None
    singular_values: Tensor | None = field(default=None, repr=False)
    right_vectors: Tensor | None = field(default=None, repr=False)
    column_norms: Tensor | None = field(default=None, repr=False)
    delta_kl: float | None = None
    polarised: Polarisation | None = field(default=None, repr=False)
    precision_error: PrecisionSummary | None = None
    degenerate_fraction: float | None = None
    pullback: Tensor | None = field(default=None, repr=False)
    variance: Tensor | None = field(default=None, repr=False)
    probes: Probes | None = field(default=None, repr=False)

    def summary(self) -> str:
        """The verdict in plain words: who lives, how orthogonal, does the posterior agree, what to do."""
        return "\n".join(verdict(self))

    def to_dict(self) -> dict[str, Any]:
        """The numbers as JSON values; per-point tensors as their means."""
        record: dict[str, Any] = {
            name: getattr(self, name)
            for name in (
                "points",
                "latent",
                "beta",
                "dto",
                "dto_active",
                "cosine",
                "hadamard_gap",
                "delta_kl",
            )
        }
        record["degenerate_fraction"] = self.degenerate_fraction
        record["random_dto"] = None if self.random_dto is None else self.random_dto._asdict()
        error = self.precision_error
        record["precision_error"] = None if error is None else error._asdict()
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
        record["summary"] = self.summary()
        return record

    def _repr_html_(self) -> str:
        rows = [
            ("points", self.points),
            ("latents alive", f"{_count(self.active)} of {self.latent}"),
            ("DtO, all latents", self.dto),
            ("DtO, live latents", self.dto_active),
            ("DtO of random rotations", None if self.random_dto is None else self.random_dto.haar),
            ("mean |cos|", self.cosine),
            ("Hadamard gap (nats)", self.hadamard_gap),
            ("Δ KL", self.delta_kl),
            (
                "Eq. 7 error, diagonal",
                None if self.precision_error is None else self.precision_error.diagonal,
            ),
            ("degenerate points", self.degenerate_fraction),
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
