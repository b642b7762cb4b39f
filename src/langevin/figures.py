"""How the figures look: one size, one palette, simulation as marks and theory as lines."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by colour-blind readers; each comes with a mark of its own.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKS = ("o", "s", "^", "D", "v", "P", "X")
# Simulation is drawn with marks and error bars, no line; theory with lines, no marks.
EXACT: dict[str, Any] = {"linestyle": "-", "linewidth": 1.4}
ASYMPTOTE: dict[str, Any] = {"linestyle": (0, (5, 3)), "linewidth": 1.1}
SIMULATED: dict[str, Any] = {"linestyle": "none", "markersize": 5, "capsize": 2, "elinewidth": 1.0}

_SETTINGS = {
    "font.size": 10,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.dpi": 100,
    "savefig.dpi": 160,
    "svg.fonttype": "path",
    "svg.hashsalt": "langevin",
}


@contextmanager
def house_style() -> Iterator[None]:
    """Figures made and saved inside look alike, and the caller's settings stay as they were."""
    with mpl.rc_context(_SETTINGS):
        yield


def new_figure(columns: int = 1, rows: int = 1, width: float = 7.2, height: float = 4.4, **options: Any) -> Any:
    """A figure and its axes (one, or an array of them), laid out so that nothing overlaps."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


def legend_outside(figure: Figure, axes: Axes, columns: int = 1, **options: Any) -> None:
    """The legend of these axes to the right of the figure, never over the data."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", ncols=columns, **options)
