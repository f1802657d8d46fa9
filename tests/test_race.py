"""The race's referee and tuning with ways and a clock of our own, its moves, models and rows."""

import json
import re
from functools import cache
from itertools import product

import harness
import numpy as np
import pytest
from numpy.testing import assert_allclose

import cvlib as cv
from benchmarks.fit import Counted
from benchmarks.race import __main__ as race
from benchmarks.race import hand, moves, ours, rules, tuning, yardstick
from benchmarks.race.models import PROBLEMS, Problem, even_draws
from benchmarks.race.rules import Axis, Look
from benchmarks.race_read import LOOK, RESULTS, TARGETS, Race
from cvlib.models.density import Density

WAYS = {r.name: r for r in race.RUNNERS}
first_of = lambda runner: {name: axis.coarse[0] for name, axis in runner.axes.items()}


@cache
def stored():
    return Race.load()


class Line(Problem):
    """y ~ N(X z, 1), z ~ N(0, I): the posterior is a Gaussian, the best ELBO log p(y)."""

    def __init__(self, seconds=0.5):
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


class Hill:
    """Nats missing are the squared distance to 3. Its own clock: the judge takes its time."""

    name, seconds, now = "hill", 30.0, 0.0

    def __call__(self):
        return self.now

    def elbo(self, w):
        self.now += 100.0
        return -((w[0] - 3.0) ** 2)


def climber(begun):
    """w goes towards 3 by the rate; above 1 it swings. Two seconds and ten gradients a step."""

    def run(hill, setting, seed, seconds):
        begun.append((setting["rate"], seed))
        w, spent = np.zeros(1), 0
        hill.now += 7.0
        yield Look(spent, w, "start")
        while True:
            hill.now += 2.0
            w, spent = w + setting["rate"] * (3.0 - w), spent + 10
            yield Look(spent, lambda w=w: w, "steps")

    rates = Axis((1.9, 0.9, 0.5, 0.1), (0.5, 0.1))
    return rules.Runner("climber", run, {"rate": rates})


def judged(run, rate=None, seconds=900.0, **options):
    """A climber with this rate, or a run of one's own, on the hill."""
    runner, hill = climber([]) if run is None else rules.Runner("x", run), Hill()
    return rules.referee(runner, hill, {"rate": rate}, 0, 0.0, seconds, hill, **options)


def test_only_the_runner_s_own_time_counts():
    run = judged(None, 0.5)
    assert run.ready == 7.0 and run.end == "there"
    assert run.gap[:3] == [9.0, 2.25, 0.5625]  # 3/2 and 3/4 away
    assert run.met[1.0] == (4.0, 20, "steps") and run.met[0.1] == (8.0, 40, "steps")
    assert run.gap[-1] <= 0.01 < run.gap[-2] and run.met[0.01].seconds == run.spent == 10.0


def test_a_run_ends_at_its_limit_and_what_came_after_it_does_not_count():
    run = judged(None, 0.5, 5.0)
    assert run.end == "time" and run.spent == 6.0  # a step of two seconds is the clock's grain
    assert run.met[1.0].seconds == 4.0 and run.met[0.1].seconds == np.inf
    slow = judged(None, 0.01, 101.0)
    assert len(slow.gap) < 25  # looks are a factor of gradients apart


def test_a_trial_ends_where_it_is_late_for_all_that_it_has_not_met():
    known = {(t, c): x for t in TARGETS for c, x in (("seconds", 4.0), ("gradients", 20.0))}
    run = judged(None, 0.1, known=known)
    assert run.end == "late" and run.spent == 8.0  # the first step after 1.5 times 4 seconds
    del known[0.01, "gradients"]
    assert judged(None, 0.1, known=known).end == "there"


