"""What a q gains that bends: twelve posteriors, straight and bent, judged on 20,000 fresh draws.

Seconds are those of the processor, one thread; `share` is what importance weights keep. Posterior
means of three models that were held out are compared with long chains of NUTS, and three posteriors
are left to NumPyro's guides for the same seconds: these parts, and --save, need NumPyro.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.bends --save
"""

import argparse
import json
import os
import time
import warnings

import autograd.numpy as anp
import numpy as np

import cvlib as cv
from benchmarks import stored
from benchmarks.race.models import density, model_of
from benchmarks.rivals import svi
from cvlib.fitting import bends
from cvlib.fitting.looks import Weights
from cvlib.models.density import Density
from experiments.covered import hierarchical, rows_in_groups

RESULTS = stored.path("bends")
SEEDS, DRAWS = range(5), 20_000
ENOUGH = 600  # seconds by the clock, on however busy a machine; those of the processor are told


def of_prior(log_prior, dim, name):
    """A law of z without data."""
    return cv.models.Model(lambda z, b: 0 * z[..., 0] * b[0], log_prior, [0.0], dim, name)


def funnel(d=10):
    """Neal's: v ~ N(0, 9), the others N(0, e^v)."""

    def log_prior(z):
        v, x = z[..., 0], z[..., 1:]
        return -(v**2) / 18 - (d - 1) / 2 * v - 0.5 * anp.sum(x**2, -1) * anp.exp(-v)

    return of_prior(log_prior, d, "funnel")


def banana():
    """x ~ N(0, 1.5^2), y ~ N(x^2, .5^2)."""
    log_prior = lambda z: -0.5 * (z[..., 0] / 1.5) ** 2 - 2 * (z[..., 1] - z[..., 0] ** 2) ** 2
    return of_prior(log_prior, 2, "banana")


def by_quadrature(n=480):
    """E tau and P(tau > 1) of `hierarchical`: n cells of log tau, few of b[0] and log s.

    Given these three, y - X[:, 0] b[0] is N(0, s^2 I + U V U^T) with U = [groups, X[:, 1]].
    """
    X, g, y, c = rows_in_groups()
    U = np.column_stack([np.eye(6)[g], X[:, 1]])
    middle = lambda low, high, n: low + (np.arange(n) + 0.5) * (high - low) / n  # of n cells
    b, log_tau, log_s = np.meshgrid(middle(0.7, 1.3, 24), middle(-4, 2, n), middle(-1.8, -0.5, 24))
    tau, s = np.exp(log_tau), np.exp(log_s)
    V = np.stack([*[tau] * 6, np.ones_like(tau)], -1)  # its roots
    away = y - b[..., None] * X[:, 0]  # (..., 80)
    inner = np.eye(7) + V[..., None] * (U.T @ U) * V[..., None, :] / s[..., None, None] ** 2
    half = V * (away @ U)
    quadratic = (away**2).sum(-1) / s**2
    quadratic -= (half * np.linalg.solve(inner, half[..., None])[..., 0]).sum(-1) / s**4
    rate = 0.3 * b[..., None] * X[:, 0]
    log = -0.5 * (quadratic + np.linalg.slogdet(inner)[1]) - 80 * np.log(s)
    log += (c * rate - np.exp(rate)).sum(-1) - 0.5 * (b**2 + tau**2) - np.log1p(s**2)
    p = np.exp(log - log.max()) * tau * s  # the grid is one of logarithms
    p /= p.sum()
    return float((p * tau).sum()), float(p[tau > 1].sum())


def groups(J=8, n=5):
    """Normal data in eight groups, their means a themselves unknown: centred."""
    rng = np.random.default_rng(4)
    g = np.repeat(np.arange(J), n)
    y = rng.normal(0, 0.3, J)[g] + rng.standard_normal(J * n)

    def log_lik(p, batch):
        y, g = batch
        return -0.5 * (y - cv.pick(p.a, g)) ** 2

    def log_prior(p):
        apart = anp.sum((p.a - p.m[..., None]) ** 2, -1) / p.t**2
        return -0.5 * apart - J * anp.log(p.t) - 0.5 * p.m**2 - 0.5 * p.t**2

    declared = {"a": J, "m": (), "t": cv.positive}
    return cv.models.Model(log_lik, log_prior, (y, g), name="groups", parameters=declared)


