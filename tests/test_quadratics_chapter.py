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


def test_the_bias_of_the_same_draws_in_two_dimensions():
    """-E[|e|^2 r] / M and -sym E[|e|^2 r e^T] / M, by quadrature, against draws.

    The fit is expanded to second order in means over draws, whose noise is much smaller than that
    of the fit itself: (I - D) mean(x r) with D = mean(x x^T) - I.
    """
    e, p = nodes(2)
    G = cubic(e)
    c, A = p @ G, np.einsum("n,ni,nj->ij", p, G, e)
    assert_allclose(A, A.T, atol=1e-9)
    r = G - c - e @ A
    far = p * (e**2).sum(1)
    slope_c, slope_A = -far @ r, -np.einsum("n,ni,nj->ij", far, r, e)
    rng, M, runs = np.random.default_rng(2), 40, 40_000
    draws = rng.standard_normal((runs, M, 2))
    x = np.concatenate([np.ones((runs, M, 1)), draws], -1)
    left = cubic(draws.reshape(-1, 2)).reshape(runs, M, 2) - c - draws @ A
    D = x.mT @ x / M - np.eye(3)
    bias = -M * D @ (x.mT @ left / M)
    mean, error = bias.mean(0), bias.std(0) / np.sqrt(runs)
    assert np.all(np.abs(mean - np.vstack([slope_c, slope_A])) < 4.5 * error)
    assert np.abs(slope_A).max() > 20 * error.max()  # the test could fail


def test_what_rotations_can_remove():
    """|T|^2 = |G|^2 |e|^2 sin^2 / 2 draw by draw, and any rotation's gradient is linear in T."""
    rng = np.random.default_rng(3)
    G, e = rng.normal(size=(2, 4))
    T = (np.outer(G, e) - np.outer(e, G)) / 2
    sin2 = 1 - (G @ e) ** 2 / (G @ G) / (e @ e)
    assert_allclose((T**2).sum(), G @ G * (e @ e) * sin2 / 2)
    K = rng.normal(size=(4, 4))
    K = K - K.T
    h = 1e-6  # the slope of f along z = L exp(h K) e is <K, T>, f with slope G in units of q
    moved = (linalg.expm(h * K) - linalg.expm(-h * K)) @ e / (2 * h)
    assert_allclose(G @ moved, (K * T).sum(), rtol=1e-6)


def test_rp2_at_the_same_point_is_such_a_rotation():
    """The polar factor of L moves: its derivative is antisymmetric, and RP2 follows it."""
    rng = np.random.default_rng(4)
    L = np.tril(rng.normal(size=(3, 3))) + 3 * np.eye(3)
    dL, h = np.tril(rng.normal(size=(3, 3))), 1e-5
    root = lambda L: np.real(linalg.sqrtm(L @ L.T))
    Q = np.linalg.solve(root(L), L)
    turned = lambda s: np.linalg.solve(L + s * dL, root(L + s * dL)) @ Q  # R_w, I at w
    assert_allclose(turned(0.0), np.eye(3), atol=1e-9)
    dR = (turned(h) - turned(-h)) / (2 * h)
    assert_allclose(dR, -dR.T, atol=1e-6)
    assert np.abs(dR).max() > 0.01


def test_rotated_on_the_page_is_exact_for_cubics_and_right_on_average(page):
    """Against Gauss and Hermite's nodes in the plane, with cubic slopes and with waves."""
    e, p = nodes(2, 12)
    waves = lambda e: np.stack([np.sin(2 * e[:, 0] + e[:, 1] + 1), np.exp(0.5 * e[:, 1])], 1)
    square = lambda e: np.stack([e[:, 0] ** 2 + e[:, 1], e[:, 0] * e[:, 1] + 1], 1)
    for slope, runs in (square, 3), (waves, 20_000):
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


def test_the_best_curvature_is_not_that_of_weighted_least_squares():
    """Among A + s D the noise of the curvature is least at s = 1 / (d + 1), by quadrature."""
    e, p = nodes(2)
    G = cubic(e)
    G = (G + cubic(-e) * [[-1, -1]]) / 2  # odd slopes: E[|e|^2 r] = 0
    A = np.einsum("n,ni,nj->ij", p, G, e)
    far = p * (e**2).sum(1)
    D = np.einsum("n,ni,nj->ij", far, G - e @ A.T, e)

    def noise(s):
        B = A + s * D
        T = (G - e @ B.T)[:, :, None] * e[:, None, :] + B - A
        return p @ (T**2).sum((1, 2))

    assert np.abs(D).max() > 0.1
    assert noise(1 / 3) < min(noise(1 / 3 - 0.01), noise(1 / 3 + 0.01), noise(1 / 4), noise(0))


def test_the_gauge_near_a_gaussian_posterior():
    """KL to N(a, I + E) is |a|^2 / 2 + |E|^2 / 4 to second order; c = a, A + I = E to first."""
    rng = np.random.default_rng(5)
    a, E = 1e-3 * rng.normal(size=3), rng.normal(size=(3, 3))
    E = 1e-3 * (E + E.T)
    P = np.linalg.inv(np.eye(3) + E)  # slopes G = -P (e - a)
    c, A = P @ a, -P
    removable = (c**2).sum() + ((A + np.eye(3)) ** 2).sum()
    kl = 0.5 * (np.trace(P) - 3 + a @ P @ a - np.linalg.slogdet(P)[1])
    assert 0.25 * removable * 0.99 < kl < 0.5 * removable * 1.01
    assert_allclose(kl, 0.5 * (c**2).sum() + 0.25 * ((A + np.eye(3)) ** 2).sum(), rtol=0.01)
