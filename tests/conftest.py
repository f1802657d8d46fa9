"""A copy of the package for checks, and a real browser for pages as a reader sees them."""

import os

import harness
import pytest
import sitecheck  # tools/sitecheck.py


@pytest.fixture(scope="module")
def cv():
    """A copy of the package without a bug, one for the tests of a file (harness.py says why)."""
    with harness.copy() as load:
        yield load()


def pytest_collection_modifyitems(items):
    """Classes of a copy that is there no longer would warn as they are shown."""
    for item in items:
        if "cv" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.filterwarnings("ignore"), append=False)


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
