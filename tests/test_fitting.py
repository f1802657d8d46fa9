"""What a model of one's own needs, and `fit`: against scipy, closed forms, autograd another way."""

from functools import partial
from unittest import mock

import autograd.numpy as anp
import numpy as np
from autograd import elementwise_grad, grad, jacobian
from harness import part
from numpy.testing import assert_allclose
from scipy import optimize, stats

U = np.array([[0.3, -1.2, 0.8], [-0.5, 0.1, 2.0], [4.0, -3.0, 0.0]])


def density(cv, *given):
    return part(cv, "models.density").Density(*given)


def of_prior(cv, log_prior, d=1):
    """A model whose one row says nothing."""
    return cv.models.Model(lambda z, b: 0 * z[..., 0] + 0 * b[0], log_prior, np.zeros(1), d)


def of_lik(cv, log_lik, d=1):
    """A model of one row and a flat prior."""
    lik = lambda z, b: log_lik(z) + 0 * b[0]
    return cv.models.Model(lik, lambda z: 0 * z[..., 0], np.zeros(1), d)


def watched(module, name):
    """A function of a module does what it did, and its calls are seen."""
    return mock.patch.object(module, name, mock.Mock(wraps=getattr(module, name)))


def test_stretching(cv):
    """Log-Jacobians are those of autograd's matrices; values: test_parameters.py."""
    each = {"positive": cv.positive(3), "interval": cv.interval(-2.0, 5.0)(3),
            "ordered": cv.ordered(3), "simplex": cv.simplex(4), "real": cv.real(3)}  # fmt: skip
    for name, constraint in each.items():
        space = part(cv, "parameters").Parameters({"x": constraint})
        p, stretch = space.mapped(U)
        free = lambda u: space.named(u).x[:3]  # the last share follows from the others
        right = [np.linalg.slogdet(jacobian(free)(u))[1] for u in U]
        assert_allclose(stretch, right, rtol=1e-9, atol=1e-12, err_msg=name)
        assert p.x.shape == (3, *constraint.shape) and space.dim == 3
    middle = part(cv, "parameters").Parameters(each).named(np.zeros(15))
    assert_allclose(middle.interval, 1.5)
    assert_allclose(middle.simplex, 0.25)


def test_pick(cv):
    """Values by loops; slopes and curvatures by autograd through one-hot columns."""
    pick, rng = cv.pick, np.random.default_rng(0)
    z, j = rng.standard_normal((4, 3)), np.array([2, 0, 2, 2, 1])
    assert_allclose(pick(z[:, None], j), [[row[k] for k in j] for row in z])
    assert_allclose(pick(z, j[:4]), [z[k, j[k]] for k in range(4)])
    assert_allclose(pick(z[0], 1), z[0, 1])
    onehot = np.eye(3)[j]
    for f in (lambda p: anp.sum(anp.sin(p) * np.arange(1, 6), -1), lambda p: anp.sum(p**3, -1)):
        ours = lambda z: f(pick(z[..., None, :], j))
        other = lambda z: f(anp.sum(z[..., None, :] * onehot, -1))
        assert_allclose(elementwise_grad(ours)(z), elementwise_grad(other)(z))
        v = rng.standard_normal(z.shape)
        along = lambda g: grad(lambda z: anp.sum(elementwise_grad(g)(z) * v))(z)
        assert_allclose(along(ours), along(other))


# Starts ------------------------------------------------------------------------------------------


def gaussian_case(cv):
    """Linear regression as a model of one's own, badly scaled, and its posterior by hand."""
    rng = np.random.default_rng(3)
    X = np.column_stack([np.ones(40), 100 + rng.standard_normal(40), rng.standard_normal(40)])
    y = X @ [1.0, 0.5, -2.0] + rng.standard_normal(40)
    prior = np.array([10.0, 1.0, 5.0])
    lik = lambda z, b: -0.5 * (b[1] - anp.sum(b[0] * z, -1)) ** 2 - 0.5 * np.log(2 * np.pi)
    model = cv.models.Model(lik, cv.models.GaussianPrior(prior), (X, y), 3)
    precision = X.T @ X + np.diag(prior**-2)
    cov = np.linalg.inv(precision)
    evidence = stats.multivariate_normal.logpdf(y, None, np.eye(40) + X @ np.diag(prior**2) @ X.T)
    return model, cov @ X.T @ y, cov, evidence


def test_slopes(cv):
    """log p and its slope in parts, and of rows that stand for all: autograd of the whole sum."""
    model, mean, cov, _ = gaussian_case(cv)
    whole = lambda z: anp.sum(model.log_lik(z, model.data)) + model.log_prior(z)
    z = mean + np.random.default_rng(0).standard_normal((4, 3)) * np.sqrt(np.diag(cov))
    with mock.patch.object(part(cv, "passes"), "CHUNK", 100):  # several parts
        value, slope = density(cv, model).slope(z)
    assert_allclose(value, [whole(one) for one in z], rtol=1e-10)
    assert_allclose(slope, [grad(whole)(one) for one in z], rtol=1e-8)
    assert_allclose(density(cv, model).value(z), value, rtol=1e-12)
    rows = np.array([3, 8, 21])
    some = lambda z: 40 / 3 * anp.sum(model.log_lik(z, model.take(rows))) + model.log_prior(z)
    value, slope = density(cv, model, rows).slope(z[:1])
    assert_allclose([value[0], *slope[0]], [some(z[0]), *grad(some)(z[0])], rtol=1e-8)


