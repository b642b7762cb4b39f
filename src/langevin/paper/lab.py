"""Where a study works: its size and seed, the sampler under test, and the folder that keeps each finished part."""

import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax
import numpy as np

import langevin as lv
from langevin.paper.study import Numbers


@dataclass(frozen=True)
class Lab:
    """`size` is "tiny" (tests), "quick" or "full"; `folder` holds the finished parts, None keeps nothing.

    `kernel` is the sampler that is put to the test: a study must sample with it, through `lab.run`, wherever the paper
    means SGLD, so that a sabotaged twin in its place is found out.
    """

    size: str
    seed: int = 0
    folder: Path | None = None
    kernel: Any = field(default_factory=lv.SGLD)
    report: Callable[[str], None] = lambda part: None

    @property
    def reference(self) -> "Lab":
        """This lab with plain SGLD, for exact laws and baselines: they are the same whatever is put to the test."""
        return replace(self, kernel=lv.SGLD())

    def choose(self, *, tiny: Any, quick: Any, full: Any) -> Any:
        """The one of three values that belongs to this size."""
        return {"tiny": tiny, "quick": quick, "full": full}[self.size]

    def part(self, name: str, compute: Callable[[], Numbers], **parameters: Any) -> Numbers:
        """compute(), or what an earlier call with the same size, seed, kernel and parameters left in the folder.

        `parameters` are numbers, strings and lists of them: all else that the result depends on.
        """
        if self.folder is None:
            return compute()
        identity = {"part": name, "size": self.size, "seed": self.seed, "kernel": repr(self.kernel)}
        identity |= {"parameters": parameters}
        # A run depends on the sampler's code and, in its last digits, on the compiler.
        identity |= {"langevin": source_digest(), "jax": jax.__version__}
        text = json.dumps(identity, sort_keys=True)
        path = self.folder / f"{name.replace('/', '-')}-{sha256(text.encode()).hexdigest()[:12]}.npz"
        saved = _load(path)
        if saved is None:
            self.report(name)
            saved = {key: np.asarray(value) for key, value in compute().items()}
            _save(path, saved)
        return saved

    def run(self, target: lv.Target, data: Any, theta_0: Any, **options: Any) -> lv.Ledger:
        """`lv.run` with the sampler under test, or with `kernel=` if given; Ctrl-C ends the study, not just the run."""
        ledger = lv.run(target, data, theta_0, **{"kernel": self.kernel, "progress": False, **options})
        if ledger.interrupted:
            raise KeyboardInterrupt
        return ledger


@cache
def source_digest() -> str:
    """Changes with any file of the package, so that the work of two versions is never mixed."""
    package = Path(__file__).parents[1]
    return sha256(b"".join(path.read_bytes() for path in sorted(package.rglob("*.py")))).hexdigest()[:12]


def _load(path: Path) -> Numbers | None:
    """The saved arrays; None if there are none or the file is damaged, so that the part is computed anew."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return None


def _save(path: Path, arrays: Numbers) -> None:
    """Whole or not at all: a temporary file is written out and then renamed."""
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    with open(temporary, "wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
