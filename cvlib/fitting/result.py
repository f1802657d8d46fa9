"""What a fit found: draws, tables, pictures, files, and what to distrust."""

import html
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ..arguments import whole
from ..combining.stein import Answer
from ..combining.tails import k_hat
from ..families.base import Family
from ..models import Model
from ..models.checks import data_arrays
from ..models.parameters import labels
from . import answers, looks
from .run import Run


@dataclass(frozen=True, eq=False, repr=False)
class Fit:
    """What `fit` found. z are the model's own coordinates, as it takes them.

    w (D,) are the weights of q; elbo and its standard error; `looks` has rows (step, elbo, error);
    `words` what was done, `warnings` what to distrust; `effective` is the share of draws that
    importance weights leave, `k_hat` the tail of these weights.
    """

    model: Model
    q: Family
    w: np.ndarray
    elbo: float
    error: float
    effective: float
    k_hat: float
    looks: np.ndarray
    settled: bool
    steps: int
    seconds: float
    words: tuple[str, ...]
    warnings: tuple[str, ...]
    run: Run = field(repr=False)

    @classmethod
    def of(cls, run: Run) -> "Fit":
        """What a run has come to."""
        model, q, w = run.plan.model, run.q, run.best
        with np.errstate(all="ignore"):
            found = looks.weighed(model, q, w, run.state.t + 1)
            k = k_hat(found.log[found.fine])
            words = (*run.words, *_said(run, found, k))
            doubts = tuple(run.doubts(found, k))
        elbo, error = found.elbo
        return cls(
            model, q, w, float(elbo), float(error), found.effective, k,
            np.array(run.looks).reshape(-1, 3), run.settled, run.state.t, run.seconds, words,
            doubts, replace(run),
        )  # fmt: skip

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
        from .front import went  # which is made of fits

        run = replace(self.run, state=deepcopy(self.run.state))  # this fit stays
        return went(run, seconds, steps, progress, callback)

    def save(self, path: str | Path) -> None:
        """Everything but the model into one file; `Fit.load(path, model)` reads it."""
        self.run.save(path)

    @classmethod
    def load(cls, path: Any, model: Model, **lines: Any) -> "Fit":
        """A saved fit of this model; lines that `fit` was given (h, cvs, weights) come again."""
        return cls.of(Run.load(path, model, **lines))

    def __reduce__(self):
        """A pickle holds what `save` writes, and the model."""
        if {"h", "cvs"} & self.run.given.keys():
            raise TypeError("a fit that was given h or cvs is not pickled: save it, and load it")
        with TemporaryDirectory() as folder:
            path = Path(folder) / "fit.npz"
            self.save(path)
            return _unpickled, (path.read_bytes(), self.model, self.run.given)

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

    def table(self, names: Any = None, most: int = 20) -> list[tuple[str, float, float]]:
        """Rows (name, mean, sd), one an entry of a parameter: beta[0], sigma, or z[0], z[1], ..."""
        rows = self._rows
        if names is not None:
            names = list(map(str, names))
            if len(names) != len(rows):
                raise ValueError(
                    f"{len(names)} names for {len(rows)} coordinates: give one for each"
                )
            rows = [(name, *row[1:]) for name, row in zip(names, rows)]
        return rows[:most]

    def __repr__(self):
        rows = (f"  {name:8} {m:10.3g} ± {s:.2g}" for name, m, s in self.table(most=12))
        more = ["  ..."] if len(self._rows) > 12 else []
        return "\n".join([*self._head(), *rows, *more, *self._warned()])

    def _repr_html_(self):
        cell = lambda x: f'<td style="text-align: right; padding: 0 0.8em">{html.escape(x)}</td>'
        rows = "".join(
            f"<tr>{cell(name)}{cell(f'{m:.3g}')}{cell(f'{s:.2g}')}</tr>"
            for name, m, s in self.table()
        )
        head = "<br>".join(map(html.escape, self._head()))
        notes = "".join(f"<p>{html.escape(w)}</p>" for w in self._warned())
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


def _said(run, found, k):
    """How the steps were made, and two numbers on the shape of q with what each means."""
    if run.kind == "exact":
        yield "natural steps on the exact ELBO, by quadrature"
    elif run.kind in ("natural", "passes"):
        yield f"natural steps, {run.plan.M} slopes regressed on their draws in each, all data"
    else:
        seen = "all data" if run.batch is None else f"batches of {run.batch}"
        yield f"Adam's steps with {run.plan.M} draws, {seen}, on {run.plan.h!r}"
    if run.q.gaussian:
        share, left = looks.explained(run.plan.model, run.q, run.best, run.state.t + 1)
        yield (
            f"a quadratic explains {share:.0%} of the slope of log p at the draws, and a better "
            f"Gaussian would remove {max(left, 0.0) + 0.0:.2g} a coordinate"
        )
    yield (
        f"importance weights keep {found.effective:.0%} of {len(found.log)} draws: what the others "
        "are worth beside the largest"
    )
    yield f"k-hat is {k:.2f}: above 0.7 the tail of the weights is too heavy to believe that share"


def _unpickled(content, model, given):
    return Fit.load(BytesIO(content), model, **given)
