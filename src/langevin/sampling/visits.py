"""Whether the chains came to what lies far out often enough to know how much it widens the sds."""

from dataclasses import replace
from math import erfc, sqrt
from typing import TYPE_CHECKING

import numpy as np

from langevin.analysis.averages import estimate
from langevin.analysis.value import Estimate
from langevin.outskirts import FAR, Outskirts

if TYPE_CHECKING:
    from langevin.engine.ledger import Ledger

# So many visits tell how much lies there to within a third. After so many, batches tell by themselves: the sum of a
# hundred squares is nearly normal.
_FEWEST_VISITS, _MANY_VISITS = 20, 100
# What a Gaussian has beyond either end of the grid on which distribution functions are streamed.
_BEYOND = 0.5 * erfc(FAR / sqrt(2.0))


def left_open(ledger: "Ledger", outskirts: Outskirts) -> np.ndarray:
    """What the visits leave open of every sd, as a part of it, (d,): a standard error beside that of the batches.

    Steps on minibatches have the right law near the mode, not out there: of these it is also by how much the mass that
    they saw differs from what there is, however many they were.
    """
    if not len(outskirts.mass):
        return np.zeros(len(ledger.names))
    sd, worth = estimate(ledger, "raw")["theta.sd"].value, outskirts.worth(seen_far_out(ledger, outskirts))
    off = np.where(worth < _MANY_VISITS, outskirts.scatter(sd, worth), 0.0)
    if not ledger.exact:
        seen = _share_far_out(ledger, outskirts) / np.where(outskirts.mass > 0.0, outskirts.mass, np.inf)
        off = np.maximum(off, outskirts.share(sd) * np.abs(1.0 - seen))
    return np.asarray(off)


def widened(sd: Estimate, ledger: "Ledger", outskirts: Outskirts) -> Estimate:
    """The sds with the larger of two standard errors: that of the batches, and what the visits leave open."""
    off = left_open(ledger, outskirts) * sd.value
    return replace(sd, stderr=np.where(off > sd.stderr, off, sd.stderr))


def unvisited(ledger: "Ledger", outskirts: Outskirts, held: float) -> str | None:
    """What to say of the sd that rests the most on places where the chains hardly were; None where `held` covers it.

    Runs on minibatches that leave more open than that are for exact sampling, which makes up for few visits.
    """
    off = left_open(ledger, outskirts)
    if not len(outskirts.mass) or not np.any(off > held):
        return None
    visits = seen_far_out(ledger, outskirts)
    if ledger.exact:
        off = np.where(outskirts.worth(visits) < _FEWEST_VISITS, off, 0.0)
    worst = int(np.argmax(off))
    if not off[worst] > held:
        return None
    share = _share_far_out(ledger, outskirts)[worst]
    return (
        f"farther than {FAR:.0f} sds from the mode, {ledger.names[worst]} has about {outskirts.mass[worst]:.2g} of its "
        f"mass and {outskirts.variance[worst]:.2g} times the variance of the Gaussian approximation (heavy tails, or a "
        f"wide component beneath the mode), and the chains were seen to come there {visits[worst]:.0f} times, with "
        f"{share:.2g} of their steps: its sd may be off by {off[worst]:.1%}"
    )


def _far(ledger: "Ledger", outskirts: Outskirts) -> np.ndarray:
    """Which kept draws are farther than four sds from the mode, (chains, draws, d)."""
    assert ledger.draws is not None
    return np.abs(ledger.draws.theta - outskirts.centre) > FAR * outskirts.sd


def _shares(ledger: "Ledger", outskirts: Outskirts) -> np.ndarray | None:
    """Of every row the share of its steps far out, (chains, rows, d), where distribution functions are streamed."""
    name = next((name for name, column in ledger.columns.items() if column.marginals), None)
    if name is None:
        return None
    ends = ledger.values[name].reshape(*ledger.values[name].shape[:2], len(outskirts.sd), -1)[..., [0, -1]]
    # Sums of 1{x <= c} - Phi(c): what lies beyond either end.
    return np.asarray((ends[..., 0] - ends[..., 1]) / ledger.sum_omega[..., None] + 2.0 * _BEYOND)


def _share_far_out(ledger: "Ledger", outskirts: Outskirts) -> np.ndarray:
    """Share of the steps far out, by parameter, (d,)."""
    shares = _shares(ledger, outskirts)
    if shares is None:
        return np.asarray(_far(ledger, outskirts).mean(axis=(0, 1)))
    return np.asarray(np.average(shares.mean(axis=0), axis=0, weights=ledger.sum_omega))


def seen_far_out(ledger: "Ledger", outskirts: Outskirts) -> np.ndarray:
    """How often chains were seen to come farther than four sds from the mode, by parameter, (d,).

    Rows with such steps where distribution functions are streamed, else arrivals of kept draws.
    """
    shares = _shares(ledger, outskirts)
    if shares is not None:
        return np.asarray(np.sum(shares * ledger.row_steps > 0.5, axis=(0, 1)))
    far = _far(ledger, outskirts)
    came = np.sum(far[:, 1:] & ~far[:, :-1], axis=(0, 1)) + far[:, 0].sum(axis=0)
    # Between kept draws visits are missed that are shorter than the steps from one draw to the next: how many is
    # not known, from none to all but one in so many.
    stride, stay = ledger.num_steps / far.shape[1], far.sum(axis=(0, 1)) / np.maximum(came, 1)
    return np.asarray(came * np.sqrt(np.maximum(stride / np.maximum(stay, 1.0), 1.0)))
