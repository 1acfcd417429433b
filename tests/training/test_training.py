"""The stacked loop: independence of members, agreement with an eager loop, divergence, every objective."""

import dataclasses

import pytest
import torch

import unseam
from unseam import choices
from unseam.training import (
    DivergenceWarning,
    Trial,
    learner,
    make_step,
    minibatches,
    normals,
    stack_trials,
    training_index,
    training_steps,
)
from unseam.training.stack import ALIGNED
from unseam.training.step import _finite, _gathered, _gathered_on_host

SMALL = Trial(
    world="nonlinear",
    likelihood="gaussian",
    latent=2,
    encoder_widths=(12,),
    decoder_widths=(12,),
    beta=1e-3,
    batch_size=16,
    steps=200,
)


@pytest.fixture(scope="module")
def world():
    return unseam.data.load("nonlinear", size=500)


def trained(trials, world):
    stack = stack_trials(trials, world.shape, size=len(world))
    for _ in training_steps(stack, world):
        pass
    return stack


@pytest.mark.parametrize("objective", ["beta_elbo", "beta_tcvae"])
def test_a_member_does_not_depend_on_its_stack(objective, world):
    trial = dataclasses.replace(SMALL, objective=objective, seed=5, beta=0.01)
    others = [dataclasses.replace(SMALL, objective=objective, seed=s, beta=0.1 * s) for s in range(31)]
    alone, together = trained([trial], world), trained([*others[:11], trial, *others[11:]], world)
    torch.testing.assert_close(together.flat[11], alone.flat[0], rtol=0, atol=1e-5)


def test_a_diverging_member_leaves_the_others_untouched(world):
    calm = [dataclasses.replace(SMALL, seed=s, optimiser="sgd", learning_rate=1e-3) for s in range(3)]
    wild = dataclasses.replace(calm[0], seed=9, learning_rate=1e6)
    with pytest.warns(DivergenceWarning, match=r"member 1 stopped at step \d+.*learning_rate=1000000.0"):
        mixed = unseam.train([calm[0], wild, *calm[1:]], world=world)
    kept = unseam.train(calm, world=world)
    assert list(mixed.stopped) == [1]
    assert 1 <= mixed.stopped[1] <= 200
    assert mixed.stacks[0].flat.isfinite().all()
    torch.testing.assert_close(mixed.stacks[0].flat[[0, 2, 3]], kept.stacks[0].flat, rtol=0, atol=1e-6)


def test_stack_follows_an_eager_loop(world):
    """Same weights as an ordinary module trained by ``torch.optim`` on the same batches and noise."""
    trial = dataclasses.replace(SMALL, seed=3, precision="float64", steps=30)
    stack = trained([trial], world)
    member = learner(trial, world.shape, size=len(world))
    optimiser = torch.optim.Adam(member.parameters(), lr=trial.learning_rate)
    seeds, steps = torch.tensor([3]), torch.arange(30)
    index = minibatches(seeds, steps, trial.batch_size, len(world))[:, 0]
    noise = normals(seeds, steps, (trial.batch_size, trial.latent))[:, 0].double()
    for turn in range(30):
        optimiser.zero_grad()
        x = world.images(index[turn]).double()
        member(x, noise[turn], None, torch.tensor(0.0), {"beta": trial.beta}).loss.backward()
        optimiser.step()
    for name, value in member.named_parameters():
        torch.testing.assert_close(stack.parameters[name][0], value, rtol=0, atol=1e-12)


@pytest.mark.parametrize("optimiser", ["adam", "adagrad", "sgd"])
def test_optimisers_lower_the_loss(optimiser, world):
    trial = dataclasses.replace(SMALL, optimiser=optimiser, learning_rate=1e-2, steps=100)
    history = unseam.train(trial, world=world, every=10).history
    assert history["loss"].iloc[-1] < history["loss"].iloc[0]


@pytest.mark.parametrize("objective", choices.built_in(choices.Objective))
def test_every_objective_trains_members_with_weights_of_their_own(objective, world):
    posterior = "point" if objective == "autoencoder" else "diagonal"
    trial = dataclasses.replace(SMALL, objective=objective, posterior=posterior, steps=20, beta=1.0)
    zero = {"beta", "gamma", "lambda_od", "orthogonality"} & trial.values(trial.objective_choice).keys()
    trials = [trial, dataclasses.replace(trial, **dict.fromkeys(zero, 0.0))]
    ensemble = unseam.train(trials, world=world, every=5)
    assert ensemble.stopped == {}
    assert ensemble.history["loss"].notna().all()
    flat = ensemble.stacks[0].flat
    assert torch.equal(flat[0], flat[1]) == (objective == "autoencoder")


