"""Files of results, and what goes wrong on real machines: every refusal says what to do."""

import errno
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from functools import partial
from importlib import metadata
from itertools import count
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import scipy
from test_experiments import tiny, tree

import cvlib
import experiments.__main__
from experiments import Refused, cell, engine, load, store
from experiments.__main__ import main

ROOT = Path(__file__).resolve().parents[1]
PATH = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))  # with the jitter, if there is one
ENV = os.environ | {"PYTHONPATH": os.pathsep.join(PATH)}
COMMAND = [sys.executable, "-m", "experiments", "table1", "--quick"]
CELLS = 15  # of the quick table
PATIENCE = 120  # seconds before a test gives up
words = lambda out: Path(f"{out}.log").read_text()  # of a command
NAME = "sgd data=toy runs=2"
RESULT = {"steps": [0, 5], "elbo": [[-12.345, None], [-6.0, 7.25]]}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "cells" / "a.json"
    store.write(path, {"name": NAME, "versions": store.versions(), "result": RESULT})
    return path


def sealed(record):
    """The text of a record with the right checksum, as anyone could make it."""
    record = {key: value for key, value in record.items() if key != "sha256"}
    return json.dumps(record | {"sha256": hashlib.sha256(json.dumps(record).encode()).hexdigest()})


def test_a_file_holds_its_content_and_a_checksum(path):
    text = path.read_text("utf-8")
    record = json.loads(text)
    assert list(record) == ["name", "versions", "result", "sha256"]
    assert json.loads(sealed(record)) == record
    assert store.read(path, NAME, "result") == {k: record[k] for k in list(record)[:3]}
    assert text.endswith("}\n") and len(text.splitlines()) == 6  # an entry a line
    assert [p.name for p in path.parent.iterdir()] == ["a.json"]
    rows = store.dumps({"rows": [{"a": 1, "b": [2.5, None]}, {"a": 3}], "none": []})
    assert '\n  {"a": 1, "b": [2.5, null]},\n  {"a": 3}\n' in rows  # and a row a line
    assert json.loads(rows)["none"] == []
    assert store.cell_path("out", cell("sgd", data="a/b")).name == "sgd_data=a-b.json"


def test_every_altered_digit_is_refused(path):
    text = path.read_text("utf-8")
    digits = [m.start() for m in re.finditer("[0-9]", text)]
    assert len(digits) > 50
    for at in digits:
        path.write_text(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :], "utf-8")
        said = "was altered: its checksum" if '"elbo"' in text[:at] else "make it again"
        for any_version in False, True:
            with pytest.raises(Refused, match=said):
                store.read(path, NAME, "result", any_version=any_version)
    path.write_text(json.dumps(json.loads(text), indent=3), "utf-8")  # the same numbers
    assert store.read(path, NAME, "result")["result"] == RESULT


def change(text, key, value):
    """The text with one entry changed (versions: some of them), sealed anew."""
    record = json.loads(text)
    return sealed(record | {key: record[key] | value if isinstance(value, dict) else value})


