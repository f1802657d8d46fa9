"""Every optional argument of every public function matters: another value gives another result.

`CASES` has a call and another value for each of them; what is public, and which arguments it has,
is read off the package, so that a new argument fails here until a line says what it changes. A
refusal is another result too. What no result can show stands in `UNSEEN`, each with its own test.
An argument that must be given is seen by any test of its function.
"""

import inspect
from dataclasses import fields, is_dataclass
from functools import partial
from inspect import signature
from types import ModuleType
from typing import Any, NamedTuple

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import hessian

import cvlib as cv
from cvlib.choosing import Choice, Report
from cvlib.draws import Draw, Snapshot
from cvlib.fitting.found import Found
from cvlib.recipe.estimators import Estimator

pytestmark = pytest.mark.filterwarnings("ignore::cvlib.Distrust")

# What is public -----------------------------------------------------------------------------------

ASKED = (Found, cv.Fit, cv.models.Model, cv.models.GLM, cv.models.Compiled, cv.families.Family,
         Report, Choice, Snapshot)  # fmt: skip
NOT_CALLED = {  # a class that the package makes, or that a reader derives from
    "Answer", "Choice", "Distrust", "Fit", "Fit.after", "Found", "Report", "Snapshot",
    "Settings", "combine.Moments", "families.Family", "families.Family.hess_L",
    "families.FamilyPrior", "models.DataMoments", "optimize.Diverged",
    "optimize.Interrupted", "optimize.Path",
    "rules.Ascent", "rules.Weighting",
}  # fmt: skip
ELSEWHERE = {  # they need packages that are not here: make adapters
    "Found.to_arviz", "models.from_jax", "models.from_numpyro", "models.from_pymc",
}  # fmt: skip
UNSEEN = {  # by any result; each has a test below
    "fit.progress": "a bar on stderr",
    "Fit.go_on.progress": "a bar on stderr",
    "optimize.sgd.progress": "a bar on stderr",
    "passes.each.width": "how many parts there are: seen by passes.slices, and below",
    "passes.total.width": "likewise",
    "choose.seconds": "for how long steps are timed: test_choose.py",
    "report.seconds": "likewise",
    "report.renew": "what a step costs: likewise",
    "Fit.load.q": "a family of which a file has the name alone: test_fit.py",
    **{f"models.{kind}.totals.{name}": "of a generalised linear model alone"
       for kind in ("Model", "Compiled") for name in ("factor", "mean")},
}  # fmt: skip


def public() -> dict[str, Any]:
    """Every public function, class and method by its name."""
    found = {}
    for name in cv.__all__:
        given = getattr(cv, name)
        if not isinstance(given, ModuleType):
            found[name] = given
        if not isinstance(given, ModuleType) or name == "definitions":  # test_definitions.py
            continue
        for inside in [*getattr(given, "__all__", vars(given)), *cv.LATER.get(f".{name}", ())]:
            x = getattr(given, inside)
            own = hasattr(given, "__all__") or getattr(x, "__module__", "") == given.__name__
            if own and inside[0] != "_" or name == "rules" and inspect.isclass(x):
                found[f"{name}.{inside}"] = x
    for kind in ASKED:
        prefix = next((n for n, x in found.items() if x is kind), kind.__name__)
        for name, x in vars(kind).items():
            x = getattr(kind, name) if isinstance(x, classmethod) else x
            called = inspect.isfunction(x) or inspect.ismethod(x)
            if called and name[0] != "_" and "draw" not in signature(x).parameters:
                found[f"{prefix}.{name}"] = x
    unwanted = NOT_CALLED | ELSEWHERE
    called = {n: x for n, x in found.items() if callable(x) and n not in unwanted}
    return {n: x for n, x in called.items() if optional(n, x)}


def optional(name: str, f: Any) -> set[str]:
    """Its optional arguments; in place of **keywords those of what they are handed on to."""
    found = set()
    for p in signature(f).parameters.values():
        if p.kind is p.VAR_KEYWORD:
            found |= HANDED_ON[name.split(".")[-1]]
        elif p.default is not p.empty:
            found.add(p.name)
    return found


