"""Exact references for generalised linear models: the ELBO and its gradient by quadrature.

Under a Gaussian q each eta_i = x_i.z + offset_i is a one-dimensional Gaussian, so the data term is
N one-dimensional integrals, whatever the dimension of z; the likelihood does them.
"""

import numpy as np
import scipy

from ..families.base import Family, check_fit
from ..models import Model, passes
from ..models.glm import TOLERANCE
from .rules import natural

STEPS, SETTLED = 60, 1e-10  # natural steps to try, and the gradient of ELBO / N to stop at
WIDE = 6.0  # sd of an eta under q.start(), from which on natural steps may overflow: e^(6^2 / 2)


def elbo(model: Model, q: Family, w: np.ndarray, tolerance: float = TOLERANCE) -> np.ndarray:
    """ELBO(w) = E log p(x | z) + E log p(z) + entropy, (..., D) -> (...)."""
    w = _check(model, q, w)
    (data,) = _over_data(_value, model, q, w, tolerance)
    centre, precision = _prior(model, q)
    square = precision * (w - centre) ** 2
    normaliser = 0.5 * np.log(2 * np.pi / precision[: q.dim]).sum()
    prior = -0.5 * (square[..., : q.dim].sum(-1) + square[..., q.dim :].sum(-1)) - normaliser
    return data + prior + q.entropy(w)


def gradient(model: Model, q: Family, w: np.ndarray) -> np.ndarray:
    """grad_w ELBO(w), (..., D)."""
    parts = term_gradients(model, q, w)
    return parts["data"] + parts["prior"] - parts["variational"]


def term_gradients(model: Model, q: Family, w: np.ndarray) -> dict[str, np.ndarray]:
    """The exact g1, g2, g3 as {"data": ..., "prior": ..., "variational": ...}, each (..., D)."""
    w = _check(model, q, w)
    centre, precision = _prior(model, q)
    return {  # Bonnet and Price: [E slope, E curvature L]
        "data": np.concatenate(_over_data(_slopes, model, q, w), -1),
        "prior": -precision * (w - centre),
        "variational": -q.entropy_grad(w),
    }


def optimum(model: Model, q: Family, w: np.ndarray | None = None) -> np.ndarray:
    """The w of the best ELBO in the family: natural steps on the exact gradient (chapter 13).

    Where they do not settle, L-BFGS on the exact ELBO and gradient takes over. It begins at w, or
    at q.start(), narrowed where columns are wide.
    """
    start = _narrow(model, q) if w is None else q.check(w)
    w, rule = start, natural()
    memory = rule.start(q, w)
    with np.errstate(all="ignore"):  # a step that overflows is one that did not settle
        for t in range(STEPS):
            g = gradient(model, q, w) / model.N
            if t == 0 and not np.isfinite(g).all():
                raise ValueError(
                    "the ELBO is not finite at w, or not its gradient: q is too wide there for "
                    "this model. Leave w out, or take one near the mode or from cv.fit"
                )
            if np.abs(g).max() < SETTLED:
                return w
            w, memory = rule.step(memory, w, g, 1.0, q, model.N)
            if not np.isfinite(w).all():
                break
    return _by_lbfgs(model, q, start)


def _narrow(model, q):
    """q.start(); where that spreads an eta too far, a narrower q, with sds up to 1."""
    w = _check(model, q, q.start())
    widest = lambda rows: _marginals(rows, q, w)[1].max()
    sd = np.sqrt(max(passes.each(widest, model.data, width=q.dim)))
    mu, factor = q.unpack(w)
    return q.joined(mu, factor / sd) if sd > WIDE else w


def _by_lbfgs(model, q, w):
    found = scipy.optimize.minimize(
        lambda w: -elbo(model, q, w) / model.N, w, method="L-BFGS-B",
        jac=lambda w: -gradient(model, q, w) / model.N,
        options={"maxiter": 5000, "maxfun": 10000, "ftol": 1e-15, "gtol": 1e-9},
    )  # fmt: skip
    if np.abs(found.jac).max() > 1e-5:
        raise RuntimeError(
            f"the optimum was not reached: {found.message}. Start nearer to it with w=, or scale "
            "the data"
        )
    return found.x


def _check(model, q, w):
    check_fit(model, q)
    if model.likelihood is None:
        raise ValueError(f"exact references need a generalised linear model, not {model!r}")
    if not q.gaussian:
        raise ValueError(f"an exact reference needs a Gaussian family, not {q!r}")
    return q.check(w)


def _over_data(part, model, q, w, *args):
    """Sums over all data, in parts: some dozens of nodes a data point and run."""
    width = w[..., 0].size * max(q.dim, 50)
    return passes.total(part, model.data, model.likelihood, q, w, *args, width=width)


def _value(rows, likelihood, q, w, tolerance):
    """E phi, run by run: a wide q needs more nodes than the others."""
    m, v = (a.reshape(-1, a.shape[-1]) for a in _marginals(rows, q, w))
    each = [likelihood.mean(*run, rows[1], tolerance).sum() for run in zip(m, v)]
    return (np.reshape(each, w.shape[:-1]),)


def _slopes(rows, likelihood, q, w):
    """E phi' x and E phi'' x x^T L."""
    X, y, *_ = rows
    d1, d2 = likelihood.mean_slopes(*_marginals(rows, q, w), y)
    return d1 @ X, q.gram(d2[..., None, :], X[None], q.unpack(w)[1])[..., 0, :]


def _marginals(rows: tuple, q: Family, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of each x_i.z + offset_i, (..., n) both."""
    X, _, *offset = rows
    mu, factor = q.unpack(w)
    m = mu @ X.T
    v = (q.times_t(factor, np.broadcast_to(X, (*w.shape[:-1], *X.shape))) ** 2).sum(-1)
    return m + offset[0] if offset else m, v


def _prior(model, q):
    """Centre and precision that the normal prior has for every entry of w = [mu, L], (D,) each.

    E (z_i - mean_i)^2 = (mu_i - mean_i)^2 + sum_j L_ij^2: entries of row i share a precision.
    """
    mean, sd = (np.broadcast_to(a, q.dim) for a in (model.log_prior.mean, model.log_prior.sd))
    centre = np.concatenate([mean, np.zeros(q.D - q.dim)])
    return centre, np.concatenate([1 / sd**2, q.by_row(1 / sd**2)])
