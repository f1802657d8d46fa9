"""Estimators of grad_w E_q[f]: SF, RP1, RP2, GR, CF. They add and subtract; a difference of two
estimators of the same thing is a control variate.

An estimator is a function from a draw to per-sample gradients, (..., M, D). A line is checked when
it is written, evaluated when it is called.
"""

import numpy as np

from .integrands import Integrand
from .linear import Linear


class Estimator(Linear):
    """A linear combination of (method, atom) pairs."""

    def __init__(self, parts):
        super().__init__(parts)
        owners = {atom.owner for _, atom in self.parts if atom.owner}
        if len(owners) > 1:
            raise ValueError(
                f"{self!r} mixes terms of two models or families: make all from one terms()"
            )
        self.owner = next(iter(owners), None)
        self.by = {"RP1": [], "RP2": [], "GR": [], "CF": [], "SF": []}
        self.direct = []  # parts whose atom brings its own estimators
        for (method, atom), coef in self.parts.items():
            if atom.direct:
                self.direct.append((coef, method, atom))
            else:
                self.by[method].append((coef, atom))
        self.moved = self.by["RP1"] + self.by["GR"]  # their chain rule is the same
        self.methods = {method for method, pairs in self.by.items() if pairs}

    def __call__(self, draw):
        """Per-sample gradients, (..., M, D)."""
        return evaluate([self], draw)[..., 0, :, :]

    def __sub__(self, other):
        difference = super().__sub__(other)
        unmatched = [t for t, coef in difference.target.items() if coef < 0 and t != "variational"]
        if unmatched:
            raise ValueError(
                f"{difference!r} is neither a control variate nor an estimate of the ELBO "
                f"gradient: nothing on the left estimates {' and '.join(unmatched)}. A control "
                "variate is the difference of two estimators of the same term"
            )
        return difference

    @property
    def target(self):
        """What the line estimates, as {term: coefficient}; empty for a control variate."""
        total = {}
        for (_, atom), coef in self.parts.items():
            if atom.target != "one":  # the gradient of E_q[1] is zero
                total[atom.target] = total.get(atom.target, 0) + coef
        return {name: coef for name, coef in total.items() if abs(coef) > 1e-12}

    @property
    def is_control_variate(self):
        return not self.target

    @staticmethod
    def part_name(part):
        method, atom = part
        return f"{method}({atom.name})"


def SF(f):
    """f(Z) grad_w log q_w(Z), Z ~ q_w: score function, (..., M, D)."""
    return _estimator("SF", f)


def RP1(f):
    """grad_w f(mu + L eps), eps ~ N(0, I): reparameterised by the Cholesky factor, (..., M, D)."""
    return _estimator("RP1", f)


def RP2(f):
    """grad_w f(mu + (L L^T)^(1/2) eps): reparameterised by the symmetric root, (..., M, D)."""
    return _estimator("RP2", f)


def GR(f):
    """f(Z) grad_w log qbar_w(eps) + grad_w f(T_w(eps)), Z = T_w(eps): generalised, (..., M, D).

    The score is that of the base density qbar_w. Where the base does not move this is RP1, where
    the transform T_w does nothing it is SF.
    """
    return _estimator("GR", f)


def CF(f):
    """grad_w E_q[f(Z)] in closed form, (..., M, D); with subsampling, on the drawn data point."""
    for atom in _integrand("CF", f).parts:
        if not atom.closed_form:
            hint = f": try {atom.advice}" if atom.advice else ""
            raise ValueError(
                f"CF needs a closed form of E_q[f]; '{atom.name}' of {atom.model!r} has none{hint}"
            )
        if atom.quadratic and atom.q is not None and not atom.q.quadratics:
            raise ValueError(
                f"CF needs a closed form of E_q[f]; {atom.q!r} has none for the quadratic "
                f"'{atom.name}', as its coordinates depend on each other: try SF({atom.name})"
            )
    return _estimator("CF", f)


