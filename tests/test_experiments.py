"""Cells and plans: seeds from names, the same bytes from any workers, numbers by brute force."""

import hashlib
import json
import statistics

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import cvlib as cv
from cvlib.experiments import Refused, cell, compute, engine, load, plans, store, summary, tasks
from cvlib.experiments.__main__ import main, settings

TINY = dict(v0=1e-3, gamma=0.02, M=2, steps=6, first=0, runs=3)


def tiny(cvs="S7", data="toy", **changed):
    return cell("sgd", **({"data": data, "cvs": cvs, "lr": 0.1} | TINY | changed))


def tree(folder):
    """{relative path: bytes} of all files below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# Cells ---------------------------------------------------------------------------------------


def test_the_name_says_all_and_gives_the_seed():
    c = tiny()
    assert c.name == "sgd data=toy cvs=S7 lr=0.1 v0=0.001 gamma=0.02 M=2 steps=6 first=0 runs=3"
    assert c.seed == int(hashlib.sha256(c.name.encode()).hexdigest()[:32], 16)
    assert tiny(first=3).seed != c.seed


def test_a_cell_is_the_loop_with_that_seed():
    """The stored ELBOs are those of the public loop, by quadrature, to three decimals."""
    c = tiny("c7")
    model = cv.models.logistic_regression(*cv.datasets.toy())
    q = cv.families.Gaussian(model.dim)
    zoo = cv.zoo.paper(model, q)
    run = cv.optimize.sgd(
        model, q, zoo.h, [zoo.c7], lr=0.1, steps=6, M=2, rng=np.random.default_rng(c.seed),
        runs=(3,), v0=1e-3, gamma=0.02,
    )  # fmt: skip
    result = compute(c)["result"]
    assert result["steps"] == [0, 1, 2, 3, 4, 5, 6] and result["diverged"] == [-1] * 3
    np.testing.assert_allclose(result["elbo"], cv.exact.elbo(model, q, run.path).T, atol=6e-4)


def test_a_cell_has_one_thread_whatever_the_machine(monkeypatch):
    threads = lambda rng: [pool["num_threads"] for pool in threadpool_info()]
    monkeypatch.setattr(tasks, "threads", threads, raising=False)
    with threadpool_limits(2):
        counts = compute(cell("threads"))["result"]
        assert counts and set(counts) == {1} and set(threads(None)) == {2}


def test_a_diverged_run_is_counted_and_left_out():
    """With a huge learning rate runs break off: no ELBO afterwards, the step is on record."""
    c = tiny("none", lr=1e6, steps=40, runs=4)
    result = compute(c)["result"]
    assert any(t > 0 for t in result["diverged"])
    for run, broke_off in zip(result["elbo"], result["diverged"]):
        for step, value in zip(result["steps"], run):
            assert (value is None) == (0 <= broke_off <= step)
    (row,) = plans._finals({("toy", "none", 1e6): [c]}, {c.name: result})
    assert row["elbo"].count(None) == len(row["diverged"]) > 0
    curve = plans._quantiles([[1.0, None], [2.0, 5.0], [3.0, 6.0]])
    assert curve == {"median": [2.0, 5.0], "low": [1.0, None], "high": [3.0, 6.0]}


def test_halves_are_halves():
    rows = [set(tasks.half(f"ionosphere-half-{k}")) for k in range(6)]
    assert all(len(r) == 176 and r <= set(range(351)) for r in rows)
    assert len({frozenset(r) for r in rows}) == 6
    assert tasks.problem("ionosphere-half-0")[0].N == 176


def test_norms_against_brute_force():
    """E||g||^2 of the three-step procedure, done step by step with draws of its own."""
    M, v0 = 3, [0.0, 1e-2, 1.0]
    c = cell(
        "norms", data="toy", lr=0.08, step=5, lag=2, M=M, replicas=2000, samples=20000,
        low=-2, high=0, count=2,
    )  # fmt: skip
    result = compute(c)["result"]
    np.testing.assert_allclose(result["v0"], v0)
    model, q, zoo = tasks.problem("toy")
    path = cv.optimize.noise_free(model, q, lr=0.08, steps=5).path
    rng, R = np.random.default_rng(1), 20000

    def G(w):  # (R, 8, M, D)
        draw = cv.draw(model, q, np.broadcast_to(w, (R, q.D)), M, rng)
        return cv.evaluate([zoo.h, *zoo.S7], draw) / model.N

    first, second = G(path[3]), G(path[5])
    for v, mean, error in zip(v0, result["mean"], result["error"]):
        CC = np.einsum("rkmd,rlmd->rkl", first[:, 1:], first[:, 1:]) / M
        Ch = np.einsum("rkmd,rmd->rk", first[:, 1:], first[:, 0]) / M
        a = -np.linalg.solve(CC + q.D * v / M * np.eye(7), Ch[..., None])[..., 0]
        g = (second[:, 0] + np.einsum("rk,rkmd->rmd", a, second[:, 1:])).mean(1)
        norm2 = (g**2).sum(-1)
        brute_error = norm2.std(ddof=1) / np.sqrt(R)
        assert abs(norm2.mean() - mean) < 4.5 * np.hypot(error, brute_error)
    base = (second[:, 0].mean(1) ** 2).sum(-1)
    assert abs(base.mean() - result["none"]) < 4.5 * base.std() / np.sqrt(R) + 0.01 * base.mean()
    assert result["exact"] < result["best"] < min(result["mean"])


def test_variance_against_brute_force():
    """At the first recorded step no variate has a say; later the base has its own variance."""
    c = cell("variance", data="toy", lr=0.1, **plans.LOOP, steps=20, replicas=4, samples=4000)
    result = compute(c)["result"]
    trace = {name: np.array(rows) for name, rows in result["trace"].items()}
    for name in "S4", "S5", "S6", "S7":
        assert trace[name].shape == (4, 20)
        np.testing.assert_array_equal(trace[name][:, 0], trace["none"][:, 0])
    assert trace["S7"][:, 5:].mean() < 0.5 * trace["none"][:, 5:].mean()
    assert trace["best"][:, 5:].mean() < trace["S7"][:, 5:].mean()
    model, q, zoo = tasks.problem("toy")
    many = cv.draw(model, q, q.start((4000,)), 10, np.random.default_rng(2))
    g = zoo.h(many).mean(1) / model.N
    brute = g.var(0, ddof=1).sum()
    assert abs(trace["none"][:, 0].mean() / brute - 1) < 0.1


# Engine --------------------------------------------------------------------------------------


def test_workers_and_order_do_not_matter(tmp_path):
    cells = [tiny(cvs) for cvs in ("none", "S7", "c5", "c7")]
    results = [
        engine.run(cells, tmp_path / "one", jobs=1, progress=False),
        engine.run(cells[::-1], tmp_path / "two", jobs=2, progress=False),
        engine.run(cells[:1], tmp_path / "three", jobs=1, progress=False)
        and engine.run(cells, tmp_path / "three", jobs=1, progress=False),
    ]
    assert results[0] == results[1] == results[2]
    assert tree(tmp_path / "one") == tree(tmp_path / "two") == tree(tmp_path / "three")
    assert len(tree(tmp_path / "one")) == 4


def test_finished_cells_are_not_computed_again(tmp_path, monkeypatch):
    cells = [tiny("none"), tiny("c5")]
    engine.run(cells[:1], tmp_path, jobs=1, progress=False)
    asked = []
    monkeypatch.setattr(engine, "compute", lambda c: asked.append(c) or compute(c))
    engine.run(cells, tmp_path, jobs=1, progress=False)
    assert asked == cells[1:]
    engine.run(cells, tmp_path, jobs=1, resume=False, progress=False)  # again, and compared
    assert asked[1:] == sorted(cells, key=lambda c: -c.cost)


def test_recomputing_notices_a_changed_number(tmp_path):
    c = tiny("none")
    engine.run([c], tmp_path, jobs=1, progress=False)
    path = store.cell_path(tmp_path, c)
    path.write_text(path.read_text().replace('"elbo": [[-', '"elbo": [[-1'))
    before = tree(tmp_path)
    with pytest.raises(Refused, match="differs from what this run makes"):
        engine.run([c], tmp_path, jobs=1, resume=False, progress=False)
    assert tree(tmp_path) == before


def test_a_worker_of_another_version_is_refused(tmp_path, monkeypatch):
    other = lambda c: compute(c) | {"versions": store.versions() | {"numpy": "1.0"}}
    monkeypatch.setattr(engine, "compute", other)
    with pytest.raises(Refused, match="'numpy': '1.0'.*same versions on all machines"):
        engine.run([tiny()], tmp_path, jobs=1, progress=False)
    assert not tree(tmp_path)


# The command ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """All experiments at the quick size."""
    folder = tmp_path_factory.mktemp("quick")
    main(["all", "--quick", "--out", str(folder), "--jobs", "1"])
    return folder


def test_the_command_makes_every_file(quick, capsys):
    for name in plans.PLANS:
        content = load(f"{name}-quick", quick)
        assert content["command"] == f"python -m cvlib.experiments {name} --quick"
        assert content["versions"] == store.versions()
        assert content["settings"]["steps"] == 40 and content["rows"]
    before = tree(quick)
    main(["all", "--quick", "--out", str(quick), "--jobs", "1"])  # all there: nothing to do
    assert tree(quick) == before


def test_rows_of_the_quick_table(quick):
    table = load("table1-quick", quick)
    lines = [(row["data"], row["cvs"]) for row in table["rows"]]
    halves = [("ionosphere-half-0", cvs) for cvs in ("none", "S7", "c5", "c7")]
    assert lines == [("australian", cvs) for cvs in plans.LINES] + halves
    for row in table["limits"]:
        assert row["noise_free"] < row["optimum"] < 0
        same = [r["elbo"] for r in table["rows"] if r["data"] == row["data"]]
        assert np.max(same) < row["optimum"] and np.shape(same)[1] == 2


def test_figures_3_and_4_tell_the_same(quick):
    curves, ends = load("figure3-quick", quick), load("figure4-quick", quick)
    for row in ends["rows"]:
        (curve,) = [c for c in curves["rows"] if all(c[k] == row[k] for k in ("data", "cvs", "lr"))]
        assert curve["high"][-1] == pytest.approx(max(row["elbo"]), rel=1e-5)
        (best,) = [
            c for c in curves["rows"]
            if (c["data"], c["cvs"], c["lr"]) == (row["data"], row["cvs"], "best")
        ]  # fmt: skip
        assert best["median"][-1] >= curve["median"][-1]


def test_a_smaller_run_has_a_name_of_its_own():
    assert settings("table1") == (
        "table1",
        plans.Size(),
        "python -m cvlib.experiments table1",
    )
    label, size, command = settings("table1", runs=2)
    assert label == "table1-runs2" and size == plans.Size(runs=2)
    assert command == "python -m cvlib.experiments table1 --runs 2"
    assert settings("figure1", quick=True)[0] == "figure1-quick"


@pytest.mark.parametrize(
    "wrong", [["table2"], ["table1", "--runs", "0"], ["table1", "--jobs", "0"]]
)
def test_wrong_arguments_are_explained(wrong, capsys):
    with pytest.raises(SystemExit) as stop:
        main(wrong)
    assert stop.value.code == 2 and "usage" in capsys.readouterr().err


def test_load_lists_what_is_there(quick):
    with pytest.raises(ValueError, match="no result 'table9'.*'table1-quick'"):
        load("table9", quick)


def test_files_are_json_with_a_row_a_line(quick):
    text = (quick / "table1-quick.json").read_text()
    assert json.loads(text)["name"] == "table1-quick" and text.endswith("}\n")
    assert sum(line.startswith('  {"data": ') for line in text.splitlines()) == 13


def test_summary():
    runs = [-1.0, -2.0, -3.0, -4.0, -1000.0, None]
    found = summary(runs)
    assert (found["runs"], found["diverged"], found["far"]) == (6, 1, 1)
    assert found["mean"] == pytest.approx(-202) and found["median"] == -3.5
    assert found["error"] == pytest.approx(statistics.stdev(runs[:-1]) / 5**0.5)
    assert summary([None])["diverged"] == 1
