"""`NetworkResult`: what `lv.sample` returns for models of many parameters. It is asked for predictions."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import prod
from time import monotonic
from typing import Any

import numpy as np

from langevin.analysis.statuses import BY_WORD, worse
from langevin.analysis.value import Estimate
from langevin.data.source import ArraySource
from langevin.display import showing
from langevin.networks.averages import BatchMeans, batch_means
from langevin.networks.extrapolate import Extrapolated, estimated, r_hat, relative_bias
from langevin.networks.walk import Walk
from langevin.sampling.budget import Budget
from langevin.sampling.troubles import Trouble
from langevin.saving.journal import Journal
from langevin.target import Layout

PyTree = Any
# Beyond this bias of the lower level, in posterior sds over the data, a straight line does not take it off.
_MOST_BIAS = 0.25
# Where this share of the data's log likelihoods is in doubt, so is everything else.
_MOST_DOUBTFUL = 0.5


class Leaves(dict[str, Any]):
    """Columns of the summary by name, one entry a leaf of theta's pytree; `to_frame()` where pandas is installed."""

    def to_frame(self) -> Any:
        """A pandas data frame, one row a leaf."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_frame() needs pandas, which is not installed: pip install pandas") from error
        return pandas.DataFrame({name: column for name, column in self.items() if name != "leaf"}, index=self["leaf"])


@dataclass(frozen=True, eq=False, repr=False)
class NetworkResult:
    """Draws of a posterior with many parameters, and predictions from them with error bars.

    Chains run at two step sizes side by side; an expectation is extrapolated to steps of size zero (see
    `networks.levels.Pair`), and its bar holds the noise of both levels and what a straight line leaves.

    Example:
        >>> import jax.numpy as jnp, numpy as np, langevin as lv
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(60, 2)).astype(np.float32)
        >>> y = np.sin(x[:, 0]) + 0.3 * rng.normal(size=60).astype(np.float32)
        >>> net = lambda theta, x: jnp.tanh(x @ theta["w"]) @ theta["v"]
        >>> target = lv.Target(
        ...     lambda theta: -0.5 * (jnp.sum(theta["w"] ** 2) + jnp.sum(theta["v"] ** 2)),
        ...     lambda theta, d: -0.5 * ((d["y"] - net(theta, d["x"])) / 0.3) ** 2)
        >>> theta_0 = {"w": np.zeros((2, 8)), "v": np.zeros(8)}
        >>> result = lv.sample(target, {"x": x, "y": y}, theta_0, passes=20_000, method="sghmc")
        >>> result.expectation(net, data=x[:5]).value.shape
        (5,)
    """

    walk: Walk

    @property
    def method(self) -> str:
        """How the numbers were obtained."""
        return "sghmc"

    @cached_property
    def layout(self) -> Layout:
        """How theta lies in the flat draws."""
        return Layout.of(self.walk.theta_0)

    @property
    def draws(self) -> np.ndarray:
        """Kept draws at the smaller step, flat, (chains, draws, d), float32, all of equal weight; see `layout`.

        A map of a file where they are large.
        """
        return self.walk.store.draws[:, 0].swapaxes(0, 1)

    @property
    def passes(self) -> float:
        """Sampling cost in passes over the data, both levels."""
        return self.walk.visits / self._num_data

    @property
    def setup_passes(self) -> float:
        """Cost of the burn-in and the pilot, in passes."""
        return self.walk.settled.cost / self._num_data

    @property
    def _num_data(self) -> int:
        assert self.walk.source is not None
        return self.walk.source.num_data

    @property
    def seconds(self) -> float:
        """Wall-clock of set-up and sampling, compilation included."""
        return self.walk.settled.seconds + self.walk.seconds

    @property
    def partial(self) -> bool:
        """Whether the run was interrupted before its budget was spent."""
        return self.walk.stopped == "interrupted"

    @cached_property
    def _probed(self) -> BatchMeans:
        """The log likelihood of some of the data over the draws: where chains of networks meet, if they do."""
        walk = self.walk
        assert walk.target is not None and walk.source is not None
        return self._means(walk.target.log_likelihood, walk.source.take(walk.settled.probes))

    def _means(self, phi: Callable[..., Any], data: PyTree) -> BatchMeans:
        return batch_means(self.walk.store.draws, self.layout, phi, data)

    @cached_property
    def relative_bias(self) -> float:
        """Bias of the smaller step that is taken off, in posterior sds, over log likelihoods of the data."""
        return relative_bias(self._probed, self.walk.settled.pair)

    @cached_property
    def fit(self) -> Estimate:
        """Expected log likelihoods of up to 256 of the data: what the run is judged by."""
        return estimated(self._probed, self.walk.settled.pair, self.relative_bias)

    @cached_property
    def r_hat(self) -> np.ndarray:
        """Split R-hat of the log likelihoods in `fit`."""
        seen = Extrapolated.of(self._probed, self.walk.settled.pair)
        return r_hat(seen.means, seen.sd)

    @cached_property
    def troubles(self) -> tuple[Trouble, ...]:
        """What stands against trusting any prediction of the run, each with its status and a remedy."""
        found = []
        if self.relative_bias > _MOST_BIAS:
            found.append(
                Trouble(
                    "gradient_noise",
                    f"gradient noise and step size bias what the chains say of the data by {self.relative_bias:.2g} "
                    f"posterior sds, and a straight line takes off up to {_MOST_BIAS}. Run anew with more passes.",
                )
            )
        doubtful = self.fit.statuses[self.fit.statuses != "ok"]
        if doubtful.size > _MOST_DOUBTFUL * self.fit.statuses.size:
            kinds, counts = np.unique(doubtful, return_counts=True)
            word = str(kinds[np.argmax(counts)])
            share = counts.max() / self.fit.statuses.size
            text = f"for {share:.0%} of the data that were looked at, {BY_WORD[word].meaning}. {BY_WORD[word].remedy}"
            found.append(Trouble(word, text))
        return tuple(found)

    def expectation(self, phi: Callable[..., Any], data: PyTree = None) -> Estimate:
        """Posterior expectation of phi(theta), any JAX function with values in an array, with its own error bar.

        With `data`, phi(theta, datum) is averaged for every datum of new data: predictive expectations, datum first.
        Cost: one evaluation of phi a kept draw.
        """
        if not callable(phi):
            raise ValueError(f"phi must be a function of theta, got {phi!r}. Try phi=lambda theta: theta['w'][0, 0].")
        one = estimated(self._means(phi, data), self.walk.settled.pair, self.relative_bias)
        for trouble in self.troubles:
            one = replace(one, statuses=worse(one.statuses, trouble.status))
            if trouble.refused:
                one = replace(one, stderr=np.full_like(one.stderr, np.nan))
        return one

    @property
    def status(self) -> str:
        """'ok' where nothing stands against predictions as a whole; each prediction has a status of its own."""
        return "ok" if not self.troubles else self.troubles[0].status

    def summary(self) -> Leaves:
        """Columns over the leaves of theta.

        shape; mean, the mean of the posterior means; sd, the root mean square of the posterior sds; prior_sd by the
        prior's curvature; r_hat, the median split R-hat of its parameters and r_hat_largest. Parameters of a network
        may well not mix while its predictions do: units can change places.
        """
        draws = self.draws
        half = draws.shape[1] // 2
        mean, variance, hats, start = [], [], [], 0
        for shape in self.layout.shapes:
            part = np.asarray(draws[:, :, start : start + prod(shape)], np.float64)
            start += prod(shape)
            mean.append(part.mean())
            within = part.var(axis=(0, 1))
            variance.append(within.mean())
            halves = np.concatenate([part[:, :half].mean(axis=1), part[:, half:].mean(axis=1)])
            hats.append(np.sqrt(1.0 + halves.var(axis=0, ddof=1) / np.maximum(within, 1e-300)))
        edges = np.cumsum([0, *(prod(shape) for shape in self.layout.shapes)])
        scale = self.walk.settled.scale
        return Leaves(
            leaf=[self.layout.names[a].split("[")[0] for a in edges[:-1]],
            shape=list(self.layout.shapes),
            mean=np.array(mean),
            sd=np.sqrt(variance),
            prior_sd=np.array([np.sqrt(np.mean(scale[a:b] ** 2)) for a, b in pairwise(edges)]),
            r_hat=np.array([np.median(one) for one in hats]),
            r_hat_largest=np.array([np.max(one) for one in hats]),
        )

    def extend(
        self, *, passes: float | None = None, time_limit: float | None = None, progress: bool | None = None
    ) -> "NetworkResult":
        """A new result of the same run, gone on for more passes or seconds."""
        budget = Budget(passes, time_limit).checked()
        source = self.walk.source
        if isinstance(source, ArraySource) and not source.unchanged:
            raise ValueError(
                "data must be as they were when sampling began, but their values were changed in place since. "
                "Call lv.sample anew, or give it a copy of arrays that you go on to change."
            )
        if budget.passes is not None:
            budget = replace(budget, passes=budget.passes + self.passes)
        with showing(progress):
            return NetworkResult(self.walk.spend(budget, monotonic(), Journal(), "network"))

    def explain(self) -> str:
        """In plain words: what was run, why, and how far to trust it."""
        from langevin.networks.words import explain

        return explain(self)

    def __str__(self) -> str:
        from langevin.networks.words import table

        return table(self)

    def __repr__(self) -> str:
        return f"NetworkResult({self.layout.size:,} parameters, {self.passes:.3g} passes [{self.status}])"
