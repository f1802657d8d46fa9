"""The race's referee with runners and a clock of our own, its moves, models and stored rows."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

import cvlib as cv
from benchmarks import pays
from benchmarks.race import __main__ as race
from benchmarks.race import moves, peers, rules, yardstick
from benchmarks.race.models import PROBLEMS, Problem, even_draws
from benchmarks.race_read import Race
from cvlib.ascent.rules import newton
from cvlib.models.density import Density

NUMPY = [r for r in race.RUNNERS if not r.needs]
AXES = {r.name: r.axes for r in race.RUNNERS}
first = lambda runner: {name: value for name, (_, value) in runner.axes.items()}


class Line(Problem):
    """y ~ N(X z, 1), z ~ N(0, I): the posterior is a Gaussian, the best ELBO log p(y)."""

    def __init__(self, seconds=0.3):
        rng = np.random.default_rng(0)
        self.X, self.y = rng.standard_normal((12, 3)), rng.standard_normal(12)
        log_lik = lambda z, b: -0.5 * (b[1] - (b[0] * z).sum(-1)) ** 2 - 0.5 * np.log(2 * np.pi)
        model = cv.models.Model(log_lik, cv.models.GaussianPrior(), (self.X, self.y), 3, "line")
        super().__init__("line", model, seconds)

    def density(self, xp):
        lik = lambda z, X, y: -0.5 * ((y - xp.dot(X, z)) ** 2).sum()
        return lik, lambda z: -0.5 * (z**2).sum(), (self.X, self.y)

    @property
    def evidence(self):
        C = np.eye(12) + self.X @ self.X.T
        return -0.5 * (self.y @ np.linalg.solve(C, self.y) + np.linalg.slogdet(2 * np.pi * C)[1])


@pytest.fixture(scope="module")
def line():
    return Line()


# The referee -------------------------------------------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Hill:
    """Nats missing are the squared distance to 3; the judge takes its time."""

    name, seconds = "hill", 30.0

    def __init__(self, clock):
        self.clock = clock

    def elbo(self, w):
        self.clock.now += 100.0
        return -((w[0] - 3.0) ** 2)


def climber(clock, count=None, rates=(2.5, 0.9, 0.5, 0.1), begin=0.1):
    """w goes towards 3 by the rate; above 2 it flies away. Ten gradients a step."""

    def run(problem, setting, seed):
        if count is not None:
            count.append((setting["rate"], seed))
        w, spent = np.zeros(1), 0
        clock.now += 7.0
        yield spent, w
        while True:
            clock.now += 2.0
            w, spent = w + setting["rate"] * (3.0 - w), spent + 10
            yield spent, lambda w=w: w

    return rules.Runner("climber", "KL(q, p)", run, {"rate": (rates, begin)})


def judged(run, rate=None, seconds=9.0, enough=0.0):
    """The row of a climber with this rate, or of a run of one's own, on the hill."""
    clock = Clock()
    runner = climber(clock) if run is None else rules.Runner("x", "-", run)
    return rules.referee(runner, Hill(clock), {"rate": rate}, 0, 0.0, seconds, clock, enough)


def test_only_the_runner_s_own_time_counts():
    row = judged(None, 0.5)
    assert row["ready"] == 7.0 and row["seconds"] == [0, 2, 4, 6, 8, 10] and row["end"] == "time"
    assert row["gap"][:3] == [9.0, 2.25, 0.562]  # 3/2 and 3/4 away
    assert row["gradients"] == [0, 10, 20, 30, 40, 50]
    assert rules.to(row, 1.0) == 4.0 and rules.to(row, 1.0, "gradients") == 20
    assert rules.to(row, -1.0) == np.inf
    few = rules.thinned(row)
    assert few["seconds"] == [4, 8, 10] and rules.to(few, 0.1) == rules.to(row, 0.1)


