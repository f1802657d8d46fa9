"""What there is to choose from: the sensible lines, and the noise of every set of them."""

from collections.abc import Iterable
from copy import copy
from dataclasses import replace
from itertools import combinations
from math import ceil, sqrt
from typing import NamedTuple

import numpy as np
import scipy

from .arguments import whole
from .ascent.plans import Noisy, taken
from .ascent.rules import in_units
from .combining.combine import best_weights
from .draws import draw
from .families.base import Family
from .models.density import Model
from .recipe.approximations import bound, taylor_z
from .recipe.atoms import terms
from .recipe.ensemble import AQ
from .recipe.estimators import CF, GR, PR, QD, RB, RP1, SF, Estimator, evaluate
from .recipe.integrands import wanted
from .zoo import published, whole_gradient, written

CHUNK = 2**22  # numbers that the draws of a pilot may make at a time
DOUBT = 1e-6  # chance that a base with the right mean is taken for one without
RIGHT = 'write among={"mine": (h, {"c7": c7})}'
Table = dict[str, tuple[Estimator, dict[str, Estimator]]]  # {base: (h, {variate: line})}


def candidates(model: Model, q: Family, subsample: bool = True, M: int = 10) -> Table:
    """{base: (h, {variate: line})}, what is legal and sensible for the model and the family.

    "RP1", "RB", "PR", "QD" estimate the data term so, with prior and entropy in closed form where
    there is one. Beside them stand variates that share their noise: expansion ("c7") and bound
    against their closed forms, and the expansion at a snapshot against that over all data, with
    ("joint") or without ("snapshot") the noise of q. Their best weights are about 1, 1, -1 and -1.
    "RP1 of all three" samples the entropy too, so that noise vanishes where q is the posterior.
    With all data in every step, so do PR and AQ, the regression on the other samples.
    """
    data, prior, variational = terms(model, q)
    closed, found = written(CF, prior), {}
    dear = q.gaussian and model.likelihood is None and q.dim > 200  # a Hessian: d gradients
    words = (RP1,) if dear else (RP1, RB, PR, QD)
    for word in words if q.gaussian else (RP1 if RP1.fits(q) else GR, SF):
        h = written(lambda: word(data) + (closed or word(prior)) - CF(variational))
        if h is not None:
            lines = _expansions(word, data, prior, subsample) if q.gaussian else published(model, q)
            found[word.name] = h, {} if dear else lines
    (first,) = {word for word, _ in whole_gradient(model, q).parts}
    more = [PR] * (not dear) + [AQ] * (M > 3)  # which leans on the other samples
    for word in (first, *(more if q.gaussian and not subsample else [])):
        found[f"{word} of all three"] = word(data + prior - variational), {}
    return found


def _expansions(word, data, prior, subsample):
    """The variates beside a word under a Gaussian q, as far as they may be written."""
    f, far = data if written(CF, prior) else data + prior, taylor_z(data, at="snapshot")
    lines = {
        "c7": lambda: CF(taylor_z(f)) - word(taylor_z(f)),
        "bound": lambda: CF(bound(f)) - word(bound(f)),
        "joint": lambda: word(far) - CF(far.over_all_data()),
    }
    found = {name: written(write) for name, write in lines.items() if word.samples}  # else as CF
    found |= {"snapshot": CF(far) - CF(far.over_all_data())} if subsample else {}
    return {name: line for name, line in found.items() if line is not None}


class Set(NamedTuple):
    """A base gradient and the variates that go with it, by name; drawn in pairs or as was said."""

    base: str
    cvs: tuple = ()
    pairs: bool = False

    def __str__(self):
        drawn = self.base + " in pairs" * self.pairs
        return drawn + (f" with {', '.join(self.cvs)}" if self.cvs else "")


def subsets(base: str, cvs: Iterable[str]) -> list[Set]:
    """A base with each subset of its variates; of more than ten, with none, one or two of them."""
    names = tuple(cvs)
    most = len(names) if len(names) <= 10 else 2
    return [Set(base, some) for n in range(most + 1) for some in combinations(names, n)]


