"""Plausible bugs of the experiment with natural steps; harness.py says what the entries are."""

PLANS, TASKS = "experiments/plans.py", "experiments/tasks.py"

MUTANTS = [
    ("1 nat for a tenth", PLANS, "first(0.1)", "first(1.0)"),
    ("the gap at the start", PLANS, '_few(gap[:, -1], 4), "to_1"', '_few(gap[:, 0], 4), "to_1"'),
    ("a lost run has arrived", PLANS, "if (g < near).any() else None", "if True else None"),
    ("no rate falls", PLANS, "round(4 / rho)", "0"),
    ("all lines see ten data points", PLANS, "whole=line[2]", "whole=False"),
    ("one run too few", PLANS, "min(size.runs, 20)", "min(size.runs, 19)"),
    ("all data, and subsampled", TASKS, "subsample=not whole", "subsample=whole"),
    ("rho stays", TASKS, "rules.falling(rho, after) if after else rho", "rho"),
    ("CF in place of RP1 for the drawn point", TASKS, 'RP1 if base == "RP1" else CF', "CF"),
    ("the snapshot with the wrong sign", TASKS, "rules.fixed(-1.0)", "rules.fixed(1.0)"),
    ("a snapshot that is never renewed", TASKS, "RENEW = 5", "RENEW = 500"),
    ("RP1 for every base", TASKS, '"PR": PR, "QD": QD}[base]', '"PR": RP1, "QD": RP1}[base]'),
    ("ordinary steps", TASKS, "rule=rules.natural(), every=1", "every=1"),
]
