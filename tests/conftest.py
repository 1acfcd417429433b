"""Fixtures shared by every test: a seeded generator, one thread, and the real data where they are installed."""

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "agg")

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Sums come out in the same order on every machine, and parallel workers do not fight for cores."""
    torch.set_num_threads(1)


@pytest.fixture
def generator() -> torch.Generator:
    """A freshly seeded generator, the same in every test."""
    return torch.Generator().manual_seed(20190617)


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of published data files: UNSEAM_DATA, or shared/data beside the repository."""
    folder = Path(os.environ.get("UNSEAM_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no published data files in {folder}; set UNSEAM_DATA to their folder")
    return folder
