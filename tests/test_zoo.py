"""The zoo: which lines are legal, that each has mean zero, what each can remove, who wrote it.

Means are exact for Gaussian families, over quadrature nodes times all data points.
"""

import itertools
from functools import cache

import autograd.numpy as anp
import numpy as np
import oracles
import pytest
import test_lines
from harness import part
from numpy.testing import assert_allclose
from scipy import stats

import cvlib as cv
from experiments import catalogue

DRAWN = [c for c in test_lines.CONFIGURATIONS if c[2]]
ALSO_WHOLE = DRAWN + [c[:2] + (False,) for c in DRAWN if c[0] == "logistic"]
SUMS = {text: parts for text, parts in test_lines.TERMS.items() if "*" not in text} | {
    "data - variational": {"data": 1, "variational": -1},
    "prior - variational": {"prior": 1, "variational": -1},
}  # every sum of the ELBO's parts, and `one`


@cache
def problem(cv, name, family):
    return test_lines.setting(cv, name, family)[:4]


def unsigned(line):
    """A line's parts, the same for a line and its negative."""
    parts = sorted((method.name, atom.name, coef) for (method, atom), coef in line.parts.items())
    sign = np.sign(parts[0][2]) if parts else 1
    return tuple((method, atom, sign * coef) for method, atom, coef in parts)


@cache
def legal(cv, name, family, subsampled=True):
    _, model, q, _ = problem(cv, name, family)
    return part(cv, "experiments.catalogue").legal(model, q, subsample=subsampled)


def evaluated(cv, lines, draw):
    """Every line's gradients, (lines, ..., M, D), from its parts, each of them evaluated once."""
    parts, A = part(cv, "experiments.catalogue").spanned(lines)
    return np.tensordot(A, np.moveaxis(cv.evaluate(parts, draw), -3, 0), 1)


@pytest.mark.parametrize("name, family, subsampled", ALSO_WHOLE)
def test_complete(cv, name, family, subsampled):
    """All legal lines are listed, or are zero or a multiple of a listed one, at another w."""
    p, model, q, w = problem(cv, name, family)
    listed = legal(cv, name, family, subsampled)
    keys = [unsigned(c.line) for c in listed]
    assert len(set(keys)) == len(keys), "a line is listed twice"
    every = test_lines.every_line(cv, p, model, q, SUMS)[0]  # by the tests' own account
    seen = {text: line for text, line in every.items() if subsampled or not line[3]}
    right = {unsigned(line): line for line in test_lines.pairs(seen).values() if line.parts}
    assert set(keys) <= set(right), "a line that is not legal"
    w = np.abs(w[0])  # where the diagonal Gaussian has one reparameterisation
    draw = cv.draw(model, q, w, M=5, rng=np.random.default_rng(5), subsample=subsampled)
    table = evaluated(cv, list(right.values()), draw)
    values = {k: value.ravel() for k, value in zip(right, table)}
    unit = {k: v / np.linalg.norm(v) for k, v in values.items() if np.abs(v).max() > 1e-8}
    assert set(keys) <= set(unit), "a line that is zero"
    distinct = np.array([unit[k] for k, c in zip(keys, listed) if not c.same_as])
    twins = np.abs(distinct @ distinct.T) - np.eye(len(distinct))
    assert twins.max() < 1 - 1e-9, "two distinct lines are multiples of each other"
    for k in set(right) - set(keys):
        if k in unit:
            assert np.abs(distinct @ unit[k]).max() > 1 - 1e-9, f"{right[k]!r} is missing"
    for k, c in zip(keys, listed):
        assert c.line.is_control_variate and c.line.parts
        if c.same_as:
            other = [unit[k] for k, o in zip(keys, listed) if repr(o.line) == c.same_as]
            assert len(other) == 1 and abs(other[0] @ unit[k]) > 1 - 1e-9


