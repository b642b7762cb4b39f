"""Random-walk Metropolis that looks at as many data as its decision takes."""

import numbers
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from langevin import random
from langevin.data.permutation import bijection
from langevin.kernels.protocol import DatumDensity, DensityKernel, must_be_positive

Array = Any
_STREAM = np.uint32(0x54455354)


class TestedState(NamedTuple):
    """The position, whether the last proposal was taken, and the data looked at; there is no gradient: zeros."""

    theta: Array
    grad: Array
    acceptance: Array
    visits: Array


class Seen(NamedTuple):
    """Count, mean and sum of squared deviations of the log likelihood ratios so far; looks taken, and the verdict."""

    count: Array
    mean: Array
    square: Array
    looks: Array
    decided: Array


class _Tested(DensityKernel):
    """theta' = theta + sqrt(delta) eta is accepted if mean_i l_i > psi, with

        l_i = log p(x_i | theta') - log p(x_i | theta),    psi = (log u + log prior(theta) - log prior(theta')) / N.

    The mean is that of a growing sample, in a fresh random order without replacement, `batch` more at every look. All N
    data decide exactly.
    """

    target_acceptance = 0.35
    batch: int

    def _check_batch(self) -> None:
        good = isinstance(self.batch, int | np.integer) and not isinstance(self.batch, bool) and self.batch >= 2
        if not good:
            raise ValueError(f"batch must be an integer of at least 2, got {self.batch!r}. Try batch=100.")

    def _decided(self, seen: Seen, psi: Array, num_data: int, move: Array) -> Array:
        """Whether the sample is enough to tell on which side of psi the mean of all data lies."""
        raise NotImplementedError

    def counted(self, state: TestedState, num_data: int) -> dict[str, Array]:
        """Acceptance and datum visits."""
        return {"acceptance": state.acceptance, "visits": state.visits}

    def init(self, log_density: Any, theta: Array) -> TestedState:
        """The state before the first step. Cost: none."""
        nothing = jnp.zeros((), theta.dtype)
        return TestedState(theta, jnp.zeros_like(theta), nothing, nothing)

    def step(self, log_density: Any, state: TestedState, eta: Array, log_uniform: Array, delta: Array) -> TestedState:
        """One transition."""
        density: DatumDensity = log_density
        n = density.num_data
        if not n:
            raise ValueError(f"data must be given for {self!r}: it looks at some of them. Use lv.RWM() without data.")
        theta = state.theta + jnp.sqrt(delta) * eta
        psi = (log_uniform + density.prior(state.theta) - density.prior(theta)) / n
        tag = jnp.full((), _STREAM)
        order = random.threefry((random.bits(log_uniform), random.bits(eta[0])), (tag, tag))
        turn = random.bounded(*random.threefry(order, (tag, tag + 1)), n)

        def look(seen: Seen) -> Seen:
            place = seen.count.astype(jnp.uint32) + jnp.arange(self.batch, dtype=jnp.uint32)
            there = place < n
            rows = (bijection(jnp.where(there, place, 0), order, n) + turn) % n
            ratios = jnp.where(there, density.terms(theta, rows) - density.terms(state.theta, rows), 0.0)
            new = jnp.sum(there)
            mean = jnp.sum(ratios) / new
            square = jnp.sum(jnp.where(there, (ratios - mean) ** 2, 0.0))
            total, shift = seen.count + new, mean - seen.mean
            after = Seen(
                count=total,
                mean=seen.mean + shift * (new / total),
                square=seen.square + square + shift**2 * (seen.count * (new / total)),
                looks=seen.looks + 1,
                decided=seen.decided,
            )
            enough = self._decided(after, psi, n, theta - state.theta)
            # What is not a number decides nothing until all data are seen, and then against the proposal.
            return after._replace(decided=enough | (total >= n))

        zero, none = jnp.zeros((), theta.dtype), jnp.int32(0)
        seen = lax.while_loop(lambda s: ~s.decided, look, Seen(none, zero, zero, none, jnp.asarray(False)))
        taken = seen.mean > psi
        return TestedState(
            jnp.where(taken, theta, state.theta), state.grad, taken.astype(zero.dtype), seen.count.astype(zero.dtype)
        )


