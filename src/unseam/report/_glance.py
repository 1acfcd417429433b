"""The whole chain in one table: a row a question, a column a model, and what it would ideally be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from unseam.inspection import Inspection
from unseam.report._words import percent, plain, spread
from unseam.report.matching import SCORES
from unseam.report.page import Section
from unseam.report.study import Study

__all__ = ["glance"]

EXPLAINED = 3  # models beside which there is room for words
SAYS = {
    "mig": "how far the best latent of a factor leads",
    "dci": "whether each latent is about one factor",
    "sap": "how far it leads as a predictor",
    "factor_vae_score": "whether a latent rests when its factor does",
    "mcc": "whether latents follow the factors",
}


class _Line(NamedTuple):
    quantity: str
    cells: list[str]
    ideal: str
    says: str


def glance(studies: Sequence[Study]) -> Section:
    """All findings side by side."""
    lines = [
        _Line(
            "Latents alive",
            [_alive(study) for study in studies],
            _wanted(studies),
            "how many numbers are in use",
        ),
        _Line(
            "Posterior off theory",
            [_over(study, _precision, "{:.0%}") for study in studies],
            "0%",
            "how far encoder and decoder disagree",
        ),
        _Line(
            "DtO, part of chance",
            [_over(study, attrgetter("dto_of_chance"), "{:.0%}") for study in studies],
            "0%",
            "how far axes are from right angles",
        ),
        _Line(
            "Mean |cos|",
            [_over(study, _cosine, "{:.2f}") for study in studies],
            "0",
            "0 where two axes stand at a right angle",
        ),
        _Line(
            "Density gap, nats",
            [_gap(study) for study in studies],
            "0",
            "how far it is from independent parts",
        ),
        _Line(
            "Coupling, per σ",
            [_coupling(study) for study in studies],
            "0%",
            "how much one latent changes another's reach",
        ),
        *(
            _Line(
                title,
                ["–" if s.match is None else spread(s.match.mean(metric)) for s in studies],
                "1",
                SAYS[metric],
            )
            for metric, title in SCORES.items()
        ),
    ]
    kept = [line for line in lines if any(cell != "–" for cell in line.cells)]
    return Section("At a glance", (_intro(studies),), table=tuple(_row(studies, line) for line in kept))


def _row(studies: Sequence[Study], line: _Line) -> Mapping[str, str]:
    names = [study.name for study in studies]
    heads = names if len(set(names)) == len(names) else [f"{k + 1}: {name}" for k, name in enumerate(names)]
    row = {"quantity": line.quantity} | dict(zip(heads, line.cells, strict=True)) | {"ideal": line.ideal}
    return row | ({"which says": line.says} if len(studies) <= EXPLAINED else {})


def _over(study: Study, value: Callable[[Inspection], float | None], form: str) -> str:
    """A number of every seed."""
    return spread([value(found) for found in study.inspections], form)


def _cosine(found: Inspection) -> float | None:
    return found.cosine


def _intro(studies: Sequence[Study]) -> str:
    text = (
        "The papers explain disentanglement by a chain: a posterior that keeps latents apart pulls the decoder's "
        "axes to right angles; right angles make the latents independent parts of what is generated; and "
        "independent parts can be the factors of the data. Each line below is one link, and each has a section."
    )
    most = max(len(study.inspections) for study in studies)
    if most > 1:
        seeds = f"{most}" if all(len(study.inspections) == most for study in studies) else f"up to {most}"
        shown = ", ".join(f"{study.members[study.shown]} ({study.name})" for study in studies)
        text += (
            f" Numbers with ± are means over {seeds} seeds; sentences and figures are of the median one: {shown}."
            if len(studies) > 1
            else f" Numbers with ± are means over {most} seeds; sentences and figures are of the median one, "
            f"{studies[0].members[studies[0].shown]}."
        )
    return text


def _wanted(studies: Sequence[Study]) -> str:
    known = [study.match for study in studies if study.match is not None]
    return f"{len(known[0].factors)}, one a factor" if known else "one a factor"


def _alive(study: Study) -> str:
    counts = [int(found.active.sum()) for found in study.inspections if found.active is not None]
    if not counts:
        return "–"
    return f"{'–'.join(map(str, sorted({min(counts), max(counts)})))} of {study.found.latent}"


def _precision(found: Inspection) -> float | None:
    return None if found.precision_error is None else found.precision_error.diagonal


def _gap(study: Study) -> str:
    return "–" if study.factorisation is None else plain(study.factorisation.gap)


def _coupling(study: Study) -> str:
    part = study.factorisation
    return "–" if part is None else percent(float(np.sqrt(part.coupling)))
