"""What adapters share: modules in evaluation mode, and tensors out of whatever encoders and decoders return."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from types import MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import (
    Bernoulli,
    ContinuousBernoulli,
    Distribution,
    Independent,
    MultivariateNormal,
    Normal,
)

from unseam import choices, models

__all__ = [
    "Decode",
    "Encode",
    "check_logits",
    "find_likelihood",
    "kind_of",
    "likelihood_of",
    "moments",
    "parameter",
    "view",
]

_HALF = (torch.float16, torch.bfloat16)
# What modules register for themselves.
_REGISTERED = frozenset(vars(nn.Module()))
# What libraries call a decoder's output, a posterior's mean, its variance and the logarithm of that.
_OUTPUTS = (
    "reconstruction",
    "sample",
    "logits",
    "recon_x",
    "x_hat",
    "x_recon",
    "recon",
    "loc",
    "mean",
    "output",
    "x",
)
_MEANS = ("mean", "mu", "loc", "embedding", "latent", "latents", "z_mean", "qz_m")
_DEVIATIONS = ("std", "stddev", "scale", "sigma", "z_std")
_VARIANCES = ("variance", "var", "covariance", "covariance_matrix", "z_var", "qz_v")
_LOGARITHMS = ("log_covariance", "log_variance", "log_var", "logvar", "z_log_var")


def view(module: nn.Module) -> nn.Module:
    """A module in evaluation mode that shares weights with the given one and leaves it as it is.

    Modules that an attribute, a list or a bound method of it refers to are those of the view. Group normalisation is
    given contiguous tensors, as forward-mode differentiation has no rule for others. Weights in half precision, in
    which squares of column norms overflow, are copied into single precision.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.Dropout())
    >>> view(model).training, model.training, view(model)[0].weight is model[0].weight
    (False, True, True)
    """
    twin = _view(module, {})
    if kind_of(twin)[1] in _HALF and not isinstance(twin, torch.jit.ScriptModule):
        return copy.deepcopy(twin).float()
    return twin


def _view(module: nn.Module, seen: dict[int, nn.Module]) -> nn.Module:
    module = getattr(module, "_orig_mod", module)  # of a compiled one
    if isinstance(module, torch.jit.ScriptModule):
        return module
    if id(module) not in seen:
        twin = seen[id(module)] = object.__new__(type(module))
        twin.__dict__.update(module.__dict__)
        parts = {name: part if part is None else _view(part, seen) for name, part in module._modules.items()}
        own = {name: _viewed(value, seen) for name, value in vars(module).items() if name not in _REGISTERED}
        twin.__dict__.update(own, _modules=parts, training=False)
        if isinstance(module, nn.GroupNorm):
            twin.__dict__["forward"] = _ContiguousNorm(twin)
    return seen[id(module)]


def _viewed(value: Any, seen: dict[int, nn.Module]) -> Any:
    """An attribute of a module, which may refer to modules outside of their registry."""
    if isinstance(value, nn.Module):
        return _view(value, seen)
    if type(value) in (list, tuple):
        return type(value)(_viewed(one, seen) for one in value)
    if type(value) is dict:
        return {key: _viewed(one, seen) for key, one in value.items()}
    if isinstance(value, MethodType) and isinstance(value.__self__, nn.Module):
        return MethodType(value.__func__, _view(value.__self__, seen))
    return value


class _ContiguousNorm:
    def __init__(self, norm: nn.Module) -> None:
        self.norm = norm

    def __call__(self, x: Tensor) -> Tensor:
        found: Tensor = type(self.norm).forward(self.norm, x.contiguous())
        return found


class Decode(nn.Module):
    r"""A decoder of latents in one row (batch, latent), whose output is one tensor.

    Args:
        call: the decoder as its library has it.
        shape: of its latents, where that is not one row.
        holder: the module whose weights it uses, where it is a method.
        likelihood: that reads the output.
        probabilities: whether the decoder returns probabilities where the likelihood takes logits.

    >>> Decode(lambda z: {"sample": 2 * z}, (1, 2, 2))(torch.ones(1, 4)).shape
    torch.Size([1, 1, 2, 2])
    """

    def __init__(
        self,
        call: Callable[[Tensor], Any],
        shape: Sequence[int] = (),
        *,
        holder: nn.Module | None = None,
        likelihood: Any = None,
        probabilities: bool = False,
    ) -> None:
        super().__init__()
        self.call, self.shape, self.holder = call, tuple(shape), holder
        self.pair, self.probabilities = isinstance(likelihood, models.PixelGaussian), probabilities
        self.eval()

    def forward(self, z: Tensor) -> Tensor:
        """The likelihood's parameter (batch, *data)."""
        found = parameter(self.call(z.reshape(-1, *self.shape) if len(self.shape) > 1 else z), self.pair)
        if not self.probabilities:
            return found
        least = torch.finfo(found.dtype).eps
        return found.clamp(least, 1 - least).logit()


