"""What defines the loop and its rules."""

import dataclasses
import itertools
import pickle
import warnings
from functools import partial
from unittest import mock

import numpy as np
import pytest
from autograd.misc import optimizers
from harness import part
from numpy.testing import assert_allclose, assert_array_equal


def regression(cv):
    """Linear regression: the posterior is N(m, A^-1) with A m = X^T y / sd^2."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 3))
    y = X @ [1.0, -0.5, 0.3] + 0.5 * rng.standard_normal(20)
    model = cv.models.linear_regression(X, y, noise_sd=0.5)
    A = np.eye(3) + X.T @ X / 0.25
    return model, cv.families.Gaussian(3), A, np.linalg.solve(A, X.T @ y / 0.25)


def logistic(cv):
    model = cv.models.logistic_regression(*cv.datasets.toy())
    q = cv.families.Gaussian(model.dim)
    return model, q, cv.zoo.paper(model, q)


def gradient(cv, word, model, q):
    """The word of data and prior, and the rest in closed form."""
    data, prior, variational = cv.terms(model, q)
    return word(data) + word(prior) - cv.CF(variational)


def run(cv, cvs="S7", steps=12, **changes):
    """A short run on the toy data; cvs is the name of a set or a line, "" for none."""
    model, q, zoo = logistic(cv)
    lines = getattr(zoo, cvs) if cvs else []
    lines = lines if isinstance(lines, list) else [lines]
    settings = dict(lr=0.3, M=4, runs=(3,), rng=np.random.default_rng(0)) | changes
    if "state" in settings:
        del settings["runs"], settings["rng"]
    return cv.optimize.sgd(model, q, zoo.h, lines, steps=steps, **settings)


# Ascent rules -------------------------------------------------------------------------------------


def assert_same_steps(cv, theirs, **ours):
    """An optimiser of autograd on -ELBO / N, and ours."""
    model, q, _, _ = regression(cv)
    descent = lambda w, _: -cv.exact.gradient(model, q, w) / model.N
    right = theirs(descent, q.start(), num_iters=15, step_size=0.1)
    found = cv.optimize.noise_free(model, q, lr=0.1, steps=15, **ours)
    assert_allclose(found.w, right, rtol=1e-10)


def test_adam_takes_the_steps_of_autograds_adam(cv):
    for b1, b2, eps in (0.9, 0.999, 1e-8), (0.5, 0.8, 0.1):
        theirs = partial(optimizers.adam, b1=b1, b2=b2, eps=eps)
        assert_same_steps(cv, theirs, rule=cv.rules.adam(b1, b2, eps))


def test_momentum_takes_the_steps_of_autograds_sgd(cv):
    for beta in 0.9, 0.3, 0.0:
        assert_same_steps(cv, partial(optimizers.sgd, mass=beta), momentum=beta)


def test_a_rule_of_ones_own_gets_what_a_natural_step_needs(cv):
    """mu <- mu + rho Sigma grad_mu ELBO is one Newton step: rho = 1 ends at the posterior mean."""
    model, q, A, m = regression(cv)

    class Newton(cv.rules.Ascent):
        start = lambda self, q, w: (np.zeros(()),)

        def step(self, memory, w, g, rate, q, N):
            moved = w.copy()
            moved[..., : q.dim] += rate * np.linalg.solve(A, N * g[..., : q.dim])
            return moved, (memory[0] + 1,)

    found = cv.optimize.noise_free(model, q, lr=1.0, steps=3, rule=Newton())
    assert_allclose(found.path[1:, :3], np.broadcast_to(m, (3, 3)), rtol=1e-10)
    assert found.state.memory[0] == 3


def test_a_rate_may_belong_to_a_run_or_to_a_step(cv):
    model, q, _, _ = regression(cv)
    for rate, power in itertools.product((0.1, np.array([0.05, 0.1])), (0, 1)):
        w = q.start(np.shape(rate))
        lr = (lambda t: rate / t) if power else rate
        found = cv.optimize.noise_free(model, q, lr=lr, steps=5, momentum=0.0, w=w)
        for t in 1, 2, 3, 4, 5:
            slope = cv.exact.gradient(model, q, w) / model.N
            w = w + np.expand_dims(rate / t**power, -1) * slope
            assert_allclose(found.path[t], w, rtol=1e-12)


# Weight rules -------------------------------------------------------------------------------------


def weights_by_least_squares(h, C, v0):
    """argmin of sum_m |h_m + C_m a|^2 + v0 n |a|^2, n coordinates, by an augmented matrix."""
    n, L = h.shape[-1], len(C)
    A = np.vstack([C.reshape(L, -1).T, np.sqrt(v0 * n) * np.eye(L)])
    b = np.concatenate([h.ravel(), np.zeros(L)])
    return -np.linalg.lstsq(A, b, rcond=None)[0]


def test_coordinates_of_a_run_share_its_v0(cv):
    """Also where there are as many runs as coordinates."""
    weights, v0 = part(cv, "experiments.weights"), np.linspace(0.1, 3, 7)
    h, C = (np.random.default_rng(0).standard_normal((7, *n, 5, 7)) for n in ((), (3,)))
    many = weights.coordinate_weights(h, C, v0)
    for k in range(7):
        assert_allclose(many[k], weights.coordinate_weights(h[k], C[k], v0[k]), rtol=1e-9)


def written_out(cv, weights):
    """Three steps from public pieces; weights(h, C) from all samples so far, none at first."""
    model, q, zoo = logistic(cv)
    rng, w, v, seen = np.random.default_rng(7), q.start(), 0.0, []
    for _ in range(3):
        draw = cv.draw(model, q, w, 4, rng)
        G = np.stack([line(draw) for line in (zoo.h, zoo.c7, zoo.c4)]) / model.N
        before = np.concatenate(seen, 1) if seen else [None]
        a = weights(before[0], before[1:])  # (2,) or (2, D)
        v = 0.9 * v + 0.1 * (G[0] + (np.reshape(a, (2, 1, -1)) * G[1:]).sum(0)).mean(0)
        w = w + 0.2 * v
        seen.append(G)
    return w, a


def test_weight_rules_are_their_formulas(cv):
    """No forgetting (gamma = 0), three steps: all samples so far are one least-squares problem."""
    model, q, zoo = logistic(cv)
    v0, rules, each = 1e-2, cv.rules, np.linspace(-1, 0.5, 2 * q.D).reshape(2, q.D)

    def shared(v0):
        return lambda h, C: np.zeros(2) if h is None else weights_by_least_squares(h, C, v0)

    class Uneven(rules.Weighting):
        """One's own: another weight for each coordinate."""

        weights = lambda self, memory, q, N: each

    for rule, formula in (
        (rules.bayes(v0, gamma=0.0), shared(v0)),
        (rules.bayes(0.0, gamma=0.0), shared(0.0)),
        (Uneven(), lambda h, C: each),
        (rules.fixed([-0.5, 0.25]), lambda h, C: [-0.5, 0.25]),
        (rules.fixed(-0.5), lambda h, C: [-0.5, -0.5]),
    ):
        how = dict(lr=0.2, steps=3, M=4, weights=rule, rng=np.random.default_rng(7))
        found = cv.optimize.sgd(model, q, zoo.h, [zoo.c7, zoo.c4], **how)
        w, a = written_out(cv, formula)
        assert_allclose(found.w, w, rtol=1e-9, err_msg=repr(rule))
        assert_allclose(found.a, a, rtol=1e-7, atol=1e-9, err_msg=repr(rule))


