"""Quadratics that are trained along with q, on draws of their own (Geffner and Domke 2020).

f~(z) = b.u + u^T B u / 2 with u = S^-1 (z - mu) and B = diag(s) - U U^T of low rank: for models
where a Hessian is too dear. CF(f~) - RP1(f~) has mean zero for every b, s and U that do not depend
on the draw, so also while they are trained.
"""

from dataclasses import dataclass, replace
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd import grad

from cvlib import CF, RP1, draw, evaluate, rules
from cvlib.arguments import number, whole
from cvlib.ascent.optimize import Hook, State
from cvlib.draws import Draw
from cvlib.families import Family
from cvlib.recipe.estimators import Estimator
from cvlib.recipe.integrands import Atom, Illegal, Integrand

SLOW = 16  # dimensions beyond which U learns more slowly


@dataclass(frozen=True, eq=False)
class Curve:
    """What a quadratic is made of."""

    S: np.ndarray  # (d, d) lower triangular, or (d,) for a diagonal q: the units of u
    b: np.ndarray  # (d,)
    s: np.ndarray  # (d,)
    U: np.ndarray  # (d, r)

    def times(self, v: np.ndarray) -> np.ndarray:
        """B v for rows v (..., d)."""
        return self.s * v - anp.dot(anp.dot(v, self.U), self.U.T)


class Trained(Atom):
    """The integrand of a curve, about a centre that moves along with q; no two are equal."""

    closed_form = quadratic = True

    def __init__(self, f: Integrand, curve: Curve) -> None:
        owners = {atom.owner for atom in f.parts if atom.owner}
        if len(owners) != 1:
            raise Illegal(f"quadratic stands in for terms of one model, not for {f!r}")
        super().__init__(f"quadratic({f!r})", *owners.pop())
        self.curve, self.key = curve, (*self.key, object())

    def units(self, draw: Draw, where: str) -> np.ndarray:
        """u at the points."""
        return self.q.solve(self.curve.S, draw.at(where) - draw.at("mu"))

    def value(self, draw: Draw, where: str) -> np.ndarray:
        curve, u = self.curve, self.units(draw, where)
        return u @ curve.b + 0.5 * np.vecdot(u, curve.times(u))

    def grad(self, draw: Draw, where: str) -> np.ndarray:
        curve, u = self.curve, self.units(draw, where)
        return self.q.solve_t(curve.S, curve.b + curve.times(u))

    def hess_L(self, draw: Draw, where: str) -> np.ndarray:
        return self.q.hess_L(lambda V: self.along(draw, where, V)[..., None, :, :], draw.factor)

    def along(self, draw: Draw, where: str, v: np.ndarray) -> np.ndarray:
        curve = self.curve
        return self.q.solve_t(curve.S, curve.times(self.q.solve(curve.S, v)))


def fitted(
    f: Integrand, q: Family, w: Any = None, rank: int = 5, *,
    state: State | None = None,
) -> Estimator:  # fmt: skip
    """The variate CF(f~) - RP1(f~) to begin with: b = 0, B of this rank and almost 0.

    S is the factor of q at w (D,), weights near those of the run. With the `state` of a run it is
    the variate as training left it.
    """
    if state is not None:
        return _variate(f, Curve(*(state.notes[f"curve {name}"] for name in "SbsU")))
    d, r = q.dim, min(whole("rank", rank, 0), q.dim)
    U = 0.1 * np.random.default_rng(0).standard_normal((d, r)) / np.sqrt(d)
    return _variate(f, Curve(q.unpack(q.check(w))[1], np.zeros(d), np.zeros(d), U))


