"""Bad input: an error that says what, where and what would be right. No NumPy warnings.

What log_lik and log_prior may be, row by row, is in test_own_models.py.
"""

from functools import cache
from types import SimpleNamespace

import autograd.numpy as anp
import numpy as np
import oracles
import pytest
import sliders  # tools/sliders.py
from scipy import stats

import cvlib as cv
from cvlib import CF, RP1, RP2, SF, bound, passes, taylor_x, taylor_z
from cvlib.combining import regression
from cvlib.fitting.starts import climb
from experiments import trained

pytestmark = pytest.mark.filterwarnings("error", "ignore::ResourceWarning")  # others leave those
X = np.array([[0.5, -1.0], [0.2, 0.3], [1.0, 1.0]])
SIGNS = np.array([1.0, -1.0, 1.0])
q = cv.families.Gaussian(2)
rng = np.random.default_rng(0)
own = lambda z, batch: z[..., 0] * batch[0]  # a log-likelihood of the right shape
flat = lambda z: 0 * z[..., 0]


glm = cv.models.logistic_regression
dot = lambda z, batch: anp.sum(batch[0] * z, -1)


def model(log_lik=dot, log_prior=cv.models.GaussianPrior(), data=(X, SIGNS), dim=2):  # noqa: B008
    return cv.models.Model(log_lik, log_prior, data, dim)


def phi(phi):
    return cv.models.GLM(X, SIGNS, cv.models.Likelihood("own", phi))


class Labels(tuple):
    equals = tuple.__eq__


class Table:
    """What a table of pandas has: labels of its rows."""

    def __init__(self, labels):
        self.index = Labels(labels)

    def to_numpy(self, *args, **kwargs):
        return np.ones(len(self.index))

    __array__ = to_numpy


@cache
def logistic():
    return glm(X, SIGNS)


def draw(**changes):
    arguments = {"w": q.start(), "eps": np.zeros((2, 2)), "index": [0, 1], **changes}
    return cv.draw(logistic(), q, **arguments)


class Shifted(cv.families.Family):
    """N(w, 1), which does not say its Fisher matrix."""

    parts = ("mu",)
    noise = lambda self, rng, w, M: rng.standard_normal((*w.shape[:-1], M, self.dim))
    transform = lambda self, w, eps: w + eps
    log_density = lambda self, w, z: -0.5 * anp.sum((z - w) ** 2, -1)


def shifted():
    return cv.draw(logistic(), Shifted(2), np.zeros(2), M=3, rng=rng)


def with_(array, value, *place):
    array = np.array(array, float)
    array[place] = value
    return array


W, ZOO = q.start(), cv.zoo.paper(logistic(), q)
H, COSTS = {"h": ZOO.h}, (-1.0, 0.0, np.nan, np.inf, "1")
MODELS = {
    "NaN in X": (lambda: glm(with_(X, np.nan, 1, 0), SIGNS),
                 r"array 0 of the data is nan at \[1, 0\]"),
    "infinity in X": (lambda: cv.models.poisson_regression(with_(X, np.inf, 2, 1), [0, 1, 2]),
                      r"is inf at \[2, 1\]"),
    "labels 0 and 1": (lambda: glm(X, [0, 1, 1]),
                       r"logistic.*-1 or \+1, found \[0.0, 1.0\].*np.where"),
    "fewer labels than rows": (lambda: glm(X, [1, -1]),
                               r"X must be \(N, d\) and y \(N,\); got \(3, 2\) and \(2,\)"),
    "one feature without its axis": (lambda: glm(X[:, 0], SIGNS), r"got \(3,\) and \(3,\)"),
    "no data point": (lambda: glm(X[:0], []), "empty"),
    "no feature": (lambda: glm(X[:, :0], SIGNS), "dim=0: it must be at least one"),
    "half a dimension": (
        lambda: cv.models.Model(lambda z, b: z[..., 0], cv.models.GaussianPrior(), X, 2.5),
        "dim=2.5 must be a whole number"),
    "data as a list": (
        lambda: cv.models.Model(lambda z, b: z[..., 0], cv.models.GaussianPrior(), [X, SIGNS], 2),
        "data is a list: write a tuple of arrays"),
    "prior_sd text": (lambda: glm(X, SIGNS, "1"),
                      "prior_sd holds text, such as '1': give numbers, as floats"),
    "noise_sd NaN": (lambda: cv.models.linear_regression(X, SIGNS, noise_sd=np.nan),
                     "noise_sd.*nan"),
    "own model, data a number": (lambda: cv.models.Model(own, flat, 3.0, 1), "one row per data"),
    "own model, likelihood summed over rows": (
        lambda: cv.models.Model(lambda z, b: anp.sum(z), flat, np.zeros(3), 1),
        r"log_lik must give one number per row.*np.sum\(..., -1\)"),
}  # fmt: skip

