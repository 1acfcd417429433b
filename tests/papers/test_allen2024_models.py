"""The measuring code of allen2024's artefacts of trained models, against closed forms and brute force."""

import itertools
import math

import pandas as pd
import pytest
import torch

from unseam.geometry import pullback
from unseam.models import build, initialise
from unseam.objectives import beta_elbo, deterministic_elbo
from unseam.papers import artefacts
from unseam.papers.allen2024 import (
    _members,
    corollary31,
    identifiability,
    linear_vae,
    optimal_precision,
    theorem3,
)
from unseam.papers.allen2024 import (
    deterministic_elbo as deterministic,
)
from unseam.papers.artefact import Workplace
from unseam.theory import linear_vae as closed_form
from unseam.training import train
from unseam.trial import Trial

F64 = torch.float64


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def signed_permutations(latent):
    for order in itertools.permutations(range(latent)):
        for signs in itertools.product((-1.0, 1.0), repeat=latent):
            yield torch.eye(latent, dtype=F64)[list(order)] * torch.tensor(signs, dtype=F64)


@pytest.fixture(scope="module")
def linear_ensemble():
    """Untrained but for a step: affine models of both posteriors."""
    trial = Trial(
        world="mixture",
        likelihood="gaussian",
        latent=2,
        encoder_widths=(),
        decoder_widths=(),
        steps=1,
        batch_size=4,
    )
    world = _members.exact_sample(torch.eye(3, dtype=F64), 50, torch.Generator().manual_seed(0))
    return {
        posterior: train(
            [Trial(**{**vars(trial), "posterior": posterior, "seed": seed}) for seed in range(2)],
            world=world,
            device="cpu",
            progress=False,
        )
        for posterior in ("diagonal", "full")
    }


# Shared by the artefacts


def test_alignment_is_the_best_of_all_signed_permutations():
    weights, target = normal(5, 6, 3), normal(6, 3, seed=1)
    found = _members.relative_distance(_members.align_columns(weights, target), target)
    every = torch.stack(
        [_members.relative_distance(weights @ turn, target) for turn in signed_permutations(3)]
    )
    torch.testing.assert_close(found, every.amin(0))


def test_alignment_and_rotation_undo_what_they_should():
    target = normal(6, 3)
    turn = list(signed_permutations(3))[17]
    assert float(_members.relative_distance(_members.align_columns(target @ turn, target), target)) < 1e-12
    rotation = torch.linalg.qr(normal(3, 3, seed=2)).Q
    assert (
        float(_members.relative_distance(_members.rotate_columns(target @ rotation, target), target)) < 1e-12
    )
    assert float(_members.relative_distance(_members.align_columns(target @ rotation, target), target)) > 0.1


def test_no_rotation_is_closer_than_procrustes():
    weights, target = normal(6, 3), normal(6, 3, seed=1)
    found = _members.relative_distance(_members.rotate_columns(weights, target), target)
    turns = torch.linalg.qr(normal(2000, 3, 3, seed=2)).Q
    assert (_members.relative_distance(weights @ turns, target) >= found).all()


def test_a_sample_has_the_covariance_asked_for():
    root = normal(4, 4)
    covariance = root @ root.mT + torch.eye(4, dtype=F64)
    world = _members.exact_sample(covariance, 300, torch.Generator().manual_seed(3))
    x = world.images(torch.arange(300)).double()
    torch.testing.assert_close(x.mean(0), torch.zeros(4, dtype=F64), rtol=0, atol=1e-6)
    torch.testing.assert_close(x.mT @ x / 300, covariance, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 0.75, 0.25], 10**1.5),
        ([0.2, 0.6, 0.4], 10**1.5),
        ([0.4, 0.3, 0.2], 0.0),
        ([0.2, 0.2, 0.9], math.inf),
    ],
)
def test_last_crossing_of_a_half(values, expected):
    assert _members.last_crossing([1.0, 10.0, 100.0], values, 0.5) == pytest.approx(expected)
    assert _members.last_crossing([100.0, 10.0, 1.0], values[::-1], 0.5) == pytest.approx(expected)