def test_no_variates_and_no_weights_are_the_same(cv):
    assert_allclose(run(cv, "").w, run(cv, "S7", weights=cv.rules.fixed(0.0)).w, rtol=1e-12)


# State --------------------------------------------------------------------------------------------


def test_a_run_resumed_from_a_file_gives_the_same_bytes(cv):
    rules, random = cv.rules, np.random
    for options, cvs, generator in (
        (dict(), "S7", random.PCG64),
        (dict(rule=rules.adam(), average=3), "S7", random.MT19937),
        (dict(momentum=0.0, weights=rules.bayes(1e-2, 0.1), average=9), "c7", random.Philox),
        (dict(weights=rules.fixed(-1.0), lr=lambda t: 0.3 / t), "c7", random.SFC64),
        (dict(runs=()), "", random.PCG64),
    ):
        rng = lambda: np.random.Generator(generator(5))
        unbroken = run(cv, cvs, steps=12, rng=rng(), **options)
        begun = {k: v for k, v in options.items() if (k, v) != ("average", 9)}  # after step 6
        first = run(cv, cvs, steps=6, rng=rng(), **begun)
        state = pickle.loads(pickle.dumps(first.state))
        rest = run(cv, cvs, steps=12, state=state, **options)
        one, other = rest.state, unbroken.state
        for name in ("t", "w", "a", "diverged", "mean", "count"):
            assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
        both = ([*state.memory, *state.moments] for state in (one, other))
        for x, y in zip(*both, strict=True):
            assert_array_equal(x, y)
        assert type(one.rng.bit_generator) is generator
        assert_array_equal(one.rng.random(3), other.rng.random(3), err_msg="rng")
        assert_array_equal(np.concatenate([first.path, rest.path[1:]]), unbroken.path)
        assert [*first.steps, *rest.steps[1:]] == unbroken.steps.tolist()


