"""The measuring code behind Figures 2 and 3 of sikka2019, against loops over members and against made-up curves."""

import dataclasses
import itertools
import types

import numpy as np
import pandas as pd
import pytest
import torch
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence

from unseam.data import load
from unseam.data.moving_digit import MIXING, DigitMover
from unseam.papers import Workplace, artefacts
from unseam.papers.sikka2019 import deep
from unseam.papers.sikka2019.bands import Curve, curve, findings
from unseam.papers.sikka2019.deep import Networks, Terms, measured, terms
from unseam.papers.sikka2019.figure3 import motion_angle
from unseam.training import train

DRAWS = 3
TINY = Networks(betas=(0.5, 2.0), seeds=2, epochs=2, batch_sizes=(4,), widths=(6, 5), draws=DRAWS)


@pytest.fixture(scope="module")
def world():
    return load("mixture", digits=2, size=12)


@pytest.fixture(scope="module")
def ensemble(world):
    trials = [dataclasses.replace(trial, precision="float64") for trial in TINY.trials(world, 4)]
    return train(trials, world=world, device="cpu")


def noise():
    return torch.Generator().manual_seed(3)


def by_hand(model, world):
    """Terms of one member: a loop over items, draws and signed permutations, with torch's distributions."""
    x = world.images(torch.arange(len(world))).double()
    encoding = model.encode(x)
    drawn = torch.randn(len(x), DRAWS, 2, generator=noise()).double()
    truth = world.posterior(x)
    rows = []
    for item, mean, scale, eps, target in zip(
        x, encoding.mean, encoding.variance.sqrt(), drawn, truth.mean, strict=True
    ):
        q = Independent(Normal(mean, scale), 1)
        log_prob = [
            Normal(model.decode((mean + scale * one)[None])[0], 1.0).log_prob(item).sum() for one in eps
        ]
        exact = MultivariateNormal(target, truth.covariance)
        errors = []
        for order, signs in itertools.product(
            itertools.permutations(range(2)), itertools.product((1.0, -1.0), repeat=2)
        ):
            turn = torch.tensor(signs).double().diag()[list(order)]
            turned = MultivariateNormal(turn @ mean, turn @ scale.square().diag() @ turn.T)
            errors.append(kl_divergence(turned, exact))
        prior = Independent(Normal(torch.zeros(2).double(), 1.0), 1)
        rows.append(torch.stack([torch.stack(log_prob).mean(), kl_divergence(q, prior), *errors]))
    reconstruction, kl, *errors = torch.stack(rows).mean(0)
    active = (encoding.mean.var(0) > deep.ACTIVE).sum()
    return Terms(reconstruction - kl, reconstruction, kl, errors[0], min(errors), active)


def test_terms_are_those_of_a_loop(ensemble, world):
    with torch.no_grad():
        found = terms(ensemble, world, draws=DRAWS, generator=noise())
        for member, model in enumerate(ensemble):
            for name, expected in by_hand(model, world)._asdict().items():
                value = getattr(found, name)[member]
                torch.testing.assert_close(value.double(), expected.double(), rtol=1e-9, atol=1e-9, msg=name)


def test_the_loop_tells_members_and_alignments_apart(ensemble, world):
    found = terms(ensemble, world, draws=DRAWS, generator=noise())
    assert found.reconstruction.unique().numel() == len(ensemble)
    assert bool((found.tie_aligned <= found.tie).all())
    assert bool((found.tie_aligned < found.tie).any())


def test_terms_some_items_at_a_time(ensemble, world, monkeypatch):
    whole = terms(ensemble, world, draws=DRAWS, generator=noise())
    monkeypatch.setattr(deep, "AT_ONCE", 5 * len(ensemble) * DRAWS * 784)
    torch.testing.assert_close(terms(ensemble, world, draws=DRAWS, generator=noise()), whole)


def test_terms_need_an_exact_posterior(ensemble):
    with pytest.raises(ValueError, match="world must have an exact posterior, got linear"):
        terms(ensemble, load("linear", size=5), draws=1, generator=noise())


def test_parts_make_the_same_table_as_the_whole(world, tmp_path):
    fresh = load("mixture", digits=2, size=12, seed=1)
    whole = measured(TINY, world, fresh, Workplace(torch.device("cpu")))
    parts = dataclasses.replace(TINY, together=3)
    for _ in range(2):  # the second time from the checkpoints
        found = measured(parts, world, fresh, Workplace(torch.device("cpu"), tmp_path))
        pd.testing.assert_frame_equal(found, whole, rtol=1e-4)
    assert len(whole) == 4
    assert not np.allclose(whole["elbo"], whole["fresh_elbo"])


