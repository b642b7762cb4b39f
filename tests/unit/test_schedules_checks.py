"""Which steps are sound: the two assumptions, m_0, and what is refused."""

import math
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langevin.schedules import Constant, Custom, Polynomial, Power, check_steps, m_0_for

LAWS = {
    "polynomial": Polynomial(a=1.0, b=50.0, alpha=1 / 3),
    "custom": Custom(lambda m: 0.1 / (1 + np.log(m))),
}


# --- the two assumptions ---


@pytest.mark.parametrize(
    ("alpha", "p", "words"),
    [
        (1 / 3, 1.0, ()),
        (0.5, 0.3, ()),
        (0.5, 2.0, ()),  # Omega_m ~ log m still diverges
        (1 / 3, 3.0, ()),
        (0.7, 1 / 0.7, ()),
        (1.0, 1.0, ()),  # sum 1/(m log^2 m) is finite
        (0.5, 2.5, ("stays finite: alpha p = 1.25",)),
        (1.0, 1.5, ("stays finite: alpha p = 1.5",)),
        (1.0, 0.5, ("diverges like log m",)),
        (0.5, 0.0, ("omega_m = delta_m^p does not tend to 0",)),
        (0.5, -1.0, ("grows with m",)),
        (1.0, 0.0, ("does not tend to 0", "diverges like log m")),
    ],
)
def test_assumptions_for_power_laws(alpha, p, words):
    for law in (Polynomial(2.0, 3.0, alpha), Power(0.1, 5, alpha)):
        check = check_steps(law, p)
        assert check.ok == (not words)
        assert len(check.sentences) == len(words)
        assert all(word in sentence for word, sentence in zip(words, check.sentences, strict=True))


@pytest.mark.parametrize("alpha", [0.2, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("p", [0.0, 0.4, 1.0, 1.6, 3.0])
def test_derived_and_numerical_verdicts_agree(alpha, p):
    closed, custom = Polynomial(1.0, 10.0, alpha), Custom(lambda m: (m + 10.0) ** -alpha)
    assert check_steps(custom, p).ok == check_steps(closed, p).ok


@pytest.mark.parametrize("law", [Constant(0.02), Polynomial(0.0, 50.0, 1.0)], ids=repr)
def test_constant_steps_fail_twice(law):
    check = check_steps(law)
    assert not check.ok
    assert "delta_m does not tend to 0: it is 0.02" in check.sentences[0]
    assert "omega_m" in check.sentences[1]
    assert len(check.sentences) == 2


def test_a_batch_reports_how_many_fail_and_which():
    check = check_steps(Polynomial(alpha=np.array([0.2, 0.5, 1.0])), p=2.0)
    assert len(check.sentences) == 1
    assert "1 of 3 schedules" in check.sentences[0]
    assert "index (2,)" in check.sentences[0]


@pytest.mark.parametrize(
    ("function", "p", "word"),
    [
        (lambda m: np.full_like(m, 0.1), 1.0, "delta_m does not seem to tend to 0"),
        (lambda m: m**-1.3, 1.0, "T_m seems to stay finite"),
        (lambda m: m**-0.5, 3.0, "Omega_m seems to stay finite"),
        (
            lambda m: m**-0.5 * (1 + 0.5 * (m % 2)),
            1.0,
            "delta_m is not decreasing: delta_2=0.707107 and delta_3=0.866025",
        ),
        (lambda m: m**-0.5 * (1 + 0.5 * (m % 2)), 2.0, "oscillation of omega/delta"),
        (lambda m: 1 / m, 0.5, "seems to diverge"),
    ],
)
def test_custom_schedules_get_numerical_evidence(function, p, word):
    check = check_steps(Custom(function), p)
    assert not check.ok
    assert any(word in sentence for sentence in check.sentences)
    assert all("numerical evidence only, m up to 1048576" in sentence for sentence in check.sentences)


def test_a_sound_custom_schedule_passes_with_a_reservation():
    check = check_steps(LAWS["custom"])
    assert check.ok
    assert "numerical evidence only" in str(check)
    assert "derived for all m" in str(check_steps(LAWS["polynomial"]))


# --- what is refused ---


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (
            lambda: Polynomial(alpha=1.2),
            r"alpha must lie in \(0, 1\], got 1.2: the sum of delta_m.*Try alpha=1/3",
        ),
        (lambda: Polynomial(alpha=0), r"alpha must lie in \(0, 1\], got 0.0.*Constant"),
        (lambda: Polynomial(alpha=-0.5), r"alpha must lie.*got -0.5"),
        (lambda: Polynomial(alpha=math.nan), r"alpha must lie.*got nan"),
        (lambda: Polynomial(alpha=np.array([0.5, 1.5])), r"got 1.5 at index \(1,\)"),
        (lambda: Polynomial(alpha=jnp.array(1.5)), r"alpha must lie.*got 1.5"),
        (lambda: Polynomial(a=-1.0, b=5.0), r"a must be finite and at least 0, got -1.0"),
        (lambda: Polynomial(a=math.inf), r"a must be finite.*got inf"),
        (lambda: Polynomial(b=math.nan), r"b must be finite, got nan"),
        (lambda: Polynomial(a=1.0, b=-1.0), r"a \+ b must be positive, got 0.0"),
        (lambda: Polynomial(a=0.0, b=5e-324, alpha=1.0), r"delta_1 must be positive and finite, got inf"),
        (lambda: Polynomial(a=True), r"a must be a real number.*got True"),
        (lambda: Polynomial(b="50"), r"b must be a real number.*got '50'"),
        (lambda: Polynomial(b=1j), r"b must be a real number"),
        (lambda: Polynomial(b=np.array([True])), r"b must be a real number"),
        (
            lambda: Polynomial(a=np.ones(2), b=np.ones(3)),
            r"broadcast together, got shapes a \(2,\), b \(3,\)",
        ),
        (lambda: Power(0.0), r"scale must be positive and finite, got 0.0"),
        (lambda: Power(0.1, m_0=-1), r"m_0 must be finite and at least 0, got -1.0"),
        (lambda: Power(1e-308, m_0=1e300, alpha=1.0), r"delta_1 must be positive and finite, got 0.0"),
        (lambda: Constant(-0.1), r"delta must be positive and finite, got -0.1"),
        (lambda: Constant(math.nan), r"delta must be positive and finite, got nan"),
        (lambda: Custom(0.1), r"function must map.*got 0.1.*Constant"),
    ],
)
def test_bad_parameters_are_refused(build, words):
    with pytest.raises(ValueError, match=words):
        build()


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda: Custom(lambda m: 1.5 - m).delta([1, 2]), r"positive finite steps, got -0.5 at m=2"),
        (lambda: Custom(lambda m: m * math.nan).T_m(3), r"positive finite steps, got nan at m=1"),
        (lambda: Custom(lambda m: 0.1).delta([1, 2]), r"one real number for each m, got shape \(\)"),
        (lambda: Custom(lambda m: m[:, None]).delta([1, 2]), r"got shape \(2, 1\)"),
        (lambda: Custom(lambda m: m > 0).delta(1), r"type bool"),
        (lambda: Polynomial().delta(0), r"m must be at least 1, got 0.0"),
        (lambda: Polynomial().delta([1, 0]), r"m must be at least 1, got 0.0 at index \(1,\)"),
        (lambda: Polynomial().delta(1.5), r"m must hold integers, got 1.5"),
        (lambda: Polynomial().delta(True), r"m must hold integers, got True"),
        (lambda: Polynomial().T_m(-1), r"m must be at least 0"),
        (lambda: Polynomial().B_m(0), r"m must be at least 1"),
        (lambda: Polynomial().sum_power(5, math.nan), r"p must be one finite number, got nan"),
        (lambda: check_steps(Polynomial(), p="2"), r"p must be one finite number, got '2'"),
    ],
)
def test_bad_use_is_refused(use, words):
    with pytest.raises(ValueError, match=words):
        use()


