"""The stored noise that chapter 19 judges `cv.choose` by, against brute force."""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import cvlib as cv
from experiments import judged


def test_the_square_of_a_step_is_what_a_loop_finds():
    """|mean|^2 and the noise of steps of ten draws, one by one; a variate with its best weight."""
    model, q, see = judged.problem("Student")
    w, table = judged.midway(model, q), cv.candidates(model, q, False)
    base, cvs = table["RP1"]
    rng, steps = np.random.default_rng(0), []
    for _ in range(200):
        d = cv.draw(model, q, w, judged.M, rng, **see)
        steps.append([line(d).mean(0) for line in (base, cvs["c7"])])
    h, c = np.moveaxis(np.array(steps), 1, 0)  # (200, D) each
    a = -np.sum(c * (h - h.mean(0))) / np.sum(c**2)
    found = judged.held_out("Student", 80, 3)
    for label, g in ("RP1", h), ("RP1 with c7", h + a * c):
        squares = (g**2).sum(1)
        error = np.hypot(squares.std() / 200**0.5, np.std(found[label], ddof=1) / 3**0.5)
        assert abs(np.mean(found[label]) - squares.mean()) < 5 * error
    assert np.mean(found["RP1 with c7"]) < 0.8 * np.mean(found["RP1"])
    assert set(found) == {
        f"{base}{drawn}{' with ' + ', '.join(S) if S else ''}"
        for base, (_, cvs) in table.items()
        for drawn in ("", " in pairs")
        for r in range(len(cvs) + 1)
        for S in combinations(cvs, r)
    }


def test_noise_in_fisher_s_units_by_the_score():
    """F is the covariance of the score of q, taken by differences from SciPy's density."""
    found = judged.fisher_noise("australian", 1.0, 2)
    model, q, _ = judged.problem("australian")
    w = cv.exact.optimum(model, q)
    rng = np.random.default_rng(1)
    d = cv.draw(model, q, w, 3000, rng, subsample=False)
    G = judged.at_equal_cost(model, q, w)["RP1"][0](d)  # (3000, D)
    mu, L = q.unpack(w)
    z = mu + rng.standard_normal((3000, q.dim)) @ L.T
    step = 1e-5

    def log_q(w):
        mu, L = q.unpack(w)
        return multivariate_normal(mu, L @ L.T).logpdf(z)

    scores = np.stack([
        (log_q(w + step * e) - log_q(w - step * e)) / (2 * step) for e in np.eye(q.D)
    ], 1)  # fmt: skip
    F, V = scores.T @ scores / len(z), np.cov(G.T)
    expected = np.trace(np.linalg.solve(F, V)) / (2 * q.dim)
    noise, error = found["RP1"]
    assert noise == pytest.approx(expected, abs=5 * error + 0.05 * expected)
    assert found["landing"][0] < 0.05 * noise
