"""Pages of the documentation on a phone: nothing scrolls sideways, and nothing is fetched from elsewhere."""

from pathlib import Path

import pytest

from tests.browser.conftest import missing

pytestmark = pytest.mark.browser
BUILT = Path(__file__).parents[2] / "build" / "docs"
# The theme hides what is too wide for its columns, so elements are looked at, but for those in boxes that scroll.
WIDE = """[...document.querySelectorAll('article *')]
          .filter(element => !element.closest('.table-wrapper, .highlight, math'))
          .some(element => element.getBoundingClientRect().right > window.innerWidth)"""


@pytest.fixture
def page(browser):
    if not (BUILT / "index.html").exists():
        missing("the documentation is not built: make docs")
    context = browser.new_context(viewport={"width": 390, "height": 800})
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("name", ["index", "start", "error-bars", "mathematics", "measured", "api/sampling"])
def test_a_phone_shows_the_page(page, name):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((BUILT / f"{name}.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth") and not page.evaluate(WIDE)
    assert asked and all(url.startswith(("file:", "data:")) for url in asked)


def test_a_wide_page_would_be_noticed(page):
    page.goto((BUILT / "index.html").as_uri())
    page.evaluate("document.querySelector('article').insertAdjacentHTML('beforeend', '<p style=width:800px>x</p>')")
    assert page.evaluate(WIDE)
