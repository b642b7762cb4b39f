"""The law of SGLD after m steps on the linear Gaussian model, computed without simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from langevin.theory._fourier import COARSE, FINE, Chain, Complexes, Floats, Observable, sum_moments


class Cumulants(NamedTuple):
    """First four cumulants of theta_m, one entry per requested m.

    Example:
        >>> law = LinearGaussianLaw([1.0, 3.0], sigma_theta=1.0, sigma_x=1.0, batch_size=1, replacement=True)
        >>> law.cumulants([0.1, 0.1], 0.0, at=[2]).mean  # mu_p (1 - 0.85^2), mu_p = 4/3
        array([0.37])
    """

    m: NDArray[np.int64]
    mean: Floats
    variance: Floats
    third: Floats
    fourth: Floats


class AverageLaw(NamedTuple):
    """Bias, variance and mean squared error of pi_m(A g); `truncation_*` are estimated numerical errors.

    Example:
        >>> law = LinearGaussianLaw([1.0, 3.0], sigma_theta=1.0, sigma_x=1.0, batch_size=1, replacement=True)
        >>> average = law.average_sin(np.full(1000, 0.1), theta_0=1.0, at=[1000], shift=1.0)
        >>> bool(abs(average.bias[0]) < 0.1), np.allclose(average.mse, average.bias**2 + average.variance)
        (True, True)
    """

    m: NDArray[np.int64]
    T_m: Floats
    bias: Floats
    variance: Floats
    mse: Floats
    truncation_bias: Floats
    truncation_variance: Floats


@dataclass(frozen=True, eq=False)
class LinearGaussianLaw:
    """Law of SGLD for x_i | theta ~ N(theta, sigma_x^2), theta ~ N(0, sigma_theta^2), at the data x.

        theta_m = theta_{m-1} + delta_m/2 * (-(theta_{m-1} - mu_p)/sigma_p^2 + H_m) + sqrt(delta_m) eta_m
        H_m = (N/n) sum_{i in batch} (x_i - mean(x)) / sigma_x^2

    The n members of a batch are drawn afresh at each step, with or without replacement inside the step.
    H does not depend on theta, so theta_m is a sum of independent terms: its characteristic function is a
    known product and nothing here is an approximation beyond floating point and polynomial interpolation.

    Example:
        >>> law = LinearGaussianLaw([1.0, 3.0], sigma_theta=1.0, sigma_x=1.0, batch_size=1, replacement=True)
        >>> round(law.mu_p, 6), law.grad_noise  # the gradients of the two data are off by -2 and 2
        (1.333333, 4.0)
    """

    x: ArrayLike
    sigma_theta: float
    sigma_x: float
    batch_size: int
    replacement: bool

    def __post_init__(self) -> None:
        x = np.array(self.x, dtype=np.float64)
        if x.ndim != 1 or x.size == 0 or not np.all(np.isfinite(x)):
            raise ValueError(f"x must be a non-empty vector of finite numbers, got shape {x.shape}.")
        for name in ("sigma_theta", "sigma_x"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is a standard deviation and must be positive, got {getattr(self, name)}.")
        if self.batch_size < 1 or (not self.replacement and self.batch_size > x.size):
            raise ValueError(
                f"batch_size must lie in 1..{x.size} without replacement and be at least 1 with it, "
                f"got {self.batch_size}."
            )
        object.__setattr__(self, "x", x)

    @property
    def num_data(self) -> int:
        """N, the number of data."""
        return np.size(self.x)

    @property
    def sigma_p(self) -> float:
        """Posterior standard deviation."""
        return float((self.num_data / self.sigma_x**2 + 1 / self.sigma_theta**2) ** -0.5)

    @property
    def mu_p(self) -> float:
        """Posterior mean."""
        return float(np.sum(self.x) * self.sigma_p**2 / self.sigma_x**2)

    @property
    def _datum_noise(self) -> Floats:
        """What each datum adds to H when it is drawn: (N/n)(x_i - mean)/sigma_x^2."""
        x = np.asarray(self.x)
        return (self.num_data / self.batch_size) * (x - x.mean()) / self.sigma_x**2

    @property
    def grad_noise(self) -> float:
        """Variance of H."""
        N, n = self.num_data, self.batch_size
        shrink = 1.0 if self.replacement else (N - n) / max(N - 1, 1)
        return float(n * shrink * np.mean(self._datum_noise**2))

    @property
    def grad_noise_third(self) -> float:
        """Third cumulant of H; without replacement it changes sign when the batch is half of the data."""
        N, n = self.num_data, self.batch_size
        shrink = 1.0 if self.replacement else (N - n) * (N - 2 * n) / max((N - 1) * (N - 2), 1)
        return float(n * shrink * np.mean(self._datum_noise**3))

    @property
    def grad_noise_fourth(self) -> float:
        """Fourth cumulant of H.

        Without replacement E H^4 sums products of four terms c_i over their coincidences: k distinct data are all in
        the batch with chance pi_k = n...(n-k+1)/(N...(N-k+1)), and the sums over distinct data follow from sum c = 0.
        """
        n, c = self.batch_size, self._datum_noise
        if self.replacement:
            return float(n * (np.mean(c**4) - 3 * np.mean(c**2) ** 2))
        drawn = np.arange(min(n, 4))
        pi = np.zeros(4)
        pi[: drawn.size] = np.cumprod((n - drawn) / (self.num_data - drawn))
        S2, S4 = np.sum(c**2), np.sum(c**4)
        sums = (S4, 3 * S2**2 - 7 * S4, 6 * (2 * S4 - S2**2), 3 * S2**2 - 6 * S4)
        return float(pi @ sums - 3 * self.grad_noise**2)

    def noise_cf(self, t: ArrayLike) -> Complexes:
        """Exact characteristic function E exp(i t H). Cost: N per t with replacement, N n without.

        Without replacement it is e_n(z_1..z_N) / C(N, n), z_i the phase of datum i, e_n the elementary
        symmetric polynomial. Dividing by the binomial at every stage turns the textbook recursion into
        averages of numbers in the unit disc, so it cannot lose accuracy to cancellation or overflow.
        """
        t = np.asarray(t, dtype=np.float64)
        phase = np.exp(1j * np.multiply.outer(self._datum_noise, t))
        if self.replacement:
            return phase.mean(axis=0) ** self.batch_size
        ratio = np.arange(1, self.batch_size + 1).reshape((-1,) + (1,) * t.ndim)
        e = np.zeros((self.batch_size + 1, *t.shape), dtype=np.complex128)
        e[0] = 1.0
        for i, z in enumerate(phase, start=1):
            weight = np.minimum(ratio / i, 1.0)
            e[1:] = (1 - weight) * e[1:] + weight * z * e[:-1]
        return e[-1]

    def contraction(self, delta: ArrayLike) -> Floats:
        """a = 1 - delta/(2 sigma_p^2), the factor by which one step shrinks theta - mu_p."""
        return 1 - np.asarray(delta, dtype=np.float64) / (2 * self.sigma_p**2)

    def _path(self, delta: Floats, theta_0: float) -> Floats:
        """Rows m = 0..M; columns mean - mu_p, variance, third and fourth cumulant, Gaussian part of the variance,
        and the largest value of |theta_m - mean| that gradient noise bounded by 1 could cause."""
        mean, variance, third, fourth, gaussian, bound = theta_0 - self.mu_p, 0.0, 0.0, 0.0, 0.0, 0.0
        rows = [(mean, variance, third, fourth, gaussian, bound)]
        v, k3, k4 = self.grad_noise / 4, self.grad_noise_third / 8, self.grad_noise_fourth / 16
        for d, a in zip(delta.tolist(), self.contraction(delta).tolist(), strict=True):
            mean *= a
            variance = a * a * variance + d + d * d * v
            third = a * a * a * third + d * d * d * k3
            fourth = a * a * a * a * fourth + d * d * d * d * k4
            gaussian = a * a * gaussian + d
            bound = abs(a) * bound + d / 2
            rows.append((mean, variance, third, fourth, gaussian, bound))
        return np.asarray(rows)

    def cumulants(self, delta: ArrayLike, theta_0: float, at: Sequence[int] | ArrayLike) -> Cumulants:
        """Mean, variance, third and fourth cumulant of theta_m for m in `at` (0 is the start). Exact; cost O(M).

            kappa_r(m) = a_m^r kappa_r(m-1) + (delta_m/2)^r kappa_r(H) + delta_m [r = 2]

        `delta` holds delta_1..delta_M with M >= max(at); theta_0 is a fixed number.
        """
        delta, m = _steps(delta, at, first=0)
        path = self._path(delta, theta_0)[m]
        return Cumulants(m, self.mu_p + path[:, 0], *path.T[1:4])

    def stationary(self, delta: float) -> tuple[float, float, float]:
        """Mean, variance and third cumulant of theta in the long run at the constant step delta.

            kappa_r = ((delta/2)^r kappa_r(H) + delta [r = 2]) / (1 - a^r),  a = 1 - delta/(2 sigma_p^2)

        Without gradient noise the law is N(mu_p, sigma_p^2/(1 - delta/(4 sigma_p^2))). Needs
        delta < 4 sigma_p^2.
        """
        self._require_stable(np.asarray([delta]))
        a = float(self.contraction(delta))
        variance = (delta + delta**2 * self.grad_noise / 4) / (1 - a**2)
        return self.mu_p, variance, delta**3 * self.grad_noise_third / 8 / (1 - a**3)

    def _require_stable(self, delta: Floats) -> None:
        limit = 4 * self.sigma_p**2
        if not np.all((delta > 0) & (delta < limit)):
            raise ValueError(
                f"delta must lie in (0, {limit:.5g}), got {delta.min():.5g} to {delta.max():.5g}; "
                "from 4 sigma_p^2 on, a step does not contract. Try smaller first steps."
            )

    def average_sin(self, delta: ArrayLike, theta_0: float, at: Sequence[int] | ArrayLike, shift: float) -> AverageLaw:
        """Bias, variance, MSE of pi_m(A g) = sum_k delta_k (A g)(theta_{k-1}) / T_m, g(x) = sin(x - shift).

        A is the generator of the Langevin diffusion of the posterior, so the truth is 0 and

            A g(x) = -1/2 {(x - mu_p) cos(x - shift)/sigma_p^2 + sin(x - shift)}.

        Gradient noise enters with its full law and all pairs of times are counted: no cumulant is dropped, no
        window is cut. What remains is interpolation in frequency; `truncation_*` is the change against the
        same computation with nodes for an accuracy of 1e-5 instead of 1e-9, which overstates the error.

        Cost O(M K^2), K about 15 to 60 nodes. Needs every delta_k < 4 sigma_p^2.
        """
        delta, m = _steps(delta, at, first=1)
        self._require_stable(delta)
        chain = self._chain(delta, theta_0)
        f = Observable(self.sigma_p**-2, shift - self.mu_p)
        T_m = np.cumsum(delta)[m - 1]
        (mean, var), (mean_, var_) = (sum_moments(chain, f, tolerance) for tolerance in (FINE, COARSE))
        bias, variance = mean[m - 1] / T_m, var[m - 1] / T_m**2
        error, error_variance = np.abs(mean - mean_)[m - 1] / T_m, np.abs(var - var_)[m - 1] / T_m**2
        return AverageLaw(m, T_m, bias, variance, bias**2 + variance, error, error_variance)

    def _chain(self, delta: Floats, theta_0: float) -> Chain:
        path = self._path(delta, theta_0)
        # Beyond six standard deviations a Gaussian carries 2e-9 of its mass, and interpolation does not fail
        # there but only loses digits. Gradient noise has a hard bound, the tighter one for small batches.
        largest = float(np.abs(self._datum_noise).max())
        bound, sd = self.batch_size * largest, self.grad_noise**0.5
        noise_part = np.sqrt(np.maximum(path[:, 1] - path[:, 4], 0.0))
        reach = 6 * np.sqrt(path[:, 4]) + np.minimum(bound * path[:, 5], 8 * noise_part)
        noise_reach = min(bound, 8 * sd + largest) if sd > 0 else 0.0
        return Chain(delta, 1 / (2 * self.sigma_p**2), path[:-1, 0], reach, noise_reach, self.noise_cf)


def _steps(delta: ArrayLike, at: Sequence[int] | ArrayLike, first: int) -> tuple[Floats, NDArray[np.int64]]:
    """Check the step sizes and the requested m; cut the steps that no requested m needs."""
    delta, m = np.asarray(delta, dtype=np.float64), np.atleast_1d(np.asarray(at, dtype=np.int64))
    if delta.ndim != 1 or m.size == 0 or m.min() < first or m.max() > delta.size:
        raise ValueError(f"at must hold m in {first}..{delta.size}, the number of steps given, got {m}.")
    return delta[: m.max()], m
