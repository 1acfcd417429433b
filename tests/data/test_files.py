"""Readers of the published formats, on small files of exactly those formats and on the real ones where present."""

import gzip
import os
import re
import shutil
import struct
import zipfile
from collections import namedtuple
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
import torch

from unseam.data import files, load, place
from unseam.data.files import DamagedFileError, MissingFileError, as_memory_map, locate
from unseam.data.grid import grid_factors
from unseam.data.published import Layout, dsprites, faces3d, fashion_mnist, mnist, mpi3d, shapes3d
from unseam.files import DiskFullError, read_table

REAL = Path(os.environ.get("UNSEAM_DATA", Path(__file__).parents[2].parent / "shared" / "data"))
SPRITES = Layout(("shape", "scale", "orientation", "x", "y"), (3, 2, 2, 2, 2), (1, 8, 8))
ROOMS = Layout(
    ("floor_hue", "wall_hue", "object_hue", "scale", "shape", "orientation"), (2, 2, 2, 2, 2, 3), (3, 8, 8)
)
ARMS = Layout(("a", "b", "c", "d", "e", "f", "g"), (2, 1, 2, 1, 3, 2, 2), (3, 8, 8))
HEADS = Layout(("identity", "azimuth", "elevation", "lighting"), (3, 2, 2, 2), (1, 8, 8))
RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache folder of the test's own."""
    folder = tmp_path / "cache"
    monkeypatch.setattr(files, "home", lambda: folder)
    return folder


def write_dsprites(path, **replaced):
    """The npz as it was published, with the names, types and pickled metadata of the real one."""
    grid = grid_factors(torch.arange(len(SPRITES)), SPRITES.factor_sizes).numpy()
    classes = np.concatenate([np.zeros((len(grid), 1), np.int64), grid], axis=1)
    images = RANDOM.integers(0, 2, (len(grid), 8, 8), dtype=np.uint8)
    arrays = {
        "metadata": np.array(
            {"title": "dSprites dataset", "latents_sizes": np.array([1, 3, 2, 2, 2, 2])}, dtype=object
        ),
        "imgs": images,
        "latents_classes": classes,
        "latents_values": classes.astype(np.float64),
    }
    np.savez_compressed(path, **(arrays | replaced))
    return images


def write_shapes3d(path, **replaced):
    grid = grid_factors(torch.arange(len(ROOMS)), ROOMS.factor_sizes).numpy()
    images = RANDOM.integers(0, 256, (len(grid), 8, 8, 3), dtype=np.uint8)
    labels = grid * np.array([0.1, 0.1, 0.1, 0.5 / 7, 1.0, 60 / 14]) + np.array([0, 0, 0, 0.75, 0, -30.0])
    with h5py.File(path, "w") as file:
        for name, array in ({"images": images, "labels": labels} | replaced).items():
            if array is not None:
                file.create_dataset(name, data=array, compression="gzip")
    return images


def write_idx(path, array):
    content = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def write_mnist(folder, *, suffix=".gz", train=7, test=3):
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for part, count in (("train", train), ("t10k", test)):
        written[part] = (
            RANDOM.integers(0, 256, (count, 28, 28), dtype=np.uint8),
            np.arange(count, dtype=np.uint8),
        )
        write_idx(folder / f"{part}-images-idx3-ubyte{suffix}", written[part][0])
        write_idx(folder / f"{part}-labels-idx1-ubyte{suffix}", written[part][1])
    return written


def all_images(world):
    return world.images(torch.arange(len(world)))


def test_dsprites_without_touching_its_pickle(tmp_path):
    path = tmp_path / "dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz"
    images = write_dsprites(path)
    with pytest.raises(ValueError, match="allow_pickle"):
        np.load(path)["metadata"]
    world = dsprites(root=tmp_path, layout=SPRITES)
    assert torch.equal(all_images(world), torch.from_numpy(images)[:, None].float())
    assert torch.equal(world.factors, grid_factors(torch.arange(48), SPRITES.factor_sizes))
    assert (world.name, world.shape, world.dtype) == ("dsprites", (1, 8, 8), torch.uint8)


