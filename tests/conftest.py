"""Fixtures shared by every test: a seeded generator, one thread, small decoders, the real data where there are any."""

import os
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "agg")

import pytest
import torch
from torch import nn

Function = Callable[[torch.Tensor], torch.Tensor]
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


@pytest.fixture(scope="session")
def make_network() -> Callable[[torch.Generator], nn.Module]:
    """Makers of tanh networks from three latents to pictures of two by four, no axes orthogonal."""

    def made(generator: torch.Generator) -> nn.Module:
        module = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 8), nn.Unflatten(1, (2, 4))).double()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 2)
        return module

    return made


@pytest.fixture
def network(make_network: Callable[[torch.Generator], nn.Module], generator: torch.Generator) -> nn.Module:
    """One such network."""
    return make_network(generator)


@pytest.fixture(scope="session")
def straight() -> Callable[[Function], Function]:
    """Makers of functions that say of themselves that their derivative is 1, whatever it is."""

    def made(function: Function) -> Function:
        class Straight(torch.autograd.Function):
            generate_vmap_rule = True

            @staticmethod
            def forward(x):
                return function(x)

            @staticmethod
            def setup_context(ctx, inputs, output):
                pass

            @staticmethod
            def jvp(ctx, tangent):
                return tangent

        return Straight.apply

    return made