def test_records(cv):
    """Term, approximation and pair of every record give its line again."""
    for name, family in itertools.product(("logistic", "curved"), oracles.FAMILIES):
        _, model, q, _ = problem(cv, name, family)
        names = dict(zip(("data", "prior", "variational"), cv.terms(model, q)), one=cv.one)

        @cache
        def write(term, approximation, way):
            f = eval(term, names)
            f = getattr(cv, approximation)(f) if approximation else f
            f = f.over_all_data() if " all" in way else f
            return getattr(cv, way.removesuffix(" all"))(f)

        for c in legal(cv, name, family):
            a, b = (write(c.term, c.approximation, way) for way in c.pair)
            assert (a - b).parts == c.line.parts
            moments = c.approximation in ("taylor_x", "taylor_x_slope")
            assert c.passes_over_data == (".over_all_data()" in repr(c.line) and not moments)


@pytest.mark.parametrize("name, family, subsampled", DRAWN)
def test_means_and_noises(cv, name, family, subsampled):
    """Mean zero, exactly; and the shares of the noise that a record says it has, and no other."""
    p, model, q, w = problem(cv, name, family)
    variates = legal(cv, name, family, subsampled)
    draw, weight = test_lines.grid_draw(cv, p, model, q, w, subsampled, nodes=14)
    assert len(variates) > 15
    for start in range(0, len(variates), 100):
        some = variates[start : start + 100]
        table = evaluated(cv, [c.line for c in some], draw)  # (lines, 2, K N, D)
        assert_allclose(table[-1], some[-1].line(draw), rtol=1e-9, atol=1e-9)
        for c, values in zip(some, table.reshape(len(some), 2, len(weight), p.N, q.D)):
            given_i, given_eps = np.einsum("k,rknd->rnd", weight, values), values.mean(2)
            size = 1 + np.abs(values).max()
            assert_allclose(given_i.mean(1), 0, atol=1e-9 * size, err_msg=repr(c))
            rest = values - given_i[:, None] - given_eps[:, :, None]
            there = {"data": given_i, "q": given_eps, "both": rest}
            found = tuple(s for s, part in there.items() if np.abs(part).max() > 1e-8 * size)
            assert c.noises == found, f"{c!r}: {c.noises}, but it has {found}"


def test_other_families_join_by_themselves():
    """Gamma, beta, Bernoulli, categorical: legal lines, each with mean zero, by Monte Carlo.

    z-scores with a bound that all coordinates share; false alarms below 1e-7.
    """
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((6, 3)), rng.standard_normal(6)
    lik = lambda z, batch: -0.5 * (batch[1] - anp.sum(batch[0] * anp.tanh(z), -1)) ** 2
    worst, coordinates, F = 0.0, 0, cv.families
    for q in F.Gamma(3), F.Beta(3), F.Bernoulli(3), F.Categorical(1, 3):
        model = cv.models.Model(lik, lambda z: -0.5 * anp.sum(z**2, -1), (X, y), q.dim)
        variates = catalogue.legal(model, q)
        assert any(c.name == "score" for c in variates)
        assert {c.approximation for c in variates if "RP" in "".join(c.pair)} <= {"relax"}
        relaxed = [c for c in variates if c.approximation == "relax"]
        assert bool(relaxed) == hasattr(q, "squash")
        assert sum(c.name == "REBAR" for c in variates) == bool(relaxed)
        if relaxed:  # on the drawn data and on all data, as every other approximation
            assert {"GR", "RP1", "RP1 all"} <= {way for c in relaxed for way in c.pair}
        w = q.start() + 0.3 * rng.uniform(-1, 1, q.D)
        draw = cv.draw(model, q, w, M=5_000, rng=rng)
        C = evaluated(cv, [c.line for c in variates], draw)
        z = np.abs(C.mean(1)) / (C.std(1) / np.sqrt(draw.M) + 1e-12)
        worst, coordinates = max(worst, z.max()), coordinates + z.size
    assert coordinates > 300
    assert worst < stats.norm.isf(1e-7 / 2 / 2000)


