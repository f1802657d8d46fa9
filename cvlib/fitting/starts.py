"""Where to begin: the mode by the model's gradient, and the best of a few widths about it."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy  # scipy.optimize is loaded at its first use

from ..models import Model
from .density import Density

FULL = 300  # unknowns up to which q has a full covariance
DENSE = 200  # unknowns up to which the search is BFGS, which knows a whole inverse Hessian
NUMBERS = 2**26  # that a Hessian may make of the data
STEPS = 300  # of one search
WIDTHS = (1.0, 0.3, 0.1, 0.03, 0.01)  # to try where no curvature is known
FAR = 1e8  # beyond it nothing is looked for
LEAST = 0.1  # distance from a mode at which to look
FALL = 0.01  # of log p, one standard deviation off the mode: less is flat


class Start(NamedTuple):
    """N(mu, S S^T) to begin with."""

    mu: np.ndarray  # (d,)
    S: np.ndarray  # (d, d) lower triangular, or (d,) its diagonal
    says: str  # where this is
    trouble: str = ""  # what is wrong with log p, or ""
    stopped: bool = False  # from the keyboard


class Mode(NamedTuple):
    """The highest point that a search found."""

    z: np.ndarray  # (d,)
    value: float
    inverse: np.ndarray | None  # (d, d) BFGS's inverse Hessian


def start(
    model: Model,
    full: bool = True,
    given: tuple | None = None,
    late: Callable = lambda: False,
    seed: int = 0,
) -> Start:
    """A Gaussian to begin with: the one of several about the mode that has the best ELBO.

    The search begins at zero, or at the mean that was given. Where it finds no mode, and for a
    diagonal q, another one begins at a random point, and its mode is taken if it lies d nats
    higher. Ctrl-C ends the search.
    """
    rng = np.random.default_rng(seed)
    few = Density.of_some(model, rng)
    z = np.zeros(model.dim) if given is None else given[0]
    found = list(_about(z, full, "z = 0" if given is None else "the point that was given"))
    if given is not None and given[1] is not None:
        found = [Start(given[0], given[1], "the start that was given")]
    near = found
    try:
        mode, trouble = _searched(few, z, late)
        if given is None and (trouble or not full) and not late():
            other, still = _searched(few, rng.standard_normal(model.dim) / 2, late)
            if not still and (trouble or other.value > mode.value + model.dim):
                mode, trouble, near = other, "", []  # a width can be mended, a wrong place hardly
        near = near if trouble else near + _laplace(few, mode, full)
        return _best(few, near, rng)._replace(trouble=trouble)
    except KeyboardInterrupt:
        return found[0]._replace(stopped=True)


def laplace(model: Model, full: bool = True, late: Callable = lambda: False) -> Start:
    """The mode and its curvature: the Laplace approximation."""
    density = Density(model)
    mode, trouble = _searched(density, np.zeros(model.dim), late)
    return _laplace(density, mode, full)[0]._replace(trouble=trouble)


# The mode ----------------------------------------------------------------------------------------


def climb(density: Density, z: np.ndarray, late: Callable = lambda: False) -> Mode:
    """Where BFGS gets from z, or L-BFGS in many dimensions; `late` is asked after every step."""
    best = Mode(z, -np.inf, None)

    def minus(z):
        nonlocal best
        (value,), (slope,) = density.slope(z[None])
        if not (np.isfinite(value) and np.isfinite(slope).all() and np.abs(z).max() < FAR):
            return 1e100, np.zeros_like(z)  # a step that is not taken
        if value > best.value:
            best = Mode(z.copy(), value, None)
        return -value, -slope

    def after(z):
        if late():
            raise StopIteration

    dense = density.model.dim <= DENSE
    with np.errstate(all="ignore"):
        found = scipy.optimize.minimize(
            minus, z, jac=True, method="BFGS" if dense else "L-BFGS-B", callback=after,
            options={"maxiter": STEPS} | ({} if dense else {"maxcor": 20, "ftol": 1e-10}),
        )  # fmt: skip
    inverse = found.hess_inv if dense else found.hess_inv.todense()
    return best._replace(inverse=inverse)


def _searched(density, z, late):
    """The mode, and what is wrong with it or "".

    One standard deviation off a mode log p is lower, in every direction. Where it is higher the
    search goes on: that was a saddle, or the search gave up. Where it stays, there is no mode.
    """
    for _ in range(3):
        mode = climb(density, z, late)
        if not np.isfinite(mode.value):
            return mode, "log p(x, z) is not finite where the search for its mode began"
        if late():
            return mode, ""
        off = _axes(mode.inverse)[: max(8, 2**24 // density.size)]
        length = np.linalg.norm(off, axis=1, keepdims=True)
        off = off * np.maximum(1, LEAST / np.maximum(length, 1e-300))  # at a kink BFGS has no width
        near = mode.z + np.concatenate([off, -off])
        fall = mode.value - np.nan_to_num(density.value(near), nan=-np.inf)
        worst = int(np.argmin(fall))
        if fall[worst] > FALL:
            return mode, ""
        z = near[worst]
        if fall[worst] >= -FALL or np.abs(z).max() > FAR / 100:
            break
    k = int(np.argmax(np.abs(near[worst] - mode.z)))
    how = "rises" if fall[worst] < -FALL else "stays flat"
    return (
        mode,
        f"no mode was found: log p(x, z) {how} along {density.model.names[k]}, {mode.z[k]:.3g} "
        "where it ended",
    )


def _axes(C):
    """Rows one standard deviation along the axes of C, or of its diagonal, the widest first."""
    if len(C) > FULL or not np.isfinite(C).all():
        C = np.diag(np.diag(np.nan_to_num(C, posinf=1.0)))
        order = np.argsort(-np.diag(C))
        return np.sqrt(C)[order]
    l, axes = np.linalg.eigh((C + C.T) / 2)
    return (axes * np.sqrt(np.maximum(l, 0))).T[::-1]


# Widths ------------------------------------------------------------------------------------------


def _laplace(density, mode, full):
    """Gaussians about the mode, the one with the best known curvature first."""
    found = []
    if density.model.dim <= FULL and density.size * density.model.dim <= NUMBERS:
        precision = -density.hessian(mode.z)
        if np.isfinite(precision).all() and np.linalg.eigvalsh(precision)[0] > 0:
            S = _factor(np.linalg.inv(precision)) if full else np.diag(precision) ** -0.5
            found.append(Start(mode.z, S, "the mode and its curvature"))
    if full and mode.inverse is not None:
        found.append(Start(mode.z, _factor(mode.inverse), "the mode and BFGS's curvature"))
    if not full:
        found.append(Start(mode.z, _seen(density, mode.z), "the mode and its curvature in pairs"))
    return found + list(_about(mode.z, full, "the mode"))


def _seen(density, z, width=0.01, pairs=16):
    """Widths by the curvature -E[e_k (slope_k(z + width e) - slope_k(z - width e))] / 2 width."""
    e = np.random.default_rng(0).standard_normal((pairs, len(z)))
    up, down = (density.slope(z + sign * width * e)[1] for sign in (1, -1))
    curvature = np.abs((e * (up - down)).mean(0)) / (2 * width)
    return 1 / np.sqrt(np.maximum(np.nan_to_num(curvature, nan=1e-4), 1e-4))


def _about(z, full, says):
    for width in WIDTHS:
        S = np.full(len(z), width)
        yield Start(z, np.diag(S) if full else S, f"{says}, with a width of {width:g}")


def _factor(C):
    """Lower triangular S with S S^T = C; I where there is none."""
    try:
        return np.linalg.cholesky((C + C.T) / 2)
    except np.linalg.LinAlgError:
        return np.eye(len(C))


def _best(density, found, rng):
    """The start with the best ELBO on common draws."""
    n = int(np.clip(2**23 // (density.size * len(found)), 4, 32))
    eps = rng.standard_normal((n, len(found[0].mu)))
    eps = np.concatenate([eps, -eps])
    z = [s.mu + (eps @ s.S.T if s.S.ndim == 2 else eps * s.S) for s in found]
    value = density.value(np.concatenate(z)).reshape(len(found), -1).mean(1)
    scale = [np.log(np.diag(s.S) if s.S.ndim == 2 else s.S).sum() for s in found]
    return found[np.argmax(np.nan_to_num(value + scale, nan=-np.inf))]