def test_a_single_run_with_a_snapshot_goes_on_from_its_file(cv):
    model, q, zoo = logistic(cv)
    data, _, _ = cv.terms(model, q)
    note = lambda state, plan: (state._replace(notes={"at 5": state.w}), plan)
    for expansion in cv.taylor_z, cv.parabola:
        all_data = expansion(data, at="snapshot").over_all_data()
        c, how = cv.SF(all_data) - cv.CF(all_data), dict(lr=0.05, M=4, renew=4, hooks={5: note})
        go = partial(cv.optimize.sgd, model, q, zoo.h, [c], **how)
        whole, half = (go(steps=n, rng=np.random.default_rng(0)) for n in (9, 6))
        state = pickle.loads(pickle.dumps(half.state))
        assert [*state.notes] == ["at 5"]
        assert_array_equal(state.notes["at 5"], half.path[5])
        assert state.snapshot.checksum == model.checksum
        assert_array_equal(go(steps=9, state=state).w, whole.w)


def test_steps_are_the_loop(cv):
    """first and step, written by hand, are sgd; a hook sees the same states."""
    (model, q, zoo), rule, seen = logistic(cv), cv.rules.adam(), {}
    plan = cv.optimize.Noisy(model, q, zoo.h, zoo.S7, lr=0.3, M=4, rule=rule)
    state = plan.first(np.random.default_rng(0), runs=(3,))
    path = run(cv, steps=7, rule=rule, hooks={3: lambda s, p: seen.update({s.t: s.w})})
    for t in range(1, 8):
        state = plan.step(state)
        assert_array_equal(state.w, path.path[t])
        assert_array_equal(state.w, seen.get(t, state.w))
    assert sorted(seen) == [3, 6]


def test_a_hook_can_change_the_plan_and_the_state(cv):
    """From step 4 on another rate; a note of the weights then, kept to the end."""

    def slower(state, plan):
        if state.t == 4:
            state = state._replace(notes={**state.notes, "then": state.w})
            return state, dataclasses.replace(plan, lr=0.05)

    path = run(cv, steps=8, hooks={2: slower})
    right = run(cv, steps=8, lr=lambda t: 0.3 if t <= 4 else 0.05)
    assert_array_equal(path.path, right.path)
    assert_array_equal(path.state.notes["then"], path.path[4])

    short = run(cv, steps=8, every=2, hooks={5: mock.Mock(side_effect=StopIteration)})
    assert short.steps.tolist() == [0, 2, 4, 5]
    assert_array_equal(short.path, right.path[[0, 2, 4]].tolist() + [run(cv, steps=5).w.tolist()])


def test_an_interrupt_loses_nothing(cv):
    """Stopped inside the draw of step 6, with part of its noise drawn: go on to the same end."""
    unbroken, model, calls = run(cv, steps=10), logistic(cv)[0], []

    class Stops(cv.families.Gaussian):
        def noise(self, rng, w, M):
            eps = super().noise(rng, w, M)
            calls.append(1)
            if len(calls) == 6:
                raise KeyboardInterrupt
            return eps

    q = Stops(model.dim)
    z = cv.zoo.paper(model, q)
    for every, kept in (1, [*range(6)]), (100, [0, 5]):
        go = partial(cv.optimize.sgd, model, q, z.h, z.S7, lr=0.3, M=4, steps=10, every=every)
        calls.clear()
        with pytest.raises(KeyboardInterrupt, match="after step 5") as stop:
            go(rng=np.random.default_rng(0), runs=(3,))
        path = pickle.loads(pickle.dumps(stop.value)).path  # it can be sent, too
        assert path.steps.tolist() == kept
        assert_array_equal(path.path, unbroken.path[kept])
        assert_array_equal(go(state=path.state).w, unbroken.w)


