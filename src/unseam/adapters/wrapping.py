"""Anyone's model as a subject, by the library that it comes from."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unseam.adapters.diffusers import diffusers
from unseam.adapters.onnx import onnx
from unseam.adapters.parts import Encode, find_likelihood
from unseam.adapters.plain import plain
from unseam.adapters.pythae import pythae
from unseam.adapters.scvi import scvi
from unseam.adapters.sklearn import sklearn
from unseam.choices import load_object
from unseam.files import read_array
from unseam.geometry.checks import check_points_finite
from unseam.inputs import check_scale
from unseam.inspection.measure import encode_data
from unseam.subject import Subject

__all__ = ["import_subject", "wrap"]

# By the package of a model's class or of one that it derives from; no library is imported to find out.
_ADAPTERS: dict[str, Callable[..., Subject]] = {
    "diffusers": diffusers,
    "drvi": scvi,
    "onnx": onnx,
    "onnxruntime": onnx,
    "pythae": pythae,
    "scvi": scvi,
    "sklearn": sklearn,
}

# By what their models differ from the networks that these are made of, which are decoders and encoders as others are.
_CONFIGURED = {"diffusers": "config", "pythae": "model_config"}


def wrap(
    model: Any,
    *,
    encoder: Any = None,
    decoder: Any = None,
    likelihood: Any = None,
    latent: int | Sequence[int] | None = None,
    beta: float | None = None,
    x: Any = None,
    z: Any = None,
    name: str | None = None,
    log_variance: bool = False,
    probabilities: bool | None = None,
    **options: Any,
) -> Subject:
    """Anyone's model as what inspect, score, report and explore take.

    Models of pythae, diffusers, scvi-tools and DRVI, Lightning, scikit-learn and ONNX are recognised, with what their
    library knows of them; anything else is a module or a function, of torch or NumPy. Nothing of the model is changed;
    modules are used in evaluation mode, with the weights that they have at the time of the call.

    Args:
        model: the model, a decoder or a generator; or the path of an ``.onnx`` file.
        encoder: x -> (mean, variance), or the name of the model's method.
        decoder: z -> output, or the name of the model's method.
        likelihood: what outputs mean: a name as on the command line, or an object with ``fisher_weight`` and ``mean``.
        latent: number of latents or their shape, where the model does not say it.
        beta: weight of the KL term in training.
        x: data (batch, *data), whose codes are the points to measure at.
        z: points (batch, latent) to measure at.
        name: what to call it.
        log_variance: whether the second of a pair that the encoder returns is the logarithm of the variance.
        probabilities: whether the decoder returns probabilities although the likelihood takes logits: they are then
            converted. By default such a decoder is refused.
        options: those of the library's adapter.

    >>> from sklearn.decomposition import PCA
    >>> x = np.random.default_rng(0).normal(size=(50, 3)) * [3.0, 2.0, 1.0]
    >>> wrap(PCA(2).fit(x), x=x).inspect().cosine < 1e-12
    True
    """
    if isinstance(model, str) and not model.endswith(".onnx"):
        raise ValueError(
            f"model must be a model or the path of an .onnx file, got {model!r}; open a run by unseam.Run.open"
        )
    given = {
        "encoder": encoder,
        "decoder": decoder,
        "likelihood": likelihood,
        "latent": latent,
        "x": x,
        "z": z,
        "log_variance": log_variance or None,
        "probabilities": probabilities,
    }
    given = {key: value for key, value in given.items() if value is not None}
    if isinstance(model, Subject):
        subject = model
    else:
        adapter = plain if decoder is not None else _find_adapter(model)
        taken = inspect.signature(adapter).parameters
        known = inspect.signature(plain).parameters if "options" in taken else taken
        subject = adapter(model, **options | {key: given.pop(key) for key in list(given) if key in known})
        if name is None and subject.name == "model":
            name = getattr(model, "__name__", type(model).__name__).replace("<lambda>", "decoder")
    return _completed(subject, given, beta=beta, x=x, z=z, name=name)


def _find_adapter(model: Any) -> Callable[..., Subject]:
    if isinstance(model, str | Path):
        return onnx
    packages = (one.__module__.partition(".")[0] for one in type(model).__mro__)
    package = next((package for package in packages if package in _ADAPTERS), None)
    mark = _CONFIGURED.get(package or "")
    if package is None or (mark and isinstance(model, nn.Module) and getattr(model, mark, None) is None):
        return plain
    return _ADAPTERS[package]


def _completed(subject: Subject, given: dict[str, Any], *, x: Any, z: Any, beta: Any, name: Any) -> Subject:
    """The subject with what the adapter itself did not take."""
    log_variance, latent = given.pop("log_variance", False), given.pop("latent", None)
    if "probabilities" in given or "decoder" in given or isinstance(given.get("encoder"), str):
        bad = next(key for key in ("probabilities", "decoder", "encoder") if key in given)
        raise ValueError(f"{bad} must be left out: {subject.name} has its own")
    if latent is not None and int(np.prod(latent)) != subject.latent:
        raise ValueError(f"latent must be {subject.latent}, as {subject.name} has it, got {latent}")
    changed: dict[str, Any] = {"beta": beta, "name": name}
    changed["likelihood"] = find_likelihood(given.get("likelihood"), kind=subject.kind)
    if (encoder := given.get("encoder")) is not None:
        changed["encoder"] = Encode(encoder, log_variance=log_variance)
    changed = {key: value for key, value in changed.items() if value is not None}
    if x is not None:
        changed["x"] = _rows("x", x, subject)
        if subject.encoder is None and encoder is None:
            raise ValueError("encoder must be given with x: it says where x lies in latent space")
    if z is not None:
        points = _rows("z", z, subject)
        points = changed["z"] = points.flatten(1) if points.ndim > 2 else points
        if points.ndim != 2 or points.shape[1] != subject.latent:
            raise ValueError(
                f"z must have shape (batch, {subject.latent}), the latents of {name or subject.name}, got "
                f"{tuple(np.shape(z))}"
            )
        if x is None:
            changed["x"] = None
    subject = dataclasses.replace(subject, **changed) if changed else subject
    if subject.x is not None and changed.keys() & {"x", "encoder"}:
        _check_encoder(subject, subject.x)
    return subject


@torch.no_grad()
def _check_encoder(subject: Subject, x: Tensor) -> None:
    """Refuse an encoder whose means the decoder does not take, or that gives another one each time."""
    check_points_finite("x must be finite", x.flatten(1) if x.ndim > 1 else x)
    mean, again = (encode_data(subject.encoder, x[:2])[0] for _ in range(2))
    assert mean is not None and again is not None
    if mean.shape[1] != subject.latent:
        raise ValueError(
            f"encoder must return means of {subject.latent} latents, which the decoder takes, got {mean.shape[1]}; "
            "pass encoder=lambda x: (mean, variance)"
        )
    if not torch.allclose(mean, again, rtol=1e-3, atol=1e-3 * float(mean.abs().max()), equal_nan=True):
        raise ValueError(
            "encoder must return the same mean each time, but draws random numbers: pass encoder=lambda x: (mean, "
            "variance) without the sample"
        )


def _rows(argument: str, values: Any, subject: Subject) -> Tensor:
    """Data or points as a tensor, in the type of the model's weights where it has any."""
    rows = values if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values))
    check_scale(argument, rows)
    device, dtype = subject.kind
    holds = isinstance(subject.decoder, nn.Module) and any(True for _ in subject.decoder.parameters())
    return rows.to(device, dtype) if holds else rows


