"""Every line a reader can write: its mean, its samples, its arithmetic, its errors.

`pytest -s tests/test_estimators.py` prints how many lines were proved.
False alarms: the Monte Carlo checks share 5e-7 by the union bound; everything else is exact.
"""

import itertools
import re
from dataclasses import replace
from functools import cache

import numpy as np
import oracles
import pytest
import test_lines
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import linalg, stats
from test_lines import CONFIGURATIONS, configurations

import cvlib as cv
from cvlib import CF, RP1, RP2, SF, bound, one, taylor_x, taylor_x_slope, taylor_z
from cvlib.recipe import estimators

FALSE_ALARM = 5e-7
few = settings(deadline=None, derandomize=True, max_examples=12, database=None)
shapes = {
    "name": st.sampled_from(oracles.PROBLEMS),
    "family": st.sampled_from(oracles.FAMILIES),
    "d": st.integers(1, 8),
    "N": st.sampled_from([1, 2, 5]),
    "M": st.sampled_from([1, 3]),
    "seed": st.integers(0, 9),
}


@cache
def lines_of(name, family):
    return test_lines.setting(cv, name, family)[-1]


@cache
def terms_of(name, family):
    p = oracles.problem(name)
    return cv.terms(oracles.build(cv, p), getattr(cv.families, family)(p.d))


@cache
def count_pairs(name, family):
    return len(test_lines.pairs(lines_of(name, family)))


# Means and samples ------------------------------------------------------------------------------


@configurations
def test_monte_carlo_means(name, family, subsampled):
    """z-scores through cv.draw(rng), with a bound that all coordinates of all tests share."""
    seed = CONFIGURATIONS.index((name, family, subsampled))
    coordinates = sum(
        len(lines_of(name, family)) * (5 if family == "Gaussian" else 4)
        for name, family, _ in CONFIGURATIONS
    )
    bound = stats.norm.isf(FALSE_ALARM / coordinates / 2)
    _, _, worst = test_lines.monte_carlo(cv, name, family, subsampled, seed=seed)
    assert worst < bound, f"z-score {worst:.1f}, allowed {bound:.1f}"
    assert bound < 7


def test_monte_carlo_check_can_fail(monkeypatch):
    """References that are a tenth too large are noticed."""
    right = test_lines.exact_means
    monkeypatch.setattr(test_lines, "exact_means", lambda *a: 1.1 * right(*a))
    assert test_lines.monte_carlo(cv, "logistic", "Gaussian", True)[2] > 7


def test_count_of_what_was_proved():
    """No combination is forgotten: the numbers are pinned, and printed."""
    lines = [len(lines_of(name, family)) for name, family, _ in CONFIGURATIONS]
    variates = [count_pairs(name, family) for name, family, _ in CONFIGURATIONS]
    print(
        f"\n{sum(lines)} lines (estimator x term x approximation x family x sampling x model) and "
        f"{sum(variates)} control variates have their exact mean; {sum(lines)} again by Monte Carlo"
    )
    assert len(CONFIGURATIONS) == 24
    assert sum(lines) == 2592 and sum(variates) == 10324
    written = {text for name, family, _ in CONFIGURATIONS for text in lines_of(name, family)}
    of_eta = {"data", "taylor_z(data)", "bound(data)"}
    functions = {*of_eta, "prior", "variational", "one", "taylor_x(data)"}
    curved = functions - {"taylor_x(data)"}
    legal = {
        "SF": functions, "RP1": functions | {oracles.SLOPE}, "RP2": functions | {oracles.SLOPE},
        "RB": of_eta, "PR": curved, "QD": of_eta, "CF": curved,
    }  # fmt: skip
    for method, atom in itertools.product(legal, functions | {oracles.SLOPE}):
        assert (f"{method}({atom})" in written) == (atom in legal[method]), (method, atom)


