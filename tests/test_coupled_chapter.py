"""What the chapter on draws that lean writes from scratch, and its race: sums over all outcomes.

ARMS, stratified draws and the linear baseline are taken from its cells
and held against enumeration, quadrature and refits.
"""

import json
import re
from itertools import combinations_with_replacement, permutations, product
from math import factorial
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit, log_expit

ROOT = Path(__file__).parents[1]
CHAPTER = ROOT / "book" / "18-a-baseline-from-the-others.ipynb"

rng = np.random.default_rng(5)
D = 3
A, c = 1.5 * rng.standard_normal((5, D)), rng.standard_normal(5)
W = np.array([0.7, -0.4, 1.5])
P1 = expit(W)
STATES = np.array(list(product([0.0, 1.0], repeat=D)))
P = np.prod(np.where(STATES == 1, P1, 1 - P1), -1)


def f(b):
    """log p(x, b) - log q(b), read between 0 and 1 as well."""
    joint = log_expit(b @ A.T + c).sum(-1) - D * np.log(2)
    return joint - (b * log_expit(W) + (1 - b) * log_expit(-W)).sum(-1)


EXACT = (P * f(STATES)) @ (STATES - P1)


def variance(G, weight):
    """Total variance, after a look at the mean."""
    assert np.abs(weight @ G - EXACT).max() < 1e-9
    return weight @ ((G - EXACT) ** 2).sum(-1)


def samples(M):
    """All multisets of M states with their probability, (K, M, d): a mean has no order."""
    chosen = np.array(list(combinations_with_replacement(range(8), M)))
    orders = [
        factorial(M) / np.prod([factorial(row.count(k)) for k in range(8)])
        for row in chosen.tolist()
    ]
    return STATES[chosen], P[chosen].prod(-1) * orders


def linear(M, ridge=0.5):
    """Each draw's line from a fit to the others, M fits, least squares with d more rows."""
    b, weight = samples(M)
    s, value, G = b - P1, f(b), 0.0
    more = np.concatenate([np.zeros((D, 1)), np.sqrt(ridge) * np.eye(D)], 1)
    more = np.broadcast_to(more, (len(b), D, D + 1))
    for m in range(M):
        X = np.concatenate([np.ones((len(b), M - 1, 1)), np.delete(s, m, 1)], -1)
        X = np.concatenate([X, more], 1)
        y = np.concatenate([np.delete(value, m, 1), np.zeros((len(b), D))], 1)
        c, beta = np.split((np.linalg.pinv(X) @ y[..., None])[..., 0], [1], -1)
        left = value[:, m] - c[:, 0] - (beta * s[:, m]).sum(-1)
        G = G + (left[:, None] * s[:, m] + beta * P1 * (1 - P1)) / M
    return variance(G, weight)


def dirichlet_law(p, M):
    """{pattern of M draws: probability} of the copula of ARMS: one D after the other, the rest of
    the simplex being uniform again. Densities are piecewise polynomials, so Gauss is exact.
    """
    nodes, weights = np.polynomial.legendre.leggauss(6)

    def chance(pattern, t):
        """That D_m > t exactly for the ones of the pattern, D uniform on the simplex."""
        if len(pattern) == 1:
            return float((t < 1) == pattern[0])
        n = len(pattern)
        low, high = (t, 1.0) if pattern[0] else (0.0, min(t, 1.0))
        if low >= high:
            return 0.0
        kinks = [x for x in (1 - j * t for j in range(1, n + 1)) if low < x < high]
        edges, total = np.sort([low, high, *kinks]), 0.0
        for a, b in zip(edges[:-1], edges[1:]):
            for x, w in zip((a + b) / 2 + (b - a) / 2 * nodes, (b - a) / 2 * weights):
                total += w * (n - 1) * (1 - x) ** (n - 2) * chance(pattern[1:], t / (1 - x))
        return total

    def side(p):
        t = 1 - p ** (1 / (M - 1))
        by_ones = [chance((1,) * k + (0,) * (M - k), t) for k in range(M + 1)]
        return {b: by_ones[sum(b)] for b in product((0, 1), repeat=M)}

    other = {tuple(1 - x for x in b): v for b, v in side(1 - p).items()}
    return min(side(p), other, key=lambda law: correlation(law, p))


