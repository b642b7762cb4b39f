"""Runs of every kind, and every number of them by name, for comparison bit for bit."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv

RNG = np.random.default_rng(20)
X = RNG.standard_normal((50, 3)).astype(np.float32)
Y = np.where(RNG.random(50) < 0.5, 1, -1).astype(np.float32)


def log_prior(theta):
    return -0.5 * jnp.dot(theta, theta)


def log_likelihood(theta, datum):
    x, y = datum
    return lv.log_sigmoid(y * jnp.dot(x, theta))


LOGISTIC = lv.Target(log_prior, log_likelihood)
DOUBLE_WELL = lv.Target(lambda t: jnp.sum(0.5 * t["a"] ** 2 - 0.25 * t["a"] ** 4) - 0.5 * t["b"] ** 2)
DATA, START = (X, Y), jnp.array([0.1, -0.2, 0.3])
ANCHOR = lv.laplace(LOGISTIC, DATA, START)
SCHEDULE = lv.Polynomial(a=1.0, b=200.0, alpha=1 / 3)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class OneDatum:
    """A gradient with its own randomness: one datum, drawn by the user's own call of jax.random."""

    def draw(self, key):
        return jax.random.randint(key, (), 0, 50)

    def estimate(self, theta, data, u):
        datum = jax.tree.map(lambda leaf: leaf[u], data)
        return jax.grad(log_prior)(theta) + 50 * jax.grad(log_likelihood)(theta, datum)

    def cost(self, num_data):
        return 1


def on_data(**parts):
    return {"target": LOGISTIC, "data": DATA, "theta_0": START, "schedule": SCHEDULE, "keep": 50, **parts}


CASES = {
    "with replacement": on_data(subsample=lv.WithReplacement(5)),
    "without replacement": on_data(subsample=lv.WithoutReplacement(5)),
    "epochs": on_data(subsample=lv.Epochs(7)),
    "blocks": on_data(subsample=lv.Blocks(5)),
    "sharded": on_data(subsample=lv.Sharded(5, sizes=(35, 5, 10), stay=7, probabilities=(0.5, 0.25, 0.25))),
    "control variate, anchor, Leimkuhler-Matthews": on_data(
        subsample=lv.WithoutReplacement(5),
        gradient=lv.ControlVariate(ANCHOR, order=2),
        kernel=lv.LeimkuhlerMatthews(),
        anchor=ANCHOR,
        observables={"theta": lv.Moments(), "sin": jnp.sin},
    ),
    "whitened, guarded": on_data(
        subsample=lv.WithReplacement(2),
        gradient=lv.ControlVariate(ANCHOR, order=2),
        kernel=lv.LeimkuhlerMatthews(),
        anchor=ANCHOR,
        schedule=lv.Power(1.0, m_0=1000.0, alpha=0.2),
        coordinates=lv.Whitened.by(ANCHOR),
        guard=20,
    ),
    "SVRG, UBU": on_data(subsample=lv.WithReplacement(5), gradient=lv.SVRG(20), kernel=lv.UBU(0.5)),
    "SAGA, whitened, BAOAB": on_data(
        subsample=lv.WithReplacement(5),
        gradient=lv.SAGA(),
        kernel=lv.BAOAB(0.5),
        anchor=ANCHOR,
        schedule=lv.Constant(0.5),
        coordinates=lv.Whitened.by(ANCHOR),
    ),
    "MALA": on_data(kernel=lv.MALA(), schedule=lv.Constant(0.05), anchor=ANCHOR),
    "custom gradient": on_data(gradient=OneDatum()),
    "no data": {
        "target": DOUBLE_WELL,
        "data": None,
        "theta_0": {"a": jnp.zeros(2), "b": jnp.float32(0.5)},
        "schedule": SCHEDULE,
        "keep": 50,
    },
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
STEPS = 170


def run(case, num_steps=STEPS, **more):
    case = {**case, **more}
    target, data, theta_0 = (case.pop(name) for name in ("target", "data", "theta_0"))
    return lv.run(target, data, theta_0, num_steps=num_steps, seed=11, progress=False, **case)


_REFERENCE = {}


def four_chains(case):
    """Chains 0 ... 3 run together without any cut; computed once a case."""
    name = next(n for n, c in CASES.items() if c is case)
    if name not in _REFERENCE:
        _REFERENCE[name] = run(case, chains=4)
    return _REFERENCE[name]


def numbers(ledger, chains=slice(None), state=True):
    """Every number of a ledger by name; `chains` picks positions on the axis after the schedule's settings."""
    at = (slice(None),) * len(ledger.schedule.batch_shape) + (chains,)
    found = {name: getattr(ledger, name) for name in ("num_steps", "row_steps", "m_stop")}
    found |= {name: getattr(ledger, name) for name in ("sum_delta", "sum_delta2", "sum_omega")}
    found["chains"] = ledger.chains[chains]
    for name, column in ledger.columns.items():
        found[f"values {name}"] = ledger.values[name][at]
        found[f"reference {name}"] = column.reference
        if ledger.corrections is not None:
            found[f"corrections {name}"] = ledger.corrections[name][at]
    for name in ("outer", "acceptance", "divergences", "levels", "visits", "far"):
        if getattr(ledger, name) is not None:
            found[name] = getattr(ledger, name)[at]
    if ledger.draws is not None:
        found |= {"draws.m": ledger.draws.m, "draws.weight": ledger.draws.weight}
        found |= {f"draws.{n}": getattr(ledger.draws, n)[at] for n in ("theta", "grad")}
    if state:
        leaves = jax.tree_util.tree_leaves_with_path(ledger.checkpoint.carry)
        found |= {f"carry{jax.tree_util.keystr(path)}": np.asarray(leaf) for path, leaf in leaves}
    return found


def assert_same(first, second):
    assert first.keys() == second.keys()
    differ = [name for name in first if not np.array_equal(first[name], second[name])]
    assert not differ, f"not equal, bit for bit: {differ}"
