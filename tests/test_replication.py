"""Which latents return in other models: subjects, runs, the command, and worlds where theory says what must."""

import dataclasses
import json
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch

import unseam
from unseam.cli import main
from unseam.metrics import mcc, udr
from unseam.papers.allen2024._decoders import polar
from unseam.papers.allen2024.theorem2 import sphere
from unseam.replicate import _columns, describe_seeds, replicate_members, replicate_seeds
from unseam.report import run_studies, sections

F64 = {"dtype": torch.float64}
LINEAR = unseam.Trial(
    world="linear",
    latent=2,
    encoder_widths=(),
    decoder_widths=(),
    likelihood="gaussian",
    steps=3,
    batch_size=8,
)


def seeded(number=0):
    return torch.Generator().manual_seed(number)


BUILT = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "replication.py"))
linear_models, rotation, signed_permutation, subject_of = (
    BUILT[name] for name in ("linear_models", "rotation", "signed_permutation", "subject_of")
)


def curved_models(decoder, inverse, turns):
    """A decoder behind rotations of its latents, with its inverse, and data."""
    models = [
        unseam.Subject(
            f"model {place}",
            lambda z, turn=turn: decoder(z @ turn.mT),
            2,
            encoder=lambda x, turn=turn: (inverse(x) @ turn, 0.01 + 0 * x[:, :2]),
        )
        for place, turn in enumerate(turns)
    ]
    return models, decoder(torch.randn(300, 2, generator=seeded(3), **F64))


# Theory


def test_axes_of_distinct_variances_return_under_a_diagonal_posterior():
    models, x = linear_models((5.0, 3.0, 2.0, 1.0, 0.05), 3, 6, full=False, generator=seeded())
    found = unseam.replication(models, x)
    assert found.recurrence.returns.all()
    assert (found.score.value, found.groups(0)) == (1.0, [])
    assert found.sentence(2, 1) == "found in 6 of 6 models"
    assert "z0, z1 and z2 found in 6 of 6 models" in found.summary()


@pytest.mark.parametrize("eigenvalues", [(5.0, 3.0, 2.0, 1.0), (2.0, 2.0, 2.0, 1.0)])
def test_only_the_subspace_returns_under_a_full_covariance_or_equal_variances(eigenvalues):
    models, x = linear_models(eigenvalues, 3, 6, full=True, generator=seeded())
    found = unseam.replication(models, x)
    assert found.score.value == 0
    assert [group.latents for group in found.recurrence.groups] == [(0, 1, 2)] * 6
    assert found.sentence(1, 0) == "found only together with z1 and z2, in 6 of 6 models"
    assert "z0, z1 and z2 found only together, rotated among each other, in 6 of 6" in found.summary()


def test_collapsed_latents_are_left_out():
    models, x = linear_models((5.0, 3.0, 0.05, 0.01), 3, 4, full=False, generator=seeded())
    found = unseam.replication(models, x)
    assert found.active.sum(1).tolist() == [2] * 4
    assert found.score.value == 1
    assert set(found.table()["likeness"].round(6)) == {1.0}
    collapsed = int((~found.active[0]).nonzero())
    assert (found.sentence(0, collapsed), found.found_in(0, collapsed)) == ("", 0)
    lost = found.recurrence._replace(returns=torch.zeros_like(found.active), groups=())
    lost, one = dataclasses.replace(found, recurrence=lost), int(found.active[0].nonzero()[0])
    assert lost.sentence(0, one) == "no significant match in other models"
    assert lost.describe(0).endswith(" without a significant match in the others.")


def polar_inverse(x):
    slope = x[:, 1] / x[:, 0]
    return torch.stack([x.norm(dim=1).log() / 0.5, slope], 1)


def sphere_inverse(x):
    return x[:, :2] / (1 - x[:, 2:])


