"""Moves that ways share: the mode and its curvature, batch and match, scores, Newton's step.

`xp` is NumPy or JAX, so that tests need no compiler.
"""

import numpy as np


def laplace(value_and_slope, hessian, d):
    """The mode by BFGS from zero, and a factor of the inverse curvature: mu, L, gradients, True.

    Where the curvature is not positive BFGS's own stands for it, and the last entry is False.
    """
    import scipy.optimize

    count, best = 0, (np.inf, np.zeros(d))

    def minus(z):
        nonlocal count, best
        value, slope = value_and_slope(z)
        count += 1
        if not (np.isfinite(value) and np.isfinite(slope).all() and np.abs(z).max() < 1e8):
            return 1e100, np.zeros(d)  # a step that is not taken
        best = min(best, (-value, z.copy()), key=lambda pair: pair[0])
        return -value, -slope

    with np.errstate(all="ignore"):
        found = scipy.optimize.minimize(minus, np.zeros(d), jac=True, method="BFGS")
    mu, P = best[1], -hessian(best[1])
    for C, sure in ((P, True), (found.hess_inv, False)):
        try:
            C = np.linalg.inv(C) if sure else C
            return mu, np.linalg.cholesky((C + C.T) / 2), count + d, sure
        except np.linalg.LinAlgError:
            pass
    return mu, 0.1 * np.eye(d), count + d, False


def matched(xp, mu, L, z, g, lam):
    """Batch and match (Cai et al. 2024) from draws z and slopes g of log p, (B, d): next mu, L."""
    outer = lambda a: a[:, None] * a[None, :]
    k, Sigma, n = lam / (1 + lam), L @ L.T, len(z)
    zbar, gbar = z.mean(0), g.mean(0)
    C, Gam = (z - zbar).T @ (z - zbar) / n, (g - gbar).T @ (g - gbar) / n
    U = lam * Gam + k * outer(gbar)
    R = xp.linalg.cholesky(Sigma + lam * C + k * outer(mu - zbar))
    l, Y = xp.linalg.eigh(R.T @ U @ R)  # Sigma U Sigma + Sigma = R R^T: l s^2 + s = 1 for each l
    s = 2 / (1 + xp.sqrt(1 + 4 * xp.maximum(l, 0.0)))
    T = (R @ Y) * xp.sqrt(s)
    Sigma = T @ T.T
    return mu / (1 + lam) + k * (Sigma @ gbar + zbar), xp.linalg.cholesky(Sigma)


def scored(xp, mu, L, z, g):
    """Gaussian score matching (Modi et al. 2023): the mean of what each draw alone asks for."""
    off = mu - z  # (B, d)
    S_g, o_g = g @ (L @ L.T), (off * g).sum(-1)
    rho = (xp.sqrt(1 + 4 * ((S_g * g).sum(-1) + o_g**2)) - 1) / 2
    ask = S_g - off
    share = (g * ask).sum(-1) / (1 + rho + o_g)
    step = (ask - off * share[:, None]) / (1 + rho)[:, None]
    new = off + step
    Sigma = L @ L.T + (off.T @ off - new.T @ new) / len(z)
    return mu + step.mean(0), xp.linalg.cholesky((Sigma + Sigma.T) / 2)


def triangular(xp):
    """solve_triangular(C, B, lower=, trans=) of SciPy, or of JAX, where it compiles soon."""
    if xp is np:
        from scipy.linalg import solve_triangular
    else:
        from jax.scipy.linalg import solve_triangular
    return solve_triangular


def newton(xp, mu, L, c, A, rho, reach=3.0, safe=False):
    """A natural step from L^T grad_mu = c and A = I - P, P the curvature in q's own coordinates.

    The precision of the next q is S = I - rho A in units of this one, where that is positive
    definite; else, and if `safe`, (I + S S^T) / 2 (Lin, Schmidt and Khan 2020). Where a matrix is
    not positive definite its factor is no number in JAX, and NumPy wants the safe one.
    """
    I, solve = xp.eye(len(mu)), triangular(xp)
    upper = lambda S: xp.linalg.cholesky(S[::-1, ::-1])[::-1, ::-1]  # S = R R^T
    B = I - rho * A
    R = upper((I + B @ B.T) / 2)
    if not safe:
        short = upper(B)
        R = xp.where(xp.isfinite(short).all(), short, R)
    step = solve(R, rho * solve(R, c), trans=1)  # in units of this q
    far = xp.sqrt((step**2).mean()) / reach  # no further than that many standard deviations
    return mu + L @ step / xp.maximum(far, 1.0), xp.tril(solve(R, L.T).T)


def regressed(xp, e, G, ridge):
    """E[G] and E[G e^T] with all quadratics as control variates, each draw fitted on the others."""
    X = xp.concatenate([xp.ones((len(e), 1)), e], 1)
    penalty = xp.diag(ridge * (xp.arange(X.shape[1]) > 0))  # none on the constant
    C, solve = xp.linalg.cholesky(X.T @ X + penalty), triangular(xp)
    W = solve(C, solve(C, X.T, lower=True), lower=True, trans=1)  # (1 + d, B)
    beta = W @ G
    Q = (G - X @ beta) / (1 - (X * W.T).sum(1, keepdims=True))
    beta = beta + (X - W.T).T @ Q / len(e)
    return beta[0], (beta[1:] + beta[1:].T) / 2


def evened(e):
    """e (n, d) and its opposite, with covariance I exactly: (2 n, d)."""
    e = np.linalg.solve(np.linalg.cholesky(e.T @ e / len(e)), e.T).T
    return np.concatenate([e, -e])


def landing(xp, e, G, weight):
    """E[G] and E[G e^T] as weighted means, G = L^T grad log p + e: sticking the landing."""
    u = weight[:, None] * G
    A = u.T @ e
    return u.sum(0), (A + A.T) / 2
