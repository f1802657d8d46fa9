"""Bugs in copies of the package: each must be seen by a check, and only a failed assertion sees.

A bug is a plain tuple (name, place, old, new, check). `place` names a function, method, class or
constant, in whatever file it lies: "Gaussian.pull1"; with the module before it where two share a
name, "exact.elbo"; "special.*" is all of a module. There the code `old` stands exactly once, and
the bug makes it `new`. Both are an expression, statements (`new` may be none, ""), or an argument
or a default, "lr=0.1". They are compared as syntax trees: layout, quotes and comments do not
matter. `check` is known to see the bug and is asked first, the other checks if it does not.

A check is a test that needs the package alone, which it gets as `cv`: from pytest a copy without a
bug (conftest.py), from here one with a bug. So a test that passes sees the bug itself where it
fails, and not that it is a copy. The lists, one for each area, are in mutants.py; test_mutants.py
says which files must see which list.
"""

import ast
import importlib
import shutil
import sys
import tempfile
import warnings
from contextlib import contextmanager
from functools import cache, partial
from importlib.machinery import SourceFileLoader
from importlib.util import spec_from_file_location
from inspect import signature
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from planting import modules, planted

import cvlib

PACKAGE = Path(cvlib.__file__).parent
ROOTS = PACKAGE, PACKAGE.parent / "experiments"  # the folders that are copied
COPY = "_copy"  # the copy of cvlib is imported as cvlib_copy
UNCHANGED = ("no bug", "", "", "", "")
WRONG = (AssertionError, pytest.fail.Exception)  # the second: pytest.raises that saw nothing


class Verdict(NamedTuple):
    """What became of a bug, and the check that decided it."""

    outcome: str  # "caught", "crashed" or "survived"
    check: str = ""
    error: str = ""


def renamed(name):
    """The name of a module in the copies."""
    root, *rest = name.split(".")
    return ".".join([root + COPY * (root in [folder.name for folder in ROOTS]), *rest])


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


@cache
def copies(roots):
    """A folder with a copy of every root, for all bugs: bugs are put in as files are loaded."""
    folder = tempfile.TemporaryDirectory()
    for root in roots:
        target = Path(folder.name) / (root.name + COPY)
        shutil.copytree(root, target, ignore=shutil.ignore_patterns("__pycache__"))
    return folder  # it goes when Python ends


class Loader(SourceFileLoader):
    tree = None  # in place of what the file holds

    def get_code(self, name):
        return from_copies(self.tree) if self.tree else compiled(self.path)


class Finder:
    """Finds the modules of the copies; one of them has another syntax tree."""

    def __init__(self, module, tree):
        self.folder, self.module, self.tree = Path(copies(ROOTS).name), module, tree

    def find_spec(self, name, path=None, target=None):
        if not name.split(".")[0].endswith(COPY):
            return None
        base = self.folder.joinpath(*name.split("."))
        inside = [str(base)] if base.is_dir() else None
        file = base / "__init__.py" if inside else base.with_suffix(".py")
        loader = Loader(name, str(file))
        loader.tree = self.tree if name == self.module else None
        return spec_from_file_location(name, file, loader=loader, submodule_search_locations=inside)


@contextmanager
def copy(place="", old="", new=""):
    """All roots under other names, with `old` made `new` in one place."""
    module, tree = planted(ROOTS, place, old, new) if place else ("", None)
    finder = Finder(renamed(module), tree)
    sys.meta_path.insert(0, finder)
    try:
        yield lambda: importlib.import_module(renamed(PACKAGE.name))
    finally:
        sys.meta_path.remove(finder)
        for name in [n for n in sys.modules if n.split(".")[0].endswith(COPY)]:
            del sys.modules[name]


def tests_of(*modules):
    """{id: function of the package} of the tests in these modules that need `cv` alone.

    A test with parameters is one for each of their values, under the id that pytest gives it.
    """
    found = {}
    for module in modules:
        for name, test in vars(module).items():
            if name.startswith("test_") and callable(test):
                found |= dict(_at_its_values(name, test))
    return found


def _at_its_values(name, test):
    needed = {p.name for p in signature(test).parameters.values() if p.default is p.empty}
    ways = [("", {})]
    for mark in getattr(test, "pytestmark", ()):
        if mark.name == "parametrize":
            names = [x.strip() for x in mark.args[0].split(",")]
            rows = [row if len(names) > 1 else (row,) for row in mark.args[1]]
            ways = [
                ("-".join([label, *map(str, row)]).strip("-"), said | dict(zip(names, row)))
                for label, said in ways
                for row in rows
            ]
            needed -= {*names}
    if needed == {"cv"}:
        for label, said in ways:
            yield name + f"[{label}]" * bool(label), partial(test, **said)


def part(cv, name):
    """A module by the end of its name, such as "pilots" or "experiments.plans", beside `cv`."""
    found = [module for module in modules(ROOTS) if f".{module}".endswith(f".{name}")]
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
def loaded(bug=UNCHANGED):
    """The copy with the bug, in silence; or what went wrong when it was imported."""
    with copy(*bug[1:4]) as load, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            cv = load()
        except Exception as error:
            cv = error
        yield cv
