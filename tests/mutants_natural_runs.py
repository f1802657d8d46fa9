"""Plausible bugs of the experiment with natural steps; harness.py says what the entries are."""

# fmt: off
MUTANTS = [
    ("a lost run has arrived", "_reached", "(g < near).any()", "True", "what_is_kept_of_a_cell"),
    ("all lines see ten data points", "plans.natural", "whole=line[2]", "whole=False", "cells"),
    ("all data, and subsampled", "tasks.natural", "not whole", "whole",
     "a_cell_is_the_loop_with_that_seed"),
    ("CF in place of RP1 for the drawn point", "natural_line", 'RP1 if base == "RP1" else CF', "CF",
     "a_cell_is_the_loop_with_that_seed"),
    ("the snapshot with the wrong sign", "natural_line", "rules.fixed(-1.0)", "rules.fixed(1.0)",
     "a_cell_is_the_loop_with_that_seed"),
    ("ordinary steps", "tasks.natural", "rule=rules.natural()", "",
     "a_cell_is_the_loop_with_that_seed"),
]
