"""Answers with error bars: E_p f from weighted draws and variates whose mean is known. NumPy alone.

With the score s = grad log p, e = L^-1 (z - m) and U = L^T s, the variates U_i and
e_i U_j + e_j U_i + 2 [i = j] have mean zero under p (Stein's identity). The answer is the intercept
of weighted least squares of f on them. The jackknife, every draw left out once, removes its bias of
order 1 / n and gives its error.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..arguments import unmasked, whole
from .tails import HEAVY, WIDE, smoothed

LEVERAGE = 0.8, 0.8, 0.4  # by order: no draw may decide more of its own fitted value
FEW = 100  # draws below which an error says little


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """An estimate with its standard error, arrays of one shape, and what to think of them.

    `order` of the variates, `n` draws, `k_hat` of the weights' tail (NaN without weights), and
    `warnings`: sentences that say what is wrong and what to do.
    """

    estimate: np.ndarray
    se: np.ndarray
    k_hat: float
    order: int
    n: int
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        pairs = [_shown(*x) for x in zip(np.ravel(self.estimate), np.ravel(self.se))]
        tail = "" if np.isnan(self.k_hat) else f", k-hat {self.k_hat:.2f}"
        head = f"{pairs[0]}  " if np.ndim(self.estimate) == 0 else ""
        lines = [f"{head}({self.n} draws, variates of order {self.order}{tail})"]
        if not head:
            names = (f"  {list(k)} " for k in np.ndindex(np.shape(self.estimate)))
            lines += [a + b for a, b in zip(names, pairs[:20])] + ["  ..."] * (len(pairs) > 20)
        return "\n".join([*lines, *(f"! {w}" for w in self.warnings)])


def _shown(x, se):
    """x ± se, with two digits of the error."""
    if not 1e-12 < se < np.inf:
        return f"{x:.6g} ± {se:.1g}"
    digits = max(0, 1 - int(np.floor(np.log10(se))))
    return f"{x:.{digits}f} ± {se:.{digits}f}"


def expect(
    f: Callable | np.ndarray, z: np.ndarray, score: np.ndarray, weights: np.ndarray | None = None,
    *, order: int | None = None, block: int = 1,
) -> Answer:  # fmt: skip
    """E_p f(z) as an `Answer`, from draws z (n, d) and scores grad log p(z) (n, d) there.

    f takes z to (n, ...), or is that array. weights (n,): p / q up to a factor, for draws of
    another law q. order: 0, 1 or 2; if not given, the highest at which no draw decides too much.
    block: so many neighbours of a chain are left out together, a few autocorrelation times.
    """
    z, score = (np.asarray(unmasked("draws or scores", x), float) for x in (z, score))
    F = _values(f(z) if callable(f) else f)
    n = len(z)
    if z.ndim != 2 or score.shape != z.shape or F.shape[:1] != (n,):
        raise ValueError(
            f"draws z (n, d), scores (n, d) and values of f (n, ...) must have one n; got "
            f"{z.shape}, {score.shape} and {F.shape}"
        )
    whole("the number of draws", n, 2)
    whole("block", block)
    if order not in (None, 0, 1, 2):
        raise ValueError(f"order={order!r}: variates have order 0, 1 or 2, or None to choose")
    w, k = np.ones(n), np.nan
    if weights is not None:
        weights = np.asarray(unmasked("weights", weights), float)
        if weights.shape != (n,) or not (np.isfinite(weights) & (weights >= 0)).all():
            raise ValueError(f"weights must be {n} numbers, none negative, none NaN or infinite")
        if not weights.any():
            raise ValueError("all weights are zero: no draw stands for p")
        with np.errstate(divide="ignore"):
            w, k = smoothed(np.log(weights))
        F = np.where((weights > 0).reshape(n, *[1] * (F.ndim - 1)), F, 0.0)  # f may end with p
    for name, x in ("scores", score), ("values of f", F):
        if not np.isfinite(x).all():
            raise ValueError(f"the {name} are not finite at every draw: leave such draws out")
    e, U = standardised(z, score, w)
    made, orders = lambda order: stein(e, U, order), (2, 1, 0) if order is None else (order,)
    return answer(F.reshape(n, -1), made, w, k, z.shape[1], orders, block, F.shape[1:])


def _values(found):
    """What f gave, as an array of floats."""
    try:
        return np.asarray(unmasked("what f gives", found), float)
    except TypeError as error:
        raise TypeError(
            f"f gave a {type(found).__name__}: it must give numbers, an array (n, ...). Stack "
            "several, np.stack([p.mu, p.sigma], -1)"
        ) from error


def standardised(z: np.ndarray, score: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """e = L^-1 (z - m) and U = L^T score, (n, d) each; z has mean m and covariance L L^T."""
    m = w @ z / w.sum()
    root = np.sqrt(w / w.sum())[:, None]
    _, S, Vt = np.linalg.svd(root * (z - m), full_matrices=False)
    S = np.maximum(S, 1e-10 * S[0])
    return (z - m) @ Vt.T / S, score @ Vt.T * S


def stein(e: np.ndarray, U: np.ndarray, order: int) -> np.ndarray:
    """The variates that have mean zero under p, (n, 0), (n, d) or (n, d (d + 3) / 2)."""
    i, j = np.triu_indices(e.shape[1])
    both = lambda: e[:, i] * U[:, j] + e[:, j] * U[:, i] + 2.0 * (i == j)
    return np.column_stack([U[:, :0], *([U] if order else []), *([both()] if order > 1 else [])])


def hermite(e: np.ndarray, order: int) -> np.ndarray:
    """e_i and e_i e_j - [i = j], of mean zero under N(0, I), shaped as those of `stein`."""
    i, j = np.triu_indices(e.shape[1])
    both = lambda: e[:, i] * e[:, j] - 1.0 * (i == j)
    return np.column_stack([e[:, :0], *([e] if order else []), *([both()] if order > 1 else [])])


# Weighted least squares, every draw left out once ------------------------------------------------


class Intercept(NamedTuple):
    """Intercepts (k,), freed of their bias of order 1 / n, their errors, the largest leverage."""

    value: np.ndarray
    se: np.ndarray
    leverage: float


def intercept(Y: np.ndarray, C: np.ndarray, w: np.ndarray, block: int = 1) -> Intercept:
    """The intercepts of Y (n, k) on [1, C], C (n, p), by least squares with weights w (n,).

    With A = sqrt(w) [1, C] = Q S V^T the intercept is b = v.y, y = sqrt(w) Y. Without group g it is
    b - D_g, D_g = v_g (I - Q_g Q_g^T)^-1 r_g, where r are residuals and Q_g Q_g^T the leverage.
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
    H = groups(Q) @ groups(Q).mT
    leverage = float(np.linalg.eigvalsh(H)[:, -1].max())
    if leverage > 1 - 1e-9:
        return Intercept(v @ y, np.full(Y.shape[1], np.inf), 1.0)
    D = (groups(v) * np.linalg.solve(np.eye(block) - H, groups(r))).sum(1)  # (n / block, k)
    share = 1 - block / n
    se = np.sqrt(share * ((D - D.mean(0)) ** 2).sum(0))
    return Intercept(v @ y + share * D.sum(0), se, leverage)


