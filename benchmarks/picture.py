"""The picture of a speed record: one panel a workload, one bar a contestant, log axis."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLOURS = {
    "limit": "#b0b0b0",
    "langevin": "#2563a8",
    "blackjax, our flag": "#e39a4b",
    "blackjax": "#c8641b",
}


def short(value: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    names = list(dict.fromkeys(row["workload"] for row in rows))
    groups = [[row for row in rows if row["workload"] == name] for name in names]
    figure, panels = plt.subplots(
        len(groups), 1, sharex=True, squeeze=False, layout="constrained",
        figsize=(9, 0.8 + sum(0.6 + 0.28 * len(group) for group in groups)),
        height_ratios=[len(group) + 0.8 for group in groups],
    )  # fmt: skip
    for name, group, axis in zip(names, groups, panels[:, 0], strict=True):
        rates = [row["chain_steps_per_second"] for row in group]
        labels = [f"{row['contestant']}: {row['variant']}" for row in group]
        bars = axis.barh(labels, rates, color=[COLOURS[row["contestant"]] for row in group], height=0.75)
        axis.bar_label(bars, [short(rate) for rate in rates], padding=3, fontsize=8)
        axis.invert_yaxis()
        axis.set_xscale("log")
        axis.set_title(f"{name}: {group[0]['title']}", loc="left", fontsize=10)
        axis.tick_params(axis="y", labelsize=8, length=0)
        axis.spines[["top", "right", "left"]].set_visible(False)
    rates = [row["chain_steps_per_second"] for row in rows]
    panels[-1, 0].set_xlim(min(rates) / 2, max(rates) * 3)
    panels[-1, 0].set_xlabel("chain-steps per second, one core (a step: minibatch, gradient, noise, running sums)")
    figure.savefig(path, dpi=150)
    plt.close(figure)
