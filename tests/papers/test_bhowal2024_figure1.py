"""bhowal2024's Figure 1: attributes of rendered pictures, and responses of decoders whose latents are known."""

from types import SimpleNamespace

import pandas as pd
import pytest
import torch

from unseam.data import load, split
from unseam.models import Encoding
from unseam.papers.bhowal2024._setups import SPRITES, smoke
from unseam.papers.bhowal2024.figure1 import ATTRIBUTES, FIGURE1, attributes, responses_of, vertical_latents

SIDE = 16


def blobs(centre, width=2.0):
    """Round objects (item, 1, SIDE, SIDE) around (item, 2), vertical position first."""
    down, across = torch.meshgrid(torch.arange(SIDE).double(), torch.arange(SIDE).double(), indexing="ij")
    y, x = (part[:, None, None] for part in centre.double().unbind(1))
    return (-((down - y) ** 2 + (across - x) ** 2) / 2 / width**2).exp()[:, None]


def test_attributes_move_with_the_object_and_not_with_its_place():
    here, there = attributes(blobs(torch.tensor([[7.0, 7.0], [9.0, 8.0]])))
    torch.testing.assert_close(
        there - here, torch.tensor([2.0, 1.0, 0.0, 0.0, 0.0]).double(), rtol=0, atol=1e-2
    )


def test_attributes_turn_with_the_object():
    """A quarter turn exchanges positions and flips the elongation; a transposition keeps the tilt."""
    picture = torch.rand(1, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    y, x, area, elongation, tilt = attributes(picture)[0].tolist()
    assert attributes(picture.mT)[0].tolist() == pytest.approx([x, y, area, -elongation, tilt])


@pytest.mark.parametrize(("name", "attribute"), [("y", 0), ("x", 1)])
def test_positions_are_the_factors(name, attribute):
    world = load("sprites", resolution=32, positions=8, orientations=4, scales=2)
    place = next(
        place for place, factor in enumerate(world.factor_names) if name in factor.lower().split("_")
    )
    index = torch.arange(0, len(world), 5)
    pair = torch.stack([world.factors[index, place].double(), attributes(world.images(index))[:, attribute]])
    assert float(torch.corrcoef(pair)[0, 1].abs()) > 0.99


class Known:
    """Two latents that place an object, rotated by an angle."""

    def __init__(self, degrees, items):
        angle = torch.deg2rad(torch.tensor(degrees)).double()
        self.turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()]).reshape(2, 2)
        self.mean = 2 * torch.randn(items, 2, generator=torch.Generator().manual_seed(0)).double()
        self.trials = [SimpleNamespace(seed=3)]
        self.likelihood = SimpleNamespace(mean=lambda output: output)

    def encode(self, x):
        return Encoding(self.mean[None], torch.ones_like(self.mean)[None])

    def decode(self, z):
        return blobs(SIDE / 2 + z @ self.turn.mT)

    def __getitem__(self, member):
        return self


@pytest.mark.parametrize(("degrees", "impurity"), [(0.0, 0.0), (20.0, 0.364), (90.0, 0.0)])
def test_impurity_is_the_tangent_of_the_angle_between_latents_and_positions(degrees, impurity):
    setup = smoke(
        SPRITES,
        latent=2,
        world_options=(("orientations", 4), ("positions", 6), ("resolution", SIDE), ("scales", 2)),
    )
    world = setup.load()
    found = responses_of(Known(degrees, min(setup.scored, len(world) // 10)), world, setup)
    table, pictures = found["responses"], found["pictures"]
    (row,) = vertical_latents(table).to_dict("records")
    assert row["seed"] == 3 and row["latent"] == (degrees == 90) and row["vertical"] > 0.5
    test = split(len(world), (0.8, 0.1, 0.1), seed=0)[2][: setup.scored]
    scale = attributes(world.images(test)).std(0)
    assert row["horizontal"] / row["vertical"] == pytest.approx(
        impurity * float(scale[0] / scale[1]), abs=0.03
    )
    assert max(row[name] for name in ATTRIBUTES[2:]) < 0.15
    assert pictures.shape == (SIDE**2, 9)


@pytest.mark.parametrize(
    ("vertical", "impurity", "outcomes"),
    [
        (0.8, 0.03, ["agrees", "agrees"]),
        (0.8, 0.3, ["agrees", "differs"]),
        (0.2, 0.03, ["differs", "agrees"]),
        (0.5, 0.1, ["cannot tell", "cannot tell"]),
    ],
)
def test_all_models_count_and_not_the_purest_alone(vertical, impurity, outcomes):
    rows = [
        {"world": "sprites", "family": family, "beta": beta, "seed": seed, "latent": latent}
        | dict.fromkeys(ATTRIBUTES, 0.1)
        | ({"vertical": scale * vertical} | dict.fromkeys(ATTRIBUTES[1:], scale**2 * vertical * impurity))
        for family, beta in (("β-TCVAE", 6.0), ("VAE", 1.0))
        for seed, scale in enumerate((0.9, 1.0, 1.1))
        for latent in (0, 1)
    ]
    table = pd.DataFrame(rows)
    table.loc[table["latent"] == 1, "vertical"] = 0.01
    found = FIGURE1.claims[0].judge({"responses": table})
    assert [one.outcome for one in found] == 2 * outcomes
    assert all("other latents: " in one.note and "outside" in one.note for one in found)