def test_short_forms_are_the_rules_and_the_sampling(cv):
    rules = cv.rules
    sees = {"batch": 5}, {"batch": 5, "each": True}, {"subsample": False}, {"noise": "pairs"}
    for short, long in (
        ({}, {"rule": rules.momentum(0.9), "weights": rules.bayes(1e-3, 0.02)}),
        ({"momentum": 0.5}, {"rule": rules.momentum(0.5)}),
        ({"v0": 0.1}, {"weights": rules.bayes(0.1)}),
        ({"gamma": 0.3}, {"weights": rules.bayes(gamma=0.3)}),
        *((see, {"sampling": cv.Sampling(**see)}) for see in sees),
    ):
        path = run(cv, steps=5, **short).path
        assert_array_equal(path, run(cv, steps=5, **long).path)
        assert np.array_equal(path, run(cv, steps=5).path) == (short == {})
    assert rules.momentum() == rules.momentum(0.9) != rules.momentum(0.5)
    assert repr(rules.bayes()) == "bayes(v0=0.001, gamma=0.02)"
    assert pickle.loads(pickle.dumps(rules.adam())) == rules.adam()


# Runs that break ----------------------------------------------------------------------------------


def test_a_run_that_leaves_stays_where_it_was(cv):
    """Rate 1e9 for one of three runs in step 1 alone: beyond q.far, at its start for good."""
    rates = lambda t: np.array([0.3, 1e9 if t == 1 else 0.3, 0.3])
    with warnings.catch_warnings(record=True, action="always") as said:
        path = run(cv, steps=6, lr=rates, average=2)
    q = logistic(cv)[1]
    assert path.diverged.tolist() == [-1, 1, -1]
    assert_array_equal(path.path[:, 1], np.broadcast_to(q.start(), (7, q.D)))
    assert_allclose(path.average, path.path[2:].mean(0), rtol=1e-13)
    (warning,) = said
    assert issubclass(warning.category, cv.optimize.Diverged)
    assert "1 of 3 runs diverged, the first at step 1" in str(warning.message)
    assert warning.filename == __file__
    fine = run(cv, steps=6)  # the same noise: the others must not notice
    assert_array_equal(path.path[:, [0, 2]], fine.path[:, [0, 2]])
    with warnings.catch_warnings(action="error"):  # what had diverged before is no news
        rest = run(cv, steps=8, lr=np.array([0.3, 1e9, 0.3]), state=path.state)
    assert rest.diverged.tolist() == [-1, 1, -1]


def test_a_run_whose_matrix_is_singular_leaves_alone(cv):
    """LinAlgError beyond z = 5: the run there is thrown out, the others do not notice."""

    def lik(z, b):
        if np.any(np.asarray(getattr(z, "_value", z)) > 5):
            raise np.linalg.LinAlgError
        return -0.5 * (z[..., 0] - b[0]) ** 2

    model = cv.models.Model(lik, lambda z: -0.5 * z[..., 0] ** 2, np.arange(3.0), 1)
    q = cv.families.Gaussian(1)
    data, prior, variational = cv.terms(model, q)
    f, w = data + prior - variational, np.array([[1.0, 0.1], [9.0, 0.1], [-1.0, 0.1]])
    far = cv.taylor_z(data, at="snapshot")
    c = cv.RP1(far) - cv.CF(far.over_all_data())
    old = cv.snapshot(model, [[1.0], [0.0], [-1.0]])
    for h, cvs in (cv.RP1(f), []), (cv.AQ(f), []), (cv.RP1(f), [c]):
        for see in {}, {"batch": 2}, {"subsample": False}:
            plan = cv.optimize.Noisy(model, q, h, cvs, sampling=cv.Sampling(**see), lr=0.1, M=6)
            starts = w, [[1.0, 0.1], [0.0, 0.1], [-1.0, 0.1]]
            states = (plan.first(np.random.default_rng(0), w=w) for w in starts)
            ends = (plan.step(state._replace(snapshot=old)) for state in states)
            broken, fine = ends
            assert broken.diverged.tolist() == [-1, 1, -1] and fine.diverged.max() == -1
            assert_array_equal(broken.w[1], w[1])
            assert_allclose(broken.w[[0, 2]], fine.w[[0, 2]], rtol=1e-12)