made_with = lambda **other: partial(change, key="versions", value=other)
UNREADABLE, OURS = "cannot be read as a result", cvlib.__version__
SPOILED = {
    "cut short": (lambda text: text[: len(text) // 2], UNREADABLE),
    "a list": (lambda text: "[]", UNREADABLE),
    "versions that are none": (lambda text: '{"versions": 3}', UNREADABLE),
    "not a number": (lambda text: text.replace("-6.0", "NaN"), UNREADABLE),
    "nothing": (lambda text: "{}", "it has no name and no versions and no result"),
    "no checksum": (lambda text: text.replace("sha256", "sha1"),
                    "was altered: its checksum is missing or that of other numbers"),
    "another version": (made_with(cvlib="9.1"), f"was made with cvlib 9.1 (now {OURS}), and only "
                        "these versions can go on"),
    "an older version, without a checksum": (
        lambda text: text.replace('"cvlib": "', '"cvlib": "0.0.').replace("sha256", "sha1"),
        f"was made with cvlib 0.0.{OURS} (now {OURS})"),
    "another schema": (made_with(schema=0), "was made with schema 0 (now 1)"),
    "other packages": (made_with(numpy="9.1", scipy="9.2", autograd="9.3"), "was made with numpy "
                       f"9.1 (now {np.__version__}), scipy 9.2 (now {scipy.__version__}), "
                       f"autograd 9.3 (now {metadata.version('autograd')})"),
    "a package more": (made_with(jax="1"), "was made with {'schema': 1, "),
    "another cell": (partial(change, key="name", value="sgd data=toy runs=3"),
                     f"holds 'sgd data=toy runs=3', not {NAME!r}"),
}  # fmt: skip


@pytest.mark.parametrize("what", SPOILED)
def test_a_file_that_is_not_ours_is_refused_in_words(path, what):
    spoil, told = SPOILED[what]
    path.write_text(spoil(path.read_text("utf-8")), "utf-8")
    before = path.read_bytes()
    with pytest.raises(Refused, match=re.escape(told)) as said:
        store.read(path, NAME, "result")
    assert str(said.value).startswith(f"{path} ")
    assert "Nothing was overwritten: move it away and make it again" in str(said.value)
    assert path.read_bytes() == before


def test_a_result_is_loaded_whatever_made_it(tmp_path):
    content = {"name": "table1", "versions": {"cvlib": "0.1"}, "rows": [{"elbo": -3.25}]}
    (tmp_path / "table1.json").write_text(sealed(content))
    assert load("table1", tmp_path) == content
    altered = sealed(content).replace("3.25", "3.26")
    less = sealed({"name": "table1", "versions": {}})
    for text, told in (altered, "was altered"), (less, "it has no rows"):
        (tmp_path / "table1.json").write_text(text)
        with pytest.raises(Refused, match=told):
            load("table1", tmp_path)


def test_a_file_is_never_written_over(path):
    before, record = path.read_bytes(), store.read(path, NAME, "result")
    store.write(path, record)
    with pytest.raises(Refused, match="a.json exists and differs from what this run"):
        store.write(path, record | {"result": 1})
    assert path.read_bytes() == before


def test_two_processes_may_write_the_same_file(path, monkeypatch):
    """The second comes and goes while the first is between its last byte and its new name."""
    record, other = store.read(path, NAME, "result"), path.with_name("b.json")
    pids, fsync = count(10), os.fsync
    monkeypatch.setattr(store.os, "getpid", lambda: next(pids))

    def interrupted(file):
        monkeypatch.setattr(store.os, "fsync", fsync)
        store.write(other, record)
        return fsync(file)

    monkeypatch.setattr(store.os, "fsync", interrupted)
    store.write(other, record)
    assert other.read_bytes() == path.read_bytes()
    assert sorted(p.name for p in path.parent.iterdir()) == ["a.json", "b.json"]


# Machines ------------------------------------------------------------------------------------


def start(out, *options, command=COMMAND):
    command = [*command, "--out", str(out), *options]
    with open(f"{out}.log", "w") as log:  # a pipe would stay open as long as any worker lives
        return subprocess.Popen(command, env=ENV, stdout=log, stderr=subprocess.STDOUT)


def wait_until(ready, process, out):
    """The process must still be at work then."""
    limit = time.monotonic() + PATIENCE
    while not ready():
        assert process.poll() is None, words(out)
        assert time.monotonic() < limit, "it did not come so far in time"
        time.sleep(0.02)


def wait_for_cells(out, count, process):
    wait_until(lambda: len(list((out / "cells").glob("*.json"))) >= count, process, out)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The files of a run that nothing befell, on one worker."""
    folder = tmp_path_factory.mktemp("undisturbed")
    again(folder)
    assert len(tree(folder)) == CELLS + 1
    return tree(folder)


def again(folder, *options):
    """The command in this process."""
    main([*COMMAND[3:], "--jobs", "1", "--out", str(folder), *options])


def unpack(files, folder):
    """Write {relative path: bytes} below a folder."""
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)


@pytest.fixture
def cluster(tmp_path):
    """A scheduler and two workers, begun as the package says; (address, worker processes)."""
    for told in "dask scheduler --port 8786", "dask worker tcp://", "--nthreads 1":
        assert told in experiments.__doc__ and told in experiments.__main__.__doc__
    pytest.importorskip("distributed", reason="Dask is not installed: pip install distributed")
    note, processes = tmp_path / "scheduler.json", []

    def launch(what, *options):
        command = [sys.executable, "-m", "dask", what, "--no-dashboard", *options]
        log = open(tmp_path / f"{what}{len(processes)}.log", "w")
        processes.append(subprocess.Popen(command, env=ENV, cwd=tmp_path, stdout=log, stderr=log))
        return processes[-1]

    options = "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(note)
    there = lambda: note.exists() and note.read_text().strip()
    wait_until(there, launch("scheduler", *options), tmp_path / "scheduler0")
    address = json.loads(note.read_text())["address"]
    workers = [launch("worker", address, "--no-nanny", "--nthreads", "1") for _ in range(2)]
    yield address, workers
    for process in processes:
        process.kill()
        process.wait()


def test_a_cluster_that_loses_a_worker_gives_the_same_bytes(tmp_path, cluster, undisturbed):
    from distributed import Client

    address, workers = cluster
    with Client(address) as client:
        client.wait_for_workers(2, timeout=PATIENCE)
    out = tmp_path / "out"
    process = start(out, "--scheduler", address)
    wait_for_cells(out, 2, process)
    workers[0].kill()
    workers[0].wait()
    assert len(tree(out)) < CELLS, "the worker was lost too late to matter"
    assert process.wait(timeout=PATIENCE) == 0, words(out)
    assert tree(out) == undisturbed
    with Client(address) as client:
        assert len(client.scheduler_info()["workers"]) == 1


@pytest.mark.parametrize("there", [True, False])
def test_no_scheduler_or_no_dask_there(tmp_path, monkeypatch, there):
    if there:
        pytest.importorskip("distributed")
        monkeypatch.setattr(engine, "PATIENCE", "1s")
    else:
        monkeypatch.setitem(sys.modules, "distributed", None)
    said = "no Dask scheduler answers at tcp://127.0.0.1:9" if there else "needs Dask: pip install"
    with pytest.raises(SystemExit, match=said):
        main([*COMMAND[3:], "--out", str(tmp_path), "--scheduler", "tcp://127.0.0.1:9"])
    assert not tree(tmp_path)


def test_a_worker_process_that_is_killed(tmp_path):
    """What the kernel does when memory runs out: a sentence, and finished cells stay."""
    script = (
        "import os, sys; from experiments import engine, Refused\n"
        "from test_experiments import tiny; engine.compute = lambda c: os.kill(os.getpid(), 9)\n"
        "try: engine.run([tiny('none'), tiny('c5')], sys.argv[1], jobs=2, progress=False)\n"
        "except Refused as error: print(error)"
    )
    env = ENV | {"PYTHONPATH": f"{ENV['PYTHONPATH']}{os.pathsep}{ROOT / 'tests'}"}
    command = [sys.executable, "-c", script, str(tmp_path)]
    ran = subprocess.run(command, env=env, capture_output=True, text=True)
    assert "a worker process was killed" in ran.stdout, ran.stderr


def test_a_full_disk_in_the_middle_of_a_write(tmp_path, monkeypatch):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(store.os, "fsync", Mock(side_effect=full))
    with pytest.raises(Refused, match="a.json could not be written: No space left on device"):
        store.write(tmp_path / "cells" / "a.json", {"name": "a"})
    assert not tree(tmp_path)


def test_a_write_cut_short_leaves_no_result(tmp_path, monkeypatch):
    """A process that dies between the first byte and the last leaves a .part, which is ignored."""
    c = tiny("none")
    path = store.cell_path(tmp_path, c)
    with monkeypatch.context() as patch:
        patch.setattr(store.os, "fsync", lambda _: sys.exit("dies"))
        with pytest.raises(SystemExit, match="dies"):
            store.write(path, {"name": "a"})
    assert not path.exists() and list(path.parent.glob("*.part"))
    engine.run([c], tmp_path, jobs=1, progress=False)
    assert json.loads(path.read_text())["name"] == c.name


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(SystemExit, match="could not be written: "):
        again(tmp_path / "out")
    assert tree(tmp_path) == {"out": b"mine"}


def test_a_final_file_of_another_version_stops_before_the_work(tmp_path, undisturbed, monkeypatch):
    monkeypatch.setattr(engine, "compute", lambda c: pytest.fail("work was begun"))
    text = change(undisturbed["table1-quick.json"], "versions", {"cvlib": "9.1"})
    (tmp_path / "table1-quick.json").write_text(text)
    with pytest.raises(SystemExit, match=r"Stopped: .*made with cvlib 9\."):
        again(tmp_path)
    assert tree(tmp_path) == {"table1-quick.json": text.encode()}


reseal = lambda text: sealed(json.loads(text))
OTHER_NUMBERS = {  # a file, what is done to its checksum, and what is said of it
    "a cell": ("cells/sgd_data=australian_cvs=S7_*", str, "was altered"),
    "the final file": ("table1-quick.json", reseal, "exists and differs from what this run makes"),
}


@pytest.mark.parametrize("what", OTHER_NUMBERS)
def test_a_file_with_other_numbers_stops_the_command_until_it_is_gone(tmp_path, undisturbed, what):
    """One digit of one stored number: the file is named, on resuming and on computing again."""
    pattern, seal, told = OTHER_NUMBERS[what]
    unpack(undisturbed, tmp_path)
    (path,) = tmp_path.glob(pattern)
    path.write_text(seal(re.sub(r'("elbo": \[+-)', r"\g<1>1", path.read_text(), count=1)))
    before = tree(tmp_path)
    for options in [], ["--no-resume"]:
        with pytest.raises(SystemExit, match=f"Stopped: {re.escape(str(path))} {told}"):
            again(tmp_path, *options)
    assert tree(tmp_path) == before
    path.unlink()
    again(tmp_path)
    assert tree(tmp_path) == undisturbed
