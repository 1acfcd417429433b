"""Trainings of rolinek2019: measured as the library measures single models, stored, resumed; claims that can fail."""

import dataclasses
import gzip
import json

import numpy as np
import pandas as pd
import pytest
import torch

import unseam
from unseam import geometry
from unseam.data import split
from unseam.papers import Workplace, artefacts, reproduce, results_folder
from unseam.papers.artefact import as_stored
from unseam.papers.measures import ACTIVE, Unseen, measures
from unseam.papers.results import load_result, write_tables
from unseam.papers.rolinek2019 import beyond
from unseam.papers.rolinek2019.figures import predictions, predictions_among_alike
from unseam.papers.rolinek2019.runs import (
    Trainings,
    _marks,
    _polarised,
    _regime_errors,
    at_beta,
    last,
    latent_terms,
    missing,
    run_column,
)
from unseam.papers.rolinek2019.setups import LINEAR, MNIST, NONLINEAR, SPRITES, Setup, smoke
from unseam.papers.rolinek2019.tables import rotation_angle
from unseam.training import DivergenceWarning

HERE = Workplace(torch.device("cpu"))


def trained(setup, column):
    world = setup.load()
    ensemble = unseam.train(setup.trials(column), world=world)
    _, validation, test = split(len(world), (0.8, 0.1, 0.1), seed=0)
    return ensemble, Unseen(world, validation, test, setup.points, True)


# Measures


@pytest.mark.parametrize("column", ["β-VAE", "AE", "β-VAE_Σ"])
def test_members_measured_at_once_are_as_if_measured_one_by_one(column):
    ensemble, unseen = trained(smoke(NONLINEAR), column)
    x = unseen.world.images(unseen.test[: unseen.points])
    for model, found in zip(ensemble, measures(ensemble, unseen), strict=True):
        z = model.eval().encode(x).mean.detach().double()
        metric, basis = geometry.local_geometry(model.double().decode, z)
        dto = geometry.distance_to_orthogonality(basis.right_vectors).mean()
        assert found["dto"] == pytest.approx(float(dto), abs=1e-5)
        assert found["gap"] == pytest.approx(float(geometry.hadamard_gap(metric).mean()), abs=1e-6)
        assert found["cosine"] == pytest.approx(float(geometry.column_cosine(metric).mean()), abs=1e-6)


def test_weights_and_means_of_bernoulli_pixels():
    ensemble, unseen = trained(smoke(SPRITES, latent=3, betas=(0.1,)), "β-VAE")
    x = unseen.world.images(unseen.test[: unseen.points])
    for model, found in zip(ensemble, measures(ensemble, unseen), strict=True):
        z = model.eval().encode(x).mean.detach().double()
        model = model.double()
        weighted = geometry.local_basis(model.decode, z, likelihood=model.likelihood)
        means = geometry.local_basis(lambda z, m=model: m.likelihood.mean(m.decode(z)), z)
        for name, basis in (("dto_weighted", weighted), ("dto_means", means)):
            dto = geometry.distance_to_orthogonality(basis.right_vectors).mean()
            assert found[name] == pytest.approx(float(dto), abs=1e-4)


def test_collapsed_latents_are_left_out_where_active_ones_are_measured():
    ensemble, unseen = trained(smoke(SPRITES, betas=(0.1, 1e4), seeds=1, steps=300), "β-VAE")
    active, collapsed = measures(ensemble, unseen)
    assert active["active"] > 1 and np.isfinite(active["dto_active"])
    assert collapsed["active"] == 0 and np.isnan(collapsed["dto_active"])


def test_regime_errors_are_those_of_each_member():
    ensemble, unseen = trained(smoke(NONLINEAR), "β-VAE")
    code = ensemble.encode(unseen.world.images(unseen.validation[: unseen.points]))
    each = list(zip(*code, strict=True))
    expected = [float(geometry.delta_kl(*one).whole) for one in each]
    assert _regime_errors(ensemble, unseen).tolist() == pytest.approx(expected, rel=1e-4)
    active = [geometry.active_latents(mean, spread).active for mean, spread in each]
    kl, half = latent_terms(ensemble, unseen)
    by_nats = [float(geometry.delta_kl(*one, own).whole) for one, own in zip(each, active, strict=True)]
    assert missing(kl, half, kl > ACTIVE).tolist() == pytest.approx(by_nats, rel=1e-4)


