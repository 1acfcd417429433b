"""Built-in choices: read from the files that hold them, without importing them."""

import importlib
import subprocess
import sys

import pytest
import torch

from unseam import choices
from unseam.training import learner
from unseam.trial import KINDS, Trial

ALL = [choice for kind in (*KINDS.values(), choices.World) for choice in choices.built_in(kind).values()]


@pytest.mark.parametrize("choice", ALL, ids=lambda choice: choice.name)
def test_what_is_read_is_what_the_module_holds(choice):
    module = importlib.import_module(choice.function.partition(":")[0])
    assert [value for value in vars(module).values() if value == choice]
    assert callable(choice.load())
    assert choices.name_of(choice) == choice.name
    assert choices.find(type(choice), choice) is choice


@pytest.mark.parametrize("choice", ALL, ids=lambda choice: choice.name)
def test_options_are_fields_or_have_defaults(choice):
    for option in choice.options:
        assert option.name in Trial.__dataclass_fields__ or option.default is not None


@pytest.mark.parametrize(
    "choice", choices.built_in(choices.Objective).values(), ids=lambda choice: choice.name
)
def test_beta_weighs_the_kl_term_of_those_that_say_so(choice):
    """The derivative of the loss with respect to β is the KL term, in nats per item."""
    posterior = "point" if choice.variance is False else "diagonal"
    trial = Trial(
        likelihood="gaussian", latent=2, objective=choice.name, posterior=posterior, precision="float64"
    )
    draw = torch.Generator().manual_seed(0)
    x, noise, keys = (torch.rand(8, n, generator=draw, dtype=torch.float64) for n in (3, 2, 2))
    options = [one for one in choice.options if one.member and one.argument is not None]
    weights = {one.argument or one.name: trial.value(one) for one in options}
    if "beta" not in weights:
        assert not choice.weighs_kl
        return
    beta = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    terms = learner(trial, (3,), size=100)(x, noise, keys, torch.tensor(5.0), weights | {"beta": beta})
    (slope,) = torch.autograd.grad(terms.loss, beta)
    assert bool(torch.isclose(slope, terms.kl)) == choice.weighs_kl


def test_every_option_field_has_one_kind_of_choice():
    owners = {}
    for name, kind in KINDS.items():
        for choice in choices.built_in(kind).values():
            for option in choice.options:
                assert owners.setdefault(option.name, name) == name


def test_a_file_of_the_current_folder_stands_in_for_no_module(tmp_path):
    """A run may lie beside files named as modules that are imported later."""
    (tmp_path / "scipy.py").write_text("raise SystemExit('ran')")
    code = "from unseam import choices; choices.objective('beta_elbo').load(); import scipy; print(scipy.__version__)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_current_folder_is_searched_for_own_modules_alone(tmp_path, monkeypatch):
    (tmp_path / "choices_of_ones_own.py").write_text("A, B = 1, 2")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    choices.load_object("unseam.trial:Trial")
    assert str(tmp_path) not in sys.path
    assert [choices.load_object(f"choices_of_ones_own:{name}") for name in "AB"] == [1, 2]
    assert sys.path.count(str(tmp_path)) == 1
