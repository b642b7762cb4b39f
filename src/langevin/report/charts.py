"""The pictures of a report as Vega-Lite charts, made with altair. Names of parameters are text in them."""

from typing import TYPE_CHECKING, Any

import numpy as np

from langevin.report import contents

if TYPE_CHECKING:
    from langevin.regression.check import Check
    from langevin.sampling.result import Result

Spec = dict[str, Any]
# Legible on light and on dark paper.
_BLUE, _ORANGE, _GREY = "#2f86c5", "#e0702c", "#8a8a8a"
_LABELS = 150
_SMALL = 130


def _altair() -> Any:
    try:
        import altair
    except ImportError as error:
        raise ImportError("a report needs altair and vl-convert: pip install 'langevin[report]'") from error
    return altair


def _rows(**columns: Any) -> Any:
    """Columns as the rows of a chart; numbers that are not finite are left out by Vega."""
    names = list(columns)
    plain = ([_plain(value) for value in column] for column in columns.values())
    return _altair().Data(values=[dict(zip(names, row, strict=True)) for row in zip(*plain, strict=True)])


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value
    number = float(value)
    return float(f"{number:.6g}") if np.isfinite(number) else None


def forest(result: "Result") -> list[Spec]:
    """One chart a panel: parameters of one size share an axis."""
    shown = contents.forest(result)
    return [_panel(shown, np.flatnonzero(shown.panel == number)) for number in range(shown.panel.max() + 1)]


def _panel(shown: contents.Forest, at: np.ndarray) -> Spec:
    alt = _altair()
    data = _rows(
        name=[shown.names[k] for k in at], mean=shown.mean[at], low=shown.ends[0, at], high=shown.ends[1, at],
        lower=shown.quartiles[0, at], upper=shown.quartiles[1, at], left=shown.error[0, at], right=shown.error[1, at],
        status=[shown.statuses[k] for k in at],
    )  # fmt: skip
    tooltip = [
        alt.Tooltip("name:N", title="parameter"), alt.Tooltip("mean:Q"), alt.Tooltip("low:Q", title="2.5%"),
        alt.Tooltip("high:Q", title="97.5%"), alt.Tooltip("left:Q", title="mean, Monte Carlo from"),
        alt.Tooltip("right:Q", title="to"), alt.Tooltip("status:N"),
    ]  # fmt: skip
    base = alt.Chart(data).encode(
        y=alt.Y("name:N", sort=None, title=None, axis=alt.Axis(labelLimit=_LABELS)), tooltip=tooltip
    )
    x = {"scale": alt.Scale(zero=False), "axis": alt.Axis(title=None, grid=True, tickCount=5)}
    layers = [
        base.mark_rule(color=_BLUE, strokeWidth=2).encode(x=alt.X("low:Q", **x), x2="high:Q"),
        base.mark_rule(color=_BLUE, strokeWidth=7, opacity=0.45).encode(x="lower:Q", x2="upper:Q"),
        base.mark_point(color=_BLUE, filled=True, opacity=1, size=45).encode(x="mean:Q"),
        base.mark_rule(color=_ORANGE, strokeWidth=3).encode(x="left:Q", x2="right:Q"),
    ]
    if shown.ends[0, at].min() < 0.0 < shown.ends[1, at].max():
        zero = alt.Chart(_rows(zero=[0.0])).mark_rule(color=_GREY, strokeDash=[3, 3]).encode(x="zero:Q")
        layers.insert(0, zero)
    return alt.layer(*layers).properties(width="container", height=20 * len(at)).to_dict()


def marginals(result: "Result") -> list[Spec]:
    """A small chart for each parameter: its density, and the Laplace approximation's."""
    alt = _altair()
    found = []
    for curve in contents.marginals(result):
        data = _rows(x=curve.x, posterior=curve.density, laplace=curve.laplace)
        base = alt.Chart(data).encode(
            x=alt.X("x:Q", title=None, scale=alt.Scale(zero=False, nice=False), axis=alt.Axis(tickCount=4, grid=False))
        )
        y = alt.Y("posterior:Q", axis=None)
        area = base.mark_area(color=_BLUE, opacity=0.3, line={"color": _BLUE}).encode(y=y)
        laplace = base.mark_line(color=_ORANGE, strokeDash=[5, 3], strokeWidth=1.5).encode(
            y=alt.Y("laplace:Q", axis=None)
        )
        found.append(_titled(area + laplace, curve.name))
    return found