def _integrand(method, f):
    if not isinstance(f, Integrand):
        raise TypeError(f"{method} estimates an integrand such as data or data + prior, not {f!r}")
    return f


def _estimator(method, f):
    for atom in _integrand(method, f).parts:
        legal = atom.methods if atom.direct else atom.q.methods if atom.q is not None else [method]
        if method not in legal:
            raise ValueError(
                f"{method}({atom.name}) is not possible for {atom.q!r}: it has no such "
                f"transformation of fixed noise. Write {' or '.join(legal)} instead"
            )
    return Estimator({(method, atom): coef for atom, coef in _integrand(method, f).parts.items()})


@np.errstate(over="ignore", invalid="ignore")  # what overflows is an error below, not a warning
def evaluate(lines, draw, out=None, check=True):
    """Every line's per-sample gradients, (..., number of lines, M, D), shared work done once.

    A gradient that is not finite is an error that names estimator and term, unless check=False.
    """
    _check_lines(lines, draw)
    shape = (*draw.w.shape[:-1], len(lines), draw.M, draw.q.D)
    if out is None:
        out = np.empty(shape)
    elif out.shape != shape:
        raise ValueError(f"out must be {shape}, (runs, lines, M, D); got {out.shape}")
    slope1 = lambda atom: draw.once((atom.key, "z1"), atom.grad, "z1")
    slope2 = lambda atom: draw.once((atom.key, "z2"), atom.grad, "z2")
    closed = lambda atom: draw.once((atom.key, "CF"), atom.closed)
    value = lambda atom: draw.once((atom.key, "SF"), atom.value, "z1")
    for k, line in enumerate(lines):
        G = out[..., k, :, :]
        # The pull-back is linear in u: add first, pull back once.
        draw.q.pull1(draw, _sum(line.moved, slope1), G)
        if line.by["RP2"]:
            draw.q.pull2(draw, _sum(line.by["RP2"], slope2), G)
        for coef, atom in line.by["CF"]:
            if coef == -1:
                G -= closed(atom)
            else:
                G += closed(atom) if coef == 1 else coef * closed(atom)
        if line.by["SF"]:
            G += _sum(line.by["SF"], value)[..., None] * draw.score
        if line.by["GR"] and draw.base_score is not None:
            G += _sum(line.by["GR"], value)[..., None] * draw.base_score
        for coef, method, atom in line.direct:
            G += coef * draw.once((atom.key, method), atom.estimate, method)
    if check and not np.isfinite(out.sum()):
        _name_the_culprit(lines, draw)
    return out


def _sum(pairs, array):
    """sum of coef * array(atom), without products by 1; None for the empty sum."""
    total = None
    for coef, atom in pairs:
        part = array(atom)
        if total is None:
            total = part if coef == 1 else coef * part
        elif coef == -1:
            total = total - part
        else:
            total = total + (part if coef == 1 else coef * part)
    return total


def _check_lines(lines, draw):
    for line in lines:
        if not isinstance(line, Estimator):
            hint = ": take its .line" * hasattr(line, "line")
            raise TypeError(f"evaluate takes estimators such as RP1(data), not {line!r}{hint}")
        if line.owner and line.owner != (draw.model, draw.q):
            raise ValueError(f"{line!r} and the draw belong to different models or families")
        illegal = line.methods.difference(draw.q.methods)
        if illegal:
            raise ValueError(f"{line!r}: {min(illegal)} is not possible for {draw.q!r}")


def _name_the_culprit(lines, draw):
    for method, atom in {part: None for line in lines for part in line.parts}:
        alone = evaluate([Estimator({(method, atom): 1})], draw, check=False)
        if not np.isfinite(alone).all():
            where = np.argwhere(~np.isfinite(alone[..., 0, :, :]).all(-1))[0].tolist()
            raise ValueError(
                f"{method}({atom.name}) is not finite at sample {where}: q may be far too wide for "
                f"this model, largest |w| is {np.abs(draw.w).max():.3g}; take a smaller step"
            )
    raise ValueError("the gradient overflows: its parts are finite, their sum is not")
