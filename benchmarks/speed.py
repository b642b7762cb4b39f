"""`make bench`: the contestants in turn on one core, round after round; ratios, a JSON record, a picture."""

import argparse
import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import truth
from benchmarks.picture import draw
from benchmarks.workloads import NAMES, Workload, load

ROOT = Path(__file__).resolve().parent.parent
SMALL_LOOPS = "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=65536"
Z_LIMIT = 5.0  # |z| of the posterior mean beyond which a contestant does not sample the right thing

# title -> (module, XLA_FLAGS)
CONTESTANTS = {
    "limit": ("benchmarks.limit_numba", ""),
    "langevin": ("benchmarks.contestant_langevin", ""),
    "blackjax, our flag": ("benchmarks.peer_blackjax", SMALL_LOOPS),
    "blackjax": ("benchmarks.peer_blackjax", ""),
}


class Absent(Exception):
    """A contestant could not be started or stopped answering."""


class Worker:
    """One contestant in its own process, which runs when told to."""

    def __init__(self, module: str, flags: str, workload: str, steps: int) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
        environment.pop("XLA_FLAGS", None)
        if flags:
            environment["XLA_FLAGS"] = flags
        command = [sys.executable, "-m", module, workload, "--steps", str(steps), "--serve"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
        )
        self.greeting = self._listen()

    def _listen(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise Absent(f"the process ended with code {self.process.wait()}, see its message above")
        return json.loads(line)

    def run(self, variant: str, seed: int) -> dict[str, Any]:
        assert self.process.stdin is not None
        try:
            print(json.dumps({"variant": variant, "seed": seed}), file=self.process.stdin, flush=True)
        except BrokenPipeError as error:
            raise Absent("the process has gone") from error
        return self._listen()

    def close(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait()


@dataclass
class Entry:
    """One row of the result: a variant of a contestant on a workload."""

    workload: str
    contestant: str
    variant: str
    first_seconds: float = 0.0
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    worst_z: float = 0.0


def start(workload: Workload, steps: int, facts: dict[str, Any]) -> tuple[dict[str, Worker], list[Entry]]:
    """Every contestant that can run, each variant run once to compile; the others are named in the facts."""
    workers, entries = {}, []
    for contestant, (module, flags) in CONTESTANTS.items():
        try:
            worker = Worker(module, flags, workload.name, steps)
            compiled = [
                Entry(workload.name, contestant, v, first_seconds=worker.run(v, seed=0)["seconds"])
                for v in worker.greeting["variants"]
            ]
        except Absent as error:
            facts["absent"][contestant] = str(error)
            print(f"{workload.name} {contestant} is absent: {error}", file=sys.stderr)
        else:
            workers[contestant] = worker
            entries += compiled
            facts["versions"] |= worker.greeting["versions"]
    return workers, entries


def compete(workload: Workload, steps: int, rounds: int, workers: dict[str, Worker], entries: list[Entry]) -> None:
    """Run them in turn, round after round, and write the times into the entries."""
    prediction = truth.predict(workload, steps)
    for seed in range(1, rounds + 1):
        for entry in entries:
            answer = workers[entry.contestant].run(entry.variant, seed)
            entry.seconds.append(answer["seconds"])
            entry.cpu_seconds.append(answer["cpu_seconds"])
            entry.worst_z = max(entry.worst_z, prediction.worst_z(answer["mean"]))


def times_faster(entry: Entry | None, other: Entry | None, clock: str) -> float | None:
    """How many times faster `entry` is: the median of the ratios within a round."""
    if entry is None or other is None:
        return None
    return median(b / a for a, b in zip(getattr(entry, clock), getattr(other, clock), strict=True))


def record(workload: Workload, steps: int, entries: list[Entry], clock: str) -> list[dict[str, Any]]:
    def find(contestant: str, variant: str | None = None) -> Entry | None:
        return next((e for e in entries if e.contestant == contestant and variant in (None, e.variant)), None)

    peer, flagged, limit = find("blackjax"), find("blackjax, our flag"), find("limit")
    tuned = find("blackjax", "hand-tuned")
    return [
        {
            "workload": entry.workload,
            "title": workload.title,
            "contestant": entry.contestant,
            "variant": entry.variant,
            "steps": steps,
            "chain_steps_per_second": workload.chains * steps / median(getattr(entry, clock)),
            "times_blackjax": times_faster(entry, peer, clock),
            "times_blackjax_our_flag": times_faster(entry, flagged, clock),
            "times_blackjax_hand_tuned": times_faster(entry, tuned, clock),
            "limit_over_it": times_faster(limit, entry, clock),
            "first_call_seconds": entry.first_seconds,
            "seconds": entry.seconds,
            "cpu_seconds": entry.cpu_seconds,
            "worst_z": entry.worst_z,
            "samples_the_posterior": entry.worst_z < Z_LIMIT,
        }
        for entry in entries
    ]


def table(rows: list[dict[str, Any]]) -> str:
    def ratio(value: float | None) -> str:
        return "      -" if value is None else f"{value:7.2f}"

    heads = " ".join(f"{head:>7}" for head in ("/ peer", "/ flag", "/ tuned", "limit /", "first"))
    lines = [f"{'':4} {'contestant':48} {'steps/s':>11} {heads} {'|z|':>5}"]
    for row in rows:
        name = f"{row['contestant']}: {row['variant']}"
        ratios = " ".join(
            ratio(row[k])
            for k in ("times_blackjax", "times_blackjax_our_flag", "times_blackjax_hand_tuned", "limit_over_it")
        )
        wrong = "" if row["samples_the_posterior"] else "  WRONG POSTERIOR"
        rate, first, z = row["chain_steps_per_second"], row["first_call_seconds"], row["worst_z"]
        lines.append(f"{row['workload']:4} {name:48} {rate:11,.0f} {ratios} {first:6.1f}s {z:5.2f}{wrong}")
    return "\n".join(lines)


def page(rows: list[dict[str, Any]], facts: dict[str, Any]) -> str:
    """The result as a page of the documentation."""
    versions = ", ".join(f"{name} {version}" for name, version in sorted(facts["versions"].items()))
    return f"""# Speed

Made by `make bench`: {facts["rounds"]} interleaved rounds, all contestants in turn on one core of {facts["cores"]}
({facts["cpu"]}; {versions}). A step draws a minibatch, takes a gradient, adds noise and updates the weighted sums;
`langevin` is timed as the whole `lv.run` call after one warm-up. Ratios are medians over rounds of the ratio within
a round; absolute figures move with the machine.

These are steps of one algorithm, not answers. For a model as small as W1 a user is better served by NUTS, or by the
Laplace approximation that `lv.laplace` prints beside every corrected estimate; minibatches pay where a pass over the
data is what costs.

- *peer*: blackjax in one compiled scan with `vmap`, own process, default flags; *flag*: the same with the small-loop
  flag that langevin sets; *tuned*: the fastest form of blackjax that we could find (see `benchmarks/peer_blackjax.py`).
- *limit*: the same loop by hand in Numba. *first*: seconds of the first call, compilation included.
- *|z|*: largest distance of the posterior mean from its predicted law, in standard errors, over all rounds.

```
{table(rows)}
```

![Chain-steps per second by workload](speed.png)
"""


def machine() -> dict[str, Any]:
    cpu = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        cpu = next((li.split(":")[1].strip() for li in info.read_text().splitlines() if "model name" in li), cpu)
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {},
        "absent": {},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the steps, three rounds")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--workloads", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--core", type=int, default=0, help="the one core that all contestants take turns on")
    parser.add_argument("--clock", choices=("seconds", "cpu_seconds"), default="seconds", help="cpu on a busy machine")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks")
    options = parser.parse_args()
    rounds = min(options.rounds, 3) if options.quick else options.rounds

    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {options.core})  # the contestants inherit it
    facts = machine() | {"rounds": rounds, "clock": options.clock}
    rows: list[dict[str, Any]] = []
    for name in options.workloads:
        workload = load(name)
        steps = workload.steps // 10 if options.quick else workload.steps
        workers, entries = start(workload, steps, facts)
        try:
            compete(workload, steps, rounds, workers, entries)
        finally:
            for worker in workers.values():
                worker.close()
        rows += record(workload, steps, entries, options.clock)
        load.cache_clear()

    print(table(rows))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "speed.json").write_text(json.dumps({"facts": facts, "rows": rows}, indent=1) + "\n")
    draw(rows, options.out / "speed.png")
    (options.out / "speed.md").write_text(page(rows, facts))
    print(f"written: speed.json, speed.md and speed.png in {options.out}")


if __name__ == "__main__":
    main()
