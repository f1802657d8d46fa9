"""What goes wrong on real machines: kill -9, lost workers, full disks, spoiled or foreign files."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_experiments import tiny, tree
from test_experiments_store import sealed

import experiments.__main__
from experiments import Refused, engine, store
from experiments.__main__ import main

ROOT = Path(__file__).resolve().parents[1]
PATH = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))  # with the jitter, if there is one
ENV = os.environ | {"PYTHONPATH": os.pathsep.join(PATH)}
COMMAND = [sys.executable, "-m", "experiments", "table1", "--quick"]
CELLS = 15  # of the quick table
PATIENCE = 120  # seconds before a test gives up


def start(out, *options, command=COMMAND):
    command = [*command, "--out", str(out), *options]
    with open(f"{out}.log", "w") as log:  # a pipe would stay open as long as any worker lives
        return subprocess.Popen(command, env=ENV, stdout=log, stderr=subprocess.STDOUT)


def words(out):
    return Path(f"{out}.log").read_text()


def finish(process, out):
    """Wait for the command to come to a good end."""
    assert process.wait(timeout=PATIENCE) == 0, words(out)


def wait_for_cells(out, count, process):
    """Until so many cells are on disk; the command must still be at work then."""
    limit = time.monotonic() + PATIENCE
    while len(list((out / "cells").glob("*.json"))) < count:
        assert process.poll() is None, words(out)
        assert time.monotonic() < limit, "no cell was finished in time"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The files of a run that nothing befell, on one worker."""
    folder = tmp_path_factory.mktemp("undisturbed")
    again(folder)
    files = tree(folder)
    assert len(files) == CELLS + 1
    return files


def again(folder, *options):
    """The command in this process."""
    main([*COMMAND[3:], "--jobs", "1", "--out", str(folder), *options])


def unpack(files, folder):
    """Write {relative path: bytes} below a folder."""
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)


def test_kill_9_and_go_on(tmp_path, undisturbed):
    """Killed in the middle, the same command ends with the same bytes."""
    out = tmp_path / "out"
    process = start(out, "--jobs", "2")
    wait_for_cells(out, 3, process)
    process.kill()  # SIGKILL: nothing can be tidied up
    assert process.wait(timeout=PATIENCE) == -signal.SIGKILL
    kept = {name: data for name, data in tree(out).items() if name.endswith(".json")}
    assert 3 <= len(kept) <= CELLS
    assert all(undisturbed[name] == data for name, data in kept.items())
    finish(start(out, "--jobs", "2"), out)
    assert f"{CELLS} of {CELLS} cells" in words(out)
    left = {name: data for name, data in tree(out).items() if not name.endswith(".part")}
    assert left == undisturbed


def test_workers_end_with_their_parent(tmp_path):
    """kill -9 of the command in the middle of long cells: in a moment no process is left."""
    psutil = pytest.importorskip("psutil")
    out = tmp_path / "out"
    process = start(out, "--jobs", "2", command=COMMAND[:4])  # all 500 steps: minutes of work
    limit, busy = time.monotonic() + PATIENCE, []
    while len(busy) < 2:  # both have begun a cell
        assert process.poll() is None, words(out)
        assert time.monotonic() < limit, "the workers did not begin"
        time.sleep(0.1)
        children = psutil.Process(process.pid).children(recursive=True)
        busy = [c for c in children if c.cpu_times().user > 1.2]  # an import takes 0.7
    process.kill()
    process.wait(timeout=PATIENCE)
    _, alive = psutil.wait_procs(children, timeout=8)  # idle workers would stay for forty
    for left in alive:
        left.kill()
    assert not alive


@pytest.fixture
def cluster(tmp_path):
    """A scheduler and two workers, begun as the package says; (address, worker processes)."""
    for words in "dask scheduler --port 8786", "dask worker tcp://", "--nthreads 1":
        assert words in experiments.__doc__ and words in experiments.__main__.__doc__
    pytest.importorskip("distributed", reason="Dask is not installed: pip install distributed")
    note, processes = tmp_path / "scheduler.json", []

    def launch(what, *options):
        command = [sys.executable, "-m", "dask", what, "--no-dashboard", *options]
        log = open(tmp_path / f"{what}{len(processes)}.log", "w")
        processes.append(
            subprocess.Popen(command, env=ENV, cwd=tmp_path, stdout=log, stderr=subprocess.STDOUT)
        )
        return processes[-1]

    launch("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(note))
    limit = time.monotonic() + PATIENCE
    while not note.exists() or not note.read_text().strip():
        assert time.monotonic() < limit, "the scheduler did not start"
        time.sleep(0.05)
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
    finish(process, out)
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


def test_a_worker_process_that_is_killed(tmp_path, monkeypatch):
    """What the kernel does when memory runs out: a sentence, and finished cells stay."""
    script = (
        "import os, sys; from experiments import engine, Refused;"
        "from test_experiments import tiny;"
        "engine.compute = lambda c: os.kill(os.getpid(), 9);\n"
        "try: engine.run([tiny('none'), tiny('c5')], sys.argv[1], jobs=2, progress=False)\n"
        "except Refused as error: print(error)"
    )
    env = ENV | {"PYTHONPATH": f"{ENV['PYTHONPATH']}{os.pathsep}{ROOT / 'tests'}"}
    ran = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], env=env, capture_output=True, text=True
    )
    assert "a worker process was killed" in ran.stdout, ran.stderr


# The disk ------------------------------------------------------------------------------------


def test_a_full_disk_in_the_middle_of_a_write(tmp_path, monkeypatch):
    path = tmp_path / "cells" / "a.json"

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(store.os, "fsync", full)
    with pytest.raises(Refused, match="a.json could not be written: No space left on device"):
        store.write(path, {"name": "a"})
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


# Files of others -----------------------------------------------------------------------------


def test_altered_cells_stop_the_command(tmp_path, undisturbed):
    """One digit of one stored number: the file is named, on resuming and on computing again."""
    unpack(undisturbed, tmp_path)
    (path,) = (tmp_path / "cells").glob("sgd_data=australian_cvs=S7_*")
    path.write_text(path.read_text().replace('"elbo": [[-', '"elbo": [[-1'))
    before = tree(tmp_path)
    for options in [], ["--no-resume"]:
        with pytest.raises(SystemExit, match=f"Stopped: {re.escape(str(path))} was altered"):
            again(tmp_path, *options)
    assert tree(tmp_path) == before


def test_a_final_file_of_another_version_stops_before_the_work(tmp_path, undisturbed, monkeypatch):
    monkeypatch.setattr(engine, "compute", lambda c: pytest.fail("work was begun"))
    record = json.loads(undisturbed["table1-quick.json"])
    record["versions"]["cvlib"] = "9.1"
    text = sealed(record)
    (tmp_path / "table1-quick.json").write_text(text)
    with pytest.raises(SystemExit, match=r"Stopped: .*made with cvlib 9\."):
        again(tmp_path)
    assert tree(tmp_path) == {"table1-quick.json": text.encode()}


def test_a_final_file_with_other_numbers_is_not_overwritten(tmp_path, undisturbed):
    unpack(undisturbed, tmp_path)
    final = tmp_path / "table1-quick.json"
    final.write_text(sealed(json.loads(final.read_text().replace('"elbo": [-', '"elbo": [-1'))))
    before = tree(tmp_path)
    with pytest.raises(SystemExit, match="differs from what this run makes"):
        again(tmp_path)
    assert tree(tmp_path) == before
    final.unlink()
    again(tmp_path)
    assert tree(tmp_path) == undisturbed
