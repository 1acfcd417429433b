"""Why variational autoencoders disentangle: worlds, models, objectives and ensembles to measure it with."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unseam import (
        adapters,
        choices,
        data,
        demo,
        explore,
        geometry,
        independence,
        inspection,
        metrics,
        models,
        objectives,
        report,
        sweep,
        theory,
        training,
    )
    from unseam.adapters import wrap
    from unseam.advice import advise
    from unseam.estimator import BetaVAE
    from unseam.inspection import Inspection
    from unseam.replicate import Replication, replication
    from unseam.run import Run, inspect, score
    from unseam.sharing import export, from_pretrained, push_to_hub, save_pretrained
    from unseam.subject import Subject
    from unseam.training import Ensemble, load, save, train
    from unseam.trial import Trial

__all__ = [
    "BetaVAE",
    "Ensemble",
    "Inspection",
    "Replication",
    "Run",
    "Subject",
    "Trial",
    "__version__",
    "adapters",
    "advise",
    "choices",
    "data",
    "demo",
    "explore",
    "export",
    "from_pretrained",
    "geometry",
    "independence",
    "inspect",
    "inspection",
    "load",
    "metrics",
    "models",
    "objectives",
    "push_to_hub",
    "replication",
    "report",
    "save",
    "save_pretrained",
    "score",
    "sweep",
    "theory",
    "train",
    "training",
    "wrap",
]

__version__ = "0.1.0"

# Nothing is imported before it is asked for: `import unseam` costs no torch. What has no home here is a package.
_HOMES = {
    "save_pretrained": "unseam.sharing",
    "push_to_hub": "unseam.sharing",
    "from_pretrained": "unseam.sharing",
    "export": "unseam.sharing",
    "BetaVAE": "unseam.estimator",
    "Ensemble": "unseam.training",
    "Inspection": "unseam.inspection",
    "Replication": "unseam.replicate",
    "replication": "unseam.replicate",
    "Run": "unseam.run",
    "Subject": "unseam.subject",
    "inspect": "unseam.run",
    "score": "unseam.run",
    "Trial": "unseam.trial",
    "load": "unseam.training",
    "save": "unseam.training",
    "train": "unseam.training",
    "advise": "unseam.advice",
    "wrap": "unseam.adapters",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in __all__:
        return importlib.import_module(f"unseam.{name}")
    raise AttributeError(f"module 'unseam' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
