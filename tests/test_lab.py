"""A chapter in Jupyter Lab, in a real browser: run it, move its slider, save, edit, open it again.

Lab is started as `make lab` does, on a copy of the project in a repository of its own, so that git
says what a save changed. Skipped where there is no browser; CVBOOK_BROWSER=required fails instead.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
import sitecheck  # tools/sitecheck.py

ROOT = Path(__file__).resolve().parents[1]
CHAPTER = "one-control-variate"
OTHERS = ".git", ".venv", "_build", "__pycache__", ".*cache", ".hypothesis", "*.egg-info", "cells"
pytestmark = pytest.mark.site


def command(folder, *words):
    run = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def make(target):
    """The command of a target, without renewing the environment that runs this test."""
    return ["make", "--no-print-directory", "--old-file=.venv/.ready", target]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the project, committed, that uses the environment of this test."""
    root = tmp_path_factory.mktemp("lab") / "project"
    shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(*OTHERS))
    (root / ".venv").symlink_to(sys.prefix)
    command(root, "git", "init", "--quiet")
    command(root, "git", "add", "--all")
    who = "-c", "user.name=A reader", "-c", "user.email=reader@example.org"
    command(root, "git", *who, "commit", "--quiet", "--message", "The book")
    return root


@pytest.fixture(scope="module")
def lab(project):
    """The address of a running Lab, started by make; settings and trust of its own."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    options = f"--no-browser --allow-root --expose-app-in-browser --port={port} "
    options += "--ServerApp.port_retries=0 --IdentityProvider.token=reader"
    own = {f"JUPYTER_{k}_DIR": str(project.parent / k) for k in ("CONFIG", "DATA", "RUNTIME")}
    log = project.parent / "lab.log"
    with log.open("w") as out:
        how = {"cwd": project, "env": os.environ | own, "start_new_session": True}
        server = subprocess.Popen([*make("lab"), f"ARGS={options}"], stdout=out, stderr=out, **how)
    try:
        wait_for(port, server, log)
        yield f"http://localhost:{port}/lab?reset&token=reader"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(timeout=60)


def wait_for(port, server, log):
    for _ in range(600):
        assert server.poll() is None, log.read_text("utf-8")
        try:
            socket.create_connection(("localhost", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"Lab did not start:\n{log.read_text('utf-8')}")


class Reader:
    """What a reader does in Lab with one chapter at a time."""

    def __init__(self, browser, lab):
        self.page = browser.new_page(viewport={"width": 1280, "height": 900})
        self.page.set_default_timeout(sitecheck.PATIENCE)
        self.page.goto(lab)
        self.page.wait_for_function("() => window.jupyterapp?.restored.then(() => true)")

    def do(self, name, **args):
        """A command of Lab's menus, waited for; Lab must not ask or complain."""
        do = """([name, args]) => {
          window.done = false;
          jupyterapp.commands.execute(name, args).then(() => window.done = true);
        }"""
        self.page.evaluate(do, [name, args])
        self.wait_for("window.done")

    def wait_for(self, condition):
        self.page.wait_for_function(f"() => document.querySelector('.jp-Dialog') || ({condition})")
        said = self.page.locator(".jp-Dialog").all_inner_texts()
        assert not said, said

    def open(self, name):
        """By a double click, or for a text by Open With, Jupytext Notebook."""
        factory = "Jupytext Notebook" if name.endswith(".md") else "Notebook"
        self.do("docmanager:open", path=name, factory=factory)
        kernel = "jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel"
        language = "jupyterapp.shell.currentWidget?.model?.getMetadata('language_info')"
        self.wait_for(f"{kernel}?.status === 'idle' && {language}")  # what Lab adds when it opens

    def close(self):
        self.do("application:close")
        self.page.locator(".jp-NotebookPanel").wait_for(state="detached")

    def slider(self):
        """The box with the slider; cells out of sight are not in the page, so go to its cell."""
        go = """() => {
          const all = jupyterapp.shell.currentWidget.content;
          const cell = all.widgets.findIndex(c => /slider\\(/.test(c.model.sharedModel.source));
          return all.scrollToItem(cell, 'center');
        }"""
        self.page.evaluate(go)
        box = self.page.locator(".cv-slider")
        box.wait_for()
        return box

    def counts(self):
        code = "jupyterapp.shell.currentWidget.content.widgets.filter(c => c.model.type === 'code')"
        return self.page.evaluate(f"() => {code}.map(c => c.model.executionCount)")


