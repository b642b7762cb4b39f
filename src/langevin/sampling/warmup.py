"""The warm-up of an exact run: finds the step, and new units of length where the draws disagree with the old ones."""

from dataclasses import replace
from typing import Any

import numpy as np

from langevin.anchor import Anchor
from langevin.coordinates import Unpaired, times
from langevin.data.source import DataSource
from langevin.display import tell
from langevin.engine.ledger import Ledger
from langevin.engine.prepared import Prepared
from langevin.engine.run import Run
from langevin.engine.setup import stream_keys
from langevin.kernels import NUTS
from langevin.limits import checkpoint
from langevin.sampling.planning import Plan
from langevin.sampling.strategies import Tuned, exact_call
from langevin.sampling.travel import LEAST_MASS, Modes, explored
from langevin.saving.journal import Journal
from langevin.schedules import Custom
from langevin.target import Target

# A stream of its own.
_STREAM = 0x5741524D
_DOING = "warming up the exact sampler"
# The whitened step at which a Gaussian of some tens of dimensions accepts eight proposals in ten.
_FIRST_STEP = 0.5
# Rounds in which the step is set, and transitions of each: with four chains the acceptance is known to a few percent.
_ROUNDS, _ROUND_STEPS = 8, 16
# Draws of a window: ten for every parameter, and enough to see a unit of length that is wrong by a factor of 1.4.
_FEWEST_DRAWS, _DRAWS_PER_PARAMETER, _LONGEST_WINDOW = 256, 10, 1024
_MOST_WINDOWS = 8
# Variances of whitened draws that are left alone: NUTS loses less than half its speed.
_VARIANCES = (0.5, 2.0)
# A mean farther off than this, in sds, moves quantiles towards the border of the grid on which they are streamed.
_MOST_SHIFT = 0.5
# Means of chains that differ by more than this part of the spread say that they have not met yet.
_MOST_APART = 0.1
# Units are never refitted beyond this dimension: it would take ten times as many draws.
_MOST_REFITTED = 400
# Where more paths than this break off, steps are made smaller: more proposals must be accepted.
_MOST_DIVERGENCES, _CAREFUL = 0.002, (0.95, 0.99)
# A mode is too light to start from if it were so even with a Laplace approximation that is off by a factor of 20.
_LAPLACE_OFF = 3.0
# A start is pulled in at most so often: to a millionth of its distance.
_HALVINGS = 20


