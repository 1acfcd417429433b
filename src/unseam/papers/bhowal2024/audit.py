"""The audit of bhowal2024: what the released procedure measures, and what the definition gives on the same models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from unseam import geometry
from unseam.drawing import COLOURS, panels
from unseam.models import Encoding
from unseam.papers.artefact import Artefact, Workplace, presets_of, scaled
from unseam.papers.bhowal2024._runs import by_row, select, steps_in_words, train_setups, worlds
from unseam.papers.bhowal2024._setups import FAMILIES, LAPTOP, NAMES, SHAPES, SMOKE, SPRITES, Setup
from unseam.papers.bhowal2024.released import PASSES, SIGNS, released_fit, released_score
from unseam.papers.bhowal2024.scores import relative
from unseam.papers.claims import Bound, Bounds, Identities, Identity, Order, Orders, mean_interval
from unseam.papers.draws import normal, uniform
from unseam.papers.plots import Figure, Tables, columns, finish, logarithmic, reference
from unseam.papers.tables import table_of

__all__ = ["AUDIT"]

SAME = 1e-6
MATRICES = ("orthogonal", "oblique")
COSINE = 0.5
"""Between any two oblique columns."""
LENGTHS = (0.5, 1.0, 2.0, 12.0)
"""Mean lengths of columns; the random start of the released fit has 12 for images of 64 × 64."""
HALF = 0.5**0.5
"""Cosine with its start at which half of the squared length of a matrix is its start's."""
SCORES = {"released": "as released", "defined": "as defined", "invariant": "invariant"}
ADDED = tuple(sign for sign in SIGNS if sign)
"""The three factors of the released penalty, in the order of the paper's columns."""
ROLES: Mapping[str, Mapping[str, float]] = {
    "factors as released": dict(zip(FAMILIES, ADDED, strict=True)),
    "factors exchanged": dict(zip(FAMILIES, reversed(ADDED), strict=True)),
    "no penalty": dict.fromkeys(FAMILIES, 0.0),
}
"""Which model is measured under which factor."""
ACTIVE, COLLAPSED = 0.05, 1.0
"""Variances of the posterior."""
COLLAPSE = "solid: with collapsed latents, dashed: without"
LONGEST = steps_in_words(PASSES[-1])
REPORTS = {
    "not fitted at all": ("at_nonlinear_none", "at_linear_none"),
    "as released": ("at_nonlinear_fast", "at_linear_slow"),
}
"""Reported errors of the non-linear and the linear fit that Table 1 would compare."""


@dataclass(frozen=True)
class Settings:
    """Models that are measured; number and size of known matrices; starts and pixels of fits to known decoders."""

    setups: tuple[Setup, ...] = scaled(SMOKE[:1], LAPTOP, (SPRITES, SHAPES))
    draws: int = scaled(5, 100)
    data: int = 256
    latent: int = 10
    starts: int = scaled(5, 100)
    pixels: int = scaled(64, 1024, 4096)


def measure(settings: Settings, place: Workplace) -> dict[str, pd.DataFrame]:
    """Known matrices, one decoder under three factors, factors exchanged among models, and reported errors."""
    tables = train_setups(settings.setups, place)
    found = {
        "matrices": known_matrices(draws=settings.draws, data=settings.data, latent=settings.latent),
        "bases": known_fits(starts=settings.starts, pixels=settings.pixels, latent=settings.latent),
    }
    if "members" in tables:
        points = tables["signs"]
        found |= {"signs": compared_factors(points), "exchanged": exchanged_factors(points)}
        found["fits"] = start_cosines(points)
    reports = ("at_perfect", *(name for pair in REPORTS.values() for name in pair))
    return found | select(tables, members=reports)


def known_matrices(*, draws: int, data: int, latent: int) -> pd.DataFrame:
    """Scores of matrices with and without orthogonal columns, of the same lengths, in no order.

    One row per ``draw``, ``kind`` and mean ``length``, around which columns differ by up to a half: the score as
    ``released``, as ``defined``, where all kinds are compared with each other, and in its ``invariant`` form.
    """
    draw = torch.Generator().manual_seed(0)
    parts = []
    for number in range(draws):
        entries = normal(data, latent + 1, generator=draw)
        unequal = 0.5 + uniform(latent, generator=draw)
        orthogonal, shared = torch.linalg.qr(entries).Q.split([latent, 1], dim=1)
        oblique = (1 - COSINE) ** 0.5 * orthogonal + COSINE**0.5 * shared
        for length in LENGTHS:
            kinds = length * unequal * torch.stack([orthogonal, oblique])
            scores = [released_score(kinds), geometry.od_score(kinds.unsqueeze(1))[:, 0]]
            scores.append(geometry.od_score(kinds, form="invariant"))
            named = {"draw": number, "kind": MATRICES, "length": length}
            parts.append(table_of(named | dict(zip(SCORES, scores, strict=True))))
    # what is 0 up to rounding is stored as such
    return pd.concat(parts, ignore_index=True).round(9)


