"""Bugs in copies of the package: each must be seen by a check, and only a failed assertion sees.

A bug is a plain tuple (name, file, old, new): in that file of the package `old` stands exactly
once, and the bug makes it `new`. A check is a function of the package. The lists are the files
mutants_*.py, one for each area; test_mutants.py says which checks must see which list.
"""

import importlib
import shutil
import sys
import tempfile
import warnings
from contextlib import contextmanager
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import cvlib

PACKAGE = Path(cvlib.__file__).parent
COPY = "cvlib_copy"
UNCHANGED = ("no bug", "__init__.py", "", "")
WRONG = (AssertionError, pytest.fail.Exception)  # the second: pytest.raises that saw nothing


class Verdict(NamedTuple):
    """What became of a bug, and the check that decided it."""

    outcome: str  # "caught", "crashed" or "survived"
    check: str = ""
    error: str = ""


@cache
def compiled(source):
    """The code of a file; most files are the same in all copies."""
    return compile(source, COPY, "exec", dont_inherit=True)


class Loader(SourceFileLoader):
    def get_code(self, name):
        return compiled(self.get_data(self.path))


class Finder:
    """Finds the modules of the copy in a folder."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] != COPY:
            return None
        base = self.folder.joinpath(*name.split("."))
        inside = [str(base)] if base.is_dir() else None
        file = base / "__init__.py" if inside else base.with_suffix(".py")
        loader = Loader(name, str(file))
        return spec_from_file_location(name, file, loader=loader, submodule_search_locations=inside)


@contextmanager
def copy(file="__init__.py", old="", new=""):
    """The whole package under another name, with `old` made `new` in one of its files."""
    assert (PACKAGE / file).exists(), f"the patch no longer applies: there is no {file}"
    source = (PACKAGE / file).read_text("utf-8")
    found = source.count(old) if old else 1
    assert found == 1, f"the patch no longer applies: {old!r} stands {found} times in {file}"
    with tempfile.TemporaryDirectory() as folder:
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PACKAGE, Path(folder) / COPY, ignore=skip)
        if old:
            (Path(folder) / COPY / file).write_text(source.replace(old, new), "utf-8")
        finder = Finder(folder)
        sys.meta_path.insert(0, finder)
        try:
            yield lambda: importlib.import_module(COPY)
        finally:
            sys.meta_path.remove(finder)
            for name in [n for n in sys.modules if n.split(".")[0] == COPY]:
                del sys.modules[name]


def checks_in(names):
    """{what: check} of the functions check_what among a module's names."""
    return {name[6:]: f for name, f in names.items() if name.startswith("check_")}


def on_the_package(checks):
    """A test that runs every check on the package itself."""

    @pytest.mark.parametrize("name", checks)
    def test(name):
        checks[name](cvlib)

    return test


def part(cv, name):
    """The module of this name, in whichever folder of the package it lies."""
    if name.split(".")[0] == "experiments":
        return importlib.import_module(name)
    folder = Path(cv.__file__).parent
    (path,) = folder.rglob(f"{name}.py")
    dotted = ".".join(path.relative_to(folder).with_suffix("").parts)
    return importlib.import_module(f"{cv.__name__}.{dotted}")


def judge(bug, checks):
    """The verdict of the checks, in their order, on a copy with the bug (name, file, old, new).

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
    with copy(*bug[1:]) as load, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            cv = load()
        except Exception as error:
            cv = error
        yield cv