@pytest.mark.parametrize(
    ("decoder", "inverse"),
    [(polar(0.5), polar_inverse), (sphere(1.0), sphere_inverse)],
    ids=["polar", "sphere"],
)
def test_curved_decoders_are_matched_as_they_were_rotated(decoder, inverse):
    """Polar axes are unique up to signs and order; all axes of the sphere are orthogonal, so that none is preferred."""
    generator = seeded(1)
    straight = unseam.replication(
        *curved_models(decoder, inverse, [signed_permutation(2, generator) for _ in range(5)])
    )
    assert straight.score.value == 1
    turned = unseam.replication(*curved_models(decoder, inverse, [rotation(2, generator) for _ in range(8)]))
    assert turned.score.value == 0
    assert all(group.latents == (0, 1) for group in turned.recurrence.groups)


def test_columns_that_vanish_at_an_item_add_nothing_there():
    found = _columns(
        unseam.Subject("relu", torch.relu, 2),
        torch.tensor([[-1.0, 2.0], [1.0, 2.0]], **F64),
        torch.ones(2) > 0,
    )
    half = 0.5**0.5  # two columns at the second item, one at the first
    expected = torch.tensor([[0.0, 0.0, half, 0.0], [0.0, 1.0, 0.0, half]], **F64)
    torch.testing.assert_close(found, expected)


def test_it_agrees_with_factors_and_with_udr():
    """Of models that are rotated by more and more, those that return are those whose codes are the factors."""
    factors = torch.randn(500, 3, generator=seeded(), **F64)
    angles = [0.0, 0.0, 0.05, 0.0, 0.0, 0.6, 0.0, 0.5]
    models, codes = [], []
    lengths = torch.tensor([3.0, 2.0, 1.5], **F64)
    for angle in angles:
        turn = torch.linalg.matrix_exp(angle * torch.tensor([[0.0, 1, 1], [-1, 0, 1], [-1, -1, 0]], **F64))
        models.append(
            subject_of(torch.diag(lengths) @ turn, turn.mT / lengths, 0.01 * torch.eye(3, **F64), "one")
        )
        codes.append(factors @ turn)
    found = unseam.replication(models, factors * lengths)
    scores = np.array([share.value for share in found.scores])
    right = mcc(torch.stack(codes), factors).score.numpy()
    label_free = udr(torch.stack(codes), torch.ones(8, 3), preset="fast").score.numpy()
    odd = [5, 7]
    for values in (scores, right, label_free):
        assert set(values.argsort()[:2]) == set(odd)
    assert scores[odd].max() < 0.2
    assert np.delete(scores, odd).min() >= 5 / 7


# Runs


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    trials = [dataclasses.replace(LINEAR, seed=seed, beta=beta) for beta in (0.01, 0.02) for seed in range(3)]
    unseam.save(unseam.train([*trials, dataclasses.replace(LINEAR, beta=1.0)], device="cpu"), folder)
    return folder


def test_members_that_differ_in_their_seed_alone_are_compared(folder):
    run = unseam.Run.open(folder)
    found = replicate_seeds([run])
    assert [one.members for one in found] == [(0, 1, 2), (3, 4, 5)]
    assert found[0].where == "500 items of linear"
    (whole,) = replicate_seeds([run], members=[0, 1, 6], together=True)
    assert whole.members == (0, 1, 6)
    assert unseam.replication(folder, members=[0, 1, 2], generator=seeded()).to_dict() == found[0].to_dict()
    two = replicate_seeds([run, unseam.Run.open(folder)], members=[0])
    assert two[0].names[0].startswith("run: member 0 (")
    assert two[0].recurrence.likeness[0, 1].abs().allclose(torch.ones((), **F64))


