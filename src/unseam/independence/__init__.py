"""Whether what a decoder generates factorises into independent components."""

from unseam.independence.cases import ComponentCase, component_case
from unseam.independence.coupling import Coupling, MixedDerivative, NotSmoothError, coupling, mixed_derivative
from unseam.independence.curvilinear import Curvilinear, ReferenceCurves, curvilinear
from unseam.independence.density import AxisDensity, LogDensity, axis_density, log_density, standard_normal
from unseam.independence.distance_correlation import Dcor, DistanceCorrelation, distance_correlation
from unseam.independence.hsic import Hsic, hsic, median_distance
from unseam.independence.identifiability import GeneratorMatch, match_generators
from unseam.independence.integrability import Integrability, LieBrackets, integrability, lie_brackets
from unseam.independence.submanifold import Submanifold, submanifold
from unseam.independence.testing import IndependenceTest, Statistic, TestSettings, independence_test
from unseam.independence.total_correlation import (
    GaussianTc,
    NeighbourTc,
    gaussian_total_correlation,
    neighbour_total_correlation,
)

__all__ = [
    "axis_density",
    "AxisDensity",
    "component_case",
    "ComponentCase",
    "Coupling",
    "coupling",
    "Curvilinear",
    "curvilinear",
    "Dcor",
    "distance_correlation",
    "DistanceCorrelation",
    "gaussian_total_correlation",
    "GaussianTc",
    "GeneratorMatch",
    "Hsic",
    "hsic",
    "independence_test",
    "IndependenceTest",
    "Integrability",
    "integrability",
    "lie_brackets",
    "LieBrackets",
    "log_density",
    "LogDensity",
    "match_generators",
    "median_distance",
    "mixed_derivative",
    "MixedDerivative",
    "neighbour_total_correlation",
    "NeighbourTc",
    "NotSmoothError",
    "ReferenceCurves",
    "standard_normal",
    "Statistic",
    "Submanifold",
    "submanifold",
    "TestSettings",
]
