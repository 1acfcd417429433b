"""The page and its figures of matplotlib; charts of one inspection as files."""

import re
from xml.etree import ElementTree

import pytest
import torch
from matplotlib.figure import Figure

import unseam
from unseam.report import Section, geometry_figures, to_svg, write_page, write_svg


def figure(width=3.0):
    made = Figure(figsize=(width, 2))
    made.subplots().plot([0, 1], [1, 0])
    return made


def test_figures_are_reproducible_to_the_byte():
    first, second = (to_svg(figure()) for _ in range(2))
    assert first == second
    assert first.startswith("<svg") and first.rstrip().endswith("</svg>")
    assert not re.search(r"<dc:date>", first)


def test_figures_have_the_background_of_the_page():
    element = ElementTree.fromstring(to_svg(figure()))
    patch = next(part for part in element.iter() if part.get("id") == "patch_1")
    assert [part.get("style") for part in patch] == ["fill: none"]


def test_svg_files_are_written_whole(tmp_path):
    path = write_svg(figure(), tmp_path / "new" / "line.svg")
    assert "<svg" in path.read_text()
    assert [entry.name for entry in path.parent.iterdir()] == ["line.svg"]


def test_charts_of_an_inspection_are_files_of_their_own():
    found = unseam.inspect(
        lambda z: z * torch.tensor([3.0, 1.0, 0.0]),
        encoder=lambda x: (x, torch.tensor([0.1, 0.5, 1.0]).expand(len(x), 3)),
        x=torch.randn(60, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 1.0, 0.0]),
    )
    drawn = geometry_figures(found)
    assert set(drawn) == {"norms", "cosine", "spectrum", "basis-1", "basis-2", "basis-3", "precision"}
    for chart in drawn.values():
        root = ElementTree.fromstring(chart)
        assert root.tag == "{http://www.w3.org/2000/svg}svg" and root.get("aria-label")
        assert "var(--" not in root.get("aria-label") and "--ink: #1b1f24" in chart
    marks = ElementTree.fromstring(drawn["norms"]).iter("{http://www.w3.org/2000/svg}circle")
    assert len(list(marks)) == 3 * 48  # 48 points of three latents
    tips = re.findall(r"<title>z0, z1: ([\d.]+)</title>", drawn["cosine"])
    assert tips and all(float(tip) == 0 for tip in tips)


def test_without_a_posterior_there_is_no_precision():
    found = unseam.inspect(lambda z: z, torch.zeros(4, 2))
    assert "precision" not in geometry_figures(found)
    assert geometry_figures(unseam.inspect(lambda z: z, torch.zeros(4, 2), latents=2)) == {}
    collapsed = geometry_figures(unseam.inspect(lambda z: 0 * z, torch.zeros(4, 2)))
    assert set(collapsed) == {"norms", "basis-1", "basis-2", "basis-3"}


def test_page_stands_alone(tmp_path):
    sections = [
        Section("Text & more", ("a < b",), table=({"model": "β", "DtO": "0.1"},)),
        Section("Figure", (), to_svg(figure()), "cosines"),
    ]
    path = write_page(
        tmp_path / "page.html", "Title", "Lead", sections, {"seed": 0, "world": "sprites, a twin"}
    )
    text = path.read_text()
    assert "a &lt; b" in text and "Text &amp; more" in text
    page = text.split("<script>")[0]
    assert page.count("<svg") == page.count("</svg>") == 1
    assert 'aria-label="cosines"' in text
    assert '<td class="n">0.1</td>' in text
    assert "prefers-color-scheme: dark" in text
    loads = re.findall(r'(?:src|href)="(?!#)([^"]+)"', page)
    assert all(load.startswith("data:") for load in loads)
    assert "sprites, a twin" in text


def test_figures_shrink_only_as_far_as_they_can_be_read(tmp_path):
    """Seven tenths of the figure's own width, beyond which its box scrolls; print has no scrolling."""
    sections = [Section("F", (), to_svg(figure(7.5)), "dots"), Section("G", (), "<svg></svg>", "none")]
    text = write_page(tmp_path / "page.html", "T", "L", sections, {}).read_text()
    assert f'style="min-width: {0.7 * 72 * 7.5:.0f}pt"' in text
    assert ".card svg, .chart { min-width: 0 !important; }" in text.split("@media print")[1]
    assert "<svg></svg>" in text


def test_a_figure_needs_words(tmp_path):
    with pytest.raises(ValueError, match="section 'Figure' has a figure and must have an alt text"):
        write_page(tmp_path / "page.html", "T", "L", [Section("Figure", (), "<svg></svg>")], {})
    assert not (tmp_path / "page.html").exists()
