"""The front door: from a model to its best q in one call, made of the parts of the book.

It begins at the mode, takes natural steps on the regression of slopes on draws, stops when the ELBO
has settled, and says in words what it did and what to distrust.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arguments import whole
from ..ascent import optimize
from ..families import DiagonalGaussian, Family, Gaussian
from ..families.base import check_fit
from ..models import Model
from . import starts
from .result import Distrust as Distrust
from .result import Fit, bar
from .run import KEYBOARD, Clock, Run
from .starts import FULL, Start
from .ways import planned, way


def fit(
    model: Model, q: Family | None = None, *, seconds: float | None = None,
    steps: int | None = None, seed: int = 0, start: Any = None, restarts: int | None = None,
    M: int | None = None, progress: bool = True, callback: Callable[[Fit], bool] | None = None,
) -> Fit:  # fmt: skip
    """The best q of a model, as a `Fit`: one call, nothing to tune.

    Finds the mode of log p(x, z) by its gradient, and begins with the Gaussian about it that has
    the best ELBO. A Gaussian q (full up to 500 unknowns, diagonal above) then takes natural steps
    on the regression of the slopes of all data on the draws: gradients alone, no rate. A small
    generalised linear model has its exact optimum instead. Other families take Adam's steps.

    Looks at the ELBO after 20, 40, 80 ... steps (Adam: 200, 400 ...), on common draws. It stops
    when doubling the run has gained less than 0.05 nats beyond doubt: a gain of more than that in
    the last doubling is missed with a chance of about 5 %, all looks together. Or it stops at
    `steps`, or after `seconds` (60 if neither is given). Ctrl-C returns what there is.

    start: a point (d,), a pair of mean and covariance (d, d) or sd (d,), another `Fit`, "random".
    restarts: random points from which the mode is looked for as well; the best start is taken.
        If it is not given: one, where no mode was found from zero or q is diagonal.
    M: draws a step. callback: called with the `Fit` so far at each look; True stops the run.
    """
    clock = Clock(seconds, steps)
    if q is None and isinstance(model, Model):
        q = (Gaussian if model.dim <= FULL else DiagonalGaussian)(model.dim)
    check_fit(model, q)
    assert q is not None
    M, restarts = (
        n if n is None else whole(name, n, least)
        for name, n, least in (("M", M, 1), ("restarts", restarts, 0))
    )
    if callback is not None and not callable(callback):
        raise TypeError(f"callback={callback!r} is no function of a Fit")
    if not (q.gaussian or start is restarts is None):
        raise ValueError("start= and restarts= are for a Gaussian q: others begin at their own")
    given = None if start is None else _given(start, model, q, seed)
    with bar(progress) as shown:
        shown.set_postfix_str("looking for the mode")
        if q.gaussian:
            begin = starts.start(model, q.full, given, restarts, clock.late, seed)
            w = q.joined(begin.mu, begin.S)
        else:
            begin, w = Start(np.empty(0), None, f"the usual start of {q!r}"), q.start()
        shown.set_postfix_str("")
        kind = way(model, q)
        state = optimize.init(planned(kind, model, q, M), np.random.default_rng(seed), w=w)
        cut = f"the search for the mode was {KEYBOARD}; " if begin.stopped else ""
        says = f"{cut}began at {begin.says}"
        run = Run(model, q, kind, M, state, w, begin.trouble, (says,))
        return Fit.after(run, clock, shown, callback, KEYBOARD if begin.stopped else "")


def _given(start, model, q, seed):
    """Where a reader wants to begin, as a `Start`."""
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
    if isinstance(start, tuple):
        return Start(mean, S, "the start that was given")
    return Start(mean, None, "the point that was given")
