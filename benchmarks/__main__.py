"""Run the benchmarks on one device, keep the numbers with their hardware, and rewrite the table of them all."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.convolution import convolution
from benchmarks.ensembles import ensembles
from benchmarks.geometry import geometry
from benchmarks.kernels import kernels, rounding
from benchmarks.metrics import metrics
from benchmarks.optimisers import optimisers
from benchmarks.rendering import rendering
from benchmarks.stores import stores
from benchmarks.sweeps import engines, sweeps
from unseam.training import provenance

HERE = Path(__file__).parent
BENCHMARKS: dict[str, Callable[[torch.device], Iterator[dict[str, Any]]]] = {
    "ensembles": ensembles,
    "convolution": convolution,
    "kernels": kernels,
    "rounding": rounding,
    "rendering": rendering,
    "geometry": geometry,
    "metrics": metrics,
    "optimisers": optimisers,
    "stores": stores,
    "sweeps": sweeps,
    "engines": engines,
}


def main() -> None:
    """Parse, run, write."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS))
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder of the numbers")
    parser.add_argument(
        "--peer",
        type=Path,
        help="Python that has disent (metrics) or pythae (sweeps); without it their rows are left out",
    )
    chosen = parser.parse_args()
    device = torch.device(chosen.device)
    path = chosen.results / f"{device.type}.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    benchmarks = BENCHMARKS | {
        name: partial(run, peer=chosen.peer) for name, run in (("metrics", metrics), ("sweeps", sweeps))
    }
    for name in chosen.only:
        rows, about = [], provenance(device)
        for row in benchmarks[name](device):
            print(name, {key: _shown(value) for key, value in row.items()}, flush=True)
            rows.append(row)
            kept[name] = {"about": about, "rows": rows}
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(kept, indent=1) + "\n")
    (HERE / "README.md").write_text(page(sorted(chosen.results.glob("*.json"))))


def page(results: Sequence[Path]) -> str:
    """The Markdown page of all results kept in ``results``."""
    text = [(HERE / "preface.md").read_text()]
    for path in results:
        for name, kept in json.loads(path.read_text()).items():
            hardware, versions = kept["about"]["hardware"], kept["about"]["versions"]
            where = hardware.get("accelerator") or f"{hardware['processor']}, {hardware['threads']} threads"
            text.append(f"## {name} on {hardware['device']}\n")
            text.append(
                f"{where}; torch {versions['torch']}, Python {versions['python']}; revision "
                f"`{kept['about']['revision']}`, {kept['about']['created'][:10]}.\n"
            )
            text.append(_table(kept["rows"]))
    return "\n".join(text)


def _table(rows: Sequence[dict[str, Any]]) -> str:
    heads = list(rows[0])
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(_shown(row[head]) for head in heads) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _shown(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


if __name__ == "__main__":
    main()
