"""The orthogonal deviation score in both forms."""

import math

import numpy as np
import pytest
import scipy.linalg
import torch

from unseam.geometry import od_distances, od_score, stochastic_minimum

F64 = {"dtype": torch.float64}


def orthonormal(*shape, generator):
    return torch.linalg.qr(torch.randn(*shape, generator=generator, **F64)).Q


@pytest.fixture
def models(generator):
    """Three models at four points: orthogonal columns, nearly so, and random ones."""
    exact = orthonormal(4, 40, 5, generator=generator) * torch.tensor([1.0, 4.0, 2.0, 0.5, 3.0], **F64)
    near = exact + 0.02 * torch.randn(4, 40, 5, generator=generator, **F64)
    return torch.stack([exact, near, torch.rand(4, 40, 5, generator=generator, **F64)])


def naive_distances(matrix):
    """Lemma 4 and Prop. 7 step by step with SciPy, left basis and nearest orthogonal matrix formed."""
    matrix = matrix[:, np.argsort(-np.linalg.norm(matrix, axis=0), kind="stable")]
    left, values, right = scipy.linalg.svd(matrix, full_matrices=False)
    signs = np.where(np.diag(right.T) < 0, -1, 1)
    left, right = left * signs, right.T * signs
    nearest = matrix @ np.linalg.inv(scipy.linalg.sqrtm(matrix.T @ matrix).real)
    lengths = np.linalg.norm(matrix, axis=0)
    return [
        np.linalg.norm(left - nearest) ** 2,
        np.linalg.norm(np.diag(values) - np.diag(lengths)) ** 2,
        np.linalg.norm(right - np.eye(len(values))) ** 2,
    ]


# Distances


def test_distances_against_scipy(models):
    found = od_distances(models[1:])
    for model in range(2):
        for point in range(4):
            expected = naive_distances(models[1 + model, point].numpy())
            assert [part[model, point].item() for part in found] == pytest.approx(expected, rel=1e-8)


def test_the_nearest_orthogonal_matrix_is_the_polar_factor(models):
    """Prop. 7 with the exponent −1/2."""
    matrix = models[2, 0].numpy()
    nearest = matrix @ np.linalg.inv(scipy.linalg.sqrtm(matrix.T @ matrix).real)
    np.testing.assert_allclose(nearest, scipy.linalg.polar(matrix)[0], atol=1e-12)


def test_two_columns_at_an_angle():
    """Unit columns at an angle: V turns by an eighth, and the singular values are √(1 ± cos)."""
    angle = 1.2
    matrix = torch.tensor([[1.0, math.cos(angle)], [0.0, math.sin(angle)], [0.0, 0.0]], **F64)
    found = od_distances(matrix)
    turned = 4 * (1 - math.cos(math.pi / 4))
    stretched = sum((math.sqrt(1 + sign * math.cos(angle)) - 1) ** 2 for sign in (1, -1))
    assert [part.item() for part in found] == pytest.approx([turned, stretched, turned])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_orthogonal_columns_have_no_distance(models, dtype):
    assert [part.tolist() for part in od_distances(models[0].to(dtype))] == [[0.0] * 4] * 3


# As published


def test_orthogonal_is_lowest_and_random_highest(models):
    found = od_score(models)
    assert found.shape == (3, 4)
    assert (found[0] == 0).all()
    assert (found[0] < found[1]).all()
    assert (found[1] < found[2]).all()
    torch.testing.assert_close(found[2], torch.ones(4, **F64))


def test_against_the_printed_equations(models):
    distances = np.array([[naive_distances(matrix) for matrix in model] for model in models.numpy()])
    expected = (distances / distances.max(0)).mean(-1)
    np.testing.assert_allclose(od_score(models).numpy(), expected, atol=1e-8)


def test_the_score_depends_on_the_company(models):
    alone = od_score(models[:2])[1]
    assert (alone > od_score(models)[1]).all()


def test_without_any_distance_the_score_is_zero(models):
    assert od_score(models[[0, 0]]).tolist() == [[0.0] * 4] * 2


