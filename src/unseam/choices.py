"""Choices: objectives, likelihoods, posteriors, optimisers, architectures and worlds as values."""

from __future__ import annotations

import ast
import difflib
import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

__all__ = [
    "Architecture",
    "Choice",
    "Likelihood",
    "Objective",
    "Optimiser",
    "Option",
    "Posterior",
    "World",
    "built_in",
    "find",
    "identity",
    "importing",
    "load_factory",
    "import_extra",
    "load_object",
    "name_of",
    "names",
    "object_name",
    "objective",
    "source",
]


@dataclass(frozen=True)
class Option:
    """A number or a setting of a choice.

    Attributes:
        name: a field of :class:`unseam.Trial`, or else an entry of its ``weights``.
        help: what it is, as a noun phrase.
        default: of an option that is no field of a trial.
        member: whether members of one stack may differ in it.
        argument: what the choice's function calls it: the option's name by default; ``None`` where the trainer alone
            uses it; ``discriminator.NAME`` where it is an argument of an objective's discriminator.
    """

    name: str
    help: str
    default: float | None = None
    member: bool = True
    argument: str | None = ""


@dataclass(frozen=True)
class Choice:
    """What can stand in a field of a trial: a name, a title, options, and the function or class behind it.

    Attributes:
        name: by which a trial names it.
        title: by which text and figures name it.
        function: function or class, or ``package.module:object``, which is imported on use.
        options: what can be set of it.
        fixed: further keyword arguments of the function.
    """

    name: str
    title: str
    function: str | Callable[..., Any]
    options: tuple[Option, ...] = ()
    fixed: tuple[tuple[str, Any], ...] = ()

    def load(self) -> Callable[..., Any]:
        """The function or class itself."""
        return load_object(self.function) if isinstance(self.function, str) else self.function

    def arguments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Keyword arguments of the function, from values by the options' names; ``None`` is the function's default."""
        named = {
            option.argument or option.name: values.get(option.name)
            for option in self.options
            if option.argument is not None
        }
        return dict(self.fixed) | {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True)
class Objective(Choice):
    """An objective: ``function(model, x, noise, ...)`` returns a NamedTuple of scalar terms, ``loss`` first.

    Options with ``member`` are weights, given as scalar tensors; others are fixed settings.

    Attributes:
        weighs_kl: whether ``beta`` is the weight of the KL term, the β of allen2024 Eq. 7.
        needs: what else the function takes: ``step`` (updates so far), ``size`` (training items), ``keys`` (uniform
            noise (batch, latent)), ``discriminator``.
        discriminator: class of a network that is trained along, made with the number of latents and with its options.
        variance: whether the posterior must have a variance (``True``), must have none (``False``), or either.
        jacobian: whether it differentiates the decoder in forward mode.
    """

    weighs_kl: bool = False
    needs: tuple[str, ...] = ()
    discriminator: str | Callable[..., Any] | None = None
    variance: bool | None = True
    jacobian: bool = False


@dataclass(frozen=True)
class Likelihood(Choice):
    """A likelihood: a subclass of :class:`unseam.models.AbstractLikelihood`.

    Attributes:
        shaped: whether it has parameters per data dimension: it is made with the ``shape`` of one item, and leaves
            missing values out by itself.
    """

    shaped: bool = False


@dataclass(frozen=True)
class Posterior(Choice):
    """A posterior: a subclass of :class:`unseam.models.AbstractPosterior`, made with the number of latents."""

    variance: bool = True


@dataclass(frozen=True)
class Optimiser(Choice):
    """An optimiser: a class like :class:`unseam.training.Sgd`."""


@dataclass(frozen=True)
class Architecture(Choice):
    """An architecture: ``function(shape, features, latent, output)`` returns encoder and decoder.

    ``shape`` is that of one item, ``features`` the number of encoder outputs that the posterior reads, and ``output``
    the shape of the likelihood's parameter.
    """


@dataclass(frozen=True)
class World(Choice):
    """A data set: a function of its options that returns an :class:`unseam.data.World`."""

    from_file: bool = False


# One line, or lines up to a closing parenthesis of its own.
_STATEMENT = re.compile(r"^\w+ = (choices\.\w+\((?:.*|\n(?:.*\n)*?)\))$", re.MULTILINE)
Kind = TypeVar("Kind", bound=Choice)
_HOMES = {
    "Objective": "objectives",
    "Likelihood": "models",
    "Posterior": "models",
    "Optimiser": "training",
    "Architecture": "models",
    "World": "data",
}


def objective(name: str | Objective) -> Objective:
    """The objective of that name.

    >>> objective("beta_tcvae").title, objective("beta_tcvae").weighs_kl
    ('β-TCVAE', False)
    """
    return find(Objective, name)


def find(kind: type[Kind], name: str | Kind) -> Kind:
    """The choice of a kind that is built in, comes by entry point, or stands at ``package.module:object``.

    >>> find(Likelihood, "binomial").options[0].name
    'likelihood_draws'
    """
    if isinstance(name, kind):
        return name
    field = kind.__name__.lower()
    if not isinstance(name, str):
        raise ValueError(f"{field} must be a name or a choices.{kind.__name__}, got {name!r}")
    known = built_in(kind)
    if name in known:
        return known[name]
    if ":" in name:
        found = load_object(name)
    elif name in (entries := _entry_points(kind.__name__)):
        found = entries[name].load()
    else:
        near = difflib.get_close_matches(name, names(kind), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        listed = ", ".join(names(kind))
        raise ValueError(f"{field} must be one of {listed}, or package.module:object; got {name!r}{hint}")
    if not isinstance(found, kind):
        raise ValueError(f"{name} must be a choices.{kind.__name__}, got {type(found).__name__}")
    return found


def names(kind: type[Choice]) -> tuple[str, ...]:
    """Names of all choices of a kind, installed ones after those built in.

    >>> names(Posterior)[:3]
    ('diagonal', 'full', 'point')
    """
    known = built_in(kind)
    return (*known, *(name for name in _entry_points(kind.__name__) if name not in known))


def built_in(kind: type[Kind]) -> dict[str, Kind]:
    """Choices of a kind that the package's files state, by name and in the order of names.

    >>> list(built_in(Optimiser))
    ['adagrad', 'adam', 'sgd']
    """
    return _sorted(kind.__name__)


def name_of(choice: Choice) -> str:
    """The name by which :func:`find` finds a choice: its own, or the ``package.module:object`` where it stands.

    >>> name_of(objective("beta_elbo"))
    'beta_elbo'
    """
    if built_in(type(choice)).get(choice.name) == choice:
        return choice.name
    function = choice.function
    module = function.partition(":")[0] if isinstance(function, str) else function.__module__
    held = vars(sys.modules[module]) if module in sys.modules else {}
    for name, value in held.items():
        if value is choice:
            return f"{module}:{name}"
    raise ValueError(
        f"choice {choice.name!r} must be a variable of the module of its function, {module}, by which a saved run can "
        f"find it again"
    )


def object_name(value: Any, argument: str) -> str:
    """The ``package.module:object`` by which a saved run finds a function or class again.

    >>> object_name(find, "encoder")
    'unseam.choices:find'
    """
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    found: Any = sys.modules.get(str(module))
    for part in name.split("."):
        found = getattr(found, part, None)
    if not name or "." in name or found is not value:
        raise ValueError(
            f"{argument} must be a function or class of a module, by whose name a saved run can find it again, or "
            f"package.module:factory; got {value!r}"
        )
    return f"{module}:{name}"


_IMPORTING = ContextVar("importing", default=True)


@contextmanager
def importing(allowed: bool) -> Iterator[None]:
    """Whether :func:`load_object` may import modules inside the block: not where a file names them.

    >>> with importing(False):
    ...     load_object("this:d")
    Traceback (most recent call last):
    ValueError: 'this:d' is code that is not imported yet; if you trust it, import this first, or ...
    """
    before = _IMPORTING.set(allowed)
    try:
        yield
    finally:
        _IMPORTING.reset(before)


def import_extra(name: str, install: str = "") -> Any:
    """A package that unseam does without, or how to install it.

    >>> import_extra("absent")
    Traceback (most recent call last):
    ValueError: this needs absent: pip install absent
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ValueError(f"this needs {name}: pip install {install or name}") from None


