"""A network of ten thousand weights on two spirals: predictions with error bars. Takes about a minute.

python examples/network.py
"""

import jax.numpy as jnp
import numpy as np

import langevin as lv

WIDTH = 100


def spirals(rng: np.random.Generator, size: int) -> dict[str, np.ndarray]:
    """Points on two arms, labelled -1 and 1."""
    angle, label = 3.0 * np.sqrt(rng.random(size)), rng.choice([-1.0, 1.0], size)
    arms = np.stack([np.cos(angle + np.pi * (label > 0)), np.sin(angle + np.pi * (label > 0))], axis=1)
    x = angle[:, None] * arms / 2.0 + 0.1 * rng.normal(size=(size, 2))
    return {"x": x.astype(np.float32), "y": label.astype(np.float32)}


def network(theta: dict, x: jnp.ndarray) -> jnp.ndarray:
    """The log odds of label 1; weights are N(0, 1), so layers are divided by the root of their inputs."""
    hidden = jnp.tanh(3.0 * (x @ theta["first"] + theta["bias"]))
    hidden = jnp.tanh(2.0 * hidden @ theta["second"] / np.sqrt(WIDTH))
    return 3.0 * hidden @ theta["last"] / np.sqrt(WIDTH)


target = lv.Target(
    lambda theta: -0.5 * sum(jnp.sum(leaf**2) for leaf in theta.values()),
    lambda theta, d: lv.log_sigmoid(d["y"] * network(theta, d["x"])),
)
theta_0 = {
    "first": np.zeros((2, WIDTH)),
    "bias": np.zeros(WIDTH),
    "second": np.zeros((WIDTH, WIDTH)),
    "last": np.zeros(WIDTH),
}

result = lv.sample(target, spirals(np.random.default_rng(0), 300), theta_0, time_limit=60)
print(result)
print(result.explain())

new = spirals(np.random.default_rng(1), 8)
found = result.expectation(lambda theta, x: lv.sigmoid(network(theta, x)), data=new["x"])
lower, upper = found.interval(0.95)
print("\nP(label = 1) of new points, with the 95% interval of that number:")
for k in range(8):
    value, ends = found.value[k], f"[{lower[k]:.3f}, {upper[k]:.3f}]"
    print(f"  {value:.3f}  {ends}  {found.statuses[k]:16s} label {new['y'][k]:+.0f}")
