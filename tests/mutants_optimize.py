"""Plausible bugs of the loop and its rules; a property of properties_optimize.py sees each.

(name, file, what stands in its source exactly once, what the bug makes of it)
"""

MUTANTS = [
    # ascent rules
    ("momentum without 1 - beta", "rules.py", "v + (1 - self.beta) * g", "v + g"),
    ("momentum forgets nothing", "rules.py", "v = self.beta * v +", "v = v +"),
    ("momentum steps with g", "rules.py", "return w + rate * v, (v,)", "return w + rate * g, (v,)"),
    ("adam: bias of m left in", "rules.py", "m / (1 - b1_t) /", "m /"),
    ("adam: bias of s left in", "rules.py", "np.sqrt(s / (1 - b2_t))", "np.sqrt(s)"),
    ("adam: s of g, not g^2", "rules.py", "(1 - self.b2) * g**2", "(1 - self.b2) * np.abs(g)"),
    ("adam: b1 for b2", "rules.py", "s = self.b2 * s", "s = self.b1 * s"),
    (
        "adam: eps under the root",
        "rules.py",
        "(np.sqrt(s / (1 - b2_t)) + self.eps)",
        "np.sqrt(s / (1 - b2_t) + self.eps)",
    ),
    ("adam forgets its powers", "rules.py", "(m, s, b1_t, b2_t)\n", "(m, s, *memory[2:])\n"),
    (
        "plain ascent goes down",
        "rules.py",
        "return w + rate * g, memory",
        "return w - rate * g, memory",
    ),
    (
        "average divides by one too many",
        "rules.py",
        "mean + (w - mean) / count",
        "mean + (w - mean) / (count + 1)",
    ),
    # weight rules
    (
        "v0 not in units of ELBO / N",
        "rules.py",
        "combine.bayes_weights(memory, self.v0 * N**2, q.D)",
        "combine.bayes_weights(memory, self.v0, q.D)",
    ),
    (
        "v0 of the blocks scaled by N",
        "rules.py",
        "combine.block_weights(memory, self.v0 * N**2, q.blocks)",
        "combine.block_weights(memory, self.v0 * N, q.blocks)",
    ),
    ("blocks never forget", "rules.py", "(*memory), new, self.gamma)", "(*memory), new, 0.0)"),
    (
        "empirical keeps a prior",
        "rules.py",
        "return bayes(0.0, gamma)",
        "return bayes(1e-3, gamma)",
    ),
    ("none is all", "rules.py", "return fixed(0.0)", "return fixed(1.0)"),
    (
        "blocks with D for their length",
        "combine.py",
        "[..., None] * lengths  # (..., K)",
        "[..., None] * (lengths * 0 + lengths.sum())",
    ),
    (
        "blocks in the wrong order",
        "combine.py",
        "np.repeat(a.mT, lengths",
        "np.repeat(a.mT[..., ::-1], lengths",
    ),
    (
        "every block sees all coordinates",
        "combine.py",
        "moments(h[..., block], C[..., block])",
        "moments(h, C)",
    ),
    (
        "mean without variates is a sum",
        "combine.py",
        "        return share @ h\n",
        "        return h.sum(-2)\n",
    ),
    # the loop
    ("exact gradient not of ELBO / N", "optimize.py", "state.w) / self.model.N", "state.w)"),
    ("a rule is told another N", "optimize.py", "plan.q, plan.model.N)", "plan.q, 1)"),
    ("one rate for all runs", "optimize.py", "return lr[..., None]", "return lr.flat[0]"),
    (
        "schedule a step late",
        "optimize.py",
        "plan.rate(t, w.shape",
        "plan.rate(max(1, t - 1), w.shape",
    ),
    (
        "average a step late",
        "optimize.py",
        "and t >= plan.average",
        "and t > plan.average",
    ),
    (
        "weights from the step's own draws",
        "optimize.py",
        "a = weighting.weights(state.moments, q, N)",
        "a = weighting.weights(weighting.update(state.moments, base, C, q), q, N)",
    ),
    (
        "a broken run moves on",
        "optimize.py",
        "moved = np.where(going[..., None], moved, w)",
        "moved = np.where(finite[..., None], moved, w)",
    ),
    (
        "a broken run is marked a step late",
        "optimize.py",
        "(diverged >= 0), diverged, t)",
        "(diverged >= 0), diverged, t + 1)",
    ),
    ("bias up to 1e-3 passes", "linear.py", "ROUNDING = 32 *", "ROUNDING = 1e13 *"),
    ("bias up to 1e-9 passes", "linear.py", "ROUNDING = 32 *", "ROUNDING = 1e7 *"),
    ("a hook a step early", "optimize.py", "if t % k == 0:", "if (t + 1) % k == 0:"),
    (
        "a hook's plan is ignored",
        "optimize.py",
        "return _fitted(*answer), answer[1]",
        "return _fitted(*answer), plan",
    ),
    (
        "generator not saved",
        "optimize.py",
        "    rng.bit_generator.state = bits\n    return rng",
        "    return rng",
    ),
    (
        "moments not saved",
        "optimize.py",
        'enumerate(group)}\n        arrays |= {f"notes',
        "enumerate(group)}\n        arrays |= {k: 0 * x for k, x in arrays.items()}\n"
        '        arrays |= {f"notes',
    ),
    (
        "averaged steps not counted on",
        "optimize.py",
        "state = {name: found[name] for name in SAVED} |",
        'state = {name: found[name] for name in SAVED} | {"count": 1} |',
    ),
    (
        "an interrupt keeps the noise of a broken step",
        "optimize.py",
        "            state.rng.bit_generator.state = bits\n",
        "            pass\n",
    ),
    (
        "an interrupted step counts",
        "optimize.py",
        "n = bisect_left(kept, state.t)  #",
        "n = bisect_left(kept, state.t) - 1  #",
    ),
    (
        "records of 1000 MB",
        "optimize.py",
        "RECORD = 100e6",
        "RECORD = 1000e6",
    ),
    (
        "a thinned record forgets its ends",
        "optimize.py",
        "RECORD // nbytes - 2)",
        "RECORD // nbytes + 2)",
    ),
]
