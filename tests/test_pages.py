"""The chapters: executed twins, exercises with solutions, words of one meaning, the day."""

import ast
import re
from functools import cache, partial

import nbformat
import notebooks  # tools/notebooks.py
import pdf  # tools/pdf.py
import pytest
import reading  # tools/reading.py
import typeset  # tools/typeset.py
import yaml
from bs4 import BeautifulSoup
from jupyter_client.kernelspec import get_kernel_spec
from pybtex.database import parse_file

import cvlib

BOOK = notebooks.BOOK
CHAPTERS = notebooks.chapters()
NUMBERED = [BOOK.parent / f"{page}.md" for page in notebooks.numbers()]
INTRO = BOOK / "intro.md"
read = lambda md: md.read_text("utf-8")
cells_of = cache(lambda md: notebooks.read_text(md).cells)
each = partial(pytest.mark.parametrize, "md", ids=lambda md: md.stem)


@cache
def outputs(md):
    """(cell, output) of all that the notebook of a chapter stores."""
    cells = nbformat.read(md.with_suffix(".ipynb"), as_version=4).cells
    return [(cell, output) for cell in cells for output in cell.get("outputs", [])]


@each(CHAPTERS)
def test_the_notebook_is_the_executed_twin_of_the_text(md):
    assert notebooks.problem(md) is None, "run: make notebooks"


@each(CHAPTERS)
def test_a_save_in_jupyter_lab_leaves_the_text_as_it_is(md):
    """What Lab does on a save: the text through jupytext and back, with the kernel's own name."""
    assert notebooks.KERNEL["display_name"] == get_kernel_spec("python3").display_name
    assert notebooks.saved(md) == read(md), "make notebooks"


@each(CHAPTERS)
def test_stored_outputs_are_clean(md):
    for _, output in outputs(md):  # errors: the test of the twin
        assert output.get("name") != "stderr", output.text
        shown = [x for kind, x in output.get("data", {}).items() if re.search("^text/|svg", kind)]
        text = output.get("text", "") + "".join(shown)
        assert not re.search(r"(?<![\w.])/(home|root|tmp|work|Users)/", text), text[:300]
        assert not re.search(r"<(link|script|img|iframe)[^>]+=[\"']?https?:", text), text[:300]
        assert not re.search(r"object at 0x[0-9a-f]+", text), text[:300]


def test_the_table_of_contents_names_every_page_and_no_other():
    named = {f.removeprefix("book/") for f in notebooks.pages_of_toc()}
    chapters = {p.stem for p in CHAPTERS}
    plain = {p.stem for p in BOOK.glob("*.md")} - chapters
    assert named == {f"{c}.ipynb" for c in chapters} | plain
    assert {p.stem for p in BOOK.glob("*.ipynb")} <= chapters


def test_the_readme_shows_the_first_figure_of_the_introduction():
    picture = notebooks.first_picture(BOOK / "intro.ipynb")
    assert (BOOK / notebooks.STORY).read_bytes() == picture, "run: make notebooks"
    assert f"book/{notebooks.STORY}" in read(BOOK.parent / "README.md")


def test_cited_keys_exist_and_every_entry_is_whole():
    entries = parse_file(BOOK / "references.bib").entries
    for key, entry in entries.items():
        assert entry.persons and {"title", "year"} <= set(entry.fields), key
    cited = re.findall(r"\{cite[a-z:]*\}`([^`]+)`", "".join(map(read, BOOK.glob("*.md"))))
    assert {key.strip() for keys in cited for key in keys.split(",")} <= set(entries)


def test_no_large_file():
    """A clone stays small: what readers download is built, not stored."""
    for path in BOOK.rglob("*"):
        assert not path.is_file() or path.stat().st_size < 2_000_000, path


