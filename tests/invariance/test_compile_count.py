"""The user's functions are traced a fixed number of times: never again for another length or another run."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin.engine.run import Run
from langevin.engine.setup import prepare

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


@pytest.fixture
def compiled(monkeypatch):
    """Names of the programs that were compiled since the last look."""
    names = []

    def listen(event, duration, **details):
        if event == "/jax/core/compile/backend_compile_duration":
            names.append(details.get("fun_name"))

    jax.monitoring.register_event_duration_secs_listener(listen)

    def since_last():
        found = list(names)
        names.clear()
        return found

    yield since_last
    jax.monitoring.unregister_event_duration_listener(listen)


def test_another_call_of_sample_compiles_nothing(compiled):
    """A seed, a budget of any kind, more chains' worth of steps: the batch size follows, and no program does."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2000, 4)).astype(np.float32)
    y = np.sign(x[:, 0] + rng.logistic(size=2000)).astype(np.float32)
    target = lv.Target(lambda t: -0.5 * jnp.sum(t**2), lambda t, row: lv.log_sigmoid(row["y"] * jnp.dot(row["x"], t)))

    def call(**budget):
        result = lv.sample(target, {"x": x, "y": y}, np.zeros(4), progress=False, **budget)
        str(result), result.quantiles((0.1, 0.9))
        return result

    first = call(passes=5)
    # The survey's values at many points are a program of their own where parameters are few.
    assert 0 < len(compiled()) <= 7
    more = [call(passes=5, seed=1), call(passes=300), call(precision=0.01, seed=2), call(time_limit=2.0)]
    assert compiled() == []
    assert max(one.session.batch_size for one in more) > first.session.batch_size
    first.extend(passes=10)
    assert compiled() == []


def test_another_call_on_groups_compiles_nothing(compiled):
    """The check of the quadrature has programs of its own."""
    rng = np.random.default_rng(0)
    y = (1.0 + rng.standard_normal((50, 1)) + rng.standard_normal((50, 4))).astype(np.float32)

    def log_joint(theta, z, group):
        return -0.5 * jnp.sum((group - theta[0] - jnp.exp(theta[1]) * z[0]) ** 2) - 0.5 * jnp.sum(z**2)

    target = lv.Target(lambda t: -0.5 * jnp.sum(t**2), lv.marginal(log_joint, latent=1, nodes=3))
    for seed in range(2):
        compiled()
        lv.sample(target, y, np.zeros(2), passes=10, seed=seed, method="minibatch", progress=False)
    assert compiled() == []


def test_the_pace_of_the_first_block_says_nothing():
    """It compiles. The next blocks grow by what they take themselves, and none is longer than its share of a second."""
    ledger_run = Run(
        prepare(
            lv.Target(lambda t: -0.5 * t**2), None, 0.0, schedule=lv.Constant(0.1), kernel=lv.SGLD(),
            gradient=lv.Minibatch(), subsample=None, coordinates=None, observables=None, chains=1, seed=0, anchor=None,
            weight_power=1.0, keep=0, layout=None, guard=1,
        )
    )  # fmt: skip
    ledger_run.start()
    sent = ledger_run._launch(16, 10**6)
    assert ledger_run._rate is None
    ledger_run._collect(sent)
    assert ledger_run._rate is None and ledger_run._next_count(16, None) == 16
    ledger_run._rate = 1e9
    assert ledger_run._next_count(16, None) == 128
    ledger_run._rate = 50.0
    assert ledger_run._next_count(128, None) == 5


def test_a_model_is_traced_by_one_thread_at_a_time():
    inside, together = [], []

    def log_likelihood(theta, x):
        inside.append(0)
        time.sleep(0.002)
        together.append(len(inside))
        inside.pop()
        return -0.5 * jnp.sum((x - theta) ** 2) - jnp.sum(theta**4) / 100

    target = lv.Target(lambda t: -0.5 * jnp.sum(t**2), log_likelihood)
    # More rows than a chunk of a pass, so that threads share them.
    data = np.random.default_rng(0).standard_normal((70_000, 2)).astype(np.float32)
    lv.sample(target, data, np.zeros(2), passes=0.5)
    assert set(together) == {1}
