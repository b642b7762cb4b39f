"""Wrong input gets an error that names the argument, the value received, the rule and a remedy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from tests.unit.refusals import GAUSSIAN, LOCATION, ROWS, refused, run, run_on


def with_nan(row):
    data = ROWS.copy()
    data[row, 1] = np.nan
    return data


@pytest.fixture(scope="module")
def other_anchor():
    """The anchor of a target of three parameters."""
    return lv.laplace(GAUSSIAN, None, np.zeros(3))


DATA = {
    "NaN": (with_nan(2), "data", "finite", "1 of 4 rows", "row 2", "Drop or impute"),
    "infinity in a pytree": ({"x": np.array([1.0, np.inf])}, "data['x']", "finite", "row 1"),
    "too large for float32": (np.full((3, 1), 1e300), "data", "float32", "1e+300", "Rescale"),
    "mismatched axes": (
        (np.ones(3), np.ones(4)),
        "data[0] has 3",
        "data[1] has 4",
        "leading axis",
        "transpose",
    ),
    "no rows": (np.zeros((0, 2)), "data", "at least one observation", "0 rows"),
    "no arrays": ({}, "data", "at least one array", "{}", "None"),
    "strings": (np.array(["a", "b"]), "data", "numeric", "<U1", "Encode"),
    "a list of numbers": ([1.0, 2.0, 3.0], "data", "leading axis", "np.asarray"),
    "a file that does not exist": ("no-such-file.npy", "data", "no-such-file.npy", "file"),
    "integers beyond 32 bits": (np.array([1, 2**40]), "data", "int32", str(2**40)),
}


@pytest.mark.parametrize("case", DATA.values(), ids=DATA)
def test_data(case):
    data, *words = case
    refused(lambda: run_on(data), *words)


START = {
    "integers": (np.zeros(2, int), "theta_0", "floating-point", "int64", "0.0"),
    "NaN": (np.array([0.0, np.nan]), "theta_0", "finite", "nan"),
    "a string": ("here", "theta_0", "floating-point", "<U4"),
    "nothing": (None, "theta_0", "at least one array", "None", "jnp.zeros"),
    "too large for float32": (np.array([1e300, 0.0]), "theta_0", "float32", "1e+300"),
    "integers in a pytree": ({"a": 1.0, "b": np.zeros(2, int)}, "theta_0['b']", "int64"),
    "a function, as in a module": ({"w": np.zeros(2), "act": abs}, "theta_0['act']", "function abs", "eqx.partition"),
    "a key of random numbers": (
        {"w": np.zeros(2), "key": jax.random.key(0)},
        "theta_0['key']",
        "key<fry>",
        "nnx.split",
    ),
}


@pytest.mark.parametrize("case", START.values(), ids=START)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_theta_0(case):
    theta_0, *words = case
    refused(lambda: run(theta_0=theta_0), *words)


TARGETS = {
    "log likelihood of a vector": (
        lv.Target(GAUSSIAN.log_prior, lambda t, x: -((x - t) ** 2)),
        "log_likelihood", "scalar", "(2,)", "ONE datum", "jnp.sum",
    ),
    "log prior of a vector": (lv.Target(lambda t: -(t**2)), "log_prior", "scalar", "(2,)", "jnp.sum"),
    "log prior of an integer": (lv.Target(lambda t: 3), "log_prior", "floating-point", "int32"),
    "log prior of nothing": (lv.Target(lambda t: None), "log_prior", "scalar", "NoneType"),
    "log prior NaN at the start": (lv.Target(lambda t: jnp.sum(jnp.log(t - 1))), "theta_0", "log density", "nan"),
    "log density minus infinity at the start": (
        lv.Target(lambda t: jnp.where(t[0] > 1, 0.0, -jnp.inf)), "theta_0", "log density", "-inf",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TARGETS.values(), ids=TARGETS)
def test_target(case):
    target, *words = case
    call = run if target.log_likelihood is None else run_on
    refused(lambda: call(target=target), *words)


def test_target_and_data_must_fit():
    refused(lambda: run(data=ROWS), "data", "None", "log_likelihood")
    refused(lambda: run(target=LOCATION), "data", "None", "log_likelihood", "observations")
    refused(lambda: run(target=None), "target", "lv.Target", "None")
    refused(lambda: lv.Target(3), "log_prior", "function", "3")
    refused(lambda: lv.Target(GAUSSIAN.log_prior, 3), "log_likelihood", "function", "3")


ARGUMENTS = {
    "no chains": ({"chains": 0}, "chains", "at least 1", "0", "Try"),
    "negative chain": ({"chains": [-1]}, "chains", "[-1]", "Try"),
    "a chain twice": ({"chains": [1, 1]}, "chains", "distinct", "[1, 1]", "Try"),
    "an empty list of chains": ({"chains": []}, "chains", "[]", "Try"),
    "half a chain": ({"chains": 1.5}, "chains", "1.5", "Try"),
    "a chain number beyond 32 bits": ({"chains": [2**32]}, "chains", str(2**32), "Try"),
    "no steps": ({"num_steps": 0}, "num_steps", "at least 1", "0", "Try"),
    "negative steps": ({"num_steps": -5}, "num_steps", "-5"),
    "a float number of steps": ({"num_steps": 1e3}, "num_steps", "integer", "1000.0", "Try num_steps=1000"),
    "no block": ({"block_steps": 0}, "block_steps", "at least 1", "0"),
    "negative seed": ({"seed": -1}, "seed", "at least 0", "-1", "Try"),
    "a seed beyond 64 bits": ({"seed": 2**64}, "seed", str(2**64), "Try"),
    "negative keep": ({"keep": -1}, "keep", "at least 0", "-1", "Try keep=1000"),
    "a number for a schedule": ({"schedule": 0.1}, "schedule", "step-size law", "0.1", "lv.Polynomial"),
    "unknown layout": ({"layout": "tall"}, "layout", "'chain', 'wide' or None", "'tall'", "Try"),
    "wide layout of an exact kernel": (
        {"layout": "wide", "kernel": lv.MALA()},
        "layout",
        "'chain'",
        "'wide'",
    ),
    "negative weights": ({"weight_power": -1.0}, "weight_power", "positive", "-1.0", "Try"),
    "NaN weights": ({"weight_power": np.nan}, "weight_power", "positive", "nan", "Try"),
    "infinite weights": ({"weight_power": np.inf}, "weight_power", "finite", "inf", "Try"),
    "weights in words": ({"weight_power": "1"}, "weight_power", "'1'", "Try"),
    "no kernel": ({"kernel": None}, "kernel", "None", "lv.SGLD()"),
    "the class of a kernel": ({"kernel": lv.SGLD}, "kernel", "SGLD", "lv.SGLD()"),
    "no gradient": ({"gradient": None}, "gradient", "lv.Minibatch()", "None"),
    "the class of a gradient": ({"gradient": lv.Minibatch}, "gradient", "lv.Minibatch()"),
    "subsample without data": ({"subsample": lv.Full()}, "subsample", "None", "no data"),
    "no observables": ({"observables": {}}, "observables", "non-empty", "{}", "Try"),
    "a list of observables": ({"observables": [jnp.sin]}, "observables", "mapping", "Try"),
    "a number as observable": ({"observables": {"a": 3}}, "'a'", "function of theta", "3"),
    "an observable with a dict": (
        {"observables": {"bad": lambda t: {"a": t}}},
        "one array",
        "dict",
        "Split",
        "bad",
    ),
    "a word for an anchor": ({"anchor": "map"}, "anchor", "lv.laplace", "'map'"),
    "resume from nothing": ({"resume": "file"}, "resume", "'file'", "Ledger"),
}


@pytest.mark.parametrize("case", ARGUMENTS.values(), ids=ARGUMENTS)
def test_arguments(case):
    parts, *words = case
    refused(lambda: run(**parts), *words)


def test_an_indicator_is_an_observable():
    # A boolean phi is the simplest posterior probability; it cannot be corrected, but it can be averaged.
    ledger = run(observables={"positive": lambda t: t[0] > 0}, schedule=lv.Constant(1e-9), theta_0=jnp.ones(2))
    reference = ledger.columns["positive"].reference
    assert np.allclose(reference + ledger.values["positive"].sum() / ledger.sum_omega.sum(), 1.0)


def test_parts():
    refused(lambda: lv.Polynomial(alpha=1.2), "alpha", "(0, 1]", "1.2", "Try")
    refused(lambda: lv.Polynomial(alpha=0.0), "alpha", "(0, 1]", "0.0", "Constant")
    refused(lambda: lv.Polynomial(alpha=-0.3), "alpha", "(0, 1]", "-0.3", "Try")
    refused(lambda: lv.Constant(-0.1), "delta", "positive", "-0.1", "Try")
    refused(lambda: lv.HMC(0), "num_leapfrog", "at least 1", "0", "Try")
    refused(lambda: lv.HMC(2.5), "num_leapfrog", "integer", "2.5", "Try")


def test_minibatches():
    refused(lambda: run_on(subsample=lv.WithoutReplacement(5)), "batch_size", "N=4", "got 5", "WithReplacement(5)")
    refused(lambda: run_on(subsample=None), "subsample", "None", "lv.WithoutReplacement")
    refused(lambda: run_on(subsample=3), "subsample", "3", "lv.WithoutReplacement")
    refused(lambda: run_on(kernel=lv.MALA()), "subsample", "None", "exact kernel")


def test_anchors(other_anchor):
    refused(lambda: run(anchor=other_anchor), "anchor", "theta_0", "lv.laplace")
    refused(lambda: lv.ControlVariate(other_anchor), "anchor", "data")
    on_data = lv.laplace(LOCATION, ROWS, np.zeros(2))
    refused(lambda: lv.ControlVariate(on_data, order=3), "order", "1 or 2", "3")
    refused(lambda: lv.ControlVariate("map"), "anchor", "lv.laplace", "'map'")


def test_control_variate_of_another_shape():
    wide = lv.laplace(LOCATION, np.ones((4, 3)), np.zeros(3))
    refused(lambda: run_on(gradient=lv.ControlVariate(wide)), "anchor", "theta_0", "lv.laplace")


def test_laplace():
    uphill = lv.Target(lambda t: jnp.sum(t**2))
    refused(lambda: lv.laplace(uphill, None, np.ones(2)), "no", "mode", "prior", error=lv.AnchorError)
    undefined = lv.Target(lambda t: jnp.sum(jnp.log(t)))
    refused(lambda: lv.laplace(undefined, None, -np.ones(2)), "theta_0", "finite", error=lv.AnchorError)


def test_a_data_set_in_the_place_of_the_target_is_not_printed_whole():
    with pytest.raises(ValueError, match=r"^target must be an lv.Target, got array\(\[.{100,130} \.\.\.\. Try target="):
        lv.sample(np.arange(1000.0), lv.Target(lambda t: -(t**2)), 0.0)
