"""Print what disent scored beside what we score on the same points, as a Markdown table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from benchmarks.peers import COARSE, KEPT, coarse, grid_codes, grid_factors, rows
from unseam.metrics import (
    DciSettings,
    FactorVaeSettings,
    dci,
    factor_vae_score,
    mean_pairwise_information,
    mig,
    sap,
    total_correlation,
    wasserstein_correlation,
)
from unseam.metrics._inputs import check_inputs
from unseam.metrics._splits import halves

Draw = dict[str, Any]
# Ours cost a tenth, so that theirs alone limit what can be told apart.
OURS = 100


def main() -> None:
    """Score, print."""
    draws = json.loads(KEPT.read_text())["draws"]
    codes, factors = torch.from_numpy(grid_codes()), torch.from_numpy(grid_factors())
    print("| score | disent 0.8.0 | ours | points | largest difference |\n|---|---|---|---|---|")
    for line in (*_same_points(codes, factors, draws), *_other_points(codes, factors, draws)):
        print(line, flush=True)


def _same_points(codes: Tensor, factors: Tensor, draws: dict[str, list[Draw]]) -> Iterator[str]:
    def drawn(draw: Draw) -> Tensor:
        return torch.from_numpy(rows(draw["seed"], 10_000))

    yield _line(
        "MIG", draws["mig"], "discrete_score", lambda d: mig(codes[drawn(d)], factors[drawn(d)]).score
    )
    unsupervised: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
        "total correlation (nats)": ("gauss_total_corr", lambda z: total_correlation(z).score),
        "Wasserstein correlation": ("gauss_wasser_corr", lambda z: wasserstein_correlation(z).score),
        "the same, normalised": ("gauss_wasser_corr_norm", lambda z: wasserstein_correlation(z).normalised),
        "mean pairwise information (nats)": ("mi_score", lambda z: mean_pairwise_information(z).score),
    }
    for name, (key, score) in unsupervised.items():
        yield _line(name, draws["unsupervised"], key, lambda d, score=score: score(codes[drawn(d)]))
    yield _line("SAP", draws["sap"], "score", lambda d: _sap(d["seed"], codes, factors))
    tables = [torch.from_numpy(coarse(table.numpy())) for table in (codes, factors)]
    for splits, kind in (("exact", "DCI"), ("binned", "DCI, splits as in `fast`")):
        found = {draw["seed"]: _dci(draw["seed"], *tables, splits) for draw in draws["dci, coarse grid"]}
        for name, key, field in (
            ("disentanglement", "disentanglement", "score"),
            ("completeness", "completeness", "completeness"),
            ("informativeness", "informativeness_test", "informativeness"),
        ):
            ours = {seed: getattr(result, field) for seed, result in found.items()}
            yield _line(
                f"{kind}: {name}", draws["dci, coarse grid"], key, lambda d, ours=ours: ours[d["seed"]]
            )


def _other_points(codes: Tensor, factors: Tensor, draws: dict[str, list[Draw]]) -> Iterator[str]:
    """FactorVAE draws inside, so that points cannot be shared: means over draws with standard errors."""
    constant = torch.cat([codes[:, :-1], torch.zeros_like(codes[:, :1])], 1)
    for name, case, given, prune in (
        ("FactorVAE score, nothing pruned", "factor_vae", codes, 0.0),
        (
            "FactorVAE score, dead code pruned (ours) or left out",
            "factor_vae, without the dead code",
            codes,
            0.05,
        ),
        ("FactorVAE score, dead code constant", "factor_vae, constant code", constant, 0.05),
    ):
        settings = FactorVaeSettings(prune=prune)
        ours = [
            factor_vae_score(given, factors, preset=settings, generator=_seeded(seed)).score.item()
            for seed in range(OURS)
        ]
        yield f"| {name} | {_mean([d['eval_accuracy'] for d in draws[case]])} | {_mean(ours)} | other | |"


def _sap(seed: int, codes: Tensor, factors: Tensor) -> Tensor:
    index = torch.from_numpy(rows(seed, 15_000))
    return sap(*_arranged(codes[index], factors[index], 10_000, seed), generator=_seeded(seed)).score


def _dci(seed: int, codes: Tensor, factors: Tensor, splits: Literal["exact", "binned"]) -> Any:
    index = torch.from_numpy(rows(seed, 1_000, COARSE))
    settings = DciSettings(train=500, test=500, splits=splits)
    points = _arranged(codes[index], factors[index], 500, seed)
    return dci(*points, preset=settings, generator=_seeded(seed))


def _arranged(codes: Tensor, factors: Tensor, train: int, seed: int) -> tuple[Tensor, Tensor]:
    """The points in such an order that the first become those that are trained on."""
    split = halves(train, len(codes) - train, check_inputs(codes, factors), _seeded(seed))
    place = torch.cat([split.train, split.test]).argsort()
    return codes[place], factors[place]


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _line(name: str, draws: Sequence[Draw], key: str, score: Callable[[Draw], Tensor]) -> str:
    theirs = [draw[key] for draw in draws]
    ours = [score(draw).item() for draw in draws]
    apart = np.abs(np.subtract(ours, theirs)).max()
    return f"| {name} | {_mean(theirs)} | {_mean(ours)} | same | {apart:.1g} |"


def _mean(scores: Sequence[float]) -> str:
    return f"{np.mean(scores):.4f} ± {np.std(scores, ddof=1) / np.sqrt(len(scores)):.4f}"


if __name__ == "__main__":
    main()
