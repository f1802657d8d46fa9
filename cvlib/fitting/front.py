"""The front door: from a model to its best q in one call, made of the parts of the book.

It begins at the mode, takes natural steps on the regression of slopes on draws, stops when the ELBO
has settled, and says in words what it did and what to distrust.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ..arguments import whole
from ..ascent import optimize
from ..ascent.rules import Weighting
from ..families import DiagonalGaussian, Family, Gaussian
from ..families.base import check_fit
from ..models import Model
from ..recipe.estimators import Estimator
from . import starts
from .result import Fit
from .run import KEYBOARD, Clock, Run
from .starts import FULL, Start
from .ways import planned, way


class Distrust(UserWarning):
    """Something about a fit is not as it should be; the sentence says what."""


def fit(
    model: Model, q: Family | None = None, *, seconds: float | None = None,
    steps: int | None = None, seed: int = 0, start: Any = None, restarts: int = 0,
    progress: bool = True, callback: Callable[[Fit], bool] | None = None,
    h: Estimator | None = None, cvs: list[Estimator] | None = None,
    weights: Weighting | None = None, M: int | None = None, batch: int | None = None,
) -> Fit:  # fmt: skip
    """The best q of a model, as a `Fit`: one call, nothing to tune.

    Finds the mode of log p(x, z) by its gradient, and begins with the Gaussian about it that has
    the best ELBO. A Gaussian q (full up to 500 unknowns, diagonal above) then takes natural steps
    on the regression of the slopes of all data on the draws: gradients alone, no rate. A small
    generalised linear model has its exact optimum instead. Other families, and lines that are
    given, take Adam's steps.

    Looks at the ELBO after 20, 40, 80 ... steps (Adam: 200, 400 ...), on common draws. It stops
    when doubling the run has gained less than 0.05 nats beyond doubt: a gain of more than that in
    the last doubling is missed with a chance of about 5 %, all looks together. Or it stops at
    `steps`, or after `seconds` (60 if neither is given). Ctrl-C returns what there is.

    start: a point (d,), a pair of mean and covariance (d, d) or sd (d,), another `Fit`, "random".
    restarts: random points from which the mode is looked for as well; the best start is taken.
    callback: called with the `Fit` so far at each look; True stops the run.
    h, cvs, weights: a base gradient, variates and their weight rule in place of the defaults.
    M: draws a step. batch: how many data points one of Adam's steps sees; all if not given.
    """
    clock, restarts = Clock(seconds, steps), whole("restarts", restarts, 0)
    if q is None and isinstance(model, Model):
        q = (Gaussian if model.dim <= FULL else DiagonalGaussian)(model.dim)
    check_fit(model, q)
    assert q is not None
    M, batch = (x if x is None else whole(n, x) for n, x in (("M", M), ("batch", batch)))
    given = _lines(h, cvs, weights, callback)
    kind = "adam" if given or batch else way(model, q)
    began = _given(start, model, q, seed)
    if not q.gaussian and (began or restarts):
        raise ValueError("start= and restarts= are for a Gaussian q: others begin at their own")
    planned(kind, model, q, None, M, batch, **given)  # refuses what it must, before the bar
    with _bar(progress) as bar:
        bar.set_postfix_str("looking for the mode")
        begin = Start(np.empty(0), None, f"the usual start of {q!r}")
        if q.gaussian:
            begin = starts.start(model, q.full, began, restarts, clock.late, seed)
        bar.set_postfix_str("")
        run = _begun(model, q, kind, begin, M, batch, given, seed)
        why = KEYBOARD if begin.stopped else ""
        return _told(run.go(clock, bar, _asked(run, callback), why))


def _lines(h, cvs, weights, callback):
    """The lines that were given, by their names."""
    if h is None and cvs is not None:
        raise ValueError("cvs go with a base gradient: give h as well, or leave both out")
    if callback is not None and not callable(callback):
        raise TypeError(f"callback={callback!r} is no function of a Fit")
    lines: dict[str, Any] = {"h": h, "cvs": cvs, "weights": weights}
    return {name: line for name, line in lines.items() if line is not None}


def _begun(model, q, kind, begin, M, batch, given, seed):
    """The run before its first step."""
    w = q.joined(begin.mu, begin.S) if q.gaussian else q.start()
    scale = begin.S if kind == "adam" else None
    plan = planned(kind, model, q, scale, M, batch, **given)
    state = optimize.init(plan, np.random.default_rng(seed), w=w)
    says = f"began at {begin.says}"
    says = f"the search for the mode was {KEYBOARD}; {says}" if begin.stopped else says
    return Run(plan, kind, state, w, scale, given, begin.trouble, (says,))


def went(
    run: Run, seconds: float | None, steps: int | None, progress: bool, callback: Callable | None
) -> Fit:
    """The fit after more of a run."""
    clock = Clock(seconds, steps, run.state.t)
    with _bar(progress) as bar:
        return _told(run.go(clock, bar, _asked(run, callback)))


def _given(start, model, q, seed):
    """Where a reader wants to begin, as a `Start`, or None."""
    if start is None:
        return None
    if isinstance(start, str) and start == "random":
        z = np.random.default_rng([seed, 2]).standard_normal(model.dim)
        return Start(z, None, "a random point")
    if isinstance(start, Fit):
        start = start.mean, (start.cov if q.full and start.q.full else start.sd)
    mean, spread = start if isinstance(start, tuple) else (start, np.ones(model.dim))
    try:
        mean, spread = np.asarray(mean, float), np.asarray(spread, float)
        cov = np.diag(spread**2) if spread.ndim == 1 else spread
        S = np.linalg.cholesky(cov) if q.full else np.sqrt(np.diag(cov))
        right = mean.shape == (model.dim,) and cov.shape == (model.dim, model.dim)
    except (TypeError, ValueError, np.linalg.LinAlgError):
        right = False
    if not (right and np.isfinite(mean).all() and np.isfinite(S).all()):
        raise ValueError(
            f"start={start!r}: give {model.dim} finite numbers, a pair of them and sds or a "
            'positive definite covariance, a fit, or "random"'
        )
    given = isinstance(start, tuple)
    says = "the start that was given" if given else "the point that was given"
    return Start(mean, S if given else None, says)


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