# Trainings


STORED = (
    "table1_",
    "table2_",
    "convention_",
    "figure3",
    "predicted",
    "along",
    "figure_s4_",
    "table_s4",
    "figure_s5",
)


@pytest.mark.parametrize(
    "key", [key for key in artefacts() if key.startswith(tuple(f"rolinek2019.{name}" for name in STORED))]
)
def test_full_results_come_from_stored_trainings_alone(key, tmp_path, monkeypatch):
    """Without a single step of training, and with tables of the same content as the committed ones."""
    artefact, folder = artefacts()[key], results_folder() / "rolinek2019"
    result = load_result(folder / f"{artefact.name}.full.json", artefact)
    monkeypatch.setattr("unseam.papers.trainings.train", lambda *given, **more: pytest.fail("trained"))
    monkeypatch.setattr("unseam.papers.rolinek2019.tables._random", lambda settings: result.tables["random"])
    place = Workplace(torch.device("cpu"), shared=folder / "trainings")
    tables = as_stored(artefact.measure(artefact.presets["full"], place))
    again = write_tables(tmp_path / "again.json", tables)
    assert again == json.loads((folder / f"{artefact.name}.full.json").read_text())["tables"]


def test_a_stored_training_is_found_by_other_artefacts(tmp_path, monkeypatch):
    setup, place = smoke(LINEAR), Workplace(torch.device("cpu"), shared=tmp_path)
    first = run_column(setup, "AE", place)
    monkeypatch.setattr("unseam.papers.trainings.train", lambda *given, **more: pytest.fail("trained again"))
    again = run_column(setup.replace(columns=("AE",)), "AE", place)
    pd.testing.assert_frame_equal(again.members, first.members)
    with pytest.raises(pytest.fail.Exception):
        run_column(setup.replace(batch_size=25), "AE", place)


class Killed(BaseException):
    """What no handler in between may swallow."""


@pytest.mark.slow
def test_a_killed_artefact_is_resumed_and_gives_the_same_tables(tmp_path, monkeypatch):
    """Killed in the middle of its first training, at the fourth of eight checks; checkpoints fall on every check."""
    monkeypatch.setattr("unseam.papers.trainings.CHECKPOINT_SECONDS", 0.0)
    artefact = artefacts()["rolinek2019.table2_linear"]
    whole = reproduce(artefact, "smoke", device="cpu", shared=tmp_path / "whole").tables
    observed, calls = "unseam.papers.rolinek2019.runs._regime_errors", []

    def dying(ensemble, unseen):
        calls.append(ensemble.stacks[0].step)
        if len(calls) == 4:
            raise Killed
        return _regime_errors(ensemble, unseen)

    def counting(ensemble, unseen):
        calls.append(ensemble.stacks[0].step)
        return _regime_errors(ensemble, unseen)

    monkeypatch.setattr(observed, dying)
    with pytest.raises(Killed):
        reproduce(artefact, "smoke", device="cpu", shared=tmp_path / "killed")
    monkeypatch.setattr(observed, counting)
    again = reproduce(artefact, "smoke", device="cpu", shared=tmp_path / "killed").tables
    assert calls == [10, 20, 30, 40, 40, 50, 60, 70, 80], (
        "only what followed the last checkpoint is done again"
    )
    for name in ("members", "random"):
        pd.testing.assert_frame_equal(again[name], whole[name])


def test_runs_are_measured_when_they_should_be():
    setup = SPRITES.replace(checked=500, epochs=(10, 30, 50))
    assert _marks(setup, 50_000, 1e-3) == {10_000, 30_000, 50_000}
    marks = sorted(_marks(setup.replace(epochs=(), records=6), 50_000, 1e-3))
    assert marks[-1] == 50_000 and len(marks) == 6 and all(mark % 500 == 0 for mark in marks)


def test_the_polarised_share_counts_from_the_last_check_above_the_threshold():
    errors = pd.DataFrame(
        {4: [0.5, 0.01, 0.5, 0.01, 0.02], 7: [0.01, np.nan, 0.01, 0.01, 0.5]}, index=range(10, 60, 10)
    )
    members = pd.DataFrame({"step": [20, 50, 20, 50]}, index=[4, 4, 7, 7])
    assert _polarised(errors, members).tolist() == pytest.approx([50, 40, 0, 0])


