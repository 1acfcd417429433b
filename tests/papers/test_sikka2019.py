"""What sikka2019's artefacts measure, against loops and closed forms, and their claims on made-up tables."""

import dataclasses
import itertools
import types

import numpy as np
import pandas as pd
import pytest
import torch
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence

from unseam.data import load
from unseam.data.moving_digit import MIXING, DigitMover
from unseam.papers import Workplace, artefacts
from unseam.papers.artefact import as_stored
from unseam.papers.sikka2019 import deep, linear
from unseam.papers.sikka2019.deep import (
    Networks,
    Terms,
    by_seed,
    claims_on_curves,
    measure_networks,
    measure_terms,
)
from unseam.papers.sikka2019.linear import example_mixing, linear_terms
from unseam.papers.tables import from_text
from unseam.theory import linear_beta_vae
from unseam.training import train
from unseam.trial import Trial

DRAWS = 3
TINY = Networks(betas=(0.5, 2.0), seeds=2, epochs=2, batch_size=4, widths=(6, 5), draws=DRAWS)


@pytest.fixture(scope="module")
def world():
    return load("mixture", digits=2, size=12)


@pytest.fixture(scope="module")
def ensemble(world):
    trials = [dataclasses.replace(trial, precision="float64") for trial in TINY.trials(world)]
    return train(trials, world=world, device="cpu")


def noise():
    return torch.Generator().manual_seed(3)


def by_hand(model, world):
    """Terms of one member: a loop over items, draws and signed permutations, with torch's distributions."""
    x = world.images(torch.arange(len(world))).double()
    encoding = model.encode(x)
    drawn = torch.randn(len(x), DRAWS, 2, generator=noise()).double()
    truth = world.posterior(x)
    rows = []
    for item, mean, scale, eps, target in zip(
        x, encoding.mean, encoding.variance.sqrt(), drawn, truth.mean, strict=True
    ):
        q = Independent(Normal(mean, scale), 1)
        log_prob = [
            Normal(model.decode((mean + scale * one)[None])[0], 1.0).log_prob(item).sum() for one in eps
        ]
        exact = MultivariateNormal(target, truth.covariance)
        errors = []
        for order, signs in itertools.product(
            itertools.permutations(range(2)), itertools.product((1.0, -1.0), repeat=2)
        ):
            turn = torch.tensor(signs).double().diag()[list(order)]
            turned = MultivariateNormal(turn @ mean, turn @ scale.square().diag() @ turn.T)
            errors.append(kl_divergence(turned, exact))
        prior = Independent(Normal(torch.zeros(2).double(), 1.0), 1)
        rows.append(torch.stack([torch.stack(log_prob).mean(), kl_divergence(q, prior), *errors]))
    reconstruction, kl, *errors = torch.stack(rows).mean(0)
    return Terms(reconstruction, kl, errors[0], min(errors))


def test_terms_are_those_of_a_loop(ensemble, world):
    with torch.no_grad():
        found = measure_terms(ensemble, world, draws=DRAWS, generator=noise())
        for member, model in enumerate(ensemble):
            for name, expected in by_hand(model, world)._asdict().items():
                value = getattr(found, name)[member]
                torch.testing.assert_close(value.double(), expected.double(), rtol=1e-9, atol=1e-9, msg=name)


def test_the_loop_tells_members_and_alignments_apart(ensemble, world):
    found = measure_terms(ensemble, world, draws=DRAWS, generator=noise())
    assert found.reconstruction.unique().numel() == len(ensemble)
    assert bool((found.tie_aligned <= found.tie).all())
    assert bool((found.tie_aligned < found.tie).any())


def test_terms_some_items_at_a_time(ensemble, world, monkeypatch):
    whole = measure_terms(ensemble, world, draws=DRAWS, generator=noise())
    monkeypatch.setattr(deep, "AT_ONCE", 5 * len(ensemble) * DRAWS * 784)
    torch.testing.assert_close(measure_terms(ensemble, world, draws=DRAWS, generator=noise()), whole)


