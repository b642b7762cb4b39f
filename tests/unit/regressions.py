"""A table with predictors of several kinds and responses of several families."""

import numpy as np
import pytest

pandas = pytest.importorskip("pandas")
pytest.importorskip("formulaic")

RNG = np.random.default_rng(0)
N = 400
TABLE = pandas.DataFrame(
    {
        "x": RNG.standard_normal(N),
        "year": 2013 + RNG.integers(0, 12, N),
        "colour": RNG.choice(["red", "green", "blue"], N),
        "town": RNG.choice(["a", "b", "c", "d"], N),
    }
)
ETA = 0.5 + 1.2 * TABLE.x - 0.1 * (TABLE.year - 2018)
TABLE["y"] = ETA + RNG.standard_normal(N)
TABLE["late"] = RNG.random(N) < 1 / (1 + np.exp(-ETA))
TABLE["count"] = RNG.poisson(np.exp(0.3 * ETA))
