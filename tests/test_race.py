"""The race's referee, with runners and a clock of our own: whose time counts, and who wins."""

import json

import numpy as np
import pytest

from benchmarks import race

Q = race.cv.families.Gaussian(1)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def problem(clock, name="hill"):
    def elbo(w):
        clock.now += 100.0  # the judge takes its time
        return -((w[0] - 3.0) ** 2)

    return race.Problem(name, None, Q, elbo)


def climber(clock, name="climber", rates=(0.1, 0.5, 0.9, 2.5), ready=7.0, count=None):
    """w goes towards 3 by the rate; above 2 it flies away."""

    def run(problem, rate, seed):
        if count is not None:
            count.append((problem.name, rate, seed))
        w = np.zeros(Q.D)
        clock.now += ready
        yield w
        while True:
            clock.now += 2.0
            w = w + rate * (3.0 - w)
            yield w

    return race.Runner(name, run, rates)


def test_only_the_runner_s_own_time_counts():
    clock = Clock()
    row = race.referee(climber(clock), problem(clock), 0.5, 0, budget=9.0, clock=clock)
    assert row["ready"] == 7.0 and row["seconds"] == [0, 2, 4, 6, 8, 10] and row["end"] == "budget"
    assert row["elbo"][:3] == [-9.0, -2.25, -0.562]  # 3/2 and 3/4 away
    assert race.time_to(row, -1.0) == 4.0 and race.time_to(row, 0.5) == np.inf


@pytest.mark.parametrize("what, end", [("nan", "failed: not finite"), ("raise", "failed: Arith")])
def test_failures_are_rows(what, end):
    clock = Clock()

    def run(problem, rate, seed):
        yield np.zeros(Q.D)
        if what == "raise":
            raise ArithmeticError
        yield np.full(Q.D, np.nan)

    row = race.referee(race.Runner("x", run), problem(clock), 1.0, 0, 9.0, clock)
    assert row["end"].startswith(end) and row["elbo"] == [-9.0]


def test_a_runner_that_is_done_stops():
    clock = Clock()
    run = lambda problem, rate, seed: iter([np.zeros(Q.D), np.full(Q.D, 3.0)])
    row = race.referee(race.Runner("exact", run, (None,)), problem(clock), None, 0, 9.0, clock)
    assert row["end"] == "done" and row["elbo"] == [-9.0, 0.0]


def test_all_are_tuned_alike_and_a_race_goes_on_where_it_stopped(tmp_path):
    """0.9 is there first; what was run once is not run again, and a new runner is added."""
    clock, path, count = Clock(), tmp_path / "race.json", []
    a, b = (climber(clock, name, count=count) for name in ("a", "b"))
    rows = race.race([problem(clock)], [a], 2, 30.0, path, clock)
    assert race.best_rate(rows, "hill", "a") == 0.9
    assert count == [("hill", r, 0) for r in a.rates] + [("hill", 0.9, s) for s in (1, 2)]
    count.clear()
    again = race.race([problem(clock)], [a, b], 2, 30.0, path, clock)
    assert len(count) == len(a.rates) + 2 and len(again) == 2 * len(rows)
    stored = json.loads(path.read_text())
    assert stored["rows"] == json.loads(json.dumps(again)) and "numpy" in stored["versions"]
    first, second = race.summary(again)
    assert first["runner"] == "a" and first["median"] == 2.0 and first["missed"] == 0
    assert first["runs"] == 2 and first["ready"] == 7.0
    tuning = [r for r in again if r["runner"] == "a" and r["seed"] == 0]
    assert first["tuning"] == sum(7.0 + r["seconds"][-1] for r in tuning)
    assert not list(tmp_path.glob("*.part"))


def test_who_never_arrives_is_counted():
    clock = Clock()
    rows = race.race([problem(clock)], [climber(clock), climber(clock, "slow", (0.001,))], 3, 20.0,
                     clock=clock)  # fmt: skip
    slow = race.summary(rows)[1]
    assert slow["missed"] == slow["runs"] == 3 and slow["median"] == np.inf
    assert race.best_rate(rows, "hill", "slow") == 0.001


def test_our_own_runners_climb():
    """Every runner of the list takes a few steps, on its own or with a choice of its own."""
    model = race.cv.models.logistic_regression(*race.cv.datasets.toy())
    q = race.cv.families.Gaussian(model.dim)
    toy = race.Problem("toy", model, q, lambda w: race.cv.exact.elbo(model, q, w, 1e-6))
    for runner in [r for r in race.RUNNERS if not r.needs]:
        rate = None if runner.rates == (None,) else 0.03
        row = race.referee(runner, toy, rate, 0, budget=0.02)
        assert row["elbo"][-1] > row["elbo"][0] and not row["end"].startswith("failed"), runner.name


def test_a_new_process_goes_the_same_way():
    """Without a judge, in seconds; a run that would not get there is not sent on its way."""
    best = race.PROBLEMS["australian"]()
    row = race.referee(race.RUNNERS[4], best, None, 1, 5.0)
    took = race.cold(row, row["elbo"][-1] - 1)
    assert 0.05 < took < 100
    with pytest.raises(StopIteration):
        race.cold(row, row["elbo"][-1] + 1)
