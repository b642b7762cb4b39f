"""The user's functions are traced a fixed number of times: never again for another length or another run."""

import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv

DATA = np.linspace(-1, 1, 12).astype(np.float32)


class Counted:
    """A target whose functions count how often JAX traces them."""

    def __init__(self):
        self.prior = self.likelihood = self.phi_count = 0

        def log_prior(theta):
            self.prior += 1
            return -0.5 * theta**2

        def log_likelihood(theta, x):
            self.likelihood += 1
            return -0.5 * (x - theta) ** 2

        def phi(theta):
            self.phi_count += 1
            return jnp.sin(theta)

        self.target, self.phi = lv.Target(log_prior, log_likelihood), phi

    @property
    def counts(self):
        return np.array([self.prior, self.likelihood, self.phi_count])

    def traces_of(self, **parts):
        """How often the functions were traced in one run."""
        before = self.counts
        parts = {"num_steps": 100, "schedule": lv.Constant(0.01), "observables": {"phi": self.phi}, **parts}
        lv.run(self.target, DATA, 0.0, **parts)
        return self.counts - before


KINDS = {
    "SGLD": {"subsample": lv.WithoutReplacement(3)},
    "wide": {"subsample": lv.WithoutReplacement(3), "chains": 4, "layout": "wide"},
    "MALA": {"kernel": lv.MALA()},
}
# The check of shapes before the run. Everything else is compiled once.
CHECK = np.array([1, 1, 0])


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_second_run_compiles_nothing(kind):
    counted = Counted()
    first = counted.traces_of(**kind)
    assert np.all(first >= 1) and np.all(first <= 12)
    again = {
        "same": counted.traces_of(**kind),
        "longer": counted.traces_of(**kind, num_steps=9000),
        "other blocks": counted.traces_of(**kind, block_steps=3),
        "another seed": counted.traces_of(**kind, seed=5),
        "another step": counted.traces_of(**{**kind, "schedule": lv.Polynomial(a=1.0, b=100.0)}),
    }
    # phi is looked at for its shape and its value at the centre; that is not compilation, and it is bounded.
    for name, traces in again.items():
        assert np.all(traces[:2] <= CHECK[:2]), f"{name}: log prior and log likelihood traced {traces[:2]} times more"
        assert np.array_equal(traces, again["same"]), name


def test_the_number_of_traces_does_not_depend_on_the_length_of_the_first_run():
    counts = [
        Counted().traces_of(subsample=lv.WithoutReplacement(3), **length)
        for length in ({"num_steps": 10}, {"num_steps": 5000}, {"num_steps": 64, "block_steps": 7})
    ]
    assert np.array_equal(counts[0], counts[1]) and np.array_equal(counts[0], counts[2])


def test_resuming_compiles_nothing():
    counted, parts = Counted(), {"schedule": lv.Constant(0.01), "subsample": lv.Epochs(5)}
    part = lv.run(counted.target, DATA, 0.0, num_steps=30, **parts)
    before = counted.counts
    lv.run(counted.target, DATA, 0.0, num_steps=60, resume=part, **parts)
    assert np.all((counted.counts - before)[:2] <= CHECK[:2])
