"""What a family has from its base: score, pull-back, moments and entropy by autograd; its name.

The hand-written forms of every family are held to the base's, and the base's to autograd through w
one sample at a time, to scipy's densities and to quadrature.
"""

import autograd.numpy as anp
import numpy as np
import pytest
from harness import part
from numpy.testing import assert_allclose
from scipy import stats
from test_families import families_of


def student_of(cv):
    """Student's family on this copy of the package, as a reader would write it."""

    class Student(cv.families.Family):
        parts = "m", "r"
        quadratics = True
        noise = lambda self, rng, w, M: rng.standard_t(self.nu, (*w.shape[:-1], M, self.dim))

        def __init__(self, dim, nu=4.0):
            super().__init__(dim)
            self.nu = nu

        def transform(self, w, eps):
            m, r = self.unpack(w)
            return m + anp.exp(r) * eps

        def log_density(self, w, z):
            (m, r), nu = self.unpack(w), self.nu
            law = -(nu + 1) / 2 * anp.log(1 + ((z - m) * anp.exp(-r)) ** 2 / nu) - r
            return anp.sum(law + stats.t(nu).logpdf(0), -1)

        def moments(self, w):
            m, r = self.unpack(w)
            return m, np.sqrt(self.nu / (self.nu - 2)) * anp.exp(r)

    return Student


def shifted_of(cv):
    """z = w + standard normal noise; it says nothing in closed form, and no Fisher matrix."""

    class Shifted(cv.families.Family):
        parts = ("w",)
        transform = lambda self, w, eps: w + eps
        noise = lambda self, rng, w, M: rng.standard_normal((*w.shape[:-1], M, self.dim))
        log_density = lambda self, w, z: -0.5 * anp.sum((z - w) ** 2 + np.log(2 * np.pi), -1)

    return Shifted


def crossed_of(cv):
    """The same; E_w log q_v is known for every v."""
    cross = lambda self, w, v: -0.5 * anp.sum((w - v) ** 2 + 1 + np.log(2 * np.pi), -1)
    return type("Crossed", (shifted_of(cv),), {"cross": cross})


def own_model(cv, dim, prior=lambda z: -0.5 * anp.sum(z**2, -1)):
    c = np.arange(1.0, dim + 1)
    lik = lambda z, row: anp.sin(anp.sum(c * z, -1) + row[0]) - 0.1 * anp.sum(z**2, -1)
    return cv.models.Model(lik, prior, np.array([0.1, 0.9]), dim)


def draws(cv, q, seed=0, M=3):
    """A draw with two runs, at weights of no special value."""
    rng = np.random.default_rng(seed)
    w = q.start((2,)) + rng.uniform(-0.7, 0.7, (2, q.D))
    if q.gaussian:
        w[1, q.diag[0]] *= -1  # a factor of the same covariance
    return cv.draw(own_model(cv, q.dim), q, w, M=M, rng=rng, subsample=False)


def test_closed_forms_by_moments(cv):
    """CF with a Student q, by hand: of f'(m) z + f''(m) (z - m)^2 / 2 and of a normal prior."""
    q, w = student_of(cv)(1, nu=5.0), np.array([0.3, -0.5])
    model = own_model(cv, 1, cv.models.GaussianPrior(2.0, 1.0))
    draw = cv.draw(model, q, w, M=1, rng=np.random.default_rng(0), subsample=False)
    (data, prior, _), m, variance = cv.terms(model, q), w[0], np.exp(2 * w[1]) * 5 / 3
    slope = sum(np.cos(m + y) - 0.2 * m for y in (0.1, 0.9))
    bend = sum(-np.sin(m + y) - 0.2 for y in (0.1, 0.9))
    assert_allclose(cv.CF(cv.taylor_z(data))(draw)[0], [slope, bend * variance], rtol=1e-9)
    assert_allclose(cv.CF(prior)(draw)[0], [-(m - 1) / 4, -variance / 4], rtol=1e-12)
    with pytest.raises(ValueError, match="has none for the quadratic 'prior'"):
        cv.CF(cv.terms(model, shifted_of(cv)(1))[1])


