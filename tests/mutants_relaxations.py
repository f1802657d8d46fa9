"""Plausible bugs of relaxations and surrogates; harness.py says what the entries are."""

MUTANTS = [
    # the relaxation
    (
        "REBAR: coupling swapped between z = 0 and z = 1",
        "families/discrete.py",
        "np.abs(zeta)) * expit(sign * noise)",
        "np.abs(zeta)) * expit(-sign * noise)",
    ),
    (
        "REBAR: v taken for 1 - v",
        "families/discrete.py",
        "np.log1p(v * np.exp(w)) - np.log1p(-v)",
        "np.log1p((1 - v) * np.exp(w)) - np.log(v)",
    ),
    (
        "REBAR: derivative through the conditional draw forgotten",
        "families/discrete.py",
        "self.given(draw, True)[1] * u",
        "0 * self.given(draw, True)[1] * u",
    ),
    (
        "REBAR: conditional draw moved like zeta itself",
        "families/discrete.py",
        "self.given(draw, True)[1] * u",
        "u",
    ),
    (
        "REBAR: score of zeta for the score of z",
        "families/discrete.py",
        'score="score", pull=f"pull_{kind}"',
        'score="zeta_score", pull=f"pull_{kind}"',
    ),
    (
        "REBAR: value at zeta, not at zeta given z",
        "families/discrete.py",
        "return self.given(draw, False)[0]",
        "return self.zeta(draw)",
    ),
    (
        "Bernoulli: signs not turned for z = 0",
        "families/discrete.py",
        "w = sign * draw.w[..., None, :]",
        "w = draw.w[..., None, :]",
    ),
    (
        "score of zeta: logistic scale lost",
        "families/discrete.py",
        "np.tanh(self.halves(draw)[0] / 2)",
        "np.tanh(self.halves(draw)[0])",
    ),
    (
        "categorical: the clocks remember",
        "families/discrete.py",
        "later = np.logaddexp(first, log_E",
        "later = np.maximum(first, log_E",
    ),
    (
        "categorical: rates forgotten after the first ring",
        "families/discrete.py",
        "log_E - self.log_p(draw.w)[..., None, :])",
        "log_E - 0 * self.log_p(draw.w)[..., None, :])",
    ),
    (
        "relaxation without its temperature",
        "relaxations.py",
        "draw.q.squash(zeta, self.tau))",
        "draw.q.squash(zeta, 1.0))",
    ),
    (
        "a fresh zeta moved like the coupled one",
        "families/discrete.py",
        "self.given(draw, False)[1] * u",
        "self.given(draw, True)[1] * u",
    ),
    (
        "coupled and fresh are one name",
        "relaxations.py",
        '", coupled=False" * (not coupled)\n        name, target',
        '""\n        name, target',
    ),
    (
        "zeta's pull overwrites where it should add",
        "families/discrete.py",
        "out[...] = out + moved if add else moved",
        "out[...] = moved",
    ),
    # the surrogate
    (
        "RELAX: sign of the variance's gradient",
        "relaxations.py",
        "total = total - 2 * anp.sum(by_value",
        "total = total + 2 * anp.sum(by_value",
    ),
    (
        "RELAX: slopes not trained",
        "relaxations.py",
        "total = total - 2 * anp.sum(by_slope * slope)",
        "total = total",
    ),
    (
        "RELAX: gradient not averaged over samples",
        "relaxations.py",
        "/ (g.size / g.shape[-1])",
        "/ 1.0",
    ),
    (
        "RELAX: coefficient of a part lost",
        "relaxations.py",
        "coef * _adjoint(draw",
        "_adjoint(draw",
    ),
    (
        "RELAX: coefficient of a value lost",
        "relaxations.py",
        "by_value = coef * (g",
        "by_value = (g",
    ),
    (
        "surrogates of one name are one",
        "relaxations.py",
        "self.key = (*self.key, function)",
        "pass",
    ),
]
