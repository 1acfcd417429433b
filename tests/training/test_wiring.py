"""Training end to end against a loop of plain torch: objectives, optimisers, streams, members and history."""

import dataclasses
import functools
import importlib

import pytest
import torch

import unseam
from unseam import objectives
from unseam.training import Trial, learner, minibatches, normals, split_items, uniforms

SMALL = Trial(
    world="linear",
    likelihood="gaussian",
    latent=2,
    encoder_widths=(5,),
    decoder_widths=(5,),
    precision="float64",
    beta=0.7,
    learning_rate=0.02,
    batch_size=8,
    steps=7,
)
EVERY = 3
DIP = {"lambda_od": 2.0, "lambda_d": 3.0}
CASES = {
    "beta_elbo": {},
    "annealed_capacity": {"beta": 1.0, "gamma": 9.0, "capacity": 4.0, "capacity_steps": 5},
    "beta_tcvae": {},
    "dip_vae_i": DIP,
    "dip_vae_ii": DIP,
    "factor_vae": {"gamma": 6.0, "discriminator_rate": 0.005},
    "orthogonal_elbo": {"orthogonality": 0.5},
}


@pytest.fixture(scope="module")
def world():
    return unseam.data.load("linear", size=50)


def terms_of(trial, member, x, noise, keys, step, size):
    """The objective called as its documentation has it, by its own name and weights."""
    name, weights = trial.objective, {"beta": trial.beta}
    if name == "annealed_capacity":
        weights = {
            "gamma": trial.gamma, "capacity": trial.capacity, "capacity_steps": trial.capacity_steps,
            "step": torch.tensor(step, dtype=torch.float64),
        }  # fmt: skip
    elif name == "beta_tcvae":
        weights["size"] = size
    elif name.startswith("dip_vae"):
        name, form = "dip_vae", name.removeprefix("dip_vae_")
        weights |= {"lambda_od": trial.lambda_od, "lambda_d": trial.lambda_d, "form": form}
    elif name == "factor_vae":
        return objectives.factor_vae(
            member.model, member.discriminator, x, noise, keys, beta=trial.beta, gamma=trial.gamma
        )
    elif name == "orthogonal_elbo":
        weights["orthogonality"] = trial.orthogonality
    return getattr(objectives, name)(member.model, x, noise, **weights)


def by_hand(trial, world):
    """Weights after a plain loop, and means of the terms over the steps between two records."""
    train = split_items(trial, len(world)).train
    member = learner(trial, world.shape, size=len(train))
    optimisers = [torch.optim.Adam(member.model.parameters(), lr=trial.learning_rate)]
    if member.discriminator is not None:  # Kim & Mnih 2018, Suppl. A
        rate, own = trial.discriminator_rate, member.discriminator.parameters()
        optimisers.append(torch.optim.Adam(own, lr=rate, betas=(0.5, 0.9)))
    seeds, steps = torch.tensor([trial.seed]), torch.arange(trial.steps)
    shape = (trial.batch_size, trial.latent)
    index = train[minibatches(seeds, steps, trial.batch_size, len(train))[:, 0]]
    noise, keys = normals(seeds, steps, shape)[:, 0].double(), uniforms(seeds, steps, shape)[:, 0]
    seen, records = [], {}
    for step in range(trial.steps):
        x = world.images(index[step]).double()
        terms = terms_of(trial, member, x, noise[step], keys[step], step, len(train))
        for optimiser in optimisers:
            optimiser.zero_grad()
        terms.loss.backward()
        for optimiser in optimisers:
            optimiser.step()
        seen.append(terms)
        if (step + 1) % EVERY == 0 or step + 1 == trial.steps:
            names = terms._fields
            records[step + 1] = {
                name: sum(getattr(t, name).item() for t in seen) / len(seen) for name in names
            }
            seen = []
    return member, records


