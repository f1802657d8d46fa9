"""Plausible bugs of models, their checks, exact references and special functions.

(name, file, what stands in it exactly once, what the bug makes of it); properties_models.py
catches them all.
"""

MUTANTS = [
    # models: prior, offset, pickle
    ("prior's mean forgotten", "models.py", "away = (z - self.mean)", "away = z"),
    ("prior's mean added", "models.py", "away = (z - self.mean)", "away = (z + self.mean)"),
    (
        "prior: variance for sd",
        "models.py",
        "(z - self.mean) / self.sd",
        "(z - self.mean) / self.sd**2",
    ),
    (
        "prior's normaliser of the first sd alone",
        "models.py",
        "2 * np.log(self.sd)",
        "2 * np.log(np.ravel(self.sd)[0])",
    ),
    (
        "priors equal whatever their mean",
        "models.py",
        "== other._key()",
        "[:1] == other._key()[:1]",
    ),
    (
        "prior keeps the caller's array",
        "checks.py",
        "numbers(what, value).copy()",
        "numbers(what, value)",
    ),
    ("offset forgotten in the rows", "models.py", "eta + offset[0] if offset", "eta if offset"),
    ("offset subtracted in the rows", "models.py", "eta + offset[0] if", "eta - offset[0] if"),
    ("offset forgotten in the data", "models.py", "else (X, y, self.offset)", "else (X, y)"),
    (
        "shortcut forgets the prior's mean",
        "models.py",
        "GLM(X, y, POISSON, prior_sd, prior_mean=prior_mean, offset=offset)",
        "GLM(X, y, POISSON, prior_sd, offset=offset)",
    ),
    (
        "shortcut forgets the offset",
        "models.py",
        "GLM(X, y, LOGISTIC, prior_sd, prior_mean=prior_mean, offset=offset)",
        "GLM(X, y, LOGISTIC, prior_sd, prior_mean=prior_mean)",
    ),
    # models: what is tried when a model is made
    ("whole data never tried", "models.py", "((3, 1), (n,)), ((2, 3, 1), (n,)), ", ""),
    ("several runs never tried", "models.py", "((2, 3, 1), (n,)), ((2, 3, 4), (2, 3, 1))]", "]"),
    (
        "as many z as rows of data",
        "models.py",
        "2 if self.N == 3 else min(self.N, 4)",
        "min(self.N, 3)",
    ),
    ("a prior's axes never tried", "models.py", "((3,), (1,)), ((2, 3, 4), (1,))", "((3,), (1,))"),
    ("rows never compared", "checks.py", "np.allclose(got, alone[k, j])", "np.all(got == got)"),
    ("-inf passes for a number", "checks.py", "bad = ~np.isfinite(got)", "bad = np.isnan(got)"),
    (
        "the end of a support is never met",
        "checks.py",
        "far = np.asarray(f(10 * z))",
        "far = np.asarray(f(z))",
    ),
    ("an overflow refused", "checks.py", 'np.errstate(over="raise")', 'np.errstate(over="ignore")'),
    ("NaN far out refused", "checks.py", "np.where(np.isinf(far), far, 0.0)", "far"),
    ("slopes never compared", "checks.py", "wrong = believed & ~(", "wrong = 0 * believed > ("),
    (
        "kinks refused",
        "checks.py",
        "believed = np.abs(coarse - fine) <=",
        "believed = np.abs(fine) >=",
    ),
    ("rounding refused", "checks.py", "rounding = 1e-14 *", "rounding = 0 *"),
    ("fast checked to order 2", "checks.py", "for order in (1, 2, 3):", "for order in (1, 2):"),
    (
        "fast checked at the first order only",
        "checks.py",
        "got[-1], right[order - 1])",
        "got[0], right[0])",
    ),
    ("any kappa will do", "checks.py", "lik.kappa * (y - other), moved)", "moved, moved)"),
    ("kappa at equal labels", "checks.py", "np.roll(y, len(ETA))", "1.0 * y"),
    ("anything is quadratic", "checks.py", "0 * eta, right[2])", "0 * eta, 0 * eta)"),
    (
        "Stein without the variance",
        "checks.py",
        "t / np.sqrt(v), (t**2 - 1) / v",
        "t, (t**2 - 1) / v",
    ),
    ("a bound above phi", "checks.py", ".min() < -1e-8", ".min() < -1e8"),
    ("a bound far below phi", "checks.py", ".max() > 1e-6", ".max() > 1e6"),
    # exact references
    ("exact: offset forgotten", "exact.py", "else m + model.offset", "else m"),
    (
        "exact: prior about 0",
        "exact.py",
        "np.concatenate([mean, np",
        "np.concatenate([0 * mean, np",
    ),
    (
        "exact: prior drawn to its mean in L too",
        "exact.py",
        "np.zeros(q.D - q.dim)",
        "q.by_row(mean)",
    ),
    ("exact: sd for variance", "exact.py", "[1 / sd**2, q", "[1 / sd, q"),
    ("exact: precision 1 for L", "exact.py", "q.by_row(1 / sd**2)", "q.by_row(1 + 0 * sd)"),
    ("exact: prior of L lost", "exact.py", " + square[..., q.dim :].sum(-1)", ""),
    (
        "exact: normaliser of the prior twice",
        "exact.py",
        "normaliser = 0.5 * np",
        "normaliser = np",
    ),
    (
        "exact: sign of the prior's slope",
        "exact.py",
        "-precision * (w - centre)",
        "precision * (w - centre)",
    ),
    ("an unreached optimum returned", "exact.py", ".max() > 1e-5", ".max() > 1e5"),
    ("a loose optimum returned", "exact.py", ".max() > 1e-5", ".max() > 1e-3"),
    ("slopes downhill are small", "exact.py", "np.abs(found.jac).max()", "found.jac.max()"),
    ("L-BFGS stops early", "exact.py", '"ftol": 1e-15, "gtol": 1e-9', '"ftol": 1e-9, "gtol": 1e-5'),
    ("curvature of a diagonal q without sigma", "families.py", "(c @ X**2) * sigma", "c @ X**2"),
    ("curvature with x for x^2", "families.py", "(c @ X**2) * sigma", "(c @ X) ** 2 * sigma"),
    (
        "a d x d matrix for a diagonal q",
        "families.py",
        "(c @ X**2) * sigma",
        "np.diagonal((c[..., None] * X).mT @ X, axis1=-2, axis2=-1) * sigma",
    ),
    ("curvature times L^T", "families.py", "-1, -2) @ X @ L)", "-1, -2) @ X @ L.mT)"),
    # estimators
    ("target tolerance", "estimators.py", "abs(coef) > 1e-12", "abs(coef) > 1e-3"),
    # special functions
    (
        "slope of gammaln",
        "special.py",
        "lambda ans, x: lambda g: g * psi(x))",
        "lambda ans, x: lambda g: g * anp.log(x))",
    ),
    ("slope of psi", "special.py", "g * polygamma(1, x)", "g * polygamma(2, x)"),
    ("slope of polygamma", "special.py", "g * polygamma(n + 1, x)", "g * polygamma(n, x)"),
    ("slope of betaln in b", "special.py", "(psi(b) - psi(a + b))", "(psi(a) - psi(a + b))"),
    (
        "betaln's slope not summed back",
        "special.py",
        "unbroadcast_f(a, lambda g: g * (psi(a) - psi(a + b)))",
        "lambda g: g * (psi(a) - psi(a + b))",
    ),
    (
        "logsumexp keeps its axes",
        "special.py",
        "kept if keepdims else anp.squeeze(kept, axis)",
        "kept",
    ),
    (
        "logsumexp over all axes",
        "special.py",
        "logsumexp(x, axis=axis, keepdims",
        "logsumexp(x, axis=None, keepdims",
    ),
    (
        "slope of logsumexp not normalised",
        "special.py",
        "anp.exp(x - ans)",
        "anp.exp(x - anp.max(x))",
    ),
]
