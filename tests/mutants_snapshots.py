"""Plausible bugs of snapshots, their renewal and passes; properties_snapshots.py sees each.

(name, file, what stands in its source exactly once, what the bug makes of it)
"""

# fmt: off
MUTANTS = [
    # passes
    ("the last part is lost", "slices", "len(data[0])", "max(1, len(data[0]) - size)",
     "sums, diagonal"),
    ("parts overlap by a row", "slices", "first + size", "first + size + 1", "sums, diagonal"),
    ("the last part alone", "total", "tuple(a + b for a, b in zip(found, new))", "new",
     "sums, diagonal"),
    ("every part is the first", "_sent", "root.offset + address(a) - address(root)", "root.offset",
     "take"),
    ("changes in memory are lost", "_shared",
     'isinstance(root, np.memmap) and root.filename is not None and root.mode != "c"',
     "isinstance(root, np.memmap) and root.filename is not None", "changes"),
    ("drawn rows swapped in pairs", "Mapped.take", "self.offset + size * i",
     "self.offset + size * (i ^ 1)", "take"),
    ("drawn rows of the whole file", "Mapped.take", "self.offset + size * i", "size * i", "take"),
    ("rows in another order", "Mapped.take", "index.ravel()", "index.T.ravel()", "take"),
    ("large files are mapped", "files", "a.nbytes > SMALL", "a.nbytes < 0", "take"),
    # sums
    ("bound: touches at mu", "_glm", "eta**2 + v", "eta**2", "mean zero"),
    ("bound: sigma for its square", "_glm", "factor**2", "factor", "sums, diagonal"),
    ("bound: L^T for L", "_glm", "X @ factor", "X @ factor.mT", "mean zero"),
    ("bound: slope at zero", "_glm", "b + c * eta", "b", "mean zero"),
    ("offset forgotten", "_glm", "offset[0] if offset else 0.0", "0.0", "sums with an offset"),
    ("own model: one Hessian column", "_own", "np.eye(mu.shape[-1])", "np.ones(mu.shape[-1])",
     "own sums"),
    # expansions
    ("first order with a curvature", "TaylorEta.at_centre", "d2 if self.order == 2 else 0 * d2",
     "d2", "mean zero"),
    ("first order with a curvature, own model", "TaylorZ.grad",
     "self.f.along(draw, self.centre, away) if self.order == 2 else 0 * away",
     "self.f.along(draw, self.centre, away)", "own lines"),
    ("bound of an older q with today's width", "Bound._coefficients",
     "r.variance(draw, self.centre)", "r.variance(draw)", "mean zero"),
    ("bound of an older q with today's mean", "Bound._coefficients", "r.eta(draw, self.centre)",
     'r.eta(draw, "mu")', "mean zero"),
    ("Taylor's sums for the bound", "Stored.sums", 'self.word == "taylor_z"', "True", "mean zero"),
    # renewals
    ("seldom at first", "every.due", "t % self.K == 0 or (t < self.K and _power_of_two(t))",
     "t % self.K == 0", "every"),
    ("a step late", "every.due", "t % self.K == 0", "t % self.K == 1", "every"),
    ("worn: nothing is new for long", "worn.seen", "now if n < self.fresh else new", "now", "worn"),
    ("worn: little counts", "worn.due", "self.factor * new + 0.01", "self.factor * new", "worn"),
    ("worn: the last step alone", "worn.seen", "(left - now) / min(n + 1, self.fresh)",
     "left - now", "worn"),
    ("worn: the mean of all steps", "worn.seen", "min(n + 1, self.fresh)", "n + 1", "worn"),
    ("worn: length for scatter", "Noisy.noted", "g - g.mean(-2, keepdims=True)", "g", "worn"),
    ("worn: the noise of the base", "Noisy.noted", "combine.combine(h, C, a)",
     "combine.combine(h, C, 0 * a)", "worn"),
    ("never renewed", "Noisy.refreshed", "not (memory is None or rule.due(state.t, memory))",
     "memory is not None", "every"),
    ("of second order, whatever is asked", "Noisy.refreshed",
     "max((atom.order for atom in self.expansions), default=2)", "2", "every"),
    # sums over parts, and what a mapped array may look like
    ("numbers keep the first part alone", "passes.total",
     "tuple(a + b for a, b in zip(found, new))",
     "tuple(a + b if np.ndim(a) else a for a, b in zip(found, new))", "numbers in parts"),
    ("columns of a mapped table read as rows", "_sent", "_shared(root) and a.flags.c_contiguous",
     "_shared(root)", "parts"),
    ("a cluster that is never left", "passes.on",
     "try:\n    yield\nfinally:\n    _cluster.reset(token)", "yield\n_cluster.reset(token)",
     "the cluster is left"),
]
