"""Matrices and a minimiser that the tests of closed forms share."""

import pytest
import torch


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def covariance(generator):
    """A covariance of six dimensions with distinct eigenvalues."""
    return make_covariance(torch.tensor([9.0, 4.0, 2.0, 1.0, 0.5, 0.25]), generator)


def make_covariance(eigenvalues, generator):
    shape = (len(eigenvalues), len(eigenvalues))
    turn = torch.linalg.qr(torch.randn(shape, generator=generator, dtype=torch.float64)).Q
    return (turn * eigenvalues.double()) @ turn.mT


@pytest.fixture
def minimise():
    """Minimise a function of tensors by L-BFGS in double precision until the gradient is rounding."""

    def run(function, *start):
        parameters = [part.clone().double().requires_grad_() for part in start]
        optimiser = torch.optim.LBFGS(
            parameters, max_iter=5000, tolerance_grad=1e-11, tolerance_change=0, line_search_fn="strong_wolfe"
        )

        def closure():
            optimiser.zero_grad()
            loss = function(*parameters)
            loss.backward()
            return loss

        optimiser.step(closure)
        return function(*parameters).detach(), [part.detach() for part in parameters]

    return run
