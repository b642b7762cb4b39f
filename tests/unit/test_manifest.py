"""Runs that do not belong together are told apart, and the first difference is named."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin.engine.describe import describe

NORMAL = lv.Target(lambda t: -0.5 * jnp.sum(t**2))
WIDER = lv.Target(lambda t: -0.25 * jnp.sum(t**2))


def mala(target=NORMAL, theta_0=0.0, chains=(0,), **more):
    parts = {"kernel": lv.MALA(), "schedule": lv.Constant(0.5), "num_steps": 64, "progress": False, **more}
    return lv.run(target, None, np.full(1, theta_0), chains=list(chains), **parts)


def test_chains_of_one_run_stack_to_what_they_are_together():
    together = mala(chains=(0, 1), keep=20)
    stacked = mala(keep=20).stack(mala(chains=(1,), keep=20))
    np.testing.assert_array_equal(stacked.values["theta"], together.values["theta"])
    np.testing.assert_array_equal(stacked.draws.theta, together.draws.theta)
    assert stacked.select(slice(1, 2)).chains.tolist() == [1]


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"theta_0": 1.0}, "reference point of the sums is \\(0\\) and \\(1\\)"),
        ({"target": WIDER}, "target's gradient"),
        ({"kernel": lv.RWM()}, "kernel is MALA\\(\\) and RWM\\(\\)"),
        ({"schedule": lv.Constant(0.25)}, "schedule is"),
        ({"weight_power": 0.5}, "weight_power is 1.0 and 0.5"),
        ({"observables": {"square": lambda t: t**2}}, "observables is"),
        ({"num_steps": 32}, "same length"),
        ({"chains": (0,)}, "different chains"),
    ],
)
def test_what_does_not_belong_together_does_not_stack(other, named):
    """Sums are relative to a point, weighted by steps, and of one posterior: adding others gives a confident lie."""
    with pytest.raises(ValueError, match=named):
        mala(theta_0=1.0 if other.get("target") else 0.0).stack(
            mala(**{"chains": (1,), "theta_0": 1.0 if other.get("target") else 0.0, **other})
        )


def test_a_target_written_anew_is_the_same_target():
    again = lv.Target(lambda t: -0.5 * jnp.sum(t * t))
    assert mala(theta_0=0.5).stack(mala(target=again, theta_0=0.5, chains=(1,))).chains.tolist() == [0, 1]


LINE = lv.Target(lambda t: -0.5 * t**2, lambda t, x: -0.5 * (x - t) ** 2)
DATA = np.linspace(-1.0, 1.0, 300).astype(np.float32)


def sgld(data=DATA, **more):
    parts = {"subsample": lv.WithReplacement(5), "schedule": lv.Constant(1e-3), "num_steps": 64, "progress": False}
    return lv.run(LINE, data, 0.3, **{**parts, **more})


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"seed": 5}, "seed is 0 and 5"),
        ({"subsample": lv.WithReplacement(6)}, "subsample is"),
        ({"gradient": lv.ControlVariate(lv.laplace(LINE, DATA, 0.0))}, "gradient is"),
        ({"coordinates": lv.Preconditioned.by([2.0])}, "coordinates is"),
        ({"keep": 10}, "keep is 0 and 10"),
    ],
)
def test_another_call_cannot_be_resumed(changed, named):
    with pytest.raises(ValueError, match=named):
        sgld(num_steps=128, resume=sgld(), **changed)


def test_one_changed_row_of_the_data_is_noticed():
    other = DATA.copy()
    other[137] += 1e-3
    with pytest.raises(ValueError, match="the data are arrays"):
        sgld(data=other, num_steps=128, resume=sgld())
    assert sgld(data=DATA.copy(), num_steps=128, resume=sgld()).num_steps == 128


N = 10_000
NUMBERED = {"x": np.linspace(-1.0, 1.0, N).astype(np.float32), "k": np.arange(N)}


def weighed(condition):
    """A likelihood in which some rows count three times."""
    return lv.Target(LINE.log_prior, lambda t, d: -0.5 * (d["x"] - t) ** 2 * jnp.where(condition(d["k"]), 3.0, 1.0))


def numbered(target, rows=N, **more):
    data = {name: column[:rows] for name, column in NUMBERED.items()}
    parts = {"subsample": lv.WithReplacement(5), "schedule": lv.Constant(1e-4), "num_steps": 64, "progress": False}
    return lv.run(target, data, 0.3, **{**parts, **more})


@pytest.mark.parametrize(
    ("rows", "changed"),
    [(200, lambda k: k > 100), (200, lambda k: k == 137), (N, lambda k: k > N // 2), (N, lambda k: k == N - 1)],
)
def test_a_likelihood_that_differs_at_some_rows_is_another(rows, changed, tmp_path):
    """The first rows alone would not tell, and an old result would be returned for a new model."""
    before, after = weighed(lambda k: k < 0), weighed(changed)
    numbered(before, rows, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="target's gradient differs"):
        numbered(after, rows, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="target's gradient differs"):
        numbered(after, rows, num_steps=128, resume=numbered(before, rows))


def test_a_rare_difference_in_much_data_is_at_least_told(tmp_path):
    few = weighed(lambda k: k == 1)
    numbered(weighed(lambda k: k < 0), checkpoint=tmp_path)
    with pytest.warns(RuntimeWarning, match=r"not written as they were.* at 4,096 of 10,000 rows"):
        numbered(few, checkpoint=tmp_path)


def test_a_model_made_again_by_the_same_code_is_the_same(tmp_path):
    """As by a cell of a notebook that runs again, or a script that is started again: not even a warning."""
    scale = np.arange(3.0)

    def made():
        return lv.Target(LINE.log_prior, lambda t, d: -0.5 * (d["x"] - t) ** 2 + 0.0 * jnp.sum(scale.copy()))

    ledger = numbered(made(), checkpoint=tmp_path)
    again = numbered(made(), checkpoint=tmp_path)
    np.testing.assert_array_equal(again.values["theta"], ledger.values["theta"])


def test_functions_that_hold_modules_and_random_keys_are_described():
    key = jax.random.key(7)

    def made(key, module=jnp):
        return lambda t: module.sum(t) + jax.random.normal(key)

    assert describe(made(key)) == describe(made(jax.random.key(7))) != describe(made(jax.random.key(8)))
