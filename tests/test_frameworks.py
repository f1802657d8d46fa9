"""The functions that readers download, for JAX and PyTorch: cvlib's numbers, on the same draws.

Chapter 20 shows some of those for JAX. `make torch` installs PyTorch, beside the environment, and
runs this file.
"""

import re
import sys
import warnings
from contextlib import contextmanager, nullcontext
from functools import partial

import harness
import notebooks  # tools/notebooks.py
import numpy as np
import pytest
from numpy.testing import assert_allclose

import cvlib as cv
from cvlib import combine
from cvlib.ascent.rules import newton
from cvlib.recipe import regression

SAME = dict(rtol=1e-10, atol=1e-10)
RNG = np.random.default_rng
rng = RNG(0)
X, y = rng.standard_normal((12, 3)), np.sign(rng.standard_normal(12))
MODEL = cv.models.logistic_regression(X, y)
Q = cv.families.Gaussian(3)
L = np.array([[0.9, 0, 0], [-0.4, 0.7, 0], [0.2, 0.3, 1.1]])
MU, EPS = rng.standard_normal(3), rng.standard_normal((8, 3))
DATA, PRIOR, VARIATIONAL = cv.terms(MODEL, Q)
WHOLE = cv.RP1(DATA) + cv.RP1(PRIOR) - cv.RP1(VARIATIONAL)
DRAW = cv.draw(MODEL, Q, Q.pack(MU, L), eps=EPS, subsample=False)
BERNOULLI, FIXED = cv.families.Bernoulli(3), (EPS > 0).astype(float)
square = lambda z, _: (z[..., 0] - 2 * z[..., 1] + 0.5 * z[..., 2]) ** 2
SQUARE = cv.models.Model(square, lambda z: 0.0 * z[..., 0], (np.ones(1),), 3)
OF_BERNOULLI = cv.terms(SQUARE, BERNOULLI)[0]
LOO = cv.LOO(OF_BERNOULLI)
SLOPES = np.cos(EPS @ [[1.0, 2, 0], [0, 1, 1], [-1, 0, 2]])


def source(framework):
    """The functions as one module's text."""
    return (notebooks.BOOK / f"downloads/variates_{framework}.py").read_text("utf-8")


class Framework:
    """What the checks need of one: arrays, calls, a model in it, and a gradient."""

    numpy = staticmethod(np.asarray)


class Jax(Framework):
    def __init__(self):
        self.jax = harness.jax()
        self.sigmoid, self.exp = self.jax.nn.log_sigmoid, self.jax.numpy.exp
        self.key = self.jax.random.key

    def call(self, f, args):
        """As a whole, which is compiled sooner than one operation after the other."""
        if f.__name__ in self.as_it_is:
            return f(*args)
        arrays = [k for k, a in enumerate(args) if isinstance(a, self.jax.Array)]
        put = lambda *x: f(*(x[arrays.index(k)] if k in arrays else a for k, a in enumerate(args)))
        return self.run(put)(*(args[k] for k in arrays))

    as_it_is = "fit", "fit_step", "rotated"  # compiled already, or with another function each time
    run = lambda self, f: self.jax.jit(f)
    compiled = lambda self, f: self.jax.jit(f, static_argnums=0)
    array = lambda self, x: self.jax.numpy.asarray(x)
    grad = lambda self, f, x: self.jax.jit(self.jax.grad(f))(self.array(x))
    whole = lambda self: self.jax.enable_x64(True)
    normals = lambda self, seed: np.asarray(self.jax.random.normal(self.key(seed), (3, 3)))
    rest = lambda self, joint, data, seed: (data, self.key(seed), joint, None)


class SmallJax(Jax):
    """Arguments in float32 where float64 is the usual: what is made of them must be so too.

    Functions are traced and neither compiled nor run: shapes and types alone are asked for.
    """

    as_it_is = ()
    array = lambda self, x: self.jax.numpy.asarray(x, "float32")
    run = lambda self, f: partial(self.jax.eval_shape, f)

    def numpy(self, x):
        if x.weak_type and not x.shape:
            return 0.0  # a number of Python, which takes the type of the array it meets
        assert x.dtype == "float32", x.dtype
        return np.zeros(x.shape)


