"""What float32 does to a posterior: gradients as chains see them, beside the same in float64."""

from typing import Any

import jax
import numpy as np

from langevin.anchor import Anchor
from langevin.anchor.roots import pull, push
from langevin.data.source import DataSource
from langevin.limits import set_up
from langevin.pilot import sizes
from langevin.precision import apart, for_float32
from langevin.rows import derivatives, remainder
from langevin.startup import own_programs
from langevin.target import Target

PyTree = Any

_STREAM = 0x524F554E
# Groups of draws, each with rows of its own.
_GROUPS = 4


@set_up()
def rounding_error(target: Target, source: DataSource | None, anchor: Anchor, seed: int) -> np.ndarray:
    """How far float32 moves means and sds, in posterior sds: (2, 2, d), of runs on minibatches, and of exact ones.

    A log likelihood that subtracts large numbers of nearly the same size (log-gamma functions, most often) loses digits
    in float32, in all rows alike, and no spread between batches shows it. With e(theta) the float32 gradient less the
    float64 one, a mean moves by Sigma E[e] and an sd by E[u (Sigma e)] / (2 sd^2), u = theta - anchor. Control variates
    subtract a float32 gradient at the anchor and add one in float64, so that e(anchor) counts for them, and not for
    exact runs. What is seen on a few hundred rows is counted as far as it is beyond two of its standard errors. Zero
    without a mode and the whole Hessian there. Cost: 1000 rows or so, at a few dozen points.
    """
    d = anchor.layout.size
    if not (anchor.dense and anchor.converged):
        return np.zeros((2, 2, d))
    _, _, draws, rows = sizes(target, source, anchor)
    rng = np.random.default_rng([seed, _STREAM])
    num_data = 0 if source is None else source.num_data
    narrow, wide = for_float32(target), apart(target)
    of_prior, of_rows = [], []
    for _ in range(_GROUPS):
        half = rng.standard_normal((draws // 2, d))
        # Points that float32 has: what it does to theta itself is another matter.
        points = (anchor.theta + push(anchor.root, np.concatenate([half, -half]))).astype(np.float32)
        u = points.astype(np.float64) - anchor.theta
        batch = None if source is None else source.take(rng.choice(num_data, rows, replace=False, shuffle=False))
        (prior, terms), (prior_32, terms_32) = (
            _at(one, anchor, points, u, batch, dtype) for one, dtype in ((wide, np.float64), (narrow, np.float32))
        )
        of_prior.append(_moved(prior, prior_32, u, anchor))
        if batch is not None:
            of_rows.append(_moved(terms, terms_32, u[:, None], anchor))
    error, spread = np.mean(of_prior, axis=0), 0.0
    if of_rows:
        each = num_data * np.concatenate(of_rows, axis=-2)
        error = error + each.mean(axis=-2)
        unseen = 1.0 - rows / num_data
        spread = np.sqrt(unseen * each.var(axis=-2, ddof=1) / each.shape[-2]) if rows > 1 else np.inf
    return np.nan_to_num(np.maximum(np.abs(error) - 2.0 * spread, 0.0), posinf=0.0)


def _at(
    target: Target, anchor: Anchor, points: np.ndarray, u: np.ndarray, batch: PyTree, dtype: Any
) -> tuple[list, list]:
    """Derivatives of prior and rows at the points, and at the anchor along u, in one precision."""
    centre, still = np.broadcast_to(anchor.theta, u.shape).astype(dtype), np.zeros(u.shape, dtype)
    places, along = np.concatenate([points.astype(dtype), centre]), np.concatenate([still, u.astype(dtype)])
    with own_programs(), jax.enable_x64(dtype == np.float64), np.errstate(all="ignore"):
        return derivatives(target, anchor.layout, places, along, batch)


def _moved(wide: list, narrow: list, u: np.ndarray, anchor: Anchor) -> np.ndarray:
    """Means over the draws of what the difference of two precisions does to means and sds, (2, 2, [rows,] d)."""
    parts = [[np.asarray(part, np.float64) for part in parts] for parts in (wide, narrow)]
    (plain, *_, beyond), (plain_32, *_, beyond_32) = (remainder(one, u) for one in parts)
    found = []
    with np.errstate(all="ignore"):
        for difference in (beyond_32 - beyond, plain_32 - plain):
            shift = push(anchor.root, pull(anchor.root, difference)) / anchor.sd
            # A draw beyond the support says nothing about the rest.
            shift = np.where(np.isfinite(shift), shift, 0.0)
            found.append([shift.mean(axis=0), 0.5 * (u / anchor.sd * shift).mean(axis=0)])
    return np.array(found)
