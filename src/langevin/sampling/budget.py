"""What the user is ready to spend: sampling passes, seconds, or a precision to reach."""

from dataclasses import dataclass, replace

import numpy as np

from langevin.engine.checks import require

# The budget of a call without any: to within 2% of a posterior sd, in ten minutes at most.
_PRECISION, _PATIENCE = 0.02, 600.0


@dataclass(frozen=True)
class Budget:
    """Limits of a run; the first one reached ends it.

    passes: sampling budget in datum visits over N, the guard included (gradients, for a target without data).
    time_limit: seconds for everything, set-up and compilation included. precision: every posterior mean, sd and
    published quantile known to within this many posterior sds at 95%.
    """

    passes: float | None = None
    time_limit: float | None = None
    precision: float | None = None

    @classmethod
    def of(cls, passes: float | None, time_limit: float | None, precision: float | None) -> "Budget":
        """The limits given, checked; where there are none a precision that most can use, and a limit to patience."""
        given = cls(passes, time_limit, precision)
        return cls(time_limit=_PATIENCE, precision=_PRECISION) if given == cls() else given.checked()

    def checked(self) -> "Budget":
        """The same budget in floats; raises if there is none or one is out of range."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        if not given:
            raise ValueError(
                "a budget must be given, got none of passes, time_limit, precision. "
                "Try passes=20, time_limit=60 (seconds) or precision=0.05 (posterior sds)."
            )
        for name, remedy in (("passes", "20"), ("time_limit", "60"), ("precision", "0.05")):
            value = given.get(name, 1.0)
            good = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
            require(good and 0 < value < np.inf, name, value, "a positive finite number", remedy)
        return replace(self, **{name: float(value) for name, value in given.items()})

    def words(self, unit: str = "passes") -> str:
        """The limits as text; a target without data counts in gradients."""
        words = []
        if self.passes is not None:
            words.append(f"{self.passes:g} {unit}")
        if self.time_limit is not None:
            words.append(f"{self.time_limit:g} s")
        if self.precision is not None:
            words.append(f"a precision of {self.precision:g} posterior sds")
        return " or ".join(words)
