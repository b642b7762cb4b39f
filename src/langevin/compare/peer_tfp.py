"""TensorFlow Probability's preconditioned SGLD: four chains as one array, their steps in one compiled program."""

import os
from functools import partial
from time import process_time
from typing import Any

import jax
import numpy as np

import langevin as lv
from langevin.compare.contestant import Replicate
from langevin.compare.found import Found, from_draws, measured
from langevin.compare.problem import Problem
from langevin.compare.settings import mean_squares, set_up

CHAINS, _STRIDE = 4, 4
_PORTION, _BURN_IN = 256, 0.1
# Without Gamma a memory shorter than the chain's makes variances too large: on `gaussian`, at the step for a second, by
# 19% at 0.95, its default, by 7% at 0.99, which its example has, and by 2% at 0.999.
_DECAY = 0.999


def _log_likelihood(family: str, theta: Any, batch: Any) -> Any:
    """Log likelihoods (chains, rows) of theta (chains, d)."""
    import tensorflow as tf

    if family == "location":
        return -0.5 / 25.0 * (batch[0] - theta) ** 2
    x, y = batch
    if family == "linear":
        residual = (y - tf.einsum("crd,cd->cr", x, theta[:, :-1])) * tf.exp(-theta[:, -1:])
        return -0.5 * residual**2 - theta[:, -1:]
    eta = tf.einsum("crd,cd->cr", x, theta)
    return tf.math.log_sigmoid(y * eta) if family == "logistic" else y * eta - tf.exp(eta)


def psgld(problem: Problem, seconds: float) -> Replicate:
    """`tfp.optimizer.StochasticGradientLangevinDynamics` from the mode, at the step that our own pSGLD gets."""
    # Must be said before the import.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    program, pace = _Program(problem), {"steps": 20_000.0}
    return partial(measured, lambda seed: _Stepping(problem, program, seed, seconds, pace))


class _Program:
    """The chains' variables, and a portion of their steps, compiled once for all seeds and rates.

    With g the gradient of the log posterior by a minibatch, over a unit of its size, a step of rate lr is

        V <- decay V + (1 - decay) g^2,  G = (V + 1e-8)^-1/2,  theta <- theta + lr/2 unit G g + sqrt(lr G) eta.

    The unit, an integer that it calls data_size, makes V = 1 about right, which is where it starts. The first 25 steps
    have no noise. Gamma, the derivative of G, stands in its code and is zero when it runs: it differentiates by another
    reading of theta than the one that the loss has.
    """

    def __init__(self, problem: Problem) -> None:
        import tensorflow as tf
        import tensorflow_probability as tfp

        num, shape = problem.num_data, (CHAINS, problem.dimension)
        data = [tf.constant(np.asarray(leaf)) for leaf in jax.tree.leaves(problem.data)]
        half = tf.constant(0.5 / np.asarray(problem.prior_sd, np.float32) ** 2)
        self._theta, self._square = tf.Variable(tf.zeros(shape)), tf.Variable(tf.ones(shape))
        self._seen = tf.Variable(0, dtype=tf.int64)
        theta, square, seen = self._theta, self._square, self._seen

        class Kept(tfp.optimizer.StochasticGradientLangevinDynamics):
            """With V in a variable from outside: chains begin anew without another program."""

            def add_slot(self, *args: Any, **kwargs: Any) -> Any:
                return square

            def get_slot(self, *args: Any) -> Any:
                return square

        def step(optimizer: Any, seed: Any, unit: Any) -> None:
            at = tf.stack([seed, tf.cast(seen, tf.int32)])
            rows = tf.random.stateless_uniform((CHAINS, problem.batch_size), at, 0, num, tf.int32)
            batch = [tf.gather(leaf, rows) for leaf in data]
            with tf.GradientTape() as tape:
                # Chains do not meet: the gradient of the sum is that of each.
                fit = tf.reduce_sum(tf.reduce_mean(_log_likelihood(str(problem.family), theta, batch), axis=1))
                loss = (tf.reduce_sum(half * theta**2) - num * fit) / tf.cast(unit, tf.float32)
            optimizer.apply_gradients([(tape.gradient(loss, theta), theta)])

        @tf.function(
            input_signature=[tf.TensorSpec((), kind) for kind in (tf.int32, tf.float32, tf.int32)], jit_compile=True
        )
        def portion(seed: Any, rate: Any, unit: Any) -> Any:
            optimizer = Kept(rate, preconditioner_decay_rate=_DECAY, data_size=unit)
            optimizer.iterations = seen
            kept = tf.TensorArray(tf.float32, _PORTION // _STRIDE, element_shape=shape)
            for k in tf.range(_PORTION // _STRIDE):
                for _ in tf.range(_STRIDE):
                    step(optimizer, seed, unit)
                kept = kept.write(k, theta.read_value())
            return kept.stack()

        self._portion = portion

    def begin(self, mode: Any) -> None:
        """All chains at the mode, and V = 1, as the optimizer has it at first."""
        self._theta.assign(np.tile(mode, (CHAINS, 1)))
        self._square.assign(np.ones(self._square.shape, np.float32))
        self._seen.assign(0)

    def moved(self, seed: int, rate: float, unit: int) -> Any:
        """Draws (draws, chains, d), one for every four steps. Rows are the seed's; noise goes on from run to run."""
        return self._portion(np.int32(seed), np.float32(rate), np.int32(unit)).numpy().astype(np.float64)


class _Stepping:
    """Four chains of one learning rate."""

    def __init__(self, problem: Problem, program: _Program, seed: int, seconds: float, pace: dict[str, float]) -> None:
        self._problem, self._program, self._seed = problem, program, seed
        self._seconds, self._pace, self._spent = seconds, pace, 0.0
        anchor = lv.laplace(problem.target, problem.data, problem.theta_0)
        delta, squares = mean_squares(problem, anchor, CHAINS * pace["steps"])
        self.visits = float(set_up(problem, anchor))
        # G is about unit / sqrt(squares) once V has settled: lr G = delta / sqrt(squares).
        self._unit = max(round(float(np.exp(0.5 * np.mean(np.log(squares))))), 1)
        self._rate = delta / self._unit
        program.begin(np.asarray(anchor.theta, np.float32))
        self._draws: list[Any] = []

    def advance(self, seconds: float, visits: float) -> bool:
        """See `Chain`: 256 steps."""
        began = process_time()
        self._draws.append(self._program.moved(self._seed, self._rate, self._unit))
        self.visits += CHAINS * self._problem.batch_size * _PORTION
        self._spent += process_time() - began
        self._pace["steps"] = _PORTION * len(self._draws) / max(self._spent, 1e-6) * self._seconds
        return True

    def look(self) -> Found:
        """See `Chain`; the first tenth is left out."""
        draws = np.concatenate(self._draws).swapaxes(0, 1)
        return from_draws(self._problem, draws[:, int(_BURN_IN * draws.shape[1]) :])