def test_a_singular_point(cv):
    """One point where a matrix is singular is not a number; the others are what they are alone.

    To find one of a thousand takes twenty passes or so, and each point is a gradient once.
    """
    asked = []

    def lik(z):
        asked.append(len(z))
        if np.any(np.asarray(getattr(z, "_value", z)) > 5):
            raise np.linalg.LinAlgError
        return -0.5 * z[..., 0] ** 2

    at, z = density(cv, of_lik(cv, lik)), np.linspace(-1, 2, 1000)[:, None]
    z[700] = 9.0
    asked.clear()
    value, slope = at.slope(z)
    right = np.where(z > 5, np.nan, z)
    assert_allclose(value, -0.5 * right[:, 0] ** 2)
    assert_allclose(slope, -right)
    assert len(asked) < 25 and at.gradients == 1000


def test_the_mode(cv):
    """Of a Gaussian posterior: mean and covariance; of a logistic one: a zero slope."""
    starts = part(cv, "starts")
    model, mean, cov, _ = gaussian_case(cv)
    sd = np.sqrt(np.diag(cov))
    begin = starts.laplace(model)
    assert not begin.trouble and np.abs((begin.mu - mean) / sd).max() < 0.01
    assert_allclose(begin.S @ begin.S.T @ np.linalg.inv(cov), np.eye(3), atol=1e-5)
    glm = cv.models.logistic_regression(*cv.datasets.toy())
    begin = starts.laplace(glm)
    s = 1 / (1 + np.exp(glm.y * (glm.X @ begin.mu)))
    assert np.abs((glm.y * s) @ glm.X - begin.mu).max() < 1e-2
    P = (glm.X.T * (s * (1 - s))) @ glm.X + np.eye(2)
    assert_allclose(begin.S @ begin.S.T @ P, np.eye(2), atol=1e-6)
    assert not np.triu(begin.S, 1).any()


def test_the_search(cv):
    """On scipy's Rosenbrock function, a kink and a wall; its curvature is that of dense BFGS."""
    climbs, rng = part(cv, "strategies"), np.random.default_rng(0)
    climb = climbs.climb
    rosen = lambda z: (-optimize.rosen(z), -optimize.rosen_der(z))
    top, _ = climb(rosen, np.array([-1.2, 1.0, 0.5, -0.7]), 1e-12, known=climbs.Curvature(50))
    assert_allclose(top.z, np.ones(4), atol=1e-5)
    assert top.value == -optimize.rosen(top.z)
    A = rng.standard_normal((6, 6))
    A = A @ A.T + np.eye(6)
    seen, H = climbs.Curvature(9), np.eye(6)
    steps = rng.standard_normal((5, 6))
    for step in steps:
        seen = seen.see(*(climbs.Point(z, 0.0, -A @ z) for z in (np.zeros(6), step)))
    last = A @ steps[-1]
    H = H * (steps[-1] @ last) / (last @ last)
    for s, y in zip(steps, steps @ A):  # the textbook's matrix
        V = np.eye(6) - np.outer(y, s) / (s @ y)
        H = V.T @ H @ V + np.outer(s, s) / (s @ y)
    assert_allclose(seen.times(np.eye(6)), H, atol=1e-10)
    assert_allclose(seen.diagonal(6), np.diag(H), atol=1e-10)
    assert_allclose(climbs.Curvature(9).diagonal(6), np.ones(6))
    assert_allclose(seen.times(last), steps[-1])
    up = seen.see(*(climbs.Point(z, 0.0, A @ z) for z in (np.zeros(6), steps[0])))
    assert len(up.seen) == 5
    few = climb(rosen, np.zeros(4), 1e-12, steps=3, known=climbs.Curvature(2))[1]
    assert len(few.seen) == 2
    bowl = lambda z: (-z @ A @ z / 2, -A @ z)
    knows = climb(bowl, steps[0], 1e-20)[1]
    known, fresh = (climb(bowl, np.ones(6), 1e-12, 1, x)[0].z for x in (knows, None))
    assert np.abs(known).max() < 0.1 < np.abs(fresh).max()  # one step from the top
    kink = lambda z: (-np.abs(z[0]) - 3 * np.abs(z[1] - 1), -np.sign(z - [0, 1]) * [1, 3])
    assert climb(kink, np.array([2.3, -1.7]), 1e-9)[0].value > -1e-3
    wall = lambda z: (np.log(z[0]) - z[0], 1 / z - 1) if z[0] > 0 else (-np.inf, z)
    assert abs(climb(wall, np.array([0.01]), 1e-12)[0].z[0] - 1) < 1e-4
    calls = []
    with part(cv, "deadline").deadline.until(lambda: calls.append(1) or len(calls) > 4):
        assert climb(rosen, np.zeros(4), 1e-12)
    assert len(calls) == 5
    beyond = lambda z: wall(z) if z[0] > 0 else (-np.inf, 0 * z + 1)
    assert climb(beyond, -np.ones(1), 1e-3)[0].z == -1  # no number where it begins


def test_fixed_draws(cv):
    """On a Gaussian posterior their top is the posterior, elsewhere that of scipy's search there;
    many even draws, which a bend takes, have the moments of the normal."""
    climbs, rng = part(cv, "strategies"), np.random.default_rng(0)
    e = part(cv, "bends").evened(rng.standard_normal((9, 4)))
    assert_allclose([e.mean(0), *(e.T @ e / 18 - np.eye(4))], np.zeros((5, 4)), atol=1e-12)
    model, mean, cov, _ = gaussian_case(cv)
    full, narrow = cv.families.Gaussian(3), cv.families.DiagonalGaussian(3)
    begin = full.pack(mean + 1, 2 * np.linalg.cholesky(cov)), narrow.pack(mean + 1, np.ones(3))
    glm = cv.models.logistic_regression(*cv.datasets.toy())
    top = partial(climbs.top, enough=1e-12)
    both = [top(model, q, w, rng) for q, w in zip((full, narrow), begin)]
    for q in cv.families.Gaussian(2), cv.families.DiagonalGaussian(2):
        found = top(glm, q, q.start(), np.random.default_rng(3))
        assert_allclose(found, top_by_scipy(glm, q, np.random.default_rng(3)), atol=1e-4)
    L = full.unpack(both[0])[1]
    assert_allclose([full.mean(both[0]), narrow.mean(both[1])], [mean, mean], rtol=1e-4)
    assert_allclose(L @ L.T, cov, rtol=1e-3, atol=1e-4)
    assert_allclose(narrow.sd(both[1]), np.diag(np.linalg.inv(cov)) ** -0.5, rtol=1e-4)


