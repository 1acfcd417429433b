"""Members trained as one stack against the same trainings one after another in a plain eager loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap

from benchmarks.timing import seconds_per_call
from unseam import data, objectives
from unseam.data import World
from unseam.models import VAE
from unseam.training import Trial, learner, stack_trials, training_steps

__all__ = ["eager_seconds", "ensembles"]

NETS = {
    "rolinek2019 non-linear": Trial(
        world="nonlinear",
        likelihood="gaussian",
        latent=2,
        encoder_widths=(60, 40, 20),
        decoder_widths=(60, 40, 20),
        encoder_activation="tanh",
        decoder_activation="tanh",
        beta=1e-3,
        batch_size=100,
    ),
    "sikka2019 deep": Trial(
        world="mixture",
        likelihood="gaussian",
        latent=10,
        encoder_widths=(256, 200, 200),
        decoder_widths=(200, 200, 256),
        encoder_activation="tanh",
        decoder_activation="tanh",
        batch_size=100,
    ),
}
WIDE = Trial(
    world="sprites",
    latent=5,
    encoder_widths=(1200, 1200),
    decoder_widths=(1200, 1200, 1200),
    beta=4.0,
    optimiser="adagrad",
    learning_rate=1e-2,
    accumulator=0.1,
    batch_size=1000,
    precision="bf16",
)
"""Of rolinek2019 on sprites: too wide for a CPU."""
PEER = 8
"""Members of the stack by torch alone."""
MEMBERS = {"cpu": (1, 8, 64), "cuda": (1, 64, 100, 1000, 3000)}


def ensembles(device: torch.device) -> Iterator[dict[str, Any]]:
    """One row per network and number of members: member-steps per second, and how many times the eager loop's."""
    for name, trial in NETS.items():
        world = data.place(data.load(trial.world), device)
        eager = 1.0 / eager_seconds(trial, world, device, calls=200)
        yield {"net": name, "members": "one after another, eager", "member-steps/s": eager, "ratio": 1.0}
        for members in MEMBERS[device.type]:
            rate = members / _stacked(trial, world, device, members)
            yield {"net": name, "members": members, "member-steps/s": rate, "ratio": rate / eager}
        for compiled in (False, True):
            words = f"{PEER}, torch.func" + (" and torch.compile" if compiled else "")
            rate = PEER / functional_seconds(trial, world, device, PEER, compiled=compiled, calls=50)
            yield {"net": name, "members": words, "member-steps/s": rate, "ratio": rate / eager}
    if device.type == "cuda":
        yield from _wide(device)


def _wide(device: torch.device) -> Iterator[dict[str, Any]]:
    """Layers, likelihood and update in few passes against the framework's own layers in the same stack."""
    world = data.place(data.load(WIDE.world), device)
    for members in (10, 30):
        plain, ours = (
            members / _stacked(WIDE, world, device, members, products=way) for way in (False, True)
        )
        for words, rate in ((f"{members}, layers of the framework", plain), (members, ours)):
            yield {
                "net": "rolinek2019 sprites, bf16",
                "members": words,
                "member-steps/s": rate,
                "ratio": rate / plain,
            }


def eager_seconds(trial: Trial, world: World, device: torch.device, *, calls: int) -> float:
    """Seconds per step of the loop that everybody writes: random batch, loss, backward, ``torch.optim``."""
    model = learner(trial, world.shape, size=len(world)).model.to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=trial.learning_rate)
    generator = torch.Generator(device=device).manual_seed(trial.seed)

    def step() -> None:
        index = torch.randint(len(world), (trial.batch_size,), device=device, generator=generator)
        noise = torch.randn(trial.batch_size, trial.latent, device=device, generator=generator)
        optimiser.zero_grad()
        objectives.beta_elbo(model, world.images(index), noise, beta=trial.beta).loss.backward()
        optimiser.step()

    return seconds_per_call(step, device=device, calls=calls, warm_up=max(2, calls // 10))


def functional_seconds(
    trial: Trial, world: World, device: torch.device, members: int, *, compiled: bool, calls: int
) -> float:
    """Seconds per step of ``stack_module_state`` and ``vmap`` with one ``torch.optim``, as torch's manual has it."""
    models = [
        _Loss(learner(dataclasses.replace(trial, seed=seed), world.shape, size=len(world)).model, trial.beta)
        for seed in range(members)
    ]
    parameters, buffers = stack_module_state([model.to(device) for model in models])
    optimiser = torch.optim.Adam(parameters.values(), lr=trial.learning_rate)
    generator = torch.Generator(device=device).manual_seed(trial.seed)

    def loss(parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor, noise: Tensor) -> Tensor:
        found: Tensor = functional_call(models[0], (parameters, buffers), (x, noise))
        return found

    gradients = vmap(grad(loss))
    gradients = torch.compile(gradients) if compiled else gradients

    def step() -> None:
        index = torch.randint(len(world), (members, trial.batch_size), device=device, generator=generator)
        noise = torch.randn(members, trial.batch_size, trial.latent, device=device, generator=generator)
        x = world.images(index.flatten()).unflatten(0, index.shape)
        for name, value in gradients(parameters, buffers, x, noise).items():
            parameters[name].grad = value
        optimiser.step()

    return seconds_per_call(step, device=device, calls=calls, warm_up=3)


class _Loss(nn.Module):
    """A model as a module that returns its loss, for ``functional_call``."""

    def __init__(self, model: VAE, beta: float) -> None:
        super().__init__()
        self.model, self.beta = model, beta

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        return objectives.beta_elbo(self.model, x, noise, beta=self.beta).loss


def _stacked(
    trial: Trial, world: World, device: torch.device, members: int, *, products: bool | None = None
) -> float:
    """Seconds per step of the visible loop, everything included: drawing, updates, records."""
    every = 100 if device.type == "cuda" else 20
    trials = [dataclasses.replace(trial, seed=seed, steps=10 * every) for seed in range(members)]
    stack = stack_trials(trials, world.shape, size=len(world), device=device, products=products)
    records = training_steps(stack, world, every=every)
    return seconds_per_call(lambda: next(records), device=device, calls=1, warm_up=2) / every