def test_shapes3d(tmp_path):
    images = write_shapes3d(tmp_path / "3dshapes.h5")
    world = shapes3d(root=tmp_path / "3dshapes.h5", layout=ROOMS)
    assert torch.equal((all_images(world) * 255).round().byte(), torch.from_numpy(images).permute(0, 3, 1, 2))
    assert torch.equal(world.factors, grid_factors(torch.arange(96), ROOMS.factor_sizes))


@pytest.mark.parametrize("filename", ["mpi3d_toy.npz", "real3d_complicated_shapes_ordered.npz"])
def test_mpi3d(tmp_path, filename):
    images = RANDOM.integers(0, 256, (len(ARMS), 8, 8, 3), dtype=np.uint8)
    np.savez(tmp_path / filename, images=images)
    world = mpi3d(root=tmp_path, variant="toy" if "toy" in filename else "complex", layout=ARMS)
    assert torch.equal((all_images(world) * 255).round().byte(), torch.from_numpy(images).permute(0, 3, 1, 2))


@pytest.mark.parametrize("legacy", [True, False])
def test_faces3d_reads_tensors(tmp_path, legacy):
    faces = torch.from_numpy(RANDOM.integers(0, 256, (3, 2, 2, 2, 8, 8), dtype=np.uint8))
    torch.save(faces, tmp_path / "basel_face_renders.pth", _use_new_zipfile_serialization=not legacy)
    world = faces3d(root=tmp_path, layout=HEADS)
    assert torch.equal((all_images(world) * 255).round().byte(), faces.reshape(-1, 1, 8, 8))
    assert world.factor_names == ("identity", "azimuth", "elevation", "lighting")


def test_faces3d_reads_arrays_too(tmp_path):
    faces = RANDOM.integers(0, 256, (3, 2, 2, 2, 8, 8), dtype=np.uint8)
    np.save(tmp_path / "basel_face_renders.npy", faces)
    world = faces3d(root=tmp_path, layout=HEADS)
    assert torch.equal((all_images(world) * 255).round().byte(), torch.from_numpy(faces).reshape(-1, 1, 8, 8))


class Runs:
    """Something whose unpickling would run a function."""

    def __reduce__(self):
        return os.mkdir, ("ran",)


def test_faces3d_runs_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(Runs(), tmp_path / "basel_face_renders.pth")
    with pytest.raises(DamagedFileError, match=r"basel_face_renders\.pth is damaged or cut short"):
        faces3d(root=tmp_path, layout=HEADS)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("suffix", [".gz", ""])
@pytest.mark.parametrize(("read", "folder"), [(mnist, "mnist"), (fashion_mnist, "fashion-mnist")])
def test_idx_files_packed_or_not(tmp_path, suffix, read, folder):
    written = write_mnist(tmp_path / folder, suffix=suffix)
    world = read(root=tmp_path, part="all")
    images = np.concatenate([written["train"][0], written["t10k"][0]])
    assert torch.equal((all_images(world) * 255).round().byte(), torch.from_numpy(images)[:, None])
    assert world.factors[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 6, 0, 1, 2]
    assert [len(read(root=tmp_path, part=part)) for part in ("train", "test")] == [7, 3]


def test_conversion_happens_once_and_is_streamed_as_it_is_held(tmp_path):
    path = tmp_path / "3dshapes.h5"
    write_shapes3d(path)
    first = shapes3d(root=path, layout=ROOMS)
    assert isinstance(first.table, np.memmap)
    converted = list(tmp_path.glob("3dshapes.h5.*.npy"))
    assert len(converted) == 1
    stamp = converted[0].stat().st_mtime_ns
    again = shapes3d(root=path, layout=ROOMS)
    assert converted[0].stat().st_mtime_ns == stamp
    held = place(again, "cpu", budget=1 << 30)
    assert held.resident
    assert torch.equal(all_images(held), all_images(first))
    assert not list(tmp_path.glob(".*.part"))


def test_a_changed_source_is_converted_again(tmp_path):
    path = tmp_path / "3dshapes.h5"
    write_shapes3d(path)
    before = all_images(shapes3d(root=path, layout=ROOMS))
    write_shapes3d(path)
    os.utime(path, ns=(1, 1))
    assert not torch.equal(all_images(shapes3d(root=path, layout=ROOMS)), before)


