"""The front door: from a model to its best q in one call.

`fit` begins at the mode, takes natural steps on rotated draws, stops when the ELBO has settled, and
says in words what it did and what to distrust.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from autograd import elementwise_grad

from ..arguments import bar, numbers, unmasked, whole
from ..deadline import deadline
from ..families import DiagonalGaussian, Family, Gaussian
from ..families.base import check_fit
from ..models.density import Density, Model
from ..models.parameters import point
from . import starts
from .found import K_HAT, Found
from .looks import WIDE, Weights, explained, weighed
from .lots import HEAVY, THIN
from .run import KEYBOARD, LATE, VAIN, Clock, Run, cause, load, save
from .settings import DEFAULT, Settings
from .starts import Start
from .strategies import chosen
from .table import Table

ROUGH = 0.1  # spreads, by which a mean or an sd may be uncertain; a quantile by twice that
SOME = 16  # points at which a model is asked for its own doubts


class Distrust(UserWarning):
    """Something about a fit is not as it should be; the sentence says what."""


class Fit(Found):
    """What `fit` found, and the run that found it, which can go on.

    w (D,) are the weights of q; elbo and its standard error; `looks` has rows (step, elbo, error);
    `words` what was done, `warnings` what to distrust in what is `shown`.
    """

    def __init__(self, run: Run):
        super().__init__(run.model, *run.law)
        self.run, self.settled, self.steps = replace(run), run.settled, run.state.t
        self.seconds, self.looks = run.seconds, np.array(run.looks).reshape(-1, 3)
        last, self.words, self.warnings = judged(run, self)
        self.elbo, self.error = map(float, last.elbo)

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

        late = partial(clock.over, 1.15, 1.0)  # the last look has more time than the run
        with deadline.until(late):
            run.go(clock, bar, callback and partial(told, callback), why)
            bar.set_postfix_str("trying other shapes")
            run.bend(clock)
            bar.set_postfix_str("weighing points")
            found = cls(run)
        for sentence in found.warnings:
            warnings.warn(sentence, Distrust, stacklevel=3)
        return found

    def go_on(
        self, *, seconds: float | None = None, steps: int | None = None, progress: bool = True,
        callback: Callable | None = None,
    ) -> "Fit":  # fmt: skip
        """The fit after more steps: up to step `steps`, or for so many seconds more."""
        clock = Clock(seconds, steps, self.run.settings, self.steps)
        run = replace(self.run, state=deepcopy(self.run.state), bent=None)  # this fit stays
        with bar(desc="fit", unit=" steps", disable=not progress) as shown:
            return Fit.after(run, clock, shown, callback)

    def save(self, path: str | Path) -> None:
        """Everything but the model into one file, whole or not at all; `Fit.load` reads it.

        A file holds arrays and JSON: nothing in it can run.
        """
        save(self.run, path)

    @classmethod
    def load(cls, path: str | Path, model: Model, q: Family | None = None) -> "Fit":
        """The fit of this model that was saved; a file with other data or functions is refused.

        A family of one's own comes as q: a file has its name and arguments alone.
        """
        return cls(load(path, model, q))

    def _head(self):
        took = f"{self.steps} step{'s' * (self.steps != 1)}"
        elbo = f"ELBO {self.elbo:.2f} ± {2 * self.error:.2f} after {took}"
        return [*super()._head(), elbo]

    @property
    def report(self) -> str:
        """What was done and found, in words."""
        signs = zip("-!", (self.words, self.warnings))
        return "\n".join([*self._head(), *(f"{sign} {x}" for sign, each in signs for x in each)])

    def _repr_html_(self):
        folded = f'<pre style="white-space: pre-wrap">{escape(self.report)}</pre>'
        return f"{super()._repr_html_()}<details><summary>Report</summary>{folded}</details>"


def fit(
    model: Model, q: Family | None = None, *, seconds: float | None = None,
    steps: int | None = None, seed: int = 0, start: Any = None, restarts: int | None = None,
    M: int | None = None, bend: bool | None = None, progress: bool = True,
    callback: Callable[[Fit], bool] | None = None, settings: Settings = DEFAULT,
) -> Fit:  # fmt: skip
    """The best q of a model, as a `Fit`: one call, nothing to tune.

    Finds the mode of log p(x, z) by its gradient, and begins with the Gaussian about it that has
    the best ELBO. A full Gaussian q (up to 500 unknowns, of JAX 2,000, on a GPU 10,000) climbs to
    the top of the ELBO on fixed draws and takes natural steps on rotated ones: gradients of all
    data alone, and no rate. A diagonal one climbs on ever more fixed draws, or, if it is larger,
    takes steps that are regressed on plain draws. Other families take Adam's steps.

    Looks at the ELBO after 10, 20 ... steps (JAX: 4 ..., Adam: 200 ...), on common draws. Stops
    when doubling the run has gained less than 0.05 nats beyond doubt (a larger gain is missed with
    a chance of about 5 %), at `steps`, after `seconds` (60 if neither is given), or by Ctrl-C.

    start: parameters by name, {"sigma": 1.0}, others at z = 0; a point z (d,), a pair of mean and
        covariance (d, d) or sd (d,), another `Fit`, "random".
    restarts: other points to look for modes from, as many as a tenth of the gradients allows if
        neither it nor a start is given (eight at most, three at least for up to 20 unknowns).
    bend: True lets a full q of up to 60 unknowns bend once it has settled (`families.Bent`), if it
        gains by that beyond doubt; False forbids it. None: where no q is given, that takes seconds
        (few data), and weights keep few draws, have too heavy a tail, or move a mean or an sd.
    M: draws a step, at least; callback: called with the `Fit` so far at each look, True stops the
        run; settings: the numbers that it goes by, `cv.Settings`.
    """
    clock, seed = Clock(seconds, steps, settings), whole("seed", seed, 0)
    wanted = False if bend is None and q is not None else bend
    if q is None and isinstance(model, Model):
        most = settings.full if model.traced is None else max(settings.full, model.traced.full)
        q = (Gaussian if model.dim <= most else DiagonalGaussian)(model.dim)
    check_fit(model, q)
    assert q is not None
    M = None if M is None else whole("M", M, 1 + q.gaussian + q.full)
    strategy = chosen(model, q, M, settings)
    run = Run(model, q, strategy, settings, M, bends=wanted, seed=seed)
    _check(run, start, restarts, bend, callback)
    given = None if start is None else _given(start, model, q, seed)
    with bar(desc="fit", unit=" steps", disable=not progress) as shown:
        shown.set_postfix_str("looking for the mode")
        why = run.begin(given, restarts, clock)
        shown.set_postfix_str("")
        return Fit.after(run, clock, shown, callback, why)


def _check(run, start, restarts, bend, callback):
    if restarts is not None:
        whole("restarts", restarts, 0)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback={callback!r} is no function of a Fit")
    if not (bend is None or isinstance(bend, bool | np.bool_)):
        raise TypeError(f"bend={bend!r} must be True, False or None")
    if bend and not run.can_bend:
        most = f"of up to {run.settings.bend} unknowns"
        raise ValueError(f"bend=True is for a full Gaussian q {most}, not {run.q!r}")
    if not (run.q.gaussian or start is restarts is None):
        raise ValueError("start= and restarts= are for a Gaussian q: others begin at their own")


def _given(start, model, q, seed):
    """Where a reader wants to begin, as a `Start`."""
    if isinstance(start, str) and start == "random":
        z = np.random.default_rng([seed, 2]).standard_normal(model.dim)
        return Start(z, None, "a random point")
    if isinstance(start, Mapping):
        try:
            start = point(model.parameters, start, model.dim)
        except (TypeError, ValueError) as error:
            raise ValueError(f"start={start!r}: {error}") from error
    if isinstance(start, Fit):
        start = start.mean, (start.cov if q.full and start.q.full else start.sd)
    pair = isinstance(start, tuple)
    try:
        mean, spread = start if pair else (start, np.ones(model.dim))
        mean, spread = (np.asarray(unmasked("start", x), float) for x in (mean, spread))
        mean = mean.reshape(model.dim)
        cov = np.diag(numbers("sd", spread, 0, above=True) ** 2) if spread.ndim == 1 else spread
        S = np.linalg.cholesky(cov) if q.full else np.sqrt(np.diag(cov))
        q.check(q.pack(mean, S))
        numbers("start", np.abs(mean), 0, starts.FAR / 100)
    except (TypeError, ValueError, np.linalg.LinAlgError) as error:
        raise ValueError(
            f"start={start!r}: give {model.dim} finite numbers below 1e6, a pair of them and "
            'sds or a positive definite covariance, parameters by name, a fit, or "random"'
        ) from error
    says = "the start that was given" if pair else "the point that was given"
    return Start(mean, S if pair else None, says)


# What is said of a q that was found ---------------------------------------------------------------


def judged(run: Run, found: Found) -> tuple[Weights, tuple[str, ...], tuple[str, ...]]:
    """A last look at a run, what was done, and what to distrust in what was found.

    Whatever fails in that, or is cut off, is a sentence: no fit is lost. Points are weighed once
    the ELBO has settled.
    """
    failed = []

    def safely(what, look, otherwise):
        try:
            with np.errstate(all="ignore"):
                return look()
        except (Exception, KeyboardInterrupt) as error:  # functions of the reader's fail, too
            failed.append(f"{what} could not be checked: {cause(error)}")
            return otherwise

    q, w = run.law
    listed = lambda what, sentences, *given: safely(what, lambda: [*sentences(*given)], [])
    look = lambda: weighed(run.model, q, w, run.state.t + 1) if run.last is None else run.last
    last = safely("the ELBO", look, Weights(np.empty((0, q.dim)), np.empty(0)))
    done = run.strategy.says.format(plan=run.plan)
    words = listed("the shape of q", said, run, last)
    doubted = listed("what to distrust", doubts, run, last, found)
    if run.q.gaussian:
        doubted += listed("the prior", conflicts, run.model, run.q.mean(run.best), run.settings)
    if run.settled:
        doubted += listed("what is shown", uncorrected, run, found)
        about = lambda: run.model.doubts(found._points(SOME, np.random.default_rng(0)))
        doubted += listed("the integrals over effects", about)
    return last, (*run.words, done, *words), (*doubted, *failed)


def said(run: Run, last: Weights) -> Iterator[str]:
    """How near to a Gaussian the posterior is, once the ELBO has settled.

    A full q asks more draws for that than it has unknowns, so that many of these have no such line.
    """
    few = not run.q.full or run.q.dim <= run.settings.full
    if run.settled and len(last.log) and run.law[0].gaussian and few:
        share, _ = explained(run.model, run.q, run.best, run.state.t + 1)
        yield f"a quadratic explains {share:.0%} of the slope of log p at the draws"


def uncorrected(run: Run, found: Found) -> Iterator[str]:
    """What is wrong and what to do, if what is shown is q's, or has large errors."""
    if found.shown == "posterior":
        if (worst := roughest(found.summary(), len(found.lot.w))) is not None:
            yield (
                f"mean, sd or tails of {worst} are not known: their errors are large, or a few far "
                "points decide them\n"
                "Take the median if the posterior hardly has such moments, else write the model in "
                "other coordinates, or compare with MCMC"
            )
        return
    lot = found.lot
    high = ["k-hat is too high"] * (not lot.k_hat <= HEAVY)
    low = ["relative ESS is too low"] * (lot.effective < THIN)
    bent = VAIN in run.words or run.bent is not None
    can = run.can_bend and not bent and run.bends is not True
    more = "Let q bend (bend=True), write" if can else "Write"
    yield (
        f"the posterior does not have the shape of q, and weights do not mend it ("
        f"{', '.join([*high, *low]) or 'ESS is too low'}): tables and draws are those of q\n"
        f"{more} the model in other coordinates, take another q, or compare with MCMC"
    )