def test_closed_forms_are_given_or_refused(cv):
    """By `entropy`, by `cross`, or not at all; SF and RP1 stay."""
    makers = shifted_of, student_of, laplace_of, crossed_of
    Shifted, Student, Laplace, Crossed = (make(cv) for make in makers)
    assert [kind(2).closed_entropy for kind in (Shifted, Student, Laplace, Crossed)] == [0, 0, 1, 1]
    assert all(q.closed_entropy for q in families_of(cv))
    for kind in (Shifted, Student):
        q = kind(2)
        draw = draws(cv, q)
        variational = cv.terms(draw.model, q)[2]
        assert np.isfinite(cv.SF(variational)(draw) + cv.RP1(variational)(draw)).all()
        with pytest.raises(ValueError, match="CF needs a closed form"):
            cv.CF(variational)(draw)
        with pytest.raises(ValueError, match=r"has none for log q: write SF or RP1, or give"):
            q.entropy(draw.w)
    q = Laplace(2)
    draw = draws(cv, q)
    assert_allclose(cv.CF(cv.terms(draw.model, q)[2])(draw), [[[0, 0, -1, -1]] * 3] * 2, atol=1e-12)
    with pytest.raises(ValueError, match="closed form"):  # of a prior with other parameters
        q.cross_grad(draw.w, draw.w + 1)
    q, v, w = Crossed(2), np.array([0.4, -1.0]), np.array([[0.1, 0.2], [3.0, -1.0]])
    model = own_model(cv, 2, q.prior(v))
    draw = cv.draw(model, q, w, M=3, rng=np.random.default_rng(0), subsample=False)
    assert_allclose(cv.CF(cv.terms(model, q)[1])(draw), np.repeat((v - w)[:, None], 3, 1))
    assert_allclose(q.entropy(w), 2 * stats.norm.entropy(), rtol=1e-12)
    assert_allclose(model.log_prior(draw.z), stats.norm.logpdf(draw.z - v).sum(-1), rtol=1e-12)


def laplace_of(cv):
    """A family that says all there is to say, rightly."""
    of_r = lambda q, w: q.unpack(w)[1]

    class Laplace(cv.families.Family):
        parts = "m", "r"
        quadratics = True
        noise = lambda self, rng, w, M: rng.laplace(size=(*w.shape[:-1], M, self.dim))
        transform = lambda self, w, eps: self.unpack(w)[0] + anp.exp(of_r(self, w)) * eps
        moments = lambda self, w: (self.unpack(w)[0], np.sqrt(2) * anp.exp(of_r(self, w)))
        entropy = lambda self, w: anp.sum(of_r(self, w) + 1 + np.log(2), -1)
        mirror = lambda self, w, eps: -eps
        quantile = lambda self, w, u: stats.laplace.ppf(u)

        def log_density(self, w, z):
            m, r = self.unpack(w)
            return -anp.sum(anp.abs(z - m) * anp.exp(-r) + r + np.log(2), -1)

        def fisher(self, w):
            r = of_r(self, w)
            return np.concatenate([np.exp(-2 * r), 1 + 0 * r], -1)

    return Laplace


