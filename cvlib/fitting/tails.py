"""Importance weights: what they keep, their tail, k-hat, and the largest smoothed. NumPy alone."""

from typing import NamedTuple

import numpy as np

HEAVY, WIDE = 0.7, 0.5  # k-hat from which an answer, and from which its error, is not believed


class Weights(NamedTuple):
    """Draws z (n, d) of q_w and the logarithms of their importance weights p(x, z) / q(z), (n,).

    Minus infinity is a weight of zero: the posterior ends there. NaN and infinity are no weights.
    """

    z: np.ndarray
    log: np.ndarray

    @property
    def fine(self) -> np.ndarray:
        """Which of them are numbers, (n,)."""
        return np.isfinite(self.log)

    @property
    def outside(self) -> np.ndarray:
        """Which of the draws lie where the posterior has ended, (n,)."""
        return np.isneginf(self.log)

    @property
    def elbo(self) -> tuple[float, float]:
        """Mean of those that are numbers, and its standard error; NaN if none is.

        Where the posterior ends it is the ELBO of q cut off at that edge, log(share inside) more:
        the ELBO of q itself is minus infinity.
        """
        log = self.log[self.fine]
        if not len(log):
            return np.nan, np.nan
        inside = len(log) / (len(log) + self.outside.sum())
        variance = log.var() + 1 - inside  # of one of them, and of the share's logarithm
        return log.mean() + np.log(inside), np.sqrt(variance / len(log))

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

    @property
    def k_hat(self) -> float:
        """The tail of the weights."""
        return k_hat(self.log[self.fine | self.outside])

    @property
    def kept(self) -> str:
        """The share in words."""
        return f"importance weights keep {self.effective:.0%} of {len(self.log)} draws"


def k_hat(log_weights: np.ndarray) -> float:
    """The tail of importance weights: k of the Pareto law of the largest ones (Vehtari et al.)."""
    return smoothed(log_weights)[1]


def smoothed(log_weights: np.ndarray) -> tuple[np.ndarray, float]:
    """Weights (n,), the largest of them quantiles of their Pareto law (PSIS), and k-hat.

    In units of the largest, which none exceeds. A tail with k-hat below 1/3 stays as it is.
    """
    n = len(log_weights)
    most = log_weights.max(initial=-np.inf)
    w = np.exp(log_weights - most) if np.isfinite(most) else np.zeros(n)
    m = int(min(n / 5, 3 * np.sqrt(n)))
    if m < 5 or not w.any():
        return w, np.nan
    rank = np.argsort(w)[-m - 1 :]
    least = w[rank[0]]
    if not 1 - least > 1e-6:
        return w, -np.inf  # all weights are alike
    rank = rank[w[rank] > least]  # none that is tied with the least
    m = len(rank)
    b, k = pareto(w[rank] - least)
    k_hat = (m * k + 5) / (m + 10)
    if k_hat >= 1 / 3:
        tail = (1 - (np.arange(m) + 0.5) / m) ** -k_hat  # survival (1 + k x / s)^(-1/k), inverted
        w[rank] = np.minimum(least - k / b * (tail - 1) / k_hat, 1.0)
    return w, k_hat


def pareto(x: np.ndarray) -> tuple[float, float]:
    """b = -k / s and k of the Pareto law of x > 0, sorted: survival (1 + k x / s)^(-1/k).

    The posterior mean of b on a grid (Zhang and Stephens 2009); for given b the best k is the mean
    of log(1 - b x), and the likelihood is n (log(-b / k) - k - 1).
    """
    n, m = len(x), 30 + int(np.sqrt(len(x)))
    quarter = x[int(n / 4 + 0.5) - 1]
    b = 1 / x[-1] + (1 - np.sqrt(m / (np.arange(1, m + 1) - 0.5))) / (3 * quarter)
    k = np.log1p(-b[:, None] * x).mean(1)
    log_lik = n * (np.log(-b / k) - k - 1)
    weight = np.exp(log_lik - log_lik.max())
    mean = (b * weight).sum() / weight.sum()
    return float(mean), float(np.log1p(-mean * x).mean())
