"""Answers from draws that others made: Stein's variates, blocks, draws in any sampler's form.

Neighbours in a chain are alike, so they are left out in blocks. Under the model's own law every
variate has mean zero: that is tested first, and draws of another law are refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import compress
from typing import Any

import numpy as np
import scipy

from ..arguments import whole
from ..models.density import Density, Model
from . import stein
from .looks import worth
from .lots import entries
from .stein import Drawn, correlation, floats
from .table import TAILS, Answer, Table

CHANCE = 1e-5  # of refusing the model's own draws; of 1,500 slow short lots none was
FAR = 0.05  # sds of a variate: where its mean is nearer to zero the draws are not refused
LIGHT = 1 / 3  # k-hat from which weights have no third moment, and say too little for the test
BEYOND = 3  # standard errors that an answer may lie outside the range of f
NEVER = 1e12  # effective draws from which an error is rounding
FORMS = (
    "give draws by name, {name: (n, *shape)} or (chains, n, *shape), such as stan_variables() of "
    "CmdStanPy, an InferenceData, or z itself, (n, d) or (chains, n, d)"
)
CHECK = (
    "Check the data and the order of their rows, the prior, the sign and scale of the score, and "
    "that all chains have converged. If all is right, the density ends at an edge above zero: "
    "order=0 takes the draws alone"
)


def expect(
    f: Callable | np.ndarray, z: Any, score: Any, weights: np.ndarray | None = None, *,
    order: int | None = None, block: int | None = None,
) -> Answer:  # fmt: skip
    """E_p f(z) as an `Answer`, from draws z (n, d) and scores grad log p(z) (n, d) there.

    In place of the score a model: then z may be an `InferenceData` or `DataTree` of ArviZ, or draws
    by name, {name: (n, *shape)} or (chains, n, *shape), and f takes what the model's functions
    take. Without one f takes z to (n, ...), or is that array. Several chains are z (chains, n, d),
    scores and values likewise. weights (n,): p / q up to a factor, for draws of another law q.
    order: 0, 1 or 2; if not given, the one that foretells best what it has not seen. block: so many
    neighbours of a chain are left out together; if not given, two autocorrelation times.

    Draws that do not belong to the model, or to the score, are an error. Order 0, the mean of the
    draws alone, does not ask.
    """
    at = _given(f, z, score, weights, block, order)
    found = stein.expect(at, order)
    _check_range(np.ravel(found.estimate), np.ravel(found.se), at)
    return found


def quantile(
    f: Callable | np.ndarray, z: Any, score: Any, weights: np.ndarray | None = None, *,
    probs: Any = (0.05, 0.5, 0.95), order: int | None = None, block: int | None = None,
) -> Answer:  # fmt: skip
    """Quantiles of f under p, (len(probs), ...), with errors; all else as in `expect`."""
    levels = stein.levels(probs)  # before f is called, which may take long
    return stein.quantile(_given(f, z, score, weights, block, order), order, probs=levels)


def summary(chain: Any, model: Model, *, order: int | None = None) -> Table:
    """Mean, sd, 5 %, 50 % and 95 % of every entry of every parameter, from the draws of chains.

    `chain`: draws by name, {name: (n, *shape)} or (chains, n, *shape), as CmdStanPy's
    stan_variables() are, an `InferenceData` or `DataTree`, or z, (n, d) or (chains, n, d).
    mcse and ess are the standard error and the effective sample size of the mean, raw ones those of
    the draws without variates. One regression serves all rows: it gives each draw a share, and
    mean, sd and quantiles are those of draws with these shares.
    """
    if not isinstance(model, Model):
        raise TypeError(f"summary(chain, model): {model!r} is no model")
    of = lambda p: entries(p if isinstance(p, Mapping) else {"z": p})
    at = _given(lambda p: of(p)[1], chain, model, None, None, order)
    names, _ = of(model.given(at.z[:1]))
    moves = np.ptp(at.F, 0) > 0  # the rest are constants of the model, such as a corner of a matrix
    first, F, shown = at.F[0], at.F[:, moves], [*compress(names, moves)]
    at, about = replace(at, F=F), F.mean(0)
    both = [*shown, *(f"the sd of {name}" for name in shown)]
    found, share = stein.answer(np.stack([F, (F - about) ** 2], 1), at, order, names=both)
    (mean, square), (mcse, _) = found.estimate, found.se
    _check_range(mean, mcse, at, shown)
    tails = np.repeat([[u] for u in TAILS.values()], len(mean), 1)
    raw, ess = (np.where(x[0] > NEVER, np.inf, x[0]) for x in (found.before, found.after))
    each = {
        "mean": mean,
        "sd": np.sqrt(np.maximum(square - (mean - about) ** 2, 0)),
        **dict(zip(TAILS, stein.inverse(F, share, tails))),
        "raw mcse": F.std(0) / np.sqrt(raw),
        "mcse": mcse,
        "raw ess": raw,
        "ess": ess,
        "k_f": found.k_f[0],
    }
    still = {k: first for k in ("mean", *TAILS)} | dict.fromkeys(("sd", "raw mcse", "mcse"), 0.0)
    columns = {k: np.full(len(names), still.get(k, np.nan)) for k in each}
    for k, x in each.items():
        columns[k][moves] = x
    head = f"{len(at.z)} draws, variates of order {found.order}; mcse and ess are of the mean"
    return Table(names, columns, {"mean": "mcse"}, head, found.warnings, ("k_f",))


# What is given -----------------------------------------------------------------------------------


def _given(f, z, score, weights, block, order):
    """What is given, checked; f and z may be in a model's terms."""
    names = None
    if isinstance(model := score, Model):
        draws, names = getattr(z, "posterior", z), model.names
        z = _back(draws, model) if hasattr(draws, "keys") else floats("draws", draws, FORMS)
        if z.shape[-1:] != (model.dim,):
            raise ValueError(f"draws z of shape {z.shape}: {model!r} needs (n, {model.dim})")
        score = Density(model).slope(z.reshape(-1, model.dim))[1].reshape(z.shape)
        of_p = f
        f = (lambda z: of_p(model.given(z))) if callable(of_p) else of_p
    z, score = floats("draws", z), floats("scores", score)
    if z.ndim not in (2, 3) or score.shape != z.shape:
        raise ValueError(
            f"draws z must be (n, d) or (chains, n, d), and their scores likewise; got {z.shape} "
            f"and {score.shape}"
        )
    lead = z.shape[:-1]
    flat = lambda x: x.reshape(-1, *x.shape[len(lead) :])
    if not callable(f) and np.shape(f := floats("f", f, stein.WRITE))[: len(lead)] == lead:
        f = flat(f)
    at = stein.drawn(f, flat(z), flat(score), weights)
    at = _blocked(at, lead[0] if lead[1:] else 1, block)
    stein.check_moves(at, order)
    return at if order == 0 else replace(at, says=_check_law(at, names))


