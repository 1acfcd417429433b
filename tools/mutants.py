"""Mutation testing: changes one operator, number or argument at a time and runs the tests that reach it.

    python tools/mutants.py --sample 300           a seeded sample over the whole package
    python tools/mutants.py --changed main~5       every mutant of the lines changed since a revision
    python tools/mutants.py --package training     a sample from one package

Left out, since no test here can see them: annotations, the texts of errors, the bodies of functions that draw,
and ``device=`` arguments. A sample takes the same number from every package.

A mutant is killed if a test fails (or outlasts the time limit) and survives otherwise. Which tests reach a line
is measured once per revision by a run of the suite under coverage, and cached in ``.benchmarks/``. Survivors
that no test can kill are listed with the reason in ``tests/mutants.json`` under ``equivalent``.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "unseam"
RECORD = ROOT / "tests" / "mutants.json"
LIMIT = 180.0
MOST_TESTS = 250

COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.Pow: "*", ast.FloorDiv: "*", ast.Mod: "*"
}  # fmt: skip
NAMES = {
    "min": "max", "max": "min", "any": "all", "all": "any", "mean": "sum", "sum": "mean", "amin": "amax",
    "amax": "amin", "argmax": "argmin", "argmin": "argmax", "exp": "expm1", "log": "log1p", "sorted": "list",
}  # fmt: skip


class Mutant(NamedTuple):
    """One change of one line: where, by which operator, and the text before and after."""

    path: str
    line: int
    operator: str
    start: int
    end: int
    before: str
    after: str

    @property
    def key(self) -> str:
        """Names the mutant by its place and its change, for the list of equivalent ones."""
        return f"{self.path}: {self.before} -> {self.after}"

    @property
    def package(self) -> str:
        """The package it belongs to, or the module where it lies directly under ``unseam``."""
        return Path(self.path).parts[0].removesuffix(".py")


class Fate(NamedTuple):
    """What became of a mutant: ``killed``, ``survived`` or ``unreached`` by any test."""

    mutant: Mutant
    fate: str
    seconds: float


def find_mutants(path: Path) -> Iterator[Mutant]:
    """All mutants of one file, in the order of their places."""
    text = path.read_text()
    offsets = [0]
    for row in text.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(row.encode()))
    data = text.encode()

    def span(node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return offsets[node.lineno - 1] + node.col_offset, offsets[node.end_lineno - 1] + node.end_col_offset

    def change(node: ast.expr | ast.stmt, operator: str, after: str) -> Mutant:
        start, end = span(node)
        return replace(node.lineno, operator, start, end, after)

    def replace(line: int, operator: str, start: int, end: int, after: str) -> Mutant:
        name = str(path.relative_to(SOURCE))
        return Mutant(name, line, operator, start, end, data[start:end].decode(), after)

    def source(node: ast.expr | ast.stmt) -> str:
        start, end = span(node)
        return data[start:end].decode()

    def between(left: ast.expr, right: ast.expr, operator: str, symbols: str, after: str) -> Iterator[Mutant]:
        """The operator that stands between two operands, parentheses and line breaks around it."""
        start, end = span(left)[1], span(right)[0]
        found = re.search(symbols, data[start:end].decode())
        if found:
            yield replace(
                left.end_lineno or left.lineno, operator, start + found.start(), start + found.end(), after
            )

    for node in _mutable(ast.parse(text)):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            after = COMPARISONS[type(node.ops[0])]
            yield from between(
                node.left, node.comparators[0], "comparison", r"[<>=!]=?|\b(is not|not in|is|in)\b", after
            )
        elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
            after = ARITHMETIC[type(node.op)]
            yield from between(node.left, node.right, "arithmetic", r"\*\*|//|[-+*/%]", after)
        elif isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC:
            after = ARITHMETIC[type(node.op)] + "="
            yield from between(node.target, node.value, "arithmetic", r"(\*\*|//|[-+*/%])=", after)
        elif isinstance(node, ast.BoolOp):
            word, after = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            yield from between(node.values[0], node.values[1], "boolean", rf"\b{word}\b", after)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            if not (isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant)):
                yield change(node, "negation", f"({source(node.operand)})")
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield change(node, "constant", str(not node.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, int):
            yield change(node, "constant", str(node.value + 1))
        elif isinstance(node, ast.Constant) and isinstance(node.value, float):
            yield change(node, "constant", repr(node.value * 2 if node.value else 1.0))
        elif isinstance(node, (ast.IfExp, ast.If | ast.While)):
            yield change(node.test, "branch", f"(not ({source(node.test)}))")
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in NAMES:
                start, end = span(node.func)
                yield replace(
                    node.func.end_lineno or node.lineno, "function", end - len(called), end, NAMES[called]
                )
            for keyword in node.keywords:
                if keyword.arg not in (None, "device") and len(node.keywords) + len(node.args) > 1:
                    start, end = offsets[keyword.lineno - 1] + keyword.col_offset, span(keyword.value)[1]
                    comma = re.compile(rb"\s*,").match(data, end)
                    if comma:
                        yield replace(keyword.lineno, "argument", start, comma.end(), "")
                    elif (left := data[:start].rstrip()).endswith(b","):
                        yield replace(keyword.lineno, "argument", len(left) - 1, end, "")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield change(node, "deletion", "pass")


def _mutable(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node that matters when the code runs: no annotations, messages of errors, decorators or names."""
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns", "decorator_list", "type_params", "format_spec"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.Raise | ast.Assert | ast.JoinedStr):
                continue
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.FunctionDef) and re.match("_?(plot|draw)", child.name):
                continue
            yield child
            yield from _mutable(child)


