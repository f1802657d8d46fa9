"""What every family must say; moments and samples; the Gaussian families against dense matrices."""

import inspect
import itertools
import pickle
import re
from pathlib import Path

import autograd.numpy as anp
import numpy as np
import oracles
import pytest
import test_lines
from numpy.testing import assert_allclose
from scipy import linalg, special, stats

import cvlib as cv
from cvlib.families import Family, Route

families = pytest.mark.parametrize("family", oracles.FAMILIES)


def both(family, d, seed=0):
    q, w = getattr(cv.families, family)(d), oracles.weights(family, d, seed)
    return q, w, *oracles.unpack(family, d, w)


@families
def test_the_layout_of_w(family):
    q, w, mu, L = both(family, 3)
    got_mu, factor = q.unpack(w)
    assert_allclose(got_mu, mu)
    assert_allclose(factor if family == "Gaussian" else factor[..., None] * np.eye(3), L)
    assert_allclose(q.pack(got_mu, factor), w)
    assert q.D == w.shape[-1] == (9 if family == "Gaussian" else 6)
    start_mu, start_L = oracles.unpack(family, 3, q.start((2,)))
    assert_allclose(start_mu, np.zeros((2, 3)))
    assert_allclose(start_L, np.broadcast_to(np.eye(3), (2, 3, 3)))
    assert repr(q) == f"{family}(3)"


@families
@pytest.mark.parametrize("d", range(1, 9))
def test_density_and_entropy(family, d):
    q, W, mus, Ls = both(family, d)
    z = np.random.default_rng(0).standard_normal((2, 5, d))
    for w, mu, L, points, got in zip(W, mus, Ls, z, q.log_q(W, z)):
        law = stats.multivariate_normal(mu, L @ L.T)
        assert_allclose(got, law.logpdf(points), rtol=1e-9)
        assert_allclose(q.entropy(w), law.entropy(), rtol=1e-10)


@pytest.mark.parametrize("runs", [(7,), (3, 2), (1,)])
def test_runs_side_by_side_change_nothing(runs):
    """RP2 of many runs at once against one run after the other."""
    rng = np.random.default_rng(0)
    model = cv.models.logistic_regression(
        rng.standard_normal((5, 3)), np.array([1.0, -1, 1, -1, 1])
    )
    q = cv.families.Gaussian(3)
    line = cv.RP2(cv.terms(model, q)[0])
    w = q.start(runs) + 0.1 * rng.standard_normal((*runs, q.D))
    draw = cv.draw(model, q, w, M=4, rng=rng)
    alone = [
        line(cv.draw(model, q, w[r], eps=draw.eps[r], index=draw.index[r]))
        for r in np.ndindex(runs)
    ]
    assert_allclose(line(draw), np.reshape(alone, (*runs, 4, q.D)), rtol=1e-12)


@families
def test_entropy_gradient(family):
    q, w, *_ = both(family, 4)
    step, w = 1e-6, w[1]
    around = [(q.entropy(w + step * e) - q.entropy(w - step * e)) / (2 * step) for e in np.eye(q.D)]
    assert_allclose(q.entropy_grad(w), around, rtol=1e-7, atol=1e-8)


@families
@pytest.mark.parametrize("d", [1, 2, 5])
def test_both_transforms_have_the_right_covariance(family, d):
    """z1 and z2 are linear in eps: fed with the columns of I, z - mu gives the matrix itself."""
    p = oracles.problem("logistic", d, 2)
    q, W, mus, Ls = both(family, d)
    for w, mu, L in zip(W, mus, Ls):
        draw = cv.draw(oracles.build(cv, p), q, w, eps=np.eye(d), subsample=False)
        A1, A2 = (draw.at(where).T - mu[:, None] for where in ("z1", "z2"))
        assert_allclose(A1, L, atol=1e-12)
        assert_allclose(A2, linalg.sqrtm(L @ L.T).real, atol=1e-10)
        assert_allclose(draw.z, draw.at("z1"))


def test_equal_signs_make_both_reparameterisations_of_a_diagonal_family_one():
    p = oracles.problem("logistic", 3, 4)
    model, q = oracles.build(cv, p), cv.families.DiagonalGaussian(3)
    data = cv.terms(model, q)[0]
    difference = cv.RP1(data) - cv.RP2(data)
    rng = np.random.default_rng(0)
    plus = cv.draw(model, q, q.pack([0, 1, 2], [0.5, 1, 2]), M=3, rng=rng)
    minus = cv.draw(model, q, q.pack([0, 1, 2], [0.5, -1, 2]), M=3, rng=rng)
    assert_allclose(difference(plus), 0, atol=1e-13)
    assert np.abs(difference(minus)).max() > 0.1


