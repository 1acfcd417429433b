"""Sampled columns and probes against decoders whose whole Gram matrix is known."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from unseam.geometry import column_cosine, probe, probes

F64 = torch.float64


def answers(columns, threshold=0.05):
    """Every quantity from all columns (data, latent) at once; of the random cosine a long average."""
    gram = columns.T @ columns
    norms = gram.diagonal().sqrt()
    cosines = (gram / norms.outer(norms)).abs()
    footprint = (columns.abs() > threshold * columns.abs().amax(0)).double()
    off = ~torch.eye(len(gram), dtype=torch.bool)
    overlap = (footprint.T @ footprint > 0) & off
    energy = gram.square()[off].sum()
    unit, seeded = columns / norms, torch.Generator().manual_seed(1)
    chance = 0.0
    for _ in range(10):
        signs = 2.0 * torch.randint(2, (len(columns),), generator=seeded).double() - 1
        chance += (unit.T @ (signs[:, None] * unit)).abs()[overlap].mean() / 10
    return {
        "cosine": cosines[off].mean(),
        "overlapping_cosine": cosines[overlap].mean(),
        "separate_cosine": cosines[off & ~overlap].mean(),
        "random_cosine": chance,
        "overlapping_fraction": overlap.double().sum() / off.sum(),
        "off_diagonal_energy": energy,
        "off_diagonal_share": energy / gram.square().sum(),
        "square_norm": gram.trace(),
    }


@pytest.fixture(scope="module")
def convolution():
    """Pictures from 4 x 16 x 16 latents, a point, and the answers there."""
    generator = torch.Generator().manual_seed(3)
    decoder = nn.Sequential(
        nn.ConvTranspose2d(4, 3, 4, stride=2, padding=1), nn.Tanh(), nn.Conv2d(3, 1, 3, padding=1)
    ).double()
    for parameter in decoder.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=F64) / 4
    z = torch.randn(1, 4, 16, 16, generator=generator, dtype=F64)
    whole = torch.autograd.functional.jacobian(lambda z: decoder(z).flatten(), z, vectorize=True)
    return decoder, z, answers(whole.reshape(32 * 32, -1))


@pytest.fixture(scope="module")
def dense():
    """A linear decoder of 60 latents with a chosen Gram matrix: equicorrelated columns of unequal length."""
    lengths = torch.linspace(1, 3, 60, dtype=F64)
    gram = (0.3 + 0.7 * torch.eye(60, dtype=F64)) * lengths.outer(lengths)
    factor = torch.linalg.cholesky(gram).T
    basis = torch.linalg.qr(torch.randn(90, 60, generator=torch.Generator().manual_seed(5), dtype=F64)).Q
    return lambda z: z @ (basis @ factor).T, torch.zeros(1, 60, dtype=F64), basis @ factor


def scores(decoder, z, truth, *, seeds, **options):
    """(seed, estimate) of (estimate - truth) / standard error."""
    rows = []
    for seed in range(seeds):
        found = probe(decoder, z, generator=torch.Generator().manual_seed(seed), **options)._asdict()
        rows.append([((found[name] - truth[name]) / found[f"{name}_error"]).item() for name in truth])
    return torch.tensor(rows)


def test_convolution_within_four_standard_errors(convolution):
    decoder, z, truth = convolution
    found = scores(decoder, z, spread_out(truth), seeds=1, latents=80)
    assert found.abs().max() < 4, found


@pytest.mark.slow
def test_convolution_is_calibrated(convolution):
    decoder, z, truth = convolution
    found = scores(decoder, z, spread_out(truth), seeds=60, latents=24, partners=4)
    spread = found.std(0)
    assert ((spread > 0.7) & (spread < 1.4)).all(), spread
    assert (found.mean(0).abs() < 4 / math.sqrt(60)).all()
    assert ((found.abs() < 2).double().mean(0) > 0.85).all()


def spread_out(truth):
    """All but the cosine of separate pairs, too small and too rare for the spread of a sample to mean much."""
    assert truth["separate_cosine"] < 1e-4
    return {name: value for name, value in truth.items() if name != "separate_cosine"}


EXACT = ("off_diagonal_energy", "off_diagonal_share", "square_norm")


@pytest.mark.parametrize(("latents", "names"), [(30, ("cosine", *EXACT)), (60, ("cosine",))])
def test_dense_linear_decoder(dense, latents, names):
    """Half of the latents, and all of them, when the partners alone are left to chance."""
    decoder, z, columns = dense
    truth = answers(columns)
    assert truth["cosine"].item() == pytest.approx(0.3)
    found = scores(decoder, z, {name: truth[name] for name in names}, seeds=30, latents=latents, partners=4)
    spread = found.std(0)
    assert ((spread > 0.7) & (spread < 1.4)).all()
    assert (found.mean(0).abs() < 4 / math.sqrt(30)).all()
    assert found.abs().max() < 4


@pytest.mark.parametrize("latents", [60, 1000])
def test_every_latent_is_an_anchor_once(dense, generator, latents):
    decoder, z, columns = dense
    truth = answers(columns)
    found = probe(decoder, z, latents=latents, partners=2, generator=generator)
    assert (found.latents, found.pairs) == (60, 120)
    for name in EXACT:
        torch.testing.assert_close(getattr(found, name), truth[name], rtol=1e-12, atol=0)
        assert getattr(found, f"{name}_error") < 1e-12 * truth[name]
    assert found.cosine_error > 0


def test_only_active_latents_are_sampled(dense, generator):
    decoder, z, columns = dense
    active = torch.arange(60) % 3 > 0
    truth = answers(columns[:, active])
    found = probe(decoder, z, latents=60, active=active.numpy(), generator=generator)
    assert (found.latents, found.dead_fraction.item()) == (40, 0)
    for name in EXACT:
        torch.testing.assert_close(getattr(found, name), truth[name], rtol=1e-12, atol=0)
    assert abs(found.cosine - truth["cosine"]) < 4 * found.cosine_error


def test_equal_cosines_come_out_exactly_in_their_stratum(dense):
    decoder, z, _ = dense
    found = probe(decoder, z, latents=10, generator=torch.Generator().manual_seed(0))
    assert found.overlapping_cosine.item() == pytest.approx(0.3, abs=1e-12)


def test_far_apart_latents_are_trivially_orthogonal_and_told_apart(convolution):
    decoder, z, truth = convolution
    assert truth["overlapping_fraction"] < 0.1
    found = probe(decoder, z, latents=30, generator=torch.Generator().manual_seed(0))
    assert found.separate_cosine < 1e-2 * found.overlapping_cosine
    assert found.overlapping_cosine > 5 * found.cosine


def test_orthogonal_columns(generator):
    basis = torch.linalg.qr(torch.randn(50, 30, generator=generator, dtype=F64)).Q
    scaled = basis * torch.linspace(1, 9, 30, dtype=F64)
    found = probe(lambda z: z @ scaled.T, torch.zeros(2, 30, dtype=F64), latents=10, generator=generator)
    assert found.overlapping_cosine < 1e-12
    assert found.off_diagonal_share < 1e-24
    assert found.random_cosine > 0.05


def test_likelihood_weights_the_columns(dense, generator):
    decoder, _, columns = dense
    z = torch.randn(1, 60, generator=generator, dtype=F64) / 20

    class Logistic:
        def fisher_weight(self, output):
            return output.sigmoid() * (1 - output.sigmoid())

    weighted = Logistic().fisher_weight(decoder(z)[0]).sqrt()[:, None] * columns
    truth = answers(weighted)
    gram = (weighted.T @ weighted)[None]
    torch.testing.assert_close(truth["cosine"], column_cosine(gram)[0])
    measured = {name: truth[name] for name in ("cosine", "off_diagonal_energy", "square_norm")}
    found = scores(decoder, z, measured, seeds=12, latents=30, likelihood=Logistic())
    assert found.abs().max() < 4


def test_points_are_averaged(convolution, generator):
    """Four times the same point is as good as four times the anchors."""
    decoder, z, truth = convolution
    found = probe(decoder, z.expand(4, -1, -1, -1), latents=10, generator=generator)
    alone = probe(decoder, z, latents=40, generator=generator)
    assert abs(found.off_diagonal_energy - truth["off_diagonal_energy"]) < 4 * found.off_diagonal_energy_error
    assert found.off_diagonal_energy_error.item() == pytest.approx(
        alone.off_diagonal_energy_error.item(), rel=0.5
    )


def test_shape_of_the_latents_does_not_matter(convolution):
    decoder, z, _ = convolution
    seeded = [torch.Generator().manual_seed(0) for _ in range(2)]
    expected = probe(decoder, z, latents=5, generator=seeded[0])
    found = probe(lambda z: decoder(z.view(-1, 4, 16, 16)), z.flatten(1), latents=5, generator=seeded[1])
    for one, other in zip(found[:-2], expected[:-2], strict=True):
        torch.testing.assert_close(one, other)


@pytest.fixture
def directions(monkeypatch):
    """Counts of the directions that each batch differentiates in."""
    seen = []

    class Spy(probes._Columns):
        def _push(self, latents):
            seen.append(len(latents))
            return super()._push(latents)

        def _pull(self, vectors):
            seen.append(len(vectors[0]))
            return super()._pull(vectors)

    monkeypatch.setattr(probes, "_Columns", Spy)
    return seen


@pytest.mark.parametrize("chunk_size", [1, 3, 100])
def test_chunks_change_nothing_but_columns_at_once(convolution, chunk_size, directions):
    decoder, z, _ = convolution
    seeded = [torch.Generator().manual_seed(0) for _ in range(2)]
    expected = probe(decoder, z, latents=4, generator=seeded[0])
    directions.clear()
    found = probe(decoder, z, latents=4, generator=seeded[1], chunk_size=chunk_size)
    torch.testing.assert_close(found.cosine, expected.cosine)
    assert 0 < max(directions) <= chunk_size


class Doubled(torch.autograd.Function):
    """2 z by derivatives that look at numbers, which vmap refuses."""

    @staticmethod
    def forward(z):
        return 2 * z

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def jvp(ctx, tangent):
        return 2 * tangent if tangent.any() else tangent

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient if gradient.any() else gradient


def test_decoders_that_vmap_refuses_give_the_same(convolution):
    decoder, z, _ = convolution
    found, expected = (
        probe(
            lambda z, times=times: decoder(times(z)),
            z,
            latents=4,
            generator=torch.Generator().manual_seed(0),
        )
        for times in (Doubled.apply, lambda z: 2 * z)
    )
    torch.testing.assert_close(found, expected)


class Attention(nn.Module):
    """What a latent-diffusion decoder has that a plain one has not: group normalisation and attention."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(2, 4, 3, padding=1), nn.ConvTranspose2d(4, 3, 2, stride=2)
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, z):
        hidden = self.norm(self.first(z))
        tokens = hidden.flatten(2).mT
        mixed = nn.functional.scaled_dot_product_attention(tokens, tokens, tokens).mT.view_as(hidden)
        return self.last(hidden + mixed)


