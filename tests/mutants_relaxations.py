"""Plausible bugs of relaxations and surrogates; harness.py says what the entries are."""

MUTANTS = [
    # the relaxation
    (
        "REBAR: coupling swapped between z = 0 and z = 1",
        "nongaussian.py",
        "np.abs(zeta)) * expit(sign * noise)",
        "np.abs(zeta)) * expit(-sign * noise)",
    ),
    (
        "REBAR: v taken for 1 - v",
        "nongaussian.py",
        "np.log1p(v * np.exp(w)) - np.log1p(-v)",
        "np.log1p((1 - v) * np.exp(w)) - np.log(v)",
    ),
    (
        "REBAR: derivative through the conditional draw forgotten",
        "relaxations.py",
        "q.pull_zeta(draw, moved * u)",
        "q.pull_zeta(draw, 0 * moved * u)",
    ),
    (
        "REBAR: conditional draw moved like zeta itself",
        "relaxations.py",
        "q.pull_zeta(draw, moved * u)",
        "q.pull_zeta(draw, u)",
    ),
    (
        "REBAR: score of zeta for the score of z",
        "relaxations.py",
        "return zeta, draw.score, lambda u",
        "return zeta, q.zeta_score(draw), lambda u",
    ),
    (
        "REBAR: value at zeta, not at zeta given z",
        "relaxations.py",
        "return zeta, draw.score, lambda u",
        "return q.zeta(draw), draw.score, lambda u",
    ),
    (
        "Bernoulli: signs not turned for z = 0",
        "nongaussian.py",
        "w = sign * draw.w[..., None, :]",
        "w = draw.w[..., None, :]",
    ),
    (
        "score of zeta: logistic scale lost",
        "nongaussian.py",
        "np.tanh(self.halves(draw)[0] / 2)",
        "np.tanh(self.halves(draw)[0])",
    ),
    (
        "categorical: the clocks remember",
        "nongaussian.py",
        "later = np.logaddexp(first, log_E",
        "later = np.maximum(first, log_E",
    ),
    (
        "categorical: rates forgotten after the first ring",
        "nongaussian.py",
        "log_E - self.log_p(draw.w)[..., None, :])",
        "log_E - 0 * self.log_p(draw.w)[..., None, :])",
    ),
    (
        "relaxation without its temperature",
        "relaxations.py",
        "draw.q.squash(zeta, tau))",
        "draw.q.squash(zeta, 1.0))",
    ),
    # the surrogate
    ("RELAX: sign of the variance's gradient", "relaxations.py",
     "total = total - 2 * anp.sum(by_value", "total = total + 2 * anp.sum(by_value"),
    ("RELAX: slopes not trained", "relaxations.py",
     "total = total - 2 * anp.sum(by_slope * slope)", "total = total"),
    ("RELAX: gradient not averaged over samples", "relaxations.py",
     "/ (g.size / g.shape[-1])", "/ 1.0"),
    ("RELAX: coefficient of a part lost", "relaxations.py",
     "coef * _adjoint(pull", "_adjoint(pull"),
]  # fmt: skip
