"""bhowal2024: what an accelerator must not change, in numbers and in what is left behind."""

import dataclasses

import pytest
import torch

import unseam
from unseam.data import place
from unseam.papers import Workplace
from unseam.papers.bhowal2024 import _measures as measures
from unseam.papers.bhowal2024._measures import nearest
from unseam.papers.bhowal2024._runs import train_cell
from unseam.papers.bhowal2024._setups import SHAPES, SPRITES, Cell, smoke

LOOSE = ("dci", "disent", "shared", "active", "dto", "dto_active")
"""Of members: decided by ties and thresholds."""
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")


@pytest.mark.parametrize("measure", [measures.measured, measures.scores])
def test_nothing_is_measured_in_tf32(measure, monkeypatch):
    """Also where somebody asked for it, and as they wanted it afterwards."""
    tiny = smoke(SPRITES, seeds=1, steps=1)
    world = tiny.load()
    models = unseam.train(tiny.trials(Cell("VAE", 1.0)), world=world, device="cpu")
    switches = (torch.backends.cuda.matmul, torch.backends.cudnn.conv)
    seen = []
    others = measures.measures

    def watched(*given):
        seen.append((*(switch.fp32_precision for switch in switches), torch.backends.cudnn.benchmark))
        return others(*given)

    monkeypatch.setattr(measures, "measures", watched)
    with unseam.training.precision("tf32"):
        measure(models, world, tiny)
        assert [switch.fp32_precision for switch in switches] == ["tf32", "tf32"]
        assert torch.backends.cudnn.benchmark
    assert seen == [("ieee", "ieee", False)]


def moved(models, device):
    """The same members elsewhere."""
    (stack,) = models.stacks
    named = {
        name: {key: value.detach().to(device) for key, value in getattr(stack, name).items()}
        for name in ("parameters", "buffers")
    }
    there = dataclasses.replace(
        stack, template=stack.template.to(device), flat=stack.flat.to(device), **named
    )
    return dataclasses.replace(models, stacks=(there,))


@needs_cuda
@pytest.mark.parametrize(
    "setup", [smoke(SPRITES, steps=300), smoke(SHAPES, steps=30)], ids=["dense", "convolutional"]
)
def test_an_accelerator_measures_what_the_host_does(setup, monkeypatch):
    """Of the same neighbours: many of these small pictures are equally far from each other."""
    monkeypatch.setattr(measures, "nearest", lambda x: nearest(x.cpu()).to(x.device))
    world = setup.load()
    models = unseam.train(setup.trials(Cell("β-VAE", 0.05)), world=world, device="cpu")
    here = measures.measured(models, world, setup)
    there = measures.measured(moved(models, "cuda"), place(setup.load(), "cuda"), setup)
    assert [len(table) for table in there] == [len(table) for table in here]
    for one, other in zip(here.members, there.members, strict=True):
        assert list(one) == list(other)
        firm = [name for name in one if name not in LOOSE]
        assert [other[name] for name in firm] == pytest.approx(
            [one[name] for name in firm], rel=1e-2, abs=1e-4, nan_ok=True
        )
    for one, other in zip(here.signs, there.signs, strict=True):
        assert other == pytest.approx(one, rel=1e-2, abs=1e-4)


@needs_cuda
def test_a_cell_is_trained_and_measured_on_an_accelerator():
    setup = smoke(SPRITES, seeds=2, steps=40)
    found = train_cell(setup, Cell("β-TCVAE", 6.0), Workplace(torch.device("cuda")))
    assert sorted(set(found["path"]["step"])) == [10, 20, 30, 40]
    assert found["members"][["mig", "linear", "nonlinear", "near"]].notna().all(axis=None)
