"""Fused kernels against plain torch: on CUDA, or on the host by Triton's interpreter (``make test-kernels``)."""

import dataclasses
import importlib.util
import os

import pytest
import torch

import unseam
from unseam.data import place
from unseam.geometry import _jacobi
from unseam.models import _convolutions, _fused, products
from unseam.models._convolutions import Shape
from unseam.training import Trial, stack_trials, training_steps
from unseam.training.step import precision

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and importlib.util.find_spec("triton") is not None
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.skipif(
    DEVICE == "cpu" and not INTERPRETED, reason="needs CUDA, or Triton's interpreter: make test-kernels"
)

SMALL = Trial(
    world="nonlinear",
    likelihood="gaussian",
    latent=2,
    encoder_widths=(12,),
    decoder_widths=(12,),
    beta=1e-3,
    batch_size=16,
    precision="float32",
)
on_cuda = pytest.mark.skipif(
    DEVICE == "cpu", reason="needs CUDA: the interpreter takes minutes, and cuts bfloat16 instead of rounding"
)
STEPS = 20 if DEVICE == "cuda" else 3  # the interpreter runs one program after another
LAUNCHES: list[str] = []


@pytest.fixture(autouse=True)
def fused(monkeypatch):
    """Kernels are used on this device, and every launch is counted."""
    LAUNCHES.clear()
    device = _fused._device

    def counting(x):
        LAUNCHES.append(x.device.type)
        return device(x)

    monkeypatch.setattr(_fused, "_device", counting)
    if DEVICE == "cpu":
        for module in ("training.step", "models.bernoulli", "models.affine", "models._fused"):
            monkeypatch.setattr(f"unseam.{module}.can_fuse", lambda x: x.dtype != torch.float64)
        # few large programs: the interpreter runs one after another
        monkeypatch.setattr(_convolutions, "BUSY", 4)
        monkeypatch.setattr(_fused, "_BLOCK", 1 << 14)


def trained(trials, world, **options):
    stack = stack_trials(trials, world.shape, size=len(world), device=DEVICE, **options)
    for _ in training_steps(stack, place(world, DEVICE)):
        pass
    return stack


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=on_cuda)])
def test_kernels_compute_what_torch_does(dtype):
    add_bias, narrowed, bernoulli_rows = _fused.add_bias, _fused.narrowed, _fused.bernoulli_rows
    scale_rows, sum_rows = _fused.scale_rows, _fused.sum_rows
    generator = torch.Generator(DEVICE).manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, device=DEVICE)

    ulp = torch.finfo(dtype).eps
    y, bias = draw(3, 7, 1300).to(dtype), draw(3, 1400)[:, 50:1350]
    torch.testing.assert_close(add_bias(y.clone(), bias), (y.float() + bias[:, None]).to(dtype))
    torch.testing.assert_close(sum_rows(y), y.double().sum(1).float(), rtol=1e-5, atol=1e-5)
    wide = draw(3, 2000)[:, 100:1400].view(3, 26, 50)
    assert torch.equal(narrowed(wide, dtype), wide.to(dtype))
    x, logits = draw(20, 1500).sigmoid(), (30 * draw(20, 1500)).to(dtype)
    logits[0, :2] = torch.tensor([300.0, -300.0])
    sums, slopes = bernoulli_rows(x, logits)
    exact = x * logits.double() - torch.nn.functional.softplus(logits.double())
    torch.testing.assert_close(sums.double(), exact.sum(1), rtol=1e-6, atol=0)
    torch.testing.assert_close(slopes.double(), x - logits.double().sigmoid(), rtol=ulp, atol=ulp)
    by = draw(20)
    torch.testing.assert_close(scale_rows(slopes, by), (slopes.float() * by[:, None]).to(dtype))


@pytest.mark.parametrize("optimiser", ["adam", "adagrad", "sgd"])
@pytest.mark.parametrize("objective", ["beta_elbo", pytest.param("factor_vae", marks=on_cuda)])
def test_fused_updates_follow_those_of_torch(optimiser, objective, monkeypatch):
    """Rounding apart, also where one member of three diverges, and for the two optimisers of FactorVAE."""
    world = unseam.data.load("nonlinear", size=500)
    trial = dataclasses.replace(
        SMALL, optimiser=optimiser, objective=objective, learning_rate=1e-3, steps=STEPS
    )
    trials = [trial, dataclasses.replace(trial, seed=1), dataclasses.replace(trial, learning_rate=1e30)]
    fused = trained(trials, world)
    assert LAUNCHES
    monkeypatch.setattr("unseam.training.step.can_fuse", lambda flat: False)
    plain = trained(trials, world)
    torch.testing.assert_close(fused.flat[:2], plain.flat[:2], rtol=0, atol=1e-5)
    assert fused.stopped_at.tolist() == plain.stopped_at.tolist()
    assert fused.stopped_at[0] == -1 and fused.stopped_at[2] > 0
    assert fused.flat.isfinite().all()


