"""Studies of a decoder that can be imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from unseam.inspection import Inspection
from unseam.models import Bernoulli
from unseam.report.measure import study
from unseam.report.study import Study
from unseam.targets import called, imported, read_array

__all__ = ["own_study"]


def own_study(
    name: str,
    data: Path | None = None,
    *,
    latent: int | None = None,
    encoder: str | None = None,
    points: int = 1000,
    latents: int | None = None,
    beta: float = 1.0,
    likelihood: str | None = None,
    seed: int = 0,
    found: Inspection | None = None,
) -> Study:
    """Measure a decoder that can be imported, at points from a file or from the prior.

    Args:
        name: ``package.module:function``: a decoder, or a function or class that makes one when called without
            arguments.
        data: file of points (batch, latent); of data (batch, *data) where an encoder is given.
        latent: number of latents, where there is no file: points are drawn from the prior.
        encoder: ``package.module:function``, x -> (mean, variance).
        points: number of rows of the file to use, spread over it, or of draws from the prior.
        latents: sample that many latents, for decoders with thousands.
        beta: weight of the KL term in training.
        likelihood: ``bernoulli`` where the decoder returns logits; by default every output counts alike.
        seed: of points, baselines and probes.
        found: the inspection, where it is made already.
    """
    if likelihood not in (None, "gaussian", "bernoulli"):
        raise ValueError(f"likelihood must be gaussian or bernoulli, got {likelihood!r}")
    if (data is None) == (latent is None):
        raise ValueError(
            "--latent must say how many latents the decoder has, or --data name a file of points (or, with --encoder, "
            f"of data), and not both; got {'neither' if data is None else 'both'}"
        )
    if encoder is not None and data is None:
        raise ValueError("--encoder needs --data, the file of data that it encodes")
    decoder = called(imported(name), name)
    given: dict[str, Any] = {"latent": latent, "points": points}
    if data is not None:
        rows = read_array(data, points)
        kinds = (
            {value.dtype for value in decoder.parameters()} if isinstance(decoder, torch.nn.Module) else set()
        )
        rows = rows.to(kinds.pop()) if len(kinds) == 1 else rows
        given = {"z": rows}
        if encoder is not None:
            given = {"encoder": called(imported(encoder), encoder), "x": rows}
    return study(
        decoder,
        **given,
        likelihood=Bernoulli() if likelihood == "bernoulli" else None,
        beta=beta,
        name=name,
        latents=latents or "all",
        seed=seed,
        found=found,
    )
