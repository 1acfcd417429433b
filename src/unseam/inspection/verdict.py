"""The verdict on a decoder's geometry, in plain words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from unseam.inspection._grades import (
    AGREES,
    CLEARLY,
    MANY_DEGENERATE,
    NEARLY,
    POLARISED,
    ROUGHLY,
    is_square,
    joined,
    listed,
    positions,
)
from unseam.inspection.todo import Todo, todo

if TYPE_CHECKING:
    from unseam.geometry import Probes
    from unseam.inspection.result import Inspection

__all__ = [
    "AGREES",
    "CLEARLY",
    "MANY_DEGENERATE",
    "NEARLY",
    "POLARISED",
    "ROUGHLY",
    "Verdict",
    "verdict",
]


class Verdict(NamedTuple):
    """What is said of a decoder, and what to do.

    >>> print(Verdict(("No latent is alive.",), Todo(("try a smaller β, since no latent is alive",))))
    No latent is alive.
    To do: try a smaller β, since no latent is alive.
    """

    sentences: tuple[str, ...]
    """On who lives, how orthogonal the axes are, and whether the posterior agrees."""
    advice: Todo

    def __str__(self) -> str:
        return "\n".join([*self.sentences, str(self.advice)])


def verdict(found: Inspection) -> Verdict:
    """Sentences on who lives, how orthogonal the axes are, whether the posterior agrees, and what to do.

    >>> import torch, unseam
    >>> found = unseam.inspect(lambda z: z * torch.tensor([3.0, 1.0]), torch.zeros(4, 2))
    >>> verdict(found).sentences[1].startswith("The axes are nearly orthogonal")
    True
    """
    if found.probes is not None:
        lines = [_alive(found), *_probed(found, found.probes), _regime(found)]
    else:
        lines = [_alive(found), _orthogonal(found), _degenerate(found), _regime(found), _posterior(found)]
        lines.append(_variance_law(found))
    return Verdict(tuple(filter(None, lines)), todo(found))


def _alive(found: Inspection) -> str:
    if found.active is None:
        return ""
    alive, dead = positions(found.active), positions(~found.active)
    if found.latent == 1:
        return f"Its only latent {'is alive' if alive else 'collapsed'}."
    if not alive:
        return "No latent is alive."
    text = (
        f"{len(alive)} of {found.latent} latents {'is' if len(alive) == 1 else 'are'} alive ({listed(alive)})"
    )
    return f"{text}; {listed(dead)} collapsed." if dead else f"{text}."


def _orthogonal(found: Inspection) -> str:
    ratio, chance = found.dto_of_chance, found.random_dto
    if ratio is None or chance is None:
        return "With fewer than two live latents, orthogonality says nothing."
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
        "; they are near right angles, but so alike in length that the decoder's principal directions lie elsewhere"
        if ratio >= CLEARLY and is_square(found) and (found.degenerate_fraction or 0.0) < MANY_DEGENERATE
        else ""
    )
    return (
        f"The axes are {word}: DtO {found.dto_active:.2f} over live latents, where {joined(others)}; mean |cos| "
        f"between columns {found.cosine:.2f}, Hadamard gap {found.hadamard_gap:.2f} nats{alike}."
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
    mixed = positions(found.polarised.mixed)
    word = "polarised" if found.delta_kl < POLARISED and not mixed else "not fully polarised"
    extra = f"; {listed(mixed)} neither active nor passive" if mixed else ""
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


def _signed(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")
