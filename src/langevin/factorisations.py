"""Batched factorisations of matrices one after the other: XLA's own way can wait for ever.

On the CPU jaxlib spreads a large batch over XLA's threads, and waits for them on one of these threads. Where as many
factorisations as there are threads begin at once, none is left to do the work: on two cores the gradients of
a few Gaussian processes at 64 points end so within forty calls. A batch that is small enough for jaxlib to do in one
piece, or a single matrix however large, waits for nobody; so that larger batches are taken apart, to the same bits,
in what langevin compiles. Programs of the user's own are left as they are.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import jax
from jax._src.interpreters import mlir  # JAX has no public way to see how a primitive is lowered
from jax._src.lax import linalg

# Floating-point operations from which on jaxlib divides a batch, and a bound on those of one matrix, over its longer
# side cubed: the dearest, eigenvalues of a general matrix, take 25.
_DIVIDED, _DEAREST = 200_000, 30
_NAMES = (
    "cholesky", "eig", "eigh", "geqp3", "geqrf", "hessenberg", "householder_product", "lu", "ormqr", "schur",
    "triangular_solve", "tridiagonal", "tridiagonal_solve",
)  # fmt: skip
_inside = threading.local()


@contextmanager
def one_by_one() -> Iterator[None]:
    """What this thread compiles inside has its batched factorisations taken apart."""
    before = getattr(_inside, "value", False)
    _inside.value = True
    try:
        yield
    finally:
        _inside.value = before


def _taken_apart(primitive: Any, rule: Any) -> Any:
    def lowered(ctx: Any, *operands: Any, **params: Any) -> Any:
        shape = max((aval.shape for aval in ctx.avals_in), key=len)
        batch, count = shape[:-2], prod(shape[:-2])
        together = int(max(_DIVIDED // (_DEAREST * max(*shape[-2:], 1) ** 3), 1))
        if not getattr(_inside, "value", False) or count <= together:
            return rule(ctx, *operands, **params)

        def apart(*arrays: Any) -> Any:
            flat = [array.reshape(count, *array.shape[len(batch) :]) for array in arrays]
            found = jax.lax.map(
                lambda one: primitive.bind(*one, **params), flat, batch_size=together if together > 1 else None
            )
            return jax.tree.map(lambda part: part.reshape(*batch, *part.shape[1:]), found)

        return mlir.lower_fun(apart, multiple_results=primitive.multiple_results)(ctx, *operands)

    return lowered


for _name in _NAMES:
    _primitive: Any = getattr(linalg, f"{_name}_p")
    _entry: Any = mlir._platform_specific_lowerings["cpu"][_primitive]
    mlir.register_lowering(_primitive, _taken_apart(_primitive, _entry.rule), platform="cpu", inline=_entry.inline)
