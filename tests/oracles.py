"""What the tests compare with: integrands and exact gradients written afresh, without cvlib.

A problem is small data, a log-likelihood and a log-prior. From them this file derives, by routes
that the package does not take, what every estimator must give: autograd straight through w for one
sample, the trapezoidal rule over a grid for expectations (for analytic functions against a Gaussian
its error falls faster than any power of the step), matrix square roots by iteration.
"""

from functools import cache, partial
from types import SimpleNamespace

import autograd.numpy as anp
import numpy as np
from autograd import elementwise_grad, grad, hessian, jacobian
from scipy.special import gammaln

FAMILIES = ("Gaussian", "DiagonalGaussian")
PRIOR_SD = 1.3
NOISE_SD = 0.8
SLOPE = "taylor_x_slope(data)"  # the one atom that is not a function: its mean depends on the word


def normal_prior(z):
    return -0.5 * anp.sum((z / PRIOR_SD) ** 2 + np.log(2 * np.pi * PRIOR_SD**2), -1)


def sech_prior(z):
    return -2 * anp.sum(anp.log(anp.cosh(z)), -1)


PHI = {
    "logistic": lambda t, y: -anp.log(1 + anp.exp(-y * t)),
    "poisson": lambda t, y: y * t - anp.exp(t) - gammaln(y + 1),
    "linear": lambda t, y: -0.5 * ((y - t) / NOISE_SD) ** 2 - np.log((2 * np.pi) ** 0.5 * NOISE_SD),
    "student": lambda t, y: -2.5 * anp.log(1 + (y - t) ** 2 / 4),  # own model, GLM-like
}
# "offset": logistic, with an offset and a prior of vectors; "curved": own model, no function of
# x.z, and a prior of its own
PROBLEMS = (*PHI, "offset", "curved")


def curved_lik(z, x, y):
    return -0.5 * (y - z[..., 0] * x - anp.sum(z**2, -1)) ** 2


@cache
def problem(name, d=2, N=5, seed=0):
    """Data X (N, d), y (N,); `rows(z)`, log-likelihoods of all data, (..., d) -> (..., N)."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (N, d))
    labels = np.where(np.arange(N) % 3 == 0, -1.0, 1.0)  # classes of unequal size
    counts, numbers = rng.poisson(1.5, N).astype(float), rng.standard_normal(N)
    y = {"logistic": labels, "poisson": counts, "offset": labels}.get(name, numbers)
    offset, mean, sd, prior = np.zeros(N), 0.0, PRIOR_SD, normal_prior
    phi = PHI["logistic" if name == "offset" else name] if name != "curved" else None
    rows = lambda z: phi(anp.dot(z, X.T) + offset, y)
    if name == "offset":
        offset, mean, sd = rng.uniform(-1, 1, N), rng.uniform(-1, 1, d), rng.uniform(0.7, 2, d)
        prior = lambda z: normal_prior((z - mean) / sd * PRIOR_SD) + anp.sum(np.log(PRIOR_SD / sd))
    if name == "curved":
        X, prior = X[:, 0], sech_prior
        rows = lambda z: curved_lik(z[..., None, :], X, y)
    glm = name in ("logistic", "poisson", "linear", "offset")
    return SimpleNamespace(
        name=name, d=d, N=N, X=X, y=y, offset=offset, mean=mean, sd=sd, rows=rows, prior=prior,
        glm=glm, phi=phi,
    )  # fmt: skip


def build(cv, p):
    """The problem as a model of the package (or of a copy of it)."""
    if p.glm:
        make = getattr(cv.models, f"{p.name.replace('offset', 'logistic')}_regression")
        offset = {"prior_mean": p.mean, "offset": p.offset}
        more = {"linear": {"noise_sd": NOISE_SD}, "offset": offset}.get(p.name, {})
        return make(p.X, p.y, prior_sd=p.sd, **more)
    if p.name == "student":
        lik = lambda z, batch: p.phi(anp.sum(batch[0] * z, -1), batch[1])
        return cv.models.Model(lik, cv.models.GaussianPrior(PRIOR_SD), (p.X, p.y), p.d)
    lik = lambda z, batch: curved_lik(z, *batch)
    return cv.models.Model(lik, sech_prior, (p.X, p.y), p.d)


@cache
def basis(family, d):
    """One matrix per entry of w that belongs to L, in the order of w."""
    places = [(i, j) for i in range(d) for j in range(i + 1) if family == "Gaussian" or i == j]
    E = np.zeros((len(places), d, d))
    for k, (i, j) in enumerate(places):
        E[k, i, j] = 1
    return E


def unpack(family, d, w):
    """mu (..., d) and the dense L (..., d, d), through autograd."""
    return w[..., :d], anp.tensordot(w[..., d:], basis(family, d), 1)


def weights(family, d, seed=0, sd=0.35):
    """Two w's, (2, D): a moderate one, and one with negative entries on the diagonal of L."""
    rng = np.random.default_rng(seed)
    D = d + len(basis(family, d))
    w = sd * rng.uniform(-1, 1, (2, D))
    w[:, :d] *= 2
    diagonal = d + np.flatnonzero([E.trace() for E in basis(family, d)])
    w[:, diagonal] = sd * (1 + 0.4 * rng.uniform(-1, 1, (2, d)))
    w[1, diagonal[::2]] *= -1
    return w


