"""Result files: a checksum over every digit, refusals that name the file and say what to do.

The checks take the package, so that they can be run on copies with a bug (tests/harness.py).
"""

import hashlib
import json
import re
import tempfile
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import scipy
from harness import part

import cvlib

NAME = "sgd data=toy runs=2"
RESULT = {"steps": [0, 5], "elbo": [[-12.345, None], [-6.0, 7.25]]}


@contextmanager
def stored(cv):
    """The store of the package, and the path of a file it wrote."""
    store = part(cv, "experiments.store")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cells" / "a.json"
        store.write(path, {"name": NAME, "versions": store.versions(), "result": RESULT})
        yield store, path


def sealed(record):
    """The text of a record with the right checksum, as anyone could make it."""
    record = {key: value for key, value in record.items() if key != "sha256"}
    return json.dumps(record | {"sha256": hashlib.sha256(json.dumps(record).encode()).hexdigest()})


def test_a_file_holds_its_content_and_a_checksum(cv):
    with stored(cv) as (store, path):
        text = path.read_text("utf-8")
        record = json.loads(text)
        assert list(record) == ["name", "versions", "result", "sha256"]
        assert json.loads(sealed(record)) == record
        assert store.read(path, NAME, "result") == {k: record[k] for k in list(record)[:3]}
        assert text.endswith("}\n") and len(text.splitlines()) == 6  # an entry a line
        assert [p.name for p in path.parent.iterdir()] == ["a.json"]


def test_every_altered_digit_is_refused(cv):
    with stored(cv) as (store, path):
        text = path.read_text("utf-8")
        digits = [m.start() for m in re.finditer("[0-9]", text)]
        assert len(digits) > 50
        for at in digits:
            path.write_text(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :], "utf-8")
            said = "was altered: its checksum" if '"elbo"' in text[:at] else "make it again"
            for any_version in False, True:
                with pytest.raises(store.Refused, match=said):
                    store.read(path, NAME, "result", any_version=any_version)
        path.write_text(json.dumps(json.loads(text), indent=3), "utf-8")  # the same numbers
        assert store.read(path, NAME, "result")["result"] == RESULT


SPOILED = {
    "empty": (lambda text: "", "cannot be read as a result"),
    "cut short": (lambda text: text[: len(text) // 2], "cannot be read as a result"),
    "no JSON": (lambda text: "hello", "cannot be read as a result"),
    "no text": (lambda text: "\0", "cannot be read as a result"),
    "a list": (lambda text: "[]", "cannot be read as a result"),
    "versions that are none": (lambda text: '{"versions": 3}', "cannot be read as a result"),
    "not a number": (lambda text: text.replace("-6.0", "NaN"), "cannot be read as a result"),
    "nothing": (lambda text: "{}", "it has no name and no versions and no result"),
    "no versions": (lambda text: change(text, "versions", None), "it has no versions"),
    "no checksum": (lambda text: text.replace("sha256", "sha1"),
                    "was altered: its checksum is missing or that of other numbers"),
    "another version": (
        lambda text: change(text, "versions", {"cvlib": "9.1"}),
        f"was made with cvlib 9.1 (now {cvlib.__version__}), and only these versions can go on"),
    "an older version, without a checksum": (
        lambda text: text.replace('"cvlib": "', '"cvlib": "0.0.').replace("sha256", "sha1"),
        f"was made with cvlib 0.0.{cvlib.__version__} (now {cvlib.__version__})"),
    "another schema": (lambda text: change(text, "versions", {"schema": 0}),
                       "was made with schema 0 (now 1)"),
    "another NumPy and SciPy": (
        lambda text: change(text, "versions", {"numpy": "9.1", "scipy": "9.2"}),
        f"was made with numpy 9.1 (now {np.__version__}), scipy 9.2 (now {scipy.__version__})"),
    "a package more": (lambda text: change(text, "versions", {"jax": "1"}),
                       "was made with {'schema': 1, "),
    "another cell": (lambda text: change(text, "name", "sgd data=toy runs=3"),
                     f"holds 'sgd data=toy runs=3', not {NAME!r}"),
}  # fmt: skip


def change(text, key, value):
    """The text with one entry changed (versions: some of them) or, for None, gone; sealed anew."""
    record = json.loads(text)
    record[key] = record[key] | value if isinstance(value, dict) else value
    return sealed({k: v for k, v in record.items() if v is not None})


def test_a_file_that_is_not_ours_is_refused_in_words(cv):
    for spoil, words in SPOILED.values():
        with stored(cv) as (store, path):
            path.write_text(spoil(path.read_text("utf-8")), "utf-8")
            before = path.read_bytes()
            with pytest.raises(store.Refused, match=re.escape(words)) as said:
                store.read(path, NAME, "result")
            assert str(said.value).startswith(f"{path} ")
            assert "Nothing was overwritten: move it away and make it again" in str(said.value)
            assert path.read_bytes() == before


def test_a_result_is_loaded_whatever_made_it(cv):
    ex = part(cv, "experiments")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table1.json"
        content = {"name": "table1", "versions": {"cvlib": "0.1"}, "rows": [{"elbo": -3.25}]}
        path.write_text(sealed(content))
        assert ex.load("table1", folder) == content
        for text, words in [
            (sealed(content).replace("3.25", "3.26"), "was altered"),
            (sealed({"name": "table1", "versions": {}}), "it has no rows"),
        ]:
            path.write_text(text)
            with pytest.raises(ex.Refused, match=words):
                ex.load("table1", folder)


def test_versions_name_all_that_numbers_depend_on(cv):
    assert part(cv, "experiments.store").versions() == {
        "schema": 1,
        "cvlib": cv.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "autograd": metadata.version("autograd"),
    }


def test_a_file_is_never_written_over(cv):
    with stored(cv) as (store, path):
        before, record = path.read_bytes(), store.read(path, NAME, "result")
        store.write(path, record)
        with pytest.raises(store.Refused, match="a.json exists and differs from what this run"):
            store.write(path, record | {"result": 1})
        assert path.read_bytes() == before


def test_two_processes_may_write_the_same_file(cv):
    """The second comes and goes while the first is between its last byte and its new name."""
    with stored(cv) as (store, path), pytest.MonkeyPatch.context() as patch:
        record, other = store.read(path, NAME, "result"), path.with_name("b.json")
        pids, fsync = iter([10, 11]), store.os.fsync
        patch.setattr(store.os, "getpid", lambda: next(pids))

        def interrupted(file):
            patch.setattr(store.os, "fsync", fsync)
            store.write(other, record)
            return fsync(file)

        patch.setattr(store.os, "fsync", interrupted)
        store.write(other, record)
        assert other.read_bytes() == path.read_bytes()
        assert sorted(p.name for p in path.parent.iterdir()) == ["a.json", "b.json"]


def test_a_row_a_line(cv):
    content = {"name": "x", "rows": [{"a": 1, "b": [2.5, None]}, {"a": 3}], "none": []}
    text = part(cv, "experiments.store").dumps(content)
    assert json.loads(text) == content
    assert '\n  {"a": 1, "b": [2.5, null]},\n  {"a": 3}\n' in text


def test_where_a_cell_is_kept(cv):
    ex = part(cv, "experiments")
    path = ex.store.cell_path("out", ex.cell("sgd", data="a/b", lr=0.1))
    assert path == Path("out") / "cells" / "sgd_data=a-b_lr=0.1.json"