SAMPLING = {field.name for field in fields(cv.Sampling)}
PLAN = {"lr", "rule", "momentum", "average"}
GLM = {p.name for p in signature(cv.models.GLM).parameters.values() if p.kind is p.KEYWORD_ONLY}
HANDED_ON = {
    "draw": SAMPLING, "report": SAMPLING, "choose": SAMPLING, "noise_free": PLAN,
    "sgd": PLAN | SAMPLING | {"M", "weights", "v0", "gamma", "sampling", "renew"},
    "logistic_regression": GLM, "poisson_regression": GLM, "linear_regression": GLM,
    "of": SAMPLING,
}  # fmt: skip


# What can be told of a result ---------------------------------------------------------------------

POINTS = np.array([[0.3, -0.2], [1.1, 0.4]])


def seen(x: Any) -> Any:
    """A result as plain values that can be compared."""
    match x:
        case np.ndarray() | np.generic():
            return x.shape, x.dtype.str, x.tobytes()
        case Found():
            said = [w for w in getattr(x, "words", ()) if "settled" not in w]
            return seen([x.model, x.q, x.w, getattr(x, "looks", None), said, x.warnings])
        case cv.models.Model():
            values = x.log_joint(POINTS) if x.dim == 2 else None
            return seen([repr(x), x.names, x.checksum, values, x.named(np.ones((1, x.dim)))])
        case Draw():
            return seen([x.w, x.eps, x.index, x.group, x.snapshot, x.z])
        case Estimator():
            return repr(x)
        case dict():
            return [(seen(key), seen(value)) for key, value in x.items()]
        case tuple() | list():
            return [seen(value) for value in x]
        case partial():
            return seen([x.func, x.args, x.keywords])
        case np.random.Generator():
            return repr(x.bit_generator.state)
        case _ if is_dataclass(x) and not isinstance(x, type):
            return seen({f.name: getattr(x, f.name) for f in fields(x)})
        case _ if callable(x):
            return getattr(x, "__qualname__", type(x).__name__)
        case _:
            return repr(x)


class Fresh(partial):
    """Made anew for every call: a generator, a clock, a state."""


class Case(NamedTuple):
    """A call, another value for each of its arguments, and how to look at what comes back."""

    name: str
    values: dict
    others: dict
    look: Any = staticmethod(lambda x: x)


def outcome(case: Case, values: dict) -> Any:
    """What can be told of the call with these values; a refusal is told as well."""
    made = {key: x() if isinstance(x, Fresh) else x for key, x in values.items()}
    whose = made.pop("self", None)
    f = PUBLIC[case.name] if whose is None else getattr(whose, case.name.split(".")[-1])
    try:
        return seen(case.look(f(**made)))
    except (ValueError, TypeError) as error:
        return f"refused: {error}"


# Small things to call with ------------------------------------------------------------------------

Seed = partial(Fresh, np.random.default_rng)
X, Y = cv.datasets.toy(12)
COUNTS = np.arange(12.0) % 4
ONE, TWO = (cv.models.logistic_regression(X, Y, sd) for sd in (1.0, 0.5))
CAUCHY = cv.models.Likelihood("Cauchy", lambda t, y: -anp.log(1 + (y - t) ** 2), strip=0.9)
COUNTED = cv.models.poisson_regression(X, COUNTS)
TWICE = cv.models.logistic_regression(2 * X, Y)
FULL, DIAGONAL = cv.families.Gaussian(2), cv.families.DiagonalGaussian(2)
GAMMA, SWITCH = cv.families.Gamma(2), cv.families.Bernoulli(2)
BINARY = cv.models.Model(lambda z, batch: anp.sum(z * batch[0], -1), SWITCH.prior(0.3),
                         np.array([[0.5, -1.0], [0.2, 0.1]]), 2)  # fmt: skip
line_lik = lambda p, b: -0.5 * ((b[1] - p.slope * b[0]) / p.sigma) ** 2 - anp.log(p.sigma)


def peaks(z, batch):
    """A low wide peak near z = 0, and a high narrow one that a search from there does not find."""
    far = lambda at, sd: -0.5 * anp.sum(((z - at) / sd) ** 2, -1)
    return anp.logaddexp(far(1.0, 0.5), 3 + far(-1.0, 0.25)) + 0 * batch[0]


