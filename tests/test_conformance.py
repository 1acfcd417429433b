"""Everything public keeps the rules of the house: signatures, docstrings, result types, dtypes, randomness."""

import ast
import dataclasses
import doctest
import functools
import importlib
import inspect
import random
import re
import sys
import types
import typing
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch

import unseam

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "unseam"
FILES = sorted(path for path in PACKAGE.rglob("*.py"))
PAGES = sorted((PACKAGE.parents[1] / "docs").glob("*.md"))
MAX_BODY_LINES = 60


def module_name(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_public(path):
    return not any(part.startswith("_") for part in module_name(path).split("."))


def public_objects():
    """(module.name, object) for every name in every ``__all__``, each object once, under its shortest address."""
    found = {}
    for path in sorted(filter(is_public, FILES), key=lambda path: len(path.parts)):
        try:
            module = importlib.import_module(module_name(path))
        except Exception:  # reported by test_module_imports
            continue
        for name in getattr(module, "__all__", ()):
            try:
                value = getattr(module, name)
            except Exception:  # reported by test_all_names_exist
                continue
            address = f"{module.__name__}.{name}"
            documented = isinstance(value, type) or inspect.isfunction(value)
            if documented and all(value is not other for other in found.values()):
                found[address] = value
    return found


def own_docstring(value):
    """The docstring written for ``value``, neither inherited nor generated."""
    docstring = value.__dict__.get("__doc__") if isinstance(value, type) else value.__doc__
    generated = isinstance(value, type) and str(docstring).startswith(f"{value.__name__}(")
    return "" if generated or not docstring else inspect.cleandoc(docstring)


def is_result(value):
    return is_named_tuple(value) or dataclasses.is_dataclass(value)


def is_named_tuple(value):
    return (
        isinstance(value, type)
        and issubclass(value, tuple)
        and isinstance(getattr(value, "_fields", None), tuple)
    )


def is_protocol(value):
    return typing.Protocol in value.__bases__


def is_shown_elsewhere(address, function):
    """Whether a function needs no example: commands, parts that no package exports, and what reads files."""
    if address.startswith("unseam.cli") or address.count(".") > 2:
        return True
    return any("Path" in str(given.annotation) for given in inspect.signature(function).parameters.values())


def comes_out_of_functions(owner):
    """Abstract classes, results and errors are shown by the functions that return or raise them."""
    return inspect.isabstract(owner) or is_result(owner) or issubclass(owner, Exception) or is_protocol(owner)


OBJECTS = public_objects()
FUNCTIONS = {name: value for name, value in OBJECTS.items() if inspect.isfunction(value)}
CLASSES = {name: value for name, value in OBJECTS.items() if isinstance(value, type)}

EXAMPLES = {name: value for name, value in OBJECTS.items() if ">>> " in own_docstring(value)}
WITH_BEHAVIOUR = {name: value for name, value in FUNCTIONS.items() if not is_shown_elsewhere(name, value)}
WITH_BEHAVIOUR |= {name: value for name, value in CLASSES.items() if not comes_out_of_functions(value)}

each_example = pytest.mark.parametrize("value", EXAMPLES.values(), ids=EXAMPLES.keys())


def every(items):
    """A rule as one test over all items, which lists those that break it."""

    def decorate(rule):
        @functools.wraps(rule)
        def test():
            broken = []
            for name, item in items.items():
                try:
                    rule(item)
                except (AssertionError, pytest.fail.Exception) as error:
                    broken.append(f"{name}: {error}")
            assert not broken, "\n".join(broken)

        del test.__wrapped__  # or pytest would ask for a fixture named like the item
        return test

    return decorate


ALL_FILES = {str(path.relative_to(PACKAGE)): path for path in FILES}
PUBLIC_FILES = {module_name(path): path for path in FILES if is_public(path)}


@functools.cache
def parsed(path):
    return ast.parse(path.read_text("utf8"))


def test_a_broken_rule_names_what_breaks_it():
    @every({"one": 1, "two": 2})
    def rule(value):
        assert value == 1

    with pytest.raises(AssertionError, match="two"):
        rule()


def test_the_suite_collects():
    assert {"unseam.data.load", "unseam.data.World"} <= OBJECTS.keys()


# Files


@every(PUBLIC_FILES)
def test_module_imports(path):
    importlib.import_module(module_name(path))


@every(PUBLIC_FILES)
def test_all_names_exist(path):
    module = importlib.import_module(module_name(path))
    assert [name for name in module.__all__ if getattr(module, name, None) is None] == []
    assert len(set(module.__all__)) == len(module.__all__)


@every(ALL_FILES)
def test_one_line_module_docstring(path):
    docstring = ast.get_docstring(parsed(path), clean=False)
    assert docstring, "a module docstring says in one line what the file is about"
    assert "\n" not in docstring
    assert docstring.endswith(".")


@every(PUBLIC_FILES)
def test_all_stands_first(path):
    """After the docstring and the imports, before anything is defined."""
    for node in parsed(path).body[1:]:
        if isinstance(node, ast.Import | ast.ImportFrom) or is_type_checking(node):
            continue
        assert isinstance(node, ast.Assign | ast.AnnAssign), f"line {node.lineno} comes before __all__"
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        assert isinstance(target, ast.Name)
        assert target.id == "__all__"
        return
    pytest.fail("no __all__")


def is_type_checking(node):
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


@every(ALL_FILES)
def test_functions_fit_on_a_screen(path):
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if "@triton.jit" in ast.unparse(node):
                continue  # a kernel is one program, whose parts cannot be functions of their own
            body = node.body[1:] if ast.get_docstring(node) else node.body
            lines = body[-1].end_lineno - body[0].lineno + 1 if body else 0
            assert lines <= MAX_BODY_LINES, f"{node.name} is {lines} lines long"


# What no file may do

FORBIDDEN_IMPORTS = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "random", "joblib"}
FORBIDDEN_CALLS = {
    "eval", "exec", "compile", "hasattr", "__import__",
    "torch.save", "torch.compile",
    "torch.manual_seed", "torch.seed", "torch.random.manual_seed", "torch.random.seed", "torch.set_rng_state",
    "torch.cuda.manual_seed", "torch.cuda.manual_seed_all", "torch.cuda.seed", "torch.cuda.seed_all",
    "np.random.seed", "numpy.random.seed", "torch.set_default_dtype", "torch.set_default_device",
    "torch.randn_like", "torch.rand_like", "torch.randint_like",
    "F.dropout", "nn.Dropout", "torch.nn.Dropout",
}  # fmt: skip
NEED_GENERATOR = re.compile(
    r"^torch\.(rand|randn|randint|randperm|normal|bernoulli|multinomial|poisson|binomial)$"
    r"|\.(normal_|uniform_|bernoulli_|exponential_|random_|cauchy_|log_normal_|geometric_|multinomial|bernoulli)$"
)
# Methods of our own or of other libraries that share a name with a drawing method of a tensor.
NOT_DRAWING = re.compile(r"^(torch\.distributions|scipy|stats|generator|rng)\.")


