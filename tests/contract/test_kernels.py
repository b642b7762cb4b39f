"""What every kernel promises. A new one is tested by adding a line to KERNELS."""

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import langevin as lv
from langevin.kernels import DensityKernel
from langevin.kernels.protocol import noise_shape

FALSE_ALARM = 5e-10


class Model(NamedTuple):
    """A target in one dimension, its data, and its mean, from which chains start."""

    target: lv.Target
    data: Any
    mean: float


STANDARD_NORMAL = lv.Target(lambda t: -0.5 * jnp.dot(t, t))
NORMAL = Model(STANDARD_NORMAL, None, 0.0)
# The same law as half a prior and sixteen data.
IN_PARTS = Model(
    lv.Target(lambda t: -0.25 * jnp.dot(t, t), lambda t, x: -0.015625 * jnp.dot(x - t, x - t)),
    np.linspace(-1.0, 1.0, 16, dtype=np.float32)[:, None],
    0.0,
)
# For what moves among positive numbers, six sds from 0.
GAMMA = Model(lv.Target(lambda t: jnp.sum(39.0 * jnp.log(t) - t)), None, 40.0)


class Case(NamedTuple):
    kernel: Any  # or a function of the dimension that makes it
    variance: Any  # stationary variance with the exact gradient at step delta; 1 for exact kernels on N(0, 1)
    model: Model = NORMAL


def settled(update):
    """The fixed point of a contraction, from 1."""
    value = 1.0
    for _ in range(100):
        value = update(value)
    return value


KERNELS = [
    # theta' = (1 - delta/2) theta + sqrt(delta) eta has the variance delta / (1 - (1 - delta/2)^2)
    Case(lv.SGLD(), lambda delta: 1 / (1 - delta / 4)),
    Case(lv.LeimkuhlerMatthews(), lambda delta: 1.0),
    Case(lv.SGHMC(0.7), lambda delta: 1 / (1 - delta * np.tanh(0.35) / 4)),
    Case(lv.BAOAB(0.7), lambda delta: 1.0),
    Case(lv.UBU(0.7), lambda delta: (1 - delta * (1 / 0.7 - 1 / np.sinh(0.7)) / 2) / (1 - delta * np.tanh(0.35) / 4)),
    # A mean field: what fluctuates adds less than a twentieth of the bar.
    Case(lv.SGNHT(0.3), lambda delta: 1.0),
    Case(lv.SGFS(), lambda delta: 1.0),
    # SGLD with the step delta / (1 + sqrt(variance)), once the average over the whole run has settled.
    Case(
        lv.PreconditionedSGLD(decay=1.0, floor=1.0), lambda delta: settled(lambda v: 1 / (1 - delta / (4 + 4 * v**0.5)))
    ),
    # The law of the kernel at twice the step.
    Case(lv.Coarse(lv.SGLD()), lambda delta: 1 / (1 - delta / 2)),
    Case(lv.SGRLD(), lambda delta: 40 / (1 - delta / 4), GAMMA),
    Case(lv.MALA(), lambda delta: 1.0),
    Case(lv.ManifoldMALA(), lambda delta: 1.0),
    Case(lv.ManifoldMALA(full=True), lambda delta: 1.0),
    Case(lv.PCN(), lambda delta: 1.0),
    Case(lv.CrankNicolsonLangevin(), lambda delta: 1.0),
    Case(lv.HMC(3), lambda delta: 1.0),
    Case(lv.NUTS(), lambda delta: 1.0),
    Case(lv.RWM(), lambda delta: 1.0),
    # Tests this strict look at all the data but once in a million decisions; their law at others is a test of its own.
    Case(lv.AusterityMH(1e-6, batch=8), lambda delta: 1.0, IN_PARTS),
    Case(lv.ConfidenceMH(lipschitz=1.0, level=1e-6, batch=8), lambda delta: 1.0, IN_PARTS),
    # Modes that are not there: proposals from three sds off, and one too narrow.
    Case(lambda d: lv.Jumps.between([[3.0] * d, [0.0] * d], [np.eye(d), 0.3 * np.eye(d)]), lambda delta: 1.0),
]