def test_terms_need_an_exact_posterior(ensemble):
    with pytest.raises(ValueError, match="world must have an exact posterior, got linear"):
        measure_terms(ensemble, load("linear", size=5), draws=1, generator=noise())


def test_parts_make_the_same_table_as_the_whole(world, tmp_path):
    fresh = load("mixture", digits=2, size=12, seed=1)
    whole = measure_networks(TINY, world, fresh, Workplace(torch.device("cpu")))
    parts = dataclasses.replace(TINY, together=3)
    for _ in range(2):  # the second time from the checkpoints
        found = measure_networks(parts, world, fresh, Workplace(torch.device("cpu"), tmp_path))
        pd.testing.assert_frame_equal(found, whole, rtol=1e-4)
    assert len(whole) == 4
    assert not np.allclose(whole["reconstruction"], whole["fresh_reconstruction"])


@pytest.mark.parametrize(
    ("key", "latent", "betas", "seeds"),
    [("figure2_two", 2, 20, 100), ("figure2_ten", 10, 20, 100), ("figure3", 2, 8, 300)],
)
def test_the_full_scale_is_the_papers(key, latent, betas, seeds):
    settings = artefacts()[f"sikka2019.{key}"].presets["full"]
    networks = settings.networks
    if key == "figure3":
        world = load("moving_digit", canvas=settings.canvas, scale=settings.scale, size=settings.items)
    else:
        world = load("mixture", digits=settings.digits, size=settings.items)
    trials = networks.trials(world)
    assert len(set(networks.betas)) == betas
    assert networks.seeds == seeds
    assert len(trials) == len(set(trials)) == len(networks.betas) * networks.seeds
    first = trials[0]
    assert (first.encoder_widths, first.decoder_widths) == ((256, 200, 200), (200, 200, 256))
    assert first.steps * first.batch_size == 1000 * len(world) == 1_000_000
    assert (first.latent, first.learning_rate, first.optimiser) == (latent, 1e-3, "adam")
    assert {first.encoder_activation, first.decoder_activation} == {"tanh"}


def test_no_digit_of_figure_3_is_cut_by_the_edge():
    """Else the exact posterior, read off the centre of mass, would not be exact."""
    settings = artefacts()["sikka2019.figure3"].presets["full"]
    for seed in (0, 1):
        world = load("moving_digit", canvas=settings.canvas, scale=settings.scale, seed=seed)
        mass = world.images(torch.arange(len(world))).sum((1, 2, 3))
        torch.testing.assert_close(mass, mass.max().expand_as(mass))


# Curves


def table(**columns):
    """Three β and eight seeds; a column's three values are those of every seed, up to a small shift."""
    shift = 1e-3 * np.tile(np.arange(8), 3)
    rows = {"beta": np.repeat([0.5, 1.0, 4.0], 8), "seed": np.tile(np.arange(8), 3)}
    given = {"tie": (3, 2, 4), "tie_aligned": (3, 2, 4), "reconstruction": (4, 3.9, 1), "kl": (3, 2, 1)}
    given = given | columns
    rows |= {name: np.repeat(np.array(value, dtype=float), 8) + shift for name, value in given.items()}
    rows |= {f"fresh_{name}": rows[name] for name in deep.FRESH}
    return pd.DataFrame(rows)


def judged(networks, over="mean"):
    """Findings on the paper's claims by quantity."""
    claims = [claim for claim in claims_on_curves("Figure 2", over) if not claim.ours]
    return {finding.quantity: finding for claim in claims for finding in claim.judge({"networks": networks})}


def test_a_table_as_published_agrees():
    found = judged(table())
    assert len(found) == 10
    assert {finding.outcome for finding in found.values()} == {"agrees"}
    for quantity in ("largest mean ELBO", "least mean TIE, aligned", "least mean TIE, raw"):
        place = found[f"β of the {quantity}"]
        assert (place.measured, place.lower, place.upper, place.n) == (1.0, 1.0, 1.0, 8)
    assert found["mean TIE at β = 4 less that at 1, nats, raw"].measured == pytest.approx(2)


