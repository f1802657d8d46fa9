"""What is said of a q that was found: how, what shape it has, and what to distrust."""

from collections.abc import Iterator

import numpy as np
from autograd import elementwise_grad

from ..combining.tails import HEAVY, Weights
from ..families.base import Family
from ..models import Model
from .looks import BIG, FAIR, LOOKS, big, explained, weighed
from .run import KEYBOARD, LATE, VAIN, Run

FEW = 50  # draws left, from which nothing is said of single coordinates
FAR = 6.0  # standard deviations of its prior that a coordinate may lie out
STEPS = {  # by the kind of a run
    "exact": "natural steps on the exact ELBO, by quadrature",
    "rotated": "natural steps, {plan.M} slopes at rotated draws in each, all data, inside JAX",
    "adam": "Adam's steps with {plan.M} draws, all data, on {plan.h!r}",
}
REGRESSED = "natural steps, {plan.M} slopes regressed on their draws in each, all data"


def judged(run: Run) -> tuple[Weights, tuple[str, ...], tuple[str, ...]]:
    """A last look at a run, what was done, and what to distrust.

    Whatever fails in that, or is cut off, is a sentence: no fit is lost. Nothing is said of the
    shape of q before the ELBO has settled.
    """
    failed = []

    def safely(what, look, otherwise):
        try:
            with np.errstate(all="ignore"):
                return look()
        except KeyboardInterrupt:
            failed.append(f"{what} could not be checked: {KEYBOARD}")
        except Exception as error:  # functions of the reader's fail in many ways
            failed.append(f"{what} could not be checked: {type(error).__name__}: {error}")
        return otherwise

    q, w = run.law
    look = lambda: weighed(run.model, q, w, run.state.t + 1)
    last = safely("the ELBO", look, Weights(np.empty((0, q.dim)), np.empty(0)))
    done = STEPS.get(run.kind, REGRESSED).format(plan=run.plan)
    shape = run.settled and len(last.log) > 0
    words = safely("the shape of q", lambda: [*said(run, last)] if shape else [], [])
    found = safely("what to distrust", lambda: doubts(run, last), [])
    prior = lambda: [*conflicts(run.model, run.q.mean(run.best))] if run.q.gaussian else []
    far = safely("the prior", prior, [])
    return last, (*run.words, done, *words), (*found, *far, *failed)


def said(run: Run, last: Weights) -> Iterator[str]:
    """Three numbers on the shape of q, with what each means."""
    if run.law[0].gaussian:
        share, left = explained(run.model, run.q, run.best, run.state.t + 1)
        yield (
            f"a quadratic explains {share:.0%} of the slope of log p at the draws, and a better "
            f"Gaussian would remove {max(left, 0.0) + 0.0:.2g} a coordinate"
        )
    yield f"{last.kept}, their relative effective sample size"
    tail = "above 0.7 the tail of the weights is too heavy to believe that share"
    if last.k_hat > HEAVY and not big(last):
        tail = f"a tail that does not matter, for no weight is {BIG} times the mean"
    yield f"k-hat is {last.k_hat:.2f}: {tail}"


def doubts(run: Run, last: Weights) -> list[str]:
    """Sentences that begin with what is wrong and end with what to do."""
    left, tail, diverged = last.effective, last.k_hat, int(run.state.diverged)
    end = last if diverged < 0 else weighed(run.model, run.q, run.state.w, 0, LOOKS[0])
    n, shape = max(len(end.log), 1), run.settled and len(last.log) > 0
    outside = end.outside.sum() / n
    lost = (~end.fine).sum() / n - outside
    late = "it ran out of time, and " * (LATE in "".join(run.words[-1:]))
    bent = "" if run.bent is None else ", though it bends"
    bent = ", nor of one that bends" if VAIN in run.words else bent
    more = "let q bend (bend=True), " * (run.can_bend and not bent)
    cases = [
        (run.trouble, f"{run.trouble}. A prior may be missing, or a log-Jacobian have the wrong "
         "sign; if neither is, compare with draws of another method"),
        (run.rivals, run.rivals),
        (diverged >= 0, f"the run diverged at step {diverged}: try more draws M, scale the "
         "data, or put a prior on what they do not tell"),
        (lost > 0, f"log p(x, z) is no number at {lost:.1%} of the draws of q, which were left "
         "out: something overflows there, or a matrix is singular"),
        (outside > 0, f"log p(x, z) is minus infinity at {outside:.1%} of the draws of q: the "
         "posterior ends within its reach. The ELBO is that of q cut off there; parameters "
         "declared with their limits, cv.interval(0, 1) say, have no such edge"),
        (not run.settled and lost + outside < 0.1 and diverged < 0, f"{late}the ELBO had not "
         "settled: give more seconds or steps, fit.go_on(seconds=60)"),
        (shape and left >= FAIR and tail > HEAVY and big(last), f"{last.kept}, but k-hat is "
         f"{tail:.2f}: the posterior's tail is heavier than that of q, and the share too hopeful"),
        (shape and not left >= FAIR, f"{last.kept}, with k-hat {tail:.2f}: the posterior does not "
         f"have the shape of q{bent}, {worst(*run.law, last, run.model.names)}. No variate will "
         f"help: {more}write it in other coordinates, take another q, or compare with draws of "
         "another method"),
    ]  # fmt: skip
    return [sentence for true, sentence in cases if true]


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

    Where log p(z) can rise by x along a coordinate, z lies sqrt(2 x) sds of a normal prior out. It
    must rise as much wherever the others are: else it is a law given these, not its own prior.
    """
    prior = lambda z: model.log_prior(z) + 0 * z[..., 0]
    slope = elementwise_grad(prior)(z[None])[0]
    for k in np.argsort(-np.abs(slope * z))[:4]:
        steps = np.append(0.0, np.sign(slope[k]) * np.geomspace(1e-4, 1e6, 400))
        line, moved = (np.repeat(x[None], len(steps), 0) for x in (z, z + 0.1 * (1 + np.abs(z))))
        line[:, k] = moved[:, k] = z[k] + steps
        height, other = (np.nan_to_num(h - h[0], nan=-np.inf) for h in map(prior, (line, moved)))
        top = int(np.argmax(height[:-1]))
        out = np.sqrt(2 * max(height[top], 0.0))
        alone = np.isclose(height[top], other[top], rtol=1e-6)
        if alone and out > FAR and -np.inf < height[top + 1] <= height[top]:  # or rises for ever
            yield (
                f"{model.names[k]} = {z[k]:.3g} lies {out:.0f} standard deviations out in its "
                "prior: are the data in the units that the prior was written for?"
            )
            return