def log_density(family, d, w, z):
    """log N(z | mu, L L^T) from the covariance, one w a row of z."""
    mu, L = unpack(family, d, w)
    S = L @ anp.swapaxes(L, -1, -2)
    r = z - mu
    quad = anp.sum(anp.sum(anp.linalg.inv(S) * r[..., None, :], -1) * r, -1)
    return -0.5 * (quad + anp.linalg.slogdet(S)[1] + d * np.log(2 * np.pi))


# Integrands, row i is what a sample that drew data point i estimates: down to `integrand`


@cache
def _derivatives(f, mu):
    mu = np.array(mu)
    return f(mu), jacobian(f)(mu), hessian(f)(mu)  # (N,), (N, d), (N, d, d)


def taylor(f, mu, order=2):
    """Taylor expansion of f about mu, of order 1 or 2: (..., d) -> (..., N)."""
    f0, J, H = _derivatives(f, tuple(mu))
    H = H * (order == 2)

    def expansion(z):
        r = z - mu
        return f0 + anp.dot(r, J.T) + 0.5 * anp.einsum("...a,nab,...b->...n", r, H, r)

    return expansion


def jaakkola_jordan(p, mu, L):
    """log sigmoid(t) >= log sigmoid(xi) + (t - xi)/2 - tanh(xi/2)/(4 xi) (t^2 - xi^2)."""
    xi = np.sqrt((p.X @ mu + p.offset) ** 2 + np.einsum("na,ab,nb->n", p.X, L @ L.T, p.X))
    top, curve = -np.log1p(np.exp(-xi)), np.tanh(xi / 2) / (4 * xi)

    def rows(z):
        t = p.y * (anp.dot(z, p.X.T) + p.offset)
        return top + (t - xi) / 2 - curve * (t**2 - xi**2)

    return rows


def _path_to_centre(p, z):
    """eta of every data point, with x on its way from its class's mean (t = 0) to itself (1)."""
    same = p.y[:, None] == p.y[None, :] if p.name == "logistic" else np.ones((p.N, p.N), bool)
    centre = (same @ p.X) / same.sum(1)[:, None]
    return lambda t: anp.sum((centre + t[..., None] * (p.X - centre)) * z[..., None, :], -1)


def expand_in_x(p, z):
    """Each data point's log-likelihood, expanded in its x about the mean of its class."""
    eta, t = _path_to_centre(p, z), np.zeros((*z.shape[:-1], p.N))
    on_path = lambda t: p.phi(eta(t), p.y)
    first = elementwise_grad(on_path)
    return on_path(t) + first(t) + 0.5 * elementwise_grad(first)(t)


def expand_slope_in_x(p, z):
    """Each data point's slope phi' x, with phi' expanded likewise to first order: (..., N, d)."""
    eta, t = _path_to_centre(p, z), np.zeros((*z.shape[:-1], p.N))
    on_path = lambda t: elementwise_grad(p.phi)(eta(t), p.y)
    return (on_path(t) + elementwise_grad(on_path)(t))[..., None] * p.X


