"""The book on paper.

    python tools/pdf.py [_build/html]      writes it there, and names it in each page's menu

The articles of the built pages become one document, which chromium prints: it sets running heads
and page numbers and keeps links between anchors. pypdf adds bookmarks, and the page numbers of the
contents. Code that is folded on screen is left out, with a line that says where it is; the pages of
the package's own are left out, too. Solutions stand in an appendix.
"""

import io
import logging
import posixpath
import re
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import notebooks
import sitecheck
import takeaway
import yaml
from bs4 import BeautifulSoup
from pypdf import PdfReader, PdfWriter
from pypdf.generic import Fit

logging.getLogger("pypdf").setLevel(logging.ERROR)  # it warns of what chromium always writes
FILE = f"{takeaway.NAME}.pdf"
LEFT_OUT = "api", "definitions", "extending", "internals"  # of the package's own: for the screen
SIDE = 17  # mm of an A4 page left and right of the text
GAP = 8  # mm between the two columns of the contents
CLOSER, FEW = (0.98, 0.95), 400  # sizes tried where a last sheet has so few characters
WIDTH = round((210 - 2 * SIDE) / 25.4 * 96)  # of the text, in CSS pixels
STYLE = Path(__file__).with_suffix(".css").read_text("utf-8")
STYLE = STYLE.replace("SIDE", f"{SIDE}mm").replace("GAP", f"{GAP}mm")
SHRINK, TOO_WIDE = (
    sitecheck.script(name, Path(__file__).with_suffix(".js")) for name in ("SHRINK", "TOO_WIDE")
)


def page_of(file):
    """The page of the site that a line of _toc.yml makes."""
    return re.sub(r"\.(md|ipynb)$", "", file) + ".html"  # a name may end in 0.13


def anchor(page, name=""):
    """The id that an anchor of one page has in the whole document."""
    return f"{Path(page).stem}--{name}"


def without_folded_code(found, page):
    """In the place of code that is folded on screen, one line a section that says where it is."""
    left = {}  # section: its first fold, and the numbers of all cells with one
    for number, cell in enumerate(found.select("div.cell"), 1):
        for folded in cell.select("details.above-input"):
            section = folded.find_parent("section")
            first, numbers = left.setdefault(id(section), (folded, []))
            numbers.append(str(number))
            if folded is not first:
                folded.decompose()
    for first, numbers in left.values():
        *some, last = dict.fromkeys(numbers)
        cells = f"cells {', '.join(some)} and {last}" if some else f"cell {last}"
        where = f"Code left out: {cells} of {Path(page).stem}.ipynb"
        first.replace_with(BeautifulSoup(f'<p class="left-out">{where}</p>', "html.parser"))


def article(page, html, pages):
    """The article of a page for print: ids made unique, links to other pages made inner ones, code
    that was folded left out, the rest unfolded."""
    found = BeautifulSoup(html, "html.parser").find("article", class_="bd-article")
    for tag in found.select(".headerlink, script, .phone, .cv-table"):
        tag.decompose()
    without_folded_code(found, page)
    for tag in found.find_all(id=True):
        tag["id"] = anchor(page, tag["id"])
    found["id"] = anchor(page)
    for tag in found.find_all("details"):
        tag["open"] = ""
    for tag in found.find_all("a", href=True):
        url = urlsplit(tag["href"])
        if url.scheme:
            continue  # the reader's own click
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(url.path)))
        target = target if url.path else page
        if target in pages:
            tag["href"] = "#" + anchor(target, unquote(url.fragment))
        else:  # a file of the site, or a page left out: nothing to turn to on paper
            del tag["href"]
    return found


def solutions(articles):
    """Take the solutions out of their chapters into an article of its own, with links both ways."""
    parts = []
    for found in articles.values():
        solved = found.select("div.solution")
        for solution in solved:
            exercise = found.find(id=solution.select_one(".admonition-title a")["href"][1:])
            line = f'<p class="left-out"><a href="#{solution["id"]}">Solution</a></p>'
            exercise.append(BeautifulSoup(line, "html.parser"))
            solution.extract()
        if solved:
            title = found.select_one("h1").decode_contents()
            name = anchor("solutions", found["id"])
            parts += [f'<section id="{name}"><h2>{title}</h2>', *map(str, solved), "</section>"]
    inside = (
        f'<section id="{anchor("solutions", "all")}"><h1>Solutions</h1>{"".join(parts)}</section>'
    )
    text = f'<article class="bd-article" id="{anchor("solutions")}">{inside}</article>'
    return BeautifulSoup(text, "html.parser").article


