"""What is said of a q that was found: how, what shape it has, and what to distrust."""

from collections.abc import Iterator

import autograd.numpy as anp
import numpy as np
from autograd import grad

from ..combining.tails import HEAVY, Weights
from ..families.base import Family
from ..models import Model
from .looks import LOOKS, explained, weighed
from .run import Run

FAIR = 0.5  # share of draws that weights should leave
SURE = 0.95  # a share beyond which a heavy tail is told and not warned of
FEW = 50  # draws left, from which nothing is said of single coordinates
FAR = 6.0  # standard deviations of its prior that a coordinate may lie out
STEPS = {  # by the kind of a run
    "exact": "natural steps on the exact ELBO, by quadrature",
    "adam": "Adam's steps with {plan.M} draws, all data, on {plan.h!r}",
}
REGRESSED = "natural steps, {plan.M} slopes regressed on their draws in each, all data"


def said(run: Run, last: Weights) -> Iterator[str]:
    """How the steps were made, and three numbers on the shape of q with what each means."""
    yield STEPS.get(run.kind, REGRESSED).format(plan=run.plan)
    if run.q.gaussian:
        share, left = explained(run.model, run.q, run.best, run.state.t + 1)
        yield (
            f"a quadratic explains {share:.0%} of the slope of log p at the draws, and a better "
            f"Gaussian would remove {max(left, 0.0) + 0.0:.2g} a coordinate"
        )
    yield f"{last.kept}: what the others are worth beside the largest"
    tail = "above 0.7 the tail of the weights is too heavy to believe that share"
    yield f"k-hat is {last.k_hat:.2f}: {tail}"


def doubts(run: Run, last: Weights) -> list[str]:
    """Sentences that begin with what is wrong and end with what to do."""
    left, tail, diverged = last.effective, last.k_hat, int(run.state.diverged)
    end = last if diverged < 0 else weighed(run.model, run.q, run.state.w, 0, LOOKS[0])
    lost = 1 - end.fine.mean()
    cases = [
        (run.trouble, f"{run.trouble}. A prior may be missing, or a log-Jacobian have the wrong "
         "sign; if neither is, compare with draws of another method"),
        (diverged >= 0, f"the run diverged at step {diverged}: try more draws M, scale the "
         "data, or put a prior on what they do not tell"),
        (lost > 0, f"log p(x, z) is no number at {lost:.1%} of the draws of q, which were left "
         "out: something overflows there, or a matrix is singular"),
        (not run.settled and lost < 0.1 and diverged < 0, "the ELBO had not settled: give more "
         "seconds or steps, fit.go_on(seconds=60)"),
        (FAIR <= left < SURE and tail > HEAVY, f"{last.kept}, but k-hat is {tail:.2f}: the "
         "posterior's tail is heavier than that of q, and the share too hopeful"),
        (not left >= FAIR, f"{last.kept}, with k-hat {tail:.2f}: the posterior does not have the "
         f"shape of q, {worst(run.q, run.best, last, run.model.names)}. No variate will help: "
         "write it in other coordinates, take another q, or compare with draws of another method"),
    ]  # fmt: skip
    far = conflicts(run.model, run.q.mean(run.best)) if run.q.gaussian else ()
    return [*(sentence for true, sentence in cases if true), *far]


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