DRAWS = {
    "M = 1.5": (lambda: draw(eps=None, index=None, M=1.5, rng=rng), "M=1.5.*whole number"),
    "no rng": (lambda: draw(eps=None, index=None, M=2), r"rng=np.random.default_rng\(seed\)"),
    "rng a seed": (lambda: draw(eps=None, index=None, M=2, rng=7),
                   r"rng=7: give a generator.*default_rng\(7\)"),
    "no M": (lambda: draw(eps=None, index=None, rng=rng), "needs M"),
    "no index": (lambda: draw(index=None), "index or rng.*subsample=False"),
    "index beside all data": (lambda: draw(subsample=False), "leave index out"),
    "M against eps": (lambda: draw(M=3), "M=3, but eps has 2 samples"),
    "eps of another dimension": (lambda: draw(eps=np.zeros((2, 3))), r"eps must be \(M, 2\)"),
    "eps without samples": (lambda: draw(eps=np.zeros((0, 2)), index=[]), "M >= 1"),
    "eps without its runs": (lambda: draw(w=q.start((4,))),
                             r"eps must be \(4, M, 2\).*got \(2, 2\)"),
    "eps NaN": (lambda: draw(eps=with_(np.zeros((2, 2)), np.nan, 1, 0)), r"finite at \[1, 0\]"),
    "index of floats": (lambda: draw(index=[0.0, 1.0]), "whole numbers.*got float64"),
    "index a mask": (lambda: draw(index=[True, False]), "whole numbers.*got bool"),
    "index too long": (lambda: draw(index=[0, 1, 2]), r"shape \(2,\).*got int64 of shape \(3,\)"),
    "w of another length": (lambda: draw(w=np.ones(4)), r"w must be \(..., 5\).*got \(4,\)"),
    "w a number": (lambda: draw(w=1.0), r"got \(\)"),
    "w a fit": (lambda: draw(w=SimpleNamespace(w=q.start())), "give its weights, .w"),
    "w a fit, of the exact ELBO": (
        lambda: cv.exact.elbo(logistic(), q, SimpleNamespace(w=q.start())),
        "give its weights, .w"),
    "a snapshot by name": (lambda: draw(snapshot="mu"),
                           r"snapshot='mu': take cvlib.snapshot\(model, mu\)"),
    "w NaN": (lambda: draw(w=with_(q.start(), np.nan, 3)), r"not finite at \[3\]"),
    "zero on the diagonal of L": (lambda: draw(w=with_(q.start(), 0, 4)),
                                  r"diagonal of L is 0 at \[1\].*negative"),
    "zero on the diagonal, in one run": (
        lambda: draw(w=with_(q.start((2,)), 0, 1, 2), eps=np.zeros((2, 2, 2))),
        r"diagonal of L is 0 at \[1, 0\]"),
    "family of another dimension": (
        lambda: cv.draw(logistic(), cv.families.Gaussian(3), np.ones(9), M=1, rng=rng),
        r"does not fit Gaussian\(3\), a law of 3 dimensions: take one of 2"),
}  # fmt: skip