def known_fits(*, starts: int, pixels: int, latent: int) -> pd.DataFrame:
    """Released scores of bent linear decoders, fitted as released from many random starts under every factor.

    All latents of the first are active; of the second 0.7 are ``collapsed``: their posterior is the prior, and they
    have no columns. One row per number of ``collapsed`` latents and of ``passes`` and factor (``sign``): mean and SD
    over starts of the score, over full bases, relative to its largest over the factors; ``apart``, the largest less the
    smallest score of any start; ``ordered``, the fraction of starts whose scores have the order of the factors.
    """
    rows: list[dict[str, Any]] = []
    for collapsed in (0, round(0.7 * latent)):
        draw = torch.Generator().manual_seed(0)
        columns = torch.randn(latent, pixels, generator=draw) / 20
        columns[latent - collapsed :] = 0
        variance = torch.full((starts, latent), ACTIVE)
        variance[:, latent - collapsed :] = COLLAPSED
        code = Encoding(torch.randn(starts, latent, generator=draw), variance)
        decoder = partial(_bent, columns)
        for passes in PASSES:
            fits = [released_fit(decoder, code, sign=sign, passes=passes) for sign in ADDED]
            # one matrix at a time, as full bases take the memory of an image squared
            scores = np.array([[float(released_score(one)) for one in fit.matrix] for fit in fits])
            scores = scores / scores.max(0)
            shared = {"collapsed": collapsed, "passes": passes, "starts": starts}
            shared["apart"] = np.ptp(scores, axis=0).max()
            shared["ordered"] = (np.diff(scores, axis=0) > 0).all(0).mean()
            for sign, own in zip(ADDED, scores, strict=True):
                rows.append(shared | {"sign": sign, "mean": own.mean(), "sd": own.std(ddof=1)})
    return pd.DataFrame(rows)


def _bent(columns: Tensor, z: Tensor) -> Tensor:
    return (z @ columns).tanh()


def compared_factors(signs: pd.DataFrame) -> pd.DataFrame:
    """Released scores of each decoder's three fits, over the largest of the three at the point, means over points.

    >>> import pandas as pd
    >>> one = {"world": "w", "family": "VAE", "beta": 1.0, "seed": 0, "passes": 1, "point": 0}
    >>> rows = pd.DataFrame([one | {"sign": sign, "released": 2 - sign} for sign in ADDED])
    >>> compared_factors(rows)["released"].round(2).tolist()
    [0.29, 0.79, 1.0]
    """
    among = ["world", "passes", "family", "beta", "seed"]
    return _mean_scores(signs[signs["sign"] != 0], among, "sign")


def exchanged_factors(signs: pd.DataFrame) -> pd.DataFrame:
    """The same of the three models with the factors they were given, with the opposite ones, and with none.

    >>> import pandas as pd
    >>> one = {"world": "w", "seed": 0, "passes": 1, "point": 0}
    >>> rows = [one | {"family": name, "sign": sign, "released": 2 - sign} for name in FAMILIES for sign in SIGNS]
    >>> found = exchanged_factors(pd.DataFrame(rows)).set_index(["roles", "family"])["released"]
    >>> [round(float(found[role, "VAE"]), 2) for role in ("factors as released", "factors exchanged")]
    [1.0, 0.29]
    """
    parts = []
    for words, given in ROLES.items():
        chosen = signs[signs["sign"] == signs["family"].map(given)]
        parts.append(_mean_scores(chosen, ["world", "passes", "seed"], "family").assign(roles=words))
    return pd.concat(parts, ignore_index=True)


def _mean_scores(rows: pd.DataFrame, among: list[str], models: str) -> pd.DataFrame:
    scored = rows.assign(released=relative(rows, "released", among))
    return scored.groupby([*among, models], as_index=False, sort=False)[["released"]].mean()


