"""What a q that was found can be asked: itself, posterior means, the evidence, with their errors.

Half of the draws have q's mean and covariance with the heavier tail of Student's t, so that no
importance weight explodes where the posterior has more mass than q far out (a defensive mixture).
Below them are answers from draws that others made, of a chain say.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import scipy

from ..adapters.arviz import to_arviz
from ..arguments import numbers, whole
from ..families.base import Family, check_fit
from ..models.checks import data_arrays
from ..models.density import Density, Model
from ..models.parameters import labels
from ..models.passes import wide
from ..special import LOG_2PI
from . import stein
from .looks import HEAVY, smoothed
from .stein import Answer

NU = 5.0  # degrees of freedom of every second draw
EDGE = (
    "log p(x, z) is minus infinity at {} of {} draws: the posterior ends within the reach of q. "
    "Stein's variates do not hold at such an edge, and the draws were weighed without them"
)


class Found:
    """A q_w that was found for a model, w (D,), and what it can be asked.

    z are the model's own coordinates, as it takes them.
    """

    warnings: tuple[str, ...] = ()  # what to distrust

    def __init__(self, model: Model, q: Family, w: np.ndarray):
        check_fit(model, q)
        self.model, self.q, self.w = model, q, q.one(w).copy()

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

    def sample(self, n: int, seed: int = 0) -> np.ndarray:
        """n draws of z ~ q, (n, d)."""
        return self._drawn(n, _rng(seed))

    def _drawn(self, n, rng):
        return self.q.sample(self.w, whole("n", n), rng)

    def draws(self, n: int, seed: int = 0, corrected: bool = False) -> dict[str, np.ndarray]:
        """n draws of every parameter in its constraint, {name: (n, *shape)}; z if none is named.

        If `corrected`, of the posterior as far as weights know it: n of 4 n draws, those that weigh
        more more often. Too heavy a tail of the weights is warned of, with its k-hat.
        """
        return dict(self.model.named(self._points(n, _rng(seed), corrected)))

    def _points(self, n, rng, corrected):
        """n draws z of q, or of the posterior by weights."""
        if not corrected:
            return self._drawn(n, rng)
        z, _, log = self._weighed(4 * whole("n", n, 10), rng)
        w, k = smoothed(log)
        if not k <= HEAVY:
            said = f"k-hat of the weights is {k:.2f}, above {HEAVY}: they do not correct the draws"
            warnings.warn(said, stacklevel=4)
        places = (np.arange(n) + rng.uniform()) / n  # evenly: a weight of k / n comes k times
        return rng.permutation(z[np.searchsorted(np.cumsum(w) / w.sum(), places)])

    def log_lik(self, n: int, seed: int = 0) -> np.ndarray:
        """The log-likelihood of every data point at n draws, (n, N): what LOO and WAIC need."""
        return self.model.pointwise(self.sample(n, seed))

    def predict(self, f: Callable, n: int, seed: int = 0, data: Any = None) -> np.ndarray:
        """New data at n draws, or anything else: f(p, batch, rng), p and batch as in `log_lik`.

        The batch has all rows of the model's data, or of `data`, and the result n rows.
        """
        rng = _rng(seed)
        return self._predicted(f, self._drawn(n, rng), rng, data)

    def _predicted(self, f, z, rng, data=None):
        batch = tuple(map(wide, self.model.data if data is None else data_arrays(data)))
        given, fitted = ([a.shape[1:] for a in arrays] for arrays in (batch, self.model.data))
        if given != fitted[: len(given)]:
            raise ValueError(
                f"predict: rows of data have shapes {given}, those that were fitted {fitted}: give "
                "the same columns in the same order"
            )
        try:
            found, n = np.asarray(f(self.model.given(z[:, None]), batch, rng)), len(z)
        except Exception as error:  # a function of the reader's fails in many ways
            raise ValueError(
                f"predict: f(p, batch, rng) fails for a batch of {len(batch)} arrays, where the "
                f"model has {len(fitted)}: {type(error).__name__}: {error}"
            ) from error
        if found.shape[:1] != (n,):
            raise ValueError(
                f"predict: f gave an array of shape {found.shape}, not ({n}, ...): for {n} draws a "
                f"number comes as ({n}, 1), and broadcasts with a column of data"
            )
        return found

    to_arviz = to_arviz

    def expect(self, f: Callable, n: int = 1000, seed: int = 0) -> Answer:
        """E f under the posterior, not under q, with its standard error.

        f takes what the model's functions take, at n draws, to (n, ...): f(p) with p.sigma (n,)
        where parameters are declared, else f(z) with z (n, d). The draws are weighed, and meet
        variates of known mean; if z is discrete there are none, for it has no score, nor where the
        posterior ends within the reach of q. Where few draws decide a single number, a rare event
        say, n more are taken from about these. What is to distrust in the fit is said here too.
        """
        return self._asked(f, n, seed, stein.expect)

    def quantile(
        self, f: Callable, probs: Any = (0.05, 0.5, 0.95), n: int = 1000,
        seed: int = 0,
    ) -> Answer:  # fmt: skip
        """Quantiles of f under the posterior, (len(probs), ...), with errors, as `expect` works."""
        return self._asked(f, n, seed, partial(stein.quantile, probs=_levels(probs)))

    def _asked(self, f, n, seed, ask):
        if not callable(f):
            raise TypeError(
                f"f={f!r} is no function of the draws: write fit.expect(lambda p: p.sigma)"
            )
        order = None if self.q.smooth == "z" else 0
        of_z = lambda z: stein.floats("what f gives", f(self.model.given(z)), stein.STACK)
        z, score, log = self._weighed(n, _rng(seed), of_z if ask is stein.expect else None)
        out = np.isneginf(log).sum()
        weights = np.exp(log - log.max())
        found = ask(stein.drawn(of_z, z, score, weights, block=1), 0 if out else order)
        edge = [EDGE.format(out, len(log))] if out and order is None else []
        return replace(found, warnings=(*self.warnings, *edge, *found.warnings))

    def _weighed(self, n, rng, of_z=None):
        """Draws, their scores, and the logarithms of their weights; more about where of_z is."""
        if self.q.mapped is not None:
            return drawn(self, n, rng, of_z)[:3]
        z, density = self._drawn(whole("n", n, 10), rng), Density(self.model)
        value, score = density.slope(z) if self.q.smooth == "z" else (density.value(z), 0 * z)
        log = value - self.q.log_q(self.w, z)
        return z, np.where(np.isneginf(log)[:, None], 0.0, score), log

    def evidence(self, n: int = 1000, seed: int = 0) -> Answer:
        """log p(x) with its standard error; the ELBO is below it by KL(q || p).

        It is the log of the mean weight, regressed on what is known under q: q's share of the law
        of the draws has mean one; times e or e e^T - I it has mean zero.
        """
        if self.q.mapped is None:
            raise ValueError(
                f"the evidence needs a Gaussian q, straight or bent; this is {self.q!r}"
            )
        at = drawn(self, n, _rng(seed))
        w, k = smoothed(at.log)  # in units of the largest
        share = at.share[:, None]
        known = lambda order: np.column_stack([share - 1, share * stein.stein(at.e, -at.e, order)])
        lot = stein.Drawn(w, at.z, at.score, np.ones(len(w)), k)
        found = stein.answer(w[:, None], lot, None, variates=known)[0]
        log = at.log.max() + np.log(found.estimate)
        says = (*self.warnings, *found.warnings)
        return replace(found, estimate=log, se=found.se / found.estimate, warnings=says)

    # What it looks like

    @cached_property
    def _rows(self):
        """(name, mean, sd) of every entry of every parameter, by draws where it is constrained."""
        model, n = self.model, int(np.clip(2**22 // self.q.dim, 200, 4000))
        free = model.parameters.free
        arrays: Any = self.draws(n) if len(free) < len(model.named(self.mean)) else free
        rows: list[tuple] = []
        for name, x in arrays.items():
            if name in free:
                where, shape = free[name]
                mean, sd = self.mean[where], self.sd[where]
            else:
                mean, sd, shape = x.mean(0).ravel(), x.std(0).ravel(), x.shape[1:]
            rows += zip(labels(name, shape), mean, sd)
        return rows

    def table(self, most: int = 20) -> list[tuple[str, float, float]]:
        """Rows (name, mean, sd), one an entry of a parameter: beta[0], sigma, or z[0], z[1], ..."""
        return self._rows[:most]

    def _head(self):
        return [f"{self.model.name}: {self.q!r}"]

    def _warned(self):
        return [f"! {w}" for w in self.warnings]

    def __repr__(self):
        rows = [f"  {name:8} {m:10.3g} ± {s:.2g}" for name, m, s in self.table(most=12)]
        more = ["  ..."] if len(self._rows) > 12 else []
        return "\n".join([*self._head(), *rows, *more, *self._warned()])

    def _repr_html_(self):
        from html import escape

        cell = lambda x: f'<td style="text-align: right; padding: 0 0.8em">{escape(x)}</td>'
        row = lambda *cells: f"<tr>{''.join(map(cell, cells))}</tr>"
        rows = "".join(row(name, f"{m:.3g}", f"{s:.2g}") for name, m, s in self.table())
        head = "<br>".join(map(escape, self._head()))
        notes = "".join(f"<p>{escape(w)}</p>" for w in self._warned())
        top = "<tr><th>coordinate</th><th>mean</th><th>sd</th></tr>"
        return f"<div><p>{head}</p>{notes}<table>{top}{rows}</table></div>"


# Draws of the fit itself ------------------------------------------------------------------------


class Draws(NamedTuple):
    """Draws from the mixture of q and Student's t."""

    z: np.ndarray  # (n, d)
    score: np.ndarray  # (n, d)
    log: np.ndarray  # (n,) log p(x, z) less the log density of the draws; -inf weighs nothing
    e: np.ndarray  # (n, d) in q's own coordinates
    share: np.ndarray  # (n,) q / law of the draws


