"""The checks on the book can fail: each is run on a small copy that is broken on purpose."""

import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import jupytext
import nbformat
import nbval.kernel
import notebooks  # tools/notebooks.py
import pytest
from jupytext.config import load_jupytext_config

ROOT = notebooks.ROOT
NUMBERS = "one", "two", "three", "four", "five", "six"
CHAPTER = """---
jupytext:
  formats: ipynb,md:myst
  text_representation:
    extension: .md
    format_name: myst
    format_version: 0.13
kernelspec:
  display_name: Python 3 (ipykernel)
  language: python
  name: python3
---

(chap-tiny)=
# A tiny chapter

$$
x = 1
$$ (eq:tiny)

Equation {eq}`eq:tiny` opens {ref}`chap-tiny`.

:::{prf:theorem} One
:label: thm-tiny
One is $x$.
:::

```{code-cell} ipython3
import cvlib

print("answer", 42)
```

```{code-cell} ipython3
"right"
```

```{code-cell} ipython3
40 + 2
```
"""


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A project with the real settings and one executed chapter, number 2."""
    root = tmp_path_factory.mktemp("tiny")
    papers = "pyproject.toml", "README.md", "LICENSE", "LICENSE-text", ".gitignore"
    for name in "conftest.py", "_config.yml", "Makefile", "requirements.txt", *papers:
        shutil.copy(ROOT / name, root)
    shutil.copytree(ROOT / "tools", root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "book/_static", root / "book/_static")
    for name in "references.bib", "jupytext.toml":
        shutil.copy(ROOT / "book" / name, root / "book")
    (root / "cvlib").mkdir()
    (root / "cvlib/__init__.py").write_text('__version__ = "0.0.1"\n')
    (root / "tests").mkdir()
    for name in NUMBERS:
        (root / f"tests/test_{name}.py").write_text("def test_it():\n    pass\n")
    (root / "_toc.yml").write_text(
        "format: jb-book\nroot: book/start\nparts:\n"
        "  - caption: One\n    numbered: 1\n    chapters:\n      - file: book/first\n"
        "  - caption: Two\n    numbered: 1\n    chapters:\n      - file: book/08-tiny.ipynb\n"
        "  - caption: Appendices\n    chapters:\n      - file: book/last\n"
    )
    for page in "start", "first", "last":
        (root / f"book/{page}.md").write_text(f"# {page.title()}\n\nHello.\n")
    (root / "book/08-tiny.md").write_text(CHAPTER)
    notebooks.execute(root / "book/08-tiny.md")
    return root


@pytest.fixture
def copy(tiny, tmp_path):
    return Path(shutil.copytree(tiny, tmp_path / "copy"))


def edit(path, old, new):
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), "utf-8")


# Pairs ------------------------------------------------------------------------------------------


def test_a_whole_pair_has_no_problem_and_its_text_is_left_as_it_is(copy, capsys):
    md = copy / "book/08-tiny.md"
    assert notebooks.problem(md) is None
    notebooks.tidy(md)
    assert md.read_text("utf-8") == CHAPTER and capsys.readouterr().out == ""
    md.with_suffix(".ipynb").unlink()
    assert "missing" in notebooks.problem(md)


def out_of_step(md, suffix, old, new):
    """The bytes of the notebook, after an edit of one of the pair."""
    edit(md.with_suffix(suffix), old, new)
    assert "out of step" in notebooks.problem(md)
    return md.with_suffix(".ipynb").read_bytes()


def test_an_edit_that_leaves_the_code_keeps_its_outputs(copy):
    """Words, a notebook's own words, a tag: what is written is what an execution would write."""
    md, twin = copy / "book/08-tiny.md", copy / "book/08-tiny.ipynb"
    for suffix, old, new in (
        (".md", "# A tiny", "# One tiny"), (".ipynb", "One tiny", "One teeny"),
        (".md", "ipython3\n40", "ipython3\n:tags: [x]\n40"),
    ):  # fmt: skip
        before = out_of_step(md, suffix, old, new)
        assert notebooks.reworded(md) and notebooks.problem(md) is None
        assert twin.read_bytes() != before
    reworded = twin.read_bytes()
    notebooks.execute(md)
    assert twin.read_bytes() == reworded