def load_object(name: str) -> Any:
    """The object that ``package.module:object`` or ``file.py:object`` names; the current folder is searched too.

    >>> load_object("math:pi.real")
    3.141592653589793
    """
    module, _, attribute = name.rpartition(":")
    if not module or not attribute:
        raise ValueError(
            f"an object of your own is named package.module:object or file.py:object, got {name!r}"
        )
    if module.endswith(".py"):
        module = str(Path(module).expanduser().resolve())
    if not _IMPORTING.get():
        return _imported(name, module, attribute)
    if not module.startswith("unseam.") and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last, so that a file there stands in for no other module
    try:
        found: Any = _import_file(Path(module)) if module.endswith(".py") else importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"module {module!r} cannot be imported: {error}; run unseam from its folder"
        ) from None
    try:
        for part in attribute.split("."):
            found = getattr(found, part)
    except AttributeError:
        raise ValueError(f"module {module!r} has no {attribute!r}") from None
    return found


def _import_file(file: Path) -> ModuleType:
    """The module of a file, by its path, unless it is imported by name already; its folder is searched by it."""
    if not file.is_file():
        raise ValueError(f"{file} must be a file of Python code, and does not exist")
    for held in (sys.modules.get(str(file)), sys.modules.get(file.stem)):
        if held is not None and getattr(held, "__file__", None) == str(file):
            return held
    spec = importlib.util.spec_from_file_location(str(file), file)
    assert spec is not None and spec.loader is not None
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    module = sys.modules[str(file)] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[str(file)]
        raise
    return module


