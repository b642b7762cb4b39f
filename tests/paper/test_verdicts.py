"""Every study at its smallest size: an honest sampler is not refused, sabotaged ones are.

False alarms: about 60 honest findings at a rate of 1e-9 each, limits set for 1e-10. The sabotaged scores lie far
beyond the limits.
"""

from dataclasses import replace

import numpy as np
import pytest

from langevin.figures import house_style
from langevin.paper import catalogue
from langevin.paper.study import Verdict
from tests.paper.twins import TWINS, Twin


@pytest.mark.slow
@pytest.mark.parametrize("name", catalogue.NAMES)
def test_a_study_says_yes_to_the_sampler_and_no_to_its_twins(name, lab, tmp_path):
    """One test a study, because all of it shares one compilation."""
    study = catalogue.study(name)
    numbers = study.compute(replace(lab, kernel=Twin()))
    findings = study.check(numbers)
    assert [f for f in findings if f.verdict is Verdict.REFUSED] == []
    assert any(f.verdict in (Verdict.REPRODUCED, Verdict.CORRECTED) for f in findings)

    rows = study.table(numbers)
    assert len({tuple(row) for row in rows}) == 1, "one table: every row has the same columns"
    assert np.isfinite([value for row in rows for value in row.values() if not isinstance(value, str)]).all()
    with house_style():
        figures = study.draw(numbers)
        assert next(iter(figures)) == name
        for stem, figure in figures.items():
            figure.savefig(tmp_path / f"{stem}.png")
            assert (tmp_path / f"{stem}.png").stat().st_size > 10_000

    for sin, twin in TWINS.items():
        found = study.check(study.compute(replace(lab, kernel=twin)))
        assert any(f.verdict is Verdict.REFUSED for f in found), sin
