"""Figure 2 of allen2024, right: overlaps by quadrature, averages of known posteriors, and outcomes of known tables."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm

from unseam.models import Encoding
from unseam.papers.allen2024 import figure2

SETTINGS = figure2.RightSettings(samples=50)


def test_distance_of_posteriors_is_that_of_the_integral():
    mean = torch.zeros(1, 4, 4, 1, dtype=torch.float64)
    variance = torch.ones_like(mean)
    mean[:, :, ::2], variance[:, :, ::2] = 1.5, 0.3  # angles alternate; opposite ones are alike, and circles
    found = figure2._bhattacharyya(mean, variance, 1)[0]
    grid = np.linspace(-12, 12, 20_001)
    one, other = (norm(centre, math.sqrt(spread)).pdf(grid) for centre, spread in ((1.5, 0.3), (0.0, 1.0)))
    overlap = np.trapezoid(np.sqrt(one * other), grid)
    assert float(found[0]) == pytest.approx(-math.log(overlap), rel=1e-8)
    assert found[1:].tolist() == pytest.approx([0, 0])


class Averaging:
    """Stands for an ensemble whose two members have posteriors N(x, v) and the best decoder, or the identity."""

    def __init__(self, x, variance):
        self.x, self.variance = x, variance

    def encode(self, x):
        return Encoding(torch.stack([x, x]), torch.full((2, *x.shape), self.variance))

    def decode(self, z):
        weights = torch.softmax(-torch.cdist(z[0], self.x).square() / (2 * self.variance), 1)
        return torch.stack([weights @ self.x, z[1]])


def test_the_best_decoder_is_the_weighted_average():
    x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    found = figure2._averages(Averaging(x, 0.5), x, SETTINGS)
    assert found["from the average"][0] < 1e-10
    assert found["from the average"][1] > 0.05
    # of the identity: the noise itself, two dimensions of 0.5
    assert found["from x"][1] == pytest.approx(1.0 / float((x - x.mean(0)).square().sum(1).mean()), rel=0.3)


SEEDS = 14


def members(**changed):
    betas = [0.5, 1.0, 2.0, 4.0]
    table = {
        "β": betas * SEEDS,
        "seed": [seed for seed in range(SEEDS) for _ in range(4)],
        "variance": [0.1, 0.2, 0.5, 1.0] * SEEDS,
    }
    for place, name in enumerate(figure2.SCALES):
        distance = [(place + 1) * value for value in (8.0, 4.0, 2.0, 1.0)]
        table |= {
            f"distance, {name}": distance * SEEDS,
            f"kept, {name}": [value / 30 for value in distance] * SEEDS,
        }
    table |= {"from the average": [0.001] * 4 * SEEDS, "from x": [0.1] * 4 * SEEDS}
    return {"members": pd.DataFrame(table | changed)}


def test_everything_as_the_figure_says():
    assert {one.outcome for one in figure2.FIGURE2_RIGHT.judge(members())} == {"agrees"}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"variance": [0.1, 0.2, 0.5, 1.0, 1.0, 0.5, 0.2, 0.1] * (SEEDS // 2)},
            "rank correlation of β with Var",
        ),
        ({"variance": [0.5] * 4 * SEEDS}, "rank correlation of β with Var"),
        ({"distance, close neighbours": [1.0, 2.0, 4.0, 8.0] * SEEDS}, "close neighbours"),
        (
            {"distance, across the large circle": [0.1] * 4 * SEEDS},
            "share of models with most overlap",
        ),
        ({"kept, across a small circle": [0.01, 0.02, 0.3, 0.9] * SEEDS}, "squared distance lost"),
        ({"from the average": [0.02] * 4 * SEEDS}, "of d(z) from the weighted average"),
        ({"from x": [0.002] * 4 * SEEDS}, "that distance over the one from the x"),
    ],
)
def test_what_the_figure_does_not_say(changed, words):
    found = [one for one in figure2.FIGURE2_RIGHT.judge(members(**changed)) if words in one.quantity]
    assert found and found[0].outcome != "agrees"
