"""Plans and states: what stays the same from step to step, and what a step changes.

A state holds arrays, numbers and a generator: `pickle` keeps it in a file, and a run goes on from
there as if it had not stopped.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from .. import combine
from ..arguments import number, numbers, whole
from ..draws import Draw, Sampling, Snapshot, draw, snapshot
from ..families.base import Family, check_fit
from ..models.density import Density, Model
from ..recipe import regression
from ..recipe.estimators import Estimator, check_gradient, check_variate, evaluate
from ..recipe.integrands import Wants, wanted
from . import exact, rules

HUGE = 1e200  # a gradient of larger squared length, or one that overflows, is a run thrown out
Rate = float | np.ndarray | Callable[[int], float | np.ndarray]


class State(NamedTuple):
    """Where a run stands. The generator `rng` moves on with every step; all else is replaced."""

    t: int  # steps taken
    w: np.ndarray  # (..., D)
    memory: tuple  # of the ascent rule
    moments: tuple  # memory of the weight rule, or the turn of all rotations
    a: np.ndarray  # (..., L) or (..., L, D), weights of the control variates at step t
    diverged: np.ndarray  # (...) step at which a run left the finite world, -1 if it did not
    mean: np.ndarray  # (..., D) mean of w since step `plan.average`
    count: int  # type: ignore[assignment]  # number of steps in it (it hides tuple.count)
    rng: Any  # a np.random.Generator, or None where nothing is drawn
    G: np.ndarray | None  # (..., 1 + L, M, D), h and variates at step t; the next writes over it
    snapshot: Snapshot | None  # of the data term, for expansions about older weights
    notes: dict[str, np.ndarray]  # what hooks want to keep, by name


@dataclass(frozen=True)
class Plan:
    """Ascent on ELBO / N by its exact gradient; a subclass says where else gradients come from.

    `lr` is a number, an array with one a run, or a function of the step t = 1, 2, ... With
    `average` = s the state keeps the mean of w after the steps s, s + 1, ... to the present one.
    Another plan with a change is `dataclasses.replace(plan, lr=...)`.
    """

    model: Model
    q: Family
    _: KW_ONLY
    lr: Rate
    rule: rules.Ascent = rules.momentum()
    average: int | None = None

    alone = False  # does it take one run only?
    remedies = "a smaller lr, or a start w nearer to the posterior"

    def __post_init__(self):
        if not isinstance(self.rule, rules.Ascent):
            raise TypeError(f"rule={self.rule!r} is no ascent rule such as rules.adam()")
        if not callable(self.lr):
            object.__setattr__(self, "lr", numbers("lr", self.lr, 0, above=True))
        if self.average is not None:
            whole("average", self.average)

    def rate(self, t: int, runs: tuple) -> float | np.ndarray:
        """The learning rate of step t, a number or (..., 1)."""
        lr = numbers(f"lr({t})", self.lr(t), 0) if callable(self.lr) else self.lr
        if isinstance(lr, float):
            return lr
        if lr.shape != runs:
            raise ValueError(f"lr has shape {lr.shape}, the runs have {runs}: give one a run")
        return lr[..., None]

    def first(
        self, rng: np.random.Generator | None, w: np.ndarray | None = None, runs: tuple = ()
    ) -> State:
        """The state before the first step, `runs` side by side, from w (..., D) or q.start()."""
        check_fit(self.model, self.q)
        q, starts = self.q, () if w is None else np.shape(w)[:-1]
        try:
            runs = np.broadcast_shapes(runs, starts)
        except ValueError:
            raise ValueError(f"runs={runs}, but w starts {starts} runs: leave runs out") from None
        if self.alone and (runs or not isinstance(rng, np.random.Generator)):
            raise ValueError(f"{type(self).__name__} takes one run, and a generator rng")
        w = q.start(runs) if w is None else q.check(w)
        w = np.broadcast_to(w, (*runs, q.D)).copy()
        self.rate(1, runs)
        moments, a = self.begin(runs)
        return State(
            t=0, w=w, memory=self.memory(w), moments=moments, a=a, rng=rng, G=None,
            diverged=np.full(runs, -1), mean=np.zeros_like(w), count=0, snapshot=None, notes={},
        )  # fmt: skip

    def step(self, state: State) -> State:
        """The state after one more step; a run that leaves the finite world stays where it was."""
        q, t, w, diverged = self.q, state.t + 1, state.w, state.diverged
        g, finite, new = self.gradient(state)
        rate = self.rate(t, w.shape[:-1])
        moved, memory = self.rule.step(state.memory, w, g, rate, q, self.model.N)
        going = finite & (diverged < 0) & (np.abs(moved).max(-1) < q.far)
        if not going.all():
            diverged = np.where(going | (diverged >= 0), diverged, t)
            moved = np.where(going[..., None], moved, w)
        if self.average is not None and t >= self.average:
            count = state.count + 1
            new |= {"mean": state.mean + (moved - state.mean) / count, "count": count}
        of = new.get  # by place, which is faster than by name
        return State(
            t, moved, memory, of("moments", state.moments), of("a", state.a), diverged,
            of("mean", state.mean), of("count", state.count), state.rng, of("G", state.G),
            of("snapshot", state.snapshot), of("notes", state.notes),
        )  # fmt: skip

    def memory(self, w: np.ndarray) -> tuple:
        """Memory of the ascent rule before the first step, at w (..., D)."""
        return self.rule.start(self.q, w)

    def begin(self, runs: tuple) -> tuple[tuple, np.ndarray]:
        """Memory of the weight rule, and the first weights."""
        return (), np.zeros((*runs, 0))

    def landed(self, state: State) -> State:
        """The state after some steps, where something of it was kept elsewhere."""
        return state

    def renewed(self, state: State) -> State:
        """The state from which on a new mean is taken, the old one being of places farther off."""
        return state._replace(mean=np.zeros_like(state.w), count=0)

    def gradient(self, state: State) -> tuple[np.ndarray, np.ndarray, dict]:
        """That of ELBO / N (..., D), where it is finite (...), and what is new of the state."""
        with np.errstate(over="ignore", invalid="ignore"):
            g = exact.gradient(self.model, self.q, state.w) / self.model.N
            return *_finite(g, state.w.shape[:-1]), {}


@dataclass(frozen=True)
class Noisy(Plan):
    """The mean over M samples of h + C a, the weights a from the steps before: g is unbiased.

    The weight rule sees `combine.replicates`: a pair counts once, a rotation too, and so do all
    samples of "sobol" together. With `renew` = K a snapshot of the data term is taken before the
    first step, after 1, 2, 4, 8 ... steps, for w moves fast at first, and from step K on every K.
    """

    h: Estimator
    cvs: list[Estimator] | tuple[Estimator, ...] = ()
    _: KW_ONLY
    M: int
    weights: rules.Weighting = rules.bayes()
    sampling: Sampling = Sampling()
    renew: int | None = None

    remedies = "a smaller lr, more samples M, better control variates, or another start w"

    def __post_init__(self):
        super().__post_init__()
        if not isinstance(self.cvs, list | tuple):
            raise TypeError(f"cvs={self.cvs!r} must be a list: write [c7], zoo.S7, or [] for none")
        check_gradient(self.h)
        for c in self.cvs:
            check_variate(c)
        whole("M", self.M)
        object.__setattr__(self, "sampling", Sampling.of(self.sampling))
        self.sampling.group(self.q, self.M)
        if self.renew is not None:
            object.__setattr__(self, "renew", whole("renew", self.renew))
        if not isinstance(self.weights, rules.Weighting):
            raise TypeError(f"weights={self.weights!r} is no weight rule such as rules.bayes()")

    @cached_property
    def lines(self) -> list[Estimator]:
        return [self.h, *self.cvs]

    @cached_property
    def wants(self) -> Wants | None:
        """What the lines need of a snapshot; None: they need none."""
        return wanted(atom for line in self.lines for _, atom in line.parts)

    @cached_property
    def weighting(self) -> rules.Weighting:
        return self.weights if self.cvs else rules.fixed(0.0)

    def begin(self, runs):
        L = len(self.cvs)
        return self.weighting.start(self.q, L, runs), np.zeros((*runs, L))

    def refreshed(self, state: State) -> Snapshot | None:
        """The snapshot of a step: a new one, where one is due."""
        K, t = self.renew, state.t
        if K is None:
            return state.snapshot
        due = t % K == 0 or (t < K and t & (t - 1) == 0)  # from K on, or a power of two
        if state.snapshot is not None and not due:
            return state.snapshot
        return taken(self.model, self.q, state.w, self.wants or Wants(2))

    def gradient(self, state):
        q, N, weighting, old = self.q, self.model.N, self.weighting, self.refreshed(state)
        d = draw(self.model, q, state.w, self.M, state.rng, snapshot=old, sampling=self.sampling)
        if self.pooled:
            g, finite = _tried(self.h.mean, d, (q.D,))
            return g / N, finite, {"snapshot": old}
        G, finite = self._evaluated(d, state.G)
        base, C = G[..., 0, :, :], G[..., 1:, :, :]
        a = weighting.weights(state.moments, q, N)
        g = combine.mean(base, C, a) / N  # (..., D)
        if d.group > 1:
            base, C = combine.replicates(base, d.group), combine.replicates(C, d.group)
        moments = weighting.update(state.moments, base, C, q)
        return g, finite, {"snapshot": old, "moments": moments, "a": a, "G": G}

    @cached_property
    def pooled(self) -> bool:
        """Is the base alone, and does a part of it know the mean of its rows at once?"""
        return not self.cvs and any(hasattr(word.pull, "mean") for word, _ in self.h.parts)

    def _evaluated(self, d: Draw, G: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """h and variates (..., 1 + L, M, D), into G if it fits, and which runs are finite (...)."""
        shape = len(self.lines), self.M, self.q.D
        if G is None or G.shape != (*d.w.shape[:-1], *shape):
            G = np.empty((*d.w.shape[:-1], *shape))
        into = lambda one: evaluate(self.lines, one, out=G if one is d else None, check=False)
        return _tried(into, d, shape)


# Natural steps without a rate to choose -----------------------------------------------------------


@dataclass(frozen=True)
class Unaided(Plan):
    """Natural steps of one run on all data, by slopes of log p alone, without a rule or a rate."""

    lr: Rate = 1.0
    _: KW_ONLY
    reach: float = rules.REACH  # standard deviations that a step may go
    alone, full = True, True  # one run; is it for a full q, or for a diagonal one?

    def __post_init__(self):
        super().__post_init__()
        number("reach", self.reach, 0, above=True)
        if not self.q.gaussian or self.q.full != self.full:
            who = f"{type(self).__name__} is for a {'full' if self.full else 'diagonal'}"
            raise ValueError(f"{who} Gaussian q, not {self.q!r}")

    def moved(self, state: State, w: np.ndarray, memory: tuple, lost: bool = False) -> State:
        """The state after a step to w (D,). A run that is lost, or goes too far, ends here."""
        t, lost = state.t + 1, lost or not np.abs(w).max() < self.q.far
        diverged, w = np.array(t if lost else -1), state.w if lost else w
        return state._replace(t=t, w=w, memory=memory, diverged=diverged)


@dataclass(frozen=True)
class Regressed(Unaided):
    """Steps of a diagonal q on slopes regressed on their draws.

    The slopes of log p - log q are regressed on the draws, for each draw on the others, with the
    ridge that the gauge of the step before asks for, so that the gradient is unbiased. rho = 1 / s,
    and s counts the steps at rest: once there, the run is an average over all steps since. It is
    `most` at first, for coordinates that lean on each other move each as if alone, and in sum too
    far. Draws at which log p has no slope are left out; where they are half or more, the run ends.
    """

    _: KW_ONLY
    M: int = 10
    most: float = 0.1
    reach: float = 2.0  # coordinate by coordinate
    full = False

    def __post_init__(self):
        super().__post_init__()
        whole("M", self.M, 2)
        number("most", self.most, 0, above=True)

    def memory(self, w):
        return np.zeros(()), np.array(0.1)  # s, the first ridge

    def renewed(self, state):
        s, ridge = state.memory
        return super().renewed(state)._replace(memory=(0 * s, ridge))

    def step(self, state: State) -> State:
        q, (s, ridge) = self.q, state.memory
        draw, value, G = scored(self.model, q, state.w, state.rng, self.M)
        fine = np.isfinite(G).all(-1) & np.isfinite(value)
        if fine.sum() <= self.M / 2:
            return self.moved(state, state.w, state.memory, lost=True)
        e, G = draw.eps[fine], G[fine]
        seen = regression.gauge(e, G, diagonal=True)
        found = regression.diagonal(regression.regress)(e, G + e, ridge)
        s = s + at_rest(seen, found, s)
        rho = min(1 / max(s, 1), self.most)
        w, _ = rules.newton(q, state.w, found.c, found.A, rho, self.reach)
        return self.moved(state, w, (s, regression.shrinkage(seen, 1)))


def at_rest(seen: regression.Gauge, found: regression.Fitted, s: np.ndarray) -> np.ndarray:
    """Is rho = 1 / s no smaller than the best gain, signal / (signal + noise)?

    The gauge is the signal, the squared length of the gradient; that of its estimate, `found`, is
    signal + noise. It must hold for slope and curvature alike. A run that is still on its way has
    more signal than that, and rho does not fall (Kesten 1958 reads it off the signs of the steps).
    """
    slope = s * seen.slope <= (found.c**2).sum()
    return slope & (s * seen.curvature <= (found.A**2).sum())


def scored(
    model: Model, q: Family, w: np.ndarray, rng: np.random.Generator, M: int
) -> tuple[Draw, np.ndarray, np.ndarray]:
    """M draws, log p at them (M,) and its slopes in the coordinates of q (M, d)."""
    draw = Draw(model, q, w, q.noise(rng, w, M), None)
    value, slope = Density(model).slope(draw.z)
    with np.errstate(all="ignore"):
        return draw, value, q.times_t(draw.factor, slope)


def _tried(f, d, shape):
    """f(d), (*runs, *shape), with zeros in runs that are not finite, and which are: (*runs).

    Where a matrix of the model is singular, each run is tried alone.
    """
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # a diverging run
            return _finite(f(d), d.w.shape[:-1])
    except np.linalg.LinAlgError:
        if d.w.ndim == 1:
            return np.zeros(shape), np.array(False)
        each = [_tried(f, _of_run(d, k), shape) for k in range(len(d.w))]
        return map(np.stack, zip(*each))


def _finite(x, runs):
    """x (*runs, ...) with zeros in runs that are not finite, and which are: (*runs)."""
    flat = x.reshape(*runs, -1)
    finite = np.vecdot(flat, flat) < HUGE  # no NaN either
    if not finite.all():
        x[~finite] = 0.0  # a broken run must not break the moments of the others
    return x, finite


def _of_run(d, k):
    """The draw of run k alone."""
    own = lambda x: None if x is None else x[k]
    old = d.snapshot if np.ndim(getattr(d.snapshot, "value", 0)) == 0 else d.snapshot.of_run(k)
    return Draw(d.model, d.q, d.w[k], d.eps[k], own(d.index), old, d.group, own(d.weight))


def taken(model: Model, q: Family, w: np.ndarray, wants: Wants) -> Snapshot:
    """A snapshot of the data term at q_w, with what is wanted of it."""
    mu, factor = q.moments(w)
    return snapshot(model, mu, **wants._asdict() | {"factor": factor if wants.factor else None})
