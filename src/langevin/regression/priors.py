"""Priors of a regression: defaults in units of the data, and what a user writes as "normal(0, 1)"."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

Array = Any
# Coefficients of standardised predictors: two and a half units on the scale of the link (or sds of the response) are a
# large effect. The same for the intercept where the predictors have their means.
SCALE = 2.5
_WRITTEN = re.compile(r"\s*(\w+)\s*\(([^()]*)\)\s*")


@dataclass(frozen=True)
class Prior:
    """A law of one parameter: "normal" (mean, sd), "student_t" (degrees, location, scale) or "flat" ()."""

    law: str
    numbers: tuple[float, ...] = ()

    def __str__(self) -> str:
        return f"{self.law}({', '.join(f'{number:.3g}' for number in self.numbers)})"


_COUNTS = {"normal": 2, "student_t": 3, "flat": 0}


def read(name: str, written: Any) -> Prior:
    """A prior as the user wrote it."""
    if isinstance(written, Prior):
        return written
    found = _WRITTEN.fullmatch(written) if isinstance(written, str) else None
    law = found[1] if found else ""
    try:
        numbers = tuple(float(part) for part in found[2].split(",") if part.strip()) if found else ()
    except ValueError:
        numbers = (float("nan"),)
    good = law in _COUNTS and len(numbers) == _COUNTS[law] and all(abs(number) < float("inf") for number in numbers)
    if not good or (numbers and numbers[-1] <= 0) or (law == "student_t" and numbers[0] <= 0):
        raise ValueError(
            f"priors[{name!r}] must be 'normal(mean, sd)', 'student_t(degrees, location, scale)' or 'flat()', with "
            f"positive scales, got {written!r}."
        )
    return Prior(law, numbers)


def chosen(defaults: Mapping[str, Prior], given: Mapping[str, Any] | None) -> dict[str, Prior]:
    """The default priors with the user's in their places."""
    found = dict(defaults)
    for name, written in ({} if given is None else given).items():
        if name not in found:
            listed = ", ".join(repr(one) for one in found)
            raise ValueError(f"priors must be for parameters of the model, got {name!r}. These are {listed}.")
        found[name] = read(name, written)
    return found


def together(priors: list[Prior]) -> Callable[[Array], Array]:
    """The log density of a vector of independent parameters, up to a constant."""
    known = [prior for prior in priors if prior.law != "flat"]
    places = np.array([k for k, prior in enumerate(priors) if prior.law != "flat"], int)
    centre, scale = (np.array([prior.numbers[k] for prior in known], np.float32) for k in (-2, -1))
    # A normal law is Student's with as many degrees of freedom as one likes.
    degrees = np.array([prior.numbers[0] if prior.law == "student_t" else 0.0 for prior in known], np.float32)
    heavy = np.maximum(degrees, 1e-6)

    def log_density(values: Array) -> Array:
        square = ((values[places] - centre) / scale) ** 2
        return -0.5 * jnp.sum(jnp.where(degrees > 0, (heavy + 1.0) * jnp.log1p(square / heavy), square))

    return log_density
