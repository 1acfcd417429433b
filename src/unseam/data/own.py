"""Data of the user's own: folders of images, arrays, tables, AnnData and Hugging Face files as one world."""

from __future__ import annotations

import io
import json
import math
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from unseam.data.array import ArrayWorld
from unseam.data.arrays import hdf5_dataset, hdf5_file, hdf5_place, hdf5_values
from unseam.data.files import as_memory_map, home
from unseam.files import check_memory, open_file, read_arrays, read_table
from unseam.geometry.memory import free_memory
from unseam.inputs import as_tensor, check_choice, check_count, check_flag

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["OwnData", "open_data"]

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
# Decoders that may open them, whatever their name: that of EPS would run what a file holds.
DECODERS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
ARRAYS = (".npy", ".npz", ".safetensors")
TABLES = (".csv", ".tsv", ".parquet")
FORMATS = (
    "a folder of images, .npy, .npz, .safetensors, .csv, .tsv, .parquet, .h5ad, a saved Hugging Face dataset"
)
# Names that arrays of data go by in .npz and .safetensors files with more than one.
DATA_NAMES = ("x", "data", "images", "imgs", "X", "arr_0")
# Values that are looked at or converted at once: 64 MB in single precision.
AT_ONCE = 1 << 24
# Pixels of an image file that are decoded at most.
LARGEST_IMAGE = 1 << 28
# Fraction of the free memory that a table may take; a larger one is mapped from disk.
IN_MEMORY = 0.5
CPU = torch.device("cpu")


class OwnData(NamedTuple):
    """Data of the user's own as a world, with the likelihood that suits them."""

    world: ArrayWorld
    likelihood: str
    """``bernoulli`` for values within [0, 1], ``negative_binomial`` for other counts, else ``gaussian``."""
    notes: tuple[str, ...]
    """What was recognised and converted, a sentence each."""
    covariates: tuple[str, ...] = ()
    """What the last values of an item are, where they are covariates (see :class:`unseam.models.WithCovariates`)."""