def counts(J=12, n=4):
    """Counts in twelve groups, their rates e^(m + t z)."""
    rng = np.random.default_rng(5)
    g = np.repeat(np.arange(J), n)
    y = rng.poisson(np.exp(0.5 + rng.normal(0, 0.4, J))[g])

    def log_lik(p, batch):
        y, g = batch
        eta = p.m + p.t * cv.pick(p.z, g)
        return y * eta - anp.exp(eta)

    log_prior = lambda p: -0.5 * (anp.sum(p.z**2, -1) + p.m**2 + p.t**2)
    declared = {"z": J, "m": (), "t": cv.positive}
    return cv.models.Model(log_lik, log_prior, (y, g), name="counts", parameters=declared)


def crossed(n=(5, 8)):
    """A table of five rows and eight columns: effects of both, each with a spread of its own."""
    rng = np.random.default_rng(6)
    i, j = (x.ravel() for x in np.indices(n))
    y = (
        1
        + rng.normal(0, 0.8, n[0])[i]
        + rng.normal(0, 0.2, n[1])[j]
        + 0.5 * rng.normal(size=i.size)
    )

    def log_lik(p, batch):
        y, i, j = batch
        mean = p.m + p.t[..., 0] * cv.pick(p.a, i) + p.t[..., 1] * cv.pick(p.c, j)
        return -0.5 * ((y - mean) / p.s) ** 2 - anp.log(p.s)

    def log_prior(p):
        squares = anp.sum(p.a**2, -1) + anp.sum(p.c**2, -1) + anp.sum(p.t**2, -1)
        return -0.5 * (squares + p.m**2 / 25 + p.s**2)

    declared = {"m": (), "a": n[0], "c": n[1], "t": cv.positive(2), "s": cv.positive}
    return cv.models.Model(log_lik, log_prior, (y, i, j), name="crossed", parameters=declared)


