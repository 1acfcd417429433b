"""Mutation testing: changes one operator, number or argument at a time and runs the tests that reach it.

    python tools/mutants.py --sample 300 --jobs 16          a seeded sample over the whole package
    python tools/mutants.py --changed main~5                every mutant of the lines changed since a revision
    python tools/mutants.py --package training              a sample from one package

The operators are those of :data:`OPERATORS`. Left out, since no test here can see them: annotations, the texts of
errors, the bodies of functions that draw, and ``device=`` arguments. A sample takes the same number from every package.

A mutant is tried first by the nearest test files: those of its module, of its package, and others that name what the
module defines. What survives is tried by the tests of these files that reach its line, measured once without any change
(pytest-cov, one file after another). Each time as many tests are run as fit into ``--seconds``. All seconds are
processor time, so that a busy machine changes no fate:

    killed     a test failed
    timeout    the tests took far more processor time than without the change; counted as killed, in its own column
    stalled    the tests took far longer by the clock alone: a deadlock, or a machine that is too busy; not killed
    survived   every test that was run passed; how many more reach the line, or may, but did not fit, stands beside it
    unreached  no test reaches the file

Every fate is appended to ``--results`` at once, so that a sample that was stopped goes on where it was; ``--retry``
tries the survivors again, after tests were added or with more ``--seconds``. Survivors that no test can kill are listed
with the reason, one by one, in ``tests/mutants.json``.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import contextlib
import hashlib
import importlib.util
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "unseam"
EQUIVALENT = ROOT / "tests" / "mutants.json"
SLACK = 20.0
"""Seconds of processor time that the tests of a mutant may take beyond twice their time without the change."""
BUSY = 8.0
"""How many times longer by the clock than by processor time, before a run counts as stalled."""
APART = ("test_conformance.py", "test_language.py")
"""Tests of style and of signatures over everything public, which say nothing about one line."""

KILLED = ("killed", "timeout")

OPERATORS = {
    "comparison": "< and <=, > and >=, == and !=, is and is not, in and not in exchanged",
    "arithmetic": "+ and -, * and / exchanged; **, // and % made *",
    "boolean": "and and or exchanged",
    "negation": "not and unary - removed",
    "constant": "True and False exchanged; whole numbers plus 1; other numbers doubled",
    "branch": "a condition negated",
    "function": "min and max, any and all, mean and sum, exp and expm1, and the like, exchanged",
    "argument": "a keyword argument removed",
    "deletion": "a call whose result is not used removed",
}

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
        """Names the mutant by its file, the line before and the line after, whatever the number of the line."""
        data = (SOURCE / self.path).read_bytes()
        first = data.rfind(b"\n", 0, self.start) + 1
        last = data.find(b"\n", self.end) % (len(data) + 1)
        after = data[first : self.start] + self.after.encode() + data[self.end : last]
        return " ".join(f"{self.path}: {data[first:last].decode()} => {after.decode()}".split())

    @property
    def package(self) -> str:
        """The package it belongs to, or the module where it lies directly under ``unseam``."""
        return Path(self.path).parts[0].removesuffix(".py")


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
            if isinstance(child, ast.FunctionDef) and re.match("_?(plot|draw)|.*figure$", child.name):
                continue
            yield child
            yield from _mutable(child)


def apply(mutant: Mutant) -> str:
    """The text of the file with the change."""
    data = (SOURCE / mutant.path).read_bytes()
    return (data[: mutant.start] + mutant.after.encode() + data[mutant.end :]).decode()


def is_valid(mutant: Mutant) -> bool:
    """Whether the changed file still compiles (an argument dropped from a one-element tuple may not)."""
    try:
        compile(apply(mutant), mutant.path, "exec")
    except SyntaxError:
        return False
    return True


def draw(mutants: list[Mutant], sample: int, seed: int) -> list[Mutant]:
    """A sample that takes one mutant of each package after another; a larger one begins with the smaller."""
    mutants = sorted(mutants)
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


# Which tests: by name, which files; by coverage, which of their tests.


def nearest(path: str) -> list[str]:
    """Test files of a source file, those nearest to it first, by their names and by what they name."""
    file, package = SOURCE / path, Path(path).parts[0].removesuffix(".py")
    module = {"__init__.py": "imports", "__main__.py": "cli"}.get(path, file.stem.strip("_"))
    tree = ast.parse(file.read_text())
    names = {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    public = {name for name in names if not name.startswith("_")} | {f"unseam.{path[:-3].replace('/', '.')}"}
    public -= {"mark", "load", "train", "inspect", "score", "main"}  # words that stand everywhere
    mentions = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in sorted(public)))
    ranked = [(0.5, f"src/unseam/{path}")]
    for test in sorted((ROOT / "tests").rglob("test_*.py")):
        inside = test.relative_to(ROOT / "tests")
        if inside.name in APART or inside.parts[0] == "browser":
            continue
        count = len(mentions.findall(test.read_text()))
        own = inside.parts[0] == package or inside.stem == f"test_{package}"
        if (own or path == file.name) and inside.stem.removeprefix("test_") == module:
            rank = 0.0
        elif own:
            rank = 2 - count / (count + 1) if count else 4.0
        elif count:
            rank = 3 - count / (count + 1)
        else:
            continue
        ranked.append((rank, f"tests/{inside}"))
    return [test for _, test in sorted(ranked)]


class Times(NamedTuple):
    """Seconds of the tests of a file without any change, those that fail here, and the lines that each reaches."""

    seconds: dict[str, float]
    failing: list[str]
    coverage: str
    beyond: int = 0
    """Further tests that were not measured, since those before took enough."""
    most: float = 0.0
    """Seconds after which it was enough."""


class Choice(NamedTuple):
    """Tests of a mutant, their seconds without the change, how many more reach it, and how many more may."""

    tests: list[str]
    seconds: float
    left: int
    unknown: int


def choose_tests(mutant: Mutant, times: Sequence[Times], seconds: float) -> Choice:
    """The tests that reach a mutant, file by file and quick ones first, as many as fit.

    Where at most one test reaches the statement, it runs at import: all tests that reach the file are taken.
    """
    statement = _statement(mutant)
    reached = [_reaching(known.coverage, mutant.path, statement) for known in times]
    unknown = sum(known.beyond for known in times)
    if sum(len(those & known.seconds.keys()) for known, those in zip(times, reached, strict=True)) <= 1:
        reached = [_reaching(known.coverage, mutant.path, None) for known in times]
    chosen: list[str] = []
    total, left = 0.0, 0
    for known, those in zip(times, reached, strict=True):
        for test, its in sorted(known.seconds.items(), key=lambda item: item[1]):
            if test not in those:
                continue
            if total + its <= seconds:
                chosen.append(test)
                total += its
            else:
                left += 1
    return Choice(chosen, total, left, unknown)


def _statement(mutant: Mutant) -> range:
    """Lines from the beginning of the innermost statement around a mutant to the mutant's end."""
    text = (SOURCE / mutant.path).read_text()
    last = mutant.line + mutant.before.count("\n")
    around = [
        node.lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.stmt) and node.lineno <= mutant.line <= (node.end_lineno or node.lineno)
    ]
    return range(max(around, default=mutant.line), last + 1)


