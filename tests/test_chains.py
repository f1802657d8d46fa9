"""Draws of chains, asked about their model: against closed forms, SciPy and ArviZ."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import autograd.numpy as anp
import numpy as np
import pytest
from harness import part
from numpy.testing import assert_allclose
from scipy import stats
from scipy.signal import lfilter

from cvlib.fitting.table import Table

# Tables ------------------------------------------------------------------------------------------

COLUMNS = {"mean": np.array([1234.56789, 0.001234]), "mcse": np.array([0.00123, 0.0])}


def test_a_table_shows_what_its_errors_leave():
    table = Table(["mu", "tau[0]"], COLUMNS, {"mean": "mcse"}, "of q", ("so so <",))
    lines = ["of q", "             mean     mcse", "mu      1234.5679  0.00123",
             "tau[0]    0.00123        0", "! so so <"]  # fmt: skip
    assert repr(table).splitlines() == lines
    assert table["mean"] == {"mu": 1234.56789, "tau[0]": 0.001234}
    with pytest.raises(KeyError, match="no column 'sd': there are mean, mcse\"$"):
        table["sd"]
    with pytest.raises(
        KeyError, match=r"no column 'mu': .*; for the row write .*\['mean'\]\['mu'\]"
    ):
        table["mu"]
    with pytest.raises(KeyError, match=r"no column \['mean'\]: there are mean"):
        table[["mean"]]
    with pytest.raises(KeyError, match=r"no row 'tau': there are mu, tau\[0\]\"$"):
        table["mean"]["tau"]
    assert [*table] == ["mean", "mcse"] and "mcse" in table and "mu" not in table
    page = table._repr_html_()
    assert page.count("<tr>") == 3 and ">1234.5679<" in page and "so so &lt;" in page
    assert repr(Table(["n"], {"ess": np.array([12345.6])})).split()[-1] == "12346"
    wide = Table(["beta[0]"], {f"x {k}": np.array([k / 1e6]) for k in range(111, 120)})
    assert "beta[0] 0.00011 0.00011" in repr(wide)  # more than 80 with two blanks
    many = Table([f"z[{k}]" for k in range(61)], {"mean": np.zeros(61)})
    with pytest.raises(KeyError, match=r"no row 'z': there are z\[0\], .*, z\[59\], ...\"$"):
        many["mean"]["z"]
    own = Table(["mean"], {"mean": np.array([2.0])})  # a parameter may have a column's name
    assert own["mean"]["mean"] == 2
    assert "z[59]" in repr(many) and repr(many).splitlines()[-1].split() == ["..."] * 2


def test_a_table_as_a_frame(monkeypatch):
    table = Table(["mu", "tau"], COLUMNS)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ValueError, match=r"needs pandas: pip install '\.\[arviz\]'"):
        table.frame()
    monkeypatch.undo()
    frame = pytest.importorskip("pandas") and table.frame()
    assert frame["mcse"]["mu"] == 0.00123 and list(frame.columns) == ["mean", "mcse"]


# Draws and the model they belong to ---------------------------------------------------------------

RNG = np.random.default_rng


def told(ask):
    """The warnings of an answer, or the sentence with which it is refused."""
    try:
        found = ask()
    except ValueError as error:
        return str(error)
    return getattr(found, "warnings", found)


def conjugate(cv, prior_sd=1.0, change=lambda y: y):
    """A regression with noise 0.5, and draws of its posterior, a normal of closed form."""
    rng = RNG(0)
    X = rng.standard_normal((60, 3))
    y = X @ [1.0, 2, -1] + 0.5 * rng.standard_normal(60)
    cov = np.linalg.inv(X.T @ X / 0.25 + np.eye(3))
    draws = rng.multivariate_normal(cov @ X.T @ y / 0.25, cov, 500)
    lik = lambda p, b: -0.5 * ((b[1] - np.sum(b[0] * p.beta, -1)) / 0.5) ** 2
    prior = lambda p: -0.5 * np.sum((p.beta / prior_sd) ** 2, -1)
    return cv.models.Model(lik, prior, (X, change(y)), parameters={"beta": 3}), {"beta": draws}


OTHERS = {
    "y in other units": {"change": lambda y: 2 * y},
    "y not centred": {"change": lambda y: y + 1},
    "another prior": {"prior_sd": 0.2},
    "rows shuffled": {"change": RNG(1).permutation},
}


@pytest.mark.parametrize("wrong", (None, *OTHERS))
def test_draws_of_another_model_are_refused(cv, wrong):
    model, draws = conjugate(cv, **OTHERS.get(wrong, {}))
    f = lambda p: p.beta[:, 1]
    for ask in cv.expect, cv.quantile, lambda f, draws, model: cv.summary(draws, model):
        if wrong is None:
            assert told(lambda ask=ask: ask(f, draws, model)) == ()
        else:
            with pytest.raises(ValueError, match=r"do not belong to this model: .*beta\[\d\]"):
                ask(f, draws, model)
    plain = cv.expect(f, draws, model, order=0)  # asks the draws alone
    assert_allclose(plain.estimate, draws["beta"][:, 1].mean())


WRONG = {
    "the wrong sign": lambda z: z, "half the score": lambda z: -z / 2, "none": lambda z: 0 * z,
    "shifted": lambda z: 0.5 - z, "scaled": lambda z: -z / np.array([1.0, 1.0, 1.5]),
}  # fmt: skip


@pytest.mark.parametrize("weighed", (False, True))
def test_a_wrong_score_is_refused(cv, weighed):
    """Of N(0, I), of which the draws are, or draws of N(0, 2 I) with their weights."""
    z = RNG(2).standard_normal((1000, 3)) * (2**0.5 if weighed else 1)
    weights = np.exp(-0.25 * (z**2).sum(1)) if weighed else None
    assert told(lambda: cv.expect(z, z, -z, weights)) == ()
    for score in WRONG.values():
        with pytest.raises(ValueError, match="sign and scale of the score"):
            cv.expect(z[:, 0] ** 2, z, score(z), weights)
    if weighed:  # weights are part of the law of the draws
        with pytest.raises(ValueError, match="do not belong"):
            cv.expect(z, z, -z, np.ones(1000))


def autoregressive(rng, chains, n, d, rho=0.9):
    """Stationary chains (chains, n, d) of N(0, I)."""
    e = rng.standard_normal((chains, n, d))
    e[:, 1:] *= np.sqrt(1 - rho**2)
    return lfilter([1], [1, -rho], e, axis=1)


def student(x):
    """The same chains of Student's t with five degrees of freedom, and its score."""
    z = stats.t.ppf(stats.norm.cdf(x), 5)
    return z, -6 * z / (5 + z**2)