def _back(draws: Mapping, model: Model) -> np.ndarray:
    """Draws by name, in their constraints, as z (n, d) or (chains, n, d)."""
    needs, back = model.parameters.each, model.parameters.back
    if back is None:
        raise ValueError(f"{model!r} does not say how to take its parameters back to z")
    if missing := [name for name in needs if name not in draws]:
        raise ValueError(
            f"the draws have no {missing[0]!r}, and {model!r} needs {', '.join(needs)}"
        )
    arrays = {name: floats(f"draws of {name}", draws[name]) for name in needs}
    shapes = {k: np.shape(x)[1:] for k, x in model.named(np.zeros((1, model.dim))).items()}
    leads = {x.shape[: x.ndim - len(shapes[name])] for name, x in arrays.items()}
    lead = leads.pop()
    if leads or len(lead) not in (1, 2) or 0 in lead:
        raise ValueError(
            f"draws of {', '.join(arrays)} must be (n, *shape) or (chains, n, *shape) each, all "
            f"with one n from 1 on; got {', '.join(str(x.shape) for x in arrays.values())}"
        )
    z = back({name: x.reshape(-1, *shapes[name]) for name, x in arrays.items()})
    return z.reshape(*lead, model.dim)


def _blocked(at: Drawn, chains: int, block: int | None) -> Drawn:
    """The same draws as chains, without those that fill no block."""
    n, each, chain = len(at.z), len(at.z) // chains, 0
    if block is None:
        values = at.F.reshape(n, -1)
        chain, block = _blocks(at.w[:, None] * (values - at.w @ values / at.w.sum()), chains)
    if each // whole("block", block) * chains < 2:
        raise ValueError(f"{each} draws in blocks of {block}: an error needs two blocks at least")
    kept = (np.arange(n) % each) >= each % block
    slow = 1.0
    if chain or block > 1:
        slow = float(correlation(at.z - at.z.mean(0), chains).max(initial=0.1))
    F, z, score, w = (x[kept] for x in (at.F, at.z, at.score, at.w))
    return Drawn(z, score, w, at.k_hat, F, chain, block, slow)


