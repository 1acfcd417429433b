"""The verdict on a decoder's geometry: a sentence for each finding, and what to do."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from unseam.charts import decimals, percent
from unseam.inspection.axes import LEAST_CHANCE, NEARLY, PARTLY, Orthogonality
from unseam.inspection.todo import AGREES, POLARISED, ROUGHLY, Todo, describe_mixed, todo
from unseam.inspection.words import join_words, list_latents, positions

if TYPE_CHECKING:
    from unseam.geometry import Probes
    from unseam.inspection.result import Inspection

__all__ = ["Verdict", "compare_members", "verdict"]


AGREEMENT = ("agree", "agree roughly", "do not agree")
UNKNOWN_BETA = " This takes β = 1, as the weight of the KL term is not known; pass beta= if it is another."


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
    >>> verdict(found).sentences[1].startswith("The axes, the columns of the decoder's Jacobian, are nearly orthogonal")
    True
    """
    lines = [describe_activity(found)]
    if found.probes is not None:
        lines += [*describe_probes(found, found.probes), describe_regime(found)]
    else:
        lines += [describe_orthogonality(found), describe_dto(found), describe_regime(found)]
        lines += [describe_agreement(found), describe_variances(found)]
    return Verdict(tuple(filter(None, lines)), todo(found))


def compare_members(found: Mapping[str, Inspection]) -> str:
    """One line over several models: of how many the axes are orthogonal, and posterior and decoder agree.

    Where some differ in kind (posterior or β) and others do not, one line per kind comes before it.

    >>> import torch, unseam
    >>> one = unseam.inspect(lambda z: z * torch.tensor([3.0, 1.0]), torch.zeros(4, 2))
    >>> compare_members({"a": one, "b": one})
    'Of 2 models: axes nearly orthogonal in 2; 2 latents active in each.'
    """
    kinds: dict[str, list[Inspection]] = {}
    for one in found.values():
        kinds.setdefault(_kind(one), []).append(one)
    groups = kinds if 1 < len(kinds) < len(found) else {}
    lines = [f"Of {len(some)} {kind}: {_compare(some)}" for kind, some in groups.items()]
    return "\n".join([*lines, f"Of {len(found)} models: {_compare(list(found.values()))}"])


def _kind(found: Inspection) -> str:
    if found.posterior is None or found.posterior == "point":
        return "without an encoder" if found.posterior is None else "without posterior variance"
    posterior = "a diagonal posterior" if found.posterior == "diagonal" else "full covariance"
    return f"with {posterior}, β {f'= {found.beta:g}' if found.beta_known else 'unknown'}"


def _compare(found: Sequence[Inspection]) -> str:
    grades = Counter(one.orthogonality for one in found)
    parts = [f"{grade} in {grades[grade]}" for grade in Orthogonality if grades[grade]]
    if grades[None]:
        parts.append(f"not defined in {grades[None]}")
    said = [f"axes {join_words(parts)}"]
    words = Counter(word for one in found if (word := _agreement(one)))
    if words:
        said.append(
            f"posterior and decoder {join_words([f'{word} in {words[word]}' for word in AGREEMENT if words[word]])}"
        )
    counts = sorted({int(one.active.sum()) for one in found if one.active is not None})
    if counts:
        shown = f"{counts[0]} latent{'s' * (counts[0] != 1)} active in each"
        said.append(shown if len(counts) == 1 else f"{counts[0]} to {counts[-1]} latents active")
    return f"{'; '.join(said)}."


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
    text = f"{len(active)} of {found.latent} latents {verb} active ({list_latents(active)}{ranked})"
    return f"{text}; {list_latents(collapsed)} collapsed." if collapsed else f"{text}."


def describe_orthogonality(found: Inspection) -> str:
    """How orthogonal the axes of active latents are, beside what chance gives."""
    grade, chance = found.orthogonality, found.random_axes
    if grade is None or chance is None or found.cosine is None:
        return "With fewer than two active latents, orthogonality is not defined."
    why = ""
    if grade != Orthogonality.NOT and found.cosine >= PARTLY * chance.cosine:
        why = ", as they are after a random rotation"
    if grade == Orthogonality.NEARLY and chance.cosine < NEARLY * LEAST_CHANCE:
        why = ", as they would be after any rotation, since they are of nearly equal length"
    if found.crowded:
        why = ", and cannot all be, since the output changes in fewer directions than there are axes"
    gap = f"{decimals(found.hadamard_gap)} nats ({decimals(chance.hadamard_gap)})"
    return (
        f"The axes, the columns of the decoder's Jacobian, are {grade}{why}: the mean |cos| between two is "
        f"{decimals(found.cosine)} ({decimals(chance.cosine)} if latents are rotated at random), and the Hadamard gap, "
        f"the log of the volume lost by not being orthogonal, is {'unbounded' if found.crowded else gap}."
    )


def describe_dto(found: Inspection) -> str:
    """Distance to orthogonality beside that of random rotations, where singular values are distinct."""
    share, chance = found.degenerate_fraction, found.random_dto
    if share is None or chance is None:
        return ""
    if found.dto_active is None:
        why = (
            "some singular values are zero"
            if found.crowded
            else f"singular values coincide at {share:.0%} of the points"
        )
        return f"DtO is not defined: {why}."
    where = f", at the {percent(1 - share)} of the points whose singular values are distinct" if share else ""
    return (
        f"DtO, the distance from the axes to the decoder's principal directions, is {found.dto_active:.2f} "
        f"({chance.haar:.2f} for random rotations){where}."
    )


def describe_regime(found: Inspection) -> str:
    """How polarised the posterior is (rolinek2019 Def. 1)."""
    if found.delta_kl is None or found.polarised is None or found.active is None or not found.active.any():
        return ""
    mixed = describe_mixed(found)
    word = "polarised" if found.delta_kl < POLARISED and not mixed else "not fully polarised"
    return (
        f"The posterior is {word}: treating every latent as either active or collapsed changes its KL by "
        f"{'; '.join([f'{found.delta_kl:.1%}', *mixed])}."
    )


def describe_agreement(found: Inspection) -> str:
    """Whether posterior precisions are those of the decoder (allen2024 Eq. 7)."""
    error, word = found.precision_error, _agreement(found)
    if error is None:
        return ""
    beyond = (
        ""
        if found.latent == 1
        else f" on the diagonal and by {error.off_diagonal:.0%} off it"
        if found.posterior == "full"
        else f" on the diagonal; {error.off_diagonal:.0%} of that matrix lies off the diagonal, where a diagonal "
        "posterior cannot follow"
    )
    return (
        f"Posterior and decoder {word}: the posterior's precisions differ from those that the decoder implies, "
        f"I + DᵀA²D/β, by "
        f"{error.diagonal:.0%}{beyond}."
        f"{'' if found.beta_known else UNKNOWN_BETA}"
    )


def _agreement(found: Inspection) -> str:
    """How well posterior precisions are those of the decoder; empty where there are none."""
    error = found.precision_error
    return "" if error is None else AGREEMENT[sum(error.diagonal >= limit for limit in (AGREES, ROUGHLY))]


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
        f"{min(float(probes.overlapping_fraction), 1.0):.0%} of pairs overlap."
    )