FAMILIES = {
    "a model for a number": (lambda: cv.families.Gaussian(logistic()),
                             "dim=.*must be a whole number: write 2"),
    "data for a model": (lambda: cv.zoo.published(X, q), "ndarray is no model such as"),
    "a family for a model": (lambda: cv.terms(q, logistic()), "Gaussian is no model"),
    "a model for a family": (lambda: cv.terms(logistic(), logistic()), "is no family: write"),
    "a loop the wrong way round": (
        lambda: cv.optimize.sgd(
            q, logistic(), cv.zoo.paper(logistic(), q).h, lr=0.1, steps=1, M=1, rng=rng
        ),
        "Gaussian is no model",
    ),
    "unpack w of another length": (lambda: q.unpack(np.zeros(4)), r"w must be \(..., 5\)"),
    "the same of a diagonal q": (lambda: cv.families.DiagonalGaussian(2).unpack(np.zeros(3)),
                                 r"w must be \(..., 4\).*got \(3,\)"),
    "terms of another dimension": (lambda: cv.terms(logistic(), cv.families.DiagonalGaussian(3)),
                                   r"DiagonalGaussian\(3\), a law of 3 dimensions: take one of 2"),
    "relaxation of a Gaussian": (
        lambda: cv.relax(cv.terms(logistic(), q)[0]),
        r"relax is for a discrete q; Gaussian\(2\) is continuous: use RP1 or GR"),
    "pack: mu": (lambda: q.pack([1.0], np.eye(2)), r"mu must be \(..., 2\).*got \(1,\)"),
    "pack: L": (lambda: q.pack([1.0, 2.0], np.ones(2)), r"L \(..., 2, 2\)"),
    "pack: a full matrix": (lambda: q.pack([0.0, 0.0], np.array([[2.0, 1.0], [1.0, 2.0]])),
                            "lower triangular.*cholesky"),
    "pack: sigma": (lambda: cv.families.DiagonalGaussian(2).pack([1.0, 2.0], [1.0]),
                    r"mu, sigma must be \(..., 2\)"),
    "pack: a matrix for sigma": (
        lambda: cv.families.DiagonalGaussian(2).pack([1.0, 2.0], np.eye(2)),
        r"mu, sigma must be \(..., 2\); got \(2,\), \(2, 2\)"),
    "entropy of a singular q": (lambda: q.entropy(np.zeros(5)), "diagonal of L is 0"),
    "density of a singular q": (lambda: q.log_q(np.zeros(5), X), "diagonal of L is 0"),
    "ELBO of a singular q": (lambda: cv.exact.elbo(logistic(), q, np.zeros(5)), "of L is 0"),
    "a baseline without Fisher's matrix": (
        lambda: cv.LB(cv.one)(shifted()),
        r"LB needs the Fisher matrix of the family, and Shifted\(2\) does not say it: try LOO"),
    "a word that the family lacks": (lambda: cv.RP2(cv.one)(shifted()),
                                     r"RP2 is not possible for Shifted\(2\): try SF"),
    "evaluate the wrong way round": (
        lambda: cv.evaluate(draw(), [RP1(cv.one)]),
        r"is no draw: write evaluate\(lines, cv.draw\(model, q, w, M, rng\)\)"),
    "a line of a model": (lambda: RP1(cv.one)(logistic()), "logistic.* is no draw: write"),
    "init without a plan": (lambda: cv.optimize.init(logistic(), rng),
                            r"init takes a plan such as Noisy\(model, q, h, ...\), not <logistic"),
    "a slope that is missing": (
        lambda: climb(lambda z: -z @ z, np.ones(2), 1e-6),
        r"climb: f\(z\) must give a number and its slope, as long as z; got -2"),
    "a slope too short": (lambda: climb(lambda z: (-z @ z, -2 * z[:1]), np.ones(2), 1e-6),
                          "as long as z; got"),
    "too few draws for a gauge": (
        lambda: regression.gauge(np.zeros((2, 3)), np.zeros((2, 3)), group=2),
        "got 2 draws in groups of 2: take at least M=4"),
    "no scheduler": (lambda: passes.connect(None),
                     "scheduler=None: give an address such as tcp://host:8786"),
    "a length that is no whole number": (lambda: cv.simplex(0.0),
                                         "a length of simplex=0.0 must be a whole number$"),
    "out of another shape": (lambda: cv.evaluate([RP1(cv.one)], draw(), out=np.empty((2, 2))),
                             r"out must be \(1, 2, 5\).*got \(2, 2\)"),
}  # fmt: skip
GLMS = {
    "prior_sd of another length": (lambda: glm(X, SIGNS, np.ones(3)),
                                   r"prior_sd must be a number or \(2,\); got \(3,\)"),
    "prior_sd a matrix": (lambda: glm(X, SIGNS, np.eye(2)), r"prior_sd .* got \(2, 2\)"),
    "prior_sd with a 0": (lambda: glm(X, SIGNS, [1.0, 0.0]), "prior's sd=.*must be positive"),
    "prior_sd infinite": (lambda: glm(X, SIGNS, np.inf), "prior_sd must be finite, not inf"),
    "prior_mean of another length": (lambda: glm(X, SIGNS, prior_mean=[1.0, 2.0, 3.0]),
                                     r"prior_mean must be a number or \(2,\); got \(3,\)"),
    "prior_mean NaN": (lambda: glm(X, SIGNS, prior_mean=np.nan), "prior_mean must be finite"),
    "offset a number": (lambda: glm(X, SIGNS, offset=1.0), r"offset must be \(3,\).*got \(\)"),
    "offset too short": (lambda: glm(X, SIGNS, offset=[1.0]), r"offset must be \(3,\).*\(1,\)"),
    "offset NaN": (lambda: glm(X, SIGNS, offset=[1.0, np.nan, 0]), r"nan at \[1\]"),
    "likelihood by name": (
        lambda: cv.models.GLM(X, SIGNS, "probit"),
        r"likelihood='probit': give models.LOGISTIC.*models.Likelihood\(name, phi\)"),
    "labels as text": (lambda: glm(X, ["yes", "no", "no"]),
                       r"y holds text, such as 'yes'.*np.where\(label == 'yes', 1.0, -1.0\)"),
    "labels as objects": (lambda: glm(X, np.array([1, None, 1], object)),
                          "y holds objects, such as 1: give numbers, as floats"),
    "features as text": (lambda: glm([["a", "b"]] * 3, SIGNS), "X holds text, such as 'a'"),
    "rows of unequal length": (lambda: glm([[1.0], [1.0, 2.0]], SIGNS), "X has rows of unequal"),
    "complex features": (lambda: glm(1j * X, SIGNS), "X holds complex128 numbers"),
    "noise_sd a vector": (lambda: cv.models.linear_regression(X, SIGNS, noise_sd=np.ones(4)),
                          r"noise_sd=.*one number, not \(4,\) of them"),
    "scipy in phi": (
        lambda: phi(lambda t, y: stats.norm.logcdf(y * t)),
        "autograd cannot differentiate phi of the own likelihood: write it with autograd.numpy"),
    "phi with an end": (lambda: phi(lambda t, y: anp.log(t)),
                        r"phi of the own likelihood is \[nan.*every real eta. Put exp\(eta\)"),
    "phi summed": (lambda: phi(lambda t, y: anp.sum(t * y)),
                   "phi of the own likelihood must give one number per row"),
    "phi that mixes": (lambda: phi(lambda t, y: t - anp.mean(t)),
                       "phi of the own likelihood mixes its entries"),
    "phi with an if": (lambda: phi(lambda t, y: t if t > 0 else 0 * t),
                       "phi of the own likelihood fails for eta and y of shape.*np.where for if"),
}  # fmt: skip