def test_a_damaged_conversion_is_made_again(tmp_path):
    path = tmp_path / "3dshapes.h5"
    write_shapes3d(path)
    expected = all_images(shapes3d(root=path, layout=ROOMS))
    converted = next(tmp_path.glob("3dshapes.h5.*.npy"))
    converted.write_bytes(converted.read_bytes()[:1000])
    assert torch.equal(all_images(shapes3d(root=path, layout=ROOMS)), expected)


def test_conversion_goes_to_the_cache_where_the_source_cannot_be_written(tmp_path, cache, monkeypatch):
    source = tmp_path / "data" / "3dshapes.h5"
    source.parent.mkdir()
    write_shapes3d(source)
    monkeypatch.setattr(files.os, "access", lambda path, mode: Path(path) != source.parent)
    shapes3d(root=source, layout=ROOMS)
    assert [path.suffix for path in cache.iterdir()] == [".npy"]


def test_full_disk_is_told_before_converting(tmp_path, monkeypatch):
    write_shapes3d(tmp_path / "3dshapes.h5")
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(100, 90, 10))
    with pytest.raises(
        DiskFullError, match=r"3dshapes.h5 needs 0.0 GB for its memory map, but .* has 0.0 GB free"
    ):
        shapes3d(root=tmp_path, layout=ROOMS)


def test_full_disk_while_writing_leaves_nothing_behind(tmp_path):
    def blocks():
        yield np.zeros((1, 4), np.uint8)
        raise OSError(28, "No space left on device")

    (tmp_path / "source").write_bytes(b"x")
    with pytest.raises(DiskFullError, match="became full while writing source"):
        as_memory_map(tmp_path / "source", (2, 4), blocks())
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == ["source"]


@pytest.mark.parametrize("name", ["dsprites", "shapes3d", "mpi3d", "mnist", "fashion_mnist"])
def test_missing_files_say_how_to_get_them(tmp_path, name):
    with pytest.raises(
        FileNotFoundError, match=f"does not hold it; fetch it with `unseam data fetch {name}.*root="
    ):
        load(name, root=tmp_path)
    with pytest.raises(MissingFileError, match=r"absent does not exist; fetch it with"):
        load(name, root=tmp_path / "absent")
    with pytest.raises(MissingFileError, match="cache does not exist"):
        load(name)


def test_faces3d_says_that_it_cannot_be_fetched(tmp_path):
    with pytest.raises(MissingFileError, match=r"licence .* forbids passing it on: ask the authors"):
        load("faces3d", root=tmp_path)


@pytest.mark.parametrize("keep", [0.3, 0.9])
def test_truncated_npz(tmp_path, keep):
    path = tmp_path / "dsprites.npz"
    write_dsprites(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content))])
    with pytest.raises(
        DamagedFileError, match=r"dsprites.npz is damaged or cut short \(.*\); fetch it again"
    ):
        dsprites(root=path, layout=SPRITES)


def test_npz_with_a_flipped_byte(tmp_path):
    path = tmp_path / "mpi3d_toy.npz"
    np.savez(path, images=RANDOM.integers(0, 256, (len(ARMS), 8, 8, 3), dtype=np.uint8))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(DamagedFileError, match="is damaged or cut short"):
        mpi3d(root=path, layout=ARMS)
    assert not list(tmp_path.glob("*.npy"))


@pytest.mark.parametrize("keep", [10, 3000])
def test_truncated_hdf5(tmp_path, keep):
    path = tmp_path / "3dshapes.h5"
    write_shapes3d(path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DamagedFileError, match=r"3dshapes\.h5 is damaged or cut short"):
        shapes3d(root=path, layout=ROOMS)


def test_truncated_tensor(tmp_path):
    path = tmp_path / "basel_face_renders.pth"
    torch.save(torch.zeros(3, 2, 2, 2, 8, 8, dtype=torch.uint8), path)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(DamagedFileError, match="is damaged or cut short"):
        faces3d(root=path, layout=HEADS)


@pytest.mark.parametrize("suffix", [".gz", ""])
def test_truncated_idx(tmp_path, suffix):
    write_mnist(tmp_path, suffix=suffix)
    path = tmp_path / f"train-images-idx3-ubyte{suffix}"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DamagedFileError, match=r"is damaged or cut short.*fetch it again"):
        mnist(root=tmp_path)