@families
def test_a_negative_diagonal_is_a_factor_of_the_same_covariance(family):
    q = getattr(cv.families, family)(2)
    factor = np.array([[1.0, 0], [0.4, 2.0]]) if family == "Gaussian" else np.array([1.0, 2.0])
    signs = np.array([-1.0, 1.0])  # a column's sign may be turned: L diag(signs)
    w, turned = q.pack([0.3, 1], factor), q.pack([0.3, 1], factor * signs)
    z = np.random.default_rng(0).standard_normal((4, 2))
    assert_allclose(q.log_q(w, z), q.log_q(turned, z))
    assert_allclose(q.entropy(w), q.entropy(turned))
    model = oracles.build(cv, oracles.problem("logistic"))
    assert_allclose(cv.exact.elbo(model, q, w), cv.exact.elbo(model, q, turned))


# What a family must say -------------------------------------------------------------------------


def families_of(cv):
    """One of each, of the package or of a copy of it."""
    f = cv.families
    return [
        f.Gaussian(3), f.DiagonalGaussian(3), f.Gamma(3), f.Beta(3), f.Bernoulli(3),
        f.Categorical(2, 3),
    ]  # fmt: skip


EVERY = families_of(cv)
every = pytest.mark.parametrize("q", EVERY, ids=repr)


def complaint(name, bases, namespace):
    """What is said when this class is defined, or nothing."""
    try:
        type(name, bases, namespace)
    except TypeError as error:
        return str(error)
    return ""


def test_incomplete_families(cv):
    """Each family without any one of the things it must say, or of those its routes go through."""
    required = cv.families.Family.required
    assert list(required) == ["parts", "noise", "transform", "log_density"]
    for cls in map(type, families_of(cv)):
        through = {}
        for space, table in cls.routes.items():
            for word, route in table.items():
                for name in filter(None, route):
                    through.setdefault(name, f"the route of {word} in {space} goes through it")
        assert {"z1", "score"} <= set(through)
        for name, why in {**through, **required}.items():
            said = complaint("Half", (cls,), {name: None})
            assert said.startswith("the family Half is incomplete. It lacks ")
            assert f"{name} ({why})" in said
        assert not complaint("Whole", (cls,), {})
    said = complaint("Blind", (cv.families.Family,), {"quadratics": True})
    assert "moments ((w) -> mean and standard deviation" in said


@every
def test_nothing_else_is_needed(q):
    """What the recipe asks of a family that is no Gaussian is listed, or the base has it."""
    cls, package = type(q), Path(cv.__file__).parent
    through = {name for table in cls.routes.values() for route in table.values() for name in route}
    source = inspect.getsource(Family).replace("self.", "q.")
    source += "".join(path.read_text("utf-8") for path in (package / "recipe").glob("*.py"))
    own = {name for kind in cls.__mro__[:2] for name in vars(kind) if not hasattr(Family, name)}
    asked = {name for name in own if re.search(rf"\bq\.{name}\b", source)}
    assert q.gaussian or asked <= {*through, "squash"}


def test_what_is_missing_is_named_with_its_reason():
    said = complaint("Empty", (Family,), {})
    for name, why in Family.required.items():
        assert f"{name} ({why})" in said
    routes = {"z": {"SF": Route("z1", score="score"), "RP1": Route("z1", pull="pull_it")}}
    said = complaint("NoPull", (cv.families.Gamma,), {"routes": routes})
    assert said.endswith("lacks pull_it (the route of RP1 in z goes through it)")
    type("Base", (Family,), {}, base=True)  # not a family yet


class Shifted(Family):
    """z = w + logistic noise, D = d: a family of one's own, as short as it can be."""

    parts = ("w",)
    quadratics = True

    def noise(self, rng, w, M):
        return rng.logistic(size=(*w.shape[:-1], M, self.dim))

    def transform(self, w, eps):
        return w + eps

    def log_density(self, w, z):
        return anp.sum(w - z - 2 * anp.logaddexp(0, w - z), -1)

    def moments(self, w):
        return w, anp.full(w.shape, np.pi / np.sqrt(3))


def test_a_family_of_one_s_own_takes_part():
    """Words are those of its routes; means by quadrature in the logistic noise."""
    q = Shifted(1)
    assert q.methods == ("SF", "RP1", "GR", "CF")
    model = cv.models.logistic_regression(np.array([[0.7], [-1.2]]), np.array([1.0, -1.0]))
    data, prior, variational = cv.terms(model, q)
    u, p = np.polynomial.legendre.leggauss(400)
    noise = 60 * u**3  # dense in the middle
    p = p * 180 * u**2 * stats.logistic.pdf(noise)
    w = np.array([0.4])
    draw = cv.draw(model, q, w, eps=noise[:, None], subsample=False)
    phi = lambda z: sum(-np.logaddexp(0, -y * x * z) for (x,), y in zip(model.X, model.y))
    mean = lambda w: p @ phi(w + noise)
    slope = (mean(w + 1e-5) - mean(w - 1e-5)) / 2e-5
    for line in (cv.SF(data), cv.RP1(data), cv.GR(data)):
        assert_allclose(p @ line(draw), [slope], rtol=1e-7)
    c = cv.CF(cv.taylor_z(data)) - cv.RP1(cv.taylor_z(data))
    assert_allclose(p @ c(draw), 0, atol=1e-7)
    with pytest.raises(ValueError, match="RP2.data. is not possible for Shifted.1."):
        cv.RP2(data)
    with pytest.raises(ValueError, match="PR.data. is not possible for Shifted.1.: .*Gaussian"):
        cv.PR(data)
    assert q.sample(w, 7, np.random.default_rng(0)).shape == (7, 1)


