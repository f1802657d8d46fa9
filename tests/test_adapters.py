"""Models of JAX, NumPyro and PyMC beside the same one for autograd, and ArviZ.

`make adapters` installs these packages and runs this file; a package that is not there is a test
that is skipped. The models are the code on the package's page, book/api.md.
"""

import re
import warnings
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad
from harness import Verdict, judge
from mutants import MUTANTS
from numpy.testing import assert_allclose
from scipy import stats

import cvlib
from cvlib.adapters import jax as inside
from cvlib.draws import Draw
from cvlib.fitting import run
from cvlib.fitting.strategies import chosen

PAGE = Path(__file__).resolve().parents[1] / "book" / "api.md"
NEEDS = {"in_jax": "jax", "in_numpyro": "numpyro", "in_pymc": "pymc"}
RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 3))
y = X @ [1.0, 2.0, -1.0] + 0.5 * RNG.standard_normal(40)
Z = RNG.standard_normal((129, 4))  # two blocks, and one point left


def need(package):
    """The package, or the test is skipped and says what would bring it."""
    with warnings.catch_warnings(action="ignore"):
        name = package.split(".")[0]
        return pytest.importorskip(package, reason=f"pip install '.[{name}]', then again")


def snippets():
    """{name of the model: code} of the page."""
    section = PAGE.read_text("utf-8").split("(api-elsewhere)=")[1].split("### `posteriors.load`")[0]
    code = re.findall(r"```python\n(.*?)```", section, re.S)
    return {name: text for name in NEEDS for text in code if f"\n{name} = " in text}


normal = lambda x, mean, sd: -0.5 * ((x - mean) / sd) ** 2 - anp.log(sd)
by_rows = lambda model: grad(lambda z: anp.sum(model.log_joint(z)))  # the slope, by autograd
elpd = lambda loo: loo.elpd_loo if hasattr(loo, "elpd_loo") else loo.elpd  # ArviZ before 1, from it


def by_autograd(cv):
    log_lik = lambda p, b: normal(b[1], anp.sum(b[0] * p.beta, -1), p.sigma)
    log_prior = lambda p: anp.sum(normal(p.beta, 0, 10.0), -1) - p.sigma
    parameters = {"beta": 3, "sigma": cv.positive}
    return cv.models.Model(log_lik, log_prior, (X, y), parameters=parameters)


def made(cv, name):
    need(NEEDS[name])
    space = {"cv": cv, "X": X, "y": y}
    with warnings.catch_warnings(action="ignore"):
        exec(snippets()[name], space)
    return space[name]


model = cache(lambda name: made(cvlib, name))


def agrees(cv, other):
    """log p up to a constant, its slope, names and parameters at random points."""
    own = by_autograd(cv)
    value, slope = other.totals(Z, 1)
    assert_allclose(slope, by_rows(own)(Z), rtol=1e-8, atol=1e-8)
    apart = value - own.log_joint(Z)
    assert np.ptp(apart) < 1e-8, np.ptp(apart)
    assert_allclose(other.totals(Z, 0)[0], value, rtol=1e-12)
    assert_allclose(other.value_and_slope(Z)[1], slope, rtol=1e-12)  # all blocks in one call
    assert other.names == own.names and other.dim == 4
    for name, x in own.named(Z[:, None]).items():
        assert_allclose(other.named(Z[:, None])[name], x, rtol=1e-12, err_msg=name)
    return apart[0]


@pytest.mark.parametrize("name", NEEDS)
def test_density_slope_names_and_fit_are_those_of_the_model_for_autograd(name):
    assert len(snippets()) == 3
    other, own = model(name), by_autograd(cvlib)
    constant = agrees(cvlib, other)
    fit, right = (cvlib.fit(m, progress=False) for m in (other, own))
    assert abs(fit.elbo - constant - right.elbo) < 4 * np.hypot(fit.error, right.error)
    assert_allclose(fit.mean, right.mean, atol=0.05 * right.sd.min())
    assert_allclose(fit.sd, right.sd, rtol=0.05)
    one, two = fit.summary(), right.summary()
    assert one.rows == two.rows
    for name, error in one.errors.items():
        either = np.hypot(one.columns[error], two.columns[error])
        assert (np.abs(one.columns[name] - two.columns[name]) < 5 * either + 1e-6).all()
    with pytest.raises(ValueError, match="labels are classes|generalised|GLM"):
        cvlib.taylor_x(cvlib.terms(other, fit.q)[0])