@on_cuda
@pytest.mark.parametrize("optimiser", ["adam", "adagrad"])
@pytest.mark.parametrize("objective", ["beta_elbo", "factor_vae"])
def test_parameters_updated_one_by_one_follow_those_in_blocks(optimiser, objective, monkeypatch):
    world = unseam.data.load("nonlinear", size=500)
    trial = dataclasses.replace(SMALL, optimiser=optimiser, objective=objective, steps=STEPS)
    trials = [trial, dataclasses.replace(trial, learning_rate=1e30)]
    blocks = trained(trials, world)
    monkeypatch.setattr("unseam.training.step.GATHERED", 0)
    pieces = trained(trials, world)
    assert torch.equal(pieces.flat, blocks.flat)
    assert pieces.stopped_at.tolist() == blocks.stopped_at.tolist() and blocks.stopped_at[1] > 0


@on_cuda
@pytest.mark.parametrize("posterior", ["diagonal", "full"])
@pytest.mark.parametrize(("name", "tolerance"), [("float32", 1e-4), ("bf16", 0.05)])
def test_stacked_layers_train_as_plain_ones(posterior, name, tolerance):
    """Apart by a small part of the way gone: affine layers, biases and the Bernoulli likelihood have kernels of their
    own."""
    world = unseam.data.load("sprites", scales=2, orientations=2, positions=4, resolution=24)
    trial = Trial(
        encoder_widths=(40,), decoder_widths=(30, 20), latent=3, posterior=posterior, batch_size=8, steps=60,
        precision=name,
    )  # fmt: skip
    trials = [dataclasses.replace(trial, seed=seed) for seed in range(2)]
    start = stack_trials(trials, world.shape, size=len(world), device=DEVICE).flat
    ours, theirs = (trained(trials, world, products=products).flat for products in (True, False))
    assert (ours - theirs).norm() < tolerance * (theirs - start).norm()


def test_convolutions_train_with_kernels_as_without(monkeypatch):
    """By the trainer's own step, every parameter updated by itself; without being asked for, no kernel convolves."""
    monkeypatch.setattr("unseam.training.step.GATHERED", 0)
    world = unseam.data.load("sprites", scales=2, orientations=2, positions=4, resolution=16)
    trial = Trial(
        architecture="convolutional", latent=2, batch_size=2, steps=STEPS // 3, precision="float32", optimiser="sgd",
        learning_rate=1e-4,
    )  # fmt: skip
    trials = [dataclasses.replace(trial, seed=seed) for seed in range(2)]
    start = stack_trials(trials, world.shape, size=len(world), device=DEVICE).flat
    runs = []
    for kernels in ({}, {"kernels": True}):
        LAUNCHES.clear()
        runs.append((trained(trials, world, products=True, **kernels).flat, len(LAUNCHES)))
    (without, few), (ours, many) = runs
    assert many > few
    for one, other, before in zip(ours, without, start, strict=True):
        assert 0 < (one - other).norm() < 1e-4 * (other - before).norm()


# of the published networks and of pictures of any size, with sides and batches that fill no block
LAYERS = [
    Shape(4, 2, 1, 1, 32, 5, 7),
    Shape(4, 2, 1, 3, 32, 4, 4),
    Shape(4, 2, 1, 32, 32, 3, 3),
    Shape(4, 2, 1, 32, 64, 3, 2),
    Shape(4, 2, 1, 64, 64, 2, 2),
    Shape(2, 2, 0, 32, 64, 3, 3),
    Shape(2, 2, 0, 64, 64, 2, 2),
    Shape(3, 1, 1, 5, 70, 3, 4),
    Shape(6, 2, 2, 3, 5, 3, 3),
    Shape(6, 3, 0, 4, 2, 2, 3),
]


def convolved(x, weight, bias, shape, transposed, rectified):
    way = torch.nn.functional.conv_transpose2d if transposed else torch.nn.functional.conv2d
    pairs = zip(x, weight, [None] * len(x) if bias is None else bias, strict=True)
    y = torch.stack([
        way(one.movedim(-1, 1), kernel, shift, shape.stride, shape.padding) for one, kernel, shift in pairs
    ])  # fmt: skip
    return (y.relu() if rectified else y).movedim(2, -1)


def drawn(shape, transposed, members, batch, generator):
    sides = (
        (shape.height, shape.width)
        if transposed
        else (shape.height * shape.stride, shape.width * shape.stride)
    )
    sizes = [
        (members, batch, *sides, shape.coarse if transposed else shape.fine),
        (members, shape.coarse, shape.fine, shape.kernel, shape.kernel),
        (members, shape.fine if transposed else shape.coarse),
    ]
    return [torch.randn(size, generator=generator, dtype=torch.float64, device=DEVICE) for size in sizes]


