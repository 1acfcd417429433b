"""Callbacks of a training, early stopping among them."""

import dataclasses

import pandas as pd
import pytest
import torch

import unseam
from unseam.training import EarlyStopping

TRIAL = unseam.Trial(
    world="linear",
    likelihood="gaussian",
    latent=2,
    steps=60,
    batch_size=8,
    encoder_widths=(8,),
    decoder_widths=(8,),
)


@pytest.fixture(scope="module")
def world():
    return unseam.data.load("linear", size=100)


def history(*columns):
    rows = [(m, 10 * (i + 1), True, v) for m, column in enumerate(columns) for i, v in enumerate(column)]
    return pd.DataFrame(rows, columns=["member", "step", "alive", "loss"]).sort_values("step", kind="stable")


@pytest.mark.parametrize(("improvement", "expected"), [(0.0, [1]), (0.05, [0, 1]), (0.2, [0, 1, 2])])
def test_rule_on_both_sides(improvement, expected):
    falls, rises, slowly = [3.0, 2.0, 1.99, 1.98], [3.0, 1.0, 2.0, 2.0], [3.0, 2.0, 1.95, 1.9]
    table = history(falls, rises, slowly)
    found = EarlyStopping(2, improvement=improvement)(dataclasses.make_dataclass("E", ["history"])(table))
    assert found == expected


def test_members_that_stopped_are_not_named_again():
    table = history([3.0, 1.0, 2.0, 2.0])
    table["alive"] = [True, True, True, False]
    assert EarlyStopping(2)(dataclasses.make_dataclass("E", ["history"])(table)) == []


def test_a_member_keeps_the_weights_of_the_step_where_it_stopped(world):
    def stop(ensemble):
        return [1] if ensemble.history["step"].max() == 20 else None

    pair = [TRIAL, dataclasses.replace(TRIAL, seed=1)]
    stopped = unseam.train(pair, world=world, every=10, callbacks=[stop], device="cpu")
    assert stopped.stopped_early == {1: 20} and stopped.stopped == {} and stopped.stopped_by == {}
    # the same member trained for 20 steps, and the other one for all of them
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    short = unseam.train(dataclasses.replace(pair[1], steps=20), world=world, device="cpu").encode(x).mean[0]
    whole = unseam.train(pair[0], world=world, device="cpu").encode(x).mean[0]
    torch.testing.assert_close(stopped.encode(x).mean, torch.stack([whole, short]))


def test_training_ends_once_no_member_is_left_and_the_run_is_complete(world, tmp_path):
    ensemble = unseam.train(
        TRIAL, world=world, every=10, callbacks=[lambda e: [0]], out=tmp_path / "run", device="cpu"
    )
    assert list(ensemble.history["step"]) == [10] and ensemble.stopped_early == {0: 10}
    run = unseam.Run.open(tmp_path / "run", world=world)
    assert run.remarks() == [] and run.sound == [0]
    assert unseam.load(tmp_path / "run").stopped_early == {0: 10}


def test_a_resumed_run_stops_where_an_uninterrupted_one_does(world, tmp_path):
    trial, rule = dataclasses.replace(TRIAL, steps=3000, beta=0.01), EarlyStopping(3)
    whole = unseam.train(trial, world=world, every=20, callbacks=[rule], device="cpu")
    assert whole.stopped_early[0] < 3000

    def interrupt(ensemble):
        if ensemble.history["step"].max() == 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unseam.train(
            trial,
            world=world,
            every=20,
            callbacks=[interrupt],
            out=tmp_path / "run",
            checkpoint_seconds=0,
            device="cpu",
        )
    again = unseam.train(
        trial, world=world, every=20, callbacks=[rule], out=tmp_path / "run", resume=True, device="cpu"
    )
    assert again.stopped_early == whole.stopped_early
    pd.testing.assert_frame_equal(again.history, whole.history)


def test_callbacks_are_recorded(world):
    ensemble = unseam.train(TRIAL, world=world, callbacks=[EarlyStopping(7)], device="cpu")
    assert ensemble.about["callbacks"] == ["EarlyStopping(patience=7, improvement=0.0, term='loss')"]


def test_bad_rules_are_refused(world):
    with pytest.raises(ValueError, match="patience must be a whole number of at least 1, got 0"):
        EarlyStopping(0)
    with pytest.raises(ValueError, match="term must be one of loss, reconstruction, kl, got 'nll'"):
        unseam.train(TRIAL, world=world, callbacks=[EarlyStopping(term="nll")], device="cpu")


def test_sample_is_what_each_member_generates(world):
    ensemble = unseam.train([TRIAL, dataclasses.replace(TRIAL, seed=1)], world=world, device="cpu")
    found = ensemble.sample(6, generator=torch.Generator().manual_seed(3))
    assert torch.equal(ensemble.sample(6), ensemble.sample(6, generator=torch.Generator().manual_seed(0)))
    z = torch.randn(6, 2, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(found, torch.stack([member.generate(z).detach() for member in ensemble]))
    with pytest.raises(ValueError, match="n must be a whole number of at least 1, got 0"):
        ensemble.sample(0, generator=torch.Generator())
