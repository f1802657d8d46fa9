"""Fitted quadratics: an approximation of any integrand, trained along with q, without a Hessian.

f~(z) = b.u + u^T B u / 2 with u = S^-1 (z - mu) and B = diag(s) - U U^T of low rank: for models
where a Hessian is too dear (Geffner and Domke 2020). CF(f~) - RP1(f~) has mean zero for every
b, s and U that do not depend on the draw, so also while they are trained, on other draws.
"""

from dataclasses import replace
from typing import NamedTuple

import autograd.numpy as anp
import numpy as np
from autograd import grad

from . import rules
from .arguments import number, whole
from .draws import draw
from .estimators import CF, RP1, evaluate
from .integrands import Atom, Illegal, Integrand, integrand


class Curve(NamedTuple):
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
    return Integrand({Quadratic(f, model, q, curve): 1})


class Quadratic(Atom):
    """b.u + u^T B u / 2, u = S^-1 (z - mu)."""

    closed_form = quadratic = True

    def __init__(self, f, model, q, curve):
        super().__init__(f"quadratic({f!r})", model, q)
        self.curve = curve
        self.key = (*self.key, id(curve))  # another curve is another integrand

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


def train(f, rate=0.05, M=None):
    """A hook for sgd that trains the fitted quadratic of f among the plan's variates.

    sgd(..., h, [fitted(f, q, w)], hooks={1: train(f)}). It draws M samples of its own (as many as
    a step), and takes a step of Adam on E||h + c||^2 in the units of u: two gradients a step in
    place of one. One curve serves all runs; the first of them is looked at. What it knows is in
    the state's notes: a run goes on with [fitted(f, q, state=state)].
    """
    number("rate", rate, 0, above=True)
    rule = rules.adam()

    def hook(state, plan):
        at = [k for k, c in enumerate(plan.cvs) if _curve(c) is not None]
        if len(at) != 1:
            raise ValueError(f"train needs one fitted quadratic among the variates, not {len(at)}")
        curve = _curve(plan.cvs[at[0]])
        q, w = plan.q, state.w[(0,) * (state.w.ndim - 1)]
        see = {"subsample": plan.subsample, "batch": plan.batch, "each": plan.each}
        d = draw(plan.model, q, w, M or plan.M, state.rng, snapshot=None, **see)
        h = evaluate([plan.h], d, check=False)[0]  # (M, D)
        slope = grad(lambda v: loss(q, curve._replace(b=v[0], s=v[1], U=v[2]), w, d.eps, h))
        g = slope((curve.b, curve.s, curve.U))
        new, notes = [], dict(state.notes)
        for name, v, dv in zip("bsU", curve[1:], g):
            memory = [
                notes.get(f"curve {name} {k}", x) for k, x in enumerate((0 * v, 0 * v, 1.0, 1.0))
            ]
            v, memory = rule.step(memory, v, -dv, rate, q, 1)
            new.append(v)
            notes |= {f"curve {name} {k}": np.asarray(x) for k, x in enumerate(memory)}
        curve = Curve(curve.S, *new)
        notes |= {f"curve {name}": x for name, x in zip("SbsU", curve)}
        cvs = list(plan.cvs)
        cvs[at[0]] = _variate(f, curve)
        return state._replace(notes=notes), replace(plan, cvs=tuple(cvs))

    return hook


def _curve(line):
    """The curve of a fitted variate, or None."""
    return next((a.curve for _, a in line.parts if isinstance(a, Quadratic)), None)


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
