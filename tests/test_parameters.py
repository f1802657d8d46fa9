"""Parameters by name, what comes out of a fit, and models that bring their own value and slope.

The other side is the same model written for z by hand, scipy, or a closed form.
"""

import pickle
import re
import warnings
from pathlib import Path

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import elementwise_grad, grad
from autograd.scipy import stats as ad
from harness import part
from numpy.testing import assert_allclose
from scipy import stats

import cvlib as cv
from cvlib.fitting import front

RNG = np.random.default_rng(0)
X = RNG.standard_normal((12, 3))
Y = X @ [1.0, -0.5, 0.3] + 0.4 * RNG.standard_normal(12)
normal = lambda x, mean, sd: -0.5 * ((x - mean) / sd) ** 2 - anp.log(sd) - 0.5 * np.log(2 * np.pi)


def log_lik(p, batch):
    x, y = batch
    return normal(y, anp.sum(x * p.beta, -1), p.sigma)


def log_prior(p):
    return anp.sum(normal(p["beta"], 0, 2.0), -1) - p["sigma"]


def line(cv, **changes):
    """y ~ N(x.beta, sigma)."""
    about = {"parameters": {"beta": 3, "sigma": cv.positive}, "name": "line"}
    about |= {"log_prior": log_prior} | changes
    return cv.models.Model(log_lik, data=(X, Y), **about)


def by_hand(z):
    """log p(x, z) of the line, z (..., 4), with the log-Jacobian of sigma = exp z_3."""
    sigma = np.exp(z[..., 3])
    each = stats.norm.logpdf(Y, z[..., :3] @ X.T, sigma[..., None])
    prior = stats.norm.logpdf(z[..., :3], 0, 2).sum(-1) + stats.expon.logpdf(sigma)
    return each.sum(-1) + prior + z[..., 3]


def fitted(cv, model=None):
    with warnings.catch_warnings(action="ignore"):  # it has not settled
        return cv.fit(line(cv) if model is None else model, steps=20, progress=False)


def test_a_named_model_is_the_one_by_hand(cv):
    """Value with its log-Jacobian, with leading axes; slope by differences of the formula."""
    model, z = line(cv), np.random.default_rng(1).standard_normal((2, 3, 4))
    assert_allclose(model.log_joint(z), by_hand(z), rtol=1e-12)
    right = [(by_hand(z + e) - by_hand(z - e)) / 2e-5 for e in 1e-5 * np.eye(4)]
    got = grad(lambda z: anp.sum(model.log_joint(z)))(z)
    assert_allclose(np.moveaxis(got, -1, 0), right, rtol=1e-6, atol=1e-6)
    assert model.dim == 4 and model.names == ["beta[0]", "beta[1]", "beta[2]", "sigma"]
    inside = cv.models.Model(model.log_lik, model.log_prior, model.data, 4)  # of z, as any other
    assert_allclose(inside.log_joint(z), by_hand(z), rtol=1e-12)
    assert_allclose(pickle.loads(pickle.dumps(model)).log_joint(z), by_hand(z), rtol=1e-12)


def test_every_shape_lies_in_its_place(cv):
    """z is cut in the order of the declaration; arrays fill row by row; leading axes stay."""
    declared = {"a": (2, 2), "s": cv.positive, "t": cv.simplex((2, 3)), "o": cv.ordered((2, 2)),
                "i": cv.interval(-1, 3)((2, 1)), "b": cv.real}  # fmt: skip
    Parameters = part(cv, "parameters").Parameters
    space = Parameters(declared)
    z = np.random.default_rng(2).standard_normal((5, 1, space.dim))
    p, stretch = space.mapped(z)
    assert space.dim == 4 + 1 + 4 + 4 + 2 + 1 and stretch.shape == (5, 1)
    shapes = {"a": (2, 2), "s": (), "t": (2, 3), "o": (2, 2), "i": (2, 1), "b": ()}
    assert {name: x.shape[2:] for name, x in p.items()} == shapes
    assert_allclose(p.a[..., 1, 0], z[..., 2])
    assert_allclose(p.s, np.exp(z[..., 4]))
    assert_allclose(p.o[..., 1, :], np.stack([z[..., 11], z[..., 11] + np.exp(z[..., 12])], -1))
    assert_allclose(p.t.sum(-1), 1)
    share = 1 / (1 + np.exp(-z[..., 13:15]))
    assert_allclose(p.i[..., 0], -1 + 4 * share)
    assert_allclose(p.b, z[..., 15])
    alone = space.mapped(z[3, 0])[1]  # the parts of the log-Jacobian add up, at one point too
    cuts = {"s": slice(4, 5), "t": slice(5, 9), "o": slice(9, 13), "i": slice(13, 15)}
    each = lambda name, cut: Parameters({name: declared[name]}).mapped(z[3, 0][cut])[1]
    assert_allclose(stretch[3, 0], alone)
    assert_allclose(alone, sum(each(*pair) for pair in cuts.items()))
    assert_allclose(each("i", cuts["i"]), np.log(4 * share * (1 - share))[3, 0].sum())
    right = ["a[0,0]", "a[0,1]", "a[1,0]", "a[1,1]", "s", "t[0,0]", "t[0,1]", "t[1,0]"]
    assert space.names[:8] == right and space.names[-1] == "b"


