"""The report says what was measured, of runs and of decoders that have less than a run."""

import base64
import dataclasses
import re
import runpy
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import unseam
from unseam.files import write_table
from unseam.geometry import distance_to_orthogonality
from unseam.inspection.todo import todo
from unseam.report import SCORES, Missing, Study, match, run_studies, sections, study, write
from unseam.report._pictures import strip
from unseam.report.story import _ignores_collapsed
from unseam.report.studies import _median
from unseam.report.study import importance

Page = runpy.run_path(str(Path(__file__).with_name("pages.py")))["Page"]


def linear(z):
    return z @ torch.diag(torch.tensor([3.0, 1.0, 0.5], dtype=z.dtype))


def said(parts, title):
    (part,) = [part for part in parts if part.title == title]
    return " ".join(text for _, text in part.said)


# Runs


def test_members_that_differ_in_their_seed_are_one_model(studies):
    assert [one.name for one in studies] == ["β-VAE", "full covariance"]
    assert [len(one.inspections) for one in studies] == [2, 1]
    assert studies[0].members == ("seed 0", "seed 1")


def test_sentences_have_the_numbers_of_the_inspection(run, studies):
    (found,) = unseam.Run.open(run).inspect([studies[0].shown]).values()
    parts = sections(studies[:1])
    axes, use = said(parts, "Are the axes orthogonal?"), said(parts, "Which latents are active?")
    assert f"principal directions, is {found.dto_active:.2f} ({found.random_dto.haar:.2f} for random" in axes
    assert f"are {found.orthogonality}" in axes
    assert f"between two is {found.cosine:.2f} ({found.random_axes.cosine:.2f} if latents are rotated" in axes
    assert f"by {found.precision_error.diagonal:.0%}" in use
    assert f"{float(found.polarised.kl.sum()):.2f} nats per item" in use
    assert f"changes its KL by {found.delta_kl:.1%}" in use
    assert f"{int(found.active.sum())} of 3 latents are active" in use
    steps = said(parts, "What to change").split("To do:\n")[1]
    assert steps.splitlines() == list(todo(found).steps) == list(todo(found, factors=3).steps)


def test_scores_and_information_are_those_of_the_metrics(run, studies):
    world = unseam.data.load("sprites", **dict(unseam.load(run).trials[0].world_options))
    codes = unseam.load(run).encode(world.images(torch.arange(len(world)))).mean[:2]
    score = unseam.metrics.mig(codes, world.factors, preset="fast").score
    np.testing.assert_allclose(studies[0].match.mean("mig"), score, atol=1e-9)
    told = unseam.metrics.binned_information(codes, world.factors)
    share = (told.information / told.factor_entropy).numpy()
    np.testing.assert_allclose(studies[0].match.information, share, atol=1e-9)


def test_scores_that_the_run_holds_are_used(run, studies):
    opened = unseam.Run.open(run)
    rows = [
        {"member": member, "metric": metric, "score": 0.125, "lower": 0.1, "upper": 0.2, "score_all": 0.1}
        | opened.stamp(member)
        for member in range(3)
        for metric in SCORES
    ]
    write_table(run / "scores.parquet", pd.DataFrame(rows))
    again = run_studies(run, members=[0, 1], points=30)[0]
    write_table(run / "scores.parquet", pd.DataFrame(rows[:-6]))
    fewer = run_studies(run, members=[0, 1], points=30)[0]
    (run / "scores.parquet").unlink()
    assert again.match.mean("mcc") == [0.125, 0.125]
    assert again.match.mean("mcc", "score_all") == [0.1, 0.1]
    assert fewer.match.mean("mcc") == studies[0].match.mean("mcc")


def test_the_seed_with_the_median_mig_is_shown(studies):
    scores = studies[0].match.mean("mig")
    assert scores[studies[0].shown] == min(scores)  # of two, the lower median
    for cosines, wanted in (([0.3, 0.1, 0.2], 2), ([0.4, 0.1, 0.3, 0.2], 3), ([0.5, None, 0.1, 0.2, 0.9], 3)):
        assert _median([SimpleNamespace(cosine=cosine) for cosine in cosines], None) == wanted


