"""`lv.laplace`: picks by size how to find the mode and how much of the curvature there to keep."""

from typing import Any

import jax
import numpy as np

from langevin.anchor.approximation import Anchor
from langevin.anchor.curvature import Curvature, inverse_root, positive_root
from langevin.anchor.large import chord, climb
from langevin.anchor.newton import EXACT, NEAR, Point, newton
from langevin.anchor.passes import Passes
from langevin.anchor.roots import pull
from langevin.anchor.wide import wide_anchor
from langevin.data.source import as_source
from langevin.errors import AnchorError
from langevin.limits import set_up
from langevin.precision import apart
from langevin.startup import own_programs
from langevin.target import Layout, Target, arithmetic, numbers

PyTree = Any
# A dense Hessian beyond so many parameters, or so many products (two minutes on two cores), costs more than it gives.
_MOST_DENSE, _MOST_PRODUCTS = 5000, 3e12
# Newton steps take a Hessian and its eigenvectors (d^3) each. Beyond so many parameters climbs that take one are
# quicker, and beyond fewer where a Hessian has so many products: a second on two cores. Of fewer still, the curvature
# of some rows serves all but the last step.
_MOST_NEWTON, _FEW_PARAMETERS, _NEWTON_PRODUCTS = 500, 64, 1e10
_SUBSAMPLE, _ROWS_PER_PARAMETER = 10_000, 50
# Large groups are fewer: so many numbers, but enough groups to tell how much they differ.
_MOST_NUMBERS, _FEWEST_GROUPS = 2**25, 256
# Float64 itself cannot place a point within a standard deviation this small next to its value.
_RESOLVED = 1e-11


@set_up()
def laplace(target: Target, data: PyTree, theta_0: PyTree, *, max_steps: int = 100, seed: int = 0) -> Anchor:
    """The posterior mode and the Laplace approximation there, in float64; the method is picked by size.

    Up to 500 parameters: damped Newton steps (H + damping) s = grad, first on a random subsample when N is large, and
    the dense curvature; where data are very many, H is that of the subsample but for the last step, see `large.chord`.
    Ends at the float32 number nearest the mode, on large data within 1e-3 posterior standard deviations of it. Up to
    5000, or where Hessians are dear: L-BFGS in the units of a subsample's Hessian, and one Hessian of all the data at
    the end, see `large.climb`. Beyond, or where that is not positive definite: L-BFGS, started by Adam on minibatches
    when N d > 1e8, and curvature by blocks, see `wide_anchor`. Cost: one full pass a Newton step, about 5 from theta_0
    and 4 after a subsample; some 20 passes with many parameters; d^2 memory. `seed` draws the subsamples.

    Raises `AnchorError` when there is no proper mode or no curvature at it. A mode that was not reached is an anchor
    with `converged` False.

    Example:
        >>> import jax.numpy as jnp, numpy as np, langevin as lv
        >>> anchor = lv.laplace(lv.Target(lambda t: -2.0 * jnp.sum((t - 1.0) ** 2)), None, np.zeros(3))
        >>> anchor.theta, anchor.sd
        (array([1., 1., 1.]), array([0.5, 0.5, 0.5]))
    """
    if not isinstance(target, Target):
        raise ValueError(f"target must be an lv.Target, got {target!r}. Wrap it: lv.Target(log_prior, log_likelihood).")
    if max_steps < 1:
        raise ValueError(f"max_steps must be at least 1, got {max_steps}. Leave it at 100.")
    layout = Layout.of(theta_0)
    source = None if data is None else as_source(data)
    flat = layout.flat(theta_0)
    twin = apart(target)
    num_data = 1 if source is None else source.num_data
    with own_programs(), jax.enable_x64(True):
        twin.check(theta_0, None if source is None else source.arrays)
        found = None
        if layout.size <= _MOST_DENSE and num_data * layout.size**2 <= _MOST_PRODUCTS:
            found = _dense(twin, source, layout, flat, max_steps, seed)
        return found or wide_anchor(twin, source, layout, flat, max_steps, np.random.default_rng(seed))