def test_declarations_that_are_wrong(cv):
    """Each is refused in a sentence that says what would be right. Limits are in test_shell.py."""
    pos, about = cv.positive, lambda **parameters: lambda: line(cv, parameters=parameters)
    normal = cv.models.GaussianPrior()
    for words, wrong in {
        "neither a shape .*cv.pos": about(beta=3, sigma="positive"),
        "cv.simplex needs its length": about(beta=3, sigma=cv.simplex),
        r"\(cv.positive, 2\) is neither a shape": about(sigma=(pos, 2)),
        "beta=True is neither": about(beta=True, sigma=pos),
        "give a dict of names": about(),
        "nor log_prior takes p.tau": about(beta=3, sigma=pos, tau=pos),
        "no parameter 'sigma': the model declares beta|KeyError": about(beta=3),
        r"log_lik fails.*beta real\[2\]": about(beta=2, sigma=pos),
        "or declare cv.positive": about(beta=3, sigma=cv.real),
        "at least": lambda: cv.simplex(1),
        "must lie below": lambda: cv.interval(0, np.inf),
        "give its length": lambda: cv.ordered(()),
        "one of them": lambda: line(cv, dim=4),
        "sigma is constrained: write the prior": lambda: line(cv, log_prior=normal),
    }.items():
        with pytest.raises(ValueError, match=words):
            wrong()


def test_names_are_taken_in_any_way(cv):
    """By attribute, by key, as keywords or one by one: none of them counts as left out."""
    flat = lambda p: 0.0
    for f in (
        lambda p, b: (lambda beta, sigma: log_lik(p, b) * 1)(**p),
        lambda p, b: sum(anp.sum(x, -1) if name == "beta" else x for name, x in p.items()) * b[1],
        lambda p, b: sum(anp.sum(x, -1) if k == 0 else x for k, x in enumerate(p.values())) * b[1],
        lambda p, b: anp.sum(p["beta"], -1) * p["sigma"] * b[1],
    ):
        cv.models.Model(f, flat, (X, Y), parameters={"beta": 3, "sigma": cv.positive})
    real = {"beta": 2, "t": 1}
    prior = cv.models.GaussianPrior([1.0, 2.0, 3.0])
    model = cv.models.Model(lambda p, b: b[1] * p.t[..., 0], prior, (X, Y), parameters=real)
    assert model.log_prior is prior, "the closed form of a Gaussian prior is lost"


# Models that bring their own value and slope ------------------------------------------------------


def value_and_slope(z):
    """Of the line, by hand."""
    sigma = np.exp(z[:, 3:])
    away = Y - z[:, :3] @ X.T
    in_beta = away @ X / sigma**2 - z[:, :3] / 4
    in_log = ((away / sigma) ** 2).sum(-1, keepdims=True) - len(Y) - sigma + 1
    return by_hand(z), np.concatenate([in_beta, in_log], -1)


def hessian(z):
    slope = lambda z: value_and_slope(z)[1]
    return np.stack([(slope(z + e) - slope(z - e)) / 2e-4 for e in 1e-4 * np.eye(4)], 1)


compiled = lambda cv, f=value_and_slope, **about: cv.models.Compiled(f, 4, **about)


