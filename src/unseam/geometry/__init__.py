"""What a decoder does locally: its Jacobian, the metric it pulls back, how orthogonal its columns are."""

from unseam.geometry.activity import Activity, DeltaKl, Polarisation, active_latents, delta_kl, polarisation
from unseam.geometry.basis import (
    LocalGeometry,
    RightBasis,
    degenerate_points,
    jacobian_basis,
    local_basis,
    local_geometry,
    restrict,
    restricted_basis,
    right_basis,
)
from unseam.geometry.dto import (
    RandomDto,
    distance_to_orthogonality,
    haar_dto,
    random_decoder_dto,
    uniform_dto,
)
from unseam.geometry.gaussians import gaussian_kl
from unseam.geometry.hessian import (
    Hessian,
    LogLikelihood,
    PosteriorHessian,
    diagonal_share,
    likelihood_hessian,
    posterior_hessian,
)
from unseam.geometry.jacobian import FisherWeighted, jacobian, pullback
from unseam.geometry.local_fit import LocalFit, local_fit
from unseam.geometry.od_score import OdDistances, od_distances, od_score
from unseam.geometry.orthogonality import column_cosine, cosine_matrix, hadamard_gap
from unseam.geometry.permutation import signed_permutation
from unseam.geometry.precision import PrecisionError, VarianceNormLaw, precision_error, variance_norm_law
from unseam.geometry.probes import Probes, probe
from unseam.geometry.recurrence import LatentGroup, Recurrence, recurrence
from unseam.geometry.stochastic import (
    Gap,
    Split,
    StochasticMinimum,
    elbo_gap,
    reconstruction_split,
    stochastic_minimum,
)

__all__ = [
    "active_latents",
    "Activity",
    "column_cosine",
    "cosine_matrix",
    "degenerate_points",
    "delta_kl",
    "DeltaKl",
    "diagonal_share",
    "distance_to_orthogonality",
    "elbo_gap",
    "FisherWeighted",
    "Gap",
    "gaussian_kl",
    "haar_dto",
    "hadamard_gap",
    "Hessian",
    "jacobian",
    "jacobian_basis",
    "LatentGroup",
    "likelihood_hessian",
    "local_basis",
    "local_fit",
    "local_geometry",
    "LocalFit",
    "LocalGeometry",
    "LogLikelihood",
    "od_distances",
    "od_score",
    "OdDistances",
    "Polarisation",
    "polarisation",
    "posterior_hessian",
    "PosteriorHessian",
    "precision_error",
    "PrecisionError",
    "probe",
    "Probes",
    "pullback",
    "random_decoder_dto",
    "RandomDto",
    "reconstruction_split",
    "Recurrence",
    "recurrence",
    "restrict",
    "restricted_basis",
    "right_basis",
    "RightBasis",
    "signed_permutation",
    "Split",
    "stochastic_minimum",
    "StochasticMinimum",
    "uniform_dto",
    "variance_norm_law",
    "VarianceNormLaw",
]