def test_eight_schools_in_numpyro_is_the_chapter_s_own_model():
    """The lines of the chapter on own models, beside the same model in plain NumPy."""
    need("numpyro")
    (page,) = PAGE.parent.glob("your-own-model.md")
    code = re.search(r"```python\n(import numpyro\n.*?)```", page.read_text("utf-8"), re.S)[1]
    y = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
    sigma = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
    few = lambda model: cvlib.fit(model, steps=5, progress=False)
    space = {"cv": type("cv", (), {"fit": few, "models": cvlib.models}), "y": y, "sigma": sigma}
    exec(code, space)
    other, z = space["fit"].model, RNG.standard_normal((20, 10))
    p = other.named(z)
    away = (y - p["mu"][:, None] - p["tau"][:, None] * p["t"]) / sigma
    right = -0.5 * ((away**2).sum(1) + (p["t"] ** 2).sum(1) + p["mu"] ** 2 / 25)
    right += -0.5 * (p["tau"] / 5) ** 2 + np.log(p["tau"])  # and the log-Jacobian
    assert np.ptp(other.totals(z, 0)[0] + other.log_prior(z) - right) < 1e-8


def test_hessians_of_jax():
    slope = by_rows(by_autograd(cvlib))
    right = np.stack([(slope(Z + e) - slope(Z - e)) / 2e-5 for e in 1e-5 * np.eye(4)], -2)
    assert_allclose(model("in_jax").totals(Z, 2)[2], right, rtol=1e-6, atol=1e-6)


def test_all_constraints_in_jax():
    """One declaration, both frameworks: the same density of z."""
    jnp = need("jax.numpy")
    declared = {"a": (2, 2), "s": cvlib.positive(2), "t": cvlib.simplex(3), "o": cvlib.ordered(3),
                "i": cvlib.interval(-1, 2)}  # fmt: skip

    def log_prior(p, xp):
        total = lambda x: xp.sum(x, -1)
        first = -total(p.s) + total(p.t**3) - total(p.o**2) - p.i**2
        return first - total(xp.reshape(p.a, (*p.a.shape[:-2], -1)) ** 2)

    nothing, prior = lambda p, b: 0 * p.i * b[0], lambda p: log_prior(p, anp)
    own = cvlib.models.Model(nothing, prior, np.zeros(1), parameters=declared)
    other = cvlib.models.from_jax(lambda p: log_prior(p, jnp), declared)
    z = np.random.default_rng(1).standard_normal((20, own.dim))
    assert_allclose(other.totals(z, 1)[0], own.log_joint(z), rtol=1e-12)
    assert_allclose(other.totals(z, 1)[1], by_rows(own)(z), rtol=1e-9, atol=1e-10)


class Logistic:
    """A logistic regression of six unknowns, for JAX with its rows as data, and for autograd."""

    def __init__(self, N=30):
        rng, d = np.random.default_rng(3), 6
        self.X = rng.standard_normal((N, d)) * np.geomspace(0.5, 3, d)
        self.y = np.where(rng.random(N) < 0.5, 1.0, -1.0)
        self.own = cvlib.models.logistic_regression(self.X, self.y)
        self.q = cvlib.families.Gaussian(d)
        self.jax = need("jax")
        self.compiled = cvlib.models.from_jax(self.log_joint, d, data=(self.X, self.y))

    def log_joint(self, z, data):
        X, y = data
        return self.jax.nn.log_sigmoid(y * (X @ z)).sum() - 0.5 * (z**2).sum()