def test_a_compiled_model_has_names(cv):
    """By a declaration, or by a function of points and a list of names."""
    z = np.random.default_rng(0).standard_normal((2, 3, 4))
    declared = cv.models.Compiled(value_and_slope, parameters={"beta": 3, "sigma": cv.positive})
    square = lambda z: z.reshape(-1, 2, 2)
    named = lambda z: {"sigma": np.exp(z[:, 3]), "both": z[:, :2, None], "all": square(z)}
    other = compiled(cv, named=named, names=list("abcd"))
    assert_allclose(declared.named(z).sigma, np.exp(z[..., 3]))
    assert_allclose(other.named(z).sigma, np.exp(z[..., 3]))
    assert other.named(z).both.shape == (2, 3, 2, 1) and other.names == list("abcd")
    fit = fitted(cv, other)
    table = fit.summary()
    names, mean, sd = tuple(table.rows), table.columns["mean"], table.columns["sd"]
    entries = "both[0,0]", "both[1,0]", "all[0,0]", "all[0,1]", "all[1,0]", "all[1,1]"
    assert names == ("sigma", *entries)
    order = [0, 1, 0, 1, 2, 3]  # every entry has its own mean and sd
    w, z = fit.lot.w / fit.lot.w.sum(), fit.lot.z
    about = w @ z
    assert_allclose(mean[1:], about[order], atol=0.1 * fit.sd.min())
    assert_allclose(sd[1:], np.sqrt(w @ (z - about) ** 2)[order], rtol=0.05)
    drawn = fit.draws(5, 1, corrected=False)["sigma"]
    assert_allclose(drawn, np.exp(fit.sample(5, 1)[:, 3]))


def test_compiled_functions_that_are_wrong(cv):
    """Shapes, points that mix, a slope of something else: refused when the model is made."""
    f = value_and_slope
    for wrong, words in (
        (lambda z: (f(z)[0].sum(), f(z)[1]), "must give one number per row"),
        (lambda z: (f(z)[0], f(z)[1].sum(0)), r"slope of shape \(4,\)"),
        (lambda z: (f(z)[0] + z[0, 0], f(z)[1]), "mixes its points"),
        (lambda z: (f(z)[0], 1.2 * f(z)[1]), "value_and_slope gives a slope of"),
        (lambda z: (np.log(z[:, 0]), f(z)[1]), "is .nan"),
    ):
        with pytest.raises(ValueError, match=words):
            compiled(cv, wrong)
    with pytest.raises(ValueError, match="value and value_and_slope differ"):
        compiled(cv, value=lambda z: by_hand(z) + 1)


def test_slopes_and_hessians_reach_autograd(cv):
    """The slope of sum_k c_k log p(z_k); H v by differences of slopes, at any length of v."""
    model, c = compiled(cv), np.array([0.5, -2.0, 3.0])
    z = np.random.default_rng(0).standard_normal((3, 4))
    got = grad(lambda z: anp.sum(c * model.log_joint(z)))(z)
    assert_allclose(got, c[:, None] * value_and_slope(z)[1], rtol=1e-9)
    one = part(cv, "adapters.jax")
    z = np.random.default_rng(0).standard_normal((2, 3, 4)) / 2
    right = hessian(z.reshape(-1, 4)).reshape(2, 3, 4, 4)
    for size in (1e-3, 1.0, 1e3):
        v = size * np.random.default_rng(1).standard_normal((2, 3, 4))
        slope = lambda z: one._slope(z, model)
        assert_allclose(elementwise_grad(lambda z: slope(z) * v)(z), np.matvec(right, v),
                        rtol=1e-4, atol=1e-4 * size)  # fmt: skip


def test_data_are_the_model_s_own(cv):
    """Whole numbers do not wrap; log_lik may not change them. Later changes: test_shell.py."""
    given = np.array([250, 10, 3], np.uint8)
    f = lambda z, b: -((b[0] + np.uint8(10) - z[..., 0]) ** 2) / 1e4
    model = cv.models.Model(f, cv.models.GaussianPrior(), (given,), 1)
    right = -((given.astype(float) + 10) ** 2).sum() / 1e4
    assert_allclose(model.log_joint(np.zeros(1)) - model.log_prior(np.zeros(1)), right)

    def in_place(z, b):
        x = b[0]
        x -= 0.5
        return -((x - z[..., 0]) ** 2)

    data = np.ones(5)
    with pytest.raises(ValueError, match="read-only.*change no array"):
        cv.models.Model(in_place, cv.models.GaussianPrior(), (data,), 1)
    assert (data == 1).all()


