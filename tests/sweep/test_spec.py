"""Specs: axes, zips, draws, blocks, exclusions; what is wrong is named."""

import os

import pytest

from unseam.sweep import Spec, axis_values, read_spec
from unseam.trial import Trial


def fields(spec, *names):
    return [tuple(getattr(trial, name) for name in names) for trial in read_spec(spec).trials]


def test_a_file_gives_the_grid_the_zip_and_the_score(tmp_path):
    (tmp_path / "spec.toml").write_text(
        """
        name = "beta"
        questions = ["Does beta matter?", {ask = "How much?", answer = "mig"}]
        [trial]
        world = "linear"
        likelihood = "gaussian"
        world_options = {size = 50}
        [axes]
        beta = {from = 0.1, to = 10, num = 3, scale = "log"}
        seed = {range = [0, 2]}
        "world_options.ratio" = [1.5]
        [[zip]]
        latent = [2, 3]
        batch_size = [16, 32]
        [[exclude]]
        beta = 10
        latent = [3]
        [score]
        metrics = ["mig"]
        """
    )
    spec = read_spec(tmp_path / "spec.toml")
    assert len(spec.trials) == 3 * 2 * 2 - 2
    assert {(trial.latent, trial.batch_size) for trial in spec.trials} == {(2, 16), (3, 32)}
    assert not [trial for trial in spec.trials if trial.beta == 10 and trial.latent == 3]
    assert dict(spec.trials[0].world_options) == {"size": 50, "ratio": 1.5}
    assert spec.questions == (("Does beta matter?", ""), ("How much?", "mig"))
    assert (spec.name, spec.score.metrics) == ("beta", ("mig",))


def test_blocks_share_what_is_above_and_are_joined_once():
    spec = {
        "trial": {"world": "linear", "latent": 3},
        "axes": {"seed": [0, 1]},
        "block": [
            {"trial": {"objective": "beta_elbo"}, "axes": {"beta": [1, 2]}},
            {"trial": {"objective": "factor_vae"}, "axes": {"gamma": [5]}},
            {"axes": {"beta": [2, 3]}},
        ],
    }
    found = fields(spec, "objective", "beta", "gamma", "seed")
    assert len(found) == len(set(found))
    assert set(found) == {
        *(("beta_elbo", beta, 1.0, seed) for beta in (1, 2) for seed in (0, 1)),
        *(("factor_vae", 1.0, 5, seed) for seed in (0, 1)),
        *(("beta_elbo", 3, 1.0, seed) for seed in (0, 1)),
    }


def test_draws_are_those_of_their_seed_and_lie_within():
    axes = {"learning_rate": {"from": 1e-4, "to": 1e-2, "scale": "log"}, "latent": {"from": 2, "to": 6}}
    spec = {"random": {"num": 30, "seed": 3, "axes": axes}, "axes": {"seed": [0, 1]}}
    found = fields(spec, "learning_rate", "latent")
    assert found == fields(spec, "learning_rate", "latent")
    assert len(found) == 60
    assert all(
        1e-4 <= rate <= 1e-2 and isinstance(latent, int) and 2 <= latent <= 6 for rate, latent in found
    )
    other = {**spec, "random": {**spec["random"], "seed": 4}}
    assert found != fields(other, "learning_rate", "latent")


def test_both_ends_of_an_interval_are_exact():
    assert axis_values("beta", {"from": 0.3, "to": 7, "num": 4, "scale": "log"})[::3] == [0.3, 7.0]
    assert axis_values("latent", {"from": 2, "to": 10, "num": 3}) == [2, 6, 10]
    assert axis_values("beta", {"from": 2, "to": 10, "num": 1}) == [2.0]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"axis": {}}, "axis is unknown; did you mean axes?"),
        ({"trial": {"bta": 1}}, "trial.bta is no field of a trial; did you mean beta?"),
        ({"axes": {"sead": [1]}}, "axes.sead is no field of a trial; did you mean seed?"),
        ({"axes": {"beta": {"from": 1, "to": 2, "nun": 3}}}, "axes.beta.nun is unknown; did you mean num?"),
        ({"axes": {"beta": []}}, "axes.beta must have at least one value"),
        ({"axes": {"beta": 3}}, "axes.beta must be a list, {from, to, num, scale} or {range}"),
        ({"axes": {"beta": {"from": 0, "to": 2, "num": 3, "scale": "log"}}}, "log between positive ends"),
        ({"axes": {"latent": {"from": 2, "to": 3, "num": 3}}}, "latent must be whole numbers"),
        ({"zip": [{"beta": [1, 2], "latent": [1]}]}, "one length, got beta 2, latent 1"),
        ({"score": {"metrix": []}}, "score.metrix is unknown; did you mean metrics?"),
        ({"score": {"metrics": "mig"}}, "score.metrics must be a list of names"),
        ({"block": [{"axess": {}}]}, "block 0: axess is unknown"),
        ({"questions": "Why?"}, "questions must be a list"),
        ({"questions": [{"ask": ""}]}, "a question must be a text, or a table with ask and answer"),
        ({"questions": [{"asks": "Why?"}]}, "questions.asks is unknown; did you mean ask?"),
        ({"random": {"num": 3}}, "random must have num"),
        ({"exclude": [{"beta": 1}]}, "all were excluded"),
        ({"axes": {"seed": {"range": [0, 2_000_000]}}}, "at most 1000000 trials"),
        ({"axes": {"momentum": [0.5]}}, "momentum is used by optimiser sgd"),
        ([], "at least one trial"),
        ([3], "a spec or trials"),
    ],
)
def test_what_is_wrong_is_named(spec, message):
    with pytest.raises(ValueError, match=message.replace("{", r"\{").replace("?", r"\?")):
        read_spec(spec)


def test_trials_are_a_spec_and_each_is_there_once():
    assert read_spec([Trial(beta=1), Trial(beta=1.0), Trial(seed=1)]) == Spec((Trial(), Trial(seed=1)))


def test_files_that_are_no_specs_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "deep.toml").write_text("a = " + "[" * 10**5)
    (tmp_path / "digits.toml").write_text("a = " + "1" * 10**5)
    for name, message in (
        ("absent", "does not exist"),
        ("pipe", "got a pipe"),
        ("deep", "deep.toml is no TOML"),
        ("digits", "digits.toml is no TOML"),
    ):
        with pytest.raises(ValueError, match=message):
            read_spec(tmp_path / f"{name}.toml")