def test_attention_and_group_normalisation(generator):
    decoder = Attention().double()
    for parameter in decoder.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=F64) / 2
    z = torch.randn(1, 2, 4, 4, generator=generator, dtype=F64)
    whole = torch.autograd.functional.jacobian(lambda z: decoder(z).flatten(), z, vectorize=True)
    truth = answers(whole.reshape(-1, 32))
    measured = {name: truth[name] for name in ("cosine", "off_diagonal_energy", "square_norm")}
    assert scores(decoder, z, measured, seeds=3, latents=30).abs().max() < 4


def test_decoder_without_forward_mode_is_refused(generator, monkeypatch):
    monkeypatch.delattr(Doubled, "jvp")
    with pytest.raises(ValueError, match="decoder cannot be differentiated in forward mode"):
        probe(Doubled.apply, torch.zeros(1, 3), latents=2, generator=generator)


def test_dead_columns(generator):
    """They form no pair, as in column_cosine, whether zero or lost beside the others."""
    columns = torch.randn(20, 40, generator=generator, dtype=F64)
    columns[:, :10], columns[:, 10:15] = 0, 1e-30
    live = column_cosine((columns.T @ columns)[None]).item()
    truth = {"cosine": torch.tensor(live), "overlapping_fraction": torch.tensor(1.0, dtype=F64)}
    found = scores(lambda z: z @ columns.T, torch.zeros(1, 40, dtype=F64), truth, seeds=30, latents=30)
    assert ((found.std(0) > 0.7) & (found.std(0) < 1.4)).all()
    assert (found.mean(0).abs() < 4 / math.sqrt(30)).all()
    whole = probe(lambda z: z @ columns.T, torch.zeros(1, 40, dtype=F64), latents=40, generator=generator)
    assert whole.dead_fraction.item() == 15 / 40
    assert whole.separate_cosine.isnan()