def test_on_all_data_the_sum_of_conditional_means_may_have_more_noise():
    """Each data point's RB is given its own eta: for all of them together it is no conditional
    mean, and Rao-Blackwell promises nothing."""
    p, model, q, w, _ = test_lines.setting(cv, "logistic", "Gaussian")
    data = cv.terms(model, q)[0]
    draw, weight = test_lines.grid_draw(cv, p, model, q, w[1], False)
    noise = [weight @ (G - weight @ G) ** 2 for G in cv.evaluate([cv.RP1(data), cv.RB(data)], draw)]
    assert noise[1].sum() > 1.2 * noise[0].sum()


def test_an_expanded_slope_has_a_mean_for_each_word():
    """It is no gradient: RP1 and RP2 pull it back to different means, exactly known; the average
    over the data takes its own word's mean, and only pairs of one word are variates."""
    for name in ("logistic", "poisson"):
        p, model, q, w, lines = test_lines.setting(cv, name, "Gaussian")
        s = taylor_x_slope(cv.terms(model, q)[0])
        draw, weight = test_lines.grid_draw(cv, p, model, q, w, True)
        share = np.repeat(weight, p.N) / p.N
        one, two, all_one, all_two = (
            np.einsum("m,rmd->rd", share, line(draw))
            for line in (RP1(s), RP2(s), RP1(s.over_all_data()), RP2(s.over_all_data()))
        )
        right = [
            np.stack(
                [oracles.exact_gradient(p, "Gaussian", oracles.SLOPE, v, m).mean(0) for v in w]
            )
            for m in ("RP1", "RP2")
        ]
        assert_allclose(one, right[0], atol=1e-9)
        assert_allclose(two, right[1], atol=1e-9)
        assert_allclose(all_one, one, atol=1e-12)
        assert_allclose(all_two, two, atol=1e-12)
        assert np.abs(one - two).max() > 1e-4  # a bias, small but sure: the line is refused
        assert not (RP1(s) - RP2(s)).is_control_variate
        assert (RP1(s) - RP1(s.over_all_data())).is_control_variate
        assert not (RP1(s) - RP2(s.over_all_data())).is_control_variate
        assert not (RP1(s) - RP1(taylor_x(cv.terms(model, q)[0]))).is_control_variate
        mixed = (RP1(s) - RP1(s.over_all_data())) - (RP2(s) - RP2(s.over_all_data()))
        assert mixed.is_control_variate  # each word for itself


def test_the_oracle_s_own_square_root():
    rng = np.random.default_rng(0)
    for d in range(1, 9):
        L = np.linalg.cholesky(np.eye(d) + 0.1) * rng.uniform(0.5, 1.5, d)
        assert_allclose(oracles.denman_beavers(L @ L.T), linalg.sqrtm(L @ L.T), atol=1e-12)


# Shapes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", (1, 2, 3, 5, 8))
@settings(few, max_examples=3)
@given(subsampled=st.booleans(), **{k: v for k, v in shapes.items() if k != "d"})
def test_single_draws_of_any_shape(d, name, family, subsampled, N, M, seed):
    """Also with negative entries on the diagonal of L, which the second w has."""
    test_lines.test_single_draws(cv, name, family, subsampled, d=d, M=M, N=N, seed=seed)


@few
@given(**shapes)
def test_batched_equals_looped_equals_alone(name, family, d, N, M, seed):
    test_lines.test_batched_equals_looped(cv, name, family, d=d, M=M, N=N, seed=seed)


@few
@given(B=st.integers(1, 4), **shapes)
def test_a_batch_is_the_mean_of_its_points(name, family, d, N, M, B, seed):
    test_lines.test_batches(cv, name, family, d, M, N, B, seed)


@few
@given(constant=st.booleans(), **{k: v for k, v in shapes.items() if k != "M"})
def test_mean_over_the_data_is_the_whole_data_set(name, family, d, N, seed, constant):
    test_lines.test_data_average(cv, name, family, d, N, seed, constant)