def test_a_run_ends_where_all_end():
    row = judged(None, 0.5, 900.0, enough=min(rules.TARGETS))
    assert row["end"] == "there" and row["gap"][-1] <= 0.01 < row["gap"][-2]
    slow = judged(None, 0.01, 101.0)
    seconds = np.array(slow["seconds"])  # looks are a factor apart, and the last w is seen
    assert seconds[-1] == 102 and (seconds[9:-1] / seconds[8:-2]).min() >= rules.LOOK


def test_failures_are_rows_and_the_last_word_counts():
    def breaks(problem, setting, seed):
        yield 0, np.zeros(1)
        raise ArithmeticError

    row = judged(breaks)
    assert row["end"] == "failed: ArithmeticError" and row["gap"] == [9.0]
    lost = judged(lambda *_: iter([(0, np.full(1, np.nan)), (1, np.zeros(1))]))
    assert lost["gap"] == [rules.LOWEST] and lost["end"] == "failed: not finite"
    at = lambda x: np.full(1, x)
    told = judged(lambda *_: iter([(0, at(0.0)), (3, at(2.0), 0.5), (5, at(3.0), 0.7)]), enough=-1)
    assert told["end"] == "done" and told["gap"] == [9.0, 1.0, 0.0]
    assert told["seconds"] == [0, 0.5, 0.7] and told["gradients"] == [0, 3, 5]


def test_settings_are_searched_until_their_neighbours_do_worse():
    tried = []

    def trial(s):
        tried.append(s)
        return abs(np.log(s["rate"] / 0.01)) + (s["after"] is None) + (s["start"] == "usual")

    found = rules.tuned(rules.ADAM | rules.BOTH, trial)
    assert found["rate"] == 0.01 and found["after"] is not None and found["start"] == "mode"
    assert {s["rate"] for s in tried} >= {0.03, 0.01, 0.003} and len(tried) < 12


def test_who_asks_for_what_another_has_compiled_is_charged_for_it():
    rules.compiled.clear()
    slow = lambda: sum(x * x for x in range(300_000))

    def run(problem, setting, seed):
        rules.once("key", slow)
        yield 0, np.zeros(1)

    runner, own = rules.Runner("x", "-", run), rules.clock
    rows = [rules.referee(runner, Hill(Clock()), {}, 0, 0.0, clock=own) for _ in "ab"]
    assert 0.5 < rows[1]["ready"] / rows[0]["ready"] < 2 and rows[1]["ready"] > 0.003
    rules.compiled.clear()


def test_a_race_goes_on_where_it_stopped(tmp_path):
    clock, path, count = Clock(), tmp_path / "race.json", []
    stored = race.Stored(path)
    stored.best["hill"] = {"elbo": 0.0, "apart": 0.0}
    rows = race.enter(climber(clock, count), Hill(clock), stored, (1, 2), clock)
    assert [(r["setting"], r["seed"]) for r in rows] == [({"rate": 0.9}, 1), ({"rate": 0.9}, 2)]
    assert count[-2:] == [(0.9, 1), (0.9, 2)]
    assert {rate for rate, seed in count if seed == 0} == {2.5, 0.9, 0.5, 0.1}
    count.clear()
    again = race.Stored(path)
    assert race.enter(climber(clock, count), Hill(clock), again, (1, 2), clock) == rows
    assert not count and again.rows == stored.rows and not list(tmp_path.glob("*.part"))
    assert "numpy" in json.loads(path.read_text())["versions"]
    read = Race(again.about | {"rows": again.rows})
    assert [read.median("hill", "climber", t) for t in (1, 0.1, 0.01)] == [2, 2, 4]
    assert read.median("hill", "climber", 0.01, "gradients") == 20
    assert read.end("hill", "climber") <= 0.01 and read.models == ["hill"]


