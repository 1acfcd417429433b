"""Whether codes match known factors: the metrics of the field, on plain arrays, with intervals."""

from unseam.metrics.beta_vae_score import BetaVaeScore, BetaVaeSettings, beta_vae_score
from unseam.metrics.dci import Dci, DciSettings, dci
from unseam.metrics.disentanglement_score import (
    DisentanglementScore,
    DisentanglementSettings,
    disentanglement_score,
)
from unseam.metrics.evaluate import evaluate
from unseam.metrics.explicitness import Explicitness, ExplicitnessSettings, explicitness
from unseam.metrics.factor_vae_score import FactorVaeScore, FactorVaeSettings, factor_vae_score
from unseam.metrics.intervals import Interval
from unseam.metrics.irs import Irs, IrsSettings, irs
from unseam.metrics.mcc import Mcc, MccSettings, mcc
from unseam.metrics.meter import Meter
from unseam.metrics.mig import Mig, MigSettings, MigSup, MigSupSettings, mig, mig_sup
from unseam.metrics.mig_entropy import MigEntropy, MigEntropySettings, mig_entropy
from unseam.metrics.modularity import Modularity, ModularitySettings, modularity
from unseam.metrics.mutual_information import BinnedInformation, binned_information
from unseam.metrics.r2 import R2, R2Settings, r2
from unseam.metrics.sap import Sap, SapSettings, sap
from unseam.metrics.total_correlation import (
    CodeDependence,
    PairwiseInformation,
    PairwiseInformationSettings,
    TotalCorrelationSettings,
    WassersteinCorrelation,
    mean_pairwise_information,
    total_correlation,
    wasserstein_correlation,
)
from unseam.metrics.udr import Udr, UdrSettings, udr
from unseam.metrics.validation import FactorWorld, SyntheticEncoder, encoders, validation_grid, worlds

__all__ = [
    "beta_vae_score",
    "BetaVaeScore",
    "BetaVaeSettings",
    "binned_information",
    "BinnedInformation",
    "CodeDependence",
    "Dci",
    "dci",
    "DciSettings",
    "disentanglement_score",
    "DisentanglementScore",
    "DisentanglementSettings",
    "encoders",
    "evaluate",
    "Explicitness",
    "explicitness",
    "ExplicitnessSettings",
    "factor_vae_score",
    "FactorVaeScore",
    "FactorVaeSettings",
    "FactorWorld",
    "Interval",
    "Irs",
    "irs",
    "IrsSettings",
    "Meter",
    "Mcc",
    "mcc",
    "MccSettings",
    "mean_pairwise_information",
    "Mig",
    "mig",
    "mig_entropy",
    "mig_sup",
    "MigEntropy",
    "MigEntropySettings",
    "MigSettings",
    "MigSup",
    "MigSupSettings",
    "Modularity",
    "modularity",
    "ModularitySettings",
    "PairwiseInformation",
    "PairwiseInformationSettings",
    "R2",
    "r2",
    "R2Settings",
    "Sap",
    "sap",
    "SapSettings",
    "SyntheticEncoder",
    "total_correlation",
    "TotalCorrelationSettings",
    "Udr",
    "udr",
    "UdrSettings",
    "validation_grid",
    "wasserstein_correlation",
    "WassersteinCorrelation",
    "worlds",
]
