"""Advice on β: what is read from data of every kind, what is said of it, and what is drawn."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

from unseam.advice import Advice, advice_figure, advise
from unseam.cli import main
from unseam.data import load


def normal(count=4000, scales=(3.0, 1.0, 0.5), seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, len(scales), generator=generator, dtype=torch.float64) * torch.tensor(
        scales, dtype=torch.float64
    )


def test_thresholds_are_eigenvalues_over_the_variance():
    x = normal()
    found = advise(x, noise=0.5)
    expected = np.linalg.eigvalsh(np.cov(x.numpy().T, bias=True))[::-1] / 0.5
    assert found.likelihood == "gaussian"
    assert found.thresholds.numpy() == pytest.approx(expected, rel=1e-9)
    assert found.active_count(float(expected[0]) * 1.01) == 0
    assert found.active_count(float(expected[0]) * 0.99) == 1
    assert found.range(2).upper == pytest.approx(expected[1])


def test_binary_data_have_the_spectrum_of_their_correlations():
    generator = torch.Generator().manual_seed(0)
    shared = torch.rand(3000, 1, generator=generator) < 0.3
    noise = torch.rand(3000, 4, generator=generator) < 0.1
    x = (shared ^ noise).double()
    found = advise(x)
    assert found.likelihood == "bernoulli"
    expected = np.linalg.eigvalsh(np.corrcoef(x.numpy().T))[::-1]
    assert found.thresholds.numpy() == pytest.approx(expected, rel=1e-9)
    assert float(found.thresholds.sum()) == pytest.approx(4)


def test_units_of_the_data_scale_a_gaussians_thresholds():
    x = normal()
    assert torch.allclose(advise(10 * x).thresholds, 100 * advise(x).thresholds)
    assert torch.allclose(advise(10 * x, noise=100.0).thresholds, advise(x).thresholds)


@pytest.mark.parametrize(
    ("low", "high", "likelihood"),
    [(0.0, 1.0, "bernoulli"), (0.0, 1.001, "gaussian"), (-0.001, 1.0, "gaussian")],
)
def test_values_from_0_to_1_are_probabilities(low, high, likelihood):
    assert advise(torch.tensor([[low, high], [high, low], [low, low]])).likelihood == likelihood


@pytest.mark.parametrize("kind", ["tensor", "array", "npy", "npz"])
def test_the_same_from_every_source(kind, tmp_path):
    x = normal(200)
    sources = {"tensor": x, "array": x.numpy(), "npy": tmp_path / "x.npy", "npz": tmp_path / "x.npz"}
    np.save(tmp_path / "x.npy", x.numpy())
    np.savez(tmp_path / "x.npz", x=x.numpy())
    found = advise(sources[kind])
    assert found.points == 200
    assert torch.allclose(found.thresholds, advise(x).thresholds)


@pytest.mark.parametrize("points", [100, 1000, 20_000])
def test_rows_in_the_order_of_a_grid_of_factors(points):
    """Evenly spaced rows would run through both factors in step."""
    slow, fast = torch.linspace(-1, 1, 1000).double(), torch.linspace(-1, 1, 40).double()
    x = torch.cartesian_prod(slow, fast) * torch.tensor([1.0, 2.0]).double()
    whole, found = advise(x).thresholds, advise(x, points=points).thresholds
    # the relative error of a variance of n uniform draws is at most sqrt(0.8 / n); five of them
    assert ((found / whole - 1).abs() < 5 * (0.8 / points) ** 0.5).all()


def test_a_world_and_its_name():
    by_name, world = advise("linear", points=500), advise(load("linear"), points=500)
    assert by_name.name == "linear" and by_name.points == 500
    assert torch.equal(by_name.thresholds, world.thresholds)


@pytest.mark.parametrize("saved", [False, True])
def test_bytes_are_taken_as_in_training(saved, tmp_path):
    x = torch.randint(0, 256, (50, 3, 3, 1), generator=torch.Generator().manual_seed(0)).byte()
    np.save(tmp_path / "x.npy", x.numpy())
    found = advise(tmp_path / "x.npy" if saved else x)
    assert found.likelihood == "bernoulli" and "scaled from 0 to 255" in " ".join(found.notes)
    assert torch.allclose(found.thresholds, advise(x.reshape(50, 9).double() / 255).thresholds, rtol=1e-4)


def test_constant_pixels_are_counted_and_left_out():
    x = (normal(500) > 0).double()
    x[:, 1] = 1.0
    found = advise(x)
    assert found.constant == 1
    assert (found.thresholds > 0).sum() == 2
    assert "1 of them constant" in found.summary()


def test_summary_says_the_ranges():
    text = Advice("x", "gaussian", 1.0, 10, 0, torch.tensor([4.0, 1.0, 0.5])).summary()
    assert "At β = 1 one latent is active" in text
    assert "2 latents are active for β from 0.5 to 1." in text


@pytest.mark.parametrize(
    ("values", "count"),
    [
        ([4.0, 1.0, 0.5], 1),
        ([5.0, 4.0, 0.1, 0.09], 2),
        ([3.0], None),
        ([0.0], None),
        ([2.0, 1.0, 0.0], 1),
        ([1.0, 1e-9], None),
        ([1.0, 1.1e-9], 1),
    ],
)
def test_the_widest_plateau_comes_first(values, count):
    found = Advice("x", "gaussian", 1.0, 10, 0, torch.tensor(values, dtype=torch.float64))
    assert found.plateau == count == found.to_dict()["plateau"]
    second = found.summary().splitlines()[1]
    assert second.startswith("Widest plateau: ") == (count is not None)
    if count is not None:
        assert f"from {found.range(count).lower:.3g} to {found.range(count).upper:.3g}, a factor of" in second


def test_nothing_varies():
    found = advise(torch.ones(5, 3))
    assert "every latent collapses at every β" in found.summary()
    assert found.rows() == []
    with pytest.raises(ValueError, match="nothing varies in data"):
        advice_figure(found)


def test_one_direction_has_one_range():
    found = advise(normal()[:, :1] * torch.tensor([1.0, 2.0]))
    below = f"{float(found.thresholds[0]):.3g}"
    assert found.summary().splitlines()[1:-1] == [
        f"At β = 1 one latent is active; with β below {below} its only direction would be."
    ]


def test_rows_and_json_agree():
    found = advise(normal())
    record = json.loads(json.dumps(found.to_dict()))
    assert record["thresholds"] == pytest.approx(found.thresholds.tolist())
    assert [row["active latents"] for row in record["ranges"]] == [1, 2, 3]
    assert record["ranges"][0]["below β"] == pytest.approx(float(found.thresholds[0]))


def test_figure_shows_the_staircase():
    found = advise(normal())
    left, right = advice_figure(found).axes
    assert left.lines[0].get_ydata() == pytest.approx(found.thresholds.numpy())
    beta, count = right.lines[0].get_data()
    assert count[0] == 3 and count[-1] == 0
    assert list(count) == [found.active_count(float(value)) for value in beta]


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        (torch.zeros(3), {}, r"target must hold rows \(batch, ...\), got shape \(3,\)"),
        (torch.zeros(3, 2), {"points": 1}, "points must be at least 2, got 1"),
        (
            torch.full((3, 2), 2.0),
            {"likelihood": "bernoulli"},
            r"needs data in \[0, 1\], got values from 2 to 2",
        ),
        (torch.zeros(3, 2), {"likelihood": "poisson"}, "'gaussian' or 'bernoulli', got 'poisson'"),
        (
            torch.full((3, 2), float("nan")),
            {},
            "target must be finite, got NaN or infinite values in 3 of 3 rows",
        ),
        (
            torch.arange(9.0)[:, None].where(torch.arange(9)[:, None] != 3, torch.inf),
            {"points": 2},
            "target must be finite, got NaN or infinite values in 1 of 9 rows, first in row 3",
        ),
        ("no such world", {}, "target must be a file .* or a world .circles"),
    ],
)
def test_bad_input(target, options, message):
    with pytest.raises(ValueError, match=message):
        advise(target, **options)


def test_noise_belongs_to_a_gaussian_likelihood():
    binary = (np.random.default_rng(0).random((50, 4)) < 0.5).astype(float)
    with pytest.raises(
        ValueError, match="noise is the variance of a gaussian likelihood, got 2 for a bernoulli one"
    ):
        advise(binary, noise=2.0)
    assert "A guide for linear logits" in advise(binary).summary()
    assert "Exact for linear decoders" in advise(binary, likelihood="gaussian", noise=2.0).summary()


def test_counts_are_said_to_be_taken_as_real_values(tmp_path):
    counts = np.random.default_rng(0).poisson(3, (60, 4))
    pd.DataFrame(counts, columns=list("abcd")).to_csv(tmp_path / "c.csv", index=False)
    for found in (advise(counts), advise(tmp_path / "c.csv")):
        assert found.notes[-1].startswith("Whole values were taken as real ones, under a gaussian likelihood")
        assert found.to_dict()["notes"] == list(found.notes)
    assert not advise(counts, likelihood="gaussian").notes, "whoever asks for it knows"
    assert not advise(counts + 0.5).notes and not advise(counts - 3.0).notes and not advise(counts % 2).notes


def test_a_plot_is_an_svg(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("sys.argv", ["unseam", "advise", "linear", "--figure", str(tmp_path / "plot.txt")])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code != 0
    assert "--figure must name an .svg file" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
