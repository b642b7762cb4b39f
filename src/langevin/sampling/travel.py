"""Modes that chains of an exact run jump between: found from each other, each with its Gaussian approximation."""

from dataclasses import dataclass, replace

import jax
import numpy as np

from langevin.anchor import Anchor, laplace
from langevin.anchor.passes import Passes
from langevin.coordinates import Linear, Unpaired
from langevin.data.source import DataSource
from langevin.errors import AnchorError
from langevin.kernels import NUTS, ExactKernel, Jumps
from langevin.precision import apart
from langevin.sampling.planning import Plan
from langevin.startup import own_programs
from langevin.survey import survey
from langevin.target import Target
from langevin.weighing import log_mass as log_mass_of

# A mode with less than a thousandth of the mass moves no sd by more than a few percent.
LEAST_MASS = 1e-3
# Modes that are looked at. Three exchangeable components have six of them; four have 24, too many to find by starts.
_MOST_MODES = 12
# Draws in a mode from which its own covariance is known to within a third.
_DRAWS_PER_PARAMETER, _FEWEST_DRAWS = 10, 50


@dataclass(frozen=True, eq=False)
class Modes:
    """Gaussian approximations N(centre, root root') of the modes that matter, the anchor's first.

    `centres` (k, d) and `roots` (k, d, d), flat; `log_mass` (k,) by Laplace, over that of the first. `closed`: starts
    dispersed about each of them led to none that is not among them. `cost` in datum visits.
    """

    centres: np.ndarray
    roots: np.ndarray
    log_mass: np.ndarray
    closed: bool
    cost: int

    def __len__(self) -> int:
        return len(self.centres)

    def nearest(self, theta: np.ndarray) -> np.ndarray:
        """Which of the modes a flat theta (..., d) belongs to: the Gaussian with the highest density there."""
        volumes = np.sum(np.log(np.diagonal(self.roots, axis1=1, axis2=2)), axis=1)
        squares = [
            np.sum(Linear(centre, (root,)).z(theta) ** 2, axis=-1)
            for centre, root in zip(self.centres, self.roots, strict=True)
        ]
        return np.argmax(np.stack([-0.5 * s - v for s, v in zip(squares, volumes, strict=True)]), axis=0)

    def kernel(self, units: Linear) -> ExactKernel:
        """NUTS, with jumps between the modes where there are several, in these units.

        Half of the proposals go by mass, half to all modes alike: where Laplace's masses are right that costs half of
        the jumps at most, and a mode that is heavier than Laplace thinks is still tried.
        """
        if len(self) < 2:
            return NUTS()
        shares = np.exp(self.log_mass - np.logaddexp.reduce(self.log_mass))
        roots = np.stack([units.z(units.centre + root.T) for root in self.roots])
        covariances = np.swapaxes(roots, 1, 2) @ roots
        return Jumps.between(units.z(self.centres), covariances, np.log(0.5 * shares + 0.5 / len(self)))

    def refitted(self, theta: np.ndarray) -> "Modes":
        """With the moments of draws (..., d) where a mode has enough of them, a few of its old law among them."""
        flat = theta.reshape(-1, theta.shape[-1])
        which, d = self.nearest(flat), flat.shape[1]
        centres, roots = self.centres.copy(), self.roots.copy()
        for k in range(len(self)):
            own = flat[which == k]
            if len(own) >= max(_FEWEST_DRAWS, _DRAWS_PER_PARAMETER * d):
                weight = len(own) / (len(own) + d + 1.0)
                old = roots[k] @ roots[k].T
                centres[k] = own.mean(axis=0)
                roots[k] = np.linalg.cholesky(weight * np.cov(own.T).reshape(d, d) + (1.0 - weight) * old)
        return replace(self, centres=centres, roots=roots)


def several(modes: Modes | None) -> bool:
    """Whether there is more than one."""
    return modes is not None and len(modes) > 1


def explored(target: Target, source: DataSource | None, plan: Plan) -> Modes | None:
    """The modes that the plan's survey leads to, and surveys from each of those; None where it came back every time.

    A mode of some rows that all of them climb away from is none. Cost: a climb on all the data and a survey a mode.
    """
    if not len(plan.survey.modes):
        return None
    found, waiting, closed, cost = [plan.anchor], [plan.survey], True, 0
    layout = plan.anchor.layout
    while waiting:
        for mode in waiting.pop(0).modes:
            try:
                new = laplace(target, source, layout.unravel(mode), seed=plan.seed)
            except AnchorError:
                closed = False
                continue
            cost += new.cost
            if not (new.dense and new.converged):
                closed = False
            elif not any(_same(new, old) for old in found):
                if len(found) == _MOST_MODES:
                    closed = False
                    break
                found.append(new)
                seen = survey(target, source, new, plan.seed + len(found))
                cost += seen.cost
                waiting.append(seen)
    with own_programs(), jax.enable_x64(True):
        passes = Passes(apart(target), source, layout, doing="weighing the modes")
        log_mass = np.array([log_mass_of(passes, anchor) for anchor in found])
    log_mass -= log_mass[0]
    matters = (log_mass > log_mass.max() + np.log(LEAST_MASS)) | (np.arange(len(found)) == 0)
    centres, roots = (np.stack(part)[matters] for part in ([a.theta for a in found], [a.root[0] for a in found]))
    return Modes(centres, roots, log_mass[matters], closed, cost + passes.cost)


def _same(one: Anchor, other: Anchor) -> bool:
    """Whether two climbs ended at one mode: less than one of its sds apart."""
    return bool(np.linalg.norm(Unpaired.by(other).z(one.theta)) < 1.0)
