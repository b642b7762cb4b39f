"""Step-size laws against brute force, exact identities, quadrature and the paper's two assumptions."""

import math
import pickle
from dataclasses import FrozenInstanceError, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import digamma, zeta

from langevin.schedules import Constant, Custom, Polynomial, Power, check_steps
from langevin.schedules.sums import EULER_MACLAURIN

LAWS = {
    "polynomial": Polynomial(a=1.0, b=50.0, alpha=1 / 3),
    "heat map": Polynomial(a=5.89e7, b=7.9e8, alpha=0.38),
    "power": Power(0.05, m_0=12, alpha=0.5),
    "constant": Constant(0.01),
    "custom": Custom(lambda m: 0.1 / (1 + np.log(m))),
}


# --- delta_m and omega_m ---


def test_delta_is_the_formula():
    m = np.array([1, 2, 3, 1000, 10**12, 2**53, 10**18])
    assert_allclose(Polynomial(2.0, 3.0, 0.4).delta(m), [(2.0 * k + 3.0) ** -0.4 for k in m.tolist()], rtol=4e-16)
    assert_allclose(Power(0.7, 9, 0.4).delta(m), [0.7 * (k + 9.0) ** -0.4 for k in m.tolist()], rtol=4e-16)
    assert_array_equal(Constant(0.3).delta(m), np.full(7, 0.3))
    assert_array_equal(Custom(lambda m: 1 / m).delta(m), 1 / m.astype(float))


def test_neighbouring_steps_differ_at_large_m():
    # float32 cannot tell m from m + 1 past 2^24; the steps themselves differ by one part in 10^12 here.
    m = 10**11
    ratio = Polynomial(a=1.0, b=0.0, alpha=1.0).delta([m, m + 1])
    assert ratio[0] > ratio[1]
    assert_allclose((ratio[0] - ratio[1]) / ratio[0], 1e-11, rtol=1e-4)


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_steps_do_not_depend_on_how_they_are_asked_for(law):
    m = np.arange(1, 2001)
    together = law.delta(m)
    assert together.dtype == np.float64
    assert_array_equal(np.concatenate([law.delta(m[:7]), law.delta(m[7:])]), together)
    assert_array_equal([law.delta(int(k)) for k in m[:50]], together[:50])
    assert_array_equal(law.delta(m.reshape(40, 50)), together.reshape(40, 50))
    assert_array_equal(law.delta(m.astype(float)), together)


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_omega_is_a_power_of_delta(law):
    m = np.arange(1, 100)
    assert_array_equal(law.omega(m), law.delta(m))
    assert_array_equal(law.omega(m, 0.0), np.ones(99))
    assert_allclose(law.omega(m, 2), law.delta(m) ** 2, rtol=1e-15)


def test_array_parameters_lead_the_shape():
    a, b = np.array([1.0, 2.0, 3.0])[:, None], np.array([5.0, 6.0])[None, :]
    grid = Polynomial(a=a, b=b, alpha=0.4)
    m = np.array([[1, 2, 3, 4], [40, 50, 60, 70]])
    assert grid.batch_shape == (3, 2)
    for method in (grid.delta, grid.T_m, grid.sum_delta2, grid.B_m):
        assert method(m).shape == (3, 2, 2, 4)
        assert method(7).shape == (3, 2)
    assert grid.B_limit().shape == (3, 2)
    one = Polynomial(a=3.0, b=6.0, alpha=0.4)
    assert_array_equal(grid.delta(m)[2, 1], one.delta(m))
    assert_array_equal(grid.T_m(m)[2, 1], one.T_m(m))
    batch = Power(np.array([0.1, 0.2]), m_0=np.ones((3, 1)), alpha=1 / 3)
    assert batch.sum_power(m, 2.0).shape == (3, 2, 2, 4)
    assert Constant([0.1, 0.2]).delta(m).shape == (2, 2, 4)
    assert_allclose(Constant([0.1, 0.2]).T_m([1, 10]), [[0.1, 1.0], [0.2, 2.0]], rtol=1e-15)