def integrand(p, family, atom, w):
    """f(z): (..., d) -> (..., N), with everything it takes from this w (D,) held fixed.

    In place of an atom's name there may be a function, the rows of data that are to be added up.
    """
    if callable(atom):
        return lambda z: p.N * atom(z)
    mu, L = unpack(family, p.d, w)
    without_data = {
        "one": lambda z: anp.sum(0 * z, -1) + 1.0,
        "variational": partial(log_density, family, p.d, np.asarray(w)),
        "prior": p.prior,
        "taylor_z(prior)": p.prior,
    }
    if atom in without_data:
        f = lambda z: without_data[atom](z)[..., None] * np.ones(p.N)
        return taylor(f, mu) if atom == "taylor_z(prior)" else f
    rows = {
        "data": lambda: p.rows,
        "taylor_z(data)": lambda: taylor(p.rows, mu),
        "bound(data)": lambda: jaakkola_jordan(p, mu, L),
        "taylor_x(data)": lambda: partial(expand_in_x, p),
        SLOPE: lambda: partial(expand_slope_in_x, p),  # a field of slopes, (..., d) -> (..., N, d)
    }[atom]()
    return lambda z: p.N * rows(z)


@cache
def trapezoid(d, step=0.5, reach=8.5):
    """Points (K, d) and weights (K,) of the standard normal."""
    line = np.arange(-reach, reach + step / 2, step)
    points = np.stack(np.meshgrid(*[line] * d, indexing="ij"), -1).reshape(-1, d)
    weight = np.exp(-0.5 * (points**2).sum(-1)) * (step / np.sqrt(2 * np.pi)) ** d
    return points, weight


def hermite(d, n):
    """Gauss and Hermite's n^d points (K, d) and weights (K,) of the standard normal."""
    x, p = np.polynomial.hermite_e.hermegauss(n)
    points = np.stack(np.meshgrid(*[x] * d, indexing="ij"), -1).reshape(-1, d)
    return points, np.prod(np.meshgrid(*[p / p.sum()] * d, indexing="ij"), 0).ravel()


@cache
def _exact_gradient(name, d, N, family, atom, method, w):
    w, (points, weight) = np.array(w), trapezoid(d)
    f = integrand(problem(name, d, N), family, atom, w)
    if atom == SLOPE:  # that of E[u(Z).T_w(eps)], the field of slopes u at Z = T_w(eps) held fixed
        move = lambda w: transform(method, family, d, np.ones((len(points), 1)) * w, points)
        u = f(move(w))  # (K, N, d)
        return jacobian(lambda w: anp.dot(weight, anp.sum(u * move(w)[:, None, :], -1)))(w)

    def mean(w):
        mu, L = unpack(family, d, w)
        return anp.dot(weight, f(mu + anp.dot(points, L.T)))  # (N,)

    return jacobian(mean)(w)


def exact_gradient(p, family, atom, w, method=None):
    """grad_w E_q[f_i] for every data point i, (N, D); computed once. SLOPE needs the method."""
    method = method if atom == SLOPE else None
    return _exact_gradient(p.name, p.d, p.N, family, atom, method, tuple(w))


def denman_beavers(S, steps=14):
    """The principal square root of S (..., d, d) by an iteration of inverses alone."""
    Y, Z = S, np.eye(S.shape[-1]) + 0 * S
    for _ in range(steps):
        Y, Z = 0.5 * (Y + anp.linalg.inv(Z)), 0.5 * (Z + anp.linalg.inv(Y))
    return Y


def transform(kind, family, d, w, eps):
    """T_w(eps), one w a row of eps: "RP1" by L, "RP2" by the symmetric root of L L^T."""
    mu, L = unpack(family, d, w)
    A = L if kind == "RP1" else denman_beavers(L @ anp.swapaxes(L, -1, -2))
    return mu + anp.sum(A * eps[..., None, :], -1)


_kept = {}  # samples' gradients: they know nothing of the package, so mutants share them


def sample_gradient(method, p, family, atom, w, eps, index=None):
    """One atom by one word at w (D,), for eps (M, d) and data points (M,), (M or 1, B) or all."""
    drawn = None if index is None else index.tobytes()
    key = method, p.name, p.N, family, atom, w.tobytes(), eps.tobytes(), eps.shape, drawn
    if key not in _kept:
        _kept[key] = _SAMPLES[method](p, family, atom, w, eps, index)
    return _kept[key]


