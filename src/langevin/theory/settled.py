"""The law of averages along a chain that has settled, for any kernel with affine steps on the Gaussian model.

With the step s' = A s + noise of `AffineKernel`, u = p's a coordinate of theta and S the stationary covariance,

    a_k = Cov(u_m, u_{m+k}) = p' A^k S p,   M Var(mean of u) = a_0 + 2 sum_{k>0} a_k,
    M Var(mean of u^2) = 2 a_0^2 + 4 sum_{k>0} a_k^2

to leading order in the number of steps M. Sums over k are (I - A)^-1 and X = A X A' + (S p)(S p)'.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from langevin.kernels import Kernel
from langevin.kernels.protocol import stationary
from langevin.theory.linearised import PlugInLaw, bands

Floats = NDArray[np.float64]


def settled_law(
    kernel: Kernel,
    delta: float,
    num_steps: int,
    precision: Floats,
    noise: Floats,
    *,
    coordinates: Sequence[int] | None = None,
    chains: int = 1,
) -> PlugInLaw:
    """The law of `plug_in_law` at a constant step, without its transient; infinite where steps do not contract.

    Eigenvalues of the precision are put in bands as there. Cost: O(s^3) a coordinate for s state numbers of 8 bands.
    """
    parts = bands(precision, noise, np.zeros(len(precision)), coordinates)
    steps = kernel.affine(parts.rate.shape[-1], delta)
    if steps is None:
        raise ValueError(f"kernel must have affine steps whose law is known, got {kernel!r}. Try lv.SGLD().")
    state, pull, kick, position = steps
    total = num_steps * chains
    found = []
    for rate, weight, own in zip(parts.rate, parts.weight, parts.noise, strict=True):
        mean = state - (pull * rate) @ position
        limit = np.sum(weight**2 / rate)
        if np.max(np.abs(np.linalg.eigvals(mean))) >= 1.0:
            found.append((np.inf, np.inf, np.inf))
            continue
        seen = position.T @ weight
        lagged = stationary(mean, kick @ kick.T + pull @ own @ pull.T) @ seen
        variance = seen @ lagged
        sums = seen @ np.linalg.solve(np.eye(len(mean)) - mean, lagged)
        squares = seen @ stationary(mean, np.outer(lagged, lagged)) @ seen
        spread = (2.0 * sums - variance) / total
        found.append(
            ((variance - spread) / limit, (4.0 * squares - 2.0 * variance**2) / total / limit**2, spread / limit)
        )
    return PlugInLaw(*np.array(found).T)
