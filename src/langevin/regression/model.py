"""A regression as a posterior: target, data and start for `lv.sample`, from a design, a family and priors."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from langevin.mixed.marginal import MOST_LATENT, marginal
from langevin.regression import priors as laws
from langevin.regression.design import Design
from langevin.regression.effects import Effects, first_effects
from langevin.regression.families import Family
from langevin.regression.summary import Summary
from langevin.target import Target

Array = Any
PyTree = Any
Floats = np.ndarray
# In 5,000 rows 400 crossed effects take half a minute, in 10,000 rows 900 of them more than five.
MOST_EFFECTS = 500


@dataclass(frozen=True, eq=False)
class Model:
    """Everything that is known of a regression before it is sampled.

    The linear predictor is  a + (x - centre) beta + offset,  a = b_0 + centre beta:  b_0 and beta are the parameters,
    on the scale of the data, and centred columns keep the digits of float32. `unit` is that of eta, `spreads` the prior
    means of sds between groups, `levels` those of the response, where it has some. `groups` are labels of groups whose
    effects are parameters, for each grouping; empty where there are none, or where they are integrated out.
    `information`, for each grouping, makes coordinates of them, see `Effects`; empty where they are centred.
    """

    design: Design
    family: Family
    priors: Mapping[str, laws.Prior]
    centre: Floats
    unit: float
    spreads: Floats
    levels: tuple[Any, ...]
    groups: tuple[tuple[Any, ...], ...] = ()
    information: tuple[Floats, ...] = ()

    @classmethod
    def of(
        cls,
        design: Design,
        family: Family,
        seen: Summary,
        levels: tuple,
        priors: Any,
        groups: tuple[tuple[Any, ...], ...] = (),
        centre: Floats | None = None,
    ) -> "Model":
        """With the default priors of `lv.fit`, except where the user gives others; centred at the means, or nearby."""
        # Without an intercept the coefficients have to make up the mean too.
        level = 0.0 if design.intercept is not None else float(seen.y.mean - seen.offset.mean)
        unit = float(np.hypot(seen.y.sd, level)) if family.scaled else 1.0
        defaults = {}
        for k, (name, sd) in enumerate(zip(design.names, seen.x.sd, strict=True)):
            at_mean = k == design.intercept and not family.levels
            usual = _usual(family, seen.y.mean, seen.y.count) - float(seen.offset.mean) if at_mean else 0.0
            defaults[name] = laws.Prior("normal", (usual, laws.SCALE * unit / sd))
        chosen = laws.chosen(defaults, priors)
        centre = middle(design, family, seen.x.mean) if centre is None else centre
        known: tuple[Floats, ...] = ()
        if len(groups) > 1:
            # Of one response about eta, where the link is canonical: how fast the mean moves.
            moved = jax.grad(lambda eta: family.mean(eta, {}))(_usual(family, seen.y.mean, seen.y.count))
            known = tuple(float(moved) / unit**2 * sums.gram for sums in seen.groups)
        return cls(design, family, chosen, centre, unit, unit / seen.z.sd, levels, groups, known)

    @cached_property
    def effects(self) -> tuple[Effects, ...]:
        """Those that vary between groups, for each grouping."""
        found: list[Effects] = []
        first = second = 0
        for k, one in enumerate(self.design.groupings):
            q = len(one.effects)
            sds, partials = slice(first, first + q), slice(second, second + q * (q - 1) // 2)
            first, second = sds.stop, partials.stop
            labels = self.groups[k] if self.groups else ()
            known = self.information[k] if self.information else None
            found.append(Effects(one.name, one.effects, sds, partials, labels, known))
        return tuple(found)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters in the order of the table."""
        own = [self.design.fixed.at(name) for name in self.design.names]
        if self.family.name == "categorical":
            own = [f"{name} [{level}]" for name in own for level in self.levels[1:]]
        kinds = ("spread_names", "correlation_names", "sampled_names")
        varying = [name for kind in kinds for one in self.effects for name in getattr(one, kind)]
        return (*own, *self._further, *varying)

    @property
    def _further(self) -> list[str]:
        if self.family.name == "ordinal":
            first, *rest = [f"{one} | {other}" for one, other in zip(self.levels, self.levels[1:], strict=False)]
            where = self.design.fixed.at("Intercept").removeprefix("Intercept")
            return [f"cut {first}{where}", *(f"log distance to {name}" for name in rest)]
        return list(self.family.more)

    @property
    def forgets_groups(self) -> bool:
        """Whether effects of groups are integrated out: predictions take every group for a new one."""
        return bool(self.effects) and not self.groups

    @property
    def _columns(self) -> int:
        return len(self.levels) - 1 if self.family.name == "categorical" else 0

    def theta_0(self, seen: Summary) -> dict[str, Any]:
        """A start: the response at its mean, no effects but those of sampled groups, which are what their means say."""
        p, K = len(self.design.names), self._columns
        theta: dict[str, Any] = {"coefficients": np.zeros((p, K) if K else p, np.float32)}
        if self.design.intercept is not None and not self.family.levels:
            theta["coefficients"][self.design.intercept] = _usual(self.family, seen.y.mean, seen.y.count) - float(
                seen.offset.mean
            )
        for name in self.family.more:
            theta[name] = np.float32(np.log(self.unit) if name == "log sigma" else 0.0)
        if self.family.name == "ordinal":
            theta["cuts"] = np.concatenate([[-1.0], np.zeros(len(self.levels) - 2)]).astype(np.float32)
        if self.effects:
            theta["log_sd"] = np.full(len(self.spreads), -1.0, np.float32)
        partials = sum(len(one.correlation_names) for one in self.effects)
        if partials:
            theta["partial"] = np.zeros(partials, np.float32)
        if self.information:
            theta["log_sd"] += np.log(self.spreads).astype(np.float32)
            shapes = {one.group: (len(one.labels), len(one.names)) for one in self.effects}
            theta["effects"] = {group: np.zeros(shape, np.float32) for group, shape in shapes.items()}
        elif self.groups:
            theta["effects"] = {}
            for one, grouping, sums in zip(self.effects, self.design.groupings, seen.groups, strict=True):
                level = _usual(self.family, seen.y.mean, seen.y.count)
                both = zip(sums.total / sums.count, sums.count, strict=True)
                means = np.array([_usual(self.family, mean, count) - level for mean, count in both])
                theta["effects"][one.group], theta["log_sd"][one.sds] = first_effects(means, grouping.terms.columns)
        return theta

    def rows(self, x: Floats, z: Floats, offset: Floats) -> dict[str, Floats]:
        """What the linear predictor of each row needs."""
        return {
            "x": (x - self.centre).astype(np.float32),
            "z": z.astype(np.float32),
            "offset": offset.astype(np.float32),
        }

    def predictor(self, theta: PyTree, rows: Mapping[str, Array], new: Array | None = None) -> Array:
        """eta of some rows, or of one; `new` effects of their group, or of groups that are not among the sampled."""
        beta = theta["coefficients"]
        eta = rows["x"] @ beta + jnp.asarray(self.centre, jnp.float32) @ beta
        for k, one in enumerate(self.effects if self.groups else ()):
            z, number = rows["z"][..., one.sds], rows["group"][..., k]
            eta = eta + jnp.sum(z * one.of_rows(theta, number), axis=-1)
            if new is not None:
                eta = eta + jnp.where(number < 0, z @ new[one.sds], 0.0)
        if new is not None and not self.groups:
            eta = eta + rows["z"] @ new
        # A column of predictors for each level but the first, where there are several.
        return eta + (rows["offset"][..., None] if self._columns else rows["offset"])

    def new_effects(self, theta: PyTree, z: Array) -> Array:
        """Effects of a new group of each grouping from standard normal numbers."""
        return jnp.concatenate([one.root(theta) @ z[one.sds] for one in self.effects])

    def log_prior(self, theta: PyTree) -> Array:
        """The log density of all priors, up to a constant."""
        beta = theta["coefficients"]
        level = beta + 0.0
        place = self.design.intercept
        if place is not None:
            level = level.at[place].add(jnp.asarray(self.centre, jnp.float32) @ beta)
        of_rows = laws.together([self.priors[name] for name in self.design.names])
        columns = [level[:, k] for k in range(self._columns)] if self._columns else [level]
        value = sum((of_rows(column) for column in columns), jnp.zeros(()))
        for name, log_density in self.family.more.items():
            value = value + log_density(theta[name] - (np.log(self.unit) if name == "log sigma" else 0.0))
        if "cuts" in theta:
            at_means = theta["cuts"].at[0].add(-jnp.asarray(self.centre, jnp.float32) @ beta)
            value = value - 0.5 * jnp.sum((at_means / 3.0) ** 2)
        if "log_sd" in theta:
            log_sd = theta["log_sd"] - np.log(self.spreads).astype(np.float32)
            value = value + jnp.sum(log_sd - jnp.exp(log_sd))
        if "partial" in theta:
            value = value - 2.0 * jnp.sum(jnp.log(jnp.cosh(theta["partial"])))
        if self.groups:
            value = value + sum(one.log_density(theta) for one in self.effects)
        return value

    def log_likelihood(self, theta: PyTree, row: Mapping[str, Array]) -> Array:
        """Of one row."""
        return row["weight"] * self.family.log_density(self.predictor(theta, row), row["y"], theta)

    def log_joint(self, theta: PyTree, z: Array, group: Mapping[str, Array]) -> Array:
        """Of one group's rows and its effects."""
        eta = self.predictor(theta, group, self.new_effects(theta, z))
        # A row's response may be several numbers: successes and trials.
        density = jax.vmap(lambda e, y: self.family.log_density(e, y, theta))(eta, group["y"])
        rows = jnp.where(group["mask"], group["weight"] * density, 0.0)
        return jnp.sum(rows) - 0.5 * jnp.sum(z**2) - 0.5 * z.size * jnp.log(2.0 * jnp.pi)

    @property
    def target(self) -> Target:
        """Of rows, or of groups whose effects are integrated out."""
        if self.groups or not self.effects:
            return Target(self.log_prior, self.log_likelihood)
        return Target(self.log_prior, marginal(self.log_joint, latent=len(self.spreads)))


