"""Worlds read from published files: dSprites, 3D Shapes, MPI3D, 3D Faces, MNIST, Fashion-MNIST."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import torch

from unseam import choices
from unseam.data.array import ArrayWorld
from unseam.data.arrays import hdf5_blocks, npz_array, npz_blocks, tensor_array
from unseam.data.fetch import check_published
from unseam.data.files import DamagedFileError, as_memory_map, locate
from unseam.data.grid import grid_factors
from unseam.data.idx import read_part
from unseam.data.sources import PUBLISHED, RemoteFile

__all__ = ["Layout", "dsprites", "faces3d", "fashion_mnist", "mnist", "mpi3d", "shapes3d"]

DSPRITES_WORLD = choices.World("dsprites", "dSprites", "unseam.data.published:dsprites", from_file=True)
SHAPES3D_WORLD = choices.World("shapes3d", "3D Shapes", "unseam.data.published:shapes3d", from_file=True)
MPI3D_WORLD = choices.World("mpi3d", "MPI3D", "unseam.data.published:mpi3d", from_file=True)
FACES3D_WORLD = choices.World("faces3d", "3D Faces", "unseam.data.published:faces3d", from_file=True)
MNIST_WORLD = choices.World("mnist", "MNIST", "unseam.data.published:mnist", from_file=True)
FASHION_MNIST_WORLD = choices.World(
    "fashion_mnist", "Fashion-MNIST", "unseam.data.published:fashion_mnist", from_file=True
)


@dataclass(frozen=True)
class Layout:
    """Grid of factors, last one fastest, and shape (channel, height, width) of the images of a published file."""

    factor_names: tuple[str, ...]
    factor_sizes: tuple[int, ...]
    shape: tuple[int, int, int]

    def __len__(self) -> int:
        """Number of images."""
        return prod(self.factor_sizes)

    @property
    def factors(self) -> torch.Tensor:
        """Grid positions (item, factor) of all images."""
        return grid_factors(torch.arange(len(self)), self.factor_sizes)


DSPRITES = Layout(("shape", "scale", "orientation", "x", "y"), (3, 6, 40, 32, 32), (1, 64, 64))
SHAPES3D = Layout(
    ("floor_hue", "wall_hue", "object_hue", "scale", "shape", "orientation"),
    (10, 10, 10, 8, 4, 15),
    (3, 64, 64),
)
_MPI3D_NAMES = (
    "object_colour",
    "object_shape",
    "object_size",
    "camera_height",
    "background_colour",
    "horizontal_axis",
    "vertical_axis",
)
MPI3D = Layout(_MPI3D_NAMES, (6, 6, 2, 3, 3, 40, 40), (3, 64, 64))
MPI3D_COMPLEX = Layout(_MPI3D_NAMES, (4, 4, 2, 3, 3, 40, 40), (3, 64, 64))
DIGITS = (60_000, 10_000)
"""Images for training and testing of MNIST and Fashion-MNIST."""
FACES3D = Layout(("identity", "azimuth", "elevation", "lighting"), (50, 21, 11, 11), (1, 64, 64))


def dsprites(*, root: str | Path | None = None, layout: Layout = DSPRITES) -> ArrayWorld:
    """dSprites (Matthey et al. 2017) from its npz file: 737 280 binary images of 64 × 64.

    The array ``imgs`` (item, height, width) holds 0 and 1; ``latents_classes`` (item, 6) holds the grid
    positions, of which the constant colour is left out. The pickled ``metadata`` is never read.

    Args:
        root: the file or its folder; by default the cache folder.
        layout: grid and image shape, the published ones by default.
    """
    path = locate("dsprites", (PUBLISHED["dsprites"].files[0].filename,), root)
    return _world("dsprites", path, layout, _dsprites_blocks(path, layout), DSPRITES)


def shapes3d(*, root: str | Path | None = None, layout: Layout = SHAPES3D) -> ArrayWorld:
    """3D Shapes (Burgess & Kim 2018) from its HDF5 file: 480 000 colour images of 64 × 64.

    The dataset ``images`` holds (item, height, width, channel) bytes and ``labels`` (item, 6) the factors'
    values.

    Args:
        root: the file or its folder; by default the cache folder.
        layout: grid and image shape, the published ones by default.
    """
    path = locate("shapes3d", (PUBLISHED["shapes3d"].files[0].filename,), root)
    return _world("shapes3d", path, layout, _shapes3d_blocks(path, layout), SHAPES3D)


def mpi3d(
    *, root: str | Path | None = None, variant: str = "complex", layout: Layout | None = None
) -> ArrayWorld:
    """MPI3D (Gondal et al. 2019) from one of its npz files: colour images of 64 × 64.

    The array ``images`` holds (item, height, width, channel) bytes in the order of the grid of seven factors:
    460 800 images for ``complex``, which bhowal2024 uses, and 1 036 800 for the others.

    Args:
        root: the file or its folder; by default the cache folder.
        variant: ``complex``, ``real``, ``realistic`` or ``toy``.
        layout: grid and image shape, the published ones by default.
    """
    variants = [entry.variant for entry in PUBLISHED.values() if entry.name == "mpi3d"]
    if variant not in variants:
        raise ValueError(f"variant must be one of {', '.join(map(str, variants))}, got {variant!r}")
    layout = layout or (MPI3D_COMPLEX if variant == "complex" else MPI3D)
    hint = f"fetch it with `unseam data fetch mpi3d --variant {variant}` or pass root= with the file or its folder"
    path = locate("mpi3d", (PUBLISHED[f"mpi3d:{variant}"].files[0].filename,), root, hint=hint)
    blocks = npz_blocks(path, "images", (len(layout), *layout.shape[1:], layout.shape[0]))
    images = (_channels_first(block) for block in blocks)
    return _world("mpi3d", path, layout, images, MPI3D, MPI3D_COMPLEX, variant=variant)


def faces3d(*, root: str | Path | None = None, layout: Layout = FACES3D) -> ArrayWorld:
    """3D Faces (Paysan et al. 2009, rendered by Chen et al. 2018): 127 050 grey images of 64 × 64.

    The file ``basel_face_renders.pth`` is one byte tensor (identity 50, azimuth 21, elevation 11, lighting
    11, height, width); only tensors are read from it, and the same array as .npy is read too.

    Args:
        root: the file or its folder; by default the cache folder. Its licence does not let anyone pass it on.
        layout: grid and image shape, the published ones by default.
    """
    names = ("basel_face_renders.pth", "basel_face_renders.npy")
    path = locate("faces3d", names, root, hint=PUBLISHED["faces3d"].note)
    return _world("faces3d", path, layout, _faces3d_blocks(path, layout))


def mnist(*, root: str | Path | None = None, part: str = "train") -> ArrayWorld:
    """MNIST (LeCun et al. 1998) from its idx files, gzipped or not: grey images of 28 × 28; the factor is the label.

    Args:
        root: the files' folder; by default the cache folder.
        part: ``train`` (60 000), ``test`` (10 000), or ``all``, train first.
    """
    return _digits("mnist", root, part)


def fashion_mnist(*, root: str | Path | None = None, part: str = "train") -> ArrayWorld:
    """Fashion-MNIST (Xiao et al. 2017) from its idx files, as :func:`mnist`.

    Args:
        root: the files' folder; by default the cache folder.
        part: ``train`` (60 000), ``test`` (10 000), or ``all``, train first.
    """
    return _digits("fashion_mnist", root, part)


def _digits(name: str, root: str | Path | None, part: str) -> ArrayWorld:
    parts = {"train": ("train",), "test": ("test",), "all": ("train", "test")}
    if part not in parts:
        raise ValueError(f"part must be one of {', '.join(parts)}, got {part!r}")
    read = [read_part(name, one, root, _check_part) for one in parts[part]]
    return ArrayWorld(
        torch.from_numpy(np.concatenate([images for images, _ in read]))[:, None],
        torch.from_numpy(np.concatenate([labels for _, labels in read]))[:, None].long(),
        name=name,
        factor_names=("label",),
        factor_sizes=(10,),
        options={"part": part},
    )


def _world(
    name: str, path: Path, layout: Layout, blocks: Iterator[np.ndarray], *published: Layout, **options: str
) -> ArrayWorld:
    """The world of a file, which is compared with its published checksum where it has a published layout."""
    if layout in published:
        blocks = _identified(":".join((name, *options.values())), path, blocks)
    return ArrayWorld(
        as_memory_map(path, (len(layout), *layout.shape), blocks),
        layout.factors,
        name=name,
        factor_names=layout.factor_names,
        factor_sizes=layout.factor_sizes,
        options=options,
    )


def _identified(key: str, path: Path, blocks: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    """The same blocks, after the file was compared with its published checksum.

    A conversion has the size and date of its source in its name: whoever finds one need not compare again.
    """
    check_published(PUBLISHED[key].files[0], path)
    yield from blocks


def _check_part(name: str, path: Path, items: int) -> None:
    """Compare an idx file that has as many items as the published one with its checksum.

    Only where its content is known too: copies that were compressed again are common.
    """
    files = {_plain(file): file for file in PUBLISHED[name].files}
    file = files.get(path.name.removesuffix(".gz").replace(".", "-"))
    if file is not None and file.content and items in DIGITS:
        check_published(file, path)


def _plain(file: RemoteFile) -> str:
    return file.filename.removesuffix(".gz")


def _dsprites_blocks(path: Path, layout: Layout) -> Iterator[np.ndarray]:
    """Images as bytes 0 and 255, after the order of the items was checked."""
    classes = npz_array(path, "latents_classes", (len(layout), 1 + len(layout.factor_sizes)))
    _check_order(path, "latents_classes", classes[:, 1:], layout)
    for block in npz_blocks(path, "imgs", (len(layout), *layout.shape[1:])):
        if block.max() > 1:
            raise DamagedFileError(f"{path}: array 'imgs' must hold 0 and 1 only, got {block.max()}")
        yield block * np.uint8(255)


def _shapes3d_blocks(path: Path, layout: Layout) -> Iterator[np.ndarray]:
    """Images with channels first, after the order of the items was checked."""
    labels = np.concatenate(list(hdf5_blocks(path, "labels", (len(layout), len(layout.factor_sizes)))))
    positions = np.stack([np.unique(column, return_inverse=True)[1].ravel() for column in labels.T], axis=1)
    _check_order(path, "labels", positions, layout)
    for block in hdf5_blocks(path, "images", (len(layout), *layout.shape[1:], layout.shape[0])):
        if block.dtype != np.uint8:
            raise DamagedFileError(f"{path}: array 'images' must be uint8, got {block.dtype}")
        yield _channels_first(block)


def _faces3d_blocks(path: Path, layout: Layout) -> Iterator[np.ndarray]:
    array = tensor_array(path, (*layout.factor_sizes, *layout.shape[1:]))
    yield from (identity.reshape(-1, *layout.shape) for identity in array)


def _channels_first(block: np.ndarray) -> np.ndarray:
    return np.moveaxis(block, -1, 1)


def _check_order(path: Path, name: str, positions: np.ndarray, layout: Layout) -> None:
    if not np.array_equal(positions, layout.factors.numpy()):
        raise DamagedFileError(
            f"{path}: array {name!r} must run through the grid {layout.factor_sizes} in order, and does not; "
            "is this the published file?"
        )
