"""Checks and conversions that all metrics share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    ParamSpec,
    Self,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseam.inputs import (
    Array,
    as_floating,
    as_mask,
    as_tensor,
    check_choice,
    check_count,
    check_finite,
    check_generator,
    check_number,
    check_shape,
)
from unseam.metrics.intervals import Interval

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "AbstractDrawn",
    "AbstractFitted",
    "AbstractSettings",
    "Checked",
    "Table",
    "centre_distant",
    "check_codes",
    "check_inputs",
    "classes",
    "default_generator",
    "draw_distinct",
    "draw_points",
    "equal_width",
    "labels",
    "map_members",
    "metric",
    "ratio",
    "row_slices",
    "scale_by_power",
]

Table: TypeAlias = "Array | pd.DataFrame"
Settings = TypeVar("Settings", bound="AbstractSettings")
Numbers = TypeVar("Numbers", bound=tuple[Any, ...])
Found = TypeVar("Found")
Arguments = ParamSpec("Arguments")

CODES = "(batch, latent) or (member, batch, latent)"

NUMBERS_AT_ONCE = {"cpu": 2**24, "cuda": 2**31}
"""Numbers that a step may hold, by type of device: what a processor's caches and an accelerator's memory bear."""
# Between 2⁻⁴⁰ and 2⁴⁰ squares, and sums of millions of them, are far from the limits of single precision.
_EXPONENT = 40
# The most that one factor may be: 2¹⁰⁰⁰ is a number, the inverse of the smallest is not.
_MOST = 1000
# From so many times its range on a code loses digits that matter: single precision has 24, of which 18 are left.
_FAR = 64


class Checked(NamedTuple):
    """Codes and factors as every metric wants them."""

    codes: Tensor
    """(member, batch, latent), float32 or float64, finite."""
    factors: Tensor
    """(batch, factor), finite, on the device of the codes: float64, or the integers they came as where all are
    discrete and none has been drawn."""
    discrete: tuple[bool, ...]
    """Which factors are discrete."""
    variance: Tensor | None
    """Posterior variance (member, batch, latent), or none."""
    stacked: bool
    """Whether the codes came with a member axis, so that the score has one too."""

    def rescale(self, *, common: bool = False, small: bool = True) -> tuple[Checked, Tensor]:
        """The same with codes of extreme size brought to one that can be squared, and :func:`scale_exponent`."""
        exponent = scale_exponent(self.codes, common=common, small=small)
        return self._replace(codes=scale_by_power(self.codes, exponent)), exponent

    def rescaled(self, *, common: bool = False, small: bool = True) -> Checked:
        """The first of :meth:`rescale`."""
        return self.rescale(common=common, small=small)[0]

    def unstack(self, result: Numbers) -> Numbers:
        """The result without the member axis of its tensors, those of its intervals too, where the codes had none."""
        if self.stacked:
            return result
        parts = (self.unstack(part) if isinstance(part, Interval) else part for part in result)
        return type(result)(*(part[0] if isinstance(part, Tensor) else part for part in parts))


def check_inputs(
    codes: Array,
    factors: Table,
    *,
    discrete: Sequence[bool] | None = None,
    variance: Array | None = None,
    preset: Any = "dlib",
    generator: torch.Generator | None = None,
) -> Checked:
    """Codes and factors that fit each other, or a message that says why they do not: what a metric is called with.

    Booleans and unsigned integers count as integers; words and categories as discrete, by their order.
    """
    given = as_floating("codes", codes, CODES).detach()
    if discrete is not None and as_mask("discrete", discrete).ndim != 1:
        raise ValueError(f"discrete must be a list with one entry per factor, got {type(discrete).__name__}")
    stacked = given.ndim == 3
    values, integer = _columns(factors, discrete)
    if len(values) != given.shape[-2]:
        raise ValueError(
            f"codes and factors must have one row per point, got {given.shape[-2]} codes and {len(values)} factors"
        )
    if discrete is not None and len(discrete) != values.shape[1]:
        raise ValueError(f"discrete must have one entry per factor ({values.shape[1]}), got {len(discrete)}")
    spread = None if variance is None else _spread(variance, given)
    return Checked(
        given if stacked else given[None],
        values.to(given.device),
        tuple(bool(flag) for flag in (integer if discrete is None else discrete)),
        None if spread is None else spread if stacked else spread[None],
        stacked,
    )


def _spread(variance: Array, codes: Tensor) -> Tensor:
    """Posterior variances that fit codes."""
    spread = as_floating("variance", variance).detach()
    if spread.shape != codes.shape:
        raise ValueError(
            f"variance must have the shape of codes {tuple(codes.shape)}, got shape {tuple(spread.shape)}"
        )
    if count := int((spread < 0).sum()):
        raise ValueError(f"variance must not be negative, got {count} negative entries")
    return spread


def check_codes(
    codes: Array,
    factors: Table | None = None,
    *,
    discrete: Sequence[bool] | None = None,
    variance: Array | None = None,
    preset: Any = "dlib",
    generator: torch.Generator | None = None,
) -> Checked:
    """Codes alone, with a table of no factors: what :func:`~unseam.metrics.evaluate` gives besides is not looked at."""
    given = as_floating("codes", codes, CODES)
    found = check_inputs(given, torch.zeros(given.shape[-2], 1))
    return found._replace(factors=found.factors[:, :0], discrete=())


def equal_width(values: Tensor, bins: int) -> Tensor:
    """Bin (..., batch) of every value among equal ones between the smallest and largest of its row, int64.

    The convention of ``numpy.histogram``, edges rounded as there: all bins half-open but the last, which is
    closed. A row of equal values lies in bin 0.
    """
    low = values.amin(-1, keepdim=True)
    step = (values.amax(-1, keepdim=True) - low) / bins
    index = ((values - low) / torch.where(step > 0, step, 1.0)).floor_().clamp_(0, bins - 1)
    index.add_(values < index * step + low, alpha=-1)
    # The last bin's upper edge is beyond all values; a row without a width has no edges to cross.
    upper = torch.where((index < bins - 1) & (step > 0), (index + 1) * step + low, torch.inf)
    index.add_(values >= upper)
    return index.long()


def classes(given: Checked, bins: int) -> Tensor:
    """Class (batch, factor) of every factor's value: its label where discrete, else its equal-width bin."""
    columns = [
        column if discrete else equal_width(column, bins).double()
        for column, discrete in zip(given.factors.T, given.discrete, strict=True)
    ]
    return labels(torch.stack(columns, dim=1))


