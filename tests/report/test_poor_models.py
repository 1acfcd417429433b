"""Of models that learned little the report says no more than what was measured, and advises nothing absurd."""

import base64
import dataclasses
import functools
import re
from io import BytesIO
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.distributions import MultivariateNormal, kl_divergence

from unseam.advice import Advice
from unseam.inspection.axes import Orthogonality
from unseam.report import SCORES, Match, sections, study
from unseam.report._pictures import signed_picture
from unseam.report.measure import _unmeasured

COLUMNS = torch.diag(torch.tensor([3.0, 1.0, 0.5]))


def linear(z):
    return z @ COLUMNS.to(z)


def items(count=200):
    return torch.randint(4, (count, 3), generator=torch.Generator().manual_seed(0))


def encoded(variance, *, decoder=linear, shift=1.0, **options):
    """A study with a posterior of any kind."""
    factors = items()
    x = linear(factors.float() - 1.5)

    def encode(data):
        mean = (data / COLUMNS.diagonal()) * (shift or 0.01)
        return mean, variance.expand(len(mean), *variance.shape).to(mean)

    return study(decoder, encoder=encode, x=x, factors=factors, factor_names=("a", "b", "c"), **options)


@functools.cache
def usual():
    """A diagonal posterior."""
    return encoded(torch.full((3,), 0.1))


def said(made, title):
    (part,) = [part for part in sections([made]) if part.title == title]
    return " ".join(text for _, text in part.said)


def activate(made, *active, **changes):
    """The same study with other latents active."""
    found = dataclasses.replace(made.found, active=torch.tensor(active), **changes)
    return dataclasses.replace(made, inspections=(found,))


def test_a_full_covariance_carries_the_kl_of_the_whole_posterior():
    covariance = torch.tensor([[0.5, 0.3, 0.0], [0.3, 0.4, 0.1], [0.0, 0.1, 0.3]])
    made = encoded(covariance)
    mean = items().double() - 1.5
    whole = MultivariateNormal(mean, covariance.double())
    prior = MultivariateNormal(torch.zeros(3).double(), torch.eye(3).double())
    carried = float(kl_divergence(whole, prior).mean())
    assert f"Together they carry {carried:.2f} nats" in said(made, "Which latents are active?")
    assert carried - float(made.found.polarised.kl.sum()) > 0.1
    error = made.found.precision_error
    text = said(made, "Which latents are active?")
    assert f"by {error.diagonal:.0%} on the diagonal and by {error.off_diagonal:.0%} off it." in text


def test_a_collapsed_model_explains_nothing():
    made = encoded(torch.ones(3), decoder=lambda z: 0 * z, shift=0.0)
    assert made.found.orthogonality is None
    assert said(made, "Which latents are active?").startswith("No latent is active.")
    text = said(made, "Do the latents match the factors?")
    assert text == (
        "No active latent explains a substantial part of any factor. Without an active latent, scores are undefined."
    )
    (first, *_) = sections([made])
    cells = {row["link"]: row["decoder"] for row in first.table}
    assert cells["Are the axes orthogonal?"] == "Undefined: fewer than two active latents"
    assert cells["Are the components independent?"] == "Undefined: fewer than two active latents"
    assert cells["Are they the factors?"].startswith("Undefined: no active latent; over all latents MIG ")
    rows = {row["quantity"]: row["decoder"] for row in first.numbers}
    assert rows["MIG, active latents"] == "undefined" and float(rows["MIG, all"]) >= 0
    assert "Are the axes orthogonal?" not in [part.title for part in sections([made])]
    (first, *_) = sections([dataclasses.replace(made, name="collapsed"), usual()])
    rows = {row["quantity"]: row["collapsed"] for row in first.numbers}
    compared = ("Mean |cos|", "Hadamard gap, nats", "DtO, active latents", "Density gap, nats", "Coupling")
    assert [rows[quantity] for quantity in compared] == ["undefined"] * 5


def test_more_latents_than_outputs_have_no_density_and_no_hadamard_gap():
    weights = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    made = study(lambda z: z @ weights.T, latent=8)
    (first, *_) = sections([made])
    cells = {row["link"]: row["decoder"] for row in first.table}
    assert cells["Are the components independent?"] == "Undefined: fewer directions than active latents"
    rows = {row["quantity"]: row["decoder"] for row in first.numbers}
    assert rows["Hadamard gap, nats"] == rows["Density gap, nats"] == "undefined"
    assert "is unbounded. DtO is not defined: some singular values are zero." in said(
        made, "Are the axes orthogonal?"
    )
    assert any("its density is not defined" in part.why for part in made.missing)


