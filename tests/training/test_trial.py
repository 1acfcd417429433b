"""A trial is plain data that checks itself."""

import dataclasses
import json

import pytest

import unseam
from unseam import choices
from unseam.training import Trial, group
from unseam.training.checkpoint import write_record
from unseam.trial import KINDS, MEMBER_FIELDS


def test_json_round_trip():
    trial = Trial(
        world="linear", world_options={"ratio": 1.2, "size": 10}, encoder_widths=(3,), adam_betas=(0.5, 0.9)
    )
    assert Trial.from_dict(json.loads(json.dumps(trial.to_dict()))) == trial
    assert hash(trial) == hash(Trial.from_dict(trial.to_dict()))


def test_unknown_field():
    with pytest.raises(ValueError, match="unknown trial field 'betta'; the fields are"):
        Trial.from_dict({"betta": 1})


def user_of(name):
    """A trial whose choices use a field."""
    for field, kind in KINDS.items():
        for choice in choices.built_in(kind).values():
            if name in [option.name for option in choice.options]:
                return Trial(**{field: choice.name})
    return Trial()


@pytest.mark.parametrize("name", sorted(MEMBER_FIELDS))
def test_member_fields_share_a_stack(name):
    trial = user_of(name)
    assert dataclasses.replace(trial, **{name: 3}).stacks_with(trial)


@pytest.mark.parametrize(
    "change", [{"latent": 3}, {"batch_size": 2}, {"world": "linear"}, {"steps": 3}, {"epsilon": 0.5}]
)
def test_other_fields_do_not(change):
    assert not dataclasses.replace(Trial(), **change).stacks_with(Trial())


def test_groups_keep_the_order():
    trials = [Trial(seed=s, latent=latent) for s in range(2) for latent in (2, 3)]
    assert group(trials) == [[0, 2], [1, 3]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"posterior": "diag"},
            "posterior must be one of diagonal, full, point, or package.module:object; got 'diag'",
        ),
        ({"latent": 0}, "latent must be a whole number of at least 1, got 0"),
        ({"steps": 1.5}, "steps must be a whole number of at least 1, got 1.5"),
        ({"seed": -1}, "seed must be a whole number from 0 to"),
        ({"beta": float("nan")}, "beta must be a finite number of at least 0, got nan"),
        ({"learning_rate": 0}, "learning_rate must be positive, got 0"),
        ({"train_fraction": 0.0}, "train_fraction must lie in"),
        ({"momentum": 1.0}, "momentum must lie in"),
        ({"encoder_widths": (0,)}, "encoder_widths must hold whole numbers of at least 1"),
        (
            {"architecture": "study", "encoder_widths": (3,)},
            "encoder_widths is used by architecture mlp, not by 'study'",
        ),
        ({"accumulator": -0.1}, "accumulator must be a finite number of at least 0, got -0.1"),
        ({"epsilon": 0.0}, "epsilon must be a finite number above 0, got 0.0"),
        ({"adam_betas": (2.0, 3.0)}, "adam_betas must be two numbers in"),
        ({"adam_betas": (0.9, 0.9, 0.9)}, "adam_betas must be two numbers in"),
        ({"encoder_widths": 5}, "encoder_widths must be a sequence of numbers, got 5"),
        (
            {"gamma": 7.0},
            "gamma is used by objective annealed_capacity, beta_tcvae, factor_vae, not by 'beta_elbo'; "
            "leave it at 1.0, got 7.0",
        ),
        ({"momentum": 0.9}, "momentum is used by optimiser sgd, not by 'adam'"),
        (
            {"likelihood_variance": 0.1},
            "likelihood_variance is used by likelihood gaussian, gaussian_learned, not by",
        ),
        (
            {"weights": {"delta": 1.0}},
            r"weights must name options of .* that are no fields \(none\), got 'delta'",
        ),
        ({"objective": 3}, "objective must be a name or a choices.Objective, got 3"),
        ({"objective": "math:pi"}, "math:pi must be a choices.Objective, got float"),
        ({"objective": "beta_elbow"}, "got 'beta_elbow'; did you mean 'beta_elbo'"),
        ({"objective": "autoencoder"}, "objective 'autoencoder' needs posterior 'point', got 'diagonal'"),
        ({"objective": "beta_tcvae", "posterior": "point"}, "needs a posterior with a variance"),
    ],
)
def test_bad_values(change, message):
    with pytest.raises(ValueError, match=message):
        Trial(**change)


