"""Saved runs for the tests of the store, and what it means that two are the same."""

from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

import langevin as lv


class Pair(NamedTuple):
    a: Any
    b: Any


class Problem(NamedTuple):
    target: lv.Target
    data: Any
    result: lv.Result


def sampled(target: lv.Target, data: Any, theta_0: Any) -> Problem:
    return Problem(
        target, data, lv.sample(target, data, theta_0, passes=500 if data is None else 5, chains=2, progress=False)
    )


def assert_same(one: Any, other: Any) -> None:
    """The same arrays to the bit, numbers and words, all the way down."""
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for name in one:
            assert_same(one[name], other[name])
    elif isinstance(one, tuple):
        assert len(one) == len(other)
        for item, twin in zip(one, other, strict=True):
            assert_same(item, twin)
    elif hasattr(one, "__dataclass_fields__"):
        for field in fields(one):
            assert_same(getattr(one, field.name), getattr(other, field.name))
    elif isinstance(one, float):
        assert one == other or (np.isnan(one) and np.isnan(other))
    else:
        assert one == other