@pytest.fixture
def poisoned(monkeypatch):
    """Fresh memory holds NaN."""
    empty, new_empty = torch.empty, torch.Tensor.new_empty
    monkeypatch.setattr(torch, "empty", lambda *size, **options: empty(*size, **options).fill_(torch.nan))
    monkeypatch.setattr(
        torch.Tensor, "new_empty", lambda x, *size, **options: new_empty(x, *size, **options).fill_(torch.nan)
    )


SUITED = [shape for shape in LAYERS if shape.kernel == shape.stride + 2 * shape.padding]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("shape", "masked"), [*((shape, True) for shape in SUITED), (SUITED[1], False)])
def test_convolutions_and_their_gradients_are_those_in_double_precision(shape, transposed, masked, poisoned):
    """With a ReLU before and after, whose derivatives both are left to the next layer, or with none and no bias."""
    generator = torch.Generator(DEVICE).manual_seed(0)
    x, weight, bias = drawn(shape, transposed, 2, 3, generator)
    x = x.relu() if masked else x
    given = [x, weight, bias] if masked else [x, weight]
    exact = [value.clone().requires_grad_() for value in given]
    narrow = [value.float().requires_grad_() for value in given]
    ours = _convolutions.convolve(
        *narrow[:2], narrow[2] if masked else None, shape, transposed=transposed, rectified=masked, masked=masked,
        dtype=torch.float32,
    )  # fmt: skip
    theirs = convolved(*exact[:2], exact[2] if masked else None, shape, transposed, masked)
    slope = torch.randn(theirs.shape, generator=generator, dtype=torch.float64, device=DEVICE)
    one = torch.autograd.grad(ours, narrow, (slope * (theirs > 0) if masked else slope).float())
    other = list(torch.autograd.grad(theirs, exact, slope))
    if masked:
        other[0] = other[0] * (x > 0)
    for value, known in zip((ours, *one), (theirs, *other), strict=True):
        assert (value.double() - known).norm() <= 1e-6 * known.norm()


def nearest_tf32(x):
    """The 10-bit mantissa that is nearest to x, ties away from zero."""
    mantissa, exponent = torch.frexp(x.double())
    scaled = mantissa * 2**11
    return torch.ldexp(torch.sign(scaled) * torch.floor(scaled.abs() + 0.5), exponent - 11)


@pytest.mark.parametrize("transposed", [False, True])
def test_tf32_is_rounded_to_nearest(transposed):
    """The products of tensor cores drop the bits that TF32 has no room for, which shrinks every product."""
    shape = Shape(4, 2, 1, 3, 32, 4, 4)
    x, weight, bias = (
        value.float() for value in drawn(shape, transposed, 2, 3, torch.Generator(DEVICE).manual_seed(0))
    )
    exact = [value.double().requires_grad_() for value in (nearest_tf32(x), nearest_tf32(weight), bias)]
    narrow = [value.clone().requires_grad_() for value in (x, weight, bias)]
    with precision("tf32"):
        ours = _convolutions.convolve(*narrow, shape, transposed=transposed, dtype=torch.float32)
        one = torch.autograd.grad(ours, narrow, torch.ones_like(ours))
    theirs = convolved(*exact, shape, transposed, False)
    other = torch.autograd.grad(theirs, exact, torch.ones_like(theirs))
    for value, known in zip((ours, *one), (theirs, *other), strict=True):
        assert (value.double() - known).norm() <= 1e-6 * known.norm()


@pytest.mark.parametrize("kind", ["gather", "scatter", "weigh"])
def test_sizes_of_blocks_change_nothing(kind):
    """Fine pixels by one product or parity by parity, blocks larger and smaller than what there is."""
    shape = Shape(4, 2, 1, 20, 32, 4, 2)
    generator = torch.Generator(DEVICE).manual_seed(0)
    coarse, weight, _ = (value.float() for value in drawn(shape, True, 2, 3, generator))
    fine = drawn(shape, False, 2, 3, generator)[0].float()
    packed = weight.permute(0, 3, 4, 2, 1).contiguous()
    results = []
    for sizes in ((16, 16, 16, 4, 2), (64, 64, 32, 4, 3), (32, 128, 64, 4, 2)):
        for unit in (0, 1, 2) if kind == "scatter" else (0,):
            tile = _convolutions.Tile(*sizes, unit)
            if kind == "weigh":
                results.append(torch.cat([
                    value.flatten() for side in ("fine", "coarse")
                    for value in _convolutions.weigh(fine, coarse, shape, torch.float32, bias=side, tile=tile)
                ]))  # fmt: skip
            else:
                run = _convolutions.gather if kind == "gather" else _convolutions.scatter
                results.append(run(fine if kind == "gather" else coarse, packed, shape, tile=tile))
    for result in results[1:]:
        torch.testing.assert_close(result, results[0], rtol=1e-4, atol=1e-4)


