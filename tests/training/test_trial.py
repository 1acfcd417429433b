"""A trial is plain data that checks itself."""

import dataclasses
import json

import pytest

from unseam.training import Trial, group
from unseam.trial import MEMBER_FIELDS


def test_json_round_trip():
    trial = Trial(
        world="linear", world_options={"ratio": 1.2, "size": 10}, encoder_widths=(3,), adam_betas=(0.5, 0.9)
    )
    assert Trial.from_dict(json.loads(json.dumps(trial.to_dict()))) == trial
    assert hash(trial) == hash(Trial.from_dict(trial.to_dict()))


def test_unknown_field():
    with pytest.raises(ValueError, match="unknown trial field 'betta'; the fields are"):
        Trial.from_dict({"betta": 1})


@pytest.mark.parametrize("name", sorted(MEMBER_FIELDS))
def test_member_fields_share_a_stack(name):
    trial = Trial()
    assert dataclasses.replace(trial, **{name: 3}).stacks_with(trial)


@pytest.mark.parametrize(
    "change", [{"latent": 3}, {"batch_size": 2}, {"world": "linear"}, {"steps": 3}, {"momentum": 0.5}]
)
def test_other_fields_do_not(change):
    assert not dataclasses.replace(Trial(), **change).stacks_with(Trial())


def test_groups_keep_the_order():
    trials = [Trial(seed=s, latent=latent) for s in range(2) for latent in (2, 3)]
    assert group(trials) == [[0, 2], [1, 3]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"posterior": "diag"}, "posterior must be one of diagonal, full, point; got 'diag'"),
        ({"latent": 0}, "latent must be a whole number of at least 1, got 0"),
        ({"steps": 1.5}, "steps must be a whole number of at least 1, got 1.5"),
        ({"seed": -1}, "seed must be a whole number from 0 to"),
        ({"beta": float("nan")}, "beta must be a finite number of at least 0, got nan"),
        ({"learning_rate": 0}, "learning_rate must be positive, got 0"),
        ({"train_fraction": 0.0}, "train_fraction must lie in"),
        ({"momentum": 1.0}, "momentum must lie in"),
        ({"encoder_widths": (0,)}, "encoder_widths must hold whole numbers of at least 1"),
        ({"architecture": "study", "encoder_widths": (3,)}, "encoder_widths is for architecture 'mlp'"),
        ({"accumulator": -0.1}, "accumulator must be a finite number of at least 0, got -0.1"),
        ({"epsilon": 0.0}, "epsilon must be a finite number above 0, got 0.0"),
        ({"adam_betas": (2.0, 3.0)}, "adam_betas must be two numbers in"),
        ({"adam_betas": (0.9, 0.9, 0.9)}, "adam_betas must be two numbers in"),
        ({"encoder_widths": 5}, "encoder_widths must be a sequence of numbers, got 5"),
        ({"objective": "autoencoder"}, "objective 'autoencoder' needs posterior 'point', got 'diagonal'"),
        ({"objective": "beta_tcvae", "posterior": "point"}, "needs a posterior with a variance"),
    ],
)
def test_bad_values(change, message):
    with pytest.raises(ValueError, match=message):
        Trial(**change)


def test_description_names_what_differs():
    assert Trial(beta=4.0, seed=3).describe() == "Trial(beta=4.0, seed=3)"
