"""Print what inspecting a generator with 512 latents costs, as the table of docs/inspection.md."""

from __future__ import annotations

import time

import torch
from torch import nn

import unseam
from unseam.models import initialise

POINTS = 16


def generator() -> nn.Module:
    """Transposed convolutions from 512 latents to 3×32×32 pixels."""
    layers = [nn.ConvTranspose2d(512, 128, 4)]
    layers += [nn.ConvTranspose2d(a, b, 4, 2, 1) for a, b in ((128, 64), (64, 32), (32, 3))]
    model = nn.Sequential(*[part for layer in layers for part in (layer, nn.ReLU())][:-1])
    initialise(model, generator=torch.Generator().manual_seed(0))
    return model


def main() -> None:
    """Measure each way once, after one that loads what is loaded on first use."""
    model = generator()
    unseam.inspect(model, points=2, latents=2)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads\n")
    print("| `latents` | points | seconds | CPU time |\n|---|---|---|---|")
    for latents in (512, 32, "all"):
        began, used = time.perf_counter(), time.process_time()
        unseam.inspect(model, points=POINTS, latents=latents)
        wall, processor = time.perf_counter() - began, time.process_time() - used
        print(f"| `{latents!r}` | {POINTS} | {wall:.1f} | {processor:.1f} s |".replace("'", '"'))


if __name__ == "__main__":
    main()
