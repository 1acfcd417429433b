"""The flags of a command are the fields of a trial, with its defaults."""

import dataclasses
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from unseam.cli.flags import PAIRS, TrialFlags, trial_command
from unseam.trial import Trial, describe_field

FIELDS = [item.name for item in dataclasses.fields(Trial)]


@pytest.fixture
def parse():
    """Parse a command line of nothing but a trial's flags: the trial, or the message and status of an error."""
    made: list[Trial] = []
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

    @app.command()
    @trial_command
    def show(flags: TrialFlags) -> None:
        made.extend(flags.trials([]))

    def run(*words: str) -> Trial:
        result = CliRunner().invoke(app, words)
        if result.exit_code == 2:
            raise SystemExit(result.output)
        if result.exception is not None:
            raise result.exception
        return made[-1]

    return run


def test_no_flag_gives_the_trial_of_the_defaults(parse):
    assert parse() == Trial()


def test_every_field_has_a_flag_with_its_help():
    app = typer.Typer(add_completion=False)

    @app.command()
    @trial_command
    def show(flags: TrialFlags) -> None: ...

    made = {option.name: option for option in typer.main.get_command(app).params if option.name != "help"}
    assert list(made) == FIELDS
    for name in FIELDS:
        assert made[name].opts == [PAIRS.get(name, f"--{name.replace('_', '-')}")]
        assert made[name].help.startswith(describe_field(name))


@pytest.mark.parametrize("name", [name for name in FIELDS if name not in (*PAIRS, "epsilon")])
def test_a_default_spelled_out_changes_nothing(parse, name):
    default = getattr(Trial(), name)
    text = ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
    assert parse(f"--{name.replace('_', '-')}", text) == Trial()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--beta", "1e-4"), {"beta": 1e-4}),
        (("--seed", "7"), {"seed": 7}),
        (("--epsilon", "1e-6"), {"epsilon": 1e-6}),
        (("--encoder-widths", "1200, 1200"), {"encoder_widths": (1200, 1200)}),
        (("--encoder-widths", ""), {"encoder_widths": ()}),
        (("--decoder-widths", "none"), {"decoder_widths": ()}),
        (("--adam-betas", "0.5,0.9"), {"adam_betas": (0.5, 0.9)}),
        (("--posterior", "full"), {"posterior": "full"}),
        (
            ("--world-option", "size=10", "--world-option", "ratio=1.5", "--world-option", "part=test"),
            {"world_options": {"size": 10, "ratio": 1.5, "part": "test"}},
        ),
        (("--world-option", "root=/a=b"), {"world_options": {"root": "/a=b"}}),
        (("--world-option", f"root={'1' * 5000}"), {"world_options": {"root": "1" * 5000}}),
        (("--world-option", 'part="7"'), {"world_options": {"part": "7"}}),
    ],
)
def test_flags_become_values_of_the_fields_type(parse, words, expected):
    assert parse(*words) == Trial(**expected)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--steps", "x"), "'--steps': must be a whole number, got 'x'"),
        (("--steps", "1.5"), "'--steps': must be a whole number, got '1.5'"),
        (("--beta", "much"), "'--beta': must be a number, got 'much'"),
        (("--epsilon", "small"), "'--epsilon': must be a number, got 'small'"),
        (
            ("--posterior", "round"),
            "posterior must be one of diagonal, full, point, or package.module:object; got",
        ),
        (("--nonsense", "1"), "No such option: --nonsense"),
        (("--beta",), "'--beta' requires an argument"),
    ],
)
def test_bad_usage_says_what_came(parse, words, message):
    with pytest.raises(SystemExit) as error:
        parse(*words)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--encoder-widths", "4,a"), "--encoder-widths must be given as a whole number, got 'a'"),
        (("--adam-betas", "0.9"), "--adam-betas must hold 2 values, got '0.9'"),
        (("--world-option", "size"), "--world-option must be name=value, got 'size'"),
        (("--world-option", "=3"), "--world-option must be name=value, got '=3'"),
        (
            ("--world-option", "digits=[[0], 1]"),
            "digits must be a number, a text, true, false or a list of them",
        ),
        (("--world-option", "a=1", "--world-option", "a=x"), "must name an option once, got a, a"),
        (("--latent", "0"), "latent must be a whole number of at least 1, got 0"),
        (("--beta", "nan"), "beta must be a finite number of at least 0, got nan"),
    ],
)
def test_bad_values_are_named(parse, words, message):
    with pytest.raises(ValueError) as error:
        parse(*words)
    assert message in str(error.value)


def test_vary_makes_a_grid_with_the_last_axis_fastest():
    trials = TrialFlags({"latent": 3}).trials(["seed=0,1", "beta=1, 4"])
    assert [(trial.seed, trial.beta) for trial in trials] == [(0, 1.0), (0, 4.0), (1, 1.0), (1, 4.0)]
    assert {trial.latent for trial in trials} == {3}


def test_without_vary_there_is_one_trial():
    assert TrialFlags({"seed": 5}).trials([]) == [Trial(seed=5)]


@pytest.mark.parametrize(
    ("entry", "name", "values"),
    [
        ("learning-rate=1e-3,1e-2", "learning_rate", [1e-3, 1e-2]),
        ("posterior=diagonal,full", "posterior", ["diagonal", "full"]),
        ("epsilon=1e-8", "epsilon", [1e-8]),
        ("encoder_widths=400;1200,1200;none", "encoder_widths", [(400,), (1200, 1200), ()]),
        ("adam_betas=0.9,0.999;0.5,0.9", "adam_betas", [(0.9, 0.999), (0.5, 0.9)]),
    ],
)
def test_vary_reads_every_kind_of_field(entry, name, values):
    trials = TrialFlags({}).trials([entry])
    assert [getattr(trial, name) for trial in trials] == values


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        (["beta"], "--vary must be field=a,b,c with a field of a trial, got 'beta'"),
        (["nonsense=1,2"], "--vary must be field=a,b,c with a field of a trial, got 'nonsense=1,2'"),
        (["world_options=1"], "--vary must be field=a,b,c with a field of a trial, got 'world_options=1'"),
        (["seed=1,x"], "--vary seed must be given as a whole number, got 'x'"),
        (["seed="], "--vary seed must be given as a whole number, got ''"),
        (["beta=1", "beta=2"], "--vary must name a field once, got beta, beta"),
        (
            ["posterior=round"],
            "posterior must be one of diagonal, full, point, or package.module:object; got 'round'",
        ),
        (["latent=2,0"], "latent must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_vary(vary, message):
    with pytest.raises(ValueError) as error:
        TrialFlags({}).trials(vary)
    assert message in str(error.value)


def test_the_folder_is_named_after_what_is_trained():
    flags = TrialFlags({"world": "linear", "likelihood": "gaussian"})
    first, again, other = (flags.folder(flags.trials([f"seed={seeds}"])) for seeds in ("0,1", "0,1", "0,2"))
    assert first == again != other
    assert first.parent == Path("runs")
    assert first.name.startswith("linear-beta_elbo-")
