"""Theorems 4 and 5 of allen2024 as they hold, over many turns, and the slip in the first."""

import pytest
import torch

from unseam.theory import diagonal_hessian, diagonal_hessian_optimal, local_posterior, plateau_term


def turns(count, latent, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(count, latent, latent, generator=draw, dtype=torch.float64)).Q


SPECTRUM = torch.tensor([-0.3, -2.0, -7.0], dtype=torch.float64)
VARIANCE = torch.tensor([0.2, 0.9, 0.5], dtype=torch.float64)


def test_no_turn_passes_the_rearrangement_bound():
    turn = turns(5000, 3)
    found = diagonal_hessian(turn @ torch.diag(SPECTRUM) @ turn.mT, VARIANCE)
    assert (found.value <= found.bound + 1e-12).all()
    assert float(found.bound.max() - found.bound.min()) < 1e-12


def test_the_bound_is_reached_by_a_permutation_and_not_by_the_identity():
    order = torch.tensor([2, 0, 1])  # the largest variance with the least curvature
    found = diagonal_hessian(torch.diag(SPECTRUM[order]), VARIANCE)
    torch.testing.assert_close(found.value, found.bound)
    identity = diagonal_hessian(torch.diag(SPECTRUM), VARIANCE)
    assert float(identity.value) < float(identity.bound)


def test_the_printed_step_gives_no_useful_bound():
    """Cauchy–Schwarz gives ‖T‖‖Σ‖, positive, which ⟨T, Σ⟩ is not; V = I gives −10.1, a swap −2."""
    example = diagonal_hessian(
        torch.diag(torch.tensor([-1.0, -10.0], dtype=torch.float64)), torch.tensor([0.1, 1.0])
    )
    assert float(example.value) == pytest.approx(-10.1)
    assert float(example.bound) == pytest.approx(-2.0)
    assert float(example.printed) == pytest.approx((101 * 1.01) ** 0.5)


@pytest.mark.parametrize("beta", [0.5, 1.0, 3.0])
def test_hadamards_bound_is_reached_exactly_by_diagonal_hessians(beta):
    turn = turns(5000, 3)
    found = diagonal_hessian_optimal(turn @ torch.diag(SPECTRUM) @ turn.mT, beta=beta)
    assert (found.value < found.bound).all()
    straight = diagonal_hessian_optimal(torch.diag(SPECTRUM), beta=beta)
    torch.testing.assert_close(straight.value, straight.bound)
    torch.testing.assert_close(found.bound, straight.bound.expand(5000))


@pytest.mark.parametrize(("beta", "noise"), [(1.0, 1.0), (3.0, 0.4)])
def test_plateau_term_is_what_the_deterministic_elbo_pays(beta, noise):
    scales = torch.tensor([0.0, 0.5, 3.0], dtype=torch.float64)
    posterior = local_posterior(torch.diag(scales), noise=noise, beta=beta)
    paid = -(torch.diag(scales.square()) * posterior).sum() / (2 * noise)
    paid = paid - beta / 2 * (posterior.trace() - torch.logdet(posterior) - 3)
    torch.testing.assert_close(plateau_term(scales, beta=beta, noise=noise), paid)


def test_the_printed_plateau_term_is_another_function():
    """Eq. 14 keeps −s²/(1 + s²/β) alone, which is bounded; the whole term is not."""
    scales = torch.tensor([[10.0], [1000.0]], dtype=torch.float64)
    whole = plateau_term(scales)
    printed = -(scales.square() / (1 + scales.square())).sum(-1) / 2
    assert float(printed[0] - printed[1]) < 0.01
    assert float(whole[0] - whole[1]) > 4


@pytest.mark.parametrize(
    ("hessian", "message"),
    [
        (torch.zeros(2, 3), r"hessian must have shape \(..., latent, latent\), got shape \(2, 3\)"),
        (torch.tensor([[0.0, 1.0], [0.0, 0.0]]), "hessian must be symmetric"),
        (torch.eye(2) * 2, "hessian must be such that I − H/beta is positive definite"),
    ],
)
def test_bad_input(hessian, message):
    with pytest.raises(ValueError, match=message):
        diagonal_hessian_optimal(hessian)
