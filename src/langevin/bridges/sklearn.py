"""Bayesian regressions as scikit-learn has its estimators: `fit`, `predict`, `score`, in pipelines and searches."""

import warnings
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        "lv.sklearn needs scikit-learn, which is not installed: pip install 'langevin[sklearn]'"
    ) from error

from langevin.engine.draws import equal_places
from langevin.sampling import Result, sample
from langevin.target import Target

__all__ = ["BayesianLogisticRegression", "BayesianPoissonRegression", "BayesianRidgeRegression"]

PyTree = Any
# Draws behind a prediction: its Monte Carlo error is then a thirtieth of its posterior sd.
_DRAWS = 1000
# Noise below this many sds of the response is not told apart: with data on a plane its density would have no end.
_FLOOR = 1e-3


class _Regression(BaseEstimator):
    """What the three have in common: coefficients of standardised predictors, normal priors, a run of `lv.sample`."""

    def __init__(
        self,
        *,
        prior_sd: float = 2.5,
        precision: float = 0.05,
        time_limit: float = 600.0,
        random_state: Any = 0,
    ) -> None:
        self.prior_sd = prior_sd
        self.precision = precision
        self.time_limit = time_limit
        self.random_state = random_state

    def _sampled(self, x: np.ndarray, y: np.ndarray, theta_0: PyTree) -> None:
        """Runs and keeps coefficients on the scale of the columns, draws of them, and the run's own verdict."""
        if not self.prior_sd > 0:
            raise ValueError(f"prior_sd must be positive, got {self.prior_sd!r}. Try prior_sd=2.5.")
        self._centre, scale = x.mean(axis=0), x.std(axis=0)
        # A constant column says nothing, in whatever units.
        self._scale = np.where(scale > 0, scale, 1.0)
        data = {"x": ((x - self._centre) / self._scale).astype(np.float32), "y": y}
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        result = sample(
            _target(self._family, float(self.prior_sd)), data, theta_0, precision=self.precision,
            time_limit=self.time_limit, seed=seed, progress=False, method="auto",
        )  # fmt: skip
        assert isinstance(result, Result)
        self.result_, self.status_, self.n_iter_ = result, result.status, result.ledger.num_steps
        if result.status != "ok":
            warnings.warn(
                f"the error bars are not to be trusted as they are [{result.status}]; see result_.explain()",
                ConvergenceWarning,
                stacklevel=3,
            )
        layout = result.plan.anchor.layout
        draws = result.draws.theta.reshape(-1, layout.size)
        weight = np.tile(result.draws.weight, result.draws.theta.shape[0])
        self._draws = jax.tree.map(
            lambda leaf: np.asarray(leaf, np.float64),
            jax.vmap(layout.unravel)(jnp.asarray(draws[equal_places(weight, _DRAWS)], jnp.float32)),
        )
        self._mean = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), layout.unravel(result.mean.value))
        self.coef_ = (self._mean["coefficients"].T / self._scale).copy()
        self.coef_sd_ = np.asarray(layout.unravel(result.sd.value)["coefficients"]).T / self._scale
        self.intercept_ = self._mean["intercept"] - self.coef_ @ self._centre

    def __getstate__(self) -> dict[str, Any]:
        """Without the run itself, whose functions cannot be stored."""
        state = dict(super().__getstate__())
        state.pop("result_", None)
        return state

    def _predictors(self, x: Any) -> np.ndarray:
        """The linear predictor of every row for every draw, (draws, rows, ...)."""
        check_is_fitted(self)
        x = (validate_data(self, x, reset=False, dtype=np.float64) - self._centre) / self._scale
        moved = np.tensordot(self._draws["coefficients"], x, axes=([1], [1]))
        # (draws, [classes,] rows): rows come second.
        return np.moveaxis(moved, -1, 1) + self._draws["intercept"][:, None]