def _rng(seed):
    return np.random.default_rng(whole("seed", seed, 0))


def drawn(fit: Found, n: int, rng: np.random.Generator, of_z: Callable | None = None) -> Draws:
    """n draws for a fit whose q maps normal ones, at which log p and its score are numbers.

    Where the posterior has ended log p is minus infinity, and the score counts as zero. If the
    value of of_z, one number a draw, is decided by few of them, n more come from Student's t about
    their mean, and all are weighed by the law of all.
    """
    e = rng.standard_normal((whole("n", n, 10), fit.q.dim))
    e[::2] *= np.sqrt(NU / rng.chisquare(NU, len(e[::2])))[:, None]
    at = _at(fit, e)
    if of_z is None or (centre := _decided(at, of_z(at.z))) is None:
        return at
    t = rng.standard_normal(at.e.shape) * np.sqrt(NU / rng.chisquare(NU, len(at.e)))[:, None]
    return _at(fit, np.concatenate([at.e, centre + t]), centre)


def _decided(at, F):
    """The mean, (d,), in q's coordinates, of draws so few that they decide a number F (n,)."""
    if F.shape != at.log.shape or not np.isfinite(F[at.log > -np.inf]).all():
        return None
    F, w = np.where(at.log > -np.inf, F, 0.0) * 1.0, np.exp(at.log - at.log.max())
    many, away = stein.behind(F[:, None], w)
    return away[:, 0] @ at.e / away.sum() if 0 < many[0] < len(F) / 20 else None


