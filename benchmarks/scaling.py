"""What growing data cost: visits per effective draw, and seconds to means within 1% of an sd, against NUTS.

    python -m benchmarks.scaling --output docs/benchmarks/scaling.txt    # a quarter of an hour on an idle machine
    python -m benchmarks.scaling --sizes 1000 10000 --seeds 0            # a few minutes

Logistic regression with d = 10 and a standard normal prior, simulated. An effective draw is one independent draw's
worth of a mean: posterior variance / stderr^2 of them. The rule: datum visits per effective draw of one chain's plain
averages,
after set-up and with about as many steps a chain, differ between sizes by a factor of at most `MOST_RATIO`; the exit
code is 1 otherwise. The corrected averages stand beside: their cost falls as N grows.

Seconds are those of fresh processes, one contestant at a time; `lv.sample` without compiled programs on disk, and with
those of the process before ("cached"), which is what a second script on the same model finds. A precision of 0.0196 sds
at 95% is a standard error of 1% of an sd, which takes 10,000 effective draws of NUTS. Beyond `--complete-up-to` data
NUTS samples for `--nuts-seconds`, and what it would need follows from its effective draws a second (median over the
parameters).
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import numpy as np

import langevin as lv
from benchmarks.page import Page, output_option
from benchmarks.sample_worker import TARGET, ZERO
from benchmarks.scaling_problem import DIMENSION, simulate

ROOT = Path(__file__).resolve().parent.parent
MOST_RATIO = 1.5
STEPS, CHAINS = 2000, 4
EFFECTIVE = 1e4
# NUTS is faster with it on small data, and no slower elsewhere.
SMALL_LOOPS = "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=65536"


@dataclass(frozen=True)
class Cost:
    """One run: datum visits per effective draw of the plain and of the corrected means, (d,) each."""

    raw: np.ndarray
    corrected: np.ndarray
    batch_size: int
    steps: int
    delta_0: float
    setup_passes: float
    status: str


def cost(num_data: int, seed: int) -> Cost:
    """Runs `lv.sample` with the passes that about STEPS steps a chain take."""
    data = simulate(num_data, seed)
    rules = lv.plan(TARGET, data, ZERO, passes=1.0, chains=CHAINS, seed=seed).rules
    visits = STEPS * CHAINS * rules.step_cost(rules.batch_size(STEPS * CHAINS))
    result = lv.sample(TARGET, data, ZERO, passes=visits / num_data, chains=CHAINS, seed=seed, progress=False)
    variance = result.sd.value**2
    # Chain by chain: in the mean of an antithetic pair the plain average's error cancels, and falls with N too.
    alone = lv.estimate(result.ledger, "raw", pool=False)["theta.mean"].stderr
    return Cost(
        raw=result.ledger.cost / CHAINS * (alone**2).mean(axis=0) / variance,
        corrected=result.ledger.cost * result.mean.stderr**2 / variance,
        batch_size=result.session.batch_size,
        steps=result.session.steps,
        delta_0=result.plan.delta_0,
        setup_passes=result.setup_passes,
        status=result.status,
    )


def cost_table(page: Page, sizes: list[int], seeds: list[int]) -> bool:
    """Prints visits per effective draw; False if they differ too much between sizes."""
    page.say(
        f"Datum visits per effective draw of a mean, d = {DIMENSION}, {CHAINS} chains, {len(seeds)} data sets a size"
    )
    rows, means = [], []
    for num_data in sizes:
        found = [cost(num_data, seed) for seed in seeds]
        raw, corrected = (np.stack([getattr(one, name) for one in found]) for name in ("raw", "corrected"))
        # The parameters of one run count as independent: roughly true of whitened chains.
        error = raw.std(ddof=1) / np.sqrt(raw.size)
        means.append(float(raw.mean()))
        per_step = np.mean([one.raw.mean() / one.batch_size for one in found])
        rows.append(
            [
                f"{num_data:g}",
                f"{raw.mean():.1f} ± {error:.1f}",
                f"{np.median(raw):.1f}",
                f"{per_step:.2f}",
                f"{corrected.mean():.2g}",
                f"{np.median(corrected):.2g}",
                _listed(one.batch_size for one in found),
                _listed(one.steps for one in found),
                _listed(one.delta_0 for one in found),
                f"{np.mean([one.setup_passes for one in found]):.3g}",
                _listed(one.status for one in found),
            ]
        )
    head = ["N", "plain mean", "median", "steps", "corrected mean", "median", "n", "steps a chain", "delta_0"]
    page.table([*head, "set-up passes", "status"], rows)
    ratio = max(means) / min(means)
    good = ratio <= MOST_RATIO
    page.say(f"plain mean, largest over smallest: {ratio:.2f}, allowed {MOST_RATIO}: {'met' if good else 'MISSED'}")
    return good


def _listed(values: Any) -> str:
    return ", ".join(map(str, sorted(set(values))))


def ask(module: str, num_data: int, *arguments: Any, flags: str = "", **settings: str) -> dict[str, Any]:
    """What a worker in a fresh process answers; `settings` are added to its environment."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}", **settings}
    environment.pop("XLA_FLAGS", None)
    if flags:
        environment["XLA_FLAGS"] = flags
    command = [sys.executable, "-m", module, str(num_data), *map(str, arguments)]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT, check=True)
    return json.loads(run.stdout.splitlines()[-1])