def _reaching(coverage: str, path: str, lines: range | None) -> set[str]:
    """Tests of a coverage file that reach any of the lines of a source file, or the file at all."""
    if not coverage:
        return set()
    with contextlib.closing(sqlite3.connect(coverage)) as connection:
        if not connection.execute("select 1 from sqlite_master where name = 'line_bits'").fetchone():
            return set()  # nothing of the package ran
        rows = connection.execute(
            "select context.context, line_bits.numbits from line_bits"
            " join file on file.id = line_bits.file_id join context on context.id = line_bits.context_id"
            " where file.path like ?",
            (f"%/src/unseam/{path}",),
        )
        return {
            context.partition("|")[0]
            for context, bits in rows
            if lines is None
            or any(line // 8 < len(bits) and bits[line // 8] >> line % 8 & 1 for line in lines)
        }


# Running: workers with a copy of the tree each, and a fork per mutant that has the heavy imports done.


class Ended(NamedTuple):
    """How a run of tests ended: ``passed``, ``failed``, ``timeout`` or ``stalled``."""

    how: str
    seconds: dict[str, float]
    failing: list[str]
    collected: int


class _Reports:
    """What pytest says about single tests."""

    def __init__(self, most: float) -> None:
        self.most = most
        self.seconds: dict[str, float] = {}
        self.failing: set[str] = set()
        self.collected = 0
        self._before = 0.0

    def pytest_collection_finish(self, session: Any) -> None:
        """Note how many tests there are."""
        self.collected = len(session.items)

    def pytest_runtest_protocol(self, item: Any) -> None:
        """Stop where the tests before took enough."""
        if sum(self.seconds.values()) > self.most:
            item.session.shouldstop = "enough was measured"

    def pytest_runtest_logstart(self) -> None:
        """Begin to measure the processor time of a test, with its children's."""
        self._before = sum(os.times()[:4])

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Note it, with that of setting up and tearing down."""
        self.seconds[nodeid] = round(sum(os.times()[:4]) - self._before, 3)

    def pytest_collectreport(self, report: Any) -> None:
        """Note a file that cannot be imported."""
        if report.failed:
            self.failing.add(report.nodeid or "collection")

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note a test that failed."""
        if report.failed:
            self.failing.add(report.nodeid)


def _start(place: str) -> None:
    """Prepare a worker: a copy of the tree, and what every test needs imported once."""
    checkout = Path(place) / str(os.getpid())
    for name in ("src", "tests", "docs", "tools", "benchmarks", "results"):
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__", "_build")
            )
    for file in ROOT.iterdir():
        if file.is_file():
            shutil.copy(file, checkout / file.name)
    os.chdir(checkout)
    os.environ.update(_environment(checkout))
    sys.path[:0] = [str(checkout / "src"), str(checkout)]
    for name in (
        "torch", "pytest", "matplotlib.figure", "pandas", "pyarrow.parquet",
        "scipy.stats", "sklearn.ensemble", "typer.testing", "torch.func", "hypothesis", "h5py", "jinja2",
        "rich.console", "safetensors.torch",
    ):  # fmt: skip
        if importlib.util.find_spec(name.partition(".")[0]):
            importlib.import_module(name)
    sys.modules["torch"].set_num_threads(1)