OWN = {
    "vectors of two lengths": (lambda: cv.models.GaussianPrior(np.ones(3), np.ones(2)),
                               "the prior has 3 sd's but 2 means"),
    "prior of another dimension": (lambda: model(log_prior=cv.models.GaussianPrior(np.ones(3))),
                                   "log_prior.*the prior has 3 coordinates, z has 2"),
    "no log_lik": (lambda: model(log_lik=None), r"log_lik=None is no function.*\(\.\.\., d\)"),
    "no log_prior": (lambda: model(log_prior=None),
                     r"log_prior=None is no function: give one, such as models.GaussianPrior\(\)"),
    "no data": (lambda: model(data=None), r"data=None: give an array.*np.zeros\(1\)"),
    "no labels": (lambda: model(data=(X, None)), "array 1 of the data holds objects, such as None"),
    "data as text": (lambda: model(data=(X, np.array(list("abb")))),
                     "array 1 of the data holds text, such as 'a'"),
    "data as objects": (lambda: model(data=(X, np.array([{}, 1, 2], object))),
                        "array 1 of the data holds objects"),
    "numpy's where": (lambda: model(lambda z, b: np.where(b[1] > 0, dot(z, b), 0.0)),
                      "autograd takes the slope of log_lik for 0 where it is"),
    "tables with other labels": (lambda: glm(Table([0, 1, 2]), Table([2, 1, 0])),
                                 "different row labels"),
    "columns with other labels": (lambda: model(data=(Table([0, 1, 2]), Table([2, 1, 0]))),
                                  "different row labels"),
    "an if": (lambda: model(lambda z, b: dot(z, b) if z[..., 0] > 0 else 0.0),
              "log_lik fails for z of shape .*ambiguous.*np.where for if"),
    "nothing returned": (lambda: model(lambda z, b: None), "log_lik must give one number per row"),
    "a parameter that must be positive": (
        lambda: model(lambda z, b: anp.log(z[..., 0]) * b[1]),
        r"log_lik is \[nan.*every real z. Put exp\(z\) for what is positive.*declare cv.positive"),
}  # fmt: skip
choose = lambda **how: cv.choose(logistic(), q, W, **{"rng": rng, "pilot": 2} | how)
report = lambda lines=H, **how: cv.report(lines, logistic(), q, W, rng=rng, **how)
CHOICES = {
    "many w": (lambda: cv.choose(logistic(), q, q.start((2,)), rng=rng),
               r"w has shape \(2, 5\): give one w"),
    "a seed to choose": (lambda: choose(rng=3), "give a generator"),
    "an empty table": (lambda: choose(among={}), "{} is no table of bases"),
    "a table as a list": (lambda: choose(among=[ZOO.h]), "write among=.*mine.*h, .*c7"),
    "a base alone": (lambda: choose(among={"h": ZOO.h}), "'h': .* is no pair of h and"),
    "a variate for a base": (lambda: choose(among={"h": (ZOO.c7, {})}), "must estimate data"),
    "a base for a variate": (lambda: choose(among={"h": (ZOO.h, H)}), "no control variate"),
    "a number for a line": (lambda: report(H | {"c7": 3}), "are no lines by name"),
    "a line without a name": (lambda: report(ZOO.h), 'write {"h": h, "c7": c7}'),
    "no costs": (lambda: report(costs={}, pilot=2), "costs say nothing of"),
    "costs a number": (lambda: report(costs=3), "costs=3: write {.RP1"),
    "an unknown argument": (lambda: choose(bach=5), "there is no argument 'bach' here"),
    "sampling a number": (lambda: choose(sampling=5), r"sampling=5: write cv.Sampling\("),
    "an ELBO the wrong way round": (lambda: cv.elbo(q, logistic(), W, 10, rng),
                                    "is a family: the model comes first"),
    "an ELBO of a path": (
        lambda: cv.elbo(
            logistic(), q, cv.optimize.noise_free(logistic(), q, lr=0.1, steps=1), 10, rng
        ),
        "w is a Path: give its weights, .w",
    ),
    **{f"a cost of {c!r}": (lambda c=c: choose(costs={"QD": c}), r"costs\['QD'\]=") for c in COSTS},
    **{f"reported at {c!r}": (lambda c=c: report(costs={"h": c}), r"costs\['h'\]=") for c in COSTS},
}  # fmt: skip
TABLES = MODELS, DRAWS, FAMILIES, GLMS, OWN, CHOICES
CASES = {case: row for table in TABLES for case, row in table.items()}
assert len(CASES) == sum(map(len, TABLES))  # no name twice


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_said(case):
    write, message = CASES[case]
    with pytest.raises((ValueError, TypeError), match=message):
        write()


