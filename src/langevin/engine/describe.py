"""Any part of a run in words that another process finds too: what files remember of parts, functions included."""

import functools
import types
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple
from zlib import crc32

import jax
import jax.numpy as jnp
import numpy as np

from langevin.target import Layout


class Words(NamedTuple):
    """What a file remembers of a part."""

    text: str

    def __repr__(self) -> str:
        return self.text


def describe(part: Any) -> str:
    """The part by its content: arrays by checksums, functions by their code and what they close over.

    Of a user's own class the name and the attributes count, not its methods.
    """
    return _Describer().of(part)


class _Describer:
    def __init__(self) -> None:
        # Functions may close over themselves.
        self.within: set[int] = set()

    def of(self, part: Any) -> str:
        if isinstance(part, Words):
            return part.text
        if part is None or isinstance(part, (bool, int, float, str, bytes)):
            return repr(part)
        if id(part) in self.within:
            return "..."
        self.within.add(id(part))
        try:
            return self._content(part)
        finally:
            self.within.remove(id(part))

    def _content(self, part: Any) -> str:
        if isinstance(part, types.ModuleType):
            return part.__name__
        if isinstance(part, jax.Array) and jnp.issubdtype(part.dtype, jax.dtypes.prng_key):
            return f"{part.dtype} {self.of(jax.random.key_data(part))}"
        if isinstance(part, (np.ndarray, np.generic, jax.Array)):
            array = np.ascontiguousarray(part)
            if not array.ndim or array.size == 1:
                return f"{array.dtype} {array.tolist()}"
            return f"{array.dtype} {array.shape} (checksum {crc32(array.tobytes()):08x})"
        if isinstance(part, Layout):
            return ", ".join(part.names)
        if isinstance(part, (tuple, list, set, frozenset)) and not hasattr(part, "_asdict"):
            items = [self.of(item) for item in part]
            return f"({', '.join(sorted(items) if isinstance(part, (set, frozenset)) else items)})"
        if isinstance(part, dict):
            return f"{{{', '.join(f'{self.of(name)}: {self.of(value)}' for name, value in part.items())}}}"
        if isinstance(part, types.CodeType):
            names = (part.co_names, part.co_varnames, part.co_freevars)
            code = part.co_code + repr(names).encode() + self.of(part.co_consts).encode()
            return f"{crc32(code):08x}"
        if isinstance(part, types.FunctionType):
            cells = tuple(cell.cell_contents for cell in part.__closure__ or ())
            held = self.of((part.__code__, part.__defaults__, part.__kwdefaults__, cells))
            return f"{part.__qualname__} (checksum {crc32(held.encode()):08x})"
        if isinstance(part, types.MethodType):
            return f"{self.of(part.__func__)} of {self.of(part.__self__)}"
        if isinstance(part, functools.partial):
            return f"{self.of(part.func)} with {self.of((part.args, part.keywords))}"
        if isinstance(getattr(part, "__wrapped__", None), types.FunctionType):
            return self.of(part.__wrapped__)
        if isinstance(part, type | types.BuiltinFunctionType | np.ufunc):
            return getattr(part, "__qualname__", part.__name__)
        return f"{type(part).__qualname__}({', '.join(f'{k}={self.of(v)}' for k, v in _attributes(part).items())})"


def _attributes(part: Any) -> dict[str, Any]:
    if is_dataclass(part):
        return {one.name: getattr(part, one.name) for one in fields(part)}
    if hasattr(part, "_asdict"):
        return dict(part._asdict())
    return dict(getattr(part, "__dict__", {}))
