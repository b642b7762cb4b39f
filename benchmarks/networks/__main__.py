"""Predictive probabilities of a network on digits against a long HMC of the same model, and beside other methods.

    python -m benchmarks.networks --seeds 0 1 2 --posteriors python --output docs/benchmarks/networks.txt

Runs are kept in build/networks: the command goes on where it was stopped. `--posteriors` names a Python with torch
and posteriors (see peer_posteriors.py); without it that line is left out. The reference is made by
`python -m benchmarks.networks.reference digits`.
"""

import argparse
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

import langevin as lv
from benchmarks.networks.ensemble import MEMBERS, deep_ensemble
from benchmarks.networks.problem import Problem, predict
from benchmarks.networks.reference import BUILD, FOLDER
from benchmarks.page import Page, output_option

LEVELS = (0.5, 0.9, 0.95)
_BINS = 10


def kept(path: Path, make: Any) -> dict[str, np.ndarray]:
    """The arrays that `make` returns, computed once."""
    if not path.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        np.savez(path, **make())
    with np.load(path, allow_pickle=False) as found:
        return dict(found)


def sampled(problem: Problem, passes: float, seed: int) -> dict[str, Any]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = lv.sample(problem.target, problem.data, problem.theta_0, passes=passes, seed=seed)
    spent = time.perf_counter() - wall, time.process_time() - cpu
    found = result.expectation(predict, data=problem.x_test)
    ends = {f"end_{level}": np.stack(found.interval(level)) for level in LEVELS}
    return {
        "mean": found.value, "stderr": found.stderr, "bias": found.bias, "statuses": found.statuses, **ends,
        "passes": result.passes, "setup_passes": result.setup_passes, "wall": spent[0], "cpu": spent[1],
        "batch_size": result.walk.settled.pair.batch_size, "draws": np.array(result.draws.shape[:2]),
        "relative_bias": result.relative_bias, "status": result.status,
    }  # fmt: skip


def ensemble(problem: Problem, passes: float, seed: int) -> dict[str, Any]:
    cpu = time.process_time()
    return {"mean": deep_ensemble(problem, passes, seed), "cpu": time.process_time() - cpu}


def by_posteriors(python: str, problem: Problem, passes: float, seed: int) -> dict[str, Any]:
    given, answer = BUILD / "problem.npz", BUILD / "answer.npz"
    arrays: dict[str, Any] = {"x": problem.x, "y": problem.y, "x_test": problem.x_test}
    arrays |= {f"shape_{name}": np.array(leaf.shape) for name, leaf in problem.theta_0.items()}
    arrays |= {f"sd_{name}": sd for name, sd in problem.prior_sd.items()}
    np.savez(given, **arrays)
    script = Path(__file__).with_name("peer_posteriors.py")
    subprocess.run([python, str(script), str(given), str(answer), str(passes), str(seed)], check=True)
    with np.load(answer, allow_pickle=False) as found:
        return dict(found)


def scores(mean: np.ndarray, y: np.ndarray, reference: np.ndarray) -> list[str]:
    """Log score, calibration error, accuracy, and distance from the reference's probabilities."""
    chosen = mean[np.arange(len(y)), y]
    sure, right = mean.max(axis=1), mean.argmax(axis=1) == y
    bins = np.minimum((sure * _BINS).astype(int), _BINS - 1)
    error = sum(abs(np.sum(right[bins == k]) - np.sum(sure[bins == k])) for k in range(_BINS)) / len(y)
    distance = np.sqrt(np.mean((mean - reference) ** 2))
    log_score = np.mean(np.log(np.maximum(chosen, 1e-12)))
    return [f"{log_score:.4f}", f"{error:.4f}", f"{np.mean(right):.3f}", f"{distance:.4f}"]


