"""What every chapter has: exercises with solutions, a summary, history, words for its pictures."""

import re

import nbformat
import notebooks  # tools/notebooks.py
import pytest

NUMBERED = [md for md in notebooks.chapters() if re.match(r"\d+-", md.name)]
stem = lambda path: path.stem
read = lambda md: md.read_text("utf-8")


def exercises(text):
    """{label: title} of the exercises of a chapter."""
    blocks = re.findall(r"^:::+\{exercise(?:-start)?\} ?(.*)\n((?::\w+:.*\n)*)", text, re.M)
    return {re.search(r":label: (\S+)", options)[1]: title for title, options in blocks}


def solved(text):
    """The labels of the exercises that have a solution."""
    return re.findall(r"^:::+\{solution(?:-start)?\} (\S+)", text, re.M)


def sections(text):
    return re.findall(r"^## (.+)$", text, re.M)


@pytest.mark.parametrize("md", NUMBERED, ids=stem)
def test_six_exercises_or_more_each_marked_and_one_a_project(md):
    titles = list(exercises(read(md)).values())
    assert len(titles) >= 6
    for title in titles:
        assert re.fullmatch(r"★{1,3} (warm-up|derivation|computation|(open )?project)", title)
    assert titles[0] == "★ warm-up"
    assert ["project" in title for title in titles] == [False] * (len(titles) - 1) + [True]


@pytest.mark.parametrize("md", NUMBERED, ids=stem)
def test_every_exercise_but_the_project_has_a_folded_solution(md):
    text = read(md)
    asked = [label for label, title in exercises(text).items() if "project" not in title]
    assert sorted(solved(text)) == sorted(asked)
    folded = re.findall(r"^:::+\{solution(?:-start)?\} \S+\n((?::\w+:.*\n)*)", text, re.M)
    assert all(":class: dropdown" in options for options in folded)


@pytest.mark.parametrize("md", NUMBERED, ids=stem)
def test_a_chapter_ends_with_a_summary_and_its_history(md):
    last = [title for title in sections(read(md)) if title != "Exercises"][-2:]
    assert last == ["In three sentences", "History and further reading"]


@pytest.mark.parametrize("md", NUMBERED, ids=stem)
def test_history_names_its_sources(md):
    text = read(md)
    history = text.split("## History and further reading\n")[1].split("\n## ")[0]
    assert len(re.findall(r"\{cite", history)) >= 3


@pytest.mark.parametrize("md", notebooks.chapters(), ids=stem)
def test_sliders_are_small_and_every_picture_has_words(md):
    """A slider's page in the stored output: under 700 KB, a label, a value and an alt text each."""
    for cell in nbformat.read(md.with_suffix(".ipynb"), as_version=4).cells:
        for output in cell.get("outputs", []):
            page = output.get("data", {}).get("text/html", "")
            if "cv-slider" in page:
                assert len(page) < 700_000, cell.source
                alts = re.findall(r'<img [^>]*?alt="([^"]*)"', page)
                values = re.search(r'data-values="([^"]*)"', page)[1].split("|")
                assert len(alts) == len(values) == page.count("<img")
                assert all(len(alt) > 20 for alt in alts) and len(set(alts)) == len(alts)
                assert 'type="range"' in page and "aria-valuetext" in page


@pytest.mark.parametrize("md", notebooks.chapters(), ids=stem)
def test_figures_have_words(md):
    """A cell that draws says in words what is to be seen."""
    for cell in notebooks.read_text(md).cells:
        if "plt.show()" in cell.source:
            alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
            assert len(alt) > 40, notebooks.first_line(cell)


@pytest.mark.parametrize("word", ["VAE", "autoencoder", "JAX", "PyTorch"])
def test_who_fits_deep_models_finds_a_page(word):
    """The search looks at the text of pages and at the index of ideas."""
    pages = [md for md in NUMBERED if word in read(md) and md.name[:2] in ("22", "23")]
    assert pages and re.search(rf"^- .*{word}", read(notebooks.BOOK / "concepts.md"), re.M)