def test_probes_give_the_decoders_matrix(linear_ensemble):
    weights, offset = _members.decoder_matrices(linear_ensemble["diagonal"])
    layer = linear_ensemble["diagonal"][1].decoder.layers[-1]
    torch.testing.assert_close(weights[1], layer.weight.detach().double(), rtol=0, atol=1e-6)
    torch.testing.assert_close(offset[1], layer.bias.detach().double(), rtol=0, atol=1e-6)


# linear_vae


@pytest.mark.parametrize("posterior", ["diagonal", "full"])
def test_elbo_of_affine_models_is_the_mean_of_sampled_ones(linear_ensemble, posterior):
    ensemble = linear_ensemble[posterior]
    x = normal(3, 3).float()
    found = linear_vae._elbo(ensemble, *_members.decoder_matrices(ensemble), x.double())
    noise = torch.randn(100_000, 2, generator=torch.Generator().manual_seed(5))
    for member in range(2):
        each = [beta_elbo(ensemble[member], item.expand(len(noise), 3), noise).loss.item() for item in x]
        assert found[member].item() == pytest.approx(-sum(each) / 3, abs=0.02)


def test_the_closed_form_has_no_distance_and_a_turn_of_it_has():
    covariance = torch.diag(torch.tensor([9.0, 4.0, 1.0, 1.0], dtype=F64))
    best = closed_form(covariance, 2, noise=1.0)
    turn = torch.tensor([[0.6, -0.8], [0.8, 0.6]], dtype=F64)
    weights = torch.stack([best.weights.flip(1) * torch.tensor([1.0, -1.0]), best.weights @ turn])
    rows = linear_vae._rows("", weights, best, torch.zeros(2))
    assert rows["signed permutation"][0] < 1e-12 and rows["dto"][0] < 1e-6
    assert rows["signed permutation"][1] > 0.3 and rows["rotation"].max() < 1e-12


# deterministic_elbo


def make_model(**options):
    model = build((4,), latent=2, encoder_widths=(5,), **{"decoder_widths": (6,), **options}).double()
    initialise(model, generator=torch.Generator().manual_seed(0))
    return model


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli"])
def test_terms_of_the_gap_are_those_of_the_objectives(likelihood):
    model, x = make_model(likelihood=likelihood), normal(3, 4).sigmoid()
    draws = normal(400, 3, 2, seed=1)
    found = deterministic._terms(model, x, draws)
    exact = deterministic_elbo(model, x, draws[0])
    assert found["deterministic"] == pytest.approx(-exact.loss.item())
    assert found["regularisation"] == pytest.approx(exact.regularisation.item())
    with torch.no_grad():
        sampled = beta_elbo(model, x.repeat(20_000, 1), normal(60_000, 2, seed=2)).loss
    assert found["sampled"] == pytest.approx(-sampled.item(), abs=0.03)
    assert found["gap"] == pytest.approx(found["deterministic"] - found["sampled"])


def test_residual_closes_the_gap_to_higher_order():
    """With a narrow posterior the exact Hessian leaves nothing; the Gauss–Newton one leaves the residual."""
    model, x = make_model(likelihood="gaussian"), normal(3, 4)
    with torch.no_grad():
        model.encoder.layers[-1].weight[2:] = 0
        model.encoder.layers[-1].bias[2:] = -10.0
    found = deterministic._terms(model, x, normal(400, 3, 2, seed=1))
    assert found["size with the exact Hessian"] < 0.1 * found["size of the gap"]
    assert found["size of the gap"] == pytest.approx(found["size of the residual"], rel=0.1)


def test_a_shorter_trial_is_the_same_training_stopped_earlier():
    trial = Trial(world="linear", likelihood="gaussian", latent=2, batch_size=8, encoder_widths=(4,), steps=3)
    longer = Trial(**{**vars(trial), "steps": 6})
    every = train([trial, longer], device="cpu", every=3, progress=False).history
    last = every[every["step"] == 3].sort_values("member")["loss"].to_numpy()
    assert last[0] == last[1]