@pytest.mark.parametrize(
    ("columns", "differing"),
    [
        ({"kl": (3, 2, -3)}, {"β of the largest mean ELBO", "largest rise of the ELBO from β = 1 on"}),
        (
            {"tie": (1, 2, 3)},
            {"β of the least mean TIE, raw", "mean TIE at β = 0.5 less that at 0.5, nats, raw"},
        ),
        (
            {"tie_aligned": (3, 2, 1)},
            {"β of the least mean TIE, aligned", "mean TIE at β = 4 less that at 4, nats, aligned"},
        ),
        ({"reconstruction": (3.6, 3.9, 1)}, {"largest rise of the reconstruction objective"}),
        ({"kl": (2, 2.1, 1)}, {"largest rise of the KL term"}),
    ],
)
def test_what_is_not_as_published_differs(columns, differing):
    outcomes = {quantity: finding.outcome for quantity, finding in judged(table(**columns)).items()}
    negative = {
        quantity.removesuffix(", fraction of its range")
        for quantity, outcome in outcomes.items()
        if outcome != "agrees"
    }
    assert negative == differing
    assert set(outcomes.values()) == {"agrees", "differs"}


def test_a_small_rise_still_counts_as_decreasing():
    found = judged(table(kl=(2, 2.01, 1)))["largest rise of the KL term, fraction of its range"]
    assert found.outcome == "agrees"
    assert found.measured == pytest.approx(0.01 / 1.01)


def test_a_flat_curve_has_no_optimum():
    """The least of noisy values is often inside the range, and tells nothing."""
    noisy = table()
    random = np.random.default_rng(2)
    noisy["tie"] = random.normal(3.0, 0.5, len(noisy)) + (noisy["beta"] == 0.5)
    found = judged(noisy)
    assert found["β of the least mean TIE, raw"].outcome == "cannot tell"
    assert found["β of the least mean TIE, aligned"].outcome == "agrees"


def test_two_seeds_tell_nothing():
    few = table()[lambda rows: rows["seed"] < 2]
    assert {finding.outcome for finding in judged(few).values()} == {"cannot tell"}


def test_the_minimum_over_seeds_is_another_curve():
    networks = table()
    networks.loc[(networks["seed"] >= 6) & (networks["beta"] == 4.0), "tie"] = 0.0
    found = judged(networks, "min")
    assert found["β of the least minimal TIE, raw"].measured == 4.0
    assert judged(networks)["β of the least mean TIE, raw"].measured == 1.0


def test_the_elbo_is_reconstruction_less_kl():
    tables = {"networks": table()}
    np.testing.assert_allclose(by_seed(tables, "elbo").mean(axis=1), [1.0, 1.9, 0.0], atol=1e-12)
    other = {"networks": table().assign(fresh_kl=0.0)}
    np.testing.assert_allclose(by_seed(other, "fresh_elbo"), by_seed(other, "reconstruction"))


def test_interval_of_a_mean_is_the_normal_one():
    values = pd.DataFrame(np.random.default_rng(1).normal(2.0, 3.0, size=(1, 400)))
    (found,) = deep._bootstrap_curves(values, "mean")
    bound = deep._bound("", "", found, values, 0.0)
    half = 1.96 * values.to_numpy().std() / 20
    expected = [values.to_numpy().mean() + sign * half for sign in (0, -1, 1)]
    np.testing.assert_allclose(bound.estimate, expected, atol=0.1 * half)


# Axes of motion


