"""Series whose likelihood does not come apart into rows: garch11 and the hidden Markov model hmm_drive_1.

Both start at zero on the unconstrained scale.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import langevin as lv
from benchmarks.reach.database import Draws, table
from benchmarks.reach.posteriors import Posterior, beta, listed, logit, normal


@listed("garch-garch11")
def garch() -> Posterior:
    """y_t ~ N(mu, h_t), h_t = alpha_0 + alpha_1 (y_{t-1} - mu)^2 + beta_1 h_{t-1}, flat where alpha_1 + beta_1 < 1.

    beta_1 = share (1 - alpha_1), so that the two logits are free.
    """
    data = table("garch")
    y, first = data["y"], data["sigma1"] ** 2

    def log_density(theta: Any) -> Any:
        alpha_0, alpha_1 = jnp.exp(theta["log_alpha_0"]), jax.nn.sigmoid(theta["logit_alpha_1"])
        beta_1 = jax.nn.sigmoid(theta["logit_share"]) * (1.0 - alpha_1)
        # A flat density on the triangle is Beta(1, 2) for alpha_1 and Beta(1, 1) for the share.
        flat = theta["log_alpha_0"] + beta(theta["logit_alpha_1"], 1.0, 2.0) + beta(theta["logit_share"], 1.0, 1.0)
        squares = (y - theta["mu"]) ** 2

        def advance(h: Any, square: Any) -> tuple[Any, Any]:
            return alpha_0 + alpha_1 * square + beta_1 * h, h

        _, h = jax.lax.scan(advance, jnp.full_like(alpha_0, first), squares)
        return flat - 0.5 * jnp.sum(squares / h + jnp.log(h))

    def unconstrained(found: Draws) -> Any:
        return {
            "mu": found["mu"],
            "log_alpha_0": np.log(found["alpha0"]),
            "logit_alpha_1": logit(found["alpha1"]),
            "logit_share": logit(found["beta1"] / (1.0 - found["alpha1"])),
        }

    theta_0 = {name: np.float64(0.0) for name in ("mu", "log_alpha_0", "logit_alpha_1", "logit_share")}
    return Posterior(lv.Target(log_density), None, theta_0, unconstrained, "garch-garch11")


@listed("bball_drive_event_1-hmm_drive_1")
def drive() -> Posterior:
    """Two hidden states, each with a normal speed and a normal distance, means in ascending order.

    `logit_first` are the logits of moving into the first state, from either.
    """
    data = table("bball_drive_event_1")
    seen = np.stack([data["u"], data["v"]], axis=1)
    spread, pseudo_counts = np.array([data["tau"], data["rho"]]), data["alpha"]

    def ordered(low: Any, log_gap: Any) -> Any:
        return jnp.stack([low, low + jnp.exp(log_gap)])

    def log_density(theta: Any) -> Any:
        # Rows: states. Columns: speed and distance.
        means = ordered(theta["low"], theta["log_gap"])
        prior = jnp.sum(theta["log_gap"]) + normal(means, np.array([[0.0], [3.0]]), 1.0)
        prior += jnp.sum(beta(theta["logit_first"], pseudo_counts[:, 0], pseudo_counts[:, 1]))
        log_moves = jnp.stack(
            [jax.nn.log_sigmoid(theta["logit_first"]), jax.nn.log_sigmoid(-theta["logit_first"])], axis=1
        )
        emitted = -0.5 * jnp.sum(((seen[:, None, :] - means) / spread) ** 2, axis=2)

        def forward(joint: Any, here: Any) -> tuple[Any, None]:
            return jax.scipy.special.logsumexp(joint[:, None] + log_moves, axis=0) + here, None

        last, _ = jax.lax.scan(forward, emitted[0], emitted[1:])
        return prior + jax.scipy.special.logsumexp(last)

    def unconstrained(found: Draws) -> Any:
        low = np.stack([found["phi[1]"], found["lambda[1]"]], axis=-1)
        high = np.stack([found["phi[2]"], found["lambda[2]"]], axis=-1)
        into_first = np.stack([found["theta1[1]"], found["theta2[1]"]], axis=-1)
        return {"low": low, "log_gap": np.log(high - low), "logit_first": logit(into_first)}

    theta_0 = {name: np.zeros(2) for name in ("low", "log_gap", "logit_first")}
    name = "bball_drive_event_1-hmm_drive_1"
    return Posterior(lv.Target(log_density), None, theta_0, unconstrained, name)
