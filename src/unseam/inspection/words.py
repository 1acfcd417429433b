"""Words that every page and command shares: names of latents, lists, and terms with what they mean."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

__all__ = ["TERMS", "join_words", "latent_name", "list_latents", "positions"]

MOST_LISTED = 20

TERMS = {
    "axes": "columns of the decoder's Jacobian, one per latent: how the output changes when that latent moves",
    "|cos|": "between two axes, mean over pairs and points: 0 at right angles, 1 where they coincide",
    "Hadamard gap": "log of the volume that axes lose by not being orthogonal, in nats: 0 where they are",
    "DtO": "distance to orthogonality (rolinek2019 Eq. 29): how far the decoder's principal directions (right "
    "singular vectors) are from its axes; 0 where they are the same; not defined where singular values coincide",
    "chance": "what this decoder has when its latents are rotated at random (for DtO: what random rotations have)",
    "Eq. 7 error": "relative error of the posterior's precisions against those that the decoder implies (allen2024 "
    "Eq. 7), on the diagonal and off it",
    "KL error": "relative error of the KL when every latent counts as active or collapsed (rolinek2019 Eq. 30)",
    "coinciding": "points where two singular values differ by less than 5%",
}
"""Terms that tables print, and what each means."""


def latent_name(latent: int, factor: str = "") -> str:
    """What a latent is called everywhere: by its position, with the factor that it explains where one is known.

    >>> latent_name(3), latent_name(0, "scale")
    ('z3', 'z0 · scale')
    """
    return f"z{latent} · {factor}" if factor else f"z{latent}"


def list_latents(which: Sequence[int]) -> str:
    """Latents by name, of many only the first.

    >>> list_latents([0]), list_latents([0, 2, 3])
    ('z0', 'z0, z2 and z3')
    """
    names = [latent_name(latent) for latent in which[:MOST_LISTED]]
    return join_words(names) if len(which) <= MOST_LISTED else f"{', '.join(names)}, …"


def join_words(parts: Sequence[str]) -> str:
    """Parts with commas, and an "and" before the last."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def positions(mask: Tensor) -> list[int]:
    """Which entries hold."""
    found: list[int] = mask.nonzero().flatten().tolist()
    return found