class Torch(Framework):
    def __init__(self):
        self.torch = pytest.importorskip("torch")
        self.sigmoid, self.exp = self.torch.nn.functional.logsigmoid, self.torch.exp

    call = lambda self, f, args: f(*args)
    compiled = lambda self, f: f
    key = lambda self, seed: self.torch.Generator().manual_seed(seed)
    array = lambda self, x: self.torch.tensor(np.asarray(x))
    whole = lambda self: nullcontext()  # float64 comes with the arrays
    normals = lambda self, seed: RNG(seed).standard_normal((3, 3))

    def rest(self, joint, data, seed):
        slope = self.torch.func.grad(lambda z: joint(z, data))
        return self.torch.func.vmap(slope), self.array(self.normals(seed))

    def grad(self, f, x):
        x = self.array(x).requires_grad_()
        return self.torch.autograd.grad(f(x), x)[0]


class SmallTorch(Torch):
    """The same, and on a device of their own: "meta" knows shapes and types alone."""

    array = lambda self, x: self.torch.tensor(np.asarray(x, "float32"), device="meta")
    key = lambda self, seed: None  # there are no random numbers there

    def numpy(self, x):
        assert (x.dtype, x.device.type) == (self.torch.float32, "meta"), (x.dtype, x.device)
        return np.zeros(x.shape)

    @contextmanager
    def whole(self):
        usual = self.torch.get_default_dtype()
        self.torch.set_default_dtype(self.torch.float64)
        yield
        self.torch.set_default_dtype(usual)


class Recipes:
    """The functions of a text, called with arrays and answering with them."""

    def __init__(self, text, frame):
        self.names, self.frame = {}, frame
        exec(compile(text, "a download", "exec"), self.names)

    def __getattr__(self, name):
        def call(*args):
            args = [self.frame.array(a) if isinstance(a, np.ndarray) else a for a in args]
            return _numpy(self.frame.call(self.names[name], args), self.frame)

        return call


def _numpy(x, frame):
    if isinstance(x, tuple | list):
        return tuple(_numpy(part, frame) for part in x)
    return x if isinstance(x, float) else frame.numpy(x)


def log_p(frame):
    rows, labels = frame.array(X), frame.array(y)
    return lambda z: frame.sigmoid(labels * (rows @ z)).sum() - 0.5 * (z**2).sum()


# The checks take the functions, so that they can be run on copies with a bug. `Q.pack` refuses what
# is not lower triangular.


def check_stl(r):
    g = r.stl(log_p(r.frame), MU, L, EPS)
    assert_allclose(Q.pack(*g), WHOLE(DRAW).mean(0), **SAME)


def moving(frame, f, w):
    """f, with a slope in w that is to be held fixed."""
    return frame.array(f) * frame.exp((w - frame.array(MU)).sum())


def check_leave_one_out(r, name="leave_one_out", line=LOO, more=()):
    """For Bernoulli variables, their log density written out; each group of several for itself."""
    frame = r.frame
    f = np.array([(b * [1.0, -2.0, 0.5]).sum() ** 2 for b in FIXED])
    eps = np.concatenate([99 * (2 * FIXED - 1), 0.5 + 0 * FIXED], -1)
    draw = cv.draw(SQUARE, BERNOULLI, MU, eps=eps, subsample=False)
    signs = frame.array(2 * FIXED - 1)
    log_q = lambda w: frame.sigmoid(signs * w).sum(-1)
    loss = lambda w: r.names[name](moving(frame, f, w), log_q(w), *more)
    assert_allclose(_numpy(frame.grad(loss, MU), frame), line(draw).mean(0), **SAME)
    groups = np.abs(EPS), EPS, *[np.arange(3.0) for _ in more]
    alone = [getattr(r, name)(*map(np.asarray, one)) for one in zip(*(g.T for g in groups))]
    assert_allclose(getattr(r, name)(*groups), np.mean(alone), **SAME)


