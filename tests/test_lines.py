"""The defining properties of every line a reader can write."""

import itertools
import re
import warnings
from dataclasses import replace
from functools import cache, partial
from types import SimpleNamespace

import autograd.numpy as anp
import numpy as np
import oracles
import pytest
from autograd import grad
from harness import part
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from oracles import FAMILIES, PROBLEMS
from scipy import integrate, stats

METHODS = ("SF", "RP1", "RP2", "RB", "PR", "QD", "CF")
APPROXIMATIONS = (None, "taylor_z", "bound", "taylor_x", "taylor_x_slope")
TERMS = {  # what a reader can write with the three terms, and `one`
    **{term: {term: 1} for term in ("data", "prior", "variational", "one")},
    "data + prior": {"data": 1, "prior": 1},
    "data + prior - variational": {"data": 1, "prior": 1, "variational": -1},
    "2*data - prior/4": {"data": 2, "prior": -0.25},
}
CONFIGURATIONS = tuple(itertools.product(PROBLEMS, FAMILIES, (True, False)))  # last: subsampled?
configurations = pytest.mark.parametrize("name, family, subsampled", CONFIGURATIONS)
few = settings(deadline=None, derandomize=True, max_examples=6, database=None)
shapes = {
    "name": st.sampled_from(PROBLEMS), "family": st.sampled_from(FAMILIES), "d": st.integers(1, 8),
    "N": st.sampled_from([1, 2, 5]), "M": st.sampled_from([1, 3]), "seed": st.integers(0, 9),
}  # fmt: skip


def quadratic(p, atom):
    """Is the integrand quadratic in z already?"""
    return {"data": p.name == "linear", "prior": p.name != "curved"}.get(atom, True)


def written(p, word, parts):
    """May this word, or this approximation, be written for this combination of atoms?"""

    def legal(atom):
        of_eta = p.glm and atom in ("data", "taylor_z(data)", "bound(data)")  # it sees x.z alone
        in_x = p.glm and atom == "data" and not p.offset.any()
        bent = atom not in ("taylor_x(data)", oracles.SLOPE)  # has a curvature
        return {
            "SF": atom != oracles.SLOPE,  # it has no value
            "RB": of_eta,
            "QD": of_eta,
            "PR": bent,
            "CF": bent and (quadratic(p, atom) or atom == "data" and p.name == "poisson"),
            "taylor_x": in_x,
            "taylor_x_slope": in_x,
            "bound": p.name in ("logistic", "offset") if atom == "data" else quadratic(p, atom),
        }.get(word, True)

    return all(legal(atom) for atom in parts)


def approximate(p, approximation, parts):
    """What an approximation makes of a combination of atoms; None where it may not be written."""
    if not written(p, approximation, parts):
        return None
    same = {None: lambda _: True, "taylor_z": partial(quadratic, p), "bound": lambda a: a != "data"}
    stays = same.get(approximation, lambda _: False)
    return {a if stays(a) else f"{approximation}({a})": c for a, c in parts.items()}


def every_line(cv, p, model, q, terms=TERMS):
    """(legal, illegal): legal as {repr: (line, method, parts, on all data?)}, illegal as thunks."""
    names = dict(zip(("data", "prior", "variational"), cv.terms(model, q)), one=cv.one)
    legal, illegal = {}, []
    for (text, parts), approximation, whole in itertools.product(
        terms.items(), APPROXIMATIONS, (False, True)
    ):
        f = eval(text, names)
        changed = approximate(p, approximation, parts)
        if changed is None:
            illegal.append((f"{approximation}({text})", getattr(cv, approximation), f))
            continue
        f = getattr(cv, approximation)(f) if approximation else f
        f = f.over_all_data() if whole else f
        for method in METHODS:
            if not written(p, method, changed):
                illegal.append((f"{method} of {f!r}", getattr(cv, method), f))
                continue
            line = getattr(cv, method)(f)
            legal.setdefault(repr(line), (line, method, changed, whole))
    return legal, illegal


def setting(cv, name, family, d=2, N=5, constant=False):
    """Problem, model, q, two w's (2, D) and every legal line; `constant`: its last column is 1."""
    p = oracles.problem(name, d, N)
    if constant and p.glm:
        p = SimpleNamespace(**{**vars(p), "X": np.append(p.X[:, :-1], np.ones((N, 1)), 1)})
    model, q = oracles.build(cv, p), getattr(cv.families, family)(d)
    return p, model, q, oracles.weights(family, d), every_line(cv, p, model, q)[0]