@each(NUMBERED)
def test_four_to_six_exercises_all_but_the_project_with_a_folded_solution(md):
    text = read(md)
    blocks = re.findall(r"^:::+\{exercise(?:-start)?\} ?(.*)\n((?::\w+:.*\n)*)", text, re.M)
    titles = [title for title, _ in blocks]
    labels = [re.search(r":label: (\S+)", options)[1] for _, options in blocks]
    assert 4 <= len(titles) <= 6 and len(set(labels)) == len(labels)
    for title in titles:
        assert re.fullmatch(r"★{1,3} (warm-up|derivation|computation|(open )?project)", title)
    assert titles[0] == "★ warm-up"
    assert ["project" in title for title in titles] == [False] * (len(titles) - 1) + [True]
    solved = re.findall(r"^:::+\{solution(?:-start)?\} (\S+)(\n(?::\w+:.*\n)*)?", text, re.M)
    assert sorted(label for label, _ in solved) == sorted(labels[:-1])
    assert all(":class: dropdown" in options for _, options in solved)


@each(NUMBERED)
def test_a_chapter_ends_with_a_summary_and_its_history_with_sources(md):
    text = read(md)
    last = [title for title in re.findall(r"^## (.+)$", text, re.M) if title != "Exercises"][-2:]
    assert last == ["In three sentences", "History and further reading"]
    history = text.split("## History and further reading\n")[1].split("\n## ")[0]
    assert history.count("{cite") >= 3


@each(CHAPTERS)
def test_sliders_are_small_and_every_picture_has_words(md):
    """A slider's page is under 700 KB, with a label, a value and an alt text each."""
    for cell, output in outputs(md):
        page = output.get("data", {}).get("text/html", "")
        if "cv-slider" in page:
            assert len(page) < 700_000, cell.source
            alts = re.findall(r'<img [^>]*?alt="([^"]*)"', page)
            values = re.search(r'data-values="([^"]*)"', page)[1].split("|")
            assert len(alts) == len(values) == page.count("<img")
            assert all(len(alt) > 20 for alt in alts) and len(set(alts)) == len(alts)
            assert 'type="range"' in page and "aria-valuetext" in page
    for cell in cells_of(md):
        if "plt.show()" in cell.source:
            alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
            assert len(alt) > 40, notebooks.first_line(cell)


@each(CHAPTERS)
def test_tables_are_tables_and_stored_results_are_read_by_one_helper(md):
    """No three printed lines have three columns each, but those of a `cv.report`."""
    columns = lambda line: len(re.split(r" {2,}", line.strip())) > 2
    for cell in cells_of(md):
        assert cell.cell_type != "code" or not re.search(r"json\.load|read_text", cell.source)
    for _, output in outputs(md):
        lines = output.get("text", "").splitlines()
        wide = "".join("x" if columns(line) else "." for line in lines)
        assert "xxx" not in wide or "pilot draws" in lines[0], output.text


def test_the_map_has_the_parts_and_chapters_of_the_contents_in_order():
    toc = yaml.safe_load((notebooks.ROOT / "_toc.yml").read_text("utf-8"))["parts"]
    rows = re.findall(r"^\| (.*?) ?\| \{ref\}.*\{minutes\}`(.*?)` \|$", read(INTRO), re.M)
    mapped = {}
    for part, page in rows:
        mapped.setdefault(part or list(mapped)[-1], []).append(page)
    page = lambda chapter: re.sub(r"^book/|\.ipynb$", "", chapter["file"])
    listed = {part["caption"]: list(map(page, part["chapters"])) for part in toc}
    inside = [*listed.items()][1:-1]  # the first is "In a hurry", the last the appendices
    assert list(mapped.items()) == inside and all(len(pages) <= 8 for _, pages in inside)


def test_each_class_of_the_page_on_own_words_takes_fewer_than_twenty_lines():
    """So the page says; whether each works its own cells assert."""
    text, lengths = read(BOOK / "extending.md"), {}
    for cell in re.findall(r"```\{code-cell\} ipython3\n(.*?)```", text, re.S):
        lines = cell.splitlines()
        for node in (n for n in ast.parse(cell).body if isinstance(n, ast.ClassDef)):
            own = lines[node.lineno - 1 : node.end_lineno]
            lengths[node.name] = sum(bool(line.strip()) for line in own)
    assert len(lengths) == 5 and max(lengths.values()) < 20


