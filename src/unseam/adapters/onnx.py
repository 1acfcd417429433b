"""Models in ONNX files: by finite differences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unseam.adapters.numpy import Differences
from unseam.adapters.parts import Encode
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
) -> Subject:
    """A decoder in an ONNX file, or a session of onnxruntime; it is differentiated by central differences.

    Args:
        model: path of the file, a session, or a loaded ``ModelProto``; its one input is z (batch, *latent).
        encoder: path or session of an encoder whose outputs are mean and variance.
        latent: number of latents or their shape, where the file leaves it open.
        output: name of the output; the first by default.
        step: distance of the differences (see :func:`unseam.adapters.numpy`).
        log_variance: whether the encoder's second output is the logarithm of the variance.
    """
    session = _session(model)
    place = session.get_inputs()[0]
    sizes = place.shape[1:] if latent is None else latent
    shape = tuple(sizes) if isinstance(sizes, Sequence) else (sizes,)
    if not shape or not all(isinstance(size, int) for size in shape):
        raise ValueError(f"latent must be given where the ONNX input leaves it open, got shape {place.shape}")
    dtype = torch.float64 if place.type == "tensor(double)" else torch.float32
    decode = Differences(lambda z: _run(session, z, output)[0], shape, dtype=dtype, step=step)
    read = None
    if encoder is not None:
        reader = _session(encoder)

        def encode(x: torch.Tensor) -> Any:
            return tuple(map(torch.as_tensor, _run(reader, x.numpy(), None)))

        read = Encode(encode, (torch.device("cpu"), dtype), log_variance=log_variance)
    name = Path(model).stem if isinstance(model, str | Path) else "ONNX"
    return Subject(name, decode, int(np.prod(shape)), encoder=read)


def _session(model: Any) -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise ValueError("an ONNX model needs onnxruntime: pip install onnxruntime") from None
    if isinstance(model, onnxruntime.InferenceSession):
        return model
    if not isinstance(model, str | Path):
        return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    open_file(Path(model)).close()
    try:
        return onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    except Exception as error:  # the library's errors have no class in common
        raise ValueError(
            f"{model} is no ONNX model that can be read: {str(error).partition(chr(10))[0]}"
        ) from error


def _run(session: Any, rows: np.ndarray, output: str | None) -> list[np.ndarray]:
    """Outputs of a batch; one by one where the file fixes the batch to one."""
    place = session.get_inputs()[0]
    names = None if output is None else [output]
    if place.shape[0] != 1:
        return list(session.run(names, {place.name: rows}))
    parts = [session.run(names, {place.name: rows[k : k + 1]}) for k in range(len(rows))]
    return [np.concatenate(pieces) for pieces in zip(*parts, strict=True)]
