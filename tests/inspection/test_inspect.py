"""Inspection of decoders whose geometry is known in closed form."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from torch import nn

import unseam
from unseam import geometry
from unseam.inspection import random_baseline
from unseam.models import Bernoulli, Gaussian, build, initialise

GENERATOR = torch.Generator()


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def linear(values, angle=0.0):
    """Decoder U S Rᵀ with orthonormal U (9 x d), singular values S and the first two latents turned by an angle."""
    d = len(values)
    u = torch.linalg.qr(draw(9, d, seed=1)).Q
    turn = torch.eye(d, dtype=torch.float64)
    if d > 1:
        turn[:2, :2] = torch.tensor(
            [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]], dtype=torch.float64
        )
    matrix = u @ torch.diag(torch.tensor(values, dtype=torch.float64)) @ turn.T
    return lambda z: z @ matrix.T


def test_orthogonal_decoder():
    found = unseam.inspect(linear([3.0, 2.0, 1.0]), draw(20, 3))
    assert found.dto == pytest.approx(0, abs=1e-7)
    assert found.dto_active == pytest.approx(0, abs=1e-7)
    assert found.cosine == pytest.approx(0, abs=1e-12)
    assert found.hadamard_gap == pytest.approx(0, abs=1e-12)
    torch.testing.assert_close(found.singular_values[7], torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64))
    torch.testing.assert_close(found.column_norms, torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64))
    assert found.degenerate_fraction == 0
    assert "nearly orthogonal" in found.summary()


@pytest.mark.parametrize("angle", [0.1, 0.4, math.pi / 4])
def test_turned_decoder(angle):
    found = unseam.inspect(linear([3.0, 1.0], angle), draw(5, 2))
    # ‖V − P‖_F of a rotation by φ ≤ 45° from the nearest signed permutation is 2√(2(1 − cos φ)) / √2 = 2√(1 − cos φ)
    assert found.dto == pytest.approx(2 * math.sqrt(1 - math.cos(angle)), rel=1e-9)
    gram = torch.tensor(
        [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]], dtype=torch.float64
    )
    gram = gram.T @ torch.diag(torch.tensor([9.0, 1.0], dtype=torch.float64)) @ gram
    cosine = abs(gram[0, 1]) / (gram[0, 0] * gram[1, 1]).sqrt()
    assert found.cosine == pytest.approx(float(cosine), rel=1e-9)
    assert found.hadamard_gap == pytest.approx(float(-0.5 * torch.log(1 - cosine**2)), rel=1e-9)


def test_dead_columns_are_dropped():
    found = unseam.inspect(linear([3.0, 1.0, 1e-4], 0.3), draw(5, 3))
    assert found.active.tolist() == [True, True, False]
    two = unseam.inspect(linear([3.0, 1.0], 0.3), draw(5, 2))
    assert found.dto_active == pytest.approx(two.dto, rel=1e-9)
    assert found.cosine == pytest.approx(two.cosine, rel=1e-9)
    assert found.random_dto.haar == pytest.approx(0.548, abs=0.03)
    assert "2 of 3 latents are active (z0 and z1); z2 collapsed." in found.summary()


@pytest.mark.parametrize(("dtype", "condition"), [(torch.float64, 1e6), (torch.float32, 1e3)])
def test_ill_conditioned_live_latents_beside_a_dead_one(dtype, condition):
    """Squared, the plane of the two small singular values is lost; the columns themselves still know it."""
    values = torch.tensor([1.0, 1.5 / condition, 1 / condition], dtype=torch.float64)
    columns = torch.linalg.qr(draw(9, 3)).Q * values @ torch.linalg.qr(draw(3, 3, seed=1)).Q.T
    matrix = torch.cat([torch.zeros(9, 1, dtype=torch.float64), columns], 1).to(dtype)
    found = unseam.inspect(lambda z: z @ matrix.T, torch.zeros(3, 4, dtype=dtype))
    assert found.active.tolist() == [False, True, True, True]
    vectors = torch.linalg.svd(matrix[:, 1:].double()).Vh.T
    expected = float(geometry.distance_to_orthogonality(vectors))
    assert found.dto_active == pytest.approx(expected, abs=10 * condition * torch.finfo(dtype).eps)
    squared = geometry.right_basis(geometry.restrict(found.pullback, [1, 2, 3])).right_vectors
    lost = float(geometry.distance_to_orthogonality(squared)[0])
    assert lost != pytest.approx(expected, abs=10 * condition * torch.finfo(dtype).eps)


def test_active_can_be_given():
    for active in (torch.tensor([True, False, True]), [0, 2], np.array([0, 2])):
        found = unseam.inspect(linear([3.0, 2.0, 1.0], 0.3), draw(5, 3), active=active)
        assert found.active.tolist() == [True, False, True]
        assert found.cosine == pytest.approx(0, abs=1e-12)


def optimal(values, beta, angle=0.0):
    """A linear decoder with the posterior that Eq. 7 says is optimal at unit noise."""
    decoder = linear(values, angle)
    metric = geometry.pullback(decoder, draw(1, len(values)))[0]
    covariance = torch.linalg.inv(torch.eye(len(values), dtype=torch.float64) + metric / beta)
    return decoder, lambda x: (0.1 * x[:, : len(values)], covariance.expand(len(x), -1, -1))


def test_posterior_at_its_optimum():
    decoder, encoder = optimal([30.0, 10.0], 0.5, angle=0.3)
    found = unseam.inspect(decoder, encoder=encoder, x=draw(40, 9), beta=0.5)
    assert found.precision_error.relative == pytest.approx(0, abs=1e-9)
    assert "Posterior and decoder agree" in found.summary()
    wrong = unseam.inspect(decoder, encoder=encoder, x=draw(40, 9), beta=5.0)
    assert wrong.precision_error.diagonal > 0.5
    assert "check beta and likelihood" in wrong.summary()
    assert "check beta" not in dataclasses.replace(wrong, where="of a run, which knows its own").summary()


def polarised(values=(30.0, 10.0), *, precision=1.0, spread=0.0, dead=0.0, angle=0.0):
    """The verdict on two active latents and a dead one whose posterior is at its optimum, or off by what is given.

    Args:
        values: singular values of the active latents.
        precision: factor of their precisions.
        spread: added to the variance of the second.
        dead: mean of the dead latent at every tenth point.
        angle: by which the active latents are turned.
    """
    decoder = linear([*values, 1e-6], angle)
    variance = 1 / (precision * (1 + geometry.pullback(decoder, draw(1, 3))[0].diagonal()))
    variance[1] += spread
    variance[2] = 1.0

    def encoder(x):
        return torch.stack([x[:, 0], x[:, 1], dead * (torch.arange(len(x)) % 10 == 0)], 1), variance.expand(
            len(x), 3
        )

    return unseam.inspect(decoder, encoder=encoder, x=draw(200, 9)).summary()


def test_nothing_is_to_do_where_all_is_as_the_theory_has_it():
    assert polarised().endswith("To do: nothing.")


@pytest.mark.parametrize(
    ("given", "said", "advice"),
    [
        ({"precision": 1.25}, "Posterior and decoder agree roughly", "agree only roughly (what then remains"),
        (
            {"spread": 0.15},
            "; z1 is active with a variance that is not small (the theory has σ² ≪ 1)",
            "since z1 is active with a variance that is not small",
        ),
        (
            {"values": (3.3, 3.1)},
            "not fully polarised: treating every latent as either active or collapsed changes its KL by",
            "its KL is off by more than the 3%",
        ),
        (
            {"dead": 0.4},
            "; z2 is collapsed on average but not at every point",
            "z2 is collapsed on average but not at every",
        ),
        ({"angle": 0.15}, "are partly orthogonal: the mean |cos|", "since the axes are partly orthogonal"),
    ],
    ids=["posterior", "wide", "polarised KL", "restless", "axes"],
)
def test_what_is_borderline_has_advice(given, said, advice):
    summary = polarised(**given)
    assert said in summary
    assert advice in summary.splitlines()[-1]


def test_sampled_latents_between_alive_and_collapsed_are_told():
    encoder = lambda x: (x, torch.full_like(x, 0.5))  # noqa: E731
    found = unseam.inspect(lambda z: 2 * z, encoder=encoder, x=draw(40, 30), latents=10)
    assert "since z0, z1, z2" in found.summary().splitlines()[-1]


def test_variances_follow_the_columns():
    decoder, encoder = optimal([300.0, 30.0, 10.0], 0.5)
    found = unseam.inspect(decoder, encoder=encoder, x=draw(40, 9), beta=0.5)
    expected = geometry.variance_norm_law(found.variance, found.pullback)
    assert found.variance_law.slope == pytest.approx(-1, abs=1e-2)
    assert found.variance_law.pooled_spread == pytest.approx(float(expected.pooled_spread))
    assert "Variances scale as 1/‖column‖² across active latents" in found.summary()


def test_short_columns_bend_the_law():
    decoder, encoder = optimal([1.0, 0.1], 1.0)
    found = unseam.inspect(decoder, encoder=encoder, x=draw(40, 9), active=[0, 1])
    # log σ² is −log 2 and −log 1.01 where log ‖c‖² is 0 and −log 100
    assert found.variance_law.slope == pytest.approx(-math.log(2 / 1.01) / math.log(100))
    assert found.variance_law.spread == pytest.approx(math.log(100 * 1.01 / 2) / 2)
    assert "columns are too short relative to β for it, since posterior and decoder agree" in found.summary()


def test_variances_of_their_own():
    spread = torch.tensor([1e-2, 1e-2, 1.0], dtype=torch.float64)
    found = unseam.inspect(
        linear([30.0, 3.0, 0.01]),
        encoder=lambda x: (x[:, :3], spread.expand(len(x), 3)),
        x=draw(40, 9),
        active=[0, 1],
    )
    assert found.variance_law.slope == pytest.approx(0, abs=1e-12)
    assert found.variance_law.spread == pytest.approx(math.log(10))
    assert "Variances do not scale as 1/‖column‖²" in found.summary()
    assert "within a factor of 10.00, with slope" in found.summary()


def test_equal_columns_have_no_slope():
    decoder, encoder = optimal([3.0, 3.0], 1.0)
    found = unseam.inspect(decoder, encoder=encoder, x=draw(40, 9), active=[0, 1])
    assert found.variance_law.slope is None
    assert found.variance_law.spread == pytest.approx(0, abs=1e-12)
    assert "slope" not in found.summary()
    json.dumps(found.to_dict(), allow_nan=False)


def test_polarised_posterior():
    mean, variance = draw(200, 3), torch.full((200, 3), 1e-4, dtype=torch.float64)
    mean[:, 2], variance[:, 2] = 0.0, 1.0
    posterior = lambda x: (mean[: len(x)], variance[: len(x)])  # noqa: E731
    found = unseam.inspect(linear([100.0, 99.0 / 2, 0.0]), encoder=posterior, x=draw(200, 9))
    assert found.active.tolist() == [True, True, False]
    assert found.delta_kl < 0.01
    assert found.polarised.passive.tolist() == [False, False, True]
    assert "The posterior is polarised" in found.summary()


def test_a_posterior_without_a_live_latent_is_in_no_regime():
    prior = lambda x: (torch.zeros(len(x), 2), torch.ones(len(x), 2))  # noqa: E731
    said = unseam.inspect(lambda z: z * 1e-3, encoder=prior, x=torch.zeros(5, 9)).summary()
    assert "No latent is active." in said
    assert "regime" not in said


def test_autoencoder_has_no_posterior_to_judge():
    found = unseam.inspect(
        linear([3.0, 1.0]),
        encoder=lambda x: (x[:, :2], torch.zeros(len(x), 2, dtype=torch.float64)),
        x=draw(5, 9),
    )
    assert found.precision_error is None
    assert found.variance_law is None
    assert found.delta_kl is None
    assert found.active.tolist() == [True, True]


@pytest.mark.parametrize("likelihood", [Bernoulli(), Gaussian(variance=0.25)])
def test_likelihood_weights_the_metric(likelihood):
    matrix = draw(9, 2)
    z = draw(6, 2, seed=3)
    found = unseam.inspect(lambda z: z @ matrix.T, z, likelihood=likelihood)
    weight = likelihood.fisher_weight(z @ matrix.T)
    expected = torch.einsum("pi,bp,pj->bij", matrix, weight.double(), matrix)
    torch.testing.assert_close(found.pullback, expected)


def test_modules_get_a_baseline_of_their_own():
    model = build((1, 8, 8), latent=3, likelihood="bernoulli", encoder_widths=(8,), decoder_widths=(8,))
    initialise(model, generator=torch.Generator().manual_seed(0))
    before = torch.random.get_rng_state()
    x = torch.rand(30, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    found = unseam.inspect(
        model.decoder, encoder=model.encode, x=x, likelihood=model.likelihood, active=[0, 1, 2]
    )
    assert torch.equal(before, torch.random.get_rng_state())
    assert 0 < found.random_dto.module < 2.5
    assert unseam.inspect(linear([2.0, 1.0]), draw(3, 2)).random_dto.module is None


def test_modules_of_which_a_part_cannot_be_drawn_again_get_none():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.scale = nn.Linear(2, 5), nn.Parameter(torch.ones(5))

        def forward(self, z):
            return self.scale * self.inner(z)

    assert unseam.inspect(Scaled(), draw(3, 2).float()).random_dto.module is None
    assert unseam.inspect(nn.Sequential(nn.Linear(2, 5), nn.Tanh()), draw(3, 2).float()).random_dto.module > 0


def test_degenerate_points_are_told():
    found = unseam.inspect(linear([1.0, 1.0], 0.3), draw(5, 2))
    assert found.degenerate_fraction == 1.0
    assert "DtO is not defined: singular values coincide at 100% of the points." in found.summary()


def test_one_live_latent():
    found = unseam.inspect(linear([1.0]), draw(5, 1))
    assert found.random_dto is None
    assert found.variance_law is None
    assert found.cosine is None
    assert "orthogonality is not defined" in found.summary()


def test_matrices_of_the_decoders_size_are_a_baseline():
    found = unseam.inspect(linear([3.0, 2.0, 1.0, 1e-5]), draw(5, 4)).random_dto
    alone = geometry.uniform_dto(9, 3, samples=1000, generator=torch.Generator().manual_seed(5))
    assert abs(found.uniform - alone.mean) < 4 * math.hypot(found.uniform_std, alone.std) / math.sqrt(1000)
    assert found.uniform > found.haar


@pytest.mark.parametrize(
    ("data", "latent", "rows", "samples"), [(9, 2, 9, 1000), (5000, 10, 5000, 167), (200_000, 100, 8192, 16)]
)
def test_baselines_are_bounded(monkeypatch, data, latent, rows, samples):
    seen = []

    def counted(data, latent, *, samples, generator):
        seen.append((data, latent, samples))
        return geometry.RandomDto(1.0, 0.1)

    monkeypatch.setattr(geometry, "uniform_dto", counted)
    decoder = lambda z: z[:, :1].expand(len(z), data)  # noqa: E731
    found = random_baseline(decoder, draw(3, latent), latent, generator=torch.Generator())
    assert seen == [(rows, latent, samples)]
    assert found.uniform == 1.0


def test_sampled_latents():
    matrix = draw(40, 30)
    full = geometry.column_cosine(geometry.pullback(lambda z: z @ matrix.T, draw(1, 30)))
    found = unseam.inspect(lambda z: z @ matrix.T, draw(2, 30), latents=20)
    assert abs(found.cosine - float(full)) < 5 * float(found.probes.cosine_error)
    assert found.dto is None
    assert found.active is None
    assert "20 of 30 latents were sampled" in found.summary()
    json.dumps(found.to_dict(), allow_nan=False)


def test_more_samples_than_latents():
    found = unseam.inspect(linear([3.0, 2.0, 1.0], 0.3), draw(4, 3), latents=100)
    assert "3 of 3 latents were sampled at 4 points." in found.summary()
    assert "(chance, for as many pixels:" in found.summary()
    # the fraction is a ratio of estimates, which may exceed one
    more = found.probes._replace(overlapping_fraction=torch.tensor(1.02))
    assert "as 100% of pairs overlap" in dataclasses.replace(found, probes=more).summary()
    assert abs(found.cosine - unseam.inspect(linear([3.0, 2.0, 1.0], 0.3), draw(4, 3)).cosine) < 0.1


def test_sampled_and_whole_cosines_are_of_the_same_pairs():
    """Of 30 columns ten are dead, which leaves 20 · 19 of 30 · 29 pairs."""
    matrix = draw(40, 30)
    matrix[:, ::3] = 0
    whole = unseam.inspect(lambda z: z @ matrix.T, draw(1, 30))
    sampled = unseam.inspect(lambda z: z @ matrix.T, draw(1, 30), latents=30)
    error = float(sampled.probes.cosine_error)
    assert abs(sampled.cosine - whole.cosine) < 4 * error
    assert 4 * error < whole.cosine * (1 - 20 * 19 / (30 * 29))  # what zeros for dead pairs would take away
    assert "33% of them do not change the output and are left out" in sampled.summary()


@pytest.mark.parametrize("told", ["active", "encoder"])
def test_live_latents_are_sampled_where_they_are_told(told):
    matrix, alive = draw(40, 30), torch.arange(30) % 3 > 0
    variance = torch.where(alive, 1e-2, 1.0).double()
    if told == "active":
        given = {"z": draw(1, 30), "active": alive}
    else:
        given = {"encoder": lambda x: (x * alive, variance.expand(len(x), 30)), "x": draw(1, 30)}
    found = unseam.inspect(lambda z: z @ matrix.T, **given, latents=100)
    assert found.active.tolist() == alive.tolist()
    whole = unseam.inspect(lambda z: z @ matrix.T, **given)
    assert abs(found.cosine - whole.cosine) < 4 * float(found.probes.cosine_error)
    assert found.delta_kl == whole.delta_kl
    assert "20 of 30 latents are active" in found.summary()
    assert "20 of 20 active latents were sampled" in found.summary()


def test_sampling_one_live_latent_says_that_it_says_nothing():
    found = unseam.inspect(linear([3.0, 2.0, 1.0]), draw(4, 3), active=[1], latents=2)
    assert found.probes is None and found.cosine is None
    assert "With fewer than two active latents, orthogonality is not defined." in found.summary()


def test_samples_without_overlap_say_so():
    found = unseam.inspect(lambda z: 2 * z, draw(4, 30), latents=10)
    assert "No two sampled columns overlap" in found.summary()
    assert "nan" not in found.summary()
    dead = unseam.inspect(lambda z: 0 * z, draw(4, 30), latents=10)
    assert dead.cosine is None
    assert "With fewer than two nonzero columns" in dead.summary()
    assert "nan" not in dead.summary()
    json.dumps(dead.to_dict(), allow_nan=False)


def test_sampled_latents_of_any_shape():
    matrix = draw(40, 24)
    z, active = draw(2, 2, 3, 4), torch.arange(24) > 3
    found = unseam.inspect(lambda z: z.flatten(1) @ matrix.T, z, latents=5, active=active)
    flat = unseam.inspect(lambda z: z @ matrix.T, z.flatten(1), latents=5, active=active)
    assert (found.latent, found.cosine) == (24, pytest.approx(flat.cosine))


def test_chunks_bound_the_columns_of_samples():
    """A point passes once for a chunk of columns, so that smaller chunks take more passes."""

    def passes(chunk_size):
        seen = []

        def decoder(z):
            seen.append(len(z))
            return 2 * z

        unseam.inspect(decoder, draw(1, 30), latents=4, chunk_size=chunk_size)
        assert set(seen) == {1}
        return len(seen)

    assert passes(1) > passes(3) > passes(12)


def test_numbers_and_words_leave_as_json_and_html():
    decoder, encoder = optimal([30.0, 10.0], 1.0)
    found = unseam.inspect(decoder, encoder=encoder, x=draw(10, 9))
    record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert record["active"] == [0, 1]
    assert record["summary"] == found.summary()
    page = found._repr_html_()
    assert page.count("<tr>") == page.count("</tr>") == 16
    assert "DtO, active latents" in page
    assert f"DtO of U[0, 1] matrices</th><td>{found.random_dto.uniform:.4g}<" in page
    assert f"log ‖column‖²</th><td>{found.variance_law.slope:.4g}<" in page
    assert record["random_dto"]["uniform"] == found.random_dto.uniform
    assert record["variance_law"] == found.variance_law._asdict()


def test_same_generator_same_answer():
    found = [
        unseam.inspect(linear([2.0, 1.0], 0.2), draw(3, 2), generator=torch.Generator().manual_seed(5))
        for _ in range(2)
    ]
    assert found[0].random_dto == found[1].random_dto


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "latent must say how many latents the decoder has"),
        ({"encoder": lambda x: (x, x)}, "x must be given with encoder"),
        ({"z": torch.zeros(3, 2), "x": torch.zeros(3, 2)}, "encoder must be given with x"),
        ({"z": torch.zeros(3, 2), "active": [-1]}, "active must be 2 booleans or positions"),
        (
            {"encoder": lambda x: None, "x": torch.zeros(3, 2)},
            r"encoder must return \(mean, variance\), .* got NoneType",
        ),
        ({"encoder": lambda x: (x, x - 1), "x": torch.zeros(3, 2)}, "pass log_variance=True"),
        ({"encoder": lambda x: (x, x[:1]), "x": torch.zeros(3, 2)}, "encoder must return a mean"),
        ({"encoder": lambda x: (x, x), "x": torch.zeros(0, 2)}, r"x must have shape \(batch, \*data\)"),
        ({"z": torch.zeros(3, 2), "latents": "some"}, 'latents must be "all" or a whole number'),
        ({"z": torch.zeros(3, 2), "active": [0.5]}, "active must be 2 booleans or positions"),
        ({"z": torch.zeros(3, 2), "active": [5]}, "active must be 2 booleans or positions"),
        (
            {"z": torch.zeros(3, 2), "encoder": lambda x: (x, x), "x": torch.zeros(4, 2)},
            "must agree in shape",
        ),
        ({"z": torch.full((3, 2), math.nan)}, "(?i)nan|finite"),
        (
            {"encoder": lambda x: (x.nan_to_num(), x.nan_to_num() + 1), "x": torch.full((3, 2), math.nan)},
            "x must be finite, got NaN or infinite values at 3 of 3 points",
        ),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        unseam.inspect(lambda z: 2 * z, **arguments)


def test_a_module_in_training_mode_is_measured_in_evaluation_mode_and_stays_in_its_own():
    decoder = nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.5), nn.BatchNorm1d(4), nn.Linear(4, 4))
    measured = unseam.inspect(decoder, torch.zeros(3, 2)).cosine
    assert decoder.training and decoder[1].training
    assert measured == unseam.inspect(decoder.eval(), torch.zeros(3, 2)).cosine


@pytest.mark.parametrize(
    "decoder",
    [
        lambda z: z.detach() * 2,
        lambda z: torch.from_numpy(z.detach().numpy() * 2.0),
    ],
)
@pytest.mark.filterwarnings("ignore:decoder fails under torch.func.vmap")
def test_decoders_that_leave_differentiation_are_refused(decoder):
    with pytest.raises(ValueError, match="(?i)derivative|differentia"):
        unseam.inspect(decoder, draw(5, 3))


def test_a_constant_decoder_has_no_live_latent():
    found = unseam.inspect(lambda z: z * 0, draw(5, 3))
    assert not found.active.any()
    assert "No latent is active" in found.summary()


def test_points_where_columns_vanish_do_not_count_as_orthogonal():
    turned = linear([3.0, 1.0], 0.4)
    half = lambda z: turned(z) * (z[:, :1] > 0)  # noqa: E731
    z = draw(40, 2)
    found, live = unseam.inspect(half, z), unseam.inspect(turned, z)
    assert found.cosine == pytest.approx(live.cosine, rel=1e-9)
    assert found.hadamard_gap == pytest.approx(live.hadamard_gap, rel=1e-9)
    assert found.dto_active == pytest.approx(live.dto_active, rel=1e-9)


def test_beta_zero_has_no_optimal_precision():
    decoder, encoder = optimal([30.0, 10.0], 1.0)
    assert unseam.inspect(decoder, encoder=encoder, x=draw(10, 9), beta=0.0).precision_error is None


def test_an_unknown_beta_is_said_where_equation_seven_takes_one():
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    options = {"encoder": lambda x: (x, 0.1 + 0 * x), "x": x}
    unknown = unseam.inspect(lambda z: 3 * z, **options)
    assert "This takes β = 1, as the weight of the KL term is not known" in unknown.summary()
    assert not unknown.to_dict()["beta_known"]
    assert "not known" not in unseam.inspect(lambda z: 3 * z, beta=1.0, **options).summary()
