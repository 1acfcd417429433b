"""What a result came from: versions, hardware and code revision."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from unseam import __version__

__all__ = ["provenance"]

PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "pandas", "pyarrow", "safetensors")


def provenance(device: torch.device | str = "cpu") -> dict[str, Any]:
    """Versions, hardware, code revision and time, as JSON values, to travel with a result.

    >>> sorted(provenance())
    ['created', 'hardware', 'revision', 'versions']
    """
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"unseam": __version__, "python": platform.python_version()}
        | {name: _version(name) for name in PACKAGES},
        "hardware": _hardware(torch.device(device)),
        "revision": _revision(),
    }


def _hardware(device: torch.device) -> dict[str, Any]:
    record: dict[str, Any] = {
        "device": device.type,
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        record["accelerator"] = properties.name
        record["accelerator_memory_gib"] = round(properties.total_memory / 2**30, 1)
    return record


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _revision() -> str:
    """Git revision of the code that runs, marked where files differ from it; unknown outside a checkout."""
    here = Path(__file__).parent
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=here,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return described.stdout.strip() or "unknown"
