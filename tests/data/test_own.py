"""Data of the user's own: what every format is recognised as, and that runs measure on it again."""

import dataclasses
import json
import os

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from PIL import Image
from scipy import sparse
from typer.testing import CliRunner

import unseam
from unseam.cli import app
from unseam.data import open_data

RNG = np.random.default_rng(0)
Z = RNG.normal(size=(60, 2))
X = (Z @ RNG.normal(size=(2, 5))).astype(np.float32)
GROUP = np.array(["a", "b", "c"])[np.arange(60) % 3]


def write_npy(folder):
    np.save(folder / "mine.npy", X)
    return folder / "mine.npy", {}, "gaussian", (5,), ()


def write_npz(folder):
    np.savez(folder / "mine.npz", x=X, factors=Z, factor_names=["u", "v"])
    return folder / "mine.npz", {}, "gaussian", (5,), ("u", "v")


def frame():
    return pd.DataFrame(X, columns=list("pqrst")).assign(u=Z[:, 0], group=GROUP)


def write_csv(folder):
    frame().to_csv(folder / "mine.csv")
    return folder / "mine.csv", {"factors": "u,group", "standardise": True}, "gaussian", (5,), ("u", "group")


def write_parquet(folder):
    frame().to_parquet(folder / "mine.parquet")
    return folder / "mine.parquet", {"factors": "group"}, "gaussian", (6,), ("group",)


