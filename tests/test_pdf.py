"""The book as one PDF: whole, in order, with bookmarks and links, and nothing beyond the paper.

`make site-test` runs this, and prints the book first if its pages are newer than the PDF.
"""

import re
from pathlib import Path

import notebooks  # tools/notebooks.py
import pdf  # tools/pdf.py
import pytest
import sitecheck  # tools/sitecheck.py
from pypdf import PdfReader
from test_site import site  # noqa: F401

pytestmark = pytest.mark.site
TWO = notebooks.BOOK / "one-control-variate.md"
words = lambda text: re.sub(r"\s+", "", text)  # as PDFs have it: spaces are places, not letters


@pytest.fixture(scope="module")
def printer(browser_required):
    if not browser_required:
        pytest.skip("it prints the whole book: make site-test does it")
    if not sitecheck.chromium():
        pytest.fail("no browser: install chromium to print the pages")


@pytest.fixture(scope="module")
def book(printer, site):  # noqa: F811
    made = site / pdf.FILE
    if not made.exists() or made.stat().st_mtime < (site / "objects.inv").stat().st_mtime:
        assert pdf.make(site) == []  # nothing was wider than the text
        pdf.name_in_menus(site)
    return PdfReader(made)


@pytest.fixture(scope="module")
def chapters(book):
    """{title: (first page, [(title, page) of its sections])} from the bookmarks."""
    number, found = book.get_destination_page_number, {}
    for item in book.outline:
        if isinstance(item, list):  # the sections of the chapter before
            found[list(found)[-1]][1].extend((section.title, number(section)) for section in item)
        else:
            found[item.title] = number(item), []
    return found


@pytest.fixture(scope="module")
def two(chapters):
    return next(title for title in chapters if title.startswith("2."))


def text_of(book, chapters, title):
    starts = [page for page, _ in chapters.values()] + [len(book.pages)]
    first = chapters[title][0]
    last = min(start for start in starts if start > first)
    return words("".join(page.extract_text() for page in book.pages[first:last]))


def links_of(book):
    """(page, link) of all links."""
    for number, page in enumerate(book.pages):
        yield from ((number, link.get_object()) for link in page.get("/Annots", []))


def test_bookmarks_are_the_chapters_and_their_sections_in_order(book, chapters, two):
    pages = [page for page in notebooks.pages_of_toc() if Path(page).stem not in pdf.LEFT_OUT]
    assert len(chapters) == len(pages) + 1 and list(chapters)[-1] == "Solutions"
    assert 5 * len(pages) < len(book.pages) < 400
    firsts = [page for page, _ in chapters.values()]
    assert firsts == sorted(set(firsts))
    for first, sections in chapters.values():
        numbers = [first, *(page for _, page in sections)]
        assert numbers == sorted(numbers)
    assert len(next(iter(chapters.values()))[1]) >= 3  # the introduction's
    headings = re.findall(r"^## (.+)$", TWO.read_text("utf-8"), re.M)
    assert [title for title, _ in chapters[two][1]] == [h for h in headings if "$" not in h]
    for title, page in chapters[two][1]:
        assert words(title) in words(book.pages[page].extract_text())


def test_solutions_are_in_the_appendix_with_links_both_ways(book, chapters, two):
    text = TWO.read_text("utf-8")
    solved = re.findall(r"^:+\{solution(?:-start)?\} (\S+)", text, re.M)
    assert "Solutionto" not in text_of(book, chapters, two)
    assert "SolutiontoExercise2.1" in text_of(book, chapters, "Solutions")
    named, links = book.named_destinations, {}
    for number, link in links_of(book):
        links.setdefault(str(link.get("/Dest")), []).append(number)
    appendix = chapters["Solutions"][0]
    for label in solved:
        assert max(links[f"/one-control-variate--{label}"]) >= appendix  # from the solution
    there = [d for d in links if d.startswith("/one-control-variate--book") and "solution" in d]
    assert len(there) == len(solved) >= 3
    for name in there:  # from the exercise
        assert book.get_destination_page_number(named[name]) >= appendix
        assert chapters[two][0] <= min(links[name]) < appendix


