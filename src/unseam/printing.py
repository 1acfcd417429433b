"""What commands show: results as rows, rows as a table or JSON, inspections as figures."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from unseam.data import FileState, Listing
    from unseam.papers import Artefact, Result
    from unseam.targets import Inspected
    from unseam.training import Ensemble

__all__ = [
    "artefact_rows",
    "draw_inspected",
    "file_rows",
    "finding_rows",
    "geometry_rows",
    "member_rows",
    "print_json",
    "print_rows",
    "print_table",
    "result_record",
    "score_records",
    "score_rows",
    "world_rows",
]

Row = dict[str, Any]


def print_json(value: object) -> None:
    """Print a value as JSON, which has no word for what is not finite.

    >>> print_json({"dto": 0.5})
    {
     "dto": 0.5
    }
    """
    print(json.dumps(value, indent=1, allow_nan=False))


def print_rows(rows: Sequence[Row], *, title: str, as_json: bool) -> None:
    """Print rows as JSON or as a table.

    >>> print_rows([], title="files", as_json=True)
    []
    """
    if as_json:
        print_json(rows)
    else:
        print_table(rows, title=title)


def print_table(rows: Sequence[Row], *, title: str) -> None:
    """Print rows with one set of keys as a table.

    >>> print_table([{"latent": 0, "alive": True}], title="latents")
    latents
    ┏━━━━━━━━┳━━━━━━━┓
    ┃ latent ┃ alive ┃
    ┡━━━━━━━━╇━━━━━━━┩
    │ 0      │ yes   │
    └────────┴───────┘
    """
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for head in rows[0]:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*(_shown(value) for value in row.values()))
    print(title)
    width = None if sys.stdout.isatty() else 140
    Console(width=width, markup=False, emoji=False, highlight=False).print(table)


def member_rows(ensemble: Ensemble) -> list[Row]:
    """What tells members apart, and the last row of each history; a term that is missing or not finite is None.

    >>> from unseam import Trial, train
    >>> small = Trial(world="linear", likelihood="gaussian", latent=2, steps=1, batch_size=4)
    >>> member_rows(train(small))[0]["stopped"] is None
    True
    """
    trials = [trial.to_dict() for trial in ensemble.trials]
    varied = [name for name, value in trials[0].items() if any(trial[name] != value for trial in trials)]
    history = ensemble.history.drop(columns="alive")
    last = history.drop_duplicates("member", keep="last").set_index("member").to_dict("index")
    return [
        {"member": member}
        | {name: trials[member][name] for name in varied}
        | {"stopped": ensemble.stopped.get(member)}
        | {str(name): value if math.isfinite(value) else None for name, value in last[member].items()}
        for member in range(len(ensemble))
    ]


def geometry_rows(every: Iterable[Inspected]) -> list[Row]:
    """The numbers of inspected decoders, one row each.

    >>> import torch, unseam
    >>> from unseam.targets import Inspected
    >>> found = unseam.inspect(lambda z: z * torch.tensor([3.0, 1.0]), torch.zeros(4, 2))
    >>> geometry_rows([Inspected("mine", found)])[0]["alive"]
    '2/2'
    """
    return [_geometry(one) for one in every]


def draw_inspected(every: Iterable[Inspected], folder: Path) -> list[str]:
    """Write the figures of inspected decoders as SVG; returns their paths."""
    return [path for one in every for path in _draw(one, folder)]


def world_rows(root: Path | None) -> list[Row]:
    """Every world: those made here, and the published files, looked for under ``root``."""
    from unseam.data import names
    from unseam.data.fetch import listing

    published = listing(root)
    read = {line.name for line in published}
    return [_made(name) for name in names() if name not in read] + [_published(line) for line in published]


def file_rows(states: Iterable[FileState]) -> list[Row]:
    """The files of a published data set, and whether they are as published.

    >>> from pathlib import Path
    >>> from unseam.data import FileState
    >>> file_rows([FileState("s.gz", Path("s.gz"), "missing", "not here")])[0]["state"]
    'missing'
    """
    return [{"file": s.filename, "state": s.state, "path": str(s.path), "detail": s.detail} for s in states]


def _geometry(one: Inspected) -> Row:
    found = one.found
    error, law, chance = found.precision_error, found.variance_law, found.random_dto
    return {
        "decoder": one.name,
        "alive": None if found.active is None else f"{int(found.active.sum())}/{found.latent}",
        "DtO": found.dto,
        "DtO alive": found.dto_active,
        "Haar": None if chance is None else chance.haar,
        "U[0,1]": None if chance is None else chance.uniform,
        "|cos|": found.cosine,
        "Hadamard gap": found.hadamard_gap,
        "ΔKL": found.delta_kl,
        "Eq. 7 diag": None if error is None else error.diagonal,
        "Eq. 7 off": None if error is None else error.off_diagonal,
        "σ² slope": None if law is None else law.slope,
        "degenerate": found.degenerate_fraction,
    }


def _draw(one: Inspected, folder: Path) -> list[str]:
    from unseam.report import geometry_figures, write_svg

    found = one.found
    if found.pullback is None or found.right_vectors is None or found.active is None:
        return []
    made = geometry_figures(
        found.pullback, found.right_vectors, found.active, found.variance, beta=found.beta
    )
    label = "-".join(one.name.replace(":", " ").replace("(", " ").replace(",", " ").split()[:2])
    return [str(write_svg(figure, folder / f"{label}-{name}.svg")) for name, figure in made.items()]


def _made(name: str) -> Row:
    from unseam.data import load

    world = load(name)
    return {
        "world": name,
        "source": f"rendered here, twin of {world.twin_of}" if world.twin_of else "made here",
        "here": True,
        "items": len(world),
        "shape": list(world.shape),
        "factors": dict(zip(world.factor_names, world.factor_sizes, strict=True)),
        "note": "",
    }


def _published(line: Listing) -> Row:
    size = f"{line.size / 1e6:.0f} MB" if line.size else ""
    checksum = "" if line.checksum == "none" else f"checksum {line.checksum}"
    return {
        "world": line.name if line.variant is None else f"{line.name} ({line.variant})",
        "source": "published file",
        "here": line.present,
        "items": None,
        "shape": None,
        "factors": None,
        "note": ", ".join(filter(None, (size, checksum, line.note))),
    }


def _shown(value: object) -> str:
    """A value as a cell of a table."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {size}" if size else name for name, size in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:.5g}" if isinstance(value, float) else str(value)