def even_law(p, M):
    """The same for one u in each of M intervals: all orders, and both sides of p in its own."""
    law = dict.fromkeys(product((0, 1), repeat=M), 0.0)
    k, more = int(M * p), M * p - int(M * p)
    for order in permutations(range(M)):
        for on, weight in ((0, 1 - more), (1, more)):
            b = tuple(1 if i < k else on if i == k else 0 for i in order)
            law[b] += weight / factorial(M)
    return law


def correlation(law, p):
    together = sum(v for b, v in law.items() if b[0] and b[1])
    return (together - p**2) / (p * (1 - p))


def coupled(kind, M):
    """LOO / (1 - rho), all patterns of all switches."""
    laws = [kind(p, M) for p in P1]
    rho = np.array([correlation(law, p) for law, p in zip(laws, P1)])
    every = list(product(*(law.items() for law in laws)))
    b = np.array([[pattern for pattern, _ in row] for row in every], float).swapaxes(1, 2)
    weight = np.array([np.prod([v for _, v in row]) for row in every])
    value = f(b)
    left = value - (value.sum(1, keepdims=True) - value) / (M - 1)
    return variance((left[..., None] * (b - P1)).mean(1) / (1 - rho), weight)


ROWS = {
    "linear": (linear, (2, 4, 8)),
    "ARMS": (lambda M: coupled(dirichlet_law, M), (2, 4)),  # eight draws have 2^24 patterns:
    "stratified draws": (lambda M: coupled(even_law, M), (2, 4)),  # drawn, below
}


def chapter_cells():
    return json.loads(CHAPTER.read_text("utf-8"))["cells"]


def printed():
    """{row: {draws: variance}} from the outputs of the chapter."""
    outputs = [output for cell in chapter_cells() for output in cell.get("outputs", [])]
    shown = ["".join(output.get("data", {}).get("text/plain", "")) for output in outputs]
    (table,) = (text for text in shown if text.startswith("exact variance of the mean of"))
    found = re.findall(r"^(\S.*?)\s{2,}([\d.]+)\s+([\d.]+)\s+([\d.]+)$", table, re.M)
    return {name: dict(zip((2, 4, 8), map(float, numbers))) for name, *numbers in found}


@pytest.mark.parametrize("name", ROWS)
def test_the_table_of_the_chapter(name):
    right, sizes = ROWS[name]
    for M in sizes:
        assert abs(printed()[name][M] - right(M)) < 5.1e-5


# What the page writes from scratch ----------------------------------------------------------------


# The race ----------------------------------------------------------------------------------------


def test_the_race_is_whole():
    """The stored race has both models and all ways, at falling gaps with intervals."""
    rows = json.loads((ROOT / "benchmarks" / "coupled.json").read_text("utf-8"))["rows"]
    found = {(r["model"], r["noise"], r["cvs"]): r for r in rows}
    models, noises = ("australian", "eight schools"), ("plain", "pairs", "sobol")
    estimators = ("none", "c7", "c7 at 1", "landing", "PR", "PR of all")
    ways = set(product(models, noises, estimators))
    assert set(found) == ways - {(m, "pairs", "PR of all") for m in models}
    assert len(rows) == len(found)
    for r in rows:
        gap, low, high = (np.array(r[key]) for key in ("gap", "low", "high"))
        assert r["steps"] > 50 and r["seconds"] > 0 and (low <= gap).all() and (gap <= high).all()
        assert gap[-1] < gap[0] and np.isfinite(high).all() and r["at"][-1] == 1.0
