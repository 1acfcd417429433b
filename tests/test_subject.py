"""Inspection of runs and of decoders of the user's own, from Python and from the command line."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch

import unseam
from unseam import cli, files
from unseam.adapters import import_subject
from unseam.choices import load_object
from unseam.files import read_array
from unseam.trial import Trial

OWN = """
import numpy as np
import torch
from torch import nn

def orthogonal(z):
    return z * torch.tensor([3.0, 2.0, 1.0], dtype=z.dtype)

def make():
    return nn.Linear(3, 7)

class Decoder(nn.Module):
    def forward(self, z):
        return torch.cat([z, 2 * z], dim=1)

def encode(x):
    return x[:, :3], torch.full((len(x), 3), 0.5)

number = 3

class Autoencoder(nn.Module):
    # probabilities, and posteriors with log-variances

    def encode(self, x):
        return x[:, :3], torch.full((len(x), 3), -4.0)

    def decode(self, z):
        return torch.cat([z, 2 * z], dim=1).sigmoid()

def waves(z):
    return np.concatenate([np.sin(z), z], axis=1)
"""

# What the four commands say to a model of one's own: a module with posteriors, and a function of NumPy.
AUTOENCODER = (
    *("mine_to_inspect.py:Autoencoder", "--data", "x.npy"),
    *("--log-variance", "--probabilities", "--likelihood", "bernoulli"),
)
WAVES = ("mine_to_inspect.py:waves", "--latent", "3")


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "mine_to_inspect.py").write_text(OWN)
    np.save(tmp_path / "z.npy", np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    trial = Trial(
        world="nonlinear",
        world_options={"size": 300},
        likelihood="gaussian",
        latent=2,
        encoder_widths=(8,),
        decoder_widths=(8,),
        steps=30,
        train_fraction=0.8,
    )
    full = dataclasses.replace(trial, posterior="full", seed=1)
    unseam.train([trial, full], out=folder / "r", progress=False)
    return folder / "r"


def inspect_own(name, data, **options):
    return unseam.inspect(import_subject(name, data, **options))


def command(monkeypatch, capsys, *words):
    monkeypatch.setattr("sys.argv", ["unseam", *map(str, words)])
    monkeypatch.setenv("COLUMNS", "140")
    cli.main()
    return capsys.readouterr()


def test_run_is_inspected_on_held_out_items(run):
    opened = unseam.Run.open(run)
    found = unseam.inspect(opened, points=20)
    names = [opened.subject(member).name for member in found]
    assert names == ["member 0 (diagonal, β 1, seed 0)", "member 1 (full, β 1, seed 1)"]
    assert all(one.points == 20 for one in found.values())
    assert found[1].variance.ndim == 3


def test_a_run_is_inspected_with_its_likelihood_and_its_beta(tmp_path, monkeypatch, capsys):
    """The command's numbers are those of a direct call, and others without the likelihood or with another β."""
    small = {"resolution": 8, "shapes": ["ellipse"], "scales": 1, "orientations": 1, "positions": 6}
    trial = Trial(
        world="sprites", world_options=small, latent=3, encoder_widths=(8,), decoder_widths=(8,), steps=20, beta=4.0
    )  # fmt: skip
    model = unseam.train(trial, out=tmp_path / "r", device="cpu")[0]
    said = command(monkeypatch, capsys, "inspect", tmp_path / "r", "--points", 20, "--json")
    (found,) = json.loads(said.out)["inspected"]
    x = unseam.Run.open(tmp_path / "r").images(0, 20, 0)

    def direct(likelihood, beta):
        one = unseam.inspect(
            model.decoder,
            encoder=model.encode,
            x=x,
            likelihood=likelihood,
            beta=beta,
            generator=torch.Generator(),
        )
        return [one.cosine, one.hadamard_gap, *one.precision_error]

    shown = [found["cosine"], found["hadamard_gap"], *found["precision_error"].values()]
    assert shown == pytest.approx(direct(model.likelihood, 4.0), rel=1e-4, nan_ok=True)
    for other in (direct(None, 4.0), direct(model.likelihood, 1.0)):
        assert shown[2:] != pytest.approx(other[2:], rel=1e-2)


