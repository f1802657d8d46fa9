"""The built book in a real browser: every page, and proof that each check can fail.

Without a browser or a built book the tests are skipped and say why; with CVBOOK_BROWSER=required
(as in CI) a missing browser fails, and a missing or old book is built first.
"""

import io
import os
import random
import re
import shutil
import subprocess
import sys
import zipfile
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path

import nbformat
import notebooks  # tools/notebooks.py
import pytest
import reading  # tools/reading.py
import sitecheck  # tools/sitecheck.py
import takeaway  # tools/takeaway.py
import yaml
from bs4 import BeautifulSoup
from pypdf import PdfReader

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "_build/html"
pytestmark = pytest.mark.site


def newest(*patterns):
    return max((p.stat().st_mtime for pattern in patterns for p in ROOT.glob(pattern)), default=0)


@pytest.fixture(scope="module")
def site(browser_required):
    tools = "backmatter booksite cvbook reading sharing slides takeaway typeset".split()
    pages = "book/[!.]*.*", "book/_static/*", "_*.yml", "cvlib/*.py"
    sources = newest(*pages, *(f"tools/{name}.py" for name in tools))
    if newest("_build/html/objects.inv") < sources:  # the last file that a build writes
        if not browser_required:
            pytest.skip("the built book is missing or older than its sources: run make book")
        program = Path(sys.executable).with_name("jupyter-book")
        subprocess.run([program, "build", ".", "-W", "-n", "--all", "-q"], cwd=ROOT, check=True)
    return SITE


@contextmanager
def opened(browser, html, width=1280, **more):
    page = browser.new_page(viewport={"width": width, "height": 900}, **more)
    page.set_default_timeout(sitecheck.PATIENCE)
    page.goto(html.resolve().as_uri(), wait_until="load")
    yield page
    page.close()


def test_every_page(browser, site):
    pages = sitecheck.pages(site)
    found = {str(p.relative_to(site)): sitecheck.check_page(browser, p, site) for p in pages}
    assert len(pages) >= len(list(ROOT.glob("book/*.md")))
    assert not {page: problems for page, problems in found.items() if problems}


def test_the_index_fits_in_a_wider_font(browser, site):
    """Names of the package have no place to break, and every machine has other fonts."""
    with opened(browser, site / "genindex.html") as page:
        links = "[...document.querySelectorAll('.genindextable a')]"  # long ones are broken
        width = f"Math.min(...{links}.map(e => e.getBoundingClientRect().width))"
        before = page.evaluate(width)
        page.add_style_tag(content="* { letter-spacing: 0.1em }")
        assert page.evaluate(width) > 1.1 * before
        assert page.evaluate(sitecheck.CLIPPED) == []


def test_code_takes_no_more_than_two_fifths_of_a_page(browser, site):
    """By height on a laptop, folds closed."""
    own = "api", "definitions", "extending", "internals"  # the package's own, made of code
    made = {md.stem for md in notebooks.BOOK.glob("*.md")} - {*own, "what-to-do"}  # to be pasted
    pages = [p for p in (site / "book").glob("*.html") if p.stem in made]
    share = {p.stem: sitecheck.code_of(browser, p)["share"] for p in pages}
    assert len(share) >= 30 and max(share.values()) > 0.1
    assert not {page: round(x, 2) for page, x in share.items() if x > 0.4}


def test_the_side_bar_marks_the_pages_of_the_day(site):
    page = BeautifulSoup((site / "book/intro.html").read_text("utf-8"), "html.parser")
    marks = page.select(".bd-sidebar-primary .of-the-day")
    links = [mark.find_parent("li").a["href"] for mark in marks]
    assert [Path(link).stem for link in links] == reading.day()


def test_an_old_address_leads_to_its_page(browser, site):
    for old, new in yaml.safe_load((ROOT / "_redirects.yml").read_text("utf-8")).items():
        assert (site / f"book/{new}.html").exists() and (site / f"book/{old}.html").exists()
    with opened(browser, site / "book/02-one-control-variate.html", 1280) as page:
        page.wait_for_url("**/one-control-variate.html")


