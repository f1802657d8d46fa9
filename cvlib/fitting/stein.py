"""Answers with error bars: E_p f from weighted draws and variates whose mean is known.

With the score s = grad log p, e = L^-1 (z - m) and U = L^T s, the variates U_i and
e_i U_j + e_j U_i + 2 [i = j] have mean zero under p (Stein's identity). The answer is the intercept
of weighted least squares of f on them. The jackknife, every draw left out once, removes its bias of
order 1 / n and gives its error, in which that bias counts as well. Draws of a chain, and points of
one scrambling, are left out in blocks. The error from few blocks is widened by the quantiles of
Student's t: 1.96 errors to both sides are meant to hold 95 %.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from reprlib import repr as shortened
from typing import Any, NamedTuple, Self

import numpy as np
import scipy

from ..arguments import numbers, unmasked, whole
from .looks import HEAVY, WIDE, k_hat, smoothed, worth
from .table import Answer

LEVERAGE = 0.95  # no draw may decide more of its own fitted value
MANY = 200  # variates, of which no more are tried unless their order is asked for
FOLDS = 10  # parts of the draws, each left out once to choose the order
FEW = 100  # independent draws below which an error says little
BEHIND = 10  # so many draws must differ from the rest: else the error itself is not known
MET = 0.4  # share that weights keep, below which a tail was hardly met
STACK = "stack several, np.stack([p.mu, p.sigma], -1)"
WRITE = "write a function, lambda p: p.sigma, or give its values"
BIG = 3.0  # times the mean weight: no tail of the weights matters where none is larger
EXACT = 1e-5  # a logarithm that is so near to a line in z is one, to rounding


@dataclass(frozen=True, eq=False)
class Drawn:
    """Draws of p, weighed or of chains, and what f is there."""

    z: np.ndarray  # (n, d)
    score: np.ndarray  # (n, d) grad log p, zero where there is none
    w: np.ndarray  # (n,) weights, smoothed
    k_hat: float = np.nan  # of their tail; NaN where there are no weights, or too few
    F: Any = None  # (n, ...)
    chains: int = 0  # how many there are; none if the draws are independent
    block: int = 1  # so many neighbours are left out together
    time: float = 1.0  # autocorrelation time of the slowest coordinate of z
    exact: bool = False  # are these all values of z?
    says: tuple[str, ...] = ()  # what is to be said with every answer

    def drawn(self, F: np.ndarray) -> Self:
        """The same with values F (n, ...) of a function, checked; it may end where p does."""
        n = len(self.z)
        if F.shape[:1] != (n,):
            raise ValueError(
                f"f has values of shape {F.shape} at {n} draws: they must be ({n}, ...)"
            )
        F = np.where((self.w > 0).reshape(n, *[1] * (F.ndim - 1)), F, 0.0)
        for name, x in ("coordinates z", self.z), ("scores", self.score), ("values of f", F):
            if not np.isfinite(x).all():
                raise ValueError(f"the {name} are not finite at every draw: leave such draws out")
        return replace(self, F=F)


def drawn(
    f: Callable | np.ndarray, z: np.ndarray, score: np.ndarray, weights: np.ndarray | None = None
) -> Drawn:
    """Independent draws z (n, d) with their scores (n, d), checked, and f there: (n, ...)."""
    n, w, k = whole("the number of draws", len(z), 2), np.ones(len(z)), np.nan
    F = floats("what f gives", f(z), STACK) if callable(f) else floats("f", f, WRITE)
    if weights is not None:
        weights = floats("weights", weights)
        if weights.shape != (n,) or not (np.isfinite(weights) & (weights >= 0)).all():
            raise ValueError(f"weights must be {n} numbers, none negative, none NaN or infinite")
        if not weights.any():
            raise ValueError("all weights are zero: no draw stands for p")
        with np.errstate(divide="ignore"):
            w, k = smoothed(np.log(weights))
    return Drawn(z, score, w, k).drawn(F)


def floats(what: str, given: Any, right: str = "give floats") -> np.ndarray:
    """What a reader gives, as an array of floats."""
    given = unmasked(what, given)
    with suppress(TypeError, ValueError):
        array = np.asarray(given)
        if array.dtype.kind in "biufO":  # neither text nor dates nor complex numbers
            return array.astype(float, copy=False)
    raise TypeError(f"{what}: {shortened(given)} is no array of numbers; {right}")


def expect(at: Drawn, order: int | None = None) -> Answer:
    """E_p f. Variates of this order, or of the one that foretells best what it has not seen."""
    return answer(at.F, at, order)[0]


def quantile(at: Drawn, order: int | None = None, *, probs: np.ndarray) -> Answer:
    """Quantiles of f under p, (len(probs), ...), in (0, 1)."""
    shape = (len(probs), *at.F.shape[1:])
    below, to_quantiles = _tails(at.F.reshape(len(at.F), -1), at.w, probs)
    found, share = answer(below.reshape(-1, *shape), at, order)
    value, se = (x.reshape(shape) for x in to_quantiles(share, found.se))
    return replace(found, estimate=value, se=se)


def described(
    at: Drawn, order: int | None = None, *, probs: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, sd and quantiles of F (n, k) under p with their errors, (2 + len(probs), k) each.

    And k-hat of what the mean and the variance are means of, the larger of the two, (k,).
    """
    F, about = at.F, at.w @ at.F / at.w.sum()
    below, to_quantiles = _tails(F, at.w, probs)
    found, share = answer(np.hstack([np.stack([F, (F - about) ** 2], 1), below]), at, order)
    (mean, square, *_), (se, of_square, *rest) = found.estimate, found.se
    sd = np.sqrt(np.maximum(square - (mean - about) ** 2, 0))
    value, error = to_quantiles(share, np.array(rest))
    errors = [se, of_square / (2 * np.maximum(sd, 1e-300)), *error]
    return np.array([mean, sd, *value]), np.array(errors), np.fmax(*found.k_f[:2])


