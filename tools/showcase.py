"""Train the models of docs/pages/showcase.html, a 64x64 convolutional β-TCVAE on shapes, and export that page.

    python tools/showcase.py --out FOLDER [--steps 40000] [--seeds 4] [--betas 4,6,8,10] [--device cuda]
    python tools/showcase.py --again docs/pages/showcase.html

All members train as one stack. They are ranked by MIG over their active latents, which needs factors; the page shows
the best, the median and the worst, in that order, so that it does not hide what a seed can do. FOLDER receives
showcase.html (at most 6 MB) and showcase.json with every member's numbers. With --again, a page that was exported is
written again with the scripts of today, around the models and numbers that it holds.
"""

from __future__ import annotations

import argparse
import dataclasses
import html
import json
import re
import time
from pathlib import Path

import unseam
from unseam.explore.exporting import render_page
from unseam.geometry import active_latents
from unseam.metrics import mig

LARGEST = 6_000_000
TRIAL = unseam.Trial(
    world="shapes", architecture="study", latent=10, objective="beta_tcvae", batch_size=64, learning_rate=5e-4
)


def main() -> None:
    """Train, rank, export."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--out", type=Path)
    where.add_argument("--again", type=Path)
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--betas", default="4,6,8,10")
    parser.add_argument("--points", type=int, default=5_000, help="items that members are ranked by")
    parser.add_argument("--device")
    given = parser.parse_args()
    if given.again is not None:
        given.again.write_text(again(given.again.read_text("utf8")), "utf8")
        return
    betas = [float(beta) for beta in given.betas.split(",")]
    trials = [
        dataclasses.replace(TRIAL, beta=beta, seed=seed, steps=given.steps)
        for beta in betas
        for seed in range(given.seeds)
    ]
    start = time.monotonic()
    ensemble = unseam.train(trials, device=given.device, progress=False)
    seconds = time.monotonic() - start
    run = unseam.Run.of(ensemble)
    rows = rank(run, given.points)
    for row in rows:
        print(json.dumps(row), flush=True)
    page, members = export(run, rows, given.out)
    record = {
        "seconds": round(seconds, 1),
        "members": rows,
        "shown": members,
        "about": run.about,
    }
    (given.out / "showcase.json").write_text(json.dumps(record, indent=1, default=str), "utf8")
    print(f"trained in {seconds:.0f} s; {page} has {page.stat().st_size / 1e6:.2f} MB, members {members}")


def again(page: str) -> str:
    """An exported page with the scripts of today, around the models and numbers that it holds."""
    title = re.search(r"<h1>(.*?)</h1>", page)
    contents = re.search(r'<script type="application/json" id="contents">(.*?)</script>', page, re.DOTALL)
    weights = re.findall(r'<script type="text/plain" id="weights-\d+">.*?</script>', page, re.DOTALL)
    assert title and contents and weights, "no exported page"
    return render_page(html.unescape(title[1]), json.loads(contents[1]), "\n".join(weights))


def rank(run: unseam.Run, points: int) -> list[dict[str, float]]:
    """Members with MIG over active latents, the best first."""
    codes = run.codes(points=points)
    found = []
    for place, member in enumerate(run.sound):
        mean, variance = codes.mean[place].cpu(), codes.variance[place].cpu()
        active = active_latents(mean, variance).active
        score = 0.0
        if int(active.sum()) > 0:
            score = float(
                mig(mean[:, active], codes.factors.cpu(), discrete=codes.discrete, preset="fast").score
            )
        trial = run.trials[member]
        found.append(
            {
                "member": member,
                "beta": trial.beta,
                "seed": trial.seed,
                "mig": score,
                "active": int(active.sum()),
            }
        )
    return sorted(found, key=lambda row: -row["mig"])


def export(run: unseam.Run, rows: list[dict[str, float]], out: Path) -> tuple[Path, list[int]]:
    """The page of the best, the median and the worst member, or of fewer where it would be too large."""
    ranked = [int(row["member"]) for row in rows]
    spread = list(dict.fromkeys([ranked[0], ranked[len(ranked) // 2], ranked[-1]]))
    out.mkdir(parents=True, exist_ok=True)
    path = out / "showcase.html"
    while True:
        words = ("the best", "the best and the worst", "the best, the median and the worst")[len(spread) - 1]
        note = f"Of {len(ranked)} members, ranked by MIG over active latents: {words}."
        unseam.explore.export(
            run, path, members=spread, first=spread[0], note=note, title="A twin of 3D Shapes, 64×64"
        )
        if path.stat().st_size <= LARGEST or len(spread) == 1:
            return path, spread
        spread.remove(spread[1])


if __name__ == "__main__":
    main()
