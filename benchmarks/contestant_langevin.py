"""langevin through its public face: the whole `lv.run` call is timed, as a user would wait for it."""

from typing import Any

import langevin as lv  # first, so that it may set its flags before JAX starts

# isort: split
import jax
import numpy as np

from benchmarks import truth, worker
from benchmarks.workloads import Workload

# name of the variant -> (subsampler, likelihood helper); "jax" is the user's own jax.nn.log_sigmoid
VARIANTS = {
    "with replacement": ("WithReplacement", "lv"),
    "with replacement, user's likelihood": ("WithReplacement", "jax"),
    "without replacement": ("WithoutReplacement", "lv"),
    "blocks": ("Blocks", "lv"),
}


def variants(workload: Workload) -> list[str]:
    names = ["with replacement", "without replacement"]
    if workload.logistic:
        names.insert(1, "with replacement, user's likelihood")
    if workload.num_data > 100_000:
        names.append("blocks")
    return names


def prepare(workload: Workload, steps: int, variant: str) -> worker.Run:
    subsampler, helper = VARIANTS[variant]
    log_likelihood = workload.log_likelihood
    if workload.with_log_sigmoid is not None and helper == "lv":
        log_likelihood = workload.with_log_sigmoid(lv.log_sigmoid)
    target = lv.Target(workload.log_prior, log_likelihood)
    theta_0 = truth.mode(workload.name)
    data = lv.DataSource.of(workload.data)
    options: dict[str, Any] = dict(
        kernel=lv.SGLD(),
        gradient=lv.Minibatch(),
        subsample=getattr(lv, subsampler)(workload.batch_size),
        schedule=lv.Polynomial(**workload.step_law),
        observables={"theta": lambda theta: theta},
        num_steps=steps,
        chains=workload.chains,
        progress=False,
    )

    def run(seed: int) -> np.ndarray:
        ledger = lv.run(target, data, theta_0, seed=seed, **options)
        return np.asarray(jax.tree.leaves(lv.estimate(ledger)["theta"].value)[0])

    return run


if __name__ == "__main__":
    worker.main(prepare, variants, packages=["langevin", "jax", "jaxlib"])
