"""Good runs to spoil, and what a refusal must say."""

import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv

STEPS = lv.Constant(0.1)
GAUSSIAN = lv.Target(lambda t: -0.5 * jnp.sum(t**2))
LOCATION = lv.Target(lambda t: -0.5 * jnp.sum(t**2), lambda t, x: -0.5 * jnp.sum((x - t) ** 2))
ROWS = np.ones((4, 2), np.float32)


def run(**parts):
    """A good run without data, but for what is given."""
    parts = {
        "target": GAUSSIAN,
        "data": None,
        "theta_0": jnp.zeros(2),
        "schedule": STEPS,
        "num_steps": 20,
        **parts,
    }
    return lv.run(parts.pop("target"), parts.pop("data"), parts.pop("theta_0"), **parts)


def run_on(data=ROWS, **parts):
    """A good run on data, but for what is given."""
    return run(**{"target": LOCATION, "data": data, "subsample": lv.WithoutReplacement(2), **parts})


def refused(call, *words, error=ValueError):
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    missing = [word for word in words if word not in message]
    assert not missing, f"the message lacks {missing}: {message}"
