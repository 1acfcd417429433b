"""``unseam score``: a run's codes against the factors of its world."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unseam.cli import options
from unseam.cli.printing import Row, print_json, print_table, print_words

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["score_codes", "score_records", "score_rows"]

# Up to so many members stand side by side with their intervals; more get one line each, scores alone.
_SIDE_BY_SIDE = 4


def score_codes(
    run: Annotated[
        str,
        typer.Argument(
            help="Folder of a run, package.module:object of your own model, or codes (.npy, .npz, .safetensors)."
        ),
    ],
    factors: Annotated[
        Path | None,
        typer.Argument(
            help="File of factors, one row per code or item: an array, or a table; of a run, where its data have none."
        ),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metrics", "--metric", help="Only these: a,b,c, or repeat. All that fit by default."),
    ] = None,
    preset: Annotated[
        str, typer.Option(help="fast, or dlib for numbers comparable with the 12 600-model study (slower).")
    ] = "fast",
    points: Annotated[int, typer.Option(min=2, help="Most items of the world to encode.")] = 50_000,
    member: options.Members = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the items and of the metrics.")] = 0,
    root: options.Root = None,
    world: options.OwnWorld = None,
    data: options.OwnData = None,
    encoder: options.OwnEncoder = None,
    likelihood: options.OwnLikelihood = None,
    latent: options.OwnLatent = None,
    log_variance: options.LogVariance = False,
    probabilities: options.Probabilities = False,
    trust: options.Trust = False,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    track: options.Track = None,
    as_json: options.Json = False,
) -> None:
    """Score codes against factors, with intervals: of a run (saved as its scores.parquet), or of two files."""
    import torch

    from unseam.data import open_data
    from unseam.run import Run, score, score_files
    from unseam.training import Tracking

    if track is not None and not Path(run).is_dir():
        raise ValueError(f"--track is for the models of a run; {run} is none")
    asked = [name for part in metrics or () for name in part.split(",")] or None
    own = {"encoder": encoder, "likelihood": likelihood, "latent": latent}
    own |= {"log_variance": log_variance, "probabilities": probabilities}
    if not options.names_run(run):
        from unseam.adapters import import_subject

        given: dict[str, Any] = {flag: value or None for flag, value in own.items()}
        held: Any = world
        if data is not None and factors is not None:
            held = open_data(data, factors=factors).world
            given["x"] = held.images(torch.arange(1))  # its encoder says how many latents there are
        subject = import_subject(run, **given)
        table = score(subject, asked, preset=preset, points=points, seed=seed, world=held)
        _print_scores(table, run, preset, [], as_json)
        return
    options.refuse_own(own)
    if Path(run).is_file() or (factors is not None and not Path(run).is_dir()):
        if factors is None:
            raise ValueError(f"FACTORS must follow {run}: the file of factors, one row per code")
        table = score_files(Path(run), factors, asked, preset=preset, points=points, seed=seed)
        _print_scores(table, run, preset, [], as_json)
        return
    given = {} if factors is None else {"factors": str(factors)}
    opened = Run.open(run, root=root, world=world, data=data, trust=trust, device=device, **given)
    table = score(opened, asked, preset=preset, points=points, members=member, seed=seed)
    if track is not None:
        with Tracking(track) as tracking:
            for row in table.to_dict("records"):
                tracking.log(opened.trials[row["member"]], {row["metric"]: row["score"]}, row["step"])
    _print_scores(table, run, preset, opened.remarks(member), as_json)


def _print_scores(table: pd.DataFrame, run: str, preset: str, remarks: list[str], as_json: bool) -> None:
    if as_json:
        print_json({"run": str(run), "scores": score_records(table), "remarks": remarks, **table.attrs})
        return
    narrowed = bool((table["score"].fillna(-1) != table["score_all"].fillna(-1)).any())
    over = " over active latents" if narrowed else ""
    print_table(score_rows(table), title=f"scores of {run}{over} ({preset}, 95 % intervals)")
    if narrowed:
        print_words(
            "In brackets: over all latents. A collapsed latent's mean can follow a factor although the decoder ignores "
            "it. Without an active latent scores are undefined."
        )
    notes = table.loc[table.note != "", ["metric", "note"]].drop_duplicates()
    for metric, note in notes.itertuples(index=False):
        print(f"{metric} left out: {note}")
    for line in remarks:
        print_words(f"note: {line}")


def score_rows(table: pd.DataFrame) -> list[Row]:
    """Scores of a run: one line per metric with intervals for few members, else one line per member.

    >>> import pandas as pd
    >>> one = {"member": 0, "metric": "mig", "score": 0.5, "lower": 0.4, "upper": 0.6, "score_all": 0.3, "note": ""}
    >>> score_rows(pd.DataFrame([one]))
    [{'metric': 'mig', 'member 0': '0.500 [0.400, 0.600] (0.300)'}]
    """
    seen = table[table.note == ""]
    members = sorted(set(seen.member))
    if len(members) > _SIDE_BY_SIDE:
        cells = {(row["member"], row["metric"]): _score_cell(row, False) for row in seen.to_dict("records")}
        metrics = list(dict.fromkeys(seen.metric))
        return [
            {"member": member} | {name: cells.get((member, name), "") for name in metrics}
            for member in members
        ]
    cells = {(row["metric"], row["member"]): _score_cell(row) for row in seen.to_dict("records")}
    metrics = list(dict.fromkeys(seen.metric))
    return [
        {"metric": metric} | {f"member {member}": cells.get((metric, member), "") for member in members}
        for metric in metrics
    ]


def _score_cell(row: dict[Any, Any], whole: bool = True) -> str:
    """A score with its interval, where there is one, and that over all latents, where it is another."""
    if math.isnan(row["score"]):
        return f"undefined ({row['score_all']:.3f})"
    interval = "" if math.isnan(row["lower"]) or not whole else f" [{row['lower']:.3f}, {row['upper']:.3f}]"
    other = "" if row["score_all"] == row["score"] else f" ({row['score_all']:.3f})"
    return f"{row['score']:.3f}{interval}{other}"


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
