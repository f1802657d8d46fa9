"""What a line costs: how often a likelihood is asked, for how many rows, and how large arrays get.

Counted, not timed: a model that counts the rows of every call, and the memory that is traced.
"""

from dataclasses import replace

import autograd.numpy as anp
import numpy as np
import scipy.special  # noqa: F401  before memory is traced: cvlib loads it at its first use
from harness import part
from numpy.testing import assert_allclose
from oracles import FAMILIES
from test_budgets import in_little_memory

N, RNG = 7, np.random.default_rng
drawn = lambda cv, model, q, M, **kind: cv.draw(model, q, q.start() + 0.1, M, RNG(1), **kind)


class Counted:
    """A model, a family, and the rows of every call: the price of a function of rows."""

    def __init__(self, cv, family, d, make):
        self.cv, self.rows = cv, []
        self.model, self.q = make(cv, d, self), getattr(cv.families, family)(d)
        assert self.model.made > 0  # which tries a few rows, once for all draws

    def note(self, value):
        self.rows.append(int(np.prod(anp.shape(value))))
        return value

    def price(self, *texts, M, **kind):
        """Rows of each call, sorted, when these lines are evaluated on one draw."""
        lines = [written(self.cv, self.model, self.q, text) for text in texts]
        draw = drawn(self.cv, self.model, self.q, M, **kind)
        self.rows = []
        self.cv.evaluate(lines, draw)
        return sorted(self.rows)


def written(cv, model, q, text):
    """A line from its text; T is taylor_z(data), B is bound(data), P is taylor_z(prior)."""
    data, prior, variational = cv.terms(model, q)
    names = {"data": data, "prior": prior, "variational": variational}
    names |= {"T": cv.taylor_z(data), "P": cv.taylor_z(prior)}
    return eval(text, vars(cv) | names | ({"B": cv.bound(data)} if "B" in text else {}))


def own_model(cv, d, count):
    """No function of x.z; every call of log_lik notes how many rows it has."""
    rng = RNG(0)
    data = rng.standard_normal((N, d)), rng.standard_normal(N)

    def log_lik(z, batch):
        eta = anp.sum(batch[0] * z, -1)
        return count.note(-0.5 * (batch[1] - anp.tanh(eta) - anp.sum(z**2, -1)) ** 2)

    return cv.models.Model(log_lik, cv.models.GaussianPrior(), data, d)


def own_prior(cv, d, count):
    log_prior = lambda z: count.note(-anp.sum(anp.log(anp.cosh(z)), -1))
    return cv.models.Model(lambda z, b: b[0] * anp.sum(z, -1), log_prior, np.ones(N), d)


def glm(cv, d, count):
    """A logistic model whose derivatives note for how many eta they are asked."""
    logistic = cv.models.LOGISTIC

    def fast(eta, y, order):
        count.note(eta + y)
        return logistic.fast(eta, y, order)

    X = RNG(0).standard_normal((N, d))
    y = np.where(np.arange(N) % 2, 1.0, -1.0)
    return cv.models.GLM(X, y, replace(logistic, fast=fast))


def test_own_model_at_mu_on_all_data(cv):
    """Slope: N rows. Curvature: d products. Whatever M is, however many lines share them."""
    for d in (2, 5):
        own = Counted(cv, "Gaussian", d, own_model)
        several = "CF(T) - RP1(T)", "RP1(T) - RP2(T)", "PR(T)", "CF(T) - RP2(T)"
        for M in (1, 10, 50):
            for lines in several[:1], several, ["CF(T)"]:
                assert own.price(*lines, M=M, subsample=False) == [N, N * d]
            assert own.price("SF(T)", M=M, subsample=False) == [N, N, N * d]  # and the value
        whole = "CF(T.over_all_data()) - RP1(T.over_all_data())"
        assert own.price(whole, M=20) == [N, N * d]  # the drawn data are not looked at


def test_own_model_on_drawn_data(cv):
    """A sample pays for its data point; samples that share a batch share mu, and one Hessian."""
    d, M = 4, 6
    own = Counted(cv, "Gaussian", d, own_model)
    assert own.price("CF(T)", M=M) == [M, M * d]
    assert own.price("CF(T) - RP1(T)", M=M) == [M, M, M * d]
    assert own.price("CF(T) - RP1(T)", M=M, batch=3) == [3, 3 * d]
    assert own.price("CF(T)", M=M, batch=3, each=True) == [3 * M, 3 * M * d]


def test_own_model_at_samples(cv):
    """Away from mu every sample has a point of its own: M N rows, and d times that for PR."""
    d, M = 3, 5
    for family in FAMILIES:
        own = Counted(cv, family, d, own_model)
        price = lambda line: own.price(line, M=M, subsample=False)
        assert price("RP1(data)") == price("SF(data)") == [M * N]
        assert price("RP1(data) - RP2(data)") == [M * N, M * N]
        assert price("PR(data)") == [M * N, M * N * d]
        assert price("RP1(data) - PR(data)") == [M * N, M * N * d]  # the slope is shared
        assert own.price("RP1(data)", "RP1(2 * data)", M=M) == [M]


