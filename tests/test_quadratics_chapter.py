"""What the page on all quadratics writes from scratch and claims, against other computations."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import linalg

CHAPTER = Path(__file__).parents[1] / "book" / "16-all-quadratics.ipynb"


@pytest.fixture(scope="module")
def page():
    """The functions that the page defines from scratch, by name."""
    cells = json.loads(CHAPTER.read_text("utf-8"))["cells"]
    code = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    names = {"np": np}
    for name in ("every_quadratic", "rotated", "match"):
        (source,) = (text for text in code if f"def {name}(" in text)
        body = source.split(f"def {name}(")[1].split("\n\n\n")[0]
        exec(f"def {name}({body}", names)
    return names


def refit(e, G, ridge):
    """The ridge as more rows of data."""
    d = e.shape[1]
    X = np.column_stack([np.ones(len(e)), e])
    extra = np.sqrt(ridge) * np.eye(d + 1)[1:]
    return np.linalg.lstsq(np.append(X, extra, 0), np.append(G, np.zeros((d, d)), 0))[0]


def test_every_quadratic_is_a_refit_without_each_draw(page):
    rng = np.random.default_rng(0)
    for M, d, ridge in (9, 3, 0.4), (4, 5, 2.0), (2, 3, 1.0):
        e, G = rng.normal(size=(2, M, d))
        c, A = 0, 0
        for m in range(M):
            rest = np.arange(M) != m
            beta = refit(e[rest], G[rest], ridge)
            A_ = beta[1:].T
            c = c + (G[m] - A_ @ e[m]) / M
            A = A + (np.outer(G[m] - beta[0] - A_ @ e[m], e[m]) + A_) / M
        found = page["every_quadratic"](e, G, ridge)
        assert_allclose(found[0], c, atol=1e-10)
        assert_allclose(found[1], (A + A.T) / 2, atol=1e-10)


def test_match_on_the_page_solves_its_equation(page):
    rng = np.random.default_rng(1)
    e, G = rng.normal(size=(2, 7, 3))
    for lam in 0.3, 20.0:
        k = lam / (1 + lam)
        U = lam * np.cov(G.T, bias=True) + k * np.outer(G.mean(0), G.mean(0))
        V = np.eye(3) + lam * np.cov(e.T, bias=True) + k * np.outer(e.mean(0), e.mean(0))
        m, S = page["match"](e, G, lam)
        assert_allclose(S @ U @ S + S, V, atol=1e-9)
        assert_allclose(S, 2 * V @ np.linalg.inv(np.eye(3) + linalg.sqrtm(np.eye(3) + 4 * U @ V)))
        assert_allclose(m, k * (S @ G.mean(0) + e.mean(0)))


def nodes(d, n=6):
    x, p = np.polynomial.hermite_e.hermegauss(n)
    p = p / p.sum()
    return np.array(list(product(x, repeat=d))), np.array(
        [np.prod(q) for q in product(p, repeat=d)]
    )


def cubic(e):
    """Slopes of a polynomial in two unknowns of degree four."""
    x, y = e.T
    return np.array([3 * x**2 * y + y**2 - x, x**3 + 2 * x * y + 0.5]).T


def test_rotated_on_the_page_is_exact_for_cubics_and_right_on_average(page):
    """Against Gauss and Hermite's nodes in the plane, with cubic slopes and with waves."""
    e, p = nodes(2, 12)
    waves = lambda e: np.stack([np.sin(2 * e[:, 0] + e[:, 1] + 1), np.exp(0.5 * e[:, 1])], 1)
    square = lambda e: np.stack([e[:, 0] ** 2 + e[:, 1], e[:, 0] * e[:, 1] + 1], 1)
    for slope, runs in (square, 3), (waves, 4_000):
        rng = np.random.default_rng(6)
        c, A = (np.array(x) for x in zip(*(page["rotated"](slope, 2, rng) for _ in range(runs))))
        G = slope(e)
        bend = np.einsum("n,ni,nj->ij", p, G, e)
        for found, right in (c, p @ G), (A, (bend + bend.T) / 2):
            if slope is square:
                assert_allclose(found, np.broadcast_to(right, found.shape), atol=1e-9)
            else:
                error = found.std(0) / np.sqrt(runs)
                assert np.all(np.abs(found.mean(0) - right) < 4.5 * error)