@pytest.mark.parametrize(("key", "latent"), [("figure2_two", 2), ("figure2_ten", 10)])
def test_the_full_scale_is_the_papers(key, latent):
    settings = artefacts()[f"sikka2019.{key}"].presets["full"]
    world = load("mixture", digits=settings.digits, size=settings.items)
    networks = settings.networks
    trials = networks.trials(world, networks.batch_sizes[0])
    assert len(set(networks.betas)) >= 20
    assert networks.seeds >= 100
    assert len(trials) == len(set(trials)) == len(networks.betas) * networks.seeds
    first = trials[0]
    assert (first.encoder_widths, first.decoder_widths) == ((256, 200, 200), (200, 200, 256))
    assert first.steps * first.batch_size == 1000 * len(world) == 1_000_000
    assert (first.latent, first.learning_rate, first.optimiser) == (latent, 1e-3, "adam")
    assert {first.encoder_activation, first.decoder_activation} == {"tanh"}


def test_no_digit_of_figure_3_is_cut_by_the_edge():
    """Else the exact posterior, read off the centre of mass, would not be exact."""
    settings = artefacts()["sikka2019.figure3"].presets["full"]
    for seed in (0, 1):
        world = load("moving_digit", canvas=settings.canvas, scale=settings.scale, seed=seed)
        mass = world.images(torch.arange(len(world))).sum((1, 2, 3))
        torch.testing.assert_close(mass, mass.max().expand_as(mass))


# Curves


def table(**columns):
    """Three β and four seeds; a column's three values are those of every seed, up to a small shift."""
    shift = 1e-3 * np.tile(np.arange(4), 3)
    rows = {"batch": 1, "beta": np.repeat([0.5, 1.0, 4.0], 4), "seed": np.tile(np.arange(4), 3)}
    given = {"elbo": (1, 2, 0), "tie": (3, 2, 4), "tie_aligned": (3, 2, 4), "reconstruction": (3, 2, 1)}
    given = given | {"kl": (3, 2, 1)} | columns
    rows |= {name: np.repeat(np.array(value, dtype=float), 4) + shift for name, value in given.items()}
    rows |= {f"fresh_{name}": rows[name] for name in given}
    return pd.DataFrame(rows)


def test_a_table_as_published_is_reproduced():
    found = findings(table(), over="mean")
    assert [finding.verdict for finding in found] == ["reproduced"] * 5
    assert [finding.measured for finding in found[:3]] == [1.0, 1.0, 1.0]
    assert found[0].lower == found[0].upper == 1.0


@pytest.mark.parametrize(
    ("columns", "place"),
    [
        ({"elbo": (1, 2, 3)}, 0),
        ({"tie_aligned": (3, 2, 1)}, 1),
        ({"tie": (1, 2, 3)}, 2),
        ({"tie": (3, 2, 2)}, 2),
        ({"reconstruction": (3, 1, 2)}, 3),
        ({"kl": (3, 3.1, 0)}, 4),
    ],
)
def test_what_is_not_as_published_is_not(columns, place):
    said = [finding.verdict for finding in findings(table(**columns), over="mean")]
    assert said[place] == "not reproduced"
    assert said.count("reproduced") == 4


def test_a_small_rise_still_counts_as_decreasing():
    found = findings(table(kl=(3, 3.05, 0)), over="mean")[4]
    assert found.verdict == "reproduced"
    assert found.measured == pytest.approx(0.05 / 3.05)


def test_each_batch_size_has_its_findings():
    two = pd.concat([table(), table(elbo=(1, 2, 3)).assign(batch=7)])
    found = findings(two, over="mean")
    assert len(found) == 10
    assert [finding.verdict for finding in found if finding.quantity.startswith("A")] == [
        "reproduced",
        "not reproduced",
    ]
    assert all(finding.quantity.endswith(", batches of 7") for finding in found[5:])


def test_mean_and_minimum_over_seeds():
    rows = pd.DataFrame({"beta": [2.0, 1.0, 2.0, 1.0], "seed": [0, 0, 1, 1], "kl": [1.0, 3.0, 2.0, 5.0]})
    assert curve(rows, "kl").value.tolist() == [4.0, 1.5]
    assert curve(rows, "kl", "minimum").value.tolist() == [3.0, 1.0]


def test_interval_of_a_mean_is_the_normal_one():
    values = np.random.default_rng(1).normal(2.0, 3.0, size=(1, 400))
    lower, upper = Curve(np.ones(1), values, "mean").interval(lambda drawn: drawn[0])
    half = 1.96 * values.std() / 20
    assert lower == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert upper == pytest.approx(values.mean() + half, abs=0.1 * half)


# Axes of motion


@pytest.mark.parametrize("degrees", [90.0, 35.0, 145.0])
def test_angle_between_axes_of_motion(degrees):
    mover = DigitMover(torch.ones(28, 28).double(), torch.tensor(MIXING).double(), 1.0, 0.8, 40)
    turn = np.deg2rad(degrees)
    ways = torch.tensor([[2.0, 0.0], [np.cos(turn), np.sin(turn)]], dtype=torch.float64)

    def decode(z):
        return torch.stack([mover.draw(z.double() @ ways), mover.draw(z.double() @ ways.flip(0) + 0.3)])

    found = motion_angle(types.SimpleNamespace(decode=decode), mover)
    np.testing.assert_allclose(found.numpy(), min(degrees, 180 - degrees), rtol=1e-9)