def test_density_of_what_is_generated(studies):
    part = studies[0].factorisation
    assert part.step is None and set(part.latents) == set(studies[0].active)
    apart = ~torch.eye(len(part.latents), dtype=torch.bool)
    assert part.coupling == pytest.approx(float(part.matrix[apart].mean()))
    text = said(sections(studies[:1]), "Are the axes orthogonal?")
    digits = 2 if part.density_gap >= 0.1 else 3
    assert f"The density gap is {part.density_gap:.{digits}f}" in text


@pytest.mark.parametrize(
    ("gap", "coupling", "word", "sentences"),
    [
        (0.0499, 0.199, "Nearly", ("practically a product", "hardly change")),
        (0.0501, 0.199, "Partly", ("a small deviation from a product", "hardly change")),
        (0.499, 0.199, "Partly", ("a small deviation from a product", "hardly change")),
        (0.501, 0.199, "No", ("far from a product", "hardly change")),
        (0.0499, 0.201, "Partly", ("practically a product", "clearly change")),
        (0.0499, 0.599, "Partly", ("practically a product", "clearly change")),
        (0.0499, 0.601, "No", ("practically a product", "strongly change")),
    ],
)
def test_words_for_a_density(studies, gap, coupling, word, sentences):
    part = studies[0].factorisation._replace(density_gap=gap, coupling=coupling**2)
    parts = sections([dataclasses.replace(studies[0], factorisation=part)])
    (cell,) = [row for row in parts[0].table if row["link"] == "Are the components independent?"]
    assert cell[studies[0].name].startswith(f"{word}; density gap")
    for sentence in sentences:
        assert sentence in said(parts, "Are the axes orthogonal?")


@pytest.mark.parametrize(
    ("mig", "word"), [(0.199, "No"), (0.201, "Partly"), (0.599, "Partly"), (0.601, "Mostly")]
)
def test_words_for_factors(studies, mig, word):
    scores = studies[0].match.scores.assign(score=mig, score_all=mig)
    parts = sections([dataclasses.replace(studies[0], match=studies[0].match._replace(scores=scores))])
    (cell,) = [row for row in parts[0].table if row["link"] == "Are they the factors?"]
    assert cell[studies[0].name] == f"{word}; MIG over active latents {mig:.2f} ± 0.00"


@pytest.mark.parametrize(("share", "name"), [(0.199, "z0"), (0.201, "z0 · second")])
def test_share_from_which_a_latent_is_named_after_a_factor(share, name):
    found = unseam.inspect(linear, torch.zeros(2, 3))
    known = SimpleNamespace(
        information=np.array([[[0.1, share], [0.0, 0.0], [0.0, 0.0]]]), factors=("first", "second")
    )
    assert Study("mine", (found,), match=known).latent_name(0) == name


@pytest.mark.parametrize(("norm", "ignored"), [(0.0999, True), (0.1001, False)])
def test_what_the_decoder_hardly_uses(norm, ignored):
    found = SimpleNamespace(column_norms=torch.tensor([1.0, norm]), active=torch.tensor([True, False]))
    assert _ignores_collapsed(found) == ignored


def test_walks_start_in_the_middle_and_go_both_ways(studies):
    made = studies[0].walks
    assert made.latents == importance(studies[0].found)
    assert made.frames.shape == (3, 9, 1, 12, 12)
    middle = made.frames[:, 4]
    np.testing.assert_allclose(middle, np.broadcast_to(middle[:1], middle.shape), atol=1e-6)
    assert made.frames.min() >= 0 and made.frames.max() <= 1


def test_the_page_says_what_a_twin_is_of(page):
    assert "72 items of sprites (a twin of dSprites, rendered here), whose factors are known" in page


def test_one_column_per_model_in_the_comparison(studies, page):
    verdict = sections(studies)[0]
    assert [row["link"] for row in verdict.table] == [
        "Is the posterior diagonal?",
        "Are the axes orthogonal?",
        "Are the components independent?",
        "Are they the factors?",
    ]
    assert verdict.table[0]["β-VAE"].startswith("Yes;") and verdict.table[0]["full covariance"].startswith(
        "No"
    )
    assert " of 2 seeds; |cos| " in verdict.table[1]["β-VAE"]
    assert "seed" not in verdict.table[1]["full covariance"]  # of one seed nothing is said about seeds
    table = verdict.numbers
    assert list(table[0]) == ["quantity", "β-VAE", "full covariance"]
    counts = sorted({int(found.active.sum()) for found in studies[0].inspections})
    assert table[0]["β-VAE"] == f"{'–'.join(map(str, counts))} of 3"
    cosines = [found.cosine for found in studies[0].inspections]
    (row,) = [row for row in table if row["quantity"] == "Mean |cos|"]
    assert row["β-VAE"] == f"{np.mean(cosines):.2f} ± {np.std(cosines, ddof=1):.2f}"
    assert "2 models side by side: β-VAE, full covariance" in Page(page).words