def top_by_scipy(glm, q, rng):
    """The best w on one rotation of five points in two dimensions, whose radius is sqrt(d + 2)."""
    Q = np.linalg.qr(rng.standard_normal((2, 2)))[0].T
    e = np.concatenate([2 * Q, -2 * Q, np.zeros((1, 2))])  # of weights 1 / 8; the centre 1 / 2

    def minus(w):
        mu, L = q.unpack(w)
        L = L if q.full else np.diag(L)
        height = np.array([1, 1, 1, 1, 4]) / 8 @ glm.log_joint(mu + e @ L.T)
        return -height - np.log(np.abs(np.diag(L))).sum()

    least = np.full(q.D, -np.inf)
    least[q.diag] = 1e-3
    how = {"bounds": optimize.Bounds(least), "options": {"ftol": 1e-14, "gtol": 1e-9}}
    return optimize.minimize(minus, q.start(), method="L-BFGS-B", **how).x


def test_climbs_of_a_diagonal_q(cv):
    """Coordinates that lean on each other, on which natural steps of a diagonal q overshoot: the
    best q in closed form; each climb has twice the draws, those without a number are left out."""
    d = 30
    P, q = 0.01 * np.eye(d) + 1.0, cv.families.DiagonalGaussian(d)  # eigenvalues 30.01 and 0.01
    quadratic = lambda z: -0.5 * anp.sum((z - 1) * anp.dot(z - 1, P), -1)
    cut = lambda z: anp.where(z[..., 0] > 5.9, np.nan, quadratic(z))
    for prior, near in (quadratic, 0.02), (cut, 0.1):
        model = of_prior(cv, prior, d)
        fit = cv.fit(model, q, start=(np.full(d, 0.3), np.full(d, 0.3)), progress=False)
        assert_allclose(fit.sd, np.diag(P) ** -0.5, rtol=near)
        assert np.abs((fit.mean - 1) / fit.sd).max() < 5 * near and fit.settled and fit.steps <= 4
    climbs, rng = part(cv, "strategies"), np.random.default_rng(0)
    near = of_prior(cv, lambda z: anp.where(z[..., 0] > 2, np.nan, quadratic(z)), d)
    start = q.pack(np.full(d, 0.3), np.full(d, 0.9))  # of its draws some lie there
    assert np.abs(climbs.top(near, q, start, rng) - start).max() > 0.1
    plan = climbs.Fixed(model, q, turns=3)
    assert plan.M == 181
    moved = lambda model, q, w, rng, turns, enough: w + turns
    with mock.patch.object(climbs, "top", moved):
        state = plan.first(np.random.default_rng(0), w=q.start())
        ends = [(state := plan.step(state)).w[0] for _ in range(3)]
    assert_allclose(np.diff(ends, prepend=0), [3, 6, 12])


def test_a_valley(cv):
    """Growth curves with a funnel: natural steps creep, a search on fixed draws does not."""
    rng = np.random.default_rng(2)
    group, x = np.repeat(np.arange(6), 5), np.tile(np.linspace(0, 1, 5), 6)
    y = 2 * np.exp(0.3 * rng.standard_normal(6))[group] * x + 0.1 * rng.standard_normal(30)

    def lik(z, b):
        slope = z[..., 0] + anp.exp(z[..., 1]) * cv.pick(z[..., 2:], b[2])
        return -50 * (b[0] - slope * b[1]) ** 2

    prior = lambda z: -anp.sum(z[..., :1] ** 2, -1) / 50 - anp.sum(z[..., 1:] ** 2, -1) / 2
    model = cv.models.Model(lik, prior, (y, x, group), 8)
    fit = lambda steps, **more: cv.fit(model, steps=steps, bend=False, progress=False, **more)
    with watched(part(cv, "strategies"), "top") as top:
        without = fit(20, settings=cv.Settings(fixed=7))  # eight unknowns count as many
        assert top.call_count == 0
        assert fit(20).elbo > without.elbo + 0.1 and top.call_count == 1


def test_the_best_start(cv):
    """By its ELBO on common draws, in closed form for a Gaussian posterior; also the one given."""
    starts = part(cv, "starts")
    model, mean, cov, evidence = gaussian_case(cv)
    L = np.linalg.cholesky(cov)
    begin = starts.start(model)
    assert_allclose(begin.S @ begin.S.T, cov, rtol=2e-3, atol=1e-3)
    found = [starts.Start(mean, k * L, str(k)) for k in (0.2, 1.5, 0.9, 3.0)]
    found.append(starts.Start(mean + 2 * L[:, 0], L, "off"))
    best = starts._best(density(cv, model), found, np.random.default_rng(0))
    assert best.says == "0.9"  # KL 3 (k^2 - 1 - log k^2) / 2: 3.4, .66, .031, 8.7, and 2
    fit = cv.fit(model, steps=1, start=(mean, cov), progress=False)
    assert abs(fit.looks[-1, 1] - evidence) < 0.01
    given = starts.Start(mean, L, "given")
    with mock.patch.object(starts, "_about_mode", lambda *_: []):
        begin = starts.start(model, given=given)
        assert begin.says == "given"
        assert_allclose(begin.S, L)
        assert_allclose(starts.start(model, given=given._replace(S=None)).mu, mean)


