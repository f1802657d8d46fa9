"""The loop against the conjugate posterior, which it must find, and against its own promises."""

import pickle
import warnings
from inspect import signature

import autograd.numpy as anp
import numpy as np
import pytest
from test_loop import run

import cvlib as cv
from cvlib import CF, RP1, rules
from experiments import catalogue


@pytest.fixture(scope="module")
def conjugate():
    """Linear regression: the posterior N(m, S) in closed form."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 3))
    y = X @ [1.0, -0.5, 0.3] + 0.5 * rng.standard_normal(20)
    model = cv.models.linear_regression(X, y, noise_sd=0.5)
    S = np.linalg.inv(np.eye(3) + X.T @ X / 0.25)
    return model, cv.families.Gaussian(3), S @ X.T @ y / 0.25, S


@pytest.fixture(scope="module")
def logistic():
    model = cv.models.logistic_regression(*cv.datasets.toy())
    q = cv.families.Gaussian(model.dim)
    return model, q, cv.zoo.paper(model, q)


def test_a_diverging_run_of_any_family_is_marked():
    rng = np.random.default_rng(0)
    y = rng.poisson(3.0, 20)
    lik = lambda z, batch: batch[0] * z[..., 0] - anp.exp(z[..., 0])
    q = cv.families.Gamma(1)
    model = cv.models.Model(lik, q.prior(np.ones(1), np.ones(1)), y, 1)
    data, prior, variational = cv.terms(model, q)
    h = cv.GR(data) + CF(prior) - CF(variational)
    with pytest.warns(cv.optimize.Diverged, match="runs diverged"):
        path = cv.optimize.sgd(model, q, h, lr=20.0, steps=60, M=2, runs=(8,), rng=rng)
    assert (path.diverged > 0).any() and (np.abs(path.w) <= q.far).all()


def test_runs_come_from_the_start_too(logistic):
    model, q, zoo = logistic
    options = dict(lr=0.1, steps=3, M=4)
    alone = cv.optimize.sgd(model, q, zoo.h, rng=np.random.default_rng(0), runs=(5,), **options)
    rng = np.random.default_rng(0)
    given = cv.optimize.sgd(model, q, zoo.h, rng=rng, w=q.start((5,)), **options)
    np.testing.assert_array_equal(alone.w, given.w)
    with pytest.raises(ValueError, match=r"w starts \(5,\) runs: leave runs out"):
        cv.optimize.sgd(model, q, zoo.h, rng=rng, w=q.start((5,)), runs=(3,), **options)
    with pytest.raises(TypeError, match=r"cvs=None must be a list"):
        cv.optimize.sgd(model, q, zoo.h, None, rng=rng, **options)


def test_recorded_steps(logistic):
    model, q, zoo = logistic
    settings = dict(lr=0.1, steps=7, M=1, rng=np.random.default_rng(6), runs=(3,), every=3)
    run = cv.optimize.sgd(model, q, zoo.h, [zoo.c1], **settings)
    assert run.steps.tolist() == [0, 3, 6, 7] and run.path.shape == (4, 3, q.D)
    assert run.a.shape == (3, 1)
    np.testing.assert_array_equal(run.path[-1], run.w)


def test_the_noise_free_path_diverges_with_a_word(conjugate):
    """A rate far beyond 2 / the largest curvature; before, w overflowed."""
    model, q, _, _ = conjugate
    with pytest.warns(
        cv.optimize.Diverged, match=r"1 of 1 runs .* step \d+: .* smaller lr, or a st"
    ):
        path = cv.optimize.noise_free(model, q, lr=1e4, steps=50)
    assert path.diverged > 0 and np.isfinite(path.w).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cv.optimize.noise_free(model, q, lr=0.1, steps=5)


def test_a_run_that_had_diverged_before_is_not_news():
    rates = np.array([0.3, 1e9, 0.3])
    with pytest.warns(cv.optimize.Diverged):
        first = run(cv, steps=3, lr=rates)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rest = run(cv, steps=5, lr=rates, state=first.state)
    assert rest.diverged.tolist() == [-1, 1, -1]


# Doors ------------------------------------------------------------------------------------------


def test_a_hook_sees_the_gradients_of_its_step(logistic):
    model, q, zoo = logistic
    seen = []

    def look(state, plan):
        seen.append(state.G[..., 0, :, :].mean(-2))

    path = run(cv, "", steps=6, momentum=0.0, hooks={2: look})
    for mean, t in zip(seen, (2, 4, 6)):
        moved = path.path[t] - path.path[t - 1]
        np.testing.assert_allclose(moved, 0.3 * mean / model.N, rtol=1e-9, atol=1e-14)
    assert path.state.t == 6 and path.state.G is None


def test_an_interrupt_can_cross_processes():
    path = run(cv, steps=2)
    stop = pickle.loads(pickle.dumps(cv.optimize.Interrupted(path)))
    assert isinstance(stop, KeyboardInterrupt) and stop.path.state.t == 2


def test_rules_are_values():
    assert rules.momentum() == rules.momentum(0.9) != rules.momentum(0.5)
    assert repr(rules.bayes()) == "bayes(v0=0.001, gamma=0.02)"
    assert pickle.loads(pickle.dumps(rules.adam())) == rules.adam()


def test_a_long_record_is_thinned(monkeypatch):
    monkeypatch.setattr(cv.optimize, "RECORD", 2000)  # bytes; w of three runs has 120
    path = run(cv, steps=31)
    assert path.path.nbytes <= 2000 and path.steps.tolist() == [*range(0, 31, 3), 31]


# Refusals ---------------------------------------------------------------------------------------

REFUSED = {
    "no control variate: it estimates": dict(cvs=lambda z: [z.h]),
    "v0='1e-3' is no number": dict(v0="1e-3"),
    "v0=nan: it must be zero": dict(v0=np.nan),
    "lr=-1: it must be positive": dict(lr=-1),
    "lr=nan": dict(lr=np.nan),
    "lr=inf": dict(lr=np.inf),
    "lr='0.1' is no number: write for example lr=0.1": dict(lr="0.1"),
    "lr=None is no number": dict(lr=None),
    r"lr has shape \(3,\), the runs have \(\): give one a run": dict(lr=np.full(3, 0.1)),
    r"lr has shape \(3,\), the runs have \(2,\)": dict(lr=np.full(3, 0.1), runs=(2,)),
    r"lr\(1\)=-0.1: it must be zero or positive": dict(lr=lambda t: -0.1 * t),
    r"lr\(1\)=None is no number": dict(lr=lambda t: None),
    "steps=100.0 must be a whole number: write 100": dict(steps=1e2),
    "steps='9' must be a whole number": dict(steps="9"),
    "every=2.5 must be a whole number": dict(every=2.5),
    "M=2.5 must be a whole number": dict(M=2.5),
    r"momentum=\[0.5, 0.9\]: one number": dict(momentum=[0.5, 0.9]),
    "w must be": dict(w=np.ones(3)),
    "rng=7: give a generator.*default_rng\\(7\\)": dict(rng=7),
    "rng=None: give a generator": dict(rng=None),
    r"cvs=CF.* must be a list: write \[c7\]": dict(cvs=lambda z: z.c7),
    r"cvs=None must be a list: .*\[\] for none": dict(cvs=lambda z: None),
    "'c7' is no estimator": dict(cvs=lambda z: ["c7"]),
    "no ascent rule such as rules.adam": dict(rule="adam"),
    "no weight rule such as rules.bayes": dict(weights=rules.momentum()),
    "momentum and rule= are two rules": dict(momentum=0.5, rule=rules.adam()),
    "v0 and weights= are two rules": dict(v0=1.0, weights=rules.bayes()),
    "average=0: it must be": dict(average=0),
    "write for example {50: function}": dict(hooks=print),
    r"nothing or the pair \(state, plan\); got 3": dict(hooks={1: lambda state, plan: 3}),
    "a hook after step 1 returned a state of step 8": dict(
        hooks={1: lambda state, plan: (state._replace(t=8), plan)}
    ),
    "fixed weights of shape .3,., but 2 variates": dict(
        weights=rules.fixed([1, 2, 3]), cvs=lambda z: [z.c1, z.c7]
    ),
    "state=3 is no State": dict(state=3, rng=None),
    "sgd has no argument 'momentun': did you mean 'momentum'": dict(momentun=0.5),
    "sgd has no argument 'sub_sample': did you mean 'subsample'": dict(sub_sample=False),
    "sgd has no argument 'run': did you mean 'runs'": dict(run=(3,)),
    "sgd has no argument 'xyz': a plan takes lr, rule, average, M, weights": dict(xyz=1),
    "sampling= says it all: leave batch out": dict(sampling=cv.Sampling(), batch=3),
    r"sampling='all': write cv.Sampling\(": dict(sampling="all"),
}


@pytest.mark.parametrize("message", REFUSED)
def test_bad_arguments_are_refused(logistic, message):
    model, q, zoo = logistic
    settings = dict(lr=0.1, steps=5, M=2, rng=np.random.default_rng(0)) | REFUSED[message]
    cvs = settings.pop("cvs", lambda z: [z.c7])(zoo)
    with pytest.raises((ValueError, TypeError), match=message):
        cv.optimize.sgd(model, q, zoo.h, cvs, **settings)


@pytest.mark.parametrize(
    "changed",
    [dict(lr=-1), dict(every=0), dict(steps=0), dict(momentum=1), dict(steps=1e2), dict(lr="1"),
     dict(rule=rules.bayes()), dict(w=np.ones(2)), dict(rule=rules.adam(), momentum=0.1)],
)  # fmt: skip
def test_the_noise_free_path_has_the_same_checks(conjugate, changed):
    model, q, _, _ = conjugate
    with pytest.raises((ValueError, TypeError)):
        cv.optimize.noise_free(model, q, **dict(lr=0.1, steps=3) | changed)


def test_the_noise_free_path_takes_no_samples(conjugate):
    model, q, _, _ = conjugate
    with pytest.raises(TypeError, match="noise_free has no argument 'M': a plan takes lr"):
        cv.optimize.noise_free(model, q, lr=0.1, steps=3, M=4)
    with pytest.raises(TypeError, match="no argument 'rate': did you mean 'average'|'rate'"):
        cv.optimize.noise_free(model, q, rate=0.1, steps=3)


def test_the_doors_are_narrow():
    for function, most in (cv.optimize.sgd, 12), (cv.optimize.noise_free, 6):
        names = [p for p in signature(function).parameters.values() if p.kind != p.VAR_KEYWORD]
        assert len(names) <= most


def test_bad_rules_are_named():
    with pytest.raises(NotImplementedError, match="Ascent has no match"):
        rules.Ascent().match((), None, None, None, 1.0, None)


def test_a_step_names_swapped_arguments(logistic):
    model, q, zoo = logistic
    plan = cv.optimize.Noisy(model, q, zoo.h, lr=0.1, M=4)
    state = cv.optimize.init(plan, np.random.default_rng(0))
    with pytest.raises(TypeError, match=r"step\(state, plan\) .* got a Noisy and a State"):
        cv.optimize.step(plan, state)


def test_a_state_must_fit_its_plan(logistic):
    model, q, zoo = logistic
    state = run(cv, steps=4).state
    for message, changed in {
        "of other rules or variates than the plan": dict(rule=rules.adam()),
        "of other rules or variates": dict(weights=rules.fixed(0.0)),
        "other rules or variates": dict(cvs="S4"),
        "has taken 4 steps: steps=4 must lie beyond": dict(steps=4),
    }.items():
        with pytest.raises(ValueError, match=message):
            run(cv, state=state, **changed)
    for own in dict(w=q.start()), dict(runs=(3,)), dict(rng=np.random.default_rng(0)):
        with pytest.raises(ValueError, match="leave them out"):
            cv.optimize.sgd(model, q, zoo.h, zoo.S7, lr=0.1, steps=9, M=4, state=state, **own)


def test_wrong_lines_are_refused(logistic):
    model, q, zoo = logistic
    settings = dict(lr=0.1, steps=1, M=1, rng=np.random.default_rng(0))
    with pytest.raises(TypeError, match="no estimator such as RP1.*take its .line"):
        cv.optimize.sgd(model, q, zoo.h, catalogue.legal(model, q)[:1], **settings)
    data, prior, variational = cv.terms(model, q)
    with pytest.raises(ValueError, match="must estimate data \\+ prior - variational"):
        cv.optimize.sgd(model, q, RP1(data) - CF(variational), **settings)
    with pytest.raises(TypeError, match="data is no estimator"):
        cv.optimize.sgd(model, q, zoo.h, [data], **settings)
