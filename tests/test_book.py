"""The chapters as files: each text has its executed twin, and the contents list names them all."""

import re

import jupytext
import nbformat
import notebooks  # tools/notebooks.py
import pytest
from jupyter_client.kernelspec import get_kernel_spec
from jupytext.config import load_jupytext_config

BOOK = notebooks.BOOK
CHAPTERS = notebooks.chapters()
stem = lambda path: path.stem


@pytest.mark.parametrize("md", CHAPTERS, ids=stem)
def test_the_notebook_is_the_executed_twin_of_the_text(md):
    assert notebooks.problem(md) is None, "run: make notebooks"


@pytest.mark.parametrize("md", CHAPTERS, ids=stem)
def test_a_save_in_jupyter_lab_leaves_the_text_as_it_is(md):
    """What Lab does on a save: the text through jupytext and back, with the kernel's own name."""
    config = load_jupytext_config(str(md))
    nb = jupytext.read(md, config=config)
    assert nb.metadata.kernelspec.display_name == get_kernel_spec("python3").display_name
    assert jupytext.writes(nb, "md:myst", config=config) == md.read_text("utf-8"), "make notebooks"


@pytest.mark.parametrize("md", CHAPTERS, ids=stem)
def test_stored_outputs_are_clean(md):
    """Readers see no warning, no error, no machine's path, nothing fetched from elsewhere."""
    for cell in nbformat.read(md.with_suffix(".ipynb"), as_version=4).cells:
        for output in cell.get("outputs", []):
            assert output.output_type != "error", cell.source
            assert output.get("name") != "stderr", output.text
            text = output.get("text", "") + "".join(
                value
                for kind, value in output.get("data", {}).items()
                if kind.startswith("text/") or kind.endswith("svg+xml")
            )
            assert not re.search(r"(?<![\w.])/(home|root|tmp|work|Users)/", text), text[:300]
            assert not re.search(r"<(link|script|img|iframe)[^>]+=[\"']?https?:", text), text[:300]
            assert not re.search(r"object at 0x[0-9a-f]+", text), text[:300]


def test_every_notebook_comes_from_a_text():
    assert {p.stem for p in BOOK.glob("*.ipynb")} <= {p.stem for p in CHAPTERS}


def test_the_table_of_contents_names_every_page_and_no_other():
    named = {f.removeprefix("book/") for f in notebooks.pages_of_toc()}
    chapters = {p.stem for p in CHAPTERS}
    plain = {p.stem for p in BOOK.glob("*.md")} - chapters
    assert named == {f"{c}.ipynb" for c in chapters} | plain


def test_the_readme_shows_the_first_figure_of_the_introduction():
    picture = notebooks.first_picture(BOOK / "intro.ipynb")
    assert (BOOK / notebooks.STORY).read_bytes() == picture, "run: make notebooks"
    assert f"book/{notebooks.STORY}" in (BOOK.parent / "README.md").read_text("utf-8")


def test_cited_keys_exist_and_every_entry_is_whole():
    from pybtex.database import parse_file

    entries = parse_file(BOOK / "references.bib").entries
    for key, entry in entries.items():
        assert entry.persons and {"title", "year"} <= set(entry.fields), key
    text = "".join(p.read_text("utf-8") for p in BOOK.glob("*.md"))
    cited = {
        key.strip()
        for keys in re.findall(r"\{cite[a-z:]*\}`([^`]+)`", text)
        for key in keys.split(",")
    }
    assert cited <= set(entries)


def test_no_large_file():
    """A clone stays small: what readers download is built, not stored."""
    for path in BOOK.rglob("*"):
        assert not path.is_file() or path.stat().st_size < 2_000_000, path
