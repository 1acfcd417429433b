"""From runs and decoders to exhibits."""

import dataclasses
import math

import pytest
import torch

import unseam
from unseam.data import ArrayWorld
from unseam.explore import Subject, exhibit_decoder, exhibit_run
from unseam.geometry import active_latents, pullback
from unseam.models import Bernoulli


def test_members_keep_their_order_and_names(exhibit, run):
    assert len(exhibit.subjects) == 5
    assert exhibit.subjects[0].name == "0: β-VAE, β 2, seed 0"
    assert exhibit.subjects[3].name == "3: full covariance, β 0.5, seed 0"
    assert exhibit.subjects[4].name == "4: autoencoder, seed 0"
    assert exhibit.subjects[4].beta is None
    assert exhibit.source == f"unseam.load({str(run)!r})"


def test_members_that_differ_in_beta_alone_are_found_and_sorted(exhibit):
    assert exhibit.betas[:3] == ((1, 0, 2),) * 3
    assert exhibit.betas[3:] == ((3,), (4,))


def test_autoencoders_have_no_beta_to_differ_in(run):
    point = unseam.load(run).trials[4]
    trials = [dataclasses.replace(point, objective="beta_elbo", beta=beta, steps=1) for beta in (1.0, 4.0)]
    assert exhibit_run(unseam.train(trials, progress=False), points=10).betas == ((0,), (1,))


def test_a_grid_in_another_order_is_none():
    order = torch.tensor([3, 0, 2, 1])
    world = ArrayWorld(
        torch.eye(4), order[:, None], name="shuffled", factor_names=("row",), factor_sizes=(4,)
    )
    assert exhibit_decoder(lambda z: z.repeat(1, 2), latent=2, world=world).grid == ()


def test_codes_are_the_ensemble_s(exhibit, run):
    ensemble, codes = unseam.load(run), exhibit.codes(3)
    expected = ensemble[3].encode(exhibit.items)
    assert torch.allclose(codes.mean, expected.mean.double())
    assert torch.allclose(codes.covariance, expected.variance.double())


def test_the_living_are_those_of_the_library(exhibit):
    codes = exhibit.codes(1)
    found = active_latents(codes.mean, codes.covariance)
    assert set(codes.active) == set(found.active.nonzero().flatten().tolist())
    values = [float(found.value[latent]) for latent in codes.active]
    assert values == sorted(values, reverse=True)


def test_picture_is_the_mean_of_the_likelihood(exhibit, run):
    z = torch.tensor([[0.5, -1.0, 0.0]])
    model = unseam.load(run)[0]
    with torch.no_grad():
        assert torch.equal(exhibit.subjects[0].picture(z), model.likelihood.mean(model.decode(z)))


def test_items_are_found_by_their_factors(exhibit):
    assert exhibit.grid == exhibit.world.factor_sizes
    assert math.prod(exhibit.grid) == 72
    item = exhibit.item_at([0] * (len(exhibit.grid) - 1) + [3])
    assert exhibit.item_factors(item)[-1] == 3.0
    assert torch.equal(exhibit.item(item), exhibit.world.images(torch.tensor([item]))[0])


def test_what_was_computed_is_kept(exhibit):
    assert exhibit.codes(0) is exhibit.codes(0)


def test_an_ensemble_need_not_be_saved(run):
    assert exhibit_run(unseam.load(run), points=10).source is None


def test_a_decoder_of_ones_own_needs_no_more_than_latents():
    exhibit = exhibit_decoder(
        lambda z: torch.cat([z, 0 * z[:, :1]], 1) * torch.tensor([1.0, 5.0, 0.0, 1.0]), latent=3
    )
    assert exhibit.codes(0).active == (1, 0)
    assert not exhibit.encodes(0)
    assert exhibit.factor_names == ()


def test_a_decoder_with_encoder_and_world_says_its_latents_itself():
    x = torch.rand(20, 6, generator=torch.Generator().manual_seed(0))
    world = ArrayWorld(x, torch.arange(20)[:, None], name="mine", factor_names=("row",), factor_sizes=(20,))
    exhibit = exhibit_decoder(
        lambda z: z.repeat(1, 3), encoder=lambda x: (x[:, :2], 0.1 * torch.ones(len(x), 2)), world=world
    )
    assert exhibit.subjects[0].latent == 2
    assert torch.allclose(exhibit.codes(0).mean, x[:, :2].double())


def test_logits_become_probabilities():
    subject = Subject("mine", lambda z: 0 * z, 2, Bernoulli())
    assert subject.picture(torch.ones(1, 2)).tolist() == [[0.5, 0.5]]


@pytest.mark.parametrize(
    "decoder, options, message",
    [
        (lambda z: z, {}, "latent must say how many latents the decoder has"),
        (lambda z: z, {"latent": 0}, "latent must be at least 1, got 0"),
        (lambda z: z, {"latent": 4096}, "at most 512 latents to be explored, got 4096; unseam.inspect"),
        (
            "decoder",
            {"latent": 2},
            "model must be a model or the path of an .onnx file, got 'decoder'",
        ),
        (
            lambda z: z.sum(),
            {"latent": 2},
            r"decoder must map \(batch, latent\) to \(batch, \*data\), got \(\)",
        ),
        (
            lambda z: z * float("nan"),
            {"latent": 2},
            r"decoder must give finite values, got none at 256 points of N\(0, I\)",
        ),
        (lambda z: None, {"latent": 2}, "decoder must return a tensor, got NoneType"),
        (
            torch.nn.Linear(3, 4),
            {"latent": 2},
            r"decoder does not take z of shape \(1, 2\)",
        ),
    ],
)
def test_what_is_no_decoder_is_refused(decoder, options, message):
    with pytest.raises(ValueError, match=message):
        exhibit_decoder(decoder, **options)


def test_a_world_must_fit():
    world = unseam.data.load("linear", size=10)
    with pytest.raises(ValueError, match=r"world must have items of shape \(2,\), got \(3,\)"):
        exhibit_decoder(lambda z: z, latent=2, world=world)


def test_a_run_s_world_must_fit(run):
    opened = unseam.Run.open(run, world=unseam.data.load("linear", size=10))
    with pytest.raises(ValueError, match=r"linear is not that: items 72 then, 10 now; pass those data"):
        exhibit_run(opened)
    del opened.about["worlds"]  # as where nothing was recorded
    with pytest.raises(ValueError, match=r"world must have items of shape \(1, 12, 12\), got \(3,\)"):
        exhibit_run(opened)


def test_a_picture_needs_an_encoder_and_an_item_a_world(linear):
    with pytest.raises(ValueError, match="Linear has no encoder, so a picture has no point"):
        linear.subjects[0].encode(torch.zeros(1, 4))
    with pytest.raises(ValueError, match="there is no world whose items could be shown"):
        linear.item(0)


def test_items_beyond_the_world_are_refused(exhibit):
    with pytest.raises(ValueError, match=r"item must lie in \[0, 72\), got 72"):
        exhibit.item(72)


@pytest.mark.parametrize("latent", [4, 64])
def test_few_derivatives_say_which_of_many_latents_are_active(monkeypatch, latent):
    """However many there are: 64 of a convolutional decoder took most of a minute."""
    seen = []
    monkeypatch.setattr(
        "unseam.explore.exhibit.pullback",
        lambda decoder, z, **options: (seen.append(z), pullback(decoder, z))[1],
    )
    assert len(exhibit_decoder(lambda z: 2 * z, latent=latent).codes(0).active) == latent
    assert seen[0].numel() <= 512