def test_command_on_a_run(run, monkeypatch, capsys, tmp_path):
    said = command(monkeypatch, capsys, "inspect", run, "--points", 20, "--figures", tmp_path / "f")
    assert "To do:" in said.out
    assert (
        "Eq. 7 error: relative error of the posterior's precisions against those that the decoder" in said.out
    )
    assert "Of 2 models: axes " in said.out.splitlines()[-1]
    assert "Haar" not in said.out and "degen." not in said.out
    assert len(list((tmp_path / "f").glob("*.svg"))) == 12
    said = command(monkeypatch, capsys, "inspect", run, "--points", 20, "--member", 1, "--json")
    record = json.loads(said.out)
    assert record["inspected"][0]["name"].startswith("member 1")
    assert record["figures"] == []
    assert not (run / "inspection").exists()


@pytest.mark.parametrize("words", [(), ("--json",)], ids=["words", "json"])
def test_figures_go_where_they_are_asked_for(run, monkeypatch, capsys, tmp_path, words):
    words = ("inspect", run, "--points", 20, "--member", 1, "--figures", tmp_path, *words)
    command(monkeypatch, capsys, *words)
    assert len(list(tmp_path.glob("member-1-*.svg"))) == 7


def test_figures_go_into_the_run_by_default(run, monkeypatch, capsys):
    said = command(monkeypatch, capsys, "inspect", run, "--points", 20, "--member", 0)
    assert f"5 figures in {run / 'inspection'}" in said.out
    shutil.rmtree(run / "inspection")


@pytest.mark.parametrize("name", ["orthogonal", "make", "Decoder"])
def test_own_decoders(own, name):
    found = inspect_own(f"mine_to_inspect:{name}", own / "z.npy")
    assert found.latent == 3
    assert found.points == 50
    assert (found.cosine < 1e-6) == (name != "make")


def test_own_logits(own):
    plain, weighted = (
        inspect_own("mine_to_inspect:orthogonal", own / "z.npy", likelihood=likelihood)
        for likelihood in (None, "bernoulli")
    )
    assert (weighted.column_norms < plain.column_norms / 2 + 1e-6).all()
    with pytest.raises(ValueError, match="likelihood must be one of .*got 'poisson'"):
        inspect_own("mine_to_inspect:orthogonal", own / "z.npy", likelihood="poisson")


def test_double_precision_points_for_a_single_precision_module(own):
    np.save(own / "double.npy", np.zeros((4, 3)))
    assert inspect_own("mine_to_inspect:make", own / "double.npy").points == 4


def test_members_outside_a_run(run):
    with pytest.raises(ValueError, match=r"member must lie in \[0, 2\), got 5"):
        unseam.Run.open(run).inspect([5])


def test_a_subject_is_measured_at_its_points_or_data_and_drawn_from_the_prior_without_either(tmp_path):
    matrix = torch.tensor([[3.0, 0.0], [0.0, 1.0]])
    plain = unseam.Subject("mine", lambda z: z @ matrix, 2, beta=4.0)
    at_points = dataclasses.replace(plain, z=torch.zeros(5, 2))
    at_data = dataclasses.replace(plain, encoder=lambda x: (x, 0.1 + 0 * x), x=torch.ones(7, 2))
    assert [unseam.inspect(one).points for one in (at_points, at_data)] == [5, 7]
    assert unseam.inspect(at_data).beta == 4.0 and unseam.inspect(at_data).beta_known
    unknown = unseam.inspect(dataclasses.replace(at_data, beta=None))
    assert unknown.beta == 1.0 and not unknown.beta_known
    assert unseam.inspect(at_data).mean is not None and unseam.inspect(at_points).mean is None
    found = unseam.inspect(plain, points=30)
    assert (found.points, found.where) == (30, "30 draws from N(0, I)")
    assert unseam.report.study(plain, points=30).found.points == 30
    page = unseam.report.write([at_points, at_data], tmp_path / "page.html")
    assert "2 models side by side" in page.read_text()
    assert unseam.explore.exhibit_decoder(at_data).subjects[0] is at_data


