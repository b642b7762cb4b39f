"""The host loop: sends block after block to the device and keeps the books."""

from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from langevin import random
from langevin.anchor import Anchor
from langevin.data.prefetch import HostGather
from langevin.data.subsample import Subsample
from langevin.engine import block as device
from langevin.engine import setup
from langevin.engine.books import Books, Rows, Sent
from langevin.engine.checks import whole_number
from langevin.engine.interrupt import stop_requests
from langevin.engine.ledger import Ledger
from langevin.engine.program import MOST_ROWS, device_row_steps, row_steps
from langevin.engine.progress import Progress
from langevin.errors import Diverged
from langevin.gradients import Minibatch
from langevin.kernels import SGLD
from langevin.schedules import Schedule
from langevin.target import Target

PyTree = Any

_SGLD, _MINIBATCH = SGLD(), Minibatch()
_BLOCK_SECONDS = 0.1
_RUNAWAY = 1e12


def run(
    target: Target,
    data: PyTree,
    theta_0: PyTree,
    *,
    schedule: Schedule,
    num_steps: int,
    kernel: Any = _SGLD,
    gradient: Any = _MINIBATCH,
    subsample: Subsample | None = None,
    observables: Mapping[str, Any] | None = None,
    chains: int | Sequence[int] = 1,
    seed: int = 0,
    anchor: Anchor | None = None,
    weight_power: float = 1.0,
    keep: int = 0,
    layout: str | None = None,
    whiten: bool = False,
    guard: int = 1,
    progress: bool | None = None,
    resume: Ledger | None = None,
    block_steps: int | None = None,
) -> Ledger:
    """Runs chains of a kernel on a posterior and returns the ledger of their weighted sums.

    `chains` is a number or a list of chain numbers: chain k moves in the same way alone or among others
    of the same layout.
    `anchor=lv.laplace(...)` adds the Poisson correction and the estimate of the bias. `keep` caps the kept draws of a
    chain. `resume` continues an earlier ledger of the same call up to `num_steps` transitions in all. `block_steps`
    caps the transitions of one dispatch; it changes no result. `layout` is "chain", "wide" or None (the faster one;
    see `Program`). Array-valued schedule parameters add leading axes to every result, with common random numbers.

    `whiten=True` moves in the anchor's coordinates z, theta = anchor + L z: steps are in units of the posterior's
    width, and chains start at draws of the Laplace approximation, not at theta_0. Chains 2k and 2k + 1 are an
    antithetic pair: the same minibatches, and noise and start turned around. Each has the right law by itself, and odd
    errors cancel in their mean. A step from the far tail, the outer 1e-4 of the chi-square law of |z|^2, sees `guard`
    minibatches (of `WithReplacement`) in place of one, and sqrt(guard) of them in the outer 1e-2.

    Cost: num_steps * n datum visits a chain. Memory does not grow with num_steps. Ctrl-C returns the partial ledger.

    Example:
        >>> import langevin as lv
        >>> model = lv.models.LinearGaussian.simulate(seed=1)
        >>> anchor = lv.laplace(model.target, model.data, 0.0)
        >>> ledger = lv.run(model.target, model.data, model.theta_0, subsample=lv.WithoutReplacement(10),
        ...                 schedule=lv.Constant(0.01), num_steps=2000, chains=4, anchor=anchor)
        >>> lv.estimate(ledger, method="corrected")["theta.mean"].status
        'ok'
    """
    running = _Running(
        setup.prepare(
            target, data, theta_0, schedule=schedule, kernel=kernel, gradient=gradient, subsample=subsample,
            observables=observables, chains=chains, seed=seed, anchor=anchor, weight_power=weight_power, keep=keep,
            layout=layout, whiten=whiten, guard=guard,
        )
    )  # fmt: skip
    if resume is not None:
        running.restore(resume)
    return running.advance_to(whole_number("num_steps", num_steps, 1), progress, block_steps)