def start_cosines(signs: pd.DataFrame) -> pd.DataFrame:
    """Cosine of M_D, fitted without penalty, and its random start: mean over ``models`` with its 95 % interval."""
    rows = []
    for (world, passes), part in signs[signs["sign"] == 0].groupby(["world", "passes"], sort=False):
        found = part.groupby(["family", "beta", "seed"])["started"].mean().to_numpy(dtype=float)
        rows.append((world, passes, len(found), float(found.mean()), *mean_interval(found)))
    return pd.DataFrame(rows, columns=["world", "passes", "models", "started", "lower", "upper"])


# Claims: what a sound measurement would satisfy


def _zero(tables: Tables) -> Iterator[Identity]:
    matrices = tables["matrices"]
    orthogonal = matrices[(matrices["kind"] == "orthogonal") & (matrices["length"] == 1)]
    for name, words in SCORES.items():
        quantity = f"largest score of orthogonal columns of mean length 1, {words}"
        yield Identity(quantity, "0", float(orthogonal[name].abs().max()), SAME, n=len(orthogonal))


def _below(tables: Tables) -> Iterator[Order]:
    wide = tables["matrices"].pivot_table(index="draw", columns=["kind", "length"], values=list(SCORES))
    for name, words in SCORES.items():
        for length in LENGTHS if name == "released" else (1.0,):
            low, high = (wide[name, kind, length] for kind in ("orthogonal", "oblique"))
            quantity = f"score {words}, mean length {length:g}: orthogonal columns less oblique ones"
            yield Order(quantity, low, high, paired=True)


def _one_score(tables: Tables) -> Iterator[Identity]:
    words = "largest less smallest released score of one decoder under three factors, relative"
    for row in tables["bases"].drop_duplicates(["collapsed", "passes"]).to_dict("records"):
        decoder = f"known decoder, {row['collapsed']} collapsed latents, {steps_in_words(row['passes'])}"
        note = f"in the order of the factors from {row['ordered']:.0%} of starts (17 % by chance)"
        yield Identity(f"{decoder}: {words}", "0", row["apart"], SAME, n=int(row["starts"]), note=note)
    for (world, passes), part in tables["signs"].groupby(["world", "passes"]) if "signs" in tables else ():
        wide = part.pivot_table(index=["family", "beta", "seed"], columns="sign", values="released")
        scores = wide[list(ADDED)].to_numpy(dtype=float)
        means = [f"{mean:.3f} for {sign:+g}" for sign, mean in zip(ADDED, scores.mean(0), strict=True)]
        ordered, apart = (np.diff(scores, axis=1) > 0).all(1).mean(), float(np.ptp(scores, axis=1).max())
        note = f"in the order of the factors for {ordered:.0%} of decoders (17 % by chance)"
        quantity = f"{NAMES[str(world)]}, {steps_in_words(passes)}: {words}"
        note = f"means {', '.join(means)}; {note}"
        yield Identity(quantity, "0", apart, SAME, n=len(scores), note=note)


def _roles(tables: Tables) -> Iterator[Order]:
    for world, part in worlds(tables["exchanged"]) if "exchanged" in tables else ():
        for words, own in _longest(part).groupby("roles", sort=False):
            wide = own.pivot_table(index="seed", columns="family", values="released")
            quantity = f"{NAMES[world]}, {LONGEST}, {words}: released score, β-TCVAE less VAE"
            yield Order(quantity, wide["β-TCVAE"], wide["VAE"], paired=True)


def _started(tables: Tables) -> Iterator[Bound]:
    for row in tables["fits"].to_dict("records") if "fits" in tables else ():
        fit = f"{NAMES[row['world']]}, {steps_in_words(row['passes'])}"
        found, n = (row["started"], row["lower"], row["upper"]), int(row["models"])
        said = f"below {HALF:.3g}, half of its squared length"
        words, wrong = f"{fit}: cosine of M_D and its random start", {"nothing fitted": [1.0]}
        yield Bound(words, said, estimate=found, most=HALF, n=n, wrong=wrong)


def _reports(tables: Tables) -> Iterator[Bound]:
    for world, part in worlds(tables["members"]) if "members" in tables else ():
        quantity = f"{NAMES[world]}: reported error of a fit without error, less that of predicting no change"
        yield Bound(quantity, "at most 0", part["at_perfect"], most=0.0)
        untrained, released = (100 * (1 - part[better] / part[worse]) for better, worse in REPORTS.values())
        quantity = f"{NAMES[world]}, nothing fitted: reported error, tanh, % below linear"
        wrong = {"as released": released}
        yield Bound(quantity, "0 (within 1 %)", untrained, least=-1.0, most=1.0, wrong=wrong)


# Figure


