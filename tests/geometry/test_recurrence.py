"""Latents that return: closed forms of linear models, invariance, groups, and what is refused."""

import importlib

import pytest
import torch
from scipy.optimize import linear_sum_assignment

from unseam.geometry import recurrence

F64 = {"dtype": torch.float64}


def seeded(number=0):
    return torch.Generator().manual_seed(number)


def rotation(latent, generator):
    return torch.linalg.qr(torch.randn(latent, latent, generator=generator, **F64)).Q


def compare(rotations, lengths, active=None, seed=1):
    """Linear models x = U Λ R z whose codes are Rᵀ of the same independent ones."""
    generator = seeded(2)
    latent = len(lengths)
    basis = torch.linalg.qr(torch.randn(4 * latent, latent, generator=generator, **F64)).Q
    codes = torch.linalg.qr(torch.randn(300, latent, generator=generator, **F64)).Q
    columns = torch.cat([basis * torch.as_tensor(lengths, **F64) @ turn for turn in rotations], 1)
    codes = torch.cat([codes @ turn for turn in rotations], 1)
    shape = (len(rotations), latent, len(rotations), latent)
    products = ((part.mT @ part).view(shape) for part in (columns, codes))
    return recurrence(*products, active, generator=seeded(seed))


def signed_permutations(latent, count):
    generator = seeded(3)
    for _ in range(count):
        signs = torch.randint(2, (latent,), generator=generator, **F64) * 2 - 1
        yield torch.eye(latent, **F64)[torch.randperm(latent, generator=generator)] * signs


@pytest.mark.parametrize(("latent", "members"), [(2, 2), (3, 6), (8, 3)])
def test_permuted_and_flipped_copies_return_entirely(latent, members):
    turns = list(signed_permutations(latent, members))
    found = compare(turns, torch.linspace(3, 1, latent))
    others = ~torch.eye(members, dtype=torch.bool)
    assert found.returns.all()
    assert torch.equal(found.found, others[..., None].expand_as(found.found))
    assert found.likeness.abs().allclose(torch.ones((), **F64))
    expected = (turns[0].mT @ turns[1]).round()
    assert torch.equal(found.match[0, 1], expected.abs().argmax(1))
    assert torch.equal(found.likeness[0, 1].sign(), expected.sum(1))
    assert found.groups == ()


@pytest.mark.parametrize("lengths", [(1.0, 1.0, 1.0), (3.0, 2.0, 1.0)])
def test_random_rotations_return_only_together(lengths):
    generator = seeded(4)
    found = compare([rotation(3, generator) for _ in range(8)], lengths)
    assert not found.returns.any()
    assert [group.latents for group in found.groups] == [(0, 1, 2)] * 8
    assert all(
        int(group.found.sum()) == 7 and group.likeness.allclose(torch.ones((), **F64))
        for group in found.groups
    )


def test_latents_that_are_rotated_among_each_other_form_a_group_beside_those_that_return():
    generator, turns = seeded(5), []
    for _ in range(8):
        turns.append(torch.eye(5, **F64))
        turns[-1][1:3, 1:3] = rotation(2, generator)
    found = compare(turns, (3.0, 2.0, 2.0, 1.5, 1.0))
    assert found.returns.tolist() == [[True, False, False, True, True]] * 8
    assert [group.latents for group in found.groups] == [(1, 2)] * 8
    assert all(int(group.found.sum()) == 7 and group.p_value < 1e-6 for group in found.groups)


def test_p_values_are_uniform_or_larger_where_axes_are_random():
    generator = seeded(6)
    smallest = [
        float(compare([rotation(4, generator) for _ in range(3)], (2.0, 1.5, 1.2, 1.0), seed=k).p_value.min())
        for k in range(40)
    ]
    # the smallest of a family corrected by Holm lies below 0.05 in 5 % of families: 6 of 40 or more in 1.4 % of cases
    assert sum(value <= 0.05 for value in smallest) < 6


