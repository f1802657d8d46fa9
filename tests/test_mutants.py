"""Every bug of mutants.py, put into a copy of the package, is caught by a check.

`pytest -s tests/test_mutants.py` prints the table: place, bug, check that saw it. Checks are many,
and some are dear, so a bug names the one to ask first; if that one does not see it the others are
asked, and a warning says which did: so a check is found for a new bug.
"""

from importlib import import_module
from pathlib import Path
from warnings import warn

import mutate  # tools/mutate.py
import pytest
from harness import Verdict, checks_in, judge
from mutants import FILES, MUTANTS

del FILES["adapters"]  # that file looks itself, where JAX is installed
AREAS = {area: checks_in(*map(import_module, names)) for area, names in FILES.items()}
BUGS = [(area, bug) for area in AREAS for bug in MUTANTS[area]]


@pytest.mark.parametrize("area, bug", BUGS, ids=[f"{area}: {bug[0]}" for area, bug in BUGS])
def test_the_bug_is_caught(area, bug):
    name, place, _, _, known = bug
    checks = {c: AREAS[area][c] for c in sorted(AREAS[area], key=lambda c: c != known)}
    verdict = judge(bug, checks)
    print(f"\n{place:32} {name:56} {verdict.check or 'NOT CAUGHT'}", end="")
    assert verdict.outcome == "caught", verdict
    if verdict.check != known:
        warn(f"{area}: {name!r} is seen by {verdict.check!r}, not by {known!r}", stacklevel=1)


def test_every_bug_names_a_check_of_its_files_and_none_stands_twice():
    assert len({(area, bug[0]) for area, bug in BUGS}) == len(BUGS)
    assert len({bug[1:4] for _, bug in BUGS}) == len(BUGS)
    assert [bug for area, bug in BUGS if bug[4] not in AREAS[area]] == []


def test_bugs_at_random_name_places_and_tests_that_are_there():
    tests = {name for names in mutate.FILES.values() for name in names}
    assert all((mutate.ROOT / place).exists() for place in [*mutate.FILES, mutate.LEFT_OUT])
    assert all(Path(__file__).with_name(f"test_{name}.py").exists() for name in tests)


ONCE = "import numpy as np"  # stands once in combine.py


def test_a_bug_whose_code_is_gone_or_stands_twice_fails():
    for place, old in ("combine.*", "these_words"), ("no_such_place", "x"), ("combine.*", "np"):
        with pytest.raises(AssertionError, match="no longer applies: .* stands [0-9]+ times in"):
            judge(("a bug", place, old, "1", ""), {})


def test_only_a_failed_assertion_is_a_catch():
    def fails(cv):
        assert not hasattr(cv.combine, "bug")

    def crashes(cv):
        raise ValueError("a crash")

    bug = ("a bug", "combine.*", ONCE, f"{ONCE}\nbug = True", "")
    assert judge(bug, {"one": lambda cv: None, "two": fails}) == Verdict("caught", "two")
    crash = Verdict("crashed", "two", "ValueError('a crash')")
    assert judge(bug, {"one": lambda cv: None, "two": crashes}) == crash
    assert judge(bug, {"one": crashes, "two": fails}) == Verdict("caught", "two")
    assert judge(bug, {"one": lambda cv: None}) == Verdict("survived")
    broken = judge(("a bug", "combine.*", ONCE, "import no_such_module", ""), {"one": fails})
    assert broken.outcome == "crashed" and broken.check == "import"
