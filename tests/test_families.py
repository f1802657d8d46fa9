"""What every family must say; moments and samples; dense matrices; special functions."""

import itertools
import pickle

import numpy as np
import oracles
from numpy.testing import assert_allclose
from scipy import special, stats

from cvlib import special as ours


def families_of(cv):
    """One of each, of the package or of a copy of it."""
    f = cv.families
    return [
        f.Gaussian(3), f.DiagonalGaussian(3), f.Gamma(3), f.Beta(3), f.Bernoulli(3),
        f.Categorical(2, 3),
    ]  # fmt: skip


def test_incomplete_families(cv):
    """Each family without any one of the things it must say, or of those its routes go through."""

    def complaint(base, **namespace):
        """What is said when this class is defined, or nothing."""
        try:
            type("Half", (base,), namespace)
        except TypeError as error:
            return str(error)
        return ""

    required = cv.families.Family.required
    assert list(required) == ["parts", "noise", "transform", "log_density"]
    for cls in map(type, families_of(cv)):
        for name, why in required.items():
            said = complaint(cls, **{name: None})
            assert said.startswith("the family Half is incomplete. It lacks ")
            assert f"{name} ({why})" in said
        assert not complaint(cls)
    said = complaint(cv.families.Family, quadratics=True)
    assert "moments ((w) -> mean and standard deviation" in said


def moments_by_hand(q, w):
    """Mean and standard deviation of every coordinate, from scipy's laws."""
    name, d = type(q).__name__, q.dim
    if q.gaussian:
        mu, L = oracles.unpack(name, d, w)
        return mu, np.sqrt(np.einsum("...ij,...ij->...i", L, L))
    if name == "Categorical":
        p = special.softmax(w.reshape(*w.shape[:-1], q.count, q.classes), -1).reshape(w.shape)
        return p, stats.bernoulli(p).std()
    if name == "Bernoulli":
        return special.expit(w), stats.bernoulli(special.expit(w)).std()
    a, b = stats.loggamma(np.exp(w[..., :d])), stats.loggamma(np.exp(w[..., d:]))
    if name == "Gamma":
        return a.mean() - w[..., d:], a.std()
    return a.mean() - b.mean(), np.sqrt(a.var() + b.var())  # logit x = log gamma - log gamma


def test_moments_and_samples(cv, n=40_000):
    """Closed forms, and samples within 6 standard errors: a false alarm in 1e7 suites."""
    for q in families_of(cv):
        rng = np.random.default_rng(0)
        w = q.start((2,)) + 0.4 * rng.uniform(-1, 1, (2, q.D))
        if q.gaussian:
            w[1, q.diag[0]] *= -1
        mean, sd = moments_by_hand(q, w)
        assert_allclose(q.mean(w), mean, rtol=1e-10)
        assert_allclose(q.sd(w), sd, rtol=1e-10)
        assert_allclose(q.sd(w[1]), sd[1], rtol=1e-10)
        z = q.sample(w, n, rng)
        assert z.shape == (2, n, q.dim) and q.sample(w[0], 5, rng).shape == (5, q.dim)
        away = z - mean[:, None]
        for values, right in ((z, mean), (away**2, sd**2)):
            error = values.std(1) / np.sqrt(n)
            assert np.all(np.abs(values.mean(1) - right) < 6 * error + 1e-12), repr(q)


def test_equality(cv):
    """Families are equal by kind and sizes, also those that come from another process."""
    f, each = cv.families, families_of(cv)
    others = [f.Gaussian(2), f.Categorical(3, 2), f.Categorical(1, 6)]
    assert all(a != b for a, b in itertools.combinations(each + others, 2))
    assert f.Gaussian(3) == f.Gaussian(np.int64(3))
    assert type("Mine", (f.Gaussian,), {})(3) != f.Gaussian(3)
    assert len({*each, *families_of(cv)}) == len(each)
    for q in each:
        copy, w, rng = pickle.loads(pickle.dumps(q)), q.start() + 0.1, np.random.default_rng
        assert repr(copy) == repr(q) and copy == q and hash(copy) == hash(q)
        assert np.array_equal(copy.sample(w, 3, rng(0)), q.sample(w, 3, rng(0)))
        assert eval(repr(q), vars(f)) == q


def test_a_likelihood_with_them_can_be_sent_to_a_worker():
    assert pickle.loads(pickle.dumps(ours.gammaln)) is ours.gammaln