def _of_sample(f, M, index):
    """What each sample sees of f, (M, d) -> (M,): the mean of all rows, its own, or its batch's."""
    if index is None:
        return lambda z: anp.mean(f(z), -1)
    seen = np.arange(M)[:, None], index.reshape(len(index), -1)
    return lambda z: anp.mean(f(z)[seen], -1)


def _score_function(p, family, atom, w, eps, index):
    value = _of_sample(integrand(p, family, atom, w), len(eps), index)
    z = transform("RP1", family, p.d, w, eps)
    return value(z)[:, None] * _score(family, p.d, tuple(w), tuple(map(tuple, z)))


@cache
def _score(family, d, w, z):
    return grad(lambda W: anp.sum(log_density(family, d, W, np.array(z))))(np.tile(w, (len(z), 1)))


def _through_w(kind, p, family, atom, w, eps, index):
    M, f = len(eps), integrand(p, family, atom, w)
    W = np.tile(w, (M, 1))  # a copy a sample: one gradient holds all samples' gradients
    move = lambda W: transform(kind, family, p.d, W, eps)
    if atom == SLOPE:  # nothing to differentiate: pull u(Z), held fixed, through the transform
        u = f(move(W))  # (M, N, d)
        u = u.mean(1) if index is None else u[np.arange(M), index]
        return grad(lambda W: anp.sum(u * move(W)))(W)
    value = _of_sample(f, M, index)
    return grad(lambda W: anp.sum(value(move(W))))(W)


def _price(p, family, atom, w, eps, index):
    """[grad f, what w has of grad^2 f L] at the sample, the Hessian row by row."""
    value = _of_sample(integrand(p, family, atom, w), len(eps), index)
    z = transform("RP1", family, p.d, w, eps)
    slope = grad(lambda z: anp.sum(value(z)))
    rows = [grad(lambda z: anp.sum(slope(z)[:, k] + 0 * z[:, k]))(z) for k in range(p.d)]
    HL = np.stack(rows, -2) @ unpack(family, p.d, w)[1]  # (M, d, d)
    return np.concatenate([slope(z), np.einsum("kab,mab->mk", basis(family, p.d), HL)], -1)


def _seen(found, M, index):
    """From one gradient a data point and sample, a list of (M, D), to what the samples see."""
    return np.mean(found, 0) if index is None else np.stack(found)[index, np.arange(M)]


def _rao_blackwell(p, family, atom, w, eps, index):
    """RP1 averaged over the noise orthogonal to L^T x, which a function of x.z does not see.

    RP1 is linear in that noise, whose law is symmetric: the noise drawn and its mirror image give
    the conditional mean exactly. For all data each data point is averaged given its own eta.
    """
    L, M, f = unpack(family, p.d, w)[1], len(eps), integrand(p, family, atom, w)
    found = []
    for i in range(p.N):
        u = L.T @ p.X[i]
        along = np.outer(eps @ u, u) / (u @ u)
        both = np.concatenate([eps, 2 * along - eps])
        path = lambda W: anp.sum(f(transform("RP1", family, p.d, W, both))[..., i])
        found.append(grad(path)(np.tile(w, (2 * M, 1))).reshape(2, M, -1).mean(0))
    return _seen(found, M, index)


def _quadrature(p, family, atom, w, eps, index):
    """grad_w E psi(eta), eta ~ N(x.mu, |L^T x|^2): autograd through a sum over a line of etas."""
    (points, weight), f = trapezoid(1), integrand(p, family, atom, w)
    found = []
    for i, x in enumerate(p.X):

        def mean(w):
            mu, L = unpack(family, p.d, w)
            eta = anp.dot(x, mu) + anp.sqrt(anp.sum(anp.dot(L.T, x) ** 2)) * points  # (K, 1)
            return anp.dot(weight, f(eta * x / (x @ x))[..., i])  # any z with x.z = eta

        found.append(np.tile(grad(mean)(w), (len(eps), 1)))
    return _seen(found, len(eps), index)


_SAMPLES = {
    "SF": _score_function, "RP1": partial(_through_w, "RP1"), "RP2": partial(_through_w, "RP2"),
    "RB": _rao_blackwell, "PR": _price, "QD": _quadrature,
}  # fmt: skip