def test_the_page_on_the_package_has_every_file_but_the_definitions():
    told = re.findall(r"automodule:: (cvlib\S+)", read(BOOK / "internals.md"))
    paths = (BOOK.parent / "cvlib").rglob("*.py")
    parts = [p.relative_to(BOOK.parent).with_suffix("").parts for p in paths]
    files = {".".join(names) for names in parts if names[-1] not in ("__init__", "definitions")}
    assert {*told} == files and len(told) == len(files)


@each(NUMBERED[: NUMBERED.index(BOOK / "rao-blackwell.md")])
def test_the_papers_part_asks_for_the_core_alone(md):
    """Up to the paper's experiments no name is used that is imported when it is asked for."""
    places = {name: place for names in cvlib.LATER.values() for name, place in names.items()}
    late = {*places, *(place.split(".")[0] for place in places.values())} - {"definitions"}
    cells = [cell.source for cell in notebooks.read_text(md).cells if cell.cell_type == "code"]
    for node in ast.walk(ast.parse("\n".join(cells))):
        used = set()
        if isinstance(node, ast.Attribute) and ast.unparse(node).startswith("cv."):
            used = {node.attr}
        elif isinstance(node, ast.ImportFrom) and node.module.startswith("cvlib"):
            used = {*node.module.split("."), *(alias.name for alias in node.names)}
        assert not used & late, ast.unparse(node)


# The day ----------------------------------------------------------------------------------------


def test_the_day_goes_through_the_book_in_order():
    """Nine whole chapters, each an hour at most, in a day."""
    order = [md.stem for md in NUMBERED]
    places = [order.index(page) for page in reading.day()]
    assert len(places) == 9 and places == sorted(places)
    assert max(map(reading.minutes, reading.day())) < 75


def test_reading_times_count_words_code_and_formulas_but_nothing_folded(tmp_path):
    (tmp_path / "book").mkdir()
    text = "# A\n\n## One\n\n" + "word " * 260 + "\n\n$$\nx\n$$\n\n## Two\n\n"
    text += "```{code-cell} ipython3\n---\nmystnb: {}\n---\n" + "x\n" * 24 + "```\n\n## Three\n\n"
    text += "```{code-cell} ipython3\n:tags: [hide-input]\n\n" + "x\n" * 24 + "```\n\n"
    text += ":::{solution} ex\n" + "word " * 1000 + "\n:::\n"
    text += ":::{admonition} Proof\n:class: dropdown\n\n" + "word " * 1000 + "\n:::\n"
    (tmp_path / "book/a.md").write_text(text + "\n## Exercises\n" + "word " * 1000)
    assert 6.1 < reading.minutes("a", tmp_path) < 6.5  # 2.6 + 1 + 2 + .5, and headings


def test_a_formula_broken_for_phones_is_joined_if_it_is_one_and_fits():
    for broken, whole in {
        r"a ={}& b \\ & + c .": r"a ={}& b + c .",
        r"& a \\ & \quad = b \\ & \qquad {} - c": r"& a = b - c",
        r"a &= b \\ &= c": None,  # a chain
        r"a &= b, \\ c &= d": None,  # two formulas
        r"a ={}& b \\ & + " + "c" * 70: None,  # too long for a line
    }.items():
        made = typeset.joined(r"\begin{aligned}" + broken + r"\end{aligned}")
        assert made == r"\begin{aligned}" + (whole or broken) + r"\end{aligned}"


def test_on_paper_a_section_says_once_which_code_is_left_out():
    fold = '<div class="cell"><details class="above-input">code</details><p>out</p></div>'
    page = f"<section>{fold}<section>{fold}<div class='cell'>x</div>{fold}</section></section>"
    found = BeautifulSoup(page, "html.parser")
    pdf.without_folded_code(found, "book/a.html")
    lines = [line.get_text() for line in found.select(".left-out")]
    assert lines == [f"Code left out: {which} of a.ipynb" for which in ("cell 1", "cells 2 and 4")]
    assert "code" not in found.get_text() and found.get_text().count("out") == 5