@pytest.mark.parametrize("degrees", [90.0, 35.0, 145.0])
def test_angle_between_axes_of_motion(degrees):
    mover = DigitMover(torch.ones(28, 28).double(), torch.tensor(MIXING).double(), 1.0, 0.8, 40)
    turn = np.deg2rad(degrees)
    ways = torch.tensor([[2.0, 0.0], [np.cos(turn), np.sin(turn)]], dtype=torch.float64)

    def decode(z):
        return torch.stack([mover.draw(z.double() @ ways), mover.draw(z.double() @ ways.flip(0) + 0.3)])

    found = deep.motion_angle(types.SimpleNamespace(decode=decode), mover)
    np.testing.assert_allclose(found.numpy(), min(degrees, 180 - degrees), rtol=1e-9)


@pytest.fixture
def moving():
    """Tables of Figure 3 as published: two β, eight seeds."""
    networks = table(angle=(80.5, 83, 85)).replace({"beta": {0.5: 0.2}})
    return {"networks": networks, "traversals": pd.DataFrame({"beta": [0.2, 4.0]})}


def judge_panel_e(tables):
    return [finding.outcome for claim in deep.FIGURE3.claims[-3:] for finding in claim.judge(tables)]


def test_panel_e_of_figure_3(moving):
    assert judge_panel_e(moving) == ["agrees", "agrees", "agrees"]
    networks = moving["networks"].sort_values("beta", ascending=False)
    reversed_order = networks.assign(beta=np.sort(networks["beta"].to_numpy()))
    assert judge_panel_e(moving | {"networks": reversed_order}) == ["differs", "agrees", "differs"]
    oblique = moving["networks"].assign(angle=lambda rows: rows["angle"] - 10)
    assert judge_panel_e(moving | {"networks": oblique}) == ["agrees", "differs", "agrees"]
    collapsed = moving["networks"].assign(angle=np.nan)
    assert judge_panel_e(moving | {"networks": collapsed}) == ["agrees", "cannot tell", "cannot tell"]


def test_stored_pictures_are_the_decoded_ones():
    canvas = torch.linspace(-0.2, 1.2, 16).view(4, 4)

    class Ramp(torch.nn.Linear):
        """Decodes z to the canvas plus z₁ in its first pixel."""

        def decode(self, z):
            pictures = canvas.repeat(len(z), 1, 1)
            pictures[:, 0, 0] += z[:, 0]
            return pictures[:, None]

    walks = as_stored({"traversals": deep._traversals({4.0: Ramp(1, 1)}, 3)})["traversals"]
    assert walks[["latent", "frame"]].to_numpy().tolist() == [[k, f] for k in (0, 1) for f in (0, 1, 2)]
    found = from_text(walks["pixels"], deep.GREYS)
    expected = canvas.clamp(0, 1).numpy()
    np.testing.assert_allclose(found[:, 1:], np.broadcast_to(expected[1:], (6, 3, 4)), atol=0.5 / 15 + 1e-6)
    assert found[:, 0, 0].tolist() == [0, 0, 1, 0, 0, 0]


# The exactly solvable model


