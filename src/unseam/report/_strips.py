"""Outputs of a decoder as pictures that a page can hold: PNG from plain arrays, or small curves."""

from __future__ import annotations

import base64
import html
import struct
import zlib
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from unseam.drawing import COLOURS
from unseam.report._chart import Canvas

__all__ = ["drawing", "fitting", "is_picture", "strip"]

SIDE = 96  # larger pictures are thinned out
CURVE = 128  # values of a curve that are drawn


def is_picture(shape: tuple[int, ...]) -> bool:
    """Whether data of such a shape can be looked at: grey or in colour."""
    return (len(shape) == 3 and shape[0] in (1, 3) and min(shape[1:]) > 3) or (
        len(shape) == 2 and min(shape) > 3
    )


def fitting(draw: Callable[[int], list[str]], budget: int) -> list[str]:
    """What ``draw`` makes of pictures with every first, second, fourth … pixel: the first that fits the budget."""
    made: list[str] = []
    for thin in (1, 2, 4, 8, 16):
        made = draw(thin)
        if sum(map(len, made)) <= budget:
            break
    return made


def strip(frames: NDArray[np.float32], label: str, *, span: tuple[float, float], thin: int = 1) -> str:
    """Frames (frame, *data) beside each other as one element, ``span`` from black to white."""
    if not is_picture(frames.shape[1:]):
        return _curves(frames, label, span)
    pixels = _pixels((frames - span[0]) / ((span[1] - span[0]) or 1.0), thin)
    count, height, width, depth = pixels.shape
    gap = max(1, width // 24)
    sheet = np.zeros((height, count * (width + gap) - gap, depth + 1), "uint8")  # transparent between frames
    for place, frame in enumerate(pixels):
        left = place * (width + gap)
        sheet[:, left : left + width, :depth] = frame
        sheet[:, left : left + width, depth] = 255
    size = f'width="{sheet.shape[1]}" height="{height}" data-frames="{count}" data-gap="{gap}"'
    return f'<img class="strip" src="{_address(sheet)}" {size} alt="{html.escape(label)}">'


def drawing(change: NDArray[np.float32], label: str, *, thin: int = 1) -> str:
    """One signed output (*data): up in orange, down in blue, white where nothing changes."""
    reach = float(np.abs(change).max()) or 1.0
    if not is_picture(change.shape):
        return _curves(change[None], label, (-reach, reach))
    part = _channels((change / reach)[None], thin).mean(-1)[0]
    up, down = (np.array([int(COLOURS[k][i : i + 2], 16) for i in (1, 3, 5)]) for k in (1, 0))
    strength = np.abs(part)[..., None]
    shown = 255 * (1 - strength) + strength * np.where(part[..., None] > 0, up, down)
    sheet = shown.round().astype("uint8")
    size = f'width="{sheet.shape[1]}" height="{sheet.shape[0]}"'
    return f'<img src="{_address(sheet)}" {size} alt="{html.escape(label)}">'


def _pixels(frames: NDArray[np.float32], thin: int) -> NDArray[np.uint8]:
    return (255 * _channels(frames, thin).clip(0, 1)).round().astype("uint8")


def _channels(frames: NDArray[np.float32], thin: int) -> NDArray[np.float32]:
    """Frames as (frame, height, width, 1 or 3), thinned out where they are large."""
    frames = frames[:, None] if frames.ndim == 3 else frames
    few = thin * max(1, -(-max(frames.shape[2:]) // SIDE))
    return np.moveaxis(frames, 1, -1)[:, ::few, ::few]


def _address(sheet: NDArray[np.uint8]) -> str:
    return f"data:image/png;base64,{base64.b64encode(png(sheet)).decode()}"


def png(sheet: NDArray[np.uint8]) -> bytes:
    """A picture (height, width, channel) of bytes as a PNG file; 1 to 4 channels, the last of 2 or 4 is opacity."""
    height, width, depth = sheet.shape
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[depth]
    lines = np.concatenate([np.zeros((height, 1), "uint8"), sheet.reshape(height, -1)], axis=1)
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    )
    body = b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + body


def _curves(frames: NDArray[np.float32], label: str, span: tuple[float, float]) -> str:
    """Data that are no pictures: each frame a little curve, or bars where there are few values."""
    rows = frames.reshape(len(frames), -1)
    rows = rows[:, :: max(1, -(-rows.shape[1] // CURVE))]
    wide, tall = 62.0, 44.0
    canvas = Canvas(wide * len(rows) - 6, tall + 4)
    low, high = min(span[0], 0.0), max(span[1], 0.0)
    size = (high - low) or 1.0

    def height(value: float) -> float:
        return 2 + tall * (high - value) / size

    for place, row in enumerate(rows):
        left = wide * place
        canvas.line(left, height(0), left + wide - 6, height(0), "grid")
        if len(row) > 16:
            step = (wide - 6) / (len(row) - 1)
            path = " ".join(f"{left + k * step:.1f},{height(float(v)):.1f}" for k, v in enumerate(row))
            canvas.add("polyline", points=path, cls="curve c0")
            continue
        step = (wide - 6) / len(row)
        for k, value in enumerate(row):
            top, bottom = sorted((height(float(value)), height(0)))
            canvas.add(
                "rect",
                "",
                f"value {k}: {float(value):.3g}",
                x=left + k * step,
                y=top,
                width=max(1.0, step - 1),
                height=max(0.5, bottom - top),
                cls="fill c0",
            )
    return canvas.svg(label)
