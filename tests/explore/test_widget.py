"""The notebook widget: what it sends to the browser follows z."""

import re
import sys
from pathlib import Path

import pytest
import torch

import unseam
from unseam.charts import data_url, pixels
from unseam.explore import widget

SCALES = torch.tensor([3.0, 1.0, 0.0, 2.0])


def decoder(z):
    return (z * SCALES.to(z)).reshape(-1, 1, 2, 2)


@pytest.fixture
def shown():
    return widget(decoder, latent=4)


def test_sliders_are_those_of_active_latents(shown):
    assert shown.shown == [0, 3, 1], "by their effect, without the collapsed one"
    assert len(shown.names) == 3 and len(shown.columns) == 3


def test_all_that_the_browser_reads_is_sent_to_it(shown):
    script = Path(unseam.explore.__file__).with_name("widget.js").read_text()
    read = set(re.findall(r'model\.get\("(\w+)"\)', script))
    assert read and read <= set(shown.get_state())


def test_picture_and_geometry_follow_z(shown):
    before = shown.picture
    shown.z = [1.0, 0.0, 0.0, -1.0]
    assert shown.picture != before
    exhibit = unseam.explore.exhibit_decoder(decoder, latent=4)
    expected = data_url(pixels(decoder(torch.tensor([[1.0, 0.0, 0.0, -1.0]]))[0], exhibit.look))
    assert shown.picture == expected
    assert "mean |cos| between columns 0.00" in shown.geometry and "<svg" in shown.geometry


def test_one_active_latent_has_no_angles():
    one = widget(lambda z: z[:, :1] * torch.tensor([1.0, 2.0]), latent=3)
    assert "undefined: fewer than two active latents" in one.geometry


def test_members_of_an_ensemble(shown):
    trial = unseam.Trial(world="linear", likelihood="gaussian", latent=2, steps=2, batch_size=4)
    world = unseam.data.load("linear", size=20)
    made = widget(unseam.train([trial, trial], world=world, device="cpu"), world=world, member=1)
    assert "seed 0" in made.title
    with pytest.raises(ValueError, match=r"member must lie in \[0, 1\), got 2"):
        widget(decoder, latent=4, member=2)


@pytest.mark.parametrize("z", [[0.0], [float("nan"), 0.0, 0.0, 0.0]])
def test_refuses_points_that_do_not_fit(shown, z):
    import traitlets

    with pytest.raises(traitlets.TraitError, match="z must hold 4 finite numbers"):
        shown.z = z


def test_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(ValueError, match=r"the widget needs anywidget: pip install 'unseam\[notebook\]'"):
        widget(decoder, latent=4)