logistic = cache(Logistic)


def test_data_are_arguments_of_what_is_compiled():
    """Those that are given, and those that a function holds: no constant that would be folded."""
    one = logistic()
    held = cvlib.models.from_jax(lambda z: one.log_joint(z, (one.X, one.y)), 6)
    z = np.random.default_rng(0).standard_normal((3, 6))
    right = one.own.log_joint(z) + 3 * np.log(2 * np.pi)
    for found in one.compiled, held:
        assert_allclose(found.totals(z, 0)[0], right, rtol=1e-12)
        shapes = [x.shape for x in found.traced.data]
        assert sorted(shapes)[-2:] == [(30,), (30, 6)], shapes
        with one.jax.enable_x64(True):
            inner = one.jax.make_jaxpr(found.traced.f)(z[0], found.traced.data)
        assert all(np.size(x) < 2 for x in inner.consts)
    indexed = cvlib.models.from_jax(lambda z, data: data[0][z.argmax()] - z @ z, 2, data=(y[:2],))
    assert_allclose(indexed.totals(np.eye(2), 0)[0], y[:2] - 1)


def test_data_are_copied():
    """Even those that lie as JAX would take them as they are, at a multiple of 64 bytes."""
    need("jax")
    room = np.ones(80)
    first = -room.ctypes.data % 64 // 8
    given = room[first : first + 16]
    found = cvlib.models.from_jax(lambda z, data: data @ data - z @ z, 1, data=given)
    given[:] = 7
    assert_allclose(found.totals(np.zeros((1, 1)), 0)[0], 16)


@pytest.mark.parametrize("gpu, most", [(True, 4), (False, 6)])
def test_a_cold_fit_compiles_few_programs(gpu, most, monkeypatch):
    """One for log p and its slope, three of a step; on a CPU for values and single points, too.

    Those save time there: 64 points with so many rows take longer than one.
    """
    jax, one, names, z = need("jax"), Logistic(1100), [], RNG.standard_normal((3, 6))
    monkeypatch.setattr(inside, "on_gpu", lambda: gpu)
    jax.clear_caches()
    jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: names.append(name))
    program = cvlib.models.from_jax(one.log_joint, 6, data=(one.X, one.y))
    fit = cvlib.fit(program, progress=False, settings=cvlib.Settings(fixed=5))
    _, labels = inside.flat({"a": np.zeros((1, 2)), "b": np.zeros(())})
    assert 0 < sum("backend_compile" in name for name in names) <= most
    assert fit.run.strategy.name == "compiled" and labels == ["a[0,0]", "a[0,1]", "b"]
    best = cvlib.exact.elbo(one.own, one.q, cvlib.exact.optimum(one.own, one.q))
    assert fit.settled and best - cvlib.exact.elbo(one.own, one.q, fit.w) < 0.05
    right = one.own.log_joint(z) + 3 * np.log(2 * np.pi)
    alone = np.concatenate([program.value(point[None]) for point in z])
    assert_allclose([program.value(z), alone], [right, right], rtol=1e-12)


def by_numpy(one, w, e, positive):
    """The natural step of the package on the same rotation, from w at rho = 1."""
    d, square = 6, (e[0] ** 2).sum()
    outer = (2 * d + 1) * d / (2 * d * square)
    weight = np.append(np.full(2 * d, outer), (2 * d + 1) * (1 - d / square))
    eps = np.concatenate([e, -e, 0 * e[:1]])
    draw = Draw(one.own, one.q, w, eps, None, group=2 * d + 1, weight=weight)
    data, prior, variational = cvlib.terms(one.own, one.q)
    line = cvlib.RPS(data) + cvlib.RPS(prior) - cvlib.RPS(variational)
    rule = cvlib.rules.natural(positive=positive)
    return rule.step(rule.start(one.q, w), w, line(draw).mean(-2), 1.0, one.q, 1)[0]