@pytest.mark.parametrize("posterior", ["diagonal", "full", "point"])
@pytest.mark.parametrize(
    "likelihood",
    ["gaussian", "gaussian_learned", "gaussian_pixel", "bernoulli", "binomial", "continuous_bernoulli"],
)
def test_every_posterior_and_likelihood_trains(posterior, likelihood):
    world = unseam.data.load("sprites", resolution=16, scales=2, orientations=2, positions=4)
    trial = Trial(
        posterior=posterior,
        likelihood=likelihood,
        latent=3,
        encoder_widths=(8,),
        decoder_widths=(8,),
        steps=5,
    )
    ensemble = unseam.train(trial, world=world)
    assert ensemble.stopped == {}
    assert ensemble.reconstruct(world.images(torch.arange(3))).shape == (1, 3, 1, 16, 16)


@pytest.mark.parametrize("architecture", ["study", "bhowal_faces", "bhowal_shapes"])
def test_convolutional_members_do_not_depend_on_their_stack(architecture):
    world = unseam.data.load("sprites", scales=2, orientations=2, positions=4)
    trial = Trial(architecture=architecture, latent=3, batch_size=4, steps=3, seed=2, precision="float64")
    alone, together = trained([trial], world), trained([dataclasses.replace(trial, seed=1), trial], world)
    torch.testing.assert_close(together.flat[1], alone.flat[0], rtol=0, atol=1e-9)
    for name, value in alone.buffers.items():
        torch.testing.assert_close(together.buffers[name][1], value[0], rtol=0, atol=1e-9)
    fresh = stack_trials([trial], world.shape, size=len(world)).buffers
    moved = [name for name in fresh if not torch.equal(fresh[name], alone.buffers[name])]
    assert bool(moved) == (architecture != "study")


def test_bf16_follows_full_precision(world):
    """It goes the same way: apart by a small part of the way gone."""
    full, half = (trained([dataclasses.replace(SMALL, precision=p)], world) for p in ("float32", "bf16"))
    start = stack_trials([SMALL], world.shape, size=len(world)).flat
    assert half.flat.dtype == torch.float32
    apart = (half.flat - full.flat).norm() / (full.flat - start).norm()
    assert 0 < apart < 0.02


def test_only_the_training_part_is_seen(world):
    trial = dataclasses.replace(SMALL, train_fraction=0.5, split_seed=3, steps=20)
    part = training_index(trial, len(world))
    seen = []
    stack = stack_trials([trial], world.shape, size=len(part))
    watched = unseam.data.load("nonlinear", size=500)
    images = watched.images
    watched.images = lambda index: (seen.append(index), images(index))[1]
    for _ in training_steps(stack, watched):
        pass
    assert set(torch.cat(seen).tolist()) == set(part.tolist())


def test_training_leaves_the_global_generator_alone(world):
    before = torch.random.get_rng_state()
    trained([dataclasses.replace(SMALL, steps=3)], world)
    assert torch.equal(before, torch.random.get_rng_state())


def test_precision_is_restored(world):
    before = torch.backends.cuda.matmul.fp32_precision
    trained([dataclasses.replace(SMALL, steps=3)], world)
    assert torch.backends.cuda.matmul.fp32_precision == before


def test_step_on_given_indices(world):
    stack = stack_trials([SMALL], world.shape, size=len(world))
    before = stack.flat.clone()
    make_step(stack, world)(torch.arange(16)[None], torch.zeros(1, 16, 2), None)
    assert not torch.equal(before, stack.flat)


@pytest.mark.parametrize(
    ("trials", "options", "message"),
    [
        ([], {}, "trials must hold at least one trial, got none"),
        (["beta"], {}, "trials must hold Trial values, got str"),
        ([SMALL], {"every": 0}, "every must be a whole number of at least 1, got 0"),
        ([SMALL], {"every": 1.5}, "every must be a whole number of at least 1, got 1.5"),
        ([SMALL], {"device": "gpu"}, "device must be cpu or cuda"),
        ([SMALL], {"resume": True}, "resume needs out"),
        ([dataclasses.replace(SMALL, train_fraction=1e-9)], {}, "leaves nothing of 500 items"),
        ([dataclasses.replace(SMALL, likelihood="bernoulli")], {}, r"(?i)bernoulli"),
        (
            [Trial(world="nonlinear", likelihood="gaussian", architecture="study")],
            {},
            "study needs 64x64 pictures",
        ),
    ],
)
def test_bad_input(trials, options, message, world):
    with pytest.raises(ValueError, match=message):
        unseam.train(trials, world=world, **options)


def test_an_update_that_overflows_is_taken_back(world):
    trial = dataclasses.replace(SMALL, optimiser="sgd", learning_rate=3e38, steps=3)
    stack = trained([trial, dataclasses.replace(trial, learning_rate=1e-4)], world)
    assert stack.alive.tolist() == [False, True]
    assert stack.flat.isfinite().all()


def test_overflowing_optimiser_state_stops_a_member(world):
    trial = dataclasses.replace(SMALL, optimiser="adagrad", likelihood_variance=1e-24, steps=5)
    stack = trained([trial], world)
    assert stack.alive.tolist() == [False]


