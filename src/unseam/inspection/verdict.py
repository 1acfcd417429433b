"""The verdict on a decoder's geometry, in plain words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from unseam.geometry import Probes
    from unseam.inspection.result import Inspection

__all__ = ["Verdict", "verdict"]

# Fractions of what random rotations have: words for how far DtO lies below chance.
NEARLY, CLEARLY = 0.25, 0.75
AGREES, ROUGHLY = 0.1, 0.3
MANY_DEGENERATE = 0.1
MOST_LISTED = 20
POLARISED = 0.03  # rolinek2019 §5.2


class Verdict(NamedTuple):
    """What is said of a decoder, and what to do.

    >>> print(Verdict(("No latent is alive.",), ("lower β",)))
    No latent is alive.
    To do: lower β.
    """

    sentences: tuple[str, ...]
    """On who lives, how orthogonal the axes are, and whether the posterior agrees."""
    advice: tuple[str, ...]
    """What to do, or that there is nothing."""

    def __str__(self) -> str:
        return "\n".join([*self.sentences, f"To do: {'; '.join(self.advice)}."])


def verdict(found: Inspection) -> Verdict:
    """Sentences on who lives, how orthogonal the axes are, whether the posterior agrees, and what to do.

    >>> import torch, unseam
    >>> found = unseam.inspect(lambda z: z * torch.tensor([3.0, 1.0]), torch.zeros(4, 2))
    >>> verdict(found).sentences[1].startswith("The axes are nearly orthogonal")
    True
    """
    if found.probes is not None:
        lines = [_alive(found), *_probed(found, found.probes), _regime(found)]
        advice = _polarise(found) or ["nothing more can be said from sampled latents alone"]
    else:
        lines = [_alive(found), _orthogonal(found), _degenerate(found), _regime(found), _posterior(found)]
        lines.append(_variance_law(found))
        advice = _advice(found) or ["nothing"]
    return Verdict(tuple(filter(None, lines)), tuple(advice))


def _alive(found: Inspection) -> str:
    if found.active is None:
        return ""
    alive, dead = (mask.nonzero().flatten().tolist() for mask in (found.active, ~found.active))
    text = (
        f"{len(alive)} of {found.latent} latents are alive ({_listed(alive)})"
        if alive
        else "No latent is alive"
    )
    return f"{text}; {_listed(dead)} collapsed." if dead and alive else f"{text}."


def _orthogonal(found: Inspection) -> str:
    if found.dto_active is None or found.random_dto is None:
        return "With fewer than two live latents, orthogonality says nothing."
    ratio = found.dto_active / found.random_dto.haar
    word = (
        "nearly orthogonal"
        if ratio < NEARLY
        else "more orthogonal than chance"
        if ratio < CLEARLY
        else "no more orthogonal than chance"
    )
    chance = found.random_dto
    everyone = found.active is not None and bool(found.active.all())
    others = [f"random rotations have {chance.haar:.2f}", f"U[0, 1] matrices {chance.uniform:.2f}"]
    if chance.module is not None and everyone:
        others.append(f"this decoder with fresh weights {chance.module:.2f}")
    return (
        f"The axes are {word}: DtO {found.dto_active:.2f} over live latents, where {_and(others)}; mean |cos| "
        f"between columns {found.cosine:.2f}, Hadamard gap {found.hadamard_gap:.2f} nats."
    )


def _degenerate(found: Inspection) -> str:
    share = found.degenerate_fraction
    if share is None or share < MANY_DEGENERATE:
        return ""
    return (
        f"At {share:.0%} of the points two singular values nearly coincide: there the singular vectors, and so DtO, "
        f"are arbitrary; read |cos| and the Hadamard gap instead."
    )


def _regime(found: Inspection) -> str:
    if found.delta_kl is None or found.polarised is None or found.active is None or not found.active.any():
        return ""
    mixed = found.polarised.mixed.nonzero().flatten().tolist()
    word = "polarised" if found.delta_kl < POLARISED and not mixed else "not fully polarised"
    extra = f"; {_listed(mixed)} neither active nor passive" if mixed else ""
    return f"The regime is {word}: the polarised KL is off by {found.delta_kl:.1%}{extra}."


def _posterior(found: Inspection) -> str:
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
    return (
        f"Posterior and decoder {word}: precisions differ from I + DᵀA²D/β by {error.diagonal:.0%} on the diagonal, "
        f"and {error.off_diagonal:.0%} of that matrix lies off the diagonal."
    )


def _variance_law(found: Inspection) -> str:
    law = found.variance_law
    if law is None or law.spread is None:
        return ""
    word = "go as" if law.spread < AGREES else "go roughly as" if law.spread < ROUGHLY else "do not go as"
    slope = "" if law.slope is None else f", with slope {_signed(law.slope)} where the law has −1"
    error = found.precision_error
    bent = law.spread >= ROUGHLY and error is not None and error.diagonal < AGREES
    why = "; columns are too short beside β for it, as posterior and decoder agree" if bent else ""
    return (
        f"Variances {word} 1/‖column‖² across live latents (bhowal2024): within a factor of "
        f"{math.exp(law.spread):.2f}{slope}{why}."
    )


def _advice(found: Inspection) -> list[str]:
    """What follows from each finding; nothing where all is as the theory has it."""
    return [*_more_or_fewer(found), *_straighten(found), *_polarise(found), *_match(found)]


def _more_or_fewer(found: Inspection) -> list[str]:
    """What to do about the number of live latents."""
    alive = None if found.active is None else int(found.active.sum())
    if alive == found.latent and found.latent > 1:
        return ["every latent is used, so try more of them or a larger β to see whether some are redundant"]
    if alive is not None and alive < 2:
        return ["lower β (or the likelihood's variance) until more latents live"]
    return []


def _straighten(found: Inspection) -> list[str]:
    """What to do about axes that are not orthogonal, or need not be the decoder's own."""
    advice = []
    if found.dto_active is not None and found.random_dto is not None:
        ratio = found.dto_active / found.random_dto.haar
        if ratio >= CLEARLY:
            advice.append("check that the posterior is diagonal and train longer or with a larger β")
        elif ratio >= NEARLY:
            advice.append(
                "train longer or with a larger β, and compare seeds, since the axes lie between orthogonal and chance"
            )
    if found.degenerate_fraction is not None and found.degenerate_fraction >= MANY_DEGENERATE:
        advice.append("factors of equal strength cannot be told apart by orthogonality: expect them mixed")
    return advice


