"""Relaxation and surrogate: approximations that need no closed form, only two estimators.

A discrete z has a continuous variable zeta behind it (see `nongaussian`). An integrand of zeta has
three estimators: SF, the score of zeta's density; RP1, zeta = logits + noise moved by w; and GR,
with base (z, v): draw z first, then zeta given z from the noise v, so that the score is the score
of z. Differences of these are the plain relaxation, REBAR (GR - RP1) and, with a trained function,
RELAX. For a continuous q a surrogate is a function of z itself.
"""

import autograd.numpy as anp
import numpy as np
from autograd import elementwise_grad, grad

from .estimators import Estimator
from .integrands import Atom, Integrand, Own


def relax(f, tau=0.5, coupled=True):
    """f at the concrete relaxation of z with temperature tau (Maddison et al., Jang et al. 2017).

    Write GR(relax(f)) - RP1(relax(f)) for REBAR (Tucker et al. 2017). With coupled=False the
    conditional draw has noise of its own.
    """
    _check("relax", f)
    if not tau > 0:
        raise ValueError(f"tau={tau}: the temperature must be positive")
    for atom in f.parts:
        if atom.q is not None and not hasattr(atom.q, "squash"):
            raise ValueError(f"relax is for a discrete q; {atom.q!r} is continuous: use RP1 or GR")
        if not isinstance(atom, Own):
            raise ValueError(f"relax takes terms such as data + prior; '{atom.name}' is none")
    return f.map(lambda atom: _relaxed(atom, tau, coupled))


def surrogate(f, function, coupled=True):
    """Any function (..., d) -> (...) that autograd can differentiate, standing in for the term f.

    Of zeta for a discrete q, of z for a continuous one. RELAX (Grathwohl et al. 2018) is
    GR(surrogate(f, s)) - RP1(surrogate(f, s)) with s trained by `variance_gradient`.
    """
    _check("surrogate", f)
    atom = next((atom for atom in f.parts if atom.q is not None), None)
    if atom is None:
        raise ValueError(f"surrogate needs a term of a model, and {f!r} belongs to none")
    how = getattr(function, "__name__", "function") + ", coupled=False" * (not coupled)
    name = f"surrogate({f!r}, {how})"
    # Two functions may share a name. In the key the function stays alive, so its id is its own.
    stand_in = Free(name, atom, lambda draw: function, coupled, f"{name} at {id(function):#x}")
    stand_in.key, stand_in.trained = (*stand_in.key, function), True
    return Integrand({stand_in: 1})


class Free(Atom):
    """An integrand s(zeta), or s(z), that brings its own estimators."""

    direct = True
    trained = False  # does s depend on weights phi?

    def __init__(self, name, like, function, coupled, target=None, on_all_data=None):
        super().__init__(name, like.model, like.q, target)
        self.function, self.coupled, self.on_all_data = function, coupled, on_all_data
        self.discrete = hasattr(like.q, "zeta")
        self.methods = ("SF", "RP1", "GR") if self.discrete else like.q.methods[:-1]

    def over_all_data(self):
        return self.on_all_data() if self.on_all_data else self

    def estimate(self, draw, method):
        """s(points) score + pull(grad s(points)), (..., M, D)."""
        points, score, pull = self.pieces(draw, method)
        s = self.function(draw)
        total = 0.0 if score is None else np.asarray(s(points))[..., None] * score
        return total if pull is None else total + pull(elementwise_grad(s)(points))

    def pieces(self, draw, method):
        """Where s is looked at, the score that goes with its value, and how its slope pulls."""
        if not self.discrete:
            return self._continuous_pieces(draw, method)
        q = draw.q
        if method == "SF":
            return q.zeta(draw), q.zeta_score(draw), None
        if method == "RP1":
            return q.zeta(draw), None, lambda u: q.pull_zeta(draw, u)
        zeta, moved = draw.once(
            ("zeta given z", self.coupled), lambda draw: q.zeta_given_z(draw, self.coupled)
        )
        return zeta, draw.score, lambda u: q.pull_zeta(draw, moved * u)

    def _continuous_pieces(self, draw, method):
        def pull1(u):
            out = np.empty((*u.shape[:-1], draw.q.D))
            draw.q.pull1(draw, u, out)
            return out

        def pull2(u):
            out = np.zeros((*u.shape[:-1], draw.q.D))
            draw.q.pull2(draw, u, out)
            return out

        if method == "SF":
            return draw.z, draw.score, None
        if method == "RP2":
            return draw.at("z2"), None, pull2
        return draw.z, draw.base_score if method == "GR" else None, pull1


