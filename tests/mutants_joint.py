"""Plausible bugs of the experiment with both noises; harness.py says what the entries are."""

PLANS, TASKS = "experiments/plans.py", "experiments/tasks.py"

MUTANTS = [
    ("no snapshot is old", PLANS, '(1, 5, 20, 50, 200, "worn")', '(1, 5, 20, 50, 100, "worn")'),
    ("one gap for all ages", PLANS, "base=base, renew=renew\n", "base=base, renew=50\n"),
    ("rows in another order", PLANS, "cells = plain | cells\n", "cells = cells | plain\n"),
    ("PR for its closed form", TASKS, 'CF if cvs == "data" or base == "QD"', 'CF if base == "QD"'),
    (
        "the closed form for PR",
        TASKS,
        'CF if cvs == "data" or base == "QD" else',
        "CF if True else",
    ),
    ("Taylor's parabola for the bound", TASKS, '"bound": bound(f, at="snapshot")', '"bund": f'),
    ("svrg with curvature", TASKS, 'at="snapshot", order=1)', 'at="snapshot", order=2)'),
    ("worn means every step", TASKS, 'rules.worn() if renew == "worn"', '1 if renew == "worn"'),
    ("the drawn point alone", TASKS, "like(old) - CF(old.over_all_data())", "like(old) - CF(old)"),
    (
        "a weight of its own",
        TASKS,
        'SURE if cvs in ("fixed", "means", "gradient") else None',
        "None",
    ),
    ("Taylor's parabola for the means", TASKS, '"means": parabola(f, at="snapshot")', '"mean": f'),
    ("the gradient of today", TASKS, "w = q.pack(old.mu, old.factor)", "w = draw.w"),
    ("a batch of one", TASKS, "runs, renew, weights, batch)", "runs, renew, weights)"),
    ("no batch is drawn", PLANS, "batch=BATCH,", "batch=1,"),
]