def training(curve, seeds=4):
    """A table in which the dropped term and the gap run along a curve, in units of the regularisation."""
    rows = [
        {"kind": kind, "steps": 10 * 2**place, "seed": seed, "regularisation": 2.0, "gap": 0.0}
        | {
            column: 2.0 * value * (1 + 0.01 * seed)
            for column in ("size of the gap", "size of the residual", "size with the exact Hessian")
        }
        for kind in deterministic.KINDS
        for place, value in enumerate(curve)
        for seed in range(seeds)
    ]
    return {"training": pd.DataFrame(rows)}


@pytest.mark.parametrize(
    ("curve", "size", "trend"),
    [
        ((8.0, 0.5, 0.05, 0.04), "agrees", "agrees"),
        ((8.0, 0.5, 0.04, 0.09), "agrees", "differs"),
        ((8.0, 4.0, 2.0, 1.0), "differs", "agrees"),
    ],
)
def test_a_late_rise_is_seen_beside_a_large_start(curve, size, trend):
    found = deterministic.DETERMINISTIC_ELBO.judge(training(curve))
    assert [one.outcome for one in found[:2]] == [size] * 2
    assert [one.outcome for one in found[2:6]] == [trend] * 4


# optimal_precision


@pytest.mark.parametrize("posterior", ["diagonal", "full"])
def test_precisions_are_those_of_eq_7(posterior):
    model, x = make_model(likelihood="bernoulli", posterior=posterior), normal(3, 4).sigmoid()
    found, optimum, _ = optimal_precision._precisions(model, x, normal(2, 3, 2), 2.0)
    code = model.encode(x)
    covariance = code.variance if posterior == "full" else code.variance.diag_embed()
    torch.testing.assert_close(found @ covariance.detach(), torch.eye(2, dtype=F64).expand(3, 2, 2))
    probability = model.decode(code.mean).sigmoid()
    columns = torch.stack(
        [torch.autograd.functional.jacobian(lambda z: model.decode(z[None])[0], mean) for mean in code.mean]
    )
    metric = columns.mT @ torch.diag_embed(probability * (1 - probability)) @ columns
    torch.testing.assert_close(optimum, (torch.eye(2, dtype=F64) + metric / 2).detach())


def test_agreement_of_a_matrix_with_itself_and_with_its_diagonal():
    root = normal(20, 3, 3)
    precision = root @ root.mT + torch.eye(3, dtype=F64)
    same = optimal_precision._agreement(precision, precision)
    assert same["correlation off the diagonal"] == pytest.approx(1)
    assert same["correlation of logarithms"] == pytest.approx(1)
    assert same["log ratio"] == 0
    diagonal = torch.diag_embed(precision.diagonal(dim1=-2, dim2=-1))
    other = optimal_precision._agreement(diagonal, precision)
    assert math.isnan(other["correlation off the diagonal"])
    root_of = precision.diagonal(dim1=-2, dim2=-1).sqrt()
    scaled = precision / (root_of[:, :, None] * root_of[:, None])
    expected = (scaled.abs().sum((1, 2)) - 3).mean() / 6
    assert other["size off the diagonal"] == pytest.approx(float(expected))


def test_at_the_optimum_of_a_linear_model_no_error_is_left():
    model, x = make_model(likelihood="gaussian", decoder_widths=()), normal(3, 4)
    metric = pullback(model.decode, torch.zeros(1, 2, dtype=F64), likelihood=model.likelihood)[0]
    with torch.no_grad():
        model.encoder.layers[-1].weight[2:] = 0
        model.encoder.layers[-1].bias[2:] = -(1 + metric.diagonal() / 3).log()
    *_, found = optimal_precision._precisions(model, x, normal(2, 3, 2), 3.0)
    assert found["diagonal"] < 1e-12 and found["diagonal, mean Hessian"] < 1e-12
    assert found["off the diagonal"] > 1e-3


# identifiability