def of_dimension(kernel, d):
    return kernel if hasattr(kernel, "init") else kernel(d)


# Never the words of a function that makes a kernel: its address in memory differs between test processes.
NAMES = [repr(case.kernel) if hasattr(case.kernel, "init") else type(case.kernel(1)).__name__ for case in KERNELS]
every_kernel = pytest.mark.parametrize("kernel", [case.kernel for case in KERNELS], ids=NAMES)
every_case = pytest.mark.parametrize("case", KERNELS, ids=NAMES)


def is_exact(kernel):
    return isinstance(of_dimension(kernel, 1), lv.ExactKernel)


def judges(kernel):
    """Whether it sees the density, all of it or some."""
    return isinstance(of_dimension(kernel, 1), DensityKernel)


@dataclass(frozen=True)
class Part:
    """A density as kernels see it, or a share of it."""

    whole: Any
    share: float = 1.0

    @property
    def num_data(self):
        return self.whole.num_data

    def __call__(self, theta):
        return jax.tree.map(lambda part: self.share * part, self.whole(theta))

    def prior(self, theta):
        return self.share * self.whole.prior(theta)

    def terms(self, theta, rows):
        return self.share * self.whole.terms(theta, rows)


class Normal:
    """N(0, I): half of it prior, half of it data."""

    num_data = 16
    __call__ = staticmethod(jax.value_and_grad(lambda t: -0.5 * jnp.dot(t, t)))

    def prior(self, theta):
        return -0.25 * jnp.dot(theta, theta)

    def terms(self, theta, rows):
        return jnp.full(rows.shape, -0.015625 * jnp.dot(theta, theta))


def one_step(kernel, theta, delta):
    kernel, eta = of_dimension(kernel, theta.size), jnp.linspace(-1.0, 1.0, theta.size)
    if judges(kernel):
        density = Normal()
        state = kernel.init(density, theta)
        return state, kernel.step(density, state, eta, jnp.float32(-1.0), delta)
    eta = jnp.broadcast_to(eta, noise_shape(kernel, theta.size))
    state = kernel.init(theta, eta)
    return state, kernel.step(state, -theta, eta, delta)


@every_kernel
def test_is_a_value(kernel):
    kernel, names = of_dimension(kernel, 2), vars(lv) | {"array": np.array, "float32": np.float32}
    assert kernel == eval(repr(kernel), names)
    assert hash(kernel) == hash(eval(repr(kernel), names))
    leaves, treedef = jax.tree.flatten(kernel)
    assert treedef.unflatten(leaves) == kernel
    assert all(kernel != other.kernel for other in KERNELS if type(other.kernel) is not type(kernel))
    if judges(kernel):
        assert 0 < kernel.target_acceptance < 1


@every_kernel
@pytest.mark.parametrize("size", [1, 4])
def test_a_step_preserves_the_structure_of_the_state(kernel, size):
    theta = jnp.linspace(0.5, 1.5, size)
    before, after = one_step(kernel, theta, jnp.float32(0.1))
    assert np.array_equal(before.theta, theta)
    assert jax.tree.structure(before) == jax.tree.structure(after)
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        assert old.shape == new.shape and old.dtype == new.dtype and np.all(np.isfinite(new))


@every_kernel
def test_a_step_is_deterministic_and_can_be_mapped_over_chains(kernel):
    thetas = jnp.array([[0.1, 0.2], [1.0, 0.5]])
    together = jax.vmap(lambda t: one_step(kernel, t, jnp.float32(0.1))[1].theta)(thetas)
    for theta, moved in zip(thetas, together, strict=True):
        # Only the order of additions may differ: a few units of float32.
        np.testing.assert_allclose(one_step(kernel, theta, jnp.float32(0.1))[1].theta, moved, rtol=1e-6)


@every_kernel
def test_a_vanishing_step_stays_where_it_is(kernel):
    _, after = one_step(kernel, jnp.array([0.5, 0.25]), jnp.float32(1e-20))
    if isinstance(of_dimension(kernel, 2), lv.Jumps):
        pytest.skip("a jump goes anywhere, however small the steps within a mode")
    assert after.theta.tolist() == [0.5, 0.25]