def check_shrunk(r):
    """A fixed baseline is an eighth of one answer's weight, or three tenths as three answers."""
    fixed = cv.SF(OF_BERNOULLI) - 0.3 * cv.SF(cv.one)
    check_leave_one_out(r, "shrunk", 7 / 8 * LOO + 1 / 8 * fixed, [0.3])
    f, w = EPS[:, 0] ** 2, EPS[:, 1]
    three = lambda w: r.names["shrunk"](r.frame.array(f), w, 0.3, 3)
    advantage = f - (f.sum() - f + 0.9) / 10
    assert_allclose(_numpy(r.frame.grad(three, w), r.frame), advantage / 8, **SAME)


def check_disarm(r):
    """Pairs of the package; the mean over two data points with logits of their own."""
    frame, w = r.frame, np.stack([MU, -2 * MU])  # (2, 3)
    draws = [cv.draw(SQUARE, BERNOULLI, w[k], 8, RNG(k), noise="pairs") for k in (0, 1)]
    b = np.stack([draw.z for draw in draws], 1)  # (8, 2, 3)
    f = lambda w: moving(frame, square(b, None), w[0])
    loss = lambda w: r.names["disarm"](f(w), frame.array(b), w)
    ours = [cv.DisARM(OF_BERNOULLI)(draw).mean(0) for draw in draws]
    assert_allclose(_numpy(frame.grad(loss, w), frame), np.array(ours) / 2, **SAME)


def check_price(r):
    g = r.price(log_p(r.frame), MU, L, EPS)
    assert_allclose(Q.pack(*g), (cv.PR(DATA) + cv.PR(PRIOR))(DRAW).mean(0), **SAME)


def check_quadratics(r, function="quadratics", ours=regression.regress):
    for given in (EPS, SLOPES, 0.3), (EPS, SLOPES, 2.0), (EPS[:3], SLOPES[:3], 0.1):
        for got, want in zip(getattr(r, function)(*given), ours(*given)):
            assert_allclose(got, want, **SAME)


def check_quadratics_diagonal(r):
    check_quadratics(r, "quadratics_diagonal", regression.diagonal(regression.regress))


def by_hand(frame, L):
    """e (M, 3) -> L^T grad log p + e, (M, 3)."""
    rows, labels, mu, factor = map(frame.array, (X, y, MU, L))

    def slopes(e):
        z = mu + e @ factor.T
        weak = labels / (1 + frame.exp(labels * (z @ rows.T)))  # the slope of log sigmoid(y eta)
        return (weak @ rows - z) @ factor + e

    return slopes


def check_rotated(r):
    """From the package's rows on the draw that the same generator makes, weights and all."""
    made = RNG(2)
    normals, length2 = made.standard_normal((3, 3)), np.array(made.chisquare(5))
    draw = cv.draw(MODEL, Q, DRAW.w, 7, RNG(2), noise="rotated", subsample=False)
    G = WHOLE(draw)[:, :3] @ L  # (7, 3), weighed
    A = G.T @ draw.eps / 7
    got = r.rotated(by_hand(r.frame, L), normals, length2)
    assert_allclose(got[0], G.mean(0), **SAME)
    assert_allclose(got[1], (A + A.T) / 2, **SAME)


def check_natural_step(r):
    """A step of the package, at a curvature like those on the way, and at absurd ones."""
    c, A = np.array([0.3, -1.0, 0.2]), np.array([[0.5, 0.2, -0.4], [0.2, -1, 0.1], [-0.4, 0.1, 0]])
    for rho, bent, slope in (0.5, A, c), (1.0, 30 * A, c), (1.0, A, 40 * c):
        mu, factor = r.natural_step(MU, L, slope, bent, rho)
        w, _ = newton(Q, DRAW.w, slope, bent, np.array(rho))
        assert_allclose(Q.pack(mu, factor), w, **SAME)


def logistic(frame, z, data):
    rows, labels, *offset = data
    return frame.sigmoid(labels * (rows @ z)).sum() - 0.5 * (z**2).sum()


