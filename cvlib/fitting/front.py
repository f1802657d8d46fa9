"""The front door: from a model to its best q in one call.

`fit` begins at the mode, takes natural steps on the regression of slopes on draws, stops when the
ELBO has settled, and says in words what it did and what to distrust.
"""

import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..arguments import numbers, unmasked, whole
from ..ascent import optimize
from ..ascent.mode import FAR
from ..families import DiagonalGaussian, Family, Gaussian
from ..families.base import check_fit
from ..families.found import Found
from ..models import Model
from ..models.density import Density
from ..models.passes import until
from . import starts
from .doubts import judged
from .run import KEYBOARD, Clock, Run, planned, way
from .starts import Start


class Distrust(UserWarning):
    """Something about a fit is not as it should be; the sentence says what."""


class Fit(Found):
    """What `fit` found, and the run that found it, which can go on.

    w (D,) are the weights of q; elbo and its standard error; `looks` has rows (step, elbo, error);
    `words` what was done, `warnings` what to distrust; `effective` is the share of draws that
    importance weights leave, `k_hat` the tail of these weights.
    """

    def __init__(self, run: Run):
        super().__init__(run.model, *run.law)
        self.run, self.settled, self.steps = replace(run), run.settled, run.state.t
        self.seconds, self.looks = run.seconds, np.array(run.looks).reshape(-1, 3)
        last, self.words, self.warnings = judged(run)
        self.elbo, self.error = map(float, last.elbo)
        self.effective, self.k_hat = last.effective, last.k_hat

    @classmethod
    def after(
        cls, run: Run, clock: Clock, bar: Any, callback: Callable | None = None, why: str = ""
    ) -> "Fit":
        """The fit after more of a run, with Python's warnings of what to distrust."""

        def told(tell: Callable) -> Any:
            so_far = cls(run)
            if any(sentence.endswith(KEYBOARD) for sentence in so_far.warnings):
                raise KeyboardInterrupt  # pressed while it was judged: the run has to know
            return tell(so_far)

        with until(clock.closed):
            run.go(clock, bar, callback and partial(told, callback), why).bend(clock)
            found = cls(run)
        for sentence in found.warnings:
            warnings.warn(sentence, Distrust, stacklevel=3)
        return found

    def go_on(
        self, *, seconds: float | None = None, steps: int | None = None, progress: bool = True,
        callback: Callable | None = None,
    ) -> "Fit":  # fmt: skip
        """The fit after more steps: up to step `steps`, or for so many seconds more."""
        clock = Clock(seconds, steps, self.steps)
        run = replace(self.run, state=deepcopy(self.run.state), bent=None)  # this fit stays
        with _bar(progress) as shown:
            return Fit.after(run, clock, shown, callback)

    def save(self, path: str | Path) -> None:
        """Everything but the model into one file, whole or not at all; `Fit.load` reads it."""
        import gzip
        import pickle

        z, part = self.sample(5), Path(f"{path}.part")
        about = repr(self.model), self.model.checksum, z, _seen(self, z)
        part.write_bytes(gzip.compress(pickle.dumps((about, replace(self.run, model=None)))))
        part.replace(path)

    @classmethod
    def load(cls, path: str | Path, model: Model) -> "Fit":
        """The fit of this model that was saved; a file with other data or functions is refused.

        A file is a pickle, which can run any code: load none that you do not trust.
        """
        import gzip
        import pickle

        if not isinstance(model, Model):
            raise TypeError(f"{model!r} is no model: load(path, model) needs the fitted one")
        packed = Path(path).read_bytes()
        try:
            (name, data, z, seen), run = pickle.loads(gzip.decompress(packed))
            run = replace(run, model=model)
        except Exception as error:  # a broken file fails in many ways
            raise ValueError(f"{path} holds no fit that was saved whole: {error!r}") from error
        close = lambda x, y: np.allclose(x, y, rtol=1e-7, equal_nan=True)
        same = (name, data) == (repr(model), model.checksum)
        if not (same and all(map(close, seen, _seen(run, z)))):
            other = "other data or other functions: " if name == repr(model) else ""
            raise ValueError(f"{path} is a fit of {other}{name}, not of {model!r}")
        return cls(run)

    def _head(self):
        elbo = f"ELBO {self.elbo:.2f} ± {2 * self.error:.2f} after {self.steps} steps"
        return [*super()._head(), elbo]

    @property
    def report(self) -> str:
        """What was done and found, in words."""
        return "\n".join([*self._head(), *(f"- {w}" for w in self.words), *self._warned()])


def _bar(progress):
    """A bar that counts steps, if one is wanted."""
    from tqdm import tqdm  # takes a third of the time of import cvlib

    return tqdm(leave=False, desc="fit", unit=" steps", disable=not progress)


def _seen(fit, z):
    """What tells a model from others: log p at points z, and its slopes where it has any."""
    density = Density(fit.model)
    return density.slope(z) if fit.q.smooth == "z" else [density.value(z)]


