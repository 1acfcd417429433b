"""Other libraries' models as subjects: what inspect, score, report and explore take."""

from unseam.adapters.diffusers import diffusers
from unseam.adapters.numpy import numpy
from unseam.adapters.onnx import onnx
from unseam.adapters.plain import plain
from unseam.adapters.pythae import pythae
from unseam.adapters.scvi import annotate, gene_table, scvi
from unseam.adapters.sklearn import sklearn
from unseam.adapters.wrapping import import_subject, wrap

__all__ = [
    "annotate",
    "diffusers",
    "gene_table",
    "import_subject",
    "numpy",
    "onnx",
    "plain",
    "pythae",
    "scvi",
    "sklearn",
    "wrap",
]