def test_a_diagonal_start(cv):
    """Widths from pairs of slopes are those of the precision's diagonal, where it is diagonal."""
    sd = np.random.default_rng(0).uniform(0.1, 3, 8)
    model = of_prior(cv, cv.models.GaussianPrior(sd), 8)
    seen = part(cv, "starts")._widths(density(cv, model), np.zeros(8), pairs=4000)
    assert_allclose(seen, sd, rtol=0.1)


def test_no_mode(cv):
    """A density that rises for ever, one that is flat, a saddle, and a good one."""
    starts, normal = part(cv, "starts"), lambda z, sd: -0.5 * anp.sum((z / sd) ** 2, -1)
    said = lambda prior: starts.start(of_prior(cv, prior, 2)).trouble
    one = lambda z: normal(z[..., :1], 1.0)
    assert "rises along z[1]" in said(lambda z: one(z) + z[..., 1])
    for sign in (1, -1):  # falls on one side only
        assert "along z[1]" in said(lambda z: one(z) - anp.exp(sign * z[..., 1]))
    assert "stays flat along z[1]" in said(one)
    saddle = lambda z: z[..., 0] ** 2 - z[..., 0] ** 4 / 8 - 2 * z[..., 1] ** 2
    assert said(saddle) == said(lambda z: normal(z, 2.0)) == ""
    mode = starts.searched(density(cv, of_prior(cv, saddle, 2)), np.zeros(2))  # has no slope
    assert not mode.trouble and abs(abs(mode.z[0]) - 2) < 1e-3 and abs(mode.z[1]) < 1e-3


def test_restarts(cv):
    """Two peaks, the higher one far from zero: another start finds it, and the better is taken.

    At least three searches more; of many unknowns as many as a tenth of the gradients allow.
    """
    peak = lambda z, at, up: up - 0.5 * anp.sum((z - at) ** 2, -1) / 0.04
    prior = lambda z: anp.logaddexp(peak(z, -0.2, 0.0), peak(z, 1.0, 5.0))
    model, starts = of_prior(cv, prior), part(cv, "starts")
    assert abs(starts.start(model, restarts=0).mu[0] + 0.2) < 0.3
    assert abs(starts.start(model).mu[0] - 1) < 0.1
    at_one = of_prior(cv, lambda z: -anp.sum((z - 1) ** 2, -1), 21)
    lame = of_prior(cv, lambda z: prior(z[..., :1]) - anp.sum(z**2, -1), 21)
    for one, restarts, ahead, searches in (
        (model, None, 0, 4), (model, 0, 0, 1), (at_one, None, 0, 1), (at_one, None, 300, 2),
        (at_one, None, 1e9, 9), (at_one, 2, 0, 3), (lame, None, 0, 2), (lame, 0, 1e9, 1),
    ):  # fmt: skip
        with watched(starts, "searched") as search:
            starts.start(one, restarts=restarts, ahead=ahead)
        assert search.call_count == searches
    fit = cv.fit(model, start="random", restarts=8, steps=20, progress=False)
    assert abs(fit.mean[0] - 1) < 0.1


def test_searches_from_other_points_cost_a_tenth(cv):
    """Gradients of a search that is cut off count as well, and its end is no mode."""
    starts = part(cv, "starts")
    z, twist = np.ones(30), lambda z: -100 * anp.sum((z[..., 1:] - z[..., :-1] ** 2) ** 2, -1)
    model = of_prior(cv, lambda z: twist(z) - anp.sum((z - 1) ** 2, -1), 30)
    few = density(cv, model)
    modes = [starts.Mode(z, 0.0, None, np.zeros(30))]
    few.slope(np.zeros((100, 30)))
    assert few.gradients == 100 and few.value(z[None]) == 0 and few.gradients == 100.5
    starts._search_on(few, modes, np.random.default_rng(0), lambda: False, None, 900.0)
    assert few.gradients == 100.5 and len(modes) == 1  # one search more may take another hundred
    few.gradients = 10.0
    starts._search_on(few, modes, np.random.default_rng(0), lambda: False, None, 990.0)
    assert few.gradients < 10 + 100 + 20 and len(modes) < 4  # it ends between two steps
    assert all(abs(mode.value) < 1e-3 or mode.value < -1 for mode in modes)


def test_a_scale_that_collapsed(cv):
    """Effects N(0, tau) centred, whose tau may be anything: log p rises for ever as tau falls.

    The same non-centred, tiny data, an overflow and a funnel of one effect have no such spike.
    """
    starts, rng = part(cv, "starts"), np.random.default_rng(0)
    tiny, group = 1e-7 * rng.standard_normal(40), np.repeat(np.arange(10), 4)
    y = 0.1 * rng.standard_normal(10)[group] + rng.standard_normal(40)
    gauss = lambda x, sd: -0.5 * (x / sd) ** 2 - anp.log(sd)

    def hierarchy(centred, power=1.0):
        def log_prior(p):
            tau = anp.exp(power * p.t)[..., None]
            each = gauss(p.u, tau if centred else 1.0)
            return anp.sum(each, -1) - 0.5 * (p.m / 5) ** 2 - 0.5 * (power * p.t / 30) ** 2

        def lik(p, b):
            u = cv.pick(p.u, b[1])
            return gauss(b[0] - p.m - (u if centred else anp.exp(power * p.t) * u), 1.0)

        names = {"m": (), "t": (), "u": 10}
        return cv.models.Model(lik, log_prior, (y, group), parameters=names)

    with watched(starts, "collapsed") as seen:
        found = starts.start(hierarchy(True))
    wrong, right = found.spike.split("\n")
    assert wrong.startswith("t collapsed to nothing") and "spike of a centred" in wrong
    assert "non-centred, u = t * e" in right and "groups=" in right and not found.trouble
    for power in (0.5, -0.5):  # the logarithm of a variance, a precision, as far out
        z = seen.call_args.args[1] / np.array([1, power] + 10 * [1])
        assert starts.collapsed(density(cv, hierarchy(True, power)), z) == found.spike
    small = cv.models.Model(
        lambda p, b: gauss(b[0] - p.m, p.s), lambda p: -p.s - p.m**2, tiny,
        parameters={"m": (), "s": cv.positive},
    )  # fmt: skip
    found = starts.start(hierarchy(False)), starts.start(small)
    assert all(one.spike == one.trouble == "" for one in found)
    assert found[1].mu[1] < -15
    fit = cv.fit(hierarchy(True), start={"t": -20.0}, steps=20, bend=False, progress=False)
    assert "non-centred" in fit.warnings[0] and "ran into a spike" in fit.words[0]