def nuts(num_data: int, seed: int, chains: int, most_seconds: float) -> dict[str, Any]:
    """The worker's answer with `needed`: seconds of sampling for EFFECTIVE draws, measured or extrapolated."""
    options = ("--seed", seed, "--chains", chains, "--effective", EFFECTIVE, "--most-seconds", most_seconds)
    found = ask("benchmarks.nuts_worker", num_data, *options, flags=SMALL_LOOPS)
    found["complete"] = found["least_effective"] >= EFFECTIVE
    longer = 1.0 if found["complete"] else EFFECTIVE / found["median_effective"]
    return found | {"needed": longer * found["sampling"], "needed_gradients": longer * found["gradients"]}


def total(found: dict[str, Any]) -> float:
    """Seconds from the call to the answer, without the import."""
    return found["compile"] + found["setup"] + found.get("needed", found["sampling"])


def _seconds(value: float) -> str:
    return f"{value:.3g}"


def wall_clock(page: Page, sizes: list[int], seed: int, complete_up_to: int, nuts_seconds: float) -> None:
    """Prints the seconds of both contestants, their ratio, and the error of the Laplace approximation."""
    page.say(f"Seconds until every mean has a standard error below 1% of an sd, fresh processes, data set {seed}")
    rows, ratios, errors, near = [], [], [], []
    for num_data in sizes:
        worker = partial(ask, "benchmarks.sample_worker", num_data, "--seed", seed)
        ours = worker(LANGEVIN_NO_CACHE="1")
        with TemporaryDirectory() as folder:
            _, cached = worker(XDG_CACHE_HOME=folder), worker(XDG_CACHE_HOME=folder)
        note = f"n = {ours['batch_size']}, {ours['steps']} steps, {ours['stopped']}, status {ours['status']}"
        spent = f"{ours['setup_passes']:.3g} + {ours['passes']:.3g}"
        named = [("lv.sample", ours, ours["sampling"], spent, note)]
        named += [("lv.sample, cached", cached, cached["sampling"], spent, "")]
        limit = np.inf if num_data <= complete_up_to else nuts_seconds
        theirs = [nuts(num_data, seed, chains, limit) for chains in (1, 4)]
        for chains, found in zip((1, 4), theirs, strict=True):
            spent = f"{found['setup_gradients']} + {found['needed_gradients']:.0f}"
            per_gradient = found["sampling"] / found["gradients"]
            effective = found["median_effective"] / found["gradients"]
            note = f"{effective:.3f} effective draws and {per_gradient:.1e} s a gradient"
            note += "" if found["complete"] else f", extrapolated from {found['draws']} draws"
            named.append((f"NUTS, {chains} chain{'s' * (chains > 1)}", found, found["needed"], spent, note))
        for name, found, sampling, spent, note in named:
            seconds = (found["import"], found["compile"], found["setup"], sampling, total(found))
            rows.append([f"{num_data:g}", name, *map(_seconds, seconds), spent, note])
        best = min(theirs, key=total)
        warm = (best["setup"] + best["needed"]) / (ours["setup"] + ours["sampling"])
        over = [total(best) / total(ours), total(best) / total(cached), warm]
        ratios.append([f"{num_data:g}", *(f"{ratio:.3g}" for ratio in over)])
        laplace, apart = _apart(ours, ours["laplace_mean"]), _apart(ours, best["mean"])
        expected = f"{apart:.2g}, where NUTS has ± {best['median_effective'] ** -0.5:.2g} each"
        errors.append([f"{num_data:g}", f"{laplace:.2g}", f"{ours['worst_stderr']:.2g}", expected])
        near += [f"{num_data:g}"] if laplace < 0.01 else []
    page.table(["N", "", "import", "compile", "set-up", "sampling", "total", "passes", ""], rows)
    page.say("total is without the import; passes of set-up + sampling, a gradient of NUTS being one")
    page.say()
    page.say("How many times longer NUTS (the better of the two) takes than lv.sample")
    page.table(["N", "in total", "cached", "without compilation"], ratios)
    page.say()
    page.say("Largest error over the parameters, in posterior sds")
    page.table(["N", "Laplace mean", "standard error of lv.sample", "lv.sample against NUTS"], errors)
    where = ", ".join(near) if near else "none of these"
    page.say(f"The Laplace mean alone, without sampling, is within 1% of an sd at N = {where}")


def _apart(found: dict[str, Any], other: list[float]) -> float:
    """Largest distance of other means from those found, in posterior sds."""
    return float(np.max(np.abs(np.array(other) - np.array(found["mean"])) / np.array(found["sd"])))


def main() -> None:
    """Prints the tables and fails when the cost of an effective draw is not flat."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10**3, 10**4, 10**5, 10**6])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="data sets; the first one is timed")
    parser.add_argument("--complete-up-to", type=int, default=10**4)
    parser.add_argument("--nuts-seconds", type=float, default=40.0)
    output_option(parser)
    options = parser.parse_args()
    page, began = Page(options.output), monotonic()
    page.say(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at first")
    page.say()
    good = cost_table(page, options.sizes, options.seeds)
    page.say()
    wall_clock(page, options.sizes, options.seeds[0], options.complete_up_to, options.nuts_seconds)
    page.say()
    page.say(f"{monotonic() - began:.0f} s, load {os.getloadavg()[0]:.1f} at last")
    page.write()
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
