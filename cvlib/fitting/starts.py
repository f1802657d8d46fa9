"""Where to begin: the mode by the model's gradient, and the best of a few widths about it."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from ..deadline import Late, deadline
from ..models.density import Density, Model
from ..special import hess_times
from .climbing import SOME, STEPS, Curvature, climb
from .settings import DEFAULT, Settings

DENSE = 200  # unknowns up to which the search for the mode remembers all turns of the slope
ENOUGH = 1e-6  # nats that a step of it must promise to be taken
AXES = 500  # unknowns up to which the axes of the curvature are looked along
FAR = 1e8  # beyond it nothing is looked for
NEAR = 0.1  # distance from a mode at which to look, at least
FALL = 0.01  # of log p, one standard deviation off the mode: less may be flat
FARTHER = 100.0  # if it is no more at this distance


# The mode -----------------------------------------------------------------------------------------


class Mode(NamedTuple):
    """The highest point that a search found."""

    z: np.ndarray  # (d,)
    value: float
    inverse: np.ndarray  # (d, d) of minus the Hessian, as the search saw it
    began: np.ndarray  # (d,)
    trouble: str = ""


def searched(density: Density, z: np.ndarray) -> Mode:
    """The mode, and what is wrong with it: a saddle, flat, no end.

    One standard deviation off a mode log p is lower, in every direction. Where it is higher the
    search goes on: that was a saddle, or the search gave up. Where it stays, far out too, there is
    no mode. Once it is late the highest point so far is taken as it is.
    """
    mode = climbed(density, z)
    fallen = lambda steps: mode.value - np.nan_to_num(density.value(mode.z + steps), nan=-np.inf)
    with suppress(Late):
        deadline.check()
        if not np.isfinite(mode.value):
            says = "log p(x, z) or its slope is no number where the search began"
            return mode._replace(trouble=says)
        for _ in range(3):
            off = _axes(mode.inverse)[: max(8, 2**24 // density.size)]
            off = np.concatenate([off, -off])
            fall = fallen(off)
            off = off[np.argsort(fall)[: (fall <= FALL).sum()]]  # the highest first
            rises = fall.min() < -FALL
            again = climbed(density, mode.z + off[0]) if rises else mode
            if not again.value > mode.value or np.abs(again.z).max() > FAR / 100:
                break
            mode = again
        if not rises and len(off):
            far = np.maximum(FARTHER / np.linalg.norm(off, axis=1), 1.0)[:, None]
            off = off[fallen(far * off) <= FALL]
        if len(off):
            # along what it went farthest, for one that runs away drags others
            k = int(np.argmax(np.abs(mode.z - z if rises else off[0])))
            how = f"{'rises' if rises else 'stays flat'} along {density.model.names[k]}"
            says = f"no mode was found: log p(x, z) {how}, {mode.z[k]:.3g} where it ended"
            return mode._replace(trouble=says)
    return mode


def climbed(density: Density, z: np.ndarray, goal: float = np.inf) -> Mode:
    """Where a search gets from z, at most to the goal.

    In many dimensions it remembers the last turns of the slope alone.
    """
    best, gone = -np.inf, False

    def log_p(z):
        nonlocal best, gone
        (value,), (slope,) = density.slope(z[None])
        far = np.abs(z).max()
        if not (np.isfinite(slope).all() and far < FAR):
            return -np.inf, slope
        if value > best:
            best, gone = value, far > FAR / 100  # it rises for ever, or nearly so
        return value, slope

    with deadline.until(lambda: gone or best >= goal):
        most = Curvature(STEPS if len(z) <= DENSE else SOME)
        top, curvature = climb(log_p, z, ENOUGH, known=most)
    return Mode(top.z, top.value, curvature.times(np.eye(len(z))), z)


def _axes(C):
    """Rows one standard deviation along the axes of C, or of its diagonal, the widest first."""
    if len(C) > AXES or not np.isfinite(C).all():
        l, axes = np.nan_to_num(np.diag(C), posinf=1.0), np.eye(len(C))
    else:
        l, axes = np.linalg.eigh((C + C.T) / 2)
    order = np.argsort(-l)
    return axes.T[order] * np.maximum(np.sqrt(np.maximum(l, 0)), NEAR)[order, None]  # kinks: 0


# A start ------------------------------------------------------------------------------------------


class Start(NamedTuple):
    """N(mu, S S^T) to begin with; a point has no S."""

    mu: np.ndarray  # (d,)
    S: Any  # (d, d) lower triangular, or (d,) its diagonal
    says: str  # where this is
    trouble: str = ""  # what is wrong with log p, or ""
    stopped: bool = False  # from the keyboard
    handicap: float = 0.0  # nats by which its ELBO must be better
    rivals: str = ""  # what is said of other modes, about as high


def most(model: Model, settings: Settings = DEFAULT) -> int:
    """Unknowns up to which q has a full covariance: more where the steps are JAX's own."""
    return max(settings.full, 0 if model.traced is None else model.traced.full)