def test_wrong_array_names(tmp_path):
    np.savez(tmp_path / "a.npz", pictures=np.zeros((2, 2)))
    expected = r"a.npz must hold an array 'images', got pictures; is this the published file\?"
    with pytest.raises(DamagedFileError, match=expected):
        mpi3d(root=tmp_path / "a.npz", layout=ARMS)
    write_shapes3d(tmp_path / "b.h5", labels=None)
    with pytest.raises(DamagedFileError, match="must hold an array 'labels', got images"):
        shapes3d(root=tmp_path / "b.h5", layout=ROOMS)


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        (
            {"imgs": np.zeros((48, 8, 7), np.uint8)},
            r"'imgs' must be uint8 of shape \(48, 8, 8\), got uint8 of shape",
        ),
        ({"imgs": np.zeros((48, 8, 8))}, "'imgs' must be uint8 .* got float64"),
        ({"imgs": np.full((48, 8, 8), 7, np.uint8)}, "'imgs' must hold 0 and 1 only, got 7"),
        ({"imgs": np.array([{}] * 48, dtype=object)}, "'imgs' must be uint8 .* got object"),
        ({"imgs": np.asfortranarray(np.zeros((48, 8, 8), np.uint8))}, "stored in C order, got Fortran order"),
        (
            {"latents_classes": np.zeros((48, 6), np.int64)},
            r"must run through the grid \(3, 2, 2, 2, 2\) in order",
        ),
        ({"latents_classes": np.zeros((48, 6))}, "'latents_classes' must hold integers, got float64"),
    ],
)
def test_dsprites_of_another_shape(tmp_path, replaced, message):
    write_dsprites(tmp_path / "d.npz", **replaced)
    with pytest.raises(DamagedFileError, match=message):
        dsprites(root=tmp_path / "d.npz", layout=SPRITES)


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"images": np.zeros((96, 8, 8, 1), np.uint8)}, r"'images' must be .* of shape \(96, 8, 8, 3\)"),
        ({"images": np.zeros((96, 8, 8, 3))}, "'images' must be uint8, got float64"),
        ({"labels": RANDOM.random((96, 6))}, "array 'labels' must run through the grid"),
    ],
)
def test_shapes3d_of_another_shape(tmp_path, replaced, message):
    write_shapes3d(tmp_path / "s.h5", **replaced)
    with pytest.raises(DamagedFileError, match=message):
        shapes3d(root=tmp_path / "s.h5", layout=ROOMS)


def test_faces3d_of_another_shape(tmp_path):
    torch.save(torch.zeros(3, 2, dtype=torch.uint8), tmp_path / "f.pth")
    with pytest.raises(
        DamagedFileError, match=r"must be uint8 of shape \(3, 2, 2, 2, 8, 8\), got uint8 of shape"
    ):
        faces3d(root=tmp_path / "f.pth", layout=HEADS)
    torch.save({"a": torch.zeros(1)}, tmp_path / "g.pth")
    with pytest.raises(DamagedFileError, match=r"expected one tensor of shape .* got dict"):
        faces3d(root=tmp_path / "g.pth", layout=HEADS)


def test_a_file_that_is_something_else(tmp_path):
    for name in ("x.npz", "x.h5", "x.pth"):
        (tmp_path / name).write_text("<html>Not found</html>")
    with pytest.raises(DamagedFileError, match=r"x\.npz is damaged"):
        dsprites(root=tmp_path / "x.npz", layout=SPRITES)
    with pytest.raises(DamagedFileError, match=r"x\.h5 is damaged"):
        shapes3d(root=tmp_path / "x.h5", layout=ROOMS)
    with pytest.raises(DamagedFileError, match=r"x\.pth is damaged"):
        faces3d(root=tmp_path / "x.pth", layout=HEADS)
    write_mnist(tmp_path)
    (tmp_path / "train-images-idx3-ubyte.gz").write_text("<html>Not found</html>")
    with pytest.raises(DamagedFileError, match="must be an idx file of bytes, but it starts with 3c68746d"):
        mnist(root=tmp_path)


