"""Tables people publish: the posterior's own numbers, and the Monte Carlo error under names that nobody mistakes."""

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from langevin.analysis.statuses import worst
from langevin.analysis.value import Estimate, decimals

if TYPE_CHECKING:
    from langevin.sampling.result import Result

# A printed table shows at most this many parameters.
_MOST_ROWS = 40
# The ends of a 95% interval and the median.
_SHOWN = {"2.5%": 0.025, "50%": 0.5, "97.5%": 0.975}
# Digits of the posterior sd beyond which nobody reads, however small the error.
_MOST_DIGITS = 4
# A number that is not known to this part of the posterior sd tells nothing of the digits of others. The bar of a
# quantile that may be in either of two modes is half their distance: as much as the sd of two points, at least.
_HARDLY_KNOWN = 0.5


def columns(result: "Result") -> dict[str, Any]:
    """Arrays over the flat parameters by name, see `Result.summary`."""
    mean, sd, quantiles = result.mean, result.sd, result.quantiles(tuple(_SHOWN.values()))
    shown = {f"q{name.removesuffix('%')}": quantiles[k] for k, name in enumerate(_SHOWN)}
    errors = {"mean": mean, "sd": sd, **shown}
    return {
        "name": np.array(result.names),
        **{name: one.value for name, one in errors.items()},
        **{f"mcse_{name}": one.stderr for name, one in errors.items()},
        "laplace_mean": result.plan.anchor.theta,
        "laplace_sd": result.plan.anchor.sd,
        "raw_mean": result.raw["theta.mean"].value,
        "raw_sd": result.raw["theta.sd"].value,
        "status": worst(mean.statuses, sd.statuses),
    }


def cells(result: "Result") -> list[tuple[str, ...]]:
    """Heading and rows of the table as text; digits follow the error of each number."""
    mean, sd, quantiles = result.mean, result.sd, result.quantiles(tuple(_SHOWN.values()))
    anchor, statuses = result.plan.anchor, worst(mean.statuses, sd.statuses)
    rows: list[tuple[str, ...]] = [
        ("", "mean", "sd", *_SHOWN, "mcse mean", "mcse sd", "Laplace mean", "Laplace sd", "status")
    ]
    shown = [mean, sd, *(quantiles[row] for row in range(len(_SHOWN)))]
    for k, name in enumerate(result.names[:_MOST_ROWS]):
        places = _places(float(sd.value[k]), [float(one.error[k]) for one in shown if not _hardly(one, sd)[k]])
        posterior = (
            f"{one.value[k]:.{max(decimals(one.error[k], 2), 0) if _hardly(one, sd)[k] else places}f}" for one in shown
        )
        errors = (f"{one.stderr[k]:.1e}" for one in (mean, sd))
        laplace = (f"{value[k]:.{places}f}" for value in (anchor.theta, anchor.sd))
        rows.append((name, *posterior, *errors, *laplace, str(statuses[k])))
    return rows


def _places(sd: float, errors: list[float]) -> int:
    """Decimals of a row: to the second digit of its largest error, and no more digits of the sd than anybody reads."""
    known = [decimals(error, 2) for error in errors if np.isfinite(error) and error > 0]
    return max(min([decimals(sd, _MOST_DIGITS), *known]), 0)


def _hardly(one: Estimate, sd: Estimate) -> np.ndarray:
    return one.error > _HARDLY_KNOWN * sd.value


def as_text(result: "Result") -> str:
    """The table in aligned columns."""
    rows = cells(result)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(_aligned(row, widths)).rstrip() for row in rows]
    return "\n".join([*lines, *left_out(result)])


def _aligned(row: tuple[str, ...], widths: list[int]) -> list[str]:
    last = len(row) - 1
    return [
        text.ljust(width) if column in (0, last) else text.rjust(width)
        for column, (text, width) in enumerate(zip(row, widths, strict=True))
    ]


def left_out(result: "Result") -> list[str]:
    """Lines about what the table does not show: further parameters, and quantiles that are hardly known."""
    more = len(result.names) - _MOST_ROWS
    lines = [f"... and {more:,} more parameters: see result.summary()"] if more > 0 else []
    found = result.quantiles(tuple(_SHOWN.values()))
    for row, place in enumerate(_SHOWN):
        for k in np.flatnonzero(_hardly(found[row], result.sd)[:_MOST_ROWS]):
            lines.append(f"The {place} quantile of {result.names[k]} is known to +- {found.error[row, k]:.2g} only.")
    return lines


def as_html(result: "Result", notes: list[str]) -> str:
    """The table for a notebook, with the notes below it. Names are data: they are shown as text, never as markup."""
    heading, *rows = cells(result)
    head = "".join(f"<th>{escape(text)}</th>" for text in heading)
    body = "".join(
        f"<tr><th>{escape(row[0])}</th>" + "".join(f"<td>{escape(text)}</td>" for text in row[1:]) + "</tr>"
        for row in rows
    )
    below = "".join(f"<p>{escape(line)}</p>" for line in [*left_out(result), *notes])
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"
