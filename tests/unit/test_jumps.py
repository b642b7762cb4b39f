"""Jumps between modes: whatever is proposed, the law is left as it is; not so where the proposal's law is forgotten."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import langevin as lv
from langevin.sampling.mixing import after_exact, liveliness

FALSE_ALARM = 1e-8
# 0.7 N(0, I) + 0.3 N(30, diag(1/4, 4)) in two dimensions: NUTS alone would not come across in a lifetime.
CENTRES, SDS, SHARES = np.array([[0.0, 0.0], [30.0, 30.0]]), np.array([[1.0, 1.0], [0.5, 2.0]]), np.array([0.7, 0.3])
MEAN = SHARES @ CENTRES
SD = np.sqrt(SHARES @ (SDS**2 + CENTRES**2) - MEAN**2)


def log_density(t):
    each = jnp.log(SHARES) - jnp.sum(0.5 * ((t - CENTRES) / SDS) ** 2 + jnp.log(SDS), axis=1)
    return jnp.logaddexp(each[0], each[1])


TARGET = lv.Target(log_density)


def run(kernel):
    return lv.run(TARGET, None, np.zeros(2), kernel=kernel, schedule=lv.Constant(0.3), num_steps=2000, chains=32)


def score(ledger):
    """How far means and second moments are from the truth, in standard errors by chains."""
    found = ledger.values["theta"].sum(axis=1) / ledger.sum_omega.sum()
    i, j = ledger.columns["theta"].pairs
    centre = ledger.columns["theta"].reference[:2]
    mean, square = found[:, :2], found[:, 2:][:, i == j]
    values = np.concatenate([mean - (MEAN - centre), square - (SD**2 + (MEAN - centre) ** 2)], axis=1)
    return np.abs(values.mean(axis=0) / (values.std(axis=0, ddof=1) / np.sqrt(len(values)))).max()


# Centres, widths and shares are all wrong, on purpose.
CARELESS = lv.Jumps.between(CENTRES + 0.5, np.stack([1.5 * np.eye(2)] * 2), np.log([0.4, 0.6]))
LIMIT = stats.t.isf(FALSE_ALARM / 8, 31)


def test_the_law_of_two_modes_is_left_as_it_is_whatever_is_proposed():
    assert score(run(CARELESS)) < LIMIT


def test_a_forgotten_proposal_density_gives_another_law(monkeypatch):
    monkeypatch.setattr(lv.Jumps, "_log_proposal", lambda self, theta: jnp.zeros(()))
    # Another depth, which is never reached, so that the twin is compiled.
    twin = lv.Jumps.between(CENTRES + 0.5, np.stack([1.5 * np.eye(2)] * 2), np.log([0.4, 0.6]), within=lv.NUTS(11))
    assert score(run(twin)) > 1.5 * LIMIT


def test_without_jumps_the_second_mode_is_never_seen():
    assert score(run(lv.NUTS())) > 10 * LIMIT


def test_bad_modes_are_named():
    with pytest.raises(ValueError, match=r"shapes \(k, d\) and \(k, d, d\), got \(2, 2\) and \(2, 2\)"):
        lv.Jumps.between(CENTRES, SDS)
    with pytest.raises(ValueError, match="log_weights must be 2 finite numbers"):
        lv.Jumps.between(CENTRES, np.stack([np.eye(2)] * 2), [0.0, np.nan])


def test_a_jump_counts_as_movement_of_the_log_density():
    """A narrow mode is high: chains that go there and back at every other step do not creep."""
    centres, sds = np.array([0.0, 20.0]), np.array([1.0, 0.05])

    def log_density(t):
        each = -jnp.log(sds) - 0.5 * ((t[0] - centres) / sds) ** 2
        return jnp.logaddexp(each[0], each[1])

    result = lv.sample(lv.Target(log_density), None, jnp.zeros(1), passes=20_000, progress=False)
    assert result.status == "ok" and liveliness(result.ledger) > 0.5
    truth = np.sqrt(0.5 * np.sum(sds**2) + 100.0)
    assert abs(result.sd.value[0] - truth) < 5.0 * result.sd.stderr[0] + 1e-3 * truth
    # What the step within alone has moved is a small part of it: within a mode the log density has variance 1/2.
    level, square, _ = np.moveaxis(result.ledger.levels.sum(axis=1), -1, 0)
    alone = replace(
        result.ledger, levels=np.stack([level, square, np.full(4, 0.5 * result.ledger.num_steps)], -1)[:, None]
    )
    assert liveliness(alone) < 0.2
    # Where jumps are rarer than one step in ten the arrivals in each mode decide, not the levels.
    for modes, word in ((result.session.tuned.modes, False), (None, True)):
        found = after_exact(alone, result.plan.survey, modes, np.inf, None)
        assert ("not_mixed" in {trouble.status for trouble in found}) == word