def test_references_to_chapters_have_numbers_and_sliders_captions(site):
    numbers = notebooks.numbers()
    for md in notebooks.chapters():
        text = (site / f"book/{md.stem}.html").read_text("utf-8")
        article = BeautifulSoup(text, "html.parser").find("article")
        for link in article.select('a[href*="#chap-"]'):
            if md.stem == "intro" and link.get_text().strip() in ("Teach me", "I teach"):
                continue  # the doors
            target = Path(link["href"].split("#")[0]).stem or md.stem
            number, words = numbers.get(f"book/{target}"), link.get_text()
            own = re.match("[a-z]", words)  # the text's own words for it
            assert not number or own or re.match(rf"(Chapter )?{number}\b", words), words
        for slider in article.select(".cv-slider"):
            caption = slider.find_parent("figure").figcaption.get_text()
            assert re.match(rf"Fig. {numbers['book/' + md.stem]}\.\d", caption.strip())


@pytest.mark.parametrize("width, lines", [(1280, 1), (390, 2)])
def test_a_formula_has_one_line_on_a_wide_screen_and_two_on_a_phone(browser, site, width, lines):
    with opened(browser, site / "book/elbo.html", width) as page:
        page.evaluate(sitecheck.MATHS)
        shown = page.locator("div.math:has(.wide-screen)").first.locator("mjx-container:visible")
        assert shown.count() == 1
        assert min(shown.locator("[data-mml-node=mtr]").count(), 2) == lines


def test_the_problems_of_all_pages_are_counted(monkeypatch, capsys, tmp_path):
    """Two on the first of two pages, none on the last: two, and the program fails."""
    found = {"a.html": ["one", "two"], "b.html": []}
    monkeypatch.setattr(sitecheck, "chromium", lambda: "a browser")
    monkeypatch.setattr(sitecheck, "browser", nullcontext)
    monkeypatch.setattr(sitecheck, "pages", lambda site: [site / name for name in found])
    monkeypatch.setattr(sitecheck, "check_page", lambda opened, html, site: found[html.name])
    monkeypatch.setattr(sys, "argv", ["sitecheck.py", str(tmp_path)])
    for code, count in (1, 2), (0, 0):
        with pytest.raises(SystemExit) as end:
            sitecheck.main()
        assert end.value.code == code
        assert f"2 pages opened, {count} problems" in capsys.readouterr().out
        found["a.html"] = []


WHERE = {  # what a reader of the field types, and the page that treats it
    "STL": "pairs", "ESS": "your-own-model", "ELBO": "elbo", "QMC": "dependent-draws",
    "SVRG": "subsampling", "RLOO": "beyond-the-gaussian", "DisARM": "beyond-the-gaussian",
    "IWAE": "after-the-fit", "LSVI": "all-quadratics", "DADVI": "your-own-model",
    "IVON": "natural-gradients",
}  # fmt: skip


@pytest.mark.parametrize("word", WHERE)
def test_an_abbreviation_of_the_field_finds_its_page_first(browser, site, word):
    assert sitecheck.search(browser, site, word)[0] == f"{WHERE[word]}.html"
    assert sitecheck.search(browser, site, "xylophonist") == []


# The home page ----------------------------------------------------------------------------------


def test_the_first_screen_has_the_sentence_the_doors_and_the_top_of_the_figure(browser, site):
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto((site / "book/intro.html").resolve().as_uri(), wait_until="load")
    below = lambda what: (box := page.locator(what).first.bounding_box())["y"] + box["height"]
    doors = page.locator(".doors a")
    assert doors.count() == 3 and below(".bd-article p strong") < below(".doors") < 800
    assert page.locator("#fig-seconds img").bounding_box()["y"] < 650
    leads = [door.get_attribute("href").split("#")[0] for door in doors.all()]
    assert leads == ["what-to-do.html", "elbo.html", "teaching.html"]
    page.close()


