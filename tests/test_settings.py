"""Every number that a fit goes by does what it says: another value changes what it should."""

import warnings
from dataclasses import fields, replace
from functools import cache
from types import SimpleNamespace
from unittest import mock

import autograd.numpy as anp
import numpy as np
import pytest

import cvlib as cv
from cvlib.fitting import bends, front, looks, starts
from cvlib.fitting.strategies import named

ROWS = np.random.default_rng(0).normal(1.0, 1.0, 20)
NORMAL = cv.models.GaussianPrior()


def model(log_prior=NORMAL, d=1):
    """Rows that know the first coordinate alone."""
    lik = lambda z, b: -0.5 * (b[0] - z[..., 0]) ** 2
    return cv.models.Model(lik, log_prior, ROWS, d)


def fitted(log_prior=NORMAL, d=1, **how):
    with warnings.catch_warnings(action="ignore"):
        return cv.fit(model(log_prior, d), progress=False, bend=False, **how)


steep = lambda z: -5 * anp.sum(anp.abs(z), -1) ** 1.5
funnel = lambda z: -0.5 * (z[..., 0] ** 2 + anp.sum((z[..., 1:] * anp.exp(-z[..., :1])) ** 2, -1))
WIDE = cv.families.Gaussian(30)
W = {d: cv.families.Gaussian(d).start() for d in (2, 3)}
SIGNS = np.tile([-1.0, 1.0], 2000)[:, None]  # weights that come twice leave mean and sd alone
TAIL = looks.Weights(SIGNS, np.repeat(-0.9 * np.log(np.linspace(1e-4, 1, 2000)), 2))  # k = 0.9
FEW = looks.Weights(SIGNS, np.repeat(np.where(np.arange(2000) % 4, -9.0, 0.0), 2))  # a quarter


def plan(name, q, settings):
    return named(name).plan(model(d=q.dim), q, None, settings)


def rivals(settings):
    """Modes at 0 and 1, one of them two nats lower, with a dip of two between."""
    modes = [starts.Mode(np.array([x]), h, None, np.zeros(1)) for x, h in ((0.0, 0), (1.0, -2))]
    low = SimpleNamespace(value=lambda z: np.full(len(z), -3.5), slope=lambda z: (0, 0.5 - z))
    return starts._rivals(low, modes, settings)


def offered(settings):
    """The starts among which the best is chosen, with what is held against each."""
    with mock.patch.object(starts, "_best", wraps=starts._best) as best:
        starts.start(model(), given=starts.Start(np.full(1, 50.0), None, "afar"), settings=settings)
    return [(one.says, one.handicap) for one in best.call_args.args[1]]


@cache
def bent(settings, d=2):
    found = bends.bend(model(funnel, d), W[d], settings=settings)
    return None if found is None else (len(found.q.pairs), *found.w.round(6))


SEEN = {  # another value, and what it changes
    "seconds": (1e-9, lambda s: fitted(settings=s).run.words[-1]),
    "tolerance": (1e-6, lambda s: fitted(steep, settings=s, steps=40).steps),
    "chance": (1e-6, lambda s: looks.at_most(ROWS, 1, s)),
    "looks": ((100, 200), lambda s: looks.sizes(model(), s)),
    "full": (0, lambda s: fitted(settings=s).q),
    "widths": ((0.5,), offered),
    "low": (5.0, offered),
    "equal": (1.0, rivals),
    "dip": (2.0, rivals),
    "fixed": (29, lambda s: plan("rotated", WIDE, s).radii),
    "draws": (300, lambda s: plan("rotated", WIDE, s).M),
    "reach": (7.0, lambda s: plan("passes", WIDE, s).reach),
    "rate": (0.2, lambda s: plan("adam", cv.families.Gamma(1), s).lr(1000)),
    "after": (10, lambda s: plan("adam", cv.families.Gamma(1), s).lr(1000)),
    "fair": (0.2, lambda s: bends.wanted(FEW, s)),
    "heavy": (9.0, lambda s: bends.wanted(TAIL, replace(s, fair=0.0))),
    "big": (1e9, lambda s: bends.wanted(TAIL, replace(s, fair=0.0))),
    "out": (9.5, lambda s: [*front.conflicts(model(), np.array([9.0]), s)]),
    "bend": (0, lambda s: fitted(settings=s).run.can_bend),
    "pairs": (0, lambda s: bent(s, 3)),
    "sure": (0.0, lambda s: bent(cv.Settings(pairs=0, sure=s.sure), 3)),
    "bend_draws": ((300, 400, 500), bent),
    "ridge": (10.0, bent),
    "gain": (np.inf, bent),
    "cheap": (0, lambda s: bends.cheap(model(), s)),
}


@pytest.mark.parametrize("name", [f.name for f in fields(cv.Settings)])
def test_another_value_changes_what_it_should(name):
    value, seen = SEEN[name]
    assert seen(cv.Settings()) != seen(cv.Settings(**{name: value}))


def test_each_has_its_meaning():
    for f in fields(cv.Settings):
        assert f"{f.name}:" in cv.Settings.__doc__ or f"{f.name}," in cv.Settings.__doc__, f.name
    with pytest.raises(
        TypeError, match=r"settings={'fair': 1} is no cv.Settings\(tolerance=0.01\)"
    ):
        cv.fit(model(), settings={"fair": 1})