def horseshoe(n=60, d=12):
    """Sixty rows, twelve columns of which two matter, a scale of its own for each."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n, d))
    y = 1.5 * X[:, 0] - X[:, 1] + 0.5 * rng.standard_normal(n)

    def log_lik(p, batch):
        x, y = batch
        away = (y - anp.sum(x * p.z * p.each, -1) * p.all) / p.s
        return -0.5 * away**2 - anp.log(p.s)

    def log_prior(p):
        cauchy = anp.sum(anp.log1p(p.each**2), -1) + anp.log1p(p.all**2) + anp.log1p(p.s**2)
        return -0.5 * anp.sum(p.z**2, -1) - cauchy

    declared = {"z": d, "each": cv.positive(d), "all": cv.positive, "s": cv.positive}
    return cv.models.Model(log_lik, log_prior, (X, y), name="horseshoe", parameters=declared)


MODELS = {
    "regression in groups": lambda: hierarchical()[0],
    "eight schools": lambda: model_of("eight_schools"),
    "Gaussian process": lambda: model_of("gp_pois_regr"),
    "Neal's funnel": funnel,
    "banana": banana,
    "orange trees": lambda: model_of("orange"),
    "normal groups, centred": groups,
    "counts in groups": counts,
    "rows and columns": crossed,
    "remission": lambda: model_of("remission"),
    "volatility": lambda: model_of("volatility"),
    "horseshoe": horseshoe,
}


# Held out: written when the fit was done, and not looked at before -------------------------------


def clinics(J=14):
    """Successes of six in fourteen clinics, logit m + t z."""
    rng = np.random.default_rng(11)
    y = rng.binomial(6, 1 / (1 + np.exp(-0.5 - rng.normal(0, 0.7, J)))).astype(float)

    def log_lik(p, batch):
        y, j = batch
        eta = p.m + p.t * cv.pick(p.z, j)
        return y * eta - 6 * anp.logaddexp(0.0, eta)

    def in_numpyro(numpyro, dist):
        m, t = numpyro.sample("m", dist.Normal(0, 2)), numpyro.sample("t", dist.HalfNormal(1))
        z = numpyro.sample("z", dist.Normal(0, 1).expand([J]).to_event(1))
        numpyro.sample("y", dist.BinomialLogits(m + t * z, 6), obs=y)

    log_prior = lambda p: -0.5 * (anp.sum(p.z**2, -1) + p.m**2 / 4 + p.t**2)
    declared = {"m": (), "t": cv.positive, "z": J}
    data = y, np.arange(J)
    return cv.models.Model(log_lik, log_prior, data, parameters=declared), in_numpyro


def growth(J=7, T=4):
    """Seven lines through four points each: their heights and slopes have a spread each."""
    rng = np.random.default_rng(12)
    j, x = np.repeat(np.arange(J), T), np.tile(np.linspace(-1, 1, T), J)
    y = 2 + rng.normal(0, 0.6, J)[j] + (1 + rng.normal(0, 0.3, J)[j]) * x
    y = y + 0.4 * rng.standard_normal(J * T)

    def log_lik(p, batch):
        y, x, j = batch
        high = p.m[..., 0] + p.t[..., 0] * cv.pick(p.a, j)
        steep = p.m[..., 1] + p.t[..., 1] * cv.pick(p.c, j)
        return -0.5 * ((y - high - steep * x) / p.s) ** 2 - anp.log(p.s)

    def log_prior(p):
        squares = anp.sum(p.a**2, -1) + anp.sum(p.c**2, -1) + anp.sum(p.t**2, -1)
        return -0.5 * (squares + anp.sum(p.m**2, -1) / 25 + p.s**2)

    def in_numpyro(numpyro, dist):
        m = numpyro.sample("m", dist.Normal(0, 5).expand([2]).to_event(1))
        t = numpyro.sample("t", dist.HalfNormal(1).expand([2]).to_event(1))
        a = numpyro.sample("a", dist.Normal(0, 1).expand([J]).to_event(1))
        c = numpyro.sample("c", dist.Normal(0, 1).expand([J]).to_event(1))
        s = numpyro.sample("s", dist.HalfNormal(1))
        mean = m[0] + t[0] * a[j] + (m[1] + t[1] * c[j]) * x
        numpyro.sample("y", dist.Normal(mean, s), obs=y)

    declared = {"m": 2, "t": cv.positive(2), "a": J, "c": J, "s": cv.positive}
    return cv.models.Model(log_lik, log_prior, (y, x, j), parameters=declared), in_numpyro


def studies(J=16):
    """Sixteen studies with known errors, their effects m + t z with z of Student's law."""
    rng = np.random.default_rng(13)
    error = rng.uniform(0.3, 1.2, J)
    y = 0.5 + 0.5 * rng.standard_t(4, J) + error * rng.standard_normal(J)

    def log_lik(p, batch):
        y, error, j = batch
        return -0.5 * ((y - p.m - p.t * cv.pick(p.z, j)) / error) ** 2

    def log_prior(p):
        student = anp.sum(anp.log1p(p.z**2 / 4), -1)
        return -2.5 * student - p.m**2 / 8 - anp.log1p(p.t**2)

    def in_numpyro(numpyro, dist):
        m, t = numpyro.sample("m", dist.Normal(0, 2)), numpyro.sample("t", dist.HalfCauchy(1))
        z = numpyro.sample("z", dist.StudentT(4, 0, 1).expand([J]).to_event(1))
        numpyro.sample("y", dist.Normal(m + t * z, error), obs=y)

    declared = {"m": (), "t": cv.positive, "z": J}
    data = y, error, np.arange(J)
    return cv.models.Model(log_lik, log_prior, data, parameters=declared), in_numpyro


HELD = {"clinics": clinics, "lines": growth, "studies": studies}


RIVALS = "regression in groups", "eight schools", "Neal's funnel"
GUIDES = "AutoMultivariateNormal", "AutoIAFNormal", "AutoBNAFNormal"
RATES = 0.0003, 0.001, 0.003, 0.01, 0.03
PARTS = {"rows": MODELS, "held": HELD, "rivals": RIVALS, "covered": ("regression in groups",)}


# Measured -----------------------------------------------------------------------------------------