def test_the_home_page_is_short_and_its_figure_fits_a_phone(browser, site):
    with opened(browser, site / "book/intro.html", 390) as page:
        text = page.locator(".bd-article").inner_text()
        assert len(text.split()) <= 900
        figures = page.locator(".bd-article figure img")
        assert figures.count() == 1 and figures.bounding_box()["width"] <= 374


def test_the_lines_of_the_home_page_fit_a_model(site, tmp_path):
    """Three lines: the wheel that they name is there, and what they run prints a table."""
    page = BeautifulSoup((site / "book/intro.html").read_text("utf-8"), "html.parser")
    install, lines, *_ = [block.get_text().strip() for block in page.select("article pre")]
    assert install.startswith("pip install") and (site / install.split("/")[-1].strip("'")).exists()
    assert len([line for line in lines.splitlines() if line]) == 2
    run = subprocess.run([sys.executable, "-c", lines], cwd=ROOT, capture_output=True, text=True)
    assert re.search(r"^ +mean +sd +5 % +50 % +95 %\nz\[0\] ", run.stdout, re.M), run.stderr


# Pages that are printed, and slides -------------------------------------------------------------


def test_a_page_printed_from_the_browser_has_all_its_words(browser, site):
    """What stands in folded parts is on paper, too: none is an empty box."""
    with opened(browser, site / "book/one-control-variate.html", 700) as page:
        page.evaluate(sitecheck.MATHS)
        folded = page.evaluate(
            "() => [...document.querySelectorAll('details pre, .toggle p')]"
            ".filter(e => !e.querySelector('.math')).map(e => e.textContent.trim())"
            ".filter(text => text.length > 60)"
        )
        paper = PdfReader(io.BytesIO(page.pdf(format="A4")))
    joined = lambda text: re.sub(r"\W+", "", text)
    printed = joined("".join(sheet.extract_text() for sheet in paper.pages))
    assert len(folded) >= 3
    assert not [text[:60] for text in folded if joined(text[:40]) not in printed]


LETTER = re.compile(
    r"\\(?:hat|bar|tilde)\s*\{?(\w)\}?|\\(alpha|rho|epsilon|mu|Sigma)(?![A-Za-z])|([A-Za-z])"
)
COMMANDS = re.compile(
    r"\\(?:begin|end)\{\w+\}|\\(?:mathrm|text|operatorname)\{[^}]*\}|\\mathbb E|\\mathcal \w"
    r"|\\(?!hat|bar|tilde|alpha|rho|epsilon|mu|Sigma)[A-Za-z]+|_\{\w+\}|\^\{?\\top\}?|_[a-z0-9]"
)


def letters(tex):
    """The letters of a formula, without commands, words and indices."""
    return {next(filter(None, m)) for m in LETTER.findall(COMMANDS.sub(" ", tex))}


def test_every_letter_of_a_formula_is_named_on_its_slide(site):
    deck = BeautifulSoup((site / "slides.html").read_text("utf-8"), "html.parser")
    missing = {}
    for slide in deck.select("article"):
        text = str(slide)
        shown = re.findall(r"\\\[(.*?)\\\]", slide.get_text(), re.S)
        said = re.findall(r"\\\((.*?)\\\)", slide.get_text(), re.S)
        lacking = letters(" ".join(shown)) - letters(" ".join(said)) - {"e", "k", "d"}
        if lacking and text:
            missing[slide.h1.get_text()] = lacking
    assert not missing
    assert letters(r"\hat A_k = \alpha x \mathrm{tr}\, v^\top") == {"A", "alpha", "x", "v"}


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_figures_are_turned_round_in_the_dark_and_nothing_stands_in_a_pale_box(browser, site, mode):
    """That words stand out from their ground, test_every_page sees on each page."""
    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=mode)
    page.goto((site / "book/one-control-variate.html").resolve().as_uri(), wait_until="load")
    styles = lambda which, key: page.evaluate(
        f"() => [...document.querySelectorAll('{which}')].map(e => getComputedStyle(e).{key})"
    )
    figure = [styles("figure img", key)[0] for key in ("backgroundColor", "filter")]
    assert mode == "light" or figure == ["rgb(255, 255, 255)", "invert(0.93) hue-rotate(180deg)"]
    assert set(styles(".cell_output .text_html", "backgroundColor")) == {"rgba(0, 0, 0, 0)"}
    page.close()


