"""What a correct sampler reports: mean and Monte Carlo error of SGLD's average, from the linearised chain."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.linalg import solve_discrete_lyapunov

from benchmarks.workloads import Workload, load


@dataclass(frozen=True)
class Prediction:
    """Mean and standard error of the step-weighted average, pooled over chains."""

    mean: np.ndarray
    stderr: np.ndarray

    def worst_z(self, estimate: np.ndarray) -> float:
        return float(np.max(np.abs((np.ravel(estimate) - self.mean) / self.stderr)))


def _gradient_and_hessian(workload: Workload, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x = workload.design
    first, second, _ = workload.derivatives(x @ theta)
    prior = workload.prior_precision
    hessian = prior * np.eye(x.shape[1]) - (x * second.astype(np.float32)[:, None]).T @ x
    return x.T @ first - prior * theta, hessian.astype(np.float64)


@cache
def mode(name: str) -> np.ndarray:
    """Where every chain starts, so that no transient has to be judged: six Newton steps."""
    workload = load(name)
    theta = np.ravel(workload.theta_start).astype(np.float64)
    for _ in range(6):
        grad, hessian = _gradient_and_hessian(workload, theta)
        theta = theta + np.linalg.solve(hessian, grad)
    return theta.reshape(np.shape(workload.theta_start)).astype(np.float32)


def predict(workload: Workload, steps: int) -> Prediction:
    """Mean and error of sum delta theta / sum delta after that many steps from the mode.

    With H the Hessian at the mode, V the covariance of the minibatch gradient and T = sum delta, the average
    has covariance 4 H^-1 (T + V sum delta^2 / 4) H^-1 / T^2, and skewness moves its mean from the mode by
    H^-1 sum_i l_i''' (x_i' C x_i) x_i / 2, C the covariance of the chain at its typical step.
    """
    x, theta = workload.design, np.ravel(mode(workload.name)).astype(np.float64)
    first, _, third = workload.derivatives(x @ theta)
    _, hessian = _gradient_and_hessian(workload, theta)
    inverse, one = np.linalg.inv(hessian), np.eye(len(theta))

    score = x * first.astype(np.float32)[:, None]
    per_datum = (score.T @ score) / len(x) - np.outer(score.mean(0), score.mean(0))
    noise = per_datum * workload.num_data**2 / workload.batch_size

    deltas = workload.deltas(steps).astype(np.float64)
    total, squares = deltas.sum(), (deltas**2).sum()
    typical = squares / total
    chain = solve_discrete_lyapunov(one - typical * hessian / 2, typical * one + typical**2 / 4 * noise)
    spread = np.einsum("ij,jk,ik->i", x, chain.astype(np.float32), x, optimize=True)

    covariance = 4 * inverse @ (total * one + noise * squares / 4) @ inverse / total**2 / workload.chains
    return Prediction(theta + inverse @ (x.T @ (third * spread)) / 2, np.sqrt(np.diag(covariance)))
