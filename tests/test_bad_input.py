"""Bad input: an error that says what, where and what would be right. No NumPy warnings.

What log_lik, log_prior and declarations may be is in test_own_models.py and test_parameters.py;
numbers at their limits are in test_shell.py.
"""

import re
import warnings
from functools import cache, partial
from types import SimpleNamespace

import autograd.numpy as anp
import numpy as np
import oracles
import pytest
import sliders  # tools/sliders.py
from test_combine import sample
from test_own_families import shifted_of

import cvlib as cv
from cvlib import CF, RP1, RP2, SF, bound, combine, parabola, relax, rules, taylor_x, taylor_z
from cvlib.ascent import plans, rotated
from cvlib.fitting.bends import Bent
from cvlib.fitting.found import Found
from cvlib.points import spheres
from cvlib.recipe import regression
from cvlib.recipe.estimators import Method, Route, check_variate
from experiments import catalogue, posteriors, weights

pytestmark = pytest.mark.filterwarnings("error", "ignore::ResourceWarning")  # others leave those
X = np.array([[0.5, -1.0], [0.2, 0.3], [1.0, 1.0]])
Y = np.array([1.0, -1.0, 1.0])
MASKED = np.ma.masked_array([1.0, 999.0, 2.0], [False, True, False])
q, D, G = cv.families.Gaussian(2), cv.families.DiagonalGaussian(2), cv.families.Gamma(2)
COIN, B, PAIR = cv.families.Bernoulli(2), cv.families.Beta(2), cv.families.Categorical(1, 2)
rng = np.random.default_rng(0)
glm, linear = cv.models.logistic_regression, cv.models.linear_regression
GaussianPrior, load = cv.models.GaussianPrior, cv.datasets.load
dot = lambda z, batch: anp.sum(batch[0] * z, -1)


def model(log_lik=dot, log_prior=GaussianPrior(), data=(X, Y), dim=2, **more):  # noqa: B008
    return cv.models.Model(log_lik, log_prior, data, dim, **more)


class Table:
    """What a table of pandas has: labels of its rows."""

    def __init__(self, *labels):
        self.labels, self.index = labels, self

    equals = lambda self, other: self.labels == other.labels
    to_numpy = __array__ = lambda self, *args, **kwargs: np.ones(len(self.labels))


LOGISTIC, COUNTS = glm(X, Y), cv.models.poisson_regression(X, [0, 1, 2])
OWN = oracles.build(cv, oracles.problem("curved"))
FREE = cv.models.Compiled(lambda z: (-(z**2).sum(-1), -2 * z), 2)
COINS = model(dot, COIN.prior(np.zeros(2)))
data, prior, variational = cv.terms(LOGISTIC, q)
own_data, *_ = cv.terms(OWN, q)
of_gamma, of_coins = cv.terms(LOGISTIC, G)[0], cv.terms(COINS, COIN)[0]
other_data, other_prior, _ = cv.terms(glm(X, Y), q)
cauchy = cv.models.Likelihood("cauchy", lambda t, y: -anp.log(1 + (y - t) ** 2))
DAYS = np.array(["2020-01-01", "2020-01-02", "2020-01-03"], "M8[D]")
TABLES = Table(0, 1, 2), Table(2, 1, 0)
W, ZOO = q.start(), cv.zoo.paper(LOGISTIC, q)
H, COSTS = {"h": ZOO.h}, (-1.0, 0.0, np.nan, np.inf)
h, C = sample()  # (6, 4) and (3, 6, 4): three variates
DRAWN, FRESH = {"w": W, "eps": np.zeros((2, 2)), "index": [0, 1]}, {"w": W, "M": 2, "rng": rng}


def sgd(cvs=(ZOO.c7,), h=ZOO.h, **more):
    how = {"lr": 0.1, "steps": 5, "M": 2, "rng": np.random.default_rng(0)} | more
    return cv.optimize.sgd(LOGISTIC, q, h, list(cvs) if isinstance(cvs, tuple) else cvs, **how)


@cache
def fitted(kind="line"):
    """A fit of few steps, whose warnings are not of interest."""
    with warnings.catch_warnings(action="ignore"):
        if kind == "gamma":
            return cv.fit(COUNTS, G, steps=1, progress=False)
        return cv.fit(model(lambda z, b: -0.5 * (b[1] - dot(z, b)) ** 2), steps=3, progress=False)


def with_(array, value, *place):
    array = np.array(array, float)
    array[place] = value
    return array


phi = lambda phi: cv.models.GLM(X, Y, cv.models.Likelihood("own", phi))


def unassigned():
    """A model whose log_lik takes a name from outside that has no value yet."""
    made = model(lambda z, b: dot(z, b) * scale)
    scale = 2.0
    return made, scale


