"""A closer look at disentangling in β-VAE (Sikka, Zhong, Yin and Pehlevan 2019)."""

from unseam.papers.sikka2019.figure1 import FIGURE1
from unseam.papers.sikka2019.figure2 import FIGURE2_TEN, FIGURE2_TWO
from unseam.papers.sikka2019.figure3 import FIGURE3
from unseam.papers.sikka2019.propositions import PROPOSITIONS

__all__ = ["ARTEFACTS"]

ARTEFACTS = (FIGURE1, FIGURE2_TEN, FIGURE2_TWO, FIGURE3, PROPOSITIONS)