def _run(
    tests: Sequence[str], limit: float, *further: str, most: float = math.inf, coverage: str = ""
) -> Ended:
    """How tests end in a fork that may take ``limit`` seconds of processor time; no further one after ``most``."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.setsid()
        os.close(reading)
        signal.signal(
            signal.SIGINT, signal.default_int_handler
        )  # ignored where a shell put this in the background
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 9))
        silent = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silent, stream)
        status, reports = 3, _Reports(most)
        try:
            import pytest

            options = ["-q", "-p", "no:cacheprovider", "--no-header", "--tb=no"]
            options.append("-Wignore::pytest.PytestAssertRewriteWarning")
            if importlib.util.find_spec("pytest_benchmark"):  # benchmarks are functions like others here
                options.append("--benchmark-disable")
            if importlib.util.find_spec("xdist"):
                options += ["-p", "no:xdist"]
            if coverage:
                os.environ |= {"COVERAGE_FILE": coverage, "COVERAGE_CORE": "ctrace"}
                options += ["--cov=unseam", "--cov-context=test", "--cov-report="]
            status = int(pytest.main([*options, *further, *tests], plugins=[reports]))
        finally:
            with os.fdopen(writing, "w") as pipe:
                json.dump([status, reports.seconds, sorted(reports.failing), reports.collected], pipe)
            os._exit(0)
    os.close(writing)
    text = _read_until(reading, time.monotonic() + BUSY * limit)
    try:
        (os.kill if text else os.killpg)(child, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(child, signal.SIGKILL)
    _, ended = os.waitpid(child, 0)
    if text is None:
        return Ended("stalled", {}, [], 0)
    if not text:  # the process itself did not survive
        return Ended("timeout" if os.WTERMSIG(ended) == signal.SIGXCPU else "failed", {}, [], 0)
    status, *found = json.loads(text)
    result = Ended("passed", *found)
    # 2 is interrupted, where those before took enough; 5 is that there are none
    return (
        result if status in (0, 5) or (status == 2 and not result.failing) else result._replace(how="failed")
    )


def _read_until(reading: int, deadline: float) -> str | None:
    import select

    parts: list[bytes] = []
    with os.fdopen(reading, "rb", 0) as pipe:
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([pipe], [], [], left)[0]:
                break
            part = pipe.read(1 << 16)
            if not part:
                return b"".join(parts).decode()
            parts.append(part)
    return None


def measure(file: str, coverage: Path, most: float) -> tuple[str, Times]:
    """The tests of one file without any change, of those that take long together the first ``most`` seconds."""
    coverage = coverage.absolute()
    _, seconds, failing, collected = _run([file], 10 * most, most=most, coverage=str(coverage))
    sound = {test: its for test, its in seconds.items() if test not in failing}
    found = str(coverage) if coverage.exists() else ""
    return file, Times(sound, failing, found, collected - len(seconds), most)


def _failing(tests: list[str]) -> set[str]:
    """Those of some tests that fail without any change."""
    return set(_run(tests, 3600.0).failing) if tests else set()


def try_mutant(mutant: Mutant, choice: Choice, most: float = math.inf) -> dict[str, Any]:
    """What becomes of one mutant; of whole files, the first ``most`` seconds of tests are run."""
    target = Path("src", "unseam", mutant.path)
    original, began = target.read_text(), time.monotonic()
    target.write_text(apply(mutant))
    ended = Ended("unreached", {}, [], 0)
    try:
        if choice.tests:
            ended = _run(choice.tests, 2 * choice.seconds + SLACK, "-x", most=most)
    finally:
        target.write_text(original)
    fate = {"passed": "survived", "failed": "killed"}.get(ended.how, ended.how)
    if fate == "killed" and not any(
        "::" in test for test in ended.failing
    ):  # no test, but the collection of them
        fate = "unreached" if _run(choice.tests, SLACK, "--collect-only").how == "failed" else fate
    by = ended.failing[0] if ended.failing else ended.how
    if ended.how == "passed":
        by = f"{len(ended.seconds)} tests passed; {choice.left} more reach it, {choice.unknown} more may"
        if most < math.inf:
            by = f"{len(ended.seconds)} nearest tests passed"
    seconds = round(time.monotonic() - began, 1)
    return {"key": mutant.key, "package": mutant.package, "operator": mutant.operator, "line": mutant.line,
            "fate": fate, "by": by, "seconds": seconds, "near": most < math.inf}  # fmt: skip


def _environment(checkout: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def _revision() -> str:
    """A digest of the sources and the tests, with which results belong together."""
    found = hashlib.sha256()
    for file in sorted([*SOURCE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]):
        found.update(str(file.relative_to(ROOT)).encode() + file.read_bytes())
    return found.hexdigest()[:12]


def _digest(file: str | None) -> str:
    """A digest of a test file, with which its times and its coverage belong together."""
    return (
        hashlib.sha256((ROOT / file).read_bytes()).hexdigest()[:12]
        if file and (ROOT / file).exists()
        else "-"
    )


def main() -> int:
    """Try the mutants that were asked for, and print a table by package and the survivors."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sample", type=int, default=300, help="number of mutants drawn (default 300)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw (default 0)")
    parser.add_argument(
        "--drawn", metavar="REVISION", help="draw from the sources of then and try what is still there"
    )
    parser.add_argument("--changed", metavar="REVISION", help="all mutants of the lines changed since then")
    parser.add_argument("--package", help="only mutants of one package or module, such as training")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="processor time of tests per mutant (default 20)"
    )
    parser.add_argument("--files", type=int, help="test files per mutant, nearest first (default all)")
    parser.add_argument("--near", action="store_true", help="by the nearest tests alone, without coverage")
    parser.add_argument("--minutes", type=float, help="begin no mutant after so long; call again to go on")
    parser.add_argument(
        "--retry", action="store_true", help="try what was not killed again, and nothing else"
    )
    parser.add_argument(
        "--results", type=Path, help="file that fates are appended to, one JSON object a line"
    )
    parser.add_argument("--operators", action="store_true", help="list the operators and stop")
    options = parser.parse_args()
    if options.operators:
        print(*(f"{name:11} {text}" for name, text in OPERATORS.items()), sep="\n")
        return 0
    began = time.monotonic()
    results = options.results or ROOT / ".benchmarks" / f"mutants-{_revision()}.jsonl"
    results.parent.mkdir(parents=True, exist_ok=True)
    chosen = choose_mutants(options)
    rows = [json.loads(row) for row in results.read_text().splitlines()] if results.exists() else []
    done = {row["key"]: row for row in rows if "key" in row}
    sound = {test for row in rows for test in row.get("sound", ())}
    times = {
        row["file"]: Times(*(row[name] for name in Times._fields))
        for row in rows
        if row.get("digest") == _digest(row.get("file"))
        and (not row["beyond"] or row["most"] >= options.seconds)
    }
    todo = [mutant for mutant in chosen if _open(done.get(mutant.key), options)]
    print(f"{len(chosen)} mutants, {len(todo)} to try; results in {results}", flush=True)
    if not importlib.util.find_spec("pytest_cov"):
        raise SystemExit("needs pytest-cov: pip install 'unseam[mutants]'")
    coverage = results.with_suffix(".coverage")
    coverage.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place, results.open("a") as file:

        def write(row: dict[str, Any]) -> None:
            print(json.dumps(row, ensure_ascii=False), file=file, flush=True)

        with concurrent.futures.ProcessPoolExecutor(
            options.jobs, initializer=_start, initargs=(place,)
        ) as pool:
            near = {path: nearest(path)[: options.files] for path in {mutant.path for mutant in todo}}
            waiting = list(todo)
            running: set[concurrent.futures.Future[Any]] = set()
            asked: set[str] = set()
            deselected = [f"--deselect={test}" for known in times.values() for test in known.failing]
            while waiting or running:
                if options.minutes is not None and time.monotonic() - began > 60 * options.minutes:
                    waiting = []
                while waiting and len(running) < options.jobs:
                    # in their order, so that what was tried is a sample of every package
                    for mutant in waiting:
                        files = near[mutant.path]
                        if mutant.key not in done or options.near:
                            waiting.remove(mutant)
                            choice = Choice([*files, *deselected], options.seconds, 0, 0)
                            running.add(pool.submit(try_mutant, mutant, choice, options.seconds))
                            break
                        unknown = [test for test in files if test not in asked | times.keys()]
                        if unknown:
                            asked.add(unknown[0])
                            part = coverage / f"{unknown[0].replace('/', '-')}.{_digest(unknown[0])}"
                            running.add(pool.submit(measure, unknown[0], part, options.seconds))
                            break
                        if all(test in times for test in files):
                            waiting.remove(mutant)
                            choice = choose_tests(mutant, [times[test] for test in files], options.seconds)
                            running.add(pool.submit(try_mutant, mutant, choice))
                            break
                    else:
                        break
                ended, running = concurrent.futures.wait(running, return_when="FIRST_COMPLETED")
                for end in ended:
                    row = end.result()
                    if isinstance(row, tuple):
                        test, times[test] = row
                        write({"file": test, "digest": _digest(test), **times[test]._asdict()})
                        if times[test].failing:
                            print(
                                f"left out, since they fail without a change: {', '.join(times[test].failing)}"
                            )
                    else:
                        done[row["key"]] = row
                        write(row)
                        if row["near"] and row["fate"] not in KILLED and not options.near:
                            waiting += [mutant for mutant in todo if mutant.key == row["key"]]
                        print(
                            f"{row['fate']:9} {row['seconds']:5.1f} s  {row['key']}  [{row['by']}]",
                            flush=True,
                        )
            killers = {row["by"] for row in done.values() if row["fate"] == "killed" and "::" in row["by"]}
            unsound = pool.submit(_failing, sorted(killers - sound)).result()
            for row in [row for row in done.values() if row["by"] in unsound]:
                done[row["key"]] = row | {"fate": "unreached", "by": f"{row['by']} fails without a change"}
                write(done[row["key"]])
            write({"sound": sorted(killers - unsound)})
    report([done[mutant.key] for mutant in chosen if mutant.key in done], len(chosen))
    return 0


