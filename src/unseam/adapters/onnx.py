"""Models in ONNX files: by finite differences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unseam.adapters.numpy import Differences
from unseam.adapters.parts import Decode, Encode, check_logits, find_likelihood
from unseam.files import open_file
from unseam.subject import Subject

__all__ = ["onnx"]


def onnx(
    model: Path | Any,
    *,
    encoder: Any = None,
    latent: int | Sequence[int] | None = None,
    output: str | None = None,
    step: float | None = None,
    log_variance: bool = False,
    likelihood: Any = None,
    probabilities: bool | None = None,
) -> Subject:
    """A decoder in an ONNX file, or a session of onnxruntime; it is differentiated by central differences.

    Args:
        model: path of the file, a session, or a loaded ``ModelProto``; its one input is z (batch, *latent).
        encoder: path or session of an encoder whose outputs are mean and variance, or a function x -> (mean, variance).
        latent: number of latents or their shape, where the file leaves it open.
        output: name of the output; the first by default.
        step: distance of the differences (see :func:`unseam.adapters.numpy`).
        log_variance: whether the encoder's second output is the logarithm of the variance.
        likelihood: what outputs mean: its name or itself.
        probabilities: as in :func:`unseam.wrap`.
    """
    session = _session(model)
    places = session.get_inputs()
    if len(places) != 1:
        names = ", ".join(place.name for place in places)
        raise ValueError(
            f"model must have one input, z (batch, *latent), got {names}; export one that holds the others fixed"
        )
    (place,) = places
    sizes = place.shape[1:]
    given = latent if isinstance(latent, Sequence) or latent is None else (latent,)
    fits = given is None or len(given) == len(sizes)
    shape = tuple(
        size if isinstance(size, int) or given is None or not fits else given[k]
        for k, size in enumerate(sizes)
    )
    if not shape or not all(isinstance(size, int) for size in shape):
        raise ValueError(f"latent must be given where the ONNX input leaves it open, got shape {place.shape}")
    if output is not None and output not in (known := [one.name for one in session.get_outputs()]):
        raise ValueError(f"output must be one of {', '.join(known)}, got {output!r}")
    decode: Any = Differences(lambda z: _run(session, z, output)[0], shape, dtype=_type(place), step=step)
    likelihood = find_likelihood(likelihood, tuple(decode(decode.at.flatten()[None]).shape[1:]))
    if probabilities:
        decode = Decode(decode, holder=decode, probabilities=True)
    read = encoder
    if (
        isinstance(encoder, str | Path)
        or callable(getattr(encoder, "get_inputs", None))
        or _is_proto(encoder)
    ):
        reader = _session(encoder)
        read = Encode(
            lambda x: tuple(_run(reader, x, None)),
            (torch.device("cpu"), _type(reader.get_inputs()[0])),
            log_variance=log_variance,
            arrays=True,
        )
    elif encoder is not None:
        read = Encode(encoder, log_variance=log_variance)
    name = Path(model).stem if isinstance(model, str | Path) else "ONNX"
    subject = Subject(name, decode, int(np.prod(shape)), likelihood, read)
    if probabilities is None:
        check_logits(decode, likelihood, subject.prior(16, torch.Generator().manual_seed(0)))
    return subject


def _type(place: Any) -> torch.dtype:
    return torch.float64 if place.type == "tensor(double)" else torch.float32


def _is_proto(model: Any) -> bool:
    return callable(getattr(model, "SerializeToString", None))


def _session(model: Any) -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise ValueError("an ONNX model needs onnxruntime: pip install onnxruntime") from None
    if isinstance(model, onnxruntime.InferenceSession):
        return model
    if isinstance(model, str | Path):
        open_file(Path(model)).close()
    source = model.SerializeToString() if _is_proto(model) else str(model)
    try:
        return onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library's errors have no class in common
        what = model if isinstance(model, str | Path) else type(model).__name__
        raise ValueError(
            f"{what} is no ONNX model that can be read: {str(error).partition(chr(10))[0]}"
        ) from error


def _run(session: Any, rows: np.ndarray, output: str | None) -> list[np.ndarray]:
    """Outputs of a batch; in parts where the file fixes its size, the last of them filled up."""
    place = session.get_inputs()[0]
    names, size = None if output is None else [output], place.shape[0]
    if not isinstance(size, int):
        return list(session.run(names, {place.name: rows}))
    filled = np.concatenate([rows, np.repeat(rows[-1:], -len(rows) % size, 0)])
    parts = [session.run(names, {place.name: filled[k : k + size]}) for k in range(0, len(filled), size)]
    return [np.concatenate(pieces)[: len(rows)] for pieces in zip(*parts, strict=True)]
