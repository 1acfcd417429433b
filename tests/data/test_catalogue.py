"""Worlds by name."""

import pytest
import torch

from unseam.data import World, load, names

MADE = [
    ("linear", {"size": 6, "ratio": 1.5}),
    ("nonlinear", {"size": 6}),
    ("mixture", {"size": 6, "digits": [0, 1, 2]}),
    ("moving_digit", {"size": 6}),
    ("circles", {"size": 6, "circles": 2}),
]


@pytest.mark.parametrize(("name", "options"), MADE)
def test_worlds_made_here_keep_the_contract(name, options):
    world = load(name, **options)
    assert isinstance(world, World)
    assert (world.name, len(world)) == (name, 6)
    sample = world.sample(4, torch.Generator().manual_seed(0))
    assert sample.x.shape == (4, *world.shape)
    assert sample.x.dtype == torch.float32
    assert sample.factors.shape == (4, len(world.factor_names))
    assert world.factors.dtype == torch.float32
    assert {key: world.options[key] for key in options} == options


@pytest.mark.parametrize(("name", "options"), MADE)
def test_options_make_the_same_world_again(name, options):
    world = load(name, **options)
    again = load(name, **dict(world.options))
    assert torch.equal(world.images(torch.arange(6)), again.images(torch.arange(6)))


@pytest.mark.parametrize(("name", "options"), MADE)
def test_generators_take_float64_and_give_it(name, options):
    world = load(name, **options)
    x = world.generator(world.factors.double())
    assert x.dtype == torch.float64
    assert x.shape == (6, *world.shape)
    assert torch.equal(world.generator(world.factors.double().numpy()), x)


def test_every_name_of_the_contract_is_known():
    assert set(names()) == {
        *("sprites", "shapes", "linear", "nonlinear", "mixture", "moving_digit", "circles"),
        *("dsprites", "shapes3d", "mpi3d", "faces3d", "mnist", "fashion_mnist"),
    }


def test_unknown_names_are_told_with_the_nearest():
    with pytest.raises(
        ValueError, match=r"world must be one of circles, .* got 'dsprite'; did you mean 'dsprites'\?"
    ):
        load("dsprite")
    with pytest.raises(ValueError, match=r"got 'imagenet'$"):
        load("imagenet")


def test_unknown_options_are_told_with_the_known_ones():
    message = r"option 'ration' is unknown to world 'linear', whose options are size, ratio, seed; did you mean 'ratio'"
    with pytest.raises(ValueError, match=message):
        load("linear", ration=2.0)
    with pytest.raises(
        ValueError, match="option 'layout' is unknown to world 'mnist', whose options are part"
    ):
        load("mnist", layout=None)


def test_root_is_only_for_files():
    with pytest.raises(
        ValueError, match="root must be left out for world 'linear', which is not read from a file"
    ):
        load("linear", root="data")