class Halved(type(cv.AQ.route.pull)):
    """A pull whose mean is not that of its rows."""

    mean = lambda self, draw, u: super().mean(draw, u) / 2


draw = lambda **changes: cv.draw(LOGISTIC, q, **DRAWN | changes)
fresh = lambda **changes: cv.draw(LOGISTIC, q, **FRESH | changes)
coins = lambda M, **more: cv.draw(COINS, COIN, np.zeros(2), M, rng, subsample=False, **more)
shifted = lambda: cv.draw(LOGISTIC, shifted_of(cv)(2), np.zeros(2), M=3, rng=rng)
fit = lambda made=LOGISTIC, family=q, **how: cv.fit(made, family, progress=False, **how)
choose = lambda **how: cv.choose(LOGISTIC, q, W, **{"rng": rng, "pilot": 2} | how)
report = lambda lines=H, **how: cv.report(lines, LOGISTIC, q, W, rng=rng, **how)
expect = lambda f=np.ones(3), z=np.zeros((3, 1)), *more: cv.expect(f, z, 0 * z, *more)  # noqa: B008
free = lambda **how: cv.optimize.noise_free(LOGISTIC, q, **{"lr": 0.1, "steps": 3} | how)

normals = lambda B: np.random.default_rng(0).normal(size=(2, B, 3))
regress = lambda B, ridge, **group: regression.regress(*normals(B), ridge, **group)
moments, mixed = combine.moments, combine.combine
update = lambda L, gamma: combine.update(combine.start(L), h, C, gamma)