@pytest.mark.parametrize("degrees", [0.0, 12.0, 33.0, 45.0])
def test_angle_of_a_known_turn(degrees):
    axes = torch.linalg.qr(normal(5, 2)).Q
    turn = math.radians(degrees)
    rotation = torch.tensor([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]], dtype=F64)
    scaled = (axes @ rotation) * torch.tensor([-3.0, 0.5], dtype=F64)
    angles = _members.angles_to(torch.nn.functional.normalize(scaled.flip(-1), dim=-2), axes)
    torch.testing.assert_close(angles, torch.full((2,), degrees, dtype=F64), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("angles", "expected"),
    [
        ((2, 12, 22, 33, 44), "cannot tell"),
        ((19, 21, 22, 24, 26), "agrees"),
        ((0, 1, 1, 2, 0), "differs"),
        ((44, 45, 44, 45, 44), "differs"),
    ],
)
def test_repeated_singular_values_are_random_rotations(angles, expected):
    linear = pd.DataFrame({"ratio": 1.0, "seed": range(5), "pair": angles})
    (found,) = identifiability.IDENTIFIABILITY.claims[1].judge({"linear": linear})
    assert found.outcome == expected


# theorem3


def test_objective_is_the_vaes_at_beta_times_the_variance():
    settings = artefacts()["allen2024.theorem3"].presets["smoke"]
    for form in (theorem3._linear(settings)[0], theorem3._sprites(settings)[1]):
        ensemble = train([form.roles[1]], world=form.world, device="cpu", progress=False)
        x = form.world.images(torch.arange(7))
        noise = normal(1, 7, form.roles[1].latent)
        found = theorem3._objective(form, ensemble, x, noise)
        model = ensemble[0].double()
        expected = beta_elbo(model, x.double(), noise[0]).loss
        zero = torch.zeros_like(model.decode(noise[0]))
        constant = -model.likelihood.log_prob(x.double(), x.double() if form.beta > 1 else zero)
        if form.beta < 1:  # what the counts alone contribute: at even odds every draw costs log 2
            constant = constant - settings.draws * math.log(2) * x[0].numel()
        assert found.item() == pytest.approx((expected - constant.mean()).item(), rel=1e-6)


def test_roles_share_what_they_should():
    settings = artefacts()["allen2024.theorem3"].presets["full"]
    for form in (*theorem3._linear(settings), *theorem3._sprites(settings)):
        tempered, plain, control = form.roles
        assert tempered.beta == pytest.approx(form.beta)
        assert plain.beta == control.beta == 1
        if tempered.likelihood == "gaussian":
            assert plain.likelihood_variance == form.beta * tempered.likelihood_variance
            assert control.likelihood_variance == tempered.likelihood_variance
        else:
            assert plain.likelihood_draws * form.beta == 1


def test_linear_forms_differ_in_their_optimiser_alone():
    """And SGD's rate in what the factor β of the objective takes from it: both follow one path."""
    adam, sgd = theorem3._linear(artefacts()["allen2024.theorem3"].presets["full"])
    for one, other in zip(adam.roles, sgd.roles, strict=True):
        apart = {field for field, value in one.to_dict().items() if other.to_dict()[field] != value}
        assert apart == {"optimiser", "momentum", "epsilon", "learning_rate"}
    assert torch.equal(adam.world.table, sgd.world.table)
    assert sgd.roles[0].learning_rate * sgd.beta == sgd.roles[1].learning_rate == sgd.roles[2].learning_rate


def test_mean_of_others_leaves_the_own_seed_out():
    distance = torch.tensor([[9.0, 1.0, 2.0], [3.0, 9.0, 4.0], [5.0, 6.0, 9.0]])
    assert theorem3._mean_of_others(distance).tolist() == [1.5, 3.5, 5.5]


def test_the_same_start_gives_the_same_model(tmp_path):
    settings = artefacts()["allen2024.theorem3"].presets["smoke"]
    pairs = theorem3.measure(settings, Workplace(torch.device("cpu"), tmp_path))["pairs"]
    assert pairs["same seed"].max() < 1e-5
    assert pairs["control, same seed"].min() > 1e-2


# corollary31


