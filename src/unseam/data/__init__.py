"""Worlds with known factors: procedural, synthetic, and published files."""

from __future__ import annotations

from unseam.data.array import ArrayWorld, Posterior
from unseam.data.catalogue import load, names
from unseam.data.fetch import FileState, Listing, fetch, listing, verify
from unseam.data.files import DamagedFileError, MissingFileError
from unseam.data.grid import grid_factors, grid_index
from unseam.data.identity import Identity, data_difference, identify_data
from unseam.data.own import OwnData, open_data
from unseam.data.place import place
from unseam.data.shapes import Shapes, render_shapes
from unseam.data.splits import split
from unseam.data.sprites import Sprites, render_sprites
from unseam.data.world import Sample, World
from unseam.files import DiskFullError

__all__ = [
    "load",
    "names",
    "open_data",
    "OwnData",
    "place",
    "split",
    "World",
    "Sample",
    "ArrayWorld",
    "Posterior",
    "Sprites",
    "render_sprites",
    "Shapes",
    "render_shapes",
    "grid_factors",
    "grid_index",
    "fetch",
    "verify",
    "Identity",
    "data_difference",
    "identify_data",
    "listing",
    "FileState",
    "Listing",
    "DamagedFileError",
    "DiskFullError",
    "MissingFileError",
]
