"""Dials: what stays and what goes."""

import pytest
import torch

import unseam
from unseam.charts import Look
from unseam.explore import Exhibit, Rotation, Subject, beta_curve, exhibit_decoder, measure, rotation_curve
from unseam.explore.local import local_view
from unseam.explore.measures import Measured, mig_curve, pair_table
from unseam.metrics import mig


def test_reconstruction_stays_and_orthogonality_goes(exhibit):
    first, second = exhibit.codes(1).active[:2]
    curve = rotation_curve(exhibit, 1, first, second)
    assert [angle for angle, _ in curve][:2] == [0.0, 7.5]
    straight, middle, quarter = (dict(curve)[angle] for angle in (0.0, 45.0, 90.0))
    assert middle.reconstruction == pytest.approx(straight.reconstruction, rel=1e-4)
    assert quarter.dto == pytest.approx(straight.dto, abs=1e-3)
    assert quarter.mig == pytest.approx(straight.mig, abs=1e-6)
    assert middle.mig != pytest.approx(straight.mig, abs=1e-3)


def test_numbers_are_the_library_s(exhibit):
    codes, found = exhibit.codes(0), measure(exhibit, 0)
    expected = mig(codes.mean[:, sorted(codes.active)], exhibit.factors, preset="fast").score
    assert found.mig == pytest.approx(float(expected))
    pictures = exhibit.subjects[0].picture(codes.mean)
    assert found.reconstruction == pytest.approx(float((pictures - exhibit.items).square().mean()), rel=1e-5)
    assert found.active == len(codes.active)


def test_no_rotation_is_the_model_itself(exhibit):
    assert measure(exhibit, 0, Rotation(0, 1, 0.0)) is measure(exhibit, 0)


def test_betas_ascend(exhibit):
    curve = beta_curve(exhibit, 0)
    assert [beta for beta, _ in curve] == [0.5, 2.0, 8.0]
    assert curve[0][1].active >= curve[-1][1].active


def test_no_beta_is_a_place_on_the_dial_as_well():
    subjects = [Subject(str(beta), lambda z: 2 * z, 2, beta=beta) for beta in (0.0, 2.0)]
    exhibit = Exhibit(subjects, Look((2,), -3.0, 3.0), betas=((0, 1), (0, 1)))
    assert [beta for beta, _ in beta_curve(exhibit, 1)] == [0.0, 2.0]


def test_without_a_world_only_geometry_is_measured(linear):
    found = measure(linear, 0)
    assert found.reconstruction is None
    assert found.mig is None
    assert found.cosine == pytest.approx(2**-0.5)
    rotated = measure(linear, 0, Rotation(0, 1, 90.0))
    assert rotated.cosine == pytest.approx(found.cosine)
    assert torch.isfinite(torch.tensor(rotated.dto))


def test_what_one_model_lacks_is_a_dash_and_what_both_lack_is_left_out():
    table = pair_table(Measured(None, 3, 0.5, 0.996, None), Measured(0.1, 1, None, None, None))
    assert table.count("<tr>") == 5  # with the head
    assert "<th scope='row'>active latents</th><td>3</td><td>1</td>" in table
    assert "<td>1.00</td><td>–</td>" in table
    assert "MIG" not in table


@pytest.mark.parametrize("weights", [(3.0, 0.0), (0.0, 0.0)])
def test_collapse_is_not_orthogonality(weights):
    exhibit = exhibit_decoder(lambda z: z * torch.tensor(weights) + 1.0, latent=2)
    found = measure(exhibit, 0)
    assert (found.dto, found.cosine) == (None, None)


def test_collapsed_latents_do_not_enter_mig():
    """A latent that copies a factor without using the KL counts for nothing; without an active one MIG is undefined."""
    world = unseam.data.load("linear", size=200)
    decoder, copy = (
        lambda z: z.repeat(1, 2)[:, : world.shape[0]],
        lambda x: torch.cat([x[:, :1], 1e-3 * x[:, :1]], 1),
    )
    encode = lambda x: (copy(x), torch.tensor([1e-3, 1.0]).expand(len(x), 2))  # noqa: E731
    found = exhibit_decoder(decoder, encoder=encode, world=world)
    alone = mig(found.codes(0).mean[:, :1], found.factors, discrete=[False, False], preset="fast").score
    assert found.codes(0).active == (0,)
    assert measure(found, 0).mig == pytest.approx(float(alone))
    collapsed = lambda x: (1e-3 * copy(x), torch.ones(len(x), 2))  # noqa: E731
    assert measure(exhibit_decoder(decoder, encoder=collapsed, world=world), 0).mig is None


def test_where_singular_values_coincide_there_is_no_dto():
    """Also after a rotation, which leaves the cosines of equally long orthogonal columns at 0."""
    exhibit = exhibit_decoder(lambda z: 2 * z, latent=2)
    for rotation in (None, Rotation(0, 1, 30.0)):
        found = measure(exhibit, 0, rotation)
        assert found.dto is None and found.cosine == pytest.approx(0.0, abs=1e-12)
        here = local_view(exhibit, 0, torch.zeros(2), rotation)
        assert here.dto is None and here.degenerate and here.cosine == pytest.approx(0.0, abs=1e-12)


def test_mig_over_the_angle_is_that_of_the_rotated_codes(exhibit):
    first, second = exhibit.codes(1).active[:2]
    curve = mig_curve(exhibit, 1, first, second)
    assert curve == [found.mig for _, found in rotation_curve(exhibit, 1, first, second)]
