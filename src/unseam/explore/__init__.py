"""The explorer in the browser: sliders over latents, the local geometry, a map, β."""

from unseam.explore.exhibit import Codes, Exhibit, exhibit_decoder, exhibit_run
from unseam.explore.exporting import export
from unseam.explore.local import Local, local_view
from unseam.explore.measures import Measured, beta_curve, measure, rotation_curve
from unseam.explore.rotation import Rotation, rotation_matrix
from unseam.explore.serving import serve
from unseam.explore.state import State
from unseam.explore.walking import Walk, walk
from unseam.explore.widget import widget
from unseam.subject import Subject

__all__ = [
    "serve",
    "export",
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
    "rotation_curve",
    "beta_curve",
    "Rotation",
    "rotation_matrix",
    "Walk",
    "walk",
    "widget",
]
