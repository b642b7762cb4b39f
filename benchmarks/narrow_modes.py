"""How often the survey finds a mode narrower than the anchor's that holds nine tenths of the mass.

    python -m benchmarks.narrow_modes

For each dimension and width (in sds of the wide mode): of 60 surveys, ten seeds at each of six distances from 6 to 40,
how many lead to the narrow mode, and how many do with dispersed starts alone. A minute on one core.
"""

from unittest import mock

import jax.numpy as jnp
import numpy as np

import langevin as lv
from langevin.survey import survey

DISTANCES, SEEDS = (6.0, 8.0, 10.0, 14.0, 20.0, 40.0), 10


def found(dimension: int, width: float) -> int:
    count = 0
    for distance in DISTANCES:
        centre = jnp.full(dimension, distance / np.sqrt(dimension))

        def log_density(theta, centre=centre):
            peak = jnp.log(9.0) - dimension * jnp.log(width) - 0.5 * jnp.sum(((theta - centre) / width) ** 2)
            return jnp.logaddexp(-0.5 * jnp.sum(theta**2), peak)

        target = lv.Target(log_density)
        anchor = lv.laplace(target, None, np.zeros(dimension))
        count += sum(survey(target, None, anchor, seed).elsewhere > 0 for seed in range(SEEDS))
    return count


if __name__ == "__main__":
    print("dimension  width  found  dispersed starts alone")
    for dimension in (1, 2, 3, 5):
        for width in (0.2, 0.5):
            with mock.patch("langevin.survey._FEW_PARAMETERS", 0):
                alone = found(dimension, width)
            print(f"{dimension:9}  {width:5}  {found(dimension, width):5}  {alone:22}", flush=True)
