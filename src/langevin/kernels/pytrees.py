"""Parts as arguments of compiled functions: what JAX must be told of them so that programs are never mixed up."""

from dataclasses import dataclass, field
from typing import Any

import jax


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Static:
    """A user's part that JAX does not know as a pytree: compiled code depends on it as a whole."""

    part: Any = field(metadata={"static": True})

    def __getattr__(self, name: str) -> Any:
        return getattr(self.part, name)


def as_pytree(part: Any) -> Any:
    """The part itself if JAX knows it as a pytree, else a pytree without leaves that stands for it."""
    leaves = jax.tree.leaves(part)
    # Not ==, which asks a kernel whose one field is an array for the truth of an array.
    return _Static(part) if len(leaves) == 1 and leaves[0] is part else part


def kinds(tree: Any) -> tuple[type, ...]:
    """Types of the nodes of a pytree. A compiled function of parts must have them among its static arguments.

    JAX 0.10 takes structures of registered dataclasses with the same fields for equal, whatever their class, and only
    their hashes differ: now and then a cache would hand out the program of SGLD for LeimkuhlerMatthews.
    """

    def of(structure: Any) -> tuple[type, ...]:
        node = structure.node_data()
        own = () if node is None else (node[0],)
        return own + tuple(kind for child in structure.children() for kind in of(child))

    return of(jax.tree.structure(tree))