def violations(tree):
    """Everything in a syntax tree that no file of the package may do, as (line, what)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from import_violations(node)
        elif isinstance(node, ast.Call):
            yield from call_violations(node)


def import_violations(node):
    aliases = [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and aliases == ["UnpicklingError"]:
        return  # an error to catch, which unpickles nothing
    for name in [node.module or ""] if isinstance(node, ast.ImportFrom) else aliases:
        if name.split(".")[0] in FORBIDDEN_IMPORTS and not getattr(node, "level", 0):
            yield node.lineno, f"imports {name}"


def is_constant(node, value):
    return isinstance(node, ast.Constant) and node.value is value


def call_violations(node):
    name = ast.unparse(node.func)
    keywords = {keyword.arg: keyword.value for keyword in node.keywords}
    if name in FORBIDDEN_CALLS:
        yield node.lineno, f"calls {name}"
    if name in ("np.load", "numpy.load") and not is_constant(keywords.get("allow_pickle"), False):
        yield node.lineno, f"{name} without allow_pickle=False"
    if name == "torch.load" and not is_constant(keywords.get("weights_only"), True):
        yield node.lineno, "torch.load without weights_only=True"
    if re.match(r"(np|numpy)\.random\.(?!default_rng|Generator|SeedSequence|Philox|PCG64)", name):
        yield node.lineno, f"calls {name}, which reads the global generator"
    if NEED_GENERATOR.search(name) and not NOT_DRAWING.match(name) and "generator" not in keywords:
        yield node.lineno, f"{name} without generator="


@every(ALL_FILES)
def test_file_does_nothing_forbidden(path):
    assert list(violations(parsed(path))) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from random import choice",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "eval('1')",
        "torch.manual_seed(0)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "np.random.normal()",
        "torch.randn(3)",
        "weight.normal_(0, 1)",
        "probabilities.multinomial(3)",
    ],
)
def test_the_scan_sees(source):
    assert len(list(violations(ast.parse(source)))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "model.eval()",
        "np.load(path, allow_pickle=False)",
        "torch.load(path, weights_only=True)",
        "np.random.default_rng(0)",
        "torch.randn(3, generator=generator)",
        "weight.normal_(0, 1, generator=generator)",
        "torch.Generator().manual_seed(0)",
    ],
)
def test_the_scan_lets_pass(source):
    assert list(violations(ast.parse(source))) == []


# Docstrings and signatures


@every(OBJECTS)
def test_docstring_opens_with_one_sentence(value):
    docstring = own_docstring(value)
    assert docstring, "no docstring"
    first = docstring.splitlines()[0]
    assert first.endswith("."), f"the first line is not a sentence: {first!r}"
    assert not re.search(r"[.!?] [A-Z][a-z]+ ", first), f"more than one sentence: {first!r}"
    assert docstring.splitlines()[1:2] in ([], [""]), "a blank line must follow the first sentence"


@every(WITH_BEHAVIOUR)
def test_object_has_an_example(value):
    assert ">>> " in own_docstring(value), "no example that the tests run"


@every(FUNCTIONS)
def test_function_is_annotated(value):
    assert unannotated(value) == []


@every(CLASSES)
def test_methods_are_annotated(value):
    methods = {name: member for name, member in vars(value).items() if is_own_method(name, member)}
    assert {name: missing for name, method in methods.items() if (missing := unannotated(method))} == {}


def is_own_method(name, member):
    """Whether a public method was written in this package rather than generated for a dataclass or protocol."""
    if not isinstance(member, types.FunctionType) or (name.startswith("_") and name != "__init__"):
        return False
    return member.__code__.co_filename.startswith(str(PACKAGE))


def unannotated(function):
    signature = inspect.signature(function)
    missing = [
        name
        for name, parameter in signature.parameters.items()
        if parameter.annotation is inspect.Parameter.empty and name not in ("self", "cls")
    ]
    if signature.return_annotation is inspect.Signature.empty:
        missing.append("return")
    return missing


# Results


def resolved_return(function):
    # tables are imported on use
    return typing.get_type_hints(function, localns={"pd": pandas}).get("return")


OBJECTIVES = {
    name: value
    for name, value in FUNCTIONS.items()
    if name.startswith("unseam.objectives.") and "model" in inspect.signature(value).parameters
}


@every(OBJECTIVES)
def test_objective_names_its_terms(value):
    result = resolved_return(value)
    assert is_named_tuple(result)
    assert result._fields[:3] == ("loss", "reconstruction", "kl")


@every(OBJECTIVES)
def test_objective_takes_its_weights_by_name(value):
    parameters = inspect.signature(value).parameters.values()
    positional = [p.name for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    assert set(positional) <= {"model", "discriminator", "x", "noise", "keys"}


NUMERIC = {
    name: value
    for name, value in FUNCTIONS.items()
    if name.split(".")[1] in ("geometry", "independence", "metrics", "objectives", "theory")
}


@every(NUMERIC)
def test_numbers_come_back_with_names(value):
    result = resolved_return(value)
    assert not isinstance(result, type) or not issubclass(result, dict)
    assert typing.get_origin(result) not in (dict, tuple, list)


# Randomness


def random_states():
    _, keys, *position = np.random.get_state()  # noqa: NPY002
    return torch.random.get_rng_state().tolist(), random.getstate(), keys.tolist(), position


class RandomnessRunner(doctest.DocTestRunner):
    """Runs examples and notes each statement that moved a global generator."""

    # An example may build a module of the framework's own, which draws its weights globally.
    own_use = re.compile(r"\bnn\.[A-Z]")

    def __init__(self):
        super().__init__(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
        self.moved = []

    def report_start(self, out, test, example):
        self.before = random_states()

    def report_success(self, out, test, example, got):
        if random_states() != self.before and not self.own_use.search(example.source):
            self.moved.append(example.source.strip())


def moved_by(docstring, namespace):
    example = doctest.DocTestParser().get_doctest(docstring, dict(namespace), "example", None, None)
    runner = RandomnessRunner()
    runner.run(example, out=lambda text: None)
    return runner.moved


@each_example
def test_example_leaves_the_global_generators_alone(value):
    assert moved_by(own_docstring(value), vars(sys.modules[value.__module__])) == []


def test_the_runner_sees_a_global_draw():
    example = ">>> x = torch.zeros(2)\n>>> y = torch.randn(2)\n"
    assert moved_by(example, {"torch": torch}) == ["y = torch.randn(2)"]


# Precision: float64 in gives float64 out

F64 = {"dtype": torch.float64}


def tensors_in(result):
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, tuple):
        for part in result:
            yield from tensors_in(part)


def small_model(posterior="Diagonal", likelihood="Bernoulli"):
    """A double-precision VAE of 6 data dimensions and 2 latents."""
    from unseam import models

    posterior = getattr(models, posterior)(2)
    likelihood = getattr(models, likelihood)(*([5] if likelihood == "Binomial" else []))
    model = models.VAE(
        models.MLP(6, (4,), posterior.width, activation="tanh"),
        posterior,
        models.MLP(2, (4,), likelihood.output_shape((6,)), activation="tanh"),
        likelihood,
    ).double()
    models.initialise(model, generator=torch.Generator().manual_seed(0))
    return model


def x():
    return torch.rand(5, 6, generator=torch.Generator().manual_seed(1), **F64)


def z():
    return torch.randn(5, 2, generator=torch.Generator().manual_seed(2), **F64)


def objective(name, **weights):
    def call():
        return getattr(importlib.import_module("unseam.objectives"), name)(small_model(), x(), z(), **weights)

    return call


def factor_vae():
    from unseam import models, objectives

    discriminator = objectives.Discriminator(2, width=8, depth=2).double()
    models.initialise(discriminator, generator=torch.Generator().manual_seed(4))
    keys = torch.rand(5, 2, generator=torch.Generator().manual_seed(3), **F64)
    return objectives.factor_vae(small_model(), discriminator, x(), z(), keys, gamma=2.0)


def geometry(name):
    def call():
        return getattr(importlib.import_module("unseam.geometry"), name)(small_model().decoder, z())

    return call


def hadamard_gap():
    from unseam.geometry import hadamard_gap

    return hadamard_gap(torch.eye(2, **F64).expand(3, 2, 2) + 0.5)


def likelihood(name):
    def call():
        model = small_model(likelihood=name)
        output = model.decode(z())
        part = model.likelihood
        return (
            part.log_prob(x(), output),
            part.mean(output),
            part.variance(output),
            part.fisher_weight(output),
        )

    return call


def posterior(name):
    def call():
        model = small_model(posterior=name)
        moments = model.moments(x())
        part = model.posterior
        return moments, part.sample(moments, z()), part.kl(moments), part.variance(moments)

    return call


PRECISION = {
    "geometry.jacobian": geometry("jacobian"),
    "geometry.pullback": geometry("pullback"),
    "geometry.hadamard_gap": hadamard_gap,
    "objectives.beta_elbo": objective("beta_elbo", beta=2.0),
    "objectives.annealed_capacity": objective(
        "annealed_capacity", gamma=10.0, capacity=5.0, capacity_steps=10, step=3
    ),
    "objectives.beta_tcvae": objective("beta_tcvae", beta=2.0, size=20),
    "objectives.beta_tcvae (stratified)": objective("beta_tcvae", beta=2.0, size=20, sampling="stratified"),
    "objectives.factor_vae": factor_vae,
    "objectives.dip_vae (i)": objective("dip_vae", lambda_od=2.0, lambda_d=3.0, form="i"),
    "objectives.dip_vae (ii)": objective("dip_vae", lambda_od=2.0, lambda_d=3.0, form="ii"),
    "objectives.autoencoder": objective("autoencoder"),
    "objectives.deterministic_elbo": objective("deterministic_elbo", beta=2.0),
    "objectives.orthogonal_elbo": objective("orthogonal_elbo", beta=2.0, orthogonality=0.5),
    **{
        f"likelihoods.{name}": likelihood(name)
        for name in ("Gaussian", "PixelGaussian", "Bernoulli", "Binomial", "ContinuousBernoulli")
    },
    **{f"posteriors.{name}": posterior(name) for name in ("Diagonal", "Full", "Point")},
}


@pytest.mark.parametrize("call", PRECISION.values(), ids=PRECISION.keys())
def test_float64_in_gives_float64_out(call):
    results = list(tensors_in(call()))
    assert results
    assert {result.dtype for result in results} == {torch.float64}
    assert all(torch.isfinite(result).all() for result in results)


def test_every_objective_is_in_the_precision_table():
    covered = {name.split(" ")[0] for name in PRECISION}
    assert {name.removeprefix("unseam.") for name in OBJECTIVES} <= covered


# What newcomers read


def test_the_example_of_the_readme_runs(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, *_ = re.findall(r"```python\n(.*?)```", (root / "README.md").read_text("utf8"), re.DOTALL)
    assert "steps=4000" in code
    exec(code.replace("steps=4000", "steps=2"), {})
    assert (tmp_path / "runs" / "ten" / "weights.safetensors").exists()
    assert "--out runs/ten" not in (root / "README.md").read_text(
        "utf8"
    )  # the commands have a run of their own


@pytest.mark.slow
def test_the_example_of_the_readme_shows_what_it_claims(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, *_ = re.findall(r"```python\n(.*?)```", (root / "README.md").read_text("utf8"), re.DOTALL)
    exec(code, {})
    found = unseam.inspect(unseam.Run.open("runs/ten"))
    said = unseam.inspection.compare_members({str(member): one for member, one in found.items()})
    assert said == (
        "Of 10 models: axes nearly orthogonal in 10; posterior and decoder agree in 10; 2 latents active in each."
    )


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", ".ci/run"])
def test_every_make_target_that_is_named_exists(root, name):
    targets = set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text("utf8"), re.MULTILINE))
    commands = re.findall(r"^ *make .*", (root / name).read_text("utf8"), re.MULTILINE)
    named = {word for line in commands for word in line.split("#")[0].split()} - {"make"}
    assert named
    assert named <= targets


@every({page.name: page for page in PAGES})
def test_no_line_of_a_page_is_a_comment_by_accident(page):
    """Markdown of the documentation drops lines that begin with a per cent sign, such as wrapped percentages."""
    assert not [line for line in page.read_text().splitlines() if line.lstrip().startswith("%")]
