"""The recipe by definition, one sample at a time: read this first.

A control variate is the difference of two estimators of the same thing (Geffner and Domke 2018).
Here everything is what the paper says it is: autograd differentiates through w, an estimator takes
a draw to a gradient (D,), nothing is made fast, nothing is checked. The rest of the package is the
fast version, for many samples and runs at once, and tests hold it to this file.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from types import SimpleNamespace
from typing import Any, NamedTuple

import autograd.numpy as np
from autograd import grad, hessian, jacobian
from autograd.extend import defvjp, primitive
from scipy.linalg import solve_sylvester

# The family q_w -----------------------------------------------------------------------------------


class Gaussian:
    """q_w = N(mu, L L^T); w has mu, and the lower triangle of L row by row: D = d + d (d + 1) / 2.

    Other families have the same `transform` and `log_density`, those of `cvlib.families` too.
    """

    def __init__(self, d: int) -> None:
        self.d, self.D = d, d + d * (d + 1) // 2
        self.place = np.eye(d * d)[:, np.tril(np.ones((d, d))).ravel() > 0]  # (d d, D - d)

    def unpack(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """mu (d,) and L (d, d)."""
        return w[: self.d], np.reshape(self.place @ w[self.d :], (self.d, self.d))

    def transform(self, w: np.ndarray, eps: np.ndarray) -> np.ndarray:
        """T_w(eps) = mu + L eps, which has the distribution q_w if eps has N(0, I)."""
        mu, L = self.unpack(w)
        return mu + L @ eps

    def transform2(self, w: np.ndarray, eps: np.ndarray) -> np.ndarray:
        """Another one: mu + (L L^T)^(1/2) eps, with the symmetric square root."""
        mu, L = self.unpack(w)
        return mu + square_root(L @ L.T) @ eps

    def log_density(self, w: np.ndarray, z: np.ndarray) -> np.ndarray:
        """log q_w(z)."""
        mu, L = self.unpack(w)
        e = np.linalg.solve(L, z - mu)
        return -e @ e / 2 - np.sum(np.log(np.abs(np.diag(L)))) - self.d / 2 * np.log(2 * np.pi)


@primitive
def square_root(A: np.ndarray) -> np.ndarray:
    """The symmetric S with S S = A."""
    s2, U = np.linalg.eigh(A)
    return (U * np.sqrt(s2)) @ U.T


# S dS + dS S = dA; as S is symmetric, gradients go back by the same equation.
defvjp(square_root, lambda S, A: lambda G: solve_sylvester(S, S, G))


# Draws and integrands -----------------------------------------------------------------------------


class Draw(NamedTuple):
    """One base sample eps, at the weights w of the family q, and the data that it sees."""

    q: Any
    w: np.ndarray  # (D,)
    eps: np.ndarray  # (d,)
    i: Any = None  # a data point, or several; None: all data

    @property
    def z(self) -> np.ndarray:
        """A sample of q_w, (d,)."""
        return self.q.transform(self.w, self.eps)


@dataclass
class Integrand:
    """The f of E_q f(Z): a draw makes it a function of z. What it has from w is held fixed."""

    of: Callable  # draw -> a function (d,) -> a number

    def __call__(self, draw: Draw) -> Callable:
        return self.of(draw)

    def __add__(self, other: "Integrand") -> "Integrand":
        both = lambda f, g: lambda z: f(z) + g(z)
        return Integrand(lambda draw: both(self(draw), other(draw)))

    def over_all_data(self) -> "Integrand":
        """The same f on all data, whichever point was drawn."""
        return Integrand(lambda draw: self(draw._replace(i=None)))


def seen(data: tuple, i: Any) -> tuple[tuple, float]:
    """The rows i of the data, all if i is None, and the factor by which they stand for all."""
    N = len(data[0])
    rows = np.arange(N) if i is None else np.atleast_1d(i)
    return tuple(a[rows] for a in data), N / len(rows)


def terms(model: Any) -> tuple[Integrand, Integrand, Integrand]:
    """data, prior, variational: the ELBO is E_q[data + prior - variational].

    A model has log_lik(z, rows), one number a row, log_prior(z), and data, as in `cvlib.models`.
    """

    def data(draw):
        rows, scale = seen(model.data, draw.i)
        return lambda z: scale * np.sum(model.log_lik(z, rows))

    prior = lambda draw: model.log_prior
    variational = lambda draw: lambda z: draw.q.log_density(draw.w, z)
    return Integrand(data), Integrand(prior), Integrand(variational)


one = Integrand(lambda draw: lambda z: 1.0)


# Approximations: integrands in place of others ----------------------------------------------------


def taylor_z(f: Integrand) -> Integrand:
    """f to second order in z, about the mean of q."""

    def of(draw):
        mu, _ = draw.q.unpack(draw.w)
        f0, slope, H = f(draw)(mu), grad(f(draw))(mu), hessian(f(draw))(mu)
        return lambda z: f0 + slope @ (z - mu) + (z - mu) @ H @ (z - mu) / 2

    return Integrand(of)


def taylor_x(model: Any) -> Integrand:
    """The data term of a classification (X, y) to second order in x, about the mean x of y's class.

    With x = mean + t (x - mean), the expansion in x is the one in t, from t = 0 to t = 1.
    """
    X, y = model.data
    means = np.stack([X[y == label].mean(0) for label in y])  # (N, d)

    def of(draw):
        (x, label, mean), scale = seen((X, y, means), draw.i)
        at = lambda t, z: scale * np.sum(model.log_lik(z, (mean + t * (x - mean), label)))
        return lambda z: at(0.0, z) + grad(at)(0.0, z) + grad(grad(at))(0.0, z) / 2

    return Integrand(of)


def bound(model: Any) -> Integrand:
    """A quadratic below the data term of logistic regression (Jaakkola and Jordan 2000).

    log sigmoid(t) >= log sigmoid(xi) + (t - xi) / 2 - lam (t^2 - xi^2), t = y x.z; xi^2 = E_q t^2.
    """

    def of(draw):
        (x, y), scale = seen(model.data, draw.i)
        mu, L = draw.q.unpack(draw.w)
        xi = np.sqrt((x @ mu) ** 2 + np.sum((x @ L) ** 2, -1))
        lam = np.tanh(xi / 2) / (4 * xi)
        of_t = lambda t: -np.log1p(np.exp(-xi)) + (t - xi) / 2 - lam * (t**2 - xi**2)
        return lambda z: scale * np.sum(of_t(y * (x @ z)))

    return Integrand(of)


# Estimators of grad_w E_q f(Z) --------------------------------------------------------------------


@dataclass
class Estimator:
    """A function from a draw to a gradient, (D,). Estimators add and subtract."""

    of: Callable  # draw -> (D,)

    def __call__(self, draw: Draw) -> np.ndarray:
        return self.of(draw)

    def __add__(self, other: "Estimator") -> "Estimator":
        return Estimator(lambda draw: self(draw) + other(draw))

    def __sub__(self, other: "Estimator") -> "Estimator":
        return Estimator(lambda draw: self(draw) - other(draw))


def method(gradient: Callable) -> Callable[[Integrand], Estimator]:
    """gradient(f, draw), f a function of z, as a function from integrands to estimators."""
    return wraps(gradient)(lambda f: Estimator(lambda draw: gradient(f(draw), draw)))


@method
def SF(f: Callable, draw: Draw) -> np.ndarray:
    """f(Z) grad_w log q_w(Z), with Z held fixed: score function."""
    q, w, z = draw.q, draw.w, draw.z
    return f(z) * grad(lambda w: q.log_density(w, z))(w)


@method
def RP1(f: Callable, draw: Draw) -> np.ndarray:
    """grad_w f(T_w(eps)), with eps held fixed: reparameterised."""
    return grad(lambda w: f(draw.q.transform(w, draw.eps)))(draw.w)


@method
def RP2(f: Callable, draw: Draw) -> np.ndarray:
    """The same with the symmetric square root of a Gaussian's covariance."""
    return grad(lambda w: f(draw.q.transform2(w, draw.eps)))(draw.w)


