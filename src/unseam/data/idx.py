"""The idx format of MNIST and Fashion-MNIST, gzipped or not."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from unseam.data.files import DamagedFileError, locate
from unseam.files import open_file

__all__ = ["read_idx", "read_part", "unpack"]

LARGEST = 256 << 20
"""Bytes of an unpacked file; the largest published one has 47 MB."""

_PREFIX = {"train": "train", "test": "t10k"}


def read_part(
    name: str, part: str, root: str | Path | None, check: Callable[[str, Path, int], None] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Images (item, height, width) and labels (item,) of one part of a data set.

    Args:
        name: ``mnist`` or ``fashion_mnist``.
        part: ``train`` or ``test``.
        root: folder of the files; by default the cache folder.
        check: told the name, the path and the number of items of each file.
    """
    if root is not None and Path(root).expanduser().is_file():
        raise ValueError(f"root must be the folder of the four idx files of {name!r}, got the file {root}")
    images_path = locate(name, idx_names(part, "images", 3), root)
    labels_path = locate(name, idx_names(part, "labels", 1), root)
    images, labels = read_idx(images_path), read_idx(labels_path)
    if images.ndim != 3 or images.shape[1:] != (28, 28):
        raise DamagedFileError(f"{images_path} must hold images (item, 28, 28), got shape {images.shape}")
    if labels.shape != images.shape[:1]:
        raise DamagedFileError(
            f"{labels_path} must hold one label for each of {len(images)} images, got {labels.shape}"
        )
    if labels.max() > 9:
        raise DamagedFileError(f"{labels_path} must hold labels from 0 to 9, got {labels.max()}")
    for path in (images_path, labels_path) if check is not None else ():
        check(name, path, len(images))  # type: ignore[misc]
    return images, labels


def read_idx(path: Path) -> np.ndarray:
    """Array of bytes in an idx file: two zero bytes, 8 for bytes, the number of axes, sizes, content.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "two"
    >>> _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]))
    >>> read_idx(path).tolist()
    [7, 9]
    """
    content = unpack(path)
    axes = content[3] if len(content) > 3 else 0
    head = 4 + 4 * axes
    if content[:3] != b"\x00\x00\x08" or not axes or len(content) < head:
        raise DamagedFileError(f"{path} must be an idx file of bytes, but it starts with {content[:4].hex()}")
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", axes, 4))
    if len(content) != head + int(np.prod(shape)) or 0 in shape:
        raise DamagedFileError(
            f"{path} is damaged or cut short: shape {shape} needs {int(np.prod(shape))} bytes, "
            f"got {len(content) - head}; fetch it again"
        )
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape).copy()


def unpack(path: Path) -> bytes:
    """Content of a file, unpacked where it is gzipped."""
    with open_file(path, largest=LARGEST) as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        if not packed:
            return file.read()
        try:
            content = gzip.GzipFile(fileobj=file).read(LARGEST + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DamagedFileError(f"{path} is damaged or cut short ({error}); fetch it again") from error
    if len(content) > LARGEST:
        raise DamagedFileError(f"{path} must unpack to at most {LARGEST >> 20} MiB; fetch it again")
    return content


def idx_names(part: str, kind: str, axes: int) -> tuple[str, ...]:
    """Names under which a file is found: published, unpacked, and with the dot that some copies have."""
    stem = f"{_PREFIX[part]}-{kind}"
    return (
        f"{stem}-idx{axes}-ubyte.gz",
        f"{stem}-idx{axes}-ubyte",
        f"{stem}.idx{axes}-ubyte.gz",
        f"{stem}.idx{axes}-ubyte",
    )
