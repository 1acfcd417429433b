"""Both sides of every limit by which numbers become words."""

import dataclasses
import math

import pytest
import torch

import unseam
from unseam.geometry import active_latents
from unseam.inspection.axes import RandomAxes, grade_axes
from unseam.inspection.todo import todo
from unseam.inspection.verdict import describe_orthogonality, describe_regime, describe_variances
from unseam.metrics import sap, udr
from unseam.metrics.sap import SapSettings


@pytest.fixture(scope="module")
def sound():
    """A linear model at its optimum: three orthogonal columns of unequal lengths."""
    columns = torch.cat([torch.diag(torch.tensor([3.0, 2.0, 1.0])), torch.zeros(4, 3)]).double()
    noise = 1 / (1 + columns.square().sum(0))
    x = torch.randn(100, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return unseam.inspect(lambda z: z @ columns.T, encoder=lambda x: (x, noise.expand(len(x), 3)), x=x)


# |cos| and the Hadamard gap are compared with those of chance, the gap by its root; chance has a least value.
LEAST = -math.log1p(-(0.2**2)) / 2


@pytest.mark.parametrize(
    ("cosine", "gap", "chance", "limit"),
    [
        (0.25 * 0.4, 0.0, RandomAxes(0.4, 0.2), 0),
        (0.75 * 0.4, 0.0, RandomAxes(0.4, 0.2), 1),
        (0.0, 0.25**2 * 0.2, RandomAxes(0.4, 0.2), 0),
        (0.0, 0.75**2 * 0.2, RandomAxes(0.4, 0.2), 1),
        (0.25 * 0.2, 0.0, RandomAxes(0.01, 0.001), 0),
        (0.75 * 0.2, 0.0, RandomAxes(0.01, 0.001), 1),
        (0.0, 0.25**2 * LEAST, RandomAxes(0.01, 0.001), 0),
        (0.0, 0.75**2 * LEAST, RandomAxes(0.01, 0.001), 1),
    ],
)
def test_grades_of_axes(cosine, gap, chance, limit):
    assert grade_axes(cosine * 0.999, gap * 0.999, chance, 2) == limit
    assert grade_axes(cosine * 1.001, gap * 1.001, chance, 2) == limit + 1


@pytest.mark.parametrize(
    ("cosine", "chance", "said"),
    [
        (0.0749, 0.1, "are partly orthogonal:"),
        (0.02, 0.1, "are nearly orthogonal:"),
        (0.0751, 0.1, "are partly orthogonal, as they are after a random rotation:"),
        (0.2, 0.3, "are partly orthogonal:"),
        (0.23, 0.3, "are not orthogonal:"),
        (0.01, 0.051, "are nearly orthogonal:"),
        (0.01, 0.049, "are nearly orthogonal, as they would be after any rotation"),
    ],
)
def test_why_axes_are_orthogonal(sound, cosine, chance, said):
    found = dataclasses.replace(
        sound, cosine=cosine, hadamard_gap=0.0, random_axes=RandomAxes(chance, 0.1), pullback=None
    )
    assert said in describe_orthogonality(found)


@pytest.mark.parametrize(
    ("error", "word", "advice"),
    [
        (0.0999, "posterior and decoder agree;", None),
        (0.1001, "posterior and decoder agree roughly;", "posterior and decoder agree only roughly"),
        (0.2999, "posterior and decoder agree roughly;", "posterior and decoder agree only roughly"),
        (0.3001, "posterior and decoder do not agree;", "posterior and decoder do not agree"),
    ],
)
def test_agreement_of_posterior_and_decoder(sound, error, word, advice):
    found = dataclasses.replace(sound, precision_error=sound.precision_error._replace(diagonal=error))
    assert word.rstrip(";") in unseam.inspection.compare_members({"0": found}).split("; ")[1]
    reasons = " ".join(todo(found).steps)
    assert (advice in reasons) if advice else ("agree" not in reasons)


@pytest.mark.parametrize(("share", "said"), [(0.0999, False), (0.1001, True)])
def test_many_points_with_equal_strengths(sound, share, said):
    steps = todo(dataclasses.replace(sound, degenerate_fraction=share)).steps
    assert any("equal strength" in step for step in steps) == said


@pytest.mark.parametrize(
    ("spread", "word"),
    [(0.0999, "scale as"), (0.1001, "scale roughly"), (0.2999, "scale roughly"), (0.3001, "do not scale")],
)
def test_law_of_variances(sound, spread, word):
    found = dataclasses.replace(sound, variance_law=sound.variance_law._replace(spread=spread))
    assert f"Variances {word}" in describe_variances(found)


@pytest.mark.parametrize(("error", "regime"), [(0.0299, "polarised"), (0.0301, "not fully polarised")])
def test_polarised_regime(sound, error, regime):
    unmixed = sound.polarised._replace(mixed=torch.zeros(3, dtype=torch.bool))
    found = dataclasses.replace(sound, polarised=unmixed, delta_kl=error)
    assert f"The posterior is {regime}:" in describe_regime(found)
    assert any("KL is off by more than the 3%" in step for step in todo(found).steps) == (error > 0.03)


def test_columns_from_which_a_latent_without_an_encoder_is_active():
    found = unseam.inspect(lambda z: z * torch.tensor([1.0, 0.0101, 0.0099]), torch.zeros(2, 3))
    assert found.active.tolist() == [True, True, False]


@pytest.mark.parametrize(("latent", "said"), [(63, True), (64, False)])
def test_latents_from_which_more_are_not_proposed(latent, said):
    x = torch.randn(3, latent, generator=torch.Generator().manual_seed(0))
    columns = torch.eye(latent, 100) * torch.linspace(1, 2, latent)[:, None]
    found = unseam.inspect(lambda z: z @ columns, encoder=lambda x: (x, torch.zeros_like(x)), x=x)
    assert any("give it more latents" in step for step in todo(found, factors=100).steps) == said


@pytest.mark.parametrize(
    ("criterion", "limit", "below", "above"),
    [
        ("kl", 0.01, (math.sqrt(0.0199), 1.0), (math.sqrt(0.0201), 1.0)),
        ("variance", 0.01, (math.sqrt(0.0099), 1.0), (math.sqrt(0.0101), 1.0)),
        ("posterior", 0.81, (0.0, 0.811), (0.0, 0.809)),
    ],
)
def test_active_latents(criterion, limit, below, above):
    """One latent whose means are ±a with variance v on either side of the limit; KL is (a² + v − ln v − 1) / 2."""
    means = torch.tensor([[-below[0], -above[0]], [below[0], above[0]]], dtype=torch.float64)
    variance = torch.tensor([[below[1], above[1]]], dtype=torch.float64).expand(2, 2)
    found = active_latents(means, variance, criterion=criterion)
    assert found.active.tolist() == [False, True]
    assert found.threshold == limit


def test_divergence_from_which_a_code_counts_in_udr():
    codes = torch.randn(2, 30, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    kl = torch.tensor([[0.0099, 0.0101, 1.0]] * 2, dtype=torch.float64)
    assert udr(codes, kl).informative.tolist() == [[False, True, True]] * 2


@pytest.mark.parametrize(("variance", "counts"), [(0.99e-12, 0.0), (1.01e-12, 1.0)])
def test_variance_from_which_a_code_counts_in_sap(variance, counts):
    factor = torch.tensor([-1.0, 1.0], dtype=torch.float64).repeat(50)[:, None]
    settings = dataclasses.replace(SapSettings(), train=50, test=50)
    found = sap(factor * math.sqrt(variance), factor, discrete=[False], preset=settings)
    assert found.score.item() == pytest.approx(counts, abs=1e-6)
