"""A checkout of posteriordb: its data and its reference draws, read where they lie.

None of its files are kept here. `git clone https://github.com/stan-dev/posteriordb` and name the folder by
`--posteriordb` or by the variable POSTERIORDB.
"""

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

VARIABLE = "POSTERIORDB"
# The commit that the stored references were made from.
COMMIT = "28f8d3d6e975315f42aa274a8399f21e07a43b30"

Floats = NDArray[np.float64]
Table = dict[str, Any]
# Parameters by posteriordb's names; every array has shape (chains, draws).
Draws = dict[str, Floats]


def checkout() -> Path:
    """The folder posterior_database of the checkout that POSTERIORDB names."""
    named = os.environ.get(VARIABLE)
    folder = Path("posteriordb" if named is None else named) / "posterior_database"
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{VARIABLE} must name a checkout of posteriordb, got {named!r}, where there is no folder {folder}. "
            f"Run git clone https://github.com/stan-dev/posteriordb, and set {VARIABLE} or pass --posteriordb."
        )
    return folder


def _unzipped(path: Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read(archive.namelist()[0]))


def table(name: str) -> Table:
    """A data set: columns as float64 arrays, single numbers as they are."""
    found = _unzipped(checkout() / "data" / "data" / f"{name}.json.zip")
    return {key: np.asarray(value, np.float64) if isinstance(value, list) else value for key, value in found.items()}


def draws(name: str) -> Draws:
    """The reference draws that go by this name."""
    chains = _unzipped(checkout() / "reference_posteriors" / "draws" / "draws" / f"{name}.json.zip")
    return {key: np.array([chain[key] for chain in chains], np.float64) for key in chains[0]}


def vector(found: Draws, name: str) -> Floats:
    """The draws of a vector parameter, its elements along the last axis."""
    size = sum(key.startswith(f"{name}[") for key in found)
    return np.stack([found[f"{name}[{k + 1}]"] for k in range(size)], axis=-1)
