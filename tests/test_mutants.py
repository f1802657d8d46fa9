"""Every bug of mutants.py, put into a copy of the package, is caught by a check.

`pytest -s tests/test_mutants.py` prints the table: place, bug, check that saw it. Checks are many,
and some are dear, so a bug names the one to ask first; if that one does not see it the others are
asked, and a warning says which did. `python tests/test_mutants.py` suggests one for each new bug.
"""

import ast
import sys
from importlib import import_module
from pathlib import Path
from time import process_time
from warnings import warn

import harness
import pytest
from harness import PACKAGE, UNCHANGED, Verdict, checks_in, judge, loaded, part
from mutants import MUTANTS
from planting import planted

AREAS = {  # for each list the files whose tests must see its bugs: "lines" is test_lines.py
    "core": "lines prices", "models": "own_models", "parameters": "parameters",
    "optimize": "loop", "natural": "natural_steps", "snapshots": "passes",
    "parabola": "parabola passes", "combine": "combine", "regression": "regression",
    "ensemble": "ensemble definitions",
    "sampling": "batches coupled", "coupled": "coupled", "choose": "choose",
    "families": "families nongaussian relaxations", "outside_families": "own_families families",
    "relaxations": "relaxations nongaussian", "zoo": "zoo", "fit": "fitting", "answers": "answers",
}  # fmt: skip
AREAS = {
    area: checks_in(*(import_module(f"test_{name}") for name in names.split()))
    for area, names in AREAS.items()
}
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


def suggest():
    """Say for each bug that names no check of its area which is the cheapest that sees it."""
    for area, checks in AREAS.items():
        bugs = [bug for of, bug in BUGS if of == area and bug[4] not in checks]
        cost = {}
        with loaded() as cv:
            for name, check in checks.items() if bugs else ():
                start = process_time()
                check(cv)
                cost[name] = process_time() - start
        cheap = {name: checks[name] for name in sorted(cost, key=cost.get)}
        for bug in bugs:
            print(f"{area}: {bug[0]}: {judge(bug, cheap)}")


def test_every_list_has_its_checks_and_no_bug_stands_twice():
    assert {*MUTANTS} == {*AREAS, "adapters"}  # the last: test_adapters.py, where JAX is installed
    assert len({(area, bug[0]) for area, bug in BUGS}) == len(BUGS)
    assert len({bug[1:4] for _, bug in BUGS}) == len(BUGS)
    assert [bug for area, bug in BUGS if bug[4] not in AREAS[area]] == []


# The harness itself --------------------------------------------------------------------------

ONCE = "import numpy as np"  # stands once in combine.py


def test_a_bug_whose_code_is_gone_or_stands_twice_fails():
    for place, old in ("combine.*", "these_words"), ("no_such_place", "x"), ("combine.*", "np"):
        with pytest.raises(AssertionError, match="no longer applies: .* stands [0-9]+ times in"):
            judge(("a bug", place, old, "1", ""), {})


CODE = """
A, B = 1, [2, 3]
class One:
    size: int = 4
    def f(self, x, *, lr=0.1, n=2):  # a comment
        y = self.g(x,
                   "text", lr=lr)
        if x:
            y += 1
        return (y + A) * n
def f(x): return [x for x in B if x]
if A:
    def g(x, n=2): return x * n
    g(A)
"""
CALL = CODE[CODE.index("self.g") : CODE.index("lr=lr)") + 6]


@pytest.mark.parametrize(
    "place, old, new, text, right",
    [
        ("A", "1", "7", "A, B = 1", "A, B = 7"),
        ("One", "size: int = 4", "size: int = 5", "int = 4", "int = 5"),
        ("One.f", "lr=0.1", "lr=3", "lr=0.1", "lr=3"),
        ("One.f", "lr=lr", "lr=1", "lr=lr", "lr=1"),
        ("One.f", "lr=lr", "", ", lr=lr", ""),
        ("One.f", "self.g(x, 'text', lr=lr)", "a, b", CALL, "(a, b)"),
        ("One.f", "n", "y + n", ") * n", ") * (y + n)"),
        ("One.f", "y += 1", "", "y += 1", "pass"),
        ("One.f", "y += 1\n", "x = 1\ny = 2", "y += 1", "x = 1; y = 2"),
        ("code.*", "g(A)", "", "\n    g(A)", ""),
    ],
)
def test_a_bug_is_put_where_it_says(tmp_path, place, old, new, text, right):
    assert CODE.count(text) == 1
    (tmp_path / "code.py").write_text(CODE)
    module, tree = planted((tmp_path,), place, old, new)
    assert module == f"{tmp_path.name}.code"
    assert ast.unparse(tree) == ast.unparse(ast.parse(CODE.replace(text, right)))


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


def test_a_copy_is_whole_and_leaves_no_trace():
    """Checks see the copy, its parts and its data; the package itself stays as it was."""
    seen = []

    def look(cv):
        seen.append(part(cv, "combine"))
        assert seen[0] is cv.combine and cv.combine.changed
        assert cv.datasets.load("sonar")[0].shape == (208, 61)
        assert Path(cv.__file__).parent != PACKAGE
        for name in [name for name in sys.modules if name.startswith("cvlib_copy")]:
            for value in vars(sys.modules[name]).values():
                assert (getattr(value, "__module__", None) or "").split(".")[0] != "cvlib"

    bug = ("a bug", "combine.*", ONCE, f"{ONCE}\nchanged = True", "")
    assert judge(bug, {"look": look}) == Verdict("survived")
    assert seen and not [name for name in sys.modules if name.startswith("cvlib_copy")]
    assert not hasattr(part(harness.cvlib, "combine"), "changed")


def test_code_beside_the_package_is_copied_with_it(tmp_path, monkeypatch):
    """It sees the copy of the package, and may hold bugs of its own."""
    inner = tmp_path / "beside" / "inner"
    inner.mkdir(parents=True)
    (inner.parent / "__init__.py").write_text("import cvlib\nfrom cvlib import rules as r")
    (inner / "__init__.py").write_text("import cvlib.ascent.rules as rules\nfrom beside import r")
    (inner / "numbers.py").write_text("from .. import cvlib, inner\ndef two(): return 2")
    monkeypatch.setattr(harness, "ROOTS", (PACKAGE, tmp_path / "beside"))

    def look(cv):
        numbers = part(cv, "inner.numbers")
        assert numbers.cvlib is cv and numbers.inner.r is numbers.inner.rules is cv.rules
        assert numbers.two() == 2

    assert judge(UNCHANGED, {"look": look}) == Verdict("survived")
    bug = ("a bug", "two", "return 2", "return 3", "")
    assert judge(bug, {"look": look}) == Verdict("caught", "look")


if __name__ == "__main__":
    suggest()
