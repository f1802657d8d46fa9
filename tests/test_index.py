"""What is made of the pages: the lists in the back of the book, and the deck of an afternoon."""

import io
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import notebooks  # tools/notebooks.py
import pytest
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
    "index.md": "# Start\n\n```{toctree}\n:numbered: 1\nb\na\ncode\nconcepts\nproofs\n```\n",
    "a.md": "# Second\n\n:::{prf:lemma} A (small) step\n:label: lem-small\nx.\n:::\n\n"
    "$$x$$ (eq:width)\n",
    "b.md": "# First\n\n:::{prf:theorem} Narrow $q$\n:label: thm-narrow\nx.\n:::\n\n"
    "$$x$$ (eq:second)\n",
    "code.md": "# Code\n\n```{eval-rst}\n.. py:function:: slope(f)\n\n   The slope f' of f.\n```\n",
    "concepts.md": "# Ideas\n\n- width, see scale: {prf:ref}`thm-narrow`, {eq}`eq:width`, "
    "{eq}`eq:second`\n",
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
    assert '"width": [[' in (built / "searchindex.js").read_text("utf-8")
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
    glossary = (BOOK / "glossary.md").read_text("utf-8").split("```")[1]
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


def test_the_deck_is_an_afternoon_and_each_label_is_in_the_book():
    entries = yaml.safe_load((notebooks.ROOT / "_slides.yml").read_text("utf-8"))
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