@pytest.mark.parametrize(("latent", "sampled"), [(128, None), (129, 32)])
def test_up_to_128_latents_are_all_measured_by_default(latent, sampled):
    found = unseam.inspect(unseam.Subject("mine", lambda z: 2 * z, latent), points=3)
    assert (None if found.probes is None else found.probes.latents) == sampled


@pytest.mark.parametrize(("latent", "points"), [(2, 1000), (129, 4)])
def test_draws_from_the_prior_without_a_number(latent, points):
    found = unseam.inspect(unseam.Subject("mine", lambda z: 2 * z, latent))
    assert (found.where, found.points) == (f"{points} draws from N(0, I)", points)


def test_own_encoder(own):
    np.save(own / "x.npy", np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32))
    found = inspect_own("mine_to_inspect:make", own / "x.npy", encoder="mine_to_inspect:encode")
    assert found.precision_error is not None


def test_command_on_an_own_decoder(own, monkeypatch, capsys):
    said = command(
        monkeypatch, capsys, "inspect", "mine_to_inspect:orthogonal", "--data", own / "z.npy", "--json"
    )
    record = json.loads(said.out)["inspected"][0]
    assert record["dto"] == pytest.approx(0, abs=1e-5)
    assert record["active"] == [0, 1, 2]


def test_commands_take_a_file_of_code(own, monkeypatch, capsys):
    """By its path, whatever it is called, and imported once."""
    file = "mine_to_inspect.py:orthogonal"
    said = command(monkeypatch, capsys, "inspect", file, "--data", "z.npy", "--json")
    assert json.loads(said.out)["inspected"][0]["active"] == [0, 1, 2]
    assert load_object(file) is load_object(str(own / file))
    (own / "broken.py").write_text("nothing_here")
    for _ in range(2):
        with pytest.raises(NameError):
            load_object("broken.py:f")
    with pytest.raises(ValueError, match=r"absent.py must be a file of Python code, and does not exist"):
        load_object("absent.py:f")


@pytest.mark.parametrize("model", [AUTOENCODER, WAVES], ids=["module", "numpy"])
@pytest.mark.parametrize("verb", ["inspect", "report", "explore"])
def test_commands_take_models_of_ones_own(own, monkeypatch, capsys, verb, model):
    served = []
    monkeypatch.setattr("unseam.explore.serve", lambda subject, **options: served.append(subject))
    np.save("x.npy", np.random.default_rng(0).uniform(size=(40, 6)).astype(np.float32))
    beta = ("--beta", "2") if model is AUTOENCODER else ()
    more = () if verb == "explore" else ("--points", "40")
    said = command(monkeypatch, capsys, verb, *model, *beta, *more, "--json").out
    if verb == "explore":
        (subject,) = served
        assert subject.latent == 3
        assert subject.beta == (2.0 if beta else None)
        if beta:
            torch.testing.assert_close(subject.encoder(subject.x)[1], torch.full((40, 3), -4.0).exp())
        return
    (found,) = json.loads(said)["inspected" if verb == "inspect" else "models"]
    assert found["cosine"] == pytest.approx(0, abs=1e-5)
    assert found["beta"] == (2.0 if beta else 1.0)


