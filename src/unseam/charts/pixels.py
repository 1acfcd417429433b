"""Data as pixels: pictures, signals, signed changes, strips, PNG files and animations."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from unseam.charts.canvas import COLOURS

__all__ = ["Look", "Pixels", "animation", "data_url", "look_of", "pixels", "signed_pixels", "strip"]

Pixels = NDArray[np.uint8]

# Blue, grey and vermilion.
_NEGATIVE, _ZERO, _POSITIVE = (
    np.array([*bytes.fromhex(colour[1:])], float) for colour in (COLOURS[0], "#f5f5f5", COLOURS[1])
)
_SIGNAL_WIDTH, _SIGNAL_HEIGHT, _MOST_BARS = 132, 96, 256
# Width of a picture in a strip over that of the gap beside it, which is at least one pixel.
_PER_GAP = 24


class Look(NamedTuple):
    """How data of one shape become pixels: the range of values from black to white."""

    shape: tuple[int, ...]
    low: float
    high: float

    @property
    def is_picture(self) -> bool:
        """Whether an item is a picture, rather than a signal that is drawn as bars."""
        return (len(self.shape) == 3 and min(self.shape[1:]) > 1) or (
            len(self.shape) == 2 and min(self.shape) > 1
        )

    @property
    def is_coloured(self) -> bool:
        """Whether an item is a picture in red, green and blue."""
        return self.is_picture and len(self.shape) == 3 and self.shape[0] == 3

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of an item in pixels."""
        if not self.is_picture:
            bars = min(int(np.prod(self.shape)), _MOST_BARS)
            return bars * _bar(bars), _SIGNAL_HEIGHT
        height, width = self.shape[-2:]
        return (width if len(self.shape) == 2 or self.shape[0] in (1, 3) else width * self.shape[0]), height


def look_of(x: Tensor) -> Look:
    """The look of items (batch, *data): [0, 1] where all values lie there, else their own range.

    >>> import torch
    >>> look_of(torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0)))
    Look(shape=(1, 8, 8), low=0.0, high=1.0)
    """
    finite = x[x.isfinite()]
    if not len(finite):
        raise ValueError(f"data must hold finite values, got none among {x.numel()}")
    low, high = float(finite.min()), float(finite.max())
    if low >= 0.0 and high <= 1.0:
        low, high = 0.0, 1.0
    return Look(tuple(x.shape[1:]), low, high if high > low else low + 1.0)


def pixels(x: Tensor, look: Look) -> Pixels:
    """One item (*data) as pixels (height, width, 3).

    >>> import torch
    >>> pixels(torch.tensor([[[0.0, 1.0], [0.2, 0.0]]]), Look((1, 2, 2), 0.0, 1.0))[..., 0]
    array([[  0, 255],
           [ 51,   0]], dtype=uint8)
    """
    values = x.detach().double().cpu().numpy().reshape(look.shape)
    if not look.is_picture:
        return _bars(values.ravel(), look.low, look.high)
    unit = np.clip((np.nan_to_num(values) - look.low) / (look.high - look.low), 0.0, 1.0)
    return np.rint(255 * _channels_last(unit)).astype(np.uint8)


def signed_pixels(x: Tensor, look: Look, scale: float) -> Pixels:
    """One item of signed values (*data) as pixels: blue below zero, vermilion above, pale at zero.

    Each channel of a coloured picture is shown as itself, around grey: a change of hue has no one sign.

    Args:
        x: the values.
        look: of the data that the values change.
        scale: magnitude that gets the full colour.

    >>> import torch
    >>> signed_pixels(torch.tensor([[[-1.0, 0.0], [1.0, 0.0]]]), Look((1, 2, 2), 0.0, 1.0), 1.0)[0, 0]
    array([  0, 114, 178], dtype=uint8)
    """
    values = x.detach().double().cpu().numpy().reshape(look.shape)
    part = np.clip(np.nan_to_num(values) / (scale if scale > 0 else 1.0), -1.0, 1.0)
    if not look.is_picture:
        return _bars(part.ravel(), -1.0, 1.0)
    if look.is_coloured:
        return np.rint(127.5 * (1.0 + _channels_last(part))).astype(np.uint8)
    grey = _channels_last(part)[..., :1]
    colour = np.where(grey < 0, _NEGATIVE, _POSITIVE)
    return np.rint(_ZERO + np.abs(grey) * (colour - _ZERO)).astype(np.uint8)


