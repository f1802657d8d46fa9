"""What every chapter has: exercises with solutions, a summary, history, words for its pictures."""

import ast
import inspect
import re
from operator import attrgetter

import nbformat
import notebooks  # tools/notebooks.py
import pytest
import shortpath  # tools/shortpath.py
import typeset  # tools/typeset.py

import cvlib

NUMBERED = [md for md in notebooks.chapters() if re.match(r"\d+-", md.name)]
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
WHOLE, CHAPTER = 104_500, 5_200


def words(text):
    """The number of words outside code cells."""
    return len(re.sub(r"^```\{code-cell\}.*?^```$", "", text, flags=re.M | re.S).split())


def test_words_are_counted_outside_code_cells():
    cell = "```{code-cell} ipython3\n:tags: [hide-input]\n\nx = 1\n```\n"
    assert words(f"One two.\n\n{cell}\nthree\n\n{cell}") == 3
    assert words("```\nplain fence\n```\n") == 4


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


# The short path, and the page of what to do -------------------------------------------------------


def test_the_short_path_goes_through_the_book_in_order():
    """Ten stops that exist, from the introduction on, each a part of its page and in its order."""
    path = shortpath.stops()
    pages = [re.sub(r"^book/|\.ipynb$", "", file) for file in notebooks.pages_of_toc()]
    places = [pages.index(stop.page) for stop in path]
    assert len(path) == 10 and places[0] == 0 and places == sorted(places)
    for stop in path:
        titles = list(shortpath.sections(stop.page))
        order = [titles.index(t) for t in (stop.first or titles[0], stop.last, *stop.also)]
        assert order == sorted(order)
        assert "Exercises" not in stop.read and "History and further reading" not in stop.read
        part = shortpath.minutes(stop.page, read=stop.read)
        assert 5 <= part <= min(60, shortpath.minutes(stop.page))
    hours = sum(shortpath.minutes(stop.page, read=stop.read) for stop in path) / 60
    assert 2 < hours < 5  # an afternoon


def test_a_stop_with_a_heading_that_is_not_there_is_named(tmp_path):
    (tmp_path / "book").mkdir()
    (tmp_path / "book/a.md").write_text("# A\n\nWords.\n\n## One\n\nMore words.\n")
    (tmp_path / "_path.yml").write_text("- {page: a, until: One}\n")
    assert shortpath.stops(tmp_path)[0].read == {"", "One"}
    (tmp_path / "_path.yml").write_text("- {page: a, until: Two}\n")
    with pytest.raises(Exception, match="a has no section 'Two'"):
        shortpath.stops(tmp_path)


def test_reading_times_count_words_code_and_formulas_but_no_solution(tmp_path):
    (tmp_path / "book").mkdir()
    text = "# A\n\n## One\n\n" + "word " * 260 + "\n\n$$\nx\n$$\n\n## Two\n\n"
    text += "```{code-cell} ipython3\n---\nmystnb: {}\n---\n" + "x\n" * 24 + "```\n\n## Three\n\n"
    text += "```{code-cell} ipython3\n:tags: [hide-input]\n\n" + "x\n" * 24 + "```\n\n"
    text += ":::{solution} ex\n" + "word " * 1000 + "\n:::\n"
    (tmp_path / "book/a.md").write_text(text)
    found = shortpath.sections("a", tmp_path)
    assert 2.4 < found["One"] < 2.6 and found["Two"] == 2 and 0.5 <= found["Three"] < 0.6


def test_what_to_do_names_things_that_exist_and_takes_their_keywords():
    """Every call of the package in the page's lines of code."""
    page = read(notebooks.BOOK / "what-to-do.md")
    code = re.findall(r"^ *```python\n(.*?)^ *```$", page, re.M | re.S)
    nodes = [node for text in code for node in ast.walk(ast.parse(inspect.cleandoc(text)))]
    checked = 0
    for call in (node for node in nodes if isinstance(node, ast.Call)):
        name = ast.unparse(call.func)
        owner, _, rest = name.partition(".")
        if owner not in ("fit", "cv"):
            continue
        found = attrgetter(rest)(cvlib.Fit if owner == "fit" else cvlib)
        takes = inspect.signature(found).parameters
        free = any(p.kind == p.VAR_KEYWORD for p in takes.values())
        assert free or {k.arg for k in call.keywords} <= set(takes), name
        checked += 1
    assert checked >= 9


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
