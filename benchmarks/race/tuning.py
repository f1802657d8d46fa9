"""Settings: a coarse grid for all, then finer around the best of every goal.

A goal is a target and a clock, (0.1, "gradients"): every way has its own setting for each.
"""

from itertools import product
from typing import NamedTuple

import numpy as np

from benchmarks.race.rules import Axis

TRIALS = 32  # of the coarse grid, for every way that has settings
MOST = 96  # trials in all
NOISE = 1.03  # of a trial's clock: what is not better by that is not better
LEVEL = 1.1  # times the best, up to which a neighbour is no worse than it
FAR = 1e6  # the value of a trial that was not there, before its nats


class Choice(NamedTuple):
    """A goal's setting, and where it lies on each axis.

    "inside": both neighbours were tried and are not better; "all": an axis without an order;
    "end": it is the axis's last value, beyond which there is nothing; "flat": its last value, and
    the one before is as good; "edge": its last value, and better than all.
    """

    setting: dict
    where: dict


def value(arrived, gap, target):
    """What a search makes small: when it arrived, or a large number that grows with the nats."""
    return arrived if np.isfinite(arrived) else FAR * (1 + np.log1p(max(gap - target, 0.0)))


def tuned(axes, trial, goals, most=MOST):
    """{goal: Choice} and the number of trials; trial(setting) -> {goal: value}."""
    tried = {}

    def attempt(setting):
        key = tuple(setting.values())
        if key not in tried:
            tried[key] = trial(dict(zip(axes, key)))

    for values in product(*(axis.coarse for axis in axes.values())):
        attempt(dict(zip(axes, values)))

    def best(goal):
        """The first that noise cannot tell from the best."""
        least = min(found[goal] for found in tried.values())
        return next(key for key, found in tried.items() if found[goal] <= NOISE * least)

    before = 0
    while before < len(tried) < most:
        before = len(tried)
        for goal in goals:
            for setting in neighbours(axes, dict(zip(axes, best(goal)))):
                attempt(setting)
    found = {}
    for goal in goals:
        at = dict(zip(axes, best(goal)))
        found[goal] = Choice(at, {name: where(axes, at, name, tried, goal) for name in axes})
    return found, len(tried)


def neighbours(axes, at):
    """The settings that differ from this one by one place on one axis."""
    for name, axis in axes.items():
        k = axis.values.index(at[name])
        others = (k - 1, k + 1) if axis.ordered else range(len(axis.values))
        for j in others:
            if 0 <= j < len(axis.values) and j != k:
                yield at | {name: axis.values[j]}


def where(axes, at, name, tried, goal):
    """In a word, where the setting lies on this axis."""
    axis: Axis = axes[name]
    if not axis.ordered or len(axis.values) == 1:
        return "all"
    k, last = axis.values.index(at[name]), len(axis.values) - 1
    beside = [
        tuple((at | {name: axis.values[j]}).values()) for j in (k - 1, k + 1) if 0 <= j <= last
    ]
    if not all(key in tried for key in beside):
        return "edge"  # the trials were used up
    if 0 < k < last:
        return "inside"
    if at[name] in axis.natural:
        return "end"
    level = tried[beside[0]][goal] <= LEVEL * tried[tuple(at.values())][goal]
    return "flat" if level else "edge"
