"""Fitted quadratics: an approximation of any integrand, trained along with q, without a Hessian.

f~(z) = b.u + u^T B u / 2 with u = S^-1 (z - mu) and B = diag(s) - U U^T of low rank: for models
where a Hessian is too dear (Geffner and Domke 2020). CF(f~) - RP1(f~) has mean zero for every
b, s and U that do not depend on the draw, so also while they are trained, on other draws.
"""

from dataclasses import dataclass, replace

import autograd.numpy as anp
import numpy as np
from autograd import grad

from ..arguments import number, whole
from ..recipe.draws import draw
from ..recipe.estimators import evaluate
from ..recipe.integrands import Atom, Illegal, Integrand, integrand
from ..recipe.words import CF, RP1
from . import rules
from .optimize import Noisy, init

SLOW = 16  # dimensions beyond which U learns more slowly


@dataclass(frozen=True, eq=False)  # no two are equal: another curve is another integrand
class Curve:
    """What a quadratic is made of."""

    S: np.ndarray  # (d, d) lower triangular, or (d,) for a diagonal q: the units of u
    b: np.ndarray  # (d,)
    s: np.ndarray  # (d,)
    U: np.ndarray  # (d, r)

    def times(self, v):
        """B v for rows v (..., d)."""
        return self.s * v - anp.dot(anp.dot(v, self.U), self.U.T)


def quadratic(f, curve):
    """The quadratic of a `Curve`, standing in for the integrand f under a Gaussian q."""
    owners = {atom.owner for atom in integrand(f, "quadratic").parts if atom.owner}
    model, q = owners.pop() if len(owners) == 1 else (None, None)
    if q is None or not q.gaussian:
        raise Illegal(f"quadratic stands in for terms of a model under a Gaussian q, not for {f!r}")
    if not isinstance(curve, Curve):
        raise TypeError(f"{type(curve).__name__} is no quadratics.Curve(S, b, s, U)")
    return Integrand({Quadratic(f, model, q, curve): 1})


class Quadratic(Atom):
    """b.u + u^T B u / 2, u = S^-1 (z - mu)."""

    closed_form = quadratic = True

    def __init__(self, f, model, q, curve):
        super().__init__(f"quadratic({f!r})", model, q)
        self.f, self.curve = f, curve
        self.key = (*self.key, curve)  # where it stays alive: its id is its own

    def u(self, draw, where):
        return self.q.solve(self.curve.S, draw.at(where) - draw.at("mu"))

    def value(self, draw, where):
        u = self.u(draw, where)
        return u @ self.curve.b + 0.5 * np.vecdot(u, self.curve.times(u))

    def grad(self, draw, where):
        c = self.curve
        return self.q.solve_t(c.S, c.b + c.times(self.u(draw, where)))

    def bend(self, draw, where):
        c, q = self.curve, self.q
        times = lambda V: q.solve_t(c.S, c.times(q.solve(c.S, V)))[..., None, :, :]
        return q.bend(times, draw.factor)


def fitted(f, q, w=None, rank=5, *, state=None):
    """The variate CF(f~) - RP1(f~) to begin with: b = 0, B of this rank and almost 0.

    S is the factor of q at w (D,), weights near those of the run. With the `state` of a run it is
    the variate as training left it.
    """
    if state is not None:
        return _variate(f, Curve(*(state.notes[f"curve {name}"] for name in "SbsU")))
    d, r = q.dim, min(whole("rank", rank, 0), q.dim)
    U = 0.1 * np.random.default_rng(0).standard_normal((d, r)) / np.sqrt(d)
    return _variate(f, Curve(q.unpack(q.check(w))[1], np.zeros(d), np.zeros(d), U))


def _variate(f, curve):
    T = quadratic(f, curve)
    return CF(T) - RP1(T)


def train(f, rate=0.05, M=2):
    """A hook for sgd that trains the fitted quadratic of f among the plan's variates.

    sgd(..., h, [fitted(f, q, w)], hooks={1: train(f)}). It draws M samples of its own, M gradients
    more a step, and takes a step of Adam on E||h + c||^2 in the units of u. In more than 16
    dimensions U goes slower, for u^T U U^T u sums over all of its entries. One curve serves all
    runs; the middle one is looked at. What it knows is in the state's notes: a run goes on with
    [fitted(f, q, state=state)].
    """
    number("rate", rate, 0, above=True)
    rule, M = rules.adam(), whole("M", M)

    def hook(state, plan):
        at = [k for k, c in enumerate(plan.cvs) if curve_of(c) is not None]
        if len(at) != 1:
            raise ValueError(f"train needs one fitted quadratic among the variates, not {len(at)}")
        curve, runs = curve_of(plan.cvs[at[0]]), state.w.reshape(-1, plan.q.D)
        q, w = plan.q, runs[len(runs) // 2]
        see = {"subsample": plan.subsample, "batch": plan.batch, "each": plan.each}
        d = draw(plan.model, q, w, M, state.rng, snapshot=None, **see)
        h = evaluate([plan.h], d, check=False)[0]  # (M, D)
        slope = grad(lambda v: loss(q, Curve(curve.S, *v), w, d.eps, h))
        new, notes = {"S": curve.S}, dict(state.notes)
        rates = {"b": rate, "s": rate, "U": rate * min(1, SLOW / q.dim)}
        for name, dv in zip(rates, slope((curve.b, curve.s, curve.U))):
            v = getattr(curve, name)
            memory = [
                notes.get(f"curve {name} {k}", x) for k, x in enumerate((0 * v, 0 * v, 1.0, 1.0))
            ]
            new[name], memory = rule.step(memory, v, -dv, rates[name], q, 1)
            notes |= {f"curve {name} {k}": np.asarray(x) for k, x in enumerate(memory)}
        if not all(np.isfinite(v).all() for v in new.values()):
            return None  # the run is about to diverge: its gradients teach nothing
        notes |= {f"curve {name}": v for name, v in new.items()}
        cvs = list(plan.cvs)
        cvs[at[0]] = _variate(f, Curve(**new))
        return state._replace(notes=notes), replace(plan, cvs=tuple(cvs))

    return hook


def learnt(f, q, h, model, w, rng, steps=100, M=10, **see):
    """The fitted variate of f after `steps` of training for the base h at weights w (D,)."""
    plan = Noisy(model, q, h, [fitted(f, q, w)], lr=1.0, M=M, **see)
    state, hook = init(plan, rng, w=w), train(f, M=M)
    for _ in range(steps):
        state, plan = hook(state, plan) or (state, plan)
    return plan.cvs[0]


def curve_of(line):
    """The curve of a fitted variate, or None."""
    return next((a.curve for _, a in line.parts if isinstance(a, Quadratic)), None)


def stands_for(line):
    """What a fitted variate stands for, its f."""
    return next(a.f for _, a in line.parts if isinstance(a, Quadratic))


def loss(q, curve, w, eps, h):
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
