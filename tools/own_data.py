"""Train on data as anndata and datasets themselves write and hold them, check what is read, and write a dated table."""

from __future__ import annotations

import datetime
import importlib.metadata
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import unseam
from unseam.data import open_data

ROOT = Path(__file__).resolve().parents[1]
RNG = np.random.default_rng(0)
COUNTS = RNG.poisson(np.exp(RNG.normal(size=(300, 2)) @ RNG.normal(size=(2, 20))))
KIND = np.array(["a", "b", "c"])[np.arange(300) % 3]
PICTURES = RNG.integers(0, 256, (60, 16, 20, 3), dtype=np.uint8)


class Case(NamedTuple):
    """Data, how to read them, and what must come out."""

    name: str
    data: Any
    options: dict[str, Any]
    likelihood: str
    values: np.ndarray[Any, Any]
    """Of the items, as a decoder sees them."""


def anndata(folder: Path) -> Iterator[Case]:
    """Objects and files, dense and sparse in either order, a layer, a categorical and a text column."""
    import anndata as library
    import pandas as pd
    from scipy import sparse

    pd.set_option("future.infer_string", False)  # which anndata does not write
    obs = pd.DataFrame({"batch": pd.Categorical(KIND), "kind": KIND}, index=[f"cell{i}" for i in range(300)])
    real = np.log1p(COUNTS).astype(np.float32)
    for name, stored in (
        ("dense", COUNTS.astype(np.float32)),
        ("CSR", sparse.csr_matrix(COUNTS.astype(np.float32))),
        ("CSC", sparse.csc_matrix(COUNTS.astype(np.float32))),
        ("CSR array", sparse.csr_array(COUNTS.astype(np.float32))),
    ):
        cells = library.AnnData(real, obs=obs, layers={"counts": stored})
        options = {"layer": "counts", "factors": "kind,batch"}
        yield Case(f"AnnData, {name}", cells, options, "negative_binomial", COUNTS)
        cells.write_h5ad(folder / f"{name}.h5ad", compression="gzip")
        yield Case(f".h5ad, {name}", folder / f"{name}.h5ad", options, "negative_binomial", COUNTS)
    yield Case(".h5ad, X", folder / "dense.h5ad", {}, "gaussian", real)
    yield Case("AnnData, a view", cells[:, :7][20:220], {"factors": "batch"}, "gaussian", real[20:220, :7])


def datasets(folder: Path) -> Iterator[Case]:
    """Objects and saved folders of pictures, of arrays and of columns of numbers; a split, a selection."""
    import datasets as library
    from PIL import Image

    features = library.Features(
        {"image": library.Image(), "label": library.ClassLabel(names=["a", "b", "c"])}
    )
    rows = {"image": [Image.fromarray(one) for one in PICTURES], "label": [i % 3 for i in range(60)]}
    pictures = library.Dataset.from_dict(rows, features=features)
    expected = PICTURES.transpose(0, 3, 1, 2) / np.float32(255)
    yield Case("Dataset, images", pictures, {"factors": "label"}, "bernoulli", expected)
    library.DatasetDict(train=pictures).save_to_disk(str(folder / "pictures"))
    options = {"split": "train", "factors": "label"}
    yield Case("saved, images of a split", folder / "pictures", options, "bernoulli", expected)
    real = np.log1p(COUNTS).astype(np.float32)
    shape = library.Features({"x": library.Array2D((4, 5), "float32")})
    arrays = library.Dataset.from_dict({"x": list(real.reshape(-1, 4, 5))}, features=shape)
    arrays.save_to_disk(str(folder / "arrays"))
    yield Case("saved, arrays", folder / "arrays", {}, "gaussian", real.reshape(-1, 1, 4, 5))
    columns = library.Dataset.from_dict({f"g{i}": COUNTS[:, i] for i in range(20)} | {"kind": KIND})
    yield Case("Dataset, columns", columns, {"factors": "kind"}, "negative_binomial", COUNTS)
    chosen = columns.select([5, 3, 200, 7])
    yield Case(
        "Dataset, a selection", chosen, {"factors": "kind"}, "negative_binomial", COUNTS[[5, 3, 200, 7]]
    )


def check(case: Case, folder: Path) -> float:
    """Read, train and measure again from the folder of the run; seconds for all of it."""
    began = time.perf_counter()
    found = open_data(case.data, **case.options)
    held = found.world.images(torch.arange(len(found.world)))
    torch.testing.assert_close(held.numpy(), case.values.astype(np.float32), atol=1e-6, rtol=1e-6)
    assert found.likelihood == case.likelihood, found.likelihood
    asked = str(case.options.get("factors", "")).split(",")
    assert found.world.factor_names == tuple(filter(None, asked)), found.world.factor_names
    trial = unseam.Trial(latent=2, steps=20, batch_size=16)
    unseam.train(trial, data=case.data, data_options=case.options, out=folder, progress=False)
    run = unseam.Run.open(folder, data=None if isinstance(case.data, Path) else case.data)
    assert run.inspect(points=20)[0].cosine is not None and not run.remarks()
    return time.perf_counter() - began


def main(names: list[str]) -> int:
    """Check every case, print a table, and write it where all went well."""
    lines, failed = ["| data | version | read, train, measure |", "|---|---|---|"], []
    makers: dict[str, Callable[[Path], Iterator[Case]]] = {"anndata": anndata, "datasets": datasets}
    for library, make in makers.items():
        if names and library not in names:
            continue
        folder = Path(tempfile.mkdtemp())
        for number, case in enumerate(make(folder)):
            try:
                spent = check(case, folder / f"run{number}")
            except Exception as error:
                failed.append(f"{case.name}: {type(error).__name__}: {error}")
                continue
            lines.append(f"| {case.name} | {library} {importlib.metadata.version(library)} | {spent:.1f} s |")
            print(lines[-1], flush=True)
    if not failed and not names:
        text = f"# Data of other libraries, {datetime.date.today()}\n\nBy `python tools/own_data.py`, torch "
        text += f"{torch.__version__}, on {torch.get_num_threads()} threads.\n\n" + "\n".join(lines) + "\n"
        (ROOT / "benchmarks" / "own_data.md").write_text(text, "utf8")
    print("\n".join(failed), file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main(sys.argv[1:]))