def stored_race(**seeds):
    """A file with one model and ways that arrive at these seconds; half as many gradients."""
    rows = [
        {"problem": "hill", "runner": name, "setting": {"start": "usual"}, "seed": k, "ready": 0.0,
         "end": "there", "seconds": [0.0, t], "gradients": [0, t / 2], "gap": [9.0, 0.05]}
        for name, times in seeds.items() for k, t in enumerate(times, 1)
    ]  # fmt: skip
    runners = {name: {"ours": False, "imports": []} for name in seeds}
    about = {"best": {"hill": {"elbo": 0.0, "apart": 0.0}}, "imports": {"": 1.0}, "versions": {}}
    return Race(about | {"rows": rows, "runners": runners, "choices": {}})


def test_ways_within_the_noise_of_the_best():
    """A factor of 1.2, or twice the spread of the best's seeds, whichever reaches further."""
    late = {"close": (1.19, 1.19, 9.0), "late": (1.35,) * 3, "more": (1.8,) * 3, "last": (2.1,) * 3}
    read = stored_race(best=(0.99, 1.0, 1.01), **late)
    assert read.near("hill", 0.1) == [("best", 1.0), ("close", 1.19)]
    assert read.near("hill", 0.1, "gradients") == [("best", 0.5), ("close", 0.595)]
    assert [n for n, _ in read.near("hill", 0.1, "cold")] == ["best", "close", "late"]
    assert read.near("hill", 0.01) == [] and not read.at_mode("hill", "best")
    wide = stored_race(best=(0.5, 1.0, 1.5), **late)
    assert [n for n, _ in wide.near("hill", 0.1)] == ["best", "close", "late", "more"]


# Moves -------------------------------------------------------------------------------------------


def gaussian(d=3, B=8):
    """A q, draws of it, and the slopes of another Gaussian's log density."""
    rng = np.random.default_rng(1)
    factor = lambda: np.linalg.cholesky(np.cov(rng.standard_normal((d, 20))))
    mu, L, m, S = rng.standard_normal(d), factor(), rng.standard_normal(d), factor()
    e = rng.standard_normal((B, d))
    z = mu + e @ L.T
    return mu, L, m, S, e, z, np.linalg.solve(S @ S.T, (m - z).T).T


def test_moves_on_a_gaussian():
    """The score that was asked for; the posterior at once; the parabola; the package's step."""
    mu, L, m, S, e, z, g = gaussian()
    new, K = moves.scored(np, mu, L, z[:1], g[:1])
    assert_allclose(np.linalg.solve(K @ K.T, new - z[0]), g[0])
    new, K = moves.matched(np, mu, L, z, g, 1e9)
    assert_allclose(new, m, atol=1e-6)
    assert_allclose(K, S, atol=1e-6)
    P = np.linalg.inv(S @ S.T)
    c, A = moves.regressed(np, e, g @ L, 1e-9)
    assert_allclose(c, L.T @ P @ (m - mu), atol=1e-6)
    assert_allclose(A, -L.T @ P @ L, atol=1e-6)
    q, c, A = cv.families.Gaussian(3), (g @ L).mean(0), np.cov(e.T)
    w, _ = newton(q, q.pack(mu, L), c, A, 0.3)
    assert_allclose(q.pack(*moves.newton(np, mu, L, c, A, 0.3)), w, atol=1e-12)


# Runners -----------------------------------------------------------------------------------------


def test_the_yardstick_is_the_evidence_and_the_judge_is_exact(monkeypatch):
    monkeypatch.setattr(peers, "there", lambda *packages: False)  # compiles nothing
    line = Line()
    found = yardstick.yardstick(line)
    assert abs(found["elbo"] - line.evidence) < 1e-4 and found["apart"] < 1e-4
    monkeypatch.setattr(yardstick, "began", lambda problem, start: (problem.start, 0))
    for method in (yardstick.by_fixed_draws, yardstick.by_steps):  # from far away
        assert abs(line.elbo(method(line)) - line.evidence) < 1e-4
    e = even_draws(64, 3, seed=3)
    assert_allclose(e.mean(0), 0, atol=1e-12)
    assert_allclose(e.T @ e / 64, np.eye(3), atol=1e-12)