@pytest.mark.parametrize("width, positive, share", [(0.5, False, 2**21), (3.0, True, 2**24)])
def test_a_step_inside_jax_is_the_package_s_on_the_same_draws(width, positive, share, monkeypatch):
    """In blocks of four points, of which the last but one and the last fill up, and of one."""
    one, rng = logistic(), np.random.default_rng(5)
    w = one.q.pack(rng.standard_normal(6) / 3, width * np.eye(6) + 0.1 * np.tri(6, k=-1))
    if positive:  # where log p is not concave the curvature may be of either sign
        bent = lambda z, data: one.log_joint(z, data) + (z**2).sum()
        one = Logistic()
        rows = lambda z, b: -anp.logaddexp(0.0, -b[1] * anp.sum(b[0] * z, -1))
        prior = lambda z: 0.5 * anp.sum(z**2, -1)
        one.own = cvlib.models.Model(rows, prior, (one.X, one.y), 6)
        one.compiled = cvlib.models.from_jax(bent, 6, data=(one.X, one.y))
    plan = inside.InJax(one.compiled, one.q)
    key = int(np.random.default_rng(7).integers(2**63))
    with one.jax.enable_x64(True):
        turned, _ = inside._turned(key, 6, 5)
    e, left = np.split(np.concatenate(turned), [6])  # two blocks; zeros fill up
    assert left.shape == (4, 6) and not left.any()
    assert_allclose(e @ e.T, (e[0] ** 2).sum() * np.eye(6), atol=1e-12)
    monkeypatch.setattr(inside, "SHARE", share)
    found = plan.landed(plan.step(plan.first(np.random.default_rng(7), w=w)))
    assert_allclose(found.w, by_numpy(one, w, e, positive), rtol=1e-9, atol=1e-9)
    low = found._replace(memory=found.memory._replace(elbo=found.memory.elbo + 1e9))
    again = plan.landed(plan.step(low)).memory  # a fall of so many nats is not believed
    assert again.s == 2 and np.array_equal(again.mu, w[:6]), again.s


def test_a_fit_inside_jax_settles_is_kept_and_stops_from_the_keyboard(monkeypatch, tmp_path):
    options = {"compiler_options": {"xla_backend_optimization_level": 1}}  # as a GPU has some
    monkeypatch.setattr(inside, "_options", lambda: options)
    one, many = Logistic(), cvlib.Settings(fixed=5)  # six unknowns count as many
    fit = cvlib.fit(one.compiled, progress=False, settings=many)
    best = cvlib.exact.elbo(one.own, one.q, cvlib.exact.optimum(one.own, one.q))
    assert fit.run.strategy.name == "compiled" and fit.settled and "inside JAX" in fit.report
    assert chosen(one.compiled, one.q, 20, many).name == "rotated"  # the draws that were asked for
    assert inside.InJax(one.compiled, cvlib.families.Gaussian(7)).M == 15
    assert best - cvlib.exact.elbo(one.own, one.q, fit.w) < 0.05
    fit.save(tmp_path / "fit")
    on = [f.go_on(steps=11, progress=False) for f in (fit, fit.load(tmp_path / "fit", fit.model))]
    assert_allclose(on[0].w, on[1].w, rtol=1e-12)  # as if it had not stopped
    sums, calls = inside.InJax.sums, []

    def pressed(*args):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return sums(*args)

    monkeypatch.setattr(inside.InJax, "sums", pressed)
    short = cvlib.fit(one.compiled, progress=False, restarts=0, settings=many)
    assert short.steps == 2 and "stopped from the keyboard after step 2" in short.report
    assert not np.array_equal(short.run.state.w, short.w)  # steps that no look has judged