def _polarise(found: Inspection) -> list[str]:
    """What to do about latents between alive and collapsed."""
    if found.polarised is None or found.delta_kl is None or found.active is None or not found.active.any():
        return []
    mixed = found.polarised.mixed
    wide, restless = ((mixed & mask).nonzero().flatten().tolist() for mask in (found.active, ~found.active))
    advice = []
    if wide:
        advice.append(
            f"read the theory of the polarised regime as an approximation, since {_named(wide)} alive without small "
            "variances (σ² ≪ 1; a smaller β or likelihood's variance would make them so)"
        )
    elif found.delta_kl >= POLARISED:
        advice.append(
            "read the theory of the polarised regime as an approximation, since its KL is off by more than the "
            f"{POLARISED:.0%} of rolinek2019 §5.2"
        )
    if restless:
        advice.append(
            f"train longer or with a larger β, since {_named(restless)} collapsed on the whole but not at every point"
        )
    return advice


def _match(found: Inspection) -> list[str]:
    """What to do about a posterior that does not follow the decoder."""
    if found.precision_error is None or found.precision_error.diagonal < AGREES:
        return []
    if found.precision_error.diagonal >= ROUGHLY:
        return ["check beta and likelihood given here against those of the training, then train longer"]
    return [
        "train longer, since posterior and decoder agree only roughly (what then remains is how the decoder bends "
        "within the posterior's width, which Eq. 7 leaves out)"
    ]


def _probed(found: Inspection, probes: Probes) -> list[str]:
    whole = found.latent if found.active is None else int(found.active.sum())
    kind = "latents" if found.active is None else "live latents"
    dead = float(probes.dead_fraction)
    lost = f"; {dead:.0%} of them move nothing and are left out" if dead else ""
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
        return "With fewer than two columns that are not zero, orthogonality says nothing."
    whole = f"{found.cosine:.3f} ± {float(probes.cosine_error):.3f}"
    if bool(probes.overlapping_cosine.isnan()):
        return f"No two sampled columns overlap, so they are orthogonal for no deeper reason (mean |cos| {whole})."
    return (
        f"Columns whose receptive fields overlap have mean |cos| {float(probes.overlapping_cosine):.3f} ± "
        f"{float(probes.overlapping_cosine_error):.3f} (chance, for as many pixels: "
        f"{float(probes.random_cosine):.3f}); over all pairs it is {whole}, as "
        f"{float(probes.overlapping_fraction):.0%} of pairs overlap."
    )


def _and(parts: list[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def _named(positions: list[int]) -> str:
    """Latents as the subject of a sentence."""
    return f"latent {positions[0]} is" if len(positions) == 1 else f"latents {_listed(positions)} are"


def _signed(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def _listed(positions: list[int]) -> str:
    """Positions, of many only the first."""
    shown = ", ".join(map(str, positions[:MOST_LISTED]))
    return shown if len(positions) <= MOST_LISTED else f"{shown}, …"