def test_models_are_spread_over_many(run, monkeypatch):
    monkeypatch.setattr("unseam.report.studies.MODELS", 1)
    assert [one.name for one in run_studies(run)] == ["β-VAE"]


def test_a_gap_never_stands_alone(page):
    said = Page(page).words
    kinds = {kind.lower() for kind in re.findall(r"(\S+) gaps?\b", said)}
    assert "hadamard" in kinds and kinds <= {"hadamard", "density", "information"}


def test_what_is_not_folded_away_is_short(studies, tmp_path):
    text = write(studies[:1], tmp_path / "report.html").read_text()
    text = re.sub(r"<(style|script|svg|details)\b.*?</\1>", " ", text, flags=re.DOTALL)
    assert 200 < len(re.sub(r"<[^>]+>", " ", text).split()) < 900  # two printed sides


def test_given_inspections_are_not_made_again(run):
    opened = unseam.Run.open(run)
    found = opened.inspect([2], points=20)
    (made,) = run_studies(opened, members=[2], points=20)
    assert made.found is found[2]


def test_bad_members(run):
    with pytest.raises(ValueError, match=r"member must lie in \[0, 3\), got 7"):
        run_studies(run, members=[7])


# Decoders of the user's own


def test_a_decoder_alone_gets_what_can_be_computed():
    made = study(linear, latent=3, name="mine")
    assert made.found.orthogonality == 0
    assert made.factorisation.density_gap == pytest.approx(0, abs=1e-6)
    assert made.factorisation.coupling == pytest.approx(0, abs=1e-9)
    parts = sections([made])
    assert [part.title for part in parts] == [
        "Verdict on each link",
        "What does each latent do?",
        "Which latents are active?",
        "Are the axes orthogonal?",
        "What to change",
        "What is missing, and why",
    ]
    assert "no encoder was given" in said(parts, "What is missing, and why")
    assert "no data were given" in said(parts, "What is missing, and why")


def test_an_encoder_data_and_factors_give_the_rest():
    generator = torch.Generator().manual_seed(0)
    factors = torch.randint(4, (300, 3), generator=generator)
    x = linear(factors.float() - 1.5)

    def encode(data):
        mean = data / torch.tensor([3.0, 1.0, 0.5])
        return mean, torch.full_like(mean, 0.1)

    made = study(linear, encoder=encode, x=x, factors=factors, factor_names=("a", "b", "c"))
    assert made.missing == ()
    assert made.match.mean("mig") == pytest.approx([1.0], abs=0.05)
    assert [made.factor(latent) for latent in range(3)] == ["a", "b", "c"]
    text = said(sections([made]), "Do the latents match the factors?")
    assert "z0 explains 100% of a" in text
    assert made.advice.active_count(1.0) == 2
    assert "a linear decoder would keep 2 directions of the data" in said(sections([made]), "What to change")


def test_kinks_are_measured_by_differences():
    torch_weights = torch.randn(3, 20, generator=torch.Generator().manual_seed(0))
    made = study(lambda z: torch.relu(z @ torch_weights), latent=3)
    assert made.factorisation.step == 0.1


def test_directions_are_the_singular_vectors_of_the_jacobian():
    rotation = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(1)))[0]
    made = study(lambda z: linear(z @ rotation), latent=3)
    expected = torch.linalg.svd((rotation @ torch.diag(torch.tensor([3.0, 1.0, 0.5]))).mT)
    np.testing.assert_allclose(made.directions.values, expected.S, rtol=1e-5)
    moved = np.abs(made.directions.singular)
    np.testing.assert_allclose(moved, (expected.U * expected.S).abs().mT, atol=1e-5)
    dto = float(distance_to_orthogonality(expected.Vh.mT[None]))
    assert made.found.dto == pytest.approx(dto, rel=1e-4)


