"""Models: a log-likelihood, a log-prior and data. GLMs are given by one scalar function."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import autograd.numpy as anp
import numpy as np
import scipy  # scipy.special is loaded at its first use
from autograd import elementwise_grad

from . import checks, passes
from .special import gammaln, log_ndtr

LOG_2PI = np.log(2 * np.pi)
CACHED = 2**18  # numbers of a table that stays in a processor's cache


@dataclass(frozen=True, eq=False, repr=False)
class GaussianPrior:
    """log N(z | mean, diag(sd^2)), callable like any log-prior; its expectations are known.

    `sd` and `mean` are numbers, the same for all coordinates, or vectors (d,).
    """

    sd: float | np.ndarray = 1.0
    mean: float | np.ndarray = 0.0

    def __post_init__(self):
        for name in ("sd", "mean"):
            value = checks.number_or_vector(f"the prior's {name}", getattr(self, name))
            object.__setattr__(self, name, value)
        checks.positive("the prior's sd", self.sd)
        if len({*self._lengths}) > 1:
            raise ValueError("the prior has {} sd's but {} means".format(*self._lengths))

    def __call__(self, z):
        d = anp.shape(z)[-1]
        if self._lengths and self._lengths[0] != d:
            raise ValueError(f"the prior has {self._lengths[0]} coordinates, z has {d}")
        away = (z - self.mean) / self.sd
        return anp.sum(-0.5 * away**2 - 0.5 * (LOG_2PI + 2 * np.log(self.sd)), -1)

    @property
    def _lengths(self):
        """Lengths of those of sd and mean that are vectors."""
        return [len(a) for a in (self.sd, self.mean) if np.ndim(a)]

    def _key(self):
        return tuple((np.shape(a), *np.ravel(a).tolist()) for a in (self.sd, self.mean))

    def __eq__(self, other):
        return isinstance(other, GaussianPrior) and self._key() == other._key()

    def __hash__(self):
        return hash(self._key())

    def __repr__(self):
        sd, mean = (f"<{len(a)} numbers>" if np.ndim(a) else a for a in (self.sd, self.mean))
        return f"GaussianPrior(sd={sd}, mean={mean})"


class Model:
    """A model of the reader's own: two functions that autograd can differentiate, and data.

    `log_lik(z, batch)` gives one log-likelihood per row: z is (..., d), `batch` a tuple with the
    rows of the arrays in `data`, all leading axes broadcast, the result is (...). On all data at
    M points z is (M, 1, d), a batch has N rows, and the result is (M, N).
    `log_prior(z)` maps (..., d) to (...). `data` is an array or a tuple of arrays, N rows each.
    z may be any vector of real numbers; `transforms` has what brings it into constraints, and
    `transforms.pick`, a coordinate for every row.

    A likelihood that does not factorise over rows, that of a time series for example, is one row:
    give y[None] for y, and `batch` holds y as (..., 1, n). Then N = 1, and nothing can be
    subsampled.
    """

    def __init__(self, log_lik, log_prior, data, dim, name="own model"):
        if int(dim) != dim or dim < 1:
            raise ValueError(
                f"dim={dim}: a model needs a whole number of latent dimensions, at least one"
            )
        for what, f, example in [
            ("log_lik", log_lik, "log_lik(z, batch), z (..., d) -> (...)"),
            ("log_prior", log_prior, "models.GaussianPrior(), or lambda z: 0 * z[..., 0] if flat"),
        ]:
            if not callable(f):
                raise ValueError(f"{what}={f!r} is no function: give one, such as {example}")
        self.log_lik, self.log_prior, self.dim, self.name = log_lik, log_prior, int(dim), name
        self.data = checks.data_arrays(data)
        self.N = len(self.data[0])
        self._files = passes.files(self.data)
        self._check_functions()

    def __repr__(self):
        return f"<{self.name}: {self.N} data points, {self.dim} latent dimensions>"

    def take(self, index):
        """The rows with these numbers, of all arrays in `data`; no others are read from a file."""
        if not any(self._files):
            return tuple([a[index] for a in self.data])
        pairs = zip(self.data, self._files)
        return tuple(file.take(index) if file else a[index] for a, file in pairs)

    def log_joint(self, z):
        """log p(x, z) over the whole data set, (..., d) -> (...)."""
        return anp.sum(self.log_lik(z[..., None, :], self.data), -1) + self.log_prior(z)

    def _check_functions(self):
        n = 2 if self.N == 3 else min(self.N, 4)  # three z's meet n rows: 3 would hide a mix-up
        some = np.linspace(0, self.N - 1, n).round().astype(int)
        rows = lambda z, j: self.log_lik(z, tuple(a[some[j]] for a in self.data))
        # One draw a row, all data, all data in several runs, an axis of directions beside M.
        shapes = [((3,), (3,)), ((3, 1), (n,)), ((2, 3, 1), (n,)), ((2, 3, 4), (2, 3, 1))]
        checks.rows("log_lik", rows, self.dim, n, shapes)
        shapes = [((3,), (1,)), ((2, 3, 4), (1,))]
        checks.rows("log_prior", lambda z, j: self.log_prior(z), self.dim, 1, shapes)


# Ready answers to `Likelihood.accepts`: None, or a sentence that says which labels are right.


def anything(y):
    """Every number is a label."""


def signs(y):
    """Labels are -1 and +1."""
    if not np.all(np.abs(y) == 1):
        found = np.unique(y)[:5]
        return f"must be -1 or +1, found {found.tolist()}: write y = np.where(label, 1.0, -1.0)"


def counts(y):
    """Labels are 0, 1, 2, ..."""
    if np.any(y < 0) or np.any(y != np.round(y)):
        return f"must be whole numbers from 0, found {y[(y < 0) | (y != np.round(y))][:5].tolist()}"


@dataclass(frozen=True)
class Likelihood:
    """phi(eta, y), the log-likelihood of one data point as a function of eta = x.z + offset.

    Autograd supplies the derivatives in eta; a likelihood used in a hot loop may bring its own
    (`fast`). The other fields open more of the recipe where they exist. All of them are compared
    with phi when a model is made.
    """

    name: str
    phi: Callable  # eta, y of any one shape -> the same shape, entry by entry
    accepts: Callable = anything  # y (N,) -> None, or a sentence that says which labels are right
    fast: Callable | None = None  # (eta, y, order) -> [phi', phi'', phi'''][:order]
    expected: Callable | None = None  # (m, v, y) -> E[phi], E[phi'], E[phi''], eta ~ N(m, v)
    bound: Callable | None = None  # (xi, y) -> a, b, c: a + b eta + c eta^2 / 2 <= phi, = at +-xi
    kappa: float | None = None  # d^2 phi / d eta d y where it is constant (canonical links)
    strip: float = 1.0  # phi' and phi'' are analytic in eta for |Im eta| < strip (for QD)
    quadratic: bool = False  # phi is quadratic in eta
    classes: bool = False  # labels are classes: taylor_x expands about each class mean

    def derivatives(self, eta, y, order):
        """[phi', phi'', ...] up to `order` (at most 3), each of the shape of eta."""
        if self.fast is not None:
            return self.fast(eta, y, order)
        return self.autograd_derivatives(eta, y, order)

    def autograd_derivatives(self, eta, y, order):
        eta, y = np.broadcast_arrays(eta, y)
        f, out = self.phi, []
        for _ in range(order):
            f = _slope(f)
            out.append(f(eta, y))
        return out

    def check(self, y):
        """A ValueError unless y (N,) are labels for phi and the other fields agree with it."""
        for complaint, _ in (found := list(passes.each(_tried, (y,), self.accepts))):
            if complaint:
                raise ValueError(f"labels of a {self.name} likelihood {complaint}")
        checks.likelihood(self, np.concatenate([labels for _, labels in found]))


def _tried(rows, accepts):
    """What is wrong with some labels, or None; and the least, one in the middle, the greatest."""
    labels = np.unique(rows[0])
    return accepts(rows[0]), labels[[0, len(labels) // 2, -1]]


def _slope(f):
    """df / d eta. + 0 eta: autograd warns of a result that does not depend on eta."""
    return lambda eta, y: elementwise_grad(f)(eta, y) + 0 * eta


@dataclass(frozen=True)
class LinearRows:
    """The log_lik of a GLM: phi(x.z + offset, y) for rows (x, y) or (x, y, offset)."""

    likelihood: Likelihood

    def __call__(self, z, batch):
        x, y, *offset = batch
        eta = anp.sum(x * z, -1)
        return self.likelihood.phi(eta + offset[0] if offset else eta, y)


class GLM(Model):
    """Generalised linear model: log p(y | x, z) = phi(x.z + offset, y).

    The prior is N(prior_mean, diag(prior_sd^2)), each a number or (d,); `offset` is (N,) or None.
    """

    def __init__(self, X, y, likelihood, prior_sd=1.0, *, prior_mean=0.0, offset=None):
        if not isinstance(likelihood, Likelihood):
            raise ValueError(
                f"likelihood={likelihood!r}: give models.LOGISTIC, PROBIT, POISSON, one of "
                "models.student_t_likelihood(df) and negative_binomial_likelihood(shape), or your "
                "own, models.Likelihood(name, phi)"
            )
        X, y = checks.numbers("X", X), checks.numbers("y", y)
        if X.ndim != 2 or y.shape != X.shape[:1]:
            raise ValueError(f"X must be (N, d) and y (N,); got {X.shape} and {y.shape}")
        self.likelihood, self.X, self.y, self.offset = likelihood, X, y, None
        if offset is not None:
            self.offset = checks.numbers("offset", offset)
            if self.offset.shape != y.shape:
                raise ValueError(
                    f"offset must be {y.shape}, a number per data point; got {self.offset.shape}"
                )
        super().__init__(
            LinearRows(likelihood),
            GaussianPrior(
                checks.number_or_vector("prior_sd", prior_sd, X.shape[1]),
                checks.number_or_vector("prior_mean", prior_mean, X.shape[1]),
            ),
            (X, y) if offset is None else (X, y, self.offset),
            X.shape[1],
            f"{likelihood.name} regression",
        )

    def _check_functions(self):
        self.likelihood.check(self.y)  # all else is written here

    @cached_property
    def squares(self):
        """`Squares` of the data; None where they would not stay in a processor's cache."""
        size = self.N * self.dim * (self.dim + 1) // 2
        return Squares.of(self.X.astype(float, copy=False)) if size <= CACHED else None

    @cached_property
    def groups(self):
        """Moments of the data, one group per class (or one in all), for expansions in x."""
        classes = None
        if self.likelihood.classes:
            found = passes.each(_labels, (self.y,))
            classes = np.unique(np.concatenate(list(found)))
        return Groups.of((self.X, self.y), classes, self.likelihood.phi)


@dataclass(frozen=True)
class Squares:
    """x x^T of every data point, kept so that a weighted sum of them is one matrix product."""

    table: np.ndarray  # (N, d (d + 1) / 2) their lower triangles
    where: np.ndarray  # (d, d) where an entry of a symmetric matrix stands in its lower triangle

    def weighted(self, c):
        """sum_i c_i x_i x_i^T for c (..., N), as (..., d, d)."""
        total = c.reshape(-1, len(self.table)) @ self.table
        return total.take(self.where, -1).reshape(*c.shape[:-1], *self.where.shape)

    @classmethod
    def of(cls, X):
        j, k = np.tril_indices(X.shape[1])
        where = np.empty((X.shape[1], X.shape[1]), int)
        where[j, k] = where[k, j] = np.arange(len(j))
        return cls(X[:, j] * X[:, k], where)


@dataclass(frozen=True)
class Groups:
    """First and second moments of (x, y) within K groups of data points."""

    classes: np.ndarray | None  # (K,) the label of each group; None: one group of all data
    n: np.ndarray  # (K,) group sizes
    x: np.ndarray  # (K, d) means
    y: np.ndarray  # (K,)
    xx: np.ndarray  # (K, d, d) covariances of x (divided by n, not n - 1)
    xy: np.ndarray  # (K, d) covariances of x with y
    constant: np.ndarray  # (K,) mean phi(0, y_i) - phi(0, mean y): what phi has of y alone

    def of_labels(self, y):
        """Which group data points with these labels are in."""
        return _group(y, self.classes)

    @cached_property
    def xx_beside(self):
        """The covariances side by side, (d, K d): one product then does for all groups."""
        return np.concatenate(self.xx, -1)

    @cached_property
    def n_xy(self):
        """Sum of n_k Cov(x, y), (d,)."""
        return self.n @ self.xy

    @classmethod
    def of(cls, data, classes, phi):
        """From two passes over the data (X, y)."""
        width = data[0][0].size
        n, x, y = passes.total(_means, data, classes, width=width)
        x, y = x / n[:, None], y / n
        xx, xy, own = passes.total(_spreads, data, classes, x, y, phi, width=width)
        return cls(classes, n, x, y, xx / n[:, None, None], xy / n[:, None], own / n)


def _labels(rows):
    return np.unique(rows[0])


def _group(y, classes):
    return np.zeros(np.shape(y), int) if classes is None else np.searchsorted(classes, y)


def _grouped(rows, classes):
    """X, y and group of some data points, and which of them are in each group, (K, n)."""
    X, y = (a.astype(float, copy=False) for a in rows)
    group, K = _group(y, classes), 1 if classes is None else len(classes)
    return X, y, group, [group == k for k in range(K)]


def _means(rows, classes):
    """Sizes of the groups, and sums of x and y in them."""
    X, y, group, each = _grouped(rows, classes)
    n = np.bincount(group, minlength=len(each))
    return n, np.stack([X[k].sum(0) for k in each]), np.array([y[k].sum() for k in each])


def _spreads(rows, classes, x, mean_y, phi):
    """Sums of dx dx^T, dx dy and phi(0, y) - phi(0, ybar), with dx = x - xbar, dy = y - ybar."""
    X, y, group, each = _grouped(rows, classes)
    dx, dy, zero = X - x[group], y - mean_y[group], np.zeros_like(y)
    xx, xy = (np.stack([dx[k].T @ by[k] for k in each]) for by in (dx, dy))
    own = phi(zero, y) - phi(zero, mean_y[group])
    return xx, xy, np.bincount(group, own, minlength=len(each))


def logistic_regression(X, y, prior_sd=1.0, *, prior_mean=0.0, offset=None):
    """log p(y | x, z) = log sigmoid(y (x.z + offset)), y in {-1, +1}; the prior as in `GLM`."""
    return GLM(X, y, LOGISTIC, prior_sd, prior_mean=prior_mean, offset=offset)


def poisson_regression(X, y, prior_sd=1.0, *, prior_mean=0.0, offset=None):
    """y ~ Poisson(exp(x.z + offset)), y in {0, 1, 2, ...}; the prior as in `GLM`."""
    return GLM(X, y, POISSON, prior_sd, prior_mean=prior_mean, offset=offset)


def linear_regression(X, y, prior_sd=1.0, noise_sd=1.0, *, prior_mean=0.0, offset=None):
    """y ~ N(x.z + offset, noise_sd^2), the prior as in `GLM`: conjugate, everything is exact."""
    likelihood = gaussian_likelihood(noise_sd)
    return GLM(X, y, likelihood, prior_sd, prior_mean=prior_mean, offset=offset)


def _logistic_phi(eta, y):
    return -anp.logaddexp(0.0, -y * eta)


def _logistic_fast(eta, y, order):
    s = scipy.special.expit(-y * eta)
    out = [y * s]
    if order > 1:
        out.append(s * (s - 1))
    if order > 2:
        out.append(y * out[1] * (2 * s - 1))
    return out


def _logistic_bound(xi, y):
    """Jaakkola and Jordan: log sigmoid(t) >= log sigmoid(xi) + (t - xi)/2 - lam (t^2 - xi^2)."""
    small = np.abs(xi) < 1e-4
    safe = np.where(small, 1.0, xi)
    lam = np.where(small, 0.125 - xi**2 / 96, np.tanh(safe / 2) / (4 * safe))
    return -np.logaddexp(0.0, -xi) - xi / 2 + lam * xi**2, y / 2, -2 * lam


def _poisson_phi(eta, y):
    return y * eta - anp.exp(eta) - gammaln(y + 1)


def _poisson_fast(eta, y, order):
    rate = np.exp(eta)
    return [y - rate, -rate, -rate][:order]


def _poisson_expected(m, v, y):
    rate = np.exp(m + v / 2)  # E exp(eta): the moment generating function of a Gaussian
    return y * m - rate - gammaln(y + 1), y - rate, -rate


@dataclass(frozen=True)
class _Normal:
    """log N(y | eta, noise_sd^2), its derivatives and expectations."""

    noise_sd: float
    precision: float

    def phi(self, eta, y):
        return -0.5 * self.precision * (y - eta) ** 2 - 0.5 * LOG_2PI - np.log(self.noise_sd)

    def fast(self, eta, y, order):
        one = np.ones(np.broadcast(eta, y).shape)
        return [self.precision * (y - eta), -self.precision * one, 0 * one][:order]

    def expected(self, m, v, y):
        value = self.phi(m, y) - 0.5 * self.precision * v
        return value, self.precision * (y - m), -self.precision + 0 * m


def gaussian_likelihood(noise_sd):
    """phi(eta, y) = log N(y | eta, noise_sd^2)."""
    checks.positive("noise_sd", noise_sd)
    if np.ndim(noise_sd):
        raise ValueError(f"noise_sd must be one number, not an array of shape {noise_sd.shape}")
    precision = 1 / noise_sd**2
    normal = _Normal(noise_sd, precision)
    return Likelihood(
        "linear", normal.phi, anything, normal.fast, normal.expected, kappa=precision,
        quadratic=True,
    )  # fmt: skip


@dataclass(frozen=True)
class _StudentT:
    """log t(y | df, eta, scale)."""

    df: float
    scale: float

    def phi(self, eta, y):
        half, nu = (self.df + 1) / 2, self.df
        size = gammaln(half) - gammaln(nu / 2) - 0.5 * np.log(nu * np.pi) - np.log(self.scale)
        return size - half * anp.log1p(((y - eta) / self.scale) ** 2 / nu)


def student_t_likelihood(df, scale=1.0):
    """phi(eta, y) = log t(y | df, eta, scale): a linear regression that forgives far points."""
    for name, value in ("df", df), ("scale", scale):
        checks.positive(name, value)
    t = _StudentT(float(df), float(scale))
    return Likelihood("Student-t", t.phi, strip=t.scale * np.sqrt(t.df))  # poles of phi'


@dataclass(frozen=True)
class _NegativeBinomial:
    """Counts of mean exp(eta) and variance mean + mean^2 / shape."""

    shape: float

    def phi(self, eta, y):
        r = self.shape
        ways = gammaln(y + r) - gammaln(r) - gammaln(y + 1)
        return ways + y * (eta - np.log(r)) - (y + r) * anp.logaddexp(0.0, eta - np.log(r))


def negative_binomial_likelihood(shape):
    """Counts of mean exp(eta) that scatter more than Poisson's: variance mean + mean^2 / shape."""
    checks.positive("shape", shape)
    nb = _NegativeBinomial(float(shape))
    return Likelihood("negative binomial", nb.phi, counts, strip=np.pi)


def _probit_phi(eta, y):
    return log_ndtr(y * eta)


# kappa of the logistic likelihood: of use with classes=False, one mean of x for both classes.
LOGISTIC = Likelihood(
    "logistic",
    _logistic_phi,
    signs,
    _logistic_fast,
    bound=_logistic_bound,
    kappa=0.5,
    strip=np.pi,
    classes=True,
)
POISSON = Likelihood("poisson", _poisson_phi, counts, _poisson_fast, _poisson_expected, kappa=1.0)
# The normal distribution function has no zero with an imaginary part below 2.8.
PROBIT = Likelihood("probit", _probit_phi, signs, strip=2.8)