def grid_draw(cv, p, model, q, w, subsampled, nodes=16):
    """A draw whose samples are all (Gauss-Hermite node, data point) pairs, and the node weights."""
    nodes += 6 * (p.name == "curved")  # sech is no polynomial's neighbour
    eps, weight = oracles.hermite(p.d, nodes)
    of_runs = lambda a: np.broadcast_to(a, (*w.shape[:-1], *a.shape))
    if not subsampled:
        return cv.draw(model, q, w, eps=of_runs(eps), subsample=False), weight
    eps, index = np.repeat(eps, p.N, 0), np.tile(np.arange(p.N), len(weight))
    return cv.draw(model, q, w, eps=of_runs(eps), index=of_runs(index)), weight


@configurations
def test_exact_means(cv, name, family, subsampled):
    """Every line's mean, for every data point drawn, by quadrature nodes: exact to rounding."""
    p, model, q, w, lines = setting(cv, name, family)
    draw, weight = grid_draw(cv, p, model, q, w, subsampled)
    table = cv.evaluate([line for line, *_ in lines.values()], draw)  # (2, lines, nodes [N], D)
    for k, (text, (_, method, parts, whole)) in enumerate(lines.items()):
        for run in range(2):
            samples = table[run, k].reshape(len(weight), -1, q.D)  # (nodes, N or 1, D)
            mean = np.tensordot(weight, samples, 1)
            exact = lambda atom: oracles.exact_gradient(p, family, atom, w[run], method)  # (N, D)
            right = sum(c * exact(atom) for atom, c in parts.items())
            right = right if subsampled and not whole else right.mean(0, keepdims=True)
            right = np.broadcast_to(right, mean.shape)
            atol = 1e-9 * (1 + np.abs(right).max())
            assert_allclose(mean, right, rtol=0, atol=atol, err_msg=text)
    assert len(lines) >= 40


def pairs(lines):
    """{repr: line} of all differences of two lines of one term; of two terms they are none."""
    groups, found = {}, {}
    for line, method, parts, _ in lines.values():
        term = lambda atom: f"{method} {atom}" if atom == oracles.SLOPE else atom  # no gradient
        estimated = frozenset((term(atom), c) for atom, c in parts.items() if atom != "one")
        groups.setdefault(estimated, []).append(line)
    for (a, *_), (b, *_) in itertools.combinations(groups.values(), 2):
        assert not (a - b).is_control_variate, (a, b)
    for a, b in (pair for group in groups.values() for pair in itertools.combinations(group, 2)):
        found[repr(a - b)] = a - b
        assert found[repr(a - b)].is_control_variate, (a, b)
    return found


