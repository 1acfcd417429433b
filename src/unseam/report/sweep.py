"""The report of a sweep: measures along its axes, correlations, choices without labels, the best models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unseam.charts import Band, Dot, Spot, bands, cloud, decimals, dots, legend, significant
from unseam.report.page import Group, Panel, Section, check_path, write_page
from unseam.sweep import Question, Sweep
from unseam.sweep.analysis import (
    LABEL_FREE,
    Contrast,
    Correlation,
    Link,
    Selection,
    chain,
    contrasts,
    correlations,
    describe_setting,
    front,
    half_width,
    kinds_of,
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
    "coupling_active": "coupling",
    "coupling": "coupling, all latents",
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
HOW = (
    "Brackets are 95 % intervals: by bootstrap over seeds for correlations and links, by Student's t over settings "
    "for what choosing gains, and over seeds for means. Correlations are Spearman's, within settings. A link "
    "holds, or is reversed, where its interval excludes 0; otherwise it is open.",
)
LINES, CHARTS, SCORES, BEST = 6, 15, 3, 10
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
    if sweep.missing:
        lead += f" At least {sweep.missing} models of its specs are not trained yet: the sweep is unfinished."
    about = {"store": sweep.store.address, "specs": sweep.store.specs(), "settings": sweep.store.settings()}
    about["made with"] = {
        name: sorted(table[name].dropna().unique())
        for name in ("device", "revision", "version_unseam", "version_torch")
    }
    sections = sweep_sections(table, sweep.questions, folder=sweep.store.address, seed=seed)
    return write_page(Path(path), "What do many models say?", lead, sections, about)


def sweep_sections(
    table: pd.DataFrame, questions: Sequence[Question] = (), *, folder: str = "", seed: int = 0
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
    found, chosen = correlations(table, seed=seed), selections(table)
    links, compared = chain(table, seed=seed), contrasts(table, seed=seed)
    answers = {
        "prediction": partial(_say_prediction, found),
        "chain": partial(_say_chain, links),
        "selection": partial(_say_selection, chosen),
        "contrast": partial(_say_contrast, compared),
    }
    said = []
    for number, (ask, answer) in enumerate(questions):
        say = answers.get(answer, partial(_say_means, table, answer))
        said.append((str(number + 1), "\n".join([ask, *(say() if answer else [])])))
    made = (
        [Section("Questions", ("Fixed before the sweep was run.",), said=tuple(said), how=HOW)]
        if said
        else []
    )
    made += [_along(table, name) for name in varied(table)]
    if any(np.isfinite(one.within) or np.isfinite(one.pooled) for one in found):
        equal = correlations(table, equal=("active",), seed=seed) if "active" in table else ()
        made.append(_correlated(found, compared, equal))
    if any(one.verdict != "undefined" for one in links):
        made.append(_linked(table, links))
    if chosen:
        made.append(_chosen(chosen))
    made.append(_best(table, folder))
    return [section for section in made if section is not None]


def _or_none(lines: list[str]) -> list[str]:
    return lines or ["Not answered: what it takes was not measured, or for too few models."]


def _say_prediction(found: Sequence[Correlation]) -> list[str]:
    """The correlations of every measure with the first scores, within settings: as expected, opposite, and open."""
    words = ("as expected", "opposite to what is expected", "open")
    lines = []
    for score in list(dict.fromkeys(one.score for one in found))[:SCORES]:
        parts: dict[str, list[str]] = {word: [] for word in words}
        for one in found:
            known = np.isfinite([one.within, one.within_lower, one.within_upper]).all()
            if one.score == score and known:
                away = not one.within_lower <= 0 <= one.within_upper
                place = 2 if not away else int(one.within * LABEL_FREE[one.measure] < 0)
                number = _shown(one.within, one.within_lower, one.within_upper)
                parts[words[place]].append(f"{_name(one.measure)} {number}")
        text = "; ".join(f"{word}: {', '.join(held)}" for word, held in parts.items() if held)
        lines += [f"{_name(score)}: {text}"] if text else []
    return _or_none(lines)


def _say_chain(links: Sequence[Link]) -> list[str]:
    """Every link with the kinds of models for which it holds, is open, or is reversed."""
    lines = []
    for name in dict.fromkeys(one.name for one in links):
        mine = [one for one in links if one.name == name]
        parts = {
            verdict: "; ".join(
                (one.kind or "all models")
                + (f" ({_shown(one.within, one.lower, one.upper)})" if verdict != "undefined" else "")
                for one in mine
                if one.verdict == verdict
            )
            for verdict in ("holds", "open", "reversed", "undefined")
        }
        lines.append(
            f"{name} ({_name(mine[0].cause)} and {_name(mine[0].effect)}): "
            + "; ".join(f"{verdict} for {text}" for verdict, text in parts.items() if text)
        )
    return _or_none(lines)


def _say_selection(chosen: Sequence[Selection]) -> list[str]:
    return _or_none([
        f"{_name(one.criterion)}: gain in {_name(one.score)} {_shown(one.gain, one.lower, one.upper, 3)}, "
        f"{_shown(one.fraction, one.fraction_lower, one.fraction_upper)} of what labels gain "
        f"({one.best - one.random:.3f}), over {one.groups} settings"
        for one in chosen
        if one.score == chosen[0].score and np.isfinite([one.gain, one.lower, one.upper]).all()
    ])  # fmt: skip


def _say_contrast(compared: Sequence[Contrast]) -> list[str]:
    return _or_none([
        f"{_name(one.first)} against {_name(one.second)}, for {_name(one.score)}: difference of ρ "
        f"{_shown(one.difference, one.lower, one.upper)} over {one.models} models"
        for one in compared
        if one.score in list(dict.fromkeys(each.score for each in compared))[:SCORES]
        and np.isfinite([one.difference, one.lower, one.upper]).all()
    ])  # fmt: skip


def _say_means(table: pd.DataFrame, column: str) -> list[str]:
    """Means of a column by setting."""
    if column not in table or table[column].dtype.kind not in "fiu":
        return _or_none([])
    fields = varied(table)
    lines = []
    for _, rows in table.groupby(fields, dropna=False, sort=False) if fields else [("", table)]:
        mean, lower, upper = _mean(rows[column])
        if np.isfinite(mean):
            setting = describe_setting(_records(rows.head(1))[0], fields) or "all models"
            known = int(np.isfinite(rows[column].astype(float)).sum())
            count = f"{known} seeds" if known == len(rows) else f"{known} of {len(rows)} seeds"
            lines.append(f"{setting}: {_name(column)} {_shown(mean, lower, upper, 3)}, {count}")
    return _or_none(lines)


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
    kinds = [(str(key), part) for key, part in table.groupby(lines)] if lines else [("", table)]
    panels = []
    # as many lines in one chart as there are colours, the others in charts of their own
    for first in range(0, len(kinds), LINES) if numeric else [0]:
        groups = dict(kinds[first : first + LINES])
        marks = {name: f"c{k}" for k, name in enumerate(groups)}
        charts = [
            (name, _bands(groups, marks, axis, name) if numeric else _rows(table, axis, name))
            for name in (shown[:CHARTS] if numeric else shown)
        ]
        drawn = [Panel(chart, f"{_name(name)} along {_name(axis)}") for name, chart in charts if chart]
        if numeric and len(kinds) > 1 and drawn:
            drawn.insert(0, Panel(legend([(name, marks[name]) for name in groups]), wide=True))
        panels += drawn
    prose = "Means over all models of a line, with 95 % intervals by Student's t over them."
    if numeric and len(shown) > CHARTS:
        prose += f" Charts of the first {CHARTS} of {len(shown)} measures; the table of the sweep has all."
    return Section(f"Along {_name(axis)}", (prose,), groups=tuple(Group("", (one,)) for one in panels))


def _lines(table: pd.DataFrame, axis: str) -> str:
    """The field whose values make lines: the first that is a choice."""
    found = [name for name in ("objective", "posterior", "architecture", "world") if name in varied(table)]
    return next((name for name in found if name != axis), "")


def _mean(values: Any) -> tuple[float, float, float]:
    """Mean and the ends of its interval; the mean alone of fewer than two."""
    known = np.asarray(values, dtype=float)
    known = known[np.isfinite(known)]
    mean, half = float(known.mean()) if len(known) else float("nan"), half_width(known)
    return (mean, mean, mean) if np.isnan(half) else (mean, mean - half, mean + half)


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


def _correlated(
    found: Sequence[Correlation], compared: Sequence[Contrast], equal: Sequence[Correlation]
) -> Section:
    """Correlations with scores, within settings and over all; ``equal``: among models with as many active latents."""
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
        "there is none within settings. Seeds may also differ in how many latents they use, which changes both: the "
        "numbers have a column for models that use equally many.",
        f"Settings with at least three seeds: {max(one.groups for one in found)}.",
    )
    ask = "Does replication predict better than UDR and DtO?"
    known = [one for one in compared if np.isfinite([one.lower, one.upper]).all()]
    said = (("", "\n".join([ask, *_say_contrast(known)])),) if known else ()
    like = {(one.measure, one.score): _shown(one.within, one.within_lower, one.within_upper) for one in equal}
    numbers = tuple(
        {
            "measure": _name(one.measure),
            "score": _name(one.score),
            "within settings": _shown(one.within, one.within_lower, one.within_upper),
            **({"… and equally many active latents": like[one.measure, one.score]} if like else {}),
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
    groups = tuple(Group("", (one,)) for one in held)
    return Section(title, prose, groups=groups, numbers=numbers, how=how, said=said)


def _linked(table: pd.DataFrame, links: Sequence[Link]) -> Section:
    """The links of the chain by kind of model, and how far each kind comes along it."""
    panels = []
    for name in dict.fromkeys(one.name for one in links):
        mine = [one for one in links if one.name == name and one.verdict != "undefined"]
        rows = {one.kind or "all models": [Dot(one.within, "c0", "", one.lower, one.upper)] for one in mine}
        if rows:
            caption = f"{name}: {_name(mine[0].cause)} and {_name(mine[0].effect)}"
            panels.append(Panel(dots(rows, caption, axis="Spearman's ρ within settings", high=1.0), caption))
    shown = {_name(name): table[name] for one in links for name in (one.cause, one.effect)}
    if "random_dto" in table and "dto_active" in table:
        shown["DtO / rotated"] = table["dto_active"] / table["random_dto"]
    means = tuple(
        {"models": str(kind) or "all"}
        | {name: _shown(*_mean(values[rows.index]), 3) for name, values in shown.items()}
        for kind, rows in table.groupby(kinds_of(table), sort=False)
    )
    prose = (
        "Do models whose posterior and decoder agree better have a more orthogonal decoder, do these have a density "
        "that factorises better, and do these match the factors better? Each is asked of models that differ in "
        "nothing but their seed, for each kind of model. The third correlation should be negative, the others "
        "positive; where an interval includes 0 the link is open.",
    )
    how = (
        "The table: means over all models of a kind, with 95 % intervals by Student's t. DtO / rotated is 1 for axes "
        "that are rotated at random.",
    )
    groups = tuple(Group("", (one,)) for one in panels)
    return Section("Which link of the chain breaks?", prose, table=means, groups=groups, how=how)


def _shown(value: float, lower: float, upper: float, places: int = 2) -> str:
    if not np.isfinite(value):
        return "–"
    return f"{decimals(value, places)} [{decimals(lower, places)}, {decimals(upper, places)}]"


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
            "gain": _shown(one.gain, one.lower, one.upper, 3),
            "fraction of the gain by labels": _shown(one.fraction, one.fraction_lower, one.fraction_upper),
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
           "Student's t over settings.",)  # fmt: skip
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