def fit(
    model: Model, q: Family | None = None, *, seconds: float | None = None,
    steps: int | None = None, seed: int = 0, start: Any = None, restarts: int | None = None,
    M: int | None = None, bend: bool | None = None, progress: bool = True,
    callback: Callable[[Fit], bool] | None = None,
) -> Fit:  # fmt: skip
    """The best q of a model, as a `Fit`: one call, nothing to tune.

    Finds the mode of log p(x, z) by its gradient, and begins with the Gaussian about it that has
    the best ELBO. A Gaussian q (full up to 500 unknowns, diagonal above) then takes natural steps
    on the regression of the slopes of all data on the draws, gradients alone and no rate; a full
    one of up to 100 unknowns climbs once to the top of the ELBO on fixed even draws. With more, a
    model of JAX steps inside JAX, on rotated draws: full up to 2,000 unknowns, on a GPU 10,000. A
    small generalised linear model has its exact optimum. Other families take Adam's steps.

    Looks at the ELBO after 10, 20 ... steps (JAX: 4, 8 ..., Adam: 200 ...), on common draws. Stops
    when doubling the run has gained less than 0.05 nats beyond doubt: a gain of more than that in
    the last doubling is missed with a chance of about 5 %, all looks together. Or it stops at
    `steps`, or after `seconds` (60 if neither is given): the clock is looked at inside a step too,
    but not while JAX compiles, which counts. Ctrl-C returns what there is.

    start: a point (d,), a pair of mean and covariance (d, d) or sd (d,), another `Fit`, "random".
    restarts: random points from which the mode is looked for as well; the best start is taken. One
        if it is not given, where no mode was found from z = 0 or a coordinate did not move.
    bend: True lets a full q of up to 60 unknowns bend once it has settled (`families.Bent`), if it
        gains by that beyond doubt; False forbids it. None: where no q is given, that takes seconds
        (few data), and weights keep less than half of the draws or have too heavy a tail.
    M: draws a step. callback: called with the `Fit` so far at each look; True stops the run.
    """
    clock, seed = Clock(seconds, steps), whole("seed", seed, 0)
    bends = False if bend is None and q is not None else bend
    if q is None and isinstance(model, Model):
        q = (Gaussian if model.dim <= starts.most(model) else DiagonalGaussian)(model.dim)
    check_fit(model, q)
    assert q is not None
    M = None if M is None else whole("M", M, 1 + q.gaussian + q.full)
    restarts = None if restarts is None else whole("restarts", restarts, 0)
    _check(q, start, restarts, bend, callback)
    given = None if start is None else _given(start, model, q, seed)
    with _bar(progress) as shown:
        shown.set_postfix_str("looking for the mode")
        begin, w = _begun(model, q, kind := way(model, q, M), given, restarts, clock, seed)
        shown.set_postfix_str("")
        state = optimize.init(planned(kind, model, q, M), np.random.default_rng(seed), w=w)
        cut = f"the search for the mode was {KEYBOARD}; " if begin.stopped else ""
        run = Run(model, q, kind, M, state, w, begin.trouble, (f"{cut}began at {begin.says}",))
        run.rivals, run.bends = begin.rivals, bends
        return Fit.after(run, clock, shown, callback, KEYBOARD if begin.stopped else "")


def _check(q, start, restarts, bend, callback):
    if callback is not None and not callable(callback):
        raise TypeError(f"callback={callback!r} is no function of a Fit")
    if not (bend is None or isinstance(bend, bool | np.bool_)):
        raise TypeError(f"bend={bend!r} must be True, False or None")
    if bend and not q.full:
        raise ValueError(f"bend=True is for a full Gaussian q, not {q!r}")
    if not (q.gaussian or start is restarts is None):
        raise ValueError("start= and restarts= are for a Gaussian q: others begin at their own")


def _begun(model, q, kind, given, restarts, clock, seed):
    """Where the run begins, and its w there."""
    if not q.gaussian:
        return Start(np.empty(0), None, f"the usual start of {q!r}"), q.start()
    with until(clock.chosen):
        full = q.full and kind != "rotated"  # whose first step needs widths alone
        begin = starts.start(model, full, given, restarts, clock.late, seed)
    S = np.diag(begin.S) if q.full and begin.S.ndim == 1 else begin.S
    return begin, q.joined(begin.mu, S)


def _given(start, model, q, seed):
    """Where a reader wants to begin, as a `Start`."""
    if isinstance(start, str) and start == "random":
        z = np.random.default_rng([seed, 2]).standard_normal(model.dim)
        return Start(z, None, "a random point")
    if isinstance(start, Fit):
        start = start.mean, (start.cov if q.full and start.q.full else start.sd)
    pair = isinstance(start, tuple)
    try:
        mean, spread = start if pair else (start, np.ones(model.dim))
        mean, spread = (np.asarray(unmasked("start", x), float) for x in (mean, spread))
        mean = mean.reshape(model.dim)
        cov = np.diag(spread**2) if spread.ndim == 1 else spread
        S = np.linalg.cholesky(cov) if q.full else np.sqrt(np.diag(cov))
        q.check(q.pack(mean, S))
        numbers("start", np.abs(mean), 0, FAR / 100)
    except (TypeError, ValueError, np.linalg.LinAlgError) as error:
        raise ValueError(
            f"start={start!r}: give {model.dim} finite numbers below 1e6, a pair of them and "
            'sds or a positive definite covariance, a fit, or "random"'
        ) from error
    says = "the start that was given" if pair else "the point that was given"
    return Start(mean, S if pair else None, says)