def test_scores_of_a_model_of_ones_own(own, monkeypatch, capsys):
    """Its codes are the factors, and all latents are active."""
    factors = np.random.default_rng(0).integers(4, size=(400, 3))
    np.save("x.npy", np.concatenate([factors, factors], 1).astype(np.float32))
    np.save("factors.npy", factors)
    model, *rest = AUTOENCODER
    said = command(monkeypatch, capsys, "score", model, "factors.npy", *rest, "--metric", "mig", "--json")
    (row,) = json.loads(said.out)["scores"]
    assert row["score"] == pytest.approx(1, abs=0.05) and row["active"] == 3


@pytest.mark.parametrize("verb", ["score", "explore"])
def test_runs_refuse_what_is_of_ones_own_models(own, monkeypatch, capsys, verb):
    monkeypatch.setattr("sys.argv", ["unseam", verb, ".", "--log-variance"])
    with pytest.raises(SystemExit):
        cli.main()
    assert "a run has its own; got --log-variance" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("mine_to_inspect:orthogonal",), "latent must say how many latents the decoder has"),
        (("mine_to_inspect:make", "--encoder", "mine_to_inspect:encode"), "--encoder needs --data"),
        (("mine_to_inspect:nothing", "--data", "z.npy"), "module 'mine_to_inspect' has no 'nothing'"),
        (("absent_module:f", "--data", "z.npy"), "module 'absent_module' cannot be imported"),
        (("mine_to_inspect:number", "--data", "z.npy"), "must be a decoder or make one, got int"),
        (("mine_to_inspect:orthogonal", "--data", "absent.npy"), "absent.npy does not exist"),
        (("absent",), "absent holds no run.json"),
        ((".", "--beta", "4"), "a run has its own; got --beta"),
        ((".", "--likelihood", "bernoulli", "--latents", "3"), "its own; got --latents, --likelihood"),
        (
            ("mine_to_inspect:orthogonal", "--data", "z.npy", "--member", "0"),
            "--member, --root and --world are for a run; a model of your own has none; got --member",
        ),
        (("mine_to_inspect:orthogonal", "--data", "z.npy", "--root", "."), "has none; got --root"),
    ],
)
def test_bad_targets(own, monkeypatch, capsys, words, message):
    monkeypatch.setattr("sys.argv", ["unseam", "inspect", *words])
    with pytest.raises(SystemExit) as leave:
        cli.main()
    assert leave.value.code in (1, 2)
    said = capsys.readouterr()
    assert message in said.err
    assert "Traceback" not in said.err


def test_arrays_of_every_kind(tmp_path):
    from safetensors.torch import save_file

    rows = torch.arange(6.0).view(3, 2)
    np.save(tmp_path / "a.npy", rows.numpy())
    np.savez(tmp_path / "a.npz", rows=rows.numpy())
    save_file({"rows": rows}, tmp_path / "a.safetensors")
    for suffix in ("npy", "npz", "safetensors"):
        assert torch.equal(read_array(tmp_path / f"a.{suffix}"), rows)
    np.save(tmp_path / "whole.npy", np.arange(6).reshape(3, 2))
    assert read_array(tmp_path / "whole.npy").dtype == torch.float32


def test_bad_arrays(tmp_path):
    np.savez(tmp_path / "two.npz", a=np.ones((2, 2)), b=np.ones((2, 2)))
    np.save(tmp_path / "flat.npy", np.ones(3))
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY")
    (tmp_path / "broken.npz").write_bytes(b"PK")
    (tmp_path / "broken.safetensors").write_bytes(b"x")
    np.save(tmp_path / "pickled.npy", np.array([{}, {}], dtype=object), allow_pickle=True)
    (tmp_path / "table.csv").write_text("1,2")
    for name, message in {
        "two.npz": "must hold one array, got a, b",
        "flat.npy": "must hold rows",
        "broken.npy": "truncated or damaged",
        "broken.npz": "truncated or damaged",
        "broken.safetensors": "truncated or damaged",
        "pickled.npy": "truncated or damaged",
        "table.csv": "must end in .npy, .npz or .safetensors",
    }.items():
        with pytest.raises(ValueError, match=message):
            read_array(tmp_path / name)


