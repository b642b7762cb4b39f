"""The reach benchmark: its check of ports can fail, its references passed it, its verdicts mean what they say.

Scores are averages over standard errors with about 10,000 draws; the limit of 5 is passed by chance once in 1.7e6.
Draws come from fixed seeds or from a file, so no test here changes its mind. Those that need the data of posteriordb
run where POSTERIORDB names a checkout.
"""

import json
import os
from dataclasses import replace

import jax
import numpy as np
import pytest

import langevin as lv
from benchmarks.reach import __main__ as table
from benchmarks.reach import database, references, workers
from benchmarks.reach.nuts import moments, r_hat
from benchmarks.reach.posteriors import catalogue, normal, posterior
from benchmarks.reach.regressions import regression
from benchmarks.reach.verdicts import Verdict, judge

needs_posteriordb = pytest.mark.skipif(
    database.VARIABLE not in os.environ, reason=f"{database.VARIABLE} names no checkout of posteriordb"
)
TRUTH = {
    "mean": np.array([1.0, -2.0]),
    "sd": np.array([0.5, 4.0]),
    "mean_stderr": np.array([0.005, 0.04]),
    "sd_stderr": np.array([0.004, 0.03]),
}


def largest(scores):
    return max(np.max(np.abs(values)) for values in scores.values())


def small_regression(seed=1, size=30):
    """A regression with flat priors, and exact draws: sigma^2 = S / chi^2, then normal coefficients."""
    rng = np.random.default_rng(seed)
    columns = rng.normal(size=(2, size))
    y = 1.0 + columns[0] + rng.normal(size=size)
    x = np.stack([np.ones(size), *columns], axis=1)
    fitted = np.linalg.lstsq(x, y, rcond=None)
    # The density of sigma is sigma^-(N - p) exp(-S / 2 sigma^2): one degree of freedom less than for log sigma flat.
    sigma = np.sqrt(fitted[1] / rng.chisquare(size - 4, size=(10, 1000)))
    root = np.linalg.cholesky(np.linalg.inv(x.T @ x))
    beta = fitted[0] + sigma[..., None] * (rng.normal(size=(10, 1000, 3)) @ root.T)
    return regression(y, columns, None), np.concatenate([beta, np.log(sigma)[..., None]], axis=-1)


def test_the_check_passes_a_right_port_and_refuses_wrong_ones():
    one, draws = small_regression()
    assert largest(references.scores(one, draws)) < references.MOST_SCORE
    columns = one.data["x"][:, 1:].T
    twins = {
        "a prior scale of sigma": regression(one.data["y"], columns, None, scale=1.0),
        "a prior sd of the coefficients": regression(one.data["y"], columns, None, sd=1.0),
        "no Jacobian": replace(
            one, target=lv.Target(lambda theta: 0.0 * theta["log_sigma"], one.target.log_likelihood)
        ),
    }
    for twin in twins.values():
        assert largest(references.scores(twin, draws)) > references.MOST_SCORE


def test_moments_of_independent_and_of_sticky_draws():
    rng = np.random.default_rng(2)
    draws = rng.normal(3.0, 2.0, size=(4, 5000, 1))
    for repeats in (1, 10):
        sticky = np.repeat(draws, repeats, axis=1)
        found = moments(sticky, (sticky - sticky.mean()) ** 2)
        # The error of a mean is sd / sqrt(M), that of a normal sd is sd / sqrt(2 M): repeats are no new draws.
        np.testing.assert_allclose(found["mean_stderr"], 2.0 / np.sqrt(20_000), rtol=0.1)
        np.testing.assert_allclose(found["sd_stderr"], 2.0 / np.sqrt(40_000), rtol=0.1)
    assert r_hat(draws) < 1.005
    assert r_hat(draws + np.arange(4.0)[:, None, None]) > 1.1


def test_every_port_passed_the_check():
    stored = json.loads(references.FILE.read_text())
    assert sorted(stored) == sorted(catalogue())
    for entry in stored.values():
        assert len(entry["scores"]["gradient"]) == len(entry["scores"]["virial"]) == len(entry["names"])
        assert largest(entry["scores"]) < references.MOST_SCORE


@needs_posteriordb
@pytest.mark.parametrize("name", catalogue())
def test_references_are_those_of_the_ports(name):
    assert references.reference(name)["names"] == list(posterior(name).names)


