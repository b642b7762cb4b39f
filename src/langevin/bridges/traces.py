"""Calls of a NumPyro model with all of its data or with one datum, and the densities of its sites."""

import inspect
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from langevin.bridges.sites import (
    Site,
    check_sites,
    data_plate,
    free_name,
    free_shape,
    group_labels,
    is_sample,
    log_prob_of,
    plates_of,
)
from langevin.factorisations import one_by_one
from langevin.startup import COMPILED

PyTree = Any
# Rows on which the sum over single data is compared with the model on all of them, and how far float32 may differ.
_COMPARED, _ROUNDING = 100, 1e-4
# NumPyro keeps its handlers on one stack for all threads, and `lv.sample` traces its loop while it looks for the mode.
_ONE_AT_A_TIME = threading.RLock()


@dataclass(frozen=True, eq=False)
class Traces:
    """A model and its arguments, taken apart.

    `rows` are the arrays of the arguments that have one entry per row, by name; `labels` each row's group, where
    groups are integrated out; `plate` is the name of the plate around all observed sites, `inner` are the names of the
    sites that are integrated out.
    """

    model: Callable[..., Any]
    arguments: inspect.BoundArguments
    rows: dict[str, np.ndarray]
    labels: np.ndarray | None
    group_by: str | None
    num_groups: int
    plate: str
    inner: tuple[str, ...]

    @classmethod
    def of(cls, model: Callable[..., Any], args: tuple, kwargs: Mapping[str, Any], group_by: str | None) -> "Traces":
        """Finds plates, data and groups in one call of the model."""
        arguments = inspect.signature(model).bind(*args, **kwargs)
        arguments.apply_defaults()
        sites = _outline(model, arguments)
        check_sites(sites)
        observed = [site for site in sites.values() if is_sample(site, observed=True)]
        latent = [site for site in sites.values() if is_sample(site, observed=False)]
        plate, size = data_plate(observed, latent)
        rows = {name: np.asarray(value) for name, value in _leaves(arguments).items() if np.shape(value)[:1] == (size,)}
        if not rows:
            raise ValueError(
                f"model must get its data as arguments: the plate {plate!r} has {size} rows, and no array among the "
                f"arguments has. Pass the data to from_numpyro instead of using them from outside the model."
            )
        inner = [site["name"] for site in latent if plate in plates_of(site)]
        if group_by is None:
            return cls(model, arguments, rows, None, None, 0, plate, tuple(inner))
        labels = group_labels(rows, group_by, size)
        num_groups = int(labels.max()) + 1
        inner = [site["name"] for site in latent if num_groups in plates_of(site).values()]
        if not inner:
            raise ValueError(
                f"group_by={group_by!r} has the labels 0 to {num_groups - 1} and must come with effects in a plate of "
                f"{num_groups} groups, but no site is in one. Leave group_by out, or put the effects into a plate."
            )
        return cls(model, arguments, rows, labels, group_by, num_groups, plate, tuple(inner))

    def starts(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Zeros in unconstrained units for the parameters, called what they are there, and for one group's effects."""
        sites = _outlined(lambda: self._sites(self._one(), {})[0])
        latent = {name: site for name, site in sites.items() if is_sample(site, observed=False)}
        zeros = {name: np.zeros(free_shape(site), np.float32) for name, site in latent.items()}
        return (
            {free_name(latent[name]): zero for name, zero in zeros.items() if name not in self.inner},
            {name: zero for name, zero in zeros.items() if name in self.inner},
        )

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the sites that are sampled."""
        sites = _outline(self.model, self.arguments)
        return tuple(name for name, site in sites.items() if is_sample(site, False) and name not in self.inner)

    def log_prior(self, theta: PyTree) -> Any:
        """Of the parameters, in unconstrained units."""
        return self._prior(self._one(), theta)

    def log_likelihood(self, theta: PyTree, datum: PyTree) -> Any:
        """Of one row."""
        return self.log_joint(theta, {}, datum)

    def log_joint(self, theta: PyTree, effects: PyTree, datum: PyTree) -> Any:
        """Of one datum and its effects."""
        sites, log_dets = self._sites(datum, {**theta, **effects})
        total = sum((jnp.sum(log_prob_of(sites[name])) + log_dets[name] for name in self.inner), start=0.0)
        for site in sites.values():
            if is_sample(site, observed=True):
                log_prob = log_prob_of(site)
                if self.labels is not None:
                    axis = next(frame.dim for frame in site["cond_indep_stack"] if frame.name == self.plate)
                    kept = datum["mask"].reshape(-1, *[1] * (-axis - 1))
                    log_prob = jnp.where(kept, log_prob, 0.0)
                total = total + jnp.sum(log_prob)
        return total

    def constrained(self, theta: PyTree) -> dict[str, Any]:
        """The parameters in the model's own units, and deterministic sites whose shape does not follow the data."""
        sites = self._sites(self._one(), theta)[0]
        whole = _outline(self.model, self.arguments)
        return {
            name: site["value"]
            for name, site in sites.items()
            if (is_sample(site, observed=False) and name not in self.inner)
            or (site["type"] == "deterministic" and np.shape(site["value"]) == np.shape(whole[name]["value"]))
        }

    def check(self) -> None:
        """Raises unless single data add up to the model, prior and likelihood apart."""
        sites = _outlined(lambda: self._sites(self._one(), {})[0])
        for site in sites.values():
            size = plates_of(site).get(self.plate, 1)
            if self.labels is None and size != 1:
                raise ValueError(
                    f"the plate {self.plate!r} must take its size from the data, but has {size} rows when the model is "
                    f"called with one. Write numpyro.plate({self.plate!r}, x.shape[0]) with x an argument."
                )
            if site["name"] in self.inner and self.num_groups > 1 and self.num_groups in plates_of(site).values():
                raise ValueError(
                    f"the plate around {site['name']!r} must take its size from an argument, but has {self.num_groups} "
                    f"groups when the model is called with one. Pass the number of groups as an argument."
                )
        names = [name for name, site in sites.items() if is_sample(site, False) and name not in self.inner]
        shapes = {name: free_shape(sites[name]) for name in names}
        rng = np.random.default_rng(0)
        theta = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
        both = jax.jit(lambda: (self._prior(None, theta), self.log_prior(theta)), compiler_options=COMPILED)
        with one_by_one():
            whole, one = both()
        if not np.allclose(whole, one, rtol=_ROUNDING, atol=_ROUNDING):
            raise ValueError(
                f"the prior must not depend on the data, but its log density at one point is {float(whole):.6g} with "
                f"all of the rows and {float(one):.6g} with one. Work out what it needs before, and pass that."
            )
        if self.labels is None and not self.inner:
            few = {name: value[:_COMPARED] for name, value in self.rows.items()}
            both = jax.jit(
                lambda: (
                    sum(
                        jnp.sum(log_prob_of(site))
                        for site in _traced(self.model, self._filled(few), theta)[0].values()
                        if is_sample(site, True)
                    ),
                    jnp.sum(jax.vmap(lambda row: self.log_likelihood(theta, row))(few)),
                ),
                compiler_options=COMPILED,
            )
            with one_by_one():
                together, apart = both()
            if not np.allclose(together, apart, rtol=_ROUNDING, atol=_ROUNDING):
                raise ValueError(
                    f"rows must be independent given the parameters, but {len(next(iter(few.values())))} of them have "
                    f"the log likelihood {float(together):.6g} together and {float(apart):.6g} one by one. Standardise "
                    f"before, not in the model; a series of rows is one datum."
                )

    def _one(self) -> dict[str, Any]:
        """The first datum."""
        first = {name: value[0] for name, value in self.rows.items()}
        if self.labels is None:
            return first
        return {**{name: value[None] for name, value in first.items()}, "mask": np.ones(1, bool)}

    def _sites(self, datum: PyTree, values: PyTree) -> tuple[dict[str, Site], dict[str, Any]]:
        """The model's sites for one datum: a row, or the rows of a group."""
        if self.labels is None:
            return _traced(self.model, self._filled({name: row[None] for name, row in datum.items()}), values)
        rows = {name: value for name, value in datum.items() if name != "mask"}
        label = rows[self.group_by][:1]
        rows[self.group_by] = jnp.zeros_like(rows[self.group_by])
        return _traced(self.model, self._filled(rows, label), values)

    def _filled(self, rows: Mapping[str, Any], label: Any = None) -> inspect.BoundArguments:
        """The arguments with these rows in the place of all, and where `label` is given with one group."""
        filled = inspect.BoundArguments(self.arguments.signature, dict(self.arguments.arguments))

        def swapped(path: Any, leaf: Any) -> Any:
            name = _name(path)
            if name in rows:
                return rows[name]
            if label is None:
                return leaf
            if np.shape(leaf)[:1] == (self.num_groups,):
                return jnp.asarray(leaf)[label]
            return 1 if isinstance(leaf, int) and leaf == self.num_groups else leaf

        filled.arguments.update(jax.tree_util.tree_map_with_path(swapped, dict(self.arguments.arguments)))
        return filled

    def _prior(self, datum: PyTree | None, theta: PyTree) -> Any:
        """Log density of the parameters; with all of the data where no datum is given."""
        traced = _traced(self.model, self.arguments, theta) if datum is None else self._sites(datum, theta)
        sites, log_dets = traced
        return sum(jnp.sum(log_prob_of(sites[name])) + log_det for name, log_det in log_dets.items())


def _traced(
    model: Callable[..., Any], arguments: inspect.BoundArguments, values: PyTree
) -> tuple[dict[str, Site], dict[str, Any]]:
    """Sites of one call with unconstrained values put in, and the logarithms of their Jacobians.

    Values go by the names of the sites, or by those that they have in unconstrained units.
    """
    from numpyro import handlers
    from numpyro.distributions import biject_to

    log_dets: dict[str, Any] = {}

    def constrained(site: Site) -> Any:
        if not values or not is_sample(site, observed=False):
            return None
        key = site["name"] if site["name"] in values else free_name(site)
        if key not in values:
            return None
        transform = biject_to(site["fn"].support)
        # NumPyro's transforms make arrays of the default precision, and write into them.
        free = jnp.asarray(values[key], jnp.result_type(float))
        value = transform(free)
        log_dets[site["name"]] = jnp.sum(transform.log_abs_det_jacobian(free, value))
        return value

    seeded = handlers.substitute(handlers.seed(model, rng_seed=0), substitute_fn=constrained)
    # An array of NumPy cannot be indexed by what is traced.
    args, kwargs = jax.tree.map(
        lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, (arguments.args, arguments.kwargs)
    )
    with _ONE_AT_A_TIME:
        return handlers.trace(seeded).get_trace(*args, **kwargs), log_dets


def _outlined(sites: Callable[[], dict[str, Site]]) -> dict[str, Site]:
    """Sites whose shapes, plates and supports are all that counts: nothing is computed."""
    found: dict[str, Site] = {}
    jax.eval_shape(lambda: found.update(sites()))
    return found


def _outline(model: Callable[..., Any], arguments: inspect.BoundArguments) -> dict[str, Site]:
    return _outlined(lambda: _traced(model, arguments, {})[0])


def _name(path: Any) -> str:
    """An argument's name, and where in it the leaf is."""
    return ".".join(str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in path)


def _leaves(arguments: inspect.BoundArguments) -> dict[str, Any]:
    found, _ = jax.tree_util.tree_flatten_with_path(dict(arguments.arguments))
    return {_name(path): leaf for path, leaf in found}
