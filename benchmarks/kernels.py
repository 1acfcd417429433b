"""Kernels of stacked convolutions on one GPU: right, tuned, and inside the trainer; in bounded time."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import threading
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, wait
from functools import partial
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.convolution import STUDY, STUDY_STEPS
from unseam import data
from unseam.models import _convolutions as kernels
from unseam.models import products
from unseam.models._convolutions import Shape, Tile
from unseam.training import stack_trials, training_steps
from unseam.training.step import precision

# (layer, transposed) of the 12 600-model study
ENCODER = (Shape(4, 2, 1, 1, 32, 32, 32), Shape(4, 2, 1, 32, 32, 16, 16), Shape(2, 2, 0, 32, 64, 8, 8),
           Shape(2, 2, 0, 64, 64, 4, 4))  # fmt: skip
DECODER = (Shape(4, 2, 1, 64, 64, 4, 4), Shape(4, 2, 1, 32, 64, 8, 8), Shape(4, 2, 1, 32, 32, 16, 16),
           Shape(4, 2, 1, 1, 32, 32, 32))  # fmt: skip
LAYERS = [*((shape, False) for shape in ENCODER), *((shape, True) for shape in DECODER)]
# beyond the study: bhowal_faces and bhowal_shapes, colour
OTHERS = [
    (Shape(4, 2, 1, 3, 32, 32, 32), False), (Shape(4, 2, 1, 3, 32, 32, 32), True),
    (Shape(4, 2, 1, 32, 64, 8, 8), False), (Shape(4, 2, 1, 64, 64, 4, 4), False),
    (Shape(4, 2, 1, 3, 5, 5, 7), True), (Shape(3, 1, 1, 8, 24, 6, 5), False),
]  # fmt: skip
# pixels, inner, warps, stages
CORRELATE = [(128, 64, 4, 2), (128, 32, 4, 4), (64, 64, 4, 3), (64, 64, 2, 3), (128, 128, 8, 2), (256, 64, 8, 3),
             (64, 128, 4, 3), (32, 64, 2, 3)]  # fmt: skip
WEIGH = [(64, 128, 4, 3), (32, 128, 4, 4), (64, 64, 4, 3), (32, 64, 2, 3), (64, 128, 8, 3), (128, 128, 4, 2),
         (64, 256, 8, 2), (128, 64, 4, 3)]  # fmt: skip
WHOLE = [(128, 64, 4), (64, 64, 4), (128, 32, 4)]
MEMBERS, BATCH = 128, 64


def candidates(kind: str, shape: Shape) -> list[Tile]:
    """Sizes to try, the rule's first."""
    rule = kernels._rule(kind, shape, 2)
    kernel, stride, _, fine, coarse, _, _ = shape
    found = [rule]
    for pixels, inner, warps, stages in WEIGH if kind == "weigh" else CORRELATE:
        summands = coarse * (kernel // stride + rule.whole) ** 2 if kind == "scatter" else kernel**2 * fine
        inner = min(inner, max(16, kernels._power(summands)))
        found.append(Tile(pixels, inner, rule.columns, warps, stages, rule.whole))
        if kind == "scatter" and stride == 2 and fine == 32 and (pixels, inner, warps) in WHOLE:
            columns = min(128, 4 * fine)
            found.append(Tile(pixels, min(inner, 64), columns, warps, stages, True))
    return list(dict.fromkeys(found))


def draw(shape: Shape, members: int, batch: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Fine and coarse pictures, weights (member, k, k, f, g), and a bias that fits both."""
    k, s, _, fine, coarse, height, width = shape

    def normal(*sizes: int) -> Tensor:
        return torch.randn(*sizes, device="cuda").to(dtype)

    return (
        normal(members, batch, height * s, width * s, fine),
        normal(members, batch, height, width, coarse),
        normal(members, k, k, fine, coarse),
        torch.randn(members, max(fine, coarse), device="cuda"),
    )


def launch(
    kind: str, shape: Shape, transposed: bool, given: tuple[Tensor, ...], tile: Tile | None
) -> tuple[Tensor, ...]:
    """One kernel as a training step calls it, and what it gives."""
    fine, coarse, packed, bias = given
    if kind == "weigh":
        side = "fine" if transposed else "coarse"
        by_weight, by_bias = kernels.weigh(fine, coarse, shape, packed.dtype, bias=side, tile=tile)
        assert by_bias is not None
        return by_weight, by_bias
    options: dict[str, Any] = {"tile": tile}
    if (kind == "scatter") == transposed:
        options |= {"bias": bias, "rectified": not (transposed and shape.fine < 8)}
    else:
        options["mask"] = coarse if kind == "gather" else fine
    if kind == "gather":
        return (kernels.gather(fine, packed, shape, **options),)
    return (kernels.scatter(coarse, packed, shape, **options),)


def uses() -> list[tuple[str, Shape, bool]]:
    """Every kernel of a step."""
    found = []
    for shape, transposed in LAYERS:
        for kind in ("gather", "scatter", "weigh"):
            if (kind, transposed, shape.fine) != ("scatter", False, 1):
                found.append((kind, shape, transposed))
    return found


def compile_one(
    kind: str, shape: Shape, transposed: bool, name: str, tile: Tile | None, members: int = MEMBERS
) -> str | None:
    """Compile into the cache on disk, and say what failed."""
    try:
        dtype = {"bf16": torch.bfloat16, "tf32": torch.float32}[name]
        given = draw(shape, members, BATCH, dtype)
        if shape.fine < 8 and not transposed and dtype == torch.bfloat16:
            given = (given[0].float(), *given[1:])
        with precision(name):
            launch(kind, shape, transposed, given, tile)
        torch.cuda.synchronize()
        del given
        torch.cuda.empty_cache()
    except Exception as error:
        return repr(error)[:200]
    return None


def right(shape: Shape, transposed: bool, name: str) -> str:
    """Relative errors of outputs and gradients by x, weight and bias against float64."""
    dtype = {"bf16": torch.bfloat16, "tf32": torch.float32}[name]
    k, s, p, fine, coarse, height, width = shape
    generator = torch.Generator("cuda").manual_seed(0)

    def normal(*sizes: int) -> Tensor:
        return torch.randn(*sizes, device="cuda", generator=generator)

    words = []
    for members, batch in ((2, 5), (7, 64)):
        torch.full((1 << 27,), torch.nan, device="cuda")  # what is fresh holds NaN
        sides = (height, width, coarse) if transposed else (height * s, width * s, fine)
        x = normal(members, batch, *sides).to(dtype).requires_grad_()
        weight = (
            (normal(members, coarse, fine, k, k) / (k * k * fine) ** 0.5).to(dtype).float().requires_grad_()
        )
        bias = normal(members, fine if transposed else coarse).requires_grad_()
        with precision(name):
            y = kernels.convolve(x, weight, bias, shape, transposed=transposed, dtype=dtype)
            slope = normal(*y.shape).to(dtype)
            got = torch.autograd.grad(y, (x, weight, bias), slope)
        wide = [value.detach().double().requires_grad_() for value in (x, weight, bias)]
        way = functional.conv_transpose2d if transposed else functional.conv2d
        exact = torch.stack([
            way(wide[0][m].permute(0, 3, 1, 2), wide[1][m], wide[2][m], s, p).permute(0, 2, 3, 1)
            for m in range(members)
        ])  # fmt: skip
        known = torch.autograd.grad(exact, wide, slope.double())
        for ours, theirs in zip((y, *got), (exact, *known), strict=True):
            error = ((ours.double() - theirs).norm() / theirs.norm()).item()
            words.append(f"{error:.0e}" + ("" if error < 6e-3 else " WRONG"))
    return " ".join(words)


def checked(shape: Shape, transposed: bool, name: str) -> str:
    """The same as words, whatever happens."""
    try:
        return right(shape, transposed, name)
    except Exception as error:
        return f"WRONG {error!r}"[:300]


def milliseconds(work: Any, repeats: int = 8) -> float:
    """Median time of one call, by events."""
    work()
    times = []
    for _ in range(repeats):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop))
    return sorted(times)[repeats // 2]


def trained(trial: Any, members: int, used: bool, every: int, world: Any) -> tuple[Any, float]:
    """Seconds per step of the visible loop, with the kernels or without, and its records."""
    before = products.can_convolve
    if not used:
        products.can_convolve = lambda *_: False  # type: ignore[assignment]
    try:
        trials = [dataclasses.replace(trial, seed=seed, steps=100_000) for seed in range(members)]
        stack = stack_trials(trials, world.shape, size=len(world), device="cuda")
        records = training_steps(stack, world, every=every)
        next(records)
        times = []
        for _ in range(3):
            torch.cuda.synchronize()
            start = time.perf_counter()
            last = next(records)
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start) / every)
        loss = last.terms["loss"].mean().item()
        return (records, loss), sorted(times)[1]
    finally:
        products.can_convolve = before


def end(status: int) -> None:
    """Leave at once, with whatever still compiles."""
    for child in active_children():
        child.kill()
    sys.stdout.flush()
    os._exit(status)


def main() -> None:
    """Phases in order of what they tell; each ends at the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=165.0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tune", action="store_true")
    chosen = parser.parse_args()
    began = time.perf_counter()
    watchdog = threading.Timer(chosen.seconds + 5, end, (3,))
    watchdog.daemon = True
    watchdog.start()
    found: dict[str, Any] = {"log": []}

    def left() -> float:
        return float(chosen.seconds - (time.perf_counter() - began))

    def note(key: str, value: Any) -> None:
        found.setdefault(key, []).append(value)
        print(f"[{time.perf_counter() - began:5.1f}] {key} {value}", flush=True)
        (chosen.out / "kernels.json").write_text(json.dumps(found, indent=1, default=str))

    pool = ProcessPoolExecutor(16, mp_context=get_context("spawn"))
    jobs: dict[tuple[Any, ...], Any] = {}
    for use in uses():
        jobs[*use, "bf16", None] = pool.submit(compile_one, *use, "bf16", None)
    checks = {
        (*layer, name): pool.submit(checked, *layer, name)
        for name in ("bf16", "tf32") for layer in LAYERS + OTHERS
    }  # fmt: skip
    for use in uses():
        jobs[*use, "bf16", 1] = pool.submit(compile_one, *use, "bf16", None, 1)
        jobs[*use, "tf32", None] = pool.submit(compile_one, *use, "tf32", None)
    for use in uses() if chosen.tune else []:
        for tile in candidates(*use[:2])[1:]:
            jobs[*use, "bf16", tile] = pool.submit(compile_one, *use, "bf16", tile)
    world = data.place(data.load("sprites"), torch.device("cuda"))
    note("log", f"{len(jobs)} kernels to compile")
    futures = [*jobs.values(), *checks.values()]
    wait(futures, timeout=min(65.0, left() - 95))
    for future in futures:
        future.cancel()
    done = {job: future.result() for job, future in jobs.items() if future.done() and not future.cancelled()}
    pool.shutdown(wait=False, cancel_futures=True)
    for layer, future in checks.items():
        if future.done() and not future.cancelled():
            note(
                "right", f"{layer[2]} {tuple(layer[0])} {'transposed' if layer[1] else ''} {future.result()}"
            )
    note("log", f"{len(done)} compiled")
    for job, what in [(job, what) for job, what in done.items() if what][:8]:
        note("failed", f"{job} {what}")

    def train(members: int, name: Any, used: bool, architecture: str = "study", steps: int = 40) -> None:
        if left() < 12:
            note("log", "out of time")
            return
        try:
            trial = dataclasses.replace(STUDY, precision=name, architecture=architecture)
            (records, loss), seconds = trained(trial, members, used, steps, world)
            note("trainer", {
                "architecture": architecture, "members": members, "precision": name, "kernels": used,
                "tiles": len(kernels.TILES), "models/h": 3600 * members / (seconds * STUDY_STEPS),
                "ms/step": 1e3 * seconds, "loss": loss,
            })  # fmt: skip
            if used and members in (1, 128):
                profile(records, steps, note)
        except Exception as error:
            note("trainer", repr(error)[:600])
        torch.cuda.empty_cache()

    train(128, "bf16", True)
    train(1, "bf16", True)
    train(128, "bf16", False)
    if chosen.tune:
        try:
            tune(done, left, note)
        except Exception as error:
            note("tuned", repr(error)[:400])
        train(128, "bf16", True)
        train(256, "bf16", True)
    for members, name, used in ((64, "bf16", True), (64, "bf16", False), (1, "bf16", False), (64, "tf32", True),
                                (64, "tf32", False), (256, "bf16", False)):  # fmt: skip
        train(members, name, used)
    for architecture in ("bhowal_shapes", "bhowal_faces"):
        for used in (True, False):
            train(64, "bf16", used, architecture, 20)


def tune(done: dict[Any, Any], left: Any, note: Any) -> None:
    """The fastest sizes of every kernel of a step, put to use."""
    for use in uses():
        kind, shape, transposed = use
        if left() < 40:
            note("log", "tuning cut short")
            return
        given = draw(shape, MEMBERS, BATCH, torch.bfloat16)
        if shape.fine < 8 and not transposed:
            given = (given[0].float(), *given[1:])
        times: dict[Tile, float] = {}
        for tile in candidates(kind, shape):
            if tile != kernels._rule(kind, shape, 2) and done.get((*use, "bf16", tile), "no") is not None:
                continue
            try:
                times[tile] = milliseconds(partial(launch, kind, shape, transposed, given, tile))
            except Exception as error:
                note("failed", f"{use} {tile} {error!r}"[:300])
        order = sorted(times, key=lambda tile: times[tile])
        if not order:
            continue
        same = [
            (one.float() - other.float()).norm() / other.float().norm()
            for one, other in zip(
                *(launch(kind, shape, transposed, given, t) for t in (order[0], None)), strict=True
            )
        ]
        rule = times.get(kernels._rule(kind, shape, 2))
        sides = sum(value.numel() * value.element_size() for value in given[:2])
        note("tuned", {
            "kind": kind, "shape": list(shape), "transposed": transposed, "rule ms": rule,
            "best": [(list(tile), round(times[tile], 4)) for tile in order[:4]],
            "TB/s": sides / times[order[0]] / 1e9, "differs": [f"{float(value):.0e}" for value in same],
        })  # fmt: skip
        kernels.TILES[kind, shape, torch.bfloat16] = order[0]
        torch.cuda.empty_cache()


def profile(records: Any, every: int, note: Any) -> None:
    """Where a step's time goes, by kernel."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as seen:
        next(records)
        torch.cuda.synchronize()
    rows = sorted(seen.key_averages(), key=lambda row: -row.self_device_time_total)
    total = sum(row.self_device_time_total for row in rows)
    lines = [
        f"{100 * row.self_device_time_total / total:.1f}% {row.self_device_time_total / every:.0f} us/step "
        f"n={row.count / every:.1f} {row.key[:100]}"
        for row in rows[:22]
    ]
    note("profile", {"us/step": total / every, "launches": sum(row.count for row in rows) / every})
    for line in lines:
        note("profile", line)


if __name__ == "__main__":
    try:
        main()
    except Exception:
        traceback.print_exc()
    finally:
        end(0)  # compilers that still run are not waited for
