"""Advice follows from the numbers: never against itself, nothing twice, and no β where there is none."""

import dataclasses
import itertools
import re

import pytest
import torch

import unseam
from unseam.inspection.todo import todo


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def model(values, *, rotated=False, variance=None, collapsed=(), full=False, spread=0.0, **options):
    """A linear decoder with the posterior that is best for it, or one of a given variance.

    Args:
        values: lengths of its columns, before it is rotated.
        rotated: whether the columns of active latents are rotated out of their right angles.
        variance: that of every active latent; 0 is an autoencoder.
        collapsed: latents whose posterior is the prior.
        full: whether active latents covary as they should.
        spread: of the codes of collapsed latents, at every tenth item.
    """
    size = len(values)
    active = torch.tensor([latent not in collapsed for latent in range(size)])
    columns = torch.diag(torch.tensor(values, dtype=torch.float64))
    if rotated:
        basis = torch.eye(size, dtype=torch.float64)
        count = int(active.sum())
        basis[:count, :count] = torch.linalg.qr(draw(count, count, seed=2)).Q
        columns = columns @ basis
    columns[:, ~active] = 0
    precision = torch.eye(size, dtype=torch.float64) + columns.T @ columns
    covariance = torch.linalg.inv(precision) if full else torch.diag(1 / precision.diagonal())
    if variance is not None:
        covariance = torch.diag(torch.where(active, variance, 1.0 if variance else 0.0)).double()
    noise = covariance if full else covariance.diagonal()

    def encoder(x):
        mean = x[:, :size] * active
        mean[::10] += spread * ~active
        return mean, noise.expand(len(x), *noise.shape)

    columns = torch.cat([columns, torch.zeros(9, size, dtype=torch.float64)])  # more outputs than latents
    return unseam.inspect(lambda z: z @ columns.T, encoder=encoder, x=draw(200, max(size, 2)), **options)


def asked(found, **options):
    return "; ".join(todo(found, **options).steps)


# Poor models


@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize("factors", [None, 2, 3, 5])
def test_an_autoencoder_has_no_beta_to_change(rotated, factors):
    text = asked(model([3.0, 2.0, 1.0], variance=0.0, rotated=rotated), factors=factors)
    assert " β " not in text.replace("a β-VAE", "")
    assert ("train it as a β-VAE with a diagonal posterior" in text) == rotated
    assert ("give it more latents, since all 3 are used and there are 5 factors" in text) == (factors == 5)
    if not rotated and factors != 5:
        assert text == "nothing"


def test_an_autoencoder_that_draws_one_thing_is_trained_on():
    found = unseam.inspect(lambda z: 0 * z, encoder=lambda x: (x, 0 * x), x=draw(20, 3))
    assert asked(found) == "train longer or at another learning rate, since no latent changes the output"


def test_sampled_latents_of_an_autoencoder_say_nothing_more():
    found = unseam.inspect(lambda z: 2 * z, encoder=lambda x: (x, 0 * x), x=draw(20, 30), latents=10)
    assert asked(found) == "nothing more can be said from sampled latents alone"


@pytest.mark.parametrize("variance", [None, 0.0, 0.5])
@pytest.mark.parametrize("factors", [None, 1, 3])
def test_one_latent_has_no_others_to_wake(variance, factors):
    found = model([3.0], variance=variance)
    text = asked(found, factors=factors)
    assert not re.search("smaller|larger", text)
    assert ("give it more latents" in text) == (factors != 1)
    assert "Its only latent is active." in found.summary()


def test_one_latent_that_collapsed_asks_for_a_smaller_beta():
    found = model([1e-3], collapsed=[0])
    assert asked(found) == "try a smaller β, since its only latent collapsed"
    assert "Its only latent collapsed." in found.summary()


@pytest.mark.parametrize("factors", [None, 2, 4])
def test_a_full_covariance_that_rotated_is_asked_for_a_diagonal_one_alone(factors):
    found = model([30.0, 20.0, 10.0, 1.0], rotated=True, full=True, collapsed=[3])
    words = "train it with a diagonal posterior, since a full covariance leaves the axes free to rotate"
    assert todo(found, factors=factors) == ((words,), 0)
    diagonal = asked(model([30.0, 20.0, 10.0, 1.0], rotated=True, collapsed=[3]))
    assert "train longer" in diagonal and "diagonal posterior" not in diagonal


def test_off_the_diagonal_only_a_diagonal_posterior_cannot_follow():
    full, diagonal = (model([30.0, 20.0, 10.0], rotated=True, full=full).summary() for full in (True, False))
    assert "by 0% on the diagonal and by 0% off it." in full
    assert "where a diagonal posterior cannot follow" in diagonal and "cannot follow" not in full
    assert "off it" not in model([3.0]).summary()


def test_covariances_without_covariance_are_diagonal():
    noise = torch.diag(torch.tensor([0.1, 0.2], dtype=torch.float64)).expand(20, 2, 2)
    found = unseam.inspect(lambda z: z, encoder=lambda x: (x, noise[: len(x)]), x=draw(20, 2))
    assert found.variance.ndim == 3 and found.posterior == "diagonal"


@pytest.mark.parametrize("size", [2, 5])
def test_a_collapsed_model_asks_for_a_smaller_beta_and_nothing_else(size):
    found = model([1e-3] * size, collapsed=range(size))
    assert todo(found) == (("try a smaller β, since no latent is active",), -1)