def test_a_network_of_zeros(cv):
    """All weights zero are a mode of three layers, and no place to begin: another one is found."""
    x = np.linspace(-2, 2, 30)
    net = lambda z, x: 2 * z[..., 0] * anp.tanh(2 * z[..., 1] * anp.tanh(2 * z[..., 2] * x))
    lik = lambda z, b: -0.5 * (b[0] - net(z, b[1])) ** 2 / 0.01
    prior = lambda z: -0.5 * anp.sum(z**2, -1)
    model = cv.models.Model(lik, prior, (net(np.ones(3), x), x), 3)
    zero = np.zeros(3)
    P = -jacobian(grad(model.log_joint))(zero)
    assert np.linalg.eigvalsh(P).min() > 0.9  # a mode
    begin = part(cv, "starts").start(model)
    assert model.log_joint(begin.mu) > model.log_joint(zero) + 100
    assert cv.fit(model, steps=20, progress=False).elbo > model.log_joint(zero) + 100


def test_a_curvature_that_is_too_steep(cv):
    """Half a hundredth of a nat below the mode, a tenth off, is not flat: far out it falls."""
    starts, zero = part(cv, "starts"), np.zeros(2)
    model = of_prior(cv, cv.models.GaussianPrior(), 2)
    e = np.eye(2)
    seen = tuple((1e-2 * x, 1e2 * x, 1.0) for x in e)  # a step, the turn along it, their product
    narrow = starts.Curvature(9, seen)
    assert_allclose(narrow.times(e), 1e-4 * e)
    steep = starts.Mode(zero, model.log_prior(zero), narrow, zero)
    with mock.patch.object(starts, "climbed", return_value=steep):
        assert not starts.searched(density(cv, model), zero).trouble


def test_a_start_on_the_way(cv):
    """A diagonal q may begin d nats below the mode: a search ends as soon as it is there."""
    d, starts = 40, part(cv, "starts")
    scale = np.geomspace(1, 100, d)
    prior = lambda z: -0.5 * anp.sum(scale * (z - 1) ** 2, -1)
    model = of_prior(cv, prior, d)
    with watched(starts, "_best") as best:
        starts.start(model, False)
    offered = {start.says: start.mu for start in best.call_args[0][1]}
    way = "a point on the way to the mode and its curvature in pairs"
    assert -d <= prior(offered[way]) < -0.01
    assert prior(offered["the mode and its curvature in pairs"]) > -1e-3
    low = {start.handicap for start in best.call_args[0][1] if "z = 0" in start.says}
    assert low == {2 * d}  # far more than d nats below
    first = starts.Start(np.ones(d), scale**-0.5, "a")
    wide = first._replace(S=1.2 * first.S, says="b")  # worse by 40 (.44 / 2 - log 1.2) = 1.5 nats
    for handicap, right in ((1.0, "a"), (2.0, "b")):
        pair = [first._replace(handicap=handicap), wide]
        assert starts._best(density(cv, model), pair, np.random.default_rng(0)).says == right
    with watched(starts, "_best") as best:
        starts.start(model, False, starts.Start(np.zeros(d), np.ones(d), "given"))
    assert ("given", 0.0) in [(start.says, start.handicap) for start in best.call_args[0][1]]


# Fits --------------------------------------------------------------------------------------------


def test_a_gaussian_posterior(cv):
    """Found to the last digits, with the evidence as its ELBO."""
    model, mean, cov, evidence = gaussian_case(cv)
    fit = cv.fit(model, steps=100, progress=False)
    assert fit.settled and not fit.warnings, fit.warnings
    sd = np.sqrt(np.diag(cov))
    assert np.abs((fit.mean - mean) / sd).max() < 1e-3
    assert_allclose(fit.sd, sd, rtol=1e-3)
    assert_allclose(fit.cov, cov, rtol=1e-2)
    assert abs(fit.elbo - evidence) < 1e-3
    assert part(cv, "fitting.looks").weighed(model, fit.q, fit.w, 0).effective > 0.99  # q is p
    r = np.arange(0.005, 20, 0.01)  # radii; half of the lot is Student's t, so weights differ
    at = r[:, None] * [1, 0, 0]
    law = 0.5 + 0.5 * stats.multivariate_t(np.zeros(3), np.eye(3), 5).pdf(at) / (
        stats.multivariate_normal(np.zeros(3)).pdf(at)
    )  # of the points, over p
    square = (stats.chi(3).pdf(r) / law).sum() * 0.01
    assert_allclose(fit.effective, 1 / square, rtol=0.01)
    draws = fit.sample(4000, 0)
    assert_allclose(draws.std(0), sd, rtol=0.1)
    assert_allclose(draws, fit.sample(4000, 0))  # or a seed
    assert_allclose(fit.looks[:, 0], [10, 20])
    assert any("a quadratic explains 100% of the slope" in words for words in fit.words)
    many = cv.Settings(full=2)  # three unknowns count as many, for which that takes too long
    large = cv.fit(model, cv.families.Gaussian(3), settings=many, progress=False)
    assert not any("a quadratic explains" in words for words in large.words)


def plan_of(cv, model, q, M):
    settings = cv.Settings()
    return part(cv, "strategies").chosen(model, q, M, settings).plan(model, q, M, settings)


