"""Every bug of the lists mutants_*.py, put into a copy of the package, is caught by a check.

`pytest -s tests/test_mutants.py` prints the table: bug, check that saw it first. Checks are many,
and some are dear, so mutants_seen.json says which to ask first; the others are asked if it says
nothing or is wrong. `python tests/test_mutants.py` adds new bugs to it, `--all` writes it anew.
"""

import ast
import json
import sys
from importlib import import_module
from pathlib import Path
from time import process_time

import harness
import properties
import properties_fit
import properties_models
import properties_natural
import properties_optimize
import properties_snapshots
import pytest
import test_choose
import test_combine
import test_coupled
import test_datasets
import test_experiments
import test_experiments_joint
import test_experiments_natural
import test_experiments_plans
import test_experiments_store
import test_families
import test_nongaussian
import test_plotting
import test_prices
import test_relaxations
import test_zoo
from harness import PACKAGE, UNCHANGED, Verdict, judge, loaded

BEYOND, RELAXED = test_nongaussian.PROPERTIES, test_relaxations.PROPERTIES
AREAS = {  # for each list mutants_NAME.py the checks that must see its bugs
    "core": properties.PROPERTIES | test_prices.CHECKS,
    "models": properties_models.PROPERTIES,
    "optimize": properties_optimize.PROPERTIES,
    "natural": properties_natural.PROPERTIES,
    "snapshots": properties_snapshots.PROPERTIES,
    "natural_runs": test_experiments_natural.CHECKS,
    "joint": test_experiments_joint.CHECKS,
    "combine": test_combine.CHECKS,
    "coupled": test_coupled.CHECKS,
    "choose": test_choose.CHECKS,
    "families": test_families.CHECKS | BEYOND | RELAXED,
    "relaxations": RELAXED | BEYOND,
    "zoo": test_zoo.CHECKS,
    "experiments": (
        test_experiments_plans.CHECKS | test_experiments_store.CHECKS | test_experiments.CHECKS
    ),
    "datasets": test_datasets.CHECKS,
    "fit": properties_fit.PROPERTIES,
    "plotting": test_plotting.CHECKS,
}
BUGS = [(area, bug) for area in AREAS for bug in import_module(f"mutants_{area}").MUTANTS]
SEEN = Path(__file__).with_name("mutants_seen.json")  # {area: {check: bugs that it sees}}
FIRST = {
    area: {bug: check for check, bugs in seen.items() for bug in bugs}
    for area, seen in json.loads(SEEN.read_text("utf-8")).items()
}


def asked(area, bug):
    """The checks of an area, first the one that is known to see the bug."""
    first = FIRST[area].get(bug[0])
    return {name: AREAS[area][name] for name in sorted(AREAS[area], key=lambda c: c != first)}


@pytest.mark.parametrize("area", AREAS)
def test_the_unchanged_copy_raises_no_alarm(area):
    checks = {name: AREAS[area][name] for name in set(FIRST[area].values()) & set(AREAS[area])}
    assert judge(UNCHANGED, checks) == Verdict("survived")


@pytest.mark.parametrize("area, bug", BUGS, ids=[f"{area}: {bug[0]}" for area, bug in BUGS])
def test_the_bug_is_caught(area, bug):
    verdict = judge(bug, asked(area, bug))
    print(f"\n{bug[1]:24} {bug[0]:56} {verdict.check or 'NOT CAUGHT'}", end="")
    assert verdict.outcome == "caught", verdict
    if verdict.check not in FIRST[area].values():  # those are silent where there is no bug
        assert judge(UNCHANGED, {verdict.check: AREAS[area][verdict.check]}).outcome == "survived"


def renew(everything):
    """Write which check sees which bug, the cheapest one, for bugs that the file does not know."""
    for area, checks in AREAS.items():
        cost, known = {}, {} if everything else FIRST[area]
        bugs = [bug for of, bug in BUGS if of == area]
        if all(bug[0] in known for bug in bugs):
            continue
        with loaded() as cv:
            for name, check in checks.items():
                start = process_time()
                check(cv)
                cost[name] = process_time() - start
        cheap = {name: checks[name] for name in sorted(checks, key=cost.get)}
        new = {bug[0]: judge(bug, cheap) for bug in bugs if bug[0] not in known}
        new = {bug: verdict.check for bug, verdict in new.items() if verdict.outcome == "caught"}
        FIRST[area] = {bug[0]: (known | new)[bug[0]] for bug in bugs if bug[0] in known | new}
    table = {
        area: {c: [b for b in seen if seen[b] == c] for c in AREAS[area] if c in seen.values()}
        for area, seen in FIRST.items()
    }
    SEEN.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n", "utf-8")


def test_every_list_has_its_checks_and_no_bug_stands_twice():
    lists = {path.stem for path in Path(__file__).parent.glob("mutants_*.py")}
    assert lists == {f"mutants_{area}" for area in AREAS}
    assert len({(area, bug[0]) for area, bug in BUGS}) == len(BUGS)
    assert len({bug[1:] for _, bug in BUGS}) == len(BUGS)


# The harness itself --------------------------------------------------------------------------

ONCE = "import numpy as np"  # stands once in combine.py


def test_a_patch_that_does_not_apply_fails():
    for old in "these words are not in the source", "def ":
        with pytest.raises(AssertionError, match="the patch no longer applies: .* times in"):
            judge(("a bug", "combine.py", old, ""), {})
    with pytest.raises(AssertionError, match="there is no nowhere.py"):
        judge(("a bug", "nowhere.py", "def ", ""), {})


def test_only_a_failed_assertion_is_a_catch():
    def fails(cv):
        assert not hasattr(cv.combine, "bug")

    def crashes(cv):
        raise ValueError("a crash")

    bug = ("a bug", "combine.py", ONCE, f"{ONCE}\n\nbug = True")
    assert judge(bug, {"one": lambda cv: None, "two": fails}) == Verdict("caught", "two")
    assert judge(bug, {"one": lambda cv: None, "two": crashes}) == (
        "crashed", "two", "ValueError('a crash')",
    )  # fmt: skip
    assert judge(bug, {"one": crashes, "two": fails}) == Verdict("caught", "two")
    assert judge(bug, {"one": lambda cv: None}) == Verdict("survived")
    broken = judge(("a bug", "combine.py", ONCE, f"{ONCE}\n\nbug ="), {"one": fails})
    assert broken.outcome == "crashed" and broken.check == "import"


def test_a_copy_is_whole_and_leaves_no_trace():
    """Checks see the copy, its parts and its data; the package itself stays as it was."""
    seen = []

    def look(cv):
        seen.append(harness.part(cv, "experiments.plans"))
        assert seen[0].__name__ == "cvlib_copy.experiments.plans" and seen[0].LR == "changed"
        assert cv.datasets.load("sonar")[0].shape == (208, 61)
        assert harness.Path(cv.__file__).parent != PACKAGE

    assert judge(("a bug", "experiments/plans.py", "BLOCK = 10", "BLOCK = 10\nLR = 'changed'"),
                 {"look": look}) == Verdict("survived")  # fmt: skip
    assert seen and not [name for name in harness.sys.modules if name.startswith("cvlib_copy")]
    assert harness.part(harness.cvlib, "experiments.plans").LR != "changed"


def test_the_package_imports_itself_by_relative_names():
    """Else a copy would run in part on the package without the bug."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names.append(node.module)
            assert not any(name.split(".")[0] == "cvlib" for name in names), path


if __name__ == "__main__":
    renew("--all" in sys.argv)
