"""What the kernel's own theory says of a run: how long it remembers, and how far its law is from the posterior's."""

from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from langevin.analysis.errorbars import Rows

if TYPE_CHECKING:
    from langevin.engine.ledger import Ledger

Array = NDArray[np.float64]

# Step sizes at which a run with decreasing steps is looked at.
_NODES = 4
# The noise of the gradient and the width of the chain depend on each other: with x = delta lambda / 2 the noise C adds
# C x/(2 - x) to what is measured. Half steps towards the solution converge for x < 1.5, by (1 - x/(2 - x))/2 each.
_ROUNDS = 16


class Law(NamedTuple):
    """The chain's law on the anchor's Gaussian model, per group of chains.

    `excess` (groups, d, d): covariance beyond the posterior's, `noisy` the part of it that gradient noise makes.
    `growth`: the relative excess or lack of variance in the worst direction, as far as it is significant; `inflation`:
    the factor of gradient noise alone on the sd there. `shape`: the relative error of the chain's third cumulants.
    `relaxations`: relaxation times of one chain.
    """

    excess: Array
    noisy: Array
    growth: Array
    inflation: Array
    shape: float
    relaxations: float

    def bias(self, hessian: Array) -> Array:
        """<Q, excess> / 2, the bias of raw averages (groups, values) for second derivatives Q (values, d, d)."""
        if not np.all(np.isfinite(self.excess)):
            return np.where(np.any(hessian != 0, axis=(1, 2)), np.inf, np.zeros((len(self.excess), 1)))
        return 0.5 * np.einsum("vij,gij->gv", hessian, self.excess)

    def reused(self, hessian: Array) -> Array:
        """-<Q, noisy>, the bias (groups, values) that shuffled passes leave to corrected averages.

        A pass adds up to the exact gradient, so of K noises with covariance C two have the covariance -C/(K - 1), and
        the state remembers the (K - 1)/2 or so of this pass: E[theta noise'] = -(delta/2) C/2. That is the bias of the
        correction, which multiplies state and gradient, and the width that independent minibatches would add to SGLD,
        with the other sign. Twice as much where the noise is proportional to theta - anchor, as under control variates:
        the square of the state remembers it twice. The larger is taken.
        """
        return -np.einsum("vij,gij->gv", hessian, self.noisy)


def _nodes(rows: Rows) -> tuple[Array, Array, Array]:
    """A few steps that stand for those of a run: their shares of its weight, their sizes, and how many each."""
    share = rows.omega / rows.omega.sum()
    first = np.linspace(0, len(share), min(_NODES, len(share)) + 1).astype(int)[:-1]
    weight = np.add.reduceat(share, first)
    step = np.add.reduceat(share * rows.step, first) / weight
    return weight, step, np.add.reduceat(rows.delta / rows.step, first)


def _squares(outer: Array, rows: Rows) -> Array:
    """E[g g'] of every chain, (chains, d, d)."""
    share = rows.omega / rows.omega.sum()
    return np.asarray(np.einsum("r,crij->cij", share / rows.delta, outer) / np.sum(share * rows.step))


def of_stays(ledger: "Ledger", index: tuple[int, ...], rows: Rows, line: bool) -> tuple[Array, Array] | None:
    """What long stays with single shards add to means (d,) and covariances (d, d), or to their `line` at step 0.

    None where it is not known: no dense anchor, nothing known of the shards, or a kernel that is not affine.
    """
    part, anchor = ledger.stays, ledger.anchor
    if part is None or part.drifts is None or anchor is None or ledger.outer is None:
        return None
    weight, step, _ = _nodes(rows)
    squares = _squares(ledger.outer[index], rows).mean(axis=0)
    found = [
        part.drifts.bias(
            ledger.kernel, ledger.coordinates, anchor.covariance, part.visits, part.stay, float(delta), squares
        )
        for delta in step
    ]
    if any(one is None for one in found):
        return None
    if line:
        # The weights with which a regression on the step extrapolates to 0.
        centred = step - np.dot(weight, step)
        spread = np.dot(weight, centred**2)
        weight = weight * (1.0 - (np.dot(weight, step) / spread if spread > 0.0 else 0.0) * centred)
    mean, covariance = (np.einsum("k,k...->...", weight, np.array(part)) for part in zip(*found, strict=True))
    return mean, covariance


