"""What a q that was found can be asked: posterior means, quantiles, draws, the evidence, itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
import scipy

from ..adapters.arviz import to_arviz
from ..arguments import whole
from ..families.base import Family, check_fit
from ..models.checks import data_arrays
from ..models.density import Model
from ..models.parameters import Named
from ..models.passes import wide
from . import effects, lots, stein
from .lots import Lot
from .table import DOUBT, GOOD, TAILS, Answer, Table, note

EDGE = (
    "log p(x, z) is minus infinity at {} of {} draws: the posterior ends within the reach of q. "
    "Stein's variates do not hold at such an edge, and the draws were weighed without them"
)
NOT_CORRECTED = "of q, not corrected"
K_HAT = "k-hat"  # of weight times a parameter or its square, the larger
ALL_WELL = "the posterior, and nothing to distrust: numbers end at the second digit of their error"


class Found:
    """A q_w that was found for a model, w (D,), and what it can be asked.

    z are the model's own coordinates, as it takes them. `mean`, `sd`, `cov` and `sample` are those
    of q. `summary`, `draws`, `predict`, `log_lik` and `to_arviz` are those of the posterior where
    weights can make them so (`shown` is "posterior"), else those of q (`shown` is "q"): all read
    one `lot` of weighed points.
    """

    warnings: tuple[str, ...] = ()  # what to distrust

    def __init__(self, model: Model, q: Family, w: np.ndarray):
        check_fit(model, q)
        self.model, self.q, self.w = model, q, q.one(w).copy()

    @property
    def mean(self) -> np.ndarray:
        """E_q z, (d,): of q, not of the posterior."""
        return self.q.mean(self.w)

    @property
    def sd(self) -> np.ndarray:
        """Standard deviations of z under q, (d,), not under the posterior."""
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
        return self.q.sample(self.w, whole("n", n), _rng(seed))

    # The lot, and what is read from it

    @cached_property
    def lot(self) -> Lot:
        """The weighed points that are read for whatever is shown."""
        return self._weighed(lots.size(self.model), _rng(0))

    def _weighed(self, n, rng):
        return lots.weighed(self.model, self.q, self.w, whole("n", n, 10), rng)

    @property
    def k_hat(self) -> float:
        """Of the tail of the lot's weights."""
        return self.lot.k_hat

    @property
    def effective(self) -> float:
        """Relative ESS: the share of the lot that its weights leave."""
        return self.lot.effective

    @property
    def shown(self) -> str:
        """What draws and tables are of: "posterior" where weights make them so, else "q"."""
        return "posterior" if self._holds else "q"

    @property
    def _holds(self):
        try:
            return self.lot.holds
        except ValueError:  # log p is not finite at too many points
            return False

    def draws(self, n: int, seed: int = 0, corrected: bool | None = None) -> dict[str, np.ndarray]:
        """n draws of every parameter in its constraint, {name: (n, *shape)}; z if none is named.

        Of the posterior, points of the lot that weigh more more often, or of q, as `shown` says.
        corrected=False: of q whatever is shown. True: of the posterior, or an error.
        """
        return self.named(self._points(n, _rng(seed), corrected))

    def named(self, z: np.ndarray) -> dict[str, np.ndarray]:
        """The parameters at points z (n, d) by name, and a draw of the effects of every group."""
        drawn = {} if self.model.effects is None else effects.drawn(self.model, z)
        return {**self.model.named(z), **drawn}

    def _points(self, n, rng, corrected=None):
        """n draws z of the posterior or of q."""
        n, holds = whole("n", n), corrected is not False and self._holds
        if corrected and not holds:
            raise ValueError(
                "corrected=True: weights do not make the posterior of this q, as fit.warnings say. "
                "Take corrected=False, which gives draws of q"
            )
        if not holds:
            return self.q.sample(self.w, n, rng)
        expensive = self.model.effects is not None  # which are drawn anew at every point
        enough = self.lot.exact or expensive or len(self.lot.w) >= 4 * n
        return (self.lot if enough else self._weighed(4 * n, rng)).resampled(n, rng)

    def summary(self) -> Table:
        """Mean, sd, 5 %, 50 % and 95 % of every entry of every parameter, with their errors.

        Of the posterior or of q, as `shown` says. summary()["mean"]["sigma"] is a number,
        summary().frame() a frame of pandas, with the errors and k-hat in columns of their own.
        """
        return replace(self._described, warnings=self.warnings)

    @cached_property
    def _described(self):
        lot, order, head = self._read
        names, X = lots.entries(self.model.named(lot.z))
        probs = np.array([*TAILS.values()])
        values, errors, k_f = stein.described(lot.drawn(X), order, probs=probs)
        return replace(lots.moments(names, values, errors, {K_HAT: k_f}), head=head)

    @cached_property
    def _read(self):
        """The points that a table is read from, the order of variates, and what stands above it."""
        if self._holds:
            return self.lot, self._order(self.lot), ""
        return lots.plain(self.q, self.w, lots.size(self.model), _rng(0)), 0, NOT_CORRECTED

    def _order(self, lot):
        """Of Stein's variates: None to choose, 0 where z has no score or the posterior ends."""
        return None if self.q.smooth == "z" and not lot.outside else 0

    def log_lik(self, n: int, seed: int = 0, corrected: bool | None = None) -> np.ndarray:
        """The log-likelihood of every data point at n of the `draws`, (n, N)."""
        return self.model.pointwise(self._points(n, _rng(seed), corrected))

    def effects(self, name: str) -> Table:
        """Of a model with groups: the effect of every group, by label, as `summary` shows it."""
        lot, order, head = self._read
        table = effects.table(self.model, name, lot, order)
        return replace(table, head=head, warnings=self._shown_badly)

    def predict(
        self, f: Callable, n: int, seed: int = 0, data: Any = None,
        corrected: bool | None = None, groups: Any = None,
    ) -> np.ndarray:  # fmt: skip
        """New data at n of the `draws`, or anything else: f(p, batch, rng).

        p and batch are as in the model's `log_lik`. The batch has all rows of the model's data, or
        of `data`, and the result n rows. `groups` are the labels of rows of `data`, of groups that
        the model has seen or not.
        """
        rng = _rng(seed)
        return self._predicted(f, self._points(n, rng, corrected), rng, data, groups)

    def _predicted(self, f, z, rng, data=None, groups=None):
        own = self.model.all_rows
        batch = tuple(map(wide, own if data is None else data_arrays(data)))
        given, fitted = ([a.shape[1:] for a in arrays] for arrays in (batch, own))
        if given != fitted[: len(given)]:
            raise ValueError(
                f"predict: rows of data have shapes {given}, those that were fitted {fitted}: give "
                "the same columns in the same order"
            )
        p = effects.at_rows(self.model, z, batch, data, groups)
        try:
            found, n = np.asarray(f(p, batch, rng)), len(z)
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

    def expect(self, f: Callable, n: int | None = None, seed: int = 0) -> Answer:
        """E f under the posterior, whatever is shown, with its standard error.

        f takes what the model's functions take, at n points, to (n, ...): f(p) with p.sigma (n,)
        where parameters are declared, else f(z) with z (n, d). The points are those of the lot, or
        at least n others, from `seed`. They are weighed, and meet variates of known mean; if z is
        discrete there are none, for it has no score, nor where the posterior ends within the reach
        of q. Where few points decide a single number, a rare event say, as many more are taken from
        about these.
        """
        found = stein.expect(*self._asked(f, n, seed, rare=True))
        return replace(found, name=_name(f, self.model.given(self.sample(2, seed))))

    def quantile(
        self, f: Callable, probs: Any = (0.05, 0.5, 0.95), n: int | None = None, seed: int = 0
    ) -> Answer:
        """Quantiles of f under the posterior, (len(probs), ...), with errors, as `expect` works."""
        levels = stein.levels(probs)  # before f is called, which may take long
        return stein.quantile(*self._asked(f, n, seed), probs=levels)

    def _asked(self, f, n, seed, rare=False):
        """Weighed points with what f is there, and the order of variates."""
        if not callable(f):
            raise TypeError(
                f"f={f!r} is no function of the draws: write fit.expect(lambda p: p.sigma)"
            )
        of_z = lambda z: stein.floats("what f gives", f(self.model.given(z)), stein.STACK)
        rng = _rng(seed)
        lot = self.lot if n is None else self._weighed(n, rng)
        lot = lot.drawn(of_z(lot.z))
        if rare and (centre := lots.decided(lot)) is not None:
            lot = lots.more(lot, self.model, self.q, self.w, centre, rng)
            lot = lot.drawn(of_z(lot.z))
        edge = [EDGE.format(lot.outside, len(lot.w))] * bool(lot.outside and self.q.smooth == "z")
        return replace(lot, says=(*self._shown_badly, *edge)), self._order(lot)

    @property
    def _shown_badly(self):
        """What is to distrust in the fit, where it is q that is shown."""
        return () if self._holds else self.warnings

    def evidence(self, n: int | None = None, seed: int = 0) -> Answer:
        """log p(x) with its standard error; the ELBO is below it by KL(q || p).

        It is the log of the mean weight, regressed on what is known under q: q's share of the law
        of the points has mean one; times e or e e^T - I it has mean zero. Of a discrete z with few
        states it is their sum.
        """
        if self.q.states is not None:
            total = scipy.special.logsumexp(self.lot.log)
            return Answer(total, np.zeros(()), self.k_hat, 0, len(self.lot.w))
        if self.q.mapped is None:
            raise ValueError(
                f"the evidence needs a Gaussian q, straight or bent; this is {self.q!r}"
            )
        lot = self.lot if n is None else self._weighed(n, _rng(seed))
        share = lot.share[:, None]
        known = lambda order: np.column_stack(
            [share - 1, share * stein.stein(lot.e, -lot.e, order)]
        )
        at = replace(lot, w=np.ones(len(lot.w)), F=lot.w, says=self._shown_badly)
        found = stein.answer(lot.w, at, variates=known)[0]
        log = lot.log.max() + np.log(found.estimate)
        return replace(found, estimate=log, se=found.se / found.estimate)

    # What it looks like

    def _head(self):
        return [f"{self.model.name}: {self.q!r}"]

    def __repr__(self):
        return "\n".join([*self._head(), repr(self.summary())])

    def _repr_html_(self):
        """The outcome in one line, green or amber with what to do, and the table under it."""
        head, table = "<br>".join(map(escape, self._head())), self._described
        said = table.head or ("the posterior, with doubts" if self.warnings else ALL_WELL)
        line = note(GOOD if said == ALL_WELL else DOUBT, "\n- ".join([said, *self.warnings]))
        return f"<div><p>{head}</p>{line}{replace(table, head='')._repr_html_()}</div>"


def _name(f, p):
    """The name of the parameter that f takes from p as it is, or ""."""
    taken = f(p) if isinstance(p, Named) else None
    return next((name for name in p if p[name] is taken), "") if taken is not None else ""


def _rng(seed):
    return np.random.default_rng(whole("seed", seed, 0))