def test_from_far_away(cv):
    """Without the mode, from N(0, I) and a few draws: the same posterior."""
    model, mean, cov, evidence = gaussian_case(cv)
    q = cv.families.Gaussian(3)
    for scored, M in (20, 37), (40, 73):  # three radii in six dimensions
        plan = plan_of(cv, model, q, M=scored)
        state = plan.first(np.random.default_rng(0), w=q.start())
        for _ in range(12):
            state = plan.step(state)
        assert np.abs((q.mean(state.w) - mean) / np.sqrt(np.diag(cov))).max() < 1e-3 and plan.M == M
        assert_allclose(q.sd(state.w), np.sqrt(np.diag(cov)), rtol=1e-3)


def test_kinks(cv):
    """A Laplace prior and one number seen with noise: the optimum of E log p by quadrature."""
    lik = lambda z, b: -0.5 * (b[0] - z[..., 0]) ** 2
    model = cv.models.Model(lik, lambda z: -2 * anp.abs(z[..., 0]), np.array([0.5]), 1)
    t = np.linspace(-9, 9, 4001)
    weight = np.exp(-0.5 * t**2) / np.exp(-0.5 * t**2).sum()

    def minus(v):
        z = v[0] + np.exp(v[1]) * t
        return -weight @ (-0.5 * (0.5 - z) ** 2 - 2 * np.abs(z)) - v[1]

    best = optimize.minimize(minus, [0.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-6}).x
    fit = cv.fit(model, steps=320, M=200, progress=False)
    assert abs(fit.mean[0] - best[0]) < 0.05 * np.exp(best[1])
    assert_allclose(fit.sd[0], np.exp(best[1]), rtol=0.05)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 10))
    y = X[:, 0] * 1.5 - X[:, 1] + rng.standard_normal(60)
    lik = lambda z, b: -0.5 * (b[1] - anp.sum(b[0] * z, -1)) ** 2
    lasso = cv.models.Model(lik, lambda z: -2 * anp.sum(anp.abs(z), -1), (X, y), 10)
    assert not part(cv, "starts").start(lasso).trouble


def test_draws_without_a_number(cv):
    """Along them q is taken to be right; where they are most of them, the step fails and is named.
    A diagonal q leaves them out."""
    model = of_lik(cv, lambda z: anp.where(z[..., 0] < -2, np.nan, -0.5 * z[..., 0] ** 2))
    q = cv.families.Gaussian(1)
    plan, w = plan_of(cv, model, q, M=50), q.pack([0.0], [[1.0]])
    new = plan.step(plan.first(np.random.default_rng(0), w=w))
    assert_allclose([*new.w, *new.memory.c, *new.memory.A[0]], [0, 1, 0, 0], atol=1e-12)
    state = plan.first(np.random.default_rng(0), w=q.pack([-3.0], [[1.0]]))
    for t in range(1, 30):
        state = plan.step(state)
        if t == 1:
            assert_allclose(state.w, [-3, 0.5])  # no first step: half as wide
    assert 20 < state.diverged < 30 and np.isfinite(state.w).all()
    q = cv.families.DiagonalGaussian(1)
    plan = part(cv, "ascent.plans").Regressed(model, q, M=50)
    state = plan.step(plan.first(np.random.default_rng(0), w=q.pack([0.0], [1.0])))
    assert_allclose(state.w, [0, 1], atol=1e-12)
    assert state.diverged < 0 and plan.M == 50
    assert plan.step(state._replace(w=q.pack([-3.0], [1.0]))).diverged == 2
    q.far = 0.5  # a step that would end beyond it is not taken
    assert plan.step(state).diverged == 2


def test_another_family(cv):
    """A gamma posterior in closed form."""
    F = cv.families
    lik = lambda z, b: b[0] * z[..., 0] - anp.exp(z[..., 0])
    count = cv.models.Model(lik, F.Gamma(1).prior(2.0, 1.0), np.array([2.0, 0, 3, 1]), 1)
    fit = cv.fit(count, F.Gamma(1), steps=800, progress=False)
    rate = np.exp(fit.sample(20_000, 0))
    assert abs(rate.mean() - 8 / 5) < 0.05  # Gamma(2 + 6, 1 + 4)
    assert abs(rate.std() - np.sqrt(8) / 5) < 0.03 and not fit.warnings


def test_glms(cv):
    """To the optimum of the exact ELBO, which quadrature knows."""
    model = cv.models.logistic_regression(*cv.datasets.toy())
    for q, near in (cv.families.Gaussian(2), 1e-4), (cv.families.DiagonalGaussian(2), 0.02):
        fit = cv.fit(model, q, steps=40, progress=False)
        best, own = (cv.exact.elbo(model, q, w) for w in (cv.exact.optimum(model, q), fit.w))
        assert best - own < near and fit.settled
        assert abs(fit.elbo - own) < 5 * fit.error + 1e-9
        assert fit.elbo != fit.looks[-1, 1]  # on draws that had no part in where it ended


def test_many_rows(cv):
    """The mode of a few rows, scaled; then passes over all of them, to the exact optimum."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 4))
    y = np.sign(X @ [1.0, -1, 0.5, 0] + rng.logistic(size=3000))
    glm = cv.models.logistic_regression(X, y)
    density = part(cv, "models.density")
    with mock.patch.multiple(density, ROWS=300, EACH=5):
        few = density.Density.of_some(glm, rng)
        assert len(few.model.data[0]) == 300 and few.scale == 10
        fit = cv.fit(glm, steps=8, progress=False)
    assert fit.run.strategy.name == "passes" and fit.settled and fit.steps == 2
    best = cv.exact.optimum(glm, fit.q)
    assert cv.exact.elbo(glm, fit.q, best) - cv.exact.elbo(glm, fit.q, fit.w) < 0.005
    assert density.Density.of_some(glm, rng).model is glm


def test_a_diagonal_q_forgets(cv):
    """When a run is doubled the mean of a diagonal q's rule begins anew, that of a full one not."""
    runs, few = part(cv, "fitting.run"), cv.Settings(full=2)  # three unknowns count as many
    for q, least in ((cv.families.DiagonalGaussian(3), 0), (cv.families.Gaussian(3), 16)):
        run = cv.fit(gaussian_case(cv)[0], q, steps=20, progress=False, settings=few).run
        _, *rest = run.state.memory
        run.state = run.state._replace(memory=(np.asarray(16.0), *rest))
        run._block(runs.Clock(None, 21, few), mock.Mock())
        assert run.state.t == 21 and least <= run.state.memory[0] <= least + 1