def plot(tables: Tables) -> Figure:
    """Known matrices; known and trained decoders under three factors; models with factors exchanged."""
    drawn: list[tuple[str, Any, pd.DataFrame]] = [
        ("known matrices", _draw_matrices, tables["matrices"]),
        (f"known decoders, three factors, {LONGEST}\n{COLLAPSE}", _draw_fits, _longest(tables["bases"])),
    ]
    for name, words, draw in (
        ("signs", "one decoder, three factors", _draw_signs),
        ("exchanged", "factors exchanged", _draw_roles),
    ):
        for world, part in worlds(_longest(tables[name])) if name in tables else ():
            drawn.append((f"{words}, {LONGEST}\n{NAMES[world]}", draw, part))
    figure, axes = panels([title for title, _, _ in drawn], rows=(len(drawn) + 1) // 2, width=3.6, height=2.4)
    for panel, (_, draw, part) in zip(axes, drawn, strict=True):
        draw(panel, part)
    return figure


def _draw_matrices(panel: Any, matrices: pd.DataFrame) -> None:
    """By how much oblique columns score more than orthogonal ones."""
    wide = matrices.pivot_table(index="draw", columns=["kind", "length"], values=list(SCORES))
    for (name, words), colour in zip(SCORES.items(), COLOURS, strict=False):
        more = wide[name]["oblique"] - wide[name]["orthogonal"]
        look = {"color": colour, "markersize": 3, "capsize": 2, "label": words}
        panel.errorbar(LENGTHS, more.mean(), more.std(), fmt="o-", **look)
    reference(panel, y=0, linestyle="-")
    logarithmic(panel.xaxis, LENGTHS)
    finish(panel, "mean length of columns", "oblique less orthogonal", legend="best")


def _draw_fits(panel: Any, table: pd.DataFrame) -> None:
    for collapsed, own in table.groupby("collapsed"):
        look = {"fmt": "o-" if collapsed else "o--", "color": COLOURS[0], "markersize": 3, "capsize": 2}
        panel.errorbar(range(len(ADDED)), own["mean"], own["sd"], **look)
    _label_factors(panel)


def _draw_signs(panel: Any, part: pd.DataFrame) -> None:
    for family, colour in zip(FAMILIES, COLOURS, strict=False):
        wide = part[part["family"] == family].pivot_table(index="sign", columns="seed", values="released")
        look = {"color": colour, "markersize": 3, "linewidth": 0.8, "alpha": 0.7}
        panel.plot(range(3), wide.loc[list(ADDED)], "o-", **look)[0].set_label(family)
    _label_factors(panel)
    finish(panel, legend="best")


def _label_factors(panel: Any) -> None:
    panel.set_xticks(range(len(ADDED)), [f"{sign:+g}" for sign in ADDED])
    finish(panel, "factor of the penalty", "score as released, relative")


def _draw_roles(panel: Any, part: pd.DataFrame) -> None:
    each = part.set_index(["roles", "family"])["released"].sort_index()
    runs = {words.replace(" ", "\n", 1): [each[words, family] for family in FAMILIES] for words in ROLES}
    columns(panel, runs, labels=FAMILIES)
    panel.margins(y=0.3)
    panel.legend(fontsize=7, frameon=False, ncols=3, loc="upper left")
    finish(panel, y="score as released, relative")


def _longest(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["passes"] == PASSES[-1]]


AUDIT = Artefact(
    key="bhowal2024.audit",
    title="Audit: what the released procedure measures",
    claims=(
        Identities("Orthogonal columns have an OD-Score of 0", _zero, ours=True),
        Orders("Orthogonal columns score below oblique ones of the same lengths", _below, ours=True),
        Identities("One decoder has one score, whatever the factor of the penalty", _one_score, ours=True),
        *by_row(Orders, "The order of models survives an exchange of the factors", _roles, ours=True),
        Bounds("M_D depends on the decoder more than on its random start", _started, ours=True),
        Bounds(
            "Reported errors are lower for better fits, and equal where nothing is fitted",
            _reports,
            ours=True,
        ),
    ),
    presets=presets_of(Settings),
    measure=measure,
    plot=plot,
    note="The procedure is that of the released code at revision 8f40aad with the defaults of its arguments, one "
    "point's ten noises in one step, and with twenty; with which arguments the published numbers were made is not "
    "recorded. A sound measurement would satisfy every statement. Scores of models are relative to the largest of the "
    "three, and over bases of ten vectors, where the code has full ones; all models are fitted from the same random "
    "starts with the same noises. After one step a difference includes flips of singular vectors, which any change of "
    "a matrix may bring.",
)
