"""What is made of the pages: the lists in the back of the book, and the deck of an afternoon."""

import io
import json
import math
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import notebooks  # tools/notebooks.py
import numpy as np
import pytest
import reading  # tools/reading.py
import sharing  # tools/sharing.py
import slides  # tools/slides.py
import yaml

import cvlib

BOOK = notebooks.BOOK
PAGES = {
    "conf.py": f"""
import sys
sys.path.insert(0, {str(Path(notebooks.__file__).parent)!r})
extensions = ["myst_parser", "sphinx_proof", "sphinx.ext.mathjax", "backmatter"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
""",
    "index.md": "# Start\n\n```{toctree}\n:numbered: 1\nb\na\ncode\nterms\nlate\nconcepts\n"
    "proofs\n```\n",
    "a.md": "# Second\n\n:::{prf:lemma} A (small) step\n:label: lem-small\nx.\n:::\n\n"
    "$$x$$ (eq:width)\n",
    "b.md": "# First\n\n:::{prf:theorem} Narrow $q$\n:label: thm-narrow\nx.\n:::\n\n"
    "$$x$$ (eq:second)\n",
    "terms.md": "# Terms\n\n```{glossary}\nwidth\n  How wide.\n\nlength\n  Long.\n```\n",
    "late.md": "# Late\n\n(sec-late)=\n## Late section\n\nText.\n",
    "code.md": "# Code\n\n```{eval-rst}\n.. py:function:: slope(f)\n\n   The slope f' of f.\n```\n",
    "concepts.md": "# Ideas\n\n- width, see scale: {prf:ref}`thm-narrow`, {eq}`eq:width`, "
    "{eq}`eq:second`\n- LT, see late: {ref}`sec-late`\n",
    "proofs.md": "# Proofs\n\n```{proof-index}\n```\n",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    root = tmp_path_factory.mktemp("site")
    for name, text in PAGES.items():
        (root / name).write_text(text)
    build = [sys.executable, "-m", "sphinx", "-q", "-W", ".", "out"]
    subprocess.run(build, cwd=root, check=True, capture_output=True)
    return root / "out"


def test_ideas_are_in_index_and_search_and_docstrings_keep_their_primes(built):
    page = (built / "genindex.html").read_text("utf-8")
    assert re.search(r">(<strong>)?width(</strong>)?</a>", page)
    assert "b.html#thm-narrow" in page and "a.html#equation-eq-width" in page
    assert "b.html#equation-eq-second" not in page  # one entry a page
    index = (built / "searchindex.js").read_text("utf-8")
    found = json.loads("{" + re.search(r'"indexentries": (\{.*?\})', index)[0] + "}")[
        "indexentries"
    ]
    pages = json.loads(re.search(r'"docnames": (\[.*?\])', index)[1])
    main = lambda word: {pages[page] for page, _, is_main in found[word] if is_main}
    assert main("width") == {"a", "b"} and main("length") == {"terms"} and main("lt") == {"late"}
    assert "slope f' of f" in (built / "code.html").read_text("utf-8")


def test_the_list_of_theorems_has_titles_and_links_in_the_books_order(built):
    page = (built / "proofs.html").read_text("utf-8")
    assert 'href="b.html#thm-narrow">Theorem 1.1</a> Narrow <span class="math' in page
    assert 'href="a.html#lem-small">Lemma 2.1</a> A (small) step</p>' in page
    assert page.index("Theorem 1.1") < page.index("Lemma 2.1")
    assert "tex-mml-chtml.js" in page  # MathJax, which Sphinx gives to pages with formulas
    assert not (built / "prf-prf.html").exists()  # the list of raw labels


def test_the_concept_index_is_in_order_and_has_every_word_of_the_glossary():
    concepts = (BOOK / "concepts.md").read_text("utf-8")
    letters = re.split(r"^## (\w)$", concepts, flags=re.M)[1:]
    assert letters[::2] == sorted(letters[::2])
    entries = []
    for letter, body in zip(letters[::2], letters[1::2], strict=True):
        names = re.findall(r"^- (.+?): ", body, flags=re.M)
        assert len(names) == body.count("\n- ") + body.startswith("- "), letter
        words = [re.sub(r"\{term\}`(.+?)`", r"\1", name) for name in names]
        keys = [re.sub(r"[^a-z0-9 ]", "", w.lower().replace("-", " ")) for w in words]
        assert keys == sorted(keys), letter
        assert {key[0] for key in keys} == {letter.lower()}
        entries += keys
    assert len(entries) == len(set(entries)) >= 80
    notation = (BOOK / "notation.md").read_text("utf-8")
    glossary = notation.split("```{glossary}")[1].split("```")[0]
    words = re.findall(r"^(\S.*)$", glossary.split(":sorted:")[1], flags=re.M)
    assert len(words) >= 50
    assert not [w for w in words if f"{{term}}`{w}`" not in concepts]


def test_the_package_page_has_every_public_name():
    page = (BOOK / "api.md").read_text("utf-8")
    assert not [n for n in cvlib.__all__ if not re.search(rf"\b(cv\.)?{n}\b", page)]


# The deck: made of a site's pages, by label; a label that is not there is named -----------------

PAGE = r"""<html><body>
<figure class="a" id="fig-one"><img alt="A &lt; B" src="../_images/x.png">
<figcaption>Fig. 1 <span>A caption</span><a class="headerlink" href="#x">#</a></figcaption>
</figure>
<div class="proof theorem admonition" id="thm-one">
<p class="admonition-title"><span>Theorem 1.1 </span> (One)</p>
<section id="proof-content"><p>Let \(x\) be <a href="#y">one</a>.</p></section></div>
<div class="math" id="equation-eq-two"><span class="eqno">(1.1)</span>\[y = x_1 &lt; 2\]</div>
</body></html>"""
DECK = """
- title: A *first* one
  say: [Take $x < 1$ and `a*b`]
  figure: fig-one
- title: A second
  theorem: thm-one
  formula: eq:two
  code: "a < b"
"""


@pytest.fixture
def site(tmp_path):
    (tmp_path / "book").mkdir()
    (tmp_path / "_images").mkdir()
    (tmp_path / "_images/x.png").write_bytes(b"picture")
    (tmp_path / "book/a.html").write_text(PAGE, "utf-8")
    (tmp_path / "_config.yml").write_text("title: T\n")
    (tmp_path / "_slides.yml").write_text(DECK)
    return tmp_path


def test_slides_hold_what_their_labels_name(site):
    made = slides.deck(site, site)
    one, two = re.findall("<article>.*?</article>", made, re.S)
    assert "<h1>A <em>first</em> one</h1>" in one and "<code>a*b</code>" in one
    assert r'<span class="math">\(x &lt; 1\)</span>' in one
    assert '<img src="_images/x.png" alt="A &lt; B">' in one
    assert 'href="book/a.html#fig-one"' in one
    assert ">One<" in two and "Theorem 1.1" not in two and r"Let \(x\) be one." in two
    assert r"\[y = x_1 &lt; 2\]" in two and "(1.1)" not in two and "<pre>a &lt; b</pre>" in two
    assert not re.search(r"https?:", made)


def test_figures_are_packed_by_name_with_their_captions(site):
    packed = zipfile.ZipFile(io.BytesIO(slides.figures(site)))
    assert packed.read("figures/fig-one.png") == b"picture"
    assert packed.read("figures/captions.txt") == b"fig-one: Fig. 1 A caption\n"


def test_an_unknown_label_or_part_is_named(site):
    for wrong in ("figure: fig-two", "picture: fig-one"):
        (site / "_slides.yml").write_text(f"- title: A\n  {wrong}\n")
        with pytest.raises(ValueError, match=wrong.split(": ")["picture" not in wrong]):
            slides.deck(site, site)


TEXT = "".join(md.read_text("utf-8") for md in BOOK.glob("*.md"))
DECK_OF_THE_BOOK = yaml.safe_load((notebooks.ROOT / "_slides.yml").read_text("utf-8"))


def test_the_deck_is_an_afternoon_and_each_label_is_in_the_book():
    entries = DECK_OF_THE_BOOK
    assert 28 <= len(entries) <= 34
    labels = {*re.findall(r"^ *(?:name|:label): (\S+)$|^\$\$ \((\S+)\)$", TEXT, re.M)}
    known = {label for pair in labels for label in pair}
    for entry in entries:
        for kind in slides.LABELLED:
            named = entry.get(kind, [])
            assert {named} <= known if isinstance(named, str) else {*named} <= known, entry


def test_two_syllabuses_and_six_problem_sets_two_of_them_without_solutions():
    page = (BOOK / "teaching.md").read_text("utf-8")
    part = lambda name: page.split(f"## {name}\n")[1].split("\n## ")[0]
    for name, lectures in ("Three lectures", 3), ("Ten lectures", 10):
        assert len(re.findall(r"^\| \d", part(name), re.M)) == lectures
    sets = re.split(r"^\*\*Set \d\. ", part("Six problem sets"), flags=re.M)[1:]
    assert len(sets) == 6 and all("*Hint*" in problems for problems in sets)
    solved = set(re.findall(r"\{solution(?:-start)?\} (\S+)$", TEXT, re.M))
    exercises = [re.findall(r"\{ref\}`(ex-[\w-]+)`", problems) for problems in sets]
    assert all(set(names) <= solved and len(names) >= 6 for names in exercises[:4])
    assert ["Without solutions" in problems for problems in sets] == 4 * [False] + 2 * [True]
    assert len(exercises[5]) >= 6 and not set(exercises[5]) & solved


# What other sites see ----------------------------------------------------------------------------


def test_without_an_address_a_book_has_no_buttons_and_with_one_it_has_all():
    given = {"repository_url": "", "repository_branch": "main"}
    assert sharing.buttons("", given) == {}
    assert sharing.buttons("", given | {"repository_url": "https://github.com/a/b"}) == {}
    made = sharing.buttons("https://ann.github.io/noise/", given)
    assert made["repository_url"] == "https://github.com/ann/noise"
    assert made["launch_buttons"].keys() >= {"binderhub_url", "colab_url"}
    assert all(made[button] for button in sharing.BUTTONS)
    own = given | {"repository_url": "https://gitlab.com/a/b", "repository_branch": "dev"}
    made = sharing.buttons("https://noise.org", own)
    assert (made["repository_url"], made["repository_branch"]) == ("https://gitlab.com/a/b", "dev")
    assert sharing.buttons("https://noise.org", given) == {}  # nobody knows its forge
    config = yaml.safe_load((notebooks.ROOT / "_config.yml").read_text("utf-8"))
    assert config["html"]["baseurl"] == "" and "launch_buttons" not in config


SHARED = """
import sys
sys.path.insert(0, {tools!r})
project, extensions = "Noise", ["myst_nb", "sharing"]
myst_enable_extensions, nb_execution_mode = ["dollarmath"], "off"
html_theme, html_baseurl = "sphinx_book_theme", "{base}"
html_theme_options = {{"repository_url": ""}}
"""
CELL = {"cell_type": "markdown", "metadata": {}}
CELL["source"] = "# A & B\n\nWith $x$.\n\nNoise < less of it."
KERNEL = {"kernelspec": {"name": "python3", "display_name": "p", "language": "python"}}
NOTEBOOK = {"cells": [CELL], "metadata": KERNEL, "nbformat": 4, "nbformat_minor": 4}


@pytest.mark.parametrize("base", ["", "https://ann.github.io/noise/"])
def test_a_page_shares_title_description_and_picture_and_its_address_if_it_has_one(tmp_path, base):
    tools = str(Path(notebooks.__file__).parent)
    (tmp_path / "conf.py").write_text(SHARED.format(tools=tools, base=base))
    (tmp_path / "index.md").write_text("# Start\n\nHere.\n\n```{toctree}\npage\n```\n")
    (tmp_path / "page.ipynb").write_text(json.dumps(NOTEBOOK))
    build = [sys.executable, "-m", "sphinx", "-q", "-W", ".", "out"]
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True)
    page = (tmp_path / "out/page.html").read_text("utf-8")
    meta = dict(re.findall(r'<meta (?:name|property)="([\w:]+)" content="([^"]*)"', page))
    assert meta["description"] == meta["og:description"] == "Noise &lt; less of it."
    assert meta["og:title"] == "A &amp; B" and meta["og:image"].endswith("_static/story.png")
    links = "edit/main/page.md", "issues/new", "google.com/github/ann/noise", "mybinder"
    assert [link in page for link in links] == [bool(base)] * 4
    assert ('rel="canonical" href="https://ann.github.io/noise/page.html"' in page) == bool(base)
    assert ("og:url" in meta) == bool(base) == meta["og:image"].startswith("https://ann")


