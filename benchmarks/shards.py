"""Data in shards: chains that travel between them, products of subposteriors, and the same data in one place.

    python -m benchmarks.shards --output docs/shards.md       # about ten minutes on two cores
    python -m benchmarks.shards --runs 2                      # fewer runs

A logistic regression of 20,000 rows and 4 parameters. Truth: a long `lv.sample` on all rows in one place. Every method
runs with several seeds; errors are those of the worst parameter, averaged over the seeds, and +- is the standard error
of that average. Messages and bytes are counted, not sent: a message is one array from a shard's owner or to it.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import jax.numpy as jnp
import numpy as np

import langevin as lv
from benchmarks.page import Page, output_option
from benchmarks.shards_words import AFTER, BEFORE
from langevin.shards import products

ROWS, COEFFICIENTS = 20_000, np.array([-0.5, 1.0, -0.5, 0.3])
STEPS, CHAINS, BATCH, STAY = 20_000, 4, 20, 100
DRAWS = 2000


def log_prior(theta):
    return -0.125 * jnp.dot(theta, theta)


def log_likelihood(theta, row):
    return lv.log_sigmoid(row["y"] * jnp.dot(row["x"], theta))


TARGET, START = lv.Target(log_prior, log_likelihood), jnp.zeros(4)


def table() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(ROWS, 4)).astype(np.float32)
    x[:, 0] = 1.0
    y = np.where(rng.random(ROWS) < 1 / (1 + np.exp(-x @ COEFFICIENTS)), 1, -1).astype(np.float32)
    return {"x": x, "y": y}


@dataclass(frozen=True)
class Cut:
    """Rows in the order of their shards, and how many each has."""

    name: str
    data: dict[str, np.ndarray]
    sizes: tuple[int, ...]

    @property
    def shards(self) -> list[dict[str, np.ndarray]]:
        stops = np.cumsum(self.sizes)
        return [{k: v[b - n : b] for k, v in self.data.items()} for n, b in zip(self.sizes, stops, strict=True)]


def cuts() -> list[Cut]:
    data = table()
    by_feature = {name: leaf[np.argsort(data["x"][:, 1])] for name, leaf in data.items()}
    return [
        Cut("two shards of 90% and 10%, cut along a feature", by_feature, (ROWS * 9 // 10, ROWS // 10)),
        Cut("ten equal shards of random rows", data, (ROWS // 10,) * 10),
    ]


@dataclass(frozen=True)
class Found:
    """Means and sds, the word of the estimate, what was sent, and processor seconds of all machines together."""

    mean: np.ndarray
    sd: np.ndarray
    status: str
    messages: int
    bytes: int
    seconds: float


class Uncorrected(lv.Sharded):
    """The sabotaged twin: every row weighs N/n, however often its shard is visited."""

    def scale(self, key, origin, at, num_data):
        return num_data / self.batch_size


def in_one_place(cut: Cut, seed: int) -> Found:
    began = process_time()
    result = lv.sample(TARGET, cut.data, START, passes=STEPS * CHAINS * BATCH / ROWS, seed=seed, progress=False)
    return Found(result.mean.value, result.sd.value, result.status, 0, 0, process_time() - began)


def travelling(cut: Cut, seed: int, order: int, kind: type = lv.Sharded, stay: int = STAY) -> Found:
    """Chains that visit all shards equally often, for STAY steps each."""
    began = process_time()
    shards, d = len(cut.sizes), len(START)
    anchor = lv.laplace(TARGET, cut.data, START)
    gradient = lv.ControlVariate(anchor, order=2) if order else lv.Minibatch()
    subsample = kind(BATCH, sizes=cut.sizes, stay=stay, probabilities=(1 / shards,) * shards)
    subsample = lv.shards.with_drifts(subsample, TARGET, cut.data, gradient, anchor)
    # Plain gradients have a whitened variance of about N/n: this step widens the chain's variance by an eighth.
    delta = 0.5 if order else 0.5 * BATCH / ROWS
    ledger = lv.run(
        TARGET, cut.data, START, subsample=subsample, gradient=gradient, anchor=anchor,
        kernel=lv.LeimkuhlerMatthews() if order else lv.SGLD(), coordinates=lv.Whitened.by(anchor),
        schedule=lv.Constant(delta), num_steps=STEPS, chains=CHAINS, seed=seed, progress=False,
    )  # fmt: skip
    found = lv.estimate(ledger, method="corrected")
    mean, sd = found["theta.mean"], found["theta.sd"]
    passes, pairs = anchor.cost // ROWS, 2 * d + 24
    moves = CHAINS * -(-STEPS // stay)
    # Set-up: value, gradient and Hessian of each pass, then the pulls of the shards. A chain carries theta and noise.
    messages = shards * (passes + 1) + moves
    size = 8 * shards * (passes * (1 + d + d * d) + 2 * pairs * d + d * d) + 4 * moves * 2 * d
    word = mean.status if mean.status != "ok" else sd.status
    return Found(mean.value, sd.value, word, messages, size, process_time() - began)


def multiplied(
    cut: Cut, combine: Callable[[list[np.ndarray]], Any], sub: Callable[[lv.Target, int], lv.Target], seed: int
) -> Found:
    """Every shard samples by itself with the default call and sends its draws once."""
    began = process_time()
    shards = len(cut.sizes)
    target, draws = sub(TARGET, shards), []
    for s, shard in enumerate(cut.shards):
        result = lv.sample(target, shard, START, passes=100, seed=seed * 100 + s, progress=False)
        kept = result.draws
        weight = np.tile(kept.weight, len(kept.theta))
        picked = np.random.default_rng([seed, s]).choice(len(weight), DRAWS, p=weight / weight.sum())
        draws.append(kept.theta.reshape(-1, len(START))[picked].astype(np.float64))
    found = combine(draws)
    return Found(found.mean, found.sd, "", shards, shards * DRAWS * len(START) * 4, process_time() - began)


def methods() -> dict[str, Callable[[Cut, int], Found]]:
    shared: dict[tuple[str, int], Any] = {}

    def product(combine: Callable[..., Any], sub: Callable[..., lv.Target]) -> Callable[[Cut, int], Found]:
        def one(cut: Cut, seed: int) -> Found:
            # The draws of the shards are the same for all products: sampled once.
            key = (cut.name, seed, sub.__name__)
            if key not in shared:
                kept: list[Any] = []
                sampled = multiplied(cut, lambda draws: kept.append(draws) or products.parametric(draws), sub, seed)
                shared[key] = kept[0], sampled
            draws, sampled = shared[key]
            began = process_time()
            found = combine(draws)
            seconds = sampled.seconds + process_time() - began
            return Found(found.mean, found.sd, "", sampled.messages, sampled.bytes, seconds)

        return one

    divided, powered = lv.shards.subposterior, lv.shards.powered
    return {
        "lv.sample, all in one place": in_one_place,
        "travelling chains, control variates": lambda cut, seed: travelling(cut, seed, 2),
        "travelling chains, plain minibatches": lambda cut, seed: travelling(cut, seed, 0),
        "travelling chains, plain, weights uncorrected": lambda cut, seed: travelling(cut, seed, 0, Uncorrected),
        "consensus": product(lv.shards.consensus, divided),
        "parametric product": product(lv.shards.parametric, divided),
        "semiparametric product": product(lv.shards.semiparametric, divided),
        "nonparametric product": product(lv.shards.nonparametric, divided),
        "M-posterior": product(lv.shards.m_posterior, powered),
    }


def measured(cut: Cut, runs: int, truth: lv.Result, record: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """What each method found, from the record where it is there: a run that was cut off goes on."""
    known = json.loads(record.read_text()) if record.exists() else {}
    sd = truth.sd.value
    for name, run in methods().items():
        key = f"{cut.name}, {name}, {runs} runs"
        if key not in known:
            found = [run(cut, seed) for seed in range(1, runs + 1)]
            known[key] = {
                "means": [float(np.max(np.abs(one.mean - truth.mean.value) / sd)) for one in found],
                "sds": [float(np.max(np.abs(one.sd / sd - 1.0))) for one in found],
                "status": ", ".join(sorted({one.status for one in found} - {""})),
                "messages": found[0].messages,
                "bytes": found[0].bytes,
                "seconds": float(np.mean([one.seconds for one in found])),
            }
            record.write_text(json.dumps(known, indent=1))
        yield name, known[key]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=4, help="seeds of each method")
    parser.add_argument("--record", type=Path, default=Path("build/shards.json"), help="what is measured so far")
    output_option(parser)
    options = parser.parse_args()
    options.record.parent.mkdir(parents=True, exist_ok=True)
    page = Page(options.output)
    page.say(BEFORE)
    for cut in cuts():
        truth = lv.sample(TARGET, cut.data, START, passes=200, seed=999, progress=False)
        sd = truth.sd.value
        page.say(f"\n## {cut.name[0].upper()}{cut.name[1:]}\n")
        bars = max(np.max(truth.mean.stderr / sd), np.max(truth.sd.stderr / sd))
        page.say(
            f"Truth: `lv.sample(..., passes=200)`, status `{truth.status}`, known to {bars:.1g} sds. "
            f"{options.runs} seeds.\n"
        )
        page.say("| method | error of means, sds | error of sds, relative | status | messages | kB sent | seconds |")
        page.say("|---|---|---|---|---|---|---|")
        for name, one in measured(cut, options.runs, truth, options.record):
            errors = [np.array(one[part]) for part in ("means", "sds")]
            cells = [f"{e.mean():.2g} +- {e.std(ddof=1) / np.sqrt(len(e)):.1g}" for e in errors]
            page.say(
                f"| {name} | {cells[0]} | {cells[1]} | {one['status']} | {one['messages']} "
                f"| {one['bytes'] / 1e3:.0f} | {one['seconds']:.1f} |"
            )
    page.say(AFTER)
    page.write()


if __name__ == "__main__":
    main()