# So many members of a run stand side by side with their intervals; more go one a line, scores alone.
_SIDE_BY_SIDE = 4


def score_rows(table: pd.DataFrame) -> list[Row]:
    """Scores of a run: a line a metric with intervals for few members, else a line a member.

    >>> import pandas as pd
    >>> one = {"member": 0, "metric": "mig", "score": 0.5, "lower": 0.4, "upper": 0.6, "note": ""}
    >>> score_rows(pd.DataFrame([one]))
    [{'metric': 'mig', 'member 0': '0.500 [0.400, 0.600]'}]
    """
    seen = table[table.note == ""]
    members = sorted(set(seen.member))
    if len(members) > _SIDE_BY_SIDE:
        scores = {member: part.set_index("metric").score for member, part in seen.groupby("member")}
        return [{"member": member} | {str(k): v for k, v in scores[member].items()} for member in members]
    cells = {
        (row.metric, row.member): f"{row.score:.3f} [{row.lower:.3f}, {row.upper:.3f}]"
        for row in seen.itertuples()
    }
    metrics = list(dict.fromkeys(seen.metric))
    return [
        {"metric": metric} | {f"member {member}": cells.get((metric, member), "") for member in members}
        for metric in metrics
    ]


def score_records(table: pd.DataFrame) -> list[Row]:
    """Scores of a run as JSON values; what was left out has no score.

    >>> import pandas as pd
    >>> score_records(pd.DataFrame([{"metric": "udr", "score": float("nan"), "settings": '{"points": 5}'}]))
    [{'metric': 'udr', 'score': None, 'settings': {'points': 5}}]
    """

    def value(key: str, held: Any) -> Any:
        if key == "settings":
            return json.loads(held) if held else None
        return None if isinstance(held, float) and not math.isfinite(held) else held

    return [
        {str(key): value(str(key), held) for key, held in row.items()} for row in table.to_dict("records")
    ]


def artefact_rows(kept: Sequence[tuple[Artefact, Result | None]]) -> list[Row]:
    """Artefacts with the verdicts of their committed results.

    >>> from unseam.papers import artefacts
    >>> artefact_rows([(artefacts()["sikka2019.figure1"], None)])[0]["verdict"]
    'not measured yet'
    """
    return [
        {
            "artefact": artefact.key,
            "shows": artefact.title,
            "verdict": "not measured yet" if result is None else result.verdict,
            "scale": None if result is None else result.scale,
            "seconds": None if result is None else result.seconds,
            "on": None if result is None else _hardware(result),
        }
        for artefact, result in kept
    ]


def finding_rows(result: Result) -> list[Row]:
    """Published beside measured, one line a finding.

    >>> from unseam.papers import Finding, Outcome, Result
    >>> found = Finding("β of the largest ELBO", "1", 1.0, None, None, "reproduced")
    >>> finding_rows(Result("a2024.figure1", "smoke", {}, Outcome((found,), {}), {}, 1.0))[0]["measured"]
    '1'
    """
    return [
        {
            "quantity": finding.quantity,
            "published": finding.published,
            "measured": _measured(finding.measured, finding.lower, finding.upper),
            "verdict": finding.verdict,
            "note": finding.note,
        }
        for finding in result.outcome.findings
    ]


def result_record(result: Result) -> Row:
    """A measured artefact as JSON values, without its tables.

    >>> from unseam.papers import Outcome, Result
    >>> result_record(Result("a2024.figure1", "smoke", {}, Outcome((), {}), {}, 1.0))["scale"]
    'smoke'
    """
    return {
        "artefact": result.key,
        "scale": result.scale,
        "verdict": result.verdict,
        "findings": [finding._asdict() for finding in result.outcome.findings],
        "note": result.outcome.note,
        "seconds": result.seconds,
        "command": result.command,
        "settings": dict(result.settings),
        "about": dict(result.about),
    }


def _hardware(result: Result) -> str:
    hardware = result.about["hardware"]
    return str(hardware.get("accelerator", f"{hardware['cores']} cores"))


def _measured(value: float | None, lower: float | None, upper: float | None) -> str:
    if value is None:
        return ""
    interval = "" if lower is None or upper is None else f" [{lower:.3g}, {upper:.3g}]"
    return f"{value:.4g}{interval}"
