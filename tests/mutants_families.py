"""Plausible bugs of the families beyond the Gaussian; harness.py says what the entries are."""

MUTANTS = [
    # generalised reparameterisation
    (
        "GR as the paper prints it: the score of q",
        "estimators.py",
        "value)[..., None] * draw.base_score",
        "value)[..., None] * draw.score",
    ),
    ("GR without its score", "estimators.py", 'if line.by["GR"] and draw', "if False and draw"),
    (
        "base score forgets how z moves",
        "nongaussian.py",
        "draw.score + (moved + stretched)",
        "draw.score + (0 * moved + stretched)",
    ),
    (
        "base score forgets the stretch",
        "nongaussian.py",
        "draw.score + (moved + stretched)",
        "draw.score + (moved + 0 * stretched)",
    ),
    (
        "base score subtracts the motion",
        "nongaussian.py",
        "draw.score + (moved + stretched)",
        "draw.score - (moved + stretched)",
    ),
    (
        "spread of z held fixed",
        "nongaussian.py",
        "dm[..., None, :, :] + ds[..., None, :, :] * draw.eps[..., None, :]",
        "dm[..., None, :, :] + 0 * ds[..., None, :, :] * draw.eps[..., None, :]",
    ),
    (
        "gamma: a factor 2 in the spread's derivative",
        "nongaussian.py",
        "ds = a * polygamma(2, a) / (2 * np.sqrt",
        "ds = a * polygamma(2, a) / (1 * np.sqrt",
    ),
    (
        "gamma: derivative in a, not in log a",
        "nongaussian.py",
        "np.stack([a * polygamma(1, a), -one], -2)",
        "np.stack([polygamma(1, a), -one], -2)",
    ),
    (
        "gamma: scale taken for rate",
        "nongaussian.py",
        "return _log_gamma(rng, a, M) - w[",
        "return _log_gamma(rng, a, M) + w[",
    ),
    (
        "gamma: density in x, not in log x",
        "nongaussian.py",
        "anp.sum(a * (log_b + z) - gammaln(a)",
        "anp.sum(a * (log_b + z) - z - gammaln(a)",
    ),
    (
        "gamma: plain sampling, which underflows",
        "nongaussian.py",
        "return np.log(rng.standard_gamma(shape + 1)) -",
        "return np.log(np.maximum(rng.standard_gamma(shape), 1e-300)) - 0 *",
    ),
    (
        "gamma: the boost uses the shape twice",
        "nongaussian.py",
        "rng.standard_exponential(shape.shape) / shape",
        "rng.standard_exponential(shape.shape) / (shape + 1)",
    ),
    (
        "gamma: the mean of e^z left out of the prior",
        "nongaussian.py",
        "a * (av * polygamma(1, a) - bv / b), bv * a / b - av",
        "a * (av * polygamma(1, a) - 1), bv * a / b - av",
    ),
    (
        "beta: score without the normaliser's part",
        "nongaussian.py",
        "a * (log_x - psi(a) + both), b",
        "a * (log_x - psi(a)), b",
    ),
    (
        "beta: variances subtracted",
        "nongaussian.py",
        "[a * polygamma(2, a), b * polygamma(2, b)]",
        "[a * polygamma(2, a), -b * polygamma(2, b)]",
    ),
    (
        "beta: closed form forgets psi'(a + b)",
        "nongaussian.py",
        "both = (av + bv) * polygamma(1, a + b)",
        "both = 0 * (av + bv) * polygamma(1, a + b)",
    ),
    (
        "closed form of a quadratic forgets the variance",
        "nongaussian.py",
        "bend[..., None, :] * ds  #",
        "0 * bend[..., None, :] * ds  #",
    ),
    # discrete families
    (
        "Bernoulli: z for 1 - z",
        "nongaussian.py",
        "return (self.zeta(draw) > 0).astype(float)",
        "return (self.zeta(draw) < 0).astype(float)",
    ),
    (
        "Bernoulli: closed form in p, not in the logit",
        "nongaussian.py",
        "return expit(w) * expit(-w) * v",
        "return expit(w) * v",
    ),
    (
        "Bernoulli: variance's derivative loses a half",
        "nongaussian.py",
        "(s * (expit(-w) - p) / 2)",
        "(s * (expit(-w) - p))",
    ),
    (
        "categorical: chain rule stops at log p",
        "nongaussian.py",
        "return u - p * self.join(",
        "return u - 0 * p * self.join(",
    ),
    (
        "variational term follows w",
        "integrands.py",
        "return self.q.cross_grad(draw.w, self.v(draw))[..., None, :]",
        "return 0 * self.q.cross_grad(draw.w, self.v(draw))[..., None, :]",
    ),
]
