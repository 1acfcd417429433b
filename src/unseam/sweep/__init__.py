"""Sweeps: many trials as stacks, on one machine or many, and a store with one row per trial."""

from unseam.sweep.engines import ENGINES, local
from unseam.sweep.measures import MEASURES, Measure, measure
from unseam.sweep.search import search
from unseam.sweep.spec import Question, Score, Spec, axis_values, read_spec
from unseam.sweep.store import Store
from unseam.sweep.sweep import FailedError, Sweep, open, plan, run
from unseam.sweep.work import Job, work

__all__ = [
    "run",
    "open",
    "plan",
    "search",
    "Sweep",
    "Spec",
    "Score",
    "Question",
    "read_spec",
    "axis_values",
    "Store",
    "FailedError",
    "MEASURES",
    "Measure",
    "measure",
    "ENGINES",
    "local",
    "Job",
    "work",
]
