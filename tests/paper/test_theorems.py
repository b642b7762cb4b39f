"""The studies of consistency and fluctuations: an honest sampler passes, a sabotaged one is refused.

Everything runs at the smallest size. A check refuses an honest sampler with probability 1e-5 or so, whatever the seed.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import pytest

from langevin.kernels.sgld import SGLDState
from langevin.paper import catalogue
from langevin.paper.lab import Lab
from langevin.paper.study import Verdict
from langevin.paper.style import house_style

STUDIES = ("consistency", "clt")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Twin:
    """SGLD with other constants: theta + drift delta grad + noise sqrt(delta) eta."""

    drift: float = 0.5
    noise: float = 1.0

    def init(self, theta, eta):
        return SGLDState(theta)

    def step(self, state, grad, eta, delta):
        return SGLDState(state.theta + self.drift * delta * grad + self.noise * jnp.sqrt(delta) * eta)


@pytest.mark.parametrize("name", STUDIES)
def test_an_honest_sampler_passes_and_leaves_figures_and_a_table(name, tmp_path):
    study = catalogue.study(name)
    numbers = study.compute(Lab("tiny"))
    findings = study.check(numbers)
    assert [f for f in findings if f.verdict is Verdict.REFUSED] == []
    assert any(f.verdict in (Verdict.REPRODUCED, Verdict.CORRECTED) for f in findings)
    rows = study.table(numbers)
    assert len(rows) > 10
    assert len({tuple(row) for row in rows}) == 1  # one table: every row has the same columns
    with house_style():
        figures = study.draw(numbers)
        assert next(iter(figures)) == name
        for stem, figure in figures.items():
            figure.savefig(tmp_path / f"{stem}.png")
            assert (tmp_path / f"{stem}.png").stat().st_size > 10_000


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("twin", [Twin(noise=2**0.5), Twin(drift=1.0)], ids=["noise", "drift"])
def test_a_sabotaged_sampler_is_refused(name, twin):
    study = catalogue.study(name)
    findings = study.check(study.compute(Lab("tiny", kernel=twin)))
    assert sum(f.verdict is Verdict.REFUSED for f in findings) >= 2
