"""Call every public numeric function with what users may pass: any layout of an array, and what must be refused.

Signatures come from the conformance suite, so that a new function is fuzzed the moment it is public; the tool
stops where it does not know what a new parameter takes. Of each example it asks that

- an array in another layout (reversed strides, other byte order, read-only, nested lists, a table of pandas) gives
  the result of the plain one;
- what is refused is refused by a ValueError or TypeError that names an argument;
- results are finite, unless the documentation of the function or of its result says when they are not;
- numbers that the documentation bounds ("in [0, 1]") are within their bounds.
"""

from __future__ import annotations

import argparse
import inspect
import math
import re
import sys
import time
import typing
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import test_conformance as conformance
from unseam import models
from unseam.objectives import Discriminator
from unseam.theory import Moments, linear_vae

POINTS, LATENT, DATA = 40, 3, 5
DEFAULT_EXAMPLES = 24


def targets() -> dict[str, Callable[..., Any]]:
    """The numeric functions that packages export, by address, and those that read data."""
    found = {name: value for name, value in conformance.NUMERIC.items() if name.count(".") == 2}
    found["unseam.advice.advise"] = conformance.FUNCTIONS["unseam.advise"]
    return found


# What parameters take, by name; by function and name where the name means something else there.


class Source:
    """Valid arguments of one example, all from one seed."""

    def __init__(self, number: int, dtype: torch.dtype) -> None:
        self.generator, self.dtype = torch.Generator().manual_seed(number), dtype

    def normal(self, *shape: int) -> Tensor:
        """Draws of the standard normal."""
        return torch.randn(shape, generator=self.generator, dtype=self.dtype)

    def uniform(self, *shape: int) -> Tensor:
        """Draws from [0, 1)."""
        return torch.rand(shape, generator=self.generator, dtype=self.dtype)

    def gram(self, *batch: int, size: int = LATENT) -> Tensor:
        """Products of columns, positive definite."""
        columns = self.normal(*batch, size + 3, size)
        return columns.mT @ columns

    def products(self) -> Tensor:
        """Inner products of the columns of two models."""
        return self.gram(size=2 * LATENT).view(2, LATENT, 2, LATENT)

    def orthogonal(self, *batch: int) -> Tensor:
        """Orthogonal matrices."""
        return torch.linalg.qr(self.normal(*batch, LATENT, LATENT)).Q

    def decoder(self) -> Callable[[Tensor], Tensor]:
        """A smooth decoder."""
        weight = self.normal(LATENT, DATA)

        def decode(z: Tensor) -> Tensor:
            return torch.sinh((z @ weight.to(z)) / 4)

        return decode

    def integers(self, most: int, *shape: int) -> Tensor:
        """Integers below a number."""
        return torch.randint(most, shape, generator=self.generator)


def initialised(module: torch.nn.Module, source: Source) -> torch.nn.Module:
    """A module with drawn weights, in the precision of the example."""
    models.initialise(module, generator=source.generator)
    return module.to(source.dtype)


Value = Callable[[Source], Any]