def test_a_run_may_leave_on_either_side(cv):
    """All weights go to the rate times a sign, and one of three runs has a rate beyond q.far."""

    class Thrown(cv.rules.Ascent):
        start = lambda self, q, w: ()
        step = lambda self, memory, w, g, rate, q, N: (0 * w + self.sign * rate, ())

    for sign in -1, 1:
        Thrown.sign = sign
        with pytest.warns(cv.optimize.Diverged):
            path = run(cv, "", steps=2, rule=Thrown(), lr=np.array([0.3, 1e9, 0.3]))
        assert path.diverged.tolist() == [-1, 1, -1]


def test_records_are_thinned_to_a_hundred_megabytes(cv):
    """d = 200, full covariance, 20,000 steps; and what is small is kept whole."""
    for steps, numbers in (20_000, 20_300), (500, 50 * 1952), (100_000, 5), (10, 10**9):
        k = cv.optimize.thinning(steps, 8 * numbers)
        size = lambda k: (steps // k + 2) * 8 * numbers
        assert k == steps or size(k) <= 100e6
        assert k == 1 or size(k - 1) > 0.98 * 100e6
    assert cv.optimize.thinning(500, 8 * 10 * 1952) == 1


def test_the_noise_free_path_diverges_with_a_word(cv):
    model, q, _, _ = regression(cv)
    said = r"1 of 1 runs .* step \d+: .* smaller lr, or a st"
    with pytest.warns(cv.optimize.Diverged, match=said):
        path = cv.optimize.noise_free(model, q, lr=1e4, steps=50)
    assert path.diverged > 0 and np.isfinite(path.w).all()
    with warnings.catch_warnings(action="error"):
        cv.optimize.noise_free(model, q, lr=0.1, steps=5)


def test_what_is_recorded(cv):
    """Runs come from their number or from w; every third step and the last; or what has room."""
    q = logistic(cv)[1]
    path = run(cv, "c1", steps=7, every=3)
    assert path.steps.tolist() == [0, 3, 6, 7] and path.path.shape == (4, 3, q.D)
    assert path.a.shape == (3, 1) and path.average is None
    assert_array_equal(path.path[-1], path.w)
    assert_array_equal(path.w, run(cv, "c1", steps=7, runs=(), w=q.start((3,)), average=7).average)
    with mock.patch.object(cv.optimize, "RECORD", 2000):  # bytes; w of three runs has 120
        path = run(cv, steps=31)
    assert path.path.nbytes <= 2000 and path.steps.tolist() == [*range(0, 31, 3), 31]


def test_a_hook_sees_the_gradients_of_its_step(cv):
    seen = []
    look = lambda state, plan: seen.append(state.G[..., 0, :, :].mean(-2) / plan.model.N)
    path = run(cv, "", steps=6, momentum=0.0, hooks={2: look})
    for mean, t in zip(seen, (2, 4, 6)):
        moved = path.path[t] - path.path[t - 1]
        assert_allclose(moved, 0.3 * mean, rtol=1e-9, atol=1e-14)
    assert path.state.t == 6 and path.state.G is None


def test_a_state_must_fit_its_plan(cv):
    rules, state = cv.rules, run(cv, steps=4).state
    for message, changed in {
        "of other rules or variates than the plan": dict(rule=rules.adam()),
        "of other rules or variates": dict(weights=rules.fixed(0.0)),
        "other rules or variates": dict(cvs="S4"),
        "has taken 4 steps: steps=4 must lie beyond": dict(steps=4),
    }.items():
        with pytest.raises(ValueError, match=message):
            run(cv, state=state, **changed)
    model, q, zoo = logistic(cv)
    how = dict(lr=0.1, M=4)
    for own in dict(w=q.start()), dict(runs=(3,)), dict(rng=np.random.default_rng(0)):
        with pytest.raises(ValueError, match="leave them out"):
            cv.optimize.sgd(model, q, zoo.h, zoo.S7, steps=9, state=state, **how, **own)
