"""Formulas as MathML, which browsers draw themselves: no script, and no address that a page would have to reach."""

from docutils.nodes import SkipNode
from docutils.utils.math.latex2mathml import tex2mathml


def inline(translator, node):
    translator.body.append(tex2mathml(node.astext()))
    raise SkipNode


def block(translator, node):
    translator.body.append(tex2mathml(node.astext(), as_block=True))
    raise SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