@pytest.mark.parametrize("runner", NUMPY, ids=lambda r: r.name)
def test_runners_reach_the_posterior(line, runner):
    if runner.enters(line):
        setting = first(runner) | ({"start": "usual"} if "start" in runner.axes else {})
        row = rules.referee(runner, line, setting, 1, line.evidence, enough=0.05)
        assert row["end"] == "there" or runner.name == "cvlib, chosen, natural", row["gap"]


@pytest.mark.parametrize("name", ["cvlib, all quadratics", "batch and match", "Laplace"])
def test_gradients_are_counted(line, name, monkeypatch):
    """As many as points whose slope was asked for, and d for a Hessian."""
    count, slope = 0, Density.slope

    def counted(self, z):
        nonlocal count
        count += len(z)
        return slope(self, z)

    monkeypatch.setattr(Density, "slope", counted)
    (runner,) = (r for r in NUMPY if r.name == name)
    run = runner.run(line, first(runner) | {"start": "mode"}, 0)
    for _, (told, _) in zip(range(4), run):
        assert told == (count + 3 if count else 0)


def test_every_way_to_spend_the_time_is_a_run():
    p = Problem("toy", cv.models.logistic_regression(*cv.datasets.toy()), 0.01)
    for name, options in pays.arms(p.model, p.q).items():
        setting = {"rate": 0.003, "start": "usual"}
        row = rules.referee(pays.runner(name, options), p, setting, 0, 0.0)
        assert row["gap"][-1] < row["gap"][0] and row["end"] == "time", name


# Models and rows ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in PROBLEMS if name != "50,000 rows"])
def test_all_are_told_the_same_model(name):
    """A peer's log joint, read by NumPy, differs from the package's by a constant."""
    p = PROBLEMS[name]()
    lik, prior, rows = p.density(np)
    z = 0.3 * np.random.default_rng(0).standard_normal((3, p.model.dim))
    theirs = np.array([lik(x, *rows) + prior(x) for x in z])
    assert_allclose(np.diff(theirs), np.diff(p.model.log_joint(z)), rtol=1e-8)


def test_stored_rows_are_of_runners_that_exist_and_all_met_the_seeds():
    read = Race.load()
    assert set(read.models) == set(PROBLEMS)
    for name, make in PROBLEMS.items():
        problem = make()
        entered = {r.name for r in race.RUNNERS if r.enters(problem)}
        assert {runner for p, runner in read.met if p == name} == entered
    for rows in read.met.values():
        assert [r["seed"] for r in rows] == list(race.SEEDS)
        assert all(r["setting"] == rows[0]["setting"] for r in rows)
    for (model, runner), rows in read.met.items():  # no best rate at an edge, unless all tie
        searched = AXES[runner].get("rate", ((),))[0] == rules.RATES
        edge = rows[0]["setting"].get("rate") in (rules.RATES[0], rules.RATES[-1])
        assert not (searched and edge) or read.end(model, "Laplace") < 0.01
    needed = lambda runner: read.median("sonar", runner, 0.1, "gradients")
    assert needed("cvlib, all quadratics") < 600 and 900 < needed("JAX, fixed draws") < 1200
    for runner in ("cvlib, plain", "NumPyro, from the mode"):  # as the first picture's text says
        assert 27_000 < needed(runner) < 30_000
    assert 45 < needed("cvlib, plain") / needed("cvlib, all quadratics") < 55
    assert 15_000 < needed("cvlib, c7") < 17_000 and 19_000 < needed("cvlib, seven") < 22_000
    assert all(best["apart"] < 0.05 for best in read.best.values())
    arms = {r["arm"] for r in json.loads(pays.RESULTS.read_text())["rows"]}
    p = PROBLEMS["sonar"]()
    assert arms == set(pays.arms(p.model, p.q))
