"""What a checkpoint costs: bytes and seconds of one save, by dimension. `python -m benchmarks.checkpoints`."""

import tempfile
from pathlib import Path
from time import monotonic, process_time

import numpy as np

import langevin as lv

STEPS, CHAINS, REPEATS = 20_000, 4, 5


def main() -> None:
    print("| parameters | steps | MB | seconds | processor seconds |\n|---|---|---|---|---|")
    for dimension in (3, 10, 30, 100):
        model = lv.models.Logistic.simulate(num_data=10_000, dimension=dimension, seed=1)
        # Sixteen data a step are about what such runs ask for.
        settings = {"passes": STEPS * CHAINS * 16 / 10_000, "chains": CHAINS, "progress": False}
        result = lv.sample(model.target, model.data, model.theta_0, **settings)
        walls, cores = [], []
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(REPEATS):
                began, before = monotonic(), process_time()
                result.save(folder)
                walls.append(monotonic() - began)
                cores.append(process_time() - before)
            size = sum(file.stat().st_size for file in Path(folder).iterdir()) / 1e6
        times = f"{np.median(walls):.3f} | {np.median(cores):.3f}"
        print(f"| {dimension} | {result.session.steps:,} | {size:.1f} | {times} |", flush=True)


if __name__ == "__main__":
    main()
