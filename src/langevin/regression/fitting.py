"""`lv.fit`: a regression from a table and a formula, with a posterior whose error bars can be believed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from langevin.networks.sampler import FROM_PARAMETERS
from langevin.regression.design import as_table, complete, design
from langevin.regression.families import FAMILIES, Family
from langevin.regression.model import Model, check_design
from langevin.sampling import Result, sample

Table = Any
# Draws of the posterior behind a prediction: a 95% interval's ends are then known to a tenth of an sd.
_DRAWS = 400
# Rows of a prediction that are worked out at once.
_ROWS = 4096


@dataclass(frozen=True, eq=False, repr=False)
class Fit(Result):
    """What `lv.fit` returns: a `Result` whose parameters are named after the columns, and that predicts.

    Example:
        >>> import numpy as np, langevin as lv
        >>> x = np.linspace(-1, 1, 200)
        >>> fit = lv.fit({"x": x, "y": 2 * x + np.sin(99 * x)}, "y ~ x", precision=0.1)
        >>> fit.names
        ('Intercept', 'x', 'log sigma')
        >>> sorted(fit.predict({"x": [0.0, 0.5]}))
        ['lower', 'mean', 'predicted_lower', 'predicted_upper', 'upper']
    """

    model: Model
    dropped: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters: columns of the design, then what the family and the groups add."""
        return self.model.names

    def extend(self, **budget: Any) -> "Fit":
        """See `Result.extend`."""
        return Fit(super().extend(**budget).session, self.model, self.dropped)

    def predict(self, data: Any, *, offset: Any = None, level: float = 0.95, seed: int = 0) -> dict[str, np.ndarray]:
        """The expected response for every row of new data, with intervals; one column for each level of the response.

        `mean` is its posterior mean, `lower` and `upper` end the credible interval of the expected response,
        `predicted_lower` and `predicted_upper` that of a new observation. With groups both are for a group that was not
        seen: effects are drawn. From 400 draws of the posterior. Cost: as many evaluations of the rows.
        """
        table = as_table(data)
        x, z = self.model.design.matrices(table)
        rows = self.model.rows(x, z, column(table, offset, "offset", 0.0))
        theta, rng = self._equal_draws(seed), np.random.default_rng(seed)
        effects = rng.standard_normal((_DRAWS, z.shape[1])).astype(np.float32)
        ends = (0.5 - 0.5 * level, 0.5 + 0.5 * level)
        parts = []
        for at in range(0, len(x), _ROWS):
            few = {name: array[at : at + _ROWS] for name, array in rows.items()}
            parts.append(self._predicted(theta, effects, few, ends, rng))
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _predicted(
        self, theta: Any, effects: np.ndarray, rows: Mapping[str, np.ndarray], ends: tuple, rng: np.random.Generator
    ) -> dict[str, np.ndarray]:
        model = self.model

        def one(draw: Any, z: Any) -> Any:
            varying = model.effects(draw, z) if z.size else None
            return model.family.mean(model.predictor(draw, rows, varying), draw)

        expected = np.asarray(jax.vmap(one)(theta, effects), np.float64)
        lower, upper = np.quantile(expected, ends, axis=0)
        found = {"mean": expected.mean(axis=0), "lower": lower, "upper": upper}
        if not model.family.levels:
            further = {name: np.asarray(value)[:, None] for name, value in theta.items() if np.ndim(value) == 1}
            new = model.family.draw(rng, expected, further)
            found["predicted_lower"], found["predicted_upper"] = np.quantile(new, ends, axis=0)
        return found

    def _equal_draws(self, seed: int) -> Any:
        """Draws of equal weight, in the order of the chains; kept ones have weights that fall with the steps."""
        draws = self.draws
        flat, weight = draws.theta.reshape(-1, draws.theta.shape[-1]), np.tile(draws.weight, draws.theta.shape[0])
        # Systematic resampling: each draw comes as often as its weight says, to within one.
        grid = (np.arange(_DRAWS) + np.random.default_rng(seed).random()) / _DRAWS
        places = np.searchsorted(np.cumsum(weight) / weight.sum(), grid)
        unravel = jax.vmap(self.plan.anchor.layout.unravel)
        return unravel(jnp.asarray(flat[np.minimum(places, len(flat) - 1)], jnp.float32))


