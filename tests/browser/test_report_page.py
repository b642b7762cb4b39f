"""The report in a browser: drawn whole, offline, without an error, at any width, and names are text."""

import numpy as np
import pytest

import langevin as lv

pytestmark = pytest.mark.browser

SCRIPT = "<script>window.stolen=1</script><img src=x onerror='window.stolen=1'>"
LEVELS = ["", "<b>bold</b>", "\"'><script>window.stolen=1</script>"]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    N = 600
    table = pandas.DataFrame(
        {"x": rng.standard_normal(N), SCRIPT: 1e-3 * rng.standard_normal(N), "kind": rng.choice(LEVELS, N)}
    )
    table["late"] = rng.random(N) < 1 / (1 + np.exp(-table.x))
    path = tmp_path_factory.mktemp("report") / "report.html"
    lv.fit(table, f"late ~ x + C(kind) + `{SCRIPT}`", family="bernoulli", passes=30).report(path)
    return path


@pytest.fixture
def opened(browser, report, request):
    """The page in a window of some width and scheme, and what its console has said."""
    width, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, offline=True)
    page, said = context.new_page(), []
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    page.goto(report.as_uri())
    page.wait_for_function("document.documentElement.dataset.drawn !== undefined", timeout=60_000)
    yield page, said
    context.close()


WINDOWS = pytest.mark.parametrize("opened", [(1100, "light"), (390, "dark")], indirect=True, ids=["desk", "phone"])


@WINDOWS
def test_every_picture_is_drawn_without_a_word_in_the_console(opened):
    page, said = opened
    assert said == []
    charts = page.evaluate("Object.keys(JSON.parse(document.getElementById('charts').textContent)).length")
    assert charts >= 14 and int(page.evaluate("document.documentElement.dataset.drawn")) == charts
    # Drawn means that there are marks with a size, not that there is a place for them.
    sizes = page.evaluate(
        "[...document.querySelectorAll('.chart')].map(c => {"
        " const box = c.querySelector('svg')?.getBoundingClientRect();"
        " return [c.querySelectorAll('.role-mark path, .role-mark line').length, box?.width ?? 0, box?.height ?? 0]})"
    )
    assert len(sizes) == charts and all(marks > 0 and width > 80 and height > 30 for marks, width, height in sizes)


@WINDOWS
def test_nothing_scrolls_sideways_and_text_can_be_read(opened):
    page, _ = opened
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    ink, paper = (
        page.evaluate(f"getComputedStyle(document.body).{what}.match(/\\d+/g).slice(0, 3).map(Number)")
        for what in ("color", "backgroundColor")
    )
    assert contrast(ink, paper) > 7
    label = page.evaluate("getComputedStyle(document.querySelector('.chart svg text')).fill.match(/\\d+/g).map(Number)")
    assert contrast(label[:3], paper) > 7


def contrast(one, other):
    """The ratio of luminances of the accessibility guidelines."""

    def luminance(colour):
        part = np.array(colour) / 255
        return float(
            np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]
        )

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@WINDOWS
def test_names_and_levels_are_text(opened):
    page, _ = opened
    # Pointing at every mark makes its tooltip, which shows names too.
    for mark in page.query_selector_all(".chart .mark-symbol path")[:4]:
        mark.hover(force=True)
    assert page.evaluate("window.stolen") is None
    text = page.inner_text("body")
    assert SCRIPT in text and LEVELS[2] in text
    assert page.evaluate("document.querySelectorAll('body b, body img').length") == 0


@pytest.mark.parametrize("opened", [(1100, "light")], indirect=True)
def test_a_script_that_got_into_the_page_would_not_run(opened, report):
    """The negative control: the page as it is, with a script of somebody else in the middle."""
    page, _ = opened
    spoiled = report.with_name("spoiled.html")
    spoiled.write_text(
        report.read_text().replace("<h2>Estimates", "<script>window.stolen = 1</script><h2>Estimates", 1)
    )
    said = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(spoiled.as_uri())
    page.wait_for_function("document.documentElement.dataset.drawn !== undefined", timeout=60_000)
    assert page.evaluate("window.stolen") is None and any("Content Security Policy" in text for text in said)


@pytest.mark.parametrize("opened", [(1100, "dark")], indirect=True)
def test_print_is_dark_on_white(opened):
    page, _ = opened
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.querySelector('.chart svg text')).fill") == "rgb(0, 0, 0)"
    assert len(page.pdf()) > 20_000
