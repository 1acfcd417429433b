"""One reference page for each room of the package, written from what is there."""

import re
from pathlib import Path

ROOMS = (
    "choices", "data", "models", "objectives", "training", "subject", "run", "geometry", "inspection", "independence",
    "metrics", "theory", "papers", "sweep", "charts", "report", "explore", "adapters",
)  # fmt: skip

PAGE = """# `unseam.{room}`

```{{eval-rst}}
.. automodule:: unseam.{room}
   :members:
   :show-inheritance:
```
"""


def write_pages(app):
    package = Path(app.srcdir).parent / "src" / "unseam"
    folder = Path(app.srcdir) / "api" / "generated"
    folder.mkdir(parents=True, exist_ok=True)
    pages = {
        f"{position}-{room}.md": PAGE.format(room=room)
        for position, room in enumerate(ROOMS, 10)
        if (package / room / "__init__.py").exists() or (package / f"{room}.py").exists()
    }
    for stale in set(path.name for path in folder.iterdir()) - pages.keys():
        (folder / stale).unlink()
    for name, text in pages.items():
        if not (folder / name).exists() or (folder / name).read_text("utf8") != text:
            (folder / name).write_text(text, "utf8")


SHAPE_STAR = re.compile(r"(?<=[(\s])\*(?=\w)(?!\w+\*)")


def escape_shapes(app, what, name, value, options, lines):
    """A shape such as (batch, *data) is written without an escape, but is no emphasis."""
    for position, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            parts = line.split("``")
            parts[::2] = [SHAPE_STAR.sub(r"\\*", part) for part in parts[::2]]
            lines[position] = "``".join(parts)


def skip_aliases(app, what, name, value, skip, options):
    """The fields of a NamedTuple stand in its signature; what Python generates for each says no more."""
    return True if str(value.__doc__ or "").startswith("Alias for field number") else None


def setup(app):
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-process-docstring", escape_shapes, priority=400)
    app.connect("autodoc-skip-member", skip_aliases)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