def test_formulas_are_text_and_folded_code_is_a_line_that_says_where_it_is(book, chapters, two):
    text = text_of(book, chapters, two)
    assert "a∗=−" in text and "(2.2)" in text  # equation (2.2)
    shown = text + text_of(book, chapters, "Solutions")
    cells = [c for c in notebooks.read_text(TWO).cells if c.cell_type == "code"]
    for number, cell in enumerate(cells, 1):
        folded = "hide-input" in cell.metadata.get("tags", [])
        longest = max(cell.source.splitlines(), key=len)
        assert (words(longest) in shown) != folded, longest
        assert (f"cell{number}of{TWO.stem}.ipynb" in shown) == folded


def test_pages_have_heads_and_numbers_and_the_contents_agree(book, chapters, two):
    head = book.pages[chapters[two][0] + 1].extract_text()
    assert words(head).startswith(words(two))
    first = next(iter(chapters.values()))[0]
    for number in first + 1, 50, len(book.pages) - 1:
        margins = book.pages[number - 1].extract_text().split()[:12]  # head and number come first
        assert str(number) in margins
    listed = "".join(page.extract_text() for page in book.pages[1:first])
    for start, _ in chapters.values():
        assert re.search(rf"\b{start + 1}\b", listed)


def test_links_lead_to_places_in_the_book(book, chapters, two):
    named, links = book.named_destinations, [link for _, link in links_of(book)]
    inner = [str(link["/Dest"]) for link in links if "/Dest" in link]
    assert len(inner) > 300 and {*inner} <= {*named}
    outer = [str(link["/A"]["/URI"]) for link in links if "/Dest" not in link]
    assert not [link for link in outer if link.startswith("file:")]
    place = named["/one-control-variate--"]
    assert book.get_destination_page_number(place) == chapters[two][0]


def test_the_menus_offer_it(book, site):  # noqa: F811
    page = site / "book/one-control-variate.html"
    html = page.read_text("utf-8")
    assert f'href="../{pdf.FILE}"' in html
    pdf.name_in_menus(site)  # a second time changes nothing
    assert page.read_text("utf-8") == html


# The printer itself, on pages broken on purpose ---------------------------------------------------

STYLE = pdf.STYLE + (notebooks.BOOK / "_static/custom.css").read_text("utf-8")
PAGE = f"<!doctype html><style>{STYLE}</style><article class='bd-article'>INSIDE</article>"


INSIDE = {
    "narrow": "<p>narrow</p>",
    "wide": "<div style='width: 900px'>wide</div>",
    "code": "<pre>" + "x" * 300 + "</pre>",
    "table": "<div><table><tr><td style='min-width: 2000px'>t</td></tr></table></div>",
}


@pytest.mark.parametrize("inside", INSIDE)
def test_what_is_too_wide_is_found_or_made_to_fit(browser, tmp_path, inside):
    html = tmp_path / "page.html"
    html.write_text(PAGE.replace("INSIDE", INSIDE[inside]))
    data, found = pdf.printed(browser, html)
    assert bool(found) == (inside == "wide"), found
    assert data.startswith(b"%PDF")


def test_an_article_for_print():
    """Ids of its own, links inside the book, no link to a file of the site, no folded code."""
    html = """<article class="bd-article"><section id="s"><h1>T<a class="headerlink" href="#s">#</a>
</h1><a href="b.html#x">1</a><a href="#s">2</a><a href="../z.zip">3</a><a href="https://e.org">4</a>
<div class="cell"><details class="above-input">code</details></div>
<details><summary>more</summary>in</details></section></article>"""
    found = pdf.article("book/a.html", html, {"book/a.html", "book/b.html"})
    links = [tag.get("href") for tag in found.find_all("a")]
    assert links == ["#b--x", "#a--s", None, "https://e.org"]
    assert found["id"] == "a--" and found.section["id"] == "a--s"
    assert found.details.has_attr("open") and "#" not in found.h1.get_text()
    assert found.select_one("div.cell").get_text() == "Code left out: cell 1 of a.ipynb"