@pytest.mark.parametrize("shape", ((1, 200), (4, 50), (4, 250), (50, 20)))
@pytest.mark.parametrize("d", (5, 50))
def test_slow_and_short_chains_of_the_model_are_not_refused(cv, shape, d):
    """Nothing is said of forty lots, however few of their draws are independent."""
    check = part(cv, "fitting.chains")._check_law
    for seed in range(20):
        x = autoregressive(RNG(seed), *shape, d)
        for z, score in ((x, -x), student(x)):
            flat = lambda x: x.reshape(-1, d)
            at = part(cv, "fitting.stein").drawn(np.zeros(x[..., 0].size), flat(z), flat(score))
            at = replace(at, chains=shape[0])
            assert told(lambda at=at: check(at, None)) == ()


def test_chains_that_have_not_converged_are_refused(cv):
    """Chains that see a part of N(0, I); those that all see others know that they know little."""
    x = autoregressive(RNG(3), 4, 300, 2, 0.5)
    assert cv.expect(x[..., 0], x, -x).warnings == ()
    part_of_it = 1.5 + 0.3 * x
    with pytest.raises(ValueError, match="all chains have converged"):
        cv.expect(part_of_it[..., 0], part_of_it, -part_of_it)
    apart = 0.3 * x + np.array([-2.0, -1, 1, 2])[:, None, None]
    assert "1200 draws are worth" in cv.expect(apart[..., 0], apart, -apart).warnings[0]


def test_a_slight_bias_of_very_many_draws_is_told_and_not_refused(cv):
    z = RNG(4).standard_normal((200_000, 1)) + 0.02
    says = told(lambda: cv.expect(z[:, 0], z, -z))
    assert len(says) == 1 and "quite belong to this model: the mean of d log p / d z[0]" in says[0]
    assert_allclose(cv.expect(z[:, 0], z, -z).estimate, 0, atol=1e-12)  # what is linear is right
    with pytest.raises(ValueError, match="do not belong"):
        cv.expect(z[:, 0], z + 0.1, -z - 0.1)