def answer(
    Y: np.ndarray, variates: Callable, w: np.ndarray, k: float, d: int, orders: tuple[int, ...],
    block: int = 1, shape: tuple = (),
) -> Answer:  # fmt: skip
    """The `Answer` for Y (n, k), at the first of the orders where no leverage is too large."""
    first = len(Y) % block  # draws that fill no block
    Y, w, n = Y[first:], w[first:], len(Y) - first
    if n < 2 * block:
        raise ValueError(f"{n} draws in blocks of {block}: an error needs two blocks at least")
    for order in orders:
        last = order == orders[-1]
        if last or _many(d, order) < LEVERAGE[order] * n:  # as the mean leverage must
            found = intercept(Y, variates(order)[first:], w, block)
            if last or found.leverage <= LEVERAGE[order]:
                break
    says = tuple(_doubts(k, n, order, orders[0], _many(d, orders[0]), found))
    value, se = found.value.reshape(shape)[()], found.se.reshape(shape)[()]
    return Answer(value, se, k, order, n, says)


def _many(d, order):
    """How many variates of this order there are."""
    return (0, d, d * (d + 3) // 2)[order]


def _doubts(k, n, order, highest, p, found):
    """Sentences that begin with what is wrong and end with what to do."""
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
    if n < FEW:
        yield f"{n} draws are few for an error bar: take {FEW} at least"
    if found.leverage > LEVERAGE[order]:
        yield (
            f"one draw decides {found.leverage:.0%} of its own fitted value: the error is not to "
            "be believed. Take more draws, or a lower order"
        )
    elif order < highest:
        yield (
            f"variates of order {order}, for at order {highest} ({p} variates) single draws would "
            "decide too much: give more draws for a smaller error"
        )
