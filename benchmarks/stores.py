"""Stores of sweeps: how long opening one takes, and reading all of its rows."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from unseam import Trial, sweep
from unseam.sweep.store import Store, trial_row

__all__ = ["stores"]

STACK = 250
MEASURES = (
    "loss",
    "elbo",
    "cosine",
    "dto",
    "dto_active",
    "hadamard_gap",
    "delta_kl",
    "mig",
    "dci",
    "sap",
    "mcc",
    "udr",
)


def stores(device: torch.device, *, rows: int = 100_000) -> Iterator[dict[str, Any]]:
    """A store of stacks of 250, as they are appended."""
    generator = np.random.default_rng(0)
    template = trial_row(Trial())
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        store.settle(sweep.read_spec([Trial()]))
        for start in range(0, rows, STACK):
            values = generator.normal(size=(STACK, len(MEASURES)))
            store.append(
                [
                    {
                        **template,
                        "key": f"{start + place:016x}",
                        **dict(zip(MEASURES, map(float, line), strict=True)),
                    }
                    for place, line in enumerate(values)
                ]
            )
        for what in ("open", "keys", "table"):
            begun = time.perf_counter()
            found = sweep.open(folder)
            if what == "keys":
                assert len(found.store.keys()) == rows
            elif what == "table":
                assert len(found.table()) == rows
            seconds = time.perf_counter() - begun
            yield {"what": what, "rows": rows, "parts": len(found.store.parts()), "seconds": seconds}
