"""Natural steps: the rule, its refusals, and that it is safe whatever the noise."""

import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_natural_steps import FAMILIES

import cvlib as cv
from cvlib import rules


@given(st.integers(0, 2**32), st.floats(1e-3, 1), st.floats(-6, 6), st.integers(1, 6))
@settings(deadline=None, derandomize=True, max_examples=60, database=None)
def test_every_gradient_leaves_a_gaussian(seed, rho, power, d):
    """Positive definite for any g, however wrong: finite, no zero and no turned sign in L."""
    rng = np.random.default_rng(seed)
    for family in FAMILIES:
        q, w = getattr(cv.families, family)(d), oracles.weights(family, d, seed % 1000)
        g = 10**power * rng.standard_cauchy((2, q.D)).clip(-1e6, 1e6)
        rule = rules.natural()
        after, _ = rule.step(rule.start(q, w), w, g, rho, q, 1)
        assert np.isfinite(after).all()
        diagonal = after[:, q.diag] if family == "Gaussian" else after[:, d:]
        before = w[:, q.diag] if family == "Gaussian" else w[:, d:]
        assert (np.sign(diagonal) == np.sign(before)).all()


def test_other_families_are_refused():
    with pytest.raises(ValueError, match="needs a Gaussian family, not Gamma.*rules.adam"):
        rules.natural().start(cv.families.Gamma(2), np.zeros(4))
    with pytest.raises(ValueError, match="reach"):
        rules.natural(reach=0)