def test_an_edit_of_the_code_waits_for_an_execution(copy):
    """That of the text, or of both by Lab, which keeps the old output."""
    md, twin = copy / "book/08-tiny.md", copy / "book/08-tiny.ipynb"
    edit(twin, "40 + 2", "40 + 3")
    for old, new in (("40 + 2", "40 + 3"), ("42)", "43)")):
        before = out_of_step(md, ".md", old, new)
        assert not notebooks.reworded(md) and "out of step" in notebooks.problem(md)
        assert twin.read_bytes() == before


ERROR = {"output_type": "error", "ename": "NameError", "evalue": "no x", "traceback": []}


def test_a_cell_that_was_not_run_once_and_well_is_a_problem(copy):
    path, order = copy / "book/08-tiny.ipynb", "not run from top to bottom, see the cell that "
    for change, sentence in (
        ({"execution_count": None, "outputs": []}, order),
        ({"execution_count": 7}, f"{order}begins '40 + 2'"),
        ({"outputs": [nbformat.from_dict(ERROR)]}, "holds an error: NameError: no x"),
    ):
        nb = nbformat.read(path, as_version=4)
        nb.cells[-1].update(change)
        nbformat.write(nb, path)
        assert sentence in notebooks.problem(copy / "book/08-tiny.md")


def test_what_lab_adds_to_a_notebook_is_no_problem_and_not_in_the_text(copy):
    md, path = copy / "book/08-tiny.md", copy / "book/08-tiny.ipynb"
    nb = nbformat.read(path, as_version=4)
    nb.metadata["language_info"] = {"name": "python", "version": "3.11"}
    nb.metadata["widgets"] = {"state": {}}
    for cell in nb.cells:
        cell.metadata |= {
            "trusted": True, "collapsed": True, "scrolled": True, "editable": True,
            "jp-MarkdownHeadingCollapsed": True, "jupyter": {"source_hidden": True},
            "execution": {"iopub.status.idle": "2026"}, "slideshow": {"slide_type": ""},
        }  # fmt: skip
    nbformat.write(nb, path)
    assert notebooks.problem(md) is None
    assert jupytext.writes(nb, "md:myst", config=load_jupytext_config(str(md))) == CHAPTER


FIGURE = """```{code-cell} ipython3
---
mystnb:
  figure:
    caption: |
      Forty and two: what is
      left of a sum.
  image:
    alt: >
      Nothing to see here, in as many words as it takes to fill more than one of the lines that
      jupytext writes.
---
40 + 2
"""


def test_a_caption_is_wrapped_and_the_kernel_named_as_lab_does(copy, capsys):
    md = copy / "book/08-tiny.md"
    edit(md, "```{code-cell} ipython3\n40 + 2\n", FIGURE)
    edit(md, "Python 3 (ipykernel)", "Python 3")
    notebooks.tidy(md)
    text = md.read_text("utf-8")
    assert "    caption: 'Forty and two: what is left of a sum.'\n" in text
    assert " to fill more than one of\n      the lines that jupytext writes.\n" in text
    assert "display_name: Python 3 (ipykernel)" in text and notebooks.saved(md) == text
    assert "08-tiny.md: rewrapped" in capsys.readouterr().out


# Execution --------------------------------------------------------------------------------------


def test_a_failure_is_remembered_until_an_execution_succeeds(copy, command, capsys):
    """The text may be as it was: cvlib can be at fault. The notebook stays as it was."""
    md, package = copy / "book/08-tiny.md", copy / "cvlib/__init__.py"
    before = md.with_suffix(".ipynb").read_bytes()
    package.write_text("raise ImportError('no such luck')")
    assert command("--all") == 1
    assert md.with_suffix(".ipynb").read_bytes() == before
    assert "08-tiny: FAILED, .ipynb left as it was" in capsys.readouterr().out
    said = "the last execution of 08-tiny.md failed (ImportError: no such luck)"
    assert notebooks.problem(md) == said
    package.write_text("")
    assert command() == 0
    assert capsys.readouterr().out.splitlines()[0] == "08-tiny: executing"
    assert notebooks.problem(md) is None