def test_without_a_live_pair_there_is_no_cosine(generator):
    found = probe(
        lambda z: z * torch.tensor([1.0, 0.0, 0.0]), torch.zeros(2, 3), latents=3, generator=generator
    )
    assert found.cosine.isnan()
    assert found.dead_fraction.item() == pytest.approx(2 / 3)


def test_no_overlapping_pair_is_nan(generator):
    found = probe(lambda z: 2 * z, torch.zeros(1, 6, dtype=F64), latents=4, generator=generator)
    assert found.overlapping_cosine.isnan()
    assert found.overlapping_fraction.item() == 0
    assert found.separate_cosine.item() == 0
    assert found.off_diagonal_energy.item() == 0


def test_types_numpy_and_gradients(convolution):
    decoder, z, _ = convolution
    found = probe(decoder, np.asarray(z), latents=3, generator=torch.Generator().manual_seed(0))
    assert {value.dtype for value in found[:-2]} == {F64}
    assert not any(value.requires_grad for value in found[:-2])
    assert (found.latents, found.pairs) == (3, 6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"z": torch.zeros(3)}, r"z must have shape \(batch, \*latent\), got shape \(3,\)"),
        ({"z": torch.zeros(0, 3)}, r"z must have shape \(batch, \*latent\), got shape \(0, 3\)"),
        ({"z": torch.zeros(2, 1)}, "z must hold at least 2 latents to form a pair, got 1"),
        ({"z": torch.zeros(2, 3).int()}, "z must be floating, got torch.int32"),
        (
            {"z": torch.full((2, 3), math.nan)},
            "z must be finite, got NaN or infinite values at 2 of 2 points",
        ),
        ({"latents": 1}, "latents must be at least 2, got 1"),
        (
            {"active": torch.tensor([True, False, False])},
            r"active must be a mask of shape \(3,\) with at least 2 latents to form a pair, got torch.bool .* with 1",
        ),
        ({"active": [0, 1, 2]}, r"active must be a mask of shape \(3,\) .*, got torch.int64 of shape \(3,\)"),
        ({"partners": 0}, "partners must be at least 1, got 0"),
        ({"footprint_threshold": 1.0}, r"footprint_threshold must lie in \(0, 1\), got 1.0"),
        ({"chunk_size": 0}, "chunk_size must be at least 1, got 0"),
        ({"decoder": lambda z: z.sum()}, r"decoder must map \(batch, latent\) to \(batch, \*data\), got"),
        ({"decoder": lambda z: z / 0}, "decoder must give finite outputs at z, got NaN or infinite values"),
        ({"decoder": nn.Dropout(0.5)}, "decoder must be in evaluation mode, but Dropout"),
    ],
)
def test_bad_input_is_refused(change, message, generator):
    given = {"decoder": lambda z: z, "z": torch.zeros(2, 3), "latents": 3, "generator": generator}
    with pytest.raises(ValueError, match=message):
        probe(**given | change)