def test_items_are_held_out_ones_of_the_first_run(folder):
    run = unseam.Run.open(folder)
    split = unseam.Run.of(
        unseam.train(dataclasses.replace(LINEAR, beta=0.01, train_fraction=0.9), device="cpu")
    )
    draw = int(torch.randint(2**31, (), generator=seeded()))
    for members, where in (
        ([(split, 0), (run, 0)], "60 held-out items of linear"),
        ([(run, 0), (split, 0)], "60 items of linear"),
    ):
        found = replicate_members(members, items=60)
        assert found.where == where
        first, member = members[0]
        subjects = [one.subject(which) for one, which in members]
        direct = unseam.replication(subjects, first.images(member, 60, draw))
        assert torch.equal(found.active, direct.active)
        torch.testing.assert_close(found.recurrence.likeness, direct.recurrence.likeness)


def test_members_that_diverged_are_left_out(folder):
    run = unseam.Run.open(folder)
    _ = run.ensemble
    run.standing = (run.standing[0]._replace(stopped=2), *run.standing[1:])
    assert [one.members for one in replicate_seeds([run])] == [(1, 2), (3, 4, 5)]


def test_a_run_and_its_members_give_the_same(folder):
    ensemble = unseam.load(folder)
    x = unseam.data.load("linear").sample(60, seeded()).x
    one = unseam.replication(ensemble, x, members=[0, 2], generator=seeded())
    other = unseam.replication([ensemble[0], ensemble[2]], x, generator=seeded())
    assert one.table().drop(columns="model").equals(other.table().drop(columns="model"))
    assert other.names == ("model 0", "model 1")
    assert "<table" in one._repr_html_()
    assert "<svg" in one.chart()


def test_unequal_numbers_of_latents_are_padded(folder):
    wide = dataclasses.replace(LINEAR, latent=3, beta=0.01)
    x = unseam.data.load("linear").sample(60, seeded()).x
    models = [*unseam.train([wide, dataclasses.replace(wide, seed=1)]), unseam.load(folder)[0]]
    found = unseam.replication(models, x)
    assert found.active.shape == (3, 3)
    assert not found.active[2, 2]


def test_one_model_or_none_that_is_active_is_refused(folder):
    run, x = unseam.Run.open(folder), torch.zeros(5, 3)
    with pytest.raises(ValueError, match="models must be two or more to be compared, got 1"):
        unseam.replication(run, members=[0])
    with pytest.raises(ValueError, match="models must have active latents to be compared, got 0 of 2"):
        still = unseam.Subject("still", lambda z: z, 2, encoder=lambda x: (0 * x[:, :2], 1 + 0 * x[:, :2]))
        unseam.replication([still, still], x)
    with pytest.raises(ValueError, match="mine has no encoder, so its latents cannot be compared"):
        unseam.replication([unseam.Subject("mine", torch.sin, 2)] * 2, x)
    with pytest.raises(ValueError, match="x must be given where models do not come from runs"):
        unseam.replication([run.subject(0), run.subject(1)])
    with pytest.raises(ValueError, match="models must be subjects, VAEs or runs, got int"):
        unseam.replication([3, 4], x)
    with pytest.raises(ValueError, match="members must be left out where models are not one run"):
        unseam.replication([run], x, members=[0])
    other = unseam.Subject(
        "other", lambda z: z @ torch.ones(2, 4), 2, encoder=lambda x: (x[:, :2], 0 * x[:, :2] + 0.1)
    )
    with pytest.raises(
        ValueError, match="models must return as many values per item, got 4 from other and 3 from"
    ):
        unseam.replication([run.subject(0), other], torch.randn(50, 3, generator=seeded()))


# The command