@needs_posteriordb
def test_eight_schools_pass_the_check_and_a_wrong_prior_does_not():
    one = posterior("eight_schools-eight_schools_noncentered")
    draws, _ = references.reference_draws(one)
    assert largest(references.scores(one, draws)) < references.MOST_SCORE

    def wider(theta):
        """The prior of mu with an sd of 10, not 5."""
        return one.target.log_prior(theta) - normal(theta["mu"], 0.0, 5.0) + normal(theta["mu"], 0.0, 10.0)

    twin = replace(one, target=lv.Target(wider, one.target.log_likelihood))
    assert largest(references.scores(twin, draws)) > references.MOST_SCORE


@needs_posteriordb
def test_the_two_eight_schools_are_one_posterior():
    """In the funnel the check is weak, since gradients go with 1 / tau: there the other port vouches, exactly.

    effect = mu + tau z has a Jacobian of tau^8, so the log densities differ by 8 log tau.
    """
    ports = [posterior(f"eight_schools-eight_schools_{kind}") for kind in ("centered", "noncentered")]
    found = [references.reference_draws(one)[0].reshape(-1, 10)[:100] for one in ports]
    with jax.enable_x64(True):
        values = [
            np.array([float(one.log_density(row)) for row in rows]) for one, rows in zip(ports, found, strict=True)
        ]
    log_tau = found[0][:, ports[0].names.index("log_tau")]
    np.testing.assert_allclose(values[0] + 8.0 * log_tau, values[1], rtol=1e-9)


def answer(**changes):
    """An answer with bars of 0.04 sd, off the truth by nothing."""
    short = 0.04 / 1.96 * TRUTH["sd"]
    return {"status": "ok", **TRUTH, "mean_stderr": short, "sd_stderr": short, **changes}


def off(errors):
    """The truth's means, the first off by so many combined errors."""
    combined = np.hypot(answer()["mean_stderr"], TRUTH["mean_stderr"])
    return TRUTH["mean"] + combined * [errors, 0.0]


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (answer(), "right"),
        (answer(mean=off(3.9)), "right"),
        (answer(mean=off(-4.5)), "between"),
        (answer(mean=off(5.5)), "wrong"),
        (answer(sd=TRUTH["sd"] * [1.0, 1.2]), "wrong"),
        (answer(mean_stderr=TRUTH["sd"] * [0.01, 0.03]), "between"),
        (answer(mean_stderr=np.array([np.nan, 0.01])), "between"),
        (answer(status="not_gaussian"), "declined"),
        ({"status": "AnchorError"}, "declined"),
    ],
)
def test_verdicts(found, word):
    assert judge(found, TRUTH).word == word


def test_a_tiny_error_is_not_wrong_however_sure():
    sure = {"mean_stderr": TRUTH["sd"] * 1e-4, "sd_stderr": TRUTH["sd"] * 1e-4}
    found = {"status": "ok", **TRUTH, **sure, "mean": TRUTH["mean"] + 0.015 * TRUTH["sd"]}
    assert judge(found, TRUTH | sure).word == "between"


def test_a_worker_that_breaks_or_hangs_still_answers_for_every_seed():
    broken = list(workers.answers("no-such-posterior", "langevin", [3, 4]))
    assert [(found["status"], found["seed"]) for found in broken] == [("crash", 3), ("crash", 4)]
    assert "no-such-posterior" in broken[0]["message"]
    silent = list(workers.answers("no-such-posterior", "nuts", [5, 6], patience=0.01))
    assert [(found["status"], found["seed"]) for found in silent] == [("out_of_time", 5), ("out_of_time", 6)]


def test_the_page_holds_totals_and_table(tmp_path):
    right = ({"status": "ok", "cpu_seconds": 2.0}, Verdict("right", 1.5, 0.01))
    declined = ({"status": "AnchorError", "cpu_seconds": 1.0}, Verdict("declined"))
    nuts = ({"status": "ok", "cpu_seconds": 6.0}, Verdict("right", 1.0, 0.01))
    rows = [table.Row("first", 100, 3, [right, right, declined], nuts), table.Row("second", 0, 4, [declined], None)]
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- reach table -->\nyesterday\n<!-- end of the table -->\nafter\n")
    table.write_page(page, rows)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "yesterday" not in text
    assert "4 pairs of posterior and seed: 2 right, 0 between, 0 wrong, 2 declined" in text
    assert "median 3.00 of 1 posteriors" in text
    assert "| first | 100 | 3 | 2 | 0 | 0 | 1 | 1.5 | 0.010 | 2.0 | 1.5 | 6.0 | right | AnchorError |" in text
