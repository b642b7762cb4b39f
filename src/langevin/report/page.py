"""The report: one HTML file with verdict, estimates, pictures and the reasons to believe them. It needs nothing else.

Whatever comes from the user (names, levels, formulas) is text: escaped in the page, values in the charts; and the page
forbids the browser to run any script but its own two.
"""

import base64
import hashlib
import json
import os
from collections.abc import Sequence
from html import escape
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langevin.citation import PAPER, software
from langevin.report import charts, sections
from langevin.sampling import tables
from langevin.sampling.words import explain

if TYPE_CHECKING:
    from langevin.sampling.result import Result

Table = Sequence[Sequence[str]]


def write_report(result: "Result", path: Path) -> None:
    """Writes the page; whoever opens the path finds a whole one."""
    text = page(result)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def page(result: "Result") -> str:
    """The page as text."""
    specs: dict[str, Any] = {}
    body = _body(result, specs)
    scripts = [_bundle(), _file("draw.js")]
    # In a script tag nothing but "<" could end it early.
    data = json.dumps(specs, allow_nan=False).replace("<", "\\u003c")
    allowed = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    policy = (
        f"default-src 'none'; script-src {allowed} 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:; "
        f"base-uri 'none'; form-action 'none'"
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}"><meta name="color-scheme" content="light dark">
<title>{escape(sections.title(result))}</title><style>{_file("page.css")}</style></head>
<body>{body}
<script type="application/json" id="charts">{data}</script>
<script type="module">{scripts[0]}</script>
<script type="module">{scripts[1]}</script>
</body></html>
"""


def _body(result: "Result", specs: dict[str, Any]) -> str:
    verdict = sections.verdict(result)
    said = "".join(f"<p>{escape(line)}</p>" for line in verdict.lines)
    parts = [
        f"<h1>{escape(sections.title(result))}</h1>",
        f'<section class="verdict {verdict.kind}"><h2>{escape(verdict.head)}</h2>{said}</section>',
        "<h2>Estimates</h2>",
        "<p>Columns from mean to 97.5% describe the posterior. The columns <em>mcse</em> are Monte Carlo standard "
        "errors of these numbers, which more steps shrink.</p>",
        html_table(tables.cells(result)),
        "".join(f"<p>{escape(line)}</p>" for line in tables.left_out(result)),
        _figure("The posterior", charts.forest(result), specs, _FOREST, small=False),
        _figure("Marginals beside the Laplace approximation", charts.marginals(result), specs, _MARGINALS),
        _figure("Estimates as they were at earlier times", charts.running(result), specs, _RUNNING),
        _figure("Parameters that go together", charts.pairs(result), specs, _PAIRS),
        _predictive(result, specs),
        "<h2>Three ways to the same numbers</h2>",
        "<p>Plain averages of the chains, the same with the Poisson correction, and the Laplace approximation: means "
        "and sds of the posterior. Differences are in posterior sds.</p>",
        html_table(sections.side_by_side(result)),
        "<h2>Error budget</h2>",
        "<p>What could be wrong with the numbers above, in posterior sds, over all parameters.</p>",
        html_table(sections.budget(result)),
        "<h2>How it was computed</h2>",
        "".join(f"<p>{escape(text)}</p>" for text in explain(result).split("\n\n")),
        html_table(sections.course(result), head=False),
        _model(result),
        "<h2>How to cite</h2>",
        f"<p>{escape(software())}.</p><p>{escape(PAPER)}.</p><p><code>langevin cite</code> prints both as BibTeX.</p>",
        f"<footer>Made by langevin {escape(version('langevin'))}.</footer>",
    ]
    return "\n".join(parts)


_FOREST = (
    "Thin lines hold 95% of the posterior, thick ones 50%, dots are means; orange is the 95% interval of the mean's "
    "Monte Carlo error, which should be too short to see. Parameters of one size share an axis."
)
_MARGINALS = "Blue: the posterior. Orange, dashed: the Laplace approximation."
_RUNNING = (
    "What a shorter run would have said, of the parameters that are known least: estimates with 95% intervals in blue, "
    "plain averages in grey, against the time that a chain has covered. The intervals should shrink, and hold what "
    "comes later."
)
_PAIRS = "Draws of the posterior, equally weighted."
_PREDICTIVE = "Blue: 95% of the data sets that the model draws. Orange: the data."


def _predictive(result: "Result", specs: dict[str, Any]) -> str:
    found = sections.check(result)
    if found is None:
        return ""
    return _figure("Predictive check", [charts.predictive(found)], specs, _PREDICTIVE, small=False)


def _model(result: "Result") -> str:
    rows = sections.model(result)
    return "" if rows is None else f"<h2>The model</h2>{html_table(rows, head=False)}"


def _figure(heading: str, found: list[Any], specs: dict[str, Any], caption: str, small: bool = True) -> str:
    if not found:
        return ""
    places = []
    for spec in found:
        name = f"chart-{len(specs)}"
        specs[name] = spec
        places.append(f'<div class="chart" id="{name}"></div>')
    kind = "small" if small else "large"
    return (
        f'<h2>{escape(heading)}</h2><p>{escape(caption)}</p><figure class="{kind}">{"".join(places)}</figure>'
        "<noscript><p>This picture needs JavaScript.</p></noscript>"
    )


def html_table(rows: Table, head: bool = True) -> str:
    """A table that scrolls by itself where it is wider than the page."""
    first, rest = (rows[0], rows[1:]) if head else (None, rows)
    top = "" if first is None else f"<thead><tr>{''.join(f'<th>{escape(text)}</th>' for text in first)}</tr></thead>"
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>{"".join(f"<td>{escape(text)}</td>" for text in row[1:])}</tr>'
        for row in rest
    )
    kind = "numbers" if head else "facts"
    return f'<div class="wide" tabindex="0"><table class="{kind}">{top}<tbody>{body}</tbody></table></div>'


def _bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    try:
        from vl_convert import javascript_bundle
    except ImportError as error:
        raise ImportError("a report needs altair and vl-convert: pip install 'langevin[report]'") from error
    bundle: Any = javascript_bundle
    return str(bundle()).replace("</script", "<\\/script")


def _file(name: str) -> str:
    return (resources.files("langevin.report") / name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
