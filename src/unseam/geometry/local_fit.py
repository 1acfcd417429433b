"""A small local decoder fitted around each posterior mean: linear, or with one non-linearity."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from unseam.geometry.checks import check_chunk_size, check_decoder, decode_samples
from unseam.geometry.gaussians import Gaussians, displacement, gaussians
from unseam.inputs import Array, Decoder, check_choice, check_count, check_generator, check_number

__all__ = ["LocalFit", "local_fit", "local_fits"]

Form = Literal["linear", "nonlinear"]
Solver = Literal["descent", "exact"]

# Numbers that the targets of one chunk of points hold at most: what a processor's cache takes, and a GPU's work.
_BUDGET = {"cpu": 2**20, "cuda": 2**27}
_NORMAL_QUANTILE = 1.959963984540054  # of a two-sided 95 % interval


class LocalFit(NamedTuple):
    """Local decoders, one for each point, and how well they predict.

    Attributes:
        matrix: M_D (point, data, latent), in units of z.
        bias: b (point, data).
        train_error: mean squared norm of the error over the noises fitted, (point,).
        error: the same over held-out noises, (point,).
        interval: 95 % interval of ``error`` from the spread over held-out noises, (point, 2).
        mean_error: ``error`` averaged over points, 0-d.
        mean_interval: 95 % interval of ``mean_error`` from the spread over points, (2,); NaN for one point.
        stochastic: held-out mean of ‖d(μ + ε) - d(μ)‖², (point,), what there is to predict.
        predicted_stochastic: held-out mean of ‖f_D(M_D ε + b)‖², (point,).
    """

    matrix: Tensor
    bias: Tensor
    train_error: Tensor
    error: Tensor
    interval: Tensor
    mean_error: Tensor
    mean_interval: Tensor
    stochastic: Tensor
    predicted_stochastic: Tensor


class _Budget(NamedTuple):
    steps: tuple[int, ...]
    learning_rate: float
    momentum: float


class _Design(NamedTuple):
    """Standard normal noises with a column of ones (point, noise, latent + 1), and targets (point, noise, data)."""

    inputs: Tensor
    targets: Tensor


def local_fit(
    decoder: Decoder,
    mean: Array,
    variance: Array,
    *,
    form: Form = "linear",
    generator: torch.Generator,
    noises: int = 32,
    held_out: int = 32,
    steps: int = 200,
    learning_rate: float = 1.0,
    momentum: float = 0.9,
    solver: Solver = "descent",
    chunk_size: int | None = None,
) -> LocalFit:
    r"""Local decoders f_D(M_D ε + b) fitted around all posterior means at once (bhowal2024 Eqs. 8, 11 and 12).

    .. math:: \min_{M, b}\; \frac1K \sum_k \bigl\lVert d(\mu + \varepsilon_k) - d(\mu)
        - f(M \varepsilon_k + b) \bigr\rVert^2, \qquad \varepsilon_k \sim N(0, \Sigma)

    with f the identity or tanh. Both forms get the same noises (for generators in the same state), start (zero),
    optimiser and budget: full-batch gradient descent with momentum on all points as one ensemble. The
    unknown trained is M Σ^½, whose inputs are standard normal, and the step is relative to the largest
    curvature of a point's own noises, so one ``learning_rate`` fits both forms and every scale of posterior.
    tanh is bounded by 1: give a decoder of means, not of logits.

    Args:
        decoder: map d from (batch, latent) to (batch, \*data).
        mean: posterior means μ (point, latent).
        variance: σ² (point, latent), or Σ (point, latent, latent).
        form: ``"linear"`` or ``"nonlinear"``.
        generator: source of the noises; draws noises + held_out for each point.
        noises: K, fitted.
        held_out: further noises for ``error``, at least 2.
        steps, learning_rate, momentum: the budget; a linear fit diverges from learning_rate = 2(1 + momentum).
        solver: ``"exact"`` solves the linear form's least squares instead; it needs latent + 1 noises.
        chunk_size: points fitted at once; by default as many as the device works on fastest, in bounded memory.

    Returns:
        Squared errors summed over data dimensions, mean over noises.

    >>> fit = local_fit(lambda z: z @ torch.tensor([[3.0], [4.0]]), torch.zeros(1, 2), torch.ones(1, 2),
    ...                 generator=torch.Generator().manual_seed(0))
    >>> fit.matrix.round(decimals=3).tolist()
    [[[3.0, 4.0]]]
    """
    (fit,) = local_fits(
        decoder,
        mean,
        variance,
        steps=(steps,),
        form=form,
        generator=generator,
        noises=noises,
        held_out=held_out,
        learning_rate=learning_rate,
        momentum=momentum,
        solver=solver,
        chunk_size=chunk_size,
    )
    return fit


@torch.no_grad()
def local_fits(
    decoder: Decoder,
    mean: Array,
    variance: Array,
    *,
    steps: Sequence[int],
    form: Form = "linear",
    generator: torch.Generator,
    noises: int = 32,
    held_out: int = 32,
    learning_rate: float = 1.0,
    momentum: float = 0.9,
    solver: Solver = "descent",
    chunk_size: int | None = None,
) -> Sequence[LocalFit]:
    """Local decoders (bhowal2024 Eq. 8) after several numbers of steps of one descent, to see whether it has converged.

    Args:
        decoder, mean, variance: as in :func:`local_fit`.
        steps: ascending.
        form, generator, noises, held_out, learning_rate, momentum, solver, chunk_size: as in :func:`local_fit`.

    Returns:
        For each number of steps what :func:`local_fit` gives for it; one fit alone where the solver is exact.

    >>> fits = local_fits(lambda z: 3 * z, torch.zeros(1, 1), torch.ones(1, 1), steps=(1, 20, 400),
    ...                   generator=torch.Generator().manual_seed(0))
    >>> [bool(fit.error < 1e-6) for fit in fits]
    [False, False, True]
    """
    posterior = gaussians(mean, variance)
    check_generator(generator)
    _check_options(form, solver, noises, held_out, posterior.mean.shape[1])
    budget = _checked_budget(_Budget(tuple(steps), learning_rate, momentum))
    noise = torch.randn(
        (noises + held_out, *posterior.mean.shape),
        generator=generator,
        dtype=posterior.mean.dtype,
        device=generator.device,
    ).to(posterior.mean.device)
    size = _chunk(decoder, posterior.mean, max(noises, held_out), chunk_size)
    parts, exact = [], solver == "exact"
    for start in range(0, len(posterior.mean), size):
        chosen = slice(start, start + size)
        part = Gaussians(*(value[chosen] for value in posterior))
        train, held = (_design(decoder, part, own[:, chosen]) for own in (noise[:noises], noise[noises:]))
        found: Iterable[Tensor] = [_least_squares(train)] if exact else _descend(train, form, budget)
        parts.append([_evaluate_fit(weights, part, train, held, form) for weights in found])
    return tuple(
        _summarise(*(torch.cat(values) for values in zip(*one, strict=True)))
        for one in zip(*parts, strict=True)
    )


def _design(decoder: Decoder, posterior: Gaussians, noise: Tensor) -> _Design:
    """Inputs and targets of the fit; the decoder sees one noise of every point at a time."""
    centre = decode_samples(decoder, posterior.mean)
    targets = [
        (decode_samples(decoder, posterior.mean + shift) - centre).flatten(1)
        for shift in displacement(posterior, noise)
    ]
    inputs = torch.nn.functional.pad(noise.transpose(0, 1), (0, 1), value=1.0)
    return _Design(inputs, torch.stack(targets, dim=1))


def _descend(design: _Design, form: Form, budget: _Budget) -> Iterator[Tensor]:
    """Heavy-ball descent on half the mean squared error from zero: weights (point, latent + 1, data).

    They come after each number of steps, in the same memory every time.
    """
    inputs, targets = design
    count = inputs.shape[1]
    curvature = torch.linalg.eigvalsh(inputs.mT @ inputs / count)[:, -1]
    rate = (budget.learning_rate / curvature / count)[:, None, None]
    weights = targets.new_zeros(len(inputs), inputs.shape[2], targets.shape[2])
    velocity = torch.zeros_like(weights)
    slope = _linear_slope(design) if form == "linear" else _tanh_slope(design)
    for done, steps in pairwise((0, *budget.steps)):
        for _ in range(steps - done):
            velocity.mul_(budget.momentum).sub_(rate * slope(weights))
            weights += velocity
        if not bool(weights.isfinite().all()):
            raise ValueError(
                f"learning_rate must be small enough for the fit to converge, got {budget.learning_rate}"
            )
        yield weights


def _linear_slope(design: _Design) -> Callable[[Tensor], Tensor]:
    """Gradient of half the summed squared error, from moments that one pass over the noises gives."""
    gram, moments = design.inputs.mT @ design.inputs, design.inputs.mT @ design.targets
    return lambda weights: gram @ weights - moments


def _tanh_slope(design: _Design) -> Callable[[Tensor], Tensor]:
    """The same for tanh, whose slope is 1 - tanh²."""

    def slope(weights: Tensor) -> Tensor:
        output = _predict(weights, design.inputs, "nonlinear")
        error = output - design.targets
        return design.inputs.mT @ error.addcmul_(error, output.square_(), value=-1)

    return slope


def _least_squares(design: _Design) -> Tensor:
    """By a QR decomposition of the noises, which have full rank: solvers for any rank are a processor's alone."""
    basis, triangle = torch.linalg.qr(design.inputs)
    return torch.linalg.solve_triangular(triangle, basis.mT @ design.targets, upper=True)


