"""A notebook widget: sliders, picture and geometry of one model, in Jupyter, Colab, VS Code and marimo."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unseam.charts import data_url, decimals, pixels, standalone
from unseam.explore.exhibit import Exhibit, exhibit_decoder, exhibit_run
from unseam.explore.local import cosine_chart, local_view, spectrum_chart
from unseam.explore.maps import latent_name
from unseam.run import Run
from unseam.subject import Subject
from unseam.training import Ensemble

__all__ = ["widget"]


def widget(
    model: Run | Ensemble | Subject | Path | str | Callable[[Tensor], Tensor],
    *,
    member: int = 0,
    **options: Any,
) -> Any:
    """Sliders over the active latents of a model, with its picture and local geometry, for the cell of a notebook.

    The last expression of a cell shows it. Python computes and the browser draws, so that it works wherever widgets do;
    it needs the extra ``notebook``. Its trait ``z`` (latent,) can be read and set.

    Args:
        model: a run or its folder, an ensemble, a subject, or any model that :func:`unseam.wrap` takes.
        member: which member of a run.
        options: those of :func:`unseam.explore.exhibit_run`, or of :func:`unseam.explore.exhibit_decoder`.
    """
    try:
        import anywidget
        import traitlets
    except ImportError:
        raise ValueError("the widget needs anywidget: pip install 'unseam[notebook]'") from None
    saved = isinstance(model, Run | Ensemble | Path | str)
    exhibit = exhibit_run(model, **options) if saved else exhibit_decoder(model, **options)  # type: ignore[arg-type]
    if not 0 <= member < len(exhibit.subjects):
        raise ValueError(f"member must lie in [0, {len(exhibit.subjects)}), got {member}")
    subject, codes = exhibit.subjects[member], exhibit.codes(member)

    class Widget(anywidget.AnyWidget):
        """What the browser shows: all that depends on ``z`` follows it."""

        _esm = Path(__file__).with_name("widget.js")
        _css = Path(__file__).with_name("widget.css")
        title = traitlets.Unicode(subject.name).tag(sync=True)
        names = traitlets.List([latent_name(latent) for latent in codes.active]).tag(sync=True)
        limit = traitlets.Float(codes.limit).tag(sync=True)
        z = traitlets.List([0.0] * subject.latent).tag(sync=True)
        shown = traitlets.List(list(codes.active)).tag(sync=True)
        picture = traitlets.Unicode().tag(sync=True)
        columns: Any = traitlets.List().tag(sync=True)
        geometry = traitlets.Unicode().tag(sync=True)

        @traitlets.validate("z")
        def _finite(self, proposal: dict[str, Any]) -> list[float]:
            values = [float(value) for value in proposal["value"]]
            if len(values) != subject.latent or not all(abs(value) < 1e6 for value in values):
                raise traitlets.TraitError(f"z must hold {subject.latent} finite numbers, got {values}")
            return values

        @traitlets.observe("z")
        def _follow(self, change: Any = None) -> None:
            self.set_trait("picture", _picture(exhibit, member, self.z))
            columns, geometry = _geometry(exhibit, member, self.z)
            self.set_trait("columns", columns)
            self.set_trait("geometry", geometry)

    made = Widget()
    made._follow()
    return made


def _picture(exhibit: Exhibit, member: int, z: list[float]) -> str:
    shown = exhibit.subjects[member].picture(torch.tensor([z], dtype=torch.float64))[0]
    return data_url(pixels(shown, exhibit.look))


def _geometry(exhibit: Exhibit, member: int, z: list[float]) -> tuple[list[str], str]:
    """Columns of the Jacobian as pictures, and the charts of its cosines and singular values."""
    found = local_view(exhibit, member, torch.tensor(z, dtype=torch.float64))
    names = [latent_name(latent) for latent in found.latents]
    if len(found.latents) < 2:
        text = "orthogonality is undefined: fewer than two active latents"
    else:
        text = f"mean |cos| between columns {decimals(found.cosine)}, DtO {decimals(found.dto)}"
    charts = standalone(cosine_chart(found, names)) + standalone(spectrum_chart(found))
    return [data_url(column) for column in found.columns], f"<p>{text}</p>{charts}"