def test_no_mean_lies_outside_the_range_of_f(cv):
    """Draws of one half of N(0, 1), too few for their variates to be tested."""
    z = np.abs(autoregressive(RNG(5), 1, 30, 1, 0.99))[0] + 1
    with pytest.raises(ValueError, match="the mean of f would be .*, and the draws lie from 1"):
        cv.expect(z[:, 0], z, -z)


# A whole chain ------------------------------------------------------------------------------------


def gamma(cv):
    """sigma ~ Gamma(4), two numbers of N(1, 4), and draws of them: (4, 250) of each."""
    prior = lambda p: 3 * anp.log(p.sigma) - p.sigma - anp.sum((p.mu - 1) ** 2, -1) / 8
    named = {"sigma": cv.positive, "mu": 2}
    model = cv.models.Model(lambda p, b: 0 * p.sigma * b[0], prior, np.zeros(1), parameters=named)
    rng = RNG(6)
    return model, {"sigma": rng.gamma(4, size=(4, 250)), "mu": rng.normal(1, 2, (4, 250, 2))}


def test_a_summary_of_a_chain(cv):
    """Against the laws themselves, in any form of the draws; errors of order 0 by the formula."""
    model, draws = gamma(cv)
    table = cv.summary(draws, model)
    laws = {"sigma": stats.gamma(4), "mu[0]": stats.norm(1, 2), "mu[1]": stats.norm(1, 2)}
    assert table.rows == [*laws] and table.warnings == ()
    for name, law in laws.items():
        assert abs(table["mean"][name] - law.mean()) < 4 * table["mcse"][name] + 1e-9
        assert abs(table["sd"][name] / law.std() - 1) < 0.02
        for column, u in ("5 %", 0.05), ("50 %", 0.5), ("95 %", 0.95):
            assert abs(table[column][name] - law.ppf(u)) < 0.2 * law.std()
        raw, x = table["raw mcse"][name], draws[name[:2]] if name[0] == "m" else draws["sigma"]
        x = x if x.ndim == 2 else x[..., int(name[3])]
        assert_allclose(raw, x.std() / 1000**0.5, rtol=0.3)
        assert_allclose(table["raw ess"][name], (x.std() / raw) ** 2, rtol=0.02)
        assert table["ess"][name] > 20 * table["raw ess"][name]
    assert table["ess"]["mu[0]"] == np.inf  # its score is linear: exact, and the sd nearly
    assert_allclose([*table["mean"].values()], [4, 1, 1], atol=1e-9)
    assert_allclose([*table["sd"].values()][1:], 2, atol=5e-4)
    each = lambda p: np.column_stack([p.sigma, p.mu])
    tails = cv.quantile(each, draws, model, order=2).estimate
    assert_allclose([table.columns[k] for k in ("5 %", "50 %", "95 %")], tails, rtol=1e-9)
    assert max(map(len, repr(table).splitlines())) <= 80
    regression, its = conjugate(cv)
    assert max(map(len, repr(cv.summary(its, regression)).splitlines())) <= 80
    by_z = np.concatenate([np.log(draws["sigma"])[..., None], draws["mu"]], -1)
    flat = {name: x.reshape(-1, *x.shape[2:]) for name, x in draws.items()}
    posterior = SimpleNamespace(posterior=draws)
    for same in by_z, posterior, flat:
        other = cv.summary(same, model)
        for column in table.columns:
            rtol = 0.2 if same is flat else 1e-9  # one long chain: other blocks
            assert_allclose(
                other.columns[column][:1], table.columns[column][:1], rtol=rtol, atol=1e-12
            )


def test_the_shares_of_a_summary_are_those_of_one_regression(cv, monkeypatch):
    """50 unknowns: each order is fitted once for all of them, and none of 1,325 variates."""
    own, sizes = part(cv, "fitting.stein"), []
    inner = own.intercept
    monkeypatch.setattr(own, "intercept", lambda Y, C, *a: sizes.append(C.shape) or inner(Y, C, *a))
    z = RNG(7).standard_normal((2, 1000, 50))
    none = lambda z, b: 0 * z[..., 0] * b[0]
    model = cv.models.Model(none, cv.models.GaussianPrior(), np.zeros(1), 50)
    table = cv.summary(z, model)
    assert [k for _, k in sizes] == [50, 0]
    assert table.rows[49] == "z[49]" and np.abs(table.columns["mean"]).max() < 1e-9


