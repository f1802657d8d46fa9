"""The deck: made of a site's pages, by label; a label that is not there is named."""

import io
import re
import zipfile

import notebooks  # tools/notebooks.py
import pytest
import slides  # tools/slides.py
import yaml

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


TEXT = "".join(md.read_text("utf-8") for md in notebooks.BOOK.glob("*.md"))


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
    page = (notebooks.BOOK / "teaching.md").read_text("utf-8")
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