# A ledger is asked for several estimates, which share its law.
_known: "WeakKeyDictionary[Ledger, dict]" = WeakKeyDictionary()


def law(ledger: "Ledger", index: tuple[int, ...], rows: Rows, pool: bool) -> Law | None:
    """The law of one schedule setting, worked out once for each ledger; see `_law`."""
    known = _known.setdefault(ledger, {})
    if (index, pool) not in known:
        known[index, pool] = _law(ledger, index, rows, pool)
    return known[index, pool]


def _law(ledger: "Ledger", index: tuple[int, ...], rows: Rows, pool: bool) -> Law | None:
    """The law of one schedule setting; None without a dense anchor, or where the kernel states none.

        M = E[g g'] = H S H + C,    S = H^-1 + excess(C),    both measured and stated for the steps of the run

    The ledger's sum of delta^2 g g' gives M, the kernel its excess for a noise covariance C: the two equations are
    solved for C. M is an average over finitely many states: its largest eigenvalue exceeds the truth by about
    2 sqrt(d/independent) of the whole, which is taken off `growth`. For minibatches that are not independent between
    steps an upper bound, since their noise cancels over an epoch. Cost: some tens of O(d^3).
    """
    kernel: Any = ledger.kernel
    if ledger.exact or ledger.anchor is None or ledger.outer is None or not kernel.has_theory:
        return None
    precision = ledger.coordinates.precision(ledger.anchor)
    weight, step, steps = _nodes(rows)
    rates = [kernel.relaxation(precision, float(delta)) for delta in step]
    relaxations = float(np.dot(steps, rates))
    units = len(ledger.units(ledger.chains)) if pool else 1
    independent = max(min(relaxations, ledger.num_steps) * units, 1.0)
    local = _squares(ledger.outer[index], rows)
    measured = local.mean(axis=0, keepdims=True) if pool else local
    values, vectors = np.linalg.eigh(precision)
    root = vectors * np.sqrt(values)

    def excess(noise: Array) -> Array:
        found = [kernel.bias(precision, noise, float(delta)) for delta in step]
        return np.einsum("k,kij->ij", weight, np.array(found))

    def growth(matrix: Array) -> float:
        if not np.all(np.isfinite(matrix)):
            return np.inf
        return float(np.max(np.abs(np.linalg.eigvalsh(root.T @ matrix @ root))))

    without = excess(np.zeros_like(precision))
    if not np.all(np.isfinite(without)):
        # The steps do not contract: whatever the run shows, it is not the posterior.
        nothing = np.full(len(measured), np.inf)
        return Law(np.full(measured.shape, np.inf), np.zeros(measured.shape), nothing, nothing, np.inf, relaxations)
    found = []
    for gradient in measured:
        noise = gradient - precision
        for _ in range(_ROUNDS):
            noise = 0.5 * (noise + gradient - precision - precision @ excess(noise) @ precision)
        whole = excess(noise)
        by_chance = 2.0 * np.sqrt(len(values) / independent) * growth(excess(gradient) - without)
        noisy = whole - without
        found.append((whole, noisy, max(growth(whole) - by_chance, 0.0), np.sqrt(1.0 + growth(noisy))))
    by_group = [np.array(part) for part in zip(*found, strict=True)]
    shape = float(np.dot(weight, [kernel.shape_error(precision, float(delta)) for delta in step]))
    return Law(by_group[0], by_group[1], by_group[2], by_group[3], shape, relaxations)