LIES = {  # what is said to a function of a family, and a wrong one made of the right one
    "moments": ("sd of", lambda f: lambda q, w: (f(q, w)[0], 1.05 * f(q, w)[1])),
    "mean": ("mean of", lambda f: lambda q, w: f(q, w) + 0.01),
    "sd": ("chain of", lambda f: lambda q, w: f(q, w) ** 2),
    "entropy": ("entropy of", lambda f: lambda q, w: f(q, w) - 1),
    "entropy_grad": ("entropy_grad of", lambda f: lambda q, w: 1.05 * f(q, w)),
    "cross": ("cross of", lambda f: lambda q, w, v: f(q, w, v) + 0.2),
    "cross_grad": ("cross_grad of", lambda f: lambda q, w, v: 1.05 * f(q, w, v)),
    "score": ("score of", lambda f: lambda q, draw: 1.05 * f(q, draw)),
    "pull1": ("pull1 of", lambda f: lambda q, draw, u, out=None: 1.05 * f(q, draw, u)),
    "moments_grad": ("chain of", lambda f: lambda q, draw: [1.05 * x for x in f(q, draw)]),
    "chain": ("chain of", lambda f: lambda q, *given: 1.05 * f(q, *given)),
    "log_q1": ("log_q1 of", lambda f: lambda q, draw: f(q, draw) + 1),
    "z1": ("z1 of", lambda f: lambda q, draw: f(q, draw) + 0.01),
    "transform": ("together are", lambda f: lambda q, w, eps: f(q, -w, eps)),
    "log_density": ("the mass that log_density", lambda f: lambda q, w, z: f(q, w, z) + 0.4),
    "noise": ("score at draws by noise", lambda f: lambda q, *given: 1.2 * f(q, *given)),
    "mirror": ("score at draws by mirror", lambda f: lambda q, w, eps: 1.2 * eps),
    "quantile": ("score at draws by quantile", lambda f: lambda q, w, u: u),
    "fisher": ("fisher of", lambda f: lambda q, w: 2 * f(q, w)),
    "mapped": ("log .det. by", lambda f: lambda q, w, eps: (q.transform(w, eps), 0 * eps[:, 0])),
}


@pytest.mark.parametrize("name", LIES)
def test_what_a_family_says_is_tried(cv, name):
    """Once, when it first meets a model; one that is right passes, and so do the package's own."""
    honest = (crossed_of if name.startswith("cross") else laplace_of)(cv)
    cv.terms(own_model(cv, 2), honest(2))
    says, wrong = LIES[name]
    liar = type("Liar", (honest,), {name: wrong(getattr(honest, name))})(2)
    with pytest.raises(ValueError, match=rf"(?=.*Liar\(2\)).*{says}.* where it is"):
        cv.draw(own_model(cv, 2), liar, liar.start(), M=2, rng=np.random.default_rng(0))


def test_the_package_s_families_are_what_they_say(cv):
    """And a Student whose draws tell nothing of its sd; what is equal is not tried again."""
    hold = part(cv, "models.checks").hold
    for q in (*families_of(cv), student_of(cv)(2, 2.05), cv.families.Bent(2), shifted_of(cv)(70)):
        try:
            hold(q)
        except ValueError as refused:
            pytest.fail(str(refused))
    before = hold.cache_info().misses
    cv.terms(own_model(cv, 70), q)
    cv.terms(own_model(cv, 70), type(q)(70))
    cv.terms(own_model(cv, 2), cv.families.Gaussian(2))
    assert hold.cache_info().misses == before


def test_moments_are_given_or_refused(cv):
    q = shifted_of(cv)(2)
    draw = draws(cv, q)
    data = cv.terms(draw.model, q)[0]
    said = r"Shifted\(2\) does not say its mean( and spread: give it `moments`|$)"
    for ask in (lambda: q.mean(q.start()), lambda: q.sd(q.start()), lambda: draw.at("mu"),
                lambda: cv.taylor_z(data)):  # fmt: skip
        with pytest.raises(ValueError, match=said):
            ask()
    old = cv.snapshot(draw.model, np.zeros(2))
    draw = cv.draw(draw.model, q, draw.w, eps=draw.eps, subsample=False, snapshot=old)
    f = cv.taylor_z(data, at="snapshot")
    assert np.isfinite(cv.RP1(f)(draw)).all()  # needs no mean of q