SKEWED = cv.models.Model(lambda z, b: 2 * z[..., 0] - anp.exp(z[..., 0]) + b[0],
                         cv.models.GaussianPrior(9.0), np.zeros(1), 1)  # fmt: skip
PEAKS = cv.models.Model(peaks, cv.models.GaussianPrior(9.0), np.zeros(1), 2)
LINE = {"log_lik": line_lik, "log_prior": lambda p: -0.5 * p.slope**2 - p.sigma,
        "data": (X[:, 0], Y), "parameters": {"slope": (), "sigma": cv.positive}}  # fmt: skip
NAMED = cv.models.Model(**LINE)


def effect(p, wide=1.0):
    """The law of the effects of a group: u, and v where it is declared."""
    each = [p[name] / p.tau / wide for name in ("u", "v") if name in p]
    return sum(-0.5 * x**2 - anp.log(p.tau * wide) - 0.5 * np.log(2 * np.pi) for x in each)


GROUPS = {"log_lik": lambda p, b: -0.5 * (b[0] - p.mean - p.u - p.get("v", 0.0)) ** 2 - b[0] * p.u,
          "log_prior": lambda p: -0.5 * p.mean**2 - p.tau, "data": Y, "groups": np.arange(12) % 4,
          "parameters": {"mean": (), "tau": cv.positive}, "effects": {"u": ()},
          "log_effect": effect}  # fmt: skip
GROUPED_FIT = cv.fit(cv.models.Model(**GROUPS), steps=3, progress=False)
W, V = FULL.pack([0.3, -0.2], [[0.8, 0.0], [0.1, 0.6]]), FULL.pack([0.1, 0.2], np.eye(2))
DATA, PRIOR, VARIATIONAL = cv.terms(ONE, FULL)
H = cv.RP1(DATA) + cv.CF(PRIOR) - cv.CF(VARIATIONAL)
FAR = cv.taylor_z(DATA, at="snapshot")
LOGITS = cv.terms(BINARY, SWITCH)[0]
STEEP = cv.RP1(cv.terms(COUNTED, FULL)[0])
TOO_WIDE = cv.draw(COUNTED, FULL, FULL.pack([900.0, 900.0], np.eye(2)), 2, np.random.default_rng(0))
C7 = cv.CF(cv.taylor_z(DATA)) - cv.RP1(cv.taylor_z(DATA))
OLD = cv.RP1(FAR) - cv.CF(FAR.over_all_data())
SNAP = cv.snapshot(ONE, [0.3, -0.2])
LINES = {"mine": H, "c7": C7}
FIT = cv.fit(ONE, steps=4, progress=False)
NORMAL = cv.models.Model(lambda z, b: 0 * z[..., 0] * b[0], cv.models.GaussianPrior(), Y[:1], 2)
NAMED_FIT = cv.fit(NAMED, steps=3, progress=False)  # its next look is after step 10
DRAW = cv.draw(ONE, FULL, W, 4, np.random.default_rng(0))
ALL_DATA = cv.draw(ONE, FULL, W, 8, np.random.default_rng(0), subsample=False, snapshot=SNAP)
MANY = np.random.default_rng(0).standard_normal((30, 2))


def line(x, draw=ALL_DATA):
    """The numbers of a line, or of RP1 of an integrand, on a draw."""
    return cv.evaluate([x if isinstance(x, Estimator) else cv.RP1(x)], draw)


def switched(x):
    """The numbers of a line of the switches."""
    rng = np.random.default_rng(0)
    return line(x, cv.draw(BINARY, SWITCH, [0.3, 0.1], 8, rng, subsample=False, noise="pairs"))


def sgd(model=ONE, q=FULL, h=H, cvs=(C7,), steps=6, lr=0.1, M=4, **more):
    rng = np.random.default_rng(0)
    return cv.optimize.sgd(model, q, h, list(cvs), steps=steps, lr=lr, M=M, rng=rng, **more).w