def test_given_array_and_unchecked_evaluation():
    p, model, q, w, lines = test_lines.setting(cv, "logistic", "Gaussian")
    draw = cv.draw(model, q, w, M=3, rng=np.random.default_rng(0))
    some = [line for line, *_ in lines.values()][:7]
    out = np.full((2, 7, 3, q.D), np.nan)  # what stood there before must not show
    assert cv.evaluate(some, draw, out=out) is out
    assert_allclose(out, cv.evaluate(some, draw), rtol=1e-12)
    assert_allclose(cv.evaluate(some, draw, check=False), out, rtol=1e-12)
    assert cv.evaluate([], draw).shape == (2, 0, 3, q.D)


# Arithmetic and names ---------------------------------------------------------------------------


@pytest.fixture
def logistic():
    p, model, q, w, _ = test_lines.setting(cv, "logistic", "Gaussian")
    return (*cv.terms(model, q), model, q, w[0])


def test_a_line_prints_as_it_is_written(logistic):
    data, prior, variational, *_ = logistic
    names = dict(data=data, prior=prior, variational=variational, one=one)
    for text in [
        "CF(taylor_z(data)) - RP1(taylor_z(data))",
        "RP1(data) + RP1(prior) - CF(variational)",
        "RP1(taylor_x(data)) - RP1(taylor_x(data).over_all_data())",
        "CF(bound(data)) - SF(bound(data))",
        "SF(one)",
        "2*RP1(data) - 0.5*RP2(data)",
        "-RP1(data)",
        "RP2(taylor_z(data).over_all_data())",
    ]:
        line = eval(text, globals(), names)
        assert repr(line) == text
        assert repr(eval(repr(line), globals(), names)) == text
    assert repr(RP1(data) - RP1(data)) == "0"
    assert repr(RP1(data + prior)) == "RP1(data) + RP1(prior)"


def test_what_a_line_estimates(logistic):
    data, prior, variational, *_ = logistic
    h = RP1(data) + RP1(prior) - CF(variational)
    assert h.target == {"data": 1, "prior": 1, "variational": -1} and not h.is_control_variate
    for c in [
        RP1(data) - RP2(data),
        SF(one),
        CF(taylor_z(data)) - SF(taylor_z(data)),
        SF(data.over_all_data()) - RP1(data),
        RP1(data + prior) - RP1(data) - RP2(prior),
        (RP1(data) - RP2(data)) / 3 - 2 * (RP1(prior) - CF(prior)),
    ]:
        assert c.is_control_variate, repr(c)


def test_quadratic_integrands_are_their_own_expansion(logistic):
    data, prior, variational, model, q, w = logistic
    assert taylor_z(prior - variational).parts == (prior - variational).parts
    assert taylor_z(bound(data)).parts == bound(data).parts
    assert bound(data + prior).parts == (bound(data) + prior).parts
    linear = oracles.build(cv, oracles.problem("linear"))
    exact = cv.terms(linear, q)[0]
    assert taylor_z(exact).parts == exact.parts


# Illegal lines fail when they are written -------------------------------------------------------


@pytest.mark.parametrize("name", oracles.PROBLEMS)
@pytest.mark.parametrize("family", oracles.FAMILIES)
def test_every_illegal_line_is_refused_by_name(name, family):
    """All that the enumeration calls illegal: a ValueError with the term and what to write."""
    p = oracles.problem(name)
    model, q = oracles.build(cv, p), getattr(cv.families, family)(p.d)
    illegal = test_lines.every_line(cv, p, model, q)[1]
    assert len(illegal) >= 6
    for text, function, f in illegal:
        with pytest.raises(
            ValueError, match=r"'(data|prior|variational|one|taylor_z|taylor_x)|taylor_x"
        ) as e:
            function(f)
        advice = str(e.value).partition("try ")[2]
        assert advice or "has no bound" in str(e.value), text
        for word in re.findall(r"\b(RP1|PR)\b(?!\()", advice):  # what it advises may be written
            getattr(cv, word)(f)
    refused = {text.split()[0] for text, *_ in illegal}
    in_x = {"SF", "PR", "CF"} if p.glm and not p.offset.any() else {"taylor_x(data)"}
    assert refused >= {"RB", "QD", "taylor_x(prior)"} | in_x


