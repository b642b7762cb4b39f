"""One picture of the table: errors as colours, samplers by targets, with a mark where the intervals hold or fail."""

from pathlib import Path

import numpy as np

from langevin.compare.page import mark
from langevin.compare.table import Results

# Errors whose colour is too dark for black marks.
_DARK = 0.03


def draw(path: Path, results: Results) -> None:
    """Writes the picture."""
    from langevin.figures import house_style, new_figure

    ranked, targets = results.ranked(), list(results.targets)
    scores = np.array(
        [[results.cells[target, sampler].score(results.size.seconds) for target in targets] for sampler in ranked]
    )
    with house_style(), np.errstate(divide="ignore"):
        figure, axes = new_figure(width=max(2.6 + 0.75 * len(targets), 6.4), height=1.6 + 0.26 * len(ranked))
        image = axes.imshow(np.log10(scores), aspect="auto", cmap="viridis_r", vmin=-3.5, vmax=0.0)
        axes.grid(False)
        axes.set_xticks(range(len(targets)), targets, rotation=45, ha="right")
        axes.set_yticks(range(len(ranked)), ranked)
        for row, sampler in enumerate(ranked):
            for column, target in enumerate(targets):
                axes.text(column, row, *_mark(results, target, sampler), ha="center", va="center", fontsize=7,
                          color="white" if scores[row, column] > _DARK else "black")  # fmt: skip
        bar = figure.colorbar(image, ax=axes, ticks=[-3, -2, -1, 0])
        bar.ax.set_yticklabels(["0.001", "0.01", "0.1", "1"])
        bar.set_label("error, in posterior sds")
        axes.set_title(
            f"Root mean squared error of means and sds after {results.size.seconds:g} s of one core\n"
            "intervals for means: + hold, x do not, ? the truth is too blunt to tell, o none given",
            fontsize=9,
        )
        figure.savefig(path)


def _mark(results: Results, target: str, sampler: str) -> tuple[str]:
    cell = results.cells[target, sampler]
    if cell.seconds is None:
        return ("failed" if cell.words.startswith("failed") else "",)
    if "mean" not in cell.seconds.coverage:
        return ("o",)
    return ({"": "+", " (!)": "x", " (?)": "?"}[mark(cell.seconds, "mean", results.references[target])],)