@dataclass(frozen=True)
class _Source:
    """Items before they are interpreted: ``read(start, stop)`` gives rows of an array of this shape and type."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[int, int], NDArray[Any]]
    factors: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    covariates: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    whole: NDArray[Any] | None = None
    columns: tuple[str, ...] = ()


class _Scan(NamedTuple):
    """What one pass over the items shows; mean and deviation are 0 where moments were not asked for."""

    least: float
    most: float
    whole: bool
    missing: int
    rows: int
    where: list[int]
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]


def open_data(
    data: object,
    *,
    factors: str | Path | Sequence[str] | NDArray[Any] | torch.Tensor | None = None,
    covariates: str | Sequence[str] = (),
    size: int | None = None,
    fit: Literal["resize", "crop"] = "resize",
    standardise: bool = False,
    layer: str | None = None,
    column: str | None = None,
    split: str | None = None,
    drop: str | Sequence[str] = (),
    missing: Literal["refuse", "mask"] = "refuse",
) -> OwnData:
    """Data of one's own as a world, with notes on what they were recognised as; nothing in a file can run code.

    A table that takes more than half of the free memory is mapped from disk: the file itself where its values can be
    used as they are, else a conversion beside it or in the cache folder.

    Args:
        data: path of a folder of images (searched recursively), ``.npy``, ``.npz``, ``.safetensors``, ``.csv``,
            ``.tsv``, ``.parquet``, ``.h5ad``, or of a saved Hugging Face dataset; or an array, a tensor, a table of
            pandas, a ``torch.utils.data.Dataset``, an AnnData object or a Hugging Face dataset.
        factors: known factors: columns of a table, of ``obs`` or of a dataset, separated by commas or as a sequence;
            a file of them (an array, or a table with one row per item, which is matched by a column ``file`` where it
            has one); or an array (item, factor). ``.npz`` files may hold ``factors`` and ``factor_names``.
        covariates: columns of a table, of ``obs`` or of a dataset that shift the parameter of each value, such as a
            batch, so that latents need not explain them: text and integers as categories, floats as numbers. They
            stand as the last values of each item, centred.
        size: side of square images in pixels; by default as they are, if they are all alike.
        fit: ``"resize"`` scales each side to ``size``, ``"crop"`` first cuts out the largest central square.
        standardise: whether to shift and scale each value to mean 0 and variance 1 over all items.
        layer: layer of an AnnData file, instead of ``X``.
        column: the column of a Hugging Face dataset that holds the items.
        split: part of a Hugging Face dataset that was saved in several.
        drop: columns of a table that are left out, such as an identifier.
        missing: ``"refuse"`` NaN, or leave them for a likelihood that masks them.

    >>> found = open_data(np.arange(12).reshape(3, 4))
    >>> found.likelihood, found.world.shape
    ('negative_binomial', (4,))
    """
    check_choice("fit", fit, ("resize", "crop"))
    check_choice("missing", missing, ("refuse", "mask"))
    check_flag("standardise", standardise)
    if size is not None:
        check_count("size", size)
    path = _path(data)
    columns = _names(factors)
    apart = _names(covariates) or ()
    wanted = tuple(dict.fromkeys((*(columns or ()), *apart)))
    given = {
        "size": size,
        "fit": None if fit == "resize" else fit,
        "layer": layer,
        "column": column,
        "split": split,
        "drop": list(_names(drop) or ()) or None,
    }
    source, used = _open(data, path, wanted, given)
    source = replace(
        source,
        covariates={name: source.factors[name] for name in apart},
        factors={
            name: values for name, values in source.factors.items() if not apart or name in (columns or ())
        },
    )
    if unused := [name for name, value in given.items() if value is not None and name not in used]:
        known = ", ".join(used) or "none of these"
        raise ValueError(
            f"{unused[0]} must be left out: {source.name} takes {known}; got {given[unused[0]]!r}"
        )
    if factors is not None and columns is None:
        source = replace(source, factors=_read_factors(factors, source))
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if standardise:
        options["standardise"] = True
    if missing == "mask":
        options["missing"] = missing
    if apart:
        options["covariates"] = list(apart)
    if columns is not None:
        options["factors"] = list(columns)
    elif isinstance(factors, str | Path):
        options["factors"] = str(Path(factors).absolute())
    if path is not None:
        options["path"] = str(path.absolute())
    return _world(source, path, options, standardise=standardise, mask=missing == "mask")


def _path(data: object) -> Path | None:
    if not isinstance(data, str | Path):
        return None
    path = Path(data).expanduser()
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; data must be {FORMATS}")
    return path


def _names(factors: object) -> tuple[str, ...] | None:
    """Columns that are named as factors; none where factors are a file or an array."""
    if isinstance(factors, str):
        if Path(factors).suffix in (*ARRAYS, *TABLES) and "," not in factors:
            return None
        return tuple(name.strip() for name in factors.split(","))
    named = isinstance(factors, Sequence) and all(isinstance(name, str) for name in factors)
    return tuple(factors) if named else None  # type: ignore[arg-type]


def _open(
    data: Any, path: Path | None, columns: tuple[str, ...], given: Mapping[str, Any]
) -> tuple[_Source, tuple[str, ...]]:
    """The source that data are, and which options it takes."""
    if path is None:
        return _open_object(data, columns, given)
    name = path.stem if path.is_file() else path.absolute().name
    suffix = path.suffix.lower()
    if path.is_dir():
        marks = ("dataset_info.json", "dataset_dict.json")
        if any((path / mark).exists() for mark in marks) or any(path.glob("data-*.arrow")):
            return _arrow(name, _arrow_table(path, given["split"]), columns, given)
        _no_columns(columns, "a folder of images")
        return _images(name, path, given["size"], given["fit"] or "resize"), ("size", "fit")
    open_file(path).close()
    if suffix in ARRAYS:
        return _array_file(name, path, columns), ()
    if suffix in TABLES:
        return _table(name, _read_frame(path), columns, given["drop"] or ()), ("drop",)
    if suffix == ".h5ad":
        return _h5ad(name, path, columns, given["layer"]), ("layer",)
    if suffix in IMAGES:
        raise ValueError(f"data must be {FORMATS}; {path} is a single image: give its folder")
    raise ValueError(f"data must be {FORMATS}; got {path}")


def _no_columns(columns: tuple[str, ...], what: str) -> None:
    if columns:
        raise ValueError(
            f"factors must be a file or an array for {what}, and covariates be left out, as it has no columns; got "
            f"{', '.join(columns)}"
        )


def _check_columns(names: Iterable[str], known: Iterable[Any], where: str, what: str = "factors") -> None:
    titles = [str(title) for title in known]
    if absent := [name for name in names if name not in titles]:
        raise ValueError(f"{what} must name columns of {where} ({', '.join(titles)}), got {absent[0]!r}")


def _check_layer(layer: str, known: Iterable[str]) -> None:
    titles = list(known)
    if layer not in titles:
        raise ValueError(f"layer must be one of {', '.join(titles) or 'none'}, got {layer!r}")


def _open_object(
    data: Any, columns: tuple[str, ...], given: Mapping[str, Any]
) -> tuple[_Source, tuple[str, ...]]:
    """The source that an object is; libraries are recognised where they have been imported."""
    pandas, anndata, datasets = (sys.modules.get(name) for name in ("pandas", "anndata", "datasets"))
    if pandas is not None and isinstance(data, pandas.DataFrame):
        return _table("table", data, columns, given["drop"] or ()), ("drop",)
    if anndata is not None and isinstance(data, anndata.AnnData):
        return _anndata(data, columns, given["layer"]), ("layer",)
    if datasets is not None and isinstance(data, datasets.Dataset):
        return _arrow("dataset", data.with_format("arrow")[:], columns, given)
    if isinstance(data, torch.utils.data.DataLoader):
        raise ValueError("data must be a Dataset, not a DataLoader: pass loader.dataset")
    if isinstance(data, torch.utils.data.Dataset):
        return _dataset(data, columns), ()
    _no_columns(columns, "an array")
    if isinstance(data, np.ndarray) and data.dtype.kind in "biuf" and data.ndim:
        return _array("array", data), ()
    return _array("array", as_tensor("data", data).detach().cpu().numpy()), ()


def _array(name: str, array: NDArray[Any], **more: Any) -> _Source:
    return _Source(name, array.shape, array.dtype, lambda a, b: array[a:b], whole=array, **more)


def _array_file(name: str, path: Path, columns: tuple[str, ...]) -> _Source:
    """The array of a file, mapped into memory where the format allows; with factors where it holds them."""
    _no_columns(columns, "an array file")
    if path.suffix == ".npy":
        (array,) = read_arrays(path).values()
        return _array(name, array)
    held = read_arrays(path)
    factors, names = held.pop("factors", None), held.pop("factor_names", None)
    found = next((key for key in (DATA_NAMES if len(held) > 1 else held) if key in held), None)
    if found is None:
        raise ValueError(
            f"{path} must hold one array beside factors and factor_names, or one named {', '.join(DATA_NAMES)}; "
            f"got {', '.join(sorted(held)) or 'none'}"
        )
    notes = (f"items are the array {found!r}",) if len(held) > 1 else ()
    source = _array(name, held[found], notes=notes)
    if factors is None:
        return source
    return replace(source, factors=_named_columns(factors, names, f"factors in {path}"))


def _named_columns(values: Any, names: Any, what: str) -> dict[str, NDArray[Any]]:
    """Columns of an array (item, factor) or (item,) by name."""
    array = np.asarray(values.detach().cpu() if isinstance(values, torch.Tensor) else values)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or array.dtype.kind not in "biufUS":
        raise ValueError(f"{what} must have shape (item, factor), got {array.dtype} of shape {array.shape}")
    default = [f"factor {i}" for i in range(array.shape[1])]
    titles = default if names is None else [str(name) for name in np.ravel(names)]
    if len(titles) != array.shape[1] or len(set(titles)) < len(titles):
        raise ValueError(
            f"factor_names must name each of {array.shape[1]} factors once, got {', '.join(titles)}"
        )
    return dict(zip(titles, array.T, strict=True))


def _read_factors(factors: Any, source: _Source) -> dict[str, NDArray[Any]]:
    """Factors from a file or an array of their own, one row per item."""
    if not isinstance(factors, str | Path):
        return _named_columns(factors, None, "factors")
    path = Path(factors)
    if not path.exists():
        raise FileNotFoundError(f"factors must name columns or a file, and {path} does not exist")
    if path.suffix in ARRAYS:
        held = read_arrays(path)
        names = held.pop("factor_names", None)
        values = held.get("factors", next(iter(held.values()), None))
        if values is None or (len(held) > 1 and "factors" not in held):
            raise ValueError(
                f"{path} must hold one array of factors, got {', '.join(sorted(held)) or 'none'}"
            )
        return _named_columns(values, names, f"factors in {path}")
    table = _read_frame(path)
    key = next((name for name in ("file", "file_name") if name in table), None)
    if key is not None and source.columns:
        table = table.set_index(table[key].astype(str)).drop(columns=key)
        absent = [file for file in source.columns if file not in table.index]
        if absent or not table.index.is_unique:
            raise ValueError(
                f"column {key!r} of {path} must name each image once, by its path in the folder; {len(absent)} have "
                f"no row{', such as ' + absent[0] if absent else ''}"
            )
        table = table.loc[list(source.columns)]
    return {str(name): table[name].to_numpy() for name in table}


def _read_frame(path: Path) -> pd.DataFrame:
    """A table from CSV, TSV or Parquet; its ``attrs`` hold notes on what was recognised."""
    import pandas as pd

    if path.suffix == ".parquet":
        return read_table(path)
    with open_file(path) as file:
        check_memory(4 * path.stat().st_size, str(path))
        head = file.readline()
        usual = b"\t" if path.suffix == ".tsv" else b","
        mark = usual if usual in head else next((mark for mark in (b";", b"\t", b"|") if mark in head), usual)

        def read(decimal: str) -> pd.DataFrame:
            file.seek(0)
            return pd.read_csv(file, sep=mark.decode(), decimal=decimal)

        try:
            table, notes = read("."), [] if mark == usual else [f"columns are separated by {mark.decode()!r}"]
            if mark == b";" and len(_texts(other := read(","))) < len(_texts(table)):
                table = other
                notes.append("decimals are written with commas")
        except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} must be a table with a header line: {str(error).strip()}") from None
    titles = [str(title) for title in table]
    if titles != list(map(str, range(len(titles)))) and all(map(_is_number, titles)):
        notes.append(f"the first line, {titles[0]}, …, was taken as names of columns")
    table.attrs["notes"] = tuple(notes)
    return table


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _texts(table: pd.DataFrame) -> list[str]:
    """Columns that do not hold numbers."""
    import pandas as pd

    return [str(title) for title in table if not pd.api.types.is_numeric_dtype(table[title].dtype)]


def _table(name: str, table: pd.DataFrame, columns: tuple[str, ...], drop: Sequence[str]) -> _Source:
    """Numeric columns as items, others only as factors."""
    import pandas as pd

    notes: tuple[str, ...] = tuple(table.attrs.get("notes", ()))
    titles = [str(title) for title in table]
    if len(set(titles)) < len(titles):
        raise ValueError(f"{name} must name each column once, got {', '.join(titles)}")
    table = table.set_axis(titles, axis=1)
    if titles and titles[0].startswith("Unnamed:") and table.iloc[:, 0].tolist() == list(range(len(table))):
        table, notes = table.iloc[:, 1:], (*notes, "the first column, which counts rows, was left out")
    _check_columns(columns, table, name)
    _check_columns(drop, table, name, "drop")
    values = table.drop(columns=[*columns, *drop])
    if not len(table):
        raise ValueError(f"{name} must hold at least one row below its header, got none")
    if len(titles) == 1 and (mark := next((mark for mark in ";\t|" if mark in titles[0]), None)):
        raise ValueError(f"{name} must have several columns, got {titles[0]!r}: is {mark!r} its separator?")
    if words := _texts(values):
        are, as_factors, them = (
            ("is", "it as a factor", "it") if len(words) == 1 else ("are", "them as factors", "them")
        )
        raise ValueError(
            f"{name} must hold numbers, but {', '.join(map(repr, words))} {are} text{_say_odd(values[words[0]])}: "
            f"name {as_factors} (--factors), or leave {them} out (--data-option drop={','.join(words)})"
        )
    if values.empty:
        raise ValueError(
            f"{name} must have columns of numbers beside its factors, got {len(table)} rows of none"
        )
    array = values.to_numpy("float64", na_value=math.nan)
    if all(pd.api.types.is_integer_dtype(kind) for kind in values.dtypes):
        array = array.astype(np.int64)
    source = _array(name, array, notes=notes, columns=tuple(map(str, values)))
    return replace(source, factors={column: table[column].to_numpy() for column in columns})


def _say_odd(column: pd.Series[Any]) -> str:
    """What of a column of text is no number, where most of it is."""
    import pandas as pd

    odd = column[pd.to_numeric(column, errors="coerce").isna() & column.notna()]
    return f" ({odd.iloc[0]!r} in {len(odd)} of {len(column)} rows)" if len(odd) < len(column) / 2 else ""


def _images(name: str, folder: Path, size: int | None, fit: str) -> _Source:
    """Image files of a folder and those below, in the order of their paths."""
    files = sorted(
        file
        for file in folder.rglob("*")
        if file.suffix.lower() in IMAGES
        and file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    )
    if not files:
        raise ValueError(
            f"{folder} must hold images ({', '.join(IMAGES)}) or a saved Hugging Face dataset, got none"
        )
    source = _pictures(name, files, size, fit, str(folder))
    return replace(source, columns=tuple(file.relative_to(folder).as_posix() for file in files))


def _look(file: Path | bytes) -> tuple[int, int, bool]:
    """Width, height and whether an image has colours, from its head."""
    with _image(file) as image:
        grey = image.mode in ("1", "L", "LA", "I", "I;16", "F")
        width, height = image.size[:: -1 if _orientation(image) > 4 else 1]
        return width, height, not grey


def _orientation(image: Any) -> int:
    """How a camera was held, as EXIF counts it: 1 upright, above 4 on its side."""
    if image.format not in ("JPEG", "MPO", "TIFF", "WEBP"):  # of others the whole picture would be decoded
        return 1
    try:
        return int(image.getexif().get(0x0112, 1))
    except Exception:  # damaged EXIF says nothing
        return 1


def _read_each(files: Sequence[Path | bytes], read: Callable[[Path | bytes], Any], where: str) -> list[Any]:
    """What ``read`` returns of every file; all that cannot be read are counted in one error."""
    found, refused = [], []
    for file in files:
        try:
            found.append(read(file))
        except ValueError as error:
            refused.append(str(error))
    if len(refused) > 1:
        raise ValueError(
            f"{len(refused)} images of {where} cannot be read, such as: {'; '.join(refused[:3])}"
        )
    if refused:
        raise ValueError(refused[0])
    return found


@contextmanager
def _image(file: Path | bytes) -> Iterator[Any]:
    """An image whose head was read, of a size that can be decoded."""
    from PIL import Image, UnidentifiedImageError

    name = file if isinstance(file, Path) else "an image of the dataset"
    with open_file(file) if isinstance(file, Path) else io.BytesIO(file) as opened:
        try:
            image = Image.open(opened, formats=DECODERS)
        except UnidentifiedImageError:
            raise ValueError(f"{name} is no image that can be read: its format is not known") from None
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise ValueError(f"{name} is no image that can be read: {error}") from None
        if math.prod(image.size) > LARGEST_IMAGE:
            raise ValueError(
                f"{name} must have at most {LARGEST_IMAGE} pixels, got {image.size[0]} x {image.size[1]}"
            )
        yield image


def _pictures(name: str, files: Sequence[Path | bytes], size: int | None, fit: str, where: str) -> _Source:
    """Encoded images as bytes (item, channel, height, width)."""
    looks = _read_each(files, _look, where)
    sides = sorted({look[:2] for look in looks})
    if size is None and len(sides) > 1:
        raise ValueError(
            f"images of {where} have {len(sides)} sizes, from {sides[0][0]} x {sides[0][1]} to {sides[-1][0]} x "
            f"{sides[-1][1]} pixels: pass size= (--size) for a side of all"
        )
    colour = any(look[2] for look in looks)
    width, height = sides[0] if size is None else (size, size)
    shape = (len(files), 3 if colour else 1, height, width)
    notes = [f"{len(files)} {'colour' if colour else 'grey'} images, scaled from bytes to [0, 1]"]
    if size is not None and sides != [(size, size)]:
        done = "resized" if fit == "resize" else "cropped to their central square and resized"
        notes.append(f"images were {done} to {size} x {size} pixels")

    def read(start: int, stop: int) -> NDArray[Any]:
        return np.stack(
            _read_each(files[start:stop], lambda file: _decode(file, colour, (width, height), fit), where)
        )

    return _Source(name, shape, np.dtype(np.uint8), read, notes=tuple(notes))


def _decode(file: Path | bytes, colour: bool, sides: tuple[int, int], fit: str) -> NDArray[Any]:
    from PIL import Image, ImageOps

    try:
        with _image(file) as image:
            if image.mode in ("I;16", "I", "F"):
                raise ValueError("it has more than 8 bits per value: convert it, or pass an array")
            upright = ImageOps.exif_transpose(image) if _orientation(image) > 1 else image
            picture = upright.convert("RGB" if colour else "L")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(
            f"{file if isinstance(file, Path) else 'an image'} cannot be read: {error}"
        ) from None
    if picture.size != sides:
        side = min(picture.size)
        left, top = ((length - side) // 2 for length in picture.size)
        box = (left, top, left + side, top + side) if fit == "crop" else None
        picture = picture.resize(
            sides, Image.Resampling.BOX if side > 2 * max(sides) else Image.Resampling.BICUBIC, box
        )
    array = np.asarray(picture)
    return array.transpose(2, 0, 1) if colour else array[None]


def _dataset(data: Any, columns: tuple[str, ...]) -> _Source:
    """A map-style torch data set: items, or pairs of an item and its label, which becomes a factor."""
    _no_columns(columns, "a torch Dataset")
    try:
        count = len(data)
    except TypeError:
        raise ValueError(
            "data must be a Dataset with a length; collect an IterableDataset into an array"
        ) from None
    if not count:
        raise ValueError("data must hold at least one item, got an empty Dataset")

    def item(index: int) -> tuple[NDArray[Any], Any]:
        held = data[index]
        if isinstance(held, Mapping):
            raise ValueError(
                "items of the Dataset must be arrays or pairs (item, label), got a dict with "
                f"{', '.join(map(str, held))}"
            )
        first, label = (
            (held[0], held[1] if len(held) > 1 else None) if isinstance(held, tuple | list) else (held, None)
        )
        return as_tensor(f"item {index} of the Dataset", np.asarray(first)).numpy(), label

    first, label = item(0)
    pairs = label is not None
    labels = np.stack([np.asarray(item(i)[1]) for i in range(count)]) if pairs else None

    def read(start: int, stop: int) -> NDArray[Any]:
        rows = [item(index)[0] for index in range(start, stop)]
        if any(row.shape != first.shape for row in rows):
            raise ValueError(f"items of the Dataset must all have shape {first.shape}")
        return np.stack(rows)

    factors = (
        {} if labels is None else _named_columns(labels, ["label"] if labels.ndim == 1 else None, "labels")
    )
    return _Source("dataset", (count, *first.shape), first.dtype, read, factors)


def _anndata(data: Any, columns: Sequence[str], layer: str | None) -> _Source:
    """An AnnData object: ``X`` or a layer, dense or sparse, with columns of ``obs`` as factors."""
    if layer is not None:
        _check_layer(layer, data.layers)
    values = data.X if layer is None else data.layers[layer]
    _check_columns(columns, data.obs, "obs")

    def read(start: int, stop: int) -> NDArray[Any]:
        rows = values[start:stop]
        return np.asarray(rows if isinstance(rows, np.ndarray) else rows.toarray())

    found = {}
    for name in columns:
        column = data.obs[name]
        if getattr(getattr(column, "cat", None), "categories", np.empty(0, int)).dtype.kind == "f":
            column = column.cat.rename_categories(str)
        found[name] = column.to_numpy()
    return _Source(
        "anndata", values.shape, np.dtype(values.dtype), read, found, columns=tuple(map(str, data.var_names))
    )


def _h5ad(name: str, path: Path, columns: Sequence[str], layer: str | None) -> _Source:
    """An AnnData file, read with h5py: ``X`` or a layer, dense or CSR, with columns of ``obs`` as factors."""
    where = "X" if layer is None else f"layers/{layer}"
    with hdf5_file(path) as file:
        for name_in_file in (where, "obs"):
            hdf5_place(file, name_in_file, path)
        if layer is not None:
            _check_layer(layer, sorted(file.get("layers", ())))
        if where not in file:
            raise ValueError(f"{path} must hold {where!r}, got {', '.join(sorted(file))}")
        kind = str(file[where].attrs.get("encoding-type", "array"))
        obs = sorted(key for key in getattr(file.get("obs"), "keys", tuple)() if not key.startswith("_"))
        _check_columns(columns, obs, "obs")
        factors = {column: _obs_column(file, column, path) for column in columns}
        columns_first = kind == "csc_matrix"
        if kind in ("csr_matrix", "csc_matrix"):
            stated = np.asarray(file[where].attrs["shape"])
            shape = tuple(stated.tolist()) if stated.dtype.kind in "iu" and stated.shape == (2,) else (0, 0)
            parts = [hdf5_dataset(file, f"{where}/{part}", path) for part in ("data", "indices", "indptr")]
            dtype, ends = parts[0].dtype, hdf5_values(file, f"{where}/indptr", path)
            integers = ends.dtype.kind in "iu" and parts[1].dtype.kind in "iu" and parts[1].ndim == 1
            sound = min(shape) > 0 and integers and len(ends) == shape[columns_first] + 1 and ends[0] == 0
            ends = ends.astype(np.int64)
            if not sound or (np.diff(ends) < 0).any() or not ends[-1] == len(parts[0]) == len(parts[1]):
                raise ValueError(f"{path}: {where!r} is damaged: its rows do not add up to shape {stated}")
        elif kind in ("array", ""):
            data = hdf5_dataset(file, where, path)
            if data.ndim != 2:
                raise ValueError(f"{path}: {where!r} must have shape (cell, gene), got {data.shape}")
            shape, dtype, ends = data.shape, data.dtype, np.empty(0, np.int64)
        else:
            raise ValueError(
                f"{path}: {where!r} must be an array or a CSR or CSC matrix, got {kind}: convert it first"
            )
        notes = (f"items are {where}, {shape[0]} cells of {shape[1]} genes",)
        if columns_first:
            return _Source(name, shape, dtype, _csc_reader(path, where, parts, shape), factors, notes=notes)

    def read(start: int, stop: int) -> NDArray[Any]:
        with hdf5_file(path) as file:
            if not len(ends):
                return np.asarray(hdf5_dataset(file, where, path)[start:stop])
            block = np.zeros((stop - start, shape[1]), dtype)
            span = slice(ends[start], ends[stop])
            index = hdf5_dataset(file, f"{where}/indices", path)[span]
            if len(index) and not 0 <= index.min() <= index.max() < shape[1]:
                raise ValueError(f"{path}: {where!r} is damaged: indices outside of {shape[1]} columns")
            rows = np.repeat(np.arange(stop - start), np.diff(ends[start : stop + 1]))
            block[rows, index] = hdf5_dataset(file, f"{where}/data", path)[span]
            return block

    return _Source(name, shape, dtype, read, factors, notes=notes)


def _csc_reader(
    path: Path, where: str, parts: Sequence[Any], shape: tuple[int, ...]
) -> Callable[[int, int], NDArray[Any]]:
    """Rows of a matrix that is stored by columns: its stored values are brought into memory at once."""
    from scipy import sparse

    check_memory(4 * sum(part.nbytes for part in parts), f"{where} of {path}")
    try:
        matrix = sparse.csc_matrix(tuple(part[:] for part in parts), shape=shape)
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise ValueError(f"{path}: {where!r} is damaged: {error}") from None
    rows = matrix.tocsr()
    return lambda start, stop: np.asarray(rows[start:stop].toarray())


def _obs_column(file: Any, column: str, path: Path) -> NDArray[Any]:
    """A column of ``obs``: numbers, text, or categories and their codes."""
    where = f"obs/{column}"
    hdf5_place(file, where, path)
    if file[where].attrs.get("encoding-type") == "categorical":
        codes = hdf5_values(file, f"{where}/codes", path).astype(np.int64)
        if len(codes) and codes.min() < 0:
            raise ValueError(
                f"factors and covariates must have no missing values, got {int((codes < 0).sum())} in {column!r}"
            )
        names = f"{where}/categories"
        if (
            "values" in getattr(file.get(names), "keys", tuple)()
        ):  # text that may be missing has a mask beside it
            names = f"{names}/values"
        if names not in file:
            return codes
        categories = hdf5_values(file, names, path, text=True)
        if len(codes) and codes.max() >= len(categories):
            raise ValueError(
                f"{path}: {where!r} is damaged: code {codes.max()} of {len(categories)} categories"
            )
        check_memory(2 * len(codes) * categories.itemsize, f"{where!r} of {path}")
        if categories.dtype.kind == "f":  # declared as categories, doses for example, and so no numbers
            categories = categories.astype(str)
        return np.asarray(categories[codes])
    return hdf5_values(file, where, path, text=True)


def _arrow_table(folder: Path, split: str | None) -> Any:
    """The table of a saved Hugging Face dataset: its Arrow files, which hold no code."""
    import pyarrow as pa

    if (folder / "dataset_dict.json").exists():
        parts = sorted(part.name for part in folder.iterdir() if part.is_dir())
        if split not in parts:
            raise ValueError(
                f"split must be one of {', '.join(parts)}, the parts of {folder} (--data-option split={parts[0]}); "
                f"got {split!r}"
            )
        folder = folder / split
    files = sorted(folder.glob("*.arrow"))
    if not files or any(file.name.startswith("indices") for file in files):
        raise ValueError(
            f"{folder} must hold data-*.arrow as save_to_disk writes them, got {len(files)} files"
        )
    try:
        tables = []
        for file in files:
            open_file(file).close()
            with pa.ipc.open_stream(pa.memory_map(str(file))) as stream:
                tables.append(stream.read_all())
        return pa.concat_tables(tables)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{folder} is damaged: {error}") from None


def _arrow(
    name: str, table: Any, columns: tuple[str, ...], given: Mapping[str, Any]
) -> tuple[_Source, tuple[str, ...]]:
    """A dataset's images, its column of arrays, or else its columns of numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    _check_columns(columns, table.column_names, name)
    kinds = {title: table.schema.field(title).type for title in table.column_names}
    held = [
        title
        for title, kind in kinds.items()
        if title not in columns
        and (pa.types.is_nested(kind) or pa.types.is_binary(kind) or isinstance(kind, pa.ExtensionType))
    ]
    chosen = given["column"]
    if chosen is not None and chosen not in held:
        raise ValueError(f"column must be one of {', '.join(held) or 'none'}, got {chosen!r}")
    if chosen is None and len(held) > 1:
        raise ValueError(f"column must say which of {', '.join(held)} holds the items of {name}")
    takes: tuple[str, ...] = ("column", "split")
    factors = {column: table[column].to_numpy() for column in columns}
    if not held:
        return _table(name, table.to_pandas(), columns, given["drop"] or ()), (*takes, "drop")
    items = table[chosen or held[0]].combine_chunks()
    if items.null_count:
        raise ValueError(
            f"{name} must have no missing items, got {items.null_count} in {chosen or held[0]!r}"
        )
    if isinstance(items, pa.ExtensionArray):
        items = items.storage
    if pa.types.is_struct(items.type):
        items = items.field("bytes")
        if items.null_count:
            raise ValueError(
                f"images of {name} must lie in it, got {items.null_count} that are names of files"
            )
    if pa.types.is_binary(items.type) or pa.types.is_large_binary(items.type):
        files = [value.as_py() for value in items]
        size, fit = given["size"], given["fit"] or "resize"
        source = _pictures(name, files, size, fit, name)
        return replace(source, factors=factors), ("size", "fit", *takes)
    shape = [len(items)]
    while pa.types.is_nested(items.type):
        lengths = sorted(pc.unique(pc.list_value_length(items)).to_pylist(), key=str)
        if len(lengths) != 1 or None in lengths:
            raise ValueError(f"items of {name} must all have one shape, got lengths {lengths}")
        shape.append(lengths[0])
        items = items.flatten()
    return _array(name, items.to_numpy(zero_copy_only=False).reshape(shape), factors=factors), takes