def poisson(frame, z, data):
    rows, counts, offset = data
    eta = rows @ z + offset
    return (counts * eta - frame.exp(eta)).sum() - 0.5 * (z**2).sum()


def check_fit_step(r):
    """The package's step; s grows where Fisher's product is negative, rho is cut for a wide q."""
    frame, data = r.frame, tuple(map(r.frame.array, (X, y)))
    rest = frame.rest(partial(logistic, frame), data, 5)
    for s, share, wide in (1.0, 0.75, 1), (1.0, 0.25, 1), (2.0, 0.25, 9):
        c, A = r.rotated(by_hand(frame, wide * L), frame.normals(5), 5.0)
        size = (A**2).sum()  # share: of the slope's part in the product, the rest is against it
        last = frame.array(share * size * c), frame.array(-(c @ c) * A)
        mu, factor, grown, seen = r.fit_step(MU, wide * L, np.array(s), last, *rest)
        s = s + (share < 0.5)
        rho = 1 / max(s, np.mean(np.linalg.eigvalsh(A) ** 2) ** 0.5)
        w, _ = newton(Q, Q.pack(MU, wide * L), c, A, np.array(rho))
        assert_allclose(Q.pack(mu, factor), w, **SAME)
        assert_allclose(grown, s)
        assert_allclose(Q.pack(seen[0], np.tril(seen[1])), Q.pack(c, np.tril(A)), **SAME)


def check_fit(r):
    """At the exact optimum, slopes in blocks or at once; what goes wrong is said.

    First with steps that are made up, which need no compiling.
    """
    frame, step = r.frame, r.names["fit_step"]
    joint, data = partial(logistic, frame), tuple(map(frame.array, (X, y)))
    start = np.zeros(3), np.eye(3), frame.key(1)
    fit = lambda steps, block=None, data=data: r.fit(joint, data, *start, steps, block)
    given, sizes = [], [(2.0, 4.0)] * 3 + [(np.nan, 0.0)]

    def grown(mu, L, s, last, *rest):
        given.append((float(s), float(last[0][0])))
        c, A = sizes[len(given) - 1]
        return mu, L, s + 1, (frame.array(np.full(3, c)), frame.array(np.full((3, 3), A)))

    r.names["fit_step"] = grown
    with pytest.warns(UserWarning, match="not arrived: .* worth 10 nats"):
        fit(3)  # (3 2^2 / 2 + 9 4^2 / 4) / 4 is 10.5
    assert given == [(1, 0), (2, 2), (3, 2)]
    assert refused(lambda: fit(1), "no slope: NaN in data")
    r.names["fit_step"] = step
    for block in None, 3:
        with warnings.catch_warnings(action="error"):
            assert short(MODEL, Q.pack(*fit(40, block))) < 1e-3
    holed = data[0], frame.array(np.where(np.arange(12) == 5, np.nan, y))
    assert refused(lambda: fit(3, data=holed), "no slope: NaN in data")


def short(model, w):
    """Nats below the exact optimum."""
    q = cv.families.Gaussian(model.dim)
    return cv.exact.elbo(model, q, cv.exact.optimum(model, q)) - cv.exact.elbo(model, q, w)


def refused(call, words):
    try:
        call()
    except ValueError as error:
        return words in str(error)
    return False


def check_pairs(r):
    both = r.pairs(EPS)
    draw = cv.draw(MODEL, Q, DRAW.w, eps=EPS, noise="pairs", subsample=False)
    assert_allclose(both, draw.eps, atol=0)
    rows = combine.replicates(cv.RP1(DATA)(draw), 2)  # a pair's mean times the root of two
    want = rows.std(0, ddof=1) / np.sqrt(2 * len(rows))
    assert_allclose(r.pairs_error(cv.RP1(DATA)(draw)), want, **SAME)