# Each row: words of the error, and the calls that are refused with them.
VALUES = [  # with a ValueError
    ("for a full", lambda: rotated.Rotated(LOGISTIC, D)),
    *[(name, partial(f, **{name: 0})) for name in ("radii", "turns")
      for f in (partial(rotated.Rotated, LOGISTIC, q), partial(spheres, rng, 2))],
    ("for a diagonal", lambda: plans.Regressed(LOGISTIC, q), lambda: plans.Regressed(LOGISTIC, G)),
    *[("takes one run, and a generator", partial(rotated.Rotated(LOGISTIC, q).first, *at))
      for at in ((rng, None, (3,)), (rng, np.ones((3, 5))), (None,))],
    *[(name, partial(plans.Regressed, LOGISTIC, D, **{name: x}))
      for name, x in (("reach", 0), ("most", -1), ("M", 1))],
    # data and generalised linear models
    (r"array 0 of the data is nan at \[1, 0\]", lambda: glm(with_(X, np.nan, 1, 0), Y)),
    (r"logistic.*-1 or \+1, found \[0.0, 1.0\].*np.where", lambda: glm(X, [0, 1, 1])),
    (r"X must be \(N, d\) and y \(N,\); got \(3, 2\) and \(2,\)", lambda: glm(X, [1, -1])),
    ("empty", lambda: glm(X[:0], [])),
    ("dim=0: it must be at least one", lambda: glm(X[:, :0], Y)),
    ("the prior's sd holds <U1, such as 1: give numbers", lambda: glm(X, Y, "1")),
    ("noise_sd.*nan", lambda: linear(X, Y, noise_sd=np.nan)),
    (r"noise_sd=.*one number, not \(4,\) of them", lambda: linear(X, Y, noise_sd=np.ones(4))),
    ("the prior has 3 coordinates, z has 2", lambda: glm(X, Y, np.ones(3))),
    ("the prior's sd must be finite, not inf", lambda: glm(X, Y, np.inf)),
    ("the prior's mean must be finite", lambda: glm(X, Y, prior_mean=np.nan)),
    (r"offset must be \(3,\)", lambda: glm(X, Y, offset=1.0), lambda: glm(X, Y, offset=[1.0])),
    ("likelihood='probit': give .*Likelihood", lambda: cv.models.GLM(X, Y, "probit")),
    ("y holds <U3, such as yes.*np.where.*'yes', 1.0", lambda: glm(X, ["yes", "no", "no"])),
    ("y holds object, such as None: give", lambda: glm(X, np.array([1, None, 1], object))),
    ("X has rows of unequal", lambda: glm([[1.0], [1.0, 2.0]], Y)),
    ("X holds complex128 numbers", lambda: glm(1j * X, Y)),
    (r"phi of the own likelihood is \[nan.*every real eta. Put exp\(eta\)",
     lambda: phi(lambda t, y: anp.log(t))),
    ("phi of the own likelihood mixes its rows, or is random: row k may depend on eta",
     lambda: phi(lambda t, y: t - anp.mean(t))),
    ("phi of the own likelihood fails for eta of shape .12,. and labels of shape.*np.where for if",
     lambda: phi(lambda t, y: t if t > 0 else 0 * t)),
    # data sets
    ("unknown data set 'iris': choose one of .*ionosphere", lambda: load("iris")),
    ("features='unit': choose one of .*standardised", lambda: load("sonar", "unit")),
    ("leaves no data point of sonar", lambda: load("sonar", "raw", [])),
    ("rows=3: give a list", lambda: load("sonar", "raw", 3)),
    ("unknown posterior 'radon': choose one of eight_schools", lambda: posteriors.load("radon")),
    # own models
    ("log_lik fails for z of shape .*NameError.*'scale'", unassigned),
    ("data is a list: write a tuple of arrays", lambda: model(data=[X, Y])),
    ("one row per data", lambda: model(data=3.0)),
    (r"log_lik must give one number per row.*np.sum\(..., -1\)", lambda: model(lambda z, b: None)),
    ("the prior has 3 sd's but 2 means", lambda: GaussianPrior(np.ones(3), np.ones(2))),
    ("log_prior.*has 3 coordinates, z has 2", lambda: model(log_prior=GaussianPrior(np.ones(3)))),
    (r"log_lik=None is no function.*\(\.\.\., d\)", lambda: model(log_lik=None)),
    (r"data=None: give an array.*np.zeros\(1\)", lambda: model(data=None)),
    ("array 1 of the data holds object, such as None", lambda: model(data=(X, None))),
    *[("such as .*: give numbers.*days since the first, .*'D'.",
       lambda t=t: model(data=(X, t))) for t in (DAYS, DAYS - DAYS[0], DAYS.tolist())],
    ("different row labels", lambda: model(data=TABLES), lambda: glm(*TABLES)),
    ("log_lik mixes its rows, or is random",
     lambda: model(lambda z, b: dot(z, b) + rng.standard_normal())),
    # parameters
    *[("a parameter cannot be called", lambda name=name: model(dim=None, parameters={name: 1}))
      for name in ("lambda", "class", "my par", "2b", "", 3, "keys")],
    ("low=a must lie below high=1, two finite numbers", lambda: cv.interval("a", 1)),
    (r"low=0 must lie below high=\[1, 2\], two finite", lambda: cv.interval(0, [1, 2])),
    # masked arrays
    ("mask", lambda: model(data=MASKED), lambda: model(data=(np.zeros(3), MASKED)),
     lambda: glm(X, MASKED), lambda: linear([MASKED, np.ones(3)], np.ones(2), 1.0),
     lambda: GaussianPrior(MASKED), lambda: cv.snapshot(LOGISTIC, MASKED[:2]),
     lambda: expect(MASKED), lambda: expect(z=MASKED[:, None]),
     lambda: expect(np.ones(3), np.zeros((3, 1)), MASKED),
     lambda: D.mean(np.ma.append(MASKED, MASKED[:1])),
     lambda: fitted().predict(lambda z, b, rng: z + b[0], 3, data=MASKED)),
    *[("(?s)start=.* give 2 finite numbers", lambda at=at, q=family: fit(OWN, q, start=at))
      for family in (None, D) for at in (
          MASKED[:2], Y, 0.0, "mode", [np.nan, 0.0], (X[0], np.eye(3)), (X[0], 0 * X[0]),
          (X[0], np.eye(2)[None]), (X[0], np.eye(2), 1), (X[0], [1.0, -1.0]))],
    # draws
    (r"rng=np.random.default_rng\(seed\)", lambda: fresh(rng=None)),
    (r"rng=7: give a generator.*default_rng\(7\)", lambda: fresh(rng=7), lambda: choose(rng=7)),
    ("index or rng.*subsample=False", lambda: draw(index=None)),
    ("leave index out", lambda: draw(subsample=False)),
    ("M=3, but eps has 2 samples", lambda: draw(M=3)),
    (r"eps must be \(M, 2\)", lambda: draw(eps=np.zeros((2, 3)))),
    ("M >= 1", lambda: draw(eps=np.zeros((0, 2)), index=[])),
    (r"eps must be \(4, M, 2\).*got \(2, 2\)", lambda: draw(w=q.start((4,)))),
    (r"finite at \[1, 0\]", lambda: draw(eps=with_(np.zeros((2, 2)), np.nan, 1, 0))),
    ("whole numbers.*got (float64|bool)", lambda: draw(index=[0.0, 1.0]),
     lambda: draw(index=[True, False])),
    (r"shape \(2,\).*got int64 of shape \(3,\)", lambda: draw(index=[0, 1, 2])),
    (r"w must be \(..., 5\).*got \(4,\)", lambda: draw(w=np.ones(4))),
    (r"got \(\)", lambda: draw(w=1.0)),
    (r"not finite at \[3\]", lambda: draw(w=with_(W, np.nan, 3))),
    (r"diagonal of L is 0 at \[1\].*negative", lambda: draw(w=with_(W, 0, 4))),
    (r"does not fit Gaussian\(3\), a law of 3 dimensions: take one of 2",
     lambda: cv.draw(LOGISTIC, cv.families.Gaussian(3), np.ones(9), M=1, rng=rng)),
    ('write "plain", "pairs", "sobol" or "rotated"', lambda: fresh(noise="odd")),
    ("say batch=B too", lambda: fresh(each=True)),
    (r"shape \(2,\)", lambda: fresh(batch=2, index=np.zeros(3, int))),
    ("leave batch out", lambda: fresh(subsample=False, batch=3)),
    ("sampling= says it all: leave batch out", lambda: fresh(sampling=cv.Sampling(), batch=3)),
    ("leave eps out", lambda: draw(noise="sobol")),
    *[(f"needs Beta.{name}", lambda how=how: cv.draw(LOGISTIC, B, B.start(), 4, rng, noise=how))
      for name, how in (("mirror", "pairs"), ("quantile", "sobol"))],
    # families
    *[(r"w must be \(..., .*got \(9,\)", lambda ask=ask: ask(np.zeros(9)))
      for family in (q, D, G, COIN) for ask in (family.mean, family.sd, family.unpack)],
    *[(r"w is not finite at \[1, 0\]",
       lambda family=family, bad=bad: family.mean(with_(family.start((2,)), bad, 1, 0)))
      for family in (q, D, G, COIN) for bad in (np.nan, np.inf, -np.inf)],
    *[("w must be 5 numbers", lambda w=w: Found(LOGISTIC, q, w))
      for w in (None, "a", np.ones((2, 5)))],
    (r"relax is for a discrete q; Gaussian\(2\) is continuous: use RP1 or GR", lambda: relax(data)),
    (r"mu must be \(..., 2\).*got \(1,\)", lambda: q.pack([1.0], np.eye(2))),
    ("lower triangular.*cholesky", lambda: q.pack([0.0, 0.0], np.array([[2.0, 1.0], [1.0, 2.0]]))),
    (r"mu, sigma must be \(..., 2\); got \(2,\), \(2, 2\)", lambda: D.pack([1.0, 2.0], np.eye(2))),
    ("positive", lambda: G.pack(-1.0, 1.0)),
    ("diagonal of L is 0", lambda: q.entropy(np.zeros(5)), lambda: q.log_q(np.zeros(5), X)),
    ("generalised linear model", lambda: cv.exact.elbo(OWN, q, W)),
    ("Gaussian family", lambda: cv.exact.elbo(COUNTS, G, G.start())),
    ("each of the 3 coordinates once", lambda: Bent(3, (0, 1, 1))),
    *[("0 <= i < j < 3", lambda pairs=pairs: Bent(3, pairs=pairs))
      for pairs in ([(0, 1)], [(1, 1)], [(3, 0)], [(1, 0), (1, 0)])],
    *[("together they have no ELBO", partial(cv.terms, continuous, COIN)) for continuous in (
        FREE, model(dim=None, parameters={"z": 2}, log_lik=lambda p, b: dot(p.z, b)))],
    ("no batches", lambda: RP1(cv.terms(FREE, q)[0])(cv.draw(FREE, q, W, 2, rng, batch=3))),
    ("shows no data points", lambda: Found(FREE, q, W).log_lik(3)),
    # words and integrands
    (r"LB is not possible for Shifted\(2\): try SF", lambda: cv.LB(cv.one)(shifted())),
    (r"Gaussian\(2\): it needs the Fisher matrix .* LOO does not", lambda: cv.LB(data)),
    (r"RP2 is not possible for Shifted\(2\): try SF", lambda: cv.RP2(cv.one)(shifted())),
    ("AQ.data. is not possible for Gamma", lambda: cv.AQ(of_gamma)),
    ("needs a Gaussian family", lambda: bound(of_gamma)),
    ("RP1.data. is not possible for Gamma.2.: .* GR", lambda: RP1(of_gamma)),
    ("two values of a Bernoulli variable", lambda: cv.DisARM(data)),
    ("no sample is independent", lambda: cv.LOO(of_coins)(coins(1))),
    ("no sample is independent", lambda: cv.LOO(of_coins)(coins(2, noise="pairs")),
     lambda: cv.LOO(data)(fresh(M=8, noise="sobol"))),
    (r'draw\(..., noise="pairs"\)', lambda: cv.DisARM(of_coins)(coins(8))),
    (r"out must be \(1, 2, 5\).*got \(2, 2\)",
     lambda: cv.evaluate([RP1(cv.one)], draw(), out=np.empty((2, 2)))),
    (r"'data' of <logistic.*try CF\(taylor_z\(data\)\)", lambda: CF(data)),
    (r"'taylor_z\(data\)'", lambda: taylor_x(taylor_z(data))),
    (r"labels are classes or enter linearly.*<cauchy",
     lambda: taylor_x(cv.terms(cv.models.GLM(X, Y, cauchy), q)[0])),
    (r"'data' of <own model.*try taylor_z\(data\)", lambda: bound(own_data)),
    (r"'taylor_x\(data\)' has no bound", lambda: bound(taylor_x(data))),
    (r"'taylor_x\(data\)'.*try taylor_z\(data\)", lambda: taylor_z(taylor_x(data))),
    ("order=3: an expansion in z has order 1 or 2", lambda: taylor_z(data, order=3)),
    *[('"mu" or at "snapshot"', lambda write=write: write(data, at="start"))
      for write in (taylor_z, bound, parabola)],
    ("only eta = x.z.*'data' is none: try taylor_z", lambda: parabola(own_data)),
    ("depend on each other", lambda: CF(taylor_z(cv.terms(COINS, PAIR)[0]))),
    ("temperature", lambda: relax(of_coins, 0.0)),
    ("SF or RP1 or GR", lambda: RP2(relax(of_coins))),
    ("'one' is none", lambda: relax(cv.one)),
    *[(f"'taylor_x_slope.data.' does not say its {what}: a word that needs it",
       lambda by_hand=by_hand: Method("own", "", by_hand=by_hand)(cv.taylor_x_slope(data))(draw()))
      for what, by_hand in [("value", lambda draw, f: f.level(draw, "z1")),
                            ("hess_L", lambda draw, f: f.price(draw, "z1"))]],
    (r"half's pull.mean for Gaussian\(2\) is .*it must be the mean of the rows",
     lambda: Method("half", "", Route("z1", pull=Halved()))(data).mean(fresh(M=6))),
    ("belongs to none", lambda: cv.surrogate(cv.one, lambda z: z)),
    ("is no control variate", lambda: check_variate(SF(of_coins) - RP1(relax(of_coins)))),
    ("two models or families", lambda: RP1(data + other_prior),
     lambda: RP1(data) - RP1(cv.terms(LOGISTIC, D)[0])),
    ("different models or families", lambda: (SF(cv.one) + RP1(other_data))(draw()),
     lambda: (RP1(other_data) * 0 + RP1(other_prior))(draw())),
    # snapshots
    ("mu must be finite numbers", lambda: cv.snapshot(LOGISTIC, np.zeros(3))),
    ("and the factor of q", lambda: cv.snapshot(LOGISTIC, np.zeros(2), mean=True)),
    ("for a quadratic bound", lambda: cv.snapshot(COUNTS, np.zeros(2), factor=np.eye(2))),
    ("mean=True needs a", lambda: cv.snapshot(OWN, np.zeros(2), factor=np.eye(2), mean=True)),
    ("is not one of the data", lambda: draw(snapshot=cv.snapshot(glm(2 * X, Y), np.zeros(2)))),
    # weights of variates
    (r"got h \(6, 4\) and C \(3, 5, 4\)", lambda: moments(h, C[:, 1:])),
    ("at least one sample", lambda: moments(h[:0], C[:, :0])),
    *[(f"variate {i} {said}", lambda i=i, bad=bad: moments(h, with_(C, bad, i, 0, 0)))
      for i, bad, said in [(1, np.nan, "has a NaN"), (2, np.inf, "has a NaN"),
                           (0, 1e200, ".* overflows")]],
    ("^h has a NaN", lambda: moments(with_(h, np.nan, 1, 0), C)),
    (r"variate 2 in run \(1,\)",
     lambda: moments(np.stack([h, h]), np.stack([C, with_(C, np.nan, 2, 0, 0)]))),
    *[("v0 must", lambda v0=v0: combine.bayes_weights(moments(h, C), v0, 4))
      for v0 in (-1.0, np.nan)],
    ("gamma must", lambda: update(3, 1.0)),
    (r"begin with start\(L=3, runs=\(\)\)", lambda: update(2, 0.1)),
    ("needs weights", lambda: mixed(h, C, np.ones(4)), lambda: mixed(h, C, np.ones((5, 3)))),
    ("needs h of shape", lambda: mixed(h[:, :2], C, np.ones(3))),
    ("n0, the number", lambda: weights.posterior_moments(moments(h, C), np.eye(3), np.ones(3), 0)),
    ("3 variates need", lambda: weights.general_weights(moments(h, C), np.eye(2), np.ones(3))),
    ("CC must", lambda: combine.best_weights(np.eye(3), np.ones(2))),
    ("negative eigenvalue", lambda: combine.best_weights([[1.0, 2.0], [2.0, 1.0]], [1.0, 1.0])),
    ("samples, 6; got 7", lambda: weights.ridge_weights(h, C, folds=7)),
    # regressions on the draws
    ("no draw is indep", lambda: regress(1, 1.0)),
    ("8 draws in groups of 8", lambda: regression.rows(*normals(8), 1.0, group=8)),
    ("5 draws in groups of 2", lambda: regress(5, 1.0, group=2)),
    ("3 independent draws cannot tell 3 slopes", lambda: regress(4, 0.0)),
    ("give a ridge > 0", lambda: regress(6, 0.0, group=2)),
    ("ridge must", lambda: regress(5, -1.0)), ("finite", lambda: regress(5, np.inf)),
    ("need one B", lambda: regression.regress(normals(5)[0], normals(6)[0], 1.0)),
    ("two groups; got 1 draws", lambda: regression.gauge(*normals(1))),
    ("give one > 0", lambda: regression.baseline(normals(5)[0], np.ones(5), np.ones(3), 0.0)),
    # fits and answers
    ("no matrix of covariances", lambda: fitted("gamma").cov),
    ("Gaussian q", lambda: fitted("gamma").evidence()),
    (r"not \(5, ...\)", lambda: fitted().predict(lambda z, batch, rng: z[0], 5)),
    *[("predict: f.p, batch, rng. fails for a batch of 2 arrays, .* has 2: TypeError: .*given|call",
       lambda f=f: fitted().predict(f, 5)) for f in ("y", lambda p: p, lambda p, batch: p)],
    ("of 1 arrays, where the model has 2: IndexError", lambda: fitted().predict(
        lambda p, batch, rng: p[..., 0] + batch[1], 5, data=X)),
    *[(r"\(\)\], those that were fitted \[\(2,\), \(\)\]: give the same columns",
       lambda k=k: fitted().predict(dot, 5, data=(X[:, k], Y))) for k in ([0], [0, 1, 1], 0)],
    ("up to 60 unknowns, not Gaussian.61", lambda: cv.fit(
        cv.models.Compiled(lambda z: (-(z**2).sum(-1), -2 * z), 61), bend=True)),
    ("for a Gaussian q", lambda: fit(COUNTS, G, start=np.zeros(2)),
     lambda: fit(COUNTS, G, restarts=1)),
    (r"full Gaussian q of .*, not DiagonalGaussian\(2\)", lambda: fit(bend=True, family=D)),
    ("got 2 draws in groups of 2: take at least M=4",
     lambda: regression.gauge(np.zeros((2, 3)), np.zeros((2, 3)), group=2)),
    ("scheduler=None: give an address such as tcp://host:8786", lambda: cv.passes.connect(None)),
    ("needs a figure at least", lambda: sliders.slider([], [], label="width", alts=[])),
    # the loop
    ("no control variate: it estimates", lambda: sgd([ZOO.h])),
    ("v0=nan: it must be zero", lambda: sgd(v0=np.nan)),
    *[(f"lr={lr}", lambda lr=lr: sgd(lr=lr)) for lr in (np.nan, np.inf)],
    (r"lr has shape \(3,\), the runs .*\(2,\): give", lambda: sgd(lr=np.full(3, 0.1), runs=(2,))),
    (r"lr\(1\)=-0.1: it must be zero or positive", lambda: sgd(lr=lambda t: -0.1 * t)),
    (r"momentum=\[0.5, 0.9\]: one number", lambda: sgd(momentum=[0.5, 0.9])),
    ("w must be", lambda: sgd(w=np.ones(3)), lambda: free(w=np.ones(2))),
    ("rng=None: give a generator", lambda: sgd(rng=None)),
    (r"w starts \(5,\) runs: leave runs out", lambda: sgd(w=q.start((5,)), runs=(3,))),
    ("momentum and rule= are two rules", lambda: sgd(momentum=0.5, rule=rules.adam())),
    ("average=0: it must be", lambda: sgd(average=0)),
    ("a hook after step 1 returned a state of step 8",
     lambda: sgd(hooks={1: lambda state, plan: (state._replace(t=8), plan)})),
    ("fixed weights of shape .3,., but 2 variates",
     lambda: sgd([ZOO.c1, ZOO.c7], weights=rules.fixed([1, 2, 3]))),
    ("sampling= says it all: leave batch out", lambda: sgd(sampling=cv.Sampling(), batch=3)),
    (r"must estimate data \+ prior - variational", lambda: sgd(h=RP1(data) - CF(variational))),
    *[(f"{name}={x}: it must", partial(rule, **{name: x})) for rule, name, *wrong in [
        (rules.adam, "b1", 1.0, -0.1, np.nan), (rules.adam, "b2", 1.0, -0.1),
        (rules.adam, "eps", -1, 0.0, np.inf), (rules.natural, "reach", 0, np.nan),
        (partial(rules.falling, after=2), "first", -1, np.inf),
        (partial(rules.falling, 0.1), "after", 0, -2, np.nan),
        (partial(rules.falling, 0.1, 2), "power", -1.0, np.nan),
        (rules.bayes, "v0", -1.0),
        (rules.bayes, "gamma", 1.0, -0.1), (rules.fixed, "a", np.nan, -np.inf, np.inf)]
      for x in wrong],
    ("a Gaussian family, not Gamma.*rules.adam", lambda: rules.natural().start(G, np.zeros(4))),
    # choosing
    (r"w has shape \(2, 5\): give one w", lambda: cv.choose(LOGISTIC, q, q.start((2,)), rng=rng)),
    ("resamples=0: it must be at least one", lambda: choose(resamples=0)),
    *[(f"seconds={x}", partial(ask, seconds=x))
      for ask in (choose, report) for x in (np.nan, -1.0)],
    ("must estimate data", lambda: choose(among={"h": (ZOO.c7, {})})),
    ("no control variate", lambda: choose(among={"h": (ZOO.h, H)})),
    ("costs say nothing of", lambda: report(costs={}, pilot=2)),
    ("must estimate data", lambda: report({"c7": ZOO.c7})),
    *[(r"costs\['QD'\]=", lambda c=c: choose(costs={"QD": c})) for c in COSTS],
    *[(r"costs\['h'\]=", lambda c=c: report(costs={"h": c})) for c in COSTS],
]  # fmt: skip
TYPES = [  # with a TypeError
    *[(f"{name}={value!r} must be a whole number", partial(call, **{name: value}))
      for call, name, value in [
          (model, "dim", 2.5), (fresh, "M", 1.5), (fresh, "batch", 2.5), (fit, "steps", 2.5),
          (fit, "seed", None), (sgd, "steps", "9"), (sgd, "every", 2.5), (sgd, "M", 2.5),
          (fit, "seed", True), (fresh, "M", True), (choose, "resamples", 2.5)]],
    ("dim=.*must be a whole number: write 2", lambda: cv.families.Gaussian(LOGISTIC)),
    *[("dim=.*a whole number", lambda size=size: cv.families.Gamma(size))
      for size in (2.5, np.nan, np.inf, "3", None)],
    ("classes=2.5 must be a whole number", lambda: cv.families.Categorical(2, 2.5)),
    (r"one number or one tuple.*cv.simplex\(\(4, 3\)\)", lambda: cv.simplex(4, 3)),
    (r"one number or one tuple.*cv.positive\(3\)", lambda: cv.positive()),
    ("a length of simplex=0.0 must be a whole number$", lambda: cv.simplex(0.0)),
    ("give its weights, .w", lambda: draw(w=SimpleNamespace(w=W)),
     lambda: cv.exact.elbo(LOGISTIC, q, SimpleNamespace(w=W))),
    (r"snapshot='mu': take cvlib.snapshot\(model, mu\)", lambda: draw(snapshot="mu")),
    ("ndarray is no model such as", lambda: cv.zoo.published(X, q)),
    ("Gaussian is no model", lambda: cv.terms(q, LOGISTIC),
     lambda: cv.optimize.sgd(q, LOGISTIC, ZOO.h, lr=0.1, steps=1, M=1, rng=rng)),
    ("w is a Path: give its weights, .w", lambda: cv.elbo(LOGISTIC, q, free(), 10, rng)),
    ("is no family: write", lambda: cv.terms(LOGISTIC, LOGISTIC)),
    (r"is no draw: write evaluate\(lines, cv.draw\(model, q, w, M, rng\)\)",
     lambda: cv.evaluate(draw(), [RP1(cv.one)])),
    ("logistic.* is no draw: write", lambda: RP1(cv.one)(LOGISTIC)),
    ("RP1 takes an integrand", lambda: RP1(RP1(data))),
    ("taylor_z takes an integrand", lambda: taylor_z(RP1(data))),
    ("cannot add data", lambda: RP1(data) + data),
    ("cannot subtract 1", lambda: RP1(data) - 1),
    ("only by a number", lambda: RP1(data) * RP1(data)),
    ("list of lines", lambda: cv.evaluate(RP1(data), draw())),
    ("data is no estimator", lambda: cv.evaluate([data], draw()), lambda: sgd([data])),
    # fits and answers
    ("no function of the draws", lambda: fitted().expect(3.0)),
    ("what f gives: {'a': .* no array of numbers; stack",
     lambda: fitted().expect(lambda z: {"a": z[:, 0]})),
    ("no function of a Fit", lambda: fit(callback=3)),
    (r"function is no model such as .*models.from_numpyro\(f, X, y\)", lambda: cv.fit(dot)),
    ("what f gives: .*no array of numbers", lambda: fitted().expect(lambda z: ["a"] * len(z)),
     lambda: fitted().quantile(lambda z: np.full(len(z), "a"))),
    ("is no model", lambda: cv.Fit.load("nowhere", q)),
    *[("must be True, False or None", lambda bend=bend: fit(bend=bend))
      for bend in ("yes", 1, [True])],
    # the loop
    ("v0='1e-3' is no number", lambda: sgd(v0="1e-3")),
    ("lr='0.1' is no number: write for example lr=0.1", lambda: sgd(lr="0.1")),
    (r"lr\(1\)=None is no number", lambda: sgd(lr=lambda t: None)),
    (r"cvs=CF.* must be a list: write \[c7\]", lambda: sgd(ZOO.c7)),
    ("no estimator such as RP1.*take its .line", lambda: sgd(catalogue.legal(LOGISTIC, q)[:1])),
    ("no ascent rule such as rules.adam", lambda: sgd(rule="adam")),
    ("no weight rule such as rules.bayes", lambda: sgd(weights=rules.momentum())),
    ("write for example {50: function}", lambda: sgd(hooks=print)),
    (r"nothing or the pair \(state, plan\); got 3", lambda: sgd(hooks={1: lambda *given: 3})),
    ("state=3 is no State", lambda: sgd(state=3, rng=None)),
    ("sgd has no argument 'momentun': did you mean 'momentum'", lambda: sgd(momentun=0.5)),
    ("sgd has no argument 'xyz': a plan takes lr, rule, average, M, weights", lambda: sgd(xyz=1)),
    (r"sampling=5: write cv.Sampling\(", lambda: sgd(sampling=5), lambda: choose(sampling=5)),
    ("noise_free has no argument 'M': a plan takes lr", lambda: free(M=4)),
    # choosing
    ("write among=.*mine.*h, .*c7", lambda: choose(among=[ZOO.h])),
    ("'h': .* is no pair of h and", lambda: choose(among={"h": ZOO.h})),
    ('write {"h": h, "c7": c7}', lambda: report(ZOO.h)),
    ("costs=3: write {.RP1", lambda: report(costs=3)),
    ("there is no argument 'bach' here", lambda: choose(bach=5)),
    ("is a family: the model comes first", lambda: cv.elbo(q, LOGISTIC, W, 10, rng)),
]  # fmt: skip
KINDS = {ValueError: VALUES, TypeError: TYPES}
ROWS = [(kind, row[0], call) for kind, rows in KINDS.items() for row in rows for call in row[1:]]