def write_images(folder):
    for i in range(12):
        (folder / f"pics/{i % 2}").mkdir(parents=True, exist_ok=True)
        pixels = RNG.integers(0, 255, (20, 24, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"pics/{i % 2}/{i}.png")
    return folder / "pics", {"size": 16, "fit": "crop"}, "bernoulli", (3, 16, 16), ()


def write_h5ad(folder, name="mine.h5ad"):
    counts = RNG.poisson(2, (40, 6))
    with h5py.File(folder / name, "w") as file:
        file["X"] = counts.astype(np.float32) + 0.5
        layer = file.create_group("layers/counts")
        rows, columns = counts.nonzero()
        layer.attrs.update({"encoding-type": "csr_matrix", "shape": counts.shape})
        layer["data"], layer["indices"] = counts[rows, columns].astype(np.float32), columns
        layer["indptr"] = np.concatenate([[0], np.bincount(rows, minlength=40).cumsum()])
        batch = file.create_group("obs/batch")
        batch.attrs["encoding-type"] = "categorical"
        batch["codes"], batch["categories"] = np.arange(40) % 2, ["x", "y"]
    return folder / name, {"layer": "counts", "factors": "batch"}, "negative_binomial", (6,), ("batch",)


def write_arrow(folder):
    table = pa.table({"pixels": [row.tolist() for row in X], "label": (np.arange(60) % 4).tolist()})
    (folder / "hf").mkdir()
    (folder / "hf/dataset_info.json").write_text(json.dumps({}))
    with pa.ipc.new_stream(str(folder / "hf/data-00000-of-00001.arrow"), table.schema) as writer:
        writer.write_table(table)
    return folder / "hf", {"factors": "label"}, "gaussian", (5,), ("label",)


WRITERS = [write_npy, write_npz, write_csv, write_parquet, write_images, write_h5ad, write_arrow]


@pytest.mark.parametrize("write", WRITERS)
def test_a_run_remembers_every_format(write, tmp_path):
    path, options, likelihood, shape, factors = write(tmp_path)
    trial = unseam.Trial(latent=2, steps=3, batch_size=8, train_fraction=0.8)
    ensemble = unseam.train(trial, data=path, data_options=options, out=tmp_path / "run", progress=False)
    assert ensemble.trials[0].likelihood == likelihood
    assert ensemble.trials[0].world == path.stem
    world = unseam.Run.open(tmp_path / "run").world
    assert (world.shape, world.factor_names) == (shape, factors)
    assert unseam.Run.open(tmp_path / "run").inspect(points=8)[0].where.endswith(f"of {path.stem}")
    path.rename(tmp_path / f"moved{path.suffix}")
    with pytest.raises(ValueError, match=r"was trained on .*; pass those data.*--data PATH"):
        _ = unseam.Run.open(tmp_path / "run").world
    moved = unseam.Run.open(tmp_path / "run", data=tmp_path / f"moved{path.suffix}").world
    assert moved.factor_names == factors
    again = {"data": tmp_path / f"moved{path.suffix}", "data_options": options, "out": tmp_path / "run"}
    assert unseam.train(trial, **again, resume=True, progress=False).trials[0].world == path.stem


def test_other_data_are_refused(tmp_path):
    trial = unseam.Trial(latent=2, steps=2, batch_size=8)
    unseam.train(trial, data=X, out=tmp_path / "run", progress=False)
    with pytest.raises(ValueError, match="other values"):
        _ = unseam.Run.open(tmp_path / "run", data=X + 1).world


@pytest.mark.parametrize(
    ("array", "shape", "likelihood", "note"),
    [
        (np.full((4, 8, 9, 3), 7, np.uint8), (3, 8, 9), "bernoulli", "height, width, channel"),
        (np.full((4, 8, 9), 7, np.uint8), (1, 8, 9), "bernoulli", "bytes were scaled"),
        (np.eye(4, dtype=np.uint8), (4,), "bernoulli", "are 0 and 1"),
        (np.full((4, 3), 2.0), (3,), "negative_binomial", "counts, up to 2"),
        (np.full((4, 3), 0.5), (3,), "bernoulli", "within"),
        (np.full((4, 3), -0.5), (3,), "gaussian", "real"),
    ],
)
def test_kinds_are_recognised_and_said(array, shape, likelihood, note):
    found = open_data(array)
    assert (found.world.shape, found.likelihood) == (shape, likelihood)
    assert note in " ".join(found.notes)


def test_values_come_out_as_they_should():
    pixels = RNG.integers(0, 256, (4, 8, 9, 3), dtype=np.uint8)
    images = open_data(pixels).world.images(torch.arange(4))
    torch.testing.assert_close(images, torch.tensor(pixels).permute(0, 3, 1, 2).float() / 255)
    binary = RNG.integers(0, 2, (4, 6), dtype=np.uint8)
    assert torch.equal(open_data(binary).world.images(torch.arange(4)), torch.tensor(binary).float())
    scaled = open_data(X.astype(float), standardise=True).world.images(torch.arange(60)).double()
    torch.testing.assert_close(scaled.mean(0), torch.zeros(5).double(), atol=1e-6, rtol=0)
    torch.testing.assert_close(scaled.var(0, correction=0), torch.ones(5).double(), atol=1e-5, rtol=0)


def test_datasets_and_labels():
    data = torch.utils.data.TensorDataset(torch.tensor(X), torch.arange(60) % 3)
    world = open_data(data).world
    assert world.factor_names == ("label",) and world.factor_sizes == (3,)
    assert torch.equal(world.images(torch.arange(60)), torch.tensor(X))


def test_sparse_counts_are_those_of_the_layer(tmp_path):
    path, options, *_ = write_h5ad(tmp_path)
    with h5py.File(path) as file:
        expected = file["X"][:] - 0.5
    assert np.array_equal(open_data(path, **options).world.images(torch.arange(40)).numpy(), expected)


def test_large_files_are_mapped(tmp_path, monkeypatch):
    np.save(tmp_path / "wide.npy", X.astype(np.float64))
    monkeypatch.setattr("unseam.data.own.IN_MEMORY", 0)
    mapped = open_data(tmp_path / "wide.npy").world
    assert isinstance(mapped.table, np.memmap)
    assert torch.equal(mapped.images(torch.arange(60)), torch.tensor(X))


def test_hostile_links_are_refused(tmp_path):
    other, *_ = write_h5ad(tmp_path, "other.h5ad")
    with h5py.File(tmp_path / "mine.h5ad", "w") as file:
        file["layers"] = h5py.ExternalLink(str(other), "layers")
        file["X"] = h5py.ExternalLink(str(other), "X")
    with pytest.raises(ValueError, match="got a link to"):
        open_data(tmp_path / "mine.h5ad")
    with pytest.raises(ValueError, match="got a link to|must"):
        open_data(tmp_path / "mine.h5ad", layer="counts")


@pytest.mark.parametrize(
    ("inside", "options", "message"),
    [
        (
            {"Y": h5py.ExternalLink("other.h5ad", "X"), "X": h5py.SoftLink("/Y")},
            {},
            "'X' must lie in the file",
        ),
        (
            {"Y": h5py.ExternalLink("other.h5ad", "/"), "X": h5py.SoftLink("/Y/X")},
            {},
            "'X' must lie in the file",
        ),
        ({"obs": h5py.ExternalLink("other.h5ad", "obs")}, {"factors": "batch"}, "'obs' must lie in the file"),
        ({"X": h5py.ExternalLink("pipe", "X")}, {}, "'X' must lie in the file"),
        (
            {"obs/label": h5py.ExternalLink("pipe", "label")},
            {"factors": "label"},
            "'obs/label' must lie in the file",
        ),
        ({"X": 1.0}, {}, r"must have shape \(cell, gene\)"),
        ({"obs": np.arange(3)}, {"factors": "batch"}, "factors must name columns of obs"),
    ],
)
def test_hdf5_files_that_lead_elsewhere_or_hold_something_else(inside, options, message, tmp_path):
    write_h5ad(tmp_path, "other.h5ad")
    os.mkfifo(tmp_path / "pipe")
    with h5py.File(tmp_path / "mine.h5ad", "w") as file:
        for name, value in ({"X": np.ones((3, 2))} | inside).items():
            file[name] = value
    with pytest.raises(ValueError, match=message):
        open_data(tmp_path / "mine.h5ad", **options)


@pytest.mark.parametrize("kind", ["external", "virtual"])
def test_hdf5_data_that_are_stored_in_another_file_are_refused(kind, tmp_path):
    """Under a plain name, without a link: any file that the user may read could be asked for."""
    (tmp_path / "secret").write_bytes(bytes(range(24)))
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["X"] = np.ones((3, 2), np.float32)
    with h5py.File(tmp_path / "mine.h5ad", "w") as file:
        if kind == "external":
            file.create_dataset("X", (3, 2), "f4", external=[(str(tmp_path / "secret"), 0, 24)])
        else:
            layout = h5py.VirtualLayout((3, 2), "f4")
            layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "X", shape=(3, 2))
            file.create_virtual_dataset("X", layout)
    with pytest.raises(ValueError, match="'X' must lie in the file, got one that reads other files"):
        open_data(tmp_path / "mine.h5ad")


