"""The loop: stochastic gradient ascent on the ELBO with control variates, all runs as one batch."""

from typing import NamedTuple

import numpy as np
from tqdm import trange

from . import combine, exact
from .draws import draw
from .estimators import Estimator, check_gradient, check_variate, evaluate

HUGE = 1e200  # a gradient of larger squared length, or one that overflows, is a run thrown out


class Path(NamedTuple):
    """What a run leaves: weights at the recorded steps, and where it broke off, if it did."""

    w: np.ndarray  # (..., D) after the last step
    steps: np.ndarray  # (T,) recorded steps, 0 is the start
    path: np.ndarray  # (T, ..., D) weights at those steps
    a: np.ndarray  # (..., L) weights of the control variates at the last step
    diverged: np.ndarray  # (...) step at which a run left the finite world, -1 if it did not


def sgd(
    model, q, h, cvs=(), *, lr, steps, M, rng, w=None, runs=(), momentum=0.9, gamma=0.02, v0=1e-3,
    every=1, subsample=True, progress=False,
):  # fmt: skip
    """Momentum ascent on ELBO / N: v <- momentum v + (1 - momentum) g, w <- w + lr v.

    g is the mean over M samples of h + C a, with a from the Bayesian rule on moments averaged over
    the steps before, so that g is unbiased. `v0` is in units of the gradient of ELBO / N. `runs`
    repetitions go side by side. A run that diverges stays at its last finite weights and is marked
    in `diverged`.
    """
    _check(h, cvs, lr, steps, every, v0)
    runs = _runs(runs, w)
    w = q.start(runs) if w is None else q.check(w)
    w = np.broadcast_to(w, (*runs, q.D)).copy()
    v = np.zeros_like(w)
    v0 = np.asarray(v0, float) * model.N**2  # v0 belongs to ELBO / N, the gradients G to the ELBO
    a = np.zeros((*runs, len(cvs)))
    moments = combine.start(len(cvs), runs)
    diverged = np.full(runs, -1)
    recorded = [w.copy()]
    G = np.empty((*runs, 1 + len(cvs), M, q.D))
    for t in trange(1, steps + 1, disable=not progress, leave=False):
        d = draw(model, q, w, M, rng, subsample=subsample)
        with np.errstate(over="ignore", invalid="ignore"):  # a diverging run is dealt with below
            evaluate([h, *cvs], d, out=G, check=False)
            finite = np.vecdot(G.reshape(*runs, -1), G.reshape(*runs, -1)) < HUGE  # no NaN either
        G[~finite] = 0.0  # a broken run must not break the moments of the others
        base, C = G[..., 0, :, :], G[..., 1:, :, :]
        a = combine.bayes_weights(moments, v0, q.D)
        g = combine.mean(base, C, a) / model.N  # (..., D)
        moments = combine.update(moments, base, C, gamma)
        v = momentum * v + (1 - momentum) * g
        moved = w + lr * v
        going = (diverged < 0) & finite & (np.abs(moved).max(-1) < q.far)
        diverged = np.where(going | (diverged >= 0), diverged, t)
        w = np.where(going[..., None], moved, w)
        if t % every == 0 or t == steps:
            recorded.append(w.copy())
    return Path(w, _recorded_steps(steps, every), np.stack(recorded), a, diverged)


def noise_free(model, q, *, lr, steps, w=None, momentum=0.9, every=1):
    """The same ascent with the exact gradient: what no control variate can beat."""
    w = q.check(q.start() if w is None else w).copy()
    v = np.zeros_like(w)
    recorded = [w.copy()]
    for t in range(1, steps + 1):
        v = momentum * v + (1 - momentum) * exact.gradient(model, q, w) / model.N
        w = w + lr * v
        if t % every == 0 or t == steps:
            recorded.append(w.copy())
    none = np.full(w.shape[:-1], -1)
    return Path(w, _recorded_steps(steps, every), np.stack(recorded), np.zeros(0), none)


def _recorded_steps(steps, every):
    return np.array([t for t in range(steps + 1) if t % every == 0 or t == steps])


def _runs(runs, w):
    """The shape of the runs, from `runs` and from the start w together."""
    starts = () if w is None else np.shape(w)[:-1]
    try:
        return np.broadcast_shapes(runs, starts)
    except ValueError:
        raise ValueError(f"runs={runs}, but w starts {starts} runs: leave runs out") from None


def _check(h, cvs, lr, steps, every, v0):
    if isinstance(cvs, Estimator) or cvs is None:
        raise TypeError(f"cvs must be a list: write {[cvs] if cvs else []}")
    check_gradient(h)
    for c in cvs:
        check_variate(c)
    if not (np.isfinite(lr) and lr > 0):
        raise ValueError(f"lr={lr}: the learning rate must be positive")
    if not np.all(np.asarray(v0) >= 0):
        raise ValueError(f"v0 must be zero or positive; got {v0}")
    if steps < 1:
        raise ValueError(f"steps={steps}: take at least one")
    if every < 1:
        raise ValueError(f"every={every}: record every step (1), every second (2), ...")
