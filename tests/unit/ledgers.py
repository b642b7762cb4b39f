"""Ledgers made by hand, for the tests of the analysis."""

from dataclasses import replace

import numpy as np

import langevin as lv
from langevin.anchor import Anchor
from langevin.engine.ledger import Column, Ledger
from langevin.observables import Moments
from langevin.target import Layout

ROW = 16


def anchor_of(precision: np.ndarray) -> Anchor:
    d = len(precision)
    return Anchor(
        theta=np.zeros(d),
        root=(np.linalg.cholesky(np.linalg.inv(precision)),),
        covariance=np.linalg.inv(precision),
        precision=precision,
        likelihood_grad=None,
        likelihood_hessian=None,
        layout=Layout.of(np.zeros(d, np.float32)),
        cost=0,
    )


def ledger_of(
    path: np.ndarray,
    schedule: lv.schedules.Schedule,
    *,
    anchor: Anchor | None = None,
    grad: np.ndarray | None = None,
    weight_power: float = 1.0,
    **changes: object,
) -> Ledger:
    """The ledger that states `path` (chains, m, d) would leave: observable "theta" and, for d = 1, "cube"."""
    chains, m, d = path.shape
    delta = schedule.delta(np.arange(1, m + 1))
    omega = delta**weight_power
    first = np.arange(0, m, ROW)
    i, j = Moments().pairs(d)

    def rows(x: np.ndarray, axis: int) -> np.ndarray:
        return np.add.reduceat(x, first, axis=axis)

    def weighted(x: np.ndarray) -> np.ndarray:
        return rows(omega[:, None] * x, 1)

    moments = np.concatenate([path, path[..., i] * path[..., j]], axis=-1)
    hessian, trace = (None, None) if anchor is None else (Moments().hessian(anchor), Moments().trace(anchor))
    columns = {"theta": Column((moments.shape[-1],), np.zeros(d), (i, j), trace, hessian)}
    values = {"theta": weighted(moments)}
    corrections = outer = None
    if anchor is not None and grad is not None:
        s = grad @ anchor.covariance
        second = 0.5 * (path[..., i] * s[..., j] + path[..., j] * s[..., i]) + anchor.covariance[i, j]
        corrections = {"theta": weighted(np.concatenate([s, second], axis=-1))}
        outer = rows(delta[:, None, None] ** 2 * grad[..., :, None] * grad[..., None, :], 1)
    made = Ledger(
        num_steps=m, row_steps=ROW, chains=np.arange(chains), names=tuple(f"theta[{k}]" for k in range(d)),
        schedule=schedule, weight_power=weight_power, visits=np.ones((chains, len(first))), far=None, noisy=True,
        sum_delta=rows(delta, 0),
        sum_delta2=rows(delta**2, 0), sum_omega=rows(omega, 0), values=values, corrections=corrections,
        outer=outer, acceptance=None, divergences=None, levels=None, columns=columns, anchor=anchor, kernel=lv.SGLD(),
        iid=True,
        coordinates=lv.Coordinates(), draws=None, manifest=None, checkpoint=None,
    )  # fmt: skip
    return replace(made, **changes)


def noise(chains: int = 3, m: int = 1600, d: int = 2, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((chains, m, d))


DECREASING = lv.Polynomial(a=1.0, b=20.0, alpha=1 / 3)
CONSTANT = lv.Constant(0.1)
