"""What a decoder does to its latents: measured, and summarised in sentences."""

from unseam.inspection.axes import Axes, Orthogonality, RandomAxes, compare_axes, grade_axes, random_axes
from unseam.inspection.baseline import RandomBaseline, random_baseline
from unseam.inspection.measure import inspect
from unseam.inspection.result import Inspection, PrecisionSummary, VarianceLaw
from unseam.inspection.verdict import Verdict, compare_members, verdict
from unseam.inspection.words import latent_name

__all__ = [
    "Axes",
    "Inspection",
    "Orthogonality",
    "PrecisionSummary",
    "RandomAxes",
    "RandomBaseline",
    "VarianceLaw",
    "Verdict",
    "compare_axes",
    "compare_members",
    "grade_axes",
    "inspect",
    "latent_name",
    "random_axes",
    "random_baseline",
    "verdict",
]
