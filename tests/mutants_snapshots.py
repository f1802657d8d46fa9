"""Plausible bugs of snapshots, their renewal and passes; properties_snapshots.py sees each.

(name, file, what stands in its source exactly once, what the bug makes of it)
"""

P, S, A, R, O, M = (
    f"{name}.py"
    for name in ("passes", "snapshots", "approximations", "rules", "optimize", "models")
)
MUTANTS = [
    # passes
    (
        "the last part is lost",
        P,
        "for first in range(0, len(data[0]), size)]",
        "for first in range(0, max(1, len(data[0]) - size), size)]",
    ),
    ("parts overlap by a row", P, "slice(first, first + size)", "slice(first, first + size + 1)"),
    ("the last part alone", P, "else tuple(a + b for a, b in zip(found, new))", "else new"),
    ("every part is the first", P, "root.offset + address(a) - address(root)", "root.offset"),
    ("changes in memory are lost", P, ' and root.mode != "c"', ""),
    ("drawn rows swapped in pairs", P, "size * i for i", "size * (i ^ 1) for i"),
    ("drawn rows of the whole file", P, "self.offset + size * i for", "size * i for"),
    ("rows in another order", P, "index.ravel().tolist()", "index.T.ravel().tolist()"),
    ("large files are mapped", P, "if a.nbytes > SMALL else None", "if a.nbytes < 0 else None"),
    # sums
    ("bound: touches at mu", S, "np.sqrt(eta**2 + v)", "np.sqrt(eta**2)"),
    ("bound: sigma for its square", S, "factor**2 @ (X**2).T", "factor @ (X**2).T"),
    ("bound: L^T for L", S, "(X @ factor) ** 2", "(X @ factor.mT) ** 2"),
    ("bound: slope at zero", S, "b + c * eta, c)", "b, c)"),
    ("offset forgotten", S, "(offset[0] if offset else 0.0)", "0.0"),
    ("own model: one Hessian column", S, "np.eye(mu.shape[-1]))", "np.ones(mu.shape[-1]))"),
    # expansions
    (
        "first order with a curvature",
        A,
        "return d1, (d2 if self.order == 2 else 0 * d2)",
        "return d1, d2",
    ),
    (
        "first order with a curvature, own model",
        A,
        "(self.f.along(draw, self.centre, away) if self.order == 2 else 0 * away)",
        "self.f.along(draw, self.centre, away)",
    ),
    (
        "bound of an older q with today's width",
        A,
        "r.variance(draw, self.centre))",
        "r.variance(draw))",
    ),
    (
        "bound of an older q with today's mean",
        A,
        "r.eta(draw, self.centre) ** 2 +",
        'r.eta(draw, "mu") ** 2 +',
    ),
    ("Taylor's sums for the bound", A, 'name if self.word == "taylor_z" else', "name if True else"),
    # renewals
    ("seldom at first", R, " or (t < self.K and _power_of_two(t))", ""),
    ("a step late", R, "return t % self.K == 0 or", "return t % self.K == 1 or"),
    ("worn: nothing is new for long", R, "now if n < self.fresh else new", "now"),
    ("worn: little counts", R, "self.factor * new + 0.01", "self.factor * new"),
    ("worn: the last step alone", R, "(left - now) / min(n + 1, self.fresh)", "(left - now)"),
    ("worn: the mean of all steps", R, "min(n + 1, self.fresh)", "(n + 1)"),
    ("worn: length for scatter", O, "(g - g.mean(-2, keepdims=True)) ** 2", "g**2"),
    (
        "worn: the noise of the base",
        O,
        "scatter(combine.combine(h, C, a)) /",
        "scatter(combine.combine(h, C, 0 * a)) /",
    ),
    (
        "never renewed",
        O,
        "if rule is None or not (memory is None or rule.due(state.t, memory)):",
        "if rule is None or memory is not None:",
    ),
    (
        "of second order, whatever is asked",
        O,
        "max((atom.order for atom in self.expansions), default=2)",
        "2",
    ),
]
