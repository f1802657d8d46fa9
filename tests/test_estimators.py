"""Every line a reader can write: checks of test_lines.py at any shape, names and errors."""

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

import cvlib as cv
from cvlib import CF, RP1, RP2, SF, bound, parabola, taylor_x, taylor_z

few = settings(deadline=None, derandomize=True, max_examples=6, database=None)
shapes = {
    "name": st.sampled_from(oracles.PROBLEMS),
    "family": st.sampled_from(oracles.FAMILIES),
    "d": st.integers(1, 8),
    "N": st.sampled_from([1, 2, 5]),
    "M": st.sampled_from([1, 3]),
    "seed": st.integers(0, 9),
}


fractions = st.fractions(-9, 9, max_denominator=12)


@cache
def terms_of(name):
    return cv.terms(oracles.build(cv, oracles.problem(name)), cv.families.Gaussian(2))


@pytest.mark.parametrize("d", (1, 2, 3, 5, 8))
@settings(few, max_examples=2)
@given(subsampled=st.booleans(), **{k: v for k, v in shapes.items() if k != "d"})
def test_single_draws_of_any_shape(d, name, family, subsampled, N, M, seed):
    """Also with negative entries on the diagonal of L, which the second w has."""
    test_lines.test_single_draws(cv, name, family, subsampled, d=d, M=M, N=N, seed=seed)


@few
@given(**shapes)
def test_batched_equals_looped_equals_alone(name, family, d, N, M, seed):
    test_lines.test_batched_equals_looped(cv, name, family, d=d, M=M, N=N, seed=seed)


@few
@given(B=st.integers(1, 4), constant=st.booleans(), **shapes)
def test_a_batch_is_the_mean_of_its_points(name, family, d, N, M, B, seed, constant):
    test_lines.test_batches(cv, name, family, d, M, N, B, seed, constant)


def test_given_array_and_unchecked_evaluation():
    p, model, q, w, lines = test_lines.setting(cv, "logistic", "Gaussian")
    draw = cv.draw(model, q, w, M=3, rng=np.random.default_rng(0))
    some = [line for line, *_ in lines.values()][:7]
    out = np.full((2, 7, 3, q.D), np.nan)  # what stood there before must not show
    assert cv.evaluate(some, draw, out=out) is out
    assert_allclose(out, cv.evaluate(some, draw), rtol=1e-12)
    assert_allclose(cv.evaluate(some, draw, check=False), out, rtol=1e-12)
    assert cv.evaluate([], draw).shape == (2, 0, 3, q.D)


def test_a_line_prints_as_it_is_written():
    data, prior, variational = terms_of("logistic")
    names = vars(cv) | {"data": data, "prior": prior, "variational": variational}
    h = RP1(data) + RP1(prior) - CF(variational)
    assert h.target == {"data": 1, "prior": 1, "variational": -1} and not h.is_control_variate
    for text in (
        "SF(one)", "-RP1(data)", "2*RP1(data) - 0.5*RP2(data)", "taylor_z(prior, order=1)",
        "RP1(data) + RP1(prior) - CF(variational)", "CF(taylor_z(data)) - RP1(taylor_z(data))",
        "RP1(taylor_x(data)) - RP1(taylor_x(data).over_all_data())",
        "RP2(taylor_z(data).over_all_data())",
        "CF(bound(data)) - SF(bound(data))", "CF(bound(data, at='snapshot'))",
        "taylor_z(data, at='snapshot', order=1).over_all_data()",
        "CF(taylor_z(data, at='snapshot')) - CF(taylor_z(data, at='snapshot').over_all_data())",
        "CF(parabola(data, at='snapshot').over_all_data())",
    ):  # fmt: skip
        assert repr(eval(text, names)) == text
    assert repr(RP1(data) - RP1(data)) == "0"
    assert repr(RP1(data + prior)) == "RP1(data) + RP1(prior)"
    assert repr(parabola(data + prior)) == "parabola(data) + prior"


def test_quadratic_integrands_are_their_own_expansion():
    data, prior, variational = terms_of("logistic")
    linear = terms_of("linear")[0]
    assert taylor_z(prior - variational).parts == (prior - variational).parts
    assert taylor_z(bound(data)).parts == bound(data).parts
    assert bound(data + prior).parts == (bound(data) + prior).parts
    assert taylor_z(linear).parts == parabola(linear).parts == linear.parts
    assert taylor_z(cv.one, order=1).parts == cv.one.parts


@pytest.mark.parametrize("name", oracles.PROBLEMS)
@pytest.mark.parametrize("family", oracles.FAMILIES)
def test_every_illegal_line_is_refused_by_name(name, family):
    """All that the enumeration calls illegal: a ValueError with the term and what to write."""
    p = oracles.problem(name)
    model, q = oracles.build(cv, p), getattr(cv.families, family)(p.d)
    illegal = test_lines.every_line(cv, p, model, q)[1]
    assert len(illegal) >= 6
    for text, function, f in illegal:
        terms = r"'(data|prior|variational|one|taylor_z|taylor_x)|taylor_x"
        with pytest.raises(ValueError, match=terms) as e:
            function(f)
        advice = str(e.value).partition("try ")[2]
        assert advice or "has no bound" in str(e.value), text
        for word in re.findall(r"\b(RP1|PR)\b(?!\()", advice):  # what it advises may be written
            getattr(cv, word)(f)
    refused = {text.split()[0] for text, *_ in illegal}
    in_x = {"SF", "PR", "CF"} if p.glm and not p.offset.any() else {"taylor_x(data)"}
    assert refused >= {"RB", "QD", "taylor_x(prior)"} | in_x


@settings(few, max_examples=60)
@given(st.data(), st.lists(fractions.filter(bool), min_size=1, max_size=5))
def test_any_order_of_writing_is_the_same_line(chosen, coefficients):
    """Random coefficients of random words, balanced term by term: a variate in every order; with a
    bias of 1e-9 or 1e-13 of its size, in none."""
    data, prior, _ = terms_of("logistic")
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
