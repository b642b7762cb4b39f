"""The page of a running job in a browser: no error, no sideways scrolling, names as text, and it goes on by itself."""

import jax.numpy as jnp
import pytest

import langevin as lv
from langevin.report import watch
from langevin.saving.folder import Folder

pytestmark = pytest.mark.browser
NAME = "<script>window.stolen=1</script><img src=x onerror='window.stolen=1'>"


@pytest.mark.parametrize(("width", "scheme"), [(1100, "light"), (390, "dark")])
def test_the_page_lives_and_is_text(browser, tmp_path, monkeypatch, width, scheme):
    monkeypatch.setattr(watch, "_REFRESH", 1)
    path = tmp_path / "run"
    target = lv.Target(lambda theta: -0.5 * jnp.sum(theta[NAME] ** 2))
    lv.sample(target, None, {NAME: jnp.zeros(2)}, passes=2000, checkpoint=path)
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page, said = context.new_page(), []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    with watch.serving(path) as address:
        with Folder(path).locked():
            page.goto(address)
            assert page.inner_text("section.verdict h2") == "Running"
            # The icon that browsers ask for is not there, as nothing is but the page.
            assert [text for text in said if "404" not in text] == []
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
            assert page.evaluate("document.querySelector('img.paper').naturalWidth") > 100
            assert NAME in page.inner_text("table") and page.evaluate("window.stolen") is None
        page.wait_for_selector("text=Not running", timeout=30_000)
    context.close()