WIDE = 1e4 * q.start()  # a Poisson rate of exp(10000)


@pytest.mark.parametrize("subsample", [True, False])
@pytest.mark.parametrize(
    "line, culprit",
    [
        (lambda data: RP1(data), r"RP1\(data\)"),
        (lambda data: RP2(data), r"RP2\(data\)"),
        (lambda data: SF(data), r"SF\(data\)"),
        (lambda data: CF(data), r"CF\(data\)"),
        (lambda data: RP1(taylor_x(data)), r"RP1\(taylor_x\(data\)\)"),
    ],
)
def test_a_gradient_that_overflows_names_estimator_and_term(line, culprit, subsample):
    model = cv.models.poisson_regression(np.abs(X), [0, 1, 2])
    data, prior, variational = cv.terms(model, q)
    step = cv.draw(model, q, WIDE, M=20, rng=np.random.default_rng(0), subsample=subsample)
    h = RP1(prior) + line(data) - CF(variational)
    with pytest.raises(
        ValueError, match=culprit + r" is not finite at sample \[\d+\].*smaller step"
    ):
        h(step)
    with pytest.raises(ValueError, match=culprit):
        cv.evaluate([RP1(prior), h], step)
    assert not np.isfinite(cv.evaluate([h], step, check=False)).all()