FOLDED = """() => [...document.querySelectorAll('.admonition.toggle > *, details > *')]
  .filter(e => e.tagName != 'SUMMARY' && e.textContent.trim()
    && (!e.getBoundingClientRect().height || !e.checkVisibility({opacityProperty: true,
      visibilityProperty: true, contentVisibilityAuto: true})))
  .map(e => e.textContent.trim().slice(0, 40))"""


WHOLE = """() => [...document.querySelectorAll(
  'pre, figure, .output, .pst-scrollable-table-container')]
  .filter(e => e.closest('.bd-article') && getComputedStyle(e).overflow != 'visible')
  .map(e => e.outerHTML.slice(0, 60))"""


def test_a_page_on_paper_is_unfolded_and_folds_again(browser, site):
    with opened(browser, site / "book/one-control-variate.html", 700) as page:
        page.wait_for_selector(".toggle-hidden")
        page.evaluate(
            "() => document.querySelectorAll('.bd-sidebar details').forEach(e => e.remove())"
        )
        before = page.evaluate(FOLDED)
        assert len(before) > 3  # solutions and code
        page.emulate_media(media="print")
        assert page.evaluate(FOLDED) == []
        assert page.evaluate(sitecheck.CLIPPED) == []
        assert page.evaluate(WHOLE) == []  # printers move it to the next sheet, away from its box
        page.emulate_media(media="screen")
        page.wait_for_timeout(500)  # the theme folds with a little animation
        assert page.evaluate(FOLDED) == before
        for event, count in ("beforeprint", 0), ("afterprint", len(before)):  # what printing sends
            page.evaluate(f"() => window.dispatchEvent(new Event('{event}'))")
            page.wait_for_timeout(500)
            assert len(page.evaluate(FOLDED)) == count


def test_a_figure_opens_at_full_size(browser, site):
    with opened(browser, site / "book/one-control-variate.html", 390) as page:
        figures = page.locator("figure a.full-size")
        assert figures.count() >= 2
        shown = figures.first.locator("img").bounding_box()["width"]
        figures.first.click()
        assert page.url.endswith(".png") and shown >= 460  # 9 px for labels of 9 pt in 6.4 inches
        assert page.evaluate("document.images[0].naturalWidth") > 1000


def test_the_periodic_table_answers_to_keys_and_taps_and_is_a_picture_on_paper(browser, site):
    with opened(browser, site / "book/zoo.html", 390) as page:
        pressed = page.locator(".cv-table [aria-pressed=true]")
        said = page.locator(".cv-table [aria-live]").inner_text
        texts = [said()]
        pressed.focus()
        page.keyboard.press("ArrowLeft")
        texts.append(said())
        page.locator(".cv-table button").first.click()
        texts.append(said())
        assert len(set(texts)) == 3 and pressed.count() == 1
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        for media, buttons in ("screen", True), ("print", False):
            page.emulate_media(media=media)
            assert page.locator(".cv-table").is_visible() == buttons
            for part in "img", "figcaption":
                assert page.locator(f"#fig-zoo-sonar {part}").is_visible()


def test_every_page_offers_its_source_the_project_and_the_package(site):
    """As links; test_every_page finds those that lead nowhere."""
    for file in notebooks.pages_of_toc():
        html, twin = site / f"{file.removesuffix('.ipynb')}.html", Path(file).suffix == ".ipynb"
        menu = html.read_text("utf-8").split("dropdown-download-buttons")[1].split("</ul>")[0]
        names = [Path(link).name for link in re.findall(r'href="([^"]+)"', menu)]
        assert f"{html.stem}{'.ipynb' if twin else '.md'}" in names
        assert {"cvbook.zip", takeaway.wheel_name()} <= set(names)


