"""Unpicking data at the seams: VAEs, disentanglement and independent components (Allen 2024)."""

from unseam.papers.allen2024.collapse import COLLAPSE
from unseam.papers.allen2024.corollary31 import COROLLARY31
from unseam.papers.allen2024.deterministic_elbo import DETERMINISTIC_ELBO
from unseam.papers.allen2024.diagonal_hessian import DIAGONAL_HESSIAN
from unseam.papers.allen2024.figure1 import FIGURE1
from unseam.papers.allen2024.figure2 import FIGURE2, FIGURE2_RIGHT
from unseam.papers.allen2024.gan import GAN
from unseam.papers.allen2024.identifiability import IDENTIFIABILITY
from unseam.papers.allen2024.linear_vae import LINEAR_VAE
from unseam.papers.allen2024.local_pca import LOCAL_PCA
from unseam.papers.allen2024.optimal_precision import OPTIMAL_PRECISION
from unseam.papers.allen2024.piecewise_linear import PIECEWISE_LINEAR
from unseam.papers.allen2024.plateaus import PLATEAUS
from unseam.papers.allen2024.push_forward import PUSH_FORWARD
from unseam.papers.allen2024.tempered import TEMPERED
from unseam.papers.allen2024.theorem2 import THEOREM2
from unseam.papers.allen2024.theorem3 import THEOREM3
from unseam.papers.allen2024.theorem3_families import THEOREM3_FAMILIES
from unseam.papers.allen2024.traversals import TRAVERSALS
from unseam.papers.artefact import Artefact

__all__ = ["ARTEFACTS"]

ARTEFACTS: tuple[Artefact, ...] = (
    LINEAR_VAE,
    DETERMINISTIC_ELBO,
    OPTIMAL_PRECISION,
    LOCAL_PCA,
    IDENTIFIABILITY,
    THEOREM3,
    THEOREM3_FAMILIES,
    TEMPERED,
    COROLLARY31,
    PUSH_FORWARD,
    THEOREM2,
    FIGURE1,
    FIGURE2,
    FIGURE2_RIGHT,
    DIAGONAL_HESSIAN,
    PIECEWISE_LINEAR,
    PLATEAUS,
    COLLAPSE,
    TRAVERSALS,
    GAN,
)
