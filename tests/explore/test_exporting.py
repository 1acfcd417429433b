"""Exported pages: what is refused, and what a file holds."""

import re

import pytest
import torch
from torch import nn

from unseam.explore import export
from unseam.explore.layers import layers_of
from unseam.models import PixelGaussian
from unseam.subject import Subject


@pytest.mark.parametrize(
    "decoder, message",
    [
        (lambda z: 2 * z, "decoder must be an nn.Module whose layers a page can hold, got function"),
        (nn.Sequential(nn.Linear(2, 4), nn.LayerNorm(4)), "decoder must consist of affine layers.*LayerNorm"),
        (
            nn.Sequential(nn.Linear(2, 8), nn.Unflatten(1, (2, 2, 2)), nn.Conv2d(2, 2, 1, groups=2)),
            "convolutions must have one group",
        ),
    ],
)
def test_what_a_browser_could_not_run_is_refused(tmp_path, decoder, message):
    with pytest.raises(ValueError, match=message):
        export(decoder, tmp_path / "page.html", latent=2)
    assert not (tmp_path / "page.html").exists()


def test_an_unknown_likelihood_is_refused():
    with pytest.raises(ValueError, match="likelihood must be Gaussian, .* got PixelGaussian"):
        layers_of(Subject("mine", nn.Linear(2, 4), 2, PixelGaussian()))


def test_the_sides_of_pictures_are_width_and_height(tmp_path):
    decoder = nn.Sequential(nn.Linear(2, 15), nn.Unflatten(1, (1, 3, 5)))
    assert '"side": [5, 3]' in export(decoder, tmp_path / "page.html", latent=2, points=20).read_text("utf8")


def test_members_and_points_are_checked(tmp_path, run):
    with pytest.raises(ValueError, match=r"first must be one of the members \[1\], got 0"):
        export(run, tmp_path / "page.html", members=[1], first=0)
    with pytest.raises(ValueError, match="points must be at least 2, got 1"):
        export(run, tmp_path / "page.html", points=1)
    with pytest.raises(ValueError, match=r"members must lie in \[0, 1\), got \[3\]"):
        export(nn.Linear(2, 4), tmp_path / "page.html", latent=2, members=[3])


def test_a_page_that_is_too_large_is_refused(tmp_path):
    torch.manual_seed(0)
    with pytest.raises(ValueError, match=r"a page must have at most 15 MB, got \d+"):
        export(nn.Sequential(nn.Linear(2, 4000), nn.Linear(4000, 2000)), tmp_path / "page.html", latent=2)


def test_a_page_names_no_other_place_and_no_folder(tmp_path, run):
    text = export(run, tmp_path / "page.html", title="<b>mine</b>").read_text("utf8")
    assert "&lt;b&gt;mine&lt;/b&gt;" in text
    assert str(run) not in text
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)[^\s\"']+", text) == []
    assert "twin of dSprites" in text
