"""A closer look at disentangling in β-VAE (Sikka, Zhong, Yin and Pehlevan 2019)."""

from unseam.papers.sikka2019.deep import FIGURE2_TEN, FIGURE2_TWO, FIGURE3
from unseam.papers.sikka2019.linear import FIGURE1, PROPOSITIONS

__all__ = ["ARTEFACTS"]

ARTEFACTS = (FIGURE1, FIGURE2_TEN, FIGURE2_TWO, FIGURE3, PROPOSITIONS)