def _predict(weights: Tensor, inputs: Tensor, form: Form) -> Tensor:
    return inputs @ weights if form == "linear" else (inputs @ weights).tanh_()


def _squared_errors(weights: Tensor, design: _Design, form: Form) -> tuple[Tensor, Tensor, Tensor]:
    """Squared norms of the error, the target and the prediction, each (point, noise)."""
    output = _predict(weights, design.inputs, form)
    signal, predicted = design.targets.square().sum(2), output.square().sum(2)
    return output.sub_(design.targets).square_().sum(2), signal, predicted


def _evaluate_fit(
    weights: Tensor, posterior: Gaussians, train: _Design, held: _Design, form: Form
) -> tuple[Tensor, ...]:
    """What :func:`_summarise` takes, of some points."""
    train_error = _squared_errors(weights, train, form)[0].mean(1)
    matrix, bias = _unwhiten(weights[:, :-1], posterior), weights[:, -1].clone()
    return matrix, bias, train_error, *_squared_errors(weights, held, form)


def _unwhiten(whitened: Tensor, posterior: Gaussians) -> Tensor:
    """M (point, data, latent) from M times the posterior's factor, given transposed (point, latent, data)."""
    if posterior.factor.ndim == 2:
        return (whitened / posterior.factor.unsqueeze(-1)).mT
    return torch.linalg.solve_triangular(posterior.factor.mT, whitened, upper=True).mT


