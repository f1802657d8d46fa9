"""What a reader brings to a model is tried once, when the model is made, on a few small arrays."""

import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd import elementwise_grad
from numpy.typing import ArrayLike

from ..arguments import unmasked
from . import passes

# Four eta, each for three labels, (12,); no round numbers: a kink may lie there
ETA = np.tile([-1.3187, -0.2741, 0.5923, 1.6459], 3)
LEVELS = np.array([[-0.1537], [0.0371], [0.1213]])  # of every coordinate of z, in any order
NARROW, WIDTHS = 0.3, (1.0, 10.0)  # standard deviations of eta
CURE = (
    "write it with autograd.numpy and autograd.scipy (many functions of numpy and scipy themselves "
    "lose the derivative), without assignments into arrays, and give where(c, x, y) its x and y in "
    "the shape of the rows, x + 0 * c"
)
HOW = (
    "Write z[..., k] or p.beta[..., k] for a coordinate, np.where for if, change no array, take "
    "data from the batch and none from outside, and let all axes before it broadcast"
)


# Numbers and data ---------------------------------------------------------------------------------


def real_numbers(what: str, value: ArrayLike) -> np.ndarray:
    """`value` as an array of floats; a mapped array of other numbers stays in its file."""
    array = _array(what, value)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{what} holds {array.dtype} numbers: it must be real")
    return array if passes.is_mapped(array) else array.astype(float, copy=False)


def number_or_vector(what: str, value: ArrayLike) -> float | np.ndarray:
    """`value` as a float or an array (d,) of our own."""
    array = real_numbers(what, value).copy()
    if array.ndim > 1:
        raise ValueError(f"{what} must be a number or (d,); got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{what} must be finite, not {array}")
    array.setflags(write=False)
    return array if array.ndim else float(array)


def data_arrays(data: Any) -> tuple[np.ndarray, ...]:
    """`data` as a tuple of arrays, N rows each."""
    if data is None:
        raise ValueError(
            "data=None: give an array or a tuple of arrays, one row per data point; "
            "np.zeros(1) where there are none"
        )
    listed = isinstance(data, list) and any(isinstance(a, np.ndarray) for a in data)
    if listed or isinstance(data, dict):
        raise ValueError(
            f"data is a {type(data).__name__}: write a tuple of arrays, such as (X, y)"
        )
    each = data if isinstance(data, tuple) else (data,)
    same_labels(each)
    arrays = tuple(_kept(_array(f"array {k} of the data", a)) for k, a in enumerate(each))
    lengths = [len(a) if a.ndim else None for a in arrays]
    if None in lengths or len(set(lengths)) != 1:
        raise ValueError(f"the arrays in data must have one row per data point; got {lengths} rows")
    if lengths[0] == 0:
        raise ValueError("the data set is empty: a model needs at least one data point")
    for k, a in enumerate(arrays):
        _finite_data(k, a)
    return arrays


def _kept(a):
    """The array as the model keeps it: nobody can write into it, and whole numbers do not wrap.

    What fits into memory twice is copied: later changes of the reader's array do not change it.
    """
    if not passes.is_mapped(a):
        kept = passes.wide(a)
        a = a.copy() if kept is a and a.nbytes <= passes.SMALL else kept
    a = a.view()
    a.setflags(write=False)
    return a


def same_labels(each: tuple) -> None:
    """Tables with row labels must have the same ones: here rows meet by position."""
    labels = [a.index for a in each if hasattr(a, "index") and hasattr(a, "to_numpy")]
    if any(not labels[0].equals(other) for other in labels[1:]):
        raise ValueError(
            "the tables in data have different row labels, and rows meet by position here: join "
            "them first, and give .to_numpy()"
        )


def _finite_data(k, a):
    """No NaN or infinity in array k of the data."""
    bad = lambda rows: np.argwhere(~np.isfinite(rows[0]))[:1].tolist()
    parts = zip(passes.slices((a,)), passes.each(bad, (a,))) if a.dtype.kind in "fc" else ()
    for rows, found in parts:
        for row, *rest in found:
            where = [rows.start + row, *rest]
            raise ValueError(
                f"array {k} of the data is {a[tuple(where)]} at {where}: drop or fill it"
            )


def _array(what, value):
    """np.asarray of anything but text, objects and masked arrays."""
    unmasked(what, value)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{what} has rows of unequal length: {error}") from error
    if array.dtype.kind in "USOMm":
        first = next((x for x in array.flat if not isinstance(x, int | float)), None)
        raise ValueError(
            f"{what} holds {array.dtype}, such as {first}: give numbers. Two classes are "
            f"np.where(label == '{first}', 1.0, -1.0), dates days since the first, "
            "(t - t.min()) / np.timedelta64(1, 'D')"
        )
    return array


# Functions of z -----------------------------------------------------------------------------------