def test_the_share_is_that_of_the_observed_checks(monkeypatch):
    errors = iter([0.5, 0.01, 0.5, 0.01, 0.02, 0.01])
    observed = "unseam.papers.rolinek2019.runs._regime_errors"
    monkeypatch.setattr(observed, lambda *given: torch.tensor([next(errors)]))
    runs = run_column(smoke(LINEAR, seeds=1, betas=(1e-4,), steps=60, records=1), "β-VAE", HERE)
    assert runs.members["polarised"].tolist() == [pytest.approx(50.0)]
    assert runs.regime["mean"].tolist() == pytest.approx([0.5, 0.01, 0.5, 0.01, 0.02, 0.01])


def test_runs_that_diverge_are_left_out_and_counted(monkeypatch):
    setup, trials = smoke(LINEAR), Setup.trials
    whole = run_column(setup, "AE", HERE)

    def stumble(setup, column):
        first, second, third = trials(setup, column)
        return [first, dataclasses.replace(second, learning_rate=1e30), third]

    monkeypatch.setattr(Setup, "trials", stumble)
    with pytest.warns(DivergenceWarning, match="member 1 stopped"):
        part = run_column(setup, "AE", HERE)
    assert (whole.trainings["diverged"][0], part.trainings["diverged"][0]) == (0, 1)
    others = whole.members[whole.members["seed"] != 1].reset_index(drop=True)
    pd.testing.assert_frame_equal(part.members, others)


def test_a_column_of_which_all_runs_diverged_is_an_error():
    failure = pytest.raises(RuntimeError, match="all 3 runs of AE on linear diverged")
    with failure, pytest.warns(DivergenceWarning):
        run_column(smoke(LINEAR, learning_rate=1e30), "AE", HERE)


def test_losses_are_members_of_one_stack_and_table_2_takes_the_printed_one():
    members = run_column(smoke(LINEAR, seeds=2), "β-VAE", HERE).members
    assert len(last(members)) == 4
    assert last(at_beta(members, 1e-4))["beta"].tolist() == [1e-4, 1e-4]


# Claims


def outcomes(key, tables, claim=0):
    return [finding.outcome for finding in artefacts()[key].claims[claim].judge(tables)]


def table2(dto, score):
    """Eight runs of each model around given means."""
    spread = np.linspace(-0.01, 0.01, 8)
    rows = [
        {
            "world": "nonlinear",
            "column": column,
            "seed": seed,
            "dto": dto[column] + s,
            "disent_table": score[column] + s,
        }
        for column in dto
        for seed, s in enumerate(spread)
    ]
    random = pd.DataFrame(
        {kind: np.linspace(0.8, 0.98, 50) for kind in ("random", "random rotations", "untrained")}
    )
    return {"members": pd.DataFrame(rows), "random": random}


def test_table_2_tells_the_models_of_a_row_apart():
    published = {"β-VAE": 0.18, "AE": 0.54, "β-VAE_Σ": 0.55}
    scores = {"β-VAE": 0.73, "AE": 0.59, "β-VAE_Σ": 0.42}
    key = "rolinek2019.table2_nonlinear"
    right = table2(published, scores)
    assert outcomes(key, right)[:4] == ["agrees"] * 4
    assert outcomes(key, right, 1) == ["agrees"] * 4
    swapped = table2(
        {"β-VAE": 0.55, "AE": 0.54, "β-VAE_Σ": 0.18}, {"β-VAE": 0.42, "AE": 0.59, "β-VAE_Σ": 0.73}
    )
    assert outcomes(key, swapped)[:3] == ["differs", "agrees", "differs"]
    assert outcomes(key, swapped, 1) == ["differs"] * 4


def test_table_1_compares_medians():
    runs = pd.DataFrame({"seed": [*range(9)] * 2, "latents": [5] * 9 + [10] * 9})
    tables = {
        "runs": runs.assign(polarised=[97.5] * 9 + [90.0] * 9),
        "trainings": pd.DataFrame({"world": ["sprites"]}),
    }
    assert outcomes("rolinek2019.table1_sprites", tables) == ["agrees", "agrees"]
    tables["runs"] = runs.assign(polarised=[40.0] * 9 + [97.0] * 9)
    assert outcomes("rolinek2019.table1_sprites", tables) == ["differs", "differs"]


