"""Drawings are well-formed, hold what they should, and escape names."""

from xml.etree import ElementTree

import pytest
import torch

from unseam.explore import exhibit_decoder, local_view
from unseam.explore.maps import map_of
from unseam.explore.state import first_state
from unseam.explore.svg import Curve, cosine_svg, curves_svg, map_svg, marker_svg, ramp, spectrum_svg, tint


def parsed(text):
    return ElementTree.fromstring(text if text.startswith("<svg") else f"<svg>{text}</svg>")


def test_matrix_and_spectrum(exhibit):
    found = local_view(exhibit, 1, torch.zeros(3))
    count = len(found.latents)
    matrix = parsed(cosine_svg(found, ["<b>", "z2", "z3"][:count]))
    assert len(matrix.findall("rect")) == count**2
    assert matrix.get("aria-label").startswith("Mean |cos|")
    assert "<b>" in [text.text for text in matrix.findall("text")]
    assert len(parsed(spectrum_svg(found)).findall("rect")) == count


@pytest.mark.parametrize("latent, names", [(8, 8), (40, 6)])
def test_names_of_many_latents_do_not_lie_on_one_another(latent, names):
    weight = torch.randn(latent, latent + 2, generator=torch.Generator().manual_seed(0))
    found = local_view(exhibit_decoder(lambda z: z @ weight, latent=latent), 0, torch.zeros(latent))
    matrix = parsed(cosine_svg(found, [f"z{k + 1}" for k in found.latents]))
    assert len([text for text in matrix.findall("text") if text.get("class") == "ink"]) == 2 * names
    assert all(float(rect.get("width")) > 0 for rect in matrix.findall("rect"))
    marks = [text.text for text in parsed(spectrum_svg(found)).findall("text")]
    assert len([mark for mark in marks if mark.startswith("v")]) == names


def test_map_has_a_dot_for_each_item_in_sight(exhibit):
    found = map_of(exhibit, first_state(exhibit, 1))
    drawn = parsed(map_svg(found))
    inside = (found.points.abs() <= found.frame[1]).all(1).sum()
    assert len(drawn.findall("circle")) == int(inside)
    seen = (found.centres.abs() <= found.frame[1]).all(1).sum()
    assert len(drawn.findall("ellipse")) == int(seen) > 0
    assert parsed(marker_svg(found)).find("g") is not None
    assert marker_svg(found._replace(marker=None)) == ""


def test_an_ellipse_is_one_standard_deviation(exhibit):
    found = map_of(exhibit, first_state(exhibit, 1))
    round_one = found._replace(
        ellipses=torch.diag(torch.tensor([0.25, 0.25], dtype=torch.float64))[None], centres=found.centres[:1]
    )
    (drawn,) = parsed(map_svg(round_one)).findall("ellipse")
    unit = found.place(1.0, 0.0)[0] - found.place(0.0, 0.0)[0]
    assert float(drawn.get("rx")) == pytest.approx(0.5 * unit, rel=0.05)


def test_curves_say_the_value_where_the_dial_stands():
    drawn = parsed(
        curves_svg([1.0, 10.0, 100.0], [Curve("MIG", (0.1, 0.2, 0.4), 0)], 100.0, label="β", log=True)
    )
    assert "0.40" in [text.text for text in drawn.findall("text")]
    spots = [float(spot.get("cx")) for spot in drawn.findall("circle")]
    assert spots[1] - spots[0] == pytest.approx(spots[2] - spots[1], abs=0.2)


def test_what_was_not_measured_is_said():
    drawn = parsed(curves_svg([0.0, 1.0], [Curve("MIG", (None, None), 0)], 0.0, label="angle"))
    assert "not measured" in [text.text for text in drawn.findall("text")]


def test_colours_run_from_end_to_end():
    assert (tint(-1.0), tint(2.0)) == ("#0072b2", "#d55e00")
    assert len({tint(k / 6) for k in range(7)}) == 7
    assert ramp().endswith("#d55e00)")
