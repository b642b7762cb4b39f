"""What every kernel promises. A new one is tested by adding a line to KERNELS."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import langevin as lv
from langevin.kernels.protocol import noise_shape

FALSE_ALARM = 2e-9


class Case(NamedTuple):
    kernel: Any  # or a function of the dimension that makes it
    variance: Any  # stationary variance on N(0, 1) with the exact gradient at step delta; 1 for exact kernels


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
    Case(lv.MALA(), lambda delta: 1.0),
    Case(lv.ManifoldMALA(), lambda delta: 1.0),
    Case(lv.ManifoldMALA(full=True), lambda delta: 1.0),
    Case(lv.PCN(), lambda delta: 1.0),
    Case(lv.CrankNicolsonLangevin(), lambda delta: 1.0),
    Case(lv.HMC(3), lambda delta: 1.0),
    Case(lv.NUTS(), lambda delta: 1.0),
    Case(lv.RWM(), lambda delta: 1.0),
    # Modes that are not there: proposals from three sds off, and one too narrow.
    Case(lambda d: lv.Jumps.between([[3.0] * d, [0.0] * d], [np.eye(d), 0.3 * np.eye(d)]), lambda delta: 1.0),
]
every_kernel = pytest.mark.parametrize(
    ("kernel", "variance"), KERNELS, ids=lambda x: repr(x) if hasattr(x, "init") else ""
)

STANDARD_NORMAL = lv.Target(lambda t: -0.5 * jnp.dot(t, t))


def of_dimension(kernel, d):
    return kernel if hasattr(kernel, "init") else kernel(d)


def is_exact(kernel):
    return isinstance(of_dimension(kernel, 1), lv.ExactKernel)


def one_step(kernel, theta, delta):
    kernel, eta = of_dimension(kernel, theta.size), jnp.linspace(-1.0, 1.0, theta.size)
    if is_exact(kernel):
        density = jax.value_and_grad(lambda t: -0.5 * jnp.dot(t, t))
        state = kernel.init(density, theta)
        return state, kernel.step(density, state, eta, jnp.float32(-1.0), delta)
    eta = jnp.broadcast_to(eta, noise_shape(kernel, theta.size))
    state = kernel.init(theta, eta)
    return state, kernel.step(state, -theta, eta, delta)


@every_kernel
def test_is_a_value(kernel, variance):
    kernel, names = of_dimension(kernel, 2), vars(lv) | {"array": np.array, "float32": np.float32}
    assert kernel == eval(repr(kernel), names)
    assert hash(kernel) == hash(eval(repr(kernel), names))
    leaves, treedef = jax.tree.flatten(kernel)
    assert treedef.unflatten(leaves) == kernel
    assert all(kernel != other.kernel for other in KERNELS if type(other.kernel) is not type(kernel))
    if is_exact(kernel):
        assert 0 < kernel.target_acceptance < 1


@every_kernel
@pytest.mark.parametrize("size", [1, 4])
def test_a_step_preserves_the_structure_of_the_state(kernel, variance, size):
    theta = jnp.linspace(0.5, 1.5, size)
    before, after = one_step(kernel, theta, jnp.float32(0.1))
    assert np.array_equal(before.theta, theta)
    assert jax.tree.structure(before) == jax.tree.structure(after)
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        assert old.shape == new.shape and old.dtype == new.dtype and np.all(np.isfinite(new))


@every_kernel
def test_a_step_is_deterministic_and_can_be_mapped_over_chains(kernel, variance):
    thetas = jnp.array([[0.1, 0.2], [1.0, -1.0]])
    together = jax.vmap(lambda t: one_step(kernel, t, jnp.float32(0.1))[1].theta)(thetas)
    for theta, moved in zip(thetas, together, strict=True):
        # Only the order of additions may differ: a few units of float32.
        np.testing.assert_allclose(one_step(kernel, theta, jnp.float32(0.1))[1].theta, moved, rtol=1e-6)


@every_kernel
def test_a_vanishing_step_stays_where_it_is(kernel, variance):
    _, after = one_step(kernel, jnp.array([0.5, 0.25]), jnp.float32(1e-20))
    if isinstance(of_dimension(kernel, 2), lv.Jumps):
        pytest.skip("a jump goes anywhere, however small the steps within a mode")
    assert after.theta.tolist() == [0.5, 0.25]


@every_kernel
def test_mean_and_variance_on_a_gaussian(kernel, variance):
    # Chain averages are independent; their mean has a Student law around the truth, up to skewness of averages of
    # 16 rows of 16 transitions or more. All chains start at 0, and the first quarter is left out: what remains of
    # the start is below 0.9^250 = 4e-12.
    kernel, delta, chains = of_dimension(kernel, 1), (2.0 if isinstance(kernel, lv.RWM) else 0.8), 96
    ledger = lv.run(
        STANDARD_NORMAL, None, jnp.zeros(1), kernel=kernel, schedule=lv.Constant(delta), num_steps=1008,
        chains=chains, seed=1,
    )  # fmt: skip
    rows = ledger.values["theta"][:, 16:].sum(axis=1) / ledger.sum_omega[16:].sum()
    step = float(np.float32(delta))
    for found, expected in zip(rows.T, (0.0, variance(step)), strict=True):
        z = (found.mean() - expected) / (found.std(ddof=1) / np.sqrt(chains))
        assert abs(z) < stats.t.isf(FALSE_ALARM / 2, chains - 1)
    if is_exact(kernel):
        acceptance = ledger.acceptance.sum() / (chains * 1008)
        # The Crank-Nicolson proposals leave this target as it is: none is refused.
        assert 0.1 < acceptance < 1 + isinstance(kernel, (lv.PCN, lv.CrankNicolsonLangevin)) and ledger.exact
    else:
        assert ledger.acceptance is None and not ledger.exact


@every_kernel
def test_cost_is_counted_in_datum_visits(kernel, variance):
    kernel = of_dimension(kernel, 1)
    target = lv.Target(STANDARD_NORMAL.log_prior, lambda t, x: -0.5 * jnp.dot(x - t, x - t))
    subsample = None if is_exact(kernel) else lv.WithoutReplacement(2)
    ledger = lv.run(
        target, np.ones((5, 1)), jnp.zeros(1), kernel=kernel, subsample=subsample, schedule=lv.Constant(0.1),
        num_steps=20, chains=2,
    )  # fmt: skip
    if isinstance(kernel, (lv.NUTS, lv.Jumps)):
        assert ledger.cost % 5 == 0 and ledger.cost >= 20 * 2 * 5
        return
    per_step = 5 * getattr(kernel, "num_leapfrog", 1) if is_exact(kernel) else 2
    assert ledger.cost == 20 * 2 * per_step
    assert ledger.finite.all()