def _must_lie(kernel: Any, name: str, top: float) -> None:
    """Raises unless a kernel's number lies in (0, top); JAX rebuilds registered dataclasses with placeholders."""
    value: Any = getattr(kernel, name)
    if isinstance(value, str | bool) or (isinstance(value, numbers.Real) and not 0.0 < float(value) < top):
        raise ValueError(f"{name} must lie in (0, {top:g}), got {value!r}. Try {type(kernel).__name__}({name}=0.05).")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class AusterityMH(_Tested):
    """Random-walk Metropolis with a sequential t test in place of the whole likelihood.

        accept if mean > psi as soon as  |mean - psi| > t_{n-1}(epsilon) s / sqrt(n) sqrt(1 - (n-1)/(N-1)),

    with psi = (log u + log prior ratio) / N, and mean and sd s of n log likelihood ratios, `batch` more at every look.
    Biased by wrong decisions, about epsilon of those at the border at every look: sds too large, and where ratios are
    skewed means too; no theory, `uncorrected`. On logistic regressions of 2000 data (500, `batch` 25) at two thirds of
    the cost, epsilon 0.01, sds are 9% (17%) too large and means off by 0.13 (0.25) of an sd; at 0.001, four fifths, 2%
    (7%) and 0.06 (0.12). Cost: the data looked at, as the ledger counts them; near all of them where the proposal is as
    wide as the posterior and epsilon small. Assumes that means of `batch` ratios are near normal: one datum that
    outweighs them goes unseen.

    Korattikara, Chen and Welling, *Austerity in MCMC land: cutting the Metropolis-Hastings budget* (2014).

    Example:
        >>> import langevin as lv
        >>> model = lv.models.LinearGaussian.simulate(num_data=10_000, seed=1)
        >>> ledger = lv.run(model.target, model.data, model.theta_0, kernel=lv.AusterityMH(epsilon=0.1),
        ...                 schedule=lv.Constant(1e-4), num_steps=500)
        >>> ledger.cost < 0.5 * 500 * 10_000, lv.estimate(ledger)["theta.mean"].status == "ok"
        (True, False)
    """

    epsilon: float = field(default=0.05, metadata={"static": True})
    batch: int = field(default=100, metadata={"static": True})

    def __post_init__(self) -> None:
        _must_lie(self, "epsilon", 0.5)
        self._check_batch()

    def _decided(self, seen: Seen, psi: Array, num_data: int, move: Array) -> Array:
        from scipy.stats import t

        looks = np.arange(1, -(-num_data // self.batch) + 1)
        quantiles = t.isf(self.epsilon, np.minimum(looks * self.batch, num_data) - 1).astype(np.float32)
        count = seen.count.astype(psi.dtype)
        left = 1.0 - (count - 1.0) / max(num_data - 1, 1)
        spread = jnp.sqrt(seen.square / (count - 1.0) / count * left)
        return jnp.abs(seen.mean - psi) > jnp.asarray(quantiles)[seen.looks - 1] * spread


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ConfidenceMH(_Tested):
    """Random-walk Metropolis whose decision is that of all the data but with probability `level` at most.

        accept if mean > psi as soon as  |mean - psi| > s sqrt(2 rho log(5/d_j) / n) + k R log(5/d_j) / n,
        rho = min(1 - (n-1)/N, (1 - n/N)(1 + 1/n)),  k = 7/3 + 3/sqrt(2),  d_j = level / (2 j^2)  at look j,

    the empirical Bernstein bound for samples without replacement, with R = 2 `lipschitz` |theta' - theta| the range of
    the log likelihood ratios: |l_i| <= lipschitz |theta' - theta| must hold for every datum (in the coordinates that
    the chain moves in; for a logistic regression the largest |x_i|). No bias beyond what wrong decisions with
    probability `level` bring; `uncorrected`. Cost: the data looked at. Little is saved unless
    proposals are far too narrow or far too wide: a decision that all the data make by a hair needs them.

    Bardenet, Doucet and Holmes, *Towards scaling up Markov chain Monte Carlo: an adaptive subsampling approach* (2014);
    the bound is that of Bardenet and Maillard, *Concentration inequalities for sampling without replacement* (2015).

    Example:
        >>> import langevin as lv, numpy as np
        >>> model = lv.models.Logistic.simulate(num_data=10_000, seed=1)
        >>> kernel = lv.ConfidenceMH(lipschitz=float(np.linalg.norm(model.x, axis=1).max()))
        >>> ledger = lv.run(model.target, model.data, model.theta_0, kernel=kernel, schedule=lv.Constant(1e-3),
        ...                 num_steps=200)
        >>> 0 < ledger.cost <= 200 * 10_000
        True
    """

    lipschitz: float
    level: float = 0.1
    batch: int = field(default=100, metadata={"static": True})

    def __post_init__(self) -> None:
        must_be_positive(self, "lipschitz", "it bounds how fast the log likelihood of a datum changes", "3.0")
        _must_lie(self, "level", 1.0)
        self._check_batch()

    def _decided(self, seen: Seen, psi: Array, num_data: int, move: Array) -> Array:
        count, looks = seen.count.astype(psi.dtype), seen.looks.astype(psi.dtype)
        reach = 2.0 * self.lipschitz * jnp.sqrt(jnp.sum(move**2))
        doubt = jnp.log(10.0 * looks**2 / self.level)
        rho = jnp.minimum(1.0 - (count - 1.0) / num_data, (1.0 - count / num_data) * (1.0 + 1.0 / count))
        spread = jnp.sqrt(seen.square / count * 2.0 * rho * doubt / count)
        return jnp.abs(seen.mean - psi) > spread + (7.0 / 3.0 + 3.0 / np.sqrt(2.0)) * reach * doubt / count