class _Running:
    """A run under way: the prepared call, the device state and the books."""

    def __init__(self, prepared: setup.Prepared) -> None:
        self.call = prepared
        self.program, self.schedule = prepared.program, prepared.schedule
        self.books = Books(prepared)
        self.settings = self.books.steps.settings
        self.m = 0
        self.carry: Any = None
        self.gather: HostGather | None = None
        self.prefetched: tuple[int, PyTree] = (-1, None)
        if self.program.host_gather:
            rows = len(prepared.chains) * self.program.capacity * self.program.batch_size
            self.gather = HostGather(prepared.host_source, rows)
        self.interrupted = False

    def restore(self, ledger: Ledger) -> None:
        """Goes on from where a ledger of the same call ended."""
        if not isinstance(ledger, Ledger) or ledger.carry is None:
            raise ValueError(
                f"resume must be a Ledger as lv.run returned it, unstacked, got {ledger!r}. Resume each part by itself."
            )
        left = ledger.carry
        grown = self._grown(left.identity["subsample"], ledger.num_steps)
        for name, value in self.call.identity.items():
            if left.identity[name] != value and not (name == "subsample" and grown):
                raise ValueError(
                    f"resume must continue the same call, but {name} was {left.identity[name]!r} and is now {value!r}. "
                    f"Pass the {name} of the first call, or start a new run."
                )
        # The device takes over the buffers it is given: hand it copies, so that a ledger can be resumed twice.
        self.m = ledger.num_steps
        self.books.restore(left)
        self.carry = self._placed(jax.tree.map(jnp.array, left.carry))

    def _grown(self, before: Any, m: int) -> bool:
        """Whether the minibatches are larger than those `before` the row border at m, and of the same kind.

        Larger, never smaller: then step m starts beyond every random number that an earlier step has used.
        """
        after, size = self.program.subsample, self.program.num_data
        same = isinstance(after, Subsample) and isinstance(before, Subsample) and after.iid and before.iid
        return same and m % device_row_steps(m) == 0 and after.size(size) >= before.size(size)

    def advance_to(self, num_steps: int, progress: bool | None, block_steps: int | None) -> Ledger:
        """Runs until transition num_steps and returns the ledger so far."""
        if num_steps < self.m:
            raise ValueError(f"num_steps counts all transitions: it must be at least {self.m}, got {num_steps}.")
        most = self.program.capacity
        if block_steps is not None:
            most = min(most, whole_number("block_steps", block_steps, 1))
        count = min(most, 16) if block_steps is None else most
        display = Progress(self.m, num_steps, self.settings * len(self.call.chains), progress)
        if self.carry is None:
            carry = device.initial_carry(self.program, self.call.parts, self.call.starts, np.zeros(self.settings))
            self.carry = self._placed(carry)
            if self.program.exact:
                self._check_exact_start()
        waiting = None
        with stop_requests() as stop_requested:
            while self.m < num_steps and not stop_requested():
                began = monotonic()
                # One block is always under way while the host keeps the books of the one before.
                launched = self._launch(self._fitting(min(count, num_steps - self.m)), num_steps)
                if waiting is not None:
                    self._collect(waiting)
                    display.update(waiting.start)
                waiting = launched
                # Long blocks for speed, but never so long that Ctrl-C and the progress line have to wait.
                if monotonic() - began < _BLOCK_SECONDS:
                    count = min(2 * count, most)
                elif monotonic() - began > 4 * _BLOCK_SECONDS and block_steps is None:
                    count = max(count // 2, 1)
            if waiting is not None:
                self._collect(waiting)
        self.interrupted = self.m < num_steps
        display.close(self.m)
        return self.ledger()

    def _placed(self, carry: device.Carry) -> device.Carry:
        """The carry bound to the device of the keys.

        Data that were handed over without a copy are bound to theirs, and so is what a block makes of them. A first
        carry that is free to move would have the same code compiled twice.
        """
        return jax.device_put(carry, next(iter(self.call.parts.keys["noise"].devices())))

    def _check_exact_start(self) -> None:
        """An exact kernel refuses every proposal from a point of undefined density, without a word."""
        value = float(np.asarray(self.carry.state.log_density).ravel()[0])
        if not np.isfinite(value) or not np.isfinite(np.asarray(self.carry.state.grad)).all():
            raise ValueError(
                f"theta_0 must have a finite log density and gradient on all the data, got {value}. "
                f"Start inside the support, and check the model for log(0) and 0/0."
            )

    def _fitting(self, count: int) -> int:
        """`count` cut down so that the block stays within one length of rows and of strides."""
        count = min(count, MOST_ROWS * row_steps(self.m + 1) - self.m)
        return min(count, self.books.draws.room(self.m)) if self.program.keep else count

    def _launch(self, count: int, last: int) -> Sent:
        m, program = self.m, self.program
        delta, omega = (
            np.pad(s, ((0, 0), (0, program.capacity - count))) for s in self.books.steps.rounded(m + 1, m + count)
        )
        length = device_row_steps(m + 1)
        stride = self.books.draws.stride(m + 1) if program.keep else 1
        block = device.Block(
            start=random.Clock.at(m),
            num_steps=np.int32(count),
            num_chains=np.int32(len(self.call.chains)),
            num_settings=np.int32(self.settings),
            origin=self._origin(m),
            row_steps=np.int32(length),
            row_offset=np.int32(m % length),
            delta=delta,
            omega=omega,
            stride=np.int32(stride),
            stride_offset=np.int32(m % stride),
            gathered=None if self.gather is None else self._gathered(m),
        )
        following = self._rows(m + count) if self.gather is not None else None
        self.carry, output = device.advance(program, self.call.parts, block, self.carry)
        self.m += count
        if self.gather is not None and self.m < last:
            # While the device works on this block. Its rows were asked for first: the device answers in order.
            self.prefetched = (self.m, self.gather(np.asarray(following)))
        return Sent(m, count, length, output)

    def _origin(self, m: int) -> tuple[np.uint32, ...]:
        subsample = self.program.subsample
        return () if subsample is None else subsample.origin(m, self.program.num_data)

    def _rows(self, m: int) -> jax.Array:
        """Row numbers of the minibatches of the block after transition m, on the device."""
        return device.block_rows(self.program, self.call.parts.keys, random.Clock.at(m), self._origin(m))

    def _gathered(self, m: int) -> PyTree:
        """Minibatches of the block after transition m: fetched ahead, or now if the run has just begun."""
        assert self.gather is not None
        if self.prefetched[0] != m:
            self.prefetched = (m, self.gather(np.asarray(self._rows(m))))
        return self.prefetched[1]

    def _collect(self, sent: Sent) -> None:
        """Books a finished block; raises `Diverged` if a chain left the finite numbers."""
        rows = self.books.read(sent)
        self._check_finite(sent, rows)
        self.books.append(sent, rows)

    def _check_finite(self, sent: Sent, rows: Rows) -> None:
        theta = np.asarray(sent.output.theta)
        values = [sums for name, sums in rows.items() if name.startswith("values/")]
        # axes (rows, settings, chains); the positions at the end of the block stand for the row that is still open
        bad = np.logical_or.reduce([~np.isfinite(sums).all(axis=-1) for sums in values])
        bad = np.concatenate([bad, ~(np.abs(theta).max(axis=-1) < _RUNAWAY)[None]])
        if not bad.any():
            return
        lost = bad.any(axis=0)
        setting, chain = np.argwhere(lost)[0]
        m = (sent.start // sent.row_steps + int(np.argmax(bad[:, setting, chain]))) * sent.row_steps + 1
        delta = self.schedule.delta(np.array([m])).reshape(self.settings)[setting]
        self.carry, booked = None, self.books.rows.m
        raise Diverged(
            f"chain {self.call.chains[chain]} left the finite numbers in the row of transitions from m = {m}, where "
            f"delta_m = {delta:.3g} ({lost.sum()} of {lost.size} chains did): the step is too large for the curvature "
            f"or the tails of this target. Use smaller steps (try a tenth), start nearer to the mode, or reduce the "
            f"gradient noise. "
            + (f"The rows up to m = {booked} are attached as `.ledger`." if booked else "No row was whole."),
            self.ledger() if booked else None,
        )

    def ledger(self) -> Ledger:
        """The books as they stand; after a divergence, the whole rows before it."""
        return self.books.ledger(self.m, self.carry, self.interrupted)
