"""The demo: a β-VAE, its full-covariance control and an autoencoder on a small world, and what sets them apart."""

from unseam.demo.models import Model, recovery
from unseam.demo.run import DEMO, Demo, run_demo

__all__ = ["DEMO", "Demo", "Model", "recovery", "run_demo"]