def roughest(table: Table, n: int) -> str | None:
    """The row of a summary with the largest errors, where they are too large to be of use.

    Or where errors are not to be believed: among all rows and their squares k-hat from n points is
    above one half by more than chance, sqrt(2 log(columns)) of its standard deviations.
    """
    spread = (table.columns["95 %"] - table.columns["5 %"]) / (2 * 1.645)  # an sd, if it is normal
    limits = (ROUGH * spread * (2 if "%" in k else 1) for k in table.errors)
    errors = (table.columns[error] for error in table.errors.values())
    seen = np.max([error / np.maximum(most, 1e-300) for error, most in zip(errors, limits)], 0)
    chance = (1 + WIDE) / np.sqrt(3 * np.sqrt(n)) * np.sqrt(2 * np.log(2 * len(table.rows)))
    seen = np.where(table.columns[K_HAT] > WIDE + chance, np.inf, seen)
    return table.rows[int(seen.argmax())] if seen.max() > 1 else None


def doubts(run: Run, last: Weights, found: Found) -> Iterator[str]:
    """Sentences that begin with what is wrong and end with what to do."""
    diverged = int(run.state.diverged)
    end = last if diverged < 0 else weighed(run.model, run.q, run.state.w, 0, run.settings.looks[0])
    n = max(len(end.log), 1)
    outside = end.outside.sum() / n
    lost = (~end.fine).sum() / n - outside
    bad = not run.settled or found.shown == "q"
    spike = run.spike
    if not bad and run.q.gaussian:  # for q may have gone there by itself
        spike = starts.collapsed(Density(run.model), run.q.mean(run.best))
    yield from filter(None, (run.trouble, spike, run.rivals))
    if diverged >= 0:
        yield (
            f"the run diverged at step {diverged}: try more draws M, scale the data, or put a "
            "prior on what they do not tell"
        )
    if lost > 0:
        yield (
            f"log p(x, z) is not finite at {lost:.1%} of the draws of q, which were left out: "
            "something overflows there, or a matrix is singular"
        )
    if outside > 0:
        yield (
            f"log p(x, z) is minus infinity at {outside:.1%} of the draws of q: the posterior "
            "ends within its reach. The ELBO is that of q cut off there; parameters declared with "
            "their limits, cv.interval(0, 1) say, have no such edge"
        )
    if not run.settled and lost + outside < 0.1 and diverged < 0:
        late = "it ran out of time, and " * (LATE in "".join(run.words[-1:]))
        yield f"{late}the ELBO had not settled: give more seconds or steps, fit.go_on(seconds=60)"