_FACTORIES: set[str] = set()


def load_factory(name: str) -> Callable[..., Any]:
    """The function that ``package.module:factory`` names.

    Where a file names it, it must have been used in this process before: unlike a choice, any function would do, and
    it is called.

    >>> with importing(False):
    ...     load_factory("os:kill")
    Traceback (most recent call last):
    ValueError: 'os:kill' is code that was not used here yet; if you trust it, pass trust=True (--trust)
    """
    if not _IMPORTING.get() and name not in _FACTORIES:
        raise ValueError(
            f"{name!r} is code that was not used here yet; if you trust it, pass trust=True (--trust)"
        )
    found = load_object(name)
    if not callable(found):
        raise ValueError(f"{name} must be a function, got {type(found).__name__}")
    _FACTORIES.add(name)
    return found


def _imported(name: str, module: str, attribute: str) -> Any:
    """A variable of a module that was imported before; nothing of the module runs."""
    if module not in sys.modules:
        raise ValueError(
            f"{name!r} is code that is not imported yet; if you trust it, import {module} first, or pass trust=True "
            f"(--trust)"
        )
    found: Any = sys.modules[module]
    try:
        for part in attribute.split("."):
            found = inspect.getattr_static(found, part)
    except AttributeError:
        raise ValueError(f"module {module!r} has no {attribute!r}") from None
    return found


def identity(choice: Choice) -> str | None:
    """Where a choice's function stands, with a digest of that file; ``None`` for a built-in choice.

    >>> identity(objective("beta_elbo")) is None
    True
    """
    if built_in(type(choice)).get(choice.name) == choice:
        return None
    return source(choice.load())


def source(function: Callable[..., Any]) -> str:
    """Where a function of the user's own stands, with a digest of that file.

    >>> source(find)[:19]
    'unseam.choices:find'
    """
    file = getattr(sys.modules[function.__module__], "__file__", None)
    digest = hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else "unknown"
    return f"{function.__module__}:{function.__qualname__} {digest}"


@cache
def _sorted(kind: str) -> dict[str, Any]:
    found = {choice.name: choice for choice in _stated(_HOMES[kind]) if type(choice).__name__ == kind}
    return dict(sorted(found.items()))


@cache
def _stated(package: str) -> tuple[Choice, ...]:
    """All ``NAME = choices.Kind(...)`` at the start of a line in a package's files.

    They are read from the text, as importing the files would import torch; so they consist of literals.
    """
    files = (Path(__file__).parent / package).glob("*.py")
    found = (text for file in files for text in _STATEMENT.findall(file.read_text(encoding="utf-8")))
    return tuple(_value(ast.parse(text, mode="eval").body) for text in found)


def _value(node: ast.expr) -> Any:
    """The value of a call ``choices.Kind(...)``, of a tuple of values, or of a literal."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="choices"), attr=kind)):
            named = {str(word.arg): _value(word.value) for word in node.keywords}
            return globals()[kind](*map(_value, node.args), **named)
        case ast.Tuple():
            return tuple(map(_value, node.elts))
    return ast.literal_eval(node)


@cache
def _entry_points(kind: str) -> Mapping[str, Any]:
    return {entry.name: entry for entry in _installed().select(group=f"unseam.{kind.lower()}s")}


@cache
def _installed() -> Any:
    from importlib.metadata import entry_points

    return entry_points()
