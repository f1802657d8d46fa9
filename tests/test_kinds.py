"""Every kind of fit through everything that it can be asked.

The other side of a comparison is written here: the posterior on a grid or corner by corner, the
log-likelihood and the weights in NumPy, quantiles of many draws, shapes as they were declared.
"""

import pickle
import sys
import warnings
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from html import escape
from inspect import getattr_static
from itertools import product
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from unittest import mock

import autograd.numpy as anp
import numpy as np
import pytest
from harness import part
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

RNG = np.random.default_rng
X = RNG(0).standard_normal(60)
Y = 0.5 * X + RNG(1).standard_normal(60)
LABELS = np.where(X + RNG(2).logistic(size=60) > 0, 1.0, -1.0)
COUNTS = np.array([2.0, 0, 1, 2])


@dataclass
class Case:
    """A model, and the same in NumPy: log p of every row, (n, N), log p of all, names, a grid."""

    model: object
    q: object
    rows: object  # z (n, d) -> (n, N)
    prior: object  # z (n, d) -> (n,)
    named: dict  # {name: function of z}
    grid: np.ndarray  # (K, d)
    cell: float = 1.0  # its volume

    def joint(self, z):
        return self.rows(z).sum(-1) + self.prior(z)

    def posterior(self):
        """Shares of the grid's points, and the log of the integral."""
        with np.errstate(invalid="ignore"):
            log = np.nan_to_num(self.joint(self.grid), nan=-np.inf)
        p = np.exp(log - log.max())
        return p / p.sum(), log.max() + np.log(p.sum() * self.cell)


def box(*sides):
    """Points of a grid, and the volume of a cell."""
    steps = [side[1] - side[0] for side in sides]
    return np.stack(np.meshgrid(*sides, indexing="ij"), -1).reshape(-1, len(sides)), np.prod(steps)


def line(cv, q=None, n=30, tilt=0.0, edge=-np.inf, compiled=False):
    """y = slope x + sigma noise: the scale is positive. The slope may have no number below."""
    x, y = X[:n], Y[:n] + tilt * X[:n]

    def log_lik(p, batch):
        rows = -0.5 * ((batch[1] - p.slope * batch[0]) / p.sigma) ** 2 - anp.log(p.sigma)
        return rows + anp.where(p.slope < edge, np.nan, 0.0) if edge > -np.inf else rows

    def both(z):
        """log p and its slope, by hand."""
        away = (y - z[:, :1] * x) / np.exp(z[:, 1:])  # (B, n)
        value = (-0.5 * away**2).sum(1) - (n - 1) * z[:, 1] - z[:, 0] ** 2 / 2 - np.exp(z[:, 1])
        by_slope = (away * x).sum(1) * np.exp(-z[:, 1]) - z[:, 0]
        return value, np.stack([by_slope, (away**2).sum(1) - n + 1 - np.exp(z[:, 1])], 1)

    log_prior = lambda p: -0.5 * p.slope**2 - p.sigma
    named = {"slope": cv.real, "sigma": cv.positive}
    own = lambda: cv.models.Model(log_lik, log_prior, (x, y), parameters=named)
    model = cv.models.Compiled(both, parameters=named) if compiled else own()

    def rows(z):
        away = (y - z[:, :1] * x) / np.exp(z[:, 1:])
        return np.where(z[:, :1] < edge, np.nan, -0.5 * away**2 - z[:, 1:])

    prior = lambda z: -0.5 * z[:, 0] ** 2 - np.exp(z[:, 1]) + z[:, 1]
    grid = box(np.linspace(tilt - 3, tilt + 4, 561), np.linspace(-2.5, 3, 251))
    names = {"slope": lambda z: z[:, 0], "sigma": lambda z: np.exp(z[:, 1])}
    return Case(model, q and getattr(cv.families, q)(2), rows, prior, names, *grid)