def conflicts(model: Model, z: np.ndarray, settings: Settings = DEFAULT) -> Iterator[str]:
    """A sentence where z (d,) lies far out in its prior: data may be in other units.

    Where log p(z) can rise by x along a coordinate, z lies sqrt(2 x) sds of a normal prior out. It
    must rise as much wherever the others are: else it is a law given these, not its own prior.
    """
    prior = lambda z: model.log_prior(z) + 0 * z[..., 0]
    slope = elementwise_grad(prior)(z[None])[0]
    for k in np.argsort(-np.abs(slope * z))[:4]:
        steps = np.append(0.0, np.sign(slope[k]) * np.geomspace(1e-4, 1e6, 400))
        line, moved = (np.repeat(x[None], len(steps), 0) for x in (z, z + 0.1 * (1 + np.abs(z))))
        line[:, k] = moved[:, k] = z[k] + steps
        rises = (prior(x) - prior(x[:1]) for x in (line, moved))
        height, other = (np.where(np.isfinite(x), x, -np.inf) for x in rises)
        top = int(np.argmax(height[:-1]))
        ends = -np.inf < height[top + 1] <= height[top]  # or it rises for ever
        own = np.isclose(height[top], other[top], rtol=1e-6)
        if ends and own and height[top] > settings.out**2 / 2:
            yield (
                f"{model.names[k]} lies as far out in its prior as {np.sqrt(2 * height[top]):.0f} "
                "sds of a normal law: are the data in the units that the prior was written for?"
            )
            return