def _summarise(
    matrix: Tensor, bias: Tensor, train_error: Tensor, held: Tensor, signal: Tensor, predicted: Tensor
) -> LocalFit:
    error = held.mean(1)
    return LocalFit(
        matrix=matrix,
        bias=bias,
        train_error=train_error,
        error=error,
        interval=_interval(held),
        mean_error=error.mean(),
        mean_interval=_interval(error) if len(error) > 1 else torch.full_like(error[:1].expand(2), torch.nan),
        stochastic=signal.mean(1),
        predicted_stochastic=predicted.mean(1),
    )


def _interval(values: Tensor) -> Tensor:
    """95 % normal interval of the mean over the last axis, (..., 2)."""
    reach = _NORMAL_QUANTILE * values.std(-1) / values.shape[-1] ** 0.5
    centre = values.mean(-1)
    return torch.stack([centre - reach, centre + reach], dim=-1)


def _chunk(decoder: Decoder, mean: Tensor, noises: int, chunk_size: int | None) -> int:
    check_chunk_size(chunk_size)
    glance = check_decoder(decoder, mean)
    budget = _BUDGET.get(mean.device.type, _BUDGET["cpu"])
    return chunk_size or max(1, budget // (noises * glance.output[0].numel()))


def _check_options(form: str, solver: str, noises: int, held_out: int, latent: int) -> None:
    check_choice("form", form, get_args(Form))
    check_choice("solver", solver, get_args(Solver))
    if solver == "exact" and form != "linear":
        raise ValueError(f"solver 'exact' needs form 'linear', got {form!r}")
    check_count("noises", noises, latent + 1 if solver == "exact" else 1)
    check_count("held_out", held_out, 2)


def _checked_budget(budget: _Budget) -> _Budget:
    if not budget.steps:
        raise ValueError("steps must hold a number of steps, got none")
    for steps in budget.steps:
        check_count("steps", steps)
    if any(later <= earlier for earlier, later in pairwise(budget.steps)):
        raise ValueError(f"steps must ascend, got {', '.join(map(str, budget.steps))}")
    check_number("learning_rate", budget.learning_rate, above=0)
    check_number("momentum", budget.momentum, least=0, below=1)
    return budget
