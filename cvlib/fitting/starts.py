"""Where to begin: the mode by the model's gradient, and the best of a few widths about it."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from ..deadline import Late, deadline
from ..models.density import Density, Model
from ..special import hess_times
from .settings import DEFAULT, Settings
from .strategies import SOME, STEPS, Curvature, climb

DENSE = 200  # unknowns up to which the search for the mode remembers all turns of the slope
ENOUGH = 1e-6  # nats that a step of it must promise to be taken
AXES = 500  # unknowns up to which the axes of the curvature are looked along
FAR = 1e8  # beyond it nothing is looked for
DEEP = 8.0  # of a coordinate: as a logarithm it may be that of a scale which goes to zero
NEAR = 0.1  # distance from a mode at which to look, at least
FALL = 0.01  # of log p, one standard deviation off the mode: less may be flat
FARTHER = 100.0  # if it is no more at this distance
SHARE = 0.1  # of the gradients of a fit that searches from other points may take
AGAIN = 20, 3  # up to so many unknowns so many of these searches are made in any case
MOST = 8  # of them
SCALES = np.exp2(np.arange(-1.0, 4.0))  # of points that know the prior
PLACES, SHORT = 1024, 8  # such points, and those among them at which log p is looked at
SAME = 0.1  # nats: modes that differ by less, and have no deeper dip between them, are one
CURE = (
    "A prior may be missing, or a log-Jacobian have the wrong sign; if neither is, compare with "
    "draws of another method"
)

# The mode -----------------------------------------------------------------------------------------


class Mode(NamedTuple):
    """The highest point that a search found."""

    z: np.ndarray  # (d,)
    value: float
    curvature: Curvature  # as the search saw it
    began: np.ndarray  # (d,)
    trouble: str = ""  # a sentence
    spike: bool = False  # is that a scale which collapsed?

    @property
    def inverse(self) -> np.ndarray:
        """(d, d) of minus the Hessian."""
        return self.curvature.times(np.eye(len(self.z)))

    @property
    def variances(self) -> np.ndarray:
        """(d,) the diagonal of that."""
        return self.curvature.diagonal(len(self.z))


def searched(density: Density, z: np.ndarray) -> Mode:
    """The mode, and what is wrong with it: a saddle, flat, no end.

    One standard deviation off a mode log p is lower, in every direction. Where it is higher the
    search goes on: that was a saddle, or the search gave up. Where it stays, far out too, there is
    no mode. Once it is late the highest point so far is taken as it is.
    """
    mode = climbed(density, z)
    fallen = lambda steps: mode.value - np.nan_to_num(density.value(mode.z + steps), nan=-np.inf)
    with deadline.until(None):  # few points, and the search is slow where it went so far
        if spike := collapsed(density, mode.z):
            return mode._replace(trouble=spike, spike=True)
    with suppress(Late):
        deadline.check()
        if not np.isfinite(mode.value):
            says = "log p(x, z) or its slope is not finite where the search began"
            return mode._replace(trouble=f"{says}. {CURE}")
        for _ in range(3):
            most = min(2**24 // density.size, 2**22 // len(z))  # all, if they are few
            off = _axes(mode, max(8, most))
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
            return mode._replace(trouble=f"{says}. {CURE}")
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
    return Mode(top.z, top.value, curvature, z)


def collapsed(density: Density, z: np.ndarray) -> str:
    """A sentence on a scale that goes to zero with all that it scales, while log p rises; or "".

    Where effects have the scale tau = e^z_k, or the variance, or the precision e^-z_k, and nothing
    else is seen of them any more, their curvature is 1 / tau^2: a step of z_k turns it by e^2 or e.
    There log p rises without end along z_k, the effects at their centre.
    """
    deep = np.argsort(-np.abs(z))[:3]
    for k in deep[np.abs(z[deep]) > DEEP] if len(z) <= AXES else ():
        on = np.sign(z[k]) * np.eye(len(z))[k]
        width = np.maximum(0.1 * np.exp(-np.abs(z[k])), 1e-8 * np.abs(z))
        here, before = (np.diag(_curvature(density, at, width)) for at in (z, z - on))
        with np.errstate(all="ignore"):
            rate = np.log(here / before)  # a number where both are positive
        own = (np.abs(rate - np.round(rate)) < 0.02) & np.isin(np.round(rate), (1, 2))
        own[k] = False
        if own.sum() < 2:
            continue
        centre = np.where(own, z + density.slope(z[None])[1][0] / here, z)  # of what is scaled
        line = centre + np.arange(4)[:, None] * on
        if (np.diff(density.value(line)) > 0.1).all():
            name = density.model.names[k]
            return (
                f"{name} collapsed to nothing, and what it scales with it: that is the spike of a "
                "centred hierarchy, where log p(x, z) rises for ever\nWrite the model non-centred, "
                f"u = {name} * e with e ~ N(0, 1), or give it groups, cv.models.Model(..., groups=)"
            )
    return ""


def _curvature(density, z, width):
    """Minus the Hessian of log p, by differences of slopes over these widths (d,)."""
    step = np.diag(width)
    up, down = np.split(density.slope(np.concatenate([z + step, z - step]))[1], 2)
    with np.errstate(all="ignore"):
        return (down - up) / ((z + width) - (z - width))[:, None]


def _axes(mode, most):
    """Rows one sd along the axes of the curvature, or of z, the widest first, (most, d)."""
    d, C = len(mode.z), mode.inverse if len(mode.z) <= AXES else None
    if C is None or not np.isfinite(C).all():
        l, axes = np.nan_to_num(mode.variances, posinf=1.0), None
    else:
        l, axes = np.linalg.eigh((C + C.T) / 2)
    order = np.argsort(-l)[:most]
    along = (order[:, None] == np.arange(d)) * 1.0 if axes is None else axes.T[order]
    return along * np.maximum(np.sqrt(np.maximum(l[order], 0)), NEAR)[:, None]  # kinks: 0


# A start ------------------------------------------------------------------------------------------


class Start(NamedTuple):
    """N(mu, S S^T) to begin with; a point has no S."""

    mu: np.ndarray  # (d,)
    S: Any  # (d, d) lower triangular, or (d,) its diagonal
    says: str  # where this is
    trouble: str = ""  # what is wrong with log p, or ""
    stopped: bool = False  # from the keyboard
    handicap: float = 0.0  # nats by which its ELBO must be better
    rivals: str = ""  # what is said of other modes, about as heavy
    spike: str = ""  # what is said of a scale that collapsed where the search ended


def start(
    model: Model, full: bool = True, given: Start | None = None, restarts: int | None = None,
    late: Callable = lambda: False, seed: int = 0, settings: Settings = DEFAULT,
    ahead: float = 0.0,
) -> Start:  # fmt: skip
    """A Gaussian to begin with: the one of several about the modes that has the best ELBO.

    Modes more than d nats below the highest are left out, and so low a place to begin the search
    must have an ELBO that is better by much: a width can be mended, a wrong place hardly. Ctrl-C
    ends the search. `ahead` are the gradients that the steps take at least.
    """
    rng = np.random.default_rng([seed, 1])
    few, first = Density.of_some(model, rng), given or Start(np.zeros(model.dim), None, "z = 0")
    widths, asked = settings.widths, 0 if given and restarts is None else restarts
    near = _about(first.mu, full, first.says, widths) if first.S is None else [first]
    try:
        with deadline.until(late):
            modes = [searched(few, first.mu)]
            _search_on(few, modes, rng, late, asked, ahead)
        fine = _apart(few, [mode for mode in modes if not mode.trouble])
        if modes[0].trouble and np.isfinite(modes[0].value):  # lower ones are no modes of it
            fine = [mode for mode in fine if mode.value > modes[0].value + SAME]
        low = max((mode.value for mode in fine), default=-np.inf) - model.dim
        if first.S is None and few.value(first.mu[None])[0] < low:
            near = [start._replace(handicap=settings.low * model.dim) for start in near]
        rivals = _rivals(few, fine, settings)
        high = (_about_mode(few, mode, full, late, widths) for mode in fine if mode.value >= low)
        found = _best(few, sum(high, near), rng)._replace(rivals=rivals)
        worst = modes[0]._replace(trouble="") if fine else modes[0]
        return found._replace(**{"spike" if worst.spike else "trouble": worst.trouble})
    except Late:
        if first.S is not None:
            return first
        top = max(modes, key=lambda mode: mode.value)
        S = _factor(top.inverse) if full else np.sqrt(top.variances)
        return Start(top.z, S, "the highest point that there was time to find")
    except KeyboardInterrupt:
        return near[0]._replace(stopped=True)


def _search_on(density, modes, rng, late, asked, ahead):
    """Adds modes from as many other points as are asked for; if that is None, where it is cheap.

    A few for few unknowns, else as many as a tenth of the gradients allow; one at least where the
    first search found no mode, or where a coordinate did not move (as all weights of a network at
    z = 0). From a scale that collapsed other searches go there as well.
    """
    (first,), begun, least, k = modes, density.gradients, asked, 0
    if asked is None:
        still = bool(first.trouble) or (first.z == first.began).any()
        least = max(AGAIN[1] if density.model.dim <= AGAIN[0] else 0, int(still))
        asked = 0 if first.spike else MOST
    budget, cost = SHARE * (begun + ahead), begun
    spent = lambda more=0.0: k > least and density.gradients - begun + more > budget
    for k, z in enumerate(_points(density, modes, rng, asked), 1):
        if late() or spent(cost):
            return
        with deadline.until(spent):
            mode = searched(density, z)
        modes += [] if spent() and not late() else [mode]  # not one that was cut off
        cost = (density.gradients - begun) / k


def _points(density, modes, rng, n):
    """n points to look for other modes from, while `modes` grow.

    Signs that can be turned are the most common reason for several modes, so that the opposite of
    every new highest mode comes next. The others lie in turn far out, in all directions, and where
    the prior is; each is the highest in log p of eight.
    """
    (d,), seen, far = modes[0].z.shape, -np.inf, False
    for _ in range(n):
        top = max(modes, key=lambda mode: np.nan_to_num(mode.value, nan=-np.inf))
        if top.value > seen + SAME and not top.trouble and np.abs(top.z).max() > NEAR:
            seen = top.value
            yield -top.z
            continue
        wide = SCALES[-1] * rng.standard_normal((SHORT, d))
        z, far = wide if far else _of_prior(density.model, rng), not far
        yield z[np.argmax(np.nan_to_num(density.value(z), nan=-np.inf))]


def _of_prior(model, rng):
    """Points (8, d) drawn from the prior, as far as many of several widths know it, or from these.

    That takes no data. Where the prior is flat the points are taken as they are.
    """
    z = rng.standard_normal((int(np.clip(2**20 // model.dim, 2 * SHORT, PLACES)), model.dim))
    z *= rng.choice(SCALES, len(z))[:, None]
    with np.errstate(all="ignore"):
        log = np.nan_to_num(model.log_prior(z), nan=-np.inf, posinf=-np.inf)
    if np.ptp(log) > 0:
        law = -((z**2).sum(1)[:, None]) / SCALES**2 / 2 - model.dim * np.log(SCALES)
        log = log - np.logaddexp.reduce(law, 1)
    return z[np.argsort(-log - rng.gumbel(size=len(z)))[:SHORT]]


def _apart(density, modes):
    """The modes without those that an earlier one is, found once more."""
    found: list[Mode] = []
    for mode in modes:
        alike = [one for one in found if abs(mode.value - one.value) < SAME]
        if not any(_dip(density, mode, one) < SAME for one in alike):
            found.append(mode)
    return found


def _dip(density, one, other):
    """By how much log p falls below the lower of two modes on the line between them."""
    share = np.linspace(0, 1, 9)[1:-1, None]
    between = density.value(share * one.z + (1 - share) * other.z)
    return min(one.value, other.value) - np.nan_to_num(between, nan=-np.inf).min()


def _rivals(density, modes, settings):
    """Two lines on modes with about as much of the posterior, if log p dips between them."""
    top = max((mode.value for mode in modes), default=0.0)
    found: list[Mode] = []
    for mode in sorted(modes, key=lambda mode: -mode.value):
        high = mode.value > top - settings.equal - len(mode.z)
        if high and all(_dip(density, mode, other) > settings.dip for other in found):
            found.append(mode)
    mass = [_mass(density, mode) for mode in found] if len(found) > 1 else []
    alike = sum(x > max(mass) - settings.equal for x in mass)
    if alike < 2:
        return ""
    return (
        f"{alike} modes of about equal weight were found, and q has one of them: every mean and sd "
        "and the evidence, those of expect() too, are of that mode alone\nWhere labels can switch "
        "order them, cv.ordered, where a sign can turn make it positive; else fit each, start=, "
        "and compare"
    )


def _mass(density, mode):
    """Laplace's log of how much of the posterior is about a mode, but for a constant."""
    if len(mode.z) > AXES:
        return mode.value
    P = _curvature(density, mode.z, 1e-5 * (1 + np.abs(mode.z)))
    sign, log = np.linalg.slogdet((P + P.T) / 2)
    return mode.value - (log / 2 if sign > 0 and np.isfinite(log) else 0.0)


def laplace(model: Model) -> Start:
    """The mode and its curvature: the Laplace approximation."""
    mode, I = searched(Density(model), np.zeros(model.dim)), np.eye(model.dim)
    P = -hess_times(model.log_joint, np.broadcast_to(mode.z, I.shape), I)
    return Start(mode.z, _factor(np.linalg.inv(P)), "the mode and its curvature", mode.trouble)


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