@pytest.fixture
def command(copy, monkeypatch):
    """The copy's own tools/notebooks.py as a command, here: a new process would import it all."""
    for name in "PYTHONPATH", "PYDEVD_DISABLE_FILE_VALIDATION":
        monkeypatch.setenv(name, "")

    def run(*options):
        monkeypatch.setattr(sys, "argv", ["notebooks.py", *options])
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(copy / "tools/notebooks.py"), run_name="__main__")
        return end.value.code

    return run


def test_a_text_that_cannot_be_read_is_named_in_few_lines(copy, command):
    cell, md = "ipython3\n40", copy / "book/08-tiny.md"
    for old, new, words in (
        (cell, "ipython3\n---\nname: a: b\n---\n40", ["at line", "need quotes"]),
        (cell, "ipython3\n:tags: [x\n40", ["at line", "expected ',' or ']'"]),
        (cell, "ipython3\n:tag: [x]\n40", ["mystnb and tags"]),
        ("kernelspec:\n", "kernelspec: {\n", ["line 8"]),
    ):
        md.write_text(CHAPTER.replace(old, new, 1), "utf-8")
        said = command("--check")
        assert said.startswith(("08-tiny.md cannot be read", "08-tiny.md: 'tag' in the header"))
        assert len(said.splitlines()) < 10 and all(word in said for word in words), said


def test_a_kernel_that_does_not_answer_is_begun_once_more(monkeypatch):
    answers, manager = iter([RuntimeError("no answer"), None, *2 * [RuntimeError("dead")]]), Mock()
    manager.return_value.client.return_value.wait_for_ready.side_effect = answers
    monkeypatch.setattr(nbval.kernel, "KernelManager", manager)
    assert nbval.kernel.start_new_kernel()[0] is manager.return_value
    assert manager.call_count == 2
    with pytest.raises(RuntimeError, match="dead"):
        nbval.kernel.start_new_kernel()


def test_ctrl_c_ends_the_kernels_with_one_line(copy):
    edit(copy / "book/08-tiny.md", "40 + 2", "import os, time\n\nPID\ntime.sleep(600)")
    edit(copy / "book/08-tiny.md", "PID", "open('pid', 'w').write(str(os.getpid()))")
    command = [sys.executable, "tools/notebooks.py"]
    run = subprocess.Popen(
        command, cwd=copy, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    pid, late = copy / "book/pid", time.monotonic() + 60
    while not (pid.exists() and pid.read_text()):
        assert time.monotonic() < late, "the cell did not start"
        time.sleep(0.1)
    os.killpg(run.pid, signal.SIGINT)
    said, _ = run.communicate(timeout=60)
    stopped = "Stopped; a chapter that was not yet executed is as it was"
    assert run.returncode == 130 and said == f"08-tiny: executing\n\n{stopped}\n"
    with pytest.raises(ProcessLookupError):  # the kernel ends, too
        for _ in range(600):
            os.kill(int(pid.read_text()), 0)
            time.sleep(0.1)


# pytest --nbval, the build, make ----------------------------------------------------------------


def run_in(folder, *command, **how):
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, **how)


@pytest.fixture
def turn(pytestconfig):
    """The place of a test in the order of a seed, as the conftest.py of this run tells it."""
    return pytestconfig.pluginmanager.get_plugin(str(ROOT / "conftest.py")).turn


def test_nbval_from_any_folder_runs_everything_and_sees_a_stale_digit(copy, turn):
    """Six tests and three cells, of which two hold an old digit: in print and as a value."""
    edit(copy / "book/08-tiny.ipynb", "answer 42", "answer 43")
    edit(copy / "book/08-tiny.ipynb", '"42"', '"41"')
    hidden = ("PYTEST_", "PYTHONPATH")  # the copy must find its own settings
    env = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
    command = sys.executable, "-m", "pytest", "--nbval", "-p", "no:cacheprovider", "--shuffle=3"
    run = run_in(copy / "cvlib", *command, env=env)
    assert run.returncode == 1
    assert "2 failed, 7 passed" in run.stdout, run.stdout
    assert "files in the order of --shuffle=3" in run.stdout
    order = sorted(NUMBERS, key=lambda name: turn(f"tests/test_{name}.py::test_it", "3"))
    assert re.findall(r"test_(\w+)\.py \.", run.stdout) == order  # another process agrees