def own_terms():
    p = oracles.problem("curved")
    return cv.terms(oracles.build(cv, p), cv.families.Gaussian(p.d))


def test_closed_form_of_a_logistic_likelihood(logistic):
    data, prior, *_ = logistic
    with pytest.raises(ValueError, match=r"'data' of <logistic.*try CF\(taylor_z\(data\)\)"):
        CF(data)
    with pytest.raises(ValueError, match="'data'"):
        CF(data + prior)
    with pytest.raises(ValueError, match=r"'taylor_x\(data\)'"):
        CF(taylor_x(data))
    with pytest.raises(ValueError, match=r"'prior' of <own model.*try CF\(taylor_z"):
        CF(own_terms()[1])


def test_approximations_that_do_not_exist(logistic):
    data, prior, variational, *_ = logistic
    own_data, own_prior, _ = own_terms()
    for write, message in [
        (lambda: taylor_x(prior), "'prior' has none: try taylor_x"),
        (lambda: taylor_x(data + prior), "'prior' has none"),
        (lambda: taylor_x(own_data), r"own model.*try taylor_z\(data\)"),
        (lambda: taylor_x(taylor_z(data)), r"'taylor_z\(data\)'"),
        (lambda: bound(own_data), r"'data' of <own model.*try taylor_z\(data\)"),
        (lambda: bound(own_prior), "'prior' has no bound"),
        (lambda: bound(taylor_x(data)), r"'taylor_x\(data\)' has no bound"),
        (lambda: taylor_z(taylor_x(data)), r"'taylor_x\(data\)'.*try taylor_z\(data\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            write()


def test_differences_of_two_different_terms_are_refused_where_they_are_used(logistic):
    data, prior, variational, model, q, w = logistic
    h = RP1(data) + RP1(prior) - CF(variational)
    for line, left_over in [
        (RP1(prior) - RP2(data), "it estimates {'prior': 1, 'data': -1}"),
        (CF(taylor_z(data)) - SF(data), "'data': -1"),
        (RP1(taylor_x(data)) - RP1(data.over_all_data()), "'data': -1"),
        (CF(bound(data)) - CF(taylor_z(data)), r"'taylor_z(data)': -1"),
        (RP1(data) - (1 + 1e-9) * RP2(data), "'data': -1"),
        (RP1(data) - (1 - 1e-13) * RP2(data), "'data': "),
        (RP1(taylor_x_slope(data)) - RP2(taylor_x_slope(data)), "RP2(taylor_x_slope(data))"),
        (SF(one) - RP1(prior), "'prior': -1"),
    ]:
        with pytest.raises(ValueError, match=re.escape(left_over)):
            estimators.check_variate(line)
        with pytest.raises(ValueError, match="is no control variate"):
            cv.optimize.sgd(model, q, h, [line], lr=0.1, steps=1, M=2, rng=np.random.default_rng(0))
        with pytest.raises(ValueError, match="must estimate data"):
            estimators.check_gradient(h + line)


def test_the_order_of_writing_does_not_matter(logistic):
    data, prior, variational, model, q, w = logistic
    T = taylor_z(data)
    h = RP1(data) + RP1(prior) - CF(variational)
    draw = cv.draw(model, q, w, M=3, rng=np.random.default_rng(0))
    first = h - RP1(T) + CF(T)
    for same in [h + CF(T) - RP1(T), CF(T) - (RP1(T) - h), -RP1(T) - CF(variational) + h + CF(T)
                 + CF(variational)]:  # fmt: skip
        assert same.parts == first.parts and same.target == first.target
        assert_allclose(same(draw), first(draw), rtol=1e-12, atol=1e-12)
    third = RP1(data) / 3
    estimators.check_gradient(h - RP1(data) + third + third + third)  # but for rounding
    estimators.check_variate(0.1 * RP1(data) + 0.2 * RP1(data) - 0.3 * RP2(data))


@settings(few, max_examples=60)
@given(
    st.data(),
    st.lists(st.fractions(-9, 9, max_denominator=12).filter(bool), min_size=1, max_size=5),
)
def test_any_order_of_writing_is_the_same_line(chosen, coefficients):
    """Random coefficients of random words, balanced term by term: a variate in every order; with a
    bias of 1e-9 or 1e-13 of its size, in none."""
    data, prior = terms_of("logistic", "Gaussian")[:2]
    words, atoms = [RP1, RP2, cv.PR, SF], [data, prior, taylor_z(data), data.over_all_data()]
    pick = lambda some: chosen.draw(st.sampled_from(some))
    pieces = []
    for c in coefficients:
        f = pick(atoms)
        pieces += [(c, pick(words)(f)), (-c, pick(words)(f.over_all_data()))]
    for at in range(0, len(pieces), 3):  # some coefficients in parts that floats do not add up to
        c, line = pieces[at]
        pieces[at : at + 1] = [(c / 3, line), (c / 3, line), (c / 3, line)]
    size = sum(abs(c) for c, _ in pieces)
    orders = [pieces] + [chosen.draw(st.permutations(pieces)) for _ in range(3)]
    for bias in (0, 1e-9, -1e-13):
        for order in orders:
            line = 0 * RP1(data) + bias * float(size) * RP1(prior)
            for c, part in order:
                line = line + float(c) * part
            assert line.is_control_variate == (bias == 0), f"{line!r}: {line.target}"
            assert set(line.target) <= {"prior"}


def test_terms_of_two_models_do_not_mix(logistic):
    data, prior, variational, model, q, w = logistic
    other = oracles.build(cv, oracles.problem("logistic"))
    data2, prior2, _ = cv.terms(other, q)
    data3, *_ = cv.terms(model, cv.families.DiagonalGaussian(2))
    for write in [
        lambda: RP1(data) - RP2(data2),
        lambda: RP1(data) + RP1(prior2),
        lambda: RP1(data + prior2),
        lambda: RP1(data) - RP1(data3),
    ]:
        with pytest.raises(ValueError, match="two models or families"):
            write()
    draw = cv.draw(other, q, w, M=2, rng=np.random.default_rng(0))
    for line in [RP1(data), SF(one) + RP1(data), RP1(data2) * 0 + RP1(prior)]:
        with pytest.raises(ValueError, match="different models or families"):
            line(draw)
    assert np.all(np.isfinite(SF(one)(draw)))  # `one` belongs to every model


def test_things_that_are_no_lines(logistic):
    data, prior, variational, model, q, w = logistic
    draw = cv.draw(model, q, w, M=2, rng=np.random.default_rng(0))
    for write, message in [
        (lambda: RP1(3), "RP1 takes an integrand"),
        (lambda: RP1(RP1(data)), "RP1 takes an integrand"),
        (lambda: CF("data"), "CF takes an integrand"),
        (lambda: taylor_z(RP1(data)), "taylor_z takes an integrand"),
        (lambda: RP1(data) + data, "cannot add data"),
        (lambda: RP1(data) - 1, "cannot subtract 1"),
        (lambda: RP1(data) * RP1(data), "only by a number"),
        (lambda: cv.evaluate(RP1(data), draw), "list of lines"),
        (lambda: cv.evaluate([data], draw), "data is no estimator"),
    ]:
        with pytest.raises(TypeError, match=message):
            write()


def test_expansion_in_x_about_one_mean_of_two_classes():
    """phi of a logistic model is not linear in y between -1 and 1: drawn and all data agree yet."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((6, 2)), np.array([1.0, -1, 1, 1, -1, 1])
    model = cv.models.GLM(X, y, replace(cv.models.LOGISTIC, classes=False))
    q = cv.families.Gaussian(2)
    f = taylor_x(cv.terms(model, q)[0])
    eps = np.repeat(rng.standard_normal((1, 2)), 6, 0)  # one eps, every data point
    draw = cv.draw(model, q, q.start(), eps=eps, index=np.arange(6))
    for word in (SF, RP1, RP2):
        assert_allclose((word(f) - word(f.over_all_data()))(draw).mean(0), 0, atol=1e-12)