@pytest.mark.parametrize("name, family", dict.fromkeys(c[:2] for c in CONFIGURATIONS))
def test_lines_are_sums(cv, name, family):
    """Sample by sample every difference is what its coefficients make of its parts, whatever words
    it mixes; with one data point a sample, a batch for all, one for each, and all data.

    So every variate has mean zero: its two lines have the same mean (`test_exact_means`).
    """
    p, model, q, w, lines = setting(cv, name, family)
    variates = list(pairs(lines).values())
    mixed = [2 * a - b / 3 for a, b in zip(variates, variates[len(variates) // 2 :])]
    parts, A = part(cv, "experiments.catalogue").spanned(variates + mixed)
    for kind in ({}, {"batch": 3}, {"batch": 2, "each": True}, {"subsample": False}):
        draw = cv.draw(model, q, w[1], M=2, rng=np.random.default_rng(0), **kind)
        right = np.tensordot(A, cv.evaluate(parts, draw), 1)
        error = np.abs(cv.evaluate(variates + mixed, draw) - right).max((1, 2))
        worst = np.argmax(error)
        assert error[worst] < 1e-9 * (1 + np.abs(right).max()), repr((variates + mixed)[worst])


@configurations
def test_single_draws(cv, name, family, subsampled, d=3, M=4, N=5, seed=0):
    """Sample by sample: SF, RP1 and RP2 equal autograd straight through w, RB the conditional mean
    of RP1, PR autograd's Hessian, QD a sum over a line of etas."""
    p, model, q, w, lines = setting(cv, name, family, d, N)
    rng = np.random.default_rng(seed)
    eps, index = rng.standard_normal((2, M, d)), rng.integers(p.N, size=(2, M))
    draw = cv.draw(model, q, w, eps=eps, **{"index": index} if subsampled else {"subsample": False})
    chosen = {text: line for text, line in lines.items() if line[1] != "CF"}
    table = cv.evaluate([line for line, *_ in chosen.values()], draw)
    for run in range(2):
        for k, (text, (_, method, parts, whole)) in enumerate(chosen.items()):
            drawn = None if whole or not subsampled else index[run]
            right = sum(
                c * oracles.sample_gradient(method, p, family, atom, w[run], eps[run], drawn)
                for atom, c in parts.items()
            )
            tolerance = 1e-9 * (1 + np.abs(right).max())
            assert_allclose(table[run, k], right, rtol=1e-8, atol=tolerance, err_msg=text)


@pytest.mark.parametrize("d", (1, 2, 3, 5, 8))
@settings(few, max_examples=2)
@given(subsampled=st.booleans(), **{k: v for k, v in shapes.items() if k != "d"})
def test_single_draws_of_any_shape(cv, d, **shape):
    """Also with negative entries on the diagonal of L, which the second w has."""
    test_single_draws(cv, d=d, **shape)


def test_origin(cv):
    """A data point at x = 0: eta does not move, its variance is 0, and nothing is divided by it."""
    p = oracles.problem("logistic", 2, 4)
    X = p.X * np.array([1.0, 0.0, 1.0, 1.0])[:, None]
    model = cv.models.logistic_regression(X, p.y)
    for family in FAMILIES:
        q = getattr(cv.families, family)(2)
        data = cv.terms(model, q)[0]
        lines = [word(data) for word in (cv.RB, cv.PR, cv.QD)] + [cv.CF(cv.bound(data))]
        eps = np.random.default_rng(0).standard_normal((4, 2))
        draw = cv.draw(model, q, q.start(), eps=eps, index=np.arange(4))
        table = cv.evaluate(lines, draw, check=False)
        assert np.all(table[:, 1] == 0) and np.all(np.abs(table[:, [0, 2, 3]]).max(-1) > 0)
        whole = cv.draw(model, q, q.start(), eps=eps, subsample=False)
        assert np.isfinite(cv.evaluate(lines, whole, check=False)).all()


def test_closed_form_of_prior_and_entropy(cv):
    """d from 1 to 8: conjugate formulas in the covariance, which no grid reaches."""
    for d, family in itertools.product(range(1, 9), FAMILIES):
        p = oracles.problem("linear", d, 4)
        model, q = oracles.build(cv, p), getattr(cv.families, family)(d)
        w = oracles.weights(family, d)[1]
        L0 = oracles.unpack(family, d, w)[1]
        law, inverse = stats.multivariate_normal(w[:d], L0 @ L0.T), np.linalg.inv(L0 @ L0.T)

        def conjugate(v, what):
            mu, L = oracles.unpack(family, d, v)
            S, away = anp.dot(L, L.T), mu - w[:d]
            if what == "prior":
                return -0.5 * (anp.sum(mu**2) + anp.trace(S)) / oracles.PRIOR_SD**2
            if what == "data":
                miss, spread = p.y - anp.dot(p.X, mu), anp.sum(anp.dot(p.X, S) * p.X)
                return -0.5 * (anp.sum(miss**2) + spread) / oracles.NOISE_SD**2
            return -0.5 * (anp.sum(inverse * S) + anp.dot(away, anp.dot(inverse, away)))

        draw = cv.draw(model, q, w, M=2, rng=np.random.default_rng(0), subsample=False)
        for what, f in zip(("data", "prior", "variational"), cv.terms(model, q)):
            right = grad(conjugate)(w, what)
            scale = np.abs(right).max()
            assert_allclose(cv.CF(f)(draw)[1], right, rtol=1e-8, atol=1e-9 * scale, err_msg=what)
        z = np.random.default_rng(1).standard_normal((3, d))
        assert_allclose(q.entropy(w), law.entropy())
        assert_allclose(q.log_q(w, z), np.ravel(law.logpdf(z)))


def test_badly_conditioned(cv, low=1e-4, high=1e4):
    """RP2 by the closed form of a 2 x 2 root, and for diagonal L of d = 5; entries 1e-4..1e4."""
    rng = np.random.default_rng(0)

    def rp2_of_prior(q, w, eps):
        model = oracles.build(cv, oracles.problem("linear", q.dim, 3))
        return cv.RP2(cv.terms(model, q)[1])(cv.draw(model, q, w, eps=eps, subsample=False))

    def f(w, e):
        """log prior at mu + S e; a 2 x 2 root is (Sigma + |det L| I) / sqrt(tr + 2 |det L|)."""
        mu, L = oracles.unpack("Gaussian", 2, w)
        delta = anp.abs(L[0, 0] * L[1, 1])
        S = anp.dot(L, L.T)
        root = (S + delta * np.eye(2)) / anp.sqrt(anp.trace(S) + 2 * delta)
        return oracles.normal_prior(mu + anp.dot(root, e))

    q = cv.families.Gaussian(2)
    for scales in [(high, low), (low, high), (-high, low), (low, -low), (1.0, -1.0)]:
        L = np.array([[scales[0], 0], [0.3 * min(map(abs, scales)), scales[1]]])
        w, eps = q.pack([0.1, -0.2], L), rng.standard_normal((3, 2))
        for e, got in zip(eps, rp2_of_prior(q, w, eps)):
            right = grad(f)(w, e)
            assert_allclose(got, right, rtol=1e-6, atol=1e-7 * np.abs(right).max())
    d, s = 5, np.array([high, -low, 1.0, 3.0, -7.0])
    q, eps = cv.families.Gaussian(d), rng.standard_normal((1, d))
    (got,) = rp2_of_prior(q, q.pack(np.zeros(d), np.diag(s)), eps)
    u = -np.abs(s) * eps[0] / oracles.PRIOR_SD**2
    for k, E in enumerate(oracles.basis("Gaussian", d)):
        dS = E * s + (E * s).T  # the change of Sigma, entry by entry over s_i + s_j
        right = u @ (dS / (np.abs(s)[:, None] + np.abs(s))) @ eps[0]
        assert_allclose(got[d + k], right, rtol=1e-6, atol=1e-7 * np.abs(u).max())


@pytest.mark.parametrize("name, family", [("logistic", "Gaussian"), ("curved", "DiagonalGaussian")])
def test_batched_equals_looped(cv, name, family, d=2, M=3, N=5, seed=0):
    """Two leading axes of runs against one run at a time; one line at a time; a given array."""
    p, model, q, _, lines = setting(cv, name, family, d, N)
    rng = np.random.default_rng(seed)
    w = q.start((2, 3)) + 0.3 * rng.standard_normal((2, 3, q.D))
    eps, index = rng.standard_normal((2, 3, M, d)), rng.integers(N, size=(2, 3, M))
    together = [line for line, *_ in lines.values()]
    # the nodes of a quadrature are chosen for all runs together: it agrees to its own tolerance
    close = np.array([1e-11 if method != "QD" else 3e-9 * N for _, method, *_ in lines.values()])
    for kind in ({"index": index}, {"subsample": False}):
        table = cv.evaluate(together, cv.draw(model, q, w, eps=eps, **kind))
        assert table.shape == (2, 3, len(together), M, q.D)
        for a, b in itertools.product(range(2), range(3)):
            one = {k: v[a, b] if k == "index" else v for k, v in kind.items()}
            draw = cv.draw(model, q, w[a, b], eps=eps[a, b], **one)
            looped = cv.evaluate(together, draw)
            scale = 1 + np.abs(looped).max((-1, -2))
            assert np.all(np.abs(table[a, b] - looped).max((-1, -2)) < close * scale)
        fresh = lambda: cv.draw(model, q, w, eps=eps, **kind)  # nothing shared between lines
        for k, line in enumerate(together):
            alone = line(fresh())
            assert alone.shape == (2, 3, M, q.D)
            scale = 1 + np.abs(alone).max()
            assert np.abs(table[:, :, k] - alone).max() < 1e-11 * scale, repr(line)


@pytest.mark.parametrize(
    "name, family", [*itertools.product(("logistic", "poisson", "curved"), FAMILIES)]
)
def test_batches(cv, name, family, d=2, M=3, N=5, B=2, seed=0, constant=False):
    """A batch of B data points gives the mean of what its points give, one after the other: a batch
    for each sample, one for all of them, all data as a batch, all data; two runs."""
    _, model, q, w, lines = setting(cv, name, family, d, N, constant)
    together = [line for line, *_ in lines.values()]
    close = np.array([1e-11 if method != "QD" else 3e-9 * N for _, method, *_ in lines.values()])
    rng = np.random.default_rng(seed)
    eps = rng.standard_normal((2, M, d))
    each, shared = rng.integers(N, size=(2, M, B)), rng.integers(N, size=(2, B))
    everyone = np.tile(np.arange(N), (2, 1))
    for index, kind in (
        (each, {"index": each, "batch": B, "each": True}),
        (shared[:, None], {"index": shared, "batch": B}),
        (everyone[:, None], {"index": everyone, "batch": N}),
        (everyone[:, None], {"subsample": False}),
    ):
        table = cv.evaluate(together, cv.draw(model, q, w, eps=eps, **kind))
        right = 0
        for b in range(index.shape[-1]):
            i = np.broadcast_to(index[..., b], (2, M))
            right = right + cv.evaluate(together, cv.draw(model, q, w, eps=eps, index=i))
        right = right / index.shape[-1]
        error = np.abs(table - right).max((0, 2, 3)) / (1 + np.abs(right).max((0, 2, 3)))
        worst = np.argmax(error / close)
        assert error[worst] < close[worst], f"{together[worst]!r}: {error[worst]:.1e}"


@few
@given(B=st.integers(1, 4), constant=st.booleans(), **shapes)
def test_batches_of_any_shape(cv, **shape):
    test_batches(cv, **shape)


def test_arithmetic(cv):
    """Lines add, subtract and scale like the arrays they give."""
    p, model, q, w, _ = setting(cv, "logistic", "Gaussian")
    data, prior, variational = cv.terms(model, q)
    draw = cv.draw(model, q, w[0], M=4, rng=np.random.default_rng(0))
    a, b, c, s = cv.RP1(data), cv.RP2(data), cv.CF(prior), cv.SF(data)
    A, B, C, S, P = (line(draw) for line in (a, b, c, s, cv.RP1(prior)))
    for line, right in (
        (a - b, A - B), (b - a, B - A), (2 * a + b / 4, 2 * A + B / 4), (-a, -A), (a - a + b, B),
        (s + c + b + a, A + B + C + S), (cv.RP1(data + prior), A + P),
        (cv.SF(2 * data - prior), 2 * S - cv.SF(prior)(draw)),
        (a + cv.RP1(prior) - cv.CF(variational), A + P - cv.CF(variational)(draw)),
    ):  # fmt: skip
        assert_allclose(line(draw), right, rtol=1e-11, atol=1e-11, err_msg=repr(line))
    assert not (a - a).parts and np.all((a - a)(draw) == 0)
    out = np.full((3, 4, q.D), np.nan)  # what stood there before must not show
    assert cv.evaluate([a, s, c], draw, out=out) is out
    for table in out, cv.evaluate([a, s, c], draw, check=False):
        assert_allclose(table, [A, S, C], rtol=1e-12)
    assert cv.evaluate([], draw).shape == (0, 4, q.D)


def test_judged(cv):
    """A line is a variate if its coefficients cancel term by term, to rounding and no further."""
    p, model, q, w, _ = setting(cv, "logistic", "Gaussian")
    data, prior, variational = cv.terms(model, q)
    s, third = cv.taylor_x_slope(data), cv.RP1(data) / 3
    for line in [
        cv.RP1(data) - cv.RP2(data.over_all_data()),
        third - cv.RP1(data) + third + third + cv.SF(prior) - cv.PR(prior),
        0.1 * cv.RP1(data) + 0.2 * cv.QD(data) - 0.3 * cv.RB(data),
        5 * cv.SF(cv.one) + cv.RP1(s) - cv.RP1(s.over_all_data()),
    ]:
        assert line.is_control_variate, repr(line)
        cv.recipe.estimators.check_variate(line)
    h = cv.RP1(data) + cv.RP1(prior) - cv.CF(variational)
    assert h.target == {"data": 1, "prior": 1, "variational": -1} and not h.is_control_variate
    cv.recipe.estimators.check_gradient(h - cv.RP1(data) + third + third + third)
    x = cv.taylor_x(data)
    for line, left_over in [
        (cv.RP1(data) - (1 + 1e-9) * cv.RP2(data), "'data': -1"),
        (1e-13 * cv.RP1(data) + cv.RP1(prior) - cv.PR(prior), "'data': 1"),
        ((1 - 1e-13) * cv.RP1(data) - cv.RB(data), "'data': -"),
        (cv.RP1(s) - cv.RP2(s), "RP2(taylor_x_slope(data))"),
        (cv.RP1(data) - cv.RP1(cv.taylor_z(data)), "'taylor_z(data)': -1"),
        (cv.RP1(data) + cv.RP2(data), "it estimates {'data': 2"),
        (cv.RP1(prior) - cv.RP2(data), "it estimates {'prior': 1, 'data': -1}"),
        (cv.RP1(x) - cv.RP1(data.over_all_data()), "'data': -1"),
        (cv.CF(cv.bound(data)) - cv.CF(cv.taylor_z(data)), "'taylor_z(data)': -1"),
        (cv.SF(cv.one) - cv.RP1(prior), "'prior': -1"),
    ]:
        assert not line.is_control_variate, repr(line)
        with pytest.raises(ValueError, match=f"is no control variate.*{re.escape(left_over)}"):
            cv.recipe.estimators.check_variate(line)
        with pytest.raises(ValueError, match="must estimate data"):
            cv.recipe.estimators.check_gradient(h + line)


@settings(few, max_examples=60)
@given(st.data(), st.lists(st.fractions(-9, 9, max_denominator=12).filter(bool), min_size=1,
                           max_size=5))  # fmt: skip
def test_any_order_of_writing_is_the_same_line(cv, chosen, coefficients):
    """Random coefficients of random words, balanced term by term: a variate in every order; with a
    bias of 1e-9 or 1e-13 of its size, in none."""
    data, prior, _ = terms_of(cv, "logistic")
    words, atoms = [cv.RP1, cv.RP2, cv.PR, cv.SF], [data, prior, cv.taylor_z(data)]
    pick = lambda some: chosen.draw(st.sampled_from(some))
    pieces = []
    for c in coefficients:
        f = pick([*atoms, data.over_all_data()])
        pieces += [(c, pick(words)(f)), (-c, pick(words)(f.over_all_data()))]
    for at in range(0, len(pieces), 3):  # some coefficients in parts that floats do not add up to
        c, line = pieces[at]
        pieces[at : at + 1] = [(c / 3, line), (c / 3, line), (c / 3, line)]
    size = sum(abs(c) for c, _ in pieces)
    orders = [pieces] + [chosen.draw(st.permutations(pieces)) for _ in range(3)]
    for bias, order in itertools.product((0, 1e-9, -1e-13), orders):
        line = 0 * cv.RP1(data) + bias * float(size) * cv.RP1(prior)
        for c, piece in order:
            line = line + float(c) * piece
        assert line.is_control_variate == (bias == 0), f"{line!r}: {line.target}"
        assert set(line.target) <= {"prior"}


@cache
def terms_of(cv, name):
    return cv.terms(oracles.build(cv, oracles.problem(name)), cv.families.Gaussian(2))


def test_a_line_prints_as_it_is_written(cv):
    """But for what is nothing, a sum, or quadratic already and so its own expansion."""
    names = vars(cv) | dict(zip(("data", "prior", "variational"), terms_of(cv, "logistic")))
    for text in (
        "SF(one)", "-RP1(data)", "2*RP1(data) - 0.5*RP2(data)", "taylor_z(prior, order=1)",
        "RP1(data) + RP1(prior) - CF(variational)", "CF(taylor_z(data)) - RP1(taylor_z(data))",
        "RP1(taylor_x(data)) - RP1(taylor_x(data).over_all_data())",
        "RP2(taylor_z(data).over_all_data())",
        "CF(bound(data)) - SF(bound(data))", "CF(bound(data, at='snapshot'))",
        "taylor_z(data, at='snapshot', order=1).over_all_data()",
        "CF(taylor_z(data, at='snapshot')) - CF(taylor_z(data, at='snapshot').over_all_data())",
        "CF(parabola(data, at='snapshot').over_all_data())",
    ):  # fmt: skip
        assert repr(eval(text, names)) == text
    for text, shown in {
        "RP1(data) - RP1(data)": "0", "RP1(data + prior)": "RP1(data) + RP1(prior)",
        "parabola(data + prior)": "parabola(data) + prior", "taylor_z(one, order=1)": "one",
        "taylor_z(prior - variational)": "prior - variational",
        "taylor_z(bound(data + prior))": "bound(data) + prior",
    }.items():  # fmt: skip
        assert repr(eval(text, names)) == shown


@pytest.mark.parametrize("name, family", dict.fromkeys(c[:2] for c in CONFIGURATIONS))
def test_every_illegal_line_is_refused_by_name(cv, name, family):
    """All that the enumeration calls illegal: a ValueError with the term and what to write."""
    p = oracles.problem(name)
    model, q = oracles.build(cv, p), getattr(cv.families, family)(p.d)
    illegal = every_line(cv, p, model, q)[1]
    assert len(illegal) >= 6
    for text, function, f in illegal:
        terms = r"'(data|prior|variational|one|taylor_z|taylor_x)|taylor_x"
        with pytest.raises(ValueError, match=terms) as e:
            function(f)
        advice = str(e.value).partition("try ")[2]
        assert advice or "has no bound" in str(e.value), text
        for word in re.findall(r"\b(RP1|PR)\b(?!\()", advice):  # what it advises may be written
            getattr(cv, word)(f)
    refused = {text.split()[0] for text, *_ in illegal}
    in_x = {"SF", "PR", "CF"} if p.glm and not p.offset.any() else {"taylor_x(data)"}
    assert refused >= {"RB", "QD", "taylor_x(prior)"} | in_x


def test_expansion_in_x_about_one_mean_of_two_classes(cv):
    """phi of a logistic model is not linear in y between -1 and 1: drawn and all data agree yet."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((6, 2)), np.array([1.0, -1, 1, 1, -1, 1])
    model = cv.models.GLM(X, y, replace(cv.models.LOGISTIC, classes=False))
    q = cv.families.Gaussian(2)
    f = cv.taylor_x(cv.terms(model, q)[0])
    eps = np.repeat(rng.standard_normal((1, 2)), 6, 0)  # one eps, every data point
    draw = cv.draw(model, q, q.start(), eps=eps, index=np.arange(6))
    for word in (cv.SF, cv.RP1, cv.RP2):
        assert_allclose((word(f) - word(f.over_all_data()))(draw).mean(0), 0, atol=1e-12)


def test_draws(cv):
    """Noise is the generator's standard normals, then its uniform integers are the data points."""
    model, q = oracles.build(cv, oracles.problem("logistic", 2, 5)), cv.families.Gaussian(2)
    rng = np.random.default_rng
    for kind, shape in (
        ({}, (6, 3)), ({"batch": 2}, (6, 1, 2)), ({"batch": 2, "each": True}, (6, 3, 2)),
    ):  # fmt: skip
        draw, same = cv.draw(model, q, q.start((6,)), M=3, rng=rng(1), **kind), rng(1)
        assert np.array_equal(draw.eps, same.standard_normal((6, 3, 2)))
        assert np.array_equal(draw.index, same.integers(5, size=shape))
    mu, L = oracles.unpack("Gaussian", 2, oracles.weights("Gaussian", 2)[0])
    draw = cv.draw(model, q, q.pack(mu, L), M=4, rng=rng(0))
    assert_allclose(draw.z, mu + np.array([L @ e for e in draw.eps]))


def test_hand_written_derivatives(cv):
    """phi', phi'', phi''' by hand equal autograd's, and phi the formula, far out too."""
    m = cv.models
    for name, lik, labels, reach in (
        ("logistic", m.LOGISTIC, [-1.0, 1.0], 500.0), ("poisson", m.POISSON, [0.0, 1.0, 7.0], 20.0),
        ("linear", m.gaussian_likelihood(oracles.NOISE_SD), [-2.0, 0.5], 100.0),
    ):  # fmt: skip
        eta = np.concatenate([np.linspace(-reach, reach, 41), np.linspace(-4, 4, 41)])[:, None]
        eta, labels = np.broadcast_arrays(eta, labels)
        by_hand = lik.fast(eta, labels, 3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # autograd's own route may overflow on the way
            by_autograd = replace(lik, fast=None).derivatives(eta, labels, 3)
        for order in (1, 2, 3):
            assert len(lik.fast(eta, labels, order)) == order
            assert_allclose(by_hand[order - 1], by_autograd[order - 1], rtol=1e-9, atol=1e-13)
        moved = by_hand[0] - by_hand[0][:, :1]  # labels move slopes by kappa
        assert_allclose(moved, lik.kappa * (labels - labels[:, :1]), rtol=1e-6)
        labels = labels[:13]
        near = np.broadcast_to(np.linspace(-3, 3, 13)[:, None], labels.shape)
        assert_allclose(lik.phi(near, labels), oracles.PHI[name](near, labels), rtol=1e-12)


def adaptive_mean(g, m, sd, *kinks):
    """E g(eta) for eta ~ N(m, sd^2) by scipy's adaptive quadrature, to about 14 digits."""
    reach = 12.0
    points = sorted({0.0, *(np.clip((k - m) / sd, -reach, reach) for k in kinks)})
    edges = [-reach, *points, reach]  # pieces that end where g bends
    each = lambda x: g(m + sd * x) * np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", integrate.IntegrationWarning)  # asked for every digit
        return sum(
            integrate.quad(each, a, b, epsabs=1e-15, epsrel=1e-14, limit=400)[0]
            for a, b in itertools.pairwise(edges)
            if a < b
        )


@pytest.mark.parametrize("tolerance", [1e-9, 1e-13])
def test_quadrature(cv, tolerance):
    """E phi' and E phi'' of the logistic likelihood against adaptive quadrature, also far out.

    The tolerance is relative to the size of phi' and phi'' for |Im eta| <= 0.8 pi.
    """
    slopes = cv.models.LOGISTIC.mean_slopes
    size = np.array([1 / np.sin(0.8 * np.pi), 1 / (4 * np.cos(0.4 * np.pi) ** 2)])
    m = np.array([-20.0, -3.0, -0.4, 0.0, 1.0, 6.0, 20.0])
    widths = np.array([0.01, 0.1, 0.6, 1.0, 3.0, 10.0, 30.0, 60.0])[:, None]
    right = np.array([[logistic_means(a, sd) for a in m] for sd in widths[:, 0]])
    right = np.moveaxis(right, -1, 0)  # (2, widths, means)
    for label in (1.0, -1.0):  # phi(eta, -1) = phi(-eta, 1)
        together = slopes(label * m, widths**2, np.full(7, label), tolerance)
        for k, sd in enumerate(widths[:, 0]):
            v = np.full(7, sd**2)
            alone = slopes(label * m, v, np.full(7, label), tolerance)
            for got in (np.array(alone), np.array(together)[:, k]):
                sign = np.array([label, 1.0])[:, None]
                error = np.abs(sign * got - right[:, k]).max(-1) / size
                assert np.all(error <= tolerance + 3e-15), f"sd = {sd}: errors {error}"


@cache
def logistic_means(m, sd):
    """E phi', E phi'' for y = 1."""
    slope = lambda t: 1 / (1 + np.exp(min(t, 700)))
    curve = lambda t: -1 / (2 * np.cosh(np.clip(t, -700, 700) / 2)) ** 2
    return [adaptive_mean(g, m, sd, -30.0, -8.0, 0.0, 8.0, 30.0) for g in (slope, curve)]


def test_values_and_degenerate_widths(cv):
    logistic = cv.models.LOGISTIC
    m, y = np.array([-20.0, -1.0, 0.0, 4.0]), np.array([1.0, -1.0, 1.0, 1.0])
    for sd in (0.01, 1.0, 30.0):
        phi = lambda t, y: -np.logaddexp(0, -y * t)
        right = [adaptive_mean(lambda t: phi(t, b), a, sd, b) for a, b in zip(m, y)]
        assert_allclose(logistic.mean(m, np.full(4, sd**2), y), right, rtol=1e-11, atol=1e-12)
    at_m = logistic.derivatives(m, y, 2)
    assert_allclose(logistic.mean_slopes(m, 0 * m, y), at_m, rtol=1e-13)
    mixed = logistic.mean_slopes(m, np.array([0.0, 1.0, 0.0, 4.0]), y)
    assert_allclose(np.array(mixed)[:, [0, 2]], np.array(at_m)[:, [0, 2]], rtol=1e-12)
    wide = np.array([100.0, 0.5]), np.array([1.0, 3.0])  # E exp(eta) lies outside the nodes
    for likelihood in (cv.models.POISSON, cv.models.gaussian_likelihood(0.7)):
        value, *slopes = likelihood.expected(m[2:], *wide)
        assert_allclose(likelihood.mean(m[2:], *wide), value)
        assert_allclose(likelihood.mean_slopes(m[2:], *wide), slopes)


def test_bound(cv):
    """Below phi everywhere, touching it at +- xi with its slope, for xi from 0 to 50."""
    xi = np.array([0.0, 1e-7, 1e-5, 1e-3, 0.3, 2.0, 10.0, 50.0])[:, None]
    for y in (-1.0, 1.0):
        a, b, c = cv.models.LOGISTIC.bound(xi, y)
        lower = lambda eta: a + b * eta + 0.5 * c * eta**2
        phi = lambda eta: -np.logaddexp(0, -y * eta)
        eta = np.linspace(-60, 60, 481)
        assert np.all(lower(eta) <= phi(eta) + 1e-12), "the bound is not below"
        for sign in (-1, 1):
            at = sign * xi
            assert_allclose(lower(at), phi(at), rtol=1e-9, atol=1e-9)
            slope = y / (1 + np.exp(y * at))
            assert_allclose(b + c * at, slope, rtol=1e-6, atol=1e-9)