def test_progress_counts_anchors_over_all_points(dense, generator):
    decoder, z, _ = dense
    seen = []
    probe(
        decoder,
        z.expand(2, -1),
        latents=6,
        generator=generator,
        chunk_size=9,
        progress=lambda *at: seen.append(at),
    )
    assert seen == [(1, 12), (4, 12), (6, 12), (9, 12), (12, 12)]


def test_progress_comes_early_where_every_column_is_computed(dense, generator):
    decoder, z, _ = dense
    seen = []
    options = {"latents": 60, "generator": generator, "chunk_size": 40}
    probe(decoder, z.expand(2, -1), **options, progress=lambda *at: seen.append(at))
    assert seen == [(1, 120), (41, 120), (60, 120), (100, 120), (120, 120)]


@pytest.mark.parametrize(("latents", "most"), [(20, 20 + 20 + 2 * 20), (60, 60)])
def test_each_column_is_computed_once(dense, generator, directions, latents, most):
    """Few anchors take their own columns, one reverse pass each and two partners; all take their columns alone."""
    decoder, z, _ = dense
    probe(decoder, z, latents=latents, generator=generator, chunk_size=10_000)
    assert sum(directions) <= most


def test_a_point_passes_once_for_a_batch_of_directions(dense, generator):
    decoder, z, _ = dense
    seen = []

    def spy(points):
        seen.append(len(points))
        return decoder(points)

    probe(spy, z, latents=20, generator=generator)
    assert sum(seen) <= 6  # check, output, typical norm, anchors, rows, partners


def test_progress_that_is_no_function_is_refused():
    with pytest.raises(ValueError, match="progress must be a function of two counts, got inf"):
        probe(lambda z: z, torch.zeros(2, 2), latents=2, generator=torch.Generator(), progress=float("inf"))