def _at(fit, e, centre=None):
    """The draws with these e."""
    z, stretch = fit.q.mapped(fit.w[None], e)
    log, score = Density(fit.model).slope(z)
    more = np.logaddexp(0, student(e)) - np.log(2)  # log of the law of the draws over q
    if centre is not None:
        shift = student(e - centre) + 0.5 * (e**2 - (e - centre) ** 2).sum(-1)
        more = np.logaddexp(more, shift) - np.log(2)
    log = log + 0.5 * (e**2 + LOG_2PI).sum(-1) + stretch - more
    out = np.isneginf(log)
    score = np.where(out[:, None], 0.0, score)
    fine, n = (np.isfinite(log) | out) & np.isfinite(score).all(-1), len(e)
    if fine.sum() < max(10, 0.9 * n):
        raise ValueError(
            f"log p(x, z) or its slope is no number at {n - fine.sum()} of {n} draws: something "
            "overflows there, or a matrix is singular"
        )
    if (~out).sum() < 10:
        raise ValueError(f"log p(x, z) is minus infinity at {out.sum()} of {n} draws: q misses it")
    return Draws(z[fine], score[fine], log[fine], e[fine], np.exp(-more[fine]))


def student(e: np.ndarray) -> np.ndarray:
    """log of Student's t with NU degrees of freedom over N(0, I), their densities at e, (n,)."""
    d, square = e.shape[-1], (e**2).sum(-1)
    gammaln = scipy.special.gammaln
    front = gammaln((NU + d) / 2) - gammaln(NU / 2) - d / 2 * np.log(NU / 2)
    return front - (NU + d) / 2 * np.log1p(square / NU) + square / 2


