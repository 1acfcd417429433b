"""``unseam report``: runs, or a decoder of the user's own, as one page that opens from disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from unseam.cli import options
from unseam.cli.printing import print_json

__all__ = ["report_models"]


def report_models(
    target: Annotated[
        list[str],
        typer.Argument(
            help="Folders of runs, a store of a sweep, package.module:object of your own models, or .onnx files."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="File to write; by default report.html in the run, or here.")
    ] = None,
    latent: options.OwnLatent = None,
    data: options.OwnData = None,
    encoder: options.OwnEncoder = None,
    beta: options.OwnBeta = None,
    likelihood: options.OwnLikelihood = None,
    log_variance: options.LogVariance = False,
    probabilities: options.Probabilities = False,
    member: options.Members = None,
    root: options.Root = None,
    world: options.OwnWorld = None,
    trust: options.Trust = False,
    points: Annotated[int, typer.Option(min=2, help="Number of points to measure at.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of points, baselines and metrics.")] = 0,
    as_json: options.Json = False,
) -> None:
    """Write a page of what models learned: active latents, orthogonal axes, what each latent does."""
    from unseam.report import study, write
    from unseam.report.page import check_path
    from unseam.report.studies import compare_runs
    from unseam.run import Run

    if len(target) == 1 and (options.names_sweep(target[0]) or "://" in target[0]):
        _report_sweep(target[0], out, seed, as_json)
        return
    own = {"latent": latent, "data": data, "encoder": encoder, "beta": beta, "likelihood": likelihood}
    own |= {"log_variance": log_variance, "probabilities": probabilities}
    runs = [one for one in target if options.names_run(one)]
    default = Path(target[0]) / "report.html" if len(runs) == 1 else Path("report.html")
    path = out if out is not None else default
    if out is not None or path.parent.is_dir():
        check_path(path)
    if runs and len(runs) < len(target):
        raise ValueError("TARGET must be all runs or all decoders of your own: they take other options")
    opened = [
        options.open_target(one, own, member=member, root=root, world=world, trust=trust, points=points)
        for one in target
    ]
    folders = [one for one in opened if isinstance(one, Run)]
    if folders:
        found = compare_runs(folders, points=points, members=member or None, seed=seed)
        studies = [made for group in found for made in group]
    else:
        studies = [study(one, points=points, seed=seed) for one in opened if not isinstance(one, Run)]
    page = write(studies, path)
    if as_json:
        shown = [
            {
                "name": made.name,
                "missing": [gap._asdict() for gap in made.missing],
                "remarks": list(made.remarks),
                **made.found.to_dict(),
            }
            for made in studies
        ]
        print_json({"report": str(page), "models": shown})
        return
    for made in studies:
        for line in made.remarks:
            print(f"{made.name}: note: {line}")
        for gap in made.missing:
            print(f"{made.name}: missing: {gap.part}. {gap.why}")
    print(f"Open {page}")


def _report_sweep(store: str, out: Path | None, seed: int, as_json: bool) -> None:
    """The page of a sweep, or what its charts show as JSON."""
    from unseam import sweep
    from unseam.report import write_sweep
    from unseam.sweep import analysis

    found = sweep.open(store)
    path = write_sweep(
        found, out or (Path("report.html") if "://" in store else Path(store) / "report.html"), seed=seed
    )
    if as_json:
        table = found.table()
        parts: dict[str, list[Any]] = {
            "correlations": analysis.correlations(table, seed=seed),
            "contrasts": analysis.contrasts(table, seed=seed),
            "links": analysis.chain(table, seed=seed),
            "selections": analysis.selections(table),
        }
        listed = {name: [one._asdict() for one in part] for name, part in parts.items()}
        counts = {"diverged": int(table["stopped"].notna().sum()), "missing": found.missing}
        print_json({"report": str(path), "models": len(table)} | counts | _finite(listed))
    else:
        print(f"Open {path}")


def _finite(value: Any) -> Any:
    """A value without NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and value != value else value