def _blocks(x, chains):
    """How many chains x (n, k), of mean zero, comes from, none if it is independent; a block.

    A block has two autocorrelation times, but all chains twenty blocks, and a chain has one.
    """
    n, each = len(x), len(x) // chains
    time = correlation(x, chains).max(initial=0.0)
    if chains == 1 and not abs(time - 1) > 6 / np.sqrt(n):
        return 0, 1
    block = min(int(np.ceil(2 * time)), n // 20, each) if time > 1 else 1
    return chains, each // (each // max(block, 1))  # so that few draws are left over


# Do the draws belong to the model? ---------------------------------------------------------------


def _check_law(at, names):
    """Refuses draws under which Stein's variates do not have mean zero; or says so if hardly.

    s_i and (z_i - m_i) s_i + 1 for every coordinate, in the model's own coordinates: there a slip
    in one part of the model, as in a prior, is not mixed with the rest. A mean is compared with its
    error by Student's t with as many degrees of freedom as there are effective draws, corrected for
    the number of variates. Short chains know their own spread and autocorrelation time badly, so
    neither is believed to be less than theory and the other variates say.
    """
    w, chains = at.w / at.w.sum(), max(at.chains, 1)
    away = at.z - w @ at.z
    sd = np.sqrt(w @ away**2)
    C = np.stack([at.score * sd, at.score * away + 1])  # (2, n, d), of sd 1 at least
    mean = w @ C  # (2, d)
    far = C - mean[:, None]
    far = np.where(np.abs(far).max(1, keepdims=True) < 1e-9, 0.0, far)  # constants, but rounding
    each = [np.maximum(correlation(w[:, None] * x, chains), 1) for x in (away, *far)]
    time = np.maximum(np.maximum(each[0], each[1:]), np.median(each))  # (2, d)
    spread = np.maximum(np.sqrt(w @ far**2), 1)
    se = np.maximum(np.sqrt((w**2) @ far**2), np.sqrt((w**2).sum())) * np.sqrt(time)
    left = np.maximum(worth(w) / time - 1, 0.5)
    p = 2 * mean.size * scipy.special.stdtr(left, -np.abs(mean) / se)
    if at.k_hat > LIGHT or not (bad := p < CHANCE).any():
        return ()
    by = np.where(bad, np.abs(mean) / spread, 0)
    which, i = np.unravel_index(by.argmax(), by.shape)
    name = names[i] if names else f"z[{i}]"
    slope = f"d log p / d {name}"
    what = f"{slope}, times {name} less its mean, plus 1" if which else slope
    scale = 1 if which else sd[i]
    found = f"the mean of {what} is {mean[which, i] / scale:.2g} ± {se[which, i] / scale:.1g}"
    if by.max() > FAR:
        raise ValueError(
            f"these draws do not belong to this model: {found}, and it must be zero. {CHECK}"
        )
    return (
        f"these draws do not quite belong to this model: {found}, not zero, and errors do not "
        "count that. Run the chains for longer, or with smaller steps",
    )


def _check_range(estimate, se, at, names=None):
    """No mean lies outside the range of f. estimate (k,) and se (k,) of at.F (n, ...)."""
    F = at.F[at.w > 0].reshape((at.w > 0).sum(), -1)
    low, high = F.min(0), F.max(0)
    over = np.maximum(low - estimate, estimate - high)
    bad = over > BEYOND * se + 1e-9 * (np.abs(low) + np.abs(high))
    if bad.any():
        k = int(bad.argmax())
        of = f"of {names[k]}" if names else f"number {k}" if len(bad) > 1 else "of f"
        raise ValueError(
            f"these draws do not belong to this model: the mean {of} would be {estimate[k]:.3g}, "
            f"and the draws lie from {low[k]:.3g} to {high[k]:.3g}. {CHECK}"
        )
