"""What every chapter has: exercises with solutions, a summary, history, words for its pictures."""

import ast
import re

import nbformat
import notebooks  # tools/notebooks.py
import pdf  # tools/pdf.py
import pytest
import shortpath  # tools/shortpath.py
import typeset  # tools/typeset.py
import yaml
from bs4 import BeautifulSoup

NUMBERED = [md for md in notebooks.chapters() if re.match(r"\d+-", md.name)]
INTRO = notebooks.BOOK / "intro.md"
stem = lambda path: path.stem
read = lambda md: md.read_text("utf-8")


def exercises(text):
    """{label: title} of the exercises of a chapter."""
    blocks = re.findall(r"^:::+\{exercise(?:-start)?\} ?(.*)\n((?::\w+:.*\n)*)", text, re.M)
    return {re.search(r":label: (\S+)", options)[1]: title for title, options in blocks}


def solved(text):
    """The labels of the exercises that have a solution."""
    return re.findall(r"^:::+\{solution(?:-start)?\} (\S+)", text, re.M)


# The limits of the book: what is read, so all text outside code cells, markup and front matter too.
WHOLE, CHAPTER = 100_000, 5_200


def words(text):
    """The number of words outside code cells."""
    return len(re.sub(r"^```\{code-cell\}.*?^```$", "", text, flags=re.M | re.S).split())


def test_the_book_and_its_chapters_stay_short():
    """Longer is not better: a chapter that grows has to lose something first."""
    counts = {md.stem: words(read(md)) for md in sorted(notebooks.BOOK.glob("*.md"))}
    assert not {name: n for name, n in counts.items() if n > CHAPTER}
    assert sum(counts.values()) <= WHOLE


@pytest.mark.parametrize("md", NUMBERED, ids=stem)
def test_six_exercises_or_more_each_marked_and_one_a_project(md):
    titles = list(exercises(read(md)).values())
    assert len(titles) >= 6
    for title in titles:
        assert re.fullmatch(r"★{1,3} (warm-up|derivation|computation|(open )?project)", title)
    assert titles[0] == "★ warm-up"
    assert ["project" in title for title in titles] == [False] * (len(titles) - 1) + [True]


@pytest.mark.parametrize("md", NUMBERED, ids=stem)
def test_every_exercise_but_the_project_has_a_folded_solution(md):
    text = read(md)
    asked = [label for label, title in exercises(text).items() if "project" not in title]
    assert sorted(solved(text)) == sorted(asked)
    folded = re.findall(r"^:::+\{solution(?:-start)?\} \S+\n((?::\w+:.*\n)*)", text, re.M)
    assert all(":class: dropdown" in options for options in folded)


@pytest.mark.parametrize("md", NUMBERED, ids=stem)
def test_a_chapter_ends_with_a_summary_and_its_history_with_sources(md):
    text = read(md)
    last = [title for title in re.findall(r"^## (.+)$", text, re.M) if title != "Exercises"][-2:]
    assert last == ["In three sentences", "History and further reading"]
    history = text.split("## History and further reading\n")[1].split("\n## ")[0]
    assert history.count("{cite") >= 3


@pytest.mark.parametrize("md", notebooks.chapters(), ids=stem)
def test_sliders_are_small_and_every_picture_has_words(md):
    """A slider's page in the stored output: under 700 KB, a label, a value and an alt text each."""
    for cell in nbformat.read(md.with_suffix(".ipynb"), as_version=4).cells:
        for output in cell.get("outputs", []):
            page = output.get("data", {}).get("text/html", "")
            if "cv-slider" in page:
                assert len(page) < 700_000, cell.source
                alts = re.findall(r'<img [^>]*?alt="([^"]*)"', page)
                values = re.search(r'data-values="([^"]*)"', page)[1].split("|")
                assert len(alts) == len(values) == page.count("<img")
                assert all(len(alt) > 20 for alt in alts) and len(set(alts)) == len(alts)
                assert 'type="range"' in page and "aria-valuetext" in page


@pytest.mark.parametrize("md", notebooks.chapters(), ids=stem)
def test_figures_have_words(md):
    """A cell that draws says in words what is to be seen."""
    for cell in notebooks.read_text(md).cells:
        if "plt.show()" in cell.source:
            alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
            assert len(alt) > 40, notebooks.first_line(cell)


OTHERS = [md for md in notebooks.chapters() if not md.name.startswith("20-")]


@pytest.mark.parametrize("md", OTHERS, ids=stem)
def test_tables_are_tables_and_stored_results_are_read_by_one_helper(md):
    """No three printed lines have three columns each, but those of a `cv.report`."""
    columns = lambda line: len(re.split(r" {2,}", line.strip())) > 2
    for cell in nbformat.read(md.with_suffix(".ipynb"), as_version=4).cells:
        assert cell.cell_type != "code" or not re.search(r"json\.load|read_text", cell.source)
        for output in cell.get("outputs", []):
            lines = output.get("text", "").splitlines()
            wide = "".join("x" if columns(line) else "." for line in lines)
            assert "xxx" not in wide or "pilot draws" in lines[0], output.text


def test_the_map_has_the_parts_and_chapters_of_the_contents_in_order():
    """No part has more than six chapters."""
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
    text, lengths = read(notebooks.BOOK / "extending.md"), {}
    for cell in re.findall(r"```\{code-cell\} ipython3\n(.*?)```", text, re.S):
        lines = cell.splitlines()
        for node in (n for n in ast.parse(cell).body if isinstance(n, ast.ClassDef)):
            own = lines[node.lineno - 1 : node.end_lineno]
            lengths[node.name] = sum(bool(line.strip()) for line in own)
    assert len(lengths) == 6 and max(lengths.values()) < 20


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


def shown(stop):
    """The words and formulas of a stop, without code and without what is folded."""
    titles = re.split(r"^## (.+)\n", read(notebooks.BOOK / f"{stop.page}.md"), flags=re.M)
    text = {"": titles[0].split("\n# ")[1]} | dict(zip(titles[1::2], titles[2::2]))
    return " ".join(shortpath.PARTS.sub("", text[title]) for title in stop.read)


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
        for word, home in INTRODUCED.items():
            if word not in known and re.search(word, shown(stop)):
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


@pytest.mark.parametrize(
    "broken, whole",
    [
        (r"a ={}& b \\ & + c .", r"a ={}& b + c ."),
        (r"& a \\ & \quad = b \\ & \qquad {} - c", r"& a = b - c"),
        (r"a &= b \\ &= c", None),  # a chain
        (r"a &= b, \\ c &= d", None),  # two formulas
        (r"a ={}& b \\ & + " + "c" * 70, None),  # too long for a line
    ],
)
def test_a_formula_broken_for_phones_is_joined_if_it_is_one_and_fits(broken, whole):
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