def middle(design: Design, family: Family, means: Floats) -> Floats:
    """Where columns are centred: at their means, if an intercept or the cuts of an ordinal response take these up."""
    if design.intercept is None and family.name != "ordinal":
        return np.zeros(len(means))
    return np.where(np.arange(len(means)) == design.intercept, 0.0, means)


def _usual(family: Family, mean: Any, count: float) -> float:
    """The link of the mean response, kept off the ends of its range by half an observation."""
    return family.link(float(mean) if family.scaled else (float(mean) * count + 0.5) / (count + 1.0))


def check_effects(design: Design, family: Family) -> None:
    """Raises on too many varying effects, and on a family that has none."""
    for one in design.groupings:
        if len(one.effects) > MOST_LATENT:
            raise ValueError(
                f"formula must let at most {MOST_LATENT} effects vary between the groups of {one.name!r}, got "
                f"{len(one.effects)}. Let fewer vary; a factor has as many as it has levels."
            )
    if family.levels and design.groupings:
        raise ValueError(f"family {family.name!r} must come without groups, got a group term in the formula.")


def check_sampled(design: Design, groups: tuple[tuple[Any, ...], ...]) -> None:
    """Raises on more sampled effects than the exact sampler can be asked to take."""
    both = zip(design.groupings, groups, strict=bool(groups))
    sizes = {one.name: len(labels) * len(one.effects) for one, labels in both}
    if sum(sizes.values()) > MOST_EFFECTS:
        counts = " and ".join(f"{size:,} of {name}" for name, size in sizes.items())
        remedy = (
            "Use groups='integrate', which takes any number of groups."
            if len(sizes) == 1
            else f"Keep {max(sizes, key=lambda name: sizes[name])!r} alone, which is then integrated out whatever its "
            f"size, and give the others as C(...)."
        )
        raise ValueError(
            f"formula must make at most {MOST_EFFECTS:,} effects of groups that are sampled, got {counts}. {remedy}"
        )