def test_sampled_latents_are_told_from_all():
    z = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    made = study(linear, z, latents=2)
    titles = [part.title for part in sections([made])]
    assert "What does each latent do?" not in titles
    assert "Only some of its latents were sampled" in said(sections([made]), "What is missing, and why")


def test_one_active_latent_has_no_angles():
    made = study(lambda z: z[:, :1].repeat(1, 4), latent=2)
    assert "Are the axes orthogonal?" not in [part.title for part in sections([made])]
    assert Missing("Orthogonality", "There are fewer than two active latents to compare.") in made.missing


def test_an_inspection_alone(tmp_path):
    found = unseam.inspect(linear, torch.randn(20, 3, generator=torch.Generator().manual_seed(0)))
    text = write(found, tmp_path / "one.html").read_text()
    assert f"is {found.dto_active:.2f} ({found.random_dto.haar:.2f} for random rotations)" in text
    assert "An inspection alone holds neither decoder nor data" in text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "latent must say how many latents the decoder has"),
        ({"latent": 0}, "latent must be at least 1, got 0"),
    ],
)
def test_bad_decoders(given, message):
    with pytest.raises(ValueError, match=message):
        study(linear, **given)


def test_a_decoder_that_fails_is_not_hidden():
    def broken(z):
        raise RuntimeError("out of paint")

    with pytest.raises(ValueError, match="decoder does not take z of shape .*out of paint"):
        study(broken, latent=2)


def test_match_needs_no_names():
    v = torch.cartesian_prod(torch.arange(4), torch.arange(4))
    assert match(v.double()[None], v).factors == ("factor 0", "factor 1")


def test_no_studies():
    with pytest.raises(ValueError, match="studies must hold at least one model, got none"):
        sections([])


def test_equal_names_are_told_apart():
    found = unseam.inspect(linear, torch.zeros(4, 3))
    table = sections([Study("mine", (found,)), Study("mine", (found,))])[0].table
    assert list(table[0])[1:3] == ["1: mine", "2: mine"]


# Thresholds


def test_thresholds_of_a_run_are_those_that_advise_finds(run):
    """Of all its data, whatever number of points the rest of the page is measured at."""
    expected = unseam.advise(unseam.Run.open(run).world, likelihood="bernoulli")
    for made in run_studies(run, points=20):
        assert made.advice.points == expected.points == 72
        assert torch.equal(made.advice.thresholds, expected.thresholds)


def test_models_of_one_world_share_its_thresholds(run, monkeypatch):
    from unseam.report import measure

    made = []
    monkeypatch.setattr(
        measure, "advise", lambda *_, **given: made.append(given) or unseam.advise(*_, **given)
    )
    assert len(run_studies(run, points=20)) == 2 and len(made) == 1


def test_thresholds_of_sorted_data_are_those_of_all_of_it(monkeypatch):
    """The first rows are constant: what varies comes after them."""
    from unseam.models import Gaussian
    from unseam.report import measure

    generator = torch.Generator().manual_seed(0)
    x = torch.cat(
        [torch.zeros(100, 6), torch.randn(300, 6, generator=generator) * torch.arange(1.0, 7.0)]
    ).double()
    whole, _ = measure.thresholds(x, Gaussian(variance=1.0))
    monkeypatch.setattr(measure, "WIDEST", 5)
    monkeypatch.setattr(measure, "GRAM", 100)
    found, _ = measure.thresholds(x, Gaussian(variance=1.0))
    again, _ = measure.thresholds(x, Gaussian(variance=1.0))
    assert found.points == 100 and torch.equal(found.thresholds, again.thresholds)
    ratio = found.thresholds[:6] / whole.thresholds
    assert ((ratio > 0.5) & (ratio < 2.0)).all()


def test_the_page_says_how_many_items_thresholds_come_from():
    x = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
    made = unseam.report.study(
        lambda z: z @ torch.eye(2, 3), encoder=lambda x: (x[:, :2], torch.full((len(x), 2), 0.1)), x=x
    )
    part = next(part for part in sections([made]) if part.title == "What to change")
    assert part.how[0].endswith("Computed from 30 items, drawn at random where there are more.")
    wide = dataclasses.replace(made, advice=dataclasses.replace(made.advice, thresholds=torch.ones(16)))
    (how,) = next(part for part in sections([wide]) if part.title == "What to change").how
    assert how.endswith("more would show more directions at small β: `unseam advise` reads 50 000.")