VALUES: dict[str, Value] = {
    "active": lambda s: torch.tensor([True] * LATENT),
    "batches": lambda s: [s.normal(6, DATA), s.normal(4, DATA)],
    "beta": lambda s: 0.7,
    "budget": lambda s: 2.0,
    "codes": lambda s: s.normal(POINTS, LATENT),
    "component": lambda s: 0,
    "covariance": lambda s: s.gram(size=DATA),
    "data": lambda s: DATA,
    "decoder": lambda s: s.decoder(),
    "derivative": lambda s: (lambda g: g + g.mT)(s.normal(4, LATENT, LATENT, LATENT)),
    "diagonal": lambda s: True,
    "factors": lambda s: s.integers(3, POINTS, 2),
    "generator": lambda s: torch.Generator().manual_seed(0),
    "hessian": lambda s: -s.gram(4),
    "jacobian": lambda s: s.normal(4, DATA, LATENT),
    "jacobians": lambda s: s.normal(4, DATA, LATENT),
    "kl": lambda s: s.uniform(3, LATENT),
    "latent": lambda s: 2,
    "latents": lambda s: 2,
    "learned": lambda s: s.normal(DATA, LATENT),
    "likelihood": lambda s: models.Gaussian(),
    "matrices": lambda s: s.normal(2, 3, DATA, LATENT),
    "matrix": lambda s: s.normal(4, LATENT, LATENT),
    "mean": lambda s: s.normal(4, LATENT),
    "mixing": lambda s: s.normal(DATA, LATENT),
    "module": lambda s: torch.nn.Linear(LATENT, DATA).to(s.dtype),
    "moments": lambda s: Moments(s.uniform(DATA), s.gram(size=DATA), 10),
    "noise": lambda s: s.normal(4, 4, LATENT),
    "precision": lambda s: 1.0,
    "pullback": lambda s: s.gram(4),
    "right_vectors": lambda s: s.orthogonal(4),
    "rotation": lambda s: s.orthogonal()[:2, :2] * 0 + torch.eye(2, dtype=s.dtype),
    "samples": lambda s: s.normal(POINTS, LATENT),
    "singular_values": lambda s: s.uniform(4, LATENT),
    "solution": lambda s: linear_vae(torch.eye(DATA, dtype=s.dtype), 2, noise=0.5),
    "start": lambda s: 0.1 * s.normal(LATENT),
    "step": lambda s: 3,
    "steps": lambda s: 5,
    "target": lambda s: s.uniform(POINTS, DATA),
    "thresholds": lambda s: s.uniform(DATA),
    "true": lambda s: s.normal(DATA, LATENT),
    "true_covariance": lambda s: s.gram(),
    "true_mean": lambda s: s.normal(4, LATENT),
    "variance": lambda s: 0.1 + s.uniform(4, LATENT),
    "weights": lambda s: s.normal(4, DATA, LATENT),
    "x": lambda s: s.uniform(4, DATA),
    "z": lambda s: s.normal(4, LATENT),
}
OPTIONS: dict[str, Value] = {
    "bins": lambda s: 5,
    "chunk_size": lambda s: 2,
    "progress": lambda s: None,
    "criterion": lambda s: "variance",
    "data_noise": lambda s: 0.5,
    "degeneracy": lambda s: 0.01,
    "discrete": lambda s: [True, True],
    "footprint_threshold": lambda s: 0.1,
    "form": lambda s: "linear",
    "held_out": lambda s: 4,
    "learning_rate": lambda s: 0.5,
    "level": lambda s: 0.1,
    "likelihood_variance": lambda s: 0.5,
    "momentum": lambda s: 0.5,
    "neighbours": lambda s: 2,
    "nodes": lambda s: 9,
    "noises": lambda s: 8,
    "partners": lambda s: 2,
    "permutations": lambda s: 9,
    "points": lambda s: 30,
    "preset": lambda s: "fast",
    "rank": lambda s: 8,
    "reach": lambda s: 4.0,
    "reading": lambda s: "deviation",
    "rtol": lambda s: 1e-3,
    "samples": lambda s: 8,
    "seed": lambda s: 1,
    "seeds": lambda s: 2,
    "share": lambda s: 0.9,
    "small": lambda s: 0.2,
    "threshold": lambda s: 0.02,
    "tolerance": lambda s: 0.1,
    "weight": lambda s: 0.5,
    "length": lambda s: 0.5,
    "box": lambda s: 4.0,
    "metrics": lambda s: ["mig", "mcc"],
}
OWN: dict[str, dict[str, Value]] = {
    "unseam.geometry.haar_dto": {"samples": lambda s: 8},
    "unseam.geometry.uniform_dto": {"samples": lambda s: 8},
    "unseam.geometry.od_score": {"form": lambda s: "invariant"},
    "unseam.geometry.local_fit": {"steps": lambda s: 5},
    "unseam.geometry.probe": {"active": lambda s: torch.tensor([True] * LATENT)},
    "unseam.geometry.likelihood_hessian": {"z": lambda s: s.normal(4, LATENT)},
    "unseam.independence.component_case": {"z": lambda s: s.normal(24, LATENT)},
    "unseam.independence.match_generators": {"z": lambda s: None, "codes": lambda s: None},
    "unseam.geometry.recurrence": {
        "columns": lambda s: s.products(),
        "codes": lambda s: s.products(),
        "active": lambda s: torch.ones(2, LATENT, dtype=torch.bool),
    },
    "unseam.metrics.udr": {"codes": lambda s: s.normal(3, POINTS, LATENT)},
    "unseam.metrics.validation_grid": {"points": lambda s: 576, "metrics": lambda s: ["mig"]},
    "unseam.theory.data_thresholds": {"likelihood": lambda s: "gaussian"},
    "unseam.theory.sample_thresholds": {"likelihood": lambda s: "gaussian"},
    "unseam.theory.inference_error": {},
    "unseam.advice.advise": {"likelihood": lambda s: "gaussian"},
}
OWN_PACKAGE: dict[str, dict[str, Value]] = {
    "metrics": {"variance": lambda s: 0.1 + s.uniform(POINTS, LATENT)},
    "theory": {"noise": lambda s: 0.5},
    "advice": {"noise": lambda s: 0.5},
    "independence": {"step": lambda s: 0.01, "steps": lambda s: 4},
    "objectives": {
        "batch": lambda s: 4,
        "capacity": lambda s: 2.0,
        "capacity_steps": lambda s: 10,
        "discriminator": lambda s: initialised(Discriminator(LATENT, width=8, depth=1), s),
        "form": lambda s: "ii",
        "gamma": lambda s: 2.0,
        "keys": lambda s: s.uniform(4, LATENT),
        "lambda_d": lambda s: 2.0,
        "lambda_od": lambda s: 2.0,
        "model": lambda s: initialised(models.build((DATA,), latent=LATENT, likelihood="gaussian"), s),
        "orthogonality": lambda s: 2.0,
        "sampling": lambda s: "stratified",
        "size": lambda s: 20,
        "step": lambda s: 3,
    },
}
SLOW = re.compile(
    r"validation_grid|component_case|curvilinear|coupling|mixed_derivative|submanifold|axis_density|dci|evaluate"
)
"""Functions that get an eighth of the examples."""
SHORT = ("permutations", "samples", "preset", "length", "steps", "nodes", "metrics")
"""Options that are always given, for their defaults take long."""
OPTIONAL = {
    "discrete",
    "chunk_size",
    "threshold",
    "tolerance",
    "variance",
    "bins",
    "neighbours",
    "points",
    "seed",
    "active",
}


