"""A look at a fit: the ELBO on common draws, whether it has settled, and what to distrust."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import autograd.numpy as anp
import numpy as np
from autograd import grad

from ..combining import regression
from ..combining.tails import HEAVY
from ..families.base import Family
from ..models import Model
from ..recipe.draws import Draw
from .density import Density, scored

if TYPE_CHECKING:
    from .run import Run

LOOKS, LAST = (250, 1000, 4000), 4000  # draws for a look at the ELBO, few or many; the last one
TOLERANCE, CHANCE = 0.05, 0.05  # nats that may be left to gain, and the chance to be wrong there
FAIR = 0.5  # share of draws that weights should leave
SURE = 0.95  # a share beyond which a heavy tail is told and not warned of
FEW = 50  # draws left, from which nothing is said of single coordinates
FAR = 6.0  # standard deviations of its prior that a coordinate may lie out


class Weights(NamedTuple):
    """Draws z (n, d) of q_w and the logarithms of their importance weights p(x, z) / q(z), (n,)."""

    z: np.ndarray
    log: np.ndarray

    @property
    def fine(self) -> np.ndarray:
        """Which of them are numbers, (n,)."""
        return np.isfinite(self.log)

    @property
    def elbo(self) -> tuple[float, float]:
        """Mean and standard error of those that are numbers; NaN if none is."""
        log = self.log[self.fine]
        return (log.mean(), log.std() / np.sqrt(len(log))) if len(log) else (np.nan, np.nan)

    @property
    def share(self) -> np.ndarray:
        """The weights, with sum one, (n,)."""
        weight = np.where(self.fine, np.exp(self.log - self.log[self.fine].max(initial=-np.inf)), 0)
        return weight / max(weight.sum(), 1e-300)

    @property
    def effective(self) -> float:
        """The share of draws that the weights leave: effective sample size over number."""
        squares = (self.share**2).sum()
        return float(1 / squares / len(self.log)) if squares else 0.0


def weighed(model: Model, q: Family, w: np.ndarray, seed: int, n: int = LAST) -> Weights:
    """n draws of q_w, fewer where data are many. The same seed gives the same base sample."""
    density = Density(model)
    n = int(np.clip(2**25 // density.size, 64, n))
    eps = q.noise(np.random.default_rng([seed, n]), w, n)
    z = Draw(model, q, w, eps, None).z
    with np.errstate(all="ignore"):
        return Weights(z, density.value(z) - q.log_q(w, z))


def at_most(gain: np.ndarray, look: int) -> float:
    """What the mean of gain (n,) is at most, wrong with a chance of CHANCE in all.

    A look has CHANCE / 2^look of it, and each of the sizes that it may try an equal share of that.
    """
    from statistics import NormalDist  # seldom needed, and slow to load

    doubt = (
        -NormalDist().inv_cdf(CHANCE / 2**look / len(LOOKS)) * gain.std(ddof=1) / np.sqrt(len(gain))
    )
    return gain.mean() + doubt


def explained(model: Model, q: Family, w: np.ndarray, seed: int) -> tuple[float, float]:
    """How much of the slope of log p a quadratic explains, and what a better Gaussian would remove.

    The second is `regression.gauge`'s removable / d: the best ELBO lies about removable / 2 higher.
    """
    least = q.dim + 20 if q.full else 20
    M = int(np.clip(2**23 // Density(model).size, least, max(least, 200)))
    draw, _, G = scored(model, q, w, np.random.default_rng([seed, M, 1]), M)
    fine = np.isfinite(G).all(-1)
    if fine.sum() < M / 2:
        return np.nan, np.nan
    e, G = draw.eps[fine], G[fine]
    seen = regression.gauge(e, G, diagonal=not q.full)
    return float(1 - seen.residual / (G**2).sum(-1).mean()), float(seen.removable / q.dim)


def worst(q: Family, w: np.ndarray, found: Weights, names: list[str]) -> str:
    """A clause on the coordinate whose mean or sd importance weights move most."""
    if found.effective * len(found.log) < FEW:
        return "so few that they do not tell where"
    mean, sd, share, z = q.mean(w), q.sd(w), found.share, found.z
    moved = (share @ z - mean) / sd
    ratio = np.sqrt(share @ (z - share @ z) ** 2) / sd
    k = int(np.argmax(np.maximum(np.abs(moved), np.abs(np.log(np.maximum(ratio, 1e-3))))))
    return f"above all along {names[k]} (mean {moved[k]:+.1f} sd, sd times {ratio[k]:.1f})"


def conflicts(model: Model, z: np.ndarray) -> Iterator[str]:
    """A sentence where z (d,) lies far out in its prior: data may be in other units.

    Where log p(z) can rise by x along a coordinate, z lies sqrt(2 x) sds of a normal prior out.
    """
    prior = lambda z: model.log_prior(z) + 0 * anp.sum(z, -1)
    slope = grad(prior)(z)
    for k in np.argsort(-np.abs(slope * z))[:4]:
        line = np.repeat(z[None], 400, 0)
        line[:, k] += np.sign(slope[k]) * np.geomspace(1e-4, 1e6, 400)
        height = np.nan_to_num(prior(line) - prior(z), nan=-np.inf)
        top = int(np.argmax(height[:-1]))
        out = np.sqrt(2 * max(height[top], 0.0))
        if out > FAR and -np.inf < height[top + 1] <= height[top]:  # else it rises for ever
            yield (
                f"{model.names[k]} = {z[k]:.3g} lies {out:.0f} standard deviations out in its "
                "prior: are the data in the units that the prior was written for?"
            )
            return


# In words ----------------------------------------------------------------------------------------

STEPS = {  # by the kind of a run
    "exact": "natural steps on the exact ELBO, by quadrature",
    "adam": "Adam's steps with {plan.M} draws, all data, on {plan.h!r}",
}
REGRESSED = "natural steps, {plan.M} slopes regressed on their draws in each, all data"


def said(run: "Run", found: Weights, k: float) -> Iterator[str]:
    """How the steps were made, and three numbers on the shape of q with what each means."""
    yield STEPS.get(run.kind, REGRESSED).format(plan=run.plan)
    if run.q.gaussian:
        share, left = explained(run.model, run.q, run.best, run.state.t + 1)
        yield (
            f"a quadratic explains {share:.0%} of the slope of log p at the draws, and a better "
            f"Gaussian would remove {max(left, 0.0) + 0.0:.2g} a coordinate"
        )
    yield (
        f"importance weights keep {found.effective:.0%} of {len(found.log)} draws: what the others "
        "are worth beside the largest"
    )
    yield f"k-hat is {k:.2f}: above 0.7 the tail of the weights is too heavy to believe that share"


def doubts(run: "Run", found: Weights, k: float) -> list[str]:
    """Sentences that begin with what is wrong and end with what to do."""
    lost, left, diverged = 1 - found.fine.mean(), found.effective, int(run.state.diverged)
    kept = f"importance weights keep {left:.0%} of {len(found.log)} draws"
    where = worst(run.q, run.best, found, run.model.names)
    cases = [
        (run.trouble, f"{run.trouble}. A prior may be missing, or a log-Jacobian have the wrong "
         "sign; if neither is, compare with draws of another method"),
        (diverged >= 0, f"the run diverged at step {diverged}: try more draws M, scale the data, "
         "or put a prior on what they do not tell"),
        (lost > 0, f"log p(x, z) is no number at {lost:.1%} of the draws of q, which were left "
         "out: something overflows there, or a matrix is singular"),
        (not run.settled and lost < 0.1 and diverged < 0, "the ELBO had not settled: give more "
         "seconds or steps, fit.go_on(seconds=60)"),
        (FAIR <= left < SURE and k > HEAVY, f"{kept}, but k-hat is {k:.2f}: the posterior's tail "
         "is heavier than that of q, and the share too hopeful"),
        (not left >= FAIR, f"{kept}, with k-hat {k:.2f}: the posterior does not have the shape of "
         f"q, {where}. No variate will help: write it in other coordinates, take another q, or "
         "compare with draws of another method"),  # or NaN
    ]  # fmt: skip
    far = conflicts(run.model, run.q.mean(run.best)) if run.q.gaussian else ()
    return [*(sentence for true, sentence in cases if true), *far]