def test_collapsed_latents_change_nothing():
    active = torch.tensor([True, True, False]).expand(4, 3)
    turns = list(signed_permutations(2, 4))
    padded = [torch.block_diag(turn, torch.eye(1, **F64)) for turn in turns]
    whole, found = compare(turns, (2.0, 1.0)), compare(padded, (2.0, 1.0, 1.0), active)
    assert torch.equal(found.match[..., :2], whole.match)
    assert (found.match[..., 2] == -1).all()
    assert found.likeness[..., 2].isnan().all()
    assert not found.found[..., 2].any()
    assert found.similarity[..., 2].eq(0).all()
    assert found.returns.tolist() == [[True, True, False]] * 4


def test_a_model_with_fewer_active_latents_lacks_the_rest():
    active = torch.ones(4, 3, dtype=torch.bool)
    active[3, 1:] = False
    found = compare([torch.eye(3, **F64)] * 4, (3.0, 2.0, 1.0), active)
    assert found.found[0].tolist() == [[False] * 3, [True] * 3, [True] * 3, [True, False, False]]
    assert found.match[0, 3].tolist() == [0, -1, -1]
    assert found.returns[3].tolist() == [True, False, False]


def test_matches_are_those_of_scipy():
    generator = seeded(7)
    found = compare([rotation(7, generator) for _ in range(3)], torch.linspace(2, 1, 7))
    rows, columns = linear_sum_assignment(found.similarity[0, 2].abs().numpy(), maximize=True)
    assert found.match[0, 2].tolist() == columns.tolist()
    assert torch.equal(found.likeness[0, 2], found.similarity[0, 2][rows, columns])


@pytest.mark.parametrize(("p_value", "returns"), [(0.0499, True), (0.05, True), (0.0501, False)])
def test_level_below_which_latents_return(monkeypatch, p_value, returns):
    module = importlib.import_module("unseam.geometry.recurrence")
    monkeypatch.setattr(module, "_judge_all", lambda *_: torch.tensor(p_value, **F64))
    found = compare(list(signed_permutations(4, 3)), (4.0, 3.0, 2.0, 1.0))
    assert found.p_value.eq(p_value).all()
    assert found.returns.eq(returns).all()


@pytest.mark.parametrize(("likeness", "found"), [(0.899, False), (0.901, True)])
def test_likeness_from_which_a_single_latent_is_the_same(likeness, found):
    shape = (2, 1, 2, 1)
    columns, codes = (
        torch.tensor([[1.0, part], [part, 1.0]], **F64).view(shape)
        for part in (likeness + 0.05, likeness - 0.05)
    )
    compared = recurrence(columns, codes, generator=seeded())
    assert compared.likeness[0, 1].item() == pytest.approx(likeness)
    assert compared.found[0, 1].item() == found


def test_one_active_latent_is_compared_without_chance():
    found = compare([torch.eye(1, **F64), -torch.eye(1, **F64)], (1.0,))
    assert (found.found[0, 1].item(), found.chance.isnan().all().item()) == (True, True)
    assert found.returns.all()


@pytest.mark.parametrize(
    ("active", "message"),
    [
        (torch.zeros(3, 2, dtype=torch.bool), "active must name latents of at least two models, got 0 of 3"),
        (
            torch.eye(3, 2, dtype=torch.bool)[[0, 2, 2]],
            "active must name latents of at least two models, got 1 of 3",
        ),
        (torch.ones(3, 2), "active must be a mask or indices"),
        (torch.ones(2, 2, dtype=torch.bool), "active must hold 2 booleans for each of 3 members"),
    ],
)
def test_too_few_models_are_refused(active, message):
    with pytest.raises(ValueError, match=message):
        compare([torch.eye(2, **F64)] * 3, (2.0, 1.0), active)


def test_what_is_no_product_is_refused():
    products = torch.eye(4, **F64).view(2, 2, 2, 2)
    wrong = products.clone()
    wrong[0, 0, 1, 1] = 0.5
    with pytest.raises(ValueError, match="codes must be products of the same vectors, symmetric"):
        recurrence(products, wrong, generator=seeded())
