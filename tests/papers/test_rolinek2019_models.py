"""Trainings of rolinek2019: measured as the library measures single models, cached, judged by rules that can fail."""

import dataclasses
import gzip

import numpy as np
import pandas as pd
import pytest
import torch
from unseam.papers.rolinek2019.cells import Published, cell, correlated, order

import unseam
from unseam import geometry
from unseam.data import split
from unseam.papers import Workplace, artefacts, reproduce, results_folder
from unseam.papers.artefact import as_stored
from unseam.papers.rolinek2019 import along
from unseam.papers.rolinek2019.figure3 import _among_alike, _beside_dto, _foretelling
from unseam.papers.rolinek2019.maps import _about, _among, _paired, _together
from unseam.papers.rolinek2019.measures import ACTIVE, Unseen, latent_terms, measures, missing, regime_errors
from unseam.papers.rolinek2019.partition import PARTITIONS, _findings
from unseam.papers.rolinek2019.runs import _marks, at_beta, followed, last
from unseam.papers.rolinek2019.setups import LINEAR, MNIST, NONLINEAR, SPRITES, smoke
from unseam.papers.rolinek2019.table1 import _finding
from unseam.papers.rolinek2019.table_s4 import turned

HERE = Workplace(torch.device("cpu"))


def trained(setup, column):
    world = setup.load()
    ensemble = unseam.train(setup.trials(column, world), world=world)
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


def test_dead_latents_are_left_out_where_active_ones_are_measured():
    ensemble, unseen = trained(smoke(SPRITES, betas=(0.1, 1e4), seeds=1, epochs=20), "β-VAE")
    alive, dead = measures(ensemble, unseen)
    assert alive["active"] > 1 and np.isfinite(alive["dto_active"])
    assert dead["active"] == 0 and np.isnan(dead["dto_active"])


def test_regime_errors_are_those_of_each_member():
    ensemble, unseen = trained(smoke(NONLINEAR), "β-VAE")
    code = ensemble.encode(unseen.world.images(unseen.validation[: unseen.points]))
    each = list(zip(*code, strict=True))
    expected = [float(geometry.delta_kl(*one).whole) for one in each]
    assert regime_errors(ensemble, unseen).tolist() == pytest.approx(expected, rel=1e-4)
    alive = [geometry.active_latents(mean, spread).active for mean, spread in each]
    kl, half, _ = latent_terms(ensemble, unseen)
    by_nats = [float(geometry.delta_kl(*one, active).whole) for one, active in zip(each, alive, strict=True)]
    assert missing(kl, half, kl > ACTIVE).tolist() == pytest.approx(by_nats, rel=1e-4)


def test_an_interval_of_percentages_stays_among_the_runs():
    found = _finding("share", 97.7, np.array([100.0] * 9 + [88.0]))
    assert found.note == "median 100.0, least of 10 runs 88.0"
    assert 88.0 < found.lower < found.measured == 98.8 < found.upper <= 100.0
    assert _finding("share", 97.7, np.array([100.0]))[3:5] == (None, None)


def test_every_kept_regime_is_under_the_partition_of_least_error():
    folder = results_folder() / "rolinek2019" / "trainings"
    kept = pd.concat(pd.read_csv(path) for path in folder.glob("*.trainings.csv"))
    diagonal = ~kept["column"].isin(["AE", "β-VAE_Σ"])
    assert set(kept[diagonal]["partition"]) == {"least error"}


# Trainings


def test_trainings_are_kept_and_found_again(tmp_path, monkeypatch):
    setup, place = smoke(LINEAR), Workplace(torch.device("cpu"), shared=tmp_path)
    first = followed(setup, "AE", place)
    monkeypatch.setattr("unseam.papers.rolinek2019.runs._train", lambda *given: pytest.fail("trained again"))
    again = followed(dataclasses.replace(setup, columns=("AE",)), "AE", place)
    pd.testing.assert_frame_equal(again.members, first.members, rtol=1e-5, check_dtype=False)
    with pytest.raises(pytest.fail.Exception):
        followed(dataclasses.replace(setup, batch_size=25), "AE", place)


def test_runs_are_measured_when_they_should_be():
    setup = dataclasses.replace(SPRITES, checked=500, epochs_recorded=(10, 30, 50), batch_size=100)
    assert _marks(setup, 50 * 1000, 100_000) == {10_000, 30_000, 50_000}
    marks = sorted(_marks(dataclasses.replace(setup, epochs_recorded=(), records=6), 50_000, 100_000))
    assert marks[-1] == 50_000 and len(marks) == 6 and all(mark % 500 == 0 for mark in marks)