def start(
    model: Model, full: bool = True, given: Start | None = None, restarts: int | None = None,
    late: Callable = lambda: False, seed: int = 0, settings: Settings = DEFAULT,
) -> Start:  # fmt: skip
    """A Gaussian to begin with: the one of several about the mode that has the best ELBO.

    Modes more than d nats below the highest are left out, and so low a place to begin the search
    must have an ELBO that is better by much: a width can be mended, a wrong place hardly. Ctrl-C
    ends the search.
    """
    rng = np.random.default_rng([seed, 1])
    few, first = Density.of_some(model, rng), given or Start(np.zeros(model.dim), None, "z = 0")
    widths = settings.widths
    near = _about(first.mu, full, first.says, widths) if first.S is None else [first]
    try:
        with deadline.until(late):
            modes = [searched(few, first.mu)]
            if restarts is None:
                still = (modes[0].z == first.mu).any()  # as all weights of a network at z = 0
                restarts = int(given is None and bool(modes[0].trouble or still))
            for z in rng.standard_normal((restarts, model.dim)) / 2:
                modes += [] if late() else [searched(few, z)]
        fine = [mode for mode in modes if not mode.trouble]
        low = max((mode.value for mode in fine), default=-np.inf) - model.dim
        if first.S is None and few.value(first.mu[None])[0] < low:
            near = [start._replace(handicap=settings.low * model.dim) for start in near]
        high = (_about_mode(few, mode, full, late, widths) for mode in fine if mode.value >= low)
        found = sum(high, near)
        trouble, rivals = "" if fine else modes[0].trouble, _rivals(few, fine, settings)
        return _best(few, found, rng)._replace(trouble=trouble, rivals=rivals)
    except Late:
        if first.S is not None:
            return first
        top = max(modes, key=lambda mode: mode.value)
        S = _factor(top.inverse) if full else np.sqrt(np.diag(top.inverse))
        return Start(top.z, S, "the highest point that there was time to find")
    except KeyboardInterrupt:
        return near[0]._replace(stopped=True)


def _rivals(density, modes, settings):
    """A sentence on modes about as high as the highest, if log p dips on the way between them."""
    found: list[Mode] = []
    for mode in sorted(modes, key=lambda mode: -mode.value):
        if found and mode.value < found[0].value - settings.equal:
            break
        between = density.value(np.array([(mode.z + other.z) / 2 for other in [mode, *found]]))[1:]
        if not (between >= mode.value - settings.dip).any():
            found.append(mode)
    if len(found) < 2:
        return ""
    return (
        f"{len(found)} modes of about equal height were found, {found[0].value:.2f} to "
        f"{found[-1].value:.2f} nats, and q has one of them: the evidence is too low. Where labels "
        "can switch order them, cv.ordered; else fit each, start=, and compare"
    )


def laplace(model: Model, full: bool = True) -> Start:
    """The mode and its curvature: the Laplace approximation."""
    mode, I = searched(Density(model), np.zeros(model.dim)), np.eye(model.dim)
    P = -hess_times(model.log_joint, np.broadcast_to(mode.z, I.shape), I)
    S = _factor(np.linalg.inv(P)) if full else np.diag(P) ** -0.5
    return Start(mode.z, S, "the mode and its curvature", mode.trouble)


def _about_mode(density, mode, full, late, widths):
    """Gaussians about the mode, the one with a known curvature first.

    A diagonal q is offered a point on the way as well, d nats below: no lower than draws of the
    posterior, and often in a wider place (compare Pathfinder, Zhang et al. 2022).
    """
    about = _about(mode.z, full, "the mode", widths)
    if full:
        return [Start(mode.z, _factor(mode.inverse), "the mode and BFGS's curvature"), *about]
    with deadline.until(late):
        way = climbed(density, mode.began, mode.value - len(mode.z)).z
    places = {"the mode": mode.z, "a point on the way to the mode": way}
    says = "{} and its curvature in pairs"
    return [Start(z, _widths(density, z), says.format(x)) for x, z in places.items()] + about


def _widths(density, z, width=0.01, pairs=16):
    """Of a curvature -E[e_k (slope_k(z + width e) - slope_k(z - width e))] / 2 width."""
    e = np.random.default_rng(0).standard_normal((pairs, len(z)))
    up, down = (density.slope(z + sign * width * e)[1] for sign in (1, -1))
    seen = np.abs((e * (up - down)).mean(0)) / (2 * width)
    return 1 / np.sqrt(np.maximum(np.nan_to_num(seen, nan=1e-4), 1e-4))


def _about(z, full, says, widths):
    """The same width in all directions."""
    I = np.eye(len(z)) if full else np.ones(len(z))
    return [Start(z, width * I, f"{says}, with a width of {width:g}") for width in widths]


def _factor(C):
    """Lower triangular S with S S^T = C; I where there is none."""
    try:
        return np.linalg.cholesky((C + C.T) / 2)
    except np.linalg.LinAlgError:
        return np.eye(len(C))


def _best(density, found, rng):
    """The start with the best ELBO on common draws."""
    n = int(np.clip(2**23 // (density.size * len(found)), 4, 32))
    eps = rng.standard_normal((n, len(found[0].mu)))
    eps = np.concatenate([eps, -eps])
    z = [s.mu + (eps @ s.S.T if s.S.ndim == 2 else eps * s.S) for s in found]
    with np.errstate(over="ignore"):
        value = density.value(np.concatenate(z)).reshape(len(found), -1).mean(1)
    scale = [np.log(np.diag(s.S) if s.S.ndim == 2 else s.S).sum() - s.handicap for s in found]
    return found[np.argmax(np.nan_to_num(value + scale, nan=-np.inf))]
