"""The periodic table of chapter 7: its cells, its colours, and the buttons of the page."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import periodic
import pytest

import cvlib as cv
from experiments import catalogue

ROOT = Path(__file__).parents[1]


class Buttons(HTMLParser):
    """The attributes of the buttons of a text, in order."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found += [dict(attrs)] * (tag == "button")


@pytest.fixture(scope="module")
def page():
    """The table as chapter 7 stores it."""
    nb = json.loads((ROOT / "book" / "zoo.ipynb").read_text("utf-8"))
    outputs = [o for c in nb["cells"] for o in c.get("outputs", [])]
    pages = ["".join(o["data"]["text/html"]) for o in outputs if "text/html" in o.get("data", {})]
    (text,) = [page for page in pages if "cv-table" in page]
    return text


@pytest.fixture(scope="module")
def small():
    """A zoo that is quick to make: two unknowns, five data points."""
    X = np.random.default_rng(0).uniform(-1, 1, (5, 2))
    model = cv.models.logistic_regression(X, [1, -1, 1, 1, -1])
    return catalogue.legal(model, cv.families.Gaussian(2))


def test_a_cell_is_rp1_minus_another_method_or_one_method_on_two_data_sets(small):
    for _, term, cells in periodic.rows(small):
        for column, c in cells.items():
            assert c.term == term
            if column < 5:
                (other,) = set(c.pair) - {"RP1"}
                assert other in periodic.PARTNERS[column]
            else:
                drawn, whole = sorted(c.pair, key=len)
                assert whole == drawn + " all" and drawn in periodic.SINGLE[column - 5]


def test_the_cells_without_sums_are_independent_and_with_the_score_span_the_zoo(small):
    rank = lambda lines: np.linalg.matrix_rank(catalogue.spanned(lines)[1])
    lines = [c.line for _, term, cells in periodic.rows(small) for c in cells.values()
             if "+" not in term]  # fmt: skip
    assert rank(lines) == len(lines) == rank([c.line for c in small]) - 1


def test_every_cell_is_a_button_with_words_and_one_of_them_can_be_tabbed_to(page):
    assert not re.search(r"https?:|src=|url\(|@import|fetch\(|<script", page)
    buttons = Buttons(page).found
    assert len(buttons) == 56
    assert all("leaves" in a["aria-label"] for a in buttons)
    chosen = [a for a in buttons if a["aria-pressed"] == "true"]
    assert [a for a in buttons if a["tabindex"] == "0"] == chosen and len(chosen) == 1
    assert f'aria-live="polite">{chosen[0]["data-about"]}</div>' in page


def test_a_button_tells_the_line_its_shares_and_its_stored_cost(page):
    steps = json.loads((ROOT / "results/benchmarks/cells.json").read_text("utf-8"))["steps"]
    buttons = Buttons(page).found
    assert {a["aria-label"].split(", leaves")[0] for a in buttons} == set(steps)
    for a in buttons:
        line, about = a["aria-label"].split(", leaves")[0], a["data-about"]
        assert f"costs {steps[line]:.1f} plain steps" in about and steps[line] > 1
        before, after = np.array(re.findall(r"(-?\d+) &rarr; (-?\d+)", about), float).T
        left = float(re.search(r"leaves (-?[\d.]+) ", about)[1])
        assert abs(before.sum() - 100) < 2 and abs(after.sum() - left) < 2
        for source, old, new in zip(("data", "q", "both"), before, after, strict=True):
            touched = re.search(r"noise of: ([a-z, ]+)\.", about)[1].split(", ")
            assert source in touched or source == "both" or old == new


def test_an_unstored_cost_is_said(small):
    left, shares = np.full((len(small), 2), 0.5), np.full((len(small), 3), 0.2)
    table = periodic.interactive(small, left, shares, [0.3, 0.3, 0.4], {}, small[0].line)
    assert "Its cost is not stored" in table.text and "<script" not in table.text
