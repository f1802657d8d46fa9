"""Exact references for generalised linear models: the ELBO and its gradient by quadrature.

Under a Gaussian q each x_i.z is a one-dimensional Gaussian, so the data term is N one-dimensional
integrals, whatever the dimension of z. Where the likelihood knows them they are taken from there
(linear, Poisson). Else they are done by the trapezoidal rule over +- 9 standard
deviations, whose error falls like exp(-2 pi a / step), a the distance of the integrand's nearest
pole from the axis. A logistic likelihood and a wide q bring the poles near; Gauss-Hermite nodes,
few of which lie in the middle, do much worse there.
"""

import numpy as np
from scipy.optimize import minimize

from .models import GLM, check_fit

NODES = 101  # an error near 1e-8 at |x.L| = 6, to rounding below 4; tests: adaptive quadrature


def elbo(model, q, w, nodes=NODES):
    """ELBO(w) = E log p(x | z) + E log p(z) + entropy, (..., D) -> (...)."""
    m, v, mu, scale2 = _marginals(model, q, w)
    value = _expected(model, m, v, nodes, slopes=False).sum(-1)
    sd2 = model.log_prior.sd**2
    log_normaliser = 0.5 * q.dim * np.log(2 * np.pi * sd2)
    prior = -0.5 * ((mu**2).sum(-1) + scale2) / sd2 - log_normaliser
    return value + prior + q.entropy(w)


def gradient(model, q, w, nodes=NODES):
    """grad_w ELBO(w), (..., D)."""
    parts = term_gradients(model, q, w, nodes)
    return parts["data"] + parts["prior"] - parts["variational"]


def term_gradients(model, q, w, nodes=NODES):
    """The exact g1, g2, g3 as {"data": ..., "prior": ..., "variational": ...}, each (..., D)."""
    m, v, mu, _ = _marginals(model, q, w)
    w = np.asarray(w, float)
    d1, d2 = _expected(model, m, v, nodes, slopes=True)
    bend = q.gram(d2[..., None, :], model.X[None], q.unpack(w)[1])[..., 0, :]
    sd2 = model.log_prior.sd**2
    return {
        "data": np.concatenate([d1 @ model.X, bend], -1),
        "prior": -w / sd2,
        "variational": -q.entropy_grad(w),
    }


def optimum(model, q, w=None, nodes=NODES):
    """The w of the best ELBO in the family, by L-BFGS on the exact ELBO and gradient."""
    found = minimize(
        lambda w: -elbo(model, q, w, nodes) / model.N,
        q.start() if w is None else w,
        jac=lambda w: -gradient(model, q, w, nodes) / model.N,
        method="L-BFGS-B",
        options={"maxiter": 5000, "maxfun": 10000, "ftol": 1e-15, "gtol": 1e-9},
    )
    if np.abs(found.jac).max() > 1e-5:
        raise RuntimeError(f"the optimum was not reached: {found.message}")
    return found.x


def _marginals(model, q, w):
    """Mean and variance of each x_i.z, (..., N) both; mu; trace of the covariance."""
    if not isinstance(model, GLM):
        raise ValueError(f"exact references need a generalised linear model, not {model!r}")
    if not q.gaussian:
        raise ValueError(f"an exact reference needs a Gaussian family, not {q!r}")
    check_fit(model, q)
    w = q.check(w)
    mu, factor = q.unpack(w)
    X = np.broadcast_to(model.X, (*w.shape[:-1], *model.X.shape))
    v = (q.times_t(factor, X) ** 2).sum(-1)
    return mu @ model.X.T, v, mu, (w[..., q.dim :] ** 2).sum(-1)


def _expected(model, m, v, nodes, slopes):
    """E phi(eta, y), or with slopes E phi' and E phi'', for eta ~ N(m, v), each (..., N)."""
    likelihood, y = model.likelihood, model.y[:, None]
    if likelihood.expected is not None:  # E exp(eta) of a wide q lies outside of any fixed nodes
        value, *rest = likelihood.expected(m, v, model.y)
        return rest if slopes else value
    points = np.linspace(-9, 9, nodes)
    weights = np.exp(-(points**2) / 2)
    weights = weights / weights.sum()
    eta = m[..., None] + np.sqrt(v)[..., None] * points
    if slopes:
        return [f @ weights for f in likelihood.derivatives(eta, y, 2)]
    return likelihood.phi(eta, y) @ weights