# Means


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([1.0, 2.0, 3.0], "2.00 ± 1.00"),
        ([1.0, 2.0, None, 3.0, float("nan")], "2.00 ± 1.00 (n = 3)"),
        ([1.5], "1.50"),
        ([1.5, None], "1.50 (n = 1)"),
        ([None], "–"),
    ],
)
def test_means_have_the_sample_standard_deviation(values, shown):
    from unseam.demo import _numbers, _spread
    from unseam.report.story import _mean

    assert _mean(values) == shown
    plain = [float("nan") if value is None else value for value in values]
    assert _spread(plain) == shown
    seen = [value for value in plain if value == value]
    assert _numbers(plain)["n"] == len(seen)
    assert _numbers(plain)["std"] == (None if len(seen) < 2 else pytest.approx(1.0))


def test_six_models_have_six_colours():
    from unseam.charts import style
    from unseam.report._panels import seeds_panel

    drawn = seeds_panel({f"model {k}": [float(k)] for k in range(6)}, "DtO")
    for k in range(6):
        assert drawn.count(f"c{k}") == 1
        assert f".c{k} {{" in style()


def test_remarks_come_before_the_numbers():
    found = unseam.inspect(lambda z: z * torch.tensor([3.0, 1.0]), torch.zeros(4, 2))
    first = sections([Study("mine", (found,), remarks=("member 0 of 1: unfinished, 3 of 9 steps",))])[0]
    assert first.said == (("", "Note: member 0 of 1: unfinished, 3 of 9 steps."),)


def test_thresholds_of_other_likelihoods_are_unknown():
    from unseam.models import ContinuousBernoulli
    from unseam.report.measure import thresholds

    found, (gap,) = thresholds(
        torch.rand(5, 3, generator=torch.Generator().manual_seed(0)), ContinuousBernoulli()
    )
    assert found is None
    assert gap.why.endswith("not for this one: continuous Bernoulli.")


def test_thresholds_name_likelihoods_in_words():
    from unseam import models
    from unseam.report.measure import thresholds

    likelihood = models.WithCovariates(models.Masked(models.Gaussian()), 3, 2)
    _, (gap,) = thresholds(torch.zeros(5, 5), likelihood)
    assert gap.why.endswith("for this one: Gaussian, missing values left out, shifted by covariates.")


# Pictures


@pytest.mark.parametrize(
    ("shape", "picture"),
    [((1, 8, 8), True), ((3, 8, 8), True), ((8, 8), True), ((2, 8, 8), True), ((5,), False), ((20,), False)],
)
def test_what_is_no_picture_is_drawn_as_curves(shape, picture):
    markup = strip(np.ones((2, *shape), "float32"), "two", span=(0, 1))
    assert markup.startswith("<img" if picture else "<svg")


@pytest.mark.parametrize(("shape", "depth"), [((1, 8, 8), 2), ((3, 8, 8), 4)])
def test_frames_of_a_strip_are_found_by_their_gap(shape, depth):
    frames = np.random.default_rng(0).random((3, *shape), "float32")
    markup = strip(frames, "three", span=(0, 1))
    (width, gap) = (int(re.search(rf'{name}="(\d+)"', markup)[1]) for name in (" width", "data-gap"))
    sheet = np.asarray(Image.open(BytesIO(base64.b64decode(re.search(r"base64,([^\"]+)", markup)[1]))))
    assert sheet.shape == (8, width, depth) and width == 3 * 8 + 2 * gap
    np.testing.assert_array_equal(sheet[:, 8 + gap : 16 + gap, 0], np.rint(255 * frames[1, 0]))


def test_walks_and_still_pictures_are_told_apart(page):
    assert (
        page.count('<div class="walk still">')
        == page.count("Items of the data, and their reconstructions")
        == 1
    )
    assert page.count('<div class="walk">') == 2


def test_names_are_escaped(tmp_path):
    found = unseam.inspect(linear, torch.zeros(4, 3))
    made = dataclasses.replace(study(linear, latent=3), name="<b>me</b>", inspections=(found,))
    text = write([made, made], tmp_path / "x.html").read_text()
    assert "<b>me</b>" not in text and "&lt;b&gt;me&lt;/b&gt;" in text