def value_of(address: str, name: str, required: bool, source: Source) -> Any:
    """A valid argument, or a message that asks for one to be listed here."""
    package = address.split(".")[1]
    for table in (OWN.get(address, {}), OWN_PACKAGE.get(package, {}), VALUES if required else {}, OPTIONS):
        if name in table:
            return table[name](source)
    raise SystemExit(f"tools/fuzz.py knows no value for {name} of {address}: list one in VALUES or OPTIONS")


# What is done to an argument: the same numbers in another layout, or something to be refused or survived.


def _as_numpy(value: Tensor) -> np.ndarray[Any, Any]:
    return value.numpy().copy()


def _read_only(value: Tensor) -> Any:
    found = _as_numpy(value)
    found.flags.writeable = False
    return found


SAME: dict[str, Callable[[Tensor], Any]] = {
    "numpy": _as_numpy,
    "reversed strides": lambda v: np.flip(np.flip(_as_numpy(v), 0).copy(), 0),
    "big-endian": lambda v: _as_numpy(v).astype(_as_numpy(v).dtype.newbyteorder(">")),
    "Fortran order": lambda v: np.asfortranarray(_as_numpy(v)),
    "read-only": _read_only,
    "not contiguous": lambda v: torch.stack([v, v], -1)[..., 0],
    "requires grad": lambda v: v.clone().requires_grad_() if v.is_floating_point() else v,
    "parameter": lambda v: torch.nn.Parameter(v.clone(), requires_grad=False),
    "pandas": lambda v: pd.DataFrame(_as_numpy(v)) if v.ndim == 2 else _as_numpy(v),
    "lists": lambda v: v.double().tolist() if v.dtype == torch.float64 else _as_numpy(v),
}