@pytest.fixture
def command(monkeypatch, capsys):
    """Call ``unseam`` with some words; returns its status and what it printed."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["unseam", *map(str, words)])
        try:
            main()
            status = 0
        except SystemExit as leave:
            status = leave.code or 0
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


def test_the_command_prints_a_table_and_json(folder, tmp_path, command):
    status, printed, _ = command("replicate", folder, "--items", 100, "--figure", tmp_path / "one.svg")
    assert status == 0
    assert printed.count("latents that return in other models") == 2
    assert "Replication" in printed
    assert {path.name for path in tmp_path.glob("*.svg")} == {"one-0.svg", "one-1.svg"}
    found = json.loads(command("replicate", folder, "--items", 100, "--json")[1])["replication"]
    assert [len(one["models"]) for one in found] == [3, 3]
    assert found[0]["latents"][0].keys() >= {"found", "others", "likeness", "p", "returns"}


def test_the_command_says_what_is_missing(folder, command):
    for words, message in (
        ([folder, "--member", 0, "--member", 3], "no two members differ in their seed alone"),
        (["mine:models"], "--data must name the file of items"),
        ([folder, "mine:models"], "TARGET must be all runs or all models of your own"),
        ([folder, "--figure", "one.png"], "--figure must name an .svg file"),
    ):
        status, _, complaint = command("replicate", *words)
        assert status in (1, 2)
        assert message in complaint


def test_the_command_takes_models_of_the_users_own(tmp_path, monkeypatch, command):
    models, x = linear_models((5.0, 3.0, 1.0), 2, 3, full=False, generator=seeded())
    monkeypatch.setitem(sys.modules, "own_models", SimpleNamespace(models=models, make=lambda: models[0]))
    np.save(tmp_path / "x.npy", x.numpy())
    status, printed, _ = command(
        "replicate", "own_models:models", "own_models:make", "--data", tmp_path / "x.npy"
    )
    assert status == 0
    assert "Latents of model 0: z0 and z1 found in 4 of 4 models." in printed


def test_inspect_and_the_report_say_over_seeds_where_latents_return(folder, command):
    assert "replication" not in command("inspect", folder, "--points", 50, "--member", 0, "--json")[1]
    found = json.loads(command("inspect", folder, "--points", 50, "--json")[1])["inspected"]
    assert ["replication" in one for one in found] == [True] * 6 + [False]
    run = unseam.Run.open(folder)
    said = describe_seeds(run, items=50, seed=0)
    assert [one.get("replication") for one in found[:6]] == [said[member] for member in range(6)]
    assert said[0].startswith("Over 3 seeds: ")
    printed = command("inspect", folder, "--points", 50, "--figures", folder.parent)[1]
    assert all(line in " ".join(printed.split()) for line in said.values())
    studies = run_studies(run, members=[0, 1, 2, 6], points=50)
    assert [one.returns[:13] for one in studies] == ["Over 3 seeds:", ""]
    (part,) = [one for one in sections(studies) if one.title == "Which latents are active?"]
    assert studies[0].returns in part.said[0][1]


def test_runs_without_active_latents_are_inspected_all_the_same(monkeypatch):
    run = unseam.Run.of(unseam.train([LINEAR, dataclasses.replace(LINEAR, seed=1)], device="cpu"))
    monkeypatch.setattr(
        unseam.geometry, "active_latents", lambda mean, variance: Activity(mean[0] != mean[0])
    )
    assert describe_seeds(run, items=50, seed=0) == {}
    with pytest.raises(ValueError, match="models must have active latents to be compared, got 0 of 2"):
        replicate_seeds([run], items=50)


class Activity(NamedTuple):
    active: torch.Tensor


@pytest.mark.slow
@pytest.mark.parametrize(("posterior", "score", "groups"), [("diagonal", 1.0, 0), ("full", 0.0, 10)])
def test_trained_linear_models_return_as_theory_says(posterior, score, groups):
    trial = dataclasses.replace(
        LINEAR, posterior=posterior, beta=1e-2, learning_rate=2e-2, steps=4000, batch_size=64
    )
    run = unseam.Run.of(
        unseam.train([dataclasses.replace(trial, seed=seed) for seed in range(10)], device="cpu")
    )
    (found,) = replicate_seeds([run])
    assert (found.score.value, len(found.recurrence.groups)) == (score, groups)
    scores = unseam.score(run, ["udr"])["score"]
    assert (scores.min() > 0.8) == (posterior == "diagonal")