def test_statistics_of_a_stopped_member_stay_finite():
    world = unseam.data.load("sprites", scales=2, orientations=2, positions=4)
    trial = Trial(
        architecture="bhowal_shapes", latent=3, batch_size=4, steps=6, optimiser="sgd", learning_rate=1e6
    )
    stack = trained([trial, dataclasses.replace(trial, learning_rate=1e-4)], world)
    assert stack.alive.tolist() == [False, True]
    assert all(value.isfinite().all() for value in stack.buffers.values())


def test_measuring_between_records_does_not_disturb_training():
    world = unseam.data.load("sprites", scales=2, orientations=2, positions=4)
    trial = Trial(architecture="bhowal_shapes", latent=3, batch_size=4, steps=4)
    plain = trained([trial], world)
    stack = stack_trials([trial], world.shape, size=len(world))
    ensemble = unseam.Ensemble((trial,), world.shape, (stack,), ((0,),), None, {})
    for _ in training_steps(stack, world, every=1):
        ensemble.encode(world.images(torch.arange(3)))
    assert torch.equal(stack.flat, plain.flat)
    assert all(torch.equal(value, plain.buffers[name]) for name, value in stack.buffers.items())


def test_world_must_be_a_world():
    with pytest.raises(ValueError, match="world must be a World .*, got int"):
        unseam.train(SMALL, world=5)


def test_parameters_start_where_products_read_fast(world):
    """Whole cache lines, for every member; what lies between parameters stays zero."""
    trial = dataclasses.replace(SMALL, encoder_widths=(7, 5), decoder_widths=(5, 7), steps=5)
    stack = trained([trial, dataclasses.replace(trial, seed=1)], world)
    step = ALIGNED * stack.flat.element_size()
    assert all(
        (value[1].data_ptr() - stack.flat.data_ptr()) % step == 0 for value in stack.parameters.values()
    )
    unused = torch.ones(stack.flat.shape[1], dtype=torch.bool)
    unused[stack.columns] = False
    assert unused.sum() > 0 and (stack.flat[:, unused] == 0).all()
    assert len(stack.columns) == sum(value[0].numel() for value in stack.parameters.values())


@pytest.mark.parametrize("threads", [2, 4])
def test_threads_change_no_bit(threads, world):
    trial = dataclasses.replace(
        SMALL, encoder_widths=(64, 64), decoder_widths=(64, 64), batch_size=256, steps=20
    )
    trials = [dataclasses.replace(trial, seed=seed) for seed in range(3)]
    one = trained(trials, world).flat
    try:
        torch.set_num_threads(threads)
        several = trained(trials, world).flat
    finally:
        torch.set_num_threads(1)
    assert torch.equal(several, one)


@pytest.mark.parametrize("value", [200.0, float("nan")])
def test_every_item_trained_on_is_checked_against_the_likelihood(value):
    items = torch.rand(900, 4, generator=torch.Generator().manual_seed(0))
    items[700, 2] = value
    world = unseam.data.ArrayWorld(items, torch.zeros(900, 0), name="own", factor_names=(), factor_sizes=())
    trial = Trial(likelihood="bernoulli", latent=2, encoder_widths=(4,), decoder_widths=(4,), steps=2)
    with pytest.raises(ValueError, match="bernoulli"):
        unseam.train(trial, world=world)


def test_rows_are_finite_however_large():
    rows = torch.ones(4, 9)
    # the first has no length in single precision
    rows[1, 3], rows[2, 4], rows[3, 5] = 3e38, torch.inf, torch.nan
    assert _finite(rows).tolist() == [True, True, False, False]


@pytest.mark.parametrize("large", [0, 1 << 14, 1 << 62])
@pytest.mark.parametrize("architecture", ["mlp", "study"])
def test_gradients_on_a_host_lie_as_parameters_do(architecture, large, monkeypatch):
    monkeypatch.setattr("unseam.training.step.LARGE", large)
    trials = [Trial(architecture=architecture, latent=2, seed=seed) for seed in range(2)]
    stack = stack_trials(trials, (1, 64, 64), size=4)
    x, noise = torch.rand(2, 3, 1, 64, 64), torch.zeros(2, 3, 2)
    loss = stack.terms(x, noise, None).loss.sum()
    gradients = torch.autograd.grad(loss, list(stack.parameters.values()))
    torch.testing.assert_close(_gathered_on_host(stack, gradients), _gathered(gradients), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_every_item_of_a_world_of_ones_own_is_checked(dtype):
    class Own(unseam.data.World):
        name, shape, factor_names, factor_sizes, options = "own", (4,), (), (), {}
        factors, device = torch.zeros(900, 0), torch.device("cpu")

        def __len__(self):
            return 900

        def images(self, index):
            return torch.full((len(index), 4), 0.5).where((index != 899)[:, None], torch.nan)

        def to(self, device):
            return self

    world = Own()
    world.dtype = dtype
    trial = Trial(likelihood="bernoulli", latent=2, encoder_widths=(4,), decoder_widths=(4,), steps=2)
    with pytest.raises(ValueError, match="bernoulli"):
        unseam.train(trial, world=world, device="cpu")