def _with(value: Tensor, entry: float) -> Tensor:
    found = value.clone(memory_format=torch.contiguous_format)
    if not found.is_floating_point():
        found = found.double()
    found.view(-1)[0] = entry
    return found


ARRAYS: dict[str, Callable[[Tensor], Any]] = {
    "NaN": lambda v: _with(v, math.nan),
    "infinity": lambda v: _with(v, math.inf),
    "complex": lambda v: v.to(torch.complex128) * (1 + 1j),
    "sparse": lambda v: v.to_sparse(),
    "meta": lambda v: v.to("meta"),
    "empty": lambda v: v[:0],
    "one axis more": lambda v: v[None, None, None],
    "one axis": lambda v: v.flatten(),
    "a number": lambda v: v.flatten()[0],
    "one row": lambda v: v[:1],
    "one column": lambda v: v[..., :1],
    "half precision": lambda v: v.half() if v.is_floating_point() else v,
    "bfloat16": lambda v: v.bfloat16() if v.is_floating_point() else v,
    "int64": lambda v: (3 * v).long(),
    "bool": lambda v: v > 0,
    "words": lambda v: np.full(tuple(v.shape), "a"),
    "objects": lambda v: np.full(tuple(v.shape), None, dtype=object),
    "dates": lambda v: np.zeros(tuple(v.shape), "datetime64[s]"),
    "masked": lambda v: np.ma.masked_array(_as_numpy(v), np.ones(tuple(v.shape), bool)),
    "ragged": lambda v: [[1.0], [1.0, 2.0]],
    "zeros": lambda v: torch.zeros_like(v),
    "huge": lambda v: v * 1e30 if v.is_floating_point() else v,
    "tiny": lambda v: v * 1e-30 if v.is_floating_point() else v,
    "negative": lambda v: -v,
    "constant": lambda v: torch.ones_like(v),
    "dict": lambda v: {"a": 1},
    "None": lambda v: None,
    "word": lambda v: "abc",
    "not symmetric": lambda v: v + torch.arange(v.numel()).view(v.shape).to(v),
    "other precision": lambda v: v.float() if v.dtype == torch.float64 else v.double(),
}
SCALARS: dict[str, Any] = {
    "NaN": math.nan,
    "infinity": math.inf,
    "negative": -1,
    "zero": 0,
    "half": 0.5,
    "huge": 1e300,
    "word": "abc",
    "complex": 1 + 1j,
    "None": None,
    "array": np.ones(2),
    "tensor": torch.ones(()),
    "list": [1],
    "dict": {"a": 1},
    "true": True,
}
CALLABLES: dict[str, Any] = {
    "no callable": 3,
    "raises": lambda *_: (_ for _ in ()).throw(KeyError("no")),
    "NumPy out": lambda z, *_: z.detach().numpy(),
    "NaN out": lambda z, *_: z * math.nan,
    "one value out": lambda z, *_: z.sum(),
    "other batch": lambda z, *_: z[:1],
    "constant": lambda z, *_: torch.ones_like(z),
    "None out": lambda z, *_: None,
}


# Judging