def fit(
    data: Any,
    formula: str,
    *,
    family: str = "gaussian",
    priors: Mapping[str, Any] | None = None,
    weights: Any = None,
    offset: Any = None,
    trials: Any = None,
    missing: str = "refuse",
    **how: Any,
) -> Fit:
    """A regression from a table and a formula.

    data: a data frame (pandas, polars, arrow), a dict of columns, or the path of a .csv or .parquet file.
    formula: "y ~ x1 + C(x2) + x1:x3 + (1 + x1 | town)", as formulaic reads it, with at most one group term, whose
    effects are integrated out. family: gaussian, student, bernoulli, binomial (with `trials`), poisson,
    negative-binomial, categorical or ordinal, each with its usual link. weights, offset, trials: columns of the data by
    name, or arrays. missing: "refuse" rows with missing values, or "drop" them. All else goes to `lv.sample`:
    precision=0.02 where nothing is given, passes, time_limit, method, chains, seed, progress, checkpoint.

    Priors of coefficients, unless `priors={"x1": "normal(0, 1)", ...}` says otherwise ("student_t(4, 0, 1)", "flat()"):
    normal with sd 2.5 u / sd(x), u the sd of the response for gaussian and student and 1 elsewhere; for the intercept,
    where all predictors have their means, normal about the link of the mean response with sd 2.5 u. The others:
    exponential with mean u for sigma, and mean 1 for phi; gamma(2, 0.1) for nu; exponential with mean u / sd(x) for sds
    between groups, with a uniform correlation of two; for the cuts of an ordinal response normal with sd 3, for the
    first and for the logarithms of the distances.

    Example:
        >>> import numpy as np, langevin as lv
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=500)
        >>> fit = lv.fit({"x": x, "late": rng.random(500) < 1 / (1 + np.exp(-x))}, "late ~ x", family="bernoulli")
        >>> fit.status
        'ok'
    """
    if family not in FAMILIES:
        raise ValueError(f"family must be one of {', '.join(FAMILIES)}, got {family!r}.")
    if missing not in ("refuse", "drop"):
        raise ValueError(f"missing must be 'refuse' or 'drop', got {missing!r}.")
    chosen_family, table = FAMILIES[family], as_table(data)
    named = tuple(one for one in (weights, offset, trials) if isinstance(one, str))
    table, dropped = complete(table, formula, named, missing == "drop")
    # The cuts of an ordinal response are its intercepts.
    found = design(formula, table, level=family != "ordinal")
    x, z = found.matrices(table)
    check_design(found, chosen_family, x)
    y, levels = response(table[found.response], chosen_family, found.response)
    answer = y
    if family == "binomial":
        total = column(table, trials, "trials", np.nan)
        if not np.all((total >= 1) & (total >= y) & (total == np.round(total))):
            raise ValueError("trials must be whole numbers, at least 1 and at least the successes. Try trials='n'.")
        answer, y = np.stack([y, total], axis=1), y / total
    model = Model.of(found, chosen_family, x, z, y, levels, priors)
    rows = model.rows(x, z, column(table, offset, "offset", 0.0))
    rows["y"] = answer.astype(np.int32 if chosen_family.levels else np.float32)
    rows["weight"] = column(table, weights, "weights", 1.0).astype(np.float32)
    labels = None if found.group is None else _labels(table[found.group])
    target, prepared = model.posterior(rows, labels)
    result = sample(target, prepared, model.theta_0(y), **how)
    if not isinstance(result, Result):
        raise ValueError(
            f"formula must make at most {FROM_PARAMETERS} coefficients, got {result.layout.size}: beyond, only "
            f"predictions are known well. Drop columns or levels, or insist with method='minibatch'."
        )
    return Fit(result.session, model, dropped)


def _labels(values: Any) -> np.ndarray:
    array = np.asarray(values)
    return array if array.dtype.kind in "biuf" else array.astype(str)


def column(table: Table, given: Any, name: str, default: float) -> np.ndarray:
    """A column of numbers by name, or as an array; the default where nothing is given."""
    if given is None:
        return np.full(len(table), default)
    if isinstance(given, str):
        if given not in table.columns:
            raise ValueError(f"{name} must name a column of the data, got {given!r}.")
        given = table[given]
    values = np.asarray(given, np.float64)
    if values.shape != (len(table),) or not np.isfinite(values).all():
        raise ValueError(f"{name} must hold one finite number a row, {len(table)} in all, got shape {values.shape}.")
    return values


def response(values: Any, family: Family, name: str) -> tuple[np.ndarray, tuple[Any, ...]]:
    """The response as numbers, and its levels where it has some; raises where it is none of the family's."""
    two = family.name == "bernoulli"
    array = np.asarray(values)
    if family.levels or (two and array.dtype.kind not in "biuf"):
        categories = getattr(getattr(values, "cat", None), "categories", None)
        levels, codes = np.unique(array, return_inverse=True)
        if categories is not None:
            levels = np.asarray(categories)
            codes = np.asarray(values.cat.codes)
        y, found = codes.astype(np.float64), tuple(levels.tolist())
    else:
        if array.dtype.kind not in "biuf":
            raise ValueError(f"{name!r} must hold numbers for family {family.name!r}, got text such as {array[0]!r}.")
        y, found = array.astype(np.float64), ()
    if not np.isfinite(y).all() or not family.holds(y):
        shown = ", ".join(f"{value:g}" for value in np.unique(y)[:4])
        raise ValueError(f"{name!r} must hold {family.rule} for family {family.name!r}, got values {shown}, ...")
    return y, found if family.levels else ()