def is_valid(mutant: Mutant) -> bool:
    """Whether the changed file still compiles (an argument dropped from a one-element tuple may not)."""
    try:
        compile(apply(mutant), mutant.path, "exec")
    except SyntaxError:
        return False
    return True


def apply(mutant: Mutant) -> str:
    """The text of the file with the change."""
    data = (SOURCE / mutant.path).read_bytes()
    return (data[: mutant.start] + mutant.after.encode() + data[mutant.end :]).decode()


def draw(mutants: list[Mutant], sample: int, seed: int) -> list[Mutant]:
    """A sample that takes one mutant of each package after another."""
    random.Random(seed).shuffle(mutants)
    turns: Counter[str] = Counter()
    order = []
    for mutant in mutants:
        order.append((turns[mutant.package], mutant.package, mutant))
        turns[mutant.package] += 1
    return [mutant for _, _, mutant in sorted(order)[:sample]]


def changed_lines(revision: str) -> dict[str, set[int]]:
    """Lines of the package that differ from a revision, by file."""
    diff = _git("diff", "--unified=0", revision, "--", "src/unseam")
    found: dict[str, set[int]] = defaultdict(set)
    path = ""
    for row in diff.splitlines():
        if row.startswith("+++ "):
            path = row.removeprefix("+++ b/src/unseam/")
        elif hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", row):
            start, count = int(hunk[1]), int(hunk[2] or 1)
            found[path].update(range(start, start + count))
    return found


def tests_by_line(workers: int) -> dict[str, dict[int, list[str]]]:
    """Which tests reach which line of which file, measured by one run of the suite under coverage."""
    revision = _git("rev-parse", "HEAD").strip()
    database = ROOT / ".benchmarks" / f"coverage-{revision[:12]}.sqlite"
    if not database.exists():
        print("measuring which test reaches which line: one run of the suite under coverage", flush=True)
        database.parent.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "pytest", "-q", "-n", str(workers), "--benchmark-disable", "--no-header",
                   "--cov=unseam", "--cov-context=test", "--cov-report="]  # fmt: skip
        environment = _environment(ROOT) | {
            "COVERAGE_FILE": str(database) + ".part",
            "COVERAGE_CORE": "ctrace",
        }
        status = subprocess.run(command, cwd=ROOT, env=environment).returncode
        if status:
            raise SystemExit("the suite must pass before mutants are tried")
        os.replace(str(database) + ".part", database)
    reached: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    with sqlite3.connect(database) as connection:
        rows = connection.execute(
            "select file.path, context.context, line_bits.numbits from line_bits"
            " join file on file.id = line_bits.file_id join context on context.id = line_bits.context_id"
        )
        for path, context, bits in rows:
            test = context.partition("|")[0]
            if "::" not in test:
                continue
            name = path.partition("/src/unseam/")[2]
            for byte, mask in enumerate(bits):
                for bit in range(8):
                    if mask >> bit & 1:
                        reached[name][byte * 8 + bit].append(test)
    return reached


def choose_tests(mutant: Mutant, reached: dict[str, dict[int, list[str]]]) -> list[str]:
    """Tests that reach the line, those of its own package first; for lines run at import, the package's tests."""
    own = [f"tests/{mutant.package}/", f"tests/test_{mutant.package}", f"src/unseam/{mutant.path}"]
    found = sorted(
        set(reached[mutant.path][mutant.line]), key=lambda test: (not test.startswith(tuple(own)), test)
    )
    if len(found) <= 1:  # run once, at import, whichever test came first
        everything = {test for tests in reached[mutant.path].values() for test in tests}
        found += sorted(everything, key=lambda test: (not test.startswith(tuple(own)), test))
    return list(dict.fromkeys(found))[:MOST_TESTS]


