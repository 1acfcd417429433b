"""How many points a device can take at once."""

from __future__ import annotations

from pathlib import Path

import torch

__all__ = ["free_memory", "points_at_once"]

# Arrays of the widest layer's size held together: a layer's input, its output, a copy, and their points.
COPIES = 4
# More at once is no faster: a processor's caches are full, a GPU is busy.
ENOUGH = {"cpu": 2**26, "cuda": 2**32}
UNKNOWN = 2**30


def points_at_once(
    latent: int, widest: int, dtype: torch.dtype, device: torch.device, *, least: int = 1
) -> int:
    r"""Number of points whose tangents are carried through a decoder together.

    A point needs (latent + 1) · widest numbers for each of the few arrays held together. Half of what is
    free is used at most, and no more than makes the computation fast, but for ``least`` points.

    Args:
        latent: number of latents d.
        widest: numbers in the widest intermediate result of one point.
        dtype: their type.
        device: where they are.
        least: points that are better taken together even if the processor's caches are full.

    >>> points_at_once(5, 4096, torch.float32, torch.device("cpu")) >= 1
    True
    """
    point = COPIES * (latent + 1) * max(1, widest) * dtype.itemsize
    budget = min(free_memory(device) // 2, max(ENOUGH.get(device.type, UNKNOWN), least * point))
    return max(1, budget // point)


def free_memory(device: torch.device) -> int:
    """Bytes that a device has free; of a host, within the limits of the process.

    >>> free_memory(torch.device("cpu")) > 0
    True
    """
    if device.type == "cuda":
        # What torch holds in reserve is as good as free.
        reserve = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + reserve
    return _free_host() if device.type == "cpu" else UNKNOWN


def _free_host(proc: Path = Path("/proc/meminfo"), group: Path = Path("/sys/fs/cgroup")) -> int:
    """Free memory of the host, within the limits of the control group that the process may run in."""
    free = UNKNOWN
    if proc.exists():
        lines = dict(line.split(":", 1) for line in proc.read_text().splitlines() if ":" in line)
        free = int(lines["MemAvailable"].split()[0]) * 1024
    limit, used = group / "memory.max", group / "memory.current"
    if limit.exists() and used.exists() and limit.read_text().strip().isdigit():
        free = min(free, max(0, int(limit.read_text()) - int(used.read_text())))
    return free