@pytest.mark.parametrize("seconds, sizes", [(3.0, {64}), (9.0, {64}), (18.0, {1, 64})])
def test_what_is_compiled_is_done_in_time(seconds, sizes, monkeypatch):
    """Every shape takes 5 s, and none is begun that does not fit in the half for a start."""
    now, seen = [0.0], set()
    clock = SimpleNamespace(perf_counter=lambda: now[0])
    for module in (run, inside):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(inside, "CHEAP", (0, 0))  # a single point is worth a shape of its own
    program = Logistic().compiled
    traced, both = program.traced, program.value_and_slope.f

    def slow(z, data):
        if isinstance(z, np.ndarray):  # JAX itself is not asked how long it traces
            now[0] += 0.01 if z.shape in seen else 5.0
            seen.add(z.shape)
        return both(z, data)

    program.value_and_slope = inside.Batched(traced)
    program.value_and_slope.f = slow
    program.value = lambda z: program.value_and_slope(z)[0]
    program.totals(Z[:3] @ np.ones((4, 6)), 1)
    assert traced.slowest == 5.0 == now[0]
    fit = cvlib.fit(program, seconds=seconds, progress=False)
    assert {size for size, _ in seen} == sizes and now[0] - 5 <= 1.15 * seconds + 1.1
    assert fit.seconds <= seconds + 0.1 and ("JAX takes 5 s" in fit.report) == (seconds < 5)
    assert fit.settled == (seconds > 5)


def test_a_numpyro_model_is_traced_and_not_compiled_by_operation():
    """A program for the observed, one or two for log p and its slope, and little beside."""
    numpyro, jax = need("numpyro"), need("jax")
    names = []
    jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: names.append(name))

    def correlated(y):
        L = numpyro.sample("L", numpyro.distributions.LKJCholesky(3, 2.0))
        law = numpyro.distributions.MultivariateNormal(np.zeros(3), scale_tril=L)
        numpyro.sample("y", law, obs=jax.numpy.asarray(y) * 2)

    found = cvlib.models.from_numpyro(correlated, X)
    assert 0 < sum("backend_compile" in name for name in names) < 60  # by operation: 311
    assert_allclose(found.observed["y"], 2 * X)
    assert found.dim == 3 and found.named(np.zeros((1, 3)))["L"].shape == (1, 3, 3)


def test_constraints_deterministic_quantities_and_plates_come_along():
    numpyro, _ = need("numpyro"), need("arviz")
    dist = numpyro.distributions

    def shares(counts):
        theta = numpyro.sample("theta", dist.Dirichlet(np.ones(3)))
        numpyro.deterministic("first over second", theta[0] / theta[1])
        numpyro.sample("n", dist.Multinomial(total_count=60, probs=theta), obs=counts)
        with numpyro.plate("school", 3, dim=-2):
            with numpyro.plate("year", 2, dim=-1):
                numpyro.sample("both", dist.Normal(0, 1).expand([4]).to_event(1))
            numpyro.sample("one", dist.Normal(0, 1))

    other = cvlib.models.from_numpyro(shares, np.array([10, 20, 30]))
    fit = cvlib.fit(other, progress=False)
    draws = fit.draws(4000, 0)
    assert other.dim == 2 + 24 + 3 and set(draws) == {"theta", "first over second", "both", "one"}
    assert_allclose(draws["theta"].sum(-1), 1)
    right = np.array([11, 21, 31]) / 63  # the mean of Dirichlet(11, 21, 31)
    assert np.abs(draws["theta"].mean(0) - right).max() < 0.01
    assert_allclose(draws["first over second"], draws["theta"][:, 0] / draws["theta"][:, 1])
    found, lead = fit.to_arviz(7).posterior, ("chain", "draw")
    assert found["first over second"].dims == lead and found["both"].shape == (1, 7, 3, 2, 4)
    assert found["both"].dims[:-1] == (*lead, "school", "year")  # ArviZ names the rest
    assert found["one"].dims[:-1] == (*lead, "school")


