"""Why do variational autoencoders really promote disentanglement? (Bhowal, Soni and Rambhatla 2024)."""

from unseam.papers.artefact import Artefact
from unseam.papers.bhowal2024.audit import AUDIT
from unseam.papers.bhowal2024.beyond import BEYOND
from unseam.papers.bhowal2024.figure1 import FIGURE1
from unseam.papers.bhowal2024.figure5 import FIGURE5_TABLE7
from unseam.papers.bhowal2024.lemma5 import LEMMA5
from unseam.papers.bhowal2024.local_decoders import TABLE1, TABLE2, THEOREM1C
from unseam.papers.bhowal2024.scores import FIGURE4, LOSSES, TABLE4, TABLE5, TABLE6
from unseam.papers.bhowal2024.theorem1 import THEOREM1
from unseam.papers.bhowal2024.theorem2 import THEOREM2

__all__ = ["ARTEFACTS"]

ARTEFACTS: tuple[Artefact, ...] = (
    FIGURE1,
    TABLE1,
    TABLE2,
    TABLE4,
    TABLE5,
    TABLE6,
    FIGURE4,
    FIGURE5_TABLE7,
    THEOREM1,
    THEOREM1C,
    THEOREM2,
    LEMMA5,
    AUDIT,
    BEYOND,
    LOSSES,
)