# Words, each with one meaning and the field's own -------------------------------------------------

BANNED = {  # what stood in the first edition, and what a word must not mean: what to write
    r"\beven draws\b": "moment-matched draws", r"(?<!ticking )\bthe landing\b": "STL",
    r"\bparabolas?\b": "quadratic", r"\b(at|between) (a|each|every|two) looks?\b": "checkpoint",
    r"\bplateaus?\b": "stationary gap",
    r"\b(?-i:prices?)\b(?!')": "cost, or stationary loss",
    r"\bPrice's (formula|gradient)\b": "the Bonnet-Price gradient",
    r"\bswitch(es)?\b": "Bernoulli variable", r"\bgauge\b": "score residual",
    r"\bkept apart\b": "spread rotations", r"\bshare of (the |its )?draws\b": "relative ESS",
    r"\bweights keep\b": "relative ESS", r"\bopposite (pairs|draws)\b": "antithetic pairs",
    r"\b[Oo]wn words\b": "methods", r"\bleans? on each other\b": "dependent",
    r"\bsummed out\b": "marginalised", r"\bStudent's law\b": "Student-t",
    r"\bnats (missing|short)\b": "nats below the optimum", r"\bdear\b": "expensive",
    r"\bin the head\b": "by hand", r"\bno number\b(?! of)": "not finite",
    r"\ba look at (all |the )?(data|rows)\b": "a pass",
}  # fmt: skip
FIELD = {  # an abbreviation: its name, which stands beside it, before it or on the same screen
    r"\bSTL\b": "[Ss]ticking the landing|{ref}`chap-pairs`",
    r"\bSF\b": "[Ss]core function|REINFORCE", r"\bRP1\b": "[Rr]eparameteri|pathwise",
    r"\bPR\b": "Price|Bonnet", r"\bQD\b": "[Qq]uadrature", r"\bLOO\b": "[Ll]eave-one-out|RLOO",
    r"[Rr]otated draws": "spherical-radial|sphere",
}  # fmt: skip


@each(NUMBERED)
def test_no_word_has_a_second_meaning_and_the_field_s_name_stands_beside_ours(md):
    text = re.sub(r"\A---\n.*?\n---\n", "", read(md), flags=re.S)
    text = re.sub(r"\{term\}`([^`<]*)[^`]*`", r"\1", text)
    names = (
        r"^:+\{solution[^\n]*$|^\([\w:-]+\)=$|^:label:[^\n]*$|^\$\$ \(eq:[^\n]*$|\{[\w:]+\}`[^`]*`"
    )
    prose = re.sub(rf"^```.*?^```|{names}|`[^`\n]*`", "", text, flags=re.M | re.S)  # without code
    for wrong, right in BANNED.items():
        found = re.search(wrong, prose)
        assert not found, f"{prose[found.start() - 40 : found.end() + 20]!r}: write {right}"
    for ours, theirs in FIELD.items():
        if used := re.search(ours, prose):
            known = re.search(theirs, prose)
            assert known and known.start() < used.end() + 1500, (ours, theirs)


def test_the_glossary_defines_each_word_once_and_has_the_first_edition_s():
    """Its old name stands in brackets, once, behind the field's."""
    text = read(BOOK / "notation.md").split("```{glossary}")[1].split("```")[0]
    defined = re.findall(r"^(\S.*)\n  (\S.*)", text.split(":sorted:")[1], re.M)
    words = [word for word, _ in defined]
    assert len(words) == len(set(words)) >= 60
    old = re.findall(r"\(Called (.+?) in the first edition\.\)", text)
    said = ", ".join(old).replace("*", "").split(", ")
    first = re.findall(
        r"^\| (.+?) \| .+ \|$", read(BOOK / "from-0.13.md").split("## Names")[0], re.M
    )
    missing = {name.split(",")[0] for name in first[2:]} - {*said}
    assert not missing, missing