@pytest.mark.parametrize(
    ("collapsed", "factors", "words", "way"),
    [
        ([1, 2, 3], None, "try a smaller β, since only one latent is active", -1),
        ([1, 2, 3], 1, "", 0),
        ([2, 3], None, "", 0),
        ([2, 3], 3, "try a smaller β, since 2 latents are active for 3 factors", -1),
        ([2, 3], 2, "", 0),
        ([3], 2, "try a larger β, since 3 latents are active for 2 factors", 1),
        ([3], 1, "try a larger β, since 3 latents are active for one factor", 1),
        ([], None, "give it more latents, since every one is used and others might be too", 0),
        ([], 4, "", 0),
        ([], 9, "give it more latents, since all 4 are used and there are 9 factors", 0),
    ],
)
def test_the_number_of_active_latents_says_where_beta_goes(collapsed, factors, words, way):
    found = model([40.0, 30.0, 20.0, 10.0], collapsed=collapsed)
    assert todo(found, factors=factors) == ((words or "nothing",), way)


def test_the_number_of_active_latents_outweighs_the_axes():
    found = model([40.0, 30.0, 20.0, 10.0, 1.0], rotated=True, collapsed=[3, 4])
    alone = asked(found)
    assert (
        "train longer, since the axes" in alone
        and "try a larger β where that does not help the axes" in alone
    )
    few = asked(found, factors=4)
    assert "try a smaller β, since 3 latents" in few and "train longer, since the axes" in few


def test_reasons_to_train_longer_stand_together():
    found = model([40.0, 30.0, 20.0, 1.0], rotated=True, collapsed=[3], spread=0.4)
    text = asked(found)
    assert text.count("train longer") == text.count("larger β") == 1
    assert "and z3 is collapsed on average but not at every point" in text
    assert text.endswith("try a larger β where that does not help the axes and z3")


def test_without_a_kl_term_no_beta_is_advised():
    assert "β" not in asked(model([1e-3] * 3, collapsed=range(3), beta=0.0))


def test_axes_of_equal_length_need_no_training():
    tilt = torch.tensor([[1.0, 0.02], [0.02, 1.0]])
    found = unseam.inspect(lambda z: z @ tilt, torch.zeros(4, 2), active=[0, 1])
    assert "are nearly orthogonal, as they would be after any rotation" in found.summary()
    assert "DtO is not defined: singular values coincide at 100% of the points." in found.summary()
    assert "train" not in found.summary()


@pytest.mark.parametrize(
    "columns", [draw(3, 9, seed=4), draw(512, 600, seed=4), draw(8, 5, seed=4), 0 * draw(3, 9)]
)
def test_a_decoder_alone_is_asked_for_its_encoder_and_not_for_another_beta(columns):
    """A GAN's has no β, and PCA's no further latents."""
    text = asked(unseam.inspect(lambda z: z @ columns, draw(3, len(columns)), latents="all"))
    assert "β" not in text and "more latents" not in text and "longer" not in text
    assert text.startswith("if it is the decoder of a VAE, give its encoder and training data")


def test_orthogonal_axes_of_a_decoder_alone_need_nothing():
    basis = torch.linalg.qr(draw(9, 3)).Q * torch.tensor([3.0, 2.0, 1.0])
    assert asked(unseam.inspect(lambda z: z @ basis.T, draw(5, 3))) == "nothing"


@pytest.mark.parametrize(
    ("latent", "outputs", "more"), [(4, 9, True), (8, 5, False), (5, 5, False), (80, 200, False)]
)
def test_more_latents_only_where_others_could_be_used(latent, outputs, more):
    weights = draw(outputs, latent, seed=3)
    found = unseam.inspect(
        lambda z: z @ weights.T, encoder=lambda x: (x, torch.full_like(x, 1e-3)), x=draw(20, latent)
    )
    assert bool(found.active.all())
    assert ("more latents" in asked(found)) == ("more latents" in asked(found, factors=300)) == more


def test_factors_that_the_inspection_knows_are_asked_for():
    found = dataclasses.replace(model([40.0, 30.0, 20.0, 10.0], collapsed=[2, 3]), factors=3)
    assert "2 latents are active for 3 factors" in found.summary()


# All of them


def every():
    """Models good and bad in every way at once."""
    kinds = [{"variance": 0.0}, {"full": True}, {"variance": 0.3}, {"variance": 1e-3}, {}]
    for kind, rotated, collapsed, spread in itertools.product(kinds, (False, True), range(5), (0.0, 0.4)):
        yield model(
            [3.0, 2.0, 1.0, 0.5],
            rotated=rotated and collapsed < 4,
            collapsed=range(4 - collapsed, 4),
            spread=spread,
            **kind,
        )


def test_no_advice_is_against_itself():
    seen = set()
    for found, factors in itertools.product(every(), (None, 1, 2, 4, 6)):
        given = todo(found, factors=factors)
        text = "; ".join(given.steps)
        ways = {way for way in ("smaller β", "larger β") if way in text}
        assert text.count("smaller β") + text.count("larger β") < 2, text
        assert len(set(given.steps)) == len(given.steps) > 0
        assert all(
            text.count(words) < 2 for words in ("train longer", "try a", "more latents", "since the axes")
        )
        assert found.posterior != "point" or not ways
        assert ("nothing" in given.steps) == (given.steps == ("nothing",))
        seen.add((given.beta, *ways))
    assert {way for way, *_ in seen} == {-1, 0, 1}