def as_likelihood(lik):
    """What models make of it: the ELBO by quadrature, slopes, groups of data, its bound."""
    model = cv.models.GLM(X, Y, lik)
    sums = model.totals(W[:2], 2, np.eye(2) if lik.bound else None)
    loose = cv.exact.elbo(model, FULL, W, 0.1)
    data = cv.terms(model, FULL)[0]
    taken = cv.taylor_z(data) is data or repr(cv.taylor_z(data))
    return model, loose, sums, model.data_moments.n, lik.fast and lik.fast(X[:, 0], Y, 1), taken


def in_x(lik):
    """The expansion in x about one mean for all labels, which kappa makes possible."""
    model = cv.models.GLM(X, Y, lik)
    line = cv.RP1(cv.taylor_x(cv.terms(model, FULL)[0]))
    return line(cv.draw(model, FULL, W, M=4, rng=np.random.default_rng(0)))


def compiled(model):
    z = POINTS[0]
    return model, model.totals(z, 1), hessian(lambda z: model.log_lik(z, (np.zeros(1),))[()])(z)


quad = lambda z: (-0.5 * (z**2).sum(-1) - z[:, 0], -z - np.array([1.0, 0.0]))
hook = lambda state, plan: (state._replace(w=state.w + 0.1), plan)
NOISY = cv.optimize.Noisy(ONE, FULL, H, lr=0.1, M=4)
begun = lambda w: Fresh(lambda: NOISY.first(np.random.default_rng(0), w=w))
recorded = lambda path: (path.w, path.steps, path.path, path.average, path.a, path.state.t)
GLM_VALUES = {"X": X, "prior_sd": 1.0, "prior_mean": 0.0, "offset": None}
GLM_OTHERS = {"X": 2 * X, "prior_sd": np.array([1.0, 2.0]), "prior_mean": 0.4,
              "offset": np.full(12, 0.3)}  # fmt: skip
HERE, THERE = {"model": ONE, "q": FULL}, {"model": TWO, "q": DIAGONAL}
AT, AWAY = {**HERE, "w": W}, {**THERE, "w": V}
HOW = {"subsample": False, "batch": 2, "noise": "pairs", "sampling": cv.Sampling(subsample=False)}
CLOSE, CLEAR = ({"mine": 1.0, "mine with c7": cost} for cost in (1.25, 2.0))  # contests
PILOT = {**AT, "M": 4, "rng": Seed(0), "pilot": 6, "costs": CLOSE}
OTHER_PILOT = {**AWAY, "M": 6, "rng": Seed(1), "pilot": 8, "costs": CLEAR, **HOW}
RUN = {**HERE, "steps": 6, "lr": 0.1}
OTHER_RUN = {**AWAY, "steps": 7, "lr": 0.2, "every": 2, "average": 3, "hooks": {2: hook},
             "rule": cv.rules.adam(), "momentum": 0.5}  # fmt: skip

# The table ----------------------------------------------------------------------------------------

