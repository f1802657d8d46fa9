"""Plausible bugs of the experiment with both noises; harness.py says what the entries are."""

# fmt: off
MUTANTS = [
    ("one gap for all ages", "plans.joint", "renew=renew", "renew=50", "cells"),
    ("PR for its closed form", "both", 'cvs == "data" or base == "QD"', 'base == "QD"',
     "a_cell_is_the_loop_with_that_seed"),
    ("svrg with curvature", "both", 'taylor_z(f, at="snapshot", order=1)',
     'taylor_z(f, at="snapshot", order=2)', "a_cell_is_the_loop_with_that_seed"),
    ("the drawn point alone", "both", "old.over_all_data()", "old",
     "a_cell_is_the_loop_with_that_seed"),
    ("a weight of its own", "tasks.joint",
     'SURE if cvs in ("fixed", "means", "gradient") else None', "None",
     "a_cell_is_the_loop_with_that_seed"),
    ("SVRG with today's weights", "Older.closed", "q.pack(old.mu, old.factor)", "draw.w",
     "svrg_is_the_gradient_at_the_older_weights"),
    ("one data point in place of a batch", "tasks.joint",
     "_climb(rng, model, q, h, cvs, lr, v0, gamma, M, steps, runs, renew, weights, batch)",
     "_climb(rng, model, q, h, cvs, lr, v0, gamma, M, steps, runs, renew, weights, None)",
     "a_batch_for_one_sample"),
]