@dataclass
class Tally:
    """Counts of outcomes; the first example of each fault is printed at once."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: set[str] = field(default_factory=set)

    def fault(self, kind: str, address: str, example: str, what: str) -> None:
        """Count a fault."""
        self.counts[kind] += 1
        key = f"{kind}: {address} [{example.split(',')[0]}]"
        if key not in self.faults:
            self.faults.add(key)
            print(f"{kind}: {address} [{example}] {what}"[:300], flush=True)


UNCLEAR, UNFORESEEN, NOT_FINITE, OUT = (
    "unclear refusals",
    "unforeseen exceptions",
    "undocumented non-finite",
    "out of range",
)
REFUSED = "refused clearly"


def numbers_in(name: str, value: Any) -> typing.Iterator[tuple[str, Any]]:
    """Tensors and floats of a result, with the name of their field."""
    if isinstance(value, Tensor | float):
        yield name, value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
    elif isinstance(value, pd.DataFrame):
        yield from ((str(column), torch.tensor(value[column].to_numpy("float64"))) for column in ("score",))
    elif isinstance(value, tuple) and not isinstance(value, torch.Size):
        names = getattr(value, "_fields", [name] * len(value))
        for field_name, part in zip(names, value, strict=True):
            yield from numbers_in(field_name, part)


def documentation(function: Callable[..., Any], result: Any) -> str:
    """What a user can read about the numbers: of the function, its result and the results inside."""
    pages = [function.__doc__ or ""]
    kinds = [type(result)] + [type(part) for part in result] if isinstance(result, tuple) else [type(result)]
    for kind in kinds:
        if isinstance(kind, type) and kind.__module__.startswith("unseam"):
            pages.append(inspect.getsource(kind))
    return "\n".join(pages)


SAYS_NOT_FINITE = re.compile(r"\bNaN\b|\binfinit|\binfinite\b|\binf\b", re.IGNORECASE)
UNIT = re.compile(r"in \[(-?\d+), (\d+)\]")


def judge(tally: Tally, address: str, function: Callable[..., Any], example: str, result: Any) -> None:
    """Look at the numbers of a result."""
    text = documentation(function, result)
    found = list(numbers_in("result", result))
    bad = [name for name, value in found if not bool(torch.as_tensor(value).isfinite().all())]
    bad = [name for name in bad if torch.as_tensor(dict(found)[name]).dtype.is_floating_point]
    if bad and not SAYS_NOT_FINITE.search(text):
        tally.fault(NOT_FINITE, address, example, ", ".join(dict.fromkeys(bad)))
    returns = (function.__doc__ or "").partition("Returns:")[2].partition(">>>")[0]
    bounds = UNIT.search(returns)
    first = dict(reversed(found)).get("score", found[0][1] if found else None)
    if bounds and first is not None and "below 0" not in returns and "uniform" not in returns:
        value = torch.as_tensor(first).double()
        value = value[value.isfinite()]
        if bool(((value < int(bounds[1])) | (value > int(bounds[2]))).any()):
            tally.fault(OUT, address, example, f"{float(value.min()):g} to {float(value.max()):g}")


def same(one: Any, other: Any) -> bool:
    """Whether two results hold the same numbers, up to what another memory layout rounds differently."""
    left, right = list(numbers_in("", one)), list(numbers_in("", other))
    if len(left) != len(right):
        return False
    for (_, first), (_, second) in zip(left, right, strict=True):
        first, second = torch.as_tensor(first).double(), torch.as_tensor(second).double()
        if first.shape != second.shape or not torch.allclose(
            first, second, rtol=1e-3, atol=1e-4, equal_nan=True
        ):
            return False
    return True


def parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """What a function takes, by name."""
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {n: p for n, p in inspect.signature(function).parameters.items() if p.kind not in kinds}


def try_one(tally: Tally, address: str, function: Callable[..., Any], draw: Any) -> None:
    """One example: valid arguments, of which one may be changed."""
    taken = parameters(function)
    number = draw(st.integers(0, 2**16))
    dtype = draw(st.sampled_from([torch.float64, torch.float32]))
    optional = [name for name in taken if name in OPTIONAL or name in OPTIONS]
    chosen = draw(st.lists(st.sampled_from(optional), unique=True, max_size=2)) if optional else []

    def arguments() -> dict[str, Any]:
        source = Source(number, dtype)
        found = {}
        for name, parameter in taken.items():
            required = parameter.default is inspect.Parameter.empty
            if (
                required
                or name in chosen
                or name in ("permutations", "samples", "preset", "length", "steps", "nodes", "metrics")
            ):
                try:
                    found[name] = value_of(address, name, required, source)
                except SystemExit:
                    if required:
                        raise
        return found

    given_arguments = arguments()
    if not given_arguments:
        given_arguments = {}
    changed = draw(st.sampled_from([None, *given_arguments])) if given_arguments else None
    example, legitimate = "as they are", True
    if changed is not None:
        value = given_arguments[changed]
        if isinstance(value, Tensor):
            legitimate = draw(st.booleans())
            table = SAME if legitimate else ARRAYS
            how = draw(st.sampled_from(list(table)))
            if how == "lists" and changed in ("z", "start"):
                how = "numpy"  # lists of points are in the default precision
            example = f"{changed}: {how}"
            given_arguments[changed] = table[how](value)
        else:
            legitimate = False
            plain = isinstance(value, int | float | str | bool)
            table = SCALARS if plain else CALLABLES if callable(value) else {**SCALARS, "number": 3}
            how = draw(st.sampled_from(list(table)))
            example = f"{changed}: {how}"
            given_arguments[changed] = table[how]
    example = f"{example}, {str(dtype).removeprefix('torch.')}, seed {number}, with {', '.join(chosen) or 'defaults'}"
    tally.counts["tried"] += 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = function(**given_arguments)
    except (ValueError, TypeError) as error:
        names = [*taken, *(["settings"] if "preset" in taken else [])]
        if legitimate and changed is not None and _accepts(function, arguments()):
            tally.fault(UNCLEAR, address, example, f"refuses another layout: {error}")
        elif any(re.search(rf"\b{name}\b", str(error)) for name in names):
            tally.counts[REFUSED] += 1
        else:
            tally.fault(UNCLEAR, address, example, f"{type(error).__name__}: {error}")
    except Exception as error:
        tally.fault(UNFORESEEN, address, example, f"{type(error).__name__}: {error}")
    else:
        judge(tally, address, function, example, result)
        if legitimate and changed is not None and not same(result, function(**arguments())):
            tally.fault(OUT, address, example, "another layout gives other numbers")


def _accepts(function: Callable[..., Any], arguments: dict[str, Any]) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(**arguments)
    except (ValueError, TypeError):
        return False
    return True


def run_examples(tally: Tally, address: str, function: Callable[..., Any], count: int, number: int) -> None:
    """So many examples of one function."""

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def run(data: Any) -> None:
        try_one(tally, address, function, data.draw)

    run()


def fuzz(names: list[str], examples: int, seconds: float | None, first_seed: int, verbose: bool) -> Tally:
    """Try every function on so many examples, again with other seeds until the time is up."""
    tally, every = Tally(), targets()
    chosen = {name: f for name, f in every.items() if not names or any(part in name for part in names)}
    began, number = time.monotonic(), first_seed
    while True:
        for address, function in chosen.items():
            count = max(2, examples // 8) if SLOW.search(address) else examples

            start = time.monotonic()
            run_examples(tally, address, function, count, number)
            if verbose:
                print(f"{time.monotonic() - start:6.1f} s  {address}", flush=True)
            if seconds is not None and time.monotonic() - began > seconds:
                return tally
        number += 1
        if seconds is None:
            return tally


def main() -> int:
    """Print the counts; status 1 where one of the last four is not zero."""
    parser = argparse.ArgumentParser(
        description="call every public numeric function with what users may pass"
    )
    parser.add_argument("names", nargs="*", help="parts of addresses; all functions by default")
    parser.add_argument("--examples", type=int, default=DEFAULT_EXAMPLES, help="examples per function")
    parser.add_argument(
        "--seconds", type=float, help="go on with other seeds until so many seconds have passed"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the examples")
    parser.add_argument("--verbose", action="store_true", help="print the time that each function took")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tally = fuzz(options.names, options.examples, options.seconds, options.seed, options.verbose)
    for kind in ("tried", REFUSED, UNCLEAR, UNFORESEEN, NOT_FINITE, OUT):
        print(f"{kind:24s} {tally.counts[kind]}")
    return int(any(tally.counts[kind] for kind in (UNCLEAR, UNFORESEEN, NOT_FINITE, OUT)))


if __name__ == "__main__":
    raise SystemExit(main())
