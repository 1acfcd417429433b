"""The rooms open one way, and the front door is light."""

import shutil
import subprocess
import sys

import pytest

ROOMS = (
    "data", "models", "objectives", "training", "sweep", "papers", "adapters", "report", "explore",
    "geometry", "independence", "theory", "metrics",
)  # fmt: skip


def lint_imports(folder, source):
    """Run the contracts of pyproject.toml in ``folder`` on the package under ``source``."""
    pytest.importorskip("importlinter")
    command = "from importlinter.cli import lint_imports_command as main; main()"
    return subprocess.run(
        [sys.executable, "-c", command, "--no-cache"],
        cwd=folder,
        env={"PATH": "", "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def house(tmp_path, root):
    """An empty house with every room, under the same contracts as the real one."""
    shutil.copy(root / "pyproject.toml", tmp_path)
    for room in ROOMS:
        (tmp_path / "src" / "unseam" / room).mkdir(parents=True)
        (tmp_path / "src" / "unseam" / room / "__init__.py").touch()
    (tmp_path / "src" / "unseam" / "cli.py").touch()
    (tmp_path / "src" / "unseam" / "__init__.py").touch()
    return tmp_path


def test_every_import_of_the_package_goes_down(root):
    result = lint_imports(root, root / "src")
    assert result.returncode == 0, result.stdout + result.stderr


def test_empty_house_keeps_the_contracts(house):
    result = lint_imports(house, house / "src")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    "room, allowed",
    [("independence", "geometry"), ("objectives", "geometry"), ("models", "theory"), ("papers", "sweep")],
)
def test_open_door(house, room, allowed):
    (house / "src" / "unseam" / room / "__init__.py").write_text(f"import unseam.{allowed}\n")
    assert lint_imports(house, house / "src").returncode == 0


@pytest.mark.parametrize(
    "room, forbidden",
    [
        ("data", "models"),
        ("models", "objectives"),
        ("objectives", "training"),
        ("training", "papers"),
        ("papers", "report"),
        ("report", "cli"),
        ("geometry", "models"),
        ("geometry", "theory"),
        ("theory", "metrics"),
        ("metrics", "independence"),
        ("independence", "metrics"),
        ("independence", "data"),
    ],
)
def test_closed_door(house, room, forbidden):
    (house / "src" / "unseam" / room / "__init__.py").write_text(
        "from typing import TYPE_CHECKING\n"
        f"if TYPE_CHECKING:\n    import unseam.{forbidden}\n"  # even a door for types only
    )
    result = lint_imports(house, house / "src")
    assert result.returncode == 1
    assert f"unseam.{room} -> unseam.{forbidden}" in result.stdout


def test_a_new_room_must_be_given_its_place(house):
    (house / "src" / "unseam" / "attic.py").touch()
    result = lint_imports(house, house / "src")
    assert result.returncode == 1
    assert "attic" in result.stdout


def modules_after(statement, root):
    code = f"{statement}; import sys; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": "", "PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return set(result.stdout.split())


@pytest.mark.parametrize(
    "statement", ["import unseam", "import unseam; unseam.Trial", "import unseam.cli"], ids=str
)
def test_front_door_costs_no_torch(statement, root):
    heavy = {"torch", "numpy", "pandas", "matplotlib", "sklearn", "scipy"}
    assert not heavy & modules_after(statement, root)


def test_inspecting_loads_nothing_that_it_does_not_use(root):
    decoder = "torch.nn.Sequential(torch.nn.Linear(2, 9), torch.nn.Tanh(), torch.nn.Linear(9, 5))"
    loaded = modules_after(f"import torch, unseam; unseam.inspect({decoder}, torch.randn(9, 2))", root)
    assert not {"torch._dynamo", "sympy", "pandas", "sklearn", "scipy", "matplotlib", "rich"} & loaded


def test_reports_load_scipy_on_use(root):
    assert not {"scipy", "sklearn"} & modules_after("import unseam.report", root)


def test_front_door_opens_on_demand(root):
    assert "torch" in modules_after("import unseam; unseam.data", root)


def test_front_door_lists_what_it_offers():
    import unseam

    assert set(unseam.__all__) <= set(dir(unseam))
    with pytest.raises(AttributeError, match="module 'unseam' has no attribute 'undata'"):
        unseam.undata
