"""Where to begin: the mode of the posterior and its curvature, or the best there is without one."""

from typing import NamedTuple

import autograd.numpy as anp
import numpy as np
import scipy  # scipy.optimize is loaded at its first use
from autograd import elementwise_grad

from ..advice.candidates import DENSE
from ..models import GLM, passes
from ..recipe.snapshots import snapshot
from ..special import hess_times

STEPS = 100  # of the search
NARROW = 0.1  # of the curvature's width: there the search for a width begins
FLAT = 1e-8  # curvature in the flattest direction, in units of the coordinates' own
LATE = "no mode was found in time"


class Start(NamedTuple):
    """N(mu, S S^T) to begin with."""

    mu: np.ndarray  # (d,)
    S: np.ndarray  # (d, d) lower triangular, or (d,) its diagonal
    mode: bool  # was there a mode?
    says: str  # one sentence
    stopped: bool = False  # from the keyboard


def start(model, full=True, out_of_time=lambda: False):
    """A Gaussian to begin with, in two moves; S is (d, d), or (d,) if not full.

    The mode of log p(x, z) and its curvature say where the posterior is and in which coordinates it
    is round. In these, q of independent coordinates is fitted on a few fixed draws: where the
    posterior is skewed the mode lies off its mass, and its curvature is not that of the whole. A
    GLM does without. Ctrl-C ends the search where it is.
    """
    here, stopped = None, False
    mu, S = np.zeros(model.dim), np.eye(model.dim)
    with np.errstate(all="ignore"):  # what overflows is a step that is not taken
        try:
            for here in _climb(model, out_of_time):  # noqa: B007  the last one counts
                pass
            trouble = _trouble(here)
            if not trouble:
                mu, S = here.mu, _scales(-here.hessian, full)
            if not isinstance(model, GLM) or trouble:
                mu, sd = _mean_field(model, mu, S, out_of_time)
                S = S * sd
        except KeyboardInterrupt:
            stopped, trouble = True, ""
            if here is not None and _trouble(here) in ("", LATE):
                mu, S = here.mu, _scales(-here.hessian, full)
    says = "began at the mode, in the coordinates of its curvature"
    if trouble:
        says = f"{trouble}; began at z = 0, in the coordinates as they are"
    if stopped:
        says = "the search for the mode was stopped from the keyboard; began where it was"
    return Start(mu, S if full else np.diag(S), not trouble, says, stopped)


def log_joint(model, z):
    """log p(x, z) for z (..., d), part by part of the data, as (...)."""
    parts = passes.slices(model.data, z.size)
    return sum(_data(model, z, rows) for rows in parts) + model.log_prior(z)


def tried(f, *args):
    """f(*args), or NaN where a matrix of the model is singular."""
    try:
        return f(*args)
    except np.linalg.LinAlgError:
        return np.nan


def _data(model, z, rows):
    """log p(x | z) of some rows, (...)."""
    if isinstance(model, GLM):
        eta = anp.dot(z, model.X[rows].T)
        eta = eta if model.offset is None else eta + model.offset[rows]
        return anp.sum(model.likelihood.phi(eta, model.y[rows]), -1)
    return anp.sum(model.log_lik(z[..., None, :], tuple(a[rows] for a in model.data)), -1)


def _local(model, z):
    """Value, slope and Hessian of the log joint at z (d,), as a `Snapshot`."""
    data, prior = snapshot(model, z), model.log_prior
    points = np.broadcast_to(z, (len(z), len(z)))
    return data._replace(
        value=data.value + prior(z),
        slope=data.slope + elementwise_grad(lambda z: prior(z) + 0 * z[..., 0])(z),
        hessian=data.hessian + hess_times(prior, points, np.eye(len(z))),
    )