def rows(
    what: str, f: Callable, points: np.ndarray, n: int, shapes: list[tuple[tuple, tuple]],
    letter: str = "z", data: str = "rows of data",
) -> None:  # fmt: skip
    """f(z, j) for z of the points (K, ...) and row numbers j < n: of its own z and row alone.

    `shapes` has pairs of leading axes, those of z and of j.
    """
    K, rng, alone = len(points), np.random.default_rng(0), None
    some = lambda count, shape: rng.permutation(np.resize(range(count), shape).ravel())
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        for lead, data_lead in shapes:
            k, j = some(K, lead).reshape(lead), some(n, data_lead).reshape(data_lead)
            z, shape = points[k], np.broadcast_shapes(lead, data_lead)
            given = f"{letter} of shape {z.shape}" + f" and {data} of shape {j.shape}" * (n > 1)
            got = _value(what, lambda: f(z, j), given, shape)
            if alone is None:  # (K, n)
                one = lambda z, i: _value(what, lambda: f(z, i), f"{letter} of shape {z.shape}", ())
                alone = np.array([[one(z, i) for i in range(n)] for z in points])
                _finite(what, alone, np.stack([points] * n, 1), letter)
            if not np.allclose(got, alone[k, j]):
                raise ValueError(
                    f"{what} mixes its rows, or is random: row k may depend on {letter}[k] and "
                    "data k alone"
                )
        # all rows at every z, as passes ask: anp.where does not sum slopes that it broadcast
        in_z = lambda z: anp.sum(f(anp.reshape(z, points.shape)[:, None], np.arange(n)), -1)
        flat = points.reshape(K, -1)
        _slope(what, in_z, flat)
        _far(what, in_z, flat, letter)


def points_near_zero(d: int) -> np.ndarray:
    """Three points near the origin, (3, d)."""
    rng = np.random.default_rng(1)
    return rng.permuted(np.repeat(LEVELS, d, 1), axis=0) * rng.uniform(0.9, 1.1, (3, d))


def _value(what, f, given, shape):
    """f() as an array of this shape."""
    try:
        got = np.asarray(f())
    except Exception as error:
        about_shapes = type(error) in (ValueError, TypeError, IndexError)  # not a missing name
        raise ValueError(
            f"{what} fails for {given}: {type(error).__name__}: {error}" + f". {HOW}" * about_shapes
        ) from error
    if got.shape != shape or got.dtype.kind not in "biuf":
        raise ValueError(
            f"{what} must give one number per row: for {given} it gave {got.dtype} of shape "
            f"{got.shape}, not numbers of shape {shape}; sum over the last axis only, "
            "np.sum(..., -1), take data from the batch and none from outside, and let all axes "
            "before it broadcast"
        )
    return got


def _finite(what, got, points, letter):
    """`got` (...) at the points (..., d)."""
    bad = ~np.isfinite(got)
    if bad.any():
        first = np.array2string(points[bad][0], precision=3, threshold=6, edgeitems=2)
        raise ValueError(
            f"{what} is {got[bad][:3]}, first at {letter} = {first}: it must be a number for every "
            f"real {letter}. Put exp({letter}) for what is positive, 1 / (1 + exp(-{letter})) for "
            "a probability, or declare cv.positive, cv.interval(0, 1); scale the data if something "
            "overflowed"
        )


def _far(what, f, z, letter):
    """f, (K, d) -> (K,), is not infinite ten times as far out, where a common draw lies."""
    try:
        with np.errstate(over="raise"):
            far = np.asarray(f(10 * z))
    except FloatingPointError:  # too large a number is another matter than the end of a support
        return
    _finite(what, np.where(np.isinf(far), far, 0.0), 10 * z, letter)


def _slope(what, f, z):
    """Autograd finds the slope of f, (K, d) -> (K,), that differences find."""
    try:
        slope = elementwise_grad(f)(z)
    except Exception as error:
        raise ValueError(
            f"autograd cannot differentiate {what}: {CURE}. Its words: "
            f"{type(error).__name__}: {error}"
        ) from error
    differences(f"autograd takes the slope of {what} for", slope, f, z, CURE)


def differences(
    says: str, slope: np.ndarray, f: Callable, z: np.ndarray, cure: str, step: float = 1e-4
) -> None:
    """The slope (K, d) of f at z is that of differences, where two step sizes agree: at no kink."""
    v = np.cos(np.arange(z.shape[-1]))  # a direction
    along, value = slope @ v, np.asarray(f(z))
    coarse, fine = ((f(z + h * v) - f(z - h * v)) / (2 * h) for h in (step, step / 2))
    eps = np.finfo(np.result_type(value, np.float16)).eps
    rounding = 50 * eps * (np.abs(value) / step + np.abs(slope) @ np.abs(v))
    believed = np.abs(coarse - fine) <= 1e-3 * np.abs(fine) + rounding
    wrong = believed & ~(np.abs(along - fine) <= 1e-2 * np.abs(fine) + 10 * rounding)
    if wrong.any():
        raise ValueError(f"{says} {along[wrong][0]:.3g} where it is {fine[wrong][0]:.3g}: {cure}")