def warm_up(target: Target, source: DataSource | None, plan: Plan, journal: Journal) -> Tuned:
    """Windows of draws, each with its own step, until draws and units of length agree.

    The Laplace approximation most often gives units that need no change: then one window is all. Else the draws' own
    mean and covariance take its place, and the next window is twice as long. The draws are thrown away.
    """
    rng = np.random.default_rng([plan.seed, _STREAM])
    modes = journal.found("modes", lambda: explored(target, source, plan))
    cost = 0.0 if modes is None else float(modes.cost)
    tuned = Tuned(_FIRST_STEP, plan.anchor, _starts(plan, modes, rng), False, 0.0, cost, modes=modes)
    goal, d = NUTS.target_acceptance, plan.rules.dimension
    wanted = np.clip(_DRAWS_PER_PARAMETER * d, _FEWEST_DRAWS, 4 * _FEWEST_DRAWS)
    length = -(-int(wanted) // len(plan.chains))
    for window in range(_MOST_WINDOWS):
        seed, steps = int(rng.integers(2**63)), min(length << window, _LONGEST_WINDOW)

        def looked(
            before: Tuned = tuned, goal: float = goal, seed: int = seed, steps: int = steps, number: int = window + 1
        ) -> Any:
            begun = _Window(exact_call(target, source, plan, before), before.delta, seed, number)
            begun.settle(goal)
            return begun.look(before, steps)

        tuned, draws = journal.found(f"window {window}", looked)
        if tuned.divergences > _MOST_DIVERGENCES and goal < _CAREFUL[-1]:
            goal = next(more for more in _CAREFUL if more > goal)
            continue
        # Paths that still break off in such numbers will go on to: the run's own diagnostics have the last word.
        hopeless = tuned.divergences > 10 * _MOST_DIVERGENCES
        z = tuned.units.z(draws)
        if tuned.modes is not None:
            # Each mode about its own centre: the distance between modes is no unit of length.
            modes = tuned.modes.refitted(draws)
            z = z - tuned.units.z(modes.centres)[modes.nearest(draws)]
            tuned = replace(tuned, modes=modes)
        if hopeless or d > _MOST_REFITTED or _agree(z):
            break
        tuned = replace(tuned, anchor=_refitted(tuned.anchor, z), refitted=True)
    return tuned


def _starts(plan: Plan, modes: Modes | None, rng: np.random.Generator) -> np.ndarray:
    """Draws of the Laplace approximation; where the survey found other modes, some chains start there."""
    heavy = plan.survey.log_mass > np.log(LEAST_MASS) - _LAPLACE_OFF
    centres = [plan.anchor.theta] if modes is None else [*modes.centres, *plan.survey.modes[heavy]]
    z = rng.standard_normal((len(plan.chains), plan.rules.dimension))
    drawn = Unpaired.by(plan.anchor).theta(z)
    return np.stack([draw if not k % len(centres) else centres[k % len(centres)] for k, draw in enumerate(drawn)])


class _Window:
    """A run whose step can be changed as it goes."""

    def __init__(self, call: Prepared, delta: float, seed: int, number: int) -> None:
        self.delta, self._number = delta, number
        # Transitions from each of these on have the step beside it.
        self._since, self._steps = [1], [delta]
        keys = stream_keys(call.program, call.coordinates, call.chains, seed)
        self._call = replace(call, keys=keys, schedule=Custom(self._step_of))
        self._run = self._placed()

    def _step_of(self, m: np.ndarray) -> np.ndarray:
        return np.array(self._steps)[np.searchsorted(self._since, m, side="right") - 1]

    def _placed(self) -> Run:
        """The run with its chains at points of positive density: starts beyond a bound are pulled in by halves."""
        call = self._call
        for _ in range(_HALVINGS):
            run = Run(call)
            run.start()
            outside = ~np.isfinite(run.carry().state.log_density[0])
            if not outside.any():
                break
            call = replace(call, starts=np.where(outside[:, None], 0.5 * call.starts, call.starts))
        return run

    def _advance(self, num_steps: int) -> Ledger:
        checkpoint(_DOING, note=f"window {self._number}")
        self._run.advance(self._run.m + num_steps, watch=self._tell)
        return self._run.ledger()

    def _tell(self, m: int) -> None:
        tell(_DOING, note=f"window {self._number}, transition {m}")

    def settle(self, goal: float) -> None:
        """Finds the step at which proposals are accepted at the rate `goal`.

        The energy error of a path is nearly normal with a spread proportional to delta, so the acceptance is
        erfc(k delta): each round solves for k. Rounds after the third count less and less, since what they see is
        noisy.
        """
        from scipy.special import erfcinv

        seen = 0.0
        for k in range(_ROUNDS):
            total = _accepted(self._advance(_ROUND_STEPS))
            rate, seen = (total - seen) / (_ROUND_STEPS * len(self._call.chains)), total
            ratio = float(np.clip(erfcinv(goal) / erfcinv(np.clip(rate, 0.02, 0.995)), 1.0 / 16.0, 4.0))
            self.delta *= ratio ** (1.0 / max(k - 1, 1))
            self._since.append(self._run.m + 1)
            self._steps.append(self.delta)

    def look(self, tuned: Tuned, num_steps: int) -> tuple[Tuned, np.ndarray]:
        """Some more transitions at the step that was found: what is known after them, and their draws."""
        before = self._run.ledger()
        ledger = self._advance(num_steps)
        assert ledger.divergences is not None and before.divergences is not None and ledger.draws is not None
        diverged = float(ledger.divergences.sum() - before.divergences.sum())
        found = replace(
            tuned,
            delta=self.delta,
            starts=last_positions(ledger),
            divergences=diverged / (num_steps * len(self._call.chains)),
            cost=tuned.cost + ledger.cost,
        )
        # In the order of memory in which a file would bring them back: sums follow it to the last bit.
        return found, np.ascontiguousarray(ledger.draws.theta[:, ledger.draws.m > before.num_steps])


def last_positions(ledger: Ledger) -> np.ndarray:
    """Where the chains stand, flat, (chains, d)."""
    return ledger.coordinates.theta(ledger.checkpoint.carry.state.theta[0].astype(np.float64))


def _accepted(ledger: Ledger) -> float:
    return 0.0 if ledger.acceptance is None else float(ledger.acceptance.sum())


def _agree(z: np.ndarray) -> bool:
    """Whether draws (chains, draws, d) in units of length look like N(0, I), but for what so few of them show."""
    _, count, d = z.shape
    flat = z.reshape(-1, d)
    # Eigenvalues of a sample covariance scatter by this much about those of the truth (Marchenko and Pastur).
    scatter = np.sqrt(d / len(flat))
    values = np.linalg.eigvalsh(np.cov(flat.T).reshape(d, d))
    low, high = _VARIANCES[0] * max(1.0 - scatter, 0.0) ** 2, _VARIANCES[1] * (1.0 + scatter) ** 2
    spread = flat.std(axis=0)
    shift = np.abs(flat.mean(axis=0)) - 3.0 * spread / np.sqrt(len(flat))
    apart = z.mean(axis=1).var(axis=0) / spread**2 - 3.0 / count
    return bool(values[0] > low and values[-1] < high and np.all(shift < _MOST_SHIFT) and np.all(apart < _MOST_APART))


def _refitted(anchor: Anchor, z: np.ndarray) -> Anchor:
    """The Gaussian with the moments of these draws, with a few of the old one among them: never singular."""
    d = z.shape[-1]
    flat = z.reshape(-1, d)
    weight = len(flat) / (len(flat) + d + 1.0)
    covariance = weight * np.cov(flat.T).reshape(d, d) + (1.0 - weight) * np.eye(d)
    units = Unpaired.by(anchor)
    # L C L' for C of the whitened draws: its root is L times that of C, lower triangular again.
    root = times(anchor.root, np.linalg.cholesky(covariance).T).T
    return Anchor(
        theta=units.theta(flat.mean(axis=0)).astype(np.float32).astype(np.float64),
        root=(root,),
        covariance=root @ root.T,
        precision=np.linalg.inv(root @ root.T),
        likelihood_grad=None,
        likelihood_hessian=None,
        layout=anchor.layout,
    )
