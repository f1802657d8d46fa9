"""The second edition, on its rendered pages: words, cells, rows of tables, the field's words.

Words are counted as a reader meets them: without code and its output, captions included, a formula
as one word.
"""

import re
from functools import cache

import notebooks  # tools/notebooks.py
import pytest
from bs4 import BeautifulSoup
from test_pages import BANNED
from test_site import SITE, site  # noqa: F401

pytestmark = [pytest.mark.site, pytest.mark.usefixtures("site")]

CHAPTERS = {  # words at most
    "elbo": 2800, "one-control-variate": 2500, "estimators": 2600, "pairs": 2400,
    "approximations": 3200, "beyond-the-gaussian": 3800, "zoo": 1900, "best-weights": 2700,
    "bayesian-rule": 4000, "experiments": 3300, "rao-blackwell": 3000, "dependent-draws": 3200,
    "natural-gradients": 3000, "all-quadratics": 3000, "subsampling": 3000, "does-it-pay": 3400,
    "your-own-model": 3000, "shape": 2800, "after-the-fit": 3000, "frameworks": 4400,
    "elsewhere": 2400,
}  # fmt: skip
IN_ALL, BESIDE = 63_000, 15_000
CELLS, LINES, TABLES, ROWS = 24, 25, 3, 8
CODE = ".cell, .highlight, .headerlink, .headerbtn, .cv-slider, script, dl.py, [id^='module-']"
pages = pytest.mark.parametrize("page", CHAPTERS)


@cache
def article(page):
    """What a reader sees of a page, its own copy to cut from."""
    html = (SITE / f"book/{page}.html").read_text("utf-8")
    return BeautifulSoup(html, "html.parser").select_one("article.bd-article")


def prose(page, without=""):
    """Text without code, docstrings and output; captions stay, and a formula is one word."""
    text = BeautifulSoup(str(article(page)), "html.parser")
    for caption in text.select(".cell_output figcaption, .cell_output .caption"):
        caption.find_parent(class_="cell").insert_after(caption.extract())
    for part in text.select(f"{CODE}{without}"):
        part.decompose()
    for formula in text.select(".math"):
        formula.string = "formula"
    return text.get_text(" ")


words = lambda page: len(prose(page).split())


def before_exercises(page, selector):
    """The elements of a chapter down to its exercises."""
    text = BeautifulSoup(str(article(page)), "html.parser")
    if (exercises := text.select_one("section#exercises")) is not None:
        exercises.decompose()
    return text.select(selector)


def test_the_chapters_are_those_of_the_contents():
    assert [page.removeprefix("book/") for page in notebooks.numbers()] == [*CHAPTERS]


@pages
def test_a_chapter_is_no_longer_than_its_ceiling(page):
    assert words(page) <= CHAPTERS[page]


def test_the_book_is_no_longer_than_its_ceiling():
    listed = {page.split("/")[-1].removesuffix(".ipynb") for page in notebooks.pages_of_toc()}
    others = listed - {*CHAPTERS, "references", "proofs"}
    assert sum(map(words, CHAPTERS)) <= IN_ALL
    assert sum(map(words, others)) <= BESIDE, {page: words(page) for page in others}


@pages
def test_cells_are_few_and_short(page):
    cells = before_exercises(page, "div.cell_input")
    shown = [cell for cell in cells if not cell.find_parent("details")]
    lines = [cell.get_text().strip().count("\n") + 1 for cell in shown]
    assert len(cells) <= CELLS and max(lines) <= LINES, lines


@pytest.mark.parametrize("page", [page for page in CHAPTERS if page != "zoo"])
def test_tables_are_few_and_short(page):
    rows = [len(t.select("tbody tr")) for t in before_exercises(page, "table")]
    assert len(rows) <= TABLES and max(rows, default=0) <= ROWS, rows


@pages
def test_the_field_s_words_stand_where_the_first_edition_had_others(page):
    text = prose(page, ", code")
    for ours, theirs in BANNED.items():
        found = re.search(ours, text, re.I)
        assert not found, f"{text[found.start() - 40 : found.end() + 20]!r}: write {theirs}"


@pages
def test_a_chapter_begins_with_its_question_and_what_it_needs(page):
    """Question in bold, what to know, what one can do afterwards, the answer: the first screen."""
    first = [p.get_text() for p in article(page).select("h1 ~ p")[:6]]
    assert article(page).select("h1 ~ p")[0].find("strong") and "?" in first[0]
    together = " ".join(first)
    assert "You need" in together and "Afterwards you can" in together
    assert re.search(r"[Ss]hort answer", together), together