def strip(pictures: Sequence[Pixels]) -> Pixels:
    """Pictures of one size side by side, with transparent lines between: one more channel, for opacity.

    >>> strip([np.zeros((2, 2, 3), np.uint8)] * 3).shape
    (2, 8, 4)
    """
    height, width, depth = pictures[0].shape
    gap = np.zeros((height, max(1, width // _PER_GAP), depth + 1), np.uint8)
    parts: list[Pixels] = []
    for picture in pictures:
        opaque = np.full((*picture.shape[:2], 1), 255, np.uint8)
        parts += [gap, np.concatenate([picture, opaque], -1)]
    return np.concatenate(parts[1:], 1)


def png(sheet: Pixels, *, level: int = 9) -> bytes:
    """A picture (height, width, channel) as a PNG file; 1 to 4 channels, the last of 2 or 4 is opacity."""
    height, width, depth = sheet.shape
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[depth]
    lines = np.concatenate([np.zeros((height, 1), np.uint8), sheet.reshape(height, -1)], axis=1)
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines.tobytes(), level)),
        (b"IEND", b""),
    )
    body = b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + body


def data_url(picture: Pixels, *, level: int = 1) -> str:
    """Pixels as the address of a PNG that holds them, compressed for speed (level 1) or for size (9).

    >>> data_url(np.zeros((1, 1, 3), np.uint8))[:26]
    'data:image/png;base64,iVBO'
    """
    return "data:image/png;base64," + base64.b64encode(png(picture, level=level)).decode()


def animation(
    pictures: Sequence[Pixels],
    form: str,
    *,
    captions: Sequence[str] = (),
    side: int = 256,
    milliseconds: int = 60,
) -> bytes:
    """Pictures one after another, there and back again, as the bytes of a GIF or an animated WebP.

    Args:
        pictures: frames of one size.
        form: ``gif`` or ``webp``.
        captions: a line of text below each frame, or none.
        side: least width of the animation in pixels; pictures are enlarged by a whole number.
        milliseconds: that each frame is shown.

    >>> animation([np.zeros((2, 2, 3), np.uint8), np.full((2, 2, 3), 255, np.uint8)], "gif")[:6]
    b'GIF89a'
    """
    if form not in ("gif", "webp"):
        raise ValueError(f"form must be 'gif' or 'webp', got {form!r}")
    factor = max(1, -(-side // pictures[0].shape[1]))
    frames = [_image(picture.repeat(factor, 0).repeat(factor, 1)) for picture in pictures]
    if captions:
        frames = [_captioned(frame, caption) for frame, caption in zip(frames, captions, strict=True)]
    frames += frames[-2:0:-1]
    target = io.BytesIO()
    options: dict[str, Any] = {"lossless": True} if form == "webp" else {"optimize": False}
    frames[0].save(
        target,
        format=form.upper(),
        save_all=True,
        append_images=frames[1:],
        duration=milliseconds,
        loop=0,
        **options,
    )
    return target.getvalue()


def _channels_last(values: NDArray[np.floating]) -> NDArray[np.floating]:
    """A picture as (height, width, 3): colour as it is, grey three times, other channels side by side."""
    if values.ndim == 2:
        return np.repeat(values[..., None], 3, -1)
    if values.shape[0] == 3:
        return values.transpose(1, 2, 0)
    return np.repeat(np.concatenate(list(values), 1)[..., None], 3, -1)


def _bars(values: NDArray[np.floating], low: float, high: float) -> Pixels:
    """A signal as bars from zero (or the nearest end of the range) up in vermilion and down in blue."""
    if len(values) > _MOST_BARS:
        values = np.array([part.mean() for part in np.array_split(values, _MOST_BARS)])
    ends = np.array([0.0, *np.nan_to_num(values)])
    heights = np.rint((high - np.clip(ends, low, high)) / (high - low) * (_SIGNAL_HEIGHT - 2)).astype(int) + 1
    rows = np.arange(_SIGNAL_HEIGHT)[:, None]
    top, bottom = np.minimum(heights[1:], heights[0]), np.maximum(heights[1:], heights[0])
    bar = _bar(len(values))
    inside = np.repeat((rows >= top) & (rows <= bottom), bar, 1)
    edge = np.arange(inside.shape[1]) % bar >= bar - max(1, bar // 8)
    colour = np.repeat(np.where(values[:, None] < 0, _NEGATIVE, _POSITIVE), bar, 0)
    return np.where((inside & ~edge)[..., None], colour[None], _ZERO).astype(np.uint8)


def _bar(count: int) -> int:
    """Width of one bar: few bars are broad, so that a signal is about as wide as it is high."""
    return max(6, _SIGNAL_WIDTH // count)


def _image(picture: Pixels) -> Any:
    from PIL import Image

    return Image.fromarray(np.ascontiguousarray(picture))


def _captioned(picture: Any, caption: str) -> Any:
    """A picture above a line of text, which is as large as fits."""
    from PIL import Image, ImageDraw, ImageFont

    size = 16.0
    while size > 8 and ImageFont.load_default(size).getlength(caption) > picture.width - 8:
        size -= 1
    whole = Image.new("RGB", (picture.width, picture.height + 24), "white")
    whole.paste(picture, (0, 0))
    place = (picture.width / 2, picture.height + 12)
    ImageDraw.Draw(whole).text(place, caption, "black", ImageFont.load_default(size), "mm")
    return whole
