"""The law of SGLD's variance estimate on the logistic problem, with the posterior linearised around its mean.

See `theory.linearised`. The covariance there is the true one, by quadrature, so that small steps have the right limit;
what is left out is of the relative order 1/N, as long as the chain is not much wider than the posterior.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import expit

from langevin.paper import problems
from langevin.paper.study import Floats
from langevin.schedules import Schedule
from langevin.theory.linearised import plug_in_law

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

    Cost: 50 small array operations a step, for all settings of the schedule together.
    """
    model, truth = problems.logistic(), problems.logistic().truth()
    precision: Floats = np.linalg.inv(truth.covariance).astype(np.float64)
    # The mode is near enough to the mean for its offset to count as one more Gaussian term.
    law = plug_in_law(schedule, horizons, precision, covariance, start=model.map - truth.mean, coordinates=[0])
    return VarianceLaw(law.mean[..., 0], np.sqrt(law.variance[..., 0]))
