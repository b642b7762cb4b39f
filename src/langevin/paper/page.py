"""One self-contained HTML page with every figure, claim, number and verdict."""

import base64
import os
from collections.abc import Sequence
from html import escape
from importlib.metadata import version
from pathlib import Path

from langevin.paper.record import Record
from langevin.paper.study import Finding, Verdict

_CLASSES = {
    Verdict.REPRODUCED: "yes",
    Verdict.CORRECTED: "corrected",
    Verdict.TOO_SMALL: "small",
    Verdict.REFUSED: "no",
}

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1b1b1b; background: #fff; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.7rem; margin-bottom: .3rem } h2 { font-size: 1.25rem; margin: 3rem 0 .5rem; padding-top: .8rem; border-top: 1px solid #ddd }
p.meta { color: #666; margin: 0 0 1rem } img { max-width: 100%; height: auto; display: block; margin: 1rem auto }
table { border-collapse: collapse; width: 100%; font-size: .9rem } td, th { text-align: left; vertical-align: top; padding: .45rem .6rem; border-bottom: 1px solid #e4e4e4 }
th { color: #555; font-weight: 600 } td.verdict { font-weight: 600 } .findings { table-layout: fixed; min-width: 44rem }
.findings th:nth-child(1) { width: 27% } .findings th:nth-child(2) { width: 17% } .findings th:nth-child(4) { width: 15% } p.because { margin: .3rem 0 0; color: #555 }
.yes { color: #00704f } .corrected { color: #005a94 } .small { color: #8a5a00 } .no { color: #b00020 }
a { color: #005a94 } .wide { overflow-x: auto }
.tally td { padding: .25rem .6rem }
"""  # noqa: E501


def write_page(out: Path, records: Sequence[Record]) -> None:
    """Writes `index.html` for the studies worked out so far; figures are inside the file."""
    text = _page(records, out)
    temporary = out / "index.html.tmp"
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, out / "index.html")


def _page(records: Sequence[Record], out: Path) -> str:
    sizes = ", ".join(dict.fromkeys(record.size for record in records))
    seeds = ", ".join(dict.fromkeys(str(record.seed) for record in records))
    head = "".join(f'<th class="{_CLASSES[v]}">{v}</th>' for v in Verdict)
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>The paper, reproduced and corrected</title><style>{_STYLE}</style>
<h1>The paper, reproduced and corrected</h1>
<p class="meta">Every figure and theorem of Teh, Thiery and Vollmer, <em>Consistency and fluctuations for stochastic
gradient Langevin dynamics</em> (2016), worked out with langevin {escape(version("langevin"))}; size: {sizes}; seed:
{seeds}. “a ± b” is a value and its Monte Carlo standard error.</p>
<div class="wide"><table class="tally"><tr><th>study</th>{head}</tr>
{"".join(map(_tally, records))}</table></div>
{"".join(_section(record, out) for record in records)}
</html>
"""


def _tally(record: Record) -> str:
    verdicts = [finding.verdict for finding in record.findings]
    counts = "".join(f'<td class="{_CLASSES[v]}">{verdicts.count(v) or ""}</td>' for v in Verdict)
    return f'<tr><td><a href="#{record.name}">{escape(record.title)}</a></td>{counts}</tr>\n'


def _section(record: Record, out: Path) -> str:
    figures = "".join(_figure(stem, record, out) for stem in record.figures)
    rows = "".join(map(_row, record.findings))
    return f"""<h2 id="{record.name}">{escape(record.title)}</h2>
<p class="meta">size {record.size}, seed {record.seed} ·
numbers: <a href="{record.name}.csv">CSV</a>, <a href="{record.name}.json">JSON</a> ·
figures: {", ".join(f'<a href="{stem}.svg">{stem}.svg</a>' for stem in record.figures)} ·
<code>langevin paper {record.name}{" --full" if record.size == "full" else ""}</code></p>
{figures}
<div class="wide"><table class="findings"><tr><th>claim</th><th>printed</th><th>measured</th><th>verdict</th></tr>
{rows}</table></div>
"""


def _figure(stem: str, record: Record, out: Path) -> str:
    data = base64.b64encode((out / f"{stem}.png").read_bytes()).decode()
    return f'<img alt="{escape(record.title)} ({stem})" src="data:image/png;base64,{data}">\n'


def _row(finding: Finding) -> str:
    because = f'<p class="because">{escape(finding.because)}</p>' if finding.because else ""
    erratum = f" (erratum {finding.erratum})" if finding.erratum is not None else ""
    return (
        f"<tr><td>{escape(finding.claim)}</td><td>{escape(finding.printed)}</td>"
        f"<td>{escape(finding.measured)}{because}</td>"
        f'<td class="verdict {_CLASSES[finding.verdict]}">{finding.verdict}{erratum}</td></tr>\n'
    )