def run_mutants(jobs: list[tuple[Mutant, list[str]]]) -> list[Fate]:
    """The fates of some mutants, one after another, in a checkout of their own."""
    import torch

    torch.set_num_threads(1)
    fates = []
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder) / "checkout"
        _git("worktree", "add", "--detach", "--quiet", str(checkout))
        try:
            _preload(checkout)
            for mutant, tests in jobs:
                target = checkout / "src" / "unseam" / mutant.path
                original = target.read_text()
                started = time.monotonic()
                target.write_text(apply(mutant))
                try:
                    fate = "unreached" if not tests else "killed" if _fails(checkout, tests) else "survived"
                finally:
                    target.write_text(original)
                fates.append(Fate(mutant, fate, time.monotonic() - started))
                print(
                    f"{fate:9} {mutant.path}:{mutant.line} {mutant.before!r} -> {mutant.after!r}", flush=True
                )
        finally:
            _git("worktree", "remove", "--force", str(checkout))
    return fates


def _preload(checkout: Path) -> None:
    """Import what every test needs, once; each mutant is then tried in a fork of this process."""
    os.chdir(checkout)
    os.environ.update(_environment(checkout))
    sys.path[:0] = [str(checkout / "src"), str(checkout)]
    import hypothesis  # noqa: F401
    import matplotlib.figure  # noqa: F401
    import pandas  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import scipy.stats  # noqa: F401
    import sklearn.ensemble  # noqa: F401


def _fails(checkout: Path, tests: list[str]) -> bool:
    """Whether any of the tests fails or the time limit is passed, in a fork."""
    child = os.fork()
    if child == 0:
        os.setsid()
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        import pytest

        options = ["-x", "-q", "-p", "no:cacheprovider", "--benchmark-disable", "--no-header", "--tb=no"]
        os._exit(int(pytest.main([*options, *tests])))
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) != 0
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def _environment(checkout: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(checkout / "src"),
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def main() -> int:
    """Try the mutants that were asked for, print them by package and write the record of a whole sample."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sample", type=int, default=300, help="number of mutants drawn (default 300)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw (default 0)")
    parser.add_argument(
        "--changed", metavar="REVISION", help="all mutants of the lines changed since a revision"
    )
    parser.add_argument("--package", help="only mutants of one package or module, such as training")
    parser.add_argument("--workers", type=int, default=2, help="processes (default 2)")
    options = parser.parse_args()

    if _git("status", "--porcelain", "--", "src", "tests").strip():
        raise SystemExit(
            "commit the changes under src and tests first: mutants are tried on checkouts of HEAD"
        )
    mutants = [mutant for path in sorted(SOURCE.rglob("*.py")) for mutant in find_mutants(path)]
    if options.package:
        mutants = [mutant for mutant in mutants if mutant.package == options.package]
    if options.changed:
        lines = changed_lines(options.changed)
        mutants = [mutant for mutant in mutants if mutant.line in lines[mutant.path]]
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {"equivalent": {}}
    mutants = [mutant for mutant in mutants if mutant.key not in record["equivalent"]]
    drawn = mutants if options.changed else draw(mutants, options.sample, options.seed)
    chosen = [mutant for mutant in drawn if is_valid(mutant)]
    print(f"{len(chosen)} of {len(mutants)} mutants", flush=True)

    reached = tests_by_line(options.workers)
    jobs = [(mutant, choose_tests(mutant, reached)) for mutant in chosen]
    with ProcessPoolExecutor(options.workers) as pool:
        parts = [pool.submit(run_mutants, jobs[k :: options.workers]) for k in range(options.workers)]
        fates = sorted(fate for part in as_completed(parts) for fate in part.result())

    tried, killed = Counter(), Counter()
    for fate in fates:
        tried[fate.mutant.package] += 1
        killed[fate.mutant.package] += fate.fate == "killed"
    for package in sorted(tried):
        print(
            f"{package:14} {killed[package]:4} of {tried[package]:4}  {killed[package] / tried[package]:.0%}"
        )
    print(f"{'all':14} {killed.total():4} of {tried.total():4}  {killed.total() / max(1, tried.total()):.0%}")
    if not (options.changed or options.package):
        survivors = [f"{fate.fate}: {fate.mutant.key}" for fate in fates if fate.fate != "killed"]
        record |= {
            "date": datetime.date.today().isoformat(),
            "revision": _git("rev-parse", "--short", "HEAD").strip(),
            "seed": options.seed,
            "packages": {package: [killed[package], tried[package]] for package in sorted(tried)},
            "survivors": survivors,
        }
        RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