def test_failures_are_rows_and_the_last_word_counts():
    def breaks(problem, setting, seed, seconds):
        yield Look(0, np.zeros(1))
        raise ArithmeticError

    run = judged(breaks)
    assert run.end == "failed: ArithmeticError" and run.gap == [9.0]
    lost = judged(lambda *_: iter([Look(0, np.full(1, np.nan)), Look(1, np.zeros(1))]))
    assert lost.gap == [rules.LOWEST] and lost.end == "failed: not finite"
    at = lambda x: np.full(1, x)
    path = [Look(0, at(0.0)), Look(3, at(2.0), "mode", 0.5), Look(5, at(3.0), "search", 0.7)]
    told = judged(lambda *_: iter(path), targets=(1.0, 1e-9))
    assert told.gap == [9.0, 1.0, 0.0]
    assert told.met == {1.0: (0.5, 3, "mode"), 1e-9: (0.7, 5, "search")}
    after = judged(lambda *_: iter(path), seconds=0.6)  # it was there, but too late
    assert after.met[1.0].seconds == 0.5 and after.met[0.1].seconds == np.inf


def test_who_asks_for_what_another_has_compiled_is_charged_for_it():
    rules.compiled.clear()

    def run(problem, setting, seed, seconds):
        rules.once("key", lambda: sum(x * x for x in range(300_000)))  # slow
        yield Look(0, np.zeros(1))

    runner, own = rules.Runner("x", run), rules.clock
    runs = [rules.referee(runner, Hill(), {}, 0, 0.0, clock=own) for _ in "ab"]
    assert 0.5 < runs[1].ready / runs[0].ready < 2 and runs[1].ready > 0.003
    rules.compiled.clear()


def test_settings_are_searched_until_the_best_of_every_goal_is_inside():
    tried, goals = [], [(1.0, "seconds"), (0.1, "seconds")]

    def trial(s):
        tried.append(s)
        late = (s["start"] == "usual") + (s["after"] is None)
        return {g: 1 + abs(np.log(s["rate"] / best)) + late for g, best in zip(goals, (0.3, 3e-4))}

    found, trials = tuning.tuned(hand.ADAM, trial, goals)
    assert trials == len(tried) == len({tuple(s.values()) for s in tried})
    assert [found[g].setting["rate"] for g in goals] == [0.3, 3e-4]  # neither on the coarse grid
    for choice in found.values():
        assert choice.setting["start"] == "mode" and choice.where["start"] == "all"
        assert choice.where["rate"] == "inside" and choice.setting["after"] is not None


@pytest.mark.parametrize("rate, where", [(10.0, "edge"), (0.9, "inside"), (0.1, "flat")])
def test_the_end_of_an_axis_is_told(rate, where):
    goal, axis = (1.0, "seconds"), Axis((10.0, 0.9, 0.5, 0.1), (0.5,))
    away = lambda x: 1 + abs(np.log(x / rate))
    if where == "flat":  # it falls towards an end, hardly
        axis, away = Axis((0.5, 0.1), (0.5, 0.1)), lambda x: 1 + 0.05 * (x == 0.5)
    tuned = lambda axis: tuning.tuned({"rate": axis}, lambda s: {goal: away(s["rate"])}, [goal])
    choice = tuned(axis)[0][goal]
    assert choice.setting["rate"] == rate and choice.where["rate"] == where
    if where == "edge":  # where no more could be tried
        assert tuned(axis._replace(natural=(rate,)))[0][goal].where["rate"] == "end"


def test_who_never_arrived_is_tuned_by_its_nats():
    assert tuning.value(3.0, 0.0, 0.1) == 3.0
    near, far = (tuning.value(np.inf, gap, 0.1) for gap in (0.2, 5.0))
    assert 1e5 < near < far


def test_every_way_with_settings_has_the_same_number_of_trials():
    for runner in race.RUNNERS:
        axes = runner.axes.values()
        assert not axes or np.prod([len(a.coarse) for a in axes]) == tuning.TRIALS, runner.name
        assert all(set(axis.coarse) <= set(axis.values) for axis in axes)