# --- sums ---


@pytest.mark.parametrize("alpha", [0.1, 1 / 3, 0.38, 0.5, 1 - 1e-9, 1.0])
@pytest.mark.parametrize(
    ("a", "b"),
    [(1.0, 0.0), (1.0, 50.0), (5.89e7, 7.9e8), (1e-9, 2.0), (0.0, 3.0), (1.0, -0.999), (1e-3, 1e6)],
)
def test_sums_against_brute_force(a, b, alpha):
    m = np.array([0, 1, 2, 31, 32, 33, 34, 100, 5000, 20_000])
    base = np.longdouble(a) * np.arange(1, m[-1] + 1, dtype=np.longdouble) + np.longdouble(b)
    for p in (0.5, 1.0, 2.0, 3.0, -1.0):
        brute = np.cumsum(base ** (-np.longdouble(alpha) * np.longdouble(p)))
        found = Polynomial(a, b, alpha).sum_power(m, p)
        assert found[0] == 0.0
        assert_allclose(found[1:], brute[m[1:] - 1].astype(float), rtol=2e-14, atol=0)


@settings(max_examples=60, deadline=None)
@given(
    log_a=st.floats(-12, 12),
    log_ratio=st.floats(-6, 12),
    alpha=st.floats(1e-3, 1.0),
    p=st.floats(0.0, 12.0),
    m=st.integers(0, 30_000),
)
def test_sums_against_exact_addition(log_a, log_ratio, alpha, p, m):
    a = 10.0**log_a
    law = Polynomial(a, a * 10.0**log_ratio, alpha)
    exact = math.fsum(law.delta(np.arange(1, m + 1)) ** p)
    assert_allclose(law.sum_power(m, p), exact, rtol=1e-13, atol=1e-300)


def test_euler_maclaurin_weights():
    # The last of them moves a sum by 1e-15 only, out of reach of the comparisons with brute force.
    # B_2j / (2j)! = (-1)^(j+1) 2 zeta(2j) / (2 pi)^2j.
    expected = [(-1) ** (j + 1) * 2 * zeta(2 * j) / (2 * math.pi) ** (2 * j) for j in (1, 2, 3, 4)]
    assert_allclose(EULER_MACLAURIN, expected, rtol=1e-14)


def test_sums_against_exact_addition_up_to_a_million():
    for law in (Polynomial(1.0, 50.0, 1 / 3), Power(0.05, 7, 1.0), Polynomial(5.89e7, 7.9e8, 0.38)):
        delta = law.delta(np.arange(1, 10**6 + 1))
        assert_allclose(law.T_m(10**6), math.fsum(delta), rtol=1e-14)
        assert_allclose(law.sum_delta2(10**6), math.fsum(delta**2), rtol=1e-14)


