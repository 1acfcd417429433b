"""GANs of allen2024: instruments on the true generator, seeds apart from each other, and outcomes of known tables."""

import dataclasses
import math

import pandas as pd
import pytest
import torch

from unseam.data import load
from unseam.inspection import inspect
from unseam.papers.allen2024 import gan

SETTINGS = gan.Settings(items=400, seeds=2, width=8, discriminator=12, steps=30, batch_size=16)
WORLD = load("linear", size=2000, ratio=2.0)


def points(count):
    return torch.randn(count, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def rotation(degrees):
    angle = math.radians(degrees)
    rows = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
    return torch.tensor(rows, dtype=torch.float64)


def test_the_true_generator_is_what_the_paper_describes():
    found = gan._measure_decoder(gan._truth(WORLD), points(800), rotation(45)[None], WORLD)
    for name in ("cosine", "Hadamard gap", "DtO", "coupling", "folded", "outside"):
        assert found[name] == pytest.approx(0, abs=1e-6), name
    assert found["angle of left singular vectors"] == pytest.approx(0, abs=1e-3)
    assert found["MCC"] == pytest.approx(math.sqrt(3 / math.pi), abs=0.01)  # of z with Φ(z)
    assert found["distance"] < 0.06
    assert found["cosine, random axes"] > 0.2
    assert found["MCC, random axes"] < 0.75


def test_random_axes_are_those_of_the_decoder_rotated():
    layers = gan._network(1, (2, 8, 3), 0, torch.device("cpu"))
    decoder, z, turn = gan._member(layers, 0), points(300), rotation(30)
    found = gan._measure_decoder(decoder, z, turn[None], WORLD)
    rotated = inspect(lambda u: decoder(u @ turn.mT), z @ turn)
    assert found["cosine, random axes"] == pytest.approx(rotated.cosine, rel=1e-6)
    assert found["Hadamard gap, random axes"] == pytest.approx(rotated.hadamard_gap, rel=1e-6)
    assert found["DtO, random axes"] == pytest.approx(rotated.dto, rel=1e-6)
    own = inspect(decoder, z)
    assert found["cosine"] == pytest.approx(own.cosine) and found["DtO"] == pytest.approx(own.dto)
    assert abs(found["cosine"] - found["cosine, random axes"]) > 0.01


def test_a_folded_generator_is_found_out():
    fold = lambda z: gan._truth(WORLD)(torch.stack([z[:, 0].abs(), z[:, 1]], 1))  # noqa: E731
    assert gan._folded_share(fold, points(800), WORLD) > 0.4


def train_generators(seeds, settings=SETTINGS):
    """Generators of these seeds, trained together."""
    data = WORLD.images(torch.arange(len(WORLD)))
    every = gan._network(max(seeds) + 1, (2, settings.width, settings.width, 3), 0, torch.device("cpu"))
    layers = [layer[list(seeds)].clone() for layer in every]
    gan.train_gan(layers, data, torch.tensor(seeds), settings)
    return layers


def test_training_is_deterministic_and_changes_every_layer():
    first, again = train_generators([0, 1]), train_generators([0, 1])
    fresh = gan._network(2, (2, SETTINGS.width, SETTINGS.width, 3), 0, torch.device("cpu"))
    for one, other, before in zip(first, again, fresh, strict=True):
        assert torch.equal(one, other)
        assert (one - before).abs().amax((1, 2)).min() > 1e-3


def test_seeds_do_not_see_each_other():
    """The first seed alone, and beside another one."""
    alone, beside = train_generators([0]), train_generators([0, 1])
    for one, both in zip(alone, beside, strict=True):
        assert torch.allclose(one[0], both[0], atol=1e-5)


@pytest.mark.slow
def test_training_comes_closer_to_the_data():
    settings = dataclasses.replace(SETTINGS, steps=400, width=16, discriminator=32, batch_size=64)
    world = load("linear", size=1000, ratio=2.0)
    fresh, fitted = (
        [
            gan._sliced_distance(subject.decoder, world)
            for subject in gan._gans(settings, world)
            if subject.kind == kind
        ]
        for kind in ("untrained", "GAN")
    )
    assert max(fitted) < 0.5 * min(fresh)


COSINE, MCC = "GAN: mean |cos|", "GAN: MCC"


def table(gan_cosine, gan_mcc, *, distance=0.05, angle=5.0):
    rows = []
    for kind, cosine, score in (("GAN", gan_cosine, gan_mcc), ("VAE", 0.05, 0.95)):
        for seed in range(8):
            rows.append(
                {
                    "kind": kind,
                    "seed": seed,
                    "cosine": cosine + 0.003 * seed,
                    "cosine, random axes": 0.4,
                    "MCC": score - 0.003 * seed,
                    "MCC, random axes": 0.8,
                    "Hadamard gap": 0.1,
                    "DtO": 0.1,
                    "coupling": 0.1,
                    "folded": 0.0,
                    "distance": distance if kind == "GAN" else 0.05,
                    "angle of left singular vectors": angle,
                }
            )
    return {"decoders": pd.DataFrame(rows)}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (table(0.06, 0.94), {}),
        (table(0.41, 0.94), {COSINE: "differs", "as a VAE": "differs"}),
        (table(0.35, 0.94), {"as a VAE": "differs"}),
        (table(0.06, 0.79), {MCC: "differs"}),
        (table(0.06, 0.94, angle=20.0), {"left singular vectors": "differs"}),
        (
            table(0.06, 0.94, distance=0.5),
            {
                COSINE: "cannot tell",
                MCC: "cannot tell",
                "as a VAE": "cannot tell",
                "left singular vectors": "cannot tell",
                "fit the data": "differs",
            },
        ),
    ],
)
def test_outcomes(given, expected):
    found = gan.GAN.judge(given)
    assert len(found) == 7
    for one in found:
        words = [word for word in expected if word in f"{one.quantity}, {one.published}"]
        assert one.outcome == (expected[words[0]] if words else "agrees"), one
