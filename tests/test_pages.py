"""The chapters: executed twins, exercises with solutions, words of one meaning, the short path."""

import ast
import re
from functools import cache, partial

import nbformat
import notebooks  # tools/notebooks.py
import pdf  # tools/pdf.py
import pytest
import shortpath  # tools/shortpath.py
import typeset  # tools/typeset.py
import yaml
from bs4 import BeautifulSoup
from jupyter_client.kernelspec import get_kernel_spec
from pybtex.database import parse_file

import cvlib

BOOK = notebooks.BOOK
CHAPTERS = notebooks.chapters()
NUMBERED = [md for md in CHAPTERS if re.match(r"\d+-", md.name)]
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


def test_the_book_and_its_chapters_stay_short():
    """A chapter that grows has to lose something first. All words outside code cells count."""
    code = re.compile(r"^```\{code-cell\}.*?^```$", re.M | re.S)
    counts = {md.stem: len(code.sub("", read(md)).split()) for md in BOOK.glob("*.md")}
    assert not {name: n for name, n in counts.items() if n > 5_200}
    assert sum(counts.values()) <= 100_000


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


@each([md for md in CHAPTERS if not md.name.startswith("20-")])
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
    listed["Appendices"].remove("references")
    assert list(mapped.items()) == [*listed.items()][1:]  # the first is "In a hurry"
    assert all(len(pages) <= 6 for part, pages in mapped.items() if part != "Appendices")


def test_each_class_of_the_page_on_own_words_takes_fewer_than_twenty_lines():
    """So the page says; whether each works its own cells assert."""
    text, lengths = read(BOOK / "extending.md"), {}
    for cell in re.findall(r"```\{code-cell\} ipython3\n(.*?)```", text, re.S):
        lines = cell.splitlines()
        for node in (n for n in ast.parse(cell).body if isinstance(n, ast.ClassDef)):
            own = lines[node.lineno - 1 : node.end_lineno]
            lengths[node.name] = sum(bool(line.strip()) for line in own)
    assert len(lengths) == 6 and max(lengths.values()) < 20


def test_the_page_on_the_package_has_every_file_but_the_definitions():
    told = re.findall(r"automodule:: (cvlib\S+)", read(BOOK / "internals.md"))
    paths = (BOOK.parent / "cvlib").rglob("*.py")
    parts = [p.relative_to(BOOK.parent).with_suffix("").parts for p in paths]
    files = {".".join(names) for names in parts if names[-1] not in ("__init__", "definitions")}
    assert {*told} == files and len(told) == len(files)


@each(NUMBERED[:12])
def test_the_papers_part_asks_for_the_core_alone(md):
    """Chapters 1 to 12 use no name that is imported when it is asked for, nor its module."""
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


# The short path ---------------------------------------------------------------------------------


def test_the_short_path_goes_through_the_book_in_order():
    """Eleven stops that exist, from the introduction on, each a part of its page, in five hours."""
    path = shortpath.stops()
    pages = [re.sub(r"^book/|\.ipynb$", "", file) for file in notebooks.pages_of_toc()]
    places = [pages.index(stop.page) for stop in path]
    assert len(path) == 11 and places[0] == 0 and places == sorted(places)
    assert "eleven stops" in read(INTRO)
    for stop in path:
        titles = list(shortpath.sections(stop.page))
        order = [titles.index(t) for t in (stop.first or titles[0], stop.last, *stop.also)]
        assert order == sorted(order)
        whole = {"Exercises", "History and further reading", "In three sentences"}  # of all of it
        assert not whole & stop.read and 20 < len(stop.ends.split()) < 80
        assert 4 <= shortpath.time_of(stop) <= 50
    assert 4 < sum(map(shortpath.time_of, path)) / 60 <= 5  # an afternoon


# Words of the book's own: the stop that introduces each, or none where `needs` must.
INTRODUCED = {
    r"\bRP1\b": "four-terms", r"\bSF\b": "four-terms", r"\bCF\b": None, r"\bRP2\b": None,
    r"\bGR\b": None, r"\bRB\b": "by-hand", r"\bPR\b": "by-hand", r"\bQD\b": "by-hand",
    r"\bRPS\b": "all-quadratics", r"\bAQ\b": None, r"\bLOO\b": None, r"\bS_?7\b": None,
    r"c_5|\bc5\b": None, r"c_7|\bc7\b": "one-control", r"\*bound\*|\bbound\(": None,
    r"[Ss]napshot": None, r"\blanding\b": "intro", r"\bgauge\b": None,
    r"[Bb]atch and match": "intro", r"[Ee]ven\*? draws": "intro", r"k-hat": None,
    r"\*price\*": None, r"parabola of means": None, r"\bridge\b": None,
    r"[Nn]atural (step|gradient)": "intro",
    r"importance weights?": "own-model", r"non-centred": None, r"all quadratics": None,
    r"\bLaplace\b": None, r"\bat rest\b": None, r"fixed draws": "intro", r"[Ff]unnel": None,
    r"effective sample size": "own-model",
}  # fmt: skip