def test_polarised_share_counts_from_the_last_check_above_the_threshold(monkeypatch):
    errors = iter([0.5, 0.01, 0.5, 0.01, 0.02, 0.01])
    monkeypatch.setattr(
        "unseam.papers.rolinek2019.runs.regime_errors", lambda *given: torch.tensor([next(errors)])
    )
    setup = smoke(LINEAR, seeds=1, betas=(1e-4,), options=(("size", 75),), epochs=20, records=1)
    members = followed(setup, "β-VAE", HERE).members
    assert members["polarised"].tolist() == [pytest.approx(50.0)]


def test_runs_that_diverge_are_left_out_and_counted(monkeypatch):
    setup = smoke(LINEAR, betas=(1e-4,))
    whole = followed(setup, "AE", HERE)
    steps = unseam.papers.rolinek2019.runs.training_steps

    def stumbling(stack, world, **options):
        stack.alive[1] = False
        return steps(stack, world, **options)

    monkeypatch.setattr("unseam.papers.rolinek2019.runs.training_steps", stumbling)
    part = followed(setup, "AE", HERE)
    assert (whole.trainings["diverged"][0], part.trainings["diverged"][0]) == (0, 1)
    assert set(part.members["seed"]) == set(whole.members["seed"]) - {1}
    pd.testing.assert_frame_equal(
        part.members.reset_index(drop=True), whole.members.query("seed != 1").reset_index(drop=True)
    )


def test_a_column_of_which_nothing_is_left_says_so():
    with pytest.raises(RuntimeError, match="all 3 runs of AE on linear diverged"):
        followed(smoke(LINEAR, learning_rate=1e30), "AE", HERE)


def test_losses_are_members_of_one_stack_and_table_2_takes_one_of_them():
    members = followed(smoke(LINEAR, seeds=2), "β-VAE", HERE).members
    assert len(last(members)) == 4
    assert len(last(at_beta(members, 3e-4))) == 2


# Rules


def test_a_cell_is_judged_by_the_published_spread_and_our_standard_error():
    wide = [0.1, 1.2, 0.6, 0.9, 0.3, 0.7, 0.5, 0.8]
    assert cell("", Published(0.0, 0.0), wide).verdict == "not reproduced"
    assert cell("", Published(0.6, 0.1), wide).verdict == "reproduced"
    assert cell("", Published(0.0, 0.0), [0.004, 0.006]).verdict == "reproduced"


def test_orders_and_correlations_can_fail():
    low, high = [0.1, 0.2, 0.3, 0.25], [0.8, 0.9, 0.7, 1.0]
    assert order("", low, high).verdict == "reproduced"
    assert order("", high, low).verdict == "not reproduced"
    falling = pd.Series(np.linspace(1, 0, 20))
    rising = pd.Series(np.linspace(0, 1, 20))
    assert correlated("", falling, rising).verdict == "reproduced"
    assert correlated("", rising, rising).verdict == "not reproduced"


def test_a_published_number_is_among_those_of_maps_or_not():
    assert _among("", 0.5, [0.1, 0.4, 0.9]).verdict == "reproduced"
    assert _among("", 0.95, [0.1, 0.4, 0.9]).verdict == "not reproduced"
    assert _among("", 0.03, [0.02, 0.4], below=True).verdict == "reproduced"
    assert _among("", 0.03, [0.05, 0.4], below=True).verdict == "not reproduced"


