"""The race's referee, with runners and a clock of our own: whose time counts, and who wins."""

import json

import numpy as np
import pytest

from benchmarks import pays, peers, race

Q = race.cv.families.Gaussian(1)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def problem(clock, name="hill", budget=30.0):
    def elbo(w):
        clock.now += 100.0  # the judge takes its time
        return -((w[0] - 3.0) ** 2)

    return race.Problem(name, None, Q, np.zeros(Q.D), elbo, lambda: 0.0, budget)


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


def never(seconds, elbo):
    return ""


def test_only_the_runner_s_own_time_counts():
    clock = Clock()
    row = race.referee(climber(clock), problem(clock, budget=9.0), 0.5, 0, never, clock)
    assert row["ready"] == 7.0 and row["seconds"] == [0, 2, 4, 6, 8, 10] and row["end"] == "budget"
    assert row["elbo"][:3] == [-9.0, -2.25, -0.562]  # 3/2 and 3/4 away
    assert row["calls"] == [1, 2, 3, 4, 5, 6]
    assert race.time_to(row, -1.0) == 4.0 and race.time_to(row, 0.5) == np.inf


def test_the_judge_is_asked_as_the_time_grows():
    """Looks are a factor apart, and the last w is always seen."""
    clock = Clock()
    row = race.referee(climber(clock), problem(clock, budget=101.0), 0.1, 0, never, clock)
    seconds = np.array(row["seconds"])
    assert seconds[-1] == 102 and (seconds[9:-1] / seconds[8:-2]).min() >= race.LOOK
    assert len(seconds) < 30 and row["calls"][-1] == 52


@pytest.mark.parametrize("what, end", [("nan", "failed: not finite"), ("raise", "failed: Arith")])
def test_failures_are_rows(what, end):
    clock = Clock()

    def run(problem, rate, seed):
        yield np.zeros(Q.D)
        if what == "raise":
            raise ArithmeticError
        clock.now += 1.0
        yield np.full(Q.D, np.nan)

    row = race.referee(race.Runner("x", run), problem(clock), 1.0, 0, never, clock)
    assert row["end"].startswith(end) and row["elbo"] == [-9.0]


def test_an_elbo_that_is_no_number_is_the_lowest():
    clock = Clock()
    blind = problem(clock, budget=3.0)._replace(elbo=lambda w: np.nan)
    row = race.referee(climber(clock), blind, 0.5, 0, never, clock)
    assert row["elbo"] == [race.LOWEST] * 3 and row["end"] == "budget"


def test_a_runner_that_is_done_stops_and_its_last_word_is_judged():
    clock = Clock()
    run = lambda problem, rate, seed: iter([np.zeros(Q.D), np.full(Q.D, 2.0), np.full(Q.D, 3.0)])
    row = race.referee(race.Runner("exact", run, (None,)), problem(clock), None, 0, never, clock)
    assert row["end"] == "done" and row["elbo"][-1] == 0.0 and row["calls"][-1] == 3


def test_a_run_stops_near_the_best_or_when_it_has_stalled():
    stop = race.near(best=0.0, enough=0.1, budget=8.0)
    assert stop([0, 1], [-9.0, -0.05]) == "there"
    assert stop([0, 1, 2.9], [-9.0, -0.9, -0.9]) == ""  # within a nat, and going on
    assert stop([0, 1, 3.1], [-9.0, -0.9, -0.9]) == "there"  # for thrice the time
    assert stop([0, 1, 3], [-9.0, -5.0, -4.95]) == "stalled"
    assert stop([0, 1, 3], [-9.0, -5.0, -4.5]) == ""
    assert stop([0, 0.5, 1.5], [-9.0, -5.0, -5.0]) == ""  # too early to say


def test_all_are_tuned_alike_and_a_race_goes_on_where_it_stopped(tmp_path):
    """0.9 is there first; what was run once is not run again, and a new runner is added."""
    clock, path, count = Clock(), tmp_path / "race.json", []
    a, b = (climber(clock, name, count=count) for name in ("a", "b"))
    rows = race.race([problem(clock)], [a], 2, race.Stored(path), clock)
    assert race.best_rate(rows, "hill", "a", 0.0) == 0.9
    assert count == [("hill", r, 0) for r in a.rates] + [("hill", 0.9, s) for s in (1, 2)]
    count.clear()
    stored = race.Stored(path)
    again = race.race([problem(clock)], [a, b], 2, stored, clock)
    assert len(count) == len(a.rates) + 2 and len(again) == 2 * len(rows)
    text = json.loads(path.read_text())
    assert text["rows"] == json.loads(json.dumps(again)) and text["best"] == {"hill": 0.0}
    assert "numpy" in text["versions"]
    first, second = race.summary(stored)
    assert first["runner"] == "a" and first["median"] == 2.0 and first["missed"] == 0
    assert first["runs"] == 2 and first["ready"] == 7.0 and first["trials"] == 6
    tuning = [r for r in again if r["runner"] == "a" and r["seed"] == 0]
    assert first["tuning"] == sum(7.0 + r["seconds"][-1] for r in tuning)
    assert not list(tmp_path.glob("*.part"))