def light(cv):
    """A straight line with a prior of z^4: no Gaussian, and no heavy tail either."""
    y, c = Y[:30], 0.2
    log_lik = lambda z, b: -0.5 * (b[1] - z[..., 0] - z[..., 1] * b[0]) ** 2
    log_prior = lambda z: -c * anp.sum(z**4, -1)
    model = cv.models.Model(log_lik, log_prior, (X[:30], y), 2, "x < 1 & y")
    rows = lambda z: -0.5 * (y - z[:, :1] - z[:, 1:] * X[:30]) ** 2
    grid = box(*2 * [np.linspace(-3, 3, 301)])
    return Case(model, None, rows, lambda z: -c * (z**4).sum(-1), {"z": lambda z: z}, *grid)


def glm(cv):
    both = np.stack([np.ones(60), X], 1)
    rows = lambda z: -np.logaddexp(0, -LABELS * (z @ both.T))
    grid = box(*2 * [np.linspace(-4, 5, 181)])
    prior = lambda z: stats.norm.logpdf(z).sum(-1)
    model = cv.models.logistic_regression(both, LABELS)
    return Case(model, None, rows, prior, {"z": lambda z: z}, *grid)


def gamma(cv):
    """Counts, and the log of their rate: the posterior of the rate is Gamma(6, 5)."""
    q = cv.families.Gamma(1)
    log_lik = lambda z, b: b[0] * z[..., 0] - anp.exp(z[..., 0])
    model = cv.models.Model(log_lik, q.prior(1.0, 1.0), COUNTS, 1)
    rows, prior = lambda z: COUNTS * z - np.exp(z), lambda z: z[:, 0] - np.exp(z[:, 0])
    return Case(model, q, rows, prior, {"z": lambda z: z}, *box(np.linspace(-9, 4, 2001)))


def switches(cv):
    q = cv.families.Bernoulli(2)
    log_lik = lambda z, b: -((b[0] - z[..., 0] - 2 * z[..., 1]) ** 2) / 4
    model = cv.models.Model(log_lik, q.prior(0.0), COUNTS, 2)
    rows = lambda z: -((COUNTS - (z @ [1, 2])[:, None]) ** 2) / 4
    corners = np.array([*product((0.0, 1.0), repeat=2)])
    prior = lambda z: np.full(len(z), -2 * np.log(2))
    return Case(model, q, rows, prior, {"z": lambda z: z}, corners)


STRAIGHT, NARROW = {"bend": False}, "DiagonalGaussian"
KINDS = {  # how the case is made, how it is fitted, the kind of its run
    "full": (light, {}, "rotated"),
    "early": (line, {"steps": 3}, "rotated"),
    "bent": (lambda cv: line(cv, n=4), {"bend": True}, "rotated"),
    "nan": (lambda cv: line(cv, tilt=-3.0, edge=-2.95), STRAIGHT, "rotated"),
    "compiled": (lambda cv: line(cv, compiled=True), STRAIGHT, "rotated"),
    "diagonal": (lambda cv: line(cv, NARROW), {}, "diagonal"),
    "passes": (lambda cv: line(cv, n=60), STRAIGHT, "passes"),
    "glm": (glm, STRAIGHT, "rotated"),
    "adam": (gamma, {"steps": 30}, "adam"),
    "discrete": (switches, {"steps": 30}, "adam"),
}
kinds = pytest.mark.parametrize("kind", [*KINDS])


@lru_cache(2 * len(KINDS))
def fitted(cv, kind):
    """The case, and its fit, made once a package."""
    make, how, _ = KINDS[kind]
    case = make(cv)
    return case, run(cv, kind, case, **how)


def run(cv, kind, case, **how):
    """A fit; for "passes" as if 60 rows were many."""
    few = {"ROWS": 10, "EACH": 1} if kind == "passes" else {}
    with mock.patch.multiple(part(cv, "models.density"), **few) if few else warnings_off():
        with warnings_off():
            return cv.fit(case.model, case.q, progress=False, **how)


def warnings_off():
    return warnings.catch_warnings(action="ignore")


def on(fit, **budget):
    with warnings_off():
        return fit.go_on(progress=False, **budget)


def public(fit):
    """Every attribute and property that has no underscore, but for the model and the run."""
    of_class = [n for n in dir(type(fit)) if not callable(getattr_static(type(fit), n))]
    names = {n for n in (*vars(fit), *of_class) if n[0] != "_"} - {"model", "run"}
    if not fit.q.gaussian:
        names -= {"cov"}
    return {name: getattr(fit, name) for name in sorted(names)}