def test_a_summary_keeps_what_does_not_move(cv):
    """A constant among the arrays of a model, such as the corner of a matrix."""
    model, draws = gamma(cv)
    named = model.named
    model.given = lambda z: named(z) | {"one": np.ones(z.shape[:-1])}
    table = cv.summary(draws, model)
    assert [table[k]["one"] for k in ("mean", "sd", "mcse", "50 %")] == [1, 0, 0, 1]
    assert np.isnan(table["ess"]["one"]) and table["ess"]["sigma"] > 1000


def test_what_is_no_chain_is_told(cv):
    model, draws = gamma(cv)
    for wrong in (lambda: 3), ["a"], "chain.nc":
        with pytest.raises(TypeError, match=r"stan_variables\(\) of CmdStanPy, an InferenceData"):
            cv.summary(wrong, model)
    with pytest.raises(TypeError, match=r"summary\(chain, model\)"):
        cv.summary(model, draws)
    with pytest.raises(ValueError, match="the draws have no 'mu'"):
        cv.summary({"sigma": draws["sigma"]}, model)
    with pytest.raises(ValueError, match=r"one n from 1 on; got \(0,\)"):
        cv.summary({name: x.ravel()[:0] for name, x in draws.items()}, model)


def test_doubts_of_a_summary_have_names(cv):
    rng = RNG(8)
    log = lambda z: -2 * anp.log1p(anp.sum(z.a**2, -1) / 2.5) - anp.sum(z.b**2, -1) / 2
    none = lambda p, b: 0 * p.b[..., 0] * b[0]
    model = cv.models.Model(none, log, np.zeros(1), parameters={"a": 1, "b": 1})
    draws = {"a": rng.standard_t(2.5, (2000, 1)), "b": rng.standard_normal((2000, 1))}
    table = cv.summary(draws, model, order=0)
    assert any("(the sd of a[0])" in w for w in table.warnings)
    assert table["k_f"]["b[0]"] < 0.5


# Answers whose logarithm is a line in z ----------------------------------------------------------


def test_tilted_variates_have_mean_zero(cv):
    """On a grid: z_1 is the logarithm of a Gamma(2), z_2 normal about 0.3 z_1^2."""
    z = np.stack(np.meshgrid(np.linspace(-16, 4, 801), np.linspace(-12, 90, 4001)), -1)
    a, b = z = z.reshape(-1, 2).T
    p = np.exp(2 * a - np.exp(a) - 0.5 * (b - 0.3 * a**2) ** 2)
    score = np.stack([2 - np.exp(a) + 0.6 * a * (b - 0.3 * a**2), 0.3 * a**2 - b], 1)
    seen = p > 1e-18
    z, score, p = z.T[seen], score[seen], p[seen] / p.sum()
    values = {"exp": np.exp(1 + 0.5 * z[:, 0] - 0.1 * z[:, 1]), "other": 1 + np.exp(z[:, 0])}
    drawn = part(cv, "fitting.stein").drawn
    of = lambda f: part(cv, "fitting.stein").tilted(drawn(f, z, score))
    C = of(values["exp"])
    assert C.shape == (len(z), 4)
    assert_allclose(p @ C / np.sqrt(p @ C**2), 0, atol=1e-6)
    many = values["exp"][:, None] ** np.linspace(0.1, 1, 50)
    assert of(values["other"]).size == of(many).size == 0  # no exponential; too many


def test_the_mean_of_a_scale_is_exact_where_its_tilted_variates_reach(cv):
    """v is inverse gamma(6, 2), mean 2 / 5: v (s + 1) is linear in v, though no polynomial is."""
    log_lik = lambda p, b: -7 * anp.log(p.v) - 2 / p.v + 0 * b[0]
    model = cv.models.Model(log_lik, lambda p: 0 * p.v, np.zeros(1), parameters={"v": cv.positive})
    v = stats.invgamma(6, scale=2).rvs((4, 250), random_state=RNG(9))
    table = cv.summary({"v": v}, model)
    assert_allclose(table["mean"]["v"], 0.4, rtol=1e-9)
    assert_allclose(cv.expect(lambda p: p.v, {"v": v}, model).estimate, 0.4, rtol=1e-9)
    assert abs(v.mean() - 0.4) > 0.001
