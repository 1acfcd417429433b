"""Variational autoencoders pursue PCA directions (by accident) (Rolínek, Zietlow and Martius 2019)."""

from unseam.papers.artefact import Artefact
from unseam.papers.rolinek2019.beyond import ALONG, CONVENTION, MAPS, PARTITION
from unseam.papers.rolinek2019.definition1 import DEFINITION1
from unseam.papers.rolinek2019.figures import FIGURE3, FIGURE_S4, PREDICTED
from unseam.papers.rolinek2019.linear import FIGURE1, FIGURE2
from unseam.papers.rolinek2019.pca import PCA
from unseam.papers.rolinek2019.propositions import PROPOSITIONS
from unseam.papers.rolinek2019.tables import FIGURE_S5, TABLE1, TABLE2, TABLE_S4
from unseam.papers.rolinek2019.theorem2 import THEOREM2
from unseam.papers.rolinek2019.worked_example import WORKED_EXAMPLE

__all__ = ["ARTEFACTS"]

ARTEFACTS: tuple[Artefact, ...] = (
    FIGURE1,
    FIGURE2,
    PROPOSITIONS,
    THEOREM2,
    WORKED_EXAMPLE,
    *DEFINITION1,
    *TABLE1,
    *TABLE2,
    *CONVENTION,
    MAPS,
    PARTITION,
    FIGURE3,
    PREDICTED,
    ALONG,
    *FIGURE_S4,
    TABLE_S4,
    FIGURE_S5,
    PCA,
)
