"""Twenty more models with known posteriors, written after the rules that `known` calibrated.

    python -m benchmarks.held_out

The judge, its limits and its options are those of `benchmarks.known`. All truths are closed forms
or one sum over a grid.
"""

from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.scipy import stats as ad
from scipy import stats

import cvlib as cv

from . import known
from .known import Case, even, no_rows, of_law, own

MODELS: dict[str, Any] = {}
held_out = known.kept(MODELS)


def alone(law, log, constraint=cv.real, heavy=False):
    """One number whose posterior is a law of SciPy."""
    return Case(no_rows(lambda p: log(p.x), x=constraint), {"x": of_law(law)}, heavy=heavy)


def flat(law, log, heavy=False, **parameters):
    """Independent numbers, all of one law; `no_rows` of an array that need not be real."""
    (name, declared), *_ = parameters.items()
    n = declared if isinstance(declared, int) else declared.shape[0]
    log_lik = lambda p, b: 0 * b[0] * p[name][..., 0]
    model = own(log_lik, lambda p: anp.sum(log(p[name]), -1), np.zeros(1), **parameters)
    return Case(model, {name: of_law(law, (n,))}, heavy=heavy)


@held_out
def five_rows_and_a_scale():
    y = np.array([0.4, -1.2, 0.7, 2.1, -0.3])
    log_lik = lambda p, b: -anp.log(p.s) - 0.5 * (b[0] / p.s) ** 2
    return known.gridded(log_lik, lambda p: -(p.s**2) / 8, (y,), s=known.scale(-5, 5, 20_001))


@held_out
def two_peaks_of_unlike_width():
    log = lambda p: anp.logaddexp(
        np.log(0.7) + ad.norm.logpdf(p.x, 0.0, 1.0), np.log(0.3) + ad.norm.logpdf(p.x, 6.0, 0.5)
    )
    where = np.array([[0.0], [6.0]]), np.array([[1.0], [0.5]])
    return Case(
        no_rows(log, x=cv.real), {"x": known.of_normals(np.array([0.7, 0.3]), *where)[:, 0]}
    )


@held_out
def a_sharp_banana():
    log = lambda p: -0.125 * p.a**2 - 8 * (p.b - 0.5 * p.a**2) ** 2
    return known.prior_alone(log, a=even(-11, 11, 1201), b=even(-2, 60, 6001))


@held_out
def a_funnel_of_six():
    log = lambda p: -0.5 * (p.v / 1.5) ** 2 - 2.5 * p.v - 0.5 * anp.sum(p.x**2, -1) * anp.exp(-p.v)
    v, each, _ = even(-7.5, 7.5, 601)
    x, part, _ = known.wide(6, 8001)
    density = stats.norm.pdf(x[:, None], 0, np.exp(v / 2)) @ (each * stats.norm.pdf(v, 0, 1.5))
    one = known.marginal(x, density * part)
    truth = {"v": of_law(stats.norm(0, 1.5)), "x": np.repeat(one[:, None], 5, 1)}
    return Case(no_rows(log, v=cv.real, x=5), truth)


@held_out
def ten_of_a_joint_student_law():
    log = lambda p: -6.5 * anp.log(1 + anp.sum(p.x**2, -1) / 3)
    return Case(no_rows(log, x=10), {"x": of_law(stats.t(3), (10,))}, heavy=True)


@held_out
def shares_of_five():
    a = np.array([0.7, 1.0, 2.0, 3.0, 5.0])
    log = lambda p: anp.sum((a - 1) * anp.log(p.x), -1)
    laws = [stats.beta(one, a.sum() - one) for one in a]
    log_lik = lambda p, b: 0 * b[0] * p.x[..., 0]
    model = own(log_lik, log, np.zeros(1), x=cv.simplex(5))
    return Case(model, {"x": np.transpose([*map(of_law, laws)])})


@held_out
def three_in_order():
    x = even(-6, 6, 12_001).x
    F, f = stats.norm.cdf(x), stats.norm.pdf(x)
    truth = np.transpose([known.marginal(x, F**k * (1 - F) ** (2 - k) * f) for k in range(3)])
    log_lik = lambda p, b: 0 * b[0] * p.x[..., 0]
    model = own(log_lik, lambda p: -0.5 * anp.sum(p.x**2, -1), np.zeros(1), x=cv.ordered(3))
    return Case(model, {"x": truth})


def leaning(d, rho):
    """Normal laws with one correlation between all."""
    P = np.linalg.inv((1 - rho) * np.eye(d) + rho)
    log = lambda p: -0.5 * anp.sum(p.x * anp.dot(p.x, P), -1)
    return Case(no_rows(log, x=d), {"x": of_law(stats.norm(), (d,))})


both_logs = lambda x: anp.log(x) + anp.log1p(-x)
MODELS |= {
    "a gumbel law": lambda: alone(stats.gumbel_r(), lambda x: -x - anp.exp(-x)),
    "a skewed normal law": lambda: alone(
        stats.skewnorm(4), lambda x: -0.5 * x**2 + ad.norm.logcdf(4 * x)
    ),
    "a share at both ends": lambda: flat(
        stats.beta(0.4, 0.4), lambda x: -0.6 * both_logs(x), x=cv.interval(0, 1)(1)
    ),
    "a small gamma shape": lambda: flat(
        stats.gamma(0.3), lambda x: -0.7 * anp.log(x) - x, x=cv.positive(1)
    ),
    "an inverse gaussian law": lambda: flat(
        stats.invgauss(1.0), lambda x: -1.5 * anp.log(x) - (x - 1) ** 2 / (2 * x), x=cv.positive(1)
    ),
    "a wide lognormal law": lambda: flat(
        stats.lognorm(1.5), lambda x: -0.5 * (anp.log(x) / 1.5) ** 2 - anp.log(x), heavy=True,
        x=cv.positive(1),
    ),
    "eight laplace laws": lambda: flat(stats.laplace(), lambda x: -anp.abs(x), x=8),
    "ten uniform shares": lambda: flat(stats.uniform(), lambda x: 0 * x, x=cv.interval(0, 1)(10)),
    "forty that lean and a diagonal q": lambda: known.diagonal(leaning(40, 0.3)),
    "twelve that lean a little and a diagonal q": lambda: known.diagonal(leaning(12, 0.05)),
    "eighty that lean": lambda: leaning(80, 0.5),
    "fifty inverse gammas": lambda: flat(
        stats.invgamma(6, scale=5), lambda x: -7 * anp.log(x) - 5 / x, x=cv.positive(50)
    ),
    "thirty logistic laws": lambda: flat(
        stats.logistic(), lambda x: -x - 2 * anp.logaddexp(0, -x), x=30
    ),
}  # fmt: skip


if __name__ == "__main__":
    known.main(MODELS)
