"""The project's own papers: one version everywhere, and the linter's checks before each commit."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

import cvlib

ROOT = Path(__file__).resolve().parents[1]
read = lambda name: (ROOT / name).read_text("utf-8")


def released():
    """The versions that the changelog knows, newest first."""
    return re.findall(r"^## (\d+\.\d+\.\d+) - \d{4}-\d\d-\d\d$", read("CHANGELOG.md"), re.M)


def test_one_version():
    """It is written in the package; setuptools reads it there without importing anything."""
    literal = re.findall(r'^__version__ = "([^"]+)"$', read("cvlib/__init__.py"), re.M)
    assert literal == [cvlib.__version__]
    pyproject = tomllib.loads(read("pyproject.toml"))
    assert "version" not in pyproject["project"] and pyproject["project"]["dynamic"] == ["version"]
    assert pyproject["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "cvlib.__version__"}
    assert str(yaml.safe_load(read("CITATION.cff"))["version"]) == cvlib.__version__
    assert released()[0] == cvlib.__version__


def test_the_changelog_begins_with_what_is_not_released():
    headings = re.findall(r"^## (.+)$", read("CHANGELOG.md"), re.M)
    assert headings[0] == "Unreleased" and len(headings) == 1 + len(released())
    assert released() == sorted(released(), key=lambda v: [*map(int, v.split("."))], reverse=True)


@pytest.mark.skipif(not shutil.which("make"), reason="no make on this machine")
def test_a_commit_is_linted_as_the_tests_are():
    (repo,) = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
    (hook,) = repo["hooks"]
    assert hook["entry"] == "make lint" and not hook["pass_filenames"]
    assert plan("test", "ruff") == plan("lint", "ruff")
    line = plan("lint", "ruff")[0]
    assert "ruff check" in line and "ruff format --check" in line


def plan(target, word):
    """The lines with this word among those that `make` would run."""
    command = ["make", "-n", target]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if word in line]


@pytest.mark.skipif(not shutil.which("make"), reason="no make on this machine")
def test_what_a_browser_looks_at_is_tested_apart():
    """With and without a browser at hand `make test` runs the same."""
    asks = r"def \w+\([^)]*\bbrowser"  # for a fixture
    files = (ROOT / "tests").glob("test_*.py")
    apart = {p.name for p in files if re.search(asks, p.read_text("utf-8"))}
    assert {"test_site.py", "test_lab.py", "test_pdf.py"} <= apart
    for target in "test", "units":
        (line,) = plan(target, "bin/pytest")
        assert apart <= set(re.findall(r"--ignore tests/(\S+)", line))
    (line,) = plan("site-test", "bin/pytest")
    assert apart <= set(re.findall(r" tests/(\S+)", line))