# Draws that others made -------------------------------------------------------------------------


def expect(
    f: Callable | np.ndarray, z: Any, score: Any, weights: np.ndarray | None = None, *,
    order: int | None = None, block: int | None = None,
) -> Answer:  # fmt: skip
    """E_p f(z) as an `Answer`, from draws z (n, d) and scores grad log p(z) (n, d) there.

    In place of the score a model: then z may be an `InferenceData` or `DataTree` of ArviZ, or draws
    by name, {name: (n, *shape)} or (chains, n, *shape), and f takes what the model's functions
    take. Without one f takes z to (n, ...), or is that array. Several chains are z (chains, n, d),
    scores and values likewise. weights (n,): p / q up to a factor, for draws of another law q.
    order: 0, 1 or 2; if not given, the one that foretells best what it has not seen. block: so many
    neighbours of a chain are left out together; if not given, two autocorrelation times.
    """
    return stein.expect(_given(f, z, score, weights, block), order)


def quantile(
    f: Callable | np.ndarray, z: Any, score: Any, weights: np.ndarray | None = None, *,
    probs: Any = (0.05, 0.5, 0.95), order: int | None = None, block: int | None = None,
) -> Answer:  # fmt: skip
    """Quantiles of f under p, (len(probs), ...), with errors; all else as in `expect`."""
    levels = _levels(probs)  # before f is called, which may take long
    return stein.quantile(_given(f, z, score, weights, block), order, probs=levels)


def _levels(probs):
    """Probabilities, (m,), one at least."""
    levels = np.atleast_1d(numbers("probs", probs, 0, 1, True))
    if levels.ndim > 1 or not levels.size:
        raise ValueError(f"probs={probs!r}: give one probability or a list, such as [0.05, 0.95]")
    return levels


def _given(f, z, score, weights, block):
    """What is given, checked; with a model in place of the score, from f and z in its terms."""
    if isinstance(model := score, Model):
        draws = getattr(z, "posterior", z)
        z = _back(draws, model) if hasattr(draws, "keys") else stein.floats("draws", draws)
        if z.shape[-1:] != (model.dim,):
            raise ValueError(f"draws z of shape {z.shape}: {model!r} needs (n, {model.dim})")
        score = Density(model).slope(z.reshape(-1, model.dim))[1].reshape(z.shape)
        of_p = f
        f = (lambda z: of_p(model.given(z))) if callable(of_p) else of_p
    return stein.drawn(f, z, score, weights, block)


def _back(draws: Mapping, model: Model) -> np.ndarray:
    """Draws by name, in their constraints, as z (n, d) or (chains, n, d)."""
    needs, back = model.parameters.each, model.parameters.back
    if back is None:
        raise ValueError(f"{model!r} does not say how to take its parameters back to z")
    if missing := [name for name in needs if name not in draws]:
        raise ValueError(
            f"the draws have no {missing[0]!r}, and {model!r} needs {', '.join(needs)}"
        )
    arrays = {name: stein.floats(f"draws of {name}", draws[name]) for name in needs}
    shapes = {k: np.shape(x)[1:] for k, x in model.named(np.zeros((1, model.dim))).items()}
    leads = {x.shape[: x.ndim - len(shapes[name])] for name, x in arrays.items()}
    lead = leads.pop()
    if leads or len(lead) not in (1, 2):
        raise ValueError(
            f"draws of {', '.join(arrays)} must be (n, *shape) or (chains, n, *shape) each, all "
            f"with one n; got {', '.join(str(x.shape) for x in arrays.values())}"
        )
    z = back({name: x.reshape(-1, *shapes[name]) for name, x in arrays.items()})
    return z.reshape(*lead, model.dim)