@pytest.mark.parametrize("beta", [0.4, 1.0, 3.0])
def test_linear_terms_at_the_optimum_are_the_closed_form(beta):
    mixing = torch.randn(6, 3, generator=noise(), dtype=torch.float64)
    best = linear_beta_vae(mixing, beta)
    found = linear_terms(mixing, best.decoder, best.encoder, best.variance)
    torch.testing.assert_close(found.reconstruction, best.reconstruction)
    torch.testing.assert_close(found.kl, best.kl)
    torch.testing.assert_close(found.mie, best.mie, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_network_terms_are_means_over_data():
    """Against torch's distributions on 200 000 items, for half-trained networks whose variances depend on x."""
    mixing = example_mixing(4)
    world = load("mixture", mixing=mixing.tolist(), size=200)
    first = Trial(
        world="mixture",
        likelihood="gaussian",
        latent=2,
        encoder_widths=(),
        decoder_widths=(),
        steps=150,
        batch_size=50,
    )
    ensemble = train(
        [dataclasses.replace(first, seed=seed, learning_rate=0.01) for seed in range(3)],
        world=world,
        device="cpu",
    )
    found = linear.network_terms(ensemble, mixing)
    draw = torch.Generator().manual_seed(0)
    sources = torch.randn(200_000, 2, generator=draw, dtype=torch.float64)
    x = sources @ mixing.mT + torch.randn(200_000, 4, generator=draw, dtype=torch.float64)
    eye = torch.eye(2, dtype=torch.float64)
    truth = torch.linalg.inv(mixing.mT @ mixing + eye)
    for member, model in enumerate(ensemble):
        with torch.no_grad():
            code = model.encode(x.float())
            mean, variance = code.mean.double(), code.variance.double()
            assert variance.log().std(0).min() > 0.01
            offset = model.decode(torch.zeros(1, 2)).double()[0]
            decoder = model.decode(torch.eye(2)).double().mT - offset[:, None]
        q = MultivariateNormal(mean, torch.diag_embed(variance))
        error = (x - mean @ decoder.mT - offset).square().sum(-1) + variance @ decoder.square().sum(0)
        model_covariance = torch.linalg.inv(decoder.mT @ decoder + eye)
        own = MultivariateNormal((x - offset) @ decoder @ model_covariance, model_covariance)
        ties = [
            kl_divergence(
                MultivariateNormal(mean @ turn.mT, turn @ torch.diag_embed(variance) @ turn.mT),
                MultivariateNormal(x @ mixing @ truth, truth),
            ).mean()
            for order, signs in itertools.product(
                itertools.permutations(range(2)), itertools.product((1.0, -1.0), repeat=2)
            )
            for turn in [torch.tensor(signs).double().diag()[list(order)]]
        ]
        expected = {
            "reconstruction": -(4 * np.log(2 * np.pi) + error.mean()) / 2,
            "kl": kl_divergence(q, MultivariateNormal(torch.zeros(2).double(), eye)).mean(),
            "mie": kl_divergence(q, own).mean(),
            "tie_aligned": min(ties),
        }
        for name, value in expected.items():
            torch.testing.assert_close(found[name][member], value, rtol=0.01, atol=0, msg=name)
        assert found["elbo"][member] == found["reconstruction"][member] - found["kl"][member]


@pytest.fixture(scope="module")
def closed_form():
    """The tables of Figure 1 with networks that are the closed form itself, as they are stored."""
    settings = artefacts()["sikka2019.figure1"].presets["full"]
    curves = linear._closed_form(settings, example_mixing())
    points = curves[curves["beta"].isin(settings.betas)]
    return as_stored({"curves": curves, "points": points.assign(seed=0)})


def judge_figure_1(tables):
    return {finding.quantity: finding for finding in linear.FIGURE1.judge(tables)}


def test_what_figure_1_claims_of_the_closed_form(closed_form):
    found = judge_figure_1(closed_form)
    wrong = {quantity for quantity, finding in found.items() if finding.outcome == "false as printed"}
    likelihood, limit = (
        "largest rise of the data log-likelihood, nats",
        "MIE as β → ∞, at β = 100, nats",
    )
    assert wrong == {likelihood, limit}
    # ½ Σ_i [log m_i + λ_i / m_i − log λ_i − 1] at β = 0.2, with m_i = λ_i − β + 1
    eigenvalues = np.array([66.25, 1.25])
    model = eigenvalues + 0.8
    rise = (np.log(model / eigenvalues) + eigenvalues / model - 1).sum() / 2
    assert found[likelihood].measured == pytest.approx(rise, rel=1e-4)
    assert found[likelihood].note == "tolerance 1e-09; from β = 0.2 to 1"
    assert found[limit].measured == 0
    assert found["β of the largest ELBO"].measured == 1
    least = found["β of the least MIE while a latent is active"]
    last = closed_form["curves"].query("kl > 0")["beta"].max()
    assert (least.measured, least.published) == (1, f"inside the range, 0.2 to {last:.3g}")


@pytest.mark.parametrize(
    ("column", "values", "quantity"),
    [
        ("elbo_gain", lambda beta: beta, "β of the largest ELBO"),
        ("tie_aligned", lambda beta: -beta, "β of the least aligned TIE"),
        ("mie", lambda beta: beta, "β of the least MIE while a latent is active"),
        ("reconstruction", lambda beta: abs(beta - 3), "largest rise of the reconstruction objective, nats"),
        ("log_likelihood_gain", lambda beta: -beta, "β of the largest data log-likelihood"),
        ("mie", lambda beta: beta, "largest MIE where all latents are collapsed, nats"),
    ],
)
def test_other_curves_are_not_as_claimed(closed_form, column, values, quantity):
    curves = closed_form["curves"]
    tables = closed_form | {"curves": curves.assign(**{column: values(curves["beta"])})}
    assert judge_figure_1(tables)[quantity].outcome == "false as printed"


def test_what_is_false_in_figure_1_would_hold_of_other_curves(closed_form):
    curves = closed_form["curves"].assign(
        log_likelihood_gain=lambda rows: -rows["beta"], mie=lambda rows: rows["beta"]
    )
    found = judge_figure_1(closed_form | {"curves": curves})
    assert found["largest rise of the data log-likelihood, nats"].outcome == "holds"
    assert found["MIE as β → ∞, at β = 100, nats"].outcome == "holds"


@pytest.mark.parametrize(
    ("shift", "outcome"), [(0.01, "agrees"), (0.021, "cannot tell"), (0.03, "differs"), (-0.03, "differs")]
)
def test_trained_networks_are_compared_by_their_farthest_beta(closed_form, shift, outcome):
    points = pd.concat([closed_form["points"].assign(seed=seed) for seed in range(5)], ignore_index=True)
    extent = np.ptp(closed_form["curves"]["kl"])
    points["kl"] += extent * (points["beta"] == 32) * (shift + 0.005 * np.sin(points["seed"]))
    found = judge_figure_1(closed_form | {"points": points})
    (one,) = (
        finding for quantity, finding in found.items() if quantity.startswith("KL term: largest distance")
    )
    assert (one.outcome, one.n) == (outcome, 5)
    assert "at β = 32" in one.note and "at the next β: 0.134, outside" in one.note


@pytest.mark.parametrize("column", linear.VIOLATIONS)
def test_one_violation_is_enough(column):
    settings = dataclasses.replace(linear.PROPOSITIONS.presets["smoke"], matrices=2)
    tables = linear.measure_violations(settings, Workplace(torch.device("cpu")))
    assert tables["matrices"]["candidates best for some β"].min() > 5
    assert {finding.outcome for finding in linear.PROPOSITIONS.judge(tables)} == {"holds"}
    tables["matrices"].loc[1, column] = 1e-3
    (found,) = (
        finding for finding in linear.PROPOSITIONS.judge(tables) if finding.outcome == "false as printed"
    )
    assert found.quantity.startswith(linear.VIOLATIONS[column])


def test_a_fixed_decoder_is_best_encoded_as_said():
    """W = (DᵀD + βI)⁻¹Dᵀ and e^b = β / ([DᵀD]_ii + β) are stationary in reconstruction − β · KL."""
    mixing = torch.randn(5, 2, generator=noise(), dtype=torch.float64)
    gram = mixing.mT @ mixing
    beta = 1.7
    encoder = torch.linalg.solve(gram + beta * torch.eye(2).double(), mixing.mT).requires_grad_()
    variance = (beta / (gram.diagonal() + beta)).requires_grad_()
    found = linear_terms(mixing, mixing, encoder, variance)
    for slope in torch.autograd.grad(found.reconstruction - beta * found.kl, (encoder, variance)):
        torch.testing.assert_close(slope, torch.zeros_like(slope), rtol=0, atol=1e-12)