def said(found):
    """ELBO, its error, share and k-hat."""
    return [round(float(x), 4) for x in (*found.elbo, found.effective, found.k_hat)]


def judge(model, q, w, seed):
    """The same, of fresh draws."""
    z = q.sample(w, DRAWS, np.random.default_rng([seed, 7]))
    return said(Weights(z, Density(model).value(z) - q.log_q(w, z)))


def row(model):
    """[elbo, error, share, k-hat] for each seed, straight and bent; seconds of both fits."""
    found = {"d": model.dim, "straight": [], "bent": [], "seconds": []}
    for seed in SEEDS:
        begun = time.process_time()
        fit = cv.fit(model, seconds=ENOUGH, seed=seed, bend=False, progress=False)
        straight = time.process_time() - begun
        bent = bends.bend(model, fit.w)  # what bend=True goes on with
        both = time.process_time() - begun
        law = (fit.q, fit.w) if bent is None else bent[:2]
        found["straight"].append(judge(model, fit.q, fit.w, seed))
        found["bent"].append(judge(model, *law, seed))
        found["seconds"].append([round(straight, 2), round(both, 2)])
    return found


def covered(seeds=40, n=1000):
    """How often two standard errors of `fit.expect` hold the truth, by default and straight."""
    truth = by_quadrature()
    found = {"truth": truth}
    asked = lambda p: p.tau, lambda p: (p.tau > 1) * 1.0
    for name, bend in (("straight", False), ("default", None)):
        fit = cv.fit(hierarchical()[0], seconds=ENOUGH, bend=bend, progress=False)
        answers = [[fit.expect(f, n=n, seed=seed) for f in asked] for seed in range(seeds)]
        est, se = np.moveaxis([[(a.estimate, a.se) for a in row] for row in answers], -1, 0)
        inside = np.abs(est - truth) < 2 * se
        found[name] = {
            "kept": round(fit.effective, 3), "mean": est.mean(0).round(4).tolist(),
            "se": np.median(se, 0).round(4).tolist(), "covered": inside.mean(0).tolist(),
        }  # fmt: skip
    return found


def held_out(make):
    """Errors of posterior means in sds of a long run of NUTS, the largest of all unknowns."""
    model, program = make()
    mean, sd, mcse = nuts(program, [*model.parameters.each])
    found = {"d": model.dim, "mcse": round(float((mcse / sd).max()), 4)}
    flat = lambda p: anp.concatenate([x.reshape(len(x), -1) for x in p.values()], 1)
    for name, bend in (("straight", False), ("default", None)):
        found[name] = []
        for seed in SEEDS:
            fit = cv.fit(model, seconds=ENOUGH, seed=seed, bend=bend, progress=False)
            own = flat(fit.draws(20_000, 1)).mean(0)
            answer = fit.expect(flat, n=20_000, seed=seed).estimate
            errors = [np.abs(x - mean) / sd for x in (own, answer)]
            found[name].append([round(float(x.max()), 3) for x in errors])
    return found


def nuts(program, names, chains=4, draws=10_000):
    """Mean, sd and Monte Carlo error of all unknowns, in the order of names."""
    import jax
    import numpyro
    import numpyro.distributions as dist
    from numpyro.diagnostics import effective_sample_size

    jax.config.update("jax_enable_x64", True)
    kernel = numpyro.infer.NUTS(lambda: program(numpyro, dist), target_accept_prob=0.95)
    mcmc = numpyro.infer.MCMC(
        kernel, num_warmup=1000, num_samples=draws, num_chains=chains, chain_method="sequential",
        progress_bar=False,
    )  # fmt: skip
    mcmc.run(jax.random.PRNGKey(0))
    found = mcmc.get_samples(group_by_chain=True)
    z = np.concatenate([np.reshape(found[k], (chains, draws, -1)) for k in names], -1)
    sd = z.std((0, 1))
    ess = np.array([effective_sample_size(z[..., k]) for k in range(z.shape[-1])])
    return z.mean((0, 1)), sd, sd / np.sqrt(ess)


# Rivals, which need NumPyro -----------------------------------------------------------------------