def covered(run: dict[str, np.ndarray], reference: dict[str, np.ndarray], y: np.ndarray) -> list[list[str]]:
    """How often intervals hold the reference's values, where the status is ok: all values, and one value a row."""
    rows = np.arange(len(y))
    best = reference["mean"].argmax(axis=1)
    found = []
    for words, pick in (
        ("all probabilities", (slice(None), slice(None))),
        ("of the true category", (rows, y)),
        ("of the likeliest category", (rows, best)),
    ):
        ok = run["statuses"][pick] == "ok"
        shares = [f"{np.mean(ok):.3f}"]
        for level in LEVELS:
            lower, upper = run[f"end_{level}"]
            inside = (lower <= reference["mean"])[pick] & (reference["mean"] <= upper)[pick]
            shares.append(f"{np.mean(inside[ok]):.3f}")
        ratio = np.median((reference["stderr"] / run["stderr"])[pick][ok])
        found.append([words, *shares, f"{np.median(run['stderr'][pick][ok]):.5f}", f"{ratio:.2f}"])
    whole = np.all(run["statuses"] == "ok", axis=1)
    inside = (run["end_0.95"][0] <= reference["mean"]) & (reference["mean"] <= run["end_0.95"][1])
    found.append(["rows with all ten ok", f"{np.mean(whole):.3f}", "", "", f"{np.mean(inside[whole]):.3f}", "", ""])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="digits")
    parser.add_argument("--passes", type=float, default=6000.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--posteriors", help="a Python that has torch and posteriors")
    output_option(parser)
    given = parser.parse_args()
    page, problem = Page(given.output), Problem.of(given.name)
    with np.load(FOLDER / f"{given.name}.npz", allow_pickle=False) as found:
        reference = dict(found)
    a, b, c = problem.sizes
    page.say(
        f"{given.name}: network {a}-{b}-{c}, tanh, {a * b + b + b * c + c:,} parameters, {len(problem.x)} training "
        f"rows, {len(problem.x_test)} test rows."
    )
    page.say(
        f"Reference: HMC on all the data, {reference['draws'].tolist()} draws of its chains, accepted "
        f"{reference['acceptance']:.2f}, split R-hat of the probabilities at most {reference['r_hat'].max():.3f}."
    )
    runs = {
        seed: kept(
            BUILD / f"{given.name}-langevin-{given.passes:g}-{seed}.npz",
            lambda s=seed: sampled(problem, given.passes, s),
        )
        for seed in given.seeds
    }
    for seed, run in runs.items():
        page.say()
        page.say(
            f"lv.sample(..., passes={given.passes:g}, seed={seed}): {run['batch_size']} data a step, "
            f"{run['passes']:.0f} passes + {run['setup_passes']:.0f} of set-up, {run['draws'][0]} chains of "
            f"{run['draws'][1]} kept draws at each of two steps, bias taken off {run['relative_bias']:.3f} sds, "
            f"{run['cpu']:.0f} s of processor time, {run['wall']:.0f} s on the clock [{run['status']}]"
        )
        head = ["bars", "ok", *(f"{level:.0%} covers" for level in LEVELS), "median stderr", "reference's/ours"]
        page.table(head, covered(run, reference, problem.y_test))
        words, counts = np.unique(run["statuses"], return_counts=True)
        page.say(", ".join(f"{word} {count}" for word, count in zip(words, counts, strict=True)))
    totals = {seed: float(run["passes"] + run["setup_passes"]) for seed, run in runs.items()}
    spent = ", ".join(f"{total:.0f}" for total in totals.values())
    page.say()
    page.say(
        f"Beside other methods on as many gradients as lv.sample took ({spent} passes, set-up and search included):"
    )

    def line(words: str, run: dict[str, np.ndarray]) -> list[str]:
        return [words, *scores(run["mean"], problem.y_test, reference["mean"]), f"{run['cpu']:.0f}"]

    lines = [["HMC, the reference", *scores(reference["mean"], problem.y_test, reference["mean"]), ""]]
    lines += [line(f"langevin, seed {seed}", run) for seed, run in runs.items()]
    for seed, total in totals.items():
        path = BUILD / f"{given.name}-ensemble-{total:.0f}-{seed}.npz"
        run = kept(path, lambda s=seed, t=total: ensemble(problem, t, s))
        lines.append(line(f"deep ensemble of {MEMBERS}, seed {seed}", run))
    for seed, total in totals.items():
        path = BUILD / f"{given.name}-posteriors-{total:.0f}-{seed}.npz"
        if given.posteriors or path.exists():
            run = kept(path, lambda s=seed, t=total: by_posteriors(given.posteriors, problem, t, s))
            setting = "learning rate {:g}, alpha {:g}".format(*run["setting"])
            lines.append(line(f"posteriors' SGHMC ({setting}), seed {seed}", run))
    page.table(["method", "log score", "calibration error", "accuracy", "rms from HMC", "CPU s"], lines)
    page.write()


if __name__ == "__main__":
    main()
