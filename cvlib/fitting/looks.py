"""A look at a fit: the ELBO on common draws, whether it has settled, and what to distrust."""

import numpy as np
import scipy  # scipy.special is loaded at its first use
from autograd import elementwise_grad

from ..recipe.draws import Draw
from ..special import hess_times
from .starts import DENSE, log_joint, tried

DRAWS = 4000  # for a look at the ELBO
TOLERANCE, CHANCE = 0.05, 0.05  # nats that may be left to gain, and the chance to be wrong there
FAR = 6.0  # standard deviations of its prior that a coordinate may lie out


def log_weights(model, q, w, seed, n=DRAWS, with_z=False):
    """log p(x, z) - log q(z) at n draws of q_w, (n,): their mean estimates the ELBO.

    The same seed gives the same base sample, whatever w is. Fewer draws where data are many.
    """
    n = max(64, min(n, 2**24 // (model.N * per_row(model))))
    rng = np.random.default_rng([seed, n])
    draw = Draw(model, q, w, q.noise(rng, w, n), None)
    size = max(1, 2**21 // (model.N * per_row(model)))
    lp = np.full(n, np.nan)
    for k in range(0, n, size):
        lp[k : k + size] = tried(log_joint, model, draw.z[k : k + size])
    for k in np.flatnonzero(np.isnan(lp)):  # one of many, or each of them?
        lp[k] = tried(log_joint, model, draw.z[k])
    lw = lp - q.log_q(w, draw.z)
    return (lw, draw.z) if with_z else lw


def per_row(model):
    """Numbers in a data point."""
    return max(int(np.prod(a.shape[1:])) for a in model.data)


def at_most(gain, look):
    """What the mean of gain (n,) is at most: wrong with chance CHANCE / 2^look, CHANCE in all."""
    doubt = -scipy.special.ndtri(CHANCE / 2**look) * gain.std(ddof=1) / np.sqrt(len(gain))
    return gain.mean() + doubt


def worst(q, w, z, share):
    """The coordinate whose mean or sd importance weights move most, and a clause on it."""
    mean, sd = q.mean(w), q.sd(w)
    moved = (share @ z - mean) / sd
    ratio = np.sqrt(share @ (z - share @ z) ** 2) / sd
    k = int(np.argmax(np.maximum(np.abs(moved), np.abs(np.log(np.maximum(ratio, 1e-3))))))
    return k, f"above all along z[{k}] (mean {moved[k]:+.1f} sd, sd times {ratio[k]:.1f})"


def conflicts(model, z):
    """A sentence where z (d,) lies far out in its prior: the units of the data may be others."""
    if model.dim > DENSE:
        return
    prior = lambda z: model.log_prior(z) + 0 * z[..., 0]
    both = np.stack([z, 0 * z])[:, None]  # where it bends alike, the prior is Gaussian
    with np.errstate(all="ignore"):
        slope = elementwise_grad(prior)(z)
        H = hess_times(prior, *np.broadcast_arrays(both, np.eye(len(z))))  # (2, d, d)
        bend, at_0 = -np.diagonal(H, 0, 1, 2)
        gaussian = (bend > 0) & (np.abs(bend - at_0) <= 0.01 * bend)
        out = np.abs(slope) / np.sqrt(np.where(gaussian, bend, np.inf))
    k = int(np.argmax(out))
    if out[k] > FAR:
        yield (
            f"z[{k}] = {z[k]:.3g} lies {out[k]:.0f} standard deviations out in its prior: are the "
            "data in the units that the prior was written for?"
        )
