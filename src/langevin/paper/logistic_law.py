"""The law of SGLD's variance estimate on the logistic problem, with the posterior linearised around its mean.

With u = theta - mean, Sigma the posterior covariance and C the covariance of the minibatch noise at the mean, take

    u_m = (I - delta_m/2 Sigma^-1) u_{m-1} + delta_m/2 xi_m + sqrt(delta_m) eta_m,   Cov(xi_m) = C, all Gaussian.

The plug-in variance Q/Omega - (S/Omega)^2, Q = sum delta_k u_{k-1}^2, S = sum delta_k u_{k-1} (first coordinate), is a
quadratic form of a Gaussian vector, so its mean and variance follow from second moments alone (Isserlis), by a forward
recursion. Sigma is the true covariance, by quadrature, so that small steps have the right limit; what is left out is
of the relative order 1/N, as long as the chain is not much wider than the posterior.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import expit

from langevin.paper import problems
from langevin.paper.study import Floats
from langevin.schedules import Schedule

# Steps whose sizes are computed together.
_CHUNK = 4096


@dataclass(frozen=True)
class VarianceLaw:
    """Mean and sd of the plug-in variance of theta_1 as multiples of the posterior variance: (horizons, *settings)."""

    mean: Floats
    sd: Floats

    @property
    def mse(self) -> Floats:
        """Relative mean squared error."""
        return (self.mean - 1.0) ** 2 + self.sd**2


@cache
def noise_covariance(batch_size: int, replacement: bool) -> Floats:
    """Covariance of the plain minibatch gradient at the posterior mean."""
    model = problems.logistic()
    signed = model.x * model.y[:, None]
    grads = expit(-(signed @ model.truth().mean))[:, None] * signed
    num_data = len(grads)
    thinned = 1.0 if replacement else (num_data - batch_size) / (num_data - 1)
    return thinned * num_data**2 / batch_size * np.cov(grads.T, bias=True)


def variance_law(schedule: Schedule, horizons: tuple[int, ...], covariance: Floats) -> VarianceLaw:
    """The law after each of `horizons` steps from the mode, for gradient noise of this covariance.

    Cost: 30 small matrix operations a step, for all settings of the schedule together.
    """
    model, truth = problems.logistic(), problems.logistic().truth()
    precision = np.linalg.inv(truth.covariance)
    shape = schedule.batch_shape
    # The mode is near enough to the mean for its offset to count as one more Gaussian term.
    offset = model.map - truth.mean
    P = np.broadcast_to(np.outer(offset, offset), (*shape, 3, 3))
    # c = Cov(S, u), M = sum_k w_k v_k v_k' and R = sum_k w_k g_k v_k, v_k = Cov(u_k1, u), g_k = Cov(u_k1, S).
    c, R, M = np.zeros((*shape, 3)), np.zeros((*shape, 3)), np.zeros((*shape, 3, 3))
    total, Q, S2, var_Q, G = (np.zeros(shape) for _ in range(5))
    found, last = [], max(horizons)
    for m in range(1, last + 1):
        if m % _CHUNK == 1:
            delta = schedule.delta(np.arange(m, min(m + _CHUNK, last + 1)))
        step = delta[..., (m - 1) % _CHUNK]
        w, w_ = step, step[..., None]
        p = P[..., 0]
        # theta_{m-1} enters the sums with weight delta_m ...
        var_Q = var_Q + 4 * w * M[..., 0, 0] + 2 * (w * p[..., 0]) ** 2
        G = G + 2 * w * R[..., 0] + w**2 * M[..., 0, 0]
        R = R + w_ * M[..., 0]
        g = c[..., 0] + w * p[..., 0]
        G = G + w * g**2
        R = R + (w * g)[..., None] * p
        M = M + w_[..., None] * p[..., :, None] * p[..., None, :]
        S2 = S2 + 2 * w * c[..., 0] + w**2 * p[..., 0]
        Q = Q + w * p[..., 0]
        c = c + w_ * p
        total = total + w
        if m in horizons:
            mean = Q / total - S2 / total**2
            variance = var_Q / total**2 - 4 * G / total**3 + 2 * (S2 / total**2) ** 2
            found.append((mean, np.sqrt(np.maximum(variance, 0.0))))
        # ... and then moves.
        A = np.eye(3) - 0.5 * step[..., None, None] * precision
        A_T = np.swapaxes(A, -1, -2)
        M = A @ M @ A_T
        P = A @ P @ A_T + step[..., None, None] * np.eye(3) + (0.25 * step**2)[..., None, None] * covariance
        R = (A @ R[..., None])[..., 0]
        c = (A @ c[..., None])[..., 0]
    mean, sd = (np.array(part) / truth.covariance[0, 0] for part in zip(*found, strict=True))
    return VarianceLaw(mean, sd)
