"""One snippet in a process of its own, timed from the start of the process to its printed table; then what it found.

python worker.py SNIPPET STARTED RESULT [MAXIMUM]: the snippet's file, the clock when the process was started, the file
for what is found, and that of a maximum of the likelihood. Only the standard library is imported before the snippet.
"""

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

# Names of Bambi and statsmodels on the scale that lv.fit has for them.
LOGS = {"sigma": "log sigma", "alpha": "log phi"}
# What our own PyMC model has beside the parameters.
HIDDEN = ("level", "root", "z")


def from_langevin(scope: dict[str, Any], maximum: Path | None) -> dict[str, Any]:
    """The summary, and where the prior draws the maximum of the likelihood, if there is one: a Newton step."""
    import jax
    import numpy as np

    fit = scope["fit"]
    table = {name: np.asarray(column).tolist() for name, column in fit.summary().items() if name != "status"}
    found: dict[str, Any] = {**table, "name": list(fit.names), "status": fit.status}
    if maximum is not None:
        top = json.loads(maximum.read_text())
        anchor = fit.plan.anchor
        flat = np.array([top["value"][top["name"].index(name)] for name in fit.names], np.float32)
        slope = jax.grad(lambda theta: fit.model.log_prior(anchor.layout.unravel(theta)))(flat)
        found["step"] = (np.asarray(anchor.covariance) @ np.asarray(slope, float)).tolist()
    return found


def from_nuts(scope: dict[str, Any], maximum: Path | None) -> dict[str, Any]:
    """Means, sds and ArviZ's errors of them, under the names and on the scales of lv.fit."""
    import numpy as np
    from arviz_stats.base import array_stats

    draws = scope["draws"]
    columns: dict[str, Any] = {}
    for name, array in draws.posterior.data_vars.items():
        base, _, group = str(name).removesuffix("_sigma").partition("|")
        values = array.to_numpy()
        if name in LOGS:
            columns[LOGS[str(name)]] = np.log(values)
        elif group and str(name).endswith("_sigma"):
            columns[f"log sd(Intercept | {group})"] = np.log(values)
        elif name == "root_stds":
            columns["log sd(Intercept | Subject)"] = np.log(values[..., 0])
            columns["log sd(Days | Subject)"] = np.log(values[..., 1])
        elif name == "root_corr":
            columns["atanh cor(Days, Intercept | Subject)"] = np.arctanh(values[..., 0, 1])
        elif not group and name not in HIDDEN:
            levels = [""] if values.ndim == 2 else [f"[T.{level}]" for level in array[array.dims[2]].to_numpy()]
            cells = values[..., None] if values.ndim == 2 else values
            columns |= {f"{base}{level}": cells[..., k] for k, level in enumerate(levels)}
    stacked = np.stack(list(columns.values()), axis=-1)
    axes = {"chain_axis": 0, "draw_axis": 1}
    sd, deviations = stacked.std(axis=(0, 1), ddof=1), stacked - stacked.mean(axis=(0, 1))
    return {
        "name": list(columns),
        "mean": stacked.mean(axis=(0, 1)).tolist(),
        "sd": sd.tolist(),
        "mcse_mean": array_stats.mcse(stacked, method="mean", **axes).tolist(),
        # Of the mean squared deviation, over twice the sd. ArviZ's own error of an sd takes the draws' own effective
        # number, which anticorrelated draws make larger than that of their squares.
        "mcse_sd": (array_stats.mcse(deviations**2, method="mean", **axes) / (2.0 * sd)).tolist(),
        "r_hat": float(np.max(array_stats.rhat(stacked, **axes))),
        "divergences": int(draws.sample_stats["diverging"].sum()),
        "sampling": float(draws.posterior.attrs["sampling_time"]),
    }


def from_statsmodels(scope: dict[str, Any], maximum: Path | None) -> dict[str, Any]:
    """The maximum of the likelihood, under the names and on the scales of lv.fit."""
    import numpy as np

    ml = scope["ml"]
    if hasattr(ml, "cov_re"):
        sds = np.sqrt(np.diag(ml.cov_re))
        values = {
            **ml.fe_params,
            "log sigma": 0.5 * np.log(ml.scale),
            "log sd(Intercept | Subject)": np.log(sds[0]),
            "log sd(Days | Subject)": np.log(sds[1]),
            "atanh cor(Days, Intercept | Subject)": np.arctanh(ml.cov_re.to_numpy()[0, 1] / sds.prod()),
        }
    else:
        values = dict(zip(getattr(ml.params, "index", ml.model.exog_names), ml.params, strict=True))
        if "alpha" in values:
            # statsmodels has the variance mean + alpha mean^2.
            values["log phi"] = -np.log(values.pop("alpha"))
    return {"name": list(values), "value": [float(value) for value in values.values()]}


def main(snippet: Path, started: float, result: Path, maximum: Path | None = None) -> None:
    """Runs the snippet, then writes what it found."""
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(snippet.read_text(), str(snippet), "exec"), scope)
    seconds = time.time() - started
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    collect = from_langevin if "fit" in scope else from_nuts if "draws" in scope else from_statsmodels
    found = collect(scope, maximum) | {"seconds": seconds, "cpu": sum(one.ru_utime + one.ru_stime for one in used)}
    result.write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), *map(Path, sys.argv[3:]))