def test_a_look(cv):
    """The better w is kept, and a doubled run without gain has settled."""
    model, mean, cov, evidence = gaussian_case(cv)
    q, L = cv.families.Gaussian(3), np.linalg.cholesky(cov)
    run = cv.fit(model, q, steps=20, progress=False).run
    right, off = q.pack(mean, L), q.pack(mean + 2 * L[:, 0], L)
    run.settled = False

    def look(w, t=40, best=None, looks=((20, 0.0, 0.0),)):
        """What is said of w after t steps, beside the best so far."""
        run.best = run.best if best is None else best
        run.looks, run.state = looks, run.state._replace(w=w, t=t)
        return run.compare()

    run.state = run.state._replace(memory=(np.asarray(16.0), 1.0))
    assert look(right, 20, off, ()) == "" and (run.best == right).all()
    assert look(right, 0, looks=((0, 0.0, 0.0),)) == ""  # no step was taken: nothing is doubled
    assert look(off, looks=run.looks[:1]) == "" and (run.best == right).all() and not run.settled
    assert look(right, 39) == "" and not run.settled  # not twice as many
    assert "twice the steps gained 0.00 nats" in look(right) and run.settled
    tiny = q.pack(mean + 1e-4 * L[:, 0], L)  # worse by a rounding
    assert "it stopped" in look(tiny, best=right)
    worse = q.pack(mean + 0.2 * L[:, 0], L)  # by 0.02 nats, which is not beyond doubt
    assert "it stopped" in look(worse, best=right) and (run.best == right).all()
    runs, counts, looks = part(cv, "fitting.run"), [], list(cv.Settings().looks)
    weighed = lambda *args: counts.append(args[-1]) or runs.Weights(*args[2])
    z, noise = np.zeros((4000, 3)), np.random.default_rng(0).standard_normal(4000)
    for gain, taken in ((0.0, looks[:1]), (9.0, looks[:1]), (0.05, looks)):
        counts.clear()
        with mock.patch.object(runs, "weighed", weighed):
            look((z, gain + 0.1 * noise - 0.1 * noise.mean()), best=(z, np.zeros(4000)))
        assert counts[::2] == taken, (gain, counts)


def test_far_out_in_the_prior(cv):
    """Said in standard deviations, narrow or wide, from more than six on; log 0 is no place."""
    arcsine = lambda x: -0.5 * anp.log(x) - 0.5 * anp.log1p(-x)  # infinite where x is rounded to 1
    slope = lambda u: -anp.logaddexp(0.0, u) - anp.logaddexp(0.0, -u)
    for sd in (0.01, 1.0, 100.0):
        prior = cv.models.GaussianPrior(np.array([1.0, sd, 1.0]), np.array([0.0, 3.0, 0.0]))
        model = of_prior(cv, prior, 3)
        said = lambda z: list(part(cv, "front").conflicts(model, np.array(z)))
        for out in (0.5, 5.5):
            assert said([1.0, 3 - out * sd, 0.0]) == []
        sentences = said([1.0, 3 - 8 * sd, 0.0])
        assert len(sentences) == 1
        assert sentences[0].startswith("z[1] lies as far out in its prior as 8 sds of a normal")
    for prior, z, out in [
        (lambda z: -0.5 * anp.sum(z**2, -1), 9.0, True),  # written by hand
        (lambda z: -0.5 * anp.sum(anp.exp(2 * z) - 2 * z, -1), 3.0, True),  # a scale e^z of 20
        (lambda z: 3 * anp.sum(z, -1), 50.0, False),  # a log-Jacobian alone, which rises for ever
        (lambda z: -2 * anp.sum(anp.log(1 + z**2 / 3), -1), 9.0, False),  # a heavy tail
        (lambda z: arcsine(1 / (1 + anp.exp(-z[..., 0]))) + slope(z[..., 0]), -3.3, False),
    ]:
        model = of_prior(cv, prior)
        assert bool(list(part(cv, "front").conflicts(model, np.array([z])))) == out


def test_the_row_with_the_largest_errors(cv):
    """None where means and sds are known to .1 sd and quantiles to .2 sd; else the worst by far."""
    front, table = part(cv, "front"), part(cv, "fitting.table").Table
    sd = np.array([1.0, 50.0, 0.02])
    columns = {"mean": 0 * sd, "sd": sd, "5 %": -1.645 * sd, "50 %": 0 * sd, "95 %": 1.645 * sd}
    of = {name: f"error of {name}" for name in columns}
    for large, right in [
        ({}, None),
        ({"mean": (0.09, 0.09, 0.09), "5 %": (0.19, 0.19, 0.19)}, None),
        ({"mean": (0.0, 0.11, 0.0)}, "b"),
        ({"sd": (0.05, 0.0, 0.11)}, "c"),
        ({"95 %": (0.0, 0.0, 0.21)}, "c"),
        ({"mean": (0.12, 0.0, 0.0), "50 %": (0.0, 0.3, 0.0)}, "b"),
        ({"mean": (0.16, 0.0, 0.0), "50 %": (0.0, 0.3, 0.0)}, "a"),
    ]:
        errors = {error: sd * large.get(name, (0.01, 0.01, 0.01)) for name, error in of.items()}
        errors |= {"k-hat": np.array([np.nan, 0.6, -1.0])}
        assert front.roughest(table(["a", "b", "c"], columns | errors, of), 4096) == right