def test_every_word_of_the_path_is_introduced_on_it():
    """By the stop itself, or by what it says is needed of the chapters left out."""
    known = set()
    for stop in shortpath.stops():
        known |= {word for word in INTRODUCED if re.search(word, stop.needs)}
        titles = re.split(r"^## (.+)\n", read(BOOK / f"{stop.page}.md"), flags=re.M)
        text = {"": titles[0].split("\n# ")[1]} | dict(zip(titles[1::2], titles[2::2]))
        shown = " ".join(shortpath.PARTS.sub("", text[title]) for title in stop.read)  # unfolded
        for word, home in INTRODUCED.items():
            if word not in known and re.search(word, shown):
                assert home and home in stop.page, (stop.page, word)
                known.add(word)


def test_a_stop_with_a_heading_that_is_not_there_is_named(tmp_path):
    (tmp_path / "book").mkdir()
    (tmp_path / "book/a.md").write_text("# A\n\nWords.\n\n## One\n\nMore words.\n")
    (tmp_path / "_path.yml").write_text("- {page: a, until: One, ends: It ends.}\n")
    assert shortpath.stops(tmp_path)[0].read == {"", "One"}
    (tmp_path / "_path.yml").write_text("- {page: a, until: Two, ends: It ends.}\n")
    with pytest.raises(Exception, match="a has no section 'Two'"):
        shortpath.stops(tmp_path)


def test_reading_times_count_words_code_and_formulas_but_nothing_folded(tmp_path):
    (tmp_path / "book").mkdir()
    text = "# A\n\n## One\n\n" + "word " * 260 + "\n\n$$\nx\n$$\n\n## Two\n\n"
    text += "```{code-cell} ipython3\n---\nmystnb: {}\n---\n" + "x\n" * 24 + "```\n\n## Three\n\n"
    text += "```{code-cell} ipython3\n:tags: [hide-input]\n\n" + "x\n" * 24 + "```\n\n"
    text += ":::{solution} ex\n" + "word " * 1000 + "\n:::\n"
    text += ":::{admonition} Proof\n:class: dropdown\n\n" + "word " * 1000 + "\n:::\n"
    (tmp_path / "book/a.md").write_text(text)
    found = shortpath.sections("a", tmp_path)
    assert 3.5 < found["One"] < 3.7 and found["Two"] == 2 and 0.5 <= found["Three"] < 0.6


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


# Words, each with one meaning, the field's beside it at its first use ---------------------------

BANNED = {  # what a word must not mean: what to write in its place
    r"\bprices?\b(?!')": "cost; the price is a stationary loss",
    r"\ba look at (all |the )?(data|rows)\b": "a pass; a look is a checkpoint",
    r"\beven (draws|points)\b(?=[^.]*(stratified|interval|hypercube))": "stratified draws",
    r"a loser could sign|no mean, of no function|worth beside the largest": "a plain sentence",
    r"minus the regression coefficient of": "a plain sentence",
}
FIELD = {  # our word: the field's, which stands beside it, before it or on the same screen
    r"\bswitch(es)?\b": "Bernoulli", r"\blanding\b": "[Ss]ticking the landing|STL",
    r"\b[Ee]ven draws\b": "[Mm]oment-match", r"\bparabolas?\b": "[Qq]uadratic",
    r"weights keep|share of (the |its )?draws": "effective sample size",
    r"\bSF\b": "[Ss]core function|REINFORCE", r"\bRP1\b": "[Rr]eparameteri|pathwise",
    r"\bPR\b": "Price|Bonnet", r"\bQD\b": "[Qq]uadrature", r"\bLOO\b": "[Ll]eave-one-out|RLOO",
    r"at (a|each|every) look\b": "checkpoint", r"[Oo]pposite pairs": "[Aa]ntithetic",
    r"[Rr]otated draws": "spherical-radial", r"\bprices?\b(?!')": "stationary loss",
}  # fmt: skip


@each(NUMBERED)
def test_no_word_has_a_second_meaning_and_the_field_s_name_stands_beside_ours(md):
    """The price is at home in chapter 15, whose theorem defines it."""
    text = re.sub(r"\A---\n.*?\n---\n", "", read(md), flags=re.S)
    text = re.sub(r"\{term\}`([^`<]*)[^`]*`", r"\1", text)
    names = r"^:+\{solution[^\n]*$|^:label:[^\n]*$|^\$\$ \(eq:[^\n]*$|\{[\w:]+\}`[^`]*`"
    prose = re.sub(rf"^```.*?^```|{names}|`[^`\n]*`", "", text, flags=re.M | re.S)  # without code
    for wrong, right in BANNED.items():
        found = re.search(wrong, prose)
        home = "less-noise" in md.stem and "price" in wrong
        assert home or not found, f"{prose[found.start() - 40 : found.end() + 20]!r}: write {right}"
    for ours, theirs in FIELD.items():
        if used := re.search(ours, prose):
            known = re.search(theirs, prose)
            assert known and known.start() < used.end() + 1500, (ours, theirs)


def test_the_glossary_has_a_column_for_the_field_s_name_and_defines_each_word():
    text = read(BOOK / "glossary.md")
    rows = re.findall(r"^\| \{term\}`([^`]+)` \| (.+?) \| (.*?) ?\|$", text, re.M)
    assert len(rows) >= 30
    defined = re.findall(r"^(\S.*)\n  \S", text.split("```{glossary}")[1], re.M)
    assert len(defined) == len(set(defined))
    assert {word for word, *_ in rows} <= set(defined)
    assert all(len(theirs) > 2 for _, theirs, _ in rows)
