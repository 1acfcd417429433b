"""Charts as SVG and pictures as PNG, in one palette and one number format, for the report and the explorer."""

from unseam.charts.canvas import (
    COLOURS,
    Canvas,
    Scale,
    decimals,
    percent,
    significant,
    standalone,
    style,
    tint,
)
from unseam.charts.kinds import Bar, Curve, Dot, bars, columns, curves, dots, legend, matrix, scatter
from unseam.charts.pixels import Look, Pixels, animation, data_url, look_of, pixels, signed_pixels, strip

__all__ = [
    "COLOURS",
    "Bar",
    "Canvas",
    "Curve",
    "Dot",
    "Look",
    "Pixels",
    "Scale",
    "animation",
    "bars",
    "columns",
    "curves",
    "data_url",
    "decimals",
    "dots",
    "legend",
    "look_of",
    "matrix",
    "percent",
    "pixels",
    "scatter",
    "signed_pixels",
    "significant",
    "standalone",
    "strip",
    "style",
    "tint",
]