def row_slices(count: int, numbers: int, device: torch.device) -> Iterator[slice]:
    """Slices of ``count`` rows of so many numbers each: 8 MB at a time for a processor's caches, else 256 MB."""
    most = max(1, (2**25 if device.type == "cuda" else 2**20) // max(numbers, 1))
    return (slice(start, start + most) for start in range(0, count, most))


def labels(factors: Tensor) -> Tensor:
    """Position (batch, factor) of every value among the distinct values of its factor, int64."""
    return torch.stack([torch.unique(column, return_inverse=True)[1] for column in factors.T], dim=1)


def draw_points(given: Checked, points: int | None, generator: torch.Generator) -> Checked:
    """At most so many points, at random without replacement, the same for all members."""
    batch = given.codes.shape[1]
    if points is None or points >= batch:
        return given._replace(factors=given.factors.double())
    index = draw_distinct(batch, points, generator).to(given.codes.device)
    return given._replace(
        codes=given.codes.index_select(1, index),
        factors=given.factors.index_select(0, index).double(),
        variance=None if given.variance is None else given.variance.index_select(1, index),
    )


def draw_distinct(batch: int, count: int, generator: torch.Generator) -> Tensor:
    """So many different points (count,) of a batch in random order, without permuting a much larger batch."""
    if count > batch // 4:
        return torch.randperm(batch, generator=generator, device=generator.device)[:count]
    found = torch.empty(0, dtype=torch.int64, device=generator.device)
    while len(found) < count:
        more = torch.randint(batch, (2 * count,), generator=generator, device=generator.device)
        found = torch.cat([found, more]).unique()
    # By symmetry any choice among the different ones is uniform.
    return found[torch.randperm(len(found), generator=generator, device=generator.device)[:count]]


def default_generator(generator: torch.Generator | None) -> torch.Generator:
    """The generator that was given, or one of its own with seed 0: a score is the same every time."""
    return torch.Generator().manual_seed(0) if generator is None else check_generator(generator)


@dataclass(frozen=True)
class AbstractSettings:
    """Parameters of a metric, refused where they are out of range.

    Counts are at least 1, numbers not negative and choices those listed, unless a field is annotated with other
    bounds: those of :func:`~unseam.inputs.check_count` or :func:`~unseam.inputs.check_number`. The defaults are the
    preset ``dlib``: those of the study of 12 600 models (Locatello et al. 2019) where it has the metric.
    """

    changes: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """What each other preset changes: ``fast`` takes a fifth of the points where a metric does not say otherwise."""

    @classmethod
    def resolve(cls, preset: object) -> Self:
        """Settings of a named preset, or those that were given."""
        if isinstance(preset, cls):
            return preset
        if not isinstance(preset, str):
            raise ValueError(f"preset must be a name or {cls.__name__}, got {type(preset).__name__}")
        presets = {"dlib": {}, **cls.changes}
        if preset not in presets:
            raise ValueError(f"preset must be one of {', '.join(presets)}, got {preset!r}")
        return cls(**presets[preset])

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self), include_extras=True).items():
            value, bounds = getattr(self, name), {}
            kind, *limits = get_args(hint) if get_origin(hint) is Annotated else (hint,)
            for limit in limits:
                bounds.update(limit)
            if get_origin(kind) is Literal:
                check_choice(name, value, get_args(kind))
            elif kind is float:
                check_number(name, value, **(bounds if limits else {"least": 0}))
            elif kind is int or (kind == int | None and value is not None):
                check_count(name, value, **bounds)