@pytest.mark.parametrize(
    ("name", "shape", "options", "message"),
    [
        ("X", (10**9, 10**6), {}, "needs 4000000.0 GB of memory"),
        ("obs/label", (10**12,), {"factors": "label"}, "obs/label of .* needs"),
    ],
)
def test_hdf5_files_that_no_machine_could_hold_are_refused_at_once(name, shape, options, message, tmp_path):
    with h5py.File(tmp_path / "mine.h5ad", "w") as file:
        file.create_dataset(name, shape, "f4", chunks=tuple(min(n, 1000) for n in shape))
        if name != "X":
            file["X"] = np.ones((3, 2))
    with pytest.raises(ValueError, match=message):
        open_data(tmp_path / "mine.h5ad", **options)


def test_a_program_under_the_name_of_an_image_is_not_run(tmp_path):
    """Pillow would hand PostScript to an interpreter, where there is one."""
    (tmp_path / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n")
    with pytest.raises(ValueError, match="its format is not known"):
        open_data(tmp_path)


def test_values_beyond_single_precision_are_refused_or_standardised():
    array = np.array([[1e39, 1.0], [2.0, 3.0]])
    with pytest.raises(ValueError, match="must lie within single precision, got values from 1 to 1e\\+39"):
        open_data(array)
    assert open_data(array, standardise=True).world.images(torch.arange(2)).abs().max() == 1


def test_missing_values_are_counted_or_masked(tmp_path):
    table = frame().drop(columns=["u", "group"])
    table.loc[[1, 5], "q"] = np.nan
    with pytest.raises(ValueError, match=r"got 2 \(NaN\) in 2 of 60 items, in q"):
        open_data(table)
    trial = unseam.Trial(latent=2, steps=3, batch_size=60, missing="mask")
    ensemble = unseam.train(trial, data=table, out=tmp_path / "run", progress=False)
    assert np.isfinite(ensemble.history.loss).all()
    assert unseam.Run.open(tmp_path / "run", data=table).inspect(points=60)[0].dto is not None


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ("absent.npy", {}, "does not exist"),
        (np.zeros(3), {}, "must have shape"),
        (np.array([[1.0, np.inf]]), {}, "1 infinite"),
        (X, {"factors": "a"}, "has no columns"),
        (X, {"size": 8}, "size must be left out"),
        (X, {"factors": Z[:5]}, r"one row per item \(60\)"),
        (frame(), {}, "'group' is text"),
        (frame(), {"factors": "nope,group"}, "got 'nope'"),
        (frame().iloc[:0], {"factors": "group"}, "at least one row"),
        (pd.DataFrame({"a;b": ["1;2"]}), {}, "is ';' its separator"),
        (X, {"fit": "stretch"}, "fit must be"),
    ],
)
def test_bad_input(data, options, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        open_data(data, **options)


def test_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_npz(tmp_path)
    np.save("codes.npy", Z)
    np.save("factors.npy", Z)
    run = CliRunner().invoke
    flags = ["--latent", "2", "--steps", "3", "--batch-size", "8", "--out", "run"]
    trained = run(app, ["train", "--data", "mine.npz", *flags])
    assert trained.exit_code == 0, trained.output
    assert "likelihood gaussian" in trained.output
    for command in (
        ["score", "run", "--metric", "r2"],
        ["score", "codes.npy", "factors.npy", "--metric", "r2"],
        ["report", "run", "--points", "20"],
        ["advise", "mine.npz", "--standardise"],
    ):
        result = run(app, command)
        assert result.exit_code == 0, (command, result.output)
    assert "trained on 60 items of mine" in (tmp_path / "run/report.html").read_text()


def test_covariates_go_with_items_and_are_remembered(tmp_path):
    path, options, *_ = write_h5ad(tmp_path)
    options = options | {"covariates": "batch"}
    found = open_data(path, **options)
    assert found.covariates == ("batch=x", "batch=y") and found.world.shape == (8,)
    assert "covariate batch, 2 categories, shifts the parameter of each value" in found.notes
    columns = found.world.images(torch.arange(40))[:, 6:]
    assert torch.equal(columns, torch.tensor([[0.5, -0.5], [-0.5, 0.5]]).repeat(20, 1))
    trial = unseam.Trial(latent=2, steps=3, batch_size=8)
    unseam.train(trial, data=path, data_options=options, out=tmp_path / "run", progress=False)
    run = unseam.Run.open(tmp_path / "run")
    assert (run.trials[0].covariate_columns, run.trials[0].likelihood) == (2, "negative_binomial")
    assert run.ensemble[0].likelihood.shift.shape == (2, 6)
    assert run.inspect(points=8)[0].where.endswith("of mine")
    assert (run.world.factor_names, run.world.shape) == (("batch",), (8,))
    unseam.report.write(run, tmp_path / "page.html")
    assert unseam.explore.exhibit_run(run).subjects[0].picture(torch.zeros(1, 2)).shape == (1, 8)


def test_categories_of_a_file_are_known_by_name_or_else_by_code(tmp_path):
    path, options, *_ = write_h5ad(tmp_path)
    options = {"layer": "counts", "covariates": "batch"}
    with h5py.File(path, "a") as file:
        del file["obs/batch/categories"]
        file["obs/batch/categories/values"] = ["b", "a"]
        file["obs/batch/categories/mask"] = [False, False]
    assert open_data(path, **options).covariates == ("batch=a", "batch=b")
    with h5py.File(path, "a") as file:
        del file["obs/batch/categories"]
        file["obs/batch/categories"] = [10.0, 0.1]
    assert open_data(path, **options).covariates == ("batch=0.1", "batch=10.0")
    with h5py.File(path, "a") as file:
        del file["obs/batch/categories"]
    assert open_data(path, **options).covariates == ("batch=0", "batch=1")
    with h5py.File(path, "a") as file:
        file["obs/batch/categories"] = ["a"]
    with pytest.raises(ValueError, match="'obs/batch' is damaged: code 1 of 1 categories"):
        open_data(path, **options)


def test_latents_need_not_explain_covariates():
    """Groups far apart and nothing else: without the covariate a latent tells them apart, with it none is active."""
    x = np.random.default_rng(0).normal(size=(200, 4)) * 0.1
    table = pd.DataFrame(x + np.repeat([[3.0], [-3.0]], 100, 0), columns=list("abcd"))
    table = table.assign(batch=np.repeat(["a", "b"], 100), age=0.0)
    trial = unseam.Trial(latent=2, steps=400, learning_rate=3e-2, encoder_widths=(), decoder_widths=())
    active = [
        unseam.Run.of(
            unseam.train(trial, data=table, data_options=options, device="cpu", progress=False),
            data=open_data(table, **options),
        )
        .inspect(points=100)[0]
        .active.any()
        for options in ({"factors": "batch,age"}, {"covariates": "batch", "factors": "age"})
    ]
    assert active == [True, False]


def test_columns_are_remembered_of_tables_in_memory(tmp_path):
    options = {"factors": "u,group", "standardise": True}
    trial = unseam.Trial(latent=2, steps=2, batch_size=8)
    unseam.train(trial, data=frame(), data_options=options, out=tmp_path / "run", progress=False)
    assert unseam.Run.open(tmp_path / "run", data=frame()).world.factor_names == ("u", "group")


def test_sparse_columns_are_those_of_sparse_rows(tmp_path):
    path, *_ = write_h5ad(tmp_path)
    with h5py.File(path, "a") as file:
        rows = file["layers/counts"]
        parts = tuple(rows[name][:] for name in ("data", "indices", "indptr"))
        columns = sparse.csr_matrix(parts, shape=(40, 6)).tocsc()
        layer = file.create_group("layers/columns")
        layer.attrs.update({"encoding-type": "csc_matrix", "shape": (40, 6)})
        layer["data"], layer["indices"], layer["indptr"] = columns.data, columns.indices, columns.indptr
        file.copy("layers/columns", "layers/damaged")
        file["layers/damaged/indices"][0] = 40
    by_rows, by_columns = (open_data(path, layer=name).world.table for name in ("counts", "columns"))
    assert torch.equal(torch.as_tensor(by_rows), torch.as_tensor(by_columns))
    with pytest.raises(ValueError, match="'layers/damaged' is damaged"):
        open_data(path, layer="damaged")


def test_pictures_are_shown_upright_and_hidden_files_are_no_pictures(tmp_path):
    (tmp_path / "pics/.cache").mkdir(parents=True)
    wide = np.zeros((16, 24), np.uint8)
    wide[:, :12] = 255
    held_on_its_side = Image.Exif()
    held_on_its_side[0x0112] = 6
    Image.fromarray(wide).save(tmp_path / "pics/a.jpg", exif=held_on_its_side, quality=95)
    for hidden in ("._a.jpg", ".cache/b.png"):
        (tmp_path / "pics" / hidden).write_bytes(b"no picture")
    world = open_data(tmp_path / "pics").world
    assert len(world) == 1 and world.shape == (1, 24, 16)
    picture = world.images(torch.arange(1))[0, 0]
    assert picture[:10].min() > 0.9 and picture[14:].max() < 0.1


def test_pictures_that_cannot_be_read_are_counted(tmp_path):
    for i, content in enumerate((b"", b"\xff\xd8\xff\xe0junk", None)):
        if content is None:
            Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / f"{i}.png")
        else:
            (tmp_path / f"{i}.jpg").write_bytes(content)
    with pytest.raises(ValueError, match=r"2 images of .* cannot be read, such as: .*0\.jpg .*; .*1\.jpg"):
        open_data(tmp_path)


