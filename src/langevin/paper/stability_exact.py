"""Exact moments that the study of stability compares with: of V on the Gaussian model, of H on the logistic one."""

import numpy as np
from numpy.typing import NDArray
from scipy import special

from langevin.models import Logistic
from langevin.paper.study import Floats
from langevin.theory import LinearGaussianLaw


def exact_moments(law: LinearGaussianLaw, delta: Floats, theta_0: float, m: NDArray[np.int64]) -> Floats:
    """E V and E V^2 of theta_m, V = 1 + (theta - mu_p)^2 / (2 sigma_p^2), shape (2, times); no approximation."""
    at = law.cumulants(delta, theta_0, m)
    b, v = at.mean - law.mu_p, at.variance
    y2, y4 = b**2 + v, b**4 + 6 * b**2 * v + 4 * b * at.third + 3 * v**2 + at.fourth
    s2 = law.sigma_p**2
    return np.stack([1 + y2 / (2 * s2), 1 + y2 / s2 + y4 / (4 * s2**2)])


def noise_moments(model: Logistic, theta: Floats, n: int) -> tuple[Floats, Floats, Floats]:
    """At each theta the sum of the likelihood's gradients, and E|H|^2 and E|H|^4 of n data without replacement.

    H sums n of the c_i = N/n (g_i - mean g), which add up to 0. Four data that need not differ: k that do are all drawn
    with chance n...(n-k+1)/(N...(N-k+1)), and sums over distinct ones follow from those of |c_i|^2, |c_i|^4, c_i c_i'.
    """
    signed, N = model.x * model.y[:, None], model.num_data
    chance = np.cumprod((n - np.arange(4)) / (N - np.arange(4)))
    found = []
    for at in np.moveaxis(theta, 1, 0):  # one draw at a time: chains x N
        weight = special.expit(-(at @ signed.T))
        mean = weight @ signed / N
        c2 = weight**2 * (signed**2).sum(axis=1) - 2 * weight * (mean @ signed.T) + (mean**2).sum(axis=1)[:, None]
        outer = np.tensordot(weight**2, signed[:, :, None] * signed[:, None], 1)
        outer -= N * mean[:, :, None] * mean[:, None]
        S2, S4, pairs = c2.sum(axis=1), (c2**2).sum(axis=1), (outer**2).sum(axis=(1, 2))
        D = S2**2 + 2 * pairs
        second = (chance[0] - chance[1]) * S2
        fourth = chance @ [S4, D - 7 * S4, 12 * S4 - 2 * D, D - 6 * S4]
        found.append((N * mean, (N / n) ** 2 * second, (N / n) ** 4 * fourth))
    total, second, fourth = (np.stack(part, axis=1) for part in zip(*found, strict=True))
    return total, second, fourth


def noise_bound(model: Logistic, n: int) -> float:
    """A bound of E|H|^2 at all theta: the gradient of a datum is at most |x_i| long."""
    N = model.num_data
    return float(N**2 / n * (N - n) / (N - 1) * (model.x**2).sum(axis=1).mean())