def test_worlds_have_the_correlations_that_the_thresholds_are_read_from():
    settings = corollary31.Settings(items=40_000)
    owners = torch.cat([torch.arange(2).repeat_interleave(4), torch.arange(2, 8)])
    same = owners[:, None] == owners
    for world, expected in (
        (corollary31._groups(settings, "gaussian"), 1.5**2 / (1 + 1.5**2)),
        (corollary31._groups(settings, "bernoulli"), (1 - 2 * 0.1) ** 2),
    ):
        correlation = torch.corrcoef(world.images(torch.arange(settings.items)).mT)
        wanted = torch.where(same, expected, 0.0).fill_diagonal_(1.0)
        torch.testing.assert_close(correlation, wanted, rtol=0, atol=0.03)


def test_linear_theory_counts_groups_above_one_and_all_below():
    settings = corollary31.Settings(items=20_000)
    for likelihood, world in (
        ("gaussian_pixel", corollary31._groups(settings, "gaussian_pixel")),
        ("bernoulli", corollary31._groups(settings, "bernoulli")),
    ):
        found = corollary31._thresholds(settings, likelihood, world)
        assert (found > 2.5).sum() == settings.groups
        assert ((found > 0.9) & (found < 1.1)).sum() == settings.single
    assert (
        corollary31._thresholds(settings, "gaussian", corollary31._groups(settings, "gaussian")) > 3
    ).all()


def test_active_latents_and_variance_are_counted_by_hand():
    settings = corollary31.Settings(groups=1, group_size=2, single=1, items=200, points=200)
    world = corollary31._groups(settings, "gaussian")
    trial = Trial(
        world="mixture", likelihood="gaussian", latent=2, encoder_widths=(), decoder_widths=(), steps=1
    )
    ensemble = train([trial], world=world, device="cpu", progress=False)
    with torch.no_grad():
        parameters = ensemble.stacks[0].parameters
        parameters["model.encoder.layers.0.weight"].zero_()
        # means (1, 0), variances (1, 1): only the first costs anything, ½ nat
        parameters["model.encoder.layers.0.bias"].copy_(torch.tensor([[1.0, 0.0, 0.0, 0.0]]))
    active, left = corollary31._count_active(ensemble, world, settings)
    assert active.tolist() == [1]
    expected = (1 / world.images(torch.arange(200)).double().var(0, correction=0)).mean()
    assert left.item() == pytest.approx(expected.item(), rel=1e-6)


def test_the_best_beta_is_judged_on_other_seeds():
    """Each β prevents the collapse in one half of the seeds alone."""
    rows = [
        {"likelihood": likelihood, "beta": beta, "seed": seed, "active": 8 if seed % 2 == lucky else 2}
        for likelihood in corollary31.LIKELIHOODS
        for beta, lucky in ((0.3, 0), (0.5, 1), (1.0, 2))
        for seed in range(8)
    ]
    factors = pd.DataFrame({"likelihood": "bernoulli", "factor": ["shared"] * 2 + ["single"] * 6})
    found = corollary31.COROLLARY31.claims[1].judge({"members": pd.DataFrame(rows), "thresholds": factors})
    assert [(one.outcome, one.n) for one in found] == [("differs", 4)] * 2


def test_findings_of_made_up_counts():
    rows = [
        {"likelihood": likelihood, "beta": beta, "seed": seed, "active": active, "variance left": 1.0}
        for likelihood in corollary31.LIKELIHOODS
        for beta, active in ((0.5, 8), (1.0, 8 if likelihood == "gaussian" else 2))
        for seed in range(6)
    ]
    factors = pd.DataFrame({"likelihood": "bernoulli", "factor": ["shared"] * 2 + ["single"] * 6})
    found = corollary31.COROLLARY31.judge({"members": pd.DataFrame(rows), "thresholds": factors})
    assert {finding.outcome for finding in found} == {"agrees"}
    assert found[0].published == "fewer than 8 (2 if collapse is complete)"
    for row in rows:
        row["active"] = 2
    found = corollary31.COROLLARY31.judge({"members": pd.DataFrame(rows), "thresholds": factors})
    outcomes = [finding.outcome for finding in found]
    assert outcomes.count("differs") == 3 and outcomes.count("cannot tell") == 2, "no gain is no order"
