"""What visits far out leave open: sds of runs whose truth is known, and twins that count visits as they come.

Fixed seeds, without a statistical claim: what is asserted holds with a wide margin, and each twin is seen to fail.
"""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin.outskirts import Outskirts
from langevin.sampling import accuracy, visits


def off(result, true):
    """How many standard errors the sds are from the truth."""
    return np.abs(result.sd.value - true) / result.sd.stderr


def cut_tails(reach):
    """Student's t with 2 degrees of freedom, cut by a normal law far out, and its sd: it has all moments."""
    s = np.linspace(-14.0, 14.0, 400_001)
    t = np.sinh(s)
    weight = np.exp(-1.5 * np.log1p(t**2 / 2.0) - 0.5 * (t / reach) ** 2) * np.cosh(s)
    target = lv.Target(lambda t: jnp.sum(-1.5 * jnp.log1p(t**2 / 2.0) - 0.5 * (t / reach) ** 2))
    return target, np.sqrt(np.average(t**2, weights=weight))


def beneath(weight, sd, centre=0.0):
    """(1 - weight) N(0, I) + weight N(centre, sd^2 I), and the sd of each parameter."""

    def log_density(t):
        wide = jnp.log(weight) - t.size * jnp.log(sd) - 0.5 * jnp.sum(((t - centre) / sd) ** 2)
        return jnp.logaddexp(jnp.log1p(-weight) - 0.5 * jnp.sum(t**2), wide)

    return lv.Target(log_density), np.sqrt(1.0 - weight + weight * sd**2 + weight * (1.0 - weight) * centre**2)


@pytest.mark.parametrize("reach, seeds", [(100.0, (8, 18)), (300.0, (11,))])
def test_of_tails_that_are_cut_far_out_few_visits_make_up_the_sd(reach, seeds, monkeypatch):
    """Chains are there thousands of times, and most of the variance comes with the few that go farthest."""
    target, true = cut_tails(reach)
    results = [lv.sample(target, None, jnp.full(1, 0.3), passes=12_000, seed=seed, progress=False) for seed in seeds]
    assert all(np.all(off(result, true) < 3.0) for result in results)
    monkeypatch.setattr(Outskirts, "worth", lambda self, visits: visits)
    twins = [lv.Result(result.session) for result in results]
    assert any(twin.status == "ok" and np.all(off(twin, true) > 5.0) for twin in twins)


def test_steps_on_minibatches_have_not_the_right_law_far_out(monkeypatch):
    """However often they come there, it is not as often as it should be."""
    target, true = beneath(1e-3, 10.0)
    arguments = {"passes": 6_000_000, "method": "minibatch", "progress": False}
    result = lv.sample(target, None, jnp.full(1, 0.1), **arguments)
    assert result.status == "not_gaussian"
    assert "of their steps" in str(result)
    monkeypatch.setattr(visits, "_share_far_out", lambda ledger, outskirts: outskirts.mass)
    twin = lv.Result(result.session)
    assert twin.status == "ok" and np.all(off(twin, true) > 4.0)


def test_what_lies_far_out_decides_the_method_beforehand():
    target, _ = beneath(1e-3, 10.0)
    plan = lv.plan(target, None, jnp.full(1, 0.1))
    assert plan.method == "exact" and "far from the mode" in plan.because
    assert lv.plan(lv.Target(lambda t: -0.5 * jnp.sum(t**2)), None, jnp.full(1, 0.1)).method == "minibatch"


def test_a_precision_is_about_what_visits_leave_open_too(monkeypatch):
    """What is said to have been reached is as wide as the intervals that are shown."""
    target, _ = cut_tails(300.0)
    result = lv.sample(target, None, jnp.full(1, 0.3), passes=12_000, seed=11, progress=False)
    shown = np.max(0.5 * np.ptp(np.stack(result.sd.interval()), axis=0) / result.sd.value)
    assert result.session.reached >= shown
    monkeypatch.setattr(accuracy, "widened", lambda sd, ledger, outskirts: sd)
    assert replace(result.session).reached < 0.5 * shown