def test_another_order_keeps_files_whole_and_chapters_first(turn):
    files = "book/1.ipynb", "book/2.ipynb", *(f"tests/test_{x}.py" for x in (*NUMBERS, "mutants"))
    tests = [f"{file}::{k}" for file in files for k in (2, 1)]
    orders = [sorted(tests, key=lambda test: turn(test, seed)) for seed in ("", *"01234567")]
    for order in orders:
        assert order[1::2] == [test.replace("::2", "::1") for test in order[::2]]
        assert {*order[:4]} == {*tests[:4]} and order[-2:] == tests[-2:]
    assert orders[0] == tests and len({*map(tuple, orders)}) == 9


def test_a_build_numbers_chapters_and_stops_at_broken_references(copy):
    """All warnings are of the references; the pages are written all the same."""
    broken = {"no1": "ref", "no2": "eq", "no3": "cite", "no4": "prf:ref", "no5": "numref"}
    words = [f"{{{role}}}`{label}`" for label, role in broken.items()]
    edit(copy / "book/start.md", "Hello.", "\n\n".join(words))
    program = Path(sys.executable).with_name("jupyter-book")
    run = run_in(copy, program, "build", ".", "-W", "-n", "--keep-going", "--all", "--quiet")
    assert run.returncode != 0
    warnings = [line for line in run.stderr.splitlines() if "WARNING" in line]
    assert all(any(label in line for label in broken) for line in warnings), warnings
    assert all(any(label in line for line in warnings) for label in broken), warnings
    page = (copy / "_build/html/book/08-tiny.html").read_text("utf-8")
    assert "<title>2. A tiny chapter" in page and "(2.1)" in page
    assert re.search(r"Theorem\s+2\.1", page)
    assert not re.search(r"https?://(unpkg|cdn|mybinder)", page)
    assert (copy / "_build/html/_static/mathjax/tex-svg-full.js").stat().st_size > 1_000_000


needs_make = pytest.mark.skipif(not shutil.which("make"), reason="no make on this machine")


REMEDIES = {  # of a Python that is too old, has no venv, or cannot install: its script
    "needs Python 3.11 or newer": "echo Python 3.9.1; exit 1",
    "apt-get install python3-venv": 'case "$2" in *venv*) exit 1;; esac',
    "Installing the requirements failed": 'case "$2" in *import*) exit 0;; esac; '
    "mkdir -p .venv/bin; printf '#!/bin/sh\\nexit 1' > .venv/bin/python; chmod +x .venv/bin/python",
}


@pytest.mark.parametrize("sentence", REMEDIES)
@needs_make
def test_make_names_the_remedy(copy, sentence):
    python = copy / "python"
    python.write_text(f"#!/bin/sh\n{REMEDIES[sentence]}\n")
    python.chmod(0o755)
    run = run_in(copy, "make", "book", f"PYTHON={python}")
    assert run.returncode != 0 and sentence in run.stdout
    assert not (copy / ".venv/.ready").exists()


@needs_make
def test_make_book_stops_before_a_page_that_would_be_false(copy):
    edit(copy / "book/08-tiny.md", "40 + 2", "40 + 3")
    (copy / "book/09-new.md").write_text(CHAPTER.replace("tiny", "new"))
    (copy / "book/09-new.failed").write_text("NameError: x")
    (copy / ".venv").symlink_to(sys.prefix)
    run = run_in(copy, "make", "--old-file=.venv/.ready", "book")
    assert run.returncode != 0 and "The book was not built" in run.stdout
    assert not (copy / "_build").exists()
    for sentence in (
        "08-tiny.md and 08-tiny.ipynb are out of step: run make notebooks",
        "the last execution of 09-new.md failed (NameError: x): run make notebooks",
        "09-new.md is in no part of _toc.yml: add the line - file: book/09-new.ipynb",
    ):
        assert sentence in run.stderr


def test_lab_as_root_says_what_to_do(monkeypatch):
    lab = pytest.importorskip("lab", reason="no Jupyter Lab on this machine")  # tools/lab.py
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(SystemExit, match="make lab ARGS=--allow-root"):
        lab.main(["--no-browser"])