def _world(
    source: _Source, path: Path | None, options: Mapping[str, Any], *, standardise: bool, mask: bool
) -> OwnData:
    """A source as a world, after one look at all of it."""
    if len(source.shape) < 2 or 0 in source.shape:
        raise ValueError(
            f"data must have shape (item, ...) and not be empty, got {source.name} of {source.shape}"
        )
    if source.dtype.kind not in "biuf":
        raise ValueError(f"data must hold numbers, got {source.name} of {source.dtype}")
    _check_room(source, path)
    scan = _scan(source, moments=standardise)
    _check_values(source, scan, standardise=standardise, mask=mask)
    shape, axes, layout = _layout(source.shape[1:])
    notes = [*source.notes, *layout]
    pictures = len(shape) == 3
    binary = scan.whole and scan.least >= 0 and scan.most <= 1
    integers = source.dtype.kind in "biu"
    of_bytes = not standardise and _holds_bytes(source, scan, pictures)
    extra, covariates = _covariates(source.covariates, source.shape[0])
    if covariates and pictures:
        raise ValueError(f"covariates must be left out for pictures, got {', '.join(source.covariates)}")
    # covariates are no bytes
    as_bytes, unit = of_bytes and not covariates, 1.0
    if of_bytes:
        unit = (255 if binary else 1) / (1 if as_bytes else 255)
    if of_bytes and not binary and not any("bytes" in note for note in notes):
        other = "" if pictures else " (counts are passed as another type of integer)"
        what = "bytes" if integers else "whole values"
        notes.append(f"{what} were scaled from 0 to 255 to [0, 1]{other}")
    if pictures and not (of_bytes or standardise) and scan.least >= 0 and 1 < scan.most <= 255:
        notes.append("values above 1 were left as they are: divide by 255 where they are brightnesses")
    if scan.missing:
        notes.append(f"{scan.missing} missing values in {scan.rows} items are masked out of the likelihood")
    if standardise:
        constant = int((scan.deviation == 0).sum())
        zero = f", {constant} that are constant set to 0" if constant else ""
        notes.append(f"values were standardised over all items{zero}")
    notes += _say_covariates(source.covariates, covariates)
    dtype = np.dtype(np.uint8 if as_bytes else np.float32)
    shape = (shape[0] + len(covariates), *shape[1:])
    divisor = np.where(scan.deviation > 0, scan.deviation, 1.0)

    def convert(rows: NDArray[Any], start: int) -> NDArray[Any]:
        rows = (rows - scan.mean) / divisor if standardise else rows
        rows = rows.astype(dtype) * dtype.type(unit)
        if covariates:
            return np.concatenate([rows, extra[start : start + len(rows)]], 1)
        return rows.reshape(-1, *source.shape[1:]).transpose(0, *axes).reshape(-1, *shape)

    plain = source.dtype == dtype and unit == 1 and not (standardise or covariates)
    plain = plain and axes == tuple(sorted(axes))
    held = _place(source, path, options, convert, plain, (source.shape[0], *shape), dtype)
    values, sizes = _factors(source.factors, source.shape[0])
    world = ArrayWorld(
        held,
        values,
        name=source.name,
        factor_names=tuple(source.factors),
        factor_sizes=sizes,
        options=options,
    )
    chosen, why = _likelihood(scan, of_bytes, standardise)
    return OwnData(world, chosen, (*notes, f"likelihood {chosen}, since values {why}"), covariates)