@method
def GR(f: Callable, draw: Draw) -> np.ndarray:
    """f(T_w(eps)) grad_w log qbar_w(eps) + grad_w f(T_w(eps)): generalised.

    qbar_w(eps) = q_w(T_w(eps)) |det dT_w / deps|, the density of eps, may depend on w.
    """
    q, w, eps = draw.q, draw.w, draw.eps

    def log_base(w):
        slopes = jacobian(q.transform, 1)(w, eps)  # (d, d)
        return q.log_density(w, q.transform(w, eps)) + np.linalg.slogdet(slopes)[1]

    return f(draw.z) * grad(log_base)(w) + grad(lambda w: f(q.transform(w, eps)))(w)


@method
def CF(f: Callable, draw: Draw) -> np.ndarray:
    """grad_w E_q f(Z) in closed form, for a quadratic f: E f = f(mu) + tr(H L L^T) / 2."""
    H = hessian(f)(draw.q.unpack(draw.w)[0])

    def mean(w):
        mu, L = draw.q.unpack(w)
        return f(mu) + np.sum(L * (H @ L)) / 2

    return grad(mean)(draw.w)


# The paper's variates -----------------------------------------------------------------------------


def paper(model: Any) -> SimpleNamespace:
    """h, the score, c1 to c7, Miller's and Paisley's variates for logistic regression."""
    data, prior, variational = terms(model)
    in_z, in_x, below = taylor_z(data), taylor_x(model), bound(model)
    whole = taylor_z(data + prior)
    return SimpleNamespace(
        h=RP1(data) + RP1(prior) - CF(variational),
        score=SF(one),
        c1=RP1(variational) - CF(variational),
        c2=RP1(prior) - CF(prior),
        c3=RP1(prior) - RP2(prior),
        c4=RP1(data) - RP2(data),
        c5=RP1(in_x) - RP1(in_x.over_all_data()),
        c6=RP2(in_x) - RP2(in_x.over_all_data()),
        c7=CF(in_z) - RP1(in_z),
        miller=CF(whole) - RP1(whole),
        paisley=CF(whole) - SF(whole),
        paisley_bound=CF(below + prior) - SF(below + prior),
    )


