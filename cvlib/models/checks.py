"""What a reader brings is tried once, on a few small arrays, and refused in a sentence.

A model, with its data, functions and likelihood, is tried when it is made, a family when it first
meets a model. Slopes are held to differences, means to quadrature or to a family's own draws.
"""

import warnings
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd import elementwise_grad
from numpy.typing import ArrayLike

from ..arguments import unmasked
from ..draws import Draw
from . import passes

# Four eta, each for three labels, (12,); no round numbers: a kink may lie there
ETA = np.tile([-1.3187, -0.2741, 0.5923, 1.6459], 3)
LEVELS = np.array([[-0.1537], [0.0371], [0.1213]])  # of every coordinate of z, in any order
NARROW, WIDTHS = 0.3, (1.0, 10.0)  # standard deviations of eta
DRAWS, LEAST = 4_000, 1_000  # for means; where w is too long for these many they are not tried
WORK = 2**19  # numbers that draws may make
SQUARE, BOX = 60, 3  # unknowns up to which a determinant, and the mass of a box, are looked at
APART = 8.0  # standard errors that a mean may be off: heavy tails have errors that are too small
HEAVY = 0.02  # share of a sum of squares that one draw may have: else it tells nothing
MEND = "mend it, or what it belongs to"
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
    along, value = np.broadcast_to(slope @ v, z.shape[:-1]), np.asarray(f(z))
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
    slopes: dict = {}  # functions of eta, each the slope of the one before it
    if it.fast is not None:
        fast = [lambda t, k=k: it.fast(t, y, k + 1)[k] for k in range(3)]
        slopes["phi", "fast"] = [lambda t: it.phi(t, y), *fast]
    if it.expected is not None:
        expected = lambda t, k=0: it.expected(t, NARROW**2 + 0 * t, y)[k]
        slopes["E phi", "expected"] = [partial(expected, k=k) for k in range(3)]
        x, weights = rule(1.0, 1e-9)
        mean = it.phi(eta[:, None] + NARROW * x, y[:, None]) @ weights
        means(f"E phi by expected {of} is", expected(eta), mean, cure, 1e-3)
    for (name, by), each in slopes.items():
        for k, (f, slope) in enumerate(pairwise(each), 1):
            got = _value(f"{by} {of}", partial(slope, eta), f"eta of shape {eta.shape}", eta.shape)
            says, f_of = f"{name}{k * chr(39)} by {by} {of} is", lambda z, f=f: f(z[:, 0])
            differences(says, got[:, None], f_of, eta[:, None], cure)
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
    if it.expected is None:  # else it is not by quadrature, which would miss what a kink has
        _by_parts(it, rule, eta[:, None], y[:, None], of)


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


# Families -----------------------------------------------------------------------------------------


