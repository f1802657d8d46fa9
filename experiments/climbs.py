"""Algorithms up the ELBO of a full Gaussian with gradients alone: nats short, and their price.

A logistic regression with a standard normal prior in plain NumPy, some runs side by side. Letters
as in `cvlib.recipe.regression`: mu (R, d), L (R, d, d), draws e (R, M, d), slopes in units of q
G = L^T grad log p(x, mu + L e), (R, M, d). An algorithm estimates c = E[G] and A = E[G e^T], which
a natural step follows; "batch and match" has a step of its own.
"""

from functools import cache

import numpy as np
import scipy

from cvlib import datasets, exact, families, models
from cvlib.points import frame, prime, rotations, uniform
from cvlib.recipe import regression
from cvlib.recipe.regression import sym

MARKS = (2, 4, 8, 12, 20, 40, 60)  # gradients, in units of d, at which a run is looked at
EACH = (2, 4, 24)  # draws of a step, in units of d
FALLS = (1.0, 2.0, 4.0, np.inf)  # a of the rates rho = a / (a + s - 1) in step s
PILOTS = 4  # runs that choose among these


class Target:
    """log p(x, z) of a logistic regression, its slope and curvature, in units of q."""

    def __init__(self, data):
        X, y = datasets.toy() if data == "toy" else datasets.load(data)
        self.model = models.logistic_regression(X, y)
        self.q = families.Gaussian(self.model.dim)
        self.d, self.yX = self.model.dim, self.model.y[:, None] * self.model.X
        self.best = exact.elbo(self.model, self.q, exact.optimum(self.model, self.q))

    def at(self, mu, L, e):
        """z and the margins y x.z at all draws, (R, M, d) and (R, M, N)."""
        z = mu[:, None, :] + e @ L.mT
        return z, z @ self.yX.T

    def value(self, mu, L, e):
        z, margin = self.at(mu, L, e)
        return -np.logaddexp(0, -margin).sum(-1) - 0.5 * (z * z).sum(-1)

    def slope(self, mu, L, e):
        z, margin = self.at(mu, L, e)
        return (_sigmoid(-margin) @ self.yX - z) @ L

    def curvature(self, mu, L, e):
        """The mean over draws, (R, d, d)."""
        margin = self.at(mu, L, e)[1]
        weight = (_sigmoid(margin) * _sigmoid(-margin)).mean(1)  # (R, N)
        V = self.yX @ L  # (R, N, d)
        return -(V * weight[..., None]).mT @ V - L.mT @ L

    def gap(self, mu, L):
        """Nats below the best Gaussian, (R,)."""
        return self.best - exact.elbo(self.model, self.q, self.q.pack(mu, L), 1e-8)

    def laplace(self):
        """The mode, the factor of the covariance by d differences of slopes, and their price."""
        still, I = np.zeros((1, self.d)), np.eye(self.d)
        f = lambda z: (-self.value(z[None], I[None], still[None])[0, 0],
                       -self.slope(z[None], I[None], still[None])[0, 0])  # fmt: skip
        found = scipy.optimize.minimize(f, np.zeros(self.d), jac=True, method="BFGS", tol=0.1)
        near = self.slope(found.x[None], I[None], 1e-4 * I[None])[0]
        H = sym((near + found.jac) / 1e-4)  # rows: how the slope turns along each axis
        return found.x, np.linalg.cholesky(np.linalg.inv(-H)), found.nfev + self.d


target = cache(Target)


def _sigmoid(x):
    return 0.5 * (1 + np.tanh(0.5 * x))


# Draws ---------------------------------------------------------------------------------------


def plain(rng, R, M, d):
    return rng.standard_normal((R, M, d))