# Weights, and the loop ----------------------------------------------------------------------------


def bayes_weights(CC: np.ndarray, Ch: np.ndarray, M: float, v0: float, D: int) -> np.ndarray:
    """a = -(D v0 / M I + CC)^-1 Ch, with CC (L, L) the mean of C^T C, Ch (L,) that of C^T h."""
    return -np.linalg.solve(D * v0 / M * np.eye(len(Ch)) + CC, Ch)


def ascend(
    model: Any, q: Any, h: Estimator, cvs: list[Estimator], w: np.ndarray, *, lr: float, M: int,
    steps: int, rng: Any, v0: float = 1e-3, gamma: float = 0.02, beta: float = 0.9,
) -> np.ndarray:  # fmt: skip
    """w after steps of momentum on ELBO / N by g = mean of h + C a.

    The weights a come from samples of the steps before, so that g is unbiased; one of k steps ago
    counts (1 - gamma)^k, and all together M_eff.
    """
    N, L = len(model.data[0]), len(cvs)
    v, a = np.zeros(q.D), np.zeros(L)
    CC, Ch, M_eff = np.zeros((L, L)), np.zeros(L), 0.0  # sums over samples
    for _ in range(steps):
        eps, index = rng.standard_normal((M, q.d)), rng.integers(N, size=M)
        draws = [Draw(q, w, *pair) for pair in zip(eps, index)]
        base = np.array([h(draw) for draw in draws]) / N  # (M, D)
        C = np.array([[c(draw) for c in cvs] for draw in draws]).reshape(M, L, q.D) / N
        v = beta * v + (1 - beta) * (base.mean(0) + a @ C.mean(0))
        w = w + lr * v
        CC = (1 - gamma) * (CC + np.einsum("mkD,mlD->kl", C, C))
        Ch = (1 - gamma) * (Ch + np.einsum("mkD,mD->k", C, base))
        M_eff = (1 - gamma) * (M_eff + M)
        a = bayes_weights(CC / M_eff, Ch / M_eff, M_eff, v0, q.D)
    return w