def check_snapshot(r):
    """RP1 of the quadratic on the batch less CF of that on all data, one batch for all draws."""
    old, index, frame = MU + 0.3, np.array([3, 0, 7, 7]), r.frame
    f = lambda z, row: frame.sigmoid(row[1] * (row[0] @ z))
    all_data, batch = ((frame.array(X[i]), frame.array(y[i])) for i in (slice(None), index))
    kept = frame.compiled(r.names["slope_and_curvature"])(f, all_data, frame.array(old))
    got = r.snapshot(f, batch, 12, old, kept, MU, L, EPS)
    snap = cv.snapshot(MODEL, old)
    draw = cv.draw(MODEL, Q, DRAW.w, eps=EPS, index=index, batch=4, snapshot=snap)
    far = cv.taylor_z(DATA, at="snapshot")
    line = cv.RP1(far) - cv.CF(far.over_all_data())
    assert_allclose(Q.pack(*got), line(draw).mean(0), **SAME)


def check_weigh(r):
    draws = RNG(1)
    state, ours = (np.zeros((2, 2)), np.zeros(2), 0.0), combine.start(2)
    for _ in range(3):
        C = draws.standard_normal((2, 5, 4))
        h = C[0] - 0.5 * C[1] + draws.standard_normal((5, 4))
        a = combine.bayes_weights(ours, 0.1, 4)
        g, state = r.weigh(tuple(map(r.frame.array, state[:2])) + (state[2],), h, C, 0.1, 0.3)
        assert_allclose(g, combine.mean(h, C, a), **SAME)
        ours = combine.update(ours, h, C, 0.3)
    assert_allclose(state[0], ours.CC, **SAME)
    assert_allclose(state[2], ours.M)


CHECKS = {name[6:]: f for name, f in globals().copy().items() if name.startswith("check_")}

# (check, code, with a bug); two for each function
BUGS = [
    ("stl", "0.5 * (e**2).sum(0)", "0.0 * (e**2).sum(0)"),
    ("stl", "eps @ L.T", "eps @ L"),
    ("leave_one_out", "(f.shape[0] - 1)", "f.shape[0]"),
    ("leave_one_out", "f.sum(0) - f", "f.sum(0) + f"),
    ("disarm", "sigmoid(abs(w)) / 2", "sigmoid(abs(w))"),
    ("disarm", "sigmoid(abs(w))", "sigmoid(w)"),
    ("disarm", "b[:half] - b[half:]", "b[::2] - b[1::2]"),
    ("disarm", ".sum(-1).mean()", ".sum()"),
    ("price", "bend @ L)", "L @ bend)"),
    ("price", "(z).mean(0)\n    bend", "(mu + 0 * z).mean(0)\n    bend"),
    ("quadratics", "/ away", ""),
    ("quadratics", "(beta[1:] + beta[1:].T) / 2", "beta[1:]"),
    ("quadratics", "(X - W.T).T", "X.T"),
    ("quadratics", "[0.0] + [ridge] * d", "[ridge] * (d + 1)"),
    ("quadratics_diagonal", "v.sum(0) - v", "v.sum(0) - 0 * v"),
    ("quadratics_diagonal", "- e1**2 / n + ridge", "+ ridge"),
    ("rotated", "1 - d / square", "1 - 1 / square"),
    ("rotated", "slopes(-e)", "slopes(e)"),
    ("rotated", "(A + A.T) / 2", "A"),
    ("rotated", "/ (2 * square)\n    return", "/ 2\n    return"),
    ("natural_step", "I - rho * A", "I + rho * A"),
    ("natural_step", "(I + plain @ plain) / 2", "plain"),
    ("natural_step", "far / reach", "far / 1e9"),
    ("natural_step", "half = rho *", "half ="),
    ("leave_one_out", "log_q).mean()", "log_q).sum()"),
    ("shrunk", "(others + n * m)", "(others - n * m)"),
    ("shrunk", "- 1 + n)", ")"),
    ("shrunk", "rewards.sum(0) - rewards", "rewards.sum() - rewards"),
    ("fit_step", "@ L + e", "@ L"),
    ("fit_step", "mu + e @ L.T", "mu + e @ L"),
    ("fit_step", "/ 2 < 0", "/ 2 > 0"),
    ("fit_step", ".sum() / 2 < 0", ".sum() < 0"),
    ("fit_step", "maximum(n, off)", "maximum(n, 0 * off)"),
    ("fit_step", "(A**2).sum(0).mean()", "(A**2).mean()"),
    ("fit", "L, n, last = fit_step", "L, n, _ = fit_step"),
    ("fit", "isfinite(left)", "isfinite(n)"),
    ("fit", "left > 0.1", "left > 1e9"),
    ("fit", "mu, L, n, last = fit_step", "mu, L, _, last = fit_step"),
    ("leave_one_out", "f.sum(0) - f", "f.sum() - f"),
    ("pairs", "[eps, -eps]", "[eps, eps]"),
    ("pairs", "rows[:half] + rows[half:]", "rows[::2] + rows[1::2]"),
    ("snapshot", "N / B *", "N *"),
    ("snapshot", "H @ (mu - old)", "H @ mu"),
    ("snapshot", "(z - old)", "(z - mu)"),
    ("weigh", "+ n * CC,", "+ CC,"),
    ("weigh", "(1 - gamma) * (n + M)", "(n + M)"),
    ("weigh", "D * v0", "v0"),
]