def test_a_way_is_tuned_and_meets_the_seeds(tmp_path):
    hill, path, begun = Hill(), tmp_path / "race.json", []
    file = race.Stored(path)
    file.said["best"]["hill"] = {"elbo": 0.0, "apart": 0.0, "blur": 0.0}
    (row,) = race.enter(climber(begun), hill, file, (1, 2), hill)
    assert row["setting"] == {"rate": 0.9} and row["trials"] == 4
    assert {rate for rate, seed in begun if seed == 0} == {1.9, 0.9, 0.5, 0.1}
    assert begun[-2:] == [(0.9, 1), (0.9, 2)] and len(row["goals"]) == 6
    assert row["where"][0] == {"rate": "inside"} and not list(tmp_path.glob("*.part"))
    known = {"imports": {"cvlib, scipy.linalg": 1.0}}
    known["ways"] = {"climber": {"imports": rules.OURS, "at_mode": [rules.SEARCH]}}
    read = Race(json.loads(path.read_text()) | known)
    assert [read.median("hill", "climber", t) for t in TARGETS] == [2, 2, 4]
    assert read.median("hill", "climber", 0.01, "gradients") == 20
    assert read.median("hill", "climber", 0.01, "cold") == 4 + 7 + 1
    assert read.end("hill", "climber") <= 0.01 and read.models == ["hill"]
    assert read.by("hill", "climber", 1.0) == "steps"


def stored_race(**seeds):
    """A file with one model and ways that arrive at these seconds; half as many gradients."""
    rows = [
        {"problem": "hill", "way": name, "setting": {"start": "usual"}, "ready": 0.0, "trials": 1,
         "goals": [[0.1, "seconds"], [0.1, "gradients"]], "targets": [0.1],
         "seconds": [[t] for t in times], "gradients": [[t / 2] for t in times]}
        for name, times in seeds.items()
    ]  # fmt: skip
    ways = {name: {"imports": [], "at_mode": []} for name in seeds}
    about = {"best": {"hill": {"elbo": 0.0, "apart": 0.0, "blur": 0.004}}, "imports": {"": 1.0}}
    return Race(about | {"rows": rows, "ways": ways})


def test_ways_within_the_noise_of_the_best():
    """A factor of 1.2, or twice the spread of the best's seeds, whichever reaches further."""
    late = {"close": (1.19, 1.19, 9.0), "late": (1.35,) * 3, "more": (1.8,) * 3, "last": (2.1,) * 3}
    read = stored_race(best=(0.99, 1.0, 1.01), **late)
    assert read.near("hill", 0.1) == [("best", 1.0), ("close", 1.19)]
    assert read.near("hill", 0.1, "gradients") == [("best", 0.5), ("close", 0.595)]
    assert [n for n, _ in read.near("hill", 0.1, "cold")] == ["best", "close", "late"]
    assert read.near("hill", 0.01) == [] and read.targets("hill") == [1.0, 0.1]
    wide = stored_race(best=(0.7, 1.0, 1.3, 0.7, 99.0), **late)  # one that went astray
    assert [n for n, _ in wide.near("hill", 0.1)] == ["best", "close", "late", "more"]


def test_of_a_way_s_settings_the_best_on_the_seeds_stands_for_it():
    """Which one seed tuned to the goal may be another: that one says where it lay in its grid."""
    read = stored_race(way=(5.0, np.inf, np.inf))
    (tuned,) = read.rows["hill", "way"]
    tuned |= {"where": [{"rate": "inside"}, {"rate": "end"}]}
    other = {"goals": [[0.01, "seconds"]], "seconds": [[3.0]] * 3, "gradients": [[9.0]] * 3}
    read.rows["hill", "way"].append(tuned | other | {"setting": {"start": "mode"}, "ready": 7.0})
    at = "hill", "way", 0.1
    assert read.median(*at) == 3.0 and read.median(*at, "cold") == 3.0 + 7.0 + 1.0
    assert read.setting(*at) == {"start": "mode"} and read.where(*at) == {"rate": "inside"}


