"""Which flights arrive late? A regression of every flight that left New York in 2013, carriers as groups.

python examples/flights.py --out build/demo          # make demo; --nuts measures NUTS on the same model beside it
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import langevin as lv  # first, so that it may set its flags before JAX starts

import numpy as np  # isort: skip
from flights_table import FORMULA, table, units  # isort: skip

REFERENCE = Path(__file__).with_name("flights_reference.json")
PRECISION = 0.05
# Scores beyond this in any of some fifty numbers come up once in a million demos.
LARGEST_SCORE = 5.7


def fitted(rows: Any, precision: float = PRECISION) -> lv.Fit:
    return lv.fit(rows, FORMULA, family="bernoulli", groups="sample", precision=precision)


def scores(fit: lv.Fit, reference: dict[str, Any]) -> np.ndarray:
    """Distances of means and sds from the reference in combined standard errors, (2, parameters)."""
    at = [reference["names"].index(name) for name in fit.names]
    return np.stack(
        [
            (one.value - np.array(reference[name])[at]) / np.hypot(one.error, np.array(reference[f"mcse_{name}"])[at])
            for name, one in (("mean", fit.mean), ("sd", fit.sd))
        ]
    )


def draw(fit: lv.Fit, out: Path) -> list[Path]:
    files = [out / f"{kind}.png" for kind in ("forest", "marginals", "running", "predictive")]
    for file in files:
        fit.plot(file.stem).savefig(file, dpi=120)
    fit.report(out / "flights.html")
    return [out / "flights.html", *files]


def compared(fit: lv.Fit, rows: int) -> bool:
    """Says how the fit compares with the stored one; whether it may be believed."""
    reference = json.loads(REFERENCE.read_text())
    if reference["rows"] != rows:
        print("\nThe stored reference is of all the flights: nothing to compare a sample with.")
        return True
    found = np.abs(scores(fit, reference))
    print(
        f"\nBeside a stored fit by blackjax's NUTS on all the data ({reference['draws']:,} draws, "
        f"{reference['gradients']:,} passes): the largest of {found.size} differences in means and sds is "
        f"{found.max():.1f} combined standard errors."
    )
    return bool(found.max() < LARGEST_SCORE)


def against_nuts(fit: lv.Fit, rows: Any, seconds: float) -> None:
    """Measures NUTS for a while, and says how long it would take to errors like these."""
    from flights_nuts import nuts

    print(f"\nNUTS on the same model, for {seconds:.0f} s ...", flush=True)
    found = nuts(rows, 10**9, seconds=seconds)
    at = [found["names"].index(name) for name in fit.names]
    share = np.array(found["mcse_mean"])[at] / fit.mean.error
    # Squared errors fall with time; the hardest parameter of each counts, as for `precision`.
    sd = fit.sd.value
    ratio = float((np.max(np.array(found["mcse_mean"])[at] / sd) / np.max(fit.mean.error / sd)) ** 2)
    print(
        f"{found['draws']} draws, {found['gradients']:,} passes in {found['seconds']:.0f} s, mode and curvature given: "
        f"errors of means {np.median(share):.2g} times ours (median). To the error of our hardest mean it would take "
        f"about {ratio * found['seconds']:,.0f} s and {ratio * found['gradients']:,.0f} passes (extrapolated)."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="folder for the page and the pictures")
    parser.add_argument("--nuts", action="store_true", help="measure NUTS on the same model (two minutes more)")
    parser.add_argument("--nuts-seconds", type=float, default=90.0, help="for how long")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    rows, source = table()
    share = rows.late.mean()
    print(f"Which flights arrive late? {len(rows):,} flights ({source}), {share:.1%} of them late.\n{units()}\n")
    print(f"lv.fit(flights, {FORMULA!r}, family='bernoulli', groups='sample', precision={PRECISION})\n", flush=True)
    fit = fitted(rows)
    print(fit)
    good = compared(fit, len(rows))
    files = draw(fit, options.out)
    spent = time.perf_counter() - began
    print(f"\n{fit.passes:.3g} passes of sampling and {fit.setup_passes:.3g} of set-up, {fit.seconds:.3g} s;")
    print(f"with table, page and pictures {spent:.0f} s. See {', '.join(map(str, files))}.")
    if options.nuts:
        against_nuts(fit, rows, options.nuts_seconds)
    if not good:
        sys.exit("The fit and the stored one disagree.")


if __name__ == "__main__":
    main()