def test_a_map_counts_where_all_cells_are_met_at_once():
    cells = [("β-VAE", 0.18, 0.73), ("AE", 0.54, 0.59), ("β-VAE_Σ", 0.55, 0.42)]
    rows = [
        {"map": seed, "column": column, "dto": dto + shift, "disent_table": score}
        for seed, shift in ((0, 0.0), (1, 0.5))
        for column, dto, score in cells
        for _ in range(3)
    ]
    found = _together(pd.DataFrame(rows))
    assert found.measured == 1 and "map 0" in found.note
    assert _together(pd.DataFrame(rows[len(rows) // 2 :])).verdict == "not reproduced"


def test_runs_that_belong_together_are_drawn_together():
    """Copies of runs add nothing to what is known."""
    random = np.random.default_rng(1)
    one, other = random.normal(size=(2, 12))
    alone = correlated("", one, other)
    copied = correlated("", np.tile(one, 3), np.tile(other, 3), groups=np.tile(np.arange(12), 3))
    assert (copied.lower, copied.upper) == pytest.approx((alone.lower, alone.upper))
    assert correlated("", np.tile(one, 3), np.tile(other, 3)).lower > alone.lower


def test_a_measure_is_held_beside_dto_and_among_runs_alike():
    """The score falls with the measure among runs of equal numbers of latents, and rises with their number."""
    score = np.concatenate([np.linspace(0.2, 0.1, 10), np.linspace(0.9, 0.8, 10)])
    measure = np.concatenate([np.linspace(0.0, 0.1, 10), np.linspace(0.5, 0.6, 10)])
    noise = np.random.default_rng(0).normal(size=20)
    runs = pd.DataFrame(
        {"world": "sprites", "dto": noise, "gap": measure, "cosine": noise**3, "disent_table": score}
    )
    runs["active"] = np.repeat([3, 4], 10)
    assert _among_alike(runs, "gap") == pytest.approx(-1)
    found = {finding.quantity.split("of ")[-1]: finding for finding in _foretelling(runs)}
    assert set(found) == {"DtO and score", "Hadamard gap and score"}
    assert "cosine order runs alike" in found["DtO and score"].note
    assert "-1.00 among runs" in found["Hadamard gap and score"].note
    falling = runs.assign(gap=-runs["disent_table"])
    assert _beside_dto(falling, "gap").startswith("less that of DtO -")
    assert _beside_dto(falling.assign(gap=runs["disent_table"]), "gap").startswith("less that of DtO 1.")
    few = [finding.note for finding in _foretelling(runs.iloc[[0, 1, 2, 3]].assign(active=[3, 3, 4, 4]))]
    assert not any("among runs" in note for note in few)


def test_orders_over_maps_are_paired():
    low = np.linspace(0, 10, 12)
    assert _paired("", low, low + np.linspace(0.1, 0.2, 12)).verdict == "reproduced"
    assert _paired("", low + np.linspace(0.1, 0.2, 12), low).verdict == "not reproduced"


def test_a_linear_map_is_measured_as_it_is():
    """The linear world stretches one axis by 2, so variances add up to (4 + 1)/12, and its columns are orthogonal."""
    about = _about(unseam.data.load("linear", size=20_000))
    assert about["dto"] == pytest.approx(0, abs=1e-6)
    assert about["variance"] == pytest.approx(5 / 12, rel=0.02)


@pytest.mark.parametrize("angle", [0.0, 10.0, 45.0, 80.0, -100.0])
def test_turned_ignores_order_sign_and_scale(angle):
    turn = np.radians(angle)
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    matrix = np.array([[0.0, -3.0], [3.0, 0.0]]) @ rotation
    expected = min(abs(angle) % 90, 90 - abs(angle) % 90)
    assert turned(matrix.reshape(1, 4)) == pytest.approx([expected], abs=1e-9)


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
    missing_data = reproduce(artefact, "smoke", device="cpu")
    assert missing_data.verdict == "cannot be run here" and artefact.draw(missing_data.outcome.tables)
    digits(tmp_path / "unseam" / "fashion_mnist")
    tables = reproduce(artefact, "smoke", device="cpu").outcome.tables
    curves = tables["curves"].pivot(index=["seed", "epoch"], columns="partition", values="delta_kl")
    assert (curves["least"] <= curves["nats"]).all()
    assert artefact.draw(tables)


@pytest.mark.parametrize(
    ("curve", "said"),
    [
        ([0.1, 0.02, 0.01], ["reproduced"] * 2),
        ([0.1, 0.02, 0.04], ["not reproduced"] * 2),
        ([0.1, np.nan, np.nan], ["not reproduced"] * 2),
        ([0.1, 0.1, 0.01], ["not reproduced", "reproduced"]),
    ],
)
def test_a_partition_is_judged_by_when_and_whether_it_stays_below(curve, said):
    rows = [
        {"partition": name, "seed": 0, "epoch": epoch, "delta_kl": error}
        for name in PARTITIONS
        for epoch, error in zip((1.0, 12.0, 20.0), curve, strict=True)
    ]
    assert [finding.verdict for finding in _findings(pd.DataFrame(rows))] == said * 2


def test_mnist_rows(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    key = "rolinek2019.table2_mnist"
    assert reproduce(artefacts()[key], "smoke", device="cpu").verdict == "cannot be run here"
    digits(tmp_path / "unseam" / "mnist")
    assert MNIST.load().shape == (1, 28, 28)
    result = reproduce(artefacts()[key], "smoke", device="cpu")
    assert {"members", "random", "trainings"} <= set(result.outcome.tables)
    assert "disent" not in result.outcome.tables["members"]
    assert artefacts()[key].draw(result.outcome.tables)


def test_data_sets_that_are_missing_leave_the_others_along_training(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tables = as_stored(along.measure(along.Settings((smoke(LINEAR), smoke(MNIST))), HERE))
    found = along.judge(tables).findings
    assert [finding.verdict == "cannot be run here" for finding in found] == [False, False, True]
    assert found[-1].quantity == "MNIST" and "unseam data fetch mnist" in found[-1].note
    assert set(tables["members"]["world"]) == {"linear"}
    along.draw(tables)