def entries(articles):
    """Chapters and their sections in reading order: (level, anchor, title as HTML)."""
    for found in articles.values():
        yield 0, found["id"], found.select_one("h1").decode_contents()
        for heading in found.select("h2"):
            yield 1, heading.parent["id"], heading.decode_contents()


def contents(listed, captions):
    """The table of contents; a caption stands before the first chapter of its part."""
    lines = ["<h1>Contents</h1>"]
    for level, name, title in listed:
        lines += [f"<h2>{captions[name]}</h2>"] if name in captions else []
        lines += [f'<p class="level{level}"><a href="#{name}">{title}</a></p>']
    return "".join(lines)


def running_heads(articles):
    """A page style for each chapter, with its title above the text."""
    for k, found in enumerate(articles.values()):
        found["style"] = f"page: chapter{k}"
        title = found.select_one("h1").get_text().strip().replace("\\", "").replace('"', "”")
        content = f'@top-right {{ content: "{title}"; font: 8pt sans-serif; }}'
        yield f"@page chapter{k} {{ {content} }}"


def head_of(html):
    """Style sheets and scripts that a page needs on paper. Formulas are set in letters rather than
    outlines, so that they can be searched and copied."""
    head = BeautifulSoup(html, "html.parser").head
    needed = [*head.select('link[rel="stylesheet"]'), *head.select("script")]
    ours = re.compile(r"stylesheet|mathjax|book\.js", re.I)
    letters = Path(find_spec("sphinx-mathjax-offline").submodule_search_locations[0])
    letters = (letters / "static/mathjax/tex-chtml-full.js").as_uri()
    for tag in needed:
        if str(tag.get("src", "")).split("?")[0].endswith("tex-svg-full.js"):
            tag["src"] = letters
    return "".join(str(tag) for tag in needed if ours.search(str(tag)))


def whole(site, root=notebooks.ROOT):
    """The book as one page of HTML, to lie beside its chapters, and what its contents list."""
    settings = lambda name: yaml.safe_load((root / name).read_text("utf-8"))
    toc, config = settings("_toc.yml"), settings("_config.yml")
    pages = [p for p in map(page_of, notebooks.pages_of_toc(root)) if Path(p).stem not in LEFT_OUT]
    html = {page: (site / page).read_text("utf-8") for page in pages}
    articles = {page: article(page, text, html) for page, text in html.items()}
    articles["solutions"] = solutions(articles)
    firsts = [(p["caption"], page_of(p["chapters"][0]["file"])) for p in toc["parts"]]
    captions = {anchor(page): caption for caption, page in firsts}
    heads = "".join(running_heads(articles))
    listed = list(entries(articles))
    return (
        listed,
        f"""<!doctype html><html lang="en" data-theme="light"><head><meta charset="utf-8">
<title>{config["title"]}</title>{head_of(html[pages[0]])}<style>{STYLE}{heads}</style></head><body>
<div class="front"><div>{config["title"]}</div><p>{config["author"]}</p><p>{config["copyright"]}</p>
</div><div class="contents">{contents(listed, captions)}</div>
{"".join(map(str, articles.values()))}</body></html>""",
    )


def printed(opened, html):
    """A file of HTML as PDF, in bytes, and what was wider than the text."""
    page = opened.new_page(viewport={"width": WIDTH, "height": 1000})
    page.set_default_timeout(10 * sitecheck.PATIENCE)
    page.emulate_media(media="print")
    page.goto(html.resolve().as_uri(), wait_until="load")
    page.evaluate("() => window.MathJax?.startup.promise.then(() => 0)")
    page.evaluate(SHRINK)
    wide = page.evaluate(TOO_WIDE)
    pdf = lambda: page.pdf(prefer_css_page_size=True, print_background=True, tagged=True)
    data = pdf()
    for closer in CLOSER:  # set a little smaller, a chapter ends a sheet earlier
        if not (small := short_ends(data)):
            break
        rule = ", ".join(f'article[id="{name}"]' for name in small)
        page.add_style_tag(content=f"{rule} {{ zoom: {closer}; }}")
        data = pdf()
    page.close()
    return data, wide


