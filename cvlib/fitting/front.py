"""The front door: from a model to its best q in one call, and what was found.

`fit` begins at the mode, takes natural steps on the regression of slopes on draws, stops when the
ELBO has settled, and says in words what it did and what to distrust.
"""

import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..arguments import whole
from ..ascent import optimize
from ..combining.stein import Answer
from ..combining.tails import k_hat
from ..families import DiagonalGaussian, Family, Gaussian
from ..families.base import check_fit
from ..models import Model
from ..models.checks import data_arrays
from ..models.parameters import labels
from . import answers, looks, starts
from .density import Density
from .run import KEYBOARD, Clock, Run, planned, way
from .starts import FULL, Start


class Distrust(UserWarning):
    """Something about a fit is not as it should be; the sentence says what."""


class Fit:
    """What `fit` found. z are the model's own coordinates, as it takes them.

    w (D,) are the weights of q; elbo and its standard error; `looks` has rows (step, elbo, error);
    `words` what was done, `warnings` what to distrust; `effective` is the share of draws that
    importance weights leave, `k_hat` the tail of these weights.
    """

    def __init__(self, run: Run):
        self.run, self.model, self.q, self.w = replace(run), run.model, run.q, run.best
        self.settled, self.steps, self.seconds = run.settled, run.state.t, run.seconds
        self.looks = np.array(run.looks).reshape(-1, 3)
        with np.errstate(all="ignore"):
            found = looks.weighed(run.model, run.q, run.best, run.state.t + 1)
            self.elbo, self.error = map(float, found.elbo)
            self.effective, self.k_hat = found.effective, k_hat(found.log[found.fine])
            self.words = (*run.words, *looks.said(run, found, self.k_hat))
            self.warnings = tuple(looks.doubts(run, found, self.k_hat))

    @classmethod
    def after(
        cls, run: Run, clock: Clock, bar: Any, callback: Callable | None = None, why: str = ""
    ) -> "Fit":
        """The fit after more of a run, with Python's warnings of what to distrust."""
        found = cls(run.go(clock, bar, callback and (lambda: callback(cls(run))), why))
        for sentence in found.warnings:
            warnings.warn(sentence, Distrust, stacklevel=3)
        return found

    @property
    def mean(self) -> np.ndarray:
        """E_q z, (d,)."""
        return self.q.mean(self.w)

    @property
    def sd(self) -> np.ndarray:
        """Standard deviations of z under q, (d,)."""
        return self.q.sd(self.w)

    @cached_property
    def cov(self) -> np.ndarray:
        """Covariance of z under a Gaussian q, (d, d)."""
        if not self.q.gaussian:
            raise ValueError(f"{self.q!r} has no matrix of covariances here: take sample(n, seed)")
        factor = self.q.unpack(self.w)[1]
        return factor @ factor.T if self.q.full else np.diag(factor**2)

    def sample(self, n: int, rng: np.random.Generator | int = 0) -> np.ndarray:
        """n draws of z ~ q, (n, d), from a generator or from a seed."""
        return self.q.sample(self.w, whole("n", n), np.random.default_rng(rng))

    def draws(self, n: int, seed: np.random.Generator | int = 0) -> dict[str, np.ndarray]:
        """n draws of every parameter in its constraint, {name: (n, *shape)}; z if none is named."""
        return dict(self.model.named(self.sample(n, seed)))

    def log_lik(self, n: int, seed: np.random.Generator | int = 0) -> np.ndarray:
        """The log-likelihood of every data point at n draws, (n, N): what LOO and WAIC need."""
        return self.model.pointwise(self.sample(n, seed))

    def predict(
        self, f: Callable, n: int, seed: np.random.Generator | int = 0, data: Any = None
    ) -> np.ndarray:
        """New data at n draws, or anything else: f(p, batch, rng), p and batch as in `log_lik`.

        The batch has all rows of the model's data, or of `data`, and the result n rows.
        """
        rng = np.random.default_rng(seed)
        batch = self.model.data if data is None else data_arrays(data)
        found = np.asarray(f(self.model.given(self.sample(n, rng)[:, None]), batch, rng))
        if found.shape[:1] != (n,):
            raise ValueError(
                f"predict: f gave an array of shape {found.shape}, not ({n}, ...): for {n} draws a "
                f"number comes as ({n}, 1), and broadcasts with a column of data"
            )
        return found

    def to_arviz(self, n: int = 1000, seed: int = 0, predict: Callable | None = None) -> Any:
        """`arviz.InferenceData`: posterior, log_likelihood, posterior_predictive if `predict`."""
        try:
            import arviz
        except ImportError as error:
            raise ValueError("to_arviz needs ArviZ: pip install 'cvlib-vi[arviz]'") from error
        chain = lambda arrays: {name: x[None] for name, x in arrays.items()}
        groups: dict[str, Any] = {"posterior": chain(self.draws(n, seed))}
        if self.model.rows:
            groups["log_likelihood"] = chain({"y": self.log_lik(n, seed)})
        if predict is not None:
            groups["posterior_predictive"] = chain({"y": self.predict(predict, n, seed)})
        return arviz.from_dict(**groups)

    def expect(self, f: Callable, n: int = 1000, rng: np.random.Generator | int = 0) -> Answer:
        """E f under the posterior, not under q, with its standard error.

        f takes what the model's functions take, at n draws, to (n, ...): f(p) with p.sigma (n,)
        where parameters are declared, else f(z) with z (n, d). The draws are weighed, and meet
        variates of known mean.
        """
        return answers.expected(self, f, n, rng)

    def evidence(self, n: int = 1000, rng: np.random.Generator | int = 0) -> Answer:
        """log p(x) with its standard error; the ELBO is below it by KL(q || p)."""
        return answers.evidence(self, n, rng)

    def go_on(
        self, *, seconds: float | None = None, steps: int | None = None, progress: bool = True,
        callback: Callable | None = None,
    ) -> "Fit":  # fmt: skip
        """The fit after more steps: up to step `steps`, or for so many seconds more."""
        clock = Clock(seconds, steps, self.steps)
        run = replace(self.run, state=deepcopy(self.run.state))  # this fit stays
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

        try:
            (name, data, z, seen), run = pickle.loads(gzip.decompress(Path(path).read_bytes()))
            run = replace(run, model=model)
        except FileNotFoundError:
            raise
        except Exception as error:  # a broken file fails in many ways
            raise ValueError(f"{path} holds no fit that was saved whole: {error!r}") from error
        close = lambda x, y: np.allclose(x, y, rtol=1e-7, equal_nan=True)
        same = (name, data) == (repr(model), model.checksum)
        if not (same and all(map(close, seen, _seen(run, z)))):
            other = "other data or other functions: " if name == repr(model) else ""
            raise ValueError(f"{path} is a fit of {other}{name}, not of {model!r}")
        return cls(run)

    # What it looks like

    @property
    def report(self) -> str:
        """What was done and found, in words."""
        return "\n".join([*self._head(), *(f"- {w}" for w in self.words), *self._warned()])

    def _head(self):
        yield f"{self.model.name}: {self.q!r}"
        yield f"ELBO {self.elbo:.2f} ± {2 * self.error:.2f} after {self.steps} steps"

    def _warned(self):
        return [f"! {w}" for w in self.warnings]

    @cached_property
    def _rows(self):
        """(name, mean, sd) of every entry of every parameter, by draws where it is constrained."""
        model, n = self.model, int(np.clip(2**22 // self.q.dim, 200, 4000))
        arrays: Any = self.draws(n) if len(model.free) < len(model.named(self.mean)) else model.free
        rows: list[tuple] = []
        for name, x in arrays.items():
            if name in model.free:
                where, shape = model.free[name]
                mean, sd = self.mean[where], self.sd[where]
            else:
                mean, sd, shape = x.mean(0).ravel(), x.std(0).ravel(), x.shape[1:]
            rows += zip(labels(name, shape), mean, sd)
        return rows

    def table(self, most: int = 20) -> list[tuple[str, float, float]]:
        """Rows (name, mean, sd), one an entry of a parameter: beta[0], sigma, or z[0], z[1], ..."""
        return self._rows[:most]

    def __repr__(self):
        rows = (f"  {name:8} {m:10.3g} ± {s:.2g}" for name, m, s in self.table(most=12))
        more = ["  ..."] if len(self._rows) > 12 else []
        return "\n".join([*self._head(), *rows, *more, *self._warned()])

    def _repr_html_(self):
        from html import escape

        cell = lambda x: f'<td style="text-align: right; padding: 0 0.8em">{escape(x)}</td>'
        rows = "".join(
            f"<tr>{cell(name)}{cell(f'{m:.3g}')}{cell(f'{s:.2g}')}</tr>"
            for name, m, s in self.table()
        )
        head = "<br>".join(map(escape, self._head()))
        notes = "".join(f"<p>{escape(w)}</p>" for w in self._warned())
        top = "<tr><th>coordinate</th><th>mean</th><th>sd</th></tr>"
        return f"<div><p>{head}</p>{notes}<table>{top}{rows}</table></div>"

    def plot(self, axes=None):
        """Left the ELBO at every look, with two standard errors; right mean and sd of each row."""
        from .. import plotting

        if axes is None:
            _, axes = plotting.plt.subplots(1, 2, figsize=(6.4, 3.0))
        t, elbo, error = self.looks.T
        axes[0].errorbar(t, elbo, 2 * error, color=plotting.BLUE, marker="o", ms=4)
        axes[0].set(
            xlabel="step", ylabel="ELBO", xscale="log" if t.min(initial=1) > 0 else "linear"
        )
        axes[0].set_xticks(t, [f"{k:.0f}" for k in t])
        axes[0].minorticks_off()
        names, mean, sd = zip(*self._rows)
        k = np.arange(len(names))
        axes[1].errorbar(mean, k, xerr=sd, fmt="o", ms=4, color=plotting.BLUE)
        axes[1].set(xlabel="mean ± sd", ylabel="coordinate", ylim=(len(k) - 0.5, -0.5))
        if self.model.declared and len(k) <= 30:
            axes[1].set_yticks(k, names)
            axes[1].set_ylabel("")
        return axes


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
    M: int | None = None, progress: bool = True, callback: Callable[[Fit], bool] | None = None,
) -> Fit:  # fmt: skip
    """The best q of a model, as a `Fit`: one call, nothing to tune.

    Finds the mode of log p(x, z) by its gradient, and begins with the Gaussian about it that has
    the best ELBO. A Gaussian q (full up to 500 unknowns, diagonal above) then takes natural steps
    on the regression of the slopes of all data on the draws, gradients alone and no rate; a full
    one climbs once to the top of the ELBO on fixed even draws. A small generalised linear model
    has its exact optimum instead. Other families take Adam's steps.

    Looks at the ELBO after 10, 20, 40 ... steps (Adam: 200, 400 ...), on common draws. It stops
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
    with _bar(progress) as shown:
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
        run = Run(model, q, kind, M, state, w, begin.trouble, (f"{cut}began at {begin.says}",))
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
