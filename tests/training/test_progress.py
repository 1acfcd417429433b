"""What a training tells about itself."""

import io
import sys

import pytest
import torch

from unseam.training.loop import Record
from unseam.training.progress import Bar, Lines, Silent, choose
from unseam.training.stack import stack_trials
from unseam.trial import Trial


@pytest.fixture
def stack():
    return stack_trials([Trial(world="linear", likelihood="gaussian", latent=2)] * 2, (3,), size=10)


def record(alive=(True, True)):
    return Record(50, {"loss": torch.tensor([1.0, 3.0]), "kl": torch.tensor([0.5, 0.5])}, torch.tensor(alive))


def test_lines_tell_steps_rate_time_and_terms(stack, capsys):
    with Lines(seconds=0.0) as lines:
        lines.record(stack, record(), 50, 100)
        lines.record(stack, record((True, False)), 100, 100)
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("step 50 of 100, ")
    assert "loss 2 kl 0.5" in first
    assert "member-steps/s, 0 s left, loss 1 kl 0.5, 1 stopped" in last


def test_lines_are_seldom(stack, capsys):
    with Lines(seconds=3600.0) as lines:
        lines.record(stack, record(), 50, 100)
    assert capsys.readouterr().err == ""


def test_when_all_have_stopped(stack, capsys):
    with Lines(seconds=0.0) as lines:
        lines.record(stack, record((False, False)), 100, 100)
    assert "every member has stopped" in capsys.readouterr().err


def test_bar_on_a_terminal(stack, monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "160")
    chosen = choose(None)
    assert isinstance(chosen, Bar)
    with chosen as bar:
        bar.record(stack, record(), 50, 100)
        bar.record(stack, record(), 100, 100)
    assert "100/100" in terminal.getvalue()
    assert "loss 2" in terminal.getvalue()


@pytest.mark.parametrize(("wanted", "kind"), [(None, Silent), (False, Silent), (True, Lines)])
def test_choice_away_from_a_terminal(wanted, kind, monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert isinstance(choose(wanted), kind)
