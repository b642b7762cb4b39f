"""Sums of powers of step sizes, in float64: closed form to rounding for power laws, chunks for the rest."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Terms added one by one before the Euler-Maclaurin tail begins. With a + b > 0 the tail then has
# x = k + b/a > HEAD - 1 = 31, and the first neglected term is |B_10|/10! s (s+1) ... (s+8) / x^9 of f(HEAD):
# 3e-16 at s = 1, x = 31. It grows with s, but f(HEAD) falls faster beside the head: under 1e-16 of the sum.
HEAD = 32

# B_{2j} / (2j)! for j = 1, ..., 4, with the Bernoulli numbers 1/6, -1/30, 1/42, -1/30.
EULER_MACLAURIN = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600)

CHUNK = 1 << 14


def power_sum(a: Array, b: Array, s: Array, m: Array) -> Array:
    """Sum of (a k + b)^-s over k = 1, ..., m, relative error about 1e-14 (1e-13 promised).

    sum_{k=1}^m f(k) = sum_{k=1}^K f(k) + int_K^m f + (f(m) - f(K))/2 + sum_j B_2j/(2j)! [f^(2j-1)]_K^m

    Cost: O(1) an entry, whatever m is. Assumes a >= 0, a + b > 0, m >= 0; s is any real number. The
    parameters broadcast together, and the result has their common shape followed by the shape of m.
    """
    a, b, s = np.broadcast_arrays(a, b, s)
    ones = (1,) * m.ndim
    return _head(a, b, s, m) + _tail(a.reshape(a.shape + ones), b.reshape(b.shape + ones), s.reshape(s.shape + ones), m)


def _head(a: Array, b: Array, s: Array, m: Array) -> Array:
    """Sum of the first min(m, HEAD) terms, one table of partial sums for all entries of m."""
    partial = np.zeros((*a.shape, HEAD + 1))
    k = np.arange(1.0, HEAD + 1.0)
    np.cumsum(np.power(a[..., None] * k + b[..., None], -s[..., None]), axis=-1, out=partial[..., 1:])
    return partial[..., np.minimum(m, HEAD).astype(np.int64)]


def _tail(a: Array, b: Array, s: Array, m: Array) -> Array:
    """Sum over k = HEAD + 1, ..., m by Euler-Maclaurin; 0 where m <= HEAD."""
    last = np.maximum(m, HEAD)
    count = last - HEAD
    start, stop = a * HEAD + b, a * last + b
    f_start, f_stop = np.power(start, -s), np.power(stop, -s)

    # The antiderivative (a x + b)^(1-s) / (a (1-s)) breaks down at s = 1, at a = 0 and, by cancellation, near
    # both. With r = a count / start, t = log(1 + r) and q = (1-s) t, the integral from K to m is
    # f(K) count [t/r] [expm1(q)/q], where each bracket is smooth and tends to 1 as its argument tends to 0.
    r = a * count / start
    t = np.log1p(r)
    q = (1 - s) * t
    total = f_start * count * _ratio(t, r) * _ratio(np.expm1(q), q)
    total = total + (f_stop - f_start) / 2

    # f^(n) = (-a)^n s (s+1) ... (s+n-1) (a x + b)^(-s-n): each pair of derivatives brings (a / (a x + b))^2.
    u_start, u_stop = a / start, a / stop
    d_start, d_stop, rising = f_start * u_start, f_stop * u_stop, s
    for j, weight in enumerate(EULER_MACLAURIN, start=1):
        total = total + weight * rising * (d_start - d_stop)
        d_start, d_stop = d_start * u_start**2, d_stop * u_stop**2
        rising = rising * (s + 2 * j - 1) * (s + 2 * j)
    return total


def _ratio(top: Array, bottom: Array) -> Array:
    """Quotient top / bottom, continued by 1 where both vanish."""
    zero = bottom == 0
    return np.where(zero, 1.0, top) / np.where(zero, 1.0, bottom)


def running_sum(term: Callable[[Array], Array], m: Array) -> Array:
    """Sum of term(k) over k = 1, ..., m for every entry of m, by adding up.

    Cost: O(max m) time and constant memory. Extended precision (where the platform has it) and short chunks
    keep the rounding of positive terms near 1e-15.
    """
    wanted, position = np.unique(m.ravel(), return_inverse=True)
    found = np.zeros(wanted.shape)
    highest = int(wanted[-1]) if wanted.size else 0
    total = np.longdouble(0)
    for first in range(1, highest + 1, CHUNK):
        k = np.arange(first, min(first + CHUNK, highest + 1), dtype=np.float64)
        partial = total + np.cumsum(term(k), dtype=np.longdouble)
        here = (wanted >= k[0]) & (wanted <= k[-1])
        found[here] = partial[(wanted[here] - first).astype(np.int64)]
        total = partial[-1]
    return found[position].reshape(m.shape)
