"""How far a run of `lv.sample` goes next, by each limit of its budget, and with how many data a step."""

from collections.abc import Callable
from time import monotonic

import numpy as np

from langevin.display import tell
from langevin.engine.going import Going
from langevin.engine.ledger import Ledger
from langevin.engine.program import BASE_ROW, device_row_steps
from langevin.sampling.accuracy import accuracy
from langevin.sampling.budget import Budget
from langevin.sampling.choice import GRADIENTS_A_DRAW, exact_is_sooner
from langevin.sampling.mixing import after_exact
from langevin.sampling.planning import Plan
from langevin.sampling.rules import WANTED_STEPS
from langevin.sampling.travel import Modes, several
from langevin.saving.journal import Bookmark

_DOING = "sampling"
_FOR_EVER = np.iinfo(np.int64).max
# Where nothing limits the run before, in whole rows.
_LEAST = -(-WANTED_STEPS // BASE_ROW) * BASE_ROW
# A run for a precision or by the clock goes in stages, each at most so many times as long as all before it: forecasts
# of the error are rough, and the batch size follows the length of the run.
_LONGEST_STAGE = 8.0
# Room for the scatter of the error bar itself, so that the next stage is likely the last.
_MARGIN = 1.1
# More steps shrink neither a bias nor the noise of the gradient.
_HOPELESS = {"bias_dominates", "gradient_noise"}
# Why a run on minibatches ends before its precision is reached, where exact sampling is the shorter way.
SLOWER = "exact sampling is sooner"
SETTLED_BY_MORE = {"too_few_batches", "transient", "rare_excursions"}


class Pace:
    """Drives a prepared run through its budget."""

    # There is an end to patience, in least numbers of steps.
    patience = 10_000

    def __init__(
        self,
        plan: Plan,
        budget: Budget,
        run: Going,
        began: float,
        batch_size: int,
        goal: int = 0,
        modes: Modes | None = None,
    ) -> None:
        self.plan, self.budget, self.run, self.began, self.modes = plan, budget, run, began, modes
        # What was decided at the last border of two stages: until `goal`, with so many data a step.
        self.batch_size, self.goal = batch_size, goal
        # For the display: steps and datum visits before, since when, and what the precision was and where it is met.
        self._before = 0, 0.0, began
        self._forecast: tuple[int, float, float] | None = None

    def go(self, stop_requested: Callable[[], bool], bookmark: Bookmark) -> str:
        """Runs until a limit is reached, and says which one; "interrupted" after a Ctrl-C."""
        deadline = None if self.budget.time_limit is None else self.began + self.budget.time_limit
        self._before = self.run.m, self.run.visits, monotonic()
        tell(_DOING)
        while True:
            if self.goal <= self.run.m:
                self.goal, reason = self._next_goal()
                if self.goal <= self.run.m:
                    return reason
                self.set_batch_size(self.goal)
            self.run.advance(self.goal, watch=self._tell, deadline=deadline, bookmark=bookmark)
            if stop_requested():
                return "interrupted"
            if deadline is not None and monotonic() > deadline:
                return "time_limit"

    def _tell(self, m: int) -> None:
        """Tells how near the first limit is: the one of which the largest share is spent."""
        budget, (first, visits, since) = self.budget, self._before
        shares, note = [], ""
        if budget.precision is not None:
            if self._forecast is None:
                return tell(_DOING, note="a first look at the precision")
            at, reached, end = self._forecast
            shares.append((m - first) / max(end - first, 1.0))
            note = f"precision {reached * np.sqrt(at / m):.2g} -> {budget.precision:.2g} sds"
        if budget.passes is not None:
            shares.append((self.run.visits - visits) / max(budget.passes * self.plan.num_data - visits, 1.0))
        if budget.time_limit is not None:
            shares.append((monotonic() - since) / max(self.began + budget.time_limit - since, 1e-9))
        tell(_DOING, max(shares), note)

    @property
    def refused(self) -> bool:
        """Whether it is known beforehand that no interval will be given."""
        return any(trouble.refused for trouble in self.plan.troubles)

    def set_batch_size(self, goal: int) -> None:
        """Data a step for a run of `goal` steps: minibatches of one shape, as many of them as it takes."""
        rules = self.plan.rules
        if not rules.num_data or self.batch_size == rules.num_data:
            return
        self.batch_size = self._size(goal)
        self.run.rounds = rules.rounds(self.batch_size)

    def _size(self, goal: int) -> int:
        """Batch size for a run of `goal` steps; it never shrinks."""
        size = self.plan.rules.batch_size(float(goal * len(self.plan.chains)))
        size = max(self.batch_size, self.plan.rules.in_rounds(size))
        # N itself stands for every datum once: a run that draws its data takes one round more.
        return size + self.plan.rules.chunk if size == self.plan.rules.num_data else size

    def _next_goal(self) -> tuple[int, str]:
        """Steps to go to, a whole number of rows, and the limit that says so."""
        goal, reason = min((self._by_passes(), "passes"), (self._by_time(), "time_limit"), self._by_precision())
        row = device_row_steps(max(goal, 1))
        least = row if not self.run.m else 0
        return max(goal // row * row, least), reason

    def _by_passes(self) -> int:
        if self.budget.passes is None:
            return _FOR_EVER
        room = self.budget.passes * self.plan.num_data - self.run.visits
        rules, chains = self.plan.rules, len(self.plan.chains)
        size = self.batch_size
        if rules.num_data and size < rules.num_data:
            # What is left, with the size that a run of that length asks for.
            size = self._size(self.run.m + self._affordable(room, size, chains))
        return self.run.m + self._affordable(room, size, chains)

    def _affordable(self, room: float, size: int, chains: int) -> int:
        """Steps a chain that `room` datum visits pay for, the guard's calls included.

        How many rounds it adds is known after a first half of the run. Their number scatters: three standard deviations
        stay in reserve, and what is left of that is spent by the next, shorter stage.
        """
        if room <= 0:
            return 0
        rules, m = self.plan.rules, self.run.m
        guard = rules.guard(size)
        extra, share = rules.extra_rounds(size), 0.5 if guard > 1 else 1.0
        if m:
            # Too low where the minibatches were smaller before: never less than on a Gaussian.
            measured = self.run.visits / (max(size, 1) * m * chains) - 1.0
            extra, share = max(extra, measured) if guard > 1 else 0.0, 1.0
        each = max(size, 1) * (1.0 + extra)
        # A stay in the far tail is a few calls of `guard` rounds.
        reserve = 3.0 * size * np.sqrt(3.0 * guard * extra * share * room / each)
        steps = int((share * room - reserve) / (chains * each))
        # The last rows one by one: few of them are hit by a call.
        return steps if steps >= BASE_ROW else min(int(room / (chains * each)), BASE_ROW)

    def _by_time(self) -> int:
        if self.budget.time_limit is None:
            return _FOR_EVER
        return max(_LEAST, int(_LONGEST_STAGE * self.run.m))

    def _by_precision(self) -> tuple[int, str]:
        if self.budget.precision is None:
            return _FOR_EVER, "precision"
        m, least = self.run.m, _LEAST
        if self.refused:
            return least, "precision out of reach"
        if m < least:
            return least, "precision"
        ledger = self.run.ledger()
        statuses, worst = accuracy(ledger, several(self.modes), self.plan.survey.outskirts)
        if self._hopeless(ledger, statuses, m >= _LONGEST_STAGE * least) or m >= self.patience * least:
            return m, "precision out of reach"
        if worst <= self.budget.precision:
            # Doubts that a longer run settles, one way or the other, are not left to the user. They may cost eight of
            # the least runs, or eight times what the precision did, when bars are sqrt(8) times as short.
            room = m < _LONGEST_STAGE * least or worst > self.budget.precision / np.sqrt(_LONGEST_STAGE)
            more = (room and statuses & SETTLED_BY_MORE) or self._doubts(ledger) & SETTLED_BY_MORE
            self._forecast = m, worst, 2.0 * m
            return 2 * m if more else m, "precision"
        longer = (worst / self.budget.precision) ** 2 * _MARGIN
        self._forecast = (m, worst, m * longer) if np.isfinite(longer) else None
        if self._slower((longer - 1.0) * m):
            return m, SLOWER
        # A bar that is not known yet (NaN) asks for the longest stage.
        return int(np.ceil(m * np.fmin(longer, _LONGEST_STAGE))) + 256, "precision"

    def _slower(self, steps: float) -> bool:
        """Whether so many more steps take longer than exact sampling would."""
        # An extension is of this run: it has no other to give way to.
        if not np.isfinite(steps) or self.budget != self.plan.budget:
            return False
        size = self.plan.rules.batch_size((self.run.m + steps) * len(self.plan.chains))
        return exact_is_sooner(self.plan, steps, max(size, self.batch_size))

    def _doubts(self, ledger: Ledger) -> set[str]:
        """Statuses of the whole run, beside those of its means and sds."""
        return set()

    def _hopeless(self, ledger: Ledger, statuses: set[str], long: bool) -> bool:
        """Whether more steps would not help, as far as a `long` run or a short one can tell."""
        return long and bool(statuses & _HOPELESS)


class ExactPace(Pace):
    """The same for an exact run, whose steps cost what their paths take."""

    patience = 200
    refused = False

    def _affordable(self, room: float, size: int, chains: int) -> int:
        """Steps a chain that `room` datum visits pay for, at the cost of the steps so far."""
        if room <= 0:
            return 0
        m = self.run.m
        gradients = self.run.visits / (m * chains) if m else GRADIENTS_A_DRAW * max(size, 1)
        # Paths differ in length: the second half of the room waits until their cost is known.
        return int((1.0 if m else 0.5) * room / (chains * gradients))

    def _slower(self, steps: float) -> bool:
        return False

    def _doubts(self, ledger: Ledger) -> set[str]:
        found = after_exact(ledger, self.plan.survey, self.modes, np.inf, self.budget.precision)
        return {trouble.status for trouble in found}

    def _hopeless(self, ledger: Ledger, statuses: set[str], long: bool) -> bool:
        # Paths that break off ask for shorter steps, not for more of them; chains may meet yet.
        found = self._doubts(ledger)
        if "rare_excursions" in found:
            # Of a few draws far out each makes up much of a variance.
            found -= {"rare_excursions", "heavy_tails"}
        return bool(found) if long else "divergences" in found
