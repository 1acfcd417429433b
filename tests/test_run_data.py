"""A run is read on the data it was trained on, at the step it has reached, or not at all; and every output says so."""

import dataclasses
import json
import sys

import numpy as np
import pandas as pd
import pytest
import torch

import unseam
from unseam.cli import main
from unseam.data import ArrayWorld
from unseam.explore import exhibit_run
from unseam.explore.exhibit import open_exhibit
from unseam.run import Run, Standing, evaluate_active, score, score_files
from unseam.training.checkpoint import write_record

TRIAL = unseam.Trial(
    latent=2,
    likelihood="gaussian",
    encoder_widths=(8,),
    decoder_widths=(8,),
    batch_size=8,
    steps=20,
    precision="float32",
)
SCANS = """
import torch
from unseam import choices
from unseam.data import ArrayWorld

def scans(seed: int = 0):
    draw = torch.Generator().manual_seed(seed)
    factors = torch.rand(40, 2, generator=draw, dtype=torch.float32)
    table = (factors @ torch.rand(2, 16, generator=draw)).reshape(40, 1, 4, 4)
    return ArrayWorld(table, factors, name="scans", factor_names=("a", "b"), factor_sizes=(0, 0))

SCANS = choices.World("scans", "scans", "own_scans:scans")
"""


def scans(seed=0):
    names = {}
    exec(SCANS, names)
    return names["scans"](seed)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A run on the user's own data, whose trial names another world."""
    folder = tmp_path_factory.mktemp("own") / "run"
    unseam.train(
        [TRIAL, dataclasses.replace(TRIAL, seed=1)], world=scans(), out=folder, device="cpu", progress=False
    )
    return folder


@pytest.fixture
def call(monkeypatch, capsys):
    def run(*words):
        monkeypatch.setattr(sys, "argv", ["unseam", *map(str, words)])
        try:
            main()
        except SystemExit as leave:
            return (leave.code, *capsys.readouterr())
        return (0, *capsys.readouterr())

    return run


# Data


def test_what_is_recorded_of_data(own):
    (world,) = json.loads((own / "run.json").read_text())["worlds"]
    assert (world["name"], world["items"], world["shape"], world["dtype"]) == (
        "scans",
        40,
        [1, 4, 4],
        "float32",
    )
    assert (world["given"], world["read"], world["factors"]) == (True, 40, ["a", "b"])
    assert world["digest"] == unseam.data.identify_data(scans()).digest


READERS = {
    "inspect": lambda run: run.inspect(),
    "score": lambda run: score(run, ["mig"]),
    "report": lambda run: unseam.report.run_studies(run, points=20),
    "explore": lambda run: exhibit_run(run),
    "codes": lambda run: run.codes(points=10),
    "data": lambda run: run.data,
}


@pytest.mark.parametrize("reader", READERS.values(), ids=list(READERS))
def test_no_reader_takes_another_world(own, reader):
    with pytest.raises(
        ValueError,
        match=r"run was trained on scans \(40 items of shape \(1, 4, 4\)\), given by the user; pass those data as "
        r"data= or world= \(--data PATH, --world package.module:object\)$",
    ):
        reader(Run.open(own))
    with pytest.raises(
        ValueError, match=r"scans is not that: other values \(digest \w+ then, \w+ now\); pass"
    ):
        reader(Run.open(own, world=scans(1)))
    with pytest.raises(ValueError, match=r"sprites is not that: items 40 then, 737280 now; pass"):
        reader(Run.open(own, world=unseam.data.load("sprites")))
    reader(Run.open(own, world=scans()))


