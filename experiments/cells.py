"""A cell: the smallest piece of an experiment, named by its settings, seeded by its name."""

import hashlib
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from . import tasks
from .store import versions


@dataclass(frozen=True)
class Cell:
    """One call of a function of `tasks`; two cells with the same name are the same cell."""

    task: str
    settings: tuple  # of (key, value) pairs, in the order of the name

    @property
    def name(self):
        """For example "sgd data=sonar cvs=S7 lr=0.2 ... first=0 runs=10"."""
        return " ".join([self.task, *(f"{key}={value}" for key, value in self.settings)])

    @property
    def seed(self):
        return int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:16], "big")

    @property
    def cost(self):
        """Seconds it may take, roughly: for the order of work and the time left."""
        return tasks.cost(self.task, **dict(self.settings))


def cell(task, **settings):
    return Cell(task, tuple(settings.items()))


def compute(cell):
    """The record of a cell, the same on any worker: name, versions, result.

    One BLAS thread, because sums split over threads round differently.
    """
    with threadpool_limits(1):
        rng = np.random.default_rng(cell.seed)
        result = getattr(tasks, cell.task)(rng, **dict(cell.settings))
    return {"name": cell.name, "versions": versions(), "result": result}
