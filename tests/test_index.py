"""The lists in the back of the book: they are whole, in order, and made of what the pages say."""

import re
import subprocess
import sys
from pathlib import Path

import notebooks  # tools/notebooks.py
import pytest

import cvlib

BOOK = notebooks.BOOK
TOOLS = Path(notebooks.__file__).parent

PAGES = {
    "conf.py": f"""
import sys
sys.path.insert(0, {str(TOOLS)!r})
extensions = ["myst_parser", "sphinx_proof", "sphinx.ext.mathjax", "backmatter"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
""",
    "index.md": "# Start\n\n```{toctree}\n:numbered: 1\nb\na\ncode\nconcepts\nproofs\n```\n",
    "a.md": "# Second\n\n:::{prf:lemma} A (small) step\n:label: lem-small\nx.\n:::\n\n"
    "$$x$$ (eq:width)\n",
    "b.md": "# First\n\n:::{prf:theorem} Narrow $q$\n:label: thm-narrow\nx.\n:::\n\n"
    "$$x$$ (eq:second)\n",
    "code.md": "# Code\n\n```{eval-rst}\n.. py:function:: slope(f)\n\n   The slope f' of f.\n```\n",
    "concepts.md": "# Ideas\n\n- width, see scale: {prf:ref}`thm-narrow`, {eq}`eq:width`, "
    "{eq}`eq:second`\n",
    "proofs.md": "# Proofs\n\n```{proof-index}\n```\n",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A small site with the extension."""
    root = tmp_path_factory.mktemp("site")
    for name, text in PAGES.items():
        (root / name).write_text(text)
    build = [sys.executable, "-m", "sphinx", "-q", "-W", ".", "out"]
    subprocess.run(build, cwd=root, check=True, capture_output=True)
    return root / "out"


def test_ideas_are_in_the_alphabetical_index_and_in_the_search(built):
    page = (built / "genindex.html").read_text("utf-8")
    assert re.search(r">(<strong>)?width(</strong>)?</a>", page)
    assert "b.html#thm-narrow" in page and "a.html#equation-eq-width" in page
    assert "b.html#equation-eq-second" not in page  # one entry a page
    assert '"width": [[' in (built / "searchindex.js").read_text("utf-8")


def test_docstrings_keep_their_primes(built):
    assert "slope f' of f" in (built / "code.html").read_text("utf-8")


def test_the_list_of_theorems_has_titles_and_links_in_the_books_order(built):
    page = (built / "proofs.html").read_text("utf-8")
    assert 'href="b.html#thm-narrow">Theorem 1.1</a> Narrow <span class="math' in page
    assert 'href="a.html#lem-small">Lemma 2.1</a> A (small) step</p>' in page
    assert page.index("Theorem 1.1") < page.index("Lemma 2.1")
    assert "tex-mml-chtml.js" in page  # MathJax, which Sphinx gives to pages with formulas
    assert not (built / "prf-prf.html").exists()  # the list of raw labels


def test_the_concept_index_is_in_order_and_knows_its_letters():
    letters = re.split(r"^## (\w)$", (BOOK / "concepts.md").read_text("utf-8"), flags=re.M)[1:]
    assert letters[::2] == sorted(letters[::2])
    entries = []
    for letter, body in zip(letters[::2], letters[1::2], strict=True):
        names = re.findall(r"^- (.+?): ", body, flags=re.M)
        assert len(names) == body.count("\n- ") + body.startswith("- "), letter
        words = [re.sub(r"\{term\}`(.+?)`", r"\1", name) for name in names]
        keys = [re.sub(r"[^a-z0-9 ]", "", w.lower().replace("-", " ")) for w in words]
        assert keys == sorted(keys), letter
        assert {key[0] for key in keys} == {letter.lower()}
        entries += keys
    assert len(entries) == len(set(entries)) >= 80


def test_every_word_of_the_glossary_is_in_the_concept_index():
    concepts = (BOOK / "concepts.md").read_text("utf-8")
    glossary = (BOOK / "glossary.md").read_text("utf-8").split("```")[1]
    words = re.findall(r"^(\S.*)$", glossary.split(":sorted:")[1], flags=re.M)
    assert len(words) >= 50
    missing = [w for w in words if f"{{term}}`{w}`" not in concepts]
    assert not missing, missing


def test_the_package_page_has_every_public_name():
    page = (BOOK / "api.md").read_text("utf-8")
    assert not [n for n in cvlib.__all__ if not re.search(rf"\b(cv\.)?{n}\b", page)]