def test_sums_at_the_paper_scale_obey_exact_identities():
    m = 10**12
    # Faulhaber: sum of k^3 = (m (m+1) / 2)^2, and sums of squares and of ones.
    linear = Polynomial(1.0, 0.0, 1.0)
    assert_allclose(linear.sum_power(m, -3.0), float((m * (m + 1) // 2) ** 2), rtol=1e-13)
    assert_allclose(linear.sum_power(m, -2.0), float(m * (m + 1) * (2 * m + 1) // 6), rtol=1e-13)
    assert_allclose(linear.sum_power(m, 0.0), m, rtol=1e-13)
    # Harmonic numbers, H_m = psi(m+1) - psi(1), and the Hurwitz zeta function for exponents above 1.
    assert_allclose(linear.T_m(m), digamma(m + 1.0) - digamma(1.0), rtol=1e-13)
    assert_allclose(Polynomial(2.0, 7.0, 1.0).T_m(m), (digamma(m + 4.5) - digamma(4.5)) / 2, rtol=1e-13)
    for s in (1.2, 2.0, 3.5):
        law = Polynomial(3.0, 5.0, s / 4)
        expected = 3.0**-s * (zeta(s, 1 + 5 / 3) - zeta(s, m + 1 + 5 / 3))
        assert_allclose(law.sum_power(m, 4.0), expected, rtol=1e-13)
    # Constant steps, by a = 0 and as the limit of small a.
    assert_allclose(Polynomial(0.0, 8.0, 1 / 3).T_m(m), m / 2, rtol=1e-13)
    assert_allclose(Polynomial(1e-30, 8.0, 1 / 3).T_m(m), m / 2, rtol=1e-13)
    assert_allclose(Constant(0.02).sum_delta2(m), 4e-4 * m, rtol=1e-13)


@pytest.mark.parametrize("p", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(
    "law",
    [
        Polynomial(1.0, 50.0, 1 / 3),
        Polynomial(5.89e7, 7.9e8, 0.38),
        Power(0.1, 10**10, 0.1),
        Polynomial(1e-9, 1.0, 0.5),
    ],
    ids=repr,
)
def test_far_increments_against_quadrature(law, p):
    # The midpoint rule's error, f'/24 per step, is below 1e-24 of the sum, so the sum over (M, 2M] equals the
    # integral over (M + 1/2, 2M + 1/2], here by Gauss-Legendre on the steps themselves.
    M = 10**12
    nodes, weights = np.polynomial.legendre.leggauss(40)
    x = np.round(1.5 * M + 0.5 + 0.5 * M * nodes)
    # Nodes are rounded to integers, which moves f by 1e-12 of itself; the linear term puts it back.
    h = 1e6
    slope = (law.omega(x + h, p) - law.omega(x - h, p)) / (2 * h)
    f = law.omega(x, p) + slope * (1.5 * M + 0.5 + 0.5 * M * nodes - x)
    expected = 0.5 * M * math.fsum(weights * f)
    difference = law.sum_power(2 * M, p) - law.sum_power(M, p)
    # Both sums round at 1e-13 of themselves.
    assert_allclose(difference, expected, rtol=1e-13, atol=1e-13 * float(law.sum_power(2 * M, p)))


def test_custom_sums_agree_with_the_closed_form():
    closed = Polynomial(2.0, 3.0, 0.4)
    custom = Custom(lambda m: (2.0 * m + 3.0) ** -0.4)
    m = np.array([[0, 1, 5], [200_000, 16_384, 16_385]])
    assert_allclose(custom.T_m(m), closed.T_m(m), rtol=1e-13)
    assert_allclose(custom.B_m(77), closed.B_m(77), rtol=1e-13)


def test_custom_sums_ask_for_bounded_pieces():
    sizes = []

    def law(m):
        sizes.append(m.size)
        return 1 / m

    assert_allclose(Custom(law).T_m(300_000), digamma(300_001.0) - digamma(1.0), rtol=1e-13)
    assert max(sizes) <= 2**14


def test_cyclical_steps_have_the_bias_of_three_quarters_of_the_longest_and_the_pace_of_a_half():
    longest, period = 0.4, 50
    cycle = Custom(lambda m: longest / 2 * (1 + np.cos(np.pi * ((m - 1) % period) / period)))
    m = 7 * period
    # sum cos = 1 and sum cos^2 = P/2 over j = 0 ... P-1 of cos(pi j / P).
    assert_allclose(cycle.T_m(m) / m, longest * (period + 1) / (2 * period), rtol=1e-13)
    assert_allclose(cycle.sum_delta2(m) / cycle.T_m(m), longest * (3 * period + 4) / (4 * period + 4), rtol=1e-13)
    assert not check_steps(cycle).ok


# --- B_m ---


def test_B_m_is_its_definition():
    law = Power(0.3, 5, 0.4)
    delta = law.delta(np.arange(1, 1001))
    assert_allclose(law.B_m(1000), np.sum(delta**2) / np.sqrt(np.sum(delta)), rtol=1e-13)


@pytest.mark.parametrize(
    ("law", "limit"),
    [
        (Polynomial(4.0, 1.0, 1 / 3), math.sqrt(6 / 4)),
        (Power(0.25, 9, 1 / 3), math.sqrt(6) / 8),
        (Polynomial(4.0, 1.0, float(np.float32(1 / 3))), math.sqrt(6 / 4)),
        (Polynomial(alpha=0.33), math.inf),
        (Polynomial(alpha=0.34), 0.0),
        (Power(1.0, alpha=0.5), 0.0),
        (Power(1.0, alpha=1.0), 0.0),
        (Constant(0.1), math.inf),
        (Polynomial(a=0.0, b=1.0, alpha=0.9), math.inf),
    ],
    ids=repr,
)
def test_B_limit(law, limit):
    assert_allclose(law.B_limit(), limit, rtol=1e-7)


@pytest.mark.parametrize("law", [Polynomial(4.0, 1.0, 1 / 3), Power(0.25, 9, 1 / 3)], ids=repr)
def test_B_m_comes_near_its_limit(law):
    # The next term is of relative order m^(-1/3).
    m = np.array([1e12, 1e15])
    gap = np.abs(law.B_m(m) / law.B_limit() - 1)
    assert np.all(gap < 3 * m ** (-1 / 3))
    assert_allclose(gap[0] / gap[1], 10.0, rtol=0.01)


def test_B_limit_of_a_custom_schedule_is_unknown():
    assert LAWS["custom"].B_limit() is None


# --- schedules are values ---


@pytest.mark.parametrize("name", ["polynomial", "heat map", "power", "constant"])
def test_schedules_are_values(name):
    law = LAWS[name]
    same = pickle.loads(pickle.dumps(law))
    assert law == same
    assert hash(law) == hash(same)
    assert eval(repr(law), vars(__import__("langevin.schedules", fromlist=["x"]))) == law
    first = next(iter(vars(law)))
    assert replace(law, **{first: 7.0}) != law
    with pytest.raises(FrozenInstanceError):
        setattr(law, first, 7.0)


def test_array_schedules_compare_by_content_and_cannot_be_changed():
    a = np.array([1.0, 2.0])
    law = Polynomial(a=a, b=[3, 4])
    a[0] = 99.0
    assert law == Polynomial(a=[1.0, 2.0], b=(3.0, 4.0))
    assert law != Polynomial(a=[1.0, 2.5], b=(3.0, 4.0))
    assert hash(law) == hash(Polynomial(a=[1.0, 2.0], b=(3.0, 4.0)))
    assert Polynomial() != Power(1.0)
    assert Polynomial(a=1, b=2) == Polynomial(a=1.0, b=np.float64(2.0))


def test_schedules_are_pytrees_that_survive_tracers_and_placeholders():
    law = Polynomial(a=np.array([1.0, 2.0]), b=3.0, alpha=0.5)
    leaves, tree = jax.tree.flatten(law)
    assert len(leaves) == 3
    assert jax.tree.unflatten(tree, leaves) == law
    jax.tree.unflatten(tree, [object()] * 3)
    jax.tree.unflatten(tree, [None] * 3)
    traced = jax.jit(lambda s: (s.a + s.b) ** -s.alpha)(law)
    assert_allclose(traced, law.delta(1), rtol=1e-6)
    mapped = jax.vmap(lambda a: Polynomial(a=a, b=3.0, alpha=0.5))(jnp.array([1.0, 2.0]))
    assert mapped.batch_shape == (2,)
    custom = LAWS["custom"]
    assert jax.tree.leaves(custom) == []
    assert jax.tree.unflatten(jax.tree.structure(custom), []) == custom
