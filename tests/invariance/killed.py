"""A process that samples with a checkpoint and can be killed: `python -m tests.invariance.killed WHICH FOLDER [CALL]`.

With CALL it kills itself within that call of the disk; otherwise it says "ready" and waits for the worst.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import langevin as lv
from langevin.data import files
from langevin.engine import setup
from langevin.saving import journal

# Often enough that a run of seconds has many saves, and many moments fall inside one.
SECONDS = 0.02


# A network whose second layer adds up.
NETWORK = lv.Target(
    lambda theta: -0.5 * jnp.sum(theta**2),
    lambda theta, d: lv.log_sigmoid(d["y"] * jnp.sum(jnp.tanh(d["x"] @ theta))),
)


def problem(which: str, folder: Path) -> tuple[lv.Target, Any, Any, dict[str, Any]]:
    """Target, data, theta_0 and settings; data that must outlive a process are in the folder beside the run."""
    if which == "exact":
        return lv.Target(lambda t: jnp.sum(2.0 * t - jnp.exp(t))), None, np.zeros(2), {"precision": 0.02}
    model = lv.models.Logistic.simulate(num_data=20_000, dimension=5, seed=1)
    if which in ("in memory", "extended"):
        budget = {"precision": 0.002} if which == "in memory" else {"passes": 20}
        return model.target, model.data, model.theta_0, budget
    if which == "network":
        rows = model.data if isinstance(model.data, dict) else {"x": model.x, "y": model.y}
        return NETWORK, rows, np.zeros((5, 8)), {"passes": 30, "method": "sghmc", "chains": 2}
    # The file is mapped and its rows are gathered by the host, as if it exceeded the caches.
    files.FROM_BYTES = setup.FROM_BYTES = 0
    path = folder.parent / "rows.npy"
    if not path.exists():
        np.save(path, (model.x * model.y[:, None]).astype(np.float32))
    target = lv.Target(model.target.log_prior, lambda theta, row: lv.log_sigmoid(jnp.dot(row, theta)))
    return target, path, model.theta_0, {"passes": 40}


def script(which: str, folder: Path, checkpoint: Path | None) -> Any:
    """What a user runs, and runs again after a crash."""
    target, data, theta_0, settings = problem(which, folder)
    result = lv.sample(target, data, theta_0, progress=False, checkpoint=checkpoint, **settings)
    return result.extend(passes=400, progress=False) if which == "extended" else result


def _dying(function: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
    def called(*arguments: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments)

    return called


def main(which: str, folder: Path, calls: int | None) -> None:
    """Samples; the process may not live to see the end."""
    journal._SECONDS, journal._SHARE = SECONDS, 1.0
    if calls is not None:
        left = [calls]
        os.fsync, os.replace = _dying(os.fsync, left), _dying(os.replace, left)
    print("ready", flush=True)
    script(which, folder, folder)
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)