def import_subject(
    name: str,
    data: Path | None = None,
    *,
    latent: int | None = None,
    encoder: str | None = None,
    points: int = 1000,
    beta: float | None = None,
    likelihood: str | None = None,
    **options: Any,
) -> Subject:
    """A model of the user's own by its name, with rows of a file to measure it at.

    Args:
        name: ``package.module:object``: a model, a decoder, or a function or class that makes one when called without
            arguments.
        data: file of data (batch, *data) where the model has an encoder, else of points (batch, latent). Every row must
            be finite, also those that are not used.
        latent: number of latents, where neither the model nor a file says it.
        encoder: ``package.module:function``, x -> (mean, variance), or the name of the model's method.
        points: number of rows to use, always the same random ones.
        beta: weight of the KL term in training.
        likelihood: its name; by default every output counts alike.
        options: of :func:`wrap`.
    """
    model = name if name.endswith(".onnx") else _resolve(load_object(name), name)
    read = None
    if encoder is not None:
        read = load_object(encoder) if ":" in encoder else encoder
    rows = None if data is None else read_array(data, points)
    named = ("encode", "encoder", "transform")
    encodes = read is not None or any(callable(getattr(model, part, None)) for part in named)
    place = {} if rows is None else {"x" if encodes else "z": rows}
    given = options | place | {"latent": latent, "beta": beta, "likelihood": likelihood, "encoder": read}
    return wrap(model, name=name, **given)


def _resolve(found: Any, name: str) -> Any:
    """A model itself, or what a function or class without arguments returns."""
    code = getattr(found, "__code__", None)
    if isinstance(found, type) or (code is not None and not code.co_argcount):
        found = found()
    if found is None or isinstance(found, int | float | str):
        raise ValueError(f"{name} must be a decoder or make one, got {type(found).__name__}")
    return found