CASES = [
    # fits
    Case("fit", {"model": ONE, "steps": 3, "progress": False}, THERE),
    Case("fit", {"model": NAMED, "steps": 20, "seed": 0, "progress": False},
         {"steps": 15, "seed": 1, "start": "random", "M": 100,
          "callback": lambda fit: True, "seconds": 1e-9, "q": DIAGONAL, "model": ONE,
          "settings": cv.Settings(fixed=0)}),
    Case("fit", {"model": PEAKS, "seconds": 1e-9, "start": "random", "seed": 0, "progress": False},
         {"seed": 1, "start": (np.zeros(2), np.ones(2))}),  # no step: the start is all there is
    Case("fit", {"model": PEAKS, "steps": 1, "seed": 0, "progress": False}, {"restarts": 0}),
    Case("fit", {"model": SKEWED, "seed": 0, "progress": False}, {"bend": False}),
    Case("fit", {"model": COUNTED, "q": GAMMA, "steps": 20, "seed": 0, "M": 5, "progress": False},
         {"M": 6, "seed": 1, "steps": 21}),
    Case("Fit.go_on", {"self": NAMED_FIT, "steps": 20, "progress": False},
         {"steps": 15, "seconds": 1e-9, "callback": lambda fit: True}),
    # answers
    *[Case(f"Found.{name}", {"self": FIT, "n": 40, "seed": 0}, {"n": 50, "seed": 1})
      for name in ("sample", "evidence")],
    *[Case(f"Found.{name}", {"self": NAMED_FIT, "n": 10}, {"n": 11, "seed": 1, "corrected": False})
      for name in ("draws", "log_lik")],
    Case("Found.predict", {"self": NAMED_FIT, "n": 3, "seed": 0,
                           "f": lambda p, batch, rng: p.slope * batch[0] + rng.normal()},
         {"n": 4, "seed": 1, "data": (X[:5, 1], Y[:5]), "corrected": False,
          "f": lambda p, batch, rng: p.slope * batch[0]}),
    Case("Found.predict", {"self": GROUPED_FIT, "n": 3, "data": Y[:2], "groups": [0, 1],
                           "f": lambda p, batch, rng: np.round(p.u + 0 * batch[0], 2)},
         {"groups": [1, "a new one"]}),
    *[Case(f"Found.{name}", {"self": FIT, "f": lambda z: z, "n": 40, "seed": 0},
           {"f": lambda z: z**2, "n": 50, "seed": 1, **other})
      for name, other in [("expect", {}), ("quantile", {"probs": 0.5})]],
    *[Case(name, {"f": lambda z: z**3, "z": MANY, "score": -MANY},
           {"f": lambda z: z, "z": 2 * MANY, "score": -2 * MANY + 1, "block": 3,
            "weights": np.linspace(1, 2, 30), **other})
      for name, other in [("expect", {"order": 2}), ("quantile", {"order": 0, "probs": 0.3})]],
    Case("summary", {"chain": np.random.default_rng(0).standard_normal((50, 2)), "model": NORMAL},
         {"order": 0}),
    # models
    *[Case(f"models.{name}", {**GLM_VALUES, "y": y, **more}, {**GLM_OTHERS, "y": y[::-1], **other})
      for name, y, more, other in [
          ("logistic_regression", Y, {}, {}), ("poisson_regression", COUNTS, {}, {}),
          ("linear_regression", Y, {"noise_sd": 1.0}, {"noise_sd": 2.0}),
          ("GLM", Y, {"likelihood": cv.models.LOGISTIC}, {"likelihood": CAUCHY})]],
    Case("models.GLM.totals", {"self": ONE, "z": W[:2], "order": 2, "factor": np.eye(2)},
         {"z": V[:2], "order": 1, "factor": 2 * np.eye(2), "mean": True}),
    Case("models.GaussianPrior", {}, {"sd": 2.0, "mean": 0.5}, lambda prior: prior(POINTS)),
    Case("models.Model", {**LINE, "name": "mine"},
         {"log_lik": lambda *args: 1.1 * line_lik(*args), "data": (X[:, 1], Y), "dim": 2,
          "log_prior": lambda p: -0.1 * p.slope**2 - p.sigma, "name": "yours",
          "parameters": {"sigma": cv.positive, "slope": ()}}),
    Case("models.Model", GROUPS,
         {"groups": np.arange(12) % 3, "effects": {"u": (), "v": ()}, "nodes": 5,
          "log_effect": lambda p: effect(p, 2.0)}),
    Case("models.Compiled", {"value_and_slope": quad, "dim": 2, "name": "mine"},
         {"value_and_slope": lambda z: (quad(z)[0] + 1, quad(z)[1]), "dim": 3, "name": "yours",
          "parameters": {"a": 1}, "value": lambda z: quad(z)[0] + 1,
          "hessian": lambda z: np.broadcast_to(-2 * np.eye(2), (len(z), 2, 2)),
          "named": lambda z: {"a": z}, "names": ["a", "b"]}, compiled),
    Case("models.Likelihood",
         {field.name: getattr(cv.models.LOGISTIC, field.name)
          for field in fields(cv.models.Likelihood)},
         {"name": "mine", "phi": CAUCHY.phi, "accepts": cv.models.counts, "fast": None,
          "expected": lambda m, v, y: (m, m, m), "bound": None, "strip": 0.5,
          "quadratic": True, "classes": False}, as_likelihood),
    Case("models.Likelihood", {"name": "mine", "phi": cv.models.LOGISTIC.phi, "kappa": 0.5},
         {"kappa": 2.0}, in_x),
    # families
    Case("families.Bent", {"dim": 2}, {"dim": 3, "order": (1, 0), "pairs": ()},
         lambda q: (q.dim, q.order, q.pairs)),
    Case("families.Family.start", {"self": FULL, "runs": ()}, {"runs": 3}),
    # lines
    Case("all_quadratics", {"ridge": 0.5}, {"ridge": 5.0},
         lambda word: line(word(DATA + PRIOR - VARIATIONAL))),
    Case("linear_baseline", {"ridge": 0.5}, {"ridge": 5.0}, lambda word: switched(word(LOGITS))),
    *[Case(name, {"f": DATA, "at": "mu"}, {"f": DATA + PRIOR, "at": "snapshot"},
           lambda f: line(f, cv.draw(ONE, FULL, V, 4, np.random.default_rng(0), subsample=False,
                                     snapshot=cv.snapshot(ONE, W[:2], 2, np.eye(2), True))))
      for name in ("taylor_z", "bound", "parabola")],
    Case("taylor_z", {"f": DATA, "order": 2}, {"order": 1}, line),
    Case("relax", {"f": LOGITS}, {"f": 2 * LOGITS, "tau": 0.7, "coupled": False},
         lambda f: switched(cv.GR(f))),
    Case("evaluate", {"lines": [H], "draw": DRAW}, {"out": np.empty((1, 4, 4))}),
    Case("evaluate", {"lines": [STEEP], "draw": TOO_WIDE, "check": False}, {"check": True}),
    Case("draw", {**AT, "M": 4, "rng": Seed(0)},
         {**AWAY, "model": cv.models.logistic_regression(X[:3], Y[:3]), "M": 6, "rng": Seed(1),
          "eps": MANY[:4], "index": np.arange(4), "snapshot": SNAP, "each": True, **HOW}),
    Case("Sampling", {"subsample": True, "batch": 3},
         {"subsample": False, "batch": 4, "each": True, "noise": "pairs"},
         lambda how: cv.draw(ONE, FULL, W, 4, np.random.default_rng(0), sampling=how)),
    Case("snapshot", {"model": ONE, "mu": [0.1, 0.2], "order": 2, "factor": np.eye(2)},
         {"model": TWICE, "mu": [0.1, 0.3], "order": 1, "factor": 2 * np.eye(2), "mean": True}),
    Case("combine.start", {"L": 1, "runs": ()}, {"runs": (3,)}),
    # data
    Case("datasets.load", {"name": "sonar"},
         {"name": "australian", "features": "raw", "rows": [1, 2]}),
    Case("datasets.toy", {"N": 5, "seed": 0}, {"N": 6, "seed": 1}),
    Case("passes.slices", {"data": (np.ones((2**12, 2)),), "width": 2**9}, {"width": 2**10}),
    # exact references
    Case("exact.elbo", {**AT, "tolerance": 1e-13}, {**AWAY, "tolerance": 1e-2}),
    Case("exact.optimum", {**HERE, "w": None}, {**THERE, "w": np.full(5, np.nan)}),
    # the loop
    Case("optimize.sgd", {**RUN, "M": 4, "rng": Seed(0), "h": H, "cvs": [C7]},
         {**OTHER_RUN, "h": cv.RP1(DATA + PRIOR - VARIATIONAL), "cvs": [], "M": 6, "rng": Seed(1),
          "runs": (2,), "state": begun(W), "weights": cv.rules.fixed(1.0), "v0": 1.0, "gamma": 0.5,
          **HOW}, recorded),
    Case("optimize.sgd", {**RUN, "h": H, "M": 4, "state": begun(W), "batch": 3},
         {"state": begun(V), "each": True}, recorded),
    Case("optimize.sgd", {**HERE, "h": H, "cvs": [OLD], "steps": 9, "lr": 0.5, "M": 4,
                          "rng": Seed(0), "renew": 1}, {"renew": 50}, recorded),
    Case("optimize.noise_free", RUN, OTHER_RUN, recorded),
    # rules, by what a run makes of them
    *[Case(f"rules.{name}", {}, others, lambda rule: sgd(rule=rule))
      for name, others in [
          ("adam", {"b1": 0.5, "b2": 0.5, "eps": 1.0}), ("momentum", {"beta": 0.5}),
          ("natural", {"positive": False, "reach": 0.01})]],
    Case("rules.falling", {"first": 0.1, "after": 2}, {"first": 0.2, "after": 3, "power": 0.5},
         lambda rate: sgd(lr=rate)),
    Case("rules.bayes", {}, {"v0": 1.0, "gamma": 0.3}, lambda rule: sgd(weights=rule)),
    # choosing
    Case("candidates", {"model": ONE, "q": FULL, "subsample": False, "M": 10},
         {"model": NAMED, "q": DIAGONAL, "subsample": True, "M": 3}, lambda table: [
             (name, h, cvs, next(iter(h.parts))[1].q) for name, (h, cvs) in table.items()]),
    Case("report", {"lines": LINES, **PILOT}, {"lines": {"mine": H}, **OTHER_PILOT}),
    Case("report", {"lines": LINES, **PILOT, "batch": 2}, {"each": True}),
    Case("choose", {**PILOT, "among": {"mine": (H, {"c7": C7})}, "resamples": 20},
         {**OTHER_PILOT, "among": {"mine": (H, {})}, "resamples": 30}),
    Case("choose", {**PILOT, "among": {"mine": (H, {"old": OLD})}, "batch": 2, "renew": 5,
                    "costs": {"mine": 1.0, "mine with old": 1e-6}}, {"each": True, "renew": 1}),
    Case("zoo.paper", {**HERE, "in_x": cv.taylor_x}, {**THERE, "in_x": cv.taylor_x_slope},
         lambda zoo: cv.evaluate([zoo.h, zoo.c5], DRAW)),
]  # fmt: skip