def same(one, other, *but):
    """Equal to the bit, arrays, tuples and generators inside too."""
    if isinstance(one, np.random.Generator):
        one, other = one.bit_generator.state, other.bit_generator.state
    if hasattr(one, "_asdict"):
        one, other = one._asdict(), other._asdict()
    if is_dataclass(one):
        one, other = vars(one), vars(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one.keys() - {*but}:
            same(one[name], other[name])
    elif isinstance(one, tuple | list):
        assert len(one) == len(other)
        for pair in zip(one, other):
            same(*pair)
    else:
        assert_array_equal(one, other)


def state(fit):
    """All of a run but the model, `last`, a look at w once more, and what steps write over, `G`."""
    kept = {f.name: getattr(fit.run, f.name) for f in fields(fit.run)}
    kept["state"] = kept["state"]._replace(G=None)
    return {name: x for name, x in kept.items() if name not in ("model", "last")}


def look(case, q, w, seed, n):
    """log p - log q at n draws from this seed, in NumPy and SciPy."""
    z = q.transform(w[None], q.noise(RNG([seed, n]), w, n))
    log_q = q.log_q(w, z)
    if q.gaussian:
        mean, L = q.unpack(w)
        log_q = stats.multivariate_normal.logpdf(z, mean, L @ L.T if q.full else np.diag(L**2))
    with np.errstate(invalid="ignore"):
        return case.joint(z) - log_q


def check_shown(cv, case, fit):
    """Numbers, words and warnings are those of this w and this step."""
    log = look(case, fit.q, fit.w, fit.steps + 1, 4000)
    fine = log[np.isfinite(log)]
    assert_allclose([fit.elbo, fit.error], [fine.mean(), fine.std() / len(fine) ** 0.5], rtol=1e-7)
    check_lot(cv, case, fit)
    assert fit.steps == fit.run.state.t and fit.words[: len(fit.run.words)] == fit.run.words
    assert any(word.endswith(f"after step {fit.steps}") for word in fit.words)
    said, doubted = " ".join(fit.words), " ".join(fit.warnings)
    assert ("a quadratic explains" in said) == (fit.settled and fit.q.gaussian)
    assert ("had not settled" in doubted) == (not fit.settled)
    lost = 1 - len(fine) / 4000
    assert (f"not finite at {lost:.1%} of" in doubted) == (lost > 0)
    if len(fit.looks):
        t, *seen = fit.looks[-1]
        now = fit.run.state.mean if fit.run.state.count else fit.run.state.w
        logs = [look(case, fit.run.q, now, int(t), n) for n in (250, 1000, 4000)]
        means = [np.nanmean(log) for log in logs]
        assert t == fit.steps and np.abs(np.subtract(means, seen[0])).min() < 1e-7


def check_lot(cv, case, fit):
    """Weights, k-hat and relative ESS are those of this q, by SciPy's densities of the mixture."""
    lot, q = fit.lot, fit.q
    if lot.exact:
        assert len(lot.z) == 4 == len({*map(tuple, lot.z)}) and fit.shown == "posterior"
        return
    z, law = lot.z, q.log_q(fit.w, lot.z)
    if q.gaussian:
        mean, L = q.unpack(fit.w)
        cov = L @ L.T if q.full else np.diag(L**2)
        z = mean + (lot.e @ L.T if q.full else lot.e * L)
        laws = (stats.multivariate_normal(mean, cov), stats.multivariate_t(mean, cov, df=lot.nu))
        law = np.logaddexp(*(one.logpdf(z) for one in laws)) - np.log(2)
    with np.errstate(invalid="ignore"):
        log = case.joint(z) - law
    counts = lot.w > 0  # f is asked for the others where the largest weight lies
    assert_allclose(lot.z[counts], z[counts], rtol=1e-7, atol=1e-12)
    assert (lot.z[~counts] == lot.z[lot.w.argmax()]).all()
    fine = np.isfinite(log)
    if q.gaussian or q.mapped is None:
        assert_allclose(np.where(fine, log, -np.inf), lot.log, rtol=1e-7)
    w, k = part(cv, "looks").smoothed(lot.log)
    assert_allclose([fit.k_hat, fit.effective], [k, w.sum() ** 2 / (w**2).sum() / len(w)])


@kinds
def test_one_step_more_shows_the_new_fit_and_leaves_the_old_one(cv, kind):
    case, fit = fitted(cv, kind)
    assert fit.run.strategy.name == KINDS[kind][2] and (kind == "bent") == ("Bent" in repr(fit.q))
    assert fit.settled == ("steps" not in KINDS[kind][1])
    check_shown(cv, case, fit)
    before = deepcopy(state(fit) | public(fit))
    after = on(fit, steps=fit.steps + 1)
    same(before, state(fit) | public(fit))
    check_shown(cv, case, after)
    assert after.seconds > fit.seconds and after.settled == (kind == "passes")
    assert after.words[: len(fit.run.words)] == fit.run.words != after.run.words
    assert_array_equal(after.looks[: len(fit.looks)], fit.looks)
    assert after.steps == fit.steps + 1
    assert len(after.looks) == len(fit.looks) + (kind != "passes")
    assert kind == "diagonal" or np.abs(after.run.state.w - fit.run.state.w).max() > 0
    assert repr(after.q) == repr(after.run.q)  # it bends once it has settled, or settles again
    assert kind != "bent" or "Bent" in repr(on(fit, steps=2 * fit.steps).q)


@kinds
def test_a_file_holds_the_whole_fit(cv, kind):
    """Every public attribute, every field of its run, and it goes on as the first would."""
    case, fit = fitted(cv, kind)
    with TemporaryDirectory() as folder:
        fit.save(f"{folder}/fit")
        read = cv.Fit.load(f"{folder}/fit", case.model)
    pickled = [pickle.loads(pickle.dumps(fit))] if kind == "glm" else []  # a lambda has none
    for copy in (read, *pickled):
        same(public(fit), public(copy))
        same(state(fit), state(copy))
    one, other = (on(x, steps=fit.steps + 2) for x in (fit, read))
    same(public(one), public(other), "seconds")
    same(state(one), state(other), "seconds")


def test_what_the_start_and_the_clock_saw_stays(cv):
    """Of a fit whose run knows of troubles, over a file and one step more."""
    case, fit = fitted(cv, "early")
    knows = {"trouble": "no mode", "rivals": "2 modes", "spike": "tau", "seconds": 1e3, "M": 90}
    known = cv.Fit(replace(fit.run, **knows, bends=True))
    with TemporaryDirectory() as folder:
        known.save(f"{folder}/fit")
        read = cv.Fit.load(f"{folder}/fit", case.model)
    after = on(read, steps=4)
    for one in (known, read, after):
        assert one.warnings[:3] == ("no mode", "tau", "2 modes")
        assert one.run.plan.M >= 90 and one.run.bends
    assert read.seconds == 1000 < after.seconds < 1100


@kinds
@pytest.mark.parametrize("first", (10, 13))
def test_going_on_is_the_run_that_did_not_stop(cv, kind, first):
    """At a look and between two of them, from one step to the next."""
    case, how = fitted(cv, kind)[0], {"bend": False, "seed": 3}
    begun, whole = (run(cv, kind, case, steps=n, **how) for n in (first, 20))
    went = on(on(begun, steps=first + 1), steps=20) if begun.steps == first else begun
    assert_array_equal(went.run.state.w, whole.run.state.w)
    assert went.steps == whole.steps and (first > 10 or not len(begun.looks) or begun.looks[0, 0])


@kinds
def test_another_fit_is_where_to_begin(cv, kind):
    """With its mean and its covariance, or their diagonal where one of both q's has no other."""
    case, fit = fitted(cv, kind)
    if not fit.run.q.gaussian:
        with pytest.raises(ValueError, match="start= and restarts= are for a Gaussian q"):
            run(cv, kind, case, start=fit, seconds=1e-9)
        return
    for q in (cv.families.Gaussian(2), cv.families.DiagonalGaussian(2)):
        with warnings_off():
            begun = cv.fit(case.model, q, start=fit, seconds=1e-9, progress=False)
        z = fit.sample(40_000, 5)
        cov = np.cov(z.T) if q.full and fit.q.full else np.diag(z.var(0))
        sd = z.std(0)
        assert begun.steps == 0 and begun.words[0] == "began at the start that was given"
        assert_allclose(begun.mean / sd, z.mean(0) / sd, atol=0.03)
        assert_allclose(begun.cov / np.outer(sd, sd), cov / np.outer(sd, sd), atol=0.04)


@kinds
def test_answers_are_the_posterior_s(cv, kind):
    case, fit = fitted(cv, kind)
    p, log_evidence = case.posterior()
    of = {name: f(case.grid).reshape(len(p), -1) for name, f in case.named.items()}
    near = 0.15 if kind == "nan" else 0.002  # at an edge Stein does not hold; a grid
    for name, values in of.items():
        ask = lambda g: np.asarray(g[name] if isinstance(g, dict) else g)
        mean = p @ values
        sd = np.sqrt(p @ (values - mean) ** 2)
        found = fit.expect(ask, n=4000, seed=1)
        assert np.shape(found.estimate) == np.shape(case.named[name](case.grid))[1:]
        assert np.all(np.abs(found.estimate - mean) < 4 * found.se + near * sd)
        assert np.all(found.se < 0.2 * sd) and fit.shown == "posterior"
        assert not {*fit.warnings} & {*found.warnings}  # which are said once
        drawn = fit.draws(4000, 2)[name].reshape(4000, -1)
        assert np.all(np.abs(drawn.mean(0) - mean) < 0.15 * sd)
        assert_allclose(drawn.std(0), sd, rtol=0.15)
        assert kind == "discrete" or len({*drawn[:, 0]}) > 3800  # n of 4 n: hardly one comes twice
        if kind != "discrete":
            levels = [_quantile(x, p, (0.1, 0.5)) for x in values.T]
            got = fit.quantile(ask, probs=(0.1, 0.5), n=4000, seed=1)
            assert np.shape(got.estimate) == (2, *np.shape(found.estimate))
            off = np.reshape(got.estimate, (2, -1)) - np.transpose(levels)
            assert np.all(np.abs(off) < 4 * np.reshape(got.se, (2, -1)) + (near + 0.01) * sd)
    if fit.q.mapped is None and kind != "discrete":
        with pytest.raises(ValueError, match="the evidence needs a Gaussian q, straight or bent"):
            fit.evidence()
    else:
        found = fit.evidence(4000, 1)
        assert abs(found.estimate - log_evidence) < 4 * found.se + (
            1e-9 if kind == "discrete" else near
        )
    assert kind == "nan" or fit.elbo < log_evidence + 4 * fit.error + 0.002


def _quantile(x, p, levels):
    x, at = np.unique(x, return_inverse=True)
    share = np.bincount(at, p)
    return np.interp(levels, np.cumsum(share) - share / 2, x)


@kinds
def test_draws_are_q_s_by_name_and_shape(cv, kind):
    case, fit = fitted(cv, kind)
    z, many = fit.sample(7, 3), fit.sample(40_000, 4)
    d = case.model.dim
    assert z.shape == (7, d) and np.array_equal(z, fit.q.sample(fit.w, 7, RNG(3)))
    assert_allclose((many.mean(0) - fit.mean) / many.std(0), 0, atol=0.03)
    assert_allclose(many.std(0) / fit.sd, 1, atol=0.03)
    if fit.q.gaussian:
        assert_allclose(np.cov(many.T) / np.outer(fit.sd, fit.sd),
                        fit.cov / np.outer(fit.sd, fit.sd), atol=0.04)  # fmt: skip
    else:
        with pytest.raises(ValueError, match="no matrix of covariances"):
            fit.cov  # noqa: B018
    by_name = fit.draws(7, 3, corrected=False)
    assert by_name.keys() == case.named.keys()
    for name, f in case.named.items():
        assert_allclose(by_name[name], f(z))
    with np.errstate(invalid="ignore"):
        rows = case.rows(z)
    groups = arviz_of(fit, n=7, seed=3, corrected=False)
    assert_allclose(groups["sample_stats"]["log_q"][0], fit.q.log_q(fit.w, z))
    assert_allclose(groups["sample_stats"]["lp"][0], rows.sum(-1) + case.prior(z), rtol=1e-9)
    for name, f in case.named.items():
        assert_allclose(groups["posterior"][name], f(z)[None])
    if kind == "compiled":
        assert "log_likelihood" not in groups
        with pytest.raises(ValueError, match="shows no data points"):
            fit.log_lik(7, 3, corrected=False)
        return
    assert_allclose(fit.log_lik(7, 3, corrected=False), rows)
    assert_allclose(groups["log_likelihood"]["y"], rows[None])
    new = lambda p, batch, rng: _first(p) + 0 * batch[-1] + 0 * rng.normal()
    right = np.repeat(_first(case.model.given(z))[:, None], case.model.N, 1)
    assert_allclose(fit.predict(new, 7, 3, corrected=False), right)
    few = tuple(a[:3] for a in case.model.data)
    assert_allclose(fit.predict(new, 7, 3, few, corrected=False), right[:, :3])
    predicted = arviz_of(fit, 7, 3, new, corrected=False)["posterior_predictive"]
    assert_allclose(predicted["y"], right[None])
    z = np.atleast_2d(np.column_stack([*fit.lot.z.T]))  # what is shown comes from the lot
    drawn = fit._points(7, RNG(3))
    assert all((row == z).all(1).any() for row in drawn)
    assert_allclose(arviz_of(fit, 7, 3)["posterior"][name], f(drawn)[None])
    assert "log_q" not in arviz_of(fit, 7, 3)["sample_stats"]
    with np.errstate(invalid="ignore"):
        assert_allclose(fit.log_lik(7, 3), case.rows(drawn))
    assert_allclose(fit.predict(new, 7, 3)[:, 0], _first(case.model.given(drawn)))


def _first(p):
    return p["slope"] if isinstance(p, dict) else p[..., 0]


def arviz_of(fit, *args, **kwargs):
    """What ArviZ would be given."""
    there = SimpleNamespace(__version__="1.0", from_dict=lambda groups, **_: groups)
    with mock.patch.dict(sys.modules, arviz=there):
        return fit.to_arviz(*args, **kwargs)


@kinds
def test_what_a_fit_looks_like(cv, kind):
    """The summary has the posterior's numbers, by name; all ways to show it have all of it."""
    case, fit = fitted(cv, kind)
    p, table = case.posterior()[0], fit.summary()
    columns = [(n, f(case.grid).reshape(len(p), -1).T) for n, f in case.named.items()]
    right = [(n if len(x) == 1 and n != "z" else f"{n}[{k}]", row) for n, x in columns
             for k, row in enumerate(x)]  # fmt: skip
    assert table.rows == [name for name, _ in right] and fit.shown == "posterior"
    near = 0.2 if kind == "nan" else 0.02  # at an edge; a grid
    for j, (_, x) in enumerate(right):
        mean = p @ x
        sd = np.sqrt(p @ (x - mean) ** 2)
        tails = [] if kind == "discrete" else _quantile(x, p, (0.05, 0.5, 0.95))
        for column, true in zip(("mean", "sd", "5 %", "50 %", "95 %"), (mean, sd, *tails)):
            error = table.columns[f"error of {column}"][j]
            assert abs(table.columns[column][j] - true) < 4 * error + near * sd, column
            assert error < 0.2 * sd and (error == 0) == (kind == "discrete")
    head = f"ELBO {fit.elbo:.2f} ± {2 * fit.error:.2f} after {fit.steps} steps"
    for text in (repr(fit), fit.report):
        assert case.model.name in text and repr(fit.q) in text and head in text
        assert all(f"! {w}" in text for w in fit.warnings)
    assert all(f"- {w}" in fit.report for w in fit.words)
    html = fit._repr_html_()
    assert all(escape(x) in html for x in (case.model.name, repr(fit.q), head, *fit.warnings))
    assert repr(table) in repr(fit)
    for line in table._cells():
        assert all(f">{cell}</td>" in html for cell in line)
