"""The report of a sweep: measures along its axes, correlations, choices without labels, the best models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unseam.charts import Band, Dot, Spot, bands, cloud, decimals, dots, legend, significant
from unseam.report.page import Group, Panel, Section, check_path, write_page
from unseam.sweep import Sweep
from unseam.sweep.analysis import (
    LABEL_FREE,
    Correlation,
    Selection,
    correlations,
    describe_setting,
    front,
    score_columns,
    selections,
    varied,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["NAMES", "sweep_sections", "write_sweep"]

NAMES = {
    "dto_active": "DtO",
    "cosine": "mean |cos|",
    "hadamard_gap": "Hadamard gap",
    "coupling": "coupling",
    "precision_error": "Eq. 7 error",
    "delta_kl": "ΔKL",
    "active": "active latents",
    "udr": "UDR",
    "replication": "replication",
    "elbo": "ELBO",
    "mig": "MIG",
    "dci": "DCI",
    "sap": "SAP",
    "mcc": "MCC",
    "factor_vae_score": "FactorVAE score",
    "beta": "β",
    "gamma": "γ",
}
"""Usual names of columns."""
LINES, CHARTS, SCORES, BEST = 5, 15, 3, 10
"""Lines of one chart, charts of one axis, scores in the correlations, and models of a list, at most."""


def write_sweep(sweep: Sweep, path: str | Path, *, seed: int = 0) -> Path:
    """Write the report of a sweep as one page that opens from disk.

    Args:
        sweep: what to report.
        path: file to write.
        seed: of the resamples of intervals.
    """
    check_path(Path(path))
    table = sweep.table()
    if table.empty:
        raise ValueError(f"{sweep.store.address} has no row yet; run the sweep first")
    axes = ", ".join(_name(name) for name in varied(table)) or "their seed alone"
    lead = (
        f"{len(table)} models that differ in {axes}; {table['seed'].nunique()} seeds. "
        f"{int(table['stopped'].notna().sum())} diverged and have no measures."
    )
    about = {"store": sweep.store.address, "specs": sweep.store.specs(), "settings": sweep.store.settings()}
    about["made with"] = {
        name: sorted(table[name].dropna().unique())
        for name in ("device", "revision", "version_unseam", "version_torch")
    }
    sections = sweep_sections(table, sweep.questions, folder=sweep.store.address, seed=seed)
    return write_page(Path(path), "What do many models say?", lead, sections, about)


def sweep_sections(
    table: pd.DataFrame, questions: Sequence[str] = (), *, folder: str = "", seed: int = 0
) -> list[Section]:
    """The parts of the report of a table.

    Args:
        table: one row per trial.
        questions: that were fixed before the sweep.
        folder: of the store, for commands.
        seed: of the resamples of intervals.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"seed": range(4), "beta": [1.0, 1.0, 4.0, 4.0], "elbo": [-3.0, -2.0, -4.0, -5.0]})
    >>> [section.title for section in sweep_sections(frame)]
    ['Along β', 'Best models']
    """
    made = (
        [Section("Questions", ("Fixed before the sweep was run.",), said=_listed(questions))]
        if questions
        else []
    )
    made += [_along(table, name) for name in varied(table)]
    found = correlations(table, seed=seed)
    if any(np.isfinite(one.within) or np.isfinite(one.pooled) for one in found):
        made.append(_correlated(found))
    if chosen := selections(table, seed=seed):
        made.append(_chosen(chosen))
    made.append(_best(table, folder))
    return [section for section in made if section is not None]


def _listed(questions: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple((str(number + 1), text) for number, text in enumerate(questions))


def _name(column: str) -> str:
    return NAMES.get(column, column.replace("_", " "))


def _along(table: pd.DataFrame, axis: str) -> Section:
    """Measures against one field, means over all else with intervals over models; a line per model type."""
    shown = [
        name for name in (*LABEL_FREE, "active", *score_columns(table)) if name in table and name != axis
    ]
    shown = [name for name in shown if table[name].notna().any()][: CHARTS * 2]
    lines = _lines(table, axis)
    numeric = table[axis].dtype.kind in "fiu"
    groups = {str(key): part for key, part in table.groupby(lines)} if lines else {"": table}
    groups = dict(list(groups.items())[:LINES])
    marks = {name: f"c{k}" for k, name in enumerate(groups)}
    panels = []
    for name in shown[:CHARTS] if numeric else shown:
        chart = _bands(groups, marks, axis, name) if numeric else _rows(table, axis, name)
        if chart:
            panels.append(Panel(chart, f"{_name(name)} along {_name(axis)}"))
    prose = "Means over all models of a line, with 95 % intervals by Student's t over them."
    if numeric and len(groups) > 1 and panels:
        panels.insert(0, Panel(legend([(name, marks[name]) for name in groups]), wide=True))
    return Section(f"Along {_name(axis)}", (prose,), groups=tuple(Group("", (one,)) for one in panels))


def _lines(table: pd.DataFrame, axis: str) -> str:
    """The field whose values make lines: the first that is a choice."""
    found = [name for name in ("objective", "posterior", "architecture", "world") if name in varied(table)]
    return next((name for name in found if name != axis), "")


def _mean(values: Any) -> tuple[float, float, float]:
    """Mean and the ends of its interval; the mean alone of fewer than two."""
    from scipy.stats import t

    known = np.asarray(values, dtype=float)
    known = known[np.isfinite(known)]
    if len(known) < 2:
        mean = float(known.mean()) if len(known) else float("nan")
        return mean, mean, mean
    mean, half = known.mean(), t.ppf(0.975, len(known) - 1) * known.std(ddof=1) / np.sqrt(len(known))
    return float(mean), float(mean - half), float(mean + half)


def _bands(groups: Mapping[str, pd.DataFrame], marks: Mapping[str, str], axis: str, name: str) -> str:
    rows = []
    for title, part in groups.items():
        held = part[part[name].notna()]
        means = {float(place): _mean(values[name]) for place, values in held.groupby(axis)}  # type: ignore[arg-type]
        if len(means) > 1:  # others do not vary it
            mean, lower, upper = zip(*means.values(), strict=True)
            rows.append(Band(title or "all", tuple(means), mean, lower, upper, marks[title]))
    places = {place for row in rows for place in row.places}
    if not rows:
        return ""
    log = min(places) > 0 and max(places) / min(places) >= 8
    return bands(rows, f"{_name(name)} along {_name(axis)}", across=_name(axis), along=_name(name), log=log)


def _rows(table: pd.DataFrame, axis: str, name: str) -> str:
    means = {str(value): _mean(part[name]) for value, part in table.groupby(axis, dropna=False)}
    rows = {value: [Dot(m, "c0", "", low, high)] for value, (m, low, high) in means.items() if np.isfinite(m)}
    return dots(rows, f"{_name(name)} by {_name(axis)}", axis=_name(name)) if rows else ""


def _correlated(found: Sequence[Correlation]) -> Section:
    scores = list(dict.fromkeys(one.score for one in found))
    shown = scores[:SCORES]

    def panel(kind: str, caption: str) -> Panel | None:
        rows: dict[str, list[Dot]] = {}
        for one in found:
            value, lower, upper = (getattr(one, kind + end) for end in ("", "_lower", "_upper"))
            if one.score in shown and np.isfinite([value, lower, upper]).all():
                mark = f"c{shown.index(one.score)}"
                rows.setdefault(_name(one.measure), []).append(
                    Dot(value, mark, _name(one.score), lower, upper)
                )
        return Panel(dots(rows, caption, axis="Spearman's ρ", high=1.0), caption) if rows else None

    panels = [panel("within", "Seeds of one setting"), panel("pooled", "All models: mixes settings")]
    held = [one for one in panels if one is not None]
    key = legend([(_name(score), f"c{k}") for k, score in enumerate(shown)])
    held.insert(0, Panel(key, wide=True))
    prose = (
        "Does a model with a more orthogonal decoder match the factors better? Among models that differ in nothing but "
        "their seed, the answer is about orthogonality. Over all models it is mostly about β and the objective, which "
        "change geometry and scores together: a pooled correlation can be strong, or have the other sign, where "
        "there is none within settings.",
        f"Settings with at least three seeds: {max(one.groups for one in found)}.",
    )
    numbers = tuple(
        {
            "measure": _name(one.measure),
            "score": _name(one.score),
            "within settings": _shown(one.within, one.within_lower, one.within_upper),
            "over all (mixes settings)": _shown(one.pooled, one.pooled_lower, one.pooled_upper),
            "models": str(one.models),
            "settings": str(one.groups),
        }
        for one in found
    )
    how = (
        "Ranks are taken within each setting, centred there and correlated over all settings. 95 % intervals by "
        "bootstrap: over the seeds of each setting, and for all models over settings.",
    )
    title = "Does geometry predict scores?"
    return Section(title, prose, groups=tuple(Group("", (one,)) for one in held), numbers=numbers, how=how)


def _shown(value: float, lower: float, upper: float) -> str:
    if not np.isfinite(value):
        return "–"
    return f"{decimals(value)} [{decimals(lower)}, {decimals(upper)}]"


def _chosen(found: Sequence[Selection]) -> Section:
    score = found[0].score
    rows = {
        _name(one.criterion): [Dot(one.gain, "c0", "", one.lower, one.upper)]
        for one in found
        if one.score == score and np.isfinite([one.gain, one.lower, one.upper]).all()
    }
    first = next(one for one in found if one.score == score)
    rows |= {"by labels": [Dot(first.best - first.random, "c1")]}
    caption = f"Gain in {_name(score)} over a random choice"
    numbers = tuple(
        {
            "criterion": _name(one.criterion),
            "score": _name(one.score),
            "chosen": decimals(one.chosen, 3),
            "random": decimals(one.random, 3),
            "by labels": decimals(one.best, 3),
            "gain": _shown(one.gain, one.lower, one.upper),
            "settings": str(one.groups),
        }
        for one in found
    )
    prose = (
        "Of the seeds of each setting one is chosen without labels: that with the smallest DtO, |cos|, Hadamard gap, "
        "Eq. 7 error or ΔKL, or with the largest UDR, replication or ELBO. Zero is a random choice; "
        "the choice by labels is the most that can be gained.",
    )
    how = ("Mean over settings of the chosen model's score less the mean score of its setting; 95 % intervals by "
           "bootstrap over settings.",)  # fmt: skip
    panel = Panel(dots(rows, caption, axis=caption), caption)
    return Section("Choosing without labels", prose, groups=(Group("", (panel,)),), numbers=numbers, how=how)


def _best(table: pd.DataFrame, folder: str) -> Section:
    scores = score_columns(table)
    along = scores[0] if scores else "elbo"
    across = next((name for name in ("reconstruction", "loss") if name in table and name != along), None)
    fields = varied(table)
    best = table.sort_values(along, ascending=False, kind="stable").head(BEST)
    rows = tuple(
        {
            "model": describe_setting(row, fields) or "–",
            "seed": str(row["seed"]),
            **{
                _name(name): _number(row.get(name))
                for name in (*scores[:SCORES], "cosine", "elbo")
                if name in row
            },
            "open with": _command(row, folder),
        }
        for row in _records(best)
    )
    rows = tuple(
        {key: value for key, value in row.items() if any(one[key] != "" for one in rows)} for row in rows
    )
    groups: tuple[Group, ...] = ()
    if across is not None and table[[across, along]].dropna().shape[0] > 1:
        known = table[table[[across, along]].notna().all(axis=1)]
        values = known[[across, along]].to_numpy(dtype=float) * [-1.0, 1.0]
        edge = front(values)
        spots = [
            Spot(
                float(row[across]),
                float(row[along]),
                _tip(row, fields, along, folder),
                ring=bool(edge[place]),
                copy=_command(row, folder),
            )
            for place, row in enumerate(_records(known))
        ]
        caption = f"{_name(along)} and {_name(across)} of every model; rings: the Pareto front"
        groups = (
            Group("", (Panel(cloud(spots, caption, across=_name(across), along=_name(along)), caption),)),
        )
    prose: tuple[str, ...] = (
        f"By {_name(along)}. Models on the Pareto front are exceeded by no other in both quantities.",
    )
    if not any(row.get("open with") for row in rows):
        prose = (*prose, "Weights were not stored; with --weights each model can be opened in the explorer.")
    return Section("Best models", prose, table=rows, groups=groups)


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def _tip(row: Mapping[str, Any], fields: Sequence[str], along: str, folder: str) -> str:
    text = f"{describe_setting(row, fields)}, seed {row['seed']}: {_name(along)} {significant(float(row[along]))}"
    command = _command(row, folder)
    return f"{text}; click to copy: {command}" if command else text


def _command(row: Mapping[str, Any], folder: str) -> str:
    run = row.get("run")
    return f"unseam explore {folder}/{run} --member {int(row['member'])}" if isinstance(run, str) else ""


def _number(value: Any) -> str:
    return "–" if value is None or value != value else significant(float(value))
