"""Plausible bugs beyond the Gaussian, each put into a copy of the package; every one is caught.

`pytest -s tests/test_nongaussian_mutants.py` prints the table: bug, first check that saw it.
"""

import numpy as np
import pytest
import test_nongaussian
import test_relaxations
from test_mutants import copy_with_bug, first_alarm

# (name, module, what stands in its source exactly once, what the bug makes of it)
FAMILY_MUTANTS = [
    # generalised reparameterisation
    (
        "GR as the paper prints it: the score of q",
        "estimators",
        "value)[..., None] * draw.base_score",
        "value)[..., None] * draw.score",
    ),
    ("GR without its score", "estimators", 'if line.by["GR"] and draw', "if False and draw"),
    (
        "base score forgets how z moves",
        "nongaussian",
        "draw.score + (moved + stretched)",
        "draw.score + (0 * moved + stretched)",
    ),
    (
        "base score forgets the stretch",
        "nongaussian",
        "draw.score + (moved + stretched)",
        "draw.score + (moved + 0 * stretched)",
    ),
    (
        "base score subtracts the motion",
        "nongaussian",
        "draw.score + (moved + stretched)",
        "draw.score - (moved + stretched)",
    ),
    (
        "spread of z held fixed",
        "nongaussian",
        "dm[..., None, :, :] + ds[..., None, :, :] * draw.eps[..., None, :]",
        "dm[..., None, :, :] + 0 * ds[..., None, :, :] * draw.eps[..., None, :]",
    ),
    (
        "gamma: a factor 2 in the spread's derivative",
        "nongaussian",
        "ds = a * polygamma(2, a) / (2 * np.sqrt",
        "ds = a * polygamma(2, a) / (1 * np.sqrt",
    ),
    (
        "gamma: derivative in a, not in log a",
        "nongaussian",
        "np.stack([a * polygamma(1, a), -one], -2)",
        "np.stack([polygamma(1, a), -one], -2)",
    ),
    (
        "gamma: scale taken for rate",
        "nongaussian",
        "return _log_gamma(rng, a, M) - w[",
        "return _log_gamma(rng, a, M) + w[",
    ),
    (
        "gamma: density in x, not in log x",
        "nongaussian",
        "anp.sum(a * (log_b + z) - gammaln(a)",
        "anp.sum(a * (log_b + z) - z - gammaln(a)",
    ),
    (
        "gamma: plain sampling, which underflows",
        "nongaussian",
        "return np.log(rng.standard_gamma(shape + 1)) -",
        "return np.log(np.maximum(rng.standard_gamma(shape), 1e-300)) - 0 *",
    ),
    (
        "gamma: the boost uses the shape twice",
        "nongaussian",
        "rng.standard_exponential(shape.shape) / shape",
        "rng.standard_exponential(shape.shape) / (shape + 1)",
    ),
    (
        "gamma: the mean of e^z left out of the prior",
        "nongaussian",
        "a * (av * polygamma(1, a) - bv / b), bv * a / b - av",
        "a * (av * polygamma(1, a) - 1), bv * a / b - av",
    ),
    (
        "beta: score without the normaliser's part",
        "nongaussian",
        "a * (log_x - psi(a) + both), b",
        "a * (log_x - psi(a)), b",
    ),
    (
        "beta: variances subtracted",
        "nongaussian",
        "[a * polygamma(2, a), b * polygamma(2, b)]",
        "[a * polygamma(2, a), -b * polygamma(2, b)]",
    ),
    (
        "beta: closed form forgets psi'(a + b)",
        "nongaussian",
        "both = (av + bv) * polygamma(1, a + b)",
        "both = 0 * (av + bv) * polygamma(1, a + b)",
    ),
    (
        "closed form of a quadratic forgets the variance",
        "nongaussian",
        "bend[..., None, :] * ds  #",
        "0 * bend[..., None, :] * ds  #",
    ),
    # discrete families
    (
        "Bernoulli: z for 1 - z",
        "nongaussian",
        "return (self.zeta(draw) > 0).astype(float)",
        "return (self.zeta(draw) < 0).astype(float)",
    ),
    (
        "Bernoulli: closed form in p, not in the logit",
        "nongaussian",
        "return expit(w) * expit(-w) * v",
        "return expit(w) * v",
    ),
    (
        "Bernoulli: variance's derivative loses a half",
        "nongaussian",
        "(s * (expit(-w) - p) / 2)",
        "(s * (expit(-w) - p))",
    ),
    (
        "categorical: chain rule stops at log p",
        "nongaussian",
        "return u - p * self.join(",
        "return u - 0 * p * self.join(",
    ),
    (
        "variational term follows w",
        "integrands",
        "return self.q.cross_grad(draw.w, self.v(draw))[..., None, :]",
        "return 0 * self.q.cross_grad(draw.w, self.v(draw))[..., None, :]",
    ),
]
RELAXATION_MUTANTS = [
    # the relaxation
    (
        "REBAR: coupling swapped between z = 0 and z = 1",
        "nongaussian",
        "np.abs(zeta)) * expit(sign * noise)",
        "np.abs(zeta)) * expit(-sign * noise)",
    ),
    (
        "REBAR: v taken for 1 - v",
        "nongaussian",
        "np.log1p(v * np.exp(w)) - np.log1p(-v)",
        "np.log1p((1 - v) * np.exp(w)) - np.log(v)",
    ),
    (
        "REBAR: derivative through the conditional draw forgotten",
        "relaxations",
        "q.pull_zeta(draw, moved * u)",
        "q.pull_zeta(draw, 0 * moved * u)",
    ),
    (
        "REBAR: conditional draw moved like zeta itself",
        "relaxations",
        "q.pull_zeta(draw, moved * u)",
        "q.pull_zeta(draw, u)",
    ),
    (
        "REBAR: score of zeta for the score of z",
        "relaxations",
        "return zeta, draw.score, lambda u",
        "return zeta, q.zeta_score(draw), lambda u",
    ),
    (
        "REBAR: value at zeta, not at zeta given z",
        "relaxations",
        "return zeta, draw.score, lambda u",
        "return q.zeta(draw), draw.score, lambda u",
    ),
    (
        "Bernoulli: signs not turned for z = 0",
        "nongaussian",
        "w = sign * draw.w[..., None, :]",
        "w = draw.w[..., None, :]",
    ),
    (
        "score of zeta: logistic scale lost",
        "nongaussian",
        "np.tanh(self.halves(draw)[0] / 2)",
        "np.tanh(self.halves(draw)[0])",
    ),
    (
        "categorical: the clocks remember",
        "nongaussian",
        "later = np.logaddexp(first, log_E",
        "later = np.maximum(first, log_E",
    ),
    (
        "categorical: rates forgotten after the first ring",
        "nongaussian",
        "log_E - self.log_p(draw.w)[..., None, :])",
        "log_E - 0 * self.log_p(draw.w)[..., None, :])",
    ),
    (
        "relaxation without its temperature",
        "relaxations",
        "draw.q.squash(zeta, tau))",
        "draw.q.squash(zeta, 1.0))",
    ),
    # the surrogate
    ("RELAX: sign of the variance's gradient", "relaxations",
     "total = total - 2 * anp.sum(by_value", "total = total + 2 * anp.sum(by_value"),
    ("RELAX: slopes not trained", "relaxations",
     "total = total - 2 * anp.sum(by_slope * slope)", "total = total"),
    ("RELAX: gradient not averaged over samples", "relaxations",
     "/ (g.size / g.shape[-1])", "/ 1.0"),
    ("RELAX: coefficient of a part lost", "relaxations",
     "coef * _adjoint(pull", "_adjoint(pull"),
]  # fmt: skip

