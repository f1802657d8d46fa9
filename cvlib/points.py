"""Base samples that are not independent: Sobol's sequence, and rotations, fresh or kept apart."""

from functools import lru_cache
from itertools import count
from pathlib import Path

import numpy as np
import scipy

from .arguments import whole

BITS = 52  # of a uniform number: with half of the last one added it is never 0 or 1


def sobol(rng: np.random.Generator, runs: tuple[int, ...], M: int, d: int) -> np.ndarray:
    """M points of Sobol's sequence in the unit cube for every run, scrambled, (*runs, M, d).

    Digits are scrambled by a random lower triangular matrix and a random shift (Matousek 1998).
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


def rotations(
    rng: np.random.Generator, runs: tuple[int, ...], M: int, d: int
) -> tuple[np.ndarray, np.ndarray]:
    """M base samples of N(0, I) with weights, (*runs, M, d) and (*runs, M), in rotations.

    A rotation (Genz and Monahan 1998, degree 3) is 0 and +-rho q_k, k = 1..d, with q_k orthonormal
    in a random direction and rho^2 of the law chi^2 with d + 2 degrees of freedom. Let F be any
    function. The density of chi_{d + 2} times d / rho^2 is that of chi_d, so d / rho^2 F(+-rho q_k)
    has the mean of F(e), e ~ N(0, I), and d / rho^2 has mean one:

        mean_k d / rho^2 (F(rho q_k) + F(-rho q_k)) / 2 + (1 - d / rho^2) F(0)

    is unbiased, and exact for every polynomial F of degree 3. As a mean over the 2 d + 1 samples it
    gives +-rho q_k the weight (2 d + 1) / (2 rho^2), the centre (2 d + 1) (1 - d / rho^2).
    """
    size = 2 * d + 1
    K = M // size
    Q = np.linalg.qr(rng.standard_normal((*runs, K, d, d)))[0]  # no signs: both are taken
    square = rng.chisquare(d + 2, (*runs, 1, K))
    arms = np.moveaxis(Q, -1, -3) * np.sqrt(square)[..., None]  # (*runs, d, K, d)
    e = np.concatenate([arms, -arms, np.zeros((*runs, 1, K, d))], -3)
    outer = np.broadcast_to(size / (2 * square), (*runs, 2 * d, K))
    weight = np.concatenate([outer, size * (1 - d / square)], -2)
    return e.reshape(*runs, M, d), weight.reshape(*runs, M)


def spheres(
    rng: np.random.Generator, d: int, radii: int = 1, turns: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """`on_spheres` with rotations that are drawn anew, `turns` for each radius."""
    radii, turns = whole("radii", radii), whole("turns", turns)
    return on_spheres(uniform(rng, radii * turns, d).mT, radii)


def on_spheres(Q: np.ndarray, radii: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Base points (2 n D + 1, d) of N(0, I) and weights: E[F(e)] in a sum, on rotations (n, D, d).

    A direction is a row of Q; with d < D columns it is a part of one in D dimensions, of which F
    ignores the others. The radii are fixed: Gauss's points s_j = rho_j^2 and weights p_j for the
    law of rho^2, chi^2 with D + 2 degrees of freedom, in place of a draw of it. The sum

        sum_j p_j D / s_j mean_k (F(rho_j q_jk) + F(-rho_j q_jk)) / 2 + (1 - sum_j p_j D / s_j) F(0)

    is exact for every polynomial F of degree 3, as that of `rotations`, and its mean over uniform
    rotations for every one of degree 4 radii + 1: on a sphere the mean of F is F(0) plus a
    polynomial in s of degree 2 radii without a constant, and D / s times it is one of degree
    2 radii - 1. One radius is sqrt(D + 2), two are those of s = D + 4 +- sqrt(2 D + 8). All weights
    are positive.
    """
    n, D, d = Q.shape
    k, a = np.arange(radii), D / 2  # Laguerre's recurrence, and its points by Golub and Welsch
    off = np.sqrt(k[1:] * (k[1:] + a))
    half, vectors = np.linalg.eigh(np.diag(2 * k + a + 1) + np.diag(off, 1) + np.diag(off, -1))
    square = np.tile(2 * half, n // radii)  # (n,)
    arms = (Q * np.sqrt(square)[:, None, None]).reshape(-1, d)
    each = np.repeat(np.tile(vectors[0] ** 2, n // radii) * radii / (2 * n * square), D)
    centre = 1 - 2 * each.sum(keepdims=True)
    return np.concatenate([arms, -arms, np.zeros((1, d))]), np.concatenate([each, each, centre])


def uniform(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Rotations (n, d, d), uniform over all of them (Haar)."""
    Q, upper = np.linalg.qr(rng.standard_normal((n, d, d)))
    return Q * np.sign(np.diagonal(upper, axis1=1, axis2=2))[:, None, :]


def prime(d: int) -> int:
    """The least odd prime p with 2 p >= d."""
    return next(p for p in count(max(3, -(-d // 2))) if all(p % k for k in range(2, p)))


def frame(p: int, k: int) -> np.ndarray:
    """Rotation k of 2 p + 2 that keep apart, (2 p, 2 p), a direction a row; p is an odd prime.

    Chirps exp(2 pi i (a x^2 + b x) / p) are a frame of C^p for every a, and the axes are one more:
    all products between frames have length 1 / sqrt(p). C^p is R^2p, with v and i v for each v.
    Together with the same times exp(i pi / 4) all of them are exact for degree five.
    """
    turned, a = divmod(k, p + 1)
    x = np.arange(p)
    chirps = np.exp(2j * np.pi * (((a - 1) * x * x + x[:, None] * x) % p) / p) / np.sqrt(p)
    C = (chirps if a else np.eye(p)) * np.exp(0.25j * np.pi * turned)
    C = np.concatenate([C, 1j * C])
    return np.concatenate([C.real, C.imag], 1)


@lru_cache(maxsize=16)
def _marks(M, d):
    """-1 (all ones) where digit c of coordinate j of point n is 1, else 0: (m, M, d), M <= 2^m."""
    m = (M - 1).bit_length()
    n, points = np.arange(M)[:, None], np.zeros((M, d), np.int64)
    for i, number in enumerate(_directions(m, d)):
        points ^= ((n ^ n >> 1) >> i & 1) * number  # where Gray's code of n has digit i
    digits = np.arange(m)[::-1, None, None]  # the first is the most significant
    return -(points >> digits & 1)


def _directions(m, d):
    """Sobol's direction numbers below 2^m, (m, d), by the recursion of Bratley and Fox (1988).

    Joe and Kuo's polynomials (2008) come from SciPy's file: scipy.stats takes a second to import.
    """
    with np.load(Path(scipy.__file__).parent / "stats/_sobol_direction_numbers.npz") as kept:
        poly, first = kept["poly"].astype(np.int64), kept["vinit"].astype(np.int64)
    if d > len(poly):
        raise ValueError(f'noise="sobol" knows {len(poly)} dimensions, and the base sample has {d}')
    poly, first, at = poly[:d], first[:d], np.arange(d)
    degree = np.frexp(poly)[1] - 1
    v = np.ones((m, d), np.int64)
    for i in range(m):
        new = v[(i - degree).clip(0), at]
        for k in range(1, min(i, degree.max()) + 1):
            new ^= np.where((k <= degree) & (poly >> (degree - k).clip(0) & 1), v[i - k] << k, 0)
        begun = first[:, i] if i < first.shape[1] else 0
        v[i] = np.where(degree > i, begun, new)  # the first coordinate, of degree 0, keeps ones
    return v << np.arange(m)[::-1, None]