def means(says: str, said: ArrayLike, found: ArrayLike, cure: str, error: ArrayLike = 0.0) -> None:
    """What is said of a mean is what was found, within its error."""
    said, found, error = np.broadcast_arrays(said, found, error)
    wrong = ~(np.abs(said - found) <= error + 1e-6 * (1 + np.abs(found)))
    if wrong.any():
        raise ValueError(f"{says} {said[wrong][0]:.6g} where it is {found[wrong][0]:.6g}: {cure}")


def compiled(value_and_slope: Callable, value: Callable | None, d: int) -> None:
    """Functions of points (B, d) that a model brings compiled: shapes, rows, and the slope."""
    z = points_near_zero(d)
    what, f = "value_and_slope", lambda z: np.asarray(value_and_slope(z)[0])
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        got = _value(what, lambda: f(z), f"z of shape {z.shape}", (3,))
        _finite(what, got, z, "z")
        slope = np.asarray(value_and_slope(z)[1])
        if slope.shape != z.shape:
            raise ValueError(f"{what} gave a slope of shape {slope.shape} for z of {z.shape}")
        if not np.allclose(f(z[::-1]), got[::-1]):
            raise ValueError(f"{what} mixes its points: value k may depend on z[k] alone")
        if value is not None and not np.allclose(value(z), got):
            raise ValueError(f"value and {what} differ: {value(z)} and {got}")
        differences(f"{what} gives a slope of", slope, f, z, "give the gradient of its value")


# Likelihoods --------------------------------------------------------------------------------------


@np.errstate(all="ignore")
def promises(it: Any, rule: Callable, labels: np.ndarray) -> None:
    """What a likelihood says beside phi, at the same eta and labels; `rule` is its quadrature."""
    eta, y = ETA, np.repeat(labels, 4)  # (12,)
    of, other, cure = f"of the {it.name} likelihood", np.roll(eta, 1), "mend it, or leave it out"
    if not it.strip > 0:
        raise ValueError(f"strip={it.strip} {of}: it must be positive")

    def slopes(name, by, first, *more):
        """Each function of eta is the slope of the one before it."""
        for k, f in enumerate(more, 1):
            slope = _value(f"{by} {of}", lambda f=f: f(eta), f"eta of shape {eta.shape}", eta.shape)
            says, before = f"{name}{k * chr(39)} by {by} {of} is", (first, *more)[k - 1]
            differences(says, slope[:, None], lambda z, f=before: f(z[:, 0]), eta[:, None], cure)

    if it.fast is not None:
        fast = [lambda t, k=k: it.fast(t, y, k + 1)[k] for k in range(3)]
        slopes("phi", "fast", lambda t: it.phi(t, y), *fast)
    try:
        slope, bend = it.derivatives(eta, y, 2)
    except NotImplementedError:  # autograd knows one slope, and nothing below will be asked for
        return
    if it.quadratic:
        means(f"phi'' {of}, which says quadratic=True, is", bend, np.roll(bend, 1), cure)
    if it.kappa is not None:
        says = f"what phi' gains from label to label by kappa {of} is"
        means(says, it.kappa * (y - np.roll(y, 4)), slope - np.roll(slope, 4), cure)
    if it.bound is not None:
        a, b, c = it.bound(np.abs(eta), y)
        for t in eta, other:
            line, phi = a + b * t + c * t**2 / 2, it.phi(t, y)
            line = np.maximum(line, phi) if t is other else line  # there it may lie below
            means(f"the bound {of} is", line, phi, cure)
    if it.expected is None:
        _by_parts(it, rule, eta[:, None], y[:, None], of)
    else:  # quadrature would miss what a kink has of the slopes
        x, weights = rule(1.0, 1e-9)
        mean = it.phi(eta[:, None] + NARROW * x, y[:, None]) @ weights
        expected = [lambda t, k=k: it.expected(t, NARROW**2 + 0 * t, y)[k] for k in range(3)]
        means(f"E phi by expected {of} is", expected[0](eta), mean, cure, 1e-3)
        slopes("E phi", "expected", *expected)


def _by_parts(it, rule, m, y, of):
    """E psi' = E psi x / sd, eta = m + sd x, for phi and phi' on the nodes that `strip` gives.

    The two differ where quadrature errs: what it leaves is the slope of psi times the density.
    """
    cure = (
        f"strip={it.strip:g} is too large, or phi has a kink. phi' must be analytic for "
        "|Im eta| < strip; with a kink write a Model"
    )
    for wide in WIDTHS:
        sd = min(wide, 10 * it.strip)  # for wider ones there are too few nodes
        x, weights = rule(it.strip / sd, 1e-13)
        t = m + sd * x  # (12, nodes)
        each = it.phi(t, y), *it.derivatives(t, y, 2)
        for name, (psi, slope) in zip(("phi'", "phi''"), pairwise(each)):
            by_parts = psi * x / sd
            size = (np.abs(by_parts) + np.abs(slope)) @ weights
            seen = (np.abs(psi) * weights)[:, [0, -1]].max(-1) < 1e-9 * size  # not cut off
            error = np.where(seen, 1e-6 * size, np.inf)
            says = f"E {name} {of} by quadrature is"
            means(says, slope @ weights, by_parts @ weights, cure, error)