def test_who_never_arrives_meets_no_seeds_and_is_counted():
    clock, stored = Clock(), race.Stored()
    slow = climber(clock, "slow", (0.001, 0.002))
    race.race([problem(clock, budget=20.0)], [climber(clock), slow], 3, stored, clock)
    row = race.summary(stored)[1]
    assert row["missed"] == row["runs"] == 1 and row["median"] == np.inf and row["trials"] == 2
    assert row["rate"] == 0.002 and 8 < row["gap"] < 9


def test_a_runner_may_stay_away():
    clock, stored = Clock(), race.Stored()
    away = climber(clock, "away")._replace(enters=lambda problem: problem.name != "hill")
    race.race([problem(clock)], [away], 1, stored, clock)
    assert stored.rows == [] and stored.best == {"hill": 0.0}


def toy():
    model = race.cv.models.logistic_regression(*race.cv.datasets.toy())
    return race.logistic("toy", model, budget=5.0)


def soon(seconds, elbo):
    """After two looks at what steps have done; the first two are at the start."""
    return "there" if len(seconds) == 4 else ""


def test_our_own_runners_climb():
    """Every runner of the list takes a few steps, on its own or with a choice of its own."""
    p = toy()
    for runner in [r for r in race.RUNNERS if not r.needs]:
        rate = None if runner.rates == (None,) else 0.03
        row = race.referee(runner, p, rate, 0, soon)
        assert row["elbo"][-1] > row["elbo"][0] and not row["end"].startswith("failed"), runner.name


def test_every_way_to_spend_the_time_is_a_run():
    p = toy()
    for name, options in pays.arms(p.model, p.q).items():
        row = race.referee(pays.runner(name, options), p, 0.003, 0, soon)
        assert row["elbo"][-1] > row["elbo"][0] and row["end"] == "there", name


def test_a_choice_is_compared_with_all_subsets():
    found = race.brute_force(toy(), False, seconds=0.001, draws=4)
    assert found["ratio"] >= 1 and found["sets"] > 10 and found["seconds"] > 0


@pytest.mark.parametrize("name", [*peers.OWN, "ionosphere"])
def test_peers_have_the_same_model(name):
    """Their log joint, read by NumPy, differs from ours by a constant."""
    p = race.posterior(name) if name in peers.OWN else race.PROBLEMS[name]()
    lik, prior, rows = peers.log_joint(p, np)
    z = 0.3 * np.random.default_rng(0).standard_normal((4, p.model.dim))
    theirs = np.array([lik(x, *rows) + prior(x) for x in z])
    ours = np.array([p.model.log_joint(x) for x in z])
    np.testing.assert_allclose(np.diff(theirs), np.diff(ours), rtol=1e-9)


def test_the_judge_of_a_posterior_agrees_with_plain_draws():
    p = race.PROBLEMS["eight_schools"]()
    w = race.mode(p.model, p.q)
    plain = race.cv.elbo(p.model, p.q, w, 20_000, np.random.default_rng(0))
    assert abs(p.elbo(w) - plain.value) < 5 * plain.error + 0.1


def test_a_new_process_goes_the_same_way():
    """Without a judge, in seconds; a run that would not get there is not sent on its way."""
    best = race.PROBLEMS["australian"]()
    runner = {r.name: r for r in race.RUNNERS}["cvlib, exact"]
    row = race.referee(runner, best, None, 1, never)
    took = race.cold(row, row["elbo"][-1] - 1)
    assert 0.05 < took < 100
    with pytest.raises(StopIteration):
        race.cold(row, row["elbo"][-1] + 1)


def test_stored_rows_are_of_runners_that_exist():
    stored = race.Stored(race.RESULTS)
    assert list(stored.best) == list(race.PROBLEMS)
    new = {"cvlib, all quadratics"}  # enters with the next whole race
    assert {r["runner"] for r in stored.rows} | new == {r.name for r in race.RUNNERS}
    assert {c["problem"] for c in stored.choices} == set(race.PROBLEMS)
    arms = {r["arm"] for r in json.loads(pays.RESULTS.read_text())["rows"]}
    p = race.PROBLEMS["sonar"]()
    assert arms == set(pays.arms(p.model, p.q))