class BayesianRidgeRegression(RegressorMixin, _Regression):
    """Linear regression with normal priors and unknown noise; posterior means with sds.

        y = intercept + x beta + sigma eta,   beta_j sd(x_j) / sd(y) ~ N(0, prior_sd^2),   sigma / sd(y) ~ Exp(1)

    `coef_`, `intercept_`, `coef_sd_`, `sigma_` are posterior means and sds; `result_` is the whole `lv.Result` in
    standardised units (it is left out when the estimator is pickled), `status_` its verdict. `precision` in posterior
    sds. Noise below a thousandth of sd(y) is not told apart from it. Cost: a run of `lv.sample`.

    Example:
        >>> import numpy as np, langevin as lv
        >>> x = np.linspace(-1, 1, 100)[:, None]
        >>> model = lv.sklearn.BayesianRidgeRegression().fit(x, 2 * x[:, 0] + np.sin(99 * x[:, 0]))
        >>> mean, std = model.predict(x[:3], return_std=True)
        >>> mean.shape, std.shape
        ((3,), (3,))
    """

    _family = "gaussian"

    def fit(self, X: Any, y: Any) -> "BayesianRidgeRegression":
        """Samples the posterior of the coefficients."""
        x, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        self._y_centre, spread = y.mean(), y.std()
        self._y_scale = spread if spread > 0 else 1.0
        theta_0 = {"intercept": np.zeros(()), "coefficients": np.zeros(x.shape[1]), "log_sigma": np.zeros(())}
        self._sampled(x, ((y - self._y_centre) / self._y_scale).astype(np.float32), theta_0)
        self.coef_, self.coef_sd_ = self._y_scale * self.coef_, self._y_scale * self.coef_sd_
        self.intercept_ = self._y_centre + self._y_scale * self.intercept_
        self.sigma_ = float(self._y_scale * np.exp(self._draws["log_sigma"]).mean())
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Posterior mean of the response; with `return_std` also the sd of a new observation, noise included.

        As in scikit-learn's BayesianRidge: std^2 = E sigma^2 + var(intercept + x beta).
        """
        check_is_fitted(self)
        x = validate_data(self, X, reset=False, dtype=np.float64)
        mean = self.intercept_ + x @ self.coef_
        if not return_std:
            return mean
        noise = np.mean(np.exp(2.0 * self._draws["log_sigma"]))
        return mean, self._y_scale * np.sqrt(noise + self._predictors(x).var(axis=0))


class BayesianPoissonRegression(RegressorMixin, _Regression):
    """Poisson regression with a log link and normal priors; posterior means with sds.

        y ~ Poisson(exp(intercept + x beta)),   beta_j sd(x_j) ~ N(0, prior_sd^2)

    Attributes as in `BayesianRidgeRegression`. Cost: a run of `lv.sample`.

    Example:
        >>> import numpy as np, langevin as lv
        >>> x = np.linspace(-1, 1, 100)[:, None]
        >>> lv.sklearn.BayesianPoissonRegression().fit(x, np.round(np.exp(x[:, 0]))).coef_.shape
        (1,)
    """

    _family = "poisson"

    def fit(self, X: Any, y: Any) -> "BayesianPoissonRegression":
        """Samples the posterior of the coefficients."""
        x, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        if np.any(y < 0):
            raise ValueError(f"y must be counts, not negative, got {y.min():g}.")
        start = {"intercept": np.asarray(np.log(y.mean() + 0.5 / len(y))), "coefficients": np.zeros(x.shape[1])}
        self._sampled(x, y.astype(np.float32), start)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Posterior mean of the expected count; with `return_std` also the sd of a new count, Poisson noise included.

        std^2 = E rate + var(rate).
        """
        rates = np.exp(self._predictors(X))
        mean = rates.mean(axis=0)
        return (mean, np.sqrt(mean + rates.var(axis=0))) if return_std else mean

    def __sklearn_tags__(self) -> Any:
        """Counts are not negative."""
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


class BayesianLogisticRegression(ClassifierMixin, _Regression):
    """Logistic regression of two or more classes with normal priors; class probabilities averaged over the posterior.

        log P(y = k) / P(y = 0) = intercept_k + x beta_k,   beta_jk sd(x_j) ~ N(0, prior_sd^2)

    `coef_` and `coef_sd_` are (classes - 1, features): log odds against the first class. Other attributes as in
    `BayesianRidgeRegression`. Cost: a run of `lv.sample`.

    Example:
        >>> import numpy as np, langevin as lv
        >>> x = np.linspace(-1, 1, 100)[:, None]
        >>> model = lv.sklearn.BayesianLogisticRegression().fit(x, x[:, 0] + np.sin(99 * x[:, 0]) > 0)
        >>> model.predict_proba(x[:3]).shape
        (3, 2)
    """

    _family = "categorical"

    def fit(self, X: Any, y: Any) -> "BayesianLogisticRegression":
        """Samples the posterior of the coefficients."""
        x, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        further = len(self.classes_) - 1
        if not further:
            raise ValueError(f"y must have at least two classes, got one class, {self.classes_[0]!r}.")
        theta_0 = {"intercept": np.zeros(further), "coefficients": np.zeros((x.shape[1], further))}
        self._sampled(x, codes.astype(np.int32), theta_0)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Posterior mean of every class's probability, (rows, classes)."""
        return self._probabilities(X).mean(axis=0)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The likeliest class; with `return_std` also the posterior sd of its probability.

        A class has no sd: this is that of the number in `predict_proba`, how well the data determine it, and not that
        of a new observation as in `BayesianRidgeRegression` and `BayesianPoissonRegression`.
        """
        found = self._probabilities(X)
        mean = found.mean(axis=0)
        best = mean.argmax(axis=1)
        if not return_std:
            return self.classes_[best]
        return self.classes_[best], found.std(axis=0)[np.arange(len(best)), best]

    def _probabilities(self, X: Any) -> np.ndarray:
        odds = self._predictors(X)
        odds = np.concatenate([np.zeros((*odds.shape[:2], 1)), odds], axis=2)
        odds = np.exp(odds - odds.max(axis=2, keepdims=True))
        return odds / odds.sum(axis=2, keepdims=True)


@cache
def _target(family: str, prior_sd: float) -> Target:
    """One target for each family, so that data of one shape share their compiled code."""

    def log_prior(theta: PyTree) -> Any:
        value = -0.5 * jnp.sum((theta["coefficients"] / prior_sd) ** 2)
        if family == "gaussian":
            # The intercept is the mean of the standardised response, nearly; sigma is exponential.
            value = value - 0.5 * theta["intercept"] ** 2 - jnp.exp(theta["log_sigma"]) + theta["log_sigma"]
        elif family == "poisson":
            value = value - 0.5 * (theta["intercept"] / 10.0) ** 2
        else:
            value = value - 0.5 * jnp.sum((theta["intercept"] / 10.0) ** 2)
        return value

    def log_likelihood(theta: PyTree, row: PyTree) -> Any:
        eta = theta["intercept"] + row["x"] @ theta["coefficients"]
        if family == "gaussian":
            variance = jnp.exp(2.0 * theta["log_sigma"]) + _FLOOR**2
            return -0.5 * (row["y"] - eta) ** 2 / variance - 0.5 * jnp.log(variance)
        if family == "poisson":
            return row["y"] * eta - jnp.exp(eta)
        return jax.nn.log_softmax(jnp.concatenate([jnp.zeros(1), eta]))[row["y"]]

    return Target(log_prior, log_likelihood)
