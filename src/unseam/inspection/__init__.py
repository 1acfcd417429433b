"""What a decoder does to its latents, measured and said in plain words."""

from unseam.inspection.measure import inspect
from unseam.inspection.result import Inspection, PrecisionSummary, RandomBaseline
from unseam.inspection.verdict import verdict

__all__ = ["Inspection", "PrecisionSummary", "RandomBaseline", "inspect", "verdict"]