def check_numbers(design: Design, family: Family, seen: Summary) -> None:
    """Raises on columns that say the same, and on a response that float32 cannot tell from its mean."""
    level, sd = float(seen.y.mean), float(seen.y.sd)
    if family.scaled and design.intercept is not None and abs(level) * 2.0**-23 > 1e-3 * sd:
        raise unresolved(design.fixed.at("Intercept"), level, f"a sd of the response of {sd:.2g}", 10.0 * sd)
    same = seen.new < 1e-6
    if np.any(same):
        raise ValueError(
            f"formula must give columns that differ, but {design.names[int(np.argmax(same))]!r} is zero or a "
            f"combination of the ones before it. Drop it; in a product, take a constant off a column that is far from "
            f"zero, as center(...) does."
        )


def unresolved(name: str, value: float, known_to: str, left: float) -> ValueError:
    """The error of a parameter with more digits than float32 has; less than `left` is left of it by the remedy."""
    part = "" if name.startswith("Intercept") else f" times {name}"
    known = round(value, -math.ceil(math.log10(left)))
    return ValueError(
        f"{name} must be known to fewer digits than float32 has, got {value:.6g} with {known_to}. Put the known part "
        f"of it into the offset, offset=[{known:.15g}{part}, a row each]: {name} is then what it differs from "
        f"{known:.15g} by."
    )
