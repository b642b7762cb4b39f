"""The paper's logistic regression from minibatches: estimates with error bars beside the quadrature truth."""

import argparse
from pathlib import Path

import langevin as lv  # first, so that it may set its flags before JAX starts

PASSES = 100


def fit(model: lv.models.Logistic) -> tuple[lv.Result, dict[str, dict[str, lv.Estimate]]]:
    """`lv.sample`, and beside it the paper's SGLD from as many datum visits, raw and corrected."""
    result = lv.sample(model.target, model.data, model.theta_0, passes=PASSES, seed=1)
    sgld = lv.run(
        model.target, model.data, result.plan.anchor.mode, kernel=lv.SGLD(), gradient=lv.Minibatch(),
        subsample=lv.WithoutReplacement(30), schedule=lv.Polynomial(a=5.89e7, b=7.90e8, alpha=1 / 3),
        num_steps=PASSES * model.num_data // 30 // 4, anchor=result.plan.anchor, chains=4, seed=1,
    )  # fmt: skip
    return result, {
        "SGLD, raw": lv.estimate(sgld, "raw"),
        "SGLD, corrected": lv.estimate(sgld, "corrected"),
        "lv.sample": {"theta.mean": result.mean, "theta.sd": result.sd},
    }


def table(model: lv.models.Logistic, results: dict[str, dict[str, lv.Estimate]]) -> str:
    truth = model.truth()
    lines = []
    for quantity, exact in (("mean", truth.mean), ("sd", truth.sd)):
        lines.append(f"\nposterior {quantity:27}" + "".join(f"{f'theta[{i}]':>30}" for i in range(len(exact))))
        lines.append(f"{'  quadrature (truth)':37}" + "".join(f"{value:>30.6f}" for value in exact))
        laplace = results["SGLD, corrected"][f"theta.{quantity}"].laplace
        lines.append(f"{'  Laplace':37}" + "".join(f"{value:>30.6f}" for value in laplace))
        for name, estimates in results.items():
            estimate = estimates[f"theta.{quantity}"]
            cells = zip(estimate.value, estimate.stderr, exact, strict=True)
            lines.append(
                f"  {name + ' [' + estimate.status + ']':35}"
                + "".join(f"{f'{v:.6f} +- {s:.6f} ({(v - e) / s:+.1f})':>30}" for v, s, e in cells)
            )
    return "\n".join(lines)


def picture(model: lv.models.Logistic, results: dict[str, dict[str, lv.Estimate]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    truth = model.truth()
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
    styles = (("o", "#9a3b26"), ("s", "#c58b00"), ("D", "#1f5f8b"))
    for axis, quantity, exact, title in (
        (axes[0], "mean", truth.mean, "posterior mean"),
        (axes[1], "sd", truth.sd, "posterior standard deviation"),
    ):
        axis.axvline(0.0, color="black", lw=1)
        for k, ((name, estimates), (marker, colour)) in enumerate(zip(results.items(), styles, strict=True)):
            estimate = estimates[f"theta.{quantity}"]
            lower, upper = estimate.interval(0.95)
            for i, (value, low, high) in enumerate(zip(estimate.value, lower, upper, strict=True)):
                height, unit = i + 0.22 * (k - 1), truth.sd[i] / 100
                axis.plot([(low - exact[i]) / unit, (high - exact[i]) / unit], [height] * 2, color=colour, lw=2)
                axis.plot((value - exact[i]) / unit, height, marker, color=colour, ms=6, label=name if i == 0 else None)
        laplace = results["SGLD, corrected"][f"theta.{quantity}"].laplace
        for i, value in enumerate(laplace):
            height = (value - exact[i]) / (truth.sd[i] / 100)
            axis.plot(height, i + 0.36, "x", color="grey", ms=6, label="Laplace" if i == 0 else None)
        axis.set_title(title)
        axis.set_xlabel("difference from the truth, in % of the posterior sd")
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.tick_params(left=False)
    axes[0].set_yticks(range(len(truth.mean)), [f"theta[{i}]" for i in range(len(truth.mean))])
    axes[0].invert_yaxis()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(f"{PASSES} passes over {model.num_data} data: 95% intervals from minibatches, zero is the truth")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="folder for the picture")
    options = parser.parse_args()
    model = lv.models.Logistic.simulate(num_data=1000, dimension=3, seed=1)
    print(f"Logistic regression, N = {model.num_data}, d = {model.dimension}\n")
    result, results = fit(model)
    print(result)
    print(f"\n{result.explain()}\n\nBeside the truth, and beside the paper's SGLD from the same number of passes:")
    print(table(model, results))
    print("\nEach cell: estimate +- standard error (its distance from the truth in standard errors).")
    picture(model, results, options.out / "logistic.png")
    print(f"Picture: {options.out / 'logistic.png'}")


if __name__ == "__main__":
    main()
