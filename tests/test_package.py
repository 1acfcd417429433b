"""The distribution: what a wheel holds, and that the package's metadata name it right."""

import subprocess
import sys
import tomllib
import zipfile

import pytest


@pytest.fixture(scope="module")
def names(root, tmp_path_factory):
    """Names of the files in the wheel, built without a network."""
    pytest.importorskip("hatchling", reason="the build backend is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=root, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return archive.namelist()


@pytest.mark.parametrize("name", ["unseam/py.typed", "unseam/data/digits.npy", "unseam/explore/widget.js"])
def test_the_wheel_holds_what_the_package_reads(names, name):
    assert name in names


def test_the_wheel_holds_every_module_and_no_test(names, root):
    modules = {str(path.relative_to(root / "src")) for path in (root / "src/unseam").rglob("*.py")}
    assert modules <= set(names)
    assert not [name for name in names if name.startswith(("tests", "tools", "benchmarks"))]


def test_core_needs_no_extra(root):
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    core = " ".join(project["dependencies"])
    for heavy in ("nicegui", "ray", "playwright", "anywidget", "sphinx"):
        assert heavy not in core