@pytest.mark.parametrize("name", oracles.PROBLEMS)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 10.0])
def test_ordinary_use_raises_no_warning(name, scale):
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


def test_the_corners_of_legal_input():
    """One data point, one class, a constant column, one sample, a negative diagonal, runs=2."""
    for family in (q, cv.families.DiagonalGaussian(2), cv.families.Gamma(2)):
        assert np.array_equal(family.start(2), family.start((2,)))
    model = glm(np.array([[0.0, 1.0]]), [1])
    zoo = cv.zoo.paper(model, q)
    w = q.pack([0.0, 0.0], np.array([[-1.0, 0.0], [0.5, -2.0]]))
    step = cv.draw(model, q, w, M=1, rng=np.random.default_rng(0))
    assert np.isfinite(cv.evaluate([zoo.h, *zoo.S7, zoo.score], step)).all()
    assert np.allclose(zoo.c5(step), 0, atol=1e-13)  # one data point is all data


def test_a_constant_likelihood_leaves_the_prior():
    flat = lambda z, batch: np.zeros(np.broadcast_shapes(z.shape[:-1], batch[0].shape))
    model = cv.models.Model(flat, cv.models.GaussianPrior([1.0, 2.0]), np.zeros(3), 2)
    assert np.allclose(cv.fit(model, progress=False).sd, [1, 2])


def test_a_quadratic_wants_a_term():
    with pytest.raises(ValueError, match="quadratic stands in for terms of one model, not for one"):
        trained.quadratic(cv.one, None)


def test_a_slider_wants_a_figure():
    with pytest.raises(ValueError, match="needs a figure at least"):
        sliders.slider([], [], label="width", alts=[])
