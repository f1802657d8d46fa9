"""Bugs in copies of the package: each must be seen by a check, and only a failed assertion sees.

A bug is a tuple (name, place, old, new, check). `place` names a function, method, class or
constant, in whatever file it lies: "Gaussian.pull1"; with the module before it where two share a
name, "exact.elbo"; "special.*" is all of a module. There the code `old` stands exactly once, and
the bug makes it `new`. Both are an expression, statements (`new` may be none, ""), or an argument
of a call, "lr=0.1". They are compared as syntax trees: layout, quotes and comments do not matter.
`check` is known to see the bug and is asked first, the other checks if it does not.

A check is a test that needs the package alone, which it gets as `cv`: from pytest a copy without a
bug (conftest.py), from here one with a bug. So a test that passes sees the bug itself where it
fails, and not that it is a copy. mutants.py has the lists, and says which files must see which.
"""

import ast
import importlib
import re
import sys
import textwrap
import warnings
from contextlib import contextmanager
from functools import cache, partial
from importlib.machinery import SourceFileLoader
from importlib.util import spec_from_file_location
from inspect import signature
from itertools import product
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest

import cvlib

PACKAGE = Path(cvlib.__file__).parent
ROOTS = PACKAGE, PACKAGE.with_name("experiments")  # the folders whose modules are copied
COPY = "_copy"  # the copy of cvlib is imported as cvlib_copy
WRONG = (AssertionError, pytest.fail.Exception)  # the second: pytest.raises that saw nothing


class Verdict(NamedTuple):
    """What became of a bug, and the check that decided it."""

    outcome: str  # "caught", "crashed" or "survived"
    check: str = ""
    error: str = ""


@cache
def modules():
    """{dotted name: file} of all that is copied."""
    files = [(file.relative_to(root.parent), file) for root in ROOTS for file in root.rglob("*.py")]
    dotted = lambda path: ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    return {dotted(path): file for path, file in files}


def renamed(name):
    """The name of a module in the copies."""
    return re.sub(rf"^({'|'.join(root.name for root in ROOTS)})\b", rf"\1{COPY}", name)


def from_copies(tree):
    """The code of a module whose imports of a root are those of its copy."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level:
            node.module = renamed(node.module)
        for alias in node.names if isinstance(node, ast.Import) else ():
            if renamed(alias.name) != alias.name:
                assert alias.asname or "." not in alias.name, f"import {alias.name}: no copy of it"
                alias.asname, alias.name = alias.asname or alias.name, renamed(alias.name)
    try:
        return compile(tree, "a copy", "exec", dont_inherit=True)
    except ValueError:  # a name that is written has been replaced by one that is read
        return compile(ast.unparse(tree), "a copy", "exec", dont_inherit=True)


@cache
def compiled(path):
    """The code of a file, the same for all bugs that lie elsewhere."""
    return from_copies(ast.parse(Path(path).read_bytes()))


class Loader(SourceFileLoader):
    tree = None  # in place of what the file holds

    def get_code(self, name):
        return from_copies(self.tree) if self.tree else compiled(self.path)


class Finder:
    """Finds the modules of the copies in the files of the roots; one has another syntax tree."""

    def __init__(self, module, tree):
        self.module, self.tree = module, tree

    def find_spec(self, name, path=None, target=None):
        original = name.replace(COPY, "", 1)
        file = modules().get(original) if COPY in name else None
        if not file:
            return None
        inside = [str(file.parent)] if file.stem == "__init__" else None
        loader = Loader(name, str(file))
        loader.tree = self.tree if original == self.module else None
        return spec_from_file_location(name, file, loader=loader, submodule_search_locations=inside)


@contextmanager
def copy(place="", old="", new=""):
    """All roots under other names, with `old` made `new` in one place."""
    finder = Finder(*planted(place, old, new) if place else ("", None))
    sys.meta_path.insert(0, finder)
    try:
        yield lambda: importlib.import_module(renamed(PACKAGE.name))
    finally:
        sys.meta_path.remove(finder)
        for name in [n for n in sys.modules if n.split(".")[0].endswith(COPY)]:
            del sys.modules[name]


def checks_in(*modules):
    """{id: function of the package} of the tests in these modules that need `cv` alone.

    A test with parameters is one for each of their values, under the id that pytest gives it.
    """
    tests = [test for module in modules for test in vars(module).items() if callable(test[1])]
    tests = [_at_its_values(*test) for test in tests if test[0].startswith("test_")]
    return {name: check for checks in tests for name, check in checks}


def _at_its_values(name, test):
    needed = {p.name for p in signature(test).parameters.values() if p.default is p.empty}
    ways = [("", {})]
    for mark in getattr(test, "pytestmark", ()):
        if mark.name == "parametrize":
            names = [x.strip() for x in mark.args[0].split(",")]
            rows = [row if len(names) > 1 else (row,) for row in mark.args[1]]
            named = lambda label, row: "-".join([label, *map(str, row)]).strip("-")
            pairs = [(*way, row) for way in ways for row in rows]
            ways = [(named(label, row), said | dict(zip(names, row))) for label, said, row in pairs]
            needed -= {*names}
    if needed == {"cv"}:
        for label, said in ways:
            yield name + f"[{label}]" * bool(label), partial(test, **said)


@cache
def jax():
    """JAX, with what runs once compiled in a hurry; without JAX the test is skipped."""
    found = pytest.importorskip("jax")
    with mock.patch.dict("os.environ", XLA_FLAGS="--xla_backend_optimization_level=0"):
        found.devices()  # XLA begins
    return found


def part(cv, name):
    """A module by the end of its name, such as "choosing" or "experiments.plans", beside `cv`."""
    found = [module for module in modules() if f".{module}".endswith(f".{name}")]
    assert len(found) == 1, f"{name} may be any of {found}"
    return importlib.import_module(found[0] if cv is cvlib else renamed(found[0]))


def judge(bug, checks):
    """The verdict of the checks, in their order, on a copy with the bug.

    A crash is no catch: it shows that the code ran, not that anybody looked at its numbers.
    """
    crashed = None
    with loaded(bug) as cv:
        if isinstance(cv, Exception):
            return Verdict("crashed", "import", repr(cv))
        for name, check in checks.items():
            try:
                check(cv)
            except WRONG:
                return Verdict("caught", name)
            except Exception as error:
                crashed = crashed or Verdict("crashed", name, repr(error))
    return crashed or Verdict("survived")


@contextmanager
def loaded(bug=("no bug", "", "", "", "")):
    """The copy with the bug, in silence; or what went wrong when it was imported."""
    with copy(*bug[1:4]) as load, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            cv = load()
        except Exception as error:
            cv = error
        yield cv


# Where a bug lies, and the module with the bug ----------------------------------------------------
# A place is found by its name and the code by its syntax tree, so that a bug stays where it is when
# code moves to another file or is laid out anew.


def places(node, name):
    """(name, node) of the functions, classes and assignments in a tree, also inside each other."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            yield f"{name}.{child.name}", child
            yield from places(child, f"{name}.{child.name}")
        elif isinstance(child, (ast.Assign, ast.AnnAssign)):
            names = [n for n in ast.walk(child) if isinstance(n, ast.Name)]
            yield from ((f"{name}.{n.id}", child) for n in names if isinstance(n.ctx, ast.Store))
        elif isinstance(child, ast.stmt):
            yield from places(child, name)