# Moments, samples, equality ---------------------------------------------------------------------


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
    a, b = np.exp(w[..., :d]), np.exp(w[..., d:])
    if name == "Gamma":
        return stats.loggamma(a).mean() - np.log(b), stats.loggamma(a).std()
    return (
        stats.loggamma(a).mean() - stats.loggamma(b).mean(),  # logit x = log gamma - log gamma
        np.sqrt(stats.loggamma(a).var() + stats.loggamma(b).var()),
    )


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
        if q.gaussian:
            L = oracles.unpack(type(q).__name__, q.dim, w)[1]
            right = L @ np.swapaxes(L, -1, -2)
            error = np.sqrt((sd[:, :, None] * sd[:, None]) ** 2 + right**2) / np.sqrt(n)
            assert np.all(np.abs(np.einsum("rni,rnj->rij", away, away) / n - right) < 6 * error)


def test_samples_are_those_of_a_draw(cv):
    """The same generator gives the same z."""
    for q in families_of(cv):
        model = cv.models.Model(
            lambda z, row: row[0] * z[..., 0], lambda z: z[..., 0], [1.0], q.dim
        )
        w = q.start((2,)) + 0.1
        draw = cv.draw(model, q, w, M=4, rng=np.random.default_rng(3), subsample=False)
        assert np.array_equal(draw.z, q.sample(w, 4, np.random.default_rng(3)))


def test_equality(cv):
    """Families are equal by kind and sizes."""
    f = cv.families
    each = families_of(cv)
    others = [f.Gaussian(2), f.Categorical(3, 2), f.Categorical(1, 6)]
    for a, b in itertools.combinations(each + others, 2):
        assert a != b
    assert f.Gaussian(3) == f.Gaussian(np.int64(3))
    assert type("Mine", (f.Gaussian,), {})(3) != f.Gaussian(3)
    assert len({*each, *families_of(cv)}) == len(each)


def test_weights_out_of_range(cv):
    """Logarithms and logits of a size beyond 300, of either sign, and NaN are refused."""
    for q in [q for q in families_of(cv) if not q.gaussian]:
        for k, wrong in itertools.product(range(q.D), (-1000.0, 1000.0, np.nan)):
            w = q.start()
            w[k] = wrong
            said = "it holds log" if np.isfinite(wrong) else "nan"
            with pytest.raises(ValueError, match=rf"at \[{k}\]: {said}"):
                q.check(w)
            w[k] = np.sign(wrong) * 299 if np.isfinite(wrong) else 0.0
            q.check(w)


@every
def test_bad_weights_are_named(q):
    for method in (q.mean, q.sd, lambda w: q.sample(w, 2, np.random.default_rng(0))):
        with pytest.raises(ValueError, match="w must be"):
            method(np.zeros(q.D + 1))


@every
def test_a_family_can_be_sent_to_another_process(q):
    copy = pickle.loads(pickle.dumps(q))
    assert repr(copy) == repr(q) and copy == q and hash(copy) == hash(q)
    rng = np.random.default_rng
    w = q.start() + 0.1
    assert np.array_equal(copy.sample(w, 3, rng(0)), q.sample(w, 3, rng(0)))
    assert eval(repr(q), vars(cv.families)) == q


def test_lines_of_equal_families_are_of_one_family():
    p, model, q, w, _ = test_lines.setting(cv, "logistic", "Gaussian")
    again = cv.families.Gaussian(q.dim)
    data, again_data = cv.terms(model, q)[0], cv.terms(model, again)[0]
    assert not (cv.RP1(data) - cv.RP1(again_data)).parts
    draw = cv.draw(model, again, w, M=2, rng=np.random.default_rng(0))
    assert_allclose(cv.PR(data)(draw), cv.PR(again_data)(draw), rtol=1e-14)


@pytest.mark.parametrize("size", [0, -1, 2.5, np.nan, np.inf, "3", None])
def test_a_size_must_be_a_whole_number(size):
    for make in (cv.families.Gaussian, cv.families.Bernoulli, cv.families.Gamma):
        with pytest.raises((TypeError, ValueError), match="dim=.*(a whole number|at least one)"):
            make(size)
    with pytest.raises((TypeError, ValueError), match="classes=.*(a whole number|at least 2)"):
        cv.families.Categorical(2, size)
