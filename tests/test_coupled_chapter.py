"""The variance table of chapter 16 and its race, without the package: sums over all outcomes."""

import json
import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit, log_expit

ROOT = Path(__file__).parents[1]
CHAPTER = ROOT / "book" / "16-draws-that-lean-on-each-other.ipynb"

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


def slope(b):
    return expit(-(b @ A.T + c)) @ A - W


EXACT = (P * f(STATES)) @ (STATES - P1)


def variance(G, weight):
    """Total variance, after a look at the mean."""
    assert np.abs(weight @ G - EXACT).max() < 1e-9
    return weight @ ((G - EXACT) ** 2).sum(-1)


def samples(M):
    """All M states with their probability, (8^M, M, d)."""
    chosen = np.array(list(product(range(8), repeat=M)))
    return STATES[chosen], P[chosen].prod(-1)


def alone(M, baseline=0.0):
    return variance((f(STATES) - baseline)[:, None] * (STATES - P1), P) / M


def best_baseline(M):
    s2 = ((STATES - P1) ** 2).sum(-1)
    return alone(M, (P * f(STATES)) @ s2 / (P @ s2))


def leave_one_out(M, slopes=False):
    """LOO, or with slopes the double control variate, from their printed formulas."""
    b, weight = samples(M)
    s, value, correction = b - P1, f(b), 0.0
    if slopes:
        u = slope(b)
        others = (u.sum(1, keepdims=True) - u) / (M - 1)
        value = value - (others * s).sum(-1)
        correction = u.mean(1) * P1 * (1 - P1)
    left = value - (value.sum(1, keepdims=True) - value) / (M - 1)
    return variance((left[..., None] * s).mean(1) + correction, weight)


def cells():
    """b, its opposite and their probability: u in thirds of every side."""
    lower, upper = np.minimum(P1, 1 - P1), np.maximum(P1, 1 - P1)
    which = np.array(list(product(range(3), repeat=D)))
    edges = np.stack([np.zeros(D), lower, upper, np.ones(D)])  # (4, d)
    low, high = edges[which, np.arange(D)], edges[which + 1, np.arange(D)]
    u = (low + high) / 2
    return 1.0 * (u > 1 - P1), 1.0 * (1 - u > 1 - P1), np.prod(high - low, -1)


def in_pairs(M):
    b, opposite, weight = cells()
    G = f(b)[:, None] * (b - P1) + f(opposite)[:, None] * (opposite - P1)
    return 2 / M * variance(G / 2, weight)


def disarm(M):
    b, opposite, weight = cells()
    factor = (-1) ** opposite * (b != opposite) * expit(np.abs(W))
    return 2 / M * variance((f(b) - f(opposite))[:, None] / 2 * factor, weight)


def rebar(M, tau=0.5):
    """f(z) s - f~(zeta~) s - d f~(zeta~) / dw + d f~(zeta) / dw, by quadrature in u."""
    t, p = np.polynomial.legendre.leggauss(20)
    t, p = (t + 1) / 2, p / 2
    sides = [[(q * x, q * y) for x, y in zip(t, p)] + [(q + (1 - q) * x, (1 - q) * y)
             for x, y in zip(t, p)] for q in 1 - P1]  # fmt: skip
    every = np.array(list(product(*sides)))
    u, weight = every[..., 0], every[..., 1].prod(-1)
    zeta = W + np.log(u) - np.log1p(-u)
    z = 1.0 * (zeta > 0)
    sign = 2 * z - 1
    v = np.expm1(sign * zeta) / (np.exp(sign * zeta) + np.exp(sign * W))
    moved = v * np.exp(sign * W) / (1 + v * np.exp(sign * W))  # d zeta~ / dw, given z and v
    soft = expit(zeta / tau)
    pull = slope(soft) * soft * (1 - soft) / tau
    return variance((f(z) - f(soft))[:, None] * (z - P1) + pull * (1 - moved), weight) / M


ROWS = {
    "SF": alone, "SF, best baseline": best_baseline, "SF, pairs": in_pairs, "REBAR": rebar,
    "LOO": leave_one_out, "DisARM": disarm, "double": lambda M: leave_one_out(M, slopes=True),
}  # fmt: skip


def printed():
    """{row: [two draws, four draws]} from the outputs of the chapter."""
    cells = json.loads(CHAPTER.read_text("utf-8"))["cells"]
    text = "".join(
        "".join(output.get("text", "")) for cell in cells for output in cell.get("outputs", [])
    )
    table = text.split("exact variance of the mean of")[1].split("LOO, 2 draws")[0]
    found = re.findall(r"^(\S.*?)\s{2,}([\d.]+)\s+([\d.]+)$", table, re.M)
    return {name: [float(x) for x in numbers] for name, *numbers in found}


@pytest.mark.parametrize("name", ROWS)
def test_the_table_of_the_chapter(name):
    table = printed()
    assert set(table) == set(ROWS)
    for value, M in zip(table[name], (2, 4)):
        assert abs(value - ROWS[name](M)) < 5.1e-5


def test_the_race_is_whole():
    """The stored race has both models and all seven ways, at falling gaps with intervals."""
    rows = json.loads((ROOT / "benchmarks" / "coupled.json").read_text("utf-8"))["rows"]
    ways = {(r["model"], r["noise"], r["cvs"]) for r in rows}
    models, noises = ("australian", "eight schools"), ("plain", "pairs", "sobol")
    rival = {(model, "plain", "PR") for model in models}
    assert ways == rival | set(product(models, noises, ("none", "c7"))) and len(rows) == 14
    for r in rows:
        gap, low, high = (np.array(r[key]) for key in ("gap", "low", "high"))
        assert r["steps"] > 50 and r["seconds"] > 0 and (low <= gap).all() and (gap <= high).all()
        assert gap[-1] < gap[0] and np.isfinite(high).all() and r["at"][-1] == 1.0