@set_up()
def rough(target: Target, source: Any, theta_0: PyTree) -> Anchor:
    """Where there is no mode: theta_0, and the curvature there, made positive. It counts as not converged.

    Cost: one pass; d^2 memory.
    """
    layout, twin = Layout.of(theta_0), apart(target)
    flat = layout.flat(theta_0).astype(np.float32).astype(np.float64)
    with own_programs(), jax.enable_x64(True):
        passes = Passes(twin, source, layout)
        point = Point.at(passes, flat)
    precision = Curvature.of(point.precision).tamed()
    root = inverse_root(precision)
    return Anchor(
        theta=flat,
        root=(root,),
        covariance=root @ root.T,
        precision=precision,
        likelihood_grad=None,
        likelihood_hessian=None,
        layout=layout,
        cost=passes.cost,
        gradient_norm=np.inf,
        positive=False,
    )


def _dense(target: Target, source: Any, layout: Layout, flat: np.ndarray, max_steps: int, seed: int) -> Anchor | None:
    """The anchor with all of its curvature; None where many parameters have no positive definite Hessian."""
    passes = Passes(target, source, layout)
    # A group that quadrature goes through many times costs more than a product with each parameter.
    each = 1 if source is None else arithmetic(target.log_likelihood, source.arrays)
    many = layout.size > _FEW_PARAMETERS or each > layout.size
    products = passes.num_rows * layout.size * max(layout.size, each)
    if layout.size > _MOST_NEWTON or (many and products > _NEWTON_PRODUCTS):
        point = climb(passes, source, flat, max_steps, np.random.default_rng(seed))
        if point is not None or layout.size > _MOST_NEWTON:
            return None if point is None else _anchor_at(point, passes, source is not None)
    first = None if source is None else _subsample(passes, source, seed)
    if first is not None:
        some = _near(first, flat, max_steps)
        passes.cost += first.cost
        if some is not None:
            point = chord(passes, some, max_steps) if products > _NEWTON_PRODUCTS else None
            if point is not None:
                return _anchor_at(point, passes, True)
            flat = some.flat
    point = newton(passes, flat, max_steps, EXACT if first is None else NEAR)
    rounded = point.flat.astype(np.float32).astype(np.float64)
    if not np.array_equal(rounded, point.flat):
        point = Point.at(passes, rounded)
    return _anchor_at(point, passes, source is not None)


def _subsample(passes: Passes, source: Any, seed: int) -> Passes | None:
    """Random rows of large data on which to start, None where all the data cost little more."""
    # Whole chunks: the functions compiled for all the data serve the subsample too.
    chunk = passes.whole_chunk
    wanted = max(_SUBSAMPLE, _ROWS_PER_PARAMETER * passes.layout.size)
    affordable = max(_MOST_NUMBERS // numbers(passes.target.log_likelihood, source.arrays), _FEWEST_GROUPS)
    size = chunk * -(-min(wanted, affordable) // chunk)
    if source.num_data < 4 * size:
        return None
    rows = np.sort(np.random.default_rng(seed).choice(source.num_data, size, replace=False, shuffle=False))
    return Passes(passes.target, source, passes.layout, rows)


def _near(few: Passes, flat: np.ndarray, max_steps: int) -> Point | None:
    """The mode of a subsample, None where it has none: all the data have the last word."""
    try:
        return newton(few, flat, max_steps, NEAR)
    except AnchorError:
        return None


def _anchor_at(point: Point, passes: Passes, has_data: bool) -> Anchor:
    precision, layout = point.precision, passes.layout
    root = positive_root(precision) if point.finite else None
    if root is None:
        raise AnchorError(
            "the posterior mode cannot be written in float32: rounded, it has no positive definite Hessian. A log "
            "density that grows without bound looks so (constant data, a standard deviation that can reach 0); "
            "rescale the parameters, or use a proper prior.",
            improper=True,
        )
    sd = np.sqrt(np.sum(root**2, axis=1))
    narrow = np.argmin(sd / np.maximum(np.abs(point.flat), 1e-300))
    if sd[narrow] < _RESOLVED * abs(point.flat[narrow]):
        raise AnchorError(
            f"the posterior mode is at {layout.names[narrow]} = {point.flat[narrow]:.6g} with a standard deviation of "
            f"only {sd[narrow]:.3g}: the log density seems to grow without bound (constant data, a standard deviation "
            f"that can reach 0). Use a proper prior, or rescale the parameter.",
            improper=True,
        )
    return Anchor(
        theta=point.flat,
        root=(root,),
        covariance=root @ root.T,
        precision=precision,
        likelihood_grad=point.likelihood[1] if has_data else None,
        likelihood_hessian=point.likelihood[2] if has_data else None,
        layout=layout,
        cost=passes.cost,
        gradient_norm=float(np.linalg.norm(pull((root,), point.grad))),
    )