def test_a_row_whose_errors_are_too_small(cv):
    """k-hat of the largest of m columns of plain draws with k = 1/2: past the limit in few runs."""
    front, table = part(cv, "front"), part(cv, "fitting.table").Table
    rng, told = np.random.default_rng(0), []
    for rows, n in (1, 1024), (1, 4096), (20, 4096):
        names = [f"x[{k}]" for k in range(rows)]
        spread = {"5 %": -np.ones(rows), "95 %": np.ones(rows)}
        row = lambda k: front.roughest(table(names, spread | {"k-hat": k}, {"5 %": "5 %"}), n)
        heavy = lambda k: part(cv, "looks").k_hat(-k * np.log(rng.uniform(size=n)))
        for k in (0.5, 1.2):
            each = [[heavy(k) for _ in range(2 * rows)] for _ in range(40)]
            of = [row(np.max(np.reshape(x, (rows, 2)), 1)) for x in each]
            told.append(np.mean([found is not None for found in of]))
    right, wrong = told[::2], told[1::2]
    assert max(right) < 0.25 and min(wrong) > 0.9, told


def test_the_chance_to_stop_too_early(cv):
    """A gain of just the tolerance is taken for less as often as stated, at each look and size."""
    at_most, tolerance = part(cv, "looks").at_most, cv.Settings().tolerance
    rng, n, tries = np.random.default_rng(0), 100, 4000
    gains = tolerance + 0.3 * rng.standard_normal((3, tries, n))
    for look in (1, 2, 3):
        less = np.array([[at_most(g, look) < tolerance for g in size] for size in gains])
        chance = 0.05 / 2**look
        assert abs(less.mean() - chance / 3) < 4 * np.sqrt(chance / 9 / tries) + 0.1 * chance
        assert less.any(0).mean() < chance + 4 * np.sqrt(chance / tries)


def test_importance_weights(cv):
    """log p - log q has the ELBO as its mean; weights keep everything where q is the posterior."""
    model, mean, cov, evidence = gaussian_case(cv)
    q, weighed = cv.families.Gaussian(3), part(cv, "looks").weighed
    right = q.pack(mean, np.linalg.cholesky(cov))
    assert_allclose(weighed(model, q, right, 0).log, evidence, rtol=1e-6)
    wide = q.pack(mean, 2 * np.linalg.cholesky(cov))
    found = weighed(model, q, wide, 0)
    kl = 0.5 * (4 * 3 - 3 - 3 * np.log(4))
    elbo, error = found.elbo
    assert abs(elbo - (evidence - kl)) < 5 * error and error < 0.1
    again = np.std([weighed(model, q, wide, seed).elbo[0] for seed in range(20)])
    assert 0.6 < error / again < 1.7
    share = np.sqrt(2 * 4 - 1) ** 3 / 4**3  # (ex-own-share)
    assert_allclose(found.effective, share, rtol=0.1)
    assert_allclose(found.log, weighed(model, q, wide, 0).log, rtol=0)
    once, again, other = (weighed(model, q, wide, seed, 300).z for seed in (0, 0, 1))
    assert (once == again).all() and once.shape == (300, 3) and (once != other).all()
    lost = part(cv, "looks").Weights(found.z, np.where(np.arange(4000) < 400, np.nan, 0.0))
    assert_allclose([lost.effective, lost.share.sum(), lost.elbo[0]], [0.9, 1.0, 0.0])


def test_tails(cv):
    """k of the generalised Pareto law, from quantiles and from draws; k-hat of known weights."""
    tails, rng = part(cv, "looks"), np.random.default_rng(0)
    for k in (-0.3, 0.2, 0.5, 0.9):
        x = stats.genpareto.ppf((np.arange(4000) + 0.5) / 4000, k, scale=3.0)
        assert abs(tails.pareto(x)[1] - k) < 0.02
        draws = np.sort(stats.genpareto.rvs(k, size=(50, 200), random_state=rng))
        assert abs(np.mean([tails.pareto(x)[1] for x in draws]) - k) < 0.06
    for sd, k in ((0.8, 1 - 0.64), (0.6, 1 - 0.36)):  # q = N(0, sd^2) of N(0, 1): k = 1 - sd^2
        z = sd * rng.standard_normal(200_000)
        found = tails.k_hat(0.5 * z**2 / sd**2 - 0.5 * z**2)
        assert abs(found - k) < 0.15
    assert tails.k_hat(np.zeros(1000)) == -np.inf


def test_what_a_quadratic_explains(cv):
    """All of a Gaussian's slope; of z^4, what regression on a fine grid explains."""
    model, mean, cov, _ = gaussian_case(cv)
    q, explained = cv.families.Gaussian(3), part(cv, "looks").explained
    w = q.pack(mean, np.linalg.cholesky(cov))
    assert_allclose(explained(model, q, w, 0), [1, 0], atol=1e-6)
    quartic, q = of_lik(cv, lambda z: -(z[..., 0] ** 4) / 4), cv.families.Gaussian(1)
    w = q.pack([0.0], [[3**-0.25]])  # E[z^4] s^2 ... G = -s^4 e^3, A = -3 s^4 = -1
    found = np.mean([explained(quartic, q, w, seed) for seed in range(100)], 0)
    assert abs(found[0] - 9 / 15) < 0.03 and abs(found[1]) < 0.05
    odd = of_lik(cv, lambda z: anp.sin(40 * z[..., 0]))
    shares = [explained(odd, q, w, seed)[0] for seed in range(40)]
    assert min(shares) == 0 and max(shares) < 0.2  # as often below nothing as above