def _relaxed(atom, tau, coupled):
    """f(squash(zeta)) for f the atom's function, on the data that the atom sees."""
    how = f", {float(tau)}" + ", coupled=False" * (not coupled)
    return Free(
        f"relax({atom.name}{how})",
        atom,
        lambda draw: lambda zeta: atom.function(draw, 0)(draw.q.squash(zeta, tau)),
        coupled,
        target=f"relax({atom.target}{how})",
        on_all_data=lambda: _relaxed(atom.over_all_data(), tau, coupled),
    )


def _check(who, f):
    if not isinstance(f, Integrand):
        raise TypeError(f"{who} approximates an integrand such as data, not {f!r}")


def network(dim, hidden, rng):
    """A small network and its first weights: s(phi, z) = B.tanh(A z + a), phi one flat vector.

    The last layer starts at 0, so that the surrogate starts as the zero function.
    """
    shapes = [(dim, hidden), (hidden,), (hidden,)]
    ends = np.cumsum([0] + [int(np.prod(shape)) for shape in shapes])
    phi = np.concatenate([rng.standard_normal(ends[2]) / np.sqrt(dim), np.zeros(hidden)])

    def s(phi, z):
        A, a, B = (
            anp.reshape(phi[i:j], shape)
            for i, j, shape in zip(ends, ends[1:], shapes, strict=False)
        )
        return anp.dot(anp.tanh(anp.dot(z, A) + a), B)

    return s, phi


def variance_gradient(g, s, phi, line, draw):
    """Gradient in phi of mean_m |g_m|^2, where g = h + ... - c and c is `line(s_phi)`: (P,).

    The mean of g does not depend on phi, so this is an unbiased gradient of its variance from the
    samples of one draw. `g` (..., M, D) are the gradients at phi; `line` makes the control variate
    from a function, e.g. lambda s: GR(surrogate(f, s)) - RP1(surrogate(f, s)).
    c is linear in s: c = sum over its parts of s(points) score + pull(slope of s), and so is the
    derivative: weigh values by g.score and slopes by the adjoint of the pull, applied to g.
    """
    parts = line(lambda z: s(phi, z))
    if not isinstance(parts, Estimator) or not parts.is_control_variate:
        raise ValueError(f"line must make a control variate from a function; it made {parts!r}")
    weights = []
    for (method, atom), coef in parts.parts.items():
        if getattr(atom, "trained", False):
            points, score, pull = atom.pieces(draw, method)
            by_value = None if score is None else coef * (g * score).sum(-1)
            by_slope = None if pull is None else coef * _adjoint(pull, g, points.shape)
            weights.append((points, by_value, by_slope))

    def inner(phi):
        """-2 g.c_phi with g held fixed, summed over samples."""
        total = 0.0
        for points, by_value, by_slope in weights:
            if by_value is not None:
                total = total - 2 * anp.sum(by_value * s(phi, points))
            if by_slope is not None:
                slope = elementwise_grad(lambda z: s(phi, z))(points)
                total = total - 2 * anp.sum(by_slope * slope)
        return total

    return grad(inner)(phi) / (g.size / g.shape[-1])


def _adjoint(pull, g, shape):
    """pull^T g, (..., M, d), from the pull of each unit vector."""
    units = np.eye(shape[-1])
    return np.stack([(pull(np.broadcast_to(e, shape)) * g).sum(-1) for e in units], -1)
