"""Runs that cannot go on: resumed with other parts, diverged, or started where nothing is defined."""

import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from tests.unit.refusals import LOCATION, ROWS, refused, run, run_on


@pytest.fixture(scope="module")
def finished():
    """A short good run of two chains, to resume wrongly."""
    return run(chains=2)


# --- resume ---

RESUMED = {
    "other chains": ({"chains": 3}, "resume", "chains"),
    "fewer steps": ({"num_steps": 10}, "num_steps", "at least 20", "10"),
    "another seed": ({"seed": 5}, "resume", "seed"),
    "another schedule": ({"schedule": lv.Constant(0.2)}, "resume", "schedule"),
    "an array of schedules": ({"schedule": lv.Constant([0.1, 0.2])}, "resume", "schedule"),
    "other observables": ({"observables": {"x": jnp.sin}}, "resume", "observables"),
    "another kernel": ({"kernel": lv.LeimkuhlerMatthews()}, "resume", "kernel"),
    "other kept draws": ({"keep": 10}, "resume", "keep"),
    "other weights": ({"weight_power": 2.0}, "resume", "weight_power"),
}


# A wrong keep once made the host loop search for a stride for ever.
@pytest.mark.timeout(10)
@pytest.mark.parametrize("case", RESUMED.values(), ids=RESUMED)
def test_resume_must_be_of_the_same_call(finished, case):
    parts, *words = case
    refused(lambda: run(**{"chains": 2, "num_steps": 40, "resume": finished, **parts}), *words)


def test_stacking_needs_different_chains_of_the_same_run(finished):
    refused(lambda: finished.stack(finished), "different chains", "[0 1]")
    refused(lambda: finished.stack(run(chains=[5, 6], num_steps=21)), "same length")
    refused(lambda: finished.stack(run(chains=[5, 6], schedule=lv.Constant(0.2))), "schedule")
    stacked = finished.stack(run(chains=[5, 6]))
    refused(lambda: run(chains=[0, 1, 5, 6], num_steps=40, resume=stacked), "resume", "unstacked")


# --- divergence ---

QUARTIC = lv.Target(lambda t: -jnp.sum(t**4))


def overshoot(first_bad, **parts):
    """Steps of 0.01 up to m = first_bad - 1, then far too large ones."""
    schedule = lv.Custom(lambda m: np.where(m < first_bad, 0.01, 10.0))
    with pytest.raises(lv.Diverged) as caught:
        run(target=QUARTIC, theta_0=jnp.ones(1), schedule=schedule, **parts)
    return caught.value


def test_an_overshooting_chain_leaves_its_whole_finite_rows():
    error = overshoot(993, num_steps=2000, chains=2, block_steps=160)
    for word in ("chain", "m = ", "delta_m = 10", "smaller steps", ".ledger"):
        assert word in str(error)
    # The block of the divergence began at 960; the rows before it are whole and finite.
    assert error.ledger.num_steps == 960 and error.ledger.finite.all()
    good = run(target=QUARTIC, theta_0=jnp.ones(1), schedule=lv.Constant(0.01), num_steps=960, chains=2)
    assert np.array_equal(error.ledger.values["theta"], good.values["theta"])


def test_divergence_names_the_row_in_which_it_happened():
    # Chains of steps 10 on exp(-theta^4) cube |theta| each step: from order one to overflow in at most 16 steps.
    message = str(overshoot(993, num_steps=2000, block_steps=160))
    assert int(message.split("m = ")[1].split(",")[0]) in (993, 1009)


def test_divergence_in_the_first_block_still_has_a_ledger_of_no_rows_or_none():
    error = overshoot(3, num_steps=200)
    assert error.ledger is None or error.ledger.finite.all()


def test_divergence_far_out_between_two_device_rows():
    # Past m = 262144 a ledger row is two device rows of 256; here only the first of them is whole.
    error = overshoot(262_144 + 256 + 100, num_steps=300_000, block_steps=256)
    assert error.ledger.finite.all() and error.ledger.num_steps in (262_144, 262_400)


def test_a_runaway_chain_is_caught_before_it_overflows():
    away = lv.Target(lambda t: jnp.sum(t**2))
    with pytest.raises(lv.Diverged, match="smaller steps"):
        run(target=away, theta_0=jnp.ones(1), schedule=lv.Constant(1.0), num_steps=64)


def test_resume_refuses_other_data_another_target_and_another_anchor():
    parts = {"num_steps": 20, "chains": 2}
    ledger = run_on(**parts)
    refused(lambda: run_on(ROWS + 1, **parts | {"num_steps": 40, "resume": ledger}), "resume", "data")
    other = lv.Target(lambda t: -jnp.sum(t**2), LOCATION.log_likelihood)
    refused(lambda: run_on(target=other, **parts | {"num_steps": 40, "resume": ledger}), "resume", "target")
    anchor = lv.laplace(LOCATION, ROWS, np.zeros(2))
    refused(lambda: run_on(anchor=anchor, **parts | {"num_steps": 40, "resume": ledger}), "resume", "anchor")


def test_a_posterior_that_float32_cannot_resolve_is_refused():
    narrow = lv.Target(lambda t: -0.5 * jnp.sum(((t - 1e5) / 3e-3) ** 2))
    anchor = lv.laplace(narrow, None, np.array([99999.0]))
    refused(lambda: run(target=narrow, theta_0=anchor.mode, anchor=anchor), "theta[0]", "float32", "100000", "Centre")


def test_an_exact_kernel_refuses_a_start_of_undefined_density():
    target = lv.Target(lambda t: -0.5 * jnp.sum(t**2), lambda t, x: jnp.sum(jnp.log(x - t)))
    data = np.array([[3.0, 3.0], [1.0, 1.0]], np.float32)
    refused(lambda: run(target=target, data=data, theta_0=2 * jnp.ones(2), kernel=lv.MALA()), "theta_0", "nan")