# The tests ----------------------------------------------------------------------------------------

PUBLIC = public()
EACH = {}  # by name: "fit", "fit 2", ...
for case in CASES:
    count = sum(other.split()[0] == case.name for other in EACH)
    EACH[case.name + (f" {count + 1}" if count else "")] = case
USUAL: dict[str, Any] = {}


@pytest.mark.parametrize("name", EACH)
def test_the_same_arguments_give_the_same_result(name):
    """Without this the next test would say nothing. And the call that it begins with is legal."""
    case = EACH[name]
    once = outcome(case, case.values)
    assert not str(once).startswith("refused"), once
    assert once == outcome(case, case.values)
    USUAL[name] = once


@pytest.mark.parametrize(
    "name, argument", [(n, a) for n, case in EACH.items() for a in case.others]
)
def test_another_value_gives_another_result(name, argument):
    case = EACH[name]
    usual = USUAL[name] if name in USUAL else outcome(case, case.values)
    assert outcome(case, {**case.values, argument: case.others[argument]}) != usual


def test_every_optional_argument_has_another_value():
    missing, unknown = [], []
    for name, f in PUBLIC.items():
        has = {a for case in CASES if case.name == name for a in case.others}
        takes = optional(name, f)
        unseen = {a for a in takes if f"{name}.{a}" in UNSEEN}
        missing += [f"{name}: say which value of `{a}` changes what" for a in takes - has - unseen]
        known = takes | {*signature(f).parameters}
        unknown += [f"{name} has no argument `{a}`" for a in has - known]
    unknown += [f"{case.name} is not public" for case in CASES if case.name not in PUBLIC]
    assert not missing + unknown, "\n".join(sorted(missing + unknown))


# What no result shows -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fit", "Fit.go_on", "optimize.sgd"])
def test_progress_is_a_bar_on_stderr(name, capfd):
    case = EACH[name]
    for progress in (False, True):
        outcome(case, {**case.values, "progress": progress})
        said = capfd.readouterr()
        assert ("steps" in said.err or "it/s" in said.err) == progress
        assert said.out == ""


def test_the_width_of_a_pass_changes_its_parts_and_not_its_sum():
    data, size = (np.ones((2**12, 2)),), lambda rows: (len(rows[0]),)
    parts = lambda width: [*cv.passes.each(size, data, width=width)]
    assert len(parts(2**9)) == 2 and len(parts(2**10)) == 4
    assert cv.passes.total(size, data, width=2**9) == cv.passes.total(size, data, width=2**10)
