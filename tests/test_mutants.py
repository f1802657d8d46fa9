"""Every bug of the lists mutants_*.py, put into a copy of the package, is caught by a check.

`pytest -s tests/test_mutants.py` prints the table: bug, check that saw it first.
"""

import ast
from importlib import import_module

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
from harness import PACKAGE, Verdict, judge

of = lambda module, checks: {
    name: lambda cv, check=check: check(getattr(cv, module)) for name, check in checks.items()
}
COSTLY = (  # these last
    "sampling", "means_by_quadrature", "score_and_base_score", "records", "exact means",
    "single draws, all models", "lines are sums of their parts", "batched = looped = alone",
    "batches of data", "shared_work_is_done_once", "diagonal_family_builds_no_square_matrix",
    "choice_by_brute_force", "squared_length_of_a_step", "slope_of_few_draws",
    "errors_are_scatters", "shares_by_enumeration", "a_tie_is_not_sure",
    "a_diverged_run_is_counted_and_left_out", "a_long_run_keeps_few_steps",
    "the_chance_to_stop_too_early", "likelihoods", "training_a_quadratic", "adam",
)  # fmt: skip
ordered = lambda checks: {name: checks[name] for name in sorted(checks, key=COSTLY.__contains__)}
BEYOND = ordered(test_nongaussian.PROPERTIES)
RELAXED = test_relaxations.PROPERTIES
AREAS = {  # for each list mutants_NAME.py the checks that must see its bugs, likely ones first
    "core": ordered(properties.PROPERTIES | test_prices.CHECKS),
    "models": properties_models.PROPERTIES,
    "optimize": properties_optimize.PROPERTIES,
    "natural": properties_natural.PROPERTIES,
    "snapshots": properties_snapshots.PROPERTIES,
    "natural_runs": test_experiments_natural.CHECKS,
    "joint": test_experiments_joint.CHECKS,
    "combine": of("combine", test_combine.CHECKS),
    "coupled": test_coupled.CHECKS,
    "choose": ordered(test_choose.CHECKS),
    "families": test_families.CHECKS | BEYOND | RELAXED,
    "relaxations": RELAXED | BEYOND,
    "zoo": ordered(test_zoo.CHECKS),
    "experiments": ordered(
        test_experiments_plans.CHECKS | test_experiments_store.CHECKS | test_experiments.CHECKS
    ),
    "datasets": test_datasets.CHECKS,
    "fit": ordered(properties_fit.PROPERTIES),
    "plotting": test_plotting.CHECKS,
}
BUGS = [(area, bug) for area in AREAS for bug in import_module(f"mutants_{area}").MUTANTS]


@pytest.mark.parametrize("area", sorted(set(AREAS) - {"relaxations"}))  # it has those of families
def test_the_unchanged_copy_raises_no_alarm(area):
    assert judge(("no bug", "__init__.py", "", ""), AREAS[area]) == Verdict("survived")


@pytest.mark.parametrize("area, bug", BUGS, ids=[f"{area}: {bug[0]}" for area, bug in BUGS])
def test_the_bug_is_caught(area, bug):
    verdict = judge(bug, AREAS[area])
    print(f"\n{bug[1]:24} {bug[0]:56} {verdict.check or 'NOT CAUGHT'}", end="")
    assert verdict.outcome == "caught", verdict


def test_every_list_has_its_checks_and_no_bug_stands_twice():
    lists = {path.stem for path in harness.Path(__file__).parent.glob("mutants_*.py")}
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
    assert judge(bug, {"two": crashes, "one": fails}) == (
        "crashed", "two", "ValueError('a crash')",
    )  # fmt: skip
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
