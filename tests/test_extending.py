"""Choices from outside: passed as values or named, trained in stacks, saved, loaded, and run by command."""

import dataclasses
import importlib
import json
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

import unseam
from unseam import choices
from unseam.cli import app
from unseam.training import group

BASE = {"world": "linear", "world_options": {"size": 200}, "likelihood": "gaussian", "latent": 2, "steps": 20}
# field, name of the choice, its option, and whether members of a stack may differ in it
OWN = [
    ("objective", "objective:SPARSE", "delta", True),
    ("likelihood", "likelihood:LAPLACE", "scale", True),
    ("architecture", "architecture:BENT", "width", False),
]


@pytest.fixture(autouse=True)
def skeletons(root, monkeypatch, tmp_path):
    """The skeletons as modules, and an empty folder to run in."""
    monkeypatch.syspath_prepend(root / "docs" / "skeletons")
    monkeypatch.chdir(tmp_path)


def command(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output or result.exception
    return result.stdout


@pytest.mark.parametrize(("field", "name", "option", "differ"), OWN)
def test_own_choices_train_in_stacks_and_come_back(field, name, option, differ, tmp_path):
    trial = unseam.Trial(**BASE | {field: name})
    assert trial == unseam.Trial(**BASE | {field: choices.load_object(name)})
    other = dataclasses.replace(trial, weights={option: 3})
    assert group([trial, other]) == ([[0, 1]] if differ else [[0], [1]])
    ensemble = unseam.train([trial, other])
    assert ensemble.stopped == {}
    unseam.save(ensemble, tmp_path / "run")
    again = unseam.load(tmp_path / "run")
    assert again.trials == (trial, other)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["trials"][1]["weights"] == {option: 3}
    x = unseam.data.load("linear", size=5).images(torch.arange(5))
    assert torch.equal(again.encode(x).mean, ensemble.encode(x).mean)
    assert not torch.equal(*again.encode(x).mean)


@pytest.mark.parametrize(("field", "name", "option", "differ"), OWN)
def test_own_choices_run_by_command(field, name, option, differ, tmp_path):
    flags = "--world linear --world-option size=200 --likelihood gaussian --latent 2 --steps 10 --device cpu --json"
    given = (f"--{field}", name, "--weight", f"{option}=3", "--vary", "seed=0,1")
    found = json.loads(command("train", *flags.split(), *given, "--out", "run"))
    assert [trial["weights"] for trial in found["trials"]] == [{option: 3}] * 2
    assert len(json.loads(command("inspect", "run", "--points", 20, "--json"))) > 0
    varied = ("--vary", f"weight.{option}=1,2", "--out", "varied")
    found = json.loads(command("train", *flags.split(), f"--{field}", name, *varied))
    assert [trial["weights"] for trial in found["trials"]] == [{option: 1.0}, {option: 2.0}]


def test_own_worlds_and_metrics(tmp_path):
    world = choices.load_object("world:RING")
    trial = unseam.Trial(
        world=world, world_options={"radius": 2.0}, likelihood="gaussian", latent=2, steps=20
    )
    assert trial.world == "world:RING"
    ensemble = unseam.train([trial, dataclasses.replace(trial, seed=1)], out=tmp_path / "run")
    x = unseam.data.load("world:RING", radius=2.0).images(torch.arange(5))
    assert torch.equal(unseam.load(tmp_path / "run").encode(x).mean, ensemble.encode(x).mean)
    table = json.loads(
        command("score", "run", "--metric", "metric:best_correlation", "--points", 100, "--json")
    )
    scores = [row for row in table["scores"] if row["metric"] == "best_correlation"]
    assert len(scores) == 2 and all(0 < row["score"] <= 1 for row in scores)
    assert scores[0]["lower"] is None


def test_weights_change_what_is_trained_and_reach_every_member():
    trial = unseam.Trial(**BASE | {"objective": "objective:SPARSE", "beta": 1e-3, "steps": 200})
    ensemble = unseam.train([dataclasses.replace(trial, weights={"delta": delta}) for delta in (0.0, 100.0)])
    last = ensemble.history.groupby("member").sparsity.last()
    assert last[1] < 0.1 * last[0]


def test_keys_cover_the_source_of_own_parts(tmp_path, monkeypatch, root):
    source = (root / "docs" / "skeletons" / "objective.py").read_text()
    (tmp_path / "own_part.py").write_text(source)
    trial = unseam.Trial(objective="own_part:SPARSE")
    before = trial.key()
    assert before != unseam.Trial().key()
    assert dataclasses.replace(trial, weights={"delta": 0.1}).key() == before
    assert dataclasses.replace(trial, weights={"delta": 0.2}).key() != before
    (tmp_path / "own_part.py").write_text(source + "# changed\n")
    assert trial.key() != before


def test_installed_choices_are_found_by_entry_point(monkeypatch):
    sparse = choices.load_object("objective:SPARSE")
    entry = SimpleNamespace(name="sparse_elbo", load=lambda: sparse)
    installed = SimpleNamespace(select=lambda group: [entry] if group == "unseam.objectives" else [])
    monkeypatch.setattr(choices, "_installed", lambda: installed)
    choices._entry_points.cache_clear()
    try:
        assert choices.names(choices.Objective)[-1] == "sparse_elbo"
        assert unseam.Trial(objective="sparse_elbo").objective_choice is sparse
        assert unseam.trial.describe_field("objective").endswith("sparse_elbo, or package.module:object")
    finally:
        choices._entry_points.cache_clear()


def test_a_choice_that_cannot_be_found_again_is_refused():
    loose = dataclasses.replace(choices.load_object("objective:SPARSE"), title="another")
    with pytest.raises(
        ValueError, match="must be a variable of the module of its function, objective, by which"
    ):
        unseam.Trial(objective=loose)


def test_a_weight_without_a_default_must_be_given():
    module = importlib.import_module("objective")
    module.BARE = dataclasses.replace(module.SPARSE, options=(choices.Option("delta", "weight"),))
    with pytest.raises(ValueError, match=r"weights must hold delta \(weight\), which has no default"):
        unseam.Trial(objective=module.BARE)
    assert unseam.Trial(objective=module.BARE, weights={"delta": 1}).weights == (("delta", 1),)
