"""How fast a density falls far out: a power of the distance leaves moments, or their error bars, without a meaning."""

import jax
import numpy as np

from langevin.anchor import Anchor
from langevin.anchor.passes import Passes
from langevin.coordinates import Linear, Unpaired
from langevin.data.source import DataSource
from langevin.limits import checkpoint
from langevin.precision import apart
from langevin.startup import own_programs
from langevin.target import Target

# Distances in sds at which the density is looked at: a power law has one slope at both.
_FAR = (50.0, 500.0)
# Random directions beside those of the parameters.
_RANDOM = 8
_STREAM = 0x5441494C
_DOING = "looking at the tails"
# The error bar of an sd rests on the fourth moment.
FEWEST_MOMENTS = 4.0
# Beyond this dimension only some of the parameters are looked at.
_MOST_PARAMETERS = 32


def moments(target: Target, source: DataSource | None, anchor: Anchor, seed: int) -> float:
    """How many moments the posterior has, by the slope of its log density far out; infinite for all but power laws.

        log pi ~ -(nu + k) log r,    k = d along a direction of all parameters together, 1 along one of them

    so that a law of powers in one or in all parameters has moments below nu. One parameter is one with the others where
    they are or where they go with it: units that chance draws made correlate what is independent. Exact, up to where
    the power law begins: no draw has to come there. Cost: two passes over the data for each of at most 144 directions.
    """
    rng = np.random.default_rng([seed, _STREAM])
    d, units = anchor.layout.size, Unpaired.by(anchor)
    every = rng.standard_normal((_RANDOM, d))
    picked = rng.permutation(d)[:_MOST_PARAMETERS]
    alone = np.concatenate([anchor.covariance[picked], np.diag(anchor.sd)[picked]])
    alone = np.concatenate([units.z(anchor.theta + alone), units.z(anchor.theta - alone)])
    fewest = np.inf
    with own_programs(), jax.enable_x64(True), np.errstate(all="ignore"):
        passes = Passes(apart(target), source, anchor.layout, doing=_DOING)
        for directions, k in ((every, d), (alone, 1)):
            for direction in directions / np.linalg.norm(directions, axis=1, keepdims=True):
                checkpoint(_DOING)
                slopes = [_slope(passes, units, far * direction) for far in _FAR]
                fewest = min(fewest, max(slopes) - k)
    return float(fewest)


def _slope(passes: Passes, units: Linear, z: np.ndarray) -> float:
    """-d log pi / d log r at a point of the units; infinite where the density is nothing."""
    value, grad, *_ = passes.total(units.theta(z), 2)
    slope = -float(units.pull(grad) @ z)
    return slope if np.isfinite(value) and np.isfinite(slope) else np.inf
