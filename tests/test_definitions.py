"""The fast engine against `cvlib.definitions`, one sample at a time, for every family and word."""

from types import SimpleNamespace

import autograd.numpy as anp
import numpy as np
from autograd import grad, hessian
from harness import part
from numpy.testing import assert_allclose

M, N, d = 4, 6, 2
CLOSE = {"rtol": 1e-10, "atol": 1e-10}
rng = np.random.default_rng(0)
X, y = rng.uniform(-1, 1, (N, d)), np.where(np.arange(N) % 2 == 0, 1.0, -1.0)
SAMPLED = {"subsample": False}, {}, {"batch": 3}, {"batch": 2, "each": True}


def lik(z, batch):
    """A model of one's own that is finite for every z, a switch or a real number."""
    x, label = batch
    return -anp.logaddexp(0.0, -label * anp.sum(x * z, -1)) + 0.1 * anp.sin(anp.sum(z, -1))


def prior(z):
    return -anp.sum(anp.log(anp.cosh(z - 0.3)), -1)


def family(cv, q):
    """q as the definitions know it: theirs, or its transformation and density, one or two."""
    if not q.gaussian:
        return q
    if q.full:
        return part(cv, "definitions").Gaussian(q.dim)
    mean = lambda w: (w[:d], anp.diag(w[d:]))
    root = lambda w, eps: w[:d] + anp.abs(w[d:]) * eps
    return SimpleNamespace(
        transform=q.transform, transform2=root, log_density=q.log_density, unpack=mean
    )


def each(cv, draw):
    """The samples of a draw, as the definitions have them."""
    q, rows = family(cv, draw.q), [None] * M
    if draw.index is not None:
        rows = np.broadcast_to(draw.rows, (M, draw.rows.shape[-1]))
    return [part(cv, "definitions").Draw(q, draw.w, *pair) for pair in zip(draw.eps, rows)]


def price(f, draw):
    """[grad f(Z), what w has of grad^2 f(Z) L]: Bonnet's and Price's theorems."""
    L = draw.q.unpack(draw.w)[1]
    bent = hessian(f)(draw.z) @ L
    own = bent[np.tril_indices(d)] if len(draw.w) > 2 * d else np.diag(bent)
    return np.concatenate([grad(f)(draw.z), own])


def cases(cv):
    """(q, draw, {name: (integrand of the engine, that of the definitions)}), for every sampling."""
    models = [cv.models.Model(lik, prior, (X, y), d), cv.models.logistic_regression(X, y, 1.3)]
    kinds = "Gaussian", "DiagonalGaussian", "Gamma", "Beta", "Bernoulli"
    for q in *(getattr(cv.families, kind)(d) for kind in kinds), cv.families.Categorical(1, d):
        for model in models[: 2 if q.gaussian else 1]:
            w = q.start() + rng.uniform(-0.4, 0.4, q.D)
            names = "data", "prior", "variational"
            pairs = zip(cv.terms(model, q), part(cv, "definitions").terms(model))
            terms = dict(zip(names, pairs))
            (data, slow_data), (before, slow_before) = terms["data"], terms["prior"]
            terms["2 data + prior"] = 2 * data + before, slow_data + slow_data + slow_before
            for how in SAMPLED:
                yield q, cv.draw(model, q, w, M, np.random.default_rng(1), **how), terms


def test_words_are_their_definitions(cv):
    known, found = part(cv, "definitions"), set()
    for q, draw, terms in cases(cv):
        for name, (f, slow) in terms.items():
            words = (word for word in ("SF", "RP1", "RP2", "GR", "PR") if getattr(cv, word).fits(q))
            for word in words:
                if word == "GR" and q.smooth != "z":
                    method = known.SF  # a discrete z does not move
                else:
                    method = known.method(price) if word == "PR" else getattr(known, word)
                right = [method(slow)(sample) for sample in each(cv, draw)[:2]]
                got = getattr(cv, word)(f)(draw)[:2]
                assert_allclose(got, right, **CLOSE, err_msg=f"{word}({name}), {q!r}")
                found.add((type(q).__name__, word))
    assert len(found) == 2 * 5 + 2 * 2 + 2 * 2, sorted(found)


def test_the_papers_variates_are_their_definitions(cv):
    """At N(0, I) all eigenvalues of the covariance are equal, where RP2 is easily wrong."""
    model, q = cv.models.logistic_regression(X, y, 1.3), cv.families.Gaussian(d)
    slow, published = part(cv, "definitions").paper(model), cv.zoo.published(model, q)
    fast = vars(cv.zoo.paper(model, q)) | {"miller": published["Miller"]}
    fast |= {"paisley": published["Paisley"], "paisley_bound": published["Paisley, bound"]}
    away = q.start() + rng.uniform(-0.6, 0.6, q.D)
    for w, how in [(q.start(), {}), *((away, how) for how in SAMPLED)]:
        draw = cv.draw(model, q, w, M, np.random.default_rng(2), **how)
        for name, line in vars(slow).items():
            right = [line(sample) for sample in each(cv, draw)]
            assert_allclose(fast[name](draw), right, **CLOSE, err_msg=name)


def test_the_loop_is_its_definition(cv):
    model, q = cv.models.logistic_regression(X, y), cv.families.Gaussian(d)
    known = part(cv, "definitions")
    names = "c2", "c1", "c3", "c4", "c6", "c5", "c7"
    slow, fast = known.paper(model), cv.zoo.paper(model, q)
    for chosen in (names, ()):
        cvs, lines = ([getattr(which, name) for name in chosen] for which in (slow, fast))
        how = {"lr": 0.4, "M": 3, "steps": 5, "v0": 0.01, "gamma": 0.1}
        right = known.ascend(
            model, known.Gaussian(d), slow.h, cvs, q.start(), rng=np.random.default_rng(3), **how
        )
        path = cv.optimize.sgd(model, q, fast.h, lines, rng=np.random.default_rng(3), **how)
        assert_allclose(path.w, right, **CLOSE)


def test_rotations_and_means(cv):
    """RPS is RP1 averaged with slope and draw exchanged; a line's mean is that of its rows."""
    RP1 = part(cv, "definitions").RP1
    for q, draw, terms in cases(cv):
        if not q.gaussian:
            continue
        f, slow = terms["2 data + prior"]
        row = np.array([RP1(slow)(sample) for sample in each(cv, draw)])
        got = cv.RPS(f)(draw)
        if q.full:
            L, lower = q.unpack(draw.w)[1], np.tril_indices(d)
            for m in range(M):
                G = L.T @ row[m, :d]  # the slope in q's own coordinates
                outer = np.outer(G, draw.eps[m])
                both = np.linalg.inv(L).T @ (outer + outer.T) / 2
                assert_allclose(got[m], [*row[m, :d], *both[lower]], **CLOSE)
        else:
            assert_allclose(got, row, **CLOSE)
        for line in (cv.AQ(f), cv.RPS(f), cv.PR(f) - cv.RP1(f), cv.all_quadratics(2)(f)):
            assert_allclose(line.mean(draw), line(draw).mean(-2), rtol=1e-9, atol=1e-9)
