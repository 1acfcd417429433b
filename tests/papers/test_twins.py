"""Twins beside published data sets, on small stand-in files of exactly the published formats."""

import dataclasses
from functools import partial

import h5py
import numpy as np
import pytest
import torch

from unseam.data import grid_factors, load, published
from unseam.papers import artefacts, on_world, reproduce
from unseam.papers.ours.twins import Pair, Settings

SPRITES = (("orientations", 3), ("positions", 4), ("resolution", 16), ("scales", 2))
SHAPES = (("hues", 2), ("orientations", 3), ("resolution", 16), ("scales", 2))
PAIRS = (Pair("sprites", SPRITES, side=8), Pair("shapes", SHAPES, side=4))
TINY = Settings(
    PAIRS, items=150, distances=300, shown=20, widths=(16,), latent=3, steps=60, seeds=3, points=10
)


def layout(world):
    return published.Layout(world.factor_names, world.factor_sizes, world.shape)


def images_of(world):
    return (world.images(torch.arange(len(world))) * 255).round().byte().numpy()


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Write a stand-in of each file that is asked for into a cache of the test's own, and have it read as published."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = tmp_path / "unseam"
    cache.mkdir()

    def dsprites(change=lambda images: images):
        world = load("sprites", **dict(SPRITES))
        classes = np.concatenate([np.zeros((len(world), 1), np.int64), world.factors.numpy()], axis=1)
        np.savez_compressed(
            cache / "dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz",
            metadata=np.array({"title": "dSprites dataset"}, dtype=object),
            imgs=change(images_of(world)[:, 0]) // 255,
            latents_classes=classes,
            latents_values=classes.astype(float),
        )
        monkeypatch.setattr(published, "dsprites", partial(published.dsprites, layout=layout(world)))

    def shapes3d(change=lambda images: images):
        world = load("shapes", **dict(SHAPES))
        with h5py.File(cache / "3dshapes.h5", "w") as file:
            file.create_dataset("images", data=change(np.moveaxis(images_of(world), 1, -1)))
            file.create_dataset("labels", data=world.factors.double().numpy())
        monkeypatch.setattr(published, "shapes3d", partial(published.shapes3d, layout=layout(world)))

    return {"dsprites": dsprites, "shapes3d": shapes3d}


def compared(settings=TINY, world=None):
    artefact = dataclasses.replace(artefacts()["ours.twins"], presets={"smoke": settings})
    result = reproduce(artefact, "smoke", device="cpu", world=world)
    artefact.plot(result.tables)
    return result


def test_files_that_hold_the_twins_own_images(install):
    for write in install.values():
        write()
    result = compared()
    assert {one.outcome for one in result.findings} == {"holds", "agrees"}
    assert all(one.ours for one in result.findings)
    tables = result.tables
    assert set(tables["agreement"]["equal"]) == {1.0}
    assert tables["summary"]["overlap"].to_numpy() == pytest.approx(1)
    assert set(tables["summary"]["correlation"].round(6)) == {1.0}
    for _, own in tables["models"].groupby("world"):
        ours, theirs = (
            own[own["source"] == source].drop(columns="source") for source in ("twin", "published")
        )
        np.testing.assert_allclose(ours.iloc[:, 1:], theirs.iloc[:, 1:], rtol=1e-5)
    assert len(result.findings) == 22


def test_files_that_hold_something_else(install):
    install["dsprites"](lambda images: np.roll(images, 4, axis=2))
    install["shapes3d"](lambda images: images // 2)
    found = {one.quantity: one for one in compared().findings}
    moved = found["sprites for dSprites: mean absolute difference of the same item, over that of two items"]
    assert moved.outcome == "false as printed"
    variances = found[
        "sprites for dSprites: largest relative difference of the leading 10 variances of the data"
    ]
    assert variances.measured < 1e-5, "a translation of all images leaves their spectrum"
    subspaces = found["sprites for dSprites: overlap of the leading principal subspaces"]
    assert subspaces.outcome == "false as printed"
    darker = found["shapes for 3D Shapes: mean distance between items, over the published one"]
    assert darker.measured == pytest.approx(2, rel=0.02)
    assert darker.outcome == "false as printed"
    assert found["shapes for 3D Shapes: correlation of distances between items"].outcome == "holds"


def test_one_of_two_files_is_missing(install):
    install["shapes3d"]()
    result = compared()
    missing = [one for one in result.findings if one.outcome == "not run"]
    assert len(result.findings) == 12
    assert [one.quantity for one in missing] == ["dSprites"]
    assert "unseam data fetch dsprites" in missing[0].note


def test_one_pair_alone(install):
    install["dsprites"]()
    (pair,) = on_world(TINY, "dsprites").pairs
    assert (pair.world, pair.published, pair.side) == ("dsprites", "dsprites", 8)
    settings = dataclasses.replace(TINY, pairs=(dataclasses.replace(PAIRS[0], world="dsprites"),))
    assert {one.quantity.split(":")[0].split(",")[0] for one in compared(settings).findings} == {
        "sprites for dSprites"
    }


def test_grids_that_differ_are_refused(install):
    install["dsprites"]()
    other = dataclasses.replace(TINY, pairs=(Pair("sprites", (("resolution", 16),)),))
    with pytest.raises(ValueError, match="sprites and dsprites must have one grid of factors and one shape"):
        compared(other)


def test_stand_ins_are_in_the_published_order(install):
    install["shapes3d"]()
    world = load("shapes3d")
    assert torch.equal(world.factors, grid_factors(torch.arange(len(world)), world.factor_sizes))