# (check, code, with a bug, framework): what is not held fixed
BUGS += [
    ("leave_one_out", "lax.stop_gradient(f - others)", "(f - others)", "jax"),
    ("leave_one_out", "(f - others).detach()", "(f - others)", "torch"),
    ("shrunk", "lax.stop_gradient(advantage)", "advantage", "jax"),
    ("shrunk", "advantage.detach()", "advantage", "torch"),
    ("disarm", "lax.stop_gradient(slope)", "slope", "jax"),
    ("disarm", "slope.detach()", "slope", "torch"),
]
FRAMES = {"jax": Jax, "torch": Torch}
SMALL = {"jax": SmallJax, "torch": SmallTorch}

# the same of a type or a device that is not the arguments'
OWN = [
    ("quadratics", "jnp.ones_like(e[:, :1])", "jnp.ones((M, 1))", "jax"),
    ("quadratics", "* d, e.dtype", "* d", "jax"),
    ("weigh", ", dtype=h.dtype", "", "jax"),
    ("quadratics", "torch.ones_like(e[:, :1])", "torch.ones(M, 1, dtype=e.dtype)", "torch"),
    ("quadratics", "torch.ones_like(e[:, :1])", "torch.ones(M, 1, device=e.device)", "torch"),
    ("quadratics", "e.new_tensor(", "torch.tensor(", "torch"),
    ("natural_step", ", dtype=mu.dtype", "", "jax"),
    ("fit_step", "(d, d), mu.dtype", "(d, d)", "jax"),
    ("natural_step", ", dtype=mu.dtype, device", ", device", "torch"),
    ("natural_step", ", device=mu.device)\n    plain", ")\n    plain", "torch"),
    ("weigh", ", dtype=h.dtype", "", "torch"),
    ("weigh", ", device=h.device", "", "torch"),
]
said = lambda bug: " ".join([*bug[3:], bug[0], bug[2] or "none"])[:40]


@pytest.fixture(scope="module", params=FRAMES)
def framework(request):
    frame = FRAMES[request.param]()
    with frame.whole():
        yield source(request.param), frame


@pytest.mark.parametrize("name", CHECKS)
def test_the_same_numbers_as_the_package(framework, name):
    CHECKS[name](Recipes(*framework))


def test_every_function_stands_alone_is_checked_and_has_two_bugs(framework):
    assert not re.search(r"\b(cvlib|cv|np)\b", framework[0])
    functions = re.findall(r"^def (\w+)", framework[0], re.M)
    helpers = {"slope_and_curvature": "snapshot", "pairs_error": "pairs"}
    assert {helpers.get(f, f) for f in functions} == set(CHECKS)
    assert all([name for name, *_ in BUGS].count(check) >= 2 for check in CHECKS)