def test_two_lines_bring_the_book_to_an_empty_folder(browser, browser_required, site, tmp_path):
    """Pasted as they stand: download, unpack, install, run chapter 2. Then the wheel."""
    if not browser_required:
        pytest.skip("it installs everything: make site-test does it")
    with opened(browser, site / "book/intro.html") as page:
        lines = page.locator("pre", has_text="curl").inner_text().strip()
    assert len(lines.splitlines()) == 2 and site.resolve().as_uri() in lines
    hidden = "PYTHONPATH", "VIRTUAL_ENV", "PYTEST_CURRENT_TEST", "MAKEFLAGS", "MAKELEVEL"
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    how = {"env": env, "capture_output": True, "text": True}
    run = subprocess.run(["bash", "-ec", lines], cwd=tmp_path, **how)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "one-control-variate: executed in" in run.stdout
    book = tmp_path / "cvbook"
    same = lambda name: stored_text(book / "book" / name) == stored_text(ROOT / "book" / name)
    assert same("one-control-variate.ipynb")
    wheel, elsewhere = (site / takeaway.wheel_name()).resolve(), tmp_path / "elsewhere"
    elsewhere.mkdir()
    install = (
        f"../cvbook/.venv/bin/python -m pip install -q --no-deps --target here {wheel}\n"
        "PYTHONPATH=here ../cvbook/.venv/bin/python -c"
        " 'import cvlib; print(cvlib.__file__); cvlib.datasets.load(\"sonar\")'"
    )
    run = subprocess.run(["bash", "-ec", install], cwd=elsewhere, **how)
    assert run.stdout.strip().endswith("elsewhere/here/cvlib/__init__.py"), run.stdout + run.stderr


ALONE = """import nbformat, sys
from nbclient import NotebookClient

nb = nbformat.read(sys.argv[1], as_version=4)
look = "import cvlib, experiments, sliders; print(cvlib.__file__, experiments.__file__)"
nb.cells.append(nbformat.v4.new_code_cell(look))
NotebookClient(nb, timeout=600, kernel_name="python3", coalesce_streams=True).execute()
nbformat.write(nb, sys.argv[1])"""


