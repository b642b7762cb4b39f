"""The picture of what dropping Gamma does: variances against steps, one panel without Gamma and one with it."""

from pathlib import Path

import numpy as np

# Of pi / G on N(0, 1), G = 1 / (1 + |x|): E[x^2 (1 + |x|)] / E[1 + |x|], with E|x| = r and E|x|^3 = 2 r, r^2 = 2 / pi.
WITHOUT = float((1.0 + 2.0 * np.sqrt(2.0 / np.pi)) / (1.0 + np.sqrt(2.0 / np.pi)))


def draw(found: dict[tuple[bool, float, float], tuple[float, float]], path: Path) -> None:
    """Variance and its standard error by (with Gamma or not, decay, delta)."""
    from langevin.figures import ASYMPTOTE, COLOURS, MARKS, SIMULATED, house_style, new_figure

    decays = sorted({decay for _, decay, _ in found})
    with house_style():
        figure, panels = new_figure(columns=2, width=7.6, height=4.0, sharey=True)
        for axes, with_it in zip(panels, (False, True), strict=True):
            ends = []
            for colour, mark, decay in zip(COLOURS, MARKS, decays, strict=False):
                line = {delta: value for (here, of, delta), value in found.items() if here is with_it and of == decay}
                deltas = sorted(line)
                values, errors = np.array([line[delta] for delta in deltas]).T
                axes.plot(deltas, values, color=colour, linewidth=0.6, alpha=0.6)
                axes.errorbar(deltas, values, yerr=2.0 * errors, color=colour, marker=mark, **SIMULATED)
                ends.append((float(values[-1]), colour, f"decay {decay:g}"))
            for height, (_, colour, label) in zip(_apart([end for end, *_ in sorted(ends)]), sorted(ends), strict=True):
                axes.annotate(label, (0.4, height), (8, 0), textcoords="offset points", color=colour, va="center",
                              fontsize=9)  # fmt: skip
            limit = 1.0 if with_it else WITHOUT
            axes.axhline(1.0, color="black", linewidth=1.0)
            axes.axhline(limit, color=COLOURS[0], **ASYMPTOTE)
            axes.annotate(
                f"small steps, decay 0: {limit:.4g}", (0.9, limit), (0, -4), textcoords="offset points", fontsize=9,
                color=COLOURS[0], ha="right", va="top",
            )  # fmt: skip
            axes.set_xscale("log")
            axes.set_xlim(0.045, 0.95)
            axes.set_xticks(deltas, [f"{delta:g}" for delta in deltas])
            axes.minorticks_off()
            axes.set_xlabel("step delta")
            axes.set_title("with Gamma" if with_it else "without Gamma")
        panels[0].set_ylabel("variance (the truth is 1)")
        panels[0].set_ylim(0.95, 1.57)
        figure.savefig(path)


def _apart(values: list[float], gap: float = 0.032) -> list[float]:
    """Ascending heights of labels, each at its value or as far above the label below as letters are high."""
    heights: list[float] = []
    for value in values:
        heights.append(max(value, heights[-1] + gap) if heights else value)
    return heights