def gaussian(d=3, B=8):
    """A q, draws of it, and the slopes of another Gaussian's log density."""
    rng = np.random.default_rng(1)
    factor = lambda: np.linalg.cholesky(np.cov(rng.standard_normal((d, 20))))
    mu, L, m, S = rng.standard_normal(d), factor(), rng.standard_normal(d), factor()
    e = rng.standard_normal((B, d))
    z = mu + e @ L.T
    return mu, L, m, S, e, z, np.linalg.solve(S @ S.T, (m - z).T).T


def test_moves_on_a_gaussian():
    """The score that was asked for; the posterior at once; the parabola; its curvature, with which
    a natural step is the posterior."""
    mu, L, m, S, e, z, g = gaussian()
    new, K = moves.scored(np, mu, L, z[:1], g[:1])
    assert_allclose(np.linalg.solve(K @ K.T, new - z[0]), g[0])
    new, K = moves.matched(np, mu, L, z, g, 1e9)
    assert_allclose(new, m, atol=1e-6)
    assert_allclose(K, S, atol=1e-6)
    P = np.linalg.inv(S @ S.T)
    c, A = moves.regressed(np, e, g @ L, 1e-9)
    slope, curvature = L.T @ P @ (m - mu), np.eye(3) - L.T @ P @ L
    assert_allclose(c, slope, atol=1e-6)
    assert_allclose(A + np.eye(3), curvature, atol=1e-6)
    for draws, size in ((hand.even, 8), (hand.turned, 2)):  # no noise in what is quadratic
        e, weight = draws(np.random.default_rng(2), 3, size)
        G = np.linalg.solve(S @ S.T, (m - mu - e @ L.T).T).T @ L
        new, curved = moves.landing(np, e, G + e, weight)
        assert_allclose(new, slope, atol=1e-6)
        assert_allclose(curved, curvature, atol=1e-6)
        assert_allclose(weight.sum(), 1)
    new, K = moves.newton(np, mu, L, slope, curvature, 1.0, reach=100.0)
    assert_allclose(new, m)
    assert_allclose(K @ K.T, S @ S.T)
    near, _ = moves.newton(np, mu, L, 100 * slope, curvature, 1.0, reach=0.5)  # not further
    assert_allclose(np.sqrt((np.linalg.solve(L, near - mu) ** 2).mean()), 0.5)


def test_the_yardstick_is_the_evidence_and_the_judge_is_exact(monkeypatch):
    monkeypatch.setattr(hand, "there", lambda *packages: False)  # compiles nothing
    monkeypatch.setattr(yardstick, "SLOPES", 200)
    line = Line()
    found = yardstick.yardstick(line)
    assert abs(found["elbo"] - line.evidence) < 1e-4 and found["apart"] < 1e-4
    assert found["blur"] < 1e-6  # no judge has noise on a Gaussian
    began = lambda problem, start: hand.began(problem, "usual")
    monkeypatch.setattr(yardstick, "began", began)
    for method in (yardstick.by_fixed_draws, yardstick.by_rotations):  # from far away
        assert abs(line.elbo(method(line)) - line.evidence) < 1e-4
    e = even_draws(64, 3, seed=3)
    assert_allclose(e.mean(0), 0, atol=1e-12)
    assert_allclose(e.T @ e / 64, np.eye(3), atol=1e-12)


@pytest.mark.parametrize("runner", race.RUNNERS, ids=lambda r: r.name)
def test_ways_reach_the_posterior(line, runner):
    for package in runner.needs:
        pytest.importorskip(package)
    if runner.needs:
        harness.jax()  # compiled in a hurry
    if runner.enters(line):
        setting = first_of(runner) | ({"start": "usual"} if "start" in runner.axes else {})
        setting |= {"rate": 0.01} if runner.axes in (hand.ADAM, hand.WITH_DRAWS) else {}
        run = rules.referee(runner, line, setting, 1, line.evidence, 5.0, targets=(0.05,))
        assert run.end == "there", run