@pytest.mark.parametrize("name", ["experiments", "your-own-model"])
def test_a_chapter_downloaded_alone_runs_with_the_wheel(browser_required, site, tmp_path, name):
    """In an empty folder, with nothing of the project in reach: a slider, stored results, measured
    times. What the extra `book` names is taken from this environment."""
    if not browser_required:
        pytest.skip("it runs a chapter: make site-test does it")
    wheel, here = site / takeaway.wheel_name(), tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(here)
        (about,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        text = archive.read(about).decode()
    named = re.findall(r"^Requires-Dist: ([\w-]+).*extra == .book.", text, re.M)
    assert named and all(find_spec(package) for package in named)
    chapter = shutil.copy(site / f"_sources/book/{name}.ipynb", tmp_path)
    assert "pip install" in Path(chapter).read_text("utf-8").split("import cvbook")[0]
    env = os.environ | {"PYTHONPATH": str(here)}
    subprocess.run([sys.executable, "-c", ALONE, chapter], cwd=tmp_path, env=env, check=True)
    said = stored_text(chapter)
    assert said[-1].count(str(here)) == 2  # nothing came from elsewhere
    assert said[:-1] == stored_text(ROOT / f"book/{name}.ipynb")


def stored_text(ipynb):
    """What the cells of a notebook print, and their tables."""
    cells = nbformat.read(ipynb, as_version=4).cells
    said = lambda o: o.text if o.output_type == "stream" else o.data.get("text/plain", "")
    return [said(o) for c in cells for o in c.get("outputs", [])]


# Each check, on a page broken on purpose --------------------------------------------------------

DOT = "data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA="
GOOD = f"""<!doctype html><html lang="en"><head><title>t</title>
<script>window.MathJax = {{}};</script><script defer src="mathjax/tex-svg-full.js"></script></head>
<body><h1 id="top">Good</h1> <a href="#top">up</a> <a href="good.html#top">self</a>
<span class="math">\\(x^2\\)</span> <pre>\\(code\\)</pre>
<img alt="A dot." src="{DOT}"></body></html>"""
inside = lambda html: f'<article class="bd-article">{html}</article>'
PICTURES = f'<img alt="a" src="{DOT}"><img alt="b" src="{DOT}" style="display: none">'
slider = lambda control: f'<div class="cv-slider">{control}{PICTURES}</div>'
MATH, CUT = '<span class="math">\\(%s\\)</span>', 'style="width: 90px; overflow: auto"'
KNOB = '<label>v<input type="range" max="1" value="0"></label>'
WIDE = '<mjx-container><div style="width: 200px">x</div></mjx-container>'
DEFECTS = {  # what is added to the good page, and what must be found
    '<img alt="x" src="https://example.org/x.png">': "request outside the site",
    '<img alt="x" src="missing.png">': "failed request: missing.png",
    "<script>throw new Error('ours')</script>": "uncaught error: ours",
    '<span class="math mathjax_ignore">\\(x\\)</span>': "raw TeX: ",
    '<p class="mathjax_ignore">so \\(x\\) it is</p>': "raw TeX or markup: so",
    "<p>see {eq}`eq:one`</p>": "raw TeX or markup: see",
    MATH % "x^1^2": "equation with an error: Double exponent",
    MATH % "\\nosuch x": "equation with an unknown command",
    '<div style="width: 2000px">wide</div>': "wider than the screen at 1280 px",
    '<div style="width: 700px">wide</div>': "wider than the screen at 390 px",
    '<details><div style="width: 700px">wide</div></details>': "wider than the screen at 390 px",
    inside(f"<pre {CUT}>0123456789012345678</pre>"): "clipped at 1280 px",
    inside(f'<p style="width: 0">{MATH % "x"}, so</p>'): "line that begins with punctuation",
    inside(f'<div class="math" {CUT}>{WIDE}</div>'): "clipped at 1280 px",
    slider(""): "slider without keys",
    slider(KNOB.replace('"0">', '"0" oninput="0">')): "slider that tells no value",
    slider(KNOB): "slider that shows no other picture",
    slider(KNOB + "x" * 700_000): "slider over 700 KB",
    '<a href="gone.html">gone</a>': "link to a missing page: gone.html",
    '<a href="#gone">gone</a>': "link to a missing anchor: good.html#gone",
    inside('<p style="color: #888">so pale</p>'): "words too pale: 3.5",
    inside(
        "<style>[data-theme=dark] p { background: #111 }</style><p style='color: #000'>so dark</p>"
    ): "in the dark, words too pale: 1.1",
    inside("<h3>deep</h3>"): "heading out of order: h3 deep",
    inside("<h1>second</h1>"): "2 headings h1",
    inside(
        f'<figure style="width: 90px; overflow: auto"><img alt="a" src="{DOT}" width="300">'
        "</figure>"
    ): "figure that scrolls and does not say so",
    '<script src="heavy.js"></script>': "page over 2 MB: ",
    f'<img src="{DOT}">': "picture without alt text",
    f'<img alt="../_images/a.png" src="{DOT}">': "picture without alt text",
}


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    package = Path(find_spec("sphinx-mathjax-offline").submodule_search_locations[0])
    (folder / "mathjax").mkdir()
    shutil.copy(package / "static/mathjax/tex-svg-full.js", folder / "mathjax")
    (folder / "heavy.js").write_text("//" + random.Random(0).randbytes(2_500_000).hex())
    return folder


def problems_of(browser, folder, html):
    sitecheck.anchors.cache_clear()
    (folder / "good.html").write_text(html)
    return sitecheck.check_page(browser, folder / "good.html", folder)


def test_a_good_page_has_no_problem(browser, workshop):
    assert problems_of(browser, workshop, GOOD) == []


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect[:40])
def test_a_defect_is_found(browser, workshop, defect):
    found = problems_of(browser, workshop, GOOD.replace("</body>", defect + "</body>"))
    assert any(problem.startswith(DEFECTS[defect]) for problem in found), found


def test_a_redirect_to_nowhere_is_found(browser, workshop):
    html = '<meta http-equiv="Refresh" content="0; url=gone.html" />'
    assert problems_of(browser, workshop, html) == ["link to a missing page: gone.html"]