def test_the_example_of_the_readme_prints_what_stands_below_it(capsys):
    readme = Path(__file__).resolve().parents[1] / "README.md"
    pair = r"```python\n(import autograd.*?)```\s*```\n(.*?)```"
    ((code, shown),) = re.findall(pair, readme.read_text("utf-8"), re.S)
    exec(code.replace("cv.fit(model)", "cv.fit(model, progress=False)"), space := {})
    rows = lambda text: [line.split() for line in text.strip().splitlines()]
    head, *lines = rows(shown)
    assert rows(capsys.readouterr().out)[0] == head and len(lines) == 3
    told = space["fit"].summary()
    for name, *numbers in lines:
        found = [told[column][name] for column in told.columns if column not in told.hidden]
        assert_allclose(found, [float(x) for x in numbers], atol=2e-4)
    X = np.stack([np.ones(200), space["x"]], 1)
    slopes = np.linalg.lstsq(X, space["y"], rcond=None)[0]
    assert_allclose([told["mean"]["a"], told["mean"]["b"]], slopes, atol=0.01)


@pytest.mark.parametrize("low, high", [(2.0, None), (None, 5), (-1, 3)])
def test_intervals_that_are_open_on_one_side(low, high):
    """The log-Jacobian by autograd, and mass by quadrature: densities of x hold in z as well."""
    space = cv.models.parameters.Parameters({"x": cv.interval(low, high)(2)})
    z = np.linspace(-30, 30, 20_001)
    p, stretch = space.mapped(np.repeat(z[:, None], 2, 1))
    x = p.x[:, 0]
    some = slice(8000, 12_000, 500)
    slope = elementwise_grad(lambda u: space.named(u).x)(np.repeat(z[some, None], 2, 1))
    assert (slope > 0).all()  # x grows with z
    assert_allclose(stretch[some], np.log(slope).sum(-1), rtol=1e-9, atol=1e-9)
    law = stats.gamma(2.0, scale=0.5)
    density = law.pdf(5 - x) if low is None else law.pdf(x - low)
    total = law.cdf(4.0) if low == -1 else 1.0
    assert_allclose((density * np.exp(stretch / 2)).sum() * (z[1] - z[0]), total, rtol=1e-6)
    inside = np.array([[2.5, 2.9]])
    assert_allclose(space.named(space.back({"x": inside})).x, inside)
    assert repr(cv.interval(low, high)) == f"cv.interval({low}, {high})"


def test_a_truncated_law_is_fitted():
    """A normal mean that lies above 2, against SciPy's truncated normal law."""
    y = np.random.default_rng(0).normal(2.2, 1.0, 20)
    log_lik = lambda p, b: normal(b[0], p.m, 1.0)
    model = cv.models.Model(log_lik, lambda p: 0 * p.m, y, parameters={"m": cv.interval(2, None)})
    with warnings.catch_warnings(action="ignore"):
        found = cv.fit(model, progress=False).expect(lambda p: p.m, 4000)
    law = stats.truncnorm((2 - y.mean()) * 20**0.5, np.inf, y.mean(), 20**-0.5)
    assert_allclose(found.estimate, law.mean(), atol=5 * found.se + 1e-4)


@pytest.mark.parametrize("limits", [(None, None), (None, np.inf), (np.nan, None), ("2", None)])
def test_an_interval_needs_a_limit(limits):
    with pytest.raises(ValueError, match=r"one of them None: cv.interval\(2, None\)"):
        cv.interval(*limits)


def started(given, model=None):
    """z where a fit begins from what is given by name."""
    model = model or line(cv)
    return front._given(given, model, cv.families.Gaussian(model.dim), 0)


