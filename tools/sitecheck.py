"""Open every page of the built book in a real browser and say what a reader would trip over.

    python tools/sitecheck.py [_build/html]

Pages are opened as files, the strictest case: nothing may come from anywhere else. `check_page`
returns sentences, one per problem; tests/test_site.py proves that each of them can be found.
"""

import os
import re
import shutil
import sys
import zlib
from contextlib import contextmanager
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlparse

WIDTHS = 1280, 390  # a laptop and a phone
PATIENCE = 120_000  # milliseconds: a busy machine is not a broken page
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage"
).split()
SCRIPTS = Path(__file__).with_suffix(".js")


def script(name, path=SCRIPTS):
    """A function of a file of scripts, to be evaluated in a page."""
    text = path.read_text("utf-8")
    return re.search(rf"^const {name} = (.*?);$(?=\n\n|\n\Z)", text, re.M | re.S)[1]


UNFOLD, MATHS, OVERFLOW, CLIPPED, PARTED, HIDDEN, SLIDERS, IMAGES, HEADINGS, CODE, LINKS = map(
    script,
    "UNFOLD MATHS OVERFLOW CLIPPED PARTED HIDDEN SLIDERS IMAGES HEADINGS CODE LINKS".split(),
)
CONTRAST = script("CONTRAST")
HEAVY = 2_000_000  # bytes of a page with all that it loads, compressed, without MathJax


def chromium():
    """The path of an installed browser, or None; CVBOOK_CHROMIUM names another one."""
    names = "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"
    return os.environ.get("CVBOOK_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


@contextmanager
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield opened
        opened.close()


def pages(site):
    """Every page of the site; templates that the theme leaves in _static are not pages."""
    return [p for p in sorted(site.rglob("*.html")) if "_static" not in p.relative_to(site).parts]


@cache
def anchors(html):
    """The ids of a page, read from its file."""
    ids = set()
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: ids.update(v for k, v in attrs if k == "id")
    parser.feed(html.read_text("utf-8"))
    return ids


def broken_links(links):
    """Links to files that are not there, or to anchors their page does not have."""
    found = []
    for link in sorted(set(links)):
        url, anchor = urldefrag(link)
        if urlparse(url).scheme != "file":
            continue  # the reader's own click; only requests must stay inside
        target = Path(unquote(urlparse(url).path))
        if not target.exists():
            found.append(f"link to a missing page: {target.name}")
        elif anchor and target.suffix == ".html" and unquote(anchor) not in anchors(target):
            found.append(f"link to a missing anchor: {target.name}#{anchor}")
    return found


@cache
def transferred(path):
    """The bytes of a file as a server sends it, compressed."""
    return len(zlib.compress(path.read_bytes(), 6))


def redirect(html):
    """Where a page sends the reader at once, as a link; None for an ordinary page."""
    refresh = re.search(r'http-equiv="refresh" content="0; url=([^"]+)"', html.read_text(), re.I)
    return urljoin(html.resolve().as_uri(), refresh[1]) if refresh else None


def check_page(opened, html, site):
    """The problems of one page, in words: opened at each width, everything unfolded."""
    if target := redirect(html):
        return broken_links([target])
    inside = site.resolve().as_uri() + "/"
    found = []

    def on_request(request):
        if not request.url.startswith((inside, "data:", "blob:", "about:")):
            found.append(f"request outside the site: {request.url}")

    loaded = {}  # file: its size

    def on_response(response):
        path = Path(unquote(urlparse(response.url).path))
        if response.url.startswith(inside) and "mathjax" not in path.parts and path.is_file():
            loaded[path] = transferred(path)

    def on_failure(request):
        found.append(f"failed request: {request.url.removeprefix(inside)} ({request.failure})")

    for width in WIDTHS:
        page = opened.new_page(viewport={"width": width, "height": 900})
        page.on("request", on_request)
        page.on("requestfailed", on_failure)
        page.on("response", on_response)
        page.on("pageerror", lambda error: found.append(f"uncaught error: {error}"))
        page.goto(html.resolve().as_uri(), wait_until="load", timeout=PATIENCE)
        found += page.evaluate(MATHS)
        page.evaluate(UNFOLD)
        found += page.evaluate(OVERFLOW) + page.evaluate(CLIPPED) + page.evaluate(PARTED)
        found += page.evaluate(HIDDEN)
        if width == WIDTHS[0]:  # the same at any width
            found += page.evaluate(IMAGES) + page.evaluate(SLIDERS) + page.evaluate(HEADINGS)
            found += broken_links(page.evaluate(LINKS)) + page.evaluate(CONTRAST)
            page.evaluate("document.documentElement.dataset.theme = 'dark'")
            found += [f"in the dark, {problem}" for problem in page.evaluate(CONTRAST)]
        page.close()
    if (size := sum(loaded.values())) > HEAVY:
        found.append(f"page over 2 MB: {size / 1e6:.1f} MB without MathJax")
    return list(dict.fromkeys(found))


def code_of(opened, html):
    """The share of a page's height that is code on a laptop, and its blocks of code by height."""
    page = opened.new_page(viewport={"width": WIDTHS[0], "height": 900})
    page.goto(html.resolve().as_uri(), wait_until="load", timeout=PATIENCE)
    page.evaluate(MATHS)  # once equations have their height
    found = page.evaluate(CODE)
    page.close()
    return found


def search(opened, site, word):
    """The pages that the site's own search finds for a word, the first one first."""
    page = opened.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(f"{(site / 'search.html').resolve().as_uri()}?q={word}", wait_until="load")
    page.wait_for_function(
        "() => /found|did not match/i.test(document.querySelector('#search-results')?.innerText)"
        " && !/searching/i.test(document.querySelector('#search-results h2')?.innerText)"
    )
    links = page.evaluate(
        "() => [...document.querySelectorAll('#search-results li a')].map(a => a.href)"
    )
    page.close()
    return list(dict.fromkeys(Path(urlparse(link).path).name for link in links))


def main():
    site = Path(sys.argv[1] if len(sys.argv) > 1 else "_build/html")
    if not chromium():
        sys.exit("no browser found: install chromium, or name one in CVBOOK_CHROMIUM")
    bad = 0
    with browser() as opened:
        for html in pages(site):
            problems = check_page(opened, html, site)
            bad += len(problems)
            for problem in problems:
                print(f"{html.relative_to(site)}: {problem}")
    print(f"{len(pages(site))} pages opened, {bad} problems")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