def tree_of(module):
    """The syntax tree of a module, and (name, node) of its places: it all comes first."""
    tree = ast.parse(modules()[module].read_bytes())
    return tree, [(f"{module}.*", tree), *places(tree, module)]


@cache
def index():
    """(name, module) of all places."""
    return [(name, module) for module in modules() for name, _ in tree_of(module)[1]]


def readings(old, new):
    """(old, new) as lists of syntax trees: expressions, statements, or arguments "name=value"."""
    try:
        yield [[ast.parse(text.strip(), mode="eval").body] for text in (old, new)]
    except SyntaxError:
        both = [ast.parse(textwrap.dedent(text)).body for text in (old, new)]
        yield both
        if len(both[0]) == 1 and all(isinstance(tree, ast.Assign) for tree in sum(both, [])):
            yield [[ast.keyword(ast.unparse(t.targets), t.value) for t in one] for one in both]


def same(some, others):
    """Equal code, wherever it stands, and whether its names are read or written."""
    text = lambda nodes: re.sub(r"(, )?ctx=\w+\(\)", "", "".join(map(ast.dump, nodes)))
    return [*map(type, some)] == [*map(type, others)] and text(some) == text(others)


def matches(tree, old, new):
    """(node, field, where, trees to put there) of each match; where is None for a single tree."""
    for (olds, news), node in product(readings(old, new), ast.walk(tree)):
        for field, value in ast.iter_fields(node):
            if isinstance(value, list):
                parts = [slice(i, i + len(olds)) for i in range(len(value) - len(olds) + 1)]
                yield from ((node, field, k, news) for k in parts if same(value[k], olds))
            elif same([value], olds):
                yield node, field, None, news


def planted(place, old, new):
    """The module where a bug lies, and its syntax tree with the bug."""
    found, meant = [], lambda name: name.endswith(f".{place}")
    for module in {module for name, module in index() if meant(name)}:
        tree, inside = tree_of(module)
        for node in (node for name, node in inside if meant(name)):
            found += [(module, tree, *match) for match in matches(node, old, new)]
    assert len(found) == 1, f"no longer applies: {old!r} stands {len(found)} times in {place!r}"
    ((module, tree, node, field, where, news),) = found
    if where is None:
        setattr(node, field, news[0])
    else:
        getattr(node, field)[where] = news
        if not getattr(node, field) and field == "body":
            node.body = [ast.Pass()]
    return module, ast.fix_missing_locations(tree)
