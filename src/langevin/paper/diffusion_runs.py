"""The coupled chains of the diffusion limit: both problems, both gradients, equal and decreasing steps."""

from functools import partial
from itertools import product
from typing import Any

import numpy as np

import langevin as lv
from langevin.paper.lab import Lab
from langevin.paper.problems import gaussian, logistic
from langevin.paper.study import Numbers

PROBLEMS, GRADIENTS, STEPS = ("gaussian", "logistic"), ("full", "minibatch"), ("equal", "decreasing")
CASES = tuple(product(PROBLEMS, GRADIENTS, STEPS))
# Five, and three to four, relaxation times 2/(curvature of log pi). Longer times lower the orders of decreasing steps:
# the largest errors come early, where the sum of delta^3 gains more from log M than the whole of it does.
TIME = {"gaussian": 2.0, "logistic": 0.04}
DIMENSION = {"gaussian": 1, "logistic": 3}
BATCH = {"gaussian": 10, "logistic": 30}
ALPHA = {"equal": 0.0, "decreasing": 1 / 3}
# For the eye only: this chain is too coarse for the fits, which use the others.
COARSE = 8


def compute(lab: Lab) -> Numbers:
    """The errors of every problem, gradient and step law, and one path of the Gaussian problem."""
    sizes = lab.choose(
        tiny={"gaussian": (256, 32), "logistic": (256, 16)},
        quick={"gaussian": (512, 64), "logistic": (512, 32)},
        full={"gaussian": (2048, 256), "logistic": (1024, 128)},
    )
    numbers = {"size": np.array(lab.size)}
    for problem, gradient, steps in CASES:
        finest, paths = sizes[problem]
        meshes = [COARSE, *(2**i for i in range(5, finest.bit_length()))]
        options = {"time": TIME[problem], "meshes": meshes, "alpha": ALPHA[steps], "paths": paths}
        case = f"{problem}/{gradient}/{steps}"
        batch = BATCH[problem] if gradient == "minibatch" else None
        work = partial(_coupled, lab, problem, batch, options)
        part = lab.part(f"diffusion_limit/{case}", work, batch=batch, **options)
        numbers |= {f"{case}/{name}": array for name, array in part.items()}
    return numbers


def _coupled(lab: Lab, problem: str, batch: int | None, options: dict[str, Any]) -> Numbers:
    model: Any = {"gaussian": gaussian, "logistic": logistic}[problem]()
    start = gaussian_start() if problem == "gaussian" else model.theta_0
    options = {**options, "subsample": None if batch is None else lv.WithoutReplacement(batch)}
    result = lv.theory.diffusion_limit(model.target, model.data, start, kernel=lab.kernel, seed=lab.seed, **options)
    names = ("num_steps", "mesh", "rms_step", "error_at_mesh", "error_everywhere", "error_at_end")
    arrays = {name: getattr(result, name) for name in names}
    if problem == "gaussian":
        arrays |= {"times": result.times, "brownian": result.brownian[0, :, 0], "reference": result.reference[0, :, 0]}
        for count, times, chain in zip(result.num_steps, result.mesh_times, result.chains, strict=True):
            arrays |= {f"mesh_times_{count}": times, f"chain_{count}": chain[0, :, 0]}
    return arrays


def gaussian_start() -> float:
    """Two standard deviations from the mean, so that the picture shows the relaxation too."""
    return gaussian().mu_p + 2 * gaussian().sigma_p