def test_invariant_to_order_and_sign_of_latents(models):
    signs = torch.tensor([1.0, -1.0, -1.0, 1.0, -1.0], **F64)
    moved = (models * signs)[..., [3, 0, 4, 1, 2]]
    torch.testing.assert_close(od_score(moved), od_score(models), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("form", ["paper", "invariant"])
def test_invariant_to_rotation_of_the_data(models, generator, form):
    turned = orthonormal(40, 40, generator=generator) @ models
    torch.testing.assert_close(
        od_score(turned, form=form), od_score(models, form=form), rtol=1e-8, atol=1e-12
    )


# For one model


def test_two_columns_in_the_invariant_form():
    """det of the correlations is sin², so the score is 1 − |sin|."""
    angle = torch.linspace(0.1, 3.0, 7, **F64)
    columns = torch.stack(
        [torch.ones_like(angle), 5 * angle.cos(), torch.zeros_like(angle), 5 * angle.sin()], -1
    )
    found = od_score(columns.view(7, 2, 2), form="invariant")
    torch.testing.assert_close(found, 1 - angle.sin())


def test_against_the_determinant(models):
    unit = models / models.norm(dim=-2, keepdim=True)
    expected = 1 - torch.linalg.det(unit.mT @ unit) ** (1 / 5)
    torch.testing.assert_close(od_score(models, form="invariant"), expected, rtol=1e-10, atol=1e-14)


def test_is_the_share_of_the_stochastic_loss_that_orthogonality_saves(models):
    gram = models.mT @ models
    before = stochastic_minimum(gram, 1.0).loss
    after = stochastic_minimum(torch.diag_embed(torch.linalg.eigvalsh(gram)), 1.0).loss
    torch.testing.assert_close(od_score(models, form="invariant"), 1 - after / before, rtol=1e-9, atol=1e-13)


def test_invariant_to_order_sign_and_scale(models):
    scale = torch.tensor([1e-100, -2.0, 3.0, -1e100, 1.0], **F64)
    moved = (models * scale)[..., [3, 0, 4, 1, 2]]
    torch.testing.assert_close(
        od_score(moved, form="invariant"), od_score(models, form="invariant"), rtol=1e-10, atol=1e-14
    )


def test_range_and_order_of_the_invariant_form(models):
    found = od_score(models, form="invariant")
    torch.testing.assert_close(found[0], torch.zeros(4, **F64), rtol=0, atol=1e-15)
    assert (found[1] > 1e-6).all()
    assert (found[1] < found[2]).all()
    assert (found <= 1).all()


def test_dependent_and_dead_columns(models):
    columns = models[2, 0]
    repeated = torch.cat([columns[:, :2], columns[:, :1]], dim=1)
    assert od_score(repeated, form="invariant").item() == pytest.approx(1, abs=1e-4)
    dying = torch.cat([columns, torch.zeros(40, 1, **F64)], dim=1)
    torch.testing.assert_close(od_score(dying, form="invariant"), od_score(columns, form="invariant"))
    assert od_score(torch.zeros(3, 2), form="invariant").item() == 0
    assert od_score(columns[:, :1], form="invariant").item() == 0


@pytest.mark.parametrize("form", ["paper", "invariant"])
def test_numpy_and_types(models, form):
    torch.testing.assert_close(od_score(models.numpy(), form=form), od_score(models, form=form))
    single = od_score(models.float(), form=form)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), od_score(models, form=form), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("matrices", "form", "message"),
    [
        (
            torch.zeros(3, 2),
            "paper",
            r"matrices must have shape \(model, point, data, latent\), got",
        ),
        (torch.zeros(1, 2, 3, 2), "paper", "matrices must hold at least two models for form='paper'"),
        (torch.zeros(2, 2, 3, 2), "both", "form must be 'paper' or 'invariant', got 'both'"),
        (torch.zeros(3), "invariant", r"matrices must have shape \(..., data, latent\), got shape \(3,\)"),
        (torch.full((2, 2, 3, 2), math.nan), "paper", "matrices must be finite, got 24 entries"),
    ],
)
def test_bad_matrices_are_refused(matrices, form, message):
    with pytest.raises(ValueError, match=message):
        od_score(matrices, form=form)
