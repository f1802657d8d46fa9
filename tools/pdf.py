"""The whole book as one PDF: every page in reading order, nothing folded, links inside the file.

    python tools/pdf.py [_build/html]      writes cvbook.pdf there, and names it in each page's menu

The articles of the built pages become one document, which chromium prints: it sets page numbers
and keeps links between anchors. pypdf adds bookmarks, and the page numbers of the contents.
"""

import io
import logging
import posixpath
import re
import sys
import time
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
SIDE = 20  # mm of an A4 page left and right of the text
MARGIN = dict(top="16mm", bottom="18mm", left=f"{SIDE}mm", right=f"{SIDE}mm")
WIDTH = round((210 - 2 * SIDE) / 25.4 * 96)  # of the text, in CSS pixels
FOOTER = """<div style="width: 100%; font: 8px sans-serif; text-align: center">
<span class="pageNumber"></span></div>"""
# How pages look on paper, custom.css says. A book is set smaller, and has a title and contents.
STYLE = """
html { font-size: 13px; } body { background: #fff; }
article { break-before: page; }
.bd-article img { max-height: 225mm; }
.front { height: 200mm; text-align: center; padding-top: 80mm; }
.front div { font-size: 3em; }
.contents { break-before: page; }
.contents p { margin: 0 3em .2em 0; } .contents a { color: inherit; text-decoration: none; }
.contents h2 { font-size: 1.2em; margin: 1.2em 0 .4em; } .contents .level0 { font-weight: bold; }
.contents .level1 { margin-left: 1.6em; }
"""
SHRINK = """() => document.querySelectorAll('table').forEach(table => {
  const room = table.parentElement.clientWidth;
  if (table.scrollWidth > room) table.style.zoom = room / table.scrollWidth - 0.005;
})"""
TOO_WIDE = """() => [...document.querySelectorAll('article *')]
  .filter(e => !e.closest('svg, mjx-assistive-mml')
    && e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map(e => `<${e.tagName.toLowerCase()}> ` + e.textContent.trim().slice(0, 60))"""


def page_of(file):
    """The page of the site that a line of _toc.yml makes."""
    return re.sub(r"\.\w+$", "", file) + ".html"


def anchor(page, name=""):
    """The id that an anchor of one page has in the whole document."""
    return f"{Path(page).stem}--{name}"


def article(page, html, pages):
    """The article of a page: ids made unique, links to other pages made inner ones, unfolded."""
    found = BeautifulSoup(html, "html.parser").find("article", class_="bd-article")
    for tag in found.select(".headerlink, script"):
        tag.decompose()
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
        else:  # a file of the site, or one of its indices: nothing to turn to on paper
            del tag["href"]
    return found


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


def whole(site, root=notebooks.ROOT):
    """The book as one page of HTML, to lie beside its chapters, and what its contents list."""
    settings = lambda name: yaml.safe_load((root / name).read_text("utf-8"))
    toc, config = settings("_toc.yml"), settings("_config.yml")
    html = {p: (site / p).read_text("utf-8") for p in map(page_of, notebooks.pages_of_toc(root))}
    articles = {page: article(page, text, html) for page, text in html.items()}
    captions = {anchor(page_of(p["chapters"][0]["file"])): p["caption"] for p in toc["parts"]}
    head = BeautifulSoup(next(iter(html.values())), "html.parser").head
    needed = [*head.select('link[rel="stylesheet"]'), *head.select("script")]
    ours = re.compile(r"stylesheet|mathjax|book\.js", re.I)
    needed = [str(tag) for tag in needed if ours.search(str(tag))]
    listed = list(entries(articles))
    return (
        listed,
        f"""<!doctype html><html lang="en" data-theme="light"><head><meta charset="utf-8">
<title>{config["title"]}</title>{"".join(needed)}<style>{STYLE}</style></head><body>
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
    data = page.pdf(
        format="A4", margin=MARGIN, print_background=True,
        display_header_footer=True, header_template="<span></span>", footer_template=FOOTER,
    )  # fmt: skip
    page.close()
    return data, wide


def number_contents(opened, writer, places):
    """Behind each entry of the table of contents, where its link ends, write its page number."""
    page = opened.new_page()
    for sheet in writer.pages[1 : min(places.values())]:
        links = [link.get_object() for link in sheet.get("/Annots", [])]
        lowest = {str(link["/Dest"]).lstrip("/"): float(link["/Rect"][1]) for link in links}
        numbers = "".join(
            f'<p style="top: {float(sheet.mediabox.height) - y - 11}pt">{places[name] + 1}</p>'
            for name, y in lowest.items()
        )
        style = f"p {{ position: absolute; right: {SIDE}mm; margin: 0; font: 9.5pt sans-serif }}"
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
    """Offer the PDF beside the zip in the download menu of each page."""
    entry = re.compile(rf'<li><a href="[^"]*{takeaway.NAME}\.zip".*?</li>', re.S)
    for html in sitecheck.pages(site):
        text = html.read_text("utf-8")
        if f"{FILE}" not in text and (found := entry.search(text)):
            pdf = found[0].replace(f"{takeaway.NAME}.zip", FILE).replace("book.zip", "book.pdf")
            pdf = pdf.replace("take-zip", "take-pdf").replace("fa-box-archive", "fa-file-pdf")
            pdf = re.sub(r'title="[^"]*"', 'title="The whole book, to print or to keep"', pdf)
            html.write_text(text.replace(found[0], found[0] + "\n" + pdf), "utf-8")


def make(site, root=notebooks.ROOT):
    """Write the PDF into the site; returns what was wider than the text, in words."""
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
    name_in_menus(site)
    return wide


def main():
    site, start = Path(sys.argv[1] if len(sys.argv) > 1 else "_build/html"), time.time()
    if not sitecheck.chromium():
        sys.exit("no browser found: install chromium, or name one in CVBOOK_CHROMIUM")
    if wide := make(site):
        sys.exit("\n".join(["wider than the paper:", *wide]))
    size, pages = (site / FILE).stat().st_size / 1e6, len(PdfReader(site / FILE).pages)
    print(f"{pages} pages in {time.time() - start:.0f} s, {size:.0f} MB: open {site / FILE}")


if __name__ == "__main__":
    main()