def test_weights(cv):
    """Parts of w: where they stand, packed and unpacked; what is refused."""
    q = student_of(cv)(2)
    assert q.D == 4 and q.blocks == (slice(0, 2), slice(2, 4))
    assert cv.families.Gaussian(3).blocks == (slice(0, 3), slice(3, 9))
    assert cv.families.Categorical(2, 3).blocks == (slice(0, 6),)
    assert_allclose(q.pack([1, 2], 3), [1, 2, 3, 3])
    m, r = np.arange(6.0).reshape(3, 2), np.ones((3, 2))
    for got, want in zip(q.unpack(q.pack(m, r)), (m, r)):
        assert_allclose(got, want)
    assert_allclose(cv.families.Bernoulli(2).unpack([0.1, 0.2]), [0.1, 0.2])
    for wrong in ([m], [m, r, r], [m, np.ones((3, 3))], [m, r[0]]):
        with pytest.raises(ValueError, match=r"m, r must be \(..., 2\); got"):
            q.pack(*wrong)
    assert_allclose(q.check([1e5, -1e5, 0, 0]), [1e5, -1e5, 0, 0])
    assert all(one.far == 300 for one in families_of(cv)[2:])
    assert all(np.array_equal(one.start(2), one.start((2,))) for one in families_of(cv))


def test_families_are_told_apart_by_all_arguments(cv):
    """C3: a variate written for nu = 3 had a mean on draws of nu = 30."""
    Student = student_of(cv)
    three, thirty = Student(2, 3.0), Student(2, nu=30.0)
    assert three == Student(2, nu=3) != thirty and len({three, thirty, Student(2, 3)}) == 2
    assert Student(2) == Student(2, 4.0) != Student(3)
    assert repr(Student(2, nu=5)) == "Student(2, nu=5)" and repr(Student(2)) == "Student(2, nu=4.0)"
    assert Student(2, nu=np.array([3.0, 4])) == Student(2, nu=[3, 4]) != Student(2, nu=[3, 5])
    assert three.key == (Student, 2, 3.0)
    model, rng = own_model(cv, 2), np.random.default_rng(0)
    data = cv.terms(model, three)[0]
    line = cv.SF(data) - cv.RP1(data)
    line(cv.draw(model, Student(2, nu=3), three.start(), M=2, rng=rng))
    with pytest.raises(ValueError, match="different models or families"):
        line(cv.draw(model, thirty, three.start(), M=2, rng=rng))
    with pytest.raises(ValueError, match="mixes terms of two"):
        line - cv.RP1(cv.terms(model, thirty)[0])

    class Forgetful(Student):
        def __init__(self, dim, df):
            super().__init__(dim, df)

    with pytest.raises(TypeError, match=r"Forgetful must keep its argument 'df' as self\.df"):
        cv.terms(model, Forgetful(2, 3.0))

    class Named(Student):
        def __init__(self, dim, *, nu):
            super().__init__(dim, nu)

    assert Named(2, nu=3.0).key == (Named, 2, 3.0)


def test_a_prior_and_a_q_of_two_kinds_are_refused(cv):
    f = cv.families
    normal = cv.models.logistic_regression(np.eye(2), np.array([1.0, -1.0]))
    coins, rates = (own_model(cv, 2, q.prior(*p)) for q, p in
                    [(f.Bernoulli(2), [0.3]), (f.Gamma(2), [1.0, 2.0])])  # fmt: skip
    for model, q, kind in [
        (normal, f.Bernoulli(2), "continuous"), (normal, f.Categorical(1, 2), "continuous"),
        (rates, f.Bernoulli(2), "continuous"), (coins, f.Gaussian(2), "discrete"),
        (coins, f.Gamma(2), "discrete"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=f"is a law of {kind} z, .*they have no ELBO"):
            cv.terms(model, q)
    for model, q in [(normal, f.Gamma(2)), (rates, f.Gaussian(2)), (rates, f.Beta(2)),
                     (coins, f.Categorical(1, 2)), (own_model(cv, 2), f.Bernoulli(2))]:  # fmt: skip
        cv.terms(model, q)
