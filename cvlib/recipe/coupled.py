"""Base samples that lean on each other, though each has the law of a single one."""

from functools import lru_cache

import numpy as np
import scipy  # scipy.stats is loaded at its first use

BITS = 52  # of a uniform number: with half of the last one added it is never 0 or 1


def check_noise(noise, q, M=None, eps=None):
    """How many samples lean on each other, or an error if there is no such draw of the family."""
    needs = {"pairs": "mirror", "sobol": "quantile"}.get(noise)
    if needs is None:
        if noise == "plain":
            return 1
        raise ValueError(f'noise={noise!r}: write "plain", "pairs" or "sobol"')
    if getattr(q, needs) is None:
        raise ValueError(
            f"noise={noise!r} needs {type(q).__name__}.{needs}, {q.optional[needs]}; the family "
            "does not say it"
        )
    if noise == "sobol":
        if eps is not None:
            raise ValueError('noise="sobol" draws eps itself: leave eps out, or noise')
        return M
    if M is not None and M % 2:
        raise ValueError(f'noise="pairs" needs an even number of samples, not M={M}')
    return 2


def sobol(rng, runs, M, d):
    """M points of Sobol's sequence in the unit cube for every run, scrambled, (*runs, M, d).

    Digits are scrambled by a random lower triangular matrix and a random shift (Matousek 1998):
    then every point is uniform, so that means are unbiased, and the points stay even. Best is a
    power of two for M.
    """
    marks = _marks(M, d)  # (m, M, d)
    m, over_runs = len(marks), (1,) * len(runs)
    words = rng.integers(2**BITS, size=(m + 1, *runs, 1, d))
    c = np.arange(m).reshape(m, *over_runs, 1, 1)
    # column c of the matrix: zeros, a one in the diagonal, anything below it
    columns = (words[:m] >> (c + 1)) | (1 << (BITS - 1 - c))
    chosen = columns & marks.reshape(m, *over_runs, M, d)
    u = np.bitwise_xor.reduce(chosen, 0) ^ words[m]  # and the shift
    return (u + 0.5) / 2**BITS


@lru_cache(maxsize=16)
def _marks(M, d):
    """-1 (all ones) where digit c of coordinate j of point n is 1, else 0: (m, M, d), M <= 2^m."""
    most = scipy.stats.qmc.Sobol.MAXDIM
    if d > most:
        raise ValueError(f'noise="sobol" knows {most} dimensions, and the base sample has {d}')
    m = (M - 1).bit_length()
    points = scipy.stats.qmc.Sobol(d, scramble=False).random_base2(m)[:M] * 2**m
    digits = np.arange(m)[::-1, None, None]  # the first is the most significant
    return -(points.astype(np.int64) >> digits & 1)