@pytest.mark.parametrize("bug", BUGS, ids=said)
def test_a_bug_is_seen(framework, bug):
    text, frame = framework
    name, old, new, *only = bug
    if only and not isinstance(frame, FRAMES[only[0]]):
        pytest.skip("it is a bug of the other framework")
    assert old in text
    with pytest.raises(harness.WRONG):
        CHECKS[name](Recipes(text.replace(old, new), frame))


# name, shapes of the arguments, words of the sentence
REFUSED = [
    ("leave_one_out", [(1, 4), (1, 4)], "are not (M, ...), M > 1"),
    ("leave_one_out", [(), ()], "are not (M, ...), M > 1"),
    ("leave_one_out", [(4,), (4, 4)], "are not (M, ...), M > 1"),
    ("shrunk", [(3, 2), (3, 2), (3,)], "are not (G, ...), (G, ...) and () or (...)"),
    ("shrunk", [(3, 2), (3,), ()], "are not (G, ...), (G, ...) and () or (...)"),
    ("disarm", [(3, 2), (3, 2, 5), (2, 5)], "(M, ..., d) and (..., d), M even"),
    ("disarm", [(4,), (4, 2, 5), (2, 5)], "(M, ..., d) and (..., d), M even"),
    ("disarm", [(0,), (0, 5), (5,)], "(M, ..., d) and (..., d), M even"),
    ("pairs_error", [(3, 2)], "3 rows are not two pairs"),
    ("fit", [None, None, (3,), (3,), None, None], "are not (d,) and (d, d)"),
]


@pytest.mark.parametrize("name, shapes, words", REFUSED)
def test_wrong_shapes_are_refused(framework, name, shapes, words):
    given = [None if shape is None else np.ones(shape) for shape in shapes]
    assert refused(lambda: getattr(Recipes(*framework), name)(*given), words)


def simulated(joint, N, columns, offset, seed):
    """X (N, d), a column of ones first, responses and offsets (N,), from z of N(0, 1 / 4)."""
    draw, columns = RNG(seed), np.array(columns)
    rows = draw.standard_normal((N, len(columns)))
    rows[:, 0] = 1
    offsets = offset * draw.standard_normal(N)
    eta = rows @ (0.5 * draw.standard_normal(len(columns))) + offsets
    if joint is poisson:
        return rows * columns, draw.poisson(np.exp(eta)).astype(float), offsets
    return rows * columns, np.where(draw.random(N) < 1 / (1 + np.exp(-eta)), 1.0, -1.0), offsets


FITS = {
    "poisson": (poisson, 1000, [1] * 10, 0),
    "logistic": (logistic, 5000, [1] * 10, 0),
    "offsets, columns of other scales": (poisson, 400, [1, 0.1, 3, 0.3, 1], 1),
    "columns of bad scales": (logistic, 1000, [1, 10, 0.1, 30, 0.01, 3], 0),
}


# where rounding errors are largest: many rows, bad scales
ROUNDED = [(case, "float32") for case in ("logistic", "columns of bad scales")]


@pytest.mark.parametrize("case, type", [*((case, "float64") for case in FITS), *ROUNDED])
def test_fit_arrives_from_a_standard_normal(framework, case, type):
    """Within a hundredth of a nat of the exact optimum, and silently."""
    text, frame = framework
    fit, (joint, N, columns, offset) = Recipes(text, frame).names["fit"], FITS[case]
    of = {poisson: cv.models.poisson_regression, logistic: cv.models.logistic_regression}[joint]
    data, d = simulated(joint, N, columns, offset, 0), len(columns)
    there = [frame.array(x.astype(type)) for x in (*data, np.zeros(d), np.eye(d))]
    with warnings.catch_warnings(action="error"):
        mu, factor = fit(partial(joint, frame), tuple(there[:3]), *there[3:], frame.key(0), 40)
    assert type in str(mu.dtype) and type in str(factor.dtype)
    model = of(*data[:2], offset=data[2]) if offset else of(*data[:2])
    found = cv.families.Gaussian(d).pack(*(np.asarray(x, float) for x in (mu, factor)))
    assert -1e-6 < short(model, found) < 0.01


