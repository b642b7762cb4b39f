"""Data in shards: what chains that travel between their owners feel, and products of what each shard says."""

from langevin.shards.median import m_posterior, powered
from langevin.shards.owners import owned
from langevin.shards.pieces import joined, subposterior
from langevin.shards.products import Combined, consensus, nonparametric, parametric, semiparametric
from langevin.shards.pulls import with_drifts

__all__ = [
    "Combined",
    "consensus",
    "joined",
    "m_posterior",
    "nonparametric",
    "owned",
    "parametric",
    "powered",
    "semiparametric",
    "subposterior",
    "with_drifts",
]
