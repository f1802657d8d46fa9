"""Plausible bugs of a reader's own models and of fit: (name, file, what stands there once, what it
becomes)."""

F, S, T, R, P = "fit.py", "starts.py", "transforms.py", "rules.py", "posteriors.py"
MUTANTS = [
    ("the log-Jacobian of exp turned round", T, "return anp.exp(u), u", "return anp.exp(u), -u"),
    (
        "the width of an interval left out of its log-Jacobian",
        T,
        "np.log(np.subtract(high, low)) + up + down",
        "up + down",
    ),
    ("ordered counts its first step", T, "anp.sum(u[..., 1:], -1)", "anp.sum(u, -1)"),
    (
        "what is left of the stick forgotten",
        T,
        "anp.sum(before + cut + rest, -1)",
        "anp.sum(cut + rest, -1)",
    ),
    ("sticks broken without their shift", T, "u - np.log(np.arange(K - 1, 0, -1))", "u + 0.0"),
    ("pick from the first row of z", T, "row + index)", "0 * row + index)"),
    (
        "slopes of a coordinate picked twice not added",
        "special.py",
        "np.bincount(np.ravel(index), np.ravel(g), minlength=n)",
        "np.bincount(np.ravel(index)[:1], np.ravel(g)[:1], minlength=n)",
    ),
    (
        "a Student-t with the wrong power",
        "models.py",
        "half, nu = (self.df + 1) / 2, self.df",
        "half, nu = self.df / 2, self.df",
    ),
    (
        "a negative binomial with its mean unscaled",
        "models.py",
        "y * (eta - np.log(r)) - (y + r)",
        "y * eta - (y + r)",
    ),
    (
        "the strip of Student's t without its scale",
        "models.py",
        "strip=t.scale * np.sqrt(t.df))",
        "strip=100.0)",
    ),
    (
        "half a Cauchy taken for a whole one",
        P,
        "return np.log(2) + log_density",
        "return log_density",
    ),
    (
        "the jitter of the Gaussian process forgotten",
        P,
        "+ 1e-10 * np.eye(n)",
        "+ 1e-6 * np.eye(n)",
    ),
    (
        "columns of the mesquite model exchanged",
        P,
        '"diam1", "diam2", "canopy_height"',
        '"diam1", "canopy_height", "diam2"',
    ),
    (
        "the gradient stretched the other way",
        R,
        "S_t = np.swapaxes(self.S, -1, -2) if q.full else self.S",
        "S_t = self.S",
    ),
    (
        "the step of the mean not carried back",
        R,
        "        mu = q.times(self.S, mu[..., None, :])[..., 0, :]\n        return w + q.joined",
        "        return w + q.joined",
    ),
    ("a start that is not the inverse curvature", S, "return np.linalg.inv(R).T", "return R.T"),
    (
        "the prior's slope left out of the climb",
        S,
        "slope=data.slope + elementwise_grad(lambda z: prior(z) + 0 * z[..., 0])(z),",
        "slope=data.slope,",
    ),
    (
        "the start too wide by e",
        S,
        "return mu + S @ v[:d], np.exp(v[d:])",
        "return mu + S @ v[:d], np.exp(v[d:] + 1)",
    ),
    (
        "one snapshot summed over the runs",
        "families/base.py",
        "return np.broadcast_to(draw.snapshot.mu, draw.mu.shape)[..., None, :]",
        "return draw.snapshot.mu[..., None, :]",
    ),
    (
        "weights without the density of q",
        "looks.py",
        "lw = lp - q.log_q(w, draw.z)",
        "lw = lp",
    ),
    ("the chance of an error not shared among the looks", "looks.py", "CHANCE / 2**look", "CHANCE"),
    ("no doubt in what was gained", "looks.py", "return gain.mean() + doubt", "return gain.mean()"),
    ("the worse half kept", F, "np.argsort(-value[1:]", "np.argsort(value[1:]"),
    (
        "looks that never come",
        F,
        "    while end <= self.state.t:\n            end *= 2",
        "    while end <= self.state.t:\n            end *= 4",
    ),
    (
        "covariance of a full q from its diagonal",
        F,
        "return factor @ factor.T if self.q.full",
        "return factor * factor.T if self.q.full",
    ),
]
