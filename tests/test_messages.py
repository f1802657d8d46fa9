"""What a reader may hand to a model by mistake: each is refused with what would be right."""

import autograd.numpy as anp
import numpy as np
import pytest
from scipy import stats

import cvlib as cv

X = np.array([[0.5, -1.0], [0.2, 0.3], [1.0, 1.0], [0.1, -0.4]])
SIGNS = np.array([1.0, -1.0, 1.0, 1.0])
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


GLMS = {
    "prior_sd of another length": (
        lambda: glm(X, SIGNS, np.ones(3)),
        r"prior_sd must be a number or \(2,\); got \(3,\)",
    ),
    "prior_sd a matrix": (lambda: glm(X, SIGNS, np.eye(2)), r"prior_sd .* got \(2, 2\)"),
    "prior_sd text": (lambda: glm(X, SIGNS, "1"), "prior_sd holds text, such as '1': give"),
    "prior_sd with a 0": (lambda: glm(X, SIGNS, [1.0, 0.0]), "prior's sd=.*must be positive"),
    "prior_sd infinite": (lambda: glm(X, SIGNS, np.inf), "prior_sd must be finite, not inf"),
    "prior_mean of another length": (
        lambda: glm(X, SIGNS, prior_mean=[1.0, 2.0, 3.0]),
        r"prior_mean must be a number or \(2,\); got \(3,\)",
    ),
    "prior_mean NaN": (lambda: glm(X, SIGNS, prior_mean=np.nan), "prior_mean must be finite"),
    "offset a number": (lambda: glm(X, SIGNS, offset=1.0), r"offset must be \(4,\).*got \(\)"),
    "offset too short": (lambda: glm(X, SIGNS, offset=[1.0]), r"offset must be \(4,\).*\(1,\)"),
    "offset NaN": (lambda: glm(X, SIGNS, offset=[1.0, np.nan, 0, 0]), r"nan at \[1\]"),
    "likelihood by name": (
        lambda: cv.models.GLM(X, SIGNS, "probit"),
        r"likelihood='probit': give models.LOGISTIC.*models.Likelihood\(name, phi\)",
    ),
    "likelihood a class": (lambda: cv.models.GLM(X, SIGNS, cv.models.Likelihood), "likelihood=<"),
    "labels as text": (
        lambda: glm(X, ["yes", "no", "no", "yes"]),
        r"y holds text, such as 'yes'.*np.where\(label == 'yes', 1.0, -1.0\)",
    ),
    "labels as objects": (
        lambda: glm(X, np.array([1, None, 1, -1], object)),
        "y holds objects, such as 1: give numbers, as floats",
    ),
    "features as text": (lambda: glm([["a", "b"]] * 4, SIGNS), "X holds text, such as 'a'"),
    "rows of unequal length": (lambda: glm([[1.0], [1.0, 2.0]], SIGNS), "X has rows of unequal"),
    "complex features": (lambda: glm(1j * X, SIGNS), "X holds complex128 numbers"),
    "noise_sd a vector": (
        lambda: cv.models.linear_regression(X, SIGNS, noise_sd=np.ones(4)),
        r"noise_sd=.*one number, not \(4,\) of them",
    ),
    "scipy in phi": (
        lambda: phi(lambda t, y: stats.norm.logcdf(y * t)),
        "autograd cannot differentiate phi of the own likelihood: write it with autograd.numpy",
    ),
    "phi with an end": (
        lambda: phi(lambda t, y: anp.log(t)),
        r"phi of the own likelihood is \[nan.*every real eta. Put exp\(eta\)",
    ),
    "phi summed": (
        lambda: phi(lambda t, y: anp.sum(t * y)),
        "phi of the own likelihood must give one number per row",
    ),
    "phi that mixes": (
        lambda: phi(lambda t, y: t - anp.mean(t)),
        "phi of the own likelihood mixes its entries",
    ),
    "phi with an if": (
        lambda: phi(lambda t, y: t if t > 0 else 0 * t),
        "phi of the own likelihood fails for eta and y of shape.*np.where for if",
    ),
}

