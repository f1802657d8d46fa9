"""The tail of importance weights: k-hat. NumPy alone."""

import numpy as np


def k_hat(log_weights: np.ndarray) -> float:
    """The tail of importance weights: k of the Pareto law of the largest ones (Vehtari et al.).

    Moments of order below 1 / k exist. As in PSIS the largest min(n / 5, 3 sqrt(n)) weights are
    looked at, and ten observations of k = 1/2 are added.
    """
    n = len(log_weights)
    m = int(min(n / 5, 3 * np.sqrt(n)))
    if m < 5:
        return np.nan
    top = np.exp(np.sort(log_weights)[-m - 1 :] - log_weights.max())
    excess = top[1:] - top[0]
    if not excess[-1] > 1e-6:
        return -np.inf  # all weights are alike
    return (m * pareto_k(excess) + 5) / (m + 10)


def pareto_k(x: np.ndarray) -> float:
    """k of the generalised Pareto law of x > 0, sorted: survival (1 + k x / s)^(-1/k).

    The posterior mean of b = -k / s on a grid (Zhang and Stephens 2009); for given b the best k is
    the mean of log(1 - b x), and the likelihood is n (log(-b / k) - k - 1).
    """
    n, m = len(x), 30 + int(np.sqrt(len(x)))
    quarter = x[int(n / 4 + 0.5) - 1]
    b = 1 / x[-1] + (1 - np.sqrt(m / (np.arange(1, m + 1) - 0.5))) / (3 * quarter)
    k = np.log1p(-b[:, None] * x).mean(1)
    log_lik = n * (np.log(-b / k) - k - 1)
    weight = np.exp(log_lik - log_lik.max())
    mean = (b * weight).sum() / weight.sum()
    return float(np.log1p(-mean * x).mean())
