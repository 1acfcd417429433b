"""Jumps along segments, and quantities that do not exist everywhere."""

import pytest
import torch

from unseam.independence._kinks import jumps, segments

POINTS = torch.tensor([[-2.0, 1.0], [2.0, 1.5], [-1.0, 1.2], [3.0, 2.0]], dtype=torch.float64)


def step(z, along):
    return (z[:, 0] > 0.3).double(), torch.zeros(len(z), dtype=z.dtype)


def smooth(z, along):
    return z[:, 1].sin(), z[:, 1].cos() * along[:, 1]


def logarithm(z, along):
    """Does not exist at half of the points of every segment."""
    return z[:, 0].log(), along[:, 0] / z[:, 0].clamp(min=0)


@pytest.mark.parametrize(
    ("quantities", "found"),
    [((step,), True), ((smooth,), False), ((step, smooth), True), ((step, logarithm), True),
     ((smooth, logarithm), False)],
)  # fmt: skip
def test_what_does_not_exist_hides_no_jump(quantities, found):
    def measured(z, along):
        values, slopes = zip(*(quantity(z, along) for quantity in quantities), strict=True)
        return torch.stack(values, 1), torch.stack(slopes, 1)

    assert jumps(measured, segments(POINTS), 1e-9) is found