@pytest.mark.parametrize(("mark", "decimal"), [(";", "."), (";", ","), ("|", "."), ("\t", ".")])
def test_separators_of_tables_are_recognised_and_said(mark, decimal, tmp_path):
    frame().to_csv(tmp_path / "t.csv", sep=mark, decimal=decimal, index=False)
    found = open_data(tmp_path / "t.csv", factors="u,group")
    assert torch.allclose(found.world.images(torch.arange(60)), torch.tensor(X))
    assert f"columns are separated by {mark!r}" in found.notes
    assert ("decimals are written with commas" in found.notes) == (decimal == ",")


def test_tables_leave_out_columns_and_say_what_is_no_number(tmp_path):
    table = frame().astype({"p": object})
    table.loc[3, "p"] = "?"
    table.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError, match=r"'p' is text \('\?' in 1 of 60 rows\).*drop=p"):
        open_data(tmp_path / "t.csv", factors="u,group")
    found = open_data(tmp_path / "t.csv", factors="u", drop="p,group")
    assert found.world.shape == (4,) and found.world.options["drop"] == ["p", "group"]
    with pytest.raises(ValueError, match="drop must name columns of t"):
        open_data(tmp_path / "t.csv", drop="nothing")
    np.savetxt(tmp_path / "bare.csv", X, delimiter=",")
    assert "was taken as names of columns" in open_data(tmp_path / "bare.csv").notes[0]


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (torch.utils.data.DataLoader([1]), {}, r"pass loader\.dataset"),
        (torch.utils.data.StackDataset(x=torch.tensor(X)), {}, "pairs .item, label., got a dict with x"),
        (X, {"factors": "absent.csv"}, "absent.csv does not exist"),
    ],
)
def test_what_to_pass_instead_is_said(data, options, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        open_data(data, **options)


def test_an_ensemble_is_measured_on_the_data_it_was_given():
    trial = unseam.Trial(latent=2, steps=2, batch_size=8)
    ensemble = unseam.train(trial, data=X, data_options={"factors": Z}, progress=False)
    assert unseam.inspect(ensemble, points=8)[0].where.endswith("of array")
    assert set(unseam.score(ensemble, ["mcc"]).world) == {"array"}
    assert unseam.Run.of(ensemble).world.factor_names == ("factor 0", "factor 1")
    with pytest.raises(ValueError, match="other values"):
        unseam.inspect(ensemble, data=X + 1)


def test_factors_can_follow_the_training(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "z.npy", Z)
    trial = unseam.Trial(latent=2, steps=2, batch_size=8)
    unseam.train(trial, data=tmp_path / "x.npy", out=tmp_path / "run", progress=False)
    with pytest.raises(ValueError, match="no factors to score against.*FACTORS"):
        unseam.score(tmp_path / "run")
    table = unseam.score(tmp_path / "run", ["mcc"], factors=Z)
    asked = CliRunner().invoke(
        app, ["score", str(tmp_path / "run"), str(tmp_path / "z.npy"), "--metrics", "mcc", "--json"]
    )
    assert json.loads(asked.stdout)["scores"][0]["score"] == table.score[0]
    assert len(unseam.inspect(tmp_path / "run", points=8)) == 1, "a folder stands for its run"
    unseam.train(trial, data=X, data_options={"factors": Z}, out=tmp_path / "other", progress=False)
    with pytest.raises(ValueError, match="other has its own|given by the user"):
        unseam.score(tmp_path / "other", factors=Z)


def test_a_model_saved_without_its_data_asks_for_them(tmp_path):
    trial = unseam.Trial(world="scans", latent=2, likelihood="gaussian", steps=1)
    model = unseam.models.build(
        (5,), latent=2, likelihood="gaussian", encoder_widths=(8,), decoder_widths=(8,)
    )
    unseam.models.initialise(model, generator=torch.Generator().manual_seed(0))
    trial = dataclasses.replace(trial, encoder_widths=(8,), decoder_widths=(8,))
    unseam.save(model, tmp_path / "run", trial=trial)
    with pytest.raises(ValueError, match="does not say which data 'scans' are; pass those data"):
        unseam.inspect(tmp_path / "run")
    assert unseam.inspect(tmp_path / "run", data=X, points=9)[0].points == 9