def parameter(found: Any, pair: bool = False) -> Any:
    """The parameter of a likelihood in what a decoder returned: a tensor, tuple, dict, model output or distribution.

    Args:
        found: what it returned.
        pair: whether means come with log-variances, which then follow them along the first data axis.

    >>> parameter({"loss": None, "reconstruction": torch.zeros(2, 3)}).shape
    torch.Size([2, 3])
    """
    found = found.base_dist if isinstance(found, Independent) else found
    if isinstance(found, Bernoulli | ContinuousBernoulli):
        return found.logits
    if isinstance(found, Normal):
        return torch.cat([found.loc, 2 * found.scale.log().expand_as(found.loc)], 1)
    if isinstance(found, Distribution):
        raise ValueError(
            f"decoder must return a Normal, Bernoulli or ContinuousBernoulli distribution or a tensor, got "
            f"{type(found).__name__}; pass likelihood= and a decoder that returns its parameter"
        )
    if isinstance(found, Mapping):
        name = next((name for name in _OUTPUTS if name in found), None)
        if name is None:
            raise ValueError(
                f"decoder must return its output under one of {', '.join(_OUTPUTS)}, got {', '.join(map(str, found))}; "
                "pass decoder=lambda z: model(z)[name]"
            )
        return parameter(found[name], pair)
    if isinstance(found, tuple | list) and found:
        if pair and len(found) > 1:
            return torch.cat([found[0], found[1]], 1)
        return parameter(found[0], pair)
    if isinstance(found, Tensor):
        return found
    return next(
        (getattr(found, name) for name in _OUTPUTS if isinstance(getattr(found, name, None), Tensor)), found
    )


class Encode:
    """An encoder x (batch, *data) -> mean (batch, latent) and variance or covariance, from what a library's returns.

    Args:
        call: returns a pair, a dict or model output whose entries have names, a distribution, or points alone.
        kind: device and type of the data that it takes; by default as they are.
        log_variance: whether the second of a pair is the logarithm of the variance.
        arrays: whether it takes arrays of NumPy.

    >>> mean, variance = Encode(lambda x: (x, 0 * x), log_variance=True)(torch.ones(2, 3))
    >>> variance[0]
    tensor([1., 1., 1.])
    """

    def __init__(
        self,
        call: Callable[[Any], Any],
        kind: tuple[torch.device, torch.dtype] | None = None,
        *,
        log_variance: bool = False,
        arrays: bool = False,
    ) -> None:
        self.call, self.kind, self.log_variance, self.arrays = call, kind, log_variance, arrays

    @torch.no_grad()
    def moments(self, x: Any) -> tuple[Tensor, Tensor | None]:
        """Mean and variance in the shape that the encoder gives them."""
        data = x if isinstance(x, Tensor) else torch.as_tensor(np.asarray(x))
        data = data if self.kind is None else data.to(*self.kind)
        try:
            found = self.call(data.cpu().numpy() if self.arrays else data)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            raise ValueError(
                f"encoder does not take x of shape {tuple(data.shape)} and {data.dtype}: {error}"
            ) from error
        return moments(found, log_variance=self.log_variance)

    def __call__(self, x: Any) -> tuple[Tensor, Tensor]:
        """Mean (batch, latent) and variance (batch, latent) or covariance (batch, latent, latent)."""
        mean, variance = self.moments(x)
        if mean.ndim < 2 or len(mean) != len(x):
            raise ValueError(
                f"encoder must return means (batch, latent), got shape {tuple(mean.shape)} for x of shape "
                f"{tuple(x.shape)}"
            )
        mean = mean.flatten(1)
        variance = torch.zeros_like(mean) if variance is None else variance
        if mean.dtype in _HALF:
            mean, variance = mean.float(), variance.float()
        variance = variance if variance.shape == (*mean.shape, mean.shape[1]) else variance.flatten(1)
        if variance.ndim == 2 and bool((variance < 0).any()):
            raise ValueError(
                "encoder must return variances of at least 0, got negative ones; where they are log-variances, pass "
                "log_variance=True"
            )
        return mean, variance


