"""The limit: the same steps written by hand in Numba, one thread, float32, nothing general about them."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from benchmarks import truth, worker
from benchmarks.workloads import Workload

STREAMS = 64  # random streams side by side, so that the generator fills whole vector registers
LANES = 64  # chains side by side in the many-chain kernel

f32 = np.float32
compiled = njit(fastmath=True, error_model="numpy")  # "numpy": no test for division by zero, which stops vectorising
fast = njit(fastmath=True, error_model="numpy", inline="always")


@intrinsic
def float_from_bits(typing: Any, bits: Any) -> Any:
    """The float32 that has these 32 bits."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), build


@intrinsic
def bits_from_float(typing: Any, value: Any) -> Any:
    """The 32 bits of a float32."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(32))

    return types.int32(types.float32), build


@intrinsic
def whole(typing: Any, value: Any) -> Any:
    """float32 to int32 without Numba's detour over int64, which does not vectorise."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fptosi(args[0], ir.IntType(32))

    return types.int32(types.float32), build


@intrinsic
def prefetch(typing: Any, array: Any, row: Any) -> Any:
    """Ask for the cache lines of one row of a float32 matrix."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, args[0])
        stride = builder.extract_value(view.strides, 0)
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        start = builder.gep(builder.bitcast(view.data, byte), [builder.mul(args[1], stride)])
        hint = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        )
        for line in range(4):
            place = builder.gep(start, [ir.Constant(ir.IntType(64), 64 * line)])
            builder.call(hint, [place, ir.Constant(word, 0), ir.Constant(word, 3), ir.Constant(word, 1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), build


def _polynomial(function: Callable[[np.ndarray], np.ndarray], low: float, high: float, degree: int) -> tuple:
    """Coefficients, lowest first, of the Chebyshev interpolant: as good as single precision can use."""
    fit = np.polynomial.Chebyshev.interpolate(function, degree, domain=[low, high])
    return tuple(f32(c) for c in fit.convert(kind=np.polynomial.Polynomial).coef)


E0, E1, E2, E3, E4, E5 = _polynomial(np.exp2, -0.5, 0.5, 5)
# log(1 + t) / t on the mantissa range around one
L0, L1, L2, L3, L4, L5, L6, L7 = _polynomial(
    lambda t: np.log1p(t) / np.where(t == 0, 1, t) + (t == 0), 2**-0.5 - 1, 2**0.5 - 1, 7
)
# sin(pi/2 t)/t and cos(pi/2 t) as functions of t^2, for a quarter turn around zero
S0, S1, S2, S3 = _polynomial(lambda s: np.pi / 2 * np.sinc(np.sqrt(s) / 2), 0.0, 1.0, 3)
C0, C1, C2, C3, C4 = _polynomial(lambda s: np.cos(np.pi / 2 * np.sqrt(s)), 0.0, 1.0, 4)
LOG2E, LN2, SQRT2 = f32(math.log2(math.e)), f32(math.log(2)), f32(2**0.5)
UNIT = f32(2**-24)
ONE, HALF, TWO = f32(1), f32(0.5), f32(2)


@fast
def exp(x):
    t = x * LOG2E
    t = f32(126) if t > f32(126) else t
    t = f32(-126) if t < f32(-126) else t
    k = whole(t + f32(127.5))  # positive, so cutting off rounds to nearest; it is the exponent field as stored
    t = t - f32(k - np.int32(127))
    p = E0 + t * (E1 + t * (E2 + t * (E3 + t * (E4 + t * E5))))
    return p * float_from_bits(k << np.int32(23))


@fast
def log(x):
    bits = bits_from_float(x * SQRT2)
    k = (bits >> np.int32(23)) - np.int32(127)
    t = float_from_bits(bits_from_float(x) - (k << np.int32(23))) - ONE
    p = L0 + t * (L1 + t * (L2 + t * (L3 + t * (L4 + t * (L5 + t * (L6 + t * L7))))))
    return f32(k) * LN2 + t * p


@compiled
def fill_words(words, state):
    """xoshiro128+ in parallel streams; `words` is a whole number of rows of STREAMS words."""
    for row in range(words.shape[0]):
        for k in range(STREAMS):
            s0, s1, s2, s3 = state[0, k], state[1, k], state[2, k], state[3, k]
            words[row, k] = s0 + s3
            s2 ^= s0
            s3 ^= s1
            state[0, k] = s0 ^ s3
            state[2, k] = s2 ^ (s1 << np.uint32(9))
            state[1, k] = s1 ^ s2
            state[3, k] = (s3 << np.uint32(11)) | (s3 >> np.uint32(21))


@compiled
def fill_normals(normals, words):
    """Box-Muller: word 2k gives the radius, word 2k+1 the angle; both halves of `normals` are used."""
    half = len(normals) // 2
    for k in range(half):
        radius = np.sqrt(-TWO * log((f32(np.int32(words[k] >> np.uint32(8))) + HALF) * UNIT))
        turn = f32(np.int32(words[half + k] >> np.uint32(8))) * UNIT * TWO - ONE  # half turns, in [-1, 1)
        sign = ONE if turn >= 0 else -ONE
        t = TWO * abs(turn) - ONE  # quarter turns around a right angle, in [-1, 1]
        s = t * t
        cosine = -t * (S0 + s * (S1 + s * (S2 + s * S3)))
        sine = sign * (C0 + s * (C1 + s * (C2 + s * (C3 + s * C4))))
        normals[k] = radius * cosine
        normals[half + k] = radius * sine


@fast
def index(word, num_data):
    """Multiply and shift: uniform up to num_data / 2^32. Unsigned, so Numba tests for no negative row."""
    return (np.uint64(word) * np.uint64(num_data)) >> np.uint64(32)


@fast
def logistic_score(u, y):
    return y / (ONE + exp(y * u))


@fast
def gaussian_score(u, y):
    return y - u


def one_chain(dim: int, n: int, far: bool) -> Callable[..., None]:
    """One chain, logistic: observations side by side. `far` data are asked for one step ahead."""
    page = 64
    score = logistic_score

    @compiled
    def run(x, y, theta_0, deltas, state, sums):
        num_data = x.shape[0]
        words = np.empty(((n * page + STREAMS - 1) // STREAMS, STREAMS), np.uint32)
        noise_words = np.empty(((dim * page + 2 * STREAMS - 1) // STREAMS, STREAMS), np.uint32)
        draws, noise_draws = words.reshape(-1), noise_words.reshape(-1)
        normals = np.empty(noise_draws.size // 2 * 2, np.float32)
        u, labels = np.empty(n, np.float32), np.empty(n, np.float32)
        rows = np.empty(n * (page + 1), np.uint64)
        theta, grad = theta_0.copy(), np.empty(dim, np.float32)
        sums[:] = 0
        for m in range(deltas.shape[0]):
            at = m % page
            if at == 0:
                fill_words(words, state)
                fill_words(noise_words, state)
                fill_normals(normals, noise_draws)
                for i in range(n * page):
                    rows[i] = index(draws[i], num_data)
                for i in range(n * page, n * (page + 1)):
                    rows[i] = 0
            now = rows[at * n : (at + 2) * n]
            for i in range(n):
                row = now[i]
                if far:
                    prefetch(x, now[n + i])
                dot = f32(0)
                for k in range(dim):
                    dot += x[row, k] * theta[k]
                u[i] = dot
                labels[i] = y[row]
            for i in range(n):
                u[i] = score(u[i], labels[i])
            for k in range(dim):
                grad[k] = f32(0)
            for i in range(n):
                row, s = now[i], u[i]
                for k in range(dim):
                    grad[k] += s * x[row, k]
            delta = deltas[m]
            root, scale = np.sqrt(delta), f32(num_data) / f32(n)
            for k in range(dim):
                sums[k] += delta * (theta[k] - theta_0[k])
                theta[k] += HALF * delta * (scale * grad[k] - theta[k]) + root * normals[at * dim + k]

    return run


def many_chains(dim: int, n: int, logistic: bool) -> Callable[..., None]:
    """Chains side by side in groups of LANES, each group through all its steps; x is dim by N."""
    score = logistic_score if logistic else gaussian_score
    noise_rows = dim + dim % 2

    @compiled
    def run(x, y, theta_0, deltas, state, sums):
        num_data = y.shape[0]
        words = np.empty((n, LANES), np.uint32)
        noise_words = np.empty((noise_rows, LANES), np.uint32)
        normals = np.empty((noise_rows, LANES), np.float32)
        theta, grad = np.empty((dim, LANES), np.float32), np.empty((dim, LANES), np.float32)
        total = np.empty((dim, LANES), np.float32)
        seen, labels = np.empty((dim, LANES), np.float32), np.empty(LANES, np.float32)
        scale = f32(num_data) / f32(n)
        for group in range(sums.shape[0]):
            for k in range(dim):
                theta[k, :] = theta_0[k]
                total[k, :] = 0
            for m in range(deltas.shape[0]):
                fill_words(words, state)
                fill_words(noise_words, state)
                fill_normals(normals.reshape(-1), noise_words.reshape(-1))
                grad[:] = 0
                for i in range(n):
                    for c in range(LANES):
                        row = index(words[i, c], num_data)
                        labels[c] = y[row]
                        if logistic:
                            for k in range(dim):
                                seen[k, c] = x[k, row]
                    for c in range(LANES):
                        if logistic:
                            u = f32(0)
                            for k in range(dim):
                                u += seen[k, c] * theta[k, c]
                            s = score(u, labels[c])
                            for k in range(dim):
                                grad[k, c] += s * seen[k, c]
                        else:
                            grad[0, c] += score(theta[0, c], labels[c])
                delta = deltas[m]
                root = np.sqrt(delta)
                for k in range(dim):
                    for c in range(LANES):
                        old = theta[k, c]
                        total[k, c] += delta * (old - theta_0[k])
                        theta[k, c] = old + HALF * delta * (scale * grad[k, c] - old) + root * normals[k, c]
            sums[group] = total

    return run


def prepare(workload: Workload, steps: int, variant: str) -> worker.Run:
    """Both priors are standard normal, with gradient -theta. Chains are rounded up to whole groups."""
    theta_0 = np.ravel(truth.mode(workload.name))
    dim, n, chains = len(theta_0), workload.batch_size, workload.chains
    deltas = workload.deltas(steps)
    groups = -(-chains // LANES)
    if chains == 1:
        x, y = workload.data
        kernel = one_chain(dim, n, far=x.nbytes > 2**24)
        sums = np.empty(dim, np.float32)
    else:
        y = workload.data[1] if workload.logistic else workload.data
        x = np.ascontiguousarray(workload.design.T)
        kernel = many_chains(dim, n, workload.logistic)
        sums = np.empty((groups, dim, LANES), np.float32)

    def run(seed: int) -> np.ndarray:
        state = np.random.default_rng(seed).integers(1, 2**32, (4, STREAMS), dtype=np.uint32)
        kernel(x, y, theta_0, deltas, state, sums)
        per_chain = sums[None] if chains == 1 else sums.transpose(0, 2, 1).reshape(-1, dim)
        return theta_0 + per_chain.mean(0, dtype=np.float64) / deltas.sum(dtype=np.float64)

    return run


if __name__ == "__main__":
    worker.main(prepare, lambda workload: ["by hand"], packages=["numba"])
