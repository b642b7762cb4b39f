"""The law of a chain that stays with one shard for many steps, where every shard's gradient is linear: exact."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Unknowns of the stationary equation that are solved for at once: 37 numbers of state.
_MOST_UNKNOWNS = 1500
# Noise widens the chain, and a wider chain has larger drifts: a few rounds settle how much of each there is.
_ROUNDS = 4


class Drifts(NamedTuple):
    """Expected gradient of the log posterior within shard s, linear in theta: offset_s + slope_s (theta - centre).

    With visits q the sum of q_s times it is the gradient itself. `offset` (S, d), `slope` and `noise` (S, d, d), the
    covariance within the shard of a gradient from one row; `rest` (d, d), the covariance over shards and the posterior
    of what the lines leave of the shards' gradients; `cost` in datum visits.
    """

    centre: Array
    offset: Array
    slope: Array
    noise: Array
    rest: Array
    cost: int

    def bias(
        self, kernel: Any, coordinates: Any, covariance: Array, visits: Array, stay: int, step: float, gg: Array
    ) -> tuple[Array, Array] | None:
        """What stays of `stay` steps add to Poisson-corrected means (d,) and covariances (d, d); None if unknown.

            x' = A_s x + b_s + noise,  the same s for `stay` steps:    moments E[x], E[xx'], E[D_s(x) x']
            mean  E[x] + Sigma E[D],    second moment  E[xx'] + (Sigma E[D x'] + E[x D'] Sigma) / 2

        with D_s the drift and Sigma the Laplace `covariance`, minus the same for stays of one step. On a Gaussian model
        these leave no bias there: the correction asks for gradients that are right on average at every point, and
        within a stay they are not. Raw averages have this bias on top of the kernel's own. `gg` is the run's own
        E[gg']: what the drifts do not explain of it scales the shards' noise. Infinite where a shard's own steps do not
        contract. Cost: O((state + 1)^6), milliseconds for ten numbers.
        """
        d = len(self.centre)
        parts = kernel.affine(d, step)
        if parts is None or (len(parts[0]) + 1) ** 2 > _MOST_UNKNOWNS:
            return None
        # theta = centre + matrix z; gradients in theta are pulled to z by its transpose.
        matrix = (coordinates.theta(np.eye(d)) - coordinates.theta(np.zeros(d))).T
        offset, slope, noise = (self.offset @ matrix, *(matrix.T @ part @ matrix for part in (self.slope, self.noise)))
        one = np.trace(np.einsum("s,sij->ij", visits, noise))
        share, found = 0.0, []
        for _ in range(_ROUNDS):
            # The first round asks how much of E[gg'] the drifts make up, the others what the noise adds to that.
            laws = [_law(parts, offset, slope, visits, share * noise, k) for k in (stay, 1)]
            found = [law for law in laws if law is not None]
            if len(found) < 2:
                return np.full(d, np.inf), np.full((d, d), np.inf)
            share = max(np.trace(gg - found[0].square) / one, 0.0) if one > 0.0 else 0.0
        newton = covariance @ np.linalg.inv(matrix).T
        long, short = (_corrected(law, matrix, newton) for law in found)
        precision = -np.einsum("s,sij->ij", visits, slope)
        bent = newton @ _bent(precision, matrix.T @ self.rest @ matrix, stay, step) @ matrix.T
        return long[0] - short[0], long[1] - short[1] + 0.5 * (bent + bent.T)


def _bent(precision: Array, rest: Array, stay: int, step: float) -> Array:
    """E[v x'] for the part v of the gradient that is not linear in x and changes with the shard: an order of magnitude.

        E[v x'] = 6 delta/2 sum_{j=1}^{stay-1} (1 - j/stay) c^j R A^(j-1),    A = 1 - delta H/2,  c the slowest of A^2

    R the covariance of v. A step that v has moved the chain by is remembered by A, v itself, quadratic in x, by A^2; in
    the modes of H the sum is a geometric one. The factor 6: for v = +-(e/2) (x^2 - 1) with its mean +-e/2, of variance
    R = e^2/2, a long stay leaves the density exp(-x^2/2 +- e x^3/6), with E[x^2] = 1 + 5/4 e^2, of which the mean
    makes 1/4, and the sum is 1/3. (Short stays: 4, since what v does to itself counts beside v x.)
    """
    rates, modes = np.linalg.eigh(0.5 * (precision + precision.T))
    kept = np.clip(1.0 - 0.5 * step * rates, 0.0, 1.0 - 1e-9)
    ratio = np.max(kept) ** 2 * kept
    total = ratio / (1.0 - ratio) - ratio * (1.0 - ratio**stay) / (stay * (1.0 - ratio) ** 2)
    # One factor A less than c^j A^j.
    factor = 3.0 * step * total / np.maximum(kept, 1e-9)
    return modes @ (modes.T @ rest @ modes * factor) @ modes.T


class _Law(NamedTuple):
    """Moments at a random step of the stationary chain: E[x], E[xx'], E[D], E[Dx'], E[DD']."""

    mean: Array
    second: Array
    pull: Array
    cross: Array
    square: Array


def _corrected(law: _Law, matrix: Array, newton: Array) -> tuple[Array, Array]:
    """Corrected mean and covariance in theta; `newton` is a matrix from gradients in z to steps in theta."""
    mean = matrix @ law.mean + newton @ law.pull
    cross = newton @ law.cross @ matrix.T
    second = matrix @ law.second @ matrix.T + 0.5 * (cross + cross.T)
    return mean, second - np.outer(mean, mean)


def _law(parts: tuple, offset: Array, slope: Array, visits: Array, noise: Array, stay: int) -> _Law | None:
    """The stationary law, or None where a shard's steps do not contract.

    With y = (1, state) a step within shard s is y' = B y + noise of covariance Q. Over k steps the second moments Z
    become B^k Z B'^k + T_k, T_k = sum_{j<k} B^j Q B'^j, and the sum of them over the first k steps is S_k(Z) + U_k,
    S_k(Z) = sum_{j<k} B^j Z B'^j, U_k = sum_{j<k} T_j: all by doubling, whatever the length of a stay.
    """
    state, pull, kick, position = parts
    size = len(state) + 1
    sources = np.zeros((len(offset), size, size))
    sources[:, 1:, 1:] = kick @ kick.T + pull @ noise @ pull.T
    steps, drift = [], []
    for c, slopes in zip(offset, slope, strict=True):
        step = np.zeros((size, size))
        step[0, 0], step[1:, 0], step[1:, 1:] = 1.0, pull @ c, state + pull @ slopes @ position
        if np.max(np.abs(np.linalg.eigvals(step[1:, 1:]))) >= 1.0:
            return None
        steps.append(step)
        drift.append(np.concatenate([c[:, None], slopes @ position], axis=1))
    over = [_powers(step, source, stay) for step, source in zip(steps, sources, strict=True)]
    transition = sum(q * np.kron(power, power) for q, (power, _, _) in zip(visits, over, strict=True))
    added = sum(q * total for q, (_, total, _) in zip(visits, over, strict=True))
    # Z_00 = 1 is known: its equation is replaced by that.
    system = np.eye(size**2) - transition
    system[0], right = np.eye(size**2)[0], np.ravel(added)
    right[0] = 1.0
    start = np.linalg.solve(system, right).reshape(size, size)
    inside = [(_summed(step, start, stay) + u) / stay for step, (_, _, u) in zip(steps, over, strict=True)]
    whole = sum(q * z for q, z in zip(visits, inside, strict=True))
    pulls = sum(q * d @ z for q, d, z in zip(visits, drift, inside, strict=True))
    square = sum(q * d @ z @ d.T for q, d, z in zip(visits, drift, inside, strict=True))
    second = position @ whole[1:, 1:] @ position.T
    return _Law(position @ whole[1:, 0], second, pulls[:, 0], pulls[:, 1:] @ position.T, square)


def _powers(step: Array, source: Array, count: int) -> tuple[Array, Array, Array]:
    """B^k, T_k and U_k, by the binary digits of k: of a + b steps from those of a and of b."""
    done = (0, np.eye(len(step)), np.zeros_like(source), np.zeros_like(source))
    part = (1, step, source, np.zeros_like(source))
    while count:
        if count & 1:
            done = _after(part, done)
        part = _after(part, part)
        count >>= 1
    return done[1:]


def _after(first: tuple, then: tuple) -> tuple:
    a, power_a, total_a, sum_a = first
    b, power_b, total_b, sum_b = then
    carried = power_a @ total_b @ power_a.T
    return a + b, power_a @ power_b, total_a + carried, sum_a + b * total_a + power_a @ sum_b @ power_a.T


def _summed(step: Array, start: Array, count: int) -> Array:
    """S_k(Z) = sum_{j<k} B^j Z B'^j: T_k with Z for Q."""
    return _powers(step, start, count)[1]
