"""Runs that do not belong together are told apart, and the first difference is named."""

import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv

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
