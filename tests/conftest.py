"""A real browser for the tests that look at pages as a reader does."""

import os

import pytest
import sitecheck  # tools/sitecheck.py


@pytest.fixture(scope="session")
def browser_required():
    """With CVBOOK_BROWSER=required (as in CI) nothing of the browser tests is skipped."""
    return os.environ.get("CVBOOK_BROWSER") == "required"


@pytest.fixture(scope="module")  # no longer: while it is open, nothing else here can use asyncio
def browser(browser_required):
    if not sitecheck.chromium():
        missing = pytest.fail if browser_required else pytest.skip
        missing("no browser: install chromium to open the pages as a reader does")
    with sitecheck.browser() as opened:
        yield opened
