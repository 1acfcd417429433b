"""Equations as MathML, made at build time: browsers draw it themselves, so no script is needed."""

import re

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

logger = logging.getLogger(__name__)

# Where TeX and the converter read differently: TeX takes \tfrac12 for one half, the converter needs the braces.
RULES = (
    (re.compile(r"(\\[td]?frac)\s*(\d)\s*(\d)"), r"\1{\2}{\3}"),
    (re.compile(r"(\\[td]?frac)\s*(\d)\s*(\\[a-zA-Z]+|[a-zA-Z])"), r"\1{\2}{\3}"),
    (re.compile(r"\\dots\b"), r"\\ldots"),
    (re.compile(r"\\textstyle\b|\\Big(?![a-z])"), ""),
)


def convert(node, *, block):
    source = node.astext()
    for pattern, replacement in RULES:
        source = pattern.sub(replacement, source)
    try:
        return tex2mathml(source, as_block=block)
    except MathError as error:
        logger.warning("equation %r is beyond the converter: %s", source, error, location=node)
        return f"<code>{node.astext()}</code>"


def visit_inline(self, node):
    self.body.append(convert(node, block=False))
    raise nodes.SkipNode


def visit_block(self, node):
    number = f'<span class="eqno">({node["number"]})</span>' if node.get("number") else ""
    self.body.append(f'<div class="math">{number}{convert(node, block=True)}</div>')
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