def curves(active):
    betas = (0.1, 1.0, 4.0, 16.0)
    values = {"dto": (1.5, 1.2, 0.7, 0.6), "disent_table": (0.1, 0.2, 0.4, 0.3), "active": active}
    rows = [
        {"world": "sprites", "beta": beta, "seed": seed}
        | {name: of[place] + 1e-3 * seed for name, of in values.items()}
        for place, beta in enumerate(betas)
        for seed in range(5)
    ]
    return {"members": pd.DataFrame(rows)}


def test_figure_s4_follows_whole_curves():
    key = "rolinek2019.figure_s4_sprites"
    assert outcomes(key, curves((5, 5, 3.5, 2))) == ["agrees"] * 4
    assert outcomes(key, curves((5, 5, 3.5, 2)), 1) == ["agrees"]
    assert outcomes(key, curves((3, 5, 3.5, 5))) == ["agrees"] * 3 + ["differs"], (
        "ends alone would not show it"
    )
    assert outcomes(key, curves((5, 5, 5, 5)), 1) == ["differs"]


def test_alignment_at_equal_scales_is_random_and_otherwise_not():
    def tables(equal, unequal):
        angles = {1.0: equal, 1.2: unequal, 1.5: unequal}
        rows = [
            {"ratio": ratio, "t11": np.cos(a), "t12": -np.sin(a), "t21": np.sin(a), "t22": np.cos(a)}
            for ratio, degrees in angles.items()
            for a in np.radians(degrees)
        ]
        return {"members": pd.DataFrame(rows)}

    wide, narrow = np.linspace(15, 40, 12), np.linspace(0, 3, 12)
    key = "rolinek2019.figure_s5"
    assert outcomes(key, tables(wide, narrow)) == ["agrees", "agrees"]
    assert outcomes(key, tables(narrow, wide)) == ["differs", "differs"]
    assert outcomes(key, tables(narrow, wide), 1) == ["differs", "differs"]


def test_a_measure_is_judged_over_all_runs_and_among_runs_alike():
    """The score falls with the measure among runs of equal numbers of latents, and rises with their number."""
    score = np.concatenate([np.linspace(0.2, 0.1, 10), np.linspace(0.9, 0.8, 10)])
    measure = np.concatenate([np.linspace(0.0, 0.1, 10), np.linspace(0.5, 0.6, 10)])
    noise = np.random.default_rng(0).normal(size=20)
    runs = pd.DataFrame(
        {"world": "sprites", "seed": range(20), "disent_table": score, "active": np.repeat([3, 4], 10)}
    )
    runs = runs.assign(dto=noise, dto_active=noise, dto_weighted=noise**3, gap=measure, cosine=np.nan)
    over_all = {case.quantity.split(": ")[1]: case for case in predictions({"members": runs})}
    assert set(over_all) == {"DtO and score", "Hadamard gap and score"}
    assert (
        over_all["DtO and score"].note == "DtO over active latents, likelihood-weighted DtO order runs alike"
    )
    key = "rolinek2019.predicted"
    assert outcomes(key, {"members": runs})[1] == "differs"
    assert outcomes(key, {"members": runs}, 1)[1] == "agrees"
    alone = runs.assign(active=range(20))
    assert not list(predictions_among_alike({"members": alone}))


def maps(dto, errors):
    rows = [
        {
            "map": seed,
            "column": column,
            "seed": 0,
            "dto": value + 0.01 * seed,
            "disent_table": 1 - value - 0.01 * seed,
        }
        for seed in range(12)
        for column, value in dto.items()
    ]
    own = pd.DataFrame({"map": range(12), "dto": np.linspace(0, 1, 12), "delta_kl": errors})
    return {"members": pd.DataFrame(rows), "maps": own}


@pytest.mark.slow
def test_maps_are_paired_and_counted():
    key = "rolinek2019.maps"
    good = maps({"β-VAE": 0.18, "AE": 0.54, "β-VAE_Σ": 0.55}, [0.1] + [0.01] * 11)
    assert [outcomes(key, good, claim) for claim in (0, 1, 3)] == [["agrees"], ["agrees"] * 4, ["agrees"]]
    bad = maps({"β-VAE": 0.6, "AE": 0.54, "β-VAE_Σ": 0.55}, [0.1] * 12)
    assert [outcomes(key, bad, claim) for claim in (0, 1)] == [["differs"], ["differs"] * 4]


