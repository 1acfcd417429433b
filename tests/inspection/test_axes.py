"""Orthogonality is undefined where nothing can be compared, and graded by what is continuous in the decoder."""

import dataclasses
import json
import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import unseam
from unseam.cli.inspect import geometry_rows
from unseam.inspection import (
    Orthogonality,
    RandomAxes,
    compare_axes,
    compare_members,
    grade_axes,
    random_axes,
)
from unseam.inspection.axes import LEAST_CHANCE, WORK

WORD = {grade: str(grade) for grade in Orthogonality}


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def inspected(columns, points=6):
    """A linear decoder (data, latent)."""
    return unseam.inspect(lambda z: z @ columns.T, draw(points, columns.shape[1]).to(columns))


# Undefined


@pytest.mark.parametrize("columns", [torch.zeros(5, 3), torch.eye(5, 3) * torch.tensor([1.0, 0.0, 0.0])])
def test_collapse_is_not_orthogonality(columns):
    found = inspected(columns)
    assert (found.dto, found.dto_active, found.cosine, found.hadamard_gap, found.orthogonality) == (None,) * 5
    assert "With fewer than two active latents, orthogonality is not defined." in found.summary()
    assert not re.search("nearly|partly|not orthogonal|DtO", found.summary())
    record = json.loads(json.dumps(found.to_dict()))
    assert all(
        record[name] is None for name in ("dto", "dto_active", "cosine", "hadamard_gap", "orthogonality")
    )
    page = found._repr_html_()
    for row in ("mean |cos| between axes", "Hadamard gap (nats)", "DtO, active latents", "DtO, all latents"):
        assert f"{row}</th><td>undefined</td>" in page


def test_points_without_a_pair_are_left_out():
    metric = torch.stack(
        [torch.tensor([[4.0, 3.0], [3.0, 9.0]]), torch.zeros(2, 2), torch.diag(torch.tensor([1.0, 0]))]
    )
    assert compare_axes(metric) == compare_axes(metric[0])


