"""`lv.fit`: a regression from a table and a formula, with a posterior whose error bars can be believed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from langevin.display import showing, tell
from langevin.engine.checks import Unresolved, whole_number
from langevin.engine.draws import equal_places
from langevin.errors import AnchorError, Diverged
from langevin.networks.sampler import FROM_PARAMETERS
from langevin.regression.model import Model, unresolved
from langevin.regression.preparing import prepared
from langevin.regression.reading import Prepared, Question, column, group_labels
from langevin.regression.store import check_folder, packed, question, save_fit, unpacked
from langevin.regression.tables import as_table
from langevin.sampling import Result, sample
from langevin.sampling.store import stored_call, stored_session, with_target
from langevin.saving.folder import Folder
from langevin.saving.journal import FIT, Journal, noted

Table = Any
# Draws of the posterior behind a prediction: ends of a 95% interval are known to a thirtieth of an sd, to a tenth of
# one where rows are so many that all of it would take longer than a second.
_DRAWS, _FEW_DRAWS, _NUMBERS = 4000, 400, 4e7
# Numbers of a prediction that are worked out at once.
_AT_ONCE = 2**21


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
    asked: Question
    dropped: int = 0
    # Names of the columns that a prediction needs too.
    offset: str | None = None
    trials: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters: columns of the design, then what the family and the groups add."""
        return self.model.names

    @property
    def forgets_groups(self) -> bool:
        """Whether effects of groups were integrated out: predictions take every group for a new one."""
        return self.model.design.group is not None and not self.model.groups

    def extend(self, **budget: Any) -> "Fit":
        """See `Result.extend`."""
        return replace(self, session=super().extend(**budget).session)

    def save(self, path: str | PathLike) -> None:
        """Writes run and model to a directory, arrays and JSON, no code. `lv.load(path)` reads it back and predicts.

        The data stay where they are: `lv.load(path, data=table)` takes them to extend the run.
        """
        save_fit(self.session, self, self.asked, Path(path))

    def predict(
        self,
        data: Any,
        *,
        offset: Any = None,
        trials: Any = None,
        level: float = 0.95,
        draws: int | None = None,
        seed: int = 0,
    ) -> dict[str, np.ndarray]:
        """The expected response for every row of new data, with intervals; one column for each level of the response.

        `mean` is its posterior mean (a probability, for the binomial family), `lower` and `upper` end the credible
        interval of the expected response, `predicted_lower` and `predicted_upper` that of a new observation. Where
        groups were integrated out, every row is taken for one of a group that was not seen, whatever its label: effects
        are drawn from their law. `lv.fit(..., groups="sample")` knows the groups that it has seen, and
        `Result.latent(labels)` has the effects of groups that were integrated out. The fit's own columns of offsets and
        trials are looked for, unless others are given. From `draws` of the posterior: 4000, or fewer beyond 10,000 rows
        and 400 beyond 100,000, which leave a standard error of 1.5% and of 5% of its width in an end of a 95% interval
        where as many were kept. Cost: as many evaluations of the rows.
        """
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must lie in (0, 1), got {level!r}. Try level=0.95.")
        table = as_table(data)
        x, z = self.model.design.matrices(table)
        known, scaled = self._needed(table, offset, "offset", 0.0), self.model.family.scaled
        rows = self.model.rows(x, z, np.zeros(len(x)) if scaled else known)
        if trials is not None and self.model.family.name != "binomial":
            raise ValueError(f"trials must be None for family {self.model.family.name!r}, which has none.")
        rows["trials"] = self._needed(table, trials, "trials", 1.0)
        if self.model.groups:
            rows["group"] = self.model.codes(group_labels(self.model.design.groups_of(table)))
        if draws is None:
            draws = int(np.clip(_NUMBERS / len(x), _FEW_DRAWS, _DRAWS))
        theta = self._equal_draws(whole_number("draws", draws, 2, try_this=_FEW_DRAWS), seed)
        rng, step = np.random.default_rng(seed), max(1, _AT_ONCE // draws)
        effects = rng.standard_normal((draws, z.shape[1])).astype(np.float32)
        ends = (0.5 - 0.5 * level, 0.5 + 0.5 * level)
        parts = []
        for at in range(0, len(x), step):
            few = {name: array[at : at + step] for name, array in rows.items()}
            parts.append(self._predicted(theta, effects, few, ends, rng))
        found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        # As in the fit, an offset in the units of the response never meets float32.
        return {name: values + known for name, values in found.items()} if scaled else found

    def __str__(self) -> str:
        text = super().__str__()
        if self.model.family.name == "bernoulli" and self.model.levels:
            text += f"\nModels the probability of {self.model.design.response} = {self.model.levels[1]!r}."
        if self.forgets_groups:
            text += "\nPredictions are for groups that were not seen; groups='sample' makes them know those that were."
        return text + f"\n{self.dropped} rows with missing values were left out." * bool(self.dropped)

    def _predicted(
        self, theta: Any, effects: np.ndarray, rows: Mapping[str, np.ndarray], ends: tuple, rng: np.random.Generator
    ) -> dict[str, np.ndarray]:
        model = self.model

        def one(draw: Any, z: Any) -> Any:
            varying = model.effects(draw, z) if z.size else None
            return model.family.mean(model.predictor(draw, rows, varying), draw)

        expected = np.asarray(jax.vmap(one)(theta, effects), np.float64)
        lower, upper = _ends(expected, ends)
        found = {"mean": expected.mean(axis=0), "lower": lower, "upper": upper}
        if not model.family.levels:
            further = {name: np.asarray(value)[:, None] for name, value in theta.items() if np.ndim(value) == 1}
            further["trials"] = rows["trials"]
            new = model.family.draw(rng, expected, further)
            found["predicted_lower"], found["predicted_upper"] = _ends(new, ends)
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
        places = equal_places(weight, count, np.random.default_rng(seed).random())
        return jax.vmap(self.plan.anchor.layout.unravel)(jnp.asarray(flat[places], jnp.float32))


def _ends(values: np.ndarray, ends: tuple) -> list[np.ndarray]:
    """Quantiles over the first axis, between neighbouring draws, as `np.quantile` has them; several times as fast."""
    ordered = np.sort(np.ascontiguousarray(np.moveaxis(values, 0, -1), np.float32), axis=-1)
    found = []
    for place in np.array(ends) * (len(values) - 1):
        low, part = int(place), place % 1.0
        below, above = ordered[..., low], ordered[..., min(low + 1, len(values) - 1)]
        found.append(below + part * (above - below))
    return found


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
    groups: str = "integrate",
    **how: Any,
) -> Fit:
    """A regression from a table and a formula.

    data: a data frame (pandas, polars, arrow), a dict of columns, or the path of a .csv or .parquet file.
    formula: "y ~ x1 + C(x2) + x1:x3 + (1 + x1 | town)", as formulaic reads it, with at most one group term, whose
    effects are integrated out. family: gaussian, student, bernoulli, binomial (with `trials`), poisson,
    negative-binomial, categorical or ordinal, each with its usual link. weights, offset, trials: columns of the data by
    name, or arrays. levels: those of a response with levels, in their order; the second of two is the one whose
    probability is modelled. missing: "refuse" rows with missing values, or "drop" them. groups: "integrate" their
    effects out, or "sample" them as parameters, for a few large groups that the data tell apart: a datum is then a row
    and not a group, and predictions know the groups that were seen. All else goes to `lv.sample`: precision=0.02 where
    nothing is given, passes, time_limit, method, chains, seed, progress, checkpoint.

    Priors of coefficients, unless `priors={"x1": "normal(0, 1)", ...}` says otherwise ("student_t(4, 0, 1)", "flat()"):
    normal with sd 2.5 u / sd(x), u the sd of the response less its offset for gaussian and student (the root mean
    square in a formula without an intercept) and 1 elsewhere; for the intercept, where all predictors have their means,
    normal about the link of the mean response with sd 2.5 u. What is given for "Intercept" is about the same place. The
    others: exponential with mean u for sigma, and mean 1 for phi; gamma(2, 0.1) for nu; exponential with mean u / sd(x)
    for sds between groups, with a uniform correlation of two; for the cuts of an ordinal response normal with sd 3, for
    the first (where all predictors have their means) and for the logarithms of the distances.

    A column farther from zero than a thousand of its sds, such as seconds since 1970, gets a zero near its mean, and
    the intercept says so: "Intercept (t = 1700002000)".

    Example:
        >>> import numpy as np, langevin as lv
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=500)
        >>> fit = lv.fit({"x": x, "late": rng.random(500) < 1 / (1 + np.exp(-x))}, "late ~ x", family="bernoulli")
        >>> fit.status
        'ok'
    """
    where = str(data) if isinstance(data, str | PathLike) else None
    order = None if levels is None else tuple(levels)
    asked = Question(formula, family, priors, weights, offset, trials, order, missing, groups, where)
    with showing(how.pop("progress", None)):
        tell("reading the data")
        ready = prepared(asked, data)
        stored = packed(ready, asked)
        check_folder(how.get("checkpoint"), stored)
        with noted({FIT: stored}):
            result = _sampled(ready, how)
    if not isinstance(result, Result):
        raise ValueError(
            f"formula must make at most {FROM_PARAMETERS} coefficients, got {result.layout.size}: beyond, only "
            f"predictions are known well. Drop columns or levels, or insist with method='minibatch'."
        )
    return Fit(result.session, ready.model, asked, ready.dropped, ready.offset, ready.trials)


