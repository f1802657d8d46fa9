"""What race.json says, for the book's pages: medians, and who is first. It needs NumPy alone."""

import json
import statistics
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).with_name("race.json")
TARGETS = (1.0, 0.1, 0.01)
LOOK = 1.2  # a w is judged when the time spent has grown by this factor


def imported(modules):
    return ", ".join(dict.fromkeys(sorted(modules)))


def to(row, target, what="seconds"):
    """Seconds, or gradients, until it was first within the target; infinite if it never was."""
    return next((s for s, gap in zip(row[what], row["gap"]) if gap <= target), np.inf)


class Race:
    """The stored race. `models`, `runners` and `best` are those of the file."""

    def __init__(self, stored):
        self.rows, self.best, self.imports = stored["rows"], stored["best"], stored["imports"]
        self.versions, self.runners = stored["versions"], stored["runners"]
        self.models, self.choices = list(self.best), stored["choices"]
        self.met = {}
        for row in self.rows:
            if row["seed"] > 0:
                self.met.setdefault((row["problem"], row["runner"]), []).append(row)

    @classmethod
    def load(cls, path=RESULTS):
        return cls(json.loads(Path(path).read_text()))

    def median(self, model, runner, nats, clock="warm"):
        """Median over the seeds until within so many nats: warm or cold seconds, or gradients."""
        rows = self.met.get((model, runner), [])
        what = "gradients" if clock == "gradients" else "seconds"
        if not rows:
            return np.inf
        before = 0.0
        if clock == "cold":
            modules = list(self.runners[runner]["imports"])
            modules += ["scipy.optimize"] * (rows[0]["setting"].get("start") == "mode")
            before = rows[0]["ready"] + self.imports[imported(modules)]
        return before + statistics.median(to(row, nats, what) for row in rows)

    def names(self, ours, without=()):
        """Runners that are ways of this book, or that are not."""
        return [n for n, r in self.runners.items() if r["ours"] == ours and n not in without]

    def first(self, model, names, nats, clock="warm"):
        """Who of these arrives first, and when."""
        times = {name: self.median(model, name, nats, clock) for name in names}
        name = min(times, key=times.get)
        return name, times[name]

    def near(self, model, nats, clock="warm"):
        """[(way, when)] that noise cannot tell from the best, which comes first; none: nobody came.

        Level is who needs at most LOOK times as much, or is later by at most twice the spread of
        the best's seeds. Gradients leave out who looks at no draw.
        """
        what = "gradients" if clock == "gradients" else "seconds"
        out = {"exact.optimum"} if what == "gradients" else set()
        names = [n for m, n in self.met if m == model and n not in out]
        name, best = self.first(model, names, nats, clock)
        seeds = [to(row, nats, what) for row in self.met[model, name]]
        spread = statistics.stdev(seeds) if max(seeds) < np.inf else 0.0
        last = max(LOOK * best, best + 2 * spread)
        times = {n: self.median(model, n, nats, clock) for n in names}
        return sorted(
            ((n, t) for n, t in times.items() if t <= last and t < np.inf), key=lambda way: way[1]
        )

    def at_mode(self, model, runner):
        """Did it begin at the mode? Laplace and fits always do."""
        begun = self.met[model, runner][0]["setting"].get("start")
        return begun == "mode" or "mode" in runner or "Laplace" in runner or "fit" in runner

    def curve(self, model, runner, what="seconds"):
        """Its first seed: seconds or gradients, and the least nats missed so far."""
        row = next(r for r in self.met[model, runner] if r["seed"] == 1)
        return np.array(row[what]), np.minimum.accumulate(row["gap"])

    def end(self, model, runner):
        """Median nats missed at the end of its runs."""
        return statistics.median(row["gap"][-1] for row in self.met[model, runner])
