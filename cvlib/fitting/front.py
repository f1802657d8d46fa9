"""The front door: from a model to its best q in one call, made of the parts of the book.

It begins at the mode, takes natural steps on the regression of slopes on draws, stops when the ELBO
has settled, and says in words what it did and what to distrust.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ..arguments import whole
from ..ascent import exact, optimize
from ..ascent.rules import Weighting
from ..families import DiagonalGaussian, Family, Gaussian
from ..families.base import check_fit
from ..models import Model
from ..recipe.estimators import Estimator
from . import starts
from .density import enough
from .result import Fit
from .run import KEYBOARD, Clock, Run
from .starts import FULL
from .ways import affordable, planned


class Distrust(UserWarning):
    """Something about a fit is not as it should be; the sentence says what."""


def fit(
    model: Model, q: Family | None = None, *, seconds: float | None = None,
    steps: int | None = None, seed: int = 0, start: Any = None, progress: bool = True,
    callback: Callable[[Fit], bool] | None = None, h: Estimator | None = None,
    cvs: list[Estimator] | None = None, weights: Weighting | None = None,
    M: int | None = None, batch: int | None = None,
) -> Fit:  # fmt: skip
    """The best q of a model, as a `Fit`: one call, nothing to tune.

    Finds the mode of log p(x, z) by its gradient, and begins with the Gaussian about it that has
    the best ELBO. A Gaussian q (full up to 300 unknowns, diagonal above) then takes natural steps
    on the regression of the slopes of all data on the draws: gradients alone, no rate. A small
    generalised linear model has its exact optimum instead. Other families, and lines that are
    given, take Adam's steps.

    Looks at the ELBO after 20, 40, 80 ... steps (Adam: 200, 400 ...), on common draws. It stops
    when doubling the run has gained less than 0.05 nats beyond doubt: a gain of more than that in
    the last doubling is missed with a chance of about 5 %, all looks together. Or it stops at
    `steps`, or after `seconds` (60 if neither is given). Ctrl-C returns what there is.

    start: a point (d,), a pair of mean and covariance (d, d) or sd (d,), or another `Fit`.
    callback: called with the `Fit` so far at each look; True stops the run.
    h, cvs, weights: a base gradient, variates and their weight rule in place of the defaults.
    M: draws a step. batch: how many data points one of Adam's steps sees; all if not given.
    """
    clock = Clock(seconds, steps)
    if q is None and isinstance(model, Model):
        q = (Gaussian if model.dim <= FULL else DiagonalGaussian)(model.dim)
    check_fit(model, q)
    M, batch = (x if x is None else whole(n, x) for n, x in (("M", M), ("batch", batch)))
    if h is None and cvs is not None:
        raise ValueError("cvs go with a base gradient: give h as well, or leave both out")
    lines: dict[str, Any] = {"h": h, "cvs": cvs, "weights": weights}
    given = {name: line for name, line in lines.items() if line is not None}
    with _bar(progress) as bar:
        kind, begin, w = _begun(model, q, start, clock, given or batch, seed, bar)
        scale = begin.S if kind == "adam" and begin else None
        plan = planned(kind, model, q, scale, M, batch, **given)
        state = optimize.init(plan, np.random.default_rng(seed), w=w)
        says = f"began at {begin.says if begin else f'the usual start of {q!r}'}"
        why = KEYBOARD if begin and begin.stopped else ""
        says = f"the search for the mode was {why}; {says}" if why else says
        run = Run(plan, kind, state, w, scale, given, begin.trouble if begin else "", (says,))
        return _told(run.go(clock, bar, _asked(run, callback), why))


def went(
    run: Run, seconds: float | None, steps: int | None, progress: bool, callback: Callable | None
) -> Fit:
    """The fit after more of a run."""
    with _bar(progress) as bar:
        return _told(run.go(Clock(seconds, steps, run.state.t), bar, _asked(run, callback)))


def _begun(model, q, start, clock, adam, seed, bar):
    """Which way to go, the `Start` of a Gaussian q, and w (D,)."""
    if not q.gaussian:
        if start is not None:
            raise ValueError("start= is for a Gaussian q: another family begins at its own")
        return "adam", None, q.start()
    bar.set_postfix_str("looking for the mode")
    begin = starts.start(model, q.full, _given(start, model, q), clock.late, seed)
    bar.set_postfix_str("")
    w = q.joined(begin.mu, begin.S)
    if adam or begin.stopped or not affordable(model, q):
        kind = "natural" if enough(model) == model.N or not q.full else "passes"
        return "adam" if adam else kind, begin, w
    try:
        return "exact", begin, exact.optimum(model, q, w)
    except RuntimeError:  # it was not reached
        return "natural", begin, w


def _given(start, model, q):
    """Mean (d,) and factor that a reader gave to begin with, None where there is none."""
    if start is None:
        return None
    if isinstance(start, Fit):
        start = start.mean, (start.cov if q.full and start.q.full else start.sd)
    mean, spread = start if isinstance(start, tuple) else (start, None)
    mean = np.asarray(mean, float)
    if mean.shape != (model.dim,) or not np.isfinite(mean).all():
        raise ValueError(
            f"start= needs {model.dim} finite numbers, a point or a mean; got {mean!r}"
        )
    if spread is None:
        return mean, None
    spread = np.asarray(spread, float)
    if spread.shape not in [(model.dim,), (model.dim, model.dim)]:
        raise ValueError(f"start= has a spread of shape {spread.shape}: a covariance or sds (d,)")
    cov = np.diag(spread**2) if spread.ndim == 1 else spread
    return mean, np.linalg.cholesky(cov) if q.full else np.sqrt(np.diag(cov))


def _asked(run, callback):
    """What the callback says of the fit so far."""
    return None if callback is None else lambda: callback(Fit.of(run))


def _told(run):
    """The fit, after Python's warnings of what to distrust."""
    found = Fit.of(run)
    for sentence in found.warnings:
        warnings.warn(sentence, Distrust, stacklevel=3)
    return found


def _bar(progress):
    from tqdm import tqdm  # takes a third of the time of import cvlib

    return tqdm(leave=False, desc="fit", unit=" steps", disable=not progress)