def save(path, rows):
    """Write rows in the format that the path ends in."""
    from safetensors.numpy import save_file

    if path.suffix == ".npy":
        np.save(path, rows)
    elif path.suffix == ".npz":
        np.savez(path, rows=rows)
    else:
        save_file({"rows": rows}, path)


@pytest.mark.parametrize("suffix", ["npy", "npz", "safetensors"])
@pytest.mark.parametrize("at_once", [1, 7, 10**6])
def test_a_value_that_is_not_finite_is_found_in_rows_that_are_not_drawn(
    tmp_path, monkeypatch, suffix, at_once
):
    monkeypatch.setattr(files, "_AT_ONCE", at_once)
    rows = np.zeros((50, 3), np.float32)
    rows[17, 1], rows[31, 0], rows[31, 2] = np.nan, np.inf, -np.inf
    path = tmp_path / f"x.{suffix}"
    save(path, rows)
    message = r"got NaN or infinite values in 2 of 50 rows, first in row 17 \(counted from 0\)"
    with pytest.raises(ValueError, match=f"{path.name} must be finite, {message}"):
        read_array(path, 5)
    rows[[17, 31]] = 1
    save(path, rows)
    assert read_array(path, 5).shape == (5, 3)


@pytest.mark.parametrize("words", [("inspect", "mine_to_inspect:orthogonal", "--data"), ("advise",)])
def test_commands_refuse_files_that_are_not_finite(own, monkeypatch, capsys, words):
    rows = np.load(own / "z.npy")
    rows[23, 0] = np.nan
    np.save(own / "hole.npy", rows)
    monkeypatch.setattr("sys.argv", ["unseam", *words, "hole.npy", "--points", "4"])
    with pytest.raises(SystemExit) as leave:
        cli.main()
    expected = (
        "unseam: hole.npy must be finite, got NaN or infinite values in 1 of 50 rows, first in row 23 "
        "(counted from 0)\n"
    )
    assert (leave.value.code, capsys.readouterr()) == (2, ("", expected))


def test_rows_are_mapped_and_only_those_drawn_are_converted(tmp_path):
    np.save(tmp_path / "bytes.npy", np.arange(256, dtype=np.uint8).reshape(64, 4))
    found = read_array(tmp_path / "bytes.npy", 2)
    assert found.dtype == torch.uint8 and torch.equal(found, read_array(tmp_path / "bytes.npy", 2))
    assert found[0, 0] < found[1, 0] and torch.equal(found - found[:, :1], torch.arange(4).expand(2, 4))


def test_bytes_are_refused_on_the_command_line_as_in_python(tmp_path, monkeypatch, capsys):
    np.save(tmp_path / "bytes.npy", np.full((9, 4), 200, np.uint8))
    np.save(tmp_path / "whole.npy", np.full((9, 2), 2))
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n\n\ndef encode(x):\n    return x[:, :2], 0 * x[:, :2] + 0.1\n\n\n"
        "decode = nn.Linear(2, 4)\n"
    )
    monkeypatch.chdir(tmp_path)
    words = ("inspect", "mine.py:decode", "--encoder", "mine.py:encode", "--data", "bytes.npy")
    with pytest.raises(SystemExit):
        command(monkeypatch, capsys, *words)
    assert "x must be on the scale that the model was trained on, got bytes" in capsys.readouterr().err
    assert inspect_own("mine.py:decode", tmp_path / "whole.npy").points == 9


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (3,)])
def test_rows_must_hold_something(tmp_path, shape):
    np.save(tmp_path / "nothing.npy", np.zeros(shape))
    with pytest.raises(ValueError, match=r"nothing.npy must hold rows \(batch, ...\), got shape"):
        read_array(tmp_path / "nothing.npy")


def test_names_need_a_colon():
    with pytest.raises(ValueError, match="is named package.module:object or file.py:object, got 'torch'"):
        load_object("torch")