def test_arviz_has_all_groups():
    az = need("arviz")
    fit = cvlib.fit(by_autograd(cvlib), progress=False)
    f = lambda p, b, rng: rng.normal(np.sum(b[0] * p.beta, -1), p.sigma)
    found = fit.to_arviz(500, 1, predict=f)
    assert_allclose(found.posterior["sigma"].values[0], fit.draws(500, 1)["sigma"])
    assert found.posterior["beta"].shape == (1, 500, 3)
    assert_allclose(found.log_likelihood["y"].values[0], fit.log_lik(500, 1))
    assert_allclose(found.posterior_predictive["y"].values[0], fit.predict(f, 500, 1))
    assert elpd(az.loo(found)) < found.log_likelihood["y"].mean("draw").sum()
    row_free = cvlib.models.Compiled(lambda z: (-0.5 * (z**2).sum(-1), -z), 2)
    free = cvlib.fit(row_free, progress=False).to_arviz(9).groups
    groups = free() if callable(free) else [g.strip("/") for g in free if g[1:]]
    assert set(groups) == {"posterior", "sample_stats"}


@pytest.mark.parametrize("name", ["in_numpyro", "in_pymc"])
def test_rows_of_a_model_from_elsewhere(name):
    """The log-likelihood of every row by SciPy, for LOO of q and of the posterior; z from draws."""
    az = need("arviz")
    other = model(name)
    fit = cvlib.fit(other, progress=False, bend=False)
    p = fit.draws(50, 1, corrected=False)
    right = stats.norm.logpdf(y, p["beta"] @ X.T, p["sigma"][:, None])
    assert_allclose(fit.log_lik(50, 1, corrected=False), right, rtol=1e-6)
    assert_allclose(other.parameters.back(p), fit.sample(50, 1), atol=1e-8)
    kept = fit.to_arviz(50, 1, corrected=False)
    assert_allclose(kept.log_likelihood["y"].values[0], right, rtol=1e-6)
    assert_allclose(kept.observed_data["y"].values, y)
    z, stats_ = fit.sample(50, 1), kept.sample_stats
    assert_allclose(stats_["log_q"].values[0], fit.q.log_q(fit.w, z))
    assert_allclose(stats_["lp"].values[0], other.log_joint(z))
    whole = fit.to_arviz(1000, 1, corrected=False)
    known = whole.sample_stats
    found = [az.loo(x) for x in (whole, fit.to_arviz(1000, 1))]
    if hasattr(az, "loo_approximate_posterior"):
        found += [az.loo_approximate_posterior(whole, known["lp"], known["log_q"])]
    assert np.ptp([*map(elpd, found)]) < 0.5
    plot = getattr(az, "plot_posterior", None) or az.plot_dist  # ArviZ before 1, and from it on
    plot(whole)


def test_the_chapter_s_block_on_nuts_runs_as_it_stands():
    """Eight schools: E mu is that of a quadrature over tau, and all means are worth more draws.

    The same from what ArviZ makes of the sampler.
    """
    az, page = need("arviz"), (PAGE.parent / "after-the-fit.md").read_text("utf-8")
    need("numpyro")
    exec(re.search(r"```python\n(import jax\n.*?)```", page, re.S)[1], space := {})
    table, y, v = space["found"], np.array(space["effects"]), np.array(space["errors"]) ** 2
    tau = np.exp(np.linspace(-12, 9, 4001))[:, None]
    precision = 1 / 25 + (1 / (v + tau**2)).sum(1)
    m = (y / (v + tau**2)).sum(1) / precision  # E mu given tau
    log = -0.5 * (np.log(v + tau**2) + y**2 / (v + tau**2)).sum(1) + 0.5 * precision * m**2
    log += -0.5 * np.log(precision) + np.log(tau[:, 0]) - np.log1p((tau[:, 0] / 5) ** 2)
    mean = np.average(m, weights=np.exp(log - log.max()))
    assert len(table.rows) == 10 and abs(table["mean"]["mu"] - mean) < 4 * table["mcse"]["mu"]
    assert all(table["ess"][k] > 2 * table["raw ess"][k] for k in table.rows)
    described = cvlib.models.from_numpyro(space["schools"], space["effects"], space["errors"])
    again = cvlib.summary(az.from_numpyro(space["sampler"]), described)
    assert_allclose([*again["mean"].values()], [*table["mean"].values()], rtol=1e-4)


