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
    ("a weight of its own", "tasks.joint", 'SURE if cvs == "fixed" else None', "None",
     "a_cell_is_the_loop_with_that_seed"),
]