@dataclass(frozen=True)
class AbstractDrawn(AbstractSettings):
    """Parameters of a metric of points drawn at random."""

    changes: ClassVar = {"fast": {"points": 2_000}}
    points: int | None = 10_000
    """Number of points, none for all; in a result, how many there were."""


@dataclass(frozen=True)
class AbstractFitted(AbstractSettings):
    """Parameters of a metric of points, or votes, that something is fitted to, and others that it is scored on."""

    changes: ClassVar = {"fast": {"train": 2_000, "test": 1_000}}
    train: int = 10_000
    """How many are fitted to; in a result, how many there were."""
    test: int = 5_000
    """How many are scored on; in a result, how many there were."""


ARGUMENTS = """Args:
    codes: z (batch, latent) or (member, batch, latent).
    factors: v (batch, factor), where the metric is not of codes alone.
    discrete: which factors are; by default those of integer type, booleans, words and categories.
    variance: posterior variance of the codes, in their shape, where the metric is of posteriors.
    preset: {presets} or settings.
    generator: source of all draws, the same for all members; by default seed 0.

"""
"""What the docstring of every metric says of its arguments, before what it returns."""


def metric(
    kind: type[Settings], called: Callable[Arguments, Checked]
) -> Callable[[Callable[[Checked, Settings, torch.Generator], Numbers]], Callable[Arguments, Numbers]]:
    """Make a metric of a function of checked input, settings and a generator, which scores all members at once.

    The metric takes what ``called`` takes; ``preset`` is one of the names, or settings of this kind.
    """

    def decorate(
        measure: Callable[[Checked, Settings, torch.Generator], Numbers],
    ) -> Callable[Arguments, Numbers]:
        signature = inspect.signature(called)

        @wraps(measure)
        def score(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Numbers:
            given = signature.bind(*args, **kwargs).arguments
            settings = kind.resolve(given.get("preset", "dlib"))
            source = default_generator(given.get("generator"))
            checked = called(*args, **kwargs)
            return checked.unstack(measure(checked, settings, source))

        result = inspect.signature(measure).return_annotation
        score.__signature__ = signature.replace(return_annotation=result)  # type: ignore[attr-defined]
        about = ARGUMENTS.format(presets=", ".join(f'``"{name}"``' for name in ("dlib", *kind.changes)))
        score.__doc__ = inspect.cleandoc(measure.__doc__ or "").replace("Returns:\n", about + "Returns:\n")
        return score

    return decorate


def _columns(factors: Table, discrete: Sequence[bool] | None) -> tuple[Tensor, list[bool]]:
    """Factors as one table, and which columns are discrete; integers stay so where all are discrete."""
    import pandas as pd

    named = isinstance(factors, np.ndarray) and factors.dtype.kind in "OUS" and factors.ndim == 2
    if named or isinstance(factors, pd.DataFrame):
        frame = pd.DataFrame(factors).infer_objects()
        numbers = [pd.api.types.is_numeric_dtype(kind) for kind in frame.dtypes]
        for name, number, flag in zip(frame.columns, numbers, discrete or (), strict=False):
            if not number and not flag:
                raise ValueError(f"discrete must be true for factor {name!r}, whose values are no numbers")
        series = (frame.iloc[:, place] for place in range(frame.shape[1]))
        columns = [
            column.to_numpy("float64", na_value=float("nan")) if number else _positions(column)
            for column, number in zip(series, numbers, strict=True)
        ]
        table = torch.as_tensor(np.stack(columns, 1) if columns else np.empty(frame.shape))
        integer = [not pd.api.types.is_float_dtype(kind) for kind in frame.dtypes]
    else:
        table = as_tensor("factors", factors).detach()
        integer = [not table.is_floating_point()] * (table.shape[1] if table.ndim == 2 else 0)
    check_shape("factors", table, "(batch, factor)")
    check_finite("factors", table)
    if not table.is_floating_point() and (discrete is None or all(discrete)):
        return table, integer
    table = table.double()
    return scale_by_power(table, scale_exponent(table)), integer


def _positions(column: pd.Series) -> NDArray[Any]:
    """Position of every value among the categories, or among the sorted values; NaN for one that is missing."""
    import pandas as pd

    if isinstance(column.dtype, pd.CategoricalDtype):
        found = column.cat.codes.to_numpy()
    else:
        found = pd.factorize(column, sort=True)[0]
    return np.where(found < 0, np.nan, found)


def ratio(above: Tensor, below: Tensor) -> Tensor:
    """Quotient of tensors, 0 where the denominator is not positive."""
    return torch.where(below > 0, above / torch.where(below > 0, below, 1.0), 0.0)


def map_members(codes: Tensor, numbers: int, measure: Callable[[Tensor], Found]) -> list[Found]:
    """Results of ``measure`` on codes (member, ...), as many members at once as memory allows (``numbers`` each)."""
    most = max(1, NUMBERS_AT_ONCE.get(codes.device.type, 2**24) // max(1, numbers))
    return [measure(part) for part in codes.split(most)]


def scale_exponent(values: Tensor, *, common: bool = False, small: bool = True) -> Tensor:
    """Power of two, as its exponent, that brings columns of values (..., batch, column) within 2^±40: 0 for most.

    Values inside stay as they are, to the last digit, and a power of two changes no digit either. So a score that scale
    does not change is the same for codes of any finite size. A score with a penalty or threshold sees large codes as
    large as 2⁴⁰, beyond which neither matters.

    Args:
        values: real, finite.
        common: one power for all columns, where their sizes are compared.
        small: also for small ones; without, what is near 0 stays so, for scores that call such codes inactive.

    Returns:
        (..., 1, column), or (..., 1, 1) for a common one.
    """
    low, high = values.aminmax(dim=-2, keepdim=True)
    most = torch.maximum(-low, high)
    exponent = torch.frexp(most.amax(-1, keepdim=True) if common else most).exponent
    return (exponent.clamp(-_EXPONENT if small else None, _EXPONENT) - exponent).clamp(max=_MOST)


def scale_by_power(values: Tensor, exponent: Tensor) -> Tensor:
    """Values times two to the exponent, which broadcasts; the very same where that is 0."""
    return values * exponent.to(values.dtype).exp2() if bool(exponent.any()) else values


def centre_distant(values: Tensor) -> Tensor:
    """Values (..., batch, column), a column that lies further from 0 than 64 times its range moved to mean 0.

    In the precision that they came in, before trees read them in single precision; others stay as they are.
    """
    low, high = values.aminmax(dim=-2, keepdim=True)
    far = torch.maximum(-low, high) > _FAR * (high - low)
    return torch.where(far, values - values.mean(-2, keepdim=True), values) if bool(far.any()) else values
