"""The geometry at a point, rotated and unrotated."""

import time
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from unseam.charts.pixels import signed_pixels
from unseam.explore import Rotation, exhibit_decoder, local_view
from unseam.explore.local import cosine_chart, spectrum_chart
from unseam.explore.rotation import rotated_pullback, rotation_matrix
from unseam.geometry import distance_to_orthogonality, local_geometry, pullback, restricted_basis
from unseam.models import initialise
from unseam.models.convolutional import study_decoder


def test_closed_form_of_a_linear_decoder(linear, mixing):
    found = local_view(linear, 0, torch.tensor([0.3, -0.2]))
    assert found.latents == (0, 1)
    lengths = mixing.square().sum(1).sqrt()
    assert found.norms == pytest.approx([float(lengths[latent]) for latent in found.latents])
    assert found.cosine == pytest.approx(3 / (3 * 2**0.5))
    assert found.cosines[0][1] == pytest.approx(found.cosine)
    assert found.singular_values == pytest.approx(np.linalg.svd(mixing.numpy(), compute_uv=False))


def test_many_latents_of_large_pictures_take_seconds():
    """64 latents of 3×64×64 pictures from the decoder to its first geometry; in CPU time, whatever else runs."""
    decoder = study_decoder(64, (3, 64, 64))
    initialise(decoder, generator=torch.Generator().manual_seed(0))
    start = time.process_time()
    found = local_view(exhibit_decoder(decoder.eval(), latent=64), 0, torch.zeros(64))
    assert time.process_time() - start < 10
    assert len(found.columns) == 64


@pytest.mark.parametrize("member", [0, 1, 3])
def test_numbers_are_the_library_s(exhibit, member):
    z, subject = torch.tensor([0.4, -0.3, 0.8]), exhibit.subjects[member]
    found = local_view(exhibit, member, z)
    pull = local_geometry(subject.decoder, z[None].float(), likelihood=subject.likelihood).pullback
    basis = restricted_basis(
        pull, list(found.latents), subject.decoder, z[None].float(), likelihood=subject.likelihood
    )
    assert found.singular_values == pytest.approx(basis.singular_values[0].tolist(), rel=1e-4)
    assert found.dto == pytest.approx(float(distance_to_orthogonality(basis.right_vectors)[0]), abs=1e-3)


@pytest.mark.parametrize("degrees", [30.0, 45.0, 90.0])
def test_a_rotation_is_the_geometry_of_the_rotated_decoder(linear, degrees):
    rotation = Rotation(0, 1, degrees)
    matrix = rotation_matrix(2, rotation)
    decoder, z = linear.subjects[0].decoder, torch.tensor([[0.3, -0.2]], dtype=torch.float64)
    reference = pullback(lambda rotated: decoder(rotated @ matrix), z @ matrix.mT)[0]
    assert torch.allclose(rotated_pullback(pullback(decoder, z)[0], matrix), reference)
    found = local_view(linear, 0, z[0], rotation)
    order = list(found.latents)
    assert found.norms == pytest.approx(reference.diagonal().sqrt()[order].tolist())


def test_a_quarter_turn_only_swaps_the_axes(linear):
    z = torch.zeros(2)
    straight, rotated = local_view(linear, 0, z), local_view(linear, 0, z, Rotation(0, 1, 90.0))
    assert rotated.dto == pytest.approx(straight.dto)
    assert sorted(rotated.norms) == pytest.approx(sorted(straight.norms))


def test_columns_and_directions_have_one_scale_of_colours():
    weights = torch.tensor([[1.0, 2.0], [1.0, 2.0]])  # along the first direction, √2 times as strong
    made = exhibit_decoder(lambda z: (z @ weights).view(-1, 1, 1, 2), latent=2)
    found = local_view(made, 0, torch.zeros(2))
    for picture in found.columns:
        np.testing.assert_array_equal(picture, signed_pixels(weights[0].view(1, 1, 2), made.look, 2 * 2**0.5))


def test_pictures_have_the_size_of_the_data(exhibit):
    found = local_view(exhibit, 0, torch.zeros(3))
    assert {picture.shape for picture in (*found.columns, *found.directions)} == {(12, 12, 3)}


def test_rotations_are_orthogonal_and_refuse_one_axis_twice():
    matrix = rotation_matrix(4, Rotation(3, 1, 17.0))
    assert torch.allclose(matrix @ matrix.mT, torch.eye(4, dtype=torch.float64))
    with pytest.raises(ValueError, match="rotation must name two different latents below 4, got 1 and 1"):
        rotation_matrix(4, Rotation(1, 1, 17.0))


@pytest.mark.parametrize("latent, numbers", [(3, True), (40, False)])
def test_charts_have_a_cell_per_pair_and_a_bar_per_singular_value(latent, numbers):
    weight = torch.randn(latent, latent + 2, generator=torch.Generator().manual_seed(0))
    found = local_view(exhibit_decoder(lambda z: z @ weight, latent=latent), 0, torch.zeros(latent))
    names = [f"<{k}>" for k in found.latents]
    drawn = ElementTree.fromstring(cosine_chart(found, names))
    assert len(drawn.findall("rect")) == latent**2
    assert drawn.get("aria-label") == f"Mean |cos| between columns {found.cosine:.2f}"
    shown = [text.text for text in drawn.findall("text")]
    assert (f"{found.cosines[0][1]:.2f}" in shown) == numbers and names[0] in shown
    bars = ElementTree.fromstring(spectrum_chart(found)).findall("rect")
    widths = [float(bar.get("width")) for bar in bars]
    assert len(widths) == latent and widths == sorted(widths, reverse=True)


@pytest.mark.parametrize("weights", [(3.0, 0.0), (0.0, 0.0)])
def test_with_fewer_than_two_active_latents_orthogonality_is_undefined(weights):
    exhibit = exhibit_decoder(lambda z: z * torch.tensor(weights) + 1.0, latent=2)
    found = local_view(exhibit, 0, torch.zeros(2))
    assert (found.dto, found.random_dto, found.cosine, found.gap) == (None, None, None, None)


def test_a_zero_jacobian_at_a_point_is_not_orthogonal():
    # both latents are active, but not where the square has its minimum
    exhibit = exhibit_decoder(lambda z: z.square() * torch.tensor([1.0, 2.0]), latent=2)
    assert len(exhibit.codes(0).active) == 2
    found = local_view(exhibit, 0, torch.zeros(2))
    assert (found.dto, found.cosine, found.gap) == (None, None, None)
    assert np.isnan(found.cosines).all()
    assert local_view(exhibit, 0, torch.ones(2)).cosine == 0.0
