"""Pages that people read: snippets run from top to bottom, links lead somewhere, the API has every public name."""

import re
from pathlib import Path

import pytest

import langevin as lv
from tests.unit.test_doctests import PUBLIC

ROOT = Path(__file__).parents[2]
NAMES = ("start", "choose", "scaling", "formulas", "other-libraries", "mathematics", "mixed", "paper")
RUNNING = ["README.md", *(f"docs/{name}.md" for name in NAMES)]
PAGES = [path for path in ROOT.glob("*.md")] + sorted((ROOT / "docs").rglob("*.md"))


def snippets(text):
    """The blocks of Python on a page, each with the number of the line before its first."""
    for found in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield text[: found.start(1)].count("\n"), found[1]


def run(page, text):
    namespace = {"__name__": "page"}
    for line, code in snippets(text):
        # Errors then name the line of the page.
        exec(compile("\n" * line + code, page, "exec"), namespace)


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNING)
def test_the_snippets_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    text = (ROOT / page).read_text()
    assert list(snippets(text))
    run(page, text)


def test_a_name_that_no_snippet_defines_is_noticed():
    with pytest.raises(NameError):
        run("page", "```python\nx = 1\n```\n\n```python\nprint(x, y)\n```\n")
    with pytest.raises(SyntaxError):
        run("page", "```python\nx = \n```\n")


def test_links_between_pages_lead_somewhere():
    broken = set()
    for page in PAGES:
        prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for link in re.findall(r"\]\(([^)#\s]+)", prose):
            if ":" not in link and not (page.parent / link).exists():
                broken.add((page.name, link))
    assert not broken


def test_every_public_name_is_on_an_api_page():
    text = "\n".join(path.read_text() for path in (ROOT / "docs" / "api").glob("*.md"))
    shown = re.findall(r"^\.\. auto\w+:: langevin\.(?:bridges\.)?(\S+)$", text, re.MULTILINE)
    assert len(shown) == len(set(shown))
    rooms = {"models", "shards", "sklearn", "theory"}
    assert rooms <= set(lv.__all__)
    missing = {name.removeprefix("langevin.").removeprefix("bridges.") for name in PUBLIC} - set(shown)
    assert not missing
    assert set(lv.__all__) - rooms <= set(shown)