def _check_values(source: _Source, scan: _Scan, *, standardise: bool, mask: bool) -> None:
    """Refuse values that single precision cannot hold, and missing ones where none may be."""
    if not standardise and max(-scan.least, scan.most) > torch.finfo(torch.float32).max:
        raise ValueError(
            f"{source.name} must lie within single precision, got values from {scan.least:g} to {scan.most:g}: "
            f"rescale them, or pass standardise=True"
        )
    if scan.missing and not mask:
        raise ValueError(_say_missing(source, scan))


def _check_room(source: _Source, path: Path | None) -> None:
    """Refuse what neither memory nor a disk can hold, before a look at all of it, which could take for ever."""
    needed = 4 * math.prod(source.shape)
    if source.whole is not None or needed <= free_memory(CPU):
        return
    disks = [] if path is None or path.is_dir() else [path.parent, *(f for f in (home(),) if f.exists())]
    if needed > max((shutil.disk_usage(disk).total for disk in disks), default=0):
        check_memory(needed, f"{source.name} of shape {source.shape}")


def _say_missing(source: _Source, scan: _Scan) -> str:
    """How many values are missing, where, and what to do about it."""
    names = [source.columns[i] for i in scan.where[:5]] if source.columns and len(source.shape) == 2 else []
    where = f", in {', '.join(names)}" if names else ""
    return (
        f"{source.name} must have no missing values, got {scan.missing} (NaN) in {scan.rows} of {source.shape[0]} "
        f"items{where}: fill or drop them, or mask them out of the likelihood with Trial(missing='mask') "
        f"(--missing mask)"
    )


