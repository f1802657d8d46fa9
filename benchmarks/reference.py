"""The same step written twice more, against an array module `np`: autograd and JAX run the same.

`make_lines` is the plain way: a scalar function of w for every line, to be differentiated through
w. `make_pulled` differentiates in z alone and carries the slopes back to w by hand, as cvlib does.
"""

from types import SimpleNamespace


def formulas(np, X, y):
    """What both ways are made of: functions of z, a data point x, its label y and its class k."""
    N = len(X)
    classes = [X[y == s] for s in (-1.0, 1.0)]
    means = np.stack([c.mean(0) for c in classes])
    covs = np.stack([(c - c.mean(0)).T @ (c - c.mean(0)) / len(c) for c in classes])
    sizes, labels = [len(c) for c in classes], [-1.0, 1.0]

    def phi(eta, y):
        return -np.logaddexp(0.0, -y * eta)

    def d1(eta, y):
        return y / (1 + np.exp(y * eta))

    def d2(eta, y):
        s = 1 / (1 + np.exp(y * eta))
        return -s * (1 - s)

    def log_lik(z, x, y):
        return N * phi(np.dot(x, z), y)

    def log_prior(z):
        return -0.5 * np.sum(z**2)

    def expanded_in_x(z, x, y, k):
        m, e = np.dot(means[k], z), np.dot(x - means[k], z)
        return N * (phi(m, y) + d1(m, y) * e + 0.5 * d2(m, y) * e**2)

    def expanded_in_x_everywhere(z):
        total = 0.0
        for n, mean, cov, label in zip(sizes, means, covs, labels, strict=True):
            m = np.dot(mean, z)
            total = total + n * (phi(m, label) + 0.5 * d2(m, label) * np.dot(z, np.dot(cov, z)))
        return total

    def in_x(z, x, y, k):
        return expanded_in_x(z, x, y, k) - expanded_in_x_everywhere(z)

    def slope_and_bend(mu, x, y):
        m = np.dot(x, mu)
        return N * d1(m, y), N * d2(m, y)

    return SimpleNamespace(
        log_lik=log_lik, log_prior=log_prior, in_x=in_x, slope_and_bend=slope_and_bend
    )


def make_lines(np, X, y, names):
    """lines(w, v, eps, x, y, k) -> (number of names,) for one sample: noise, data point, class.

    The gradient in w of entry l is the per-sample gradient of line l; v is w held fixed.
    """
    f, d = formulas(np, X, y), X.shape[1]
    scatter = _scatter(np, d)

    def root(L):
        values, U = np.linalg.eigh(np.dot(L, L.T))
        return np.dot(U * np.sqrt(values), U.T)

    def lines(w, v, eps, x, y, k):
        mu, L = w[:d], scatter(w[d:])
        mu0, L0 = v[:d], scatter(v[d:])
        z1 = mu + np.dot(L, eps)
        z2 = mu + np.dot(root(L), eps) if {"c3", "c4", "c6"} & set(names) else None
        entropy = np.sum(np.log(np.abs(np.diag(L))))
        step, (slope, bend) = np.dot(x, z1 - mu0), f.slope_and_bend(mu0, x, y)
        out = {
            "h": lambda: f.log_lik(z1, x, y) + f.log_prior(z1) + entropy,
            "c1": lambda: -0.5 * np.sum(np.linalg.solve(L0, z1 - mu0) ** 2) + entropy,
            "c2": lambda: f.log_prior(z1) + 0.5 * (np.sum(mu**2) + np.sum(L**2)),
            "c3": lambda: f.log_prior(z1) - f.log_prior(z2),
            "c4": lambda: f.log_lik(z1, x, y) - f.log_lik(z2, x, y),
            "c5": lambda: f.in_x(z1, x, y, k),
            "c6": lambda: f.in_x(z2, x, y, k),
            "c7": lambda: (
                slope * np.dot(x, mu - mu0)
                + 0.5 * bend * (np.sum(np.dot(x, L) ** 2) + np.dot(x, mu - mu0) ** 2)
                - slope * step
                - 0.5 * bend * step**2
            ),
        }
        return np.array([out[name]() for name in names])

    return lines


def make_pulled(np, grad, X, y, names):
    """(shared, pulled): gradients of the lines in w, with the chain from z to w written by hand.

    shared(w) is done once a step; pulled(shared, eps, x, y, k) -> (names, D) for one sample.
    `grad` takes a function of z to its gradient.
    """
    f, d = formulas(np, X, y), X.shape[1]
    scatter, low = _scatter(np, d), np.tril_indices(d)
    with_root = bool({"c3", "c4", "c6"} & set(names))

    def joined(u, A):
        return np.concatenate([u, A[low]])

    def shared(w):
        mu, L = w[:d], scatter(w[d:])
        if not with_root:
            return mu, L, None, None, None
        values, U = np.linalg.eigh(np.dot(L, L.T))
        return mu, L, U, np.sqrt(values), np.dot(U.T, L)

    def pulled(shared, eps, x, y, k):
        mu, L, U, s, UL = shared
        z1 = mu + np.dot(L, eps)
        z2 = mu + np.dot(U, s * np.dot(U.T, eps)) if with_root else None
        entropy = joined(0 * mu, np.diag(1 / np.diag(L)))  # its gradient
        slope, bend = f.slope_and_bend(mu, x, y)

        def pull1(u):
            return joined(u, np.outer(u, eps))

        def pull2(u):  # L L^T = U s^2 U^T: a Lyapunov equation, in its eigenvectors a division
            a = np.outer(np.dot(U.T, u), np.dot(U.T, eps))
            middle = (a + a.T) / (s[:, None] + s[None, :])
            return joined(u, np.dot(U, np.dot(middle, UL)))

        lik, prior = grad(lambda z: f.log_lik(z, x, y)), grad(f.log_prior)
        in_x = grad(lambda z: f.in_x(z, x, y, k))
        out = {
            "h": lambda: pull1(lik(z1) + prior(z1)) + entropy,
            "c1": lambda: entropy - pull1(np.linalg.solve(L.T, eps)),
            "c2": lambda: pull1(prior(z1)) + joined(mu, L),
            "c3": lambda: pull1(prior(z1)) - pull2(prior(z2)),
            "c4": lambda: pull1(lik(z1)) - pull2(lik(z2)),
            "c5": lambda: pull1(in_x(z1)),
            "c6": lambda: pull2(in_x(z2)),
            "c7": lambda: (
                joined(slope * x, bend * np.outer(x, np.dot(x, L)))
                - pull1((slope + bend * np.dot(x, z1 - mu)) * x)
            ),
        }
        return np.stack([out[name]() for name in names])

    return shared, pulled


def _scatter(np, d):
    """The lower triangle as a matrix; autograd has no assignment, so by a gather."""
    rows, cols = np.tril_indices(d)
    position = [[0] * d for _ in range(d)]
    for p, (i, j) in enumerate(zip(rows, cols, strict=True)):
        position[int(i)][int(j)] = p
    position = np.array(position)
    mask = np.tril(np.ones((d, d)))
    return lambda flat: flat[position] * mask