def test_description_names_what_differs():
    assert Trial(beta=4.0, seed=3).describe() == "Trial(beta=4.0, seed=3)"


FORMAT_2 = {
    "world": "linear", "world_options": {"ratio": 1.2}, "train_fraction": 0.8, "split_seed": 0, "architecture": "mlp",
    "encoder_widths": [3], "decoder_widths": [], "encoder_activation": "relu", "decoder_activation": "tanh",
    "initialisation": "torch", "latent": 2, "posterior": "diagonal", "likelihood": "gaussian",
    "likelihood_variance": 0.1, "likelihood_draws": 1, "objective": "beta_elbo", "beta": 4.0, "alpha": 1.0,
    "gamma": 1.0, "capacity": 25.0, "capacity_steps": 100000.0, "lambda_od": 10.0, "lambda_d": 5.0,
    "orthogonality": 1.0, "sampling": "weighted", "discriminator_rate": 0.0001, "optimiser": "adagrad",
    "learning_rate": 0.01, "momentum": 0.0, "adam_betas": [0.9, 0.999], "accumulator": 0.1, "epsilon": None,
    "steps": 100, "batch_size": 32, "precision": "float32", "seed": 3,
}  # fmt: skip


def test_the_first_format_had_no_accumulator():
    record = {name: value for name, value in FORMAT_2.items() if name != "accumulator"}
    trial = Trial.from_dict(record)
    assert (trial.accumulator, trial.beta, trial.encoder_widths) == (0.0, 4.0, (3,))


def test_the_second_format_let_unused_fields_be_set():
    trial = Trial.from_dict(FORMAT_2)
    assert Trial.from_dict(FORMAT_2 | {"gamma": 7.0, "momentum": 0.9, "sampling": "stratified"}) == trial
    study = Trial.from_dict(FORMAT_2 | {"architecture": "study", "encoder_widths": [], "decoder_widths": []})
    assert study.encoder_widths == Trial().encoder_widths


def test_old_run_folders_load(tmp_path):
    trial = Trial(world="linear", likelihood="gaussian", latent=2, steps=2, batch_size=4)
    unseam.save(unseam.train(trial, world=unseam.data.load("linear", size=10)), tmp_path)
    record = json.loads((tmp_path / "run.json").read_text())
    record["trials"][0] |= {"gamma": 7.0, "momentum": 0.9}
    del record["trials"][0]["weights"], record["trials"][0]["accumulator"]
    write_record(tmp_path, record)
    assert unseam.load(tmp_path).trials == (trial,)


def test_the_third_format_refuses_them():
    record = Trial.from_dict(FORMAT_2).to_dict()
    assert record == FORMAT_2 | {"weights": {}} | {
        "encoder": "",
        "decoder": "",
        "missing": "refuse",
        "covariate_columns": 0,
    }
    with pytest.raises(ValueError, match="gamma is used by"):
        Trial.from_dict(record | {"gamma": 7.0})
    with pytest.raises(ValueError, match="gamma is used by"):
        Trial.from_dict({"gamma": 7.0})


def test_keys_tell_trials_apart_and_nothing_else():
    trial = Trial(beta=4.0)
    assert len(trial.key()) == 16
    assert trial.key() == Trial.from_dict(trial.to_dict()).key() == Trial(beta=4).key()
    others = [
        Trial(beta=5.0),
        Trial(beta=4.0, seed=1),
        Trial(beta=4.0, steps=3),
        Trial(beta=4.0, posterior="full"),
    ]
    assert len({trial.key(), trial.key(data="abc"), *(other.key() for other in others)}) == 6


def test_a_new_field_with_a_default_changes_no_key():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Wider(Trial):
        depth: int = 3

    assert Wider(beta=4.0).key() == Trial(beta=4.0).key() != Wider(beta=4.0, depth=4).key()


def test_keys_are_those_of_before():
    """A key may change with KEY_SCHEMA only."""
    assert Trial().key() == "343598c4d2ba85b0"


def test_what_a_trial_uses():
    trial = Trial(objective="autoencoder", posterior="point")
    assert [trial.uses(name) for name in ("beta", "adam_betas", "momentum", "latent")] == [
        False,
        True,
        False,
        True,
    ]