def test_gradients_are_counted(line, monkeypatch):
    """As many as points whose slope was asked for; a run of the race also counts the values."""
    points, plain = {"slope": 0, "value": 0}, WAYS["cvlib, plain"]

    def counted(name, ask):
        def asked(self, z, *args):
            points[name] += z.size // line.model.dim
            return ask(self, z, *args)

        return asked

    for name in points:
        monkeypatch.setattr(Density, name, counted(name, getattr(Density, name)))
    with Counted(line.model) as count:
        cv.fit(line.model, seconds=5.0, progress=False)
    assert points["slope"] > 100 and points["value"] > 0
    assert (count.gradients, count.points) == (points["slope"], sum(points.values()))
    before, looks = sum(points.values()), [*WAYS["cv.fit"].run(line, {}, 0, 5.0)]
    assert looks[-1].gradients == sum(points.values()) - before
    _, _, first, last = zip(range(4), plain.run(line, first_of(plain) | {"start": "usual"}, 0, 5.0))
    assert last[1].gradients - first[1].gradients == 10 * ours.M


@pytest.mark.parametrize("name", [name for name in PROBLEMS if name != "50,000 rows"])
def test_all_are_told_the_same_model(name):
    """A peer's log joint, read by NumPy, differs from the package's by a constant."""
    p = PROBLEMS[name]()
    lik, prior, rows = p.density(np)
    z = 0.3 * np.random.default_rng(0).standard_normal((3, p.model.dim))
    theirs = np.array([lik(x, *rows) + prior(x) for x in z])
    assert_allclose(np.diff(theirs), np.diff(p.model.log_joint(z)), rtol=1e-8)


def test_stored_rows_are_of_ways_that_exist_and_all_met_the_seeds_in_time():
    assert {*stored().models, *stored().about["left_out"]} == {*PROBLEMS}
    assert RESULTS.stat().st_size < 1e6
    for name in stored().models:
        problem = PROBLEMS[name]()
        entered = {r.name for r in race.RUNNERS if r.enters(problem)}
        assert set(stored().entered(name)) == entered
        for one in product(entered, stored().targets(name), ("warm", "gradients")):
            assert len(stored().row(name, *one)["seconds"]) == len(race.SEEDS)
        assert stored().best[name]["apart"] < 0.05
        for row in (row for way in entered for row in stored().rows[name, way]):
            # a step, or a look of a fit, may be under way; nothing later counts
            assert row["spent"] < 2 * problem.seconds + 1, (name, row["way"], row["spent"])
            times = [t for seed in row["seconds"] for t in seed]
            assert all(t is None or t <= problem.seconds for t in times)
    assert not stored().about["failed"]
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", stored().about["began"])
    assert stored().about["on"]["cores"] >= 1 and stored().about["minutes"] > 0


EXAMPLES = [  # the first three need JAX; the second has its draws tuned
    ("hospitals", "natural, even", 0.1), ("ionosphere", "Adam, landing", 0.1),
    ("eight_schools", "natural, landing", 0.1), ("sonar", "cvlib, c7", 0.1),
    ("ionosphere", "cvlib, plain", 0.1), ("exam", "cv.fit", 0.1),
]  # fmt: skip


@pytest.mark.parametrize("model, way, nats", EXAMPLES)
def test_a_reader_who_takes_a_stored_setting_finds_its_gradients(model, way, nats):
    """A seed is the same run on every machine, but for rounding: a look more or less."""
    for package in WAYS[way].needs:
        pytest.importorskip(package)
    setting = stored().row(model, way, nats, "gradients")["setting"]
    told = WAYS[way], PROBLEMS[model](), setting
    best, how = stored().best[model]["elbo"], {"seconds": 60.0, "targets": (nats,)}
    known, *_ = stored().seeds(model, way, nats, "gradients")
    again = rules.referee(*told, 1, best, **how).met[nats].gradients
    assert 1 / LOOK - 0.01 < again / known < LOOK + 0.01
