"""The demo: a β-VAE, its full-covariance control and an autoencoder on a small world, and what sets them apart."""

from unseam.demo.models import SCORES, Model
from unseam.demo.run import DEMO, Demo, run_demo

__all__ = ["DEMO", "SCORES", "Demo", "Model", "run_demo"]
