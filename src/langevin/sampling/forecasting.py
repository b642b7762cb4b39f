"""`lv.forecast`: what a run on data and machines that are not here would take, from a sample of the data."""

from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, NamedTuple

import jax
import numpy as np

from langevin.anchor.passes import Passes
from langevin.coordinates import Whitened
from langevin.data.source import ArraySource, DataSource, as_source
from langevin.data.subsample import Full, Subsample, WithReplacement
from langevin.engine.checks import require, whole_number
from langevin.engine.entry import run
from langevin.gradients import ControlVariate, Minibatch
from langevin.kernels import LeimkuhlerMatthews
from langevin.precision import apart
from langevin.sampling.planning import Plan, plan
from langevin.sampling.rules import WANTED_STEPS
from langevin.startup import own_programs
from langevin.target import Target

PyTree = Any
# Repetitions of each timing: the range is that of the fastest and the slowest.
_REPEATS, _TIMED_STEPS = 3, 2000
# Rows times parameters of a timed pass: twice as many as the set-up compiles without optimisation.
_TIMED_FLOATS = 2**20
# Random rows of data larger than the caches took up to three times as long a step as rows within them.
_FAR_ROWS = 3.0
# Newton steps more or less than on the sample, in passes; seconds of one message between machines.
_MORE_PASSES, _MESSAGE = 3.0, (1e-4, 4e-3)
# 95% of a normal law.
_NORMAL = 1.96


class Range(NamedTuple):
    """The least and the most that is expected."""

    low: float
    high: float

    def __str__(self) -> str:
        if self.high <= 1.001 * self.low:
            return _rounded(self.low)
        return f"{_rounded(self.low)} to {_rounded(self.high)}"


@dataclass(frozen=True)
class Forecast:
    """What a run of `lv.sample` on `num_data` rows on `machines` would take; print it to read it.

    `bytes` of the data, `passes` of the set-up over them, `visits` of data while sampling, `steps` a chain of
    `batch_size` rows, `messages` and `sent` bytes between machines, `seconds` in all. `refused` says why the sample
    itself would not be answered by minibatches, where that is so: then nothing here holds.

    Example:
        >>> import langevin as lv
        >>> model = lv.models.Logistic.simulate(seed=1)
        >>> found = lv.forecast(model.target, model.data, model.theta_0, num_data=1e6)
        >>> str(found).splitlines()[0]
        '1,000,000 rows, from a sample of 1,000; means and sds to 0.02 sds at 95%'
    """

    num_data: int
    machines: int
    precision: float
    sample: int
    bytes: float
    passes: Range
    steps: Range
    batch_size: Range
    visits: Range
    messages: Range
    sent: Range
    seconds: Range
    refused: str

    def __str__(self) -> str:
        each = f", {_rounded(self.bytes / self.machines)} on each of {self.machines} machines"
        lines = [
            f"{self.num_data:,} rows, from a sample of {self.sample:,}; means and sds to {self.precision:g} sds at 95%",
            f"  data      {_rounded(self.bytes)} bytes" + (each if self.machines > 1 else ""),
            f"  set-up    {self.passes} passes, up to {_rounded(self.passes.high * self.bytes)} bytes read",
            f"  sampling  {self.steps} steps a chain of {self.batch_size} rows: {self.visits} datum visits",
            f"  sent      {self.messages} messages, {self.sent} bytes",
            f"  seconds   {self.seconds}, reading from disks aside",
        ]
        return "\n".join(lines + ([f"  DO NOT RELY ON THIS: {self.refused}"] if self.refused else []))