def test_idx_files_that_do_not_belong_together(tmp_path):
    write_mnist(tmp_path)
    write_idx(tmp_path / "train-labels-idx1-ubyte.gz", np.zeros(6, np.uint8))
    with pytest.raises(DamagedFileError, match=r"one label for each of 7 images, got \(6,\)"):
        mnist(root=tmp_path)
    write_idx(tmp_path / "train-labels-idx1-ubyte.gz", np.full(7, 12, np.uint8))
    with pytest.raises(DamagedFileError, match="labels from 0 to 9, got 12"):
        mnist(root=tmp_path)
    write_idx(tmp_path / "train-images-idx3-ubyte.gz", np.zeros((7, 5, 5), np.uint8))
    with pytest.raises(DamagedFileError, match=r"images \(item, 28, 28\), got shape \(7, 5, 5\)"):
        mnist(root=tmp_path)


def test_options_of_readers_are_checked(tmp_path):
    with pytest.raises(ValueError, match="part must be one of train, test, all, got 'valid'"):
        mnist(root=tmp_path, part="valid")
    with pytest.raises(ValueError, match="variant must be one of complex, toy, realistic, real, got 'big'"):
        mpi3d(root=tmp_path, variant="big")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ValueError, match="root must be the folder of the four idx files"):
        mnist(root=tmp_path / "file")


def test_locate_takes_a_file_a_folder_or_a_folder_of_folders(tmp_path):
    inner = tmp_path / "mnist"
    inner.mkdir()
    (inner / "a.gz").write_bytes(b"")
    for root in (inner / "a.gz", inner, tmp_path):
        assert locate("mnist", ("a.gz",), root) == inner / "a.gz"


def test_large_arrays_are_read_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("unseam.data.arrays.BLOCK", 8 * 8 * 3 * 5)
    images = write_shapes3d(tmp_path / "3dshapes.h5")
    world = shapes3d(root=tmp_path, layout=ROOMS)
    assert torch.equal((all_images(world) * 255).round().byte(), torch.from_numpy(images).permute(0, 3, 1, 2))
    bits = write_dsprites(tmp_path / "d.npz")
    assert torch.equal(
        all_images(dsprites(root=tmp_path / "d.npz", layout=SPRITES))[:, 0].byte(), torch.from_numpy(bits)
    )


def test_published_layouts_have_the_published_sizes():
    from unseam.data import published

    sizes = {
        name: len(getattr(published, name))
        for name in ("DSPRITES", "SHAPES3D", "MPI3D", "MPI3D_COMPLEX", "FACES3D")
    }
    assert list(sizes.values()) == [737_280, 480_000, 1_036_800, 460_800, 127_050]


def test_zip_members_other_than_those_asked_for_are_not_opened(tmp_path, monkeypatch):
    write_dsprites(tmp_path / "d.npz")
    opened = []
    original = zipfile.ZipFile.open
    monkeypatch.setattr(
        zipfile.ZipFile, "open", lambda self, name, *a: opened.append(name) or original(self, name, *a)
    )
    dsprites(root=tmp_path / "d.npz", layout=SPRITES)
    assert opened == ["latents_classes.npy", "imgs.npy"]


@pytest.mark.real_data
@pytest.mark.parametrize(("name", "first"), [("mnist", [5, 0, 4, 1, 9]), ("fashion_mnist", None)])
def test_real_idx_files(name, first):
    if not (REAL / name.replace("_", "-")).is_dir():
        pytest.skip(f"{REAL} does not hold {name}")
    world = load(name, root=REAL, part="all")
    assert len(world) == 70_000
    assert torch.equal(world.factors.unique(), torch.arange(10))
    assert first is None or world.factors[:5, 0].tolist() == first
    assert re.match(r"<world \w+: 70000 items of shape \(1, 28, 28\); factors label \(10\)>", repr(world))


@pytest.mark.parametrize("nested", ["first", "second"])
def test_a_nested_column_beside_a_plain_one_is_refused(tmp_path, nested):
    values = {"first": [1.0, 2.0], "second": [1.0, 2.0]} | {nested: [[1.0], [2.0, 3.0]]}
    pd.DataFrame(values).to_parquet(tmp_path / "table.parquet")
    with pytest.raises(ValueError, match="must hold plain columns, got nested ones"):
        read_table(tmp_path / "table.parquet")
