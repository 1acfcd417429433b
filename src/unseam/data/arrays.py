"""Reading arrays out of npz, HDF5 and tensor files in blocks, without running anything they hold."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from unseam.data.files import DamagedFileError
from unseam.files import check_memory, first_line, npz_header, open_file

__all__ = [
    "hdf5_blocks",
    "hdf5_dataset",
    "hdf5_file",
    "hdf5_place",
    "hdf5_values",
    "npz_array",
    "npz_blocks",
    "tensor_array",
]

BLOCK = 16 << 20
"""Bytes read at once."""
CHUNK = 256 << 20
"""Bytes of a compressed piece of a file, which is unpacked whole."""


def npz_blocks(path: Path, name: str, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Consecutive rows of the byte array ``name`` in an npz file, which must have the given shape.

    Args:
        path: the npz file.
        name: name of the array; no other is opened.
        shape: shape that the array must have.
    """
    rows = max(1, BLOCK // max(1, int(np.prod(shape[1:]))))
    with _member(path, name) as file:
        found, dtype = _header(file, path, name)
        _check(path, name, (found, dtype), (shape, np.dtype(np.uint8)))
        for start in range(0, shape[0], rows):
            part = (min(rows, shape[0] - start), *shape[1:])
            yield np.frombuffer(_read(file, int(np.prod(part)), path), np.uint8).reshape(part)
        # The checksum of a zip member is compared when its end is read.
        file.read(1)


def npz_array(path: Path, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The whole integer array ``name`` of an npz file, which must have the given shape."""
    with _member(path, name) as file:
        found, dtype = _header(file, path, name)
        if dtype.kind not in "iu":
            raise DamagedFileError(f"{path}: array {name!r} must hold integers, got {dtype}")
        _check(path, name, (found, dtype), (shape, dtype))
        content = _read(file, int(np.prod(shape)) * dtype.itemsize, path)
        file.read(1)
        return np.frombuffer(content, dtype).reshape(shape)


def hdf5_blocks(path: Path, name: str, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Consecutive rows of the dataset ``name`` in an HDF5 file, which must have the given shape."""
    with hdf5_file(path) as file:
        hdf5_place(file, name, path)
        if name not in file:
            raise DamagedFileError(_names(path, name, sorted(file)))
        data = hdf5_dataset(file, name, path)
        _check(path, name, (data.shape, data.dtype), (shape, data.dtype))
        rows = max(1, BLOCK // max(1, data.dtype.itemsize * int(np.prod(shape[1:]))))
        for start in range(0, shape[0], rows):
            yield data[start : start + rows]


@contextmanager
def hdf5_file(path: Path) -> Iterator[Any]:
    """An HDF5 file, opened for reading, with damage reported as such."""
    import h5py

    try:
        open_file(path).close()
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, RuntimeError, KeyError, TypeError) as error:
        raise DamagedFileError(_broken(path, error)) from error


def hdf5_dataset(file: Any, name: str, path: Path, *, text: bool = False) -> Any:
    """A dataset whose content lies in this file: HDF5 can also read other files under its name.

    Args:
        file: the open file.
        name: path of the dataset in it, of which no part may be a link.
        path: of the file, for messages.
        text: whether it may hold text instead of numbers.
    """
    import h5py

    hdf5_place(file, name, path)
    data = file[name]
    if not isinstance(data, h5py.Dataset):
        raise DamagedFileError(f"{path}: {name!r} must be a dataset, got a {type(data).__name__.lower()}")
    if data.external or data.is_virtual:
        raise DamagedFileError(f"{path}: {name!r} must lie in the file, got one that reads other files")
    if data.dtype.kind not in "biuf" and not (text and h5py.check_string_dtype(data.dtype)):
        raise DamagedFileError(f"{path}: {name!r} must hold numbers, got {data.dtype}")
    if data.chunks is not None and int(np.prod(data.chunks)) * data.dtype.itemsize > CHUNK:
        raise DamagedFileError(f"{path}: {name!r} must be stored in pieces of at most {CHUNK >> 20} MiB")
    return data


def hdf5_place(file: Any, name: str, path: Path) -> None:
    """Refuse a path in an HDF5 file that passes a link, before anything follows it: it may lead out of the file."""
    import h5py

    parts = name.split("/")
    for count in range(1, len(parts) + 1):
        link = file.get("/".join(parts[:count]), getlink=True)
        if isinstance(link, h5py.ExternalLink | h5py.SoftLink):
            where = f"{link.filename}:{link.path}" if isinstance(link, h5py.ExternalLink) else link.path
            raise DamagedFileError(f"{path}: {name!r} must lie in the file itself, got a link to {where}")
        if link is None:
            return


def hdf5_values(file: Any, name: str, path: Path, *, text: bool = False) -> np.ndarray:
    """All of a dataset of one axis, after its size was compared with free memory (see :func:`hdf5_dataset`)."""
    data = hdf5_dataset(file, name, path, text=text)
    if data.ndim != 1:
        raise DamagedFileError(f"{path}: {name!r} must have one axis, got shape {data.shape}")
    check_memory(2 * data.size * max(8, data.dtype.itemsize), f"{name} of {path}")
    try:
        found: np.ndarray = data.asstr()[:].astype(str) if data.dtype.kind == "O" else data[:]
    except UnicodeDecodeError as error:
        raise DamagedFileError(f"{path}: {name!r} must be text in UTF-8: {error}") from None
    return found


def tensor_array(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """A byte tensor saved by torch, or by NumPy where the file ends in .npy, which must have the given shape."""
    import torch

    try:
        open_file(path).close()
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                    raise ValueError("torch stores tensors uncompressed")
        if path.suffix == ".npy":
            array: object = np.load(path, mmap_mode="r", allow_pickle=False)
        else:
            array = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever the reader stumbles on, the file is not the tensor
        raise DamagedFileError(_broken(path, error)) from error
    if isinstance(array, torch.Tensor):
        array = array.numpy()
    if not isinstance(array, np.ndarray):
        raise DamagedFileError(f"{path}: expected one tensor of shape {shape}, got {type(array).__name__}")
    _check(path, "tensor", (array.shape, array.dtype), (shape, np.dtype(np.uint8)))
    return array


@contextmanager
def _member(path: Path, name: str) -> Iterator[IO[bytes]]:
    """One array of an npz file, opened for reading, with damage reported as such."""
    try:
        with open_file(path) as source, zipfile.ZipFile(source) as archive:
            members = archive.namelist()
            if f"{name}.npy" not in members:
                raise DamagedFileError(_names(path, name, sorted(m.removesuffix(".npy") for m in members)))
            with archive.open(f"{name}.npy") as file:
                yield file
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError) as error:
        raise DamagedFileError(_broken(path, error)) from error


def _header(file: IO[bytes], path: Path, name: str) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type of an array from the head of its npy stream."""
    try:
        shape, dtype, fortran = npz_header(file)
    except Exception as error:  # a header is text, which can be wrong in many ways
        raise DamagedFileError(_broken(path, error)) from error
    if fortran:
        raise DamagedFileError(f"{path}: array {name!r} must be stored in C order, got Fortran order")
    return shape, dtype


def _read(file: IO[bytes], count: int, path: Path) -> bytes:
    content = file.read(count)
    if len(content) != count:
        raise DamagedFileError(_broken(path, EOFError(f"{count - len(content)} bytes are missing")))
    return content


def _check(
    path: Path,
    name: str,
    found: tuple[tuple[int, ...], np.dtype],
    wanted: tuple[tuple[int, ...], np.dtype],
) -> None:
    if found != wanted:
        raise DamagedFileError(
            f"{path}: array {name!r} must be {wanted[1]} of shape {wanted[0]}, "
            f"got {found[1]} of shape {found[0]}; is this the published file?"
        )


def _names(path: Path, name: str, found: list[str]) -> str:
    return (
        f"{path} must hold an array {name!r}, got {', '.join(found) or 'none'}; is this the published file?"
    )


def _broken(path: Path, error: Exception) -> str:
    return f"{path} is damaged or cut short ({first_line(error)}); fetch it again"
