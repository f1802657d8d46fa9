"""The page "Adding words of your own": its code is run as it stands, and held to other numbers.

Each thing is written outside the package in fewer than twenty lines.
"""

import ast
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

import cvlib as cv

PAGE = Path(__file__).resolve().parents[1] / "book" / "extending.md"


def cells():
    return re.findall(r"```\{code-cell\} ipython3\n(.*?)```", PAGE.read_text("utf-8"), re.S)


@pytest.fixture(scope="module")
def page():
    """Every name of the page after all its cells, and of each class the one defined last."""
    names = {"__name__": "page"}
    for cell in cells():
        exec(compile(cell, str(PAGE), "exec"), names)
    return names


def test_each_takes_fewer_than_twenty_lines():
    lengths = {}
    for cell in cells():
        lines = cell.splitlines()
        for node in ast.parse(cell).body:
            if isinstance(node, ast.ClassDef):
                own = lines[node.lineno - 1 : node.end_lineno]
                lengths[node.name] = sum(bool(line.strip()) for line in own)
    classes = {"Mirrored", "Bowl", "Laplace", "ClosedLaplace", "adagrad", "by_coordinate"}
    assert lengths.keys() == classes
    assert max(lengths.values()) < 20


def test_the_estimator_is_rp1_at_the_mirrored_noise(page):
    """MR at eps is RP1 at -eps, to the last digits."""
    model, q = page["model"], page["Mirrored"](2)
    data = cv.terms(model, q)[0]
    eps = np.random.default_rng(0).standard_normal((5, 2))
    w = q.start() + 0.1
    at, mirrored = (cv.draw(model, q, w, eps=e, subsample=False) for e in (eps, -eps))
    assert_allclose(page["MR"](data)(at), cv.RP1(data)(mirrored), rtol=1e-12)


def test_the_approximation_on_a_glm_and_on_an_own_model(page):
    """Its line against the parabola and its gradient in w = [mu, lower L], written anew."""
    rng = np.random.default_rng(1)
    H = rng.standard_normal((2, 2))
    H = H + H.T
    for family in (cv.families.Gaussian, cv.families.DiagonalGaussian):
        for model in (page["model"], page["own"]):
            q = family(2)
            w = q.start() + 0.1 * rng.standard_normal(q.D)
            mu, factor = q.unpack(w)
            L = factor if q.full else np.diag(factor)
            draw = cv.draw(model, q, w, M=6, rng=rng, index=[0, 3, 1, 1, 2, 0])
            f = cv.terms(model, q)[0]
            x, y = (a[draw.index] for a in model.data)
            margin = y * (x @ mu)
            value = -model.N * np.logaddexp(0, -margin)
            slope = (model.N * y / (1 + np.exp(margin)))[:, None] * x  # (M, d)
            away = draw.z - mu
            T = page["bowl"](f, H)
            score = value + (slope * away).sum(-1) + 0.5 * np.einsum("mi,ij,mj->m", away, H, away)
            assert_allclose(cv.SF(T)(draw), score[:, None] * draw.score, rtol=1e-10)
            moved = slope + away @ H
            G = np.concatenate(
                [moved, np.einsum("mi,mj->mij", moved, draw.eps).reshape(6, 4)], -1
            )  # in mu and all of L
            exact = np.concatenate([slope, np.broadcast_to((H @ L).ravel(), (6, 4))], -1)
            kept = [0, 1, 2, 4, 5] if q.full else [0, 1, 2, 5]
            assert_allclose(cv.RP1(T)(draw), G[:, kept], rtol=1e-10)
            assert_allclose(cv.CF(T)(draw), exact[:, kept], rtol=1e-10)
            assert (cv.CF(T) - cv.RP1(T.over_all_data())).is_control_variate
            assert page["bowl"](f, 2 * H) != T
    other = cv.terms(page["own"], q)[0]
    with pytest.raises(ValueError, match="two models"):
        cv.RP1(page["bowl"](cv.terms(page["model"], q)[0], H)) - cv.RP1(other)


def test_the_family_is_scipy_s_law(page):
    q = page["ClosedLaplace"](3)
    rng = np.random.default_rng(2)
    m, r = rng.standard_normal((2, 3))
    w, law = q.pack(m, r), stats.laplace(m, np.exp(r))
    z = q.sample(w, 5000, rng)
    assert_allclose(q.log_q(w, z), law.logpdf(z).sum(-1), rtol=1e-12)
    assert stats.kstest(law.cdf(z).ravel(), "uniform").pvalue > 1e-6
    assert_allclose(q.mean(w), law.mean())
    assert_allclose(q.sd(w), law.std())
    assert_allclose(q.entropy(w), law.entropy().sum())


def test_the_step_rule_is_adagrad(page):
    rule, rng = page["adagrad"](), np.random.default_rng(3)
    w = np.zeros((2, 4))
    memory, gradients = rule.start(None, w), rng.standard_normal((5, 2, 4))
    for t, g in enumerate(gradients, 1):
        moved, memory = rule.step(memory, w, g, 0.1, None, 1)
        scale = np.sqrt((gradients[:t] ** 2).sum(0))
        assert_allclose(moved - w, 0.1 * g / scale, rtol=1e-9)
        w = moved


def test_the_weight_rule_is_least_squares_by_coordinate(page):
    rule, rng = page["by_coordinate"](), np.random.default_rng(4)
    q = cv.families.DiagonalGaussian(2)
    memory, seen = rule.start(q, 1, (3,)), []
    assert_allclose(rule.weights(memory, q, 1), np.zeros((3, 1, 4)))
    for _ in range(4):
        h, C = rng.standard_normal((3, 6, 4)), rng.standard_normal((3, 1, 6, 4))
        seen.append((h, C))
        memory = rule.update(memory, h, C, q)
    h, C = (np.concatenate([pair[k] for pair in seen], -2) for k in (0, 1))
    for run in range(3):
        for j in range(4):
            best = np.linalg.lstsq(C[run, 0, :, j, None], -h[run, :, j], rcond=None)[0]
            assert_allclose(rule.weights(memory, q, 1)[run, 0, j], best[0], rtol=1e-10)