def _climb(model, out_of_time):
    """The log joint about points that lie higher and higher, each a `Snapshot`.

    Newton's steps with every curvature taken for a fall, shortened until they climb (Levenberg and
    Marquardt's way), in units of the coordinates' own curvature. In many dimensions L-BFGS climbs.
    """
    z = np.zeros(model.dim)
    if model.dim > DENSE:
        z = _lbfgs(lambda z: log_joint(model, z), z, out_of_time)
    here, damping = _local(model, z), 1e-3
    yield here
    for _ in range(STEPS):
        if not np.isfinite(here.hessian).all():
            return
        fall, axes, unit = _curvature(here.hessian)
        slope = axes.T @ (here.slope * unit)
        gain = slope @ (slope / (np.abs(fall) + 1e-12))
        if gain < 1e-4 and fall[0] > 0:
            return
        if fall[0] <= 0 and gain < 1e-4:
            slope = slope + 0.1 * (fall < 0)  # a saddle: go down one of its sides
        while damping < 1e12:
            step = unit * (axes @ (slope / (np.abs(fall) + damping)))
            value = tried(log_joint, model, here.mu + step)
            if np.isfinite(value) and value > here.value:
                break
            damping *= 4
        else:
            return
        damping = max(damping / 10, 1e-12)
        here = _local(model, here.mu + step)
        yield here
        if out_of_time() or model.dim > DENSE:
            return


def _trouble(here):
    """What is wrong with the highest point found, or ""."""
    if not np.isfinite(here.hessian).all():
        return "the log joint has no finite curvature where its mode was looked for"
    fall, axes, unit = _curvature(here.hessian)
    if not fall[0] > FLAT:
        steepest = int(np.argmax(np.abs(axes[:, 0])))
        return f"the posterior has no proper mode: it is flat or rises along z[{steepest}]"
    slope = axes.T @ (here.slope * unit)
    return LATE if slope @ (slope / fall) > 1.0 else ""


def _scales(P, full):
    """S (d, d) with S S^T the inverse of P, or of its diagonal."""
    return _factor(P) if full else np.diag(1 / np.sqrt(np.diag(P)))


def _curvature(H):
    """Eigenvalues (rising) and axes of -H in units of its own diagonal, and these units (d,)."""
    unit = 1 / np.sqrt(np.maximum(np.abs(np.diag(H)), 1e-300))
    unit = np.where(np.diag(H) == 0, 1.0, unit)
    fall, axes = np.linalg.eigh(-H * unit * unit[:, None])
    return fall, axes, unit


def _factor(P):
    """Lower triangular S with S S^T = P^-1."""
    R = np.linalg.cholesky(P[::-1, ::-1])[::-1, ::-1]  # P = R R^T, R upper triangular
    return np.linalg.inv(R).T


def _mean_field(model, mu, S, out_of_time):
    """The best q of independent coordinates u, z = mu + S u: its mean in z, its sd in u, (d,) each.

    On fixed draws the ELBO is an ordinary function, and L-BFGS climbs it (deterministic ADVI,
    Giordano, Ingram and Broderick 2024).
    """
    d, n = model.dim, 16 if model.N * model.dim < 2**15 else 6  # pairs of draws
    eps = np.random.default_rng(0).standard_normal((n, d))
    eps = np.concatenate([eps, -eps])

    def elbo(v):
        u = v[:d] + anp.exp(v[d:]) * eps  # (2 n, d)
        return anp.mean(log_joint(model, mu + anp.dot(u, S.T))) + anp.sum(v[d:])

    v = _lbfgs(elbo, np.repeat([0.0, np.log(NARROW)], d), out_of_time)
    return mu + S @ v[:d], np.exp(v[d:])


def _lbfgs(f, u, out_of_time):
    """Where L-BFGS gets from u, climbing f."""
    slope = elementwise_grad(lambda u: f(u) + 0 * u[0])
    best = [u]

    def minus(u):
        value = tried(f, u)
        g = tried(slope, u) if np.isfinite(value) else np.nan
        return (-value, -g) if np.isfinite(g).all() else (1e100, np.zeros_like(u))

    def after(u):
        best[0] = u.copy()
        if out_of_time():
            raise StopIteration

    options = {"maxiter": STEPS, "ftol": 1e-7}
    scipy.optimize.minimize(minus, u, jac=True, method="L-BFGS-B", callback=after, options=options)
    return best[0]
