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


# (excess kurtosis)/(sd/mean)^2 of the average of u^2 over many relaxation times of an Ornstein-Uhlenbeck process:
# 6 I_4 I_1^2/I_2^3 with I_k the integral of its spectrum (1 + w^2)^-1 to the power k. Before it relaxes it is 12.9.
_KURTOSIS = 15.0


@dataclass(frozen=True)
class VarianceLaw:
    """Mean and sd of the plug-in variance of theta_1 as multiples of the posterior variance: (horizons, *settings)."""

    mean: Floats
    sd: Floats

    @property
    def mse(self) -> Floats:
        """Relative mean squared error."""
        return (self.mean - 1.0) ** 2 + self.sd**2

    @property
    def mean_room(self) -> Floats:
        """Relative error that the linearisation may have in the mean.

        The law neglects the posterior's curvature beyond the second order. At the posterior's own width this shifts
        the variance by the relative error of the Laplace approximation, which quadrature gives (0.5% here), and in
        proportion to the variance for a wider chain. Twice that is allowed before anything counts as a difference.
        """
        model = problems.logistic()
        laplace = abs(model.laplace_covariance[0, 0] / model.truth().covariance[0, 0] - 1.0)
        return 2.0 * laplace * np.maximum(self.mean, 1.0)

    @property
    def variance_room(self) -> Floats:
        """Error that the linearisation may have in the logarithm of the estimate's variance.

        That variance goes as V^2 tau (1 + k/2), with V the chain's variance, tau its relaxation time and k its excess
        kurtosis. If curvature shifts V by the relative amount r, it shifts tau, to which V is proportional, by r, and
        the factor of k by 1.5 r at most: cubic and quartic terms c, g of the potential shift V by c^2 - g/2, and
        k/2 = 3 c^2/2 - g/2. In all, (2 + 1 + 1.5) r. To leading order, and as long as the two terms do not cancel in V.
        """
        return 4.5 * self.mean_room

    def scores(self, estimates: Floats) -> Floats:
        """Scores of mean and variance over runs, the last axis, beyond their room; a new first axis holds the two.

        The estimate is skewed like a gamma variable, so its mean over runs is scored by Wilson and Hilferty's cube
        root. That of its variance needs the kurtosis, which is badly underestimated in samples whose variance happens
        to be small: the law's own is the least that counts.
        """
        measured, runs = estimates.mean(axis=-1), estimates.shape[-1]
        expected = np.clip(measured, self.mean * (1 - self.mean_room), self.mean * (1 + self.mean_room))
        shape = runs * (expected / self.sd) ** 2
        of_mean = 3.0 * np.sqrt(shape) * (np.cbrt(measured / expected) - 1.0 + 1.0 / (9.0 * shape))

        square = (estimates - measured[..., None]) ** 2
        ratio = square.sum(axis=-1) / (runs - 1) / self.sd**2
        ratio = ratio / np.clip(ratio, np.exp(-self.variance_room), np.exp(self.variance_room))
        kurtosis = (square**2).mean(axis=-1) / square.mean(axis=-1) ** 2
        wide = (np.maximum(kurtosis, 3.0 + _KURTOSIS * (self.sd / self.mean) ** 2) - 1.0) / (9.0 * (runs - 1))
        of_variance = (np.cbrt(ratio) - 1.0 + wide) / np.sqrt(wide)
        return np.stack([of_mean, of_variance])


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