@pytest.mark.parametrize("objective", CASES)
def test_members_are_trained_as_a_plain_loop_trains_them(objective, world, monkeypatch):
    """Weights and history of members in the order they were given, each with its seed and its own latents."""
    module = importlib.import_module("unseam.objectives.factor_vae")
    monkeypatch.setattr(
        module, "Discriminator", functools.partial(objectives.Discriminator, width=6, depth=2)
    )
    one = dataclasses.replace(SMALL, objective=objective, **CASES[objective])
    other = {"latent": 3} if objective in ("beta_elbo", "dip_vae_ii") else {"beta": one.beta}
    trials = [one, dataclasses.replace(one, seed=1, **other), dataclasses.replace(one, seed=2)]
    ensemble = unseam.train(trials, world=world, every=EVERY, device="cpu")
    for number, trial in enumerate(trials):
        member, records = by_hand(trial, world)
        found = ensemble[number].state_dict()
        for name, value in member.model.state_dict().items():
            torch.testing.assert_close(found[name], value, rtol=0, atol=1e-9)
        rows = ensemble.history[ensemble.history["member"] == number].set_index("step")
        assert list(rows.index) == list(records)
        for step, wanted in records.items():
            assert rows.loc[step, list(wanted)].to_dict() == pytest.approx(wanted, rel=1e-9, abs=1e-9)


def test_a_part_of_the_items_is_trained_on_by_the_seed_of_the_split(world):
    trials = [dataclasses.replace(SMALL, train_fraction=0.6, split_seed=seed) for seed in (0, 4)]
    parts = [split_items(trial, len(world)) for trial in trials]
    assert not torch.equal(parts[0].train, parts[1].train)
    for trial in trials:
        member, _ = by_hand(trial, world)
        found = unseam.train(trial, world=world, device="cpu")[0].state_dict()
        for name, value in member.model.state_dict().items():
            torch.testing.assert_close(found[name], value, rtol=0, atol=1e-9)


def test_noise_keys_and_orders_are_streams_of_their_own():
    """Of the same hashed bits, a key would be what the length of the noise beside it is made from."""
    seeds, steps, shape = torch.arange(3), torch.arange(4), (64, 2)
    noise = normals(seeds, steps, shape).flatten(2)
    radius = torch.exp(-(noise[..., :64].square() + noise[..., 64:].square()).double() / 2)
    assert not torch.allclose(radius, uniforms(seeds, steps, shape).flatten(2)[..., :64].double(), atol=1e-3)


def test_draws_are_those_of_earlier_versions():
    """A trial's seed means the same minibatches and noise in every version that can resume it."""
    seeds, steps = torch.tensor([3]), torch.arange(2)
    assert minibatches(seeds, steps, 4, 8).flatten().tolist() == [0, 1, 2, 6, 3, 5, 4, 7]
    assert minibatches(seeds, steps, 4, 100).flatten().tolist() == [44, 11, 3, 17, 96, 40, 95, 21]
    assert normals(seeds, steps, (1, 2)).flatten().tolist() == pytest.approx(
        [0.242182, -0.009301, -1.08399, 0.673962], abs=1e-6
    )
    assert uniforms(seeds, steps, (1, 2)).flatten().tolist() == pytest.approx(
        [0.96657, 0.110717, 0.237005, 0.198537], abs=1e-6
    )


def test_networks_of_ones_own_are_those_that_are_trained(world, tmp_path, monkeypatch):
    (tmp_path / "own_networks.py").write_text(
        "from torch import nn\n"
        "def encoder(shape, features):\n"
        "    return nn.Sequential(nn.Linear(shape[0], 7), nn.ELU(), nn.Linear(7, features))\n"
        "def decoder(latent, shape):\n"
        "    return nn.Sequential(nn.Linear(latent, 9), nn.ELU(), nn.Linear(9, shape[0]))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    trial = Trial(world="linear", likelihood="gaussian", latent=2, steps=2, batch_size=8)
    own = {"encoder": "own_networks:encoder", "decoder": "own_networks:decoder"}
    model = unseam.train(trial, world=world, out=tmp_path / "run", **own)[0]
    again = unseam.load(tmp_path / "run", trust=True)[0]
    for found in (model, again):
        assert [layer.out_features for layer in found.encoder if hasattr(layer, "out_features")] == [7, 4]
        assert [layer.out_features for layer in found.decoder if hasattr(layer, "out_features")] == [9, 3]