def test_a_start_by_name():
    """Parameters in their constraints; those that are left out are at z = 0."""
    declared = {"a": (2, 2), "s": cv.positive, "t": cv.simplex(3), "o": cv.ordered(2),
                "i": cv.interval(None, 4)}  # fmt: skip
    space, point = cv.models.parameters.Parameters(declared), cv.models.parameters.point
    given = {"a": [[1, 2], [3, 4]], "s": 0.3, "t": [0.2, 0.5, 0.3], "o": [-1, 5], "i": -2.0}
    found = space.named(point(space, given, space.dim))
    for name, x in given.items():
        assert_allclose(found[name], x, err_msg=name)
    assert_allclose(point(space, {"s": 2.0}, space.dim), np.log(2.0) * (np.arange(10) == 4))
    begun = started({"beta": [1.0, -0.5, 0.3], "sigma": 0.4})
    assert begun.says == "the point that was given" and begun.S is None
    assert_allclose(begun.mu, [1.0, -0.5, 0.3, np.log(0.4)])
    dim = cv.models.Model(lambda z, b: b[0] * z[..., 0], cv.models.GaussianPrior(), np.ones(2), 2)
    assert_allclose(started({"z": [0.3, -0.2]}, dim).mu, [0.3, -0.2])


@pytest.mark.parametrize(
    "given, words",
    [
        ({"gamma": 1.0}, "no parameter 'gamma': the model declares beta, sigma"),
        ({"beta": [1.0, 2.0]}, r"beta has the shape \(2,\): it must be \(3,\)"),
        ({"sigma": [1.0]}, r"sigma has the shape \(1,\): it must be one number"),
        ({"sigma": -1.0}, "sigma=-1.0 does not lie in its constraint, cv.positive"),
        ({"sigma": np.nan}, "sigma=nan does not lie in its constraint"),
        ({"sigma": "one"}, "could not convert string"),
    ],
)
def test_a_start_by_name_that_is_wrong(given, words):
    with pytest.raises(ValueError, match=f"(?s)start=.*{words}"):
        started(given)


def test_a_start_by_name_needs_a_way_back():
    bowl = cv.models.Compiled(
        lambda z: (-(z**2).sum(-1) / 2, -z), 2, named=lambda z: {"x": z}, names=["x[0]", "x[1]"]
    )
    with pytest.raises(ValueError, match="does not say how to take parameters back to z: give z"):
        started({"x": [1.0, 2.0]}, bowl)


# Densities of autograd.scipy.stats: (log density of data, the same by SciPy, parameter). Each is in
# a model with the prior Gamma(2, 1), which is written with them as well
DENSITIES = {
    "norm": (lambda y, a: ad.norm.logpdf(y, 0.0, a), lambda a: stats.norm(0, a), 1.5),
    "gamma": (lambda y, a: ad.gamma.logpdf(y, a), lambda a: stats.gamma(a), 1.5),
    "beta": (lambda y, a: ad.beta.logpdf(y, a, 2.0), lambda a: stats.beta(a, 2), 1.5),
    "poisson": (lambda y, a: ad.poisson.logpmf(y, a), lambda a: stats.poisson(a), 3.0),
    "t": (lambda y, a: ad.t.logpdf(y, 4.0, 0.0, a), lambda a: stats.t(4, 0, a), 1.5),
    "expon": (
        lambda y, a: ad.gamma.logpdf(y * a, 1.0) + anp.log(a),
        lambda a: stats.expon(scale=1 / a), 1.5,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DENSITIES)
def test_densities_of_autograd_scipy_in_a_model(name):
    """log p by SciPy."""
    log, law, true = DENSITIES[name]
    y = law(true).rvs(15, random_state=np.random.default_rng(1))
    model = cv.models.Model(
        lambda p, b: log(b[0], p.a), lambda p: ad.gamma.logpdf(p.a, 2.0), y,
        parameters={"a": cv.positive},
    )  # fmt: skip
    z = np.linspace(-4, 4, 41)
    which = "logpmf" if name == "poisson" else "logpdf"
    right = np.array([getattr(law(a), which)(y).sum() for a in np.exp(z)])
    right += stats.gamma(2).logpdf(np.exp(z)) + z
    assert_allclose(model.log_joint(z[:, None]), right, rtol=1e-8, atol=1e-8)


def test_an_answer_has_the_names_of_its_parameter():
    """Where f gives a parameter as it is; else its entries have numbers alone."""
    fit = fitted(cv)
    shown = lambda f: [row.split()[0] for row in repr(fit.expect(f)).split("\n")[1:4]]
    assert shown(lambda p: p.beta) == ["beta[0]", "beta[1]", "beta[2]"]
    assert shown(lambda p: 2 * p.beta) == ["[0]", "[1]", "[2]"]