def test_data_are_given_to_folders(own, tmp_path):
    assert score(own, ["mig"], world=scans()).world.unique().tolist() == ["scans"]
    page = unseam.report.write(own, tmp_path / "r.html", world=scans()).read_text()
    assert "trained on 40 items of scans" in page
    assert exhibit_run(own, world=scans()).world.name == "scans"
    with pytest.raises(ValueError, match="data must be left out beside a model of your own: give x"):
        open_exhibit(torch.nn.Linear(2, 3), latent=2, data=scans())
    for target in (own, str(own), Run.open(own, data=scans())):
        given = {} if isinstance(target, Run) else {"data": scans()}
        assert open_exhibit(target, **given).world.name == "scans"
    ensemble = unseam.load(own)
    assert exhibit_run(ensemble, world=scans()).world.name == "scans"
    assert open_exhibit(ensemble, data=scans()).world.name == "scans"
    with pytest.raises(
        ValueError, match=r"this ensemble was trained on scans .* unseam.Run.of as data= or world="
    ):
        exhibit_run(ensemble)
    with pytest.raises(ValueError, match=r"world must be given to Run.open or Run.of"):
        score(Run.open(own, world=scans()), ["mig"], world=scans())


@pytest.mark.parametrize("command", ["inspect", "score", "report"])
def test_commands_refuse_and_take_data(command, own, call, tmp_path, monkeypatch):
    (tmp_path / "own_scans.py").write_text(SCANS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    status, out, err = call(command, own)
    assert (status, out) == (2, "")
    assert err.startswith(
        f"unseam: {own} was trained on scans (40 items of shape (1, 4, 4)), given by the user"
    )
    assert err.count("\n") == 1
    status, out, err = call(command, own, "--world", "own_scans:SCANS", "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)
    sys.modules.pop("own_scans", None)


@pytest.mark.parametrize("flag", ["--root", "--data"])
@pytest.mark.parametrize("command", ["inspect", "score", "report", "replicate", "explore"])
def test_commands_find_data_that_have_moved(command, flag, call, tmp_path, monkeypatch):
    x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).numpy()
    np.savez(tmp_path / "x.npz", x=x, factors=(x[:, :2] > 0).astype(int))
    trials = [dataclasses.replace(TRIAL, beta=0.01, seed=seed) for seed in (0, 1)]
    unseam.train(trials, data=tmp_path / "x.npz", out=tmp_path / "run", device="cpu", progress=False)
    (tmp_path / "x.npz").rename(tmp_path / "moved.npz")
    served = []
    monkeypatch.setattr("unseam.explore.serve", lambda run, **options: served.append(run.data))
    words = (command, tmp_path / "run", *(() if command == "explore" else ("--json",)))
    if command != "explore":  # which opens its data when it serves
        status, _, err = call(*words)
        assert status == 2 and "x.npz does not exist" in err
    status, out, err = call(*words, flag, tmp_path / "moved.npz")
    assert (status, err) == (0, "")
    assert len(served[0]) == 40 if command == "explore" else json.loads(out)


def test_geometry_at_draws_from_the_prior_needs_no_data(own, call):
    found = Run.open(own).inspect(points=50, at="prior")
    assert [one.where for one in found.values()] == ["50 draws from the prior N(0, I)"] * 2
    subject = Run.open(own).subject(0)
    z = subject.prior(50, torch.Generator().manual_seed(0))
    expected = unseam.inspect(subject.decoder, z, likelihood=subject.likelihood)
    assert found[0].cosine == expected.cosine and found[0].mean is None
    status, out, _ = call("inspect", own, "--at", "prior", "--points", 50)
    assert status == 0
    assert "Measured at 50 draws from the prior N(0, I)." in out
    status, _, err = call("inspect", own, "--at", "nowhere")
    assert (status, err) == (2, "unseam: at must be data or prior, got 'nowhere'\n")
    status, _, err = call("inspect", own, "--at", "prior", "--report", "x.html")
    assert (status, "--report needs the run's data" in err) == (2, True)


def test_inspections_say_where_they_were_measured(own):
    found = Run.open(own, world=scans()).inspect([0], points=30)[0]
    assert found.where == found.to_dict()["where"] == "the posterior means of 30 items of scans"


def test_a_world_that_can_be_loaded_again_is(tmp_path):
    """Given at another size than the trial's: found by its name and options."""
    trial = dataclasses.replace(TRIAL, world="nonlinear", steps=2)
    unseam.train(trial, world=unseam.data.load("nonlinear", size=60), out=tmp_path, device="cpu")
    assert len(Run.open(tmp_path).data) == 60


def test_data_that_were_named_but_have_changed_are_refused(tmp_path):
    trial = dataclasses.replace(TRIAL, world="nonlinear", world_options={"size": 60}, steps=2)
    unseam.train(trial, out=tmp_path, device="cpu")
    assert len(Run.open(tmp_path).data) == 60
    record = json.loads((tmp_path / "run.json").read_text())
    record["worlds"][0] |= {"digest": "0" * 64, "sketch": []}
    write_record(tmp_path, record)
    with pytest.raises(ValueError, match="nonlinear is not that: other values .digest 000000000000 then"):
        Run.open(tmp_path).inspect()


def test_runs_of_earlier_versions_are_read_with_a_remark(tmp_path, call):
    trial = dataclasses.replace(TRIAL, world="nonlinear", world_options={"size": 60}, steps=2)
    unseam.train(trial, out=tmp_path, device="cpu")
    record = json.loads((tmp_path / "run.json").read_text())
    held = ("name", "items", "twin_of", "options")
    record["worlds"] = [{key: world[key] for key in held} for world in record["worlds"]]
    del record["stopped_by"]
    write_record(tmp_path, record)
    status, out, _ = call("inspect", tmp_path, "--json")
    assert status == 0
    assert json.loads(out)["remarks"] == [
        "data not recorded: this run does not say on which data it was trained, but for their name"
    ]
    record["worlds"][0]["items"] = record["sizes"][0] = 61
    write_record(tmp_path, record)
    with pytest.raises(ValueError, match="items 61 then, 60 now"):
        Run.open(tmp_path).inspect()


# Scores


def interrupted(folder, trials, at=10):
    """A run that stopped at its second record, with a checkpoint after every step before."""

    def stop(ensemble, step):
        if step > at:
            raise KeyboardInterrupt
        return {}

    with pytest.raises(KeyboardInterrupt):
        unseam.train(
            trials, out=folder, device="cpu", every=at, checkpoint_seconds=0.0, observe=stop, progress=False
        )


WORLD = {"resolution": 8, "shapes": ["ellipse", "square"], "scales": 2, "orientations": 2, "positions": 4}
SPRITES = dataclasses.replace(
    TRIAL, world="sprites", world_options=WORLD, likelihood="bernoulli", learning_rate=1e-2
)


def test_scores_of_an_unfinished_run_are_not_those_of_the_finished_one(tmp_path):
    trials = [SPRITES, dataclasses.replace(SPRITES, seed=1)]
    interrupted(tmp_path, trials)
    early = score(tmp_path, preset="fast")
    assert set(early.step) == {19}
    assert Run.open(tmp_path).scores is not None
    unseam.train(trials, out=tmp_path, resume=True, device="cpu", progress=False)
    run = Run.open(tmp_path)
    assert run.scores is None, "not scored at this step"
    (study,) = unseam.report.run_studies(run, points=20)
    fresh = score(tmp_path, ["mig"])
    before = early[early.metric == "mig"].score
    assert study.match.mean("mig") != before.tolist()
    assert fresh.score.tolist() == study.match.mean("mig")
    kept = pd.read_parquet(tmp_path / "scores.parquet")
    assert set(kept.step) == {20} and set(kept.metric) == {"mig"}, "stale rows are gone from the file"


def test_scores_say_what_they_were_made_with(tmp_path):
    unseam.train(SPRITES, out=tmp_path, device="cpu")
    (row,) = score(tmp_path, ["mig"], points=40, seed=3).to_dict("records")
    run = Run.open(tmp_path)
    found = unseam.data.identify_data(run.data)
    assert (row["step"], row["points"], row["seed"], row["preset"]) == (20, 40, 3, "fast")
    assert (row["data"], row["factors"]) == (found.digest, found.factor_digest)
    assert row["weights"] == unseam.files.digest(tmp_path / "weights.safetensors")
    assert json.loads(row["settings"])["bins"] == 20


@pytest.mark.parametrize("harm", [{"step": 19}, {"weights": "0"}, {"data": "0"}, {"member": 7}])
def test_scores_of_other_weights_steps_or_data_are_not_shown(tmp_path, harm):
    unseam.train(SPRITES, out=tmp_path, device="cpu")
    table = score(tmp_path, ["mig"])
    table.assign(**harm).to_parquet(tmp_path / "scores.parquet")
    assert Run.open(tmp_path).scores is None
    table.drop(columns=list(harm)).to_parquet(tmp_path / "scores.parquet")
    assert Run.open(tmp_path).scores is None


def test_scores_against_other_factors_are_not_shown(tmp_path):
    world = scans()
    unseam.train(TRIAL, world=world, out=tmp_path, device="cpu")
    score(tmp_path, ["mig"], world=world)
    relabelled = ArrayWorld(
        world.table, world.factors.flip(1), name="scans", factor_names=("a", "b"), factor_sizes=(0, 0)
    )
    assert Run.open(tmp_path, world=world).scores is not None
    assert Run.open(tmp_path, world=relabelled).scores is None


# Unfinished and diverged


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unfinished") / "run"
    interrupted(folder, SPRITES)
    return folder


@pytest.fixture(scope="module")
def diverged(tmp_path_factory):
    """Three seeds of which one diverged, and a model whose only seed did."""
    folder = tmp_path_factory.mktemp("diverged") / "run"
    wild = {"optimiser": "sgd", "learning_rate": 1e-3}
    trials = [dataclasses.replace(SPRITES, **wild, seed=seed) for seed in range(3)]
    trials.append(dataclasses.replace(SPRITES, optimiser="sgd", learning_rate=1e30))
    trained = unseam.train(trials[:3], device="cpu", progress=False)
    with pytest.warns(unseam.training.DivergenceWarning):
        trained = unseam.train(trials, out=folder, device="cpu", progress=False)
    assert list(trained.stopped) == [3]
    record = json.loads((folder / "run.json").read_text())
    # one of three seeds: as if it had stopped there, which a learning rate alone cannot bring about
    record["stopped"] = {"1": 12} | record["stopped"]
    record["stopped_by"] = {"1": "its loss"} | record["stopped_by"]
    write_record(folder, record)
    return folder


def test_standing_of_members(unfinished, diverged):
    assert Run.open(unfinished).standing == (Standing(19, 20),)
    assert [str(Standing(steps, 20)) for steps in (19, 20)] == ["unfinished, 19 of 20 steps", ""]
    run = Run.open(diverged)
    assert run.sound == [0, 2]
    assert run.standing[1] == Standing(20, 20, 12, "its loss")
    assert run.remarks()[0] == "member 1 of 4: diverged at step 12, its loss no longer finite"
    assert Run.of(unseam.load(diverged)).standing == run.standing


@pytest.mark.parametrize("command", ["inspect", "score", "report"])
def test_every_command_says_that_a_run_is_unfinished(command, unfinished, call):
    said = "member 0 of 1: unfinished, 19 of 20 steps"
    status, out, _ = call(command, unfinished)
    assert status == 0 and said in " ".join(out.split())
    status, out, _ = call(command, unfinished, "--json")
    record = json.loads(out)
    assert said in (record["models"][0] if command == "report" else record)["remarks"]


def test_pages_say_that_a_run_is_unfinished(unfinished, tmp_path):
    page = unseam.report.write(unfinished, tmp_path / "r.html").read_text()
    assert "Note: member 0 of 1: unfinished, 19 of 20 steps." in page
    exhibit = exhibit_run(unfinished)
    assert exhibit.remarks == ("member 0 of 1: unfinished, 19 of 20 steps",)
    assert exhibit.subjects[0].name.endswith("(unfinished, 19 of 20 steps)")


@pytest.mark.parametrize("command", ["explore", "replicate"])
def test_other_commands_say_which_members_diverged(command, diverged, tmp_path, call):
    words = [command, diverged, "--together"] if command == "replicate" else [command, diverged]
    words += ["--export", tmp_path / "e.html", "--points", 20] if command == "explore" else []
    said = "2 of 4 members diverged, and are measured only where they are named"
    status, out, _ = call(*words)
    assert status == 0 and f"note: {said}" in " ".join(out.split())
    status, out, _ = call(*words, "--json")
    remarks = json.loads(out)["remarks"]
    assert remarks[0] == "member 1 of 4: diverged at step 12, its loss no longer finite"
    assert remarks[-1] == said


def test_a_run_of_one_model_counts_its_lost_seeds_once(tmp_path):
    trials = [dataclasses.replace(SPRITES, seed=seed) for seed in range(3)]

    def spoil(ensemble):
        with torch.no_grad():
            for value in ensemble.stacks[0].parameters.values():
                value[1] = torch.nan

    with pytest.warns(unseam.training.DivergenceWarning):
        unseam.train(trials, out=tmp_path, device="cpu", progress=False, every=10, callbacks=[spoil])
    (study,) = unseam.report.run_studies(tmp_path, points=20)
    assert study.about["members"] == [0, 2]
    assert len(study.remarks) == 1 and study.remarks[0].startswith("1 of 3 seeds of this model diverged")


def test_diverged_members_are_left_out_of_means_and_counted(diverged, tmp_path, call):
    (study,) = unseam.report.run_studies(diverged, points=20)
    assert study.about["members"] == [0, 2] and len(study.inspections) == 2
    lost = "member 1 diverged at step 12, its loss no longer finite"
    seeds, members = study.remarks
    assert seeds == f"1 of 3 seeds of this model diverged and is left out: {lost}"
    assert members.startswith(
        f"2 of 4 members of the run diverged and are left out: {lost}; member 3 diverged"
    )
    page = unseam.report.write(study, tmp_path / "r.html").read_text()
    assert "1 of 3 seeds of this model diverged and is left out" in page
    assert list(Run.open(diverged).inspect(points=20)) == [0, 2]
    assert list(Run.open(diverged).inspect([1], points=20)) == [1]
    status, out, _ = call("score", diverged, "--metric", "mig", "--json")
    record = json.loads(out)
    assert status == 0 and [row["member"] for row in record["scores"]] == [0, 2]
    assert record["remarks"][-1] == "2 of 4 members diverged, and are measured only where they are named"
    assert score(diverged, ["mig"], members=[1]).member.tolist() == [1]


def test_nothing_is_scored_by_default_where_every_member_diverged(tmp_path):
    with pytest.warns(unseam.training.DivergenceWarning):
        unseam.train(dataclasses.replace(SPRITES, optimiser="sgd", learning_rate=1e30), out=tmp_path)
    with pytest.raises(ValueError, match="every member of .* diverged; name those to measure all the same"):
        score(tmp_path, ["mig"])


def test_names_of_members_say_how_they_ended(diverged):
    assert Run.open(diverged).subject(1).name == (
        "member 1 (diagonal, β 1, seed 1; diverged at step 12, its loss no longer finite)"
    )


def test_the_preset_reaches_the_metrics(tmp_path):
    unseam.train(SPRITES, out=tmp_path / "run", device="cpu")
    run = Run.open(tmp_path / "run")
    codes = run.codes([0], points=60)
    np.save(tmp_path / "codes.npy", codes.mean[0].numpy())
    np.save(tmp_path / "factors.npy", codes.factors.numpy())
    subject, world, found = run.subject(0), run.world, []
    for preset in ("fast", "dlib"):
        expected = evaluate_active(
            codes.mean,
            codes.factors,
            ["dci"],
            variance=codes.variance,
            discrete=codes.discrete,
            preset=preset,
        ).score.tolist()
        assert score(run, ["dci"], preset=preset, points=60).score.tolist() == expected
        files = tmp_path / "codes.npy", tmp_path / "factors.npy"
        assert score_files(*files, ["dci"], preset=preset).score.tolist() == expected
        assert score(subject, ["dci"], world=world, preset=preset, points=60).score.tolist() == expected
        found.append(expected)
    assert found[0] != found[1]
