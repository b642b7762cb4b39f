"""A run of many parameters in words: a table of its leaves, and what was run and why."""

from typing import TYPE_CHECKING

from langevin.analysis.statuses import BY_WORD

if TYPE_CHECKING:
    from langevin.networks.result import NetworkResult


def table(result: "NetworkResult") -> str:
    """One line a leaf of theta, and what can be asked of the run."""
    columns = result.summary()
    rows = [("leaf", "shape", "mean", "sd", "prior sd", "R-hat", "largest")]
    numbers = ("mean", "sd", "prior_sd", "r_hat", "r_hat_largest")
    for k, (leaf, shape) in enumerate(zip(columns["leaf"], columns["shape"], strict=True)):
        rows.append((leaf, "x".join(map(str, shape)) or "1", *(f"{columns[name][k]:.3g}" for name in numbers)))
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    chains, count = result.draws.shape[:2]
    lines.append(
        f"{result.layout.size:,} parameters, {chains} chains of {count} draws at each of two step sizes, "
        f"{result.passes:,.0f} passes + {result.setup_passes:,.0f} of set-up, {result.seconds:.0f} s [{result.status}]"
    )
    lines += [f"{trouble.status}: {trouble.text}" for trouble in result.troubles]
    lines.append("Ask for predictions: result.expectation(predict, data=x_new), each with its error bar and status.")
    return "\n".join(lines)


def explain(result: "NetworkResult") -> str:
    """What was run, why, and how far to trust it."""
    walk, pair = result.walk, result.walk.settled.pair
    statuses, counts = _counted(result)
    seen = "all the data" if pair.full else f"{pair.batch_size} data"
    power = "the square of the step" if pair.full else "the step, by gradient noise,"
    lines = [
        f"{result.layout.size:,} parameters are too many for a Gaussian model: BAOAB chains (SGHMC's dynamics) run "
        f"without one, in units of the prior's widths, each from a start of its own.",
        f"A step sees {seen}. Chains with steps of {pair.steps[0]:.3g} and {pair.steps[1]:.3g} run side by side; the "
        f"longest stable step is about {walk.settled.longest:.3g}. Their bias grows with {power} and is taken off by a "
        f"line through the two: {result.relative_bias:.2g} posterior sds of it at the smaller step, typically.",
        f"Each chain walked {walk.time:,} units of time after the burn-in; {walk.store.count} draws of it are kept"
        f"{' in a file' if walk.store.on_disk else ''}.",
        f"Of the log likelihoods of {result.fit.value.size} of the data, "
        + ", ".join(f"{count} are {status}" for status, count in zip(statuses, counts, strict=True))
        + f"; their split R-hat is {result.r_hat.max():.3g} at most.",
    ]
    lines += [f"{trouble.status}: {trouble.text}" for trouble in result.troubles]
    lines += [f"{word}: {BY_WORD[word].meaning}. {BY_WORD[word].remedy}" for word in statuses if word != "ok"]
    return "\n".join(lines)


def _counted(result: "NetworkResult") -> tuple[list[str], list[int]]:
    found = result.fit.statuses.ravel().tolist()
    words = sorted(set(found), key=found.count, reverse=True)
    return words, [found.count(word) for word in words]
