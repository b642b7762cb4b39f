"""What a study says about a claim, and the limits by which it decides."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Floats = NDArray[np.float64]
Numbers = Mapping[str, np.ndarray]
Row = dict[str, float | int | str]

# Chance that one honest check is refused by bad luck, over all scores it looks at.
FALSE_ALARM = 1e-5


class Verdict(StrEnum):
    """What became of a claim."""

    REPRODUCED = "reproduced"
    CORRECTED = "reproduced with correction"
    TOO_SMALL = "not at this size"
    REFUSED = "NOT reproduced"


@dataclass(frozen=True)
class Finding:
    """One claim: in our words, as the paper prints it, as measured here with its Monte Carlo error, and the verdict.

    `because` says what was corrected, why the size is too small, or what is wrong. `erratum` is the row of
    docs/errata.md that tells more.
    """

    claim: str
    printed: str
    measured: str
    verdict: Verdict
    because: str = ""
    erratum: int | None = None

    def __post_init__(self) -> None:
        if self.verdict is not Verdict.REPRODUCED and not self.because:
            raise ValueError(f"a verdict of {self.verdict!r} needs a reason in `because`: {self.claim}")


class Judgement(TypedDict):
    """The last word of a `Finding`, as keyword arguments."""

    verdict: Verdict
    because: str


def judged(good: bool, wrong: str, clear: bool = True, too_small: str = "", *, corrected: str = "") -> Judgement:
    """Refused unless `good`, too small unless `clear`, else reproduced, with a correction if one is named."""
    if not good:
        return Judgement(verdict=Verdict.REFUSED, because=wrong)
    if not clear:
        return Judgement(verdict=Verdict.TOO_SMALL, because=too_small)
    return Judgement(verdict=Verdict.CORRECTED if corrected else Verdict.REPRODUCED, because=corrected)


def limit(scores: int) -> float:
    """The largest of this many standard normal scores passes this value with probability FALSE_ALARM at most."""
    return float(-special.ndtri(FALSE_ALARM / (2 * scores)))


def agrees(measured: ArrayLike, expected: ArrayLike, stderr: ArrayLike) -> tuple[bool, float]:
    """Whether all of (measured - expected)/stderr stay below `limit`, and the largest of them in size."""
    scores = np.abs((np.asarray(measured) - np.asarray(expected)) / np.asarray(stderr))
    largest = float(np.max(scores))
    return largest < limit(scores.size), largest