def train(f: Integrand, rate: float = 0.05, M: int = 2) -> Hook:
    """A hook for sgd that trains the fitted quadratic of f among the plan's variates.

    sgd(..., h, [fitted(f, q, w)], hooks={1: train(f)}). It draws M samples of its own, M gradients
    more a step, and takes a step of Adam on E||h + c||^2 in the units of u. In more than 16
    dimensions U goes slower, for u^T U U^T u sums over all of its entries. One curve serves all
    runs; the middle one is looked at. What it knows is in the state's notes: a run goes on with
    [fitted(f, q, state=state)].
    """
    number("rate", rate, 0, above=True)
    whole("M", M)

    def hook(state, plan):
        at = [k for k, c in enumerate(plan.cvs) if curve_of(c) is not None]
        if len(at) != 1:
            raise ValueError(f"train needs one fitted quadratic among the variates, not {len(at)}")
        q, runs = plan.q, state.w.reshape(-1, plan.q.D)
        curve: Any = curve_of(plan.cvs[at[0]])
        w = runs[len(runs) // 2]
        d = draw(plan.model, q, w, M, state.rng, sampling=replace(plan.sampling, noise="plain"))
        h = evaluate([plan.h], d, check=False)[0]  # (M, D)
        slope = grad(lambda v: loss(q, Curve(curve.S, *v), w, d.eps, h))
        curve, notes = _stepped(curve, slope((curve.b, curve.s, curve.U)), rate, state.notes, q)
        if not all(np.isfinite(v).all() for v in vars(curve).values()):
            return None  # the run is about to diverge: its gradients teach nothing
        cvs = list(plan.cvs)
        cvs[at[0]] = _variate(f, curve)
        return state._replace(notes=notes), replace(plan, cvs=tuple(cvs))

    return hook


def _stepped(curve, slopes, rate, notes, q):
    """The curve after a step of Adam downhill, and the notes with what is to be remembered."""
    rates = {"b": rate, "s": rate, "U": rate * min(1, SLOW / q.dim)}
    new = {"S": curve.S}
    kept: dict[str, np.ndarray] = {}
    for (name, own), slope in zip(rates.items(), slopes):
        v = getattr(curve, name)
        begin = enumerate(rules.adam().start(q, v))
        memory = [notes.get(f"curve {name} {k}", x) for k, x in begin]
        new[name], memory = rules.adam().step(memory, v, -slope, own, q, 1)
        kept |= {f"curve {name} {k}": np.asarray(x) for k, x in enumerate(memory)}
    return Curve(**new), notes | kept | {f"curve {name}": v for name, v in new.items()}


def quadratic(f: Integrand, curve: Curve) -> Integrand:
    """The curve in place of the integrand f."""
    return Integrand({Trained(f, curve): 1})


def _variate(f, curve):
    T = quadratic(f, curve)
    return CF(T) - RP1(T)


def curve_of(line: Estimator) -> Curve | None:
    """The curve of a fitted variate, or None."""
    return next((a.curve for _, a in line.parts if isinstance(a, Trained)), None)


def loss(q: Family, curve: Curve, w: np.ndarray, eps: np.ndarray, h: np.ndarray) -> float:
    """Mean of ||h + CF(f~) - RP1(f~)||^2 over samples, in the units of u; h (M, D), eps (M, d).

    In these units mu and L are S^-1 mu and A = S^-1 L, so the slope in z goes there by S^T.
    """
    mu, G = q.unpack(h)
    L = q.unpack(w)[1]
    S_t = np.swapaxes(curve.S, -1, -2) if q.full else curve.S
    h_mu, h_L = q.times_t(curve.S, mu), q.compose(S_t, G)  # (M, d), (M, d, d) or (M, d)
    A = q.solve(curve.S, L.T).T if q.full else L / curve.S
    Au = anp.dot(eps, A.T) if q.full else eps * A
    slope = curve.b + curve.times(Au)  # (M, d)
    r_mu = h_mu + curve.b - slope
    if q.full:
        BA = curve.times(A.T).T
        r_L = (h_L + BA - slope[:, :, None] * eps[:, None, :]) * np.tri(q.dim)
    else:
        r_L = h_L + A * (curve.s - anp.sum(curve.U**2, -1)) - slope * eps
    return (anp.sum(r_mu**2) + anp.sum(r_L**2)) / len(eps)