@pytest.mark.parametrize("kind, words, call", ROWS, ids=[words for _, words, _ in ROWS])
def test_what_is_wrong_is_said(kind, words, call):
    with pytest.raises(kind, match=words):
        call()


@pytest.mark.parametrize("subsample", [True, False])
@pytest.mark.parametrize(
    "culprit", ["RP1(data)", "RP2(data)", "SF(data)", "CF(data)", "RP1(taylor_x(data))"]
)
def test_a_gradient_that_overflows_names_estimator_and_term(culprit, subsample):
    model, wide = cv.models.poisson_regression(np.abs(X), [0, 1, 2]), 1e4 * W  # rates of exp(10000)
    data, prior, variational = cv.terms(model, q)
    step = cv.draw(model, q, wide, M=20, rng=np.random.default_rng(0), subsample=subsample)
    h = RP1(prior) + eval(culprit, {**vars(cv), "data": data}) - CF(variational)
    named = re.escape(culprit)
    with pytest.raises(ValueError, match=named + r" is not finite at sample \[\d+\].*smaller step"):
        h(step)
    with pytest.raises(ValueError, match=named):
        cv.evaluate([RP1(prior), h], step)
    assert not np.isfinite(cv.evaluate([h], step, check=False)).all()


@pytest.mark.parametrize("name", oracles.PROBLEMS)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 10.0, 1e3])
def test_ordinary_use_raises_no_warning(name, scale):
    if scale > 10 and name != "logistic":
        return  # rates of exp(1000)
    p = oracles.problem(name, 3, 4)
    model, q = oracles.build(cv, p), cv.families.Gaussian(3)
    data, prior, variational = cv.terms(model, q)
    lines = [f(t) for f in (SF, RP1, RP2) for t in (data, prior, variational, taylor_z(data))]
    lines += [CF(taylor_z(data + prior)), CF(variational), SF(cv.one)]
    if name == "logistic":
        lines += [RP2(taylor_x(data)), CF(bound(data)), SF(bound(data))]
    w = scale * oracles.weights("Gaussian", 3)
    for subsample in (True, False):
        step = cv.draw(model, q, w, M=5, rng=np.random.default_rng(0), subsample=subsample)
        with np.errstate(all="raise", under="ignore"):
            assert np.isfinite(cv.evaluate(lines, step)).all()


def test_a_constant_likelihood_leaves_the_prior():
    flat = lambda z, batch: np.zeros(np.broadcast_shapes(z.shape[:-1], batch[0].shape))
    only_prior = model(flat, GaussianPrior([1.0, 2.0]), np.zeros(3))
    assert np.allclose(cv.fit(only_prior, progress=False).sd, [1, 2])
