"""Docstrings of this library are plain text with formulas; here they become reStructuredText that means the same.

A paragraph that is indented, laid out in columns by runs of spaces, or begins as an equation is shown as it stands;
lines that all begin with a name and a colon are a list. `Example:` introduces a session. All else is prose: what stands
between backticks is code, and no other character has a meaning of its own.
"""

import re
from textwrap import dedent, indent

COLUMNS = re.compile(r"(?<![.!?])\S {2,}\S")
EQUATION = re.compile(r"[^\s`]+ = ")
ITEM = re.compile(r"(\w+): +(.*)")
CODE = re.compile(r"(`[^`]+`)")
# Characters that reStructuredText would read as emphasis, references or substitutions.
SPECIAL = re.compile(r"([\\*_|<>`])")


def converted(text):
    """The docstring, already without its common indentation, as reStructuredText."""
    return "\n\n".join(paragraph(part) for part in re.split(r"\n\s*\n", text.strip("\n")))


def paragraph(text):
    first, _, rest = text.partition("\n")
    if first == "Example:":
        # A session ends at a blank line, and every part of it may begin with one more.
        return ".. rubric:: Example\n\n" + dedent(rest)
    if first.startswith("    ") and ">>>" in first:
        return dedent(text)
    items = [ITEM.fullmatch(line) for line in text.splitlines()]
    if all(items):
        return "\n".join(f"- ``{item[1]}``: {prose(item[2])}" for item in items)
    columns = any(COLUMNS.search(line) for line in text.splitlines())
    if first.startswith(" ") or columns or EQUATION.match(first):
        return "::\n\n" + indent(dedent(text), "    ")
    lines = prose(text).splitlines()
    if not first.startswith("- "):
        return "\n".join(lines)
    # Further lines of an item may stand under its dash.
    return "\n".join(line if line.startswith("- ") else f"  {line.strip()}" for line in lines)


def prose(text):
    pieces = CODE.split(text)
    return "".join(code(piece) if CODE.fullmatch(piece) else SPECIAL.sub(r"\\\1", piece) for piece in pieces)


def code(text):
    # The escaped space ends the literal where a letter follows at once, as in a plural.
    return "``" + " ".join(text[1:-1].split()) + "``\\ "


def process(app, what, name, obj, options, lines):
    lines[:] = [*converted("\n".join(lines)).split("\n"), ""]


def leave_out(app, what, name, obj, skip, options):
    """Members that come from other libraries are theirs to document."""
    return True if not (getattr(obj, "__module__", None) or "langevin").startswith("langevin") else None


def setup(app):
    app.connect("autodoc-process-docstring", process)
    app.connect("autodoc-skip-member", leave_out)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