def short_ends(data):
    """The articles whose last sheet has a few lines only."""
    read = PdfReader(io.BytesIO(data))
    number = read.get_destination_page_number
    places = {k.lstrip("/"): number(v) for k, v in read.named_destinations.items()}
    starts = {name: place for name, place in places.items() if name.endswith("--")}
    ends = sorted({*starts.values(), len(read.pages)})
    after = {name: next(end for end in ends if end > place) for name, place in starts.items()}
    few = lambda sheet: len(read.pages[sheet].extract_text()) < FEW
    return [name for name, end in after.items() if end - starts[name] > 1 and few(end - 1)]


def number_contents(opened, writer, places):
    """Behind each entry of the table of contents, where its link ends, write its page number."""
    page = opened.new_page()
    for sheet in writer.pages[1 : min(places.values())]:
        links = [link.get_object() for link in sheet.get("/Annots", [])]
        ends = {str(link["/Dest"]).lstrip("/"): link["/Rect"][:2] for link in links}
        height, middle = float(sheet.mediabox.height), float(sheet.mediabox.width) / 2
        right, left = SIDE, 105 + GAP / 2  # mm from the paper's edge to those of the columns
        numbers = "".join(
            f'<p style="top: {height - y - 10}pt; right: {right if x > middle else left}mm">'
            f"{places[name] + 1}</p>"
            for name, (x, y) in ends.items()
        )
        style = "p { position: absolute; margin: 0; font: 9pt sans-serif }"
        page.set_content(f"<style>{style}</style>{numbers}")
        sheet.merge_page(PdfReader(io.BytesIO(page.pdf(format="A4"))).pages[0])
    page.close()


def add_bookmarks(writer, listed):
    """One for each chapter, and inside it one for each of its sections."""
    chapter = None
    for level, name, title in listed:
        place = writer.named_destinations["/" + name]
        text = BeautifulSoup(title, "html.parser").get_text()
        page = writer.get_destination_page_number(place)
        made = writer.add_outline_item(
            text, page, parent=chapter if level else None, fit=Fit.xyz(top=place.top)
        )
        chapter = chapter if level else made


def name_in_menus(site):
    """Offer it beside the zip in the download menu of each page, and where a text has a place."""
    entry = re.compile(rf'<li><a href="[^"]*{takeaway.NAME}\.zip".*?</li>', re.S)
    place = '<span class="take-pdf">'
    for html in sitecheck.pages(site):
        text = html.read_text("utf-8")
        if FILE in text or not (found := entry.search(text)):
            continue
        line = found[0].replace(f"{takeaway.NAME}.zip", FILE).replace("book.zip", "book.pdf")
        line = line.replace("take-zip", "take-pdf").replace("fa-box-archive", "fa-file-pdf")
        line = re.sub(r'title="[^"]*"', 'title="The book, to print or to keep"', line)
        up = "../" * (len(html.relative_to(site).parts) - 1)
        text = text.replace(place, f'{place}<a href="{up}{FILE}">{FILE}</a> is the book on paper. ')
        html.write_text(text.replace(found[0], f"{found[0]}\n{line}"), "utf-8")


def make(site, root=notebooks.ROOT):
    """Write the book into the site; returns what was wider than the text, in words."""
    html = site / "book/_whole.html"
    listed, text = whole(site, root)
    html.write_text(text, "utf-8")
    try:
        with sitecheck.browser() as opened:
            data, wide = printed(opened, html)
            writer = PdfWriter(clone_from=io.BytesIO(data))
            page = writer.get_destination_page_number
            places = {k.lstrip("/"): page(v) for k, v in writer.named_destinations.items()}
            number_contents(opened, writer, places)
    finally:
        html.unlink()
    add_bookmarks(writer, listed)
    writer.page_mode = "/UseOutlines"
    writer.write(site / FILE)
    return wide


def main():
    site = Path(sys.argv[1] if len(sys.argv) > 1 else "_build/html")
    if not sitecheck.chromium():
        sys.exit("no browser found: install chromium, or name one in CVBOOK_CHROMIUM")
    start = time.time()
    if wide := make(site):
        sys.exit("\n".join(["wider than the paper:", *wide]))
    size, pages = (site / FILE).stat().st_size / 1e6, len(PdfReader(site / FILE).pages)
    print(f"{pages} pages in {time.time() - start:.0f} s, {size:.0f} MB: open {site / FILE}")
    name_in_menus(site)


if __name__ == "__main__":
    main()