def test_bars_of_models_side_by_side_have_one_scale():
    costly = usual()
    cheap = costly.found.polarised._replace(kl=costly.found.polarised.kl / 10)
    cheap = dataclasses.replace(costly, inspections=(dataclasses.replace(costly.found, polarised=cheap),))
    (part,) = [part for part in sections([costly, cheap]) if part.title == "Which latents are active?"]
    widths = [
        [float(width) for width in re.findall(r'width="([\d.]+)" height="16"', group.panels[0].markup)]
        for group in part.groups
    ]
    np.testing.assert_allclose(np.array(widths[0]) / 10, widths[1], atol=0.1)


def test_one_active_latent_is_said_in_the_singular():
    made = activate(usual(), True, False, False)
    assert said(made, "Which latents are active?").startswith(
        "1 of 3 latents is active (z0); z1 and z2 collapsed."
    )


def test_a_single_latent_has_no_others_to_compare():
    made = study(lambda z: z.repeat(1, 4), latent=1)
    assert said(made, "Which latents are active?") == "Its only latent is active."
    assert said(made, "What to change") == "To do:\nnothing"


def test_a_point_is_not_advised_another_beta():
    rotation = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(1)))[0]
    made = encoded(torch.zeros(3), decoder=lambda z: linear(z @ rotation))
    assert made.found.orthogonality > 0
    steps = said(made, "What to change").split("To do:\n")[1]
    assert steps.startswith("train it as a β-VAE with a diagonal posterior") and "larger β" not in steps
    assert said(encoded(torch.zeros(3)), "What to change").endswith("To do:\nnothing")


def test_a_full_covariance_is_advised_where_its_axes_have_rotated():
    rotation = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(1)))[0]
    covariance = torch.tensor([[0.2, 0.1, 0.0], [0.1, 0.2, 0.0], [0.0, 0.0, 0.2]])
    rotated = encoded(covariance, decoder=lambda z: linear(z @ rotation))
    advice = "train it with a diagonal posterior, since a full covariance leaves the axes free to rotate"
    assert said(rotated, "What to change").count(advice) == 1
    assert "diagonal posterior" not in said(encoded(covariance), "What to change")


def test_advice_to_a_decoder_alone_names_no_beta():
    oblique = torch.tensor([[1.0, 0.9], [0.2, 1.0]])
    text = said(study(lambda z: z @ oblique, latent=2), "What to change")
    assert "give its encoder and training data" in text and "β" not in text


def test_advice_is_that_of_the_inspection():
    for made in (usual(), encoded(torch.zeros(3)), study(linear, latent=3)):
        steps = said(made, "What to change").split("To do:\n")[1].splitlines()
        assert f"To do: {'; '.join(steps)}." == made.found.summary().splitlines()[-1]


@pytest.mark.parametrize(
    ("active", "beta", "words"),
    [
        ((True, True, False), 1.0, "this one keeps fewer than a linear one would"),
        ((True, True, False), 9.0, "to 6, smaller than now"),
        ((True, True, True), 1.0, "as many as there are factors"),
    ],
)
def test_the_way_to_move_beta_follows_from_this_model(active, beta, words):
    made = activate(usual(), *active, beta=beta)
    theory = Advice("data", "gaussian", 1.0, 200, 0, torch.tensor([10.0, 8.0, 6.0, 4.0, 2.0]))
    text = said(dataclasses.replace(made, advice=theory), "What to change")
    assert words in text
    assert ("try a smaller β, since 2 latents are active for 3 factors" in text) == (not all(active))
    assert "larger β" not in text


@pytest.mark.parametrize(
    ("beta", "words"), [(1.0, "to 8, larger than now"), (9.0, "keeps more than a linear one would")]
)
def test_more_latents_than_factors_ask_for_a_larger_beta(beta, words):
    made = activate(usual(), True, True, True, beta=beta, factors=2)
    two = made.match._replace(factors=("a", "b"), information=made.match.information[..., :2])
    theory = Advice("data", "gaussian", 1.0, 200, 0, torch.tensor([10.0, 8.0, 6.0, 4.0]))
    text = said(dataclasses.replace(made, match=two, advice=theory), "What to change")
    assert words in text and "try a larger β, since 3 latents are active for 2 factors" in text
    assert "smaller β" not in text