def test_names(cv):
    _, model, q, _ = problem(cv, "logistic", "Gaussian")
    lines = cv.zoo.published(model, q)
    known = {
        "score": "SF(one) - CF(one)",
        "c1": "RP1(variational) - CF(variational)",
        "c1 by SF": "SF(variational) - CF(variational)",
        "c2": "RP1(prior) - CF(prior)",
        "c3": "RP1(prior) - RP2(prior)",
        "c4": "RP1(data) - RP2(data)",
        "Wang": "RP1(taylor_x_slope(data)) - RP1(taylor_x_slope(data).over_all_data())",
        "c5": "RP1(taylor_x(data)) - RP1(taylor_x(data).over_all_data())",
        "c6": "RP2(taylor_x(data)) - RP2(taylor_x(data).over_all_data())",
        "c7": "CF(taylor_z(data)) - RP1(taylor_z(data))",
        "Miller": "CF(taylor_z(data)) + CF(prior) - RP1(taylor_z(data)) - RP1(prior)",
        "Paisley": "CF(taylor_z(data)) + CF(prior) - SF(taylor_z(data)) - SF(prior)",
        "Paisley, bound": "CF(bound(data)) + CF(prior) - SF(bound(data)) - SF(prior)",
        "joint": "RP1(taylor_z(data)) - CF(taylor_z(data).over_all_data())",
    }
    assert {name: repr(line) for name, line in lines.items()} == known
    listed = legal(cv, "logistic", "Gaussian")
    for name, line in lines.items():
        (c,) = [c for c in listed if c.name == name] or [None]  # None: missing
        assert c is not None and unsigned(c.line) == unsigned(line)
        assert c.published == cv.zoo.PUBLISHED[name][0] and c.published
    assert not any(c.published for c in listed if not c.name)
    paper = cv.zoo.paper(model, q)
    order = [paper.c2, paper.c1, paper.c3, paper.c4, paper.c6, paper.c5, paper.c7]
    for k in range(4, 8):
        assert [c.parts for c in getattr(paper, f"S{k}")] == [c.parts for c in order[:k]]
    for k in range(1, 8):
        assert getattr(paper, f"c{k}").parts == lines[f"c{k}"].parts
    slopes = cv.zoo.paper(model, q, in_x=cv.taylor_x_slope)
    assert repr(slopes.c5) == repr(paper.c5).replace("taylor_x", "taylor_x_slope")
    assert repr(slopes.c6) == repr(paper.c6).replace("taylor_x", "taylor_x_slope")
    assert [c.parts for c in slopes.S7[4:6]] == [slopes.c6.parts, slopes.c5.parts]
    twins = {c.name: c.same_as for c in listed if c.same_as}
    assert twins == {"score": known["c1"]}


def test_names_that_a_model_or_family_does_not_allow():
    _, model, q, _ = problem(cv, "poisson", "Gaussian")
    assert set(cv.zoo.PUBLISHED) - set(cv.zoo.published(model, q)) == {"Paisley, bound", "REBAR"}
    _, model, q, _ = problem(cv, "curved", "Gaussian")  # a prior of its own, no GLM
    missing = set(cv.zoo.PUBLISHED) - set(cv.zoo.published(model, q))
    assert missing == {"c2", "Wang", "c5", "c6", "Paisley, bound", "REBAR"}
    with pytest.raises(ValueError, match="own model.*zoo.published"):
        cv.zoo.paper(model, q)
    _, model, q, _ = problem(cv, "logistic", "DiagonalGaussian")
    listed = {c.name: c for c in legal(cv, "logistic", "DiagonalGaussian") if c.name}
    assert set(cv.zoo.PUBLISHED) - set(listed) == {"c3", "c4", "REBAR"}  # c3, c4: the roots are one
    assert listed["c6"].same_as == repr(listed["c5"].line)
