"""The same step written plainly: eight scalar functions of w, one per line, to be differentiated.

`lines` is written against an array module `np`, so that autograd and JAX run the same formulas. The
gradient in w of entry l is the per-sample gradient of line l; v is w held fixed.
"""


def make_lines(np, X, y, names):
    """lines(w, v, eps, x, y, k) -> (number of names,) for one sample: noise, data point, class."""
    N, d = X.shape
    rows, cols = np.tril_indices(d)
    classes = [X[y == s] for s in (-1.0, 1.0)]
    means = np.stack([c.mean(0) for c in classes])
    covs = np.stack([(c - c.mean(0)).T @ (c - c.mean(0)) / len(c) for c in classes])
    sizes, labels = [len(c) for c in classes], [-1.0, 1.0]
    scatter = _scatter(np, d, rows, cols)

    def phi(eta, y):
        return -np.logaddexp(0.0, -y * eta)

    def d1(eta, y):
        return y / (1 + np.exp(y * eta))

    def d2(eta, y):
        s = 1 / (1 + np.exp(y * eta))
        return -s * (1 - s)

    def log_prior(z):
        return -0.5 * np.sum(z**2)

    def root(L):
        values, U = np.linalg.eigh(np.dot(L, L.T))
        return np.dot(U * np.sqrt(values), U.T)

    def expanded_in_x(z, x, y, k):
        m, e = np.dot(means[k], z), np.dot(x - means[k], z)
        return N * (phi(m, y) + d1(m, y) * e + 0.5 * d2(m, y) * e**2)

    def expanded_in_x_everywhere(z):
        total = 0.0
        for n, mean, cov, label in zip(sizes, means, covs, labels, strict=True):
            m = np.dot(mean, z)
            total = total + n * (phi(m, label) + 0.5 * d2(m, label) * np.dot(z, np.dot(cov, z)))
        return total

    def lines(w, v, eps, x, y, k):
        mu, L = w[:d], scatter(w[d:])
        mu0, L0 = v[:d], scatter(v[d:])
        z1 = mu + np.dot(L, eps)
        z2 = mu + np.dot(root(L), eps) if {"c3", "c4", "c6"} & set(names) else None
        entropy = np.sum(np.log(np.abs(np.diag(L))))
        m, eta = np.dot(x, mu0), np.dot(x, z1)
        slope, bend = N * d1(m, y), N * d2(m, y)
        out = {
            "h": lambda: N * phi(eta, y) + log_prior(z1) + entropy,
            "c1": lambda: -0.5 * np.sum(np.linalg.solve(L0, z1 - mu0) ** 2) + entropy,
            "c2": lambda: log_prior(z1) + 0.5 * (np.sum(mu**2) + np.sum(L**2)),
            "c3": lambda: log_prior(z1) - log_prior(z2),
            "c4": lambda: N * (phi(eta, y) - phi(np.dot(x, z2), y)),
            "c5": lambda: expanded_in_x(z1, x, y, k) - expanded_in_x_everywhere(z1),
            "c6": lambda: expanded_in_x(z2, x, y, k) - expanded_in_x_everywhere(z2),
            "c7": lambda: (
                slope * np.dot(x, mu - mu0)
                + 0.5 * bend * (np.sum(np.dot(x, L) ** 2) + np.dot(x, mu - mu0) ** 2)
                - slope * (eta - m)
                - 0.5 * bend * (eta - m) ** 2
            ),
        }
        return np.array([out[name]() for name in names])

    return lines


def _scatter(np, d, rows, cols):
    """The lower triangle as a matrix; autograd has no assignment, so by a gather."""
    position = [[0] * d for _ in range(d)]
    for p, (i, j) in enumerate(zip(rows, cols, strict=True)):
        position[int(i)][int(j)] = p
    position = np.array(position)
    mask = np.tril(np.ones((d, d)))
    return lambda flat: flat[position] * mask
