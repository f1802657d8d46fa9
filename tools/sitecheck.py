"""Open every page of the built book in a real browser and say what a reader would trip over.

    python tools/sitecheck.py [_build/html]

Pages are opened as files, the strictest case: nothing may come from anywhere else. `check_page`
returns sentences, one per problem; tests/test_site.py proves that each of them can be found.
"""

import os
import re
import shutil
import sys
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

# What the page shows, once its equations are set. Folded parts are unfolded first.
UNFOLD = """() => {
  document.querySelectorAll('details').forEach(d => d.open = true);
  document.querySelectorAll('.toggle-hidden').forEach(d => d.classList.remove('toggle-hidden'));
}"""
MATHS = """async () => {
  if (window.MathJax?.startup?.promise) await MathJax.startup.promise;
  const found = [];
  for (const e of document.querySelectorAll('.math'))
    if (!e.querySelector('mjx-container')) found.push('raw TeX: ' + e.textContent.trim());
  for (const e of document.querySelectorAll('mjx-merror, [data-mjx-error]'))
    found.push('equation with an error: ' + (e.dataset.mjxError || e.textContent));
  for (const e of document.querySelectorAll('mjx-assistive-mml [mathcolor="red"]'))
    found.push('equation with an unknown command: ' + e.textContent);
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode.textContent, inside = walk.currentNode.parentElement;
    if (/\\\\\\(|\\\\\\[|\\$\\$|\\\\begin\\{|\\{(eq|ref|cite|numref|prf:ref)\\}`/.test(text)
        && !inside.closest('pre, code, script, style, .math, mjx-container'))
      found.push('raw TeX or markup: ' + text.trim().slice(0, 80));
  }
  return found;
}"""
OVERFLOW = """() => {
  const page = document.documentElement, width = page.clientWidth;
  if (page.scrollWidth <= width + 1) return [];
  const wide = [...document.body.querySelectorAll('*')].filter(
    e => Math.abs(e.getBoundingClientRect().right - page.scrollWidth) < 2).at(-1);
  return [`wider than the screen at ${width} px: ` + (wide
    ? `<${wide.tagName.toLowerCase()} class="${wide.className}"> in "`
      + wide.parentElement.textContent.trim().slice(0, 60) + '"'
    : 'no single element is to blame')];
}"""
# Parts that only a scroll bar inside the page would show. On a phone code, whose lines may not be
# broken, has one.
CLIPPED = """() => {
  const phone = document.documentElement.clientWidth < 600;
  return [...document.querySelectorAll('.bd-article :is(div.math, table, figcaption, pre)')]
    .filter(e => e.scrollWidth > e.clientWidth + 2 && !(phone && e.matches('pre')))
    .map(e => `clipped at ${document.documentElement.clientWidth} px: ${e.scrollWidth} px in `
      + `${e.clientWidth}: ` + e.textContent.trim().slice(0, 60));
}"""
# Punctuation that begins a line because a formula ends the one before.
PARTED = """() => [...document.querySelectorAll('.bd-article span.math')].flatMap(formula => {
  const text = formula.nextSibling, range = document.createRange();
  if (text?.nodeType != Node.TEXT_NODE || !/^[,.;:!?)]/.test(text.data)) return [];
  range.setStart(text, 0);
  range.setEnd(text, 1);
  const mark = range.getBoundingClientRect(), maths = formula.getBoundingClientRect();
  return mark.width && mark.left < maths.left + 1 && mark.bottom > maths.bottom + 5
    ? ['line that begins with punctuation: ' + formula.parentElement.textContent.slice(0, 60)] : [];
})"""
# A slider is moved by keys, tells its value, and every picture of it has words.
SLIDERS = """() => [...document.querySelectorAll('.cv-slider')].flatMap(box => {
  const found = [], input = box.querySelector('input[type=range]');
  const name = box.querySelector('label')?.textContent.trim().slice(0, 40) || 'no label';
  const shown = () => [...box.querySelectorAll('img')].findIndex(i => i.style.display != 'none');
  if (!input || !input.labels.length || input.tabIndex < 0) return [`slider without keys: ${name}`];
  if (box.outerHTML.length > 700_000) found.push(`slider over 700 KB: ${name}`);
  const at = input.value, said = input.getAttribute('aria-valuetext');
  input.value = +at ? 0 : 1;
  input.dispatchEvent(new Event('input', {bubbles: true}));
  if (input.getAttribute('aria-valuetext') == said)
    found.push(`slider that tells no value: ${name}`);
  if (shown() != +input.value) found.push(`slider that shows no other picture: ${name}`);
  input.value = at;
  input.dispatchEvent(new Event('input', {bubbles: true}));
  return found;
})"""
IMAGES = """() => [...document.querySelectorAll('img')]
  .filter(i => !i.alt.trim() || /\\.(png|svg|jpe?g|gif)$/.test(i.alt))
  .map(i => 'picture without alt text: ' + i.getAttribute('src').slice(0, 80))"""
# The share of a page's height that is code, folds closed, and its blocks by height.
CODE = """() => {
  const page = document.querySelector('.bd-article');
  const blocks = [...page.querySelectorAll('div.highlight')]
    .filter(e => !e.closest('.cell_output, .toggle-hidden, details:not([open])'))
    .map(e => [(e.closest('.cell_input') || e).getBoundingClientRect().height,
      e.textContent.trim().split('\\n')[0]])
    .filter(([height]) => height).sort((a, b) => b[0] - a[0]);
  const all = page.getBoundingClientRect().height;
  return {share: blocks.reduce((sum, b) => sum + b[0], 0) / all, height: all, blocks};
}"""
LINKS = "() => [...document.querySelectorAll('a[href]')].map(a => a.href)"


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

    def on_failure(request):
        found.append(f"failed request: {request.url.removeprefix(inside)} ({request.failure})")

    for width in WIDTHS:
        page = opened.new_page(viewport={"width": width, "height": 900})
        page.on("request", on_request)
        page.on("requestfailed", on_failure)
        page.on("pageerror", lambda error: found.append(f"uncaught error: {error}"))
        page.goto(html.resolve().as_uri(), wait_until="load", timeout=PATIENCE)
        found += page.evaluate(MATHS)
        page.evaluate(UNFOLD)
        found += page.evaluate(OVERFLOW) + page.evaluate(CLIPPED) + page.evaluate(PARTED)
        if width == WIDTHS[0]:  # the same at any width
            found += page.evaluate(IMAGES) + page.evaluate(SLIDERS)
            found += broken_links(page.evaluate(LINKS))
        page.close()
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
    """The pages that the site's own search finds for a word."""
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
    return {Path(urlparse(link).path).name for link in links}


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
