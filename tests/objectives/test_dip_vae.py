"""DIP-VAE I and II."""

import math

import numpy as np
import pytest
import torch

from unseam.objectives import beta_elbo, dip_vae

X = torch.tensor([[1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64)
NO_NOISE = torch.zeros(2, 2, dtype=torch.float64)


@pytest.mark.parametrize(
    ("form", "off_diagonal", "diagonal", "loss"),
    [
        # Means ±(1, 1): C = [[1, 1], [1, 1]], KL = 1. Loss 2·1 + 3·2 + 5·0.
        ("i", 2, 0, 8),
        # Posterior variance 1 added: C = [[2, 1], [1, 2]]. Loss 2·1 + 3·2 + 5·2.
        ("ii", 2, 2, 18),
    ],
)
def test_weights_are_pinned_by_hand(identity_model, form, off_diagonal, diagonal, loss):
    terms = dip_vae(identity_model(), X, NO_NOISE, beta=2.0, lambda_od=3.0, lambda_d=5.0, form=form)
    assert terms.kl.item() == pytest.approx(1)
    assert terms.off_diagonal.item() == pytest.approx(off_diagonal)
    assert terms.diagonal.item() == pytest.approx(diagonal)
    assert terms.loss.item() == pytest.approx(loss + math.log(2 * math.pi))


@pytest.mark.parametrize("posterior", ["diagonal", "full"])
@pytest.mark.parametrize("form", ["i", "ii"])
def test_covariance_against_numpy(make_model, normal, posterior, form):
    model, x, noise = make_model(posterior=posterior, latent=3), normal(7, 3), normal(7, 3)
    encoding = model.encode(x)
    covariance = np.cov(encoding.mean.detach().numpy().T, bias=True)
    if form == "ii":
        expected = encoding.variance.mean(0).detach().numpy()
        covariance = covariance + (np.diag(expected) if posterior == "diagonal" else expected)
    terms = dip_vae(model, x, noise, lambda_od=1.0, lambda_d=1.0, form=form)
    off = covariance[~np.eye(3, dtype=bool)]
    assert terms.off_diagonal.item() == pytest.approx(np.sum(off**2))
    assert terms.diagonal.item() == pytest.approx(np.sum((np.diag(covariance) - 1) ** 2))


@pytest.mark.parametrize("posterior", ["diagonal", "full"])
def test_form_two_is_the_covariance_of_z_over_batch_and_noise(make_model, normal, quadrature, posterior):
    model, x = make_model(posterior=posterior), normal(6, 3)
    nodes, mass = quadrature(3, 2)
    moments = model.moments(x)
    z = torch.stack([model.posterior.sample(moments, node.expand(6, 2)) for node in nodes])
    share = mass[:, None, None] / 6
    mean = (share * z).sum((0, 1))
    covariance = torch.einsum("n,nbi,nbj->ij", mass / 6, z - mean, z - mean)
    terms = dip_vae(model, x, normal(6, 2), lambda_od=1.0, lambda_d=1.0, form="ii")
    torch.testing.assert_close(terms.off_diagonal, 2 * covariance[0, 1] ** 2)
    torch.testing.assert_close(terms.diagonal, (covariance.diagonal() - 1).square().sum())


def test_without_penalties_it_is_the_beta_elbo(make_model, normal):
    model, x, noise = make_model(), normal(5, 3), normal(5, 2)
    terms = dip_vae(model, x, noise, beta=3.0, lambda_od=0.0, lambda_d=0.0)
    torch.testing.assert_close(terms[:3], tuple(beta_elbo(model, x, noise, beta=3.0)))


def test_shifted_codes_pay_nothing(identity_model):
    here, there = (dip_vae(identity_model(), x, NO_NOISE, lambda_od=1.0, lambda_d=1.0) for x in (X, X + 5))
    torch.testing.assert_close(here[3:], there[3:])


def test_unknown_form_is_refused(make_model, normal):
    with pytest.raises(ValueError, match="form must be 'i' or 'ii', got 'I'"):
        dip_vae(make_model(), normal(5, 3), normal(5, 2), lambda_od=1.0, lambda_d=1.0, form="I")
    with pytest.raises(ValueError, match="form must be 'i' or 'ii', got "):
        dip_vae(
            make_model(), normal(5, 3), normal(5, 2), lambda_od=1.0, lambda_d=1.0, form=torch.ones(2).numpy()
        )
