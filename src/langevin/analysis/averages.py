"""`estimate`: every expectation of a ledger with its error bar, its bias and a status."""

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from langevin.analysis import errorbars, extrapolate
from langevin.analysis.errorbars import Batches, Rows
from langevin.analysis.judge import judge
from langevin.analysis.law import law, of_stays
from langevin.analysis.statuses import words, worse
from langevin.analysis.value import Estimate

if TYPE_CHECKING:
    from langevin.engine.ledger import Column, Ledger

Array = NDArray[np.float64]

METHODS = ("raw", "corrected", "intercept")
LEAST_ACCEPTANCE = 0.01
# In posterior sds: nobody is misled by the shape of a bar that is shorter than this.
NEGLIGIBLE = 5e-3
# The spacing of float32 numbers near 1.
ROUNDING = 2.0**-23


def estimate(ledger: "Ledger", method: str = "raw", pool: bool = True) -> dict[str, Estimate]:
    """An `Estimate` of every observable by name; `Moments` named "theta" gives "theta.mean" and so on.

        raw        sum omega phi / sum omega,   phi at the left end point theta_{m-1}
        corrected  sum omega (phi - A_hat h) / sum omega,   h the anchor's Poisson solution
        intercept  batch means regressed on the batch's mean step, at step 0

    Chains are pooled; `pool=False` gives every array a chain axis instead, before the observable's own axes.
    Cost: one pass over the rows. Assumes batches longer than the memory of the chain; says so in the status
    where it can tell.

    Example:
        >>> import langevin as lv
        >>> target = lv.Target(lambda t: -0.5 * t**2)
        >>> ledger = lv.run(target, None, 0.0, kernel=lv.MALA(), schedule=lv.Constant(1.0), num_steps=4000, chains=4)
        >>> sorted(lv.estimate(ledger))
        ['theta.covariance', 'theta.mean', 'theta.sd', 'theta.variance']
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}.")
    if method == "corrected" and ledger.corrections is None:
        raise ValueError(
            "method='corrected' needs a run with an anchor, and this ledger has none: the correction is "
            "computed along the run. Use lv.run(..., anchor=lv.laplace(...)), or method='intercept'."
        )
    settings = ledger.schedule.batch_shape
    # A gradient may have left float32 at a draw or two of a steep density: its correction is not known then.
    with np.errstate(invalid="ignore", over="ignore"):
        parts = [Setting(ledger, index, method, pool).estimates() for index in np.ndindex(settings)]
    return {name: _stack([part[name] for part in parts], settings, pool) for name in parts[0]}


def _stack(parts: list[Estimate], settings: tuple[int, ...], pool: bool) -> Estimate:
    """One Estimate of all schedule settings; the axis of groups goes when chains were pooled."""

    def join(name: str) -> Any:
        values = [getattr(part, name) for part in parts]
        if values[0] is None or name == "log_scale":
            return values[0]
        grouped = name not in ("T_m", "B_m", "num_batches", "laplace")
        array = np.stack([value[0] if grouped and pool else value for value in values])
        return array.reshape((*settings, *array.shape[1:]))

    return Estimate(**{field.name: join(field.name) for field in fields(Estimate)})


def only(found: Estimate) -> Estimate:
    """The estimate of the only group, without an axis for groups."""
    return _stack([found], (), pool=True)


class Setting:
    """The analysis of one schedule setting; arrays are (groups, values) until shaped at the end."""

    def __init__(self, ledger: "Ledger", index: tuple[int, ...], method: str, pool: bool) -> None:
        self.ledger, self.index, self.method, self.pool = ledger, index, method, pool
        self.rows = Rows(ledger.sum_delta[index], ledger.sum_delta2[index], ledger.sum_omega[index])
        self.law = law(ledger, index, self.rows, pool)
        # A kernel that does not state its law may have any bias.
        self.untold = not ledger.kernel.has_theory
        # Corrected values have hardly any memory.
        self.relaxations = None if self.law is None or method == "corrected" else self.law.relaxations
        self.stays = None
        if ledger.stays is not None:
            self.stays = of_stays(ledger, index, self.rows, line=method == "intercept")
            # But they remember the shard.
            relaxation = 0.0 if self.relaxations is None else 1.0 / max(self.relaxations, 1e-300)
            self.relaxations = 1.0 / (relaxation + ledger.stays.stay / ledger.num_steps)
        # A chain that accepts next to nothing has not left its start, and its batches agree for no good reason.
        self.stuck = False
        if ledger.acceptance is not None:
            accepted = ledger.acceptance[index].sum(axis=-1) / ledger.num_steps
            self.stuck = bool(accepted.min() < LEAST_ACCEPTANCE)

    def estimates(self) -> dict[str, Estimate]:
        """Estimates of all observables by name."""
        found = {}
        for name, column in self.ledger.columns.items():
            if column.marginals:
                continue
            for suffix, part in self._observable(name, column):
                found[name + suffix] = part
        return found

    def batches(self, name: str) -> Batches:
        """Batches of one observable by this setting's method."""
        sums = self.ledger.values[name][self.index]
        if self.method == "corrected" and self.ledger.corrections is not None:
            sums = sums + self.ledger.corrections[name][self.index]
        if self.pool:
            sums = self.ledger.units(sums)
        # A line needs steps that differ, so a chain is cut into ten batches however many chains there are.
        fewest = 10 if self.method == "intercept" else errorbars.FEWEST_BATCHES
        chains = len(sums) if self.pool else 1
        count = errorbars.batch_count(sums.shape[1], chains, fewest, self.relaxations)
        return errorbars.batch(sums, self.rows, count, self.pool)

    def _observable(self, name: str, column: "Column") -> Iterator[tuple[str, Estimate]]:
        batches = self.batches(name)
        hessian = column.hessian
        mean, influence = batches.mean, batches.influence
        anchor = self.ledger.anchor
        if column.pairs is None:
            laplace = None if column.trace is None else column.reference + 0.5 * column.trace
            flat = self._flat(name)
            known = None if np.all(flat) else hessian
            entry = self.entry(batches, mean + column.reference, influence, known, laplace, column.shape)
            # Without a bias to begin with nothing is missing.
            flat = np.broadcast_to(flat.reshape(column.shape), entry.statuses.shape) & (not self.ledger.exact)
            statuses = worse(entry.statuses, "uncorrected", flat)
            entry = replace(entry, bias=np.where(flat, np.nan, entry.bias), statuses=statuses)
            yield "", entry
            return
        d = column.reference.size
        first, m1 = influence[..., :d], mean[:, :d]
        theta = None if anchor is None else anchor.theta
        linear = None if hessian is None else hessian[:d]
        i, j = column.pairs
        # Posterior sds, and what second moments are measured by.
        unit = None if anchor is None else anchor.sd
        units = None if unit is None else 2.0 * unit[i] * unit[j]
        shift, widened = (None, None) if self.stays is None else (self.stays[0], self.stays[1][i, j])
        yield ".mean", self.entry(batches, m1 + column.reference, first, linear, theta, (d,), unit, shift)
        # Bias of u_i u_j - m1_i m1_j: that of the first moments vanishes to first order.
        quadratic = None if hessian is None else hessian[d:]
        second = influence[..., d:] - m1[:, None, None, i] * first[..., j] - m1[:, None, None, j] * first[..., i]
        # A plug-in covariance falls short by the covariance of the means, which the batches estimate.
        count = batches.count
        short = count / max(count - 1, 1) * np.einsum("gckv,gckv->gv", first[..., i], first[..., j])
        covariance = mean[:, d:] - m1[:, i] * m1[:, j] + short
        laplace = None if column.trace is None else 0.5 * column.trace[d:]
        both = self.entry(batches, covariance, second, quadratic, laplace, (len(i),), units, widened)
        diagonal = np.flatnonzero(i == j)
        variance = _take(both, diagonal)
        # With r = stderr/value, log(1 + r w) over its own r/(1 + r w) is w + r w^2/2: the log undoes so much skewness.
        undone = 1.5 * np.sqrt(count) * variance.stderr / np.where(variance.value > 0, variance.value, np.inf)
        variance = replace(variance, skewness=variance.skewness - undone, log_scale=True)
        variance = replace(variance, statuses=worse(variance.statuses, "rare_excursions", variance.value <= 0))
        yield ".variance", variance
        yield ".sd", _square_root(variance)
        if len(i) == d * (d + 1) // 2:
            square = np.zeros((d, d), dtype=np.int64)
            square[i, j] = square[j, i] = np.arange(len(i))
            yield ".covariance", _take(both, square)

    def _flat(self, name: str) -> NDArray[np.bool_]:
        """Values that the correction leaves alone, because they are flat at the anchor, as an indicator is."""
        size = self.ledger.values[name].shape[-1]
        if self.method != "corrected" or self.ledger.corrections is None:
            return np.zeros(size, dtype=bool)
        return ~np.any(self.ledger.corrections[name][self.index], axis=(0, 1))

    def entry(
        self,
        batches: Batches,
        value: Array,
        influence: Array,
        hessian: Array | None,
        laplace: Array | None,
        shape: tuple[int, ...],
        unit: Array | None = None,
        strayed: Array | None = None,
    ) -> Estimate:
        """One Estimate from linearised batch values; `unit` is the posterior's own scale, where it is known.

        `strayed`: what long stays with single shards add to the values; where there are such and it is None, nobody
        knows.
        """
        means = value[:, None, None] + influence * (batches.total / batches.omega[:, None])
        line = None
        if batches.spread > extrapolate.LEAST_SPREAD and batches.count > 4:
            line = extrapolate.regress(means, batches.omega, batches.step)
        spread = errorbars.bar(influence)
        if unit is not None:
            # The device counts in float32: no sum of a run is known better than that.
            spread = spread._replace(stderr=np.hypot(spread.stderr, ROUNDING * unit))
        bias, beyond = np.zeros(value.shape), np.zeros(value.shape, dtype=bool)
        blind = False
        settled = value if strayed is None else value - strayed
        paired = self.ledger.coordinates.paired
        reused = self.method == "corrected" and not self.ledger.iid and self.ledger.stays is None
        if self.method == "corrected":
            bias, beyond = extrapolate.corrected_bias(self.law, hessian, laplace, settled, spread, paired)
            if reused and self.law is not None and hessian is not None:
                carried = self.law.reused(hessian)
                bias, beyond = bias + carried, beyond | (np.abs(carried) > spread.stderr)
        elif self.method == "raw" and not self.ledger.exact:
            bias, beyond = extrapolate.raw_bias(self.law, hessian, laplace, line, settled, spread, paired)
            # Without an anchor it depends on the steps whether a run can tell its bias from its fluctuations.
            blind = self.law is None and (line is None or line.leverage > extrapolate.MOST_LEVERAGE)
        elif self.method == "intercept":
            if line is None:
                raise ValueError(
                    f"method='intercept' needs steps that vary and more than four batches, got a mean step "
                    f"that varies by {batches.spread:.1%} over {batches.count} batches. Use a decreasing "
                    f"schedule such as lv.Polynomial(alpha=1/3), more steps, or an anchor with 'corrected'."
                )
            value, spread = line.intercept, line.bar
        if strayed is not None:
            bias, beyond = bias + strayed, beyond | (np.abs(strayed) > spread.stderr)
        elif self.ledger.stays is not None:
            bias, blind = np.full(value.shape, np.nan), True
        codes = judge(
            batches,
            means - value[:, None, None],
            spread,
            beyond=beyond,
            uncorrected=blind or self.untold,
            trend=self.method != "corrected" and line is not None and not self.ledger.exact,
            # Paired chains start at draws of the Laplace approximation: there is next to nothing to settle.
            settling=not paired,
            inflation=None if self.law is None else self.law.inflation,
            noisy=self.ledger.noisy,
            reused=reused,
            relaxations=self.relaxations,
            stuck=self.stuck,
            negligible=np.False_ if unit is None else spread.stderr < NEGLIGIBLE * unit,
        )
        chains = len(self.ledger.chains) if self.pool else 1

        def shaped(array: Any) -> Any:
            return array.reshape(len(value), *shape)

        return Estimate(
            value=shaped(value),
            stderr=shaped(spread.stderr),
            df=shaped(spread.df),
            bias=shaped(np.broadcast_to(bias, value.shape)),
            sigma2=shaped(spread.stderr**2 * chains * self.rows.time),
            kurtosis=shaped(spread.kurtosis),
            skewness=shaped(spread.skewness),
            statuses=words(shaped(codes)),
            T_m=np.asarray(self.rows.time),
            B_m=np.asarray(self.rows.delta2.sum() / np.sqrt(self.rows.time)),
            num_batches=np.asarray(batches.count),
            laplace=None if laplace is None else laplace.reshape(shape),
            noise_inflation=None if self.law is None else self.law.inflation,
        )


def _take(whole: Estimate, index: NDArray[np.int64]) -> Estimate:
    """The entries `index` of an Estimate whose values lie on one axis after the groups."""
    names = ("value", "stderr", "df", "bias", "sigma2", "kurtosis", "skewness", "statuses")
    taken = {name: getattr(whole, name)[:, index] for name in names}
    return replace(whole, **taken, laplace=None if whole.laplace is None else whole.laplace[index])


def _square_root(variance: Estimate) -> Estimate:
    """A standard deviation by the delta method, d sd = d variance / (2 sd); NaN where not positive."""
    sd = np.sqrt(np.where(variance.value > 0, variance.value, np.nan))
    return replace(
        variance,
        value=sd,
        stderr=variance.stderr / (2.0 * sd),
        # Not by the delta method: the variance may be mostly bias.
        bias=sd - np.sqrt(np.maximum(variance.value - variance.bias, 0.0)),
        sigma2=variance.sigma2 / (4.0 * sd**2),
        laplace=None if variance.laplace is None else np.sqrt(variance.laplace),
    )
