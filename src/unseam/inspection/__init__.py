"""What a decoder does to its latents: measured, and summarised in sentences."""

from unseam.inspection.baseline import RandomBaseline, random_baseline
from unseam.inspection.measure import inspect
from unseam.inspection.result import Inspection, PrecisionSummary, VarianceLaw
from unseam.inspection.verdict import Verdict, verdict

__all__ = [
    "Inspection",
    "PrecisionSummary",
    "RandomBaseline",
    "VarianceLaw",
    "Verdict",
    "inspect",
    "random_baseline",
    "verdict",
]
