"""The comparison with peers: its rule lets right answers agree and refuses wrong ones; snippets are counted as run."""

import io
import tokenize

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from benchmarks.peers.catalogue import CASES, QUICK, lines
from benchmarks.peers.verdict import FALSE_ALARM, MOST_LEFT, beside_maximum, compared, limit

NAMES = ["Intercept", "x", "log sigma"]
TRUTH = {"mean": np.array([3.0, -1.0, 0.2]), "sd": np.array([0.5, 0.1, 0.05])}


def answer(rng, share, order=(0, 1, 2), **moved):
    """Means and sds around the truth with errors of `share` sds, parameters in some order."""
    error = share * TRUTH["sd"][list(order)]
    found = {key: TRUTH[key][list(order)] + error * rng.standard_normal(3) for key in TRUTH}
    for key, by in moved.items():
        found[key] = found[key] + by * TRUTH["sd"][list(order)]
    return {**found, "mcse_mean": error, "mcse_sd": error, "name": [NAMES[k] for k in order], "status": "ok"}


def test_right_answers_agree_as_often_as_the_rule_says():
    rng, repeats = np.random.default_rng(0), 4000
    told = sum(compared(answer(rng, 0.002), answer(rng, 0.02, (2, 0, 1))).word == "differ" for _ in range(repeats))
    # Bonferroni over six independent scores is all but exact. Outside these limits by chance: one seed in 1e6.
    low, high = stats.binom(repeats, FALSE_ALARM).ppf([5e-7, 1 - 5e-7])
    assert low <= told <= high


def test_the_limit_is_that_of_means_and_sds_on_both_sides():
    assert_allclose(2 * 2 * 10 * stats.norm.sf(limit(10)), FALSE_ALARM)


@pytest.mark.parametrize("moved", [{"mean": 0.2}, {"mean": -0.2}, {"sd": 0.2}, {"sd": -0.2}])
def test_an_answer_ten_errors_off_differs(moved):
    rng = np.random.default_rng(1)
    found = compared(answer(rng, 0.002, **moved), answer(rng, 0.02))
    assert found.word == "differ" and max(found.mean, found.sd) > found.limit


def test_an_answer_without_a_bar_or_an_ok_agrees_with_nothing():
    rng = np.random.default_rng(2)
    good = answer(rng, 0.02)
    assert compared({**good, "mcse_sd": np.full(3, np.nan)}, answer(rng, 0.02)).word == "differ"
    assert compared({**good, "status": "not_mixed"}, answer(rng, 0.02)).word == "declined"
    with pytest.raises(ValueError, match="must have the same parameters"):
        compared(good, {**good, "name": ["Intercept", "x", "log nu"]})


def test_a_normal_posterior_is_where_likelihood_and_prior_put_it():
    """Likelihood N(top, 1/2), prior N(0, 1): the mode is at top 2/3, one Newton step of -top/3 from the maximum."""
    top = np.array([0.9, -0.3, 0.3])
    ours = {"name": NAMES, "mean": top * 2 / 3, "laplace_mean": top * 2 / 3, "sd": np.full(3, np.sqrt(1 / 3))}
    maximum = {"name": NAMES[::-1], "value": top[::-1].tolist()}
    found = beside_maximum(ours, maximum, -top / 3)
    assert found.word == "agree"
    assert_allclose([found.whole, found.prior, found.left], [0.3 * np.sqrt(3), 0.3 * np.sqrt(3), 0.0], atol=1e-12)
    wrong = {**ours, "laplace_mean": top * 2 / 3 + 1.1 * MOST_LEFT * ours["sd"]}
    assert beside_maximum(wrong, maximum, -top / 3).word == "differ"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_snippets_are_whole_scripts_and_counted_line_by_line(case):
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    for peer in case.peers:
        text = case.snippet(peer)
        compile(text, peer, "exec")
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        assert lines(text) == len({token.start[0] for token in tokens if token.type not in skipped})
    control = case.snippet("langevin", QUICK, case.control)
    # The call is the same but for the precision and one prior.
    changed = [
        (a, b) for a, b in zip(case.snippet("langevin").splitlines(), control.splitlines(), strict=True) if a != b
    ]
    assert len(changed) == 2
    with pytest.raises(ValueError, match="must occur once"):
        case.snippet("langevin", ("no such passage", ""))


def test_empty_lines_and_comments_are_no_code():
    assert lines("import a\n\n# why\nb = a.c(\n    1,\n)  # what\n") == 4
