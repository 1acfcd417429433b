"""What a training tells about itself."""

import io
import sys

import pytest
import torch

from unseam.training.loop import Record
from unseam.training.progress import lines, report_progress
from unseam.training.stack import stack_trials
from unseam.trial import Trial


@pytest.fixture
def stack():
    return stack_trials([Trial(world="linear", likelihood="gaussian", latent=2)] * 2, (3,), size=10)


def record(alive=(True, True)):
    return Record(50, {"loss": torch.tensor([1.0, 3.0]), "kl": torch.tensor([0.5, 0.5])}, torch.tensor(alive))


def test_lines_tell_steps_rate_time_and_terms(stack, capsys):
    with lines(seconds=0.0) as report:
        report(stack, record(), 50, 100)
        report(stack, record((True, False)), 100, 100)
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("step 50 of 100, ")
    assert "loss 2 kl 0.5" in first
    assert "member-steps/s, 0 s left, loss 1 kl 0.5, 1 stopped" in last


def test_lines_are_seldom(stack, capsys):
    with lines(seconds=3600.0) as report:
        report(stack, record(), 50, 100)
    assert capsys.readouterr().err == ""


def test_when_all_have_stopped(stack, capsys):
    with lines(seconds=0.0) as report:
        report(stack, record((False, False)), 100, 100)
    assert "every member has stopped" in capsys.readouterr().err


def test_bar_on_a_terminal(stack, monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "160")
    with report_progress(None) as report:
        report(stack, record(), 50, 100)
        report(stack, record(), 100, 100)
    assert "100/100" in terminal.getvalue()
    assert "loss 2" in terminal.getvalue()


@pytest.mark.parametrize(
    ("wanted", "expected"), [(None, ""), (False, ""), (True, "step 100 of 100, loss 2 kl 0.5")]
)
def test_away_from_a_terminal_lines_are_printed_where_wanted(wanted, expected, stack, capsys):
    with report_progress(wanted) as report:
        report(stack, record(), 100, 100)
    assert capsys.readouterr().err.strip() == expected
