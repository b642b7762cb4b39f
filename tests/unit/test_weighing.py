"""Modes that some rows suggest are weighed on all of them: a sample of a hundred rows is off by tens of nats."""

import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin import survey as surveys
from langevin.data.source import as_source
from langevin.survey import survey


def two_components(seed):
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(3000) < 0.4, rng.normal(-1.2, 1, 3000), rng.normal(1.2, 1, 3000)).astype(np.float32)

    def log_likelihood(theta, y):
        return jnp.logaddexp(jnp.log(0.4) - 0.5 * (y - theta[0]) ** 2, jnp.log(0.6) - 0.5 * (y - theta[1]) ** 2)

    return lv.Target(lambda t: -0.005 * jnp.sum(t**2), log_likelihood), y


def two_clusters(seed):
    """A heavy-tailed location whose mode at the lighter cluster is thirteen nats below the other."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(2000) < 0.52, rng.normal(0, 0.3, 2000), rng.normal(6, 0.3, 2000)).astype(np.float32)
    return lv.Target(lambda t: -0.005 * t[0] ** 2, lambda t, y: -0.05 * jnp.log1p((y - t[0]) ** 2)), y


def test_the_anchor_stays_where_all_rows_say_although_some_say_otherwise(monkeypatch):
    target, y = two_components(11)
    at_home = lv.laplace(target, y, np.array([-1.0, 1.0]))
    asked = {"passes": 1, "seed": 0}
    assert np.array_equal(lv.plan(target, y, np.array([-1.0, 1.0]), **asked).anchor.theta, at_home.theta)

    def sampled(passes, anchor, points, believed, worth):
        return surveys.Weighed(points, believed, np.arange(len(points)))

    # The control believes the sample, and moves to a mode that is 68 nats lighter.
    monkeypatch.setattr(surveys, "weighed", sampled)
    moved = lv.plan(target, y, np.array([-1.0, 1.0]), **asked).anchor.theta
    assert np.linalg.norm(moved - at_home.theta) > 1.0


def test_masses_are_those_of_all_rows():
    target, y = two_clusters(0)
    grid = np.linspace(-2.0, 8.0, 4001)
    density = -0.005 * grid**2 - 0.05 * np.log1p((y.astype(np.float64)[:, None] - grid) ** 2).sum(axis=0)
    mass = np.exp(density - density.max())
    truth = np.log(mass[grid > 3].sum() / mass[grid < 3].sum())
    anchor = lv.laplace(target, y, np.zeros(1))
    found = [survey(target, as_source(y), anchor, seed) for seed in range(4)]
    seen = [one for one in found if len(one.modes)]
    assert seen
    for one in seen:
        # Laplace's own error is a few percent of a mass.
        assert one.log_mass == pytest.approx([truth], abs=0.1)
        assert one.modes[0, 0] == pytest.approx(grid[grid > 3][np.argmax(density[grid > 3])], abs=0.01)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_mode_that_is_too_light_to_matter_is_not_started_from(seed):
    target, y = two_clusters(0)
    result = lv.sample(target, y, np.zeros(1), precision=0.1, seed=seed)
    assert result.status == "ok"
    assert result.mean.value[0] == pytest.approx(0.2055, abs=0.02)


def test_where_all_rows_have_no_mode_the_sample_is_believed_but_never_moved_to(monkeypatch):
    from langevin import weighing

    def refuse(*_):
        raise lv.AnchorError("no mode here", improper=False)

    target, y = two_components(11)
    anchor = lv.laplace(target, y, np.array([-1.0, 1.0]))
    monkeypatch.setattr(weighing, "newton", refuse)
    found = survey(target, as_source(y), anchor, 0)
    assert found.elsewhere > 0 and found.log_mass.max() <= 0.0