CHAINS, STEPS = 96, 1008
LIMIT = stats.t.isf(FALSE_ALARM / 2, CHAINS - 1)


def law(case, kernel):
    """A run of the case with this kernel, and the larger score of its mean and variance.

    Chain averages are independent; their mean has a Student law around the truth, up to skewness of averages of 16 rows
    of 16 transitions or more. All chains start at the mean, and the first quarter is left out: what remains of the
    start is below 0.9^250 = 4e-12.
    """
    delta = float(np.float32(2.0 if isinstance(kernel, lv.RWM) or (judges(kernel) and not is_exact(kernel)) else 0.8))
    ledger = lv.run(
        case.model.target, case.model.data, jnp.full(1, case.model.mean), kernel=kernel, schedule=lv.Constant(delta),
        num_steps=STEPS, chains=CHAINS, seed=1,
    )  # fmt: skip
    found = ledger.values["theta"][:, 16:].sum(axis=1) / ledger.sum_omega[16:].sum()
    scores = (found.mean(axis=0) - [0.0, case.variance(delta)]) / (found.std(axis=0, ddof=1) / np.sqrt(CHAINS))
    return ledger, float(np.abs(scores).max())


@every_case
def test_mean_and_variance_on_a_gaussian(case):
    kernel = of_dimension(case.kernel, 1)
    ledger, surprise = law(case, kernel)
    assert surprise < LIMIT and ledger.exact == is_exact(kernel)
    if judges(kernel):
        acceptance = ledger.acceptance.sum() / (CHAINS * STEPS)
        # The Crank-Nicolson proposals leave this target as it is: none is refused.
        assert 0.1 < acceptance < 1 + isinstance(kernel, (lv.PCN, lv.CrankNicolsonLangevin))
    else:
        assert ledger.acceptance is None


def forgetful(kernel):
    """The kernel that sees 0.7 of its gradient or of its density, as if some of the data were forgotten."""
    kind = type(kernel)

    class Judge(kind):
        def init(self, log_density, theta):
            return super().init(Part(log_density, 0.7), theta)

        def step(self, log_density, state, eta, log_uniform, delta):
            return super().step(Part(log_density, 0.7), state, eta, log_uniform, delta)

    class Mover(kind):
        def step(self, state, grad, eta, delta):
            return super().step(state, 0.7 * grad, eta, delta)

    twin = dataclass(frozen=True)(Judge if judges(kernel) else Mover)
    names = [field.name for field in fields(kernel)]
    static = [field.name for field in fields(kernel) if field.metadata.get("static")]
    jax.tree_util.register_dataclass(twin, [name for name in names if name not in static], static)
    return twin(**{name: getattr(kernel, name) for name in names})


@pytest.mark.slow
@every_case
def test_control_twins_that_forget_are_refused(case):
    assert law(case, forgetful(of_dimension(case.kernel, 1)))[1] > LIMIT + 4


@every_kernel
def test_cost_is_counted_in_datum_visits(kernel):
    kernel = of_dimension(kernel, 1)
    target = lv.Target(STANDARD_NORMAL.log_prior, lambda t, x: -0.5 * jnp.dot(x - t, x - t))
    subsample = None if judges(kernel) else lv.WithoutReplacement(2)
    ledger = lv.run(
        target, np.ones((5, 1)), jnp.ones(1), kernel=kernel, subsample=subsample, schedule=lv.Constant(0.1),
        num_steps=20, chains=2,
    )  # fmt: skip
    if isinstance(kernel, (lv.NUTS, lv.Jumps)):
        assert ledger.cost % 5 == 0 and ledger.cost >= 20 * 2 * 5
        return
    if judges(kernel) and not is_exact(kernel):
        # Data looked at: some in a decision, all at most. Here `batch` is more than there are.
        assert ledger.cost == 20 * 2 * 5 == ledger.visits.sum()
        return
    per_step = 5 * getattr(kernel, "num_leapfrog", 1) if is_exact(kernel) else 2
    assert ledger.cost == 20 * 2 * per_step
    assert ledger.finite.all()