def _open(row: dict[str, Any] | None, options: argparse.Namespace) -> bool:
    """Whether a mutant is still to be tried: first by the nearest tests, and what survives by all that reach it."""
    if row is None:
        return not options.retry
    return row["fate"] not in KILLED and (options.retry or (row.get("near", False) and not options.near))


def draw_then(revision: str, sample: int, seed: int) -> list[str]:
    """Keys of the sample that the sources of a revision gave."""
    global SOURCE
    here = SOURCE
    with tempfile.TemporaryDirectory() as place:
        command = ["git", "archive", f"--output={place}/sources.tar", revision, "src/unseam"]
        subprocess.run(command, cwd=ROOT, check=True)
        shutil.unpack_archive(f"{place}/sources.tar", place)
        SOURCE = Path(place, "src", "unseam")
        try:
            mutants = [mutant for path in sorted(SOURCE.rglob("*.py")) for mutant in find_mutants(path)]
            return [mutant.key for mutant in draw(mutants, sample, seed)]
        finally:
            SOURCE = here


def choose_mutants(options: argparse.Namespace) -> list[Mutant]:
    """The mutants that are asked for, without those that are known to be equivalent."""
    mutants = [mutant for path in sorted(SOURCE.rglob("*.py")) for mutant in find_mutants(path)]
    if options.drawn:
        by_key = {mutant.key: mutant for mutant in reversed(mutants)}
        keys = draw_then(options.drawn, options.sample, options.seed)
        mutants = [by_key[key] for key in keys if key in by_key]
    if options.package:
        mutants = [mutant for mutant in mutants if mutant.package == options.package]
    if options.changed:
        lines = changed_lines(options.changed)
        mutants = [mutant for mutant in mutants if mutant.line in lines[mutant.path]]
    drawn = mutants if options.changed or options.drawn else draw(mutants, options.sample, options.seed)
    equivalent = json.loads(EQUIVALENT.read_text())["equivalent"]
    return [mutant for mutant in drawn if is_valid(mutant) and mutant.key not in equivalent]


def report(rows: Sequence[dict[str, Any]], asked: int) -> None:
    """Print how many were killed by package, as a table, and the survivors."""
    print("\n| package | tried | killed | timeout | survived | stalled | unreached | share |")
    print("|---|---|---|---|---|---|---|---|")
    for package in [*sorted({row["package"] for row in rows}), "all"]:
        own = Counter(row["fate"] for row in rows if package in (row["package"], "all"))
        counts = [own[fate] for fate in (*KILLED, "survived", "stalled", "unreached")]
        share = sum(counts[:2]) / max(1, own.total())
        print(f"| {package} | {own.total()} | {' | '.join(map(str, counts))} | {share:.0%} |")
    if len(rows) < asked:
        print(f"\n{asked - len(rows)} of {asked} not tried yet: call again with the same --results")
    survivors = [row for row in rows if row["fate"] not in KILLED]
    print(f"\n{len(survivors)} not killed:")
    for row in sorted(survivors, key=lambda row: row["key"]):
        print(f"- {row['fate']}, {row['operator']}, line {row['line']}: {row['key']} ({row['by']})")


if __name__ == "__main__":
    sys.exit(main())
