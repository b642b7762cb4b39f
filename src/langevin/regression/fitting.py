"""`lv.fit`: a regression from a table and a formula, with a posterior whose error bars can be believed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from langevin.engine.checks import whole_number
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
    # Names of the columns that a prediction needs too.
    offset: str | None = None
    trials: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters: columns of the design, then what the family and the groups add."""
        return self.model.names

    def extend(self, **budget: Any) -> "Fit":
        """See `Result.extend`."""
        return replace(self, session=super().extend(**budget).session)

    def predict(
        self,
        data: Any,
        *,
        offset: Any = None,
        trials: Any = None,
        level: float = 0.95,
        draws: int = _DRAWS,
        seed: int = 0,
    ) -> dict[str, np.ndarray]:
        """The expected response for every row of new data, with intervals; one column for each level of the response.

        `mean` is its posterior mean (a probability, for the binomial family), `lower` and `upper` end the credible
        interval of the expected response, `predicted_lower` and `predicted_upper` that of a new observation. With
        groups both are for a group that was not seen: effects are drawn. The fit's own columns of offsets and trials
        are looked for, unless others are given. From `draws` of the posterior, 400 of which leave a twentieth of its
        width in an end of a 95% interval (one standard error). Cost: as many evaluations of the rows.
        """
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must lie in (0, 1), got {level!r}. Try level=0.95.")
        table = as_table(data)
        x, z = self.model.design.matrices(table)
        rows = self.model.rows(x, z, self._needed(table, offset, "offset", 0.0))
        rows["trials"] = self._needed(table, trials, "trials", 1.0)
        theta, rng = self._equal_draws(whole_number("draws", draws, 2), seed), np.random.default_rng(seed)
        effects = rng.standard_normal((draws, z.shape[1])).astype(np.float32)
        ends = (0.5 - 0.5 * level, 0.5 + 0.5 * level)
        parts = []
        for at in range(0, len(x), _ROWS):
            few = {name: array[at : at + _ROWS] for name, array in rows.items()}
            parts.append(self._predicted(theta, effects, few, ends, rng))
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def __str__(self) -> str:
        text = super().__str__()
        if self.model.family.name == "bernoulli" and self.model.levels:
            text += f"\nModels the probability of {self.model.design.response} = {self.model.levels[1]!r}."
        return text + f"\n{self.dropped} rows with missing values were left out." * bool(self.dropped)

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
            further["trials"] = rows["trials"]
            new = model.family.draw(rng, expected, further)
            found["predicted_lower"], found["predicted_upper"] = np.quantile(new, ends, axis=0)
        return found

    def _needed(self, table: Table, given: Any, name: str, default: float) -> np.ndarray:
        """A column that the fit had too: as given, by the name that it had, or not at all where it had none."""
        known = getattr(self, name)
        if given is None and known is not None and known not in table.columns:
            raise ValueError(
                f"{name} must be given, since the fit had one: a column {known!r} of the data, or an array."
            )
        return column(table, known if given is None else given, name, default)

    def _equal_draws(self, count: int, seed: int) -> Any:
        """Draws of equal weight, in the order of the chains; kept ones have weights that fall with the steps."""
        draws = self.draws
        flat, weight = draws.theta.reshape(-1, draws.theta.shape[-1]), np.tile(draws.weight, draws.theta.shape[0])
        # Systematic resampling: each draw comes as often as its weight says, to within one.
        grid = (np.arange(count) + np.random.default_rng(seed).random()) / count
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
    levels: Sequence[Any] | None = None,
    missing: str = "refuse",
    **how: Any,
) -> Fit:
    """A regression from a table and a formula.

    data: a data frame (pandas, polars, arrow), a dict of columns, or the path of a .csv or .parquet file.
    formula: "y ~ x1 + C(x2) + x1:x3 + (1 + x1 | town)", as formulaic reads it, with at most one group term, whose
    effects are integrated out. family: gaussian, student, bernoulli, binomial (with `trials`), poisson,
    negative-binomial, categorical or ordinal, each with its usual link. weights, offset, trials: columns of the data by
    name, or arrays. levels: those of a response with levels, in their order; the second of two is the one whose
    probability is modelled. missing: "refuse" rows with missing values, or "drop" them. All else goes to `lv.sample`:
    precision=0.02 where nothing is given, passes, time_limit, method, chains, seed, progress, checkpoint.

    Priors of coefficients, unless `priors={"x1": "normal(0, 1)", ...}` says otherwise ("student_t(4, 0, 1)", "flat()"):
    normal with sd 2.5 u / sd(x), u the sd of the response for gaussian and student and 1 elsewhere; for the intercept,
    where all predictors have their means, normal about the link of the mean response with sd 2.5 u. The others:
    exponential with mean u for sigma, and mean 1 for phi; gamma(2, 0.1) for nu; exponential with mean u / sd(x) for sds
    between groups, with a uniform correlation of two; for the cuts of an ordinal response normal with sd 3, for the
    first (where all predictors have their means) and for the logarithms of the distances.

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
    named: dict[str, str | None] = {}
    for name, given in (("weights", weights), ("offset", offset), ("trials", trials)):
        # An array is a column too: rows that are dropped take their entries along.
        named[name] = given if given is None or isinstance(given, str) else f"({name})"
        if named[name] is not None:
            table = table.assign(**{str(named[name]): column(table, given, name, np.nan, finite=False)})
    used = tuple(name for name in named.values() if name is not None)
    table, dropped = complete(table, formula, used, missing == "drop")
    # The cuts of an ordinal response are its intercepts.
    found = design(formula, table, level=family != "ordinal")
    x, z = found.matrices(table)
    check_design(found, chosen_family, x)
    y, seen = response(table[found.response], chosen_family, found.response, levels)
    answer = y
    if family == "binomial":
        total = column(table, named["trials"], "trials", 0.0)
        if not np.all((total >= 1) & (total >= y) & (total == np.round(total))):
            raise ValueError("trials must be whole numbers, at least 1 and at least the successes. Try trials='n'.")
        answer, y = np.stack([y, total], axis=1), y / total
    shift = column(table, named["offset"], "offset", 0.0)
    model = Model.of(found, chosen_family, x, z, y, shift, seen, priors)
    rows = model.rows(x, z, shift)
    rows["y"] = answer.astype(np.int32 if chosen_family.levels else np.float32)
    rows["weight"] = column(table, named["weights"], "weights", 1.0).astype(np.float32)
    if np.any(rows["weight"] < 0):
        raise ValueError(f"weights must be 0 or more, got {rows['weight'].min():g}. Leave rows out that do not count.")
    labels = None if found.group is None else _labels(table[found.group])
    target, prepared = model.posterior(rows, labels)
    result = sample(target, prepared, model.theta_0(y), **how)
    if not isinstance(result, Result):
        raise ValueError(
            f"formula must make at most {FROM_PARAMETERS} coefficients, got {result.layout.size}: beyond, only "
            f"predictions are known well. Drop columns or levels, or insist with method='minibatch'."
        )
    return Fit(result.session, model, dropped, named["offset"], named["trials"])


def _labels(values: Any) -> np.ndarray:
    array = np.asarray(values)
    return array if array.dtype.kind in "biuf" else array.astype(str)


def column(table: Table, given: Any, name: str, default: float, finite: bool = True) -> np.ndarray:
    """A column of numbers by name, or as an array; the default where nothing is given."""
    if given is None:
        return np.full(len(table), default)
    if isinstance(given, str):
        if given not in table.columns:
            raise ValueError(f"{name} must name a column of the data, got {given!r}.")
        given = table[given]
    values = np.asarray(given, np.float64)
    if values.shape != (len(table),) or (finite and not np.isfinite(values).all()):
        raise ValueError(f"{name} must hold one finite number a row, {len(table)} in all, got shape {values.shape}.")
    return values


def response(values: Any, family: Family, name: str, order: Sequence[Any] | None) -> tuple[np.ndarray, tuple[Any, ...]]:
    """The response as numbers, and its levels where it has some; raises where it is none of the family's."""
    array = np.asarray(values)
    text = array.dtype.kind not in "biuf"
    if family.levels or (family.name == "bernoulli" and (text or order is not None)):
        found = _levels(values, array, family, name, order)
        y = np.array([found.index(value) for value in array.tolist()], np.float64)
        if len(found) < (3 if family.levels else 2) or not family.holds(y):
            raise ValueError(f"{name!r} must hold {family.rule} for family {family.name!r}, got {list(found)[:4]}.")
        return y, found
    if text:
        raise ValueError(f"{name!r} must hold numbers for family {family.name!r}, got text such as {array[0]!r}.")
    y = array.astype(np.float64)
    if not np.isfinite(y).all() or not family.holds(y):
        shown = ", ".join(f"{value:g}" for value in np.unique(y)[:4])
        raise ValueError(f"{name!r} must hold {family.rule} for family {family.name!r}, got values {shown}, ...")
    return y, ()


def _levels(values: Any, array: np.ndarray, family: Family, name: str, order: Sequence[Any] | None) -> tuple[Any, ...]:
    """The levels in the user's order, in that of a categorical column, or sorted."""
    seen, categories = np.unique(array).tolist(), getattr(values, "cat", None)
    if order is not None:
        unknown = [value for value in seen if value not in list(order)]
        if unknown or len(set(order)) != len(order):
            raise ValueError(
                f"levels must list every level of {name!r} once, got {list(order)!r}, and {seen[:6]} occur."
            )
        return tuple(order)
    if categories is not None:
        return tuple(value for value in categories.categories.tolist() if value in seen)
    if family.name == "ordinal" and array.dtype.kind not in "biuf":
        raise ValueError(
            f"levels must be given for an ordinal response in words, whose order nobody can guess: {seen[:6]}. Try "
            f"levels={seen[:3]!r} in their order, an ordered categorical column, or numbers."
        )
    return tuple(seen)