@pytest.fixture(scope="module")
def reader(browser, lab):
    return Reader(browser, lab)


def changed(project):
    return [line[3:] for line in command(project, "git", "status", "--porcelain").splitlines()]


def without_pictures(text):
    """A notebook but for what another processor may draw another way, which no test compares."""
    nb = nbformat.reads(text, as_version=4)
    for cell in nb.cells:
        if "nbval-ignore-output" in cell.metadata.get("tags", []):
            cell.outputs = []
        for output in cell.get("outputs", []):
            output.get("data", {}).pop("image/png", None)
    return nb


def test_a_chapter_that_was_only_opened_is_left_as_it_is(reader, project):
    """Lab holds it for changed, and saves it after two minutes. Its slider says what to do."""
    reader.open(f"{CHAPTER}.ipynb")
    box = reader.slider()
    assert box.locator("input").is_disabled()
    assert "once you run this cell" in box.inner_text()
    reader.do("docmanager:save")
    reader.close()
    assert changed(project) == []


@pytest.mark.parametrize("suffix", ["ipynb", "md"])
def test_a_chapter_is_run_and_saved_and_left_as_it_is(reader, project, suffix):
    reader.open(f"{CHAPTER}.{suffix}")
    reader.do("notebook:run-all-cells")
    assert reader.counts() == list(range(1, len(reader.counts()) + 1))
    box = reader.slider()
    assert "once you run this cell" not in box.inner_text()
    box.locator("input").focus()
    active = "jupyterapp.shell.currentWidget.content.activeCellIndex"
    cell, value = reader.page.evaluate(active), box.locator("output").inner_text()
    reader.page.keyboard.press("ArrowRight")
    assert box.locator("output").inner_text() != value
    assert reader.page.evaluate(active) == cell
    reader.do("docmanager:save")
    reader.close()
    twin = f"book/{CHAPTER}.ipynb"
    assert set(changed(project)) <= {twin}
    before = without_pictures(command(project, "git", "show", f"HEAD:{twin}"))
    assert without_pictures((project / twin).read_text("utf-8")) == before


def test_an_edit_changes_its_line_and_the_chapter_is_executed_and_opened_again(reader, project):
    md = project / f"book/{CHAPTER}.md"
    for suffix in "ipynb", "md":
        before = md.read_text("utf-8").splitlines()
        reader.open(f"{CHAPTER}.{suffix}")
        reader.page.locator(".jp-CodeCell .cm-line").first.click()
        reader.page.keyboard.press("End")
        reader.page.keyboard.type(f"  # {suffix}")
        reader.do("docmanager:save")
        reader.close()
        after = md.read_text("utf-8").splitlines()
        assert len(after) == len(before)
        ((old, new),) = [(a, b) for a, b in zip(before, after) if a != b]
        assert new == f"{old}  # {suffix}"

    said = command(project, *make("notebooks"))
    assert f"{CHAPTER}: executed" in said
    assert "1 of " in said  # no other chapter had changed
    for suffix in "ipynb", "md":
        reader.open(f"{CHAPTER}.{suffix}")
        assert reader.page.locator(".cm-line", has_text="# ipynb  # md").count() == 1
        reader.do("docmanager:save")
        reader.close()
    assert changed(project) == [f"book/{CHAPTER}.ipynb", f"book/{CHAPTER}.md"]
    assert command(project, *make("notebooks")).startswith("0 of ")
