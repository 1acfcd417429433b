"""A process that works on a sweep: a job on standard input, and what failed on standard output."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

from unseam.sweep.work import Job, work
from unseam.training import Interrupted

__all__ = ["main"]


def main() -> None:
    """Do one job; stop, after a checkpoint, when whoever gave it ends."""
    job = Job.from_json(sys.stdin.readline())
    threading.Thread(target=_follow_parent, daemon=True).start()
    try:
        failed = work(job)
    except Interrupted as stopped:
        sys.exit(128 + stopped.signal)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    print(json.dumps(failed))
    sys.stdout.flush()
    os._exit(0)  # the thread that waits for input must not hold up the end


def _follow_parent() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