def _say_covariates(names: Iterable[str], titles: Sequence[str]) -> Iterator[str]:
    """What each covariate is and does; categories have a title each."""
    for name in names:
        count = sum(title.startswith(f"{name}=") for title in titles)
        kinds = f"{count} categories" if count else "a number"
        yield f"covariate {name}, {kinds}, shifts the parameter of each value"


def _holds_bytes(source: _Source, scan: _Scan, pictures: bool) -> bool:
    """Whether values are brightnesses from 0 to 255, or zeros and ones of an integer type."""
    integers, whole = source.dtype.kind in "biu", scan.whole and scan.least >= 0
    if source.dtype == np.uint8 or (integers and whole and scan.most <= 1):
        return True
    binary = whole and scan.most <= 1
    return pictures and whole and scan.most <= 255 and (integers or not (binary or scan.missing))


def _likelihood(scan: _Scan, as_bytes: bool, standardise: bool) -> tuple[str, str]:
    if standardise:
        return "gaussian", "are standardised"
    if as_bytes or (scan.least >= 0 and scan.most <= 1):
        return "bernoulli", "are 0 and 1" if scan.whole and scan.most <= 1 else "lie within [0, 1]"
    if scan.whole and scan.least >= 0:
        return "negative_binomial", f"are counts, up to {scan.most:g}"
    return "gaussian", f"are real, from {scan.least:g} to {scan.most:g}"