def in_jax(name, jnp):
    """log p(x, z) once more, for one z (d,)."""
    if name == "Neal's funnel":
        return lambda z: -(z[0] ** 2) / 18 - 4.5 * z[0] - 0.5 * (z[1:] ** 2).sum() * jnp.exp(-z[0])
    if name == "eight schools":
        lik, prior, rows = density("eight_schools", model_of("eight_schools"), jnp)
        return lambda z: lik(z, *rows) + prior(z)
    X, g, y, c = rows_in_groups()

    def log_p(z):
        b, log_tau, t, log_s = z[:2], z[2], z[3:9], z[9]
        rate = 0.3 * X[:, 0] * b[0]
        away = (y - X @ b - jnp.exp(log_tau) * t[g]) * jnp.exp(-log_s)
        lik = -0.5 * (away**2).sum() - 80 * log_s + (c * rate - jnp.exp(rate)).sum()
        squares = (b**2).sum() + jnp.exp(2 * log_tau) + (t**2).sum()
        return lik - 0.5 * squares - jnp.log1p(jnp.exp(2 * log_s)) + log_tau + log_s

    return log_p


def rivals(name, seconds):
    """What NumPyro's guides reach in these seconds, compilation not counted, at their best rate."""
    os.environ["XLA_FLAGS"] = (
        "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"  # one core, as ours
    )
    import jax

    jax.config.update("jax_enable_x64", True)
    model, log_p = MODELS[name](), in_jax(name, jax.numpy)
    z = np.random.default_rng(0).standard_normal((5, model.dim))
    apart = Density(model).value(z) - np.array([log_p(one) for one in z])
    assert np.ptp(apart) < 1e-6, "not the same density"

    found = {"seconds": round(seconds, 1)}
    for kind in GUIDES:
        guide = kind.removeprefix("Auto")
        runs = [(rate, climbed(model, log_p, guide, rate, seconds)) for rate in RATES]
        rate, best = max(runs, key=lambda one: np.nan_to_num(np.mean(one[1], 0), nan=-1e9)[0])
        found[kind] = {"rate": rate, "runs": best}
    return found


def climbed(model, log_p, guide, rate, seconds):
    """[elbo, error, share, k-hat, steps] on fresh draws, for each of two seeds."""
    import jax

    run = svi(log_p, model.dim, guide, 10, rate, block=50, vectorize_particles=True)
    rows = []
    for seed in range(2):
        state, steps = run.begin(seed), 0
        jax.block_until_ready(run.steps(state).optim_state)  # compiled
        begun = time.process_time()
        while time.process_time() - begun < seconds:
            state, steps = run.steps(state), steps + 50
            jax.block_until_ready(state.optim_state)
        q = run.guide.get_posterior(run.parameters(state))
        z, between = q.sample_with_intermediates(jax.random.PRNGKey(seed + 9), (DRAWS,))
        log_q = q.log_prob(z, between) if between else q.log_prob(z)
        weights = Weights(np.array(z), Density(model).value(np.array(z)) - np.array(log_q))
        rows.append([*said(weights), steps])
    return rows


def measured(part, name):
    """One row of a part, and the same on screen."""
    if part == "rows":
        found = row(MODELS[name]())
    elif part == "held":
        found = held_out(HELD[name])
    elif part == "rivals":
        spent = json.loads(RESULTS.read_text())["rows"][name]["seconds"]
        found = rivals(name, float(np.median(spent, 0)[1]))
    else:
        found = covered()
    print(part, name, found, flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--parts", nargs="*", default=PARTS, choices=PARTS)
    parser.add_argument("--only", nargs="*", help="names of rows")
    parser.add_argument("--save", action="store_true", help=f"put them into {RESULTS.name}")
    options = parser.parse_args()
    warnings.simplefilter("ignore", cv.Distrust)
    for part in options.parts:
        rows = {
            name: measured(part, name) for name in PARTS[part] if name in (options.only or [name])
        }
        if options.save:
            old = json.loads(RESULTS.read_text())
            del old["versions"]
            old[part] = old.get(part, {}) | rows
            stored.save(RESULTS, ("numpy", "autograd", "jax", "numpyro"), **old)


if __name__ == "__main__":
    main()