def test_dto_is_of_points_whose_singular_values_are_distinct():
    tilted = torch.tensor([[9.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
    found = compare_axes(torch.stack([tilted, torch.eye(2, dtype=torch.float64)]))
    assert found.degenerate_fraction == 0.5
    assert found.dto == compare_axes(tilted).dto > 0
    assert found.cosine == pytest.approx(compare_axes(tilted).cosine / 2)


# Continuity


@pytest.mark.parametrize("noise", [0.0, 1e-15, 1e-12, 1e-6])
@pytest.mark.parametrize("seed", range(3))
def test_an_orthonormal_decoder_is_orthogonal_whatever_the_noise(noise, seed):
    basis = torch.linalg.qr(draw(9, 4)).Q
    exact, noisy = inspected(basis), inspected(basis + noise * draw(9, 4, seed=seed + 1))
    assert exact.summary() == noisy.summary()
    assert exact.orthogonality is Orthogonality.NEARLY
    assert "DtO is not defined: singular values coincide at 100% of the points." in exact.summary()
    assert "DtO, all latents</th><td>undefined</td>" in noisy._repr_html_()


def test_one_pca_says_the_same_in_both_precisions():
    x = draw(300, 12) @ draw(12, 12, seed=1)
    _, scale, rows = torch.linalg.svd(x - x.mean(0), full_matrices=False)
    for columns in (rows[:5].T, rows[:5].T * scale[:5]):  # components alone, and scaled by their deviations
        said = {inspected(columns.to(dtype)).summary() for dtype in (torch.float32, torch.float64)}
        assert len(said) == 1


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 5), st.integers(0, 10**6), st.floats(0, 1), st.sampled_from([0.0, 1.0]))
def test_sentences_do_not_contradict_each_other(latent, seed, mix, equal):
    """One grade, one word; advice and other numbers follow it; and tiny changes of the decoder do not move it."""
    basis = torch.linalg.qr(draw(9, latent, seed=seed)).Q
    lengths = torch.exp((1 - equal) * (2 * draw(latent, seed=seed + 1)).clamp(-1.5, 1.5))  # none collapsed
    columns = ((1 - mix) * basis + mix * draw(9, latent, seed=seed + 2) / 3) * lengths
    found = inspected(columns)
    said = found.summary()
    assert sum(word in said for word in WORD.values()) == 1 and WORD[found.orthogonality] in said
    assert ("give its encoder" in said) == (found.orthogonality > Orthogonality.NEARLY)
    assert ("DtO is not defined" in said) == (found.dto_active is None)
    if found.orthogonality is Orthogonality.NEARLY:
        assert found.cosine < 0.25 * max(found.random_axes.cosine, LEAST_CHANCE)
    if found.orthogonality is Orthogonality.NOT:
        chance = found.random_axes
        assert found.cosine >= 0.75 * chance.cosine or found.hadamard_gap >= 0.75**2 * chance.hadamard_gap
    moved = inspected(columns * (1 + 1e-11 * draw(9, latent, seed=seed + 3)))
    assert moved.orthogonality is found.orthogonality


# Chance


def test_rotations_of_one_direction_have_parallel_axes():
    column = draw(5, 3, seed=2)[:, :1] @ draw(1, 3, seed=3)
    found = random_axes((column.T @ column)[None], generator=torch.Generator().manual_seed(0))
    assert found.cosine == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("latent", [2, 30, 60, 100])
def test_as_many_rotations_are_drawn_as_the_work_allows(latent, monkeypatch):
    """And at least 16, of whose cosines over many pairs the mean is precise."""
    drawn, decompose = [], torch.linalg.qr

    def count(normal):
        drawn.append(len(normal))
        return decompose(normal)

    monkeypatch.setattr(torch.linalg, "qr", count)
    random_axes(torch.eye(latent)[None], generator=torch.Generator().manual_seed(0))
    assert 16 <= drawn[0] <= 512
    assert drawn[0] * latent**3 <= WORK or drawn[0] == 16
    assert (drawn[0] + 1) * latent**3 > WORK or drawn[0] == 512


def test_rotations_of_two_axes_have_their_closed_form():
    """G = diag(a, b) rotated by φ: cos² = (a − b)² s²c² / ((as² + bc²)(ac² + bs²)), φ uniform."""
    a, b = 9.0, 1.0
    angle = (torch.arange(10_000, dtype=torch.float64) + 0.5) * math.pi / 20_000
    s, c = angle.sin() ** 2, angle.cos() ** 2
    square = (a - b) ** 2 * s * c / ((a * s + b * c) * (a * c + b * s))
    metric = torch.diag(torch.tensor([a, b], dtype=torch.float64))[None]
    found = random_axes(metric, generator=torch.Generator().manual_seed(0))
    cosine, gap = square.sqrt(), -torch.log1p(-square) / 2
    for value, exact in zip(found, (cosine, gap), strict=True):
        assert abs(value - float(exact.mean())) < 4 * float(exact.std()) / math.sqrt(512)


@pytest.mark.parametrize(
    ("cosine", "gap", "expected"),
    [(0.0, 0.0, 0), (0.09, 0.001, 0), (0.11, 0.001, 1), (0.09, 0.02, 1), (0.31, 0.01, 2), (0.01, 0.12, 2)],
)
def test_the_worse_of_both_decides(cosine, gap, expected):
    assert grade_axes(cosine, gap, RandomAxes(0.4, 0.2), 2) == expected


def test_one_line_over_all_members():
    straight = inspected(torch.diag(torch.tensor([3.0, 1.0])))
    oblique = inspected(torch.tensor([[3.0, 2.0], [1.0, 1.0]]))
    dead = inspected(torch.zeros(3, 2))
    text = compare_members({str(k): one for k, one in enumerate([straight] * 8 + [oblique, dead])})
    assert text == (
        "Of 10 models: axes nearly orthogonal in 8, not orthogonal in 1 and not defined in 1; 0 to 2 latents active."
    )


def test_kinds_of_models_have_a_line_each():
    straight = inspected(torch.diag(torch.tensor([3.0, 1.0])))
    oblique = inspected(torch.tensor([[3.0, 2.0], [1.0, 1.0]]))
    vae = dataclasses.replace(straight, variance=torch.full((4, 2), 0.1), beta_known=True)
    full = dataclasses.replace(oblique, variance=torch.full((4, 2, 2), 0.1))
    lines = compare_members({"a": vae, "b": vae, "c": full, "d": full}).splitlines()
    assert lines == [
        "Of 2 with a diagonal posterior, β = 1: axes nearly orthogonal in 2; 2 latents active in each.",
        "Of 2 with full covariance, β unknown: axes not orthogonal in 2; 2 latents active in each.",
        "Of 4 models: axes nearly orthogonal in 2 and not orthogonal in 2; 2 latents active in each.",
    ]
    assert len(compare_members({"a": vae, "b": full}).splitlines()) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_more_axes_than_directions_cannot_be_orthogonal(dtype):
    """In either precision: what rounding leaves of a zero singular value decides nothing."""
    weights = torch.randn(5, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    found = unseam.inspect(lambda z: z @ weights.T, torch.zeros(3, 8, dtype=dtype))
    assert found.crowded and found.orthogonality == Orthogonality.NOT and found.dto_active is None
    text = found.summary()
    assert "cannot all be, since the output changes in fewer directions" in text and "unbounded" in text
    assert "use fewer latents" in text and "equal strength" not in text
    assert found.hadamard_gap is None and found.random_axes.hadamard_gap is None  # and no number of rounding
    row = geometry_rows({"mine": found})[0]
    assert row["Hadamard gap, nats"] == "undefined" and row["Hadamard gap by chance"] is None


def test_axes_no_better_than_chance_are_said_to_be_so():
    weights = torch.randn(60, 30, generator=torch.Generator().manual_seed(0))
    found = unseam.inspect(lambda z: z @ weights.T, torch.zeros(3, 30))
    assert found.orthogonality == Orthogonality.PARTLY
    assert "are partly orthogonal, as they are after a random rotation" in found.summary()
