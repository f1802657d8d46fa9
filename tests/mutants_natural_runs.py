"""Plausible bugs of the experiment with natural steps; harness.py says what the entries are."""

# fmt: off
MUTANTS = [
    ("a lost run has arrived", "_reached", "(g < near).any()", "True", "what_is_kept_of_a_cell"),
    ("all lines see ten data points", "plans.natural", "whole=line[2]", "whole=False", "cells"),
    ("all data, and subsampled", "tasks.natural", "not whole", "whole",
     "a_cell_is_the_loop_with_that_seed"),
    ("CF in place of RP1 for the drawn point", "natural_line",
     'word if base == "RP1" or cvs == "joint" else CF', "CF", "a_cell_is_the_loop_with_that_seed"),
    ("the snapshot with the wrong sign", "SURE", "rules.fixed(-1)", "rules.fixed(1)",
     "a_cell_is_the_loop_with_that_seed"),
    ("ordinary steps", "tasks.natural", "rule=rules.natural()", "",
     "a_cell_is_the_loop_with_that_seed"),
    ("joint variates by CF alone", "natural_line", 'base == "RP1" or cvs == "joint"',
     'base == "RP1"', "a_cell_is_the_loop_with_that_seed"),
]