# --- m_0 ---


@pytest.mark.parametrize(
    ("alpha", "below", "m_0"),
    [
        (0.5, 0.1, 100),  # 100^-0.5 = 0.1 is not strictly below, although the double 0.1 exceeds 1/10
        (0.1, 0.1, 10**10),
        (0.1, 0.5, 1024),
        (0.2, 0.1, 10**5),
        (1 / 3, 0.1, 1000),
        (1 / 3, 1 / 3, 27),
        (0.5, 1 / 6, 36),
        (0.5, math.sqrt(1 / 101), 101),
        (0.5, 1 / math.sqrt(12), 12),
        (1.0, 0.3, 3),
        (0.5, 0.0999, 100),
        (0.5, 0.1001, 99),
        (0.5, 1.0, 1),
        (0.5, 1.5, 0),
        (0.3, 0.1, 2154),
        (0.33, 0.1, 1072),
        (0.1, 0.02, 50**10),
    ],
)
def test_m_0_for(alpha, below, m_0):
    assert m_0_for(alpha, below) == m_0


@given(q=st.integers(1, 10), n=st.integers(1, 40))
def test_m_0_is_strict_at_every_tie(q, n):
    # alpha = 1/q and below = 1/n tie at n^q exactly.
    assert m_0_for(1 / q, 1 / n) == n**q


@given(q=st.integers(1, 12), bound=st.fractions(Fraction(1, 30), 2, max_denominator=500))
def test_m_0_is_the_smallest(q, bound):
    # In integers: (m_0 + 1)^(-1/q) < bound iff (m_0 + 1) bound^q > 1.
    m_0 = m_0_for(1 / q, float(bound))
    assert (m_0 + 1) * bound**q > 1
    assert m_0 == 0 or m_0 * bound**q <= 1 or (m_0 * bound**q - 1) < q * Fraction(1, 2**51)


@pytest.mark.parametrize(
    ("alpha", "below"), [(0.0, 0.1), (1.5, 0.1), (0.5, 0.0), (0.5, math.inf), (0.5, math.nan), (0.001, 0.1)]
)
def test_m_0_for_refuses(alpha, below):
    with pytest.raises(ValueError, match="got"):
        m_0_for(alpha, below)
