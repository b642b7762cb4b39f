"""`lv.from_numpyro`: a NumPyro model as a target; its data plate becomes data, its groups are integrated out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from langevin.analysis.value import Estimate
from langevin.bridges.traces import Traces
from langevin.data.source import DataSource
from langevin.mixed.groups import groups
from langevin.mixed.marginal import MOST_LATENT, marginal
from langevin.sampling.result import Result
from langevin.target import Layout, Target

PyTree = Any


@dataclass(frozen=True, eq=False)
class FromNumPyro:
    """What `lv.sample` needs of a NumPyro model, over its sites in unconstrained units.

    Parameters are called what they are there: "log s" for a positive site s, "logit p" for one in the unit interval,
    "w, unconstrained" for any other support, and by the site's own name where nothing bounds it.

    `constrain` maps theta to the model's own sites, for `result.expectation(lambda theta: constrain(theta)["sigma"])`
    and `result.to_arviz(constrain)`; `sites` are those that are sampled.
    """

    target: Target
    data: DataSource | Mapping[str, np.ndarray]
    theta_0: dict[str, np.ndarray]
    constrain: Callable[[PyTree], dict[str, Any]]
    sites: tuple[str, ...]

    def moments(self, result: Result) -> dict[str, tuple[Estimate, Estimate]]:
        """Posterior mean and sd of every site in the model's own units, each with its error bar.

        Entries that a support holds fixed, as the first row of a Cholesky factor of correlations, have an error of 0.
        """
        found, rng = {}, np.random.default_rng(0)
        here, there = (
            self.constrain(
                {name: leaf + far * rng.standard_normal(np.shape(leaf)) for name, leaf in self.theta_0.items()}
            )
            for far in (0.0, 1.0)
        )
        for name in here:
            mean = result.expectation(partial(self._site, name, 0.0, 1))
            # To first order the error of the centre does not matter.
            square = result.expectation(partial(self._site, name, jnp.asarray(mean.value, jnp.float32), 2))
            found[name] = mean, _root(square)
            if name in self.sites:
                # A site of its own is a smooth map of theta: no event that has not come yet.
                fixed = np.asarray(here[name] == there[name])
                found[name] = _known(mean, fixed), _known(found[name][1], fixed)
        return found

    def _site(self, name: str, centre: Any, power: int, theta: PyTree) -> Any:
        return (self.constrain(theta)[name] - centre) ** power


def _known(found: Estimate, fixed: np.ndarray) -> Estimate:
    """The estimate with no error where it is fixed."""
    zero: dict[str, Any] = {name: np.where(fixed, 0.0, getattr(found, name)) for name in ("stderr", "bias", "sigma2")}
    return replace(found, **zero, statuses=np.where(fixed, "ok", found.statuses))


def _root(square: Estimate) -> Estimate:
    """The square root of a positive estimate, to first order in its error."""
    value = np.sqrt(np.maximum(square.value, 0.0))
    slope = 0.5 / np.maximum(value, np.finfo(np.float32).tiny)
    return replace(
        square, value=value, stderr=slope * square.stderr, bias=slope * square.bias, sigma2=slope**2 * square.sigma2
    )


def from_numpyro(model: Callable[..., Any], *args: Any, group_by: str | None = None, **kwargs: Any) -> FromNumPyro:
    """A NumPyro model with its arguments, as target, data and start for `lv.sample`.

    The plate around all observed sites is the data plate: arrays among the arguments with as many entries are the data,
    and the model is called with single rows of them, so the plate's size must come from them (`x.shape[0]`). Sites with
    a constrained support are transformed, Jacobian included. Sites outside the data plate are parameters, in plates of
    their own too, unless `group_by` names the argument that holds the group of each row, 0 to J - 1: then those in
    the plate of size J are effects of groups and integrated out (see `lv.marginal`); J must come from the arguments.
    Sites within the data plate are integrated out likewise: a datum is its own group.

    Refused: models without a plate, discrete sites that are not observed, plates that subsample (langevin takes the
    minibatches), terms that tie rows together (standardise before, not in the model). Cost: that of the model.

    Example:
        >>> import numpy as np, langevin as lv, numpyro, numpyro.distributions as dist
        >>> def model(x, y):
        ...     beta = numpyro.sample("beta", dist.Normal(0, 10).expand([2]).to_event(1))
        ...     with numpyro.plate("rows", x.shape[0]):
        ...         numpyro.sample("y", dist.Bernoulli(logits=x @ beta), obs=y)
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(300, 2)).astype(np.float32)
        >>> bridge = lv.from_numpyro(model, x, (rng.random(300) < 0.5).astype(np.int32))
        >>> lv.sample(bridge.target, bridge.data, bridge.theta_0, passes=20).names
        ('beta[0]', 'beta[1]')
    """
    try:
        import numpyro  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "from_numpyro needs NumPyro, which is not installed: pip install 'langevin[numpyro]'"
        ) from error
    traces = Traces.of(model, args, kwargs, group_by)
    traces.check()
    theta_0, effects = traces.starts()
    log_likelihood: Any = traces.log_likelihood
    if effects:
        layout = Layout.of(effects)
        if layout.size > MOST_LATENT:
            advice = "Leave group_by out: they become parameters." if group_by else "Write them with fewer."
            raise ValueError(
                f"model must have at most {MOST_LATENT} effects for each group, got {layout.size} in "
                f"{', '.join(effects)}. {advice}"
            )
        log_likelihood = marginal(
            lambda theta, z, datum: traces.log_joint(theta, layout.unravel(z), datum), latent=layout.size
        )
    data = traces.rows if group_by is None else groups(traces.rows, by=traces.labels)
    return FromNumPyro(Target(traces.log_prior, log_likelihood), data, theta_0, traces.constrained, traces.parameters)
