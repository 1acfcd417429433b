"""Decoders and points that no Jacobian can be computed of, and what is said about each."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from unseam.geometry import jacobian, pullback
from unseam.geometry.checks import (
    check_decoder,
    check_points,
    check_points_finite,
    directional,
    measuring,
)
from unseam.models import BatchNorm, build, initialise

NAN, INF = float("nan"), float("inf")

both = pytest.mark.parametrize("function", [jacobian, pullback])


@pytest.fixture
def points(generator):
    return torch.randn(6, 3, generator=generator)


def spoilt(points, **values):
    """Points with given values at given rows: ``r2=NAN``."""
    points = points.clone()
    for row, value in values.items():
        points[int(row[1:]), 1] = value
    return points


@both
@pytest.mark.parametrize(
    ("z", "message"),
    [
        (torch.zeros(3), r"z must have shape \(batch, latent\), got shape \(3,\)"),
        (torch.zeros(2, 3, 1), r"z must have shape \(batch, latent\), got shape \(2, 3, 1\)"),
        (torch.zeros(2, 3, dtype=torch.int64), "z must be floating, got torch.int64"),
        (torch.zeros(0, 3), r"z must have shape \(batch, latent\), got shape \(0, 3\)"),
        (torch.zeros(2, 0), r"z must have shape \(batch, latent\), got shape \(2, 0\)"),
        (spoilt(torch.zeros(6, 3), r2=NAN), "z must be finite, got NaN or infinite values at 1 of 6 points"),
        (spoilt(torch.zeros(6, 3), r0=INF, r5=-INF), "z must be finite, .* at 2 of 6 points"),
    ],
)
def test_bad_points(function, z, message):
    with pytest.raises(ValueError, match=message):
        function(lambda z: z, z)


@both
@pytest.mark.parametrize("decoder", [nn.Linear(5, 4), build((4,), latent=5).decode], ids=["module", "method"])
def test_decoder_of_another_number_of_latents(function, decoder, points):
    with pytest.raises(
        ValueError, match=r"decoder does not accept z \(batch, 3\) of torch.float32 on cpu: .*3.*5|.*5.*3"
    ):
        function(decoder, points)


@both
def test_decoder_of_another_type(function, points):
    with pytest.raises(
        ValueError, match=r"decoder does not accept z \(batch, 3\) of torch.float32 on cpu: .*dtype"
    ):
        function(nn.Linear(3, 4).double(), points)


@both
@pytest.mark.parametrize(
    ("decoder", "message"),
    [
        (
            lambda z: z.sum(1),
            r"decoder must map \(batch, latent\) to \(batch, \*data\), got \(4,\) from z of",
        ),
        (lambda z: z.sum(), r"decoder must map \(batch, latent\) to \(batch, \*data\), got \(\) from z of"),
        (lambda z: z[:2], r"decoder must map .*, got \(2, 3\) from z of shape \(4, 3\)"),
        (lambda z: z[:, :0], r"decoder must map .*, got \(4, 0\) from z of shape \(4, 3\)"),
        (lambda z: z.long(), "decoder must return floating values, got torch.int64"),
        (lambda z: z + 0j, "decoder must return floating values, got torch.complex64"),
        (lambda z: (z, z), "decoder must return a tensor, got tuple"),
        (lambda z: z.to("meta"), "decoder must return values on the device of z, cpu, got meta"),
    ],
)
def test_bad_outputs(function, decoder, message, points):
    with pytest.raises(ValueError, match=message):
        function(decoder, points)


MODES = {
    "Dropout '1'": nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.1)),
    "Dropout2d '0.0.1'": nn.Sequential(
        nn.Sequential(nn.Sequential(nn.Unflatten(1, (3, 1, 1)), nn.Dropout2d())), nn.Flatten()
    ),
    "BatchNorm1d '0'": nn.Sequential(nn.BatchNorm1d(3)),
    "BatchNorm '1'": nn.Sequential(nn.Unflatten(1, (3, 1, 1)), BatchNorm(3)),
    "BatchNorm2d '1'": nn.Sequential(nn.Unflatten(1, (3, 1, 1)), nn.BatchNorm2d(3)),
}


@both
@pytest.mark.parametrize("name", MODES)
def test_modules_in_training_mode_are_named_and_left_alone(function, name, points):
    decoder = MODES[name].train()
    before = {name: value.clone() for name, value in decoder.state_dict().items()}
    with pytest.raises(
        ValueError,
        match=rf"decoder must be in evaluation mode, but {name} is in training mode; call .eval\(\) on it first",
    ):
        function(decoder, points)
    assert decoder.training
    torch.testing.assert_close(dict(decoder.state_dict()), before)
    assert function(decoder.eval(), points).isfinite().all()


def test_dropout_that_never_drops_is_let_pass(points):
    assert jacobian(nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.0)).train(), points).shape == (6, 4, 3)


HIDDEN = {
    "dropout": (
        lambda z: F.dropout(z),
        r"give the same output each time, but draws random numbers; call .eval\(\)",
    ),
    "noise": (lambda z: z + torch.randn(4, 3), "give the same output each time, but draws random numbers"),
    "statistics": (
        lambda z: F.batch_norm(z, None, None, training=True),
        r"treat each point on its own, but uses statistics of the batch; call .eval\(\)",
    ),
    "closure": (
        lambda z: MODES["BatchNorm1d '0'"].train()(z),
        "treat each point on its own, but uses statistics of the batch",
    ),
    "without running statistics": (
        nn.BatchNorm1d(3, track_running_stats=False).eval(),
        "treat each point on its own, but uses statistics of the batch",
    ),
}


@both
@pytest.mark.parametrize("name", HIDDEN)
def test_training_mode_is_found_wherever_it_hides(function, name, points):
    decoder, message = HIDDEN[name]
    with pytest.raises(ValueError, match=f"decoder must {message}"):
        function(decoder, points)


def test_an_encoder_in_training_mode_is_no_matter_of_the_decoder(points):
    model = build((4,), latent=3)
    initialise(model, generator=torch.Generator().manual_seed(0))
    model.encoder = nn.Sequential(nn.Dropout(0.5), model.encoder).train()
    assert jacobian(model.decode, points).shape == (6, 4, 3)


def previous(z):
    """Each point looks at the one before it."""
    return z + torch.cat([torch.zeros_like(z[:1]), z[:-1]])


MIXING = {
    "mean": lambda z: z - z.mean(0),
    "running sum": lambda z: z.cumsum(0),
    "running sum from the end": lambda z: z.flip(0).cumsum(0).flip(0),
    "ring": lambda z: z.roll(1, 0),
    "every second": lambda z: z + z.roll(2, 0),
    "reversed": lambda z: z.flip(0),
    "pairs": lambda z: z.unflatten(0, (-1, 2)).softmax(1).flatten(0, 1) if len(z) % 2 == 0 else z,
    "previous": previous,
    "attention": lambda z: (z @ z.T).softmax(1) @ z,
    "statistics": lambda z: (z - z.mean(0)) / z.std(0),
}


@both
@pytest.mark.parametrize("name", MIXING)
def test_decoders_that_mix_points_are_found(function, name, points):
    message = (
        "decoder must treat each point on its own, but its output at one point changes with another point"
    )
    with pytest.raises(ValueError, match=message):
        function(MIXING[name], points)


def test_one_point_at_a_time_cannot_be_mixed(points):
    found = jacobian(MIXING["running sum"], points, chunk_size=1)
    torch.testing.assert_close(found, torch.eye(3).expand(6, 3, 3))


@pytest.mark.parametrize(
    "decoder",
    [
        nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.PReLU()),
        nn.Sequential(nn.Linear(3, 8), nn.Unflatten(1, (2, 4)), nn.InstanceNorm1d(2)),
        nn.Sequential(nn.Linear(3, 8), nn.Unflatten(1, (2, 4)), nn.GroupNorm(1, 2)),
        lambda z: z.softmax(1) * z.norm(dim=1, keepdim=True),
    ],
    ids=["layer", "instance", "group", "softmax"],
)
def test_decoders_that_keep_points_apart_pass(decoder, points):
    expected = [torch.autograd.functional.jacobian(lambda z: decoder(z[None])[0], point) for point in points]
    torch.testing.assert_close(jacobian(decoder, points), torch.stack(expected).flatten(1, -2))


def attention(z):
    rows = z[:, None, :, None] * torch.linspace(1, 2, 4)
    return F.scaled_dot_product_attention(rows, rows, rows)


def test_attention_needs_its_mathematical_kernel(points):
    expected = [
        torch.autograd.functional.jacobian(lambda z: attention(z[None])[0], point) for point in points
    ]
    with sdpa_kernel(SDPBackend.MATH):
        torch.testing.assert_close(jacobian(attention, points), torch.stack(expected).flatten(1, -2))
    with (
        sdpa_kernel(SDPBackend.FLASH_ATTENTION),
        pytest.raises(ValueError, match="decoder cannot be differentiated in forward mode: .*attention"),
    ):
        jacobian(attention, points)


@both
@pytest.mark.parametrize(
    "decoder",
    [
        lambda z: torch.where(z > 0, z, NAN).exp(),
        lambda z: z.log(),
        lambda z: torch.where(z > 0, 1.0, INF).detach() * torch.ones_like(z) + z,
        lambda z: z.clamp(min=0).sqrt(),
    ],
    ids=["NaN", "outside the domain", "infinite output", "infinite derivative"],
)
def test_outputs_and_derivatives_must_be_finite(function, decoder, points):
    bad = int((points <= 0).any(1).sum())
    assert 0 < bad < 6
    message = (
        f"decoder must be finite and have finite derivatives, got NaN or infinite values at {bad} of 6 points"
    )
    if decoder(torch.zeros(1, 1)).isfinite().all():
        points = points.clamp(min=0)
    with pytest.raises(ValueError, match=message):
        function(decoder, points, chunk_size=4)


@both
@pytest.mark.parametrize("name", ["0.weight", "2.weight", "2.bias"])
def test_parameters_that_are_not_finite(function, name, generator):
    decoder = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 40))
    with torch.no_grad():
        decoder.get_parameter(name).flatten()[0] = NAN
        z = torch.randn(50, 3, generator=generator)
        with pytest.raises(ValueError, match="got NaN or infinite values at 50 of 50 points"):
            function(decoder, z)


def test_fisher_weights_must_be_finite(points):
    class Spoilt:
        def fisher_weight(self, output):
            return torch.where(torch.arange(len(output))[:, None] == 1, INF, output**2)

    with pytest.raises(ValueError, match="decoder and Fisher weight must be finite .* at 1 of 6 points"):
        pullback(nn.Linear(3, 4), points, likelihood=Spoilt())


def test_training_is_not_looked_at(points):
    """Points that require gradients, or are inside a transformation, cost no look at their values."""
    seen = []

    def decoder(z):
        seen.append(len(z))
        return z * z.sum(1, keepdim=True)

    pullback(decoder, points.requires_grad_())
    vmap(lambda z: pullback(decoder, z[None]))(points.detach())
    # once for known layers, once for torch's forward mode
    assert seen == [6, 6, 1, 1]
    assert pullback(decoder, (points * NAN).requires_grad_()).isnan().all()


def test_measuring(points):
    learnt = points.clone().requires_grad_()
    assert measuring(points)
    assert not measuring(learnt)
    assert not measuring(2 * learnt)
    with torch.no_grad():
        assert measuring(learnt)
    answers = []
    vmap(lambda z: answers.append(measuring(z)) or z)(points)
    assert answers == [False]


def test_a_look_at_a_decoder(points):
    decoder = nn.Sequential(nn.Linear(3, 7), nn.ReLU(), nn.Linear(7, 5), nn.Unflatten(1, (5, 1)))
    glance = check_decoder(decoder, points)
    torch.testing.assert_close(glance.z, points[:4])
    torch.testing.assert_close(glance.output, decoder(points[:4]).detach())
    assert glance.widest == 7
    assert not glance.output.requires_grad
    assert len(check_decoder(decoder, points, at_once=2).output) == 2


def test_points_from_elsewhere(points):
    assert check_points(points) is points
    assert check_points(points.numpy()).shape == (6, 3)
    check_points_finite("z must be finite", points, points)


def test_directional_derivative_needs_no_rule_for_vmap(points):
    output, derivative = directional(
        lambda z: z * float(z.detach().numpy().max()), points, torch.ones_like(points)
    )
    torch.testing.assert_close(output, points * points.max())
    torch.testing.assert_close(derivative, points.max().expand(6, 3))
    assert directional(lambda z: torch.ones_like(z), points, points)[1].eq(0).all()