def test_a_span_of_beta_that_rounds_to_one_number_is_one_number():
    made = activate(usual(), True, True, False, beta=20.0)
    theory = Advice("data", "gaussian", 1.0, 200, 0, torch.tensor([12.0, 11.0, 10.6001, 10.6]))
    text = said(dataclasses.replace(made, advice=theory), "What to change")
    assert "would need β of about 10.6, smaller than now" in text


def test_only_latents_without_effect_can_be_left_out():
    made = usual()
    two = made.match._replace(factors=("a", "b"), information=made.match.information[..., :2])
    enough = activate(dataclasses.replace(made, match=two), True, True, True, factors=2)
    assert "could be left out" not in said(activate(enough, True, True, False), "What to change")
    norms = torch.tensor([3.0, 1.0, 0.01])
    still = activate(enough, True, True, False, column_norms=norms)
    assert "Its 1 collapsed latent could be left out" in said(still, "What to change")
    # of three factors one has no latent yet
    missed = activate(made, True, True, False, column_norms=norms)
    assert "could be left out" not in said(missed, "What to change")


def test_axes_of_equal_length_are_orthogonal_without_a_dto():
    tilt = torch.tensor([[1.0, 0.02], [0.02, 1.0]])
    text = said(study(lambda z: z @ tilt, latent=2), "Are the axes orthogonal?")
    assert "are nearly orthogonal" in text and "DtO is not defined: singular values coincide" in text


def test_scores_belong_to_their_seeds_whatever_their_order():
    rows = [{"member": seed, "metric": "mig", "score": seed / 10} for seed in (2, 0, 1)]
    assert Match(("a",), np.zeros((3, 1, 1)), pd.DataFrame(rows), 5).mean("mig") == [0.0, 0.1, 0.2]


def test_six_models_have_six_colours():
    made = usual()
    six = [dataclasses.replace(made, name=f"model {k}") for k in range(6)]
    (part,) = [part for part in sections(six) if part.title == "Do the latents match the factors?"]
    legend = re.findall(r'<span class="(\w+)"><i>', part.groups[-1].panels[0].markup)
    assert len(set(legend)) == 6
    assert part.groups[-1].panels[0].markup.count('class="fill c5"') == len(SCORES)


def test_a_chart_that_is_wide_gets_a_row_of_its_own():
    many = study(lambda z: torch.tanh(z @ torch.eye(12).to(z)), latent=12)
    few = study(linear, latent=3)
    parts = [
        next(part for part in sections([made]) if part.title == "Are the axes orthogonal?")
        for made in (many, few)
    ]
    assert [part.fits_beside_words for part in parts] == [False, True]
    assert [part.fits_in_columns for part in parts] == [False, True]


def test_signs_are_explained_as_they_are_drawn():
    def painted(channels):
        return lambda z: torch.tanh(z @ torch.ones(3, 64 * channels)).reshape(-1, channels, 8, 8)

    kinds = {
        "orange: up": painted(1),
        "each colour lighter where it grows": painted(3),
        "above the line: up": linear,
    }
    for words, decoder in kinds.items():
        parts = sections([study(decoder, latent=3)])
        (part,) = [part for part in parts if part.title == "What does each latent do?"]
        assert any(words in panel.caption for group in part.groups for panel in group.panels)


def test_changes_of_colour_are_not_averaged_over_channels():
    """Red that grows where blue falls is no grey: the mean over channels would be zero."""
    change = np.zeros((3, 4, 4), "float32")
    change[0], change[2] = 1.0, -1.0
    sheet = Image.open(
        BytesIO(base64.b64decode(re.search(r"base64,([^\"]+)", signed_picture(change, "hue"))[1]))
    )
    assert np.unique(np.asarray(sheet.convert("RGB")).reshape(-1, 3), axis=0).tolist() == [[255, 128, 0]]


@pytest.mark.parametrize(
    ("encoder", "variance", "why"),
    [
        (None, None, "no encoder was given"),
        (linear, torch.zeros(2, 3), "points without a variance"),
        (linear, torch.tensor([[0.0, 0.5]]), "No latent is active."),
        (linear, torch.ones(2, 3), "No latent is active."),
    ],
)
def test_why_the_regime_is_unknown(encoder, variance, why):
    found = SimpleNamespace(polarised=None, probes=None, orthogonality=Orthogonality.NEARLY)
    (missing,) = _unmeasured(found, encoder, variance)
    assert why in missing.why