def forecast(
    target: Target,
    data: PyTree,
    theta_0: PyTree,
    *,
    num_data: float,
    machines: int = 1,
    precision: float = 0.02,
    stay: int = 1000,
    seed: int = 0,
) -> Forecast:
    """Bytes, passes, seconds and messages of `lv.sample` on more rows, extrapolated from those that are here.

    Plans a run on `data`, a random sample of the rows, and times its passes and steps on this machine. With N rows the
    posterior is as much nearer to a Gaussian as theory says: gradient noise and the spread of corrected values fall as
    1/N, and the number of Newton steps hardly changes. Where there are several machines, each is as fast as this one
    and holds its part of the rows; chains stay for `stay` steps with a machine. A range where an assumption or a
    timing leaves one. Cost: a plan on `data`, and some passes.

    Example:
        >>> import langevin as lv
        >>> model = lv.models.Logistic.simulate(seed=1)
        >>> found = lv.forecast(model.target, model.data, model.theta_0, num_data=1e10, machines=100)
        >>> found.num_data, found.machines, f"{found.bytes:.1e}", found.refused
        (10000000000, 100, '1.6e+11', '')
    """
    source = as_source(data)
    require(source.num_data <= num_data < 1e15, "num_data", num_data, f"at least the {source.num_data} here", "1e9")
    machines, stay = whole_number("machines", machines, 1), whole_number("stay", stay, 1, try_this=1000)
    here = plan(target, source, theta_0, precision=precision, method="minibatch", seed=seed)
    there = _grown(here, int(num_data))
    d, chains = here.rules.dimension, len(here.chains)
    steps = [max(float(WANTED_STEPS), WANTED_STEPS * (_error(p) * _NORMAL / precision) ** 2) for p in (there, here)]
    # On the sample itself nothing is extrapolated; with more rows the error can only be smaller.
    steps_needed = Range(min(steps[0], steps[1]), steps[0])
    sizes = Range(*(float(there.rules.batch_size(s * chains)) for s in steps_needed))
    visits = Range(*(s * chains * there.rules.step_cost(int(n)) for s, n in zip(steps_needed, sizes, strict=True)))
    once = (here.pilot.cost + here.survey.cost) / num_data
    newton = here.anchor.cost / source.num_data
    passes = Range(max(newton - _MORE_PASSES, 2.0) + once, newton + _MORE_PASSES + once)
    by_visit, by_step = _timed_pass(target, source, here, int(num_data)), _timed_steps(target, source, here)
    # Pilot and survey look at as many rows as here; what they took here was with or without compiling.
    beside = (0.0, here.setup_seconds)
    far = 1.0 if source.num_data == num_data else _FAR_ROWS
    moves = Range(*(chains * np.ceil(s / stay) if machines > 1 else 0.0 for s in steps_needed))
    messages = Range(
        *(m + (machines * np.ceil(p) if machines > 1 else 0.0) for m, p in zip(moves, passes, strict=True))
    )
    sent = Range(
        *(
            m * 8 * d + (machines * np.ceil(p) * 8 * (1 + d + d * d) if machines > 1 else 0.0)
            for m, p in zip(moves, passes, strict=True)
        )
    )
    # Chains of one machine are those that were timed together.
    share = -(-chains // machines) / chains
    seconds = Range(
        *(
            p * num_data * v / machines + s * t * slow * share + m * wait + once
            for p, v, s, t, slow, m, wait, once in zip(
                passes, by_visit, steps_needed, by_step, (1.0, far), messages, _MESSAGE, beside, strict=True
            )
        )
    )
    troubles = [trouble.text for trouble in here.troubles if trouble.refused]
    size = source.bytes / source.num_data * num_data
    return Forecast(
        num_data=int(num_data), machines=machines, precision=precision, sample=source.num_data, bytes=size,
        passes=passes, steps=steps_needed, batch_size=sizes, visits=visits, messages=messages, sent=sent,
        seconds=seconds, refused=troubles[0] if troubles else "",
    )  # fmt: skip


def _grown(here: Plan, num_data: int) -> Plan:
    """The plan of the same posterior with more rows: its remainders fall as 1/N in units of the posterior."""
    ratio = num_data / here.num_data
    rules = replace(here.rules, num_data=num_data, noise=here.rules.noise / ratio)
    pilot = replace(here.pilot, spread=here.pilot.spread / ratio)
    size = rules.batch_size(float(WANTED_STEPS * len(here.chains)))
    return replace(here, rules=rules, pilot=pilot, batch_size=size, num_steps=WANTED_STEPS)


def _error(chosen: Plan) -> float:
    """The largest standard error of a mean or an sd after the least number of steps, in posterior sds."""
    chosen = replace(chosen, num_steps=WANTED_STEPS)
    return float(max(chosen.expected_mean_error.max(), chosen.expected_sd_error.max()))


def _timed_pass(target: Target, source: DataSource, here: Plan, num_data: int) -> Range:
    """Seconds of a datum visit of the set-up, once compiled: of the sample again and again, as many rows as count."""
    layout, anchor = here.anchor.layout, here.anchor
    times = -(-min(num_data, _TIMED_FLOATS // layout.size) // source.num_data)
    arrays = jax.tree.map(lambda leaf: np.concatenate([leaf] * times), source.arrays)
    seconds = []
    with own_programs(), jax.enable_x64(True):
        passes = Passes(apart(target), ArraySource(arrays, times * source.num_data), layout)
        for _ in range(_REPEATS + 1):
            began = perf_counter()
            passes.parts(np.asarray(anchor.theta, np.float64), order=2)
            seconds.append((perf_counter() - began) / (times * source.num_data))
    return Range(min(seconds[1:]), max(seconds[1:]))


def _timed_steps(target: Target, source: DataSource, here: Plan) -> Range:
    """Seconds of a step of all chains side by side, once compiled."""
    everything = here.batch_size == here.rules.num_data
    subsample: Subsample = Full() if everything else WithReplacement(here.batch_size)
    gradient = Minibatch() if everything or not here.anchor.dense else ControlVariate(here.anchor, order=2)
    seconds = []
    for k in range(_REPEATS + 1):
        began = perf_counter()
        run(
            target, source, here.anchor.mode, schedule=here.rules.schedule(here.delta_0), num_steps=_TIMED_STEPS,
            kernel=LeimkuhlerMatthews(), gradient=gradient, subsample=subsample, coordinates=Whitened.by(here.anchor),
            chains=here.chains.tolist(), seed=k, anchor=here.anchor, progress=False,
        )  # fmt: skip
        jax.effects_barrier()
        seconds.append((perf_counter() - began) / _TIMED_STEPS)
    # The first one compiles.
    return Range(min(seconds[1:]), max(seconds[1:]))


def _rounded(value: float) -> str:
    """Two digits: nothing here is known better."""
    if value < 1e5:
        return f"{float(f'{value:.2g}'):,.10g}"
    return f"{value:.1e}".replace("e+0", "e").replace("e+", "e")
