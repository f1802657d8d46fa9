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
    plan = lambda target: [
        line
        for line in subprocess.run(
            ["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.splitlines()
        if "ruff" in line
    ]
    assert plan("test") == plan("lint")
    assert "ruff check" in plan("lint")[0] and "ruff format --check" in plan("lint")[0]
