"""The checks on the book can fail: each is run on a small copy that is broken on purpose."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import notebooks  # tools/notebooks.py
import pytest

ROOT = notebooks.ROOT
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
40 + 2
```
"""


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A project with the real settings and one executed chapter, number 8."""
    root = tmp_path_factory.mktemp("tiny")
    for name in "conftest.py", "pyproject.toml", "_config.yml", "Makefile", "requirements.txt":
        shutil.copy(ROOT / name, root)
    shutil.copytree(ROOT / "tools", root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "book/_static", root / "book/_static")
    for name in "references.bib", "jupytext.toml":
        shutil.copy(ROOT / "book" / name, root / "book")
    (root / "cvlib").mkdir()
    (root / "cvlib/__init__.py").touch()
    (root / "tests").mkdir()
    (root / "tests/test_one.py").write_text("def test_one():\n    pass\n")
    (root / "_toc.yml").write_text(
        "format: jb-book\nroot: book/start\nparts:\n  - caption: Part\n    numbered: 1\n"
        "    chapters:\n      - file: book/08-tiny.ipynb\n"
    )
    (root / "book/start.md").write_text("# Start\n\nHello.\n")
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


def test_a_whole_pair_has_no_problem(copy):
    assert notebooks.problem(copy / "book/08-tiny.md") is None


@pytest.mark.parametrize(
    "old, new",
    [("42)", "43)"), ("# A tiny", "# One tiny"), ("ipython3\n40", "ipython3\n:tags: [x]\n40")],
    ids=["code", "words", "tag"],
)
def test_an_edited_text_is_out_of_step(copy, old, new):
    edit(copy / "book/08-tiny.md", old, new)
    assert "out of step" in notebooks.problem(copy / "book/08-tiny.md")


def test_an_edited_notebook_is_out_of_step(copy):
    edit(copy / "book/08-tiny.ipynb", "A tiny chapter", "A teeny chapter")
    assert "out of step" in notebooks.problem(copy / "book/08-tiny.md")


def test_a_missing_notebook_is_a_problem(copy):
    (copy / "book/08-tiny.ipynb").unlink()
    assert "missing" in notebooks.problem(copy / "book/08-tiny.md")


def test_a_cell_that_was_never_executed_is_a_problem(copy):
    path = copy / "book/08-tiny.ipynb"
    nb = nbformat.read(path, as_version=4)
    nb.cells[-1].update(execution_count=None, outputs=[])
    nbformat.write(nb, path)
    assert "never executed: 40 + 2" in notebooks.problem(copy / "book/08-tiny.md")


# The text as Jupyter Lab saves it ---------------------------------------------------------------

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
WRAPPED = """    caption: 'Forty and two: what is left of a sum.'
  image:
    alt: Nothing to see here, in as many words as it takes to fill more than one of
      the lines that jupytext writes.
"""


def test_a_text_is_left_as_it_is(copy, capsys):
    notebooks.tidy(copy / "book/08-tiny.md")
    assert (copy / "book/08-tiny.md").read_text("utf-8") == CHAPTER
    assert capsys.readouterr().out == ""


def test_a_caption_is_wrapped_and_the_kernel_named_as_lab_does(copy, capsys):
    md = copy / "book/08-tiny.md"
    edit(md, "```{code-cell} ipython3\n40 + 2\n", FIGURE)
    edit(md, "Python 3 (ipykernel)", "Python 3")
    notebooks.tidy(md)
    assert WRAPPED in md.read_text("utf-8")
    assert "display_name: Python 3 (ipykernel)" in md.read_text("utf-8")
    assert "08-tiny.md: rewrapped" in capsys.readouterr().out
    assert notebooks.saved(md) == md.read_text("utf-8")


# Execution --------------------------------------------------------------------------------------


def test_a_second_run_writes_the_same_bytes(copy):
    path = copy / "book/08-tiny.ipynb"
    first = path.read_bytes()
    notebooks.execute(copy / "book/08-tiny.md")
    assert path.read_bytes() == first


def test_a_failing_chapter_leaves_its_notebook_alone(copy):
    edit(copy / "book/08-tiny.md", "40 + 2", "1 / 0")
    before = (copy / "book/08-tiny.ipynb").read_bytes()
    with pytest.raises(notebooks.CellExecutionError, match="ZeroDivisionError"):
        notebooks.execute(copy / "book/08-tiny.md")
    assert (copy / "book/08-tiny.ipynb").read_bytes() == before


# pytest --nbval, alone, from inside a folder ----------------------------------------------------


def run_nbval(folder):
    hidden = ("PYTEST_", "PYTHONPATH")  # the copy must find its own settings
    env = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
    command = [sys.executable, "-m", "pytest", "--nbval", "-p", "no:cacheprovider"]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


def test_nbval_from_any_folder_runs_everything(copy):
    run = run_nbval(copy / "cvlib")
    assert run.returncode == 0, run.stdout
    assert "3 passed" in run.stdout  # one test, two cells


@pytest.mark.parametrize("old, new", [("answer 42", "answer 43"), ('"42"', '"41"')])
def test_one_stale_digit_fails(copy, old, new):
    edit(copy / "book/08-tiny.ipynb", old, new)
    run = run_nbval(copy / "book")
    assert run.returncode == 1
    assert "1 failed" in run.stdout


# The build --------------------------------------------------------------------------------------


def build(root):
    program = Path(sys.executable).with_name("jupyter-book")
    command = [program, "build", ".", "-W", "-n", "--keep-going", "--all", "--quiet"]
    return subprocess.run(command, cwd=root, capture_output=True, text=True)


def test_a_chapter_has_the_number_of_its_file(copy):
    run = build(copy)
    assert run.returncode == 0, run.stdout + run.stderr
    page = (copy / "_build/html/book/08-tiny.html").read_text("utf-8")
    assert "<title>8. A tiny chapter" in page
    assert "(8.1)" in page
    assert re.search(r"Theorem\s+8\.1", page)
    assert not re.search(r"https?://(unpkg|cdn|mybinder)", page)
    assert (copy / "_build/html/_static/mathjax/tex-svg-full.js").stat().st_size > 1_000_000


def test_a_broken_reference_fails_the_build(copy):
    broken = "{ref}`no1`", "{eq}`no2`", "{cite}`no3`", "{prf:ref}`no4`", "{numref}`no5`"
    edit(copy / "book/start.md", "Hello.", "\n\n".join(broken))
    run = build(copy)
    assert run.returncode != 0
    warnings = [line for line in run.stderr.splitlines() if "WARNING" in line]
    for label in "no1", "no2", "no3", "no4", "no5":
        assert any(label in line for line in warnings), label


# make says what to do ---------------------------------------------------------------------------


def make(root, python):
    return subprocess.run(
        ["make", "book", f"PYTHON={python}"], cwd=root, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    "script, sentence",
    [
        ("echo Python 3.9.1; exit 1", "needs Python 3.11 or newer"),
        ('case "$2" in *venv*) exit 1;; esac', "apt-get install python3-venv"),
        (
            'case "$2" in *import*) exit 0;; esac; mkdir -p .venv/bin;'
            "printf '#!/bin/sh\\nexit 1' > .venv/bin/python; chmod +x .venv/bin/python",
            "Installing the requirements failed",
        ),
    ],
    ids=["old", "no-venv", "failed-install"],
)
@pytest.mark.skipif(not shutil.which("make"), reason="no make on this machine")
def test_make_names_the_remedy(copy, script, sentence):
    python = copy / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    run = make(copy, python)
    assert run.returncode != 0
    assert sentence in run.stdout
    assert not (copy / ".venv/.ready").exists()
