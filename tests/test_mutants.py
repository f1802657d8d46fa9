"""Every bug of mutants.py, put into a copy of the package, is caught by a property of the core.

`pytest -s tests/test_mutants.py` prints the table: bug, property that saw it first.
"""

import importlib
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from mutants import MUTANTS
from properties import PROPERTIES

import cvlib

PACKAGE = Path(cvlib.__file__).parent
MODULES = ("linear", "datasets", "models", "families", "draws", "integrands", "approximations",
           "estimators", "zoo", "exact")  # fmt: skip


def copy_with_bug(folder, module, old, new):
    """A copy of the package under another name, patched; an error when the patch does not apply."""
    source = (PACKAGE / f"{module}.py").read_text("utf-8")
    found = source.count(old)
    assert found == 1, f"the patch no longer applies: {old!r} stands {found} times in {module}.py"
    copy = Path(folder) / "mutated"
    copy.mkdir()
    for path in PACKAGE.glob("*.py"):
        if path.stem != "plotting":
            shutil.copy(path, copy)
    (copy / f"{module}.py").write_text(source.replace(old, new), "utf-8")
    return copy


def first_alarm(folder, checks=PROPERTIES):
    """Import the copy in `folder` and name the first check that it fails, or None."""
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        package = importlib.import_module("mutated")
        for name, check in checks.items():
            try:
                check(package)
            except AssertionError:  # a number is wrong; a bug that crashes would prove little
                return name
        return None
    finally:
        sys.path.remove(str(folder))
        for name in [n for n in sys.modules if n.split(".")[0] == "mutated"]:
            del sys.modules[name]


def test_the_unchanged_copy_raises_no_alarm(tmp_path):
    copy_with_bug(tmp_path, "zoo", "import SimpleNamespace", "import SimpleNamespace")
    assert first_alarm(tmp_path) is None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name, module, old, new", MUTANTS, ids=[m[0] for m in MUTANTS])
def test_mutant_is_caught(tmp_path, name, module, old, new):
    copy_with_bug(tmp_path, module, old, new)
    with np.errstate(all="ignore"):
        alarm = first_alarm(tmp_path)
    print(f"\n{module:15} {name:52} {alarm or 'NOT CAUGHT'}", end="")
    assert alarm is not None


def test_a_patch_that_does_not_apply_fails(tmp_path):
    with pytest.raises(AssertionError, match="no longer applies"):
        copy_with_bug(tmp_path, "draws", "these words are not in the source", "")


def test_the_list_is_long_and_covers_the_core():
    assert len({m[0] for m in MUTANTS}) == len(MUTANTS) >= 25
    assert {m[1] for m in MUTANTS} <= set(MODULES)
    assert {"families", "draws", "integrands", "approximations", "estimators", "models"} <= {
        m[1] for m in MUTANTS
    }
