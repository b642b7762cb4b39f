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
from langevin.engine.checks import Unresolved, require, whole_number
from langevin.engine.draws import equal_places
from langevin.errors import AnchorError, Diverged
from langevin.mixed.latent import Latent
from langevin.networks.sampler import FROM_PARAMETERS
from langevin.regression.known import about_groups, of_sampled
from langevin.regression.model import Model, unresolved
from langevin.regression.predicting import Needs, NewRows, Prediction
from langevin.regression.preparing import prepared
from langevin.regression.reading import Prepared, Question
from langevin.regression.store import check_folder, packed, question, save_fit, unpacked
from langevin.regression.writing import written
from langevin.sampling import Result, sample
from langevin.sampling.extending import finished, knows_extension_alone
from langevin.sampling.store import stored_call, stored_session, with_target
from langevin.saving.folder import Folder
from langevin.saving.journal import FIT, Journal, noted

# Draws of the posterior behind a prediction: ends of a 95% interval are known to a thirtieth of an sd, to a tenth of
# one where rows are so many that all of it would take longer than a second.
_DRAWS, _FEW_DRAWS, _NUMBERS = 4000, 400, 4e7


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
        return self.model.forgets_groups

    def extend(self, **budget: Any) -> "Fit":
        """See `Result.extend`."""
        with noted({FIT: packed(self, self.asked)}):
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
        progress: bool | None = None,
    ) -> dict[str, np.ndarray]:
        """The expected response for every row of new data, with intervals; one column for each level of the response.

        `mean` is its posterior mean (a probability, for the binomial family), `lower` and `upper` end the credible
        interval of the expected response, `predicted_lower` and `predicted_upper` that of a new observation. Where
        groups were integrated out, every row is taken for one of a group that was not seen, whatever its label: effects
        are drawn from their law. `lv.fit(..., groups="sample")` and fits with several groupings know the groups that
        they have seen, and draw effects of others alone; `effects` and `latent` have the effects. The fit's own columns
        of offsets and trials are looked for, unless others are given. From `draws` of the posterior: 4000, or fewer
        beyond 10,000 rows and 400 beyond 100,000, which leave a standard error of 1.5% and of 5% of its width in an end
        of a 95% interval where as many were kept. Data may be in files, as for `lv.fit`: above 32 MB they are read some
        rows at a time, to the same numbers. Cost: as many evaluations of the rows; for files, a reading more.
        """
        with showing(progress):
            return self.predictions(data, offset, trials, level, draws, seed).arrays()

    def predict_to(
        self,
        out: str | PathLike,
        data: Any,
        *,
        offset: Any = None,
        trials: Any = None,
        level: float = 0.95,
        draws: int | None = None,
        seed: int = 0,
        progress: bool | None = None,
    ) -> None:
        """Writes what `predict` returns to a .csv or .parquet file, a column each, some rows at a time.

        The file appears when it is whole, in place of one that was there; a file of the data is refused. A response
        with levels has a column for each of them, "mean [level]".
        """
        with showing(progress), written(Path(out), data) as put:
            self.predictions(data, offset, trials, level, draws, seed).write(put)

    def predictions(
        self, data: Any, offset: Any, trials: Any, level: float, draws: int | None, seed: int
    ) -> Prediction:
        """What `predict` and `predict_to` work out; see there."""
        good = np.ndim(level) == 0 and np.isreal(level) and 0.0 < level < 1.0
        require(good, "level", level, "a number between 0 and 1", "0.95")
        if trials is not None and self.model.family.name != "binomial":
            raise ValueError(f"trials must be None for family {self.model.family.name!r}, which has none.")
        needs = Needs(self.model, {"offset": self.offset, "trials": self.trials}, {"offset": offset, "trials": trials})
        new = NewRows.of(data, needs)
        if draws is None:
            draws = int(np.clip(_NUMBERS / new.count, _FEW_DRAWS, _DRAWS))
        theta = self._equal_draws(whole_number("draws", draws, 2, try_this=_FEW_DRAWS), seed)
        return Prediction(self.model, new, theta, level, seed)

    def effects(self, groups: Any, by: str | None = None) -> Latent:
        """Posterior mean, sd and quantiles of these groups' effects where they were sampled, with error bars.

        groups: labels; of several columns joined by colons, "school 1:class 2". by: the grouping, as "school:class",
        where there are several. Numbers are (groups, effects), from the kept draws. `latent` has those that were
        integrated out.
        """
        return of_sampled(self, groups, by)

    def explain(self) -> str:
        """In plain words: what was run, why, and how far to trust it."""
        return "\n\n".join([super().explain(), *about_groups(self.model)])

    def __str__(self) -> str:
        text = super().__str__()
        if self.model.family.name == "bernoulli" and self.model.levels:
            text += f"\nModels the probability of {self.model.design.response} = {self.model.levels[1]!r}."
        text = "\n".join([text, *about_groups(self.model)])
        return text + f"\n{self.dropped} rows with missing values were left out." * bool(self.dropped)

    def _equal_draws(self, count: int, seed: int) -> Any:
        """Draws of equal weight, in the order of the chains; kept ones have weights that fall with the steps."""
        draws = self.draws
        flat, weight = draws.theta.reshape(-1, draws.theta.shape[-1]), np.tile(draws.weight, draws.theta.shape[0])
        places = equal_places(weight, count, np.random.default_rng(seed).random())
        return jax.vmap(self.plan.anchor.layout.unravel)(jnp.asarray(flat[places], jnp.float32))


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
    groups: str | None = None,
    **how: Any,
) -> Fit:
    """A regression from a table and a formula.

    data: a data frame (pandas, polars, arrow), a dict of columns, or the path of a .csv or .parquet file.
    formula: "y ~ x1 + C(x2) + x1:x3 + (1 + x1 | town)", as formulaic reads it. The effects of one grouping are
    integrated out; those of several, crossed as (1 | school) + (1 | year) or nested as (1 | school/class), which is (1
    | school) + (1 | school:class), do not factorise into groups and are sampled. family: gaussian, student, bernoulli,
    binomial (with `trials`), poisson, negative-binomial, categorical or ordinal, each with its usual link. weights,
    offset, trials: columns of the data by name, or arrays. levels: those of a response with levels, in their order; the
    second of two is the one whose probability is modelled. missing: "refuse" rows with missing values, or "drop" them.
    groups: "integrate" the effects of one grouping out, or "sample" them as parameters, for a few large groups that the
    data tell apart: a datum is then a row and not a group, and predictions know the groups that were seen. All else
    goes to `lv.sample`: precision=0.02 where nothing is given, passes, time_limit, method, chains, seed, progress,
    checkpoint.

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
        if not ready.model.groups or ready.model.information:
            raise
        raise ValueError(
            f"groups='sample' must come with groups that the data tell apart, and these "
            f"({ready.model.effects[0].group!r}) seem to differ too little, or to be too small ({error}). Use "
            f"groups='integrate'."
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
    journal = Journal.of(Folder(path))
    if FIT not in journal:
        raise ValueError(f"path must lead to a checkpoint of lv.fit, got {path}, a run of lv.sample. Use lv.resume.")
    apart = knows_extension_alone(journal)
    settings = {} if apart else stored_call(path, None)
    asked = question(journal[FIT])
    if data is None and asked.source is None:
        raise ValueError(f"data must be given: those of {path} came from memory, not from a file.")
    if apart:
        found = stored_fit(journal, path, asked.source if data is None else data)
        with showing(progress):
            return replace(found, session=finished(found.session, path))
    how = {name: value for name, value in settings.items() if name not in ("theta_0", "data")}
    what = {name: value for name, value in vars(asked).items() if name != "source"}
    found = fit(asked.source if data is None else data, **what, **how, checkpoint=path, progress=progress)
    with showing(progress):
        return found if found.partial else replace(found, session=finished(found.session, path))
