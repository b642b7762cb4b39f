"""Programs in memory: the models used last keep theirs, and those of others end with them."""

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin import startup


def scaled(model, x, power):
    return model(x) ** power


def models_alive(compiled, number):
    """Which of so many models, made and used one after the other, are still there."""
    left = []
    for k in range(number):

        def model(x, factor=float(k)):
            return factor * x

        assert compiled(model, jnp.float32(3.0), 2) == 9.0 * k**2
        left.append(weakref.ref(model))
    del model
    gc.collect()
    return [k for k, one in enumerate(left) if one() is not None]


def test_models_that_were_used_last_keep_their_programs():
    most = startup.MOST_MODELS
    compiled = startup.compiled(static_argnums=(0, 2))(scaled)
    assert models_alive(compiled, most + 5) == list(range(5, most + 5))


def test_control_jax_keeps_every_model():
    number = startup.MOST_MODELS + 5
    assert models_alive(jax.jit(scaled, static_argnums=(0, 2)), number) == list(range(number))


def test_an_equal_model_finds_the_program_and_using_it_keeps_it():
    traced = []

    def value(model, x):
        traced.append(model)
        return x + model[0]

    compiled = startup.compiled()(value)
    for k in range(3 * startup.MOST_MODELS):
        assert compiled(("first", 1)[1:], 1.0) == 2.0  # made anew each time, and equal
        assert compiled((k + 2,), 1.0) == k + 3.0
    assert traced.count((1,)) == 1 and compiled.__name__ == "value"


def test_shapes_and_donated_arguments_go_through():
    compiled = startup.compiled(static_argnums=(0, 1), donate_argnums=2)(lambda model, n, x: model * n * x)
    given = jnp.ones(3)
    np.testing.assert_array_equal(compiled(2, 3, given), [6.0, 6.0, 6.0])
    np.testing.assert_array_equal(compiled(2, 3, jnp.ones(2)), [6.0, 6.0])
    assert given.is_deleted()


def test_a_model_that_cannot_be_found_again_is_refused():
    with pytest.raises(ValueError, match=r"functions of theta must be hashable.*unhashable type: 'dict'.*__hash__"):
        startup.compiled()(scaled)({}, 1.0)


@pytest.mark.slow
def test_a_loop_that_makes_its_model_anew_keeps_the_last_ones():
    """Each call left 30 MB and 300 maps: Linux ended the process at the 220th."""
    x = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    left = []
    for k in range(startup.MOST_MODELS + 2):

        def log_prior(theta, factor=0.5 + k):
            return -factor * jnp.sum(theta**2)

        target = lv.Target(log_prior, lambda theta, row: -0.5 * jnp.sum((theta - row) ** 2))
        result = lv.sample(target, x, np.zeros(2), passes=20, progress=False)
        result.expectation(lambda theta: theta[0] * theta[1])
        left.append(weakref.ref(log_prior))
    del log_prior, target, result
    gc.collect()
    assert [k for k, one in enumerate(left) if one() is not None] == list(range(2, startup.MOST_MODELS + 2))