def test_diagonal_family_on_all_data(cv):
    """d products with the Hessian at mu for CF, one a sample for RP1."""
    own = Counted(cv, "DiagonalGaussian", 4, own_model)
    for M in (2, 30):
        assert own.price("CF(T)", M=M, subsample=False) == [N, N * 4]
        assert own.price("CF(T) - RP1(T)", M=M, subsample=False) == sorted([N, N * 4, M * N])


def test_own_prior_at_mu(cv):
    own = Counted(cv, "Gaussian", 3, own_prior)
    for M in (2, 40):
        for kind in ({}, {"subsample": False}):
            assert own.price("CF(P) - RP1(P)", M=M, **kind) == [1, 3]


def test_glm(cv):
    """At mu once for all words and samples; at samples once for all words; QD its nodes, no M."""
    for family in FAMILIES:
        model = Counted(cv, family, 3, glm)
        at_mu = [f"CF(T) - {word}(T)" for word in ("RP1", "RP2", "RB", "PR", "SF")] + ["QD(T)"]
        for M in (1, 40):
            assert model.price(*at_mu, M=M, subsample=False) == [N]
            assert model.price(*at_mu, M=M) == [M]
            assert model.price("CF(T.over_all_data())", M=M) == [N]
            assert model.price("CF(B) - RP1(B)", M=M) == []
            assert model.price("RP1(data)", M=M, subsample=False) == [M * N]
            assert model.price("RP1(data)", "RB(data)", M=M, subsample=False) == [M * N]
            (rows,) = model.price("QD(data)", "2 * QD(data)", M=M, subsample=False)
            assert rows % N == 0 and 15 < rows / N < 200


def test_shared_work_is_done_once(cv):
    """Every kept array is made once a draw: later lines take it, and leave it as it is."""
    for family in FAMILIES:
        model = Counted(cv, family, 3, glm)
        lines = [c.line for c in part(cv, "experiments.catalogue").legal(model.model, model.q)][::9]
        draw = drawn(cv, model.model, model.q, M=4)
        first = cv.evaluate(lines, draw)
        made = {**draw.kept}
        assert len(made) > 20 and np.array_equal(first, cv.evaluate(lines, draw))
        assert draw.kept.keys() == made.keys()
        assert all(draw.kept[key] is value for key, value in made.items())


def wide(cv, own, d):
    X, y = RNG(0).standard_normal((1, d)) / np.sqrt(d), np.array([1.0])
    if not own:
        return cv.models.logistic_regression(X, y)
    lik = lambda z, batch: -anp.logaddexp(0, -batch[1] * anp.sum(batch[0] * anp.tanh(z), -1))
    return cv.models.Model(lik, lambda z: -anp.sum(anp.log(anp.cosh(z)), -1), (X, y), d)


LINES = (
    "CF(T) - RP1(T)", "PR(data) - RP1(data)", "RP1(data) - RP2(data)", "SF(T) - PR(T)",
    "CF(P) - RP1(P)", "PR(prior) - RP1(prior)", "PR(variational) - CF(variational)",
    "RP1(variational) - RP2(variational)",
    "RB(data) - QD(data)", "CF(B) - RP1(B)", "RB(T) - QD(B.over_all_data())",  # of eta
)  # fmt: skip


def test_diagonal_family_builds_no_square_matrix(cv, d=1000):
    """All that is held at once is less than one d x d matrix."""
    q = cv.families.DiagonalGaussian(d)
    for own, subsample in ((False, True), (False, False), (True, True), (True, False)):
        model = wide(cv, own, d)
        draw = drawn(cv, model, q, M=1, subsample=subsample)
        for text in LINES[:-3] if own else LINES:
            line = written(cv, model, q, text)
            in_little_memory(lambda: cv.evaluate([line], draw), 8 * d * d)


def test_blocks_of_columns(cv, d=150):
    """More than two blocks of columns: diag(H) sd against second derivatives by hand."""
    model, q = wide(cv, True, d), cv.families.DiagonalGaussian(d)
    mu, sigma = np.linspace(-1, 1, d), np.linspace(0.5, 1.5, d)
    draw = cv.draw(model, q, q.pack(mu, sigma), M=2, rng=RNG(0), subsample=False)
    (x, y), t = model.data, np.tanh(mu)
    s = 1 / (1 + np.exp(y * (x @ t)))
    slope = (y * s) @ x * (1 - t**2)
    second = -(s * (1 - s)) @ x**2 * (1 - t**2) ** 2 - 2 * t * slope
    got = written(cv, model, q, "CF(T)")(draw)[0]
    assert_allclose(got, np.concatenate([slope, second * sigma]), rtol=1e-9, atol=1e-12)
