"""The list of studies, and which of them share runs."""

import ast
import importlib
from pathlib import Path
from types import ModuleType

# Studies of one group share parts, so one process works through them in this order. Long groups come first.
GROUPS: tuple[tuple[str, ...], ...] = (
    ("fig5", "fig6"),
    ("fig1", "fig2", "fig3"),
    ("fig4",),
    ("clt",),
    ("consistency",),
    ("stability",),
    ("diffusion_limit",),
)
NAMES = ("fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "consistency", "stability", "clt", "diffusion_limit")


def study(name: str) -> ModuleType:
    """The module of that name."""
    return importlib.import_module(f"langevin.paper.{name}")


def title(name: str) -> str:
    """The first line of the module's docstring, read without importing it: a list needs no plotting library."""
    source = Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or name).splitlines()[0]
