"""Whether an answer is right: its means and sds against the reference, its bars against what was asked for."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

PRECISION = 0.05
# In combined standard errors of answer and reference; and in posterior sds, below which nothing is called wrong.
RIGHT, WRONG, WRONG_SDS = 4.0, 5.0, 0.02
VERDICTS = ("right", "between", "wrong", "declined")

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Verdict:
    """One of VERDICTS; the largest departure in combined errors and in posterior sds, NaN without an answer."""

    word: str
    z: float = np.nan
    sds: float = np.nan


def halfwidths(found: dict[str, Any]) -> Floats:
    """Half-widths of the 95% bars of all means and sds in units of the sds found."""
    return 1.96 * np.concatenate([found["mean_stderr"], found["sd_stderr"]]) / np.tile(found["sd"], 2)


def judge(found: dict[str, Any], truth: dict[str, Any]) -> Verdict:
    """right: within 4 combined errors everywhere, bars as short as asked; wrong: beyond 5, and 0.02 sd, somewhere."""
    if found["status"] != "ok":
        return Verdict("declined")
    off = np.abs(np.concatenate([np.subtract(found[key], truth[key]) for key in ("mean", "sd")]))
    errors = np.concatenate([np.hypot(found[key], truth[key]) for key in ("mean_stderr", "sd_stderr")])
    z, sds = off / errors, off / np.tile(truth["sd"], 2)
    # No comparison holds for NaN: an answer without a bar is never right.
    if np.any((z > WRONG) & (sds > WRONG_SDS)):
        word = "wrong"
    else:
        word = "right" if np.all(z <= RIGHT) and np.all(halfwidths(found) <= PRECISION) else "between"
    return Verdict(word, float(np.max(z)), float(np.max(sds)))