@cache
@np.errstate(all="ignore")
def hold(q: Any) -> None:
    """A ValueError if the family q is not what it says; looked at once for equal families."""
    rng = np.random.default_rng(0)
    w, v = (q.check(q.start() + 0.3 * rng.uniform(-1, 1, q.D)) for _ in range(2))
    few = Draw(None, q, w, q.noise(rng, w, 3), None)
    _points(q, few, v)
    for name, slope, f in _gradients(q, few, v, *rng.standard_normal((2, 3, q.dim))):
        differences(f"{name} of {q!r} has along w", slope, f, np.stack([w] * 3), MEND)
    if q.quadratics and not q.gaussian and q.smooth == "z":
        _moments(q, w, few.z[0])
    n = min(DRAWS, WORK // q.D)
    for says, said, seen in _means(q, w, v, n, rng) if n >= LEAST else ():
        means(says, said, seen.mean(0), MEND, APART * seen.std(0) / np.sqrt(n))


def _points(q, few, v):
    """z, log q and determinants at a few draws."""
    w, eps = few.w[None], few.eps
    z, log_q = q.transform(w, eps), q.log_density(w, few.z)
    means(f"z1 of {q!r} is", few.z, z, MEND)
    means(f"log_q1 of {q!r} is", q.log_q1(few), log_q, MEND)
    if not q.fixed_base or q.noise_dim != q.dim or q.dim > SQUARE:
        return
    stretch = lambda at: np.array([_stretch(q, at, e) for e in eps])
    base = lambda at: q.log_density(at, q.transform(at, eps)) + stretch(at)
    says = f"log_density of {q!r} at transform, and its log |det|, together are"
    means(says, base(w), base(v[None]), f"they must not depend on w: {MEND}", 1e-4)
    if q.mapped is not None:
        said, log_det = q.mapped(w, eps)
        means(f"z by mapped of {q!r} is", said, z, MEND)
        means(f"log |det| by mapped of {q!r} is", log_det, stretch(w), MEND, 1e-4)


def _stretch(q, w, e):
    """log |det dz / de| at one base sample, by differences."""
    step = 1e-5 * np.eye(q.dim)
    return np.linalg.slogdet((q.transform(w, e + step) - q.transform(w, e - step)) / 2e-5)[1]


def _gradients(q, few, v, u, hess_L):
    """(name, gradient (3 or 1, D), the function of w (3, D) whose gradient it should be)."""
    yield "score", few.score, lambda w: q.log_density(w, few.z)
    for at, pull in ("z1", "pull1"), ("z2", "pull2"):
        if getattr(q, pull, None) is None:
            continue
        drawn = lambda w: Draw(None, q, w, few.eps, None)
        points = lambda w, at=at: np.stack([drawn(one).at(at)[k] for k, one in enumerate(w)])
        yield pull, getattr(q, pull)(few, u), lambda w, f=points: (u * f(w)).sum(-1)
    if q.closed_entropy:
        yield "entropy_grad", q.entropy_grad(few.w), q.entropy
    if q.cross is not None:
        v = np.broadcast_to(v, (3, q.D))
        yield "cross_grad", q.cross_grad(few.w, v[0]), lambda w: q.cross(w, v)
    if q.quadratics and not q.full:
        mean = lambda w: (u[0] * q.mean(w) + hess_L[0] * q.sd(w)).sum(-1)
        yield "chain", q.chain(few, u[:1], hess_L[:1]), mean


def _moments(q, w, z):
    """Mean and sd of two coordinates by quadrature, the others as in z (d,): they do not mix."""
    mean, sd = q.mean(w), q.sd(w)
    x = np.linspace(-300, 300, 24_001)  # a tail like z^-3.05 needs z of 1e130
    for k in {0, q.dim - 1}:
        away = np.sinh(x) * sd[k]
        at = np.tile(z, (len(x), 1))
        at[:, k] = mean[k] + away
        log_p = q.log_density(w[None], at) + np.log(np.cosh(x))
        p = np.exp(log_p - log_p.max())
        found = [p @ f / p.sum() for f in (at[:, k], away**2)]
        means(f"mean of {q!r} is", mean[k], found[0], MEND, 1e-3 * sd[k])
        means(f"sd of {q!r} is", sd[k], np.sqrt(found[1]), MEND, 1e-3 * sd[k])


def _means(q, w, v, n, rng):
    """(what says a mean, that mean, draws of what it is the mean of)."""
    many = Draw(None, q, w, q.noise(rng, w, n), None)
    law = {"noise": many}
    if q.mirror is not None:
        law["mirror"] = Draw(None, q, w, q.mirror(w, many.eps), None)
    if q.quantile is not None:
        law["quantile"] = Draw(None, q, w, q.quantile(w, rng.random((n, q.noise_dim))), None)
    for name, drawn in law.items():
        yield f"the mean of {q!r}'s score at draws by {name} must be", 0.0, drawn.score
    score, z = many.score, many.z
    if q.smooth == "z" and q.dim <= BOX:
        says = f"the mass that log_density of {q!r} has beyond its draws must be"
        yield says, 0.0, _in_box(q, w, z, rng)
    if q.closed_moments:
        mean = q.mean(w)
        yield f"mean of {q!r} is", mean, z
        square = (z - mean) ** 2
        if (square.max(0) < HEAVY * square.sum(0)).all():
            yield f"the square of sd of {q!r} is", q.sd(w) ** 2, square
    if q.cross is not None:
        yield f"cross of {q!r} is", q.cross(w, v), q.log_density(v[None], z)
    if q.closed_entropy:
        yield f"entropy of {q!r} is", q.entropy(w), -q.log_q1(many)
    if q.fisher is not None:
        along, F = np.cos(np.arange(q.D)), q.fisher(w)
        said = along @ F @ along if F.ndim > 1 else along**2 @ F
        yield f"fisher of {q!r} is along w", said, (score @ along) ** 2


def _in_box(q, w, z, rng):
    """The mass of a box about a quarter of the draws z (n, d), by log q less by draws, (n,)."""
    width = np.subtract(*np.quantile(z, (0.75, 0.25), 0))
    centre = z[np.argmax(q.log_density(w[None], z))]
    far = np.abs((z - centre) / width).max(-1)
    edge = np.quantile(far, 0.25)
    evenly = centre + edge * width * rng.uniform(-1, 1, z.shape)
    return np.exp(q.log_density(w[None], evenly)) * np.prod(2 * edge * width) - (far < edge)