def running(result: "Result") -> list[Spec]:
    """A small chart for each of the parameters that are known least: estimates at earlier times, with their bars."""
    alt = _altair()
    shown = contents.running(result)
    found = []
    for k, name in enumerate(shown.names):
        data = _rows(
            time=shown.time, value=shown.value[:, k], low=shown.low[:, k], high=shown.high[:, k], raw=shown.raw[:, k]
        )
        axis = alt.Axis(values=shown.marks, format=",.0f", grid=False)
        x = alt.X("time:Q", title="time T", scale=alt.Scale(type="log", nice=False), axis=axis)
        y = {
            "scale": alt.Scale(domain=shown.range(k), clamp=True, nice=False),
            "axis": alt.Axis(title=None, tickCount=4, format=".6~g", labelLimit=70),
        }
        base = alt.Chart(data).encode(x=x)
        tooltip = [alt.Tooltip(f"{one}:Q") for one in ("time", "value", "low", "high", "raw")]
        layers = (
            base.mark_area(color=_BLUE, opacity=0.25).encode(y=alt.Y("low:Q", **y), y2="high:Q", tooltip=tooltip),
            base.mark_line(color=_GREY, strokeWidth=1).encode(y=alt.Y("raw:Q", **y)),
            base.mark_line(color=_BLUE, strokeWidth=2).encode(y=alt.Y("value:Q", **y)),
        )
        found.append(_titled(alt.layer(*layers), name))
    return found


def pairs(result: "Result") -> list[Spec]:
    """A small chart for each two of the parameters that go together most."""
    alt = _altair()
    names, points = contents.pairs(result)
    found = []
    for i in range(len(names)):
        for j in range(i):
            scale = {"scale": alt.Scale(zero=False), "axis": alt.Axis(tickCount=4, grid=False, titleLimit=_LABELS)}
            chart = alt.Chart(_rows(x=points[:, j], y=points[:, i])).mark_circle(color=_BLUE, size=9, opacity=0.4)
            chart = chart.encode(x=alt.X("x:Q", title=names[j], **scale), y=alt.Y("y:Q", title=names[i], **scale))
            found.append(_sized(chart))
    return found


def predictive(check: "Check") -> Spec:
    """Replicated data beside the data."""
    alt = _altair()
    kind = "Q" if not isinstance(check.place[0], str) else "N"
    data = _rows(place=check.place, observed=check.observed, low=check.low, high=check.high)
    tooltip = [alt.Tooltip(f"place:{kind}"), *(alt.Tooltip(f"{one}:Q") for one in ("observed", "low", "high"))]
    scale = {} if kind == "N" else {"scale": alt.Scale(zero=False)}
    base = alt.Chart(data).encode(
        x=alt.X(f"place:{kind}", title=check.what, sort=None, axis=alt.Axis(titleLimit=300, tickCount=8), **scale),
        tooltip=tooltip,
    )
    y = alt.Y("low:Q", title=check.share, scale=alt.Scale(zero=False))
    layers = [
        base.mark_rule(color=_BLUE, strokeWidth=8, opacity=0.45).encode(y=y, y2="high:Q"),
        base.mark_point(color=_ORANGE, filled=True, opacity=1, size=45).encode(y="observed:Q"),
    ]
    if check.calibration:
        line = alt.Chart(_rows(place=[min(check.place), max(check.place)], same=[min(check.place), max(check.place)]))
        layers.insert(0, line.mark_line(color=_GREY, strokeWidth=1).encode(x="place:Q", y="same:Q"))
    return alt.layer(*layers).properties(width="container", height=260).to_dict()


def _titled(chart: Any, name: str) -> Spec:
    return _sized(chart.properties(title=_altair().TitleParams(name, fontSize=12, anchor="start", limit=230)))


def _sized(chart: Any) -> Spec:
    return chart.properties(width="container", height=_SMALL).to_dict()