class Pilot:
    """Steps at w with all lines of a table: the noise of any set of them.

    With pairs=True there are two ways to draw. Steps of one half try the weights that the other
    half fits. A snapshot, where lines want one, is new.
    """

    def __init__(
        self, table: Table, plan: Noisy, w: np.ndarray, steps: int, rng: np.random.Generator, *,
        natural: bool = False, pairs: bool = False,
    ):  # fmt: skip
        half = ceil(whole("pilot", steps, 2) / 2)
        if np.ndim(w) != 1:
            raise ValueError(f"w has shape {np.shape(w)}: give one w, ({plan.q.D},)")
        self.plan, self.w, self.natural = plan, plan.q.check(w), natural
        self.ways = [plan.sampling, *[replace(plan.sampling, noise="pairs")] * pairs]
        self.table = _checked(table, plan)
        key = lambda line: frozenset(line.parts.items())  # a line of two bases is there once
        lines = {key(line): line for own in self.table.values() for line in own.values()}
        at = {name: place for place, name in enumerate(lines)}
        self.places = {b: [at[key(c)] for c in own.values()] for b, own in self.table.items()}
        wants = wanted(atom for line in lines.values() for _, atom in line.parts)
        old = taken(plan.model, plan.q, self.w, wants) if wants else None
        R = max(3, min(half, CHUNK // (len(self.ways) * len(lines) * plan.M * plan.q.D)))
        looks = [self._look([*lines.values()], rng, R, old) for _ in range(2 * ceil(half / R))]
        self.n, self.K, self.along, self.mean = R * len(looks), {}, {}, {}
        for own in looks[0]:
            K, along, mean = zip(*(look[own] for look in looks))
            self.K[own] = np.stack([np.concatenate(K[k::2]) for k in (0, 1)])  # (2, n / 2, P, P)
            self.along[own], self.mean[own] = np.concatenate(along), np.mean(mean, 0)
        self.least = 1e-12 * max(K[..., 0, 0].mean() for K in self.K.values()) + 1e-300
        self.refused = self._astray()

    def _look(self, lines, rng, R, old):
        """R steps side by side, {(base, pairs): products, gradients along q's width, means}."""
        q, M, D, found = self.plan.q, self.plan.M, self.plan.q.D, {}
        w, width = np.broadcast_to(self.w, (R, D)), np.where(np.arange(D) < q.dim, 0.0, self.w)
        for pairs, seen in zip((False, True), self.ways):
            d = draw(self.plan.model, q, w, M, rng, snapshot=old, sampling=seen)
            G = evaluate(lines, d)  # (R, all lines, M, D)
            for base, own in self.places.items():
                # a word with rows or a pull of its own may look at all samples, as LOO does
                words = {word for k in own for word, _ in lines[k].parts}
                together = seen.shared or any(word.rows or word.pull for word in words)
                size = M if together else d.group  # samples that lean on each other
                # their means, a unit each, (R, P, units, D); partners are M / 2 apart
                X = G[:, own].reshape(R, len(own), size, -1, D).mean(2)
                X = in_units(q, self.w, X) if self.natural else X
                mean, units = X.mean((0, 2)), X.shape[2]
                X = (X - mean[:, None]).reshape(R, len(own), -1)
                K = X @ X.mT / units**2 * (R * units / (R * units - 1))  # of means of steps
                found[base, pairs] = K, G[:, own[0]].mean(1) @ width, mean
        return found

    def _astray(self):
        """{base: a sentence} if its mean along q's width is not the first's: PR's at a kink."""
        first = self.along[next(iter(self.table)), False]  # (n,)
        apart = np.stack([self.along[base, False] - first for base in self.table])
        error = apart.std(1, ddof=1) / sqrt(self.n) + 1e-10 * np.abs(first).max() + 1e-300
        z, most = np.abs(apart.mean(1)) / error, scipy.special.stdtrit(self.n - 1, 1 - DOUBT / 2)
        why = "{} is refused: its mean is {:.0f} standard errors off, as where log p has a kink"
        return {base: why.format(base, x) for base, x in zip(self.table, z) if x > most}

    @property
    def sets(self) -> list[Set]:
        """All sets of the bases that are not refused, in each of the ways to draw."""
        own = {base: [*own][1:] for base, own in self.table.items() if base not in self.refused}
        plain = [s for base, cvs in own.items() for s in subsets(base, cvs)]
        return [s._replace(pairs=way > 0) for way in range(len(self.ways)) for s in plain]

    def weights(self, s: Set) -> np.ndarray:
        """Those of all lines of the base, (..., 2, 1, P): of each half, as the other fits them."""
        own = [[*self.table[s.base]].index(name) for name in s.cvs]
        K = self.K[s.base, s.pairs].mean(-3, keepdims=True)[..., ::-1, :, :, :]
        v = np.zeros(K.shape[:-1])
        v[..., 0] = 1.0
        v[..., own] = best_weights(K[..., own, :][..., own], K[..., own, 0])
        return v

    def each(self, s: Set) -> np.ndarray:
        """||g - E g||^2 at every step, (..., 2, n / 2). Below rounding error all sets are alike."""
        v = self.weights(s)
        return np.maximum(np.vecdot(np.vecmat(v, self.K[s.base, s.pairs]), v), self.least)

    def noise(self, s: Set) -> np.ndarray:
        """E||g - E g||^2 of a step, (...)."""
        return self.each(s).mean((-2, -1))

    def slope2(self, sets: list[Set]) -> float:
        """||E g||^2, from the set with the least noise."""
        quiet = min(sets, key=self.noise)
        g = self.weights(quiet).mean((0, 1)) @ self.mean[quiet.base, quiet.pairs]
        return max(0.0, g @ g - self.noise(quiet) / self.n)

    def resampled(self, times: int, rng: np.random.Generator) -> "Pilot":
        """Many pilots side by side, of steps drawn from this one: K is (times, 2, 1, P, P)."""
        half, other = self.n // 2, copy(self)
        counts = [rng.multinomial(half, np.full(half, 1 / half), times) / half for _ in range(2)]
        mean = lambda K: np.stack([np.tensordot(c, k, 1) for c, k in zip(counts, K)], 1)
        other.K = {key: mean(K)[:, :, None] for key, K in self.K.items()}
        return other


def _checked(table, plan):
    """{base: {name: line}}, the base's name empty, or an error that says what is wrong."""
    if not (isinstance(table, dict) and table):
        raise TypeError(f"{table!r} is no table of bases and their variates: {RIGHT}")
    for name, pair in table.items():
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], dict)):
            raise TypeError(f"{name!r}: {pair!r} is no pair of h and variates by name: {RIGHT}")
        replace(plan, h=pair[0], cvs=[*pair[1].values()])  # refuses what is neither
    return {base: {"": h} | cvs for base, (h, cvs) in table.items()}