def _sampled(ready: Prepared, how: dict[str, Any]) -> Any:
    try:
        return sample(ready.target, ready.data, ready.theta_0, **how)
    except Unresolved as error:
        name, known_to = ready.model.names[error.place], f"a posterior sd of {error.sd:.2g}"
        raise unresolved(name, error.mode, known_to, 1e3 * error.sd) from error
    except (AnchorError, Diverged, ArithmeticError) as error:
        if not ready.model.groups:
            raise
        raise ValueError(
            f"groups='sample' must come with groups that the data tell apart, and these ({ready.model.design.group!r}) "
            f"seem to differ too little, or to be too small ({error}). Use groups='integrate'."
        ) from error


def stored_fit(journal: Journal, path: Path, data: Any = None) -> Fit:
    """The fit of a folder, as far as its run has come; with its data it can be extended."""
    try:
        model, asked, dropped, offset, trials = unpacked(journal[FIT])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} was written by another version of langevin, or changed since: this one cannot make a fit of it "
            f"({type(error).__name__}: {error})."
        ) from error
    session = stored_session(journal, path)
    if data is not None:
        ready = prepared(asked, data)
        session = with_target(session, ready.target, ready.data)
    return Fit(session, model, asked, dropped, offset, trials)


def resume_fit(path: Path, data: Any = None, progress: bool | None = None) -> Fit:
    """Goes on with `lv.fit(..., checkpoint=path)`, with data from where they were unless they are given."""
    settings = stored_call(path, None)
    journal = Journal.of(Folder(path))
    if FIT not in journal:
        raise ValueError(f"path must lead to a checkpoint of lv.fit, got {path}, a run of lv.sample. Use lv.resume.")
    asked = question(journal[FIT])
    if data is None and asked.source is None:
        raise ValueError(f"data must be given: those of {path} came from memory, not from a file.")
    how = {name: value for name, value in settings.items() if name not in ("theta_0", "data")}
    what = {name: value for name, value in vars(asked).items() if name != "source"}
    return fit(asked.source if data is None else data, **what, **how, checkpoint=path, progress=progress)
