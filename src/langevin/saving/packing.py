"""The parts of a run as JSON and arrays, and back; only kinds that were made known are ever built."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any

import jax
import numpy as np

from langevin.target import Layout

PyTree = Any
Plain = Any

# Goes up whenever one of the kinds gains or loses a field, or changes what one means.
FORMAT = 9
_KINDS: dict[str, Any] = {}


def storable(*kinds: type) -> None:
    """Makes known what may be built from a file: dataclasses, named tuples and plain classes without secrets."""
    _KINDS.update({kind.__name__: kind for kind in kinds})


class Packer:
    """Objects as JSON; their arrays are put aside by path. What was met before is named again, not repeated.

    `seen`: paths of what is stored elsewhere already, by identity.
    """

    def __init__(self, seen: Mapping[int, str] | None = None) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self.seen: dict[int, str] = {} if seen is None else dict(seen)

    def plain(self, value: Any, path: str) -> Plain:
        """The JSON form: a tuple as a list, a dict as itself, all else as {"is": what it is, ...}."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if isfinite(value) else {"is": "float", "value": repr(value)}
        if type(value) is tuple:
            return [self.plain(item, f"{path}/{k}") for k, item in enumerate(value)]
        if type(value) is list:
            return {"is": "list", "items": self.plain(tuple(value), path)}
        if type(value) is dict:
            return {name: self.plain(item, f"{path}/{name}") for name, item in value.items()}
        if isinstance(value, Layout):
            return {"is": "layout"}
        if id(value) in self.seen:
            return {"is": "same", "as": self.seen[id(value)]}
        self.seen[id(value)] = path
        if isinstance(value, (np.ndarray, np.generic, jax.Array)):
            return self._array(value, path)
        if _KINDS.get(type(value).__name__) is not type(value):
            raise TypeError(f"no saved form is known for {path}, {type(value).__name__}")
        return {"is": type(value).__name__, **self.plain(_parts(value), path)}

    def _array(self, value: Any, path: str) -> Plain:
        self.arrays[path] = np.asarray(value)
        return {"is": "number" if isinstance(value, np.generic) else "array"}


class Unpacker:
    """Turns back what a `Packer` wrote."""

    def __init__(self, arrays: Mapping[str, np.ndarray], layout: Layout) -> None:
        self.arrays, self.layout = arrays, layout
        self.seen: dict[str, Any] = {}

    def made(self, plain: Plain, path: str) -> Any:
        """The object of a JSON form."""
        if isinstance(plain, list):
            return tuple(self.made(item, f"{path}/{k}") for k, item in enumerate(plain))
        if not isinstance(plain, dict):
            return plain
        kind = plain.get("is")
        if kind == "float":
            return float(plain["value"])
        if kind == "list":
            return list(self.made(plain["items"], path))
        if kind == "layout":
            return self.layout
        if kind == "same":
            return self.seen[plain["as"]]
        if kind == "number":
            self.seen[path] = self.arrays[path][()]
        elif kind == "array":
            self.seen[path] = self.arrays[path]
        else:
            parts = {name: self.made(item, f"{path}/{name}") for name, item in plain.items() if name != "is"}
            if kind is None:
                return parts
            self.seen[path] = _built(_KINDS[kind], parts)
        return self.seen[path]


def _parts(value: Any) -> dict[str, Any]:
    if is_dataclass(value):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    return dict(value._asdict() if hasattr(value, "_asdict") else vars(value))


def _built(kind: Any, parts: dict[str, Any]) -> Any:
    if is_dataclass(kind) or issubclass(kind, tuple):
        return kind(**parts)
    book = kind.__new__(kind)
    vars(book).update(parts)
    return book


def pack_layout(layout: Layout) -> dict[str, Plain]:
    """Names, shapes and containers of theta as JSON; the containers are "?" where only their own code builds them."""
    structure = _structure(layout.treedef)
    return {"names": layout.names, "shapes": layout.shapes, "order": layout.order, "structure": structure}


def unpack_layout(theta: dict[str, Plain], theta_0: PyTree) -> Layout:
    """The layout as it was saved; theta_0 stands in for containers that a file cannot hold, and must fit."""
    names, shapes = tuple(theta["names"]), tuple(tuple(shape) for shape in theta["shapes"])
    known = theta["structure"] != "?"
    if theta_0 is not None:
        layout = Layout.of(theta_0)
        alike = not known or _structure(layout.treedef) == theta["structure"]
        if not alike or layout.shapes != shapes or layout.names != names:
            raise ValueError(
                f"theta_0 must have the structure of the saved run's theta, arrays of shapes {shapes} with elements "
                f"{', '.join(names[:3])} ..., got shapes {layout.shapes} and {', '.join(layout.names[:3])} ..."
            )
        return layout
    if not known:
        raise ValueError(
            f"theta_0 must be given: theta ({', '.join(names[:3])} ...) is made of containers that a file cannot hold. "
            f"Pass any theta of the same structure: lv.load(path, theta_0=...)."
        )
    return Layout(jax.tree.structure(_tree(theta["structure"])), shapes, names, tuple(theta["order"]))


def _structure(treedef: Any) -> Plain:
    """Nested dict, list, tuple and None as JSON, "*" for an array, "?" if there is any other container."""
    if treedef.node_data() is None:
        return "*"
    kind, keys = treedef.node_data()
    children = [_structure(child) for child in treedef.children()]
    if kind is type(None):
        return None
    if "?" not in children and kind in (list, tuple):
        return [kind.__name__, *children]
    if "?" not in children and kind is dict and all(type(key) in (str, int) for key in keys):
        return ["dict", *([key, child] for key, child in zip(keys, children, strict=True))]
    return "?"


def _tree(structure: Plain) -> PyTree:
    """A pytree of these containers with a number in place of every array."""
    if structure is None:
        return None
    if structure == "*":
        return 0
    kind, *children = structure
    if kind == "dict":
        return {key: _tree(child) for key, child in children}
    return (tuple if kind == "tuple" else list)(_tree(child) for child in children)