def test_the_posterior_predictive_of_pymc_is_near_the_data():
    """Where PyMC does not know an axis again it draws from the prior, without a word.

    In the model are a labelled axis, one without labels, and constant data.
    """
    pm = need("pymc")
    need("arviz")
    group = np.repeat(np.arange(12), 10)
    data = 5 + np.linspace(-3, 3, 12)[group] + 0.3 * np.random.default_rng(2).standard_normal(120)
    with pm.Model(coords={"school": [f"no. {k}" for k in range(12)]}) as described:
        described.add_coord("half", length=2)
        scale = pm.Data("scale", np.full(12, 4.0), dims="school")
        a = pm.Normal("a", 0, scale, dims="school")
        b = pm.Normal("b", 0, 4, dims="half")
        c = pm.Normal("c", 0, scale / 100)  # no axis of a name, but one of constant data
        pm.Deterministic("twice", 2 * a, dims="school")
        mean = a[group] + b[(group >= 6).astype(int)] + c[group]
        pm.Normal("y", mean, 0.3, observed=data)
    fit = cvlib.fit(cvlib.models.from_pymc(described), progress=False)
    kept = fit.to_arviz(200, 1)
    assert kept.posterior["a"].dims == ("chain", "draw", "school")
    assert list(kept.posterior["twice"].coords["school"].values)[:2] == ["no. 0", "no. 1"]
    with described:
        found = pm.sample_posterior_predictive(kept, progressbar=False, random_seed=3)
    away = found.posterior_predictive["y"].values - data
    assert np.sqrt((away**2).mean()) < 0.6  # 0.3 times the root of two; the prior's is above 5


class Regression:
    def __init__(self, numpyro):
        self.numpyro, self.dist = numpyro, numpyro.distributions

    def __call__(self, X, y):
        beta = self.numpyro.sample("beta", self.dist.Normal(0, 10).expand([3]).to_event(1))
        sigma = self.numpyro.sample("sigma", self.dist.Exponential(1))
        self.numpyro.sample("y", self.dist.Normal(X @ beta, sigma), obs=y)

    def observed(self, y):
        self.numpyro.sample("y", self.dist.Normal(0, 1), obs=y)

    def param(self, y):
        a, b = self.numpyro.param("a", 1.0), self.numpyro.sample("b", self.dist.Normal(0, 1))
        self.numpyro.sample("y", self.dist.Normal(a * b, 1), obs=y)

    def discrete(self, law, y):
        k = self.numpyro.sample("k", law)
        self.numpyro.sample("y", self.dist.Normal(k, 1.0), obs=y)


def test_numpyro_models_without_a_name_and_tables_that_a_model_takes_apart():
    numpyro = need("numpyro")
    pandas = pytest.importorskip("pandas", reason="PyMC and ArviZ bring pandas")
    described = Regression(numpyro)
    reparam = numpyro.handlers.reparam(described, config={})
    apart = lambda frame: described(frame[[0, 1, 2]].to_numpy(), y)
    assert not hasattr(described, "__name__") and not hasattr(reparam, "__name__")
    parts, table = [(partial(described, X), y), (partial(described, y=y), X)], pandas.DataFrame(X)
    for program, *args in (described, X, y), *parts, (reparam, X, y), (apart, table):
        agrees(cvlib, cvlib.models.from_numpyro(program, *args))


