"""Print the lowest versions that pyproject.toml allows, as constraints for pip; torch as it is pinned for the tests."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def floors() -> dict[str, str]:
    """The lowest version of each dependency and of each extra that tests import, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["explore"]]
    found = dict(re.fullmatch(r"([\w.-]+)>=([\w.]+)", line).groups() for line in wanted)
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line)
    return found | {"torch": pinned["torch"]}


if __name__ == "__main__":
    for name, version in floors().items():
        print(f"{name}=={version}")