OWN = {
    "vectors of two lengths": (
        lambda: cv.models.GaussianPrior(np.ones(3), np.ones(2)),
        "the prior has 3 sd's but 2 means",
    ),
    "prior of another dimension": (
        lambda: model(log_prior=cv.models.GaussianPrior(np.ones(3))),
        "log_prior.*the prior has 3 coordinates, z has 2",
    ),
    "prior of three dimensions for one": (
        lambda: model(lambda z, b: z[..., 0] * b[1], cv.models.GaussianPrior(np.ones(3)), dim=1),
        "the prior has 3 coordinates, z has 1",
    ),
    "no log_lik": (lambda: model(log_lik=None), r"log_lik=None is no function.*\(\.\.\., d\)"),
    "no log_prior": (
        lambda: model(log_prior=None),
        r"log_prior=None is no function: give one, such as models.GaussianPrior\(\)",
    ),
    "no data": (lambda: model(data=None), r"data=None: give an array.*np.zeros\(1\)"),
    "no labels": (lambda: model(data=(X, None)), "array 1 of the data holds objects, such as None"),
    "data as text": (
        lambda: model(data=(X, np.array(list("abba")))),
        "array 1 of the data holds text, such as 'a'",
    ),
    "data as objects": (
        lambda: model(data=(X, np.array([{}, 1, 2, 3], object))),
        "array 1 of the data holds objects",
    ),
    "scipy in log_lik": (
        lambda: model(lambda z, b: stats.norm.logpdf(b[1], dot(z, b))),
        "autograd cannot differentiate log_lik: write it with autograd.numpy",
    ),
    "scipy in log_prior": (
        lambda: model(log_prior=lambda z: stats.norm.logpdf(z).sum(-1)),
        "autograd cannot differentiate log_prior",
    ),
    "numpy's where": (
        lambda: model(lambda z, b: np.where(b[1] > 0, dot(z, b), 0.0)),
        "autograd takes the slope of log_lik for 0 where it is",
    ),
    "tables with other labels": (
        lambda: glm(Table([0, 1, 2]), Table([2, 1, 0])),
        "different row labels",
    ),
    "columns with other labels": (
        lambda: model(data=(Table([0, 1, 2]), Table([2, 1, 0]))),
        "different row labels",
    ),
    "an if": (
        lambda: model(lambda z, b: dot(z, b) if z[..., 0] > 0 else 0.0),
        "log_lik fails for z of shape .*ambiguous.*np.where for if",
    ),
    "z transposed": (
        lambda: model(lambda z, b: anp.sum(b[0].T * z.T, 0)),
        r"log_lik fails for z of shape \(3, 1, 2\) and rows of data of shape \(4,\).*broadcast",
    ),
    "data left out": (
        lambda: model(lambda z, b: z[..., 0]),
        r"it gave float64 of shape \(3, 1\), not numbers of shape \(3, 4\)",
    ),
    "nothing returned": (lambda: model(lambda z, b: None), "log_lik must give one number per row"),
    "a parameter that must be positive": (
        lambda: model(lambda z, b: anp.log(z[..., 0]) * b[1]),
        r"log_lik is \[nan.*every real z. Put exp\(z\) for what is positive.*declare cv.positive",
    ),
    "a prior that ends": (
        lambda: model(log_prior=lambda z: anp.where(anp.abs(z[..., 0]) < 1, 0.0, -np.inf)),
        r"log_prior is \[-inf.*must be a number for every real z",
    ),
}
CASES = {**GLMS, **OWN}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("error", "ignore::ResourceWarning")  # others leave those behind
def test_what_is_wrong_is_said(case):
    write, message = CASES[case]
    with pytest.raises(ValueError, match=message):
        write()
