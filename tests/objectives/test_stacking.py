"""Every objective, vectorised over members with their own parameters and weights, and captured on CUDA."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from unseam import objectives
from unseam.models import initialise

MEMBERS = 3
WEIGHTS = {
    "beta": [0.5, 1.0, 4.0],
    "gamma": [2.0, 6.0, 10.0],
    "alpha": [1.0, 2.0, 0.5],
    "capacity": [1.0, 5.0, 25.0],
    "capacity_steps": [10.0, 20.0, 30.0],
    "lambda_od": [1.0, 3.0, 9.0],
    "lambda_d": [2.0, 5.0, 7.0],
    "orthogonality": [1.0, 10.0, 100.0],
}

CASES: dict[str, tuple[Callable, tuple[str, ...], dict]] = {
    "beta_elbo": (objectives.beta_elbo, ("beta",), {}),
    "annealed_capacity": (
        objectives.annealed_capacity,
        ("gamma", "capacity", "capacity_steps"),
        {"step": torch.tensor(7.0, dtype=torch.float64)},
    ),
    "beta_tcvae": (objectives.beta_tcvae, ("beta", "alpha", "gamma"), {"size": 20}),
    "beta_tcvae_stratified": (
        objectives.beta_tcvae,
        ("beta", "alpha", "gamma"),
        {"size": 20, "sampling": "stratified"},
    ),
    "dip_vae_i": (objectives.dip_vae, ("beta", "lambda_od", "lambda_d"), {"form": "i"}),
    "dip_vae_ii": (objectives.dip_vae, ("beta", "lambda_od", "lambda_d"), {"form": "ii"}),
    "autoencoder": (objectives.autoencoder, (), {}),
    "deterministic_elbo": (objectives.deterministic_elbo, ("beta",), {}),
    "orthogonal_elbo": (objectives.orthogonal_elbo, ("beta", "orthogonality"), {}),
    "factor_vae": (objectives.factor_vae, ("beta", "gamma"), {}),
}


class Learner(nn.Module):
    """A model and its discriminator, with an objective as ``forward``."""

    def __init__(self, model: nn.Module, case: str) -> None:
        super().__init__()
        self.model, self.case = model, case
        if case == "factor_vae":
            self.discriminator = objectives.Discriminator(2, width=7, depth=2).double()
            initialise(self.discriminator, generator=torch.Generator().manual_seed(11))

    def forward(self, x: Tensor, noise: Tensor, keys: Tensor, weights: dict[str, Tensor], options: dict):
        objective = CASES[self.case][0]
        if self.case == "factor_vae":
            return objective(self.model, self.discriminator, x, noise, keys, **weights, **options)
        return objective(self.model, x, noise, **weights, **options)


@pytest.fixture
def ensemble(make_model, normal):
    """Learners, their inputs (member, batch, …) and their weights (member,)."""

    def make(case: str, posterior: str):
        models = [make_model(seed=seed, posterior=posterior) for seed in range(MEMBERS)]
        learners = [Learner(model, case) for model in models]
        given = (normal(MEMBERS, 5, 3), normal(MEMBERS, 5, 2), normal(MEMBERS, 5, 2))
        weights = {name: torch.tensor(WEIGHTS[name], dtype=torch.float64) for name in CASES[case][1]}
        return learners, given, weights, CASES[case][2]

    return make


def stacked(learners, given, weights, options):
    """Terms (member,) and gradients of the sum of losses, by functional_call under vmap."""
    parameters, buffers = stack_module_state(learners)

    def one(parameters, buffers, weights, x, noise, keys):
        return functional_call(learners[0], (parameters, buffers), (x, noise, keys, weights, options))

    terms = vmap(one)(parameters, buffers, weights, *given)
    names = list(parameters)
    gradients = torch.autograd.grad(
        terms.loss.sum(), [parameters[name] for name in names], materialize_grads=True
    )
    return terms, dict(zip(names, gradients, strict=True))


def alone(learner, given, weights, options):
    terms = learner(*given, weights, options)
    names, values = zip(*learner.named_parameters(), strict=True)
    gradients = torch.autograd.grad(terms.loss, values, materialize_grads=True)
    return terms, dict(zip(names, gradients, strict=True))


@pytest.mark.parametrize("posterior", ["diagonal", "full"])
@pytest.mark.parametrize("case", CASES)
def test_a_stack_computes_what_its_members_compute_alone(ensemble, case, posterior):
    learners, given, weights, options = ensemble(case, posterior)
    terms, gradients = stacked(learners, given, weights, options)
    for i, learner in enumerate(learners):
        own = {name: float(value[i]) for name, value in weights.items()}
        expected, expected_gradients = alone(learner, [value[i] for value in given], own, options)
        for name in terms._fields:
            torch.testing.assert_close(getattr(terms, name)[i], getattr(expected, name))
        for name, gradient in gradients.items():
            torch.testing.assert_close(gradient[i], expected_gradients[name])


@pytest.mark.parametrize("case", CASES)
def test_terms_begin_with_loss_reconstruction_kl(ensemble, case):
    learners, given, weights, options = ensemble(case, "diagonal")
    terms, _ = stacked(learners, given, weights, options)
    assert terms._fields[:3] == ("loss", "reconstruction", "kl")
    assert all(value.shape == (MEMBERS,) and value.dtype == torch.float64 for value in terms)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("posterior", ["diagonal", "full"])
@pytest.mark.parametrize("case", CASES)
def test_a_captured_step_equals_an_eager_one(ensemble, case, posterior):
    learners, given, weights, options = ensemble(case, posterior)
    learners = [learner.cuda() for learner in learners]
    given = [value.cuda() for value in given]
    weights = {name: value.cuda() for name, value in weights.items()}
    options = {name: value.cuda() if isinstance(value, Tensor) else value for name, value in options.items()}
    parameters, buffers = stack_module_state(learners)

    def step():
        def one(parameters, buffers, weights, x, noise, keys):
            return functional_call(learners[0], (parameters, buffers), (x, noise, keys, weights, options))

        terms = vmap(one)(parameters, buffers, weights, *given)
        return torch.autograd.grad(terms.loss.sum(), list(parameters.values()), materialize_grads=True)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            expected = [value.clone() for value in step()]
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    graph.replay()
    torch.testing.assert_close(list(found), expected)
