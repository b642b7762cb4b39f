"""`Result`: what `lv.sample` returns. Every number has an error bar and a status, and the Laplace value beside it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from langevin.analysis.averages import estimate
from langevin.analysis.marginals import quantiles
from langevin.analysis.statuses import STATUSES, worse
from langevin.analysis.value import Estimate
from langevin.display import showing
from langevin.engine.draws import Draws
from langevin.engine.ledger import Ledger
from langevin.sampling import tables
from langevin.sampling.accuracy import best
from langevin.sampling.budget import Budget
from langevin.sampling.expectation import expectation
from langevin.sampling.extending import extended
from langevin.sampling.mixing import after_exact
from langevin.sampling.planning import Plan
from langevin.sampling.session import Session
from langevin.sampling.troubles import Trouble, after, of_moves
from langevin.sampling.visits import widened

if TYPE_CHECKING:
    from langevin.mixed.latent import Latent

PyTree = Any


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """Posterior expectations from one run of `lv.sample`; print it for a table, `explain()` it for the reasons.

    Example:
        >>> import langevin as lv
        >>> model = lv.models.Logistic.simulate(seed=1)
        >>> result = lv.sample(model.target, model.data, model.theta_0, passes=20)
        >>> result.names
        ('theta[0]', 'theta[1]', 'theta[2]')
        >>> result.quantiles((0.025, 0.975)).status
        'ok'
    """

    session: Session

    @property
    def plan(self) -> Plan:
        """The choices made before the run and what they rest on."""
        return self.session.plan

    @property
    def ledger(self) -> Ledger:
        """The books: weighted sums by chain and row."""
        assert self.session.ledger is not None
        return self.session.ledger

    @property
    def draws(self) -> Draws:
        """Kept draws: `theta` and `grad` (chains, draws, d), each draw with the `weight` of the steps it stands for.

        Weights fall with the step size: averages over draws must be weighted.
        """
        assert self.ledger.draws is not None
        return self.ledger.draws

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the flat parameters, from the paths in theta's pytree."""
        return self.ledger.names

    @property
    def passes(self) -> float:
        """Sampling cost in passes, the guard's data included."""
        return self.ledger.cost / self.plan.num_data

    @property
    def setup_passes(self) -> float:
        """Cost of the anchor, the pilot, the survey of modes and the warm-up of an exact run, in passes."""
        warm_up = 0.0 if self.session.tuned is None else self.session.tuned.cost
        return (self.plan.setup_cost + warm_up) / self.plan.num_data

    @property
    def seconds(self) -> float:
        """Wall-clock of set-up and sampling, compilation included."""
        return self.plan.setup_seconds + self.session.seconds

    @property
    def method(self) -> str:
        """How the numbers were obtained: "minibatch" or "exact"."""
        return self.plan.method

    @property
    def partial(self) -> bool:
        """Whether the run was interrupted before its budget was spent."""
        return self.session.stopped == "interrupted"

    @property
    def outdated(self) -> bool:
        """Whether the run has gone on since, in a Result that `extend` returned."""
        return self.session.run is not None and self.session.run.m > self.session.steps

    @cached_property
    def troubles(self) -> tuple[Trouble, ...]:
        """What stands against trusting the numbers, each with its status and a remedy; empty for a clean run."""
        known: list[Trouble] = []
        survey, rules, precision = self.plan.survey, self.plan.rules, self.plan.budget.precision
        if self.session.tuned is not None:
            found = after_exact(self.ledger, survey, self.session.tuned.modes, self.session.tuned.moments, precision)
        else:
            known = [trouble for trouble in self.plan.troubles if trouble.status != "too_few_batches"]
            found = after(self.ledger, survey, rules, self.session.batch_size, self.session.outside, precision)
        corrected = estimate(self.ledger, "corrected")
        moved = of_moves(self.session.moves, precision, corrected["theta.mean"], corrected["theta.sd"])
        return tuple(dict.fromkeys([*known, *found, *moved]))

    @cached_property
    def _estimates(self) -> dict[str, Estimate]:
        found = best(self.ledger)
        scale = found["theta.sd"].value
        for moved in self.session.moves.values():
            for name, error in zip(("theta.mean", "theta.sd"), moved, strict=True):
                more = np.hypot(np.nan_to_num(found[name].bias), error * scale)
                found[name] = replace(found[name], bias=np.where(error > 0.0, more, found[name].bias))
        found["theta.sd"] = widened(found["theta.sd"], self.ledger, self.plan.survey.outskirts)
        return {name: self._judged(one) for name, one in found.items()}

    @cached_property
    def raw(self) -> dict[str, Estimate]:
        """The plain step-weighted averages, without the Poisson correction."""
        return estimate(self.ledger, "raw")

    def _judged(self, one: Estimate) -> Estimate:
        """The estimate with the statuses of the run's troubles; without a bar where no interval can be given."""
        for trouble in self.troubles:
            one = replace(one, statuses=worse(one.statuses, trouble.status))
        refused = [trouble.status for trouble in self.troubles if trouble.refused]
        if refused:
            # What the batches say of such a run would only distract from it.
            statuses = np.full(one.statuses.shape, min(refused, key=STATUSES.index))
            one = replace(one, statuses=statuses, stderr=np.full_like(one.stderr, np.nan))
        return one

    @property
    def mean(self) -> Estimate:
        """Posterior means of the flat parameters."""
        return self._estimates["theta.mean"]

    @property
    def sd(self) -> Estimate:
        """Posterior standard deviations of the flat parameters."""
        return self._estimates["theta.sd"]

    @property
    def covariance(self) -> Estimate:
        """Posterior covariance matrix (d, d); kept up to 32 parameters."""
        if "theta.covariance" not in self._estimates:
            raise ValueError(
                f"covariance is kept for at most 32 parameters, and there are {len(self.names)}. "
                f"Ask for those you need: result.expectation(lambda theta: ...)."
            )
        return self._estimates["theta.covariance"]

    @property
    def status(self) -> str:
        """The worst status of all means and sds: 'ok', or what to worry about first."""
        return worse(np.asarray(self.mean.status), self.sd.status).item()

    def quantiles(self, probabilities: ArrayLike = (0.025, 0.5, 0.975)) -> Estimate:
        """Posterior quantiles (probabilities, d), each with its error bar, from every step of the run.

        Beyond 64 parameters from the kept draws, and without a correction.
        """
        return self._judged(quantiles(self.ledger, probabilities))

    def expectation(self, phi: Callable[..., Any], data: PyTree = None) -> Estimate:
        """Posterior expectation of phi(theta), any JAX function with values in an array, with its own error bar.

        With `data`, phi(theta, datum) is averaged for every datum of new data: predictive expectations, datum first.
        Computed from the kept draws and corrected with their gradients; a phi that is flat at the mode, such as an
        indicator, has status `uncorrected`.
        """
        with showing(None):
            return self._judged(expectation(self.ledger, phi, data))

    def latent(self, groups: ArrayLike) -> "Latent":
        """Posterior mean, sd and 2.5%, 50% and 97.5% quantiles of these groups' latent effects, with error bars.

        groups: labels, where the data came from `lv.groups`, else numbers. For targets made with `lv.marginal`. Cost:
        about three evaluations of each group at every kept draw.
        """
        from langevin.mixed.latent import of_groups

        return of_groups(self, groups)

    def summary(self) -> dict[str, Any]:
        """Columns by name, arrays over the flat parameters.

        `mean`, `sd`, `q2.5`, `q50` and `q97.5` describe the posterior; `mcse_mean` and so on are the Monte Carlo
        standard errors of these numbers, which shrink as the run grows; the Laplace and the raw values stand beside
        them, and the status of each parameter. Intervals for the numbers themselves: `result.mean.interval()`.
        """
        return tables.columns(self)

    def to_dataframe(self) -> Any:
        """The summary as a pandas data frame, one row a parameter."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_dataframe() needs pandas, which is not installed: pip install pandas") from error
        return pandas.DataFrame(self.summary()).set_index("name")

    def extend(
        self,
        *,
        passes: float | None = None,
        time_limit: float | None = None,
        precision: float | None = None,
        progress: bool | None = None,
        checkpoint: str | Path | None = None,
    ) -> "Result":
        """A new Result of the same run, gone on for more passes or seconds, or to a precision.

        The batch size may grow at the border, so that the noise stays below the shrinking bars: an extended run is
        then not bit for bit the single longer one, but carries the same guarantees. A run that is over and was kept in
        a folder goes on there, others in `checkpoint`, new or of this run: after a crash the same calls, or
        `lv.resume`, end with the same bits.
        """
        asked = Budget(passes, time_limit, precision).checked()
        with showing(progress):
            return Result(extended(self.session, asked, self.passes, checkpoint))

    def save(self, path: str | Path) -> None:
        """Writes the run to a directory: arrays (.npz) and JSON, no code. `lv.load(path)` reads it back."""
        from langevin.sampling.store import save

        save(self.session, Path(path))

    def plot(self, kind: str = "forest", names: Sequence[str] | None = None) -> Any:
        """A matplotlib figure of some parameters: `result.plot().savefig("posterior.png")`.

        kind: "forest" for posterior intervals with the Monte Carlo error of the means; "marginals" for densities beside
        the Laplace approximation; "running" for estimates as they were at earlier times T_m, with their bars; "pairs"
        for draws of the parameters that go together most; "predictive", of a fit, for replicated data beside the data.
        """
        from langevin.report.plots import plot

        return plot(self, kind, names)

    def report(self, path: str | Path) -> None:
        """Writes one HTML file that needs nothing else: verdict, estimates, pictures, error budget, cost.

        Its pictures are drawn by the browser, offline too. Needs the extra `report`.
        """
        from langevin.report.page import write_report

        write_report(self, Path(path))

    def to_arviz(self, transform: Callable[[PyTree], Any] | None = None) -> Any:
        """An ArviZ DataTree: `posterior`, the kept draws resampled to equal weights, and `estimates`, the summary.

        transform: of theta into a dict of what should be stored in place of its own leaves, e.g. constrained values.
        """
        from langevin.bridges.arviz import to_arviz

        return to_arviz(self, transform)

    def explain(self) -> str:
        """In plain words: what was run, why, and how far to trust it."""
        from langevin.sampling.words import explain

        return explain(self)

    def __str__(self) -> str:
        from langevin.sampling.words import table

        return table(self)

    def _repr_html_(self) -> str:
        from langevin.sampling.words import notes

        return tables.as_html(self, notes(self))

    def __repr__(self) -> str:
        return f"Result({len(self.names)} parameters, {self.passes:.3g} passes [{self.status}])"