MUTANTS = FAMILY_MUTANTS + RELAXATION_MUTANTS
FAMILIES, RELAXATIONS = test_nongaussian.PROPERTIES, test_relaxations.PROPERTIES


def test_the_unchanged_copy_raises_no_alarm(tmp_path):
    same = "import elementwise_grad, grad"
    copy_with_bug(tmp_path, "relaxations", same, same)
    assert not set(FAMILIES) & set(RELAXATIONS)
    assert first_alarm(tmp_path, {**FAMILIES, **RELAXATIONS}) is None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name, module, old, new", MUTANTS, ids=[m[0] for m in MUTANTS])
def test_mutant_is_caught(tmp_path, name, module, old, new):
    copy_with_bug(tmp_path, module, old, new)
    with np.errstate(all="ignore"):
        family = name in {m[0] for m in FAMILY_MUTANTS}  # the checks that look there come first
        both = (FAMILIES, RELAXATIONS) if family else (RELAXATIONS, FAMILIES)
        alarm = first_alarm(tmp_path, both[0] | both[1])
    print(f"\n{module:12} {name:56} {alarm or 'NOT CAUGHT'}", end="")
    assert alarm is not None


def test_a_patch_that_does_not_apply_fails(tmp_path):
    with pytest.raises(AssertionError, match="no longer applies"):
        copy_with_bug(tmp_path, "relaxations", "these words are not in the source", "")


def test_the_list_names_the_bugs_that_matter_most():
    names = " ".join(m[0] for m in MUTANTS)
    assert len({m[0] for m in MUTANTS}) == len(MUTANTS) >= 10
    for bug in ("as the paper prints it", "coupling swapped", "conditional draw forgotten"):
        assert bug in names