def test_the_parts_of_the_side_bar_fold_and_the_page_s_own_is_open():
    part = lambda name, here: (
        f'<p aria-level="2" class="caption" role="heading"><span class="caption-text">{name}'
        f'</span></p>\n<ul class="nav bd-sidenav"><li class="toctree-l1{here}">'
        '<a href="x.html">x</a></li></ul>\n'
    )
    made = reading.folded(part("One", "") + part("Two", " current active"))
    assert re.findall(r'<details class="part"( open)?>.*?caption-text">(\w+)<', made) == [
        ("", "One"), (" open", "Two")
    ]  # fmt: skip
    assert made.count("</details>") == 2 and 'class="caption" role' not in made


def test_the_worked_example_of_the_slides_has_the_numbers_of_its_integrals():
    """E U e^U = 1, so Cov(e^U, U) = (3 - e) / 2."""
    entry = next(e for e in DECK_OF_THE_BOOK if "worked example" in e["title"])
    said, e = " ".join(entry["say"]), math.e
    covariance, variance = (3 - e) / 2, (e * e - 1) / 2 - (e - 1) ** 2
    left = 1 - 12 * covariance**2 / variance
    for number in f"{variance:.3f}", f"{-12 * covariance:.2f}", f"{left:.1%}".replace("%", " %"):
        assert number in said
    assert 55 < 1 / left < 65 and "sixty" in said
    space = {"np": np}
    exec(entry["code"].replace("print", "seen = "), space)
    before, after = space["seen"]
    assert abs(after / before - left) < 0.005
