"""Look for known vulnerabilities of the pinned versions, and of the lowest that are allowed: ``make audit``."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from floors import floors

ROOT = Path(__file__).resolve().parents[1]


def judge(title: str, dependencies: list[Mapping[str, Any]]) -> tuple[list[str], int]:
    """Lines on what pip-audit reported, and a status: 0 none known, 1 some known, 2 not all could be looked up."""
    lines = [
        f"{one['name']} {one['version']}: {flaw['id']}, fixed in {', '.join(flaw['fix_versions']) or 'no version'}"
        for one in dependencies
        for flaw in one.get("vulns", ())
    ]
    skipped = [one["name"] for one in dependencies if "skip_reason" in one]
    looked_up = len(dependencies) - len(skipped)
    if not looked_up:
        return [f"{title}: not audited, since the data on vulnerabilities could not be reached"], 2
    left = f"; not looked up: {', '.join(skipped)}" if skipped else ""
    status = 1 if lines else 2 if skipped else 0
    return [*lines, f"{title}: {len(lines)} known vulnerabilities in {looked_up} versions{left}"], status


def audit(program: str, title: str, requirements: Path) -> int:
    """Run pip-audit on exact versions, print what it found, and return the status."""
    command = [
        program,
        "-r",
        str(requirements),
        "--no-deps",
        "--disable-pip",
        "--progress-spinner",
        "off",
        "-f",
        "json",
    ]
    found = subprocess.run(command, capture_output=True, text=True)
    try:
        dependencies = json.loads(found.stdout)["dependencies"]
    except ValueError:
        last = (found.stderr.strip().splitlines() or ["no answer"])[-1]
        print(f"{title}: not audited: {last}")
        return 2
    lines, status = judge(title, dependencies)
    print(*lines, sep="\n")
    return status


def main() -> int:
    """Audit the pinned versions, then the lowest ones; the worse of both statuses."""
    with tempfile.TemporaryDirectory() as place:
        lowest = Path(place) / "floors.txt"
        lowest.write_text("".join(f"{name}=={version}\n" for name, version in floors().items()))
        kinds = {"pinned versions": ROOT / "constraints.txt", "lowest versions": lowest}
        return max(audit(sys.argv[1], title, path) for title, path in kinds.items())


if __name__ == "__main__":
    raise SystemExit(main())
