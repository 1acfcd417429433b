"""What a decoder does locally: its Jacobian, the metric it pulls back, how orthogonal its columns are."""

from unseam.geometry.jacobian import FisherWeighted, jacobian, pullback
from unseam.geometry.orthogonality import column_cosine, hadamard_gap

__all__ = ["FisherWeighted", "column_cosine", "hadamard_gap", "jacobian", "pullback"]