def test_fit_compiles_once(framework):
    """JAX calls the log joint when it compiles alone: not in a second run."""
    text, frame = framework
    if not isinstance(frame, Jax):
        pytest.skip("PyTorch compiles nothing here")
    r, calls, data = Recipes(text, frame), [], tuple(map(frame.array, (X, y)))
    joint = lambda z, data: calls.append(1) or logistic(frame, z, data)
    fit = lambda seed: r.fit(joint, data, np.zeros(3), np.eye(3), frame.key(seed), 10 + seed)
    fit(1)
    assert len(calls) == 3  # for the points, their opposites and the centre
    fit(2)
    assert len(calls) == 3


def test_what_the_chapter_shows_is_what_readers_download():
    """Line by line: the chapter's functions are some of the file's, and the file is linked."""
    page, text = (notebooks.BOOK / "frameworks.md").read_text("utf-8"), source("jax")
    cells = notebooks.read_text(notebooks.BOOK / "frameworks.md").cells
    shown = [c.source for c in cells if "recipe" in c.metadata.get("tags", [])]
    assert len(shown) >= 4 and all(cell.strip() in text for cell in shown)
    assert all(f"<downloads/variates_{name}.py>" in page for name in FRAMES)


def shown_in_torch():
    """`stl_elbo` of the chapter, in PyTorch."""
    page = (notebooks.BOOK / "frameworks.md").read_text("utf-8")
    (block,) = re.findall(r"```python\n(from torch.*?)```", page, re.S)
    exec(block, names := {})
    return names["stl_elbo"]


def test_stl_of_an_autoencoder_in_torch():
    """The slope of log p - log q at each draw, pulled back by hand: the score is not in it."""
    torch = pytest.importorskip("torch")
    draw = RNG(3)
    x, eps = 1.0 * (draw.random((4, 5)) < 0.5), draw.standard_normal((2, 4, 3))
    V, w = draw.standard_normal((3, 5)), 0.5 * draw.standard_normal((4, 6))
    free, decoder = map(torch.tensor, (w, V))
    value = shown_in_torch()(
        lambda x: free.requires_grad_(), lambda z: z @ decoder, *map(torch.tensor, (x, eps))
    )
    value.backward()
    mu, s = w[:, :3], np.exp(w[:, 3:])
    z = mu + s * eps
    u = (x - 1 / (1 + np.exp(-z @ V))) @ V.T - z + eps / s
    want = np.concatenate([u.mean(0), (u * s * eps).mean(0)], -1) / len(x)
    assert_allclose(free.grad.numpy(), want, **SAME)
    log_lik = np.where(x, z @ V, 0).sum(-1) - np.logaddexp(0, z @ V).sum(-1)
    log_ratio = (-0.5 * z**2 + 0.5 * eps**2 + np.log(s)).sum(-1)
    assert_allclose(value.item(), (log_lik + log_ratio).mean(), **SAME)


def follows(framework, name, monkeypatch, change=("", "")):
    """The check's calls, of shapes and types alone: its numbers are not compared."""
    frame = SMALL[framework]()
    monkeypatch.setattr(sys.modules[__name__], "assert_allclose", lambda *args, **kwargs: None)
    with frame.whole():
        CHECKS[name](Recipes(source(framework).replace(*change), frame))


@pytest.mark.parametrize("name", [name for name in CHECKS if name != "fit"])  # numbers of its own
@pytest.mark.parametrize("framework", SMALL)
def test_type_and_device_are_those_of_the_arguments(framework, name, monkeypatch):
    follows(framework, name, monkeypatch)


@pytest.mark.parametrize("bug", OWN, ids=said)
def test_another_type_or_device_is_seen(bug, monkeypatch):
    name, old, new, framework = bug
    assert old in source(framework)
    with pytest.raises((AssertionError, RuntimeError), match="float64|device|cpu"):
        follows(framework, name, monkeypatch, (old, new))