def moments(found: Any, *, log_variance: bool) -> tuple[Tensor, Tensor | None]:
    """Posterior mean, and variance or covariance if there is one, in whatever an encoder returned.

    >>> moments({"embedding": torch.zeros(1, 2), "log_covariance": torch.zeros(1, 2)}, log_variance=False)[1]
    tensor([[1., 1.]])
    """
    if isinstance(found, np.ndarray):
        found = torch.from_numpy(found)
    if isinstance(found, Tensor):
        return found, None
    found = getattr(found, "latent_dist", found)
    found = found.base_dist if isinstance(found, Independent) else found
    if isinstance(found, MultivariateNormal):
        return found.mean, found.covariance_matrix
    named = isinstance(found, tuple) and bool(getattr(found, "_fields", ()))
    if isinstance(found, tuple | list) and not named:
        found = [torch.from_numpy(one) if isinstance(one, np.ndarray) else one for one in found]
        if found and not isinstance(found[0], Tensor):
            return moments(found[0], log_variance=log_variance)
        if len(found) > 1 and isinstance(found[1], Tensor):
            return found[0], found[1].exp() if log_variance else found[1]
        if len(found) == 1 or (len(found) > 1 and found[1] is None):
            return found[0], None
    read = found.get if isinstance(found, Mapping) else lambda name: getattr(found, name, None)

    def first(names: Sequence[str]) -> Tensor | None:
        return next((value for name in names if isinstance(value := read(name), Tensor)), None)

    mean, variance, logarithm, deviation = map(first, (_MEANS, _VARIANCES, _LOGARITHMS, _DEVIATIONS))
    if mean is None:
        got = ", ".join(map(str, found)) if isinstance(found, Mapping) else type(found).__name__
        raise ValueError(
            f"encoder must return (mean, variance), a distribution, or entries among {', '.join(_MEANS)}; got "
            f"{got}; pass encoder=lambda x: (mean, variance)"
        )
    if variance is None and logarithm is not None:
        variance = logarithm.exp()
    return mean, deviation.square() if variance is None and deviation is not None else variance


def find_likelihood(
    likelihood: Any,
    shape: Sequence[int] | None = None,
    kind: tuple[torch.device, torch.dtype] = (torch.device("cpu"), torch.float32),
) -> Any:
    """The likelihood of a name, made for items of that shape where it needs one; anything but a name is itself.

    Args:
        likelihood: the name, or the likelihood.
        shape: of one item.
        kind: device and type of its parameters.

    >>> find_likelihood("bernoulli")
    Bernoulli()
    """
    if not isinstance(likelihood, str):
        return likelihood
    choice = choices.find(choices.Likelihood, likelihood)
    given = choice.arguments({option.name: option.default for option in choice.options})
    if choice.shaped and shape is None:
        raise ValueError(
            f"likelihood {likelihood} needs the shape of one item; pass x= or an object, not its name"
        )
    made = choice.load()(*([tuple(shape)] if choice.shaped and shape is not None else []), **given)
    return made.to(*kind)


def kind_of(module: nn.Module | None, z: Any = None) -> tuple[torch.device, torch.dtype]:
    """Device and type of a module's weights; without any those of points, or single precision on the host."""
    for parameter in () if module is None else module.parameters():
        if parameter.is_floating_point():
            return parameter.device, parameter.dtype
    given = torch.zeros(0) if z is None else torch.as_tensor(z)
    return given.device, given.dtype if given.is_floating_point() else torch.float32


def likelihood_of(found: Any) -> Any:
    """The likelihood that a decoder's own distribution stands for, if it returned one."""
    found = found.base_dist if isinstance(found, Independent) else found
    kinds: dict[type[Distribution], Callable[[], Any]] = {
        Bernoulli: models.Bernoulli,
        ContinuousBernoulli: models.ContinuousBernoulli,
        Normal: models.PixelGaussian,
    }
    return next((made() for kind, made in kinds.items() if isinstance(found, kind)), None)


def check_logits(decode: Callable[[Tensor], Tensor], likelihood: Any, z: Tensor) -> None:
    """Refuse a decoder whose outputs are probabilities where the likelihood takes logits."""
    if not isinstance(likelihood, models.Bernoulli | models.ContinuousBernoulli | models.Binomial):
        return
    with torch.no_grad():
        found = decode(10 * z)  # far out, where logits leave [0, 1]
    if bool(((found >= 0) & (found <= 1)).all()):
        raise ValueError(
            "decoder must return logits for this likelihood, but all of its outputs lie in [0, 1], as those of a "
            "sigmoid do; pass probabilities=True to have them converted, or probabilities=False where they are logits"
        )
