"""Configuration of the documentation: warnings are errors, and nothing is fetched when a page is read."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "src"
sys.path[:0] = [str(HERE / "_ext"), str(SOURCE)]
os.environ["PYTHONPATH"] = str(SOURCE)  # for the kernels that run the pages' code
os.environ.setdefault("OMP_NUM_THREADS", "1")

import unseam  # noqa: E402

project = "unseam"
author = "the unseam authors"
copyright = "2026, the unseam authors"
version = release = unseam.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "mathml",
    "rooms",
]
exclude_patterns = ["_build", "_ext", "pages", "jupyter_execute", "**.ipynb_checkpoints"]
# Many results have a field of the same name, such as points: a name alone is linked to one of them.
suppress_warnings = ["mystnb.unknown_mime_type", "ref.python"]

html_theme = "furo"
html_title = f"unseam {release}"
html_static_path = ["_static"]
html_extra_path = ["pages"]
html_css_files = ["house.css"]
html_math_renderer = "mathml"

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
myst_update_mathjax = False

# Pages with code cells are small, and run whenever they are built: what they show is what the code does.
nb_execution_mode = "auto"
nb_execution_timeout = 120
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
nb_ipywidgets_js = {}

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def setup(app):
    app.connect("source-read", read_benchmarks)


def read_benchmarks(app, page, source):
    """The page of benchmarks is the table that they write themselves, once there is one."""
    table = HERE.parent / "benchmarks" / "README.md"
    if page == "benchmarks" and table.exists():
        source[0] = table.read_text("utf8")