def test_a_member_alone_convolves_as_in_a_stack():
    shape = Shape(4, 2, 1, 8, 32, 4, 4)
    x, weight, bias = (
        value.float() for value in drawn(shape, False, 5, 9, torch.Generator(DEVICE).manual_seed(0))
    )

    def run(rows):
        given = [value[rows].clone().requires_grad_() for value in (x, weight, bias)]
        y = _convolutions.convolve(*given, shape, transposed=False, rectified=True, dtype=torch.float32)
        # of a linear function of y, so that gradients are rounded once and not by y's own rounding too
        return y, *torch.autograd.grad(y, given, torch.ones_like(y).cumsum(-1).remainder(3) - 1)

    for one, all_of_them in zip(run(slice(3, 4)), run(slice(None)), strict=True):
        torch.testing.assert_close(one[0], all_of_them[3], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("part", [0, 1])
def test_networks_with_kernels_compute_what_they_are_stacked_from(part, monkeypatch):
    """Every convolution by a kernel; pictures that are no squares, in colour, and ReLUs between and after them."""
    build = lambda: unseam.models.convolutional((3, 16, 20), 6, 3, (3, 16, 20))[part].to(DEVICE)  # noqa: E731
    networks = [build() for _ in range(2)]
    for seed, network in enumerate(networks):
        unseam.models.initialise(network, generator=torch.Generator().manual_seed(seed))
    parameters, _ = torch.func.stack_module_state(networks)
    x = torch.randn(2, 3, *((3,) if part else (3, 16, 20)), generator=torch.Generator().manual_seed(2)).to(
        DEVICE
    )
    twin = products.stacked(networks[0], kernels=True)
    by_kernel, convolve = [], products.convolve
    monkeypatch.setattr(
        products, "convolve", lambda *given, **options: (by_kernel.append(1), convolve(*given, **options))[1]
    )
    ours = torch.vmap(lambda member, x: torch.func.functional_call(twin, member, (x,)))(parameters, x)
    layers = [layer for layer in networks[0] if isinstance(layer, torch.nn.Conv2d | torch.nn.ConvTranspose2d)]
    assert len(by_kernel) == len(layers) == 2
    gradients = torch.autograd.grad(ours.sin().sum(), list(parameters.values()))
    for member, network in enumerate(networks):
        exact = network.double()(x[member].double())
        assert (ours[member] - exact).norm() <= 1e-6 * exact.norm()
        known = torch.autograd.grad(exact.sin().sum(), list(network.parameters()))
        for one, other in zip(gradients, known, strict=True):
            assert (one[member] - other).norm() <= 1e-5 * other.norm()


@pytest.mark.parametrize("gram", [False, True])
def test_rotations_of_the_kernel_are_those_of_torch(gram, monkeypatch):
    """More matrices than a block has threads, columns of very different lengths, and one pair that is orthogonal."""
    import triton
    import triton.language as tl

    lengths = torch.tensor([1e4, 1.0, 1e-4, 3.0], dtype=torch.float64)
    x = torch.randn(37, 6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * lengths
    x[3, :, 0], x[3, 0, 0], x[3, 0, 1] = 0, 1, 0
    matrix = x.mT @ x if gram else x
    data = matrix.shape[1]
    monkeypatch.setattr(_jacobi, "_sweep_by_kernel", lambda *given, **options: False)
    known = _jacobi._with_identity(matrix)
    _jacobi._sweep(known, data, gram=gram)
    found = _jacobi._with_identity(matrix).to(DEVICE)
    bound = (4 * torch.finfo(torch.float64).eps) ** 2
    _jacobi._rotations(triton, tl)[(2,)](found, 37, bound, len(found), data, 4, 30, gram, 32, num_warps=1)
    sizes = known[:data].abs().amax((0, 1) if gram else 0)
    assert ((found.cpu() - known)[:data].abs() <= 1e-12 * sizes).all()
    torch.testing.assert_close(found[data:].cpu(), known[data:], rtol=0, atol=1e-10)


def test_layers_that_kernels_do_not_suit():
    """Double precision, a kernel of another side, and pictures that a stride does not divide."""
    x = torch.zeros(1, 1, 1, 8, 8, device=DEVICE)
    suited = Shape(4, 2, 1, 1, 8, 4, 4)
    assert _convolutions.can_convolve(x, suited)
    assert not _convolutions.can_convolve(x.double(), suited)
    assert not _convolutions.can_convolve(x, suited._replace(padding=0))
    assert not _convolutions.can_convolve(x, suited._replace(kernel=5, stride=3))