def pairs(rng, R, M, d):
    e = plain(rng, R, M // 2, d)
    return np.concatenate([e, -e], 1)


def even(rng, R, M, d):
    """Pairs whose covariance is exactly I (moment-matched)."""
    e = plain(rng, R, M // 2, d)
    e = e @ np.linalg.inv(np.linalg.cholesky(e.mT @ e / (M // 2))).mT
    return np.concatenate([e, -e], 1)


def orthogonal(rng, R, M, d):
    """Pairs along the frames of random rotations, with lengths of their own (orthogonal MC)."""
    frames = [uniform(rng, R, d) for _ in range(-(-M // (2 * d)))]
    e = np.concatenate(frames, 1)[:, : M // 2]
    e = e * np.sqrt(rng.chisquare(d, (*e.shape[:2], 1)))
    return np.concatenate([e, -e], 1)


# Estimates of c and A from about M gradients: (c, A, gradients taken) ---------------------------


def averaged(e, G, weight=None):
    """Sticking the landing, symmetrised; weights of the draws sum to one."""
    weight = np.full(e.shape[:2], 1 / e.shape[1]) if weight is None else weight
    u = weight[..., None] * (G + e)
    return u.sum(1), sym(e.mT @ u) - np.eye(e.shape[-1])


def landing(kind):
    def estimate(t, mu, L, M, rng, memory):
        e = kind(rng, len(mu), M, t.d)
        return *averaged(e, t.slope(mu, L, e)), M

    return estimate


def on_rotations(t, mu, L, M, rng, memory):
    M += M // (2 * t.d)  # a centre for each rotation
    e, weight = rotations(rng, (len(mu),), M, t.d)
    return *averaged(e, t.slope(mu, L, e), weight / M), M


@cache
def apart(d):
    """All rotations (2 p + 2, 2 p, 2 p) that keep apart, 2 p >= d."""
    p = prime(d)
    return np.array([frame(p, k) for k in range(2 * p + 2)])


def kept_apart(t, mu, L, M, rng, memory):
    """One radius, and rotations that keep apart: the first d coordinates of a set for 2 p >= d."""
    all_of_them = apart(t.d)
    K, D, _ = all_of_them.shape
    step = memory["step"] = memory.get("step", -1) + 1
    if step % K == 0:
        memory["turn"] = uniform(rng, len(mu), D)[..., : t.d]
    arms = np.sqrt(D + 2) * all_of_them[step % K] @ memory["turn"]
    e = np.concatenate([arms, -arms, np.zeros((len(mu), 1, t.d))], 1)
    weight = np.append(np.full(2 * D, 1 / (2 * D + 4)), 2 / (D + 2))
    return *averaged(e, t.slope(mu, L, e), np.tile(weight, (len(mu), 1))), 2 * D + 1


def regressed(kind, group):
    """All quadratics, from the other draws, with the ridge of the step before."""

    def estimate(t, mu, L, M, rng, memory):
        e = kind(rng, len(mu), M, t.d)
        G = t.slope(mu, L, e)
        c, A = regression.regress(e, G + e, memory.get("ridge", t.d / 10), group=group)
        memory["ridge"] = regression.shrinkage(regression.gauge(e, G, group), t.d)
        return c, A - np.eye(t.d), M

    return estimate


def price_pairs(t, mu, L, M, rng, memory):
    """Price's estimator in pairs: a Hessian counts as d gradients."""
    e = pairs(rng, len(mu), 2 * max(1, round(M / (2 * t.d))), t.d)
    return t.slope(mu, L, e).mean(1), t.curvature(mu, L, e), e.shape[1] * (t.d + 1)


ESTIMATES = {
    "landing": landing(plain),
    "landing, pairs": landing(pairs),
    "fresh even": landing(even),
    "Price, pairs": price_pairs,
    "all quadratics": regressed(plain, 1),
    "all quadratics, pairs": regressed(pairs, 2),
    "rotated": on_rotations,
    "kept apart": kept_apart,
    "orthogonal, pairs": landing(orthogonal),
}
WAYS = "batch and match", *ESTIMATES
ONLY = {"rotated": (2,), "kept apart": (2,)}  # the others have every number of draws


# Climbing ------------------------------------------------------------------------------------


def natural(mu, L, c, A, rho):
    """The natural step of chapter 13, always positive definite."""
    I = np.eye(c.shape[-1])
    B = I - rho * (A + I)
    cov = np.linalg.inv((I + B @ B) / 2)  # of the new q, in units of the old one
    shift = rho * (L @ (cov @ c[..., None]))[..., 0]
    return mu + shift, L @ np.linalg.cholesky(sym(cov))


def matched(t, mu, L, M, lam, rng):
    """A move of batch and match."""
    e = plain(rng, len(mu), M, t.d)
    shift, K = match(e, t.slope(mu, L, e), lam)
    return mu + (L @ shift[..., None])[..., 0], L @ K


def match(e, G, lam):
    """One step of batch and match (Cai et al. 2024): mu <- mu + L shift, L <- L K, as (shift, K).

    It matches the scores of q to those of p at the draws, with a pull of weight 1 / lam to the
    present q. With k = lam / (1 + lam),

        U = lam Cov G + k gbar gbar^T,   V = I + lam Cov e + k ebar ebar^T,

    the new covariance solves S U S + S = V, and the shift is k (S gbar + ebar).
    """
    k, d = lam / (1 + lam), e.shape[-1]
    ebar, gbar = (x.mean(-2)[..., None] for x in (e, G))  # (..., d, 1)
    U = lam * _covariance(G) + k * gbar @ gbar.mT
    V = np.eye(d) + lam * _covariance(e) + k * ebar @ ebar.mT
    # V = R R^T, R^T U R = Y diag(l) Y^T, S = R Y diag(s) Y^T R^T: l s^2 + s = 1 for each l
    R = np.linalg.cholesky(V)
    l, Y = np.linalg.eigh(R.mT @ U @ R)
    s = 2 / (1 + np.sqrt(1 + 4 * np.maximum(l, 0)))
    T = R @ Y * np.sqrt(s)[..., None, :]  # S = T T^T, positive definite whatever the draws
    K = np.linalg.qr(T.mT, mode="r").mT
    K = K * np.sign(np.diagonal(K, axis1=-2, axis2=-1))[..., None, :]
    return (k * (T @ (T.mT @ gbar) + ebar))[..., 0], K


def _covariance(x):
    x = x - x.mean(-2, keepdims=True)
    return x.mT @ x / x.shape[-2]


def climb(t, way, each, fall, runs, rng, marks=MARKS):
    """Nats missing when so many gradients are spent, those for the mode too, (runs, marks)."""
    z, factor, used = t.laplace()
    path = [(used, np.tile(z, (runs, 1)), np.tile(factor, (runs, 1, 1)))]
    memory, M = {}, each * t.d
    M += M % 2
    for s in range(1, 10_000):
        used, mu, L = path[-1]
        if used + M > MARKS[-1] * t.d:
            break
        if way == "batch and match":  # its own rate where no fall is asked for
            lam = fall / s if np.isfinite(fall) else M * t.d / s
            path.append((used + M, *matched(t, mu, L, M, lam, rng)))
            continue
        rho = fall / (fall + s - 1) if np.isfinite(fall) else 1.0
        c, A, taken = ESTIMATES[way](t, mu, L, M, rng, memory)
        path.append((used + taken, *natural(mu, L, c, A, rho)))
    used = np.array([at[0] for at in path])
    last = [max(int((used <= mark * t.d).sum()) - 1, 0) for mark in marks]
    return np.stack([t.gap(*path[k][1:]) for k in last], -1)


def race(rng, data, way, runs):
    """The best number of draws and fall on runs of their own, and the nats of `runs` others."""
    t = target(data)
    trials = {}
    for each in ONLY.get(way, EACH):
        for fall in FALLS:
            gap = climb(t, way, each, fall, PILOTS, rng, MARKS[-1:])
            trials[each, fall] = np.nan_to_num(gap.mean(), nan=np.inf)
    each, fall = min(trials, key=trials.get)
    gap = climb(t, way, each, fall, runs, rng)
    return {"each": each, "fall": fall if np.isfinite(fall) else "none", "gap": gap}


# Noise ---------------------------------------------------------------------------------------


def reparameterised(t, mu, L, M, rng, memory):
    """RP1, symmetrised."""
    e = plain(rng, len(mu), M, t.d)
    G = t.slope(mu, L, e)
    return G.mean(1), sym(e.mT @ G) / M, M


def places(t):
    """{place: w}: N(0, I); half of the best mean with a covariance that is too wide; the best q."""
    best = exact.optimum(t.model, t.q)
    mu, L = t.q.unpack(best)
    wide = np.linalg.cholesky(L @ L.T + 0.1 * np.eye(t.d))
    return {"start": t.q.start(), "half way": t.q.pack(mu / 2, wide), "optimum": best}


def noise(rng, data, repeats):
    """[(estimate, place, noise, its error)]: mean squared distance to the exact c and A.

    From about 2 d gradients, in units of q; of the curvature half, as in Fisher's metric.
    """
    t, found = target(data), []
    for place, w in places(t).items():
        mu, L = (np.tile(x, (repeats, *[1] * x.ndim)) for x in t.q.unpack(w))
        g = exact.gradient(t.model, t.q, w)
        c0, A0 = L[0].T @ g[: t.d], t.q.curvature(L[0], g[t.d :]) - np.eye(t.d)
        for way, estimate in {"RP1": reparameterised, **ESTIMATES}.items():
            if way == "kept apart":
                continue  # as one estimate it is like any other rotation
            memory = {}
            estimate(t, mu, L, 2 * t.d, rng, memory)  # a step before, for the ridge
            c, A, _ = estimate(t, mu, L, 2 * t.d, rng, memory)
            parts = ((c - c0) ** 2).sum(-1), ((A - A0) ** 2).sum((-2, -1)) / 2
            parts = np.where(np.array(parts) < 1e-12, 0.0, parts)  # but for rounding
            error = np.std(parts, -1) / np.sqrt(repeats)
            found.append((way, place, np.mean(parts, -1), error))
    return found
