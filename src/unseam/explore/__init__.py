"""The live explorer in the browser: sliders over latents, the geometry where they stand, a map, β."""

from unseam.explore.exhibit import Codes, Exhibit, exhibit_decoder, exhibit_run
from unseam.explore.local import Local, local_view
from unseam.explore.measures import Measured, beta_curve, measure, turn_curve
from unseam.explore.serving import serve
from unseam.explore.state import State
from unseam.explore.turning import Turn, rotation
from unseam.explore.walking import Walk, walk
from unseam.subject import Subject

__all__ = [
    "serve",
    "exhibit_run",
    "exhibit_decoder",
    "Exhibit",
    "Subject",
    "Codes",
    "State",
    "Local",
    "local_view",
    "Measured",
    "measure",
    "turn_curve",
    "beta_curve",
    "Turn",
    "rotation",
    "Walk",
    "walk",
]