def test_a_linear_map_is_measured_as_it_is():
    """The linear world stretches one axis by 2, so variances add up to (4 + 1)/12, and its columns are orthogonal."""
    about = beyond._measure_map(unseam.data.load("linear", size=20_000))
    assert about["dto"] == pytest.approx(0, abs=1e-6)
    assert about["variance"] == pytest.approx(5 / 12, rel=0.02)


@pytest.mark.parametrize("angle", [0.0, 10.0, 45.0, 80.0, -100.0])
def test_the_angle_ignores_order_sign_and_scale(angle):
    turn = np.radians(angle)
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    matrix = np.array([[0.0, -3.0], [3.0, 0.0]]) @ rotation
    expected = min(abs(angle) % 90, 90 - abs(angle) % 90)
    assert rotation_angle(matrix.reshape(1, 4)) == pytest.approx([expected], abs=1e-9)


# Pictures that have to be fetched


def digits(folder, count=60):
    """MNIST's four files with few random pictures."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    for part in ("train", "t10k"):
        images = random.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = random.integers(0, 10, count, dtype=np.uint8)
        for name, values in (("images-idx3", images), ("labels-idx1", labels)):
            head = bytes([0, 0, 8, values.ndim]) + b"".join(side.to_bytes(4, "big") for side in values.shape)
            (folder / f"{part}-{name}-ubyte.gz").write_bytes(gzip.compress(head + values.tobytes()))


def test_partitions_of_fashion(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    artefact = artefacts()["rolinek2019.partition"]
    absent = reproduce(artefact, "smoke", device="cpu")
    assert [finding.outcome for finding in absent.findings] == ["not run"] and artefact.plot(absent.tables)
    digits(tmp_path / "unseam" / "fashion_mnist")
    tables = reproduce(artefact, "smoke", device="cpu").tables
    curves = tables["curves"].pivot(index=["seed", "epoch"], columns="partition", values="delta_kl")
    assert (curves["least"] <= curves["nats"]).all()
    assert artefact.plot(tables)


@pytest.mark.parametrize(
    ("curve", "said"),
    [
        ([0.1, 0.02, 0.01], ["agrees"] * 2),
        ([0.1, 0.02, 0.04], ["differs"] * 2),
        ([0.1, np.nan, np.nan], ["differs", "cannot tell"]),
        ([0.1, 0.1, 0.01], ["differs", "agrees"]),
    ],
)
def test_a_partition_is_judged_by_when_and_whether_it_stays_below(curve, said):
    rows = [
        {"partition": name, "seed": seed, "epoch": epoch, "delta_kl": error}
        for name in beyond.PARTITIONS
        for seed in range(3)
        for epoch, error in zip((1.0, 12.0, 20.0), curve, strict=True)
    ]
    assert outcomes("rolinek2019.partition", {"curves": pd.DataFrame(rows)}) == said * 2


def test_mnist_rows(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    artefact = artefacts()["rolinek2019.table2_mnist"]
    (absent,) = reproduce(artefact, "smoke", device="cpu").findings
    assert absent.outcome == "not run" and "unseam data fetch mnist" in absent.note
    digits(tmp_path / "unseam" / "mnist")
    assert MNIST.load().shape == (1, 28, 28)
    tables = reproduce(artefact, "smoke", device="cpu").tables
    assert set(tables) == {"members", "random", "trainings"}
    assert "disent_table" not in tables["members"]
    assert artefact.plot(tables)


def test_data_sets_that_are_missing_leave_the_others_along_training(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tables = as_stored(beyond.measure_along(Trainings((smoke(LINEAR), smoke(MNIST))), HERE))
    found = beyond.ALONG.judge(tables)
    assert [finding.outcome == "not run" for finding in found] == [False, False, True]
    assert found[-1].quantity == "MNIST" and "unseam data fetch mnist" in found[-1].note
    assert set(tables["members"]["world"]) == {"linear"}
    beyond.plot_along(tables)