def numpyro_refuses():
    numpyro, pandas = need("numpyro"), need("pandas")
    described, dist = Regression(numpyro), numpyro.distributions
    gap, holed = y.copy(), X.copy()
    gap[3] = holed[5, 1] = np.nan
    nan, table = "there is NaN in its data: drop or fill", r"no tables: give table.to_numpy\(\)"
    flat = dist.ImproperUniform(dist.constraints.real, (), ())
    return [
        (described, X, gap, nan),
        (described, holed, y, nan),
        (lambda: described(X, gap), nan),
        (described, pandas.DataFrame(X), y, table),
        (described, X, pandas.Series(y), table),
        (described, X, r"give all that it takes, as arrays: .*missing 1 required"),
        (described, X.tolist(), y, r"does not compute with lists: give arrays, np.array\(y\)"),
        (described, X, np.array(["yes"] * 40), "text in its data, .*'yes.*: give numbers"),
        (described, X, ["yes"] * 40, "text in its data, 'yes': give numbers"),
        (described.discrete, flat, y, r"ImproperUniform say: give dist.Normal\(0, 100\)"),
        (described.observed, y, "observed has no unknown: all that it samples is observed"),
        (described.param, y, r'a in param is a numpyro.param, .*numpyro.sample\("a"'),
        (described.discrete, dist.Bernoulli(0.3), y, "k is discrete: only real unknowns"),
        (described.discrete, dist.Poisson(3.0), y, "k is discrete: only real unknowns"),
        (None, r"model=None is no function: write from_numpyro\(model, X, y\)"),
        ("model", "model='model' is no function"),
    ]


def jax_refuses():
    jnp = need("jax.numpy")
    square = lambda z: -jnp.sum(z**2)
    return [
        (3, 2, r"log_joint=3 is no function: write from_jax\("),
        (square, 0, "parameters=0: it must be at least one"),
        (square, 2.5, "parameters=2.5 must be a whole number"),
        (square, {}, "give a dict of names and shapes"),
        (lambda z: -(z**2), 2, r"gave float64\[2\] for one point: give one real number"),
        (lambda z: (z[0], 1), 2, r"gave float64\[\], int64\[\] for one point"),
        (lambda z: None, 2, "gave nothing for one point"),
        (lambda z: 0, 2, r"gave int64\[\] for one point"),
        (lambda z: z[0] if z[0] > 0 else 0.0, 2, "jnp.where for if. Its words: TracerBool"),
        (lambda p: p.sigm, {"sigma": cvlib.positive}, "no parameter 'sigm': .* declares sigma"),
        (lambda z: jnp.log(z[0]), 2, "it must be a number for every real z. Put exp"),
        (lambda z: square(z) * np.nan, 2, "it must be a number for every real z"),
    ]


def pymc_refuses():
    pm = need("pymc")
    with pm.Model() as empty:
        pm.Normal("y", 0, 1, observed=1.0)
    with pm.Model() as coin:
        pm.Normal("y", pm.Bernoulli("b", 0.5), 1, observed=1.0)
    no_model = "is no PyMC model: give that of `with pm.Model"
    rows = [(wrong, no_model) for wrong in (None, {"beta": 3}, pm.Model)]
    return [
        *rows,
        (empty, "PyMC model has no unknown: all that it samples"),
        (coin, "b is discrete"),
    ]


@pytest.mark.parametrize("refuses", [numpyro_refuses, jax_refuses, pymc_refuses])
def test_what_cannot_be_is_told_what_would_be_right(refuses):
    door = getattr(cvlib.models, "from_" + refuses.__name__.split("_")[0])
    for *args, words in refuses():
        with warnings.catch_warnings(action="ignore"):
            with pytest.raises((TypeError, ValueError), match=words):
                door(*args)


def test_what_is_missing_is_said(monkeypatch):
    monkeypatch.setattr("cvlib.adapters.import_module", Mock(side_effect=ImportError))
    for door, *args in ("jax", len, 2), ("numpyro", len), ("pymc", None):
        with pytest.raises(ValueError, match=rf"needs {door}: pip install '\.\[{door}\]' in the p"):
            getattr(cvlib.models, f"from_{door}")(*args)


@pytest.mark.parametrize("bug", MUTANTS["adapters"], ids=lambda bug: bug[0])
def test_the_bug_is_caught(bug):
    name = bug[4]
    made(cvlib, name)  # skips without the package
    checks = {name: lambda cv: agrees(cv, made(cv, name))}
    assert judge(bug, checks) == Verdict("caught", name)
