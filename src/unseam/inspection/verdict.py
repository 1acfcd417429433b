"""The verdict on a decoder's geometry: a sentence for each finding, and what to do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from unseam.charts import decimals
from unseam.inspection.todo import (
    AGREES,
    CLEARLY,
    MANY_DEGENERATE,
    NEARLY,
    POLARISED,
    ROUGHLY,
    Todo,
    is_orthogonal,
    join_words,
    list_positions,
    name_latents,
    positions,
    todo,
)

if TYPE_CHECKING:
    from unseam.geometry import Probes
    from unseam.inspection.result import Inspection

__all__ = ["Verdict", "verdict"]


class Verdict(NamedTuple):
    """What was found about a decoder, in sentences, and what to do."""

    sentences: tuple[str, ...]
    """On which latents are active, how orthogonal the axes are, and whether the posterior agrees."""
    advice: Todo

    def __str__(self) -> str:
        return "\n".join([*self.sentences, str(self.advice)])


def verdict(found: Inspection) -> Verdict:
    """Sentences on active latents, orthogonality and the posterior, and what to do.

    >>> import torch, unseam
    >>> found = unseam.inspect(lambda z: z * torch.tensor([3.0, 1.0]), torch.zeros(4, 2))
    >>> verdict(found).sentences[1].startswith("The axes are nearly orthogonal")
    True
    """
    lines = [describe_activity(found)]
    if found.probes is not None:
        lines += [*describe_probes(found, found.probes), describe_regime(found)]
    else:
        lines += [describe_orthogonality(found), describe_degeneracy(found), describe_regime(found)]
        lines += [describe_agreement(found), describe_variances(found)]
    return Verdict(tuple(filter(None, lines)), todo(found))


def describe_activity(found: Inspection, order: Sequence[int] | None = None) -> str:
    """Which latents are active and which collapsed; in the given order of importance, where there is one."""
    if found.active is None:
        return ""
    active, collapsed = positions(found.active), positions(~found.active)
    if found.latent == 1:
        return f"Its only latent {'is active' if active else 'collapsed'}."
    if not active:
        return "No latent is active."
    ranked = ""
    if order is not None and len(active) > 1:
        active, ranked = [latent for latent in order if latent in active], "; most important first"
    verb = "is" if len(active) == 1 else "are"
    text = f"{len(active)} of {found.latent} latents {verb} active ({list_positions(active)}{ranked})"
    return f"{text}; {list_positions(collapsed)} collapsed." if collapsed else f"{text}."


def describe_orthogonality(found: Inspection) -> str:
    """How orthogonal the axes of active latents are, beside what chance gives."""
    ratio, chance = found.dto_of_chance, found.random_dto
    if ratio is None or chance is None:
        return "With fewer than two active latents, orthogonality is not defined."
    word = (
        "nearly orthogonal"
        if ratio < NEARLY
        else "more orthogonal than chance"
        if ratio < CLEARLY
        else "no more orthogonal than chance"
    )
    everyone = found.active is not None and bool(found.active.all())
    others = [f"random rotations have {chance.haar:.2f}", f"U[0, 1] matrices {chance.uniform:.2f}"]
    if chance.module is not None and everyone:
        others.append(f"this decoder with fresh weights {chance.module:.2f}")
    alike = (
        "; they are nearly at right angles, but so similar in length that the principal directions differ from them"
        if ratio >= CLEARLY and is_orthogonal(found) and (found.degenerate_fraction or 0.0) < MANY_DEGENERATE
        else ""
    )
    return (
        f"The axes are {word}: DtO {found.dto_active:.2f} over active latents, where {join_words(others)}; mean |cos| "
        f"between columns {found.cosine:.2f}, Hadamard gap {found.hadamard_gap:.2f} nats{alike}."
    )


def describe_degeneracy(found: Inspection) -> str:
    """Where singular vectors, and so DtO, are arbitrary, if at many points."""
    share = found.degenerate_fraction
    if share is None or share < MANY_DEGENERATE:
        return ""
    return (
        f"At {share:.0%} of the points two singular values nearly coincide: there the singular vectors, and so DtO, "
        f"are arbitrary; read |cos| and the Hadamard gap instead."
    )


def describe_regime(found: Inspection) -> str:
    """How polarised the posterior is (rolinek2019 Def. 1)."""
    if found.delta_kl is None or found.polarised is None or found.active is None or not found.active.any():
        return ""
    mixed = positions(found.polarised.mixed)
    word = "polarised" if found.delta_kl < POLARISED and not mixed else "not fully polarised"
    verb = "is" if len(mixed) == 1 else "are"
    extra = f"; {name_latents(mixed)} {verb} in neither polarised state" if mixed else ""
    return f"The regime is {word}: the polarised KL is off by {found.delta_kl:.1%}{extra}."


def describe_agreement(found: Inspection) -> str:
    """Whether posterior precisions are those of the decoder (allen2024 Eq. 7)."""
    error = found.precision_error
    if error is None:
        return ""
    word = (
        "agree"
        if error.diagonal < AGREES
        else "agree roughly"
        if error.diagonal < ROUGHLY
        else "do not agree"
    )
    beyond = (
        ""
        if found.latent == 1
        else f" on the diagonal and by {error.off_diagonal:.0%} off it"
        if found.posterior == "full"
        else f" on the diagonal; {error.off_diagonal:.0%} of that matrix lies off it, where a diagonal posterior "
        "cannot follow"
    )
    return (
        f"Posterior and decoder {word}: precisions differ from I + DᵀA²D/β by {error.diagonal:.0%}{beyond}."
    )


def describe_variances(found: Inspection) -> str:
    """Whether variances scale as 1/‖column‖² across active latents (bhowal2024 Theorem 1 (c))."""
    law = found.variance_law
    if law is None or law.spread is None:
        return ""
    word = (
        "scale as"
        if law.spread < AGREES
        else "scale roughly as"
        if law.spread < ROUGHLY
        else "do not scale as"
    )
    slope = "" if law.slope is None else f", with slope {decimals(law.slope)} where the law has −1"
    error = found.precision_error
    bent = law.spread >= ROUGHLY and error is not None and error.diagonal < AGREES
    why = "; columns are too short relative to β for it, since posterior and decoder agree" if bent else ""
    return (
        f"Variances {word} 1/‖column‖² across active latents (bhowal2024): within a factor of "
        f"{math.exp(law.spread):.2f}{slope}{why}."
    )


def describe_probes(found: Inspection, probes: Probes) -> list[str]:
    """What sampled latents say about orthogonality."""
    whole = found.latent if found.active is None else int(found.active.sum())
    kind = "latents" if found.active is None else "active latents"
    zero = float(probes.dead_fraction)
    lost = f"; {zero:.0%} of them do not change the output and are left out" if zero else ""
    return [
        f"{probes.latents} of {whole} {kind} were sampled at {found.points} points{lost}.",
        _sampled_cosines(found, probes),
        f"{float(probes.off_diagonal_share):.0%} ± {float(probes.off_diagonal_share_error):.0%} of the pullback's "
        f"energy lies off its diagonal."
        if bool(probes.off_diagonal_share.isfinite())
        else "",
    ]


def _sampled_cosines(found: Inspection, probes: Probes) -> str:
    if found.cosine is None:
        return "With fewer than two nonzero columns, orthogonality is not defined."
    whole = f"{found.cosine:.3f} ± {float(probes.cosine_error):.3f}"
    if bool(probes.overlapping_cosine.isnan()):
        return f"No two sampled columns overlap, so they are trivially orthogonal (mean |cos| {whole})."
    return (
        f"Columns whose receptive fields overlap have mean |cos| {float(probes.overlapping_cosine):.3f} ± "
        f"{float(probes.overlapping_cosine_error):.3f} (chance, for as many pixels: "
        f"{float(probes.random_cosine):.3f}); over all pairs it is {whole}, as "
        f"{float(probes.overlapping_fraction):.0%} of pairs overlap."
    )
