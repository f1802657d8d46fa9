"""What race.json says, for the book's pages: medians, and who is within the noise of the best.

It needs NumPy alone.
"""

import json
import statistics
from collections import Counter
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parents[1] / "results" / "benchmarks" / "race.json"
TARGETS = (1.0, 0.1, 0.01)
CLOCKS = ("warm", "cold", "gradients")
NORMAL = 1.4826  # times the median distance from the median is a Gaussian's standard deviation
LOOK = 1.2  # a q is judged when its gradients have grown by this factor
SHARP = 1 / 3  # of a target, which the yardstick must resolve for the target to be shown


def imported(modules):
    return ", ".join(dict.fromkeys(sorted(modules)))


def shown(best, nats):
    """Does the yardstick resolve a third of this target?"""
    return max(best["apart"], best["blur"]) < SHARP * nats


class Race:
    """The stored race: `models`, `ways`, `best`, and `settings` of each way for each goal.

    A row has one setting of a way on a model, and of each of its seeds the seconds and gradients
    to each target; null where it never was there.
    """

    def __init__(self, stored):
        self.about = {name: x for name, x in stored.items() if name != "rows"}
        self.best, self.ways = stored["best"], stored["ways"]
        self.models = list(self.best)
        self.rows = {}
        for row in stored["rows"]:
            self.rows.setdefault((row["problem"], row["way"]), []).append(row)

    @classmethod
    def load(cls, path=RESULTS):
        return cls(json.loads(Path(path).read_text()))

    def targets(self, model):
        """Those that its yardstick resolves."""
        return [t for t in TARGETS if shown(self.best[model], t)]

    def entered(self, model):
        return [way for name, way in self.rows if name == model]

    def row(self, model, way, nats, clock="warm"):
        """Of a way's settings, each tuned to a goal, that whose seeds need least here, or None."""
        rows = [row for row in self.rows.get((model, way), []) if nats in row["targets"]]
        needs = lambda row: statistics.median(self._seeds(row, nats, clock))
        return min(rows, key=needs, default=None)

    def setting(self, model, way, nats, clock="warm"):
        return self.row(model, way, nats, clock)["setting"]

    def where(self, model, way, nats, clock="warm"):
        """{axis: "inside", "end", "flat", "edge" or "all"}: where on it the setting lies that one
        seed found best for this target on this clock."""
        goal = [nats, "gradients" if clock == "gradients" else "seconds"]
        row = next(row for row in self.rows[model, way] if goal in row["goals"])
        return row["where"][row["goals"].index(goal)]

    def trials(self, model, way):
        """How many settings were tried."""
        return self.rows[model, way][0]["trials"]

    def seeds(self, model, way, nats, clock="warm"):
        """What each seed needed: warm seconds or gradients; cold is warm and what comes before."""
        row = self.row(model, way, nats, clock)
        return [np.inf] if row is None else self._seeds(row, nats, clock)

    def _seeds(self, row, nats, clock):
        what = row["gradients" if clock == "gradients" else "seconds"]
        times = [seed[row["targets"].index(nats)] for seed in what]
        before = self.before(row) if clock == "cold" else 0.0
        return [np.inf if t is None else before + t for t in times]

    def before(self, row):
        """Seconds until a row's run can begin: imports and compilation."""
        way = self.ways[row["way"]]
        modules = [*way["imports"], *way["at_mode"] * (row["setting"].get("start") == "mode")]
        return row["ready"] + self.about["imports"][imported(modules)]

    def median(self, model, way, nats, clock="warm"):
        """Median over the seeds until within so many nats: warm or cold seconds, or gradients."""
        return statistics.median(self.seeds(model, way, nats, clock))

    def by(self, model, way, nats, clock="warm"):
        """What brought it there in most seeds: "mode", "first moves", "steps", "search"."""
        row = self.row(model, way, nats, clock)
        said = [seed[row["targets"].index(nats)] for seed in row["by"]]
        return Counter(word for word in said if word).most_common(1)[0][0]

    def first(self, model, nats, clock="warm", names=None):
        """Who of these arrives first, and when."""
        names = self.entered(model) if names is None else names
        times = {name: self.median(model, name, nats, clock) for name in names}
        name = min(times, key=times.get)
        return name, times[name]

    def near(self, model, nats, clock="warm"):
        """[(way, when)] that noise cannot tell from the best, which comes first; none: nobody came.

        Level is who needs at most LOOK times as much, or is later by at most twice the spread of
        the best's seeds, which one that went astray does not widen. Gradients leave out who looks
        at no draw.
        """
        out = {"exact.optimum"} if clock == "gradients" else set()
        names = [n for n in self.entered(model) if n not in out]
        times = {n: self.median(model, n, nats, clock) for n in names}
        name = min(times, key=times.get)
        seeds, best = self.seeds(model, name, nats, clock), times[name]
        spread = NORMAL * statistics.median(abs(x - best) for x in seeds)
        last = max(LOOK * best, best + 2 * spread)
        level = [(n, t) for n, t in times.items() if t <= last and t < np.inf]
        return sorted(level, key=lambda way: way[1])

    def end(self, model, way):
        """Least median nats missed at the end of its runs, over its settings."""
        return min(statistics.median(row["end"]) for row in self.rows[model, way])
