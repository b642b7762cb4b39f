"""A headless Chromium, where there is one; with LANGEVIN_NEED_BROWSER=1 it is an error if there is none."""

import os
import shutil

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# No sandbox: it does not start for root, and what these pages load was written by the test before. No other traffic.
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


def missing(what):
    text = f"{what}: see make test-browser"
    if os.environ.get("LANGEVIN_NEED_BROWSER") == "1":
        pytest.fail(text)
    pytest.skip(text)


@pytest.fixture(scope="session")
def browser():
    path = os.environ.get("CHROMIUM") or next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        missing("no Chromium was found")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("the extra browser is not installed")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield chromium
        chromium.close()