def _tails(F, w, probs):
    """Whether F (n, k) is below its quantiles, (n, m, k), and what makes quantiles of shares.

    The distribution function of f is a mean, and meets the variates like any other. The error of a
    quantile is half the way between those one standard error of the mean above and below.
    """
    wanted = np.repeat(probs[:, None], F.shape[1], 1)  # (m, k)
    first = inverse(F, w / w.sum(), wanted)  # by the weights alone

    def to_quantiles(share, se):
        se = se.reshape(first.shape)
        value, high, low = (inverse(F, share, wanted + sign * se) for sign in (0, 1, -1))
        return value, (high - low) / 2

    return (F[:, None] <= first) * 1.0, to_quantiles


def levels(probs: Any) -> np.ndarray:
    """Probabilities, (m,), one at least."""
    found = np.atleast_1d(numbers("probs", probs, 0, 1, True))
    if found.ndim > 1 or not found.size:
        raise ValueError(f"probs={probs!r}: give one probability or a list, such as [0.05, 0.95]")
    return found


def inverse(F: np.ndarray, share: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Quantiles p (m, k) of F (n, k), where each draw has this share of the whole, (m, k)."""
    rank = np.argsort(F, 0)
    middle = np.cumsum(share[rank], 0) - share[rank] / 2
    each = zip(p.T, np.maximum.accumulate(middle, 0).T, np.take_along_axis(F, rank, 0).T)
    return np.stack([np.interp(*one) for one in each], 1)


def standardised(z: np.ndarray, score: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """e = L^-1 (z - m) and U = L^T score, (n, d) each; z has mean m and covariance L L^T.

    Fewer columns where draws stand still along some direction: nothing is known of it.
    """
    m = w @ z / w.sum()
    root = np.sqrt(w / w.sum())[:, None]
    _, S, Vt = np.linalg.svd(root * (z - m), full_matrices=False)
    Vt, S = Vt[moves := S > 1e-10 * S[0]], S[moves]
    return (z - m) @ Vt.T / S, score @ Vt.T * S


def stein(e: np.ndarray, U: np.ndarray, order: int) -> np.ndarray:
    """The variates that have mean zero under p, (n, 0), (n, d) or (n, d (d + 3) / 2).

    Under N(0, I), where U = -e, they are Hermite's polynomials: -e_i and -2 (e_i e_j - [i = j]).
    """
    i, j = np.triu_indices(e.shape[1] if order > 1 else 0)
    both = e[:, i] * U[:, j] + e[:, j] * U[:, i] + 2.0 * (i == j)
    return np.column_stack([U if order else U[:, :0], both])


def tilted(at: Drawn) -> np.ndarray:
    """f (s_i + b_i) and f (x_i (s_i + b_i) + 1) for every f of `at` that is exp(a + b.x).

    x (n, d) is z in units of its sd, and s its score: s + b is that of the law f p, so all these
    have mean zero under p. No polynomial follows such an f, a scale whose logarithm is in z, say.
    There are none if they would be too many, and for draws with weights.
    """
    (n, d), F = at.z.shape, at.F.reshape(len(at.F), -1)
    if np.ptp(at.w):
        return np.empty((n, 0))
    sd = at.z.std(0)
    x, s = (at.z - at.z.mean(0)) / sd, at.score * sd
    log = np.log(F[:, (F > 0).all(0)])
    log -= log.mean(0)
    b, _, rank, _ = np.linalg.lstsq(x, log)
    moves, off = np.ptp(log, 0), np.ptp(log - x @ b, 0)
    own = np.flatnonzero((moves > EXACT) & (off < EXACT))
    if rank < d or 2 * d * len(own) >= min(n, MANY):
        own = own[:0]
    f, score = np.exp(log[:, own, None]), s[:, None] + b.T[own]  # (n, m, 1) and (n, m, d)
    return np.concatenate([f * score, f * (x[:, None] * score + 1)], 1).reshape(n, 2 * d * len(own))


# Weighted least squares, every draw left out once ------------------------------------------------


class Intercept(NamedTuple):
    """Intercepts (k,), freed of their bias of order 1 / n, their errors, the largest leverage."""

    value: np.ndarray
    se: np.ndarray
    leverage: float
    share: np.ndarray  # (n,) value = share @ Y
    moved: np.ndarray  # (n, k) what each draw has of that, of a chain each block
    missed: np.ndarray  # (k,) squares of what folds do not foretell


def intercept(
    Y: np.ndarray, C: np.ndarray, w: np.ndarray, block: int = 1, chains: int = 0
) -> Intercept:
    """The intercepts of Y (n, k) on [1, C], C (n, p), by least squares with weights w (n,).

    With A = sqrt(w) [1, C] = Q S V^T the intercept is b = v.y, y = sqrt(w) Y. Without group g it is
    b - D_g, D_g = v_g (I - Q_g Q_g^T)^-1 r_g, where r are residuals and Q_g Q_g^T the leverage.
    Its variance by the jackknife is that of the D_g. By splitting it is that of Y less the variates
    with the slopes of the other groups: larger where few draws decide the slopes. The squared error
    is the larger of the two, and the square of the bias that was removed: more of it may be left.
    """
    n, root = len(Y), np.sqrt(w / w.sum())[:, None]
    A = root * np.column_stack([np.ones(n), C])
    A /= np.maximum(np.sqrt((A**2).sum(0)), 1e-300)  # the first column has length one
    Q, S, Vt = np.linalg.svd(A, full_matrices=False)
    kept = S > 1e-11 * S[0]
    Q, v = Q[:, kept], Q[:, kept] @ (Vt[kept, 0] / S[kept])
    y = root * Y
    r = y - Q @ (Q.T @ y)
    groups = lambda x: x.reshape(n // block, block, -1)
    H = groups(Q) @ groups(Q).mT if block < Q.shape[1] else groups(Q).mT @ groups(Q)
    leverage = float(np.linalg.eigvalsh(H)[:, -1].max())
    if leverage > 1 - 1e-9:
        nothing = np.full(Y.shape[1], np.inf)
        return Intercept(v @ y, nothing, 1.0, root[:, 0] * v, 0 * y, nothing)
    T = _left_out(groups(Q), H, np.concatenate([groups(v), groups(r)], 2))
    u, far = T[..., 0].reshape(n), T[..., 1:]  # far (n / block, block, k): y as the others see it
    each = groups(v) * far
    D = each.sum(1)  # (n / block, k)
    weight = groups(root**2).sum(1)  # (n / block, 1)
    split = (groups(root) * far).sum(1) - weight * D
    less, bias = 1 - block / n, (1 - block / n) * D.sum(0)
    variances = [
        _variance(x, block, chains) for x in (D - D.mean(0), split - weight * split.sum(0))
    ]
    wide = scipy.special.stdtrit(n / block - 1, 0.975) / 1.96 if block > 1 else 1.0
    se = wide * np.sqrt(less * np.max(variances, 0) + bias**2)
    share = root[:, 0] * (v + less * (u - Q @ (Q.T @ u)))
    moved = D if chains else each.reshape(n, -1)
    return Intercept(v @ y + bias, se, leverage, share, moved, _missed(Q, y))


def _left_out(Q, H, x):
    """(I - Q Q^T)^-1 x for groups of Q (groups, block, p) and x (groups, block, k).

    H is Q Q^T, or Q^T Q where that is smaller.
    """
    rest = np.eye(H.shape[-1]) - H
    if H.shape[-1] == Q.shape[1]:
        return np.linalg.solve(rest, x)
    return x + Q @ np.linalg.solve(rest, Q.mT @ x)


def _variance(x, block, chains):
    """Of the sum of x (n / block, k), which has mean zero, (k,): blocks of a chain are alike."""
    time = np.maximum(correlation(x, chains), 0.1 if block == 1 else 1) if chains else 1.0
    return (x**2).sum(0) * time


def _missed(Q, y):
    """Squares of y (n, k) about what the other folds foretell, (k,); Q (n, p) is orthonormal."""
    parts = np.array_split(np.arange(len(y)), FOLDS)
    b, eye, total = Q.T @ y, np.eye(Q.shape[1]), 0.0
    for i in parts:
        left = np.linalg.solve((1 + 1e-12) * eye - Q[i].T @ Q[i], b - Q[i].T @ y[i])
        total = total + ((y[i] - Q[i] @ left) ** 2).sum(0)
    return total


def correlation(x: np.ndarray, chains: int) -> np.ndarray:
    """Autocorrelation times of x (n, k), which has mean zero, over all chains, (k,).

    Autocorrelations are summed in pairs as long as these are positive, none larger than the one
    before (Geyer's initial monotone sequence).
    """
    n = len(x) // chains
    waves = np.fft.rfft(x.reshape(chains, n, -1), 2 * n, axis=1)
    products = np.fft.irfft(np.abs(waves) ** 2, axis=1)[:, : n + n % 2].sum(0)  # that of n is zero
    rho = products / np.maximum(products[0], 1e-300)
    pairs = np.minimum.accumulate(rho[::2] + rho[1::2], 0)
    return 2 * np.where(pairs > 0, pairs, 0).sum(0) - 1


@np.errstate(divide="ignore", over="ignore", invalid="ignore")
def answer(
    Y: np.ndarray, at: Drawn, order: int | None = None, variates: Callable | None = None,
    names: list[str] | None = None,
) -> tuple[Answer, np.ndarray]:  # fmt: skip
    """The `Answer` for Y (n, ...), of the order that folds prefer, and the share of each draw.

    The variates, of an order, are Stein's in the draws' own coordinates, if no others are given;
    with those that are tilted by f and without. Warnings call the columns of Y by their numbers, if
    they have no names.
    """
    if order not in (None, 0, 1, 2):
        raise ValueError(f"order={order!r}: variates have order 0, 1 or 2, or None to choose")
    (n, d), w, shape = at.z.shape, at.w / at.w.sum(), Y.shape[1:]
    to = lambda x: np.reshape(x, shape)[()]
    Y = Y.reshape(n, -1)
    mean = w @ Y
    if at.exact:
        return Answer(to(mean), to(0 * mean), at.k_hat, 0, n, at.says, to(np.nan * mean)), w
    orders = (2, 1, 0) if order is None else (order,)
    many = 0, d, d * (d + 3) // 2  # variates of each order; their mean leverage is many / n
    most = LEVERAGE * n if len(orders) == 1 else min(LEVERAGE * n, MANY)
    fits = [k for k in orders if many[k] < most] or orders[-1:]
    more = np.empty((n, 0))
    if variates is None:
        check_moves(at, order)
        own = standardised(at.z, at.score, at.w) if any(fits) else (at.z, at.score)
        variates = partial(stein, *own)
        more = tilted(at) if any(fits) else more
    C = [(k, variates(k)) for k in fits]
    if (m := more.shape[1]) > 0:
        C = [(k, np.hstack([x, more])) for k, x in C if k and many[k] + m < most] + C
    found = [(k, intercept(Y, x, at.w, at.block, at.chains)) for k, x in C]
    plain = dict(found).get(0) or intercept(Y, np.empty((n, 0)), at.w, at.block, at.chains)
    sound = [x for x in found if x[1].leverage <= LEVERAGE] or found[-1:]
    order, best = min(sound, key=lambda x: np.log(x[1].missed + 1e-300).sum())
    away = np.sqrt(w @ (Y - mean) ** 2)  # standard deviations under p
    (seen, apart), left = behind(Y, at.w), float(worth(w))
    before, after = ((away / x.se) ** 2 for x in (plain, best))
    k_f = np.array([k_hat(np.log(np.abs(x))) for x in (best.moved - best.moved.mean(0)).T])
    for j in np.flatnonzero(~(k_f <= WIDE)):
        k_f[j] = min(k_f[j], k_hat(np.log(np.abs(apart[:, j]))))
    k_f = np.where(best.se < 1e-9 * (away + np.abs(best.value)), np.nan, k_f)
    unseen = ((Y == 0) | (Y == 1)).all(0) & (np.ptp(Y, 0) == 0)
    se = np.where(unseen, 1.5 / left, best.se)
    seen = seen * (np.minimum(1, before / n) if at.chains else 1)
    says = *at.says, *_doubts(at, left, best), *_rare(seen, k_f, unseen, left, names)
    value, se, k_f, before, after = map(to, (best.value, se, k_f, before, after))
    return Answer(value, se, at.k_hat, order, n, says, k_f, before, after), best.share


def check_moves(at: Drawn, order: int | None) -> None:
    """Every coordinate of z moves, where variates are to be had; of a chain one at least."""
    still = np.ptp(at.z[at.w > 0], 0) == 0
    if still.any() if order != 0 else at.chains and still.all():
        raise ValueError(
            f"coordinate {still.argmax()} of z is the same at all {(at.w > 0).sum()} draws that "
            "weigh anything, and they do not tell its law: run the chain until it moves, or take "
            "draws nearer to p"
        )


def behind(Y: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many of the values Y (n, k) with weights w (n,) decide their means, beside the median.

    The effective number of those that are not the median's, (k,), and how far off they are times
    their weights, (n, k).
    """
    rank = np.argsort(Y, 0)
    half = (np.cumsum(w[rank], 0) >= 0.5 * w.sum()).argmax(0)
    median = np.take_along_axis(Y, np.take_along_axis(rank, half[None], 0), 0)
    away = w[:, None] * np.abs(Y - median)
    return worth(away), away


def _doubts(at, left, found):
    """Sentences that begin with what is wrong and end with what to do."""
    n, w = len(at.w), at.w if np.ptp(at.w) else at.F  # the evidence is a mean of weights
    k = at.k_hat if np.isnan(at.k_hat) or w.max() > BIG * w.mean() else -np.inf
    if k > HEAVY:
        yield (
            f"k-hat is {k:.2f}: the tail of the weights is too heavy to believe the answer or its "
            "error. Write the model in other coordinates, or run MCMC: cv.expect takes its draws"
        )
    elif k > WIDE:
        yield (
            f"k-hat is {k:.2f}: the weights have hardly a variance, and the error is too small "
            "rather than too large. Compare with four times the draws"
        )
    elif left < MET * n and not np.isnan(k):
        yield (
            f"the weights keep {left / n:.0%} of {n} draws, though k-hat is only {k:.2f}: there is "
            "a tail that was hardly met, and the error is too small. Let q bend, or compare with "
            "ten times the draws"
        )
    if n < FEW:
        yield f"{n} draws are few for an error bar: take {FEW} at least"
    elif (worth := left / at.time) < FEW:
        yield (
            f"{n} draws are worth {worth:.0f} independent ones, too few for an error bar: take "
            f"{np.ceil(FEW / worth):.0f} times as many"
        )
    if found.leverage > LEVERAGE:
        yield (
            f"one draw decides {found.leverage:.0%} of its own fitted value: the error is not to "
            "be believed. Take more draws, or a lower order"
        )


def _rare(seen, k_f, unseen, left, names):
    """The same where f is what is at fault, (k,) each."""

    def which(bad):
        if names is None:
            return "" if len(bad) == 1 else f" (number {bad.argmax()} is one)"
        called = [name for name, is_bad in zip(names, bad) if is_bad]
        return f" ({', '.join(called[:3])}{', ...' if len(called) > 3 else ''})"

    if unseen.any():
        yield (
            f"f is the same at every draw{which(unseen)}: an event that was not seen has a "
            f"probability below {3 / left:.2g} with 95 %, and that is all these draws say"
        )
    if (few := (seen < BEHIND) & (seen > 0)).any():
        yield (
            f"{seen[few].min():.1f} draws differ from the rest{which(few)}: too few for an error "
            "bar. Take more draws"
        )
    if (bad := k_f > WIDE).any():
        yield (
            f"k-hat of weight times f is {np.nanmax(k_f):.2f}{which(bad)}: few draws decide the "
            "answer, and the error is too small. Compare with four times the draws"
        )