def _layout(shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], list[str]]:
    """Shape of an item with channels first, the axes that make it so, and what was recognised."""
    if len(shape) == 2:
        return (1, *shape), (1, 2), [f"items of shape {shape} are pictures of one channel"]
    if len(shape) == 3 and shape[2] <= 4 < min(shape[:2]):
        moved = (shape[2], *shape[:2])
        return moved, (3, 1, 2), [f"items of shape {shape} (height, width, channel) were brought to {moved}"]
    return shape, tuple(range(1, len(shape) + 1)), []


def _blocks(source: _Source) -> Iterator[tuple[NDArray[Any], int]]:
    """Consecutive items, and the number of the first."""
    rows = max(1, AT_ONCE // math.prod(source.shape[1:]))
    for start in range(0, source.shape[0], rows):
        yield source.read(start, min(start + rows, source.shape[0])), start


def _scan(source: _Source, *, moments: bool) -> _Scan:
    """Range, whether all values are whole, missing ones, and moments of each value where they are needed."""
    least, most, whole, missing, rows = math.inf, -math.inf, True, 0, 0
    shape = source.shape[1:]
    check_memory(64 * math.prod(shape), source.name)
    count, absent = np.zeros(shape), np.zeros(shape, np.int64)
    mean, squares = np.zeros(shape), np.zeros(shape)
    for values, _ in _blocks(source):
        nan = np.isnan(values) if values.dtype.kind == "f" else np.zeros((), bool)
        if nan.any():
            missing += int(nan.sum())
            rows += int(nan.reshape(len(nan), -1).any(1).sum())
            absent += nan.sum(0)
        if values.dtype.kind == "f" and (infinite := int(np.isinf(values).sum())):
            raise ValueError(f"{source.name} must be finite, got {infinite} infinite values")
        if nan.all() and nan.ndim:
            continue
        least, most = min(least, float(np.nanmin(values))), max(most, float(np.nanmax(values)))
        held = np.where(nan, 0, values) if nan.any() else values
        whole = whole and (values.dtype.kind != "f" or bool((held == np.round(held)).all()))
        if not moments:
            continue
        # Chan, Golub and LeVeque 1983: moments of two parts joined without cancellation
        held = held.astype(np.float64)
        new = (~np.broadcast_to(nan, values.shape)).sum(0)
        total = np.maximum(count + new, 1)
        centre = held.sum(0) / np.maximum(new, 1)
        apart = np.where(nan, 0, held - centre)
        squares += (apart**2).sum(0) + (centre - mean) ** 2 * count * new / total
        mean += (centre - mean) * new / total
        count += new
    if not math.isfinite(least):
        raise ValueError(f"{source.name} must hold values, got missing ones only")
    where = np.flatnonzero(absent).tolist()
    return _Scan(least, most, whole, missing, rows, where, mean, np.sqrt(squares / np.maximum(count, 1)))


def _place(
    source: _Source,
    path: Path | None,
    options: Mapping[str, Any],
    convert: Callable[[NDArray[Any], int], NDArray[Any]],
    plain: bool,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
) -> torch.Tensor | NDArray[Any]:
    """The table of a world: the array itself where it can serve as it is, in memory, or mapped from disk."""
    mapped = isinstance(source.whole, np.memmap)
    if plain and source.whole is not None and (mapped or source.whole.flags.c_contiguous):
        whole = source.whole.reshape(shape)
        native = whole.dtype.newbyteorder("=")
        return whole if mapped else torch.from_numpy(np.require(whole, native, ["C", "W"]))
    needed = math.prod(shape) * dtype.itemsize
    parts = (convert(block, start) for block, start in _blocks(source))
    if path is None or path.is_dir() or needed <= IN_MEMORY * free_memory(CPU):
        check_memory(needed, source.name)
        table, start = np.empty(shape, dtype), 0
        for part in parts:
            table[start : start + len(part)] = part
            start += len(part)
        return torch.from_numpy(table)
    mark = json.dumps(
        {key: value for key, value in options.items() if key not in ("path", "factors")}, sort_keys=True
    )
    return as_memory_map(path, shape, parts, dtype=dtype, mark=mark)


def _covariates(given: Mapping[str, NDArray[Any]], items: int) -> tuple[NDArray[np.float32], tuple[str, ...]]:
    """Covariates (item, column) of mean 0, and their titles: one column per category, a float of variance 1."""
    found, titles = [], []
    for name, values in given.items():
        codes, (size,) = _factors({name: values}, items)
        titles += [name] if size == 0 else [f"{name}={value}" for value in np.unique(_as_text(values))]
        if size > max(2, items // 2):
            raise ValueError(
                f"covariates must have few categories, got {size} of {items} items in {name!r}; a number is a float"
            )
        columns = codes.double().numpy() if size == 0 else np.eye(size)[codes[:, 0].numpy()]
        columns = columns - columns.mean(0)
        deviation = columns.std(0) if size == 0 else np.ones(size)
        found.append(columns / np.where(deviation == 0, 1.0, deviation))
    if not found:
        return np.zeros((items, 0), np.float32), ()
    return np.concatenate(found, 1).astype(np.float32), tuple(titles)


def _factors(columns: Mapping[str, NDArray[Any]], items: int) -> tuple[torch.Tensor, tuple[int, ...]]:
    """Factors (item, factor) and the number of values of each: text and integers are discrete, floats continuous."""
    if not columns:
        return torch.zeros(items, 0, dtype=torch.int64), ()
    found, sizes = [], []
    for name, values in columns.items():
        if values.shape != (items,):
            raise ValueError(f"factors must have one row per item ({items}), got {len(values)} of {name!r}")
        if values.dtype.kind == "f":
            if bad := int((~np.isfinite(values)).sum()):
                raise ValueError(f"factors must be finite, got {bad} missing or infinite values in {name!r}")
            found.append(values.astype(np.float64))
            sizes.append(0)
            continue
        if values.dtype.kind == "O" and (bad := sum(value is None or value != value for value in values)):
            raise ValueError(f"factors and covariates must have no missing values, got {bad} in {name!r}")
        held, codes = np.unique(_as_text(values), return_inverse=True)
        found.append(codes.astype(np.int64))
        sizes.append(len(held))
    table = np.stack(found, 1)
    return torch.from_numpy(table.astype(np.float32) if 0 in sizes else table.astype(np.int64)), tuple(sizes)


def _as_text(values: NDArray[Any]) -> NDArray[Any]:
    """Names of categories as text; numbers stay numbers, so that they keep their order."""
    return values if values.dtype.kind in "biu" else values.astype(str)
