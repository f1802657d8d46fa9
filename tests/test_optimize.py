"""The loop against the conjugate posterior, which it must find, and against its own promises."""

import pickle
import warnings

import autograd.numpy as anp
import numpy as np
import pytest
from test_loop import run

import cvlib as cv
from cvlib import CF, rules


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
